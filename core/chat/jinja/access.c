/* jinja/access.c - access to attributes, methods and items; Python's rules. */
#include "core/chat/jinja/builtin_int.h"

const struct jbuiltin *jmethod_find(jval object, const jstr *name) {
    switch (object.kind) {
    case J_STR:
        return jbuiltin_find(jstr_methods, name->p, name->n);
    case J_LIST:
    case J_TUPLE:
        return jbuiltin_find(jlist_methods, name->p, name->n);
    case J_DICT:
        return jbuiltin_find(jdict_methods, name->p, name->n);
    case J_CYCLER:
        return jbuiltin_find(jcycler_methods, name->p, name->n);
    default:
        return NULL;
    }
}

jval jmethod_bind(jctx *c, jval self, const struct jbuiltin *def) {
    jval v = {.kind = J_METHOD};
    struct jmethod *m = jalloc(c, sizeof *m);
    if (!m) return jundef_plain();
    m->self = self;
    m->def = def;
    v.u.method = m;
    return v;
}

static jval loop_attr(jctx *c, struct jloop *l, const jstr *name) {
    const struct {
        const char *name;
        jval v;
    } attrs[] = {{"index", jint((int64_t)l->i + 1)},
                 {"index0", jint((int64_t)l->i)},
                 {"first", jbool(l->i == 0)},
                 {"last", jbool(l->i + 1 == l->n)},
                 {"length", jint((int64_t)l->n)},
                 {"revindex", jint((int64_t)(l->n - l->i))},
                 {"revindex0", jint((int64_t)(l->n - l->i) - 1)},
                 {"depth", jint(l->depth0 + 1)},
                 {"depth0", jint(l->depth0)}};
    for (size_t i = 0; i < sizeof attrs / sizeof *attrs; i++)
        if (jstr_is(name, attrs[i].name)) return attrs[i].v;
    if (jstr_is(name, "previtem")) return l->i ? l->items[l->i - 1] : jundef_make(c, "loop", name);
    if (jstr_is(name, "nextitem"))
        return l->i + 1 < l->n ? l->items[l->i + 1] : jundef_make(c, "loop", name);
    const struct jbuiltin *m = jbuiltin_find(jloop_methods, name->p, name->n);
    jval self = {.kind = J_LOOP};
    self.u.loop = l;
    return m ? jmethod_bind(c, self, m) : jundef_make(c, "loop", name);
}

/* Methods and built-in attributes only; J_ABSENT if there is none. */
static jval own_attr(jctx *c, jval object, const jstr *name) {
    if (object.kind == J_NAMESPACE) {
        const jval *v = jdict_get(c, object.u.dict, jstr_val(name));
        return v ? *v : jabsent();
    }
    if (object.kind == J_LOOP) {
        jval v = loop_attr(c, object.u.loop, name);
        return v.kind == J_UNDEF && !c->failed && !jstr_is(name, "previtem") &&
                       !jstr_is(name, "nextitem")
                   ? jabsent()
                   : v;
    }
    if (object.kind == J_MACRO && jstr_is(name, "name")) return jstr_val(object.u.macro->name);
    if (object.kind == J_CYCLER && jstr_is(name, "current"))
        return object.u.list->v[object.u.list->pos];
    const struct jbuiltin *m = jmethod_find(object, name);
    if (!m || (object.kind == J_TUPLE && m->mutates)) return jabsent();
    if (m->mutates && !c->allow_mutation) {
        jval v = jundef_make(c, jtype_name(object), name);
        if (!c->failed) v.u.undef->unsafe = true;
        return v;
    }
    return jmethod_bind(c, object, m);
}

jval jget_attr(jctx *c, jval object, const jstr *name) {
    if (object.kind == J_UNDEF) return jfail_undef(c, object);
    jval v = own_attr(c, object, name);
    if (v.kind != J_ABSENT) return v;
    if (object.kind == J_DICT) {
        const jval *item = jdict_get(c, object.u.dict, jstr_val(name));
        if (item) return *item;
    }
    return jundef_make(c, jtype_name(object), name);
}

static jval get_element(jctx *c, jval object, int64_t i) {
    int64_t n = object.kind == J_STR ? (int64_t)object.u.s->n_chars : (int64_t)object.u.list->n;
    if (i < 0) i += n;
    if (i < 0 || i >= n) {
        const jstr *name = jstr_new(c, "[index out of range]", 20, true);
        return jundef_make(c, jtype_name(object), name);
    }
    if (object.kind != J_STR) return object.u.list->v[i];
    const jstr *s = object.u.s;
    jcharge(c, s->n == s->n_chars ? 0 : (uint64_t)i / 16);
    size_t at = jstr_offset(s, (size_t)i);
    return jstr_slice(c, s, at, at + utf8_len_lossy(s->p + at, s->n - at));
}

jval jget_item(jctx *c, jval object, jval key) {
    if (object.kind == J_UNDEF) return jfail_undef(c, object);
    if (object.kind == J_DICT) {
        if (key.kind != J_LIST && key.kind != J_DICT) {
            const jval *v = jdict_get(c, object.u.dict, key);
            if (v) return *v;
        }
    } else if ((object.kind == J_STR || object.kind == J_LIST || object.kind == J_TUPLE) &&
               (key.kind == J_INT || key.kind == J_BOOL)) {
        return get_element(c, object, key.kind == J_INT ? key.u.i : key.u.b);
    }
    if (key.kind == J_STR) {
        jval v = own_attr(c, object, key.u.s);
        return v.kind == J_ABSENT ? jundef_make(c, jtype_name(object), key.u.s) : v;
    }
    return c->failed ? jundef_plain() : jundef_make(c, jtype_name(object), jto_str(c, key));
}

jval jget_path(jctx *c, jval object, jval path) {
    if (path.kind != J_STR) return jget_item(c, object, path);
    const jstr *s = path.u.s;
    for (size_t at = 0; at <= s->n && !c->failed;) {
        size_t end = at;
        bool digits = true;
        int64_t index = 0;
        while (end < s->n && s->p[end] != '.') {
            char ch = s->p[end++];
            digits = digits && ch >= '0' && ch <= '9' && end - at < 16;
            if (digits) index = index * 10 + (ch - '0');
        }
        jval part = jstr_slice(c, s, at, end);
        if (c->failed) break;
        if (object.kind == J_UNDEF) return jfail_undef(c, object);
        object =
            digits && end > at ? jget_item(c, object, jint(index)) : jget_item(c, object, part);
        at = end + 1;
    }
    return object;
}
