/* gemm_generic.c - the reference of gemm.h's kernels in portable C, written for readability. Its
 * tile holds signed codes: a weight is scale * code (+ min). Pure functions; any thread. */
#include "core/backend/cpu/gemm/gemm.h"

#include <math.h>
#include <string.h>

/* ---- activations ---- */

static void quantize_block(const float *x, int8_t *hi, int8_t *lo, struct gemm_block *block) {
    const int top = lo ? GEMM_Q16 : GEMM_Q8;
    float a = 0;
    bool finite = true;
    for (int i = 0; i < GEMM_BLOCK; i++) {
        finite = finite && isfinite(x[i]);
        a = fmaxf(a, fabsf(x[i]));
    }
    float inverse = finite && a >= 1e-30f ? (float)top / a : 0;
    *block = (struct gemm_block){.d = inverse > 0 ? a / (float)top : 0};
    if (!finite) block->d = NAN;
    for (int i = 0; i < GEMM_BLOCK; i++) {
        int q = inverse > 0 ? (int)nearbyintf(x[i] * inverse) : 0;
        q = q > top ? top : q < -top ? -top : q;
        if (lo) {
            hi[i] = (int8_t)((q + (q < 0 ? -126 : 126)) / 254);
            lo[i] = (int8_t)(q - 254 * hi[i]);
        } else
            hi[i] = (int8_t)q;
        *(i < GEMM_BLOCK / 2 ? &block->n0 : &block->n1) += q;
    }
    block->n = block->n0 + block->n1;
    block->s = block->d * (float)block->n;
    block->s0 = block->d * (float)block->n0;
    block->s1 = block->d * (float)block->n1;
}

static void quantize_columns(const float *x, uint32_t n, int8_t *const q[2],
                             struct gemm_block *blocks) {
    for (uint32_t i = 0; i < n; i += GEMM_BLOCK)
        quantize_block(x + i, q[0] + i, q[1] ? q[1] + i : NULL, &blocks[i / GEMM_BLOCK]);
}

/* ---- tiles ---- */

/* A K block in a panel. */
struct k_block {
    const uint8_t *scales, *planes;
    uint32_t n_blocks;
};

static float get_f16(const struct k_block *s, uint32_t array, uint32_t out) {
    uint16_t h;
    memcpy(&h, s->scales + 2 * (GEMM_OUTS * array + out), sizeof h);
    return f16_to_f32(h);
}

/* This output's number i of six[n] (gemm.h) at base. */
static int get_six(const uint8_t *base, uint32_t n, uint32_t i, uint32_t out) {
    int low = base[GEMM_OUTS * (i / 2) + out] >> (4 * (i % 2)) & 15;
    int high = base[8 * n + GEMM_OUTS * (i / 4) + out] >> (2 * (i % 4)) & 3;
    return low | high << 4;
}

/* Scale and min of block (or half) i for one output. */
static void get_scale(int type, const struct k_block *s, uint32_t i, uint32_t out, float *scale,
                      float *min) {
    const uint8_t *by_out = s->scales + out, *mins = s->scales + 64 + 96;
    uint8_t packed;
    *min = 0;
    switch (type) {
    case QTYPE_Q4_1:
    case QTYPE_Q5_1:
        *min = get_f16(s, s->n_blocks + i, out);
        *scale = get_f16(s, i, out);
        break;
    case QTYPE_MXFP4: /* 2^(e - 128): the levels are twice the values */
        *scale = ldexpf(1, by_out[GEMM_OUTS * i] - 128);
        break;
    case QTYPE_Q4_K:
    case QTYPE_Q5_K:
        *min = -(get_f16(s, 1, out) * (float)get_six(mins, 8, i, out));
        *scale = get_f16(s, 0, out) * (float)get_six(s->scales + 64, 8, i, out);
        break;
    case QTYPE_Q6_K:
        *scale = get_f16(s, 0, out) * (float)(int8_t)by_out[32 + GEMM_OUTS * i];
        break;
    case QTYPE_Q3_K:
        *scale = get_f16(s, 0, out) * (float)(get_six(s->scales + 32, 16, i, out) - 32);
        break;
    case QTYPE_Q2_K:
        packed = by_out[64 + GEMM_OUTS * i];
        *min = -(get_f16(s, 1, out) * (float)(packed >> 4));
        *scale = get_f16(s, 0, out) * (float)(packed & 15);
        break;
    case QTYPE_IQ1_W:
    case QTYPE_IQ2_W:
        *scale = 0.125f * get_f16(s, 0, out) * (float)(get_six(s->scales + 32, 16, i, out) - 32);
        break;
    case QTYPE_IQ4_XS:
    case QTYPE_IQ3_S_W:
        *scale = get_f16(s, 0, out) * (float)(get_six(s->scales + 32, 8, i, out) - 32);
        break;
    case QTYPE_IQ3_XXS_W:
        *scale = 0.25f * get_f16(s, 0, out) * (float)(get_six(s->scales + 32, 8, i, out) - 32);
        break;
    default: /* Q8_0, Q4_0, Q5_0, IQ4_NL */
        *scale = get_f16(s, i, out);
    }
}

static bool has_halves(int type) {
    return type == QTYPE_Q6_K || type == QTYPE_Q3_K || type == QTYPE_Q2_K || type == QTYPE_IQ1_W ||
           type == QTYPE_IQ2_W;
}

static bool has_mins(int type) {
    return type == QTYPE_Q4_1 || type == QTYPE_Q5_1 || type == QTYPE_Q4_K || type == QTYPE_Q5_K ||
           type == QTYPE_Q2_K;
}

/* Bytes of a K block's scales, and of one block's planes. */
static void k_block_sizes(int type, uint32_t n_blocks, uint32_t *scales, uint32_t *planes) {
    uint32_t whole = (uint32_t)gemm_k_block_bytes(type, n_blocks * GEMM_BLOCK);
    switch (type) {
    case QTYPE_Q8_0:
        *planes = 8 * 64;
        break;
    case QTYPE_Q5_0:
    case QTYPE_Q5_1:
    case QTYPE_Q5_K:
        *planes = 5 * 64;
        break;
    case QTYPE_Q6_K:
        *planes = 6 * 64;
        break;
    case QTYPE_Q3_K:
    case QTYPE_IQ1_W:
    case QTYPE_IQ2_W:
        *planes = 3 * 64;
        break;
    case QTYPE_Q2_K:
        *planes = 2 * 64;
        break;
    default:
        *planes = 4 * 64;
    }
    *scales = whole - n_blocks * *planes;
}

/* Number i (output, column) of group g in planes of 4, 2 and 1 bits. */
static int get_nibble(const uint8_t *p, uint32_t g, uint32_t i) {
    return p[64 * (g % 4) + i] >> (4 * (g / 4)) & 15;
}

static int get_two(const uint8_t *p, uint32_t g, uint32_t i) {
    return p[64 * (g / 4) + i] >> (2 * (g % 4)) & 3;
}

static int get_one(const uint8_t *p, uint32_t g, uint32_t i) {
    return p[i] >> g & 1;
}

static int get_three(const uint8_t *p, uint32_t g, uint32_t i) {
    return get_two(p, g, i) | get_one(p + 128, g, i) << 2;
}

/* The signed code of number i of group g; p: the block's planes. */
static int get_code(int type, const uint8_t *p, uint32_t g, uint32_t i) {
    switch (type) {
    case QTYPE_Q8_0:
        return (int8_t)p[64 * g + i];
    case QTYPE_Q4_0:
        return get_nibble(p, g, i) - 8;
    case QTYPE_Q5_0:
        return (get_nibble(p, g, i) | get_one(p + 256, g, i) << 4) - 16;
    case QTYPE_Q5_1:
    case QTYPE_Q5_K:
        return get_nibble(p, g, i) | get_one(p + 256, g, i) << 4;
    case QTYPE_Q6_K:
        return (get_nibble(p, g, i) | get_two(p + 256, g, i) << 4) - 32;
    case QTYPE_Q3_K:
        return get_three(p, g, i) - 4;
    case QTYPE_IQ1_W:
        return iq1_levels[get_three(p, g, i)];
    case QTYPE_IQ2_W:
        return iq2_levels[get_three(p, g, i)];
    case QTYPE_IQ3_XXS_W:
        return iq3_xxs_levels[get_nibble(p, g, i)];
    case QTYPE_IQ3_S_W:
        return iq3_s_levels[get_nibble(p, g, i)];
    case QTYPE_Q2_K:
        return get_two(p, g, i);
    case QTYPE_IQ4_NL:
    case QTYPE_IQ4_XS:
        return iq4_levels[get_nibble(p, g, i)];
    case QTYPE_MXFP4:
        return mxfp4_levels[get_nibble(p, g, i)];
    default: /* Q4_1, Q4_K */
        return get_nibble(p, g, i);
    }
}

static bool is_float(int type) {
    return type == QTYPE_F32 || type == QTYPE_F16 || type == QTYPE_BF16;
}

static void unpack_floats(int type, const uint8_t *src, uint32_t n_cols, struct gemm_tile *tile) {
    for (uint32_t c = 0; c < n_cols; c++)
        for (uint32_t o = 0; o < GEMM_OUTS; o++) {
            uint32_t at = GEMM_OUTS * c + o;
            uint16_t half;
            if (type == QTYPE_F32) {
                memcpy(&tile->f[c][o], src + 4 * at, sizeof(float));
                continue;
            }
            if (type == QTYPE_BF16) at = 2 * (GEMM_OUTS * (c / 2) + o) + c % 2;
            memcpy(&half, src + 2 * at, sizeof half);
            tile->f[c][o] = type == QTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
        }
}

static void unpack_tile(int type, const uint8_t *src, uint32_t n_cols, struct gemm_tile *tile) {
    uint32_t n_blocks = n_cols / GEMM_BLOCK, n_scales, scale_bytes, plane_bytes;
    if (is_float(type)) {
        unpack_floats(type, src, n_cols, tile);
        return;
    }
    k_block_sizes(type, n_blocks, &scale_bytes, &plane_bytes);
    struct k_block s = {src, src + scale_bytes, n_blocks};
    n_scales = has_halves(type) ? 2 * n_blocks : n_blocks;
    for (uint32_t i = 0; i < n_scales; i++)
        for (uint32_t o = 0; o < GEMM_OUTS; o++)
            get_scale(type, &s, i, o, &tile->scale[i][o], &tile->min[i][o]);
    for (uint32_t b = 0; b < n_blocks; b++)
        for (uint32_t g = 0; g < 8; g++)
            for (uint32_t i = 0; i < 64; i++)
                tile->q[8 * b + g][i / 4][i % 4] =
                    (uint8_t)get_code(type, s.planes + b * plane_bytes, g, i);
}

/* ---- products ---- */

/* Sum of w * q over columns c .. c + n - 1 of one row and output; hi and lo point at column 0. */
static int32_t dot_codes(const struct gemm_tile *t, uint32_t out, const int8_t *hi,
                         const int8_t *lo, uint32_t c, uint32_t n) {
    int32_t sum = 0;
    for (uint32_t i = c; i < c + n; i++) {
        int32_t w = (int8_t)t->q[i / 4][out][i % 4];
        sum += w * (lo ? 254 * hi[i] + lo[i] : hi[i]);
    }
    return sum;
}

static float multiply_block(int type, const struct gemm_tile *t, uint32_t out,
                            const struct gemm_rows *x, uint32_t block, float acc) {
    const struct gemm_block *a = &x->blocks[block];
    uint32_t c = block * GEMM_BLOCK, half = GEMM_BLOCK / 2;
    float product;
    if (has_halves(type)) {
        float i0 = (float)dot_codes(t, out, x->q[0], x->q[1], c, half);
        float i1 = (float)dot_codes(t, out, x->q[0], x->q[1], c + half, half);
        product = fmaf(i1, t->scale[2 * block + 1][out], i0 * t->scale[2 * block][out]);
    } else
        product = (float)dot_codes(t, out, x->q[0], x->q[1], c, GEMM_BLOCK) * t->scale[block][out];
    acc = fmaf(product, a->d, acc);
    if (!has_mins(type)) return acc;
    if (!has_halves(type)) return fmaf(t->min[block][out], a->s, acc);
    acc = fmaf(t->min[2 * block][out], a->s0, acc);
    return fmaf(t->min[2 * block + 1][out], a->s1, acc);
}

static void multiply_job(const struct gemm_job *j) {
    struct gemm_rows x = j->x;
    float *acc = j->acc;
    for (uint32_t r = 0; r < j->n_rows; r++) {
        for (uint32_t o = 0; o < j->n_panels * GEMM_OUTS; o++) {
            const struct gemm_tile *t = &j->tile[o / GEMM_OUTS];
            uint32_t out = o % GEMM_OUTS;
            float sum = j->first ? 0 : acc[o];
            if (is_float(j->type))
                for (uint32_t c = 0; c < j->n_cols; c++)
                    sum = fmaf(x.x[c], t->f[c][out], sum);
            else
                for (uint32_t b = 0; b < j->n_cols / GEMM_BLOCK; b++)
                    sum = multiply_block(j->type, t, out, &x, b, sum);
            acc[o] = sum;
        }
        acc += GEMM_PANELS * GEMM_OUTS;
        x.x = x.x ? x.x + x.x_stride : NULL;
        x.q[0] = x.q[0] ? x.q[0] + x.q_stride : NULL;
        x.q[1] = x.q[1] ? x.q[1] + x.q_stride : NULL;
        x.blocks = x.blocks ? x.blocks + x.blocks_stride : NULL;
    }
}

const struct gemm_isa gemm_generic = {"generic", quantize_columns, unpack_tile, multiply_job};
