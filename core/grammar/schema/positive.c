/* schema/positive.c - what a schema requires of a value: each family of keywords adds facts, or
 * choices between lists of facts. */
#include "core/grammar/schema/schema_int.h"

#include <stdlib.h>
#include <string.h>

enum { ANNOTATED_ALTERNATIVES = 6 /* of an anyOf whose subsets are all cases */ };

static int add_fact(struct s_scoped *x, struct s_fact f) {
    f.scope = x->scope;
    return s_fact_add(x->c, &x->s->facts, f);
}

static int add_elem(struct s_scoped *x, uint32_t elem) {
    return s_fact_add(x->c, &x->s->todo,
                      (struct s_fact){.kind = S_F_ELEM, .elem = elem, .scope = x->scope});
}

static int add_branch_elem(struct s_scoped *x, const struct s_fact **branch, const cJSON *schema,
                           enum s_elem_kind kind) {
    uint32_t elem = s_elem(s_node_of(x->c, schema), kind);
    return s_fact_add(x->c, branch,
                      (struct s_fact){.kind = S_F_ELEM, .elem = elem, .scope = x->scope});
}

/* ---- any type ---- */

static int apply_type(struct s_scoped *x, const cJSON *schema) {
    const cJSON *type = s_key(schema, "type");
    uint32_t mask;
    bool integer;
    if (!type) return 0;
    int rc = s_types(x->c, type, &mask, &integer);
    if (rc) return rc;
    if (cJSON_IsTrue(s_key(schema, "nullable"))) mask |= S_NULL; /* OpenAPI 3.0 */
    x->s->types &= mask;
    if (!integer) return 0;
    return add_fact(x, (struct s_fact){.kind = S_F_INTEGER, .node = s_node_of(x->c, type)});
}

/* Numbers and strings are one case together; each array and object is a case of its own. */
static int apply_enum(struct s_scoped *x, const cJSON *schema) {
    const cJSON *list = NULL;
    int rc = s_typed(x->c, schema, "enum", "array", &list);
    if (rc || !list) return rc;
    uint32_t node = s_node_of(x->c, list), scalars = 0, n_composite = 0;
    for (const cJSON *p = list->child; p; p = p->next) {
        uint32_t type = s_type_of(p);
        n_composite += (type & (S_ARRAY | S_OBJECT)) != 0;
        scalars |= type & ~(uint32_t)(S_ARRAY | S_OBJECT);
    }
    struct s_fact one_of = {.kind = S_F_ENUM, .node = node, .scope = x->scope};
    if (!n_composite) {
        x->s->types &= scalars;
        return add_fact(x, one_of);
    }
    struct s_branches b = {0};
    for (const cJSON *p = list->child; p && !rc; p = p->next) {
        const struct s_fact *branch = NULL;
        if (!(s_type_of(p) & (S_ARRAY | S_OBJECT))) continue;
        rc = add_branch_elem(x, &branch, p, S_EQUAL);
        if (!rc) rc = s_push(x->c, &b.list, branch);
    }
    if (scalars && !rc) {
        const struct s_fact *branch = NULL;
        rc = s_fact_add(x->c, &branch, one_of);
        if (!rc) rc = s_fact_add(x->c, &branch, (struct s_fact){.kind = S_F_TYPES, .n = scalars});
        if (!rc) rc = s_push(x->c, &b.list, branch);
    }
    return rc ? rc : s_split_add(x->c, x->s, &b);
}

static int apply_const(struct s_scoped *x, const cJSON *schema) {
    const cJSON *value = s_key(schema, "const");
    return value ? add_elem(x, s_elem(s_node_of(x->c, value), S_EQUAL)) : 0;
}

int s_equal(struct s_scoped *x, uint32_t node) {
    const cJSON *v = s_at(x->c, node);
    uint32_t type = s_type_of(v), n = 0;
    x->s->types &= type;
    if (type & S_WORDS) return 0;
    if (type & (S_NUMBER | S_STRING))
        return add_fact(x, (struct s_fact){.kind = S_F_CONST, .node = node});
    for (const cJSON *p = v->child; p; p = p->next)
        n++;
    int rc = add_fact(
        x, (struct s_fact){
               .kind = type == S_ARRAY ? S_F_PLACES : S_F_COUNT, .node = node, .n = n, .m = n});
    if (rc) return rc;
    return add_fact(x,
                    (struct s_fact){.kind = type == S_ARRAY ? S_F_EQUAL_ITEMS : S_F_EQUAL_MEMBERS,
                                    .node = node});
}

/* ---- choices ---- */

static int read_schemas(struct s_ctx *c, const cJSON *schema, const char *key, const cJSON **out) {
    int rc = s_typed(c, schema, key, "array", out);
    if (rc || !*out || (*out)->child) return rc;
    return s_fail(c, ERR_INVALID, s_node_of(c, *out), "must not be empty");
}

/* If annotations matter, each non-empty subset of the alternatives is a case: it evaluates at least
 * what its alternatives evaluate. */
static int apply_any_of(struct s_scoped *x, const cJSON *list) {
    struct s_branches b = {0};
    int rc = 0, n = cJSON_GetArraySize(list);
    bool subsets = x->c->scopes.at[x->scope].unevaluated && n > 1 && !x->approx;
    if (subsets && n > ANNOTATED_ALTERNATIVES)
        return s_fail(
            x->c, ERR_UNSUPPORTED, s_node_of(x->c, list),
            "has too many alternatives (%d) for an unevaluated* keyword above; use oneOf with "
            "alternatives that exclude each other",
            n);
    for (uint32_t subset = 1; subsets && subset < 1u << n && !rc; subset++) {
        const struct s_fact *branch = NULL;
        uint32_t i = 0;
        for (const cJSON *p = list->child; p && !rc; p = p->next, i++)
            if (subset >> i & 1) rc = add_branch_elem(x, &branch, p, S_VALID);
        if (!rc) rc = s_push(x->c, &b.list, branch);
    }
    for (const cJSON *p = list->child; p && !subsets && !rc; p = p->next) {
        const struct s_fact *branch = NULL;
        rc = add_branch_elem(x, &branch, p, S_VALID);
        if (!rc) rc = s_push(x->c, &b.list, branch);
    }
    return rc ? rc : s_split_add(x->c, x->s, &b);
}

/* Each alternative is a case, minus the other alternatives that may be valid at the same time. */
static int apply_one_of(struct s_scoped *x, const cJSON *list) {
    struct s_branches b = {0};
    int rc = 0;
    for (const cJSON *p = list->child; p && !rc; p = p->next) {
        const struct s_fact *branch = NULL;
        uint32_t mine = s_elem(s_node_of(x->c, p), S_VALID);
        for (const cJSON *q = list->child; q && !rc && !x->approx; q = q->next) {
            uint32_t pair[2] = {mine, s_elem(s_node_of(x->c, q), S_VALID)}, set;
            bool both = false;
            if (p == q) continue;
            rc = s_set_of(x->c, pair, 2, &set);
            if (!rc) rc = s_may_be_valid(x->c, set, x->s->types, SCHEMA_OVERLAP_DEPTH, &both);
            if (!rc && both) rc = add_branch_elem(x, &branch, q, S_INVALID);
        }
        if (!rc) rc = add_branch_elem(x, &branch, p, S_VALID);
        if (!rc) rc = s_push(x->c, &b.list, branch);
    }
    return rc ? rc : s_split_add(x->c, x->s, &b);
}

static int apply_if(struct s_scoped *x, const cJSON *schema) {
    const cJSON *if_ = NULL, *then = NULL, *else_ = NULL;
    int rc = s_typed(x->c, schema, "if", "schema", &if_);
    if (!rc) rc = s_typed(x->c, schema, "then", "schema", &then);
    if (!rc) rc = s_typed(x->c, schema, "else", "schema", &else_);
    bool annotates = x->c->scopes.at[x->scope].unevaluated;
    if (rc || !if_ || (!then && !else_ && !annotates)) return rc;
    struct s_branches b = {0};
    const struct s_fact *yes = NULL, *no = NULL;
    rc = add_branch_elem(x, &yes, if_, S_VALID);
    if (!rc && then) rc = add_branch_elem(x, &yes, then, S_VALID);
    if (!rc && (then || else_)) rc = add_branch_elem(x, &no, if_, S_INVALID);
    if (!rc && else_) rc = add_branch_elem(x, &no, else_, S_VALID);
    if (!rc) rc = s_push(x->c, &b.list, yes);
    if (!rc) rc = s_push(x->c, &b.list, no);
    return rc ? rc : s_split_add(x->c, x->s, &b);
}

static int apply_logic(struct s_scoped *x, const cJSON *schema) {
    const cJSON *all = NULL, *any = NULL, *one = NULL, *not_ = NULL;
    int rc = read_schemas(x->c, schema, "allOf", &all);
    if (!rc) rc = read_schemas(x->c, schema, "anyOf", &any);
    if (!rc) rc = read_schemas(x->c, schema, "oneOf", &one);
    if (!rc) rc = s_typed(x->c, schema, "not", "schema", &not_);
    if (!rc && not_) rc = add_elem(x, s_elem(s_node_of(x->c, not_), S_INVALID));
    for (const cJSON *p = all ? all->child : NULL; p && !rc; p = p->next)
        rc = add_elem(x, s_elem(s_node_of(x->c, p), S_VALID));
    if (!rc && any) rc = apply_any_of(x, any);
    if (!rc && one) rc = apply_one_of(x, one);
    return rc ? rc : apply_if(x, schema);
}

/* ---- numbers and strings ---- */

static int apply_bound(struct s_scoped *x, const cJSON *schema, bool upper) {
    const cJSON *bound = NULL,
                *exclusive = s_key(schema, upper ? "exclusiveMaximum" : "exclusiveMinimum");
    enum s_fact_kind open = upper ? S_F_EXCLUSIVE_MAX : S_F_EXCLUSIVE_MIN;
    enum s_fact_kind closed = upper ? S_F_MAX : S_F_MIN;
    int rc = s_typed(x->c, schema, upper ? "maximum" : "minimum", "number", &bound);
    if (rc) return rc;
    if (cJSON_IsTrue(exclusive)) closed = open; /* draft 4 */
    if (bound) rc = add_fact(x, (struct s_fact){.kind = closed, .node = s_node_of(x->c, bound)});
    if (rc || !exclusive || cJSON_IsBool(exclusive)) return rc;
    uint32_t node = s_node_of(x->c, exclusive);
    if (!cJSON_IsNumber(exclusive)) return s_fail(x->c, ERR_INVALID, node, "must be a number");
    return add_fact(x, (struct s_fact){.kind = open, .node = node});
}

static int apply_number(struct s_scoped *x, const cJSON *schema) {
    const cJSON *multiple = NULL;
    int rc = apply_bound(x, schema, false);
    if (!rc) rc = apply_bound(x, schema, true);
    if (!rc) rc = s_typed(x->c, schema, "multipleOf", "number", &multiple);
    if (rc || !multiple) return rc;
    uint32_t node = s_node_of(x->c, multiple);
    if (!(multiple->valuedouble > 0))
        return s_fail(x->c, ERR_INVALID, node, "must be greater than 0");
    return add_fact(x, (struct s_fact){.kind = S_F_MULTIPLE, .node = node});
}

/* Two counts as one fact, from n to m. */
static int apply_counts(struct s_scoped *x, const cJSON *schema, const char *low, const char *high,
                        enum s_fact_kind kind) {
    struct s_fact f = {.kind = kind, .m = GRAMMAR_UNLIMITED, .node = s_node_of(x->c, schema)};
    bool has_low = false, has_high = false;
    int rc = s_count(x->c, schema, low, &f.n, &has_low);
    if (!rc) rc = s_count(x->c, schema, high, &f.m, &has_high);
    return rc || (!has_low && !has_high) ? rc : add_fact(x, f);
}

static int apply_string(struct s_scoped *x, const cJSON *schema) {
    const cJSON *pattern = NULL, *format = NULL;
    int rc = apply_counts(x, schema, "minLength", "maxLength", S_F_LENGTH);
    if (!rc) rc = s_typed(x->c, schema, "pattern", "string", &pattern);
    if (!rc) rc = s_typed(x->c, schema, "format", "string", &format);
    if (!rc && pattern)
        rc = add_fact(x, (struct s_fact){.kind = S_F_PATTERN, .node = s_node_of(x->c, pattern)});
    if (!rc && format)
        rc = add_fact(x, (struct s_fact){.kind = S_F_FORMAT, .node = s_node_of(x->c, format)});
    return rc;
}

/* ---- arrays ---- */

static int apply_contains(struct s_scoped *x, const cJSON *schema) {
    const cJSON *contains = NULL;
    struct s_fact f = {.kind = S_F_CONTAINS, .n = 1, .m = GRAMMAR_UNLIMITED};
    bool has;
    int rc = s_typed(x->c, schema, "contains", "schema", &contains);
    if (rc || !contains) return rc;
    if (!s_is_legacy(x->c, s_node_of(x->c, schema))) {
        rc = s_count(x->c, schema, "minContains", &f.n, &has);
        if (!rc) rc = s_count(x->c, schema, "maxContains", &f.m, &has);
    }
    f.node = s_node_of(x->c, contains);
    f.elem = s_elem(f.node, S_VALID);
    return rc ? rc : add_fact(x, f);
}

static int apply_array(struct s_scoped *x, const cJSON *schema) {
    const cJSON *unique = NULL, *others = NULL, *items = s_key(schema, "items");
    uint32_t node = s_node_of(x->c, schema);
    int rc = apply_counts(x, schema, "minItems", "maxItems", S_F_PLACES);
    if (!rc) rc = s_typed(x->c, schema, "uniqueItems", "boolean", &unique);
    if (!rc) rc = s_typed(x->c, schema, "unevaluatedItems", "schema", &others);
    if (!rc && (items || s_key(schema, "prefixItems")))
        rc = add_fact(x, (struct s_fact){.kind = S_F_ITEMS, .node = node});
    if (!rc && cJSON_IsTrue(unique))
        rc = add_fact(x, (struct s_fact){.kind = S_F_UNIQUE, .node = s_node_of(x->c, unique)});
    if (!rc) rc = apply_contains(x, schema);
    if (rc || !others) return rc;
    uint32_t elem = s_elem(s_node_of(x->c, others), S_VALID);
    return add_fact(x, (struct s_fact){.kind = S_F_OTHER_ITEMS, .node = elem >> 2, .elem = elem});
}

/* ---- objects ---- */

static int add_required(struct s_ctx *c, const struct s_fact **list, const cJSON *names) {
    int rc = 0;
    if (!cJSON_IsArray(names))
        return s_fail(c, ERR_INVALID, s_node_of(c, names), "must be a list of names");
    for (const cJSON *p = names->child; p && !rc; p = p->next) {
        uint32_t node = s_node_of(c, p);
        if (!cJSON_IsString(p)) return s_fail(c, ERR_INVALID, node, "must be a string");
        rc = s_fact_add(
            c, list, (struct s_fact){.kind = S_F_REQUIRED, .node = node, .name = p->valuestring});
    }
    return rc;
}

/* Two cases: without the member, or with it and with what depends on it (names, or a schema). */
static int apply_dependency(struct s_scoped *x, const cJSON *on) {
    struct s_branches b = {0};
    const struct s_fact *without = NULL, *with = NULL;
    struct s_fact name = {.kind = S_F_FORBIDDEN, .node = s_node_of(x->c, on), .name = on->string};
    int rc = s_fact_add(x->c, &without, name);
    name.kind = S_F_REQUIRED;
    if (!rc) rc = s_fact_add(x->c, &with, name);
    if (!rc && cJSON_IsArray(on))
        rc = add_required(x->c, &with, on);
    else if (!rc && (cJSON_IsObject(on) || cJSON_IsBool(on)))
        rc = add_branch_elem(x, &with, on, S_VALID);
    else if (!rc)
        rc = s_fail(x->c, ERR_INVALID, name.node, "must be a list of names or a schema");
    struct s_fact object = {.kind = S_F_TYPES, .n = S_OBJECT};
    if (!rc) rc = s_fact_add(x->c, &with, object);
    if (!rc) rc = s_push(x->c, &b.list, without);
    if (!rc) rc = s_push(x->c, &b.list, with);
    return rc ? rc : s_split_add(x->c, x->s, &b);
}

static int apply_dependencies(struct s_scoped *x, const cJSON *schema) {
    static const char *const keys[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    int rc = 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !rc; i++) {
        const cJSON *map;
        rc = s_typed(x->c, schema, keys[i], "object", &map);
        for (const cJSON *p = map && !rc ? map->child : NULL; p && !rc; p = p->next)
            if (!cJSON_IsArray(p) || p->child) rc = apply_dependency(x, p);
    }
    return rc;
}

static int apply_object(struct s_scoped *x, const cJSON *schema) {
    const cJSON *properties = NULL, *patterns = NULL, *additional = NULL, *names = NULL,
                *others = NULL;
    const cJSON *required = s_key(schema, "required");
    int rc = s_typed(x->c, schema, "properties", "object", &properties);
    if (!rc) rc = s_typed(x->c, schema, "patternProperties", "object", &patterns);
    if (!rc) rc = s_typed(x->c, schema, "additionalProperties", "schema", &additional);
    if (!rc) rc = s_typed(x->c, schema, "propertyNames", "schema", &names);
    if (!rc) rc = s_typed(x->c, schema, "unevaluatedProperties", "schema", &others);
    if (!rc && (properties || patterns || additional))
        rc = add_fact(x, (struct s_fact){.kind = S_F_MEMBERS, .node = s_node_of(x->c, schema)});
    if (!rc && required) rc = add_required(x->c, &x->s->facts, required);
    if (!rc) rc = apply_counts(x, schema, "minProperties", "maxProperties", S_F_COUNT);
    if (!rc && names) {
        uint32_t node = s_node_of(x->c, names);
        rc = add_fact(
            x, (struct s_fact){.kind = S_F_NAMES, .node = node, .elem = s_elem(node, S_VALID)});
    }
    if (!rc) rc = apply_dependencies(x, schema);
    if (rc || !others) return rc;
    uint32_t elem = s_elem(s_node_of(x->c, others), S_VALID);
    return add_fact(x, (struct s_fact){.kind = S_F_OTHER_MEMBERS, .node = elem >> 2, .elem = elem});
}

/* ---- a schema ---- */

static int apply_reference(struct s_scoped *x, const cJSON *schema) {
    static const char *const keys[] = {"$ref", "$dynamicRef", "$recursiveRef"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const cJSON *ref = s_key(schema, keys[i]);
        uint32_t target;
        if (!ref) continue;
        int rc = s_resolve(x->c, ref, &target);
        if (!rc) rc = add_elem(x, s_elem(target, S_VALID));
        if (rc) return rc;
    }
    return 0;
}

int s_apply(struct s_scoped *x, uint32_t node) {
    const cJSON *schema = s_at(x->c, node);
    if (cJSON_IsBool(schema)) {
        if (cJSON_IsFalse(schema)) x->s->types = 0;
        return 0;
    }
    if (!cJSON_IsObject(schema))
        return s_fail(x->c, ERR_INVALID, node, "must be a schema (an object, true or false)");
    int rc = apply_reference(x, schema);
    if (s_key(schema, "$ref") && s_is_legacy(x->c, node)) return rc;
    if (!rc) rc = apply_type(x, schema);
    if (!rc) rc = apply_enum(x, schema);
    if (!rc) rc = apply_const(x, schema);
    if (!rc) rc = apply_logic(x, schema);
    if (!rc) rc = apply_number(x, schema);
    if (!rc) rc = apply_string(x, schema);
    if (!rc) rc = apply_array(x, schema);
    return rc ? rc : apply_object(x, schema);
}
