/* bench_linear.c - products of few rows on a GPU: their share of the memory bandwidth, alone and
 * each after the kernel that computes its input, in a CUDA graph; the best number of tiles per
 * block and of ring stages; whether the bits are those of the kernel for many rows.
 *
 * usage: bench_linear [branches] [quick | sweep]
 *   branches  instead, three products of one input (queries, keys, values) with that input, one
 *             after the other and side by side
 *   quick     small shapes once, for the simulator
 *   sweep     also the best tiles and stages */
#include "tests/cuda/bench_product.h"

static const struct product_shape full[] = {
    {4096, 4096, false},  {6144, 4096, false}, {28672, 4096, true}, {4096, 14336, false},
    {32000, 4096, false}, {2048, 2048, false}, {11264, 2048, true}, {2048, 5632, false},
    {4096, 7168, false},  {4096, 2048, false}, {3072, 4096, false}};
enum { MOST_ROWS = 128 };
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
    struct cuda_product three[MOST_COPIES][3]; /* with `branches`, instead of p */
    bool branches;
    int n_runs;
    uint64_t key;
};

static void launch(struct bench *b, uint32_t i, bool with_input) {
    const struct op_input in = {.x = b->x};
    if (with_input)
        need(cuda_input(b->c, &in, b->n_rows, b->shape->n_in, cuda_in_of(&b->w[0].base), NULL),
             "input");
    need(b->branches ? cuda_products(b->c, b->three[i], 3) : cuda_product(b->c, &b->p[i]),
         "product");
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

/* ---- three products of one input ---- */

struct three_shapes {
    uint32_t n_in, n_out[3];
};
static const struct three_shapes full_threes[] = {{4096, {4096, 1024, 1024}},
                                                  {4096, {2048, 512, 512}}},
                                 few_threes[] = {{320, {272, 96, 80}}};

/* Microseconds of the input and its products in a step of many, and whether the bits of both ways
 * agree. */
static bool bench_three_rows(struct bench *b, const struct three_shapes *s) {
    size_t bytes = (size_t)b->n_rows * (s->n_out[0] + s->n_out[1] + s->n_out[2]) * 4;
    double us[2];
    for (uint32_t i = 0; i < b->n; i++) {
        float *y = b->y;
        for (int k = 0; k < 3; y += (size_t)b->n_rows * s->n_out[k], k++)
            b->three[i][k].n_rows = b->n_rows, b->three[i][k].y = y;
    }
    for (int beside = 0; beside < 2; beside++) {
        b->c->force.one_stream = !beside;
        need((int)cudaMemset(b->y, 0xff, bytes), "memory");
        launch(b, 0, true);
        need((int)cudaStreamSynchronize(b->c->stream), "a product");
        need((int)cudaMemcpy(beside ? b->got : b->want, b->y, bytes, cudaMemcpyDeviceToHost),
             "a copy");
        us[beside] = time_of(b, true);
    }
    bool same = memcmp(b->want, b->got, bytes) == 0;
    printf("%-7s %u + %u + %u x %u %3u rows  one stream %7.1f us   side by side %7.1f us  %s\n",
           b->format, s->n_out[0], s->n_out[1], s->n_out[2], s->n_in, b->n_rows, us[0], us[1],
           same ? "same bits" : "OTHER BITS");
    fflush(stdout);
    return same;
}

static bool bench_three(struct bench *b, int format, const struct three_shapes *s, bool quick) {
    static const uint32_t rows[] = {33, 64, 96, 128};
    static struct cuda_weight w[MOST_COPIES][3];
    const struct product_shape shape = {.n_in = s->n_in};
    uint64_t bytes = 0;
    bool same = true;
    b->shape = &shape;
    for (b->n = 0; b->n < MOST_COPIES && (b->n == 0 || (!quick && bytes < COPIES_BYTES)); b->n++)
        for (int k = 0; k < 3; k++) {
            w[b->n][k] = weight_new(b->c, format, s->n_out[k], s->n_in);
            cuda_tune_weight(b->c, &w[b->n][k]);
            b->three[b->n][k] = (struct cuda_product){.w = &w[b->n][k]};
            bytes += w[b->n][k].expert_bytes;
        }
    b->w[0] = w[0][0];
    for (uint32_t i = 0; i < (quick ? 2 : sizeof rows / sizeof rows[0]); i++) {
        b->n_rows = rows[i];
        same = bench_three_rows(b, s) && same;
    }
    for (uint32_t i = 0; i < 3 * b->n; i++)
        cuda_memory_free(b->c, (void *)(uintptr_t)w[i / 3][i % 3].product,
                         w[i / 3][i % 3].expert_bytes);
    return same;
}

static bool bench_threes(struct bench *b, bool quick) {
    const struct three_shapes *s = quick ? few_threes : full_threes;
    size_t n = quick ? sizeof few_threes : sizeof full_threes;
    bool same = true;
    for (int f = 0; f < N_FORMATS; f++)
        for (size_t i = 0; i < n / sizeof *s; i++) {
            b->format = formats[f].name;
            same = bench_three(b, formats[f].format, &s[i], quick) && same;
        }
    return same;
}

static bool bench_shapes(struct bench *b, bool quick, bool sweeps) {
    bool same = true;
    for (int f = 0; f < N_FORMATS; f++)
        for (uint32_t i = 0;
             i < (quick ? sizeof few / sizeof few[0] : sizeof full / sizeof full[0]); i++) {
            b->shape = quick ? &few[i] : &full[i];
            b->format = formats[f].name;
            same = bench_shape(b, formats[f].format, quick, sweeps) && same;
        }
    return same;
}

int main(int argc, char **argv) {
    bool branches = argc > 1 && strcmp(argv[1], "branches") == 0;
    const char *size = argc > 1 + branches ? argv[1 + branches] : "";
    bool quick = strcmp(size, "quick") == 0, sweeps = strcmp(size, "sweep") == 0;
    struct backend_config config = {.name = "cuda", .max_rows = MAX_ROWS, .max_cols = MAX_COLS};
    static struct bench b;
    const size_t y_bytes = (size_t)32 * 32768 * 4;
    void *y = NULL;
    backend *be;
    err e = {0};
    log_set_sink(print_log, NULL, LOG_LEVEL_DEBUG);
    if (backend_cuda_open(&config, &be, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    b.c = cuda_of(be), b.branches = branches, b.n_runs = quick ? 1 : 8;
    need(cuda_memory_new(b.c, y_bytes, &y, &e), "memory");
    need(cuda_buf_new(be, (uint64_t)MOST_ROWS * MAX_COLS * 4, &b.x, &e), "memory");
    b.y = y, b.got = malloc(y_bytes), b.want = malloc(y_bytes);
    need(b.got && b.want ? 0 : -1, "memory");
    const bool same = branches ? bench_threes(&b, quick) : bench_shapes(&b, quick, sweeps);
    cuda_memory_free(b.c, y, y_bytes);
    backend_buf_free(b.x);
    free(b.got), free(b.want);
    backend_close(be);
    printf("%s\n", same ? "the same bits" : "SOME DIFFER");
    return same ? 0 : 1;
}
