/* Regular expressions: thousands of random patterns, anchored and as a search, against PCRE2;
 * tables of ECMA-262's differences and of refusals. */
#include "check.h"
#include "core/base/mem.h"
#include "core/grammar/regex/dfa_int.h"
#include "core/text/property.h"
#include "tests/support/rng.h"
#include "tests/unit/pattern_text.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

static struct rng rng = {0x9e3779b97f4a7c15u};

/* ---- random patterns ---- */

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
    if (rng_below(&rng, 3))
        add(t, letters[rng_below(&rng, N_LETTERS)]);
    else
        add(t, classes[rng_below(&rng, sizeof classes / sizeof *classes)]);
}

static void random_pattern(struct text *t, int depth, bool looks);

static void random_term(struct text *t, int depth, bool looks) {
    static const char *const repeats[] = {"*",     "+",    "?",  "{2}", "{1,2}",
                                          "{0,3}", "{2,}", "*?", "{0}"};
    static const char *const places[] = {"^", "$", "\\b", "\\B"};
    uint32_t kind = rng_below(&rng, 12);
    if (kind == 0) {
        add(t, places[rng_below(&rng, 4)]);
        return;
    }
    if (kind == 1 && looks && depth > 0) {
        add(t, rng_below(&rng, 2) ? "(?=" : "(?!");
        random_pattern(t, depth - 1, looks);
        add(t, ")");
        return;
    }
    if (kind == 2 && looks) { /* of a fixed length, as PCRE2 requires */
        add(t, rng_below(&rng, 2) ? "(?<=" : "(?<!");
        for (uint32_t n = 1 + rng_below(&rng, 2); n; n--)
            random_atom(t);
        add(t, ")");
        return;
    }
    if (kind < 5 && depth > 0) {
        add(t, rng_below(&rng, 2) ? "(" : "(?:");
        random_pattern(t, depth - 1, looks);
        add(t, ")");
    } else {
        random_atom(t);
    }
    if (rng_below(&rng, 3) == 0) add(t, repeats[rng_below(&rng, sizeof repeats / sizeof *repeats)]);
}

static void random_pattern(struct text *t, int depth, bool looks) {
    for (uint32_t n = 1 + rng_below(&rng, 2);;) {
        for (uint32_t i = rng_below(&rng, 4); i; i--)
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
    rc = dfa_from_regex(pattern, search ? DFA_REGEX_SEARCH : 0, NULL, &d, &e);
    if (rc == ERR_UNSUPPORTED) {
        pcre2_code_free(re);
        return;
    }
    CHECK_MSG(rc == 0, "%s: %s", pattern, e.msg);
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    for (int i = 0; i < 60 && !rc; i++) {
        struct text t = {.n = 0};
        for (uint32_t n = rng_below(&rng, 7); n; n--)
            add(&t, letters[rng_below(&rng, N_LETTERS)]);
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

/* ---- properties of characters ---- */

static size_t utf8(uint32_t c, char out[4]) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((0xF0u << (4 - n)) | c);
    return n;
}

/* Characters of PCRE2's version of Unicode (14.0 in 10.42) that a later one gave other properties.
 */
static bool has_changed(uint32_t c) {
    static const uint32_t changed[][2] = {{0x295, 0x295}, {0x363, 0x36f},   {0xc04, 0xc04},
                                          {0xf82, 0xf83}, {0x10fc, 0x10fc}, {0x1dd3, 0x1de6}};
    for (size_t i = 0; i < sizeof changed / sizeof *changed; i++)
        if (changed[i][0] <= c && c <= changed[i][1]) return true;
    return false;
}

/* Every property of the characters in PCRE2's version of Unicode. */
static void properties(void) {
    int unassigned_code;
    PCRE2_SIZE unassigned_at;
    pcre2_code *unassigned = pcre2_compile((PCRE2_SPTR) "\\p{Cn}", PCRE2_ZERO_TERMINATED, PCRE2_UTF,
                                           &unassigned_code, &unassigned_at, NULL);
    static const char *const same[][2] = {{"\\p{L}", NULL},
                                          {"\\p{Lu}", NULL},
                                          {"\\p{Letter}", "\\p{L}"},
                                          {"\\P{Ll}", NULL},
                                          {"\\p{gc=Nd}", "\\p{Nd}"},
                                          {"\\p{General_Category=Punctuation}", "\\p{P}"},
                                          {"[\\p{M}\\p{Zs}]", NULL},
                                          {"[^\\p{S}\\P{L}]", NULL},
                                          {"\\p{Cn}", NULL},
                                          {"\\p{Script=Greek}", "\\p{sc:Greek}"},
                                          {"\\p{sc=Hani}", "\\p{sc:Han}"},
                                          {"\\p{Script=Cyrillic}", "\\p{sc:Cyrillic}"},
                                          {"\\p{Script=Common}", "\\p{sc:Common}"},
                                          {"\\p{Alphabetic}", NULL},
                                          {"\\p{Lowercase}", NULL},
                                          {"\\p{Uppercase}", NULL},
                                          {"\\p{Emoji}", NULL},
                                          {"\\p{Emoji_Presentation}", NULL},
                                          {"\\p{White_Space}", NULL},
                                          {"\\p{ASCII_Hex_Digit}", NULL},
                                          {"\\p{Any}", NULL}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const char *theirs = same[i][1] ? same[i][1] : same[i][0];
        int code, n_wrong = 0;
        PCRE2_SIZE at;
        struct dfa d;
        err e = {0};
        pcre2_code *re =
            pcre2_compile((PCRE2_SPTR)theirs, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &at, NULL);
        int rc = dfa_from_regex(same[i][0], 0, NULL, &d, &e);
        CHECK_MSG(re && rc == 0, "%s: %s", same[i][0], e.msg);
        if (!re || rc) continue;
        pcre2_match_data *data = pcre2_match_data_create(1, NULL);
        for (uint32_t c = 0; c <= 0x10FFFF; c += c < 0x3200 ? 1 : 17) {
            struct text t = {.n = 0};
            if (c >= 0xD800 && c < 0xE000) continue;
            t.n = utf8(c, t.at);
            if (reference(unassigned, data, &t, false) == 1 || has_changed(c)) continue;
            n_wrong += dfa_accepts(&d, t.at, t.n) != (reference(re, data, &t, false) == 1);
        }
        CHECK_MSG(n_wrong == 0, "%s: %d characters", same[i][0], n_wrong);
        pcre2_match_data_free(data);
        pcre2_code_free(re);
        dfa_fini(&d);
    }
    pcre2_code_free(unassigned);
}

static void add_to_set(void *context, uint32_t first, uint32_t last) {
    uint8_t *set = context;
    memset(set + first, 1, last - first + 1);
}

/* The totals that Unicode 17.0's own files name; of categories, counted in UnicodeData.txt. */
static void property_totals(void) {
    static const struct {
        const char *name;
        unsigned n;
    } rows[] = {{"L", 145672},
                {"Lu", 1886},
                {"Ll", 2283},
                {"M", 2543},
                {"Nd", 770},
                {"N", 1924},
                {"P", 856},
                {"S", 8617},
                {"Zs", 17},
                {"Alphabetic", 147421},
                {"Lowercase", 2595},
                {"Uppercase", 2006},
                {"Emoji", 1438},
                {"Emoji_Presentation", 1219},
                {"Extended_Pictographic", 2848},
                {"sc=Common", 9123},
                {"sc=Latn", 1492},
                {"Script=Greek", 518},
                {"Script=Cyrillic", 508},
                {"Script=Han", 103351},
                {"Script=Sidetic", 26}};
    uint8_t *set = mem_new(0x110000, 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows && set; i++) {
        unsigned n = 0;
        memset(set, 0, 0x110000);
        CHECK(property_ranges(rows[i].name, strlen(rows[i].name), add_to_set, set));
        for (uint32_t c = 0; c < 0x110000; c++)
            n += set[c];
        CHECK_MSG(n == rows[i].n, "%s: %u characters", rows[i].name, n);
    }
    CHECK(!property_ranges("Nothing", 7, add_to_set, set) &&
          !property_ranges("", 0, add_to_set, set));
    CHECK(!property_ranges("sc=", 3, add_to_set, set));
    free(set);
}

/* ---- tables ---- */

static void ecma(void) {
    static const struct {
        const char *pattern, *accepted[6], *refused[6];
    } rows[] = {
        {"\\s", {"\xEF\xBB\xBF", "\xC2\xA0", "\v", "\xE2\x80\xA8"}, {"\xC2\x85", "x", ""}},
        {"\\d", {"7"}, {"\xD9\xA3"}},
        {"\\w", {"_", "Z"}, {"\xC3\xA9"}},
        {".",
         {"a", "\xC2\x85", "\xF0\x9F\x98\x80"},
         {"\n", "\r", "\xE2\x80\xA8", "\xE2\x80\xA9", ""}},
        {"\\u{1F600}\\ud83d\\ude00", {"\xF0\x9F\x98\x80\xF0\x9F\x98\x80"}, {"\xF0\x9F\x98\x80"}},
        {"\\ud83d", {NULL}, {"", "\xF0\x9F\x98\x80", "\xEF\xBF\xBD"}},
        {"\\cJ\\x41\\t\\/", {"\nA\t/"}, {"JA\t/"}},
        {"[]", {NULL}, {"", "a"}},
        {"[^]", {"a", "\n", "\xF4\x8F\xBF\xBF"}, {"", "\xED\xA0\x80", "\xC0\x80", "\x80"}},
        {"[\\w-.]+\\-[\\b]", {"a-.-\b"}, {"a-."}},
        {"(?<year>\\d{4})|x{0}|y{2,3}?", {"2024", "", "yy", "yyy"}, {"x", "y"}},
        {"^(?=.*[A-Z])(?=.*\\d)(?!.*--)[\\w-]{4,}$", {"Ab1c", "a-B-1"}, {"Ab1", "abc1", "A--1b"}},
        {"((?!end).)*", {"en", "", "e n d"}, {"end", "the end", "a\n"}},
        {"(?<=^|,)x(?=,|$)", {"x"}, {"", ",x"}},
        {"a$b|c^d|^e$", {"e"}, {"ab", "cd"}},
        {"{|}|]|a{x}", {"{", "}", "]", "a{x}"}, {"a"}},
        {"(a*)*(b|)+", {"", "aab", "bb"}, {"ba"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dfa d;
        err e = {0};
        int rc = dfa_from_regex(rows[i].pattern, 0, NULL, &d, &e);
        CHECK_MSG(rc == 0, "%s: %s", rows[i].pattern, e.msg);
        for (int k = 0; k < 6 && !rc; k++) {
            const char *yes = rows[i].accepted[k], *no = rows[i].refused[k];
            if (yes)
                CHECK_MSG(dfa_accepts(&d, yes, strlen(yes)), "%s: \"%s\"", rows[i].pattern, yes);
            if (no) CHECK_MSG(!dfa_accepts(&d, no, strlen(no)), "%s: \"%s\"", rows[i].pattern, no);
        }
        if (!rc) dfa_fini(&d);
    }
}

static void refusals(void) {
    static const struct {
        const char *pattern;
        int code;
        const char *part;
    } rows[] = {{"a(b", ERR_INVALID, "character 4"},
                {"a)", ERR_INVALID, "character 2"},
                {"\xC3\xA9**", ERR_INVALID, "character 3"},
                {"[z-a]", ERR_INVALID, "range"},
                {"[a", ERR_INVALID, "not closed"},
                {"a{2,1}", ERR_INVALID, "wrong order"},
                {"a{,3}", ERR_INVALID, "count"},
                {"a{1", ERR_INVALID, "not closed"},
                {"\\q", ERR_INVALID, "escape"},
                {"\\", ERR_INVALID, "lone"},
                {"\\u12", ERR_INVALID, "four"},
                {"\\u{110000}", ERR_INVALID, "character"},
                {"^*", ERR_INVALID, "repeat"},
                {"(?=a)*", ERR_INVALID, "repeat"},
                {"(?<>a)", ERR_INVALID, "name"},
                {"\\p", ERR_INVALID, "property"},
                {"\xFF", ERR_INVALID, "UTF-8"},
                {"(a)\\1", ERR_UNSUPPORTED, "back-reference"},
                {"(?<n>a)\\k<n>", ERR_UNSUPPORTED, "back-reference"},
                {"(?i)a", ERR_UNSUPPORTED, "group"},
                {"\\p{Script=Klingon}", ERR_UNSUPPORTED, "property"},
                {"a(?=b(?<=ab))", ERR_UNSUPPORTED, "look-behind"},
                {"(?<=a\\b)", ERR_UNSUPPORTED, "look-behind"},
                {"a{1000000}", ERR_TOO_LONG, "states"},
                {"(((a{99}){99}){99}){99}", ERR_TOO_LONG, "states"},
                {"[ab]*a[ab]{40}", ERR_TOO_LONG, "states"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dfa d = {0};
        err e = {0};
        int rc = dfa_from_regex(rows[i].pattern, 0, NULL, &d, &e);
        CHECK_MSG(rc == rows[i].code && e.code == rc && strstr(e.msg, rows[i].part) && !d.next,
                  "%s: %d %s", rows[i].pattern, rc, e.msg);
    }
}

static void lengths(void) {
    struct dfa d, open;
    err e;
    CHECK(dfa_from_length(2, 3, NULL, &d, &e) == 0);
    CHECK(dfa_from_length(2, GRAMMAR_UNLIMITED, NULL, &open, &e) == 0);
    static const struct {
        const char *text;
        bool in, in_open;
    } rows[] = {{"", false, false},
                {"a", false, false},
                {"\xF0\x9F\x98\x80", false, false},
                {"a\xF0\x9F\x98\x80", true, true},
                {"\xC3\xA9\xE2\x82\xAC"
                 "a",
                 true, true},
                {"abcd", false, true},
                {"ab\x80", false, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK(dfa_accepts(&d, rows[i].text, strlen(rows[i].text)) == rows[i].in);
        CHECK(dfa_accepts(&open, rows[i].text, strlen(rows[i].text)) == rows[i].in_open);
    }
    dfa_fini(&d);
    dfa_fini(&open);
    CHECK(dfa_from_length(0, 30000, NULL, &d, &e) == 0);
    CHECK_MSG(d.n_states > 200000, "%u states", d.n_states);
    dfa_fini(&d);
    CHECK(dfa_from_length(0, 100000, NULL, &d, &e) == ERR_TOO_LONG);
}

int main(void) {
    RUN(properties);
    RUN(property_totals);
    RUN(ecma);
    RUN(refusals);
    RUN(lengths);
    RUN(random_patterns);
    RUN(random_patterns_with_looks);
    return check_done();
}
