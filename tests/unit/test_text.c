/* test_text.c - incremental text against decoding everything at once and searching naively. This
 * file defines the vocabulary, and the one function of the tokenizer that engine_text calls. */
#include "core/base/str.h"
#include "core/engine/engine.h"
#include "core/text/utf8.h"

#include "check.h"
#include "tests/support/rng.h"

#include <stdlib.h>

enum { N_VOCAB = 64, MAX_TOKEN = 7 };
static struct {
    char bytes[MAX_TOKEN];
    size_t n;
} vocab[N_VOCAB];

const char *tokenizer_token_bytes(const tokenizer *t, int32_t id, bool with_control, size_t *n) {
    (void)t;
    if (id == 0) { /* the control token */
        *n = with_control ? 3 : 0;
        return "<c>";
    }
    *n = id > 0 && id < N_VOCAB ? vocab[id].n : 0;
    return *n ? vocab[id].bytes : "";
}

static struct rng rng = {7};

/* Few different bytes, so that stop strings and whole characters occur: ASCII, parts of U+00E9,
 * U+20AC and U+1F600, bytes that are never valid. */
static char random_byte(void) {
    static const unsigned char bytes[] = {'a',  'b',  'a',  'b',  ' ',  'c',  0xc3, 0xa9, 0xe2,
                                          0x82, 0xac, 0xf0, 0x9f, 0x98, 0x80, 0xff, 0xc0, 0};
    return (char)bytes[rng_next(&rng) % sizeof bytes];
}

static void random_vocab(bool mostly_ascii) {
    for (int i = 0; i < N_VOCAB; i++) {
        vocab[i].n = 1 + rng_next(&rng) % MAX_TOKEN;
        if (rng_next(&rng) % 2) vocab[i].n = 1;
        for (size_t k = 0; k < vocab[i].n; k++)
            vocab[i].bytes[k] = mostly_ascii ? (char)('a' + rng_next(&rng) % 2) : random_byte();
    }
}

/* The whole text, cut at the occurrence of a stop string that ends first (the longest of those). */
static bool reference(const int32_t *ids, int n, const struct engine_text_config *c, str *text) {
    str raw;
    str_init(&raw, 1 << 20);
    for (int i = 0; i < n; i++) {
        size_t n_bytes;
        const char *bytes = tokenizer_token_bytes(NULL, ids[i], c->with_control, &n_bytes);
        str_add_n(&raw, bytes, n_bytes);
    }
    size_t skip = c->strip_leading_space && raw.len && raw.data[0] == ' ';
    utf8_add_lossy(text, str_cstr(&raw) + skip, raw.len - skip);
    str_fini(&raw);
    for (size_t end = 1; end <= text->len; end++) {
        size_t longest = 0;
        for (uint32_t i = 0; i < c->n_stop; i++) {
            size_t len = strlen(c->stop[i]);
            if (len <= end && !memcmp(text->data + end - len, c->stop[i], len) && len > longest)
                longest = len;
        }
        if (longest) {
            text->len = c->include_stop ? end : end - longest;
            return true;
        }
    }
    return false;
}

static bool ends_in_part_of_character(const int32_t *ids, int n) {
    size_t len = 0;
    const char *bytes = "";
    for (int i = n - 1; i >= 0 && !len; i--)
        bytes = tokenizer_token_bytes(NULL, ids[i], false, &len);
    return len && (bytes[len - 1] & 0x80);
}

static bool run(const int32_t *ids, int n, const struct engine_text_config *c, str *text) {
    engine_text *t = engine_text_new(c);
    const char *out;
    size_t len;
    bool stopped = false;
    for (int i = 0; i < n && !stopped; i++) {
        stopped = engine_text_push(t, ids[i], &out, &len);
        CHECK(utf8_valid(out, len)); /* each piece is whole characters */
        str_add_n(text, out, len);
    }
    if (!stopped) {
        engine_text_finish(t, &out, &len);
        CHECK(utf8_valid(out, len));
        str_add_n(text, out, len);
    }
    engine_text_free(t);
    return stopped;
}

static void random_texts(void) {
    static const char *const pool[] = {"ab",       "aab",           "abaab",       "b",
                                       "\xc3\xa9", "a\xe2\x82\xac", "a b",         "cab",
                                       "bbbb",     "aabaaa",        "\xef\xbf\xbd"};
    int with_stop = 0;
    for (int round = 0; round < 20000; round++) {
        const char *stop[4];
        int32_t ids[40];
        struct engine_text_config c = {.stop = stop, .n_stop = rng_next(&rng) % 5};
        int n = (int)(rng_next(&rng) % 40);
        if (round % 50 == 0) random_vocab(round % 100 == 0);
        for (uint32_t i = 0; i < c.n_stop; i++)
            stop[i] = pool[rng_next(&rng) % (sizeof pool / sizeof pool[0])];
        for (int i = 0; i < n; i++)
            ids[i] = (int32_t)(rng_next(&rng) % N_VOCAB);
        c.include_stop = rng_next(&rng) % 2;
        c.strip_leading_space = rng_next(&rng) % 2;
        c.with_control = rng_next(&rng) % 2;
        str want, got;
        str_init(&want, 1 << 20);
        str_init(&got, 1 << 20);
        bool stopped = run(ids, n, &c, &got);
        bool want_stopped = reference(ids, n, &c, &want);
        /* The last U+FFFD may appear only at the end, where no stop string can follow. */
        CHECK(stopped == want_stopped || (want_stopped && ends_in_part_of_character(ids, n)));
        CHECK_MSG(got.len == want.len && !memcmp(str_cstr(&got), str_cstr(&want), got.len),
                  "round %d: %zu bytes, want %zu", round, got.len, want.len);
        with_stop += stopped;
        str_fini(&want);
        str_fini(&got);
    }
    CHECK(with_stop > 1000 && with_stop < 19000);
}

static void set_token(int id, const char *text) {
    vocab[id].n = strlen(text);
    memcpy(vocab[id].bytes, text, vocab[id].n);
}

static void holds_back_only_what_may_match(void) {
    static const char *const stop[] = {"stop"};
    struct engine_text_config c = {.stop = stop, .n_stop = 1};
    engine_text *t = engine_text_new(&c);
    const char *out;
    size_t n;
    set_token(1, "an st");
    set_token(2, "ar st");
    set_token(3, "op!");
    CHECK(!engine_text_push(t, 1, &out, &n) && n == 3 && !memcmp(out, "an ", 3));
    CHECK(!engine_text_push(t, 2, &out, &n) && n == 5 && !memcmp(out, "star ", 5));
    CHECK(engine_text_push(t, 3, &out, &n) && n == 0);
    engine_text_finish(t, &out, &n);
    CHECK(n == 0);
    engine_text_free(t);
}

static void characters_come_whole(void) {
    struct engine_text_config c = {0};
    engine_text *t = engine_text_new(&c);
    const char *out;
    size_t n;
    set_token(1, "\xf0");
    set_token(2, "\x9f\x98");
    set_token(3, "\x80");
    CHECK(!engine_text_push(t, 1, &out, &n) && n == 0);
    CHECK(!engine_text_push(t, 2, &out, &n) && n == 0);
    CHECK(!engine_text_push(t, 3, &out, &n) && n == 4 && !memcmp(out, "\xf0\x9f\x98\x80", 4));
    CHECK(!engine_text_push(t, 1, &out, &n) && n == 0);
    engine_text_finish(t, &out, &n);
    CHECK(n == 3 && !memcmp(out, "\xef\xbf\xbd", 3));
    engine_text_free(t);
    engine_text_free(NULL);
}

/* Text from another source; a stop string does not match across a flush. */
static void flush_lets_go(void) {
    static const char *const stops[] = {"stop"};
    struct engine_text_config c = {.stop = stops, .n_stop = 1};
    engine_text *t = engine_text_new(&c);
    const char *out;
    size_t n;
    CHECK(!engine_text_push_text(t, "a st", 4, &out, &n) && n == 2 && !memcmp(out, "a ", 2));
    engine_text_flush(t, &out, &n);
    CHECK(n == 2 && !memcmp(out, "st", 2));
    CHECK(!engine_text_push_text(t, "op st", 5, &out, &n) && n == 3 && !memcmp(out, "op ", 3));
    CHECK(engine_text_push_text(t, "op it", 5, &out, &n) && n == 0);
    CHECK_STR(engine_text_stop(t), "stop");
    engine_text_flush(t, &out, &n);
    CHECK(n == 0);
    engine_text_free(t);
}

int main(void) {
    RUN(random_texts);
    RUN(holds_back_only_what_may_match);
    RUN(characters_come_whole);
    RUN(flush_lets_go);
    return check_done();
}
