/* schema/schema.c - compiles a schema: the alternatives of every reachable set; which sets accept
 * any value (a least fixed point: endless recursion accepts nothing); and the values of the grammar
 * made of these. */
#include "core/grammar/schema/schema_int.h"

#include <stdlib.h>
#include <string.h>

/* ---- which sets accept something ---- */

/* Sets of the grammar in the order in which they were found. */
typedef S_LIST(uint32_t) list_of_sets;

static int add_reachable(struct s_ctx *c, list_of_sets *list, uint32_t set) {
    if (set == GRAMMAR_NONE || c->sets.at[set].reachable) return 0;
    c->sets.at[set].reachable = true;
    return s_push(c, list, set);
}

static int add_place(struct s_ctx *c, list_of_sets *list, const struct s_place *p) {
    int rc = add_reachable(c, list, p->value);
    if (!rc) rc = add_reachable(c, list, p->contains);
    return rc ? rc : add_reachable(c, list, p->rest);
}

static int add_alt_sets(struct s_ctx *c, list_of_sets *list, const struct s_alt *alt) {
    int rc = 0;
    if (alt->kind == G_ALT_ARRAY) {
        for (uint32_t i = 0; i < alt->array->n && !rc; i++)
            rc = add_place(c, list, &alt->array->places[i]);
        if (!rc && alt->array->max > alt->array->n) rc = add_place(c, list, &alt->array->more);
    }
    if (alt->kind == G_ALT_OBJECT) {
        for (uint32_t i = 0; i < alt->object->n_properties && !rc; i++)
            rc = add_reachable(c, list, alt->object->properties[i].set);
        for (uint32_t i = 0; i < alt->object->n_keys && !rc; i++)
            rc = add_reachable(c, list, alt->object->keys[i].set);
    }
    return rc;
}

static int build_reachable(struct s_ctx *c, uint32_t root, list_of_sets *list) {
    int rc = add_reachable(c, list, root);
    for (uint32_t i = 0; i < list->n && !rc; i++) {
        const struct s_alt *alts;
        rc = s_alternatives(c, list->at[i], false, S_ALL, &alts);
        if (rc) break;
        c->sets.at[list->at[i]].alts = alts;
        for (const struct s_alt *a = alts; a && !rc; a = a->next)
            rc = add_alt_sets(c, list, a);
    }
    return rc;
}

/* From the last set to the first, because a set comes before those that it refers to. */
static int find_takers(struct s_ctx *c, const list_of_sets *list) {
    bool changed = true;
    int rc = 0;
    while (changed && !rc) {
        changed = false;
        for (uint32_t i = list->n; i-- > 0 && !rc;) {
            struct s_set *s = &c->sets.at[list->at[i]];
            rc = s_spend(c, 1, 0);
            bool takes = s->takes; /* the set may refer to itself */
            for (const struct s_alt *a = s->alts; a && !takes && !rc; a = a->next)
                rc = s_alt_takes(c, a, &takes);
            changed |= takes && !s->takes;
            s->takes = takes;
        }
    }
    return rc;
}

/* ---- into the grammar ---- */

struct emitting {
    struct s_ctx *c;
    list_of_sets open; /* sets whose values have no alternatives yet */
};

static int value_of_set(struct emitting *m, uint32_t set, uint32_t *value) {
    *value = GRAMMAR_NONE;
    if (set == GRAMMAR_NONE || !m->c->sets.at[set].takes) return 0;
    struct s_set *s = &m->c->sets.at[set];
    int rc = 0;
    if (s->value == GRAMMAR_NONE) {
        rc = program_add_open_value(m->c->g, &s->value, m->c->e);
        if (!rc) rc = s_push(m->c, &m->open, set);
    }
    *value = s->value;
    return rc;
}

/* Moves the automaton's memory into the grammar; it stays readable here. */
static int emit_dfa(struct s_ctx *c, uint32_t dfa, uint32_t *index) {
    int rc = 0;
    if (c->dfa_index.at[dfa] == GRAMMAR_NONE) {
        struct dfa moved = c->dfas.at[dfa];
        c->dfa_index.at[dfa] = 0;
        rc = program_add_dfa(c->g, &moved, &c->dfa_index.at[dfa], c->e);
    }
    *index = c->dfa_index.at[dfa];
    return rc;
}

static int emit_string(struct s_ctx *c, const struct s_alt *alt, uint32_t *index) {
    struct g_string s = {GRAMMAR_NONE, alt->min_len, alt->max_len};
    int rc = alt->dfa == GRAMMAR_NONE ? 0 : emit_dfa(c, alt->dfa, &s.dfa);
    return rc ? rc : program_add_string(c->g, &s, index, c->e);
}

static int emit_place(struct emitting *m, const struct s_place *p, struct g_item *out) {
    int rc = value_of_set(m, p->value, &out->value);
    if (!rc) rc = value_of_set(m, p->contains, &out->contains);
    return rc ? rc : value_of_set(m, p->rest, &out->rest);
}

static int emit_array(struct emitting *m, const struct s_array *a, uint32_t max, uint32_t *index) {
    struct g_array array = {.min = a->min,
                            .max = max,
                            .min_contains = a->min_contains,
                            .max_contains = a->max_contains,
                            .unique = a->unique && max > 1};
    array.n_items = a->n < max ? a->n : max;
    struct g_item *items = s_new(m->c, array.n_items, sizeof *items), more;
    int rc = items ? 0 : ERR_NOMEM;
    for (uint32_t i = 0; i < array.n_items && !rc; i++)
        rc = emit_place(m, &a->places[i], &items[i]);
    if (!rc && max > a->n) rc = emit_place(m, &a->more, &more);
    if (rc) return rc;
    return program_add_array(m->c->g, &array, items, max > a->n ? &more : NULL, index, m->c->e);
}

static int emit_object(struct emitting *m, const struct s_object *o, uint32_t *index) {
    struct g_object object = {.min = o->min, .max = o->max, .in_order = m->c->in_order};
    struct g_member *members = s_new(m->c, o->n_properties, sizeof *members);
    struct g_keys *keys = s_new(m->c, o->n_keys, sizeof *keys);
    int rc = members && keys ? 0 : ERR_NOMEM;
    for (uint32_t i = 0; i < o->n_properties && !rc; i++) {
        const struct s_property *p = &o->properties[i];
        struct g_member *to = &members[object.n_properties];
        *to = (struct g_member){.name = p->name, .n = strlen(p->name), .required = p->required};
        rc = value_of_set(m, p->set, &to->value);
        object.n_properties += to->value != GRAMMAR_NONE;
    }
    for (uint32_t i = 0; i < o->n_keys && !rc; i++) {
        struct g_keys *to = &keys[object.n_keys];
        rc = value_of_set(m, o->keys[i].set, &to->value);
        if (rc || to->value == GRAMMAR_NONE) continue;
        rc = emit_dfa(m->c, o->keys[i].dfa, &to->dfa);
        object.n_keys++;
    }
    return rc ? rc : program_add_object(m->c->g, &object, members, keys, index, m->c->e);
}

static int emit_alt(struct emitting *m, const struct s_alt *alt, struct g_alt *out, bool *takes) {
    uint32_t max;
    int rc = 0;
    *takes = true;
    out->kind = alt->kind;
    if (alt->kind == G_ALT_TEXT) return emit_dfa(m->c, alt->dfa, &out->index);
    if (alt->kind == G_ALT_STRING) return emit_string(m->c, alt, &out->index);
    if (alt->kind == G_ALT_ARRAY) {
        rc = s_array_takes(m->c, alt->array, &max, takes);
        return rc || !*takes ? rc : emit_array(m, alt->array, max, &out->index);
    }
    rc = s_object_takes(m->c, alt->object, takes);
    return !rc && *takes ? emit_object(m, alt->object, &out->index) : rc;
}

static int emit_value(struct emitting *m, uint32_t set) {
    const struct s_alt *first = m->c->sets.at[set].alts;
    uint32_t n = 0;
    for (const struct s_alt *a = first; a; a = a->next)
        n++;
    struct g_alt *alts = s_new(m->c, n, sizeof *alts);
    int rc = alts ? 0 : ERR_NOMEM;
    n = 0;
    for (const struct s_alt *a = first; a && !rc; a = a->next) {
        bool takes;
        rc = emit_alt(m, a, &alts[n], &takes);
        n += takes;
    }
    return rc ? rc : program_set_value(m->c->g, m->c->sets.at[set].value, alts, n, m->c->e);
}

static int compile_schema(struct s_ctx *c, const struct grammar_schema *schema, uint32_t *value) {
    struct emitting m = {.c = c};
    list_of_sets list = {0};
    uint32_t root = 0, top = 0;
    c->buckets = s_new(c, S_SET_BUCKETS, sizeof *c->buckets);
    c->memos = s_memos_new(c);
    if (!c->buckets || !c->memos) return ERR_NOMEM;
    int rc = s_doc_init(c, schema->schema);
    if (!rc && schema->part) top = s_node_of(c, schema->part);
    if (!rc) rc = s_set_of(c, &(uint32_t){s_elem(top, S_VALID)}, 1, &root);
    if (!rc) rc = build_reachable(c, root, &list);
    if (!rc) rc = find_takers(c, &list);
    if (!rc && !c->sets.at[root].takes)
        return s_fail(c, ERR_INVALID, top,
                      "no value can be valid: its keywords contradict each other");
    if (!rc) rc = value_of_set(&m, root, value);
    for (uint32_t i = 0; i < m.open.n && !rc; i++)
        rc = emit_value(&m, m.open.at[i]);
    return rc;
}

int schema_compile(grammar *g, const struct grammar_schema *schema, uint32_t *value, err *e) {
    struct s_ctx c = {.g = g,
                      .in_order = schema->in_order,
                      .draft_integers = schema->draft_integers,
                      .e = e,
                      .work_spent = g->schema_work};
    c.mem = arena_new(SCHEMA_MAX_ARENA_BYTES);
    if (!c.mem) return err_no_memory(e);
    int rc = compile_schema(&c, schema, value);
    if (rc) rc = s_fail_at(&c, rc, 0);
    if (rc == ERR_NOMEM && c.full) /* our bound, not the machine's */
        rc = err_set_param(e, ERR_TOO_LONG, "", "#: the schema needs too much memory");
    for (uint32_t i = 0; i < c.dfas.n; i++)
        if (c.dfa_index.at[i] == GRAMMAR_NONE) dfa_fini(&c.dfas.at[i]);
    arena_free(c.mem);
    return rc;
}
