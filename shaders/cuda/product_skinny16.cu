/* product_skinny16.cu - skinny GEMM with 16-bit weights, loaded by the TMA. */
#include "shaders/cuda/product_skinny.cuh"

namespace {

/* In tensor_copy's layout the 8 rows that ldmatrix reads together lie in different banks; so do
 * those of the input with 16 bytes after each. */
struct row_major {
    enum { COLS = 128, BYTES = 16 * 2 * COLS, X_PAD = 16 };

    static __device__ __forceinline__ void copy(unsigned char *to, const cargs_product &a,
                                                uint32_t matrix, uint32_t expert, uint32_t tile,
                                                uint32_t col, uint64_t *bar) {
        uint32_t expert_tiles = (a.n_out[matrix] + 15) / 16;
        tensor_copy(to, a.map[matrix], (expert * expert_tiles + tile) * 16, col / 64, bar);
    }

    struct frags {
        uint32_t a[COLS / 16][4];
    };

    enum { PIECES = COLS / 16 };

    static __device__ __forceinline__ void load(frags &f, const unsigned char *w, uint32_t lane,
                                                int j) {
        uint32_t row = lane % 16, at = row * 128 + (lane / 16 * 16 ^ row % 8 * 16);
        ldmatrix4(f.a[j], w + j / 4 * 2048 + (at ^ j % 4 * 32));
    }

    /* With one group of rows, four matrices are 32 columns; otherwise 16 columns of two groups. */
    template <int N>
    static __device__ __forceinline__ void input_at(uint32_t at[N], uint32_t n_rows,
                                                    uint32_t row_bytes, uint32_t lane) {
#pragma unroll
        for (int i = 0; i < N; i++)
            at[i] = N == 1 ? min(lane % 8, n_rows - 1) * row_bytes + lane / 8 * 16
                           : min(i / 2 * 16 + lane / 16 * 8 + lane % 8, n_rows - 1) * row_bytes +
                                 lane / 8 % 2 * 16 + i % 2 * 32;
    }

    template <int N>
    static __device__ __forceinline__ void load_input(uint32_t b[4 * N], const unsigned char *x,
                                                      const uint32_t at[N], int unit) {
#pragma unroll
        for (int i = 0; i < N; i++)
            ldmatrix4(b + 4 * i, x + at[i] + unit * 64);
    }

    static __device__ __forceinline__ void step(uint32_t a[4], const frags &f, int j) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = f.a[j][i];
    }

    /* b[4 k ..]: columns from 16 (k % 2) on of groups 2 (k / 2) and the next. */
    template <int N>
    static __device__ __forceinline__ void multiply(float acc[N][4], const uint32_t a[4],
                                                    const uint32_t b[4 * N], int i) {
#pragma unroll
        for (int n = 0; n < N; n++)
            mma_f16(acc[n], a, b + (N == 1 ? 2 * i : 4 * (n / 2 * 2 + i) + n % 2 * 2));
    }
};

} // namespace

struct cuda_skinny cuda_skinny16(int n_groups) {
    return skinny_of<row_major>(n_groups);
}
