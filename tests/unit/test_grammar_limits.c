/* Grammars at their limits: errors while a list is full, a failure of each allocation, budgets of
 * compiling and of masks of every size. Under AddressSanitizer it also finds leaks and double
 * frees.
 */
#include "check.h"
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/grammar/grammar_int.h"
#include "tests/support/rng.h"

#include <stdlib.h>

enum { N_VOCAB = 257 };

enum notation { GBNF, REGEX, SCHEMA };

static grammar_node make(grammar_builder *b, enum notation kind, const char *text,
                         const cJSON *schema) {
    if (kind == GBNF) return grammar_gbnf(b, text, strlen(text));
    if (kind == REGEX) return grammar_regex(b, text);
    return grammar_json(b, &(struct grammar_schema){.schema = schema});
}

static int compile(enum notation kind, const char *text, struct work *w, grammar **g, err *e) {
    cJSON *schema = kind == SCHEMA ? cJSON_Parse(text) : NULL;
    *g = NULL;
    err_clear(e);
    if (kind == SCHEMA) CHECK_MSG(schema, "%s", text);
    grammar_builder *b = grammar_builder_new();
    int rc = ERR_NOMEM;
    if (b) {
        grammar_builder_limit(b, w);
        rc = grammar_finish(b, make(b, kind, text, schema), g, e);
    }
    grammar_builder_free(b);
    cJSON_Delete(schema);
    return rc;
}

/* One example for every part of the compiler. */
static const struct {
    enum notation kind;
    const char *text;
} samples[] = {
    {GBNF, "root ::= (\"a\" | [^b-d\\u00e9]* 'x'){1,3} rest? .\nrest ::= \"y\" root | \"z\"+\n"},
    {REGEX, "(?=.*a.{3})(?!b)([\\u00e0-\\u00ff]|[^\\d_]){2,}(x|yz)*\\b"},
    {REGEX, "(?<=^a)b|(?<!c)d{0,20}$"},
    {SCHEMA, "{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,\"x\",null,2.5]},\"b\":{"
             "\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":-7,\"maximum\":120},"
             "\"uniqueItems\":true}},\"patternProperties\":{\"^x.\":{\"type\":\"string\","
             "\"minLength\":2}},\"required\":[\"a\"],\"minProperties\":2}"},
    {SCHEMA, "{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"anyOf\":[{\"type\":\"number\","
             "\"multipleOf\":0.25},{\"type\":\"array\",\"prefixItems\":[{\"format\":\"date\"}],"
             "\"items\":{\"$ref\":\"#/$defs/t\"},\"contains\":{\"const\":1}},{\"type\":\"string\","
             "\"not\":{\"pattern\":\"ab\"}}]}}}"},
};
enum { N_SAMPLES = sizeof samples / sizeof *samples };

/* ---- full lists ---- */

/* n items and an error, for every n around the capacities of the lists: 16, 32, 64. */
static void mistakes_behind_full_lists(void) {
    static const struct {
        enum notation kind;
        const char *first, *item, *mistake;
    } rows[] = {
        {GBNF, "root ::= ", "\"a\" ", "!"},
        {GBNF, "root ::= ", "\"a\" | ", "!"},
        {GBNF, "root ::= ", "(", "!"},
        {GBNF, "root ::= ", "[a-c] ", "["},
        {GBNF, "root ::= ", "b ", "\"x"},
        {GBNF, "", "root ::= \"a\"\n", "root ::= )"},
        {REGEX, "", "a", ")"},
        {REGEX, "", "a|", "("},
        {REGEX, "", "[ab]", "["},
        {REGEX, "", "(?=a)", "*"},
        {REGEX, "", "(", "\\1"},
        {REGEX, "", "\\u{4e00}*", "**"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int n = 0; n <= 130; n++) {
            char text[4096];
            size_t at = (size_t)snprintf(text, sizeof text, "%s", rows[i].first);
            for (int k = 0; k < n; k++)
                at += (size_t)snprintf(text + at, sizeof text - at, "%s", rows[i].item);
            snprintf(text + at, sizeof text - at, "%s", rows[i].mistake);
            grammar *g;
            err e;
            int rc = compile(rows[i].kind, text, NULL, &g, &e);
            CHECK_MSG(rc < 0 && !g && e.code == rc && e.msg[0], "%.60s, %d times", text, n);
        }
}

/* ---- failing allocations ---- */

static void each_allocation_fails_once(void) {
    for (size_t i = 0; i < N_SAMPLES; i++) {
        uint64_t n_failed = 0;
        for (uint64_t n = 1;; n++) {
            grammar *g;
            err e;
            mem_fail_at(n);
            int rc = compile(samples[i].kind, samples[i].text, NULL, &g, &e);
            bool reached = mem_fail_at(0) == 0;
            CHECK_MSG(!g == (rc != 0) && (!rc || rc == ERR_NOMEM || rc == ERR_TOO_LONG),
                      "sample %zu, allocation %llu: %d %s", i, (unsigned long long)n, rc, e.msg);
            if (!reached) CHECK(rc == 0);
            n_failed += rc != 0;
            grammar_release(g);
            if (!reached) break;
        }
        CHECK(n_failed > 20);
    }
}

/* ---- budgets of compiling ---- */

static void budgets_of_compiling(void) {
    for (size_t i = 0; i < N_SAMPLES; i++) {
        struct work all = {.left = UINT64_MAX - 1};
        grammar *g, *again;
        err e;
        CHECK(compile(samples[i].kind, samples[i].text, &all, &g, &e) == 0);
        uint64_t cost = UINT64_MAX - 1 - work_left(&all);
        CHECK(cost > 500 && all.reason == 0);
        /* Hash tables keyed by address make the cost vary slightly between runs. */
        for (uint64_t budget = 0; budget < cost - cost / 16; budget += 1 + cost / 37) {
            struct work w = {.left = budget};
            int rc = compile(samples[i].kind, samples[i].text, &w, &again, &e);
            CHECK_MSG(rc == ERR_WORK && !again && e.msg[0] && e.code == rc && w.reason == rc,
                      "sample %zu, %llu of %llu units: %d %s", i, (unsigned long long)budget,
                      (unsigned long long)cost, rc, e.msg);
        }
        struct work enough = {.left = cost + cost / 16};
        CHECK(compile(samples[i].kind, samples[i].text, &enough, &again, &e) == 0);
        CHECK(again && grammar_bytes(again) == grammar_bytes(g));
        grammar_release(again);
        grammar_release(g);
    }
}

static void unwanted_compiling(void) {
    atomic_bool yes = true;
    for (size_t i = 0; i < N_SAMPLES; i++) {
        struct work late = {.left = UINT64_MAX, .deadline_ns = clock_now_ns()};
        struct work unwanted = {.left = UINT64_MAX, .cancelled = &yes};
        grammar *g;
        err e;
        CHECK(compile(samples[i].kind, samples[i].text, &late, &g, &e) == ERR_DEADLINE && !g);
        CHECK(compile(samples[i].kind, samples[i].text, &unwanted, &g, &e) == ERR_CANCELLED && !g);
    }
}

/* Small inputs with huge costs, which must be refused early. */
static void costly_inputs(void) {
    static const struct {
        enum notation kind;
        const char *text;
    } rows[] = {
        {REGEX, "(?=.*a.{12})(?=.*b.{12})(?=.*c.{10})(?=.*d.{9})(?=.*e.{9})(?=.*f.{9}).*"},
        {REGEX, "(a|b)*a(a|b){16}"},
        {REGEX, "(?:x{0,500}y?){0,100}"},
        {REGEX, "\\p{L}{3,2000}"},
        {SCHEMA, "{\"type\":\"string\",\"minLength\":50000,\"pattern\":\"a\"}"},
        {SCHEMA, "{\"type\":\"number\",\"multipleOf\":999.5,\"maximum\":1e300}"},
        {SCHEMA, "{\"patternProperties\":{\"a.{9}$\":{},\"b.{9}$\":{},\"c.{9}$\":{}}}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct work w = {.left = 100000};
        grammar *g;
        err e;
        int rc = compile(rows[i].kind, rows[i].text, &w, &g, &e);
        CHECK_MSG(rc == ERR_WORK && !g, "%s: %d %s", rows[i].text, rc, e.msg);
    }
    /* Regression: this examined each length up to four billion. */
    struct work w = {.left = 100000};
    grammar *g;
    err e;
    CHECK(compile(SCHEMA, "{\"type\":\"array\",\"minItems\":4294967290,\"contains\":{\"const\":1}}",
                  &w, &g, &e) == 0);
    grammar_release(g);
}

/* ---- budgets of masks ---- */

static void byte_token(const void *arg, int32_t id, struct grammar_token *out) {
    *out = (struct grammar_token){GRAMMAR_TOKEN_TEXT, (const char *)arg + id, 1};
    if (id == N_VOCAB - 1) *out = (struct grammar_token){.kind = GRAMMAR_TOKEN_END};
}

static bool has(const uint32_t *mask, uint32_t id) {
    return mask[id / 32] >> id % 32 & 1;
}

/* Doubles the budget until the call succeeds; until then the mask must be empty. */
static uint32_t patient_mask(grammar_matcher *m, uint32_t *mask) {
    uint32_t refused = 0;
    for (uint64_t units = 1;; units *= 2, refused++) {
        uint64_t before = grammar_matcher_spent(m);
        grammar_matcher_budget(m, units);
        grammar_matcher_mask(m, mask);
        if (!grammar_matcher_exhausted(m)) {
            CHECK(grammar_matcher_spent(m) - before <= units);
            return refused;
        }
        for (uint32_t i = 0; i < (N_VOCAB + 31) / 32; i++)
            CHECK(mask[i] == 0);
        CHECK(grammar_matcher_spent(m) - before > units);
    }
}

static uint32_t patient_accept(grammar_matcher *m, int32_t id, bool expected) {
    uint32_t refused = 0;
    for (uint64_t units = 0;; units = 2 * units + 1, refused++) {
        grammar_matcher_budget(m, units);
        bool went = grammar_matcher_accept(m, id);
        if (!grammar_matcher_exhausted(m)) {
            CHECK(went == expected);
            return refused;
        }
        CHECK(!went);
    }
}

static void patient_forced(grammar_matcher *m, const char *expected, size_t n) {
    for (uint64_t units = 0;; units = 2 * units + 1) {
        char bytes[64];
        grammar_matcher_budget(m, units);
        size_t n_bytes = grammar_matcher_forced(m, bytes, sizeof bytes);
        if (!grammar_matcher_exhausted(m)) {
            CHECK(n_bytes == n && memcmp(bytes, expected, n) == 0);
            return;
        }
        CHECK(n_bytes == 0);
    }
}

/* Two walks through one grammar, one of which is interrupted repeatedly. */
static void walk_with_budgets(const grammar *g, grammar_vocab *v, uint32_t seed) {
    grammar_matcher *free_one, *bound;
    uint32_t mask[(N_VOCAB + 31) / 32], other[(N_VOCAB + 31) / 32], n_refused = 0;
    struct rng random = {seed + 1};
    CHECK(grammar_matcher_new(g, v, &free_one, NULL) == 0);
    CHECK(grammar_matcher_new(g, v, &bound, NULL) == 0);
    for (int step = 0; step < 60; step++) {
        char bytes[64];
        grammar_matcher_mask(free_one, mask);
        CHECK(!grammar_matcher_exhausted(free_one));
        n_refused += patient_mask(bound, other);
        CHECK(memcmp(mask, other, sizeof mask) == 0);
        patient_forced(bound, bytes, grammar_matcher_forced(free_one, bytes, sizeof bytes));
        uint32_t id = rng_below(&random, N_VOCAB), tries = 0;
        while (!has(mask, id % N_VOCAB) && ++tries < N_VOCAB)
            id++;
        patient_accept(bound, (int32_t)((id + 1) % N_VOCAB), has(mask, (id + 1) % N_VOCAB));
        if (has(mask, (id + 1) % N_VOCAB)) {
            CHECK(grammar_matcher_accept(free_one, (int32_t)((id + 1) % N_VOCAB)));
            continue;
        }
        if (!has(mask, id % N_VOCAB)) break;
        n_refused += patient_accept(bound, (int32_t)(id % N_VOCAB), true);
        CHECK(grammar_matcher_accept(free_one, (int32_t)(id % N_VOCAB)));
        CHECK(grammar_matcher_may_end(free_one) == grammar_matcher_may_end(bound));
    }
    CHECK(n_refused > 10);
    grammar_matcher_free(free_one);
    grammar_matcher_free(bound);
}

static void budgets_of_masks(void) {
    char bytes[256];
    struct grammar_vocab_config config = {.n_vocab = N_VOCAB, .token = byte_token, .arg = bytes};
    grammar_vocab *v = NULL;
    for (int i = 0; i < 256; i++)
        bytes[i] = (char)i;
    CHECK(grammar_vocab_new(&config, &v, NULL) == 0);
    for (size_t i = 0; i < N_SAMPLES; i++) {
        grammar *g;
        err e;
        CHECK(compile(samples[i].kind, samples[i].text, NULL, &g, &e) == 0);
        for (uint32_t seed = 0; seed < 6; seed++)
            walk_with_budgets(g, v, seed);
        grammar_release(g);
    }
    grammar_vocab_free(v);
}

/* ---- unique keys and items ---- */

/* An object of 40 patterns: the cost of a mask must not grow with the members so far. */
static void keys_of_many_patterns(void) {
    char schema[8192];
    size_t n = (size_t)snprintf(schema, sizeof schema,
                                "{\"type\":\"object\",\"minProperties\":50,"
                                "\"additionalProperties\":false,\"patternProperties\":{");
    for (int i = 1; i <= 40; i++)
        n += (size_t)snprintf(schema + n, sizeof schema - n, "%s\"^[a-z]{%d,}$\":{\"const\":1}",
                              i > 1 ? "," : "", i);
    snprintf(schema + n, sizeof schema - n, "}}");
    char bytes[256];
    struct grammar_vocab_config config = {.n_vocab = N_VOCAB, .token = byte_token, .arg = bytes};
    grammar_vocab *v = NULL;
    grammar *g;
    grammar_matcher *m;
    err e;
    for (int i = 0; i < 256; i++)
        bytes[i] = (char)i;
    CHECK(grammar_vocab_new(&config, &v, NULL) == 0);
    CHECK_MSG(compile(SCHEMA, schema, NULL, &g, &e) == 0, "%s", e.msg);
    CHECK(grammar_matcher_new(g, v, &m, NULL) == 0);
    uint64_t most[2] = {0};
    for (int key = 0; key < 40; key++) {
        char text[32];
        snprintf(text, sizeof text, "%s\"%c%c%c\":1", key ? "," : "{", 'a' + key % 26,
                 'b' + key / 26, 'c');
        for (const char *c = text; *c; c++) {
            uint32_t mask[(N_VOCAB + 31) / 32];
            uint64_t before = grammar_matcher_spent(m);
            grammar_matcher_mask(m, mask);
            uint64_t cost = grammar_matcher_spent(m) - before, *top = &most[key >= 5];
            if (cost > *top) *top = cost;
            CHECK(has(mask, (uint8_t)*c) && grammar_matcher_accept(m, (uint8_t)*c));
        }
    }
    CHECK_MSG(most[1] <= 2 * most[0], "%llu units a mask at first, %llu later",
              (unsigned long long)most[0], (unsigned long long)most[1]);
    grammar_matcher_free(m);
    grammar_release(g);
    grammar_vocab_free(v);
}

int main(void) {
    RUN(mistakes_behind_full_lists);
    RUN(each_allocation_fails_once);
    RUN(budgets_of_compiling);
    RUN(unwanted_compiling);
    RUN(costly_inputs);
    RUN(budgets_of_masks);
    RUN(keys_of_many_patterns);
    return check_done();
}
