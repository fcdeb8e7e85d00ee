/* test_tokenizer.c - ids and text against golden files of other implementations (provenance:
 * tests/data/tokenizer/README.md and the shared data's README), round trips, long text, threads.
 * test_tokenizer_rules.c covers the rest. */
#include "core/base/mem.h"
#include "core/text/utf8.h"
#include "core/tokenizer/tokenizer_int.h"
#include "tests/support/files.h"
#include "tests/support/rng.h"
#include "tests/unit/check.h"
#include "tests/unit/tokenizer_bench.h"

#include <cjson/cJSON.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define SHARED     "../shared/data/tokenizers/"
#define DEMO_GGUF  "registry/demo/inferd-demo-q8_0.gguf"
#define DEMO_MODEL "registry/demo/tokenizer.model"

enum { MAX_IDS = 1 << 20, PATH_BYTES = 256 };

static tokenizer *open_or_fail(const char *path) {
    tokenizer *t = NULL;
    err e = {0};
    CHECK_MSG(tokenizer_open(path, &t, &e) == 0, "%s", e.msg);
    return t;
}

/* Do text's ids equal want (n_want)? */
static bool encodes_to(const tokenizer *t, const char *text, size_t n, int flags,
                       const int32_t *want, size_t n_want) {
    int32_t *ids;
    size_t n_ids;
    err e = {0};
    if (tokenizer_encode(t, text, n, flags, MAX_IDS, &ids, &n_ids, &e)) {
        fprintf(stderr, "  %s\n", e.msg);
        return false;
    }
    bool same = n_ids == n_want && (!n_want || memcmp(ids, want, n_want * sizeof *ids) == 0);
    if (!same) {
        fprintf(stderr, "  got");
        for (size_t i = 0; i < n_ids && i < 40; i++)
            fprintf(stderr, " %d", ids[i]);
        fprintf(stderr, "\n");
    }
    free(ids);
    return same;
}

static bool decodes_to(const tokenizer *t, const int32_t *ids, size_t n_ids, const char *want,
                       size_t n_want) {
    char *text;
    size_t n;
    if (tokenizer_decode(t, ids, n_ids, false, &text, &n, NULL)) return false;
    bool same = n == n_want && memcmp(text, want, n) == 0;
    if (!same) fprintf(stderr, "  got \"%s\"\n", text);
    free(text);
    return same;
}

static size_t ids_of(const cJSON *array, int32_t *ids) {
    size_t n = 0;
    const cJSON *it;
    cJSON_ArrayForEach(it, array) ids[n++] = it->valueint;
    return n;
}

static const char *member(const cJSON *row, const char *name, const char *otherwise) {
    const cJSON *it = cJSON_GetObjectItemCaseSensitive(row, name);
    return cJSON_IsString(it) ? it->valuestring : otherwise;
}

/* Every line of a golden file: ids, ids with control tokens parsed, and the way back. */
static void check_golden(const char *model, const char *golden, bool special) {
    size_t n;
    char *file = file_read(golden, &n);
    tokenizer *t = open_or_fail(model);
    int n_rows = 0;
    for (char *line = file ? strtok(file, "\n") : NULL; t && line; line = strtok(NULL, "\n")) {
        cJSON *row = cJSON_Parse(line);
        const char *text = member(row, "text", NULL), *id = member(row, "id", "?");
        const cJSON *tokens = cJSON_GetObjectItemCaseSensitive(row, "tokens");
        const cJSON *parsed = cJSON_GetObjectItemCaseSensitive(row, "tokens_special");
        if (text && tokens) {
            const char *back = member(row, "decoded", text);
            int32_t *ids = mem_new((uint64_t)cJSON_GetArraySize(tokens), sizeof *ids);
            size_t n_ids = ids_of(tokens, ids);
            CHECK_MSG(encodes_to(t, text, strlen(text), 0, ids, n_ids), "%s", id);
            /* U+2581 decodes to a space; phi-3's golden file has U+2581 where llama's has a space,
             * for the same ids. */
            if (back != text || !strstr(text, "\xe2\x96\x81"))
                CHECK_MSG(decodes_to(t, ids, n_ids, back, strlen(back)), "%s", id);
            if (special) {
                const cJSON *want = parsed ? parsed : tokens;
                int32_t *with = mem_new((uint64_t)cJSON_GetArraySize(want), sizeof *with);
                size_t n_with = ids_of(want, with);
                CHECK_MSG(encodes_to(t, text, strlen(text), TOKENIZER_PARSE_SPECIAL, with, n_with),
                          "%s, parsed", id);
                free(with);
            }
            free(ids);
            n_rows++;
        }
        cJSON_Delete(row);
    }
    printf("     %d lines of %s\n", n_rows, golden);
    CHECK(n_rows >= 40);
    tokenizer_close(t);
    free(file);
}

/* Files named `cases`*: texts between separator lines, ids with one line per text. */
static void check_inp_out(const char *model, const char *cases) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char path[PATH_BYTES];
    size_t n_inp, n_out;
    snprintf(path, sizeof path, "%s.inp", cases);
    char *inp = file_read(path, &n_inp);
    snprintf(path, sizeof path, "%s.out", cases);
    char *out = file_read(path, &n_out);
    tokenizer *t = open_or_fail(model);
    char *text = inp, *line = out;
    int n_rows = 0;
    while (t && text && line) {
        int32_t ids[512];
        size_t n_ids = 0;
        char *next = strstr(text, separator), *end = strchr(line, '\n');
        size_t n = next ? (size_t)(next - text) : strlen(text);
        for (char *p = line; p < end && n_ids < 512;) {
            char *after;
            long id = strtol(p, &after, 10);
            if (after == p || after > end) break;
            ids[n_ids++] = (int32_t)id;
            p = after;
        }
        CHECK_MSG(encodes_to(t, text, n, 0, ids, n_ids), "text %d of %s", n_rows, path);
        n_rows++;
        text = next ? next + strlen(separator) : NULL;
        line = end && end[1] ? end + 1 : NULL;
    }
    CHECK(n_rows == 46);
    tokenizer_close(t);
    free(inp);
    free(out);
}

static void llama_gguf_equals_the_references(void) {
    check_inp_out(SHARED "gguf/ggml-vocab-llama-spm.gguf", SHARED "gguf/ggml-vocab-llama-spm.gguf");
    check_golden(SHARED "gguf/ggml-vocab-llama-spm.gguf", SHARED "golden/llama-spm.jsonl", true);
}

static void llama_model_equals_the_references(void) {
    check_golden(SHARED "sentencepiece/llama2/tokenizer.model", SHARED "golden/llama-spm.jsonl",
                 true);
}

static void mistral_model_equals_the_reference(void) {
    check_golden(SHARED "sentencepiece/mistral-v3/tokenizer.model",
                 SHARED "golden/mistral-v3.jsonl", false);
}

static void phi3_gguf_equals_the_references(void) {
    check_inp_out(SHARED "gguf/ggml-vocab-phi-3.gguf", SHARED "gguf/ggml-vocab-phi-3.gguf");
    check_golden(SHARED "gguf/ggml-vocab-phi-3.gguf", SHARED "golden/phi-3.jsonl", true);
}

static void bpe_ggufs_equal_the_references(void) {
    static const struct {
        const char *model, *cases, *golden;
    } files[] = {
        {"gpt-2", "gpt-2", "gpt-2"},
        {"starcoder", "starcoder", "starcoder"},
        {"deepseek-llm", "deepseek-llm", "deepseek-llm"},
        {"qwen3", "qwen2", "qwen3"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char model[PATH_BYTES], cases[PATH_BYTES], golden[PATH_BYTES];
        snprintf(model, sizeof model, SHARED "gguf/ggml-vocab-%s.gguf", files[i].model);
        snprintf(cases, sizeof cases, SHARED "gguf/ggml-vocab-%s.gguf", files[i].cases);
        snprintf(golden, sizeof golden, SHARED "golden/%s.jsonl", files[i].golden);
        check_inp_out(model, cases);
        check_golden(model, golden, true);
    }
}

static void tokenizer_json_equals_the_references(void) {
    static const char *const files[][2] = {{"qwen3/tokenizer.json", "qwen3"},
                                           {"phi-2", "phi-2"},
                                           {"cl100k_base/tokenizer.json", "cl100k_base"},
                                           {"phi-3-mini", "phi-3"}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char model[PATH_BYTES], golden[PATH_BYTES];
        snprintf(model, sizeof model, SHARED "hf/%s", files[i][0]);
        snprintf(golden, sizeof golden, SHARED "golden/%s.jsonl", files[i][1]);
        check_golden(model, golden, true);
    }
    check_inp_out(SHARED "hf/qwen3", SHARED "gguf/ggml-vocab-qwen2.gguf");
    check_inp_out(SHARED "hf/phi-3-mini", SHARED "gguf/ggml-vocab-phi-3.gguf");
}

/* User-defined tokens of a tokenizer.model; expected ids from spm_encode 0.1.97. */
static void user_defined_tokens_equal_the_library(void) {
    static const struct {
        const char *text;
        int32_t ids[8];
        size_t n;
    } rows[] = {
        {"[REFERENCE_DOC_1]abc [REFERENCE_DOC_2] x", {29473, 769, 17380, 29473, 768, 2086}, 6},
        {"ab[REFERENCE_DOC_1]  c[REFERENCE_DOC_2][REFERENCE_DOC_3]d",
         {1302, 769, 29473, 1045, 768, 767, 29483},
         7},
        {"[REFERENCE_DOC_3]", {29473, 767}, 2},
    };
    tokenizer *t = open_or_fail(SHARED "sentencepiece/mistral-v3/tokenizer.model");
    for (size_t i = 0; t && i < sizeof rows / sizeof rows[0]; i++)
        CHECK_MSG(encodes_to(t, rows[i].text, strlen(rows[i].text), 0, rows[i].ids, rows[i].n),
                  "%s", rows[i].text);
    tokenizer_close(t);
}

static void demo_model_equals_spm_encode(void) {
    check_golden(DEMO_MODEL, "tests/data/tokenizer/demo.jsonl", false);
}

static void demo_gguf_equals_spm_encode(void) {
    check_golden(DEMO_GGUF, "tests/data/tokenizer/demo.jsonl", false);
}

/* Random bytes: any value, letters and spaces, or pieces of UTF-8 characters. */
static size_t random_text(struct rng *rng, char *text, size_t max) {
    static const char chars[] = "\xc3\xa9\xe4\xbd\xa0\xf0\x9f\xa6\x8a\xe2\x96";
    size_t n = rng_next(rng) % max;
    uint64_t kind = rng_next(rng) % 3;
    for (size_t i = 0; i < n; i++) {
        uint32_t r = rng_next(rng);
        text[i] = kind == 0   ? (char)r
                  : kind == 1 ? "etaoin  <|>/s\n\0"[r % 15]
                              : chars[r % (sizeof chars - 1)];
    }
    return n;
}

/* U+2581 itself does not round-trip: it represents the space. */
static bool has_space_mark(const char *text, size_t n) {
    for (size_t i = 0; i + 3 <= n; i++)
        if (memcmp(text + i, "\xe2\x96\x81", 3) == 0) return true;
    return false;
}

static void check_round_trips(const char *path) {
    tokenizer *t = open_or_fail(path);
    struct rng rng = {11};
    char text[200];
    for (int round = 0; t && round < 2000; round++) {
        size_t n = random_text(&rng, text, sizeof text), n_ids, n_back;
        int32_t *ids;
        char *back;
        err e = {0};
        if (has_space_mark(text, n)) continue;
        if (tokenizer_encode(t, text, n, 0, MAX_IDS, &ids, &n_ids, &e)) {
            CHECK_MSG(false, "%s", e.msg);
            break;
        }
        CHECK(n_ids <= n + 1);
        CHECK(tokenizer_decode(t, ids, n_ids, false, &back, &n_back, &e) == 0);
        CHECK_MSG(n_back == n && memcmp(back, text, n) == 0, "round %d of %s", round, path);
        CHECK(back[n_back] == '\0');
        free(back);
        free(ids);
    }
    tokenizer_close(t);
}

static void demo_random_bytes_round_trip(void) {
    check_round_trips(DEMO_GGUF);
    check_round_trips(DEMO_MODEL);
}

static void llama_random_bytes_round_trip(void) {
    check_round_trips(SHARED "gguf/ggml-vocab-llama-spm.gguf");
}

/* libsentencepiece on the vocabulary of path, beside our own merging. */
struct both {
    tokenizer *t;
    struct spm *library;
};

static struct both open_both(const char *path) {
    struct both b = {.t = open_or_fail(path)};
    struct vocab v;
    if (!b.t || vocab_read(path, &v, NULL)) return b;
    CHECK(b.t->scored && tokenizer_open_library(b.t, &v, &b.library, NULL) == 0);
    vocab_fini(&v);
    return b;
}

static void close_both(struct both *b) {
    spm_close(b->library);
    tokenizer_close(b->t);
}

/* Long text is cut into parts and merged here: the ids must be those of the library for the whole.
 * text: valid UTF-8. */
static void check_library(const struct both *b, const char *text, size_t n) {
    struct id_list whole = {.max = MAX_IDS};
    err e = {0};
    size_t prefix = b->t->space_prefix && n;
    char *with = mem_new((uint64_t)n + 1, 1);
    with[0] = ' ';
    memcpy(with + prefix, text, n);
    CHECK_MSG(spm_encode(b->library, with, n + prefix, &whole, &e) == 0, "%s", e.msg);
    CHECK_MSG(encodes_to(b->t, text, n, 0, whole.ids, whole.n), "%.80s", text);
    free(with);
    free(whole.ids);
}

static void long_text_is_split_with_the_same_ids(void) {
    enum { LONG = 60000 };
    struct both b = open_both(DEMO_GGUF);
    if (!b.library) return;
    CHECK(b.t->cuts_at_space);
    struct rng rng = {5};
    char *text = mem_new(LONG + 1, 1);
    for (int kind = 0; kind < 4; kind++) {
        static const char *const alphabets[] = {"ab ", "the  and\n", "a", "  a"};
        size_t n = strlen(alphabets[kind]);
        for (size_t i = 0; i < LONG; i++)
            text[i] = alphabets[kind][rng_next(&rng) % n];
        check_library(&b, text, LONG);
    }
    free(text);
    size_t n;
    char *words = file_read("tests/data/tokenizer/texts.txt", &n);
    CHECK(words && n > 9000);
    if (words) check_library(&b, words, n);
    free(words);
    close_both(&b);
}

/* Random parts of real text, cut at bytes; incomplete characters are removed. */
static void check_merging(const char *path) {
    enum { ROUNDS = 3000, MAX_BYTES = 300 };
    struct both b = open_both(path);
    size_t n_words;
    char *words = file_read("tests/data/tokenizer/texts.txt", &n_words), text[MAX_BYTES + 1];
    struct rng rng = {9};
    for (int round = 0; b.library && words && round < ROUNDS; round++) {
        size_t n = 0, want = rng_next(&rng) % MAX_BYTES;
        while (n < want) {
            size_t at = rng_next(&rng) % n_words, take = 1 + rng_next(&rng) % 40;
            for (; take && at < n_words && n < want; take--)
                text[n++] = words[at++];
        }
        text[n] = 0;
        size_t from = 0;
        while (from < n && (text[from] & 0xc0) == 0x80)
            from++;
        size_t valid = utf8_valid_prefix(text + from, n - from);
        text[from + valid] = 0;
        check_library(&b, text + from, valid);
    }
    free(words);
    close_both(&b);
}

static void merging_by_scores_equals_the_library(void) {
    check_merging(DEMO_MODEL);
    check_merging(DEMO_GGUF);
}

static void llama_merging_equals_the_library(void) {
    check_merging(SHARED "sentencepiece/llama2/tokenizer.model");
    check_merging(SHARED "gguf/ggml-vocab-phi-3.gguf");
}

/* Pieces cut anywhere equal the whole text: parsed if all are trusted, plain if none is. */
static void cut_pieces_equal_the_whole(void) {
    static const char text[] = "<s><|user|>Tell me <|end|> a story.<|end|><|assistant|>Once upon";
    tokenizer *t = open_or_fail(DEMO_GGUF);
    struct rng rng = {3};
    for (int round = 0; t && round < 200; round++) {
        tokenizer_piece pieces[sizeof text];
        size_t n_pieces = 0, n = sizeof text - 1, n_ids, n_whole;
        bool trusted = round % 2;
        int32_t *ids, *whole;
        for (size_t at = 0; at < n;) {
            size_t len = rng_next(&rng) % 9;
            if (len > n - at) len = n - at;
            pieces[n_pieces++] = (tokenizer_piece){text + at, len, len ? trusted : !trusted};
            at += len;
            if (n_pieces == sizeof text - 1 && at < n) {
                pieces[n_pieces++] = (tokenizer_piece){text + at, n - at, trusted};
                at = n;
            }
        }
        int flags = TOKENIZER_ADD_SPECIAL | (trusted ? TOKENIZER_PARSE_SPECIAL : 0);
        CHECK(tokenizer_encode(t, text, n, flags, MAX_IDS, &whole, &n_whole, NULL) == 0);
        CHECK(tokenizer_encode_pieces(t, pieces, n_pieces, TOKENIZER_ADD_SPECIAL, MAX_IDS, &ids,
                                      &n_ids, NULL) == 0);
        CHECK(n_ids == n_whole && memcmp(ids, whole, n_ids * sizeof *ids) == 0);
        CHECK(n_ids && ids[0] == tokenizer_bos(t));
        free(ids);
        free(whole);
    }
    tokenizer_close(t);
}

/* The largest number of tokens whose text is in the first `end` bytes. */
static size_t count_by_decoding(const tokenizer *t, const int32_t *ids, size_t n_ids, size_t end) {
    size_t count = 0, added = n_ids && ids[0] == tokenizer_bos(t);
    for (size_t k = 0; k <= n_ids && end; k++) {
        char *text;
        size_t n = 0;
        if (k > added) {
            CHECK(tokenizer_decode(t, ids + added, k - added, true, &text, &n, NULL) == 0);
            free(text);
        }
        if (n <= end) count = k;
    }
    return count;
}

static void check_counts(const char *path, const char *text, bool has_bytes) {
    tokenizer *t = open_or_fail(path);
    size_t n = strlen(text), n_ids, ends[2], counts[2];
    int32_t *ids;
    if (!t) return;
    CHECK(tokenizer_encode(t, text, n, TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL, MAX_IDS,
                           &ids, &n_ids, NULL) == 0);
    for (ends[0] = 0; ends[0] <= n; ends[0]++) {
        ends[1] = n - ends[0];
        bool found = tokenizer_count_within(t, ids, n_ids, text, n, ends, 2, counts);
        CHECK_MSG(found == has_bytes, "%s: %zu", path, ends[0]);
        for (int i = 0; found && i < 2; i++)
            CHECK_MSG(counts[i] == count_by_decoding(t, ids, n_ids, ends[i]),
                      "%s: %zu of %zu bytes", path, counts[i], ends[i]);
    }
    free(ids);
    tokenizer_close(t);
}

static void tokens_of_a_beginning_are_counted(void) {
    static const char text[] =
        "<|user|>Tell me \xc3\xbc, \xf0\x9f\x98\x80:\n\n  a story.<|end|><|assistant|>Once";
    check_counts(DEMO_GGUF, text, true);
    check_counts("tests/golden/arch/qwen35/hf", text, true);
    check_counts("tests/data/tokenizer/bpe/byte-level.json", "Tell me of it, and more.", true);
    /* A space that is no part of the text. */
    check_counts("tests/data/tokenizer/bpe/spm-like.json", "Tell me of it.", false);
}

static void demo_special_tokens_are_known(void) {
    tokenizer *t = open_or_fail(DEMO_GGUF);
    size_t n;
    if (!t) return;
    int32_t end = tokenizer_find(t, "<|end|>");
    CHECK(tokenizer_n_vocab(t) == 4096 && tokenizer_bos(t) == 1 && end == 6);
    CHECK(tokenizer_is_eog(t, end) && tokenizer_is_control(t, end) && tokenizer_adds_bos(t));
    CHECK(tokenizer_is_eog(t, tokenizer_eos(t)) && !tokenizer_is_eog(t, 1));
    CHECK(!tokenizer_strips_leading_space(t) && tokenizer_chat_template(t));
    tokenizer_token_bytes(t, end, false, &n);
    CHECK(n == 0);
    CHECK(strncmp(tokenizer_token_bytes(t, end, true, &n), "<|end|>", 7) == 0 && n == 7);
    tokenizer_close(t);
}

/* One tokenizer, many threads: every thread must get the same ids; run under TSan. */
struct share {
    const tokenizer *t;
    const char *text;
    size_t n;
    const int32_t *want;
    size_t n_want;
    int n_wrong;
};

static void *encode_often(void *arg) {
    struct share *s = arg;
    for (int i = 0; i < 20; i++)
        s->n_wrong += !encodes_to(s->t, s->text, s->n, 0, s->want, s->n_want) ||
                      !decodes_to(s->t, s->want, s->n_want, s->text, s->n);
    return NULL;
}

static void check_sharing(const char *path) {
    enum { N_THREADS = 4 };
    tokenizer *t = open_or_fail(path);
    size_t n, n_ids;
    int32_t *ids = NULL;
    char *text = file_read("tests/data/tokenizer/make_golden.py", &n);
    pthread_t threads[N_THREADS];
    struct share shares[N_THREADS];
    CHECK(t && text && tokenizer_encode(t, text, n, 0, MAX_IDS, &ids, &n_ids, NULL) == 0);
    for (int i = 0; ids && i < N_THREADS; i++) {
        shares[i] = (struct share){t, text, n, ids, n_ids, 0};
        CHECK(pthread_create(&threads[i], NULL, encode_often, &shares[i]) == 0);
    }
    for (int i = 0; ids && i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK(shares[i].n_wrong == 0);
    }
    free(ids);
    free(text);
    tokenizer_close(t);
}

static void threads_share_a_tokenizer(void) {
    check_sharing(DEMO_GGUF);
    check_sharing("tests/data/tokenizer/bpe/byte-level.json");
    check_sharing("tests/data/tokenizer/bpe/spm-like.json");
}

int main(int argc, char **argv) {
    if (check_bench(argc, argv)) return tokenizer_bench(argc > 2 ? argv[2] : NULL);
    RUN(demo_model_equals_spm_encode);
    RUN(demo_gguf_equals_spm_encode);
    RUN(demo_special_tokens_are_known);
    RUN(demo_random_bytes_round_trip);
    RUN(long_text_is_split_with_the_same_ids);
    RUN(merging_by_scores_equals_the_library);
    RUN(cut_pieces_equal_the_whole);
    RUN(tokens_of_a_beginning_are_counted);
    RUN(threads_share_a_tokenizer);
    if (access(SHARED "golden/llama-spm.jsonl", R_OK) == 0) {
        RUN(llama_gguf_equals_the_references);
        RUN(llama_model_equals_the_references);
        RUN(mistral_model_equals_the_reference);
        RUN(user_defined_tokens_equal_the_library);
        RUN(phi3_gguf_equals_the_references);
        RUN(bpe_ggufs_equal_the_references);
        RUN(tokenizer_json_equals_the_references);
        RUN(llama_random_bytes_round_trip);
        RUN(llama_merging_equals_the_library);
    } else {
        SKIP("references", "no shared data at " SHARED);
    }
    return check_done();
}
