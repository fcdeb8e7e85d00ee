/* schema/negate.c - the negation of a schema: one case for each keyword that may be the one
 * violated. Negations that no form can express become S_F_UNSUPPORTED facts, which are an error
 * only if the case is possible otherwise. */
#include "core/grammar/schema/schema_int.h"

#include <string.h>

enum {
    FEW_DECLARED = 4, /* properties whose subsets are all cases */
    PAIRS_MAX = 12    /* alternatives of a negated oneOf */
};

/* A case under construction. */
struct branch {
    struct s_scoped *x;
    struct s_branches *out;
    const struct s_fact *facts;
    int rc;
};

static struct branch begin_case(struct s_scoped *x, struct s_branches *out, uint32_t types) {
    struct branch m = {x, out, NULL, 0};
    if (types != S_ALL)
        m.rc = s_fact_add(x->c, &m.facts, (struct s_fact){.kind = S_F_TYPES, .n = types});
    return m;
}

static void case_add_fact(struct branch *m, struct s_fact f) {
    f.scope = m->x->scope;
    if (!m->rc) m->rc = s_fact_add(m->x->c, &m->facts, f);
}

static void case_add_elem(struct branch *m, const cJSON *at, enum s_elem_kind kind) {
    case_add_fact(m,
                  (struct s_fact){.kind = S_F_ELEM, .elem = s_elem(s_node_of(m->x->c, at), kind)});
}

static int end_case(struct branch *m) {
    return m->rc ? m->rc : s_push(m->x->c, &m->out->list, m->facts);
}

static int add_case(struct s_scoped *x, struct s_branches *out, uint32_t types, struct s_fact f) {
    struct branch m = begin_case(x, out, types);
    case_add_fact(&m, f);
    return end_case(&m);
}

static int add_unsupported(struct s_scoped *x, struct s_branches *out, const cJSON *keyword,
                           uint32_t types, const char *why) {
    return add_case(
        x, out, types,
        (struct s_fact){
            .kind = S_F_UNSUPPORTED, .node = s_node_of(x->c, keyword), .n = types, .name = why});
}

static int add_negation(struct s_scoped *x, struct s_branches *out, const cJSON *schema) {
    struct branch m = begin_case(x, out, S_ALL);
    case_add_elem(&m, schema, S_INVALID);
    return end_case(&m);
}

/* ---- any type ---- */

static int negate_type(struct s_scoped *x, const cJSON *schema, struct s_branches *out) {
    const cJSON *type = s_key(schema, "type");
    uint32_t mask;
    bool integer;
    if (!type) return 0;
    int rc = s_types(x->c, type, &mask, &integer);
    if (rc) return rc;
    if (cJSON_IsTrue(s_key(schema, "nullable"))) mask |= S_NULL;
    struct branch m = begin_case(x, out, S_ALL & ~mask);
    rc = end_case(&m);
    if (rc || !integer) return rc;
    return add_case(
        x, out, S_NUMBER,
        (struct s_fact){.kind = S_F_INTEGER, .negated = true, .node = s_node_of(x->c, type)});
}

static int negate_enum(struct s_scoped *x, const cJSON *schema, struct s_branches *out) {
    const cJSON *list = NULL, *value = s_key(schema, "const");
    int rc = s_typed(x->c, schema, "enum", "array", &list);
    if (!rc && list) {
        struct branch m = begin_case(x, out, S_ALL);
        for (const cJSON *p = list->child; p; p = p->next)
            case_add_elem(&m, p, S_DIFFERENT);
        rc = end_case(&m);
    }
    if (rc || !value) return rc;
    struct branch m = begin_case(x, out, S_ALL);
    case_add_elem(&m, value, S_DIFFERENT);
    return end_case(&m);
}

static int different_array(struct s_scoped *x, const cJSON *v, struct s_branches *b) {
    uint32_t n = (uint32_t)cJSON_GetArraySize(v), i = 0, node = s_node_of(x->c, v);
    struct s_fact places = {.kind = S_F_PLACES, .node = node, .n = n + 1, .m = GRAMMAR_UNLIMITED};
    int rc = add_case(x, b, S_ARRAY, places);
    if (!rc && n) rc = add_case(x, b, S_ARRAY, (struct s_fact){.kind = S_F_PLACES, .m = n - 1});
    for (const cJSON *p = v->child; p && !rc; p = p->next, i++) {
        struct branch m = begin_case(x, b, S_ARRAY);
        places.n = i + 1;
        case_add_fact(&m, places);
        case_add_fact(&m, (struct s_fact){.kind = S_F_ITEM,
                                          .n = i,
                                          .elem = s_elem(s_node_of(x->c, p), S_DIFFERENT)});
        rc = end_case(&m);
    }
    return rc;
}

/* Lacks a member, has another value for one, or has more members. */
static int different_object(struct s_scoped *x, const cJSON *v, struct s_branches *b) {
    uint32_t n = (uint32_t)cJSON_GetArraySize(v);
    int rc = add_case(x, b, S_OBJECT,
                      (struct s_fact){.kind = S_F_COUNT, .n = n + 1, .m = GRAMMAR_UNLIMITED});
    for (const cJSON *p = v->child; p && !rc; p = p->next)
        rc = add_case(x, b, S_OBJECT,
                      (struct s_fact){.kind = S_F_PROPERTY,
                                      .name = p->string,
                                      .elem = s_elem(s_node_of(x->c, p), S_DIFFERENT)});
    return rc;
}

int s_different(struct s_scoped *x, uint32_t node) {
    const cJSON *v = s_at(x->c, node);
    uint32_t type = s_type_of(v);
    if (type & S_WORDS) x->s->types &= ~type;
    if (type & S_WORDS) return 0;
    if (type & (S_NUMBER | S_STRING)) {
        struct s_fact f = {.kind = S_F_CONST, .negated = true, .node = node, .scope = x->scope};
        return s_fact_add(x->c, &x->s->facts, f);
    }
    struct s_branches b = {0};
    struct branch m = begin_case(x, &b, S_ALL & ~type);
    int rc = end_case(&m);
    if (!rc) rc = type == S_ARRAY ? different_array(x, v, &b) : different_object(x, v, &b);
    return rc ? rc : s_split_add(x->c, x->s, &b);
}

/* ---- choices ---- */

static int negate_one_of(struct s_scoped *x, const cJSON *list, struct s_branches *out) {
    int rc = 0;
    if (cJSON_GetArraySize(list) > PAIRS_MAX)
        return add_unsupported(x, out, list, S_ALL, "has too many alternatives to be negated");
    struct branch none = begin_case(x, out, S_ALL);
    for (const cJSON *p = list->child; p; p = p->next)
        case_add_elem(&none, p, S_INVALID);
    rc = end_case(&none);
    for (const cJSON *p = list->child; p; p = p->next)
        for (const cJSON *q = p->next; q && !rc; q = q->next) {
            struct branch both = begin_case(x, out, S_ALL);
            case_add_elem(&both, p, S_VALID);
            case_add_elem(&both, q, S_VALID);
            rc = end_case(&both);
        }
    return rc;
}

static int negate_if(struct s_scoped *x, const cJSON *schema, struct s_branches *out) {
    const cJSON *if_ = s_key(schema, "if");
    static const char *const keys[] = {"then", "else"};
    int rc = 0;
    for (int i = 0; i < 2 && if_ && !rc; i++) {
        const cJSON *what = s_key(schema, keys[i]);
        if (!what) continue;
        struct branch m = begin_case(x, out, S_ALL);
        case_add_elem(&m, if_, i == 0 ? S_VALID : S_INVALID);
        case_add_elem(&m, what, S_INVALID);
        rc = end_case(&m);
    }
    return rc;
}

static int negate_logic(struct s_scoped *x, const cJSON *schema, struct s_branches *out) {
    const cJSON *all = NULL, *any = NULL, *one_of = NULL, *not_ = s_key(schema, "not");
    int rc = s_typed(x->c, schema, "allOf", "array", &all);
    if (!rc) rc = s_typed(x->c, schema, "anyOf", "array", &any);
    if (!rc) rc = s_typed(x->c, schema, "oneOf", "array", &one_of);
    for (const cJSON *p = all && !rc ? all->child : NULL; p && !rc; p = p->next)
        rc = add_negation(x, out, p);
    if (any && !rc) {
        struct branch m = begin_case(x, out, S_ALL);
        for (const cJSON *p = any->child; p; p = p->next)
            case_add_elem(&m, p, S_INVALID);
        rc = end_case(&m);
    }
    if (one_of && !rc) rc = negate_one_of(x, one_of, out);
    if (not_ && !rc) {
        struct branch m = begin_case(x, out, S_ALL);
        case_add_elem(&m, not_, S_VALID);
        rc = end_case(&m);
    }
    return rc ? rc : negate_if(x, schema, out);
}

/* ---- numbers and strings ---- */

/* The negation of a lower bound is an exclusive upper bound, and so on. */
static int negate_bound(struct s_scoped *x, const cJSON *schema, bool upper,
                        struct s_branches *out) {
    const cJSON *bound = s_key(schema, upper ? "maximum" : "minimum");
    const cJSON *exclusive = s_key(schema, upper ? "exclusiveMaximum" : "exclusiveMinimum");
    enum s_fact_kind beyond = upper ? S_F_EXCLUSIVE_MIN : S_F_EXCLUSIVE_MAX;
    enum s_fact_kind from = upper ? S_F_MIN : S_F_MAX;
    int rc = 0;
    if (cJSON_IsNumber(bound))
        rc = add_case(x, out, S_NUMBER,
                      (struct s_fact){.kind = cJSON_IsTrue(exclusive) ? from : beyond,
                                      .node = s_node_of(x->c, bound)});
    if (!rc && cJSON_IsNumber(exclusive))
        rc = add_case(x, out, S_NUMBER,
                      (struct s_fact){.kind = from, .node = s_node_of(x->c, exclusive)});
    return rc;
}

static int negate_scalar(struct s_scoped *x, const cJSON *schema, struct s_branches *out) {
    static const struct {
        const char *key;
        enum s_fact_kind kind;
        uint32_t types;
    } plain[] = {{"multipleOf", S_F_MULTIPLE, S_NUMBER},
                 {"pattern", S_F_PATTERN, S_STRING},
                 {"format", S_F_FORMAT, S_STRING}};
    int rc = negate_bound(x, schema, false, out);
    if (!rc) rc = negate_bound(x, schema, true, out);
    for (size_t i = 0; i < sizeof plain / sizeof plain[0] && !rc; i++) {
        const cJSON *v;
        rc = s_typed(x->c, schema, plain[i].key, i ? "string" : "number", &v);
        if (v && !rc)
            rc = add_case(x, out, plain[i].types,
                          (struct s_fact){
                              .kind = plain[i].kind, .negated = true, .node = s_node_of(x->c, v)});
    }
    return rc;
}

/* Fewer than low, more than high. */
static int negate_counts(struct s_scoped *x, const cJSON *schema, const char *const keys[2],
                         struct s_fact f, struct s_branches *out) {
    uint32_t n = 0;
    bool has;
    uint32_t types = f.kind == S_F_LENGTH ? S_STRING : f.kind == S_F_PLACES ? S_ARRAY : S_OBJECT;
    int rc = s_count(x->c, schema, keys[0], &n, &has);
    f.node = s_node_of(x->c, schema);
    if (!rc && has && n) {
        f.n = 0;
        f.m = n - 1;
        rc = add_case(x, out, types, f);
    }
    if (!rc) rc = s_count(x->c, schema, keys[1], &n, &has);
    if (rc || !has) return rc;
    f.n = n + 1;
    f.m = GRAMMAR_UNLIMITED;
    return add_case(x, out, types, f);
}

/* ---- arrays ---- */

static int negate_places(struct s_scoped *x, const cJSON *prefix, struct s_branches *out) {
    uint32_t i = 0;
    int rc = 0;
    for (const cJSON *p = prefix ? prefix->child : NULL; p && !rc; p = p->next, i++) {
        struct branch m = begin_case(x, out, S_ARRAY);
        case_add_fact(&m, (struct s_fact){.kind = S_F_PLACES, .n = i + 1, .m = GRAMMAR_UNLIMITED});
        case_add_fact(&m, (struct s_fact){.kind = S_F_ITEM,
                                          .n = i,
                                          .elem = s_elem(s_node_of(x->c, p), S_INVALID)});
        rc = end_case(&m);
    }
    return rc;
}

static int negate_items(struct s_scoped *x, const cJSON *schema, struct s_branches *out) {
    const cJSON *prefix = s_key(schema, "prefixItems"), *items = s_key(schema, "items");
    if (cJSON_IsArray(items)) {
        prefix = items;
        items = s_key(schema, "additionalItems");
    }
    uint32_t n = prefix ? (uint32_t)cJSON_GetArraySize(prefix) : 0;
    int rc = negate_places(x, prefix, out);
    if (rc || !items || cJSON_IsTrue(items)) return rc;
    if (cJSON_IsFalse(items))
        return add_case(x, out, S_ARRAY,
                        (struct s_fact){.kind = S_F_PLACES, .n = n + 1, .m = GRAMMAR_UNLIMITED});
    if (n) return add_unsupported(x, out, items, S_ARRAY, "cannot be negated after prefixItems");
    uint32_t node = s_node_of(x->c, items);
    return add_case(x, out, S_ARRAY,
                    (struct s_fact){.kind = S_F_CONTAINS,
                                    .node = node,
                                    .elem = s_elem(node, S_INVALID),
                                    .n = 1,
                                    .m = GRAMMAR_UNLIMITED});
}

static int negate_contains(struct s_scoped *x, const cJSON *schema, struct s_branches *out) {
    const cJSON *contains = s_key(schema, "contains");
    uint32_t low = 1, high = GRAMMAR_UNLIMITED;
    bool has;
    if (!contains) return 0;
    int rc = s_count(x->c, schema, "minContains", &low, &has);
    if (!rc) rc = s_count(x->c, schema, "maxContains", &high, &has);
    if (rc) return rc;
    uint32_t node = s_node_of(x->c, contains);
    struct s_fact f = {.kind = S_F_CONTAINS, .node = node, .elem = s_elem(node, S_VALID)};
    if (low) {
        f.m = low - 1;
        rc = add_case(x, out, S_ARRAY, f);
    }
    if (rc || high == GRAMMAR_UNLIMITED) return rc;
    f.n = high + 1;
    f.m = GRAMMAR_UNLIMITED;
    return add_case(x, out, S_ARRAY, f);
}

static int negate_array(struct s_scoped *x, const cJSON *schema, struct s_branches *out) {
    static const char *const counts[2] = {"minItems", "maxItems"};
    const cJSON *unique = s_key(schema, "uniqueItems"), *others = s_key(schema, "unevaluatedItems");
    int rc = negate_counts(x, schema, counts, (struct s_fact){.kind = S_F_PLACES}, out);
    if (!rc) rc = negate_items(x, schema, out);
    if (!rc) rc = negate_contains(x, schema, out);
    if (!rc && cJSON_IsTrue(unique))
        rc = add_unsupported(x, out, unique, S_ARRAY, "cannot be negated");
    if (!rc && others && !cJSON_IsTrue(others))
        rc = add_unsupported(x, out, others, S_ARRAY, "cannot be negated");
    return rc;
}

/* ---- objects ---- */

static bool lists_name(const cJSON *names, const char *name) {
    for (const cJSON *p = names ? names->child : NULL; p; p = p->next)
        if (cJSON_IsString(p) && strcmp(p->valuestring, name) == 0) return true;
    return false;
}

/* A member is missing or invalid; one case covers both for a required name with a schema. */
static int negate_members(struct s_scoped *x, const cJSON *schema, struct s_branches *out) {
    const cJSON *properties = NULL, *required = s_key(schema, "required");
    int rc = s_typed(x->c, schema, "properties", "object", &properties);
    for (const cJSON *p = properties ? properties->child : NULL; p && !rc; p = p->next) {
        struct s_fact f = {.kind = S_F_PROPERTY, .name = p->string, .node = s_node_of(x->c, p)};
        struct branch m = begin_case(x, out, S_OBJECT);
        f.elem = s_elem(f.node, S_INVALID);
        case_add_fact(&m, f);
        f.kind = S_F_REQUIRED;
        if (!lists_name(required, p->string)) case_add_fact(&m, f);
        rc = end_case(&m);
    }
    for (const cJSON *p = required ? required->child : NULL; p && !rc; p = p->next)
        if (cJSON_IsString(p) && !(properties && s_key(properties, p->valuestring)))
            rc = add_case(x, out, S_OBJECT,
                          (struct s_fact){.kind = S_F_FORBIDDEN,
                                          .node = s_node_of(x->c, p),
                                          .name = p->valuestring});
    return rc;
}

/* Some member has none of these few names: for each subset of missing names there are more members
 * than the names that are present. */
static int negate_closed(struct s_scoped *x, const cJSON *schema, const cJSON *additional,
                         struct s_branches *out) {
    const cJSON *properties = s_key(schema, "properties");
    uint32_t n = properties ? (uint32_t)cJSON_GetArraySize(properties) : 0;
    int rc = 0;
    if (!cJSON_IsFalse(additional) || s_key(schema, "patternProperties") || n > FEW_DECLARED)
        return add_unsupported(
            x, out, additional, S_OBJECT,
            "cannot be negated (as not, if and a oneOf with overlapping alternatives do); "
            "distinguish the alternatives by the const of a required property");
    for (uint32_t missing = 0; missing < 1u << n && !rc; missing++) {
        struct branch m = begin_case(x, out, S_OBJECT);
        uint32_t there = 0, i = 0;
        for (const cJSON *p = properties ? properties->child : NULL; p; p = p->next, i++) {
            if (missing >> i & 1)
                case_add_fact(&m, (struct s_fact){.kind = S_F_FORBIDDEN, .name = p->string});
            else
                there++;
        }
        case_add_fact(&m,
                      (struct s_fact){.kind = S_F_COUNT, .n = there + 1, .m = GRAMMAR_UNLIMITED});
        rc = end_case(&m);
    }
    return rc;
}

static int negate_dependencies(struct s_scoped *x, const cJSON *schema, struct s_branches *out) {
    static const char *const keys[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    int rc = 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const cJSON *map = s_key(schema, keys[i]);
        for (const cJSON *on = map ? map->child : NULL; on && !rc; on = on->next) {
            struct s_fact has = {.kind = S_F_REQUIRED, .name = on->string};
            bool names = cJSON_IsArray(on);
            for (const cJSON *p = names ? on->child : on; p && !rc; p = names ? p->next : NULL) {
                struct branch m = begin_case(x, out, S_OBJECT);
                case_add_fact(&m, has);
                if (names && cJSON_IsString(p))
                    case_add_fact(&m,
                                  (struct s_fact){.kind = S_F_FORBIDDEN, .name = p->valuestring});
                else
                    case_add_elem(&m, p, S_INVALID);
                rc = end_case(&m);
            }
        }
    }
    return rc;
}

static int negate_object(struct s_scoped *x, const cJSON *schema, struct s_branches *out) {
    static const char *const counts[2] = {"minProperties", "maxProperties"};
    static const char *const hard[] = {"patternProperties", "propertyNames",
                                       "unevaluatedProperties"};
    const cJSON *additional = s_key(schema, "additionalProperties");
    int rc = negate_members(x, schema, out);
    if (!rc) rc = negate_counts(x, schema, counts, (struct s_fact){.kind = S_F_COUNT}, out);
    if (!rc && additional && !cJSON_IsTrue(additional))
        rc = negate_closed(x, schema, additional, out);
    for (size_t i = 0; i < sizeof hard / sizeof hard[0] && !rc; i++) {
        const cJSON *v = s_key(schema, hard[i]);
        if (v && !cJSON_IsTrue(v)) rc = add_unsupported(x, out, v, S_OBJECT, "cannot be negated");
    }
    return rc ? rc : negate_dependencies(x, schema, out);
}

/* ---- a schema ---- */

int s_negate(struct s_scoped *x, uint32_t node) {
    static const char *const lengths[2] = {"minLength", "maxLength"};
    static const char *const references[] = {"$ref", "$dynamicRef", "$recursiveRef"};
    const cJSON *schema = s_at(x->c, node);
    struct s_branches b = {0};
    int rc = 0;
    if (cJSON_IsTrue(schema)) x->s->types = 0;
    if (cJSON_IsBool(schema)) return 0;
    if (!cJSON_IsObject(schema))
        return s_fail(x->c, ERR_INVALID, node, "must be a schema (an object, true or false)");
    for (size_t i = 0; i < sizeof references / sizeof references[0] && !rc; i++) {
        const cJSON *ref = s_key(schema, references[i]);
        uint32_t target;
        if (!ref) continue;
        rc = s_resolve(x->c, ref, &target);
        if (!rc) rc = add_negation(x, &b, s_at(x->c, target));
    }
    if (!s_key(schema, "$ref") || !s_is_legacy(x->c, node)) {
        if (!rc) rc = negate_type(x, schema, &b);
        if (!rc) rc = negate_enum(x, schema, &b);
        if (!rc) rc = negate_logic(x, schema, &b);
        if (!rc) rc = negate_scalar(x, schema, &b);
        if (!rc) rc = negate_counts(x, schema, lengths, (struct s_fact){.kind = S_F_LENGTH}, &b);
        if (!rc) rc = negate_array(x, schema, &b);
        if (!rc) rc = negate_object(x, schema, &b);
    }
    return rc ? rc : s_split_add(x->c, x->s, &b);
}
