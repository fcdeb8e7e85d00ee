/* test_bpe.c - byte-pair encoding on trimmed vocabularies: every component of a tokenizer.json and
 * every family of tokenizer.ggml.pre against ids of the tokenizers library (provenance:
 * tests/data/tokenizer/bpe/README.md), merging against a naive search, hostile files. */
#include "core/base/mem.h"
#include "core/engine/engine.h"
#include "core/formats/gguf/gguf.h"
#include "core/formats/hf/tokenizer.h"
#include "core/text/unicode.h"
#include "core/text/utf8.h"
#include "core/tokenizer/charsmap.h"
#include "core/tokenizer/tokenizer_int.h"
#include "tests/support/files.h"
#include "tests/support/rng.h"
#include "tests/unit/check.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <unistd.h>

#define FOLDER "tests/data/tokenizer/bpe/"

enum { MAX_IDS = 1 << 20, PATH_BYTES = 256, MAX_LINES = 64 };

/* A copy of base in which the members of set replace its own; those of the model are replaced one
 * by one. */
static cJSON *compose(const cJSON *base, const cJSON *set) {
    cJSON *json = cJSON_Duplicate(base, true), *item;
    cJSON_ArrayForEach(item, set) {
        cJSON *target = json, *value;
        if (strcmp(item->string, "model") != 0) {
            cJSON_ReplaceItemInObjectCaseSensitive(target, item->string,
                                                   cJSON_Duplicate(item, true));
            continue;
        }
        target = cJSON_GetObjectItemCaseSensitive(json, "model");
        cJSON_ArrayForEach(value, item) cJSON_ReplaceItemInObjectCaseSensitive(
            target, value->string, cJSON_Duplicate(value, true));
    }
    return json;
}

/* pre: name of the rule that replaces the file's own pre-tokenizer; NULL: keeps it. */
static tokenizer *open_json(const char *text, const char *pre, err *e) {
    struct hf_tokenizer *h;
    struct vocab v = {0};
    tokenizer *t = NULL;
    if (hf_tokenizer_open_memory(text, strlen(text), &h, e)) return NULL;
    int rc = vocab_from_hf(h, &v, e);
    if (!rc && pre) {
        const struct pretok_rule *rule = pretok_find_rule(pre, strlen(pre));
        pretok_free(v.rules.pretok);
        v.rules.pretok = pretok_new(v.rules.flags);
        rc = rule ? pretok_add_rule(v.rules.pretok, rule, e) : -1;
    }
    if (rc)
        vocab_fini(&v);
    else
        tokenizer_build(&v, &t, e);
    return t;
}

static tokenizer *open_composed(const cJSON *base, const cJSON *set, const char *pre, err *e) {
    cJSON *json = compose(base, set);
    char *text = cJSON_PrintUnformatted(json);
    tokenizer *t = open_json(text, pre, e);
    free(text);
    cJSON_Delete(json);
    return t;
}

static bool encodes_to(const tokenizer *t, const char *text, const cJSON *want) {
    int32_t *ids;
    size_t n;
    if (tokenizer_encode(t, text, strlen(text), TOKENIZER_PARSE_SPECIAL, MAX_IDS, &ids, &n, NULL))
        return false;
    bool same = (int)n == cJSON_GetArraySize(want);
    const cJSON *item = want->child;
    for (size_t i = 0; same && i < n; i++, item = item->next)
        same = ids[i] == item->valueint;
    for (size_t i = 0; !same && i < n && i < 60; i++)
        fprintf(stderr, "%s%d", i ? " " : "  got ", ids[i]);
    if (!same) fprintf(stderr, "\n");
    free(ids);
    return same;
}

static bool decodes_to(const tokenizer *t, const cJSON *list, const char *want) {
    int32_t *ids = mem_new((uint64_t)cJSON_GetArraySize(list), sizeof *ids);
    size_t n_ids = 0, n;
    const cJSON *item;
    char *text = NULL;
    cJSON_ArrayForEach(item, list) ids[n_ids++] = item->valueint;
    int rc = tokenizer_decode(t, ids, n_ids, false, &text, &n, NULL);
    free(ids);
    if (rc) return false;
    bool same = n == strlen(want) && memcmp(text, want, n) == 0;
    if (!same) fprintf(stderr, "  got \"%s\"\n", text);
    free(text);
    return same;
}

/* Bytes that lossy decoding replaces are not compared. */
static bool is_comparable(const char *text) {
    return !strstr(text, "\xef\xbf\xbd");
}

static void check_case(const cJSON *row, const cJSON *base, const cJSON *texts, int number) {
    const cJSON *set = cJSON_GetObjectItemCaseSensitive(row, "set");
    const cJSON *pre = cJSON_GetObjectItemCaseSensitive(row, "pre");
    const cJSON *ids = cJSON_GetObjectItemCaseSensitive(row, "ids");
    const cJSON *decoded = cJSON_GetObjectItemCaseSensitive(row, "decoded");
    for (int by_name = 0; by_name <= cJSON_IsString(pre); by_name++) {
        err e = {0};
        tokenizer *t = open_composed(base, set, by_name ? pre->valuestring : NULL, &e);
        CHECK_MSG(t, "case %d: %s", number, e.msg);
        for (int i = 0; t && i < cJSON_GetArraySize(texts); i++) {
            const char *text = cJSON_GetArrayItem(texts, i)->valuestring;
            const cJSON *want = cJSON_GetArrayItem(ids, i), *back = cJSON_GetArrayItem(decoded, i);
            CHECK_MSG(encodes_to(t, text, want), "case %d%s, text %d", number,
                      by_name ? " by name" : "", i);
            const char *again = cJSON_IsString(back) ? back->valuestring : text;
            if (cJSON_GetArraySize(decoded) && is_comparable(again))
                CHECK_MSG(decodes_to(t, want, again), "case %d, text %d", number, i);
        }
        tokenizer_close(t);
    }
}

static cJSON *parse_file(const char *path) {
    cJSON *json = file_json(path);
    CHECK_MSG(json, "%s", path);
    return json;
}

/* Text i and the next one, joined as the post-processor says. */
static void check_pairs(const cJSON *row, const cJSON *base, const cJSON *texts, int number) {
    const cJSON *want;
    int i = 0;
    tokenizer *t =
        open_composed(base, cJSON_GetObjectItemCaseSensitive(row, "set"), NULL, &(err){0});
    cJSON_ArrayForEach(want, cJSON_GetObjectItemCaseSensitive(row, "pairs")) {
        const char *a = cJSON_GetArrayItem(texts, i)->valuestring,
                   *b = cJSON_GetArrayItem(texts, ++i)->valuestring;
        const struct tokenizer_text both[2] = {{a, strlen(a)}, {b, strlen(b)}};
        const cJSON *item = want->child;
        int32_t *ids = NULL;
        size_t n = 0, second = 0;
        if (!t || cJSON_IsNull(want)) continue;
        CHECK(tokenizer_joins_pairs(t) &&
              tokenizer_encode_pair(t, both, MAX_IDS, &ids, &n, &second, NULL) == 0);
        CHECK(second > 0 && second < n);
        bool same = (int)n == cJSON_GetArraySize(want);
        for (size_t k = 0; same && k < n; k++, item = item->next)
            same = ids[k] == item->valueint;
        CHECK_MSG(same, "case %d, texts %d and %d", number, i - 1, i);
        free(ids);
        CHECK(tokenizer_encode_pair(t, both, n - 1, &ids, &n, &second, NULL) == ERR_TOO_LONG);
    }
    tokenizer_close(t);
}

static void compare_folder(const char *folder, int n_least) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/cases.jsonl", folder);
    char *file = file_read(path, NULL), *next = NULL;
    cJSON *first = NULL;
    int number = 0;
    for (char *line = file ? strtok_r(file, "\n", &next) : NULL; line;
         line = strtok_r(NULL, "\n", &next)) {
        cJSON *row = cJSON_Parse(line);
        if (!first) {
            first = row;
            continue;
        }
        snprintf(path, sizeof path, "%s/%s.json", folder,
                 cJSON_GetObjectItemCaseSensitive(row, "base")->valuestring);
        cJSON *base = parse_file(path);
        const cJSON *texts = cJSON_GetObjectItemCaseSensitive(first, "texts");
        if (base) check_case(row, base, texts, number);
        if (base) check_pairs(row, base, texts, number++);
        cJSON_Delete(base);
        cJSON_Delete(row);
    }
    CHECK(number >= n_least);
    cJSON_Delete(first);
    free(file);
}

static uint8_t *read_base64(const char *text, size_t *n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t *out = mem_new(strlen(text), 1);
    unsigned bits = 0;
    for (*n = 0; *text && *text != '='; text++) {
        bits = bits << 6 | (unsigned)(strchr(digits, *text) - digits);
        if (++*n % 4 == 0)
            for (size_t k = 0; k < 3; k++)
                out[*n / 4 * 3 - 3 + k] = (uint8_t)(bits >> (16 - 8 * k));
    }
    size_t full = *n / 4 * 3;
    if (*n % 4 == 2) out[full++] = (uint8_t)(bits >> 4);
    if (*n % 4 == 3) out[full++] = (uint8_t)(bits >> 10), out[full++] = (uint8_t)(bits >> 2);
    *n = full;
    return out;
}

/* Tokens of a tokenizer.json as GGUF files of encoders have them. mark: WordPiece, whose tokens at
 * the start of words begin with a space mark, and others without ##; not cased: without those that
 * have capital letters. */
static void write_words(const cJSON *json, bool mark, bool cased, const char *path) {
    const cJSON *vocab =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(json, "model"), "vocab");
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(
                               cJSON_GetObjectItemCaseSensitive(json, "normalizer"), "normalizers"),
                           0),
        "precompiled_charsmap");
    const int n = cJSON_GetArraySize(vocab);
    gguf_str *texts = mem_new((uint64_t)n, sizeof *texts);
    char *bytes = mem_new((uint64_t)n, 64);
    int32_t *types = mem_new((uint64_t)n, sizeof *types);
    float *scores = mem_new((uint64_t)n, sizeof *scores);
    gguf_writer *w = gguf_writer_new();
    const cJSON *item;
    err e = {0};
    int place = 0, rc = 0;
    cJSON_ArrayForEach(item, vocab) {
        const int i = mark ? item->valueint : place++;
        const char *text = mark ? item->string : item->child->valuestring;
        const bool control = mark ? i < 5 : i < 4 || i + 1 == n;
        const bool inside = mark && !strncmp(text, "##", 2) && text[2];
        snprintf(bytes + 64 * i, 64, "%s%s", mark && !control && !inside ? "\xe2\x96\x81" : "",
                 text + (inside ? 2 : 0));
        if (mark && !control && !cased && strpbrk(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
            snprintf(bytes + 64 * i, 64, "\xe2\x96\x81[unused%d]", i);
        texts[i] = (gguf_str){bytes + 64 * i, strlen(bytes + 64 * i)};
        types[i] = control ? TOKEN_CONTROL : TOKEN_NORMAL;
        if (!mark) scores[i] = (float)item->child->next->valuedouble;
        if (!mark && i == 3) types[i] = TOKEN_UNKNOWN;
    }
    rc |= gguf_writer_set_str(w, "general.architecture", "bert", &e);
    rc |= gguf_writer_set_str(w, "tokenizer.ggml.model", mark ? "bert" : "t5", &e);
    rc |= gguf_writer_set_texts(w, "tokenizer.ggml.tokens", texts, (uint64_t)n, &e);
    rc |= gguf_writer_set_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, (uint64_t)n, &e);
    rc |= gguf_writer_set_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, (uint64_t)n, &e);
    rc |= gguf_writer_set_u32(
        w, mark ? "tokenizer.ggml.cls_token_id" : "tokenizer.ggml.bos_token_id", mark ? 2 : 0, &e);
    rc |= gguf_writer_set_u32(
        w, mark ? "tokenizer.ggml.seperator_token_id" : "tokenizer.ggml.eos_token_id", mark ? 3 : 2,
        &e);
    if (map) {
        size_t n_bytes;
        uint8_t *raw = read_base64(map->valuestring, &n_bytes);
        rc |= gguf_writer_set_array(w, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, raw, n_bytes,
                                    &e);
        free(raw);
    }
    if (!rc) rc = gguf_writer_finish(w, path, &e);
    CHECK_MSG(rc == 0, "%s", e.msg);
    gguf_writer_free(w);
    free(texts);
    free(bytes);
    free(types);
    free(scores);
}

/* White space that GGUF's rules keep, as SentencePiece does; and space marks, which its WordPiece
 * cannot tell from the start of a word. */
static bool has_other_space(const char *text) {
    static const char *const others[] = {"\xc2\x85", "\xe2\x80\xa8", "\x0b", "\xe2\x96\x81"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strstr(text, others[i])) return true;
    return false;
}

/* The row of cases.jsonl whose ids a GGUF file gives: of Unigram that with split white space. */
static void gguf_words_equal_the_library(void) {
    static const struct {
        const char *base;
        int row;
    } rows[] = {{"wordpiece", 0}, {"wordpiece", 1}, {"unigram", 8}};
    for (int r = 0; r < 3; r++) {
        const bool mark = r < 2;
        char path[PATH_BYTES], *next = NULL;
        snprintf(path, sizeof path, "tests/data/tokenizer/words/%s.json", rows[r].base);
        cJSON *json = parse_file(path);
        char *file = file_read("tests/data/tokenizer/words/cases.jsonl", NULL);
        cJSON *first = cJSON_Parse(strtok_r(file, "\n", &next)), *row = NULL;
        for (int i = 0; i <= rows[r].row; i++) {
            cJSON_Delete(row);
            row = cJSON_Parse(strtok_r(NULL, "\n", &next));
        }
        snprintf(path, sizeof path, "/tmp/test_bpe_words.%d.gguf", (int)getpid());
        write_words(json, mark, r == 1, path);
        tokenizer *t = NULL;
        err e = {0};
        CHECK_MSG(tokenizer_open(path, &t, &e) == 0, "%s", e.msg);
        unlink(path);
        const cJSON *text, *ids = cJSON_GetObjectItemCaseSensitive(row, "ids")->child;
        cJSON_ArrayForEach(text, cJSON_GetObjectItemCaseSensitive(first, "texts")) {
            if (t && !has_other_space(text->valuestring))
                CHECK_MSG(encodes_to(t, text->valuestring, ids), "%s: %.60s", rows[r].base,
                          text->valuestring);
            ids = ids->next;
        }
        CHECK(t && tokenizer_joins_pairs(t) && tokenizer_bos(t) == (mark ? 2 : 0) &&
              tokenizer_eos(t) == (mark ? 3 : 2));
        tokenizer_close(t);
        cJSON_Delete(first);
        cJSON_Delete(row);
        cJSON_Delete(json);
        free(file);
    }
}

static void components_equal_the_library(void) {
    compare_folder("tests/data/tokenizer/bpe", 30);
}

static void words_equal_the_library(void) {
    compare_folder("tests/data/tokenizer/words", 11);
}

/* A vocabulary of a, b, c and their merges, ranked in the list's order. */
#define TINY_MODEL                                                                                 \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"bc\":4,"           \
    "\"abc\":5,\"aa\":6,\"aab\":7,\"aaaa\":8,\"cc\":9},\"merges\":[\"b c\",\"a b\",\"a a\","       \
    "\"aa b\",\"ab c\",\"aa aa\",\"c c\"]}"

static const char *const tiny_texts[] = {"a",   "b",  "c",   "ab",   "bc",
                                         "abc", "aa", "aab", "aaaa", "cc"};
static const char *const tiny_merges[][2] = {{"b", "c"},  {"a", "b"},   {"a", "a"}, {"aa", "b"},
                                             {"ab", "c"}, {"aa", "aa"}, {"c", "c"}};

static int tiny_id(const char *text, size_t n) {
    for (int i = 0; i < 10; i++)
        if (strlen(tiny_texts[i]) == n && memcmp(tiny_texts[i], text, n) == 0) return i;
    return -1;
}

/* The definition: of all adjacent pairs that merge, takes the lowest rank, the leftmost of equal
 * ones. */
static size_t naive_merge(const char *text, size_t n, int32_t *ids) {
    size_t cuts[1024], n_cuts = 0;
    for (size_t i = 0; i <= n; i++)
        cuts[n_cuts++] = i;
    for (;;) {
        size_t best = 0, best_rank = 99;
        for (size_t i = 1; i + 1 < n_cuts; i++) {
            for (size_t r = 0; r < sizeof tiny_merges / sizeof tiny_merges[0]; r++) {
                size_t left = cuts[i] - cuts[i - 1], right = cuts[i + 1] - cuts[i];
                const char *const *m = tiny_merges[r];
                if (r < best_rank && strlen(m[0]) == left && strlen(m[1]) == right &&
                    !memcmp(text + cuts[i - 1], m[0], left) &&
                    !memcmp(text + cuts[i], m[1], right)) {
                    best = i;
                    best_rank = r;
                }
            }
        }
        if (!best) break;
        memmove(cuts + best, cuts + best + 1, (--n_cuts - best) * sizeof *cuts);
    }
    for (size_t i = 0; i + 1 < n_cuts; i++)
        ids[i] = tiny_id(text + cuts[i], cuts[i + 1] - cuts[i]);
    return n_cuts - 1;
}

/* Lengths around the threshold between the two merge algorithms, and beyond. */
static void merging_equals_the_definition(void) {
    err e = {0};
    tokenizer *t = open_json(TINY_MODEL "}", NULL, &e);
    struct rng rng = {17};
    CHECK_MSG(t, "%s", e.msg);
    for (int round = 0; t && round < 3000; round++) {
        char text[300];
        int32_t want[300], *ids;
        size_t n_ids, n = (size_t)(round % 3 ? 1 + round % 60 : round % 300);
        for (size_t i = 0; i < n; i++) {
            text[i] = "aaabbc"[rng_next(&rng) % 6];
        }
        size_t n_want = n ? naive_merge(text, n, want) : 0;
        CHECK(tokenizer_encode(t, text, n, 0, MAX_IDS, &ids, &n_ids, NULL) == 0);
        CHECK_MSG(n_ids == n_want && !memcmp(ids, want, n_ids * sizeof *ids), "round %d", round);
        free(ids);
    }
    tokenizer_close(t);
}

/* Work is linear in the text: with quadratic work these would take hours. */
static void long_words_are_merged(void) {
    enum { LONG = 1 << 20 };
    cJSON *base = parse_file(FOLDER "byte-level.json");
    err e = {0};
    tokenizer *t = base ? open_composed(base, NULL, "deepseek-llm", &e) : NULL;
    char *text = mem_new(LONG, 1);
    static const char *const fills[] = {"a", " ", "the", " \n", "7", "\xcc\x81", "\xe4\xb8\xad"};
    CHECK_MSG(t, "%s", e.msg);
    for (size_t k = 0; t && k < sizeof fills / sizeof fills[0]; k++) {
        int32_t *ids;
        size_t n_ids, n_back, n = LONG - LONG % strlen(fills[k]);
        char *back;
        for (size_t i = 0; i < n; i++)
            text[i] = fills[k][i % strlen(fills[k])];
        CHECK(tokenizer_encode(t, text, n, 0, LONG, &ids, &n_ids, &e) == 0);
        CHECK(tokenizer_decode(t, ids, n_ids, false, &back, &n_back, NULL) == 0);
        CHECK_MSG(n_back == n && !memcmp(back, text, n), "%s", fills[k]);
        free(back);
        free(ids);
    }
    free(text);
    tokenizer_close(t);
    cJSON_Delete(base);
}

static void bytes_that_are_no_text_come_back(void) {
    cJSON *base = parse_file(FOLDER "byte-level.json");
    err e = {0};
    tokenizer *t = base ? open_composed(base, NULL, "llama-bpe", &e) : NULL;
    struct rng rng = {23};
    for (int round = 0; t && round < 1000; round++) {
        char text[120], *back;
        int32_t *ids;
        size_t n = (size_t)round % sizeof text, n_ids, n_back;
        for (size_t i = 0; i < n; i++) {
            text[i] = round % 2 ? (char)rng_next(&rng) : "a \xc3\xa9\xe4\xb8\n"[rng_next(&rng) % 7];
        }
        CHECK(tokenizer_encode(t, text, n, 0, MAX_IDS, &ids, &n_ids, NULL) == 0);
        CHECK(tokenizer_decode(t, ids, n_ids, false, &back, &n_back, NULL) == 0);
        CHECK_MSG(n_back == n && !memcmp(back, text, n), "round %d", round);
        free(back);
        free(ids);
    }
    CHECK_MSG(t, "%s", e.msg);
    tokenizer_close(t);
    cJSON_Delete(base);
}

/* The concatenated text of a stream equals the text decoded at once. */
static void check_stream(const tokenizer *t, const char *text) {
    struct engine_text_config config = {.tok = t,
                                        .strip_leading_space = tokenizer_strips_leading_space(t)};
    engine_text *stream = engine_text_new(&config);
    int32_t *ids;
    size_t n_ids, n;
    char *whole;
    const char *part;
    str got, want;
    str_init(&got, 1 << 20);
    str_init(&want, 1 << 20);
    CHECK(tokenizer_encode(t, text, strlen(text), 0, MAX_IDS, &ids, &n_ids, NULL) == 0);
    CHECK(tokenizer_decode(t, ids, n_ids, false, &whole, &n, NULL) == 0);
    utf8_add_lossy(&want, whole, n);
    for (size_t i = 0; i < n_ids; i++) {
        engine_text_push(stream, ids[i], &part, &n);
        CHECK(utf8_valid(part, n));
        str_add_n(&got, part, n);
    }
    engine_text_finish(stream, &part, &n);
    str_add_n(&got, part, n);
    CHECK_STR(str_cstr(&got), str_cstr(&want));
    engine_text_free(stream);
    str_fini(&got);
    str_fini(&want);
    free(whole);
    free(ids);
}

/* After each token, a stream has returned the decoded text of the tokens so far, except bytes that
 * may still become a character. */
static void check_splits(const tokenizer *t, const int32_t *ids, size_t n_ids, bool with_control) {
    struct engine_text_config config = {.tok = t,
                                        .strip_leading_space = tokenizer_strips_leading_space(t),
                                        .with_control = with_control};
    engine_text *stream = engine_text_new(&config);
    str got, want;
    str_init(&got, 1 << 20);
    str_init(&want, 1 << 20);
    for (size_t i = 0; i <= n_ids; i++) {
        const char *part;
        char *all = NULL;
        size_t n, n_all = 0;
        if (i < n_ids)
            engine_text_push(stream, ids[i], &part, &n);
        else
            engine_text_finish(stream, &part, &n);
        CHECK(utf8_valid(part, n));
        str_add_n(&got, part, n);
        size_t n_first = i < n_ids ? i + 1 : n_ids;
        CHECK(tokenizer_decode(t, ids, n_first, with_control, &all, &n_all, NULL) == 0);
        str_clear(&want);
        utf8_add_lossy(&want, all, i < n_ids ? utf8_whole(all, n_all) : n_all);
        CHECK_MSG(got.len == want.len && !memcmp(str_cstr(&got), str_cstr(&want), got.len),
                  "split %zu: \"%s\", not \"%s\"", i, str_cstr(&got), str_cstr(&want));
        free(all);
    }
    engine_text_free(stream);
    str_fini(&got);
    str_fini(&want);
}

/* Random ids: words, single bytes that are not characters, control tokens between them, or no
 * ids. */
static void streams_equal_the_whole_text_on_every_split(void) {
    static const char *const files[] = {FOLDER "byte-level.json", FOLDER "spm-like.json",
                                        "registry/demo/tokenizer.model",
                                        "tests/golden/arch/llama2/hf"};
    enum { ROUNDS = 400, MAX_LEN = 24 };
    struct rng rng = {5};
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        tokenizer *t = NULL;
        err e = {0};
        CHECK_MSG(tokenizer_open(files[f], &t, &e) == 0, "%s", e.msg);
        for (int round = 0; t && round < ROUNDS; round++) {
            int32_t ids[MAX_LEN];
            size_t n = 0;
            size_t n_ids = rng_next(&rng) % MAX_LEN;
            /* The first ids are bytes and control tokens in all of these. */
            uint32_t n_first = round % 2 ? 300 : (uint32_t)tokenizer_n_vocab(t) + 2;
            while (n < n_ids) {
                ids[n++] = (int32_t)(rng_next(&rng) % n_first);
            }
            check_splits(t, ids, n_ids, round % 3 == 0);
        }
        tokenizer_close(t);
    }
}

static void streams_equal_the_whole_text(void) {
    static const char *const files[] = {FOLDER "byte-level.json", FOLDER "spm-like.json"};
    static const char *const texts[] = {"  two spaces",
                                        " one",
                                        "none",
                                        "\xf0\x9f\xa6\x8a\xe4\xb8\xad\xe6\x96\x87 \xc3\xa9\n",
                                        "\xe4\xb8",
                                        "a\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7 b",
                                        "<|im_end|> x <mask>"};
    for (size_t f = 0; f < 2; f++) {
        tokenizer *t = NULL;
        err e = {0};
        CHECK_MSG(tokenizer_open(files[f], &t, &e) == 0, "%s", e.msg);
        for (size_t i = 0; t && i < sizeof texts / sizeof texts[0]; i++)
            check_stream(t, texts[i]);
        tokenizer_close(t);
    }
}

/* Only trusted text yields special tokens, however a client writes them. */
static void clients_cannot_write_control_tokens(void) {
    cJSON *base = parse_file(FOLDER "byte-level.json");
    tokenizer *t = base ? open_composed(base, NULL, "qwen2", NULL) : NULL;
    static const char text[] = "<|im_start|><|im_end|> <mask><tool>";
    tokenizer_piece pieces[] = {{"<|im_start|>", 12, true}, {text, sizeof text - 1, false}};
    int32_t *ids;
    size_t n, n_control = 0;
    if (t && tokenizer_encode_pieces(t, pieces, 2, 0, MAX_IDS, &ids, &n, NULL) == 0) {
        for (size_t i = 0; i < n; i++)
            n_control += tokenizer_is_control(t, ids[i]);
        CHECK(n_control == 1 && ids[0] == tokenizer_find(t, "<|im_start|>"));
        CHECK(ids[n - 1] == tokenizer_find(t, "<tool>"));
        free(ids);
    }
    CHECK(t && n_control);
    tokenizer_close(t);
    cJSON_Delete(base);
}

#define WITH(members) TINY_MODEL "," members "}"

/* Files beside tokenizer.json: BOS and EOS by the class, end-of-generation tokens, the template. */
static void a_folder_is_read(void) {
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json",
                                        "generation_config.json", "chat_template.jinja"};
    char folder[] = "/tmp/inferd-bpe-XXXXXX", path[PATH_BYTES];
    tokenizer *t = NULL;
    err e = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    CHECK(mkdtemp(folder));
    CHECK(tokenizer_open(folder, &t, &e) == ERR_IO && !t && strstr(e.msg, "has no tokenizer.json"));
    CHECK(file_write(folder, names[0],
                     WITH("\"added_tokens\":[{\"id\":10,\"content\":\"<s>\",\"special\":true},"
                          "{\"id\":11,\"content\":\"</s>\",\"special\":true},"
                          "{\"id\":12,\"content\":\"<|stop|>\",\"special\":true}]")));
    CHECK(file_write(folder, names[1],
                     "{\"tokenizer_class\":\"LlamaTokenizerFast\",\"add_bos_token\":true,"
                     "\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"</s>\","
                     "\"chat_template\":[{\"name\":\"default\",\"template\":\"listed\"}]}"));
    CHECK(file_write(folder, names[2], "{\"eos_token_id\":[11,12]}"));
    CHECK_MSG(tokenizer_open(folder, &t, &e) == 0, "%s", e.msg);
    CHECK(t && tokenizer_bos(t) == 10 && tokenizer_eos(t) == 11 && tokenizer_adds_bos(t));
    CHECK(t && tokenizer_is_eog(t, 11) && tokenizer_is_eog(t, 12) && !tokenizer_is_eog(t, 10));
    if (t) CHECK_STR(tokenizer_chat_template(t), "listed");
    CHECK(t && !tokenizer_encode(t, "abc", 3, TOKENIZER_ADD_SPECIAL, 9, &ids, &n, NULL));
    CHECK(n == 3 && ids[0] == 10);
    free(ids);
    tokenizer_close(t);
    CHECK(file_write(folder, names[3], "its own file"));
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    CHECK_MSG(tokenizer_open(path, &t, &e) == 0, "%s", e.msg);
    if (t) CHECK_STR(tokenizer_chat_template(t), "its own file");
    tokenizer_close(t);
    CHECK(file_write(folder, names[1], "{\"bos_token\":"));
    CHECK(tokenizer_open(folder, &t, &e) == ERR_FORMAT && !t);
    CHECK_MSG(strstr(e.msg, "tokenizer_config.json: not valid JSON: unexpected end at byte 13"),
              "%s", e.msg);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

/* Characters of recent Unicode versions in the tokenizers library, 0.23.2: letters, numbers and Han
 * up to 16.0, normalization up to 9.0, lower case up to 17.0. */
static void characters_have_the_age_of_the_reference(void) {
    static const struct {
        uint32_t c;
        unsigned flags; /* of letters and numbers */
    } rows[] = {{0x10570, UNICODE_LETTER},
                {0x11f04, UNICODE_LETTER},
                {0x1e4d0, UNICODE_LETTER},
                {0x2ebf0, UNICODE_LETTER},
                {0x105c0, UNICODE_LETTER},
                {0xa7cb, UNICODE_LETTER},
                {0x1e4f0, UNICODE_NUMBER},
                {0x10d40, UNICODE_NUMBER},
                {0x10940, 0},
                {0x16ea0, 0},
                {0x323b0, 0},
                {0x11de0, 0}};
    static const struct {
        const char *from, *nfc, *lower;
    } texts[] = {{"a\u0301", "\u00e1", "a\u0301"},
                 {"\U000105d2\u0307", "\U000105d2\u0307", "\U000105d2\u0307"},
                 {"a\u08d4\u0323", "\u1ea1\u08d4", "a\u08d4\u0323"},
                 {"a\u1df6\u0323", "a\u1df6\u0323", "a\u1df6\u0323"},
                 {"\ua7cb\U00016ea0", "\ua7cb\U00016ea0", "\u0264\U00016ebb"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_MSG((unicode_flags_search(rows[i].c) & (UNICODE_LETTER | UNICODE_NUMBER)) ==
                      rows[i].flags,
                  "U+%04X", rows[i].c);
    CHECK(unicode_is_han(0x4e00) && unicode_is_han(0x2ebf0) && !unicode_is_han(0x323b0));
    CHECK(unicode_is_word('_') && unicode_is_word(0x11f04) && !unicode_is_word(0x10940));
    struct unicode_flags *flags = mem_new(1, sizeof *flags);
    unicode_flags_init(flags);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        str out;
        str_init(&out, 100);
        CHECK(unicode_normalize(flags, texts[i].from, strlen(texts[i].from), true, &out));
        CHECK_STR(str_cstr(&out), texts[i].nfc);
        str_clear(&out);
        unicode_add_lower(&out, texts[i].from, strlen(texts[i].from));
        CHECK_STR(str_cstr(&out), texts[i].lower);
        str_fini(&out);
    }
    free(flags);
}

/* A map of "a" to the text at `value` of "e with acute, NUL" or of other texts. */
static int map_a(uint32_t value, const char texts[3], const char *text, str *out, err *e) {
    enum { N = 'b' + 1 };
    uint32_t map[1 + N + 1] = {[0] = N * sizeof(uint32_t),
                               [1 + 'a'] = 'a' | 1u << 8 | ('a' ^ 'b') << 10,
                               [1 + 'b'] = value | 1u << 31};
    struct charsmap *m = NULL;
    memcpy(&map[1 + N], texts, 3);
    int rc = charsmap_new(map, (1 + N) * sizeof(uint32_t) + 3, &m, e);
    str_init(out, 64);
    if (!rc) charsmap_run(m, text, strlen(text), out);
    charsmap_free(m);
    return rc;
}

/* What follows takes its result for valid UTF-8. */
static void maps_of_characters_give_characters(void) {
    static const struct {
        uint32_t value;
        const char *want;
    } rows[] = {{0, "\xc3\xa9.b"}, {1, "a.b"}, {2, ".b"}, {3, "a.b"}};
    str out;
    err e = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK(map_a(rows[i].value, "\xc3\xa9", "a.b", &out, &e) == 0);
        CHECK_STR(str_cstr(&out), rows[i].want);
        str_fini(&out);
    }
    CHECK(map_a(0, "\xa9\xc3", "a", &out, &e) == ERR_FORMAT && strstr(e.msg, "is damaged"));
    CHECK(map_a(0, "\xc3\0", "a", &out, &e) == ERR_FORMAT);
}

static void bad_files_are_refused(void) {
    static const struct {
        const char *json, *what;
    } rows[] = {
        {"", "not valid JSON"},
        {"[1]", "not a JSON object"},
        {"{\"model\":\"\xff\"}", "not valid UTF-8"},
        {"{}", "no 'model'"},
        {"{\"model\":{\"type\":\"WordPiece\"}}", "the model has no 'vocab'"},
        {"{\"model\":{\"type\":\"Unigram\"}}", "the vocabulary has 0 tokens"},
        {"{\"model\":{\"type\":\"BPE\"}}", "no 'vocab'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{}}}", "the vocabulary has 0 tokens"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", "no 'merges'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "not an integer"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1e9},\"merges\":[]}}", "not an integer"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0.5},\"merges\":[]}}", "not an integer"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}",
         "two tokens have the id 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}",
         "the same text"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}",
         "not a pair of strings"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",1]]}}",
         "not a pair of strings"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a z\"]}}",
         "merge 0 names the unknown token 'z'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}",
         "merge 0 makes an unknown token"},
        {"{\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"a\":0},"
         "\"merges\":[]}}",
         "end_of_word_suffix is not supported"},
        {WITH("\"normalizer\":{\"type\":\"NFKC\"}"), "normalizer 'NFKC' is not supported"},
        {WITH("\"normalizer\":{\"type\":\"Precompiled\"}"), "has no precompiled_charsmap"},
        {WITH("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":"
              "\"\"}"),
         "pattern \"(\""},
        {WITH("\"normalizer\":{}"), "a normalizer has no type"},
        {WITH("\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}"), "'UnicodeScripts' is not"},
        {WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a[b]]\"}}"),
         "a nested character class"},
        {WITH("\"pre_tokenizer\":{\"type\":\"ByteLevel\"}"), "without it is not supported"},
        {WITH("\"decoder\":{\"type\":\"CTC\"}"), "decoder 'CTC' is not supported"},
        {WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
              "{\"id\":\"x\"}}]}"),
         "a token without ids"},
        {WITH("\"added_tokens\":[{\"id\":3000000,\"content\":\"x\"}]"), "not an integer"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        err e = {0};
        tokenizer *t = open_json(rows[i].json, NULL, &e);
        CHECK_MSG(!t && e.code && strstr(e.msg, rows[i].what), "want \"%s\", got \"%s\"",
                  rows[i].what, e.msg);
        tokenizer_close(t);
    }
}

int main(void) {
    RUN(components_equal_the_library);
    RUN(words_equal_the_library);
    RUN(gguf_words_equal_the_library);
    RUN(merging_equals_the_definition);
    RUN(long_words_are_merged);
    RUN(bytes_that_are_no_text_come_back);
    RUN(streams_equal_the_whole_text);
    RUN(streams_equal_the_whole_text_on_every_split);
    RUN(clients_cannot_write_control_tokens);
    RUN(a_folder_is_read);
    RUN(characters_have_the_age_of_the_reference);
    RUN(maps_of_characters_give_characters);
    RUN(bad_files_are_refused);
    return check_done();
}
