/* device.h - the language of the CUDA kernels (shaders/cuda/device.cuh) as C++ for the CPU: CUDA's
 * extensions of C++, and the functions that device.cuh adds to them. */
#ifndef CUDASIM_DEVICE_H
#define CUDASIM_DEVICE_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <sched.h>

#include "cudasim.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__      static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
#define __CUDA_ARCH__ 900

#define CUDA_KERNEL(threads)             void
#define CUDA_KERNEL_MIN(threads, blocks) void
/* The launcher passes the address of the struct. */
#define CUDA_ARGS(type)         const type &
#define CUDA_SHARED(type, name) type *name = reinterpret_cast<type *>(cudasim_shared_bytes)
#define CUDA_ALL                0xffffffffu

#define threadIdx (*cudasim_thread_idx)
#define blockIdx  cudasim_block_idx
#define blockDim  cudasim_block_dim
#define gridDim   cudasim_grid_dim

static const int warpSize __attribute__((unused)) = 32;

using std::max;
using std::min;

/* As in CUDA, mixed pairs use the unsigned or the larger type. */
static inline unsigned min(unsigned a, int b) {
    return a < (unsigned)b ? a : (unsigned)b;
}
static inline unsigned min(int a, unsigned b) {
    return (unsigned)a < b ? (unsigned)a : b;
}
static inline unsigned max(unsigned a, int b) {
    return a > (unsigned)b ? a : (unsigned)b;
}
static inline unsigned max(int a, unsigned b) {
    return (unsigned)a > b ? (unsigned)a : b;
}

/* ---- vectors ---- */

#define CUDASIM_MAKE(name, type)                                                                   \
    static inline name##2 make_##name##2(type x, type y) {                                         \
        return {x, y};                                                                             \
    }                                                                                              \
    static inline name##3 make_##name##3(type x, type y, type z) {                                 \
        return {x, y, z};                                                                          \
    }                                                                                              \
    static inline name##4 make_##name##4(type x, type y, type z, type w) {                         \
        return {x, y, z, w};                                                                       \
    }
CUDASIM_MAKE(char, signed char)
CUDASIM_MAKE(uchar, unsigned char)
CUDASIM_MAKE(short, short)
CUDASIM_MAKE(ushort, unsigned short)
CUDASIM_MAKE(int, int)
CUDASIM_MAKE(uint, unsigned)
CUDASIM_MAKE(float, float)
static inline double2 make_double2(double x, double y) {
    return {x, y};
}

/* ---- bits ---- */

template <typename T, typename F> static inline T cudasim_bits(F from) {
    static_assert(sizeof(T) == sizeof(F), "sizes differ");
    T to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline unsigned __float_as_uint(float v) {
    return cudasim_bits<unsigned>(v);
}
static inline int __float_as_int(float v) {
    return cudasim_bits<int>(v);
}
static inline float __uint_as_float(unsigned v) {
    return cudasim_bits<float>(v);
}
static inline float __int_as_float(int v) {
    return cudasim_bits<float>(v);
}
static inline int __popc(unsigned v) {
    return __builtin_popcount(v);
}
static inline int __popcll(unsigned long long v) {
    return __builtin_popcountll(v);
}
static inline int __clz(int v) {
    return v ? __builtin_clz((unsigned)v) : 32;
}
static inline int __clzll(long long v) {
    return v ? __builtin_clzll((unsigned long long)v) : 64;
}
static inline int __ffs(int v) {
    return __builtin_ffs(v);
}
static inline unsigned __brev(unsigned v) {
    unsigned r = 0;
    for (int i = 0; i < 32; i++)
        r |= (v >> i & 1u) << (31 - i);
    return r;
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline int __mulhi(int a, int b) {
    return (int)((int64_t)a * b >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) {
    return (unsigned)(((uint64_t)hi << 32 | lo) >> (n & 31));
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) {
    return (unsigned)((((uint64_t)hi << 32 | lo) << (n & 31)) >> 32);
}
/* Byte i of the result: byte (selector >> 4 i) & 7 of b:a; bit 3: its sign, eight times (PTX prmt).
 */
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    uint64_t both = (uint64_t)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        unsigned s = selector >> 4 * i & 15, byte = both >> 8 * (s & 7) & 255;
        if (s & 8) byte = byte & 128 ? 255 : 0;
        r |= byte << 8 * i;
    }
    return r;
}
static inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++)
        c += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    return c;
}
static inline int __vsubss4(int a, int b) {
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        int d = (int8_t)(a >> 8 * i) - (int8_t)(b >> 8 * i);
        d = d > 127 ? 127 : d < -128 ? -128 : d;
        r |= ((unsigned)d & 255) << 8 * i;
    }
    return (int)r;
}
static inline int __vsub4(int a, int b) {
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= ((((unsigned)a >> 8 * i) - ((unsigned)b >> 8 * i)) & 255) << 8 * i;
    return (int)r;
}

/* ---- floats ---- */

static inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
static inline float __fadd_rn(float a, float b) {
    return a + b;
}
static inline float __fsub_rn(float a, float b) {
    return a - b;
}
static inline float __fmul_rn(float a, float b) {
    return a * b;
}
static inline float __fdiv_rn(float a, float b) {
    return a / b;
}
static inline float __fsqrt_rn(float a) {
    return sqrtf(a);
}
static inline float __frcp_rn(float a) {
    return 1.0f / a;
}
static inline float __fdividef(float a, float b) {
    return a / b;
}
#define __expf(a)    expf(a) /* the C library has these names */
#define __logf(a)    logf(a)
#define __log2f(a)   log2f(a)
#define __sinf(a)    sinf(a)
#define __cosf(a)    cosf(a)
#define __powf(a, b) powf(a, b)
static inline float __saturatef(float a) {
    return a > 0 ? a < 1 ? a : 1.0f : 0.0f;
}
/* ex2.approx.ftz: subnormal results are 0. */
static inline float exp2_fast(float a) {
    return a < -126 ? 0.0f : exp2f(a);
}
static inline float rsqrtf(float a) {
    return (float)(1.0 / sqrt((double)a));
}
static inline double rsqrt(double a) {
    return 1.0 / sqrt(a);
}
/* To nearest, ties to even; out of range: the nearest integer, NaN: 0 (PTX cvt). */
static inline int __float2int_rn(float a) {
    return a != a ? 0 : a >= 0x1p31f ? INT32_MAX : a < -0x1p31f ? INT32_MIN : (int)nearbyintf(a);
}
static inline int __float2int_rz(float a) {
    return a != a ? 0 : a >= 0x1p31f ? INT32_MAX : a < -0x1p31f ? INT32_MIN : (int)a;
}
static inline int __float2int_rd(float a) {
    return __float2int_rz(floorf(a));
}
static inline int __float2int_ru(float a) {
    return __float2int_rz(ceilf(a));
}
static inline unsigned __float2uint_rn(float a) {
    return !(a > 0) ? 0 : a >= 0x1p32f ? UINT32_MAX : (unsigned)(long long)nearbyintf(a);
}
static inline unsigned __float2uint_rz(float a) {
    return !(a > 0) ? 0 : a >= 0x1p32f ? UINT32_MAX : (unsigned)(long long)a;
}
static inline float __int2float_rn(int a) {
    return (float)a;
}
static inline float __uint2float_rn(unsigned a) {
    return (float)a;
}

/* ---- 16-bit floats, round to nearest even ---- */

static inline float cudasim_from_f16(uint32_t h) {
    uint32_t sign = (h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
    if (e == 0) return cudasim_bits<float>(cudasim_bits<uint32_t>((float)m * 0x1p-24f) | sign);
    return cudasim_bits<float>(sign |
                               (e == 31 ? 0x7f800000u | m << 13 : (e + 112) << 23 | m << 13));
}
/* From a double, so that a sum or a product of halves is rounded once. */
static inline uint32_t cudasim_to_f16(double v) {
    uint32_t sign = std::signbit(v) ? 0x8000 : 0;
    double a = std::fabs(v);
    if (a != a) return 0x7fff; /* the canonical NaN of PTX */
    if (a >= 65520.0) return sign | 0x7c00;
    if (a < 0x1p-14) return sign | (uint32_t)std::nearbyint(a * 0x1p24);
    int e;
    double m = std::frexp(a, &e); /* a = m 2^e, m in [0.5, 1) */
    return sign | (((uint32_t)(e + 13) << 10) + (uint32_t)std::nearbyint(m * 2048.0));
}
static inline float cudasim_from_bf16(uint32_t h) {
    return cudasim_bits<float>(h << 16);
}
static inline uint32_t cudasim_to_bf16(float v) {
    uint32_t b = cudasim_bits<uint32_t>(v);
    if (v != v) return 0x7fff;
    return (b + 0x7fff + (b >> 16 & 1)) >> 16;
}

static inline uint32_t pack_f16(float lo, float hi) {
    return cudasim_to_f16(lo) | cudasim_to_f16(hi) << 16;
}
static inline uint32_t pack_bf16(float lo, float hi) {
    return cudasim_to_bf16(lo) | cudasim_to_bf16(hi) << 16;
}
static inline float2 unpack_f16(uint32_t v) {
    return {cudasim_from_f16(v & 0xffff), cudasim_from_f16(v >> 16)};
}
static inline float2 unpack_bf16(uint32_t v) {
    return {cudasim_from_bf16(v & 0xffff), cudasim_from_bf16(v >> 16)};
}
/* The product of two halves is exact in a double; its sum with a third half is rounded to odd, so
 * that the second rounding, to a half, is correct. */
static inline uint32_t cudasim_fma_f16(uint32_t a, uint32_t b, uint32_t c) {
    double p = (double)cudasim_from_f16(a) * cudasim_from_f16(b), q = cudasim_from_f16(c),
           s = p + q;
    double pp = s - q, rest = (p - pp) + (q - (s - pp));
    uint64_t bits = cudasim_bits<uint64_t>(s);
    if (rest != 0 && std::isfinite(s) && !(bits & 1)) bits += (rest > 0) == (s > 0) ? 1 : -1;
    return cudasim_to_f16(cudasim_bits<double>(bits));
}
static inline uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c) {
    return cudasim_fma_f16(a & 0xffff, b & 0xffff, c & 0xffff) |
           cudasim_fma_f16(a >> 16, b >> 16, c >> 16) << 16;
}
static inline uint32_t add_f16x2(uint32_t a, uint32_t b) {
    float2 x = unpack_f16(a), y = unpack_f16(b);
    return cudasim_to_f16((double)x.x + y.x) | cudasim_to_f16((double)x.y + y.y) << 16;
}
static inline uint32_t sub_f16x2(uint32_t a, uint32_t b) {
    float2 x = unpack_f16(a), y = unpack_f16(b);
    return cudasim_to_f16((double)x.x - y.x) | cudasim_to_f16((double)x.y - y.y) << 16;
}
static inline uint32_t mul_f16x2(uint32_t a, uint32_t b) {
    float2 x = unpack_f16(a), y = unpack_f16(b);
    return cudasim_to_f16((double)x.x * y.x) | cudasim_to_f16((double)x.y * y.y) << 16;
}
template <uint32_t mask, uint32_t bits> static inline uint32_t and_or(uint32_t a) {
    return (a & mask) | bits;
}
template <uint32_t mask> static inline uint32_t select_bits(uint32_t a, uint32_t b) {
    return (a & mask) | (b & ~mask);
}
static inline uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t selector) {
    return __byte_perm(a, b, selector);
}

/* ---- synchronization ---- */

#define CUDASIM_WHERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static inline void cudasim_syncthreads(CUDASIM_WHERE) {
    cudasim_barrier(0, file, line);
}
#define __syncthreads cudasim_syncthreads
static inline int __syncthreads_count(int p, CUDASIM_WHERE) {
    return cudasim_barrier(p, file, line);
}
static inline int __syncthreads_or(int p, CUDASIM_WHERE) {
    return cudasim_barrier(p, file, line) != 0;
}
static inline int __syncthreads_and(int p, CUDASIM_WHERE) {
    return !cudasim_barrier(!p, file, line);
}

static inline void __syncwarp(unsigned mask = CUDA_ALL, CUDASIM_WHERE) {
    struct cudasim_lane l;
    cudasim_warp(CUDASIM_SYNCWARP, mask, &l, file, line);
}
template <typename T>
static inline T cudasim_shuffle(enum cudasim_op op, unsigned mask, T v, unsigned lane, int width,
                                const char *file, int line) {
    static_assert(sizeof(T) <= 8, "a shuffle of more than 8 bytes");
    struct cudasim_lane l;
    l.v = 0;
    memcpy(&l.v, &v, sizeof v);
    l.lane = lane;
    l.width = (uint32_t)width;
    cudasim_warp(op, mask, &l, file, line);
    memcpy(&v, &l.out, sizeof v);
    return v;
}
#define CUDASIM_SHUFFLES(T)                                                                        \
    static inline T __shfl_sync(unsigned mask, T v, int lane, int width = 32, CUDASIM_WHERE) {     \
        return cudasim_shuffle<T>(CUDASIM_SHFL, mask, v, (unsigned)lane, width, file, line);       \
    }                                                                                              \
    static inline T __shfl_up_sync(unsigned mask, T v, unsigned n, int width = 32,                 \
                                   CUDASIM_WHERE) {                                                \
        return cudasim_shuffle<T>(CUDASIM_SHFL_UP, mask, v, n, width, file, line);                 \
    }                                                                                              \
    static inline T __shfl_down_sync(unsigned mask, T v, unsigned n, int width = 32,               \
                                     CUDASIM_WHERE) {                                              \
        return cudasim_shuffle<T>(CUDASIM_SHFL_DOWN, mask, v, n, width, file, line);               \
    }                                                                                              \
    static inline T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32,                 \
                                    CUDASIM_WHERE) {                                               \
        return cudasim_shuffle<T>(CUDASIM_SHFL_XOR, mask, v, (unsigned)lanes, width, file, line);  \
    }
CUDASIM_SHUFFLES(int)
CUDASIM_SHUFFLES(unsigned)
CUDASIM_SHUFFLES(long)
CUDASIM_SHUFFLES(unsigned long)
CUDASIM_SHUFFLES(long long)
CUDASIM_SHUFFLES(unsigned long long)
CUDASIM_SHUFFLES(float)
CUDASIM_SHUFFLES(double)

static inline uint64_t cudasim_vote(enum cudasim_op op, unsigned mask, uint64_t v, const char *file,
                                    int line) {
    struct cudasim_lane l;
    l.v = v;
    cudasim_warp(op, mask, &l, file, line);
    return l.out;
}
#define CUDASIM_VOTE(type, name, op, T, value)                                                     \
    static inline type name(unsigned mask, T v, CUDASIM_WHERE) {                                   \
        return (type)cudasim_vote(op, mask, value, file, line);                                    \
    }
CUDASIM_VOTE(unsigned, __ballot_sync, CUDASIM_BALLOT, int, v != 0)
CUDASIM_VOTE(int, __any_sync, CUDASIM_ANY, int, v != 0)
CUDASIM_VOTE(int, __all_sync, CUDASIM_ALL, int, v != 0)
CUDASIM_VOTE(unsigned, __match_any_sync, CUDASIM_MATCH_ANY, int, (unsigned)v)
CUDASIM_VOTE(unsigned, __match_any_sync, CUDASIM_MATCH_ANY, unsigned, v)
CUDASIM_VOTE(int, __reduce_add_sync, CUDASIM_ADD, int, (unsigned)v)
CUDASIM_VOTE(unsigned, __reduce_add_sync, CUDASIM_ADD, unsigned, v)
CUDASIM_VOTE(int, __reduce_min_sync, CUDASIM_MIN_S, int, (unsigned)v)
CUDASIM_VOTE(unsigned, __reduce_min_sync, CUDASIM_MIN_U, unsigned, v)
CUDASIM_VOTE(int, __reduce_max_sync, CUDASIM_MAX_S, int, (unsigned)v)
CUDASIM_VOTE(unsigned, __reduce_max_sync, CUDASIM_MAX_U, unsigned, v)
CUDASIM_VOTE(unsigned, __reduce_and_sync, CUDASIM_AND, unsigned, v)
CUDASIM_VOTE(unsigned, __reduce_or_sync, CUDASIM_OR, unsigned, v)
CUDASIM_VOTE(unsigned, __reduce_xor_sync, CUDASIM_XOR, unsigned, v)
/* The active lanes: a caller may rely on its own lane only. */
static inline unsigned __activemask() {
    return 1u << ((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31);
}

static inline void mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2], CUDASIM_WHERE) {
    struct cudasim_lane l;
    l.a = a, l.b = b, l.d = d;
    cudasim_warp(CUDASIM_MMA_F16, CUDA_ALL, &l, file, line);
}
static inline void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], CUDASIM_WHERE) {
    struct cudasim_lane l;
    l.a = a, l.b = b, l.d = d;
    cudasim_warp(CUDASIM_MMA_BF16, CUDA_ALL, &l, file, line);
}
static inline void ldmatrix4(uint32_t d[4], const void *shared, CUDASIM_WHERE) {
    struct cudasim_lane l;
    l.at = shared;
    cudasim_warp(CUDASIM_LDMATRIX, CUDA_ALL, &l, file, line);
    memcpy(d, l.m, sizeof l.m);
}
static inline void ldmatrix4_trans(uint32_t d[4], const void *shared, CUDASIM_WHERE) {
    struct cudasim_lane l;
    l.at = shared;
    cudasim_warp(CUDASIM_LDMATRIX_TRANS, CUDA_ALL, &l, file, line);
    memcpy(d, l.m, sizeof l.m);
}

/* ---- memory ---- */

static inline void __threadfence() {}
static inline void __threadfence_system() {}
static inline void __threadfence_block() {}
static inline void __nanosleep(unsigned) {}

/* One thread runs at a time. These accesses are reported as atomic. */
#define CUDASIM_UNSEEN __attribute__((no_sanitize("thread")))
#define CUDASIM_ATOMIC(name, T, to)                                                                \
    CUDASIM_UNSEEN static inline T name(T *p, T v) {                                               \
        cudasim_access(p, sizeof v, 1);                                                            \
        T old = *(volatile T *)p;                                                                  \
        *(volatile T *)p = to;                                                                     \
        return old;                                                                                \
    }
#define CUDASIM_ATOMICS(T)                                                                         \
    CUDASIM_ATOMIC(atomicAdd, T, old + v)                                                          \
    CUDASIM_ATOMIC(atomicExch, T, v)
#define CUDASIM_INT_ATOMICS(T)                                                                     \
    CUDASIM_ATOMICS(T)                                                                             \
    CUDASIM_ATOMIC(atomicMax, T, old > v ? old : v)                                                \
    CUDASIM_ATOMIC(atomicMin, T, old < v ? old : v)                                                \
    CUDASIM_ATOMIC(atomicAnd, T, old &v)                                                           \
    CUDASIM_ATOMIC(atomicOr, T, old | v)                                                           \
    CUDASIM_ATOMIC(atomicXor, T, old ^ v)                                                          \
    CUDASIM_UNSEEN static inline T atomicCAS(T *p, T compare, T v) {                               \
        cudasim_access(p, sizeof v, 1);                                                            \
        T old = *(volatile T *)p;                                                                  \
        if (old == compare) *(volatile T *)p = v;                                                  \
        return old;                                                                                \
    }
CUDASIM_INT_ATOMICS(int)
CUDASIM_INT_ATOMICS(unsigned)
CUDASIM_INT_ATOMICS(unsigned long long)
CUDASIM_ATOMICS(float)
CUDASIM_ATOMICS(double)
CUDASIM_ATOMIC(atomicSub, int, old - v)
CUDASIM_ATOMIC(atomicSub, unsigned, old - v)
CUDASIM_UNSEEN static inline unsigned atomicInc(unsigned *p, unsigned v) {
    cudasim_access(p, sizeof v, 1);
    unsigned old = *p;
    *p = old >= v ? 0 : old + 1;
    return old;
}

template <typename T> static inline T __ldg(const T *p) {
    return *p;
}
template <typename T> static inline T __ldcg(const T *p) {
    return *p;
}
template <typename T> static inline T __ldcs(const T *p) {
    return *p;
}
template <typename T> static inline void __stcs(T *p, T v) {
    *p = v;
}
template <typename T> static inline void __stcg(T *p, T v) {
    *p = v;
}

template <typename T> static inline T cudasim_load(const void *p, const char *file, int line) {
    if ((uintptr_t)p % sizeof(T))
        cudasim_fail("%s:%d: a load of %zu bytes from %p: not aligned", file, line, sizeof(T), p);
    T v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint4 load_stream16(const void *p, CUDASIM_WHERE) {
    return cudasim_load<uint4>(p, file, line);
}
static inline uint2 load_stream8(const void *p, CUDASIM_WHERE) {
    return cudasim_load<uint2>(p, file, line);
}

static inline void async_copy16(void *shared, const void *global, CUDASIM_WHERE) {
    cudasim_copy16(shared, global, 16, 16, file, line);
}
static inline void async_copy16_if(void *shared, const void *global, bool there, CUDASIM_WHERE) {
    cudasim_copy16(shared, global, 16, there ? 16 : 0, file, line);
}
static inline void async_commit() {
    cudasim_commit();
}
template <int n> static inline void async_wait() {
    cudasim_wait(n);
}

static inline void mbar_init(uint64_t *bar, uint32_t count, CUDASIM_WHERE) {
    cudasim_mbar_init(bar, count, file, line);
}
static inline void mbar_fence() {}
static inline void mbar_arrive(uint64_t *bar, CUDASIM_WHERE) {
    cudasim_mbar_arrive(bar, file, line);
}
static inline void mbar_wait(uint64_t *bar, uint32_t parity, CUDASIM_WHERE) {
    cudasim_mbar_wait(bar, parity, file, line);
}
static inline void async_arrive(uint64_t *bar, CUDASIM_WHERE) {
    cudasim_async_arrive(bar, file, line);
}
static inline void bulk_expect(uint64_t *bar, uint32_t bytes, CUDASIM_WHERE) {
    cudasim_bulk_expect(bar, bytes, file, line);
}
static inline void bulk_prefetch(const void *, uint32_t) {}
static inline void bulk_copy_lane(void *shared, const void *global, uint32_t bytes, uint64_t *bar,
                                  CUDASIM_WHERE) {
    cudasim_bulk_copy(shared, global, bytes, bar, file, line);
}
static inline void bulk_copy(void *shared, const void *global, uint32_t bytes, uint64_t *bar,
                             CUDASIM_WHERE) {
    if (threadIdx.x % 32 == 0) cudasim_bulk_copy(shared, global, bytes, bar, file, line);
}
static inline void tensor_copy(void *shared, const struct cuda_tensor_map &map, uint32_t row,
                               uint32_t group, uint64_t *bar, CUDASIM_WHERE) {
    if (threadIdx.x % 32 == 0)
        cudasim_tensor_copy(shared, map.words, row, group, 16, 2, bar, file, line);
}
static inline void tensor_copy_box(void *shared, const struct cuda_tensor_map &map, uint32_t row,
                                   uint32_t group, uint32_t box_rows, uint32_t box_groups,
                                   uint64_t *bar, CUDASIM_WHERE) {
    cudasim_tensor_copy(shared, map.words, row, group, box_rows, box_groups, bar, file, line);
}
static inline void pdl_wait() {
    cudasim_pdl_wait();
}
template <int> static inline void give_registers() {}
template <int> static inline void take_registers() {}
static inline void pdl_launch() {}
static inline void prefetch_l2(const void *) {}

/* ---- memory that another process's kernel reads or writes meanwhile (sim_memory.c) ---- */

CUDASIM_UNSEEN static inline void peer_store(float *at, float v) {
    cudasim_access(at, 4, 1);
    __atomic_store_n((uint32_t *)at, __float_as_uint(v), __ATOMIC_RELEASE);
}

CUDASIM_UNSEEN static inline void peer_store(float4 *at, float4 v) {
    float *to = (float *)at;
    peer_store(to, v.x), peer_store(to + 1, v.y), peer_store(to + 2, v.z), peer_store(to + 3, v.w);
}

/* Who finds the place empty tries again. */
CUDASIM_UNSEEN static inline float peer_load(const float *at) {
    cudasim_access(at, 4, 1);
    const uint32_t v = __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE);
    if (v == CUDA_PEER_EMPTY) sched_yield();
    return __uint_as_float(v);
}

CUDASIM_UNSEEN static inline float4 peer_load(const float4 *at) {
    const float *from = (const float *)at;
    return make_float4(peer_load(from), peer_load(from + 1), peer_load(from + 2),
                       peer_load(from + 3));
}

CUDASIM_UNSEEN static inline void mark_set(uint32_t *at, uint32_t mark) {
    cudasim_access(at, 4, 1);
    __atomic_store_n(at, mark, __ATOMIC_RELEASE);
}

CUDASIM_UNSEEN static inline bool mark_is(const uint32_t *at, uint32_t mark) {
    cudasim_access(at, 4, 1);
    if (__atomic_load_n(at, __ATOMIC_ACQUIRE) == mark) return true;
    sched_yield();
    return false;
}

static inline float4 beside_load(const float *at) {
    return *reinterpret_cast<const float4 *>(at);
}

CUDASIM_UNSEEN static inline uint32_t host_load(const uint32_t *p) {
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}

#endif
