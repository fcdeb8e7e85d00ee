/* test_vocab_write.c - a tokenizer written as keys of a GGUF file tokenizes like its original
 * folder: every component of tests/data/tokenizer/bpe (ids of the tokenizers library), real
 * vocabularies of the shared data, hand-made folders; and tokenizers that GGUF cannot represent are
 * refused. */
#include "core/base/mem.h"
#include "core/formats/gguf/gguf.h"
#include "core/text/utf8.h"
#include "core/tokenizer/tokenizer_int.h"
#include "tests/support/files.h"
#include "tests/support/rng.h"
#include "tests/unit/check.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <unistd.h>

#define FOLDER "tests/data/tokenizer/bpe/"
#define SHARED "../shared/data/tokenizers/"
#define GOLDEN "tests/golden/arch/"
#define DEMO   "registry/demo/tokenizer.model"

enum { PATH_BYTES = 256, MAX_IDS = 1 << 20, MAX_TEXTS = 2000 };

static char folder[64], written[PATH_BYTES];

static void put_file(const char *name, const char *text) {
    CHECK(file_write(folder, name, text));
}

static void drop_file(const char *name) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

/* Writes the tokenizer of path to `written`, a file without tensors. */
static int convert(const char *path, uint64_t n_rows, err *e) {
    gguf_writer *w = gguf_writer_new();
    int rc = tokenizer_write_gguf(path, n_rows, w, e);
    if (!rc) rc = gguf_writer_finish(w, written, e);
    gguf_writer_free(w);
    return rc;
}

static tokenizer *open_written(const char *path, uint64_t n_rows) {
    tokenizer *t = NULL;
    err e = {0};
    int rc = convert(path, n_rows, &e);
    if (!rc) rc = tokenizer_open(written, &t, &e);
    CHECK_MSG(rc == 0, "%s: %s", path, e.msg);
    return t;
}

static bool same_ids(const tokenizer *a, const tokenizer *b, const char *text, size_t n,
                     int flags) {
    int32_t *x = NULL, *y = NULL;
    size_t n_x = 0, n_y = 0;
    bool same = tokenizer_encode(a, text, n, flags, MAX_IDS, &x, &n_x, NULL) == 0 &&
                tokenizer_encode(b, text, n, flags, MAX_IDS, &y, &n_y, NULL) == 0 && n_x == n_y &&
                memcmp(x, y, n_x * sizeof *x) == 0;
    char *p = NULL, *q = NULL;
    size_t n_p = 0, n_q = 0;
    if (same && tokenizer_decode(a, x, n_x, false, &p, &n_p, NULL) == 0 &&
        tokenizer_decode(b, x, n_x, false, &q, &n_q, NULL) == 0)
        same = n_p == n_q && memcmp(p, q, n_p) == 0;
    free(p);
    free(q);
    free(x);
    free(y);
    return same;
}

/* All functions of single tokens. */
static void check_same_tokens(const tokenizer *a, const tokenizer *b) {
    for (int32_t id = 0; id < tokenizer_n_vocab(a); id++) {
        size_t n_x, n_y;
        const char *x = tokenizer_token_text(a, id, &n_x), *y = tokenizer_token_text(b, id, &n_y);
        if (!n_x) continue; /* an id without a token */
        CHECK_MSG(n_x == n_y && !memcmp(x, y, n_x), "token %d: %.*s", id, (int)n_x, x);
        CHECK_MSG(tokenizer_is_eog(a, id) == tokenizer_is_eog(b, id), "token %d", id);
        bool control = tokenizer_is_control(a, id), unknown = a->unk == id || b->unk == id;
        CHECK_MSG(unknown || control == tokenizer_is_control(b, id), "token %d", id);
    }
    CHECK(tokenizer_bos(a) == tokenizer_bos(b) && tokenizer_eos(a) == tokenizer_eos(b));
    CHECK(tokenizer_adds_bos(a) == tokenizer_adds_bos(b));
    const char *x = tokenizer_chat_template(a), *y = tokenizer_chat_template(b);
    CHECK(x && y ? !strcmp(x, y) : x == y);
}

static void check_same_text(const tokenizer *a, const tokenizer *b, const char *text) {
    static const int flags[] = {0, TOKENIZER_PARSE_SPECIAL,
                                TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_SPECIAL};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        CHECK_MSG(same_ids(a, b, text, strlen(text), flags[i]), "flags %d: %.200s", flags[i], text);
}

/* Texts that stress words, numbers, scripts and special tokens. */
static cJSON *load_texts(void) {
    char *file = file_read(FOLDER "cases.jsonl", NULL), *next = NULL;
    cJSON *first = file ? cJSON_Parse(strtok_r(file, "\n", &next)) : NULL;
    cJSON *texts = cJSON_DetachItemFromObjectCaseSensitive(first, "texts");
    free(file);
    cJSON_Delete(first);
    char *lines = file_read("tests/data/tokenizer/texts.txt", NULL);
    for (char *line = lines ? strtok_r(lines, "\n", &next) : NULL; line;
         line = strtok_r(NULL, "\n", &next))
        cJSON_AddItemToArray(texts, cJSON_CreateString(line));
    free(lines);
    return texts;
}

/* Random parts of the texts in each round: word boundaries fall anywhere, characters are broken. */
static void check_random_texts(const tokenizer *a, const tokenizer *b, const cJSON *texts) {
    struct rng random = {7};
    const uint32_t n_texts = (uint32_t)cJSON_GetArraySize(texts);
    for (int round = 0; round < 200; round++) {
        char text[64];
        size_t n = 0;
        while (n < sizeof text) {
            const cJSON *item = cJSON_GetArrayItem(texts, (int)rng_below(&random, n_texts));
            const char *from = item->valuestring;
            size_t len = strlen(from), at = len ? rng_below(&random, (uint32_t)len) : 0;
            size_t take = 1 + rng_below(&random, 9);
            for (size_t i = 0; i < take && n < sizeof text; i++)
                text[n++] = at + i < len ? from[at + i] : ' ';
        }
        /* A tokenizer.json's components process the parts between broken characters separately. */
        if ((a->norm || a->space_prefix) && !utf8_valid(text, n)) n = utf8_valid_prefix(text, n);
        CHECK_MSG(same_ids(a, b, text, n, round % 4), "random text %d", round);
    }
}

static void check_round_trip(const char *path, uint64_t n_rows, const cJSON *texts) {
    tokenizer *a = NULL, *b = open_written(path, n_rows);
    const cJSON *text;
    CHECK_MSG(tokenizer_open(path, &a, NULL) == 0, "%s", path);
    if (a && b) {
        check_same_tokens(a, b);
        CHECK(tokenizer_n_vocab(b) >= tokenizer_n_vocab(a));
        cJSON_ArrayForEach(text, texts) check_same_text(a, b, text->valuestring);
        check_random_texts(a, b, texts);
    }
    tokenizer_close(a);
    tokenizer_close(b);
}

static cJSON *parse_file(const char *path) {
    cJSON *json = file_json(path);
    CHECK_MSG(json, "%s", path);
    return json;
}

/* A copy of base in which the members of set replace its own; those of "model" are replaced one by
 * one. */
static void put_composed(const cJSON *base, const cJSON *set) {
    cJSON *json = cJSON_Duplicate(base, true);
    const cJSON *item, *inner;
    cJSON_ArrayForEach(item, set) {
        cJSON *model = cJSON_GetObjectItemCaseSensitive(json, "model");
        if (strcmp(item->string, "model") != 0) {
            cJSON_DeleteItemFromObjectCaseSensitive(json, item->string);
            cJSON_AddItemToObject(json, item->string, cJSON_Duplicate(item, true));
            continue;
        }
        cJSON_ArrayForEach(inner, item) {
            cJSON_DeleteItemFromObjectCaseSensitive(model, inner->string);
            cJSON_AddItemToObject(model, inner->string, cJSON_Duplicate(inner, true));
        }
    }
    char *text = cJSON_PrintUnformatted(json);
    put_file("tokenizer.json", text);
    free(text);
    cJSON_Delete(json);
}

/* Every component is either refused by name or preserved; those that GGUF names must not be
 * refused. */
static void components_come_back_or_are_refused(void) {
    cJSON *bytes = parse_file(FOLDER "byte-level.json"), *spm = parse_file(FOLDER "spm-like.json");
    char *file = file_read(FOLDER "cases.jsonl", NULL), *next = NULL;
    cJSON *texts = load_texts();
    int number = -1, n_written = 0, n_refused = 0;
    for (char *line = file ? strtok_r(file, "\n", &next) : NULL; line;
         line = strtok_r(NULL, "\n", &next)) {
        cJSON *row = cJSON_Parse(line);
        const cJSON *base = cJSON_GetObjectItemCaseSensitive(row, "base");
        const cJSON *pre = cJSON_GetObjectItemCaseSensitive(row, "pre");
        err e = {0};
        if (number++ >= 0) {
            put_composed(strcmp(base->valuestring, "spm-like") ? bytes : spm,
                         cJSON_GetObjectItemCaseSensitive(row, "set"));
            int rc = convert(folder, 0, &e);
            CHECK_MSG(rc == 0 || (rc == ERR_UNSUPPORTED && strstr(e.msg, "GGUF")), "case %d: %s",
                      number, e.msg);
            CHECK_MSG(rc == 0 || !cJSON_IsString(pre), "case %d (%s): %s", number, pre->valuestring,
                      e.msg);
            n_written += rc == 0;
            n_refused += rc != 0;
            int before = check_failures;
            if (!rc) check_round_trip(folder, 0, texts);
            CHECK_MSG(check_failures == before, "case %d", number);
        }
        cJSON_Delete(row);
    }
    printf("     %d written, %d refused\n", n_written, n_refused);
    CHECK(n_written >= 18 && n_refused >= 10);
    drop_file("tokenizer.json");
    cJSON_Delete(texts);
    cJSON_Delete(bytes);
    cJSON_Delete(spm);
    free(file);
}

static void a_sentencepiece_model_comes_back(void) {
    cJSON *texts = load_texts();
    check_round_trip(DEMO, 0, texts);
    check_round_trip(DEMO, 5003, texts);
    cJSON_Delete(texts);
}

static void copy_demo_model(void) {
    char path[PATH_BYTES], bytes[4096];
    snprintf(path, sizeof path, "%s/tokenizer.model", folder);
    FILE *from = fopen(DEMO, "rb"), *to = fopen(path, "wb");
    CHECK(from && to);
    for (size_t n; from && to && (n = fread(bytes, 1, sizeof bytes, from)) > 0;)
        CHECK(fwrite(bytes, 1, n, to) == n);
    if (from) fclose(from);
    if (to) fclose(to);
}

static bool encodes_to(const tokenizer *t, const char *text, int flags, const int32_t *want,
                       size_t n_want) {
    int32_t *ids = NULL;
    size_t n = 0;
    if (tokenizer_encode(t, text, strlen(text), flags, MAX_IDS, &ids, &n, NULL)) return false;
    bool same = n == n_want && memcmp(ids, want, n * sizeof *ids) == 0;
    for (size_t i = 0; !same && i < n; i++)
        fprintf(stderr, "%s%d", i ? " " : "  got ", ids[i]);
    if (!same) fprintf(stderr, "\n");
    free(ids);
    return same;
}

/* transformers' files around a tokenizer.model of 4096 pieces: id 4097 is missing, one list has
 * more entries than the other, a special token strips the white space before it. */
static void a_folder_around_a_model_is_read(void) {
    static const char *const names[] = {"added_tokens.json",      "tokenizer_config.json",
                                        "generation_config.json", "config.json",
                                        "chat_template.json",     "tokenizer.model"};
    enum { TURN = 4096, PLAIN = 4098, STRIP = 4099, END = 4100, PARSE = TOKENIZER_PARSE_SPECIAL };
    int32_t the = -1, sp_the = -1;
    cJSON *texts = load_texts();
    copy_demo_model();
    put_file(names[0], "{\"<|turn|>\":4096,\"<plain>\":4098,\"<strip>\":4099,\"<stop>\":4100}");
    put_file(
        names[1],
        "{\"add_bos_token\":false,\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"<stop>\"},"
        "\"additional_special_tokens\":[\"<|turn|>\"],\"added_tokens_decoder\":{"
        "\"4099\":{\"content\":\"<strip>\",\"special\":true,\"lstrip\":true}}}");
    put_file(names[2], "{\"bos_token_id\":1}");
    put_file(names[3], "{\"eos_token_id\":[4100,4096],\"pad_token_id\":-1}");
    put_file(names[4], "{\"chat_template\":\"from json\"}");
    tokenizer *t = NULL;
    err e = {0};
    CHECK_MSG(tokenizer_open(folder, &t, &e) == 0, "%s", e.msg);
    if (t) {
        the = tokenizer_find(t, "the");
        CHECK(the > 0 && tokenizer_n_vocab(t) == 4101);
        CHECK(encodes_to(t, "the<|turn|>the", PARSE, (int32_t[]){the, TURN, the}, 3));
        CHECK(encodes_to(t, "the  <strip>the", PARSE, (int32_t[]){the, STRIP, the}, 3));
        CHECK(encodes_to(t, "the<plain>", 0, (int32_t[]){the, PLAIN}, 2));
        CHECK(encodes_to(t, "the", TOKENIZER_ADD_SPECIAL, (int32_t[]){the}, 1));
        CHECK(tokenizer_is_control(t, TURN) && !tokenizer_is_control(t, PLAIN));
        CHECK(tokenizer_eos(t) == END && tokenizer_is_eog(t, TURN) && tokenizer_is_control(t, END));
        CHECK_STR(tokenizer_chat_template(t), "from json");
    }
    tokenizer_close(t);
    check_round_trip(folder, 4104, texts);
    put_file(names[1], "{\"add_prefix_space\":true}");
    CHECK(tokenizer_open(folder, &t, &e) == 0 && tokenizer_strips_leading_space(t));
    sp_the = tokenizer_find(t, "\xe2\x96\x81the");
    CHECK(sp_the > 0 && encodes_to(t, "the", 0, &sp_the, 1));
    tokenizer_close(t);
    put_file(names[1], "{\"added_tokens_decoder\":{\"4x\":{\"content\":\"y\"}}}");
    CHECK(tokenizer_open(folder, &t, &e) == ERR_FORMAT && strstr(e.msg, "'4x' is not a token id"));
    put_file(names[0], "{\"x\":-5}");
    CHECK(tokenizer_open(folder, &t, &e) == ERR_FORMAT && strstr(e.msg, "not an integer"));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        drop_file(names[i]);
    cJSON_Delete(texts);
}

#define BPE(members, more)                                                                         \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\xe2\x96\x81\":3},"        \
    "\"merges\":[\"a b\"]" members "}," more "}"
#define SPACES                                                                                     \
    "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" "                             \
    "\"},\"content\":\"\xe2\x96\x81\"},"                                                           \
    "\"decoder\":{\"type\":\"Fuse\"}"
#define BYTE_DECODER "\"decoder\":{\"type\":\"ByteLevel\"},"

/* The refusal names the cause. */
static void what_gguf_cannot_carry_is_refused(void) {
    static const struct {
        const char *json;
        uint64_t n_rows;
        int rc;
        const char *what;
    } rows[] = {
        {BPE("",
             BYTE_DECODER "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"),
         0, ERR_UNSUPPORTED, "add_prefix_space"},
        {BPE("", BYTE_DECODER "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
                              "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x{7}\"},\"behavior\":"
                              "\"Isolated\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                              "\"use_regex\":false}]}"),
         0, ERR_UNSUPPORTED, "pre_tokenizer 'x{7}'"},
        {BPE("", BYTE_DECODER "\"normalizer\":{\"type\":\"Lowercase\"},\"pre_tokenizer\":"
                              "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"),
         0, ERR_UNSUPPORTED, "normalizer 'Lowercase'"},
        {BPE("", SPACES), 0, ERR_UNSUPPORTED, "byte_fallback"},
        {BPE(",\"byte_fallback\":true", SPACES), 3, ERR_INVALID,
         "the tokenizer has 4 tokens, the embedding 3 rows"},
        {BPE("", "\"decoder\":{\"type\":\"Fuse\"}"), 0, ERR_UNSUPPORTED, "ByteLevel or Metaspace"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        err e = {0};
        put_file("tokenizer.json", rows[i].json);
        int rc = convert(folder, rows[i].n_rows, &e);
        CHECK_MSG(rc == rows[i].rc && strstr(e.msg, rows[i].what), "row %zu: %s", i, e.msg);
    }
    drop_file("tokenizer.json");
}

/* Merges that no scores represent: no merge makes the token "ab". They are kept as merges. */
static void merges_without_scores_are_kept(void) {
    cJSON *texts = load_texts();
    put_file("tokenizer.json",
             "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"a\":0,\"b\":1,"
             "\"ab\":2,\"\xe2\x96\x81\":3,\"bb\":4,\"<0x41>\":5},\"merges\":[\"b b\"]}," SPACES
             "}");
    tokenizer *t = open_written(folder, 9);
    gguf *g = NULL;
    gguf_str model;
    CHECK(gguf_open(written, 0, &g, NULL) == 0 &&
          gguf_get_str(g, "tokenizer.ggml.model", &model, NULL) == 0 && model.len == 6 &&
          !memcmp(model.data, "gemma4", 6));
    gguf_close(g);
    if (t) {
        size_t n;
        CHECK(encodes_to(t, "abbb", 0, (int32_t[]){0, 4, 1}, 3));
        CHECK(tokenizer_n_vocab(t) == 9 && !memcmp(tokenizer_token_text(t, 8, &n), "[PAD8]", 6));
    }
    tokenizer_close(t);
    drop_file("tokenizer.json");
    cJSON_Delete(texts);
}

/* A merge, the best first. */
struct ranked {
    float score;
    int32_t left, right;
};

static int compare_ranked(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    if (x->left != y->left) return x->left < y->left ? -1 : 1;
    return (x->right > y->right) - (x->right < y->right);
}

/* Every split of a token into two as a merge, in the order of the scores, as transformers converts
 * a tokenizer.model. */
static cJSON *merges_of(const struct vocab *v, const tokenizer *t) {
    struct ranked *all = mem_new(1 << 16, sizeof *all);
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        const struct vocab_token *k = &v->tokens[i];
        for (uint32_t at = 1; k->type == TOKEN_NORMAL && at < k->len; at++) {
            char left[64], right[64];
            snprintf(left, sizeof left, "%.*s", (int)at, k->text);
            snprintf(right, sizeof right, "%.*s", (int)(k->len - at), k->text + at);
            int32_t l = tokenizer_find(t, left), r = tokenizer_find(t, right);
            if (l >= 0 && r >= 0 && n < 1 << 16) all[n++] = (struct ranked){k->score, l, r};
        }
    }
    qsort(all, n, sizeof *all, compare_ranked);
    cJSON *list = cJSON_CreateArray();
    for (uint32_t i = 0; i < n; i++) {
        char text[160];
        size_t n_left, n_right;
        const char *l = tokenizer_token_text(t, all[i].left, &n_left);
        const char *r = tokenizer_token_text(t, all[i].right, &n_right);
        snprintf(text, sizeof text, "%.*s %.*s", (int)n_left, l, (int)n_right, r);
        cJSON_AddItemToArray(list, cJSON_CreateString(text));
    }
    free(all);
    return list;
}

static void put_merges(const struct vocab *v, const tokenizer *t, const char *components) {
    cJSON *json = cJSON_Parse(components), *model = cJSON_CreateObject();
    cJSON *ids = cJSON_AddObjectToObject(model, "vocab");
    cJSON *added = cJSON_AddArrayToObject(json, "added_tokens");
    for (uint32_t i = 0; i < v->n; i++) {
        char text[64];
        snprintf(text, sizeof text, "%.*s", (int)v->tokens[i].len, v->tokens[i].text);
        cJSON_AddNumberToObject(ids, text, i);
        if (v->tokens[i].type != TOKEN_CONTROL) continue;
        cJSON *item = cJSON_CreateObject();
        cJSON_AddNumberToObject(item, "id", i);
        cJSON_AddStringToObject(item, "content", text);
        cJSON_AddBoolToObject(item, "special", true);
        cJSON_AddItemToArray(added, item);
    }
    cJSON_AddStringToObject(model, "type", "BPE");
    cJSON_AddBoolToObject(model, "byte_fallback", true);
    cJSON_AddItemToObject(model, "merges", merges_of(v, t));
    cJSON_AddItemToObject(json, "model", model);
    char *text = cJSON_PrintUnformatted(json);
    put_file("tokenizer.json", text);
    free(text);
    cJSON_Delete(json);
}

#define MARK    "\"\xe2\x96\x81\""
#define REPLACE "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":" MARK "}"
#define DECODERS                                                                                   \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":" MARK                                          \
    "},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}"

/* The forms in which the tokenizer.json of Llama, Mistral and Gemma express SentencePiece's
 * rules. */
static void merges_become_scores_again(void) {
    static const struct {
        const char *components;
        bool prefix;
    } ways[] = {
        {"{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
         "\"prepend\":" MARK "}," REPLACE
         "]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" DECODERS
         ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}}",
         true},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":" MARK
         ",\"prepend_scheme\":\"always\",\"split\":false},\"decoder\":{\"type\":\"Sequence\","
         "\"decoders\":[" DECODERS
         ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}}",
         true},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":" MARK
         ",\"prepend_scheme\":\"first\",\"split\":false},\"decoder\":{\"type\":\"Sequence\","
         "\"decoders\":[" DECODERS
         ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}}",
         true},
        {"{\"normalizer\":" REPLACE
         ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":"
         "\" \"},\"behavior\":\"MergedWithPrevious\",\"invert\":false},\"decoder\":{\"type\":"
         "\"Sequence\",\"decoders\":[" DECODERS "]}}",
         false},
    };
    cJSON *texts = load_texts();
    const cJSON *text;
    struct vocab v;
    tokenizer *t = NULL;
    put_file("tokenizer_config.json", "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}");
    CHECK(vocab_read(DEMO, &v, NULL) == 0 && tokenizer_open(DEMO, &t, NULL) == 0);
    for (size_t i = 0; t && i < sizeof ways / sizeof ways[0]; i++) {
        gguf *g = NULL;
        gguf_str model = {0};
        bool prefix = false;
        put_merges(&v, t, ways[i].components);
        check_round_trip(folder, 0, texts);
        CHECK(gguf_open(written, 0, &g, NULL) == 0 &&
              gguf_get_str(g, "tokenizer.ggml.model", &model, NULL) == 0 && model.len == 5 &&
              gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &prefix, NULL) == 0);
        CHECK(prefix == ways[i].prefix);
        gguf_close(g);
        /* Without a prefix the ids are those of the model that the merges were made from. */
        tokenizer *own = prefix ? NULL : open_written(folder, 0);
        if (own)
            cJSON_ArrayForEach(text, texts)
                CHECK(same_ids(t, own, text->valuestring, strlen(text->valuestring), 0));
        tokenizer_close(own);
    }
    drop_file("tokenizer.json");
    drop_file("tokenizer_config.json");
    tokenizer_close(t);
    vocab_fini(&v);
    cJSON_Delete(texts);
}

/* Do two files have the same list under this key? */
static bool same_list(const gguf *a, const gguf *b, const char *key) {
    enum gguf_type x, y;
    uint64_t n_x = 0, n_y = 0;
    if (gguf_get_array(a, key, &x, &n_x, NULL) || gguf_get_array(b, key, &y, &n_y, NULL) ||
        x != GGUF_STRING || y != GGUF_STRING || n_x != n_y)
        return !gguf_has(a, key) && !gguf_has(b, key);
    for (uint64_t i = 0; i < n_x; i++) {
        gguf_str p = gguf_array_str(a, key, i), q = gguf_array_str(b, key, i);
        if (p.len != q.len || memcmp(p.data, q.data, p.len)) return false;
    }
    return true;
}

/* The reference converter's file of the same folder: compares the common keys. */
static void check_beside_reference(const char *name, const cJSON *texts) {
    char hf[PATH_BYTES], reference[PATH_BYTES];
    gguf *a = NULL, *b = NULL;
    tokenizer *t = NULL, *own = NULL;
    const cJSON *text;
    uint64_t n_rows = 0;
    enum gguf_type elem;
    snprintf(hf, sizeof hf, GOLDEN "%s/hf", name);
    snprintf(reference, sizeof reference, GOLDEN "%s/model.gguf", name);
    CHECK(gguf_open(reference, GGUF_OPEN_VOCAB_ONLY, &b, NULL) == 0 &&
          gguf_get_array(b, "tokenizer.ggml.tokens", &elem, &n_rows, NULL) == 0);
    check_round_trip(hf, n_rows, texts);
    CHECK(gguf_open(written, 0, &a, NULL) == 0);
    CHECK_MSG(same_list(a, b, "tokenizer.ggml.tokens"), "%s", name);
    CHECK_MSG(same_list(a, b, "tokenizer.ggml.merges"), "%s", name);
    CHECK(tokenizer_open(reference, &t, NULL) == 0 && tokenizer_open(written, &own, NULL) == 0);
    if (t && own) {
        check_same_tokens(t, own);
        cJSON_ArrayForEach(text, texts) check_same_text(t, own, text->valuestring);
    }
    tokenizer_close(t);
    tokenizer_close(own);
    gguf_close(a);
    gguf_close(b);
}

static void files_equal_the_reference_converter(void) {
    static const char *const names[] = {"gemma2", "gemma3",  "gpt-oss",  "granite",  "llama",
                                        "llama2", "mistral", "mixtral",  "olmo2",    "phi3",
                                        "qwen2",  "qwen3",   "qwen3moe", "qwen2moe", "smollm3"};
    cJSON *texts = load_texts();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int before = check_failures;
        check_beside_reference(names[i], texts);
        CHECK_MSG(check_failures == before, "%s", names[i]);
    }
    cJSON_Delete(texts);
}

static void real_vocabularies_come_back(void) {
    static const char *const paths[] = {"hf/qwen3",
                                        "hf/phi-2",
                                        "hf/cl100k_base",
                                        "hf/phi-3-mini",
                                        "sentencepiece/llama2",
                                        "sentencepiece/mistral-v3"};
    cJSON *texts = load_texts();
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char path[PATH_BYTES];
        snprintf(path, sizeof path, SHARED "%s", paths[i]);
        int before = check_failures;
        check_round_trip(path, 0, texts);
        CHECK_MSG(check_failures == before, "%s", path);
    }
    cJSON_Delete(texts);
}

int main(void) {
    char name[] = "/tmp/inferd-vocab-XXXXXX";
    if (!mkdtemp(name)) return 1;
    snprintf(folder, sizeof folder, "%s", name);
    snprintf(written, sizeof written, "%s.gguf", name);
    RUN(components_come_back_or_are_refused);
    RUN(a_sentencepiece_model_comes_back);
    RUN(a_folder_around_a_model_is_read);
    RUN(what_gguf_cannot_carry_is_refused);
    RUN(merges_without_scores_are_kept);
    RUN(merges_become_scores_again);
    RUN(files_equal_the_reference_converter);
    if (access(SHARED "hf/qwen3/tokenizer.json", R_OK) == 0)
        RUN(real_vocabularies_come_back);
    else
        SKIP("real_vocabularies_come_back", "no shared data at " SHARED);
    unlink(written);
    rmdir(folder);
    return check_done();
}
