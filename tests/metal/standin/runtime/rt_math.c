/* rt_math.c - arithmetic that GPUs leave open, chosen by the options of the dispatch. Runs on a
 * worker's thread. */
#include "rt_int.h"

#include <math.h>
#include <string.h>

int msl_rt_sum_tree(void) {
    return rt_grid.o.sum_tree;
}

int msl_rt_flush_halves(void) {
    return rt_grid.o.flush_halves;
}

static uint64_t mix(uint64_t h, uint64_t x) {
    h = (h ^ x) * 0x9E3779B97F4A7C15ULL;
    return h ^ h >> 29;
}
static uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* Fast math leaves NaN and infinity undefined, as arguments and as results; sines are accurate
 * within [-pi, pi] alone (MSL Specification, "Numerical Compliance"). */
static int in_domain(float r, float x, float y, const char *name) {
    if (!isfinite(r) || !isfinite(x) || !isfinite(y)) return 0;
    const int angle =
        strcmp(name, "sin") == 0 || strcmp(name, "cos") == 0 || strcmp(name, "tan") == 0;
    return !angle || fabsf(x) <= 3.1415927f;
}

float msl_rt_fast(float r, float x, float y, const char *name) {
    if (*name == 't' && strcmp(name, "tanh") == 0) { /* so the specification defines it */
        const float t = expf(2.0f * x);
        r = (t - 1.0f) / (t + 1.0f);
    }
    if (!in_domain(r, x, y, name)) {
        if (rt_grid.o.check && rt_fiber) /* not in an initialiser of the object */
            rt_fail("fast::%s of %g is undefined", name, (double)(isfinite(y) ? x : y));
        return NAN;
    }
    if (!rt_grid.o.noise || !isnormal(r)) return r;
    uint64_t h = mix(mix(rt_grid.o.noise, bits_of(x)), bits_of(y));
    for (; *name; name++)
        h = mix(h, (uint8_t)*name);
    uint32_t u = bits_of(r) + (uint32_t)(h % 5) - 2;
    float moved;
    memcpy(&moved, &u, sizeof moved);
    return isnormal(moved) ? moved : r;
}
