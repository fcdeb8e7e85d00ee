/* gemm_bench.c - see gemm_bench.h. Best of several runs, because other load only slows a run. */
#include "tests/support/gemm_bench.h"

#include "core/base/clock.h"
#include "tests/support/be.h"

#include <pthread.h>
#include <unistd.h>

enum {
    N_IN = 2048,
    N_K_BLOCKS = N_IN / GEMM_COLS,
    CACHED_PAIRS = 2,
    MEMORY_BYTES = 512 << 20,
    MAX_THREADS = 64,
    REPEATS = 7,
    ACCS = GEMM_ROWS * GEMM_PANELS * GEMM_OUTS
};

/* The memory that a thread reads: n_pairs pairs of panels, by K blocks, the two side by side. */
struct walk {
    const struct gemm_isa *isa;
    int type;
    const uint8_t *w;
    uint64_t n_pairs;
    uint32_t n_rows;
    struct gemm_rows x; /* by K blocks, (N_K_BLOCKS, n_rows, GEMM_COLS) */
    struct gemm_tile *tile;
    float *acc;
    uint64_t sum; /* of the bytes read, so that they are read */
};

static void *aligned(uint64_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    be_need(p != NULL, "memory");
    return p;
}

static void *walk_panels(void *arg) {
    struct walk *b = arg;
    uint64_t k_block = gemm_k_block_bytes(b->type, GEMM_COLS);
    const uint8_t *w = b->w;
    for (uint64_t pair = 0; pair < b->n_pairs; pair++)
        for (uint32_t s = 0; s < N_K_BLOCKS; s++) {
            uint64_t at = (uint64_t)s * b->n_rows;
            struct gemm_job j = {b->type,   b->tile, GEMM_PANELS, b->n_rows,
                                 GEMM_COLS, b->x,    b->acc,      s == 0};
            for (uint32_t p = 0; p < GEMM_PANELS; p++, w += k_block)
                b->isa->unpack(b->type, w, GEMM_COLS, &b->tile[p]);
            j.x.x += at * GEMM_COLS;
            j.x.q[0] += at * GEMM_COLS;
            if (j.x.q[1]) j.x.q[1] += at * GEMM_COLS;
            j.x.blocks += at * GEMM_BLOCKS;
            b->isa->multiply(&j);
        }
    return NULL;
}

/* Only reads. */
static void *walk_memory(void *arg) {
    struct walk *b = arg;
    const uint64_t *w = (const uint64_t *)b->w;
    uint64_t n = b->n_pairs * GEMM_PANELS * gemm_panel_bytes(b->type, N_IN) / 64, sum = 0;
    for (uint64_t i = 0; i < n; i++, w += 8) {
        __builtin_prefetch((const void *)((uintptr_t)w + 8192));
        sum += w[0] ^ w[1] ^ w[2] ^ w[3] ^ w[4] ^ w[5] ^ w[6] ^ w[7];
    }
    b->sum = sum;
    return NULL;
}

/* Random rows, quantized. */
static void make_rows(struct walk *b, uint32_t n_rows, int planes) {
    uint64_t n = (uint64_t)n_rows * N_IN;
    float *x = aligned(n * sizeof *x);
    int8_t *q[2] = {aligned(n), planes == 2 ? aligned(n) : NULL};
    struct gemm_block *blocks = aligned(n / GEMM_BLOCK * sizeof *blocks);
    for (uint64_t i = 0; i < n; i++)
        x[i] = (float)be_rand() * 0x1p-31f - 1;
    b->isa->quantize(x, (uint32_t)n, q, blocks);
    b->n_rows = n_rows;
    b->x = (struct gemm_rows){x, {q[0], q[1]}, blocks, GEMM_COLS, GEMM_COLS, GEMM_BLOCKS};
}

static void free_rows(struct walk *b) {
    free((void *)b->x.x);
    free((void *)b->x.q[0]);
    free((void *)b->x.q[1]);
    free((void *)b->x.blocks);
}

/* Least seconds of one pass over weights in the cache. */
static double time_cached(struct walk *b) {
    uint32_t n = 1 + 800 / b->n_rows;
    double best = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        uint64_t from = clock_now_ns();
        for (uint32_t k = 0; k < n; k++)
            walk_panels(b);
        best = fmin(best, (double)(clock_now_ns() - from) * 1e-9 / n);
    }
    return best;
}

/* Likewise of n threads, each over its own part of the memory. */
static double time_threads(struct walk *b, int n, void *(*walk)(void *)) {
    double best = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        pthread_t threads[MAX_THREADS];
        uint64_t from = clock_now_ns();
        for (int t = 0; t < n; t++)
            be_need(pthread_create(&threads[t], NULL, walk, &b[t]) == 0, "a thread");
        for (int t = 0; t < n; t++)
            pthread_join(threads[t], NULL);
        best = fmin(best, (double)(clock_now_ns() - from) * 1e-9);
    }
    return best;
}

static void bench_cached(struct walk *b, int planes) {
    static const uint32_t rows[] = {1, 2, 4, 8, 32, 128};
    uint64_t pair_bytes = GEMM_PANELS * gemm_panel_bytes(b->type, N_IN);
    b->n_pairs = CACHED_PAIRS;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        make_rows(b, rows[i], planes);
        double s = time_cached(b);
        double ops = 2.0 * rows[i] * N_IN * CACHED_PAIRS * GEMM_PANELS * GEMM_OUTS;
        printf(" %4.0f / %5.1f |", ops / s * 1e-9, CACHED_PAIRS * (double)pair_bytes / s * 1e-9);
        fflush(stdout);
        free_rows(b);
    }
}

static void bench_memory(const struct walk *one, int n, int planes) {
    struct walk b[MAX_THREADS];
    uint64_t pair_bytes = GEMM_PANELS * gemm_panel_bytes(one->type, N_IN);
    uint64_t n_pairs = MEMORY_BYTES / pair_bytes / (uint32_t)n;
    for (int t = 0; t < n; t++) {
        b[t] = *one;
        b[t].w = one->w + (uint32_t)t * n_pairs * pair_bytes;
        b[t].n_pairs = n_pairs;
        b[t].tile = aligned(GEMM_PANELS * sizeof *b[t].tile);
        b[t].acc = aligned(ACCS * sizeof *b[t].acc);
        make_rows(&b[t], 1, planes);
    }
    double bytes = (double)(n_pairs * pair_bytes) * n * 1e-9;
    double product = bytes / time_threads(b, n, walk_panels);
    double read = bytes / time_threads(b, n, walk_memory);
    printf(" %5.1f of %5.1f, %3.0f %% |\n", product, read, 100 * product / read);
    for (int t = 0; t < n; t++) {
        free_rows(&b[t]);
        free(b[t].acc);
        free(b[t].tile);
    }
}

void gemm_bench(const struct gemm_isa *isa, int type, int planes) {
    struct walk b = {.isa = isa,
                     .tile = aligned(GEMM_PANELS * sizeof *b.tile),
                     .acc = aligned(ACCS * sizeof *b.acc)};
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t *w = aligned(MEMORY_BYTES);
    n = n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n;
    for (uint64_t i = 0; i < MEMORY_BYTES / 8; i++) /* no half or float is infinite or NaN */
        w[i] = ((uint64_t)be_rand() << 32 | be_rand()) & 0xbfffbfffbfffbfff;
    b.w = (const uint8_t *)w;
    printf("%s, %d plane%s, %d columns, GOP/s and GB/s of weights by rows; at the end a row over "
           "%d MB with %ld threads\n\n",
           isa->name, planes, planes == 1 ? "" : "s", N_IN, MEMORY_BYTES >> 20, n);
    printf("| type | 1 | 2 | 4 | 8 | 32 | 128 | GB/s of read bandwidth |\n|---|---|---|---|---|---|"
           "---|---|\n");
    for (b.type = 0; b.type < 64; b.type++) {
        if (!gemm_has_type(b.type) || (type >= 0 && type != b.type)) continue;
        printf("| %s |", qtype_name(b.type));
        bench_cached(&b, planes);
        bench_memory(&b, (int)n, planes);
    }
    free(w);
    free(b.acc);
    free(b.tile);
}
