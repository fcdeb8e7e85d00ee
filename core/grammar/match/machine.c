/* machine.c - the arena of frames, sets of them, and how rows, choices and repetitions of nodes are
 * entered and left. What JSON is, machine_*.c know.
 *
 * A node is entered for texts of at least one byte; where it also takes the empty text, whoever
 * enters it goes on behind it as well. So nothing ever turns without taking a byte. */
#include "core/grammar/match/machine.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

static void enter(struct machine *m, uint32_t node, uint32_t parent);

int machine_init(struct machine *m, const grammar *g) {
    *m = (struct machine){.g = g, .n_frames = 1, .limit = UINT64_MAX};
    m->frames = mem_new(MACHINE_MAX_FRAMES, sizeof *m->frames);
    m->table = mem_new(2 * MACHINE_MAX_FRAMES, sizeof *m->table);
    m->place = mem_new(MACHINE_MAX_FRAMES, sizeof *m->place);
    m->pool = mem_new(MACHINE_MAX_POOL, sizeof *m->pool);
    m->seen = mem_new(MACHINE_SEEN, sizeof *m->seen);
    if (m->frames && m->table && m->place && m->pool && m->seen) return 0;
    machine_fini(m);
    return ERR_NOMEM;
}

void machine_fini(struct machine *m) {
    free(m->frames);
    free(m->table);
    free(m->place);
    free(m->pool);
    free(m->seen);
    *m = (struct machine){0};
}

/* ---- arena ---- */

static uint32_t frame_hash(const struct frame *f) {
    uint64_t h = 0x9e3779b97f4a7c15u, word;
    for (size_t i = 0; i < sizeof *f; i += sizeof word) {
        memcpy(&word, (const char *)f + i, sizeof word);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return (uint32_t)h;
}
_Static_assert(sizeof(struct frame) == 40, "a frame has no padding, so that bytes say equality");

uint32_t machine_intern(struct machine *m, const struct frame *f) {
    struct frame made = *f;
    if (f->kind != FRAME_CELL) {
        bool container = f->kind == FRAME_ARRAY || f->kind == FRAME_OBJECT;
        made.depth = m->frames[f->parent].depth + (container ? MACHINE_CONTAINER_DEPTH : 1);
        if (made.depth > MACHINE_MAX_DEPTH) return GRAMMAR_NONE;
    }
    uint32_t mask = 2 * MACHINE_MAX_FRAMES - 1, at = frame_hash(&made) & mask;
    for (; m->table[at]; at = (at + 1) & mask)
        if (memcmp(&m->frames[m->table[at]], &made, sizeof made) == 0) return m->table[at];
    if (m->n_frames == MACHINE_MAX_FRAMES) {
        m->failed = true;
        return GRAMMAR_NONE;
    }
    m->frames[m->n_frames] = made;
    m->table[at] = m->n_frames;
    m->place[m->n_frames] = at;
    return m->n_frames++;
}

/* The last frames are taken away in reverse, so that each frees the place that it took. */
void machine_roll_back(struct machine *m, uint32_t n) {
    while (m->n_frames > n)
        m->table[m->place[--m->n_frames]] = 0;
}

static bool has_cells(const struct frame *f) {
    return f->kind == FRAME_ARRAY || f->kind == FRAME_OBJECT;
}

static void keep(const struct frame *f, uint32_t *moved) {
    moved[f->parent] = 1;
    if (!has_cells(f)) return;
    moved[f->used] = 1;
    if (f->kind == FRAME_OBJECT) moved[f->acc] = 1;
}

static void move_references(struct frame *f, const uint32_t *moved) {
    f->parent = moved[f->parent];
    if (!has_cells(f)) return;
    f->used = moved[f->used];
    if (f->kind == FRAME_OBJECT) f->acc = moved[f->acc];
}

/* A frame refers to older ones only. */
void machine_compact(struct machine *m, struct frame *set, uint32_t n) {
    uint32_t *moved = m->place, old = m->n_frames;
    memset(moved, 0, old * sizeof *moved);
    for (uint32_t i = 0; i < n; i++)
        keep(&set[i], moved);
    for (uint32_t i = old - 1; i > 0; i--)
        if (moved[i]) keep(&m->frames[i], moved);
    m->n_frames = 1;
    moved[0] = 0;
    for (uint32_t i = 1; i < old; i++) {
        if (!moved[i]) continue;
        moved[i] = m->n_frames;
        m->frames[m->n_frames] = m->frames[i];
        move_references(&m->frames[m->n_frames++], moved);
    }
    for (uint32_t i = 0; i < n; i++)
        move_references(&set[i], moved);
    memset(m->table, 0, 2 * MACHINE_MAX_FRAMES * sizeof *m->table);
    for (uint32_t i = 1; i < m->n_frames; i++) {
        uint32_t mask = 2 * MACHINE_MAX_FRAMES - 1, at = frame_hash(&m->frames[i]) & mask;
        while (m->table[at])
            at = (at + 1) & mask;
        m->table[at] = i;
        m->place[i] = at;
    }
}

/* ---- sets ---- */

void machine_emit(struct machine *m, const struct frame *f) {
    machine_spend(m, 1 + (m->n_pool - m->out) / 16);
    for (uint32_t i = m->out; i < m->n_pool; i++)
        if (m->pool[i].x == f->x && m->pool[i].index == f->index &&
            memcmp(&m->pool[i], f, sizeof *f) == 0)
            return;
    if (m->n_pool == MACHINE_MAX_POOL || m->n_pool - m->out == MACHINE_MAX_SET) {
        m->failed = true;
        return;
    }
    m->pool[m->n_pool++] = *f;
}

bool machine_may_end(const struct frame *set, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (set[i].kind == FRAME_END) return true;
    return false;
}

/* ---- nodes ---- */

/* Was the node entered on this parent in this step already? The table forgets some: it only keeps
 * grammars that share their rules from being walked again and again. */
static bool seen_before(struct machine *m, uint32_t node, uint32_t parent) {
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

/* From child i of a row on. true: all that is left may be empty. */
static bool enter_row(struct machine *m, uint32_t node, uint32_t i, uint32_t parent) {
    const struct g_node *row = &m->g->nodes.at[node];
    for (; i < row->n_children && !machine_is_stopped(m); i++) {
        uint32_t child = m->g->children.at[row->first_child + i], below = parent;
        if (i + 1 < row->n_children) {
            struct frame f = {.parent = parent, .kind = FRAME_SEQ, .index = node, .x = i + 1};
            below = machine_intern(m, &f);
        }
        enter(m, child, below);
        if (!is_nullable(m, child)) return false;
    }
    return true;
}

static void enter_again(struct machine *m, uint32_t node, uint32_t times, uint32_t parent) {
    const struct g_node *repeat = &m->g->nodes.at[node];
    uint32_t child = m->g->children.at[repeat->first_child], below = parent;
    if (times == repeat->max) return;
    times++;
    if (repeat->max == GRAMMAR_UNLIMITED && times > repeat->min) times = repeat->min;
    if (times != repeat->max) {
        struct frame f = {.parent = parent, .kind = FRAME_REPEAT, .index = node, .x = times};
        below = machine_intern(m, &f);
    }
    enter(m, child, below);
}

static void enter(struct machine *m, uint32_t node, uint32_t parent) {
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
        enter_row(m, node, 0, parent);
        break;
    case G_REPEAT:
        enter_again(m, node, 0, parent);
        break;
    case G_RULE:
        if (seen_before(m, node, parent)) break;
        enter(m, m->g->children.at[n->first_child], parent);
        break;
    case G_ALT:
        for (uint32_t i = 0; i < n->n_children && !machine_is_stopped(m); i++)
            enter(m, m->g->children.at[n->first_child + i], parent);
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
        /* A copy: the arena may grow below, and this frame's place may not be its own then. */
        const struct frame p = m->frames[parent];
        const struct g_node *node = &m->g->nodes.at[p.index];
        switch (p.kind) {
        case FRAME_SEQ:
            if (!enter_row(m, p.index, p.x, p.parent)) return;
            break;
        case FRAME_REPEAT:
            enter_again(m, p.index, p.x, p.parent);
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
    enter(m, m->g->root, 0);
    if (is_nullable(m, m->g->root)) machine_emit(m, &(struct frame){.kind = FRAME_END});
    return m->n_pool - m->out;
}
