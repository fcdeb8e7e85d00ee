/* analyse.c - computes properties of a finished grammar: which nodes match the empty text or no
 * text at all, which rules are left-recursive, from which states automata accept infinitely many
 * texts.
 *
 * One thread, before the grammar is shared. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/grammar/grammar_int.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_LEFT_DEPTH = 2000,   /* nodes entered before the first byte is consumed */
    MAX_PLAIN_STATES = 8192, /* larger automata get no STATE_PLAIN */
    MAX_PLAIN_ROUNDS = 64
};

/* ---- nodes ---- */

/* The parents of each node: at[first[node]..first[node + 1]). */
struct parents {
    uint32_t *first, *at;
};

static void parents_fini(struct parents *p) {
    free(p->first);
    free(p->at);
}

static int parents_init(const grammar *g, struct parents *p) {
    uint32_t n = g->nodes.n;
    p->first = mem_new((uint64_t)n + 2, sizeof *p->first);
    p->at = mem_new(g->children.n, sizeof *p->at);
    if (!p->first || !p->at) return ERR_NOMEM;
    for (uint32_t i = 0; i < g->children.n; i++)
        p->first[g->children.at[i] + 2]++;
    for (uint32_t i = 2; i < n + 2; i++)
        p->first[i] += p->first[i - 1];
    for (uint32_t i = 0; i < n; i++) {
        const struct g_node *node = &g->nodes.at[i];
        for (uint32_t k = 0; k < node->n_children; k++)
            p->at[p->first[g->children.at[node->first_child + k] + 1]++] = i;
    }
    return 0;
}

/* Does the node have the flag regardless of its children? */
static bool has_flag_alone(const grammar *g, const struct g_node *node, int flag) {
    switch (node->kind) {
    case G_DFA: {
        const struct dfa *d = &g->dfas.at[node->index];
        return flag == NODE_NULLABLE ? d->accept[d->start] : d->start != 0;
    }
    case G_VALUE:
        return flag == NODE_PRODUCTIVE;
    case G_SEQ:
        return node->n_children == 0;
    case G_REPEAT:
        return node->min == 0;
    default:
        return false;
    }
}

/* Sets the flag on the nodes that have it by themselves and on those that inherit it: a sequence
 * from all of its children, any other node from one. */
static int spread_flag(grammar *g, const struct parents *p, int flag) {
    uint32_t n = g->nodes.n, n_todo = 0;
    uint32_t *missing = mem_new(n, sizeof *missing), *todo = mem_new(n, sizeof *todo);
    if (missing && todo) {
        for (uint32_t i = 0; i < n; i++) {
            missing[i] = g->nodes.at[i].kind == G_SEQ ? g->nodes.at[i].n_children : 1;
            if (!has_flag_alone(g, &g->nodes.at[i], flag)) continue;
            missing[i] = 0;
            todo[n_todo++] = i;
        }
        while (n_todo) {
            uint32_t node = todo[--n_todo];
            g->node_flags[node] |= (uint8_t)flag;
            for (uint32_t k = p->first[node]; k < p->first[node + 1]; k++) {
                uint32_t parent = p->at[k];
                if (missing[parent] && --missing[parent] == 0) todo[n_todo++] = parent;
            }
        }
    }
    int rc = missing && todo ? 0 : ERR_NOMEM;
    free(missing);
    free(todo);
    return rc;
}

/* May child k be entered before the node consumes a byte, given that child k - 1 may? */
static bool is_left_child(const grammar *g, uint32_t index, uint32_t k) {
    const struct g_node *node = &g->nodes.at[index];
    if (k == 0 || k >= node->n_children || node->kind != G_SEQ) return k < node->n_children;
    return g->node_flags[g->children.at[node->first_child + k - 1]] & NODE_NULLABLE;
}

struct left_walk {
    uint32_t *stack, *next, *height; /* height 0: not visited */
    uint8_t *open;
    uint32_t n;
};

static int left_enter(struct left_walk *w, uint32_t node, err *e) {
    if (w->open[node])
        return err_set(e, ERR_INVALID,
                       "the grammar is left-recursive: a rule can call itself before it has "
                       "consumed a character");
    if (w->height[node]) return 0;
    w->open[node] = 1;
    w->next[node] = 0;
    w->height[node] = 1;
    w->stack[w->n++] = node;
    return 0;
}

static int left_search(const grammar *g, struct left_walk *w, uint32_t from, err *e) {
    int rc = left_enter(w, from, e);
    while (!rc && w->n) {
        uint32_t node = w->stack[w->n - 1];
        if (is_left_child(g, node, w->next[node])) {
            rc = left_enter(w, g->children.at[g->nodes.at[node].first_child + w->next[node]++], e);
            continue;
        }
        for (uint32_t k = 0; k < w->next[node]; k++) {
            uint32_t below = w->height[g->children.at[g->nodes.at[node].first_child + k]];
            if (below + 1 > w->height[node]) w->height[node] = below + 1;
        }
        if (w->height[node] > MAX_LEFT_DEPTH)
            rc = err_set(e, ERR_TOO_LONG, "the grammar nests its rules too deeply");
        w->open[node] = 0;
        w->n--;
    }
    return rc;
}

static int check_left_recursion(const grammar *g, err *e) {
    uint64_t n = g->nodes.n;
    struct left_walk w = {.stack = mem_new(n, sizeof(uint32_t)),
                          .next = mem_new(n, sizeof(uint32_t)),
                          .height = mem_new(n, sizeof(uint32_t)),
                          .open = mem_new(n, 1)};
    int rc = w.stack && w.next && w.height && w.open ? 0 : err_no_memory(e);
    for (uint32_t i = 0; i < n && !rc; i++)
        if (!w.height[i]) rc = left_search(g, &w, i, e);
    free(w.stack);
    free(w.next);
    free(w.height);
    free(w.open);
    return rc;
}

static int check_productive(const grammar *g, err *e) {
    for (uint32_t i = 0; i < g->nodes.n; i++)
        if (g->nodes.at[i].kind == G_RULE && !(g->node_flags[i] & NODE_PRODUCTIVE))
            return err_set(e, ERR_INVALID, "a rule of the grammar never terminates");
    if (!(g->node_flags[g->root] & NODE_PRODUCTIVE))
        return err_set(e, ERR_INVALID, "the grammar allows no text at all");
    return 0;
}

static int check_heights(const grammar *g, err *e) {
    for (uint32_t i = 0; i < g->nodes.n; i++)
        if (g->nodes.at[i].kind == G_VALUE &&
            grammar_height(g, g->nodes.at[i].index) > GRAMMAR_MAX_DEPTH)
            return err_set(e, ERR_UNSUPPORTED,
                           "the schema requires values nested more than %d levels deep",
                           GRAMMAR_MAX_DEPTH);
    return 0;
}

/* The error for a refusal of the budget, or for a lack of memory. */
static int fail_analysis(int rc, err *e) {
    if (rc == ERR_WORK)
        return err_set(e, rc,
                       "the grammar takes more work than is allowed: use fewer rules, patterns and "
                       "properties, and smaller bounds");
    return rc == ERR_DEADLINE || rc == ERR_CANCELLED ? work_error(rc, e) : err_no_memory(e);
}

static int analyse_nodes(grammar *g, err *e) {
    struct parents p = {0};
    for (uint32_t i = 0; i < g->children.n; i++)
        if (g->children.at[i] == GRAMMAR_NONE)
            return err_set(e, ERR_INVALID, "a rule of the grammar is used but not defined");
    g->node_flags = mem_new(g->nodes.n, 1);
    int rc = g->node_flags ? 0 : ERR_NOMEM;
    if (!rc && !work_spend(g->work, g->nodes.n + g->children.n)) rc = g->work->reason;
    if (!rc) rc = parents_init(g, &p);
    if (!rc) rc = spread_flag(g, &p, NODE_NULLABLE);
    if (!rc) rc = spread_flag(g, &p, NODE_PRODUCTIVE);
    parents_fini(&p);
    if (rc) return fail_analysis(rc, e);
    rc = check_productive(g, e);
    return rc ? rc : check_left_recursion(g, e);
}

/* ---- automata ---- */

static bool is_zero_loop(const struct dfa *d, const uint8_t *flags, uint32_t state,
                         uint32_t class) {
    return (flags[state] & STATE_ZEROS) && class == d->class_of['0'] &&
           d->next[(uint64_t)state * d->n_classes + class] == state;
}

/* Does '0' have a class of its own? */
static bool zero_has_class(const struct dfa *d) {
    for (int b = 0; b < 256; b++)
        if (b != '0' && d->class_of[b] == d->class_of['0']) return false;
    return true;
}

static uint32_t after_zero(const struct dfa *d, uint32_t state) {
    return d->next[(uint64_t)state * d->n_classes + d->class_of['0']];
}

/* Sets STATE_ZEROS on the states from which only zeros can follow. */
static int find_zeros(const struct dfa *d, uint8_t *flags) {
    if (!zero_has_class(d)) return 0;
    for (uint32_t s = 1; s < d->n_states; s++) {
        bool only = true;
        for (uint32_t c = 0; c < d->n_classes && only; c++)
            only = c == d->class_of['0'] || !d->next[(uint64_t)s * d->n_classes + c];
        if (only) flags[s] |= STATE_ZEROS;
    }
    uint8_t *walked = mem_new(d->n_states, 1);
    if (!walked) return ERR_NOMEM;
    /* Each candidate has one successor; if the path leaves the candidates, none on it qualifies. */
    for (uint32_t from = 1; from < d->n_states; from++) {
        uint32_t s = from;
        while ((flags[s] & STATE_ZEROS) && !walked[s]) {
            walked[s] = 1;
            s = after_zero(d, s);
        }
        if (!s || (flags[s] & STATE_ZEROS)) continue;
        for (s = from; flags[s] & STATE_ZEROS; s = after_zero(d, s))
            flags[s] &= (uint8_t)~STATE_ZEROS;
    }
    free(walked);
    return 0;
}

/* Sets flag on each state from which a cycle can be reached. For STATE_INFINITE_FRAC the loop of
 * zeros at the end of a fraction does not count as a cycle. */
static int find_infinite(const struct dfa *d, uint8_t *flags, int flag) {
    enum { NEW, OPEN, DONE };
    uint32_t n = 0;
    uint8_t *color = mem_new(d->n_states, 1);
    uint32_t *stack = mem_new(d->n_states, sizeof *stack), *class = mem_new(d->n_states, 4);
    for (uint32_t from = 1; color && stack && class && from < d->n_states; from++) {
        if (color[from] != NEW) continue;
        color[from] = OPEN;
        stack[n++] = from;
        while (n) {
            uint32_t s = stack[n - 1], next = 0;
            if (class[s] == d->n_classes) {
                color[s] = DONE;
                if (--n && (flags[s] & flag)) flags[stack[n - 1]] |= (uint8_t)flag;
                continue;
            }
            uint32_t c = class[s]++;
            if (flag != STATE_INFINITE_FRAC || !is_zero_loop(d, flags, s, c))
                next = d->next[(uint64_t)s * d->n_classes + c];
            if (!next) continue;
            if (color[next] == OPEN || (flags[next] & flag)) flags[s] |= (uint8_t)flag;
            if (color[next] != NEW) continue;
            color[next] = OPEN;
            stack[n++] = next;
        }
    }
    int rc = color && stack && class ? 0 : ERR_NOMEM;
    free(color);
    free(stack);
    free(class);
    return rc;
}

/* Counts the texts that may follow each state. States that reach no cycle are counted in
 * depth-first post-order. */
static int count_texts(const struct dfa *d, const uint8_t *flags, uint16_t *n_texts) {
    uint32_t n_bytes[256] = {0}, n = 0;
    uint32_t *stack = mem_new(d->n_states, sizeof *stack), *class = mem_new(d->n_states, 4);
    for (int b = 0; b < 256; b++)
        n_bytes[d->class_of[b]]++;
    for (uint32_t from = 1; stack && class && from < d->n_states; from++) {
        if (flags[from] & STATE_INFINITE) n_texts[from] = G_TEXTS_LIMIT;
        if (!n_texts[from]) stack[n++] = from;
        while (n) {
            uint32_t s = stack[n - 1], c = class[s]++;
            if (c < d->n_classes) {
                uint32_t next = d->next[(uint64_t)s * d->n_classes + c];
                if (next && !n_texts[next]) stack[n++] = next;
                continue;
            }
            uint64_t sum = d->accept[s];
            for (c = 0; c < d->n_classes && sum < G_TEXTS_LIMIT; c++)
                sum += (uint64_t)n_bytes[c] * n_texts[d->next[(uint64_t)s * d->n_classes + c]];
            n_texts[s] = (uint16_t)(sum < G_TEXTS_LIMIT ? sum : G_TEXTS_LIMIT);
            n--;
        }
    }
    int rc = stack && class ? 0 : ERR_NOMEM;
    free(stack);
    free(class);
    return rc;
}

/* Automaton of plain characters in UTF-8 (RFC 3629's table): bytes lo to hi lead from position at
 * to position to; 0 is between characters. */
static const struct {
    uint8_t at, lo, hi, to;
} utf8_edges[] = {{0, 0x20, 0x21, 0}, {0, 0x23, 0x5b, 0}, {0, 0x5d, 0x7f, 0}, {0, 0xc2, 0xdf, 1},
                  {0, 0xe0, 0xe0, 4}, {0, 0xe1, 0xec, 2}, {0, 0xed, 0xed, 5}, {0, 0xee, 0xef, 2},
                  {0, 0xf0, 0xf0, 6}, {0, 0xf1, 0xf3, 3}, {0, 0xf4, 0xf4, 7}, {1, 0x80, 0xbf, 0},
                  {2, 0x80, 0xbf, 1}, {3, 0x80, 0xbf, 2}, {4, 0xa0, 0xbf, 1}, {5, 0x80, 0x9f, 1},
                  {6, 0x90, 0xbf, 2}, {7, 0x80, 0x8f, 2}};

/* One round: clears bit u of safe[s] if a byte of a plain character leads to a position whose bit
 * is cleared. Returns whether a bit was cleared. */
static bool plain_round(const struct dfa *d, uint8_t *safe) {
    bool changed = false;
    for (uint32_t s = 1; s < d->n_states; s++)
        for (size_t i = 0; i < sizeof utf8_edges / sizeof utf8_edges[0]; i++) {
            if (!(safe[s] >> utf8_edges[i].at & 1)) continue;
            bool holds = true;
            for (int b = utf8_edges[i].lo; b <= utf8_edges[i].hi && holds; b++)
                holds = safe[dfa_step(d, s, (uint8_t)b)] >> utf8_edges[i].to & 1;
            if (holds) continue;
            safe[s] &= (uint8_t) ~(1u << utf8_edges[i].at);
            changed = true;
        }
    return changed;
}

static int find_plain(const struct dfa *d, uint8_t *flags) {
    if (d->n_states > MAX_PLAIN_STATES) return 0;
    uint8_t *safe = mem_new(d->n_states, 1);
    if (!safe) return ERR_NOMEM;
    memset(safe + 1, 0xff, d->n_states - 1);
    int rounds = 0;
    while (plain_round(d, safe) && rounds < MAX_PLAIN_ROUNDS)
        rounds++;
    for (uint32_t s = 1; s < d->n_states && rounds < MAX_PLAIN_ROUNDS; s++)
        if (safe[s] & 1) flags[s] |= STATE_PLAIN;
    free(safe);
    return 0;
}

static int analyse_dfa(const struct dfa *d, uint8_t *flags, uint16_t *n_texts) {
    for (uint32_t s = 1; s < d->n_states; s++)
        for (uint32_t c = 0; c < d->n_classes && !flags[s]; c++)
            if (d->next[(uint64_t)s * d->n_classes + c]) flags[s] = STATE_GOES_ON;
    int rc = find_zeros(d, flags);
    if (!rc) rc = find_infinite(d, flags, STATE_INFINITE);
    if (!rc) rc = find_infinite(d, flags, STATE_INFINITE_FRAC);
    if (!rc) rc = count_texts(d, flags, n_texts);
    return rc ? rc : find_plain(d, flags);
}

/* ---- objects ---- */

struct name_order {
    const char *bytes;
    uint32_t n, property;
};

static int compare_names(const void *a, const void *b) {
    const struct name_order *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

static int sort_names(grammar *g) {
    struct name_order *names = mem_new(g->properties.n, sizeof *names);
    g->sorted = mem_new(g->properties.n, sizeof *g->sorted);
    for (uint32_t i = 0; names && g->sorted && i < g->properties.n; i++)
        names[i] = (struct name_order){.bytes = g->names.at + g->properties.at[i].name,
                                       .n = g->properties.at[i].name_bytes,
                                       .property = i};
    for (uint32_t i = 0; names && g->sorted && i < g->objects.n; i++) {
        const struct g_object *o = &g->objects.at[i];
        qsort(names + o->first_property, o->n_properties, sizeof *names, compare_names);
    }
    int rc = names && g->sorted ? 0 : ERR_NOMEM;
    for (uint32_t i = 0; !rc && i < g->properties.n; i++)
        g->sorted[i] = names[i].property;
    free(names);
    return rc;
}

/* Charges the passes over a whole automaton. */
static int spend_on(const grammar *g, const struct dfa *d) {
    return work_spend(g->work, 4 * dfa_size(d)) ? 0 : g->work->reason;
}

static int count_keys(grammar *g) {
    g->n_key_texts = mem_new(g->keys.n, sizeof *g->n_key_texts);
    int rc = g->n_key_texts ? 0 : ERR_NOMEM;
    for (uint32_t i = 0; i < g->keys.n && !rc; i++) {
        const struct dfa *d = &g->dfas.at[g->keys.at[i].dfa];
        rc = spend_on(g, d);
        if (!rc) g->n_key_texts[i] = dfa_count(d, G_KEYS_LIMIT);
    }
    return rc;
}

int program_analyse(grammar *g, err *e) {
    int rc = program_heights(g);
    if (rc) return fail_analysis(rc, e);
    rc = check_heights(g, e);
    if (!rc) rc = analyse_nodes(g, e);
    if (rc) return rc;
    g->serial = clock_now_ns();
    g->state_flags = mem_new(g->dfas.n, sizeof *g->state_flags);
    g->n_texts = mem_new(g->dfas.n, sizeof *g->n_texts);
    rc = g->state_flags && g->n_texts ? sort_names(g) : ERR_NOMEM;
    if (!rc) rc = count_keys(g);
    for (uint32_t i = 0; i < g->dfas.n && !rc; i++) {
        const struct dfa *d = &g->dfas.at[i];
        g->state_flags[i] = mem_new(d->n_states, 1);
        g->n_texts[i] = mem_new(d->n_states, sizeof *g->n_texts[i]);
        rc = g->state_flags[i] && g->n_texts[i] ? spend_on(g, d) : ERR_NOMEM;
        if (!rc) rc = analyse_dfa(d, g->state_flags[i], g->n_texts[i]);
    }
    return rc ? fail_analysis(rc, e) : 0;
}
