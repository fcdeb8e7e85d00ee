/* grammar_int.h - the compiled form: automata over bytes, nodes of a grammar, alternatives of JSON
 * values; and who makes what. Private to core/grammar.
 *
 *   dfa*.c, regex.c, number.c, format.c   languages of texts as automata
 *   schema*.c                             JSON Schema -> values, strings, arrays, objects
 *   gbnf.c                                GBNF -> nodes
 *   program.c, build.c                    the lists; the public builder, grammar_finish
 *   analyse.c                             what is known of nodes and automata beforehand
 *   machine*.c (machine.h)                states of a text, byte by byte
 *   vocab.c, mask.c, cache.c, matcher.c   (vocab.h) tokens: trie, masks, cache
 *
 * Everything refers to everything else by index, GRAMMAR_NONE is no index. */
#ifndef INFERD_GRAMMAR_INT_H
#define INFERD_GRAMMAR_INT_H

#include "core/grammar/grammar.h"
#include "core/grammar/list_int.h"
#include "core/grammar/regex/dfa.h"

/* ---- nodes ---- */

enum g_kind {
    G_SEQ,    /* children in a row; none: the empty text */
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

/* A value is what one of its alternatives takes; each alternative takes something (schema.c sees to
 * it), and everything that they refer to does. Alternatives may overlap. */
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
/* dfa runs over the content (UTF-8, escapes undone; each JSON escape of an allowed character is
 * allowed); GRAMMAR_NONE: any content of min to max code points. With dfa, min and max say
 * nothing: they are part of it. */
struct g_string {
    uint32_t dfa, min, max;
};
/* What may stand at one place of an array. contains: values that are also matched by `contains`
 * (GRAMMAR_NONE: none are, or the array has no contains); rest: values that are not (only where
 * max_contains bounds them, else equal to value). Without contains only value counts. */
struct g_item {
    uint32_t value, contains, rest; /* indices of values */
};
struct g_array {
    uint32_t first_item, n_items; /* of the first places */
    uint32_t more;     /* index of the item for all other places; GRAMMAR_NONE: there are none */
    uint32_t min, max; /* places; max GRAMMAR_UNLIMITED: no bound */
    uint32_t min_contains, max_contains; /* 0 and GRAMMAR_UNLIMITED: no contains */
    bool unique; /* items must differ as JSON values; schema.c allows it only where every item is a
                    scalar (number, string, bool, null) */
};
struct g_property {
    uint32_t name, name_bytes; /* in grammar.names */
    uint32_t value;
    bool required;
};
/* Keys other than the properties': languages that share no text with each other or with names. */
struct g_keys {
    uint32_t dfa, value;
};
struct g_object {
    uint32_t first_property, n_properties;
    uint32_t first_keys, n_keys;
    uint32_t min, max; /* members; max GRAMMAR_UNLIMITED: no bound */
    bool in_order;     /* properties come in their order, other keys after them */
};

/* What grammar_finish finds out (analyse.c). Of a node: */
enum {
    NODE_NULLABLE = 1,  /* takes the empty text */
    NODE_PRODUCTIVE = 2 /* takes some text */
};
/* Of a state of an automaton: */
enum {
    STATE_GOES_ON = 1,       /* some byte may follow */
    STATE_INFINITE = 2,      /* of what may follow there is no end */
    STATE_INFINITE_FRAC = 4, /* likewise in the fraction of a number, where zeros at the end say
                                nothing */
    STATE_ZEROS = 8,         /* nothing but zeros follows */
    STATE_PLAIN = 16         /* no row of plain characters (>= 0x20, no quote, no backslash) leads
                                into the dead state */
};

enum {
    G_KEYS_LIMIT = 1 << 20,    /* more keys than this are as good as without end */
    G_TEXTS_LIMIT = UINT16_MAX /* more than a machine can remember */
};

struct grammar {
    _Atomic uint32_t refs;
    uint64_t serial;       /* no two grammars have this and the same address, one after the other */
    uint8_t *node_flags;   /* (nodes) */
    uint8_t **state_flags; /* (dfas) (n_states) */
    uint16_t **n_texts;    /* (dfas) (n_states) texts that may follow, at most G_TEXTS_LIMIT */
    uint32_t *sorted;      /* (properties) indices: each object's, in order of bytes */
    uint32_t *n_key_texts; /* (keys) how many keys there are, at most G_KEYS_LIMIT */
    uint16_t *alt_heights; /* (alts) see heights.c */
    uint16_t *heights;     /* (values) likewise */
    uint32_t root;         /* node */
    struct work *work; /* what building and finishing may cost; NULL: no bound, and afterwards */
    uint64_t n_states, n_cells;     /* of all automata */
    uint64_t schema_work, dfa_work; /* of its making so far, see SCHEMA_MAX_* */
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
/* A value whose alternatives are set later (recursion), and their setting. */
int program_add_open_value(grammar *g, uint32_t *index, err *e);
int program_set_value(grammar *g, uint32_t value, const struct g_alt *alts, uint32_t n, err *e);
int program_add_string(grammar *g, const struct g_string *s, uint32_t *index, err *e);
/* array's first_item and object's first_* are set here from the lists given. */
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

/* Fills in what is found out beforehand. ERR_INVALID: a rule calls itself without taking a byte, or
 * never ends. */
int program_analyse(grammar *g, err *e);

/* What was built so far becomes *out; b is as new. */
int program_take(grammar_builder *b, grammar **out, err *e);

/* heights.c: fills alt_heights and heights; ERR_NOMEM, or refused work. The arrays and objects
 * within each other that the value needs at the least; a GRAMMAR_NONE and one that needs more than
 * GRAMMAR_MAX_DEPTH: more than that. */
int program_heights(grammar *g);
uint32_t grammar_height(const grammar *g, uint32_t value);

/* schema.c: the value of a schema. */
int schema_compile(grammar *g, const struct grammar_schema *schema, uint32_t *value, err *e);
/* gbnf.c: nodes by the public builder. */

#endif
