/* test_kv_transfer.c - blocks that leave the cache to be kept elsewhere and come back: which runs
 * are found, in which order, and what an import leaves. Blocks hold 4 tokens; an empty cache
 * allocates blocks 0, 1, 2, ... Contents are test_tier's. */
#include "core/kv/kv.h"
#include "tests/unit/check.h"
#include "tests/unit/fake_pool.h"

enum { BT = 4, N_BLOCKS = 40, NONE = UINT32_MAX };

#define PROMPT(ids, n_ids) (&(const struct kv_prompt){.tokens = (ids), .n = (n_ids), .salt = salt})

static struct hash128 salt;
static int32_t text[1000], other[1000];

static kv *open_cache(void) {
    static int device;
    const struct kv_config config = {.be = (backend *)&device,
                                     .n_layers = 1,
                                     .n_kv_heads = FAKE_HEADS,
                                     .head_dim = FAKE_HEAD_DIM,
                                     .kv_type = QTYPE_F32,
                                     .n_blocks = N_BLOCKS,
                                     .block_tokens = BT,
                                     .max_seqs = 6,
                                     .max_blocks_per_seq = N_BLOCKS,
                                     .prefix_cache = true};
    kv *c = NULL;
    err e;
    for (int i = 0; i < 1000; i++)
        text[i] = i, other[i] = i < 12 ? i : 1000 + i; /* they part after three blocks */
    CHECK_MSG(kv_open(&config, &c, &e) == 0, "%s", e.msg);
    CHECK(kv_batches_open(c, NULL) == 0);
    return c;
}

static void check(const kv *c) {
    err e = {0};
    CHECK_MSG(kv_check(c, &e) == 0, "%s", e.msg);
}

/* One sequence of n tokens in one step, which ends. */
static void run(kv *c, const int32_t *tokens, uint32_t n) {
    uint32_t n_cached;
    kv_seq *s = kv_seq_new(c, PROMPT(tokens, n), &n_cached);
    CHECK(s && kv_seq_reserve(c, s, n_cached, n) == 0);
    kv_step_begun(c);
    CHECK(kv_flush_copies(c, NULL) == 0);
    kv_commit(c, s, tokens, n);
    kv_seq_free(c, s);
    check(c);
}

/* The next run has blocks [first, first + n) of a chain; it is kept then. n 0: there is none. */
static void next(kv *c, bool soon, uint32_t n_unfinished, uint32_t most, uint32_t first,
                 uint32_t n) {
    struct kv_run r = {.n = 0};
    bool found = kv_run_next(c, soon, n_unfinished, most, &r);
    CHECK_MSG(found == (n > 0) && r.n == n && (!n || r.first == first),
              "blocks %u to %u, want %u to %u", r.first, r.first + r.n, first, first + n);
    if (!found) return;
    CHECK(kv_run_intact(c, &r) && r.state == NONE);
    for (uint32_t i = 0; i < r.n; i++) {
        CHECK(r.windows[i] == NONE && r.entered[i] == kv_block_entered(c, r.blocks[i]));
        CHECK(i == 0 || kv_block_parent(c, r.blocks[i]) == r.blocks[i - 1]);
        CHECK(kv_block_ids(c, r.blocks[i])[0] % 500 == (int32_t)(BT * (r.first + i)));
    }
    CHECK(r.first > 0 || kv_block_parent(c, r.blocks[0]) == NONE);
    kv_run_kept(c, &r);
}

/* Whole chains, from their start on, in runs of at most `most`; branches by themselves. */
static void test_any(void) {
    kv *c = open_cache();
    next(c, false, 0, 64, 0, 0);
    run(c, text, 41); /* 10 whole blocks */
    next(c, false, 0, 4, 0, 4);
    next(c, false, 0, 4, 4, 4);
    next(c, false, 0, 4, 8, 2);
    next(c, false, 0, 4, 0, 0);
    run(c, other, 33); /* 3 blocks are shared and kept, 5 are not */
    next(c, false, 0, 64, 3, 5);
    next(c, false, 0, 64, 0, 0);
    kv_close(c);
}

/* What a step in flight has written may turn out to be wrong. */
static void test_unfinished(void) {
    kv *c = open_cache();
    run(c, text, 21);
    run(c, text, 41); /* 5 blocks more, in another step */
    next(c, false, 2, 64, 0, 0);
    next(c, false, 1, 64, 0, 5);
    next(c, false, 1, 64, 0, 0);
    next(c, false, 0, 64, 5, 5);
    kv_close(c);
}

/* Only what is near reuse; the whole chain of it, from its start. */
static void test_soon(void) {
    kv *c = open_cache();
    run(c, text, 41);
    next(c, true, 0, 64, 0, 0); /* 29 blocks that were never used come first */
    run(c, other + 500, 101);   /* 25 blocks of another chain */
    next(c, true, 0, 3, 0, 3);
    next(c, true, 0, 64, 3, 7);
    kv_close(c);
}

static void test_evicted(void) {
    kv *c = open_cache();
    struct kv_run r;
    struct kv_stats st;
    run(c, text, 41);
    CHECK(kv_run_next(c, false, 0, 64, &r) && r.n == 10 && kv_run_intact(c, &r));
    run(c, other + 500, 141); /* takes 6 of its blocks, the last ones */
    CHECK(!kv_run_intact(c, &r));
    kv_run_kept(c, &r); /* those that are still there */
    next(c, false, 0, 64, 0, 35);
    next(c, false, 0, 64, 0, 0);
    kv_stats_get(c, &st);
    CHECK(st.unkept_evictions == st.evictions && st.evictions == 6);
    run(c, text + 300, 81);
    kv_stats_get(c, &st);
    CHECK(st.evictions > 6 && st.unkept_evictions == 6);
    kv_close(c);
}

/* Blocks come back after two that are cached and not kept; cut short after one of three. */
static void test_import(void) {
    for (uint32_t n_whole = 2; n_whole <= 5; n_whole++) {
        kv *c = open_cache();
        uint32_t n_cached;
        struct kv_stats st;
        run(c, text, 9);
        const struct kv_prompt p = {.tokens = text, .n = 20, .salt = salt};
        CHECK(kv_prompt_blocks(c, &p) == 2);
        kv_seq *s = kv_import_begin(c, &p, &n_cached);
        CHECK(s && n_cached == 8 && kv_seq_n_blocks(s) == 5);
        check(c);
        const uint64_t number = 4711;
        CHECK(kv_batch_begin(c, NULL) == 1);
        for (uint32_t b = 2; b < n_whole; b++)
            for (uint32_t piece = 0; piece < kv_part_pieces(c, KV_PART_BLOCK); piece++) {
                uint64_t bytes[BT] = {number + b, piece};
                CHECK(kv_piece_bytes(c, KV_PART_BLOCK, piece) == sizeof bytes);
                CHECK(kv_piece_write(c, s, KV_PART_BLOCK, b, piece, bytes, NULL) == 0);
            }
        CHECK(kv_batch_end(c, NULL) == 0);
        kv_import_commit(c, s, text, n_whole, false);
        kv_seq_free(c, s);
        check(c);
        CHECK(kv_prompt_blocks(c, PROMPT(text, 30)) == n_whole);
        kv_stats_get(c, &st);
        CHECK(st.prefix_queries_tokens == 9 && st.prefix_hit_tokens == 0); /* it is no request */
        struct kv_run r;
        CHECK(kv_run_next(c, false, 0, 64, &r) && r.first == 0 &&
              r.n == 2); /* not those imported */
        kv_run_kept(c, &r);
        next(c, false, 0, 64, 0, 0);
        if (n_whole > 2) {
            CHECK(kv_batches_done(c) == 0 && fake_side.n_joins == 0);
            run(c, text, 30); /* waits for the copies */
            CHECK(kv_batches_done(c) == 1 && fake_side.n_joins == 1);
            CHECK(kv_run_next(c, false, 0, 64, &r) && r.first == n_whole);
            r.blocks[0] = kv_block_parent(c, r.blocks[0]); /* the last one that was imported */
            uint64_t bytes[BT];
            CHECK(kv_batch_begin(c, NULL) == 2);
            CHECK(kv_piece_read(c, &r, KV_PART_BLOCK, 0, 0, bytes, NULL) == 0);
            CHECK(kv_batch_end(c, NULL) == 0 && kv_batches_wait(c) == 0);
            CHECK(bytes[0] == number + n_whole - 1);
        }
        kv_close(c);
    }
}

/* No room: nothing has changed. */
static void test_import_refused(void) {
    kv *c = open_cache();
    uint32_t n_cached;
    kv_seq *s = kv_seq_new(c, PROMPT(other + 500, 130), &n_cached);
    CHECK(s && kv_seq_reserve(c, s, 0, 130) == 0); /* 33 of 40 blocks */
    CHECK(!kv_import_begin(c, PROMPT(text, 32), &n_cached));
    check(c);
    kv_seq *in = kv_import_begin(c, PROMPT(text, 28), &n_cached);
    CHECK(in && n_cached == 0);
    check(c);
    kv_seq_free(c, in); /* given up */
    check(c);
    CHECK(kv_prompt_blocks(c, PROMPT(text, 28)) == 0);
    kv_seq_free(c, s);
    kv_close(c);
}

/* Writes the number of each block of the chain where its K are, as a step would; the last block of
 * the run is blocks[n - 1]. */
static void mark(const kv *c, const struct kv_run *r, uint64_t number) {
    for (uint32_t i = 0; i < r->n; i++)
        kv_layers(c)->k->data[(uint64_t)r->blocks[i] * BT] = number + i;
}

/* Has all K of the run copied, in a batch of its own. */
static void copy_out(kv *c, const struct kv_run *r, uint64_t to[][BT]) {
    CHECK(kv_batch_begin(c, NULL) > 0);
    for (uint32_t i = 0; i < r->n; i++)
        CHECK(kv_piece_read(c, r, KV_PART_BLOCK, i, 0, to[i], NULL) == 0);
    CHECK(kv_batch_end(c, NULL) == 0);
}

/* A step that takes blocks whose copies have not ended waits for them; one that takes others does
 * not. */
static void test_reuse(void) {
    for (int reuse = 0; reuse < 2; reuse++) {
        kv *c = open_cache();
        struct kv_run r;
        uint64_t to[10][BT] = {{0}};
        run(c, text, 41);
        CHECK(kv_run_next(c, false, 0, 64, &r) && r.n == 10);
        mark(c, &r, 4711);
        copy_out(c, &r, to);
        kv_run_kept(c, &r);
        CHECK(kv_batches_done(c) == 0);
        const uint32_t n = reuse ? 125 : 117; /* of 30 blocks that hold nothing: 32, or 30 */
        uint32_t n_cached;
        kv_seq *s = kv_seq_new(c, PROMPT(other + 500, n), &n_cached);
        CHECK(s && kv_seq_reserve(c, s, 0, n) == 0 && kv_flush_copies(c, NULL) == 0);
        CHECK((int)fake_side.n_joins == reuse && kv_batches_done(c) == (uint64_t)reuse);
        for (uint32_t i = 0; i < kv_seq_n_blocks(s); i++) /* the step */
            kv_layers(c)->k->data[(uint64_t)kv_table(s)[i] * BT] = 1;
        fake_side_run();
        for (uint32_t i = 0; i < r.n; i++)
            CHECK_MSG(to[i][0] == 4711 + i, "block %u was copied after it was reused", i);
        CHECK(kv_batches_done(c) == 1);
        kv_seq_free(c, s);
        s = kv_seq_new(c, PROMPT(text + 300, 150), &n_cached); /* takes the others: no copies */
        CHECK(s && kv_seq_reserve(c, s, 0, 150) == 0 && kv_flush_copies(c, NULL) == 0);
        CHECK((int)fake_side.n_joins == reuse);
        kv_seq_free(c, s);
        check(c);
        kv_close(c);
    }
}

/* An import that was given up leaves copies into blocks that others take. */
static void test_import_given_up(void) {
    kv *c = open_cache();
    uint32_t n_cached;
    const uint64_t bytes[BT] = {4711};
    kv_seq *in = kv_import_begin(c, PROMPT(text, 32), &n_cached);
    CHECK(in && kv_batch_begin(c, NULL) == 1);
    for (uint32_t b = 0; b < 4; b++)
        CHECK(kv_piece_write(c, in, KV_PART_BLOCK, b, 0, bytes, NULL) == 0);
    CHECK(kv_batch_end(c, NULL) == 0);
    kv_seq_free(c, in);
    kv_seq *s = kv_seq_new(c, PROMPT(other, 40), &n_cached);
    CHECK(s && kv_seq_reserve(c, s, 0, 40) == 0 && kv_flush_copies(c, NULL) == 0);
    CHECK(fake_side.n_joins == 1);
    for (uint32_t i = 0; i < kv_seq_n_blocks(s); i++)
        kv_layers(c)->k->data[(uint64_t)kv_table(s)[i] * BT] = 1;
    fake_side_run();
    for (uint32_t i = 0; i < kv_seq_n_blocks(s); i++)
        CHECK(kv_layers(c)->k->data[(uint64_t)kv_table(s)[i] * BT] == 1);
    kv_seq_free(c, s);
    check(c);
    kv_close(c);
}

/* Batches and staging are bounded, and go on when copies have ended. */
static void test_bounds(void) {
    kv *c = open_cache();
    uint32_t n_cached, n = 0;
    static uint64_t bytes[BT];
    kv_seq *in = kv_import_begin(c, PROMPT(text, 32), &n_cached);
    for (int i = 0; i < BACKEND_SIDE_BATCHES; i++)
        CHECK(kv_batch_begin(c, NULL) == i + 1 && kv_batch_end(c, NULL) == 0);
    CHECK(kv_batch_begin(c, NULL) == 0);
    fake_side_run();
    CHECK(kv_batch_begin(c, NULL) == BACKEND_SIDE_BATCHES + 1);
    while (kv_piece_write(c, in, KV_PART_BLOCK, n % 8, 0, bytes, NULL) == 0)
        n++;
    CHECK(n * sizeof bytes == sizeof fake_side.staging);
    CHECK(kv_piece_write(c, in, KV_PART_BLOCK, 0, 0, bytes, NULL) == ERR_FULL);
    CHECK(kv_batch_end(c, NULL) == 0 && kv_batches_wait(c) == 0);
    CHECK(kv_batches_done(c) == BACKEND_SIDE_BATCHES + 1);
    kv_seq_free(c, in);
    kv_close(c);
}

int main(void) {
    RUN(test_any);
    RUN(test_unfinished);
    RUN(test_soon);
    RUN(test_evicted);
    RUN(test_import);
    RUN(test_import_refused);
    RUN(test_reuse);
    RUN(test_import_given_up);
    RUN(test_bounds);
    return check_done();
}
