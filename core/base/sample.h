/* sample.h - the draw of a token from the first tokens of a row, in arithmetic that has the same
 * bits on every machine: f64 additions, multiplications and divisions alone, none of them
 * contracted (C is compiled with -ffp-contract=off), no function of libm. C and device code (CUDA)
 * compile the same lines. Pure; any thread.
 *
 * The filters keep a beginning of the tokens, which come in the samplers' order (logit down, of
 * equal ones the lower id first): top_k, of these the shortest with a mass of top_p, of these the
 * ones that weigh at least min_p of the first. The draw walks what is left by id, up to a number
 * from Philox4x32-10 with key = seed and counter = index. Sums go from the first to the last. */
#ifndef INFERD_BASE_SAMPLE_H
#define INFERD_BASE_SAMPLE_H

#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define SAMPLE_FN        static __device__ inline
#define SAMPLE_MUL(a, b) __dmul_rn(a, b)
#define SAMPLE_ADD(a, b) __dadd_rn(a, b)
#else
#define SAMPLE_FN        static inline
#define SAMPLE_MUL(a, b) ((a) * (b))
#define SAMPLE_ADD(a, b) ((a) + (b))
#endif

enum { SAMPLE_MAX = 64 }; /* tokens that a draw looks at, at most */

/* Of one draw. */
struct sample_params {
    uint64_t seed, index;
    float temperature; /* 0: the first token */
    float top_p;       /* 1: off */
    float min_p;       /* 0: off */
    uint32_t top_k;    /* 0: all that are there */
};

/* exp(x) of x <= 0 within 2 units of the last place; 0 below -708, where results are subnormal. */
SAMPLE_FN double sample_exp(double x) {
    if (!(x >= -708.0)) return 0.0;
    /* x = k ln 2 + r, |r| <= ln 2 / 2. Adding 1.5 * 2^52 rounds to an integer, in the low bits. */
    const double shifted = SAMPLE_ADD(SAMPLE_MUL(x, 0x1.71547652b82fep+0), 0x1.8p+52);
    const double k = SAMPLE_ADD(shifted, -0x1.8p+52);
    double r = SAMPLE_ADD(x, SAMPLE_MUL(k, -0x1.62e42fee00000p-1)); /* exact: k has 11 bits */
    r = SAMPLE_ADD(r, SAMPLE_MUL(k, -0x1.a39ef35793c76p-33));
    double p = 1.0 / 6227020800.0; /* the series up to r^13 / 13! */
    p = SAMPLE_ADD(SAMPLE_MUL(p, r), 1.0 / 479001600.0);
    p = SAMPLE_ADD(SAMPLE_MUL(p, r), 1.0 / 39916800.0);
    p = SAMPLE_ADD(SAMPLE_MUL(p, r), 1.0 / 3628800.0);
    p = SAMPLE_ADD(SAMPLE_MUL(p, r), 1.0 / 362880.0);
    p = SAMPLE_ADD(SAMPLE_MUL(p, r), 1.0 / 40320.0);
    p = SAMPLE_ADD(SAMPLE_MUL(p, r), 1.0 / 5040.0);
    p = SAMPLE_ADD(SAMPLE_MUL(p, r), 1.0 / 720.0);
    p = SAMPLE_ADD(SAMPLE_MUL(p, r), 1.0 / 120.0);
    p = SAMPLE_ADD(SAMPLE_MUL(p, r), 1.0 / 24.0);
    p = SAMPLE_ADD(SAMPLE_MUL(p, r), 1.0 / 6.0);
    p = SAMPLE_ADD(SAMPLE_MUL(p, r), 0.5);
    p = SAMPLE_ADD(SAMPLE_MUL(p, r), 1.0);
    p = SAMPLE_ADD(SAMPLE_MUL(p, r), 1.0);
    uint64_t bits;
    double scale;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52; /* 2^k: the low 12 bits of shifted are k's, in two's complement */
    memcpy(&scale, &bits, sizeof scale);
    return SAMPLE_MUL(p, scale);
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

/* In [0, 1), 53 bits. */
SAMPLE_FN double sample_uniform(uint64_t seed, uint64_t index) {
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), 0, 0};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, r[4];
    sample_philox(counter, key, r);
    uint64_t bits = ((uint64_t)r[0] << 32 | r[1]) >> 11;
    return SAMPLE_MUL((double)bits, 0x1p-53);
}

/* Of a token, where max is the first one's logit; logit may be -inf. */
SAMPLE_FN double sample_weight(float logit, float max, float temperature) {
    return sample_exp(((double)logit - (double)max) / (double)temperature);
}

/* How many of n tokens top_k keeps. */
SAMPLE_FN uint32_t sample_first(const struct sample_params *p, uint32_t n) {
    return p->top_k && p->top_k < n ? p->top_k : n;
}

/* How many of the n tokens, in the samplers' order, top_p keeps. */
SAMPLE_FN uint32_t sample_nucleus(const double *weights, uint32_t n, float top_p) {
    double total = 0, mass = 0;
    if (!(top_p < 1.0f)) return n;
    for (uint32_t i = 0; i < n; i++)
        total = SAMPLE_ADD(total, weights[i]);
    const double want = SAMPLE_MUL((double)top_p, total);
    for (uint32_t i = 0; i + 1 < n; i++) {
        mass = SAMPLE_ADD(mass, weights[i]);
        if (mass >= want) return i + 1;
    }
    return n;
}

/* The draw u in [0, 1) from n tokens in the order of their ids; which of them. */
SAMPLE_FN uint32_t sample_walk(const double *weights, uint32_t n, double u) {
    double total = 0, sum = 0;
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < n; i++)
        total = SAMPLE_ADD(total, weights[i]);
    const double target = SAMPLE_MUL(u, total);
    for (uint32_t i = 0; i < n; i++) {
        if (!(weights[i] > 0)) continue;
        chosen = i; /* rounding may leave the sum below target: the last one is it */
        sum = SAMPLE_ADD(sum, weights[i]);
        if (sum > target) break;
    }
    return chosen;
}

/* A row with such a first logit cannot be drawn from. */
SAMPLE_FN int sample_is_finite(float logit) {
    uint32_t bits;
    memcpy(&bits, &logit, sizeof bits);
    return (bits & 0x7f800000u) != 0x7f800000u;
}

#if !defined(__cplusplus)
/* The draw from the n <= SAMPLE_MAX first tokens of a row, in the samplers' order; p->temperature
 * above 0 and p->top_k above n: as if it were n. -1: the first logit is not finite. */
int32_t sample_draw(const struct sample_params *p, const int32_t *ids, const float *logits,
                    uint32_t n);
#endif

#endif
