/* rope_store.c - launches the ops that write the K/V pools: norms and rotary embedding of q and k
 * with the scatter of new K and V, and the copy of blocks. Owns the tables of cosines and sines of
 * a step's rows: most layers of a step share their angles, so the first layer computes them. */
#include "core/backend/cpu/attention/attn.h"
#include "core/backend/cpu/cpu_int.h"

#include "core/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows per chunk: adjacent rows mostly write to the same block, which threads should not share. */
enum { MAX_CHUNK_ROWS = 16, CHUNKS_PER_THREAD = 4 };

/* Cosines and sines, times the magnitude, of some rows. */
struct angle_table {
    float *angles; /* (max_rows, MAX_HEAD_DIM): cosines, then sines from MAX_HEAD_DIM / 2 on */
    int32_t *pos;  /* (max_rows): positions of the table's rows */
    float inv_freq[CPU_MAX_HEAD_DIM / 2]; /* frequencies of the table */
    uint32_t n_rows, n_rot;
    float magnitude;
};

/* Models have up to two sets of frequencies, for local and for global layers. The most recently
 * used table is kept, so that each set is computed once per step in any order of layers. */
struct cpu_rope {
    struct angle_table tables[2];
    uint32_t last;                /* the table used last */
    float ones[CPU_MAX_HEAD_DIM]; /* a norm without weights */
};

int cpu_rope_new(uint32_t max_rows, struct cpu_rope **out) {
    struct cpu_rope *r = mem_new(1, sizeof *r);
    *out = r;
    if (!r) return ERR_NOMEM;
    for (uint32_t i = 0; i < CPU_MAX_HEAD_DIM; i++)
        r->ones[i] = 1;
    for (int i = 0; i < 2; i++) {
        struct angle_table *t = &r->tables[i];
        t->angles = mem_new_aligned((uint64_t)max_rows * CPU_MAX_HEAD_DIM * sizeof *t->angles);
        t->pos = mem_new(max_rows, sizeof *t->pos);
        if (!t->angles || !t->pos) return ERR_NOMEM;
    }
    return 0;
}

void cpu_rope_free(struct cpu_rope *r) {
    if (!r) return;
    for (int i = 0; i < 2; i++) {
        free(r->tables[i].pos);
        free(r->tables[i].angles);
    }
    free(r);
}

struct rope_run {
    const struct op_rope_store *a;
    const struct cpu_isa *isa;
    const float *ones;
    struct angle_table *table; /* NULL: no rotary embedding */
    bool known;                /* the angles are in the table */
    float magnitude;
    uint32_t rows_per_chunk;
    uint64_t run_bytes; /* of one block and head */
};

/* Copies n adjacent values of elem bytes into a column of a matrix with n_cols columns. */
static void scatter_rows(const void *from, void *to, uint64_t elem, uint32_t n, uint32_t n_cols) {
    for (uint32_t i = 0; elem == sizeof(uint16_t) && i < n; i++)
        ((uint16_t *)to)[i * n_cols] = ((const uint16_t *)from)[i];
    for (uint32_t i = 0; elem == sizeof(uint8_t) && i < n; i++)
        ((uint8_t *)to)[i * n_cols] = ((const uint8_t *)from)[i];
    for (uint32_t i = 0; elem == sizeof(uint32_t) && i < n; i++)
        ((uint32_t *)to)[i * n_cols] = ((const uint32_t *)from)[i];
}

/* Stores one row's K and V (n_kv_heads, head_dim) f32 in their slot; v NULL: K alone. */
static void store_row(const struct rope_run *r, const float *k, const float *v, uint32_t slot) {
    const struct backend_kv *kv = &r->a->kv;
    uint32_t dim = kv->head_dim, tokens = kv->block_tokens, token = slot % tokens;
    uint64_t elem = kv->kv_type == QTYPE_F32 ? 4 : kv->kv_type == QTYPE_Q8_0 ? 1 : 2;
    for (uint32_t h = 0; h < kv->n_kv_heads; h++, k += dim) {
        uint64_t at = ((uint64_t)(slot / tokens) * kv->n_kv_heads + h) * r->run_bytes;
        uint64_t scales_at = at + (uint64_t)tokens * dim; /* Q8_0 only */
        uint8_t *k_pool = kv->k->host, *v_pool = v ? kv->v->host : NULL;
        uint32_t values[CPU_MAX_HEAD_DIM]; /* of any type */
        uint16_t scales[CPU_MAX_HEAD_DIM / Q_ELEMS];
        r->isa->encode_kv(kv->kv_type, k, values, scales, dim);
        scatter_rows(values, k_pool + at + token * elem, elem, dim, tokens);
        if (kv->kv_type == QTYPE_Q8_0)
            scatter_rows(scales, (uint16_t *)(void *)(k_pool + scales_at) + token, sizeof *scales,
                         dim / Q_ELEMS, tokens);
        if (!v) continue;
        r->isa->encode_kv(kv->kv_type, v + (uint64_t)h * dim, v_pool + at + token * dim * elem,
                          scales, dim);
        if (kv->kv_type == QTYPE_Q8_0)
            memcpy(v_pool + scales_at + token * (dim / Q_ELEMS) * sizeof *scales, scales,
                   dim / Q_ELEMS * sizeof *scales);
    }
}

/* Normalizes x (n_heads, head_dim) in place: per head, or per row if the norm has a row's length.
 */
static void norm_heads(const struct rope_run *r, const backend_weight *norm, float *x,
                       uint32_t n_heads) {
    uint32_t n = (uint32_t)norm->n_in;
    float *end = x + (uint64_t)n_heads * r->a->kv.head_dim;
    for (; x < end; x += n)
        r->isa->norm_row(&(struct cpu_row){
            .x = x, .norm = cpu_weight_of(norm)->data, .out = x, .eps = r->a->eps, .n = n});
}

static void norm_values(const struct rope_run *r, float *v) {
    const struct backend_kv *kv = &r->a->kv;
    for (uint32_t h = 0; h < kv->n_kv_heads; h++, v += kv->head_dim)
        r->isa->norm_row(&(struct cpu_row){
            .x = v, .norm = r->ones, .out = v, .eps = r->a->eps, .n = kv->head_dim});
}

/* Normalizes the head of each row of K that V is. */
static void norm_latents(const struct rope_run *r, float *k) {
    const struct backend_kv *kv = &r->a->kv;
    for (uint32_t h = 0; h < kv->n_kv_heads; h++, k += kv->head_dim)
        r->isa->norm_row(&(struct cpu_row){.x = k,
                                           .norm = cpu_weight_of(r->a->k_norm)->data,
                                           .out = k,
                                           .eps = r->a->eps,
                                           .n = kv->v_dim});
}

static void make_angles(const struct rope_run *r, uint32_t row, float *angles) {
    float pos = (float)((const int32_t *)r->a->pos->host)[row];
    for (uint32_t i = 0; i < r->a->n_rot / 2; i++) {
        float angle = pos * ((const float *)r->a->inv_freq->host)[i];
        angles[i] = cosf(angle) * r->magnitude;
        angles[CPU_MAX_HEAD_DIM / 2 + i] = sinf(angle) * r->magnitude;
    }
}

/* Normalizes the heads of q and k, if they have norms and these come now. */
static void norm_both(const struct rope_run *r, float *q, float *k, bool last) {
    const struct op_rope_store *a = r->a;
    if (!a->q_norm || a->norm_last != last) return;
    norm_heads(r, a->q_norm, q, a->n_heads);
    if (k) norm_heads(r, a->k_norm, k, a->kv.n_kv_heads);
}

static void scale_by_position(const struct op_rope_store *a, uint32_t row, float *q) {
    const uint32_t pos = (uint32_t)((const int32_t *)a->pos->host)[row];
    const float scale =
        1 + a->q_log_scale * logf((float)(1 + (pos + a->q_log_from) / a->q_log_length));
    for (uint32_t i = 0; i < a->n_heads * a->kv.head_dim; i++)
        q[i] *= scale;
}

static void rope_store_row(const struct rope_run *r, uint32_t row) {
    const struct op_rope_store *a = r->a;
    const struct backend_kv *kv = &a->kv;
    uint64_t k_cols = (uint64_t)kv->n_kv_heads * kv->head_dim;
    float *q = (float *)a->q->host + (uint64_t)row * a->n_heads * kv->head_dim;
    float *k = a->k ? (float *)a->k->host + row * k_cols : NULL;
    float *v = a->v ? (float *)a->v->host + row * k_cols : NULL;
    if (kv->v_dim && a->k_norm) norm_latents(r, k);
    norm_both(r, q, k, false);
    if (r->table) {
        float *angles = r->table->angles + (uint64_t)row * CPU_MAX_HEAD_DIM;
        struct cpu_rotation rotation = {.cosines = angles,
                                        .sines = angles + CPU_MAX_HEAD_DIM / 2,
                                        .head_dim = kv->head_dim,
                                        .n_rot = a->n_rot,
                                        .interleaved = a->interleaved};
        if (!r->known) make_angles(r, row, angles);
        r->isa->rotate(q + kv->v_dim, a->n_heads, &rotation);
        if (k) r->isa->rotate(k + kv->v_dim, kv->n_kv_heads, &rotation);
    }
    norm_both(r, q, k, true);
    if (a->q_log_length) scale_by_position(a, row, q);
    if (!k) return;
    if (a->v_normed) norm_values(r, v);
    store_row(r, k, v, (uint32_t)((const int32_t *)a->slots->host)[row]);
}

static void rope_store_chunk(const void *arg, uint32_t chunk, int thread) {
    const struct rope_run *r = arg;
    uint32_t first = chunk * r->rows_per_chunk;
    (void)thread;
    for (uint32_t i = first; i < r->a->n_rows && i - first < r->rows_per_chunk; i++)
        rope_store_row(r, i);
}

static bool is_table_of(const struct angle_table *t, const struct op_rope_store *a,
                        float magnitude) {
    return t->n_rows >= a->n_rows && t->n_rot == a->n_rot && t->magnitude == magnitude &&
           !memcmp(t->pos, a->pos->host, a->n_rows * sizeof *t->pos) &&
           !memcmp(t->inv_freq, a->inv_freq->host, a->n_rot / 2 * sizeof *t->inv_freq);
}

/* The table of these rows; *known is false if the rows must still fill it. */
static struct angle_table *find_table(struct cpu_rope *r, const struct op_rope_store *a,
                                      float magnitude, bool *known) {
    *known = true;
    if (is_table_of(&r->tables[r->last], a, magnitude)) return &r->tables[r->last];
    r->last = !r->last;
    struct angle_table *t = &r->tables[r->last];
    if (is_table_of(t, a, magnitude)) return t;
    *known = false;
    t->n_rows = a->n_rows, t->n_rot = a->n_rot, t->magnitude = magnitude;
    memcpy(t->pos, a->pos->host, a->n_rows * sizeof *t->pos);
    memcpy(t->inv_freq, a->inv_freq->host, a->n_rot / 2 * sizeof *t->inv_freq);
    return t;
}

int cpu_rope_store(backend *be, const struct op_rope_store *a) {
    struct cpu_backend *c = cpu_of(be);
    uint64_t block_bytes;
    if (a->kv.head_dim > CPU_MAX_HEAD_DIM || !backend_kv_block_bytes(&a->kv, &block_bytes) ||
        !cpu_all_below(a->slots->host, a->n_rows, (uint64_t)a->kv.n_blocks * a->kv.block_tokens) ||
        !cpu_all_below(a->pos->host, a->n_rows, INT32_MAX))
        return ERR_INVALID;
    uint32_t rows = a->n_rows / ((uint32_t)be->n_threads * CHUNKS_PER_THREAD);
    rows = rows < 1 ? 1 : rows < MAX_CHUNK_ROWS ? rows : MAX_CHUNK_ROWS;
    struct rope_run run = {.a = a,
                           .isa = c->isa,
                           .ones = c->rope->ones,
                           .magnitude = a->magnitude != 0 ? a->magnitude : 1,
                           .rows_per_chunk = rows,
                           .run_bytes = block_bytes / a->kv.n_kv_heads};
    if (a->n_rot) run.table = find_table(c->rope, a, run.magnitude, &run.known);
    pool_run(c->pool, (a->n_rows + rows - 1) / rows, rope_store_chunk, &run);
    if (a->q_norm || a->k_norm || a->v_normed) cpu_count(c, c->isa, CPU_RMSNORM);
    cpu_count(c, c->isa, CPU_ROPE_STORE_F32 + cpu_kv_index(a->kv.kv_type));
    return 0;
}

int cpu_kv_copy(backend *be, const struct op_kv_copy *a) {
    const struct backend_kv *kv = &a->kv;
    uint64_t block;
    if (!backend_kv_block_bytes(kv, &block)) return ERR_INVALID;
    for (uint32_t i = 0; i < a->n_pairs; i++) {
        uint64_t from = (uint64_t)a->pairs[2 * i] * block,
                 to = (uint64_t)a->pairs[2 * i + 1] * block;
        if (from == to) continue;
        memcpy((char *)kv->k->host + to, (const char *)kv->k->host + from, block);
        if (kv->v) memcpy((char *)kv->v->host + to, (const char *)kv->v->host + from, block);
    }
    cpu_count(cpu_of(be), &cpu_isa_generic, CPU_KV_COPY);
    return 0;
}
