/* jinja/seqmeth.c - the methods of list, tuple and dict. Those that change their object are called
 * only if the render allows mutation (jinja/access.c, jinja/eval.c). */
#include "core/chat/jinja/builtin_int.h"

#include <string.h>

static jval l_append(jctx *c, jval self, struct jargs *a) {
    jval v;
    if (jbind(c, "append()", "object", 1, a, &v)) jlist_push(c, self.u.list, v);
    return jnone();
}

static jval l_extend(jctx *c, jval self, struct jargs *a) {
    jval v, *items;
    size_t n;
    if (!jbind(c, "extend()", "iterable", 1, a, &v) || !jiterate(c, v, &items, &n))
        return jundef_plain();
    for (size_t i = 0; i < n && !c->failed; i++)
        jlist_push(c, self.u.list, items[i]);
    return jnone();
}

/* An index into n items as Python counts; false and failed when out of range. */
static bool pop_position(jctx *c, jval v, int64_t fallback, size_t n, size_t *at) {
    int64_t i;
    if (!jarg_int(c, v, fallback, &i)) return false;
    if (i < 0) i += (int64_t)n;
    if (i < 0 || i >= (int64_t)n) {
        jfail_as(c, JINJA_FAULT_INDEX, n ? "pop index out of range" : "pop from empty list");
        return false;
    }
    *at = (size_t)i;
    return true;
}

static void remove_at(jctx *c, struct jlist *l, size_t at) {
    if (!jcharge(c, (l->n - at) / 4)) return;
    memmove(l->v + at, l->v + at + 1, (l->n - at - 1) * sizeof *l->v);
    l->n--;
}

static jval l_pop(jctx *c, jval self, struct jargs *a) {
    jval v;
    size_t at;
    struct jlist *l = self.u.list;
    if (!jbind(c, "pop()", "index", 0, a, &v) || !pop_position(c, v, -1, l->n, &at))
        return jundef_plain();
    v = l->v[at];
    remove_at(c, l, at);
    return v;
}

static jval l_insert(jctx *c, jval self, struct jargs *a) {
    jval v[2];
    int64_t i;
    struct jlist *l = self.u.list;
    if (!jbind(c, "insert()", "index object", 2, a, v) || !jarg_int(c, v[0], 0, &i))
        return jundef_plain();
    int64_t n = (int64_t)l->n;
    i = i < -n ? 0 : i < 0 ? i + n : i > n ? n : i;
    if (!jcharge(c, (uint64_t)(n - i) / 4) || !jlist_push(c, l, v[1])) return jundef_plain();
    memmove(l->v + i + 1, l->v + i, (size_t)(n - i) * sizeof *l->v);
    l->v[i] = v[1];
    return jnone();
}

static jval l_remove(jctx *c, jval self, struct jargs *a) {
    jval v;
    struct jlist *l = self.u.list;
    if (!jbind(c, "remove()", "value", 1, a, &v)) return jundef_plain();
    for (size_t i = 0; i < l->n && !c->failed; i++)
        if (jequal(c, l->v[i], v)) {
            remove_at(c, l, i);
            return jnone();
        }
    return jfail_as(c, JINJA_FAULT_VALUE, "list.remove(x): x not in list");
}

static jval l_clear(jctx *c, jval self, struct jargs *a) {
    jval none[1];
    if (jbind(c, "clear()", "", 0, a, none)) self.u.list->n = 0;
    return jnone();
}

static jval l_reverse(jctx *c, jval self, struct jargs *a) {
    jval none[1];
    struct jlist *l = self.u.list;
    if (!jbind(c, "reverse()", "", 0, a, none) || !jcharge(c, l->n / 4)) return jundef_plain();
    for (size_t i = 0; i + 1 < l->n - i; i++) {
        jval v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
    return jnone();
}

static jval l_index(jctx *c, jval self, struct jargs *a) {
    jval v;
    if (!jbind(c, "index()", "value", 1, a, &v)) return jundef_plain();
    for (size_t i = 0; i < self.u.list->n && !c->failed; i++)
        if (jequal(c, self.u.list->v[i], v)) return jint((int64_t)i);
    return jfail_as(c, JINJA_FAULT_VALUE, "the value is not in the list");
}

static jval l_count(jctx *c, jval self, struct jargs *a) {
    jval v;
    int64_t n = 0;
    if (!jbind(c, "count()", "value", 1, a, &v)) return jundef_plain();
    for (size_t i = 0; i < self.u.list->n && !c->failed; i++)
        n += jequal(c, self.u.list->v[i], v);
    return jint(n);
}

static jval l_copy(jctx *c, jval self, struct jargs *a) {
    jval none[1];
    if (!jbind(c, "copy()", "", 0, a, none)) return jundef_plain();
    jval out = jlist_make(c, J_LIST, self.u.list->n);
    for (size_t i = 0; i < self.u.list->n && !c->failed; i++)
        jlist_push(c, out.u.list, self.u.list->v[i]);
    return out;
}

static jval d_get(jctx *c, jval self, struct jargs *a) {
    jval v[2];
    if (!jbind(c, "get()", "key default", 1, a, v)) return jundef_plain();
    const jval *found = jdict_get(c, self.u.dict, v[0]);
    return found ? *found : v[1].kind == J_ABSENT ? jnone() : v[1];
}

static jval d_items(jctx *c, jval self, struct jargs *a) {
    jval none[1];
    return jbind(c, "items()", "", 0, a, none) ? jdict_pairs(c, self.u.dict) : jundef_plain();
}

static jval d_part(jctx *c, jval self, struct jargs *a, bool keys) {
    jval none[1];
    if (!jbind(c, keys ? "keys()" : "values()", "", 0, a, none)) return jundef_plain();
    jval out = jlist_make(c, J_LIST, self.u.dict->n);
    for (size_t i = 0; i < self.u.dict->n && !c->failed; i++)
        jlist_push(c, out.u.list, keys ? self.u.dict->e[i].key : self.u.dict->e[i].value);
    return out;
}

static jval d_keys(jctx *c, jval self, struct jargs *a) {
    return d_part(c, self, a, true);
}

static jval d_values(jctx *c, jval self, struct jargs *a) {
    return d_part(c, self, a, false);
}

static void merge_dict(jctx *c, struct jdict *d, const struct jdict *more) {
    for (size_t i = 0; i < more->n && !c->failed; i++)
        jdict_set(c, d, more->e[i].key, more->e[i].value);
}

static jval d_copy(jctx *c, jval self, struct jargs *a) {
    jval none[1];
    if (!jbind(c, "copy()", "", 0, a, none)) return jundef_plain();
    jval out = jdict_make(c, J_DICT, self.u.dict->n);
    if (!c->failed) merge_dict(c, out.u.dict, self.u.dict);
    return out;
}

static jval d_update(jctx *c, jval self, struct jargs *a) {
    if (a->n_pos > 1) return jfail(c, "update() takes at most 1 argument");
    if (a->n_pos && a->pos[0].kind != J_DICT)
        return jfail(c, "update() takes a mapping, not '%s'", jtype_name(a->pos[0]));
    if (a->n_pos) merge_dict(c, self.u.dict, a->pos[0].u.dict);
    for (size_t i = 0; i < a->n_kw && !c->failed; i++)
        jdict_set(c, self.u.dict, jstr_val(a->kw_names[i]), a->kw[i]);
    return jnone();
}

static jval d_pop(jctx *c, jval self, struct jargs *a) {
    jval v[2];
    if (!jbind(c, "pop()", "key default", 1, a, v)) return jundef_plain();
    for (size_t i = 0; i < self.u.dict->n && !c->failed; i++)
        if (jequal(c, self.u.dict->e[i].key, v[0])) {
            jval out = self.u.dict->e[i].value;
            jdict_remove(c, self.u.dict, i);
            return out;
        }
    return v[1].kind == J_ABSENT ? jfail_as(c, JINJA_FAULT_KEY, "pop(): no such key") : v[1];
}

static jval d_setdefault(jctx *c, jval self, struct jargs *a) {
    jval v[2];
    if (!jbind(c, "setdefault()", "key default", 1, a, v)) return jundef_plain();
    const jval *found = jdict_get(c, self.u.dict, v[0]);
    if (found) return *found;
    if (v[1].kind == J_ABSENT) v[1] = jnone();
    jdict_set(c, self.u.dict, v[0], v[1]);
    return v[1];
}

static jval d_clear(jctx *c, jval self, struct jargs *a) {
    jval none[1];
    if (!jbind(c, "clear()", "", 0, a, none)) return jundef_plain();
    self.u.dict->n = 0;
    self.u.dict->slots = NULL;
    return jnone();
}

const struct jbuiltin jlist_methods[] = {
    {"append", l_append, true}, {"extend", l_extend, true},   {"pop", l_pop, true},
    {"insert", l_insert, true}, {"remove", l_remove, true},   {"clear", l_clear, true},
    {"index", l_index, false},  {"reverse", l_reverse, true}, {"count", l_count, false},
    {"copy", l_copy, false},    {NULL, NULL, false}};

const struct jbuiltin jdict_methods[] = {
    {"get", d_get, false},       {"items", d_items, false}, {"keys", d_keys, false},
    {"values", d_values, false}, {"copy", d_copy, false},   {"update", d_update, true},
    {"pop", d_pop, true},        {"clear", d_clear, true},  {"setdefault", d_setdefault, true},
    {NULL, NULL, false}};
