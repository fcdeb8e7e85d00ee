/* test_continuation.c - a request that continues another one's answer (a tiny llama with seeded
 * random weights): for any cut, the two parts are, bit for bit, the uncut answer. */
#include "core/base/mem.h"
#include "core/base/qblock.h"
#include "core/engine/engine.h"
#include "tests/support/engine_kit.h"
#include "tests/support/gguf_make.h"

#include "check.h"
#include "tests/support/rng.h"

#include <unistd.h>

enum { MAX_PROMPT = 70, N_CASES = 8, N_CUTS = 5, N_CHOICES = 2 };

static char model_path[256];

static struct rng rng = {23};

static engine *open_engine(bool prefix_cache) {
    struct engine_config c = kit_config(model_path);
    c.max_sequences = 8, c.max_queue = 16;
    c.prefix_cache = prefix_cache;
    return kit_open(&c);
}

struct job {
    int32_t prompt[MAX_PROMPT];
    struct engine_request req;
    struct reading whole[N_CHOICES];
};

static void make_job(struct job *j, int i, int32_t n_vocab) {
    struct engine_params *p = &j->req.params;
    j->req = (struct engine_request){.prompt = j->prompt,
                                     .n_prompt = 1 + rng_next(&rng) % MAX_PROMPT,
                                     .n_choices = N_CHOICES,
                                     .notify = bell_ring,
                                     .notify_arg = &bell};
    for (uint32_t k = 0; k < j->req.n_prompt; k++)
        j->prompt[k] = (int32_t)(3 + rng_next(&rng) % (uint32_t)(n_vocab - 3));
    engine_params_default(p);
    p->max_tokens = 12 + rng_next(&rng) % 40;
    p->has_seed = i % 2;
    p->seed = (int64_t)rng_next(&rng) << 20;
    p->sampling.temperature = i == 0 ? 0 : 0.9f;
    p->n_logprobs = i % 3;
    if (i % 4 == 1) p->sampling.top_p = 0.9f;
    if (i % 4 >= 2) p->sampling.repetition_penalty = 1.3f;
    if (i % 4 == 3) p->sampling.frequency_penalty = 0.6f, p->sampling.presence_penalty = 0.2f;
    p->ignore_eos = i % 2;
    p->prompt_logprobs = i == 5;
}

/* Choice k of the job from its token `cut` on. */
static void go_on(engine *en, const struct job *j, uint32_t k, int cut, uint64_t seed) {
    const struct reading *whole = &j->whole[k];
    int32_t text[MAX_PROMPT + READER_MAX_TOKENS];
    struct reading *r = calloc(1, sizeof *r);
    struct engine_request q = j->req;
    memcpy(text, j->prompt, q.n_prompt * sizeof *text);
    memcpy(text + q.n_prompt, whole->tokens, (size_t)cut * sizeof *text);
    q.prompt = text;
    q.n_prompt += (uint32_t)cut;
    q.n_generated = (uint32_t)cut;
    q.n_choices = 1;
    if (q.params.has_seed) q.first_choice = k;
    q.params.has_seed = true;
    if (!q.first_choice) q.params.seed = (int64_t)seed;
    kit_submit(en, &q, &r->stream);
    CHECK(engine_stream_seed(r->stream) == seed);
    read_all(r, 1, &bell);
    free_all(r, 1);
    size_t n = (size_t)(whole->n_tokens - cut);
    CHECK_MSG(r->n_tokens == (int)n && !memcmp(r->tokens, whole->tokens + cut, n * sizeof *text) &&
                  !memcmp(r->logprobs, whole->logprobs + cut, n * sizeof *whole->logprobs),
              "choice %u, cut at %d of %d: another answer", k, cut, whole->n_tokens);
    CHECK(r->n_prompt_events == (cut ? 0 : whole->n_prompt_events));
    CHECK(r->n_final == 1 && r->final.finish == whole->final.finish &&
          r->final.n_generated == whole->final.n_generated &&
          r->final.n_prompt == whole->final.n_prompt && r->final.n_cached <= r->final.n_prompt);
    free(r);
}

static void goes_on_anywhere(bool prefix_cache) {
    engine *en = open_engine(prefix_cache);
    struct job *j = calloc(1, sizeof *j);
    struct engine_stats stats;
    for (int i = 0; i < N_CASES; i++) {
        engine_stream *streams[N_CHOICES];
        uint64_t seeds[N_CHOICES];
        memset(j, 0, sizeof *j);
        make_job(j, i, (int32_t)engine_model(en).n_vocab);
        kit_submit(en, &j->req, streams);
        for (int k = 0; k < N_CHOICES; k++) {
            j->whole[k].stream = streams[k];
            seeds[k] = engine_stream_seed(streams[k]);
        }
        read_all(j->whole, N_CHOICES, &bell);
        free_all(j->whole, N_CHOICES);
        for (uint32_t k = 0; k < N_CHOICES; k++)
            for (int c = 0; c < N_CUTS; c++) {
                int n = j->whole[k].n_tokens;
                if (n == 0) break; /* the first token was the end */
                go_on(en, j, k,
                      c == 0   ? 0
                      : c == 1 ? n - 1
                               : (int)(rng_next(&rng) % (uint32_t)n),
                      seeds[k]);
            }
    }
    engine_stats_get(en, &stats);
    CHECK((stats.cached_tokens_total > 1000) == prefix_cache);
    kit_close(en);
    free(j);
}

static void goes_on_with_new_blocks(void) {
    goes_on_anywhere(false);
}

static void goes_on_with_cached_blocks(void) {
    goes_on_anywhere(true);
}

static void refuses_what_cannot_go_on(void) {
    engine *en = open_engine(true);
    struct job *j = calloc(1, sizeof *j);
    engine_stream *streams[N_CHOICES];
    err e = {0};
    make_job(j, 1, (int32_t)engine_model(en).n_vocab);
    j->req.n_prompt = 20, j->req.n_generated = 5, j->req.params.max_tokens = 6;
    CHECK(engine_submit(en, &j->req, streams, &e) == ERR_INVALID && !strcmp(e.param, "n"));
    j->req.n_choices = 1, j->req.params.max_tokens = 5;
    CHECK(engine_submit(en, &j->req, streams, &e) == ERR_INVALID && !strcmp(e.param, "max_tokens"));
    j->req.n_generated = 20;
    CHECK(engine_submit(en, &j->req, streams, &e) == ERR_INVALID && !strcmp(e.param, "prompt"));
    engine_close(en);
    free(j);
}

int main(void) {
    const struct tiny_llama tiny = {.seed = 12, .n_layers = 2, .weight_type = QTYPE_Q8_0};
    err e = {0};
    snprintf(model_path, sizeof model_path, "/tmp/inferd-continuation-%ld.gguf", (long)getpid());
    CHECK_MSG(gguf_make_tiny_llama(model_path, &tiny, &e) == 0, "%s", e.msg);
    RUN(goes_on_with_new_blocks);
    RUN(goes_on_with_cached_blocks);
    RUN(refuses_what_cannot_go_on);
    unlink(model_path);
    return check_done();
}
