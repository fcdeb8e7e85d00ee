/* schema/object.c - a form's constraints on objects: declared names, and classes of all other names
 * by the patterns that they match, each with the set that the member's value must satisfy. The
 * classes are disjoint from each other and from the declared names. */
#include "core/grammar/schema/schema_int.h"

#include <string.h>

enum { MAX_PATTERNS = 64, MAX_CLASSES = 256 };

struct name {
    const char *text;
    bool required, forbidden;
};
/* properties, patternProperties and additionalProperties of one schema. */
struct group {
    uint32_t scope;
    const cJSON *properties, *patterns, *additional;
    uint64_t mask; /* of its patterns */
};
struct other { /* unevaluatedProperties */
    uint32_t scope, elem;
};
struct pattern {
    const char *text;
    uint32_t dfa;
};
struct members {
    struct s_ctx *c;
    const struct s_form *form;
    S_LIST(struct name) names;
    uint32_t *table; /* (table_size) name + 1 */
    uint32_t table_size;
    S_LIST(struct group) groups;
    S_LIST(struct other) others;
    S_LIST(struct pattern) patterns;
    S_LIST(const struct s_fact *) own; /* facts about single names */
    uint32_t names_dfa;                /* GRAMMAR_NONE: any */
    uint32_t declared;                 /* automaton of names; GRAMMAR_NONE: not made yet */
    bool exact;                        /* only declared names */
    S_LIST(uint32_t) elems;
    S_LIST(struct s_property) properties;
    S_LIST(struct s_keys) keys;
    s_strings_fn *strings_of; /* of a set, for propertyNames */
};

/* ---- names ---- */

static uint32_t *name_slot(const struct members *m, const char *text) {
    uint64_t h = 0xcbf29ce484222325u;
    for (const char *p = text; *p; p++)
        h = (h ^ (uint8_t)*p) * 0x100000001b3u;
    uint32_t i = (uint32_t)(h ^ h >> 32) & (m->table_size - 1);
    while (m->table[i] && strcmp(m->names.at[m->table[i] - 1].text, text) != 0) {
        work_spend(m->c->g->work, 1); /* a refusal shows when the caller spends next */
        i = (i + 1) & (m->table_size - 1);
    }
    return &m->table[i];
}

static int grow_table(struct members *m) {
    if (m->table_size > 2 * m->names.n + 2) return 0;
    m->table_size = m->table_size ? m->table_size * 2 : 16;
    m->table = s_new(m->c, m->table_size, sizeof *m->table);
    if (!m->table) return ERR_NOMEM;
    for (uint32_t i = 0; i < m->names.n; i++)
        *name_slot(m, m->names.at[i].text) = i + 1;
    return 0;
}

static int declare_member(struct members *m, const char *text, bool required, bool forbidden) {
    int rc = grow_table(m);
    if (rc) return rc;
    uint32_t *at = name_slot(m, text);
    if (!*at) {
        rc = s_push(m->c, &m->names, ((struct name){text, false, false}));
        if (rc) return rc;
        *at = m->names.n;
    }
    m->names.at[*at - 1].required |= required;
    m->names.at[*at - 1].forbidden |= forbidden;
    return s_spend(m->c, 1 + strlen(text) / 32, 0);
}

static int declare_all(struct members *m, const cJSON *object, bool required) {
    int rc = 0;
    for (const cJSON *p = object ? object->child : NULL; p && !rc; p = p->next)
        rc = declare_member(m, p->string, required, false);
    return rc;
}

/* ---- gathering ---- */

static int add_pattern(struct members *m, struct group *g, const cJSON *keyword) {
    uint32_t i = 0;
    while (i < m->patterns.n && strcmp(m->patterns.at[i].text, keyword->string) != 0)
        i++;
    if (i == MAX_PATTERNS)
        return s_fail(m->c, ERR_TOO_LONG, s_node_of(m->c, keyword),
                      "is one of too many different patterns");
    if (i == m->patterns.n) {
        struct pattern p = {keyword->string, 0};
        int rc = s_pattern(m->c, p.text, s_node_of(m->c, keyword), &p.dfa);
        if (!rc) rc = s_push(m->c, &m->patterns, p);
        if (rc) return rc;
    }
    g->mask |= (uint64_t)1 << i;
    return 0;
}

static int add_group(struct members *m, const struct s_fact *f) {
    const cJSON *schema = s_at(m->c, f->node);
    struct group g = {.scope = f->scope,
                      .properties = s_key(schema, "properties"),
                      .patterns = s_key(schema, "patternProperties"),
                      .additional = s_key(schema, "additionalProperties")};
    int rc = declare_all(m, g.properties, false);
    for (const cJSON *p = g.patterns ? g.patterns->child : NULL; p && !rc; p = p->next)
        rc = add_pattern(m, &g, p);
    return rc ? rc : s_push(m->c, &m->groups, g);
}

static int add_names(struct members *m, uint32_t elem) {
    uint32_t set, dfa;
    int rc = s_set_of(m->c, &elem, 1, &set);
    if (!rc) rc = m->strings_of(m->c, set, &dfa);
    if (rc) return rc;
    if (m->names_dfa != GRAMMAR_NONE)
        return s_combine(m->c, m->names_dfa, dfa, DFA_AND, &m->names_dfa);
    m->names_dfa = dfa;
    return 0;
}

static int gather_fact(struct members *m, const struct s_fact *f, struct s_object *o) {
    int rc;
    switch (f->kind) {
    case S_F_MEMBERS:
        return add_group(m, f);
    case S_F_EQUAL_MEMBERS:
        m->exact = true;
        rc = declare_all(m, s_at(m->c, f->node), true);
        return rc ? rc : s_push(m->c, &m->own, f);
    case S_F_REQUIRED:
    case S_F_FORBIDDEN:
        return declare_member(m, f->name, f->kind == S_F_REQUIRED, f->kind == S_F_FORBIDDEN);
    case S_F_PROPERTY:
        rc = declare_member(m, f->name, false, false);
        return rc ? rc : s_push(m->c, &m->own, f);
    case S_F_NAMES: /* ignored in approximations, which could otherwise recurse without end */
        return m->form->approx ? 0 : add_names(m, f->elem);
    case S_F_COUNT:
        if (f->n > o->min) o->min = f->n;
        if (f->m < o->max) o->max = f->m;
        return 0;
    case S_F_OTHER_MEMBERS:
        return s_push(m->c, &m->others, ((struct other){f->scope, f->elem}));
    default:
        return 0;
    }
}

/* ---- conjuncts of a name, or of a class of names ---- */

static int add_schema(struct members *m, const cJSON *schema) {
    return s_push(m->c, &m->elems, s_elem(s_node_of(m->c, schema), S_VALID));
}

/* name: NULL for a class. mask: the patterns that match. */
static int add_group_elems(struct members *m, const struct group *g, const char *name,
                           uint64_t mask) {
    const cJSON *own = name ? s_member(m->c, g->properties, name) : NULL;
    bool any = own != NULL;
    int rc = own ? add_schema(m, own) : 0;
    for (const cJSON *p = g->mask & mask ? g->patterns->child : NULL; p && !rc; p = p->next)
        for (uint32_t i = 0; i < m->patterns.n && !rc; i++)
            if ((mask >> i & 1) && strcmp(m->patterns.at[i].text, p->string) == 0) {
                any = true;
                rc = add_schema(m, p);
            }
    return any || !g->additional || rc ? rc : add_schema(m, g->additional);
}

/* unevaluatedProperties o, if no schema within its scope evaluates the name. */
static int add_unevaluated_members(struct members *m, const struct other *o, const char *name,
                                   uint64_t mask) {
    for (uint32_t i = 0; i < m->groups.n; i++) {
        const struct group *g = &m->groups.at[i];
        bool own =
            g->additional || (g->mask & mask) || (name && s_member(m->c, g->properties, name));
        if (own && s_scope_within(m->c, g->scope, o->scope)) return 0;
    }
    for (uint32_t i = 0; i < m->others.n; i++) {
        const struct other *below = &m->others.at[i];
        if (below != o && s_scope_within(m->c, below->scope, o->scope)) return 0;
    }
    return s_push(m->c, &m->elems, o->elem);
}

static int set_for(struct members *m, const char *name, uint64_t mask, uint32_t *set) {
    int rc = 0;
    m->elems.n = 0;
    for (uint32_t i = 0; i < m->groups.n && !rc; i++)
        rc = add_group_elems(m, &m->groups.at[i], name, mask);
    for (uint32_t i = 0; i < m->others.n && !rc; i++)
        rc = add_unevaluated_members(m, &m->others.at[i], name, mask);
    for (uint32_t i = 0; i < m->own.n && name && !rc; i++) {
        const struct s_fact *f = m->own.at[i];
        const cJSON *own;
        if (f->kind == S_F_PROPERTY && strcmp(f->name, name) == 0)
            rc = s_push(m->c, &m->elems, f->elem);
        else if (f->kind == S_F_EQUAL_MEMBERS && (own = s_member(m->c, s_at(m->c, f->node), name)))
            rc = s_push(m->c, &m->elems, s_elem(s_node_of(m->c, own), S_EQUAL));
    }
    /* Each name is compared with all groups and with the facts about single names. */
    if (!rc) rc = s_spend(m->c, (m->groups.n + m->others.n + m->own.n) / 4, 0);
    return rc ? rc : s_set_of(m->c, m->elems.at, m->elems.n, set);
}

static bool is_never_valid(const struct members *m) {
    for (uint32_t i = 0; i < m->elems.n; i++)
        if ((m->elems.at[i] & 3) == S_VALID && cJSON_IsFalse(s_at(m->c, m->elems.at[i] >> 2)))
            return true;
    return false;
}

static bool is_exact_member(const struct members *m, const char *name) {
    for (uint32_t i = 0; i < m->own.n; i++) {
        const struct s_fact *f = m->own.at[i];
        if (f->kind == S_F_EQUAL_MEMBERS && !s_member(m->c, s_at(m->c, f->node), name))
            return false;
    }
    return true;
}

/* *possible false: a required member is forbidden. */
static int make_properties(struct members *m, bool *possible) {
    int rc = 0;
    for (uint32_t i = 0; i < m->names.n && *possible && !rc; i++) {
        const struct name *name = &m->names.at[i];
        size_t n = strlen(name->text);
        uint64_t mask = 0;
        uint32_t set;
        bool forbidden = name->forbidden || !is_exact_member(m, name->text);
        if (m->names_dfa != GRAMMAR_NONE && !dfa_accepts(s_dfa(m->c, m->names_dfa), name->text, n))
            forbidden = true;
        if (forbidden) {
            *possible = !name->required;
            continue;
        }
        rc = s_spend(m->c, n * m->patterns.n / 32, 0);
        for (uint32_t k = 0; k < m->patterns.n; k++)
            if (dfa_accepts(s_dfa(m->c, m->patterns.at[k].dfa), name->text, n))
                mask |= (uint64_t)1 << k;
        if (!rc) rc = set_for(m, name->text, mask, &set);
        if (!rc && is_never_valid(m))
            *possible = !name->required;
        else if (!rc)
            rc = s_push(m->c, &m->properties,
                        ((struct s_property){name->text, set, name->required}));
    }
    return rc;
}

/* ---- classes ---- */

struct class {
    uint32_t dfa;
    uint64_t mask;
};
typedef S_LIST(struct class) classes;

static int split_classes(struct members *m, classes *list, uint32_t pattern) {
    uint32_t n = list->n, dfa = m->patterns.at[pattern].dfa, in, out;
    int rc = 0;
    for (uint32_t i = 0; i < n && !rc; i++) {
        struct class *k = &list->at[i];
        rc = s_combine(m->c, k->dfa, dfa, DFA_AND, &in);
        if (!rc) rc = s_combine(m->c, k->dfa, dfa, DFA_MINUS, &out);
        if (rc || dfa_is_empty(s_dfa(m->c, in))) continue;
        uint64_t mask = k->mask | (uint64_t)1 << pattern;
        if (dfa_is_empty(s_dfa(m->c, out))) {
            *k = (struct class){in, mask};
            continue;
        }
        k->dfa = out;
        if (list->n == MAX_CLASSES)
            return s_fail(m->c, ERR_TOO_LONG, 0, "has too many overlapping patterns");
        rc = s_push(m->c, list, ((struct class){in, mask}));
    }
    return rc;
}

/* A class of few names becomes optional properties. */
struct few {
    struct members *m;
    uint32_t set;
};
static int add_key_property(void *arg, const char *bytes, size_t n) {
    const struct few *f = arg;
    char *text = arena_strndup(f->m->c->mem, bytes, n);
    if (!text) return ERR_NOMEM;
    if (memchr(bytes, 0, n)) return 0; /* declared names contain no U+0000 */
    return s_push(f->m->c, &f->m->properties, ((struct s_property){text, f->set, false}));
}

static int make_declared(struct members *m) {
    struct dfa_word *list = s_new(m->c, m->names.n, sizeof *list);
    struct dfa words;
    if (!list) return ERR_NOMEM;
    for (uint32_t i = 0; i < m->names.n; i++)
        list[i] = (struct dfa_word){m->names.at[i].text, strlen(m->names.at[i].text)};
    int rc = dfa_from_words(list, m->names.n, m->c->g->work, &words, m->c->e);
    return rc ? rc : s_dfa_add(m->c, &words, &m->declared);
}

static int without_declared(struct members *m, uint32_t *dfa) {
    if (m->names.n == 0) return 0;
    int rc = m->declared == GRAMMAR_NONE ? make_declared(m) : 0;
    return rc ? rc : s_combine(m->c, *dfa, m->declared, DFA_MINUS, dfa);
}

static int make_class(struct members *m, struct class k) {
    uint32_t set;
    int rc = set_for(m, NULL, k.mask, &set);
    if (rc || is_never_valid(m)) return rc;
    rc = without_declared(m, &k.dfa);
    if (rc || dfa_is_empty(s_dfa(m->c, k.dfa))) return rc;
    rc = s_work(m->c, dfa_size(s_dfa(m->c, k.dfa)), 0);
    if (rc) return rc;
    if (dfa_count(s_dfa(m->c, k.dfa), SCHEMA_FEW_WORDS + 1) > SCHEMA_FEW_WORDS)
        return s_push(m->c, &m->keys, ((struct s_keys){k.dfa, set}));
    struct few few = {m, set};
    rc = dfa_each(s_dfa(m->c, k.dfa), SCHEMA_FEW_WORDS, add_key_property, &few);
    return rc ? err_set(m->c->e, rc, "the schema needs too much memory") : 0;
}

static int make_classes(struct members *m) {
    classes list = {0};
    struct class all = {m->names_dfa, 0};
    int rc = all.dfa == GRAMMAR_NONE ? s_all_strings(m->c, &all.dfa) : 0;
    if (!rc && !dfa_is_empty(s_dfa(m->c, all.dfa))) rc = s_push(m->c, &list, all);
    for (uint32_t i = 0; i < m->patterns.n && !rc; i++)
        rc = split_classes(m, &list, i);
    for (uint32_t i = 0; i < list.n && !rc; i++)
        rc = make_class(m, list.at[i]);
    return rc;
}

int s_object(struct s_ctx *c, const struct s_form *form, s_strings_fn *strings_of,
             const struct s_object **out) {
    struct members m = {.c = c,
                        .form = form,
                        .names_dfa = GRAMMAR_NONE,
                        .declared = GRAMMAR_NONE,
                        .strings_of = strings_of};
    struct s_object *o = s_new(c, 1, sizeof *o);
    bool possible = true;
    uint32_t n_required = 0;
    int rc = 0;
    *out = NULL;
    if (!o) return ERR_NOMEM;
    o->max = GRAMMAR_UNLIMITED;
    for (const struct s_fact *f = form->facts; f && !rc; f = f->next)
        rc = gather_fact(&m, f, o);
    if (!rc) rc = make_properties(&m, &possible);
    for (uint32_t i = 0; i < m.properties.n; i++)
        n_required += m.properties.at[i].required;
    if (rc || !possible || o->min > o->max || n_required > o->max) return rc;
    if (!m.exact && o->max > n_required) rc = make_classes(&m);
    o->properties = m.properties.at;
    o->n_properties = m.properties.n;
    o->keys = m.keys.at;
    o->n_keys = m.keys.n;
    if (!rc) *out = o;
    return rc;
}
