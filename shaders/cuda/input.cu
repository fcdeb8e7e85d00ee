/* input.cu - prologue of a product: adds the pending residual to the rows, norms them, and
 * rounds them to the type that the product's weights need.
 *
 * One block per row, its values in registers, four neighbouring columns at a time: thread t has
 * columns 4 (t + i blockDim) + 0..3. Order of sums: a thread's squares at one place of the four
 * in the order of i, the four sums in pairs, then the warp's by xor shuffles, then the warps'
 * likewise. The launcher derives the number of threads from n_in alone, so the order does not
 * depend on other rows.
 *
 * input_sum also makes the sum of the ranks that is its residual (peer.cuh): the launch of an
 * exchange of its own would cost as much as the exchange.
 *
 * input_gated makes its input, too, from the sums of gate and up, so that many rows of an FFN's
 * hidden layer are not written and read again. It adds nothing up: any number of threads gives the
 * same bits. */
#include "shaders/args_linear.h"
#include "shaders/cuda/device.cuh"
#include "shaders/cuda/epilogue.cuh"
#include "shaders/cuda/kernels.h"
#include "shaders/cuda/peer.cuh"

namespace {

enum { MAX_WARPS = 32 };

/* Threads per multiprocessor: 2048; on sm_86, sm_89 and sm_120 1536. */
#if defined(__CUDA_ARCH__) &&                                                                      \
    (__CUDA_ARCH__ >= 1200 || (__CUDA_ARCH__ > 800 && __CUDA_ARCH__ < 900))
enum { HOLDS_2048 = 0 };
#else
enum { HOLDS_2048 = 1 };
#endif

struct place {
    uint32_t col;  /* of the first of the four */
    uint32_t n_in; /* number of columns of the row */
    bool whole;    /* rows begin at a multiple of 16 bytes */
};

__device__ __forceinline__ float4 load4(const float *row, place p) {
    if (p.whole)
        return p.col < p.n_in ? *reinterpret_cast<const float4 *>(row + p.col)
                              : make_float4(0, 0, 0, 0);
    return make_float4(
        p.col < p.n_in ? row[p.col] : 0.0f, p.col + 1 < p.n_in ? row[p.col + 1] : 0.0f,
        p.col + 2 < p.n_in ? row[p.col + 2] : 0.0f, p.col + 3 < p.n_in ? row[p.col + 3] : 0.0f);
}

__device__ __forceinline__ void store4(float *row, place p, float4 v) {
    if (p.whole) {
        if (p.col < p.n_in) *reinterpret_cast<float4 *>(row + p.col) = v;
        return;
    }
    if (p.col < p.n_in) row[p.col] = v.x;
    if (p.col + 1 < p.n_in) row[p.col + 1] = v.y;
    if (p.col + 2 < p.n_in) row[p.col + 2] = v.z;
    if (p.col + 3 < p.n_in) row[p.col + 3] = v.w;
}

__device__ __forceinline__ float4 fma4(float a, float4 b, float4 c) {
    return make_float4(fmaf(a, b.x, c.x), fmaf(a, b.y, c.y), fmaf(a, b.z, c.z), fmaf(a, b.w, c.w));
}

/* v * k * w, rounded after each. */
__device__ __forceinline__ float4 norm4(float4 v, float k, float4 w) {
    return make_float4(__fmul_rn(__fmul_rn(v.x, k), w.x), __fmul_rn(__fmul_rn(v.y, k), w.y),
                       __fmul_rn(__fmul_rn(v.z, k), w.z), __fmul_rn(__fmul_rn(v.w, k), w.w));
}

__device__ __forceinline__ float4 mul4(float4 a, float4 b) {
    return make_float4(__fmul_rn(a.x, b.x), __fmul_rn(a.y, b.y), __fmul_rn(a.z, b.z),
                       __fmul_rn(a.w, b.w));
}

__device__ __forceinline__ float4 scale4(float4 v, float k) {
    return mul4(v, make_float4(k, k, k, k));
}

__device__ __forceinline__ float sum4(float4 v) {
    return __fadd_rn(__fadd_rn(v.x, v.y), __fadd_rn(v.z, v.w));
}

/* The bits of the largest |v|: as integers they have the order of the magnitudes, infinity and
 * NaN above all numbers. */
__device__ __forceinline__ uint32_t largest4(float4 v) {
    uint32_t x = __float_as_uint(v.x) & 0x7fffffff, y = __float_as_uint(v.y) & 0x7fffffff;
    uint32_t z = __float_as_uint(v.z) & 0x7fffffff, w = __float_as_uint(v.w) & 0x7fffffff;
    return max(max(x, y), max(z, w));
}

/* Reduces over the block's threads; all get both results. Each call needs shared memory of its
 * own. */
struct row_facts {
    float sum;
    uint32_t largest; /* largest4 */
};

__device__ __forceinline__ row_facts warp_facts(row_facts f) {
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        f.sum = __fadd_rn(f.sum, __shfl_xor_sync(CUDA_ALL, f.sum, i));
        f.largest = max(f.largest, __shfl_xor_sync(CUDA_ALL, f.largest, i));
    }
    return f;
}

__device__ __forceinline__ row_facts block_facts(row_facts f, row_facts *shared) {
    f = warp_facts(f);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = f;
    __syncthreads();
    uint32_t lane = threadIdx.x % 32;
    return warp_facts(lane < blockDim.x / 32 ? shared[lane] : row_facts{0.0f, 0u});
}

__device__ __forceinline__ float inverse_rms(float sum, const cargs_input &a) {
    return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)a.op.n_in), a.op.eps)));
}

/* A thread's partial sum of squares. */
template <int n> __device__ __forceinline__ float squares(const float4 v[n]) {
    float4 sums = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < n; i++)
        sums = make_float4(fmaf(v[i].x, v[i].x, sums.x), fmaf(v[i].y, v[i].y, sums.y),
                           fmaf(v[i].z, v[i].z, sums.z), fmaf(v[i].w, v[i].w, sums.w));
    return sum4(sums);
}

/* Subtracts the row's mean from its columns; those beyond the row stay 0. The sum has the order of
 * squares. */
template <int n>
__device__ __forceinline__ void center(float4 v[n], const place p[n], row_facts *shared) {
    float4 sums = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < n; i++)
        sums = fma4(1.0f, v[i], sums);
    const float mean = __fdiv_rn(block_facts({sum4(sums), 0u}, shared).sum, (float)p[0].n_in);
#pragma unroll
    for (int i = 0; i < n; i++) {
        if (p[i].col < p[i].n_in) v[i].x = __fadd_rn(v[i].x, -mean);
        if (p[i].col + 1 < p[i].n_in) v[i].y = __fadd_rn(v[i].y, -mean);
        if (p[i].col + 2 < p[i].n_in) v[i].z = __fadd_rn(v[i].z, -mean);
        if (p[i].col + 3 < p[i].n_in) v[i].w = __fadd_rn(v[i].w, -mean);
    }
}

template <int n>
__device__ __forceinline__ void store_rounded(const float4 v[n], const cargs_input &a,
                                              uint32_t largest) {
    float inverse = a.inverse, scale = a.scale;
    if (scale == 0) scale = f16_row_scale(largest, &inverse);
    if (threadIdx.x == 0) a.scales[blockIdx.x] = inverse;
    uint16_t *out = a.out16 + (uint64_t)blockIdx.x * a.pitch;
#pragma unroll
    for (int i = 0; i < n; i++) {
        uint32_t col = 4 * (threadIdx.x + i * blockDim.x);
        if (col >= a.pitch) break;
        *reinterpret_cast<uint2 *>(out + col) = make_uint2(
            pack_f16(v[i].x * scale, v[i].y * scale), pack_f16(v[i].z * scale, v[i].w * scale));
    }
}

/* v: the row's columns, summed over the ranks in their order and written back. Rows are whole.
 * When the exchange is given up, v is of no use. */
template <int n>
__device__ __forceinline__ void sum_ranks(const cargs_peer &a, uint64_t first, const place p[n],
                                          float4 v[n]) {
#pragma unroll
    for (int i = 0; i < n; i++) {
        if (p[i].col >= p[i].n_in) continue;
        v[i] = own_values(a, blockIdx.x, load4(a.x + first, p[i]));
        if (!a.sent) send_values(a, (uint32_t)(first + p[i].col), v[i]);
    }
#pragma unroll
    for (int i = 0; i < n; i++) {
        if (p[i].col >= p[i].n_in) continue;
        if (!sum_values(a, (uint32_t)(first + p[i].col), v[i])) return;
        store4(a.out + first, p[i], v[i]);
    }
}

/* A block's row. n: groups of four columns per thread. sum: the residual is what sum_ranks makes.
 */
template <int n, bool sum>
__device__ __forceinline__ void make_row(const cargs_input &a, const cargs_peer &peer,
                                         row_facts shared[3][MAX_WARPS]) {
    pdl_launch();
    float4 v[n] = {}, norm[n] = {}, residual_norm[n] = {};
    uint64_t first = (uint64_t)blockIdx.x * a.op.n_in;
    float inverse = 1;
    place p[n];
#pragma unroll
    for (int i = 0; i < n; i++) {
        p[i] = {4 * (threadIdx.x + i * blockDim.x), a.op.n_in, a.op.n_in % 4 == 0};
        if (a.norm) norm[i] = load4(a.norm, p[i]);
        if (a.residual_norm) residual_norm[i] = load4(a.residual_norm, p[i]);
    }
    pdl_wait();
    /* Of a sum's rows x is there long before it: read at once, if there are registers. */
    const bool early = sum && n == 1;
    float4 x = early ? load4(a.x + first, p[0]) : float4{};
    if (sum) {
        sum_ranks<n>(peer, first, p, v);
    } else if (a.residual) {
#pragma unroll
        for (int i = 0; i < n; i++)
            v[i] = load4(a.residual + first, p[i]);
        if (a.residual_scales) { /* read before the barrier after which scales are written */
            const float row = a.residual_scales[blockIdx.x];
#pragma unroll
            for (int i = 0; i < n; i++)
                v[i] = scale4(scale4(v[i], row), a.residual_weight_scale);
        }
    }
    if (a.residual_norm) inverse = inverse_rms(block_facts({squares<n>(v), 0u}, shared[0]).sum, a);
#pragma unroll
    for (int i = 0; i < n; i++) {
        if (!early) x = load4(a.x + first, p[i]);
        const float4 r = a.residual_norm ? norm4(v[i], inverse, residual_norm[i]) : v[i];
        v[i] = a.residual ? fma4(a.op.residual_scale, r, x) : x;
    }
    if (a.residual) {
#pragma unroll
        for (int i = 0; i < n; i++)
            store4(a.x + first, p[i], v[i]);
    }
    if (a.centred) center<n>(v, p, shared[2]);
    /* The largest magnitude is computed as that of the row before the division by its rms, times
     * the inverse rms: the block waits once instead of twice. It may be off by a rounding error,
     * for which there is room above 2^15. */
    row_facts facts = {0.0f, 0u};
    if (a.norm || a.out16) {
        if (a.scale == 0) {
#pragma unroll
            for (int i = 0; i < n; i++)
                facts.largest = max(facts.largest, largest4(a.norm ? mul4(v[i], norm[i]) : v[i]));
        }
        facts.sum = squares<n>(v);
        facts = block_facts(facts, shared[1]);
    }
    if (a.norm) {
        inverse = inverse_rms(facts.sum, a);
        float largest = __fmul_rn(__uint_as_float(facts.largest), inverse);
        if (a.bias) largest = __fadd_rn(largest, a.largest_bias);
        facts.largest = __float_as_uint(largest);
#pragma unroll
        for (int i = 0; i < n; i++)
            v[i] = norm4(v[i], inverse, norm[i]);
        if (a.bias) {
#pragma unroll
            for (int i = 0; i < n; i++)
                v[i] = fma4(1.0f, load4(a.bias, p[i]), v[i]);
        }
    }
    if (a.out16) store_rounded<n>(v, a, facts.largest);
    if (a.out32) {
#pragma unroll
        for (int i = 0; i < n; i++)
            store4(a.out32 + first, p[i], v[i]);
    }
}

/* v: the row's columns, from the sums of gate and up; 0 beyond the row. A few columns of up at a
 * time, because all of both would not fit into registers. act is a constant, so that a row's code
 * has one activation. */
template <int n, uint32_t act>
__device__ __forceinline__ void gate_row(const cargs_apply_epilogue &a, float4 v[n]) {
    enum { SOME = n < 16 ? 2 : 4 };
    const uint64_t first = (uint64_t)blockIdx.x * a.n_out;
    const float in_scale = a.in_scale[blockIdx.x];
    cargs_epilogue t = a.epilogue;
    t.act = act;
    place p[n];
#pragma unroll
    for (int i = 0; i < n; i++) {
        p[i] = {4 * (threadIdx.x + i * blockDim.x), a.n_out, true};
        v[i] = load4(a.sums + first, p[i]);
    }
#pragma unroll
    for (int from = 0; from < n; from += SOME) {
        float4 up[SOME];
#pragma unroll
        for (int k = 0; k < SOME; k++)
            up[k] = load4(a.pair_sums + first, p[from + k]);
#pragma unroll
        for (int k = 0; k < SOME; k++) {
            float4 &x = v[from + k];
            const uint32_t col = p[from + k].col;
            if (col >= a.n_out) continue;
            x.x = epilogue_pair(t, in_scale, x.x, up[k].x, col);
            x.y = epilogue_pair(t, in_scale, x.y, up[k].y, col + 1);
            x.z = epilogue_pair(t, in_scale, x.z, up[k].z, col + 2);
            x.w = epilogue_pair(t, in_scale, x.w, up[k].w, col + 3);
        }
    }
}

/* The largest block of input_gated. Two blocks fit into a multiprocessor's registers, except with
 * 16 groups of columns. */
template <int n> constexpr int gated_threads = n == 8 ? 448 : 512;

/* scales may be in_scale: a block reads its row's before the barrier of block_facts, after which
 * it is written. */
template <int n>
CUDA_KERNEL_MIN(gated_threads<n>, n < 16 ? 2 : 1)
input_gated(CUDA_ARGS(struct cargs_input_gated) a) {
    __shared__ row_facts shared[MAX_WARPS];
    row_facts facts = {0.0f, 0u};
    float4 v[n];
    pdl_launch();
    pdl_wait();
    switch (a.pair.epilogue.act) {
    case ARGS_ACT_GELU:
        gate_row<n, ARGS_ACT_GELU>(a.pair, v);
        break;
    case ARGS_ACT_GELU_TANH:
        gate_row<n, ARGS_ACT_GELU_TANH>(a.pair, v);
        break;
    case ARGS_ACT_SWIGLU_OAI:
        gate_row<n, ARGS_ACT_SWIGLU_OAI>(a.pair, v);
        break;
    default:
        gate_row<n, ARGS_ACT_SILU>(a.pair, v);
    }
#pragma unroll
    for (int i = 0; i < n; i++)
        facts.largest = max(facts.largest, largest4(v[i]));
    store_rounded<n>(v, a.in, block_facts(facts, shared).largest);
}

/* plain: no residual and no norm. blocks: at least that many per multiprocessor, so that with many
 * rows one block reads while another one computes or writes. */
template <int n, bool plain, int blocks>
CUDA_KERNEL_MIN(1024, HOLDS_2048 ? blocks : 1)
input(CUDA_ARGS(struct cargs_input) all) {
    __shared__ row_facts shared[3][MAX_WARPS];
    cargs_input a = all;
    if (plain) a.norm = a.residual = a.residual_norm = a.bias = nullptr, a.centred = 0;
    make_row<n, false>(a, {}, shared);
}

template <int n> CUDA_KERNEL(1024) input_sum(CUDA_ARGS(struct cargs_input_sum) a) {
    __shared__ row_facts shared[3][MAX_WARPS];
    make_row<n, true>(a.in, a.peer, shared);
}

} // namespace

const void *cuda_input_kernel(uint32_t n, int plain) {
    if (n <= 1) return (const void *)input<1, false, 2>;
    if (n <= 4) return plain ? (const void *)input<4, true, 2> : (const void *)input<4, false, 1>;
    return (const void *)input<16, false, 1>;
}

const void *cuda_input_sum_kernel(uint32_t n) {
    return n <= 1 ? (const void *)input_sum<1> : n <= 4 ? (const void *)input_sum<4> : nullptr;
}

struct cuda_input_gated cuda_input_gated_kernel(uint32_t pitch) {
    if (pitch <= 4 * 2 * gated_threads<2>) return {(const void *)input_gated<2>, 2};
    if (pitch <= 4 * 8 * gated_threads<8>) return {(const void *)input_gated<8>, 8};
    if (pitch <= 4 * 16 * gated_threads<16>) return {(const void *)input_gated<16>, 16};
    return {nullptr, 0};
}
