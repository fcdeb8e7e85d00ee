/* schema/text.c - a form's constraints on numbers and strings as automata. Each automaton is made
 * once: a memo finds it by a key that describes how it was made. */
#include "core/grammar/schema/schema_int.h"

#include "core/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_MAX_BYTES = 16 << 20, NUMBER_BYTES = 32 };

struct s_memo {
    const char *key;
    size_t n;
    uint32_t dfa;
    const struct s_memo *next;
};

struct s_memo *s_memos_new(struct s_ctx *c) {
    return s_new(c, S_SET_BUCKETS, sizeof(struct s_memo));
}

/* ---- automata ---- */

static int spend_states(struct s_ctx *c, uint64_t n) {
    c->g->dfa_work += n;
    if (c->g->dfa_work <= SCHEMA_MAX_DFA_WORK) return 0;
    return s_fail(
        c, ERR_TOO_LONG, 0,
        "its patterns, lengths and enums are too large together; use fewer or smaller ones");
}

int s_dfa_add(struct s_ctx *c, struct dfa *d, uint32_t *dfa) {
    *dfa = c->dfas.n;
    int rc = spend_states(c, d->cost);
    if (!rc) rc = s_push(c, &c->dfa_index, GRAMMAR_NONE);
    if (!rc) rc = s_push(c, &c->dfas, *d);
    if (rc) dfa_fini(d);
    return rc;
}

static struct s_memo *bucket_of(struct s_ctx *c, const str *key) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < key->len; i++)
        h = (h ^ (uint8_t)key->data[i]) * 0x100000001b3u;
    return &c->memos[(h ^ h >> 32) % S_SET_BUCKETS];
}

static bool recall_dfa(struct s_ctx *c, const str *key, uint32_t *dfa) {
    for (const struct s_memo *m = bucket_of(c, key)->next; m; m = m->next)
        if (m->n == key->len && memcmp(m->key, key->data, m->n) == 0) {
            *dfa = m->dfa;
            return true;
        }
    return false;
}

static int remember_dfa(struct s_ctx *c, const str *key, uint32_t dfa) {
    struct s_memo *m = s_new(c, 1, sizeof *m), *bucket = bucket_of(c, key);
    char *copy = key->failed ? NULL : arena_strndup(c->mem, key->data, key->len);
    if (!m || !copy) return s_full(c);
    *m = (struct s_memo){copy, key->len, dfa, bucket->next};
    bucket->next = m;
    return 0;
}

int s_combine(struct s_ctx *c, uint32_t a, uint32_t b, enum dfa_op op, uint32_t *dfa) {
    struct dfa out;
    str key;
    str_init(&key, KEY_MAX_BYTES);
    str_addf(&key, "%c%u,%u", "&|-"[op], a, b);
    int rc = 0;
    if (!recall_dfa(c, &key, dfa)) {
        rc = dfa_combine(s_dfa(c, a), s_dfa(c, b), op, c->g->work, &out, c->e);
        if (!rc) rc = s_dfa_add(c, &out, dfa);
        if (!rc) rc = remember_dfa(c, &key, *dfa);
    }
    str_fini(&key);
    return rc;
}

/* Makes an automaton from arg. */
typedef int s_maker(void *arg, struct work *w, struct dfa *out, err *e);
static int make_once(struct s_ctx *c, const str *key, s_maker *maker, void *arg, uint32_t *dfa) {
    struct dfa out;
    if (recall_dfa(c, key, dfa)) return 0;
    int rc = maker(arg, c->g->work, &out, c->e);
    if (!rc) rc = s_dfa_add(c, &out, dfa);
    return rc ? rc : remember_dfa(c, key, *dfa);
}

struct lengths {
    uint32_t min, max;
};
static int make_length(void *arg, struct work *w, struct dfa *out, err *e) {
    const struct lengths *l = arg;
    return dfa_from_length(l->min, l->max, w, out, e);
}

int s_lengths(struct s_ctx *c, uint32_t min, uint32_t max, uint32_t *dfa) {
    struct lengths l = {min, max};
    str key;
    str_init(&key, KEY_MAX_BYTES);
    str_addf(&key, "l%u,%u", min, max);
    int rc = make_once(c, &key, make_length, &l, dfa);
    str_fini(&key);
    return rc;
}

int s_all_strings(struct s_ctx *c, uint32_t *dfa) {
    return s_lengths(c, 0, GRAMMAR_UNLIMITED, dfa);
}

static int make_pattern(void *arg, struct work *w, struct dfa *out, err *e) {
    return dfa_from_regex(arg, DFA_REGEX_SEARCH, w, out, e);
}

int s_pattern(struct s_ctx *c, const char *pattern, uint32_t node, uint32_t *dfa) {
    str key;
    str_init(&key, KEY_MAX_BYTES);
    str_addf(&key, "p%s", pattern);
    int rc = make_once(c, &key, make_pattern, (void *)(uintptr_t)pattern, dfa);
    str_fini(&key);
    return rc ? s_fail_at(c, rc, node) : 0;
}

/* ---- words: enum, const, true, false, null ---- */

struct words {
    struct dfa_word *at;
    size_t n;
};
static int make_words(void *arg, struct work *w, struct dfa *out, err *e) {
    const struct words *list = arg;
    return dfa_from_words(list->at, list->n, w, out, e);
}

static int make_word_list(struct s_ctx *c, struct words w, uint32_t *dfa) {
    str key;
    str_init(&key, KEY_MAX_BYTES);
    str_add_char(&key, 'w');
    for (size_t i = 0; i < w.n; i++)
        str_add_n(&key, w.at[i].bytes, w.at[i].n + 1); /* with its NUL */
    int rc = make_once(c, &key, make_words, &w, dfa);
    str_fini(&key);
    return rc;
}

int s_words(struct s_ctx *c, uint32_t mask, uint32_t *dfa) {
    struct dfa_word list[3];
    struct words w = {list, 0};
    if (mask & S_NULL) list[w.n++] = (struct dfa_word){"null", 4};
    if (mask & S_FALSE) list[w.n++] = (struct dfa_word){"false", 5};
    if (mask & S_TRUE) list[w.n++] = (struct dfa_word){"true", 4};
    return make_word_list(c, w, dfa);
}

/* The strings of an enum. */
static int enum_strings(struct s_ctx *c, const cJSON *list, uint32_t *dfa) {
    struct words w = {NULL, 0};
    w.at = s_new(c, (uint64_t)cJSON_GetArraySize(list) + 1, sizeof *w.at);
    if (!w.at) return ERR_NOMEM;
    for (const cJSON *p = list->child; p; p = p->next)
        if (cJSON_IsString(p))
            w.at[w.n++] = (struct dfa_word){p->valuestring, strlen(p->valuestring)};
    return make_word_list(c, w, dfa);
}

static int const_string(struct s_ctx *c, const cJSON *value, uint32_t *dfa) {
    struct dfa_word word = {value->valuestring, 0};
    struct words w = {&word, cJSON_IsString(value)};
    if (w.n) word.n = strlen(word.bytes);
    return make_word_list(c, w, dfa);
}

/* ---- numbers ---- */

static const char *number_literal(const cJSON *number, char *text) {
    if (number->valuestring) return number->valuestring;
    snprintf(text, NUMBER_BYTES, "%.17g", number->valuedouble);
    return text;
}

static int make_number(void *arg, struct work *w, struct dfa *out, err *e) {
    return dfa_from_number(arg, w, out, e);
}

static int make_bounded_number(struct s_ctx *c, const struct dfa_number *n, uint32_t node,
                               uint32_t *dfa) {
    str key;
    str_init(&key, KEY_MAX_BYTES);
    str_addf(&key, "n%d%d%d%d,%s,%s,%s", n->integer, n->plain, n->exclusive_min, n->exclusive_max,
             n->min ? n->min : "", n->max ? n->max : "", n->multiple_of ? n->multiple_of : "");
    struct dfa_number copy = *n;
    int rc = make_once(c, &key, make_number, &copy, dfa);
    str_fini(&key);
    return rc ? s_fail_at(c, rc, node) : 0;
}

/* A value that the schema writes without fraction and exponent is written so in the text too,
 * unless integers are the draft's. */
static int number_equal(struct s_ctx *c, const cJSON *value, uint32_t *dfa) {
    char text[NUMBER_BYTES];
    const char *v = number_literal(value, text);
    const struct dfa_number one = {
        .plain = !c->draft_integers && !strpbrk(v, ".eE"), .min = v, .max = v};
    return make_bounded_number(c, &one, s_node_of(c, value), dfa);
}

/* Numbers below and above v. */
static int number_beside(struct s_ctx *c, const char *v, uint32_t node, uint32_t *dfa) {
    uint32_t below, above;
    int rc =
        make_bounded_number(c, &(struct dfa_number){.max = v, .exclusive_max = true}, node, &below);
    if (!rc)
        rc = make_bounded_number(c, &(struct dfa_number){.min = v, .exclusive_min = true}, node,
                                 &above);
    return rc ? rc : s_combine(c, below, above, DFA_OR, dfa);
}

/* The numbers from which integers or multiples can be subtracted, although the automata of those
 * know no exponents: numbers without exponent, and (small) those between -1 and 1 with a negative
 * one, as programs write them. */
static int number_plain(struct s_ctx *c, bool small, uint32_t node, uint32_t *dfa) {
    return s_pattern(c, small ? "^-?([0-9.]+|[1-9](\\.[0-9]+)?[eE]-0*[1-9][0-9]*)$" : "^-?[0-9.]+$",
                     node, dfa);
}

/* Union of n numbers, by halves so that no automaton is copied more than log n times. */
static int numbers_in(struct s_ctx *c, const cJSON *const *list, uint32_t n, uint32_t *dfa) {
    uint32_t low, high;
    if (n == 0) return make_word_list(c, (struct words){NULL, 0}, dfa);
    if (n == 1) return number_equal(c, list[0], dfa);
    int rc = numbers_in(c, list, n / 2, &low);
    if (!rc) rc = numbers_in(c, list + n / 2, n - n / 2, &high);
    return rc ? rc : s_combine(c, low, high, DFA_OR, dfa);
}

static int numbers_of(struct s_ctx *c, const cJSON *enumeration, uint32_t *dfa) {
    uint32_t n = 0;
    const cJSON **list =
        s_new(c, (uint64_t)cJSON_GetArraySize(enumeration) + 1, sizeof(const cJSON *));
    if (!list) return ERR_NOMEM;
    for (const cJSON *p = enumeration->child; p; p = p->next)
        if (cJSON_IsNumber(p)) list[n++] = p;
    return numbers_in(c, list, n, dfa);
}

/* The constraints on a number. spec holds the first of each kind, dfa the intersection of the rest.
 */
struct numbers {
    struct s_ctx *c;
    uint32_t dfa; /* GRAMMAR_NONE: all so far */
    struct dfa_number spec;
    uint32_t node;
    char text[3][NUMBER_BYTES];
};

static int intersect_dfas(struct s_ctx *c, uint32_t *all, uint32_t one) {
    if (*all != GRAMMAR_NONE) return s_combine(c, *all, one, DFA_AND, all);
    *all = one;
    return 0;
}

static int number_bound(struct numbers *n, const struct s_fact *f) {
    bool upper = f->kind == S_F_MAX || f->kind == S_F_EXCLUSIVE_MAX;
    bool open = f->kind == S_F_EXCLUSIVE_MIN || f->kind == S_F_EXCLUSIVE_MAX;
    const cJSON *at = s_at(n->c, f->node);
    n->node = f->node;
    if (upper ? n->spec.max != NULL : n->spec.min != NULL) {
        char text[NUMBER_BYTES];
        const char *v = number_literal(at, text);
        struct dfa_number more = {.exclusive_min = open && !upper,
                                  .exclusive_max = open && upper,
                                  .min = upper ? NULL : v,
                                  .max = upper ? v : NULL};
        uint32_t dfa;
        int rc = make_bounded_number(n->c, &more, f->node, &dfa);
        return rc ? rc : intersect_dfas(n->c, &n->dfa, dfa);
    }
    const char *v = number_literal(at, n->text[upper]);
    if (upper) {
        n->spec.max = v;
        n->spec.exclusive_max = open;
    } else {
        n->spec.min = v;
        n->spec.exclusive_min = open;
    }
    return 0;
}

static int number_factor(struct numbers *n, const struct s_fact *f) {
    const cJSON *at = s_at(n->c, f->node);
    if (!n->spec.multiple_of) {
        n->node = f->node;
        n->spec.multiple_of = number_literal(at, n->text[2]);
        return 0;
    }
    char text[NUMBER_BYTES];
    uint32_t dfa;
    int rc = make_bounded_number(
        n->c, &(struct dfa_number){.multiple_of = number_literal(at, text)}, f->node, &dfa);
    return rc ? rc : intersect_dfas(n->c, &n->dfa, dfa);
}

static int number_member(struct numbers *n, const struct s_fact *f) {
    const cJSON *at = s_at(n->c, f->node);
    uint32_t dfa;
    int rc = f->kind == S_F_ENUM  ? numbers_of(n->c, at, &dfa)
             : cJSON_IsNumber(at) ? number_equal(n->c, at, &dfa)
                                  : make_word_list(n->c, (struct words){NULL, 0}, &dfa);
    return rc ? rc : intersect_dfas(n->c, &n->dfa, dfa);
}

static int number_positive(struct numbers *n, const struct s_fact *f) {
    switch (f->kind) {
    case S_F_INTEGER:
        n->spec.integer = true;
        n->spec.plain = !n->c->draft_integers;
        n->node = f->node;
        return 0;
    case S_F_MIN:
    case S_F_MAX:
    case S_F_EXCLUSIVE_MIN:
    case S_F_EXCLUSIVE_MAX:
        return number_bound(n, f);
    case S_F_MULTIPLE:
        return number_factor(n, f);
    case S_F_ENUM:
    case S_F_CONST:
        return number_member(n, f);
    default:
        return 0;
    }
}

static int number_negative(struct numbers *n, const struct s_fact *f) {
    const cJSON *at = s_at(n->c, f->node);
    char text[NUMBER_BYTES];
    uint32_t dfa;
    int rc;
    if (f->kind == S_F_CONST) {
        if (!cJSON_IsNumber(at)) return 0;
        rc = number_beside(n->c, number_literal(at, text), f->node, &dfa);
        return rc ? rc : s_combine(n->c, n->dfa, dfa, DFA_AND, &n->dfa);
    }
    struct dfa_number out = {.integer = f->kind == S_F_INTEGER};
    if (f->kind == S_F_MULTIPLE)
        out.multiple_of = number_literal(at, text);
    else if (f->kind != S_F_INTEGER)
        return 0;
    uint32_t plain;
    rc = number_plain(n->c, out.integer || at->valuedouble >= 1, f->node, &plain);
    if (!rc) rc = make_bounded_number(n->c, &out, f->node, &dfa);
    if (!rc) rc = s_combine(n->c, n->dfa, plain, DFA_AND, &n->dfa);
    return rc ? rc : s_combine(n->c, n->dfa, dfa, DFA_MINUS, &n->dfa);
}

int s_number(struct s_ctx *c, const struct s_form *form, uint32_t *dfa) {
    struct numbers n = {.c = c, .dfa = GRAMMAR_NONE};
    int rc = 0;
    for (const struct s_fact *f = form->facts; f && !rc; f = f->next)
        if (!f->negated) rc = number_positive(&n, f);
    const struct dfa_number *s = &n.spec;
    if (!rc && (n.dfa == GRAMMAR_NONE || s->integer || s->min || s->max || s->multiple_of)) {
        uint32_t bounded;
        rc = make_bounded_number(c, s, n.node, &bounded);
        if (!rc) rc = intersect_dfas(c, &n.dfa, bounded);
    }
    for (const struct s_fact *f = form->facts; f && !rc; f = f->next)
        if (f->negated) rc = number_negative(&n, f);
    *dfa = n.dfa;
    return rc == ERR_TOO_LONG ? s_fail_at(c, rc, n.node) : rc;
}

/* ---- strings ---- */

/* Formats for storage or display: they exclude no text. */
static bool is_annotation(const char *format) {
    static const char *const names[] = {"int8",     "int16",    "int32",  "int64",  "uint8",
                                        "uint16",   "uint32",   "uint64", "float",  "double",
                                        "decimal",  "password", "byte",   "binary", "textarea",
                                        "markdown", "html",     "color",  "text"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(format, names[i]) == 0) return true;
    return false;
}

static int make_format(void *arg, struct work *w, struct dfa *out, err *e) {
    const char *name = arg;
    int rc = dfa_from_format(name, w, out, e);
    if (rc == ERR_NOT_FOUND && is_annotation(name)) {
        err_clear(e);
        rc = dfa_from_length(0, GRAMMAR_UNLIMITED, w, out, e);
    }
    return rc;
}

static int make_format_strings(struct s_ctx *c, const cJSON *at, uint32_t node, uint32_t *dfa) {
    const char *name = at->valuestring;
    str key;
    if (strcmp(name, "url") == 0) name = "uri";
    str_init(&key, KEY_MAX_BYTES);
    str_addf(&key, "f%s", name);
    int rc = make_once(c, &key, make_format, (void *)(uintptr_t)name, dfa);
    str_fini(&key);
    if (rc == ERR_NOT_FOUND)
        return s_fail(c, ERR_UNSUPPORTED, node, "unknown format (%.40s): use pattern, or omit it",
                      at->valuestring);
    return rc ? s_fail_at(c, rc, node) : 0;
}

/* The strings that a fact allows; GRAMMAR_NONE: it does not constrain strings. */
static int fact_strings(struct s_ctx *c, const struct s_fact *f, uint32_t *dfa) {
    const cJSON *at = s_at(c, f->node);
    *dfa = GRAMMAR_NONE;
    switch (f->kind) {
    case S_F_PATTERN:
        return s_pattern(c, at->valuestring, f->node, dfa);
    case S_F_FORMAT:
        return make_format_strings(c, at, f->node, dfa);
    case S_F_ENUM:
        return enum_strings(c, at, dfa);
    case S_F_CONST:
        return const_string(c, at, dfa);
    default:
        return 0;
    }
}

static int bound_length(struct s_ctx *c, uint32_t min, uint32_t max, uint32_t *dfa) {
    uint32_t lengths;
    if (min == 0 && max == GRAMMAR_UNLIMITED) return 0;
    int rc = s_lengths(c, min, max, &lengths);
    return rc ? rc : s_combine(c, *dfa, lengths, DFA_AND, dfa);
}

int s_string(struct s_ctx *c, const struct s_form *form, uint32_t *dfa, uint32_t *min,
             uint32_t *max) {
    uint32_t one, node = 0;
    int rc = 0;
    *dfa = GRAMMAR_NONE;
    *min = 0;
    *max = GRAMMAR_UNLIMITED;
    for (const struct s_fact *f = form->facts; f && !rc; f = f->next) {
        if (f->kind == S_F_LENGTH) {
            node = f->node;
            if (f->n > *min) *min = f->n;
            if (f->m < *max) *max = f->m;
        } else if (!f->negated) {
            rc = fact_strings(c, f, &one);
            if (!rc && one != GRAMMAR_NONE) rc = intersect_dfas(c, dfa, one);
        }
    }
    for (const struct s_fact *f = form->facts; f && !rc; f = f->next) {
        if (!f->negated) continue;
        rc = fact_strings(c, f, &one);
        if (rc || one == GRAMMAR_NONE) continue;
        if (*dfa == GRAMMAR_NONE) rc = s_all_strings(c, dfa);
        if (!rc) rc = s_combine(c, *dfa, one, DFA_MINUS, dfa);
    }
    if (!rc && *min > *max) return make_word_list(c, (struct words){NULL, 0}, dfa);
    if (!rc && *dfa != GRAMMAR_NONE) rc = bound_length(c, *min, *max, dfa);
    return rc && (rc == ERR_TOO_LONG || rc == ERR_NOMEM) ? s_fail_at(c, rc, node) : rc;
}
