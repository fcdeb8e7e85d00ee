/* jinja/eval.c - evaluates expressions. Runs on the rendering thread and writes only to the
 * render's own memory. */
#include "core/chat/jinja/eval_int.h"

#include <string.h>

static jval eval_name(jctx *c, const struct jnode *n) {
    for (const struct jscope *s = c->scope; s; s = s->parent)
        for (size_t i = s->n; i-- > 0;)
            if (s->vars[i].sym == n->sym) return s->vars[i].v;
    jval v = c->globals[n->sym];
    return v.kind == J_ABSENT ? jundef_make(c, NULL, n->value.u.s) : v;
}

bool jscope_set(jctx *c, int sym, jval v) {
    struct jscope *s = c->scope;
    if (!s) {
        c->globals[sym] = v;
        return true;
    }
    for (size_t i = 0; i < s->n; i++)
        if (s->vars[i].sym == sym) {
            s->vars[i].v = v;
            return true;
        }
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 4;
        struct jvar *vars = jalloc(c, cap * sizeof *vars);
        if (!vars) return false;
        if (s->n) memcpy(vars, s->vars, s->n * sizeof *vars);
        s->vars = vars;
        s->cap = cap;
    }
    s->vars[s->n++] = (struct jvar){sym, v};
    return true;
}

static jval eval_list(jctx *c, const struct jnode *n) {
    jval list = jlist_make(c, n->kind == N_LIST ? J_LIST : J_TUPLE, n->n_list);
    for (size_t i = 0; i < n->n_list && !c->failed; i++)
        jlist_push(c, list.u.list, jeval(c, n->list[i]));
    return list;
}

static jval eval_dict(jctx *c, const struct jnode *n) {
    jval dict = jdict_make(c, J_DICT, n->n_list);
    for (size_t i = 0; i < n->n_list && !c->failed; i++) {
        jval key = jeval(c, n->list[i]);
        jval value = jeval(c, n->list2[i]);
        if (!c->failed) jdict_set(c, dict.u.dict, key, value);
    }
    return dict;
}

/* The method that `object.name` means, NULL if none; resolved at parse time. */
static const struct jbuiltin *node_method(const struct jnode *n, jval object) {
    switch (object.kind) {
    case J_STR:
        return n->methods[0];
    case J_LIST:
    case J_TUPLE:
        return n->methods[1];
    case J_DICT:
        return n->methods[2];
    default:
        return NULL;
    }
}

static bool is_allowed(const jctx *c, const struct jbuiltin *def, jval self) {
    return !def->mutates || (c->allow_mutation && self.kind != J_TUPLE);
}

static jval get_attr(jctx *c, const struct jnode *n, jval object) {
    const struct jbuiltin *m = node_method(n, object);
    if (m && is_allowed(c, m, object)) return jmethod_bind(c, object, m);
    if (!m && object.kind == J_DICT) {
        const jval *v = jdict_get(c, object.u.dict, n->value);
        if (v) return *v;
    }
    return jget_attr(c, object, n->value.u.s);
}

static jval eval_getitem(jctx *c, const struct jnode *n) {
    jval object = jeval(c, n->a);
    if (c->failed) return object;
    if (n->b->kind == N_SLICE) {
        const struct jnode *s = n->b;
        jval from = s->a ? jeval(c, s->a) : jnone();
        jval to = s->b ? jeval(c, s->b) : jnone();
        jval step = s->c ? jeval(c, s->c) : jnone();
        c->line = n->line;
        return jslice(c, object, from, to, step);
    }
    jval key = jeval(c, n->b);
    c->line = n->line;
    return c->failed ? key : jget_item(c, object, key);
}

enum { FEW_ARGS = 8 };

/* Argument arrays with room for the usual call on the C stack. */
struct arg_room {
    jval pos[FEW_ARGS], kw[FEW_ARGS];
    const jstr *names[FEW_ARGS];
};

static void add_star(jctx *c, struct jargs *a, jval more) {
    jval *items;
    size_t n;
    if (!jiterate(c, more, &items, &n)) return;
    jval *pos = jalloc(c, (a->n_pos + n + 1) * sizeof *pos);
    if (!pos || !jcharge(c, n)) return;
    if (a->n_pos) memcpy(pos, a->pos, a->n_pos * sizeof *pos);
    if (n) memcpy(pos + a->n_pos, items, n * sizeof *pos);
    a->pos = pos;
    a->n_pos += n;
}

static void add_dstar(jctx *c, struct jargs *a, jval more) {
    if (more.kind != J_DICT) {
        jfail(c, "argument after ** must be a mapping, not %s", jtype_name(more));
        return;
    }
    const struct jdict *d = more.u.dict;
    jval *kw = jalloc(c, (a->n_kw + d->n + 1) * sizeof *kw);
    const jstr **names = jalloc(c, (a->n_kw + d->n + 1) * sizeof *names);
    if (!kw || !names || !jcharge(c, d->n)) return;
    if (a->n_kw) memcpy(kw, a->kw, a->n_kw * sizeof *kw);
    if (a->n_kw) memcpy(names, a->kw_names, a->n_kw * sizeof *names);
    for (size_t i = 0; i < d->n; i++) {
        if (d->e[i].key.kind != J_STR) {
            jfail(c, "keywords must be strings");
            return;
        }
        names[a->n_kw + i] = d->e[i].key.u.s;
        kw[a->n_kw + i] = d->e[i].value;
    }
    a->kw = kw;
    a->kw_names = names;
    a->n_kw += d->n;
}

static bool eval_args(jctx *c, const struct jnode *n, struct arg_room *room, struct jargs *a) {
    *a = (struct jargs){room->pos, n->n_list, room->names, room->kw, n->n_list2};
    if (n->n_list > FEW_ARGS) a->pos = jalloc(c, n->n_list * sizeof *a->pos);
    if (n->n_list2 > FEW_ARGS) {
        a->kw = jalloc(c, n->n_list2 * sizeof *a->kw);
        a->kw_names = jalloc(c, n->n_list2 * sizeof *a->kw_names);
    }
    if (c->failed) return false;
    for (size_t i = 0; i < n->n_list && !c->failed; i++)
        a->pos[i] = jeval(c, n->list[i]);
    for (size_t i = 0; i < n->n_list2 && !c->failed; i++) {
        a->kw_names[i] = n->kw_names[i];
        a->kw[i] = jeval(c, n->list2[i]);
    }
    if (n->star && !c->failed) add_star(c, a, jeval(c, n->star));
    if (n->dstar && !c->failed) add_dstar(c, a, jeval(c, n->dstar));
    return !c->failed;
}

static jval call_value(jctx *c, jval callee, struct jargs *a) {
    switch (callee.kind) {
    case J_FUNC:
        return callee.u.func->fn(c, jundef_plain(), a);
    case J_METHOD:
        return callee.u.method->def->fn(c, callee.u.method->self, a);
    case J_MACRO:
        return jmacro_call(c, callee.u.macro, a);
    case J_LOOP:
        return jloop_call(c, callee.u.loop, a);
    case J_UNDEF:
        return jfail_undef(c, callee);
    default:
        return jfail(c, "'%s' object is not callable", jtype_name(callee));
    }
}

static jval eval_call(jctx *c, const struct jnode *n) {
    struct arg_room room;
    struct jargs a;
    jval callee, self = jundef_plain();
    const struct jbuiltin *m = NULL;
    if (n->a->kind == N_GETATTR) {
        self = jeval(c, n->a->a);
        if (c->failed) return self;
        m = node_method(n->a, self);
        if (m && !is_allowed(c, m, self)) m = NULL;
        callee = m ? self : get_attr(c, n->a, self);
    } else {
        callee = jeval(c, n->a);
    }
    if (c->failed || !eval_args(c, n, &room, &a)) return jundef_plain();
    c->line = n->line;
    return m ? m->fn(c, self, &a) : call_value(c, callee, &a);
}

static jval eval_filter(jctx *c, const struct jnode *n) {
    struct arg_room room;
    struct jargs a;
    jval self = jeval(c, n->a);
    if (c->failed) return self;
    c->line = n->line;
    const char *what = n->kind == N_FILTER ? "filter" : "test";
    const struct jbuiltin *def = n->def;
    if (!def)
        return jfail_as(c, JINJA_FAULT_RUNTIME, "No %s named '%.*s' found.", what,
                        n->value.u.s->n > 60 ? 60 : (int)n->value.u.s->n, n->value.u.s->p);
    if (!eval_args(c, n, &room, &a)) return jundef_plain();
    /* cppcheck-suppress returnDanglingLifetime ; a value never refers to its arguments' array */
    return def->fn(c, self, &a);
}

static jval eval_compare(jctx *c, const struct jnode *n) {
    jval left = jeval(c, n->a);
    for (size_t i = 0; i < n->n_list && !c->failed; i++) {
        jval right = jeval(c, n->list[i]);
        if (c->failed) break;
        c->line = n->line;
        if (!jop_compare(c, n->ops[i], left, right)) return jbool(false);
        left = right;
    }
    return jbool(true);
}

static jval eval_concat(jctx *c, const struct jnode *n) {
    jsb b;
    jsb_init(&b, c);
    for (size_t i = 0; i < n->n_list && !c->failed; i++)
        jput_str(&b, jeval(c, n->list[i]));
    return jsb_done(&b);
}

static jval eval_sign(jctx *c, const struct jnode *n) {
    jval v = jeval(c, n->a);
    if (c->failed) return v;
    bool minus = n->kind == N_NEG;
    jval out;
    if (v.kind == J_INT && v.u.i != INT64_MIN)
        out = jint(minus ? -v.u.i : v.u.i);
    else if (v.kind == J_BOOL)
        out = jint(minus ? -(int64_t)v.u.b : v.u.b);
    else if (jis_number(v))
        out = jfloat(minus ? -jnumber(v) : jnumber(v));
    else if (v.kind == J_UNDEF)
        return jfail_undef(c, v);
    else
        return jfail(c, "bad operand type for unary %c: '%s'", minus ? '-' : '+', jtype_name(v));
    out.untrusted = v.untrusted;
    return out;
}

static jval eval_cond(jctx *c, const struct jnode *n) {
    jval cond = jeval(c, n->b);
    if (c->failed) return cond;
    if (jtruth(cond)) return jeval(c, n->a);
    return n->c ? jeval(c, n->c) : jundef_plain();
}

static jval eval_simple(jctx *c, const struct jnode *n) {
    jval a = jeval(c, n->a);
    if (c->failed) return a;
    switch (n->kind) {
    case N_GETATTR:
        c->line = n->line;
        return get_attr(c, n, a);
    case N_OR:
        return jtruth(a) ? a : jeval(c, n->b);
    case N_AND:
        return jtruth(a) ? jeval(c, n->b) : a;
    case N_NOT:
        return jbool(!jtruth(a));
    default: {
        jval b = jeval(c, n->b);
        c->line = n->line;
        return c->failed ? b : jop_binary(c, n->op, a, b);
    }
    }
}

jval jeval(jctx *c, const struct jnode *n) {
    if (n->kind == N_CONST) return n->value;
    if (!jcharge(c, 1)) return jundef_plain();
    if (n->kind == N_NAME) return eval_name(c, n);
    if (!jenter(c)) return jundef_plain();
    jval v;
    switch (n->kind) {
    case N_LIST:
    case N_TUPLE:
        v = eval_list(c, n);
        break;
    case N_DICT:
        v = eval_dict(c, n);
        break;
    case N_GETITEM:
        v = eval_getitem(c, n);
        break;
    case N_CALL:
        v = eval_call(c, n);
        break;
    case N_FILTER:
    case N_TEST:
        v = eval_filter(c, n);
        break;
    case N_COND:
        v = eval_cond(c, n);
        break;
    case N_COMPARE:
        v = eval_compare(c, n);
        break;
    case N_CONCAT:
        v = eval_concat(c, n);
        break;
    case N_NEG:
    case N_POS:
        v = eval_sign(c, n);
        break;
    case N_CAPTURED:
        v = c->captured;
        break;
    case N_SLICE:
        v = jfail(c, "a slice must be the only index");
        break;
    default:
        v = eval_simple(c, n);
    }
    c->depth--;
    return c->failed ? jundef_plain() : v;
}
