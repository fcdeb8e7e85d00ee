// A constant bound, but nothing asks for unrolling: whether the array is in registers is up to the
// device's compiler. (metalarrays)
#include <metal_stdlib>
using namespace metal;

kernel void gather(device const float *x [[buffer(1)]], device float *y [[buffer(2)]],
                   uint at [[thread_position_in_grid]]) {
    float v[16];
    for (uint i = 0; i < 16; i++)
        v[i] = x[16 * at + i] * 2.0f;
    for (uint i = 0; i < 16; i++)
        y[16 * at + i] = v[15 - i];
}
