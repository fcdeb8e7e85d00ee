/* finish.c - what follows the sums of a product where another kernel computed these. Owns nothing.
 * Kernel: shaders/cuda/finish.cu. */
#include "core/backend/cuda/cuda_int.h"

#include "shaders/cuda/kernels.h"

enum { THREADS = 256, COLS = 4 * THREADS };

struct cargs_tail cuda_tail(const struct cuda_product *p) {
    float scale = p->y_scale != 0 ? p->y_scale : 1;
    return (struct cargs_tail){
        .bias = p->bias,
        .pair_bias = p->pair_bias,
        .scale = p->w->scale,
        .pair_scale = p->pair ? p->pair->scale : 0,
        .y_scale = scale,
        .cap = p->softcap,
        .y_over_cap = p->softcap != 0 ? scale / p->softcap : 0,
        .act = p->pair ? (uint32_t)p->act : 0,
    };
}

int cuda_finish(struct cuda_backend *c, const struct cuda_product *p, uint32_t first,
                uint32_t n_rows, const float *sums, const float *pair_sums) {
    uint32_t n_out = (uint32_t)p->w->base.n_out;
    const struct cargs_finish args = {
        .sums = sums,
        .pair_sums = pair_sums,
        .in_scale = (const float *)cuda_scratch(c, CUDA_SCRATCH_IN_SCALE) + first,
        .y = p->y + (uint64_t)first * n_out,
        .tail = cuda_tail(p),
        .n_rows = n_rows,
        .n_out = n_out,
    };
    uint64_t bytes = (uint64_t)n_rows * n_out * 4;
    return cuda_launch(c, &(struct cuda_launch){.kernel = cuda_finish_kernel(),
                                                .name = "finish",
                                                .args = &args,
                                                .args_bytes = sizeof args,
                                                .grid = {cuda_div_up(n_out, COLS), n_rows},
                                                .threads = THREADS,
                                                .read = pair_sums ? 2 * bytes : bytes,
                                                .written = bytes});
}
