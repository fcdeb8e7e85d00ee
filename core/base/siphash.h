/* siphash.h - a keyed hash of 128 bits: SipHash-2-4 with its long output (Aumasson, Bernstein:
 * "SipHash: a fast short-input PRF"). Without the key one can neither construct a collision nor
 * learn anything about a text from its hash. Pure; any thread. */
#ifndef INFERD_BASE_SIPHASH_H
#define INFERD_BASE_SIPHASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hash128 {
    uint64_t lo, hi;
};

/* Hash of bytes (n) under the 128-bit key. */
struct hash128 siphash128(struct hash128 key, const void *bytes, size_t n);

static inline bool hash128_same(struct hash128 a, struct hash128 b) {
    return a.lo == b.lo && a.hi == b.hi;
}

#endif
