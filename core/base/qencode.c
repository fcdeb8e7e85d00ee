/* qencode.c - encoders of the plain types. Pure; any thread. */
#include "core/base/qtype_int.h"

#include <math.h>
#include <string.h>

void qencode_f32(const float *src, void *dst, uint64_t n) {
    memcpy(dst, src, n * sizeof *src);
}

void qencode_f16(const float *src, void *dst, uint64_t n) {
    uint16_t *half = dst;
    for (uint64_t i = 0; i < n; i++)
        half[i] = f32_to_f16(src[i]);
}

void qencode_bf16(const float *src, void *dst, uint64_t n) {
    uint16_t *half = dst;
    for (uint64_t i = 0; i < n; i++)
        half[i] = f32_to_bf16(src[i]);
}

void qencode_q8_0(const float *src, void *dst, uint64_t n) {
    struct q8_0_block *b = dst;
    for (; n; n -= Q_ELEMS, src += Q_ELEMS, b++) {
        float amax = 0;
        for (int i = 0; i < Q_ELEMS; i++)
            amax = fmaxf(amax, fabsf(src[i]));
        float d = amax / 127, inverse = d > 0 ? 1 / d : 0;
        b->d = f32_to_f16(d);
        for (int i = 0; i < Q_ELEMS; i++)
            b->q[i] = (int8_t)roundf(src[i] * inverse);
    }
}

/* The value of largest magnitude maps to -8, so that the whole range of a nibble is used. */
void qencode_q4_0(const float *src, void *dst, uint64_t n) {
    struct q4_0_block *b = dst;
    for (; n; n -= Q_ELEMS, src += Q_ELEMS, b++) {
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
}
