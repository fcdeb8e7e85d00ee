/* product_skinny16.cu - products of few rows with F16 and BF16 weights. */
#include "shaders/cuda/product_skinny.cuh"

namespace {

/* Rows of 128 columns; 16 bytes behind each, so that the 8 rows that ldmatrix reads together lie in
 * different banks. */
template <bool bf16> struct row_major {
    enum { COLS = 128, ROW = 2 * COLS + 16, BYTES = 16 * ROW, X_ROW = ROW };

    static __device__ __forceinline__ void copy(unsigned char *to, uint32_t lane, const unsigned char *w, uint32_t tile,
                                                uint32_t chunk, const cargs_product &a) {
        uint32_t unit = lane % 16, col = chunk * COLS + unit * 8;
        const unsigned char *from = w + ((uint64_t)(tile * 16 + lane / 16) * a.pitch + col) * 2;
        to += lane / 16 * ROW + unit * 16;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (col < a.pitch)
                async_copy16(to + i * 2 * ROW, from + (uint64_t)i * a.pitch * 4);
            else
                *reinterpret_cast<uint4 *>(to + i * 2 * ROW) = make_uint4(0, 0, 0, 0);
        }
    }

    static __device__ __forceinline__ void mma(float d[4], const uint32_t a[4], const uint32_t b[2]) {
        if (bf16)
            mma_bf16(d, a, b);
        else
            mma_f16(d, a, b);
    }

    /* Fragments of a step are read while the one before it is multiplied. */
    template <int N>
    static __device__ __forceinline__ void multiply(float acc[N][4], const unsigned char *w, const unsigned char *x,
                                                    uint32_t n_rows, uint32_t lane) {
        const int STEPS = COLS / 16;
        w += lane % 16 * ROW + lane / 16 * 16;
        const unsigned char *b_at[N < 2 ? 1 : N / 2];
        if (N == 1) {
            b_at[0] = x + min(lane % 8, n_rows - 1) * X_ROW + lane / 8 * 16;
        } else {
#pragma unroll
            for (int i = 0; i < N / 2; i++)
                b_at[i] = x + min(i * 16 + lane / 16 * 8 + lane % 8, n_rows - 1) * X_ROW + lane / 8 % 2 * 16;
        }
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            uint32_t a[4];
            ldmatrix4(a, w + j * 32);
            if (N == 1) {
                uint32_t b[4];
                if (j % 2) continue;
                uint32_t a2[4];
                ldmatrix4(a2, w + (j + 1) * 32);
                ldmatrix4(b, b_at[0] + j * 32);
                mma(acc[0], a, b);
                mma(acc[0], a2, b + 2);
            } else {
#pragma unroll
                for (int i = 0; i < N / 2; i++) {
                    uint32_t b[4];
                    ldmatrix4(b, b_at[i] + j * 32);
                    mma(acc[2 * i], a, b);
                    mma(acc[2 * i + 1], a, b + 2);
                }
            }
        }
    }
};

}

struct cuda_skinny cuda_skinny16(int bf16, int n_groups) {
    return bf16 ? skinny_of<row_major<true>>(n_groups) : skinny_of<row_major<false>>(n_groups);
}
