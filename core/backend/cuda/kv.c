/* kv.c - the K/V pools: what kernels can address, copies of blocks. Kernel: shaders/cuda/rows.cu.
 */
#include "core/backend/cuda/ops_int.h"

#include "core/base/min_max.h"
#include "shaders/cuda/kernels.h"

#include <string.h>

enum {
    THREADS = 256,
    MAX_DIM = 1024,         /* of a head, in attention_plain.cu */
    SLICE_BYTES = 8 * 1024, /* of a block that is copied, for each block of threads */
    MOST_SLICES = 64
};

bool cuda_kv_fits(const struct backend_kv *kv) {
    uint64_t bytes;
    return backend_kv_block_bytes(kv, &bytes) && bytes / kv->n_kv_heads <= UINT32_MAX &&
           kv->head_dim <= MAX_DIM && kv->v_dim % 4 == 0;
}

/* One launch copies as many pairs as its arguments hold. A pair that reads or writes a block
 * written in the same launch, or writes one read there, begins the next launch. */
int cuda_kv_copy(backend *be, const struct op_kv_copy *a) {
    const struct backend_kv *kv = &a->kv;
    const int32_t *pairs = a->pairs;
    const uint32_t n_pairs = a->n_pairs;
    struct cargs_kv_copy args = {.k = cuda_at(kv->k), .v = cuda_at(kv->v)};
    backend_kv_block_bytes(kv, &args.block_bytes);
    for (uint32_t i = 0; i < n_pairs;) {
        uint32_t n = 0;
        for (bool independent = true; i < n_pairs && n < ARGS_KV_COPY_PAIRS; i++, n++) {
            for (uint32_t j = 0; j < n && independent; j++)
                independent = args.pairs[2 * j + 1] != pairs[2 * i] &&
                              args.pairs[2 * j + 1] != pairs[2 * i + 1] &&
                              args.pairs[2 * j] != pairs[2 * i + 1];
            if (!independent) break;
            memcpy(&args.pairs[2 * n], &pairs[2 * i], 2 * sizeof *pairs);
        }
        args.n_pairs = n;
        const uint32_t n_pools = kv->v ? 2 : 1;
        uint64_t bytes = n_pools * n * args.block_bytes;
        const uint32_t slices = min_u32(cuda_div_up(args.block_bytes, SLICE_BYTES), MOST_SLICES);
        int rc = cuda_launch(cuda_of(be), &(struct cuda_launch){.kernel = cuda_kv_copy_kernel(),
                                                                .name = "kv_copy",
                                                                .args = &args,
                                                                .args_bytes = sizeof args,
                                                                .grid = {n, n_pools, slices},
                                                                .threads = THREADS,
                                                                .read = bytes,
                                                                .written = bytes});
        if (rc) return rc;
    }
    return 0;
}
