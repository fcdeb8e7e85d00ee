/* test_embedder.c - EmbeddingGemma, whose attention looks in both directions: hidden states and
 * vectors against transformers' (tests/golden/pooled), the same bits in any batch, and what the
 * engine refuses. */
#include "core/base/mem.h"
#include "core/engine/engine.h"
#include "tests/support/engine_kit.h"
#include "tests/support/files.h"
#include "tests/support/forward_check.h"

#include "check.h"

static const char folder[] = "tests/golden/pooled/gemma-embedding/hf";
enum { N_PROMPTS = 4, MAX_PROMPT = 130, WIDTH = 28, N_POOLINGS = ENGINE_POOLING_LAST };

static struct prompt {
    int32_t ids[MAX_PROMPT];
    uint32_t n;
    const float *hidden;  /* (n, WIDTH) */
    double vector[WIDTH]; /* of length 1 */
} prompts[N_PROMPTS];

static void read_golden(void) {
    size_t n = 0, at = 0, i = 0;
    cJSON *json = file_json("tests/golden/pooled/gemma-embedding/golden.json");
    const float *hidden =
        (float *)(void *)file_read("tests/golden/pooled/gemma-embedding/hidden.f32", &n);
    const cJSON *item;
    be_need(json && hidden, "the golden files");
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(json, "prompts")) {
        struct prompt *p = &prompts[i++ % N_PROMPTS];
        const cJSON *v = cJSON_GetObjectItem(item, "vector")->child;
        p->n = file_json_ints(cJSON_GetObjectItem(item, "ids"), p->ids, MAX_PROMPT);
        p->hidden = hidden + at;
        for (int c = 0; c < WIDTH && v; c++, v = v->next)
            p->vector[c] = v->valuedouble;
        at += (size_t)p->n * WIDTH;
    }
    be_need(i == N_PROMPTS && at * sizeof *hidden == n, "golden files that fit each other");
    cJSON_Delete(json);
}

/* All prompts in one step: each row as transformers has it, and the bits of a step of its own. */
static void hidden_states_are_transformers(void) {
    for (int k = 0; k < BE_N_ISAS; k++) {
        struct runner r;
        struct piece all[N_PROMPTS];
        if (!be_has(be_isas[k], 16, QTYPE_F32)) continue;
        runner_open(&r, &(struct runner_config){.path = folder,
                                                .isa = be_isas[k],
                                                .n_threads = 3,
                                                .kv_type = QTYPE_F32,
                                                .max_rows = 200,
                                                .max_tokens = MAX_PROMPT});
        CHECK(r.hp.both_ways && r.hp.window == 9 && r.hp.n_embd == WIDTH);
        CHECK(r.hp.pooling == MODEL_POOLING_MEAN);
        float *alone[N_PROMPTS];
        for (uint32_t i = 0; i < N_PROMPTS; i++) {
            all[i] = (struct piece){.tokens = prompts[i].ids, .n = prompts[i].n, .sequence = i};
            struct model_output out = runner_run(&r, &all[i], 1, true, 1);
            size_t bytes = (size_t)prompts[i].n * WIDTH * sizeof(float);
            double worst = 0;
            for (uint32_t c = 0; c < prompts[i].n * WIDTH; c++) {
                double d = fabs((double)out.hidden[c] - (double)prompts[i].hidden[c]);
                if (!(d <= worst)) worst = d;
            }
            CHECK_MSG(worst <= forward_tolerance(&r, prompts[i].hidden, prompts[i].n * WIDTH, 2e-4),
                      "%s: %u tokens: off by %g", be_isas[k], prompts[i].n, worst);
            alone[i] = be_new(bytes, 1);
            memcpy(alone[i], out.hidden, bytes);
        }
        const float *row = runner_run(&r, all, N_PROMPTS, true, N_PROMPTS).hidden;
        for (uint32_t i = 0; i < N_PROMPTS; row += prompts[i++].n * WIDTH)
            CHECK(memcmp(row, alone[i], (size_t)prompts[i].n * WIDTH * sizeof *row) == 0);
        for (uint32_t i = 0; i < N_PROMPTS; i++)
            free(alone[i]);
        runner_close(&r);
    }
}

/* ---- the engine ---- */

static struct engine_config base_config(void) {
    struct engine_config c = kit_config(folder);
    c.kv_type = QTYPE_F32;
    c.activation_bits = 16;
    c.context_length = 160;
    c.max_batch_tokens = 140;
    c.max_sequences = 6;
    return c;
}

static struct engine_request request(int i, enum engine_pooling pooling) {
    struct engine_request q = {.prompt = prompts[i].ids,
                               .n_prompt = prompts[i].n,
                               .n_choices = 1,
                               .pooling = pooling,
                               .notify = bell_ring,
                               .notify_arg = &bell};
    engine_params_default(&q.params);
    return q;
}

/* vectors (n, WIDTH) of n requests at once: number i is prompt i % N_PROMPTS, pooled by
 * i / N_PROMPTS % N_POOLINGS + 1. */
static void embed(engine *en, int n, float *vectors) {
    struct reading *all = be_new((size_t)n, sizeof *all);
    err e = {0};
    for (int i = 0; i < n; i++) {
        struct engine_request q =
            request(i % N_PROMPTS, (enum engine_pooling)(i / N_PROMPTS % N_POOLINGS + 1));
        be_need(engine_submit(en, &q, &all[i].stream, &e) == 0, e.msg);
    }
    read_all(all, n, &bell);
    for (int i = 0; i < n; i++) {
        uint32_t width = 0;
        const float *got = engine_stream_embedding(all[i].stream, &width);
        CHECK_MSG(all[i].final.finish == ENGINE_FINISH_STOP && got && width == WIDTH, "%s",
                  all[i].final.error.msg);
        CHECK(all[i].final.n_cached == 0);
        if (got) memcpy(vectors + i * WIDTH, got, WIDTH * sizeof *got);
    }
    free_all(all, n);
    free(all);
}

static void vectors_are_those_of_sentence_transformers(void) {
    enum { N = N_PROMPTS * N_POOLINGS, MANY = 10 * N };
    static float alone[N * WIDTH], got[MANY * WIDTH];
    struct engine_config c = base_config();
    c.max_sequences = 1;
    engine *en = kit_open(&c);
    CHECK(engine_context_length(en) == 140 && engine_model(en).pooling == ENGINE_POOLING_MEAN);
    embed(en, N, alone);
    for (int i = 0; i < N_PROMPTS; i++) {
        double length = 0;
        for (int k = 0; k < WIDTH; k++)
            length += (double)alone[i * WIDTH + k] * (double)alone[i * WIDTH + k];
        for (int k = 0; k < WIDTH; k++)
            CHECK_MSG(fabs((double)alone[i * WIDTH + k] / sqrt(length) - prompts[i].vector[k]) <=
                          5e-5,
                      "prompt %d, %d: %g, expected %g", i, k,
                      (double)alone[i * WIDTH + k] / sqrt(length), prompts[i].vector[k]);
    }
    kit_close(en);
    /* Many at once; with a chunk that would cut them; in a cache that does not hold them all. */
    for (int how = 0; how < 3; how++) {
        c = base_config();
        c.max_queue = MANY;
        if (how == 1) c.prefill_chunk = 1;
        if (how == 2) c.kv_cache_tokens = 160;
        en = kit_open(&c);
        embed(en, MANY, got);
        for (int i = 0; i < MANY; i++)
            CHECK_MSG(!memcmp(got + i * WIDTH, alone + i % N * WIDTH, WIDTH * sizeof *got),
                      "request %d of many, %d", i, how);
        kit_close(en);
    }
    CHECK(mem_guard_violations() == 0);
}

static void what_cannot_be_is_refused(void) {
    struct engine_config c = base_config();
    engine_stream *stream = NULL;
    err e = {0};
    c.max_batch_tokens = 100;
    engine *en = kit_open(&c);
    struct engine_request q = request(3, ENGINE_POOLING_MEAN);
    CHECK(engine_context_length(en) == 100);
    CHECK(engine_submit(en, &q, &stream, &e) == ERR_TOO_LONG && strstr(e.msg, "100 tokens"));
    q = request(1, ENGINE_POOLING_NONE);
    CHECK(engine_submit(en, &q, &stream, &e) == ERR_UNSUPPORTED && strstr(e.msg, "only embeds"));
    q = request(1, ENGINE_POOLING_RANK);
    CHECK(engine_submit(en, &q, &stream, &e) == ERR_UNSUPPORTED);
    kit_close(en);
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    bell_init(&bell);
    read_golden();
    RUN(hidden_states_are_transformers);
    if (!be_only) RUN(vectors_are_those_of_sentence_transformers);
    if (!be_only) RUN(what_cannot_be_is_refused);
    bell_fini(&bell);
    return check_done();
}
