/* rows.c - launches the ops that work row by row: embed, gather, gated, add_normed, gate, top. A
 * few rows run on the caller's thread: waking other threads would cost more. */
#include "core/backend/cpu/cpu_int.h"
#include "core/base/top.h"

#include <math.h>
#include <string.h>

enum { VALUES_PER_CHUNK = 8192, GATE_SPAN = 2048 }; /* a microsecond or two */

/* Rows per chunk for rows of n_cols values. */
static uint32_t chunk_rows(uint64_t n_cols) {
    return n_cols >= VALUES_PER_CHUNK ? 1 : (uint32_t)(VALUES_PER_CHUNK / n_cols);
}

static uint32_t count_chunks(uint32_t n_rows, uint32_t per_chunk) {
    return n_rows / per_chunk + (n_rows % per_chunk != 0);
}

struct row_run {
    const void *op; /* the op's argument struct */
    const struct cpu_isa *isa;
    uint32_t n_rows, per_chunk;
    struct cpu_backend *c;
    void (*row)(const struct row_run *r, uint32_t row, int thread);
};

static void run_row_chunk(const void *arg, uint32_t chunk, int thread) {
    const struct row_run *r = arg;
    uint32_t first = chunk * r->per_chunk;
    for (uint32_t i = first; i < r->n_rows && i - first < r->per_chunk; i++)
        r->row(r, i, thread);
}

static void run_rows(struct row_run *r, uint64_t n_cols) {
    r->isa = r->c->isa;
    r->per_chunk = chunk_rows(n_cols);
    pool_run(r->c->pool, count_chunks(r->n_rows, r->per_chunk), run_row_chunk, r);
}

/* ---- embed ---- */

static void embed_row(const struct row_run *r, uint32_t row, int thread) {
    const struct op_embed *a = r->op;
    const struct cpu_weight *t = cpu_weight_of(a->table);
    const int32_t *ids = a->ids->host;
    uint64_t n = t->base.n_in;
    float *out = (float *)a->out->host + row * n;
    (void)thread;
    qtype_decode(t->base.type, (const uint8_t *)t->data + (uint64_t)ids[row] * t->row_bytes, out,
                 n);
    if (a->scale == 1) return;
    for (uint64_t i = 0; i < n; i++)
        out[i] *= a->scale;
}

int cpu_embed(backend *be, const struct op_embed *a) {
    struct cpu_backend *c = cpu_of(be);
    if (!cpu_all_below(a->ids->host, a->n_rows, a->table->n_out)) return ERR_INVALID;
    struct row_run run = {.op = a, .n_rows = a->n_rows, .c = c, .row = embed_row};
    run_rows(&run, a->table->n_in);
    cpu_count(c, &cpu_isa_generic, CPU_EMBED);
    return 0;
}

/* ---- gather ---- */

static void gather_row(const struct row_run *r, uint32_t row, int thread) {
    const struct op_gather *a = r->op;
    uint64_t from = (uint64_t)((const int32_t *)a->rows->host)[row] * a->n_cols;
    const float *x = (const float *)a->x->host + from;
    float *out = (float *)a->out->host + (uint64_t)row * a->n_cols;
    (void)thread;
    memcpy(out, x, a->n_cols * sizeof *out);
    if (!a->residual) return;
    const float *residual = (const float *)a->residual->host + from;
    for (uint32_t i = 0; i < a->n_cols; i++)
        out[i] += residual[i];
}

int cpu_gather(backend *be, const struct op_gather *a) {
    struct cpu_backend *c = cpu_of(be);
    uint64_t n_from = a->x->bytes / sizeof(float) / a->n_cols;
    if (a->residual && a->residual->bytes < a->x->bytes)
        n_from = a->residual->bytes / sizeof(float) / a->n_cols;
    if (!cpu_all_below(a->rows->host, a->n_out_rows, n_from)) return ERR_INVALID;
    struct row_run run = {.op = a, .n_rows = a->n_out_rows, .c = c, .row = gather_row};
    run_rows(&run, a->n_cols);
    cpu_count(c, &cpu_isa_generic, CPU_GATHER);
    return 0;
}

/* ---- gated, add_normed ---- */

static void gated_row(const struct row_run *r, uint32_t row, int thread) {
    const struct op_gated *a = r->op;
    float *x = (float *)a->x->host + (uint64_t)row * a->n_cols;
    (void)thread;
    r->isa->glu[a->act](x, (const float *)a->up->host + (uint64_t)row * a->stride + a->first, x,
                        a->n_cols);
}

int cpu_gated(backend *be, const struct op_gated *a) {
    struct cpu_backend *c = cpu_of(be);
    struct row_run run = {.op = a, .n_rows = a->n_rows, .c = c, .row = gated_row};
    run_rows(&run, a->n_cols);
    cpu_count(c, c->isa, CPU_GLU_SILU + (uint32_t)a->act - BACKEND_ACT_SILU);
    return 0;
}

static void add_normed_row(const struct row_run *r, uint32_t row, int thread) {
    const struct op_add_normed *a = r->op;
    const uint32_t n = a->norm ? (uint32_t)a->norm->n_in : a->n_cols;
    const uint64_t at = (uint64_t)row * a->n_cols;
    float *x = (float *)a->x->host + at, by = a->scale != 0 ? a->scale : 1;
    (void)thread;
    for (uint32_t first = 0; a->r && first < a->n_cols; first += n)
        r->isa->norm_row(
            &(struct cpu_row){.x = x + first,
                              .residual = (const float *)a->r->host + at + first,
                              .residual_norm = a->norm ? cpu_weight_of(a->norm)->data : NULL,
                              .residual_scale = 1,
                              .eps = a->eps,
                              .n = n});
    if (a->factor) by *= *(const float *)cpu_weight_of(a->factor)->data;
    for (uint32_t i = 0; i < a->n_cols && by != 1; i++)
        x[i] *= by;
}

int cpu_add_normed(backend *be, const struct op_add_normed *a) {
    struct cpu_backend *c = cpu_of(be);
    struct row_run run = {.op = a, .n_rows = a->n_rows, .c = c, .row = add_normed_row};
    run_rows(&run, a->n_cols);
    cpu_count(c, c->isa, CPU_ADD_ROWS);
    return 0;
}

/* ---- gate ---- */

/* expm1(x) - x for x <= 0: near 0 by its series, where the difference would lose digits. */
static float expm1_rest(float x) {
    if (x < -0.5f) return expf(x) - 1.0f - x;
    float s = 1.0f / 3628800;
    s = fmaf(s, x, 1.0f / 362880), s = fmaf(s, x, 1.0f / 40320), s = fmaf(s, x, 1.0f / 5040);
    s = fmaf(s, x, 1.0f / 720), s = fmaf(s, x, 1.0f / 120), s = fmaf(s, x, 1.0f / 24);
    s = fmaf(s, x, 1.0f / 6), s = fmaf(s, x, 0.5f);
    return s * x * x;
}

static float activate(const struct op_gate *a, float x) {
    switch (a->unary) {
    case BACKEND_UNARY_GELU_TANH: {
        const float g = x < CPU_GATE_MIN ? CPU_GATE_MIN : x;
        return g / (1 + expf(-g * (CPU_GELU_LINEAR + CPU_GELU_CUBIC * g * g)));
    }
    case BACKEND_UNARY_GELU:
        return cpu_gelu(x);
    case BACKEND_UNARY_XIELU: {
        const struct backend_xielu *p = &a->xielu;
        if (x > 0) return p->positive * x * x + p->beta * x;
        const float y = x > p->eps ? p->eps : x; /* keeps NaN */
        return p->negative * (expm1_rest(y) + (y - x)) + p->beta * x;
    }
    default:
        return x * (x > 0 ? x : 0);
    }
}

static float gate_factor(float g, bool softplus) {
    if (!softplus) return 1 / (1 + expf(-g));
    return (g > 0 ? g : 0) + log1pf(expf(-fabsf(g)));
}

struct gate_run {
    const struct op_gate *a;
    const struct cpu_isa *isa;
    uint32_t n_spans; /* of a row */
};

/* A span of one row's columns: a decode row alone occupies several threads. */
static void gate_span(const void *arg, uint32_t item, int thread) {
    const struct gate_run *run = arg;
    const struct op_gate *a = run->a;
    const uint32_t first = item % run->n_spans * GATE_SPAN, left = a->n_cols - first;
    const uint32_t n = left < GATE_SPAN ? left : GATE_SPAN;
    const uint64_t at = item / run->n_spans * (uint64_t)a->n_cols + first;
    float *x = (float *)a->x->host + at;
    (void)thread;
    if (a->gate && (a->span > 1 || a->softplus)) {
        const uint32_t span = a->span ? a->span : 1;
        const float *gate = (const float *)a->gate->host + at / a->n_cols * (a->n_cols / span);
        for (uint32_t i = 0; i < n; i++)
            x[i] *= gate_factor(gate[(first + i) / span], a->softplus);
        return;
    }
    if (a->gate) {
        run->isa->gate(x, (const float *)a->gate->host + at, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        x[i] = activate(a, x[i]);
}

int cpu_gate(backend *be, const struct op_gate *a) {
    struct cpu_backend *c = cpu_of(be);
    const struct gate_run run = {
        .a = a, .isa = c->isa, .n_spans = (a->n_cols + GATE_SPAN - 1) / GATE_SPAN};
    const uint64_t n_items = (uint64_t)a->n_rows * run.n_spans;
    if (n_items > UINT32_MAX) return ERR_INVALID;
    pool_run(c->pool, (uint32_t)n_items, gate_span, &run);
    cpu_count(c, a->gate && a->span < 2 && !a->softplus ? c->isa : &cpu_isa_generic, CPU_GATE);
    return 0;
}

/* ---- top ---- */

static void top_row(const struct row_run *r, uint32_t row, int thread) {
    const struct op_top *a = r->op;
    (void)thread;
    top_select((const float *)a->x->host + (uint64_t)row * a->n_cols, a->n_cols, a->k,
               (int32_t *)a->ids->host + (uint64_t)row * a->k,
               (float *)a->values->host + (uint64_t)row * a->k);
}

int cpu_top(backend *be, const struct op_top *a) {
    struct cpu_backend *c = cpu_of(be);
    struct row_run run = {.op = a, .n_rows = a->n_rows, .c = c, .row = top_row};
    run_rows(&run, a->n_cols);
    cpu_count(c, &cpu_isa_generic, CPU_TOP);
    return 0;
}
