/* delta.c - launches linear attention. Owns nothing. */
#include "core/backend/cpu/delta/delta.h"

#include <math.h>
#include <string.h>

enum { PREFETCH_ROWS = 3, FLOATS_PER_LINE = 16 };

struct delta_op {
    const struct op_linear_attention *a;
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
    const struct op_linear_attention *a = o->a;
    const int32_t *start = a->row_start->host, *table = (const int32_t *)a->tables->host + 2 * s;
    const uint32_t first = (uint32_t)start[s];
    return (struct rows_of){.first = first,
                            .n = (uint32_t)start[s + 1] - first,
                            .pos = (uint32_t)((const int32_t *)a->pos->host)[first],
                            .source = block_of(o, table[0]),
                            .live = block_of(o, table[1])};
}

/* ---- heads of a row of channels ---- */

enum part { PART_Q, PART_K, PART_V };

/* Where a part of the channels begins: Q, K, V of a delta net; V, K, Q of Mamba-2. */
static uint64_t part_at(const struct delta_op *o, enum part part) {
    const struct backend_state *st = &o->a->state;
    const uint64_t keys = (uint64_t)st->n_k_heads * st->k_dim;
    if (o->a->beta) return part * keys;
    return part == PART_V ? 0 : (uint64_t)st->n_v_heads * st->v_dim + (part == PART_Q ? keys : 0);
}

/* One head of Q, K or V: number of those of its part. */
struct head {
    enum part part;
    uint32_t number, dim;
    uint64_t at; /* of its channels */
};

static struct head head_of(const struct delta_op *o, uint32_t i) {
    const struct backend_state *st = &o->a->state;
    const uint32_t n_k = st->n_k_heads;
    struct head h = {.part = i < n_k ? PART_Q : i < 2 * n_k ? PART_K : PART_V};
    h.number = i - h.part * n_k;
    h.dim = h.part == PART_V ? st->v_dim : st->k_dim;
    h.at = part_at(o, h.part) + (uint64_t)h.number * h.dim;
    return h;
}

/* ---- the convolution ---- */

/* Where a head's inputs are among the step's rows, and the weights of its convolution. */
struct input {
    const float *rows, *conv;
    uint64_t cols, at;
};

static struct input input_of(const struct delta_op *o, const struct head *h) {
    const struct op_linear_attention *a = o->a;
    if (!a->k) return (struct input){a->qkv->host, values_of(a->conv), o->channels, h->at};
    const backend_buf *const rows[] = {a->qkv, a->k, a->v};
    const backend_weight *const conv[] = {a->conv, a->conv_k, a->conv_v};
    const struct backend_state *st = &a->state;
    return (struct input){rows[h->part]->host, values_of(conv[h->part]),
                          (uint64_t)h->dim * (h->part == PART_V ? st->n_v_heads : st->n_k_heads),
                          (uint64_t)h->number * h->dim};
}

/* The inputs of a head at row `rel` of the sequence: one of the step's rows, or below
 * 0 one that the state blocks hold. */
static const float *input_at(const struct delta_op *o, const struct rows_of *r, int64_t rel,
                             const struct head *h) {
    static const float zeros[BACKEND_STATE_MAX_K_DIM];
    const struct backend_state *st = &o->a->state;
    if (rel >= 0) {
        const struct input in = input_of(o, h);
        return in.rows + (r->first + (uint64_t)rel) * in.cols + in.at;
    }
    if (!r->pos) return zeros;
    const float *window =
        r->pos % st->chunk ? r->live + o->parts.recent : r->source + o->parts.tail;
    return window + (uint64_t)(st->n_taps - 1 + rel) * o->channels + h->at;
}

/* The rows of a head after the convolution, (n_rows, dim) of the whole step. */
static float *work_of(const struct delta_op *o, uint64_t at) {
    return (float *)o->a->work->host + at * o->a->n_rows;
}

/* Copies the last inputs before row `end` of the sequence to a window. It may be the one that
 * input_at reads. */
static void keep_inputs(const struct delta_op *o, const struct rows_of *r, uint32_t end,
                        const struct head *h, float *window) {
    const uint32_t n = o->a->state.n_taps - 1;
    float rows[BACKEND_STATE_MAX_TAPS - 1][BACKEND_STATE_MAX_K_DIM];
    for (uint32_t t = 0; t < n; t++)
        memcpy(rows[t], input_at(o, r, (int64_t)end - n + t, h), h->dim * sizeof(float));
    for (uint32_t t = 0; t < n; t++)
        memcpy(window + t * o->channels + h->at, rows[t], h->dim * sizeof(float));
}

/* The pending rows of K that the step leaves. */
static void keep_keys(const struct delta_op *o, const struct rows_of *r, const struct head *h) {
    const struct backend_state *st = &o->a->state;
    const uint32_t end = r->pos + r->n, boundary = end - end % st->chunk;
    const float *from = work_of(o, h->at) + (uint64_t)r->first * h->dim;
    for (uint32_t p = boundary > r->pos ? boundary : r->pos; p < end; p++)
        memcpy(r->live + o->parts.k +
                   (p % st->chunk * (uint64_t)st->n_k_heads + h->number) * h->dim,
               from + (uint64_t)(p - r->pos) * h->dim, h->dim * sizeof(float));
}

/* Does the step cross a boundary and leave rows after it? */
static bool replaces_keys(const struct delta_op *o, const struct rows_of *r) {
    const uint32_t end = r->pos + r->n, left = end % o->a->state.chunk;
    return left && left < r->n;
}

static void convolve_rows(const struct delta_op *o, const struct rows_of *r, const struct head *h) {
    const struct backend_state *st = &o->a->state;
    const struct input in = input_of(o, h);
    const float *conv = in.conv + in.at * st->n_taps;
    float taps[BACKEND_STATE_MAX_TAPS][BACKEND_STATE_MAX_K_DIM];
    struct cpu_delta_conv c = {.n_taps = st->n_taps,
                               .dim = h->dim,
                               .bias = o->a->conv_bias ? values_of(o->a->conv_bias) + h->at : NULL,
                               .normalize = o->a->beta && h->part != PART_V,
                               .scale = h->part == PART_Q ? 1 / sqrtf((float)st->k_dim) : 1,
                               .out = work_of(o, h->at) + (uint64_t)r->first * h->dim};
    for (uint32_t t = 0; t < st->n_taps; t++) {
        c.taps[t] = taps[t];
        for (uint32_t i = 0; i < h->dim; i++)
            taps[t][i] = conv[i * st->n_taps + t];
    }
    for (uint32_t row = 0; row < r->n; row++, c.out += h->dim) {
        for (uint32_t t = 0; t < st->n_taps; t++)
            c.in[t] = input_at(o, r, (int64_t)row + t + 1 - st->n_taps, h);
        for (uint32_t i = 0; i < h->dim && row + PREFETCH_ROWS < r->n; i += FLOATS_PER_LINE)
            __builtin_prefetch(c.in[st->n_taps - 1] + PREFETCH_ROWS * in.cols + i);
        o->isa->delta_conv(&c, o->isa);
    }
}

/* Of one head of one sequence: its rows, its inputs before the last boundary and before the end,
 * and the rows of K after that boundary. */
static void convolve_head(const void *arg, uint32_t item, int thread) {
    const struct delta_op *o = arg;
    const struct head h = head_of(o, item % o->n_heads);
    const struct rows_of r = rows_of(o, item / o->n_heads);
    const uint32_t end = r.pos + r.n, boundary = end - end % o->a->state.chunk;
    (void)thread;
    convolve_rows(o, &r, &h);
    /* The tail comes first: it may read what becomes recent. It is never read itself where it is
     * written, as the boundary is at least one row away and then a chunk. */
    if (boundary > r.pos) keep_inputs(o, &r, boundary - r.pos, &h, r.live + o->parts.tail);
    keep_inputs(o, &r, r.n, &h, r.live + o->parts.recent);
    if (h.part == PART_K && !replaces_keys(o, &r)) keep_keys(o, &r, &h);
}

/* ---- the rows of a head ---- */

static void run_head(const void *arg, uint32_t item, int thread) {
    const struct delta_op *o = arg;
    const struct op_linear_attention *a = o->a;
    const struct backend_state *st = &a->state;
    const uint32_t n_v = st->n_v_heads, n_k = st->n_k_heads, head = item % n_v;
    const uint32_t k_head = a->tiled ? head % n_k : head / (n_v / n_k);
    const struct rows_of r = rows_of(o, item / n_v);
    const uint64_t of_head = (uint64_t)head * st->v_dim, of_row = r.first * (uint64_t)n_v;
    const uint32_t n_decays = backend_state_decays(st);
    const uint64_t of_k_head = (uint64_t)k_head * st->k_dim;
    (void)thread;
    o->isa->delta_run(&(struct cpu_delta_run){
        .q = work_of(o, part_at(o, PART_Q) + of_k_head) + (uint64_t)r.first * st->k_dim,
        .k = work_of(o, part_at(o, PART_K) + of_k_head) + (uint64_t)r.first * st->k_dim,
        .v = work_of(o, part_at(o, PART_V) + of_head) + (uint64_t)r.first * st->v_dim,
        .alpha = (const float *)a->alpha->host + (of_row + head) * n_decays,
        .beta = a->beta ? (const float *)a->beta->host + of_row + head : NULL,
        .z = (const float *)a->z->host + of_row * st->v_dim + of_head,
        .out = (float *)a->out->host + of_row * st->v_dim + of_head,
        .n_v_heads = n_v,
        .n_decays = n_decays,
        .n_rows = r.n,
        .first_pos = r.pos,
        .chunk = st->chunk,
        .k_dim = st->k_dim,
        .v_dim = st->v_dim,
        .a = values_of(a->a)[head],
        .dt_bias = values_of(a->dt_bias) + (uint64_t)head * n_decays,
        .eps = a->eps,
        .skip = a->skip ? values_of(a->skip)[head] : 0,
        .norm = a->norm ? values_of(a->norm) : NULL,
        .s = r.pos < st->chunk ? NULL : r.source + o->parts.s + of_head * st->k_dim,
        .s_out = r.live + o->parts.s + of_head * st->k_dim,
        .pending_k = r.live + o->parts.k + of_k_head,
        .pending_u = r.live + o->parts.u + of_head,
        .pending_g = r.live + o->parts.g + (uint64_t)head * n_decays,
        .k_stride = (uint64_t)n_k * st->k_dim,
        .silu = o->isa->glu[BACKEND_ACT_SILU],
        .sigmoid = o->isa->gate,
    });
}

/* Norms what the V heads of one group gave in one row. */
static void norm_group(const void *arg, uint32_t item, int thread) {
    const struct delta_op *o = arg;
    const struct backend_state *st = &o->a->state;
    const uint32_t n_groups = o->a->n_norm_groups, n = st->n_v_heads / n_groups * st->v_dim;
    (void)thread;
    o->isa->delta_norm((float *)o->a->out->host + (uint64_t)item * n,
                       values_of(o->a->norm) + (uint64_t)(item % n_groups) * n, n, o->a->eps);
}

/* The rows of K of one head of one sequence after a boundary that the step crossed. */
static void replace_keys(const void *arg, uint32_t item, int thread) {
    const struct delta_op *o = arg;
    const uint32_t n_k = o->a->state.n_k_heads;
    const struct head h = head_of(o, n_k + item % n_k);
    const struct rows_of r = rows_of(o, item / n_k);
    (void)thread;
    if (replaces_keys(o, &r)) keep_keys(o, &r, &h);
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

int cpu_linear_attention(backend *be, const struct op_linear_attention *a) {
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
    if (!a->beta && a->norm) pool_run(c->pool, a->n_rows * a->n_norm_groups, norm_group, &o);
    bool replaces = false;
    for (uint32_t s = 0; s < a->n_seqs && !replaces; s++) {
        const struct rows_of r = rows_of(&o, s);
        replaces = replaces_keys(&o, &r);
    }
    if (replaces) pool_run(c->pool, a->n_seqs * st->n_k_heads, replace_keys, &o);
    cpu_count(c, c->isa, CPU_LINEAR_ATTENTION);
    return 0;
}
