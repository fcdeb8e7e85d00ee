/* parse_int.h - private to core/chat/jinja: the parser's state and its layers: nodes and tokens,
 * expressions, statements. */
#ifndef INFERD_JINJA_PARSE_INT_H
#define INFERD_JINJA_PARSE_INT_H

#include "core/chat/jinja/ast_int.h"
#include "core/chat/jinja/lex_int.h"

struct jparser {
    jinja_template *t;
    const struct jtok *tok; /* current */
    err *e;
    bool failed;
    int depth;
    int loop_depth;                         /* for break and continue */
    unsigned n_varargs, n_kwargs, n_caller; /* uses seen, to find those inside a macro */
    union {
        struct jnode node;
        char bytes[512];
    } spare; /* what a failed parser writes to; never read as a tree */
};

/* ---- nodes and tokens (parser.c) ---- */

void jparse_fail(struct jparser *p, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void *jparse_alloc(struct jparser *p, size_t bytes); /* never NULL; once failed, the spare */
struct jnode *jparse_node(struct jparser *p, enum jnode_kind kind, int line);
bool jparse_enter(struct jparser *p); /* one level deeper; pair with p->depth-- when true */
int jparse_sym(struct jparser *p, const char *name, size_t n);
bool jtok_is(const struct jtok *t, enum jtok_kind kind, const char *text);
bool jparse_skip(struct jparser *p, enum jtok_kind kind, const char *text);
void jparse_expect(struct jparser *p, enum jtok_kind kind, const char *text);
jval jparse_text(struct jparser *p, const char *bytes, size_t n); /* trusted constant */

/* Growing array of nodes, in the template's arena. */
struct jnodes {
    struct jnode **v;
    size_t n, cap;
};
void jnodes_add(struct jparser *p, struct jnodes *list, struct jnode *node);

/* ---- expressions (expr.c) ---- */

struct jnode *jparse_expression(struct jparser *p, bool with_condition);
/* Expressions separated by commas make a tuple. parenthesized: it may be empty. */
struct jnode *jparse_tuple(struct jparser *p, bool with_condition, bool parenthesized);
struct jnode *jparse_filters(struct jparser *p, struct jnode *subject, bool name_first);
struct jnode *jparse_primary(struct jparser *p);
struct jnode *jparse_postfix(struct jparser *p, struct jnode *node);

/* ---- statements (parse.c) ---- */

int jparse(jinja_template *t, const char *source, err *e);

#endif
