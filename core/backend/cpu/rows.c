/* rows.c - launches the ops that work row by row: embed, rmsnorm, rope + KV scatter, glu, gather,
 * and the copy of KV blocks. A few rows run on the caller's thread: waking others costs more. */
#include "core/backend/cpu/cpu_int.h"

#include <math.h>
#include <string.h>

enum { VALUES_PER_CHUNK = 8192 }; /* about a microsecond or two of work */

/* Rows per chunk for rows of n_cols values. */
static uint32_t chunk_rows(uint64_t n_cols) {
    return n_cols >= VALUES_PER_CHUNK ? 1 : (uint32_t)(VALUES_PER_CHUNK / n_cols);
}

static uint32_t n_chunks(uint32_t n_rows, uint32_t per_chunk) {
    return n_rows / per_chunk + (n_rows % per_chunk != 0);
}

struct row_run {
    const void *op; /* the op's argument struct */
    const struct cpu_isa *isa;
    uint32_t n_rows, per_chunk;
    struct cpu_backend *c;
    void (*row)(const struct row_run *r, uint32_t row, int thread);
};

static void run_chunk(const void *arg, uint32_t chunk, int thread) {
    const struct row_run *r = arg;
    uint32_t first = chunk * r->per_chunk;
    for (uint32_t i = first; i < r->n_rows && i - first < r->per_chunk; i++)
        r->row(r, i, thread);
}

static void run_rows(struct row_run *r, uint64_t n_cols) {
    r->isa = r->c->isa;
    r->per_chunk = chunk_rows(n_cols);
    pool_run(r->c->pool, n_chunks(r->n_rows, r->per_chunk), run_chunk, r);
}

static bool all_below(const int32_t *ids, uint32_t n, uint64_t bound) {
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint64_t)ids[i] >= bound) return false;
    return true;
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
    if (!all_below(a->ids->host, a->n_rows, a->table->n_out)) return ERR_INVALID;
    struct row_run run = {.op = a, .n_rows = a->n_rows, .c = c, .row = embed_row};
    run_rows(&run, a->table->n_in);
    cpu_count(c, &cpu_isa_generic, CPU_EMBED);
    return 0;
}

/* ---- rmsnorm, glu, gather ---- */

static void rmsnorm_row(const struct row_run *r, uint32_t row, int thread) {
    const struct op_rmsnorm *a = r->op;
    uint64_t at = (uint64_t)row * a->n_cols;
    (void)thread;
    r->isa->rmsnorm((float *)a->x->host + at,
                    a->residual ? (const float *)a->residual->host + at : NULL,
                    cpu_weight_of(a->weight)->data, (float *)a->out->host + at, a->n_cols, a->eps);
}

int cpu_rmsnorm(backend *be, const struct op_rmsnorm *a) {
    struct cpu_backend *c = cpu_of(be);
    struct row_run run = {.op = a, .n_rows = a->n_rows, .c = c, .row = rmsnorm_row};
    run_rows(&run, a->n_cols);
    cpu_count(c, c->isa, CPU_RMSNORM);
    return 0;
}

static void glu_row(const struct row_run *r, uint32_t row, int thread) {
    const struct op_glu *a = r->op;
    uint64_t at = (uint64_t)row * a->n_cols;
    (void)thread;
    r->isa->glu_silu((const float *)a->gate->host + at, (const float *)a->up->host + at,
                     (float *)a->out->host + at, a->n_cols);
}

int cpu_glu(backend *be, const struct op_glu *a) {
    struct cpu_backend *c = cpu_of(be);
    struct row_run run = {.op = a, .n_rows = a->n_rows, .c = c, .row = glu_row};
    run_rows(&run, a->n_cols);
    cpu_count(c, c->isa, CPU_GLU_SILU);
    return 0;
}

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
    if (!all_below(a->rows->host, a->n_out_rows, n_from)) return ERR_INVALID;
    struct row_run run = {.op = a, .n_rows = a->n_out_rows, .c = c, .row = gather_row};
    run_rows(&run, a->n_cols);
    cpu_count(c, &cpu_isa_generic, CPU_GATHER);
    return 0;
}

/* ---- rope + KV scatter ---- */

struct rotation {
    const float *cosines, *sines; /* (n_rot / 2) */
    uint32_t head_dim, n_rot;
    bool interleaved;
};

/* x (n_heads, head_dim), in place. */
static void rotate(float *x, uint32_t n_heads, const struct rotation *r) {
    uint32_t half = r->n_rot / 2, step = r->interleaved ? 2 : 1, apart = r->interleaved ? 1 : half;
    for (uint32_t h = 0; h < n_heads; h++, x += r->head_dim)
        for (uint32_t i = 0; i < half; i++) {
            float *a = x + i * step, *b = a + apart;
            float u = *a, v = *b;
            *a = u * r->cosines[i] - v * r->sines[i];
            *b = u * r->sines[i] + v * r->cosines[i];
        }
}

/* src (n_kv_heads, head_dim) f32 to its slot in pool. */
static void store_heads(const struct cpu_isa *isa, const struct backend_kv *kv, const float *src,
                        void *pool_base, uint32_t slot) {
    uint64_t block = slot / kv->block_tokens, token = slot % kv->block_tokens;
    for (uint32_t h = 0; h < kv->n_kv_heads; h++, src += kv->head_dim) {
        uint64_t at = ((block * kv->n_kv_heads + h) * kv->block_tokens + token) * kv->head_dim;
        if (kv->kv_type == QTYPE_F16)
            isa->store_f16(src, (uint16_t *)pool_base + at, kv->head_dim);
        else
            memcpy((float *)pool_base + at, src, kv->head_dim * sizeof *src);
    }
}

static void rope_store_row(const struct row_run *r, uint32_t row, int thread) {
    const struct op_rope_store *a = r->op;
    const struct backend_kv *kv = &a->kv;
    const float *inv_freq = a->inv_freq->host;
    float pos = (float)((const int32_t *)a->pos->host)[row];
    uint32_t slot = (uint32_t)((const int32_t *)a->slots->host)[row];
    uint64_t q_cols = (uint64_t)a->n_heads * kv->head_dim;
    uint64_t k_cols = (uint64_t)kv->n_kv_heads * kv->head_dim;
    float *cosines = r->c->angles + (uint64_t)thread * CPU_MAX_HEAD_DIM;
    float *sines = cosines + CPU_MAX_HEAD_DIM / 2;
    float *k = (float *)a->k->host + row * k_cols;
    for (uint32_t i = 0; i < a->n_rot / 2; i++) {
        float angle = pos * inv_freq[i];
        cosines[i] = cosf(angle);
        sines[i] = sinf(angle);
    }
    struct rotation rotation = {cosines, sines, kv->head_dim, a->n_rot, a->interleaved};
    rotate((float *)a->q->host + row * q_cols, a->n_heads, &rotation);
    rotate(k, kv->n_kv_heads, &rotation);
    store_heads(r->isa, kv, k, kv->k->host, slot);
    store_heads(r->isa, kv, (const float *)a->v->host + row * k_cols, kv->v->host, slot);
}

int cpu_rope_store(backend *be, const struct op_rope_store *a) {
    struct cpu_backend *c = cpu_of(be);
    if (a->n_rot > CPU_MAX_HEAD_DIM ||
        !all_below(a->slots->host, a->n_rows, (uint64_t)a->kv.n_blocks * a->kv.block_tokens) ||
        !all_below(a->pos->host, a->n_rows, INT32_MAX))
        return ERR_INVALID;
    struct row_run run = {.op = a, .n_rows = a->n_rows, .c = c, .row = rope_store_row};
    run_rows(&run, (uint64_t)(a->n_heads + 2 * a->kv.n_kv_heads) * a->kv.head_dim);
    cpu_count(c, c->isa, a->kv.kv_type == QTYPE_F16 ? CPU_ROPE_STORE_F16 : CPU_ROPE_STORE_F32);
    return 0;
}

/* ---- KV blocks ---- */

int cpu_kv_copy(backend *be, const struct backend_kv *kv, const int32_t *pairs, uint32_t n_pairs) {
    struct cpu_backend *c = cpu_of(be);
    uint64_t elem = kv->kv_type == QTYPE_F16 ? sizeof(uint16_t) : sizeof(float);
    uint64_t block = (uint64_t)kv->n_kv_heads * kv->block_tokens * kv->head_dim * elem;
    for (uint32_t i = 0; i < n_pairs; i++) {
        uint64_t from = (uint64_t)pairs[2 * i] * block, to = (uint64_t)pairs[2 * i + 1] * block;
        if (from == to) continue;
        memcpy((char *)kv->k->host + to, (const char *)kv->k->host + from, block);
        memcpy((char *)kv->v->host + to, (const char *)kv->v->host + from, block);
    }
    cpu_count(c, &cpu_isa_generic, CPU_KV_COPY);
    return 0;
}
