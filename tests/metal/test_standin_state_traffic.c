/* test_standin_state_traffic.c - memory traffic of linear attention, by the stand-in's traffic
 * meter: a decode step reads S once and does not write it between boundaries; a step that crosses
 * boundaries writes it once. Prints what a decode step moves. */
#include "tests/support/be.h"
#include "tests/unit/check.h"

#include "tests/metal/standin/runtime/msl_traffic.h"

enum { MAX_SEQS = 3 };

static struct metalsim_bytes state_traffic(const char *kernel) {
    struct metalsim_argument a;
    for (uint32_t i = 0; metalsim_traffic_argument(i, &a) == 0; i++)
        if (strcmp(a.kernel, kernel) == 0 && strcmp(a.name, "blocks") == 0) return a.bytes;
    return (struct metalsim_bytes){0};
}

/* Bytes of device memory that the op moves, each once. */
static double moved(void) {
    static const char *const kernels[] = {"delta_conv",  "delta_run",  "delta_keep",
                                          "mamba2_norm", "short_conv", "short_conv_keep"};
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        struct metalsim_kernel k;
        if (metalsim_traffic(kernels[i], &k) == 0)
            sum += k.memory.read_once + k.memory.written_once;
    }
    return (double)sum;
}

static uint64_t dispatches(const char *kernel) {
    struct metalsim_kernel k;
    return metalsim_traffic(kernel, &k) == 0 ? k.dispatches : 0;
}

static backend_weight *random_vector(backend *be, uint64_t n) {
    float *x = be_new(n, sizeof *x);
    be_fill(x, n, 0.1f);
    backend_weight *w = be_weight(be, QTYPE_F32, 1, n, x);
    free(x);
    return w;
}

/* Rows of sequences: n_rows of each of n_seqs sequences, from position `first` on. */
struct batch {
    uint32_t n_seqs, n_rows, first;
    backend_buf *pos, *row_start, *tables;
};

static struct batch new_batch(backend *be, uint32_t n_seqs, uint32_t n_rows, uint32_t first) {
    const uint32_t n = n_seqs * n_rows;
    int32_t pos[64], start[MAX_SEQS + 1], tables[2 * MAX_SEQS];
    be_need(n <= 64 && n_seqs <= MAX_SEQS, "room for the rows");
    for (uint32_t i = 0; i <= n_seqs; i++)
        start[i] = (int32_t)(i * n_rows);
    for (uint32_t i = 0; i < n; i++)
        pos[i] = (int32_t)(first + i % n_rows);
    for (uint32_t i = 0; i < n_seqs; i++)
        tables[2 * i] = tables[2 * i + 1] = (int32_t)(n_seqs - 1 - i);
    return (struct batch){n_seqs,
                          n_rows,
                          first,
                          be_i32(be, pos, n),
                          be_i32(be, start, n_seqs + 1),
                          be_i32(be, tables, 2 * (uint64_t)n_seqs)};
}

static void free_buf(const backend_buf *buf) {
    backend_buf_free((backend_buf *)(uintptr_t)buf);
}

static void free_weight(const backend_weight *w) {
    backend_weight_free((backend_weight *)(uintptr_t)w);
}

/* The content of the blocks does not matter. */
static struct backend_state with_blocks(backend *be, struct backend_state s, uint32_t n) {
    s.n_blocks = n;
    s.blocks = be_f32(be, NULL, n * backend_state_block_bytes(&s) / sizeof(float));
    return s;
}

/* ---- linear attention ---- */

struct shape {
    struct backend_state state;
    bool mamba2;
};

static uint64_t decays_of(const struct backend_state *s) {
    return (uint64_t)s->n_v_heads * backend_state_decays(s);
}

/* A metered step. */
static void run_step(backend *be, const struct shape *sh, uint32_t n_seqs, uint32_t n_rows,
                     uint32_t first) {
    const struct backend_state s = with_blocks(be, sh->state, n_seqs);
    const struct batch b = new_batch(be, n_seqs, n_rows, first);
    const uint64_t n = (uint64_t)n_seqs * n_rows, channels = backend_state_channels(&s),
                   cols = (uint64_t)s.n_v_heads * s.v_dim, decays = decays_of(&s);
    const bool apart = s.channel_decay; /* Q, K and V, all with as many channels */
    const uint64_t in = apart ? channels / 3 : channels;
    struct op_linear_attention op = {.qkv = be_f32(be, NULL, n * in),
                                     .k = apart ? be_f32(be, NULL, n * in) : NULL,
                                     .v = apart ? be_f32(be, NULL, n * in) : NULL,
                                     .z = be_f32(be, NULL, n * cols),
                                     .alpha = be_f32(be, NULL, n * decays),
                                     .beta = sh->mamba2 ? NULL : be_f32(be, NULL, n * s.n_v_heads),
                                     .pos = b.pos,
                                     .row_start = b.row_start,
                                     .tables = b.tables,
                                     .conv = random_vector(be, in * s.n_taps),
                                     .conv_k = apart ? random_vector(be, in * s.n_taps) : NULL,
                                     .conv_v = apart ? random_vector(be, in * s.n_taps) : NULL,
                                     .conv_bias = sh->mamba2 ? random_vector(be, channels) : NULL,
                                     .a = random_vector(be, s.n_v_heads),
                                     .dt_bias = random_vector(be, decays),
                                     .skip = sh->mamba2 ? random_vector(be, s.n_v_heads) : NULL,
                                     .norm = random_vector(be, sh->mamba2 ? cols : s.v_dim),
                                     .eps = 1e-6f,
                                     .n_rows = (uint32_t)n,
                                     .n_seqs = n_seqs,
                                     .n_norm_groups = s.n_k_heads,
                                     .state = s,
                                     .work = be_f32(be, NULL, n * backend_state_work(&s)),
                                     .out = be_f32(be, NULL, n * cols)};
    metalsim_traffic_reset();
    CHECK(backend_linear_attention(be, &op) == 0 && backend_sync(be, NULL) == 0);
    metalsim_traffic_stop();
    const backend_buf *bufs[] = {op.qkv, op.z,         op.alpha,  op.beta, op.pos, op.k,
                                 op.v,   op.row_start, op.tables, op.work, op.out, s.blocks};
    const backend_weight *weights[] = {op.conv, op.conv_k,  op.conv_v, op.conv_bias,
                                       op.a,    op.dt_bias, op.skip,   op.norm};
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
        free_buf(bufs[i]);
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++)
        free_weight(weights[i]);
}

/* In floats, of one sequence. */
static uint64_t state_of(const struct backend_state *s) {
    return (uint64_t)s->n_v_heads * s->k_dim * s->v_dim;
}

/* n pending rows, as the V heads read them. */
static uint64_t pending_of(const struct backend_state *s, uint32_t n) {
    return (uint64_t)n * (s->n_v_heads * (uint64_t)(s->k_dim + s->v_dim) + decays_of(s));
}

/* U and G of a row. */
static uint64_t row_of(const struct backend_state *s) {
    return (uint64_t)s->n_v_heads * s->v_dim + decays_of(s);
}

/* What a decode step moves with n pending rows a sequence (BYTES in delta_net.metal). */
static double decode_bytes(const struct shape *sh, uint32_t n_seqs, uint32_t n) {
    const struct backend_state *s = &sh->state;
    const uint64_t channels = backend_state_channels(s), cols = (uint64_t)s->n_v_heads * s->v_dim;
    const uint64_t row = (uint64_t)s->n_k_heads * s->k_dim + cols + decays_of(s);
    uint64_t each = state_of(s) + (n + 1) * row + 2 * (s->n_taps - 1) * channels + 3 * channels +
                    2 * cols + decays_of(s);
    uint64_t once = s->n_taps * channels;
    if (sh->mamba2)
        each += 2 * cols, once += channels + cols;
    else
        each += s->n_v_heads;
    return (double)(n_seqs * each + once) * sizeof(float);
}

static void check_decode(backend *be, const struct shape *sh, uint32_t n_seqs, uint32_t pending) {
    const struct backend_state *s = &sh->state;
    run_step(be, sh, n_seqs, 1, 3 * s->chunk + pending);
    const struct metalsim_bytes run = state_traffic("delta_run");
    const double want = (double)(n_seqs * (state_of(s) + pending_of(s, pending)) * sizeof(float));
    const double all = decode_bytes(sh, n_seqs, pending);
    printf("     %s, %u sequences, %u heads of %3u and %u of %3u, %2u pending rows: %8.0f bytes, "
           "%.3f of the least\n",
           sh->mamba2         ? "Mamba-2"
           : s->channel_decay ? "delta net by channels"
                              : "delta net",
           n_seqs, s->n_k_heads, s->k_dim, s->n_v_heads, s->v_dim, pending, moved(), moved() / all);
    CHECK_MSG(moved() >= 0.99 * all && moved() <= 1.05 * all, "%.0f of %.0f bytes", moved(), all);
    CHECK_MSG((double)run.read >= want && (double)run.read <= 1.01 * want,
              "delta_run reads %.3f of the state and the pending rows", (double)run.read / want);
    CHECK(run.written == n_seqs * row_of(s) * sizeof(float));
    CHECK(dispatches("delta_conv") == 1 && dispatches("delta_run") == 1 &&
          dispatches("delta_keep") == 0 && dispatches("mamba2_norm") == sh->mamba2);
}

/* S is read once and written once, however many boundaries the step crosses. */
static void check_fold(backend *be, const struct shape *sh, uint32_t n_rows, uint32_t first) {
    const struct backend_state *s = &sh->state;
    run_step(be, sh, 1, n_rows, first);
    const struct metalsim_bytes run = state_traffic("delta_run");
    const uint64_t rows = n_rows * row_of(s);
    CHECK_MSG(run.written == (state_of(s) + rows) * sizeof(float), "%u rows: %llu bytes written",
              n_rows, (unsigned long long)run.written);
    /* A chunk's K is read again for S, and U by each quarter of a column. */
    uint64_t again = (uint64_t)s->chunk * s->n_v_heads * (s->k_dim + 4 * s->v_dim);
    if (s->channel_decay) again += (2 * s->chunk + 1) * decays_of(s); /* G, and that of the end */
    if (n_rows == 1)
        CHECK(run.read <= (state_of(s) + pending_of(s, s->chunk) + again) * sizeof(float));
    CHECK(dispatches("delta_keep") == (n_rows > 1));
}

static const struct shape shapes[] = {
    {{.chunk = 16, .n_taps = 4, .n_k_heads = 2, .n_v_heads = 4, .k_dim = 48, .v_dim = 48}, false},
    {{.chunk = 32, .n_taps = 3, .n_k_heads = 1, .n_v_heads = 2, .k_dim = 128, .v_dim = 128}, false},
    {{.chunk = 16, /* the pipelines of test_delta_net */
      .n_taps = 4,
      .n_k_heads = 2,
      .n_v_heads = 2,
      .k_dim = 128,
      .v_dim = 128,
      .channel_decay = true},
     false},
    {{.chunk = 16, .n_taps = 4, .n_k_heads = 1, .n_v_heads = 6, .k_dim = 128, .v_dim = 64}, true},
    {{.chunk = 32, .n_taps = 4, .n_k_heads = 2, .n_v_heads = 4, .k_dim = 256, .v_dim = 48}, true},
};

static void test_state_is_read_once(void) {
    backend *be = be_open_metal((struct backend_config){.max_rows = 64, .max_cols = 64});
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const uint32_t chunk = shapes[i].state.chunk;
        check_decode(be, &shapes[i], 1, 0);
        check_decode(be, &shapes[i], 3, chunk / 2 - 1);
        check_decode(be, &shapes[i], 2, chunk - 2);
        check_fold(be, &shapes[i], 1, 2 * chunk - 1);
    }
    check_fold(be, &shapes[0], 40, 21);
    check_fold(be, &shapes[2], 40, 21);
    check_fold(be, &shapes[3], 40, 21);
    backend_close(be);
}

/* ---- short convolutions ---- */

/* A metered step against the least that it can move (BYTES in short_conv.metal). In a step of
 * several rows the windows are read once more, and the rows that they keep. */
static void check_conv(backend *be, struct backend_state s, uint32_t n_seqs, uint32_t n_rows,
                       uint32_t first) {
    const struct batch b = new_batch(be, n_seqs, n_rows, first);
    const uint64_t n = (uint64_t)n_seqs * n_rows, row = s.channels;
    s = with_blocks(be, s, n_seqs);
    struct op_short_conv op = {.bcx = be_f32(be, NULL, n * 3 * row),
                               .pos = b.pos,
                               .row_start = b.row_start,
                               .tables = b.tables,
                               .conv = random_vector(be, row * s.n_taps),
                               .n_rows = (uint32_t)n,
                               .n_seqs = n_seqs,
                               .state = s,
                               .out = be_f32(be, NULL, n * row)};
    metalsim_traffic_reset();
    CHECK(backend_short_conv(be, &op) == 0 && backend_sync(be, NULL) == 0);
    metalsim_traffic_stop();
    const uint64_t window = (s.n_taps - 1) * row;
    const bool crosses = (first + n_rows) / s.chunk > first / s.chunk, single = n_rows == 1;
    const uint64_t kept = n_rows < s.n_taps - 1 ? n_rows : s.n_taps - 1;
    uint64_t each = n_rows * 4 * row + 2 * window + crosses * window;
    if (!single) each += (1 + crosses) * 2 * kept * row;
    const double least = (double)((n_seqs * each + s.n_taps * row) * sizeof(float));
    printf("     short convolution, %u sequences, %u rows, %u channels: %8.0f bytes, %.3f of the "
           "least\n",
           n_seqs, n_rows, s.channels, moved(), moved() / least);
    CHECK_MSG(moved() >= 0.99 * least && moved() <= 1.05 * least, "%.0f of %.0f bytes", moved(),
              least);
    CHECK(state_traffic("short_conv").written ==
          (single ? n_seqs * (1 + crosses) * window * sizeof(float) : 0));
    CHECK(dispatches("short_conv") == 1 && dispatches("short_conv_keep") == !single);
    const backend_buf *bufs[] = {op.bcx, op.pos, op.row_start, op.tables, op.out, s.blocks};
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++)
        free_buf(bufs[i]);
    free_weight(op.conv);
}

static void test_inputs_are_read_once(void) {
    const struct backend_state s = {.chunk = 16, .n_taps = 3, .channels = 320};
    backend *be = be_open_metal((struct backend_config){.max_rows = 64, .max_cols = 64});
    check_conv(be, s, 1, 1, 35);
    check_conv(be, s, 3, 1, 36);
    check_conv(be, s, 2, 1, 47);
    check_conv(be, s, 1, 40, 21);
    backend_close(be);
}

int main(void) {
    setenv("METALSIM_MODE", "check", 1); /* which counts bytes */
    RUN(test_state_is_read_once);
    RUN(test_inputs_are_read_once);
    return check_done();
}
