// error: is a keyword
#include <metal_stdlib>
using namespace metal;
kernel void k(device uint *d [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    uint fragment = i;
    d[i] = fragment;
}
