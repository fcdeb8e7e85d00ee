/* decode.h - decodes stored weights to f32, eight columns at a time, with exactly the bits of
 * qtype_decode. Layouts: core/base/qblock.h.
 *
 * Every caller passes a function constant as type, so that the compiler keeps one branch. The eight
 * values of a group are one run of at most eight bytes in every format: a thread reads them with
 * one load. Rows may have any address that the format's blocks allow (2 bytes; F32: 4; MXFP4: 1),
 * hence the packed vectors, which need only the alignment of their elements.
 *
 * Bytes stay four to a register while fields are extracted; they become halves two at a time
 * (small4), and then each value costs one product, or one fma where the format has a minimum.
 * Scales are multiplied first: d * scale * q is exact in f32 (at most 11 + 7 + 5 bits), so only the
 * addition of a minimum rounds, once, in the fma as in the subtraction of the C decoder. Offsets in
 * a row fit in 32 bits (metal_row_bytes); a load adds them to its 64-bit base at no cost. */
#ifndef INFERD_METAL_DECODE_H
#define INFERD_METAL_DECODE_H

#include "shaders/metal/common.h"

/* ---- loads ---- */

static inline float half_at(device const uchar *p) {
    return f16_value(*(device const ushort *)p);
}

/* Eight bytes at an even address. */
static inline uint2 bytes8(device const uchar *p) {
    const ushort4 v = *(device const packed_ushort4 *)p;
    return uint2(uint(v.x) | uint(v.y) << 16, uint(v.z) | uint(v.w) << 16);
}

/* Eight bytes at any address. */
static inline uint2 unaligned8(device const uchar *p) {
    const uchar4 a = *(device const packed_uchar4 *)p;
    const uchar4 b = *(device const packed_uchar4 *)(p + 4);
    return uint2(as_type<uint>(a), as_type<uint>(b));
}

/* ---- eight small integers, one per byte, to values ---- */

/* v[j] - zero, exact. A byte in the mantissa of 1024 is the half 1024 + byte; the difference is a
 * half, and halves are operands of f32 arithmetic at no cost. Two bytes take one `and` and one `or`
 * where an extraction and a conversion of each would take eight cycles (Apple7, Apple8). */
static inline float4 bytes4(uint v, float zero) {
    const half2 base = half2(half(1024.0f + zero));
    const half2 even = as_type<half2>((v & 0x00ff00ffu) | 0x64006400u) - base;
    const half2 odd = as_type<half2>((v >> 8 & 0x00ff00ffu) | 0x64006400u) - base;
    return float4(float(even.x), float(odd.x), float(even.y), float(odd.y));
}

/* The bytes of v under the mask (of bytes 0 and 2, shifted for 1 and 3), each times 2^-24: an
 * integer below 1024 is the bits of that subnormal half. Where a factor follows, which takes the
 * 2^24, this saves the difference of bytes4. probe_halves tests that the GPU has subnormal halves;
 * floats would be flushed to zero. */
#define SUBNORMAL 16777216.0f /* 2^24 */
static inline float4 small4(uint v, uint mask) {
    const half2 even = as_type<half2>(v & mask), odd = as_type<half2>(v >> 8 & mask);
    return float4(float(even.x), float(odd.x), float(even.y), float(odd.y));
}

/* (v[j] - zero) * 2^-24, exact. */
static inline float4 centred4(uint v, uint zero) {
    const half2 base = as_type<half2>(zero * 0x00010001u);
    const half2 even = as_type<half2>(v & 0x00ff00ffu) - base;
    const half2 odd = as_type<half2>(v >> 8 & 0x00ff00ffu) - base;
    return float4(float(even.x), float(odd.x), float(even.y), float(odd.y));
}

/* w[j] = d * (v[j] - zero) */
static inline void scaled8(uint2 v, uint zero, float d, thread float *w) {
    const float4 a = centred4(v.x, zero), b = centred4(v.y, zero);
    const float factor = d * SUBNORMAL;
#pragma unroll
    for (uint j = 0; j < 4; j++)
        w[j] = factor * a[j], w[4 + j] = factor * b[j];
}

/* w[j] = d * 2^-24 * (v[j] & mask) + m; mask: as in small4. */
static inline void masked8(uint2 v, uint mask, float d, float m, thread float *w) {
    const float4 a = small4(v.x, mask), b = small4(v.y, mask);
#pragma unroll
    for (uint j = 0; j < 4; j++)
        w[j] = fma(d, a[j], m), w[4 + j] = fma(d, b[j], m);
}

/* w[j] = d * v[j] + m */
static inline void shifted8(uint2 v, float d, float m, thread float *w) {
    masked8(v, 0x00ff00ffu, d * SUBNORMAL, m, w);
}

static inline void signed8(uint2 v, float d, thread float *w) {
    scaled8(v ^ 0x80808080u, 128, d, w);
}

/* Group g of a block of 32: the bytes from 8 (g % 2) on; the low nibbles hold the first half of the
 * block. */
static inline uint2 nibbles_of(uint2 v, uint g) {
    return v >> (g & 2) * 2 & 0x0f0f0f0fu;
}

/* Moves bit j of bits to bit 4 of byte j. The product copies bit i (of four) to bits i, i + 7, i +
 * 14 and i + 21, exactly one of which is the lowest bit of a byte. */
static inline uint2 fifth_bits(uint bits) {
    return (uint2(bits & 15, bits >> 4) * 0x00204081u & 0x01010101u) << 4;
}

/* w[j] = d * v[j], for values of 0 to 127 as bytes; a byte 1 of `negative`, where v[j] is not 0,
 * turns its sign. */
static inline void with_signs8(uint2 v, uint2 negative, float d, thread float *w) {
    signed8((v ^ negative * 0xffu) + negative, d, w);
}

/* The sixteen levels of IQ4_NL, exact: a polynomial that comes within 0.27 of each, rounded. Seven
 * operations at full rate and two of rounding, where a table in registers would cost two shifts and
 * a conversion of four cycles each, and one in memory a load (Apple7, Apple8). */
static inline float4 iq4_levels4(uint v) {
    const float4 x = bytes4(v, 8.0f);
    float4 y = fma(x, float4(5.5078775e-5f), float4(2.0811892e-4f));
    y = fma(y, x, float4(-2.9736775e-3f));
    y = fma(y, x, float4(7.0842256e-2f));
    y = fma(y, x, float4(7.6901866e-2f));
    y = fma(y, x, float4(11.512229f));
    y = fma(y, x, float4(1.2589472f));
    return (y + 12582912.0f) - 12582912.0f;
}

static inline void iq4_levels8(uint2 v, float d, thread float *w) {
    const float4 a = iq4_levels4(v.x), b = iq4_levels4(v.y);
#pragma unroll
    for (uint j = 0; j < 4; j++)
        w[j] = d * a[j], w[4 + j] = d * b[j];
}

/* A nibble has one sign bit, two exponent bits and one mantissa bit. Placed in a half it is the
 * value times 2^-14, including the subnormal. */
static inline float2 mxfp4_levels2(uint q) {
    return float2(as_type<half2>((q & 0x00070007u) << 9 | (q & 0x00080008u) << 12)) * 32768.0f;
}

/* The fma with 0 turns -0 into 0, as in the C decoder's table. */
static inline void mxfp4_levels8(uint2 v, float d, thread float *w) {
#pragma unroll
    for (uint j = 0; j < 4; j++) {
        const uint q = j < 2 ? v.x : v.y; /* bytes 0 and 2, or 1 and 3 */
        const float2 level = mxfp4_levels2(q >> 8 * (j % 2));
        w[j / 2 * 4 + j % 2] = fma(level.x, d, 0.0f);
        w[j / 2 * 4 + j % 2 + 2] = fma(level.y, d, 0.0f);
    }
}

/* ---- groups of a block; b: its first byte ---- */

static inline void q4_0_group(device const uchar *b, uint g, thread float *w) {
    scaled8(nibbles_of(bytes8(b + 2 + 8 * (g & 1)), g), 8, half_at(b), w);
}

static inline void q4_1_group(device const uchar *b, uint g, thread float *w) {
    shifted8(nibbles_of(bytes8(b + 4 + 8 * (g & 1)), g), half_at(b), half_at(b + 2), w);
}

static inline void q5_0_group(device const uchar *b, uint g, thread float *w) {
    const uint2 q = nibbles_of(bytes8(b + 6 + 8 * (g & 1)), g) | fifth_bits(b[2 + g]);
    scaled8(q, 16, half_at(b), w);
}

static inline void q5_1_group(device const uchar *b, uint g, thread float *w) {
    const uint2 q = nibbles_of(bytes8(b + 8 + 8 * (g & 1)), g) | fifth_bits(b[4 + g]);
    shifted8(q, half_at(b), half_at(b + 2), w);
}

static inline void mxfp4_group(device const uchar *b, uint g, thread float *w) {
    const uint e = b[0]; /* the first two exponents give subnormal scales */
    const float d = as_type<float>(e < 2 ? 0x200000u << e : (e - 1) << 23);
    mxfp4_levels8(nibbles_of(unaligned8(b + 1 + 8 * (g & 1)), g), d, w);
}

/* ---- super-blocks ----
 * A super-block has 32 groups. Group 8 * u + c is the u-th of class c. With t = 2 * (u % 2) + c / 4
 * it lies in quarter t of half u / 2; s = 2 * u + c / 4 is its sub-block of 32, 4 * u + c / 2 its
 * sub-block of 16. Its bytes begin at 8 * (c % 4) of a run of 32. A thread that needs all four
 * groups of a class loads each byte once: first what all four share, then what those of a half
 * share, then each group's own bytes. */
struct super_raw {
    uint4 head; /* scales; Q4_K, Q5_K, is_fours: also d */
    uint d;     /* d, dmin */
    uint2 all, half_low, half_high, own;
};

static inline bool is_super(uint type) {
    return (type >= QTYPE_Q2_K && type <= QTYPE_Q6_K) || type == QTYPE_IQ4_XS ||
           (type >= QTYPE_IQ1_W && type <= QTYPE_IQ3_S_W);
}

/* Q3_K's layout. */
static inline bool is_threes(uint type) {
    return type == QTYPE_Q3_K || type == QTYPE_IQ1_W || type == QTYPE_IQ2_W;
}

/* IQ4_XS's. */
static inline bool is_fours(uint type) {
    return type == QTYPE_IQ4_XS || type == QTYPE_IQ3_XXS_W || type == QTYPE_IQ3_S_W;
}

static inline uint super_bytes(uint type) {
    switch (type) {
    case QTYPE_Q2_K:
        return 84;
    case QTYPE_Q3_K:
    case QTYPE_IQ1_W:
    case QTYPE_IQ2_W:
        return 110;
    case QTYPE_Q4_K:
        return 144;
    case QTYPE_Q5_K:
        return 176;
    case QTYPE_Q6_K:
        return 210;
    default:
        return 136; /* is_fours */
    }
}

static inline uint short_at(device const uchar *p) {
    return *(device const ushort *)p;
}

/* b: the block. */
static inline void super_head(uint type, device const uchar *b, uint c, thread super_raw &raw) {
    const uint at = is_threes(type) ? 96 : type == QTYPE_Q6_K ? 192 : 0;
    const uint2 first = bytes8(b + at);
    raw.head = uint4(first, 0, 0);
    if (is_threes(type)) raw.head.z = short_at(b + 104) | short_at(b + 106) << 16;
    if (type == QTYPE_Q2_K || type == QTYPE_Q4_K || type == QTYPE_Q5_K || type == QTYPE_Q6_K)
        raw.head = uint4(first, bytes8(b + at + 8));
    if (type == QTYPE_Q2_K) raw.d = short_at(b + 80) | short_at(b + 82) << 16;
    if (is_threes(type)) raw.d = short_at(b + 108);
    if (type == QTYPE_Q6_K) raw.d = short_at(b + 208);
    if (is_threes(type)) raw.all = bytes8(b + 8 * (c % 4));
    if (type == QTYPE_Q5_K) raw.all = bytes8(b + 16 + 8 * (c % 4));
}

static inline void
super_half(uint type, device const uchar *b, uint c, uint h, thread super_raw &raw) {
    if (type == QTYPE_Q2_K) raw.half_low = bytes8(b + 16 + 32 * h + 8 * (c % 4));
    if (is_threes(type)) raw.half_low = bytes8(b + 32 + 32 * h + 8 * (c % 4));
    if (type != QTYPE_Q6_K) return;
    raw.half_low = bytes8(b + 64 * h + 8 * c);
    raw.half_high = bytes8(b + 128 + 32 * h + 8 * (c % 4));
}

static inline void
super_own(uint type, device const uchar *b, uint c, uint u, thread super_raw &raw) {
    if (type == QTYPE_Q4_K) raw.own = bytes8(b + 16 + 32 * u + 8 * (c % 4));
    if (type == QTYPE_Q5_K) raw.own = bytes8(b + 48 + 32 * u + 8 * (c % 4));
    if (is_fours(type)) raw.own = bytes8(b + 8 + 32 * u + 16 * (c / 4) + 8 * (c % 2));
}

/* Byte i of 16. */
static inline uint head_byte(uint4 head, uint i) {
    const uint word = i < 8 ? (i < 4 ? head.x : head.y) : (i < 12 ? head.z : head.w);
    return word >> 8 * (i % 4) & 255;
}

static inline float2 halves_of(uint bits) {
    return float2(as_type<half2>(bits));
}

/* Scale and minimum of sub-block 2 * u + c / 4 of Q4_K and Q5_K, times the super-block's, the scale
 * also times `more`. The fields of u and of its neighbour with the same u / 2 are two subnormal
 * halves. */
static inline float2 q45_k_scales(uint4 head, uint c, uint u, float more) {
    const uint t = 8 * (c / 4), first = head.y >> t, second = head.z >> t, third = head.w >> t;
    const uint scales =
        u < 2 ? first & 0x003f003fu : (third & 0x000f000fu) | (first >> 2 & 0x00300030u);
    const uint lows =
        u < 2 ? second & 0x003f003fu : (third >> 4 & 0x000f000fu) | (second >> 2 & 0x00300030u);
    const half2 scale = as_type<half2>(scales), low = as_type<half2>(lows);
    const float2 d = halves_of(head.x) * float2(SUBNORMAL * more, SUBNORMAL);
    return d *
           (u % 2 ? float2(float(scale.y), float(low.y)) : float2(float(scale.x), float(low.x)));
}

/* IQ1_W, IQ2_W: levels of three bits, t and the half h: -7, 1, 9 and -9, -1, 7, or 8, 25, 43 with
 * either sign. 0 for t = 3, which does not occur in weights. */
static inline void three_levels8(uint type, uint2 q, float d, thread float *w) {
    const uint2 t = q & 0x03030303u, zero = t & t >> 1 & 0x01010101u;
    const uint2 h = q >> 2 & 0x01010101u & ~zero;
    if (type == QTYPE_IQ1_W) return scaled8(t * 8 + 0x79797979u - zero * 17 - h * 2, 128, d, w);
    with_signs8(t * 17 + (t >> 1 & 0x01010101u) + 0x08080808u - zero * 60, h, d, w);
}

/* IQ3_XXS_W, IQ3_S_W: levels of four bits, sign and m: 2 m + 1, or 8 m + 4 and for the last 62. */
static inline void four_levels8(uint type, uint2 q, float d, thread float *w) {
    const uint2 m = q & 0x07070707u, h = q >> 3 & 0x01010101u;
    const uint2 size = type == QTYPE_IQ3_S_W
                           ? m * 2 + 0x01010101u
                           : m * 8 + 0x04040404u + ((m + 0x01010101u) >> 2 & 0x02020202u);
    with_signs8(size, h, d, w);
}

static inline void
q3_k_values(uint type, thread const super_raw &raw, uint c, uint u, thread float *w) {
    const uint t = 2 * (u % 2) + c / 4, i = 4 * (u % 2) + c / 2;
    const uint low = head_byte(raw.head, i) >> 4 * (u / 2) & 15;
    const uint high = head_byte(raw.head, 8 + c / 2) >> 2 * u & 3;
    const uint2 third = raw.all >> (4 * (u / 2) + t) & 0x01010101u;
    const float d = halves_of(raw.d).x * float(int(low | high << 4) - 32);
    const uint2 q = (raw.half_low >> 2 * t & 0x03030303u) | third << 2;
    if (type == QTYPE_Q3_K) return scaled8(q, 4, d, w);
    three_levels8(type, q, d * 0.125f, w);
}

static inline void
iq4_xs_values(uint type, thread const super_raw &raw, uint c, uint u, thread float *w) {
    const uint s = 2 * u + c / 4;
    const uint low = head_byte(raw.head, 4 + u) >> 4 * (c / 4) & 15, high = raw.head.x >> 16;
    const float d = halves_of(raw.head.x).x * float(int(low | (high >> 2 * s & 3) << 4) - 32);
    const uint2 q = nibbles_of(raw.own, c);
    if (type == QTYPE_IQ4_XS) return iq4_levels8(q, d, w);
    four_levels8(type, q, d * (type == QTYPE_IQ3_XXS_W ? 0.25f : 1.0f), w);
}

/* Decodes group 8 * u + c from the bytes that were loaded for it. */
static inline void
super_values(uint type, thread const super_raw &raw, uint c, uint u, thread float *w) {
    const uint t = 2 * (u % 2) + c / 4;
    if (type == QTYPE_Q2_K) {
        const uint scale = head_byte(raw.head, 4 * u + c / 2);
        const float2 d = halves_of(raw.d) * float2(float(scale & 15), float(scale >> 4));
        shifted8(raw.half_low >> 2 * t & 0x03030303u, d.x, -d.y, w);
    }
    if (is_threes(type)) q3_k_values(type, raw, c, u, w);
    if (type == QTYPE_Q4_K) { /* a high nibble is 16 times its value */
        const float2 d = q45_k_scales(raw.head, c, u, c / 4 ? SUBNORMAL / 16 : SUBNORMAL);
        masked8(raw.own, c / 4 ? 0x00f000f0u : 0x000f000fu, d.x, -d.y, w);
    }
    if (type == QTYPE_Q5_K) {
        const float2 d = q45_k_scales(raw.head, c, u, SUBNORMAL);
        const uint2 q = raw.own >> 4 * (c / 4) & 0x0f0f0f0fu;
        const uint2 fifth = raw.all >> c / 4; /* of u at bit 2 * u */
        const uint2 high = (u < 2 ? fifth << (4 - 2 * u) : fifth >> (2 * u - 4)) & 0x10101010u;
        masked8(q | high, 0x00ff00ffu, d.x, -d.y, w);
    }
    if (type == QTYPE_Q6_K) {
        const uint2 low = raw.half_low >> 4 * (u % 2) & 0x0f0f0f0fu;
        const uint2 pair = raw.half_high >> 2 * (c / 4); /* of u at bit 4 * (u % 2) */
        const uint2 high = (u % 2 ? pair : pair << 4) & 0x30303030u;
        const float scale = float(as_type<char>(uchar(head_byte(raw.head, 4 * u + c / 2))));
        scaled8(low | high, 32, halves_of(raw.d).x * scale, w);
    }
    if (is_fours(type)) iq4_xs_values(type, raw, c, u, w);
}

static inline void super_group(uint type, device const uchar *b, uint g, thread float *w) {
    super_raw raw;
    super_head(type, b, g % 8, raw);
    super_half(type, b, g % 8, g / 16, raw);
    super_own(type, b, g % 8, g / 8, raw);
    super_values(type, raw, g % 8, g / 8, w);
}

/* ---- unquantized values ---- */

static inline float plain_value(uint type, device const uchar *row, uint col) {
    if (type == QTYPE_F32) return ((device const float *)row)[col];
    const ushort bits = ((device const ushort *)row)[col];
    return type == QTYPE_F16 ? f16_value(bits) : bf16_value(bits);
}

static inline void plain_group(uint type, device const uchar *row, uint group, thread float *w) {
    if (type == QTYPE_F32) {
        const float4 a = *(device const packed_float4 *)(row + 32 * group);
        const float4 b = *(device const packed_float4 *)(row + 32 * group + 16);
#pragma unroll
        for (uint j = 0; j < 4; j++)
            w[j] = a[j], w[4 + j] = b[j];
        return;
    }
    const ushort4 a = *(device const packed_ushort4 *)(row + 16 * group);
    const ushort4 b = *(device const packed_ushort4 *)(row + 16 * group + 8);
#pragma unroll
    for (uint j = 0; j < 4; j++) {
        w[j] = type == QTYPE_F16 ? f16_value(a[j]) : bf16_value(a[j]);
        w[4 + j] = type == QTYPE_F16 ? f16_value(b[j]) : bf16_value(b[j]);
    }
}

static inline bool is_plain(uint type) {
    return type == QTYPE_F32 || type == QTYPE_F16 || type == QTYPE_BF16;
}

/* ---- the entry points ---- */

/* w (8) = columns 8 * group to 8 * group + 7 of the row that begins at `row`. The row has all
 * eight. */
static inline void decode8(uint type, device const uchar *row, uint group, thread float *w) {
    const uint block = group / 4, g = group % 4; /* of 32 */
    if (is_super(type))
        return super_group(type, row + super_bytes(type) * (group / 32), group % 32, w);
    switch (type) {
    case QTYPE_Q4_0:
        return q4_0_group(row + 18 * block, g, w);
    case QTYPE_Q4_1:
        return q4_1_group(row + 20 * block, g, w);
    case QTYPE_Q5_0:
        return q5_0_group(row + 22 * block, g, w);
    case QTYPE_Q5_1:
        return q5_1_group(row + 24 * block, g, w);
    case QTYPE_Q8_0: {
        device const uchar *b = row + 34 * block;
        return signed8(bytes8(b + 2 + 8 * g), half_at(b), w);
    }
    case QTYPE_IQ4_NL: {
        device const uchar *b = row + 18 * block;
        return iq4_levels8(nibbles_of(bytes8(b + 2 + 8 * (g & 1)), g), half_at(b), w);
    }
    case QTYPE_MXFP4:
        return mxfp4_group(row + 17 * block, g, w);
    default:
        return plain_group(type, row, group, w);
    }
}

/* As decode8, for a row of n_cols columns whose last group may be incomplete (rows of plain types
 * only). Missing columns are 0. */
static inline void
decode8_edge(uint type, device const uchar *row, uint group, uint n_cols, thread float *w) {
    if (!is_plain(type) || 8 * group + 8 <= n_cols) return decode8(type, row, group, w);
#pragma unroll
    for (uint j = 0; j < 8; j++)
        w[j] = 8 * group + j < n_cols ? plain_value(type, row, 8 * group + j) : 0;
}

#endif
