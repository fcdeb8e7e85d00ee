/* qencode_iq.c - encoders of the IQ1, IQ2 and IQ3 types: a search over grid points and scales.
 *
 * A unit is the eight (IQ3: four) values that share a grid point g, a span the values that share a
 * scale. Under the scale D a unit's weighted error is
 *
 *   sum w (x - D g)^2 = sum w x^2 - 2 D a + D^2 b,  a = sum w x g, b = sum w g^2
 *
 * so a and b of each point say everything about it, and the best point for each D is the lower
 * envelope of the lines D b - 2 a. It is found once, point after point with falling b, for all D
 * that may occur; afterwards a scale costs a look-up, and many are tried. IQ2 and IQ3 store signs
 * apart: x is then a magnitude. Where the sign bits of eight values must have an even number of
 * ones and x has an odd one, the wrong sign costs 4 D w x g, least for one of the values: it is in
 * a.
 *
 * The super-block's half: starting points that give the largest scale different codes, refined by
 * least squares, each with the best codes of the spans. What looks at all points is in qpoints.h.
 * Pure; any thread. */
#include "core/base/qfit.h"
#include "core/base/qgrid.h"
#include "core/base/qiq.h"
#include "core/base/qpoints.h"
#include "core/base/qtype_int.h"

#include <math.h>
#include <string.h>

enum {
    MAX_UNITS = QK_ELEMS / 4,
    MAX_SEGMENTS = 32,
    MAX_SPANS = 16,
    N_SCALES = 24, /* tried for a span by itself */
    N_STARTS = 6,  /* of a super-block's half */
    N_ROUNDS = 2   /* of each of them */
};

/* An item is the units whose alternatives are chosen together: IQ3_XXS: which of two units has the
 * wrong sign; IQ1: is 1/8 added or subtracted? */
struct shape {
    const uint16_t *points;
    uint32_t n_points, unit, span, item, n_alts; /* values, but for the first and the last */
    int code_max;                                /* of a span's scale 2 code + 1 */
    bool parity, shifted;
    float levels[8]; /* of a coordinate; with shifted before the shift */
};

#define IQ2_LEVELS                                                                                 \
    { 1, 3.125f, 5.375f }
static const struct shape iq2_xxs = {qgrid_iq2_xxs, 256, 8, 32, 8, 1, 15, true, false, IQ2_LEVELS};
static const struct shape iq2_xs = {qgrid_iq2_xs, 512, 8, 16, 8, 1, 15, true, false, IQ2_LEVELS};
static const struct shape iq2_s = {qgrid_iq2_s, 1024, 8, 16, 8, 1, 15, false, false, IQ2_LEVELS};
static const struct shape iq3_xxs = {
    qgrid_iq3_xxs, 256, 4, 32, 8, 2, 15, true, false, {1, 3, 5, 7, 9, 11, 13, 15.5f}};
static const struct shape iq3_s = {qgrid_iq3_s, 512, 4,     32,    4,
                                   1,           15,  false, false, {1, 3, 5, 7, 9, 11, 13, 15}};
static const struct shape iq1_s = {qgrid_iq1, 2048, 8, 32, 32, 2, 7, false, true, {-1, 0, 1}};
static const struct shape iq1_m = {qgrid_iq1, 2048, 8, 16, 8, 2, 7, false, true, {-1, 0, 1}};
#undef IQ2_LEVELS

static const float shifts[2] = {0.125f, -0.125f};

/* The coordinates of all points, as the kernel has them. */
struct grid {
    float at[8 * QPOINTS_MAX] __attribute__((aligned(QPOINTS_ALIGN)));
};

static void grid_init(const struct shape *k, uint32_t n_lanes, struct grid *g) {
    uint32_t bits = 16 / k->unit;
    for (uint32_t p = 0; p < k->n_points; p++)
        for (uint32_t i = 0; i < k->unit; i++)
            g->at[(p / n_lanes * k->unit + i) * n_lanes + p % n_lanes] =
                k->levels[k->points[p] >> bits * i & ((1u << bits) - 1)];
}

/* The best points of a unit for scales from[0] = 0, from[1], .. on. */
struct envelope {
    uint32_t n;
    float from[MAX_SEGMENTS], a[MAX_SEGMENTS], b[MAX_SEGMENTS];
    uint16_t point[MAX_SEGMENTS];
};

/* A super-block being encoded. */
struct work {
    const struct shape *k;
    const struct qpoints_kernel *kernel;
    const struct grid *grid;
    float x[QK_ELEMS], w[QK_ELEMS]; /* x: magnitudes, unless shifted */
    uint8_t signs[QK_ELEMS / 8];    /* of eight values; not if shifted */
    struct envelope best[2][MAX_UNITS];
    bool alike[MAX_UNITS];   /* there is one alternative, [0] */
    float scales[MAX_SPANS]; /* best for a span by itself */
    float a[QPOINTS_MAX] __attribute__((aligned(QPOINTS_ALIGN)));
    float b[QPOINTS_MAX] __attribute__((aligned(QPOINTS_ALIGN))); /* of a unit */
    struct qpoints_lines between;
};

struct super {
    uint16_t d;
    uint8_t codes[MAX_SPANS], alts[MAX_UNITS];
    uint16_t points[MAX_UNITS];
};

/* ---- envelopes ---- */

/* a and b of every point; flips: one of the signs is wrong. */
static void find_lines(struct work *s, uint32_t u, float shift, bool flips) {
    const uint32_t n = s->k->unit;
    const struct qpoints_unit unit = {&s->x[u * n], &s->w[u * n], n, shift, flips};
    s->kernel->lines(s->grid->at, s->k->n_points, &unit, s->a, s->b);
}

static struct qpoints_line line_of(const struct work *s, uint32_t point) {
    return (struct qpoints_line){s->a[point], s->b[point], point};
}

/* The point whose line is lowest at d; of equal ones that with the lowest b. */
static struct qpoints_line lowest_at(const struct work *s, float d) {
    return line_of(s, s->kernel->lowest(s->a, s->b, s->k->n_points, d));
}

/* The points below `first` and `last` where these cross, at d: the only ones that can be the best
 * between them. Returns how many. */
static uint32_t find_between(struct work *s, struct qpoints_line first, struct qpoints_line last) {
    float d = 2 * (first.a - last.a) / (first.b - last.b), level = d * first.b - 2 * first.a;
    struct qpoints_lines *l = &s->between;
    const uint32_t n = s->kernel->below(s->a, s->b, s->k->n_points, d, level, l->point);
    for (uint32_t i = 0; i < n; i++) {
        l->a[i] = s->a[l->point[i]];
        l->b[i] = s->b[l->point[i]];
    }
    return n;
}

static void add_segment(struct envelope *e, struct qpoints_line l, float from) {
    if (e->n == MAX_SEGMENTS) return;
    e->from[e->n] = e->n && from < e->from[e->n - 1] ? e->from[e->n - 1] : from;
    e->a[e->n] = l.a;
    e->b[e->n] = l.b;
    e->point[e->n++] = (uint16_t)l.point;
}

/* Adds what follows `first` up to `last`; the first n lines between them are those that may lie
 * below them where they cross, and are reordered. Each call adds a segment, and halves what is left
 * to look at. */
static void add_between(struct work *s, struct qpoints_line first, struct qpoints_line last,
                        uint32_t n, struct envelope *e) {
    float d = 2 * (first.a - last.a) / (first.b - last.b);
    const struct qpoints_cut cut = {d, d * first.b - 2 * first.a, first.b, last.b};
    struct qpoints_line lowest = last;
    const uint32_t n_below = s->kernel->split(&s->between, n, &cut, &lowest);
    if (n_below == 0 || e->n == MAX_SEGMENTS) {
        add_segment(e, last, d);
        return;
    }
    add_between(s, first, lowest, n_below, e);
    add_between(s, lowest, last, n_below, e);
}

/* For scales from `low` to `high`; others get the point of the nearest one. Behind the last segment
 * nothing begins. */
static void find_envelope(struct work *s, float low, float high, struct envelope *e) {
    struct qpoints_line first = lowest_at(s, low), last = lowest_at(s, high);
    e->n = 0;
    add_segment(e, first, 0);
    if (last.b < first.b) add_between(s, first, last, find_between(s, first, last), e);
    for (uint32_t i = e->n; i % QFIT_LANES; i++)
        e->from[i] = INFINITY;
}

/* The last one whose scales begin at d or below; they begin at rising ones. */
static uint32_t segment_at(const struct envelope *e, float d) {
    v4i n = {0};
    uint64_t pairs[2];
    for (uint32_t i = 0; i < e->n; i += QFIT_LANES) {
        v4 from;
        memcpy(&from, e->from + i, sizeof from);
        n -= from <= v4_all(d);
    }
    memcpy(pairs, &n, sizeof pairs);
    pairs[0] += pairs[1];
    const uint32_t found = (uint32_t)pairs[0] + (uint32_t)(pairs[0] >> 32);
    return found ? found - 1 : 0;
}

/* ---- scales ---- */

/* Sums over chosen points. */
struct sums {
    float a, b;
};

static float error_of(const struct sums *t, float d) {
    return d * (d * t->b - (t->a + t->a));
}

/* The lines of n units from `first` on, in one of their alternatives. */
static inline struct sums item_sums(const struct envelope *e, uint32_t n, float d) {
    struct sums t = {0, 0};
    for (; n; n--, e++) {
        const uint32_t i = segment_at(e, d);
        t.a += e->a[i];
        t.b += e->b[i];
    }
    return t;
}

/* The best alternative of an item (its first unit) under d; *sums get its lines. */
static uint32_t best_alt(const struct work *s, uint32_t first, float d, struct sums *sums) {
    const uint32_t n = s->k->item / s->k->unit;
    struct sums all[2] = {item_sums(&s->best[0][first], n, d)};
    uint32_t best = 0;
    if (s->k->n_alts == 2 && !s->alike[first]) {
        all[1] = item_sums(&s->best[1][first], n, d);
        best = error_of(&all[1], d) < error_of(&all[0], d); /* a branch would be a coin's toss */
    }
    sums->a += all[best].a;
    sums->b += all[best].b;
    return best;
}

/* A span's lines under d. */
static struct sums span_sums(const struct work *s, uint32_t span, float d) {
    const struct shape *k = s->k;
    struct sums sums = {0, 0};
    uint32_t first = span * k->span / k->unit;
    for (uint32_t u = 0; u < k->span / k->unit; u += k->item / k->unit)
        best_alt(s, first + u, d, &sums);
    return sums;
}

static float extreme_of(const struct work *s, uint32_t span) {
    float most = 0;
    for (uint32_t i = span * s->k->span; i < (span + 1) * s->k->span; i++)
        most = fabsf(s->x[i]) > most ? fabsf(s->x[i]) : most;
    return most;
}

/* Finds a span's envelopes and its best scale by itself. */
static void fit_span(struct work *s, uint32_t span) {
    const struct shape *k = s->k;
    const float top = k->shifted ? 1 : k->levels[k->unit == 4 ? 7 : 2];
    /* The largest value gets at most twice the largest coordinate, at least the smallest. */
    float most = extreme_of(s, span), low = most / top / 2, high = k->shifted ? 4 * most : most;
    float least = 0;
    if (most == 0) low = high = 1;
    for (uint32_t u = span * k->span / k->unit; u < (span + 1) * k->span / k->unit; u++) {
        bool odd = k->parity && __builtin_parity(s->signs[u * k->unit / 8]);
        s->alike[u] = !k->shifted && !odd;
        for (uint32_t alt = 0; alt < k->n_alts; alt++) {
            bool flips = odd && (k->n_alts == 1 || u % 2 == alt);
            if (alt && s->alike[u]) continue;
            find_lines(s, u, k->shifted ? shifts[alt] : 0, flips);
            find_envelope(s, low, high, &s->best[alt][u]);
        }
    }
    s->scales[span] = 0;
    float at = low;
    for (int i = 0; i < N_SCALES && most > 0 && at <= high; i++, at *= 1.16f) {
        float d = at;
        struct sums sums = span_sums(s, span, d);
        if (sums.b > 0 && sums.a > 0) d = sums.a / sums.b; /* the best for these points */
        sums = span_sums(s, span, d);
        if (error_of(&sums, d) >= least) continue;
        least = error_of(&sums, d);
        s->scales[span] = d;
    }
}

/* Chooses the codes of all spans under d; the two around a span's own scale, or any. */
static float choose_codes(const struct work *s, float d, bool any, uint8_t *codes,
                          struct sums *all) {
    float error = 0;
    *all = (struct sums){0, 0};
    for (uint32_t span = 0; span < QK_ELEMS / s->k->span; span++) {
        float own = d > 0 ? (s->scales[span] / d - 1) / 2 : 0, least = INFINITY;
        int low = own < 0 ? 0 : own < (float)s->k->code_max ? (int)own : s->k->code_max;
        int high = low < s->k->code_max ? low + 1 : low;
        struct sums best = {0, 0};
        float best_times = 1;
        if (any) low = 0, high = s->k->code_max;
        for (int code = low; code <= high; code++) {
            float times = (float)(2 * code + 1);
            struct sums sums = span_sums(s, span, d * times);
            float e = error_of(&sums, d * times);
            if (e >= least) continue;
            least = e;
            best = sums;
            best_times = times;
            codes[span] = (uint8_t)code;
        }
        error += least;
        all->a += best_times * best.a;
        all->b += best_times * best_times * best.b;
    }
    return error;
}

static void fit_super(const struct work *s, struct super *out) {
    float most = 0, least = INFINITY;
    for (uint32_t span = 0; span < QK_ELEMS / s->k->span; span++)
        most = s->scales[span] > most ? s->scales[span] : most;
    for (int start = 0; start <= N_STARTS; start++) {
        /* The last start is the best one so far, with all codes. */
        float d = start < N_STARTS ? most / (float)(2 * (s->k->code_max - start) + 1)
                                   : f16_to_f32(out->d);
        for (int round = 0; round < N_ROUNDS; round++) {
            uint8_t codes[MAX_SPANS] = {0};
            struct sums all;
            uint16_t half = qfit_half(d);
            float e = choose_codes(s, f16_to_f32(half), start == N_STARTS, codes, &all);
            if (e < least) {
                least = e;
                out->d = half;
                memcpy(out->codes, codes, sizeof codes);
            }
            if (all.b > 0 && all.a > 0) d = all.a / all.b;
        }
    }
}

/* The points under the chosen scales, and the signs that become wrong. */
static void take_points(struct work *s, struct super *out) {
    const struct shape *k = s->k;
    uint32_t per_item = k->item / k->unit;
    for (uint32_t first = 0; first < QK_ELEMS / k->unit; first += per_item) {
        struct sums sums = {0, 0};
        float d = f16_to_f32(out->d) * (float)(2 * out->codes[first * k->unit / k->span] + 1);
        uint32_t alt = best_alt(s, first, d, &sums);
        for (uint32_t u = first; u < first + per_item; u++) {
            const struct envelope *e = &s->best[alt][u];
            out->alts[u] = (uint8_t)alt;
            out->points[u] = e->point[segment_at(e, d)];
        }
    }
}

/* Of each group of eight values with an odd number of signs, the one that costs least is flipped.
 */
static void mend_signs(struct work *s, const struct super *out) {
    const struct shape *k = s->k;
    uint32_t bits = 16 / k->unit;
    for (uint32_t g = 0; g < QK_ELEMS / 8; g++) {
        float least = INFINITY;
        uint32_t flip = 0;
        if (!__builtin_parity(s->signs[g])) continue;
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t at = 8 * g + i, u = at / k->unit;
            uint32_t coordinate = k->points[out->points[u]] >> bits * (at % k->unit);
            float cost = s->w[at] * s->x[at] * k->levels[coordinate & ((1u << bits) - 1)];
            if (k->n_alts == 2 && u % 2 != out->alts[u]) continue;
            if (cost < least) least = cost, flip = i;
        }
        s->signs[g] ^= (uint8_t)(1u << flip);
    }
}

static void encode_super(struct work *s, const float *src, const float *w, struct super *out) {
    const struct shape *k = s->k;
    memset(out, 0, sizeof *out);
    memset(s->signs, 0, sizeof s->signs);
    qfit_take(src, QK_ELEMS, QFIT_FAR, s->x);
    for (uint32_t i = 0; i < QK_ELEMS; i++) {
        s->w[i] = w ? w[i] : 1;
        if (k->shifted || !(s->x[i] < 0)) continue;
        s->x[i] = -s->x[i];
        s->signs[i / 8] |= (uint8_t)(1u << i % 8);
    }
    for (uint32_t span = 0; span < QK_ELEMS / k->span; span++)
        fit_span(s, span);
    fit_super(s, out);
    take_points(s, out);
    if (k->parity) mend_signs(s, out);
}

/* ---- layouts: qiq.h ---- */

static void put_iq2_xxs(const struct work *s, const struct super *f, void *dst) {
    struct iq2_xxs_block *b = dst;
    b->d = f->d;
    for (uint32_t r = 0; r < QK_ELEMS / 32; r++) {
        uint32_t rest = (uint32_t)f->codes[r] << 28;
        for (uint32_t i = 0; i < 4; i++) {
            b->q[8 * r + i] = (uint8_t)f->points[4 * r + i];
            rest |= (s->signs[4 * r + i] & 127u) << 7 * i;
        }
        memcpy(b->q + 8 * r + 4, &rest, sizeof rest);
    }
}

static void put_iq2_xs(const struct work *s, const struct super *f, void *dst) {
    struct iq2_xs_block *b = dst;
    b->d = f->d;
    for (uint32_t g = 0; g < QK_ELEMS / 8; g++)
        b->q[g] = (uint16_t)(f->points[g] | (s->signs[g] & 127u) << 9);
    for (uint32_t i = 0; i < QK_ELEMS / 32; i++)
        b->scales[i] = (uint8_t)(f->codes[2 * i] | f->codes[2 * i + 1] << 4);
}

static void put_iq2_s(const struct work *s, const struct super *f, void *dst) {
    struct iq2_s_block *b = dst;
    b->d = f->d;
    for (uint32_t g = 0; g < QK_ELEMS / 8; g++) {
        b->q[g] = (uint8_t)f->points[g];
        b->high[g / 4] |= (uint8_t)(f->points[g] >> 8 << 2 * (g % 4));
        b->signs[g] = s->signs[g];
    }
    for (uint32_t i = 0; i < QK_ELEMS / 32; i++)
        b->scales[i] = (uint8_t)(f->codes[2 * i] | f->codes[2 * i + 1] << 4);
}

static void put_iq3_xxs(const struct work *s, const struct super *f, void *dst) {
    struct iq3_xxs_block *b = dst;
    b->d = f->d;
    for (uint32_t i = 0; i < QK_ELEMS / 4; i++)
        b->q[i] = (uint8_t)f->points[i];
    for (uint32_t r = 0; r < QK_ELEMS / 32; r++) {
        uint32_t rest = (uint32_t)f->codes[r] << 28;
        for (uint32_t i = 0; i < 4; i++)
            rest |= (s->signs[4 * r + i] & 127u) << 7 * i;
        memcpy(b->signs + 4 * r, &rest, sizeof rest);
    }
}

static void put_iq3_s(const struct work *s, const struct super *f, void *dst) {
    struct iq3_s_block *b = dst;
    b->d = f->d;
    for (uint32_t i = 0; i < QK_ELEMS / 4; i++) {
        b->q[i] = (uint8_t)f->points[i];
        b->high[i / 8] |= (uint8_t)(f->points[i] >> 8 << i % 8);
    }
    memcpy(b->signs, s->signs, sizeof b->signs);
    for (uint32_t i = 0; i < QK_ELEMS / 64; i++)
        b->scales[i] = (uint8_t)(f->codes[2 * i] | f->codes[2 * i + 1] << 4);
}

static void put_iq1_s(const struct work *s, const struct super *f, void *dst) {
    struct iq1_s_block *b = dst;
    (void)s;
    b->d = f->d;
    for (uint32_t r = 0; r < QK_ELEMS / 32; r++) {
        b->high[r] = (uint16_t)(f->codes[r] << 12 | f->alts[4 * r] << 15);
        for (uint32_t i = 0; i < 4; i++) {
            b->q[4 * r + i] = (uint8_t)f->points[4 * r + i];
            b->high[r] |= (uint16_t)(f->points[4 * r + i] >> 8 << 3 * i);
        }
    }
}

static void put_iq1_m(const struct work *s, const struct super *f, void *dst) {
    struct iq1_m_block *b = dst;
    (void)s;
    for (uint32_t g = 0; g < QK_ELEMS / 8; g++) {
        b->q[g] = (uint8_t)f->points[g];
        b->high[g / 2] |= (uint8_t)((f->points[g] >> 8 | f->alts[g] << 3) << 4 * (g % 2));
    }
    for (uint32_t i = 0; i < QK_ELEMS / 16; i++)
        b->scales[i / 4] |= (uint16_t)(f->codes[i] << 3 * (i % 4));
    for (uint32_t i = 0; i < 4; i++)
        b->scales[i] |= (uint16_t)((f->d >> 4 * i & 15) << 12);
}

/* Those of qpoints.h's types. */
static const struct {
    int type;
    const struct shape *shape;
    uint32_t bytes;
    void (*put)(const struct work *s, const struct super *f, void *dst);
} encoders[] = {
    {QTYPE_IQ2_XXS, &iq2_xxs, sizeof(struct iq2_xxs_block), put_iq2_xxs},
    {QTYPE_IQ2_XS, &iq2_xs, sizeof(struct iq2_xs_block), put_iq2_xs},
    {QTYPE_IQ2_S, &iq2_s, sizeof(struct iq2_s_block), put_iq2_s},
    {QTYPE_IQ3_XXS, &iq3_xxs, sizeof(struct iq3_xxs_block), put_iq3_xxs},
    {QTYPE_IQ3_S, &iq3_s, sizeof(struct iq3_s_block), put_iq3_s},
    {QTYPE_IQ1_S, &iq1_s, sizeof(struct iq1_s_block), put_iq1_s},
    {QTYPE_IQ1_M, &iq1_m, sizeof(struct iq1_m_block), put_iq1_m},
};

void qencode_iq_by(const struct qpoints_kernel *kernel, int type, const float *src, const float *w,
                   void *dst, uint64_t n) {
    struct grid grid;
    struct work s = {.kernel = kernel, .grid = &grid};
    struct super f;
    uint8_t *to = dst;
    size_t i = 0;
    while (encoders[i].type != type)
        i++;
    s.k = encoders[i].shape;
    grid_init(s.k, kernel->n_lanes, &grid);
    for (; n; n -= QK_ELEMS, src += QK_ELEMS, w += w ? QK_ELEMS : 0, to += encoders[i].bytes) {
        encode_super(&s, src, w, &f);
        memset(to, 0, encoders[i].bytes);
        encoders[i].put(&s, &f, to);
    }
}

static void encode_any(int type, const float *src, const float *w, void *dst, uint64_t n) {
    const struct qpoints_kernel *kernels[QPOINTS_MAX_KERNELS];
    qpoints_kernels(kernels);
    qencode_iq_by(kernels[0], type, src, w, dst, n);
}

#define ENCODER(name, type)                                                                        \
    void qencode_##name(const float *src, const float *w, void *dst, uint64_t n) {                 \
        encode_any(type, src, w, dst, n);                                                          \
    }
ENCODER(iq2_xxs, QTYPE_IQ2_XXS)
ENCODER(iq2_xs, QTYPE_IQ2_XS)
ENCODER(iq2_s, QTYPE_IQ2_S)
ENCODER(iq3_xxs, QTYPE_IQ3_XXS)
ENCODER(iq3_s, QTYPE_IQ3_S)
ENCODER(iq1_s, QTYPE_IQ1_S)
ENCODER(iq1_m, QTYPE_IQ1_M)
#undef ENCODER
