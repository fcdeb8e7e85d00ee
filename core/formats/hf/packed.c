/* hf/packed.c - values of quantized weights as Hugging Face folders store them, and which of our
 * types says the same. Formulas, with q(r, c) for output r and input c:
 *   E4M3      value = q * scale                       FP8 (compressed-tensors, fp8 of transformers)
 *   E2M1      value = q * (scale * unit)              NVFP4; scale is E4M3, of 16 inputs
 *   integers  value = (q - zero) * scale              AWQ, GPTQ, compressed-tensors
 * Products are f32's, in this order, as in the libraries that wrote the files. Integers become
 * blocks of d * whole number without a rounding if their scales are halves; all else is rounded
 * once, to F16 or BF16. Pure; any thread: no state between calls. */
#include "core/formats/hf/model_int.h"

#include <math.h>
#include <string.h>

/* Where AutoAWQ puts output r % 8 in a word. */
static const uint8_t awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static float e4m3_to_f32(uint8_t b) {
    const uint32_t sign = (uint32_t)(b & 0x80) << 24, e = b >> 3 & 15, m = b & 7;
    uint32_t bits = sign | (e + 120) << 23 | m << 20;
    float f;
    if (e == 0) {
        f = (float)m * 0x1p-9f;
        return sign ? -f : f;
    }
    if (e == 15 && m == 7) bits = sign | 0x7fc00000;
    memcpy(&f, &bits, sizeof f);
    return f;
}

float hf_scale_at(const struct safetensor *s, uint64_t i) {
    uint16_t half;
    float f;
    switch (s->type) {
    case ST_F32:
        memcpy(&f, s->data + 4 * i, sizeof f);
        return f;
    case ST_F8_E4M3:
        return e4m3_to_f32(s->data[i]);
    default:
        memcpy(&half, s->data + 2 * i, sizeof half);
        return s->type == ST_F16 ? f16_to_f32(half) : bf16_to_f32(half);
    }
}

/* bits (2, 4 or 8) of a stream of little-endian words, from bit `at` on. */
static int32_t bits_at(const uint8_t *p, uint64_t at, uint32_t bits) {
    return p[at / 8] >> at % 8 & ((1 << bits) - 1);
}

static uint64_t group_of(const struct hf_packed *k, uint64_t c) {
    int32_t g;
    if (!k->groups) return c / k->group_cols;
    memcpy(&g, k->groups->data + 4 * c, sizeof g);
    return (uint64_t)g;
}

static float scale_of(const struct hf_packed *k, uint64_t r, uint64_t g) {
    return hf_scale_at(k->scales, r / k->group_rows * k->scale_row + g * k->scale_col);
}

static int32_t zero_of(const struct hf_packed *k, uint64_t r, uint64_t g) {
    const struct safetensor *z = k->zeros;
    const uint32_t log = k->each_log2;
    if (!z) return 1 << (k->bits - 1);
    switch (k->order) {
    case HF_ORDER_GPTQ:
        return bits_at(z->data, (g * k->n_rows + r) * k->bits, k->bits) + k->zero_plus;
    case HF_ORDER_AWQ:
        return bits_at(z->data, (g * (k->n_rows / 8) + r / 8) * 32 + 4 * awq_place[r % 8], 4);
    case HF_ORDER_ROWS:
        break;
    }
    if (z->type == ST_I8) return (int8_t)z->data[r * k->n_groups + g] + (1 << (k->bits - 1));
    return bits_at(z->data, ((r >> log) * k->n_groups + g) * 32 + (r - (r >> log << log)) * k->bits,
                   k->bits);
}

static int32_t integer_of(const struct hf_packed *k, uint64_t r, uint64_t c) {
    const uint64_t word = c >> k->each_log2, within = c - (word << k->each_log2);
    const uint8_t *p = k->values->data;
    switch (k->order) {
    case HF_ORDER_GPTQ:
        return bits_at(p, (word * k->n_rows + r) * 32 + within * k->bits, k->bits);
    case HF_ORDER_AWQ:
        return bits_at(p, (c * (k->n_rows / 8) + r / 8) * 32 + 4 * awq_place[r % 8], 4);
    case HF_ORDER_ROWS:
        break;
    }
    if (k->values->type == ST_I8) return (int8_t)p[r * k->row_bytes + c] + 128;
    return bits_at(p, r * k->row_bytes * 8 + c * k->bits, k->bits);
}

void hf_packed_values(const struct hf_packed *k, uint64_t r, uint64_t c, uint64_t n, float *out) {
    const uint8_t *row = k->values->data + r * k->row_bytes;
    const uint64_t end = c + n;
    while (c < end) {
        const uint64_t g = group_of(k, c), next = (g + 1) * k->group_cols;
        const uint64_t stop = k->groups ? c + 1 : next < end ? next : end;
        const int32_t zero = k->kind == HF_INTEGERS ? zero_of(k, r, g) : 0;
        float scale = scale_of(k, r, g);
        if (k->kind == HF_E2M1) scale = k->divides ? scale / k->unit : scale * k->unit;
        for (; c < stop; c++) {
            if (k->kind == HF_E4M3)
                *out++ = e4m3_to_f32(row[c]) * scale;
            else if (k->kind == HF_E2M1)
                *out++ = (float)mxfp4_levels[row[c / 2] >> (c % 2 ? 4 : 0) & 15] * 0.5f * scale;
            else
                *out++ = (float)(integer_of(k, r, c) - zero) * scale;
        }
    }
}

void hf_packed_block(const struct hf_packed *k, int type, uint64_t r, uint64_t c, void *out) {
    const uint64_t g = group_of(k, c);
    const uint16_t d = f32_to_f16(scale_of(k, r, g));
    const int32_t zero = zero_of(k, r, g);
    struct q4_0_block q4 = {.d = d};
    struct q5_0_block q5 = {.d = d};
    struct q8_0_block q8 = {.d = d};
    for (unsigned i = 0; i < Q_ELEMS; i++) {
        const int32_t q = integer_of(k, r, c + i) - zero;
        const unsigned shift = i < 16 ? 0 : 4, five = (unsigned)(q + 16);
        q8.q[i] = (int8_t)q;
        q4.q[i % 16] |= (uint8_t)((unsigned)(q + 8) << shift);
        q5.q[i % 16] |= (uint8_t)((five & 15) << shift);
        q5.high[i / 8] |= (uint8_t)((five >> 4 & 1) << i % 8);
    }
    if (type == QTYPE_Q4_0)
        memcpy(out, &q4, sizeof q4);
    else if (type == QTYPE_Q5_0)
        memcpy(out, &q5, sizeof q5);
    else
        memcpy(out, &q8, sizeof q8);
}

/* ---- the choice of a type ---- */

/* Are all zeros the middle of the range? */
static bool is_symmetric(const struct hf_packed *k) {
    if (!k->zeros) return true;
    for (uint64_t g = 0; g < k->n_groups; g++)
        for (uint64_t r = 0; r < k->n_rows; r++)
            if (zero_of(k, r, g) != 1 << (k->bits - 1)) return false;
    return true;
}

int hf_packed_type(const struct hf_packed *k) {
    bool halves = true;
    float most = 0;
    if (k->kind != HF_INTEGERS) return QTYPE_BF16;
    for (uint64_t i = 0; i < k->scales->n_elems; i++) {
        const float f = hf_scale_at(k->scales, i);
        halves = halves && isfinite(f) && f16_to_f32(f32_to_f16(f)) == f;
        most = fmaxf(most, fabsf(f));
    }
    const bool blocks = halves && !k->groups && k->n_cols % Q_ELEMS == 0 &&
                        (k->group_cols % Q_ELEMS == 0 || k->n_groups == 1);
    if (blocks && k->bits == 2) return QTYPE_Q4_0;
    if (blocks && is_symmetric(k)) return k->bits == 4 ? QTYPE_Q4_0 : QTYPE_Q8_0;
    if (blocks && k->bits == 4) return QTYPE_Q5_0;
    const bool fits = most * 256 < 65504;
    return k->scales->type == ST_F16 && fits ? QTYPE_F16 : QTYPE_BF16;
}
