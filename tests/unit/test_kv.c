/* test_kv.c - the paged cache in small scenarios with exact block ids. Blocks hold 4 tokens; an
 * empty cache allocates blocks 0, 1, 2, ... */
#include "core/kv/kv.h"
#include "tests/support/rng.h"
#include "tests/unit/check.h"
#include "tests/unit/fake_pool.h"

enum { BT = 4, MAX_TABLE = 8 };

static int fake_device;

static kv *open_cache(uint32_t n_blocks, bool prefix_cache) {
    struct kv_config config = {.be = (backend *)&fake_device,
                               .n_layers = 1,
                               .n_kv_heads = FAKE_HEADS,
                               .head_dim = FAKE_HEAD_DIM,
                               .kv_type = QTYPE_F32,
                               .n_blocks = n_blocks,
                               .block_tokens = BT,
                               .max_seqs = 6,
                               .max_blocks_per_seq = MAX_TABLE,
                               .prefix_cache = prefix_cache};
    kv *c = NULL;
    err e;
    CHECK(kv_open(&config, &c, &e) == 0);
    return c;
}

static void check_ok(const kv *c) {
    err e = {0};
    CHECK_MSG(kv_check(c, &e) == 0, "%s", e.msg);
}

/* The salt of new sequences. */
static struct hash128 salt;
#define PROMPT(ids, n_ids) (&(const struct kv_prompt){.tokens = (ids), .n = (n_ids), .salt = salt})

/* The table is exactly blocks[0..n), the rest 0. */
static void check_table(const kv_seq *s, uint32_t n, const int32_t *blocks) {
    CHECK_MSG(kv_seq_n_blocks(s) == n, "%u blocks, want %u", kv_seq_n_blocks(s), n);
    for (uint32_t i = 0; i < MAX_TABLE; i++) {
        int32_t want = i < n ? blocks[i] : 0;
        CHECK_MSG(kv_table(s)[i] == want, "table[%u] is %d, want %d", i, kv_table(s)[i], want);
    }
}
#define TABLE(s, ...)                                                                              \
    check_table(s, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), (int32_t[]){__VA_ARGS__})

/* Reserves, marks the slots of tokens [from, n) with mark + position, commits. */
static void compute(kv *c, kv_seq *s, const int32_t *tokens, uint32_t from, uint32_t n, int mark) {
    err e;
    CHECK(kv_seq_reserve(c, s, from, n) == 0);
    CHECK(kv_flush_copies(c, &e) == 0);
    for (uint32_t pos = from; pos < n; pos++)
        kv_layers(c)->k->data[kv_slot(c, s, pos)] = (uint64_t)mark + pos;
    kv_commit(c, s, tokens, n);
    check_ok(c);
}

static uint64_t slot_mark(const kv *c, const kv_seq *s, uint32_t pos) {
    return kv_layers(c)->k->data[kv_slot(c, s, pos)];
}

/* Computes all n tokens as a new sequence; expects n_cached of them found. */
static kv_seq *run(kv *c, const int32_t *tokens, uint32_t n, uint32_t want_cached, int mark) {
    uint32_t n_cached, free_before = kv_n_free(c),
                       need = kv_prompt_need(c, PROMPT(tokens, n), n).blocks;
    kv_seq *s = kv_seq_new(c, PROMPT(tokens, n), &n_cached);
    CHECK_MSG(n_cached == want_cached, "%u cached, want %u", n_cached, want_cached);
    check_ok(c);
    CHECK(kv_seq_reserve(c, s, n_cached, n) == 0);
    CHECK_MSG(free_before - kv_n_free(c) == need, "took %u, foretold %u",
              free_before - kv_n_free(c), need);
    compute(c, s, tokens, n_cached, n, mark);
    return s;
}

static const int32_t abc[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static void test_whole_blocks_hit(void) {
    kv *c = open_cache(8, true);
    kv_seq *a = run(c, abc, 10, 0, 100);
    TABLE(a, 0, 1, 2);
    kv_seq *b = run(c, abc, 10, 8, 200); /* while a exists: shared */
    TABLE(b, 0, 1, 3);
    CHECK(slot_mark(c, b, 7) == 107 && slot_mark(c, b, 8) == 208);
    CHECK(kv_n_free(c) == 4);
    kv_seq_free(c, a);
    kv_seq_free(c, b);
    CHECK(kv_n_free(c) == 8);
    kv_seq *d = run(c, abc, 10, 8, 300); /* after both are freed: reused */
    TABLE(d, 0, 1, 3);                   /* 3 and 2 are not cached: last freed, first reused */
    struct kv_stats st;
    kv_stats_get(c, &st);
    CHECK(st.n_blocks == 8 && st.n_free == 5 && st.n_cached == 0 && st.evictions == 0);
    CHECK(st.prefix_queries_tokens == 30 && st.prefix_hit_tokens == 16 && st.copies == 0);
    kv_seq_free(c, d);
    kv_seq_free(c, NULL);
    check_ok(c);
    kv_close(c);
}

static void test_same_tokens_other_parent(void) {
    const int32_t x[9] = {1, 1, 1, 1, 7, 7, 7, 7, 1}, y[9] = {2, 2, 2, 2, 7, 7, 7, 7, 1};
    kv *c = open_cache(8, true);
    kv_seq *a = run(c, x, 9, 0, 0);
    TABLE(a, 0, 1, 2);
    kv_seq *b = run(c, y, 9, 0, 0); /* 7 7 7 7 after 2 2 2 2 is a different prefix */
    TABLE(b, 3, 4, 5);
    kv_seq *d = run(c, x + 4, 5, 0, 0); /* and at the start of a sequence too */
    TABLE(d, 6, 7);
    kv_close(c);
}

static void test_part_of_a_block(void) {
    const int32_t other[8] = {1, 2, 3, 4, 5, 6, 99, 98};
    kv *c = open_cache(8, true);
    kv_seq *a = run(c, abc, 8, 0, 100);
    uint32_t n_cached;
    kv_seq_free(c, a);
    CHECK(kv_prompt_need(c, PROMPT(other, 8), 8).blocks == 3); /* 0 and 1 reused, a copy of 1 */
    kv_seq *b = kv_seq_new(c, PROMPT(other, 8), &n_cached);
    CHECK(n_cached == 6);
    TABLE(b, 0, 1);
    CHECK(kv_seq_need(c, b, 6, 8) == 1 && kv_seq_need(c, b, 6, 9) == 2);
    CHECK(kv_seq_need(c, b, 6, 6) == 0);
    CHECK(kv_seq_reserve(c, b, 6, 8) == 0);
    TABLE(b, 0, 2);
    check_ok(c);
    CHECK(kv_n_free(c) == 5); /* 1 waits for the copy */
    compute(c, b, other, 6, 8, 200);
    CHECK(kv_n_free(c) == 6);
    CHECK(slot_mark(c, b, 5) == 105 && slot_mark(c, b, 6) == 206);
    kv_seq *d = run(c, abc, 9, 8, 300); /* the original is intact */
    TABLE(d, 0, 1, 3);
    CHECK(slot_mark(c, d, 7) == 107);
    struct kv_stats st;
    kv_stats_get(c, &st);
    CHECK(st.copies == 1);
    kv_close(c);
}

/* A completely cached prompt: all but its last token is reused; the recomputed block equals the
 * cached one and is freed. */
static void test_whole_prompt_cached(void) {
    kv *c = open_cache(8, true);
    kv_seq *a = run(c, abc, 8, 0, 100);
    kv_seq *b = run(c, abc, 8, 7, 200);
    TABLE(b, 0, 1);
    CHECK(kv_n_free(c) == 6 && slot_mark(c, b, 7) == 107);
    kv_seq_free(c, a);
    kv_seq_free(c, b);
    CHECK(kv_n_free(c) == 8);
    kv_close(c);
}

static void test_computed_twice_at_once(void) {
    kv *c = open_cache(8, true);
    uint32_t n_cached;
    kv_seq *a = kv_seq_new(c, PROMPT(abc, 9), &n_cached),
           *b = kv_seq_new(c, PROMPT(abc, 9), &n_cached);
    CHECK(kv_seq_reserve(c, a, 0, 9) == 0 && kv_seq_reserve(c, b, 0, 9) == 0);
    TABLE(b, 3, 4, 5);
    kv_commit(c, a, abc, 9);
    kv_commit(c, b, abc, 6); /* one block full */
    TABLE(b, 0, 4, 5);
    check_ok(c);
    kv_commit(c, b, abc, 9);
    TABLE(b, 0, 1, 5);
    check_ok(c);
    CHECK(kv_n_free(c) == 4);
    kv_seq_free(c, a);
    check_ok(c);
    CHECK(kv_n_free(c) == 5);
    kv_close(c);
}

/* The continuation is evicted before its prefix, the oldest freed sequence first. */
static void test_eviction_order(void) {
    const int32_t x[12] = {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    const int32_t y[8] = {5, 5, 5, 5, 6, 6, 6, 6};
    kv *c = open_cache(5, true);
    kv_seq *a = run(c, x, 12, 0, 0), *b = run(c, y, 8, 0, 0), *s;
    TABLE(a, 0, 1, 2);
    TABLE(b, 3, 4);
    kv_seq_free(c, a);
    kv_seq_free(c, b);
    check_ok(c); /* order of reuse: 2 1 0 4 3 */
    s = run(c, (int32_t[]){9}, 1, 0, 0);
    TABLE(s, 2);
    kv_seq_free(c, s);       /* not full, so not cached: first again */
    s = run(c, x, 12, 8, 0); /* 0 1 are still cached */
    TABLE(s, 0, 1, 2);
    kv_seq_free(c, s); /* 4 3 2 1 0 */
    s = run(c, (int32_t[]){9, 9, 9, 9, 9}, 5, 0, 0);
    TABLE(s, 4, 3);
    kv_seq_free(c, s); /* 3 (not full) 2 1 0 4 */
    check_ok(c);
    s = run(c, abc, 12, 1, 0); /* shares the 1 of x's first block: copied, all the rest reused */
    TABLE(s, 1, 3, 2);
    struct kv_stats st;
    kv_stats_get(c, &st);
    CHECK_MSG(st.evictions == 5, "%llu evictions", (unsigned long long)st.evictions);
    kv_close(c);
}

static void test_fork_copy_on_write(void) {
    for (int prefix_cache = 0; prefix_cache < 2; prefix_cache++) {
        kv *c = open_cache(8, prefix_cache);
        err e;
        kv_seq *a = run(c, abc, 6, 0, 100);
        kv_seq *f = kv_seq_fork(c, a, 6), *g = kv_seq_fork(c, a, 5);
        TABLE(f, 0, 1);
        TABLE(g, 0, 1);
        CHECK(kv_n_free(c) == 6);
        check_ok(c);
        CHECK(kv_seq_need(c, f, 6, 7) == 1 && kv_seq_need(c, f, 6, 9) == 2);
        CHECK(kv_fork_need(c, 6, 7) == 1 && kv_fork_need(c, 6, 9) == 2);
        CHECK(kv_fork_need(c, 4, 5) == 1 && kv_fork_need(c, 0, 1) == 1);
        CHECK(kv_seq_reserve(c, f, 6, 7) == 0);
        TABLE(f, 0, 2);
        CHECK(kv_seq_reserve(c, g, 5, 6) == 0);
        TABLE(g, 0, 3);
        CHECK(kv_seq_need(c, a, 6, 7) == 0); /* the others released it */
        CHECK(kv_seq_reserve(c, a, 6, 7) == 0);
        TABLE(a, 0, 1);
        check_ok(c);
        CHECK(kv_flush_copies(c, &e) == 0);
        CHECK(slot_mark(c, f, 5) == 105 && slot_mark(c, g, 4) == 104 && slot_mark(c, g, 3) == 103);
        check_ok(c);
        CHECK(kv_n_free(c) == 4);
        kv_seq_free(c, a);
        kv_seq_free(c, g);
        check_ok(c);
        CHECK(kv_n_free(c) == 6);
        kv_seq_free(c, f);
        CHECK(kv_n_free(c) == 8);
        kv_close(c);
    }
}

/* In one planning round the source's other owners end, and the copy's owner forks and ends. Blocks
 * allocated after that must neither change the source nor be overwritten by a stale copy. */
static void test_copies_within_one_round(void) {
    kv *c = open_cache(6, true);
    err e;
    uint32_t n_cached;
    kv_seq *a = run(c, abc, 6, 0, 100); /* 0 1 */
    kv_seq *f = kv_seq_fork(c, a, 6), *g;
    CHECK(kv_seq_reserve(c, f, 6, 7) == 0); /* 1 -> 2 */
    g = kv_seq_fork(c, f, 6);
    CHECK(kv_seq_reserve(c, g, 6, 7) == 0); /* 2 is not filled yet: 1 -> 3 */
    TABLE(g, 0, 3);
    check_ok(c);
    kv_seq_free(c, a);
    check_ok(c);
    kv_seq_free(c, f); /* its copy is cancelled, 2 is free */
    check_ok(c);
    CHECK(kv_n_free(c) == 3);
    kv_seq *h = kv_seq_new(c, PROMPT(abc + 8, 8), &n_cached);
    CHECK(kv_seq_reserve(c, h, 0, 8) == 0); /* 2 again, not 1 */
    TABLE(h, 2, 4);
    check_ok(c);
    for (uint32_t pos = 0; pos < 8; pos++)
        kv_layers(c)->k->data[kv_slot(c, h, pos)] = 900 + pos;
    CHECK(kv_flush_copies(c, &e) == 0);
    CHECK(slot_mark(c, g, 5) == 105 && slot_mark(c, g, 4) == 104);
    CHECK(slot_mark(c, h, 0) == 900 && slot_mark(c, h, 7) == 907);
    check_ok(c);
    CHECK(kv_n_free(c) == 2); /* 1 is free again */
    kv_close(c);
}

/* The ranks of a group have the same blocks: each rank makes the copy, in each layer. */
static void test_ranks(void) {
    struct kv_config config = {.be = (backend *)&fake_device,
                               .n_layers = 2,
                               .n_kv_heads = FAKE_HEADS,
                               .head_dim = FAKE_HEAD_DIM,
                               .kv_type = QTYPE_F32,
                               .n_blocks = 4,
                               .block_tokens = BT,
                               .max_seqs = 2,
                               .max_blocks_per_seq = MAX_TABLE};
    kv *c = NULL;
    err e;
    fake_ranks = 3;
    CHECK(kv_open(&config, &c, &e) == 0);
    const struct backend_kv *layers = kv_layers(c);
    kv_seq *a = run(c, abc, 6, 0, 100); /* 0 1 */
    for (uint32_t i = 0; i < 6; i++)
        layers[i].k->data[1 * BT + 1] = 1000 + i;
    kv_seq *f = kv_seq_fork(c, a, 6);
    CHECK(kv_seq_reserve(c, f, 6, 7) == 0); /* 1 -> 2 */
    CHECK(kv_flush_copies(c, &e) == 0);
    for (uint32_t i = 0; i < 6; i++)
        CHECK(layers[i].k->data[2 * BT + 1] == 1000 + i);
    check_ok(c);
    kv_close(c);
    fake_ranks = 1;
}

/* Alone in a full cache, a block that only the prefix table shares is written in place. */
static void test_whole_cache_for_one(void) {
    const int32_t other[8] = {1, 2, 3, 4, 5, 6, 99, 98};
    kv *c = open_cache(2, true);
    uint32_t n_cached;
    kv_seq_free(c, run(c, abc, 8, 0, 100));
    CHECK(kv_prompt_need(c, PROMPT(other, 8), 8).blocks == 2);
    kv_seq *s = kv_seq_new(c, PROMPT(other, 8), &n_cached);
    CHECK(n_cached == 6 && kv_n_free(c) == 0 && kv_seq_need(c, s, 6, 8) == 0);
    CHECK(kv_seq_reserve(c, s, 6, 8) == 0);
    check_ok(c);
    compute(c, s, other, 6, 8, 200);
    TABLE(s, 0, 1);
    CHECK(slot_mark(c, s, 5) == 105 && slot_mark(c, s, 6) == 206);
    kv_seq_free(c, s);
    kv_seq_free(c, run(c, other, 8, 7, 300));
    kv_close(c);
}

/* Same tokens under another salt: whole blocks, parts of blocks, blocks computed at the same time
 * and forks are found only under their own salt, whichever half of it differs. */
static void test_salts_share_nothing(void) {
    static const struct hash128 salts[] = {{0, 0}, {7, 0}, {0, 7}};
    const int32_t part[7] = {1, 2, 3, 4, 5, 6, 9};
    kv *c = open_cache(24, true);
    kv_seq *first[3];
    for (int i = 0; i < 3; i++) {
        salt = salts[i];
        first[i] = run(c, abc, 9, 0, 100 * i); /* a miss, even with a full cache */
        TABLE(first[i], 3 * i, 3 * i + 1, 3 * i + 2);
    }
    for (int i = 0; i < 3; i++) {
        salt = salts[i];
        kv_seq *again = run(c, part, 7, 6, 1000), *fork = kv_seq_fork(c, first[i], 8);
        CHECK(slot_mark(c, again, 5) == (uint64_t)(100 * i + 5));
        compute(c, fork, abc, 8, 12, 2000); /* enters its last block under the same salt */
        kv_seq_free(c, again);
        kv_seq_free(c, fork);
    }
    salt = (struct hash128){7, 7};
    CHECK(kv_prompt_need(c, PROMPT(abc, 9), 9).blocks == 3);
    for (int i = 0; i < 3; i++) {
        salt = salts[i];
        kv_seq_free(c, run(c, abc, 13, 12, 0));
        kv_seq_free(c, first[i]);
    }
    check_ok(c);
    kv_close(c);
    salt = salts[0];
}

/* A partial match is found, however many prefixes other salts have. */
static void test_salts_hide_no_parts(void) {
    kv *c = open_cache(64, true);
    const int32_t mine[5] = {1, 2, 3, 4, 5}, half[3] = {1, 2, 9};
    salt = (struct hash128){1, 1};
    kv_seq_free(c, run(c, mine, 5, 0, 0));
    salt = (struct hash128){2, 2};
    for (int32_t i = 0; i < 40; i++)
        kv_seq_free(c, run(c, (const int32_t[]){i, 1, 1, 1, 1}, 5, 0, 0));
    salt = (struct hash128){1, 1};
    kv_seq_free(c, run(c, half, 3, 2, 0));
    check_ok(c);
    kv_close(c);
    salt = (struct hash128){0, 0};
}

static void test_no_room(void) {
    kv *c = open_cache(4, true);
    uint32_t n_cached;
    kv_seq *a = run(c, abc, 12, 0, 100); /* 0 1 2 */
    kv_seq *b = kv_seq_fork(c, a, 10);
    CHECK(kv_seq_need(c, b, 10, 16) == 2);
    CHECK(kv_seq_reserve(c, b, 10, 16) == ERR_FULL); /* a copy and a new one */
    CHECK(kv_n_free(c) == 1);
    TABLE(b, 0, 1, 2);
    check_ok(c);
    CHECK(kv_seq_reserve(c, b, 10, 12) == 0);
    TABLE(b, 0, 1, 3);
    CHECK(kv_seq_reserve(c, a, 12, 13) == ERR_FULL);
    CHECK(kv_seq_reserve(c, a, 12, MAX_TABLE * BT + 1) == ERR_TOO_LONG);
    CHECK(kv_max_tokens(c) == 16);
    check_ok(c);
    kv_seq *rest[4];
    for (int i = 0; i < 4; i++)
        CHECK((rest[i] = kv_seq_new(c, PROMPT(abc, 1), &n_cached)) != NULL);
    CHECK(kv_seq_new(c, PROMPT(abc, 9), &n_cached) == NULL && kv_seq_fork(c, a, 1) == NULL);
    check_ok(c);
    kv_seq_free(c, rest[0]);
    CHECK((rest[0] = kv_seq_fork(c, a, 0)) != NULL);
    kv_close(c);
}

static void test_prefix_cache_off(void) {
    kv *c = open_cache(8, false);
    kv_seq *a = run(c, abc, 9, 0, 100), *b = run(c, abc, 9, 0, 200);
    TABLE(a, 0, 1, 2);
    TABLE(b, 3, 4, 5);
    kv_seq *f = kv_seq_fork(c, a, 9);
    TABLE(f, 0, 1, 2);
    compute(c, f, abc, 9, 12, 300);
    TABLE(f, 0, 1, 6);
    kv_seq_free(c, a);
    kv_seq_free(c, b);
    kv_seq_free(c, f);
    check_ok(c);
    struct kv_stats st;
    kv_stats_get(c, &st);
    CHECK(st.n_free == 8 && st.n_cached == 0 && st.prefix_queries_tokens == 0);
    kv_close(c);
}

/* A cached block that only a queued copy pins is not in the free list: reusing it takes no block.
 */
static void test_pinned_block_costs_nothing(void) {
    const int32_t other[6] = {1, 2, 3, 99, 98, 97};
    kv *c = open_cache(6, true);
    uint32_t n_cached;
    kv_seq_free(c, run(c, abc, 4, 0, 100)); /* block 0 */
    kv_seq *b = kv_seq_new(c, PROMPT(other, 6), &n_cached);
    CHECK(n_cached == 3 && kv_seq_reserve(c, b, 3, 6) == 0);
    TABLE(b, 2, 1);
    CHECK(kv_n_free(c) == 3 && kv_prompt_need(c, PROMPT(abc, 5), 5).blocks == 1);
    kv_seq *d = run(c, abc, 5, 4, 200);
    TABLE(d, 0, 3);
    CHECK(slot_mark(c, d, 3) == 103 && slot_mark(c, b, 2) == 102);
    kv_close(c);
}

static struct rng rng;

/* Random calls without a scheduler; copies stay queued over many calls. Every computed need is
 * exact, a reservation succeeds if and only if its blocks are available, and at each flush every
 * valid position of every sequence holds the number of its text. */
struct model_seq {
    kv_seq *kv;
    int32_t tokens[MAX_TABLE * BT];
    uint32_t n_valid, n_tokens;
    struct hash128 salt;
};

/* The number of a text of n tokens. */
static uint64_t text_number(const struct model_seq *m, uint32_t n) {
    uint64_t x = 1 + m->salt.lo + 2 * m->salt.hi;
    for (uint32_t i = 0; i < n; i++)
        x = x * 3 + (uint64_t)m->tokens[i];
    return x; /* ids are 1 and 2, at most 32 of them: distinct texts, distinct numbers */
}

static void drop(kv *c, struct model_seq *m) {
    kv_seq_free(c, m->kv);
    m->kv = NULL;
}

static void reserve_exactly(kv *c, struct model_seq *m, uint32_t need, uint32_t free_before) {
    int rc = kv_seq_reserve(c, m->kv, m->n_valid, m->n_tokens);
    CHECK(rc == (need <= free_before ? 0 : ERR_FULL));
    if (!rc) CHECK(free_before - kv_n_free(c) == need);
}

static void random_start(kv *c, struct model_seq *m, const struct model_seq *src) {
    uint32_t n_free = kv_n_free(c), need;
    m->n_tokens = 1 + rng_next(&rng) % (MAX_TABLE * BT);
    for (uint32_t i = 0; i < m->n_tokens; i++)
        m->tokens[i] = rng_next(&rng) % 4 ? 1 : 2;
    if (src->kv && rng_next(&rng) % 2) {
        m->n_valid = rng_next(&rng) % (src->n_valid + 1);
        if (m->n_tokens <= m->n_valid) m->n_tokens = m->n_valid + 1;
        if (m->n_tokens > MAX_TABLE * BT) return;
        memcpy(m->tokens, src->tokens, m->n_valid * sizeof *m->tokens);
        m->tokens[m->n_tokens - 1] = 1;
        need = kv_fork_need(c, m->n_valid, m->n_tokens);
        m->salt = src->salt;
        m->kv = kv_seq_fork(c, src->kv, m->n_valid);
    } else {
        m->salt = salt = (struct hash128){rng_next(&rng) % 2, rng_next(&rng) % 2};
        need = kv_prompt_need(c, PROMPT(m->tokens, m->n_tokens), m->n_tokens).blocks;
        m->kv = kv_seq_new(c, PROMPT(m->tokens, m->n_tokens), &m->n_valid);
    }
    if (m->kv) reserve_exactly(c, m, need, n_free);
    if (m->kv && need > n_free) drop(c, m);
}

static void random_growth(kv *c, struct model_seq *m) {
    uint32_t n = m->n_tokens + rng_next(&rng) % 6, was = m->n_tokens;
    if (n > MAX_TABLE * BT) return;
    while (m->n_tokens < n)
        m->tokens[m->n_tokens++] = 1 + rng_next(&rng) % 2;
    uint32_t n_free = kv_n_free(c), need = kv_seq_need(c, m->kv, m->n_valid, n);
    reserve_exactly(c, m, need, n_free);
    if (need > n_free) m->n_tokens = was;
}

static void compute_all(kv *c, struct model_seq *m, uint32_t n) {
    err e;
    CHECK(kv_flush_copies(c, &e) == 0);
    for (uint32_t i = 0; i < n; i++) {
        if (!m[i].kv || kv_seq_reserve(c, m[i].kv, m[i].n_valid, m[i].n_tokens)) continue;
        CHECK(kv_flush_copies(c, &e) == 0);
        for (uint32_t pos = m[i].n_valid; pos < m[i].n_tokens; pos++)
            kv_layers(c)->k->data[kv_slot(c, m[i].kv, pos)] = text_number(&m[i], pos + 1);
        m[i].n_valid = m[i].n_tokens;
        kv_commit(c, m[i].kv, m[i].tokens, m[i].n_valid);
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t pos = 0; m[i].kv && pos < m[i].n_valid; pos++)
            CHECK(slot_mark(c, m[i].kv, pos) == text_number(&m[i], pos + 1));
}

static void test_random_calls(void) {
    rng.state = 11;
    for (int round = 0; round < 100; round++) {
        kv *c = open_cache(4 + rng_next(&rng) % 20, round % 5 != 0);
        struct model_seq m[6] = {0};
        for (int i = 0; i < 600; i++) {
            struct model_seq *one = &m[rng_next(&rng) % 6], *other = &m[rng_next(&rng) % 6];
            int what = rng_next(&rng) % 10;
            if (!one->kv)
                random_start(c, one, other);
            else if (what < 5)
                random_growth(c, one);
            else if (what < 7)
                drop(c, one);
            else if (what == 7)
                compute_all(c, m, 6);
            check_ok(c);
        }
        for (int i = 0; i < 6; i++)
            drop(c, &m[i]);
        check_ok(c);
        struct kv_stats st;
        kv_stats_get(c, &st);
        CHECK(st.n_free == st.n_blocks);
        kv_close(c);
    }
}

static void test_open_refuses(void) {
    struct kv_config good = {.n_blocks = 4,
                             .block_tokens = 16,
                             .max_seqs = 1,
                             .max_blocks_per_seq = 4,
                             .prefix_cache = true};
    struct kv_config bad;
    kv *c = NULL;
    err e;
    CHECK(kv_open(&good, &c, &e) == 0 && kv_layers(c) == NULL); /* book-keeping only */
    CHECK(kv_flush_copies(c, &e) == 0);
    kv_close(c);
    kv_close(NULL);
    bad = good, bad.block_tokens = 12;
    CHECK(kv_open(&bad, &c, &e) == ERR_INVALID);
    bad = good, bad.n_blocks = 0;
    CHECK(kv_open(&bad, &c, &e) == ERR_INVALID);
    bad = good, bad.n_blocks = 1u << 28;
    CHECK(kv_open(&bad, &c, &e) == ERR_INVALID);
    bad = good, bad.be = (backend *)&fake_device, bad.kv_type = QTYPE_Q8_0;
    bad.n_layers = bad.n_kv_heads = bad.head_dim = 1;
    CHECK(kv_open(&bad, &c, &e) == ERR_INVALID);
    bad.kv_type = QTYPE_F16, bad.n_layers = bad.head_dim = UINT32_MAX;
    CHECK(kv_open(&bad, &c, &e) == ERR_INVALID && kv_block_bytes(&bad) == UINT64_MAX);
    struct kv_config real = {
        .n_layers = 3, .n_kv_heads = 2, .head_dim = 64, .block_tokens = 16, .kv_type = QTYPE_F16};
    CHECK(kv_block_bytes(&real) == 3u * 2 * 2 * 64 * 16 * 2);
}

static enum kv_miss miss_of(kv *c, const int32_t *tokens, uint32_t n) {
    uint32_t n_cached;
    kv_seq *s = kv_seq_new(c, PROMPT(tokens, n), &n_cached);
    enum kv_miss why = kv_seq_miss(s);
    kv_seq_free(c, s);
    return why;
}

static void test_why_a_prefix_ends(void) {
    kv *c = open_cache(8, true);
    const int32_t differs[12] = {1, 2, 3, 4, 5, 6, 99, 8, 9, 10, 11, 12},
                  parts[12] = {1, 2, 3, 4, 50, 51, 52, 53, 54, 55, 56, 57},
                  others[16] = {70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85};
    CHECK(miss_of(c, abc, 12) == KV_MISS_EMPTY && miss_of(c, abc, 3) == KV_MISS_NONE);
    kv_seq_free(c, run(c, abc, 8, 0, 100));
    CHECK(miss_of(c, abc, 8) == KV_MISS_NONE && miss_of(c, abc, 9) == KV_MISS_NONE);
    CHECK(miss_of(c, abc, 16) == KV_MISS_NEW);
    CHECK(miss_of(c, differs, 12) == KV_MISS_DIFFERS); /* inside of a block */
    CHECK(miss_of(c, parts, 12) == KV_MISS_DIFFERS);   /* at its start */
    CHECK(miss_of(c, others, 12) == KV_MISS_EMPTY);
    salt = (struct hash128){1, 2};
    CHECK(miss_of(c, abc, 12) == KV_MISS_TENANT && miss_of(c, others, 12) == KV_MISS_EMPTY);
    salt = (struct hash128){0, 0};
    kv_seq_free(c, run(c, others, 16, 0, 200)); /* with the next one it takes all blocks */
    kv_seq_free(c, run(c, others + 1, 15, 0, 300));
    CHECK(miss_of(c, abc, 12) == KV_MISS_EVICTED && miss_of(c, differs, 12) == KV_MISS_EVICTED);
    kv_close(c);
    c = open_cache(8, false);
    CHECK(miss_of(c, abc, 12) == KV_MISS_NONE);
    kv_close(c);
}

int main(void) {
    RUN(test_whole_blocks_hit);
    RUN(test_same_tokens_other_parent);
    RUN(test_part_of_a_block);
    RUN(test_whole_prompt_cached);
    RUN(test_computed_twice_at_once);
    RUN(test_eviction_order);
    RUN(test_fork_copy_on_write);
    RUN(test_copies_within_one_round);
    RUN(test_ranks);
    RUN(test_whole_cache_for_one);
    RUN(test_salts_share_nothing);
    RUN(test_salts_hide_no_parts);
    RUN(test_no_room);
    RUN(test_prefix_cache_off);
    RUN(test_pinned_block_costs_nothing);
    RUN(test_random_calls);
    RUN(test_open_refuses);
    RUN(test_why_a_prefix_ends);
    return check_done();
}
