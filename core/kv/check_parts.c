/* check_parts.c - the invariants of state blocks and of window blocks (kv_int.h), for kv_check.
 * Changes only its scratch. */
#include "core/kv/kv_int.h"

#include <string.h>

/* ---- state blocks ---- */

/* seen[i]: position in the list of state blocks without references, from 1; 0: not in it. */
static int check_state_list(const kv *c, uint32_t *seen, err *e) {
    uint32_t n = 0, n_cached = 0, n_without_refs = 0, prev = KV_NONE;
    for (uint32_t i = c->free_states.head; i != KV_NONE;
         prev = i, i = c->state_blocks[i].free.next) {
        KV_FAIL_IF(i >= c->config.state.n_blocks || seen[i], "state list is broken at %u", i);
        const struct kv_state *st = &c->state_blocks[i];
        KV_FAIL_IF(st->free.prev != prev, "state %u: wrong back link in the list", i);
        KV_FAIL_IF(st->refs, "state %u is in use and in the list", i);
        KV_FAIL_IF(st->owner == KV_NONE && n_cached, "state %u is unused, but after cached ones",
                   i);
        seen[i] = ++n;
        n_cached += st->owner != KV_NONE;
    }
    KV_FAIL_IF(c->free_states.tail != prev, "the state list does not end at its tail");
    for (uint32_t i = 0; i < c->config.state.n_blocks; i++)
        n_without_refs += c->state_blocks[i].refs == 0;
    KV_FAIL_IF(n != n_without_refs || n != kv_n_states_free(c),
               "%u states unused, %u in the list, %u counted", n_without_refs, n,
               kv_n_states_free(c));
    KV_FAIL_IF(n_cached != atomic_load(&c->n_states_cached), "wrong number of cached states");
    return 0;
}

static int check_state_owners(const kv *c, err *e) {
    uint32_t n_owners = 0, n_owned = 0;
    for (uint32_t b = 0; b < c->config.n_blocks; b++) {
        uint32_t i = c->blocks[b].state;
        if (i == KV_NONE) continue;
        KV_FAIL_IF(i >= c->config.state.n_blocks || c->state_blocks[i].owner != b,
                   "block %u owns state %u, which is not its own", b, i);
        KV_FAIL_IF(!c->blocks[b].cached, "block %u owns a state but is not cached", b);
        n_owners++;
    }
    for (uint32_t i = 0; i < c->config.state.n_blocks; i++)
        n_owned += c->state_blocks[i].owner != KV_NONE;
    KV_FAIL_IF(n_owners != n_owned, "%u states owned, %u blocks own one", n_owned, n_owners);
    return 0;
}

static int check_seq_states(const kv *c, const kv_seq *s, uint32_t *refs, err *e) {
    uint32_t id = (uint32_t)(s - c->seqs), block_tokens = c->config.block_tokens;
    KV_FAIL_IF(s->source >= c->config.state.n_blocks || s->live >= c->config.state.n_blocks,
               "sequence %u: states out of range", id);
    KV_FAIL_IF(c->state_blocks[s->live].refs != 1, "sequence %u: its live block %u is shared", id,
               s->live);
    KV_FAIL_IF(c->state_blocks[s->live].owner != KV_NONE,
               "sequence %u: its live block %u is owned by a KV block", id, s->live);
    KV_FAIL_IF(s->boundary % block_tokens || s->boundary / block_tokens > s->n_blocks,
               "sequence %u: state after %u tokens in %u blocks", id, s->boundary, s->n_blocks);
    refs[s->live]++;
    if (s->source == s->live) return 0;
    refs[s->source]++;
    KV_FAIL_IF(!s->boundary || c->state_blocks[s->source].owner !=
                                   (uint32_t)s->table[s->boundary / block_tokens - 1],
               "sequence %u: its source %u is not owned by its block at %u tokens", id, s->source,
               s->boundary);
    return 0;
}

int kv_check_states(const kv *c, uint32_t *scratch, err *e) {
    const uint32_t n = c->config.state.n_blocks;
    memset(scratch, 0, n * sizeof *scratch);
    int rc = check_state_list(c, scratch, e);
    memset(scratch, 0, n * sizeof *scratch);
    if (!rc) rc = check_state_owners(c, e);
    for (uint32_t i = 0; !rc && i < c->config.max_seqs; i++)
        if (c->seqs[i].used) rc = check_seq_states(c, &c->seqs[i], scratch, e);
    for (uint32_t i = 0; !rc && i < n; i++)
        KV_FAIL_IF(c->state_blocks[i].refs != scratch[i], "state %u: %u references, %u sequences",
                   i, c->state_blocks[i].refs, scratch[i]);
    return rc;
}

/* ---- window blocks ---- */

static int check_page_lists(const kv *c, uint32_t *seen, err *e) {
    uint32_t n = 0, n_cached = 0, n_idle = 0;
    for (int l = 0; l < KV_N_PAGE_LISTS; l++) {
        uint32_t prev = KV_NONE;
        for (uint32_t i = c->page_lists[l].head; i != KV_NONE;
             prev = i, i = c->pages[i].free.next) {
            KV_FAIL_IF(i >= c->config.n_window_blocks || seen[i], "window list is broken at %u", i);
            const struct kv_page *p = &c->pages[i];
            KV_FAIL_IF(p->free.prev != prev, "window block %u: wrong back link", i);
            KV_FAIL_IF(!kv_page_is_free(p), "window block %u is in use and in a list", i);
            KV_FAIL_IF((int)kv_page_list_of(p) != l, "window block %u is in the wrong list", i);
            KV_FAIL_IF(p->owner != KV_NONE && !c->blocks[p->owner].cached,
                       "window block %u has no references, and its owner is not cached", i);
            seen[i] = 1;
            n++;
            n_cached += p->owner != KV_NONE;
        }
        KV_FAIL_IF(c->page_lists[l].tail != prev, "a window list does not end at its tail");
    }
    for (uint32_t i = 0; i < c->config.n_window_blocks; i++)
        n_idle += kv_page_is_free(&c->pages[i]);
    KV_FAIL_IF(n != n_idle || n != atomic_load(&c->n_pages_free),
               "%u window blocks unused, %u in lists", n_idle, n);
    KV_FAIL_IF(n_cached != atomic_load(&c->n_pages_cached), "wrong number of cached window blocks");
    return 0;
}

static int check_page_owners(const kv *c, err *e) {
    uint32_t n_owners = 0, n_owned = 0;
    for (uint32_t b = 0; b < c->config.n_blocks; b++) {
        uint32_t i = c->blocks[b].page;
        if (i == KV_NONE) continue;
        KV_FAIL_IF(i >= c->config.n_window_blocks || c->pages[i].owner != b,
                   "block %u has window block %u, which is not its own", b, i);
        n_owners++;
    }
    for (uint32_t i = 0; i < c->config.n_window_blocks; i++)
        n_owned += c->pages[i].owner != KV_NONE;
    KV_FAIL_IF(n_owners != n_owned, "%u window blocks owned, %u blocks have one", n_owned,
               n_owners);
    return 0;
}

static int check_seq_pages(const kv *c, const kv_seq *s, uint32_t *refs, err *e) {
    uint32_t id = (uint32_t)(s - c->seqs), block_tokens = c->config.block_tokens;
    const uint32_t n_held = s->importing ? s->n_blocks * block_tokens : s->n_valid;
    KV_FAIL_IF(s->first_page != kv_window_first(c, n_held) || s->end_page > s->n_blocks ||
                   (uint64_t)s->end_page * block_tokens < n_held,
               "sequence %u: window blocks %u to %u of %u, %u valid tokens", id, s->first_page,
               s->end_page, s->n_blocks, s->n_valid);
    for (uint32_t i = s->first_page; i < s->end_page; i++) {
        uint32_t p = (uint32_t)s->pages[i];
        KV_FAIL_IF(p >= c->config.n_window_blocks || c->blocks[s->table[i]].page != p,
                   "sequence %u: entry %u is not its block's window block", id, i);
        refs[p]++;
    }
    return 0;
}

int kv_check_windows(const kv *c, uint32_t *scratch, err *e) {
    const uint32_t n = c->config.n_window_blocks;
    uint32_t *refs = scratch, *pins = scratch + c->config.n_blocks;
    memset(scratch, 0, n * sizeof *scratch);
    int rc = check_page_lists(c, scratch, e);
    if (!rc) rc = check_page_owners(c, e);
    memset(scratch, 0, 2 * (size_t)c->config.n_blocks * sizeof *scratch);
    for (uint32_t i = 0; !rc && i < c->config.max_seqs; i++)
        if (c->seqs[i].used) rc = check_seq_pages(c, &c->seqs[i], refs, e);
    for (uint32_t i = 0; !rc && i < c->n_copies; i++) {
        uint32_t from = (uint32_t)c->page_copies[2 * i], to = (uint32_t)c->page_copies[2 * i + 1];
        KV_FAIL_IF(from >= n || to >= n || c->blocks[c->copies[2 * i + 1]].page != to,
                   "copy %u: wrong window blocks", i);
        pins[from]++;
    }
    for (uint32_t i = 0; !rc && i < n; i++)
        KV_FAIL_IF(c->pages[i].refs != refs[i] || c->pages[i].pins != pins[i],
                   "window block %u: %u references, %u sequences; %u pins, %u copies", i,
                   c->pages[i].refs, refs[i], c->pages[i].pins, pins[i]);
    return rc;
}
