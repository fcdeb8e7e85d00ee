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

/* Without a branch, and without subnormal numbers, which are slow. */
static inline float e4m3_to_f32(uint8_t b) {
    const uint32_t e = b >> 3 & 15, m = b & 7;
    const uint32_t normal = (b & 0x7f) == 0x7f ? 0x7fc00000 : (e + 120) << 23 | m << 20;
    const float small = (float)m * 0x1p-9f;
    uint32_t bits;
    float f;
    memcpy(&bits, &small, sizeof bits);
    bits = (e ? normal : bits) | (uint32_t)(b & 0x80) << 24;
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

static uint32_t word_at(const uint8_t *p, uint64_t i) {
    uint32_t w;
    memcpy(&w, p + 4 * i, sizeof w);
    return w;
}

/* q of row r, n columns from c on. */
static void load_integers(const struct hf_packed *k, uint64_t r, uint64_t c, uint64_t n,
                          int32_t *q) {
    const uint8_t *p = k->values->data;
    const uint64_t words = k->n_rows / 8, each = 1u << k->each_log2;
    const uint32_t bits = k->bits, mask = (1u << bits) - 1;
    const bool by_rows = k->order == HF_ORDER_ROWS;
    if (k->order == HF_ORDER_AWQ) {
        for (uint64_t i = 0; i < n; i++)
            q[i] = word_at(p, (c + i) * words + r / 8) >> 4 * awq_place[r % 8] & 15;
        return;
    }
    if (k->values->type == ST_I8) {
        for (uint64_t i = 0; i < n; i++)
            q[i] = (int8_t)p[r * k->row_bytes + c + i] + 128;
        return;
    }
    for (uint64_t i = 0; i < n;) {
        const uint64_t at = (c + i) >> k->each_log2, within = (c + i) & (each - 1);
        const uint64_t some = each - within < n - i ? each - within : n - i;
        uint32_t w = word_at(p, by_rows ? r * (k->row_bytes / 4) + at : at * k->n_rows + r);
        w >>= within * bits;
        for (uint64_t j = 0; j < some; j++, i++, w >>= bits)
            q[i] = (int32_t)(w & mask);
    }
}

void hf_packed_values(const struct hf_packed *k, uint64_t r, uint64_t c, uint64_t n, float *out) {
    const uint8_t *row = k->values->data + r * k->row_bytes;
    int32_t q[HF_PACKED_VALUES];
    if (k->kind == HF_INTEGERS) load_integers(k, r, c, n, q);
    for (uint64_t i = 0; i < n;) {
        const uint64_t g = group_of(k, c + i), next = (g + 1) * k->group_cols - c;
        const uint64_t stop = k->groups ? i + 1 : next < n ? next : n;
        const int32_t zero = k->kind == HF_INTEGERS ? zero_of(k, r, g) : 0;
        float scale = scale_of(k, r, g);
        if (k->kind == HF_E2M1) scale = k->divides ? scale / k->unit : scale * k->unit;
        if (k->kind == HF_E4M3)
            for (; i < stop; i++)
                out[i] = e4m3_to_f32(row[c + i]) * scale;
        else if (k->kind == HF_E2M1)
            for (; i < stop; i++)
                out[i] =
                    (float)mxfp4_levels[row[(c + i) / 2] >> (c + i) % 2 * 4 & 15] * 0.5f * scale;
        else
            for (; i < stop; i++)
                out[i] = (float)(q[i] - zero) * scale;
    }
}

/* Two rows of 16 nibbles. */
static void put_nibbles(const int32_t q[Q_ELEMS], int32_t add, uint8_t out[Q_ELEMS / 2]) {
    for (unsigned i = 0; i < Q_ELEMS / 2; i++)
        out[i] = (uint8_t)(((q[i] + add) & 15) | ((q[i + 16] + add) & 15) << 4);
}

void hf_packed_block(const struct hf_packed *k, int type, uint64_t r, uint64_t c, void *out) {
    const uint64_t g = group_of(k, c);
    const uint16_t d = f32_to_f16(scale_of(k, r, g));
    const int32_t zero = zero_of(k, r, g);
    int32_t q[Q_ELEMS];
    load_integers(k, r, c, Q_ELEMS, q);
    for (unsigned i = 0; i < Q_ELEMS; i++)
        q[i] -= zero;
    if (type == QTYPE_Q4_0) {
        struct q4_0_block b = {.d = d};
        put_nibbles(q, 8, b.q);
        memcpy(out, &b, sizeof b);
    } else if (type == QTYPE_Q5_0) {
        struct q5_0_block b = {.d = d};
        uint32_t high = 0;
        put_nibbles(q, 16, b.q);
        for (unsigned i = 0; i < Q_ELEMS; i++)
            high |= ((uint32_t)(q[i] + 16) >> 4 & 1) << i;
        memcpy(b.high, &high, sizeof high);
        memcpy(out, &b, sizeof b);
    } else {
        struct q8_0_block b = {.d = d};
        for (unsigned i = 0; i < Q_ELEMS; i++)
            b.q[i] = (int8_t)q[i];
        memcpy(out, &b, sizeof b);
    }
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
