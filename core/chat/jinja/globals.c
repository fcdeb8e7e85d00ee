/* jinja/globals.c - global functions, and the methods of loops and cyclers. */
#include "core/base/str.h"
#include "core/chat/jinja/builtin_int.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static jval g_range(jctx *c, jval self, struct jargs *a) {
    (void)self;
    jval v[3];
    int64_t from = 0, to, step;
    if (!jbind(c, "range()", "start stop step", 1, a, v)) return jundef_plain();
    bool one = v[1].kind == J_ABSENT;
    if (!jarg_int(c, one ? v[0] : v[1], 0, &to) || (!one && !jarg_int(c, v[0], 0, &from)) ||
        !jarg_int(c, v[2], 1, &step))
        return jundef_plain();
    if (step == 0) return jfail_as(c, JINJA_FAULT_VALUE, "range() arg 3 must not be zero");
    bool up = step > 0;
    uint64_t low = (uint64_t)(up ? from : to), high = (uint64_t)(up ? to : from);
    uint64_t width = (up ? from < to : to < from) ? high - low : 0;
    uint64_t stride = up ? (uint64_t)step : 0 - (uint64_t)step;
    uint64_t n = width / stride + (width % stride != 0);
    if (n > J_MAX_RANGE)
        return jfail_as(c, JINJA_FAULT_OVERFLOW,
                        "Range too big. The sandbox blocks ranges larger than %d.", J_MAX_RANGE);
    jval list = jlist_make(c, J_LIST, (size_t)n);
    for (uint64_t i = 0; i < n && !c->failed; i++)
        jlist_push(c, list.u.list, jint((int64_t)((uint64_t)from + i * (uint64_t)step)));
    return list;
}

/* dict(pairs or mapping, **more) and namespace(...), which take the same. */
static jval make_mapping(jctx *c, enum jkind kind, struct jargs *a) {
    jval out = jdict_make(c, kind, a->n_kw);
    if (c->failed) return out;
    if (a->n_pos > 1) return jfail(c, "expected at most 1 argument, got %zu", a->n_pos);
    if (a->n_pos && (a->pos[0].kind == J_DICT || a->pos[0].kind == J_NAMESPACE)) {
        const struct jdict *d = a->pos[0].u.dict;
        for (size_t i = 0; i < d->n && !c->failed; i++)
            jdict_set(c, out.u.dict, d->e[i].key, d->e[i].value);
    } else if (a->n_pos) {
        jval *items, *pair;
        size_t n, two;
        if (!jiterate(c, a->pos[0], &items, &n)) return out;
        for (size_t i = 0; i < n && jiterate(c, items[i], &pair, &two); i++) {
            if (two != 2) return jfail(c, "dict() and namespace() take pairs of a key and a value");
            jdict_set(c, out.u.dict, pair[0], pair[1]);
        }
    }
    for (size_t i = 0; i < a->n_kw && !c->failed; i++)
        jdict_set(c, out.u.dict, jstr_val(a->kw_names[i]), a->kw[i]);
    return out;
}

static jval g_dict(jctx *c, jval self, struct jargs *a) {
    (void)self;
    return make_mapping(c, J_DICT, a);
}

static jval g_namespace(jctx *c, jval self, struct jargs *a) {
    (void)self;
    return make_mapping(c, J_NAMESPACE, a);
}

static jval g_raise_exception(jctx *c, jval self, struct jargs *a) {
    (void)self;
    jval v;
    if (!jbind(c, "raise_exception()", "message", 1, a, &v)) return jundef_plain();
    const jstr *text = jto_str(c, v);
    if (!text || c->failed) return jundef_plain();
    jfail_as(c, JINJA_FAULT_TEMPLATE, "%.*s",
             (int)utf8_whole(text->p, text->n > 4000 ? 4000 : text->n), text->p);
    err_set(&c->error, ERR_INVALID, "%s", c->failure->text); /* only the template's own message */
    return jundef_plain();
}

static jval g_strftime_now(jctx *c, jval self, struct jargs *a) {
    (void)self;
    jval v;
    if (!jbind(c, "strftime_now()", "format", 1, a, &v)) return jundef_plain();
    const jstr *fmt = jarg_str(c, v);
    if (!fmt) return jundef_plain();
    char format[258], text[512] = "";
    struct tm tm;
    time_t now = (time_t)c->now;
    if (fmt->n > sizeof format - 2 || memchr(fmt->p, '\0', fmt->n) || !gmtime_r(&now, &tm))
        return jfail_as(c, JINJA_FAULT_VALUE, "strftime_now() cannot use this format");
    memcpy(format, fmt->p, fmt->n);
    /* A byte at the end distinguishes an empty result from one that does not fit. */
    memcpy(format + fmt->n, ".", 2);
    size_t n = strftime(text, sizeof text, format, &tm);
    if (n == 0)
        return jfail_as(c, JINJA_FAULT_VALUE, "strftime_now() gives a text that is too long");
    jsb b;
    jsb_init(&b, c);
    jsb_add(&b, text, n - 1, jstr_trusted(fmt, 0, fmt->n));
    return jsb_done(&b);
}

static jval g_cycler(jctx *c, jval self, struct jargs *a) {
    (void)self;
    if (!a->n_pos || a->n_kw) return jfail(c, "at least one item has to be provided");
    jval v = jlist_make(c, J_CYCLER, a->n_pos);
    for (size_t i = 0; i < a->n_pos && !c->failed; i++)
        jlist_push(c, v.u.list, a->pos[i]);
    return v;
}

static jval cycler_next(jctx *c, jval self, struct jargs *a) {
    jval none[1];
    if (!jbind(c, "next()", "", 0, a, none)) return jundef_plain();
    struct jlist *l = self.u.list;
    jval v = l->v[l->pos];
    l->pos = (l->pos + 1) % l->n;
    return v;
}

static jval cycler_reset(jctx *c, jval self, struct jargs *a) {
    jval none[1];
    if (jbind(c, "reset()", "", 0, a, none)) self.u.list->pos = 0;
    return jnone();
}

static jval loop_cycle(jctx *c, jval self, struct jargs *a) {
    if (!a->n_pos) return jfail(c, "no items for cycling given");
    return a->pos[self.u.loop->i % a->n_pos];
}

static jval loop_changed(jctx *c, jval self, struct jargs *a) {
    struct jloop *l = self.u.loop;
    jval now = jlist_make(c, J_TUPLE, a->n_pos);
    for (size_t i = 0; i < a->n_pos && !c->failed; i++)
        jlist_push(c, now.u.list, a->pos[i]);
    if (c->failed) return jundef_plain();
    bool changed = l->changed.kind == J_ABSENT || !jequal(c, l->changed, now);
    l->changed = now;
    return jbool(changed);
}

const struct jbuiltin jglobals[] = {{"range", g_range, false},
                                    {"dict", g_dict, false},
                                    {"namespace", g_namespace, false},
                                    {"cycler", g_cycler, false},
                                    {"raise_exception", g_raise_exception, false},
                                    {"strftime_now", g_strftime_now, false},
                                    {NULL, NULL, false}};

const struct jbuiltin jcycler_methods[] = {
    {"next", cycler_next, false}, {"reset", cycler_reset, false}, {NULL, NULL, false}};

const struct jbuiltin jloop_methods[] = {
    {"cycle", loop_cycle, false}, {"changed", loop_changed, false}, {NULL, NULL, false}};
