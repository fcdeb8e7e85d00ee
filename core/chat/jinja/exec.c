/* jinja/exec.c - executes statements: output, branches, loops, assignments, macros. */
#include "core/chat/jinja/eval_int.h"

#include <string.h>

/* Opens a scope on top of `parent` (which may differ from the current one, for macros). */
static struct jscope *scope_new(jctx *c, struct jscope *parent) {
    struct jscope *s = jalloc(c, sizeof *s);
    if (s) s->parent = parent;
    return s;
}

/* A scope for the next iteration of a loop: the last one's, emptied, unless a macro kept it. */
static struct jscope *scope_again(jctx *c, struct jscope *last, struct jscope *parent) {
    if (!last || last->kept) return scope_new(c, parent);
    last->n = 0;
    return last;
}

/* Executes body in a new scope and returns what it wrote. */
static jval capture_body(jctx *c, const struct jnode *body) {
    struct jscope *outer_scope = c->scope, *inner = scope_new(c, outer_scope);
    jsb *outer = c->out, b;
    if (!inner) return jundef_plain();
    jsb_init(&b, c);
    c->scope = inner;
    c->out = &b;
    jexec(c, body);
    c->out = outer;
    c->scope = outer_scope;
    return jsb_done(&b);
}

static void assign_attr(jctx *c, const struct jnode *target, jval v) {
    struct jnode name = {.kind = N_NAME, .line = target->line, .sym = target->sym};
    name.value = jstr_val(c->tmpl->syms[target->sym]);
    jval ns = jeval(c, &name);
    c->line = target->line;
    if (ns.kind == J_NAMESPACE)
        jdict_set(c, ns.u.dict, target->value, v);
    else if (!c->failed)
        jfail_as(c, JINJA_FAULT_RUNTIME, "cannot assign attribute on non-namespace object");
}

static void assign_target(jctx *c, const struct jnode *target, jval v) {
    if (c->failed) return;
    if (target->kind == N_NAME) {
        jscope_set(c, target->sym, v);
        return;
    }
    if (target->kind == N_NSREF) {
        assign_attr(c, target, v);
        return;
    }
    jval *items;
    size_t n;
    c->line = target->line;
    if (!jiterate(c, v, &items, &n)) return;
    if (n != target->n_list) {
        jfail_as(c, JINJA_FAULT_VALUE, "%s values to unpack (expected %zu, got %zu)",
                 n > target->n_list ? "too many" : "not enough", target->n_list, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        assign_target(c, target->list[i], items[i]);
}

static void exec_if(jctx *c, const struct jnode *n) {
    for (size_t i = 0; i < n->n_list && !c->failed; i++) {
        jval cond = jeval(c, n->list[i]);
        if (c->failed) return;
        if (cond.kind == J_UNDEF && cond.u.undef && cond.u.undef->unsafe) {
            jfail_undef(c, cond);
            return;
        }
        if (jtruth(cond)) {
            jexec(c, n->list2[i]);
            return;
        }
    }
    if (n->c) jexec(c, n->c);
}

/* Keeps the items that the loop's condition accepts. */
static bool filter_items(jctx *c, const struct jnode *n, jval **items, size_t *n_items) {
    jval kept = jlist_make(c, J_LIST, 0);
    struct jscope *outer = c->scope, *inner = NULL;
    for (size_t i = 0; i < *n_items && !c->failed; i++) {
        c->scope = inner = scope_again(c, inner, outer);
        if (c->scope) {
            assign_target(c, n->a, (*items)[i]);
            jval cond = jeval(c, n->c);
            if (!c->failed && jtruth(cond)) jlist_push(c, kept.u.list, (*items)[i]);
        }
        c->scope = outer;
    }
    if (c->failed) return false;
    *items = kept.u.list->v;
    *n_items = kept.u.list->n;
    return true;
}

/* Executes a for statement over value, its scopes on top of `around`. */
static void run_loop(jctx *c, const struct jnode *n, jval value, struct jscope *around,
                     int64_t depth0) {
    jval *items;
    size_t n_items;
    struct jscope *outer = c->scope;
    if (!jiterate(c, value, &items, &n_items)) return;
    c->scope = around;
    if (!n->c || filter_items(c, n, &items, &n_items)) {
        struct jloop *loop = jalloc(c, sizeof *loop);
        if (loop) *loop = (struct jloop){items, n_items, 0, depth0, n, around, {.kind = J_ABSENT}};
        struct jscope *inner = NULL;
        for (size_t i = 0; i < n_items && !c->failed && jcharge(c, 1); i++) {
            c->scope = inner = scope_again(c, inner, around);
            if (!inner) break;
            loop->i = i;
            jval v = {.kind = J_LOOP};
            v.u.loop = loop;
            jscope_set(c, SYM_LOOP, v);
            assign_target(c, n->a, items[i]);
            if (!c->failed) jexec(c, n->list[0]);
            bool stop = c->flow == J_FLOW_BREAK;
            c->flow = J_FLOW_NEXT;
            if (stop) break;
        }
        if (!n_items && n->n_list > 1) {
            c->scope = scope_new(c, around);
            if (c->scope) jexec(c, n->list[1]);
        }
    }
    c->scope = outer;
}

static void exec_for(jctx *c, const struct jnode *n) {
    jval value = jeval(c, n->b);
    c->line = n->line;
    if (!c->failed) run_loop(c, n, value, c->scope, 0);
}

jval jloop_call(jctx *c, struct jloop *loop, struct jargs *a) {
    if (!loop->node->op) return jfail(c, "only a loop marked 'recursive' can be called");
    if (a->n_pos != 1 || a->n_kw) return jfail(c, "loop() takes one argument");
    if (!jenter(c)) return jundef_plain();
    jsb *outer = c->out, b;
    jsb_init(&b, c);
    c->out = &b;
    run_loop(c, loop->node, a->pos[0], loop->scope, loop->depth0 + 1);
    c->out = outer;
    c->depth--;
    return jsb_done(&b);
}

/* Extra arguments of a macro: as varargs and kwargs where its body uses them. */
static void bind_rest(jctx *c, const struct jnode *n, struct jargs *a, const bool *taken) {
    int len = n->value.u.s->n > 60 ? 60 : (int)n->value.u.s->n;
    const char *name = n->value.u.s->p;
    if (n->op & J_MACRO_VARARGS) {
        jval rest = jlist_make(c, J_TUPLE, 0);
        for (size_t i = n->n_list; i < a->n_pos && !c->failed; i++)
            jlist_push(c, rest.u.list, a->pos[i]);
        jscope_set(c, SYM_VARARGS, rest);
    } else if (a->n_pos > n->n_list) {
        jfail(c, "macro '%.*s' takes not more than %zu argument(s)", len, name, n->n_list);
    }
    jval rest = jdict_make(c, J_DICT, 0);
    bool has_caller = false;
    for (size_t i = 0; i < a->n_kw && !c->failed; i++) {
        if (taken[i]) continue;
        if ((n->op & J_MACRO_CALLER) && jstr_is(a->kw_names[i], "caller")) {
            has_caller = true;
            jscope_set(c, SYM_CALLER, a->kw[i]);
        } else if (n->op & J_MACRO_KWARGS) {
            jdict_set(c, rest.u.dict, jstr_val(a->kw_names[i]), a->kw[i]);
        } else {
            jfail(c, "macro '%.*s' takes no keyword argument '%.*s'", len, name,
                  a->kw_names[i]->n > 60 ? 60 : (int)a->kw_names[i]->n, a->kw_names[i]->p);
        }
    }
    if (c->failed) return;
    if (n->op & J_MACRO_KWARGS) jscope_set(c, SYM_KWARGS, rest);
    if ((n->op & J_MACRO_CALLER) && !has_caller)
        jscope_set(c, SYM_CALLER, jundef_make(c, NULL, c->tmpl->syms[SYM_CALLER]));
}

static void bind_macro(jctx *c, const struct jnode *n, struct jargs *a) {
    bool *taken = jalloc(c, a->n_kw + 1);
    if (!taken) return;
    size_t n_plain = n->n_list - n->n_list2;
    for (size_t i = 0; i < n->n_list && !c->failed; i++) {
        const struct jnode *param = n->list[i];
        jval v = jabsent();
        if (i < a->n_pos) v = a->pos[i];
        for (size_t k = 0; k < a->n_kw; k++) {
            if (!jstr_eq(a->kw_names[k], param->value.u.s)) continue;
            if (i < a->n_pos || taken[k]) {
                jfail(c, "a macro got two values for argument '%.*s'",
                      (int)(param->value.u.s->n % 60), param->value.u.s->p);
                return;
            }
            taken[k] = true;
            v = a->kw[k];
        }
        if (v.kind == J_ABSENT)
            v = i < n_plain ? jundef_make(c, NULL, param->value.u.s)
                            : jeval(c, n->list2[i - n_plain]);
        jscope_set(c, param->sym, v);
    }
    if (!c->failed) bind_rest(c, n, a, taken);
}

jval jmacro_call(jctx *c, struct jmacro *m, struct jargs *a) {
    if (!jenter(c)) return jundef_plain();
    struct jscope *outer = c->scope;
    jval v = jundef_plain();
    c->scope = scope_new(c, m->scope);
    if (c->scope) {
        bind_macro(c, m->node, a);
        if (!c->failed) v = capture_body(c, m->node->c);
    }
    c->scope = outer;
    c->depth--;
    return v;
}

static jval macro_new(jctx *c, const struct jnode *n) {
    jval v = {.kind = J_MACRO};
    struct jmacro *m = jalloc(c, sizeof *m);
    if (!m) return jundef_plain();
    m->node = n;
    m->name = n->value.u.s;
    m->scope = c->scope;
    for (struct jscope *s = c->scope; s && !s->kept; s = s->parent)
        s->kept = true;
    v.u.macro = m;
    return v;
}

static void exec_call_block(jctx *c, const struct jnode *n) {
    const struct jnode *call = n->a;
    jval caller = macro_new(c, n->b);
    if (c->failed) return;
    /* The call again, with one more keyword. */
    const jstr *names_room[16];
    struct jnode *kw_room[16], again = *call, value = {.kind = N_CONST, .line = n->line};
    if (call->n_list2 >= 16) {
        jfail_as(c, JINJA_FAULT_LIMIT, "a call block has more than 15 keyword arguments");
        return;
    }
    value.value = caller;
    if (call->n_list2) {
        memcpy(names_room, call->kw_names, call->n_list2 * sizeof *names_room);
        memcpy(kw_room, call->list2, call->n_list2 * sizeof *kw_room);
    }
    names_room[call->n_list2] = c->tmpl->syms[SYM_CALLER];
    kw_room[call->n_list2] = &value;
    again.kw_names = names_room;
    again.list2 = kw_room;
    again.n_list2 = call->n_list2 + 1;
    jval v = jeval(c, &again);
    if (!c->failed) jput_str(c->out, v);
}

static void exec_with(jctx *c, const struct jnode *n) {
    struct jscope *outer = c->scope, *inner = scope_new(c, outer);
    for (size_t i = 0; i < n->n_list && !c->failed; i++) {
        jval v =
            jeval(c, n->list2[i]); /* in the outer scope: `with` values do not see each other */
        c->scope = inner;
        if (!c->failed) assign_target(c, n->list[i], v);
        c->scope = outer;
    }
    if (c->failed) return;
    c->scope = inner;
    jexec(c, n->c);
    c->scope = outer;
}

/* set and filter blocks: the body's text through the filters. */
static jval filtered_block(jctx *c, const struct jnode *n) {
    jval text = capture_body(c, n->c);
    if (c->failed) return text;
    jval before = c->captured;
    c->captured = text;
    jval v = jeval(c, n->b);
    c->captured = before;
    return v;
}

static void exec_one(jctx *c, const struct jnode *n) {
    jval v;
    switch (n->kind) {
    case S_BODY:
        for (size_t i = 0; i < n->n_list && !c->failed && c->flow == J_FLOW_NEXT; i++)
            jexec(c, n->list[i]);
        break;
    case S_OUTPUT:
        v = jeval(c, n->a);
        c->line = n->line;
        if (!c->failed) jput_str(c->out, v);
        break;
    case S_IF:
        exec_if(c, n);
        break;
    case S_FOR:
        exec_for(c, n);
        break;
    case S_SET:
        assign_target(c, n->a, jeval(c, n->b));
        break;
    case S_SET_BLOCK:
        assign_target(c, n->a, filtered_block(c, n));
        break;
    case S_FILTER_BLOCK:
        v = filtered_block(c, n);
        if (!c->failed) jput_str(c->out, v);
        break;
    case S_MACRO:
        jscope_set(c, n->sym, macro_new(c, n));
        break;
    case S_CALL_BLOCK:
        exec_call_block(c, n);
        break;
    case S_WITH:
        exec_with(c, n);
        break;
    case S_BREAK:
        c->flow = J_FLOW_BREAK;
        break;
    case S_CONTINUE:
        c->flow = J_FLOW_CONTINUE;
        break;
    default:
        break;
    }
}

void jexec(jctx *c, const struct jnode *n) {
    if (n->kind == S_DATA) {
        jsb_str(c->out, n->value.u.s);
        return;
    }
    c->line = n->line;
    if (!jcharge(c, 1) || !jenter(c)) return;
    exec_one(c, n);
    c->depth--;
}
