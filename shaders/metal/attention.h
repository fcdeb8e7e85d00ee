/* attention.h - what both families of attention kernels share: the canonical order, in which a row
 * has the same bits from either.
 *
 * Positions are cut into chunks of CHUNK, counted from 0, whatever the row sees of them.
 *   q' = q * q_scale, rounded; a score is the chain of fma over dimensions ascending of q' and K,
 *     from 0, and is in units of log2: q_scale holds scale * log2(e). With a soft-cap q_scale is
 *     scale / softcap, and the score is cap * tanh of the chain, cap = softcap * log2(e).
 *   Of a chunk: m = the largest score that the row sees, weight = exp2(score - m), of what it does
 *     not see 0; l = their sum in the order of chunk_weights; o = the chain of fma over tokens
 *     ascending of weight and V, from 0.
 *   The first chunk of which the row sees anything is taken as it is, those after it are merged
 *     ascending (merge_factors); chunks of which it sees nothing take no part. The sink comes last
 *     (finish_factor).
 * What a row does not see is left out by choosing, never by a product: it may be no number. No sum
 * or product is left for the compiler to fuse: each is an fma or stands alone. */
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

#define CHUNK        MARGS_ATTENTION_CHUNK /* tokens; 4 a lane */
#define LANE_TOKENS  4
#define MAX_HEAD_DIM 256

/* Positions first..last of a sequence: what a row sees. */
struct seen {
    uint first, last;
};

static inline seen seen_from(int pos, uint window) {
    seen s;
    s.last = uint(pos);
    s.first = window && s.last >= window ? s.last + 1 - window : 0;
    return s;
}

static inline bool sees(seen s, uint pos) {
    return pos >= s.first && pos <= s.last;
}

/* Of the chunk, anything? */
static inline bool sees_chunk(seen s, uint chunk) {
    return s.first / CHUNK <= chunk && chunk <= s.last / CHUNK;
}

/* Where the run of `head` for position pos begins in a pool. */
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

/* dots: of tokens first_token..+3, one lane's; becomes their weights. All lanes get the sum. */
static inline chunk_sum chunk_weights(thread float4 &dots, uint first_token, seen s, float cap) {
    chunk_sum sum;
    bool4 visible;
    float m = -MAXFLOAT;
    for (uint i = 0; i < LANE_TOKENS; i++) {
        visible[i] = sees(s, first_token + i);
        if (SOFTCAP) dots[i] = fma(cap, precise::tanh(dots[i]), 0.0f);
        m = visible[i] ? max(m, dots[i]) : m;
    }
    sum.m = simd_max(m);
    for (uint i = 0; i < LANE_TOKENS; i++)
        dots[i] = visible[i] ? fast::exp2(dots[i] - sum.m) : 0.0f;
    sum.l = (dots[0] + dots[1]) + (dots[2] + dots[3]);
    for (ushort apart = 1; apart < SIMD_WIDTH; apart *= 2)
        sum.l += simd_shuffle_xor(sum.l, apart);
    return sum;
}

/* ---- chunks together ---- */

/* o = fma(o of the chunk, add, o so far * keep), likewise l. */
struct merge {
    float keep, add;
};

/* total: of the chunks before, becomes that of all. first: there are none before. */
static inline merge merge_factors(thread chunk_sum &total, chunk_sum chunk, bool first) {
    merge f;
    const float m = first ? chunk.m : max(total.m, chunk.m);
    f.keep = first ? 0.0f : fast::exp2(total.m - m);
    f.add = first ? 1.0f : fast::exp2(chunk.m - m);
    total.l = first ? chunk.l : fma(chunk.l, f.add, total.l * f.keep);
    total.m = m;
    return f;
}

/* The result is fma(o, factor, 0): + 0 makes one zero of two. sink: of the head; not looked at
 * without SINKS. */
static inline float finish_factor(chunk_sum total, float sink) {
    if (!SINKS) return 1.0f / total.l;
    const float last = fma(sink, M_LOG2E_F, 0.0f);
    const float m = max(total.m, last);
    const float keep = fast::exp2(total.m - m);
    return keep /
           fma(total.l, keep, exp2(last - m)); // a sink may be -inf, which fast:: leaves open
}

#endif
