/* product_skinny.cuh - products of few rows: each weight is read once, and nothing matters but that reads
 * of weights never cease.
 *
 * A warp owns a tile of 16 outputs and one part of K: it is alone with its chain. Weights are the A operand of
 * the tensor cores, 8 rows of the input each time the B operand; N groups of 8 rows share the weights. The
 * weights go through a ring in shared memory that only their warp uses, cut into chunks of F::COLS columns, all
 * but one of the ring's stages under way at a time; the ring is filled before the kernel waits for the one before it, since weights
 * never change. The input's chunks go through the same ring, once for the warps of a block.
 *
 * F, how weights of a format get from device memory into fragments:
 *   COLS, BYTES    columns of a chunk; bytes of 16 rows of it in the ring
 *   X_ROW          bytes between the rows of an input's chunk in the ring: chosen against bank conflicts
 *   copy(to, lane, w, tile, chunk, a)      begins the asynchronous copy of one chunk of one tile
 *   multiply<N>(acc, w, x, x_row, lane)    acc += the chunk's products */
#ifndef INFERD_SHADERS_CUDA_PRODUCT_SKINNY_CUH
#define INFERD_SHADERS_CUDA_PRODUCT_SKINNY_CUH

#include "shaders/cuda/finish.cuh"
#include "shaders/cuda/format.h"
#include "shaders/cuda/kernels.h"

enum { SKINNY_THREADS = 512, SKINNY_ROWS = 32 };

/* Waits for all but the youngest n groups of copies. */
__device__ __forceinline__ void skinny_wait(uint32_t n) {
    switch (n) {
    case 0: async_wait<0>(); break;
    case 1: async_wait<1>(); break;
    case 2: async_wait<2>(); break;
    case 3: async_wait<3>(); break;
    case 4: async_wait<4>(); break;
    case 5: async_wait<5>(); break;
    default: async_wait<6>(); break;
    }
}

/* What a warp of a block is there for. */
struct skinny_role {
    uint32_t part, matrix, tile; /* matrix: of w; tile: of that matrix */
    bool active;                 /* false: beyond the last tile */
    uint32_t n_chunks;           /* of its part */
};

__device__ __forceinline__ skinny_role skinny_role_of(const cargs_product &a, uint32_t warp, uint32_t cols) {
    skinny_role r;
    uint32_t rest = warp / a.n_parts;
    r.part = warp % a.n_parts;
    r.matrix = 0;
    if (a.tail[0].act) r.matrix = rest % 2, rest /= 2;
    r.tile = blockIdx.x * a.block_tiles + rest;
    r.active = r.tile < a.last_tile[2];
    if (!a.tail[0].act && r.active && r.tile >= a.last_tile[0]) {
        r.matrix = r.tile < a.last_tile[1] ? 1 : 2;
        r.tile -= a.last_tile[r.matrix - 1];
    }
    uint32_t first = r.part * a.part_cols, end = min(first + a.part_cols, a.n_in);
    r.n_chunks = (end - first + cols - 1) / cols;
    return r;
}

/* Rows of this block: which of the input, which of the output. */
struct skinny_rows {
    uint32_t n;
    uint32_t expert;
};

/* The chunks of the input that stage `to` shall hold: (n_parts, rows, X_ROW). Columns behind the pitch are
 * zeros: what the weights have there is not to matter. */
template <class F>
__device__ __forceinline__ void skinny_copy_input(unsigned char *to, const cargs_product &a, const uint32_t *row_of,
                                                  uint32_t n_rows, uint32_t chunk) {
    const uint32_t units = F::COLS / 8; /* of 16 bytes in a row */
    const uint16_t *x = static_cast<const uint16_t *>(a.x);
    for (uint32_t i = threadIdx.x; i < a.n_parts * n_rows * units; i += blockDim.x) {
        uint32_t unit = i % units, line = i / units, row = line % n_rows, part = line / n_rows;
        uint32_t col = part * a.part_cols + chunk * F::COLS + unit * 8;
        unsigned char *at = to + (part * a.group_rows + row) * F::X_ROW + unit * 16;
        if (col < a.pitch)
            async_copy16(at, x + (uint64_t)row_of[row] * a.pitch + col);
        else
            *reinterpret_cast<uint4 *>(at) = make_uint4(0, 0, 0, 0);
    }
}

/* The sum of one output and row out of the block's: parts in ascending order. sums: (warps, N * 4, 32). */
template <int N>
__device__ __forceinline__ float skinny_sum(const float *sums, uint32_t first_warp, uint32_t n_parts, uint32_t k) {
    float sum = sums[(first_warp * N * 4 + k) * 32 + threadIdx.x % 32];
    for (uint32_t p = 1; p < n_parts; p++)
        sum = __fadd_rn(sum, sums[((first_warp + p) * N * 4 + k) * 32 + threadIdx.x % 32]);
    return sum;
}

template <int N>
__device__ __forceinline__ void skinny_store(const cargs_product &a, const skinny_role &role, const skinny_rows &rows,
                                             const uint32_t *row_of, const uint32_t *out_of, float acc[N][4],
                                             float *sums) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const cargs_tail &tail = a.tail[a.tail[0].act ? 0 : role.matrix];
    bool shared = a.n_parts > 1 || tail.act;
    if (shared) {
        __syncthreads(); /* the ring's last readers */
#pragma unroll
        for (int k = 0; k < N * 4; k++)
            sums[(warp * N * 4 + k) * 32 + lane] = acc[k / 4][k % 4];
        __syncthreads();
    }
    if (!role.active || role.part || (tail.act && role.matrix)) return;
    uint32_t n_out = a.n_out[role.matrix];
    uint64_t expert_out = (uint64_t)rows.expert * n_out;
#pragma unroll
    for (int k = 0; k < N * 4; k++) {
        uint32_t row = k / 4 * 8 + 2 * t + k % 2, out = role.tile * 16 + g + k % 4 / 2 * 8;
        if (row >= rows.n || out >= n_out) continue;
        float sum = shared ? skinny_sum<N>(sums, warp, a.n_parts, k) : acc[k / 4][k % 4];
        float x_scale = a.x_scale[row_of[row]];
        float v = tail.act ? finish_pair(tail, x_scale, sum, skinny_sum<N>(sums, warp + a.n_parts, a.n_parts, k), expert_out + out)
                           : finish_sum(tail, x_scale, sum, expert_out + out);
        a.y[role.matrix][(uint64_t)out_of[row] * n_out + out] = v;
    }
}

/* Which rows: the y-th group, or the y-th tile of the list. All threads; a barrier follows before use. */
__device__ __forceinline__ skinny_rows skinny_find_rows(const cargs_product &a, uint32_t *row_of, uint32_t *out_of) {
    skinny_rows rows = {0, 0};
    if (!a.tiles) {
        uint32_t first = blockIdx.y * a.group_rows;
        rows.n = min(a.group_rows, a.n_rows - first);
        if (threadIdx.x < rows.n) row_of[threadIdx.x] = out_of[threadIdx.x] = first + threadIdx.x;
        return rows;
    }
    cargs_moe_tile tile = a.tiles[blockIdx.y];
    rows.n = min(tile.count, a.group_rows);
    rows.expert = tile.expert;
    if (threadIdx.x < rows.n) {
        out_of[threadIdx.x] = a.list[tile.first + threadIdx.x];
        row_of[threadIdx.x] = out_of[threadIdx.x] / a.n_share;
    }
    return rows;
}

/* Dynamic shared memory: n_stages of (warps, F::BYTES) weights and (n_parts, group_rows, F::X_ROW) input; behind
 * the loop the same memory holds (warps, N * 4, 32) sums. */
template <class F, int N> CUDA_KERNEL(SKINNY_THREADS) product_skinny(CUDA_ARGS(struct cargs_product) a) {
    CUDA_SHARED(unsigned char, ring);
    __shared__ uint32_t row_of[SKINNY_ROWS], out_of[SKINNY_ROWS];
    const uint32_t n_ahead = a.n_stages - 1;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
    const uint32_t input_at = n_warps * F::BYTES, stage_bytes = input_at + a.n_parts * a.group_rows * F::X_ROW;
    const skinny_role role = skinny_role_of(a, warp, F::COLS);
    const uint32_t n_chunks = (min(a.part_cols, a.n_in) + F::COLS - 1) / F::COLS;
    const uint32_t first_chunk = role.part * (a.part_cols / F::COLS);
    const unsigned char *w = static_cast<const unsigned char *>(a.w[role.matrix]);
    unsigned char *mine = ring + warp * F::BYTES;
    skinny_rows rows;
    pdl_launch();
    if (a.tiles) { /* which weights is for the kernels before to say */
        pdl_wait();
        rows = skinny_find_rows(a, row_of, out_of);
        if (!rows.n) return;
        w += rows.expert * a.expert_bytes;
    }
    for (uint32_t s = 0; s < n_ahead; s++)
        if (role.active && s < role.n_chunks) F::copy(mine + s * stage_bytes, lane, w, role.tile, first_chunk + s, a);
    if (!a.tiles) {
        rows = skinny_find_rows(a, row_of, out_of);
        pdl_wait();
    }
    __syncthreads();
    for (uint32_t s = 0; s < n_ahead; s++) {
        if (s < n_chunks) skinny_copy_input<F>(ring + s * stage_bytes + input_at, a, row_of, rows.n, s);
        async_commit();
    }
    /* B's columns that are not rows: of the last row once more; they are not stored. */
    const uint32_t my_input = input_at + role.part * a.group_rows * F::X_ROW;
    float acc[N][4] = {};
    uint32_t stage = 0, next = n_ahead;
    for (uint32_t chunk = 0; chunk < n_chunks; chunk++) {
        skinny_wait(n_ahead - 1);
        if (n_warps > 1)
            __syncthreads();
        else
            __syncwarp();
        uint32_t later = chunk + n_ahead;
        if (role.active && later < role.n_chunks)
            F::copy(mine + next * stage_bytes, lane, w, role.tile, first_chunk + later, a);
        if (later < n_chunks)
            skinny_copy_input<F>(ring + next * stage_bytes + input_at, a, row_of, rows.n, later);
        async_commit();
        if (role.active && chunk < role.n_chunks)
            F::template multiply<N>(acc, mine + stage * stage_bytes, ring + stage * stage_bytes + my_input, rows.n, lane);
        stage = stage + 1 == a.n_stages ? 0 : stage + 1;
        next = next + 1 == a.n_stages ? 0 : next + 1;
    }
    skinny_store<N>(a, role, rows, row_of, out_of, acc, reinterpret_cast<float *>(ring));
}

/* One format's kernels. */
template <class F> static struct cuda_skinny skinny_of(int n_groups) {
    struct cuda_skinny k = {nullptr, F::COLS, F::BYTES, F::X_ROW};
    k.kernel = n_groups == 1   ? (const void *)product_skinny<F, 1>
               : n_groups == 2 ? (const void *)product_skinny<F, 2>
                               : (const void *)product_skinny<F, 4>;
    return k;
}

#endif
