/* attention.m - launches of paged attention. Owns the scratch for partial results.
 *
 * The vector family cuts rows into tasks (a slice of the query heads of one KV head) and a task's
 * positions into chunks, the KV splits. A pass of two dispatches computes as many tasks as the
 * scratch has room for their partial results; a row's result does not depend on it. */
#include "core/backend/metal/metal_int.h"

enum {
    CHUNK = MARGS_ATTENTION_CHUNK, /* tokens */
    MAX_HEADS = 16,    /* of a task; half of it if head_dim exceeds WIDE, a quarter beyond 2 WIDE */
    WIDE = 128,        /* dimensions */
    SIMDGROUPS = 4,    /* of a threadgroup, at most */
    TG_BYTES = 24576,  /* of a threadgroup of several simdgroups: a core holds more than one */
    STAGE_FLOATS = 256 /* of a simdgroup: attention_matrix.metal */
};

static const float log2_e = 1.44269504088896340736f;

int metal_attention_scratch(struct metal_backend *m, const struct backend_config *c, err *e) {
    (void)c;
    return backend_buf_new(&m->base, METAL_PARTIAL_BYTES, &m->scratch[METAL_SCRATCH_PARTIALS], e);
}

uint32_t metal_max_chunks(const struct op_paged_attention *a, uint32_t chunk, uint32_t n_rows) {
    const uint64_t context =
        a->max_context ? a->max_context : (uint64_t)a->table_stride * a->kv.block_tokens;
    const uint32_t all = metal_div_up(context, chunk);
    const uint64_t sides = a->both_ways ? 2 : 1;
    const uint32_t windowed =
        a->window ? metal_div_up(sides * (a->window - 1) + n_rows, chunk) + 1 : all;
    return windowed < all ? windowed : all;
}

struct metal_bind metal_sinks_of(const struct op_paged_attention *a) {
    return a->sinks ? metal_weight_at(a->sinks) : metal_at(a->q);
}

static struct metal_bind slopes_of(const struct op_paged_attention *a) {
    return a->slopes ? metal_weight_at(a->slopes) : metal_at(a->q);
}

/* Multiplications of n_rows rows with n_heads query heads each, and bytes of K and V that n_seqs
 * sequences of n_kv_heads heads read, if each row sees as many positions as it may. */
static void estimate(struct metal_launch *l, const struct op_paged_attention *a, uint64_t n_rows,
                     uint64_t n_seqs) {
    const uint64_t tokens = (uint64_t)metal_max_chunks(a, CHUNK, 0) * CHUNK;
    uint64_t bytes = 0;
    qtype_bytes(a->kv.kv_type, 1, a->kv.head_dim, &bytes);
    l->products = 2 * n_rows * a->n_heads * tokens * a->kv.head_dim;
    l->hidden_read = 2 * n_seqs * a->kv.n_kv_heads * tokens * bytes;
}

struct args_attention metal_attention_args(const struct op_paged_attention *a) {
    return (struct args_attention){.n_seqs = a->n_seqs,
                                   .n_heads = a->n_heads,
                                   .n_kv_heads = a->kv.n_kv_heads,
                                   .table_stride = a->table_stride,
                                   .window = a->window,
                                   .n_slices = 1,
                                   .n_splits = metal_max_chunks(a, CHUNK, 0),
                                   .q_scale =
                                       a->softcap != 0 ? a->scale / a->softcap : a->scale * log2_e,
                                   .cap = a->softcap * log2_e,
                                   .both_ways = a->both_ways,
                                   .chunked = a->chunked};
}

static uint32_t threadgroup_bytes(const struct op_paged_attention *a, uint32_t heads,
                                  uint32_t simdgroups) {
    uint32_t scales = a->kv.kv_type == QTYPE_Q8_0 ? CHUNK * (a->kv.head_dim / Q_ELEMS) * 2 : 0;
    return (heads * a->kv.head_dim + simdgroups * CHUNK * heads) * (uint32_t)sizeof(float) +
           simdgroups * scales;
}

/* How the vector family covers the rows. */
struct decode {
    const struct op_paged_attention *a;
    struct args_attention args;
    uint32_t heads, simdgroups, n_tasks;
    bool by_seq, final;
};

static uint64_t softmax_bytes(const struct decode *d, uint32_t n_tasks) {
    return (uint64_t)n_tasks * d->heads * d->args.n_splits * 2 * sizeof(float);
}

static uint64_t task_bytes(const struct decode *d) {
    return softmax_bytes(d, 1) * (d->a->kv.head_dim / 2 + 1);
}

static int dispatch_decode(struct metal_backend *m, const struct decode *d, uint32_t n_tasks) {
    const struct op_paged_attention *a = d->a;
    struct metal_bind partials = metal_at(m->scratch[METAL_SCRATCH_PARTIALS]), sums = partials;
    sums.offset = METAL_PARTIAL_BYTES - softmax_bytes(d, n_tasks);
    uint64_t rows = (uint64_t)n_tasks * d->heads * a->kv.head_dim * sizeof(float);
    struct metal_launch l = {
        .kernel = "attention_decode",
        .n_consts = 11,
        .consts = {{MARGS_ATTENTION_KV_TYPE, (uint32_t)a->kv.kv_type},
                   {MARGS_ATTENTION_HEAD_DIM, a->kv.head_dim},
                   {MARGS_ATTENTION_BLOCK_TOKENS, a->kv.block_tokens},
                   {MARGS_ATTENTION_GROUP, a->n_heads / a->kv.n_kv_heads},
                   {MARGS_ATTENTION_SOFTCAP, a->softcap != 0},
                   {MARGS_ATTENTION_SINKS, a->sinks != NULL},
                   {MARGS_ATTENTION_SLOPES, a->slopes != NULL},
                   {MARGS_ATTENTION_HEADS, d->heads},
                   {MARGS_ATTENTION_SIMDGROUPS, d->simdgroups},
                   {MARGS_ATTENTION_BY_SEQ, d->by_seq},
                   {MARGS_ATTENTION_FINAL, d->final}},
        .args = &d->args,
        .args_bytes = sizeof d->args,
        .n_binds = 10,
        .binds = {metal_at(a->q), metal_at(a->pos), metal_at(a->row_start), metal_at(a->tables),
                  metal_at(a->kv.k), metal_at(a->kv.v), metal_sinks_of(a),
                  d->final ? metal_at(a->out) : partials, sums, slopes_of(a)},
        .tg_bytes = threadgroup_bytes(a, d->heads, d->simdgroups),
        .groups = {metal_div_up(d->args.n_splits, d->simdgroups), n_tasks, 1},
        .threads = {d->simdgroups * 32, 1, 1},
        .read = rows * metal_div_up(d->args.n_splits, d->simdgroups),
        .written = d->final ? rows : n_tasks * task_bytes(d),
    };
    /* The share of these tasks in the op's. */
    const uint64_t per_row = (uint64_t)a->kv.n_kv_heads * d->args.n_slices;
    const uint64_t n_rows = (n_tasks + per_row - 1) / per_row;
    estimate(&l, a, n_rows, n_rows);
    l.cycles = metal_attention_cycles(
        a->kv.kv_type, d->heads, l.products / a->n_heads * a->kv.n_kv_heads * d->args.n_slices);
    return metal_dispatch(m, &l);
}

static int dispatch_reduce(struct metal_backend *m, const struct decode *d, uint32_t n_tasks) {
    const struct op_paged_attention *a = d->a;
    struct metal_bind partials = metal_at(m->scratch[METAL_SCRATCH_PARTIALS]), sums = partials;
    sums.offset = METAL_PARTIAL_BYTES - softmax_bytes(d, n_tasks);
    return metal_dispatch(
        m, &(struct metal_launch){
               .kernel = "attention_reduce",
               .n_consts = 5,
               .consts = {{MARGS_ATTENTION_HEAD_DIM, a->kv.head_dim},
                          {MARGS_ATTENTION_GROUP, a->n_heads / a->kv.n_kv_heads},
                          {MARGS_ATTENTION_SINKS, a->sinks != NULL},
                          {MARGS_ATTENTION_HEADS, d->heads},
                          {MARGS_ATTENTION_BY_SEQ, d->by_seq}},
               .args = &d->args,
               .args_bytes = sizeof d->args,
               .n_binds = 6,
               .binds = {partials, sums, metal_at(a->pos), metal_at(a->row_start),
                         metal_sinks_of(a), metal_at(a->out)},
               .groups = {d->heads, n_tasks, 1},
               .threads = {32, 1, 1},
               .read = n_tasks * task_bytes(d),
               .written = (uint64_t)n_tasks * d->heads * a->kv.head_dim * sizeof(float),
           });
}

/* by_seq: computes only sequences of one row. */
static int attend_decode(struct metal_backend *m, const struct op_paged_attention *a, bool by_seq) {
    uint32_t group = a->n_heads / a->kv.n_kv_heads;
    struct decode d = {.a = a, .args = metal_attention_args(a), .by_seq = by_seq};
    const uint32_t wide = a->kv.head_dim > 2 * WIDE ? 4 : a->kv.head_dim > WIDE ? 2 : 1;
    d.args.n_slices = metal_div_up(group, MAX_HEADS / wide);
    d.heads = metal_div_up(group, d.args.n_slices);
    d.final = d.args.n_splits == 1;
    d.n_tasks = (by_seq ? a->n_seqs : a->n_rows) * a->kv.n_kv_heads * d.args.n_slices;
    for (d.simdgroups = SIMDGROUPS; d.simdgroups > 1; d.simdgroups /= 2)
        if (d.simdgroups <= d.args.n_splits &&
            threadgroup_bytes(a, d.heads, d.simdgroups) <= TG_BYTES)
            break;
    uint64_t task = task_bytes(&d), most = d.n_tasks; /* tasks of a pass */
    if (!d.final) most = task ? METAL_PARTIAL_BYTES / task : 0;
    if (!most) return ERR_UNSUPPORTED;
    for (; d.args.first_task < d.n_tasks; d.args.first_task += (uint32_t)most) {
        uint32_t n = d.n_tasks - d.args.first_task;
        if (n > most) n = (uint32_t)most;
        int rc = dispatch_decode(m, &d, n);
        if (!rc && !d.final) rc = dispatch_reduce(m, &d, n);
        if (rc) return rc;
    }
    return 0;
}

/* Computes sequences of at least min_rows rows. The tile's queries, probabilities and stages must
 * fit the threadgroup memory: wide heads get fewer queries. */
static int attend_prefill(struct metal_backend *m, const struct op_paged_attention *a,
                          uint32_t min_rows) {
    uint32_t group = a->n_heads / a->kv.n_kv_heads, tile = a->kv.head_dim > WIDE ? 8 : 16;
    uint64_t rows = (uint64_t)a->n_rows * a->n_heads * a->kv.head_dim * sizeof(float);
    const uint32_t q_dim = metal_div_up(a->kv.head_dim, 8) * 8;
    const struct args_attention args = metal_attention_args(a);
    struct metal_launch l = {
        .kernel = metal_tile_kernel(m, "attention_prefill", "attention_prefill_plain"),
        .n_consts = 10,
        .consts = {{MARGS_ATTENTION_KV_TYPE, (uint32_t)a->kv.kv_type},
                   {MARGS_ATTENTION_HEAD_DIM, a->kv.head_dim},
                   {MARGS_ATTENTION_BLOCK_TOKENS, a->kv.block_tokens},
                   {MARGS_ATTENTION_GROUP, group},
                   {MARGS_ATTENTION_SOFTCAP, a->softcap != 0},
                   {MARGS_ATTENTION_SINKS, a->sinks != NULL},
                   {MARGS_ATTENTION_SLOPES, a->slopes != NULL},
                   {MARGS_ATTENTION_ROWS, tile},
                   {MARGS_ATTENTION_MIN_ROWS, min_rows},
                   {MARGS_ATTENTION_HALVES, metal_has_halves(m)}},
        .args = &args,
        .args_bytes = sizeof args,
        .n_binds = 9,
        .binds = {metal_at(a->q), metal_at(a->pos), metal_at(a->row_start), metal_at(a->tables),
                  metal_at(a->kv.k), metal_at(a->kv.v), metal_sinks_of(a), metal_at(a->out),
                  slopes_of(a)},
        .tg_bytes = (tile * (q_dim + CHUNK) + SIMDGROUPS * STAGE_FLOATS) * (uint32_t)sizeof(float),
        .groups = {(uint32_t)((uint64_t)a->n_rows * group / tile) + a->n_seqs, a->kv.n_kv_heads, 1},
        .threads = {SIMDGROUPS * 32, 1, 1},
        .read = rows,
        .written = rows,
    };
    estimate(&l, a, a->n_rows, a->n_seqs);
    return metal_dispatch(m, &l);
}

/* The vector family computes the sequences of one row and tiles all others. Only the device knows
 * how many there are of each, unless each row is a sequence. */
int metal_paged_attention(backend *be, const struct op_paged_attention *a) {
    struct metal_backend *m = metal_of(be);
    if (!metal_kv_fits(&a->kv)) return ERR_UNSUPPORTED;
    if (a->kv.v_dim) return metal_latent_attention(m, a);
    if (m->families == METAL_TILES_ONLY) return attend_prefill(m, a, 1);
    if (m->families == METAL_VECTOR_ONLY || a->n_seqs == a->n_rows)
        return attend_decode(m, a, false);
    int rc = attend_prefill(m, a, 2);
    return rc || a->n_seqs == 1 ? rc : attend_decode(m, a, true);
}
