/* qfit.h - private to the encoders: how well a run of values fits a grid of few levels.
 *
 * A grid's levels are the integers lo .. hi, or the sixteen of a table. Under (d, m) a value x is
 * stored as the level nearest to (x - m) / d and read as d * level + m. Four such pairs are tried
 * at a time, one in each lane of a vector: no sum crosses lanes, so results do not depend on the
 * instruction set. Errors may be weighted: w (n) in the functions below, or NULL for equal weights.
 * Pure; any thread. */
#ifndef INFERD_BASE_QFIT_H
#define INFERD_BASE_QFIT_H

#include <stdint.h>

enum { QFIT_LANES = 4, QFIT_CELLS = 512 };

typedef float v4 __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));

static inline v4 v4_all(float f) {
    return (v4){f, f, f, f};
}

/* a where the mask is set, else b. */
static inline v4 v4_pick(v4i mask, v4 a, v4 b) {
    return (v4)(((v4i)a & mask) | ((v4i)b & ~mask));
}

/* Levels of a table type: cell (t + 128) * 2 holds the level nearest to t, and its index. All
 * midpoints of adjacent levels are multiples of one half, so the nearest level of a cell is unique.
 */
struct qlevels {
    float level[QFIT_CELLS];
    uint8_t index[QFIT_CELLS];
};

void qlevels_init(struct qlevels *l, const int8_t levels[16]);

struct qgrid {
    float lo, hi;
    const struct qlevels *levels; /* NULL: integers */
};

struct qtrial {
    v4 d, m; /* the trial values; a lane with d = 0 reads every value as level 0 */
    /* Weighted sums over the values, with the error e = x - (d * level + m): e^2, e * level,
     * level^2, e, level. */
    v4 ee, el, ll, e, l;
    float sum; /* of the weights */
};

/* Computes the sums for the n values x. In all functions below n is a multiple of QFIT_LANES. */
void qfit_try(const struct qgrid *g, const float *x, const float *w, int n, struct qtrial *t);

/* Sets d (and m) to the least-squares solution for the chosen levels, and ee to its error; choosing
 * levels again can only decrease it. */
void qfit_solve_scale(struct qtrial *t);
void qfit_solve_both(struct qtrial *t);

/* As qfit_solve_both with m <= 0. */
void qfit_solve_below(struct qtrial *t);

/* Per lane, stores the better of best and t in best. */
void qfit_keep(struct qtrial *best, const struct qtrial *t);

/* codes[i] = level - lo, or the level's index in its table. */
void qfit_codes(const struct qgrid *g, const float *x, int n, float d, float m, uint8_t *codes);

/* The lane with the smallest error. */
int qfit_best(const struct qtrial *t);

/* The nearest half, never infinite; the second function rounds away from 0. */
uint16_t qfit_half(float f);
uint16_t qfit_half_away(float f);

/* Copies n values to dst, NaN as 0, the others clamped to -far .. far, so that every sum of squares
 * is finite. Returns the value of largest magnitude; 0 if it is too small for a half scale, and
 * then all values are 0. */
#define QFIT_FAR 0x1p28f /* beyond any type's largest value */
float qfit_take(const float *src, int n, float far, float *dst);

#endif
