/* be.h - shared by tests of the backend: opening each set of kernels of this machine (the CPU's
 * instruction sets, "metal" and "cuda" if the build has them), buffers from arrays, a seeded
 * generator. Failures to set up end the test binary. Single thread. */
#ifndef INFERD_TESTS_BE_H
#define INFERD_TESTS_BE_H

#include "core/backend/backend_int.h"
#include "tests/support/rng.h"

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

/* Arguments of a test binary. "quick": smaller sets, odd sizes among them, for an emulator.
 * "isa=NAME": the instruction set to use. "only=NAME": the only one of be_isas to run. */
static bool be_quick;
static const char *be_best, *be_only;

static inline void be_args(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "quick") == 0) be_quick = true;
        if (strncmp(argv[i], "isa=", 4) == 0) be_best = argv[i] + 4;
        if (strncmp(argv[i], "only=", 5) == 0) be_only = argv[i] + 5;
    }
    if (be_quick) printf("quick set\n");
}

/* Is this one of be_isas a device other than the CPU? Devices have kernels for shapes of real
 * models only, and are slow to open. */
static inline bool be_is_device_set(const char *isa) {
    return strcmp(isa, "metal") == 0 || strcmp(isa, "cuda") == 0;
}

/* The device and the instruction set of `isa`, one of be_isas, or "" or NULL for the CPU's best. */
static inline void be_name_set(struct backend_config *config, const char *isa) {
    bool device = isa && be_is_device_set(isa);
    config->name = device ? isa : "cpu";
    config->isa = device ? NULL : isa;
}

/* Opens config with kernels `isa`, one of be_isas, or "" or NULL for the CPU's best. NULL if this
 * machine lacks them, or if they are not the requested ones. */
static inline backend *be_open_config(struct backend_config config, const char *isa) {
    backend *be;
    err e = {0};
    if (isa && *isa && be_only && strcmp(isa, be_only) != 0) return NULL;
    be_name_set(&config, isa);
    int rc = backend_open(&config, &be, &e);
    be_need(rc == 0 || rc == ERR_UNSUPPORTED, e.msg);
    return rc ? NULL : be;
}

/* Metal with config's sizes; a failure ends the test binary. */
static inline backend *be_open_metal(struct backend_config config) {
    backend *be = be_open_config(config, "metal");
    be_need(be != NULL, "Metal");
    return be;
}

/* As be_open_config. bits: of activations, 8 or 16. */
static inline backend *be_open_bits(const char *isa, int n_threads, int bits) {
    struct backend_config config = {.n_threads = n_threads,
                                    .max_rows = BE_MAX_ROWS,
                                    .max_cols = BE_MAX_COLS,
                                    .activation_bits = bits};
    return be_open_config(config, isa);
}

/* The CPU rounds the input of products with quantized weights and computes everything else to the
 * last bits; transcendental functions of Metal and CUDA have errors of a few ulp, and both flush
 * denormals; Metal keeps f32, for CUDA see be_rounding. */
static inline bool be_is_cpu(const backend *be) {
    return strcmp(backend_name(be), "cpu") == 0;
}

static inline bool be_is_cuda(const backend *be) {
    return strcmp(backend_name(be), "cuda") == 0;
}

/* Relative error of each term of a product with weights of this type: CUDA's tensor cores multiply
 * f16. Weights of 16 bits are exact and their input has 11 bits; decoded quantized weights have 11
 * bits, too. 0: f32 arithmetic. */
static inline double be_rounding(const backend *be, int type) {
    if (!be_is_cuda(be) || type == QTYPE_F32) return 0;
    return type == QTYPE_BF16 || type == QTYPE_F16 ? 0x1p-11 : 0x1p-10;
}

/* The same for a whole model with weights mostly of the named type: error of a logit relative to
 * the logits' rms. Rounding of 16-bit products and of attention's 16-bit probabilities gives 0.8 %
 * in a model of two layers, decoding of 4-bit weights 2 %; independent errors of n_layers layers
 * grow with the root of their number. 0: no additional error. */
static inline double be_logit_error(const backend *be, const char *quant, int kv_type,
                                    uint32_t n_layers) {
    bool f32 = strcmp(quant, "F32") == 0;
    if (!be_is_cuda(be) || (f32 && kv_type == QTYPE_F32)) return 0;
    double two = f32 || strcmp(quant, "F16") == 0 || strcmp(quant, "BF16") == 0 ? 0.015 : 0.03;
    return n_layers > 2 ? two * sqrt(n_layers / 2.0) : two;
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
    err e = {0};
    be_need(backend_sync(be, &e) == 0, e.msg);
    be_need(backend_download(be, buf, 0, out, n * sizeof(float), &e) == 0, "a download");
}

static inline backend_weight *be_weight_for(backend *be, unsigned use, int type, uint64_t n_experts,
                                            uint64_t n_out, uint64_t n_in, const void *data) {
    struct backend_weight_desc desc = {.name = "test",
                                       .type = type,
                                       .use = use,
                                       .n_experts = n_experts,
                                       .n_out = n_out,
                                       .n_in = n_in,
                                       .data = data};
    backend_weight *w;
    err e;
    be_need(backend_weight_new(be, &desc, &w, &e) == 0, e.msg);
    return w;
}

/* n_experts matrices, or vectors if n_out is 1; 0: a plain one. */
static inline backend_weight *be_experts(backend *be, int type, uint64_t n_experts, uint64_t n_out,
                                         uint64_t n_in, const void *data) {
    unsigned use = BACKEND_USE_LINEAR;
    if (!n_experts) use |= BACKEND_USE_EMBED;
    if (type == QTYPE_F32 && n_out == 1) use |= BACKEND_USE_VECTOR;
    return be_weight_for(be, use, type, n_experts, n_out, n_in, data);
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

static struct rng be_rng = {1};

static inline uint32_t be_rand(void) {
    return rng_next(&be_rng);
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

/* The sets that tests run. */
static const char *const be_isas[] = {
#if defined(__aarch64__)
    "generic", "neon", "i8mm",
#else
    "generic",
    "avx2",
    "avxvnni",
    "avx512",
#endif
#ifdef INFERD_METAL
    "metal",
#endif
#if !defined(__APPLE__)
    "cuda", /* linked in or a module; mostly neither */
#endif
};

/* The type to use for kv_type in a cache of heads of head_dim in blocks of 16: itself, or F16 for
 * F32 on a device without such kernels; -1: none. */
static inline int be_kv_type(const backend *be, uint32_t head_dim, int kv_type) {
    struct backend_kv cache = {
        .kv_type = kv_type, .n_kv_heads = 1, .block_tokens = 16, .head_dim = head_dim};
    if (backend_kv_fits(be, &cache)) return kv_type;
    cache.kv_type = QTYPE_F16;
    return kv_type == QTYPE_F32 && backend_kv_fits(be, &cache) ? QTYPE_F16 : -1;
}

/* Has this machine set `isa`, with kernels for such heads? */
static inline bool be_has(const char *isa, uint32_t head_dim, int kv_type) {
    backend *be = be_open(isa, 1);
    bool has = be && be_kv_type(be, head_dim, kv_type) >= 0;
    backend_close(be);
    return has;
}

/* Can n devices of set `isa` form a group here? */
/* Has the device that was asked for (the CPU, if none was) this op? */
static inline bool be_has_op(enum backend_op op) {
    backend *be = be_open(be_only ? be_only : "generic", 1);
    bool has = be && backend_has_op(be, op);
    backend_close(be);
    return has;
}

static inline bool be_has_ranks(const char *isa, uint32_t n_ranks) {
    backend *be = be_open_config(
        (struct backend_config){.n_ranks = n_ranks, .max_rows = 1, .max_cols = 1}, isa);
    backend_close(be);
    return be != NULL;
}

/* Has set `isa` attention for such a cache? Devices have kernels for the shapes of models only. */
static inline bool be_attends(const char *isa, const struct backend_kv *cache) {
    static backend *cuda; /* opened only for such queries */
    if (!be_is_device_set(isa)) return true;
    if (strcmp(isa, "cuda") == 0) {
        if (!cuda) cuda = be_open(isa, 1);
        return cuda && backend_kv_fits(cuda, cache);
    }
    const bool dims = cache->v_dim ? cache->head_dim <= 640 && cache->v_dim <= 512
                                   : cache->head_dim % 4 == 0 && cache->head_dim <= 512;
    return dims && cache->block_tokens % 4 == 0 && 128 % cache->block_tokens == 0;
}

/* Dispatches of a kernel; 0 if the device has none of that name. */
static inline uint64_t be_dispatches(const backend *be, const char *kernel) {
    for (uint32_t i = 0; i < backend_n_kernels(be); i++)
        if (strcmp(backend_kernel_name(be, i), kernel) == 0) return backend_dispatch_count(be, i);
    return 0;
}

/* The name of set i; NULL if it differs from the previous one only in products. */
static inline const char *be_row_isa(int i) {
    bool shares = strcmp(be_isas[i], "avxvnni") == 0 || strcmp(be_isas[i], "i8mm") == 0;
    return shares ? NULL : be_isas[i];
}
enum { BE_N_ISAS = sizeof be_isas / sizeof be_isas[0] };

#endif
