/* delta_net.c - launches of linear attention: the convolution of all rows, each V head of each
 * sequence, the norm of Mamba-2's groups, what the next step reads of the inputs; or all of it in
 * one, for a row of each sequence of a delta net. Owns the counters of that kernel. */
#include "core/backend/cuda/ops_int.h"

#include "shaders/cuda/kernels.h"

#include <math.h>

/* Shared by the launches of one op. */
struct delta_op {
    struct cuda_backend *c;
    struct cargs_delta_net args;
    uint64_t row; /* bytes of a row of channels */
};

static int launch_delta(const struct delta_op *o, enum cuda_delta_kernel kernel,
                        const uint32_t grid[2], uint64_t read, uint64_t written) {
    static const char *const names[] = {
        [CUDA_DELTA_CONV] = "delta_conv",       [CUDA_DELTA_PAIRS] = "delta_pairs",
        [CUDA_DELTA_PREFILL] = "delta_prefill", [CUDA_DELTA_STEP] = "delta_step",
        [CUDA_DELTA_KEEP] = "delta_keep",       [CUDA_DELTA_NORM] = "delta_norm",
        [CUDA_MAMBA2_CONV] = "mamba2_conv",     [CUDA_MAMBA2_RUN] = "mamba2_run",
        [CUDA_MAMBA2_STEP] = "mamba2_step",     [CUDA_MAMBA2_NORM] = "mamba2_norm",
        [CUDA_CHANNELS_RUN] = "channels_run",   [CUDA_CHANNELS_STEP] = "channels_step",
    };
    const bool rows = kernel == CUDA_DELTA_STEP || kernel == CUDA_MAMBA2_RUN ||
                      kernel == CUDA_MAMBA2_STEP || kernel == CUDA_CHANNELS_RUN ||
                      kernel == CUDA_CHANNELS_STEP;
    return cuda_launch(
        o->c, &(struct cuda_launch){.kernel = cuda_delta_kernel(kernel),
                                    .name = names[kernel],
                                    .args = &o->args,
                                    .args_bytes = sizeof o->args,
                                    .grid = {grid[0], grid[1]},
                                    .threads = rows ? CUDA_DELTA_THREADS : BACKEND_STATE_MAX_V_DIM,
                                    .read = read,
                                    .written = written});
}

int cuda_delta_scratch(struct cuda_backend *c, err *e) {
    return cuda_scratch_new(c, CUDA_SCRATCH_DELTA_DONE, CUDA_DELTA_COUNTERS * sizeof(uint32_t), e);
}

/* A row of each sequence, in grids of as many sequences as there are counters. */
static int delta_step(struct delta_op *o, uint32_t n_seqs, uint64_t read, uint64_t written) {
    const uint32_t most = CUDA_DELTA_COUNTERS / o->args.n_k_heads;
    int rc = 0;
    for (uint32_t first = 0; first < n_seqs && !rc; first += most) {
        const uint32_t n = n_seqs - first < most ? n_seqs - first : most;
        o->args.first_seq = first;
        o->args.ahead = CUDA_DELTA_STEP_BLOCKS * (uint32_t)o->c->features.n_sms;
        rc = launch_delta(o, CUDA_DELTA_STEP, (uint32_t[]){o->args.n_v_heads, n}, first ? 0 : read,
                          first ? 0 : written);
    }
    return rc;
}

int cuda_linear_attention(backend *be, const struct op_linear_attention *a) {
    const struct backend_state *s = &a->state;
    const uint64_t row = backend_state_channels(s) * sizeof(float);
    const uint64_t out_row = (uint64_t)s->n_v_heads * s->v_dim * sizeof(float);
    const uint32_t n_decays = backend_state_decays(s);
    const bool delta = a->beta, single = a->n_rows == a->n_seqs;
    const bool prefill = delta && !single && !s->channel_decay;
    struct delta_op o = {
        .c = cuda_of(be),
        .args = {.qkv = cuda_at(a->qkv),
                 .k = a->k ? cuda_at(a->k) : NULL,
                 .v = a->v ? cuda_at(a->v) : NULL,
                 .z = cuda_at(a->z),
                 .alpha = cuda_at(a->alpha),
                 .beta = a->beta ? cuda_at(a->beta) : NULL,
                 .pos = cuda_at(a->pos),
                 .row_start = cuda_at(a->row_start),
                 .tables = cuda_at(a->tables),
                 .conv = cuda_vector(a->conv),
                 .conv_k = a->conv_k ? cuda_vector(a->conv_k) : NULL,
                 .conv_v = a->conv_v ? cuda_vector(a->conv_v) : NULL,
                 .a = cuda_vector(a->a),
                 .dt_bias = cuda_vector(a->dt_bias),
                 .norm = a->norm ? cuda_vector(a->norm) : NULL,
                 .conv_bias = a->conv_bias ? cuda_vector(a->conv_bias) : NULL,
                 .skip = a->skip ? cuda_vector(a->skip) : NULL,
                 .blocks = cuda_at(s->blocks),
                 .work = cuda_at(a->work),
                 .pairs = (float *)cuda_at(a->work) + a->n_rows * backend_state_channels(s),
                 .out = cuda_at(a->out),
                 .state = args_state_of(s, a->n_seqs),
                 .chunk = s->chunk,
                 .n_taps = s->n_taps,
                 .n_k_heads = s->n_k_heads,
                 .n_v_heads = s->n_v_heads,
                 .k_dim = s->k_dim,
                 .v_dim = s->v_dim,
                 .tiled = a->tiled,
                 .n_norm_groups = a->n_norm_groups,
                 .prefill = prefill,
                 .n_decays = n_decays,
                 .done = cuda_scratch(cuda_of(be), CUDA_SCRATCH_DELTA_DONE),
                 .eps = a->eps,
                 .q_scale = 1 / sqrtf((float)s->k_dim)},
        .row = row};
    const uint32_t n_heads = 2 * s->n_k_heads + s->n_v_heads;
    const uint64_t state = out_row * s->k_dim, n_rows = a->n_rows;
    const uint64_t decays = (uint64_t)s->n_v_heads * n_decays * sizeof(float);
    /* Counts traffic as if every sequence had half a chunk of pending rows. */
    const uint64_t pending = a->n_seqs * (out_row + row / 2 + decays) * s->chunk / 2;
    const uint64_t folds = n_rows >= s->chunk ? a->n_seqs * state : 0; /* at most */
    const uint32_t parts_of_row = cuda_div_up(backend_state_channels(s), BACKEND_STATE_MAX_V_DIM);
    const enum cuda_delta_kernel rows = prefill                      ? CUDA_DELTA_PREFILL
                                        : s->channel_decay && single ? CUDA_CHANNELS_STEP
                                        : s->channel_decay           ? CUDA_CHANNELS_RUN
                                        : single                     ? CUDA_MAMBA2_STEP
                                                                     : CUDA_MAMBA2_RUN;
    const uint32_t blocks = prefill ? cuda_div_up(s->v_dim, CUDA_DELTA_COLS) : 1;
    const uint32_t norm_blocks = cuda_div_up(s->n_v_heads, CUDA_DELTA_NORM_HEADS);
    const uint64_t read = n_rows * (row + out_row + decays) + a->n_seqs * state + pending,
                   written = n_rows * (2 * out_row + decays) + folds,
                   window = a->n_seqs * s->n_taps * row;
    if (delta && single && !s->channel_decay)
        return delta_step(&o, a->n_seqs, read + window, written + window);
    int rc = launch_delta(&o, delta ? CUDA_DELTA_CONV : CUDA_MAMBA2_CONV,
                          (uint32_t[]){delta ? n_heads : parts_of_row, a->n_rows}, n_rows * row,
                          n_rows * row);
    if (!rc && prefill)
        rc = launch_delta(&o, CUDA_DELTA_PAIRS, (uint32_t[]){s->n_k_heads, a->n_rows}, n_rows * row,
                          2 * n_rows * s->n_k_heads * s->chunk * sizeof(float));
    if (!rc)
        rc = launch_delta(&o, rows, (uint32_t[]){s->n_v_heads * blocks, a->n_seqs}, read, written);
    if (!rc && prefill)
        rc = launch_delta(&o, CUDA_DELTA_NORM, (uint32_t[]){norm_blocks, a->n_rows},
                          2 * n_rows * out_row, n_rows * out_row);
    if (!rc && !delta && a->norm)
        rc = launch_delta(&o, CUDA_MAMBA2_NORM, (uint32_t[]){a->n_norm_groups, a->n_rows},
                          n_rows * out_row, n_rows * out_row);
    if (!rc)
        rc = launch_delta(&o, CUDA_DELTA_KEEP, (uint32_t[]){parts_of_row, a->n_seqs}, window,
                          window);
    return rc;
}
