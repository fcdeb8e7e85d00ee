/* product_skinny_tiles.cuh - products of few rows with quantized weights: how the tiles of format.cuh get into
 * fragments. */
#ifndef INFERD_SHADERS_CUDA_PRODUCT_SKINNY_TILES_CUH
#define INFERD_SHADERS_CUDA_PRODUCT_SKINNY_TILES_CUH

#include "shaders/cuda/format.cuh"
#include "shaders/cuda/product_skinny.cuh"

/* 32 bytes behind each row of the input: the quarter of a warp whose 8 bytes a lane are read together then finds
 * four rows in different banks. */
template <int format> struct tiles {
    typedef tile_of<format> T;
    enum { COLS = CUDA_TILE_COLS, BYTES = T::bytes, X_ROW = 2 * COLS + 32 };

    static __device__ __forceinline__ void copy(unsigned char *to, uint32_t lane, const unsigned char *w, uint32_t tile,
                                                uint32_t chunk, const cargs_product &a) {
        uint32_t row_tiles = (a.n_in + COLS - 1) / COLS;
        w += ((uint64_t)tile * row_tiles + chunk) * BYTES + lane * 16;
        to += lane * 16;
#pragma unroll
        for (int at = 0; at < BYTES; at += 512)
            if (at + 512 <= BYTES || at + lane * 16 < BYTES) async_copy16(to + at, w + at);
    }

    static __device__ __forceinline__ void words(uint32_t *to, const unsigned char *from) {
        uint4 v = *reinterpret_cast<const uint4 *>(from);
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    }

    struct frags {
        uint32_t low[T::low_words], high[T::high_words ? T::high_words : 1], scale[T::scale_words];
    };

    static __device__ __forceinline__ void load(frags &f, const unsigned char *w, uint32_t lane) {
#pragma unroll
        for (int k = 0; k < T::scale_chunks; k++)
            words(f.scale + 4 * k, tile_scale<format>(w, k, lane));
#pragma unroll
        for (int k = 0; k < T::low_chunks; k++)
            words(f.low + 4 * k, tile_low<format>(w, k, lane));
#pragma unroll
        for (int k = 0; k < T::high_chunks; k++)
            words(f.high + 4 * k, tile_high<format>(w, k, lane));
    }

    template <int N> static __device__ __forceinline__ void input_at(uint32_t at[N], uint32_t n_rows, uint32_t lane) {
#pragma unroll
        for (int n = 0; n < N; n++)
            at[n] = min(8 * n + lane / 4, n_rows - 1) * X_ROW + lane % 4 * 8;
    }

    /* b[4 n ..]: the unit's first step, then its second, of group n. */
    template <int N>
    static __device__ __forceinline__ void load_input(uint32_t b[4 * N], const unsigned char *x, const uint32_t at[N],
                                                      int unit) {
#pragma unroll
        for (int i = 0; i < 2 * N; i++) {
            uint2 two = *reinterpret_cast<const uint2 *>(x + at[i / 2] + unit * 64 + i % 2 * 32);
            b[2 * i] = two.x, b[2 * i + 1] = two.y;
        }
    }

    template <int N>
    static __device__ __forceinline__ void multiply(float acc[N][4], const frags &f, int unit, const uint32_t b[4 * N]) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t a[4];
            int j = 2 * unit + i;
            decode_step<format>(f.low, f.high, j, step_scale<format>(f.scale, j, 0), step_scale<format>(f.scale, j, 1), a);
#pragma unroll
            for (int n = 0; n < N; n++)
                mma_f16(acc[n], a, b + 4 * n + 2 * i);
        }
    }
};

#endif
