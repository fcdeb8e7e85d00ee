/* pool.c - owns the blocks: references, the free list in order of reuse, the queue of copies, and
 * the K/V pools. Does not know tokens. Worker thread only, except kv_stats_get. */
#include "core/kv/kv_int.h"

#include "core/backend/ops.h"
#include "core/base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static bool is_windowed(const struct kv_config *config, uint32_t layer) {
    return config->window && config->windowed && config->windowed[layer];
}

static struct backend_kv layer_kv(const struct kv_config *config, uint32_t layer) {
    const struct kv_heads all = {config->n_kv_heads, config->head_dim},
                          *heads = config->heads ? &config->heads[layer] : &all;
    return (struct backend_kv){.kv_type = config->kv_type,
                               .n_blocks = is_windowed(config, layer) ? config->n_window_blocks
                                                                      : config->n_blocks,
                               .n_kv_heads = heads->n_kv_heads,
                               .block_tokens = config->block_tokens,
                               .head_dim = heads->head_dim,
                               .v_dim = config->v_dim};
}

static uint32_t pools_per_layer(const struct kv_config *config) {
    return config->v_dim ? 1 : 2;
}

/* Bytes of K and V of a block in all layers that are windowed, or in all that are not. UINT64_MAX:
 * overflow, or an unsupported shape. */
static uint64_t block_bytes(const struct kv_config *config, bool windowed) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < config->n_layers; i++) {
        const struct backend_kv layer = layer_kv(config, i);
        uint64_t one;
        if (is_windowed(config, i) != windowed) continue;
        if (!backend_kv_block_bytes(&layer, &one) || !mem_mul(one, pools_per_layer(config), &one) ||
            !mem_add(bytes, one, &bytes))
            return UINT64_MAX;
    }
    return bytes;
}

uint64_t kv_block_bytes(const struct kv_config *config) {
    if (!config->n_layers) return config->n_state_layers ? 0 : UINT64_MAX;
    return block_bytes(config, false);
}

uint64_t kv_window_bytes(const struct kv_config *config) {
    return block_bytes(config, true);
}

static int config_check(const struct kv_config *config, err *e) {
    uint64_t bytes;
    uint32_t block_tokens = config->block_tokens;
    const struct backend_state *state = &config->state;
    if (!config->n_blocks || !config->max_seqs || !config->max_blocks_per_seq)
        return err_set(e, ERR_INVALID,
                       "the KV cache has no blocks or no sequences: expected at least one of each");
    if (!block_tokens || (block_tokens & (block_tokens - 1)))
        return err_set(e, ERR_INVALID, "block_tokens is %u, expected a power of two", block_tokens);
    if ((uint64_t)config->n_blocks * block_tokens > INT32_MAX)
        return err_set(
            e, ERR_INVALID,
            "the KV cache has more than 2^31 - 1 tokens: choose a smaller kv_cache_tokens");
    if (config->n_state_layers && (state->n_blocks < 2 || state->n_blocks > INT32_MAX))
        return err_set(e, ERR_INVALID, "state_blocks is %u, expected 2 to 2^31 - 1",
                       state->n_blocks);
    if (config->n_state_layers && state->chunk != block_tokens)
        return err_set(e, ERR_INVALID, "chunks of %u tokens for blocks of %u", state->chunk,
                       block_tokens);
    if (config->window && config->windowed &&
        (!config->n_window_blocks || config->n_window_blocks > config->n_blocks))
        return err_set(e, ERR_INVALID, "window_blocks is %u, expected 1 to the cache's %u",
                       config->n_window_blocks, config->n_blocks);
    if (!config->be) return 0;
    if (config->n_state_layers && (!mem_mul(kv_state_bytes(config), state->n_blocks, &bytes)))
        return err_set(e, ERR_INVALID,
                       "the size of the state blocks is invalid: the model's shape has no kernels, "
                       "or it exceeds 2^64 bytes");
    if (!config->n_layers && config->n_state_layers) return 0;
    if (!config->n_layers || !config->n_kv_heads || !config->head_dim ||
        !mem_mul(kv_block_bytes(config), config->n_blocks, &bytes) ||
        !mem_mul(kv_window_bytes(config), config->n_blocks, &bytes))
        return err_set(e, ERR_INVALID,
                       "the KV cache's size is invalid: its type does not fit the model, or it "
                       "exceeds 2^64 bytes");
    return 0;
}

static int pools_open(kv *c, err *e) {
    const struct kv_config *config = &c->config;
    if (!config->n_layers) return 0;
    c->layers = mem_new((uint64_t)c->n_ranks * config->n_layers, sizeof *c->layers);
    if (!c->layers) return err_no_memory(e);
    for (uint32_t i = 0; i < c->n_ranks * config->n_layers; i++) {
        backend *be = backend_peer(config->be, i / config->n_layers);
        uint64_t bytes = 0;
        c->layers[i] = layer_kv(config, i % config->n_layers);
        backend_kv_block_bytes(&c->layers[i], &bytes); /* config_check: no overflow */
        bytes *= c->layers[i].n_blocks;
        int rc = backend_buf_new(be, bytes, &c->layers[i].k, e);
        if (!rc && !config->v_dim) rc = backend_buf_new(be, bytes, &c->layers[i].v, e);
        if (rc) return rc;
    }
    return 0;
}

/* Cached blocks wait at the tail, in the order in which they were freed; the others hold nothing of
 * use and go first. */
static void free_add(kv *c, uint32_t b) {
    const bool cached = c->blocks[b].cached;
    kv_list_add(KV_LINKS(c->blocks, free), &c->free, b, cached);
    kv_count(&c->n_free, 1);
    if (cached) kv_count(&c->n_free_cached, 1);
}

static void free_remove(kv *c, uint32_t b) {
    kv_list_remove(KV_LINKS(c->blocks, free), &c->free, b);
    kv_count(&c->n_free, -1);
    if (c->blocks[b].cached) kv_count(&c->n_free_cached, -1);
}

int kv_open(const struct kv_config *config, kv **out, err *e) {
    int rc = config_check(config, e);
    if (rc) return rc;
    kv *c = mem_new(1, sizeof *c);
    if (!c) return err_no_memory(e);
    c->config = *config;
    uint64_t n_blocks = config->n_blocks, n_buckets = 1, n_ids, n_entries, n_scratch = 2 * n_blocks;
    while (n_buckets < n_blocks)
        n_buckets *= 2;
    c->bucket_mask = (uint32_t)(n_buckets - 1);
    n_ids = n_blocks * config->block_tokens;
    n_entries = (uint64_t)config->max_seqs * config->max_blocks_per_seq;
    c->blocks = mem_new(n_blocks, sizeof *c->blocks);
    c->tokens = mem_new(n_ids, sizeof *c->tokens);
    c->buckets = mem_new(n_buckets, sizeof *c->buckets);
    c->roots = mem_new(n_buckets, sizeof *c->roots);
    c->copies = mem_new(n_blocks, 2 * sizeof *c->copies);
    if (config->n_state_layers && n_scratch < config->state.n_blocks)
        n_scratch = config->state.n_blocks;
    c->scratch = mem_new(n_scratch, sizeof *c->scratch);
    c->seqs = mem_new(config->max_seqs, sizeof *c->seqs);
    c->tables = mem_new(n_entries, sizeof *c->tables);
    if (!c->blocks || !c->tokens || !c->buckets || !c->roots || !c->copies || !c->scratch ||
        !c->seqs || !c->tables) {
        rc = err_no_memory(e);
        goto fail;
    }
    c->n_ranks = config->be ? backend_n_local(config->be) : 0;
    if (config->be && (rc = pools_open(c, e))) goto fail;
    if (config->n_state_layers && (rc = kv_states_open(c, e))) goto fail;
    if ((rc = kv_windows_open(c, e))) goto fail;
    c->config.windowed = c->windowed;
    c->config.heads = NULL;

    kv_prefix_init(c);
    c->free = KV_LIST_EMPTY;
    for (uint32_t b = config->n_blocks; b-- > 0;) {
        c->blocks[b].copy = c->blocks[b].state = c->blocks[b].page = KV_NONE;
        c->blocks[b].first_child = KV_NONE;
        free_add(c, b); /* block 0 is taken first */
    }
    for (uint32_t i = config->max_seqs; i-- > 0;) {
        c->seqs[i].table = c->tables + (uint64_t)i * config->max_blocks_per_seq;
        if (c->page_tables)
            c->seqs[i].pages = c->page_tables + (uint64_t)i * config->max_blocks_per_seq;
        c->seqs[i].source = c->seqs[i].live = KV_NONE;
        c->seqs[i].next_unused = c->unused;
        c->unused = &c->seqs[i];
    }
    *out = c;
    return 0;
fail:
    kv_close(c);
    return rc;
}

void kv_close(kv *c) {
    if (!c) return;
    kv_windows_close(c);
    kv_states_close(c);
    for (uint32_t i = 0; c->layers && i < c->n_ranks * c->config.n_layers; i++) {
        backend_buf_free(c->layers[i].v);
        backend_buf_free(c->layers[i].k);
    }
    free(c->layers);
    free(c->tables);
    free(c->seqs);
    free(c->scratch);
    free(c->copies);
    free(c->buckets);
    free(c->roots);
    free(c->tokens);
    free(c->blocks);
    free(c);
}

const struct backend_kv *kv_layers(const kv *c) {
    return c->layers;
}

uint32_t kv_block_tokens(const kv *c) {
    return c->config.block_tokens;
}

bool kv_shares_prefixes(const kv *c) {
    return c->config.prefix_cache;
}

uint32_t kv_max_tokens(const kv *c) {
    uint32_t n_blocks = c->config.n_blocks, per_seq = c->config.max_blocks_per_seq;
    return (n_blocks < per_seq ? n_blocks : per_seq) * c->config.block_tokens;
}

uint32_t kv_block_take(kv *c) {
    uint32_t b = c->free.head;
    assert(b != KV_NONE);
    free_remove(c, b);
    kv_await_batch(c, c->blocks[b].batch);
    if (c->blocks[b].cached) {
        if (!c->blocks[b].kept) kv_count(&c->unkept_evictions, 1);
        kv_miss_note_evicted(c, c->blocks[b].hash);
        kv_prefix_remove(c, b);
        kv_count(&c->evictions, 1);
    }
    c->blocks[b].refs = 1;
    return b;
}

void kv_block_ref(kv *c, uint32_t b) {
    if (kv_block_is_free(&c->blocks[b])) free_remove(c, b);
    c->blocks[b].refs++;
}

static void block_unpin(kv *c, uint32_t b) {
    assert(c->blocks[b].pins > 0);
    c->blocks[b].pins--;
    if (kv_block_is_free(&c->blocks[b])) free_add(c, b);
}

/* The copy's destination lost its last reference. The copy must not stay queued: the block may be
 * taken again, and written, before the queue is flushed. */
static void copy_cancel(kv *c, uint32_t dst) {
    uint32_t i = c->blocks[dst].copy, last = --c->n_copies;
    int32_t src = c->copies[2 * i];
    kv_window_unpin(c, i);
    if (c->page_copies) memcpy(c->page_copies + 2 * i, c->page_copies + 2 * last, 2 * sizeof src);
    c->copies[2 * i] = c->copies[2 * last];
    c->copies[2 * i + 1] = c->copies[2 * last + 1];
    c->blocks[c->copies[2 * i + 1]].copy = i;
    c->blocks[dst].copy = KV_NONE;
    block_unpin(c, (uint32_t)src);
}

void kv_block_unref(kv *c, uint32_t b) {
    struct kv_block *blk = &c->blocks[b];
    assert(blk->refs > 0);
    if (--blk->refs > 0) return;
    if (blk->copy != KV_NONE) copy_cancel(c, b);
    if (kv_block_is_free(blk)) free_add(c, b);
}

/* A source that is itself the destination of a pending copy is replaced by that copy's source. So
 * no block is both source and destination, the copies of a flush may run in any order, and as each
 * block is the destination of at most one copy, n_blocks entries are enough. */
void kv_block_copy_later(kv *c, uint32_t src, uint32_t dst) {
    if (c->blocks[src].copy != KV_NONE) src = (uint32_t)c->copies[2 * c->blocks[src].copy];
    c->blocks[src].pins++;
    c->blocks[dst].copy = c->n_copies;
    c->copies[2 * c->n_copies] = (int32_t)src;
    c->copies[2 * c->n_copies + 1] = (int32_t)dst;
    c->n_copies++;
}

int kv_copy_blocks(kv *c, const int32_t *pairs, const int32_t *window_pairs, uint32_t n, err *e) {
    const uint32_t n_layers = c->config.n_layers;
    for (uint32_t i = 0; n && c->layers && i < c->n_ranks * n_layers; i++) {
        backend *be = backend_peer(c->config.be, i / n_layers);
        bool windowed = c->windowed && c->windowed[i % n_layers];
        int rc = backend_kv_copy(be, &(struct op_kv_copy){.kv = c->layers[i],
                                                          .pairs = windowed ? window_pairs : pairs,
                                                          .n_pairs = n});
        if (rc) return err_set(e, rc, "copying KV blocks failed on layer %u", i % n_layers);
    }
    return 0;
}

uint32_t kv_pending_copies(const kv *c, const int32_t **pairs, const int32_t **window_pairs) {
    *pairs = c->copies;
    *window_pairs = c->page_copies;
    return c->n_copies;
}

int kv_flush_copies(kv *c, err *e) {
    int rc = c->must_join ? kv_batches_join(c, e) : 0;
    if (rc || !c->n_copies) return rc;
    rc = kv_copy_blocks(c, c->copies, c->page_copies, c->n_copies, e);
    if (rc) return rc;
    kv_count(&c->n_copied, c->n_copies);
    for (uint32_t i = 0; i < c->n_copies; i++) {
        c->blocks[c->copies[2 * i + 1]].copy = KV_NONE;
        block_unpin(c, (uint32_t)c->copies[2 * i]);
        kv_window_unpin(c, i);
    }
    c->n_copies = 0;
    return 0;
}

void kv_step_begun(kv *c) {
    c->n_steps++;
}

/* With its continuations, which were entered later. All are free. */
static void forget_block(kv *c, uint32_t b) {
    while (c->blocks[b].cached) {
        uint32_t last = b;
        while (c->blocks[last].first_child != KV_NONE)
            last = c->blocks[last].first_child;
        free_remove(c, last);
        kv_prefix_remove(c, last);
        free_add(c, last); /* first to be taken */
    }
}

void kv_forget_steps(kv *c, uint32_t n_steps) {
    assert(n_steps <= c->n_steps && kv_n_free(c) == c->config.n_blocks);
    const uint64_t done = c->n_steps - n_steps;
    kv_states_forget(c, done);
    kv_windows_forget(c, done);
    for (uint32_t b = 0; b < c->config.n_blocks; b++)
        if (c->blocks[b].cached && c->blocks[b].step > done) forget_block(c, b);
}

uint32_t kv_n_free(const kv *c) {
    return (uint32_t)atomic_load_explicit(&c->n_free, memory_order_relaxed);
}

void kv_stats_get(const kv *c, struct kv_stats *out) {
    out->n_blocks = c->config.n_blocks;
    out->n_free = atomic_load_explicit(&c->n_free, memory_order_relaxed);
    out->n_cached = atomic_load_explicit(&c->n_free_cached, memory_order_relaxed);
    out->prefix_queries_tokens =
        atomic_load_explicit(&c->prefix_queries_tokens, memory_order_relaxed);
    out->prefix_hit_tokens = atomic_load_explicit(&c->prefix_hit_tokens, memory_order_relaxed);
    out->evictions = atomic_load_explicit(&c->evictions, memory_order_relaxed);
    out->copies = atomic_load_explicit(&c->n_copied, memory_order_relaxed);
    out->unkept_evictions = atomic_load_explicit(&c->unkept_evictions, memory_order_relaxed);
    out->n_states = c->config.n_state_layers ? c->config.state.n_blocks : 0;
    out->n_states_free = atomic_load_explicit(&c->n_states_free, memory_order_relaxed);
    out->n_states_cached = atomic_load_explicit(&c->n_states_cached, memory_order_relaxed);
    out->state_evictions = atomic_load_explicit(&c->state_evictions, memory_order_relaxed);
    out->stateless_tokens = atomic_load_explicit(&c->stateless_tokens, memory_order_relaxed);
    out->n_windows = kv_has_windows(c) ? c->config.n_window_blocks : 0;
    out->n_windows_free = atomic_load_explicit(&c->n_pages_free, memory_order_relaxed);
    out->n_windows_cached = atomic_load_explicit(&c->n_pages_cached, memory_order_relaxed);
    out->window_evictions = atomic_load_explicit(&c->page_evictions, memory_order_relaxed);
    out->windowless_tokens = atomic_load_explicit(&c->windowless_tokens, memory_order_relaxed);
}
