/* miss.c - why a prompt's cached prefix ends where it does. Owns two small tables: hashes of blocks
 * that were evicted, and of first blocks without their salt; newer ones overwrite older ones, so an
 * answer is a guess where two hashes collide. Costs a few lookups for each new sequence. Worker
 * thread only. */
#include "core/kv/kv_int.h"

/* With the salt of no sequence: of the tokens alone. */
static uint64_t tokens_hash(const kv *c, const int32_t *tokens) {
    return kv_prefix_hash(c, (struct kv_place){KV_NONE, {0, 0}}, tokens);
}

void kv_miss_note_evicted(kv *c, uint64_t hash) {
    c->misses.evicted[hash % KV_MISS_EVICTIONS] = hash;
}

void kv_miss_note_root(kv *c, struct hash128 salt, const int32_t *tokens) {
    uint64_t hash = tokens_hash(c, tokens);
    c->misses.roots[hash % KV_MISS_ROOTS] = (struct kv_miss_root){hash, salt};
}

/* Is a block cached at the place? */
static bool has_child(const kv *c, struct kv_place at) {
    uint32_t b = *kv_prefix_siblings(c, at);
    for (int i = 0; i < KV_MISS_SCAN && b != KV_NONE; i++, b = c->blocks[b].sibling.next)
        if (c->blocks[b].parent == at.parent && hash128_same(c->blocks[b].salt, at.salt))
            return true;
    return false;
}

enum kv_miss kv_miss_find(const kv *c, const struct kv_prompt *p, const struct kv_chain_end *end) {
    const uint32_t block_tokens = c->config.block_tokens;
    const uint32_t left = p->n - end->n_found;
    const int32_t *next = p->tokens + end->n_found;
    if (!c->config.prefix_cache) return KV_MISS_NONE;
    if (end->n_usable < end->n_found) return KV_MISS_STATE;
    if (left <= (end->in_block ? 1 : block_tokens)) return KV_MISS_NONE; /* blocks are whole */
    if (end->in_block) return KV_MISS_DIFFERS;
    uint64_t hash = kv_prefix_hash(c, end->at, next);
    if (c->misses.evicted[hash % KV_MISS_EVICTIONS] == hash) return KV_MISS_EVICTED;
    if (end->at.parent != KV_NONE) return has_child(c, end->at) ? KV_MISS_DIFFERS : KV_MISS_NEW;
    hash = tokens_hash(c, next);
    const struct kv_miss_root *root = &c->misses.roots[hash % KV_MISS_ROOTS];
    const bool is_there = root->hash == hash && !hash128_same(root->salt, p->salt);
    return is_there ? KV_MISS_TENANT : KV_MISS_EMPTY;
}
