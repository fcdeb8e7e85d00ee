/* bench_gemm.c - products of many rows on a GPU: every path that can compute one, its time, and
 * whether it gives the bits of the first path. Weights are random bytes, several copies in turn,
 * so that they do not stay in L2.
 *
 * usage: bench_gemm [quick]     quick: small shapes once, for the simulator */
#include "tests/cuda/bench_product.h"

static const struct product_shape full[] = {{1024, 4096, false},
                                            {4096, 4096, false},
                                            {6144, 4096, false},
                                            {28672, 4096, true},
                                            {4096, 14336, false}};

enum way {
    WAY_TILE_SMALL,
    WAY_TILE_LARGE,
    WAY_TILE,
    WAY_WGMMA_SMALL,
    WAY_WGMMA_LARGE,
    WAY_LARGE,
    N_WAYS
};
static const char *const way_names[] = {"tile 64x64",  "tile 128x128",  "tile (chosen)",
                                        "wgmma 64x64", "wgmma 256x128", "cuBLASLt"};

/* false: this path cannot compute it. */
static bool run(struct cuda_backend *c, const struct cuda_product *p, enum way way) {
    int rc = 0;
    c->n_launches_tile = 0; /* no overlap between runs */
    if (way == WAY_LARGE) {
        c->force.path = CUDA_PATH_LARGE;
        bool done = cuda_large_product(c, p, &rc);
        c->force.path = CUDA_PATH_AUTO;
        if (!done) return false;
        need(rc, "cuBLASLt");
        return true;
    }
    if (way == WAY_TILE) {
        need(cuda_tile_product(c, p), "tile");
        return true;
    }
    if (way == WAY_WGMMA_SMALL || way == WAY_WGMMA_LARGE) {
        struct cuda_tile_kernel k = cuda_product_wgmma_kernel(p->w->format, way == WAY_WGMMA_LARGE);
        if (!k.kernel || c->features.sm != 90) return false;
        rc = cuda_wgmma_launch(c, p, &k);
        if (rc && rc != ERR_UNSUPPORTED) need(rc, "wgmma");
        return rc == 0;
    }
    struct cuda_tile_kernel k = cuda_product_tile_kernel(p->w->format, way == WAY_TILE_LARGE);
    if (2 * (uint32_t)k.stage_bytes > c->features.shared) return false;
    need(cuda_tile_launch(c, p, &k), "tile");
    return true;
}

/* Microseconds. */
static double time_of(struct cuda_backend *c, const struct cuda_product *products, uint32_t n,
                      enum way way, int n_runs) {
    cudaEvent_t begin, end;
    float ms = 0;
    need((int)cudaEventCreateWithFlags(&begin, cudaEventDefault), "an event");
    need((int)cudaEventCreateWithFlags(&end, cudaEventDefault), "an event");
    for (uint32_t i = 0; i < n; i++)
        run(c, &products[i], way);
    need((int)cudaEventRecord(begin, c->stream), "an event");
    for (int i = 0; i < n_runs; i++)
        run(c, &products[(uint32_t)i % n], way);
    need((int)cudaEventRecord(end, c->stream), "an event");
    need((int)cudaStreamSynchronize(c->stream), "a product");
    need((int)cudaEventElapsedTime(&ms, begin, end), "an event");
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return (double)ms * 1e3 / n_runs;
}

struct bench {
    struct cuda_backend *c;
    const struct product_shape *shape;
    int at; /* of formats */
    struct cuda_weight w[MOST_COPIES], pair[MOST_COPIES];
    uint32_t n;
    float *y, *got, *want;
    int n_runs;
};

static bool bench_rows(struct bench *b, uint32_t n_rows) {
    uint32_t n_out = (uint32_t)b->w[0].base.n_out;
    size_t bytes = (size_t)n_rows * n_out * 4;
    struct cuda_product p[MOST_COPIES];
    bool first = true, same = true;
    for (uint32_t i = 0; i < b->n; i++)
        p[i] = (struct cuda_product){.w = &b->w[i],
                                     .pair = b->shape->pair ? &b->pair[i] : NULL,
                                     .act = b->shape->pair ? BACKEND_ACT_SILU : BACKEND_ACT_NONE,
                                     .n_rows = n_rows,
                                     .y = b->y};
    for (int way = 0; way < N_WAYS; way++) {
        need((int)cudaMemset(b->y, 0xff, bytes), "memory");
        if (!run(b->c, &p[0], (enum way)way)) continue;
        need((int)cudaStreamSynchronize(b->c->stream), "a product");
        need((int)cudaMemcpy(b->got, b->y, bytes, cudaMemcpyDeviceToHost), "a copy");
        if (first) memcpy(b->want, b->got, bytes);
        bool equal = memcmp(b->want, b->got, bytes) == 0;
        first = false, same = same && equal;
        double us = time_of(b->c, p, b->n, (enum way)way, b->n_runs);
        double flops = 2.0 * n_rows * b->shape->n_out * b->shape->n_in;
        double weights = (double)b->w[0].expert_bytes * (b->shape->pair ? 2 : 1);
        printf("%-7s %5u x %5u%s %5u rows  %-14s %9.1f us %7.1f TFLOP/s %7.1f GB/s  %s\n",
               formats[b->at].name, b->shape->n_out, b->shape->n_in,
               b->shape->pair ? " pair" : "     ", n_rows, way_names[way], us, flops / us * 1e-6,
               weights / us * 1e-3, equal ? "same bits" : "OTHER BITS");
        fflush(stdout);
    }
    return same;
}

static bool bench_shape(struct bench *b, bool quick) {
    static const uint32_t rows[] = {33, 64, 128, 256, 512, 2048}, few_rows[] = {33, 70};
    const struct product_shape *s = b->shape;
    uint32_t n_out = s->pair ? s->n_out / 2 : s->n_out;
    bool same = true;
    b->n = 0;
    do {
        b->w[b->n] = weight_new(b->c, formats[b->at].format, n_out, s->n_in);
        if (s->pair) b->pair[b->n] = weight_new(b->c, formats[b->at].format, n_out, s->n_in);
        cuda_tune_weight(b->c, &b->w[b->n++]);
    } while (!quick && b->n < MOST_COPIES && b->n * b->w[0].expert_bytes < COPIES_BYTES);
    fill_input(b->c, s->n_in);
    for (uint32_t i = 0; i < (quick ? 2 : sizeof rows / sizeof rows[0]); i++)
        same = bench_rows(b, quick ? few_rows[i] : rows[i]) && same;
    for (uint32_t i = 0; i < b->n; i++) {
        cuda_memory_free(b->c, (void *)(uintptr_t)b->w[i].product, b->w[i].expert_bytes);
        if (s->pair)
            cuda_memory_free(b->c, (void *)(uintptr_t)b->pair[i].product, b->pair[i].expert_bytes);
    }
    return same;
}

int main(int argc, char **argv) {
    bool quick = argc > 1 && strcmp(argv[1], "quick") == 0, same = true;
    struct backend_config config = {.name = "cuda", .max_rows = MAX_ROWS, .max_cols = MAX_COLS};
    struct bench b = {.n_runs = quick ? 1 : 20};
    backend *be;
    err e = {0};
    log_set_sink(print_log, NULL, LOG_LEVEL_DEBUG);
    if (backend_cuda_open(&config, &be, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    b.c = cuda_of(be);
    /* Allocates what linear.c allocates. */
    if (!cuda_scratch(b.c, CUDA_SCRATCH_IN16))
        need(cuda_scratch_new(b.c, CUDA_SCRATCH_IN16, (uint64_t)MAX_ROWS * MAX_COLS * 2, &e) ||
                 cuda_scratch_new(b.c, CUDA_SCRATCH_IN_SCALE, MAX_ROWS * 4, &e),
             "memory");
    if (!cuda_scratch(b.c, CUDA_SCRATCH_PAIR)) need(cuda_large_scratch(b.c, &config, &e), "memory");
    const size_t y_bytes = (size_t)MAX_ROWS * MAX_COLS * 4;
    void *y = NULL;
    need(cuda_memory_new(b.c, y_bytes, &y, &e), "memory");
    b.y = y, b.got = malloc(y_bytes), b.want = malloc(y_bytes);
    need(b.got && b.want ? 0 : -1, "memory");
    for (b.at = 0; b.at < N_FORMATS; b.at++)
        for (uint32_t i = 0;
             i < (quick ? sizeof few / sizeof few[0] : sizeof full / sizeof full[0]); i++) {
            b.shape = quick ? &few[i] : &full[i];
            same = bench_shape(&b, quick) && same;
        }
    cuda_memory_free(b.c, y, y_bytes);
    free(b.got), free(b.want);
    backend_close(be);
    printf("%s\n", same ? "all ways give the same bits" : "SOME WAYS DIFFER");
    return same ? 0 : 1;
}
