/* product_skinny16.cu - products of few rows with weights of 16 bits. */
#include "shaders/cuda/product_skinny.cuh"

namespace {

/* Rows of 128 columns; 16 bytes behind each, so that the 8 rows that ldmatrix reads together lie in
 * different banks. */
struct row_major {
    enum { COLS = 128, ROW = 2 * COLS + 16, BYTES = 16 * ROW, X_ROW = ROW };

    static __device__ __forceinline__ void copy(unsigned char *to, uint32_t lane, const unsigned char *w, uint32_t tile,
                                                uint32_t chunk, const cargs_product &a) {
        uint32_t unit = lane % 16, col = chunk * COLS + unit * 8;
        const unsigned char *from = w + ((uint64_t)(tile * 16 + lane / 16) * a.pitch + col) * 2;
        to += lane / 16 * ROW + unit * 16;
        if ((chunk + 1) * COLS <= a.pitch) { /* without a choice a lane: the feeder's time counts */
#pragma unroll
            for (int i = 0; i < 8; i++)
                async_copy16(to + i * 2 * ROW, from + (uint64_t)i * a.pitch * 4);
            return;
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (col < a.pitch)
                async_copy16(to + i * 2 * ROW, from + (uint64_t)i * a.pitch * 4);
            else
                *reinterpret_cast<uint4 *>(to + i * 2 * ROW) = make_uint4(0, 0, 0, 0);
        }
    }

    struct frags {
        uint32_t a[COLS / 16][4];
    };

    static __device__ __forceinline__ void load(frags &f, const unsigned char *w, uint32_t lane) {
        w += lane % 16 * ROW + lane / 16 * 16;
#pragma unroll
        for (int j = 0; j < COLS / 16; j++)
            ldmatrix4(f.a[j], w + j * 32);
    }

    /* One group of rows: four matrices are 32 columns; else they are 16 columns of two groups. */
    template <int N> static __device__ __forceinline__ void input_at(uint32_t at[N], uint32_t n_rows, uint32_t lane) {
#pragma unroll
        for (int i = 0; i < N; i++)
            at[i] = N == 1 ? min(lane % 8, n_rows - 1) * X_ROW + lane / 8 * 16
                           : min(i / 2 * 16 + lane / 16 * 8 + lane % 8, n_rows - 1) * X_ROW + lane / 8 % 2 * 16 + i % 2 * 32;
    }

    template <int N>
    static __device__ __forceinline__ void load_input(uint32_t b[4 * N], const unsigned char *x, const uint32_t at[N],
                                                      int unit) {
#pragma unroll
        for (int i = 0; i < N; i++)
            ldmatrix4(b + 4 * i, x + at[i] + unit * 64);
    }

    /* b[4 i ..]: of groups 2 (i / 2) and the next, step i % 2 of the unit. */
    template <int N>
    static __device__ __forceinline__ void multiply(float acc[N][4], const frags &f, int unit, const uint32_t b[4 * N]) {
#pragma unroll
        for (int step = 0; step < 2; step++)
#pragma unroll
            for (int n = 0; n < N; n++)
                mma_f16(acc[n], f.a[2 * unit + step], b + (N == 1 ? 2 * step : 4 * (n / 2 * 2 + step) + n % 2 * 2));
    }
};

}

struct cuda_skinny cuda_skinny16(int n_groups) {
    return skinny_of<row_major>(n_groups);
}
