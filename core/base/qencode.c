/* qencode.c - encoders of the float types and of the types with blocks of 32. A block's scale is
 * searched: starting points around the maximum's scale are refined by least squares, and the best
 * is rounded to a half. Pure; any thread. */
#include "core/base/qfit.h"
#include "core/base/qiq.h"
#include "core/base/qtype_int.h"

#include <math.h>
#include <string.h>

#define N_OF(array) ((int)(sizeof(array) / sizeof(array)[0]))

void qencode_f32(const float *src, const float *w, void *dst, uint64_t n) {
    (void)w;
    memcpy(dst, src, n * sizeof *src);
}

void qencode_f16(const float *src, const float *w, void *dst, uint64_t n) {
    (void)w;
    uint16_t *half = dst;
    for (uint64_t i = 0; i < n; i++)
        half[i] = f32_to_f16(src[i]);
}

void qencode_bf16(const float *src, const float *w, void *dst, uint64_t n) {
    (void)w;
    uint16_t *half = dst;
    for (uint64_t i = 0; i < n; i++)
        half[i] = f32_to_bf16(src[i]);
}

/* A block's scale and minimum as stored, and each value's code, 0 for the lowest level. */
struct fit {
    uint16_t d, m;
    uint8_t codes[QK_ELEMS];
};

/* What is fitted: the n values of a block, and their weights or NULL. */
struct target {
    const struct qgrid *g;
    const float *x, *w; /* (n) */
    int n;
};

/* Rounds d to a half: of the nearest ones, that with the smallest error for x. With a minimum, m
 * changes with d so that the mean is kept; level is the mean level under (d, m). */
static void round_fit(const struct target *to, float d, float m, float level, struct fit *f) {
    uint16_t near = qfit_half(d), half[QFIT_LANES] = {near, near, near, near}, min[QFIT_LANES];
    struct qtrial t = {0};
    if ((near & 0x7fff) > 0) half[1]--;
    if ((near & 0x7fff) < 0x7bff) half[2]++;
    for (int i = 0; i < QFIT_LANES; i++) {
        t.d[i] = f16_to_f32(half[i]);
        min[i] = qfit_half(m + (d - t.d[i]) * level);
        t.m[i] = f16_to_f32(min[i]);
    }
    qfit_try(to->g, to->x, to->w, to->n, &t);
    int best = qfit_best(&t);
    f->d = half[best];
    f->m = min[best];
    qfit_codes(to->g, to->x, to->n, t.d[best], t.m[best], f->codes);
}

/* Fits d alone. peaks (n_peaks, a multiple of QFIT_LANES): levels tried for the value of largest
 * magnitude. */
static void fit_scale(const struct target *raw, const float *peaks, int n_peaks, struct fit *f) {
    float x[QK_ELEMS], extreme = qfit_take(raw->x, raw->n, QFIT_FAR, x);
    const struct target to = {raw->g, x, raw->w, raw->n};
    struct qtrial t = {0}, best = {.ee = {INFINITY, INFINITY, INFINITY, INFINITY}};
    for (int p = 0; p < n_peaks && extreme != 0; p += QFIT_LANES) {
        for (int i = 0; i < QFIT_LANES; i++)
            t.d[i] = extreme / peaks[p + i];
        qfit_try(to.g, x, to.w, to.n, &t);
        qfit_solve_scale(&t);
        qfit_keep(&best, &t);
    }
    qfit_try(to.g, x, to.w, to.n, &best);
    qfit_solve_scale(&best);
    round_fit(&to, best.d[qfit_best(&best)], 0, 0, f);
}

/* Fits d and m. The starting points move the lowest and the highest value by up to one level. */
static void fit_both(const struct qgrid *g, const float src[Q_ELEMS], const float *w,
                     struct fit *f) {
    static const float cuts[QFIT_LANES] = {-0.8f, -0.3f, 0.2f, 0.7f};
    float x[Q_ELEMS];
    struct qtrial t = {0}, best = {.ee = {INFINITY, INFINITY, INFINITY, INFINITY}};
    qfit_take(src, Q_ELEMS, 65504, x); /* m's range */
    float least = x[0], most = x[0];
    for (int i = 1; i < Q_ELEMS; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    float level = (most - least) / g->hi;
    for (int p = 0; p < QFIT_LANES; p++) {
        for (int i = 0; i < QFIT_LANES; i++) {
            t.m[i] = least + level * cuts[i];
            t.d[i] = (most - level * cuts[p] - t.m[i]) / g->hi;
        }
        qfit_try(g, x, w, Q_ELEMS, &t);
        qfit_solve_both(&t);
        qfit_keep(&best, &t);
    }
    qfit_try(g, x, w, Q_ELEMS, &best);
    qfit_solve_both(&best);
    int lane = qfit_best(&best);
    round_fit(&(struct target){g, x, w, Q_ELEMS}, best.d[lane], best.m[lane],
              best.l[lane] / best.sum, f);
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

/* -128 is not used: kernels that take magnitudes of bytes cannot represent 128. */
void qencode_q8_0(const float *src, const float *w, void *dst, uint64_t n) {
    static const struct qgrid grid = {-127, 127, NULL};
    static const float peaks[] = {127, 127.6f, 126.4f, 125.8f, 125.1f, 124.4f, 123.7f, 123};
    struct q8_0_block *b = dst;
    for (; n; n -= Q_ELEMS, src += Q_ELEMS, w += w ? Q_ELEMS : 0, b++) {
        struct fit f;
        fit_scale(&(struct target){&grid, src, w, Q_ELEMS}, peaks, N_OF(peaks), &f);
        b->d = f.d;
        for (int i = 0; i < Q_ELEMS; i++)
            b->q[i] = (int8_t)(f.codes[i] - 127);
    }
}

void qencode_q4_0(const float *src, const float *w, void *dst, uint64_t n) {
    static const struct qgrid grid = {-8, 7, NULL};
    static const float peaks[] = {-8, -7.5f, -7, -8.5f, -9, -6.5f, 7, 7.5f, 6.5f, 8, -6, 6};
    struct q4_0_block *b = dst;
    for (; n; n -= Q_ELEMS, src += Q_ELEMS, w += w ? Q_ELEMS : 0, b++) {
        struct fit f;
        fit_scale(&(struct target){&grid, src, w, Q_ELEMS}, peaks, N_OF(peaks), &f);
        b->d = f.d;
        put_nibbles(f.codes, b->q);
    }
}

void qencode_q5_0(const float *src, const float *w, void *dst, uint64_t n) {
    static const struct qgrid grid = {-16, 15, NULL};
    static const float peaks[] = {-16, -16.5f, -15.5f, -15, -14.5f, -14,
                                  15,  15.6f,  14.5f,  14,  13.5f,  13};
    struct q5_0_block *b = dst;
    for (; n; n -= Q_ELEMS, src += Q_ELEMS, w += w ? Q_ELEMS : 0, b++) {
        struct fit f;
        fit_scale(&(struct target){&grid, src, w, Q_ELEMS}, peaks, N_OF(peaks), &f);
        b->d = f.d;
        put_nibbles(f.codes, b->q);
        put_fifth_bits(f.codes, b->high);
    }
}

void qencode_q4_1(const float *src, const float *w, void *dst, uint64_t n) {
    static const struct qgrid grid = {0, 15, NULL};
    struct q4_1_block *b = dst;
    for (; n; n -= Q_ELEMS, src += Q_ELEMS, w += w ? Q_ELEMS : 0, b++) {
        struct fit f;
        fit_both(&grid, src, w, &f);
        b->d = f.d;
        b->m = f.m;
        put_nibbles(f.codes, b->q);
    }
}

void qencode_q5_1(const float *src, const float *w, void *dst, uint64_t n) {
    static const struct qgrid grid = {0, 31, NULL};
    struct q5_1_block *b = dst;
    for (; n; n -= Q_ELEMS, src += Q_ELEMS, w += w ? Q_ELEMS : 0, b++) {
        struct fit f;
        fit_both(&grid, src, w, &f);
        b->d = f.d;
        b->m = f.m;
        put_nibbles(f.codes, b->q);
        put_fifth_bits(f.codes, b->high);
    }
}

void qencode_iq4_nl(const float *src, const float *w, void *dst, uint64_t n) {
    static const float peaks[] = {-127, -134, -140, -116, -108, -100, 113, 120, 127, 105, 97, 90};
    struct iq4_nl_block *b = dst;
    struct qlevels levels;
    qlevels_init(&levels, iq4_levels);
    const struct qgrid grid = {0, 15, &levels};
    for (; n; n -= Q_ELEMS, src += Q_ELEMS, w += w ? Q_ELEMS : 0, b++) {
        struct fit f;
        fit_scale(&(struct target){&grid, src, w, Q_ELEMS}, peaks, N_OF(peaks), &f);
        b->d = f.d;
        put_nibbles(f.codes, b->q);
    }
}

/* The scale is a power of two: the exponent that brings the largest value between 4 and 8 is tried,
 * one less, and two more. It is at most 252, the last one whose levels are all finite in f32. The
 * computation uses values below 1. */
static void encode_mxfp4(const struct qgrid *grid, const float *src, const float *w,
                         struct mxfp4_block *b) {
    enum { TOP = 252 };
    float x[Q_ELEMS], amax = 0;
    struct qtrial t = {0};
    uint8_t codes[Q_ELEMS];
    int exponent, e[QFIT_LANES];
    for (int i = 0; i < Q_ELEMS; i++) {
        x[i] = src[i] == src[i] ? fmaxf(fminf(src[i], 0x1.8p127f), -0x1.8p127f) : 0;
        amax = fmaxf(amax, fabsf(x[i]));
    }
    if (amax == 0) {
        memset(b, 0, sizeof *b);
        return;
    }
    frexpf(amax, &exponent);
    float half = ldexpf(1, -exponent / 2), rest = ldexpf(1, -exponent - -exponent / 2);
    for (int i = 0; i < Q_ELEMS; i++)
        x[i] = x[i] * half * rest;
    for (int i = 0; i < QFIT_LANES; i++) {
        int wanted = exponent + 123 + i;
        e[i] = wanted < 0 ? 0 : wanted > TOP ? TOP : wanted;
        t.d[i] = ldexpf(1, e[i] - 128 - exponent);
    }
    qfit_try(grid, x, w, Q_ELEMS, &t);
    int best = qfit_best(&t);
    b->e = (uint8_t)e[best];
    qfit_codes(grid, x, Q_ELEMS, t.d[best], 0, codes);
    put_nibbles(codes, b->q);
}

void qencode_mxfp4(const float *src, const float *w, void *dst, uint64_t n) {
    struct mxfp4_block *b = dst;
    struct qlevels levels;
    qlevels_init(&levels, mxfp4_levels);
    const struct qgrid grid = {0, 15, &levels};
    for (; n; n -= Q_ELEMS, src += Q_ELEMS, w += w ? Q_ELEMS : 0, b++)
        encode_mxfp4(&grid, src, w, b);
}

/* Of weights that are -d, 0 and d nothing is lost: the largest value at level 1 is one of the
 * starting points. */
static void fit_ternary(const float *src, const float *w, struct fit *f) {
    static const struct qgrid grid = {-1, 1, NULL};
    static const float peaks[] = {1, 1.2f, 1.4f, 1.65f, 1.9f, 2.2f, 2.6f, 3.2f};
    fit_scale(&(struct target){&grid, src, w, QK_ELEMS}, peaks, N_OF(peaks), f);
}

/* n digits of base 3, `stride` apart, as a binary fraction of 3^5, rounded up. */
static uint8_t digits_of(const uint8_t *codes, int n, int stride) {
    int sum = 0;
    for (int i = 0; i < 5; i++)
        sum = 3 * sum + (i < n ? codes[i * stride] : 0);
    return (uint8_t)((sum * 256 + 242) / 243);
}

void qencode_tq1_0(const float *src, const float *w, void *dst, uint64_t n) {
    struct tq1_0_block *b = dst;
    for (; n; n -= QK_ELEMS, src += QK_ELEMS, w += w ? QK_ELEMS : 0, b++) {
        struct fit f;
        fit_ternary(src, w, &f);
        b->d = f.d;
        for (int i = 0; i < 32; i++)
            b->q[i] = digits_of(f.codes + i, 5, 32);
        for (int i = 0; i < 16; i++)
            b->q[32 + i] = digits_of(f.codes + 160 + i, 5, 16);
        for (int i = 0; i < 4; i++)
            b->high[i] = digits_of(f.codes + 240 + i, 4, 4);
    }
}

void qencode_tq2_0(const float *src, const float *w, void *dst, uint64_t n) {
    struct tq2_0_block *b = dst;
    for (; n; n -= QK_ELEMS, src += QK_ELEMS, w += w ? QK_ELEMS : 0, b++) {
        struct fit f;
        fit_ternary(src, w, &f);
        b->d = f.d;
        for (int i = 0; i < QK_ELEMS / 4; i++) {
            const uint8_t *codes = f.codes + i / 32 * 128 + i % 32;
            b->q[i] = (uint8_t)(codes[0] | codes[32] << 2 | codes[64] << 4 | codes[96] << 6);
        }
    }
}
