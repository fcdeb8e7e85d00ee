/* prefix.c - the prefix table: maps salt, parent block and tokens to the block with their K/V.
 *
 * At most one entry per block, linked through the blocks: a hash chain finds a whole block, a list
 * of each parent's children finds a block that begins with given tokens.
 * Never changes references or the free list of blocks. Worker thread only. */
#include "core/kv/kv_int.h"

#include <assert.h>
#include <string.h>

enum { PREFIX_SCAN = 16 }; /* children compared for a partial match: bounds kv_seq_new */

#ifndef KV_HASH_MASK
#define KV_HASH_MASK UINT64_MAX /* a test narrows it to make collisions common */
#endif

void kv_prefix_init(kv *c) {
    for (uint32_t i = 0; i <= c->bucket_mask; i++)
        c->buckets[i] = c->roots[i] = KV_NONE;
}

static const int32_t *block_ids(const kv *c, uint32_t b) {
    return c->tokens + (uint64_t)b * c->config.block_tokens;
}

uint64_t kv_prefix_hash(const kv *c, struct kv_place at, const int32_t *tokens) {
    uint64_t h =
        at.parent == KV_NONE ? at.salt.lo ^ 0x9e3779b97f4a7c15u : c->blocks[at.parent].hash;
    for (uint32_t i = 0; i < c->config.block_tokens; i++) {
        h = (h ^ (uint32_t)tokens[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h & KV_HASH_MASK;
}

uint32_t *kv_prefix_siblings(const kv *c, struct kv_place at) {
    if (at.parent != KV_NONE) return &c->blocks[at.parent].first_child;
    return &c->roots[(at.salt.hi & KV_HASH_MASK) & c->bucket_mask];
}

static bool stands_at(const struct kv_block *blk, struct kv_place at) {
    return blk->parent == at.parent && hash128_same(blk->salt, at.salt);
}

static bool block_is(const kv *c, uint32_t b, struct kv_place at, const int32_t *tokens) {
    return stands_at(&c->blocks[b], at) &&
           memcmp(block_ids(c, b), tokens, c->config.block_tokens * sizeof *tokens) == 0;
}

uint32_t kv_prefix_lookup(const kv *c, struct kv_place at, const int32_t *tokens) {
    uint64_t h = kv_prefix_hash(c, at, tokens);
    uint32_t b = c->buckets[h & c->bucket_mask];
    while (b != KV_NONE && !(c->blocks[b].hash == h && block_is(c, b, at, tokens)))
        b = c->blocks[b].bucket.next;
    return b;
}

uint32_t kv_prefix_match(const kv *c, struct kv_place at, const int32_t *tokens, uint32_t n,
                         uint32_t *n_match) {
    uint32_t block_tokens = c->config.block_tokens, best = KV_NONE;
    *n_match = 0;
    if (!c->config.prefix_cache || n < 2) return KV_NONE;
    if (n >= block_tokens && (best = kv_prefix_lookup(c, at, tokens)) != KV_NONE) {
        *n_match = n > block_tokens ? block_tokens : block_tokens - 1;
        return *n_match ? best : KV_NONE;
    }
    uint32_t most = n - 1 < block_tokens ? n - 1 : block_tokens;
    uint32_t b = *kv_prefix_siblings(c, at);
    for (int i = 0; i < PREFIX_SCAN && b != KV_NONE; i++, b = c->blocks[b].sibling.next) {
        uint32_t k = 0;
        if (!stands_at(&c->blocks[b], at)) continue; /* a root of another salt */
        while (k < most && block_ids(c, b)[k] == tokens[k])
            k++;
        if (k > *n_match) {
            *n_match = k;
            best = b;
        }
    }
    return best;
}

static uint32_t *bucket_of(kv *c, const struct kv_block *blk) {
    return &c->buckets[blk->hash & c->bucket_mask];
}

static void tell_listener(const kv *c, uint32_t b, bool stored) {
    const struct kv_block *blk = &c->blocks[b];
    const struct kv_listener *l = &c->config.listener;
    if (!l->on_block || blk->salt.lo || blk->salt.hi) return;
    const bool has_parent = blk->parent != KV_NONE;
    l->on_block(l->arg,
                &(struct kv_event){.stored = stored,
                                   .has_parent = has_parent,
                                   .hash = blk->hash,
                                   .parent = has_parent ? c->blocks[blk->parent].hash : 0,
                                   .tokens = c->tokens + (uint64_t)b * c->config.block_tokens});
}

void kv_prefix_enter(kv *c, uint32_t b, struct kv_place at, const int32_t *tokens) {
    struct kv_block *blk = &c->blocks[b];
    assert(!blk->cached);
    memcpy(c->tokens + (uint64_t)b * c->config.block_tokens, tokens,
           c->config.block_tokens * sizeof *tokens);
    blk->cached = true;
    blk->kept = blk->state_kept = false;
    blk->step = c->n_steps;
    blk->entered = ++c->n_entered;
    blk->hash = kv_prefix_hash(c, at, tokens);
    blk->parent = at.parent;
    blk->salt = at.salt;
    blk->first_child = KV_NONE;
    if (at.parent == KV_NONE) kv_miss_note_root(c, at.salt, tokens);
    kv_chain_push(KV_LINKS(c->blocks, bucket), bucket_of(c, blk), b);
    kv_chain_push(KV_LINKS(c->blocks, sibling), kv_prefix_siblings(c, at), b);
    tell_listener(c, b, true);
}

void kv_prefix_remove(kv *c, uint32_t b) {
    struct kv_block *blk = &c->blocks[b];
    assert(blk->cached && blk->first_child == KV_NONE);
    tell_listener(c, b, false);
    if (blk->state != KV_NONE) kv_state_disown(c, b);
    kv_window_uncached(c, b);
    kv_chain_remove(KV_LINKS(c->blocks, bucket), bucket_of(c, blk), b);
    kv_chain_remove(KV_LINKS(c->blocks, sibling),
                    kv_prefix_siblings(c, (struct kv_place){blk->parent, blk->salt}), b);
    blk->cached = false;
}
