/* bench_delta.c - a gated delta net's rows of a decode step on a GPU: one row of each of some
 * sequences, in the shape of Qwen3.5 35B-A3B, with pending rows as sequences of any length have
 * them, and of 32 sequences that all reach a boundary. Runs a CUDA graph of many calls, each over
 * other states behind a small kernel, so that states come from memory, launches cost no time, and
 * a call's beginning overlaps the kernel before it. Prints the time of a call without the small
 * kernel's own, the states' bytes per second, and a checksum of outputs and state blocks: equal
 * bits give equal sums.
 * usage: bench_delta [quick]     quick: few calls, for the simulator */
#include "core/backend/cuda/ops_int.h"
#include "tests/support/be.h"

int backend_cuda_open(const struct backend_config *config, backend **out, err *e);

enum { MAX_CALLS = 96, GRAPH_CALLS = 48, MAX_SEQS = 128, SMALL = 4096, SUMMED_BLOCKS = 16 };
#define APART_BYTES (UINT64_C(256) << 20) /* of state blocks between two reads of one */

static const struct backend_state shape = {
    .chunk = 16, .n_taps = 4, .n_k_heads = 16, .n_v_heads = 32, .k_dim = 128, .v_dim = 128};

struct bench {
    struct cuda_backend *c;
    int n_runs;
    backend_weight *conv, *a, *dt_bias, *norm;
    backend_buf *qkv, *z, *alpha, *beta, *work; /* of MAX_SEQS rows */
    backend_buf *small, *gate;                  /* (SMALL), of the small kernel */
    float *values;                              /* a block's, and SMALL more */
};

/* Sequences of a case and their positions in a chunk; the buffers of calls with different states.
 */
struct bench_case {
    uint32_t n_seqs, n_calls;
    bool ends; /* every sequence reaches a boundary */
    backend_buf *blocks, *pos, *row_start;
    backend_buf *tables[MAX_CALLS], *out[MAX_CALLS];
};

static backend_buf *random_f32(struct bench *b, uint64_t n, float scale) {
    float *x = be_new(n, sizeof *x);
    be_fill(x, n, scale);
    backend_buf *buf = be_f32(&b->c->base, x, n);
    free(x);
    return buf;
}

static backend_weight *random_vector(struct bench *b, uint64_t n, float low, float high) {
    float *x = be_new(n, sizeof *x);
    for (uint64_t i = 0; i < n; i++)
        x[i] = rng_float(&be_rng, low, high);
    backend_weight *w = be_weight(&b->c->base, QTYPE_F32, 1, n, x);
    free(x);
    return w;
}

static void open_bench(struct bench *b) {
    const struct backend_config config = {.name = "cuda", .max_rows = MAX_SEQS, .max_cols = 64};
    const uint64_t channels = backend_state_channels(&shape), heads = shape.n_v_heads;
    const uint64_t n = backend_state_block_bytes(&shape) / sizeof(float) + SMALL;
    backend *be;
    err e = {0};
    be_need(backend_cuda_open(&config, &be, &e) == 0, e.msg);
    b->c = cuda_of(be);
    b->conv = random_vector(b, channels * shape.n_taps, -0.5f, 0.5f);
    b->a = random_vector(b, heads, -1, -0.01f);
    b->dt_bias = random_vector(b, heads, -1, 1);
    b->norm = random_vector(b, shape.v_dim, 0.5f, 1.5f);
    b->qkv = random_f32(b, MAX_SEQS * channels, 1);
    b->z = random_f32(b, MAX_SEQS * heads * shape.v_dim, 2);
    b->alpha = random_f32(b, MAX_SEQS * heads, 3);
    b->beta = random_f32(b, MAX_SEQS * heads, 2);
    b->work = be_f32(be, NULL, MAX_SEQS * backend_state_work(&shape));
    b->small = random_f32(b, SMALL, 1);
    b->gate = random_f32(b, SMALL, 1);
    b->values = be_new(n, sizeof *b->values);
    be_fill(b->values, n, 0.1f);
}

static void close_bench(struct bench *b) {
    backend_weight *const weights[] = {b->conv, b->a, b->dt_bias, b->norm};
    backend_buf *const bufs[] = {b->qkv, b->z, b->alpha, b->beta, b->work, b->small, b->gate};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        backend_weight_free(weights[i]);
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        backend_buf_free(bufs[i]);
    free(b->values);
    backend_close(&b->c->base);
}

static void case_new(struct bench *b, struct bench_case *k) {
    backend *be = &b->c->base;
    const uint64_t bytes = backend_state_block_bytes(&shape);
    int32_t pos[MAX_SEQS], start[MAX_SEQS + 1], tables[2 * MAX_SEQS];
    do
        k->n_calls++;
    while (k->n_calls < (b->n_runs > 1 ? MAX_CALLS : 2) &&
           (k->n_calls < 2 || k->n_calls * k->n_seqs * bytes < APART_BYTES));
    for (uint32_t i = 0; i <= k->n_seqs; i++)
        start[i] = (int32_t)i;
    for (uint32_t i = 0; i < k->n_seqs; i++) {
        const uint32_t pending = k->ends ? shape.chunk - 1 : (8 + 5 * i) % shape.chunk;
        pos[i] = (int32_t)(shape.chunk * (40 + i) + pending);
    }
    k->pos = be_i32(be, pos, k->n_seqs);
    k->row_start = be_i32(be, start, k->n_seqs + 1);
    k->blocks = be_bytes(be, NULL, k->n_calls * k->n_seqs * bytes);
    for (uint32_t c = 0; c < k->n_calls; c++) {
        for (uint32_t i = 0; i < k->n_seqs; i++) {
            const uint32_t block = c * k->n_seqs + i;
            tables[2 * i] = tables[2 * i + 1] = (int32_t)block;
            be_need(cudaMemcpy((char *)cuda_at(k->blocks) + block * bytes,
                               b->values + block * 37 % SMALL, bytes, cudaMemcpyHostToDevice) == 0,
                    "a copy");
        }
        k->tables[c] = be_i32(be, tables, 2 * (uint64_t)k->n_seqs);
        k->out[c] = be_f32(be, NULL, (uint64_t)k->n_seqs * shape.n_v_heads * shape.v_dim);
    }
}

static void case_free(struct bench_case *k) {
    for (uint32_t c = 0; c < k->n_calls; c++)
        backend_buf_free(k->tables[c]), backend_buf_free(k->out[c]);
    backend_buf_free(k->blocks);
    backend_buf_free(k->row_start);
    backend_buf_free(k->pos);
}

/* The small kernel, and the delta net's. */
static void enqueue(struct bench *b, const struct bench_case *k, uint32_t call, bool delta) {
    backend *be = &b->c->base;
    const struct op_gate gate = {.x = b->small, .gate = b->gate, .n_rows = 1, .n_cols = SMALL};
    struct op_linear_attention op = {.qkv = b->qkv,
                                     .z = b->z,
                                     .alpha = b->alpha,
                                     .beta = b->beta,
                                     .pos = k->pos,
                                     .row_start = k->row_start,
                                     .tables = k->tables[call],
                                     .conv = b->conv,
                                     .a = b->a,
                                     .dt_bias = b->dt_bias,
                                     .norm = b->norm,
                                     .eps = 1e-6f,
                                     .n_rows = k->n_seqs,
                                     .n_seqs = k->n_seqs,
                                     .tiled = true,
                                     .state = shape,
                                     .work = b->work,
                                     .out = k->out[call]};
    op.state.blocks = k->blocks;
    op.state.n_blocks = k->n_calls * k->n_seqs;
    be_need(backend_gate(be, &gate) == 0, "a small kernel");
    if (delta) be_need(backend_linear_attention(be, &op) == 0, "a delta net");
}

/* Microseconds of a call, with the delta net or of the small kernel alone. */
static double time_of(struct bench *b, const struct bench_case *k, bool delta) {
    backend *be = &b->c->base;
    cudaEvent_t begin, end;
    const uint32_t n = k->n_calls < GRAPH_CALLS && b->n_runs > 1 ? GRAPH_CALLS : k->n_calls;
    err e = {0};
    float ms = 0;
    static uint64_t key;
    be_need(cudaEventCreateWithFlags(&begin, cudaEventDefault) == 0, "an event");
    be_need(cudaEventCreateWithFlags(&end, cudaEventDefault) == 0, "an event");
    key++;
    for (int i = -1; i < b->n_runs; i++) {
        if (i == 0) be_need(cudaEventRecord(begin, b->c->stream) == 0, "an event");
        const int rc = cuda_capture_begin(be, key, &e);
        for (uint32_t call = 0; rc == 0 && call < n; call++)
            enqueue(b, k, call % k->n_calls, delta);
        if (rc == 0) be_need(cuda_capture_end(be, &e) == 0, e.msg);
        be_need(cuda_graph_launch(be, &e) == 0, e.msg);
    }
    be_need(cudaEventRecord(end, b->c->stream) == 0, "an event");
    be_need(cuda_sync(be, &e) == 0, e.msg);
    be_need(cudaEventElapsedTime(&ms, begin, end) == 0, "an event");
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return (double)ms * 1e3 / b->n_runs / n;
}

/* FNV-1a, a word at a time, of buf's first n floats. */
static uint64_t add_sum(struct bench *b, uint64_t sum, const backend_buf *buf, uint64_t n) {
    float *x = be_new(n, sizeof *x);
    be_get(&b->c->base, buf, x, n);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, x + i, sizeof word);
        sum = (sum ^ word) * UINT64_C(0x100000001b3);
    }
    free(x);
    return sum;
}

static void bench(struct bench *b, uint32_t n_seqs, bool ends) {
    struct bench_case k = {.n_seqs = n_seqs, .ends = ends};
    const uint64_t cols = (uint64_t)shape.n_v_heads * shape.v_dim;
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    case_new(b, &k);
    const uint32_t n_blocks = k.n_calls * n_seqs;
    const double small = time_of(b, &k, false), us = time_of(b, &k, true) - small;
    for (uint32_t c = 0; c < k.n_calls; c++)
        sum = add_sum(b, sum, k.out[c], n_seqs * cols);
    sum = add_sum(b, sum, k.blocks,
                  (n_blocks < SUMMED_BLOCKS ? n_blocks : SUMMED_BLOCKS) *
                      backend_state_block_bytes(&shape) / sizeof(float));
    printf("%3u sequences%s: %7.2f us (and %.2f us of a small kernel)  %7.1f GB/s of states  "
           "checksum %016llx\n",
           n_seqs, ends ? " at a boundary" : "              ", us, small,
           (double)n_seqs * (double)cols * shape.k_dim * sizeof(float) / us * 1e-3,
           (unsigned long long)sum);
    fflush(stdout);
    case_free(&k);
}

int main(int argc, char **argv) {
    static const uint32_t n_seqs[] = {1, 4, 8, 12, 32, 128};
    be_args(argc, argv);
    struct bench b = {.n_runs = be_quick ? 1 : 20};
    open_bench(&b);
    for (uint32_t i = 0; i < (be_quick ? 2 : sizeof n_seqs / sizeof *n_seqs); i++)
        bench(&b, n_seqs[i], false);
    bench(&b, be_quick ? 1 : 32, true);
    close_bench(&b);
    return 0;
}
