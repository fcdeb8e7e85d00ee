/* test_worker_states.c - an engine over a fake device whose model has recurrent layers
 * (fake_device.h): which tokens later requests find, and what the counters say. That texts are
 * right in any configuration is test_worker's. */
#include "check.h"
#include "fake_device.h"

static int32_t prompt[FAKE_CONTEXT];

static void fill(uint32_t from, int32_t seed) {
    for (uint32_t i = from; i < FAKE_CONTEXT; i++)
        prompt[i] = 4 + (int32_t)((i * 7 + (uint32_t)seed * 13 + i * i % 11) % (FAKE_VOCAB - 4));
}

/* Answers the prompt's first n tokens greedily with n_answer tokens; expects n_cached found. */
static void ask(engine *en, uint32_t n, uint32_t n_stable, uint32_t n_answer, uint32_t n_cached) {
    struct engine_request q = {.prompt = prompt,
                               .n_prompt = n,
                               .n_choices = 1,
                               .stable_tokens = n_stable,
                               .notify = bell_ring,
                               .notify_arg = &bell};
    struct reading *r = calloc(1, sizeof *r);
    engine_params_default(&q.params);
    q.params.max_tokens = n_answer;
    q.params.ignore_eos = true;
    q.params.sampling.temperature = 0;
    kit_answer(en, &q, r);
    CHECK(r->n_final == 1 && r->final.finish == ENGINE_FINISH_LENGTH);
    for (uint32_t i = 0; i < n_answer; i++) { /* the best token after what came before it */
        float logits[FAKE_VOCAB];
        int32_t best = 0;
        fake_logits(prompt, n + i, logits);
        for (int32_t v = 1; v < FAKE_VOCAB; v++)
            if (logits[v] > logits[best]) best = v;
        CHECK(r->tokens[i] == best);
        prompt[n + i] = best; /* the next turn begins with it */
    }
    CHECK_MSG(r->final.n_cached == n_cached, "%u tokens cached, want %u", r->final.n_cached,
              n_cached);
    fake_check_ended(en);
    free(r);
}

/* A conversation: its next turn finds the answer, an edited message what lies before it, another
 * question the prefix that they share. */
static void turns_find_what_was_left(void) {
    struct engine_config c = base_config();
    struct engine_stats s;
    c.state_blocks = 20, c.state_checkpoint_tokens = 0;
    engine *en = fake_open(&c);
    fill(0, 1);
    ask(en, 100, 50, 20, 0); /* kept after 48, 96 and, at its end, 112 of 119 tokens */
    engine_stats_get(en, &s);
    CHECK(s.state_blocks == 20 && s.state_blocks_free == 20 && s.state_blocks_cached == 3);
    fill(120, 2);
    ask(en, 150, 0, 2, 112);
    fill(100, 3); /* without the answer, as templates do that drop the reasoning */
    ask(en, 150, 0, 2, 96);
    fill(60, 4); /* the last message was edited */
    ask(en, 150, 0, 2, 48);
    engine_stats_get(en, &s);
    CHECK(s.stateless_tokens_total == 0 && s.state_evictions_total == 0);
    fill(40, 5); /* shares 40: K/V of 32, no state there; the next one finds it */
    ask(en, 150, 0, 2, 0);
    fill(40, 6);
    ask(en, 150, 0, 2, 32);
    engine_stats_get(en, &s);
    CHECK(s.stateless_tokens_total == 32);
    CHECK(s.cached_tokens_total == 112 + 96 + 48 + 32 && s.recomputed_tokens_total == 0);
    engine_close(en);
}

/* At a fixed distance along a long prompt, within a bounded number of blocks. */
static void long_prompts_keep_more(void) {
    struct engine_config c = base_config();
    struct engine_stats s;
    c.state_blocks = 4, c.state_checkpoint_tokens = 64;
    engine *en = fake_open(&c);
    fill(0, 1);
    ask(en, 300, 0, 1, 0); /* after 64, 128, 192, 256, 288: the oldest two made room */
    engine_stats_get(en, &s);
    CHECK(s.state_blocks_cached == 4 - 1 && s.state_evictions_total == 2);
    fill(200, 2);
    ask(en, 250, 0, 1, 192);
    engine_close(en);
}

static void no_prefix_cache(void) {
    struct engine_config c = base_config();
    struct engine_stats s;
    c.prefix_cache = false;
    engine *en = fake_open(&c);
    fill(0, 1);
    ask(en, 100, 50, 20, 0);
    ask(en, 100, 50, 20, 0);
    engine_stats_get(en, &s);
    CHECK(s.state_blocks == 4 * c.max_sequences && s.state_blocks_cached == 0);
    CHECK(s.stateless_tokens_total == 0 && s.steps_total == 2 * (2 + 19)); /* 64 + 36 rows each */
    engine_close(en);
}

int main(void) {
    fake_states = true;
    RUN(turns_find_what_was_left);
    RUN(long_prompts_keep_more);
    RUN(no_prefix_cache);
    fake_overlaps = true;
    RUN(turns_find_what_was_left);
    RUN(long_prompts_keep_more);
    fake_no_kv = true; /* block tables keep the books */
    RUN(turns_find_what_was_left);
    RUN(long_prompts_keep_more);
    return check_done();
}
