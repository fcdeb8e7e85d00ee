/* lt.c - in the place of core/backend/cuda/lt.c on the stand-in: with CUDASIM_LT=1 its products by
 * a kernel of ours, so that large.c and what follows cuBLASLt run; otherwise there is no cuBLASLt.
 * It takes every shape without K splits and, unlike the library, does not choose by time. */
#include "core/backend/cuda/gemm_int.h"

#include "shaders/cuda/kernels.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_ROWS = 8192 };

struct cuda_lt {
    void *ones; /* (MOST_ROWS) f32 on the device */
};

int cuda_lt_open(struct cuda_backend *c, err *e) {
    static float ones[MOST_ROWS];
    if (!getenv("CUDASIM_LT")) return 0;
    struct cuda_lt *lt = calloc(1, sizeof *lt);
    int rc = lt ? cuda_memory_new(c, sizeof ones, &lt->ones, e) : err_no_memory(e);
    if (rc) {
        free(lt);
        return rc;
    }
    for (int i = 0; i < MOST_ROWS; i++)
        ones[i] = 1;
    c->lt = lt;
    return cuda_check(c, "a copy", cudaMemcpy(lt->ones, ones, sizeof ones, cudaMemcpyHostToDevice),
                      e);
}

void cuda_lt_close(struct cuda_backend *c) {
    if (!c->lt) return;
    cuda_memory_free(c, c->lt->ones, MOST_ROWS * sizeof(float));
    free(c->lt);
    c->lt = NULL;
}

void cuda_lt_prepare(struct cuda_backend *c, uint32_t n_out, uint32_t n_in, bool pairs) {
    (void)c, (void)n_out, (void)n_in, (void)pairs;
}

bool cuda_lt_product(struct cuda_backend *c, const struct cuda_lt_product *p) {
    const struct cuda_tile_kernel k = cuda_product_tile_kernel(CUDA_FORMAT_F16, CUDA_TILE_SMALL);
    if (!c->lt || p->y_pitch != p->n_out || p->n_rows > MOST_ROWS || cuda_n_splits(p->n_in) > 1)
        return false;
    if (p->w2) {
        struct cuda_lt_product first = *p, second = *p;
        if ((uintptr_t)p->w2 < (uintptr_t)p->w || (uintptr_t)p->y2 < (uintptr_t)p->y) return false;
        first.w2 = second.w2 = NULL;
        second.w = p->w2, second.y = p->y2;
        return cuda_lt_product(c, &first) && cuda_lt_product(c, &second);
    }
    /* The library does not begin what was put off, so nothing may be. */
    if (c->put_off.args.y || c->deferred.args.x || c->pending.x) {
        fprintf(stderr, "cuBLASLt is called while something before it has not begun\n");
        abort();
    }
    const struct cargs_product_tile a = {.w = p->w,
                                         .x = p->x,
                                         .in_scale = c->lt->ones,
                                         .y = p->y,
                                         .epilogue = {.scale = p->scale, .y_scale = 1},
                                         .tile_row_bytes =
                                             (uint64_t)CUDA_TILE_ROWS * cuda_pitch(p->n_in) * 2,
                                         .n_rows = p->n_rows,
                                         .n_out = p->n_out,
                                         .n_tiles = cuda_div_up(p->n_out, CUDA_TILE_ROWS),
                                         .pitch = cuda_pitch(p->n_in),
                                         .split_cols = cuda_split_cols(p->n_in),
                                         .n_stages = 3};
    return !cuda_launch(c,
                        &(struct cuda_launch){.kernel = k.kernel,
                                              .name = "cublaslt",
                                              .args = &a,
                                              .args_bytes = sizeof a,
                                              .grid = {cuda_div_up(p->n_rows, (uint32_t)k.inputs),
                                                       cuda_div_up(p->n_out, (uint32_t)k.rows)},
                                              .threads = (uint32_t)k.threads,
                                              .shared = a.n_stages * (uint32_t)k.stage_bytes});
}
