/* epilogue.cuh - the epilogue of a product, from a sum to the value that is written. All kernels
 * use these functions, so that they give the same bits. */
#ifndef INFERD_SHADERS_CUDA_EPILOGUE_CUH
#define INFERD_SHADERS_CUDA_EPILOGUE_CUH

#include "shaders/args_linear.h"
#include "shaders/cuda/device.cuh"

#include <float.h>

__device__ __forceinline__ float gelu(float x) {
    return x < -100.0f ? 0.0f : 0.5f * x * erfcf(-0.70710678f * x);
}

/* The activations of backend.h. tanh(z) / 2 + 1/2 = 1 / (1 + exp(-2z)), so all but GELU are gate
 * times a sigmoid. */
__device__ __forceinline__ float epilogue_act(uint32_t act, float gate, float up) {
    if (act == ARGS_ACT_GELU) return gelu(gate) * up;
    gate = gate < -FLT_MAX ? -FLT_MAX : gate; /* avoids -inf / inf */
    float z = gate;
    if (act == ARGS_ACT_GELU_TANH)
        z = 1.5957691216057308f * fmaf(0.044715f * gate * gate, gate, gate);
    if (act == ARGS_ACT_SWIGLU_OAI) {
        gate = gate > 7.0f ? 7.0f : gate; /* keeps NaN */
        up = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
        z = 1.702f * gate;
        up += 1.0f;
    }
    return gate / (1.0f + expf(-z)) * up;
}

/* at: index into the bias. */
__device__ __forceinline__ float epilogue_sum(const cargs_epilogue &t, float in_scale, float sum,
                                              uint64_t at) {
    float v = sum * in_scale * t.scale;
    if (t.bias) v += t.bias[at];
    return t.cap != 0 ? t.cap * tanhf(v * t.y_over_cap) : v * t.y_scale;
}

__device__ __forceinline__ float epilogue_pair(const cargs_epilogue &t, float in_scale, float gate,
                                               float up, uint64_t at) {
    gate = gate * in_scale * t.scale;
    up = up * in_scale * t.pair_scale;
    if (t.bias) gate += t.bias[at];
    if (t.pair_bias) up += t.pair_bias[at];
    if (t.cap != 0) { /* NaN stays NaN */
        gate = gate > t.y_over_cap ? t.y_over_cap : gate;
        up = up > t.cap ? t.cap : up < -t.cap ? -t.cap : up;
    }
    return epilogue_act(t.act, gate, up);
}

/* What a shared expert's gate lets pass. */
__device__ __forceinline__ float epilogue_share(float score) {
    return 1.0f / (1.0f + expf(-score));
}

#endif
