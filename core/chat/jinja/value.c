/* jinja/value.c - values: truth, equality, order, lists and dicts.
 *
 * Runs on the rendering thread only; everything lies in the render's arena. */
#include "core/chat/jinja/value_int.h"

#include <math.h>
#include <string.h>

const char *jtype_name(jval v) {
    static const char *const names[] = {[J_UNDEF] = "Undefined",
                                        [J_NONE] = "NoneType",
                                        [J_BOOL] = "bool",
                                        [J_INT] = "int",
                                        [J_BIG] = "int",
                                        [J_FLOAT] = "float",
                                        [J_STR] = "str",
                                        [J_LIST] = "list",
                                        [J_TUPLE] = "tuple",
                                        [J_DICT] = "dict",
                                        [J_NAMESPACE] = "Namespace",
                                        [J_GEN] = "generator",
                                        [J_LOOP] = "LoopContext",
                                        [J_MACRO] = "Macro",
                                        [J_FUNC] = "function",
                                        [J_METHOD] = "builtin_function_or_method",
                                        [J_CYCLER] = "Cycler",
                                        [J_ABSENT] = "absent"};
    return names[v.kind];
}

jval jundef_make(jctx *c, const char *owner, const jstr *name) {
    jval v = jundef_plain();
    struct jundef *u = jalloc(c, sizeof *u);
    if (!u) return v;
    u->owner = owner;
    u->name = name;
    v.u.undef = u;
    return v;
}

jval jfail_undef(jctx *c, jval v) {
    const enum jinja_fault fault = JINJA_FAULT_UNDEFINED;
    const struct jundef *u = v.u.undef;
    if (!u || !u->name) return jfail_as(c, fault, "the value is undefined");
    int n = u->name->n > 100 ? 100 : (int)u->name->n;
    if (u->unsafe)
        return jfail_as(c, JINJA_FAULT_SECURITY,
                        "access to attribute '%.*s' of '%s' object is unsafe", n, u->name->p,
                        u->owner ? u->owner : "");
    if (u->owner)
        return jfail_as(c, fault, "'%s object' has no attribute '%.*s'", u->owner, n, u->name->p);
    return jfail_as(c, fault, "'%.*s' is undefined", n, u->name->p);
}

double jnumber(jval v) {
    switch (v.kind) {
    case J_BOOL:
        return v.u.b ? 1 : 0;
    case J_INT:
        return (double)v.u.i;
    case J_FLOAT:
        return v.u.f;
    case J_BIG: {
        double d = 0;
        bool minus = v.u.s->n && v.u.s->p[0] == '-';
        for (size_t i = minus; i < v.u.s->n; i++)
            d = d * 10 + (v.u.s->p[i] - '0');
        return minus ? -d : d;
    }
    default:
        return 0;
    }
}

bool jtruth(jval v) {
    switch (v.kind) {
    case J_UNDEF:
    case J_NONE:
        return false;
    case J_BOOL:
        return v.u.b;
    case J_INT:
        return v.u.i != 0;
    case J_FLOAT:
        return v.u.f != 0;
    case J_STR:
        return v.u.s->n > 0;
    case J_LIST:
    case J_TUPLE:
        return v.u.list->n > 0;
    case J_DICT:
        return v.u.dict->n > 0;
    case J_LOOP:
        return v.u.loop->n > 0;
    default:
        return true;
    }
}

static int compare_numbers(jval a, jval b) {
    bool ints = a.kind != J_FLOAT && b.kind != J_FLOAT && a.kind != J_BIG && b.kind != J_BIG;
    if (ints) {
        int64_t x = a.kind == J_BOOL ? a.u.b : a.u.i, y = b.kind == J_BOOL ? b.u.b : b.u.i;
        return (x > y) - (x < y);
    }
    double x = jnumber(a), y = jnumber(b);
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2; /* 2: not a number */
}

static bool equal_lists(jctx *c, const struct jlist *a, const struct jlist *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!jequal(c, a->v[i], b->v[i])) return false;
    return true;
}

static bool equal_dicts(jctx *c, const struct jdict *a, const struct jdict *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const jval *other = jdict_get(c, b, a->e[i].key);
        if (!other || !jequal(c, a->e[i].value, *other)) return false;
    }
    return true;
}

bool jequal(jctx *c, jval a, jval b) {
    if (!jcharge(c, 1)) return false;
    if (jis_number(a) && jis_number(b)) {
        if (a.kind == J_BIG && b.kind == J_BIG) return jstr_eq(a.u.s, b.u.s);
        return compare_numbers(a, b) == 0;
    }
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case J_UNDEF:
    case J_NONE:
        return true;
    case J_STR:
        return jcharge(c, a.u.s->n / 64) && jstr_eq(a.u.s, b.u.s);
    case J_LIST:
    case J_TUPLE:
    case J_DICT: {
        if (!jenter_value(c)) return false;
        bool same = a.kind == J_DICT ? equal_dicts(c, a.u.dict, b.u.dict)
                                     : equal_lists(c, a.u.list, b.u.list);
        c->value_depth--;
        return same;
    }
    case J_METHOD:
        return a.u.method->def == b.u.method->def &&
               memcmp(&a.u.method->self.u, &b.u.method->self.u, sizeof a.u) == 0;
    default:
        return memcmp(&a.u, &b.u, sizeof a.u) == 0;
    }
}

int jorder(jctx *c, jval a, jval b) {
    if (!jcharge(c, 1)) return 0;
    if (jis_number(a) && jis_number(b)) return compare_numbers(a, b);
    if (a.kind == J_STR && b.kind == J_STR) {
        size_t n = a.u.s->n < b.u.s->n ? a.u.s->n : b.u.s->n;
        jcharge(c, n / 64);
        int order = n ? memcmp(a.u.s->p, b.u.s->p, n) : 0;
        return order ? (order > 0) - (order < 0) : (a.u.s->n > b.u.s->n) - (a.u.s->n < b.u.s->n);
    }
    if ((a.kind == J_LIST || a.kind == J_TUPLE) && a.kind == b.kind) {
        if (!jenter_value(c)) return 0;
        const struct jlist *x = a.u.list, *y = b.u.list;
        int order = (x->n > y->n) - (x->n < y->n);
        for (size_t i = 0; i < x->n && i < y->n && !c->failed; i++)
            if (!jequal(c, x->v[i], y->v[i])) {
                order = jorder(c, x->v[i], y->v[i]);
                break;
            }
        c->value_depth--;
        return order;
    }
    if (a.kind == J_UNDEF || b.kind == J_UNDEF) {
        jfail_undef(c, a.kind == J_UNDEF ? a : b);
        return 0;
    }
    jfail(c, "'<' not supported between instances of '%s' and '%s'", jtype_name(a), jtype_name(b));
    return 0;
}

bool jcontains(jctx *c, jval container, jval item) {
    switch (container.kind) {
    case J_UNDEF:
        return false;
    case J_STR: {
        if (item.kind != J_STR) {
            if (item.kind == J_UNDEF)
                jfail_undef(c, item);
            else
                jfail(c, "'in <string>' requires string as left operand, not %s", jtype_name(item));
            return false;
        }
        const jstr *s = container.u.s, *t = item.u.s;
        if (!jcharge(c, s->n / 64)) return false;
        return t->n == 0 || (t->n <= s->n && memmem(s->p, s->n, t->p, t->n));
    }
    case J_DICT:
        return jdict_get(c, container.u.dict, item) != NULL;
    default: {
        jval *items;
        size_t n;
        if (!jiterate(c, container, &items, &n)) return false;
        for (size_t i = 0; i < n && !c->failed; i++)
            if (jequal(c, items[i], item)) return true;
        return false;
    }
    }
}

int64_t jlength(jctx *c, jval v) {
    switch (v.kind) {
    case J_UNDEF:
        return 0;
    case J_STR:
        return (int64_t)v.u.s->n_chars;
    case J_LIST:
    case J_TUPLE:
        return (int64_t)v.u.list->n;
    case J_DICT:
        return (int64_t)v.u.dict->n;
    case J_LOOP:
        return (int64_t)v.u.loop->n;
    default:
        jfail(c, "object of type '%s' has no len()", jtype_name(v));
        return 0;
    }
}

jval jlist_make(jctx *c, enum jkind kind, size_t cap) {
    struct jlist *l = jalloc(c, sizeof *l);
    if (!l) return jundef_plain();
    if (cap) {
        l->v = jalloc(c, (uint64_t)cap * sizeof *l->v);
        if (!l->v) return jundef_plain();
        l->cap = cap;
    }
    jval v = {.kind = (uint8_t)kind};
    v.u.list = l;
    return v;
}

bool jlist_push(jctx *c, struct jlist *l, jval v) {
    if (!jcharge(c, 1)) return false;
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 4;
        jval *items = jalloc(c, (uint64_t)cap * sizeof *items);
        if (!items) return false;
        if (l->n) memcpy(items, l->v, l->n * sizeof *items);
        l->v = items;
        l->cap = cap;
    }
    l->v[l->n++] = v;
    return true;
}

static bool iterate_chars(jctx *c, const jstr *s, jval **items, size_t *n) {
    jval list = jlist_make(c, J_LIST, s->n_chars), plain = jstr_mark(c, s, false);
    if (c->failed) return false;
    s = plain.u.s;
    for (size_t at = 0; at < s->n && !c->failed;) {
        size_t len = utf8_len_lossy(s->p + at, s->n - at);
        jlist_push(c, list.u.list, jstr_slice(c, s, at, at + len));
        at += len;
    }
    if (c->failed) return false;
    *items = list.u.list->v;
    *n = list.u.list->n;
    return true;
}

bool jiterate(jctx *c, jval v, jval **items, size_t *n) {
    *items = NULL;
    *n = 0;
    if (c->failed) return false;
    switch (v.kind) {
    case J_UNDEF:
        if (v.u.undef && v.u.undef->unsafe) jfail_undef(c, v);
        return !c->failed;
    case J_STR:
        return iterate_chars(c, v.u.s, items, n);
    case J_LIST:
    case J_TUPLE:
        *items = v.u.list->v;
        *n = v.u.list->n;
        return true;
    case J_GEN:
        *items = v.u.list->v ? v.u.list->v + v.u.list->pos : NULL;
        *n = v.u.list->n - v.u.list->pos;
        v.u.list->pos = v.u.list->n;
        return true;
    case J_DICT: {
        jval keys = jlist_make(c, J_LIST, v.u.dict->n);
        for (size_t i = 0; i < v.u.dict->n && !c->failed; i++)
            jlist_push(c, keys.u.list, v.u.dict->e[i].key);
        if (c->failed) return false;
        *items = keys.u.list->v;
        *n = keys.u.list->n;
        return true;
    }
    default:
        jfail(c, "'%s' object is not iterable", jtype_name(v));
        return false;
    }
}

jval jdict_make(jctx *c, enum jkind kind, size_t cap) {
    struct jdict *d = jalloc(c, sizeof *d);
    if (!d) return jundef_plain();
    if (cap) {
        d->e = jalloc(c, (uint64_t)cap * sizeof *d->e);
        if (!d->e) return jundef_plain();
        d->cap = cap;
    }
    jval v = {.kind = (uint8_t)kind};
    v.u.dict = d;
    return v;
}

static uint64_t hash_bytes(const char *p, size_t n) {
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)p[i]) * 0x100000001b3u;
    return h;
}

/* Equal keys have equal hashes: 1, 1.0 and true are one key, as in Python. */
static bool hash_key(jctx *c, jval key, uint64_t *hash) {
    switch (key.kind) {
    case J_STR:
        jcharge(c, key.u.s->n / 64);
        *hash = hash_bytes(key.u.s->p, key.u.s->n);
        return !c->failed;
    case J_BOOL:
    case J_INT:
    case J_BIG:
    case J_FLOAT: {
        double d = jnumber(key);
        if (d == 0) d = 0; /* minus zero */
        *hash = hash_bytes((const char *)&d, sizeof d);
        return true;
    }
    case J_TUPLE: {
        if (!jenter_value(c)) return false;
        uint64_t h = 1, one;
        for (size_t i = 0; i < key.u.list->n && jcharge(c, 1); i++) {
            if (!hash_key(c, key.u.list->v[i], &one)) break;
            h = h * 31 + one;
        }
        c->value_depth--;
        *hash = h;
        return !c->failed;
    }
    case J_LIST:
    case J_DICT:
        jfail(c, "unhashable type: '%s'", jtype_name(key));
        return false;
    case J_UNDEF:
    case J_NONE:
        *hash = key.kind;
        return true;
    default:
        *hash = hash_bytes((const char *)&key.u, sizeof key.u);
        return true;
    }
}

static bool entry_has_key(jctx *c, const struct jentry *e, uint64_t hash, jval key) {
    return e->hash == hash && jequal(c, e->key, key);
}

enum { DICT_SMALL = 8 };

static struct jentry *dict_find(jctx *c, const struct jdict *d, jval key, uint64_t hash) {
    if (!d->slots) {
        for (size_t i = 0; i < d->n; i++)
            if (entry_has_key(c, &d->e[i], hash, key)) return &d->e[i];
        return NULL;
    }
    for (size_t at = (hash ^ hash >> 32) & (d->n_slots - 1); d->slots[at];
         at = (at + 1) & (d->n_slots - 1)) {
        struct jentry *e = &d->e[d->slots[at] - 1];
        if (!jcharge(c, 1)) return NULL;
        if (entry_has_key(c, e, hash, key)) return e;
    }
    return NULL;
}

static void put_slot(struct jdict *d, size_t entry) {
    uint64_t hash = d->e[entry].hash;
    size_t at = (hash ^ hash >> 32) & (d->n_slots - 1);
    while (d->slots[at])
        at = (at + 1) & (d->n_slots - 1);
    d->slots[at] = (uint32_t)(entry + 1);
}

/* Keeps the table at most half full; small dicts do without one. */
static bool index_entries(jctx *c, struct jdict *d, bool rebuild) {
    if (d->n <= DICT_SMALL) {
        d->slots = NULL;
        return true;
    }
    if (d->slots && !rebuild && d->n * 2 <= d->n_slots) {
        put_slot(d, d->n - 1);
        return true;
    }
    size_t n_slots = 32;
    while (n_slots < d->n * 4)
        n_slots *= 2;
    uint32_t *slots = jalloc(c, (uint64_t)n_slots * sizeof *slots);
    if (!slots || !jcharge(c, d->n)) return false;
    d->slots = slots;
    d->n_slots = n_slots;
    for (size_t i = 0; i < d->n; i++)
        put_slot(d, i);
    return true;
}

bool jdict_set(jctx *c, struct jdict *d, jval key, jval value) {
    uint64_t hash;
    if (!jcharge(c, 1) || !hash_key(c, key, &hash)) return false;
    struct jentry *found = dict_find(c, d, key, hash);
    if (c->failed) return false;
    if (found) {
        found->value = value;
        return true;
    }
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 4;
        struct jentry *e = cap > UINT32_MAX / 2 ? NULL : jalloc(c, (uint64_t)cap * sizeof *e);
        if (!e) return false;
        if (d->n) memcpy(e, d->e, d->n * sizeof *e);
        d->e = e;
        d->cap = cap;
    }
    d->e[d->n++] = (struct jentry){key, value, hash};
    return index_entries(c, d, false);
}

jval *jdict_get(jctx *c, const struct jdict *d, jval key) {
    uint64_t hash;
    if (!hash_key(c, key, &hash)) return NULL;
    struct jentry *e = dict_find(c, d, key, hash);
    return e ? &e->value : NULL;
}

void jdict_remove(jctx *c, struct jdict *d, size_t entry) {
    if (!jcharge(c, d->n)) return;
    memmove(d->e + entry, d->e + entry + 1, (d->n - entry - 1) * sizeof *d->e);
    d->n--;
    index_entries(c, d, true);
}

jval jdict_pairs(jctx *c, const struct jdict *d) {
    jval list = jlist_make(c, J_LIST, d->n);
    for (size_t i = 0; i < d->n && !c->failed; i++) {
        jval pair = jlist_make(c, J_TUPLE, 2);
        if (c->failed) break;
        pair.u.list->n = 2;
        pair.u.list->v[0] = d->e[i].key;
        pair.u.list->v[1] = d->e[i].value;
        jlist_push(c, list.u.list, pair);
    }
    return c->failed ? jundef_plain() : list;
}
