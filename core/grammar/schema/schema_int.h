/* schema_int.h - JSON Schema on its way to values. Private to core/grammar/schema*.c.
 *
 *   schema/doc.c      the document: pointers, ids, anchors, references
 *   schema/set.c      sets of conjuncts: what a value has to be valid against, all at once
 *   schema/expand.c   a set -> forms (one for each way through anyOf, oneOf, if, not)
 *   schema/positive.c, schema/negate.c   what a schema, or its opposite, adds to a form
 *   schema/text.c     a form's numbers and strings -> automata
 *   schema/array.c, schema/object.c      a form's arrays and objects
 *   schema.c          all sets that are reachable; which are empty; the values of the grammar
 *
 * A conjunct ("elem") is a node of the document and how it counts. Sets are interned, so that
 * recursion ends: equal sets are one value. All memory is the context's arena. */
#ifndef INFERD_GRAMMAR_SCHEMA_SCHEMA_INT_H
#define INFERD_GRAMMAR_SCHEMA_SCHEMA_INT_H

#include "core/base/mem.h"
#include "core/grammar/grammar_int.h"

enum {
    SCHEMA_MAX_FORMS = 4096, /* of one value */
    /* Of all schemas of a grammar together: */
    SCHEMA_MAX_WORK = 4 << 20,     /* facts that are looked at */
    SCHEMA_MAX_DFA_WORK = 4 << 20, /* states that are made on the way (dfa.cost) */
    SCHEMA_MAX_PLACES = 4096,      /* of an array that have a schema of their own */
    SCHEMA_MAX_ARENA_BYTES = 96 << 20,
    SCHEMA_FEW_WORDS = 64 /* a language of keys with as many words becomes properties */
};

/* ---- the document ---- */

struct s_node {
    const cJSON *at;
    uint32_t parent, resource;
};
/* A schema with an id, and the document itself. legacy: draft 7 or older. */
struct s_resource {
    uint32_t root;
    const char *uri; /* without fragment */
    bool legacy;
};
struct s_anchor {
    uint32_t resource, node;
    const char *name;
    bool dynamic;
};

/* A list in the arena. */
#define S_LIST(type)                                                                               \
    struct {                                                                                       \
        type *at;                                                                                  \
        uint32_t n, capacity;                                                                      \
    }

struct s_doc {
    S_LIST(struct s_node) nodes;
    uint32_t *table;   /* (table_size) of node numbers + 1, by the address of the node */
    uint32_t *members; /* (table_size) of those within objects, by the object and their name */
    uint32_t table_size;
    S_LIST(struct s_resource) resources;
    S_LIST(struct s_anchor) anchors;
};

/* ---- sets ---- */

enum s_elem_kind {
    S_VALID,    /* valid against the schema at the node */
    S_INVALID,  /* not valid against it */
    S_EQUAL,    /* the value at the node */
    S_DIFFERENT /* any other value */
};
static inline uint32_t s_elem(uint32_t node, enum s_elem_kind kind) {
    return node << 2 | (uint32_t)kind;
}

enum {
    S_NULL = 1,
    S_FALSE = 2,
    S_TRUE = 4,
    S_NUMBER = 8,
    S_STRING = 16,
    S_ARRAY = 32,
    S_OBJECT = 64,
    S_ALL = 127,
    S_WORDS = S_NULL | S_FALSE | S_TRUE
};

struct s_place {
    uint32_t value, contains, rest; /* sets */
};
struct s_array {
    struct s_place *places; /* (n) */
    uint32_t n;
    struct s_place more;
    uint32_t min, max, min_contains, max_contains;
    bool unique;
    uint32_t unique_node;
};
struct s_property {
    const char *name;
    uint32_t set;
    bool required;
};
struct s_keys {
    uint32_t dfa, set;
};
struct s_object {
    struct s_property *properties;
    uint32_t n_properties;
    struct s_keys *keys;
    uint32_t n_keys;
    uint32_t min, max;
};
/* One way to be valid. */
struct s_alt {
    enum g_alt_kind kind;
    uint32_t dfa;                /* TEXT, STRING */
    uint32_t min_len, max_len;   /* STRING without dfa */
    const struct s_array *array; /* ARRAY */
    const struct s_object *object;
    const struct s_alt *next;
};

struct s_set {
    const uint32_t *elems; /* (n) sorted */
    uint32_t n, next;      /* next: of the same hash */
    bool asked;            /* part of the grammar */
    bool takes;            /* some value is valid */
    uint8_t overlap;       /* memo of s_perhaps: 0 not known, 1 no, 2 yes */
    uint8_t overlap_types; /* of these types */
    uint32_t value;        /* in the grammar */
    const struct s_alt *alts;
};

enum {
    S_SET_BUCKETS = 4096,
    SCHEMA_OVERLAP_DEPTH = 3 /* of members and items that tell alternatives apart */
};

/* ---- facts ---- */

enum s_fact_kind {
    S_F_ELEM,  /* elem, to be looked into */
    S_F_TYPES, /* n: mask of types */
    /* from here on a form keeps them */
    S_F_INTEGER,
    S_F_MIN,
    S_F_MAX,
    S_F_EXCLUSIVE_MIN,
    S_F_EXCLUSIVE_MAX,
    S_F_MULTIPLE,
    S_F_ENUM,  /* numbers and strings of the list at node */
    S_F_CONST, /* the number or string at node */
    S_F_LENGTH,
    S_F_PATTERN,
    S_F_FORMAT,
    S_F_PLACES,      /* n to m items */
    S_F_ITEMS,       /* prefixItems, items, additionalItems of the schema at node */
    S_F_ITEM,        /* item n: elem */
    S_F_EQUAL_ITEMS, /* items are those of the array at node */
    S_F_CONTAINS,    /* n to m items: elem */
    S_F_UNIQUE,
    S_F_OTHER_ITEMS, /* unevaluatedItems */
    S_F_MEMBERS,     /* properties, patternProperties, additionalProperties of the schema at node */
    S_F_EQUAL_MEMBERS, /* members are those of the object at node */
    S_F_REQUIRED,      /* name */
    S_F_FORBIDDEN,     /* name */
    S_F_PROPERTY,      /* name, where there is one: elem */
    S_F_NAMES,         /* all names: elem */
    S_F_COUNT,         /* n to m members */
    S_F_OTHER_MEMBERS, /* unevaluatedProperties */
    S_F_UNSUPPORTED    /* cannot be said of types n: name tells why */
};
struct s_fact {
    enum s_fact_kind kind;
    bool negated;
    uint32_t node; /* for messages, and what the kind says */
    uint32_t elem, n, m, scope;
    const char *name;
    const struct s_fact *next;
};

struct s_form {
    uint32_t types;
    bool approx; /* may take too much */
    const struct s_fact *facts;
};
typedef S_LIST(struct s_form) s_forms;

/* Which schema applied which: annotations are seen from above. unevaluated: some schema above asks
 * for them. */
struct s_scope {
    uint32_t parent, elem;
    bool unevaluated;
};

struct s_ctx {
    grammar *g;
    bool in_order;
    arena *mem;
    err *e;
    struct s_doc doc;
    S_LIST(struct s_set) sets;
    uint32_t *buckets; /* (S_SET_BUCKETS) set + 1 */
    S_LIST(struct dfa) dfas;
    S_LIST(uint32_t) dfa_index; /* in the grammar; GRAMMAR_NONE: not there yet */
    struct s_memo *memos;       /* (S_SET_BUCKETS) of automata by what made them */
    S_LIST(struct s_scope) scopes;
    uint64_t work_spent; /* of g's schema_work */
    bool full;           /* the arena is used up, or a name in it is too long */
};

/* Makes room for one more element; ERR_NOMEM. */
int s_grow(struct s_ctx *c, void *list_at, uint32_t n, uint32_t *capacity, size_t size);
#define s_push(c, list, element)                                                                   \
    (s_grow((c), &(list)->at, (list)->n, &(list)->capacity, sizeof *(list)->at)                    \
         ? ERR_NOMEM                                                                               \
         : ((list)->at[(list)->n++] = (element), 0))
void *s_new(struct s_ctx *c, uint64_t n, size_t size); /* NULL: e is set */
int s_full(struct s_ctx *c); /* what the arena has no room for: ERR_NOMEM, and the reason */

/* ---- schema/doc.c ---- */

int s_doc_init(struct s_ctx *c, const cJSON *schema);
uint32_t s_node_of(const struct s_ctx *c, const cJSON *at);
static inline const cJSON *s_at(const struct s_ctx *c, uint32_t node) {
    return c->doc.nodes.at[node].at;
}
bool s_is_legacy(const struct s_ctx *c, uint32_t node);
/* What the reference at schema's key leads to. */
int s_resolve(struct s_ctx *c, const cJSON *ref, uint32_t *target);
/* e: the pointer of node, then the text. Returns code. */
int s_fail(struct s_ctx *c, int code, uint32_t node, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The error of something that has no idea of documents: puts the pointer before it. */
int s_fail_at(struct s_ctx *c, int rc, uint32_t node);
/* ERR_TOO_LONG when the work is used up, ERR_WORK and the like when the builder's is. */
int s_spend(struct s_ctx *c, uint64_t n, uint32_t node);
/* Work that no bound on combinations counts. */
int s_work(struct s_ctx *c, uint64_t n, uint32_t node);

const cJSON *s_key(const cJSON *schema, const char *key);
/* The same of the document's objects however many members they have (NULL has none). */
const cJSON *s_member(const struct s_ctx *c, const cJSON *object, const char *name);
/* A count (minLength, ...): *has tells whether the keyword is there. */
int s_count(struct s_ctx *c, const cJSON *schema, const char *key, uint32_t *n, bool *has);
/* The keyword's value if it is there, of that kind: "object", "array", "string", "number", "bool",
 * "schema". */
int s_typed(struct s_ctx *c, const cJSON *schema, const char *key, const char *kind,
            const cJSON **out);

/* ---- schema/set.c ---- */

/* The set of these conjuncts (any order, doubles are dropped; references are followed). */
int s_set_of(struct s_ctx *c, const uint32_t *elems, uint32_t n, uint32_t *set);

/* ---- schema/expand.c, schema/positive.c, schema/negate.c ---- */

struct s_branches {
    S_LIST(const struct s_fact *) list;
};
struct s_split {
    const struct s_fact *const *branches;
    uint32_t n;
    const struct s_split *next;
};
/* A form on its way. */
struct s_state {
    uint32_t types;
    const struct s_fact *facts, *todo;
    const struct s_split *splits;
};
/* approx: what cannot be said is left out, so that forms take too much. */
int s_expand(struct s_ctx *c, uint32_t set, bool approx, s_forms *out);
/* Puts a fact before a list. */
int s_fact_add(struct s_ctx *c, const struct s_fact **list, struct s_fact fact);
int s_split_add(struct s_ctx *c, struct s_state *s, const struct s_branches *branches);
struct s_scoped {
    struct s_ctx *c;
    struct s_state *s;
    uint32_t scope;
    bool approx;
};
int s_apply(struct s_scoped *x, uint32_t node);
int s_negate(struct s_scoped *x, uint32_t node);
int s_equal(struct s_scoped *x, uint32_t node);
int s_different(struct s_scoped *x, uint32_t node);
bool s_scope_within(const struct s_ctx *c, uint32_t scope, uint32_t outer);
/* Bits of the types that a "type" names; *integer: integers are the only numbers. */
int s_types(struct s_ctx *c, const cJSON *type, uint32_t *mask, bool *integer);
uint32_t s_type_of(const cJSON *value);

/* ---- schema/text.c ---- */

/* Automata of a form's numbers, and strings: GRAMMAR_NONE for strings of which only the length is
 * bounded. An empty one: none. */
int s_number(struct s_ctx *c, const struct s_form *f, uint32_t *dfa);
int s_string(struct s_ctx *c, const struct s_form *f, uint32_t *dfa, uint32_t *min, uint32_t *max);
/* true, false, null: the mask's. */
int s_words(struct s_ctx *c, uint32_t mask, uint32_t *dfa);
/* Strings of a set, as an automaton in any case. */
int s_strings_of(struct s_ctx *c, uint32_t set, uint32_t *dfa);
int s_pattern(struct s_ctx *c, const char *pattern, uint32_t node, uint32_t *dfa);
int s_lengths(struct s_ctx *c, uint32_t min, uint32_t max, uint32_t *dfa);
struct s_memo *s_memos_new(struct s_ctx *c);
int s_all_strings(struct s_ctx *c, uint32_t *dfa);
int s_combine(struct s_ctx *c, uint32_t a, uint32_t b, enum dfa_op op, uint32_t *dfa);
int s_dfa_add(struct s_ctx *c, struct dfa *d, uint32_t *dfa); /* takes d */
static inline const struct dfa *s_dfa(const struct s_ctx *c, uint32_t dfa) {
    return &c->dfas.at[dfa];
}

/* ---- schema/array.c, schema/object.c ---- */

/* NULL: no array, no object can be valid. */
int s_array(struct s_ctx *c, const struct s_form *f, const struct s_array **out);
int s_object(struct s_ctx *c, const struct s_form *f, const struct s_object **out);
/* Their fields by what is known so far of the sets in them. max: places that can be there. */
int s_array_takes(struct s_ctx *c, const struct s_array *a, uint32_t *max, bool *takes);
int s_object_takes(struct s_ctx *c, const struct s_object *o, bool *takes);

/* ---- schema.c ---- */

/* Different values of a set that is built, at most limit; GRAMMAR_NONE in *n: some are arrays or
 * objects. */
int s_count_scalars(struct s_ctx *c, uint32_t set, uint32_t limit, uint32_t *n);
/* false: surely no value of these types is valid against all of the set. */
int s_perhaps(struct s_ctx *c, uint32_t set, uint32_t types, int depth, bool *perhaps);

#endif
