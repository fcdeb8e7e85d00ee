/* run_int.h - private to core/chat/jinja: the state of a render, its bounds, failure and cost.
 *
 * Memory: everything that a render makes lies in its arena, freed at its end. The syntax tree and
 * its constants lie in the template's arena and are never written after compilation. */
#ifndef INFERD_JINJA_RUN_INT_H
#define INFERD_JINJA_RUN_INT_H

#include "core/base/mem.h"
#include "core/chat/jinja/jinja.h"

enum {
    J_MAX_DEPTH = 500,       /* nested evaluations: expressions, blocks, macro calls */
    J_MAX_PARSE_DEPTH = 150, /* nested expressions and blocks in the source */
    J_MAX_RANGE = 100000     /* items of range(), as Jinja's sandbox has it */
};

struct jctx {
    arena *mem;
    err error; /* of the first failure */
    struct jinja_failure *failure;
    bool failed;
    int line;
    int depth, value_depth;
    uint64_t steps, max_steps;
    struct work *work;
    int64_t now;
    bool allow_mutation;
    const struct jinja_template *tmpl;
    jval *globals; /* (tmpl->n_syms) */
    struct jscope *scope;
    struct jsb *out;
    jval captured; /* text of the set, filter or call block that is being finished */
    enum { J_FLOW_NEXT, J_FLOW_BREAK, J_FLOW_CONTINUE } flow;
};

/* Fails as Python's TypeError. Returns undefined. */
jval jfail(jctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* One of our bounds; code: err_code. */
void jfail_limit(jctx *c, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool jenter(jctx *c);       /* bounds recursion; pair with c->depth-- when true */
bool jenter_value(jctx *c); /* bounds nested containers; pair with c->value_depth-- when true */

#endif
