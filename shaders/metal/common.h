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

#endif
