/* attention_generic.c - the reference of paged attention, rotary embedding and the conversion of
 * K/V to the pools' types, in portable C. Pure functions over their tile; any thread. */
#include "core/backend/cpu/attention/attn.h"
#include "core/backend/cpu/cpu_int.h"

#include <math.h>
#include <string.h>

#define F16_MAX 65504.0f

enum { SCALE_ELEMS = 32 };

void generic_rotate(float *x, uint32_t n_heads, const struct cpu_rotation *r) {
    uint32_t half = r->n_rot / 2, step = r->interleaved ? 2 : 1, apart = r->interleaved ? 1 : half;
    for (uint32_t h = 0; h < n_heads; h++, x += r->head_dim)
        for (uint32_t i = 0; i < half; i++) {
            float *first = x + i * step, *second = first + apart;
            float u = *first, v = *second;
            *first = u * r->cosines[i] - v * r->sines[i];
            *second = u * r->sines[i] + v * r->cosines[i];
        }
}

static void encode_q8_0(const float *x, int8_t *q, uint16_t *scales, uint32_t n) {
    for (uint32_t b = 0; b < n / SCALE_ELEMS; b++, x += SCALE_ELEMS, q += SCALE_ELEMS) {
        float max = 0, zero = 0;
        for (int i = 0; i < SCALE_ELEMS; i++) {
            max = fmaxf(max, fabsf(x[i]));
            zero += 0 * x[i]; /* NaN if one is NaN or infinite */
        }
        float d = max / 127 + zero, inverse = d > 0 ? 1 / d : 0;
        scales[b] = f32_to_f16(d);
        for (int i = 0; i < SCALE_ELEMS; i++)
            q[i] = (int8_t)(d > 0 ? rintf(x[i] * inverse) : 0);
    }
}

void generic_encode_kv(int type, const float *x, void *values, uint16_t *scales, uint32_t n) {
    uint16_t *half = values;
    if (type == QTYPE_Q8_0)
        encode_q8_0(x, values, scales, n);
    else if (type != QTYPE_F16)
        qtype_encode(type, x, values, n);
    for (uint32_t i = 0; type == QTYPE_F16 && i < n; i++)
        half[i] = f32_to_f16(x[i] > F16_MAX ? F16_MAX : x[i] < -F16_MAX ? -F16_MAX : x[i]);
}

/* Decodes K (head_dim, block_tokens) or V (block_tokens, head_dim) of one block to f32. */
static void decode_run(const struct cpu_attn_job *j, const uint8_t *run, bool is_k, float *to) {
    uint32_t dim = j->head_dim, tokens = j->block_tokens;
    if (j->kv_type != QTYPE_Q8_0) {
        qtype_decode(j->kv_type, run, to, (uint64_t)tokens * dim);
        return;
    }
    const uint16_t *scales = cpu_attn_scales(run, tokens, dim);
    for (uint32_t t = 0; t < tokens; t++)
        for (uint32_t d = 0; d < dim; d++) {
            uint32_t i = is_k ? d * tokens + t : t * dim + d, group = d / SCALE_ELEMS;
            float scale =
                f16_to_f32(scales[is_k ? group * tokens + t : t * (dim / SCALE_ELEMS) + group]);
            to[i] = scale * (float)((const int8_t *)run)[i];
        }
}

/* V (block_tokens, v_dim) of a block that is the head of its K, which is in the tile. */
static void turn_head(const struct cpu_attn_job *j) {
    for (uint32_t t = 0; t < j->block_tokens; t++)
        for (uint32_t d = 0; d < j->v_dim; d++)
            j->tile->v[t * j->v_dim + d] = j->tile->k[d * j->block_tokens + t];
}

/* Tokens from .. end - 1 of a block, the first of which is at position first. */
struct tokens {
    uint32_t from, end, first;
};

/* Adds these tokens of the tile's block to query i's online softmax. */
static void fold_block(const struct cpu_attn_job *j, const float *q, uint32_t i, struct tokens seen,
                       const struct cpu_attn_partial *to) {
    const float *k = j->tile->k, *v = j->tile->v;
    float score[CPU_MAX_BLOCK_TOKENS] = {0}, max = to->max[i];
    float *acc = to->acc + (uint64_t)i * cpu_attn_acc_stride(j->v_dim);
    const float slope = j->slopes ? j->slopes[i % j->n_group] : 0;
    const int64_t pos = j->pos[i / j->n_group];
    for (uint32_t t = seen.from; t < seen.end; t++) {
        float dot = 0;
        for (uint32_t d = 0; d < j->head_dim; d++)
            dot += q[d] * k[d * j->block_tokens + t];
        score[t] = dot * j->scale;
        if (j->softcap != 0) score[t] = j->softcap * tanhf(score[t] / j->softcap);
        if (slope != 0) score[t] -= slope * fabsf((float)(pos - seen.first - t));
        max = fmaxf(max, score[t]);
    }
    float keep = expf(to->max[i] - max);
    to->max[i] = max;
    to->sum[i] *= keep;
    for (uint32_t d = 0; d < j->v_dim; d++)
        acc[d] *= keep;
    for (uint32_t t = seen.from; t < seen.end; t++) {
        float p = expf(score[t] - max);
        to->sum[i] += p;
        for (uint32_t d = 0; d < j->v_dim; d++)
            acc[d] += p * v[t * j->v_dim + d];
    }
}

static void attend_chunk(const struct cpu_attn_job *j, uint32_t chunk,
                         const struct cpu_attn_partial *to) {
    uint32_t n = j->n_rows * j->n_group, first = chunk * CPU_ATTN_CHUNK;
    uint32_t end = first + CPU_ATTN_CHUNK < j->end_key ? first + CPU_ATTN_CHUNK : j->end_key;
    if (first < j->first_key) first = j->first_key / j->block_tokens * j->block_tokens;
    for (uint32_t i = 0; i < n; i++)
        to->max[i] = -INFINITY, to->sum[i] = 0;
    memset(to->acc, 0, (uint64_t)n * cpu_attn_acc_stride(j->v_dim) * sizeof *to->acc);
    for (; first < end; first += j->block_tokens) {
        uint64_t at = (uint64_t)j->table[first / j->block_tokens] * j->block_bytes;
        decode_run(j, j->k + at, true, j->tile->k);
        if (j->v)
            decode_run(j, j->v + at, false, j->tile->v);
        else
            turn_head(j);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t row = i / j->n_group, pos = (uint32_t)j->pos[row];
            const float *q = j->q + row * j->q_stride + (uint64_t)(i % j->n_group) * j->head_dim;
            uint32_t from = cpu_attn_first_key(pos, j->window, j->chunked);
            uint32_t last = cpu_attn_last_key(pos, j->window, j->seq_end);
            if (last < first || from >= first + j->block_tokens) continue;
            struct tokens seen = {from > first ? from - first : 0, last + 1 - first, first};
            if (seen.end > j->block_tokens) seen.end = j->block_tokens;
            fold_block(j, q, i, seen, to);
        }
    }
}

/* Merges query `from` of partial into query `to` of total. */
static void merge_query(const struct cpu_attn_partial *total, uint32_t to,
                        const struct cpu_attn_partial *partial, uint32_t from, uint32_t v_dim) {
    uint64_t width = cpu_attn_acc_stride(v_dim);
    float max = fmaxf(total->max[to], partial->max[from]);
    float keep = expf(total->max[to] - max), add = expf(partial->max[from] - max);
    total->max[to] = max;
    total->sum[to] = total->sum[to] * keep + partial->sum[from] * add;
    for (uint32_t d = 0; d < v_dim; d++)
        total->acc[to * width + d] =
            total->acc[to * width + d] * keep + partial->acc[from * width + d] * add;
}

/* Writes query i, with its sink if there is one. Adding 0 turns -0 into 0, so that a sum of tiny
 * values is the same for any split. */
static void finish_query(const struct cpu_attn_partial *total, uint32_t i, uint32_t v_dim,
                         const float *sink, float *out) {
    float sum = total->sum[i], keep = 1;
    if (sink) {
        float max = fmaxf(total->max[i], *sink);
        keep = expf(total->max[i] - max);
        sum = sum * keep + expf(*sink - max);
    }
    for (uint32_t d = 0; d < v_dim; d++)
        out[d] = total->acc[(uint64_t)i * cpu_attn_acc_stride(v_dim) + d] * keep / sum + 0.0f;
}

void generic_attention(const struct cpu_attn_job *j) {
    uint32_t n = j->n_rows * j->n_group;
    if (j->partial) {
        struct cpu_attn_partial partial = cpu_attn_partial_at(j->partial, n, j->v_dim);
        attend_chunk(j, j->chunk, &partial);
        return;
    }
    struct cpu_attn_partial total = cpu_attn_partial_at(j->tile->partial[0], n, j->v_dim);
    struct cpu_attn_partial partial = cpu_attn_partial_at(j->tile->partial[1], n, j->v_dim);
    uint32_t chunk = j->first_key / CPU_ATTN_CHUNK;
    attend_chunk(j, chunk, &total);
    while (++chunk * CPU_ATTN_CHUNK < j->end_key) {
        attend_chunk(j, chunk, &partial);
        for (uint32_t i = 0; i < n; i++)
            if (cpu_attn_sees_chunk(j, (uint32_t)j->pos[i / j->n_group], chunk))
                merge_query(&total, i, &partial, i, j->v_dim);
    }
    for (uint32_t i = 0; i < n; i++)
        finish_query(&total, i, j->v_dim, j->sinks ? j->sinks + i % j->n_group : NULL,
                     j->out + i / j->n_group * j->out_stride +
                         (uint64_t)(i % j->n_group) * j->v_dim);
}

void generic_attention_merge(const struct cpu_attn_merge *m) {
    float acc[CPU_MAX_HEAD_DIM] = {0}, max = -INFINITY, sum = 0;
    struct cpu_attn_partial total = {.max = &max, .sum = &sum, .acc = acc};
    for (uint32_t c = 0; c < m->n_chunks; c++) {
        struct cpu_attn_partial partial =
            cpu_attn_partial_at((float *)m->partials + c * m->stride, m->n_queries, m->v_dim);
        merge_query(&total, 0, &partial, m->query, m->v_dim);
    }
    finish_query(&total, 0, m->v_dim, m->sink, m->out);
}
