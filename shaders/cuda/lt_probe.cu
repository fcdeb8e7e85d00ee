/* lt_probe.cu - checks that cuBLASLt adds in the order of format.h: random matrices, and the
 * reference sums. */
#include "shaders/args_linear.h"
#include "shaders/cuda/device.cuh"
#include "shaders/cuda/kernels.h"

namespace {

__device__ __forceinline__ uint32_t mix(uint32_t v) {
    v = (v ^ v >> 16) * 0x7feb352du;
    v = (v ^ v >> 15) * 0x846ca68bu;
    return v ^ v >> 16;
}

/* Values of many magnitudes between 2^-6 and 1, so that rounding shows any change of the order. */
CUDA_KERNEL(256) lt_fill(CUDA_ARGS(struct cargs_lt_fill) a) {
    pdl_wait();
    uint32_t *pairs = static_cast<uint32_t *>(a.values);
    for (uint64_t i = blockIdx.x * 256 + threadIdx.x; i < a.n / 2; i += gridDim.x * 256) {
        uint32_t h = mix((uint32_t)i), g = mix(h + 0x9e3779b9u);
        float x = ((float)(h & 0xffff) - 32767.5f) / (float)(32768 << (h >> 16) % 7);
        float y = ((float)(g & 0xffff) - 32767.5f) / (float)(32768 << (g >> 16) % 7);
        pairs[i] = pack_f16(x, y);
    }
}

/* A warp computes the reference sums of 16 weight rows by 8 inputs at a random place and
 * compares them with y. */
CUDA_KERNEL(128) lt_probe(CUDA_ARGS(struct cargs_lt_probe) a) {
    pdl_wait();
    uint32_t warp = (blockIdx.x * 128 + threadIdx.x) / 32, lane = threadIdx.x % 32, g = lane / 4,
             t = lane % 4;
    uint32_t out = mix(warp * 2 + 1) % ((a.n_out + 15) / 16) * 16;
    uint32_t row = mix(warp * 2 + 0x10001) % ((a.n_rows + 7) / 8) * 8;
    uint32_t pitch = a.pitch, part = a.split_cols;
    uint32_t in = row + g < a.n_rows ? row + g : a.n_rows - 1;
    const uint32_t *w = static_cast<const uint32_t *>(a.w) + (uint64_t)(out + g) * (pitch / 2) + t;
    const uint32_t *x = static_cast<const uint32_t *>(a.x) + (uint64_t)in * (pitch / 2) + t;
    float sum[4] = {};
    for (uint32_t first = 0; first < pitch; first += part) {
        float chain[4] = {};
        uint32_t end = first + part < pitch ? first + part : pitch;
        for (uint32_t k = first / 2; k < end / 2; k += 8) {
            const uint32_t wk[4] = {w[k], w[k + 4 * pitch], w[k + 4], w[k + 4 * pitch + 4]};
            const uint32_t xk[2] = {x[k], x[k + 4]};
            mma_f16(chain, wk, xk);
        }
        for (int i = 0; i < 4; i++)
            sum[i] = first ? sum[i] + chain[i] : chain[i];
    }
    for (int i = 0; i < 4; i++) {
        uint32_t o = out + g + i / 2 * 8, r = row + t * 2 + i % 2;
        if (o >= a.n_out || r >= a.n_rows) continue;
        if (__float_as_uint(a.y[(uint64_t)r * a.n_out + o]) != __float_as_uint(sum[i] * a.scale))
            atomicAdd(a.wrong, 1u);
    }
}

} // namespace

const void *cuda_lt_fill_kernel(void) {
    return (const void *)lt_fill;
}

const void *cuda_lt_probe_kernel(void) {
    return (const void *)lt_probe;
}
