/* delta_kernel.h - the rows of linear attention (op_linear_attention), written once for vectors of
 * LANES floats. The file that includes it defines
 *   LANES, vec, NX (vectors of Q and K that share a read of S)
 *   load(p), store(p, v), splat(x), mul(a, b), mul_add(a, b, c): a * b + c
 *   sub(a, b), exp_of(v) for lanes of at most 0
 *   sum_of(v): of its lanes, in a fixed order
 *   DELTA_NAME(name): the name for its instruction set
 *
 * ORDER OF SUMS: as in ops.h, one accumulator for each element, over ascending dimensions or rows.
 * A dot product has LANES accumulators and then sum_of. Several elements are computed at a time,
 * which changes none of their bits; nothing depends on how many rows a step has.
 *
 * Decays of channels are taken from differences of G, never above 0: e^-G alone would overflow. */
#include "core/backend/cpu/delta/delta.h"
#include "core/backend/cpu/template.h"

#include <math.h>
#include <string.h>

enum {
    NC = 4, /* vectors of a row of S at a time */
    ND = NX * NC /
         2,  /* the same with two vectors of Q and K: one row's, where S comes from memory */
    NR = NX, /* rows of S that share a read of U */
    NJ = 4   /* rows of K that share a read of a row */
};

static float dot(const float *a, const float *b, uint32_t n) {
    vec acc = splat(0);
    for (uint32_t i = 0; i < n; i += LANES)
        acc = mul_add(load(a + i), load(b + i), acc);
    return sum_of(acc);
}

static void scale_row(float *y, float scale, uint32_t n) {
    const vec f = splat(scale);
    for (uint32_t i = 0; i < n; i += LANES)
        store(y + i, mul(load(y + i), f));
}

/* ---- convolution ---- */

void DELTA_NAME(delta_conv)(const struct cpu_delta_conv *c, const struct cpu_isa *kernels) {
    static const float ones[BACKEND_STATE_MAX_K_DIM] = {
        [0 ... BACKEND_STATE_MAX_K_DIM - 1] = 1,
    };
    float sum[BACKEND_STATE_MAX_K_DIM];
    for (uint32_t i = 0; i < c->dim; i += LANES) {
        vec acc = c->bias ? load(c->bias + i) : splat(0);
        for (uint32_t t = 0; t < c->n_taps; t++)
            acc = mul_add(load(c->taps[t] + i), load(c->in[t] + i), acc);
        store(sum + i, acc);
    }
    kernels->glu[BACKEND_ACT_SILU](sum, ones, c->out, c->dim);
    if (c->normalize)
        scale_row(c->out, c->scale / sqrtf(dot(c->out, c->out, c->dim) + 1e-6f), c->dim);
}

/* ---- rows ---- */

/* A chunk's rows, of which `from` are pending and to - from are new. */
struct chunk_rows {
    const float *q[BACKEND_STATE_MAX_CHUNK], *k[BACKEND_STATE_MAX_CHUNK]; /* q of new rows only */
    float *u[BACKEND_STATE_MAX_CHUNK];
    float g[BACKEND_STATE_MAX_CHUNK];                           /* sums since the boundary, or */
    const float *gs[BACKEND_STATE_MAX_CHUNK];                   /* (k_dim) those of channels */
    float sk[BACKEND_STATE_MAX_CHUNK][BACKEND_STATE_MAX_V_DIM]; /* S^T k and S^T q of new rows */
    float sq[BACKEND_STATE_MAX_CHUNK][BACKEND_STATE_MAX_V_DIM];
    float own_u[BACKEND_STATE_MAX_CHUNK][BACKEND_STATE_MAX_V_DIM]; /* of a chunk that ends here */
    float own_g[BACKEND_STATE_MAX_CHUNK][BACKEND_STATE_MAX_V_DIM]; /* likewise */
    uint32_t from, to;
};

enum rule { RULE_MAMBA2, RULE_DELTA, RULE_CHANNELS };

/* y[x] (n_cols vectors) = S^T x for columns `at` and on, S (k_dim, dim); n <= NX. */
ALWAYS_INLINE void project(const float *s, uint32_t k_dim, uint32_t dim, uint32_t at,
                           const float *const *x, float *const *y, int n, int n_cols) {
    vec acc[NX][ND];
    UNROLL for (int i = 0; i < n; i++) UNROLL for (int c = 0; c < n_cols; c++) acc[i][c] = splat(0);
    for (uint32_t row = 0; row < k_dim; row++) {
        const float *from = s + (uint64_t)row * dim + at;
        UNROLL for (int i = 0; i < n; i++) {
            const vec f = splat(x[i][row]);
            UNROLL for (int c = 0; c < n_cols; c++) acc[i][c] =
                mul_add(load(from + c * LANES), f, acc[i][c]);
        }
    }
    UNROLL for (int i = 0; i < n; i++) UNROLL for (int c = 0; c < n_cols; c++)
        store(y[i] + at + c * LANES, acc[i][c]);
}

/* n: 1, 2 or NX. */
static void project_columns(const struct cpu_delta_run *r, const float *const *x, float *const *y,
                            uint32_t n) {
    const float *s = r->s;
    const uint32_t k = r->k_dim, v = r->v_dim;
    uint32_t at = 0;
    for (; n <= 2 && at + ND * LANES <= v; at += ND * LANES) {
        if (n == 2)
            project(s, k, v, at, x, y, 2, ND);
        else
            project(s, k, v, at, x, y, 1, ND);
    }
    for (; n > 2 && at + NC * LANES <= v; at += NC * LANES)
        project(s, k, v, at, x, y, NX, NC);
    for (; at < v; at += LANES) {
        if (n > 2)
            project(s, k, v, at, x, y, NX, 1);
        else if (n == 2)
            project(s, k, v, at, x, y, 2, 1);
        else
            project(s, k, v, at, x, y, 1, 1);
    }
}

/* What is left of S at a row, times x: where each dimension decays by itself. */
static const float *decay_row(const float *x, const float *g, uint32_t n, float *out) {
    for (uint32_t i = 0; i < n; i += LANES)
        store(out + i, mul(load(x + i), exp_of(load(g + i))));
    return out;
}

/* sq, and for a delta net sk, of the new rows. */
static void project_rows(const struct cpu_delta_run *r, struct chunk_rows *c, enum rule rule) {
    const uint32_t each = r->beta ? 2 : 1;
    float left[NX][BACKEND_STATE_MAX_V_DIM];
    for (uint32_t i = c->from; i < c->to;) {
        const float *x[NX];
        float *y[NX];
        uint32_t n = NX / each;
        if (c->to - i < n) n = c->to - i < 2 || each == 2 ? 1 : 2;
        for (uint32_t j = 0; j < n; j++) {
            const uint32_t at = each * j;
            if (r->beta) x[at] = c->k[i + j], y[at] = c->sk[i + j];
            x[at + each - 1] = c->q[i + j], y[at + each - 1] = c->sq[i + j];
            for (uint32_t l = at; rule == RULE_CHANNELS && l < at + each; l++)
                x[l] = decay_row(x[l], c->gs[i + j], r->k_dim, left[l]);
        }
        project_columns(r, x, y, each * n);
        i += n;
    }
}

static float softplus(float x) {
    return x > 20 ? x : log1pf(expf(x));
}

/* The same of channels, of all new rows; `row` is the first. */
static void add_channel_decays(const struct cpu_delta_run *r, struct chunk_rows *c, uint32_t row) {
    const uint64_t stride = (uint64_t)r->n_v_heads * r->n_decays;
    for (uint32_t i = c->from; i < c->to; i++, row++) {
        const float *alpha = r->alpha + row * stride;
        float *g = c->to < r->chunk ? r->pending_g + i * stride : c->own_g[i];
        for (uint32_t d = 0; d < r->k_dim; d++)
            g[d] = (i ? c->gs[i - 1][d] : 0) + r->a * softplus(alpha[d] + r->dt_bias[d]);
        c->gs[i] = g;
    }
}

/* g of the row at offset i of the chunk; returns softplus(alpha + dt_bias). */
static float add_decay(const struct cpu_delta_run *r, struct chunk_rows *c, uint32_t i,
                       uint32_t step_row) {
    const float soft = softplus(r->alpha[step_row * (uint64_t)r->n_v_heads] + *r->dt_bias);
    c->g[i] = (i ? c->g[i - 1] : 0) + r->a * soft;
    r->pending_g[(uint64_t)i * r->n_v_heads] = c->g[i];
    return soft;
}

void DELTA_NAME(delta_norm)(float *x, const float *weight, uint32_t n, float eps) {
    const vec f = splat(1 / sqrtf(dot(x, x, n) / (float)n + eps));
    for (uint32_t i = 0; i < n; i += LANES)
        store(x + i, mul(mul(load(x + i), f), load(weight + i)));
}

/* What row i takes of each U up to its own: of[j] = e^(g[i] - g[j]) k[j].k[i] (not of its own),
 * to[j] = e^(g[i] - g[j]) k[j].q[i]. */
struct shares {
    float of[BACKEND_STATE_MAX_CHUNK], to[BACKEND_STATE_MAX_CHUNK];
};

/* n: NJ or 1. */
ALWAYS_INLINE void share_rows(const struct chunk_rows *c, uint32_t i, uint32_t j, uint32_t k_dim,
                              enum rule rule, int n, struct shares *s) {
    const bool delta = rule != RULE_MAMBA2, channels = rule == RULE_CHANNELS;
    const float *k = c->k[i], *q = c->q[i];
    vec of[NJ], to[NJ];
    UNROLL for (int x = 0; x < n; x++) of[x] = to[x] = splat(0);
    for (uint32_t d = 0; d < k_dim; d += LANES) {
        const vec kd = load(k + d), qd = load(q + d);
        UNROLL for (int x = 0; x < n; x++) {
            vec other = load(c->k[j + (uint32_t)x] + d);
            if (channels)
                other =
                    mul(other, exp_of(sub(load(c->gs[i] + d), load(c->gs[j + (uint32_t)x] + d))));
            if (delta) of[x] = mul_add(other, kd, of[x]);
            to[x] = mul_add(other, qd, to[x]);
        }
    }
    UNROLL for (int x = 0; x < n; x++) {
        const uint32_t at = j + (uint32_t)x;
        const float near = at < i && !channels ? expf(c->g[i] - c->g[at]) : 1;
        s->of[at] = delta ? near * sum_of(of[x]) : 0;
        s->to[at] = near * sum_of(to[x]);
    }
}

ALWAYS_INLINE void share_all(const struct chunk_rows *c, uint32_t i, uint32_t k_dim, enum rule rule,
                             struct shares *s) {
    uint32_t j = 0;
    for (; j + NJ <= i + 1; j += NJ)
        share_rows(c, i, j, k_dim, rule, NJ, s);
    for (; j <= i; j++)
        share_rows(c, i, j, k_dim, rule, 1, s);
}

/* u and o of row i, in columns `at` and on; o replaces S^T q. far: what is left of S;
 * scale: of U, beta or Mamba-2's dt. */
ALWAYS_INLINE void mix_columns(const struct cpu_delta_run *r, struct chunk_rows *c, uint32_t i,
                               const struct shares *s, const float *v, float far, float scale,
                               uint32_t at, bool delta, int n_cols) {
    const vec factor = splat(scale), old = splat(far), kept = splat(-far), skip = splat(r->skip);
    vec u[NC], o[NC];
    UNROLL for (int x = 0; x < n_cols; x++) {
        const uint32_t col = at + (uint32_t)x * LANES;
        u[x] = load(v + col);
        o[x] = splat(0);
        if (r->s) o[x] = mul(load(c->sq[i] + col), old);
        if (r->s && delta) u[x] = mul_add(load(c->sk[i] + col), kept, u[x]);
    }
    for (uint32_t j = 0; j < i; j++) {
        const float *from = c->u[j] + at;
        const vec of = splat(-s->of[j]), to = splat(s->to[j]);
        UNROLL for (int x = 0; x < n_cols; x++) {
            const vec other = load(from + x * LANES);
            if (delta) u[x] = mul_add(other, of, u[x]);
            o[x] = mul_add(other, to, o[x]);
        }
    }
    UNROLL for (int x = 0; x < n_cols; x++) {
        const uint32_t col = at + (uint32_t)x * LANES;
        u[x] = mul(u[x], factor);
        store(c->u[i] + col, u[x]);
        o[x] = mul_add(u[x], splat(s->to[i]), o[x]);
        if (!delta) o[x] = mul_add(load(v + col), skip, o[x]);
        store(c->sq[i] + col, o[x]);
    }
}

/* The row at offset i of the chunk: its U, and its output, of Mamba-2 before the norm of groups. */
ALWAYS_INLINE void make_row(const struct cpu_delta_run *r, struct chunk_rows *c, uint32_t i,
                            uint32_t step_row, enum rule rule) {
    const bool delta = rule != RULE_MAMBA2, channels = rule == RULE_CHANNELS;
    const uint32_t dim = r->v_dim;
    const uint64_t heads = r->n_v_heads, at_head = step_row * heads, at = at_head * dim;
    const float *v = r->v + (uint64_t)step_row * dim;
    const float soft = channels ? 0 : add_decay(r, c, i, step_row);
    const float far = channels ? 1 : expf(c->g[i]); /* sk and sq have it */
    const float scale = delta ? 1 / (1 + expf(-r->beta[at_head])) : soft;
    struct shares s;
    uint32_t col = 0;
    share_all(c, i, r->k_dim, rule, &s);
    for (; col + NC * LANES <= dim; col += NC * LANES)
        mix_columns(r, c, i, &s, v, far, scale, col, delta, NC);
    for (; col < dim; col += LANES)
        mix_columns(r, c, i, &s, v, far, scale, col, delta, 1);
    if (delta) DELTA_NAME(delta_norm)(c->sq[i], r->norm, dim, r->eps);
    if (channels) {
        memcpy(r->out + at, c->sq[i], dim * sizeof(float));
        r->sigmoid(r->out + at, r->z + at, dim);
    } else {
        r->silu(r->z + at, c->sq[i], r->out + at, dim);
    }
}

/* n rows of S at the boundary that ends the chunk, columns `at` and on. factor[j]: of U in each;
 * far: of S in each. */
ALWAYS_INLINE void fold_columns(const struct cpu_delta_run *r, const struct chunk_rows *c,
                                const float (*factor)[NR], const float *far, uint32_t row,
                                uint32_t at, int n_cols) {
    vec acc[NR][NC];
    UNROLL for (int i = 0; i < NR; i++) UNROLL for (int x = 0; x < n_cols; x++) {
        const uint64_t from = (uint64_t)(row + (uint32_t)i) * r->v_dim + at;
        acc[i][x] = r->s ? mul(load(r->s + from + x * LANES), splat(far[i])) : splat(0);
    }
    for (uint32_t j = 0; j < r->chunk; j++) {
        const float *u = c->u[j] + at;
        UNROLL for (int i = 0; i < NR; i++) {
            const vec f = splat(factor[j][i]);
            UNROLL for (int x = 0; x < n_cols; x++) acc[i][x] =
                mul_add(load(u + x * LANES), f, acc[i][x]);
        }
    }
    UNROLL for (int i = 0; i < NR; i++) UNROLL for (int x = 0; x < n_cols; x++)
        store(r->s_out + (uint64_t)(row + (uint32_t)i) * r->v_dim + at + x * LANES, acc[i][x]);
}

/* S at the boundary that ends the chunk. */
static void fold(const struct cpu_delta_run *r, const struct chunk_rows *c, enum rule rule) {
    const uint32_t last = r->chunk - 1;
    float near[BACKEND_STATE_MAX_CHUNK] = {0}, factor[BACKEND_STATE_MAX_CHUNK][NR], far[NR];
    for (uint32_t j = 0; j < r->chunk && rule != RULE_CHANNELS; j++)
        near[j] = expf(c->g[last] - c->g[j]);
    for (uint32_t i = 0; i < NR && rule != RULE_CHANNELS; i++)
        far[i] = expf(c->g[last]);
    for (uint32_t row = 0; row < r->k_dim; row += NR) {
        uint32_t at = 0;
        for (uint32_t i = 0; i < NR && rule == RULE_CHANNELS; i++)
            far[i] = expf(c->gs[last][row + i]);
        for (uint32_t j = 0; j < r->chunk; j++)
            for (uint32_t i = 0; i < NR; i++)
                factor[j][i] =
                    c->k[j][row + i] * (rule == RULE_CHANNELS
                                            ? expf(c->gs[last][row + i] - c->gs[j][row + i])
                                            : near[j]);
        for (; at + NC * LANES <= r->v_dim; at += NC * LANES)
            fold_columns(r, c, factor, far, row, at, NC);
        for (; at < r->v_dim; at += LANES)
            fold_columns(r, c, factor, far, row, at, 1);
    }
}

/* The next rows of one chunk, from row `row` of the step on. */
static void begin_chunk(const struct cpu_delta_run *r, struct chunk_rows *c, uint32_t row) {
    const uint32_t left = r->n_rows - row;
    const uint64_t cols = (uint64_t)r->n_v_heads * r->v_dim;
    c->from = (r->first_pos + row) % r->chunk;
    c->to = r->chunk - c->from < left ? r->chunk : c->from + left;
    for (uint32_t j = 0; j < c->from; j++) {
        c->k[j] = r->pending_k + j * r->k_stride;
        c->u[j] = r->pending_u + j * cols;
        c->g[j] = r->pending_g[(uint64_t)j * r->n_v_heads * r->n_decays];
        c->gs[j] = r->pending_g + (uint64_t)j * r->n_v_heads * r->n_decays;
    }
    for (uint32_t j = c->from; j < c->to; j++) {
        const uint64_t at = (uint64_t)(row + j - c->from) * r->k_dim;
        c->k[j] = r->k + at;
        c->q[j] = r->q + at;
        c->u[j] = c->to < r->chunk ? r->pending_u + j * cols : c->own_u[j];
    }
}

ALWAYS_INLINE void run_rows(const struct cpu_delta_run *run, enum rule rule) {
    struct cpu_delta_run r = *run;
    struct chunk_rows c;
    for (uint32_t row = 0; row < r.n_rows; row += c.to - c.from) {
        begin_chunk(&r, &c, row);
        if (rule == RULE_CHANNELS) add_channel_decays(&r, &c, row);
        if (r.s) project_rows(&r, &c, rule);
        for (uint32_t j = c.from; j < c.to; j++)
            make_row(&r, &c, j, row + j - c.from, rule);
        if (c.to < r.chunk) return;
        fold(&r, &c, rule);
        r.s = r.s_out;
    }
}

void DELTA_NAME(delta_run)(const struct cpu_delta_run *run) {
    if (!run->beta)
        run_rows(run, RULE_MAMBA2);
    else if (run->n_decays == 1)
        run_rows(run, RULE_DELTA);
    else
        run_rows(run, RULE_CHANNELS);
}
