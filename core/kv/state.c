/* state.c - owns the state blocks of recurrent layers: their references, the list of those without
 * in order of reuse, which cached KV block owns which, and their pools. What a block holds is
 * core/backend/state_layout.h's; nothing here reads or copies it. Worker thread only. */
#include "core/kv/kv_int.h"

#include "core/base/mem.h"

#include <assert.h>
#include <stdlib.h>

/* ---- pools ---- */

uint64_t kv_state_bytes(const struct kv_config *config) {
    uint64_t bytes = backend_state_block_bytes(&config->state);
    if (!config->n_state_layers) return 0;
    return bytes && mem_mul(bytes, config->n_state_layers, &bytes) ? bytes : UINT64_MAX;
}

static int pools_open(kv *c, err *e) {
    const struct kv_config *config = &c->config;
    const uint32_t n_layers = config->n_state_layers;
    uint64_t bytes = backend_state_block_bytes(&config->state) * config->state.n_blocks;
    c->states = mem_new((uint64_t)c->n_ranks * n_layers, sizeof *c->states);
    if (!c->states) return err_no_memory(e);
    for (uint32_t i = 0; i < c->n_ranks * n_layers; i++) {
        c->states[i] = config->state;
        c->states[i].blocks = NULL;
    }
    for (uint32_t i = 0; i < c->n_ranks * n_layers; i++) {
        backend *be = backend_peer(config->be, i / n_layers);
        int rc = backend_buf_new(be, bytes, &c->states[i].blocks, e);
        if (rc) return rc;
    }
    return 0;
}

const struct backend_state *kv_states(const kv *c) {
    return c->states;
}

bool kv_has_states(const kv *c) {
    return c->config.n_state_layers > 0;
}

/* ---- the list of blocks without references ---- */

/* As in the list of KV blocks: unused ones go first, cached ones in the order of their last use. */
static void list_add(kv *c, uint32_t i) {
    const bool cached = c->state_blocks[i].owner != KV_NONE;
    kv_list_add(KV_LINKS(c->state_blocks, free), &c->free_states, i, cached);
    kv_count(&c->n_states_free, 1);
    if (cached) kv_count(&c->n_states_cached, 1);
}

static void list_remove(kv *c, uint32_t i) {
    kv_list_remove(KV_LINKS(c->state_blocks, free), &c->free_states, i);
    kv_count(&c->n_states_free, -1);
    if (c->state_blocks[i].owner != KV_NONE) kv_count(&c->n_states_cached, -1);
}

int kv_states_open(kv *c, err *e) {
    c->free_states = KV_LIST_EMPTY;
    c->state_blocks = mem_new(c->config.state.n_blocks, sizeof *c->state_blocks);
    if (!c->state_blocks) return err_no_memory(e);
    for (uint32_t i = c->config.state.n_blocks; i-- > 0;) {
        c->state_blocks[i].owner = KV_NONE;
        list_add(c, i); /* block 0 is taken first */
    }
    return c->config.be ? pools_open(c, e) : 0;
}

void kv_states_close(kv *c) {
    for (uint32_t i = 0; c->states && i < c->n_ranks * c->config.n_state_layers; i++)
        backend_buf_free(c->states[i].blocks);
    free(c->states);
    free(c->state_blocks);
}

uint32_t kv_n_states_free(const kv *c) {
    return (uint32_t)atomic_load_explicit(&c->n_states_free, memory_order_relaxed);
}

bool kv_state_unused(const kv *c, uint32_t state) {
    return c->state_blocks[state].refs == 0;
}

/* ---- owners and references ---- */

static void disown(kv *c, uint32_t i) {
    struct kv_state *st = &c->state_blocks[i];
    c->blocks[st->owner].state = KV_NONE;
    st->owner = KV_NONE;
    kv_count(&c->state_evictions, 1);
}

void kv_state_disown(kv *c, uint32_t b) {
    uint32_t i = c->blocks[b].state;
    bool listed = c->state_blocks[i].refs == 0;
    if (listed) list_remove(c, i);
    disown(c, i);
    if (listed) list_add(c, i); /* unused: first to be taken */
}

void kv_states_forget(kv *c, uint64_t done) {
    for (uint32_t i = 0; kv_has_states(c) && i < c->config.state.n_blocks; i++) {
        const struct kv_state *st = &c->state_blocks[i];
        if (st->owner != KV_NONE && st->step > done) kv_state_disown(c, st->owner);
    }
}

/* An unused block, or the least recently used cached one, with one reference. KV_NONE: all are in
 * use. */
static uint32_t state_take(kv *c) {
    uint32_t i = c->free_states.head;
    if (i == KV_NONE) return KV_NONE;
    list_remove(c, i);
    kv_await_batch(c, c->state_blocks[i].batch);
    if (c->state_blocks[i].owner != KV_NONE) disown(c, i);
    c->state_blocks[i].refs = 1;
    return i;
}

static void state_ref(kv *c, uint32_t i) {
    if (kv_state_unused(c, i)) list_remove(c, i);
    c->state_blocks[i].refs++;
}

static void state_unref(kv *c, uint32_t i) {
    assert(c->state_blocks[i].refs > 0);
    if (--c->state_blocks[i].refs == 0) list_add(c, i);
}

void kv_state_touch(kv *c, uint32_t b) {
    uint32_t i = c->blocks[b].state;
    if (i == KV_NONE || !kv_state_unused(c, i)) return;
    list_remove(c, i);
    list_add(c, i);
}

/* The KV block that ends at the sequence's boundary gets its source, if it can have it. */
static bool give_source(kv *c, const kv_seq *s) {
    if (!s->boundary || !c->config.prefix_cache || c->state_blocks[s->source].owner != KV_NONE)
        return false;
    uint32_t b = (uint32_t)s->table[s->boundary / c->config.block_tokens - 1];
    if (!c->blocks[b].cached || c->blocks[b].state != KV_NONE) return false;
    c->blocks[b].state = s->source;
    c->blocks[b].state_kept = false;
    c->state_blocks[s->source].owner = b;
    c->state_blocks[s->source].step = s->source_step;
    return true;
}

bool kv_states_begin(kv *c, kv_seq *s, uint32_t source, uint32_t boundary) {
    if (source != KV_NONE) state_ref(c, source); /* first: the live block must not evict it */
    uint32_t live = state_take(c);
    if (live == KV_NONE) {
        if (source != KV_NONE) state_unref(c, source);
        return false;
    }
    s->live = live;
    s->source = source != KV_NONE ? source : live;
    s->boundary = boundary;
    return true;
}

void kv_states_advance(kv *c, kv_seq *s, uint32_t n_computed, bool keep) {
    if (!kv_has_states(c)) return;
    uint32_t boundary = n_computed - n_computed % c->config.block_tokens;
    if (boundary > s->boundary) { /* the step wrote the state into the live block */
        if (s->source != s->live) state_unref(c, s->source);
        s->source = s->live;
        s->source_step = c->n_steps;
        s->boundary = boundary;
    }
    if (!keep || n_computed != boundary || s->source != s->live || c->free_states.head == KV_NONE)
        return;
    /* At the boundary nothing is pending: the next step needs nothing from its live block. */
    if (give_source(c, s)) s->live = state_take(c);
}

void kv_states_lost(kv *c, kv_seq *s) {
    if (kv_has_states(c) && s->source == s->live) s->boundary = 0;
}

void kv_states_end(kv *c, kv_seq *s) {
    give_source(c, s);
    if (s->live != s->source) state_unref(c, s->live);
    state_unref(c, s->source);
    s->source = s->live = KV_NONE;
    s->boundary = s->junction = 0;
}

void kv_state_ids(const kv_seq *s, int32_t ids[2]) {
    ids[0] = (int32_t)s->source;
    ids[1] = (int32_t)s->live;
}

uint32_t kv_seq_junction(const kv_seq *s) {
    return s->junction;
}
