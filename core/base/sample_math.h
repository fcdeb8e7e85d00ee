/* sample_math.h - the arithmetic of sampling from a row of logits, the same bits in C and CUDA:
 * weights are whole numbers, so that sums of them do not depend on their order. Pure; any thread.
 */
#ifndef INFERD_BASE_SAMPLE_MATH_H
#define INFERD_BASE_SAMPLE_MATH_H

#include <math.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define SAMPLE_FN static __host__ __device__ __forceinline__
#ifdef __CUDA_ARCH__
#define SAMPLE_MUL(a, b) __fmul_rn(a, b) /* never fused with an addition */
#endif
#else
#define SAMPLE_FN static inline
#endif

#ifndef SAMPLE_MUL
#define SAMPLE_MUL(a, b) ((a) * (b))
#endif

enum { SAMPLE_ONE_BITS = 40, SAMPLE_MAX_COLS = 1 << 22 }; /* sums of weights fit 63 bits */

/* exp((logit - max) / temperature) in units of 2^-SAMPLE_ONE_BITS, relative error below 2^-19 for
 * weights above 2^-20; logit <= max, temperature > 0. NaN and -inf have weight 0. 2^f on [-1/2,
 * 1/2] is its Taylor polynomial of degree 7 (error 5e-9). */
SAMPLE_FN uint64_t sample_weight(float logit, float max, float temperature) {
    float y = SAMPLE_MUL((logit - max) / temperature, 1.44269504f);
    if (!(y > -(float)(SAMPLE_ONE_BITS + 1))) return 0;
    float n = floorf(y + 0.5f), f = y - n, p = 1.52527338e-5f;
    p = fmaf(p, f, 1.54035304e-4f);
    p = fmaf(p, f, 1.33335581e-3f);
    p = fmaf(p, f, 9.61812911e-3f);
    p = fmaf(p, f, 5.55041087e-2f);
    p = fmaf(p, f, 2.40226507e-1f);
    p = fmaf(p, f, 6.93147181e-1f);
    p = fmaf(p, f, 1.0f);
    union {
        float f;
        uint32_t u;
    } bits;
    bits.f = p;
    int shift = SAMPLE_ONE_BITS + (int)n + (int)(bits.u >> 23) - 127;
    uint64_t mantissa = (bits.u & 0x7fffffu) | 0x800000u; /* of 24 bits; all but 1 below 2^40 */
    return shift >= 0 ? mantissa << shift >> 23 : 0;
}

/* A logit's rank as an integer: larger logits have larger keys; NaN counts as -inf, -0 as 0. */
SAMPLE_FN uint32_t sample_key(float logit) {
    union {
        float f;
        uint32_t u;
    } bits;
    bits.f = logit == logit ? logit + 0.0f : -INFINITY;
    return bits.u & 0x80000000u ? ~bits.u : bits.u | 0x80000000u;
}

/* top_p of the total weight, rounded up, at least 1. */
SAMPLE_FN uint64_t sample_mass(float part, uint64_t total) {
    double want = ceil((double)part * (double)total);
    return want < 1 ? 1 : want < (double)total ? (uint64_t)want : total;
}

/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). */
SAMPLE_FN void sample_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* The random target in [0, total) for token `index` of a seed: floor(r * total / 2^64), r of 64
 * bits.
 */
SAMPLE_FN uint64_t sample_target(const uint32_t seed[2], const uint32_t index[2], uint64_t total) {
    const uint32_t counter[4] = {index[0], index[1], 0, 0};
    uint32_t r[4];
    sample_philox(counter, seed, r);
    uint64_t low = (uint64_t)r[1] * (uint32_t)total, high = (uint64_t)r[0] * (total >> 32);
    uint64_t a = (uint64_t)r[0] * (uint32_t)total, b = (uint64_t)r[1] * (total >> 32);
    uint64_t middle = (low >> 32) + (uint32_t)a + (uint32_t)b;
    return high + (a >> 32) + (b >> 32) + (middle >> 32);
}

#endif
