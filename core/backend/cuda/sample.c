/* sample.c - launches of the sampler and of the update of its penalty history. Kernels:
 * shaders/cuda/sample.cu. */
#include "core/backend/cuda/ops_int.h"

#include "shaders/cuda/kernels.h"

#include <stddef.h>

_Static_assert(sizeof(struct sampling) == 28, "kernels read it as it lies in memory");
_Static_assert(sizeof(struct cargs_sampling) == sizeof(struct backend_sampling) &&
                   offsetof(struct cargs_sampling, index) ==
                       offsetof(struct backend_sampling, index) &&
                   sizeof(struct cargs_sampled) == sizeof(struct backend_sampled) &&
                   sizeof(struct cargs_penalty_entry) == sizeof(struct backend_penalty_entry) &&
                   sizeof(struct cargs_token_copy) == sizeof(struct backend_token_copy) &&
                   sizeof(struct cargs_history_update) == sizeof(struct backend_history_update),
               "kernels and host share the layout");

int cuda_sample(backend *be, const struct op_sample *a) {
    const struct cargs_sample args = {
        .x = cuda_at(a->x),
        .sampling = cuda_at(a->sampling),
        .history = cuda_at(a->history),
        .out = cuda_at(a->out),
        .n_cols = a->n_cols,
        .n_history = a->n_history,
    };
    return cuda_launch(
        cuda_of(be), &(struct cuda_launch){.kernel = cuda_sample_kernel(),
                                           .name = "sample",
                                           .args = &args,
                                           .args_bytes = sizeof args,
                                           .grid = {a->n_rows},
                                           .threads = CUDA_SAMPLE_THREADS,
                                           .shared = CUDA_SAMPLE_LIST * 16,
                                           .read = (uint64_t)a->n_rows * a->n_cols * 4,
                                           .written = a->n_rows * sizeof(struct backend_sampled)});
}

int cuda_update_history(backend *be, const struct op_update_history *a) {
    const struct cargs_update_history args = {
        .sampled = cuda_at(a->sampled),
        .updates = cuda_at(a->updates),
        .history = cuda_at(a->history),
    };
    return cuda_launch(cuda_of(be), &(struct cuda_launch){.kernel = cuda_update_history_kernel(),
                                                          .name = "update_history",
                                                          .args = &args,
                                                          .args_bytes = sizeof args,
                                                          .grid = {a->n},
                                                          .threads = 256,
                                                          .no_overlap = true});
}
