/* schema/set.c - sets of conjuncts, interned: equal sets have one number and are compiled once.
 * References without other keywords are followed here, so that a schema and references to it are
 * the same conjunct. */
#include "core/grammar/schema/schema_int.h"

#include <stdlib.h>
#include <string.h>

enum { REFERENCE_HOPS = 256 };

/* Does the keyword constrain values? All others are annotations, or unknown. */
static bool keyword_constrains(const char *keyword) {
    static const char *const known[] = {"type",
                                        "enum",
                                        "const",
                                        "allOf",
                                        "anyOf",
                                        "oneOf",
                                        "not",
                                        "if",
                                        "minimum",
                                        "maximum",
                                        "exclusiveMinimum",
                                        "exclusiveMaximum",
                                        "multipleOf",
                                        "minLength",
                                        "maxLength",
                                        "pattern",
                                        "format",
                                        "items",
                                        "prefixItems",
                                        "additionalItems",
                                        "contains",
                                        "minItems",
                                        "maxItems",
                                        "uniqueItems",
                                        "unevaluatedItems",
                                        "properties",
                                        "patternProperties",
                                        "additionalProperties",
                                        "propertyNames",
                                        "required",
                                        "minProperties",
                                        "maxProperties",
                                        "dependentRequired",
                                        "dependentSchemas",
                                        "dependencies",
                                        "unevaluatedProperties",
                                        "$ref",
                                        "$dynamicRef",
                                        "$recursiveRef",
                                        "nullable"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(keyword, known[i]) == 0) return true;
    return false;
}

/* The only constraining keyword of the schema; NULL: there is none, or (*n > 1) several. */
static const cJSON *only_constraint(const cJSON *schema, int *n) {
    const cJSON *one = NULL;
    *n = 0;
    for (const cJSON *p = schema->child; p; p = p->next)
        if (keyword_constrains(p->string)) {
            one = p;
            ++*n;
        }
    return *n == 1 ? one : NULL;
}

/* Follows references; *drop: the conjunct constrains nothing. */
static int simplify_conjunct(struct s_ctx *c, uint32_t *elem, bool *drop) {
    *drop = false;
    for (int hops = 0; hops < REFERENCE_HOPS; hops++) {
        uint32_t kind = *elem & 3, node = *elem >> 2;
        const cJSON *at = s_at(c, node);
        if (kind == S_EQUAL || kind == S_DIFFERENT) return 0;
        if (!cJSON_IsObject(at)) {
            *drop = kind == S_VALID ? cJSON_IsTrue(at) : cJSON_IsFalse(at);
            return 0;
        }
        int n;
        const cJSON *one = only_constraint(at, &n), *ref = s_key(at, "$ref");
        if (n == 0) *drop = kind == S_VALID;
        if (ref && (one == ref || s_is_legacy(c, node))) {
            int rc = s_resolve(c, ref, &node);
            if (rc) return rc;
            *elem = s_elem(node, (enum s_elem_kind)kind);
        } else if (one && strcmp(one->string, "not") == 0 &&
                   (cJSON_IsObject(one) || cJSON_IsBool(one))) {
            *elem = s_elem(s_node_of(c, one), kind == S_VALID ? S_INVALID : S_VALID);
        } else {
            return 0;
        }
    }
    return s_fail(c, ERR_INVALID, *elem >> 2, "refers to itself and describes no value");
}

static int compare_elems(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

int s_set_of(struct s_ctx *c, const uint32_t *elems, uint32_t n, uint32_t *set) {
    uint32_t *mine = s_new(c, n ? n : 1, sizeof *mine), kept = 0;
    if (!mine) return ERR_NOMEM;
    int rc = s_spend(c, n + 1, n ? elems[0] >> 2 : 0);
    for (uint32_t i = 0; i < n && !rc; i++) {
        bool drop;
        mine[kept] = elems[i];
        rc = simplify_conjunct(c, &mine[kept], &drop);
        kept += !drop;
    }
    if (rc) return rc;
    qsort(mine, kept, sizeof *mine, compare_elems);
    uint32_t unique = 0;
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < kept; i++)
        if (!i || mine[i] != mine[i - 1]) {
            mine[unique++] = mine[i];
            hash = (hash ^ mine[i]) * 0x100000001b3u;
        }
    uint32_t *bucket = &c->buckets[(hash ^ hash >> 32) % S_SET_BUCKETS];
    for (uint32_t s = *bucket; s; s = c->sets.at[s - 1].next) {
        const struct s_set *old = &c->sets.at[s - 1];
        work_spend(c->g->work, 1 + old->n / 32);
        if (old->n == unique && memcmp(old->elems, mine, unique * sizeof *mine) == 0) {
            *set = s - 1;
            return 0;
        }
    }
    if (c->sets.n >= GRAMMAR_MAX_NODES)
        return s_fail(c, ERR_TOO_LONG, unique ? mine[0] >> 2 : 0, "has too many combinations");
    *set = c->sets.n;
    struct s_set fresh = {.elems = mine, .n = unique, .next = *bucket, .value = GRAMMAR_NONE};
    rc = s_push(c, &c->sets, fresh);
    if (!rc) *bucket = *set + 1;
    return rc;
}
