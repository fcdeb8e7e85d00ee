/* grammar_bench.h - `test_grammar_matcher bench`: the cost of a mask, as a Markdown table, in
 * microseconds of processor time: over the tokens of sample texts, without a cache ("cold") and
 * with one filled by the same text ("warm"). Not a test: asserts nothing about time. */
#ifndef INFERD_TESTS_GRAMMAR_BENCH_H
#define INFERD_TESTS_GRAMMAR_BENCH_H

#include "core/base/mem.h"
#include "core/grammar/grammar.h"
#include "core/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GRAMMAR_BENCH_TOKENIZERS "../shared/data/tokenizers/hf/"

enum { GRAMMAR_BENCH_MAX = 4096, GRAMMAR_BENCH_CACHE = 256 << 20 };

struct grammar_bench_case {
    const char *name, *schema, *text; /* schema NULL: a regular expression, or until */
    const char *pattern;              /* NULL: text until a stop, then the stop */
};
static const struct grammar_bench_case grammar_bench_cases[] = {
    {"tool arguments",
     "{\"type\":\"object\",\"properties\":{\"location\":{\"type\":\"string\"},\"unit\":{\"enum\":"
     "[\"celsius\",\"fahrenheit\"]},\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":14}},"
     "\"required\":[\"location\",\"unit\"],\"additionalProperties\":false}",
     "{\"location\": \"San Francisco, California\", \"unit\": \"celsius\", \"days\": 12}", NULL},
    {"person",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"minLength\":1,"
     "\"maxLength\":40},\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":150},\"email\":{"
     "\"type\":\"string\",\"pattern\":\"^[a-z0-9.]+@[a-z0-9.]+$\"},\"address\":{\"type\":"
     "\"object\",\"properties\":{\"street\":{\"type\":\"string\"},\"zip\":{\"type\":\"string\","
     "\"pattern\":\"^[0-9]{5}$\"}},\"required\":[\"street\",\"zip\"]},\"born\":{\"type\":"
     "\"string\",\"format\":\"date\"}},\"required\":[\"name\",\"age\"]}",
     "{\"name\": \"Ada \\\"Countess\\\" Lovelace\", \"age\": 36, \"email\": "
     "\"ada.lovelace@analytical.engine.org\", \"address\": {\"street\": \"12 St James's "
     "Square\", \"zip\": \"12345\", \"floor\": 3}, \"born\": \"1815-12-10\", \"nick name\": "
     "null}",
     NULL},
    {"nested arrays, enums",
     "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"kind\":{\"enum\":["
     "\"point\",\"line\",\"polygon\"]},\"at\":{\"type\":\"array\",\"items\":{\"type\":\"array\","
     "\"items\":{\"type\":\"number\"},\"minItems\":2,\"maxItems\":3}},\"tags\":{\"type\":"
     "\"array\",\"items\":{\"enum\":[\"red\",\"green\",\"blue\"]},\"uniqueItems\":true}},"
     "\"required\":[\"kind\",\"at\"],\"additionalProperties\":false},\"maxItems\":10}",
     "[{\"kind\": \"point\", \"at\": [[1.25, -3e-05]]}, {\"kind\": \"line\", \"at\": [[0, 0], "
     "[17, 4, 1024]], \"tags\": [\"red\", \"blue\"]}]",
     NULL},
    {"GitHub-like",
     "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"integer\"},\"title\":{\"type\":"
     "\"string\",\"maxLength\":256},\"state\":{\"enum\":[\"open\",\"closed\"]},\"labels\":{"
     "\"type\":\"array\",\"items\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"object\","
     "\"properties\":{\"name\":{\"type\":\"string\"},\"color\":{\"type\":[\"string\",\"null\"]}}}"
     "]}},\"user\":{\"$ref\":\"#/$defs/user\"},\"assignees\":{\"type\":\"array\",\"items\":{"
     "\"$ref\":\"#/$defs/user\"}},\"closed_at\":{\"type\":[\"string\",\"null\"]},\"body\":{"
     "\"type\":\"string\"}},\"required\":[\"id\",\"title\",\"state\"],\"$defs\":{\"user\":{"
     "\"type\":\"object\",\"properties\":{\"login\":{\"type\":\"string\"},\"site_admin\":{"
     "\"type\":\"boolean\"}},\"required\":[\"login\"]}}}",
     "{\"id\": 1347, \"title\": \"Found a bug\", \"state\": \"open\", \"labels\": [\"bug\", "
     "{\"name\": \"needs triage\", \"color\": null}], \"user\": {\"login\": \"octocat\", "
     "\"site_admin\": false}, \"assignees\": [{\"login\": \"hubot\"}], \"closed_at\": null, "
     "\"body\": \"I'm having a problem with this.\\nIt does not work \\u2014 na\xc3\xafve "
     "\xe4\xbd\xa0\xe5\xa5\xbd!\", \"milestone\": {\"number\": 1}}",
     NULL},
    {"json_object", "{\"type\":\"object\"}",
     "{\"a\": [1, 2.5, {\"b\": null, \"text\": \"The quick brown fox, he said: \\\"jump\\\".\"}], "
     "\"list\": [true, false, \"x\"], \"nested\": {\"deep\": {\"deeper\": [[[]]]}}}",
     NULL},
    {"regex [A-Za-z0-9_-]{1,64}", NULL, "some_identifier-with-42-parts_AndMore",
     "[A-Za-z0-9_-]{1,64}"},
    {"text until <tool_call>", NULL,
     "I will look that up: a <b>bold</b> move, 3 < 4, <tool ... <tool_call>", NULL},
};
enum { GRAMMAR_BENCH_CASES = sizeof grammar_bench_cases / sizeof grammar_bench_cases[0] };

static void grammar_bench_token(const void *arg, int32_t id, struct grammar_token *out) {
    const tokenizer *t = arg;
    *out = (struct grammar_token){.kind = GRAMMAR_TOKEN_TEXT};
    out->bytes = tokenizer_token_bytes(t, id, false, &out->n);
    if (tokenizer_is_eog(t, id)) {
        out->kind = GRAMMAR_TOKEN_END;
    } else if (tokenizer_is_control(t, id)) {
        out->kind = GRAMMAR_TOKEN_CONTROL;
        out->bytes = tokenizer_token_text(t, id, &out->n);
    }
}

static grammar *grammar_bench_grammar(const struct grammar_bench_case *c, err *e) {
    static const char *const stops[] = {"<tool_call>"};
    grammar_builder *b = grammar_builder_new();
    cJSON *schema = c->schema ? cJSON_Parse(c->schema) : NULL;
    grammar_node root;
    grammar *g = NULL;
    if (c->schema) {
        struct grammar_schema s = {.schema = schema};
        root = grammar_json(b, &s);
    } else if (c->pattern) {
        root = grammar_regex(b, c->pattern);
    } else {
        grammar_node both[] = {grammar_until(b, stops, 1),
                               grammar_text(b, stops[0], strlen(stops[0]))};
        root = grammar_seq(b, both, 2);
    }
    grammar_finish(b, root, &g, e);
    grammar_builder_free(b);
    cJSON_Delete(schema);
    return g;
}

static double grammar_bench_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int grammar_bench_order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One pass over the text's tokens. Returns the number of timed masks. */
static size_t grammar_bench_pass(const grammar *g, grammar_vocab *v, const int32_t *ids, size_t n,
                                 double *us, size_t n_us) {
    grammar_matcher *m;
    static uint32_t mask[1 << 14];
    if (grammar_matcher_new(g, v, &m, NULL)) return n_us;
    for (size_t i = 0; i <= n && n_us < GRAMMAR_BENCH_MAX; i++) {
        double from = grammar_bench_us();
        grammar_matcher_mask(m, mask);
        us[n_us++] = grammar_bench_us() - from;
        if (i < n && !grammar_matcher_accept(m, ids[i])) {
            printf("(refused at token %zu) ", i);
            break;
        }
    }
    grammar_matcher_free(m);
    return n_us;
}

static void grammar_bench_row(const struct grammar_bench_case *c, const tokenizer *t,
                              grammar_vocab *const v[2]) {
    static double us[GRAMMAR_BENCH_MAX];
    err e = {0};
    double from = grammar_bench_us();
    grammar *g = grammar_bench_grammar(c, &e);
    double compiled = grammar_bench_us() - from;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    if (!g || tokenizer_encode(t, c->text, strlen(c->text), 0, 4096, &ids, &n_ids, &e)) {
        printf("| %s | %s |\n", c->name, e.msg);
        grammar_release(g);
        return;
    }
    printf("| %s | %.0f |", c->name, compiled);
    for (int warm = 0; warm < 2; warm++) {
        size_t n = 0;
        if (warm) grammar_bench_pass(g, v[1], ids, n_ids, us, 0);
        for (int round = 0; round < 5; round++)
            n = grammar_bench_pass(g, v[warm], ids, n_ids, us, n);
        qsort(us, n, sizeof *us, grammar_bench_order);
        printf(" %.0f | %.0f | %.0f |", us[n / 2], us[n - 1 - n / 100], us[n - 1]);
    }
    printf("\n");
    free(ids);
    grammar_release(g);
}

static int grammar_bench(void) {
    static const char *const names[] = {"qwen3", "cl100k_base"};
    for (int i = 0; i < 2; i++) {
        char path[256];
        tokenizer *t;
        grammar_vocab *v[2] = {NULL, NULL};
        err e = {0};
        snprintf(path, sizeof path, GRAMMAR_BENCH_TOKENIZERS "%s", names[i]);
        if (tokenizer_open(path, &t, &e)) {
            printf("%s: %s\n", path, e.msg);
            continue;
        }
        double from = grammar_bench_us();
        for (int warm = 0; warm < 2; warm++) {
            struct grammar_vocab_config config = {.n_vocab = (uint32_t)tokenizer_n_vocab(t),
                                                  .token = grammar_bench_token,
                                                  .arg = t,
                                                  .cache_bytes = warm ? GRAMMAR_BENCH_CACHE : 0};
            if (grammar_vocab_new(&config, &v[warm], &e)) return 1;
        }
        printf("\n%s: %d tokens, sorted in %.0f ms\n\n", names[i], tokenizer_n_vocab(t),
               (grammar_bench_us() - from) / 2e3);
        printf("| microseconds | compile | cold p50 | p99 | max | warm p50 | p99 | max "
               "|\n|---|---:|---:|---:|---:|---:|---:|---:|\n");
        for (int c = 0; c < GRAMMAR_BENCH_CASES; c++)
            grammar_bench_row(&grammar_bench_cases[c], t, v);
        grammar_vocab_free(v[0]);
        grammar_vocab_free(v[1]);
        tokenizer_close(t);
    }
    return 0;
}

#endif
