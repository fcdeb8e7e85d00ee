/* builtin_int.h - private to core/chat/jinja: operators and access to attributes and items, the
 * binding of arguments, and the tables of filters, tests, methods and global functions. */
#ifndef INFERD_JINJA_BUILTIN_INT_H
#define INFERD_JINJA_BUILTIN_INT_H

#include "core/chat/jinja/value_int.h"

/* ---- operators (ops.c) ---- */

enum jop {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN
};

jval jop_binary(jctx *c, enum jop op, jval a, jval b);
bool jop_compare(jctx *c, enum jop op, jval a, jval b);
jval jslice(jctx *c, jval object, jval from, jval to, jval step);

/* ---- attributes and items (access.c) ---- */

jval jget_attr(jctx *c, jval object, const jstr *name);
jval jget_item(jctx *c, jval object, jval key);
jval jget_path(jctx *c, jval object, jval path); /* "a.b.0" of map, selectattr, sort ... */
const struct jbuiltin *jmethod_find(jval object, const jstr *name);
jval jmethod_bind(jctx *c, jval self, const struct jbuiltin *def);

/* ---- arguments (args.c) ---- */

/* Binds arguments to parameters: names (n) separated by spaces, the first n_required must be there;
 * out (n) gets J_ABSENT for the others. what: for the error. */
bool jbind(jctx *c, const char *what, const char *names, size_t n_required, struct jargs *a,
           jval *out);
bool jarg_int(jctx *c, jval v, int64_t fallback, int64_t *out); /* J_ABSENT: fallback */
const jstr *jarg_str(jctx *c, jval v);                          /* must be a string; NULL: failed */

/* ---- tables; a row with name NULL ends each ---- */

extern const struct jbuiltin jfilters[], jfilters_seq[], jtests[], jglobals[];
extern const struct jbuiltin jstr_methods[], jlist_methods[], jdict_methods[], jcycler_methods[];
extern const struct jbuiltin jloop_methods[];
const struct jbuiltin *jbuiltin_find(const struct jbuiltin *table, const char *p, size_t n);
const struct jbuiltin *jfilter_find(const jstr *name);

/* ---- formatting (format.c, strformat.c) ---- */

jval jformat_percent(jctx *c, const jstr *fmt, jval args); /* fmt % args */
jval jstr_format(jctx *c, jval self, struct jargs *a);     /* str.format */

#endif
