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
float msl_rt_fast(float r, float x, float y, const char *name) {
    if (!isfinite(x) || !isfinite(y)) {
        if (rt_grid.o.check && rt_fiber) /* not in an initialiser of the object */
            rt_fail("fast::%s of %g: fast math leaves NaN and infinity undefined", name,
                    (double)(isfinite(x) ? y : x));
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
