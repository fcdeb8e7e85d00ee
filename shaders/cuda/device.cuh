/* device.cuh - the language of the CUDA kernels: CUDA C++ and the functions below for everything
 * that C++ lacks. A build with INFERD_CUDA_STANDIN compiles the same sources as C++ for the CPU,
 * with tests/cuda/standin/device.h in place of the second half.
 *
 * Rules, so that both can run the kernels:
 * - a kernel is `template <...> CUDA_KERNEL(threads) name(CUDA_ARGS(struct cargs_x) a)`, with
 *   exactly one argument, a struct of plain members and pointers (shaders/args*.h);
 * - dynamic shared memory is declared with CUDA_SHARED(type, name), once per kernel; static
 *   shared arrays with __shared__;
 * - all threads of every kernel call pdl_wait() once, before the kernel reads what a previous
 *   kernel wrote and before it writes anything. Before that it may read weights (they never
 *   change), what the host uploads (positions, slots, tables: an upload waits for all previous
 *   kernels, and no later kernel begins before it has ended) and what earlier steps wrote, and
 *   it may call pdl_launch(), which lets the next kernel's blocks start and run to their
 *   pdl_wait(). A product of the same input as the launch before it, which called pdl_launch
 *   after its own pdl_wait, waits at its end instead (overlaps_previous);
 * - no inline assembly, no warp functions without _sync, no cooperative groups outside this
 *   file. */
#ifndef INFERD_SHADERS_CUDA_DEVICE_CUH
#define INFERD_SHADERS_CUDA_DEVICE_CUH

#include "shaders/args_linear.h"

#include <stdint.h>

#ifdef INFERD_CUDA_STANDIN
#include "tests/cuda/standin/device.h"
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define CUDA_KERNEL(threads)             __global__ void __launch_bounds__(threads)
/* blocks: at least that many fit a multiprocessor; this bounds the registers. */
#define CUDA_KERNEL_MIN(threads, blocks) __global__ void __launch_bounds__(threads, blocks)
#define CUDA_ARGS(type)                  const __grid_constant__ type
#define CUDA_SHARED(type, name)                                                                    \
    extern __shared__ __align__(1024) unsigned char cuda_shared_bytes[];                           \
    type *name = reinterpret_cast<type *>(cuda_shared_bytes)

#define CUDA_ALL 0xffffffffu

/* ---- programmatic dependent launch (sm_90 and later; elsewhere a kernel starts when the
 * previous one has ended) */

__device__ __forceinline__ void pdl_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void pdl_launch() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* ---- registers (sm_90a): a warpgroup, four warps from a multiple of four on, gives up those
 * beyond n of a thread, or waits until others have given up enough for n. n is a multiple of 8. */

template <int n> __device__ __forceinline__ void give_registers() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
#endif
}

template <int n> __device__ __forceinline__ void take_registers() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
#endif
}

/* ---- asynchronous copies from device to shared memory (16 bytes, both ends aligned to 16). A
 * thread sees its own copies after async_wait, other threads' after a barrier too. */

__device__ __forceinline__ void async_copy16(void *shared, const void *global) {
    unsigned at = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(global) : "memory");
}

/* Writes zeros, and reads nothing, unless there. */
__device__ __forceinline__ void async_copy16_if(void *shared, const void *global, bool there) {
    unsigned at = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(global),
                 "r"(there ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most n of the committed groups are still in progress. */
template <int n> __device__ __forceinline__ void async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}

/* ---- barriers in shared memory (mbarrier), and copies that arrive at one. A phase of a barrier
 * ends when it has received as many arrivals as it was initialized for and all expected bytes;
 * then the next phase begins. mbar_wait(bar, parity) returns when the phase of that parity (the
 * first has 0) has ended; then everything written before the arrivals can be read. */

/* By one thread, followed by mbar_fence, before any other thread uses the barrier. */
__device__ __forceinline__ void mbar_init(uint64_t *bar, uint32_t count) {
    unsigned at = (unsigned)__cvta_generic_to_shared(bar);
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}

__device__ __forceinline__ void mbar_fence() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async;" ::: "memory");
#endif
}

__device__ __forceinline__ void mbar_arrive(uint64_t *bar) {
    unsigned at = (unsigned)__cvta_generic_to_shared(bar);
    asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared.b64 state, [%0];\n\t}" ::"r"(at)
                 : "memory");
}

__device__ __forceinline__ void mbar_wait(uint64_t *bar, uint32_t parity) {
    unsigned at = (unsigned)__cvta_generic_to_shared(bar), done;
    do {
#if __CUDA_ARCH__ >= 900
        asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(done)
                     : "r"(at), "r"(parity)
                     : "memory");
#else
        asm volatile("{\n\t.reg .pred p;\n\tmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(done)
                     : "r"(at), "r"(parity)
                     : "memory");
#endif
    } while (!done);
}

/* Arrives for this thread once all its earlier async_copy16 copies are complete. */
__device__ __forceinline__ void async_arrive(uint64_t *bar) {
    unsigned at = (unsigned)__cvta_generic_to_shared(bar);
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at) : "memory");
}

/* Bulk copies by a warp. One lane first calls bulk_expect with the sum of their bytes; all lanes
 * call async_arrive after them. On sm_90 and later the TMA does the copying, and single threads can
 * start copies (bulk_copy_lane, tensor_copy_box); one of them then calls mbar_arrive. */
__device__ __forceinline__ void bulk_expect(uint64_t *bar, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
    unsigned at = (unsigned)__cvta_generic_to_shared(bar);
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared.b64 [%0], %1;" ::"r"(at), "r"(bytes)
                 : "memory");
#endif
}

/* By one thread, on sm_90 and later. bytes is a multiple of 16, both ends are aligned to 16. */
__device__ __forceinline__ void bulk_copy_lane(void *shared, const void *global, uint32_t bytes,
                                               uint64_t *bar) {
#if __CUDA_ARCH__ >= 900
    unsigned to = (unsigned)__cvta_generic_to_shared(shared),
             at = (unsigned)__cvta_generic_to_shared(bar);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                 "[%1], %2, [%3];" ::"r"(to),
                 "l"(global), "r"(bytes), "r"(at)
                 : "memory");
#endif
}

/* The same by a warp, everywhere. */
__device__ __forceinline__ void bulk_copy(void *shared, const void *global, uint32_t bytes,
                                          uint64_t *bar) {
    unsigned lane = threadIdx.x % 32;
#if __CUDA_ARCH__ >= 900
    if (lane == 0) bulk_copy_lane(shared, global, bytes, bar);
#else
    for (unsigned i = lane * 16; i < bytes; i += 512)
        async_copy16(static_cast<char *>(shared) + i, static_cast<const char *>(global) + i);
#endif
}

/* Begins to bring bytes, a multiple of 16 and aligned to 16, to L2; by one thread. Only sm_90 and
 * later do. */
__device__ __forceinline__ void bulk_prefetch(const void *global, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes));
#endif
}

/* Copies box_rows (a multiple of 8) rows by box_groups groups of 64 halves of the matrix that map
 * describes (struct cuda_tensor_map, an argument of the kernel, made for these sizes), from a row
 * and a group on; what lies after the last is zeros. By one thread, on sm_90 and later. shared,
 * aligned to 1024: (box_groups, box_rows, 128 bytes), with the 16-byte unit u of row r at u ^ r
 * % 8.
 */
__device__ __forceinline__ void tensor_copy_box(void *shared, const struct cuda_tensor_map &map,
                                                uint32_t row, uint32_t group, uint32_t box_rows,
                                                uint32_t box_groups, uint64_t *bar) {
    (void)box_rows, (void)box_groups;
#if __CUDA_ARCH__ >= 900
    unsigned to = (unsigned)__cvta_generic_to_shared(shared),
             at = (unsigned)__cvta_generic_to_shared(bar);
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
                 "l"(&map), "r"(0), "r"(row), "r"(group), "r"(at)
                 : "memory");
#endif
}

/* The same of 16 rows by two groups, by a warp, everywhere. */
__device__ __forceinline__ void tensor_copy(void *shared, const struct cuda_tensor_map &map,
                                            uint32_t row, uint32_t group, uint64_t *bar) {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x % 32 == 0) tensor_copy_box(shared, map, row, group, 16, 2, bar);
#else
    for (unsigned i = threadIdx.x % 32; i < 256; i += 32) {
        unsigned u = i % 8, r = i / 8 % 16, z = i / 128;
        const char *from =
            reinterpret_cast<const char *>(map.words[0]) + (row + r) * map.words[1] + u * 16;
        bool there = group + z < map.words[3];
        async_copy16_if(static_cast<char *>(shared) + z * 2048 + r * 128 + (u ^ r % 8) * 16,
                        from + (there ? (group + z) * 128 : 0), there);
    }
#endif
}

/* ---- loads that do not allocate in L1: weights are read once */

__device__ __forceinline__ uint4 load_stream16(const void *p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

__device__ __forceinline__ uint2 load_stream8(const void *p) {
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(p));
    return v;
}

/* Starts bringing the 128 bytes around p from memory to L2. */
__device__ __forceinline__ void prefetch_l2(const void *p) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

// clang-format off
/* ---- tensor cores: d (16, 8) f32 += a (16, 16) b (16, 8), by all lanes of a warp (PTX ISA,
 * mma.m16n8k16). With g = lane / 4 and t = lane % 4 a lane holds:
 *   a[0]        row g,      columns 2t, 2t + 1
 *   a[1]        row g + 8,  columns 2t, 2t + 1
 *   a[2]        row g,      columns 2t + 8, 2t + 9
 *   a[3]        row g + 8,  columns 2t + 8, 2t + 9
 *   b[0]        rows 2t, 2t + 1,      column g
 *   b[1]        rows 2t + 8, 2t + 9,  column g
 *   d[0], d[1]  row g,      columns 2t, 2t + 1
 *   d[2], d[3]  row g + 8,  columns 2t, 2t + 1 */
// clang-format on

__device__ __forceinline__ void mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Loads four 8x8 matrices of halves from shared memory: lane l gives the address of row l % 8 of
 * matrix l / 8 (16 bytes, aligned); d[i] is row lane / 4 of matrix i, columns 2 (lane % 4) and
 * the next. _trans: of the transposed matrices. */
__device__ __forceinline__ void ldmatrix4(uint32_t d[4], const void *shared) {
    unsigned at = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(at)
                 : "memory");
}

__device__ __forceinline__ void ldmatrix4_trans(uint32_t d[4], const void *shared) {
    unsigned at = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(at)
                 : "memory");
}

/* ---- pairs of 16-bit floats in a word, the first one in the low half */

__device__ __forceinline__ uint32_t pack_f16(float lo, float hi) {
    __half2 h = __floats2half2_rn(lo, hi);
    return *reinterpret_cast<uint32_t *>(&h);
}

__device__ __forceinline__ uint32_t pack_bf16(float lo, float hi) {
    __nv_bfloat162 h = __floats2bfloat162_rn(lo, hi);
    return *reinterpret_cast<uint32_t *>(&h);
}

__device__ __forceinline__ float2 unpack_f16(uint32_t v) {
    return __half22float2(*reinterpret_cast<__half2 *>(&v));
}

__device__ __forceinline__ float2 unpack_bf16(uint32_t v) {
    return __bfloat1622float2(*reinterpret_cast<__nv_bfloat162 *>(&v));
}

/* a * b + c of both halves, each rounded once. */
__device__ __forceinline__ uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c) {
    __half2 d = __hfma2(*reinterpret_cast<__half2 *>(&a), *reinterpret_cast<__half2 *>(&b),
                        *reinterpret_cast<__half2 *>(&c));
    return *reinterpret_cast<uint32_t *>(&d);
}

__device__ __forceinline__ uint32_t sub_f16x2(uint32_t a, uint32_t b) {
    __half2 d = __hsub2(*reinterpret_cast<__half2 *>(&a), *reinterpret_cast<__half2 *>(&b));
    return *reinterpret_cast<uint32_t *>(&d);
}

__device__ __forceinline__ uint32_t mul_f16x2(uint32_t a, uint32_t b) {
    __half2 d = __hmul2(*reinterpret_cast<__half2 *>(&a), *reinterpret_cast<__half2 *>(&b));
    return *reinterpret_cast<uint32_t *>(&d);
}

/* (a & mask) | bits. */
template <uint32_t mask, uint32_t bits> __device__ __forceinline__ uint32_t and_or(uint32_t a) {
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "n"(mask), "n"(bits));
    return d;
}

/* Bits of a where mask has ones, of b elsewhere. */
template <uint32_t mask> __device__ __forceinline__ uint32_t select_bits(uint32_t a, uint32_t b) {
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0xe4;" : "=r"(d) : "r"(a), "r"(b), "n"(mask));
    return d;
}

__device__ __forceinline__ uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t selector) {
    return __byte_perm(a, b, selector);
}

/* ---- memory that another GPU reads or writes meanwhile */

/* Writes values of which a reader sees each whole, in any order. */
__device__ __forceinline__ void peer_store(float *at, float v) {
    asm volatile("st.relaxed.sys.global.f32 [%0], %1;" ::"l"(at), "f"(v) : "memory");
}

__device__ __forceinline__ void peer_store(float4 *at, float4 v) {
    asm volatile("st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(v.x),
                 "f"(v.y), "f"(v.z), "f"(v.w)
                 : "memory");
}

/* Reads them. */
__device__ __forceinline__ float peer_load(const float *at) {
    float v;
    asm volatile("ld.relaxed.sys.global.f32 %0, [%1];" : "=f"(v) : "l"(at) : "memory");
    return v;
}

__device__ __forceinline__ float4 peer_load(const float4 *at) {
    float4 v;
    asm volatile("ld.relaxed.sys.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

/* By one thread, after a barrier: tells the other GPU's mark_wait that what the block wrote into
 * its memory is there. */
__device__ __forceinline__ void mark_set(uint32_t *at, uint32_t mark) {
    __threadfence_system();
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(mark) : "memory");
}

/* Has the mark come? Then, after a barrier, beside_load reads what came before it. */
__device__ __forceinline__ bool mark_is(const uint32_t *at, uint32_t mark) {
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v == mark;
}

/* Past the first cache, which does not see other GPUs' writes. */
__device__ __forceinline__ float4 beside_load(const float *at) {
    return __ldcg(reinterpret_cast<const float4 *>(at));
}

/* A word of the host's memory. */
__device__ __forceinline__ uint32_t host_load(const uint32_t *p) {
    return *(const volatile uint32_t *)p;
}

/* 2^v with an error of at most 2 ulp; exactly 1 for 0, 0 for -inf; results below 2^-126 are 0. */
__device__ __forceinline__ float exp2_fast(float v) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}

#endif

/* ---- for GPU and stand-in alike ---- */

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        v += __shfl_xor_sync(CUDA_ALL, v, i);
    return v;
}

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
    for (int i = 16; i > 0; i /= 2)
        v = fmaxf(v, __shfl_xor_sync(CUDA_ALL, v, i));
    return v;
}

/* The power of two that brings a row whose largest magnitude has these bits into (2^14, 2^15]:
 * in f16's range, with room for small values below. 1 for a row of zeros, and for one with
 * infinity or NaN, which then stays as it is. Bounded so that both it and its inverse are normal
 * numbers. */
__device__ __forceinline__ float f16_row_scale(uint32_t largest, float *inverse) {
    uint32_t exponent = (largest - 1) >> 23; /* of the next smaller number, biased by 127 */
    if (largest == 0 || largest >= 0x7f800000) exponent = 141;
    exponent = max(exponent, 15u);
    *inverse = __uint_as_float((exponent - 14) << 23);
    return __uint_as_float((268 - exponent) << 23);
}

#endif
