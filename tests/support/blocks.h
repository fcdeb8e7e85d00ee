/* blocks.h - blocks of every weight type made from random bytes and chosen scales, for tests that
 * must not depend on the encoders. Single thread. */
#ifndef INFERD_TESTS_BLOCKS_H
#define INFERD_TESTS_BLOCKS_H

#include "tests/support/be.h"

#include <float.h>
#include <stddef.h>

/* Offsets of a block's halves (MXFP4: its exponent byte). */
static const struct block_type {
    int type;
    uint32_t n_halves, half[2];
} block_types[] = {
    {QTYPE_F32, 0, {0}},
    {QTYPE_F16, 0, {0}},
    {QTYPE_BF16, 0, {0}},
    {QTYPE_Q8_0, 1, {offsetof(struct q8_0_block, d)}},
    {QTYPE_Q4_0, 1, {offsetof(struct q4_0_block, d)}},
    {QTYPE_Q4_1, 2, {offsetof(struct q4_1_block, d), offsetof(struct q4_1_block, m)}},
    {QTYPE_Q5_0, 1, {offsetof(struct q5_0_block, d)}},
    {QTYPE_Q5_1, 2, {offsetof(struct q5_1_block, d), offsetof(struct q5_1_block, m)}},
    {QTYPE_IQ4_NL, 1, {offsetof(struct iq4_nl_block, d)}},
    {QTYPE_MXFP4, 0, {0}},
    {QTYPE_Q2_K, 2, {offsetof(struct q2_k_block, d), offsetof(struct q2_k_block, dmin)}},
    {QTYPE_Q3_K, 1, {offsetof(struct q3_k_block, d)}},
    {QTYPE_Q4_K, 2, {offsetof(struct q4_k_block, d), offsetof(struct q4_k_block, dmin)}},
    {QTYPE_Q5_K, 2, {offsetof(struct q5_k_block, d), offsetof(struct q5_k_block, dmin)}},
    {QTYPE_Q6_K, 1, {offsetof(struct q6_k_block, d)}},
    {QTYPE_IQ4_XS, 1, {offsetof(struct iq4_xs_block, d)}},
    {QTYPE_IQ1_W, 1, {offsetof(struct q3_k_block, d)}},
    {QTYPE_IQ2_W, 1, {offsetof(struct q3_k_block, d)}},
    {QTYPE_IQ3_XXS_W, 1, {offsetof(struct iq4_xs_block, d)}},
    {QTYPE_IQ3_S_W, 1, {offsetof(struct iq4_xs_block, d)}},
};
enum { N_BLOCK_TYPES = sizeof block_types / sizeof block_types[0] };

static inline const struct block_type *block_type_of(int type) {
    for (int t = 0; t < N_BLOCK_TYPES; t++)
        if (block_types[t].type == type) return &block_types[t];
    return NULL;
}

static inline bool block_is_float(int type) {
    return type == QTYPE_F32 || type == QTYPE_F16 || type == QTYPE_BF16;
}

enum block_kind {
    BLOCK_SANE,
    BLOCK_ZERO_SCALE,
    BLOCK_DENORMAL,
    BLOCK_MAX_SCALE,
    BLOCK_ALL_BITS,
    BLOCK_ALL_EQUAL,
    BLOCK_ANY_BITS,
    N_BLOCK_KINDS
};

/* Sane: a scale from 2^-9 to 2^-1, either sign. */
static inline uint16_t block_half(enum block_kind kind) {
    uint16_t sign = be_rand() & 1 ? 0x8000 : 0;
    switch (kind) {
    case BLOCK_ZERO_SCALE:
        return sign;
    case BLOCK_DENORMAL:
        return (uint16_t)(sign | (1 + be_below(0x3ff)));
    case BLOCK_MAX_SCALE:
        return (uint16_t)(sign | 0x7bff);
    case BLOCK_ANY_BITS:
        return (uint16_t)be_rand();
    default:
        return (uint16_t)(sign | (6 + be_below(8)) << 10 | be_below(0x400));
    }
}

static inline uint8_t block_exponent(enum block_kind kind) {
    switch (kind) {
    case BLOCK_ZERO_SCALE:
        return 0;
    case BLOCK_DENORMAL:
        return (uint8_t)(1 + be_below(2));
    case BLOCK_MAX_SCALE:
        return (uint8_t)(253 + be_below(3));
    case BLOCK_ANY_BITS:
        return (uint8_t)be_rand();
    default:
        return (uint8_t)(119 + be_below(8));
    }
}

static inline void block_make(const struct block_type *t, enum block_kind kind, uint8_t *block) {
    uint32_t bytes = qtype_find(t->type)->block_bytes, equal = be_rand();
    for (uint32_t i = 0; i < bytes; i++)
        block[i] = (uint8_t)(kind == BLOCK_ALL_BITS    ? 0xff
                             : kind == BLOCK_ALL_EQUAL ? equal
                                                       : be_rand());
    for (uint32_t i = 0; i < t->n_halves; i++) {
        uint16_t h = block_half(kind);
        memcpy(block + t->half[i], &h, sizeof h);
    }
    if (t->type == QTYPE_MXFP4) block[0] = block_exponent(kind);
    if (block_is_float(t->type)) {
        float f = kind == BLOCK_MAX_SCALE ? FLT_MAX : kind == BLOCK_DENORMAL ? 1e-40f : be_real();
        if (kind != BLOCK_ANY_BITS) qtype_encode(t->type, &f, block, 1);
    }
}

#endif
