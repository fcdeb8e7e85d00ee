/* gemm.h - matrix products of the CPU device: one design for 1 to 512 rows and every weight type.
 *
 * At load a weight is repacked into panels (N panels) of 16 outputs, interleaved so that a vector
 * of 16 lanes holds 16 outputs (panel.c; the size stays that of the file). A product walks a panel
 * by K blocks of 256 columns: `unpack` turns a K block into a tile of plain 8-bit codes with f32
 * scales (floats: f32 values) in the first-level cache, `multiply` runs all rows of the task over
 * it. Only unpack knows the type. No sum crosses lanes.
 *
 * Every instruction set computes the SAME BITS, generic included: integer sums are exact, and the
 * f32 operations and their order are prescribed below. A row's result depends only on that row and
 * the weight.
 *
 * ACTIVATIONS are quantized in blocks of 32 columns: x = d * q with q in [-127, 127] (one plane) or
 * q = 254 * hi + lo with hi, lo in [-127, 127] (two planes: 16 bits, for exactness at twice the
 * work; 254 and not 256, so that no byte is -128 and pair sums of |w| <= 128 fit int16).
 *   a = max |x|;  d = a / Q with Q = 127 or 32385;  q = round to nearest even (x * (Q / a)),
 *   clamped to [-Q, Q]. If two pairs hi, lo give the same q, either is allowed.
 *   a below 1e-30: d = 0, q = 0.  a not finite, or a NaN among x: d = NaN, q = 0.
 *
 * PRODUCT of row r and output o, I = sum of w * q over a block (int32, exact; halves: I0, I1 over
 * its first and last 16 columns), all in f32, fma rounded once, blocks in ascending order:
 *   acc = 0
 *   t = (float)I * scale[b][o]                                        plain types
 *   t = fma((float)I1, scale[2b+1][o], (float)I0 * scale[2b][o])      types with halves
 *   acc = fma(t, d[b], acc)
 *   acc = fma(min[b][o], s[b], acc)                                   types with mins
 *   acc = fma(min[2b][o], s0[b], acc); acc = fma(min[2b+1][o], s1[b], acc)   mins of halves (Q2_K)
 *   float types: acc = fma(x[c], w[c][o], acc), columns in ascending order
 *   y = acc (+ bias) (* y_scale); the epilogue (activations, soft-cap) may round differently in
 *       each instruction set
 * scale and min are those of the format: scale = d * sub-scale, one multiplication in f32 (wide
 * types: * the power of two of qblock.h, exact); min is
 * the signed constant that is added to each weight of the block: m, or -(dmin * sub-min).
 * (float) of an int32 rounds to nearest even. The bits of a NaN are not prescribed.
 *
 * Pure functions; any thread. */
#ifndef INFERD_BACKEND_CPU_GEMM_GEMM_H
#define INFERD_BACKEND_CPU_GEMM_GEMM_H

#include "core/base/qblock.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    GEMM_OUTS = 16,  /* outputs of a panel */
    GEMM_PANELS = 2, /* panels of a pair, multiplied together */
    GEMM_COLS = 256, /* columns of a K block; the last one of a panel may have fewer */
    GEMM_BLOCK = 32, /* columns that share an activation scale */
    GEMM_BLOCKS = GEMM_COLS / GEMM_BLOCK,
    GEMM_ROWS = 128, /* maximum rows of a task */
    GEMM_Q8 = 127,
    GEMM_PLANE = 254, /* of the first of two planes */
    GEMM_Q16 = GEMM_PLANE * 127 + 127
};

/* ---- panels (panel.c) ---- */

/* Panels of a weight come in pairs, of 32 outputs; an odd last panel is alone. A pair (n_panels 2
 * or 1) holds the first K blocks of its panels, then their second ones, and so on, so that a
 * product of both reads one sequential stream. A K block takes 16 times the bytes of its columns in
 * a row of the file. nb = blocks of 32 columns in the K block (8; fewer in the last one of a type
 * with blocks of 32). A K block holds the scales first, then the planes of each block of 32
 * columns.
 *
 * Scales, by type ([..][16] means: one for each output, consecutive):
 *   Q8_0 Q4_0 Q5_0 IQ4_NL   f16 d[nb][16]
 *   Q4_1 Q5_1               f16 d[nb][16], f16 m[nb][16]
 *   MXFP4                   u8 e[nb][16]
 *   Q4_K Q5_K               f16 d[16], f16 dmin[16], six[8] of scales, six[8] of mins
 *   Q6_K                    f16 d[16], i8 scale[16][16]        (16 sub-blocks of 16 columns)
 *   Q3_K IQ1_W IQ2_W        f16 d[16], six[16] of scales
 *   Q2_K                    f16 d[16], f16 dmin[16], u8 scale | min << 4 [16][16]
 *   IQ4_XS IQ3_*_W          f16 d[16], six[8] of scales
 * six[n], n six-bit numbers for each output: u8 low[n / 2][16] (number s: nibble s % 2 of
 * low[s / 2]), then u8 high[n / 4][16] (number s: bits 2 (s % 4) of high[s / 4]). They are stored
 * as in the file: Q3_K, IQ4_XS and the wide types subtract 32 when they are used. Types come as
 * kernels know them (qtype_wide).
 *
 * Planes of a block. Group g (0..7) is columns 4g..4g+3: 64 bytes [16 outputs][4 columns].
 *   bytes    Q8_0                              8 x 64: byte of group g in vector g (signed)
 *   nibbles  Q4_* Q5_* Q6_K IQ3_*_W IQ4_* MXFP4
 *                                              4 x 64: groups v and v + 4 in the low and the high
 *                                              nibble of vector v
 *   twos     Q2_K, Q3_K IQ1_W IQ2_W (low bits), Q6_K (high)
 *                                              2 x 64: group g in bits 2 (g % 4) of vector g / 4
 *   ones     Q5_* Q3_K IQ1_W IQ2_W (high bit)  1 x 64: group g in bit g
 * A type with several has them in the order nibbles, twos, ones.
 *
 * Floats have no blocks: F32 f32[columns][16]; F16 u16[columns][16]; BF16 u16[columns / 2, rounded
 * up][16][2], a missing odd column is zero. n_in may be any number; K blocks have 256 columns here,
 * too.
 *
 * Outputs beyond n_out in the last panel are zero bytes (zero scales, zero codes). */

/* Are there products for weights of this type? */
bool gemm_has_type(int type);
/* Bytes of a panel's K block of n_cols columns, of a panel, and of all panels of a weight (false:
 * overflow). n_in is a multiple of the type's block. */
uint64_t gemm_k_block_bytes(int type, uint32_t n_cols);
uint64_t gemm_panel_bytes(int type, uint32_t n_in);
bool gemm_weight_bytes(int type, uint64_t n_out, uint64_t n_in, uint64_t *bytes);
/* Repacks n_outs (1..32) rows of a file's tensor, row_bytes apart, into a pair of panels at dst; up
 * to 16 into one panel. */
void gemm_pack_pair(int type, const uint8_t *rows, uint64_t row_bytes, uint32_t n_outs,
                    uint32_t n_in, uint8_t *dst);

/* The type's table of 16 levels, by code; NULL: codes are numbers. */
static inline const int8_t *gemm_levels(int type) {
    switch (type) {
    case QTYPE_IQ4_NL:
    case QTYPE_IQ4_XS:
        return iq4_levels;
    case QTYPE_MXFP4:
        return mxfp4_levels;
    case QTYPE_IQ1_W:
        return iq1_levels;
    case QTYPE_IQ2_W:
        return iq2_levels;
    case QTYPE_IQ3_XXS_W:
        return iq3_xxs_levels;
    case QTYPE_IQ3_S_W:
        return iq3_s_levels;
    default:
        return (const int8_t *)0;
    }
}

/* ---- activations ---- */

/* Scale and sums of 32 quantized columns of a row. */
struct gemm_block {
    float d;           /* x = d * q */
    float s, s0, s1;   /* d * (float)n, d * (float)n0, d * (float)n1 */
    int32_t n, n0, n1; /* sum of q over the block, its first and its last 16 columns */
    int32_t unused;
};

/* Rows as multiply reads them. Quantized weights read q and blocks, float weights x. */
struct gemm_rows {
    const float *x;     /* (n_rows, x_stride) */
    const int8_t *q[2]; /* planes (n_rows, q_stride): hi (or the only one), lo (NULL: one plane) */
    const struct gemm_block *blocks; /* (n_rows, blocks_stride) */
    uint64_t x_stride, q_stride, blocks_stride;
};

/* ---- kernels: one table for each instruction set ---- */

/* An unpacked K block of one panel, in memory of one thread. Each instruction set chooses the bias
 * and order of codes: only multiply of the same set reads what unpack wrote. */
struct gemm_tile {
    union {
        _Alignas(64) uint8_t q[GEMM_COLS / 4][GEMM_OUTS][4]; /* (group, output, column) */
        _Alignas(64) float f[GEMM_COLS][GEMM_OUTS];          /* (column, output) */
    };
    _Alignas(64) float scale[GEMM_COLS / 16][GEMM_OUTS]; /* (block or half, output) */
    _Alignas(64) float min[GEMM_COLS / 16][GEMM_OUTS];   /* likewise */
};

/* acc (n_rows, n_panels * 16) f32, rows 32 floats apart, continued over the K block's columns. */
struct gemm_job {
    int type;                     /* enum qtype of the weight */
    const struct gemm_tile *tile; /* (n_panels) */
    uint32_t n_panels;            /* 1 or 2 */
    uint32_t n_rows;              /* 1..GEMM_ROWS */
    uint32_t n_cols;              /* of this K block */
    struct gemm_rows x;           /* pointers stand at row 0, first column of the K block */
    float *acc;                   /* (n_rows, GEMM_PANELS * GEMM_OUTS), 64-byte aligned */
    bool first;                   /* acc starts at zero and need not be read */
};

struct gemm_isa {
    const char *name; /* "avx512" */
    /* n (a multiple of 32) values of one row -> q[0] (, q[1] if not NULL), blocks (n / 32). */
    void (*quantize)(const float *x, uint32_t n, int8_t *const q[2], struct gemm_block *blocks);
    /* src: a panel's K block of n_cols columns, unaligned; reads nothing after it. src must stay
     * valid until the last multiply of the tile, which may read it. */
    void (*unpack)(int type, const uint8_t *src, uint32_t n_cols, struct gemm_tile *tile);
    void (*multiply)(const struct gemm_job *j);
};

extern const struct gemm_isa gemm_generic;
#if defined(__x86_64__)
extern const struct gemm_isa gemm_avx2, gemm_avxvnni, gemm_avx512;
#elif defined(__aarch64__)
extern const struct gemm_isa gemm_neon, gemm_i8mm;
#endif

/* The i-th table that this machine can run: best first, generic last, then NULL. */
const struct gemm_isa *gemm_isa_at(uint32_t i);

#endif
