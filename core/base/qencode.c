/* qencode.c - encoders of the floats and of the types with blocks of 32. A block's scale is
 * searched for: starts around the obvious one, each moved to its least-squares solution, the best
 * rounded to a half. Pure; any thread. */
#include "core/base/qfit.h"
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

/* A block's scale and minimum as stored, and each value's code, 0 for the lowest level. */
struct fit {
    uint16_t d, m;
    uint8_t codes[Q_ELEMS];
};

/* The value of largest magnitude, with its sign. */
static float extreme_of(const float x[Q_ELEMS]) {
    float extreme = 0;
    for (int i = 0; i < Q_ELEMS; i++)
        if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
    return extreme;
}

/* Of the half nearest to d and its neighbours, the one that reads x best. */
static void round_scale(const struct qgrid *g, const float x[Q_ELEMS], float d, struct fit *f) {
    uint16_t near = qfit_half(d), half[QFIT_LANES] = {near, near, near, near};
    struct qtrial t = {0};
    if ((near & 0x7fff) > 0) half[1]--;
    if ((near & 0x7fff) < 0x7bff) half[2]++;
    for (int i = 0; i < QFIT_LANES; i++)
        t.d[i] = f16_to_f32(half[i]);
    qfit_try(g, x, Q_ELEMS, &t);
    f->d = half[qfit_best(&t)];
    qfit_codes(g, x, Q_ELEMS, f16_to_f32(f->d), 0, f->codes);
}

/* Fits d alone. peaks (n_peaks, a multiple of QFIT_LANES): levels at which the extreme value may
 * come to lie. */
static void fit_scale(const struct qgrid *g, const float *peaks, int n_peaks, const float *src,
                      struct fit *f) {
    float x[Q_ELEMS], best_d = 0, best_error = INFINITY;
    if (qfit_take(src, Q_ELEMS, x) == 0) {
        f->d = 0;
        qfit_codes(g, x, Q_ELEMS, 0, 0, f->codes);
        return;
    }
    float extreme = extreme_of(x);
    for (int p = 0; p < n_peaks; p += QFIT_LANES) {
        struct qtrial t = {0};
        for (int i = 0; i < QFIT_LANES; i++)
            t.d[i] = extreme / peaks[p + i];
        qfit_try(g, x, Q_ELEMS, &t);
        qfit_solve_scale(&t);
        qfit_try(g, x, Q_ELEMS, &t);
        int best = qfit_best(&t);
        if (t.ee[best] >= best_error) continue;
        best_error = t.ee[best];
        qfit_solve_scale(&t);
        best_d = t.d[best];
    }
    round_scale(g, x, best_d, f);
}

/* Fits d and m. cuts (n_cuts, as above): how much of the range is given up below and above. */
static void fit_both(const struct qgrid *g, const float (*cuts)[2], int n_cuts, const float *src,
                     struct fit *f) {
    float x[Q_ELEMS], best_d = 0, best_m = 0, best_error = INFINITY;
    qfit_take(src, Q_ELEMS, x);
    float least = x[0], most = x[0];
    for (int i = 1; i < Q_ELEMS; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    float range = most - least;
    for (int p = 0; p < n_cuts; p += QFIT_LANES) {
        struct qtrial t = {0};
        for (int i = 0; i < QFIT_LANES; i++) {
            t.d[i] = range * (1 - cuts[p + i][0] - cuts[p + i][1]) / g->hi;
            t.m[i] = least + range * cuts[p + i][0];
        }
        qfit_try(g, x, Q_ELEMS, &t);
        qfit_solve_both(&t, Q_ELEMS);
        qfit_try(g, x, Q_ELEMS, &t);
        int best = qfit_best(&t);
        if (t.ee[best] >= best_error) continue;
        best_error = t.ee[best];
        qfit_solve_both(&t, Q_ELEMS);
        best_d = t.d[best], best_m = t.m[best];
    }
    f->d = qfit_half(best_d);
    f->m = qfit_half(best_m);
    qfit_codes(g, x, Q_ELEMS, f16_to_f32(f->d), f16_to_f32(f->m), f->codes);
}

static void put_nibbles(const uint8_t codes[Q_ELEMS], uint8_t q[Q_ELEMS / 2]) {
    for (int i = 0; i < Q_ELEMS / 2; i++)
        q[i] = (uint8_t)((codes[i] & 15) | codes[i + Q_ELEMS / 2] << 4);
}

static void put_fifth_bits(const uint8_t codes[Q_ELEMS], uint8_t high[Q_ELEMS / 8]) {
    memset(high, 0, Q_ELEMS / 8);
    for (int i = 0; i < Q_ELEMS; i++)
        high[i / 8] |= (uint8_t)(codes[i] >> 4 << i % 8);
}

/* -128 is left out: kernels that take magnitudes of bytes have no 128. */
void qencode_q8_0(const float *src, void *dst, uint64_t n) {
    static const struct qgrid grid = {-127, 127, NULL};
    static const float peaks[] = {127, 127.4f, 126.6f, 126};
    struct q8_0_block *b = dst;
    for (; n; n -= Q_ELEMS, src += Q_ELEMS, b++) {
        struct fit f;
        fit_scale(&grid, peaks, sizeof peaks / sizeof peaks[0], src, &f);
        b->d = f.d;
        for (int i = 0; i < Q_ELEMS; i++)
            b->q[i] = (int8_t)(f.codes[i] - 127);
    }
}

void qencode_q4_0(const float *src, void *dst, uint64_t n) {
    static const struct qgrid grid = {-8, 7, NULL};
    static const float peaks[] = {-8, -7.5f, -7, -8.5f, -9, -6.5f, 7, 7.5f, 6.5f, 8, -6, 6};
    struct q4_0_block *b = dst;
    for (; n; n -= Q_ELEMS, src += Q_ELEMS, b++) {
        struct fit f;
        fit_scale(&grid, peaks, sizeof peaks / sizeof peaks[0], src, &f);
        b->d = f.d;
        put_nibbles(f.codes, b->q);
    }
}

void qencode_q5_0(const float *src, void *dst, uint64_t n) {
    static const struct qgrid grid = {-16, 15, NULL};
    static const float peaks[] = {-16, -15.5f, -15, -16.5f, 15, 15.5f, 14.5f, -14.5f};
    struct q5_0_block *b = dst;
    for (; n; n -= Q_ELEMS, src += Q_ELEMS, b++) {
        struct fit f;
        fit_scale(&grid, peaks, sizeof peaks / sizeof peaks[0], src, &f);
        b->d = f.d;
        put_nibbles(f.codes, b->q);
        put_fifth_bits(f.codes, b->high);
    }
}

static const float wide_cuts[][2] = {{0, 0},         {.03f, .03f},   {.06f, .06f},
                                     {-.03f, -.03f}, {.03f, -.015f}, {-.015f, .03f},
                                     {.06f, -.015f}, {-.015f, .06f}};

void qencode_q4_1(const float *src, void *dst, uint64_t n) {
    static const struct qgrid grid = {0, 15, NULL};
    struct q4_1_block *b = dst;
    for (; n; n -= Q_ELEMS, src += Q_ELEMS, b++) {
        struct fit f;
        fit_both(&grid, wide_cuts, sizeof wide_cuts / sizeof wide_cuts[0], src, &f);
        b->d = f.d;
        b->m = f.m;
        put_nibbles(f.codes, b->q);
    }
}

void qencode_q5_1(const float *src, void *dst, uint64_t n) {
    static const struct qgrid grid = {0, 31, NULL};
    struct q5_1_block *b = dst;
    for (; n; n -= Q_ELEMS, src += Q_ELEMS, b++) {
        struct fit f;
        fit_both(&grid, wide_cuts, sizeof wide_cuts / sizeof wide_cuts[0], src, &f);
        b->d = f.d;
        b->m = f.m;
        put_nibbles(f.codes, b->q);
        put_fifth_bits(f.codes, b->high);
    }
}

void qencode_iq4_nl(const float *src, void *dst, uint64_t n) {
    static const float peaks[] = {-127, -120, -112, -135, 113, 107, 101, 120};
    struct iq4_nl_block *b = dst;
    struct qlevels levels;
    qlevels_init(&levels, iq4_levels);
    const struct qgrid grid = {0, 15, &levels};
    for (; n; n -= Q_ELEMS, src += Q_ELEMS, b++) {
        struct fit f;
        fit_scale(&grid, peaks, sizeof peaks / sizeof peaks[0], src, &f);
        b->d = f.d;
        put_nibbles(f.codes, b->q);
    }
}

/* The scale is a power of two: the one that brings the largest value between 4 and 8 is tried, one
 * less and two more. The exponent stops at 252, the last one whose levels are all finite in f32.
 * All is done on values below 1. */
static void encode_mxfp4(const struct qgrid *grid, const float *src, struct mxfp4_block *b) {
    enum { TOP = 252 };
    float x[Q_ELEMS], amax = 0;
    struct qtrial t = {0};
    uint8_t codes[Q_ELEMS];
    int exponent, e[QFIT_LANES];
    for (int i = 0; i < Q_ELEMS; i++) {
        x[i] = src[i] == src[i] ? fmaxf(fminf(src[i], 0x1.8p127f), -0x1.8p127f) : 0;
        amax = fmaxf(amax, fabsf(x[i]));
    }
    frexpf(amax, &exponent);
    float half = ldexpf(1, -exponent / 2), rest = ldexpf(1, -exponent - -exponent / 2);
    for (int i = 0; i < Q_ELEMS; i++)
        x[i] = x[i] * half * rest;
    for (int i = 0; i < QFIT_LANES; i++) {
        int wanted = exponent + 123 + i;
        e[i] = amax == 0 || wanted < 0 ? 0 : wanted > TOP ? TOP : wanted;
        t.d[i] = ldexpf(1, e[i] - 128 - exponent);
    }
    qfit_try(grid, x, Q_ELEMS, &t);
    int best = qfit_best(&t);
    b->e = (uint8_t)e[best];
    qfit_codes(grid, x, Q_ELEMS, t.d[best], 0, codes);
    put_nibbles(codes, b->q);
}

void qencode_mxfp4(const float *src, void *dst, uint64_t n) {
    struct mxfp4_block *b = dst;
    struct qlevels levels;
    qlevels_init(&levels, mxfp4_levels);
    const struct qgrid grid = {0, 15, &levels};
    for (; n; n -= Q_ELEMS, src += Q_ELEMS, b++)
        encode_mxfp4(&grid, src, b);
}
