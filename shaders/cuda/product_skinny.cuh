/* product_skinny.cuh - products of few rows: each weight is read once, and nothing matters but that reads
 * of weights never cease.
 *
 * A warp owns a tile of 16 outputs and one part of K: it is alone with its chain. Weights are the A operand of
 * the tensor cores, 8 rows of the input each time the B operand; N groups of 8 rows share the weights. The
 * weights go through a ring in shared memory that only their warp uses, cut into chunks of F::COLS columns, all
 * but one of the ring's stages under way at a time; the ring is filled before the kernel waits for the one before it, since weights
 * never change. The input's chunks go through the same ring, once for the warps of a block.
 *
 * A chain's next operation can only begin when the last one has ended, and where a matrix has few tiles there
 * is one warp for each of a multiprocessor's schedulers, of which each instruction costs several clocks: so a
 * second warp beside each of these, the feeder, does all the copying. In the middle of a chunk both meet: the next
 * chunk is there, and the last one's place in the ring is free. Behind it a warp reads what the next chunk's
 * operations need, between this one's.
 *
 * F, how weights of a format get from device memory into fragments:
 *   COLS, BYTES    columns of a chunk; bytes of 16 rows of it in the ring
 *   X_ROW          bytes between the rows of an input's chunk in the ring: chosen against bank conflicts
 *   copy(to, lane, w, tile, chunk, a)      begins the asynchronous copy of one chunk of one tile
 *   frags, load(frags, w, lane)            a lane's part of a chunk, from the ring
 *   input_at<N>(at, n_rows, lane)          where in a chunk of the input a lane reads
 *   load_input<N>(b, x, at, unit)          b: (4 N) words of 32 columns of the input
 *   multiply<N>(acc, frags, unit, b)       acc += products of 32 columns */
#ifndef INFERD_SHADERS_CUDA_PRODUCT_SKINNY_CUH
#define INFERD_SHADERS_CUDA_PRODUCT_SKINNY_CUH

#include "shaders/cuda/finish.cuh"
#include "shaders/cuda/format.h"
#include "shaders/cuda/kernels.h"

enum { SKINNY_THREADS = 2 * 32 * CARGS_SKINNY_WARPS, SKINNY_ROWS = 32 };

/* Waits for all but the youngest n groups of copies, or fewer: the numbers of stages that linear.c takes are
 * among these. */
__device__ __forceinline__ void skinny_wait(uint32_t n) {
    if (n >= 6) {
        if (n >= 13)
            async_wait<13>();
        else if (n >= 9)
            async_wait<9>();
        else
            async_wait<6>();
        return;
    }
    switch (n) {
    case 1: async_wait<1>(); break;
    case 2: async_wait<2>(); break;
    case 3: async_wait<3>(); break;
    case 4: async_wait<4>(); break;
    case 5: async_wait<5>(); break;
    default: async_wait<0>(); break;
    }
}

/* Warps with chains of a block: as many feeders are behind them. */
__device__ __forceinline__ uint32_t skinny_warps() {
    return blockDim.x / 64;
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
    const uint32_t UNITS = F::COLS / 8; /* of 16 bytes in a row */
    uint32_t n_feeders = skinny_warps() * 32, thread = threadIdx.x - n_feeders;
    uint32_t unit = thread % UNITS, first_row = thread / UNITS, step = n_feeders / UNITS;
    const uint16_t *x = static_cast<const uint16_t *>(a.x);
    uint32_t col = chunk * F::COLS + unit * 8;
    to += unit * 16;
    for (uint32_t part = 0; part < a.n_parts; part++, col += a.part_cols, to += a.group_rows * F::X_ROW)
        for (uint32_t row = first_row; row < n_rows; row += step) {
            if (col < a.pitch)
                async_copy16(to + row * F::X_ROW, x + (uint64_t)row_of[row] * a.pitch + col);
            else
                *reinterpret_cast<uint4 *>(to + row * F::X_ROW) = make_uint4(0, 0, 0, 0);
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
    const bool feeds = warp >= skinny_warps();
    const cargs_tail &tail = a.tail[a.tail[0].act ? 0 : role.matrix];
    bool shared = a.n_parts > 1 || tail.act;
    if (shared) {
        async_wait<0>();
        __syncthreads(); /* the ring's last readers */
        if (!feeds) {
#pragma unroll
            for (int k = 0; k < N * 4; k++)
                sums[(warp * N * 4 + k) * 32 + lane] = acc[k / 4][k % 4];
        }
        __syncthreads();
    }
    if (feeds || !role.active || role.part || (tail.act && role.matrix)) return;
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

/* Where a warp's weights and the input lie in the ring. */
template <class F> struct skinny_ring {
    unsigned char *base, *mine; /* mine: the warp's weights of stage 0 */
    uint32_t stage_bytes, input_at, my_input;
    uint32_t n_chunks, first_chunk; /* of the longest part; of this warp's part in K */
};

template <class F>
__device__ __forceinline__ skinny_ring<F> skinny_ring_of(const cargs_product &a, const skinny_role &role,
                                                         unsigned char *base) {
    skinny_ring<F> r;
    uint32_t n_warps = skinny_warps();
    r.base = base;
    r.mine = base + threadIdx.x / 32 % n_warps * F::BYTES;
    r.input_at = n_warps * F::BYTES;
    r.my_input = r.input_at + role.part * a.group_rows * F::X_ROW;
    r.stage_bytes = r.input_at + a.n_parts * a.group_rows * F::X_ROW;
    r.n_chunks = (min(a.part_cols, a.n_in) + F::COLS - 1) / F::COLS;
    r.first_chunk = role.part * (a.part_cols / F::COLS);
    return r;
}

/* Chains and feeders. */
__device__ __forceinline__ void skinny_meet() {
    __syncthreads();
}

/* What is to be copied when the ring's first stages are on their way. */
template <class F>
__device__ __forceinline__ void skinny_feed(const cargs_product &a, const skinny_role &role, const skinny_rows &rows,
                                            const uint32_t *row_of, const skinny_ring<F> &r, const unsigned char *w) {
    const uint32_t lane = threadIdx.x % 32, n_ahead = a.n_stages - 1;
    uint32_t last = n_ahead; /* the stage that is free */
    skinny_wait(n_ahead - 1);
    skinny_meet();
    for (uint32_t chunk = 0; chunk < r.n_chunks; chunk++) {
        uint32_t later = chunk + n_ahead;
        skinny_wait(n_ahead - 2);
        skinny_meet();
        if (role.active && later < role.n_chunks)
            F::copy(r.mine + last * r.stage_bytes, lane, w, role.tile, r.first_chunk + later, a);
        if (later < r.n_chunks)
            skinny_copy_input<F>(r.base + last * r.stage_bytes + r.input_at, a, row_of, rows.n, later);
        async_commit();
        last = last + 1 == a.n_stages ? 0 : last + 1;
    }
}

/* The units from .. to of a chunk. now: the input of the first of them, then that of the one behind the last, which
 * is the first of x_next where the chunk ends. */
template <class F, int N, int from, int to>
__device__ __forceinline__ void skinny_units(float acc[N][4], const typename F::frags &frags, uint32_t now[4 * N],
                                             const unsigned char *x, const unsigned char *x_next, const uint32_t at[N]) {
    const int UNITS = F::COLS / 32;
#pragma unroll
    for (int u = from; u < to; u++) {
        uint32_t next[4 * N];
        F::template load_input<N>(next, u + 1 < UNITS ? x : x_next, at, (u + 1) % UNITS);
        F::template multiply<N>(acc, frags, u, now);
#pragma unroll
        for (int i = 0; i < 4 * N; i++)
            now[i] = next[i];
    }
}

/* The chain of this warp. Lanes without a row of the input read the last row's once more: what comes of it is not
 * stored. */
template <class F, int N>
__device__ __forceinline__ void skinny_chain(const cargs_product &a, const skinny_role &role, const skinny_rows &rows,
                                             const skinny_ring<F> &r, float acc[N][4]) {
    const int UNITS = F::COLS / 32;
    const bool AHEAD = N < 4; /* fragments of the next chunk beside this one's; more rows have enough to do */
    const uint32_t lane = threadIdx.x % 32;
    uint32_t at[N], now[4 * N];
    typename F::frags frags, next_frags;
    F::template input_at<N>(at, rows.n, lane);
    const unsigned char *w = r.mine, *x = r.base + r.my_input, *w_end = w + a.n_stages * r.stage_bytes;
    skinny_meet();
    if (role.active) {
        F::load(frags, w, lane);
        F::template load_input<N>(now, x, at, 0);
    }
    for (uint32_t chunk = 0; chunk < r.n_chunks; chunk++) {
        bool works = role.active && chunk < role.n_chunks;
        const unsigned char *w_next = w + r.stage_bytes, *x_next = x + r.stage_bytes;
        if (w_next == w_end) w_next = r.mine, x_next = r.base + r.my_input;
        if (works) {
            if (!AHEAD && chunk) F::load(frags, w, lane);
            skinny_units<F, N, 0, UNITS / 2>(acc, frags, now, x, x_next, at);
        }
        skinny_meet();
        if (works) {
            if (AHEAD) F::load(next_frags, w_next, lane);
            skinny_units<F, N, UNITS / 2, UNITS>(acc, frags, now, x, x_next, at);
            if (AHEAD) frags = next_frags;
        }
        w = w_next, x = x_next;
    }
}

/* Dynamic shared memory: n_stages of (warps, F::BYTES) weights and (n_parts, group_rows, F::X_ROW) input; behind
 * the chains the same memory holds (warps, N * 4, 32) sums. */
template <class F, int N> CUDA_KERNEL(SKINNY_THREADS) product_skinny(CUDA_ARGS(struct cargs_product) a) {
    CUDA_SHARED(unsigned char, shared);
    __shared__ uint32_t row_of[SKINNY_ROWS], out_of[SKINNY_ROWS];
    const uint32_t lane = threadIdx.x % 32, n_ahead = a.n_stages - 1;
    const bool feeds = threadIdx.x / 32 >= skinny_warps();
    const skinny_role role = skinny_role_of(a, threadIdx.x / 32 % skinny_warps(), F::COLS);
    const skinny_ring<F> r = skinny_ring_of<F>(a, role, shared);
    const unsigned char *w = static_cast<const unsigned char *>(a.w[role.matrix]);
    skinny_rows rows;
    pdl_launch();
    if (a.tiles) { /* which weights is for the kernels before to say */
        pdl_wait();
        rows = skinny_find_rows(a, row_of, out_of);
        if (!rows.n) return;
        w += rows.expert * a.expert_bytes;
    }
    if (feeds && role.active)
        for (uint32_t s = 0; s < min(n_ahead, role.n_chunks); s++)
            F::copy(r.mine + s * r.stage_bytes, lane, w, role.tile, r.first_chunk + s, a);
    if (!a.tiles) {
        rows = skinny_find_rows(a, row_of, out_of);
        pdl_wait();
    }
    __syncthreads();
    float acc[N][4] = {};
    if (feeds) {
        for (uint32_t s = 0; s < n_ahead; s++) {
            if (s < r.n_chunks)
                skinny_copy_input<F>(r.base + s * r.stage_bytes + r.input_at, a, row_of, rows.n, s);
            async_commit();
        }
        skinny_feed<F>(a, role, rows, row_of, r, w);
    } else {
        skinny_chain<F, N>(a, role, rows, r, acc);
    }
    skinny_store<N>(a, role, rows, row_of, out_of, acc, reinterpret_cast<float *>(shared));
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
