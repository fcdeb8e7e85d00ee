/* jinja/filters_seq.c - filters on sequences and mappings. A filter that returns a generator in
 * Jinja returns one here: it can be iterated once and has no length. */
#include "core/chat/jinja/builtin_int.h"

#include <string.h>

const struct jbuiltin *jfilter_find(const jstr *name) {
    const struct jbuiltin *f = jbuiltin_find(jfilters, name->p, name->n);
    return f ? f : jbuiltin_find(jfilters_seq, name->p, name->n);
}

static jval as_kind(jval list, enum jkind kind) {
    list.kind = (uint8_t)kind;
    return list;
}

/* A copy of all items, which the caller may reorder. */
static jval copy_items(jctx *c, jval v) {
    jval *items;
    size_t n;
    if (!jiterate(c, v, &items, &n)) return jundef_plain();
    jval out = jlist_make(c, J_LIST, n);
    for (size_t i = 0; i < n && !c->failed; i++)
        jlist_push(c, out.u.list, items[i]);
    return out;
}

static jval f_list(jctx *c, jval v, struct jargs *a) {
    jval none[1];
    return jbind(c, "list", "", 0, a, none) ? copy_items(c, v) : jundef_plain();
}

static jval f_items(jctx *c, jval v, struct jargs *a) {
    jval none[1];
    if (!jbind(c, "items", "", 0, a, none)) return jundef_plain();
    if (v.kind == J_UNDEF) return jlist_make(c, J_GEN, 0);
    if (v.kind != J_DICT) return jfail(c, "Can only get item pairs from a mapping.");
    jval pairs = jdict_pairs(c, v.u.dict);
    return c->failed ? pairs : as_kind(pairs, J_GEN);
}

static jval f_first(jctx *c, jval v, struct jargs *a) {
    jval none[1], *items;
    size_t n;
    if (!jbind(c, "first", "", 0, a, none)) return jundef_plain();
    if (v.kind == J_STR) {
        if (!v.u.s->n) return jundef_plain();
        return jstr_slice(c, v.u.s, 0, utf8_len_lossy(v.u.s->p, v.u.s->n));
    }
    if (v.kind == J_GEN) {
        struct jlist *l = v.u.list;
        return l->pos < l->n ? l->v[l->pos++] : jundef_plain();
    }
    if (!jiterate(c, v, &items, &n)) return jundef_plain();
    return n ? items[0] : jundef_plain();
}

static jval f_last(jctx *c, jval v, struct jargs *a) {
    jval none[1], *items;
    size_t n;
    if (!jbind(c, "last", "", 0, a, none)) return jundef_plain();
    if (v.kind == J_GEN) return jfail(c, "'generator' object is not reversible");
    if (!jiterate(c, v, &items, &n)) return jundef_plain();
    return n ? items[n - 1] : jundef_plain();
}

static jval f_reverse(jctx *c, jval v, struct jargs *a) {
    jval none[1];
    if (!jbind(c, "reverse", "", 0, a, none)) return jundef_plain();
    if (v.kind == J_STR) return jslice(c, v, jnone(), jnone(), jint(-1));
    jval out = copy_items(c, v);
    if (c->failed) return out;
    struct jlist *l = out.u.list;
    for (size_t i = 0; i + 1 < l->n - i; i++) {
        jval one = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = one;
    }
    return as_kind(out, J_GEN);
}

static jval f_join(jctx *c, jval v, struct jargs *a) {
    jval o[2], *items;
    size_t n;
    if (!jbind(c, "join", "d attribute", 0, a, o) || !jiterate(c, v, &items, &n))
        return jundef_plain();
    const jstr *sep = o[0].kind == J_ABSENT ? NULL : jto_str(c, o[0]);
    jsb b;
    jsb_init(&b, c);
    for (size_t i = 0; i < n && jcharge(c, 1); i++) {
        bool attribute = o[1].kind != J_ABSENT && o[1].kind != J_NONE;
        jval one = attribute ? jget_path(c, items[i], o[1]) : items[i];
        if (i && sep) jsb_str(&b, sep);
        jput_str(&b, one);
    }
    return jsb_done(&b);
}

/* How items are compared: by an attribute; text ignores case unless case_sensitive. */
struct order_key {
    jval attribute; /* J_ABSENT or J_NONE: the item itself */
    bool case_sensitive;
    bool reverse;
};

static jval sort_key(jctx *c, const struct order_key *k, jval item) {
    if (k->attribute.kind != J_ABSENT && k->attribute.kind != J_NONE)
        item = jget_path(c, item, k->attribute);
    if (k->case_sensitive || item.kind != J_STR || c->failed) return item;
    jval none = jnone();
    struct jargs no_args = {&none, 0, NULL, NULL, 0};
    return jbuiltin_find(jstr_methods, "lower", 5)->fn(c, item, &no_args);
}

/* Stable merge sort of items (n) by keys (n), which move along. room: 2 * n values. */
static void merge_sort(jctx *c, jval *items, jval *keys, size_t n, jval *room, bool reverse) {
    if (n < 2 || !jcharge(c, n)) return;
    size_t half = n / 2, a = 0, b = half, at = 0;
    merge_sort(c, items, keys, half, room, reverse);
    merge_sort(c, items + half, keys + half, n - half, room, reverse);
    while ((a < half || b < n) && !c->failed) {
        bool take_b = a == half;
        if (a < half && b < n) {
            int order = jorder(c, keys[b], keys[a]);
            take_b = reverse ? order > 0 && order != 2 : order < 0;
        }
        size_t from = take_b ? b++ : a++;
        room[at] = items[from];
        room[n + at++] = keys[from];
    }
    if (c->failed) return;
    memcpy(items, room, n * sizeof *items);
    memcpy(keys, room + n, n * sizeof *keys);
}

static bool sort_list(jctx *c, struct jlist *l, const struct order_key *k) {
    jval *keys = jalloc(c, (uint64_t)(l->n + 1) * sizeof *keys);
    jval *room = jalloc(c, (uint64_t)(l->n + 1) * 2 * sizeof *room);
    if (!keys || !room) return false;
    for (size_t i = 0; i < l->n && !c->failed; i++)
        keys[i] = sort_key(c, k, l->v[i]);
    if (!c->failed) merge_sort(c, l->v, keys, l->n, room, k->reverse);
    return !c->failed;
}

static bool is_set(jval v) {
    return v.kind != J_ABSENT && jtruth(v);
}

static jval f_sort(jctx *c, jval v, struct jargs *a) {
    jval o[3];
    if (!jbind(c, "sort", "reverse case_sensitive attribute", 0, a, o)) return jundef_plain();
    jval out = copy_items(c, v);
    struct order_key k = {o[2], is_set(o[1]), is_set(o[0])};
    if (!c->failed) sort_list(c, out.u.list, &k);
    return out;
}

static jval f_dictsort(jctx *c, jval v, struct jargs *a) {
    jval o[3];
    if (!jbind(c, "dictsort", "case_sensitive by reverse", 0, a, o)) return jundef_plain();
    if (v.kind == J_UNDEF) return jfail_undef(c, v);
    if (v.kind != J_DICT) return jfail(c, "'%s' object has no attribute 'items'", jtype_name(v));
    bool by_value = o[1].kind == J_STR && jstr_is(o[1].u.s, "value");
    if (o[1].kind != J_ABSENT && !by_value && !(o[1].kind == J_STR && jstr_is(o[1].u.s, "key")))
        return jfail_as(c, JINJA_FAULT_RUNTIME, "You can only sort by either \"key\" or \"value\"");
    jval pairs = jdict_pairs(c, v.u.dict);
    struct order_key k = {jint(by_value), is_set(o[0]), is_set(o[2])};
    if (!c->failed) sort_list(c, pairs.u.list, &k);
    return pairs;
}

/* min and max */
static jval find_extreme(jctx *c, jval v, struct jargs *a, int sign) {
    jval o[2], *items;
    size_t n;
    if (!jbind(c, sign < 0 ? "min" : "max", "case_sensitive attribute", 0, a, o) ||
        !jiterate(c, v, &items, &n) || !n)
        return jundef_plain();
    struct order_key k = {o[1], is_set(o[0]), false};
    jval best = items[0], best_key = sort_key(c, &k, best);
    for (size_t i = 1; i < n && !c->failed; i++) {
        jval key = sort_key(c, &k, items[i]);
        int order = c->failed ? 0 : jorder(c, key, best_key);
        if (order == 2 || (sign < 0 ? order >= 0 : order <= 0)) continue;
        best = items[i];
        best_key = key;
    }
    return best;
}

static jval f_min(jctx *c, jval v, struct jargs *a) {
    return find_extreme(c, v, a, -1);
}

static jval f_max(jctx *c, jval v, struct jargs *a) {
    return find_extreme(c, v, a, 1);
}

static jval f_unique(jctx *c, jval v, struct jargs *a) {
    jval o[2], *items;
    size_t n;
    if (!jbind(c, "unique", "case_sensitive attribute", 0, a, o) || !jiterate(c, v, &items, &n))
        return jundef_plain();
    struct order_key k = {o[1], is_set(o[0]), false};
    jval seen = jdict_make(c, J_DICT, 0), out = jlist_make(c, J_GEN, 0);
    for (size_t i = 0; i < n && !c->failed; i++) {
        jval key = sort_key(c, &k, items[i]);
        if (c->failed || jdict_get(c, seen.u.dict, key)) continue;
        jdict_set(c, seen.u.dict, key, jnone());
        jlist_push(c, out.u.list, items[i]);
    }
    return out;
}

static jval f_sum(jctx *c, jval v, struct jargs *a) {
    jval o[2], *items;
    size_t n;
    if (!jbind(c, "sum", "attribute start", 0, a, o) || !jiterate(c, v, &items, &n))
        return jundef_plain();
    jval total = o[1].kind == J_ABSENT ? jint(0) : o[1];
    bool attribute = o[0].kind != J_ABSENT && o[0].kind != J_NONE;
    for (size_t i = 0; i < n && !c->failed; i++) {
        jval one = attribute ? jget_path(c, items[i], o[0]) : items[i];
        if (!c->failed) total = jop_binary(c, OP_ADD, total, one);
    }
    return total;
}

/* (grouper, list) pairs of a sequence sorted by the attribute. */
static jval f_groupby(jctx *c, jval v, struct jargs *a) {
    jval o[3];
    if (!jbind(c, "groupby", "attribute default case_sensitive", 1, a, o)) return jundef_plain();
    jval sorted = copy_items(c, v), out = jlist_make(c, J_LIST, 0);
    struct order_key k = {o[0], is_set(o[2]), false};
    if (c->failed || !sort_list(c, sorted.u.list, &k)) return jundef_plain();
    jval last = jundef_plain(), members = jundef_plain();
    for (size_t i = 0; i < sorted.u.list->n && !c->failed; i++) {
        jval item = sorted.u.list->v[i], key = sort_key(c, &k, item);
        if (i == 0 || !jequal(c, key, last)) {
            jval pair = jlist_make(c, J_TUPLE, 2);
            members = jlist_make(c, J_LIST, 0);
            if (c->failed) break;
            jlist_push(c, pair.u.list, jget_path(c, item, o[0]));
            jlist_push(c, pair.u.list, members);
            jlist_push(c, out.u.list, pair);
            last = key;
        }
        if (!c->failed) jlist_push(c, members.u.list, item);
    }
    return out;
}

static jval f_batch(jctx *c, jval v, struct jargs *a) {
    jval o[2], *items;
    size_t n;
    int64_t size;
    if (!jbind(c, "batch", "linecount fill_with", 1, a, o) || !jarg_int(c, o[0], 1, &size) ||
        !jiterate(c, v, &items, &n))
        return jundef_plain();
    if (size < 1 || size > J_MAX_RANGE)
        return jfail_as(c, JINJA_FAULT_LIMIT, "batch: the size is out of range");
    jval out = jlist_make(c, J_GEN, 0), part = jundef_plain();
    for (size_t i = 0; i < n && !c->failed; i++) {
        if (i % (size_t)size == 0) {
            part = jlist_make(c, J_LIST, 0);
            jlist_push(c, out.u.list, part);
        }
        if (!c->failed) jlist_push(c, part.u.list, items[i]);
    }
    bool fill = n && o[1].kind != J_ABSENT && o[1].kind != J_NONE;
    while (fill && !c->failed && part.u.list->n < (size_t)size)
        jlist_push(c, part.u.list, o[1]);
    return out;
}

static jval f_slice(jctx *c, jval v, struct jargs *a) {
    jval o[2], *items;
    size_t n;
    int64_t slices;
    if (!jbind(c, "slice", "slices fill_with", 1, a, o) || !jarg_int(c, o[0], 1, &slices) ||
        !jiterate(c, v, &items, &n))
        return jundef_plain();
    if (slices < 1 || slices > J_MAX_RANGE)
        return jfail_as(c, JINJA_FAULT_LIMIT, "slice: the count is out of range");
    jval out = jlist_make(c, J_GEN, 0);
    size_t each = n / (size_t)slices, extra = n % (size_t)slices, at = 0;
    for (size_t i = 0; i < (size_t)slices && !c->failed; i++) {
        jval part = jlist_make(c, J_LIST, 0);
        size_t end = at + each + (i < extra);
        for (; at < end && !c->failed; at++)
            jlist_push(c, part.u.list, items[at]);
        if (i >= extra && extra && !c->failed && o[1].kind != J_ABSENT && o[1].kind != J_NONE)
            jlist_push(c, part.u.list, o[1]);
        jlist_push(c, out.u.list, part);
    }
    return out;
}

static jval f_attr(jctx *c, jval v, struct jargs *a) {
    jval o;
    if (!jbind(c, "attr", "name", 1, a, &o)) return jundef_plain();
    const jstr *name = jto_str(c, o);
    if (!name) return jundef_plain();
    /* Attributes only, never items. */
    if (v.kind == J_DICT && !jmethod_find(v, name)) return jundef_make(c, "dict", name);
    return jget_attr(c, v, name);
}

static jval f_map(jctx *c, jval v, struct jargs *a) {
    jval *items, o[2], out = jlist_make(c, J_GEN, 0);
    size_t n;
    const struct jbuiltin *filter = NULL;
    struct jargs rest = *a;
    if (!jtruth(v)) return out;
    if (a->n_pos) {
        const jstr *name = jarg_str(c, a->pos[0]);
        if (!name) return jundef_plain();
        filter = jfilter_find(name);
        if (!filter)
            return jfail_as(c, JINJA_FAULT_RUNTIME, "No filter named '%.*s'.",
                            name->n > 60 ? 60 : (int)name->n, name->p);
        rest.pos++;
        rest.n_pos--;
    } else if (!jbind(c, "map", "attribute default", 1, a, o)) {
        return jundef_plain();
    }
    if (!jiterate(c, v, &items, &n)) return jundef_plain();
    for (size_t i = 0; i < n && jcharge(c, 1) && jenter(c); i++) {
        jval one = filter ? filter->fn(c, items[i], &rest) : jget_path(c, items[i], o[0]);
        c->depth--;
        if (!filter && one.kind == J_UNDEF && o[1].kind != J_ABSENT) one = o[1];
        if (!c->failed) jlist_push(c, out.u.list, one);
    }
    return out;
}

/* select, reject, selectattr, rejectattr */
static jval select_items(jctx *c, jval v, struct jargs *a, bool by_attr, bool want) {
    jval *items, out = jlist_make(c, J_GEN, 0), attr = jundef_plain();
    size_t n;
    struct jargs rest = *a;
    const struct jbuiltin *test = NULL;
    if (by_attr && !a->n_pos)
        return jfail_as(c, JINJA_FAULT_RUNTIME, "Missing parameter for attribute name");
    if (!jtruth(v) || c->failed) return out;
    if (by_attr) {
        attr = rest.pos[0];
        rest.pos++;
        rest.n_pos--;
    }
    if (rest.n_pos) {
        const jstr *name = jarg_str(c, rest.pos[0]);
        if (!name) return jundef_plain();
        test = jbuiltin_find(jtests, name->p, name->n);
        if (!test)
            return jfail_as(c, JINJA_FAULT_RUNTIME, "No test named '%.*s'.",
                            name->n > 60 ? 60 : (int)name->n, name->p);
        rest.pos++;
        rest.n_pos--;
    }
    if (!jiterate(c, v, &items, &n)) return jundef_plain();
    for (size_t i = 0; i < n && jcharge(c, 1) && jenter(c); i++) {
        jval one = by_attr ? jget_path(c, items[i], attr) : items[i];
        if (!c->failed && test) one = test->fn(c, one, &rest);
        c->depth--;
        if (!c->failed && jtruth(one) == want) jlist_push(c, out.u.list, items[i]);
    }
    return out;
}

static jval f_select(jctx *c, jval v, struct jargs *a) {
    return select_items(c, v, a, false, true);
}

static jval f_reject(jctx *c, jval v, struct jargs *a) {
    return select_items(c, v, a, false, false);
}

static jval f_selectattr(jctx *c, jval v, struct jargs *a) {
    return select_items(c, v, a, true, true);
}

static jval f_rejectattr(jctx *c, jval v, struct jargs *a) {
    return select_items(c, v, a, true, false);
}

const struct jbuiltin jfilters_seq[] = {{"list", f_list, false},
                                        {"items", f_items, false},
                                        {"first", f_first, false},
                                        {"last", f_last, false},
                                        {"reverse", f_reverse, false},
                                        {"join", f_join, false},
                                        {"sort", f_sort, false},
                                        {"dictsort", f_dictsort, false},
                                        {"min", f_min, false},
                                        {"max", f_max, false},
                                        {"unique", f_unique, false},
                                        {"sum", f_sum, false},
                                        {"groupby", f_groupby, false},
                                        {"batch", f_batch, false},
                                        {"slice", f_slice, false},
                                        {"attr", f_attr, false},
                                        {"map", f_map, false},
                                        {"select", f_select, false},
                                        {"reject", f_reject, false},
                                        {"selectattr", f_selectattr, false},
                                        {"rejectattr", f_rejectattr, false},
                                        {NULL, NULL, false}};
