/* linear_attention.c - launches of linear attention: sums of chunks, their scan, outputs; a single
 * kernel if every sequence has one row. Owns its scratch. */
#include "core/backend/cuda/ops_int.h"

#include "shaders/cuda/kernels.h"

static const char *const names[] = {
    [CUDA_LINEAR_CHUNKS] = "linear_attention_chunks",
    [CUDA_LINEAR_SCAN] = "linear_attention_scan",
    [CUDA_LINEAR_OUTPUTS] = "linear_attention_outputs",
    [CUDA_LINEAR_KEEP] = "linear_attention_keep",
    [CUDA_LINEAR_STEP] = "linear_attention_step",
};

int cuda_linear_attention_scratch(struct cuda_backend *c, const struct backend_config *config,
                                  err *e) {
    uint64_t bytes = backend_linear_pass_bytes(&config->linear_attention, config->max_rows);
    return cuda_scratch_new(c, CUDA_SCRATCH_STATES, bytes, e);
}

/* Shared by the launches of one op. row, state and rows are bytes over all heads: of one row, of S,
 * of a chunk's K or V. */
struct linear_run {
    struct cuda_backend *c;
    const struct op_linear_attention *a;
    struct cargs_linear_attention args;
    uint64_t row, state, rows;
};

struct grid {
    uint32_t x, y, z;
};

static int launch_linear(const struct linear_run *r, enum cuda_linear_kernel kernel,
                         struct grid grid, uint64_t read, uint64_t written) {
    const bool step = kernel == CUDA_LINEAR_STEP;
    return cuda_launch(
        r->c, &(struct cuda_launch){.kernel = cuda_linear_attention_kernel(kernel, r->a->head_dim),
                                    .name = names[kernel],
                                    .args = &r->args,
                                    .args_bytes = sizeof r->args,
                                    .grid = {grid.x, grid.y, grid.z},
                                    .threads = step ? 4 * r->a->head_dim : CUDA_LINEAR_THREADS,
                                    .read = read,
                                    .written = written});
}

/* Chunks first_task .. first_task + n_tasks - 1. Counts traffic as if every chunk with rows were
 * full and the others did not exist. */
static int attend_pass(const struct linear_run *r, uint64_t n_rows) {
    const struct op_linear_attention *a = r->a;
    const uint64_t states = cuda_div_up(n_rows, backend_linear_chunk(a->head_dim)) * r->state;
    const struct grid tasks = {r->args.op.n_tasks, a->n_heads, 1};
    const struct grid scan = {a->head_dim * a->head_dim / 4 / CUDA_LINEAR_THREADS, a->n_heads,
                              a->n_seqs};
    int rc = launch_linear(r, CUDA_LINEAR_CHUNKS, tasks, n_rows * 2 * r->row, states);
    if (!rc) rc = launch_linear(r, CUDA_LINEAR_SCAN, scan, states, states);
    if (!rc)
        rc = launch_linear(r, CUDA_LINEAR_OUTPUTS, tasks, n_rows * 3 * r->row + states,
                           n_rows * r->row);
    return rc;
}

static int attend_chunks(struct linear_run *r) {
    const struct op_linear_attention *a = r->a;
    const uint64_t all = backend_linear_tasks(a->n_rows, a->n_seqs, a->head_dim);
    const uint32_t most = backend_linear_pass(&r->c->base.linear_attention, r->c->base.max_rows);
    int rc = 0;
    for (uint64_t at = 0; at < all && !rc; at += r->args.op.n_tasks) {
        r->args.op.first_task = (uint32_t)at;
        r->args.op.n_tasks = (uint32_t)(all - at < most ? all - at : most);
        rc = attend_pass(r, a->n_rows * r->args.op.n_tasks / all);
    }
    if (rc) return rc;
    const uint64_t kept = a->n_seqs * r->rows; /* half a chunk of K and of V */
    return launch_linear(r, CUDA_LINEAR_KEEP, (struct grid){a->n_heads, a->n_seqs, 1}, kept, kept);
}

int cuda_linear_attention(backend *be, const struct op_linear_attention *a) {
    struct cuda_backend *c = cuda_of(be);
    const uint64_t row = (uint64_t)a->n_heads * a->head_dim * sizeof(float);
    struct linear_run r = {.c = c,
                           .a = a,
                           .args = {.q = cuda_at(a->q),
                                    .k = cuda_at(a->k),
                                    .v = cuda_at(a->v),
                                    .pos = cuda_at(a->pos),
                                    .row_start = cuda_at(a->row_start),
                                    .slots = cuda_at(a->slots),
                                    .decay = cuda_vector(a->decay),
                                    .state = cuda_at(a->state),
                                    .out = cuda_at(a->out),
                                    .states = cuda_scratch(c, CUDA_SCRATCH_STATES),
                                    .op = {.n_seqs = a->n_seqs,
                                           .n_heads = a->n_heads,
                                           .n_slots = a->n_slots,
                                           .scale = a->scale}},
                           .row = row,
                           .state = row * a->head_dim,
                           .rows = row * backend_linear_chunk(a->head_dim)};
    if (a->n_seqs != a->n_rows) return attend_chunks(&r);
    /* Counts traffic as if each slot held half a chunk. */
    return launch_linear(&r, CUDA_LINEAR_STEP, (struct grid){a->n_heads, a->n_seqs, 1},
                         a->n_seqs * (3 * row + r.state + r.rows), a->n_seqs * 3 * row);
}
