/* attention_scene.h - shared by tests of paged attention: sequences with random K and V in random
 * blocks of pools (NaN where nothing was stored), rows over them, the op, and a float64 reference.
 */
#ifndef INFERD_TESTS_ATTENTION_SCENE_H
#define INFERD_TESTS_ATTENTION_SCENE_H

#include "tests/support/be.h"
#include "tests/support/kv_pool.h"
#include "tests/unit/check.h"

enum { MAX_SEQS = 5, N_BLOCKS = 320, MAX_CONTEXT = 989, LONG_CONTEXT = 4096, MAX_HEADS = 71 };
enum { MAX_HEAD_DIM = 512 };
enum { STRIDE = 64, LONG_STRIDE = 256 }; /* of block tables */

struct shape {
    uint32_t n_heads, n_kv_heads, head_dim, block_tokens;
    int kv_type;
};

/* Features that an architecture adds to softmax(q K^T) V. */
struct features {
    uint32_t window;
    float softcap;
    bool sinks, both_ways, chunked, slopes;
};

/* Sequences with all their K and V, and where the pools keep them. */
struct scene {
    struct shape s;
    struct features f;
    float sinks[MAX_HEADS], slopes[MAX_HEADS];
    uint32_t n_seqs, context[MAX_SEQS]; /* tokens stored */
    uint32_t stride;                    /* of the tables */
    float *k[MAX_SEQS], *v[MAX_SEQS];   /* (context, n_kv_heads, head_dim), as stored */
    int32_t tables[MAX_SEQS * LONG_STRIDE];
    void *k_pool, *v_pool; /* host copies of the pools */
    uint64_t pool_bytes;
    backend_buf *k_buf, *v_buf; /* the same on the backend in use */
};

struct rows {
    uint32_t n, n_seqs;
    uint32_t seq[BE_MAX_ROWS];
    int32_t pos[BE_MAX_ROWS], row_start[MAX_SEQS + 1], seq_of[MAX_SEQS];
    const float *q[BE_MAX_ROWS]; /* (n_heads, head_dim) each */
};

static struct backend_kv kv_of(const struct shape *s, uint32_t n_blocks, backend_buf *k,
                               backend_buf *v) {
    return (struct backend_kv){.k = k,
                               .v = v,
                               .kv_type = s->kv_type,
                               .n_blocks = n_blocks,
                               .n_kv_heads = s->n_kv_heads,
                               .block_tokens = s->block_tokens,
                               .head_dim = s->head_dim};
}

/* Rounds values to the pool's type, so that the reference and the kernel read the same. */
static void put_token(struct scene *c, uint32_t seq, uint32_t pos, float *src, bool is_k) {
    struct backend_kv kv = kv_of(&c->s, N_BLOCKS, NULL, NULL);
    uint32_t block = (uint32_t)c->tables[seq * c->stride + pos / c->s.block_tokens];
    struct kv_row row = {.kv = &kv,
                         .pool = is_k ? c->k_pool : c->v_pool,
                         .is_k = is_k,
                         .slot = block * c->s.block_tokens + pos % c->s.block_tokens};
    for (; row.head < c->s.n_kv_heads; row.head++)
        kv_put(&row, src + ((uint64_t)pos * c->s.n_kv_heads + row.head) * c->s.head_dim);
}

/* first: tokens of sequence 0, limited to the tables' size; 0: any up to MAX_CONTEXT. */
static void make_scene_of(struct scene *c, const struct shape *s, struct features f, float scale,
                          uint32_t first) {
    uint32_t width = s->n_kv_heads * s->head_dim, order[N_BLOCKS], used = 0;
    memset(c, 0, sizeof *c);
    c->s = *s, c->f = f;
    c->stride = first > MAX_CONTEXT ? LONG_STRIDE : STRIDE;
    for (uint32_t h = 0; f.sinks && h < s->n_heads; h++) /* small, large or dominant */
        c->sinks[h] = h % 5 == 3 ? -INFINITY : h % 7 == 5 ? 200 : be_real() * 8;
    for (uint32_t h = 0; f.slopes && h < s->n_heads; h++) /* one is 0, others from flat to steep */
        c->slopes[h] = h % 5 == 2 ? 0 : exp2f(-(float)(h % 9));
    c->n_seqs = 1 + be_below(MAX_SEQS);
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        order[i] = i;
    for (uint32_t i = N_BLOCKS - 1; i > 0; i--) {
        uint32_t k = be_below(i + 1), keep = order[i];
        order[i] = order[k], order[k] = keep;
    }
    struct backend_kv kv = kv_of(s, N_BLOCKS, NULL, NULL);
    c->pool_bytes = N_BLOCKS * kv_block_size(&kv);
    c->k_pool = be_new(c->pool_bytes, 1);
    c->v_pool = be_new(c->pool_bytes, 1);
    memset(c->k_pool, 0xff, c->pool_bytes); /* NaN as any type, as Q8_0's scale */
    memset(c->v_pool, 0xff, c->pool_bytes);
    for (uint32_t q = 0; q < c->n_seqs; q++) {
        static const uint32_t odd[] = {1, 2, 19, 33, 99, 256, 257, 513, MAX_CONTEXT, MAX_CONTEXT};
        c->context[q] = q ? 1 + be_below(200) : odd[be_below(sizeof odd / sizeof odd[0])];
        if (q == 0 && first) c->context[q] = first;
        if (c->context[q] > c->stride * s->block_tokens)
            c->context[q] = c->stride * s->block_tokens;
        uint32_t n_blocks = (c->context[q] + s->block_tokens - 1) / s->block_tokens;
        uint64_t n = (uint64_t)c->context[q] * width;
        for (uint32_t b = 0; b < n_blocks; b++)
            c->tables[q * c->stride + b] = (int32_t)order[used++];
        c->k[q] = be_new(n, sizeof(float));
        c->v[q] = be_new(n, sizeof(float));
        be_fill(c->k[q], n, scale);
        be_fill(c->v[q], n, 1);
        for (uint32_t p = 0; p < c->context[q]; p++) {
            put_token(c, q, p, c->k[q], true);
            put_token(c, q, p, c->v[q], false);
        }
    }
}

static inline void make_scene(struct scene *c, const struct shape *s, struct features f,
                              float scale) {
    make_scene_of(c, s, f, scale, 0);
}

static void free_scene(struct scene *c) {
    for (uint32_t q = 0; q < c->n_seqs; q++) {
        free(c->k[q]);
        free(c->v[q]);
    }
    free(c->k_pool);
    free(c->v_pool);
}

static void upload_pools(backend *be, struct scene *c) {
    c->k_buf = be_bytes(be, c->k_pool, c->pool_bytes);
    c->v_buf = be_bytes(be, c->v_pool, c->pool_bytes);
}

static void free_pools(struct scene *c) {
    backend_buf_free(c->k_buf);
    backend_buf_free(c->v_buf);
}

static void add_seq(struct rows *r, uint32_t seq, const int32_t *pos, uint32_t n, const float *q,
                    uint64_t width) {
    r->seq_of[r->n_seqs++] = (int32_t)seq;
    for (uint32_t i = 0; i < n; i++, r->n++) {
        r->seq[r->n] = seq;
        r->pos[r->n] = pos[i];
        r->q[r->n] = q + i * width;
    }
    r->row_start[r->n_seqs] = (int32_t)r->n;
}

static uint32_t first_key(const struct scene *c, int32_t pos) {
    uint32_t n = (uint32_t)pos + 1;
    if (c->f.chunked) return (uint32_t)pos / c->f.window * c->f.window;
    return c->f.window && n > c->f.window ? n - c->f.window : 0;
}

/* The last key of a row at pos whose sequence ends with position `end`. */
static uint32_t last_key(const struct scene *c, int32_t pos, int32_t end) {
    if (!c->f.both_ways) return (uint32_t)pos;
    return c->f.window && (uint32_t)(end - pos) >= c->f.window ? (uint32_t)pos + c->f.window - 1
                                                               : (uint32_t)end;
}

/* The largest position of the rows of seq in r. */
static int32_t end_of(const struct rows *r, uint32_t seq) {
    int32_t end = 0;
    for (uint32_t i = 0; i < r->n; i++)
        if (r->seq[i] == seq && r->pos[i] > end) end = r->pos[i];
    return end;
}

/* The block table of sequence i of r; entries that no row sees are invalid. */
static void fill_table(const struct scene *c, const struct rows *r, uint32_t i, int32_t *table) {
    uint32_t first = UINT32_MAX;
    for (int32_t row = r->row_start[i]; row < r->row_start[i + 1]; row++)
        if (first_key(c, r->pos[row]) < first) first = first_key(c, r->pos[row]);
    for (uint32_t b = 0; b < c->stride; b++)
        table[b] =
            b < first / c->s.block_tokens ? -1 : c->tables[(uint32_t)r->seq_of[i] * c->stride + b];
}

/* Runs the op for r; out (n, n_heads, head_dim). */
static void attend(backend *be, const struct scene *c, const struct rows *r, float *out) {
    uint64_t width = (uint64_t)c->s.n_heads * c->s.head_dim;
    float *q = be_new(r->n * width, sizeof *q);
    int32_t tables[MAX_SEQS * LONG_STRIDE] = {0};
    int32_t last = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        memcpy(q + i * width, r->q[i], width * sizeof *q);
        if (r->pos[i] > last) last = r->pos[i];
    }
    for (uint32_t i = 0; i < r->n_seqs; i++)
        fill_table(c, r, i, tables + i * c->stride);
    backend_weight *sinks = c->f.sinks ? be_weight(be, QTYPE_F32, 1, c->s.n_heads, c->sinks) : NULL;
    backend_weight *slopes =
        c->f.slopes ? be_weight(be, QTYPE_F32, 1, c->s.n_heads, c->slopes) : NULL;
    struct op_paged_attention op = {.q = be_f32(be, q, r->n * width),
                                    .pos = be_i32(be, r->pos, r->n),
                                    .row_start = be_i32(be, r->row_start, r->n_seqs + 1),
                                    .tables = be_i32(be, tables, (uint64_t)r->n_seqs * c->stride),
                                    .n_rows = r->n,
                                    .n_seqs = r->n_seqs,
                                    .n_heads = c->s.n_heads,
                                    .table_stride = c->stride,
                                    /* known, or as long as the tables */
                                    .max_context = r->n % 2 ? 0 : (uint32_t)last + 1,
                                    .window = c->f.window,
                                    .both_ways = c->f.both_ways,
                                    .chunked = c->f.chunked,
                                    .scale = 1 / sqrtf((float)c->s.head_dim),
                                    .softcap = c->f.softcap,
                                    .sinks = sinks,
                                    .slopes = slopes,
                                    .kv = kv_of(&c->s, N_BLOCKS, c->k_buf, c->v_buf),
                                    .out = be_f32(be, NULL, r->n * width)};
    CHECK(backend_paged_attention(be, &op) == 0);
    be_get(be, op.out, out, r->n * width);
    const backend_buf *all[] = {op.q, op.pos, op.row_start, op.tables, op.out};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        backend_buf_free((backend_buf *)all[i]);
    backend_weight_free(sinks);
    backend_weight_free(slopes);
    free(q);
}

/* Softmax(q K^T) V of one query head in float64, with the scene's features. end: end_of. */
static void reference(const struct scene *c, uint32_t seq, int32_t pos, int32_t end, uint32_t head,
                      const float *q, double *out) {
    const int32_t last = (int32_t)last_key(c, pos, end);
    uint32_t kv_head = head / (c->s.n_heads / c->s.n_kv_heads), dim = c->s.head_dim;
    uint64_t width = (uint64_t)c->s.n_kv_heads * dim, at = (uint64_t)kv_head * dim;
    double score[LONG_CONTEXT], max = c->f.sinks ? c->sinks[head] : -INFINITY, sum = 0;
    double scale = 1 / sqrtf((float)dim), cap = c->f.softcap;
    for (int32_t p = (int32_t)first_key(c, pos); p <= last; p++) {
        score[p] = 0;
        for (uint32_t d = 0; d < dim; d++)
            score[p] += (double)q[d] * c->k[seq][(uint64_t)p * width + at + d];
        score[p] *= scale;
        if (cap != 0) score[p] = cap * tanh(score[p] / cap);
        if (c->f.slopes) score[p] -= (double)c->slopes[head] * abs(pos - p);
        max = fmax(max, score[p]);
    }
    for (uint32_t d = 0; d < dim; d++)
        out[d] = 0;
    if (c->f.sinks) sum = exp(c->sinks[head] - max);
    for (int32_t p = (int32_t)first_key(c, pos); p <= last; p++) {
        double e = exp(score[p] - max);
        sum += e;
        for (uint32_t d = 0; d < dim; d++)
            out[d] += e * c->v[seq][(uint64_t)p * width + at + d];
    }
    for (uint32_t d = 0; d < dim; d++)
        out[d] /= sum;
}

/* The largest error of out (r->n, n_heads, head_dim) as a part of atol + rtol * |want|. */
static inline double worst_error(const struct scene *c, const struct rows *r, const float *out,
                                 double atol, double rtol) {
    uint64_t width = (uint64_t)c->s.n_heads * c->s.head_dim;
    double want[MAX_HEAD_DIM], worst = 0;
    for (uint32_t i = 0; i < r->n; i++)
        for (uint32_t h = 0; h < c->s.n_heads; h++) {
            reference(c, r->seq[i], r->pos[i], end_of(r, r->seq[i]), h, r->q[i] + h * c->s.head_dim,
                      want);
            for (uint32_t d = 0; d < c->s.head_dim; d++) {
                double error = fabs(out[i * width + h * c->s.head_dim + d] - want[d]) /
                               (atol + rtol * fabs(want[d]));
                if (!(error <= worst)) worst = error;
            }
        }
    return worst;
}

static uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Rows of every sequence: one decode row, or a chunk of the prompt that ends anywhere. */
static inline void random_rows(const struct scene *c, const float *q, struct rows *r) {
    uint64_t width = (uint64_t)c->s.n_heads * c->s.head_dim;
    memset(r, 0, sizeof *r);
    for (uint32_t s = 0; s < c->n_seqs; s++) {
        int32_t pos[48];
        uint32_t n = be_rand() & 1 ? 1 : 1 + be_below(min_u32(c->context[s], 47));
        uint32_t end = n + be_below(c->context[s] - n + 1);
        for (uint32_t i = 0; i < n; i++)
            pos[i] = (int32_t)(end - n + i);
        add_seq(r, s, pos, n, q + r->n * width, width);
    }
}

/* Number n of the combinations: windows shorter and longer than blocks, spans and chunks of keys,
 * and than the context; caps that change every score, and caps that change few; slopes without
 * caps. */
static inline struct features features_of(int n) {
    static const uint32_t windows[] = {1, 5, 64, 255, 256, 257, 5000};
    static const float caps[] = {0, 50, 2.5f};
    return (struct features){.window = n % 4 ? windows[n % 7] : 0,
                             .softcap = caps[n % 3],
                             .sinks = n / 3 % 2,
                             .chunked = n % 4 == 3,
                             .slopes = n % 3 == 0 && n / 6 % 2 == 0};
}

#endif
