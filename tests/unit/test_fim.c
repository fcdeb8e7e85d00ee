/* test_fim.c - prompts to fill in the middle: the tokens of each available family of vocabularies,
 * their order, and no additional space between them. The ids between the tokens are compared with
 * the encoded texts; for vocabularies that add a space before text, the suffix is compared with its
 * makers' method: encode a sign before it and remove the sign's tokens. */
#include "core/base/mem.h"
#include "core/formats/gguf/gguf.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <unistd.h>

#define SHARED "../shared/data/tokenizers/"
#define DEMO   "registry/demo/tokenizer.model"

enum { MAX_IDS = 1000 };

static const char *const prefixes[] = {"def f(x):\n    return ", "", "int main(void) {", " a",
                                       "\n\n"};
static const char *const suffixes[] = {"\n\nprint(f(1))\n", " + 1;", "return 0;\n}", "\xc3\xa9",
                                       "x"};

struct list {
    int32_t *ids;
    size_t n;
};

static struct list encode(const tokenizer *t, const char *text) {
    struct list l = {0};
    CHECK(tokenizer_encode(t, text, strlen(text), 0, MAX_IDS, &l.ids, &l.n, NULL) == 0);
    return l;
}

/* Encoded after a sign that never merges, without the sign. */
static struct list encode_inner(const tokenizer *t, const char *text) {
    static const char sign[] = "\xe2\x98\xba";
    char buf[256];
    snprintf(buf, sizeof buf, "%s%s", sign, text);
    struct list alone = encode(t, sign), all = encode(t, buf);
    CHECK(all.n >= alone.n && memcmp(all.ids, alone.ids, alone.n * sizeof *all.ids) == 0);
    all.n -= alone.n;
    memmove(all.ids, all.ids + alone.n, all.n * sizeof *all.ids);
    free(alone.ids);
    return all;
}

static size_t take(const int32_t *ids, size_t at, size_t n, const struct list *l) {
    bool same = at + l->n <= n && (!l->n || memcmp(ids + at, l->ids, l->n * sizeof *ids) == 0);
    CHECK(same);
    return at + l->n;
}

static size_t take_one(const int32_t *ids, size_t at, size_t n, int32_t id) {
    return take(ids, at, n, &(struct list){&id, 1});
}

/* All pairs of texts. begin: the first ids. */
static void check_prompts(const tokenizer *t, const struct tokenizer_fim *fim, int32_t begin) {
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t n, at = 0;
        int32_t *ids;
        err e = {0};
        bool empty = !*prefixes[i];
        struct list prefix = empty ? (struct list){0} : encode(t, prefixes[i]);
        struct list suffix = encode_inner(t, suffixes[i]);
        CHECK_MSG(tokenizer_encode_fim(t, prefixes[i], suffixes[i], MAX_IDS, &ids, &n, &e) == 0,
                  "%s", e.msg);
        if (begin >= 0) at = take_one(ids, at, n, begin);
        if (fim->suffix_first) {
            at = take_one(ids, at, n, fim->suffix);
            at = take(ids, at, n, &suffix);
        }
        at = take_one(ids, at, n, fim->prefix);
        at = take(ids, at, n, &prefix);
        if (!fim->suffix_first) {
            at = take_one(ids, at, n, fim->suffix);
            at = take(ids, at, n, &suffix);
            at = take_one(ids, at, n, fim->middle);
        }
        CHECK(at == n);
        int32_t *none;
        CHECK(tokenizer_encode_fim(t, prefixes[i], suffixes[i], n - 1, &none, &n, &e) ==
              ERR_TOO_LONG);
        CHECK(!none);
        free(prefix.ids);
        free(suffix.ids);
        free(ids);
    }
}

static bool shared_is_there(void) {
    return access(SHARED "gguf", R_OK) == 0;
}

static void families_are_known_by_their_tokens(void) {
    static const struct {
        const char *path, *prefix, *suffix, *middle, *begin;
    } rows[] = {
        {"gguf/ggml-vocab-starcoder.gguf", "<fim_prefix>", "<fim_suffix>", "<fim_middle>", NULL},
        {"gguf/ggml-vocab-qwen3.gguf", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", NULL},
        {"hf/qwen3", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", NULL},
        {"sentencepiece/mistral-v3", "[PREFIX]", "[SUFFIX]", NULL, "<s>"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[256];
        tokenizer *t;
        err e = {0};
        struct tokenizer_fim fim;
        snprintf(path, sizeof path, SHARED "%s", rows[i].path);
        CHECK_MSG(tokenizer_open(path, &t, &e) == 0, "%s", e.msg);
        if (!t) continue;
        CHECK_MSG(tokenizer_fim(t, &fim), "%s", path);
        CHECK(fim.prefix >= 0 && fim.prefix == tokenizer_find(t, rows[i].prefix));
        CHECK(fim.suffix >= 0 && fim.suffix == tokenizer_find(t, rows[i].suffix));
        CHECK(fim.middle == (rows[i].middle ? tokenizer_find(t, rows[i].middle) : -1));
        CHECK(fim.suffix_first == !rows[i].middle);
        check_prompts(t, &fim, rows[i].begin ? tokenizer_find(t, rows[i].begin) : -1);
        tokenizer_close(t);
    }
}

static void others_have_none(void) {
    static const char *const paths[] = {"gguf/ggml-vocab-gpt-2.gguf", "gguf/ggml-vocab-phi-3.gguf",
                                        "sentencepiece/llama2"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char path[256];
        tokenizer *t;
        int32_t *ids;
        size_t n;
        err e = {0};
        snprintf(path, sizeof path, SHARED "%s", paths[i]);
        CHECK_MSG(tokenizer_open(path, &t, &e) == 0, "%s", e.msg);
        CHECK(!tokenizer_fim(t, &(struct tokenizer_fim){0}));
        CHECK(tokenizer_encode_fim(t, "a", "b", MAX_IDS, &ids, &n, &e) == ERR_UNSUPPORTED && !ids);
        tokenizer_close(t);
    }
}

/* A file that names tokens, by the old keys or the new ones. */
static void keys_of_the_file_are_read(void) {
    static const char *const names[2][3] = {{"prefix", "suffix", "middle"},
                                            {"fim_pre", "fim_suf", "fim_mid"}};
    char path[64], key[80];
    snprintf(path, sizeof path, "/tmp/inferd-test-fim-%d.gguf", (int)getpid());
    for (int round = 0; round < 4; round++) { /* old keys, new ones, both, some of them */
        tokenizer *t;
        err e = {0};
        struct tokenizer_fim fim;
        gguf_writer *w = gguf_writer_new();
        CHECK_MSG(tokenizer_write_gguf(DEMO, 0, w, &e) == 0, "%s", e.msg);
        for (int set = 0; set < 2; set++)
            for (int k = 0; k < (round == 3 ? 2 : 3); k++) {
                if (round < 2 && set != round) continue;
                snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", names[set][k]);
                CHECK(gguf_writer_set_u32(w, key, (uint32_t)(500 + 10 * k + set), &e) == 0);
            }
        CHECK_MSG(gguf_writer_finish(w, path, &e) == 0, "%s", e.msg);
        gguf_writer_free(w);
        CHECK_MSG(tokenizer_open(path, &t, &e) == 0, "%s", e.msg);
        int32_t first = round == 0 ? 500 : 501;
        CHECK(tokenizer_fim(t, &fim) == (round != 3));
        if (round != 3) {
            CHECK(fim.prefix == first && fim.suffix == first + 10 && fim.middle == first + 20);
            CHECK(!fim.suffix_first);
            check_prompts(t, &fim, tokenizer_adds_bos(t) ? tokenizer_bos(t) : -1);
        }
        tokenizer_close(t);
        unlink(path);
    }
}

static struct list infill(const tokenizer *t, const struct tokenizer_infill *in, size_t max,
                          int rc) {
    struct list l = {0};
    err e = {0};
    int got = tokenizer_encode_infill(t, in, max, &l.ids, &l.n, &e);
    CHECK_MSG(got == rc, "%d: %s", got, e.msg);
    return l;
}

static bool holds(const struct list *l, int32_t id) {
    for (size_t i = 0; i < l->n; i++)
        if (l->ids[i] == id) return true;
    return false;
}

/* A vocabulary with all tokens, or without those that name files. */
static tokenizer *open_with_fim(bool names) {
    char path[64];
    tokenizer *t = NULL;
    err e = {0};
    static const char *const keys[] = {"fim_pre", "fim_suf", "fim_mid", "fim_rep", "fim_sep"};
    snprintf(path, sizeof path, "/tmp/inferd-test-infill-%d.gguf", (int)getpid());
    gguf_writer *w = gguf_writer_new();
    CHECK_MSG(tokenizer_write_gguf(DEMO, 0, w, &e) == 0, "%s", e.msg);
    for (int k = 0; k < (names ? 5 : 3); k++) {
        char key[80];
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", keys[k]);
        CHECK(gguf_writer_set_u32(w, key, (uint32_t)(500 + 10 * k), &e) == 0);
    }
    CHECK_MSG(gguf_writer_finish(w, path, &e) == 0, "%s", e.msg);
    gguf_writer_free(w);
    CHECK_MSG(tokenizer_open(path, &t, &e) == 0, "%s", e.msg);
    unlink(path);
    return t;
}

enum { PREFIX = 500, SUFFIX = 510, MIDDLE = 520, REPOSITORY = 530, FILE_NAME = 540 };

/* Without other files it is the prompt of tokenizer_encode_fim, with the answer's start. */
static void infill_without_files(void) {
    tokenizer *t = open_with_fim(true);
    struct list plain = {0};
    CHECK(tokenizer_encode_fim(t, "int a", "}\n", MAX_IDS, &plain.ids, &plain.n, NULL) == 0);
    struct tokenizer_infill in = {.prefix = "int a", .suffix = "}\n", .start = ""};
    struct list l = infill(t, &in, MAX_IDS, 0);
    CHECK(take(l.ids, 0, l.n, &plain) == l.n);
    free(l.ids);
    struct list start = encode_inner(t, "xy");
    in.start = "xy";
    l = infill(t, &in, MAX_IDS, 0);
    CHECK(l.n == plain.n + start.n);
    size_t at = 0;
    while (at < l.n && l.ids[at] != SUFFIX)
        at++;
    CHECK(at >= start.n && take(l.ids, at - start.n, l.n, &start) == at);
    free(l.ids);
    /* Control tokens of the start are parsed if the caller wants that, of files never. */
    in.start = in.prefix = in.suffix = "<|end|>";
    int32_t end = tokenizer_find(t, "<|end|>");
    in.parse_special = false;
    l = infill(t, &in, MAX_IDS, 0);
    CHECK(!holds(&l, end));
    size_t n_text = l.n;
    free(l.ids);
    in.parse_special = true;
    l = infill(t, &in, MAX_IDS, 0);
    CHECK(holds(&l, end) && l.n < n_text);
    int n_end = 0;
    for (size_t i = 0; i < l.n; i++)
        n_end += l.ids[i] == end;
    CHECK(n_end == 1);
    free(l.ids);
    free(start.ids);
    free(plain.ids);
    tokenizer_close(t);
}

/* For every limit: what is there keeps its order, the last files and the texts near the gap stay
 * longest, and nothing exceeds the limit. */
static void infill_within_limits(void) {
    static const struct tokenizer_chunk chunks[] = {
        {"old.c", "the oldest of all"}, {"b.c", "in between"}, {"new.c", "the newest text"}};
    for (int names = 0; names < 2; names++) {
        tokenizer *t = open_with_fim(names);
        struct tokenizer_infill in = {.prefix = "a line before the gap",
                                      .suffix = "and one line behind it",
                                      .start = "x",
                                      .chunks = chunks,
                                      .n_chunks = 3};
        struct list all = infill(t, &in, MAX_IDS, 0), bare;
        in.n_chunks = 0;
        bare = infill(t, &in, MAX_IDS, 0);
        in.n_chunks = 3;
        CHECK(holds(&all, REPOSITORY) == names && holds(&all, FILE_NAME) == names);
        CHECK(all.n > bare.n && !holds(&bare, FILE_NAME));
        /* All end as without the files, which is behind BOS. */
        size_t n_before = tokenizer_adds_bos(t);
        struct list tail = {bare.ids + n_before, bare.n - n_before};
        size_t last = 0, least = 3 + n_before + 1;
        for (size_t max = 0; max <= all.n + 2; max++) {
            struct list l = infill(t, &in, max, max < least ? ERR_TOO_LONG : 0);
            if (max < least) continue;
            CHECK(l.n <= max && l.n >= last && holds(&l, PREFIX) && holds(&l, MIDDLE));
            last = l.n;
            if (max < bare.n) CHECK(l.n == max);
            if (max >= bare.n) CHECK(take(l.ids, l.n - tail.n, l.n, &tail) == l.n);
            if (max >= all.n) CHECK(take(l.ids, 0, l.n, &all) == l.n);
            free(l.ids);
        }
        free(all.ids);
        free(bare.ids);
        tokenizer_close(t);
    }
    tokenizer *t;
    err e = {0};
    CHECK(tokenizer_open(DEMO, &t, &e) == 0);
    infill(t, &(struct tokenizer_infill){"a", "b", "", false, NULL, 0}, MAX_IDS, ERR_UNSUPPORTED);
    tokenizer_close(t);
}

int main(void) {
    if (shared_is_there()) {
        RUN(families_are_known_by_their_tokens);
        RUN(others_have_none);
    } else {
        SKIP("families_are_known_by_their_tokens", "no " SHARED);
        SKIP("others_have_none", "no " SHARED);
    }
    RUN(keys_of_the_file_are_read);
    RUN(infill_without_files);
    RUN(infill_within_limits);
    return check_done();
}
