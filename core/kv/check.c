/* check.c - verifies every invariant stated in kv_int.h from the data alone. Changes only its
 * scratch. Worker thread only, between two steps. */
#include "core/kv/kv_int.h"

#include <string.h>

/* order[b]: position in the free list, from 1; 0: not in it. */
static int check_free_list(const kv *c, uint32_t *order, err *e) {
    uint32_t n = 0, n_cached = 0, n_without_refs = 0, prev = KV_NONE;
    for (uint32_t b = c->free.head; b != KV_NONE; prev = b, b = c->blocks[b].free.next) {
        KV_FAIL_IF(b >= c->config.n_blocks || order[b], "free list is broken at block %u", b);
        KV_FAIL_IF(c->blocks[b].free.prev != prev, "block %u: wrong back link in the free list", b);
        KV_FAIL_IF(!kv_block_is_free(&c->blocks[b]), "block %u is in use and in the free list", b);
        order[b] = ++n;
        n_cached += c->blocks[b].cached;
    }
    KV_FAIL_IF(c->free.tail != prev, "the free list does not end at its tail");
    for (uint32_t b = 0; b < c->config.n_blocks; b++)
        n_without_refs += kv_block_is_free(&c->blocks[b]);
    KV_FAIL_IF(n != n_without_refs || n != kv_n_free(c),
               "%u blocks unused, %u in the free list, %u counted", n_without_refs, n,
               kv_n_free(c));
    KV_FAIL_IF(n_cached != atomic_load(&c->n_free_cached), "wrong number of free cached blocks");
    return 0;
}

static int check_copies(const kv *c, uint32_t *pins, err *e) {
    uint32_t n_waiting = 0;
    KV_FAIL_IF(c->n_copies > c->config.n_blocks, "too many copies");
    for (uint32_t i = 0; i < c->n_copies; i++) {
        uint32_t src = (uint32_t)c->copies[2 * i], dst = (uint32_t)c->copies[2 * i + 1];
        KV_FAIL_IF(src >= c->config.n_blocks || dst >= c->config.n_blocks, "copy %u out of range",
                   i);
        KV_FAIL_IF(c->blocks[dst].copy != i || !c->blocks[dst].refs || c->blocks[dst].cached,
                   "block %u cannot be the destination of copy %u", dst, i);
        KV_FAIL_IF(c->blocks[src].copy != KV_NONE, "block %u: copied before it is filled", src);
        pins[src]++;
    }
    for (uint32_t b = 0; b < c->config.n_blocks; b++) {
        KV_FAIL_IF(c->blocks[b].pins != pins[b], "block %u: %u pins, %u copies from it", b,
                   c->blocks[b].pins, pins[b]);
        n_waiting += c->blocks[b].copy != KV_NONE;
    }
    KV_FAIL_IF(n_waiting != c->n_copies, "a block waits for a copy that is not queued");
    return 0;
}

static int check_seq(const kv *c, const kv_seq *s, uint32_t *refs, err *e) {
    uint32_t block_tokens = c->config.block_tokens, id = (uint32_t)(s - c->seqs);
    uint32_t n_full = s->n_valid / block_tokens,
             n_held = (s->n_valid + block_tokens - 1) / block_tokens;
    KV_FAIL_IF(s->n_blocks > c->config.max_blocks_per_seq || n_held > s->n_blocks,
               "sequence %u: %u valid tokens in %u blocks", id, s->n_valid, s->n_blocks);
    for (uint32_t i = 0; i < c->config.max_blocks_per_seq; i++) {
        uint32_t b = (uint32_t)s->table[i];
        if (i >= s->n_blocks) {
            KV_FAIL_IF(b, "sequence %u: entry %u is unused but not 0", id, i);
            continue;
        }
        KV_FAIL_IF(b >= c->config.n_blocks, "sequence %u: entry %u out of range", id, i);
        const struct kv_block *blk = &c->blocks[b];
        uint32_t parent = i ? (uint32_t)s->table[i - 1] : KV_NONE;
        refs[b]++;
        KV_FAIL_IF(c->config.prefix_cache && i < n_full && !blk->cached,
                   "sequence %u: full block %u is not in the prefix table", id, b);
        KV_FAIL_IF(blk->cached && blk->parent != parent, "sequence %u: block %u has another parent",
                   id, b);
        KV_FAIL_IF(blk->cached && !hash128_same(blk->salt, s->salt),
                   "sequence %u: block %u is of another salt", id, b);
        KV_FAIL_IF(i >= n_held && (blk->refs != 1 || blk->cached),
                   "sequence %u: block %u is to be written but not its own", id, b);
    }
    return 0;
}

static int check_seqs(const kv *c, uint32_t *refs, err *e) {
    uint32_t n_used = 0, n_unused = 0;
    for (uint32_t i = 0; i < c->config.max_seqs; i++) {
        const kv_seq *s = &c->seqs[i];
        int rc = check_seq(c, s, refs, e);
        if (rc) return rc;
        KV_FAIL_IF(!s->used && (s->n_blocks || s->n_valid), "sequence %u is unused but has blocks",
                   i);
        n_used += s->used;
    }
    for (const kv_seq *s = c->unused; s && n_unused <= c->config.max_seqs; s = s->next_unused)
        n_unused++;
    KV_FAIL_IF(n_used + n_unused != c->config.max_seqs, "sequences: %u used, %u unused", n_used,
               n_unused);
    for (uint32_t b = 0; b < c->config.n_blocks; b++)
        KV_FAIL_IF(c->blocks[b].refs != refs[b], "block %u: %u references, %u table entries", b,
                   c->blocks[b].refs, refs[b]);
    return 0;
}

static int check_cached(const kv *c, uint32_t b, const uint32_t *order, err *e) {
    const struct kv_block *blk = &c->blocks[b];
    const int32_t *ids = c->tokens + (uint64_t)b * c->config.block_tokens;
    KV_FAIL_IF(!c->config.prefix_cache, "block %u is cached though the prefix cache is off", b);
    const struct kv_place at = {blk->parent, blk->salt};
    KV_FAIL_IF(blk->hash != kv_prefix_hash(c, at, ids), "block %u: wrong hash", b);
    KV_FAIL_IF(kv_prefix_lookup(c, at, ids) != b, "block %u is not found by its tokens", b);
    if (blk->parent == KV_NONE) return 0;
    const struct kv_block *up = &c->blocks[blk->parent];
    KV_FAIL_IF(!up->cached, "block %u is cached, its parent %u is not", b, blk->parent);
    KV_FAIL_IF(up->step > blk->step, "block %u was entered before its parent %u", b, blk->parent);
    KV_FAIL_IF(!hash128_same(up->salt, blk->salt), "block %u: its parent %u is of another salt", b,
               blk->parent);
    KV_FAIL_IF(!kv_block_is_free(blk) && !up->refs, "block %u is in use, its parent %u is not", b,
               blk->parent);
    KV_FAIL_IF(kv_block_is_free(up) && order[b] > order[blk->parent],
               "block %u would be reused before its child %u", blk->parent, b);
    return 0;
}

/* Checks the list of children that starts at head. */
static int check_children(const kv *c, const uint32_t *head, uint32_t parent, uint32_t *n, err *e) {
    uint32_t b = *head, prev = KV_NONE;
    for (; b != KV_NONE; prev = b, b = c->blocks[b].sibling.next) {
        KV_FAIL_IF(++*n > c->config.n_blocks, "the lists of children are circular");
        const struct kv_block *blk = &c->blocks[b];
        KV_FAIL_IF(!blk->cached || blk->parent != parent || blk->sibling.prev != prev ||
                       kv_prefix_siblings(c, (struct kv_place){parent, blk->salt}) != head,
                   "block %u is wrongly a child of %u", b, parent);
    }
    return 0;
}

static int check_prefixes(const kv *c, const uint32_t *order, err *e) {
    uint32_t n_cached = 0, n_hashed = 0, n_children = 0;
    int rc = 0;
    for (uint32_t i = 0; !rc && i <= c->bucket_mask; i++)
        rc = check_children(c, &c->roots[i], KV_NONE, &n_children, e);
    for (uint32_t b = 0; !rc && b < c->config.n_blocks; b++) {
        if (!c->blocks[b].cached) continue;
        n_cached++;
        rc = check_cached(c, b, order, e);
        if (!rc) rc = check_children(c, &c->blocks[b].first_child, b, &n_children, e);
    }
    if (rc) return rc;
    for (uint32_t i = 0; i <= c->bucket_mask; i++) {
        uint32_t prev = KV_NONE;
        for (uint32_t b = c->buckets[i]; b != KV_NONE; prev = b, b = c->blocks[b].bucket.next) {
            KV_FAIL_IF(++n_hashed > c->config.n_blocks, "the hash chains are circular");
            KV_FAIL_IF(!c->blocks[b].cached || c->blocks[b].bucket.prev != prev,
                       "block %u: wrong link in its hash chain", b);
        }
    }
    KV_FAIL_IF(n_cached != n_hashed || n_cached != n_children,
               "%u blocks cached, %u in hash chains, %u in lists of children", n_cached, n_hashed,
               n_children);
    return 0;
}

int kv_check(const kv *c, err *e) {
    uint32_t n_blocks = c->config.n_blocks, *order = c->scratch, *counts = c->scratch + n_blocks;
    memset(c->scratch, 0, 2 * n_blocks * sizeof *c->scratch);
    int rc = check_free_list(c, order, e);
    if (!rc) rc = check_copies(c, counts, e);
    memset(counts, 0, n_blocks * sizeof *counts);
    if (!rc) rc = check_seqs(c, counts, e);
    if (!rc) rc = check_prefixes(c, order, e);
    if (!rc && kv_has_states(c)) rc = kv_check_states(c, c->scratch, e);
    if (!rc && kv_has_windows(c)) rc = kv_check_windows(c, c->scratch, e);
    return rc;
}
