/* test_encoder.c - BERT, XLM-R, nomic-bert and ModernBERT: tokens, hidden states, vectors and
 * scores against transformers' (tests/golden/encoder), the same bits in any batch. */
#include "core/base/mem.h"
#include "core/engine/engine.h"
#include "core/formats/hf/model.h"
#include "core/formats/model_file.h"
#include "tests/support/engine_kit.h"
#include "tests/support/files.h"
#include "tests/support/forward_check.h"
#include "tests/support/manifest.h"

#include "check.h"

#include <unistd.h>

enum {
    N_PROMPTS = 4,
    N_PAIRS = 6,
    MAX_PROMPT = 130,
    MAX_WIDTH = 48,
    PATH_BYTES = 128,
    MAX_IDS = 1 << 16
};

static const struct row {
    const char *name;
    enum model_pooling pooling;
    const char *arch;
} rows[] = {{"bert-cls", MODEL_POOLING_CLS, "bert"},
            {"bert-mean", MODEL_POOLING_MEAN, "bert"},
            {"bert-rank", MODEL_POOLING_RANK, "bert"},
            {"xlmr-cls", MODEL_POOLING_CLS, "bert"},
            {"xlmr-mean", MODEL_POOLING_MEAN, "bert"},
            {"xlmr-rank", MODEL_POOLING_RANK, "bert"},
            {"nomic-mean", MODEL_POOLING_MEAN, "nomic-bert"},
            {"nomic-small", MODEL_POOLING_MEAN, "nomic-bert"},
            {"modern-cls", MODEL_POOLING_CLS, "modern-bert"},
            {"modern-mean", MODEL_POOLING_MEAN, "modern-bert"},
            {"modern-rank", MODEL_POOLING_RANK, "modern-bert"},
            {"modern-rank-cls", MODEL_POOLING_RANK, "modern-bert"}};
enum { N_MODELS = sizeof rows / sizeof rows[0] };

static struct golden {
    char folder[PATH_BYTES];
    struct prompt {
        int32_t ids[MAX_PROMPT];
        uint32_t n, second;
        double value[MAX_WIDTH];    /* of length 1, or the logit */
    } prompts[N_PROMPTS + N_PAIRS]; /* those of ids, then those of pairs */
    uint32_t n, width;              /* width 1: it scores */
    float *hidden;                  /* (tokens of the first N_PROMPTS, width) or NULL */
    cJSON *json;
} goldens[N_MODELS];

static void read_prompt(struct golden *g, const cJSON *item) {
    struct prompt *p = &g->prompts[g->n++];
    const cJSON *v = cJSON_GetObjectItem(item, "value")->child, *type;
    p->n = file_json_ints(cJSON_GetObjectItem(item, "ids"), p->ids, MAX_PROMPT);
    for (g->width = 0; v && g->width < MAX_WIDTH; v = v->next)
        p->value[g->width++] = v->valuedouble;
    uint32_t at = 0;
    cJSON_ArrayForEach(type, cJSON_GetObjectItem(item, "types")) {
        if (type->valueint && !p->second) p->second = at;
        at++;
    }
}

static void read_goldens(void) {
    for (int i = 0; i < N_MODELS; i++) {
        struct golden *g = &goldens[i];
        char path[PATH_BYTES];
        const cJSON *item;
        size_t bytes;
        snprintf(g->folder, sizeof g->folder, "tests/golden/encoder/%s/hf", rows[i].name);
        snprintf(path, sizeof path, "tests/golden/encoder/%s/golden.json", rows[i].name);
        g->json = file_json(path);
        be_need(g->json != NULL, path);
        cJSON_ArrayForEach(item, cJSON_GetObjectItem(g->json, "prompts")) read_prompt(g, item);
        cJSON_ArrayForEach(item, cJSON_GetObjectItem(g->json, "pairs")) read_prompt(g, item);
        be_need(g->n >= N_PROMPTS && g->width, path);
        if (g->width == 1) continue;
        snprintf(path, sizeof path, "tests/golden/encoder/%s/hidden.f32", rows[i].name);
        g->hidden = (float *)(void *)file_read(path, &bytes);
        be_need(g->hidden && bytes == (1 + 7 + 33 + 130) * g->width * sizeof(float), path);
    }
}

/* All prompts in one step: each row as transformers has it, and the bits of a step of its own. */
static void check_hidden(const struct golden *g, const struct row *row, const char *isa,
                         uint32_t n_ranks) {
    struct runner r;
    struct piece all[N_PROMPTS];
    float *alone[N_PROMPTS];
    const float *want = g->hidden;
    runner_open(&r, &(struct runner_config){.path = g->folder,
                                            .isa = isa,
                                            .n_threads = 3,
                                            .kv_type = QTYPE_F32,
                                            .max_rows = 200,
                                            .n_ranks = n_ranks,
                                            .max_tokens = MAX_PROMPT});
    CHECK(r.hp.both_ways && r.hp.encoder.on && r.hp.n_embd == g->width);
    CHECK(r.hp.pooling == row->pooling && strcmp(r.hp.arch, row->arch) == 0);
    for (uint32_t i = 0; i < N_PROMPTS; i++) {
        const struct prompt *p = &g->prompts[i];
        const uint32_t n = p->n * g->width;
        all[i] = (struct piece){.tokens = p->ids, .n = p->n, .sequence = i};
        const float *got = runner_run(&r, &all[i], 1, true, 1).hidden;
        double worst = 0;
        for (uint32_t c = 0; c < n; c++) {
            const double d = fabs((double)got[c] - (double)want[c]);
            if (!(d <= worst)) worst = d;
        }
        /* These weights make attention sharp, which multiplies the rounding of 16-bit products. */
        CHECK_MSG(worst <= fmax(3e-4, 4 * forward_tolerance(&r, want, n, 0)),
                  "%s, %s: %u tokens: off by %g", row->name, isa, p->n, worst);
        alone[i] = be_new(n, sizeof *alone[i]);
        memcpy(alone[i], got, n * sizeof *got);
        want += n;
    }
    const float *got = runner_run(&r, all, N_PROMPTS, true, N_PROMPTS).hidden;
    for (uint32_t i = 0; i < N_PROMPTS; got += g->prompts[i++].n * g->width)
        CHECK(memcmp(got, alone[i], g->prompts[i].n * g->width * sizeof *got) == 0);
    for (uint32_t i = 0; i < N_PROMPTS; i++)
        free(alone[i]);
    runner_close(&r);
}

static void hidden_states_are_transformers(void) {
    for (int k = 0; k < BE_N_ISAS; k++)
        for (int i = 0; i < N_MODELS; i++)
            if (goldens[i].hidden && be_has(be_isas[k], 8, QTYPE_F32))
                check_hidden(&goldens[i], &rows[i], be_isas[k], 1);
}

/* Those with two heads, on two ranks. */
static void ranks_share_encoders(void) {
    for (int i = 0; i < N_MODELS; i++)
        if (goldens[i].hidden && goldens[i].width == 32 && be_has_ranks("generic", 2))
            check_hidden(&goldens[i], &rows[i], "generic", 2);
}

static int add_no_keys(void *arg, gguf_writer *w, err *e) {
    (void)arg, (void)w, (void)e;
    return 0;
}

/* The files of llama.cpp's converter again, of its keys and the folders' tensors. */
static void files_are_read(void) {
    static struct manifest m;
    for (int i = 0; i < N_MODELS; i++) {
        struct golden file = goldens[i];
        struct model_hparams hp;
        char path[PATH_BYTES];
        gguf *folder;
        err e = {0};
        snprintf(path, sizeof path, "tests/golden/encoder/%s/converter.txt", rows[i].name);
        manifest_read(path, &m);
        CHECK(m.n > 0);
        snprintf(file.folder, sizeof file.folder, "/tmp/inferd-test-encoder-%d.gguf",
                 (int)getpid());
        be_need(!model_file_open(goldens[i].folder, GGUF_OPEN_AS_FILE, &folder, &e), e.msg);
        be_need(!manifest_write_file(&m, folder, add_no_keys, NULL, file.folder, &e), e.msg);
        CHECK_MSG(!model_read_hparams(file.folder, &hp, &e) && hp.pooling == rows[i].pooling, "%s",
                  e.msg);
        if (file.hidden) check_hidden(&file, &rows[i], be_isas[0], 1);
        unlink(file.folder);
        gguf_close(folder);
        manifest_free(&m);
    }
}

/* ---- the engine ---- */

static struct engine_config config_of(const struct golden *g) {
    struct engine_config c = kit_config(g->folder);
    c.kv_type = QTYPE_F32;
    c.activation_bits = 16;
    c.context_length = 140;
    c.max_batch_tokens = 140;
    c.max_sequences = 6;
    return c;
}

/* values (n, width): number i is prompt i % g->n. */
static void run_all(engine *en, const struct golden *g, int n, float *values) {
    struct reading *all = be_new((size_t)n, sizeof *all);
    const enum engine_pooling pooling =
        g->width == 1 ? ENGINE_POOLING_RANK : engine_model(en).pooling;
    err e = {0};
    for (int i = 0; i < n; i++) {
        const struct prompt *p = &g->prompts[(uint32_t)i % g->n];
        struct engine_request q = {.prompt = p->ids,
                                   .n_prompt = p->n,
                                   .n_choices = 1,
                                   .pooling = pooling,
                                   .second_from = p->second,
                                   .notify = bell_ring,
                                   .notify_arg = &bell};
        engine_params_default(&q.params);
        be_need(engine_submit(en, &q, &all[i].stream, &e) == 0, e.msg);
    }
    read_all(all, n, &bell);
    for (int i = 0; i < n; i++) {
        uint32_t width = 0;
        const float *got = engine_stream_embedding(all[i].stream, &width);
        CHECK_MSG(all[i].final.finish == ENGINE_FINISH_STOP && got && width == g->width, "%s",
                  all[i].final.error.msg);
        if (got) memcpy(values + (uint32_t)i * g->width, got, width * sizeof *got);
    }
    free_all(all, n);
    free(all);
}

static void check_values(const struct golden *g, const char *name, const float *got) {
    for (uint32_t i = 0; i < g->n; i++) {
        const float *v = got + i * g->width;
        double length = 0;
        for (uint32_t k = 0; k < g->width; k++)
            length += (double)v[k] * (double)v[k];
        if (g->width == 1) length = 1;
        for (uint32_t k = 0; k < g->width; k++) {
            const double d = fabs((double)v[k] / sqrt(length) - g->prompts[i].value[k]);
            CHECK_MSG(d <= (g->width == 1 ? 3e-4 : 1e-4), "%s, prompt %u, %u: off by %g", name, i,
                      k, d);
        }
    }
}

static void values_are_transformers(void) {
    enum { MOST = N_PROMPTS + N_PAIRS, MANY = 5 * MOST };
    static float alone[MOST * MAX_WIDTH], got[MANY * MAX_WIDTH];
    for (int i = 0; i < N_MODELS; i++) {
        const struct golden *g = &goldens[i];
        struct engine_config c = config_of(g);
        c.max_sequences = 1;
        engine *en = kit_open(&c);
        CHECK(engine_model(en).scores == (g->width == 1) && engine_model(en).only_embeds);
        run_all(en, g, (int)g->n, alone);
        check_values(g, rows[i].name, alone);
        kit_close(en);
        c = config_of(g);
        c.max_queue = MANY;
        en = kit_open(&c);
        run_all(en, g, (int)(5 * g->n), got);
        for (uint32_t k = 0; k < 5 * g->n; k++)
            CHECK_MSG(
                !memcmp(got + k * g->width, alone + k % g->n * g->width, g->width * sizeof *got),
                "%s: request %u of many", rows[i].name, k);
        kit_close(en);
    }
    CHECK(mem_guard_violations() == 0);
}

/* ---- config.json ---- */

#define NOMIC(more)                                                                                \
    "{\"model_type\":\"nomic_bert\",\"n_layer\":2,\"n_embd\":64,\"n_head\":4,\"n_inner\":96,"      \
    "\"n_positions\":8192,\"layer_norm_epsilon\":1e-6,\"activation_function\":\"swiglu\","         \
    "\"rotary_emb_base\":1000,\"rotary_emb_fraction\":1.0,\"rotary_emb_scale_base\":null" more "}"
#define SIZES                                                                                      \
    "\"num_hidden_layers\":7,\"hidden_size\":64,\"num_attention_heads\":4,"                        \
    "\"intermediate_size\":96,\"max_position_embeddings\":514"
#define BERT(more)   "{\"model_type\":\"bert\"," SIZES more "}"
#define MODERN(more) "{\"model_type\":\"modernbert\"," SIZES more "}"

static gguf *open_config(const char *json, err *e) {
    gguf *g = NULL;
    *e = (err){0};
    return hf_config_open_memory(json, strlen(json), &g, e) ? NULL : g;
}

/* The members of nomic's own code and of transformers 4. */
static void old_members_are_read(void) {
    err e;
    uint64_t n;
    double v;
    gguf *g = open_config(NOMIC(""), &e);
    be_need(g != NULL, e.msg);
    CHECK(!gguf_get_u64(g, "nomic-bert.context_length", &n, &e) && n == 2048); /* as trained */
    CHECK(!gguf_get_u64(g, "nomic-bert.feed_forward_length", &n, &e) && n == 96);
    CHECK(!gguf_get_f64(g, "nomic-bert.rope.freq_base", &v, &e) && v == 1000);
    gguf_close(g);
    g = open_config(MODERN(",\"global_rope_theta\":80000.0,\"local_rope_theta\":5000.0,"
                           "\"global_attn_every_n_layers\":2,\"local_attention\":64"),
                    &e);
    be_need(g != NULL, e.msg);
    CHECK(!gguf_get_f64(g, "modern-bert.rope.freq_base", &v, &e) && v == 80000);
    CHECK(!gguf_get_f64(g, "modern-bert.rope.freq_base_swa", &v, &e) && v == 5000);
    CHECK(!gguf_get_u64(g, "modern-bert.attention.sliding_window", &n, &e) && n == 64);
    for (uint64_t i = 0; i < 7; i++)
        CHECK(gguf_array_i64(g, "modern-bert.attention.sliding_window_pattern", i) ==
              (int64_t)i % 2);
    gguf_close(g);
    g = open_config("{\"model_type\":\"xlm-roberta\",\"pad_token_id\":1," SIZES "}", &e);
    be_need(g != NULL, e.msg);
    CHECK(!gguf_get_u64(g, "bert.context_length", &n, &e) && n == 512);
    gguf_close(g);
}

static void unknown_members_are_refused(void) {
    static const char *const refused[][2] = {
        {NOMIC(",\"moe_every_n_layers\":2"), "moe_every_n_layers"},
        {NOMIC(",\"prenorm\":true"), "prenorm"},
        {NOMIC(",\"parallel_block\":true"), "parallel_block"},
        {NOMIC(",\"rotary_emb_interleaved\":true"), "rotary_emb_interleaved"},
        {BERT(",\"is_decoder\":true"), "is_decoder"},
        {BERT(",\"hidden_act\":\"relu\""), "'relu' is not supported"},
        {BERT(",\"position_embedding_type\":\"relative_key\""), "position_embedding_type"},
        {BERT(",\"architectures\":[\"BertForSequenceClassification\"]"), "with one class"},
        {BERT(",\"architectures\":[\"BertForSequenceClassification\"],\"id2label\":{\"0\":\"a\","
              "\"1\":\"b\",\"2\":\"c\"}"),
         "with one class"},
        {BERT(",\"quantization_config\":{\"quant_method\":\"hqq\"}"), "quantized"},
        {MODERN(",\"rope_scaling\":{\"type\":\"yarn\"}"), "rope_scaling"},
        {"{\"model_type\":\"bert\",\"hidden_size\":64}", "'num_hidden_layers' is missing"},
        {"{\"model_type\":\"deberta-v2\"}", "lacks disentangled attention"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        err e;
        gguf *g = open_config(refused[i][0], &e);
        CHECK_MSG(!g && strstr(e.msg, refused[i][1]), "%s: %s", refused[i][0], e.msg);
        gguf_close(g);
    }
}

/* ---- tokens ---- */

/* around: without the first and the last of want, which are around the text. */
static bool same_list(const int32_t *ids, size_t n, const cJSON *want, bool around) {
    const cJSON *item = around ? want->child->next : want->child;
    if ((int)n != cJSON_GetArraySize(want) - 2 * around) return false;
    for (size_t i = 0; i < n; i++, item = item->next)
        if (ids[i] != item->valueint) return false;
    return true;
}

static void tokens_are_the_librarys(void) {
    for (int i = 0; i < N_MODELS; i++) {
        const cJSON *item;
        tokenizer *t = NULL;
        int32_t *ids;
        size_t n, second;
        err e = {0};
        be_need(tokenizer_open(goldens[i].folder, &t, &e) == 0, e.msg);
        cJSON_ArrayForEach(item, cJSON_GetObjectItem(goldens[i].json, "texts")) {
            const char *text = cJSON_GetObjectItem(item, "text")->valuestring;
            be_need(tokenizer_encode(t, text, strlen(text), TOKENIZER_PARSE_SPECIAL, MAX_IDS, &ids,
                                     &n, &e) == 0,
                    e.msg);
            CHECK_MSG(same_list(ids, n, cJSON_GetObjectItem(item, "ids"), true), "%s: %s",
                      rows[i].name, text);
            free(ids);
        }
        uint32_t pair = N_PROMPTS;
        cJSON_ArrayForEach(item, cJSON_GetObjectItem(goldens[i].json, "pairs")) {
            const char *a = cJSON_GetObjectItem(item, "query")->valuestring,
                       *b = cJSON_GetObjectItem(item, "document")->valuestring;
            const struct tokenizer_text both[2] = {{a, strlen(a)}, {b, strlen(b)}};
            be_need(tokenizer_encode_pair(t, both, MAX_IDS, &ids, &n, &second, &e) == 0, e.msg);
            CHECK_MSG(same_list(ids, n, cJSON_GetObjectItem(item, "ids"), false), "%s: %s, %s",
                      rows[i].name, a, b);
            const uint32_t from = goldens[i].prompts[pair++].second;
            CHECK(!from || from == second);
            free(ids);
        }
        tokenizer_close(t);
    }
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    bell_init(&bell);
    read_goldens();
    RUN(hidden_states_are_transformers);
    RUN(ranks_share_encoders);
    RUN(files_are_read);
    RUN(old_members_are_read);
    RUN(unknown_members_are_refused);
    if (!be_only) RUN(values_are_transformers);
    if (!be_only) RUN(tokens_are_the_librarys);
    for (int i = 0; i < N_MODELS; i++) {
        cJSON_Delete(goldens[i].json);
        free(goldens[i].hidden);
    }
    bell_fini(&bell);
    return check_done();
}
