// Constant bounds, a predicate inside, unrolled on request: registers. (metalarrays)
#include <metal_stdlib>
using namespace metal;

kernel void gather(constant uint &n [[buffer(0)]], device const float *x [[buffer(1)]],
                   device float *y [[buffer(2)]], uint at [[thread_position_in_grid]]) {
    float v[4];
#pragma unroll
    for (uint i = 0; i < 4; i++) {
        v[i] = 0.0f;
        if (i >= n) continue;
        v[i] = x[4 * at + i] * 2.0f;
    }
#pragma unroll
    for (uint i = 0; i < 4; i++)
        if (i < n) y[4 * at + i] = v[3 - i];
}
