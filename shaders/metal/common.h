/* common.h - what every Metal source starts with: the shared argument structs, decoders of stored
 * types. Included text is flattened into each source when it is embedded, so that a library is one
 * string. */
#ifndef INFERD_METAL_COMMON_H
#define INFERD_METAL_COMMON_H

#include <metal_stdlib>

#include "core/base/qblock.h"
#include "shaders/args.h"

using namespace metal;

#define SIMD_WIDTH 32

/* A BF16's value: its bits are the upper half of a float's. */
static inline float bf16_value(ushort bits) {
    return as_type<float>(uint(bits) << 16);
}

/* An IEEE half's value from its bits. */
static inline float f16_value(ushort bits) {
    return float(as_type<half>(bits));
}

#endif
