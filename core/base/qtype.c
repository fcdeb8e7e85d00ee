/* qtype.c - the table of tensor element types and their plain decoders, the float reference of
 * every kernel. A decoder multiplies scales first (exact in f32 for all types), so only the last
 * product or sum rounds. The encoders are in qencode*.c. Pure; any thread. */
#include "core/base/qtype_int.h"

#include "core/base/mem.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- halves ---- */

static float bits_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = (h >> 10) & 0x1f, mantissa = h & 0x3ff;
    if (exponent == 0x1f) return bits_f32(sign | 0x7f800000u | mantissa << 13);
    if (exponent) return bits_f32(sign | (exponent + 112) << 23 | mantissa << 13);
    float subnormal = (float)mantissa * 0x1p-24f;
    return sign ? -subnormal : subnormal;
}

uint16_t f32_to_f16(float f) {
    uint32_t u = f32_bits(f), sign = u >> 16 & 0x8000, rest = u & 0x7fffffff;
    if (rest > 0x7f800000u) return (uint16_t)(sign | 0x7e00);
    if (rest >= 0x47800000u) return (uint16_t)(sign | 0x7c00); /* 65536 and up */
    if (rest < 0x38800000u)                                    /* half subnormal: add and round */
        return (uint16_t)(sign | (f32_bits(bits_f32(rest) + 0.5f) - 0x3f000000u));
    uint32_t odd = rest >> 13 & 1; /* may carry into infinity, which is right from 65520 on */
    return (uint16_t)(sign | ((rest - 0x38000000u + 0xfff + odd) >> 13));
}

float bf16_to_f32(uint16_t h) {
    return bits_f32((uint32_t)h << 16);
}

uint16_t f32_to_bf16(float f) {
    uint32_t u = f32_bits(f);
    if ((u & 0x7fffffff) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* ---- decoders: n values of src to dst ---- */

static void decode_f32(const void *src, float *dst, uint64_t n) {
    memcpy(dst, src, n * sizeof *dst);
}

static void decode_f16(const void *src, float *dst, uint64_t n) {
    const uint16_t *half = src;
    for (uint64_t i = 0; i < n; i++)
        dst[i] = f16_to_f32(half[i]);
}

static void decode_bf16(const void *src, float *dst, uint64_t n) {
    const uint16_t *half = src;
    for (uint64_t i = 0; i < n; i++)
        dst[i] = bf16_to_f32(half[i]);
}

static void decode_q8_0(const void *src, float *dst, uint64_t n) {
    const struct q8_0_block *b = src;
    for (; n; n -= Q_ELEMS, b++, dst += Q_ELEMS) {
        float d = f16_to_f32(b->d);
        for (int i = 0; i < Q_ELEMS; i++)
            dst[i] = d * b->q[i];
    }
}

static void decode_q4_0(const void *src, float *dst, uint64_t n) {
    const struct q4_0_block *b = src;
    for (; n; n -= Q_ELEMS, b++, dst += Q_ELEMS) {
        float d = f16_to_f32(b->d);
        for (int i = 0; i < Q_ELEMS / 2; i++) {
            dst[i] = d * ((b->q[i] & 15) - 8);
            dst[i + Q_ELEMS / 2] = d * ((b->q[i] >> 4) - 8);
        }
    }
}

static void decode_q4_1(const void *src, float *dst, uint64_t n) {
    const struct q4_1_block *b = src;
    for (; n; n -= Q_ELEMS, b++, dst += Q_ELEMS) {
        float d = f16_to_f32(b->d), m = f16_to_f32(b->m);
        for (int i = 0; i < Q_ELEMS / 2; i++) {
            dst[i] = d * (b->q[i] & 15) + m;
            dst[i + Q_ELEMS / 2] = d * (b->q[i] >> 4) + m;
        }
    }
}

/* Value i of a Q5 block, 0..31. */
static int five_bits(const uint8_t *q, const uint8_t *high, int i) {
    int nibble = i < Q_ELEMS / 2 ? q[i] & 15 : q[i - Q_ELEMS / 2] >> 4;
    return nibble | (high[i / 8] >> i % 8 & 1) << 4;
}

static void decode_q5_0(const void *src, float *dst, uint64_t n) {
    const struct q5_0_block *b = src;
    for (; n; n -= Q_ELEMS, b++, dst += Q_ELEMS) {
        float d = f16_to_f32(b->d);
        for (int i = 0; i < Q_ELEMS; i++)
            dst[i] = d * (five_bits(b->q, b->high, i) - 16);
    }
}

static void decode_q5_1(const void *src, float *dst, uint64_t n) {
    const struct q5_1_block *b = src;
    for (; n; n -= Q_ELEMS, b++, dst += Q_ELEMS) {
        float d = f16_to_f32(b->d), m = f16_to_f32(b->m);
        for (int i = 0; i < Q_ELEMS; i++)
            dst[i] = d * five_bits(b->q, b->high, i) + m;
    }
}

const int8_t iq4_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};
const int8_t mxfp4_levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

const int8_t iq1_levels[16] = {-7, 1, 9, 0, -9, -1, 7, 0, -7, 1, 9, 0, -9, -1, 7, 0};
const int8_t iq2_levels[16] = {8, 25, 43, 0, -8, -25, -43, 0, 8, 25, 43, 0, -8, -25, -43, 0};
const int8_t iq3_xxs_levels[16] = {4,  12,  20,  28,  36,  44,  52,  62,
                                   -4, -12, -20, -28, -36, -44, -52, -62};
const int8_t iq3_s_levels[16] = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};

/* Decodes 16 bytes of nibbles, as in IQ4_NL and MXFP4. */
static void decode_levels(const uint8_t *q, const int8_t *levels, float d, float *dst) {
    for (int i = 0; i < Q_ELEMS / 2; i++) {
        dst[i] = d * levels[q[i] & 15];
        dst[i + Q_ELEMS / 2] = d * levels[q[i] >> 4];
    }
}

static void decode_iq4_nl(const void *src, float *dst, uint64_t n) {
    const struct iq4_nl_block *b = src;
    for (; n; n -= Q_ELEMS, b++, dst += Q_ELEMS)
        decode_levels(b->q, iq4_levels, f16_to_f32(b->d), dst);
}

/* 2^(e - 128); the first two are subnormal. */
static float mxfp4_scale(uint8_t e) {
    return e < 2 ? bits_f32(0x200000u << e) : bits_f32((uint32_t)(e - 1) << 23);
}

static void decode_mxfp4(const void *src, float *dst, uint64_t n) {
    const struct mxfp4_block *b = src;
    for (; n; n -= Q_ELEMS, b++, dst += Q_ELEMS)
        decode_levels(b->q, mxfp4_levels, mxfp4_scale(b->e), dst);
}

/* ggml's: E4M3 without its sign. */
static float nvfp4_scale(uint8_t e) {
    const uint32_t exponent = e >> 3 & 15, mantissa = e & 7;
    if (e == 0x7f) return 0;
    return exponent ? bits_f32((exponent + 120) << 23 | mantissa << 20) : (float)mantissa * 0x1p-9f;
}

static void decode_nvfp4(const void *src, float *dst, uint64_t n) {
    const struct nvfp4_block *b = src;
    for (; n; n -= QNV_ELEMS, b++, dst += QNV_ELEMS) {
        for (int i = 0; i < QNV_ELEMS; i++) {
            const int s = i / 16, nibble = b->q[8 * s + i % 8] >> (i % 16 / 8 * 4) & 15;
            dst[i] = nvfp4_scale(b->e[s]) * 0.5f * (float)mxfp4_levels[nibble];
        }
    }
}

static void decode_q2_k(const void *src, float *dst, uint64_t n) {
    const struct q2_k_block *b = src;
    for (; n; n -= QK_ELEMS, b++, dst += QK_ELEMS) {
        float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);
        for (int i = 0; i < QK_ELEMS; i++) {
            int h = i / 128, t = i / 32 % 4, scale = b->scales[i / 16];
            int q = b->q[32 * h + i % 32] >> 2 * t & 3;
            dst[i] = d * (scale & 15) * q - dmin * (scale >> 4);
        }
    }
}

static int q3_k_scale(const struct q3_k_block *b, int s) {
    int low = b->scales[s % 8] >> 4 * (s / 8) & 15;
    return (low | (b->scales[8 + s % 4] >> 2 * (s / 4) & 3) << 4) - 32;
}

/* Q3_K's layout: value = unit * d * scale * levels[q]. */
static void decode_threes(const struct q3_k_block *b, const int8_t *levels, float unit, float *dst,
                          uint64_t n) {
    for (; n; n -= QK_ELEMS, b++, dst += QK_ELEMS) {
        float d = f16_to_f32(b->d) * unit;
        for (int i = 0; i < QK_ELEMS; i++) {
            int h = i / 128, t = i / 32 % 4, l = i % 32;
            int q = (b->q[32 * h + l] >> 2 * t & 3) | (b->high[l] >> (4 * h + t) & 1) << 2;
            dst[i] = d * q3_k_scale(b, i / 16) * levels[q];
        }
    }
}

static void decode_q3_k(const void *src, float *dst, uint64_t n) {
    static const int8_t levels[] = {-4, -3, -2, -1, 0, 1, 2, 3};
    decode_threes(src, levels, 1, dst, n);
}

static void decode_iq1_w(const void *src, float *dst, uint64_t n) {
    decode_threes(src, iq1_levels, 0.125f, dst, n);
}

static void decode_iq2_w(const void *src, float *dst, uint64_t n) {
    decode_threes(src, iq2_levels, 0.125f, dst, n);
}

/* The six-bit scale and minimum of sub-block s of Q4_K and Q5_K. */
static void scale_min(const uint8_t scales[12], int s, int *scale, int *min) {
    int t = s % 4;
    if (s == t) {
        *scale = scales[t] & 63;
        *min = scales[t + 4] & 63;
    } else {
        *scale = (scales[t + 8] & 15) | scales[t] >> 6 << 4;
        *min = scales[t + 8] >> 4 | scales[t + 4] >> 6 << 4;
    }
}

static void decode_q4_k(const void *src, float *dst, uint64_t n) {
    const struct q4_k_block *b = src;
    for (; n; n -= QK_ELEMS, b++, dst += QK_ELEMS) {
        for (int s = 0; s < QK_ELEMS / 32; s++) {
            int scale, min;
            scale_min(b->scales, s, &scale, &min);
            float d = f16_to_f32(b->d) * scale, m = f16_to_f32(b->dmin) * min;
            for (int l = 0; l < 32; l++)
                dst[32 * s + l] = d * (b->q[32 * (s / 2) + l] >> 4 * (s % 2) & 15) - m;
        }
    }
}

static void decode_q5_k(const void *src, float *dst, uint64_t n) {
    const struct q5_k_block *b = src;
    for (; n; n -= QK_ELEMS, b++, dst += QK_ELEMS) {
        for (int s = 0; s < QK_ELEMS / 32; s++) {
            int scale, min;
            scale_min(b->scales, s, &scale, &min);
            float d = f16_to_f32(b->d) * scale, m = f16_to_f32(b->dmin) * min;
            for (int l = 0; l < 32; l++) {
                int q = b->q[32 * (s / 2) + l] >> 4 * (s % 2) & 15;
                dst[32 * s + l] = d * (q | (b->high[l] >> s & 1) << 4) - m;
            }
        }
    }
}

static void decode_q6_k(const void *src, float *dst, uint64_t n) {
    const struct q6_k_block *b = src;
    for (; n; n -= QK_ELEMS, b++, dst += QK_ELEMS) {
        float d = f16_to_f32(b->d);
        for (int i = 0; i < QK_ELEMS; i++) {
            int h = i / 128, t = i / 32 % 4, l = i % 32;
            int low = b->low[64 * h + 32 * (t % 2) + l] >> 4 * (t / 2) & 15;
            int q = low | (b->high[32 * h + l] >> 2 * t & 3) << 4;
            dst[i] = d * b->scales[i / 16] * (q - 32);
        }
    }
}

/* IQ4_XS's layout: value = unit * d * scale * levels[nibble]. */
static void decode_fours(const struct iq4_xs_block *b, const int8_t *levels, float unit, float *dst,
                         uint64_t n) {
    for (; n; n -= QK_ELEMS, b++, dst += QK_ELEMS) {
        for (int s = 0; s < QK_ELEMS / 32; s++) {
            int low = b->scales_low[s / 2] >> 4 * (s % 2) & 15;
            int scale = (low | (b->scales_high >> 2 * s & 3) << 4) - 32;
            decode_levels(b->q + 16 * s, levels, f16_to_f32(b->d) * unit * scale, dst + 32 * s);
        }
    }
}

static void decode_iq4_xs(const void *src, float *dst, uint64_t n) {
    decode_fours(src, iq4_levels, 1, dst, n);
}

static void decode_iq3_xxs_w(const void *src, float *dst, uint64_t n) {
    decode_fours(src, iq3_xxs_levels, 0.25f, dst, n);
}

static void decode_iq3_s_w(const void *src, float *dst, uint64_t n) {
    decode_fours(src, iq3_s_levels, 1, dst, n);
}

#define WIDENED(name, TYPE)                                                                        \
    static void decode_##name(const void *src, float *dst, uint64_t n) {                           \
        qdecode_widened(QTYPE_##TYPE, src, dst, n);                                                \
    }
WIDENED(iq2_xxs, IQ2_XXS)
WIDENED(iq2_xs, IQ2_XS)
WIDENED(iq2_s, IQ2_S)
WIDENED(iq3_xxs, IQ3_XXS)
WIDENED(iq3_s, IQ3_S)
WIDENED(iq1_s, IQ1_S)
WIDENED(iq1_m, IQ1_M)
#undef WIDENED

/* ---- the table ---- */

#define ROW(name, codec, elems, bytes)                                                             \
    [QTYPE_##name] = {{QTYPE_##name, #name, elems, bytes}, decode_##codec, qencode_##codec}
#define ROW_OF(name, decode, encode, bytes)                                                        \
    [QTYPE_##name] = {{QTYPE_##name, #name, QK_ELEMS, bytes}, decode, encode}
static const struct row {
    struct qtype_info info;
    void (*decode)(const void *src, float *dst, uint64_t n);
    void (*encode)(const float *src, const float *w, void *dst, uint64_t n);
} rows[] = {
    ROW(F32, f32, 1, sizeof(float)),
    ROW(F16, f16, 1, sizeof(uint16_t)),
    ROW(BF16, bf16, 1, sizeof(uint16_t)),
    ROW(Q4_0, q4_0, Q_ELEMS, sizeof(struct q4_0_block)),
    ROW(Q4_1, q4_1, Q_ELEMS, sizeof(struct q4_1_block)),
    ROW(Q5_0, q5_0, Q_ELEMS, sizeof(struct q5_0_block)),
    ROW(Q5_1, q5_1, Q_ELEMS, sizeof(struct q5_1_block)),
    ROW(Q8_0, q8_0, Q_ELEMS, sizeof(struct q8_0_block)),
    ROW(Q2_K, q2_k, QK_ELEMS, sizeof(struct q2_k_block)),
    ROW(Q3_K, q3_k, QK_ELEMS, sizeof(struct q3_k_block)),
    ROW(Q4_K, q4_k, QK_ELEMS, sizeof(struct q4_k_block)),
    ROW(Q5_K, q5_k, QK_ELEMS, sizeof(struct q5_k_block)),
    ROW(Q6_K, q6_k, QK_ELEMS, sizeof(struct q6_k_block)),
    ROW(IQ4_NL, iq4_nl, Q_ELEMS, sizeof(struct iq4_nl_block)),
    ROW(IQ4_XS, iq4_xs, QK_ELEMS, sizeof(struct iq4_xs_block)),
    ROW(MXFP4, mxfp4, Q_ELEMS, sizeof(struct mxfp4_block)),
    [QTYPE_NVFP4] = {{QTYPE_NVFP4, "NVFP4", QNV_ELEMS, sizeof(struct nvfp4_block)},
                     decode_nvfp4,
                     NULL},
    ROW(IQ2_XXS, iq2_xxs, QK_ELEMS, 66),
    ROW(IQ2_XS, iq2_xs, QK_ELEMS, 74),
    ROW(IQ2_S, iq2_s, QK_ELEMS, 82),
    ROW(IQ3_XXS, iq3_xxs, QK_ELEMS, 98),
    ROW(IQ3_S, iq3_s, QK_ELEMS, 110),
    ROW(IQ1_S, iq1_s, QK_ELEMS, 50),
    ROW(IQ1_M, iq1_m, QK_ELEMS, 56),
    ROW_OF(TQ1_0, qdecode_tq1_0, qencode_tq1_0, 54),
    ROW_OF(TQ2_0, qdecode_tq2_0, qencode_tq2_0, 66),
    ROW_OF(IQ1_W, decode_iq1_w, NULL, sizeof(struct q3_k_block)),
    ROW_OF(IQ2_W, decode_iq2_w, NULL, sizeof(struct q3_k_block)),
    ROW_OF(IQ3_XXS_W, decode_iq3_xxs_w, NULL, sizeof(struct iq4_xs_block)),
    ROW_OF(IQ3_S_W, decode_iq3_s_w, NULL, sizeof(struct iq4_xs_block)),
};
#undef ROW
#undef ROW_OF

static const struct row *find_row(int type) {
    if (type < 0 || type >= (int)(sizeof rows / sizeof rows[0]) || !rows[type].decode) return NULL;
    return &rows[type];
}

const struct qtype_info *qtype_find(int type) {
    const struct row *row = find_row(type);
    return row ? &row->info : NULL;
}

bool qtype_is_wide(int type) {
    return type >= QTYPE_IQ1_W && type <= QTYPE_IQ3_S_W;
}

const char *qtype_name(int type) {
    static _Thread_local char text[24];
    const struct qtype_info *info = qtype_find(type);
    if (info) return info->name;
    snprintf(text, sizeof text, "type %d", type);
    return text;
}

bool qtype_bytes(int type, uint64_t n_rows, uint64_t n_cols, uint64_t *bytes) {
    const struct qtype_info *info = qtype_find(type);
    uint64_t row, all;
    if (!info || n_cols % info->block_elems) return false;
    if (!mem_mul(n_cols / info->block_elems, info->block_bytes, &row)) return false;
    if (!mem_mul(row, n_rows, &all)) return false;
    *bytes = all;
    return true;
}

void qtype_decode(int type, const void *src, float *dst, uint64_t n) {
    const struct row *row = find_row(type);
    if (row) row->decode(src, dst, n);
}

void qtype_encode(int type, const float *src, void *dst, uint64_t n) {
    const struct row *row = find_row(type);
    if (row && row->encode) row->encode(src, NULL, dst, n);
}

/* Weights relative to the largest of a block: none is 0, so no value is given up. */
static void scale_weights(const float *w, uint32_t n, float *out) {
    const float least = 0x1p-20f;
    float most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = w[i] > most ? w[i] : most;
    for (uint32_t i = 0; i < n; i++) {
        float share = most > 0 && w[i] > 0 ? w[i] / most : 0;
        out[i] = most == 0 ? 1 : share < least ? least : share;
    }
}

void qtype_encode_weighted(int type, const float *src, const float *weights, void *dst,
                           uint64_t n) {
    enum { CHUNK = 16 * QK_ELEMS };
    const struct row *row = find_row(type);
    float scaled[CHUNK];
    uint8_t *to = dst;
    if (!row || !row->encode) return;
    while (n) {
        uint64_t one = n < CHUNK ? n : CHUNK;
        for (uint64_t i = 0; i < one; i += row->info.block_elems)
            scale_weights(weights + i, row->info.block_elems, scaled + i);
        row->encode(src, scaled, to, one);
        to += one / row->info.block_elems * row->info.block_bytes;
        src += one, weights += one, n -= one;
    }
}
