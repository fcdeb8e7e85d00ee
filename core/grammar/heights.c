/* heights.c - the least nesting of arrays and objects that each value needs. The machine uses it
 * near GRAMMAR_MAX_DEPTH to enter only values that can still be completed. */
#include "core/base/mem.h"
#include "core/base/min_max.h"
#include "core/grammar/grammar_int.h"

enum { NEVER = GRAMMAR_MAX_DEPTH + 1 }; /* deeper than any text may be */

uint32_t grammar_height(const grammar *g, uint32_t value) {
    return value == GRAMMAR_NONE ? NEVER : g->heights[value];
}

static uint32_t array_height(const grammar *g, const struct g_array *a) {
    uint32_t height = 0, counted = NEVER;
    uint32_t n = a->n_items + (a->more != GRAMMAR_NONE);
    for (uint32_t i = 0; i < n; i++) {
        const struct g_item *item = &g->items.at[i < a->n_items ? a->first_item + i : a->more];
        uint32_t here = min_u32(grammar_height(g, item->value), grammar_height(g, item->contains));
        if (i < a->min) height = max_u32(height, here);
        counted = min_u32(counted, grammar_height(g, item->contains));
    }
    return max_u32(height, a->min_contains ? counted : 0) + 1;
}

/* Height of the flattest choice of `wanted` members beyond the required ones. */
static uint32_t members_height(const grammar *g, const struct g_object *o, uint32_t wanted) {
    uint32_t n_of[NEVER + 1] = {0}, n = 0, keys = NEVER;
    for (uint32_t i = 0; i < o->n_properties; i++) {
        const struct g_property *p = &g->properties.at[o->first_property + i];
        if (!p->required) n_of[grammar_height(g, p->value)]++;
    }
    for (uint32_t i = 0; i < o->n_keys; i++)
        keys = min_u32(keys, grammar_height(g, g->keys.at[o->first_keys + i].value));
    for (uint32_t height = 0; height < NEVER; height++) {
        n += n_of[height];
        if (height >= keys || n >= wanted) return height;
    }
    return NEVER;
}

static uint32_t object_height(const grammar *g, const struct g_object *o) {
    uint32_t height = 0, n_required = 0;
    for (uint32_t i = 0; i < o->n_properties; i++) {
        const struct g_property *p = &g->properties.at[o->first_property + i];
        if (!p->required) continue;
        n_required++;
        height = max_u32(height, grammar_height(g, p->value));
    }
    if (o->min > n_required) height = max_u32(height, members_height(g, o, o->min - n_required));
    return height + 1;
}

/* Sets the heights of the values from those of their alternatives. */
static void update_values(grammar *g) {
    for (uint32_t i = 0; i < g->values.n; i++) {
        const struct g_value *v = &g->values.at[i];
        uint32_t height = NEVER;
        for (uint32_t k = 0; k < v->n_alts; k++)
            height = min_u32(height, g->alt_heights[v->first_alt + k]);
        g->heights[i] = (uint16_t)height;
    }
}

/* Heights start at NEVER and only decrease; each round settles one more level. */
int program_heights(grammar *g) {
    uint64_t size = (uint64_t)g->alts.n + g->values.n + g->items.n + g->properties.n + g->keys.n;
    bool changed = true;
    g->alt_heights = mem_new(g->alts.n, sizeof *g->alt_heights);
    g->heights = mem_new(g->values.n, sizeof *g->heights);
    if (!g->alt_heights || !g->heights) return ERR_NOMEM;
    for (uint32_t i = 0; i < g->alts.n; i++)
        g->alt_heights[i] = g->alts.at[i].kind >= G_ALT_ARRAY ? NEVER : 0;
    update_values(g);
    for (uint32_t round = 0; changed && round < NEVER; round++) {
        changed = false;
        if (!work_spend(g->work, 1 + size / 4)) return g->work->reason;
        for (uint32_t i = 0; i < g->alts.n; i++) {
            const struct g_alt *alt = &g->alts.at[i];
            if (alt->kind < G_ALT_ARRAY) continue;
            uint32_t height = alt->kind == G_ALT_ARRAY
                                  ? array_height(g, &g->arrays.at[alt->index])
                                  : object_height(g, &g->objects.at[alt->index]);
            if (height >= g->alt_heights[i]) continue;
            g->alt_heights[i] = (uint16_t)height;
            changed = true;
        }
        update_values(g);
    }
    return 0;
}
