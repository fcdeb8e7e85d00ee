/* short_conv.c - launches of the short convolution: all rows, and in steps with several rows of a
 * sequence what the next step reads of the inputs. Owns nothing. */
#include "core/backend/cuda/ops_int.h"

#include "shaders/cuda/kernels.h"

int cuda_short_conv(backend *be, const struct op_short_conv *a) {
    struct cuda_backend *c = cuda_of(be);
    const struct backend_state *s = &a->state;
    const struct cargs_short_conv args = {.bcx = cuda_at(a->bcx),
                                          .pos = cuda_at(a->pos),
                                          .row_start = cuda_at(a->row_start),
                                          .tables = cuda_at(a->tables),
                                          .conv = cuda_vector(a->conv),
                                          .blocks = cuda_at(s->blocks),
                                          .out = cuda_at(a->out),
                                          .state = args_state_of(s, a->n_seqs),
                                          .n_rows = a->n_rows,
                                          .chunk = s->chunk,
                                          .n_taps = s->n_taps,
                                          .channels = s->channels};
    const uint64_t row = s->channels * sizeof(float), window = (s->n_taps - 1) * row;
    const uint32_t n_groups = cuda_div_up(s->channels, CUDA_SHORT_CONV_THREADS);
    const bool keeps = a->n_rows != a->n_seqs;
    const struct cuda_launch rows = {.kernel = cuda_short_conv_kernel(0),
                                     .name = "short_conv",
                                     .args = &args,
                                     .args_bytes = sizeof args,
                                     .grid = {n_groups, a->n_rows},
                                     .threads = CUDA_SHORT_CONV_THREADS,
                                     .read = a->n_rows * 3 * row + a->n_seqs * window,
                                     .written = a->n_rows * row + (keeps ? 0 : a->n_seqs * window)};
    const struct cuda_launch keep = {.kernel = cuda_short_conv_kernel(1),
                                     .name = "short_conv_keep",
                                     .args = &args,
                                     .args_bytes = sizeof args,
                                     .grid = {n_groups, a->n_seqs},
                                     .threads = CUDA_SHORT_CONV_THREADS,
                                     .read = 2 * a->n_seqs * window,
                                     .written = a->n_seqs * window};
    int rc = cuda_launch(c, &rows);
    return rc || !keeps ? rc : cuda_launch(c, &keep);
}
