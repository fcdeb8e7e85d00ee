/* seq.c - owns the block tables: new sequences on a cached prefix, growth, copy-on-write, forks,
 * commit. Only blocks at or after a sequence's valid end are written, so at most one block per
 * reservation, the one that contains that end, needs a copy. Worker thread only. */
#include "core/kv/kv_int.h"

#include <assert.h>
#include <string.h>

static uint32_t blocks_for(const kv *c, uint32_t n_tokens) {
    return (uint32_t)(((uint64_t)n_tokens + c->config.block_tokens - 1) / c->config.block_tokens);
}

static kv_seq *seq_take(kv *c, struct hash128 salt) {
    kv_seq *s = c->unused;
    if (!s) return NULL;
    c->unused = s->next_unused;
    s->used = true;
    s->n_blocks = s->n_valid = 0;
    s->salt = salt;
    return s;
}

kv_seq *kv_seq_new(kv *c, const struct kv_prompt *p, uint32_t *n_cached) {
    struct kv_place at = {KV_NONE, p->salt};
    uint32_t n_match = c->config.block_tokens;
    kv_seq *s = seq_take(c, p->salt);
    *n_cached = 0;
    if (!s) return NULL;
    while (n_match == c->config.block_tokens && s->n_blocks < c->config.max_blocks_per_seq) {
        uint32_t b = kv_prefix_match(c, at, p->tokens + s->n_valid, p->n - s->n_valid, &n_match);
        if (b == KV_NONE) break;
        kv_block_ref(c, b);
        s->table[s->n_blocks++] = (int32_t)b;
        s->n_valid += n_match;
        at.parent = b;
    }
    if (c->config.prefix_cache) {
        kv_count(&c->prefix_queries_tokens, p->n);
        kv_count(&c->prefix_hit_tokens, s->n_valid);
    }
    *n_cached = s->n_valid;
    return s;
}

kv_seq *kv_seq_fork(kv *c, const kv_seq *src, uint32_t n_tokens) {
    kv_seq *s = seq_take(c, src->salt);
    assert(n_tokens <= src->n_valid);
    if (!s) return NULL;
    s->n_blocks = blocks_for(c, n_tokens);
    s->n_valid = n_tokens;
    for (uint32_t i = 0; i < s->n_blocks; i++) {
        s->table[i] = src->table[i];
        kv_block_ref(c, (uint32_t)s->table[i]);
    }
    return s;
}

/* The blocks that a reservation takes from the free list: n_new at the end, and one if the block of
 * first_write must be copied because another sequence or the prefix table has it.
 *
 * in_place: only the prefix table has it, and the new blocks leave none for the copy. Then it is
 * removed from the table and written, so that a single sequence can use the whole cache. (All its
 * cached children were free, so they are among the blocks that are reused first.) */
struct growth {
    uint32_t n_new;
    bool copy, in_place;
};

static struct growth growth_of(uint32_t n_new, bool shared, bool cached, uint32_t n_free) {
    bool in_place = cached && !shared && n_new == n_free;
    return (struct growth){n_new, (shared || cached) && !in_place, in_place};
}

static struct growth seq_growth(const kv *c, const kv_seq *s, uint32_t first_write,
                                uint32_t n_tokens) {
    uint32_t i = first_write / c->config.block_tokens, n_want = blocks_for(c, n_tokens);
    uint32_t n_new = n_want > s->n_blocks ? n_want - s->n_blocks : 0;
    bool shared = false, cached = false;
    if (i < s->n_blocks && first_write < n_tokens) {
        shared = c->blocks[s->table[i]].refs > 1;
        cached = c->blocks[s->table[i]].cached;
    }
    return growth_of(n_new, shared, cached, kv_n_free(c));
}

uint32_t kv_seq_need(const kv *c, const kv_seq *s, uint32_t first_write, uint32_t n_tokens) {
    struct growth g = seq_growth(c, s, first_write, n_tokens);
    return g.n_new + g.copy;
}

uint32_t kv_prompt_need(const kv *c, const struct kv_prompt *p, uint32_t n_tokens) {
    struct kv_place at = {KV_NONE, p->salt};
    uint32_t n_match = c->config.block_tokens;
    uint32_t n_found = 0, n_blocks = 0, n_revived = 0, n_want = blocks_for(c, n_tokens);
    while (n_match == c->config.block_tokens && n_blocks < c->config.max_blocks_per_seq) {
        uint32_t b = kv_prefix_match(c, at, p->tokens + n_found, p->n - n_found, &n_match);
        if (b == KV_NONE) break;
        n_revived += c->blocks[b].refs == 0 && c->blocks[b].pins == 0;
        n_found += n_match;
        n_blocks++;
        at.parent = b;
    }
    bool part = n_found % c->config.block_tokens != 0 && n_found < n_tokens;
    struct growth g =
        growth_of(n_want > n_blocks ? n_want - n_blocks : 0, part && c->blocks[at.parent].refs > 0,
                  part, kv_n_free(c) - n_revived);
    return n_revived + g.n_new + g.copy;
}

uint32_t kv_fork_need(const kv *c, uint32_t n_shared, uint32_t n_tokens) {
    bool part = n_shared % c->config.block_tokens != 0;
    return blocks_for(c, n_tokens) - blocks_for(c, n_shared) + part;
}

int kv_seq_reserve(kv *c, kv_seq *s, uint32_t first_write, uint32_t n_tokens) {
    struct growth g = seq_growth(c, s, first_write, n_tokens);
    assert(first_write >= s->n_valid);
    if (blocks_for(c, n_tokens) > c->config.max_blocks_per_seq) return ERR_TOO_LONG;
    if (g.n_new + g.copy > kv_n_free(c)) return ERR_FULL;
    for (uint32_t i = 0; i < g.n_new; i++)
        s->table[s->n_blocks++] = (int32_t)kv_block_take(c);
    if (g.copy || g.in_place) {
        int32_t *entry = &s->table[first_write / c->config.block_tokens];
        uint32_t old = (uint32_t)*entry;
        if (g.in_place) {
            kv_prefix_remove(c, old);
            return 0;
        }
        uint32_t b = kv_block_take(c);
        kv_block_copy_later(c, old, b);
        kv_block_unref(c, old);
        *entry = (int32_t)b;
    }
    return 0;
}

void kv_commit(kv *c, kv_seq *s, const int32_t *tokens, uint32_t n_computed) {
    uint32_t block_tokens = c->config.block_tokens;
    assert(n_computed >= s->n_valid && n_computed <= s->n_blocks * block_tokens);
    if (c->config.prefix_cache)
        for (uint32_t i = s->n_valid / block_tokens; i < n_computed / block_tokens; i++) {
            uint32_t b = (uint32_t)s->table[i];
            struct kv_place at = {i ? (uint32_t)s->table[i - 1] : KV_NONE, s->salt};
            uint32_t twin = kv_prefix_lookup(c, at, tokens + i * block_tokens);
            if (twin == KV_NONE) {
                kv_prefix_enter(c, b, at, tokens + i * block_tokens);
                continue;
            }
            /* Two sequences computed the same block: keep one. */
            kv_block_ref(c, twin);
            kv_block_unref(c, b);
            s->table[i] = (int32_t)twin;
        }
    s->n_valid = n_computed;
}

void kv_seq_free(kv *c, kv_seq *s) {
    if (!s) return;
    for (uint32_t i = s->n_blocks; i-- > 0;)
        kv_block_unref(c, (uint32_t)s->table[i]);
    memset(s->table, 0, s->n_blocks * sizeof *s->table);
    s->used = false;
    s->n_blocks = s->n_valid = 0;
    s->next_unused = c->unused;
    c->unused = s;
}

int32_t kv_slot(const kv *c, const kv_seq *s, uint32_t pos) {
    uint32_t block_tokens = c->config.block_tokens;
    return s->table[pos / block_tokens] * (int32_t)block_tokens + (int32_t)(pos % block_tokens);
}

const int32_t *kv_table(const kv_seq *s) {
    return s->table;
}

uint32_t kv_seq_n_blocks(const kv_seq *s) {
    return s->n_blocks;
}
