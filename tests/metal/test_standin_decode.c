/* test_standin_decode.c - device memory traffic of one decode step of a small model, by the
 * stand-in's traffic meter: no weight is read twice, and a group of query heads shares one read of
 * K and V. Prints the traffic of each kernel. */
#include "msl_traffic.h"
#include "tests/metal/standin/framework/metalsim.h"
#include "tests/support/be.h"
#include "tests/support/gguf_make.h"
#include "tests/support/runner.h"
#include "tests/unit/check.h"

#include <unistd.h>

enum { CONTEXT = 300, MAX_ROWS = 64, N_LAYERS = 2 };

static const struct {
    int type;
    uint32_t n_rows;
    int kv_type;
} cases[] = {
    {QTYPE_F16, 1, QTYPE_F16},   {QTYPE_Q8_0, 4, QTYPE_Q8_0}, {QTYPE_Q4_0, 1, QTYPE_F16},
    {QTYPE_Q4_K, 1, QTYPE_Q8_0}, {QTYPE_Q6_K, 3, QTYPE_F16},
};

static const char *make_model(int type) {
    static char path[64];
    err e = {0};
    snprintf(path, sizeof path, "/tmp/inferd-decode-%d.gguf", (int)getpid());
    const struct tiny_llama config = {.seed = 7,
                                      .n_vocab = 1024,
                                      .n_layers = N_LAYERS,
                                      .n_embd = 256,
                                      .n_heads = 8,
                                      .n_kv_heads = 2,
                                      .head_dim = 64,
                                      .n_ff = 768,
                                      .context_length = 512,
                                      .weight_type = type};
    runner_need(gguf_make_tiny_llama(path, &config, &e), &e);
    return path;
}

static uint64_t block_bytes(const struct runner *r) {
    uint64_t bytes;
    return backend_kv_block_bytes(&r->kv[0], &bytes) ? bytes : 0;
}

/* Bytes that attention read from the pools. */
static struct metalsim_bytes pool_bytes(void) {
    struct metalsim_bytes sum = {0};
    struct metalsim_argument a;
    for (uint32_t i = 0; !metalsim_traffic_argument(i, &a); i++) {
        if (strncmp(a.kernel, "attention_", 10) || !strstr(a.name, "_pool")) continue;
        sum.read += a.bytes.read;
        sum.read_once += a.bytes.read_once;
    }
    return sum;
}

static void print_kernels(uint64_t weights) {
    struct metalsim_kernel k;
    struct metalsim_bytes w;
    printf("  %-18s %10s %12s %12s %12s %9s %8s\n", "kernel", "dispatches", "weights read",
           "all read", "written", "barriers", "tg bytes");
    for (uint32_t i = 0; !metalsim_traffic_kernel(i, &k); i++) {
        metalsim_traffic_sum(k.name, "weights", &w);
        printf("  %-18s %10llu %12llu %12llu %12llu %9llu %8u\n", k.name,
               (unsigned long long)k.dispatches, (unsigned long long)w.read,
               (unsigned long long)k.memory.read, (unsigned long long)k.memory.written,
               (unsigned long long)k.barriers, k.tg_dynamic_bytes + k.tg_static_bytes);
    }
    metalsim_traffic_sum(NULL, "weights", &w);
    printf("  weights: %llu bytes loaded, %llu distinct, of %llu\n", (unsigned long long)w.read,
           (unsigned long long)w.read_once, (unsigned long long)weights);
}

static void check_case(size_t c) {
    const char *path = make_model(cases[c].type);
    uint32_t n = cases[c].n_rows;
    int32_t tokens[CONTEXT];
    struct piece pieces[RUNNER_MAX_PIECES];
    struct runner r;
    struct metalsim_bytes w, kv;
    struct metalsim_kernel k;
    for (int i = 0; i < CONTEXT; i++)
        tokens[i] = GGUF_MAKE_FIRST_LETTER + (int32_t)be_below(500);
    runner_open(&r, &(struct runner_config){.path = path,
                                            .isa = "metal",
                                            .kv_type = cases[c].kv_type,
                                            .max_rows = MAX_ROWS,
                                            .max_tokens = CONTEXT});
    for (uint32_t s = 0; s < n; s++) /* the content of the pools does not matter here */
        pieces[s] = (struct piece){tokens, CONTEXT - 1, 1, s};
    unsigned long barriers = metalsim_barriers();
    metalsim_traffic_reset();
    runner_step(&r, pieces, n, false);
    metalsim_traffic_stop();
    barriers = metalsim_barriers() - barriers;
    printf("  %lu barriers between dispatches\n", barriers);
    CHECK(barriers > 0 && metalsim_needless_barriers() == 0);
    metalsim_traffic_sum(NULL, "weights", &w);
    kv = pool_bytes();
    /* rows of the embedding, read in addition to the weights */
    double weights = (double)r.hp.weight_bytes;
    double live = (double)block_bytes(&r) / RUNNER_BLOCK_TOKENS * 2 * CONTEXT * n * N_LAYERS;
    printf("%s, %u rows, %d tokens each, K/V %s: weights read %.3f times, K/V %.3f times\n",
           qtype_name(cases[c].type), n, CONTEXT, qtype_name(cases[c].kv_type),
           (double)w.read / weights, (double)kv.read / live);
    print_kernels(r.hp.weight_bytes);
    CHECK_MSG((double)w.read <= 1.02 * weights && (double)w.read >= 0.99 * weights,
              "%llu of %.0f bytes", (unsigned long long)w.read, weights);
    CHECK_MSG((double)kv.read <= 1.05 * live && (double)kv.read >= 0.99 * live,
              "%llu of %.0f bytes", (unsigned long long)kv.read, live);
    CHECK(!metalsim_traffic("attention_decode", &k) && k.dispatches == N_LAYERS);
    CHECK(metalsim_traffic("attention_prefill", &k) && metalsim_traffic("linear_matrix", &k));
    runner_close(&r);
    unlink(path);
}

static void one_read(void) {
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        check_case(c);
}

int main(void) {
    RUN(one_read);
    return check_done();
}
