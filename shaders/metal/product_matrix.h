/* product_matrix.h - the family of products for many rows (GEMM), on the tiles of tile.h. The order
 * of sums is that of product.h: a group of 8 columns is one step of its class's sum, so the bits
 * are those of product_rows.
 *
 * A threadgroup of 256 threads has a tile of 8 * RB rows of x (RB = 1, 2, 4) and 32 weight rows.
 * Each of its eight simdgroups has one class and keeps the sums of the whole tile in RB * 4
 * matrices: RB + 4 loads from threadgroup memory for RB * 4 multiply-accumulates. Each thread loads
 * eight columns of one row of x and of one weight row, always of the same rows: thread t loads row
 * t / 8, class t % 8. So eight lanes read 64 adjacent columns, each weight of the tile is decoded
 * once, and the caller selects the rows by two pointers. The next 64 columns are loaded into 16
 * registers before the current ones are multiplied. Tiles in threadgroup memory (17 KB) are not
 * double-buffered, so that two or three threadgroups fit on a core and one computes while another
 * waits at a barrier. */
#ifndef INFERD_METAL_PRODUCT_MATRIX_H
#define INFERD_METAL_PRODUCT_MATRIX_H

#include "shaders/metal/product.h"
#include "shaders/metal/tile.h"

/* A class's part of a tile: (32, 8) floats and 4 of padding. With the padding the eight lanes of a
 * row write four floats each to all 32 banks; without it they would hit the same four. */
#define PRODUCT_PART       65                  /* of 4 floats */
#define PRODUCT_TILE_QUADS (16 * PRODUCT_PART) /* static threadgroup memory of the kernel */

/* What a thread loads. Pointers must be readable even where the result is not wanted. */
struct product_source {
    device const uchar *w; /* weight row t / 8 of the tile */
    device const float *x; /* row t / 8 of the tile, for t < 64 * RB */
    uint type, n_in;
    bool edge; /* as in product_lane; type and edge are function constants */
    /* Weights are F16 and stay halves in threadgroup memory, which is exact: half of the bytes to
     * store and load. A function constant. */
    bool halves;
};

struct product_piece {
    float w[8], x[8];
};

/* Loads group `group`; zeros where the row has no such group (possible in the last 64 columns
 * only). */
static inline product_piece product_load(thread const product_source &s, uint group, bool with_x) {
    product_piece p;
    const bool present = 8 * group < s.n_in;
    const uint at = present ? group : 0;
    if (s.edge)
        decode8_edge(s.type, s.w, at, s.n_in, p.w);
    else
        decode8(s.type, s.w, at, p.w);
#pragma unroll
    for (uint j = 0; j < 8; j++)
        p.x[j] = 0;
    if (with_x) load8(s.x, at, s.n_in, s.edge, p.x);
#pragma unroll
    for (uint j = 0; j < 8; j++) {
        p.w[j] = present ? p.w[j] : 0.0f;
        p.x[j] = present ? p.x[j] : 0.0f;
    }
    return p;
}

/* Stores a group to the tiles in threadgroup memory: mem (2: w, x; 8 classes, 32 rows, 8
 * columns). */
static inline void product_put(
    threadgroup float4 *mem, uint t, thread const product_piece &p, bool with_x, bool halves) {
    threadgroup float4 *w = mem + t % 8 * PRODUCT_PART + t / 8 * 2, *x = w + 8 * PRODUCT_PART;
    const float4 low = float4(p.w[0], p.w[1], p.w[2], p.w[3]);
    const float4 high = float4(p.w[4], p.w[5], p.w[6], p.w[7]);
    if (halves) {
        threadgroup half4 *h = (threadgroup half4 *)(mem + t % 8 * PRODUCT_PART) + t / 8 * 2;
        h[0] = half4(low);
        h[1] = half4(high);
    } else {
        w[0] = low;
        w[1] = high;
    }
    if (!with_x) return;
    x[0] = float4(p.x[0], p.x[1], p.x[2], p.x[3]);
    x[1] = float4(p.x[4], p.x[5], p.x[6], p.x[7]);
}

template <uint RB> struct product_sums_tile { tile v[RB]; };

/* One step of class c: 8 columns. */
template <uint RB>
static inline void product_multiply(
    threadgroup const float4 *mem, uint t, uint c, bool halves, thread product_sums_tile<RB> &s) {
    threadgroup const float4 *w = mem + c * PRODUCT_PART;
    threadgroup const float *x = (threadgroup const float *)(mem + (8 + c) * PRODUCT_PART);
    if (halves)
        tile_multiply<RB, true>(s.v, x, 8, (threadgroup const half *)w, TILE_COLS, t % SIMD_WIDTH);
    else
        tile_multiply<RB, true>(s.v, x, 8, (threadgroup const float *)w, TILE_COLS, t % SIMD_WIDTH);
}

template <uint RB> struct product_values { float v[RB]; };

/* Adds the sums of the classes, 16 rows at a time, through threadgroup memory. */
template <uint RB>
static inline product_values<RB> product_add_classes(threadgroup float4 *mem,
                                                     uint t,
                                                     uint c,
                                                     thread const product_sums_tile<RB> &s) {
    threadgroup float *parts = (threadgroup float *)mem; /* (8 classes, 16 rows, 32) */
    product_values<RB> out;
#pragma unroll
    for (uint first = 0; first < RB; first += 2) {
        const uint n = RB - first < 2 ? 1 : 2;
        threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
        for (uint r = 0; r < n; r++)
            tile_store(s.v[first + r], parts + (c * 16 + r * 8) * 32, 32, t % SIMD_WIDTH);
        threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
        for (uint r = 0; r < n; r++) {
            threadgroup const float *v = parts + r * 256 + t;
            out.v[first + r] = ((v[0] + v[512]) + (v[1024] + v[1536])) +
                               ((v[2048] + v[2560]) + (v[3072] + v[3584])) + 0.0f;
        }
    }
    return out;
}

/* The tile's products: value r of thread t is of row 8 * r + t / 32 and weight row t % 32. t:
 * thread index in the threadgroup, c: simdgroup index. All 256 threads call it. */
template <uint RB>
static inline product_values<RB>
product_tile(thread const product_source &src, threadgroup float4 *mem, uint t, uint c) {
    const bool with_x = t < 64 * RB;
    product_sums_tile<RB> s;
#pragma unroll
    for (uint r = 0; r < RB; r++)
        tile_clear(s.v[r]);
    product_piece next = product_load(src, t % 8, with_x);
    threadgroup_barrier(mem_flags::mem_threadgroup); /* the previous tile has been read */
    product_put(mem, t, next, with_x, src.halves);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint col = 64; col < src.n_in; col += 64) {
        next = product_load(src, col / 8 + t % 8, with_x);
        product_multiply(mem, t, c, src.halves, s);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        product_put(mem, t, next, with_x, src.halves);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    product_multiply(mem, t, c, src.halves, s);
    return product_add_classes(mem, t, c, s);
}

#endif
