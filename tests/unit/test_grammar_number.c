/* Automata of numbers against exact arithmetic on expanded decimal digits: bounds, multiples,
 * integers, in every JSON notation. */
#include "check.h"
#include "core/grammar/grammar_int.h"
#include "tests/support/rng.h"

#include <ctype.h>
#include <stdlib.h>

static struct rng rng = {0x2545F4914F6CDD1Du};

/* ---- reference: a number as digits at fixed positions ---- */

enum { HALF = 480 };

struct fixed {
    int sign; /* -1, 0, 1 */
    char digits[2 * HALF + 1];
};

/* false: not JSON's syntax, or too large for the positions. */
static bool fixed_parse(const char *s, struct fixed *f) {
    char all[2 * HALF];
    int n = 0, point = 0, power = 0;
    bool negative = *s == '-';
    s += negative;
    memset(f, 0, sizeof *f);
    memset(f->digits, '0', 2 * HALF);
    if (!isdigit((unsigned char)*s) || (*s == '0' && isdigit((unsigned char)s[1]))) return false;
    while (isdigit((unsigned char)*s) && n < HALF)
        all[n++] = *s++;
    point = n;
    if (*s == '.') {
        s++;
        if (!isdigit((unsigned char)*s)) return false;
        while (isdigit((unsigned char)*s) && n < 2 * HALF - 1)
            all[n++] = *s++;
    }
    if (*s == 'e' || *s == 'E') {
        s++;
        int down = *s == '-';
        s += *s == '+' || *s == '-';
        if (!isdigit((unsigned char)*s)) return false;
        for (; isdigit((unsigned char)*s); s++)
            if (power < 100000) power = 10 * power + *s - '0';
        if (down) power = -power;
    }
    if (*s) return false;
    for (int i = 0; i < n; i++) {
        int at = HALF + i - point - power;
        if (all[i] == '0') continue;
        if (at < 0 || at >= 2 * HALF) return false;
        f->digits[at] = all[i];
        f->sign = negative ? -1 : 1;
    }
    return true;
}

static int fixed_compare(const struct fixed *a, const struct fixed *b) {
    if (a->sign != b->sign) return a->sign < b->sign ? -1 : 1;
    int c = strcmp(a->digits, b->digits);
    return a->sign < 0 ? (c < 0) - (c > 0) : (c > 0) - (c < 0);
}

static bool fixed_is_whole(const struct fixed *a) {
    return strspn(a->digits + HALF, "0") == HALF;
}

/* Is a a multiple of step * 10^-places? */
static bool fixed_is_multiple(const struct fixed *a, unsigned step, int places) {
    unsigned rest = 0;
    for (int i = 0; i < HALF + places; i++)
        rest = (10 * rest + (unsigned)(a->digits[i] - '0')) % step;
    return rest == 0 && strspn(a->digits + HALF + places, "0") == (size_t)(HALF - places);
}

static bool reference(const struct dfa_number *spec, const struct fixed *x, unsigned step,
                      int places) {
    struct fixed bound;
    if (spec->min) {
        CHECK(fixed_parse(spec->min, &bound));
        int c = fixed_compare(x, &bound);
        if (c < 0 || (c == 0 && spec->exclusive_min)) return false;
    }
    if (spec->max) {
        CHECK(fixed_parse(spec->max, &bound));
        int c = fixed_compare(x, &bound);
        if (c > 0 || (c == 0 && spec->exclusive_max)) return false;
    }
    if ((spec->integer || spec->plain) && !fixed_is_whole(x)) return false;
    return !step || fixed_is_multiple(x, step, places);
}

/* ---- random literals ---- */

struct text {
    char at[96];
    int n;
};

static void put(struct text *t, char c) {
    if (t->n < (int)sizeof t->at - 1) t->at[t->n++] = c;
    t->at[t->n] = 0;
}

static void random_digits(struct text *t, uint32_t n, bool no_zero_first) {
    for (uint32_t i = 0; i < n; i++)
        put(t, no_zero_first && !i ? "123456789"[rng_below(&rng, 9)]
                                   : "0123456789990"[rng_below(&rng, 13)]);
}

static void random_exponent(struct text *t) {
    put(t, "eE"[rng_below(&rng, 2)]);
    if (rng_below(&rng, 3)) put(t, "+-"[rng_below(&rng, 2)]);
    random_digits(t, 1 + rng_below(&rng, 2), false);
}

static void random_literal(struct text *t, bool exponents) {
    t->n = 0;
    if (rng_below(&rng, 3) == 0) put(t, '-');
    if (rng_below(&rng, 3) == 0)
        put(t, '0');
    else
        random_digits(t, 1 + rng_below(&rng, 4), true);
    if (rng_below(&rng, 2)) {
        put(t, '.');
        random_digits(t, 1 + rng_below(&rng, 4), false);
    }
    if (exponents && rng_below(&rng, 4) == 0) random_exponent(t);
}

/* near, with a few digits changed, added or dropped. */
static void mutate(struct text *t, const char *near) {
    t->n = 0;
    for (const char *c = near; *c; c++)
        put(t, *c);
    for (uint32_t i = rng_below(&rng, 3); i; i--) {
        int at = (int)rng_below(&rng, (uint32_t)t->n);
        if (!isdigit((unsigned char)t->at[at])) continue;
        int d = t->at[at] - '0' + (rng_below(&rng, 2) ? 1 : 9);
        t->at[at] = (char)('0' + d % 10);
    }
    if (strchr(near, 'e') || strchr(near, 'E')) return;
    if (rng_below(&rng, 3) == 0 && !strchr(t->at, '.')) put(t, '.');
    if (rng_below(&rng, 2) && strchr(t->at, '.')) random_digits(t, 1 + rng_below(&rng, 2), false);
    if (rng_below(&rng, 6) == 0) random_exponent(t);
}

/* One digit before the point, and an exponent: the form accepted with bounds other than 0. */
static bool is_scientific(const char *s) {
    s += *s == '-';
    return s[0] != '0' && (s[1] == '.' || s[1] == 'e' || s[1] == 'E');
}

/* Must the automaton accept the text if the number is allowed? (It may refuse other exponents.) */
static bool must_know(const struct dfa_number *spec, unsigned step, const char *text) {
    const char *point = strchr(text, '.');
    if (spec->integer && point && strlen(point) > 4) return false; /* too many zeros */
    if (!strpbrk(text, "eE")) return true;
    if (spec->integer || step) return false;
    return is_scientific(text);
}

static void check_text(const struct dfa_number *spec, const struct dfa *d, const char *text,
                       unsigned step, int places) {
    struct fixed x;
    bool valid = fixed_parse(text, &x), got = dfa_accepts(d, text, strlen(text));
    bool want = valid && reference(spec, &x, step, places) &&
                !(spec->plain && (strpbrk(text, ".eE") || strcmp(text, "-0") == 0));
    CHECK_MSG(got == want || (want && !must_know(spec, step, text)),
              "min %s%s max %s%s multiple %u/1e%d integer %d: %s: got %d",
              spec->min ? spec->min : "none", spec->exclusive_min ? "!" : "",
              spec->max ? spec->max : "none", spec->exclusive_max ? "!" : "", step, places,
              spec->integer, text, got);
}

static void check_spec(const struct dfa_number *spec, unsigned step, int places) {
    struct dfa d;
    struct text t;
    err e = {0};
    int rc = dfa_from_number(spec, NULL, &d, &e);
    CHECK_MSG(rc == 0, "%s", e.msg);
    if (rc) return;
    for (int i = 0; i < 150; i++) {
        const char *near = i % 2 && spec->max ? spec->max : spec->min;
        if (near && i % 3)
            mutate(&t, near);
        else
            random_literal(&t, true);
        check_text(spec, &d, t.at, step, places);
    }
    if (spec->min) check_text(spec, &d, spec->min, step, places);
    if (spec->max) check_text(spec, &d, spec->max, step, places);
    check_text(spec, &d, "0", step, places);
    check_text(spec, &d, "-0", step, places);
    check_text(spec, &d, "-0.0", step, places);
    dfa_fini(&d);
}

static void bounds(void) {
    for (int round = 0; round < 3000; round++) {
        struct text min, max;
        struct dfa_number spec = {.integer = rng_below(&rng, 4) == 0,
                                  .plain = rng_below(&rng, 4) == 0,
                                  .exclusive_min = rng_below(&rng, 2),
                                  .exclusive_max = rng_below(&rng, 2)};
        random_literal(&min, true);
        if (rng_below(&rng, 2))
            random_literal(&max, true);
        else
            mutate(&max, min.at);
        if (rng_below(&rng, 8) == 0) strcpy(min.at, "0");
        struct fixed f;
        if (rng_below(&rng, 3) && fixed_parse(min.at, &f)) spec.min = min.at;
        if (rng_below(&rng, 3) && fixed_parse(max.at, &f)) spec.max = max.at;
        check_spec(&spec, 0, 0);
    }
}

static void multiples(void) {
    static const struct {
        const char *literal;
        unsigned step;
        int places;
    } cases[] = {{"1", 1, 0},        {"2", 2, 0},       {"3", 3, 0},       {"7", 7, 0},
                 {"10", 10, 0},      {"1e1", 10, 0},    {"0.01", 1, 2},    {"0.5", 5, 1},
                 {"2.5", 25, 1},     {"1.5", 15, 1},    {"0.0001", 1, 4},  {"0.0075", 75, 4},
                 {"1e-8", 1, 8},     {"1000", 1000, 0}, {"4096", 4096, 0}, {"2.50", 25, 1},
                 {"12.34", 1234, 2}, {"0.125", 125, 3}, {"100.0", 100, 0}, {"60", 60, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int round = 0; round < 12; round++) {
            struct text min, max;
            struct fixed f;
            struct dfa d;
            err e;
            struct dfa_number spec = {.integer = rng_below(&rng, 3) == 0,
                                      .plain = rng_below(&rng, 4) == 0,
                                      .multiple_of = cases[i].literal};
            random_literal(&min, false);
            random_literal(&max, false);
            if (rng_below(&rng, 3) == 0 && fixed_parse(min.at, &f)) spec.min = min.at;
            if (rng_below(&rng, 3) == 0 && fixed_parse(max.at, &f)) spec.max = max.at;
            check_spec(&spec, cases[i].step, cases[i].places);
            /* Actual multiples: random texts rarely are. */
            CHECK(dfa_from_number(&spec, NULL, &d, &e) == 0);
            for (int k = 0; k < 50; k++) {
                char text[64];
                uint64_t v = (uint64_t)cases[i].step * rng_below(&rng, 100000), scale = 1;
                for (int p = 0; p < cases[i].places; p++)
                    scale *= 10;
                snprintf(text, sizeof text, "%s%llu", rng_below(&rng, 2) ? "-" : "",
                         (unsigned long long)(v / scale));
                if (cases[i].places)
                    snprintf(text + strlen(text), 32, ".%0*llu", cases[i].places,
                             (unsigned long long)(v % scale));
                check_text(&spec, &d, text, cases[i].step, cases[i].places);
            }
            dfa_fini(&d);
        }
}

struct row {
    struct dfa_number spec;
    const char *accepted[14], *refused[14];
};

static void forms(void) {
    static const struct row rows[] = {
        {{0},
         {"0", "-0", "1", "-12.50", "1e5", "1E+16", "1e-05", "0.1e1", "12345678901234567890",
          "3.141592653589793238462643", "1e-9999"},
         {"", "-", "01", "+1", "1.", ".5", "1e", "1e+", "0x1", "NaN", "--1", "1 ",
          "0.0000000000000000000000001", "1e00000"}},
        {{.integer = true},
         {"0", "-0", "10", "1.0", "-3.000"},
         {"1.5", "1e3", "0.5", "1.", "00", "1.0000"}},
        {{.integer = true, .plain = true, .min = "-10"},
         {"0", "-1", "-10", "7"},
         {"-0", "1.0", "1e0", "-00", "-11"}},
        {{.min = "0", .max = "1"},
         {"0", "1", "1.000", "0.5", "1e-05", "-0", "0.000", "1e0", "1E-7", "1.0e+0", "9.99e-1"},
         {"1.0001", "-0.1", "2", "1e1", "1.1e0", "-1e-5", "11", "10"}},
        {{.min = "0"}, {"12.5e3", "1e+21", "0e9", "-0e1", "0.0"}, {"-1e5", "-0.1e0"}},
        {{.min = "0", .exclusive_min = true}, {"1e-400", "0.001e-2"}, {"0", "-0", "0.0e5", "0e1"}},
        {{.max = "0", .exclusive_max = true}, {"-1", "-1e-5"}, {"0", "-0.0", "1", "-0e1"}},
        {{.min = "1e308"}, {"1e308", "1e+309", "1.5e308"}, {"1", "9e307", "1e-309"}},
        {{.min = "-1e-7", .max = "1e-7"},
         {"1e-7", "1.0e-07", "-1e-8", "0", "0.0000001"},
         {"1.1e-7", "-2e-7", "0.00000011", "1e-6"}},
        {{.integer = true, .min = "1", .max = "10"},
         {"1", "10", "5", "10.0"},
         {"0", "11", "100", "5.5", "-5", "1e0"}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dfa d;
        err e;
        CHECK(dfa_from_number(&rows[i].spec, NULL, &d, &e) == 0);
        for (int k = 0; k < 14; k++) {
            const char *yes = rows[i].accepted[k], *no = rows[i].refused[k];
            if (yes) CHECK_MSG(dfa_accepts(&d, yes, strlen(yes)), "row %zu: %s", i, yes);
            if (no) CHECK_MSG(!dfa_accepts(&d, no, strlen(no)), "row %zu: %s", i, no);
        }
        dfa_fini(&d);
    }
}

static void refused(void) {
    static const struct {
        struct dfa_number spec;
        int code;
    } rows[] = {{{.min = "x"}, ERR_INVALID},
                {{.min = ""}, ERR_INVALID},
                {{.max = "1e"}, ERR_INVALID},
                {{.max = "-"}, ERR_INVALID},
                {{.max = "1.5.5"}, ERR_INVALID},
                {{.max = "1e999999999999"}, ERR_TOO_LONG},
                {{.multiple_of = "0"}, ERR_INVALID},
                {{.multiple_of = "-2"}, ERR_INVALID},
                {{.multiple_of = "0.123456789"}, ERR_UNSUPPORTED},
                {{.multiple_of = "1e300"}, ERR_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dfa d = {0};
        err e = {0};
        int rc = dfa_from_number(&rows[i].spec, NULL, &d, &e);
        CHECK_MSG(rc == rows[i].code && e.code == rc && !d.next, "row %zu: %d %s", i, rc, e.msg);
    }
}

static void empty_and_small(void) {
    const struct dfa_number none = {.min = "3", .max = "2"};
    const struct dfa_number dice = {.integer = true, .min = "1", .max = "6"};
    struct dfa d;
    err e;
    CHECK(dfa_from_number(&none, NULL, &d, &e) == 0 && dfa_is_empty(&d));
    dfa_fini(&d);
    CHECK(dfa_from_number(&dice, NULL, &d, &e) == 0);
    CHECK_MSG(d.n_states == 7, "%u states", d.n_states); /* dead, start, digit, point, 3 zeros */
    dfa_fini(&d);
}

int main(void) {
    RUN(bounds);
    RUN(multiples);
    RUN(forms);
    RUN(refused);
    RUN(empty_and_small);
    return check_done();
}
