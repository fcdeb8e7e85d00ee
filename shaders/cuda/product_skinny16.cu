/* product_skinny16.cu - skinny GEMM with 16-bit weights, loaded by the TMA. */
#include "shaders/cuda/product_skinny.cuh"

namespace {

/* In tensor_copy's layout the 8 rows that ldmatrix reads together lie in different banks. */
struct row_major {
    enum { COLS = 128, BYTES = 16 * 2 * COLS };

    template <bool BY_LANE>
    static __device__ __forceinline__ void copy(unsigned char *to, const cargs_product &a,
                                                uint32_t matrix, uint32_t expert, uint32_t tile,
                                                uint32_t col, uint64_t *bar) {
        uint32_t expert_tiles = (a.n_out[matrix] + 15) / 16;
        const uint32_t row = (expert * expert_tiles + tile) * 16;
        if (BY_LANE)
            tensor_copy_box(to, a.map[matrix], row, col / 64, 16, COLS / 64, bar);
        else
            tensor_copy(to, a.map[matrix], row, col / 64, bar);
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
    template <int N, bool ROW> static __device__ __forceinline__ uint32_t input_at(uint32_t lane) {
        if (ROW) return lane / 8 * 16;
        return N == 1 ? skinny_x_at(skinny_row(lane % 8), lane / 8)
                      : skinny_x_at(lane / 16 * 8 + skinny_row(lane % 8), lane / 8 % 2);
    }

    template <int N, bool ROW>
    static __device__ __forceinline__ void load_input(uint32_t b[4 * N],
                                                      const unsigned char *const x[4], int unit) {
#pragma unroll
        for (int i = 0; i < N; i++)
            ldmatrix4(b + 4 * i, ROW ? x[0] + unit * 64
                                     : x[unit % 2 * 2 + i % 2] + unit / 2 * skinny_group<N, ROW>() +
                                           i / 2 * 2048);
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
