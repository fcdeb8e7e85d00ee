/* attention_tile.h - the template of paged attention for vectors of any width. A file that includes
 * it defines first:
 *   vf, LANES (4 to CPU_ATTN_LANES)      a vector of floats
 *   GROUP                                queries at once, a power of two <= CPU_ATTN_GROUP
 *   vf_load, vf_store, vf_set1, vf_add, vf_sub, vf_mul, vf_div, vf_fma (a * b + c), vf_max
 *   vf_load_f16, vf_load_bf16, vf_load_i8    LANES values from memory, of any alignment
 *   vf_set1_f16                          one value from memory in all lanes
 *   vf_prefetch                          a hint: this address is read soon
 *   vf_zip_low, vf_zip_high (a, b)       a0 b0 a1 b1 ..., of the lower and of the upper halves
 *   vf_first, vf_without_first (v, n)    lanes from n on, or below n, become -inf; 0 < n < LANES
 *   vf_max_lanes, vf_sum_lanes           in a fixed order
 *   vf_exp2                              for x <= 0; below -126: 0; NaN for NaN
 *
 * Both products, scores = Q K^T and values = P V, use one register tile: GROUP queries by two
 * vectors of adjacent keys (K is stored dimension-major) or of adjacent dimensions of V. Every
 * output is one chain of fused multiply-adds in ascending order, so the result does not depend on
 * the tile's shape, and no sum crosses lanes.
 *
 * Few queries (decode) read the pool directly. For more queries, and where V is the head of K, a
 * span of K and V is first decoded to f32, once for all of them. Pure functions over their tile;
 * any thread. */
#include "core/backend/cpu/attention/attn.h"
#include "core/backend/cpu/cpu_int.h"

#include <math.h>
#include <string.h>

#define LOG2_E 1.44269504088896340736f

_Static_assert(CPU_ATTN_SPAN % CPU_MAX_BLOCK_TOKENS == 0, "blocks do not cross spans");
_Static_assert(CPU_ATTN_CHUNK % CPU_ATTN_SPAN == 0, "spans do not cross chunks");

enum { MAX_VECTORS = CPU_ATTN_SPAN / LANES, SCALE_ELEMS = 32 };

/* Rows of a matrix in memory as the register tile reads them: two vectors per row. If only one is
 * left, the second repeats it and its result is not read. */
struct operand {
    const void *at[2];        /* row 0 */
    const uint16_t *scale[2]; /* Q8_0: of row 0 */
    const void *ahead[2];     /* to prefetch: as many bytes as each vector's rows */
    uint32_t n_rows;
};

/* K and V of up to SPAN keys. */
struct span {
    uint32_t first, n_keys;
    const void *k[MAX_VECTORS]; /* [i]: vector i of keys, dimension 0 */
    const uint16_t *k_scale[MAX_VECTORS];
    const void *k_next[MAX_VECTORS]; /* of the next span */
    uint64_t k_stride;               /* values from dimension to dimension */
    const void *v[MAX_VECTORS];      /* [i]: run i, of v_keys keys */
    const uint16_t *v_scale[MAX_VECTORS];
    uint64_t v_stride; /* values from key to key */
    uint32_t v_keys;
};

enum side { KEYS, VALUES };

static inline uint64_t elem_bytes(int type) {
    return type == QTYPE_F32 ? sizeof(float) : type == QTYPE_Q8_0 ? 1 : sizeof(uint16_t);
}

static inline const void *elem_at(int type, const void *p, uint64_t i) {
    return (const char *)p + i * elem_bytes(type);
}

ALWAYS_INLINE vf load_values(int type, const void *p) {
    if (type == QTYPE_F32) return vf_load(p);
    if (type == QTYPE_F16) return vf_load_f16(p);
    if (type == QTYPE_BF16) return vf_load_bf16(p);
    return vf_load_i8(p);
}

/* Prefetch for few queries, which read each value from memory once: while K of some keys is
 * multiplied, fetches their V, then the next span's K. */
ALWAYS_INLINE void fetch_ahead(int type, const char **ahead) {
    if (type == QTYPE_F32) return; /* mostly the tile, decoded */
    vf_prefetch(*ahead);
    *ahead += LANES * elem_bytes(type);
}

struct product {
    const float *a; /* (n_q, a_stride) */
    uint64_t a_stride;
    const struct operand *b; /* (n_b), concatenated */
    uint32_t n_b;
    uint64_t row_stride;   /* values from row to row */
    uint64_t scale_stride; /* scales from row to row (V), from 32 rows to the next 32 (K) */
    float *c;              /* (n_q, c_stride) */
    uint64_t c_stride;
};

/* c (n_q, two vectors) = (KEYS) or += (VALUES) a (n_q, rows of b) times b (rows, two vectors).
 * type, side and n_q are constants where this is inlined. */
ALWAYS_INLINE void multiply_vectors(int type, enum side side, uint32_t n_q,
                                    const struct product *p) {
    vf sum[GROUP * 2], x[2], scale[2] = {vf_set1(1), vf_set1(1)};
    const bool k_scales = type == QTYPE_Q8_0 && side == KEYS;
    const bool v_scales = type == QTYPE_Q8_0 && side == VALUES;
    const uint64_t row_bytes = p->row_stride * elem_bytes(type);
    const float *a = p->a;
    UNROLL
    for (uint32_t i = 0; i < n_q * 2; i++)
        sum[i] = side == KEYS ? vf_set1(0) : vf_load(p->c + i / 2 * p->c_stride + i % 2 * LANES);
    for (const struct operand *b = p->b; b < p->b + p->n_b; b++) {
        const char *at[2] = {b->at[0], b->at[1]}, *ahead[2] = {b->ahead[0], b->ahead[1]};
        const uint16_t *next_scale[2] = {b->scale[0], b->scale[1]};
        const float *end = a + b->n_rows;
        while (a < end) {
            const float *stop = k_scales ? a + SCALE_ELEMS : end;
            UNROLL
            for (uint32_t v = 0; k_scales && v < 2; v++) {
                scale[v] = vf_load_f16(next_scale[v]);
                next_scale[v] += p->scale_stride;
            }
            for (; a < stop; a++) {
                if (v_scales) {
                    scale[0] = scale[1] = vf_set1_f16(next_scale[0]);
                    next_scale[0] += p->scale_stride;
                }
                UNROLL
                for (uint32_t v = 0; v < 2; v++) {
                    x[v] = load_values(type, at[v]);
                    if (type == QTYPE_Q8_0) x[v] = vf_mul(x[v], scale[v]);
                    at[v] += row_bytes;
                    fetch_ahead(type, &ahead[v]);
                }
                UNROLL
                for (uint32_t q = 0; q < n_q; q++) {
                    vf w = vf_set1(a[q * p->a_stride]);
                    UNROLL
                    for (uint32_t v = 0; v < 2; v++)
                        sum[q * 2 + v] = vf_fma(w, x[v], sum[q * 2 + v]);
                }
            }
        }
    }
    UNROLL
    for (uint32_t i = 0; i < n_q * 2; i++)
        vf_store(p->c + i / 2 * p->c_stride + i % 2 * LANES, sum[i]);
}

/* Keys from .. end - 1 of a span, relative to its first; end 0: none. */
struct keys {
    uint32_t from, end;
};

/* score (n_q, SPAN) = q (n_q, head_dim) times these keys of the span, rounded out to two vectors;
 * the extra scores are masked later. */
ALWAYS_INLINE void make_scores(int type, uint32_t n_q, const struct cpu_attn_job *j, const float *q,
                               const struct span *s, struct keys keys) {
    for (uint32_t i = keys.from / (2 * LANES) * 2; i * LANES < keys.end; i += 2) {
        struct operand b = {.n_rows = j->head_dim};
        for (uint32_t v = 0; v < 2; v++) {
            uint32_t k = (i + v) * LANES < keys.end ? i + v : i, key = k * LANES;
            b.at[v] = s->k[k], b.scale[v] = s->k_scale[k];
            b.ahead[v] = elem_at(type, s->v[key / s->v_keys], key % s->v_keys * s->v_stride);
        }
        multiply_vectors(type, KEYS, n_q,
                         &(struct product){.a = q,
                                           .a_stride = CPU_Q_STRIDE,
                                           .b = &b,
                                           .n_b = 1,
                                           .row_stride = s->k_stride,
                                           .scale_stride = s->k_stride,
                                           .c = j->tile->score + i * LANES,
                                           .c_stride = CPU_ATTN_SPAN});
    }
}

/* acc (n_q, acc_stride) += p (n_q, SPAN) times V of these keys of the span. */
ALWAYS_INLINE void add_values(int type, uint32_t n_q, const struct cpu_attn_job *j, float *acc,
                              const struct span *s, struct keys keys) {
    uint32_t n = (j->v_dim + LANES - 1) / LANES;
    uint32_t first = keys.from / s->v_keys, skip = keys.from % s->v_keys; /* run of V; keys in it */
    struct operand b[MAX_VECTORS];
    for (uint32_t d = 0; d < n; d += 2) {
        uint32_t n_b = 0;
        for (uint32_t key = first * s->v_keys; key < keys.end; key += s->v_keys, n_b++) {
            uint32_t run = first + n_b, row = n_b ? 0 : skip;
            b[n_b].n_rows = (keys.end - key < s->v_keys ? keys.end - key : s->v_keys) - row;
            b[n_b].scale[0] =
                s->v_scale[run] + (row * j->v_dim + (uint64_t)d * LANES) / SCALE_ELEMS;
            for (uint32_t v = 0; v < 2; v++) {
                uint64_t at = (d + v < n ? d + v : d) * LANES;
                b[n_b].at[v] = elem_at(type, s->v[run], row * s->v_stride + at);
                b[n_b].ahead[v] = elem_at(type, s->k_next[key / LANES], at * s->v_keys);
            }
        }
        multiply_vectors(type, VALUES, n_q,
                         &(struct product){.a = j->tile->score + keys.from,
                                           .a_stride = CPU_ATTN_SPAN,
                                           .b = b,
                                           .n_b = n_b,
                                           .row_stride = s->v_stride,
                                           .scale_stride = j->v_dim / SCALE_ELEMS,
                                           .c = acc + d * LANES,
                                           .c_stride = cpu_attn_acc_stride(j->v_dim)});
    }
}

/* Turns the scores x of these keys (score / softcap, see load_queries) into log2(e) * softcap *
 * tanh x. tanh |x| = (1 - e) / (1 + e), e = exp(-2 |x|), which has few digits for tiny x; as it
 * never exceeds |x|, x is clamped to [-tanh |x|, tanh |x|]. */
static void cap_scores(const struct cpu_attn_job *j, uint32_t n_q, struct keys keys) {
    const vf one = vf_set1(1), zero = vf_set1(0), cap = vf_set1(j->softcap * LOG2_E);
    for (uint32_t q = 0; q < n_q; q++)
        for (uint32_t i = keys.from / LANES; i * LANES < keys.end; i++) {
            float *score = j->tile->score + q * CPU_ATTN_SPAN + i * LANES;
            vf x = vf_load(score), minus = vf_sub(zero, x);
            vf e = vf_exp2(vf_mul(vf_max(x, minus), vf_set1(-2 * LOG2_E)));
            vf low = vf_div(vf_sub(e, one), vf_add(e, one)); /* -tanh |x| */
            x = vf_max(low, vf_sub(zero, vf_max(low, minus)));
            vf_store(score, vf_mul(x, cap));
        }
}

/* Position of query i of the tile; padding repeats the last. */
static int32_t query_pos(const struct cpu_attn_job *j, uint32_t i) {
    uint32_t row = i / j->n_group;
    return j->pos[row < j->n_rows ? row : j->n_rows - 1];
}

/* ALiBi: subtracts slope * distance, in the scores' unit, of queries from `query` of the tile on.
 * first: position of the span. */
static void lean_scores(const struct cpu_attn_job *j, uint32_t query, uint32_t n_q, uint32_t first,
                        struct keys keys) {
    float lanes[LANES];
    for (uint32_t i = 0; i < LANES; i++)
        lanes[i] = (float)i;
    for (uint32_t q = 0; q < n_q; q++) {
        const vf by = vf_set1(-j->slopes[(query + q) % j->n_group] * LOG2_E);
        const int64_t from = (int64_t)first - query_pos(j, query + q);
        for (uint32_t i = keys.from / LANES; i * LANES < keys.end; i++) {
            float *score = j->tile->score + q * CPU_ATTN_SPAN + i * LANES;
            vf x = vf_add(vf_load(lanes), vf_set1((float)(from + i * LANES)));
            x = vf_max(x, vf_sub(vf_set1(0), x));
            vf_store(score, vf_fma(by, x, vf_load(score)));
        }
    }
}

/* A query's state within a chunk. */
struct query {
    float *max, *sum; /* sum (LANES) */
    float *acc;       /* (width) */
    uint32_t width;
};

/* Turns a query's scores into probabilities relative to its running maximum, and rescales its sum
 * and accumulator if the maximum grows. seen: keys that the query sees; all: keys that add_values
 * reads; those that the query does not see get probability 0. */
static void fold_scores(float *score, struct keys seen, struct keys all, const struct query *to) {
    vf top = vf_set1(*to->max), total = vf_load(to->sum);
    uint32_t i = all.from / LANES, first = seen.from / LANES;
    if (seen.end % LANES)
        vf_store(score + seen.end / LANES * LANES,
                 vf_first(vf_load(score + seen.end / LANES * LANES), seen.end % LANES));
    if (seen.from % LANES)
        vf_store(score + first * LANES,
                 vf_without_first(vf_load(score + first * LANES), seen.from % LANES));
    for (uint32_t k = first; k * LANES < seen.end; k++)
        top = vf_max(top, vf_load(score + k * LANES));
    float new_max = vf_max_lanes(top);
    if (new_max != *to->max) {
        vf keep = vf_exp2(vf_sub(vf_set1(*to->max), vf_set1(new_max)));
        total = vf_mul(total, keep);
        for (uint32_t d = 0; d < to->width; d += LANES)
            vf_store(to->acc + d, vf_mul(vf_load(to->acc + d), keep));
        *to->max = new_max;
    }
    top = vf_set1(new_max);
    for (; i < first; i++)
        vf_store(score + i * LANES, vf_set1(0));
    for (; i * LANES < seen.end; i++) {
        vf e = vf_exp2(vf_sub(vf_load(score + i * LANES), top));
        vf_store(score + i * LANES, e);
        total = vf_add(total, e);
    }
    for (; i * LANES < all.end; i++)
        vf_store(score + i * LANES, vf_set1(0));
    vf_store(to->sum, total);
}

/* Keys of the span that query i of the tile sees; windowed: is there a window? */
ALWAYS_INLINE struct keys seen_by(bool windowed, const struct cpu_attn_job *j, const struct span *s,
                                  uint32_t i) {
    uint32_t pos = (uint32_t)query_pos(j, i), end = s->first + s->n_keys;
    uint32_t from = windowed ? cpu_attn_first_key(pos, j->window, j->chunked) : 0;
    uint32_t last = cpu_attn_last_key(pos, windowed ? j->window : 0, j->seq_end);
    if (last < s->first || from >= end) return (struct keys){0};
    return (struct keys){from > s->first ? from - s->first : 0,
                         (last < end ? last + 1 : end) - s->first};
}

/* A span and the group of queries, from `query` of the tile on, that attend to it. */
struct fold {
    const struct cpu_attn_job *job;
    const struct span *span;
    uint32_t query;
    const struct cpu_attn_partial *to;
};

/* Adds the span to the online softmax of n_q queries. */
ALWAYS_INLINE void fold_span(int type, bool windowed, uint32_t n_q, const struct fold *f) {
    const struct cpu_attn_job *j = f->job;
    uint32_t width = cpu_attn_acc_stride(j->v_dim);
    struct keys seen[GROUP], all = {windowed ? CPU_ATTN_SPAN : 0, 0};
    for (uint32_t q = 0; q < n_q; q++) {
        seen[q] = seen_by(windowed, j, f->span, f->query + q);
        if (seen[q].end > all.end) all.end = seen[q].end;
        if (windowed && seen[q].end && seen[q].from < all.from) all.from = seen[q].from;
    }
    if (!all.end) return;
    make_scores(type, n_q, j, j->tile->q + (uint64_t)f->query * CPU_Q_STRIDE, f->span, all);
    if (j->softcap != 0) cap_scores(j, n_q, all);
    if (j->slopes) lean_scores(j, f->query, n_q, f->span->first, all);
    for (uint32_t q = 0; q < n_q; q++) {
        uint64_t i = f->query + q;
        fold_scores(j->tile->score + q * CPU_ATTN_SPAN, seen[q], all,
                    &(struct query){.max = f->to->max + i,
                                    .sum = j->tile->sum + i * LANES,
                                    .acc = f->to->acc + i * width,
                                    .width = width});
    }
    add_values(type, n_q, j, f->to->acc + (uint64_t)f->query * width, f->span, all);
}

/* Rows become columns: each round zips row i with row i + LANES / 2. */
ALWAYS_INLINE void turn_square(vf *rows) {
    vf next[LANES];
    UNROLL
    for (uint32_t done = 1; done < LANES; done *= 2) {
        UNROLL
        for (uint32_t i = 0; i < LANES / 2; i++) {
            next[2 * i] = vf_zip_low(rows[i], rows[i + LANES / 2]);
            next[2 * i + 1] = vf_zip_high(rows[i], rows[i + LANES / 2]);
        }
        UNROLL
        for (uint32_t i = 0; i < LANES; i++)
            rows[i] = next[i];
    }
}

/* V of the span, which is the head of its decoded K, by squares of LANES dimensions and keys.
 * Writes also what lies between n_keys and a multiple of LANES. */
static void turn_head(const struct cpu_attn_job *j, uint32_t n_keys) {
    const uint32_t dim = j->v_dim, width = cpu_attn_acc_stride(dim);
    vf square[LANES];
    for (uint32_t d = 0; d < dim; d += LANES)
        for (uint32_t key = 0; key < n_keys; key += LANES) {
            const float *k = j->tile->k + d * CPU_ATTN_SPAN + key;
            float *v = j->tile->v + (uint64_t)key * width + d;
            UNROLL
            for (uint32_t i = 0; i < LANES; i++)
                square[i] = d + i < dim ? vf_load(k + i * CPU_ATTN_SPAN) : vf_set1(0);
            turn_square(square);
            UNROLL
            for (uint32_t i = 0; i < LANES; i++)
                vf_store(v + (uint64_t)i * width, square[i]);
        }
}

/* Decodes the span's K and V into the tile. */
ALWAYS_INLINE void decode_span(int type, const struct cpu_attn_job *j, const struct span *s) {
    uint32_t dim = j->v_dim, width = cpu_attn_acc_stride(dim);
    for (uint32_t i = 0; i * LANES < s->n_keys; i++)
        for (uint32_t d = 0; d < j->head_dim; d++) {
            vf x = load_values(type, elem_at(type, s->k[i], d * s->k_stride));
            if (type == QTYPE_Q8_0)
                x = vf_mul(x, vf_load_f16(s->k_scale[i] + d / SCALE_ELEMS * s->k_stride));
            vf_store(j->tile->k + d * CPU_ATTN_SPAN + i * LANES, x);
        }
    if (!j->v) {
        turn_head(j, s->n_keys);
        return;
    }
    for (uint32_t key = 0; key < s->n_keys; key++) {
        uint32_t row = key % s->v_keys;
        const void *from = elem_at(type, s->v[key / s->v_keys], row * s->v_stride);
        float *to = j->tile->v + (uint64_t)key * width;
        uint32_t d = 0;
        for (; d + LANES <= dim; d += LANES) {
            vf x = load_values(type, elem_at(type, from, d));
            if (type == QTYPE_Q8_0)
                x = vf_mul(
                    x, vf_set1_f16(s->v_scale[key / s->v_keys] + (row * dim + d) / SCALE_ELEMS));
            vf_store(to + d, x);
        }
        if (d < dim) { /* never Q8_0: its dimensions are multiples of LANES */
            char rest[LANES * sizeof(float)] = {0};
            memcpy(rest, elem_at(type, from, d), (dim - d) * elem_bytes(type));
            vf_store(to + d, load_values(type, rest));
        }
    }
}

/* Kernels of a K/V type: with or without a window, for GROUP or FEW queries. */
struct kernels {
    void (*fold[2][2])(const struct fold *f);
    void (*decode)(const struct cpu_attn_job *j, const struct span *s);
};

#define INSTANCE(name, type, windowed, n_q)                                                        \
    static void name##_##type(const struct fold *f) {                                              \
        fold_span(QTYPE_##type, windowed, n_q, f);                                                 \
    }

#define INSTANCES(type)                                                                            \
    INSTANCE(fold, type, false, GROUP)                                                             \
    INSTANCE(fold_few, type, false, CPU_ATTN_FEW)                                                  \
    INSTANCE(window, type, true, GROUP)                                                            \
    INSTANCE(window_few, type, true, CPU_ATTN_FEW)                                                 \
    static void decode_##type(const struct cpu_attn_job *j, const struct span *s) {                \
        decode_span(QTYPE_##type, j, s);                                                           \
    }

INSTANCES(F32)
INSTANCES(F16)
INSTANCES(BF16)
INSTANCES(Q8_0)

#define KERNELS(type)                                                                              \
    { {{fold_##type, fold_few_##type}, {window_##type, window_few_##type}}, decode_##type }

static const struct kernels kernels[] = {[QTYPE_F32] = KERNELS(F32),
                                         [QTYPE_F16] = KERNELS(F16),
                                         [QTYPE_BF16] = KERNELS(BF16),
                                         [QTYPE_Q8_0] = KERNELS(Q8_0)};

/* The block of position pos, clamped to the positions that the rows see. */
static uint64_t block_at(const struct cpu_attn_job *j, uint32_t pos) {
    if (pos < j->first_key) pos = j->first_key;
    if (pos >= j->end_key) pos = j->end_key - 1;
    return (uint64_t)j->table[pos / j->block_tokens] * j->block_bytes;
}

/* Finds K and V of the span that begins at position first in the pools. */
static void find_span(const struct cpu_attn_job *j, uint32_t first, uint32_t n_keys,
                      struct span *s) {
    uint32_t per_block = j->block_tokens / LANES, tokens = j->block_tokens;
    *s = (struct span){.first = first,
                       .n_keys = n_keys,
                       .k_stride = tokens,
                       .v_stride = j->v_dim,
                       .v_keys = tokens};
    for (uint32_t i = 0; i * tokens < CPU_ATTN_SPAN; i++) {
        uint32_t pos = first + i * tokens;
        uint64_t at = block_at(j, pos), at_next = block_at(j, pos + CPU_ATTN_SPAN);
        const uint16_t *k_scale = cpu_attn_scales(j->k + at, tokens, j->head_dim);
        for (uint32_t v = 0; v < per_block; v++) {
            s->k[i * per_block + v] = elem_at(j->kv_type, j->k + at, v * LANES);
            s->k_scale[i * per_block + v] = k_scale + v * LANES;
            s->k_next[i * per_block + v] = j->k + at_next;
        }
        if (!j->v) continue;
        s->v[i] = j->v + at;
        s->v_scale[i] = cpu_attn_scales(j->v + at, tokens, j->v_dim);
    }
}

/* Points the span at what decode_span wrote into the tile. */
static void find_decoded(const struct cpu_attn_job *j, struct span *s) {
    for (uint32_t i = 0; i < MAX_VECTORS; i++)
        s->k[i] = j->tile->k + i * LANES;
    s->k_stride = CPU_ATTN_SPAN;
    s->v[0] = j->tile->v;
    s->v_stride = cpu_attn_acc_stride(j->v_dim);
    s->v_keys = CPU_ATTN_SPAN;
}

static void attend_chunk(const struct cpu_attn_job *j, uint32_t chunk,
                         const struct cpu_attn_partial *to) {
    uint32_t n = cpu_attn_padded(j->n_rows * j->n_group);
    uint32_t from = chunk * CPU_ATTN_CHUNK, end = from + CPU_ATTN_CHUNK;
    bool few = n == CPU_ATTN_FEW;
    bool in_place =
        j->v && j->head_dim % LANES == 0 && (j->kv_type == QTYPE_F32 || n <= CPU_ATTN_GROUP);
    int type = in_place ? j->kv_type : QTYPE_F32;
    struct span s;
    struct fold f = {.job = j, .span = &s, .to = to};
    if (end > j->end_key) end = j->end_key;
    if (from < j->first_key) from = j->first_key / CPU_ATTN_SPAN * CPU_ATTN_SPAN;
    for (uint32_t i = 0; i < n; i++)
        to->max[i] = -INFINITY;
    memset(to->acc, 0, (uint64_t)n * cpu_attn_acc_stride(j->v_dim) * sizeof *to->acc);
    memset(j->tile->sum, 0, (uint64_t)n * LANES * sizeof *j->tile->sum);
    for (uint32_t first = from; first < end; first += CPU_ATTN_SPAN) {
        find_span(j, first, end - first < CPU_ATTN_SPAN ? end - first : CPU_ATTN_SPAN, &s);
        if (!in_place) {
            kernels[j->kv_type].decode(j, &s);
            find_decoded(j, &s);
        }
        for (f.query = 0; f.query < n; f.query += few ? CPU_ATTN_FEW : GROUP)
            kernels[type].fold[j->window != 0][few](&f);
    }
    for (uint32_t i = 0; i < n; i++)
        to->sum[i] = vf_sum_lanes(vf_load(j->tile->sum + i * LANES));
}

/* Loads q (queries, Q_STRIDE), scaled so that probabilities are powers of two of score differences;
 * with softcap, scaled so that scores come out divided by softcap. */
static void load_queries(const struct cpu_attn_job *j) {
    uint32_t n_queries = j->n_rows * j->n_group, n = cpu_attn_padded(n_queries);
    float scale = j->softcap != 0 ? j->scale / j->softcap : j->scale * LOG2_E;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t query = i < n_queries ? i : n_queries - 1;
        const float *from =
            j->q + query / j->n_group * j->q_stride + (uint64_t)(query % j->n_group) * j->head_dim;
        float *to = j->tile->q + (uint64_t)i * CPU_Q_STRIDE;
        uint32_t d = 0;
        for (; d + LANES <= j->head_dim; d += LANES)
            vf_store(to + d, vf_mul(vf_load(from + d), vf_set1(scale)));
        for (; d < j->head_dim; d++)
            to[d] = from[d] * scale;
    }
}

/* Merges query i of partial into total, which holds the chunks before it. */
static void merge_query(const struct cpu_attn_partial *total,
                        const struct cpu_attn_partial *partial, uint32_t i, uint32_t width) {
    vf old_max = vf_set1(total->max[i]), new_max = vf_set1(partial->max[i]);
    vf max = vf_max(old_max, new_max), keep, add;
    float *acc = total->acc + (uint64_t)i * width, sum[LANES];
    const float *from = partial->acc + (uint64_t)i * width;
    keep = vf_exp2(vf_sub(old_max, max)), add = vf_exp2(vf_sub(new_max, max));
    vf_store(sum, vf_fma(vf_set1(partial->sum[i]), add, vf_mul(vf_set1(total->sum[i]), keep)));
    total->sum[i] = sum[0];
    vf_store(sum, max);
    total->max[i] = sum[0];
    for (uint32_t d = 0; d < width; d += LANES)
        vf_store(acc + d, vf_fma(vf_load(from + d), add, vf_mul(vf_load(acc + d), keep)));
}

/* Writes query i, with its sink if there is one. Adding 0 turns -0 into 0, so that a sum of tiny
 * values is the same for any split. */
static void finish_query(const struct cpu_attn_partial *total, uint32_t i, uint32_t v_dim,
                         const float *sink, float *out) {
    const float *acc = total->acc + (uint64_t)i * cpu_attn_acc_stride(v_dim);
    float inverse = 1 / total->sum[i];
    uint32_t d = 0;
    if (sink) {
        vf old_max = vf_set1(total->max[i]), last = vf_set1(*sink * LOG2_E);
        vf max = vf_max(old_max, last), keep = vf_exp2(vf_sub(old_max, max));
        float factor[LANES];
        vf_store(factor,
                 vf_div(keep, vf_fma(vf_set1(total->sum[i]), keep, vf_exp2(vf_sub(last, max)))));
        inverse = factor[0];
    }
    for (; d + LANES <= v_dim; d += LANES)
        vf_store(out + d, vf_fma(vf_load(acc + d), vf_set1(inverse), vf_set1(0)));
    for (; d < v_dim; d++)
        out[d] = acc[d] * inverse + 0.0f;
}

static void attend_tile(const struct cpu_attn_job *j) {
    uint32_t n = j->n_rows * j->n_group, width = cpu_attn_acc_stride(j->v_dim);
    uint32_t chunk = j->first_key / CPU_ATTN_CHUNK;
    struct cpu_attn_partial total = cpu_attn_partial_at(j->tile->partial[0], n, j->v_dim);
    struct cpu_attn_partial partial = cpu_attn_partial_at(j->tile->partial[1], n, j->v_dim);
    load_queries(j);
    if (j->partial) {
        partial = cpu_attn_partial_at(j->partial, n, j->v_dim);
        attend_chunk(j, j->chunk, &partial);
        return;
    }
    attend_chunk(j, chunk, &total);
    while (++chunk * CPU_ATTN_CHUNK < j->end_key) {
        attend_chunk(j, chunk, &partial);
        for (uint32_t i = 0; i < n; i++)
            if (cpu_attn_sees_chunk(j, (uint32_t)query_pos(j, i), chunk))
                merge_query(&total, &partial, i, width);
    }
    for (uint32_t i = 0; i < n; i++)
        finish_query(&total, i, j->v_dim, j->sinks ? j->sinks + i % j->n_group : NULL,
                     j->out + i / j->n_group * j->out_stride +
                         (uint64_t)(i % j->n_group) * j->v_dim);
}

static void merge_partials(const struct cpu_attn_merge *m) {
    float row[CPU_MAX_HEAD_DIM], max, sum;
    uint32_t width = cpu_attn_acc_stride(m->v_dim);
    struct cpu_attn_partial total = {.max = &max, .sum = &sum, .acc = row};
    for (uint32_t c = 0; c < m->n_chunks; c++) {
        struct cpu_attn_partial all =
            cpu_attn_partial_at((float *)m->partials + c * m->stride, m->n_queries, m->v_dim);
        struct cpu_attn_partial one = {.max = all.max + m->query,
                                       .sum = all.sum + m->query,
                                       .acc = all.acc + (uint64_t)m->query * width};
        if (c == 0) {
            max = *one.max, sum = *one.sum;
            memcpy(row, one.acc, width * sizeof *row);
        } else {
            merge_query(&total, &one, 0, width);
        }
    }
    finish_query(&total, 0, m->v_dim, m->sink, m->out);
}
