/* Regular expressions: thousands of random patterns, whole and searched, against PCRE2; what
 * ECMA-262 says otherwise and what is refused by tables. */
#include "check.h"
#include "core/grammar/dfa_int.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

static uint64_t seed = 0x9e3779b97f4a7c15u;

static uint32_t rnd(uint32_t n) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 11) % n;
}

/* ---- random patterns ---- */

struct text {
    char at[4096];
    size_t n;
};

static void add(struct text *t, const char *s) {
    size_t n = strlen(s);
    if (t->n + n >= sizeof t->at) return;
    memcpy(t->at + t->n, s, n + 1);
    t->n += n;
}

static const char *const letters[] = {
    "a", "b", "_", "-", "\n", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
enum { N_LETTERS = sizeof letters / sizeof *letters };

static void random_atom(struct text *t) {
    static const char *const classes[] = {".",
                                          "[ab]",
                                          "[^a]",
                                          "\\w",
                                          "\\W",
                                          "\\d",
                                          "[^\\w]",
                                          "[\\s\\S]",
                                          "[a-c_]",
                                          "[^\\n\xC3\xA9]",
                                          "[\xC3\xA9-\xE2\x82\xAC]",
                                          "\\x61",
                                          "[\\x61-\\x7a]",
                                          "\\n"};
    if (rnd(3))
        add(t, letters[rnd(N_LETTERS)]);
    else
        add(t, classes[rnd(sizeof classes / sizeof *classes)]);
}

static void random_pattern(struct text *t, int depth, bool looks);

static void random_term(struct text *t, int depth, bool looks) {
    static const char *const repeats[] = {"*",     "+",    "?",  "{2}", "{1,2}",
                                          "{0,3}", "{2,}", "*?", "{0}"};
    static const char *const places[] = {"^", "$", "\\b", "\\B"};
    uint32_t kind = rnd(12);
    if (kind == 0) {
        add(t, places[rnd(4)]);
        return;
    }
    if (kind == 1 && looks && depth > 0) {
        add(t, rnd(2) ? "(?=" : "(?!");
        random_pattern(t, depth - 1, looks);
        add(t, ")");
        return;
    }
    if (kind == 2 && looks) { /* of one length, as PCRE2 wants it */
        add(t, rnd(2) ? "(?<=" : "(?<!");
        for (uint32_t n = 1 + rnd(2); n; n--)
            random_atom(t);
        add(t, ")");
        return;
    }
    if (kind < 5 && depth > 0) {
        add(t, rnd(2) ? "(" : "(?:");
        random_pattern(t, depth - 1, looks);
        add(t, ")");
    } else {
        random_atom(t);
    }
    if (rnd(3) == 0) add(t, repeats[rnd(sizeof repeats / sizeof *repeats)]);
}

static void random_pattern(struct text *t, int depth, bool looks) {
    for (uint32_t n = 1 + rnd(2);;) {
        for (uint32_t i = rnd(4); i; i--)
            random_term(t, depth, looks);
        if (!--n) break;
        add(t, "|");
    }
}

/* -1: PCRE2 gave up. */
static int reference(const pcre2_code *code, pcre2_match_data *data, const struct text *t,
                     bool search) {
    uint32_t options = search ? 0 : PCRE2_ANCHORED | PCRE2_ENDANCHORED;
    int rc = pcre2_match(code, (PCRE2_SPTR)t->at, t->n, 0, options, data, NULL);
    return rc >= 0 ? 1 : rc == PCRE2_ERROR_NOMATCH ? 0 : -1;
}

static void compare(const char *pattern, bool search, int *n_compared) {
    int code, rc;
    PCRE2_SIZE at;
    struct dfa d;
    err e;
    pcre2_code *re =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_NO_AUTO_POSSESS, &code, &at, NULL);
    CHECK_MSG(re != NULL, "PCRE2 refuses %s", pattern);
    if (!re) return;
    rc = dfa_from_regex(pattern, search ? DFA_REGEX_SEARCH : 0, &d, &e);
    if (rc == ERR_UNSUPPORTED) {
        pcre2_code_free(re);
        return;
    }
    CHECK_MSG(rc == 0, "%s: %s", pattern, e.msg);
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    for (int i = 0; i < 60 && !rc; i++) {
        struct text t = {.n = 0};
        for (uint32_t n = rnd(7); n; n--)
            add(&t, letters[rnd(N_LETTERS)]);
        int want = reference(re, data, &t, search);
        if (want < 0) continue;
        ++*n_compared;
        CHECK_MSG(dfa_accepts(&d, t.at, t.n) == (want != 0), "%s %s \"%.*s\": want %d", pattern,
                  search ? "in" : "is", (int)t.n, t.at, want);
    }
    pcre2_match_data_free(data);
    pcre2_code_free(re);
    if (!rc) dfa_fini(&d);
}

static void random_patterns(void) {
    int n = 0;
    for (int round = 0; round < 6000; round++) {
        struct text t = {.n = 0};
        add(&t, "");
        random_pattern(&t, 2, false);
        compare(t.at, round % 2, &n);
    }
    CHECK_MSG(n > 300000, "%d texts", n);
}

static void random_patterns_with_looks(void) {
    int n = 0;
    for (int round = 0; round < 6000; round++) {
        struct text t = {.n = 0};
        add(&t, "");
        random_pattern(&t, 2, true);
        compare(t.at, round % 2, &n);
    }
    CHECK_MSG(n > 250000, "%d texts", n);
}

int main(void) {
    RUN(random_patterns);
    RUN(random_patterns_with_looks);
    return check_done();
}
