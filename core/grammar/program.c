/* program.c - the lists of a grammar: growth and bounds; creation and release of builders and
 * grammars. Does not depend on what the elements mean.
 *
 * THREAD SAFETY: retain and release from any thread; all else on the builder's thread. */
#include "core/base/mem.h"
#include "core/grammar/grammar_int.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME_BYTES = 1 << 24 }; /* of all properties of a grammar */

/* Makes room for more elements in a list of n. Returns its memory, which may have moved; NULL:
 * failed, and at stays valid. */
static void *list_room(void *at, uint32_t n, uint32_t *capacity, uint64_t more, uint32_t size,
                       err *e) {
    uint64_t max = size == 1 ? MAX_NAME_BYTES : GRAMMAR_MAX_NODES;
    if (n + more > max) {
        err_set(e, ERR_TOO_LONG, "the grammar is too large: more than %llu elements of one kind",
                (unsigned long long)max);
        return NULL;
    }
    if (at && n + more <= *capacity) return at;
    uint64_t want = n + more < 8 ? 8 : n + more + n / 2;
    void *grown = mem_resize(at, want, size);
    if (!grown) {
        err_no_memory(e);
        return NULL;
    }
    *capacity = (uint32_t)want;
    return grown;
}

/* Appends count elements to a list; index is that of the first. */
#define LIST_ADD(list, from, count, index, e)                                                      \
    ({                                                                                             \
        void *at_ = list_room((list).at, (list).n, &(list).capacity, count, sizeof *(list).at, e); \
        if (at_) {                                                                                 \
            (list).at = at_;                                                                       \
            *(index) = (list).n;                                                                   \
            if (count) memcpy((list).at + (list).n, from, (size_t)(count) * sizeof *(list).at);    \
            (list).n += (uint32_t)(count);                                                         \
        }                                                                                          \
        at_ ? 0 : (e) ? ((err *)(e))->code : ERR_NOMEM;                                            \
    })

int program_add_node(grammar *g, const struct g_node *node, const uint32_t *children,
                     uint32_t *index, err *e) {
    struct g_node made = *node;
    int rc = LIST_ADD(g->children, children, node->n_children, &made.first_child, e);
    return rc ? rc : LIST_ADD(g->nodes, &made, 1u, index, e);
}

int program_add_dfa(grammar *g, struct dfa *d, uint32_t *index, err *e) {
    int rc;
    uint64_t n_cells = (uint64_t)d->n_states * d->n_classes;
    if (g->n_cells + n_cells > GRAMMAR_MAX_CELLS)
        rc =
            err_set(e, ERR_TOO_LONG, "the grammar is too large: its automata need more than %d MiB",
                    (int)(GRAMMAR_MAX_CELLS * sizeof *d->next >> 20));
    else if (g->n_states + d->n_states > GRAMMAR_MAX_STATES)
        rc = err_set(e, ERR_TOO_LONG, "the grammar is too large: more than %d states of automata",
                     GRAMMAR_MAX_STATES);
    else
        rc = LIST_ADD(g->dfas, d, 1u, index, e);
    if (rc) {
        dfa_fini(d);
    } else {
        g->n_states += d->n_states;
        g->n_cells += n_cells;
    }
    *d = (struct dfa){0};
    return rc;
}

int program_set_value(grammar *g, uint32_t value, const struct g_alt *alts, uint32_t n, err *e) {
    struct g_value made = {.n_alts = n};
    int rc = LIST_ADD(g->alts, alts, n, &made.first_alt, e);
    if (!rc) g->values.at[value] = made;
    return rc;
}

int program_add_open_value(grammar *g, uint32_t *index, err *e) {
    struct g_value none = {0};
    return LIST_ADD(g->values, &none, 1u, index, e);
}

int program_add_value(grammar *g, const struct g_alt *alts, uint32_t n, uint32_t *index, err *e) {
    int rc = program_add_open_value(g, index, e);
    return rc ? rc : program_set_value(g, *index, alts, n, e);
}

int program_add_string(grammar *g, const struct g_string *s, uint32_t *index, err *e) {
    return LIST_ADD(g->strings, s, 1u, index, e);
}

int program_add_array(grammar *g, const struct g_array *a, const struct g_item *items,
                      const struct g_item *more, uint32_t *index, err *e) {
    struct g_array made = *a;
    made.more = GRAMMAR_NONE;
    int rc = LIST_ADD(g->items, items, a->n_items, &made.first_item, e);
    if (!rc && more) rc = LIST_ADD(g->items, more, 1u, &made.more, e);
    return rc ? rc : LIST_ADD(g->arrays, &made, 1u, index, e);
}

int program_add_object(grammar *g, const struct g_object *o, const struct g_member *properties,
                       const struct g_keys *keys, uint32_t *index, err *e) {
    struct g_object made = *o;
    made.first_property = g->properties.n;
    for (uint32_t i = 0; i < o->n_properties; i++) {
        struct g_property p = {.name_bytes = (uint32_t)properties[i].n,
                               .value = properties[i].value,
                               .required = properties[i].required};
        uint32_t at;
        int rc = LIST_ADD(g->names, properties[i].name, properties[i].n, &p.name, e);
        if (!rc) rc = LIST_ADD(g->properties, &p, 1u, &at, e);
        if (rc) return rc;
    }
    int rc = LIST_ADD(g->keys, keys, o->n_keys, &made.first_keys, e);
    return rc ? rc : LIST_ADD(g->objects, &made, 1u, index, e);
}

/* ---- creation and release ---- */

static grammar *program_new(void) {
    grammar *g = mem_new(1, sizeof *g);
    if (g) atomic_init(&g->refs, 1);
    return g;
}

grammar *grammar_retain(const grammar *g) {
    grammar *own = (grammar *)g;
    atomic_fetch_add_explicit(&own->refs, 1, memory_order_relaxed);
    return own;
}

void grammar_release(grammar *g) {
    if (!g || atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) != 1) return;
    for (uint32_t i = 0; i < g->dfas.n; i++)
        dfa_fini(&g->dfas.at[i]);
    for (uint32_t i = 0; g->state_flags && i < g->dfas.n; i++)
        free(g->state_flags[i]);
    for (uint32_t i = 0; g->n_texts && i < g->dfas.n; i++)
        free(g->n_texts[i]);
    free(g->state_flags);
    free(g->n_texts);
    free(g->node_flags);
    free(g->sorted);
    free(g->n_key_texts);
    free(g->alt_heights);
    free(g->heights);
    free(g->nodes.at);
    free(g->children.at);
    free(g->dfas.at);
    free(g->values.at);
    free(g->alts.at);
    free(g->strings.at);
    free(g->items.at);
    free(g->arrays.at);
    free(g->properties.at);
    free(g->keys.at);
    free(g->objects.at);
    free(g->names.at);
    free(g);
}

grammar_builder *grammar_builder_new(void) {
    grammar_builder *b = mem_new(1, sizeof *b);
    if (b && !(b->g = program_new())) {
        free(b);
        return NULL;
    }
    return b;
}

void grammar_builder_free(grammar_builder *b) {
    if (!b) return;
    grammar_release(b->g);
    free(b);
}

int program_take(grammar_builder *b, grammar **out, err *e) {
    grammar *next = program_new();
    if (!next) return err_no_memory(e);
    *out = b->g;
    b->g = next;
    err_clear(&b->failure);
    return 0;
}

#define LIST_BYTES(list) ((uint64_t)(list).capacity * sizeof *(list).at)

uint64_t grammar_bytes(const grammar *g) {
    uint64_t sum = sizeof *g + LIST_BYTES(g->nodes) + LIST_BYTES(g->children) +
                   LIST_BYTES(g->dfas) + LIST_BYTES(g->values) + LIST_BYTES(g->alts) +
                   LIST_BYTES(g->strings) + LIST_BYTES(g->items) + LIST_BYTES(g->arrays) +
                   LIST_BYTES(g->properties) + LIST_BYTES(g->keys) + LIST_BYTES(g->objects) +
                   LIST_BYTES(g->names);
    for (uint32_t i = 0; i < g->dfas.n; i++) {
        const struct dfa *d = &g->dfas.at[i];
        sum += (uint64_t)d->n_states * (d->n_classes * sizeof *d->next + 4);
    }
    return sum;
}
