/* bench_linear.c - products of few rows on a GPU: their share of the memory bandwidth, alone and
 * each after the kernel that computes its input, in a CUDA graph; the best number of tiles per
 * block and of ring stages; whether the bits are those of the kernel for many rows. * usage:
 * bench_linear [quick | sweep]     quick: small shapes once, for the simulator; sweep: also the
 * best tiles and stages */
#include "tests/cuda/bench_product.h"

static const struct product_shape full[] = {
    {4096, 4096, false},  {6144, 4096, false}, {28672, 4096, true}, {4096, 14336, false},
    {32000, 4096, false}, {2048, 2048, false}, {11264, 2048, true}, {2048, 5632, false}};
static const uint32_t full_rows[] = {1, 8, 16, 32}, few_rows[] = {1, 3, 11, 32};

struct bench {
    struct cuda_backend *c;
    const struct product_shape *shape;
    const char *format;
    struct cuda_weight w[MOST_COPIES], pair[MOST_COPIES];
    struct cuda_product p[MOST_COPIES];
    uint32_t n, n_rows;
    backend_buf *x;
    float *y, *got, *want;
    int n_runs;
    uint64_t key;
};

static void launch(struct bench *b, uint32_t i, bool with_input) {
    const struct op_input in = {.x = b->x};
    if (with_input)
        need(cuda_input(b->c, &in, b->n_rows, b->shape->n_in, cuda_in_of(&b->w[0].base), NULL),
             "input");
    need(cuda_product(b->c, &b->p[i]), "product");
}

/* Microseconds of a product in a step of many. */
static double time_of(struct bench *b, bool with_input) {
    backend *be = &b->c->base;
    cudaEvent_t begin, end;
    float ms = 0;
    err e;
    uint32_t n = b->n * (b->n < 16 ? 16 / b->n : 1);
    need(cuda_capture_begin(be, ++b->key, &e), "recording");
    for (uint32_t i = 0; i < n; i++)
        launch(b, i % b->n, with_input);
    need(cuda_capture_end(be, &e), "recording");
    need(cuda_graph_launch(be, &e), "a step");
    need((int)cudaEventCreateWithFlags(&begin, cudaEventDefault), "an event");
    need((int)cudaEventCreateWithFlags(&end, cudaEventDefault), "an event");
    need((int)cudaEventRecord(begin, b->c->stream), "an event");
    for (int i = 0; i < b->n_runs; i++) {
        need(cuda_capture_begin(be, b->key, &e) == 1 ? 0 : -1, "a recording");
        need(cuda_graph_launch(be, &e), "a step");
    }
    need((int)cudaEventRecord(end, b->c->stream), "an event");
    need((int)cudaStreamSynchronize(b->c->stream), "a step");
    need((int)cudaEventElapsedTime(&ms, begin, end), "an event");
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return (double)ms * 1e3 / b->n_runs / n;
}

static double weight_bytes(const struct bench *b) {
    return (double)b->w[0].expert_bytes * (b->shape->pair ? 2 : 1);
}

static void sweep(struct bench *b) {
    static const uint32_t tiles[] = {1, 2, 4, 8}, stages[] = {3, 4, 6, 8};
    printf("   ");
    for (size_t t = 0; t < sizeof tiles / sizeof tiles[0]; t++)
        for (size_t s = 0; s < sizeof stages / sizeof stages[0]; s++) {
            b->c->force.block_tiles = tiles[t], b->c->force.n_stages = stages[s];
            double us = time_of(b, false);
            printf(" %ux%u %.1f", tiles[t], stages[s], us);
        }
    b->c->force = (struct cuda_force){0};
    printf("\n");
}

static bool bench_rows(struct bench *b, bool sweeps) {
    uint32_t n_out = (uint32_t)b->w[0].base.n_out;
    size_t bytes = (size_t)b->n_rows * n_out * 4;
    for (uint32_t i = 0; i < b->n; i++)
        b->p[i] = (struct cuda_product){.w = &b->w[i],
                                        .pair = b->shape->pair ? &b->pair[i] : NULL,
                                        .act = b->shape->pair ? BACKEND_ACT_SILU : BACKEND_ACT_NONE,
                                        .n_rows = b->n_rows,
                                        .y = b->y};
    need(cuda_tile_product(b->c, &b->p[0]), "tile");
    need((int)cudaStreamSynchronize(b->c->stream), "tile");
    need((int)cudaMemcpy(b->want, b->y, bytes, cudaMemcpyDeviceToHost), "a copy");
    need((int)cudaMemset(b->y, 0xff, bytes), "memory");
    launch(b, 0, false);
    need((int)cudaStreamSynchronize(b->c->stream), "a product");
    need((int)cudaMemcpy(b->got, b->y, bytes, cudaMemcpyDeviceToHost), "a copy");
    bool same = memcmp(b->want, b->got, bytes) == 0;
    double us = time_of(b, false), both = time_of(b, true);
    printf("%-7s %5u x %5u%s %2u rows %7.1f us %7.1f GB/s   with input %7.1f us  %s\n", b->format,
           b->shape->n_out, b->shape->n_in, b->shape->pair ? " pair" : "     ", b->n_rows, us,
           weight_bytes(b) / us * 1e-3, both, same ? "same bits" : "OTHER BITS");
    if (sweeps) sweep(b);
    fflush(stdout);
    return same;
}

static bool bench_shape(struct bench *b, int format, bool quick, bool sweeps) {
    const struct product_shape *s = b->shape;
    uint32_t n_out = s->pair ? s->n_out / 2 : s->n_out;
    bool same = true;
    b->n = 0;
    do {
        b->w[b->n] = weight_new(b->c, format, n_out, s->n_in);
        if (s->pair) b->pair[b->n] = weight_new(b->c, format, n_out, s->n_in);
        b->n++;
    } while (!quick && b->n < MOST_COPIES && b->n * weight_bytes(b) < COPIES_BYTES);
    for (uint32_t i = 0; i < sizeof full_rows / sizeof full_rows[0]; i++) {
        fill_input(b->c, s->n_in);
        b->n_rows = quick ? few_rows[i] : full_rows[i];
        same = bench_rows(b, sweeps) && same;
    }
    for (uint32_t i = 0; i < b->n; i++) {
        cuda_memory_free(b->c, (void *)(uintptr_t)b->w[i].product, b->w[i].expert_bytes);
        if (s->pair)
            cuda_memory_free(b->c, (void *)(uintptr_t)b->pair[i].product, b->pair[i].expert_bytes);
    }
    return same;
}

int main(int argc, char **argv) {
    bool quick = argc > 1 && strcmp(argv[1], "quick") == 0, same = true;
    bool sweeps = argc > 1 && strcmp(argv[1], "sweep") == 0;
    struct backend_config config = {.name = "cuda", .max_rows = MAX_ROWS, .max_cols = MAX_COLS};
    struct bench b = {.n_runs = quick ? 1 : 8};
    const size_t y_bytes = (size_t)32 * 32768 * 4;
    void *y = NULL;
    backend *be;
    err e = {0};
    log_set_sink(print_log, NULL, LOG_LEVEL_DEBUG);
    if (backend_cuda_open(&config, &be, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    b.c = cuda_of(be);
    need(cuda_memory_new(b.c, y_bytes, &y, &e), "memory");
    need(cuda_buf_new(be, (uint64_t)32 * MAX_COLS * 4, &b.x, &e), "memory");
    b.y = y, b.got = malloc(y_bytes), b.want = malloc(y_bytes);
    need(b.got && b.want ? 0 : -1, "memory");
    for (int f = 0; f < N_FORMATS; f++)
        for (uint32_t i = 0;
             i < (quick ? sizeof few / sizeof few[0] : sizeof full / sizeof full[0]); i++) {
            b.shape = quick ? &few[i] : &full[i];
            b.format = formats[f].name;
            same = bench_shape(&b, formats[f].format, quick, sweeps) && same;
        }
    cuda_memory_free(b.c, y, y_bytes);
    backend_buf_free(b.x);
    free(b.got), free(b.want);
    backend_close(be);
    printf("%s\n", same ? "the bits of the kernel for many rows" : "SOME DIFFER");
    return same ? 0 : 1;
}
