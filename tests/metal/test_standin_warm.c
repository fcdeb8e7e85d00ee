/* test_standin_warm.c - kernels are compiled when an engine is opened, not while it serves:
 * requests of many sizes, alone and together, make no pipeline, and a kernel that the compiler
 * rejects is known before the first request. */
#include "tests/metal/standin/framework/metalsim.h"
#include "tests/metal/standin/runtime/msl_traffic.h"
#include "tests/support/engine_kit.h"
#include "tests/support/gguf_make.h"

#include <stdio.h>
#include <unistd.h>

enum { N = 7, MAX_PROMPT = 160 };

static const uint32_t lengths[N] = {1, 2, 5, 12, 20, 70, MAX_PROMPT};

static void make_model(char *path, size_t size) {
    const struct tiny_llama config = {.seed = 9,
                                      .n_vocab = 600,
                                      .n_layers = 1,
                                      .n_embd = 64,
                                      .n_heads = 4,
                                      .n_kv_heads = 2,
                                      .head_dim = 16,
                                      .n_ff = 96,
                                      .context_length = 512,
                                      .weight_type = QTYPE_Q8_0};
    err e = {0};
    snprintf(path, size, "/tmp/inferd-warm-%d.gguf", (int)getpid());
    CHECK_MSG(gguf_make_tiny_llama(path, &config, &e) == 0, "%s", e.msg);
}

static void fill_request(struct engine_request *q, int32_t *prompt, uint32_t n) {
    for (uint32_t k = 0; k < n; k++)
        prompt[k] = (int32_t)(GGUF_MAKE_FIRST_LETTER + k * 7 % 100);
    *q = (struct engine_request){
        .prompt = prompt, .n_prompt = n, .n_choices = 1, .notify = bell_ring, .notify_arg = &bell};
    engine_params_default(&q->params);
    q->params.max_tokens = 3;
    q->params.ignore_eos = true;
}

static struct engine_config config_of(const char *path) {
    struct engine_config c = kit_config(path);
    c.backend = "metal";
    c.kv_cache_tokens = 2048, c.max_batch_tokens = 64, c.prefill_chunk = 64, c.max_sequences = N;
    return c;
}

static void nothing_is_compiled_later(void) {
    static struct reading r[N];
    static int32_t prompts[N][MAX_PROMPT];
    struct engine_request q[N];
    char path[64];
    make_model(path, sizeof path);
    const struct engine_config c = config_of(path);
    struct metalsim_kernel k;
    metalsim_traffic_reset();
    engine *en = kit_open(&c);
    metalsim_traffic_stop();
    CHECK(metalsim_traffic("linear_vector", &k) != 0); /* nothing was computed */
    if (!en) return;
    const long compiled = metalsim_live(METALSIM_PIPELINE);
    CHECK(compiled > 5);
    for (int i = 0; i < N; i++) {
        fill_request(&q[i], prompts[i], lengths[i]);
        if (i % 2) q[i].params.sampling.temperature = 0;
        kit_answer(en, &q[i], &r[i]);
        CHECK(r[i].n_tokens == 3);
        CHECK_MSG(metalsim_live(METALSIM_PIPELINE) == compiled, "a prompt of %u", lengths[i]);
    }
    memset(r, 0, sizeof r);
    for (int i = 0; i < N; i++)
        CHECK(engine_submit(en, &q[i], &r[i].stream, NULL) == 0);
    read_all(r, N, &bell);
    free_all(r, N);
    CHECK_MSG(metalsim_live(METALSIM_PIPELINE) == compiled, "%d requests together", N);
    engine_close(en);
    unlink(path);
}

static void rejected_kernel(void) {
    char path[64];
    engine *en = NULL;
    err e = {0};
    make_model(path, sizeof path);
    const struct engine_config c = config_of(path);
    CHECK(metalsim_set_faults("pipeline=9") == 0); /* the probe has fewer */
    CHECK(engine_open(&c, &en, &e) == ERR_DEVICE && !en);
    CHECK_MSG(strstr(e.msg, "the Metal device failed: ") && strstr(e.msg, "(injected)"), "%s",
              e.msg);
    metalsim_set_faults(NULL);
    unlink(path);
}

int main(void) {
    RUN(rejected_kernel);
    RUN(nothing_is_compiled_later);
    return check_done();
}
