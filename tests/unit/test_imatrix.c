/* test_imatrix.c - importance matrices: those of llama-imatrix are read in both forms; what an
 * engine collects over the same text agrees with them; they are written and read again, weigh what
 * quantize writes, and damaged ones are refused. */
#include "core/formats/imatrix.h"
#include "core/formats/quantize/quantize.h"
#include "tests/support/engine_kit.h"
#include "tests/support/files.h"
#include "tests/support/rng.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATA   "tests/data/imatrix/"
#define GOLDEN "tests/golden/arch/"

enum { CONTEXT = 64 };

static char folder[64];

static const char *in_folder(const char *name) {
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static imatrix *open_matrix(const char *path) {
    err e = {0};
    imatrix *m = NULL;
    CHECK_MSG(imatrix_open(path, &m, &e) == 0, "%s", e.msg);
    return m;
}

static const struct imatrix_entry *find(const imatrix *m, const char *name) {
    return imatrix_find(m, (gguf_str){name, strlen(name)});
}

/* The largest difference of means, relative to the largest mean of the entry, in columns of which
 * both know something. */
static double difference(const imatrix *a, const imatrix *b) {
    double worst = 0;
    CHECK(imatrix_n_entries(a) == imatrix_n_entries(b));
    for (uint64_t i = 0; i < imatrix_n_entries(a); i++) {
        const struct imatrix_entry *x = imatrix_at(a, i), *y = find(b, x->name);
        const uint64_t n = x->n_in * x->n_mats;
        float *means = mem_new(2 * n, sizeof *means), most = 0;
        CHECK_MSG(y && y->n_in * y->n_mats == n, "%s", x->name);
        if (y && means) {
            imatrix_means(x, 0, n, means);
            imatrix_means(y, 0, n, means + n);
        }
        for (uint64_t k = 0; k < n; k++)
            if (x->counts[k / x->n_in] > 0) most = fmaxf(most, means[k]);
        for (uint64_t k = 0; k < n; k++) {
            const double d = fabs((double)means[k] - (double)means[n + k]) / (double)most;
            if (x->counts[k / x->n_in] > 0 && d > worst) worst = d;
        }
        free(means);
    }
    return worst;
}

/* ---- files of llama-imatrix ---- */

static void both_forms_are_read(void) {
    static const char *const names[] = {"llama", "qwen3moe"};
    for (size_t i = 0; i < 2; i++) {
        char path[128];
        snprintf(path, sizeof path, DATA "%s.gguf", names[i]);
        imatrix *young = open_matrix(path);
        snprintf(path, sizeof path, DATA "%s.dat", names[i]);
        imatrix *old = open_matrix(path);
        CHECK(imatrix_text(young)->n_chunks == 1 && imatrix_text(young)->chunk_tokens == CONTEXT);
        CHECK(imatrix_text(old)->n_chunks == 1);
        CHECK_STR(imatrix_text(young)->name, imatrix_text(old)->name);
        CHECK_MSG(difference(young, old) < 1e-6, "%s: %g", names[i], difference(young, old));
        CHECK(!find(young, "blk.9.attn_q.weight") && !find(young, "blk.0.attn_q.weight.in_sum"));
        imatrix_free(young);
        imatrix_free(old);
    }
    imatrix *m = open_matrix(DATA "qwen3moe.gguf");
    const struct imatrix_entry *experts = find(m, "blk.0.ffn_down_exps.weight");
    double rows = 0;
    CHECK(experts && experts->n_mats > 1);
    for (uint64_t i = 0; experts && i < experts->n_mats; i++)
        rows += experts->counts[i];
    const struct imatrix_entry *q = find(m, "blk.0.attn_q.weight");
    CHECK(q && q->n_mats == 1 && q->counts[0] == CONTEXT && rows > CONTEXT);
    imatrix_free(m);
}

/* ---- collecting ---- */

static imatrix *collect(const char *name, int threads, uint32_t batch) {
    int32_t *ids, prompt[CONTEXT];
    size_t n_ids, n_text;
    char path[128], *text = file_read(DATA "text.txt", &n_text);
    err e = {0};
    imatrix *m = imatrix_new();
    snprintf(path, sizeof path, GOLDEN "%s/model.gguf", name);
    struct engine_config config = kit_config(path);
    config.importance = m;
    config.activation_bits = 16;
    config.n_threads = threads;
    config.max_batch_tokens = batch;
    config.prefix_cache = false;
    engine *en = kit_open(&config);
    const tokenizer *tok = engine_tokenizer(en);
    CHECK(tokenizer_encode(tok, text, n_text, 0, 4096, &ids, &n_ids, &e) == 0);
    const size_t n_bos = tokenizer_bos(tok) >= 0;
    if (n_bos) prompt[0] = tokenizer_bos(tok);
    memcpy(prompt + n_bos, ids, (CONTEXT - n_bos) * sizeof *prompt);
    struct engine_request q = {
        .prompt = prompt, .n_prompt = CONTEXT, .n_choices = 1, .notify = bell_ring};
    q.notify_arg = &bell;
    q.params.max_tokens = 1;
    q.params.sampling = sampling_default();
    q.params.ignore_eos = true;
    q.params.prompt_logprobs = true;
    static struct reading r;
    memset(&r, 0, sizeof r);
    kit_answer(en, &q, &r);
    CHECK(r.n_prompt_events == CONTEXT - 1);
    kit_close(en);
    free(ids);
    free(text);
    return m;
}

/* Sums that differ from llama-imatrix's by what its products round, and do not depend on threads
 * and chunks. */
static void collected_sums_agree(void) {
    static const struct {
        const char *model;
        double tolerance;
    } models[] = {{"llama", 1e-4}, {"qwen3moe", 1e-4}};
    for (size_t i = 0; i < 2; i++) {
        char path[128];
        err e = {0};
        snprintf(path, sizeof path, DATA "%s.gguf", models[i].model);
        imatrix *want = open_matrix(path), *one = collect(models[i].model, 1, CONTEXT),
                *two = collect(models[i].model, 2, 17);
        CHECK_MSG(imatrix_write(one, in_folder("one.gguf"), &e) == 0, "%s", e.msg);
        CHECK_MSG(imatrix_write(two, in_folder("two.gguf"), &e) == 0, "%s", e.msg);
        imatrix *a = open_matrix(in_folder("one.gguf")), *b = open_matrix(in_folder("two.gguf"));
        for (uint64_t k = 0; k < imatrix_n_entries(a); k++) {
            const struct imatrix_entry *x = imatrix_at(a, k), *y = imatrix_at(b, k);
            CHECK_STR(x->name, y->name);
            CHECK(!memcmp(x->sums, y->sums, x->n_in * x->n_mats * sizeof *x->sums));
            CHECK(!memcmp(x->counts, y->counts, x->n_mats * sizeof *x->counts));
        }
        double off = difference(want, a);
        CHECK_MSG(off < models[i].tolerance, "%s: %g", models[i].model, off);
        imatrix_free(want);
        imatrix_free(one);
        imatrix_free(two);
        imatrix_free(a);
        imatrix_free(b);
    }
}

/* ---- quantizing ---- */

enum { N_COLS = 512, N_ROWS = 3, N_EXPERTS = 2, N_VALUES = N_COLS * N_ROWS * N_EXPERTS };

static void add_matrix(gguf_writer *w, const char *name, const float *data, uint64_t deep) {
    err e = {0};
    const gguf_tensor t = {.name = {name, strlen(name)},
                           .type = QTYPE_F32,
                           .n_dims = deep > 1 ? 3 : 2,
                           .dims = {N_COLS, N_ROWS, deep, 1},
                           .n_elems = N_COLS * N_ROWS * deep,
                           .data = data,
                           .bytes = N_COLS * N_ROWS * deep * sizeof *data};
    CHECK_MSG(gguf_writer_add_tensor(w, &t, &e) == 0, "%s", e.msg);
}

static float values[N_VALUES];

static void make_model(void) {
    err e = {0};
    gguf_writer *w = gguf_writer_new();
    struct rng rng = {7};
    for (int i = 0; i < N_VALUES; i++)
        values[i] = rng_float(&rng, -1, 1);
    CHECK(gguf_writer_set_str(w, "general.architecture", "llama", &e) == 0);
    add_matrix(w, "blk.0.attn_q.weight", values, 1);
    add_matrix(w, "blk.0.ffn_up_exps.weight", values, N_EXPERTS);
    add_matrix(w, "token_embd.weight", values, 1);
    CHECK_MSG(gguf_writer_finish(w, in_folder("model.gguf"), &e) == 0, "%s", e.msg);
    gguf_writer_free(w);
}

/* A matrix for the model; without: this tensor has no entry; n_in: columns of attn_q's. */
static imatrix *make_matrix(const char *without, uint64_t n_in) {
    static const char *const names[] = {"blk.0.ffn_up_exps.weight", "blk.0.attn_q.weight"};
    err e = {0};
    imatrix *m = imatrix_new();
    struct rng rng = {9};
    for (int i = 0; i < 2; i++) {
        struct imatrix_entry *entry = NULL;
        if (without && !strcmp(names[i], without)) continue;
        CHECK(imatrix_add(m, names[i], i ? n_in : N_COLS, i ? 1 : N_EXPERTS, &entry, &e) == 0);
        if (!entry) continue;
        for (uint64_t k = 0; k < entry->n_in * entry->n_mats; k++)
            entry->sums[k] = exp((double)rng_float(&rng, -4, 4));
        entry->counts[0] = 10; /* the second expert's is 0 */
        CHECK(imatrix_add(m, names[i], N_COLS, 1, &entry, &e) == 0 && !entry);
    }
    CHECK_MSG(imatrix_write(m, in_folder("matrix.gguf"), &e) == 0, "%s", e.msg);
    imatrix_free(m);
    return open_matrix(in_folder("matrix.gguf"));
}

static int quantize(const imatrix *m, const char *type, err *e) {
    gguf *src = NULL;
    quantize_plan *plan = NULL;
    const struct quantize_options o = {.type = type, .imatrix = m, .pure = true};
    const struct quantize_output out = {
        .path = in_folder("new.gguf"), .overwrite = true, .n_threads = 2};
    int rc = gguf_open(in_folder("model.gguf"), 0, &src, e);
    if (!rc) rc = quantize_plan_new(src, &o, &plan, e);
    if (!rc) rc = quantize_run(plan, &out, e);
    quantize_plan_free(plan);
    gguf_close(src);
    return rc;
}

/* Each row is weighed by its expert's means; the embedding, which has none, by nothing. */
static void rows_are_weighed(void) {
    static const char *const types[] = {"IQ2_XXS", "IQ1_M", "IQ3_S", "Q4_K", "Q8_0"};
    static float weights[N_VALUES];
    static uint8_t want[N_VALUES * 4];
    imatrix *m = make_matrix(NULL, N_COLS);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        err e = {0};
        gguf *g = NULL;
        CHECK_MSG(quantize(m, types[t], &e) == 0, "%s", e.msg);
        CHECK_MSG(gguf_open(in_folder("new.gguf"), 0, &g, &e) == 0, "%s", e.msg);
        for (uint64_t i = 0; g && i < gguf_n_tensors(g); i++) {
            const gguf_tensor *b = gguf_tensor_at(g, i);
            const struct imatrix_entry *entry = imatrix_find(m, b->name);
            for (uint64_t k = 0; entry && k < b->n_elems; k++) {
                const uint64_t expert = k / (N_COLS * N_ROWS), col = k % N_COLS;
                const double count = entry->counts[expert];
                weights[k] = count > 0 ? (float)(entry->sums[expert * N_COLS + col] / count) : 1;
            }
            if (entry)
                qtype_encode_weighted(b->type, values, weights, want, b->n_elems);
            else
                qtype_encode(b->type, values, want, b->n_elems);
            CHECK_MSG(!memcmp(want, b->data, b->bytes), "%s %.*s", types[t], (int)b->name.len,
                      b->name.data);
            CHECK(entry || i == 2);
        }
        uint64_t n = 0;
        CHECK(g && gguf_get_u64(g, "quantize.imatrix.entries_count", &n, NULL) == 0 && n == 2);
        gguf_close(g);
    }
    imatrix_free(m);
}

static void importance_that_lacks_is_said(void) {
    err e = {0};
    CHECK(quantize(NULL, "Q4_K", &e) == 0 && quantize(NULL, "IQ3_S", &e) == 0);
    CHECK(quantize(NULL, "IQ2_XS", &e) == ERR_INVALID);
    CHECK_MSG(strstr(e.msg, "blk.0.attn_q.weight as IQ2_XS needs an importance matrix (--imatrix"),
              "%s", e.msg);
    imatrix *m = make_matrix("blk.0.ffn_up_exps.weight", N_COLS);
    CHECK(quantize(m, "IQ4_XS", &e) == 0);
    CHECK(quantize(m, "IQ1_S", &e) == ERR_INVALID);
    CHECK_MSG(strstr(e.msg, "blk.0.ffn_up_exps.weight as IQ1_S needs") &&
                  strstr(e.msg, "that has it"),
              "%s", e.msg);
    imatrix_free(m);
    m = make_matrix(NULL, N_COLS - 1);
    CHECK(quantize(m, "Q4_K", &e) == ERR_INVALID);
    CHECK_MSG(strstr(e.msg, "511 values for it, expected 512"), "%s", e.msg);
    imatrix_free(m);
}

/* ---- damage ---- */

static void damaged_ones_are_refused(void) {
    static const char *const files[] = {DATA "llama.dat", DATA "qwen3moe.gguf"};
    for (size_t f = 0; f < 2; f++) {
        size_t n;
        char *bytes = file_read(files[f], &n);
        /* Every length: the older form may end after its entries. */
        for (size_t cut = 0, n_read = 0; bytes && cut < n; cut += cut < 200 ? 1 : 37) {
            imatrix *m = NULL;
            err e = {0};
            char *copy = mem_strndup(bytes, cut);
            int rc = imatrix_open_memory(copy, cut, "cut", &m, &e);
            n_read += rc == 0;
            CHECK_MSG(rc == 0 ? f == 0 && n - cut < 16 : rc == ERR_FORMAT && !m && *e.msg,
                      "%s at %zu: %d", files[f], cut, rc);
            imatrix_free(m);
            free(copy);
        }
        free(bytes);
    }
    static const struct {
        float sum;
        float count;
        const char *said;
    } wrong[] = {{-1, 1, "negative or not finite"},  {INFINITY, 1, "negative or not finite"},
                 {NAN, 1, "negative or not finite"}, {1, -1, "number of rows"},
                 {1, 0.5f, "number of rows"},        {1, NAN, "number of rows"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct imatrix_entry *entry;
        imatrix *m = imatrix_new(), *back = NULL;
        err e = {0};
        CHECK(imatrix_add(m, "a", 2, 1, &entry, &e) == 0);
        entry->sums[1] = (double)wrong[i].sum;
        entry->counts[0] = (double)wrong[i].count;
        CHECK(imatrix_write(m, in_folder("wrong.gguf"), &e) == 0);
        CHECK(imatrix_open(in_folder("wrong.gguf"), &back, &e) == ERR_FORMAT && !back);
        CHECK_MSG(strstr(e.msg, wrong[i].said), "%s", e.msg);
        imatrix_free(m);
    }
    imatrix *m = NULL;
    err e = {0};
    CHECK(imatrix_open(GOLDEN "llama/model.gguf", &m, &e) == ERR_FORMAT && !m);
    CHECK_MSG(strstr(e.msg, "general.type is not imatrix") ||
                  strstr(e.msg, "has no importance of any tensor"),
              "%s", e.msg);
    CHECK(imatrix_open(in_folder("none"), &m, &e) == ERR_IO && !m);
}

static void remove_folder(void) {
    static const char *const names[] = {"one.gguf",    "two.gguf", "model.gguf",
                                        "matrix.gguf", "new.gguf", "wrong.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(in_folder(names[i]));
    CHECK(rmdir(folder) == 0);
}

int main(void) {
    snprintf(folder, sizeof folder, "/tmp/inferd-test-imatrix-%d", (int)getpid());
    if (mkdir(folder, 0700)) return 1;
    make_model();
    RUN(both_forms_are_read);
    RUN(collected_sums_agree);
    RUN(rows_are_weighed);
    RUN(importance_that_lacks_is_said);
    RUN(damaged_ones_are_refused);
    RUN(remove_folder);
    return check_done();
}
