/* be.h - what tests of the backend share: opening each instruction set of this machine, buffers
 * from arrays, a seeded generator. Failures to set up end the test binary. Single thread. */
#ifndef INFERD_TESTS_BE_H
#define INFERD_TESTS_BE_H

#include "core/backend/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BE_MAX_ROWS = 300, BE_MAX_COLS = 1100 };

static inline void be_need(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "cannot set up: %s\n", what);
    exit(1);
}

/* NULL when this machine lacks config's isa. */
static inline backend *be_open_config(const struct backend_config *config) {
    backend *be;
    err e = {0};
    int rc = backend_open(config, &be, &e);
    be_need(rc == 0 || rc == ERR_UNSUPPORTED, e.msg);
    return rc ? NULL : be;
}

/* Likewise. bits: of activations, 8 or 16. */
static inline backend *be_open_bits(const char *isa, int n_threads, int bits) {
    struct backend_config config = {.name = "cpu",
                                    .isa = isa,
                                    .n_threads = n_threads,
                                    .max_rows = BE_MAX_ROWS,
                                    .max_cols = BE_MAX_COLS,
                                    .activation_bits = bits};
    return be_open_config(&config);
}

static inline backend *be_open(const char *isa, int n_threads) {
    return be_open_bits(isa, n_threads, 8);
}

static inline backend_buf *be_bytes(backend *be, const void *data, uint64_t bytes) {
    backend_buf *buf;
    err e;
    be_need(backend_buf_new(be, bytes, &buf, &e) == 0, "a buffer");
    if (data) be_need(backend_upload(be, buf, 0, data, bytes, &e) == 0, "an upload");
    return buf;
}

static inline backend_buf *be_f32(backend *be, const float *data, uint64_t n) {
    return be_bytes(be, data, n * sizeof(float));
}

static inline backend_buf *be_i32(backend *be, const int32_t *data, uint64_t n) {
    return be_bytes(be, data, n * sizeof(int32_t));
}

/* Waits; (n) f32 from the start of buf. */
static inline void be_get(backend *be, const backend_buf *buf, float *out, uint64_t n) {
    err e;
    be_need(backend_sync(be, &e) == 0, "a sync");
    be_need(backend_download(be, buf, 0, out, n * sizeof(float), &e) == 0, "a download");
}

/* n_experts matrices, or vectors where n_out is 1; 0: a plain one. */
static inline backend_weight *be_experts(backend *be, int type, uint64_t n_experts, uint64_t n_out,
                                         uint64_t n_in, const void *data) {
    struct backend_weight_desc desc = {.name = "test",
                                       .type = type,
                                       .use = BACKEND_USE_LINEAR,
                                       .n_experts = n_experts,
                                       .n_out = n_out,
                                       .n_in = n_in,
                                       .data = data};
    if (!n_experts) desc.use |= BACKEND_USE_EMBED;
    if (type == QTYPE_F32 && n_out == 1) desc.use |= BACKEND_USE_VECTOR;
    backend_weight *w;
    err e;
    be_need(backend_weight_new(be, &desc, &w, &e) == 0, e.msg);
    return w;
}

static inline backend_weight *be_weight(backend *be, int type, uint64_t n_out, uint64_t n_in,
                                        const void *data) {
    return be_experts(be, type, 0, n_out, n_in, data);
}

/* A weight that copies n columns of its input from column first on. */
static inline backend_weight *be_identity(backend *be, uint32_t n, uint32_t n_in, uint32_t first) {
    static float w[BE_MAX_COLS * BE_MAX_COLS];
    memset(w, 0, (uint64_t)n * n_in * sizeof *w);
    for (uint32_t i = 0; i < n; i++)
        w[(uint64_t)i * n_in + first + i] = 1;
    return be_weight(be, QTYPE_F32, n, n_in, w);
}

static inline void *be_new(uint64_t n, uint64_t size) {
    void *p = calloc(n ? n : 1, size);
    be_need(p != NULL, "memory");
    return p;
}

/* xorshift64*: seeded, the same everywhere. */
static uint64_t be_seed = 1;

static inline uint32_t be_rand(void) {
    be_seed ^= be_seed >> 12;
    be_seed ^= be_seed << 25;
    be_seed ^= be_seed >> 27;
    return (uint32_t)((be_seed * 2685821657736338717u) >> 32);
}

static inline uint32_t be_below(uint32_t n) {
    return be_rand() % n;
}

/* In (-1, 1), like a sum of a few uniform ones. */
static inline float be_real(void) {
    double sum = 0;
    for (int i = 0; i < 3; i++)
        sum += be_rand() / 4294967296.0 - 0.5;
    return (float)(sum / 1.5);
}

static inline void be_fill(float *x, uint64_t n, float scale) {
    for (uint64_t i = 0; i < n; i++)
        x[i] = be_real() * scale;
}

/* Arguments of a test binary. "quick": smaller sets, odd sizes among them, for an emulator.
 * "isa=NAME": the instruction set that this machine is to pick. */
static bool be_quick;
static const char *be_best;

static inline void be_args(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "quick") == 0) be_quick = true;
        if (strncmp(argv[i], "isa=", 4) == 0) be_best = argv[i] + 4;
    }
    if (be_quick) printf("quick set\n");
}

/* The sets that tests go through. */
#if defined(__aarch64__)
static const char *const be_isas[] = {"generic", "neon", "i8mm"};
#else
static const char *const be_isas[] = {"generic", "avx2", "avxvnni", "avx512"};
#endif
/* Of these, NULL for one that shares all kernels but products with the one before it. */
static inline const char *be_row_isa(int i) {
    bool shares = strcmp(be_isas[i], "avxvnni") == 0 || strcmp(be_isas[i], "i8mm") == 0;
    return shares ? NULL : be_isas[i];
}
enum { BE_N_ISAS = sizeof be_isas / sizeof be_isas[0] };

#endif
