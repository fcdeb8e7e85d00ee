/* grammar_int.h - the compiled program of a grammar: automata over bytes, nodes, alternatives of
 * JSON values. Private to core/grammar.
 *
 *   regex/                languages of texts as automata (regex/dfa.h)
 *   schema/               JSON Schema -> values, strings, arrays, objects
 *   gbnf.c                GBNF -> nodes
 *   build.c               the public builder, grammar_finish
 *   program.c             the lists of a program
 *   analyse.c, heights.c  properties of nodes and automata, computed once
 *   match/                states of a text byte by byte, token masks
 *
 * Elements refer to each other by index; GRAMMAR_NONE is not an index. */
#ifndef INFERD_GRAMMAR_INT_H
#define INFERD_GRAMMAR_INT_H

#include "core/grammar/grammar.h"
#include "core/grammar/list_int.h"
#include "core/grammar/regex/dfa.h"

/* ---- nodes ---- */

enum g_kind {
    G_SEQ,    /* concatenation of the children; none: the empty text */
    G_ALT,    /* one of the children */
    G_REPEAT, /* one child, min to max times */
    G_DFA,    /* index: an automaton over the text's bytes */
    G_VALUE,  /* index: a JSON value */
    G_RULE    /* one child, set later */
};
struct g_node {
    enum g_kind kind;
    uint32_t index, first_child, n_children, min, max;
};

/* ---- JSON ---- */

/* A value matches what one of its alternatives matches. Every alternative, and everything it refers
 * to, matches something (schema/schema.c ensures it). Alternatives may overlap. */
struct g_value {
    uint32_t first_alt, n_alts;
};
enum g_alt_kind {
    G_ALT_TEXT,   /* index: an automaton over the JSON text itself: numbers, true, false, null */
    G_ALT_STRING, /* index: g_string */
    G_ALT_ARRAY,  /* index: g_array */
    G_ALT_OBJECT  /* index: g_object */
};
struct g_alt {
    enum g_alt_kind kind;
    uint32_t index;
};
/* dfa runs over the content (UTF-8, unescaped; every JSON escape of an allowed character is
 * allowed); GRAMMAR_NONE: any content of min to max code points. With dfa, min and max are unused:
 * the automaton includes them. */
struct g_string {
    uint32_t dfa, min, max;
};
/* What one position of an array may hold. contains: the values that `contains` matches too
 * (GRAMMAR_NONE: there are none, or the array has no contains); rest: those it does not match (only
 * if max_contains bounds them, otherwise equal to value). Without contains only value is used. */
struct g_item {
    uint32_t value, contains, rest; /* indices of values */
};
struct g_array {
    uint32_t first_item, n_items; /* of the first positions */
    uint32_t more;     /* the item for all further positions; GRAMMAR_NONE: there are none */
    uint32_t min, max; /* items; max GRAMMAR_UNLIMITED: no bound */
    uint32_t min_contains, max_contains; /* 0 and GRAMMAR_UNLIMITED: no contains */
    bool unique; /* items must differ as JSON values; schema/ allows it only if every item is a
                    scalar (number, string, bool, null) */
};
struct g_property {
    uint32_t name, name_bytes; /* in grammar.names */
    uint32_t value;
    bool required;
};
/* Keys other than the properties: languages disjoint from each other and from the names. */
struct g_keys {
    uint32_t dfa, value;
};
struct g_object {
    uint32_t first_property, n_properties;
    uint32_t first_keys, n_keys;
    uint32_t min, max; /* members; max GRAMMAR_UNLIMITED: no bound */
    bool in_order;     /* properties in the given order, other keys after them */
};

/* Properties that grammar_finish computes (analyse.c). Of a node: */
enum {
    NODE_NULLABLE = 1,  /* matches the empty text */
    NODE_PRODUCTIVE = 2 /* matches some text */
};
/* Of a state of an automaton: */
enum {
    STATE_GOES_ON = 1,       /* some byte may follow */
    STATE_INFINITE = 2,      /* infinitely many texts may follow */
    STATE_INFINITE_FRAC = 4, /* likewise in the fraction of a number, where trailing zeros do not
                                change the value */
    STATE_ZEROS = 8,         /* only zeros may follow */
    STATE_PLAIN = 16         /* no sequence of plain characters (>= 0x20, no quote, no backslash)
                                leads into the dead state */
};

enum {
    G_KEYS_LIMIT = 1 << 20,    /* more keys than this count as infinitely many */
    G_TEXTS_LIMIT = UINT16_MAX /* more than a machine can remember */
};

struct grammar {
    _Atomic uint32_t refs;
    uint64_t serial;     /* distinguishes grammars that lie at the same address one after another */
    uint8_t *node_flags; /* (nodes) */
    uint8_t **state_flags; /* (dfas) (n_states) */
    uint16_t **n_texts;    /* (dfas) (n_states) texts that may follow, at most G_TEXTS_LIMIT */
    uint32_t *sorted;      /* (properties) indices, each object's sorted by the bytes of the name */
    uint32_t *n_key_texts; /* (keys) number of texts of each, at most G_KEYS_LIMIT */
    uint16_t *alt_heights; /* (alts) see heights.c */
    uint16_t *heights;     /* (values) likewise */
    uint32_t root;         /* node */
    struct work *work;     /* budget of building and finishing; NULL: no bound, and once finished */
    uint64_t n_states, n_cells;     /* of all automata */
    uint64_t schema_work, dfa_work; /* spent so far, see SCHEMA_MAX_* */
    G_LIST(struct g_node) nodes;
    G_LIST(uint32_t) children; /* of nodes: node indices */
    G_LIST(struct dfa) dfas;
    G_LIST(struct g_value) values;
    G_LIST(struct g_alt) alts;
    G_LIST(struct g_string) strings;
    G_LIST(struct g_item) items;
    G_LIST(struct g_array) arrays;
    G_LIST(struct g_property) properties;
    G_LIST(struct g_keys) keys;
    G_LIST(struct g_object) objects;
    G_LIST(char) names;
};

struct grammar_builder {
    struct grammar *g;
    err failure; /* the first one; code 0: none */
};

/* program.c: each appends to its list and sets *index. ERR_NOMEM, ERR_TOO_LONG. */
int program_add_node(grammar *g, const struct g_node *node, const uint32_t *children,
                     uint32_t *index, err *e); /* first_child is set here */
int program_add_dfa(grammar *g, struct dfa *d, uint32_t *index,
                    err *e); /* takes d's memory, always */
int program_add_value(grammar *g, const struct g_alt *alts, uint32_t n, uint32_t *index, err *e);
/* A value whose alternatives are set later (recursion), and the call that sets them. */
int program_add_open_value(grammar *g, uint32_t *index, err *e);
int program_set_value(grammar *g, uint32_t value, const struct g_alt *alts, uint32_t n, err *e);
int program_add_string(grammar *g, const struct g_string *s, uint32_t *index, err *e);
/* The array's first_item and the object's first_* are set here from the given lists. */
int program_add_array(grammar *g, const struct g_array *a, const struct g_item *items,
                      const struct g_item *more, uint32_t *index, err *e);
struct g_member {
    const char *name;
    size_t n;
    uint32_t value;
    bool required;
};
int program_add_object(grammar *g, const struct g_object *o, const struct g_member *properties,
                       const struct g_keys *keys, uint32_t *index, err *e);

/* Computes the properties above. ERR_INVALID: a rule is left-recursive, or cannot terminate. */
int program_analyse(grammar *g, err *e);

/* Moves what was built so far into *out; b is empty afterwards. */
int program_take(grammar_builder *b, grammar **out, err *e);

/* heights.c: fills alt_heights and heights: the least nesting of arrays and objects that a value
 * needs. ERR_NOMEM, or the reason why the budget refused. grammar_height of GRAMMAR_NONE, or of a
 * value that needs more than GRAMMAR_MAX_DEPTH, is more than that. */
int program_heights(grammar *g);
uint32_t grammar_height(const grammar *g, uint32_t value);

/* schema/schema.c: the value of a schema. */
int schema_compile(grammar *g, const struct grammar_schema *schema, uint32_t *value, err *e);
#endif
