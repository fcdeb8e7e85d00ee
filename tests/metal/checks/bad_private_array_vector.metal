// A run-time subscript of a vector. (metalarrays)
#include <metal_stdlib>
using namespace metal;

kernel void gather(constant uint &n [[buffer(0)]], device const float4 *x [[buffer(1)]],
                   device float *y [[buffer(2)]], uint at [[thread_position_in_grid]]) {
    y[at] = x[at][n];
}
