/* gemm_neon_int.h - shared by gemm_neon.c and gemm_i8mm.c: quantization, unpacking of every type,
 * float products, and the f32 operations of a block. The two differ in the order of codes in a tile
 * and in the instruction that multiplies them.
 *
 * gemm.h prescribes the f32 operations. Codes are signed in the tile, so integer sums need no
 * correction. Pure functions; any thread. */
#ifndef INFERD_BACKEND_CPU_GEMM_GEMM_NEON_INT_H
#define INFERD_BACKEND_CPU_GEMM_GEMM_NEON_INT_H

#include "core/backend/cpu/gemm/gemm.h"
#include "core/backend/cpu/neon_int.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { QUADS = GEMM_OUTS / 4 }; /* registers of 32-bit numbers for a panel's outputs */

/* ---- activations ---- */

/* q / 254 to nearest, ties towards zero: adds 126.5 / 254 and truncates. No quotient comes close
 * enough to an integer for its rounding to matter. */
ALWAYS_INLINE int32x4_t high_plane(int32x4_t q) {
    float32x4_t f = vcvtq_f32_s32(q);
    float32x4_t more = vbslq_f32(vdupq_n_u32(0x80000000), f, vdupq_n_f32(126.5f / 254));
    return vcvtq_s32_f32(vfmaq_n_f32(more, f, 1.0f / 254));
}

/* 32 values -> q, or its two planes, and the sums of q. */
ALWAYS_INLINE void quantize_values(const float32x4_t v[8], float inverse, int8_t *hi, int8_t *lo,
                                   struct gemm_block *block) {
    const int32x4_t top = vdupq_n_s32(lo ? GEMM_Q16 : GEMM_Q8);
    int16x4_t high[8], low[8];
    int32x4_t sum[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
    UNROLL
    for (int i = 0; i < 8; i++) {
        int32x4_t q = vcvtnq_s32_f32(vmulq_n_f32(v[i], inverse));
        q = vmaxq_s32(vminq_s32(q, top), vnegq_s32(top));
        sum[i / 4] = vaddq_s32(sum[i / 4], q);
        int32x4_t h = lo ? high_plane(q) : q;
        high[i] = vmovn_s32(h);
        low[i] = vmovn_s32(vmlsq_n_s32(q, h, 254));
    }
    UNROLL
    for (int i = 0; i < 8; i += 2) {
        vst1_s8(hi + 4 * i, vmovn_s16(vcombine_s16(high[i], high[i + 1])));
        if (lo) vst1_s8(lo + 4 * i, vmovn_s16(vcombine_s16(low[i], low[i + 1])));
    }
    block->n0 = vaddvq_s32(sum[0]);
    block->n1 = vaddvq_s32(sum[1]);
}

ALWAYS_INLINE void quantize_block(const float *x, int8_t *hi, int8_t *lo,
                                  struct gemm_block *block) {
    const float top = lo ? GEMM_Q16 : GEMM_Q8;
    float32x4_t v[8], max = vdupq_n_f32(0);
    UNROLL
    for (int i = 0; i < 8; i++) {
        v[i] = vld1q_f32(x + 4 * i);
        max = vmaxq_f32(max, vabsq_f32(v[i])); /* NaN stays */
    }
    float a = vmaxvq_f32(max);
    *block = (struct gemm_block){.d = a / top};
    if (a >= 1e-30f && a <= FLT_MAX)
        quantize_values(v, top / a, hi, lo, block);
    else {
        block->d = a < 1e-30f ? 0 : NAN;
        memset(hi, 0, GEMM_BLOCK);
        if (lo) memset(lo, 0, GEMM_BLOCK);
    }
    block->n = block->n0 + block->n1;
    block->s = block->d * (float)block->n;
    block->s0 = block->d * (float)block->n0;
    block->s1 = block->d * (float)block->n1;
}

ALWAYS_INLINE void quantize_row(const float *x, uint32_t n, int8_t *const q[2],
                                struct gemm_block *blocks) {
    for (uint32_t i = 0; i < n; i += GEMM_BLOCK)
        if (q[1])
            quantize_block(x + i, q[0] + i, q[1] + i, &blocks[i / GEMM_BLOCK]);
        else
            quantize_block(x + i, q[0] + i, NULL, &blocks[i / GEMM_BLOCK]);
}

/* ---- codes ---- */

/* How a block's codes are stored; always a constant. code = levels[c] or c - bias; c is composed of
 * the bits of the planes. */
struct code_form {
    bool bytes, nibbles, twos, ones;
    const int8_t *levels;
    uint8_t bias;
};

/* A quarter of a block's planes: 16 bytes of each vector, for four outputs. */
struct planes {
    uint8x16_t nibbles[4], twos[2], ones;
};

ALWAYS_INLINE uint32_t plane_bytes(struct code_form f) {
    return 64 * (f.bytes ? 8 : 4u * f.nibbles + 2u * f.twos + f.ones);
}

/* Moves bits from .. from + n - 1 of each byte to bit `to`; the other bits become 0. */
ALWAYS_INLINE uint8x16_t bits_at(uint8x16_t v, int from, int n, int to) {
    v &= (uint8_t)(((1 << n) - 1) << from);
    return from > to ? v >> (from - to) : v << (to - from);
}

/* Codes of group g. */
ALWAYS_INLINE int8x16_t code_of(const struct planes *p, struct code_form f, int8x16_t levels,
                                int g) {
    uint8x16_t c = vdupq_n_u8(0);
    if (f.nibbles) c = g < 4 ? p->nibbles[g] & 15 : p->nibbles[g - 4] >> 4;
    if (f.twos) c |= bits_at(p->twos[g / 4], 2 * (g % 4), 2, f.nibbles ? 4 : 0);
    if (f.ones) c |= bits_at(p->ones, g, 1, f.nibbles ? 4 : 2);
    if (f.levels) return vqtbl1q_s8(levels, c);
    return vreinterpretq_s8_u8(f.bias ? c - f.bias : c);
}

/* Stores four outputs of groups g and g + 1 of a block; paired: an output's eight columns are
 * adjacent. dst: the block's codes, at the first of the four outputs in group 0. */
ALWAYS_INLINE void put_codes(uint8_t *dst, int g, int8x16_t even, int8x16_t odd, bool paired) {
    if (paired) {
        int32x4_t a = vreinterpretq_s32_s8(even), b = vreinterpretq_s32_s8(odd);
        vst1q_s32((int32_t *)(dst + 64 * g), vzip1q_s32(a, b));
        vst1q_s32((int32_t *)(dst + 64 * g + 16), vzip2q_s32(a, b));
    } else {
        vst1q_s8((int8_t *)dst + 64 * g, even);
        vst1q_s8((int8_t *)dst + 64 * (g + 1), odd);
    }
}

/* Unpacks a block of 32 columns, planes at src, into eight groups at dst. */
ALWAYS_INLINE void unpack_block(const uint8_t *src, struct code_form f, bool paired, uint8_t *dst) {
    int8x16_t levels = f.levels ? vld1q_s8(f.levels) : vdupq_n_s8(0);
    for (int quad = 0; quad < QUADS; quad++, src += 16, dst += paired ? 32 : 16) {
        const uint8_t *at = src;
        struct planes p;
        if (f.bytes) {
            UNROLL
            for (int g = 0; g < 8; g += 2)
                put_codes(dst, g, vld1q_s8((const int8_t *)src + 64 * g),
                          vld1q_s8((const int8_t *)src + 64 * (g + 1)), paired);
            continue;
        }
        if (f.nibbles) {
            UNROLL
            for (int i = 0; i < 4; i++, at += 64)
                p.nibbles[i] = vld1q_u8(at);
        }
        if (f.twos) {
            UNROLL
            for (int i = 0; i < 2; i++, at += 64)
                p.twos[i] = vld1q_u8(at);
        }
        if (f.ones) p.ones = vld1q_u8(at);
        UNROLL
        for (int g = 0; g < 8; g += 2)
            put_codes(dst, g, code_of(&p, f, levels, g), code_of(&p, f, levels, g + 1), paired);
    }
}

ALWAYS_INLINE void unpack_codes(const uint8_t *src, struct code_form f, bool paired,
                                uint32_t n_blocks, struct gemm_tile *tile) {
    for (uint32_t b = 0; b < n_blocks; b++, src += plane_bytes(f))
        unpack_block(src, f, paired, tile->q[8 * b][0]);
}

/* ---- scales ---- */

ALWAYS_INLINE float32x4_t load_f16(const uint8_t *src) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(src)));
}

/* Converts n arrays of 16 halves to f32. */
ALWAYS_INLINE void unpack_f16(const uint8_t *src, uint32_t n, float dst[][GEMM_OUTS]) {
    for (uint32_t i = 0; i < QUADS * n; i++)
        vst1q_f32(dst[0] + 4 * i, load_f16(src + 8 * i));
}

/* dst = d * v, 16 halves times one signed byte per output. */
ALWAYS_INLINE void put_scales(const uint8_t *d, int8x16_t v, bool negative, float *dst) {
    int16x8_t half[2] = {vmovl_s8(vget_low_s8(v)), vmovl_high_s8(v)};
    UNROLL
    for (int i = 0; i < QUADS; i++) {
        int32x4_t n = i % 2 ? vmovl_high_s16(half[i / 2]) : vmovl_s16(vget_low_s16(half[i / 2]));
        float32x4_t s = vmulq_f32(load_f16(d + 8 * i), vcvtq_f32_s32(n));
        vst1q_f32(dst + 4 * i, negative ? vnegq_f32(s) : s);
    }
}

/* dst = d * (number - bias) for six[n] at src. */
ALWAYS_INLINE void unpack_six(const uint8_t *d, const uint8_t *src, uint32_t n, uint8_t bias,
                              bool negative, float dst[][GEMM_OUTS]) {
    for (uint32_t s = 0; s < n; s += 4, src += 32) {
        uint8x16_t low[2] = {vld1q_u8(src), vld1q_u8(src + 16)};
        uint8x16_t high = vld1q_u8(src + 8 * n - 4 * s);
        UNROLL
        for (int i = 0; i < 4; i++) {
            uint8x16_t v = i % 2 ? low[i / 2] >> 4 : low[i / 2] & 15;
            v |= bits_at(high, 2 * i, 2, 4);
            put_scales(d, vreinterpretq_s8_u8(v - bias), negative, dst[s + (uint32_t)i]);
        }
    }
}

/* 2^(e - 128): exponent field e - 1, or a subnormal number. */
ALWAYS_INLINE void unpack_mxfp4_scales(const uint8_t *e, uint32_t n_blocks,
                                       float dst[][GEMM_OUTS]) {
    for (uint32_t b = 0; b < n_blocks; b++, e += GEMM_OUTS) {
        uint8x16_t v = vld1q_u8(e);
        uint16x8_t half[2] = {vmovl_u8(vget_low_u8(v)), vmovl_high_u8(v)};
        UNROLL
        for (int i = 0; i < QUADS; i++) {
            uint32x4_t n =
                i % 2 ? vmovl_high_u16(half[i / 2]) : vmovl_u16(vget_low_u16(half[i / 2]));
            uint32x4_t normal = vshlq_n_u32(vsubq_u32(n, vdupq_n_u32(1)), 23);
            uint32x4_t subnormal = vshlq_u32(vdupq_n_u32(0x200000), vreinterpretq_s32_u32(n));
            uint32x4_t small = vcltq_u32(n, vdupq_n_u32(2));
            vst1q_f32(dst[b] + 4 * i, vreinterpretq_f32_u32(vbslq_u32(small, subnormal, normal)));
        }
    }
}

/* ---- floats ---- */

ALWAYS_INLINE void unpack_f32(const uint8_t *src, uint32_t n_cols, struct gemm_tile *tile) {
    memcpy(tile->f, src, (uint64_t)n_cols * sizeof tile->f[0]);
}

ALWAYS_INLINE void unpack_bf16(const uint8_t *src, uint32_t n_cols, struct gemm_tile *tile) {
    const uint32x4_t top = vdupq_n_u32(0xffff0000);
    for (uint32_t c = 0; c < n_cols; c += 2, src += 4 * GEMM_OUTS) {
        UNROLL
        for (int i = 0; i < QUADS; i++) {
            uint32x4_t both = vreinterpretq_u32_u8(vld1q_u8(src + 16 * i));
            vst1q_f32(tile->f[c] + 4 * i, vreinterpretq_f32_u32(vshlq_n_u32(both, 16)));
            if (c + 1 < n_cols)
                vst1q_f32(tile->f[c + 1] + 4 * i, vreinterpretq_f32_u32(vandq_u32(both, top)));
        }
    }
}

/* ---- every type ---- */

/* Does the type have one scale per 16 columns? */
ALWAYS_INLINE bool has_halves(int type) {
    return type == QTYPE_Q6_K || type == QTYPE_Q3_K || type == QTYPE_Q2_K || type == QTYPE_IQ1_W ||
           type == QTYPE_IQ2_W;
}

ALWAYS_INLINE bool has_mins(int type) {
    return type == QTYPE_Q4_1 || type == QTYPE_Q5_1 || type == QTYPE_Q4_K || type == QTYPE_Q5_K ||
           type == QTYPE_Q2_K;
}

ALWAYS_INLINE bool is_float(int type) {
    return type == QTYPE_F32 || type == QTYPE_F16 || type == QTYPE_BF16;
}

/* Q4_K, Q5_K: f16 d[16], dmin[16], six[8], six[8]. */
ALWAYS_INLINE void unpack_scales_mins(const uint8_t *src, struct gemm_tile *tile) {
    unpack_six(src, src + 64, 8, 0, false, tile->scale);
    unpack_six(src + 32, src + 64 + 96, 8, 0, true, tile->min);
}

/* Q2_K: f16 d[16], dmin[16], u8 scale | min << 4 [16][16]. */
ALWAYS_INLINE void unpack_scales_q2_k(const uint8_t *src, struct gemm_tile *tile) {
    for (int s = 0; s < 16; s++) {
        uint8x16_t v = vld1q_u8(src + 64 + 16 * s);
        put_scales(src, vreinterpretq_s8_u8(v & 15), false, tile->scale[s]);
        put_scales(src + 32, vreinterpretq_s8_u8(v >> 4), true, tile->min[s]);
    }
}

/* Q6_K: f16 d[16], i8 scale[16][16]. */
ALWAYS_INLINE void unpack_scales_q6_k(const uint8_t *src, struct gemm_tile *tile) {
    for (int s = 0; s < 16; s++)
        put_scales(src, vld1q_s8((const int8_t *)src + 32 + 16 * s), false, tile->scale[s]);
}

/* Multiplies n scales by a power of two. */
ALWAYS_INLINE void multiply_scales(float scale[][GEMM_OUTS], uint32_t n, float unit) {
    for (uint32_t i = 0; i < QUADS * n; i++)
        vst1q_f32(scale[0] + 4 * i, vmulq_n_f32(vld1q_f32(scale[0] + 4 * i), unit));
}

/* IQ1_W, IQ2_W. */
ALWAYS_INLINE void unpack_threes(const uint8_t *src, const int8_t *levels, bool paired,
                                 uint32_t n_blocks, struct gemm_tile *tile) {
    unpack_six(src, src + 32, 16, 32, false, tile->scale);
    multiply_scales(tile->scale, 16, 0.125f);
    unpack_codes(src + 224, (struct code_form){.twos = true, .ones = true, .levels = levels},
                 paired, n_blocks, tile);
}

/* IQ4_XS, IQ3_XXS_W, IQ3_S_W. */
ALWAYS_INLINE void unpack_fours(const uint8_t *src, const int8_t *levels, float unit, bool paired,
                                uint32_t n_blocks, struct gemm_tile *tile) {
    unpack_six(src, src + 32, 8, 32, false, tile->scale);
    if (unit != 1) multiply_scales(tile->scale, 8, unit);
    unpack_codes(src + 128, (struct code_form){.nibbles = true, .levels = levels}, paired, n_blocks,
                 tile);
}

ALWAYS_INLINE void unpack_k_block(int type, const uint8_t *src, uint32_t n_cols, bool paired,
                                  struct gemm_tile *tile) {
    const uint32_t nb = n_cols / GEMM_BLOCK;
    const uint8_t *codes = src + 2 * GEMM_OUTS * nb; /* of the types with one f16 a block */
    switch (type) {
    case QTYPE_F32:
        unpack_f32(src, n_cols, tile);
        break;
    case QTYPE_F16:
        unpack_f16(src, n_cols, tile->f);
        break;
    case QTYPE_BF16:
        unpack_bf16(src, n_cols, tile);
        break;
    case QTYPE_Q8_0:
        unpack_f16(src, nb, tile->scale);
        unpack_codes(codes, (struct code_form){.bytes = true}, paired, nb, tile);
        break;
    case QTYPE_Q4_0:
        unpack_f16(src, nb, tile->scale);
        unpack_codes(codes, (struct code_form){.nibbles = true, .bias = 8}, paired, nb, tile);
        break;
    case QTYPE_Q5_0:
        unpack_f16(src, nb, tile->scale);
        unpack_codes(codes, (struct code_form){.nibbles = true, .ones = true, .bias = 16}, paired,
                     nb, tile);
        break;
    case QTYPE_IQ4_NL:
        unpack_f16(src, nb, tile->scale);
        unpack_codes(codes, (struct code_form){.nibbles = true, .levels = iq4_levels}, paired, nb,
                     tile);
        break;
    case QTYPE_Q4_1:
        unpack_f16(src, nb, tile->scale);
        unpack_f16(codes, nb, tile->min);
        unpack_codes(codes + 2 * GEMM_OUTS * nb, (struct code_form){.nibbles = true}, paired, nb,
                     tile);
        break;
    case QTYPE_Q5_1:
        unpack_f16(src, nb, tile->scale);
        unpack_f16(codes, nb, tile->min);
        unpack_codes(codes + 2 * GEMM_OUTS * nb, (struct code_form){.nibbles = true, .ones = true},
                     paired, nb, tile);
        break;
    case QTYPE_MXFP4:
        unpack_mxfp4_scales(src, nb, tile->scale);
        unpack_codes(src + GEMM_OUTS * nb,
                     (struct code_form){.nibbles = true, .levels = mxfp4_levels}, paired, nb, tile);
        break;
    case QTYPE_Q4_K:
        unpack_scales_mins(src, tile);
        unpack_codes(src + 256, (struct code_form){.nibbles = true}, paired, nb, tile);
        break;
    case QTYPE_Q5_K:
        unpack_scales_mins(src, tile);
        unpack_codes(src + 256, (struct code_form){.nibbles = true, .ones = true}, paired, nb,
                     tile);
        break;
    case QTYPE_Q6_K:
        unpack_scales_q6_k(src, tile);
        unpack_codes(src + 288, (struct code_form){.nibbles = true, .twos = true, .bias = 32},
                     paired, nb, tile);
        break;
    case QTYPE_Q3_K:
        unpack_six(src, src + 32, 16, 32, false, tile->scale);
        unpack_codes(src + 224, (struct code_form){.twos = true, .ones = true, .bias = 4}, paired,
                     nb, tile);
        break;
    case QTYPE_Q2_K:
        unpack_scales_q2_k(src, tile);
        unpack_codes(src + 320, (struct code_form){.twos = true}, paired, nb, tile);
        break;
    case QTYPE_IQ1_W:
        unpack_threes(src, iq1_levels, paired, nb, tile);
        break;
    case QTYPE_IQ2_W:
        unpack_threes(src, iq2_levels, paired, nb, tile);
        break;
    case QTYPE_IQ4_XS:
        unpack_fours(src, iq4_levels, 1, paired, nb, tile);
        break;
    case QTYPE_IQ3_XXS_W:
        unpack_fours(src, iq3_xxs_levels, 0.25f, paired, nb, tile);
        break;
    case QTYPE_IQ3_S_W:
        unpack_fours(src, iq3_s_levels, 1, paired, nb, tile);
        break;
    default:
        break;
    }
}

/* ---- products of quantized types ---- */

enum { MAX_ROWS = 4 };

/* The shape of a product: rows by n_quads * 4 outputs of a panel. Always a constant. */
struct group_form {
    int n_rows, n_quads;
    bool halves, mins;
};

struct sums {
    int32x4_t v[MAX_ROWS][QUADS]; /* (row, four outputs) */
};

struct accs {
    float32x4_t v[MAX_ROWS][QUADS];
};

/* Addresses of a group's first row and output. */
struct spot {
    const struct gemm_tile *tile;
    uint32_t out; /* in the panel */
    float *acc;
    const struct gemm_block *blocks;
};

ALWAYS_INLINE void load_accs(struct accs *a, const struct gemm_job *j, const float *acc,
                             struct group_form f) {
    UNROLL
    for (int r = 0; r < f.n_rows; r++) {
        UNROLL
        for (int i = 0; i < f.n_quads; i++)
            a->v[r][i] =
                j->first ? vdupq_n_f32(0) : vld1q_f32(acc + r * GEMM_PANELS * GEMM_OUTS + 4 * i);
    }
}

ALWAYS_INLINE void store_accs(const struct accs *a, float *acc, struct group_form f) {
    UNROLL
    for (int r = 0; r < f.n_rows; r++) {
        UNROLL
        for (int i = 0; i < f.n_quads; i++)
            vst1q_f32(acc + r * GEMM_PANELS * GEMM_OUTS + 4 * i, a->v[r][i]);
    }
}

/* t = (float)s * scale; more: t += (float)s * scale. */
ALWAYS_INLINE void scale_sums(struct accs *t, const struct sums *s, const float *scale, bool more,
                              struct group_form f) {
    UNROLL
    for (int i = 0; i < f.n_quads; i++) {
        float32x4_t factor = vld1q_f32(scale + 4 * i);
        UNROLL
        for (int r = 0; r < f.n_rows; r++) {
            float32x4_t v = vcvtq_f32_s32(s->v[r][i]);
            t->v[r][i] = more ? vfmaq_f32(t->v[r][i], v, factor) : vmulq_f32(v, factor);
        }
    }
}

/* a += t * d, plus the mins of block b. */
ALWAYS_INLINE void end_block(struct accs *a, const struct accs *t, const struct gemm_job *j,
                             const struct spot *at, uint32_t b, struct group_form f) {
    UNROLL
    for (int r = 0; r < f.n_rows; r++) {
        /* d, s, s0, s1 */
        float32x4_t x = vld1q_f32(&at->blocks[(uint64_t)r * j->x.blocks_stride + b].d);
        UNROLL
        for (int i = 0; i < f.n_quads; i++) {
            const float *min = at->tile->min[f.halves ? 2 * b : b] + at->out + 4 * i;
            float32x4_t v = vfmaq_laneq_f32(a->v[r][i], t->v[r][i], x, 0);
            if (f.mins && !f.halves) v = vfmaq_laneq_f32(v, vld1q_f32(min), x, 1);
            if (f.mins && f.halves) {
                v = vfmaq_laneq_f32(v, vld1q_f32(min), x, 2);
                v = vfmaq_laneq_f32(v, vld1q_f32(min + GEMM_OUTS), x, 3);
            }
            a->v[r][i] = v;
        }
    }
}

/* ---- float products ---- */

ALWAYS_INLINE void multiply_column(struct accs *a, const float *w, const float32x4_t *x, int lane,
                                   int n_rows) {
    UNROLL
    for (int i = 0; i < QUADS; i++) {
        float32x4_t v = vld1q_f32(w + 4 * i);
        UNROLL
        for (int r = 0; r < n_rows; r++)
            a->v[r][i] = vfmaq_n_f32(a->v[r][i], v, x[r][lane]);
    }
}

/* n_rows rows of x times a panel's 16 outputs. */
ALWAYS_INLINE void multiply_floats(const struct gemm_job *j, const struct gemm_tile *tile,
                                   const float *x, float *acc, int n_rows) {
    const struct group_form f = {.n_rows = n_rows, .n_quads = QUADS};
    struct accs a;
    float32x4_t v[MAX_ROWS];
    uint32_t c = 0;
    load_accs(&a, j, acc, f);
    for (; c + 4 <= j->n_cols; c += 4) {
        UNROLL
        for (int r = 0; r < n_rows; r++)
            v[r] = vld1q_f32(x + (uint64_t)r * j->x.x_stride + c);
        UNROLL
        for (int lane = 0; lane < 4; lane++)
            multiply_column(&a, tile->f[c + (uint32_t)lane], v, lane, n_rows);
    }
    for (; c < j->n_cols; c++) {
        UNROLL
        for (int r = 0; r < n_rows; r++)
            v[r] = vld1q_dup_f32(x + (uint64_t)r * j->x.x_stride + c);
        multiply_column(&a, tile->f[c], v, 0, n_rows);
    }
    store_accs(&a, acc, f);
}

typedef void float_fn(const struct gemm_job *j, const struct gemm_tile *tile, const float *x,
                      float *acc);

#define FLOATS(name, rows)                                                                         \
    static void name(const struct gemm_job *j, const struct gemm_tile *tile, const float *x,       \
                     float *acc) {                                                                 \
        multiply_floats(j, tile, x, acc, rows);                                                    \
    }

FLOATS(floats_1, 1)
FLOATS(floats_2, 2)
FLOATS(floats_3, 3)
FLOATS(floats_4, 4)

static inline void multiply_float_job(const struct gemm_job *j) {
    static float_fn *const floats[MAX_ROWS] = {floats_1, floats_2, floats_3, floats_4};
    for (uint32_t r = 0; r < j->n_rows; r += MAX_ROWS) {
        uint32_t n_rows = j->n_rows - r < MAX_ROWS ? j->n_rows - r : MAX_ROWS;
        for (uint32_t p = 0; p < j->n_panels; p++)
            floats[n_rows - 1](j, &j->tile[p], j->x.x + r * j->x.x_stride,
                               j->acc + (r * GEMM_PANELS + p) * GEMM_OUTS);
    }
}

#endif
