/* jinja/render.c - templates and renders, from beginning to end. */
#include "core/chat/jinja/eval_int.h"
#include "core/chat/jinja/parse_int.h"

#include <stdlib.h>
#include <string.h>

enum { TEMPLATE_MEMORY = 64 * 1024 * 1024 /* bytes of a syntax tree */ };

int jinja_template_new(const char *source, jinja_template **out, err *e) {
    jinja_template *t = mem_new(1, sizeof *t);
    *out = NULL;
    if (!t) return err_no_memory(e);
    t->mem = arena_new(TEMPLATE_MEMORY);
    int rc = t->mem ? jparse(t, source, e) : err_no_memory(e);
    if (rc)
        jinja_template_free(t);
    else
        *out = t;
    return rc;
}

void jinja_template_free(jinja_template *t) {
    if (!t) return;
    arena_free(t->mem);
    free(t);
}

bool jinja_template_uses(const jinja_template *t, const char *name) {
    return jsym_find(t, name, strlen(name)) >= 0;
}

jctx *jinja_begin(const jinja_template *t, const struct jinja_options *options,
                  struct jinja_failure *failure) {
    arena *mem = arena_new(options->max_memory);
    jctx *c = mem ? arena_alloc(mem, sizeof *c) : NULL;
    jsb *out = c ? arena_alloc(mem, sizeof *out) : NULL;
    if (!out) {
        arena_free(mem);
        return NULL;
    }
    *c = (jctx){.mem = mem,
                .failure = failure,
                .line = 1,
                .max_steps = options->max_steps,
                .work = options->work,
                .now = options->now,
                .allow_mutation = options->allow_mutation,
                .tmpl = t,
                .out = out};
    jsb_init(out, c);
    out->max = options->max_bytes;
    c->globals = jalloc(c, (uint64_t)t->n_syms * sizeof *c->globals);
    for (size_t i = 0; c->globals && i < t->n_syms; i++)
        c->globals[i] = jabsent();
    for (const struct jbuiltin *b = jglobals; b->name; b++)
        jinja_set(c, b->name, (jval){.kind = J_FUNC, .u.func = b});
    return c;
}

void jinja_set(jctx *c, const char *name, jval v) {
    int sym = jsym_find(c->tmpl, name, strlen(name));
    if (sym >= 0 && c->globals) c->globals[sym] = v;
}

void jinja_run(jctx *c) {
    if (!c->failed) jexec(c, c->tmpl->root);
}

struct jinja_text jinja_output(const jctx *c) {
    const jsb *b = c->out;
    return (struct jinja_text){b->p ? b->p : "", b->n, b->runs, b->n_runs};
}

bool jinja_failed(const jctx *c) {
    return c->failed;
}

int jinja_status(const jctx *c, err *e) {
    return c->failed ? err_set(e, c->error.code, "%s", c->error.msg) : 0;
}

void jinja_end(jctx *c) {
    arena_free(c->mem);
}
