/* test_standin_costs.c - the bytes that inferd bench prints for each kernel of a decode step, held
 * to the stand-in's traffic meter; and that counting a step without computing it gives the same
 * figures. */
#include "msl_traffic.h"
#include "tests/metal/standin/framework/metalsim.h"
#include "tests/support/be.h"
#include "tests/support/gguf_make.h"
#include "tests/support/runner.h"
#include "tests/unit/check.h"

#include <unistd.h>

enum { CONTEXT = 256, N_SEQS = 2 }; /* whole chunks of attention: what is hidden is exact */

struct costs {
    uint64_t n, read, written;
    struct backend_kernel_costs more;
};

static struct costs costs_of(const backend *be, uint32_t i) {
    struct costs c = {.n = backend_dispatch_count(be, i)};
    backend_kernel_traffic(be, i, &c.read, &c.written);
    backend_kernel_costs(be, i, &c.more);
    return c;
}

static struct costs since(const backend *be, uint32_t i, const struct costs *before) {
    struct costs c = costs_of(be, i);
    c.n -= before[i].n, c.read -= before[i].read, c.written -= before[i].written;
    c.more.most_hidden -= before[i].more.most_hidden, c.more.cycles -= before[i].more.cycles;
    return c;
}

static void step(struct runner *r, int32_t tokens[N_SEQS][CONTEXT]) {
    struct piece pieces[N_SEQS];
    for (uint32_t s = 0; s < N_SEQS; s++)
        pieces[s] = (struct piece){tokens[s], CONTEXT - 1, 1, s};
    runner_step(r, pieces, N_SEQS, false);
}

static bool is_near(uint64_t counted, uint64_t metered) {
    const uint64_t off = counted > metered ? counted - metered : metered - counted;
    return off <= N_SEQS * 256; /* positions, tables, slots */
}

static void check_kernels(const backend *be, const struct costs *before, const char *what) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < backend_n_kernels(be); i++) {
        struct metalsim_kernel k;
        const struct costs c = since(be, i, before);
        const char *name = backend_kernel_name(be, i);
        if (metalsim_traffic(name, &k)) {
            CHECK_MSG(!c.n, "%s was counted and did not run", name);
            continue;
        }
        n++;
        printf("  %s %-18s %9llu of %9llu bytes read, %9llu of %9llu written\n", what, name,
               (unsigned long long)(c.read + c.more.most_hidden),
               (unsigned long long)k.memory.read_once, (unsigned long long)c.written,
               (unsigned long long)k.memory.written_once);
        CHECK_MSG(c.n == k.dispatches, "%s", name);
        CHECK_MSG(is_near(c.read + c.more.most_hidden, k.memory.read_once), "%s", name);
        CHECK_MSG(is_near(c.written, k.memory.written_once), "%s", name);
        CHECK_MSG(c.more.cycles > 0, "%s has no cycles", name);
    }
    CHECK(n >= 6);
}

static void check_model(int type, int kv_type) {
    char path[64];
    static struct costs before[BACKEND_MAX_KERNELS];
    int32_t tokens[N_SEQS][CONTEXT];
    struct runner r;
    err e = {0};
    snprintf(path, sizeof path, "/tmp/inferd-costs-%d.gguf", (int)getpid());
    const struct tiny_llama config = {.seed = 7,
                                      .n_vocab = 1024,
                                      .n_layers = 2,
                                      .n_embd = 256,
                                      .n_heads = 8,
                                      .n_kv_heads = 2,
                                      .head_dim = 64,
                                      .n_ff = 768,
                                      .context_length = 512,
                                      .weight_type = type};
    runner_need(gguf_make_tiny_llama(path, &config, &e), &e);
    for (int i = 0; i < N_SEQS * CONTEXT; i++) /* a sequence has other tokens than its neighbour */
        tokens[i / CONTEXT][i % CONTEXT] = GGUF_MAKE_FIRST_LETTER + i % 1009 % 500;
    runner_open(&r, &(struct runner_config){.path = path,
                                            .isa = "metal",
                                            .kv_type = kv_type,
                                            .max_rows = 64,
                                            .max_tokens = CONTEXT});
    printf("%s, K/V %s\n", qtype_name(type), qtype_name(kv_type));
    for (uint32_t i = 0; i < backend_n_kernels(r.be); i++)
        before[i] = costs_of(r.be, i);
    metalsim_traffic_reset();
    step(&r, tokens);
    metalsim_traffic_stop();
    check_kernels(r.be, before, "ran    ");
    for (uint32_t i = 0; i < backend_n_kernels(r.be); i++)
        before[i] = costs_of(r.be, i);
    CHECK(backend_set_mode(r.be, BACKEND_COUNTS));
    step(&r, tokens);
    CHECK(backend_set_mode(r.be, BACKEND_COMPUTES));
    check_kernels(r.be, before, "counted");
    runner_close(&r);
    unlink(path);
}

static void printed_bytes(void) {
    check_model(QTYPE_Q4_K, QTYPE_F16);
    check_model(QTYPE_Q6_K, QTYPE_Q8_0);
}

int main(void) {
    RUN(printed_bytes);
    return check_done();
}
