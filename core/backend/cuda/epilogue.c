/* epilogue.c - a product's epilogue (scale, bias, activation, soft-cap) as a kernel of its own, for
 * sums that another kernel left in memory; it may be put off until its y is read (input.c). Owns
 * nothing. Kernel: shaders/cuda/epilogue.cu. */
#include "core/backend/cuda/gemm_int.h"

#include "shaders/cuda/kernels.h"

enum { THREADS = 256, COLS = 4 * THREADS };

struct cargs_epilogue cuda_epilogue_args(const struct cuda_product *p) {
    float scale = p->y_scale != 0 ? p->y_scale : 1;
    return (struct cargs_epilogue){
        .bias = p->bias,
        .pair_bias = p->pair_bias,
        .scale = p->w->scale,
        .pair_scale = p->pair ? p->pair->scale : 0,
        .y_scale = scale,
        .cap = p->pair ? p->bounds.up : p->softcap,
        .y_over_cap = p->pair           ? p->bounds.gate
                      : p->softcap != 0 ? scale / p->softcap
                                        : 0,
        .act = p->pair ? (uint32_t)p->act : 0,
    };
}

static int launch_epilogue(struct cuda_backend *c, const struct cargs_apply_epilogue *args) {
    uint64_t bytes = (uint64_t)args->n_rows * args->n_out * 4;
    return cuda_launch(c,
                       &(struct cuda_launch){.kernel = cuda_epilogue_kernel(),
                                             .name = "epilogue",
                                             .args = args,
                                             .args_bytes = sizeof *args,
                                             .grid = {cuda_div_up(args->n_out, COLS), args->n_rows},
                                             .threads = THREADS,
                                             .read = args->pair_sums ? 2 * bytes : bytes,
                                             .written = bytes});
}

static struct cargs_apply_epilogue args_of(const struct cuda_backend *c,
                                           const struct cuda_product *p, const float *sums,
                                           const float *pair_sums) {
    return (struct cargs_apply_epilogue){
        .sums = sums,
        .pair_sums = pair_sums,
        .in_scale = cuda_in_scales(c),
        .y = p->y,
        .epilogue = cuda_epilogue_args(p),
        .n_rows = p->n_rows,
        .n_out = (uint32_t)p->w->base.n_out,
    };
}

int cuda_epilogue(struct cuda_backend *c, const struct cuda_product *p, uint32_t first,
                  uint32_t n_rows, const float *sums, const float *pair_sums) {
    struct cargs_apply_epilogue args = args_of(c, p, sums, pair_sums);
    args.in_scale += first;
    args.y += (uint64_t)first * args.n_out;
    args.n_rows = n_rows;
    return launch_epilogue(c, &args);
}

void cuda_epilogue_later(struct cuda_backend *c, const struct cuda_product *p, const float *sums,
                         const float *pair_sums) {
    c->put_off = (struct cuda_put_off){args_of(c, p, sums, pair_sums), launch_epilogue};
}

int cuda_epilogue_splits(struct cuda_backend *c, const struct cuda_product *p,
                         const float *partials, uint32_t n_splits) {
    struct cargs_apply_epilogue args = args_of(c, p, partials, NULL);
    args.n_splits = n_splits;
    return launch_epilogue(c, &args);
}

int cuda_activate(struct cuda_backend *c, const struct cuda_gated *g, uint32_t n_rows,
                  uint32_t n_out) {
    return launch_epilogue(c, &(struct cargs_apply_epilogue){
                                  .sums = g->gate,
                                  .pair_sums = g->up,
                                  .in_scale = g->scale,
                                  .y = g->y,
                                  .epilogue = {.scale = 1,
                                               .pair_scale = 1,
                                               .y_scale = 1,
                                               .cap = g->bounds.up,
                                               .y_over_cap = g->bounds.gate,
                                               .act = (uint32_t)g->act},
                                  .n_rows = n_rows,
                                  .n_out = n_out,
                              });
}
