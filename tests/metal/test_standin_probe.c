/* test_standin_probe.c - both answers of the probe of simdgroup matrices. If they are no chain of
 * fma, decode has the same kernels and prefill has tiles, on plain fma; both as parallel as before,
 * and the logits have the same bits. */
#include "core/backend/metal/metal.h"
#include "msl_traffic.h"
#include "tests/metal/standin/framework/metalsim.h"
#include "tests/support/gguf_make.h"
#include "tests/support/runner.h"
#include "tests/unit/check.h"

#include <unistd.h>

enum { N_PROMPT = 150, N_VOCAB = 512, N_STEPS = 2 }; /* the prompt, a decode step */

/* What an answer led to. */
struct outcome {
    double unequal; /* values of the probe */
    struct metalsim_kernel products[N_STEPS], attention[N_STEPS];
    float *logits[N_STEPS]; /* (N_VOCAB) */
};

static double fact(const backend *be, const char *name) {
    struct backend_fact f;
    for (uint32_t i = 0; backend_fact_get(be, i, &f); i++)
        if (strcmp(f.name, name) == 0) return f.value;
    CHECK_MSG(0, "no fact %s", name);
    return -1;
}

static void run(const char *path, int type, const char *order, struct outcome *o) {
    const bool chain = strcmp(order, "chain") == 0;
    int32_t tokens[N_PROMPT + 1];
    struct runner r;
    for (int i = 0; i <= N_PROMPT; i++)
        tokens[i] = GGUF_MAKE_FIRST_LETTER + i * 7 % 300;
    metalsim_set_matrix(order);
    runner_open(&r, &(struct runner_config){.path = path,
                                            .isa = "metal",
                                            .kv_type = type == QTYPE_F16 ? QTYPE_F16 : QTYPE_Q8_0,
                                            .max_rows = 256,
                                            .max_tokens = N_PROMPT + 1});
    CHECK(backend_metal_tiles(r.be) == (chain ? METAL_TILES_MATRIX : METAL_TILES_PLAIN));
    CHECK(fact(r.be, "matrix_probe_values") == 1024);
    o->unequal = fact(r.be, "matrix_probe_unequal");
    CHECK((fact(r.be, "matrix_probe_most_ulp") > 0) == !chain);
    for (int i = 0; i < N_STEPS; i++) {
        const struct piece p = {tokens, i ? N_PROMPT : 0, i ? 1 : N_PROMPT, 0};
        metalsim_traffic_reset();
        const float *logits = runner_step(&r, &p, 1, false);
        metalsim_traffic_stop();
        o->logits[i] = be_new(N_VOCAB, sizeof(float));
        memcpy(o->logits[i], logits, N_VOCAB * sizeof(float));
        const char *products = i ? "linear_vector" : chain ? "linear_matrix" : "linear_plain";
        const char *attention = i       ? "attention_decode"
                                : chain ? "attention_prefill"
                                        : "attention_prefill_plain";
        CHECK_MSG(!metalsim_traffic(products, &o->products[i]), "%s", products);
        CHECK_MSG(!metalsim_traffic(attention, &o->attention[i]), "%s", attention);
    }
    runner_close(&r);
    metalsim_set_matrix("chain");
}

static void check_same(const struct outcome *a, const struct outcome *b, int type) {
    CHECK(a->unequal == 0 && b->unequal > 0);
    for (int i = 0; i < N_STEPS; i++) {
        const struct metalsim_kernel *of[2][2] = {{&a->products[i], &a->attention[i]},
                                                  {&b->products[i], &b->attention[i]}};
        CHECK_MSG(!memcmp(a->logits[i], b->logits[i], N_VOCAB * sizeof(float)), "%s, step %d",
                  qtype_name(type), i);
        for (int k = 0; k < 2; k++)
            CHECK_MSG(of[0][k]->dispatches == of[1][k]->dispatches &&
                          of[0][k]->threadgroups == of[1][k]->threadgroups &&
                          of[0][k]->threads == of[1][k]->threads,
                      "%s has %llu threads, %s %llu", of[0][k]->name,
                      (unsigned long long)of[0][k]->threads, of[1][k]->name,
                      (unsigned long long)of[1][k]->threads);
    }
}

static void both_answers(void) {
    static const int types[] = {QTYPE_F16, QTYPE_Q4_K};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        char path[64];
        err e = {0};
        struct outcome chain, tree;
        snprintf(path, sizeof path, "/tmp/inferd-probe-%d.gguf", (int)getpid());
        const struct tiny_llama config = {.seed = 5,
                                          .n_vocab = N_VOCAB,
                                          .n_layers = 2,
                                          .n_embd = 256,
                                          .n_heads = 4,
                                          .n_kv_heads = 2,
                                          .head_dim = 64,
                                          .n_ff = 256,
                                          .context_length = 256,
                                          .weight_type = types[t]};
        runner_need(gguf_make_tiny_llama(path, &config, &e), &e);
        run(path, types[t], "chain", &chain);
        run(path, types[t], "tree", &tree);
        check_same(&chain, &tree, types[t]);
        for (int i = 0; i < N_STEPS; i++)
            free(chain.logits[i]), free(tree.logits[i]);
        unlink(path);
    }
}

int main(void) {
    metalsim_set_options(0, 1, 0, 1);
    RUN(both_answers);
    return check_done();
}
