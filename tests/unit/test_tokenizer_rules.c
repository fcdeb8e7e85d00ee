/* test_tokenizer_rules.c - special tokens, prefixes, trust and hostile files, on vocabularies built
 * by the test; expected ids are derived by hand from the vocabulary below. */
#include "core/base/mem.h"
#include "core/tokenizer/tokenizer_int.h"
#include "tests/support/gguf_make.h"
#include "tests/support/rng.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_IDS = 1000, WANT_MAX = 40, END = -1 };

/* Ids of the vocabulary; the 256 byte tokens follow. */
enum { UNK, BOS, EOS, SP, A, B, AB, SP_A, SP_AB, X, USER, IM_END, OLD, NEW, N_LISTED };

static const struct gguf_make_token listed[N_LISTED] = {
    [UNK] = {"<unk>", 0, TOKEN_UNKNOWN},
    [BOS] = {"<s>", 0, TOKEN_CONTROL},
    [EOS] = {"</s>", 0, TOKEN_CONTROL},
    [SP] = {"\xe2\x96\x81", -9, TOKEN_NORMAL},
    [A] = {"a", -10, TOKEN_NORMAL},
    [B] = {"b", -11, TOKEN_NORMAL},
    [AB] = {"ab", -1, TOKEN_NORMAL},
    [SP_A] = {"\xe2\x96\x81"
              "a",
              -5, TOKEN_NORMAL},
    [SP_AB] = {"\xe2\x96\x81"
               "ab",
               -2, TOKEN_NORMAL},
    [X] = {"<|x|>", 0, TOKEN_CONTROL},
    [USER] = {"<u>", 0, TOKEN_USER_DEFINED},
    [IM_END] = {"<|im_end|>", 0, TOKEN_USER_DEFINED},
    [OLD] = {"bb", -3, TOKEN_NORMAL},
    [NEW] = {"bb", -3, TOKEN_NORMAL},
};

static struct gguf_make_vocab plain(void) {
    return (struct gguf_make_vocab){.tokens = listed,
                                    .n_tokens = N_LISTED,
                                    .with_bytes = true,
                                    .bos = BOS,
                                    .eos = EOS,
                                    .add_space_prefix = -1};
}

static char path[64];

static tokenizer *open_vocab(const struct gguf_make_vocab *v) {
    tokenizer *t = NULL;
    err e = {0};
    CHECK_MSG(gguf_make_vocab(path, v, &e) == 0, "%s", e.msg);
    CHECK_MSG(tokenizer_open(path, &t, &e) == 0, "%s", e.msg);
    return t;
}

/* A text and its ids, terminated by END; BYTE(c) is c's byte token. */
#define BYTE(c) (N_LISTED + (unsigned char)(c))

struct row {
    const char *text;
    int flags;
    int32_t ids[WANT_MAX];
};

static size_t count(const int32_t *ids) {
    size_t n = 0;
    while (ids[n] != END)
        n++;
    return n;
}

static bool same_ids(const int32_t *got, size_t n_got, const int32_t *want) {
    bool same = n_got == count(want) && (!n_got || !memcmp(got, want, n_got * sizeof *got));
    for (size_t i = 0; !same && i < n_got; i++)
        fprintf(stderr, "%s%d", i ? " " : "  got ", got[i]);
    if (!same) fprintf(stderr, "\n");
    return same;
}

static void check_rows(const tokenizer *t, const struct row *rows, size_t n_rows) {
    for (size_t i = 0; t && i < n_rows; i++) {
        int32_t *ids = NULL;
        size_t n = 0;
        err e = {0};
        int rc = tokenizer_encode(t, rows[i].text, strlen(rows[i].text), rows[i].flags, MAX_IDS,
                                  &ids, &n, &e);
        CHECK_MSG(rc == 0 && same_ids(ids, n, rows[i].ids), "\"%s\" %d %s", rows[i].text,
                  rows[i].flags, e.msg);
        free(ids);
    }
}

#define CHECK_ROWS(t, rows) check_rows(t, rows, sizeof(rows) / sizeof(rows)[0])

static void special_tokens_are_cut_out(void) {
    enum { ADD = TOKENIZER_ADD_SPECIAL, PARSE = TOKENIZER_PARSE_SPECIAL };
    static const struct row rows[] = {
        {"", 0, {END}},
        {"", ADD, {BOS, END}},
        {"ab", 0, {SP_AB, END}},
        {" ab", 0, {SP, SP_AB, END}},
        {"ab", ADD, {BOS, SP_AB, END}},
        {"ab<|x|>ab", PARSE, {SP_AB, X, SP_AB, END}},
        {"ab<|x|><|x|> ab", PARSE, {SP_AB, X, X, SP, SP_AB, END}},
        {"<s>ab", PARSE, {BOS, SP_AB, END}},
        {"<s>ab", PARSE | ADD, {BOS, SP_AB, END}},
        {"<s><s>", PARSE | ADD, {BOS, BOS, END}},
        {"ab<s>", PARSE | ADD, {BOS, SP_AB, BOS, END}},
        {"<unk>a", PARSE, {UNK, SP_A, END}},
        /* The file calls both user-defined: one is, the other is an end-of-generation token. */
        {"b<u>b", 0, {SP, B, USER, SP, B, END}},
        {"<u>", 0, {USER, END}},
        {"<|im_end|>", PARSE, {IM_END, END}},
        /* Not parsed: ordinary text, as bytes where no piece matches. */
        {"<s>", 0, {SP, BYTE('<'), BYTE('s'), BYTE('>'), END}},
        {"a<|x|>", 0, {SP_A, BYTE('<'), BYTE('|'), BYTE('x'), BYTE('|'), BYTE('>'), END}},
        {"<|x|", PARSE, {SP, BYTE('<'), BYTE('|'), BYTE('x'), BYTE('|'), END}},
        /* The text of a byte token is not that byte; of two tokens with equal text the last wins.
         */
        {"<0x4", PARSE, {SP, BYTE('<'), BYTE('0'), BYTE('x'), BYTE('4'), END}},
        {"bb", 0, {SP, NEW, END}},
        {"\xff"
         "a\xc3",
         0,
         {SP, BYTE(0xff), A, BYTE(0xc3), END}},
        {"\xc3\xa9", 0, {SP, BYTE(0xc3), BYTE(0xa9), END}},
    };
    struct gguf_make_vocab v = plain();
    tokenizer *t = open_vocab(&v);
    CHECK_ROWS(t, rows);
    tokenizer_close(t);
}

static void the_space_prefix_can_be_off(void) {
    static const struct row rows[] = {
        {"ab", 0, {AB, END}},
        {" ab", TOKENIZER_ADD_SPECIAL, {BOS, SP_AB, EOS, END}},
        {"ab<|x|>ab", TOKENIZER_PARSE_SPECIAL, {AB, X, AB, END}},
    };
    struct gguf_make_vocab v = plain();
    v.add_space_prefix = 0;
    v.add_eos = true;
    tokenizer *t = open_vocab(&v);
    CHECK_ROWS(t, rows);
    CHECK(t && !tokenizer_strips_leading_space(t));
    tokenizer_close(t);
}

static void phi3_tokens_take_white_space(void) {
    static const struct row rows[] = {
        {"<|x|> \n\tab", TOKENIZER_PARSE_SPECIAL, {X, SP_AB, END}},
        {"<s> ab", TOKENIZER_PARSE_SPECIAL, {BOS, SP, SP_AB, END}},
        {"<|x|>  ", TOKENIZER_PARSE_SPECIAL, {X, END}},
    };
    static const char *const names[] = {"Phi-3 Mini", "my PHI3"};
    for (int i = 0; i < 2; i++) {
        struct gguf_make_vocab v = plain();
        v.name = names[i];
        tokenizer *t = open_vocab(&v);
        CHECK_ROWS(t, rows);
        tokenizer_close(t);
    }
}

/* A client's text never becomes a control token, whatever surrounds it. */
static void only_trusted_text_holds_control_tokens(void) {
    static const struct {
        tokenizer_piece pieces[4];
        int32_t ids[WANT_MAX];
    } rows[] = {
        {{{"<|x|>", 5, true}, {"ab", 2, false}, {"<|x|>", 5, true}}, {X, SP_AB, X, END}},
        {{{"<|x|>", 5, true}, {"<s>", 3, false}}, {X, SP, BYTE('<'), BYTE('s'), BYTE('>'), END}},
        {{{"<|", 2, true}, {"", 0, false}, {"x|>", 3, true}}, {X, END}},
        {{{"<|", 2, true}, {"x", 1, false}, {"|>", 2, true}},
         {SP, BYTE('<'), BYTE('|'), BYTE('x'), BYTE('|'), BYTE('>'), END}},
        {{{"<s", 2, false}, {">", 1, true}}, {SP, BYTE('<'), BYTE('s'), BYTE('>'), END}},
        {{{"<s", 2, true}, {">", 1, false}}, {SP, BYTE('<'), BYTE('s'), BYTE('>'), END}},
        {{{"a", 1, true}, {"b", 1, false}}, {SP_AB, END}},
        {{{"", 0, false}, {"", 0, true}, {"<s>", 3, true}}, {BOS, END}},
        {{{"a", 1, false}, {"<s>", 3, true}, {"<s>", 3, false}},
         {SP_A, BOS, SP, BYTE('<'), BYTE('s'), BYTE('>'), END}},
        {{{"<u", 2, false}, {">", 1, true}}, {USER, END}},
        {{{"<|im_end|>", 10, false}},
         {SP, BYTE('<'), BYTE('|'), BYTE('i'), BYTE('m'), BYTE('_'), BYTE('e'), BYTE('n'),
          BYTE('d'), BYTE('|'), BYTE('>'), END}},
    };
    struct gguf_make_vocab v = plain();
    tokenizer *t = open_vocab(&v);
    for (size_t i = 0; t && i < sizeof rows / sizeof rows[0]; i++) {
        int32_t *ids = NULL;
        size_t n = 0;
        CHECK(tokenizer_encode_pieces(t, rows[i].pieces, 4, 0, MAX_IDS, &ids, &n, NULL) == 0);
        CHECK_MSG(same_ids(ids, n, rows[i].ids), "row %zu", i);
        free(ids);
    }
    int32_t *ids = NULL;
    size_t n = 9;
    CHECK(t && tokenizer_encode_pieces(t, NULL, 0, 0, 9, &ids, &n, NULL) == 0 && n == 0 && ids);
    free(ids);
    tokenizer_close(t);
}

static void tokens_are_described(void) {
    struct gguf_make_vocab v = plain();
    tokenizer *t = open_vocab(&v);
    size_t n;
    if (!t) return;
    CHECK(tokenizer_n_vocab(t) == N_LISTED + 256 && tokenizer_bos(t) == BOS);
    CHECK(tokenizer_eos(t) == EOS && tokenizer_adds_bos(t) && tokenizer_strips_leading_space(t));
    CHECK(tokenizer_is_eog(t, EOS) && tokenizer_is_eog(t, IM_END) && !tokenizer_is_eog(t, X));
    CHECK(tokenizer_is_control(t, IM_END) && tokenizer_is_control(t, X));
    CHECK(!tokenizer_is_control(t, USER) && !tokenizer_is_control(t, -1));
    CHECK(!tokenizer_is_eog(t, 10000) && !tokenizer_chat_template(t));
    CHECK(tokenizer_find(t, "ab") == AB && tokenizer_find(t, "<u>") == USER);
    CHECK(tokenizer_find(t, "bb") == NEW && tokenizer_find(t, "abc") == -1);
    CHECK(tokenizer_find(t, "") == -1 && tokenizer_find(t, "<0xFF>") == BYTE(0xff));
    CHECK(!memcmp(tokenizer_token_bytes(t, SP_AB, false, &n), " ab", 3) && n == 3);
    CHECK(!memcmp(tokenizer_token_text(t, SP_AB, &n),
                  "\xe2\x96\x81"
                  "ab",
                  5) &&
          n == 5);
    CHECK(tokenizer_token_bytes(t, BYTE(0), false, &n)[0] == 0 && n == 1);
    CHECK(tokenizer_token_bytes(t, BYTE(0xfe), true, &n)[0] == '\xfe' && n == 1);
    tokenizer_token_bytes(t, X, false, &n);
    CHECK(n == 0);
    CHECK(!memcmp(tokenizer_token_bytes(t, X, true, &n), "<|x|>", 5) && n == 5);
    CHECK(!memcmp(tokenizer_token_bytes(t, USER, false, &n), "<u>", 3) && n == 3);
    tokenizer_token_bytes(t, N_LISTED + 256, true, &n);
    CHECK(n == 0);
    tokenizer_close(t);
}

static void text_is_decoded(void) {
    static const struct {
        int32_t ids[8];
        bool with_control;
        const char *text;
    } rows[] = {
        {{SP_AB, SP_A, END}, false, "ab a"},
        {{BOS, SP_AB, X, SP_A, EOS, END}, false, "ab a"},
        {{BOS, SP_AB, X, SP_A, EOS, END}, true, "<s> ab<|x|> a</s>"},
        {{SP, SP_AB, END}, false, " ab"},
        {{AB, 99999, -5, USER, UNK, END}, false, "ab<u>"},
        {{BYTE(0xc3), BYTE(0xa9), END}, false, "\xc3\xa9"},
        {{END}, false, ""},
    };
    struct gguf_make_vocab v = plain();
    tokenizer *t = open_vocab(&v);
    for (size_t i = 0; t && i < sizeof rows / sizeof rows[0]; i++) {
        char *text = NULL;
        size_t n = 0;
        CHECK(tokenizer_decode(t, rows[i].ids, count(rows[i].ids), rows[i].with_control, &text, &n,
                               NULL) == 0);
        CHECK(text && n == strlen(rows[i].text));
        if (text) CHECK_STR(text, rows[i].text);
        free(text);
    }
    tokenizer_close(t);
}

static void the_number_of_ids_is_bounded(void) {
    struct gguf_make_vocab v = plain();
    tokenizer *t = open_vocab(&v);
    int32_t *ids = NULL;
    size_t n = 0;
    err e = {0};
    char text[5000];
    memset(text, 'a', sizeof text);
    CHECK(t && tokenizer_encode(t, "a<|x|>a", 7, TOKENIZER_PARSE_SPECIAL, 3, &ids, &n, &e) == 0);
    CHECK(n == 3);
    free(ids);
    CHECK(tokenizer_encode(t, "a<|x|>a", 7, TOKENIZER_PARSE_SPECIAL, 2, &ids, &n, &e) ==
          ERR_TOO_LONG);
    CHECK(!ids && n == 0);
    CHECK(tokenizer_encode(t, text, sizeof text, 0, 4999, &ids, &n, &e) == ERR_TOO_LONG && !ids);
    CHECK(tokenizer_encode(t, text, sizeof text, 0, 10, &ids, &n, NULL) == ERR_TOO_LONG && !ids);
    CHECK(tokenizer_encode(t, text, sizeof text, 0, 5000, &ids, &n, &e) == 0 && n == 5000);
    free(ids);
    tokenizer_close(t);
}

/* Without types and scores, as in the first GGUF files: recognized by text and by id. */
static void old_files_are_understood(void) {
    struct gguf_make_vocab v = plain();
    v.no_types = v.no_scores = true;
    v.bos = v.eos = GGUF_MAKE_NONE;
    v.n_tokens = SP_A;
    tokenizer *t = open_vocab(&v);
    if (!t) return;
    CHECK(tokenizer_bos(t) == 1 && tokenizer_eos(t) == 2 && tokenizer_is_control(t, 1));
    CHECK(tokenizer_is_eog(t, 2));
    int32_t *ids = NULL;
    size_t n = 0;
    CHECK(tokenizer_encode(t, "ab\n", 3, 0, 9, &ids, &n, NULL) == 0);
    CHECK(same_ids(ids, n, (int32_t[]){SP, AB, SP_A + '\n', END}));
    free(ids);
    tokenizer_close(t);
}

/* "</s>" may be ordinary text, and a vocabulary may have no byte tokens. */
static void vocabularies_without_bytes_have_unknown_text(void) {
    static const struct gguf_make_token tokens[] = {
        {"<unk>", 0, TOKEN_UNKNOWN}, {"</s>", 0, TOKEN_NORMAL}, {"\xe2\x96\x81", 0, TOKEN_NORMAL},
        {"a", 0, TOKEN_NORMAL},      {"<0x41>", 0, TOKEN_BYTE},
    };
    static const struct row rows[] = {
        {"a", 0, {2, 3, END}},
        {"aza", TOKENIZER_PARSE_SPECIAL, {2, 3, 0, 3, END}},
        {"\xff", 0, {2, 0, END}},
        {"A", 0, {2, 0, END}},
    };
    struct gguf_make_vocab v = {.tokens = tokens,
                                .n_tokens = 5,
                                .bos = GGUF_MAKE_NONE,
                                .eos = GGUF_MAKE_NONE,
                                .add_space_prefix = 1};
    tokenizer *t = open_vocab(&v);
    CHECK_ROWS(t, rows);
    CHECK(t && !tokenizer_is_eog(t, 1) && tokenizer_bos(t) == -1 && tokenizer_eos(t) == -1);
    CHECK(t && !tokenizer_adds_bos(t));
    tokenizer_close(t);
}

static void bad_vocabularies_are_refused(void) {
    static char too_long[VOCAB_MAX_TEXT_BYTES + 2];
    memset(too_long, 'a', sizeof too_long - 1);
    const struct {
        struct gguf_make_token token;
        int code;
        const char *model, *what;
    } cases[] = {
        {{"a", 0, 1}, ERR_UNSUPPORTED, "rwkv", "tokenizer.ggml.model 'rwkv' is not supported"},
        {{"a", 0, 7}, ERR_FORMAT, NULL, "token 0 has unknown type 7"},
        {{"a", 0, -1}, ERR_FORMAT, NULL, "token 0 has unknown type -1"},
        {{"a", NAN, 1}, ERR_FORMAT, NULL, "the score of token 0 is NaN"},
        {{"<0xGG>", 0, 6}, ERR_FORMAT, NULL, "the text of byte token 0 is not <0xNN>"},
        {{too_long, 0, 1}, ERR_FORMAT, NULL, "token 0 has 4097 bytes"},
        {{"a", 0, 1}, ERR_FORMAT, NULL, "neither 256 byte tokens nor an unknown token"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gguf_make_vocab v = {.model = cases[i].model,
                                    .tokens = &cases[i].token,
                                    .n_tokens = 1,
                                    .bos = GGUF_MAKE_NONE,
                                    .eos = GGUF_MAKE_NONE};
        tokenizer *t = NULL;
        err e = {0};
        CHECK(gguf_make_vocab(path, &v, NULL) == 0);
        int rc = tokenizer_open(path, &t, &e);
        CHECK_MSG(rc == cases[i].code && strstr(e.msg, cases[i].what), "want \"%s\", got %d \"%s\"",
                  cases[i].what, rc, e.msg);
        CHECK(!t);
        tokenizer_close(t);
    }
    tokenizer *t = NULL;
    err e = {0};
    CHECK(tokenizer_open("tests/none", &t, &e) == ERR_IO && !t);
    CHECK(tokenizer_open("tests", &t, &e) == ERR_IO && !t);
}

/* GPT-2's alphabet: U+0120 is a space, U+010A a line feed. Bytes without a token are dropped. */
enum { G_A, G_B, G_SP, G_NL, G_AB, G_SP_A, G_1, G_X, G_END, G_USER, N_GPT2 };
static const struct gguf_make_token gpt2_tokens[N_GPT2] = {
    [G_A] = {"a", 0, TOKEN_NORMAL},
    [G_B] = {"b", 0, TOKEN_NORMAL},
    [G_SP] = {"\xc4\xa0", 0, TOKEN_NORMAL},
    [G_NL] = {"\xc4\x8a", 0, TOKEN_NORMAL},
    [G_AB] = {"ab", 0, TOKEN_NORMAL},
    [G_SP_A] = {"\xc4\xa0"
                "a",
                0, TOKEN_NORMAL},
    [G_1] = {"1", 0, TOKEN_NORMAL},
    [G_X] = {"<|x|>", 0, TOKEN_CONTROL},
    [G_END] = {"<|im_end|>", 0, TOKEN_CONTROL},
    [G_USER] = {"<u>", 0, TOKEN_USER_DEFINED},
};
static const char *const gpt2_merges[] = {"\xc4\xa0 a", "a b"};

static struct gguf_make_vocab gpt2(void) {
    return (struct gguf_make_vocab){.model = "gpt2",
                                    .pre = "gpt-2",
                                    .tokens = gpt2_tokens,
                                    .n_tokens = N_GPT2,
                                    .merges = gpt2_merges,
                                    .n_merges = 2,
                                    .bos = G_X,
                                    .eos = G_END,
                                    .add_space_prefix = 1};
}

static void a_byte_level_gguf_is_read(void) {
    static const struct row rows[] = {
        {"ab", 0, {G_AB, END}},
        {" ab", 0, {G_SP_A, G_B, END}}, /* rank takes precedence over position */
        {"ab ab\n", TOKENIZER_ADD_SPECIAL, {G_AB, G_SP_A, G_B, G_NL, END}},
        {"a<|x|>b<u>", TOKENIZER_PARSE_SPECIAL, {G_A, G_X, G_B, G_USER, END}},
        {"<u>z\xff", 0, {G_USER, END}},
        {"", TOKENIZER_ADD_SPECIAL, {END}},
    };
    static const struct row llama3[] = {{"11a", TOKENIZER_ADD_SPECIAL, {G_X, G_1, G_1, G_A, END}}};
    struct gguf_make_vocab v = gpt2();
    tokenizer *t = open_vocab(&v);
    size_t n;
    CHECK_ROWS(t, rows);
    CHECK(t && !tokenizer_adds_bos(t) && !tokenizer_strips_leading_space(t));
    CHECK(t && !memcmp(tokenizer_token_bytes(t, G_SP_A, false, &n), " a", 2) && n == 2);
    CHECK(t && tokenizer_is_eog(t, G_END) && !tokenizer_is_eog(t, G_X));
    tokenizer_close(t);
    v.pre = "llama-bpe";
    t = open_vocab(&v);
    CHECK_ROWS(t, llama3);
    tokenizer_close(t);
}

/* Gemma 4: characters, marked spaces, byte tokens for the rest. */
static void a_gguf_with_marked_spaces_is_read(void) {
    enum { G4_BOS, G4_SP, G4_A, G4_SP_A, G4_B, G4_AB, G4_LINES, N_GEMMA };
    static const struct gguf_make_token tokens[N_GEMMA] = {
        {"<bos>", 0, TOKEN_CONTROL},
        {"\xe2\x96\x81", 0, TOKEN_NORMAL},
        {"a", 0, TOKEN_NORMAL},
        {"\xe2\x96\x81"
         "a",
         0, TOKEN_NORMAL},
        {"b", 0, TOKEN_NORMAL},
        {"ab", 0, TOKEN_NORMAL},
        {"\n\n", 0, TOKEN_NORMAL},
    };
    static const char *const merges[] = {"\xe2\x96\x81 a", "a b"};
    static const struct row rows[] = {
        {"ab ab", 0, {G4_AB, G4_SP_A, G4_B, END}},
        {"a\n\nb\n", TOKENIZER_ADD_SPECIAL, {G4_BOS, G4_A, G4_LINES, G4_B, N_GEMMA + '\n', END}},
        {"\xc3\xa9", 0, {N_GEMMA + 0xc3, N_GEMMA + 0xa9, END}},
    };
    struct gguf_make_vocab v = {.model = "gemma4",
                                .tokens = tokens,
                                .n_tokens = N_GEMMA,
                                .with_bytes = true,
                                .merges = merges,
                                .n_merges = 2,
                                .bos = G4_BOS,
                                .eos = GGUF_MAKE_NONE,
                                .add_space_prefix = -1};
    tokenizer *t = open_vocab(&v);
    CHECK_ROWS(t, rows);
    tokenizer_close(t);
}

static void bad_merges_are_refused(void) {
    static const char *const one[] = {"ab"}, *const unknown[] = {"a z"}, *const made[] = {"b b"};
    static const char *const empty[] = {"a "}, *const control[] = {"a b", "<|x|> a"};
    static const struct {
        const char *const *merges;
        uint32_t n;
        const char *pre, *what;
    } cases[] = {
        {NULL, 0, "gpt-2", "'tokenizer.ggml.merges' is missing"},
        {one, 1, "gpt-2", "merge 0 is not two texts"},
        {unknown, 1, "gpt-2", "merge 0 names the unknown token 'z'"},
        {empty, 1, "gpt-2", "merge 0 names the unknown token ''"},
        {made, 1, "gpt-2", "merge 0 makes an unknown token"},
        {control, 2, "gpt-2", "merge 1 makes an unknown token"},
        {gpt2_merges, 2, "klingon", "tokenizer.ggml.pre 'klingon' is not supported"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gguf_make_vocab v = gpt2();
        v.merges = cases[i].merges;
        v.n_merges = cases[i].n;
        v.pre = cases[i].pre;
        tokenizer *t = NULL;
        err e = {0};
        CHECK(gguf_make_vocab(path, &v, NULL) == 0);
        CHECK_MSG(tokenizer_open(path, &t, &e) && !t && strstr(e.msg, cases[i].what),
                  "want \"%s\", got \"%s\"", cases[i].what, e.msg);
        tokenizer_close(t);
    }
    struct gguf_make_token twice[N_GPT2];
    struct gguf_make_vocab v = gpt2();
    tokenizer *t = NULL;
    err e = {0};
    memcpy(twice, gpt2_tokens, sizeof twice);
    twice[G_B].text = "a";
    v.tokens = twice;
    CHECK(gguf_make_vocab(path, &v, NULL) == 0 && tokenizer_open(path, &t, &e) == ERR_FORMAT && !t);
    CHECK_MSG(strstr(e.msg, "tokens 0 and 1 have the same text"), "%s", e.msg);
}

/* A hand-written tokenizer.model with the relevant fields only. */
struct proto {
    uint8_t bytes[16384];
    size_t n;
};

static void put(struct proto *p, const void *bytes, size_t n) {
    memcpy(p->bytes + p->n, bytes, n);
    p->n += n;
}

static void put_field(struct proto *p, int field, const void *bytes, size_t n) {
    put(p, &(uint8_t){(uint8_t)(field << 3 | 2)}, 1);
    if (n >= 128) put(p, &(uint8_t){(uint8_t)(n | 128)}, 1);
    put(p, &(uint8_t){(uint8_t)(n >= 128 ? n >> 7 : n)}, 1);
    put(p, bytes, n);
}

static void put_piece(struct proto *p, const char *text, float score, int type) {
    struct proto body = {.n = 0};
    put_field(&body, 1, text, strlen(text));
    put(&body, "\x15", 1);
    put(&body, &score, sizeof score);
    put(&body, &(uint8_t[]){3 << 3, (uint8_t)type}, 2);
    put_field(p, 1, body.bytes, body.n);
}

/* trainer and normalizer: bodies of the two specs, NUL-terminated after n bytes. */
static void make_model(struct proto *p, const char *trainer, const char *normalizer,
                       size_t n_norm) {
    p->n = 0;
    for (int i = 0; i < N_LISTED - 1; i++)
        put_piece(p, listed[i].text, listed[i].score, listed[i].type);
    put_piece(p, "c", -12, TOKEN_NORMAL); /* keeps the list's ids; texts are unique */
    for (int b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", b);
        put_piece(p, text, 0, TOKEN_BYTE);
    }
    put_field(p, 2, trainer, strlen(trainer));
    if (normalizer) put_field(p, 3, normalizer, n_norm);
}

static int open_bytes(const uint8_t *bytes, size_t n, tokenizer **t, err *e) {
    unlink(path); /* some file systems flush a file that is truncated and rewritten */
    FILE *f = fopen(path, "wb");
    *t = NULL;
    if (!f) return err_set(e, ERR_IO, "cannot write %s", path);
    size_t written = fwrite(bytes, 1, n, f);
    if (fclose(f) || written != n) return err_set(e, ERR_IO, "cannot write %s", path);
    return tokenizer_open(path, t, e);
}

#define BPE       "\x18\x02"         /* model_type = 2 */
#define IDENTITY  "\x18\x01\x20\x00" /* add_dummy_prefix = 1, remove_extra_whitespaces = 0 */
#define NO_PREFIX "\x18\x00\x20\x00"

static void a_tokenizer_model_is_read(void) {
    static const struct row rows[] = {
        {"ab", TOKENIZER_ADD_SPECIAL, {BOS, SP_AB, END}},
        {"ab<|x|>ab", TOKENIZER_PARSE_SPECIAL, {SP_AB, X, SP_AB, END}},
        {"<u>ab", 0, {SP, USER, AB, END}}, /* the library adds its prefix before the whole text */
        {"a<u>ab<u><u>", 0, {SP_A, USER, AB, USER, USER, END}},
        {"<|x|><u>a", TOKENIZER_PARSE_SPECIAL, {X, SP, USER, A, END}},
        {"\xff", 0, {SP, BYTE(0xff), END}},
    };
    struct proto p;
    tokenizer *t;
    err e = {0};
    make_model(&p, BPE, IDENTITY, 4);
    CHECK_MSG(open_bytes(p.bytes, p.n, &t, &e) == 0, "%s", e.msg);
    CHECK_ROWS(t, rows);
    CHECK(t && tokenizer_bos(t) == BOS && tokenizer_eos(t) == EOS && tokenizer_adds_bos(t));
    CHECK(t && tokenizer_strips_leading_space(t) && tokenizer_is_eog(t, EOS));
    tokenizer_close(t);
    make_model(&p, BPE, NO_PREFIX, 4);
    CHECK_MSG(open_bytes(p.bytes, p.n, &t, &e) == 0, "%s", e.msg);
    CHECK(t && !tokenizer_strips_leading_space(t));
    tokenizer_close(t);
}

static void other_tokenizer_models_are_refused(void) {
    static const struct {
        const char *trainer, *normalizer;
        size_t n;
        const char *what;
    } cases[] = {
        {"\x18\x01", IDENTITY, 4, "type is not supported (expected BPE)"},
        {"", IDENTITY, 4, "type is not supported (expected BPE)"},
        {BPE "\xc0\x01\x01", IDENTITY, 4, "white space as suffix"},
        {BPE, NULL, 0, "removing extra white space"},
        {BPE, "\x18\x01", 2, "removing extra white space"},
        {BPE, IDENTITY "\x28\x00", 6, "spaces that are not escaped"},
        {BPE, IDENTITY "\x12\x03xyz", 9, "a normalization rule other than identity"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct proto p;
        tokenizer *t;
        err e = {0};
        make_model(&p, cases[i].trainer, cases[i].normalizer, cases[i].n);
        int rc = open_bytes(p.bytes, p.n, &t, &e);
        CHECK_MSG(rc == ERR_UNSUPPORTED && !t && strstr(e.msg, cases[i].what),
                  "want \"%s\", got %d \"%s\"", cases[i].what, rc, e.msg);
    }
}

static void a_truncated_model_names_the_offset(void) {
    struct proto p;
    tokenizer *t;
    err e = {0};
    make_model(&p, BPE, IDENTITY, 4);
    CHECK(open_bytes(p.bytes, p.n - 1, &t, &e) == ERR_FORMAT && !t);
    CHECK_MSG(strstr(e.msg, "a field is longer than the file"), "%s", e.msg);
    char offset[32];
    snprintf(offset, sizeof offset, "offset %zu", p.n - 4);
    CHECK_MSG(strstr(e.msg, offset), "%s, want %s", e.msg, offset);
    CHECK(open_bytes(p.bytes, p.n - 5, &t, &e) == ERR_FORMAT && !t);
    CHECK_MSG(strstr(e.msg, "a number is truncated"), "%s", e.msg);
    CHECK(open_bytes(p.bytes, 0, &t, &e) == ERR_FORMAT && !t);
}

/* libsentencepiece on the vocabulary that t was opened from. */
static struct spm *open_library(const tokenizer *t) {
    struct vocab v;
    struct spm *library = NULL;
    if (vocab_read(path, &v, NULL)) return NULL;
    CHECK(tokenizer_open_library(t, &v, &library, NULL) == 0);
    vocab_fini(&v);
    return library;
}

/* Random vocabularies over three letters, with few distinct scores: every text's ids equal the
 * library's. */
static void random_scores_merge_as_in_the_library(void) {
    enum { VOCABS = 60, TEXTS = 60, MAX_BYTES = 60, MAX_LEN = 5 };
    static const char *const letters[] = {"a", "b", "\xe2\x96\x81", "\xc3\xa9"};
    struct rng rng = {21};
    for (int round = 0; round < VOCABS; round++) {
        struct gguf_make_token tokens[N_LISTED];
        char texts[N_LISTED][3 * MAX_LEN + 1];
        memcpy(tokens, listed, sizeof tokens);
        for (int i = SP; i < N_LISTED; i++) {
            uint32_t r = rng_next(&rng);
            texts[i][0] = 0;
            for (uint64_t k = 0, n = 1 + r % MAX_LEN; k < n; k++)
                strcat(texts[i], letters[(r >> (4 + 2 * k)) % 4]);
            tokens[i] = (struct gguf_make_token){i < SP + 3 ? letters[i - SP] : texts[i],
                                                 -(float)((r >> 30) % 4), TOKEN_NORMAL};
        }
        struct gguf_make_vocab v = plain();
        v.tokens = tokens;
        v.add_space_prefix = 0;
        tokenizer *t = open_vocab(&v);
        struct spm *library = t ? open_library(t) : NULL;
        CHECK(t && t->scored);
        for (int k = 0; library && k < TEXTS; k++) {
            char text[MAX_BYTES];
            size_t n = 0;
            while (n < MAX_BYTES) {
                text[n++] = "aabb c\xff "[rng_next(&rng) % 6];
            }
            struct id_list want = {.max = MAX_IDS}, got = {0};
            CHECK(spm_encode(library, text, n, &want, NULL) == 0);
            CHECK(tokenizer_encode(t, text, n, 0, MAX_IDS, &got.ids, &got.n, NULL) == 0);
            CHECK_MSG(want.n == got.n && !memcmp(want.ids, got.ids, got.n * sizeof *got.ids),
                      "vocabulary %d: %.60s", round, text);
            free(want.ids);
            free(got.ids);
        }
        spm_close(library);
        tokenizer_close(t);
    }
}

/* Tokens of several spaces: long text must not be cut inside a run of them. */
static void runs_of_spaces_stay_whole(void) {
    enum { LONG = 20000 };
    struct gguf_make_token tokens[N_LISTED];
    struct gguf_make_vocab v = plain();
    memcpy(tokens, listed, sizeof tokens);
    tokens[OLD].text = "\xe2\x96\x81\xe2\x96\x81";
    tokens[NEW].text = "\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81";
    v.tokens = tokens;
    v.add_space_prefix = 0;
    tokenizer *t = open_vocab(&v);
    if (!t) return;
    CHECK(t->cuts_at_space);
    char *text = mem_new(LONG, 1);
    struct rng rng = {4};
    for (size_t i = 0; i < LONG; i++) {
        text[i] = "ab        "[rng_next(&rng) % 10];
    }
    struct id_list whole = {.max = LONG}, parts = {0};
    struct spm *library = open_library(t);
    CHECK(library && spm_encode(library, text, LONG, &whole, NULL) == 0);
    spm_close(library);
    CHECK(tokenizer_encode(t, text, LONG, 0, LONG, &parts.ids, &parts.n, NULL) == 0);
    CHECK(whole.n == parts.n && !memcmp(whole.ids, parts.ids, whole.n * sizeof *whole.ids));
    free(parts.ids);
    free(whole.ids);
    free(text);
    tokenizer_close(t);
    /* A token that contains a space forbids all cuts. */
    tokens[OLD].text = "a\xe2\x96\x81";
    t = open_vocab(&v);
    CHECK(t && !t->cuts_at_space);
    tokenizer_close(t);
}

/* Damaged files: an error, or a tokenizer that works. */
static void try_damaged(const uint8_t *bytes, size_t n, int *n_refused) {
    static const char text[] = "ab a<s><|x|>\xff bb \xc3\xa9<u>";
    tokenizer *t;
    err e = {0};
    int rc = open_bytes(bytes, n, &t, &e);
    CHECK((rc == 0) == (t != NULL) && (rc == 0 || e.msg[0]));
    *n_refused += rc != 0;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    if (t && tokenizer_encode(t, text, sizeof text, 3, MAX_IDS, &ids, &n_ids, &e) == 0)
        for (size_t i = 0; i < n_ids; i++)
            CHECK(ids[i] >= 0 && ids[i] < tokenizer_n_vocab(t));
    free(ids);
    tokenizer_close(t);
}

static void damaged_files_are_survived(void) {
    struct proto good, p;
    struct gguf_make_vocab v = plain();
    struct rng rng = {9};
    int n_refused = 0;
    make_model(&good, BPE, IDENTITY, 4);
    for (size_t n = 0; n < good.n; n += 1 + n / 50) {
        n_refused = 0;
        try_damaged(good.bytes, n, &n_refused);
        CHECK_MSG(n_refused == 1, "%zu bytes of %zu", n, good.n);
    }
    for (int kind = 0; kind < 2; kind++) {
        n_refused = 0;
        if (kind == 1) {
            CHECK(gguf_make_vocab(path, &v, NULL) == 0);
            FILE *f = fopen(path, "rb");
            good.n = f ? fread(good.bytes, 1, sizeof good.bytes, f) : 0;
            if (f) fclose(f);
            CHECK(good.n > 4000 && good.n < sizeof good.bytes);
        }
        for (int round = 0; round < 600; round++) {
            p = good;
            for (int k = 0; k < 1 + round % 4; k++) {
                p.bytes[rng_next(&rng) % good.n] = (uint8_t)rng_next(&rng);
            }
            try_damaged(p.bytes, p.n, &n_refused);
        }
        CHECK_MSG(n_refused > 100 && n_refused < 600, "%d", n_refused);
    }
}

int main(void) {
    snprintf(path, sizeof path, "/tmp/inferd-tokenizer-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    RUN(special_tokens_are_cut_out);
    RUN(the_space_prefix_can_be_off);
    RUN(phi3_tokens_take_white_space);
    RUN(only_trusted_text_holds_control_tokens);
    RUN(tokens_are_described);
    RUN(text_is_decoded);
    RUN(the_number_of_ids_is_bounded);
    RUN(old_files_are_understood);
    RUN(vocabularies_without_bytes_have_unknown_text);
    RUN(bad_vocabularies_are_refused);
    RUN(a_byte_level_gguf_is_read);
    RUN(a_gguf_with_marked_spaces_is_read);
    RUN(bad_merges_are_refused);
    RUN(a_tokenizer_model_is_read);
    RUN(other_tokenizer_models_are_refused);
    RUN(a_truncated_model_names_the_offset);
    RUN(runs_of_spaces_stay_whole);
    RUN(random_scores_merge_as_in_the_library);
    RUN(damaged_files_are_survived);
    unlink(path);
    return check_done();
}
