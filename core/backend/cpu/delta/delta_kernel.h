/* delta_kernel.h - the rows of linear attention (op_linear_attention), written once for vectors of
 * LANES floats. The file that includes it defines
 *   LANES, vec, NX (vectors of Q and K that share a read of S)
 *   load(p), store(p, v), splat(x), mul_add(a, b, c): a * b + c
 *   DELTA_NAME(name): the name for its instruction set
 *
 * ORDER OF SUMS: as in ops.h, one accumulator for each element, over ascending dimensions or rows.
 * A dot product has LANES accumulators, which are added in ascending order. Nothing depends on how
 * many rows a step has. */
#include "core/backend/cpu/delta/delta.h"
#include "core/backend/cpu/template.h"

#include <math.h>

enum { NC = 4 }; /* vectors of a row of S at a time */

static float dot(const float *a, const float *b, uint32_t n) {
    vec acc = splat(0);
    float lanes[LANES], sum = 0;
    for (uint32_t i = 0; i < n; i += LANES)
        acc = mul_add(load(a + i), load(b + i), acc);
    store(lanes, acc);
    for (int i = 0; i < LANES; i++)
        sum += lanes[i];
    return sum;
}

/* y += x * scale */
static void add_scaled(float *y, const float *x, float scale, uint32_t n) {
    const vec f = splat(scale);
    for (uint32_t i = 0; i < n; i += LANES)
        store(y + i, mul_add(load(x + i), f, load(y + i)));
}

static void scale_row(float *y, float scale, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        y[i] *= scale;
}

/* ---- convolution ---- */

void DELTA_NAME(delta_conv)(const struct cpu_delta_conv *c, const struct cpu_isa *kernels) {
    static const float ones[BACKEND_STATE_MAX_K_DIM] = {
        [0 ... BACKEND_STATE_MAX_K_DIM - 1] = 1,
    };
    float sum[BACKEND_STATE_MAX_K_DIM];
    for (uint32_t i = 0; i < c->dim; i++) {
        sum[i] = c->bias ? c->bias[i] : 0;
        for (uint32_t t = 0; t < c->n_taps; t++)
            sum[i] += c->taps[i * c->n_taps + t] * c->in[t][i];
    }
    kernels->glu[BACKEND_ACT_SILU](sum, ones, c->out, c->dim);
    if (c->normalize)
        scale_row(c->out, c->scale / sqrtf(dot(c->out, c->out, c->dim) + 1e-6f), c->dim);
}

/* ---- rows ---- */

/* A chunk's rows, of which `from` are pending and `to` - `from` are new. */
struct chunk_rows {
    const float *q[BACKEND_STATE_MAX_CHUNK], *k[BACKEND_STATE_MAX_CHUNK]; /* q of new rows only */
    float g[BACKEND_STATE_MAX_CHUNK];                           /* sums since the boundary */
    float sk[BACKEND_STATE_MAX_CHUNK][BACKEND_STATE_MAX_V_DIM]; /* S^T k and S^T q of new rows */
    float sq[BACKEND_STATE_MAX_CHUNK][BACKEND_STATE_MAX_V_DIM];
    uint32_t from, to;
};

/* y[x] (NC vectors) = S^T x for columns `at` and on, S (k_dim, dim); n <= NX. */
ALWAYS_INLINE void project(const float *s, uint32_t k_dim, uint32_t dim, uint32_t at,
                           const float *const *x, float *const *y, int n, int n_cols) {
    vec acc[NX][NC];
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
    for (; at + NC * LANES <= v; at += NC * LANES) {
        if (n == NX)
            project(s, k, v, at, x, y, NX, NC);
        else if (n == 2)
            project(s, k, v, at, x, y, 2, NC);
        else
            project(s, k, v, at, x, y, 1, NC);
    }
    for (; at < v; at += LANES) {
        if (n == NX)
            project(s, k, v, at, x, y, NX, 1);
        else if (n == 2)
            project(s, k, v, at, x, y, 2, 1);
        else
            project(s, k, v, at, x, y, 1, 1);
    }
}

/* sq, and for a delta net sk, of the new rows. */
static void project_rows(const struct cpu_delta_run *r, struct chunk_rows *c) {
    const uint32_t each = r->beta ? 2 : 1;
    for (uint32_t i = c->from; i < c->to;) {
        const float *x[NX];
        float *y[NX];
        uint32_t n = NX / each;
        if (c->to - i < n) n = c->to - i < 2 || each == 2 ? 1 : 2;
        for (uint32_t j = 0; j < n; j++) {
            const uint32_t at = each * j;
            if (r->beta) x[at] = c->k[i + j], y[at] = c->sk[i + j];
            x[at + each - 1] = c->q[i + j], y[at + each - 1] = c->sq[i + j];
        }
        project_columns(r, x, y, each * n);
        i += n;
    }
}

/* g of the row at offset i of the chunk; returns softplus(alpha + dt_bias). */
static float add_decay(const struct cpu_delta_run *r, struct chunk_rows *c, uint32_t i,
                       uint32_t step_row) {
    const float x = r->alpha[step_row * (uint64_t)r->n_v_heads] + r->dt_bias;
    const float soft = x > 20 ? x : log1pf(expf(x));
    c->g[i] = (i ? c->g[i - 1] : 0) + r->a * soft;
    r->pending_g[(uint64_t)i * r->n_v_heads] = c->g[i];
    return soft;
}

void DELTA_NAME(delta_norm)(float *x, const float *weight, uint32_t n, float eps) {
    scale_row(x, 1 / sqrtf(dot(x, x, n) / (float)n + eps), n);
    for (uint32_t i = 0; i < n; i++)
        x[i] *= weight[i];
}

/* The row at offset i of the chunk; its U is appended to the pending ones. */
static void make_delta_row(const struct cpu_delta_run *r, struct chunk_rows *c, uint32_t i,
                           uint32_t step_row) {
    const uint32_t dim = r->v_dim;
    const uint64_t cols = (uint64_t)r->n_v_heads * dim, at = step_row * (uint64_t)r->n_v_heads;
    float *u = r->pending_u + i * cols, *o = c->sq[i], *w = c->sk[i];
    add_decay(r, c, i, step_row);
    const float far = expf(c->g[i]), beta = 1 / (1 + expf(-r->beta[at]));
    for (uint32_t d = 0; d < dim; d++) {
        u[d] = r->v[step_row * r->in_stride + d] - (r->s ? far * w[d] : 0);
        o[d] = r->s ? far * o[d] : 0;
    }
    for (uint32_t j = 0; j < i; j++) {
        const float near = expf(c->g[i] - c->g[j]);
        add_scaled(u, r->pending_u + j * cols, -near * dot(c->k[j], c->k[i], r->k_dim), dim);
        add_scaled(o, r->pending_u + j * cols, near * dot(c->k[j], c->q[i], r->k_dim), dim);
    }
    scale_row(u, beta, dim);
    add_scaled(o, u, dot(c->k[i], c->q[i], r->k_dim), dim);
    DELTA_NAME(delta_norm)(o, r->norm, dim, r->eps);
    r->silu(r->z + step_row * cols, o, r->out + step_row * cols, dim);
}

/* The same of Mamba-2, before the norm of its groups. */
static void make_mamba2_row(const struct cpu_delta_run *r, struct chunk_rows *c, uint32_t i,
                            uint32_t step_row) {
    const uint32_t dim = r->v_dim;
    const uint64_t cols = (uint64_t)r->n_v_heads * dim;
    const float *v = r->v + step_row * r->in_stride;
    float *u = r->pending_u + i * cols, *o = c->sq[i];
    const float dt = add_decay(r, c, i, step_row), far = expf(c->g[i]);
    for (uint32_t d = 0; d < dim; d++) {
        u[d] = dt * v[d];
        o[d] = r->s ? far * o[d] : 0;
    }
    for (uint32_t j = 0; j < i; j++)
        add_scaled(o, r->pending_u + j * cols,
                   expf(c->g[i] - c->g[j]) * dot(c->k[j], c->q[i], r->k_dim), dim);
    add_scaled(o, u, dot(c->k[i], c->q[i], r->k_dim), dim);
    add_scaled(o, v, r->skip, dim);
    r->silu(r->z + step_row * cols, o, r->out + step_row * cols, dim);
}

/* S at the boundary that ends the chunk. */
static void fold(const struct cpu_delta_run *r, const struct chunk_rows *c) {
    const uint32_t dim = r->v_dim;
    const uint64_t cols = (uint64_t)r->n_v_heads * dim;
    const float far = expf(c->g[r->chunk - 1]);
    float near[BACKEND_STATE_MAX_CHUNK];
    for (uint32_t j = 0; j < r->chunk; j++)
        near[j] = expf(c->g[r->chunk - 1] - c->g[j]);
    for (uint32_t row = 0; row < r->k_dim; row++) {
        float *out = r->s_out + (uint64_t)row * dim;
        for (uint32_t at = 0; at < dim; at += LANES) {
            vec acc = splat(0);
            if (r->s) acc = mul_add(load(r->s + (uint64_t)row * dim + at), splat(far), acc);
            for (uint32_t j = 0; j < r->chunk; j++)
                acc =
                    mul_add(load(r->pending_u + j * cols + at), splat(near[j] * c->k[j][row]), acc);
            store(out + at, acc);
        }
    }
}

void DELTA_NAME(delta_run)(const struct cpu_delta_run *run) {
    struct cpu_delta_run r = *run;
    struct chunk_rows c;
    for (uint32_t row = 0; row < r.n_rows; row += c.to - c.from) {
        const uint32_t left = r.n_rows - row;
        c.from = (r.first_pos + row) % r.chunk;
        c.to = r.chunk - c.from < left ? r.chunk : c.from + left;
        for (uint32_t j = 0; j < c.from; j++) {
            c.k[j] = r.pending_k + j * r.k_stride;
            c.g[j] = r.pending_g[(uint64_t)j * r.n_v_heads];
        }
        for (uint32_t j = c.from; j < c.to; j++) {
            c.k[j] = r.k + (row + j - c.from) * r.in_stride;
            c.q[j] = r.q + (row + j - c.from) * r.in_stride;
        }
        if (r.s) project_rows(&r, &c);
        for (uint32_t j = c.from; j < c.to; j++) {
            if (r.beta)
                make_delta_row(&r, &c, j, row + j - c.from);
            else
                make_mamba2_row(&r, &c, j, row + j - c.from);
        }
        if (c.to < r.chunk) return;
        fold(&r, &c);
        r.s = r.s_out;
    }
}
