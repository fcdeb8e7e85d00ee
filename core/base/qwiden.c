/* qwiden.c - blocks of the IQ1, IQ2, IQ3 and TQ types: their decoders and their conversion to the
 * types that kernels know (qtype_widen).
 *
 * A block of these types holds indices of grid points, signs and small integer scales. Widening
 * writes each value's own code, three or four bits, and keeps the scales: no number is rounded, so
 * a decoder is widening and the decoder of the wide type. Little-endian machines only, as GGUF.
 * Pure; any thread. */
#include "core/base/qgrid.h"
#include "core/base/qiq.h"
#include "core/base/qtype_int.h"

#include <stddef.h>
#include <string.h>

/* ---- codes ---- */

/* Two bits of v to each of eight bytes. */
static uint64_t spread_twos(uint32_t v) {
    uint64_t x = v;
    x = (x | x << 24) & 0x000000ff000000ff;
    x = (x | x << 12) & 0x000f000f000f000f;
    return (x | x << 6) & 0x0303030303030303;
}

/* One bit of v to each of eight bytes. */
static uint64_t spread_ones(uint32_t v) {
    uint64_t x = v;
    x = (x | x << 28) & 0x0000000f0000000f;
    x = (x | x << 14) & 0x0003000300030003;
    return (x | x << 7) & 0x0101010101010101;
}

/* Four bits of v to each of eight bytes. */
static uint64_t spread_fours(uint32_t v) {
    uint64_t x = v;
    x = (x | x << 16) & 0x0000ffff0000ffff;
    x = (x | x << 8) & 0x00ff00ff00ff00ff;
    return (x | x << 4) & 0x0f0f0f0f0f0f0f0f;
}

/* All eight signs from seven: the parity is the eighth. */
static uint32_t eight_signs(uint32_t seven) {
    uint32_t p = (seven ^ seven >> 4) & 15; /* 0x6996: the parity of each p */
    return seven | (0x6996u >> p & 1) << 7;
}

static void or_bytes(uint8_t *at, uint64_t bits) {
    uint64_t v;
    memcpy(&v, at, sizeof v);
    v |= bits;
    memcpy(at, &v, sizeof v);
}

/* Group g of a wide block in Q3_K's layout: a grid point, and the third bit of each code. */
static void put_threes(struct q3_k_block *b, uint32_t g, uint32_t point, uint32_t third) {
    uint32_t at = g % 4 * 8, quarter = g / 4;
    or_bytes(b->q + quarter / 4 * 32 + at, spread_twos(point) << 2 * (quarter % 4));
    or_bytes(b->high + at, spread_ones(third) << quarter);
}

/* The scale of 16 values s, stored as Q3_K's: 2 * scale + 1 + 32. */
static void put_scale_16(struct q3_k_block *b, uint32_t s, uint32_t scale) {
    uint32_t six = 33 + 2 * scale;
    b->scales[s % 8] |= (uint8_t)((six & 15) << 4 * (s / 8));
    b->scales[8 + s % 4] |= (uint8_t)(six >> 4 << 2 * (s / 4));
}

/* Group g of a wide block in IQ4_XS's layout: two grid points and the signs. */
static void put_fours(struct iq4_xs_block *b, uint32_t g, uint32_t points, uint32_t signs) {
    or_bytes(b->q + g / 4 * 16 + g % 2 * 8, (spread_fours(points) | spread_ones(signs) << 3)
                                                << 4 * (g / 2 % 2));
}

static void put_scale_32(struct iq4_xs_block *b, uint32_t s, uint32_t scale) {
    uint32_t six = 33 + 2 * scale;
    b->scales_low[s / 2] |= (uint8_t)((six & 15) << 4 * (s % 2));
    b->scales_high |= (uint16_t)(six >> 4 << 2 * s);
}

/* ---- widening: one block ---- */

static void widen_iq2_xxs(const void *src, void *dst) {
    const struct iq2_xxs_block *b = src;
    struct q3_k_block *to = dst;
    to->d = b->d;
    for (uint32_t r = 0; r < QK_ELEMS / 32; r++) {
        uint32_t rest;
        memcpy(&rest, b->q + 8 * r + 4, sizeof rest);
        for (uint32_t i = 0; i < 4; i++)
            put_threes(to, 4 * r + i, qgrid_iq2_xxs[b->q[8 * r + i]],
                       eight_signs(rest >> 7 * i & 127));
        put_scale_16(to, 2 * r, rest >> 28);
        put_scale_16(to, 2 * r + 1, rest >> 28);
    }
}

static void widen_iq2_xs(const void *src, void *dst) {
    const struct iq2_xs_block *b = src;
    struct q3_k_block *to = dst;
    to->d = b->d;
    for (uint32_t g = 0; g < QK_ELEMS / 8; g++)
        put_threes(to, g, qgrid_iq2_xs[b->q[g] & 511], eight_signs(b->q[g] >> 9));
    for (uint32_t s = 0; s < QK_ELEMS / 16; s++)
        put_scale_16(to, s, b->scales[s / 2] >> 4 * (s % 2) & 15);
}

static void widen_iq2_s(const void *src, void *dst) {
    const struct iq2_s_block *b = src;
    struct q3_k_block *to = dst;
    to->d = b->d;
    for (uint32_t g = 0; g < QK_ELEMS / 8; g++) {
        uint32_t high = b->high[g / 4] >> 2 * (g % 4) & 3;
        put_threes(to, g, qgrid_iq2_s[b->q[g] | high << 8], b->signs[g]);
    }
    for (uint32_t s = 0; s < QK_ELEMS / 16; s++)
        put_scale_16(to, s, b->scales[s / 2] >> 4 * (s % 2) & 15);
}

static void widen_iq3_xxs(const void *src, void *dst) {
    const struct iq3_xxs_block *b = src;
    struct iq4_xs_block *to = dst;
    to->d = b->d;
    for (uint32_t r = 0; r < QK_ELEMS / 32; r++) {
        uint32_t rest;
        memcpy(&rest, b->signs + 4 * r, sizeof rest);
        for (uint32_t g = 4 * r; g < 4 * r + 4; g++)
            put_fours(to, g,
                      qgrid_iq3_xxs[b->q[2 * g]] | (uint32_t)qgrid_iq3_xxs[b->q[2 * g + 1]] << 16,
                      eight_signs(rest >> 7 * (g % 4) & 127));
        put_scale_32(to, r, rest >> 28);
    }
}

static void widen_iq3_s(const void *src, void *dst) {
    const struct iq3_s_block *b = src;
    struct iq4_xs_block *to = dst;
    to->d = b->d;
    for (uint32_t g = 0; g < QK_ELEMS / 8; g++) {
        uint32_t ninth = b->high[g / 4] >> 2 * (g % 4);
        uint32_t first = qgrid_iq3_s[b->q[2 * g] | (ninth & 1) << 8];
        uint32_t second = qgrid_iq3_s[b->q[2 * g + 1] | (ninth >> 1 & 1) << 8];
        put_fours(to, g, first | second << 16, b->signs[g]);
    }
    for (uint32_t s = 0; s < QK_ELEMS / 32; s++)
        put_scale_32(to, s, b->scales[s / 2] >> 4 * (s % 2) & 15);
}

static void widen_iq1_s(const void *src, void *dst) {
    const struct iq1_s_block *b = src;
    struct q3_k_block *to = dst;
    to->d = b->d;
    for (uint32_t r = 0; r < QK_ELEMS / 32; r++) {
        uint32_t high = b->high[r];
        for (uint32_t g = 4 * r; g < 4 * r + 4; g++)
            put_threes(to, g, qgrid_iq1[b->q[g] | (high >> 3 * (g % 4) & 7) << 8],
                       high >> 15 ? 255 : 0);
        put_scale_16(to, 2 * r, high >> 12 & 7);
        put_scale_16(to, 2 * r + 1, high >> 12 & 7);
    }
}

static void widen_iq1_m(const void *src, void *dst) {
    const struct iq1_m_block *b = src;
    struct q3_k_block *to = dst;
    for (uint32_t k = 0; k < 4; k++)
        to->d |= (uint16_t)(b->scales[k] >> 12 << 4 * k);
    for (uint32_t g = 0; g < QK_ELEMS / 8; g++) {
        uint32_t high = b->high[g / 2] >> 4 * (g % 2);
        put_threes(to, g, qgrid_iq1[b->q[g] | (high & 7) << 8], high & 8 ? 255 : 0);
    }
    for (uint32_t s = 0; s < QK_ELEMS / 16; s++)
        put_scale_16(to, s, b->scales[s / 4] >> 3 * (s % 4) & 7);
}

/* Q2_K with scales 1 and minima 1: d * q - d. */
static void widen_ternary(const uint8_t *codes, uint16_t d, struct q2_k_block *to) {
    to->d = to->dmin = d;
    memset(to->scales, 0x11, sizeof to->scales);
    for (uint32_t i = 0; i < QK_ELEMS; i++)
        to->q[i / 128 * 32 + i % 32] |= (uint8_t)(codes[i] << 2 * (i / 32 % 4));
}

/* Digits n of the count bytes at q to codes. */
static void split_digits(const uint8_t *q, uint32_t count, uint32_t n_digits, uint8_t *codes) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t v = q[i];
        for (uint32_t n = 0; n < n_digits; n++, v = v * 3 & 255)
            codes[n * count + i] = (uint8_t)(v * 3 >> 8);
    }
}

static uint16_t tq1_0_codes(const struct tq1_0_block *b, uint8_t codes[QK_ELEMS]) {
    split_digits(b->q, 32, 5, codes);
    split_digits(b->q + 32, 16, 5, codes + 160);
    split_digits(b->high, 4, 4, codes + 240);
    return b->d;
}

static uint16_t tq2_0_codes(const struct tq2_0_block *b, uint8_t codes[QK_ELEMS]) {
    for (uint32_t i = 0; i < QK_ELEMS; i++)
        codes[i] = b->q[i / 128 * 32 + i % 32] >> 2 * (i / 32 % 4) & 3;
    return b->d;
}

static void widen_tq1_0(const void *src, void *dst) {
    uint8_t codes[QK_ELEMS];
    uint16_t d = tq1_0_codes(src, codes);
    widen_ternary(codes, d, dst);
}

static void widen_tq2_0(const void *src, void *dst) {
    uint8_t codes[QK_ELEMS];
    uint16_t d = tq2_0_codes(src, codes);
    widen_ternary(codes, d, dst);
}

/* ---- the table ---- */

static const struct widening {
    int type, wide;
    uint32_t bytes, wide_bytes;
    void (*widen)(const void *src, void *dst); /* dst is zero */
} widenings[] = {
    {QTYPE_IQ2_XXS, QTYPE_IQ2_W, sizeof(struct iq2_xxs_block), sizeof(struct q3_k_block),
     widen_iq2_xxs},
    {QTYPE_IQ2_XS, QTYPE_IQ2_W, sizeof(struct iq2_xs_block), sizeof(struct q3_k_block),
     widen_iq2_xs},
    {QTYPE_IQ2_S, QTYPE_IQ2_W, sizeof(struct iq2_s_block), sizeof(struct q3_k_block), widen_iq2_s},
    {QTYPE_IQ3_XXS, QTYPE_IQ3_XXS_W, sizeof(struct iq3_xxs_block), sizeof(struct iq4_xs_block),
     widen_iq3_xxs},
    {QTYPE_IQ3_S, QTYPE_IQ3_S_W, sizeof(struct iq3_s_block), sizeof(struct iq4_xs_block),
     widen_iq3_s},
    {QTYPE_IQ1_S, QTYPE_IQ1_W, sizeof(struct iq1_s_block), sizeof(struct q3_k_block), widen_iq1_s},
    {QTYPE_IQ1_M, QTYPE_IQ1_W, sizeof(struct iq1_m_block), sizeof(struct q3_k_block), widen_iq1_m},
    {QTYPE_TQ1_0, QTYPE_Q2_K, sizeof(struct tq1_0_block), sizeof(struct q2_k_block), widen_tq1_0},
    {QTYPE_TQ2_0, QTYPE_Q2_K, sizeof(struct tq2_0_block), sizeof(struct q2_k_block), widen_tq2_0},
};

static const struct widening *find_widening(int type) {
    for (size_t i = 0; i < sizeof widenings / sizeof widenings[0]; i++)
        if (widenings[i].type == type) return &widenings[i];
    return NULL;
}

int qtype_wide(int type) {
    const struct widening *w = find_widening(type);
    return w ? w->wide : type == QTYPE_NVFP4 ? QTYPE_BF16 : type;
}

/* A value has five digits: those of a level of one or two and of a scale of four. */
static void widen_nvfp4(const struct nvfp4_block *from, uint16_t *to, uint64_t n) {
    float values[QNV_ELEMS];
    for (; n; n -= QNV_ELEMS, from++) {
        qtype_decode(QTYPE_NVFP4, from, values, QNV_ELEMS);
        for (int i = 0; i < QNV_ELEMS; i++)
            *to++ = f32_to_bf16(values[i]);
    }
}

void qtype_widen(int type, const void *src, void *dst, uint64_t n) {
    const struct widening *w = find_widening(type);
    const uint8_t *from = src;
    uint8_t *to = dst;
    if (type == QTYPE_NVFP4) widen_nvfp4(src, dst, n);
    if (!w) return;
    for (; n; n -= QK_ELEMS, from += w->bytes, to += w->wide_bytes) {
        memset(to, 0, w->wide_bytes);
        w->widen(from, to);
    }
}

void qdecode_widened(int type, const void *src, float *dst, uint64_t n) {
    const struct widening *w = find_widening(type);
    const uint8_t *from = src;
    union {
        struct q3_k_block q3_k;
        struct iq4_xs_block iq4_xs;
    } one;
    for (; n; n -= QK_ELEMS, from += w->bytes, dst += QK_ELEMS) {
        memset(&one, 0, sizeof one);
        w->widen(from, &one);
        qtype_decode(w->wide, &one, dst, QK_ELEMS);
    }
}

/* Widened, an infinite d would make NaN of every value. */
static void decode_ternary(const uint8_t *codes, uint16_t half, float *dst) {
    float d = f16_to_f32(half);
    for (int i = 0; i < QK_ELEMS; i++)
        dst[i] = d * (float)(codes[i] - 1);
}

void qdecode_tq1_0(const void *src, float *dst, uint64_t n) {
    const struct tq1_0_block *b = src;
    uint8_t codes[QK_ELEMS];
    for (; n; n -= QK_ELEMS, b++, dst += QK_ELEMS) {
        uint16_t d = tq1_0_codes(b, codes);
        decode_ternary(codes, d, dst);
    }
}

void qdecode_tq2_0(const void *src, float *dst, uint64_t n) {
    const struct tq2_0_block *b = src;
    uint8_t codes[QK_ELEMS];
    for (; n; n -= QK_ELEMS, b++, dst += QK_ELEMS) {
        uint16_t d = tq2_0_codes(b, codes);
        decode_ternary(codes, d, dst);
    }
}
