/* bench_attention.c - paged attention on a GPU: bytes of K and V a second in decode, with blocks in
 * random order and side by side, and operations a second in prefill. Llama's shape: 32 query heads,
 * 8 KV heads, 128 dimensions, blocks of 16 tokens. A recorded graph of several calls, each over
 * blocks of its own, so that nothing stays in the second-level cache and no launch is waited for.
 *
 * usage: bench_attention [quick]     quick: small shapes once, for the stand-in */
#include "core/backend/cuda/cuda_int.h"
#include "core/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 32, KV_HEADS = 8, DIM = 128, BLOCK = 16, CALLS = 16, MAX_ROWS = 8192 };
#define APART_BYTES (UINT64_C(512) << 20) /* of K and V, after which a block may be read again */

static void need(int rc, const char *what) {
    if (rc == 0) return;
    fprintf(stderr, "%s: error %d\n", what, rc);
    exit(1);
}

static uint32_t random_below(uint32_t n) {
    static uint64_t seed = 88172645463325252u;
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)((seed >> 16) % n);
}

static backend_buf *buf_new(struct cuda_backend *c, uint64_t bytes) {
    backend_buf *buf = NULL;
    err e = {0};
    need(cuda_buf_new(&c->base, bytes, &buf, &e), "memory");
    return buf;
}

struct bench {
    struct cuda_backend *c;
    double copy; /* bytes a second of a copy, both ways together */
    int n_runs;
    backend_buf *q, *out;
};

struct bench_case {
    int type;
    uint32_t n_seqs, rows, context; /* rows of each sequence, the last of its positions */
    bool shuffled;
};

/* One call's tables, positions and beginnings of sequences. */
struct call {
    backend_buf *tables, *pos, *row_start;
};

static struct call call_new(struct cuda_backend *c, const struct bench_case *k, uint32_t first) {
    uint32_t per_seq = (k->context + BLOCK - 1) / BLOCK, n = per_seq * k->n_seqs;
    uint32_t n_rows = k->n_seqs * k->rows;
    int32_t *tables = malloc(n * sizeof *tables), *pos = malloc(n_rows * sizeof *pos),
            *start = malloc((k->n_seqs + 1) * sizeof *start);
    need(tables && pos && start ? 0 : -1, "memory");
    for (uint32_t i = 0; i < n; i++)
        tables[i] = (int32_t)(first + i);
    for (uint32_t i = n - 1; k->shuffled && i > 0; i--) {
        uint32_t j = random_below(i + 1);
        int32_t keep = tables[i];
        tables[i] = tables[j], tables[j] = keep;
    }
    for (uint32_t i = 0; i < n_rows; i++)
        pos[i] = (int32_t)(k->context - k->rows + i % k->rows);
    for (uint32_t i = 0; i <= k->n_seqs; i++)
        start[i] = (int32_t)(i * k->rows);
    struct call call = {.tables = buf_new(c, n * sizeof *tables),
                        .pos = buf_new(c, n_rows * sizeof *pos),
                        .row_start = buf_new(c, (k->n_seqs + 1) * sizeof *start)};
    err e = {0};
    need(cuda_upload(&c->base, call.tables, 0, tables, n * sizeof *tables, &e) ||
             cuda_upload(&c->base, call.pos, 0, pos, n_rows * sizeof *pos, &e) ||
             cuda_upload(&c->base, call.row_start, 0, start, (k->n_seqs + 1) * sizeof *start, &e),
         "an upload");
    free(tables), free(pos), free(start);
    return call;
}

static void call_free(struct call *call) {
    cuda_buf_free(call->tables);
    cuda_buf_free(call->pos);
    cuda_buf_free(call->row_start);
}

/* Microseconds of one call. */
static double time_of(struct bench *b, const struct op_paged_attention *op,
                      const struct call *calls, uint32_t n_calls) {
    struct cuda_backend *c = b->c;
    cudaEvent_t begin, end;
    err e = {0};
    float ms = 0;
    static uint64_t key;
    need((int)cudaEventCreateWithFlags(&begin, cudaEventDefault), "an event");
    need((int)cudaEventCreateWithFlags(&end, cudaEventDefault), "an event");
    key++;
    for (int i = -1; i < b->n_runs; i++) {
        if (i == 0) need((int)cudaEventRecord(begin, c->stream), "an event");
        int rc = cuda_record(&c->base, key, &e);
        for (uint32_t k = 0; rc == 0 && k < CALLS; k++) {
            struct op_paged_attention one = *op;
            one.tables = calls[k % n_calls].tables;
            one.pos = calls[k % n_calls].pos;
            one.row_start = calls[k % n_calls].row_start;
            need(cuda_paged_attention(&c->base, &one), "attention");
        }
        if (rc == 0) need(cuda_record_end(&c->base, &e), "recording");
        need(cuda_run_recorded(&c->base, &e), "a run");
    }
    need((int)cudaEventRecord(end, c->stream), "an event");
    need((int)cudaStreamSynchronize(c->stream), "attention");
    need((int)cudaEventElapsedTime(&ms, begin, end), "an event");
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return (double)ms * 1e3 / b->n_runs / CALLS;
}

static void bench(struct bench *b, const struct bench_case *k) {
    struct call calls[CALLS];
    uint32_t per_call = (k->context + BLOCK - 1) / BLOCK * k->n_seqs, n = 0;
    struct op_paged_attention op = {
        .q = b->q,
        .n_rows = k->n_seqs * k->rows,
        .n_seqs = k->n_seqs,
        .n_heads = HEADS,
        .table_stride = (k->context + BLOCK - 1) / BLOCK,
        .max_context = k->context,
        .scale = 0.08838834764f,
        .out = b->out,
        .kv = {.kv_type = k->type, .n_kv_heads = KV_HEADS, .block_tokens = BLOCK, .head_dim = DIM},
    };
    uint64_t block_bytes;
    need(backend_kv_block_bytes(&op.kv, &block_bytes) ? 0 : -1, "a cache");
    do
        calls[n] = call_new(b->c, k, n * per_call);
    while (++n < CALLS && 2 * n * per_call * block_bytes < APART_BYTES);
    op.kv.n_blocks = n * per_call;
    op.kv.k = buf_new(b->c, op.kv.n_blocks * block_bytes);
    op.kv.v = buf_new(b->c, op.kv.n_blocks * block_bytes);
    need((int)cudaMemset(cuda_at(op.kv.k), 0x2c, op.kv.n_blocks * block_bytes), "a fill");
    need((int)cudaMemset(cuda_at(op.kv.v), 0x2c, op.kv.n_blocks * block_bytes), "a fill");
    double us = time_of(b, &op, calls, n);
    printf("%-5s %4u x %5u rows, context %6u, %-9s %9.1f us", qtype_name(k->type), k->n_seqs,
           k->rows, k->context, k->shuffled ? "shuffled" : "in a row", us);
    if (k->rows == 1) {
        double bytes = 2.0 * (double)per_call * (double)block_bytes;
        printf("  %7.1f GB/s", bytes / us * 1e-3);
        if (b->copy > 0) printf("  %5.1f %% of a copy", 100 * bytes / us * 1e6 / b->copy);
    } else {
        double rows = (double)k->rows, keys = (double)k->context - (rows - 1) / 2;
        printf("  %7.1f TFLOP/s", 4.0 * k->n_seqs * rows * keys * HEADS * DIM / us * 1e-6);
    }
    printf("\n");
    fflush(stdout);
    cuda_buf_free(op.kv.k);
    cuda_buf_free(op.kv.v);
    while (n)
        call_free(&calls[--n]);
}

static void bench_decode(struct bench *b, bool quick) {
    static const uint32_t batches[] = {1, 8, 32, 128}, contexts[] = {512, 4096, 32768};
    static const int types[] = {QTYPE_F16, QTYPE_BF16, QTYPE_Q8_0};
    for (uint32_t t = 0; t < 3; t++)
        for (uint32_t i = 0; i < (quick ? 1 : 4); i++)
            for (uint32_t j = 0; j < (quick ? 1 : 3); j++)
                for (int shuffled = 0; shuffled < 2; shuffled++)
                    bench(b, &(struct bench_case){.type = types[t],
                                                  .n_seqs = batches[i],
                                                  .rows = 1,
                                                  .context = contexts[j],
                                                  .shuffled = shuffled});
}

static void bench_prefill(struct bench *b, bool quick) {
    static const struct {
        uint32_t rows, context;
    } shapes[] = {{2048, 2048}, {8192, 8192}, {512, 4096}, {4, 4096}, {16, 4096}};
    static const int types[] = {QTYPE_F16, QTYPE_BF16, QTYPE_Q8_0};
    for (uint32_t t = 0; t < 3; t++)
        for (uint32_t i = 0; i < (quick ? 0 : 5); i++)
            bench(b, &(struct bench_case){.type = types[t],
                                          .n_seqs = 1,
                                          .rows = shapes[i].rows,
                                          .context = shapes[i].context,
                                          .shuffled = true});
}

int main(int argc, char **argv) {
    bool quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    struct backend_config config = {.name = "cuda", .max_rows = MAX_ROWS, .max_cols = 64};
    struct bench b = {.n_runs = quick ? 1 : 10};
    backend *be;
    err e = {0};
    if (backend_cuda_open(&config, &be, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    b.c = cuda_of(be);
    if (!quick) need(cuda_copy_bandwidth(be, &b.copy, &e), "a copy");
    b.q = buf_new(b.c, (uint64_t)MAX_ROWS * HEADS * DIM * sizeof(float));
    b.out = buf_new(b.c, (uint64_t)MAX_ROWS * HEADS * DIM * sizeof(float));
    need((int)cudaMemset(cuda_at(b.q), 0x3c, (uint64_t)MAX_ROWS * HEADS * DIM * sizeof(float)),
         "a fill");
    if (b.copy > 0) printf("a copy: %.1f GB/s\n", b.copy * 1e-9);
    bench_decode(&b, quick);
    bench_prefill(&b, quick);
    cuda_buf_free(b.q);
    cuda_buf_free(b.out);
    be->vt->close(be);
    return 0;
}
