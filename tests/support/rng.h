/* rng.h - the tests' random generator: xorshift64* (Vigna 2016), seeded, the same on every machine.
 * A state must not be 0. Not thread-safe: one struct rng per thread. */
#ifndef INFERD_TESTS_RNG_H
#define INFERD_TESTS_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state;
};

/* 32 random bits. */
static inline uint32_t rng_next(struct rng *r) {
    r->state ^= r->state >> 12;
    r->state ^= r->state << 25;
    r->state ^= r->state >> 27;
    return (uint32_t)((r->state * UINT64_C(2685821657736338717)) >> 32);
}

/* 0 .. n - 1; n > 0. */
static inline uint32_t rng_below(struct rng *r, uint32_t n) {
    return rng_next(r) % n;
}

/* lo <= x < hi, in steps of (hi - lo) / 2^24. */
static inline float rng_float(struct rng *r, float lo, float hi) {
    return lo + (hi - lo) * (float)(rng_next(r) >> 8) * 0x1p-24f;
}

#endif
