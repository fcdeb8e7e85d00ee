/* fuzz_grammar.c - a letter that says what follows, a notation, and after a NUL a text: 'r' a
 * regular expression, 'n' the bounds of numbers, 'g' a grammar in GBNF, 's' a JSON Schema. It is
 * refused in words, or what is made of it keeps what grammar_int.h promises. */
#include "core/grammar/grammar_int.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MAX_BYTES = 1 << 12 };

static void check_refusal(int rc, const err *e) {
    if (rc > 0 || e->code != rc || !e->msg[0]) abort();
}

/* From every state but the dead one some text is complete. */
static void check_trimmed(const struct dfa *d) {
    uint8_t *good = calloc(d->n_states, 1);
    bool more = true;
    if (!good) return;
    while (more) {
        more = false;
        for (uint32_t s = d->n_states; s-- > 1;) {
            bool is = d->accept[s];
            for (uint32_t c = 0; c < d->n_classes && !is; c++)
                is = good[d->next[(size_t)s * d->n_classes + c]];
            more = more || (is && !good[s]);
            good[s] = is;
        }
    }
    for (uint32_t s = 1; s < d->n_states; s++)
        if (!good[s]) abort();
    if (d->start >= d->n_states || d->accept[0]) abort();
    free(good);
}

static void try_regex(const char *pattern, const char *text, size_t n) {
    struct dfa whole = {0}, found = {0}, missed = {0};
    err e = {0};
    int rc = dfa_from_regex(pattern, 0, NULL, &whole, &e);
    if (rc) {
        check_refusal(rc, &e);
        return;
    }
    if (whole.n_states < 2000) check_trimmed(&whole);
    dfa_accepts(&whole, text, n);
    /* What is matched as a whole is found. */
    rc = dfa_from_regex(pattern, DFA_REGEX_SEARCH, NULL, &found, &e);
    if (!rc) rc = dfa_combine(&whole, &found, DFA_MINUS, NULL, &missed, &e);
    if (rc)
        check_refusal(rc, &e);
    else if (!dfa_is_empty(&missed) || dfa_count(&missed, 1) != 0)
        abort();
    dfa_fini(&whole);
    dfa_fini(&found);
    dfa_fini(&missed);
}

/* The notation is a bound, the text the other and a step: between them they name every field. */
static void try_number(const char *bound, const char *other, size_t n) {
    const struct dfa_number specs[] = {{.min = bound, .max = other},
                                       {.integer = true, .min = bound, .exclusive_min = true},
                                       {.multiple_of = bound, .max = n ? other : NULL}};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        struct dfa d = {0};
        err e = {0};
        int rc = dfa_from_number(&specs[i], NULL, &d, &e);
        if (rc) {
            check_refusal(rc, &e);
            continue;
        }
        if (d.n_states < 2000) check_trimmed(&d);
        dfa_fini(&d);
    }
}

static void try_nodes(char kind, const char *notation, size_t n) {
    grammar_builder *b = grammar_builder_new();
    cJSON *json = kind == 's' ? cJSON_ParseWithLength(notation, n) : NULL;
    grammar *g = NULL;
    err e = {0};
    if (b && (kind == 'g' || json)) {
        struct grammar_schema schema = {.schema = json};
        grammar_node root = kind == 'g' ? grammar_gbnf(b, notation, n) : grammar_json(b, &schema);
        int rc = grammar_finish(b, root, &g, &e);
        if (rc) check_refusal(rc, &e);
        if ((rc == 0) != (g != NULL)) abort();
    }
    grammar_release(g);
    cJSON_Delete(json);
    grammar_builder_free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    if (n < 1 || n > MAX_BYTES) return 0;
    char *copy = calloc(1, n + 1);
    if (!copy) return 0;
    memcpy(copy, bytes + 1, n - 1);
    size_t length = strlen(copy), rest = n - 1 > length ? n - 1 - length - 1 : 0;
    const char *text = n - 1 > length ? copy + length + 1 : copy + length;
    if (bytes[0] == 'r')
        try_regex(copy, text, rest);
    else if (bytes[0] == 'n')
        try_number(copy, text, rest);
    else if (bytes[0] == 'g' || bytes[0] == 's')
        try_nodes((char)bytes[0], copy, n - 1);
    free(copy);
    return 0;
}
