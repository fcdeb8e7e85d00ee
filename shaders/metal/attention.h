/* attention.h - what both families of attention kernels share: the canonical order of operations,
 * by which a row gets the same bits from either family.
 *
 * Positions are cut into chunks of CHUNK tokens, counted from position 0, whatever part of them is
 * visible to the row.
 *   q' = q * q_scale, rounded. A score is a chain of fma over ascending dimensions of q' and K,
 *     starting at 0. Its unit is log2: q_scale includes scale * log2(e). With a soft-cap, q_scale
 *     is scale / softcap and the score is cap * tanh(chain), cap = softcap * log2(e). With slopes
 *     it is fma(-slope * log2(e), distance, chain).
 *   Per chunk: m = the largest visible score; the probability of a token = exp2(score - m), 0 if
 *     the token is not visible; l = the sum of the probabilities in the order of
 *     chunk_probabilities; o = the chain of fma over ascending tokens of probability and V,
 *     starting at 0.
 *   The first chunk with a visible token is used as it is. Later ones are merged into it in
 *     ascending order (merge_factors). Chunks without a visible token are skipped. The sink comes
 *     last (final_factor).
 * Tokens that are not visible are excluded by selection, never by a product: they may hold NaN or
 * infinity. The compiler finds no sum and product to fuse: each is an explicit fma or stands
 * alone. */
#ifndef INFERD_METAL_ATTENTION_H
#define INFERD_METAL_ATTENTION_H

#include "shaders/args_attention.h"
#include "shaders/metal/kv.h"

/* Function constants: enum margs_attention_const (shaders/args_attention.h). */
constant uint KV_TYPE [[function_constant(MARGS_ATTENTION_KV_TYPE)]];
constant uint HEAD_DIM [[function_constant(MARGS_ATTENTION_HEAD_DIM)]];
constant uint BLOCK_TOKENS [[function_constant(MARGS_ATTENTION_BLOCK_TOKENS)]];
constant uint GROUP [[function_constant(MARGS_ATTENTION_GROUP)]];
constant uint SOFTCAP [[function_constant(MARGS_ATTENTION_SOFTCAP)]];
constant uint SINKS [[function_constant(MARGS_ATTENTION_SINKS)]];
constant uint SLOPES [[function_constant(MARGS_ATTENTION_SLOPES)]];

#define CHUNK        MARGS_ATTENTION_CHUNK /* tokens; 4 per lane */
#define LANE_TOKENS  4
#define MAX_HEAD_DIM 512

/* The positions that are visible to a row: first..last of its sequence. */
struct key_range {
    uint first, last;
};

/* row: of sequence seq; both ways: up to the position of the sequence's last row. */
static inline key_range visible_keys(constant args_attention &a,
                                     device const int *pos,
                                     device const int *row_start,
                                     uint seq,
                                     uint row) {
    key_range s;
    s.last = uint(pos[row]);
    s.first = a.window && s.last >= a.window ? s.last + 1 - a.window : 0;
    if (a.chunked) s.first = s.last - s.last % a.window;
    if (a.both_ways == 0) return s;
    const uint end = uint(pos[row_start[seq + 1] - 1]);
    s.last = a.window && a.window <= end - s.last ? s.last + a.window - 1 : end;
    return s;
}

static inline bool is_visible(key_range s, uint pos) {
    return pos >= s.first && pos <= s.last;
}

/* Whether any token of the chunk is visible. */
static inline bool chunk_is_visible(key_range s, uint chunk) {
    return s.first / CHUNK <= chunk && chunk <= s.last / CHUNK;
}

/* Byte offset in a pool of the run of `head` that holds position pos. */
static inline ulong run_at(device const int *table, uint pos, uint n_kv_heads, uint head) {
    return (ulong(uint(table[pos / BLOCK_TOKENS])) * n_kv_heads + head) *
           kv_run_bytes(KV_TYPE, HEAD_DIM, BLOCK_TOKENS);
}

/* The scales of a Q8_0 run. */
static inline device const half *run_scales(device const uchar *run) {
    return (device const half *)(run + kv_values_bytes(KV_TYPE, HEAD_DIM, BLOCK_TOKENS));
}

/* ---- a chunk ---- */

struct chunk_sum {
    float m, l;
};

/* ALiBi. dots: a lane's scores, of tokens first_token .. first_token + 3, for a row at position pos
 * and a head of this slope. */
static inline void lean(thread float4 &dots, uint first_token, uint pos, float slope) {
    const float by = fma(slope, -M_LOG2E_F, 0.0f);
#pragma unroll
    for (uint i = 0; i < LANE_TOKENS; i++) {
        const uint at = first_token + i;
        dots[i] = fma(by, float(at > pos ? at - pos : pos - at), dots[i]);
    }
}

/* dots: a lane's scores, of tokens first_token .. first_token + 3; replaced by their probabilities.
 * All lanes get the sum. */
static inline chunk_sum
chunk_probabilities(thread float4 &dots, uint first_token, key_range s, float cap) {
    chunk_sum sum;
    bool4 visible;
    float m = -MAXFLOAT;
#pragma unroll
    for (uint i = 0; i < LANE_TOKENS; i++) {
        visible[i] = is_visible(s, first_token + i);
        if (SOFTCAP) dots[i] = fma(cap, precise::tanh(dots[i]), 0.0f);
        m = visible[i] ? max(m, dots[i]) : m;
    }
    sum.m = simd_max(m);
#pragma unroll
    for (uint i = 0; i < LANE_TOKENS; i++)
        dots[i] = visible[i] ? fast::exp2(dots[i] - sum.m) : 0.0f;
    sum.l = (dots[0] + dots[1]) + (dots[2] + dots[3]);
    for (ushort apart = 1; apart < SIMD_WIDTH; apart *= 2)
        sum.l += simd_shuffle_xor(sum.l, apart);
    return sum;
}

/* ---- merging chunks ---- */

/* o = fma(o of the chunk, add, o so far * keep), and likewise l. */
struct merge {
    float keep, add;
};

/* total: sum of the previous chunks, updated to include this one. first: there is no previous
 * chunk. */
static inline merge merge_factors(thread chunk_sum &total, chunk_sum chunk, bool first) {
    merge f;
    const float m = first ? chunk.m : max(total.m, chunk.m);
    f.keep = first ? 0.0f : fast::exp2(total.m - m);
    f.add = first ? 1.0f : fast::exp2(chunk.m - m);
    total.l = first ? chunk.l : fma(chunk.l, f.add, total.l * f.keep);
    total.m = m;
    return f;
}

/* The result is fma(o, factor, 0); adding 0 turns -0 into 0. sink: the head's, ignored unless SINKS
 * is set. */
static inline float final_factor(chunk_sum total, float sink) {
    if (!SINKS) return 1.0f / total.l;
    const float last = fma(sink, M_LOG2E_F, 0.0f);
    const float m = max(total.m, last);
    const float keep = fast::exp2(total.m - m);
    return keep /
           fma(total.l, keep, exp2(last - m)); // a sink may be -inf, for which fast:: is undefined
}

#endif
