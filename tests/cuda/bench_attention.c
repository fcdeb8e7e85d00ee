/* bench_attention.c - paged attention on a GPU: bytes of K and V per second in decode, with blocks
 * in random order and contiguous; operations per second in prefill; the store of K and V, alone and
 * in one launch with attention; latent rows (multi-head latent attention) of 576 dimensions; wide
 * heads, of 256 and 512. 32 query heads unless it says otherwise, blocks of 16 tokens. Runs a CUDA
 * graph of many calls, each over different blocks, so that data comes from memory and launches cost
 * no time. usage: bench_attention [quick|all|latent|wide|short]     quick: small shapes once, for
 * the simulator; all: every type and size; latent, wide: only latent rows, only wide heads; short:
 * the microseconds by which attention with its store extends a decode step of one or a few
 * sequences */
#include "core/backend/cuda/ops_int.h"
#include "core/base/log.h"
#include "tests/support/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 32, BLOCK = 16, CALLS = 16, MAX_CALLS = 160, MAX_ROWS = 8192, MAX_DIM = 128 };
#define APART_BYTES (UINT64_C(256) << 20) /* of K and V between two reads of one block */

static void need(int rc, const char *what) {
    if (rc == 0) return;
    fprintf(stderr, "%s: error %d\n", what, rc);
    exit(1);
}

static struct rng rng = {88172645463325252u};

static backend_buf *buf_new(struct cuda_backend *c, uint64_t bytes) {
    backend_buf *buf = NULL;
    err e = {0};
    need(cuda_buf_new(&c->base, bytes, &buf, &e), "memory");
    return buf;
}

static backend_buf *filled(struct cuda_backend *c, uint64_t bytes, int byte) {
    backend_buf *buf = buf_new(c, bytes);
    need((int)cudaMemset(cuda_at(buf), byte, bytes), "a fill");
    return buf;
}

/* Uploads n words; frees them on the host. */
static backend_buf *words_new(struct cuda_backend *c, int32_t *words, uint64_t n) {
    backend_buf *buf = buf_new(c, n * sizeof *words);
    err e = {0};
    need(cuda_upload(&c->base, buf, 0, words, n * sizeof *words, &e), "an upload");
    need(cuda_sync(&c->base, &e), "an upload");
    free(words);
    return buf;
}

struct bench {
    struct cuda_backend *c;
    double copy; /* bytes per second of a copy, reads and writes together */
    int n_runs;
    backend_buf *q, *out, *k, *v, *inv_freq;
};

enum what { ATTENTION = 1, STORE = 2 };

struct bench_case {
    int what; /* of enum what */
    int type;
    uint32_t kv_heads, dim;
    uint32_t n_seqs, rows, context; /* rows of each sequence, the last of its positions */
    bool shuffled;
    uint32_t max_context; /* that a graph is captured for; 0: context */
    uint32_t heads;       /* 0: HEADS */
    uint32_t v_dim;       /* not 0: latent rows */
};

static uint32_t heads_of(const struct bench_case *k) {
    return k->heads ? k->heads : HEADS;
}

/* One call's tables, positions, slots and beginnings of sequences. */
struct call {
    backend_buf *tables, *pos, *slots, *row_start;
};

static uint32_t blocks_of(const struct bench_case *k) {
    uint32_t most = k->max_context > k->context ? k->max_context : k->context;
    return (most + BLOCK - 1) / BLOCK;
}

static int32_t *words(uint64_t n) {
    int32_t *w = malloc((size_t)n * sizeof *w);
    need(w ? 0 : -1, "memory");
    return w;
}

static struct call call_new(struct cuda_backend *c, const struct bench_case *k, uint32_t first) {
    uint32_t per_seq = blocks_of(k), n = per_seq * k->n_seqs, n_rows = k->n_seqs * k->rows;
    int32_t *tables = words(n), *pos = words(n_rows), *slots = words(n_rows),
            *start = words(k->n_seqs + 1);
    for (uint32_t i = 0; i < n; i++)
        tables[i] = (int32_t)(first + i);
    for (uint32_t i = n - 1; k->shuffled && i > 0; i--) {
        uint32_t j = rng_below(&rng, i + 1);
        int32_t keep = tables[i];
        tables[i] = tables[j], tables[j] = keep;
    }
    for (uint32_t i = 0; i < n_rows; i++) {
        pos[i] = (int32_t)(k->context - k->rows + i % k->rows);
        slots[i] =
            tables[i / k->rows * per_seq + (uint32_t)pos[i] / BLOCK] * BLOCK + pos[i] % BLOCK;
    }
    for (uint32_t i = 0; i <= k->n_seqs; i++)
        start[i] = (int32_t)(i * k->rows);
    return (struct call){.tables = words_new(c, tables, n),
                         .pos = words_new(c, pos, n_rows),
                         .slots = words_new(c, slots, n_rows),
                         .row_start = words_new(c, start, k->n_seqs + 1)};
}

static void call_free(struct call *call) {
    cuda_buf_free(call->tables);
    cuda_buf_free(call->pos);
    cuda_buf_free(call->slots);
    cuda_buf_free(call->row_start);
}

/* One call's ops. */
static void enqueue(struct bench *b, const struct bench_case *k, const struct backend_kv *kv,
                    const struct call *call) {
    const struct op_rope_store store = {.q = b->q,
                                        .k = b->k,
                                        .v = k->v_dim ? NULL : b->v,
                                        .pos = call->pos,
                                        .slots = call->slots,
                                        .inv_freq = b->inv_freq,
                                        .n_rows = k->n_seqs * k->rows,
                                        .n_heads = heads_of(k),
                                        .n_rot = k->dim - k->v_dim,
                                        .interleaved = true,
                                        .kv = *kv};
    const struct op_paged_attention attention = {.q = b->q,
                                                 .pos = call->pos,
                                                 .row_start = call->row_start,
                                                 .tables = call->tables,
                                                 .n_rows = k->n_seqs * k->rows,
                                                 .n_seqs = k->n_seqs,
                                                 .n_heads = heads_of(k),
                                                 .table_stride = blocks_of(k),
                                                 .max_context =
                                                     k->max_context ? k->max_context : k->context,
                                                 .scale = 0.08838834764f,
                                                 .kv = *kv,
                                                 .out = b->out};
    if (k->what == STORE)
        need(cuda_rope_store(&b->c->base, &store), "a store");
    else if (k->what == ATTENTION)
        need(cuda_paged_attention(&b->c->base, &attention), "attention");
    else
        need(cuda_store_attend(&b->c->base, &(struct op_store_attend){store, attention}), "both");
}

/* Microseconds of one call. */
static double time_of(struct bench *b, const struct bench_case *k, const struct backend_kv *kv,
                      const struct call *calls, uint32_t n_calls) {
    struct cuda_backend *c = b->c;
    uint32_t n = n_calls < CALLS && b->n_runs > 1 ? CALLS : n_calls;
    cudaEvent_t begin, end;
    err e = {0};
    float ms = 0;
    static uint64_t key;
    need((int)cudaEventCreateWithFlags(&begin, cudaEventDefault), "an event");
    need((int)cudaEventCreateWithFlags(&end, cudaEventDefault), "an event");
    key++;
    for (int i = -1; i < b->n_runs; i++) {
        if (i == 0) need((int)cudaEventRecord(begin, c->stream), "an event");
        int rc = cuda_capture_begin(&c->base, key, &e);
        for (uint32_t j = 0; rc == 0 && j < n; j++)
            enqueue(b, k, kv, &calls[j % n_calls]);
        if (rc == 0) need(cuda_capture_end(&c->base, &e), "recording");
        need(cuda_graph_launch(&c->base, &e), "a run");
    }
    need((int)cudaEventRecord(end, c->stream), "an event");
    need(cuda_sync(&c->base, &e), "attention");
    need((int)cudaEventElapsedTime(&ms, begin, end), "an event");
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return (double)ms * 1e3 / b->n_runs / n;
}

static void print_case(const struct bench *b, const struct bench_case *k, double us,
                       double kv_bytes) {
    static const char *const names[] = {"", "attention", "store", "store+attention"};
    double rows = (double)k->rows, keys = (double)k->context - (rows - 1) / 2;
    const uint32_t v_dim = k->v_dim ? k->v_dim : k->dim;
    printf("%-15s %-5s dim %3u heads %u/%u, %4u x %5u rows, context %6u of %5u, %-9s %9.1f us",
           names[k->what], qtype_name(k->type), k->dim, heads_of(k), k->kv_heads, k->n_seqs,
           k->rows, k->context, blocks_of(k) * BLOCK, k->shuffled ? "shuffled" : "in a row", us);
    if (k->what & ATTENTION && k->rows == 1) {
        printf("  %7.1f GB/s", kv_bytes / us * 1e-3);
        if (b->copy > 0) printf("  %5.1f %% of a copy", 100 * kv_bytes / us * 1e6 / b->copy);
    }
    if (k->what & ATTENTION && (k->rows > 1 || k->v_dim))
        printf("  %7.1f TFLOP/s",
               2.0 * k->n_seqs * rows * keys * heads_of(k) * (k->dim + v_dim) / us * 1e-6);
    printf("\n");
    fflush(stdout);
}

static void bench(struct bench *b, const struct bench_case *k) {
    struct call calls[MAX_CALLS];
    uint32_t per_call = blocks_of(k) * k->n_seqs, n = 0;
    const uint32_t n_pools = k->v_dim ? 1 : 2;
    struct backend_kv kv = {.kv_type = k->type,
                            .n_kv_heads = k->kv_heads,
                            .block_tokens = BLOCK,
                            .head_dim = k->dim,
                            .v_dim = k->v_dim};
    uint64_t block_bytes;
    need(backend_kv_block_bytes(&kv, &block_bytes) ? 0 : -1, "a cache");
    const uint64_t read = n_pools * block_bytes * ((k->context + BLOCK - 1) / BLOCK) * k->n_seqs;
    do
        calls[n] = call_new(b->c, k, n * per_call);
    while (++n < (b->n_runs > 1 ? MAX_CALLS : 2) && n * read < APART_BYTES);
    kv.n_blocks = n * per_call;
    kv.k = filled(b->c, kv.n_blocks * block_bytes, 0x2c);
    if (n_pools > 1) kv.v = filled(b->c, kv.n_blocks * block_bytes, 0x2c);
    need((int)cudaDeviceSynchronize(), "a fill");
    print_case(b, k, time_of(b, k, &kv, calls, n), (double)read);
    cuda_buf_free(kv.k);
    if (n_pools > 1) cuda_buf_free(kv.v);
    while (n)
        call_free(&calls[--n]);
}

/* Decode: the sizes of the project's speed goals. */
static void bench_decode(struct bench *b, bool quick) {
    static const struct {
        uint32_t n_seqs, context;
    } sizes[] = {{1, 200}, {1, 4096}, {32, 600}, {32, 4096}, {128, 600}};
    static const struct {
        uint32_t dim, kv_heads;
    } shapes[] = {{128, 8}, {128, 4}, {64, 8}, {64, 4}};
    static const int types[] = {QTYPE_F16, QTYPE_Q8_0};
    for (uint32_t s = 0; s < 4; s++)
        for (uint32_t t = 0; t < 2; t++)
            for (uint32_t i = 0; i < (quick ? 1 : 5); i++)
                for (int shuffled = 0; shuffled < (s == 0 ? 2 : 1); shuffled++)
                    bench(b, &(struct bench_case){.what = ATTENTION,
                                                  .type = types[t],
                                                  .kv_heads = shapes[s].kv_heads,
                                                  .dim = shapes[s].dim,
                                                  .n_seqs = sizes[i].n_seqs,
                                                  .rows = 1,
                                                  .context = sizes[i].context,
                                                  .shuffled = shuffled});
}

/* The store alone, of a decode step and of a prompt, and in one launch with attention, as in a
 * decode step's layers. */
static void bench_store(struct bench *b, bool quick) {
    static const struct {
        int what;
        uint32_t n_seqs, rows, context, max_context;
    } cases[] = {{STORE, 1, 1, 200, 0},
                 {STORE | ATTENTION, 1, 1, 200, 0},
                 {STORE | ATTENTION, 1, 1, 200, 1024},
                 {STORE | ATTENTION, 1, 1, 200, 8192},
                 {STORE | ATTENTION, 1, 1, 4096, 0},
                 {STORE | ATTENTION, 32, 1, 600, 1024},
                 {STORE | ATTENTION, 128, 1, 600, 1024},
                 {STORE, 32, 1, 600, 0},
                 {STORE, 128, 1, 600, 0},
                 {STORE, 1, 2048, 2048, 0}};
    static const int types[] = {QTYPE_F16, QTYPE_Q8_0};
    for (uint32_t t = 0; t < 2; t++)
        for (uint32_t i = 0; i < (quick ? 3 : sizeof cases / sizeof *cases); i++)
            bench(b, &(struct bench_case){.what = cases[i].what,
                                          .type = types[t],
                                          .kv_heads = 8,
                                          .dim = 128,
                                          .n_seqs = cases[i].n_seqs,
                                          .rows = cases[i].rows,
                                          .context = cases[i].context,
                                          .shuffled = true,
                                          .max_context = cases[i].max_context});
}

static void bench_many(struct bench *b) {
    static const uint32_t batches[] = {1, 8, 32, 128}, contexts[] = {512, 4096, 32768};
    static const int types[] = {QTYPE_F16, QTYPE_BF16, QTYPE_Q8_0};
    for (uint32_t t = 0; t < 3; t++)
        for (uint32_t i = 0; i < 4; i++)
            for (uint32_t j = 0; j < 3; j++)
                bench(b, &(struct bench_case){.what = ATTENTION,
                                              .type = types[t],
                                              .kv_heads = 8,
                                              .dim = 128,
                                              .n_seqs = batches[i],
                                              .rows = 1,
                                              .context = contexts[j],
                                              .shuffled = true});
}

static void bench_prefill(struct bench *b, bool all) {
    static const struct {
        uint32_t rows, context;
    } shapes[] = {{2048, 2048}, {4, 4096}, {8192, 8192}, {512, 4096}, {16, 4096}};
    static const int types[] = {QTYPE_F16, QTYPE_BF16, QTYPE_Q8_0};
    for (uint32_t t = 0; t < 3; t++)
        for (uint32_t i = 0; i < (all ? 5 : 2); i++)
            bench(b, &(struct bench_case){.what = ATTENTION,
                                          .type = types[t],
                                          .kv_heads = 8,
                                          .dim = 128,
                                          .n_seqs = 1,
                                          .rows = shapes[i].rows,
                                          .context = shapes[i].context,
                                          .shuffled = true});
}

/* Latent rows as models in use have them: V2-Lite's 16 heads, GLM-4.7-Flash's 20, and what eight,
 * four and one GPU have of V2's and V3's 128. */
static void bench_latent(struct bench *b, bool quick) {
    static const struct {
        uint32_t heads, n_seqs, rows, context;
        int type;
    } cases[] = {
        {16, 1, 1, 4096, QTYPE_F16},    {16, 1, 1, 32768, QTYPE_F16},
        {16, 8, 1, 2048, QTYPE_F16},    {16, 8, 1, 8192, QTYPE_F16},
        {16, 8, 1, 32768, QTYPE_F16},   {16, 32, 1, 2048, QTYPE_F16},
        {16, 32, 1, 8192, QTYPE_F16},   {16, 32, 1, 32768, QTYPE_F16},
        {16, 64, 1, 4096, QTYPE_F16},   {16, 128, 1, 2048, QTYPE_F16},
        {16, 128, 1, 8192, QTYPE_F16},  {16, 128, 1, 32768, QTYPE_F16},
        {16, 8, 1, 32768, QTYPE_BF16},  {16, 64, 1, 4096, QTYPE_BF16},
        {20, 1, 1, 4096, QTYPE_F16},    {20, 8, 1, 16384, QTYPE_F16},
        {20, 8, 1, 32768, QTYPE_F16},   {20, 64, 1, 4096, QTYPE_F16},
        {20, 8, 1, 32768, QTYPE_BF16},  {32, 8, 1, 32768, QTYPE_F16},
        {128, 8, 1, 2048, QTYPE_F16},   {128, 8, 1, 8192, QTYPE_F16},
        {128, 8, 1, 32768, QTYPE_F16},  {128, 32, 1, 2048, QTYPE_F16},
        {128, 32, 1, 8192, QTYPE_F16},  {128, 32, 1, 32768, QTYPE_F16},
        {128, 128, 1, 2048, QTYPE_F16}, {128, 128, 1, 8192, QTYPE_F16},
        {16, 1, 2048, 2048, QTYPE_F16}, {16, 1, 512, 8192, QTYPE_F16},
        {20, 1, 1024, 4096, QTYPE_F16}, {16, 1, 2048, 2048, QTYPE_BF16},
        {128, 1, 256, 4096, QTYPE_F16},
    };
    for (uint32_t i = 0; i < (quick ? 1 : sizeof cases / sizeof *cases); i++)
        for (uint32_t what = ATTENTION; what <= (ATTENTION | STORE); what += STORE)
            if (what == ATTENTION || i % 8 == 0)
                bench(b, &(struct bench_case){.what = (int)what,
                                              .type = cases[i].type,
                                              .kv_heads = 1,
                                              .dim = 576,
                                              .v_dim = 512,
                                              .heads = cases[i].heads,
                                              .n_seqs = cases[i].n_seqs,
                                              .rows = cases[i].rows,
                                              .context = cases[i].context,
                                              .shuffled = true});
}

/* Wide heads as Gemma 4 has them: 512 in layers without a window, 256 in those with one of 1,024
 * tokens (here the whole context). Heads of 26B-A4B; two cases of 31B's and one of E2B's. */
static void bench_wide(struct bench *b, bool quick) {
    static const struct {
        uint32_t dim, heads, kv_heads, n_seqs, rows, context;
        int type;
    } cases[] = {
        {512, 16, 2, 1, 1, 4096, QTYPE_F16},     {512, 16, 2, 1, 1, 32768, QTYPE_F16},
        {512, 16, 2, 8, 1, 8192, QTYPE_F16},     {512, 16, 2, 32, 1, 4096, QTYPE_F16},
        {512, 16, 2, 128, 1, 2048, QTYPE_F16},   {512, 16, 2, 32, 1, 4096, QTYPE_BF16},
        {512, 16, 2, 1, 1, 4096, QTYPE_Q8_0},    {512, 16, 2, 32, 1, 4096, QTYPE_Q8_0},
        {512, 32, 4, 32, 1, 4096, QTYPE_F16},    {512, 8, 1, 1, 1, 4096, QTYPE_F16},
        {512, 16, 2, 1, 2048, 2048, QTYPE_F16},  {512, 16, 2, 1, 512, 8192, QTYPE_F16},
        {512, 16, 2, 1, 2048, 2048, QTYPE_BF16}, {512, 16, 2, 1, 2048, 2048, QTYPE_Q8_0},
        {512, 32, 4, 1, 2048, 2048, QTYPE_F16},  {256, 16, 8, 1, 1, 1024, QTYPE_F16},
        {256, 16, 8, 32, 1, 1024, QTYPE_F16},    {256, 16, 8, 32, 1, 1024, QTYPE_Q8_0},
        {256, 16, 8, 1, 2048, 2048, QTYPE_F16},
    };
    for (uint32_t i = 0; i < (quick ? 1 : sizeof cases / sizeof *cases); i++)
        bench(b, &(struct bench_case){.what = ATTENTION,
                                      .type = cases[i].type,
                                      .kv_heads = cases[i].kv_heads,
                                      .dim = cases[i].dim,
                                      .heads = cases[i].heads,
                                      .n_seqs = cases[i].n_seqs,
                                      .rows = cases[i].rows,
                                      .context = cases[i].context,
                                      .shuffled = true});
}

/* ---- what attention adds to a step ---- */

/* Layers of models in use: Llama 3 8B, Qwen3.5 35B-A3B, Gemma 3 12B. */
static const struct step_shape {
    uint32_t dim, heads, kv_heads, n_rot;
    bool interleaved, normed;
} step_shapes[] = {
    {128, 32, 8, 128, true, false}, {256, 16, 2, 64, false, true}, {256, 16, 8, 256, false, true}};

enum { STEP_CALLS = 24, STEP_SEQS = 8, STEP_CONTEXT = 4096, STEP_EVICT_BYTES = 96 << 20 };
enum { STEP_QUICK_CALLS = 2, STEP_QUICK_EVICT_BYTES = 1 << 20 };

struct step {
    backend_buf *other, *evicted; /* other: what the kernel before attention writes */
    backend_weight *norm;
    backend_buf *pools[2], *inv_freq;
    struct call other_call; /* of the kernels that evict instructions */
    uint32_t n_calls;
    uint64_t evict_bytes;
};

static backend_buf *random_buf(struct cuda_backend *c, uint64_t n, uint32_t mask, uint32_t bits) {
    int32_t *w = words(n);
    for (uint64_t i = 0; i < n; i++)
        w[i] = (int32_t)((rng_next(&rng) & mask) | bits);
    return words_new(c, w, n);
}

/* f32 of -0.5 .. -0.25 and 0.25 .. 0.5, and of K and V f16 of the same. */
static void step_open(struct bench *b, struct step *s, bool quick) {
    s->n_calls = quick ? STEP_QUICK_CALLS : STEP_CALLS;
    s->evict_bytes = quick ? STEP_QUICK_EVICT_BYTES : STEP_EVICT_BYTES;
    const uint64_t pool = (uint64_t)STEP_SEQS * STEP_CONTEXT * 8 * 256 / 2;
    float norm[256];
    err e = {0};
    for (uint32_t i = 0; i < 256; i++)
        norm[i] = rng_float(&rng, 0.5f, 1.5f);
    const struct backend_weight_desc desc = {.name = "norm",
                                             .type = QTYPE_F32,
                                             .use = BACKEND_USE_VECTOR,
                                             .n_out = 1,
                                             .n_in = 256,
                                             .data = norm};
    need(cuda_weight_new(&b->c->base, &desc, &s->norm, &e), "a weight");
    for (uint32_t i = 0; i < 2; i++)
        s->pools[i] = random_buf(b->c, pool, 0x83ff83ffu, 0x34003400u);
    s->inv_freq = random_buf(b->c, 128, 0x007fffffu, 0x3e000000u);
    s->other = filled(b->c, 4096 * sizeof(float), 0);
    s->evicted = buf_new(b->c, s->evict_bytes);
    backend_buf **const inputs[] = {&b->q, &b->k, &b->v};
    for (uint32_t i = 0; i < 3; i++) {
        cuda_buf_free(*inputs[i]);
        *inputs[i] = random_buf(b->c, UINT64_C(65536), 0x807fffffu, 0x3e800000u);
    }
    s->other_call = call_new(
        b->c, &(struct bench_case){.n_seqs = 1, .rows = 32, .context = 32, .kv_heads = 32}, 0);
}

/* Other kernels' instructions and bytes, as a layer's have them run between two calls. */
static void evict(struct bench *b, const struct step *s) {
    static const struct {
        int type;
        uint32_t dim;
    } kernels[] = {{QTYPE_BF16, 128}, {QTYPE_Q8_0, 128}, {QTYPE_BF16, 64}, {QTYPE_Q8_0, 64}};
    need((int)cudaMemsetAsync(cuda_at(s->evicted), 0, s->evict_bytes, b->c->stream), "a fill");
    b->c->after_other = true;
    for (uint32_t i = 0; i < 4; i++) {
        const struct backend_kv kv = {.kv_type = kernels[i].type,
                                      .n_kv_heads = 16,
                                      .block_tokens = BLOCK,
                                      .head_dim = kernels[i].dim,
                                      .n_blocks = 2,
                                      .k = s->pools[0],
                                      .v = s->pools[1]};
        const struct bench_case k = {.dim = kernels[i].dim, .n_seqs = 1, .rows = 32, .context = 32};
        const struct op_paged_attention a = {.q = b->q,
                                             .pos = s->other_call.pos,
                                             .row_start = s->other_call.row_start,
                                             .tables = s->other_call.tables,
                                             .n_rows = 32,
                                             .n_seqs = 1,
                                             .n_heads = 16,
                                             .table_stride = blocks_of(&k),
                                             .max_context = 32,
                                             .scale = 0.1f,
                                             .kv = kv,
                                             .out = s->evicted};
        need(cuda_paged_attention(&b->c->base, &a), "attention");
    }
}

/* Microseconds of a call's kernels, with attention or without it. */
static double step_time(struct bench *b, const struct step *s, const struct op_store_attend *op,
                        bool cold, bool with) {
    struct cuda_backend *c = b->c;
    static uint64_t key = UINT64_C(1) << 32;
    cudaEvent_t begin, end;
    double best = 1e30;
    err e = {0};
    need((int)cudaEventCreateWithFlags(&begin, cudaEventDefault), "an event");
    need((int)cudaEventCreateWithFlags(&end, cudaEventDefault), "an event");
    key++;
    for (int i = -1; i < b->n_runs; i++) {
        float ms = 0;
        int rc = cuda_capture_begin(&c->base, key, &e);
        for (uint32_t j = 0; rc == 0 && j < s->n_calls; j++) {
            if (cold) evict(b, s);
            need(cuda_gate(&c->base, &(struct op_gate){.x = s->other, .n_rows = 1, .n_cols = 4096}),
                 "a small kernel");
            if (with) need(cuda_store_attend(&c->base, op), "attention");
        }
        if (rc == 0) need(cuda_capture_end(&c->base, &e), "recording");
        need((int)cudaEventRecord(begin, c->stream), "an event");
        need(cuda_graph_launch(&c->base, &e), "a run");
        need((int)cudaEventRecord(end, c->stream), "an event");
        need(cuda_sync(&c->base, &e), "attention");
        need((int)cudaEventElapsedTime(&ms, begin, end), "an event");
        if (i >= 0 && ms < best) best = ms;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return best * 1e3 / s->n_calls;
}

static uint64_t hash_of(const struct bench *b, uint64_t n) {
    uint32_t *w = malloc((size_t)n * sizeof *w);
    uint64_t h = UINT64_C(14695981039346656037);
    need(w ? 0 : -1, "memory");
    need((int)cudaMemcpy(w, cuda_at(b->out), n * sizeof *w, cudaMemcpyDeviceToHost), "a download");
    for (uint64_t i = 0; i < n; i++)
        h = (h ^ w[i]) * UINT64_C(1099511628211);
    free(w);
    return h;
}

static void bench_step(struct bench *b, const struct step *s, const struct step_shape *shape,
                       uint32_t n_seqs, uint32_t context, uint32_t max_context) {
    const struct bench_case k = {.n_seqs = n_seqs,
                                 .rows = 1,
                                 .context = context,
                                 .max_context = max_context,
                                 .shuffled = true};
    struct call call = call_new(b->c, &k, 0);
    const struct backend_kv kv = {.kv_type = QTYPE_F16,
                                  .n_kv_heads = shape->kv_heads,
                                  .block_tokens = BLOCK,
                                  .head_dim = shape->dim,
                                  .n_blocks = n_seqs * blocks_of(&k),
                                  .k = s->pools[0],
                                  .v = s->pools[1]};
    const struct op_store_attend op = {.store = {.q = b->q,
                                                 .k = b->k,
                                                 .v = b->v,
                                                 .pos = call.pos,
                                                 .slots = call.slots,
                                                 .inv_freq = s->inv_freq,
                                                 .q_norm = shape->normed ? s->norm : NULL,
                                                 .k_norm = shape->normed ? s->norm : NULL,
                                                 .eps = 1e-6f,
                                                 .n_rows = n_seqs,
                                                 .n_heads = shape->heads,
                                                 .n_rot = shape->n_rot,
                                                 .interleaved = shape->interleaved,
                                                 .kv = kv},
                                       .attend = {.q = b->q,
                                                  .pos = call.pos,
                                                  .row_start = call.row_start,
                                                  .tables = call.tables,
                                                  .n_rows = n_seqs,
                                                  .n_seqs = n_seqs,
                                                  .n_heads = shape->heads,
                                                  .table_stride = blocks_of(&k),
                                                  .max_context = max_context,
                                                  .scale = 0.08838834764f,
                                                  .kv = kv,
                                                  .out = b->out}};
    double us[2];
    for (int cold = 0; cold < 2; cold++)
        us[cold] = step_time(b, s, &op, cold, true) - step_time(b, s, &op, cold, false);
    printf("dim %3u heads %2u/%u, %u x context %4u of %4u: %6.2f us, after other kernels %6.2f us  "
           "%016llx\n",
           shape->dim, shape->heads, shape->kv_heads, n_seqs, context, max_context, us[0], us[1],
           (unsigned long long)hash_of(b, (uint64_t)n_seqs * shape->heads * shape->dim));
    fflush(stdout);
    call_free(&call);
}

static void bench_steps(struct bench *b, bool quick) {
    static const uint32_t contexts[][2] = {{16, 128},  {100, 128},   {100, 4096},  {200, 256},
                                           {500, 512}, {1000, 1024}, {2048, 2048}, {4096, 4096}};
    struct step s;
    step_open(b, &s, quick);
    for (uint32_t i = 0; i < sizeof step_shapes / sizeof *step_shapes; i++)
        for (uint32_t n_seqs = 1; n_seqs <= (quick ? 1 : STEP_SEQS); n_seqs *= STEP_SEQS)
            for (uint32_t j = 0; j < (quick ? 2 : sizeof contexts / sizeof *contexts); j++)
                bench_step(b, &s, &step_shapes[i], n_seqs, contexts[j][0], contexts[j][1]);
    backend_buf *const bufs[] = {s.other, s.evicted, s.pools[0], s.pools[1], s.inv_freq};
    for (uint32_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        cuda_buf_free(bufs[i]);
    backend_weight_free(s.norm);
    call_free(&s.other_call);
}

int main(int argc, char **argv) {
    bool quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    bool all = argc > 1 && strcmp(argv[1], "all") == 0;
    bool latent = argc > 1 && strcmp(argv[1], "latent") == 0;
    bool wide = argc > 1 && strcmp(argv[1], "wide") == 0, some = latent || wide;
    bool steps = argc > 1 && strcmp(argv[1], "short") == 0;
    struct backend_config config = {.name = "cuda", .max_rows = MAX_ROWS, .max_cols = 64};
    struct bench b = {.n_runs = quick ? 1 : 10};
    const uint64_t row = (uint64_t)HEADS * MAX_DIM * sizeof(float);
    backend *be;
    err e = {0};
    if (backend_cuda_open(&config, &be, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    b.c = cuda_of(be);
    if (!quick) need(cuda_copy_bandwidth(be, &b.copy, &e), "a copy");
    b.q = filled(b.c, MAX_ROWS * row, 0x3c);
    b.out = filled(b.c, MAX_ROWS * row, 0);
    b.k = filled(b.c, MAX_ROWS * row, 0x3c);
    b.v = filled(b.c, MAX_ROWS * row, 0x3c);
    b.inv_freq = filled(b.c, MAX_DIM / 2 * sizeof(float), 0x3c);
    if (b.copy > 0) printf("a copy: %.1f GB/s\n", b.copy * 1e-9);
    if (steps || quick) bench_steps(&b, quick);
    if (!some && !steps) bench_decode(&b, quick);
    if (!some && !steps) bench_store(&b, quick);
    if (all) bench_many(&b);
    if (!quick && !some && !steps) bench_prefill(&b, all);
    if (!wide && !steps) bench_latent(&b, quick);
    if (!latent && !steps) bench_wide(&b, quick);
    backend_buf *const bufs[] = {b.q, b.out, b.k, b.v, b.inv_freq};
    for (uint32_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        cuda_buf_free(bufs[i]);
    be->vt->close(be);
    return 0;
}
