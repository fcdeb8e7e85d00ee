/* schema_int.h - private to core/grammar/schema: from JSON Schema to the values of a grammar.
 *
 *   doc.c        the document: pointers, ids, anchors, references; error messages
 *   set.c        sets of conjuncts: all that a value has to satisfy at once
 *   fact.c       facts, choices between lists of facts, types
 *   text.c       a form's numbers and strings -> automata
 *   array.c, object.c      a form's arrays and objects
 *   positive.c, negate.c   what a schema, or its negation, adds to a form
 *   expand.c     a set -> forms (one for each way through anyOf, oneOf, if, not)
 *   alts.c       the forms of a set -> its alternatives; may two schemas be valid at once?
 *   takes.c      which alternatives accept any value at all
 *   schema.c     all sets that are reachable, and the values of the grammar
 *
 * A file calls only files above it, with one exception: to expand oneOf, positive.c asks alts.c
 * whether two schemas overlap, and alts.c expands their set for that (to a bounded depth).
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
    SCHEMA_MAX_WORK = 4 << 20,     /* facts examined */
    SCHEMA_MAX_DFA_WORK = 4 << 20, /* states made, intermediate ones included (dfa.cost) */
    SCHEMA_MAX_PLACES = 4096,      /* items of an array with a schema of their own */
    SCHEMA_MAX_ARENA_BYTES = 96 << 20,
    SCHEMA_FEW_WORDS = 64 /* a language of keys with at most this many words becomes properties */
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
    uint32_t *members; /* (table_size) of the nodes within objects, by the object and their name */
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
    bool reachable;        /* part of the grammar */
    bool takes;            /* some value is valid */
    uint8_t overlap;       /* memo of s_may_be_valid: 0 not known, 1 no, 2 yes */
    uint8_t overlap_types; /* for these types */
    uint32_t value;        /* in the grammar */
    const struct s_alt *alts;
};

enum {
    S_SET_BUCKETS = 4096,
    SCHEMA_OVERLAP_DEPTH = 3 /* nesting of members and items that may distinguish alternatives */
};

/* ---- facts ---- */

enum s_fact_kind {
    S_F_ELEM,  /* elem, to be expanded */
    S_F_TYPES, /* n: mask of types */
    /* a form keeps those below */
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
    S_F_PLACES,      /* from n to m items */
    S_F_ITEMS,       /* prefixItems, items, additionalItems of the schema at node */
    S_F_ITEM,        /* item n: elem */
    S_F_EQUAL_ITEMS, /* items are those of the array at node */
    S_F_CONTAINS,    /* from n to m items satisfy elem */
    S_F_UNIQUE,
    S_F_OTHER_ITEMS, /* unevaluatedItems */
    S_F_MEMBERS,     /* properties, patternProperties, additionalProperties of the schema at node */
    S_F_EQUAL_MEMBERS, /* members are those of the object at node */
    S_F_REQUIRED,      /* name */
    S_F_FORBIDDEN,     /* name */
    S_F_PROPERTY,      /* if there is a member name: elem */
    S_F_NAMES,         /* all names: elem */
    S_F_COUNT,         /* from n to m members */
    S_F_OTHER_MEMBERS, /* unevaluatedProperties */
    S_F_UNSUPPORTED    /* cannot be enforced for types n: name tells why */
};
struct s_fact {
    enum s_fact_kind kind;
    bool negated;
    uint32_t node; /* for messages, and as the kind says */
    uint32_t elem, n, m, scope;
    const char *name;
    const struct s_fact *next;
};

struct s_form {
    uint32_t types;
    bool approx; /* may accept too much */
    const struct s_fact *facts;
};
typedef S_LIST(struct s_form) s_forms;

/* Which schema applied which: a schema sees the annotations of those it applies. unevaluated: some
 * enclosing schema needs them. */
struct s_scope {
    uint32_t parent, elem;
    bool unevaluated;
};

struct s_ctx {
    grammar *g;
    bool in_order, draft_integers;
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
    bool full;           /* the arena is full, or a name in it is too long */
};

/* Makes room for one more element; ERR_NOMEM. */
int s_grow(struct s_ctx *c, void *list_at, uint32_t n, uint32_t *capacity, size_t size);
#define s_push(c, list, element)                                                                   \
    (s_grow((c), &(list)->at, (list)->n, &(list)->capacity, sizeof *(list)->at)                    \
         ? ERR_NOMEM                                                                               \
         : ((list)->at[(list)->n++] = (element), 0))
void *s_new(struct s_ctx *c, uint64_t n, size_t size); /* NULL: e is set */
int s_full(struct s_ctx *c);                           /* reports a full arena: ERR_NOMEM */

/* ---- schema/doc.c ---- */

int s_doc_init(struct s_ctx *c, const cJSON *schema);
uint32_t s_node_of(const struct s_ctx *c, const cJSON *at);
static inline const cJSON *s_at(const struct s_ctx *c, uint32_t node) {
    return c->doc.nodes.at[node].at;
}
bool s_is_legacy(const struct s_ctx *c, uint32_t node);
/* The node that the reference ref (a keyword's value) leads to. */
int s_resolve(struct s_ctx *c, const cJSON *ref, uint32_t *target);
/* e: the pointer of node, then the text. Returns code. */
int s_fail(struct s_ctx *c, int code, uint32_t node, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Puts the pointer of node before an error that does not name a place yet. */
int s_fail_at(struct s_ctx *c, int rc, uint32_t node);
/* ERR_TOO_LONG beyond SCHEMA_MAX_WORK, ERR_WORK and the like when the builder's budget refuses. */
int s_spend(struct s_ctx *c, uint64_t n, uint32_t node);
/* Spends from the builder's budget alone, not from SCHEMA_MAX_WORK. */
int s_work(struct s_ctx *c, uint64_t n, uint32_t node);

const cJSON *s_key(const cJSON *schema, const char *key);
/* The same by hash table, for objects of the document with many members (NULL has none). */
const cJSON *s_member(const struct s_ctx *c, const cJSON *object, const char *name);
/* A count (minLength, ...). *has: the keyword is there. */
int s_count(struct s_ctx *c, const cJSON *schema, const char *key, uint32_t *n, bool *has);
/* The keyword's value if it is there, of that kind: "object", "array", "string", "number",
 * "boolean", "schema". */
int s_typed(struct s_ctx *c, const cJSON *schema, const char *key, const char *kind,
            const cJSON **out);

/* ---- schema/set.c ---- */

/* The set of these conjuncts (any order; duplicates are dropped, references followed). */
int s_set_of(struct s_ctx *c, const uint32_t *elems, uint32_t n, uint32_t *set);

/* ---- schema/fact.c ---- */

struct s_branches {
    S_LIST(const struct s_fact *) list;
};
struct s_split {
    const struct s_fact *const *branches;
    uint32_t n;
    const struct s_split *next;
};
/* A form under construction. */
struct s_state {
    uint32_t types;
    const struct s_fact *facts, *todo;
    const struct s_split *splits;
};
/* Puts a fact before a list. */
int s_fact_add(struct s_ctx *c, const struct s_fact **list, struct s_fact fact);
int s_split_add(struct s_ctx *c, struct s_state *s, const struct s_branches *branches);
bool s_scope_within(const struct s_ctx *c, uint32_t scope, uint32_t outer);
/* Bits of the types that a "type" names; *integer: integers are the only numbers. */
int s_types(struct s_ctx *c, const cJSON *type, uint32_t *mask, bool *integer);
uint32_t s_type_of(const cJSON *value);

/* ---- schema/text.c ---- */

/* The automaton of a form's numbers, empty if there are none. */
int s_number(struct s_ctx *c, const struct s_form *f, uint32_t *dfa);
/* Likewise of its strings; GRAMMAR_NONE: only their length is bounded. */
int s_string(struct s_ctx *c, const struct s_form *f, uint32_t *dfa, uint32_t *min, uint32_t *max);
/* Those of true, false and null that are in the mask. */
int s_words(struct s_ctx *c, uint32_t mask, uint32_t *dfa);
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

/* Strings of a set, always as an automaton. */
typedef int s_strings_fn(struct s_ctx *c, uint32_t set, uint32_t *dfa);
/* NULL: no array, no object can be valid. strings_of: for propertyNames. */
int s_array(struct s_ctx *c, const struct s_form *f, const struct s_array **out);
int s_object(struct s_ctx *c, const struct s_form *f, s_strings_fn *strings_of,
             const struct s_object **out);

/* ---- schema/positive.c, schema/negate.c ---- */

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

/* ---- schema/expand.c ---- */

/* approx: leaves out what cannot be enforced, so that the forms accept too much. */
int s_expand(struct s_ctx *c, uint32_t set, bool approx, s_forms *out);

/* ---- schema/alts.c ---- */

/* The alternatives of a set for these types. */
int s_alternatives(struct s_ctx *c, uint32_t set, bool approx, uint32_t types,
                   const struct s_alt **alts);
s_strings_fn s_strings_of;
/* *may false: certainly no value of these types is valid against all of the set. */
int s_may_be_valid(struct s_ctx *c, uint32_t set, uint32_t types, int depth, bool *may);

/* ---- schema/takes.c, by what is known so far of the sets within ---- */

int s_array_takes(struct s_ctx *c, const struct s_array *a, uint32_t *max,
                  bool *takes); /* max: items that can be there */
int s_object_takes(struct s_ctx *c, const struct s_object *o, bool *takes);
int s_alt_takes(struct s_ctx *c, const struct s_alt *alt, bool *takes);
/* Number of different values of a finished set, at most limit; GRAMMAR_NONE in *n: some are arrays
 * or objects. */
int s_count_scalars(struct s_ctx *c, uint32_t set, uint32_t limit, uint32_t *n);

#endif
