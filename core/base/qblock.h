/* qblock.h - element types of tensors and the layout of quantized blocks, byte for byte.
 *
 * Numbers and layouts follow the GGUF specification (ggml type ids). Shared by C, Metal and CUDA:
 * plain structs only. A new type is a struct here, a row in qtype.c and kernels in core/backend. */
#ifndef INFERD_BASE_QBLOCK_H
#define INFERD_BASE_QBLOCK_H

#include <stdbool.h>
#include <stdint.h>

enum qtype { QTYPE_F32 = 0, QTYPE_F16 = 1, QTYPE_Q4_0 = 2, QTYPE_Q8_0 = 8, QTYPE_BF16 = 30 };

enum { Q8_0_ELEMS = 32, Q4_0_ELEMS = 32 };

/* Q8_0: 32 values, value i = d * q[i].
 *   byte  0  1 | 2 ........ 33
 *         d f16 | q[0..31] int8   */
struct q8_0_block {
    uint16_t d; /* IEEE half */
    int8_t q[Q8_0_ELEMS];
};

/* Q4_0: 32 values, value i = d * (nibble_i - 8); byte j holds value j in its low nibble and value
 * j + 16 in its high nibble.
 *   byte  0  1 | 2 ........ 17
 *         d f16 | q[0..15]        */
struct q4_0_block {
    uint16_t d; /* IEEE half */
    uint8_t q[Q4_0_ELEMS / 2];
};

_Static_assert(sizeof(struct q8_0_block) == 34, "Q8_0 block is 34 bytes");
_Static_assert(sizeof(struct q4_0_block) == 18, "Q4_0 block is 18 bytes");

struct qtype_info {
    int type;             /* enum qtype */
    const char *name;     /* "Q8_0" */
    uint32_t block_elems; /* values per block; a row is a whole number of blocks */
    uint32_t block_bytes;
};

/* NULL for a type that this build cannot read. */
const struct qtype_info *qtype_find(int type);
const char *qtype_name(int type); /* "type 23" style text for unknown ones, static storage */

/* Bytes of n_rows rows of n_cols values. false: unknown type, n_cols no multiple of the block, or
 * overflow. */
bool qtype_bytes(int type, uint64_t n_rows, uint64_t n_cols, uint64_t *bytes);

/* Plain decoder, the reference for every kernel: n values (a multiple of the block) from src to
 * dst (n) f32. */
void qtype_decode(int type, const void *src, float *dst, uint64_t n);

/* Plain encoder, round to nearest as the format's definition says: n values (n) f32 to dst. */
void qtype_encode(int type, const float *src, void *dst, uint64_t n);

/* IEEE half and bfloat16, round to nearest even. */
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float f);

#endif
