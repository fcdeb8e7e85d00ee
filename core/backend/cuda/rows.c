/* rows.c - launches of ops on rows: embed, gather, copy_tokens, gated, add_normed, gate. Kernels:
 * shaders/cuda/rows.cu. */
#include "core/backend/cuda/ops_int.h"

#include "shaders/cuda/kernels.h"

enum { THREADS = 256 };

int cuda_embed(backend *be, const struct op_embed *a) {
    const struct cuda_weight *w = (const struct cuda_weight *)a->table;
    uint64_t row_bytes;
    uint32_t n_cols = (uint32_t)w->base.n_in;
    qtype_bytes(w->base.type, 1, n_cols, &row_bytes);
    /* A BF16 weight that shares its rows with products is F16 with a scale (format.h). */
    bool halves = w->base.type == QTYPE_BF16 && w->raw == w->product;
    const struct cargs_embed args = {
        .table = w->raw,
        .ids = cuda_at(a->ids),
        .out = cuda_at(a->out),
        .row_bytes = row_bytes,
        .n_rows = a->n_rows,
        .n_cols = n_cols,
        .scale = halves ? a->scale * w->scale : a->scale,
        .type = (uint32_t)(halves ? QTYPE_F16 : w->base.type),
    };
    return cuda_launch(cuda_of(be),
                       &(struct cuda_launch){.kernel = cuda_embed_kernel(),
                                             .name = "embed",
                                             .args = &args,
                                             .args_bytes = sizeof args,
                                             .grid = {a->n_rows},
                                             .threads = THREADS,
                                             .read = a->n_rows * row_bytes,
                                             .written = (uint64_t)a->n_rows * n_cols * 4});
}

int cuda_gather(backend *be, const struct op_gather *a) {
    const struct cargs_gather args = {
        .x = cuda_at(a->x),
        .residual = cuda_at(a->residual),
        .rows = cuda_at(a->rows),
        .out = cuda_at(a->out),
        .n_rows = a->n_out_rows,
        .n_cols = a->n_cols,
    };
    uint64_t bytes = (uint64_t)a->n_out_rows * a->n_cols * 4;
    return cuda_launch(cuda_of(be), &(struct cuda_launch){.kernel = cuda_gather_kernel(),
                                                          .name = "gather",
                                                          .args = &args,
                                                          .args_bytes = sizeof args,
                                                          .grid = {a->n_out_rows},
                                                          .threads = THREADS,
                                                          .read = a->residual ? 2 * bytes : bytes,
                                                          .written = bytes});
}

int cuda_gated(backend *be, const struct op_gated *a) {
    const struct cargs_gated args = {.x = cuda_at(a->x),
                                     .up = cuda_at(a->up),
                                     .n_rows = a->n_rows,
                                     .n_cols = a->n_cols,
                                     .first = a->first,
                                     .stride = a->stride,
                                     .act = (uint32_t)a->act};
    const uint64_t bytes = (uint64_t)a->n_rows * a->n_cols * 4;
    return cuda_launch(cuda_of(be),
                       &(struct cuda_launch){.kernel = cuda_gated_kernel(),
                                             .name = "gated",
                                             .args = &args,
                                             .args_bytes = sizeof args,
                                             .grid = {cuda_div_up(a->n_cols, THREADS), a->n_rows},
                                             .threads = THREADS,
                                             .read = 2 * bytes,
                                             .written = bytes});
}

int cuda_add_normed(backend *be, const struct op_add_normed *a) {
    const uint32_t n = a->norm ? (uint32_t)a->norm->n_in : a->n_cols;
    const struct cargs_add_normed args = {.x = cuda_at(a->x),
                                          .r = cuda_at(a->r),
                                          .norm = cuda_vector(a->norm),
                                          .factor = cuda_vector(a->factor),
                                          .eps = a->eps,
                                          .scale = a->scale != 0 ? a->scale : 1,
                                          .n_cols = a->n_cols,
                                          .n = n};
    const uint64_t bytes = (uint64_t)a->n_rows * a->n_cols * 4;
    return cuda_launch(cuda_of(be), &(struct cuda_launch){.kernel = cuda_add_normed_kernel(),
                                                          .name = "add_normed",
                                                          .args = &args,
                                                          .args_bytes = sizeof args,
                                                          .grid = {a->n_cols / n, a->n_rows},
                                                          .threads = CUDA_ADD_NORMED_THREADS,
                                                          .read = a->r ? 2 * bytes : bytes,
                                                          .written = bytes});
}

int cuda_gate(backend *be, const struct op_gate *a) {
    const struct cargs_gate args = {
        .x = cuda_at(a->x),
        .gate = a->gate ? cuda_at(a->gate) : NULL,
        .n = (uint64_t)a->n_rows * a->n_cols,
        .unary = (uint32_t)a->unary,
        .span = a->span,
        .softplus = a->softplus,
        .xielu = {a->xielu.positive, a->xielu.negative, a->xielu.beta, a->xielu.eps}};
    return cuda_launch(cuda_of(be), &(struct cuda_launch){.kernel = cuda_gate_kernel(),
                                                          .name = "gate",
                                                          .args = &args,
                                                          .args_bytes = sizeof args,
                                                          .grid = {cuda_div_up(args.n, THREADS)},
                                                          .threads = THREADS,
                                                          .read = 2 * args.n * sizeof(float),
                                                          .written = args.n * sizeof(float)});
}

int cuda_copy_tokens(backend *be, const struct op_copy_tokens *a) {
    const struct cargs_copy_tokens args = {
        .from = cuda_at(a->from),
        .copies = (const struct cargs_token_copy *)cuda_at(a->copies) + a->first,
        .ids = cuda_at(a->ids),
        .stride = a->stride,
        .n = a->n,
    };
    return cuda_launch(cuda_of(be),
                       &(struct cuda_launch){.kernel = cuda_copy_tokens_kernel(),
                                             .name = "copy_tokens",
                                             .args = &args,
                                             .args_bytes = sizeof args,
                                             .grid = {cuda_div_up(a->n, THREADS)},
                                             .threads = THREADS,
                                             .no_overlap = true, /* after a copy or a graph */
                                             .read = (uint64_t)a->n * 12,
                                             .written = (uint64_t)a->n * 4});
}
