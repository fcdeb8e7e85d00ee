// error: deleted function
#include <metal_stdlib>
using namespace metal;
kernel void k(device uint *d [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    d[i] = simd_prefix_exclusive_sum(i > 3);
}
