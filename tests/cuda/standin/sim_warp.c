/* sim_warp.c - the warp functions, over the lanes that meet: shuffles, votes, reductions, matrix
 * loads and products. Layouts as the PTX ISA gives them (mma.m16n8k16, ldmatrix).
 *
 * Products: d += the sum of the 16 products, all in double (the products are exact there), rounded
 * to float once. A GPU's own order and rounding differ in the last bits. */
#include "sim_int.h"

#ifdef __F16C__
#include <immintrin.h>
#endif
#include <string.h>

const char *sim_op_name(enum cudasim_op op) {
    static const char *const names[] = {
        [CUDASIM_SYNCWARP] = "__syncwarp",
        [CUDASIM_SHFL] = "__shfl_sync",
        [CUDASIM_SHFL_UP] = "__shfl_up_sync",
        [CUDASIM_SHFL_DOWN] = "__shfl_down_sync",
        [CUDASIM_SHFL_XOR] = "__shfl_xor_sync",
        [CUDASIM_BALLOT] = "__ballot_sync",
        [CUDASIM_ANY] = "__any_sync",
        [CUDASIM_ALL] = "__all_sync",
        [CUDASIM_MATCH_ANY] = "__match_any_sync",
        [CUDASIM_ADD] = "__reduce_add_sync",
        [CUDASIM_MIN_U] = "__reduce_min_sync",
        [CUDASIM_MAX_U] = "__reduce_max_sync",
        [CUDASIM_MIN_S] = "__reduce_min_sync",
        [CUDASIM_MAX_S] = "__reduce_max_sync",
        [CUDASIM_AND] = "__reduce_and_sync",
        [CUDASIM_OR] = "__reduce_or_sync",
        [CUDASIM_XOR] = "__reduce_xor_sync",
        [CUDASIM_MMA_F16] = "mma_f16",
        [CUDASIM_MMA_BF16] = "mma_bf16",
        [CUDASIM_LDMATRIX] = "ldmatrix",
        [CUDASIM_LDMATRIX_TRANS] = "ldmatrix_trans",
    };
    return names[op];
}

typedef struct cudasim_lane *const *lanes;

#define EACH(i, mask)                                                                              \
    for (uint32_t i = 0; i < SIM_WARP; i++)                                                        \
        if ((mask) >> i & 1)

/* The lane that lane i reads: i itself if the source is outside its segment of width lanes. */
static uint32_t source(enum cudasim_op op, uint32_t i, const struct cudasim_lane *l) {
    uint32_t w = l->width, base = i & ~(w - 1), at = i & (w - 1);
    switch (op) {
    case CUDASIM_SHFL:
        return base + (l->lane & (w - 1));
    case CUDASIM_SHFL_UP:
        return at >= l->lane ? i - l->lane : i;
    case CUDASIM_SHFL_DOWN:
        return at + l->lane < w ? i + l->lane : i;
    default: /* xor may read an earlier segment, not a later one */
        return (i ^ l->lane) < base + w ? i ^ l->lane : i;
    }
}

static void shuffles(enum cudasim_op op, uint32_t mask, lanes io) {
    EACH(i, mask) {
        uint32_t w = io[i]->width;
        if (!w || w > SIM_WARP || w & (w - 1)) cudasim_fail("%s: width %u", sim_op_name(op), w);
        uint32_t from = source(op, i, io[i]);
        /* An inactive lane's value is undefined. */
        io[i]->out = mask >> from & 1 ? io[from]->v : ~(uint64_t)0;
    }
}

static void votes(enum cudasim_op op, uint32_t mask, lanes io) {
    uint32_t set = 0;
    EACH(i, mask) set |= (uint32_t)(io[i]->v != 0) << i;
    EACH(i, mask) {
        if (op == CUDASIM_BALLOT) io[i]->out = set;
        if (op == CUDASIM_ANY) io[i]->out = set != 0;
        if (op == CUDASIM_ALL) io[i]->out = set == mask;
        if (op != CUDASIM_MATCH_ANY) continue;
        io[i]->out = 0;
        EACH(j, mask) io[i]->out |= (uint64_t)(io[j]->v == io[i]->v) << j;
    }
}

static uint32_t fold(enum cudasim_op op, uint32_t a, uint32_t b) {
    switch (op) {
    case CUDASIM_ADD:
        return a + b;
    case CUDASIM_MIN_U:
        return a < b ? a : b;
    case CUDASIM_MAX_U:
        return a > b ? a : b;
    case CUDASIM_MIN_S:
        return (int32_t)a < (int32_t)b ? a : b;
    case CUDASIM_MAX_S:
        return (int32_t)a > (int32_t)b ? a : b;
    case CUDASIM_AND:
        return a & b;
    case CUDASIM_OR:
        return a | b;
    default:
        return a ^ b;
    }
}

static void reduces(enum cudasim_op op, uint32_t mask, lanes io) {
    uint32_t first = (uint32_t)__builtin_ctz(mask), r = (uint32_t)io[first]->v;
    EACH(i, mask & ~(1u << first)) r = fold(op, r, (uint32_t)io[i]->v);
    EACH(i, mask) io[i]->out = r;
}

/* ---- matrices ---- */

/* Halves to floats, exact. */
static inline float f16(uint32_t h) {
#ifdef __F16C__
    return _cvtsh_ss((unsigned short)h);
#else
    uint32_t sign = (h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023, bits;
    float f;
    if (e == 0) {
        f = (float)m * 0x1p-24f;
        return sign ? -f : f;
    }
    bits = sign | (e == 31 ? 0x7f800000u | m << 13 : (e + 112) << 23 | m << 13);
    memcpy(&f, &bits, 4);
    return f;
#endif
}

static inline float bf16(uint32_t h) {
    float f;
    h <<= 16;
    memcpy(&f, &h, 4);
    return f;
}

static inline void halves(int is_bf16, uint32_t v, double *lo, double *hi) {
    *lo = is_bf16 ? bf16(v & 0xffff) : f16(v & 0xffff);
    *hi = is_bf16 ? bf16(v >> 16) : f16(v >> 16);
}

static inline void product(int is_bf16, lanes io) {
    double a[16][16], b[16][8];
    for (uint32_t l = 0; l < SIM_WARP; l++) {
        uint32_t g = l / 4, t = l % 4;
        for (uint32_t i = 0; i < 4; i++) {
            double *to = &a[g + 8 * (i & 1)][2 * t + 8 * (i >> 1)];
            halves(is_bf16, io[l]->a[i], to, to + 1);
        }
        for (uint32_t i = 0; i < 2; i++)
            halves(is_bf16, io[l]->b[i], &b[2 * t + 8 * i][g], &b[2 * t + 8 * i + 1][g]);
    }
    for (uint32_t row = 0; row < 16; row++) {
        double sum[8] = {0};
        for (uint32_t k = 0; k < 16; k++)
            for (uint32_t c = 0; c < 8; c++)
                sum[c] += a[row][k] * b[k][c];
        for (uint32_t c = 0; c < 8; c++) {
            float *d = &io[row % 8 * 4 + c / 2]->d[c % 2 + 2 * (row / 8)];
            *d = (float)((double)*d + sum[c]);
        }
    }
}

static void load(int transposed, uint32_t first, lanes io) {
    uint16_t m[4][8][8];
    for (uint32_t l = 0; l < SIM_WARP; l++) {
        if ((uintptr_t)io[l]->at % 16)
            cudasim_fail("ldmatrix: row %p of lane %u: not aligned to 16", io[l]->at, l);
        sim_access(io[l]->at, 16, SIM_READ, first + l, io[l]->pc);
        memcpy(m[l / 8][l % 8], io[l]->at, 16);
    }
    for (uint32_t l = 0; l < SIM_WARP; l++) {
        uint32_t r = l / 4, c = l % 4 * 2;
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t lo = transposed ? m[i][c][r] : m[i][r][c];
            uint32_t hi = transposed ? m[i][c + 1][r] : m[i][r][c + 1];
            io[l]->m[i] = lo | hi << 16;
        }
    }
}

void sim_warp_run(enum cudasim_op op, uint32_t mask, uint32_t first,
                  struct cudasim_lane *const io[SIM_WARP]) {
    if (op == CUDASIM_SYNCWARP) return;
    if (op <= CUDASIM_SHFL_XOR)
        shuffles(op, mask, io);
    else if (op <= CUDASIM_MATCH_ANY)
        votes(op, mask, io);
    else if (op <= CUDASIM_XOR)
        reduces(op, mask, io);
    else if (op <= CUDASIM_MMA_BF16)
        op == CUDASIM_MMA_BF16 ? product(1, io) : product(0, io);
    else
        load(op == CUDASIM_LDMATRIX_TRANS, first, io);
}
