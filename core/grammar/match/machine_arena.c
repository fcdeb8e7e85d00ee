/* machine_arena.c - the memory of a machine: the arena of interned frames, and the sets of frames
 * in its pool. Does not depend on what the frames mean. */
#include "core/base/mem.h"
#include "core/grammar/match/machine.h"

#include <stdlib.h>
#include <string.h>

int machine_init(struct machine *m, const grammar *g) {
    *m = (struct machine){.g = g, .n_frames = 1, .limit = UINT64_MAX};
    m->frames = mem_new(MACHINE_MAX_FRAMES, sizeof *m->frames);
    m->table = mem_new(2 * MACHINE_MAX_FRAMES, sizeof *m->table);
    m->slot = mem_new(MACHINE_MAX_FRAMES, sizeof *m->slot);
    m->pool = mem_new(MACHINE_MAX_POOL, sizeof *m->pool);
    m->seen = mem_new(MACHINE_SEEN, sizeof *m->seen);
    if (m->frames && m->table && m->slot && m->pool && m->seen) return 0;
    machine_fini(m);
    return ERR_NOMEM;
}

void machine_fini(struct machine *m) {
    free(m->frames);
    free(m->table);
    free(m->slot);
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
_Static_assert(sizeof(struct frame) == 40, "a frame has no padding: equal bytes mean equal frames");

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
    m->slot[m->n_frames] = at;
    return m->n_frames++;
}

/* Frames are removed in reverse order, so that each frees the slot that it occupied. */
void machine_roll_back(struct machine *m, uint32_t n) {
    while (m->n_frames > n)
        m->table[m->slot[--m->n_frames]] = 0;
}

static bool has_cells(const struct frame *f) {
    return f->kind == FRAME_ARRAY || f->kind == FRAME_OBJECT;
}

static void mark_references(const struct frame *f, uint32_t *moved) {
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

/* One pass marks and one moves, because a frame refers only to older ones. */
void machine_compact(struct machine *m, struct frame *set, uint32_t n) {
    uint32_t *moved = m->slot, old = m->n_frames;
    memset(moved, 0, old * sizeof *moved);
    for (uint32_t i = 0; i < n; i++)
        mark_references(&set[i], moved);
    for (uint32_t i = old - 1; i > 0; i--)
        if (moved[i]) mark_references(&m->frames[i], moved);
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
        m->slot[i] = at;
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
