/* seq.c - owns the block tables: new sequences on a cached prefix, growth, copy-on-write, forks,
 * commit. With state layers a prefix is shared in whole blocks, so nothing is copied there. Only
 * blocks at or after a sequence's valid end are written, so at most one block per reservation, the
 * one that contains that end, needs a copy. Worker thread only. */
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
    s->importing = false;
    s->n_blocks = s->n_valid = 0;
    s->miss = KV_MISS_NONE;
    s->salt = salt;
    return s;
}

/* What the prefix cache has of a prompt. */
struct hit {
    uint32_t n_blocks, n_tokens;
    uint32_t n_revived; /* of the blocks: without references */
    uint32_t last;      /* the last block; KV_NONE: there is none */
    uint32_t state;     /* after n_tokens; KV_NONE: none, or no state layers */
    uint32_t n_kv;      /* tokens of the whole chain, and its blocks: all that table was given */
    uint32_t n_chain;
    struct kv_chain_end end;
};

/* The next block of the prompt's cached chain, after n_found tokens. *n_match: how
 * many it has of the prompt. With state layers whole blocks only. */
static uint32_t next_block(const kv *c, const struct kv_prompt *p, struct kv_place at,
                           uint32_t n_found, uint32_t *n_match) {
    const uint32_t block_tokens = c->config.block_tokens;
    if (!kv_has_states(c))
        return kv_prefix_match(c, at, p->tokens + n_found, p->n - n_found, n_match);
    *n_match = block_tokens;
    if (!c->config.prefix_cache || p->n - n_found <= block_tokens) return KV_NONE;
    return kv_prefix_lookup(c, at, p->tokens + n_found);
}

/* Writes the blocks of the chain to table, if it is given; those after the hit are not the
 * sequence's. */
static struct hit find_hit(const kv *c, const struct kv_prompt *p, int32_t *table) {
    const bool has_states = kv_has_states(c);
    struct hit h = {.last = KV_NONE, .state = KV_NONE};
    struct kv_place at = {KV_NONE, p->salt};
    uint32_t n_match = c->config.block_tokens, n_found = 0, n_chain = 0, n_unused = 0;
    uint32_t n_lost = 0; /* blocks of the chain up to the last one without a window block */
    while (n_match == c->config.block_tokens && n_chain < c->config.max_blocks_per_seq) {
        uint32_t b = next_block(c, p, at, n_found, &n_match);
        if (b == KV_NONE) break;
        if (table) table[n_chain] = (int32_t)b;
        n_unused += kv_block_is_free(&c->blocks[b]);
        n_found += n_match;
        n_chain++;
        at.parent = b;
        if (c->blocks[b].page == KV_NONE) n_lost = n_chain;
        if (has_states && c->blocks[b].state == KV_NONE) continue;
        if (kv_has_windows(c) && n_lost > kv_window_first(c, n_found)) continue;
        h = (struct hit){n_chain, n_found, n_unused, b, c->blocks[b].state, 0, 0, {.n_found = 0}};
    }
    h.n_kv = n_found;
    h.n_chain = n_chain;
    h.end = (struct kv_chain_end){at, n_found, h.n_tokens, n_found % c->config.block_tokens != 0};
    return h;
}

enum kv_miss kv_seq_miss(const kv_seq *s) {
    return s->miss;
}

uint32_t kv_whole_hit(const kv *c, const struct kv_prompt *p) {
    struct hit h = find_hit(c, p, NULL);
    return h.n_tokens - h.n_tokens % c->config.block_tokens;
}

kv_seq *kv_seq_new(kv *c, const struct kv_prompt *p, uint32_t *n_cached) {
    kv_seq *s = c->unused;
    *n_cached = 0;
    if (!s) return NULL;
    struct hit h = find_hit(c, p, s->table);
    uint32_t n_system = p->n_system / c->config.block_tokens;
    if (n_system && n_system <= h.n_blocks) kv_state_touch(c, (uint32_t)s->table[n_system - 1]);
    memset(s->table + h.n_blocks, 0, (h.n_chain - h.n_blocks) * sizeof *s->table);
    if (kv_has_states(c) && !kv_states_begin(c, s, h.state, h.n_tokens)) {
        memset(s->table, 0, h.n_blocks * sizeof *s->table);
        return NULL;
    }
    seq_take(c, p->salt);
    for (uint32_t i = 0; i < h.n_blocks; i++)
        kv_block_ref(c, (uint32_t)s->table[i]);
    s->n_blocks = h.n_blocks;
    s->n_valid = h.n_tokens;
    s->junction = kv_has_states(c) && h.n_kv > h.n_tokens ? h.n_kv : 0;
    kv_window_begin(c, s, p->n);
    s->miss = kv_miss_find(c, p, &h.end);
    if (c->config.prefix_cache) {
        kv_count(&c->prefix_queries_tokens, p->n);
        kv_count(&c->prefix_hit_tokens, s->n_valid);
        kv_count(kv_has_states(c) ? &c->stateless_tokens : &c->windowless_tokens,
                 h.n_kv - h.n_tokens);
    }
    *n_cached = s->n_valid;
    return s;
}

bool kv_can_fork(const kv *c, const kv_seq *src, uint32_t n_tokens) {
    if (kv_has_states(c)) return false;
    if (!kv_has_windows(c)) return true;
    for (uint32_t i = kv_window_first(c, n_tokens); i < blocks_for(c, n_tokens); i++)
        if (c->blocks[src->table[i]].page == KV_NONE) return false;
    return true;
}

kv_seq *kv_seq_fork(kv *c, const kv_seq *src, uint32_t n_tokens) {
    kv_seq *s = seq_take(c, src->salt);
    assert(n_tokens <= src->n_valid && kv_can_fork(c, src, n_tokens));
    if (!s) return NULL;
    s->n_blocks = blocks_for(c, n_tokens);
    s->n_valid = n_tokens;
    for (uint32_t i = 0; i < s->n_blocks; i++) {
        s->table[i] = src->table[i];
        kv_block_ref(c, (uint32_t)s->table[i]);
    }
    kv_window_begin(c, s, n_tokens);
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

struct kv_need kv_prompt_need(const kv *c, const struct kv_prompt *p, uint32_t n_tokens) {
    struct hit h = find_hit(c, p, NULL);
    uint32_t n_want = blocks_for(c, n_tokens);
    bool part = h.n_tokens % c->config.block_tokens != 0 && h.n_tokens < n_tokens;
    struct growth g =
        growth_of(n_want > h.n_blocks ? n_want - h.n_blocks : 0, part && c->blocks[h.last].refs > 0,
                  part, kv_n_free(c) - h.n_revived);
    struct kv_need need = {.blocks = h.n_revived + g.n_new + g.copy};
    if (kv_has_states(c)) need.states = 1 + (h.state != KV_NONE && kv_state_unused(c, h.state));
    return need;
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
        kv_window_copy_later(c, s, first_write / c->config.block_tokens, b);
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
            kv_window_replace(c, s, i, twin);
            kv_block_unref(c, b);
            s->table[i] = (int32_t)twin;
        }
    s->n_valid = n_computed;
    kv_window_pass(c, s);
}

void kv_seq_free(kv *c, kv_seq *s) {
    if (!s) return;
    if (kv_has_states(c)) kv_states_end(c, s); /* while the table's blocks are in use */
    kv_window_end(c, s);
    for (uint32_t i = s->n_blocks; i-- > 0;)
        kv_block_unref(c, (uint32_t)s->table[i]);
    memset(s->table, 0, s->n_blocks * sizeof *s->table);
    s->used = false;
    s->n_blocks = s->n_valid = 0;
    s->next_unused = c->unused;
    c->unused = s;
}

/* Copies are queued into blocks that are written next, at or after the valid end. */
uint32_t kv_seq_n_held(const kv *c, const kv_seq *s) {
    uint32_t n = s->n_blocks;
    for (uint32_t i = s->n_valid / c->config.block_tokens; i < s->n_blocks; i++) {
        uint32_t copy = c->blocks[s->table[i]].copy;
        n += copy != KV_NONE && !c->blocks[c->copies[2 * copy]].refs;
    }
    return n;
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
