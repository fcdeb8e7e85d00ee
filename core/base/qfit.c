/* qfit.c - see qfit.h. Pure; any thread. */
#include "core/base/qfit.h"

#include "core/base/qblock.h"

#include <math.h>
#include <stdbool.h>
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

static inline v4 v4_load(const float *p) {
    v4 x;
    memcpy(&x, p, sizeof x);
    return x;
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

/* The table cells that contain t; the caller drops the fraction. */
static inline v4 table_cells(v4 t) {
    return (v4_clamp(t, v4_all(-128), v4_all(127.5f)) + v4_all(128)) * v4_all(2);
}

static inline v4 table_levels(const struct qlevels *levels, v4 t) {
    v4 at = table_cells(t);
    return (v4){levels->level[(int)at[0]], levels->level[(int)at[1]], levels->level[(int)at[2]],
                levels->level[(int)at[3]]};
}

static inline __attribute__((always_inline)) void try_any(const struct qlevels *levels,
                                                          const struct qgrid *g, const float *x,
                                                          const float *w, int n, struct qtrial *t) {
    v4 d = t->d, m = t->m, inverse = v4_ratio(v4_all(1), d), lo = v4_all(g->lo), hi = v4_all(g->hi);
    v4 ee = v4_all(0), el = ee, ll = ee, e1 = ee, l1 = ee;
    float sum = 0;
    for (int i = 0; i < n; i++) {
        v4 y = v4_all(x[i]) - m, scaled = y * inverse;
        v4 level = levels ? table_levels(levels, scaled) : v4_round(v4_clamp(scaled, lo, hi));
        v4 e = y - d * level, we = e, wl = level;
        if (w) {
            we *= v4_all(w[i]);
            wl *= v4_all(w[i]);
            sum += w[i];
        }
        ee += we * e;
        el += we * level;
        ll += wl * level;
        e1 += we;
        l1 += wl;
    }
    t->ee = ee, t->el = el, t->ll = ll, t->e = e1, t->l = l1;
    t->sum = w ? sum : (float)n;
}

void qfit_try(const struct qgrid *g, const float *x, const float *w, int n, struct qtrial *t) {
    if (g->levels && w)
        try_any(g->levels, g, x, w, n, t);
    else if (g->levels)
        try_any(g->levels, g, x, NULL, n, t);
    else if (w)
        try_any(NULL, g, x, w, n, t);
    else
        try_any(NULL, g, x, NULL, n, t);
}

void qfit_solve_scale(struct qtrial *t) {
    v4 step = v4_ratio(t->el, t->ll);
    t->d += step;
    t->ee -= step * t->el;
}

/* Moves d and m by a step; the error is a quadratic form in them. */
static inline void step_both(struct qtrial *t, v4 d, v4 m, v4 n) {
    v4 two = v4_all(2);
    t->d += d;
    t->m += m;
    t->ee += d * (d * t->ll + two * (m * t->l - t->el)) + m * (m * n - two * t->e);
}

static inline v4 scale_step(const struct qtrial *t, v4 n) {
    return v4_ratio(t->el * n - t->e * t->l, t->ll * n - t->l * t->l);
}

void qfit_solve_both(struct qtrial *t) {
    v4 count = v4_all(t->sum), step = scale_step(t, count);
    step_both(t, step, (t->e - step * t->l) / count, count);
}

void qfit_solve_below(struct qtrial *t) {
    v4 count = v4_all(t->sum), d = scale_step(t, count), m = (t->e - d * t->l) / count;
    v4i above = t->m + m > v4_all(0);
    m = v4_pick(above, -t->m, m);
    d = v4_pick(above, v4_ratio(t->el - m * t->l, t->ll), d);
    step_both(t, d, m, count);
}

void qfit_keep(struct qtrial *best, const struct qtrial *t) {
    v4i better = t->ee < best->ee;
    best->d = v4_pick(better, t->d, best->d);
    best->m = v4_pick(better, t->m, best->m);
    best->l = v4_pick(better, t->l, best->l);
    best->ee = v4_pick(better, t->ee, best->ee);
}

void qfit_codes(const struct qgrid *g, const float *x, int n, float d, float m, uint8_t *codes) {
    v4 inverse = v4_all(d != 0 ? 1 / d : 0), lo = v4_all(g->lo), hi = v4_all(g->hi);
    for (int i = 0; i < n; i += QFIT_LANES) {
        v4 scaled = (v4_load(x + i) - v4_all(m)) * inverse;
        v4 code = g->levels ? table_cells(scaled) : v4_round(v4_clamp(scaled, lo, hi)) - lo;
        for (int k = 0; k < QFIT_LANES; k++)
            codes[i + k] = g->levels ? g->levels->index[(int)code[k]] : (uint8_t)code[k];
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

uint16_t qfit_half_away(float f) {
    uint16_t near = qfit_half(f);
    bool coarse = fabsf(f16_to_f32(near)) < 0.999f * fabsf(f) && (near & 0x7fff) < 0x7bff;
    return (uint16_t)(near + coarse);
}

float qfit_take(const float *src, int n, float far, float *dst) {
    const float near = 0x1p-25f;
    v4 lowest = v4_all(0), highest = v4_all(0);
    for (int i = 0; i < n; i += QFIT_LANES) {
        v4 x = v4_load(src + i);
        x = v4_clamp(v4_pick(x == x, x, v4_all(0)), v4_all(-far), v4_all(far));
        memcpy(dst + i, &x, sizeof x);
        lowest = v4_clamp(lowest, v4_all(-far), x);
        highest = v4_clamp(highest, x, v4_all(far));
    }
    float extreme = 0;
    for (int k = 0; k < QFIT_LANES; k++) {
        if (-lowest[k] > fabsf(extreme)) extreme = lowest[k];
        if (highest[k] > fabsf(extreme)) extreme = highest[k];
    }
    if (fabsf(extreme) >= near) return extreme;
    memset(dst, 0, (size_t)n * sizeof *dst);
    return 0;
}
