/* linear_attention.c - linear attention; a task of the pool is one head of one sequence. Each row
 * is computed from the state of the full chunks before it and the rows of its own chunk, in one
 * order, so the result does not depend on how the text was divided into steps. Owns nothing. */
#include "core/backend/cpu/cpu_int.h"

#include <string.h>

/* The rows of a sequence in the step; the state of a head in the sequence's slot. */
struct linear_run {
    const struct op_linear_attention *a;
    uint32_t chunk; /* positions per chunk */
};

struct linear_head {
    float *s, *k, *v; /* (head_dim, head_dim), (chunk, head_dim) twice */
    uint32_t dim;
    float decay;
};

static float power(float x, uint32_t n) {
    float p = 1;
    for (; n; n >>= 1, x *= x)
        if (n & 1) p *= x;
    return p;
}

static float dot(const float *a, const float *b, uint32_t n) {
    float sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add_scaled(float *y, const float *x, float scale, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        y[i] += scale * x[i];
}

/* Computes the row at offset `at` of chunk number `chunk`, whose K and V are in the slot. */
static void make_row(const struct linear_head *h, const float *q, uint32_t at, uint32_t chunk,
                     float scale, float *out) {
    memset(out, 0, h->dim * sizeof *out);
    if (chunk) {
        float far = power(h->decay, at + 1);
        for (uint32_t i = 0; i < h->dim; i++)
            add_scaled(out, h->s + (uint64_t)i * h->dim, q[i] * far, h->dim);
    }
    for (uint32_t t = 0; t <= at; t++) {
        float score = dot(q, h->k + (uint64_t)t * h->dim, h->dim) * power(h->decay, at - t);
        add_scaled(out, h->v + (uint64_t)t * h->dim, score, h->dim);
    }
    for (uint32_t i = 0; i < h->dim; i++)
        out[i] *= scale;
}

/* Adds chunk number `chunk`, which is full, to S. */
static void close_chunk(const struct linear_head *h, uint32_t n, uint32_t chunk) {
    const uint64_t n_state = (uint64_t)h->dim * h->dim;
    const float far = power(h->decay, n);
    if (!chunk) memset(h->s, 0, n_state * sizeof *h->s);
    for (uint64_t i = 0; chunk && i < n_state; i++)
        h->s[i] *= far;
    for (uint32_t t = 0; t < n; t++) {
        const float *k = h->k + (uint64_t)t * h->dim, *v = h->v + (uint64_t)t * h->dim;
        float near = power(h->decay, n - 1 - t);
        for (uint32_t i = 0; i < h->dim; i++)
            add_scaled(h->s + (uint64_t)i * h->dim, v, k[i] * near, h->dim);
    }
}

static void run_head(const void *arg, uint32_t item, int thread) {
    const struct linear_run *r = arg;
    const struct op_linear_attention *a = r->a;
    const int32_t *start = a->row_start->host, *pos = a->pos->host, *slots = a->slots->host;
    const uint32_t s = item / a->n_heads, head = item % a->n_heads, dim = a->head_dim;
    const uint64_t n_slot = backend_linear_state_bytes(dim) / sizeof(float);
    struct linear_head h = {.dim = dim, .decay = 1};
    (void)thread;
    if (a->decay) h.decay = ((const float *)cpu_weight_of(a->decay)->data)[head];
    h.s = (float *)a->state->host + ((uint64_t)slots[s] * a->n_heads + head) * n_slot;
    h.k = h.s + (uint64_t)dim * dim;
    h.v = h.k + (uint64_t)r->chunk * dim;
    for (int32_t row = start[s]; row < start[s + 1]; row++) {
        const uint64_t at = ((uint64_t)row * a->n_heads + head) * dim;
        const uint32_t chunk = (uint32_t)pos[row] / r->chunk, i = (uint32_t)pos[row] % r->chunk;
        memcpy(h.k + (uint64_t)i * dim, (const float *)a->k->host + at, dim * sizeof(float));
        memcpy(h.v + (uint64_t)i * dim, (const float *)a->v->host + at, dim * sizeof(float));
        make_row(&h, (const float *)a->q->host + at, i, chunk, a->scale,
                 (float *)a->out->host + at);
        if (i + 1 == r->chunk) close_chunk(&h, r->chunk, chunk);
    }
}

/* Do the sequences cover the step's rows, each with consecutive positions? */
static bool batch_ok(const struct op_linear_attention *a) {
    const int32_t *start = a->row_start->host, *pos = a->pos->host;
    if (!a->n_seqs || start[0] != 0 || (uint32_t)start[a->n_seqs] != a->n_rows) return false;
    for (uint32_t s = 0; s < a->n_seqs; s++) {
        if (start[s + 1] <= start[s] || (uint32_t)start[s + 1] > a->n_rows || pos[start[s]] < 0)
            return false;
        for (int32_t r = start[s] + 1; r < start[s + 1]; r++)
            if (pos[r] - 1 != pos[r - 1]) return false;
    }
    return cpu_all_below(a->slots->host, a->n_seqs, a->n_slots);
}

int cpu_linear_attention(backend *be, const struct op_linear_attention *a) {
    struct cpu_backend *c = cpu_of(be);
    if (!batch_ok(a)) return ERR_INVALID;
    const struct linear_run run = {.a = a, .chunk = backend_linear_chunk(a->head_dim)};
    pool_run(c->pool, a->n_seqs * a->n_heads, run_head, &run);
    cpu_count(c, &cpu_isa_generic, CPU_LINEAR_ATTENTION);
    return 0;
}
