/* machine.c - enters and leaves the nodes of a grammar: sequences, alternatives, repetitions. JSON
 * values are entered by machine_json.c and machine_string.c.
 *
 * A node is entered for texts of at least one byte; if it also matches the empty text, the caller
 * continues after it as well. Hence no loop runs without consuming a byte. */
#include "core/grammar/match/machine.h"

static void enter_node(struct machine *m, uint32_t node, uint32_t parent);

/* Was the node already entered on this parent in this step? The table may forget some: its only
 * purpose is that shared rules are not walked repeatedly. */
static bool was_entered(struct machine *m, uint32_t node, uint32_t parent) {
    uint32_t at = (node * 0x9e3779b1u ^ parent * 0x85ebca6bu) >> 16 & (MACHINE_SEEN - 1);
    if (m->seen[at].step == m->step && m->seen[at].node == node && m->seen[at].parent == parent)
        return true;
    m->seen[at].step = m->step;
    m->seen[at].node = node;
    m->seen[at].parent = parent;
    return false;
}

static bool is_nullable(const struct machine *m, uint32_t node) {
    return m->g->node_flags[node] & NODE_NULLABLE;
}

/* Enters a sequence at child i. true: all remaining children may be empty. */
static bool enter_sequence(struct machine *m, uint32_t node, uint32_t i, uint32_t parent) {
    const struct g_node *seq = &m->g->nodes.at[node];
    for (; i < seq->n_children && !machine_is_stopped(m); i++) {
        uint32_t child = m->g->children.at[seq->first_child + i], below = parent;
        if (i + 1 < seq->n_children) {
            struct frame f = {.parent = parent, .kind = FRAME_SEQ, .index = node, .x = i + 1};
            below = machine_intern(m, &f);
        }
        enter_node(m, child, below);
        if (!is_nullable(m, child)) return false;
    }
    return true;
}

static void enter_repeat(struct machine *m, uint32_t node, uint32_t times, uint32_t parent) {
    const struct g_node *repeat = &m->g->nodes.at[node];
    uint32_t child = m->g->children.at[repeat->first_child], below = parent;
    if (times == repeat->max) return;
    times++;
    if (repeat->max == GRAMMAR_UNLIMITED && times > repeat->min) times = repeat->min;
    if (times != repeat->max) {
        struct frame f = {.parent = parent, .kind = FRAME_REPEAT, .index = node, .x = times};
        below = machine_intern(m, &f);
    }
    enter_node(m, child, below);
}

static void enter_node(struct machine *m, uint32_t node, uint32_t parent) {
    const struct g_node *n = &m->g->nodes.at[node];
    if (parent == GRAMMAR_NONE || !(m->g->node_flags[node] & NODE_PRODUCTIVE)) return;
    machine_spend(m, 1);
    if (machine_is_stopped(m)) return;
    switch (n->kind) {
    case G_DFA: {
        uint32_t start = m->g->dfas.at[n->index].start;
        struct frame f = {.parent = parent, .kind = FRAME_DFA, .index = n->index, .x = start};
        if (m->g->state_flags[n->index][start] & STATE_GOES_ON) machine_emit(m, &f);
        break;
    }
    case G_VALUE:
        json_enter_value(m, n->index, parent, false);
        break;
    case G_SEQ:
        enter_sequence(m, node, 0, parent);
        break;
    case G_REPEAT:
        enter_repeat(m, node, 0, parent);
        break;
    case G_RULE:
        if (was_entered(m, node, parent)) break;
        enter_node(m, m->g->children.at[n->first_child], parent);
        break;
    case G_ALT:
        for (uint32_t i = 0; i < n->n_children && !machine_is_stopped(m); i++)
            enter_node(m, m->g->children.at[n->first_child + i], parent);
        break;
    }
}

void machine_pop(struct machine *m, const struct frame *done) {
    uint32_t parent = done->parent;
    while (!machine_is_stopped(m)) {
        if (!parent) {
            machine_emit(m, &(struct frame){.kind = FRAME_END});
            return;
        }
        /* A copy: the calls below may add frames to the arena or remove this one. */
        const struct frame p = m->frames[parent];
        const struct g_node *node = &m->g->nodes.at[p.index];
        switch (p.kind) {
        case FRAME_SEQ:
            if (!enter_sequence(m, p.index, p.x, p.parent)) return;
            break;
        case FRAME_REPEAT:
            enter_repeat(m, p.index, p.x, p.parent);
            if (p.x < node->min && !is_nullable(m, m->g->children.at[node->first_child])) return;
            break;
        case FRAME_ARRAY:
            json_array_took(m, &p, done);
            return;
        default:
            machine_emit(m, &p);
            return;
        }
        parent = p.parent;
    }
}

static void step_dfa(struct machine *m, const struct frame *f, uint8_t byte) {
    const struct dfa *d = &m->g->dfas.at[f->index];
    uint32_t state = dfa_step(d, f->x, byte);
    if (!state) return;
    struct frame g = *f;
    g.x = state;
    if (f->flags & FLAG_WATCHED) watch_byte(&g, byte);
    if (d->accept[state]) machine_pop(m, &g);
    if (!(m->g->state_flags[f->index][state] & STATE_GOES_ON)) return;
    if (!(f->flags & FLAG_WATCHED) || watch_is_alive(m, &g)) machine_emit(m, &g);
}

uint32_t machine_step(struct machine *m, const struct frame *in, uint32_t n, uint8_t byte) {
    m->out = m->n_pool;
    m->step++;
    machine_spend(m, n);
    for (uint32_t i = 0; i < n && !machine_is_stopped(m); i++)
        switch (in[i].kind) {
        case FRAME_DFA:
            step_dfa(m, &in[i], byte);
            break;
        case FRAME_STRING:
            string_step(m, &in[i], byte);
            break;
        case FRAME_ARRAY:
            json_array_step(m, &in[i], byte);
            break;
        case FRAME_OBJECT:
            json_object_step(m, &in[i], byte);
            break;
        default:
            break;
        }
    return m->n_pool - m->out;
}

uint32_t machine_start(struct machine *m) {
    m->out = m->n_pool;
    m->step++;
    enter_node(m, m->g->root, 0);
    if (is_nullable(m, m->g->root)) machine_emit(m, &(struct frame){.kind = FRAME_END});
    return m->n_pool - m->out;
}
