/* rope_store.c - launches what writes to the K/V pools: rotary embedding with the scatter of new K
 * and V, and the copy of blocks. Owns the table of cosines and sines of a step's rows: every layer
 * of a step asks for the same angles, so the first one makes them. */
#include "core/backend/cpu/attn.h"
#include "core/backend/cpu/cpu_int.h"

#include "core/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows per chunk: neighbours mostly write to the same block, which threads should not share. */
enum { MAX_CHUNK_ROWS = 16, CHUNKS_PER_THREAD = 4 };

struct cpu_rope {
    float *angles; /* (max_rows, MAX_HEAD_DIM): cosines, then sines from MAX_HEAD_DIM / 2 on */
    int32_t *pos;  /* (max_rows): positions that the table was made for ... */
    float inv_freq[CPU_MAX_HEAD_DIM / 2]; /* ... and frequencies */
    uint32_t n_rows, n_rot;
};

int cpu_rope_new(uint32_t max_rows, struct cpu_rope **out) {
    struct cpu_rope *t = mem_new(1, sizeof *t);
    *out = t;
    if (!t) return ERR_NOMEM;
    t->angles = mem_new_aligned((uint64_t)max_rows * CPU_MAX_HEAD_DIM * sizeof *t->angles);
    t->pos = mem_new(max_rows, sizeof *t->pos);
    return t->angles && t->pos ? 0 : ERR_NOMEM;
}

void cpu_rope_free(struct cpu_rope *t) {
    if (!t) return;
    free(t->pos);
    free(t->angles);
    free(t);
}

struct rope_run {
    const struct op_rope_store *a;
    const struct cpu_isa *isa;
    struct cpu_rope *rope;
    uint32_t rows_per_chunk;
    uint64_t run_bytes; /* of one block and head */
    bool known;         /* the angles are in the table */
};

/* Values of elem bytes, next to each other, to a column of a matrix with n_cols columns. */
static void scatter(const void *from, void *to, uint64_t elem, uint32_t n, uint32_t n_cols) {
    for (uint32_t i = 0; elem == sizeof(uint16_t) && i < n; i++)
        ((uint16_t *)to)[i * n_cols] = ((const uint16_t *)from)[i];
    for (uint32_t i = 0; elem == sizeof(uint8_t) && i < n; i++)
        ((uint8_t *)to)[i * n_cols] = ((const uint8_t *)from)[i];
    for (uint32_t i = 0; elem == sizeof(uint32_t) && i < n; i++)
        ((uint32_t *)to)[i * n_cols] = ((const uint32_t *)from)[i];
}

/* One row's K and V (n_kv_heads, head_dim) f32 to their slot. */
static void store_row(const struct rope_run *r, const float *k, const float *v, uint32_t slot) {
    const struct backend_kv *kv = &r->a->kv;
    uint32_t dim = kv->head_dim, tokens = kv->block_tokens, token = slot % tokens;
    uint64_t elem = kv->kv_type == QTYPE_F32 ? 4 : kv->kv_type == QTYPE_Q8_0 ? 1 : 2;
    for (uint32_t h = 0; h < kv->n_kv_heads; h++, k += dim, v += dim) {
        uint64_t at = ((uint64_t)(slot / tokens) * kv->n_kv_heads + h) * r->run_bytes;
        uint64_t scales_at = at + (uint64_t)tokens * dim; /* Q8_0 only */
        uint8_t *k_pool = kv->k->host, *v_pool = kv->v->host;
        uint32_t values[CPU_MAX_HEAD_DIM]; /* of any type */
        uint16_t scales[CPU_MAX_HEAD_DIM / Q_ELEMS];
        r->isa->encode_kv(kv->kv_type, k, values, scales, dim);
        scatter(values, k_pool + at + token * elem, elem, dim, tokens);
        if (kv->kv_type == QTYPE_Q8_0)
            scatter(scales, (uint16_t *)(void *)(k_pool + scales_at) + token, sizeof *scales,
                    dim / Q_ELEMS, tokens);
        r->isa->encode_kv(kv->kv_type, v, v_pool + at + token * dim * elem, scales, dim);
        if (kv->kv_type == QTYPE_Q8_0)
            memcpy(v_pool + scales_at + token * (dim / Q_ELEMS) * sizeof *scales, scales,
                   dim / Q_ELEMS * sizeof *scales);
    }
}

static void rope_store_row(const struct rope_run *r, uint32_t row) {
    const struct op_rope_store *a = r->a;
    const struct backend_kv *kv = &a->kv;
    float *angles = r->rope->angles + (uint64_t)row * CPU_MAX_HEAD_DIM;
    uint64_t k_cols = (uint64_t)kv->n_kv_heads * kv->head_dim;
    float *k = (float *)a->k->host + row * k_cols;
    for (uint32_t i = 0; !r->known && i < a->n_rot / 2; i++) {
        float pos = (float)((const int32_t *)a->pos->host)[row];
        float angle = pos * ((const float *)a->inv_freq->host)[i];
        angles[i] = cosf(angle);
        angles[CPU_MAX_HEAD_DIM / 2 + i] = sinf(angle);
    }
    struct cpu_rotation rotation = {.cosines = angles,
                                    .sines = angles + CPU_MAX_HEAD_DIM / 2,
                                    .head_dim = kv->head_dim,
                                    .n_rot = a->n_rot,
                                    .interleaved = a->interleaved};
    r->isa->rotate((float *)a->q->host + (uint64_t)row * a->n_heads * kv->head_dim, a->n_heads,
                   &rotation);
    r->isa->rotate(k, kv->n_kv_heads, &rotation);
    store_row(r, k, (const float *)a->v->host + row * k_cols,
              (uint32_t)((const int32_t *)a->slots->host)[row]);
}

static void rope_store_chunk(const void *arg, uint32_t chunk, int thread) {
    const struct rope_run *r = arg;
    uint32_t first = chunk * r->rows_per_chunk;
    (void)thread;
    for (uint32_t i = first; i < r->a->n_rows && i - first < r->rows_per_chunk; i++)
        rope_store_row(r, i);
}

/* Is the table that of these rows? If not, it will be. */
static bool angles_known(struct cpu_rope *t, const struct op_rope_store *a) {
    uint64_t pos_bytes = a->n_rows * sizeof *t->pos;
    uint64_t freq_bytes = a->n_rot / 2 * sizeof *t->inv_freq;
    if (t->n_rows >= a->n_rows && t->n_rot == a->n_rot &&
        !memcmp(t->pos, a->pos->host, pos_bytes) &&
        !memcmp(t->inv_freq, a->inv_freq->host, freq_bytes))
        return true;
    t->n_rows = a->n_rows, t->n_rot = a->n_rot;
    memcpy(t->pos, a->pos->host, pos_bytes);
    memcpy(t->inv_freq, a->inv_freq->host, freq_bytes);
    return false;
}

static bool all_below(const int32_t *ids, uint32_t n, uint64_t bound) {
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint64_t)ids[i] >= bound) return false;
    return true;
}

int cpu_rope_store(backend *be, const struct op_rope_store *a) {
    struct cpu_backend *c = cpu_of(be);
    uint64_t block_bytes;
    if (a->q_norm || a->magnitude) return ERR_UNSUPPORTED;
    if (a->kv.head_dim > CPU_MAX_HEAD_DIM || !backend_kv_block_bytes(&a->kv, &block_bytes) ||
        !all_below(a->slots->host, a->n_rows, (uint64_t)a->kv.n_blocks * a->kv.block_tokens) ||
        !all_below(a->pos->host, a->n_rows, INT32_MAX))
        return ERR_INVALID;
    uint32_t rows = a->n_rows / ((uint32_t)be->n_threads * CHUNKS_PER_THREAD);
    rows = rows < 1 ? 1 : rows < MAX_CHUNK_ROWS ? rows : MAX_CHUNK_ROWS;
    struct rope_run run = {.a = a,
                           .isa = c->isa,
                           .rope = c->rope,
                           .rows_per_chunk = rows,
                           .run_bytes = block_bytes / a->kv.n_kv_heads,
                           .known = angles_known(c->rope, a)};
    pool_run(c->pool, (a->n_rows + rows - 1) / rows, rope_store_chunk, &run);
    cpu_count(c, c->isa, CPU_ROPE_STORE_F32 + cpu_kv_index(a->kv.kv_type));
    return 0;
}

int cpu_kv_copy(backend *be, const struct backend_kv *kv, const int32_t *pairs, uint32_t n_pairs) {
    uint64_t block;
    if (!backend_kv_block_bytes(kv, &block)) return ERR_INVALID;
    for (uint32_t i = 0; i < n_pairs; i++) {
        uint64_t from = (uint64_t)pairs[2 * i] * block, to = (uint64_t)pairs[2 * i + 1] * block;
        if (from == to) continue;
        memcpy((char *)kv->k->host + to, (const char *)kv->k->host + from, block);
        memcpy((char *)kv->v->host + to, (const char *)kv->v->host + from, block);
    }
    cpu_count(cpu_of(be), &cpu_isa_generic, CPU_KV_COPY);
    return 0;
}
