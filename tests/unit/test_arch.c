/* test_arch.c - every architecture against transformers' float32 results for the same weights
 * (tests/golden/arch, see its README): logits, most likely tokens and greedy answers, from the
 * Hugging Face folder and from the GGUF file; in one step, in chunks, in a mixed batch, and through
 * the engine with prefix-cache hits. Arguments: "only=DEVICE" selects the device (be.h); "quick"
 * leaves out long prompts with generic kernels, and takes one model of each kind to two ranks;
 * "models=TEXT,..." the models with one of the texts in their name; "table" prints the errors as
 * Markdown, "table FOLDER" those of other folders written by make.py. */
#include "core/engine/engine.h"
#include "core/formats/model_file.h"
#include "core/formats/quantize/quantize.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/support/device_models.h"
#include "tests/support/engine_kit.h"
#include "tests/support/files.h"
#include "tests/support/manifest.h"
#include "tests/support/runner.h"
#include "tests/unit/check.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <math.h>
#include <unistd.h>

static const char *golden = "tests/golden/arch", *chosen = "";

/* A served context of SHORT or LONG tokens: it selects the rotary factors of models with long and
 * short ones; in transformers the prompt does. */
enum { SHORT = 64, LONG = 160, LONGEST = 1536 };
enum { MAX_MODELS = 128, MIN_PROMPTS = 4, MAX_PROMPTS = 6, MAX_PROMPT = 1500, MAX_GREEDY = 16 };

/* Products with quantized weights round their input (activation-bits), even to 16 bits. On a device
 * whose products have 16 bits (be_logit_error) two tokens may swap ranks if their logits differ by
 * less than that. */
static const double tolerance = 1e-3, tolerance_quantized = 1e-2;
static uint32_t n_positions, n_swapped, n_beyond;

struct prompt {
    int32_t
        ids[MAX_PROMPT + MAX_GREEDY]; /* (n + n_greedy): the prompt, then the reference's answer */
    uint32_t n, n_greedy, n_rows;
    uint32_t rows[MAX_PROMPT]; /* positions with stored logits */
    const float *logits;       /* (n_rows, n_vocab) */
};

struct golden {
    char name[64];
    uint32_t n_vocab;
    struct prompt prompts[MAX_PROMPTS];
    uint32_t n_prompts;
    bool has_file; /* a GGUF file, too; else the folder takes its place */
    char made[64]; /* not empty: the file, made of the folder and of the converter's keys */
    char f32[64];  /* not empty: a file of it in F32, which takes the place of both */
    bool divides;  /* among two ranks */
    uint32_t kind; /* of its forward pass (read_kind) */
    bool first;    /* of those that divide and have its kind */
    float *logits;
    double worst[2]; /* of the folder; of the file, with the generic kernels */
};

static struct golden models[MAX_MODELS];
static uint32_t n_models, n_found; /* on this device, of all */
static int n_files = 2;
static uint32_t n_ranks = 1;
static const char *const files[] = {"hf", "model.gguf"};

/* ---- reading ---- */

static char *read_of(const char *name, const char *file, size_t *n) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s/%s", golden, name, file);
    char *data = file_read(path, n);
    if (data) return data;
    fprintf(stderr, "cannot read %s\n", path);
    exit(1);
}

static void read_golden(struct golden *g) {
    size_t n;
    char *text = read_of(g->name, "golden.json", &n);
    cJSON *json = cJSON_Parse(text);
    const cJSON *all = cJSON_GetObjectItem(json, "prompts"), *item;
    uint64_t at = 0, i = 0;
    char file[256];
    snprintf(file, sizeof file, "%s/%s/model.gguf", golden, g->name);
    g->has_file = access(file, R_OK) == 0;
    g->n_vocab = (uint32_t)cJSON_GetNumberValue(cJSON_GetObjectItem(json, "n_vocab"));
    g->logits = (float *)(void *)read_of(g->name, "logits.f32", &n);
    cJSON_ArrayForEach(item, all) {
        struct prompt *p = &g->prompts[i++ % MAX_PROMPTS];
        p->n = file_json_ints(cJSON_GetObjectItem(item, "ids"), p->ids, MAX_PROMPT);
        p->n_greedy =
            file_json_ints(cJSON_GetObjectItem(item, "greedy"), p->ids + p->n, MAX_GREEDY);
        p->n_rows =
            file_json_ints(cJSON_GetObjectItem(item, "rows"), (int32_t *)p->rows, MAX_PROMPT);
        p->logits = g->logits + at;
        at += (uint64_t)p->n_rows * g->n_vocab;
    }
    g->n_prompts = (uint32_t)i;
    CHECK(i >= MIN_PROMPTS && i <= MAX_PROMPTS && at * sizeof(float) == n);
    cJSON_Delete(json);
    free(text);
}

static const char *model_path(const struct golden *g, int file) {
    static char path[256];
    if (*g->f32) return g->f32;
    if (file && *g->made) return g->made;
    snprintf(path, sizeof path, "%s/%.63s/%s", golden, g->name, files[g->has_file ? file : 0]);
    return path;
}

static int add_tokenizer(void *arg, gguf_writer *w, err *e) {
    const struct golden *g = arg;
    return tokenizer_write_gguf(model_path(g, 0), g->n_vocab, w, e);
}

/* Of these llama.cpp's converter writes files that say less than the folders (their README). */
static bool says_less(const char *name) {
    static const char *const names[] = {
        "deepseek3",         "ernie4_5-moe", "falcon-h1-norm",     "glm4-moe-lite",  "gpt2-inner",
        "granitehybrid-moe", "laguna",       "kimi-linear-groups", "laguna-element", "laguna-full",
        "lfm2moe-scaled",    "llama4",       "llama4-dense",       "llama4-vision",  "mistral4",
        "mistral4-dense",    "phimoe",       "starcoder2-window",  "phimoe-window"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* The converter's file again: its keys by converter.txt, and the folder's tensors, whose bytes are
 * the same (test_hf_manifest). */
static void make_file(struct golden *g) {
    static struct manifest m;
    char path[256];
    gguf *folder;
    err e = {0};
    snprintf(path, sizeof path, "%s/%s/converter.txt", golden, g->name);
    if (!g->has_file) manifest_read(path, &m);
    if (!m.n || says_less(g->name)) return manifest_free(&m);
    snprintf(path, sizeof path, "/tmp/inferd-test-arch-%d-%.20s.gguf", (int)getpid(), g->name);
    runner_need(model_file_open(model_path(g, 0), GGUF_OPEN_AS_FILE, &folder, &e), &e);
    runner_need(manifest_write_file(&m, folder, add_tokenizer, g, path, &e), &e);
    snprintf(g->made, sizeof g->made, "%.63s", path);
    gguf_close(folder);
    manifest_free(&m);
}

/* Gemma 4's random goldens amplify what a device whose products have 16 bits rounds off: float64
 * that rounds the inputs of products to 11 bits is off by up to 12 % of the logits' rms, at the
 * same positions, and experts change places. Phi-3.5-MoE's mixer leaves experts out beyond a
 * distance of scores, so that a rounding there changes the weights of all others. MiMo 2's and Muse
 * Glimmer's are beyond the tolerance at three positions of 472. They run in F32 on such a device,
 * whose products do not round then, within the tolerance of the CPU. */
static bool amplifies(const struct golden *g, const struct model_hparams *hp) {
    return hp->gemma4.on || hp->experts.gating == BACKEND_GATING_MIXER ||
           strncmp(g->name, "mimo2", 5) == 0 || strncmp(g->name, "muse", 4) == 0;
}

static void avoid_rounding(struct golden *g) {
    struct quantize_options options = {.type = "F32", .pure = true};
    struct quantize_plan *plan = NULL;
    struct model_hparams hp;
    gguf *file;
    err e = {0};
    if (!be_only || strcmp(be_only, "cuda") != 0) return;
    runner_need(model_read_hparams(model_path(g, 0), &hp, &e), &e);
    if (!amplifies(g, &hp)) return;
    runner_need(model_file_open(model_path(g, 0), 0, &file, &e), &e);
    runner_need(quantize_plan_new(file, &options, &plan, &e), &e);
    char path[sizeof g->f32];
    snprintf(path, sizeof path, "/tmp/inferd-test-arch-%d-%.20s-f32.gguf", (int)getpid(), g->name);
    const struct quantize_output out = {
        .path = path, .n_threads = 1, .add_keys = add_tokenizer, .arg = g};
    runner_need(quantize_run(plan, &out, &e), &e);
    memcpy(g->f32, path, sizeof path);
    quantize_plan_free(plan);
    gguf_close(file);
}

/* Does g divide among ranks, and what is its forward pass made of: bits for flags of layers,
 * experts, each kind of recurrent layer and quantized weights. Models of one kind take the same
 * ops. */
static void read_kind(struct golden *g) {
    struct model_hparams hp;
    err e = {0};
    runner_need(model_read_hparams(model_path(g, 1), &hp, &e), &e);
    g->divides = model_ranks_check(&hp, 2, &e) == 0;
    for (uint32_t i = 0; i < hp.n_layers; i++)
        g->kind |= hp.layers[i];
    const bool bits[] = {hp.experts.n_experts > 0,  hp.recurrent.n_layers > 0,
                         hp.recurrent.channels > 0, hp.recurrent.mamba2,
                         hp.recurrent.tiled,        hp.attention_gate,
                         hp.attn_softcap > 0,       strcmp(hp.quant, "F32") != 0};
    for (uint32_t i = 0; i < sizeof bits; i++)
        g->kind |= (uint32_t)bits[i] << (8 + i);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct golden *)a)->name, ((const struct golden *)b)->name);
}

static bool is_chosen(const char *name) {
    for (const char *at = chosen; *at;) {
        const size_t n = strcspn(at, ",");
        char text[64];
        snprintf(text, sizeof text, "%.*s", (int)n, at);
        if (strstr(name, text)) return true;
        at += n + (at[n] == ',');
    }
    return !*chosen;
}

static void find_models(void) {
    DIR *d = opendir(golden);
    const struct dirent *entry;
    while (d && (entry = readdir(d)) && n_models < MAX_MODELS) {
        struct golden *g = &models[n_models];
        if (entry->d_name[0] == '.' || strstr(entry->d_name, ".md") || !is_chosen(entry->d_name))
            continue;
        snprintf(g->name, sizeof g->name, "%.63s", entry->d_name);
        n_found++;
        n_models += device_serves(model_path(g, 0));
    }
    if (d) closedir(d);
    qsort(models, n_models, sizeof *models, by_name);
    for (uint32_t i = 0; i < n_models; i++) {
        read_golden(&models[i]);
        make_file(&models[i]);
        avoid_rounding(&models[i]);
        read_kind(&models[i]);
        models[i].first = models[i].divides;
        for (uint32_t k = 0; k < i; k++)
            models[i].first &= !models[k].divides || models[k].kind != models[i].kind;
    }
}

/* On two ranks only the division of sums differs: quick sets take one model of each kind there. */
static bool is_left_out(const struct golden *g) {
    return n_ranks > 1 && !(be_quick ? g->first : g->divides);
}

/* ---- running ---- */

static void open_model_kv(struct runner *r, const struct golden *g, int file, uint32_t context,
                          const char *isa, int kv_type) {
    runner_open(r, &(struct runner_config){.path = model_path(g, file),
                                           .isa = isa,
                                           .n_threads = 2,
                                           .n_ranks = n_ranks,
                                           .kv_type = kv_type,
                                           .max_rows = context > LONG ? LONGEST : 2 * LONG,
                                           .max_tokens = context});
}

static void open_model(struct runner *r, const struct golden *g, int file, uint32_t context,
                       const char *isa) {
    open_model_kv(r, g, file, context, isa, QTYPE_F32);
}

static uint32_t context_of(const struct prompt *p) {
    uint32_t n = p->n + p->n_greedy;
    return n <= SHORT ? SHORT : n <= LONG ? LONG : LONGEST;
}

static uint32_t most_likely(const float *logits, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* On a device of less precision two experts with nearly the same score may change places: there at
 * most one position in NEAR_TIE_POSITIONS of a file, rounded up, may exceed the tolerance, by at
 * most NEAR_TIE_FACTOR. */
enum { NEAR_TIE_POSITIONS = 200, NEAR_TIE_FACTOR = 4 };

static bool is_quantized(const struct golden *g) {
    return strstr(g->name, "mxfp4") != NULL;
}

/* What the device's arithmetic may add to a logit of this row. */
static double device_error(const struct runner *r, const float *row) {
    double squares = 0;
    for (uint32_t v = 0; v < r->hp.n_vocab; v++)
        squares += (double)row[v] * row[v];
    return be_logit_error(r->be, r->hp.quant, QTYPE_F32, r->hp.n_layers) *
           sqrt(squares / r->hp.n_vocab);
}

static void check_row(struct golden *g, int file, uint32_t row, const struct runner *r,
                      const float *got, const float *want) {
    double worst = 0, device = device_error(r, want);
    for (uint32_t v = 0; v < g->n_vocab; v++) {
        double d = fabs((double)got[v] - want[v]);
        if (!(d <= worst)) worst = d;
    }
    uint32_t best = most_likely(got, g->n_vocab), right = most_likely(want, g->n_vocab);
    double margin = (double)want[right] - want[best];
    CHECK_MSG(best == right || margin < device, "%s/%s: another best token at %u, by %g", g->name,
              files[file], row, margin);
    n_positions++, n_swapped += best != right;
    if (!(worst <= g->worst[file])) g->worst[file] = worst;
    double allowed = fmax(device, is_quantized(g) ? tolerance_quantized : tolerance);
    bool near_ties = r->hp.experts.n_experts && device > tolerance;
    n_beyond += near_ties && worst > allowed;
    check_note_error(worst / (allowed * (near_ties ? NEAR_TIE_FACTOR : 1)));
    CHECK_MSG(worst <= allowed * (near_ties ? NEAR_TIE_FACTOR : 1),
              "%s/%s: logits at %u are off by %g", g->name, files[file], row, worst);
}

static void check_rows(struct golden *g, int file, const struct prompt *p, const struct runner *r,
                       const float *logits) {
    for (uint32_t i = 0; i < p->n_rows; i++)
        check_row(g, file, p->rows[i], r, logits + (uint64_t)p->rows[i] * g->n_vocab,
                  p->logits + (uint64_t)i * g->n_vocab);
}

/* ---- tests ---- */

static void test_logits(void) {
    for (uint32_t i = 0; i < n_models; i++)
        for (int file = is_left_out(&models[i]) ? n_files : 0; file < n_files; file++)
            for (uint32_t k = 0; k < models[i].n_prompts; k++) {
                const struct prompt *p = &models[i].prompts[k];
                bool generic = file && !be_only;
                struct runner r;
                if (be_quick && generic && p->n > LONG) continue;
                open_model(&r, &models[i], file, context_of(p), generic ? "generic" : "");
                struct piece piece = {.tokens = p->ids, .n = p->n};
                CHECK(r.hp.n_vocab == models[i].n_vocab);
                if (r.hp.n_vocab == models[i].n_vocab)
                    check_rows(&models[i], file, p, &r, runner_step(&r, &piece, 1, true));
                runner_close(&r);
            }
}

/* Logits of p's last token and of its greedy answer, (1 + n_greedy, n_vocab), step by step. */
static void decode(struct runner *r, const struct prompt *p, uint32_t sequence, float *out) {
    static const uint32_t sizes[] = {1, 5, 17, 2, 40};
    uint64_t n_vocab = r->hp.n_vocab;
    for (uint32_t at = 0, n, c = 0; at < p->n + p->n_greedy; at += n, c++) {
        n = at < p->n ? sizes[c % 5] : 1;
        if (at < p->n && n > p->n - at) n = p->n - at;
        struct piece piece = {.tokens = p->ids, .start = at, .n = n, .sequence = sequence};
        const float *last = runner_step(r, &piece, 1, false);
        if (at + n >= p->n) memcpy(out + (at + n - p->n) * n_vocab, last, n_vocab * sizeof *out);
    }
}

/* In chunks, then one token at a time: the same bits as in one step, and the reference's answer. */
static void test_chunks_and_answers(void) {
    for (uint32_t i = 0; i < n_models; i++)
        for (uint32_t k = 0; k < models[i].n_prompts && !is_left_out(&models[i]); k++) {
            const struct prompt *p = &models[i].prompts[k];
            uint32_t n = p->n + p->n_greedy, n_vocab = models[i].n_vocab;
            float *steps = calloc((uint64_t)(p->n_greedy + 1) * n_vocab, sizeof *steps);
            struct runner r;
            open_model(&r, &models[i], k % 2, context_of(p), "");
            decode(&r, p, 1, steps);
            struct piece whole = {.tokens = p->ids, .n = n, .sequence = 2};
            const float *at_once =
                runner_step(&r, &whole, 1, true) + (p->n - 1) * (uint64_t)n_vocab;
            CHECK_MSG(
                !memcmp(steps, at_once, (p->n_greedy + 1) * (uint64_t)n_vocab * sizeof *steps),
                "%s: chunks of %u tokens change bits", models[i].name, p->n);
            for (uint32_t t = 0; t < p->n_greedy; t++) {
                const float *row = steps + t * (uint64_t)n_vocab;
                uint32_t best = most_likely(row, n_vocab), right = (uint32_t)p->ids[p->n + t];
                CHECK_MSG(best == right || row[best] - row[right] < device_error(&r, row),
                          "%s: answer to %u tokens differs at %u", models[i].name, p->n, t);
            }
            runner_close(&r);
            free(steps);
        }
}

/* All prompts in one step, after prefixes of different lengths: the same bits as alone. */
static void test_mixed_batch(void) {
    static const uint32_t begun[MAX_PROMPTS] = {0, 3, 0, 101, 517, 1344};
    for (uint32_t i = 0; i < n_models; i++) {
        if (is_left_out(&models[i])) continue;
        uint64_t row = models[i].n_vocab * sizeof(float);
        float *alone = calloc(MAX_PROMPTS, row);
        struct piece pieces[MAX_PROMPTS];
        struct runner r;
        uint32_t n = models[i].n_prompts;
        open_model(&r, &models[i], i % 2, n > MIN_PROMPTS ? LONGEST : LONG, "");
        for (uint32_t k = 0; k < n; k++) {
            const struct prompt *p = &models[i].prompts[k];
            struct piece whole = {.tokens = p->ids, .n = p->n, .sequence = k};
            memcpy((char *)alone + k * row, runner_step(&r, &whole, 1, false), row);
        }
        for (uint32_t k = 0; k < n; k++) {
            const struct prompt *p = &models[i].prompts[k];
            struct piece prefix = {.tokens = p->ids, .n = begun[k], .sequence = k};
            if (begun[k]) runner_step(&r, &prefix, 1, false);
            pieces[k] = (struct piece){
                .tokens = p->ids, .start = begun[k], .n = p->n - begun[k], .sequence = k};
        }
        CHECK_MSG(!memcmp(alone, runner_step(&r, pieces, n, false), n * row),
                  "%s: a mixed batch changes bits", models[i].name);
        runner_close(&r);
        free(alone);
    }
}

static engine_stream *submit(engine *en, const struct prompt *p) {
    struct engine_request q = {.prompt = p->ids,
                               .n_prompt = p->n,
                               .n_choices = 1,
                               .notify = bell_ring,
                               .notify_arg = &bell};
    engine_stream *s = NULL;
    engine_params_default(&q.params);
    q.params.sampling.temperature = 0;
    q.params.max_tokens = p->n_greedy;
    q.params.ignore_eos = true;
    kit_submit(en, &q, &s);
    return s;
}

static void check_answer(const struct golden *g, const struct prompt *p, engine_stream *s,
                         bool want_hit) {
    struct reading got = {.stream = s};
    if (!s) return;
    read_all(&got, 1, &bell);
    CHECK(got.n_tokens == (int)p->n_greedy && got.final.finish == ENGINE_FINISH_LENGTH);
    CHECK_MSG(!memcmp(got.tokens, p->ids + p->n, p->n_greedy * sizeof *p->ids),
              "%s: the engine answers %u tokens otherwise", g->name, p->n);
    CHECK_MSG(!want_hit || got.final.n_cached > 0, "%s: no prefix hit", g->name);
    free_all(&got, 1);
}

/* p with the answer that the device gives without the engine: two tokens may swap ranks there. */
static struct prompt own_answer(const struct golden *g, int file, const struct prompt *p) {
    struct prompt own = *p;
    struct runner r;
    open_model_kv(&r, g, file, SHORT, "", QTYPE_F16);
    for (uint32_t t = 0, at = 0; t < p->n_greedy; at = p->n + t, t++) {
        struct piece piece = {.tokens = own.ids, .start = at, .n = p->n + t - at};
        own.ids[p->n + t] = (int32_t)most_likely(runner_step(&r, &piece, 1, false), r.hp.n_vocab);
    }
    runner_close(&r);
    return own;
}

/* As few as the engine accepts; 0: the model has no window. */
static uint64_t least_window_blocks(const struct golden *m, int file,
                                    const struct engine_config *c) {
    struct model_hparams hp;
    err e;
    CHECK_MSG(model_read_hparams(model_path(m, file), &hp, &e) == 0, "%s", e.msg);
    if (!hp.window) return 0;
    return kv_window_least(hp.window, c->block_tokens, c->max_sequences, c->max_batch_tokens);
}

/* Both prompts at once, then again from the prefix cache. */
static void test_engine(void) {
    bool on_device = be_only && be_is_device_set(be_only);
    for (uint32_t i = 0; i < n_models; i++) {
        if (is_left_out(&models[i])) continue;
        const struct prompt *p = &models[i].prompts[1], *q = &models[i].prompts[2];
        int file = i % 2;
        struct prompt own[2];
        if (on_device) {
            own[0] = own_answer(&models[i], file, p), own[1] = own_answer(&models[i], file, q);
            p = &own[0], q = &own[1];
        }
        struct engine_config c = kit_config(model_path(&models[i], file));
        if (on_device) c.backend = be_only;
        c.n_ranks = n_ranks;
        c.activation_bits = 16;
        c.kv_cache_tokens = 512, c.kv_type = on_device ? QTYPE_F16 : QTYPE_F32;
        c.context_length = SHORT;
        c.max_batch_tokens = 32, c.prefill_chunk = 9;
        c.max_sequences = c.max_queue = 4;
        c.stream_events = 32;
        c.window_blocks = least_window_blocks(&models[i], file, &c);
        engine *en = kit_open(&c);
        engine_stream *a = submit(en, p), *b = submit(en, q);
        check_answer(&models[i], p, a, false);
        check_answer(&models[i], q, b, false);
        check_answer(&models[i], q, submit(en, q), true);
        engine_close(en);
    }
}

/* The same tokens within the same tolerance, although sums are divided differently. */
static void test_two_ranks(void) {
    uint32_t n_divide = 0, n_run = 0;
    if (!be_has_ranks(be_only, 2)) {
        SKIP("two ranks", "there is one device");
        return;
    }
    n_ranks = 2;
    for (uint32_t i = 0; i < n_models; i++) {
        n_divide += models[i].divides;
        n_run += !is_left_out(&models[i]);
    }
    printf("     %u of %u models divide, %u run on 2 ranks\n", n_divide, n_models, n_run);
    CHECK((n_divide >= 10 && n_run >= 6) || *chosen);
    test_logits();
    test_chunks_and_answers();
    test_mixed_batch();
    test_engine();
    n_ranks = 1;
}

static void forget_models(void) {
    for (uint32_t i = 0; i < n_models; i++) {
        if (*models[i].f32) unlink(models[i].f32);
        if (*models[i].made) unlink(models[i].made);
        free(models[i].logits);
    }
}

int main(int argc, char **argv) {
    bool table = argc > 1 && strcmp(argv[1], "table") == 0, others = table && argc > 2;
    if (others) golden = argv[2];
    be_args(argc, argv);
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "models=", 7) == 0) chosen = argv[i] + 7;
    find_models();
    CHECK(n_models > 0 && n_found >= (others || *chosen ? 1 : 23));
    RUN(test_logits);
    printf("     best tokens of %u positions, %u of them others by less than the tolerance\n",
           n_positions, n_swapped);
    /* A tie is one in each file. */
    const uint32_t most = (n_positions / n_files + NEAR_TIE_POSITIONS - 1) / NEAR_TIE_POSITIONS;
    CHECK_MSG(n_beyond <= n_files * most, "%u positions beyond the tolerance", n_beyond);
    if (table) {
        printf("| model | folder, best kernels | GGUF file, generic kernels |\n|---|---|---|\n");
        for (uint32_t i = 0; i < n_models; i++)
            printf("| %s | %.1e | %.1e |\n", models[i].name, models[i].worst[0],
                   models[i].worst[1]);
        forget_models();
        return check_done();
    }
    RUN(test_chunks_and_answers);
    RUN(test_mixed_batch);
    RUN(test_engine);
    RUN(test_two_ranks);
    forget_models();
    return check_done();
}
