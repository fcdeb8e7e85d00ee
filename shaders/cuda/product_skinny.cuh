/* product_skinny.cuh - products of few rows (skinny GEMM, GEMV): bandwidth-bound, each weight is
 * read once, and the weight loads must never stall.
 *
 * A consumer warp owns a tile of 16 outputs and one K split, and with them one sequence of
 * accumulations. Weights are the A operand of the tensor cores, 8 rows of the input the B
 * operand; N groups of 8 rows share the weights. The weights go through a ring buffer in shared
 * memory, in chunks of F::COLS columns. The input's chunks go through the same ring, once for
 * all warps of a block; if the rows are few and short, they lie in shared memory whole. The ring
 * is filled with weights before the kernel waits for the previous one, because weights never
 * change.
 *
 * Warp specialization: an accumulation starts only when the previous one has ended, and a matrix
 * with few tiles has only one consumer warp for each of a multiprocessor's schedulers, where
 * every instruction costs several clocks. So other warps, the producers (numbered after the
 * consumers), do all copying: loaders that of the weights, a lane for each consumer, and the last
 * ones that of the input, unless it is copied whole. Starting a copy takes a warp about 250
 * clocks: warps that did both were slower than the consumers. For few consumers one loader after
 * the other is too slow as well: two take turns. Each stage of the ring has two barriers: full (its
 * bytes have arrived) and empty (all consumers have read it); there is no other synchronization.
 * The operands of a consumer's next operation are loaded and decoded between the previous ones.
 *
 * F, how weights of a format get from device memory into fragments:
 *   COLS, BYTES    columns of a chunk; bytes of 16 rows of it in the ring
 *   copy<BY_LANE>(to, a, matrix, expert, tile, col, bar)  starts copying columns of a tile, from
 *                  col; by one thread, with the TMA, or by a warp
 *   frags, PIECES, load(frags, w, lane, i)  load i of PIECES of a lane's share of a chunk
 *   step(a, frags, j)                      a: its operand of 16 columns
 *   input_at<N, ROW>(lane)                 where in a group of the input a lane reads
 *   load_input<N, ROW>(b, x, unit)         b: (4 N) words of 32 columns, the unit-th of a chunk;
 *                                          x: skinny_x of the chunk
 *   multiply<N>(acc, a, b, i)              acc += products of 16 columns, the i-th 16 of b's 32 */
#ifndef INFERD_SHADERS_CUDA_PRODUCT_SKINNY_CUH
#define INFERD_SHADERS_CUDA_PRODUCT_SKINNY_CUH

#include "shaders/cuda/epilogue.cuh"
#include "shaders/cuda/format.h"
#include "shaders/cuda/kernels.h"
#include "shaders/cuda/peer.cuh"

enum { SKINNY_THREADS = 32 * (CARGS_SKINNY_CONSUMERS + CARGS_SKINNY_PRODUCERS), SKINNY_ROWS = 32 };

/* The input in shared memory lies as the TMA puts it: groups of 64 columns, of each 128 bytes a
 * row, in which the 16-byte unit u of row r is at u ^ r % 8, so that eight rows' units lie in
 * different banks. A whole row, alone, is a row of groups of one. The units of a group's second
 * half are at ^ 64 of those of its first. */
__device__ __forceinline__ uint32_t skinny_x_at(uint32_t row, uint32_t unit) {
    return row * 128 + (unit ^ row % 8) * 16;
}

/* Bytes of a group; ROW: of a whole row. */
template <int N, bool ROW> __device__ __forceinline__ constexpr int skinny_group() {
    return ROW ? 128 : N * 1024;
}

/* A chunk of the input at x: where a lane reads, by the 16-byte unit's number: x[v] is at ^ 32 v of
 * the first group. Of a whole row's only x[0] is used. */
template <bool ROW> struct skinny_x {
    const unsigned char *v[ROW ? 1 : 4];

    __device__ __forceinline__ void set(const unsigned char *x, uint32_t at) {
#pragma unroll
        for (int i = 0; i < (ROW ? 1 : 4); i++)
            v[i] = x + (at ^ 32 * i);
    }
};

/* The row of eight that is column n of an operation: rows that 16 lanes read together, 8 bytes
 * each, then lie in different banks. */
__device__ __forceinline__ uint32_t skinny_row(uint32_t n) {
    return n % 4 * 2 + n / 4;
}

/* The work of a consumer warp. */
struct skinny_role {
    uint32_t slot, split, matrix, tile; /* matrix: index into w; tile: of that matrix */
    bool active;                        /* false: after the last tile */
    uint32_t n_chunks;                  /* of its K split */
};

/* ROW: the experts of a single row, with slots or with the shared expert. */
template <bool ROW>
__device__ __forceinline__ skinny_role skinny_role_of(const cargs_product &a, uint32_t warp,
                                                      uint32_t cols) {
    skinny_role r;
    uint32_t rest = warp / a.n_splits;
    r.split = warp % a.n_splits;
    r.slot = r.matrix = 0;
    if (ROW && a.slots.n) r.slot = rest, rest = 0;
    if (a.epilogue[0].act) r.matrix = rest % 2, rest /= 2;
    r.tile = blockIdx.x * a.block_tiles + rest;
    r.active = r.tile < a.last_tile[CARGS_PRODUCT_WEIGHTS - 1];
    if (!a.epilogue[0].act && r.active && r.tile >= a.last_tile[0]) {
        r.matrix = 1 + (r.tile >= a.last_tile[1]) + (r.tile >= a.last_tile[2]);
        r.tile -= a.last_tile[r.matrix - 1];
    }
    uint32_t first = r.split * a.split_cols, end = min(first + a.split_cols, a.n_in);
    r.n_chunks = (end - first + cols - 1) / cols;
    return r;
}

/* Rows of this block. */
struct skinny_rows {
    uint32_t n;
    uint32_t expert; /* without slots, which have one each */
};

/* The expert whose weights and bias are a.w's; of the shared expert 0, of other weights. */
__device__ __forceinline__ uint32_t skinny_expert(const cargs_product &a, uint32_t expert) {
    return expert == a.joined_expert ? 0 : expert;
}

/* The sum of one output and row, the at-th value of lane `lane`: the partial sums of its K splits,
 * added in ascending order. sums: (warps, N * 4, 32). */
template <int N>
__device__ __forceinline__ float skinny_sum(const float *sums, uint32_t first_warp,
                                            uint32_t n_splits, uint32_t at, uint32_t lane) {
    float sum = sums[(first_warp * N * 4 + at) * 32 + lane];
    for (uint32_t p = 1; p < n_splits; p++)
        sum = __fadd_rn(sum, sums[((first_warp + p) * N * 4 + at) * 32 + lane]);
    return sum;
}

/* All warps of the block store, the producers too: each time two rows of a tile, whose outputs are
 * neighbours in memory. The epilogue is there once: fetching it for each of a thread's values took
 * longer than the multiplications of many rows. scales: of the rows. */
template <int N, bool ROW>
__device__ __forceinline__ void skinny_store(const cargs_product &a, const skinny_rows &rows,
                                             const uint32_t *out_of, const float *scales,
                                             const float acc[N][4], float *sums) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, row_of_two = lane / 16;
    const bool joined = ROW && rows.expert == a.joined_expert;
    const uint32_t tile_warps = a.n_splits * (a.epilogue[0].act ? 2 : 1);
    __syncthreads(); /* the last reads of the ring are done */
    if (warp < a.n_consumers) {
#pragma unroll
        for (int k = 0; k < N * 4; k++)
            sums[(warp * N * 4 + k) * 32 + lane] = acc[k / 4][k % 4];
    }
    __syncthreads();
#pragma unroll 1
    for (uint32_t i = warp; i < a.block_tiles * ((rows.n + 1) / 2); i += blockDim.x / 32) {
        const uint32_t first = i % a.block_tiles * tile_warps;
        const uint32_t row = i / a.block_tiles * 2 + row_of_two;
        const skinny_role role = skinny_role_of<ROW>(a, first, 1);
        const uint32_t n_out = a.n_out[role.matrix], out = role.tile * 16 + lane % 16;
        if (!role.active || row >= rows.n || out >= n_out) continue;
        /* skinny_row(col) is row % 8; an operation's result has column 2 (lane % 4) + at % 2 */
        const uint32_t col = row % 2 * 4 + row % 8 / 2;
        const uint32_t at = row / 8 * 4 + lane % 16 / 8 * 2 + col % 2, of = lane % 8 * 4 + col / 2;
        const cargs_epilogue &epilogue = a.epilogue[joined              ? CARGS_PRODUCT_JOINED
                                                    : a.epilogue[0].act ? 0
                                                                        : role.matrix];
        const uint64_t expert_out = (uint64_t)(joined ? 0 : rows.expert) * n_out + out;
        const float sum = skinny_sum<N>(sums, first, a.n_splits, at, of);
        const float v =
            epilogue.act
                ? epilogue_pair(epilogue, scales[row], sum,
                                skinny_sum<N>(sums, first + a.n_splits, a.n_splits, at, of),
                                expert_out)
                : epilogue_sum(epilogue, scales[row], sum, expert_out);
        a.y[role.matrix][(uint64_t)out_of[row] * (n_out + a.y_tail) + out] = v;
        for (uint32_t k = 0; a.send[k]; k++)
            peer_store(a.send[k] + (uint64_t)out_of[row] * n_out + out, not_empty(v));
    }
}

/* With slots: each has an expert and a row of its own, and what its results are multiplied by. */
struct skinny_slots {
    uint32_t expert[CARGS_SKINNY_CONSUMERS];
    float x_scale[CARGS_SKINNY_CONSUMERS];
    float factor[CARGS_SKINNY_CONSUMERS + 1]; /* of the shared expert last */
};

/* The tile's results are added up. sums (slots, 16). */
__device__ __forceinline__ void skinny_store_slots(const cargs_product &a, const skinny_role &role,
                                                   const skinny_slots &slots, const float acc[4],
                                                   float *sums) {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4, n_out = a.n_out[0];
    /* The row is column 0 of the results, which every fourth lane has. */
    const float upper = __shfl_sync(CUDA_ALL, acc[2], lane / 4 * 4);
    __syncthreads(); /* the last reads of the ring are done */
    if (threadIdx.x / 32 < a.n_consumers && role.active && lane % 4 < 2) {
        const uint32_t expert = slots.expert[role.slot], at = g + lane % 4 * 8;
        const cargs_epilogue &epilogue =
            a.epilogue[expert == a.joined_expert ? CARGS_PRODUCT_JOINED : 0];
        if (role.tile * 16 + at < n_out)
            sums[role.slot * 16 + at] =
                epilogue_sum(epilogue, slots.x_scale[role.slot], lane % 4 ? upper : acc[0],
                             (uint64_t)skinny_expert(a, expert) * n_out + role.tile * 16 + at);
    }
    __syncthreads();
    const uint32_t out = role.tile * 16 + threadIdx.x;
    if (threadIdx.x >= 16 || out >= n_out) return;
    const cargs_slots &s = a.slots;
    float sum = 0;
    for (uint32_t k = 0; k < s.n_used; k++)
        sum = fmaf(slots.factor[k], sums[k * 16 + threadIdx.x], sum);
    if (s.shared || s.n > s.n_used)
        sum = fmaf(slots.factor[s.n_used],
                   s.shared ? s.shared[out] : sums[s.n_used * 16 + threadIdx.x], sum);
    a.y[0][out] = sum;
}

/* Finds the rows: the y-th group, or the y-th tile of the list; with slots the first tiles' pairs,
 * which are in order, and their experts. By all threads; a barrier must follow. */
template <bool ROW>
__device__ __forceinline__ skinny_rows skinny_find_rows(const cargs_product &a, uint32_t *row_of,
                                                        uint32_t *out_of, skinny_slots &slots) {
    skinny_rows rows = {0, 0};
    if (ROW && a.slots.n) {
        const cargs_slots &s = a.slots;
        const uint32_t i = threadIdx.x;
        rows.n = s.n;
        if (i < rows.n) {
            row_of[i] = i;
            slots.expert[i] = a.tiles[i].expert;
            slots.x_scale[i] = a.x_scale[i];
        }
        if (i < s.n_used) slots.factor[i] = s.weighed ? 1.0f : s.weights[i];
        if (i == s.n_used)
            slots.factor[i] = s.shared_gate ? epilogue_share(s.shared_gate[0]) : 1.0f;
        return rows;
    }
    if (!a.tiles) {
        uint32_t first = blockIdx.y * a.group_rows;
        rows.n = min(a.group_rows, a.n_rows - first);
        if (threadIdx.x < rows.n) row_of[threadIdx.x] = out_of[threadIdx.x] = first + threadIdx.x;
        return rows;
    }
    args_moe_tile tile = a.tiles[blockIdx.y];
    rows.n = min(tile.count, a.group_rows);
    rows.expert = tile.expert;
    if (threadIdx.x < rows.n) {
        out_of[threadIdx.x] = a.list[tile.first + threadIdx.x];
        row_of[threadIdx.x] = out_of[threadIdx.x] / a.n_share;
    }
    return rows;
}

/* The ring buffer. A stage: weights (n_consumers, F::BYTES) and, without x_row, the input's groups
 * of a chunk (n_splits, COLS / 64), from a multiple of 1024 bytes on. */
struct skinny_ring {
    unsigned char *base;
    uint64_t *full, *empty; /* (n_stages) */
    uint32_t stage_bytes;
    unsigned char *input; /* of stage 0, or whole rows */
    uint32_t split_bytes; /* of the input, from one K split to the next */
    uint32_t n_chunks;    /* of the longest K split */
};

template <class F, int N, bool ROW>
__device__ __forceinline__ skinny_ring skinny_ring_of(const cargs_product &a, unsigned char *base,
                                                      uint64_t *bars) {
    skinny_ring r;
    r.base = base;
    r.full = bars;
    r.empty = bars + CARGS_SKINNY_STAGES;
    r.stage_bytes = a.stage_bytes;
    r.split_bytes = ROW ? 2 * a.split_cols : F::COLS / 64 * skinny_group<N, ROW>();
    r.input =
        base + (ROW ? a.n_stages * r.stage_bytes : (a.n_consumers * F::BYTES + 1023) / 1024 * 1024);
    r.n_chunks = (min(a.split_cols, a.n_in) + F::COLS - 1) / F::COLS;
    return r;
}

/* A loader: number `at` of the n that share the consumers; chunks turn, turn + n_turns, .. are its
 * own. */
struct skinny_loader {
    uint32_t at, n, turn;
};

template <bool ROW> __device__ __forceinline__ uint32_t skinny_n_loaders(const cargs_product &a) {
    return blockDim.x / 32 - a.n_consumers - (ROW ? 0 : a.n_turns);
}

template <bool ROW>
__device__ __forceinline__ skinny_loader skinny_loader_of(const cargs_product &a) {
    const uint32_t n = skinny_n_loaders<ROW>(a) >> (a.n_turns - 1);
    const uint32_t i = threadIdx.x / 32 - a.n_consumers, turn = i >= n;
    return {i - turn * n, n, turn};
}

/* What a loader copies for a consumer: lane i has the loader's i-th, of every n-th. */
struct skinny_target {
    uint32_t matrix, expert, tile, split, n_chunks; /* n_chunks 0: none */
};

/* ROW: the expert is the slot's. */
template <class F, bool ROW>
__device__ __forceinline__ skinny_target skinny_target_of(const cargs_product &a, uint32_t consumer,
                                                          uint32_t expert,
                                                          const uint32_t *slot_experts) {
    skinny_target f = {0, 0, 0, 0, 0};
    if (consumer >= a.n_consumers) return f;
    skinny_role role = skinny_role_of<ROW>(a, consumer, F::COLS);
    if (!role.active) return f;
    if (ROW) expert = slot_experts[role.slot];
    if (ROW && expert == a.joined_expert) role.matrix += CARGS_PRODUCT_JOINED;
    f = {role.matrix, skinny_expert(a, expert), role.tile, role.split, role.n_chunks};
    return f;
}

/* By a loader: starts copying its consumers' weights of a chunk, and arrives unless `later`. */
template <class F, bool ROW>
__device__ __forceinline__ void skinny_copy_weights(const cargs_product &a, const skinny_ring &r,
                                                    const skinny_loader &l,
                                                    const skinny_target &target, uint32_t stage,
                                                    uint32_t chunk, bool later = false) {
    const uint32_t lane = threadIdx.x % 32;
    unsigned char *to = r.base + stage * r.stage_bytes + l.at * F::BYTES;
    uint64_t *bar = r.full + stage;
    const bool copies = chunk < target.n_chunks;
    const uint32_t col = target.split * a.split_cols + chunk * F::COLS;
    const uint32_t who = __ballot_sync(CUDA_ALL, copies);
    if (lane == 0 && who) bulk_expect(bar, __popc(who) * F::BYTES);
    if (a.by_lane) {
        if (lane == 0 && !later) mbar_arrive(bar);
        if (copies)
            F::template copy<true>(to + lane * l.n * F::BYTES, a, target.matrix, target.expert,
                                   target.tile, col, bar);
        return;
    }
    __syncwarp();
    for (uint32_t left = who; left; left &= left - 1) {
        const uint32_t i = __ffs(left) - 1;
        F::template copy<false>(to + i * l.n * F::BYTES, a, __shfl_sync(CUDA_ALL, target.matrix, i),
                                __shfl_sync(CUDA_ALL, target.expert, i),
                                __shfl_sync(CUDA_ALL, target.tile, i),
                                __shfl_sync(CUDA_ALL, col, i), bar);
    }
    if (!later) async_arrive(bar);
}

/* by_lane: the TMA has copied for one. */
__device__ __forceinline__ void skinny_arrive(bool by_lane, uint64_t *full) {
    if (by_lane)
        mbar_arrive(full);
    else
        async_arrive(full);
}

/* Copies the whole input, by one loader. */
template <class F>
__device__ __forceinline__ void skinny_copy_rows(const cargs_product &a, const skinny_ring &r,
                                                 const uint32_t *row_of, uint32_t n_rows) {
    uint32_t lane = threadIdx.x % 32, bytes = a.pitch * 2;
    const uint16_t *x = static_cast<const uint16_t *>(a.x);
    for (uint32_t row = 0; row < n_rows; row++)
        for (uint32_t at = bytes + lane * 16; at + 16 <= a.x_row; at += 512)
            *reinterpret_cast<uint4 *>(r.input + row * a.x_row + at) = make_uint4(0, 0, 0, 0);
    if (lane == 0) bulk_expect(r.full, n_rows * bytes);
    __syncwarp();
    for (uint32_t row = 0; row < n_rows; row++)
        bulk_copy(r.input + row * a.x_row, x + (uint64_t)row_of[row] * a.pitch, bytes, r.full);
    __syncwarp(); /* lane 0 arrives for the others' zeros, too */
}

/* A loader's work after pdl_wait; first: its first chunk that it has not begun to copy. The next
 * kernel may start once this one has issued all its copies; earlier it would only compete with
 * them, unless it has the same input. A whole input arrives with the first stage. */
template <class F, bool ROW>
__device__ __forceinline__ void
skinny_load_weights(const cargs_product &a, const skinny_ring &r, const skinny_loader &l,
                    const skinny_target &target, const uint32_t *row_of, const skinny_rows &rows,
                    uint32_t first) {
    if (ROW && threadIdx.x / 32 == a.n_consumers) skinny_copy_rows<F>(a, r, row_of, rows.n);
    if (ROW && l.turn == 0 && (!a.by_lane || threadIdx.x % 32 == 0))
        skinny_arrive(a.by_lane, r.full);
    uint32_t stage = first - a.n_stages, parity = 0; /* the ring was full */
    for (uint32_t chunk = first; chunk < r.n_chunks; chunk += a.n_turns) {
        mbar_wait(r.empty + stage, parity);
        skinny_copy_weights<F, ROW>(a, r, l, target, stage, chunk);
        stage += a.n_turns;
        if (stage >= a.n_stages) stage -= a.n_stages, parity ^= 1;
    }
    pdl_launch();
}

/* Are the rows a matrix of which the TMA copies boxes? */
__device__ __forceinline__ bool skinny_boxes(const cargs_product &a) {
    return a.by_lane && !a.tiles;
}

/* A warp copies the input's columns of a chunk, for each K split. Columns after the pitch become
 * zeros, so that the weights' padding has no effect. */
template <class F, int N> struct skinny_input {
    enum { UNITS = F::COLS / 8 /* of 16 bytes per row */, STEP = 32 / UNITS, AT_ONCE = 4 };
    const uint16_t *x;
    uint32_t unit, first_row, n_rows;

    __device__ __forceinline__ skinny_input(const cargs_product &a, uint32_t rows) {
        x = static_cast<const uint16_t *>(a.x);
        unit = threadIdx.x % UNITS;
        first_row = threadIdx.x % 32 / UNITS;
        n_rows = rows;
    }

    __device__ __forceinline__ void copy_units(const cargs_product &a, const uint32_t *row_of,
                                               unsigned char *to, uint32_t col) const {
        const bool there = col < a.pitch;
        const uint16_t *from = x + (there ? col : 0);
        to += unit / 8 * skinny_group<N, false>();
        for (uint32_t row = first_row; row < n_rows; row += AT_ONCE * STEP) {
            uint32_t of[AT_ONCE];
#pragma unroll
            for (uint32_t i = 0; i < AT_ONCE; i++)
                of[i] = row_of[min(row + i * STEP, n_rows - 1)];
#pragma unroll
            for (uint32_t i = 0; i < AT_ONCE; i++)
                if (row + i * STEP < n_rows)
                    async_copy16_if(to + skinny_x_at(row + i * STEP, unit % 8),
                                    from + (uint64_t)of[i] * a.pitch, there);
        }
    }

    __device__ __forceinline__ void copy(const cargs_product &a, const skinny_ring &r,
                                         const uint32_t *row_of, uint32_t stage,
                                         uint32_t chunk) const {
        unsigned char *to = r.input + stage * r.stage_bytes;
        uint32_t col = chunk * F::COLS;
        const bool boxes = skinny_boxes(a);
        if (boxes) bulk_expect(r.full + stage, a.n_splits * r.split_bytes);
        for (uint32_t split = 0; split < a.n_splits;
             split++, col += a.split_cols, to += r.split_bytes)
            if (boxes)
                tensor_copy_box(to, a.map[CARGS_PRODUCT_INPUT], blockIdx.y * a.group_rows, col / 64,
                                8 * N, F::COLS / 64, r.full + stage);
            else
                copy_units(a, row_of, to, col + unit * 8);
    }
};

/* The work of the warp that copies the input, after pdl_wait. */
template <class F, int N>
__device__ __forceinline__ void skinny_load_input(const cargs_product &a, const skinny_ring &r,
                                                  const uint32_t *row_of, const skinny_rows &rows) {
    const skinny_input<F, N> input(a, rows.n);
    const bool boxes = skinny_boxes(a);
    if (boxes && threadIdx.x % 32) return;
    const uint32_t turn = threadIdx.x / 32 + a.n_turns - blockDim.x / 32;
    uint32_t stage = turn, parity = 1; /* of the round before, which the first does not wait for */
    for (uint32_t chunk = turn; chunk < r.n_chunks; chunk += a.n_turns) {
        if (chunk >= a.n_stages) mbar_wait(r.empty + stage, parity);
        input.copy(a, r, row_of, stage, chunk);
        skinny_arrive(boxes, r.full + stage);
        stage += a.n_turns;
        if (stage >= a.n_stages) stage -= a.n_stages, parity ^= 1;
    }
}

template <class F>
__device__ __forceinline__ void skinny_load(typename F::frags &frags, const unsigned char *w,
                                            int from, int to) {
#pragma unroll
    for (int i = from; i < to; i++)
        F::load(frags, w, threadIdx.x % 32, i);
}

/* Multiplies half a chunk, the first or the second. operand: of its first step on entry, of the
 * step after its last on return, if the chunk has one. now: the input of its first unit on
 * entry, of the unit after its last on return, which is the first of x_next at the end of the
 * chunk. Between the operations of the second half the next chunk's fragments are loaded from
 * w_next. */
template <class F, int N, bool ROW, bool second>
__device__ __forceinline__ void
skinny_half(float acc[N][4], const typename F::frags &frags, typename F::frags &next_frags,
            uint32_t operand[4], uint32_t now[4 * N], const skinny_x<ROW> &x,
            const skinny_x<ROW> &x_next, const unsigned char *w_next) {
    const int UNITS = F::COLS / 32, STEPS = 2 * UNITS;
#pragma unroll
    for (int u = second ? UNITS / 2 : 0; u < (second ? UNITS : UNITS / 2); u++) {
        uint32_t next[4 * N];
        F::template load_input<N, ROW>(next, u + 1 < UNITS ? x.v : x_next.v, (u + 1) % UNITS);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int j = 2 * u + i, k = j - STEPS / 2; /* k: index within the second half */
            F::template multiply<N>(acc, operand, now, i);
            if (second)
                skinny_load<F>(next_frags, w_next, k * F::PIECES / (STEPS / 2),
                               (k + 1) * F::PIECES / (STEPS / 2));
            if (j + 1 < STEPS) F::step(operand, frags, j + 1);
        }
#pragma unroll
        for (int i = 0; i < 4 * N; i++)
            now[i] = next[i];
    }
}

/* A consumer's position: what its next chunk needs besides fragments. */
template <bool ROW> struct skinny_place {
    const unsigned char *w, *x; /* of stage 0 */
    skinny_x<ROW> x_next;       /* of the next chunk */
    uint32_t at, stage, parity;
};

/* Multiplies one chunk; fragments of the next one are loaded in its middle. */
template <class F, int N, bool ROW>
__device__ __forceinline__ void skinny_chunk(const cargs_product &a, const skinny_role &role,
                                             const skinny_ring &r, skinny_place<ROW> &p,
                                             uint32_t chunk, const typename F::frags &frags,
                                             typename F::frags &next_frags, uint32_t operand[4],
                                             uint32_t now[4 * N], float acc[N][4]) {
    const bool last = chunk + 1 == role.n_chunks;
    uint64_t *empty = r.empty + p.stage;
    const skinny_x<ROW> x_now = p.x_next;
    if (++p.stage == a.n_stages) p.stage = 0, p.parity ^= 1;
    if (!last)
        p.x_next.set(p.x + (ROW ? (chunk + 1) * 2 * F::COLS : p.stage * r.stage_bytes), p.at);
    const unsigned char *w_next = p.w + p.stage * r.stage_bytes;
    skinny_half<F, N, ROW, false>(acc, frags, next_frags, operand, now, x_now, p.x_next, w_next);
    if (!last) mbar_wait(r.full + p.stage, p.parity);
    skinny_half<F, N, ROW, true>(acc, frags, next_frags, operand, now, x_now, p.x_next, w_next);
    F::step(operand, next_frags, 0);
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbar_arrive(empty);
}

/* A consumer warp's K split. What lanes without an input row read has no effect: their results are
 * not stored. */
template <class F, int N, bool ROW>
__device__ __forceinline__ void skinny_consume(const cargs_product &a, const skinny_role &role,
                                               const skinny_ring &r, float acc[N][4]) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t now[4 * N], operand[4], chunk = 0;
    typename F::frags even, odd;
    skinny_place<ROW> p;
    p.at = F::template input_at<N, ROW>(lane);
    p.w = r.base + threadIdx.x / 32 * F::BYTES;
    p.x = r.input + role.split * r.split_bytes + (ROW ? role.slot * a.x_row : 0);
    p.x_next.set(p.x, p.at);
    p.stage = p.parity = 0;
    mbar_wait(r.full, 0);
    if (role.active) {
        skinny_load<F>(even, p.w, 0, F::PIECES);
        F::step(operand, even, 0);
        F::template load_input<N, ROW>(now, p.x_next.v, 0);
        for (;;) { /* unrolled twice, so that fragments need not be moved */
            skinny_chunk<F, N, ROW>(a, role, r, p, chunk++, even, odd, operand, now, acc);
            if (chunk == role.n_chunks) break;
            skinny_chunk<F, N, ROW>(a, role, r, p, chunk++, odd, even, operand, now, acc);
            if (chunk == role.n_chunks) break;
        }
    }
    for (; chunk < r.n_chunks; chunk++) { /* of longer K splits in the same block */
        mbar_wait(r.full + chunk % a.n_stages, chunk / a.n_stages % 2);
        __syncwarp();
        if (lane == 0) mbar_arrive(r.empty + chunk % a.n_stages);
    }
}

/* Dynamic shared memory: the ring and, with x_row, a whole row of the input a slot; afterwards the
 * same memory holds (n_consumers, N * 4, 32) sums. */
template <class F, int N, bool ROW>
CUDA_KERNEL_MIN(SKINNY_THREADS, 1)
product_skinny(CUDA_ARGS(struct cargs_product) a) {
    CUDA_SHARED(unsigned char, shared);
    __shared__ uint32_t row_of[SKINNY_ROWS], out_of[SKINNY_ROWS];
    __shared__ float scales[SKINNY_ROWS];
    __shared__ skinny_slots slots;
    __shared__ uint64_t bars[2 * CARGS_SKINNY_STAGES];
    const uint32_t warp = threadIdx.x / 32, n_loaders = skinny_n_loaders<ROW>(a);
    const bool produces = warp >= a.n_consumers,
               loads = produces && warp < a.n_consumers + n_loaders;
    const skinny_role role = skinny_role_of<ROW>(a, warp, F::COLS);
    const skinny_ring r = skinny_ring_of<F, N, ROW>(a, shared, bars);
    const uint32_t n_before = min(a.n_stages, r.n_chunks);
    skinny_rows rows;
    if (threadIdx.x < a.n_stages) {
        mbar_init(r.full + threadIdx.x,
                  (n_loaders >> (a.n_turns - 1)) * (a.by_lane ? 1 : 32) + (ROW               ? 0
                                                                           : skinny_boxes(a) ? 1
                                                                                             : 32));
        mbar_init(r.empty + threadIdx.x, a.n_consumers);
        mbar_fence();
    }
    if (ROW && threadIdx.x == 0) slots.expert[0] = 0;
    if (a.tiles) { /* the previous kernels choose the expert */
        pdl_wait();
        rows = skinny_find_rows<ROW>(a, row_of, out_of, slots);
        if (!rows.n) return;
        if (ROW && !a.slots.n && threadIdx.x == 0) slots.expert[0] = rows.expert;
    }
    __syncthreads();
    skinny_target target;
    skinny_loader loader;
    uint32_t next = 0; /* a loader's next chunk */
    if (loads) {
        loader = skinny_loader_of<ROW>(a);
        target = skinny_target_of<F, ROW>(a, loader.at + threadIdx.x % 32 * loader.n,
                                          a.tiles ? rows.expert : 0, slots.expert);
        for (next = loader.turn; next < n_before; next += a.n_turns)
            skinny_copy_weights<F, ROW>(a, r, loader, target, next, next, ROW && !next);
    }
    if (!a.tiles) {
        rows = skinny_find_rows<ROW>(a, row_of, out_of, slots);
        if (!a.overlaps_previous) pdl_wait();
        if (a.launches_early) pdl_launch();
    }
    __syncthreads();
    float acc[N][4] = {};
    if (loads)
        skinny_load_weights<F, ROW>(a, r, loader, target, row_of, rows, next);
    else if (produces)
        skinny_load_input<F, N>(a, r, row_of, rows);
    else
        skinny_consume<F, N, ROW>(a, role, r, acc);
    if (threadIdx.x / 32 + 1 == blockDim.x / 32 && threadIdx.x % 32 < rows.n && !a.slots.n)
        scales[threadIdx.x % 32] = a.x_scale[row_of[threadIdx.x % 32]];
    if (ROW && a.slots.n)
        skinny_store_slots(a, role, slots, acc[0], reinterpret_cast<float *>(shared));
    else
        skinny_store<N, ROW>(a, rows, out_of, scales, acc, reinterpret_cast<float *>(shared));
    if (a.overlaps_previous)
        pdl_wait(); /* a kernel that waits for this one also relies on the previous one */
}

/* The kernels of one format. */
template <class F> static struct cuda_skinny skinny_of(int n_groups) {
    struct cuda_skinny k = {nullptr, F::COLS, F::BYTES};
    k.kernel = n_groups == 0   ? (const void *)product_skinny<F, 1, true>
               : n_groups == 1 ? (const void *)product_skinny<F, 1, false>
               : n_groups == 2 ? (const void *)product_skinny<F, 2, false>
                               : (const void *)product_skinny<F, 4, false>;
    return k;
}

#endif
