/* delta.c - launches the gated delta net and the gate of attention. Owns nothing. */
#include "core/backend/cpu/delta/delta.h"

#include <math.h>
#include <string.h>

struct delta_op {
    const struct op_delta_net *a;
    const struct cpu_isa *isa;
    struct backend_state_parts parts;
    uint64_t channels;
    uint32_t n_heads; /* of Q, K and V */
};

static float *block_of(const struct delta_op *o, int32_t id) {
    return (float *)o->a->state.blocks->host + (uint64_t)id * o->parts.end;
}

static const float *values_of(const backend_weight *w) {
    return cpu_weight_of(w)->data;
}

/* The rows of sequence s. */
struct rows_of {
    uint32_t first, n, pos; /* of the first row */
    const float *source;    /* state blocks */
    float *live;
};

static struct rows_of rows_of(const struct delta_op *o, uint32_t s) {
    const struct op_delta_net *a = o->a;
    const int32_t *start = a->row_start->host, *table = (const int32_t *)a->tables->host + 2 * s;
    const uint32_t first = (uint32_t)start[s];
    return (struct rows_of){.first = first,
                            .n = (uint32_t)start[s + 1] - first,
                            .pos = (uint32_t)((const int32_t *)a->pos->host)[first],
                            .source = block_of(o, table[0]),
                            .live = block_of(o, table[1])};
}

/* ---- the convolution ---- */

/* The inputs of a head at row `rel` of the sequence: one of the step's rows, or below 0 one that
 * the state blocks hold. */
static const float *input_at(const struct delta_op *o, const struct rows_of *r, int64_t rel,
                             uint32_t head) {
    static const float zeros[BACKEND_STATE_MAX_K_DIM];
    const struct backend_state *st = &o->a->state;
    const uint64_t at = (uint64_t)head * st->k_dim;
    if (rel >= 0)
        return (const float *)o->a->qkv->host + (r->first + (uint64_t)rel) * o->channels + at;
    if (!r->pos) return zeros;
    const float *window =
        r->pos % st->chunk ? r->live + o->parts.recent : r->source + o->parts.tail;
    return window + (uint64_t)(st->n_taps - 1 + rel) * o->channels + at;
}

static void convolve_head(const void *arg, uint32_t item, int thread) {
    const struct delta_op *o = arg;
    const struct backend_state *st = &o->a->state;
    const uint32_t head = item % o->n_heads, n_k = st->n_k_heads;
    const struct rows_of r = rows_of(o, item / o->n_heads);
    const uint64_t at = (uint64_t)head * st->k_dim;
    struct cpu_delta_conv c = {.taps = values_of(o->a->conv) + at * st->n_taps,
                               .n_taps = st->n_taps,
                               .dim = st->k_dim,
                               .normalize = head < 2 * n_k,
                               .scale = head < n_k ? 1 / sqrtf((float)st->k_dim) : 1};
    (void)thread;
    for (uint32_t row = 0; row < r.n; row++) {
        for (uint32_t t = 0; t < st->n_taps; t++)
            c.in[t] = input_at(o, &r, (int64_t)row + t + 1 - st->n_taps, head);
        c.out = (float *)o->a->work->host + (r.first + (uint64_t)row) * o->channels + at;
        o->isa->delta_conv(&c, o->isa);
    }
}

/* ---- the rows of a head ---- */

static void run_head(const void *arg, uint32_t item, int thread) {
    const struct delta_op *o = arg;
    const struct op_delta_net *a = o->a;
    const struct backend_state *st = &a->state;
    const uint32_t n_v = st->n_v_heads, n_k = st->n_k_heads, dim = st->v_dim, head = item % n_v;
    const uint32_t k_head = a->tiled ? head % n_k : head / (n_v / n_k);
    const struct rows_of r = rows_of(o, item / n_v);
    const float *work = (const float *)a->work->host + r.first * o->channels;
    const uint64_t of_head = (uint64_t)head * dim, of_row = r.first * (uint64_t)n_v;
    (void)thread;
    o->isa->delta_run(&(struct cpu_delta_run){
        .q = work + (uint64_t)k_head * dim,
        .k = work + (uint64_t)(n_k + k_head) * dim,
        .v = work + (uint64_t)(2 * n_k + head) * dim,
        .alpha = (const float *)a->alpha->host + of_row + head,
        .beta = (const float *)a->beta->host + of_row + head,
        .z = (const float *)a->z->host + of_row * dim + of_head,
        .out = (float *)a->out->host + of_row * dim + of_head,
        .in_stride = o->channels,
        .n_v_heads = n_v,
        .n_rows = r.n,
        .first_pos = r.pos,
        .chunk = st->chunk,
        .dim = dim,
        .a = values_of(a->a)[head],
        .dt_bias = values_of(a->dt_bias)[head],
        .eps = a->eps,
        .norm = values_of(a->norm),
        .s = r.pos < st->chunk ? NULL : r.source + o->parts.s + of_head * dim,
        .s_out = r.live + o->parts.s + of_head * dim,
        .pending_k = r.live + o->parts.k + (uint64_t)k_head * dim,
        .pending_u = r.live + o->parts.u + of_head,
        .pending_g = r.live + o->parts.g + head,
        .k_stride = (uint64_t)n_k * dim,
        .silu = o->isa->glu[BACKEND_ACT_SILU],
    });
}

/* ---- what the next step reads ---- */

/* Copies the last inputs before row `end` of the sequence to a window. It may be the one that
 * input_at reads. */
static void keep_inputs(const struct delta_op *o, const struct rows_of *r, uint32_t end,
                        uint32_t head, float *window) {
    const struct backend_state *st = &o->a->state;
    const uint32_t n = st->n_taps - 1;
    float rows[BACKEND_STATE_MAX_TAPS - 1][BACKEND_STATE_MAX_K_DIM];
    for (uint32_t t = 0; t < n; t++)
        memcpy(rows[t], input_at(o, r, (int64_t)end - n + t, head), st->k_dim * sizeof(float));
    for (uint32_t t = 0; t < n; t++)
        memcpy(window + t * o->channels + (uint64_t)head * st->k_dim, rows[t],
               st->k_dim * sizeof(float));
}

/* Of one head of one sequence: its inputs before the last boundary and before the end, and the rows
 * of K after that boundary. */
static void keep_head(const void *arg, uint32_t item, int thread) {
    const struct delta_op *o = arg;
    const struct backend_state *st = &o->a->state;
    const uint32_t head = item % o->n_heads, chunk = st->chunk, n_k = st->n_k_heads;
    const struct rows_of r = rows_of(o, item / o->n_heads);
    const uint32_t end = r.pos + r.n, boundary = end - end % chunk;
    const uint32_t first = boundary > r.pos ? boundary : r.pos; /* of the new pending rows */
    (void)thread;
    /* The tail comes first: it may read what becomes recent. It is never read itself where it is
     * written, as the boundary is at least one row away and then a chunk. */
    float *tail = r.live + o->parts.tail, *recent = r.live + o->parts.recent;
    if (boundary > r.pos) keep_inputs(o, &r, boundary - r.pos, head, tail);
    keep_inputs(o, &r, r.n, head, recent);
    if (head < n_k || head >= 2 * n_k) return;
    for (uint32_t p = first; p < end; p++)
        memcpy(r.live + o->parts.k + (p % chunk * (uint64_t)n_k + head - n_k) * st->k_dim,
               (const float *)o->a->work->host + (r.first + p - r.pos) * o->channels +
                   (uint64_t)head * st->k_dim,
               st->k_dim * sizeof(float));
}

/* Do the sequences cover the step's rows, each with consecutive positions? */
bool cpu_states_ok(const struct cpu_state_rows *a) {
    const int32_t *start = a->row_start->host, *pos = a->pos->host;
    if (!a->n_seqs || start[0] != 0 || (uint32_t)start[a->n_seqs] != a->n_rows) return false;
    for (uint32_t s = 0; s < a->n_seqs; s++) {
        if (start[s + 1] <= start[s] || (uint32_t)start[s + 1] > a->n_rows || pos[start[s]] < 0)
            return false;
        for (int32_t r = start[s] + 1; r < start[s + 1]; r++)
            if (pos[r] - 1 != pos[r - 1]) return false;
    }
    return cpu_all_below(a->tables->host, 2 * a->n_seqs, a->n_blocks);
}

int cpu_delta_net(backend *be, const struct op_delta_net *a) {
    struct cpu_backend *c = cpu_of(be);
    const struct backend_state *st = &a->state;
    if (!cpu_states_ok(&(struct cpu_state_rows){a->pos, a->row_start, a->tables, a->n_rows,
                                                a->n_seqs, st->n_blocks}))
        return ERR_INVALID;
    const struct delta_op o = {.a = a,
                               .isa = c->isa,
                               .parts = backend_state_parts(st),
                               .channels = backend_state_channels(st),
                               .n_heads = 2 * st->n_k_heads + st->n_v_heads};
    pool_run(c->pool, a->n_seqs * o.n_heads, convolve_head, &o);
    pool_run(c->pool, a->n_seqs * st->n_v_heads, run_head, &o);
    pool_run(c->pool, a->n_seqs * o.n_heads, keep_head, &o);
    cpu_count(c, c->isa, CPU_DELTA_NET);
    return 0;
}

/* ---- the gate of attention ---- */

static void gate_row(const void *arg, uint32_t row, int thread) {
    const struct op_gate *a = arg;
    const uint64_t at = (uint64_t)row * a->n_cols;
    float *x = (float *)a->x->host + at;
    const float *gate = (const float *)a->gate->host + at;
    (void)thread;
    for (uint32_t i = 0; i < a->n_cols; i++)
        x[i] /= 1 + expf(-gate[i]);
}

int cpu_gate(backend *be, const struct op_gate *a) {
    struct cpu_backend *c = cpu_of(be);
    pool_run(c->pool, a->n_rows, gate_row, a);
    cpu_count(c, &cpu_isa_generic, CPU_GATE);
    return 0;
}
