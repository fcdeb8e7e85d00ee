/* qpoints_lanes.h - the kernel of qpoints.h with LANES lanes, as KERNEL; included by one file for
 * each number of lanes, which may define any_lanes(v4i): a bit for each lane that is set. */
#include "core/base/qpoints.h"

#include <math.h>
#include <string.h>

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));

static inline vf vf_all(float f) {
    return f - (vf){0};
}

static inline vf vf_pick(vi mask, vf a, vf b) {
    return (vf)(((vi)a & mask) | ((vi)b & ~mask));
}

static inline vf vf_load(const float *p) {
    vf x;
    memcpy(&x, __builtin_assume_aligned(p, 4 * LANES), sizeof x);
    return x;
}

static inline void vf_store(float *p, vf x) {
    memcpy(__builtin_assume_aligned(p, 4 * LANES), &x, sizeof x);
}

#ifndef ANY_LANES
static inline uint32_t bits_of(vi mask) {
    uint64_t any[LANES / 2], all = 0;
    uint32_t bits = 0;
    memcpy(any, &mask, sizeof any);
    for (int i = 0; i < LANES / 2; i++)
        all |= any[i];
    for (int i = 0; all && i < LANES; i++)
        bits |= (mask[i] & 1u) << i;
    return bits;
}
#else
#define bits_of ANY_LANES
#endif

/* Of each lane the lower one; b where one is no number. */
#ifndef LEAST_LANES
static inline vf least_of(vf a, vf b) {
    return vf_pick(a < b, a, b);
}
#define LEAST_LANES least_of
#endif

/* Sums over the coordinates of LANES points. */
struct terms {
    vf a, b, least;
};

static inline void add_term(struct terms *t, vf g, vf x, vf w, bool flips) {
    vf wg = w * g, term = x * wg;
    t->a += term;
    t->b += wg * g;
    if (flips) t->least = vf_pick(term < t->least, term, t->least);
}

static inline __attribute__((always_inline)) void lines_of(const float *grid, uint32_t n_points,
                                                           const struct qpoints_unit *u, uint32_t n,
                                                           bool flips, float *a, float *b) {
    const vf shift = vf_all(u->shift);
    vf x[8], w[8];
    for (uint32_t i = 0; i < n; i++) {
        x[i] = vf_all(u->x[i]);
        w[i] = vf_all(u->w[i]);
    }
    for (uint32_t p = 0; p < n_points; p += LANES, grid += n * LANES) {
        struct terms t = {vf_all(0), vf_all(0), vf_all(INFINITY)};
        for (uint32_t i = 0; i < n; i += 4) { /* four at a time: not every compiler unrolls */
            add_term(&t, vf_load(grid + i * LANES) + shift, x[i], w[i], flips);
            add_term(&t, vf_load(grid + (i + 1) * LANES) + shift, x[i + 1], w[i + 1], flips);
            add_term(&t, vf_load(grid + (i + 2) * LANES) + shift, x[i + 2], w[i + 2], flips);
            add_term(&t, vf_load(grid + (i + 3) * LANES) + shift, x[i + 3], w[i + 3], flips);
        }
        vf_store(a + p, flips ? t.a - t.least - t.least : t.a);
        vf_store(b + p, t.b);
    }
}

static void find_lines(const float *grid, uint32_t n_points, const struct qpoints_unit *u, float *a,
                       float *b) {
    if (u->n == 4 && u->flips)
        lines_of(grid, n_points, u, 4, true, a, b);
    else if (u->n == 4)
        lines_of(grid, n_points, u, 4, false, a, b);
    else if (u->flips)
        lines_of(grid, n_points, u, 8, true, a, b);
    else
        lines_of(grid, n_points, u, 8, false, a, b);
}

/* One pass finds how low the lowest is, another which points are. */
static uint32_t find_lowest(const float *a, const float *b, uint32_t n_points, float d) {
    const vf by = vf_all(d);
    vf low[2] = {vf_all(INFINITY), vf_all(INFINITY)};
    for (uint32_t p = 0; p < n_points; p += 2 * LANES)
        for (int i = 0; i < 2; i++) {
            const vf at = vf_load(a + p + i * LANES);
            low[i] = LEAST_LANES(by * vf_load(b + p + i * LANES) - (at + at), low[i]);
        }
    low[0] = LEAST_LANES(low[1], low[0]);
    float least = INFINITY, least_b = INFINITY;
    uint32_t best = 0;
    for (int i = 0; i < LANES; i++)
        least = low[0][i] < least ? low[0][i] : least;
    const vf most = vf_all(least);
    for (uint32_t p = 0; p < n_points; p += LANES) {
        const vf at = vf_load(a + p);
        for (uint32_t bits = bits_of(by * vf_load(b + p) - (at + at) == most); bits;
             bits &= bits - 1) {
            const uint32_t i = p + (uint32_t)__builtin_ctz(bits);
            if (b[i] > least_b || (b[i] == least_b && i % 4 >= best % 4)) continue;
            least_b = b[i];
            best = i;
        }
    }
    return best;
}

static uint32_t find_below(const float *a, const float *b, uint32_t n_points, float d, float level,
                           uint16_t *out) {
    const vf by = vf_all(d), most = vf_all(level);
    uint32_t n = 0;
    for (uint32_t p = 0; p < n_points; p += LANES) {
        const vf at = vf_load(a + p);
        for (uint32_t bits = bits_of(by * vf_load(b + p) - (at + at) < most); bits;
             bits &= bits - 1)
            out[n++] = (uint16_t)(p + (uint32_t)__builtin_ctz(bits));
    }
    return n;
}

/* The lines before i were looked at, so what takes the place of one is not tested again. */
static uint32_t split_lines(struct qpoints_lines *l, uint32_t n, const struct qpoints_cut *cut,
                            struct qpoints_line *lowest) {
    const vf by = vf_all(cut->d), level = vf_all(cut->level), high = vf_all(cut->b_below),
             low = vf_all(cut->b_above);
    float least = cut->level;
    uint32_t n_below = 0;
    for (uint32_t first = 0; first < n; first += LANES) {
        const vf at = vf_load(l->a + first), bt = vf_load(l->b + first);
        const vf values = by * bt - (at + at);
        uint32_t bits = bits_of((values < level) & (bt < high) & (bt > low));
        if (n - first < LANES) bits &= (1u << (n - first)) - 1;
        for (; bits; bits &= bits - 1) {
            const uint32_t i = first + (uint32_t)__builtin_ctz(bits);
            const struct qpoints_line one = {l->a[i], l->b[i], l->point[i]};
            const float value = cut->d * one.b - 2 * one.a;
            l->a[i] = l->a[n_below], l->b[i] = l->b[n_below], l->point[i] = l->point[n_below];
            l->a[n_below] = one.a, l->b[n_below] = one.b, l->point[n_below] = one.point;
            n_below++;
            if (value < least) least = value, *lowest = one;
        }
    }
    return n_below;
}

const struct qpoints_kernel KERNEL = {.n_lanes = LANES,
                                      .lines = find_lines,
                                      .lowest = find_lowest,
                                      .below = find_below,
                                      .split = split_lines};
