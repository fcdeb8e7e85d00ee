/* machine_json.c - JSON values, arrays and objects: which item or key may come next so that minima,
 * maxima, `contains` and required members can still be satisfied.
 *
 * White space is one optional space after ':' and ','. A container's frame in the arena describes
 * the state after the element on top of it. */
#include "core/grammar/match/machine.h"

/* ---- values ---- */

static bool enter_scalar(struct machine *m, uint32_t dfa, uint32_t parent, bool watched) {
    struct frame f = {.parent = parent,
                      .kind = FRAME_DFA,
                      .index = dfa,
                      .x = m->g->dfas.at[dfa].start,
                      .flags = watched ? FLAG_WATCHED : 0};
    if (!f.x || (watched && !watch_is_alive(m, &f))) return false;
    machine_emit(m, &f);
    return true;
}

static bool enter_string(struct machine *m, const struct g_string *s, uint32_t parent,
                         bool watched) {
    struct frame f = {.parent = parent, .flags = watched ? FLAG_WATCHED : 0};
    string_begin(m, &f, s);
    if ((s->dfa != GRAMMAR_NONE && !f.x) || !string_is_alive(m, &f)) return false;
    machine_emit(m, &f);
    return true;
}

/* Can an alternative be completed at this depth? */
static bool alt_fits(const struct machine *m, uint32_t alt, uint32_t depth) {
    return depth + m->g->alt_heights[alt] * (uint32_t)MACHINE_CONTAINER_DEPTH <= MACHINE_MAX_DEPTH;
}

/* Can the value be a member of the object f? */
static bool member_fits(const struct machine *m, const struct frame *f, uint32_t value) {
    uint32_t depth = m->frames[f->parent].depth + MACHINE_CONTAINER_DEPTH;
    return depth + grammar_height(m->g, value) * MACHINE_CONTAINER_DEPTH <= MACHINE_MAX_DEPTH;
}

bool json_enter_value(struct machine *m, uint32_t value, uint32_t parent, bool watched) {
    if (value == GRAMMAR_NONE || parent == GRAMMAR_NONE) return false;
    const struct g_value *v = &m->g->values.at[value];
    bool any = false;
    for (uint32_t i = 0; i < v->n_alts && !machine_is_stopped(m); i++) {
        const struct g_alt *alt = &m->g->alts.at[v->first_alt + i];
        if (alt->kind == G_ALT_TEXT) {
            any |= enter_scalar(m, alt->index, parent, watched);
        } else if (alt->kind == G_ALT_STRING) {
            any |= enter_string(m, &m->g->strings.at[alt->index], parent, watched);
        } else if (alt_fits(m, v->first_alt + i, m->frames[parent].depth)) {
            struct frame f = {.parent = parent,
                              .kind = alt->kind == G_ALT_ARRAY ? FRAME_ARRAY : FRAME_OBJECT,
                              .phase = CONTAINER_OPEN,
                              .index = alt->index};
            machine_emit(m, &f);
            any = true;
        }
    }
    return any;
}

/* ---- arrays ---- */

static bool has_contains(const struct g_array *a) {
    return a->min_contains || a->max_contains != GRAMMAR_UNLIMITED;
}

static bool takes_something(const grammar *g, uint32_t value) {
    return value != GRAMMAR_NONE && g->values.at[value].n_alts;
}

/* The item at a position; NULL: there is no such position. */
static const struct g_item *item_at(const grammar *g, const struct g_array *a, uint32_t place) {
    if (place < a->n_items) return &g->items.at[a->first_item + place];
    return a->more == GRAMMAR_NONE ? NULL : &g->items.at[a->more];
}

/* Can the array still end after n items, c of which contains matches? Determines for each length
 * that the array may reach which counts are possible. */
static bool array_can_end(struct machine *m, const struct g_array *a, uint64_t n, uint64_t c) {
    const grammar *g = m->g;
    uint64_t last = a->more == GRAMMAR_NONE && a->n_items < a->max ? a->n_items : a->max;
    if (n > last || a->min > last) return false;
    if (!has_contains(a)) return true;
    uint64_t least = c, most = c;
    for (;; n++) {
        machine_spend(m, 1);
        if (n >= a->min && least <= a->max_contains && most >= a->min_contains) return true;
        if (n == last || least > a->max_contains) return false;
        const struct g_item *item = item_at(g, a, (uint32_t)n);
        bool may = takes_something(g, item->contains),
             must = may && !takes_something(g, item->rest);
        uint64_t step = 1;
        if (n >= a->n_items) { /* all further positions are alike: go straight to the length */
            if (most < a->min_contains && !may) return false;
            step = n < a->min ? a->min - n : 0;
            if (most < a->min_contains && step < a->min_contains - most)
                step = a->min_contains - most;
            if (!step || n + step > last) return false;
            n += step - 1;
        }
        most += may ? step : 0;
        least += must ? step : 0;
    }
}

static bool enter_variant(struct machine *m, const struct frame *f, uint32_t value,
                          uint32_t counts) {
    const struct g_array *a = &m->g->arrays.at[f->index];
    struct frame after = *f;
    if (!takes_something(m->g, value) || !array_can_end(m, a, f->x + 1u, f->y + counts))
        return false;
    uint32_t enough = a->n_items > a->min ? a->n_items : a->min;
    after.phase = CONTAINER_AFTER;
    if (a->max != GRAMMAR_UNLIMITED || f->x < enough) after.x++;
    if (a->max_contains != GRAMMAR_UNLIMITED || f->y < a->min_contains) after.y += counts;
    return json_enter_value(m, value, machine_intern(m, &after), a->unique);
}

static bool enter_item(struct machine *m, const struct frame *f) {
    const struct g_array *a = &m->g->arrays.at[f->index];
    const struct g_item *item = f->x == a->max ? NULL : item_at(m->g, a, f->x);
    if (!item) return false;
    if (!has_contains(a)) return enter_variant(m, f, item->value, 0);
    bool counted = enter_variant(m, f, item->contains, 1);
    return enter_variant(m, f, item->rest, 0) || counted;
}

static bool array_may_end(const struct machine *m, const struct frame *f) {
    const struct g_array *a = &m->g->arrays.at[f->index];
    return f->x >= a->min && f->y >= a->min_contains && f->y <= a->max_contains;
}

void json_array_step(struct machine *m, const struct frame *f, uint8_t byte) {
    struct frame g = *f;
    bool after = f->phase == CONTAINER_AFTER;
    if (f->phase == CONTAINER_OPEN) {
        if (byte != '[') return;
        g.phase = CONTAINER_FIRST;
        /* A frame of its own waits for the closing bracket; the items have theirs. */
        enter_item(m, &g);
        if (array_may_end(m, &g)) machine_emit(m, &g);
    } else if (byte == ']' && (after || f->phase == CONTAINER_FIRST)) {
        if (array_may_end(m, f)) machine_pop(m, f);
    } else if (byte == ',' && after) {
        g.phase = CONTAINER_COMMA;
        if (enter_item(m, &g)) machine_emit(m, &g);
    } else if (byte == ' ' && f->phase == CONTAINER_COMMA) {
        enter_item(m, &g);
    }
}

void json_array_took(struct machine *m, const struct frame *p, const struct frame *done) {
    struct frame after = *p;
    if (m->g->arrays.at[p->index].unique) {
        uint64_t hash = watch_hash(done);
        if (used_has(m, p->used, hash)) return;
        after.used = used_add(m, p->used, hash);
        if (after.used == GRAMMAR_NONE) return;
    }
    machine_emit(m, &after);
}

/* ---- objects ---- */

static const struct g_object *object_of(const struct machine *m, const struct frame *f) {
    return &m->g->objects.at[f->index];
}

static const struct g_property *property_of(const struct machine *m, const struct g_object *o,
                                            uint32_t i) {
    return &m->g->properties.at[o->first_property + i];
}

static bool was_seen(const struct machine *m, const struct frame *f, uint32_t i) {
    if (object_of(m, f)->in_order) return i < f->bits;
    if (i < 64) return f->bits >> i & 1;
    for (uint32_t cell = f->acc; cell; cell = m->frames[cell].parent)
        if (m->frames[cell].index == i / 64) return m->frames[cell].bits >> i % 64 & 1;
    return false;
}

/* The list at cell (blocks of 64 properties, descending) with property i added. */
static uint32_t with_seen(struct machine *m, uint32_t cell, uint32_t i) {
    struct frame made = {.kind = FRAME_CELL, .parent = cell, .index = i / 64};
    if (cell && m->frames[cell].index >= i / 64) {
        made = m->frames[cell];
        if (made.index > i / 64) made.parent = with_seen(m, made.parent, i);
    }
    if (made.parent == GRAMMAR_NONE) return GRAMMAR_NONE;
    if (made.index == i / 64) made.bits |= UINT64_C(1) << i % 64;
    return machine_intern(m, &made);
}

static uint32_t n_required_left(struct machine *m, const struct frame *f) {
    const struct g_object *o = object_of(m, f);
    uint32_t n = 0;
    machine_spend(m, 1 + o->n_properties / 8);
    for (uint32_t i = 0; i < o->n_properties; i++)
        n += property_of(m, o, i)->required && !was_seen(m, f, i);
    return n;
}

/* How many keys other than the properties are left; GRAMMAR_UNLIMITED: enough for any bound. */
static uint64_t n_keys_left(const struct machine *m, const struct frame *f) {
    const struct g_object *o = object_of(m, f);
    uint64_t all = 0, gone = used_n(m, f->used);
    for (uint32_t i = 0; i < o->n_keys; i++)
        all += m->g->n_key_texts[o->first_keys + i];
    if (all >= G_KEYS_LIMIT) return GRAMMAR_UNLIMITED;
    return all > gone ? all - gone : 0;
}

bool json_may_name(struct machine *m, const struct frame *f, uint32_t i) {
    const struct g_object *o = object_of(m, f);
    if (was_seen(m, f, i) || !member_fits(m, f, property_of(m, o, i)->value)) return false;
    machine_spend(m, 1 + (o->in_order ? i / 8 : 0));
    if (o->in_order)
        for (uint32_t k = (uint32_t)f->bits; k < i; k++)
            if (property_of(m, o, k)->required) return false;
    if (o->max != GRAMMAR_UNLIMITED) {
        uint64_t others = n_required_left(m, f) - property_of(m, o, i)->required;
        if (f->x + 1 + others > o->max) return false;
    }
    if (!o->in_order || f->x + 1u + (o->n_properties - i - 1) >= o->min) return true;
    return f->x + 1u + (o->n_properties - i - 1) + n_keys_left(m, f) >= o->min;
}

static bool may_use_keys(struct machine *m, const struct frame *f) {
    const struct g_object *o = object_of(m, f);
    uint64_t required = n_required_left(m, f);
    if (!o->n_keys || (o->in_order && required)) return false;
    if (o->max != GRAMMAR_UNLIMITED && f->x + 1 + required > o->max) return false;
    return !o->in_order || f->x >= o->min || f->x + n_keys_left(m, f) >= o->min;
}

/* The keys that may come next, after their quote: emits them, or only tells whether there are any.
 */
static bool begin_key(struct machine *m, const struct frame *f, bool emit) {
    const struct g_object *o = object_of(m, f);
    struct frame object = *f, key = {.kind = FRAME_STRING, .phase = STRING_BODY};
    object.phase = CONTAINER_AFTER;
    key.parent = machine_intern(m, &object);
    if (key.parent == GRAMMAR_NONE) return false;
    key.flags = FLAG_KEY | CONTENT_NAMES;
    key.index = f->index;
    key.x = o->first_property;
    key.y = o->first_property + o->n_properties;
    bool any = string_is_alive(m, &key);
    if (any && emit) machine_emit(m, &key);
    if ((any && !emit) || !may_use_keys(m, f)) return any;
    key.flags = FLAG_KEY | FLAG_WATCHED | CONTENT_DFA;
    for (uint32_t i = 0; i < o->n_keys && !machine_is_stopped(m); i++) {
        key.y = o->first_keys + i;
        key.index = m->g->keys.at[key.y].dfa;
        key.x = m->g->dfas.at[key.index].start;
        if (!key.x || !string_is_alive(m, &key)) continue;
        if (!member_fits(m, f, m->g->keys.at[key.y].value)) continue;
        if (emit) machine_emit(m, &key);
        any = true;
    }
    return any;
}

void json_took_key(struct machine *m, const struct frame *key, uint32_t property) {
    struct frame f = m->frames[key->parent];
    const struct g_object *o = object_of(m, &f);
    f.phase = CONTAINER_COLON;
    if (o->max != GRAMMAR_UNLIMITED || f.x < o->min) f.x++;
    if (property == GRAMMAR_NONE) {
        f.y = m->g->keys.at[key->y].value;
        f.used = used_add(m, f.used, watch_hash(key));
        if (o->in_order) f.bits = o->n_properties;
    } else {
        f.y = property_of(m, o, property)->value;
        if (o->in_order)
            f.bits = property + 1;
        else if (property < 64)
            f.bits |= UINT64_C(1) << property;
        else
            f.acc = with_seen(m, f.acc, property);
    }
    if (f.used != GRAMMAR_NONE && f.acc != GRAMMAR_NONE) machine_emit(m, &f);
}

static bool enter_member(struct machine *m, const struct frame *f) {
    struct frame after = *f;
    after.phase = CONTAINER_AFTER;
    after.y = 0;
    return json_enter_value(m, f->y, machine_intern(m, &after), false);
}

static bool object_may_end(struct machine *m, const struct frame *f) {
    return f->x >= object_of(m, f)->min && !n_required_left(m, f);
}

void json_object_step(struct machine *m, const struct frame *f, uint8_t byte) {
    struct frame g = *f;
    enum container_phase phase = (enum container_phase)f->phase;
    bool key = phase == CONTAINER_FIRST || phase == CONTAINER_COMMA || phase == CONTAINER_KEY;
    if (byte == '{' && phase == CONTAINER_OPEN) {
        g.phase = CONTAINER_FIRST;
        machine_emit(m, &g);
    } else if (byte == '}' && (phase == CONTAINER_FIRST || phase == CONTAINER_AFTER)) {
        if (object_may_end(m, f)) machine_pop(m, f);
    } else if (byte == '"' && key) {
        begin_key(m, f, true);
    } else if (byte == ',' && phase == CONTAINER_AFTER) {
        g.phase = CONTAINER_COMMA;
        if (begin_key(m, f, false)) machine_emit(m, &g);
    } else if (byte == ' ' && phase == CONTAINER_COMMA) {
        g.phase = CONTAINER_KEY;
        machine_emit(m, &g);
    } else if (byte == ':' && phase == CONTAINER_COLON) {
        g.phase = CONTAINER_VALUE;
        if (enter_member(m, f)) machine_emit(m, &g);
    } else if (byte == ' ' && phase == CONTAINER_VALUE) {
        enter_member(m, f);
    }
}
