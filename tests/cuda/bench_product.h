/* bench_product.h - shared by the benchmarks of products on a GPU: weights of random bytes, in
 * enough copies to exceed L2, an input, an opened device. */
#ifndef INFERD_TESTS_CUDA_BENCH_PRODUCT_H
#define INFERD_TESTS_CUDA_BENCH_PRODUCT_H

#include "core/backend/cuda/gemm_int.h"
#include "core/base/log.h"
#include "shaders/cuda/kernels.h"
#include "tests/support/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 2048, MAX_COLS = 14336, MOST_COPIES = 16, COPIES_BYTES = 256 << 20 };

static const struct {
    const char *name;
    int format;
} formats[] = {{"F16", CUDA_FORMAT_F16},
               {"Q8", CUDA_FORMAT_Q8},
               {"Q4_MIN", CUDA_FORMAT_Q4_MIN},
               {"Q6", CUDA_FORMAT_Q6}};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

/* pair: gate and up, of half as many rows each. */
struct product_shape {
    uint32_t n_out, n_in;
    bool pair;
};
/* For the simulator. */
static const struct product_shape few[] = {{272, 320, false}, {272, 320, true}, {48, 8300, false}};

static struct rng rng = {88172645463325252u};

static void need(int rc, const char *what) {
    if (rc == 0) return;
    fprintf(stderr, "%s: error %d\n", what, rc);
    exit(1);
}

/* A finite number of magnitude about 1. */
static uint16_t random_half(void) {
    uint32_t r = rng_next(&rng), sign = r & 0x8000;
    return (uint16_t)(sign | ((13 + (r >> 16) % 3) << 10) | (r & 0x3ff));
}

/* (n_out, n_in) of random bytes; scales are finite and not negative. */
static struct cuda_weight weight_new(struct cuda_backend *c, int format, uint32_t n_out,
                                     uint32_t n_in) {
    uint32_t tile = cuda_tile_bytes(format), per_row = tile ? cuda_div_up(n_in, CUDA_TILE_COLS) : 1;
    uint64_t bytes =
        tile ? (uint64_t)per_row * tile : (uint64_t)CUDA_TILE_ROWS * cuda_pitch(n_in) * 2;
    uint32_t n_tiles = cuda_div_up(n_out, CUDA_TILE_ROWS), group16 = format == CUDA_FORMAT_Q6;
    uint16_t *host = malloc(bytes);
    struct cuda_weight w = {
        .base = {.be = &c->base, .n_out = n_out, .n_in = n_in}, .format = format, .scale = 1};
    void *product = NULL;
    err e = {0};
    need(host ? cuda_memory_new(c, n_tiles * bytes, &product, &e) : -1, "memory");
    for (uint64_t i = 0; i < bytes / 2; i++) {
        uint32_t scales = format == CUDA_FORMAT_Q4_MIN || group16 ? 512 : 256;
        bool scale = tile && i * 2 % tile >= tile - scales;
        if (!tile)
            host[i] = i % cuda_pitch(n_in) < n_in ? random_half() : 0;
        else
            host[i] = (uint16_t)(scale ? 0x5000 + rng_next(&rng) % 0x1000 : rng_next(&rng));
    }
    for (uint32_t t = 0; t < n_tiles; t++)
        need((int)cudaMemcpy((char *)product + t * bytes, host, bytes, cudaMemcpyHostToDevice),
             "a copy");
    free(host);
    w.product = product;
    w.expert_bytes = n_tiles * bytes;
    return w;
}

static void fill_input(struct cuda_backend *c, uint32_t n_in) {
    uint32_t pitch = cuda_pitch(n_in);
    uint16_t *x = malloc((size_t)MAX_ROWS * pitch * 2);
    static float ones[MAX_ROWS];
    need(x ? 0 : -1, "memory");
    for (uint32_t r = 0; r < MAX_ROWS; r++) {
        ones[r] = 1;
        for (uint32_t i = 0; i < pitch; i++)
            x[(size_t)r * pitch + i] = i < n_in ? random_half() : 0;
    }
    need((int)cudaMemcpy(cuda_scratch(c, CUDA_SCRATCH_IN16), x, (size_t)MAX_ROWS * pitch * 2,
                         cudaMemcpyHostToDevice),
         "a copy");
    need((int)cudaMemcpy(cuda_scratch(c, CUDA_SCRATCH_IN_SCALE), ones, sizeof ones,
                         cudaMemcpyHostToDevice),
         "a copy");
    free(x);
}

static void print_log(void *arg, enum log_level level, const char *line) {
    (void)arg, (void)level;
    printf("%s\n", line);
}

int backend_cuda_open(const struct backend_config *config, backend **out, err *e);

#endif
