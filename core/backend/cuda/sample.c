/* sample.c - launches of the draw and of what it looks at. Kernel: shaders/cuda/sample.cu. */
#include "core/backend/cuda/cuda_int.h"

#include "shaders/cuda/kernels.h"

#include <stddef.h>

_Static_assert(sizeof(struct cargs_draw) == sizeof(struct backend_draw) &&
                   offsetof(struct cargs_draw, index) == offsetof(struct backend_draw, index) &&
                   sizeof(struct cargs_drawn) == sizeof(struct backend_drawn),
               "one layout on both sides");

int cuda_sample(backend *be, const struct op_sample *a) {
    const struct cargs_sample args = {
        .x = cuda_at(a->x),
        .draws = cuda_at(a->draws),
        .seen = cuda_at(a->seen),
        .out = cuda_at(a->out),
        .n_cols = a->n_cols,
        .n_seen = a->n_seen,
    };
    return cuda_launch(cuda_of(be),
                       &(struct cuda_launch){.kernel = cuda_sample_kernel(),
                                             .name = "sample",
                                             .args = &args,
                                             .args_bytes = sizeof args,
                                             .grid = {a->n_rows},
                                             .threads = CUDA_SAMPLE_THREADS,
                                             .shared = CUDA_SAMPLE_LIST * 16,
                                             .read = (uint64_t)a->n_rows * a->n_cols * 4,
                                             .written = a->n_rows * sizeof(struct backend_drawn)});
}

int cuda_recount(backend *be, const struct op_recount *a) {
    const struct cargs_recount args = {
        .drawn = cuda_at(a->drawn),
        .list = cuda_at(a->list),
        .seen = cuda_at(a->seen),
    };
    return cuda_launch(cuda_of(be), &(struct cuda_launch){.kernel = cuda_recount_kernel(),
                                                          .name = "recount",
                                                          .args = &args,
                                                          .args_bytes = sizeof args,
                                                          .grid = {a->n},
                                                          .threads = 256,
                                                          .behind = true});
}
