/* schema/alts.c - the alternatives of a set: its forms as automata, arrays and objects; and, from
 * these, whether two schemas may be valid at once. */
#include "core/grammar/schema/schema_int.h"

/* The scalars of all forms are merged into one automaton of texts and one of strings. */
struct making {
    struct s_ctx *c;
    uint32_t words, numbers, strings; /* automata; GRAMMAR_NONE: none yet */
    bool any_string, has_length;
    uint32_t min_len, max_len;
    const struct s_alt *alts;
};

static int add_alt(struct making *m, struct s_alt alt) {
    struct s_alt *a = s_new(m->c, 1, sizeof *a);
    if (!a) return ERR_NOMEM;
    *a = alt;
    a->next = m->alts;
    m->alts = a;
    return 0;
}

static int unite_dfas(struct s_ctx *c, uint32_t *all, uint32_t one) {
    if (dfa_is_empty(s_dfa(c, one)) || *all == one) return 0;
    if (*all != GRAMMAR_NONE) return s_combine(c, *all, one, DFA_OR, all);
    *all = one;
    return 0;
}

/* A range of lengths stays a pair of counts until it is combined with other strings: then it
 * becomes an automaton. */
static int flush_length(struct making *m) {
    uint32_t dfa;
    if (!m->has_length) return 0;
    m->has_length = false;
    int rc = s_lengths(m->c, m->min_len, m->max_len, &dfa);
    return rc ? rc : unite_dfas(m->c, &m->strings, dfa);
}

static int add_string(struct making *m, const struct s_form *f) {
    uint32_t dfa, min, max;
    int rc = s_string(m->c, f, &dfa, &min, &max);
    if (rc || m->any_string) return rc;
    if (dfa != GRAMMAR_NONE && dfa_is_empty(s_dfa(m->c, dfa))) return 0;
    if (dfa == GRAMMAR_NONE && min == 0 && max == GRAMMAR_UNLIMITED) {
        m->any_string = true;
        return 0;
    }
    bool first = m->strings == GRAMMAR_NONE && !m->has_length;
    if (dfa == GRAMMAR_NONE &&
        (first || (m->has_length && min <= m->min_len && max >= m->max_len))) {
        m->has_length = true;
        m->min_len = min;
        m->max_len = max;
        return 0;
    }
    if (dfa == GRAMMAR_NONE && m->has_length && min >= m->min_len && max <= m->max_len) return 0;
    rc = flush_length(m);
    if (!rc && dfa == GRAMMAR_NONE) rc = s_lengths(m->c, min, max, &dfa);
    return rc ? rc : unite_dfas(m->c, &m->strings, dfa);
}

static int add_form(struct making *m, const struct s_form *f) {
    int rc = 0;
    uint32_t dfa;
    if (f->types & S_WORDS) {
        rc = s_words(m->c, f->types & S_WORDS, &dfa);
        if (!rc) rc = unite_dfas(m->c, &m->words, dfa);
    }
    if (!rc && (f->types & S_NUMBER)) {
        rc = s_number(m->c, f, &dfa);
        if (!rc) rc = unite_dfas(m->c, &m->numbers, dfa);
    }
    if (!rc && (f->types & S_STRING)) rc = add_string(m, f);
    if (!rc && (f->types & S_ARRAY)) {
        struct s_alt alt = {.kind = G_ALT_ARRAY};
        rc = s_array(m->c, f, &alt.array);
        if (!rc && alt.array) rc = add_alt(m, alt);
    }
    if (!rc && (f->types & S_OBJECT)) {
        struct s_alt alt = {.kind = G_ALT_OBJECT};
        rc = s_object(m->c, f, s_strings_of, &alt.object);
        if (!rc && alt.object) rc = add_alt(m, alt);
    }
    return rc;
}

static int add_scalars(struct making *m) {
    struct s_alt string = {.kind = G_ALT_STRING, .dfa = GRAMMAR_NONE, .max_len = GRAMMAR_UNLIMITED};
    int rc = 0;
    if (!m->any_string && m->has_length && m->strings != GRAMMAR_NONE) rc = flush_length(m);
    if (m->any_string) {
        rc = add_alt(m, string);
    } else if (!rc && m->has_length) {
        string.min_len = m->min_len;
        string.max_len = m->max_len;
        rc = add_alt(m, string);
    } else if (!rc && m->strings != GRAMMAR_NONE) {
        string.dfa = m->strings;
        rc = add_alt(m, string);
    }
    if (!rc && m->numbers != GRAMMAR_NONE) rc = unite_dfas(m->c, &m->words, m->numbers);
    if (rc || m->words == GRAMMAR_NONE) return rc;
    return add_alt(m, (struct s_alt){.kind = G_ALT_TEXT, .dfa = m->words});
}

/* types: those that are asked for. */
int s_alternatives(struct s_ctx *c, uint32_t set, bool approx, uint32_t types,
                   const struct s_alt **alts) {
    struct making m = {
        .c = c, .words = GRAMMAR_NONE, .numbers = GRAMMAR_NONE, .strings = GRAMMAR_NONE};
    s_forms forms = {0};
    int rc = s_expand(c, set, approx, &forms);
    for (uint32_t i = 0; i < forms.n && !rc; i++) {
        forms.at[i].types &= types;
        rc = add_form(&m, &forms.at[i]);
    }
    if (!rc) rc = add_scalars(&m);
    *alts = m.alts;
    return rc;
}

/* ---- may two schemas be valid at once? ---- */

static int alt_may_be_valid(struct s_ctx *c, const struct s_alt *alt, int depth, bool *may) {
    int rc = 0;
    *may = true;
    if (depth == 0) return 0;
    if (alt->kind == G_ALT_ARRAY)
        for (uint32_t i = 0; i < alt->array->min && *may && !rc; i++) {
            bool more = i >= alt->array->n;
            rc = s_may_be_valid(c, more ? alt->array->more.value : alt->array->places[i].value,
                                S_ALL, depth - 1, may);
            if (more) break;
        }
    if (alt->kind == G_ALT_OBJECT)
        for (uint32_t i = 0; i < alt->object->n_properties && *may && !rc; i++)
            if (alt->object->properties[i].required)
                rc = s_may_be_valid(c, alt->object->properties[i].set, S_ALL, depth - 1, may);
    return rc;
}

int s_may_be_valid(struct s_ctx *c, uint32_t set, uint32_t types, int depth, bool *may) {
    const struct s_alt *alts = NULL;
    if (c->sets.at[set].overlap && c->sets.at[set].overlap_types == types) {
        *may = c->sets.at[set].overlap == 2;
        return 0;
    }
    *may = false;
    int rc = s_alternatives(c, set, true, types, &alts);
    for (const struct s_alt *a = alts; a && !*may && !rc; a = a->next)
        rc = alt_may_be_valid(c, a, depth, may);
    if (rc == ERR_UNSUPPORTED) { /* unknown counts as possible */
        if (c->e) err_clear(c->e);
        *may = true;
        rc = 0;
    }
    if (!rc && (!*may || depth == SCHEMA_OVERLAP_DEPTH)) {
        c->sets.at[set].overlap = *may ? 2 : 1;
        c->sets.at[set].overlap_types = (uint8_t)types;
    }
    return rc;
}

/* ---- strings ---- */

int s_strings_of(struct s_ctx *c, uint32_t set, uint32_t *dfa) {
    s_forms forms = {0};
    int rc = s_expand(c, set, false, &forms);
    if (!rc) rc = s_words(c, 0, dfa);
    for (uint32_t i = 0; i < forms.n && !rc; i++) {
        uint32_t one, min, max;
        if (!(forms.at[i].types & S_STRING)) continue;
        rc = s_string(c, &forms.at[i], &one, &min, &max);
        if (!rc && one == GRAMMAR_NONE) rc = s_lengths(c, min, max, &one);
        if (!rc) rc = s_combine(c, *dfa, one, DFA_OR, dfa);
    }
    return rc;
}
