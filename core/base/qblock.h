/* qblock.h - element types of tensors and the layout of quantized blocks, byte for byte.
 *
 * Numbers and layouts follow the GGUF specification (ggml type ids). Shared by C, Metal and CUDA:
 * plain structs only. A new type is a struct here, a row in qtype.c and kernels in core/backend. */
#ifndef INFERD_BASE_QBLOCK_H
#define INFERD_BASE_QBLOCK_H

#if !defined(__METAL_VERSION__)
#include <stdbool.h>
#include <stdint.h>
#endif

enum qtype {
    QTYPE_F32 = 0,
    QTYPE_F16 = 1,
    QTYPE_Q4_0 = 2,
    QTYPE_Q4_1 = 3,
    QTYPE_Q5_0 = 6,
    QTYPE_Q5_1 = 7,
    QTYPE_Q8_0 = 8,
    QTYPE_Q2_K = 10,
    QTYPE_Q3_K = 11,
    QTYPE_Q4_K = 12,
    QTYPE_Q5_K = 13,
    QTYPE_Q6_K = 14,
    QTYPE_IQ2_XXS = 16,
    QTYPE_IQ2_XS = 17,
    QTYPE_IQ3_XXS = 18,
    QTYPE_IQ1_S = 19,
    QTYPE_IQ4_NL = 20,
    QTYPE_IQ3_S = 21,
    QTYPE_IQ2_S = 22,
    QTYPE_IQ4_XS = 23,
    QTYPE_IQ1_M = 29,
    QTYPE_BF16 = 30,
    QTYPE_TQ1_0 = 34,
    QTYPE_TQ2_0 = 35,
    QTYPE_MXFP4 = 39,
    QTYPE_NVFP4 = 40,
    /* In memory only, see qtype_widen. */
    QTYPE_IQ1_W = 60,
    QTYPE_IQ2_W = 61,
    QTYPE_IQ3_XXS_W = 62,
    QTYPE_IQ3_S_W = 63
};

/* Values per block: 32 for the plain types, 256 (a super-block) for the _K types and IQ4_XS. */
enum { Q_ELEMS = 32, QK_ELEMS = 256 };

/* ---- blocks of 32. d and m are IEEE halves. A nibble byte j holds value j in its low nibble and
 * value j + 16 in its high nibble. ---- */

/* Q8_0: value i = d * q[i]. */
struct q8_0_block {
    uint16_t d;
    int8_t q[Q_ELEMS];
};

/* Q4_0: value i = d * (nibble_i - 8). */
struct q4_0_block {
    uint16_t d;
    uint8_t q[Q_ELEMS / 2];
};

/* Q4_1: value i = d * nibble_i + m. */
struct q4_1_block {
    uint16_t d, m;
    uint8_t q[Q_ELEMS / 2];
};

/* Q5_0: value i = d * (nibble_i + 16 * bit_i - 16); bit_i is bit i % 8 of high[i / 8]. */
struct q5_0_block {
    uint16_t d;
    uint8_t high[Q_ELEMS / 8];
    uint8_t q[Q_ELEMS / 2];
};

/* Q5_1: value i = d * (nibble_i + 16 * bit_i) + m. */
struct q5_1_block {
    uint16_t d, m;
    uint8_t high[Q_ELEMS / 8];
    uint8_t q[Q_ELEMS / 2];
};

/* IQ4_NL: value i = d * iq4_levels[nibble_i]. */
struct iq4_nl_block {
    uint16_t d;
    uint8_t q[Q_ELEMS / 2];
};

/* MXFP4 (OCP Microscaling): value i = 2^(e - 127) * fp4_i with fp4 = sign, two exponent bits, one
 * mantissa bit: 0, .5, 1, 1.5, 2, 3, 4, 6. mxfp4_levels holds twice that, so value i =
 * 2^(e - 128) * mxfp4_levels[nibble_i]. e = 255, NaN in the OCP specification, is an ordinary
 * exponent, as in ggml; with the largest exponents the larger levels are infinite in f32. */
struct mxfp4_block {
    uint8_t e;
    uint8_t q[Q_ELEMS / 2];
};

/* NVFP4: four sub-blocks of 16. value i of sub-block s = scale(e[s]) / 2 * mxfp4_levels[nibble],
 * the nibble is the low one of q[8 s + i] for i < 8, else the high one of q[8 s + i - 8]. scale:
 * E4M3 without its sign, 0x7f is 0, as in ggml. A model multiplies a tensor by one more scale,
 * which GGUF files have as a tensor of its own (NAME.scale for NAME.weight; for experts one each).
 */
enum { QNV_ELEMS = 64 };
struct nvfp4_block {
    uint8_t e[QNV_ELEMS / 16];
    uint8_t q[QNV_ELEMS / 2];
};

/* ---- super-blocks of 256 values ---- */

/* Q2_K: 16 sub-blocks of 16. value = d * (scales[s] & 15) * q - dmin * (scales[s] >> 4), q two
 * bits. For half h (128 values), quarter t (32 values), value l of it: q = q[32 h + l] >> 2 t & 3,
 * in sub-block s = 8 h + 2 t + l / 16. */
struct q2_k_block {
    uint8_t scales[QK_ELEMS / 16];
    uint8_t q[QK_ELEMS / 4];
    uint16_t d, dmin;
};

/* Q3_K: 16 sub-blocks of 16. value = d * (scale_s - 32) * (q - 4), q three bits: the low two laid
 * out as Q2_K's, the third of value (h, t, l) is bit 4 h + t of high[l]. scale_s has six bits: the
 * low four in nibble s / 8 of scales[s % 8], the high two in bits 2 (s / 4) of scales[8 + s % 4].
 */
struct q3_k_block {
    uint8_t high[QK_ELEMS / 8];
    uint8_t q[QK_ELEMS / 4];
    uint8_t scales[12];
    uint16_t d;
};

/* Q4_K: 8 sub-blocks of 32. value = d * scale_s * q - dmin * min_s, q four bits: byte q[32 p + l]
 * holds value l of sub-block 2 p in its low and of sub-block 2 p + 1 in its high nibble. scale_s
 * and min_s have six bits. For s < 4 they are the low six bits of scales[s] and scales[s + 4]; for
 * s >= 4 their low four bits are the low and the high nibble of scales[s + 4], their high two bits
 * are the top two of scales[s - 4] and scales[s]. */
struct q4_k_block {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t q[QK_ELEMS / 2];
};

/* Q5_K: as Q4_K with q five bits: the fifth of value l of sub-block s is bit s of high[l]. */
struct q5_k_block {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t high[QK_ELEMS / 8];
    uint8_t q[QK_ELEMS / 2];
};

/* Q6_K: 16 sub-blocks of 16. value = d * scales[s] * (q - 32), q six bits. For half h, quarter t,
 * value l: low four bits in nibble t / 2 of low[64 h + 32 (t % 2) + l], high two in bits 2 t of
 * high[32 h + l]; s = 8 h + 2 t + l / 16. */
struct q6_k_block {
    uint8_t low[QK_ELEMS / 2];
    uint8_t high[QK_ELEMS / 4];
    int8_t scales[QK_ELEMS / 16];
    uint16_t d;
};

/* IQ4_XS: 8 sub-blocks of 32. value = d * (scale_s - 32) * iq4_levels[nibble]; sub-block s is
 * q[16 s ..] as IQ4_NL's. scale_s: low four bits in nibble s % 2 of scales_low[s / 2], high two in
 * bits 2 s of scales_high. */
struct iq4_xs_block {
    uint16_t d, scales_high;
    uint8_t scales_low[QK_ELEMS / 64];
    uint8_t q[QK_ELEMS / 2];
};

/* Wide types: what the IQ1, IQ2 and IQ3 types are in memory (qtype_widen).
 *   IQ1_W, IQ2_W      Q3_K's layout: value = d * (scale_s - 32) * levels[q] / 8
 *   IQ3_XXS_W         IQ4_XS's layout: value = d * (scale_s - 32) * levels[nibble] / 4
 *   IQ3_S_W           the same without the division
 * levels: iq1_levels (8 * coordinate + 1, q + 4: - 1), iq2_levels and so on; the highest bit of a
 * code is the sign (IQ1_W: of the 1). A q of 3 (7) does not occur; its level is 0. */

/* Device code (Metal, CUDA: dialects of C++) has its own decoders and tables of levels. */
#if !defined(__cplusplus)
extern const int8_t iq4_levels[16], mxfp4_levels[16];
/* The tables of eight levels are followed by themselves: a table lookup may use 16. */
extern const int8_t iq1_levels[16], iq2_levels[16], iq3_xxs_levels[16], iq3_s_levels[16];

_Static_assert(sizeof(struct q8_0_block) == 34, "Q8_0 block is 34 bytes");
_Static_assert(sizeof(struct q4_0_block) == 18, "Q4_0 block is 18 bytes");
_Static_assert(sizeof(struct q4_1_block) == 20, "Q4_1 block is 20 bytes");
_Static_assert(sizeof(struct q5_0_block) == 22, "Q5_0 block is 22 bytes");
_Static_assert(sizeof(struct q5_1_block) == 24, "Q5_1 block is 24 bytes");
_Static_assert(sizeof(struct iq4_nl_block) == 18, "IQ4_NL block is 18 bytes");
_Static_assert(sizeof(struct mxfp4_block) == 17, "MXFP4 block is 17 bytes");
_Static_assert(sizeof(struct nvfp4_block) == 36, "NVFP4 block is 36 bytes");
_Static_assert(sizeof(struct q2_k_block) == 84, "Q2_K block is 84 bytes");
_Static_assert(sizeof(struct q3_k_block) == 110, "Q3_K block is 110 bytes");
_Static_assert(sizeof(struct q4_k_block) == 144, "Q4_K block is 144 bytes");
_Static_assert(sizeof(struct q5_k_block) == 176, "Q5_K block is 176 bytes");
_Static_assert(sizeof(struct q6_k_block) == 210, "Q6_K block is 210 bytes");
_Static_assert(sizeof(struct iq4_xs_block) == 136, "IQ4_XS block is 136 bytes");

struct qtype_info {
    int type;             /* enum qtype */
    const char *name;     /* "Q8_0" */
    uint32_t block_elems; /* values per block; a row is a whole number of blocks */
    uint32_t block_bytes;
};

/* NULL for a type that this build does not know. */
const struct qtype_info *qtype_find(int type);
/* Is it a type in memory only, never in a file? */
bool qtype_is_wide(int type);
const char *qtype_name(int type); /* "type 23" for unknown ones; static storage */

/* Bytes of n_rows rows of n_cols values. false: unknown type, n_cols is not a multiple of the
 * block, or overflow. */
bool qtype_bytes(int type, uint64_t n_rows, uint64_t n_cols, uint64_t *bytes);

/* Plain decoder, the reference for every kernel: n values (a multiple of the block) from src to
 * dst (n) f32. */
void qtype_decode(int type, const void *src, float *dst, uint64_t n);

/* The type as which kernels know the weights of a file's type: the same one, or for NVFP4 and the
 * IQ1, IQ2, IQ3 and TQ types the one that qtype_widen converts to. Its blocks have at most as many
 * values. */
int qtype_wide(int type);
/* n values (a multiple of the block) from src (type) to dst (qtype_wide(type), not the same). The
 * values are the same bit for bit, except that a TQ block of infinite scale becomes NaN. */
void qtype_widen(int type, const void *src, void *dst, uint64_t n);

/* Encoder: n values (n, a multiple of the block) f32 to dst. The float types round to nearest even.
 * The others search scales (and minima) for a small squared error; the same input gives the same
 * bytes on every machine. They read NaN as 0 and clamp values, infinities included, to the type's
 * range (types with a minimum: the minimum's range); a block whose values are all too small for a
 * half scale becomes 0. NVFP4 and the wide types have no encoder: nothing is
 * written. */
void qtype_encode(int type, const float *src, void *dst, uint64_t n);
/* The same for a small sum of weights[i] * error[i]^2: of a value's importance, (n) finite numbers
 * of at least 0. Only their ratios within a block matter; all 0 is as if they were equal. */
void qtype_encode_weighted(int type, const float *src, const float *weights, void *dst, uint64_t n);

/* IEEE half and bfloat16, round to nearest even. */
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float f);
#endif

#endif
