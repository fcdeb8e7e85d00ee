/* qfit.c - see qfit.h. Pure; any thread. */
#include "core/base/qfit.h"

#include "core/base/qblock.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
static inline v4 v4_clamp(v4 x, v4 lo, v4 hi) {
    return (v4)_mm_min_ps(_mm_max_ps((__m128)x, (__m128)lo), (__m128)hi);
}
#elif defined(__ARM_NEON)
#include <arm_neon.h>
static inline v4 v4_clamp(v4 x, v4 lo, v4 hi) {
    return (v4)vminq_f32(vmaxq_f32((float32x4_t)x, (float32x4_t)lo), (float32x4_t)hi);
}
#else
static inline v4 v4_clamp(v4 x, v4 lo, v4 hi) {
    for (int i = 0; i < QFIT_LANES; i++)
        x[i] = x[i] < lo[i] ? lo[i] : x[i] > hi[i] ? hi[i] : x[i];
    return x;
}
#endif

typedef int32_t v4i __attribute__((vector_size(16)));

static inline v4 v4_all(float f) {
    return (v4){f, f, f, f};
}

/* a where the mask is set, else b. */
static inline v4 v4_pick(v4i mask, v4 a, v4 b) {
    return (v4)(((v4i)a & mask) | ((v4i)b & ~mask));
}

/* a / b, and 0 where b is 0. */
static inline v4 v4_ratio(v4 a, v4 b) {
    v4i zero = b == v4_all(0);
    return v4_pick(zero, v4_all(0), a / v4_pick(zero, v4_all(1), b));
}

/* To the nearest integer, for |x| < 2^22: the sum has no bits below one. */
static inline v4 v4_round(v4 x) {
    v4 shift = v4_all(0x1.8p23f);
    return (x + shift) - shift;
}

void qlevels_init(struct qlevels *l, const int8_t levels[16]) {
    for (int c = 0; c < QFIT_CELLS; c++) {
        float at = ((float)c + 0.5f) / 2 - 128;
        uint8_t best = 0;
        for (uint8_t i = 1; i < 16; i++)
            if (fabsf(at - levels[i]) < fabsf(at - levels[best])) best = i;
        l->index[c] = best;
        l->level[c] = levels[best];
    }
}

static inline v4 table_levels(const struct qlevels *levels, v4 t) {
    v4 at = (v4_clamp(t, v4_all(-128), v4_all(127.5f)) + v4_all(128)) * v4_all(2);
    return (v4){levels->level[(int)at[0]], levels->level[(int)at[1]], levels->level[(int)at[2]],
                levels->level[(int)at[3]]};
}

static inline __attribute__((always_inline)) void try_any(const struct qlevels *levels,
                                                          const struct qgrid *g, const float *x,
                                                          int n, struct qtrial *t) {
    v4 d = t->d, m = t->m, inverse = v4_ratio(v4_all(1), d), lo = v4_all(g->lo), hi = v4_all(g->hi);
    v4 ee = v4_all(0), el = ee, ll = ee, e1 = ee, l1 = ee;
    for (int i = 0; i < n; i++) {
        v4 y = v4_all(x[i]) - m, scaled = y * inverse;
        v4 level = levels ? table_levels(levels, scaled) : v4_round(v4_clamp(scaled, lo, hi));
        v4 e = y - d * level;
        ee += e * e;
        el += e * level;
        ll += level * level;
        e1 += e;
        l1 += level;
    }
    t->ee = ee, t->el = el, t->ll = ll, t->e = e1, t->l = l1;
}

void qfit_try(const struct qgrid *g, const float *x, int n, struct qtrial *t) {
    if (g->levels)
        try_any(g->levels, g, x, n, t);
    else
        try_any(NULL, g, x, n, t);
}

void qfit_solve_scale(struct qtrial *t) {
    t->d += v4_ratio(t->el, t->ll);
}

void qfit_solve_both(struct qtrial *t, int n) {
    v4 count = v4_all((float)n), det = t->ll * count - t->l * t->l;
    v4 step = v4_ratio(t->el * count - t->e * t->l, det);
    t->d += step;
    t->m += (t->e - step * t->l) / count;
}

void qfit_solve_below(struct qtrial *t, int n) {
    v4 at_zero = v4_ratio(t->d * t->ll + t->el + t->m * t->l, t->ll);
    qfit_solve_both(t, n);
    v4i above = t->m > v4_all(0);
    t->d = v4_pick(above, at_zero, t->d);
    t->m = v4_pick(above, v4_all(0), t->m);
}

void qfit_codes(const struct qgrid *g, const float *x, int n, float d, float m, uint8_t *codes) {
    float inverse = d != 0 ? 1 / d : 0;
    for (int i = 0; i < n; i++) {
        v4 scaled = v4_all((x[i] - m) * inverse);
        if (g->levels) {
            v4 at = v4_clamp(scaled, v4_all(-128), v4_all(127.5f));
            codes[i] = g->levels->index[(int)((at[0] + 128) * 2)];
        } else {
            codes[i] =
                (uint8_t)(v4_round(v4_clamp(scaled, v4_all(g->lo), v4_all(g->hi)))[0] - g->lo);
        }
    }
}

int qfit_best(const struct qtrial *t) {
    int best = 0;
    for (int i = 1; i < QFIT_LANES; i++)
        if (t->ee[i] < t->ee[best]) best = i;
    return best;
}

uint16_t qfit_half(float f) {
    const float most = 65504;
    return f32_to_f16(f > most ? most : f < -most ? -most : f);
}

float qfit_take(const float *src, int n, float *dst) {
    /* Beyond any type's largest value; squares of what is kept add up within f32. */
    const float most = 0x1p28f, least = 0x1p-25f;
    float amax = 0;
    for (int i = 0; i < n; i++) {
        float x = src[i] == src[i] ? src[i] : 0, a = fabsf(x);
        dst[i] = a > most ? copysignf(most, x) : x;
        amax = a > amax ? a : amax;
    }
    if (amax >= least) return amax > most ? most : amax;
    memset(dst, 0, (size_t)n * sizeof *dst);
    return 0;
}
