/* qtype.c - the table of tensor element types with a plain decoder and encoder each. Pure. */
#include "core/base/qblock.h"

#include "core/base/mem.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct qtype_info types[] = {
    {QTYPE_F32, "F32", 1, 4},
    {QTYPE_F16, "F16", 1, 2},
    {QTYPE_BF16, "BF16", 1, 2},
    {QTYPE_Q8_0, "Q8_0", Q_ELEMS, sizeof(struct q8_0_block)},
    {QTYPE_Q4_0, "Q4_0", Q_ELEMS, sizeof(struct q4_0_block)},
};

const struct qtype_info *qtype_find(int type) {
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].type == type) return &types[i];
    return NULL;
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

static void decode_q8_0(const struct q8_0_block *b, float *dst) {
    float d = f16_to_f32(b->d);
    for (int i = 0; i < Q_ELEMS; i++)
        dst[i] = d * b->q[i];
}

static void decode_q4_0(const struct q4_0_block *b, float *dst) {
    float d = f16_to_f32(b->d);
    for (int i = 0; i < Q_ELEMS / 2; i++) {
        dst[i] = d * ((b->q[i] & 15) - 8);
        dst[i + Q_ELEMS / 2] = d * ((b->q[i] >> 4) - 8);
    }
}

void qtype_decode(int type, const void *src, float *dst, uint64_t n) {
    const uint16_t *half = src;
    switch (type) {
    case QTYPE_F32:
        memcpy(dst, src, n * sizeof *dst);
        break;
    case QTYPE_F16:
        for (uint64_t i = 0; i < n; i++)
            dst[i] = f16_to_f32(half[i]);
        break;
    case QTYPE_BF16:
        for (uint64_t i = 0; i < n; i++)
            dst[i] = bf16_to_f32(half[i]);
        break;
    case QTYPE_Q8_0:
        for (uint64_t i = 0; i < n / Q_ELEMS; i++)
            decode_q8_0((const struct q8_0_block *)src + i, dst + i * Q_ELEMS);
        break;
    case QTYPE_Q4_0:
        for (uint64_t i = 0; i < n / Q_ELEMS; i++)
            decode_q4_0((const struct q4_0_block *)src + i, dst + i * Q_ELEMS);
        break;
    default:
        break;
    }
}

static void encode_q8_0(const float *src, struct q8_0_block *b) {
    float amax = 0;
    for (int i = 0; i < Q_ELEMS; i++)
        amax = fmaxf(amax, fabsf(src[i]));
    float d = amax / 127, inverse = d > 0 ? 1 / d : 0;
    b->d = f32_to_f16(d);
    for (int i = 0; i < Q_ELEMS; i++)
        b->q[i] = (int8_t)roundf(src[i] * inverse);
}

/* The value of largest magnitude maps to -8, so that the whole range of a nibble is used. */
static void encode_q4_0(const float *src, struct q4_0_block *b) {
    float extreme = 0;
    for (int i = 0; i < Q_ELEMS; i++)
        if (fabsf(src[i]) > fabsf(extreme)) extreme = src[i];
    float d = extreme / -8, inverse = d != 0 ? 1 / d : 0;
    b->d = f32_to_f16(d);
    memset(b->q, 0, sizeof b->q);
    for (int i = 0; i < Q_ELEMS; i++) {
        float level = fminf(floorf(src[i] * inverse + 8.5f), 15);
        b->q[i % (Q_ELEMS / 2)] |= (uint8_t)((int)level << (i < Q_ELEMS / 2 ? 0 : 4));
    }
}

void qtype_encode(int type, const float *src, void *dst, uint64_t n) {
    uint16_t *half = dst;
    switch (type) {
    case QTYPE_F32:
        memcpy(dst, src, n * sizeof *src);
        break;
    case QTYPE_F16:
        for (uint64_t i = 0; i < n; i++)
            half[i] = f32_to_f16(src[i]);
        break;
    case QTYPE_BF16:
        for (uint64_t i = 0; i < n; i++)
            half[i] = f32_to_bf16(src[i]);
        break;
    case QTYPE_Q8_0:
        for (uint64_t i = 0; i < n / Q_ELEMS; i++)
            encode_q8_0(src + i * Q_ELEMS, (struct q8_0_block *)dst + i);
        break;
    case QTYPE_Q4_0:
        for (uint64_t i = 0; i < n / Q_ELEMS; i++)
            encode_q4_0(src + i * Q_ELEMS, (struct q4_0_block *)dst + i);
        break;
    default:
        break;
    }
}
