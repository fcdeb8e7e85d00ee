/* attention.cuh - shared by the attention kernels on tensor cores: the canonical order of
 * operations, by which a query (a row and a query head) has the same bits from each of them, and
 * the layout of K and V in shared memory.
 *
 * Positions are divided into chunks of 64, counted from 0, whatever the query sees of them.
 *   q' = q * q_scale, rounded: to f16 after a power of two that brings the largest of its
 *   dimensions into [2^13, 2^14) (back undoes it), or for BF16 to the sum of two bf16. Q8_0
 *   values are decoded to f16.
 *   A score is accumulated over dimensions, 16 at a time, from q' and K (BF16: high part, low
 *   part of each 16), in units of log2; with a soft-cap it is cap * tanh of that, with slopes
 *   fma(-slope * log2(e), distance, that).
 *   For a chunk: m = the largest score that the query sees; probability (not normalized) =
 *   exp2(score - m), rounded to the type of K and V, 0 for tokens it does not see; l =
 *   accumulated over tokens, 16 at a time, from probabilities and ones; o = the same from
 *   probabilities and V.
 *   The chunks of a span (16 of them, at fixed positions) are merged in ascending order, then
 *   the spans (merge_factors), each starting empty (m = -inf, l = 0, o = 0). The sink comes last
 *   (normalize_factor).
 * An accumulation starts at 0 and takes all of a chunk, visible or not: an invisible entry is an
 * exact 0, because its probability is 0, and V is cleared if no query of the block sees it (it
 * may be NaN there). */
#ifndef INFERD_SHADERS_CUDA_ATTENTION_CUH
#define INFERD_SHADERS_CUDA_ATTENTION_CUH

#include "shaders/args_attention.h"
#include "shaders/cuda/device.cuh"

#define CHUNK       CUDA_ATTENTION_CHUNK
#define QUARTER     16 /* tokens of one load */
#define SPAN_CHUNKS CUDA_ATTENTION_SPAN
#define QUERIES     CUDA_ATTENTION_QUERIES
#define SCALE_DIMS  32 /* dimensions of a token per Q8_0 scale */
#define NOTHING     (-__int_as_float(0x7f800000))
#define ONES_F16    0x3c003c00u
#define ONES_BF16   0x3f803f80u

template <int KV> struct kv_traits {
    static constexpr bool quantized = KV == CUDA_ATTENTION_Q8;
    static constexpr int q_parts = KV == CUDA_ATTENTION_BF16 ? 2 : 1;
};

template <int KV>
__device__ __forceinline__ void mma(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    if (KV == CUDA_ATTENTION_BF16)
        mma_bf16(d, a, b);
    else
        mma_f16(d, a, b);
}

template <int KV> __device__ __forceinline__ uint32_t pack(float lo, float hi) {
    return KV == CUDA_ATTENTION_BF16 ? pack_bf16(lo, hi) : pack_f16(lo, hi);
}

/* ---- visible positions of a query: first..last; none: last < first ---- */

struct seen {
    int first, last;
};

__device__ __forceinline__ seen seen_from(int pos, uint32_t window, bool chunked = false) {
    seen s;
    s.last = pos;
    s.first = window && (uint32_t)pos >= window ? pos + 1 - (int)window : 0;
    if (chunked) s.first = pos - (int)((uint32_t)pos % window);
    if (pos < 0) s.first = 0x7fffffff, s.last = -1;
    return s;
}

/* Of a row of a sequence; both ways: up to the position of the sequence's last row. */
__device__ __forceinline__ seen seen_by(const cargs_attention &a, uint32_t seq, uint32_t row) {
    seen s = seen_from(a.pos[row], a.op.window, a.op.chunked != 0);
    if (a.op.both_ways == 0 || s.last < 0) return s;
    const int end = a.pos[a.row_start[seq + 1] - 1], window = (int)a.op.window;
    s.last = window != 0 && window <= end - s.last ? s.last + window - 1 : end;
    return s;
}

__device__ __forceinline__ bool sees(seen s, int pos) {
    return pos >= s.first && pos <= s.last;
}

/* Is any of n positions from pos on visible? */
__device__ __forceinline__ bool sees_any(seen s, int pos, int n) {
    return pos <= s.last && pos + n > s.first;
}

/* ---- queries ---- */

/* A rounded query: word k has the lane's dimensions 8 k + 2 t and the next (t = lane % 4); the
 * parts are summands. The four lanes of a row hold the same query. */
template <int KV, int DIM> struct query_words {
    uint32_t part[kv_traits<KV>::q_parts][DIM / 8];
    float back;
};

/* A warp's 16 queries as the left operand of products: the lane's rows are g = lane / 4 and g +
 * 8. */
template <int KV, int DIM> struct queries {
    uint32_t a[kv_traits<KV>::q_parts][DIM / 16][4];
    float back[2];
};

/* Queries of wide heads do not fit the registers beside o: a loop that is not unrolled keeps
 * them in local memory, in L1. */
template <int DIM> constexpr int query_unroll = DIM > 128 ? 1 : DIM / 16;

__device__ __forceinline__ float2 load_pair(const float *row, int d, int head_dim) {
    return row && d < head_dim ? *reinterpret_cast<const float2 *>(row + d) : make_float2(0, 0);
}

/* The power of two that brings top into [2^13, 2^14), and its inverse. */
__device__ __forceinline__ float scale_for(float top, float *back) {
    int e = (int)(__float_as_uint(top) >> 23 & 255) - 127, up = min(13 - e, 126);
    *back = __uint_as_float((uint32_t)(127 - up) << 23);
    return __uint_as_float((uint32_t)(127 + up) << 23);
}

/* row (head_dim) f32; NULL: zeros. */
template <int KV, int DIM>
__device__ __forceinline__ void load_query(const float *row, int head_dim, float q_scale,
                                           query_words<KV, DIM> &q) {
    int t = threadIdx.x % 4;
    float2 v[DIM / 8];
    float up = 1, top = 0;
#pragma unroll
    for (int k = 0; k < DIM / 8; k++) {
        v[k] = load_pair(row, k * 8 + 2 * t, head_dim);
        top = fmaxf(top, fmaxf(fabsf(v[k].x), fabsf(v[k].y)));
    }
    q.back = 1;
    if (KV != CUDA_ATTENTION_BF16) {
        top = fmaxf(top, __shfl_xor_sync(CUDA_ALL, top, 1));
        top = fmaxf(top, __shfl_xor_sync(CUDA_ALL, top, 2));
        up = scale_for(__fmul_rn(top, fabsf(q_scale)), &q.back);
    }
#pragma unroll
    for (int k = 0; k < DIM / 8; k++) {
        float x = __fmul_rn(__fmul_rn(v[k].x, q_scale), up),
              y = __fmul_rn(__fmul_rn(v[k].y, q_scale), up);
        uint32_t high = pack<KV>(x, y);
        q.part[0][k] = high;
        if (kv_traits<KV>::q_parts == 2) {
            float2 h = unpack_bf16(high);
            q.part[kv_traits<KV>::q_parts - 1][k] = pack_bf16(__fsub_rn(x, h.x), __fsub_rn(y, h.y));
        }
    }
}

/* row[i] of query g + 8 i. */
template <int KV, int DIM>
__device__ __forceinline__ void load_queries(const float *const row[2], int head_dim, float q_scale,
                                             queries<KV, DIM> &q) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        query_words<KV, DIM> one;
        load_query<KV, DIM>(row[i], head_dim, q_scale, one);
        q.back[i] = one.back;
#pragma unroll
        for (int part = 0; part < kv_traits<KV>::q_parts; part++)
#pragma unroll
            for (int k = 0; k < DIM / 8; k++)
                q.a[part][k / 2][k % 2 * 2 + i] = one.part[part][k];
    }
}

/* ---- a chunk ---- */

/* Error about 1e-7 of 1, few instructions. */
__device__ __forceinline__ float tanh_fast(float v) {
    float e = exp2_fast(__fmul_rn(v, 2.88539008177792681f));
    return __fsub_rn(1.0f, __fdividef(2.0f, __fadd_rn(e, 1.0f)));
}

__device__ __forceinline__ float capped(float score, float unit, float cap) {
    return __fmul_rn(cap, tanh_fast(__fmul_rn(score, unit)));
}

/* ALiBi: of a row at position pos, for a head of this slope. */
struct lean {
    int pos;
    float by; /* -slope * log2(e) */
};

__device__ __forceinline__ lean lean_of(const cargs_attention &a, uint32_t row, uint32_t head) {
    lean l;
    l.pos = 0, l.by = 0;
    if (a.slopes) l.pos = a.pos[row], l.by = __fmul_rn(a.slopes[head], -1.44269504088896340736f);
    return l;
}

__device__ __forceinline__ float leaning(float score, float unit, lean l, int token) {
    return fmaf(l.by, (float)abs(l.pos - token), __fmul_rn(score, unit));
}

/* Of one token. If no token is visible, 0 is subtracted from the exponent, and all probabilities
 * are exp2(-inf). */
__device__ __forceinline__ float probability_of(float score, float unit, float m) {
    return exp2_fast(fmaf(score, unit, m == NOTHING ? 0 : -m));
}

/* s: scores of 16 queries and the chunk's tokens, from position `first` on, as mma leaves them;
 * p: their probabilities as the left operand of a product; m: of the lane's two queries. leans: of
 * them, or NULL. whole: all queries see the whole chunk. */
template <int KV>
__device__ __forceinline__ void chunk_probabilities(float s[CHUNK / 8][4], int first,
                                                    const seen keys[2], const float back[2],
                                                    float cap, const lean *leans, bool whole,
                                                    uint32_t p[CHUNK / 16][4], float m[2]) {
    int token = first + threadIdx.x % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float unit = back[r];
        if (cap != 0) {
#pragma unroll
            for (int i = 0; i < CHUNK / 4; i++) {
                float &v = s[i / 2][2 * r + i % 2];
                v = capped(v, unit, cap);
            }
            unit = 1;
        } else if (leans) {
#pragma unroll
            for (int i = 0; i < CHUNK / 4; i++) {
                float &v = s[i / 2][2 * r + i % 2];
                v = leaning(v, unit, leans[r], token + i / 2 * 8 + i % 2);
            }
            unit = 1;
        }
        if (!whole) {
#pragma unroll
            for (int i = 0; i < CHUNK / 4; i++)
                if (!sees(keys[r], token + i / 2 * 8 + i % 2)) s[i / 2][2 * r + i % 2] = NOTHING;
        }
        float top = NOTHING;
#pragma unroll
        for (int i = 0; i < CHUNK / 4; i++)
            top = fmaxf(top, s[i / 2][2 * r + i % 2]);
        top = fmaxf(top, __shfl_xor_sync(CUDA_ALL, top, 1));
        top = fmaxf(top, __shfl_xor_sync(CUDA_ALL, top, 2));
        m[r] = __fmul_rn(top, unit);
#pragma unroll
        for (int j = 0; j < CHUNK / 8; j++)
            p[j / 2][j % 2 * 2 + r] = pack<KV>(probability_of(s[j][2 * r], unit, m[r]),
                                               probability_of(s[j][2 * r + 1], unit, m[r]));
    }
}

/* Sums of the probabilities of the lane's two queries. */
template <int KV>
__device__ __forceinline__ void chunk_sums(const uint32_t p[CHUNK / 16][4], float l[2]) {
    const uint32_t ones = KV == CUDA_ATTENTION_BF16 ? ONES_BF16 : ONES_F16, b[2] = {ones, ones};
    float d[4] = {0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < CHUNK / 16; j++)
        mma<KV>(d, p[j], b);
    l[0] = d[0], l[1] = d[2];
}

/* ---- merging chunks and spans ---- */

struct sums {
    float m, l;
};

/* o = fma(added o, add, o so far * keep), and the same for l. */
struct merge {
    float keep, add;
};

__device__ __forceinline__ sums empty_sums() {
    sums s;
    s.m = NOTHING, s.l = 0;
    return s;
}

__device__ __forceinline__ merge merge_factors(sums &total, float m, float l) {
    merge f;
    float top = fmaxf(total.m, m), base = top == NOTHING ? 0 : top;
    f.keep = exp2_fast(__fsub_rn(total.m, base));
    f.add = exp2_fast(__fsub_rn(m, base));
    total.l = fmaf(l, f.add, __fmul_rn(total.l, f.keep));
    total.m = top;
    return f;
}

__device__ __forceinline__ float merged(float o, float add, merge f) {
    return fmaf(add, f.add, __fmul_rn(o, f.keep));
}

/* The result is normalized(o, factor). sinks: of all heads, or NULL. */
__device__ __forceinline__ float normalize_factor(sums total, const float *sinks, uint32_t head) {
    if (total.m == NOTHING) return 0;
    if (!sinks) return __fdiv_rn(1.0f, total.l);
    float last = __fmul_rn(sinks[head], 1.44269504088896340736f), m = fmaxf(total.m, last);
    float keep = exp2_fast(__fsub_rn(total.m, m));
    return __fdiv_rn(keep, fmaf(total.l, keep, exp2_fast(__fsub_rn(last, m))));
}

/* + 0 turns -0 into 0. */
__device__ __forceinline__ float normalized(float o, float factor) {
    return fmaf(o, factor, 0.0f);
}

/* ---- K and V in shared memory: rows of 128 bytes whose 16-byte units are permuted (swizzled)
 * by the row's number, so that neither copies nor products have bank conflicts ---- */

__device__ __forceinline__ uint32_t place(uint32_t row, uint32_t unit) {
    return row * 128 + ((unit ^ row) & 7) * 16;
}

/* A chunk of V in panels of 64 f16 dimensions, one row per token. */
__device__ __forceinline__ uint32_t value_place(uint32_t token, uint32_t unit) {
    return unit / 8 * (CHUNK * 128) + place(token, unit);
}

/* ---- Q8_0 ---- */

/* Decodes two of the bytes of a word, each v ^ 128, by selector (bytes from 4 on are 0x64), to
 * f16 times their scales: 1024 + (v + 128) is 0x6400 | byte. */
__device__ __forceinline__ uint32_t decode_pair(uint32_t word, uint32_t selector, uint32_t scales) {
    return mul_f16x2(sub_f16x2(pick_bytes(word, 0x64646464u, selector), 0x64806480u), scales);
}

/* Eight values with their scales (two per word), as f16. */
__device__ __forceinline__ uint4 decode_q8(uint2 values, uint4 scales) {
    uint32_t lo = values.x ^ 0x80808080u, hi = values.y ^ 0x80808080u;
    uint4 r;
    r.x = decode_pair(lo, 0x4140, scales.x);
    r.y = decode_pair(lo, 0x4342, scales.y);
    r.z = decode_pair(hi, 0x4140, scales.z);
    r.w = decode_pair(hi, 0x4342, scales.w);
    return r;
}

#endif
