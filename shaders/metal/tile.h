/* tile.h - eight rows of 32 sums that a simdgroup holds, and their multiply-accumulate: what the
 * tiles of products (product_matrix.h) and of prefill (attention_matrix.metal) consist of. On
 * simdgroup matrices, or with TILE_PLAIN on plain fma: then the GPU has no such matrices, or they
 * add in another order (probe_matrix.metal). A step adds 8 columns, in both as a chain of fma over
 * ascending columns, so the bits are the same.
 *
 * Plain: a lane has two rows and four adjacent columns of each tile. It loads 6 vectors for 32 fma
 * with one tile and 12 for 128 with four. */
#ifndef INFERD_METAL_TILE_H
#define INFERD_METAL_TILE_H

#include "shaders/metal/common.h"

#define TILE_COLS 32

#ifdef TILE_PLAIN

struct tile {
    float v[2][4]; /* rows 2 * (lane / 8) and the next; columns 4 * (lane % 8) and up */
};

static inline void tile_clear(thread tile &t) {
#pragma unroll
    for (uint i = 0; i < 8; i++)
        t.v[i / 4][i % 4] = 0.0f;
}

/* Stores (8, 32) with row stride `stride`. */
static inline void tile_store(thread const tile &t, threadgroup float *to, uint stride, uint lane) {
#pragma unroll
    for (uint i = 0; i < 2; i++)
        *(threadgroup float4 *)(to + (lane / 8 * 2 + i) * stride + lane % 8 * 4) =
            float4(t.v[i][0], t.v[i][1], t.v[i][2], t.v[i][3]);
}

/* acc (R) += a (8 * R, 8), row stride `stride`, times b: (8, 32), or if TURNED (32, 8). All
 * pointers are multiples of 16 bytes. n_cols: a multiple of 8, what may be left out beyond it is.
 */
template <uint R, bool TURNED, typename B>
static inline void tile_multiply(thread tile *acc,
                                 threadgroup const float *a,
                                 uint stride,
                                 threadgroup const B *b,
                                 uint n_cols,
                                 uint lane) {
    const uint row = lane / 8 * 2, col = lane % 8 * 4;
    if (col >= n_cols) return;
#pragma unroll
    for (uint k = 0; k < 8; k += 4) {
        float4 w[4]; /* of column col + j, or of row k + j */
#pragma unroll
        for (uint j = 0; j < 4; j++)
            w[j] = float4(*(threadgroup const vec<B, 4> *)(TURNED ? b + (col + j) * 8 + k
                                                                  : b + (k + j) * TILE_COLS + col));
#pragma unroll
        for (uint r = 0; r < 2 * R; r++) {
            const float4 x =
                *(threadgroup const float4 *)(a + (r / 2 * 8 + row + r % 2) * stride + k);
#pragma unroll
            for (uint i = 0; i < 4; i++)
#pragma unroll
                for (uint j = 0; j < 4; j++)
                    acc[r / 2].v[r % 2][j] =
                        fma(x[i], TURNED ? w[j][i] : w[i][j], acc[r / 2].v[r % 2][j]);
        }
    }
}

#else

#include <metal_simdgroup_matrix>

struct tile {
    simdgroup_float8x8 m[TILE_COLS / 8];
};

static inline void tile_clear(thread tile &t) {
#pragma unroll
    for (uint i = 0; i < TILE_COLS / 8; i++)
        t.m[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}

static inline void tile_store(thread const tile &t, threadgroup float *to, uint stride, uint lane) {
#pragma unroll
    for (uint i = 0; i < TILE_COLS / 8; i++)
        simdgroup_store(t.m[i], to + i * 8, stride);
}

template <uint R, bool TURNED, typename B>
static inline void tile_multiply(thread tile *acc,
                                 threadgroup const float *a,
                                 uint stride,
                                 threadgroup const B *b,
                                 uint n_cols,
                                 uint lane) {
    simdgroup_float8x8 x[R];
    simdgroup_matrix<B, 8, 8> w;
#pragma unroll
    for (uint r = 0; r < R; r++)
        simdgroup_load(x[r], a + r * 8 * stride, stride);
#pragma unroll
    for (uint i = 0; i < TILE_COLS / 8; i++) {
        if (8 * i >= n_cols) continue;
        if (TURNED)
            simdgroup_load(w, b + i * 64, 8, ulong2(0, 0), true);
        else
            simdgroup_load(w, b + i * 8, TILE_COLS);
#pragma unroll
        for (uint r = 0; r < R; r++)
            simdgroup_multiply_accumulate(acc[r].m[i], x[r], w, acc[r].m[i]);
    }
}

#endif

#endif
