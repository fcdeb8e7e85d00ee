// linear_attention.metal - linear attention in chunks (op_linear_attention in backend.h).
//
// A step of many rows takes four kernels: the sum of decayed k^T v of each chunk that the step
// completes; the scan that turns these sums into the state S before each chunk; the outputs of the
// rows, from S and from the rows of their own chunk; the rows of the last, incomplete chunk, saved
// to the slot. A step of one row per sequence takes one kernel. All of them compute
//   out[t] = scale * (decay^(r + 1) * (q S) + sum over s = 0..r of decay^(r - s) (q . k[s]) v[s])
//   S' = decay^C S + sum over s of (decay^(C - 1 - s) k[s])^T v[s]
// where r and s count rows within the chunk and S is 0 in the first chunk of a sequence. The order
// of sums is fixed: over s ascending; over head_dim in four classes by index mod 4, ascending in
// each, then (0 + 1) + (2 + 3). So a row's bits do not depend on how its sequence was split into
// steps.
#include "shaders/args_attention.h"
#include "shaders/metal/common.h"

// Function constants: enum margs_linear_attention_const (shaders/args_attention.h).
constant uint LINEAR_DIM [[function_constant(MARGS_LINEAR_ATTENTION_DIM)]];

#define LINEAR_CHUNK   (LINEAR_DIM == 64 ? ARGS_LINEAR_CHUNK_64 : ARGS_LINEAR_CHUNK_128)
#define LINEAR_QUADS   (LINEAR_DIM / 4)                               // float4 values of a head
#define LINEAR_STATE   (LINEAR_DIM * LINEAR_DIM)                      // values of S
#define LINEAR_SLOT    (LINEAR_STATE + 2 * LINEAR_CHUNK * LINEAR_DIM) // values of a slot and head
#define LINEAR_THREADS 256
#define LINEAR_ROWS    8 // of a thread: LINEAR_CHUNK * LINEAR_DIM / LINEAR_THREADS

static inline float linear_power(float x, uint n) {
    float p = 1.0f;
    for (; n != 0; n >>= 1, x *= x)
        if (n & 1) p *= x;
    return p;
}

static inline float linear_sum(float4 v) {
    return (v.x + v.y) + (v.z + v.w);
}

// The first task of sequence s. Leaves room for the largest number of chunks that its rows can
// touch.
static inline uint linear_base(device const int *row_start, uint s) {
    return uint(row_start[s]) / LINEAR_CHUNK + 2 * s;
}

// A sequence's rows of this step.
struct linear_rows {
    uint row, n;    // in the batch
    uint pos, slot; // of the first row
    bool valid;     // it has rows and a slot
};

static inline linear_rows linear_sequence(constant margs_linear_attention &a,
                                          device const int *pos,
                                          device const int *row_start,
                                          device const int *slots,
                                          uint s) {
    linear_rows r;
    r.row = uint(row_start[s]);
    r.n = uint(row_start[s + 1]) - r.row;
    r.slot = uint(slots[s]);
    r.valid = r.n != 0 && r.slot < a.op.n_slots;
    r.pos = r.valid ? uint(pos[r.row]) : 0;
    return r;
}

// The rows of one chunk that are part of this step.
struct linear_part {
    uint chunk;       // its index in the sequence
    uint first, last; // first and last row of this step, counted in the chunk
    int row;          // batch row of the chunk's row 0; may lie before the step
    uint slot;
    bool valid;
};

static inline linear_part linear_chunk(linear_rows r, uint chunk) {
    const uint begin = chunk * LINEAR_CHUNK, end = r.pos + r.n;
    linear_part p;
    p.chunk = chunk;
    p.valid = r.valid && begin < end;
    p.first = r.pos > begin ? r.pos - begin : 0;
    p.last = min(end - begin, uint(LINEAR_CHUNK)) - 1;
    p.row = int(r.row + begin - r.pos);
    p.slot = r.slot;
    return p;
}

// The sequence of a task: the last one that begins at or before it.
static inline uint
linear_owner(constant margs_linear_attention &a, device const int *row_start, uint task) {
    uint low = 0, high = a.op.n_seqs;
    while (high - low > 1) {
        const uint mid = (low + high) / 2;
        if (linear_base(row_start, mid) <= task)
            low = mid;
        else
            high = mid;
    }
    return low;
}

static inline linear_part linear_task(constant margs_linear_attention &a,
                                      device const int *pos,
                                      device const int *row_start,
                                      device const int *slots,
                                      uint task) {
    const uint s = linear_owner(a, row_start, task);
    const linear_rows r = linear_sequence(a, pos, row_start, slots, s);
    return linear_chunk(r, r.pos / LINEAR_CHUNK + task - linear_base(row_start, s));
}

// Row s of the chunk: an input of this step, or saved in the slot by an earlier step.
static inline device const float4 *linear_row(linear_part p,
                                              device const float *x,
                                              device const float *kept,
                                              uint n_heads,
                                              uint head,
                                              uint s) {
    return (device const float4 *)(s >= p.first
                                       ? x + (ulong(uint(p.row + int(s))) * n_heads + head) *
                                                 LINEAR_DIM
                                       : kept + s * LINEAR_DIM);
}

static inline device float *
linear_slot(constant margs_linear_attention &a, device float *state, uint slot, uint head) {
    return state + (ulong(slot) * a.op.n_heads + head) * LINEAR_SLOT;
}

static inline float
linear_decay(constant margs_linear_attention &a, device const float *decay, uint head) {
    return a.has_decay ? decay[head] : 1.0f;
}

// Kernel 1. states (n_tasks, n_heads, head_dim, head_dim): for each chunk that is complete after
// this step, the sum of (decay^(C - 1 - s) k[s])^T v[s]. One threadgroup per task and head; tiles
// (2, C, head_dim).
kernel void linear_attention_chunks(constant margs_linear_attention &a [[buffer(0)]],
                                    device const float *k [[buffer(2)]],
                                    device const float *v [[buffer(3)]],
                                    device const int *pos [[buffer(4)]],
                                    device const int *row_start [[buffer(5)]],
                                    device const int *slots [[buffer(6)]],
                                    device const float *decay [[buffer(7)]],
                                    device float *state [[buffer(8)]],
                                    device float *states [[buffer(10)]],
                                    threadgroup float4 *tiles [[threadgroup(0)]],
                                    uint2 group [[threadgroup_position_in_grid]],
                                    uint tid [[thread_index_in_threadgroup]]) {
    const uint head = group.y;
    const linear_part p = linear_task(a, pos, row_start, slots, a.op.first_task + group.x);
    if (!p.valid || p.last != LINEAR_CHUNK - 1) return;
    device const float *k_kept = linear_slot(a, state, p.slot, head) + LINEAR_STATE;
    device const float *v_kept = k_kept + LINEAR_CHUNK * LINEAR_DIM;
    threadgroup float4 *kt = tiles, *vt = tiles + LINEAR_CHUNK * LINEAR_QUADS;
    const float g = linear_decay(a, decay, head);
    for (uint e = tid; e < LINEAR_CHUNK * LINEAR_QUADS; e += LINEAR_THREADS) {
        const uint s = e / LINEAR_QUADS, i = e % LINEAR_QUADS;
        kt[e] = linear_row(p, k, k_kept, a.op.n_heads, head, s)[i] *
                linear_power(g, LINEAR_CHUNK - 1 - s);
        vt[e] = linear_row(p, v, v_kept, a.op.n_heads, head, s)[i];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    device float4 *out =
        (device float4 *)(states + (ulong(group.x) * a.op.n_heads + head) * LINEAR_STATE);
    for (uint e = tid; e < LINEAR_QUADS * LINEAR_QUADS; e += LINEAR_THREADS) {
        const uint i = e / LINEAR_QUADS, j = e % LINEAR_QUADS; // 4 x 4 values of the product
        float4 acc[4] = {float4(0.0f), float4(0.0f), float4(0.0f), float4(0.0f)};
        for (uint s = 0; s < LINEAR_CHUNK; s++) {
            const float4 kq = kt[s * LINEAR_QUADS + i], vq = vt[s * LINEAR_QUADS + j];
            for (uint x = 0; x < 4; x++)
                acc[x] = fma(float4(kq[x]), vq, acc[x]);
        }
        for (uint x = 0; x < 4; x++)
            out[(4 * i + x) * LINEAR_QUADS + j] = acc[x];
    }
}

// Kernel 2: the scan over the chunks of a sequence. states of each chunk that this pass completes
// becomes the S before that chunk; the slot's S becomes the S after the last one. One thread per
// four values of S, head and sequence.
kernel void linear_attention_scan(constant margs_linear_attention &a [[buffer(0)]],
                                  device const int *pos [[buffer(4)]],
                                  device const int *row_start [[buffer(5)]],
                                  device const int *slots [[buffer(6)]],
                                  device const float *decay [[buffer(7)]],
                                  device float *state [[buffer(8)]],
                                  device float *states [[buffer(10)]],
                                  uint3 at [[thread_position_in_grid]]) {
    const uint head = at.y;
    const linear_rows r = linear_sequence(a, pos, row_start, slots, at.z);
    if (!r.valid) return;
    const uint base = linear_base(row_start, at.z), first = r.pos / LINEAR_CHUNK;
    const uint n_full = (r.pos + r.n) / LINEAR_CHUNK - first;
    const uint begin = max(base, a.op.first_task),
               end = min(base + n_full, a.op.first_task + a.op.n_tasks);
    if (begin >= end) return;
    device float4 *kept = (device float4 *)linear_slot(a, state, r.slot, head) + at.x;
    device float4 *sum = (device float4 *)states + at.x;
    const float4 chunk_decay = float4(linear_power(linear_decay(a, decay, head), LINEAR_CHUNK));
    float4 s = first + begin - base ? *kept : float4(0.0f);
    for (uint t = begin; t < end; t++) {
        const ulong i = (ulong(t - a.op.first_task) * a.op.n_heads + head) * (LINEAR_STATE / 4);
        const float4 chunk_sum = sum[i];
        sum[i] = s;
        s = fma(chunk_decay, s, chunk_sum);
    }
    *kept = s;
}

// decay^(r - s) (q[r] . k[s]) of the chunk's rows of this step: scores (C, C), for s <= r.
static inline void linear_scores(linear_part p,
                                 float g,
                                 threadgroup const float4 *qt,
                                 threadgroup const float4 *kt,
                                 threadgroup float *scores,
                                 uint tid) {
    for (uint e = tid; e < LINEAR_CHUNK * LINEAR_CHUNK; e += LINEAR_THREADS) {
        const uint r = e / LINEAR_CHUNK, s = e % LINEAR_CHUNK;
        if (r < p.first || r > p.last || s > r) continue;
        float4 acc = float4(0.0f);
        for (uint i = 0; i < LINEAR_QUADS; i++)
            acc = fma(qt[r * LINEAR_QUADS + i], kt[s * (LINEAR_QUADS + 1) + i], acc);
        scores[e] = linear_sum(acc) * linear_power(g, r - s);
    }
}

// q[r] S, column col, for rows first .. first + 7. S is read once for all of them.
static inline void linear_q_state(
    thread float *sums, threadgroup const float4 *qt, device const float *s, uint first, uint col) {
    float4 acc[LINEAR_ROWS];
    for (uint x = 0; x < LINEAR_ROWS; x++)
        acc[x] = float4(0.0f);
    for (uint i = 0; i < LINEAR_QUADS; i++) {
        device const float *at = s + 4 * i * LINEAR_DIM + col;
        const float4 sq = float4(at[0], at[LINEAR_DIM], at[2 * LINEAR_DIM], at[3 * LINEAR_DIM]);
        for (uint x = 0; x < LINEAR_ROWS; x++)
            acc[x] = fma(qt[(first + x) * LINEAR_QUADS + i], sq, acc[x]);
    }
    for (uint x = 0; x < LINEAR_ROWS; x++)
        sums[x] = linear_sum(acc[x]);
}

// Kernel 3: outputs of the step's rows of one chunk. One threadgroup per task and head, one thread
// per column of eight rows. tiles: Q (C, head_dim), V likewise, K with rows padded by one float4
// (no bank conflicts), scores (C, C).
kernel void linear_attention_outputs(constant margs_linear_attention &a [[buffer(0)]],
                                     device const float *q [[buffer(1)]],
                                     device const float *k [[buffer(2)]],
                                     device const float *v [[buffer(3)]],
                                     device const int *pos [[buffer(4)]],
                                     device const int *row_start [[buffer(5)]],
                                     device const int *slots [[buffer(6)]],
                                     device const float *decay [[buffer(7)]],
                                     device float *state [[buffer(8)]],
                                     device float *out [[buffer(9)]],
                                     device float *states [[buffer(10)]],
                                     threadgroup float4 *tiles [[threadgroup(0)]],
                                     uint2 group [[threadgroup_position_in_grid]],
                                     uint tid [[thread_index_in_threadgroup]]) {
    const uint head = group.y;
    const linear_part p = linear_task(a, pos, row_start, slots, a.op.first_task + group.x);
    if (!p.valid) return;
    device const float *slot = linear_slot(a, state, p.slot, head);
    device const float *k_kept = slot + LINEAR_STATE, *v_kept = k_kept + LINEAR_CHUNK * LINEAR_DIM;
    threadgroup float4 *qt = tiles, *vt = qt + LINEAR_CHUNK * LINEAR_QUADS;
    threadgroup float4 *kt = vt + LINEAR_CHUNK * LINEAR_QUADS;
    threadgroup float *scores = (threadgroup float *)(kt + LINEAR_CHUNK * (LINEAR_QUADS + 1));
    for (uint e = tid; e < LINEAR_CHUNK * LINEAR_QUADS; e += LINEAR_THREADS) {
        const uint r = e / LINEAR_QUADS, i = e % LINEAR_QUADS;
        const bool ours = r >= p.first && r <= p.last;
        qt[e] = ours ? linear_row(p, q, q, a.op.n_heads, head, r)[i] : float4(0.0f);
        if (r > p.last) continue;
        kt[r * (LINEAR_QUADS + 1) + i] = linear_row(p, k, k_kept, a.op.n_heads, head, r)[i];
        vt[e] = linear_row(p, v, v_kept, a.op.n_heads, head, r)[i];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float g = linear_decay(a, decay, head);
    linear_scores(p, g, qt, kt, scores, tid);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint col = tid % LINEAR_DIM, first = tid / LINEAR_DIM * LINEAR_ROWS;
    if (first > p.last || first + LINEAR_ROWS <= p.first) return;
    float sums[LINEAR_ROWS];
    // An incomplete chunk has no entry in states: the S before it is the slot's.
    device const float *before =
        p.last == LINEAR_CHUNK - 1 ? states + (ulong(group.x) * a.op.n_heads + head) * LINEAR_STATE
                                   : slot;
    if (p.chunk != 0) linear_q_state(sums, qt, before, first, col);
    threadgroup const float *vf = (threadgroup const float *)vt;
    for (uint x = 0; x < LINEAR_ROWS; x++) {
        const uint r = first + x;
        if (r < p.first || r > p.last) continue;
        float acc = p.chunk != 0 ? sums[x] * linear_power(g, r + 1) : 0.0f;
        for (uint s = 0; s <= r; s++)
            acc = fma(scores[r * LINEAR_CHUNK + s], vf[s * LINEAR_DIM + col], acc);
        out[(ulong(uint(p.row + int(r))) * a.op.n_heads + head) * LINEAR_DIM + col] =
            acc * a.op.scale;
    }
}

// Kernel 4, after all others: saves the step's rows of an incomplete chunk to the slot. One
// threadgroup per head and sequence.
kernel void linear_attention_keep(constant margs_linear_attention &a [[buffer(0)]],
                                  device const float *k [[buffer(2)]],
                                  device const float *v [[buffer(3)]],
                                  device const int *pos [[buffer(4)]],
                                  device const int *row_start [[buffer(5)]],
                                  device const int *slots [[buffer(6)]],
                                  device float *state [[buffer(8)]],
                                  uint2 group [[threadgroup_position_in_grid]],
                                  uint tid [[thread_index_in_threadgroup]]) {
    const uint head = group.x;
    const linear_rows r = linear_sequence(a, pos, row_start, slots, group.y);
    if (!r.valid) return;
    const linear_part p = linear_chunk(r, (r.pos + r.n - 1) / LINEAR_CHUNK);
    if (p.last == LINEAR_CHUNK - 1) return;
    device float4 *k_kept = (device float4 *)(linear_slot(a, state, p.slot, head) + LINEAR_STATE);
    device float4 *v_kept = k_kept + LINEAR_CHUNK * LINEAR_QUADS;
    for (uint e = p.first * LINEAR_QUADS + tid; e < (p.last + 1) * LINEAR_QUADS;
         e += LINEAR_THREADS) {
        const uint s = e / LINEAR_QUADS, i = e % LINEAR_QUADS;
        k_kept[e] = linear_row(p, k, k, a.op.n_heads, head, s)[i];
        v_kept[e] = linear_row(p, v, v, a.op.n_heads, head, s)[i];
    }
}

// q S of one row: thread (class, column) sums its class. parts (4, head_dim).
static inline void linear_step_q_state(threadgroup const float *qf,
                                       device const float *s,
                                       threadgroup float *parts,
                                       uint tid) {
    const uint cls = tid / LINEAR_DIM, col = tid % LINEAR_DIM;
    float acc = 0.0f;
    for (uint i = 0; i < LINEAR_QUADS; i++)
        acc = fma(qf[4 * i + cls], s[(4 * i + cls) * LINEAR_DIM + col], acc);
    parts[tid] = acc;
}

// Adds the chunk that this row completes to the slot's S. Thread (class, column) updates the values
// that it read in linear_step_q_state. kf (C, head_dim): the decayed K.
static inline void linear_step_update(linear_part p,
                                      device const float *v,
                                      device const float *v_kept,
                                      threadgroup const float *kf,
                                      device float *state,
                                      float chunk_decay,
                                      uint n_heads,
                                      uint head,
                                      uint tid) {
    const uint cls = tid / LINEAR_DIM, col = tid % LINEAR_DIM;
    float vs[ARGS_LINEAR_CHUNK_64];
    for (uint s = 0; s < LINEAR_CHUNK; s++)
        vs[s] = ((device const float *)linear_row(p, v, v_kept, n_heads, head, s))[col];
    for (uint i = cls; i < LINEAR_DIM; i += 4) {
        float acc = 0.0f;
        for (uint s = 0; s < LINEAR_CHUNK; s++)
            acc = fma(kf[s * LINEAR_DIM + i], vs[s], acc);
        device float *at = state + i * LINEAR_DIM + col;
        *at = fma(chunk_decay, p.chunk != 0 ? *at : 0.0f, acc);
    }
}

// All four kernels in one, for steps of one row per sequence: S is read once; the slot gets the
// row, or S the complete chunk. A threadgroup of 4 * head_dim threads per head and sequence. tiles:
// Q (head_dim), K (C, head_dim), scores (C), parts (4, head_dim).
kernel void linear_attention_step(constant margs_linear_attention &a [[buffer(0)]],
                                  device const float *q [[buffer(1)]],
                                  device const float *k [[buffer(2)]],
                                  device const float *v [[buffer(3)]],
                                  device const int *pos [[buffer(4)]],
                                  device const int *row_start [[buffer(5)]],
                                  device const int *slots [[buffer(6)]],
                                  device const float *decay [[buffer(7)]],
                                  device float *state [[buffer(8)]],
                                  device float *out [[buffer(9)]],
                                  threadgroup float4 *tiles [[threadgroup(0)]],
                                  uint2 group [[threadgroup_position_in_grid]],
                                  uint tid [[thread_index_in_threadgroup]]) {
    const uint head = group.x;
    const linear_rows rows = linear_sequence(a, pos, row_start, slots, group.y);
    if (!rows.valid || rows.n != 1) return;
    const linear_part p = linear_chunk(rows, rows.pos / LINEAR_CHUNK);
    const uint r = p.last;
    const float g = linear_decay(a, decay, head);
    device float *slot = linear_slot(a, state, p.slot, head);
    device float *k_kept = slot + LINEAR_STATE, *v_kept = k_kept + LINEAR_CHUNK * LINEAR_DIM;
    threadgroup float4 *qt = tiles, *kt = qt + LINEAR_QUADS;
    threadgroup float *scores = (threadgroup float *)(kt + LINEAR_CHUNK * LINEAR_QUADS);
    threadgroup float *parts = scores + LINEAR_CHUNK;
    if (tid < LINEAR_QUADS) qt[tid] = linear_row(p, q, q, a.op.n_heads, head, r)[tid];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (p.chunk != 0) linear_step_q_state((threadgroup const float *)qt, slot, parts, tid);
    if (tid <= r) {
        float4 acc = float4(0.0f);
        device const float4 *row = linear_row(p, k, k_kept, a.op.n_heads, head, tid);
        for (uint i = 0; i < LINEAR_QUADS; i++)
            acc = fma(qt[i], row[i], acc);
        scores[tid] = linear_sum(acc) * linear_power(g, r - tid);
    }
    if (r == LINEAR_CHUNK - 1)
        for (uint e = tid; e < LINEAR_CHUNK * LINEAR_QUADS; e += LINEAR_DIM * 4) {
            const uint s = e / LINEAR_QUADS;
            kt[e] = linear_row(p, k, k_kept, a.op.n_heads, head, s)[e % LINEAR_QUADS] *
                    linear_power(g, LINEAR_CHUNK - 1 - s);
        }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid < LINEAR_DIM) {
        float acc = 0.0f;
        if (p.chunk != 0)
            acc = linear_sum(float4(parts[tid], parts[LINEAR_DIM + tid],
                                    parts[2 * LINEAR_DIM + tid], parts[3 * LINEAR_DIM + tid])) *
                  linear_power(g, r + 1);
        for (uint s = 0; s <= r; s++)
            acc = fma(scores[s],
                      ((device const float *)linear_row(p, v, v_kept, a.op.n_heads, head, s))[tid],
                      acc);
        out[(ulong(rows.row) * a.op.n_heads + head) * LINEAR_DIM + tid] = acc * a.op.scale;
    }
    if (r == LINEAR_CHUNK - 1)
        linear_step_update(p, v, v_kept, (threadgroup const float *)kt, slot,
                           linear_power(g, LINEAR_CHUNK), a.op.n_heads, head, tid);
    else if (tid < LINEAR_QUADS) {
        ((device float4 *)k_kept)[r * LINEAR_QUADS + tid] =
            linear_row(p, k, k, a.op.n_heads, head, r)[tid];
        ((device float4 *)v_kept)[r * LINEAR_QUADS + tid] =
            linear_row(p, v, v, a.op.n_heads, head, r)[tid];
    }
}
