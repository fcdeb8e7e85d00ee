/* qiq.h - layouts of the blocks of the IQ1, IQ2, IQ3 and TQ types, as in ggml's ggml-common.h and
 * ggml-quants.c. Private to core/base. */
#ifndef INFERD_BASE_QIQ_H
#define INFERD_BASE_QIQ_H

#include "core/base/qblock.h"

/* Eight values share a grid index of IQ1 and IQ2, four one of IQ3; "group" is eight values, "run"
 * 32. Seven sign bits stand for eight: the number of negative values of a group is even. d is an
 * IEEE half. s is a small scale; a value is d * (2 s + 1) * coordinate * 1/8 (IQ2; IQ1: *
 * (coordinate + 1/8 or - 1/8)), 1/4 (IQ3_XXS) or 1 (IQ3_S). */

/* IQ2_XXS: run r is the eight bytes q[8 r ..]: indices of four groups, then four times seven sign
 * bits and four bits of scale. */
struct iq2_xxs_block {
    uint16_t d;
    uint8_t q[QK_ELEMS / 4];
};

/* IQ2_XS: group g: index in the low nine bits of q[g], signs in the high seven. Scales of 16
 * values: nibble k % 2 of scales[k / 2]. */
struct iq2_xs_block {
    uint16_t d;
    uint16_t q[QK_ELEMS / 8];
    uint8_t scales[QK_ELEMS / 32];
};

/* IQ2_S: index of group g: q[g], and bits 2 (g % 4) of high[g / 4]; all eight signs in signs[g];
 * scales as IQ2_XS. */
struct iq2_s_block {
    uint16_t d;
    uint8_t q[QK_ELEMS / 8];
    uint8_t signs[QK_ELEMS / 8];
    uint8_t high[QK_ELEMS / 32];
    uint8_t scales[QK_ELEMS / 32];
};

/* IQ3_XXS: indices of a group: q[2 g], q[2 g + 1]; signs and scale of run r: four bytes at
 * signs[4 r], as IQ2_XXS. */
struct iq3_xxs_block {
    uint16_t d;
    uint8_t q[QK_ELEMS / 4];
    uint8_t signs[QK_ELEMS / 8];
};

/* IQ3_S: the ninth bit of index i is bit i % 8 of high[i / 8]; scale of run r: nibble r % 2 of
 * scales[r / 2]. */
struct iq3_s_block {
    uint16_t d;
    uint8_t q[QK_ELEMS / 4];
    uint8_t high[QK_ELEMS / 32];
    uint8_t signs[QK_ELEMS / 8];
    uint8_t scales[QK_ELEMS / 64];
};

/* IQ1_S: run r: high[r] has three more index bits of each group, three bits of scale, and the sign
 * of the 1/8. */
struct iq1_s_block {
    uint16_t d;
    uint8_t q[QK_ELEMS / 8];
    uint16_t high[QK_ELEMS / 32];
};

/* IQ1_M: group g: nibble g % 2 of high[g / 2] has three more index bits and the sign of the 1/8.
 * scales: the scale of 16 values k is three bits at 3 (k % 4) of word k / 4; the top nibbles of the
 * four words are d, the lowest first. */
struct iq1_m_block {
    uint8_t q[QK_ELEMS / 8];
    uint8_t high[QK_ELEMS / 16];
    uint16_t scales[QK_ELEMS / 64];
};

/* TQ1_0: value = d * (digit - 1). A byte is five digits of base 3 as a binary fraction, rounded up:
 * digit n is the integer part of 3 * (byte * 3^n mod 256) / 256. q[0..31] hold values n * 32 ..,
 * q[32..47] values 160 + n * 16 .., high values 240 + n * 4 .. (four digits). */
struct tq1_0_block {
    uint8_t q[48];
    uint8_t high[4];
    uint16_t d;
};

/* TQ2_0: value = d * (q - 1), q two bits, laid out as Q2_K's. */
struct tq2_0_block {
    uint8_t q[QK_ELEMS / 4];
    uint16_t d;
};

_Static_assert(sizeof(struct iq2_xxs_block) == 66, "IQ2_XXS block is 66 bytes");
_Static_assert(sizeof(struct iq2_xs_block) == 74, "IQ2_XS block is 74 bytes");
_Static_assert(sizeof(struct iq2_s_block) == 82, "IQ2_S block is 82 bytes");
_Static_assert(sizeof(struct iq3_xxs_block) == 98, "IQ3_XXS block is 98 bytes");
_Static_assert(sizeof(struct iq3_s_block) == 110, "IQ3_S block is 110 bytes");
_Static_assert(sizeof(struct iq1_s_block) == 50, "IQ1_S block is 50 bytes");
_Static_assert(sizeof(struct iq1_m_block) == 56, "IQ1_M block is 56 bytes");
_Static_assert(sizeof(struct tq1_0_block) == 54, "TQ1_0 block is 54 bytes");
_Static_assert(sizeof(struct tq2_0_block) == 66, "TQ2_0 block is 66 bytes");

#endif
