/* qencode_k.c - encoders of the super-blocks, in three steps:
 *   1. the best scale (and minimum) of each sub-block by itself;
 *   2. the super-block's halves and the sub-blocks' codes, each chosen among adjacent codes by its
 *      actual error. The halves are rounded up, so that the largest code suffices;
 *   3. the halves again by least squares over the whole super-block, while the error decreases.
 * Pure; any thread. */
#include "core/base/qfit.h"
#include "core/base/qtype_int.h"

#include <math.h>
#include <string.h>

enum { MAX_SUBS = 16, MIN_ROUNDS = 3, SCALE_ROUNDS = 3 };

struct sub {
    float d, m;     /* the sub-block's best fit */
    float level;    /* its mean level */
    int scale, min; /* codes */
};

struct super {
    uint16_t d, dmin;
    struct sub subs[MAX_SUBS];
    uint8_t codes[QK_ELEMS];
};

/* Values, and their weights or NULL. */
struct values {
    const float *x, *w;
};

static struct values values_from(const float *x, const float *w, int first) {
    return (struct values){x + first, w ? w + first : NULL};
}

/* Sums for the normal equations of a super-block's halves, and its error. */
struct totals {
    double error, aa, ab, bb, ra, rb;
};

static void add_totals(struct totals *sum, const struct qtrial *t, int lane, int scale, int min) {
    double s = scale, m = min;
    sum->error += (double)t->ee[lane];
    sum->aa += s * s * (double)t->ll[lane];
    sum->ab -= s * m * (double)t->l[lane];
    sum->bb += m * m * (double)t->sum;
    sum->ra += s * (double)t->el[lane];
    sum->rb -= m * (double)t->e[lane];
}

static int clamp_code(float code, int lo, int hi) {
    return code < (float)lo ? lo : code > (float)hi ? hi : (int)code;
}

/* ---- scale and minimum: Q2_K, Q4_K, Q5_K ---- */

/* Starting points: by how many levels the lowest and the highest value are moved. */
static const float fine_cuts[QFIT_LANES] = {-0.8f, -0.3f, 0.2f, 0.7f};
static const float coarse_cuts[QFIT_LANES] = {-0.2f, 0.1f, 0.4f, 0.7f};

struct min_shape {
    struct qgrid grid;
    int n_subs, len, code_max;
    const float *cuts; /* (QFIT_LANES) */
};

/* The best d and m <= 0 of one sub-block. */
static void fit_min_sub(const struct min_shape *k, struct values v, struct sub *s) {
    const float *x = v.x;
    float least = 0, most = x[0];
    struct qtrial t = {0}, best = {.ee = {INFINITY, INFINITY, INFINITY, INFINITY}};
    for (int i = 0; i < k->len; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    float level = (most - least) / k->grid.hi;
    for (int p = 0; p < QFIT_LANES; p++) {
        for (int i = 0; i < QFIT_LANES; i++) {
            t.m[i] = fminf(least + level * k->cuts[i], 0);
            t.d[i] = (most - level * k->cuts[p] - t.m[i]) / k->grid.hi;
        }
        qfit_try(&k->grid, v.x, v.w, k->len, &t);
        qfit_solve_below(&t);
        qfit_keep(&best, &t);
    }
    qfit_try(&k->grid, v.x, v.w, k->len, &best);
    qfit_solve_below(&best);
    int lane = qfit_best(&best);
    *s = (struct sub){.d = best.d[lane], .m = best.m[lane], .level = best.l[lane] / best.sum};
}

/* Chooses the codes of a sub-block under the super-block's d and dmin: four scales around its own,
 * and for each the minima on both sides of the one that keeps the mean. */
static void choose_min_codes(const struct min_shape *k, struct values v, float d, float dmin,
                             struct sub *s, struct totals *sum) {
    struct qtrial t[2] = {0};
    int scale[QFIT_LANES], min[2][QFIT_LANES];
    float at = d > 0 ? floorf(s->d / d) : 0;
    for (int i = 0; i < QFIT_LANES; i++) {
        scale[i] = clamp_code(at + (float)(i - 1), 0, k->code_max);
        float lane_d = d * (float)scale[i], m = s->m + (s->d - lane_d) * s->level;
        for (int side = 0; side < 2; side++) {
            min[side][i] =
                dmin > 0 ? clamp_code(floorf(-m / dmin) + (float)side, 0, k->code_max) : 0;
            t[side].d[i] = lane_d;
            t[side].m[i] = -dmin * (float)min[side][i];
        }
    }
    qfit_try(&k->grid, v.x, v.w, k->len, &t[0]);
    qfit_try(&k->grid, v.x, v.w, k->len, &t[1]);
    int best[2] = {qfit_best(&t[0]), qfit_best(&t[1])};
    int side = t[1].ee[best[1]] < t[0].ee[best[0]], lane = best[side];
    s->scale = scale[lane];
    s->min = min[side][lane];
    add_totals(sum, &t[side], lane, s->scale, s->min);
}

static void solve_halves(const struct totals *t, float *d, float *dmin) {
    double det = t->aa * t->bb - t->ab * t->ab;
    if (det > 1e-9 * t->aa * t->bb) {
        *d += (float)((t->ra * t->bb - t->rb * t->ab) / det);
        *dmin += (float)((t->rb * t->aa - t->ra * t->ab) / det);
    } else if (t->aa > 0) {
        *d += (float)(t->ra / t->aa);
    }
}

static void fit_min(const struct min_shape *k, const float *src, const float *w,
                    struct super *best) {
    float x[QK_ELEMS], d = 0, dmin = 0;
    double best_error = INFINITY;
    struct super now = {0};
    qfit_take(src, QK_ELEMS, 65504 * (float)k->code_max, x); /* a minimum's range */
    for (int s = 0; s < k->n_subs; s++) {
        fit_min_sub(k, values_from(x, w, s * k->len), &now.subs[s]);
        d = fmaxf(d, now.subs[s].d / (float)k->code_max);
        dmin = fmaxf(dmin, -now.subs[s].m / (float)k->code_max);
    }
    *best = now;
    for (int round = 0; round < MIN_ROUNDS; round++) {
        struct totals sum = {0};
        now.d = round ? qfit_half(fmaxf(d, 0)) : qfit_half_away(d);
        now.dmin = round ? qfit_half(fmaxf(dmin, 0)) : qfit_half_away(dmin);
        d = f16_to_f32(now.d);
        dmin = f16_to_f32(now.dmin);
        for (int s = 0; s < k->n_subs; s++)
            choose_min_codes(k, values_from(x, w, s * k->len), d, dmin, &now.subs[s], &sum);
        if (sum.error < best_error) {
            best_error = sum.error;
            *best = now;
        }
        solve_halves(&sum, &d, &dmin);
    }
    d = f16_to_f32(best->d);
    dmin = f16_to_f32(best->dmin);
    for (int s = 0; s < k->n_subs; s++)
        qfit_codes(&k->grid, x + s * k->len, k->len, d * (float)best->subs[s].scale,
                   -dmin * (float)best->subs[s].min, best->codes + s * k->len);
}

/* ---- signed scale alone: Q3_K, Q6_K, IQ4_XS ---- */

struct scale_shape {
    struct qgrid grid;
    int n_subs, len, code_lo; /* the highest code is -code_lo - 1 */
    const float *peaks;       /* levels tried for the value of largest magnitude */
    int n_peaks;              /* a multiple of QFIT_LANES */
};

static void fit_scale_sub(const struct scale_shape *k, struct values v, struct sub *s) {
    const float *x = v.x;
    float extreme = 0;
    struct qtrial t = {0}, best = {.ee = {INFINITY, INFINITY, INFINITY, INFINITY}};
    for (int i = 0; i < k->len; i++)
        if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
    for (int p = 0; p < k->n_peaks; p += QFIT_LANES) {
        for (int i = 0; i < QFIT_LANES; i++)
            t.d[i] = extreme / k->peaks[p + i];
        qfit_try(&k->grid, v.x, v.w, k->len, &t);
        qfit_solve_scale(&t);
        qfit_keep(&best, &t);
    }
    qfit_try(&k->grid, v.x, v.w, k->len, &best);
    qfit_solve_scale(&best);
    *s = (struct sub){.d = best.d[qfit_best(&best)]};
}

static void choose_scale_code(const struct scale_shape *k, struct values v, float d, struct sub *s,
                              struct totals *sum) {
    struct qtrial t = {0};
    int scale[QFIT_LANES];
    float at = d != 0 ? floorf(s->d / d) : 0;
    for (int i = 0; i < QFIT_LANES; i++) {
        scale[i] = clamp_code(at + (float)(i - 1), k->code_lo, -k->code_lo - 1);
        t.d[i] = d * (float)scale[i];
    }
    qfit_try(&k->grid, v.x, v.w, k->len, &t);
    int lane = qfit_best(&t);
    s->scale = scale[lane];
    add_totals(sum, &t, lane, s->scale, 0);
}

static void fit_scales(const struct scale_shape *k, const float *src, const float *w,
                       struct super *best) {
    float x[QK_ELEMS], d = 0;
    double best_error = INFINITY;
    struct super now = {0};
    qfit_take(src, QK_ELEMS, QFIT_FAR, x);
    for (int s = 0; s < k->n_subs; s++) {
        fit_scale_sub(k, values_from(x, w, s * k->len), &now.subs[s]);
        if (fabsf(now.subs[s].d) > fabsf(d)) d = now.subs[s].d;
    }
    d /= (float)k->code_lo;
    *best = now;
    for (int round = 0; round < SCALE_ROUNDS; round++) {
        struct totals sum = {0};
        now.d = round ? qfit_half(d) : qfit_half_away(d);
        d = f16_to_f32(now.d);
        for (int s = 0; s < k->n_subs; s++)
            choose_scale_code(k, values_from(x, w, s * k->len), d, &now.subs[s], &sum);
        if (sum.error < best_error) {
            best_error = sum.error;
            *best = now;
        }
        if (sum.aa > 0) d += (float)(sum.ra / sum.aa);
    }
    d = f16_to_f32(best->d);
    for (int s = 0; s < k->n_subs; s++)
        qfit_codes(&k->grid, x + s * k->len, k->len, d * (float)best->subs[s].scale, 0,
                   best->codes + s * k->len);
}

/* ---- layouts: qblock.h ---- */

/* Packs two bits of each code: byte 32 h + l has those of values l, 32 + l, 64 + l, 96 + l of half
 * h. */
static void put_pairs(const uint8_t codes[QK_ELEMS], int shift, uint8_t q[QK_ELEMS / 4]) {
    memset(q, 0, QK_ELEMS / 4);
    for (int i = 0; i < QK_ELEMS; i++)
        q[32 * (i / 128) + i % 32] |= (uint8_t)((codes[i] >> shift & 3) << 2 * (i / 32 % 4));
}

/* Packs low nibbles: byte 32 p + l has those of value l of sub-blocks 2 p and 2 p + 1. */
static void put_nibble_pairs(const uint8_t codes[QK_ELEMS], uint8_t q[QK_ELEMS / 2]) {
    for (int i = 0; i < QK_ELEMS / 2; i++) {
        const uint8_t *low = codes + i / 32 * 64 + i % 32;
        q[i] = (uint8_t)((low[0] & 15) | (low[32] & 15) << 4);
    }
}

static void put_scale_mins(const struct sub subs[8], uint8_t scales[12]) {
    for (int s = 0; s < 4; s++) {
        const struct sub *a = &subs[s], *b = &subs[s + 4];
        scales[s] = (uint8_t)(a->scale | b->scale >> 4 << 6);
        scales[s + 4] = (uint8_t)(a->min | b->min >> 4 << 6);
        scales[s + 8] = (uint8_t)((b->scale & 15) | (b->min & 15) << 4);
    }
}

void qencode_q2_k(const float *src, const float *w, void *dst, uint64_t n) {
    static const struct min_shape shape = {{0, 3, NULL}, QK_ELEMS / 16, 16, 15, coarse_cuts};
    struct q2_k_block *b = dst;
    for (; n; n -= QK_ELEMS, src += QK_ELEMS, w += w ? QK_ELEMS : 0, b++) {
        struct super f;
        fit_min(&shape, src, w, &f);
        b->d = f.d;
        b->dmin = f.dmin;
        put_pairs(f.codes, 0, b->q);
        for (int s = 0; s < QK_ELEMS / 16; s++)
            b->scales[s] = (uint8_t)(f.subs[s].scale | f.subs[s].min << 4);
    }
}

void qencode_q4_k(const float *src, const float *w, void *dst, uint64_t n) {
    static const struct min_shape shape = {{0, 15, NULL}, QK_ELEMS / 32, 32, 63, fine_cuts};
    struct q4_k_block *b = dst;
    for (; n; n -= QK_ELEMS, src += QK_ELEMS, w += w ? QK_ELEMS : 0, b++) {
        struct super f;
        fit_min(&shape, src, w, &f);
        b->d = f.d;
        b->dmin = f.dmin;
        put_scale_mins(f.subs, b->scales);
        put_nibble_pairs(f.codes, b->q);
    }
}

void qencode_q5_k(const float *src, const float *w, void *dst, uint64_t n) {
    static const struct min_shape shape = {{0, 31, NULL}, QK_ELEMS / 32, 32, 63, fine_cuts};
    struct q5_k_block *b = dst;
    for (; n; n -= QK_ELEMS, src += QK_ELEMS, w += w ? QK_ELEMS : 0, b++) {
        struct super f;
        fit_min(&shape, src, w, &f);
        b->d = f.d;
        b->dmin = f.dmin;
        put_scale_mins(f.subs, b->scales);
        put_nibble_pairs(f.codes, b->q);
        memset(b->high, 0, sizeof b->high);
        for (int i = 0; i < QK_ELEMS; i++)
            b->high[i % 32] |= (uint8_t)(f.codes[i] >> 4 << i / 32);
    }
}

void qencode_q3_k(const float *src, const float *w, void *dst, uint64_t n) {
    static const float peaks[] = {-4, -4.6f, -3.2f, -2.6f, 3, 3.6f, 2.5f, 2};
    static const struct scale_shape shape = {
        {-4, 3, NULL}, QK_ELEMS / 16, 16, -32, peaks, sizeof peaks / sizeof peaks[0]};
    struct q3_k_block *b = dst;
    for (; n; n -= QK_ELEMS, src += QK_ELEMS, w += w ? QK_ELEMS : 0, b++) {
        struct super f;
        fit_scales(&shape, src, w, &f);
        b->d = f.d;
        put_pairs(f.codes, 0, b->q);
        memset(b->high, 0, sizeof b->high);
        for (int i = 0; i < QK_ELEMS; i++)
            b->high[i % 32] |= (uint8_t)(f.codes[i] >> 2 << i / 32);
        memset(b->scales, 0, sizeof b->scales);
        for (int s = 0; s < QK_ELEMS / 16; s++) {
            int code = f.subs[s].scale + 32;
            b->scales[s % 8] |= (uint8_t)((code & 15) << 4 * (s / 8));
            b->scales[8 + s % 4] |= (uint8_t)(code >> 4 << 2 * (s / 4));
        }
    }
}

void qencode_q6_k(const float *src, const float *w, void *dst, uint64_t n) {
    static const float peaks[] = {-32, -31.2f, -30.5f, -29.8f, -29, -28.2f,
                                  31,  30.3f,  29.5f,  28.8f,  28,  27.2f};
    static const struct scale_shape shape = {
        {-32, 31, NULL}, QK_ELEMS / 16, 16, -128, peaks, sizeof peaks / sizeof peaks[0]};
    struct q6_k_block *b = dst;
    for (; n; n -= QK_ELEMS, src += QK_ELEMS, w += w ? QK_ELEMS : 0, b++) {
        struct super f;
        fit_scales(&shape, src, w, &f);
        b->d = f.d;
        put_pairs(f.codes, 4, b->high);
        for (int i = 0; i < QK_ELEMS / 2; i++) { /* quarters t and t + 2 share bytes */
            const uint8_t *low = f.codes + i / 64 * 128 + i % 64;
            b->low[i] = (uint8_t)((low[0] & 15) | (low[64] & 15) << 4);
        }
        for (int s = 0; s < QK_ELEMS / 16; s++)
            b->scales[s] = (int8_t)f.subs[s].scale;
    }
}

void qencode_iq4_xs(const float *src, const float *w, void *dst, uint64_t n) {
    static const float peaks[] = {-127, -134, -140, -116, -108, -100, 113, 120, 127, 105, 97, 90};
    struct iq4_xs_block *b = dst;
    struct qlevels levels;
    qlevels_init(&levels, iq4_levels);
    const struct scale_shape shape = {
        {0, 15, &levels}, QK_ELEMS / 32, 32, -32, peaks, sizeof peaks / sizeof peaks[0]};
    for (; n; n -= QK_ELEMS, src += QK_ELEMS, w += w ? QK_ELEMS : 0, b++) {
        struct super f;
        fit_scales(&shape, src, w, &f);
        b->d = f.d;
        b->scales_high = 0;
        memset(b->scales_low, 0, sizeof b->scales_low);
        for (int s = 0; s < QK_ELEMS / 32; s++) {
            int code = f.subs[s].scale + 32;
            b->scales_low[s / 2] |= (uint8_t)((code & 15) << 4 * (s % 2));
            b->scales_high |= (uint16_t)(code >> 4 << 2 * s);
        }
        for (int i = 0; i < QK_ELEMS / 2; i++) {
            const uint8_t *low = f.codes + i / 16 * 32 + i % 16;
            b->q[i] = (uint8_t)(low[0] | low[16] << 4);
        }
    }
}
