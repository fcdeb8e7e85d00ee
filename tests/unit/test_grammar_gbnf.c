/* GBNF: random grammars against the same language as a regular expression, tables of the notation,
 * and the reported positions of errors. */
#include "check.h"
#include "core/grammar/grammar_int.h"
#include "tests/support/rng.h"
#include "tests/unit/pattern_text.h"

#include <stdlib.h>

static struct rng rng = {0xD1B54A32D192ED03u};

/* ---- a vocabulary of bytes ---- */

enum { N_VOCAB = 256 };

static void byte_token(const void *arg, int32_t id, struct grammar_token *out) {
    const char *bytes = arg;
    *out = (struct grammar_token){GRAMMAR_TOKEN_TEXT, bytes + id, 1};
}

static grammar_vocab *vocab;

static int compile(const char *text, grammar **g, err *e) {
    grammar_builder *b = grammar_builder_new();
    int rc = grammar_finish(b, grammar_gbnf(b, text, strlen(text)), g, e);
    grammar_builder_free(b);
    return rc;
}

/* Byte by byte; the mask must allow exactly the accepted tokens. */
static bool accepts(const grammar *g, const char *text, size_t n) {
    grammar_matcher *m = NULL;
    uint32_t mask[N_VOCAB / 32];
    err e;
    bool yes = true;
    CHECK(grammar_matcher_new(g, vocab, &m, &e) == 0);
    for (size_t i = 0; i < n && yes; i++) {
        int id = (uint8_t)text[i];
        grammar_matcher_mask(m, mask);
        bool may = mask[id / 32] >> (id % 32) & 1;
        yes = grammar_matcher_accept(m, id);
        CHECK(yes == may);
    }
    yes = yes && grammar_matcher_may_end(m);
    grammar_matcher_free(m);
    return yes;
}

/* ---- random grammars ---- */

/* The same language in both notations; rules: the GBNF rules that it refers to. */
struct pair {
    struct text gbnf, regex, rules;
    int n_rules;
};

static void random_body(struct pair *p, int depth);

static void random_rule(struct pair *p, int depth) {
    struct text outer = p->gbnf;
    char name[32];
    snprintf(name, sizeof name, "rule-%d", p->n_rules++);
    p->gbnf.n = 0;
    p->gbnf.at[0] = 0;
    random_body(p, depth);
    add(&p->rules, name);
    add(&p->rules, rng_below(&rng, 2) ? " ::= " : "::=");
    add(&p->rules, p->gbnf.at);
    add(&p->rules, rng_below(&rng, 2) ? "\n" : " # the end\n\n");
    p->gbnf = outer;
    add(&p->gbnf, name);
}

static void random_item(struct pair *p, int depth) {
    static const struct {
        const char *gbnf, *regex;
    } leaves[] = {{"\"a\"", "a"},
                  {"\"ab\"", "ab"},
                  {"[ab]", "[ab]"},
                  {"[^a]", "[^a]"},
                  {".", "[^]"},
                  {"'b'", "b"},
                  {"\"\\x61\\u0062\"", "ab"},
                  {"[a-c\\n]", "[a-c\\n]"},
                  {"\"\"", ""},
                  {"\"\\U0001F600\"", "\\u{1F600}"}};
    uint32_t kind = depth ? rng_below(&rng, 4) : 0;
    if (kind < 2) {
        uint32_t i = rng_below(&rng, sizeof leaves / sizeof *leaves);
        add(&p->gbnf, leaves[i].gbnf);
        add(&p->regex, "(?:");
        add(&p->regex, leaves[i].regex);
        add(&p->regex, ")");
        return;
    }
    add(&p->regex, "(?:");
    if (kind == 2) {
        add(&p->gbnf, rng_below(&rng, 2) ? "(" : "(\n  ");
        random_body(p, depth - 1);
        add(&p->gbnf, rng_below(&rng, 2) ? ")" : " # so\n )");
    } else {
        random_rule(p, depth - 1);
    }
    add(&p->regex, ")");
}

static void random_body(struct pair *p, int depth) {
    static const char *const repeats[] = {"*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}"};
    for (uint32_t n = 1 + rng_below(&rng, 2); n; n--) {
        for (uint32_t i = rng_below(&rng, 3); i; i--) {
            random_item(p, depth);
            if (rng_below(&rng, 3) == 0) {
                const char *repeat = repeats[rng_below(&rng, 7)];
                add(&p->gbnf, repeat);
                add(&p->regex, repeat);
            }
            add(&p->gbnf, rng_below(&rng, 2) ? " " : "\t ");
        }
        if (n > 1) add(&p->gbnf, rng_below(&rng, 2) ? "| " : "|\n");
        if (n > 1) add(&p->regex, "|");
    }
}

static void random_grammars(void) {
    int n_accepted = 0;
    for (int round = 0; round < 200; round++) {
        struct pair p = {.n_rules = 0};
        struct text whole = {.n = 0};
        struct dfa d;
        grammar *g = NULL;
        err e = {0};
        add(&p.regex, "");
        random_body(&p, 2);
        add(&whole, p.rules.at);
        add(&whole, "root ::= ");
        add(&whole, p.gbnf.at);
        CHECK(dfa_from_regex(p.regex.at, 0, NULL, &d, &e) == 0);
        int rc = compile(whole.at, &g, &e);
        if (dfa_is_empty(&d)) rc = rc ? 1 : rc;
        CHECK_MSG(rc == 0, "%s\n%s", whole.at, e.msg);
        for (int i = 0; i < 20 && !rc; i++) {
            static const char *const letters[] = {"a", "b", "c", "\n", "\xF0\x9F\x98\x80"};
            struct text t = {.n = 0};
            for (uint32_t n = rng_below(&rng, 6); n; n--)
                add(&t, letters[rng_below(&rng, 3) ? rng_below(&rng, 2) : rng_below(&rng, 5)]);
            bool want = dfa_accepts(&d, t.at, t.n);
            n_accepted += want;
            CHECK_MSG(accepts(g, t.at, t.n) == want, "%s\n\"%.*s\": want %d", whole.at, (int)t.n,
                      t.at, want);
        }
        grammar_release(g);
        dfa_fini(&d);
    }
    CHECK_MSG(n_accepted > 200, "%d texts", n_accepted);
}

/* ---- tables ---- */

static void notation(void) {
    static const struct {
        const char *grammar, *accepted[4], *refused[4];
    } rows[] = {
        {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "())", ")("}},
        {"# a list\nroot ::= (\"- \" item)+\nitem ::= [^\\n]+ \"\\n\"\n",
         {"- a\n", "- a\n- b c\n"},
         {"", "- \n", "- a", "a\n"}},
        {"expr::=term\n  | expr2 '+' term\nexpr2 ::= term\nterm ::= [0-9]+ root ::= expr",
         {"1", "1+23"},
         {"+", "1+2+3", "1+"}},
        {"root ::= \"\\\"\\\\\\n\\r\\t\\[\\]\\x41\\u00e9\\U0001F600\"",
         {"\"\\\n\r\t[]A\xC3\xA9\xF0\x9F\x98\x80"},
         {"A"}},
        {"root ::= [\\]\\-\\\\^-] [a-] .", {"]-\n", "-ax", "^a\xE2\x82\xAC"}, {"a-x", "]-", "]bx"}},
        {"root ::= \"a\" {2} 'b' { 1, } [\xE3\x81\x81-\xE3\x82\x9F]?",
         {"aab", "aabbb", "aab\xE3\x81\x82"},
         {"ab", "aa", "aab\xE3\x82\xA2"}},
        {"root ::= a-1_B\na-1_B ::= | \"x\" |\n \"y\"", {"", "x", "y"}, {"xy", "z"}},
        {"root ::= [^\\x00-\\x1f\"]* ", {"", "a b"}, {"\n", "\"", "\x7f\x1f"}},
        {"value ::= \"[\" (value (\",\" value)*)? \"]\" | num\nnum ::= [0-9]\nroot ::= value",
         {"[]", "[1,[2,[]],3]", "7"},
         {"[1,]", "[", "[1 2]", "]"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        grammar *g = NULL;
        err e = {0};
        int rc = compile(rows[i].grammar, &g, &e);
        CHECK_MSG(rc == 0, "%s\n%s", rows[i].grammar, e.msg);
        for (int k = 0; k < 4 && !rc; k++) {
            const char *yes = rows[i].accepted[k], *no = rows[i].refused[k];
            if (yes) CHECK_MSG(accepts(g, yes, strlen(yes)), "%s: \"%s\"", rows[i].grammar, yes);
            if (no) CHECK_MSG(!accepts(g, no, strlen(no)), "%s: \"%s\"", rows[i].grammar, no);
        }
        grammar_release(g);
    }
}

static void mistakes(void) {
    static const struct {
        const char *grammar;
        int code;
        const char *part;
    } rows[] = {
        {"", ERR_INVALID, "no rule \"root\""},
        {"a ::= \"x\"", ERR_INVALID, "no rule \"root\""},
        {"root ::= a\n  b \"x\"\na ::= \"y\"", ERR_INVALID,
         "line 2, column 3: this rule is not defined"},
        {"root ::= \"x\"\nroot ::= \"y\"", ERR_INVALID, "line 2, column 1: this rule is already"},
        {"root ::= \"\xC3\xA9\" )", ERR_INVALID, "line 1, column 14: a )"},
        {"root ::= ( \"x\"", ERR_INVALID, "line 1, column 10: this ("},
        {"root ::= \"x", ERR_INVALID, "column 10: this text"},
        {"root ::= [a", ERR_INVALID, "column 10: this ["},
        {"root ::= [b-a]", ERR_INVALID, "column 11: this range"},
        {"root ::= \"\\q\"", ERR_INVALID, "column 11: unknown escape"},
        {"root ::= \"\\x4\"", ERR_INVALID, "column 11: this escape"},
        {"root ::= \"\\ud800\"", ERR_INVALID, "not the code point of a character"},
        {"root ::= \"\\U00110000\"", ERR_INVALID, "not the code point of a character"},
        {"root ::= \"x\"{,2}", ERR_INVALID, "column 13: expected a count"},
        {"root ::= \"x\"{3,2}", ERR_INVALID, "column 13: the counts"},
        {"root ::= *", ERR_INVALID, "column 10: expected a text"},
        {"root \"x\"", ERR_INVALID, "column 1: expected ::="},
        {"::= \"x\"", ERR_INVALID, "column 1: expected the name"},
        {"root ::= <think>", ERR_UNSUPPORTED, "column 10: tokens"},
        {"root ::= \"\xFF\"", ERR_INVALID, "column 11: not valid UTF-8"},
        {"root ::= root \"x\" | \"y\"", ERR_INVALID, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        grammar *g = NULL;
        err e = {0};
        int rc = compile(rows[i].grammar, &g, &e);
        CHECK_MSG(rc == rows[i].code && !g && strstr(e.msg, rows[i].part), "%s: %d %s",
                  rows[i].grammar, rc, e.msg);
        grammar_release(g);
    }
    char deep[1200] = "root ::= ";
    memset(deep + 9, '(', 1000);
    grammar *g = NULL;
    err e = {0};
    CHECK(compile(deep, &g, &e) == ERR_TOO_LONG && !g);
    grammar_builder *b = grammar_builder_new();
    CHECK(grammar_gbnf(b, "root ::= \"x\"\0", 13) < 0);
    CHECK(grammar_finish(b, -1, &g, &e) == ERR_INVALID && strstr(e.msg, "NUL"));
    grammar_builder_free(b);
}

int main(void) {
    err e;
    char bytes[N_VOCAB];
    struct grammar_vocab_config config = {.n_vocab = N_VOCAB, .token = byte_token, .arg = bytes};
    for (int i = 0; i < N_VOCAB; i++)
        bytes[i] = (char)i;
    if (grammar_vocab_new(&config, &vocab, &e)) {
        printf("%s\n", e.msg);
        return 1;
    }
    RUN(notation);
    RUN(mistakes);
    RUN(random_grammars);
    grammar_vocab_free(vocab);
    return check_done();
}
