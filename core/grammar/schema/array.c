/* schema/array.c - a form's constraints on arrays: the set that the item at each position must
 * satisfy, the number of items, contains and uniqueItems. */
#include "core/grammar/schema/schema_int.h"

/* The conjuncts of each position; the last column is for all positions from n on. */
struct columns {
    struct s_ctx *c;
    uint32_t n;     /* positions */
    uint32_t *at;   /* (n + 1, room) conjuncts */
    uint32_t *used; /* (n + 1) */
    uint32_t room;
};

/* prefixItems and items (or their older names) of the schema of an S_F_ITEMS. */
static int items_of(struct s_ctx *c, const struct s_fact *f, const cJSON **prefix,
                    const cJSON **rest) {
    const cJSON *schema = s_at(c, f->node), *items = s_key(schema, "items");
    if (cJSON_IsArray(items)) {
        *prefix = items;
        return s_typed(c, schema, "additionalItems", "schema", rest);
    }
    int rc = s_typed(c, schema, "prefixItems", "array", prefix);
    return rc ? rc : s_typed(c, schema, "items", "schema", rest);
}

static uint32_t list_length(const cJSON *list) {
    return list ? (uint32_t)cJSON_GetArraySize(list) : 0;
}

static int count_places(struct s_ctx *c, const struct s_form *form, uint32_t *n) {
    const cJSON *prefix, *rest;
    int rc = 0;
    *n = 0;
    for (const struct s_fact *f = form->facts; f && !rc; f = f->next) {
        uint32_t here = 0;
        if (f->kind == S_F_ITEMS) {
            rc = items_of(c, f, &prefix, &rest);
            here = rc ? 0 : list_length(prefix);
        } else if (f->kind == S_F_EQUAL_ITEMS) {
            here = list_length(s_at(c, f->node));
        } else if (f->kind == S_F_ITEM) {
            here = f->n + 1;
        }
        if (here > *n) *n = here;
        if (here > SCHEMA_MAX_PLACES)
            rc = s_fail(c, ERR_TOO_LONG, f->node,
                        "has too many positions with a schema of their own");
    }
    return rc;
}

static void add_conjunct(struct columns *k, uint32_t place, uint32_t elem) {
    k->at[(size_t)place * k->room + k->used[place]++] = elem;
}

static int add_items(struct columns *k, const struct s_fact *f) {
    const cJSON *prefix, *rest;
    uint32_t i = 0;
    int rc = items_of(k->c, f, &prefix, &rest);
    if (rc) return rc;
    for (const cJSON *p = prefix ? prefix->child : NULL; p; p = p->next, i++)
        if (i < k->n) add_conjunct(k, i, s_elem(s_node_of(k->c, p), S_VALID));
    for (; rest && i <= k->n; i++)
        add_conjunct(k, i, s_elem(s_node_of(k->c, rest), S_VALID));
    return 0;
}

/* unevaluatedItems: the items that no schema within f's scope evaluates. */
static int add_unevaluated_items(struct columns *k, const struct s_form *form,
                                 const struct s_fact *f) {
    uint32_t evaluated = 0;
    for (const struct s_fact *g = form->facts; g; g = g->next) {
        const cJSON *prefix, *rest;
        if (g == f || !s_scope_within(k->c, g->scope, f->scope)) continue;
        if (g->kind == S_F_OTHER_ITEMS) return 0;
        if (g->kind == S_F_CONTAINS && !form->approx && !s_is_legacy(k->c, g->node))
            return s_fail(k->c, ERR_UNSUPPORTED, f->node,
                          "cannot be enforced beside contains; use items");
        if (g->kind != S_F_ITEMS) continue;
        int rc = items_of(k->c, g, &prefix, &rest);
        if (rc) return rc;
        if (rest) return 0;
        if (list_length(prefix) > evaluated) evaluated = list_length(prefix);
    }
    for (uint32_t i = evaluated; i <= k->n; i++)
        add_conjunct(k, i, f->elem);
    return 0;
}

static int fill_columns(struct columns *k, const struct s_form *form) {
    int rc = 0;
    for (const struct s_fact *f = form->facts; f && !rc; f = f->next) {
        uint32_t i = 0;
        if (f->kind == S_F_ITEMS)
            rc = add_items(k, f);
        else if (f->kind == S_F_OTHER_ITEMS)
            rc = add_unevaluated_items(k, form, f);
        else if (f->kind == S_F_ITEM && f->n < k->n)
            add_conjunct(k, f->n, f->elem);
        else if (f->kind == S_F_EQUAL_ITEMS)
            for (const cJSON *p = s_at(k->c, f->node)->child; p && i < k->n; p = p->next, i++)
                add_conjunct(k, i, s_elem(s_node_of(k->c, p), S_EQUAL));
        else if (f->kind == S_F_CONTAINS && f->m == 0)
            for (; i <= k->n; i++) /* no item matches */
                add_conjunct(k, i, f->elem ^ (uint32_t)(S_VALID ^ S_INVALID));
    }
    return rc;
}

/* Merges the contains into one; GRAMMAR_NONE: there is none. */
static int find_contains(struct s_ctx *c, const struct s_form *form, struct s_array *a,
                         uint32_t *elem) {
    *elem = GRAMMAR_NONE;
    a->max_contains = GRAMMAR_UNLIMITED;
    for (const struct s_fact *f = form->facts; f; f = f->next) {
        if (f->kind != S_F_CONTAINS || (f->n == 0 && f->m >= a->max)) continue;
        if (f->n > f->m) a->max_contains = 0;
        if (f->n > f->m) a->min_contains = 1; /* contradictory */
        if (f->m == 0) continue;
        if (*elem != GRAMMAR_NONE && *elem != f->elem) {
            if (form->approx) continue;
            return s_fail(c, ERR_UNSUPPORTED, f->node,
                          "is a second contains for the same array; only one can be enforced");
        }
        *elem = f->elem;
        if (f->n > a->min_contains) a->min_contains = f->n;
        if (f->m < a->max_contains) a->max_contains = f->m;
    }
    if (a->min_contains > a->min) a->min = a->min_contains;
    return 0;
}

static int make_place(struct columns *k, uint32_t place, uint32_t contains, const struct s_array *a,
                      struct s_place *out) {
    uint32_t *elems = k->at + (size_t)place * k->room, n = k->used[place];
    int rc = s_set_of(k->c, elems, n, &out->value);
    out->contains = GRAMMAR_NONE;
    out->rest = out->value;
    if (rc || contains == GRAMMAR_NONE) return rc;
    elems[n] = contains;
    rc = s_set_of(k->c, elems, n + 1, &out->contains);
    elems[n] = contains ^ (uint32_t)(S_VALID ^ S_INVALID);
    if (!rc && a->max_contains != GRAMMAR_UNLIMITED) rc = s_set_of(k->c, elems, n + 1, &out->rest);
    return rc;
}

static int columns_init(struct columns *k, const struct s_form *form) {
    k->room = 2;
    for (const struct s_fact *f = form->facts; f; f = f->next)
        k->room++;
    k->at = s_new(k->c, (k->n + 1) * (uint64_t)k->room, sizeof *k->at);
    k->used = s_new(k->c, (uint64_t)k->n + 1, sizeof *k->used);
    return k->at && k->used ? s_spend(k->c, k->n, 0) : ERR_NOMEM;
}

int s_array(struct s_ctx *c, const struct s_form *form, const struct s_array **out) {
    struct s_array *a = s_new(c, 1, sizeof *a);
    struct columns k = {.c = c};
    uint32_t contains;
    *out = NULL;
    if (!a) return ERR_NOMEM;
    a->max = GRAMMAR_UNLIMITED;
    for (const struct s_fact *f = form->facts; f; f = f->next) {
        if (f->kind == S_F_PLACES && f->n > a->min) a->min = f->n;
        if (f->kind == S_F_PLACES && f->m < a->max) a->max = f->m;
        if (f->kind == S_F_UNIQUE) a->unique = true;
        if (f->kind == S_F_UNIQUE) a->unique_node = f->node;
    }
    int rc = find_contains(c, form, a, &contains);
    if (!rc) rc = count_places(c, form, &k.n);
    if (rc || a->min > a->max || a->min_contains > a->max_contains) return rc;
    if (k.n > a->max) k.n = a->max;
    rc = columns_init(&k, form);
    if (!rc) rc = fill_columns(&k, form);
    if (!rc && contains != GRAMMAR_NONE && a->min_contains == a->max) { /* all items match */
        for (uint32_t i = 0; i <= k.n; i++)
            add_conjunct(&k, i, contains);
        contains = GRAMMAR_NONE;
    }
    if (contains == GRAMMAR_NONE) {
        a->min_contains = 0;
        a->max_contains = GRAMMAR_UNLIMITED;
    }
    a->n = k.n;
    a->places = s_new(c, k.n, sizeof *a->places);
    if (!a->places) return ERR_NOMEM;
    for (uint32_t i = 0; i < k.n && !rc; i++)
        rc = make_place(&k, i, contains, a, &a->places[i]);
    if (!rc) rc = make_place(&k, k.n, contains, a, &a->more);
    *out = a;
    return rc;
}
