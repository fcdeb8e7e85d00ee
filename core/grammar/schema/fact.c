/* schema/fact.c - facts, the choices between lists of them, the scopes that they were found in, and
 * the types of values. */
#include "core/grammar/schema/schema_int.h"

#include <string.h>

int s_fact_add(struct s_ctx *c, const struct s_fact **list, struct s_fact fact) {
    struct s_fact *f = s_new(c, 1, sizeof *f);
    if (!f) return ERR_NOMEM;
    *f = fact;
    f->next = *list;
    *list = f;
    return 0;
}

int s_split_add(struct s_ctx *c, struct s_state *s, const struct s_branches *branches) {
    struct s_split *split = s_new(c, 1, sizeof *split);
    if (!split) return ERR_NOMEM;
    *split = (struct s_split){branches->list.at, branches->list.n, s->splits};
    s->splits = split;
    return 0;
}

bool s_scope_within(const struct s_ctx *c, uint32_t scope, uint32_t outer) {
    while (scope != outer && scope != GRAMMAR_NONE && (c->scopes.at[scope].elem & 3) == S_VALID)
        scope = c->scopes.at[scope].parent; /* a negated schema evaluates nothing */
    return scope == outer;
}

uint32_t s_type_of(const cJSON *value) {
    return cJSON_IsNull(value)     ? S_NULL
           : cJSON_IsFalse(value)  ? S_FALSE
           : cJSON_IsTrue(value)   ? S_TRUE
           : cJSON_IsNumber(value) ? S_NUMBER
           : cJSON_IsString(value) ? S_STRING
           : cJSON_IsArray(value)  ? S_ARRAY
                                   : S_OBJECT;
}

static bool add_type(const char *name, uint32_t *mask, bool *integer) {
    static const struct {
        const char *name;
        uint32_t mask;
    } types[] = {{"null", S_NULL},     {"boolean", S_FALSE | S_TRUE},
                 {"number", S_NUMBER}, {"string", S_STRING},
                 {"array", S_ARRAY},   {"object", S_OBJECT}};
    if (strcmp(name, "integer") == 0) {
        *integer = true;
        return true;
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(name, types[i].name) == 0) {
            *mask |= types[i].mask;
            return true;
        }
    return false;
}

int s_types(struct s_ctx *c, const cJSON *type, uint32_t *mask, bool *integer) {
    bool ok = cJSON_IsString(type) || cJSON_IsArray(type);
    *mask = 0;
    *integer = false;
    if (cJSON_IsString(type)) ok = add_type(type->valuestring, mask, integer);
    if (cJSON_IsArray(type))
        for (const cJSON *p = type->child; p && ok; p = p->next)
            ok = cJSON_IsString(p) && add_type(p->valuestring, mask, integer);
    if (!ok)
        return s_fail(
            c, ERR_INVALID, s_node_of(c, type),
            "must be null, boolean, integer, number, string, array or object, or a list of these");
    if (*mask & S_NUMBER) *integer = false;
    if (*integer) *mask |= S_NUMBER;
    return 0;
}
