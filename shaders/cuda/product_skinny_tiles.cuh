/* product_skinny_tiles.cuh - skinny GEMM with quantized weights: how the tiles of format.cuh get
 * into fragments. */
#ifndef INFERD_SHADERS_CUDA_PRODUCT_SKINNY_TILES_CUH
#define INFERD_SHADERS_CUDA_PRODUCT_SKINNY_TILES_CUH

#include "shaders/cuda/format.cuh"
#include "shaders/cuda/product_skinny.cuh"

template <int format> struct tiles {
    typedef tile_of<format> T;
    enum { COLS = CUDA_TILE_COLS, BYTES = T::bytes };

    template <bool BY_LANE>
    static __device__ __forceinline__ void copy(unsigned char *to, const cargs_product &a,
                                                uint32_t matrix, uint32_t expert, uint32_t tile,
                                                uint32_t col, uint64_t *bar) {
        uint32_t row_tiles = (a.n_in + COLS - 1) / COLS;
        const unsigned char *w = static_cast<const unsigned char *>(a.w[matrix]) +
                                 expert * a.expert_bytes +
                                 ((uint64_t)tile * row_tiles + col / COLS) * BYTES;
        if (BY_LANE)
            bulk_copy_lane(to, w, BYTES, bar);
        else
            bulk_copy(to, w, BYTES, bar);
    }

    static __device__ __forceinline__ void words(uint32_t *to, const unsigned char *from) {
        uint4 v = *reinterpret_cast<const uint4 *>(from);
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    }

    struct frags {
        uint32_t low[T::low_words], high[T::high_words ? T::high_words : 1], scale[T::scale_words];
    };

    /* Scales first: the first step needs them, and the first words of the planes. */
    enum { PIECES = T::scale_chunks + T::low_chunks + T::high_chunks };

    static __device__ __forceinline__ void load(frags &f, const unsigned char *w, uint32_t lane,
                                                int i) {
        int low = i - (int)T::scale_chunks, high = low - (int)T::low_chunks;
        if (low < 0)
            words(f.scale + 4 * i, tile_scale<format>(w, i, lane));
        else if (high < 0)
            words(f.low + 4 * low, tile_low<format>(w, low, lane));
        else
            words(f.high + 4 * high, tile_high<format>(w, high, lane));
    }

    template <int N, bool ROW> static __device__ __forceinline__ uint32_t input_at(uint32_t lane) {
        return (ROW ? lane % 4 / 2 * 16 : skinny_x_at(skinny_row(lane / 4), lane % 4 / 2)) +
               lane % 2 * 8;
    }

    /* b[4 n ..]: the unit's first step, then its second, of group n. */
    template <int N, bool ROW>
    static __device__ __forceinline__ void load_input(uint32_t b[4 * N],
                                                      const unsigned char *const x[4], int unit) {
#pragma unroll
        for (int i = 0; i < 2 * N; i++) {
            const unsigned char *at =
                ROW ? x[0] + unit * 64 + i * 32
                    : x[unit % 2 * 2 + i % 2] + unit / 2 * skinny_group<N, ROW>() + i / 2 * 1024;
            uint2 two = *reinterpret_cast<const uint2 *>(at);
            b[2 * i] = two.x, b[2 * i + 1] = two.y;
        }
    }

    static __device__ __forceinline__ void step(uint32_t a[4], const frags &f, int j) {
        decode_step<format>(f.low, f.high, j, step_scale<format>(f.scale, j, 0),
                            step_scale<format>(f.scale, j, 1), a);
    }

    template <int N>
    static __device__ __forceinline__ void multiply(float acc[N][4], const uint32_t a[4],
                                                    const uint32_t b[4 * N], int i) {
#pragma unroll
        for (int n = 0; n < N; n++)
            mma_f16(acc[n], a, b + 4 * n + 2 * i);
    }
};

#endif
