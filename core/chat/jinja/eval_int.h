/* eval_int.h - private to core/chat/jinja: evaluates expressions and executes statements. */
#ifndef INFERD_JINJA_EVAL_INT_H
#define INFERD_JINJA_EVAL_INT_H

#include "core/chat/jinja/ast_int.h"
#include "core/chat/jinja/builtin_int.h"

/* Names set in a block; the outermost level is jctx.globals instead. */
struct jscope {
    struct jscope *parent;
    struct jvar {
        int sym;
        jval v;
    } * vars;
    size_t n, cap;
    bool kept; /* a macro may still look here after the block has ended */
};

bool jscope_set(jctx *c, int sym, jval v);
jval jeval(jctx *c, const struct jnode *n);
void jexec(jctx *c, const struct jnode *n);

/* Called by expressions, executed by exec.c. */
jval jmacro_call(jctx *c, struct jmacro *m, struct jargs *a);
jval jloop_call(jctx *c, struct jloop *loop, struct jargs *a);

#endif
