/* value_int.h - private to core/chat/jinja: lists, dicts and callables; truth, equality, order; the
 * text of values. Python's rules. */
#ifndef INFERD_JINJA_VALUE_INT_H
#define INFERD_JINJA_VALUE_INT_H

#include "core/chat/jinja/str_int.h"

struct jundef {
    const char *owner; /* "str", "dict", ...: type of the object asked; NULL for a plain name */
    const jstr *name;
    bool unsafe; /* the immutable sandbox hides it */
};

struct jlist {
    jval *v;
    size_t n, cap;
    size_t pos; /* J_GEN: items already taken; J_CYCLER: current item */
};

struct jentry {
    jval key, value;
    uint64_t hash;
};

struct jdict {
    struct jentry *e; /* (n) in order of insertion */
    size_t n, cap;
    uint32_t *slots; /* (n_slots) entry + 1, 0 = free; NULL while small */
    size_t n_slots;
};

struct jargs {
    jval *pos;
    size_t n_pos;
    const jstr **kw_names;
    jval *kw;
    size_t n_kw;
};

/* A filter, test, method or global function. self is the piped value or the object. */
typedef jval (*jfn)(jctx *c, jval self, struct jargs *a);

struct jbuiltin {
    const char *name;
    jfn fn;
    bool mutates; /* refused in the immutable sandbox */
};

struct jmethod {
    jval self;
    const struct jbuiltin *def;
};

struct jloop {
    jval *items;
    size_t n, i;
    int64_t depth0;
    const struct jnode *node; /* the for statement, for recursive loops */
    struct jscope *scope;     /* around the statement */
    jval changed;             /* last value given to loop.changed() */
};

struct jmacro {
    const struct jnode *node;
    const jstr *name;
    struct jscope *scope;
};

/* ---- values (value.c) ---- */

static inline bool jis_number(jval v) {
    return v.kind == J_BOOL || v.kind == J_INT || v.kind == J_FLOAT || v.kind == J_BIG;
}

const char *jtype_name(jval v); /* Python's: 'str', 'int', 'NoneType' ... */
bool jtruth(jval v);
bool jequal(jctx *c, jval a, jval b);
int jorder(jctx *c, jval a, jval b); /* <0, 0, >0; 2: not a number; fails if Python has no order */
double jnumber(jval v);              /* of a number */
bool jcontains(jctx *c, jval container, jval item);
int64_t jlength(jctx *c, jval v); /* fails if Python has no len() */

jval jundef_make(jctx *c, const char *owner, const jstr *name);
jval jfail_undef(jctx *c, jval undef); /* fails: an undefined value is used */

/* The items of anything iterable; fails with "not iterable" otherwise. The array may be the list's
 * own: do not write to it. */
bool jiterate(jctx *c, jval v, jval **items, size_t *n);

jval *jdict_get(jctx *c, const struct jdict *d, jval key); /* NULL: not there */
void jdict_remove(jctx *c, struct jdict *d, size_t entry);
jval jdict_pairs(jctx *c, const struct jdict *d); /* list of (key, value) */

/* ---- text of values (text.c) ---- */

enum { J_FLOAT_CHARS = 40 };
void jfloat_text(double f, char out[J_FLOAT_CHARS]); /* Python's repr */
const jstr *jto_str(jctx *c, jval v);                /* Python's str(); NULL when failed */
void jput_str(jsb *b, jval v);
void jput_repr(jsb *b, jval v, bool trusted);
bool jall_trusted(jctx *c, jval v);

struct jjson_style {
    const jstr *indent; /* NULL: one line */
    const jstr *item_sep, *key_sep;
    bool sort_keys, ensure_ascii;
};
jval jto_json(jctx *c, jval v, const struct jjson_style *style);

#endif
