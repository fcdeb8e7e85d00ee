/* schema/expand.c - a set of conjuncts -> forms: first collects the facts that hold in every case,
 * then multiplies the forms by each choice (anyOf, oneOf, if, a negated conjunction). Lists of
 * facts share their tails, so a copy costs nothing. Terminates because a schema that applies itself
 * to the same value is refused. */
#include "core/grammar/schema/schema_int.h"

#include <string.h>

enum { MAX_IN_PLACE = 200 /* nested schemas applied to one value */ };

/* The scope of a schema that is applied to the value because outer's schema is. */
static int enter_scope(struct s_ctx *c, uint32_t outer, uint32_t elem, uint32_t *scope) {
    uint32_t depth = 0, node = elem >> 2;
    for (uint32_t s = outer; s != GRAMMAR_NONE; s = c->scopes.at[s].parent)
        if (c->scopes.at[s].elem == elem || ++depth > MAX_IN_PLACE)
            return s_fail(c, ERR_INVALID, node,
                          "applies itself to the same value without end and describes no value");
    const cJSON *at = s_at(c, node);
    bool asks = (elem & 3) == S_VALID && cJSON_IsObject(at) &&
                (s_key(at, "unevaluatedProperties") || s_key(at, "unevaluatedItems"));
    bool above = outer != GRAMMAR_NONE && c->scopes.at[outer].unevaluated;
    *scope = c->scopes.n;
    return s_push(c, &c->scopes, ((struct s_scope){outer, elem, asks || above}));
}

static int expand_elem(struct s_ctx *c, struct s_state *s, const struct s_fact *f, bool approx) {
    uint32_t scope = 0;
    int rc = enter_scope(c, f->scope, f->elem, &scope);
    if (rc) return rc;
    struct s_scoped x = {c, s, scope, approx};
    const cJSON *at = s_at(c, f->elem >> 2);
    for (const cJSON *p = cJSON_IsObject(at) || cJSON_IsArray(at) ? at->child : NULL; p;
         p = p->next)
        c->g->schema_work++; /* s_key searches all members */
    switch (f->elem & 3) {
    case S_VALID:
        return s_apply(&x, f->elem >> 2);
    case S_INVALID:
        return s_negate(&x, f->elem >> 2);
    case S_EQUAL:
        return s_equal(&x, f->elem >> 2);
    default:
        return s_different(&x, f->elem >> 2);
    }
}

/* Processes the facts that hold in every case. */
static int process_facts(struct s_ctx *c, struct s_state *s, bool approx) {
    while (s->todo && s->types) {
        struct s_fact f = *s->todo;
        s->todo = f.next;
        int rc = s_spend(c, 1, f.kind == S_F_ELEM ? f.elem >> 2 : f.node);
        if (!rc && f.kind == S_F_ELEM)
            rc = expand_elem(c, s, &f, approx);
        else if (!rc && f.kind == S_F_TYPES)
            s->types &= f.n;
        else if (!rc)
            rc = s_fact_add(c, &s->facts, f);
        if (rc) return rc;
    }
    return 0;
}

/* Restores the order in which the facts were found. */
static const struct s_fact *reverse_facts(struct s_ctx *c, const struct s_fact *list, int *rc) {
    const struct s_fact *out = NULL;
    for (; list && !*rc; list = list->next)
        *rc = s_fact_add(c, &out, *list);
    return out;
}

static int emit_form(struct s_ctx *c, const struct s_state *s, bool approx, s_forms *out) {
    int rc = 0;
    for (const struct s_fact *f = s->facts; f && !approx; f = f->next)
        if (f->kind == S_F_UNSUPPORTED && (f->n & s->types))
            return s_fail(c, ERR_UNSUPPORTED, f->node, "%s", f->name);
    const struct s_fact *facts = reverse_facts(c, s->facts, &rc);
    return rc ? rc : s_push(c, out, ((struct s_form){s->types, approx, facts}));
}

/* Adds the facts of a branch to those to be processed. */
static int add_branch(struct s_ctx *c, struct s_state *s, const struct s_fact *branch) {
    int rc = 0;
    for (; branch && !rc; branch = branch->next)
        rc = s_fact_add(c, &s->todo, *branch);
    return rc;
}

/* Takes the choice with the fewest branches: its facts may rule out branches of the others. */
static const struct s_split *take_split(struct s_state *s, struct s_ctx *c, int *rc) {
    const struct s_split *best = s->splits, *rest = NULL;
    for (const struct s_split *p = s->splits; p; p = p->next)
        if (p->n <= best->n) best = p;
    for (const struct s_split *p = s->splits; p && !*rc; p = p->next) {
        if (p == best) continue;
        struct s_split *copy = s_new(c, 1, sizeof *copy);
        if (!copy) {
            *rc = ERR_NOMEM;
            break;
        }
        *copy = *p;
        copy->next = rest;
        rest = copy;
    }
    s->splits = rest;
    return best;
}

int s_expand(struct s_ctx *c, uint32_t set, bool approx, s_forms *out) {
    const struct s_set *of = &c->sets.at[set];
    uint32_t first = of->n ? of->elems[0] >> 2 : 0;
    S_LIST(struct s_state) open = {0};
    struct s_state s = {.types = S_ALL};
    int rc = 0;
    for (uint32_t i = of->n; i-- > 0 && !rc;)
        rc = s_fact_add(
            c, &s.todo,
            (struct s_fact){.kind = S_F_ELEM, .elem = of->elems[i], .scope = GRAMMAR_NONE});
    if (!rc) rc = s_push(c, &open, s);
    while (open.n && !rc) {
        s = open.at[--open.n];
        rc = process_facts(c, &s, approx);
        if (rc || !s.types) continue;
        if (!s.splits) {
            rc = emit_form(c, &s, approx, out);
            if (!rc && out->n > SCHEMA_MAX_FORMS)
                rc = s_fail(c, ERR_TOO_LONG, first,
                            "has too many combinations of alternatives; nest fewer of them");
            continue;
        }
        const struct s_split *split = take_split(&s, c, &rc);
        for (uint32_t i = split->n; i-- > 0 && !rc;) {
            struct s_state branch = s;
            rc = add_branch(c, &branch, split->branches[i]);
            if (!rc) rc = s_push(c, &open, branch);
        }
    }
    return rc;
}
