/* linear_attention.m - launches of linear attention: sums of chunks, their scan, the outputs; or
 * one kernel for all of it if every sequence has one row. Owns the scratch for the states. */
#include "core/backend/metal/metal_int.h"

enum { THREADS = 256 };

int metal_linear_attention_scratch(struct metal_backend *m, const struct backend_config *c,
                                   err *e) {
    uint64_t bytes = backend_linear_pass_bytes(&c->linear_attention, c->max_rows);
    return bytes ? backend_buf_new(&m->base, bytes, &m->scratch[METAL_SCRATCH_STATES], e) : 0;
}

/* A launch of `kernel`, complete except for its grid and traffic. */
static struct metal_launch launch_of(struct metal_backend *m, const struct op_linear_attention *a,
                                     const struct margs_linear_attention *args,
                                     const char *kernel) {
    return (struct metal_launch){
        .kernel = kernel,
        .n_consts = 1,
        .consts = {{MARGS_LINEAR_ATTENTION_DIM, a->head_dim}},
        .args = args,
        .args_bytes = sizeof *args,
        .n_binds = 10,
        .binds = {metal_at(a->q), metal_at(a->k), metal_at(a->v), metal_at(a->pos),
                  metal_at(a->row_start), metal_at(a->slots),
                  a->decay ? metal_weight_at(a->decay) : metal_at(a->q), metal_at(a->state),
                  metal_at(a->out), metal_at(m->scratch[METAL_SCRATCH_STATES])},
        .threads = {THREADS, 1, 1},
    };
}

/* Bytes of one row, of S, of a chunk's K or V; all heads. */
struct sizes {
    uint64_t row, state, rows;
    uint32_t chunk, tile_bytes; /* of one head in threadgroup memory */
};

static struct sizes sizes_of(const struct op_linear_attention *a) {
    const uint32_t chunk = backend_linear_chunk(a->head_dim);
    const uint64_t row = (uint64_t)a->n_heads * a->head_dim * sizeof(float);
    return (struct sizes){.row = row,
                          .state = row * a->head_dim,
                          .rows = row * chunk,
                          .chunk = chunk,
                          .tile_bytes = chunk * a->head_dim * (uint32_t)sizeof(float)};
}

/* A step with one row per sequence. Traffic: as if each slot held half a chunk. */
static int attend_step(struct metal_backend *m, const struct op_linear_attention *a,
                       const struct margs_linear_attention *args) {
    const struct sizes size = sizes_of(a);
    struct metal_launch l = launch_of(m, a, args, "linear_attention_step");
    l.tg_bytes = size.tile_bytes + (a->head_dim * 5 + size.chunk) * (uint32_t)sizeof(float);
    l.threads[0] = 4 * a->head_dim;
    l.groups[0] = a->n_heads, l.groups[1] = a->n_seqs, l.groups[2] = 1;
    l.read = a->n_seqs * (3 * size.row + size.state + size.rows);
    l.written = a->n_seqs * 3 * size.row;
    return metal_dispatch(m, &l);
}

/* Chunks first_task .. first_task + n_tasks - 1. Traffic: as if every chunk were full, without the
 * chunks that no row touches. */
static int attend_pass(struct metal_backend *m, const struct op_linear_attention *a,
                       const struct margs_linear_attention *args, uint64_t n_rows) {
    const struct sizes size = sizes_of(a);
    const uint64_t states = metal_div_up(n_rows, size.chunk) * size.state;
    struct metal_launch l = launch_of(m, a, args, "linear_attention_chunks");
    l.tg_bytes = 2 * size.tile_bytes;
    l.groups[0] = args->op.n_tasks, l.groups[1] = a->n_heads, l.groups[2] = 1;
    l.read = n_rows * 2 * size.row, l.written = states;
    int rc = metal_dispatch(m, &l);
    if (rc) return rc;
    l = launch_of(m, a, args, "linear_attention_scan");
    l.groups[0] = a->head_dim * a->head_dim / 4 / THREADS;
    l.groups[1] = a->n_heads, l.groups[2] = a->n_seqs;
    l.read = l.written = states;
    if ((rc = metal_dispatch(m, &l))) return rc;
    l = launch_of(m, a, args, "linear_attention_outputs");
    l.tg_bytes = 3 * size.tile_bytes + (4 + size.chunk) * size.chunk * (uint32_t)sizeof(float);
    l.groups[0] = args->op.n_tasks, l.groups[1] = a->n_heads, l.groups[2] = 1;
    l.read = n_rows * 3 * size.row + states, l.written = n_rows * size.row;
    return metal_dispatch(m, &l);
}

static int keep_rows(struct metal_backend *m, const struct op_linear_attention *a,
                     const struct margs_linear_attention *args) {
    const struct sizes size = sizes_of(a);
    struct metal_launch l = launch_of(m, a, args, "linear_attention_keep");
    l.groups[0] = a->n_heads, l.groups[1] = a->n_seqs, l.groups[2] = 1;
    l.read = l.written = a->n_seqs * size.rows; /* half a chunk of K and of V */
    return metal_dispatch(m, &l);
}

int metal_linear_attention(backend *be, const struct op_linear_attention *a) {
    struct metal_backend *m = metal_of(be);
    struct margs_linear_attention args = {.op = {.n_seqs = a->n_seqs,
                                                 .n_heads = a->n_heads,
                                                 .n_slots = a->n_slots,
                                                 .scale = a->scale},
                                          .has_decay = a->decay != NULL};
    if (a->n_seqs == a->n_rows) return attend_step(m, a, &args);
    const uint64_t all = backend_linear_tasks(a->n_rows, a->n_seqs, a->head_dim);
    const uint32_t most = backend_linear_pass(&be->linear_attention, be->max_rows);
    int rc = 0;
    for (uint64_t at = 0; at < all && !rc; at += args.op.n_tasks) {
        args.op.first_task = (uint32_t)at;
        args.op.n_tasks = (uint32_t)(all - at < most ? all - at : most);
        rc = attend_pass(m, a, &args, a->n_rows * args.op.n_tasks / all);
    }
    return rc ? rc : keep_rows(m, a, &args);
}
