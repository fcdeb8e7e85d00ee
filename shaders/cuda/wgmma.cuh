/* wgmma.cuh - sm_90's warpgroup tensor core instructions (four warps together). Besides
 * device.cuh the only file with inline assembly. A kernel that includes this has a body only if
 * CUDA_WGMMA is defined.
 *
 * d (64, 8 NT) f32 += a (64, 16) b (16, 8 NT), f16. Warp w of the four has rows 16 w .. 16 w +
 * 15 of a and d, distributed over its lanes as in mma_f16; d[n] is its columns from 8 n on. b is
 * in shared memory: row by row of the transposed matrix, 128 bytes (64 values) each, the 16-byte
 * pieces of row r at (i ^ r % 8), the whole aligned to 1024 bytes; step j of its four is the
 * columns from 16 j on.
 * wgmma_rows_f16 and _bf16, of 64 columns: b lies row by row, not transposed, 128 bytes each,
 * pieces and alignment the same. wgmma_shared_f16: so does b, and a's columns from 16 j on lie in
 * shared memory, row by row as b of wgmma_f16.
 * (PTX ISA, "asynchronous warpgroup level matrix instructions": matrix descriptors, 128-byte
 * swizzling) */
#ifndef INFERD_SHADERS_CUDA_WGMMA_CUH
#define INFERD_SHADERS_CUDA_WGMMA_CUH

#include "shaders/cuda/device.cuh"

#ifdef INFERD_CUDA_STANDIN

#define CUDA_WGMMA
#define CUDA_SHARED_1024(name) CUDA_SHARED(unsigned char, name)

__device__ __forceinline__ void wgmma_fence() {}
__device__ __forceinline__ void wgmma_commit() {}
template <int n> __device__ __forceinline__ void wgmma_wait() {}
__device__ __forceinline__ void wgmma_shared_fence() {}

/* Each warp computes its own rows: the stand-in needs no warpgroup. */
template <int NT>
__device__ __forceinline__ void wgmma_f16(float d[NT][4], const uint32_t a[4],
                                          const unsigned char *b, int j) {
    uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (int n = 0; n < NT; n++) {
        const unsigned char *row = b + (8 * n + g) * 128;
        uint32_t v[2];
        for (uint32_t i = 0; i < 2; i++)
            v[i] = *reinterpret_cast<const uint32_t *>(row + ((2 * j + i) ^ g) * 16 + 4 * t);
        mma_f16(d[n], a, v);
    }
}

template <bool bf16>
__device__ __forceinline__ void wgmma_rows(float d[8][4], const uint32_t a[4],
                                           const unsigned char *b) {
    uint32_t row = threadIdx.x % 16, piece = threadIdx.x % 32 / 16;
    for (uint32_t n = 0; n < 8; n += 2) {
        uint32_t v[4];
        ldmatrix4_trans(v, b + row * 128 + ((n + piece) ^ row % 8) * 16);
        for (uint32_t i = 0; i < 2; i++)
            if (bf16)
                mma_bf16(d[n + i], a, v + 2 * i);
            else
                mma_f16(d[n + i], a, v + 2 * i);
    }
}
__device__ __forceinline__ void wgmma_rows_f16(float d[8][4], const uint32_t a[4],
                                               const unsigned char *b) {
    wgmma_rows<false>(d, a, b);
}
__device__ __forceinline__ void wgmma_rows_bf16(float d[8][4], const uint32_t a[4],
                                                const unsigned char *b) {
    wgmma_rows<true>(d, a, b);
}

__device__ __forceinline__ void wgmma_shared_f16(float d[8][4], const unsigned char *a, int j,
                                                 const unsigned char *b) {
    uint32_t lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane % 16, v[4];
    ldmatrix4(v, a + row * 128 + ((2 * j + lane / 16) ^ row % 8) * 16);
    wgmma_rows<false>(d, v, b);
}

#else

#define CUDA_SHARED_1024(name)                                                                     \
    extern __shared__ __align__(1024) unsigned char wgmma_shared_bytes[];                          \
    unsigned char *name = wgmma_shared_bytes

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define CUDA_WGMMA

/* Before the first wgmma_f16 that reads registers written by other instructions. */
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most n of the committed groups are in progress. */
template <int n> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
}
/* After stores to shared memory that wgmma_f16 is to read; before the barrier. */
__device__ __forceinline__ void wgmma_shared_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Start of the matrix in units of 16 bytes; 1024 bytes from 8 rows to the next; 128-byte
 * swizzling. */
__device__ __forceinline__ uint64_t wgmma_matrix(const unsigned char *b, int j) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(b) + 32 * j;
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

#define WGMMA_D(i)  "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define WGMMA_D4(i) WGMMA_D(i), WGMMA_D(i + 1), WGMMA_D(i + 2), WGMMA_D(i + 3)

template <int NT> struct wgmma_of;
template <> struct wgmma_of<8> {
    static __device__ __forceinline__ void run(float d[8][4], const uint32_t a[4], uint64_t b) {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "
                     "%31}, "
                     "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}"
                     : WGMMA_D4(0), WGMMA_D4(4)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
};
template <> struct wgmma_of<16> {
    static __device__ __forceinline__ void run(float d[16][4], const uint32_t a[4], uint64_t b) {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "
                     "%31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "
                     "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, "
                     "%61, %62, %63}, "
                     "{%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}"
                     : WGMMA_D4(0), WGMMA_D4(4), WGMMA_D4(8), WGMMA_D4(12)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
};

template <int NT>
__device__ __forceinline__ void wgmma_f16(float d[NT][4], const uint32_t a[4],
                                          const unsigned char *b, int j) {
    wgmma_of<NT>::run(d, a, wgmma_matrix(b, j));
}

/* 1024 bytes from 8 rows to the next; 64 columns need no other stride. */
__device__ __forceinline__ uint64_t wgmma_rows_matrix(const unsigned char *b) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(b);
    return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)(1024 >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

#define WGMMA_ROWS(type)                                                                           \
    asm volatile(                                                                                  \
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"                                                 \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " "                            \
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "   \
        "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                       \
        "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"                                                \
        : WGMMA_D4(0), WGMMA_D4(4)                                                                 \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(wgmma_rows_matrix(b)))

__device__ __forceinline__ void wgmma_rows_f16(float d[8][4], const uint32_t a[4],
                                               const unsigned char *b) {
    WGMMA_ROWS("f16");
}

__device__ __forceinline__ void wgmma_rows_bf16(float d[8][4], const uint32_t a[4],
                                                const unsigned char *b) {
    WGMMA_ROWS("bf16");
}

__device__ __forceinline__ void wgmma_shared_f16(float d[8][4], const unsigned char *a, int j,
                                                 const unsigned char *b) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
                 "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, p, 1, 1, 0, 1;\n}"
                 : WGMMA_D4(0), WGMMA_D4(4)
                 : "l"(wgmma_matrix(a, j)), "l"(wgmma_rows_matrix(b)));
}
#endif

#endif
#endif
