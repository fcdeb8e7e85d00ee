/* attention_avx2.c - paged attention with AVX2, FMA and F16C; head_dim and block_tokens are
 * multiples of 8.
 *
 * As the generic kernel: blocks from position 0 on, online softmax, so that a query's result
 * depends on its own position and keys alone. Pure function over its tile; any thread. */
#include "core/backend/cpu/avx2_int.h"

#include <math.h>
#include <string.h>

enum { LANES = 8, V_LANES = 64 }; /* V_LANES: values accumulated in registers at a time */

/* Block of K or V of one head, rows below n_keys: (block_tokens, head_dim) f32, in place or
 * converted into tile. */
ALWAYS_INLINE const float *load_block(const struct cpu_attn_job *j, const void *pool_base,
                                      int32_t block, uint32_t n_keys, float *tile) {
    uint64_t at = (uint64_t)block * j->block_stride, n = (uint64_t)n_keys * j->head_dim;
    if (j->kv_type == QTYPE_F32) return (const float *)pool_base + at;
    const uint16_t *src = (const uint16_t *)pool_base + at;
    for (uint64_t i = 0; i < n; i += LANES)
        _mm256_store_ps(tile + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(src + i))));
    return tile;
}

/* Lane i = sum of the lanes of v[i]. */
ALWAYS_INLINE __m256 sum_each(const __m256 v[LANES]) {
    __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

/* q (head_dim) by eight keys (8, head_dim). */
ALWAYS_INLINE __m256 eight_scores(const float *q, const float *k, uint32_t head_dim) {
    __m256 dot[LANES];
    UNROLL
    for (int i = 0; i < LANES; i++)
        dot[i] = _mm256_setzero_ps();
    for (uint32_t d = 0; d < head_dim; d += LANES) {
        __m256 qv = _mm256_loadu_ps(q + d);
        UNROLL
        for (int i = 0; i < LANES; i++)
            dot[i] = _mm256_fmadd_ps(qv, _mm256_loadu_ps(k + (uint64_t)i * head_dim + d), dot[i]);
    }
    return sum_each(dot);
}

/* acc (n) = acc * keep + sum over keys of p[key] * v[key] for n (a constant) values. */
ALWAYS_INLINE void add_values(float *acc, float keep, const float *p, const float *v,
                              uint32_t n_keys, uint32_t head_dim, uint32_t n) {
    __m256 sum[V_LANES / LANES];
    UNROLL
    for (uint32_t i = 0; i < n / LANES; i++)
        sum[i] = _mm256_mul_ps(_mm256_load_ps(acc + i * LANES), _mm256_set1_ps(keep));
    for (uint32_t key = 0; key < n_keys; key++) {
        __m256 weight = _mm256_broadcast_ss(p + key);
        UNROLL
        for (uint32_t i = 0; i < n / LANES; i++)
            sum[i] = _mm256_fmadd_ps(
                weight, _mm256_loadu_ps(v + (uint64_t)key * head_dim + i * LANES), sum[i]);
    }
    UNROLL
    for (uint32_t i = 0; i < n / LANES; i++)
        _mm256_store_ps(acc + i * LANES, sum[i]);
}

struct block_keys {
    const float *k, *v; /* (block_tokens, head_dim) */
    uint32_t n;         /* that the query sees */
};

/* Folds a block's keys into a query's running maximum, sum and accumulator. Scores of keys behind
 * the query's position are whatever the block held before: they become -inf before any use. */
static void fold_block(const struct cpu_attn_job *j, uint32_t query, const float *q,
                       const struct block_keys *keys) {
    struct cpu_attn_tile *t = j->tile;
    float p[CPU_MAX_BLOCK_TOKENS] __attribute__((aligned(32)));
    float *acc = t->acc + (uint64_t)query * j->head_dim;
    __m256 max = _mm256_set1_ps(t->max[query]), sum = _mm256_setzero_ps();
    uint32_t d = 0;
    for (uint32_t i = 0; i < keys->n; i += LANES) {
        __m256 s = eight_scores(q, keys->k + (uint64_t)i * j->head_dim, j->head_dim);
        __m256 seen = _mm256_castsi256_ps(lanes_below(keys->n - i));
        s = _mm256_mul_ps(s, _mm256_set1_ps(j->scale));
        s = _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), s, seen);
        _mm256_store_ps(p + i, s);
        max = _mm256_max_ps(max, s);
    }
    max = _mm256_set1_ps(max_lanes(max));
    for (uint32_t i = 0; i < keys->n; i += LANES) {
        __m256 e = exp_ps(_mm256_sub_ps(_mm256_load_ps(p + i), max));
        _mm256_store_ps(p + i, e);
        sum = _mm256_add_ps(sum, e);
    }
    float keep = _mm256_cvtss_f32(exp_ps(_mm256_sub_ps(_mm256_set1_ps(t->max[query]), max)));
    t->max[query] = _mm256_cvtss_f32(max);
    t->sum[query] = t->sum[query] * keep + sum_lanes(sum);
    for (; d + V_LANES <= j->head_dim; d += V_LANES)
        add_values(acc + d, keep, p, keys->v + d, keys->n, j->head_dim, V_LANES);
    for (; d < j->head_dim; d += LANES)
        add_values(acc + d, keep, p, keys->v + d, keys->n, j->head_dim, LANES);
}

static void finish(const struct cpu_attn_job *j, uint32_t query) {
    const struct cpu_attn_tile *t = j->tile;
    const float *acc = t->acc + (uint64_t)query * j->head_dim;
    float *out =
        j->out + query / j->n_group * j->q_stride + (uint64_t)(query % j->n_group) * j->head_dim;
    __m256 inverse = _mm256_set1_ps(1 / t->sum[query]);
    for (uint32_t d = 0; d < j->head_dim; d += LANES)
        _mm256_storeu_ps(out + d, _mm256_mul_ps(_mm256_load_ps(acc + d), inverse));
}

void avx2_attention(const struct cpu_attn_job *j) {
    struct cpu_attn_tile *t = j->tile;
    uint32_t n_queries = j->n_rows * j->n_group, n_keys = 0;
    for (uint32_t i = 0; i < n_queries; i++) {
        t->max[i] = -INFINITY;
        t->sum[i] = 0;
    }
    memset(t->acc, 0, (uint64_t)n_queries * j->head_dim * sizeof *t->acc);
    for (uint32_t r = 0; r < j->n_rows; r++)
        if ((uint32_t)j->pos[r] + 1 > n_keys) n_keys = (uint32_t)j->pos[r] + 1;
    for (uint32_t first = 0, b = 0; first < n_keys; first += j->block_tokens, b++) {
        uint32_t left = n_keys - first < j->block_tokens ? n_keys - first : j->block_tokens;
        struct block_keys keys = {.k = load_block(j, j->k, j->table[b], left, t->k),
                                  .v = load_block(j, j->v, j->table[b], left, t->v)};
        for (uint32_t r = 0; r < j->n_rows; r++) {
            if ((uint32_t)j->pos[r] < first) continue;
            keys.n = (uint32_t)j->pos[r] + 1 - first;
            if (keys.n > j->block_tokens) keys.n = j->block_tokens;
            for (uint32_t h = 0; h < j->n_group; h++)
                fold_block(j, r * j->n_group + h,
                           j->q + r * j->q_stride + (uint64_t)h * j->head_dim, &keys);
        }
    }
    for (uint32_t i = 0; i < n_queries; i++)
        finish(j, i);
}
