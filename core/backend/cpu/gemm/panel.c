/* panel.c - repacks weights from the file's order into panels, and computes their sizes.
 *
 * gemm.h describes the layout. Nothing is rounded: bits only move. Loading a model is bound by this
 * code, so it reads and writes four bytes at a time. Pure functions; any thread. */
#include "core/backend/cpu/gemm/gemm.h"

#include "core/base/mem.h"

#include <stddef.h>
#include <string.h>

/* One output's part of one K block. */
struct lane {
    uint8_t *scales; /* the K block's first byte */
    uint8_t *planes; /* first byte of its planes, at this output's four bytes of vector 0 */
    uint32_t out;    /* 0..15 */
    uint32_t n_blocks;
};

struct layout {
    int type;
    uint16_t block_elems, block_bytes; /* as in the file */
    uint8_t scale_bytes;               /* of block_bytes; the rest are planes */
    uint8_t n_vectors;                 /* of 64 bytes, for 32 columns */
    void (*pack)(const uint8_t *src, const struct lane *lane);
};

/* ---- pieces ---- */

static uint32_t get_word(const uint8_t *p) {
    uint32_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

/* Four columns of this output. */
static void put_word(uint8_t *planes, uint32_t vector, uint32_t word) {
    memcpy(planes + 64 * vector, &word, sizeof word);
}

/* Copies an f16 to this output's element of row `array` of an array [..][16]. */
static void put_f16(const struct lane *l, uint32_t array, const uint8_t *src) {
    memcpy(l->scales + 2 * (16 * array + l->out), src, 2);
}

/* Nibbles of 32 values: the file's order is the panel's. */
static void put_nibbles(const uint8_t *src, uint8_t *planes) {
    for (uint32_t v = 0; v < 4; v++)
        put_word(planes, v, get_word(src + 4 * v));
}

/* Splits 32 bytes into two blocks: one in the low nibbles, one in the high ones. */
static void split_nibbles(const uint8_t *src, uint8_t *low, uint8_t *high) {
    for (uint32_t v = 0; v < 4; v++) {
        uint32_t a = get_word(src + 4 * v), b = get_word(src + 16 + 4 * v);
        put_word(low, v, (a & 0x0f0f0f0f) | (b & 0x0f0f0f0f) << 4);
        put_word(high, v, (a >> 4 & 0x0f0f0f0f) | (b & 0xf0f0f0f0));
    }
}

/* Swaps the bits mask << shift of *a with the bits mask of *b. */
static void swap_bits(uint32_t *a, uint32_t *b, int shift, uint32_t mask) {
    uint32_t differ = (*a >> shift ^ *b) & mask;
    *b ^= differ;
    *a ^= differ << shift;
}

/* Splits 32 bytes into four blocks of two-bit numbers: transposes the 4 x 4 matrix (group, block)
 * in each byte column. apart: bytes from one block's planes to the next one's. */
static void split_twos(const uint8_t *src, uint8_t *planes, uint32_t apart) {
    for (uint32_t v = 0; v < 2; v++) {
        uint32_t w[4];
        for (uint32_t i = 0; i < 4; i++)
            w[i] = get_word(src + 16 * v + 4 * i);
        swap_bits(&w[0], &w[1], 2, 0x33333333);
        swap_bits(&w[2], &w[3], 2, 0x33333333);
        swap_bits(&w[0], &w[2], 4, 0x0f0f0f0f);
        swap_bits(&w[1], &w[3], 4, 0x0f0f0f0f);
        for (uint32_t i = 0; i < 4; i++)
            put_word(planes + i * apart, v, w[i]);
    }
}

/* Splits 32 bytes into eight blocks of single bits: transposes 8 x 8 bits (group, block). */
static void split_ones(const uint8_t *src, uint8_t *planes, uint32_t apart) {
    uint32_t w[8];
    for (uint32_t i = 0; i < 8; i++)
        w[i] = get_word(src + 4 * i);
    for (uint32_t i = 0; i < 8; i += 2)
        swap_bits(&w[i], &w[i + 1], 1, 0x55555555);
    for (uint32_t i = 0; i < 8; i++)
        if (!(i & 2)) swap_bits(&w[i], &w[i + 2], 2, 0x33333333);
    for (uint32_t i = 0; i < 4; i++)
        swap_bits(&w[i], &w[i + 4], 4, 0x0f0f0f0f);
    for (uint32_t i = 0; i < 8; i++)
        put_word(planes + i * apart, 0, w[i]);
}

/* Moves bit 4 g + c of h (column c of group g) to bit g of byte c: rotates the bit index by two
 * places, each a perfect unshuffle (even bits to the low half). */
static uint32_t spread_ones(uint32_t h) {
    for (int i = 0; i < 2; i++) {
        uint32_t t = (h ^ h >> 1) & 0x22222222;
        h ^= t ^ t << 1;
        t = (h ^ h >> 2) & 0x0c0c0c0c;
        h ^= t ^ t << 2;
        t = (h ^ h >> 4) & 0x00f000f0;
        h ^= t ^ t << 4;
        t = (h ^ h >> 8) & 0x0000ff00;
        h ^= t ^ t << 8;
    }
    return h;
}

/* Writes this output's n numbers into the array six[n] (gemm.h) at base. */
static void put_six(uint8_t *base, uint32_t out, const uint8_t *six, uint32_t n) {
    for (uint32_t s = 0; s < n; s += 2)
        base[16 * (s / 2) + out] = (uint8_t)((six[s] & 15) | six[s + 1] << 4);
    base += 8 * n;
    for (uint32_t s = 0; s < n; s += 4)
        base[16 * (s / 4) + out] = (uint8_t)(six[s] >> 4 | (six[s + 1] & 0x30) >> 2 |
                                             (six[s + 2] & 0x30) | (six[s + 3] & 0x30) << 2);
}

/* ---- types with blocks of 32 ---- */

static void pack_q8_0(const uint8_t *src, const struct lane *l) {
    uint8_t *planes = l->planes;
    for (uint32_t b = 0; b < l->n_blocks; b++, src += sizeof(struct q8_0_block), planes += 512) {
        put_f16(l, b, src + offsetof(struct q8_0_block, d));
        for (uint32_t v = 0; v < 8; v++)
            put_word(planes, v, get_word(src + offsetof(struct q8_0_block, q) + 4 * v));
    }
}

static void pack_q4_0(const uint8_t *src, const struct lane *l) {
    uint8_t *planes = l->planes;
    for (uint32_t b = 0; b < l->n_blocks; b++, src += sizeof(struct q4_0_block), planes += 256) {
        put_f16(l, b, src + offsetof(struct q4_0_block, d));
        put_nibbles(src + offsetof(struct q4_0_block, q), planes);
    }
}

static void pack_q4_1(const uint8_t *src, const struct lane *l) {
    uint8_t *planes = l->planes;
    for (uint32_t b = 0; b < l->n_blocks; b++, src += sizeof(struct q4_1_block), planes += 256) {
        put_f16(l, b, src + offsetof(struct q4_1_block, d));
        put_f16(l, l->n_blocks + b, src + offsetof(struct q4_1_block, m));
        put_nibbles(src + offsetof(struct q4_1_block, q), planes);
    }
}

static void pack_q5_0(const uint8_t *src, const struct lane *l) {
    uint8_t *planes = l->planes;
    for (uint32_t b = 0; b < l->n_blocks; b++, src += sizeof(struct q5_0_block), planes += 320) {
        put_f16(l, b, src + offsetof(struct q5_0_block, d));
        put_nibbles(src + offsetof(struct q5_0_block, q), planes);
        put_word(planes, 4, spread_ones(get_word(src + offsetof(struct q5_0_block, high))));
    }
}

static void pack_q5_1(const uint8_t *src, const struct lane *l) {
    uint8_t *planes = l->planes;
    for (uint32_t b = 0; b < l->n_blocks; b++, src += sizeof(struct q5_1_block), planes += 320) {
        put_f16(l, b, src + offsetof(struct q5_1_block, d));
        put_f16(l, l->n_blocks + b, src + offsetof(struct q5_1_block, m));
        put_nibbles(src + offsetof(struct q5_1_block, q), planes);
        put_word(planes, 4, spread_ones(get_word(src + offsetof(struct q5_1_block, high))));
    }
}

static void pack_mxfp4(const uint8_t *src, const struct lane *l) {
    uint8_t *planes = l->planes;
    for (uint32_t b = 0; b < l->n_blocks; b++, src += sizeof(struct mxfp4_block), planes += 256) {
        l->scales[16 * b + l->out] = src[offsetof(struct mxfp4_block, e)];
        put_nibbles(src + offsetof(struct mxfp4_block, q), planes);
    }
}

/* ---- super-blocks ---- */

/* Q4_K and Q5_K: f16 d[16], f16 dmin[16], six[8] of scales, six[8] of mins. */
static void pack_scales_mins(const uint8_t *d, const uint8_t *dmin, const uint8_t *packed,
                             const struct lane *l) {
    uint8_t scale[8], min[8];
    put_f16(l, 0, d);
    put_f16(l, 1, dmin);
    for (uint32_t s = 0; s < 4; s++) {
        scale[s] = packed[s] & 63;
        min[s] = packed[s + 4] & 63;
        scale[s + 4] = (uint8_t)((packed[s + 8] & 15) | packed[s] >> 6 << 4);
        min[s + 4] = (uint8_t)(packed[s + 8] >> 4 | packed[s + 4] >> 6 << 4);
    }
    put_six(l->scales + 64, l->out, scale, 8);
    put_six(l->scales + 64 + 96, l->out, min, 8);
}

static void pack_q4_k(const uint8_t *src, const struct lane *l) {
    pack_scales_mins(src + offsetof(struct q4_k_block, d), src + offsetof(struct q4_k_block, dmin),
                     src + offsetof(struct q4_k_block, scales), l);
    src += offsetof(struct q4_k_block, q);
    for (uint32_t p = 0; p < 4; p++)
        split_nibbles(src + 32 * p, l->planes + 512 * p, l->planes + 512 * p + 256);
}

static void pack_q5_k(const uint8_t *src, const struct lane *l) {
    const uint8_t *q = src + offsetof(struct q5_k_block, q);
    pack_scales_mins(src + offsetof(struct q5_k_block, d), src + offsetof(struct q5_k_block, dmin),
                     src + offsetof(struct q5_k_block, scales), l);
    for (uint32_t p = 0; p < 4; p++)
        split_nibbles(q + 32 * p, l->planes + 640 * p, l->planes + 640 * p + 320);
    split_ones(src + offsetof(struct q5_k_block, high), l->planes + 256, 320);
}

static void pack_q6_k(const uint8_t *src, const struct lane *l) {
    const uint8_t *low = src + offsetof(struct q6_k_block, low);
    const uint8_t *high = src + offsetof(struct q6_k_block, high);
    const uint8_t *scale = src + offsetof(struct q6_k_block, scales);
    put_f16(l, 0, src + offsetof(struct q6_k_block, d));
    for (uint32_t s = 0; s < 16; s++)
        l->scales[32 + 16 * s + l->out] = scale[s];
    for (uint32_t h = 0; h < 2; h++) {
        uint8_t *planes = l->planes + h * 4 * 384;
        split_nibbles(low + 64 * h, planes, planes + 2 * 384);
        split_nibbles(low + 64 * h + 32, planes + 384, planes + 3 * 384);
        split_twos(high + 32 * h, planes + 256, 384);
    }
}

static void pack_q3_k(const uint8_t *src, const struct lane *l) {
    const uint8_t *packed = src + offsetof(struct q3_k_block, scales);
    uint8_t scale[16];
    put_f16(l, 0, src + offsetof(struct q3_k_block, d));
    for (uint32_t s = 0; s < 16; s++)
        scale[s] = (uint8_t)((packed[s % 8] >> (4 * (s / 8)) & 15) |
                             (packed[8 + s % 4] >> (2 * (s / 4)) & 3) << 4);
    put_six(l->scales + 32, l->out, scale, 16);
    for (uint32_t h = 0; h < 2; h++)
        split_twos(src + offsetof(struct q3_k_block, q) + 32 * h, l->planes + h * 4 * 192, 192);
    split_ones(src + offsetof(struct q3_k_block, high), l->planes + 128, 192);
}

static void pack_q2_k(const uint8_t *src, const struct lane *l) {
    put_f16(l, 0, src + offsetof(struct q2_k_block, d));
    put_f16(l, 1, src + offsetof(struct q2_k_block, dmin));
    for (uint32_t s = 0; s < 16; s++)
        l->scales[64 + 16 * s + l->out] = src[offsetof(struct q2_k_block, scales) + s];
    for (uint32_t h = 0; h < 2; h++)
        split_twos(src + offsetof(struct q2_k_block, q) + 32 * h, l->planes + h * 4 * 128, 128);
}

static void pack_iq4_xs(const uint8_t *src, const struct lane *l) {
    const uint8_t *low = src + offsetof(struct iq4_xs_block, scales_low);
    const uint8_t *high = src + offsetof(struct iq4_xs_block, scales_high);
    uint32_t highs = (uint32_t)high[0] | (uint32_t)high[1] << 8;
    uint8_t scale[8];
    put_f16(l, 0, src + offsetof(struct iq4_xs_block, d));
    for (uint32_t s = 0; s < 8; s++)
        scale[s] = (uint8_t)((low[s / 2] >> (4 * (s % 2)) & 15) | (highs >> (2 * s) & 3) << 4);
    put_six(l->scales + 32, l->out, scale, 8);
    src += offsetof(struct iq4_xs_block, q);
    for (uint32_t s = 0; s < 8; s++)
        put_nibbles(src + 16 * s, l->planes + 256 * s);
}

/* ---- the types ---- */

static const struct layout layouts[] = {
    {QTYPE_F32, 1, 4, 0, 0, NULL},
    {QTYPE_F16, 1, 2, 0, 0, NULL},
    {QTYPE_BF16, 1, 2, 0, 0, NULL},
    {QTYPE_Q8_0, Q_ELEMS, sizeof(struct q8_0_block), 2, 8, pack_q8_0},
    {QTYPE_Q4_0, Q_ELEMS, sizeof(struct q4_0_block), 2, 4, pack_q4_0},
    {QTYPE_Q4_1, Q_ELEMS, sizeof(struct q4_1_block), 4, 4, pack_q4_1},
    {QTYPE_Q5_0, Q_ELEMS, sizeof(struct q5_0_block), 2, 5, pack_q5_0},
    {QTYPE_Q5_1, Q_ELEMS, sizeof(struct q5_1_block), 4, 5, pack_q5_1},
    {QTYPE_IQ4_NL, Q_ELEMS, sizeof(struct iq4_nl_block), 2, 4, pack_q4_0},
    {QTYPE_MXFP4, Q_ELEMS, sizeof(struct mxfp4_block), 1, 4, pack_mxfp4},
    {QTYPE_Q2_K, QK_ELEMS, sizeof(struct q2_k_block), 20, 2, pack_q2_k},
    {QTYPE_Q3_K, QK_ELEMS, sizeof(struct q3_k_block), 14, 3, pack_q3_k},
    {QTYPE_Q4_K, QK_ELEMS, sizeof(struct q4_k_block), 16, 4, pack_q4_k},
    {QTYPE_Q5_K, QK_ELEMS, sizeof(struct q5_k_block), 16, 5, pack_q5_k},
    {QTYPE_Q6_K, QK_ELEMS, sizeof(struct q6_k_block), 18, 6, pack_q6_k},
    {QTYPE_IQ4_XS, QK_ELEMS, sizeof(struct iq4_xs_block), 8, 4, pack_iq4_xs},
    {QTYPE_IQ1_W, QK_ELEMS, sizeof(struct q3_k_block), 14, 3, pack_q3_k},
    {QTYPE_IQ2_W, QK_ELEMS, sizeof(struct q3_k_block), 14, 3, pack_q3_k},
    {QTYPE_IQ3_XXS_W, QK_ELEMS, sizeof(struct iq4_xs_block), 8, 4, pack_iq4_xs},
    {QTYPE_IQ3_S_W, QK_ELEMS, sizeof(struct iq4_xs_block), 8, 4, pack_iq4_xs},
};

static const struct layout *layout_of(int type) {
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        if (layouts[i].type == type) return &layouts[i];
    return NULL;
}

bool gemm_has_type(int type) {
    return layout_of(type) != NULL;
}

uint64_t gemm_k_block_bytes(int type, uint32_t n_cols) {
    const struct layout *l = layout_of(type);
    if (type == QTYPE_BF16) n_cols += n_cols & 1;
    return (uint64_t)GEMM_OUTS * (n_cols / l->block_elems) * l->block_bytes;
}

uint64_t gemm_panel_bytes(int type, uint32_t n_in) {
    return n_in / GEMM_COLS * gemm_k_block_bytes(type, GEMM_COLS) +
           gemm_k_block_bytes(type, n_in % GEMM_COLS);
}

bool gemm_weight_bytes(int type, uint64_t n_out, uint64_t n_in, uint64_t *bytes) {
    const struct layout *l = layout_of(type);
    if (!l || n_in > UINT32_MAX || n_in % l->block_elems || n_out > UINT64_MAX - GEMM_OUTS)
        return false;
    return mem_mul((n_out + GEMM_OUTS - 1) / GEMM_OUTS, gemm_panel_bytes(type, (uint32_t)n_in),
                   bytes);
}

/* ---- repacking ---- */

/* Packs n_cols values of output `out`; row points at this K block's first value. */
static void pack_floats(int type, const uint8_t *row, uint32_t out, uint32_t n_cols, uint8_t *dst) {
    if (type == QTYPE_F32)
        for (uint32_t c = 0; c < n_cols; c++)
            memcpy(dst + 4 * (GEMM_OUTS * c + out), row + 4 * c, 4);
    else if (type == QTYPE_F16)
        for (uint32_t c = 0; c < n_cols; c++)
            memcpy(dst + 2 * (GEMM_OUTS * c + out), row + 2 * c, 2);
    else
        for (uint32_t c = 0; c < n_cols; c++)
            memcpy(dst + 4 * (GEMM_OUTS * (c / 2) + out) + 2 * (c % 2), row + 2 * c, 2);
}

/* Packs n_cols columns of up to 16 outputs, row_bytes apart, into a K block at dst. */
static void pack_k_block(const struct layout *layout, const uint8_t *src, uint64_t row_bytes,
                         uint32_t n_outs, uint32_t n_cols, uint8_t *dst) {
    struct lane l = {.scales = dst, .n_blocks = n_cols / GEMM_BLOCK};
    uint64_t n_file_blocks = n_cols / layout->block_elems;
    if (n_outs < GEMM_OUTS || (layout->type == QTYPE_BF16 && n_cols % 2))
        memset(dst, 0, gemm_k_block_bytes(layout->type, n_cols));
    for (uint32_t o = 0; o < n_outs; o++, src += row_bytes) {
        l.out = o;
        l.planes = dst + GEMM_OUTS * n_file_blocks * layout->scale_bytes + 4 * o;
        if (layout->pack)
            layout->pack(src, &l);
        else
            pack_floats(layout->type, src, o, n_cols, dst);
    }
}

void gemm_pack_pair(int type, const uint8_t *rows, uint64_t row_bytes, uint32_t n_outs,
                    uint32_t n_in, uint8_t *dst) {
    const struct layout *layout = layout_of(type);
    for (uint32_t c = 0; c < n_in; c += GEMM_COLS) {
        uint32_t n = n_in - c < GEMM_COLS ? n_in - c : GEMM_COLS;
        const uint8_t *src = rows + (uint64_t)(c / layout->block_elems) * layout->block_bytes;
        for (uint32_t o = 0; o < n_outs; o += GEMM_OUTS) {
            uint32_t left = n_outs - o;
            pack_k_block(layout, src + o * row_bytes, row_bytes,
                         left < GEMM_OUTS ? left : GEMM_OUTS, n, dst);
            dst += gemm_k_block_bytes(type, n);
        }
    }
}
