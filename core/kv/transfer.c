/* transfer.c - what leaves the cache to be kept elsewhere, and what comes back: finds cached blocks
 * that are not kept yet, copies contents out of the pools and into them piece by piece, and makes
 * blocks of a sequence that never runs. Knows no place where things are kept. Worker thread only.
 */
#include "core/kv/kv_int.h"

#include "core/base/min_max.h"

#include <assert.h>

/* ---- pieces ---- */

/* Where a piece stands: block i of it begins at i * stride. */
struct piece {
    backend *be;
    backend_buf *pool;
    uint64_t stride, bytes;
};

/* Of layers that are windowed, or of those that are not: pieces of one rank. */
static uint32_t layer_pieces(const kv *c, bool windowed) {
    uint32_t n = 0;
    for (uint32_t l = 0; l < c->config.n_layers; l++)
        n += (c->windowed && c->windowed[l]) == windowed;
    return n * (c->config.v_dim ? 1 : 2);
}

uint32_t kv_part_pieces(const kv *c, enum kv_part part) {
    if (!c->n_ranks) return 0;
    if (part == KV_PART_STATE) return c->n_ranks * c->config.n_state_layers;
    return c->n_ranks * layer_pieces(c, part == KV_PART_WINDOW);
}

static struct piece layer_piece(const kv *c, bool windowed, uint32_t piece) {
    const uint32_t each = c->config.v_dim ? 1 : 2, n = layer_pieces(c, windowed);
    const uint32_t rank = piece / n;
    uint32_t skip = piece % n / each, l = 0;
    while ((c->windowed && c->windowed[l]) != windowed || skip--)
        l++;
    const struct backend_kv *layer = &c->layers[rank * c->config.n_layers + l];
    struct piece p = {.be = backend_peer(c->config.be, rank),
                      .pool = piece % each ? layer->v : layer->k};
    backend_kv_block_bytes(layer, &p.stride);
    p.bytes = p.stride;
    return p;
}

/* S and tail: what a source holds. They are a block's first parts. */
static struct piece state_piece(const kv *c, uint32_t piece) {
    const struct backend_state *s = &c->states[piece];
    return (struct piece){.be = backend_peer(c->config.be, piece / c->config.n_state_layers),
                          .pool = s->blocks,
                          .stride = backend_state_block_bytes(s),
                          .bytes = backend_state_parts(s).recent * sizeof(float)};
}

static struct piece find_piece(const kv *c, enum kv_part part, uint32_t piece) {
    return part == KV_PART_STATE ? state_piece(c, piece)
                                 : layer_piece(c, part == KV_PART_WINDOW, piece);
}

uint64_t kv_piece_bytes(const kv *c, enum kv_part part, uint32_t piece) {
    return find_piece(c, part, piece).bytes;
}

uint64_t kv_part_bytes(const kv *c, enum kv_part part) {
    uint64_t bytes = 0; /* of a block of pools that are allocated: no overflow */
    for (uint32_t i = kv_part_pieces(c, part); i-- > 0;)
        bytes += kv_piece_bytes(c, part, i);
    return bytes;
}

/* ---- batches ---- */

static backend *rank_of(const kv *c, uint32_t r) {
    return backend_peer(c->config.be, r);
}

int kv_batches_open(kv *c, err *e) {
    uint64_t most = 0;
    int rc = 0;
    for (enum kv_part part = 0; part < KV_N_PARTS; part++)
        for (uint32_t i = kv_part_pieces(c, part); i-- > 0;)
            if (kv_piece_bytes(c, part, i) > most) most = kv_piece_bytes(c, part, i);
    for (uint32_t r = 0; r < c->n_ranks && !rc; r++)
        rc = backend_side_open(rank_of(c, r), most, e);
    return rc;
}

uint64_t kv_batches_done(kv *c) {
    uint64_t least = c->n_batches, n;
    for (uint32_t r = 0; r < c->n_ranks; r++) {
        if (backend_side_done(rank_of(c, r), &n, NULL)) return c->n_batches_done;
        if (n < least) least = n;
    }
    return c->n_batches_done = least;
}

int64_t kv_batch_begin(kv *c, err *e) {
    int rc = 0;
    if (c->n_batches - kv_batches_done(c) >= BACKEND_SIDE_BATCHES) return 0;
    for (uint32_t r = 0; r < c->n_ranks && !rc; r++)
        rc = backend_side_begin(rank_of(c, r), e);
    return rc ? rc : (int64_t)++c->n_batches;
}

int kv_batch_end(kv *c, err *e) {
    int rc = 0;
    for (uint32_t r = 0; r < c->n_ranks && !rc; r++)
        rc = backend_side_end(rank_of(c, r), e);
    return rc;
}

int kv_batches_wait(kv *c) {
    int rc = 0;
    for (uint32_t r = 0; r < c->n_ranks; r++)
        if (backend_side_wait(rank_of(c, r), NULL)) rc = ERR_DEVICE;
    return rc;
}

void kv_await_batch(kv *c, uint64_t batch) {
    if (batch > c->n_batches_done) c->must_join = true;
}

int kv_batches_join(kv *c, err *e) {
    int rc = 0;
    for (uint32_t r = 0; r < c->n_ranks && !rc; r++)
        rc = backend_side_join(rank_of(c, r), e);
    if (!rc) c->must_join = false;
    return rc;
}

/* A block of a part is copied by the batch that has begun. */
static void note_batch(kv *c, enum kv_part part, uint64_t b) {
    if (part == KV_PART_STATE)
        c->state_blocks[b].batch = c->n_batches;
    else if (part == KV_PART_WINDOW)
        c->pages[b].batch = c->n_batches;
    else
        c->blocks[b].batch = c->n_batches;
}

int kv_piece_read(kv *c, const struct kv_run *run, enum kv_part part, uint32_t i, uint32_t piece,
                  void *to, err *e) {
    const struct piece p = find_piece(c, part, piece);
    const uint64_t b = part == KV_PART_STATE    ? run->state
                       : part == KV_PART_WINDOW ? run->windows[i]
                                                : run->blocks[i];
    note_batch(c, part, b);
    return backend_side_out(p.be, p.pool, b * p.stride, to, p.bytes, e);
}

int kv_piece_write(kv *c, kv_seq *s, enum kv_part part, uint32_t entry, uint32_t piece,
                   const void *from, err *e) {
    const struct piece p = find_piece(c, part, piece);
    uint64_t b = s->live;
    if (part != KV_PART_STATE)
        b = (uint64_t)(part == KV_PART_WINDOW ? s->pages[entry] : s->table[entry]);
    note_batch(c, part, b);
    return backend_side_in(p.be, p.pool, b * p.stride, from, p.bytes, e);
}

/* ---- runs ---- */

/* Blocks at the head of the free list that are looked at: those to be reused before long. */
static uint32_t n_soon(const kv *c) {
    return min_u32(256, c->config.n_blocks / 8 + 16);
}

static bool is_due(const struct kv_block *b) {
    return b->cached && (!b->kept || (b->state != KV_NONE && !b->state_kept));
}

/* A block to begin with: the first due one of those to be reused soon, or any. */
static uint32_t find_due(kv *c, bool soon) {
    const uint32_t n = c->config.n_blocks;
    if (soon) {
        uint32_t b = c->free.head, left = n_soon(c);
        for (; b != KV_NONE && left--; b = c->blocks[b].free.next)
            if (is_due(&c->blocks[b])) return b;
        return KV_NONE;
    }
    for (uint32_t i = 0; i < n; i++, c->run_at = (c->run_at + 1) % n)
        if (is_due(&c->blocks[c->run_at])) return c->run_at;
    return KV_NONE;
}

/* The end of a chain that begins with b, as long as its blocks are due. */
static uint32_t find_end(const kv *c, uint32_t b) {
    for (uint32_t child = b; child != KV_NONE;) {
        b = child;
        child = c->blocks[b].first_child;
        while (child != KV_NONE && !is_due(&c->blocks[child]))
            child = c->blocks[child].sibling.next;
    }
    return b;
}

/* Was everything of the block written by steps that are done? */
static bool is_done(const kv *c, const struct kv_block *b, uint64_t done) {
    return b->step <= done && (b->page == KV_NONE || c->pages[b->page].step <= done);
}

/* Adds a block; false: it must be the run's last. */
static bool add_block(const kv *c, uint32_t b, uint64_t done, struct kv_run *run) {
    const struct kv_block *blk = &c->blocks[b];
    run->blocks[run->n] = b;
    run->entered[run->n] = blk->entered;
    run->windows[run->n++] = blk->page;
    if (blk->state == KV_NONE || blk->state_kept || c->state_blocks[blk->state].step > done)
        return true;
    run->state = blk->state;
    return false;
}

bool kv_run_next(kv *c, bool soon, uint32_t n_unfinished, uint32_t most, struct kv_run *out) {
    const uint64_t done = c->n_steps > n_unfinished ? c->n_steps - n_unfinished : 0;
    uint32_t last = c->n_ranks ? find_due(c, soon) : KV_NONE, depth = 0, *path = c->scratch;
    if (last == KV_NONE) return false;
    if (!soon) last = find_end(c, last);
    for (uint32_t b = last; b != KV_NONE; b = c->blocks[b].parent)
        depth++;
    for (uint32_t b = last, i = depth; b != KV_NONE; b = c->blocks[b].parent)
        path[--i] = b;
    *out = (struct kv_run){.salt = c->blocks[last].salt, .state = KV_NONE};
    while (!is_due(&c->blocks[path[out->first]]))
        out->first++;
    most = min_u32(most, KV_RUN_BLOCKS);
    for (uint32_t i = out->first; i < depth && out->n < most; i++) {
        const struct kv_block *b = &c->blocks[path[i]];
        if (!is_due(b) || !is_done(c, b, done) || !add_block(c, path[i], done, out)) break;
    }
    if (!soon && !out->n) c->run_at = (c->run_at + 1) % c->config.n_blocks;
    return out->n > 0;
}

bool kv_run_intact(const kv *c, const struct kv_run *run) {
    for (uint32_t i = 0; i < run->n; i++) {
        const struct kv_block *b = &c->blocks[run->blocks[i]];
        if (!b->cached || b->entered != run->entered[i]) return false;
        if (run->windows[i] != KV_NONE && b->page != run->windows[i]) return false;
    }
    return run->state == KV_NONE || c->blocks[run->blocks[run->n - 1]].state == run->state;
}

void kv_run_kept(kv *c, const struct kv_run *run) {
    for (uint32_t i = 0; i < run->n; i++) {
        struct kv_block *b = &c->blocks[run->blocks[i]];
        if (b->cached && b->entered == run->entered[i]) b->kept = true;
    }
    struct kv_block *last = &c->blocks[run->blocks[run->n - 1]];
    if (run->state != KV_NONE && last->state == run->state) last->state_kept = true;
}

const int32_t *kv_block_ids(const kv *c, uint32_t block) {
    return c->tokens + (uint64_t)block * c->config.block_tokens;
}

uint32_t kv_block_parent(const kv *c, uint32_t block) {
    return c->blocks[block].parent;
}

uint64_t kv_block_entered(const kv *c, uint32_t block) {
    return c->blocks[block].cached ? c->blocks[block].entered : 0;
}

/* ---- what comes back ---- */

uint32_t kv_prompt_blocks(const kv *c, const struct kv_prompt *p) {
    return kv_whole_hit(c, p) / c->config.block_tokens;
}

uint32_t kv_window_begins(const kv *c, uint32_t n_blocks) {
    return kv_has_windows(c) ? kv_window_first(c, n_blocks * c->config.block_tokens) : n_blocks;
}

/* Its blocks are taken for copies, which run after those under way: no step waits for these. */
static kv_seq *import_begin(kv *c, const struct kv_prompt *p, uint32_t *n_cached) {
    const uint32_t n_hit = kv_whole_hit(c, p);
    const struct kv_prompt hit = {
        .tokens = p->tokens, .n = n_hit + 1, .salt = p->salt}; /* its hit is whole blocks */
    kv_seq *s = kv_seq_new(c, &hit, n_cached);
    if (!s) return NULL;
    kv_count(&c->prefix_queries_tokens, -(int64_t)hit.n); /* it is no request's */
    kv_count(&c->prefix_hit_tokens, -(int64_t)*n_cached);
    if (*n_cached != n_hit || kv_seq_reserve(c, s, n_hit, p->n)) {
        kv_seq_free(c, s);
        return NULL;
    }
    if (!kv_has_windows(c)) return s;
    /* Only the last window's blocks get window blocks. */
    const uint32_t first = kv_window_first(c, p->n);
    for (; s->first_page < s->end_page && s->first_page < first; s->first_page++)
        kv_window_release(c, s, s->first_page);
    if (s->first_page < first) s->first_page = s->end_page = first;
    s->importing = true;
    kv_window_reserve(c, s, p->n);
    return s;
}

kv_seq *kv_import_begin(kv *c, const struct kv_prompt *p, uint32_t *n_cached) {
    const bool must_join = c->must_join;
    kv_seq *s = import_begin(c, p, n_cached);
    c->must_join = must_join;
    return s;
}

void kv_import_commit(kv *c, kv_seq *s, const int32_t *tokens, uint32_t n_blocks, bool state) {
    const uint32_t n_tokens = n_blocks * c->config.block_tokens;
    const uint32_t first = s->n_valid / c->config.block_tokens; /* those before were cached */
    if (n_tokens <= s->n_valid) return;
    kv_commit(c, s, tokens, n_tokens);
    kv_await_batch(c, c->n_batches); /* they can be found, and read, from now on */
    for (uint32_t i = first; i < n_blocks; i++)
        c->blocks[s->table[i]].kept = true;
    if (!state) return;
    kv_states_advance(c, s, n_tokens, true);
    c->blocks[s->table[n_blocks - 1]].state_kept = true;
}
