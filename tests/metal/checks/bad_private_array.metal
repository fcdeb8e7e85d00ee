// A register array that a run-time bound indexes: it stays in memory. (metalarrays)
#include <metal_stdlib>
using namespace metal;

kernel void gather(constant uint &n [[buffer(0)]], device const float *x [[buffer(1)]],
                   device float *y [[buffer(2)]], uint at [[thread_position_in_grid]]) {
    float v[4];
    for (uint i = 0; i < n; i++)
        v[i] = x[4 * at + i] * 2.0f;
    for (uint i = 0; i < n; i++)
        y[4 * at + i] = v[n - 1 - i];
}
