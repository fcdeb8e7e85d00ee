/* common.h - included by every Metal source: the shared argument structs and conversions of 16-bit
 * floats. embed-metal replaces includes by their text, because a device compiles each library from
 * one string. */
#ifndef INFERD_METAL_COMMON_H
#define INFERD_METAL_COMMON_H

#include <metal_stdlib>

/* No product and sum become an fma unless the source says so. (The stand-in contracts them, so that
 * nothing depends on it.) */
#pragma METAL fp contract(off)

#include "core/base/qblock.h"
#include "shaders/args.h"

using namespace metal;

#define SIMD_WIDTH 32

/* The value of a BF16: its bits are the upper half of a float. */
static inline float bf16_value(ushort bits) {
    return as_type<float>(uint(bits) << 16);
}

/* The value of an IEEE half from its bits. */
static inline float f16_value(ushort bits) {
    return float(as_type<half>(bits));
}

// erfc(z), z >= 0, within a relative 1.2e-7 before rounding: a Chebyshev fit (Press et al.,
// "Numerical Recipes", 6.2).
static inline float erfc_of(float z) {
    const float t = 1.0f / (1.0f + 0.5f * z);
    float p = 0.17087277f;
    p = fma(p, t, -0.82215223f);
    p = fma(p, t, 1.48851587f);
    p = fma(p, t, -1.13520398f);
    p = fma(p, t, 0.27886807f);
    p = fma(p, t, -0.18628806f);
    p = fma(p, t, 0.09678418f);
    p = fma(p, t, 0.37409196f);
    p = fma(p, t, 1.00002368f);
    p = fma(p, t, -1.26551223f);
    return t * precise::exp(fma(-z, z, p));
}

static inline float gelu(float x) {
    const float half_tail = 0.5f * erfc_of(fabs(x) * 0.70710678f);
    if (x > 8.0f) return x; // half_tail would round away, and times infinity is NaN
    return x > 0.0f ? x - x * half_tail : x < -100.0f ? 0.0f : x * half_tail;
}

#endif
