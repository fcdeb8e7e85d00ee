/* test_embeddings.c - hidden states and pooling: the model's against the float64 forward pass, and
 * the same bits beside logits, in chunks, in a batch, preempted and on a prefix hit. An argument:
 * the engine's tests over that GGUF file, without the float64 reference. */
#include "core/base/mem.h"
#include "core/engine/engine.h"
#include "tests/support/engine_kit.h"
#include "tests/support/forward_check.h"
#include "tests/support/gguf_make.h"
#include "tests/support/llama64.h"

#include "check.h"

#include <unistd.h>

enum { MAX_TOKENS = 160, N_TEXTS = 9, N_POOLINGS = ENGINE_POOLING_LAST };

static char model_path[256];
static bool has_reference;

/* ---- the model ---- */

/* F32 weights: rounding alone. Q8_0 rounds the activations to 16 bits. A hidden state's values have
 * a deviation of about 1. */
static const struct {
    struct tiny_llama shape;
    double tolerance;
} variants[] = {
    {{.seed = 1}, 1e-4},
    {{.seed = 2, .weight_type = QTYPE_Q8_0, .tied = true}, 5e-3},
    {{.seed = 7, .n_layers = 1, .n_heads = 3, .n_kv_heads = 3, .head_dim = 10}, 1e-4},
};

/* Chunks of two sequences in one step; the second one outputs hidden states, up to `n`. */
static void check_step(struct runner *r, const int32_t *tokens, const float *hidden,
                       const float *logits, uint32_t at, uint32_t n) {
    uint64_t embd = r->hp.n_embd, vocab = r->hp.n_vocab;
    struct piece p[] = {{.tokens = tokens, .start = at, .n = n, .sequence = 1},
                        {.tokens = tokens, .start = at, .n = n, .sequence = 2}};
    struct model_output out = runner_run(r, p, 2, true, 1);
    CHECK(memcmp(out.hidden, hidden + at * embd, n * embd * sizeof *hidden) == 0);
    CHECK(memcmp(out.logits, logits + at * vocab, n * vocab * sizeof *logits) == 0);
}

static void check_model(const char *isa, const int32_t *tokens, const double *want,
                        double tolerance) {
    struct runner r;
    runner_open(&r, &(struct runner_config){.path = model_path,
                                            .isa = isa,
                                            .n_threads = 2,
                                            .kv_type = QTYPE_F32,
                                            .max_rows = 150,
                                            .max_tokens = MAX_TOKENS});
    uint64_t n = 130 * (uint64_t)r.hp.n_embd, n_logits = 130 * (uint64_t)r.hp.n_vocab;
    float *hidden = be_new(n, sizeof *hidden), *logits = be_new(n_logits, sizeof *logits);
    struct piece all = {.tokens = tokens, .n = 130};
    memcpy(logits, runner_step(&r, &all, 1, true), n_logits * sizeof *logits);
    struct model_output out = runner_run(&r, &all, 1, true, 1);
    double worst = worst_difference(out.hidden, want, n);
    CHECK_MSG(worst <= tolerance, "%s: off by %g", isa, worst);
    memcpy(hidden, out.hidden, n * sizeof *hidden);
    for (uint32_t at = 0, some; at < 130; at += some) {
        some = 1 + be_below(40);
        if (some > 130 - at) some = 130 - at;
        check_step(&r, tokens, hidden, logits, at, some);
    }
    runner_close(&r);
    free(hidden);
    free(logits);
}

static void hidden_states_are_the_models(void) {
    int32_t tokens[MAX_TOKENS];
    double *want = be_new((uint64_t)MAX_TOKENS * FORWARD64_MAX_WIDTH, sizeof *want);
    err e = {0};
    be_rng.state = 77;
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        struct forward64 f;
        runner_need(gguf_make_tiny_llama(model_path, &variants[i].shape, &e), &e);
        gguf *g = llama64_open(model_path, &f);
        random_tokens(tokens, MAX_TOKENS, 320);
        forward64_hidden(g, &f, tokens, 130, want);
        gguf_close(g);
        for (int k = 0; k < BE_N_ISAS; k++)
            if (be_has(be_isas[k], f.head_dim, QTYPE_F32))
                check_model(be_isas[k], tokens, want, variants[i].tolerance);
    }
    free(want);
    CHECK(mem_guard_violations() == 0);
}

/* ---- the engine ---- */

static struct engine_config base_config(void) {
    struct engine_config c = kit_config(model_path);
    c.kv_type = QTYPE_F32;
    c.context_length = 160;
    c.max_sequences = 12;
    return c;
}

/* Texts of odd lengths, one of the whole context. */
static int32_t texts[N_TEXTS][MAX_TOKENS];
static uint32_t lengths[N_TEXTS] = {1, 2, 16, 17, 33, 64, 65, 127, 160};

struct vector {
    struct reading reading;
    float *values; /* (n_embd) */
};

static struct engine_request request(int text, enum engine_pooling pooling) {
    struct engine_request q = {.prompt = texts[text],
                               .n_prompt = lengths[text],
                               .n_choices = 1,
                               .pooling = pooling,
                               .notify = bell_ring,
                               .notify_arg = &bell};
    engine_params_default(&q.params);
    return q;
}

/* All texts at once, vectors[text * N_POOLINGS + pooling - 1]; beside them as many generating
 * requests. */
static void embed_all(engine *en, struct vector *vectors, bool beside) {
    enum { N = N_TEXTS * N_POOLINGS };
    struct reading *others = be_new(N_TEXTS, sizeof *others);
    struct reading *all = be_new(N, sizeof *all);
    err e = {0};
    for (int i = 0; i < N; i++) {
        struct engine_request q =
            request(i / N_POOLINGS, (enum engine_pooling)(i % N_POOLINGS + 1));
        be_need(engine_submit(en, &q, &all[i].stream, &e) == 0, e.msg);
        if (!beside || i % N_POOLINGS || i / N_POOLINGS == N_TEXTS - 1) continue;
        q.pooling = ENGINE_POOLING_NONE;
        q.params.max_tokens = 20;
        be_need(engine_submit(en, &q, &others[i / N_POOLINGS].stream, &e) == 0, e.msg);
    }
    read_all(all, N, &bell);
    if (beside) read_all(others, N_TEXTS - 1, &bell);
    for (int i = 0; i < N; i++) {
        uint32_t n = 0;
        const float *got = engine_stream_embedding(all[i].stream, &n);
        CHECK(all[i].n_final == 1 && all[i].n_tokens == 0 && all[i].n_prompt_events == 0);
        CHECK(all[i].final.finish == ENGINE_FINISH_STOP && all[i].final.n_generated == 0);
        CHECK(all[i].final.n_prompt == lengths[i / N_POOLINGS]);
        CHECK(got && n == engine_model(en).n_embd);
        vectors[i].values = be_new(n, sizeof(float));
        if (got) memcpy(vectors[i].values, got, n * sizeof(float));
        vectors[i].reading = all[i];
    }
    free_all(all, N);
    if (beside) free_all(others, N_TEXTS - 1);
    free(all);
    free(others);
}

static struct vector alone[N_TEXTS * N_POOLINGS];

static void free_vectors(struct vector *v) {
    for (int i = 0; i < N_TEXTS * N_POOLINGS; i++)
        free(v[i].values);
}

static void check_same(engine *en, const char *what, bool beside) {
    struct vector *got = be_new(N_TEXTS * N_POOLINGS, sizeof *got);
    size_t bytes = engine_model(en).n_embd * sizeof(float);
    embed_all(en, got, beside);
    for (int i = 0; i < N_TEXTS * N_POOLINGS; i++)
        CHECK_MSG(!memcmp(got[i].values, alone[i].values, bytes), "%s: text %d, pooling %d differs",
                  what, i / N_POOLINGS, i % N_POOLINGS + 1);
    free_vectors(got);
    free(got);
}

/* The reference pools the float64 hidden states. */
static void check_reference(uint32_t n_embd) {
    double *hidden = be_new((uint64_t)MAX_TOKENS * n_embd, sizeof *hidden);
    double want[FORWARD64_MAX_WIDTH];
    struct forward64 f;
    gguf *g = llama64_open(model_path, &f);
    for (int i = 0; i < N_TEXTS * N_POOLINGS; i++) {
        uint32_t text = (uint32_t)i / N_POOLINGS, n = lengths[text];
        if (i % N_POOLINGS == 0) forward64_hidden(g, &f, texts[text], n, hidden);
        for (uint32_t c = 0; c < n_embd; c++) {
            double sum = 0;
            for (uint32_t t = 0; t < n; t++)
                sum += hidden[t * n_embd + c];
            want[c] = i % N_POOLINGS + 1 == ENGINE_POOLING_MEAN  ? sum / n
                      : i % N_POOLINGS + 1 == ENGINE_POOLING_CLS ? hidden[c]
                                                                 : hidden[(n - 1) * n_embd + c];
        }
        double worst = worst_difference(alone[i].values, want, n_embd);
        CHECK_MSG(worst <= 1e-4, "text %u, pooling %d: off by %g", text, i % N_POOLINGS + 1, worst);
    }
    gguf_close(g);
    free(hidden);
}

static void vectors_are_pooled_hidden_states(void) {
    struct engine_config c = base_config();
    err e = {0};
    if (has_reference)
        runner_need(gguf_make_tiny_llama(model_path, &(struct tiny_llama){.seed = 21}, &e), &e);
    c.prefix_cache = false;
    c.max_sequences = 1;
    c.max_batch_tokens = 160;
    engine *en = kit_open(&c);
    uint32_t n_embd = engine_model(en).n_embd;
    for (int i = 0; i < N_TEXTS; i++)
        random_tokens(texts[i], lengths[i], engine_model(en).n_vocab);
    memcpy(texts[7], texts[8], 100 * sizeof **texts); /* a common beginning */
    embed_all(en, alone, false);
    if (has_reference) check_reference(n_embd);
    kit_close(en);
}

/* Scores: the float64 logit of one word less that of another, in chunks and among others. */
static void check_scores(engine *en, const double *want) {
    struct reading r[N_TEXTS] = {0};
    err e = {0};
    for (int i = 0; i < N_TEXTS; i++) {
        struct engine_request q = request(i, ENGINE_POOLING_RANK);
        be_need(engine_submit(en, &q, &r[i].stream, &e) == 0, e.msg);
    }
    read_all(r, N_TEXTS, &bell);
    for (int i = 0; i < N_TEXTS; i++) {
        uint32_t n = 0;
        const float *got = engine_stream_embedding(r[i].stream, &n);
        CHECK(r[i].final.finish == ENGINE_FINISH_STOP && n == 1);
        CHECK_MSG(got && fabs((double)*got - want[i]) <= 1e-4, "text %d: %g, expected %g", i,
                  got ? (double)*got : 0, want[i]);
    }
    free_all(r, N_TEXTS);
}

static void scores_are_differences_of_logits(void) {
    static const uint32_t sizes[][2] = {{160, 160}, {17, 5}};
    double want[N_TEXTS],
        *hidden = be_new((uint64_t)MAX_TOKENS * FORWARD64_MAX_WIDTH, sizeof *hidden);
    struct forward64 f;
    err e = {0};
    if (!has_reference) return;
    for (int tied = 0; tied < 2; tied++) {
        const struct tiny_llama shape = {.seed = 23, .tied = tied, .reranks = true};
        runner_need(gguf_make_tiny_llama(model_path, &shape, &e), &e);
        gguf *g = llama64_open(model_path, &f);
        const gguf_tensor *t = gguf_tensor_find(g, tied ? "token_embd.weight" : "output.weight");
        const float *yes = (const float *)t->data + (uint64_t)GGUF_MAKE_FIRST_LETTER * f.n_embd;
        for (int i = 0; i < N_TEXTS; i++) {
            forward64_hidden(g, &f, texts[i], lengths[i], hidden);
            want[i] = 0;
            for (uint32_t c = 0; c < f.n_embd; c++)
                want[i] += hidden[(lengths[i] - 1) * f.n_embd + c] *
                           ((double)yes[c] - (double)yes[c + f.n_embd]);
        }
        gguf_close(g);
        for (int s = 0; s < 2; s++) {
            struct engine_config c = base_config();
            c.max_batch_tokens = sizes[s][0];
            c.prefill_chunk = sizes[s][1];
            engine *en = kit_open(&c);
            CHECK(engine_model(en).scores);
            check_scores(en, want);
            kit_close(en);
        }
    }
    free(hidden);
}

static void a_model_without_a_head_does_not_score(void) {
    struct engine_config c = base_config();
    engine *en = kit_open(&c);
    engine_stream *stream = NULL;
    struct engine_request q = request(0, ENGINE_POOLING_RANK);
    err e = {0};
    CHECK(!engine_model(en).scores && strstr(engine_model(en).scores_lack, "rerank"));
    CHECK(engine_submit(en, &q, &stream, &e) == ERR_UNSUPPORTED && !stream);
    kit_close(en);
}

static void same_in_chunks_and_among_others(void) {
    static const uint32_t sizes[][2] = {{17, 5}, {160, 160}, {300, 1}, {64, 7}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct engine_config c = base_config();
        c.max_batch_tokens = sizes[i][0];
        c.prefill_chunk = sizes[i][1];
        engine *en = kit_open(&c);
        check_same(en, "in chunks", i % 2);
        kit_close(en);
    }
}

/* While one text is computed, another one of higher priority takes its blocks: the worker submits
 * the second between two steps, so that the test does not depend on time. */
struct intrusion {
    engine *en;
    engine_stream *stream;
    enum engine_pooling pooling;
    int n_steps;
};

static void intrude(void *arg, const struct engine_step *step) {
    struct intrusion *in = arg;
    struct engine_request q = request(N_TEXTS - 2, in->pooling);
    err e = {0};
    (void)step;
    if (++in->n_steps != 3) return;
    q.params.priority = 1;
    be_need(engine_submit(in->en, &q, &in->stream, &e) == 0, e.msg);
}

static void check_vector(const struct reading *r, int text, enum engine_pooling pooling) {
    uint32_t n = 0;
    const float *got = engine_stream_embedding(r->stream, &n);
    const struct vector *want = &alone[text * N_POOLINGS + (int)pooling - 1];
    CHECK_MSG(got && !memcmp(got, want->values, n * sizeof *got), "text %d, pooling %d", text,
              (int)pooling);
}

static void same_after_preemption(void) {
    for (int pooling = 1; pooling <= N_POOLINGS; pooling++) {
        struct engine_config c = base_config();
        struct intrusion in = {.pooling = (enum engine_pooling)pooling};
        struct reading r[2] = {0};
        struct engine_stats s;
        struct engine_request q = request(N_TEXTS - 1, in.pooling);
        err e = {0};
        c.kv_cache_tokens = 176;
        c.max_batch_tokens = 16;
        c.on_step = intrude;
        c.on_step_arg = &in;
        engine *en = in.en = kit_open(&c);
        be_need(engine_submit(en, &q, &r[0].stream, &e) == 0, e.msg);
        read_all(r, 1, &bell); /* ends after the other one was submitted and preempted it */
        r[1].stream = in.stream;
        read_all(r + 1, 1, &bell);
        check_vector(&r[0], N_TEXTS - 1, in.pooling);
        check_vector(&r[1], N_TEXTS - 2, in.pooling);
        free_all(r, 2);
        engine_stats_get(en, &s);
        CHECK(s.preemptions_total == 1);
        kit_close(en);
    }
}

/* The last token's state needs no other row: cached rows are not computed again. A mean needs all
 * rows. */
static void same_on_a_prefix_hit(void) {
    struct engine_config c = base_config();
    struct vector *again = be_new(N_TEXTS * N_POOLINGS, sizeof *again);
    engine *en = kit_open(&c);
    check_same(en, "first run", false);
    check_same(en, "second run", false);
    embed_all(en, again, false);
    for (int i = 0; i < N_TEXTS * N_POOLINGS; i++) {
        uint32_t n = lengths[i / N_POOLINGS], n_cached = again[i].reading.final.n_cached;
        if (i % N_POOLINGS + 1 == ENGINE_POOLING_LAST)
            CHECK_MSG(n_cached + 16 >= n, "%u of %u", n_cached, n); /* all but a partial block */
        else
            CHECK(n_cached == 0);
    }
    kit_close(en);
    free_vectors(again);
    free(again);
}

static void nothing_before_the_end(void) {
    struct engine_config c = base_config();
    struct engine_request q = request(N_TEXTS - 1, ENGINE_POOLING_MEAN);
    struct reading r = {0};
    uint32_t n;
    err e = {0};
    engine *en = kit_open(&c);
    be_need(engine_submit(en, &q, &r.stream, &e) == 0, e.msg);
    CHECK(!engine_stream_embedding(r.stream, &n)); /* its final event was not read */
    engine_stream_cancel(r.stream);
    read_all(&r, 1, &bell);
    CHECK((engine_stream_embedding(r.stream, &n) != NULL) ==
          (r.final.finish == ENGINE_FINISH_STOP));
    free_all(&r, 1);
    q = request(0, ENGINE_POOLING_NONE);
    q.params.max_tokens = 1;
    memset(&r, 0, sizeof r);
    be_need(engine_submit(en, &q, &r.stream, &e) == 0, e.msg);
    read_all(&r, 1, &bell);
    CHECK(!engine_stream_embedding(r.stream, &n));
    free_all(&r, 1);
    q = request(0, ENGINE_POOLING_MEAN);
    q.n_choices = 2;
    CHECK(engine_submit(en, &q, &r.stream, &e) == ERR_INVALID);
    q = request(N_TEXTS - 1, ENGINE_POOLING_NONE); /* no context left for an answer */
    CHECK(engine_submit(en, &q, &r.stream, &e) == ERR_TOO_LONG);
    kit_close(en);
}

int main(int argc, char **argv) {
    has_reference = argc <= 1;
    if (has_reference)
        snprintf(model_path, sizeof model_path, "/tmp/inferd-embeddings-%ld.gguf", (long)getpid());
    else
        snprintf(model_path, sizeof model_path, "%s", argv[1]);
    if (has_reference) RUN(hidden_states_are_the_models);
    RUN(vectors_are_pooled_hidden_states);
    RUN(same_in_chunks_and_among_others);
    RUN(same_after_preemption);
    RUN(same_on_a_prefix_hit);
    RUN(nothing_before_the_end);
    RUN(a_model_without_a_head_does_not_score);
    RUN(scores_are_differences_of_logits);
    free_vectors(alone);
    if (has_reference) unlink(model_path);
    return check_done();
}
