/* test_kv_states.c - state blocks of recurrent layers in small scenarios with exact ids. Blocks
 * hold 4 tokens; an empty cache allocates KV blocks and state blocks 0, 1, 2, ... */
#include "core/kv/kv.h"
#include "tests/unit/check.h"
#include "tests/unit/fake_pool.h"

enum { BT = 4, MAX_TABLE = 8 };

static kv *open_cache(uint32_t n_blocks, uint32_t n_states, bool prefix_cache) {
    struct kv_config config = {.n_layers = 1,
                               .n_blocks = n_blocks,
                               .block_tokens = BT,
                               .max_seqs = 6,
                               .max_blocks_per_seq = MAX_TABLE,
                               .prefix_cache = prefix_cache,
                               .n_state_layers = 1,
                               .state = {.chunk = BT, .n_blocks = n_states}};
    kv *c = NULL;
    err e;
    CHECK(kv_open(&config, &c, &e) == 0 && kv_has_states(c) && kv_states(c) == NULL);
    return c;
}

static void check_ok(const kv *c) {
    err e = {0};
    CHECK_MSG(kv_check(c, &e) == 0, "%s", e.msg);
}

static struct hash128 salt;
static uint32_t n_system;
#define PROMPT(ids, n_ids)                                                                         \
    (&(const struct kv_prompt){.tokens = (ids), .n = (n_ids), .salt = salt, .n_system = n_system})

static const int32_t abc[32] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
                                17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32};

/* Source and live block. */
static void check_ids(const kv_seq *s, int32_t source, int32_t live) {
    int32_t ids[2];
    kv_state_ids(s, ids);
    CHECK_MSG(ids[0] == source && ids[1] == live, "states %d %d, want %d %d", ids[0], ids[1],
              source, live);
}

/* Unused or cached; cached. */
static void check_free(const kv *c, uint32_t n_free, uint32_t n_cached) {
    struct kv_stats st;
    kv_stats_get(c, &st);
    CHECK_MSG(st.n_states_free == n_free && st.n_states_cached == n_cached &&
                  kv_n_states_free(c) == n_free,
              "%u states free, %u of them cached, want %u, %u", (unsigned)st.n_states_free,
              (unsigned)st.n_states_cached, n_free, n_cached);
    check_ok(c);
}

/* A step up to token n, whose first n_known tokens the host knows. */
static void step_known(kv *c, kv_seq *s, const int32_t *tokens, uint32_t from, uint32_t n,
                       uint32_t n_known) {
    CHECK(kv_seq_reserve(c, s, from, n) == 0);
    kv_commit(c, s, tokens, n_known);
    kv_states_advance(c, s, n, false);
    check_ok(c);
}

static void step(kv *c, kv_seq *s, const int32_t *tokens, uint32_t n, bool keep) {
    CHECK(kv_seq_reserve(c, s, n - 1, n) == 0);
    kv_commit(c, s, tokens, n);
    kv_states_advance(c, s, n, keep);
    check_ok(c);
}

/* A new sequence that takes what was foretold; expects n_cached, and the junction. */
static kv_seq *start(kv *c, const int32_t *tokens, uint32_t n, uint32_t want_cached,
                     uint32_t want_junction) {
    uint32_t n_cached, n_free = kv_n_free(c), n_states = kv_n_states_free(c);
    struct kv_need need = kv_prompt_need(c, PROMPT(tokens, n), n);
    kv_seq *s = kv_seq_new(c, PROMPT(tokens, n), &n_cached);
    CHECK(s != NULL);
    CHECK_MSG(n_cached == want_cached && kv_seq_junction(s) == want_junction,
              "%u cached, junction %u; want %u, %u", n_cached, kv_seq_junction(s), want_cached,
              want_junction);
    CHECK(kv_seq_reserve(c, s, n_cached, n) == 0);
    CHECK(n_free - kv_n_free(c) == need.blocks && n_states - kv_n_states_free(c) == need.states);
    check_ok(c);
    return s;
}

/* The same, computed in one step without a checkpoint. */
static kv_seq *run(kv *c, const int32_t *tokens, uint32_t n, uint32_t want_cached) {
    kv_seq *s = start(c, tokens, n, want_cached, 0);
    kv_commit(c, s, tokens, n);
    kv_states_advance(c, s, n, false);
    check_ok(c);
    return s;
}

static void test_hit_needs_a_state(void) {
    kv *c = open_cache(16, 8, true);
    struct kv_stats st;
    kv_seq *a = run(c, abc, 10, 0);
    check_ids(a, 0, 0);
    kv_seq *b = start(c, abc, 10, 0, 8); /* K/V of 8 tokens are there, no state */
    check_ids(b, 1, 1);
    kv_stats_get(c, &st);
    CHECK(st.stateless_tokens == 8 && st.prefix_hit_tokens == 0 && st.n_states == 8);
    kv_seq_free(c, b);
    check_free(c, 7, 0); /* it computed nothing: nothing to leave */
    kv_seq_free(c, a);   /* leaves the state after 8 tokens */
    check_free(c, 8, 1);
    b = start(c, abc, 10, 8, 0);
    check_ids(b, 0, 1);
    check_free(c, 6, 0);
    kv_seq_free(c, b);
    b = start(c, abc, 9, 8, 0);
    check_ids(b, 0, 1);
    kv_seq_free(c, b);
    b = start(c, abc, 8, 0, 4); /* the last token must be computed, and no state is after 4 */
    kv_seq_free(c, b);
    kv_seq_free(c, NULL);
    check_free(c, 8, 1);
    kv_close(c);
}

static void test_kept_at_a_boundary(void) {
    kv *c = open_cache(16, 8, true);
    kv_seq *a = start(c, abc, 5, 0, 0);
    kv_commit(c, a, abc, 5);
    kv_states_advance(c, a, 5, true); /* the live block has a pending row */
    check_ids(a, 0, 0);
    kv_seq_free(c, a);
    kv_close(c);
    c = open_cache(16, 8, true);
    a = start(c, abc, 8, 0, 0);
    kv_commit(c, a, abc, 8);
    kv_states_advance(c, a, 8, true);
    check_ids(a, 0, 1); /* block 0 is kept, 1 goes on */
    step(c, a, abc, 9, true);
    check_ids(a, 0, 1); /* not a boundary: nothing to keep */
    check_free(c, 6, 0);
    kv_seq *b = start(c, abc, 11, 8, 0); /* while a is at it */
    check_ids(b, 0, 2);
    for (uint32_t n = 10; n <= 12; n++)
        step(c, a, abc, n, false);
    check_ids(a, 1, 1); /* passed 12 */
    check_free(c, 5, 0);
    step(c, b, abc, 11, false);
    kv_seq_free(c, b);
    check_free(c, 7, 1); /* 0 is still owned; 2 had no boundary */
    kv_seq_free(c, a);
    check_free(c, 8, 2);
    b = start(c, abc, 20, 12, 0);
    check_ids(b, 1, 2);
    kv_seq_free(c, b);
    kv_close(c);
}

/* The deepest state counts, and states go before K/V. */
static void test_evicted_apart_from_kv(void) {
    const int32_t other[9] = {9, 9, 9, 9, 9, 9, 9, 9, 9}, third[5] = {8, 8, 8, 8, 8};
    kv *c = open_cache(16, 3, true);
    struct kv_stats st;
    kv_seq *a = start(c, abc, 12, 0, 0);
    kv_commit(c, a, abc, 4);
    kv_states_advance(c, a, 4, true);
    check_ids(a, 0, 1);
    kv_commit(c, a, abc, 12);
    kv_states_advance(c, a, 12, true);
    check_ids(a, 1, 2);
    kv_seq_free(c, a);   /* block 2 holds nothing of use */
    check_free(c, 3, 2); /* 2, then 0, then 1 */
    kv_seq *b = run(c, other, 9, 0), *d = run(c, third, 5, 0);
    check_ids(b, 2, 2);
    check_ids(d, 0, 0); /* the state after 4 tokens of abc is gone, K/V are not */
    check_free(c, 1, 1);
    kv_stats_get(c, &st);
    CHECK(st.state_evictions == 1 && st.evictions == 0);
    uint32_t n_cached;
    struct kv_need need = kv_prompt_need(c, PROMPT(abc, 16), 16);
    CHECK(need.states == 2 && need.blocks == 4);
    CHECK(kv_seq_new(c, PROMPT(abc, 16), &n_cached) == NULL); /* only the source itself is free */
    check_free(c, 1, 1);
    kv_seq_free(c, d); /* 5 tokens: it leaves a state after 4 */
    check_free(c, 2, 2);
    a = start(c, abc, 16, 12, 0);
    check_ids(a, 1, 0);
    kv_seq_free(c, a);
    a = start(c, abc, 12, 0, 8); /* of 12 tokens at most 11: two whole blocks, no state */
    kv_seq_free(c, a);
    kv_seq_free(c, b);
    check_ok(c);
    kv_close(c);
}

/* A hit behind the system's messages uses the state there, too: another one makes room. */
static void test_system_state_is_used(void) {
    static const struct {
        uint32_t n_system, n, want_cached, want_junction;
    } cases[] = {{0, 7, 0, 4}, {5, 7, 4, 0}, {5, 11, 4, 8}, {10, 7, 0, 4}, {16, 7, 0, 4}};
    const int32_t other[3] = {9, 9, 9}, third[3] = {8, 8, 8};
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kv *c = open_cache(16, 4, true);
        kv_seq *a = start(c, abc, 14, 0, 0);
        for (uint32_t n = 4; n <= 12; n += 4) { /* states 0, 1, 2 are kept */
            kv_commit(c, a, abc, n);
            kv_states_advance(c, a, n, true);
        }
        kv_seq_free(c, a);
        n_system = cases[i].n_system;
        kv_seq_free(c, start(c, abc, 14, 12, 0));
        check_free(c, 4, 3);
        kv_seq *b = run(c, other, 3, 0), *d = run(c, third, 3, 0);
        check_ids(b, 3, 3);
        check_ids(d, cases[i].n_system == 5, cases[i].n_system == 5);
        kv_seq_free(c, b);
        kv_seq_free(c, d);
        kv_seq_free(c, start(c, abc, cases[i].n, cases[i].want_cached, cases[i].want_junction));
        kv_close(c);
    }
    n_system = 0;
}

/* A KV block that is reused takes its state along; the state block is unused then. */
static void test_state_goes_with_its_kv_block(void) {
    const int32_t other[12] = {9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9};
    kv *c = open_cache(3, 4, true);
    struct kv_stats st;
    kv_seq_free(c, run(c, abc, 5, 0));
    check_free(c, 4, 1);
    kv_seq *b = run(c, other, 12, 0); /* all three blocks */
    check_ids(b, 1, 1);
    check_free(c, 3, 0);
    kv_stats_get(c, &st);
    CHECK(st.state_evictions == 1 && st.evictions == 1);
    kv_seq_free(c, b);
    check_free(c, 4, 1);
    kv_close(c);
}

static void test_one_state_for_each_block(void) {
    kv *c = open_cache(16, 6, true);
    kv_seq *a = run(c, abc, 9, 0), *b = start(c, abc, 9, 0, 8);
    step_known(c, b, abc, 8, 9, 9); /* its blocks are a's now */
    kv_seq_free(c, a);
    check_free(c, 5, 1);
    kv_seq_free(c, b); /* the block has a state: 1 is unused again */
    check_free(c, 6, 1);
    a = start(c, abc, 8, 0, 4);
    kv_commit(c, a, abc, 8);
    kv_states_advance(c, a, 8, true); /* kept before */
    check_ids(a, 1, 1);
    kv_seq_free(c, a);
    check_free(c, 6, 1);
    kv_close(c);
}

static void test_nothing_is_kept_without_room(void) {
    kv *c = open_cache(16, 2, true);
    kv_seq *a = start(c, abc, 8, 0, 0), *b = run(c, abc + 9, 3, 0);
    kv_commit(c, a, abc, 8);
    kv_states_advance(c, a, 8, true);
    check_ids(a, 0, 0);
    kv_seq_free(c, b);
    check_free(c, 1, 0);
    step(c, a, abc, 12, true);
    check_ids(a, 0, 1);
    step(c, a, abc, 16, true); /* one sequence in the smallest pool: the older state makes room */
    check_ids(a, 1, 0);
    kv_seq_free(c, a);
    check_free(c, 2, 1);
    a = start(c, abc, 20, 16, 0);
    check_ids(a, 1, 0);
    kv_seq_free(c, a);
    kv_close(c);
}

/* A boundary that is reached with a token that the host does not know yet: its block is not in the
 * prefix table, so its state cannot be shared; once it is known, it can. */
static void test_unknown_tokens(void) {
    kv *c = open_cache(16, 4, true);
    kv_seq *a = run(c, abc, 7, 0);
    step_known(c, a, abc, 7, 8, 7);
    check_ids(a, 0, 0);
    kv_seq_free(c, a); /* the state after 4 was overwritten */
    check_free(c, 4, 0);
    a = start(c, abc, 7, 0, 4);
    kv_commit(c, a, abc, 7);
    kv_states_advance(c, a, 7, false);
    step_known(c, a, abc, 7, 8, 7);
    kv_commit(c, a, abc, 8);
    kv_seq_free(c, a);
    check_free(c, 4, 1);
    a = start(c, abc, 9, 8, 0);
    kv_seq_free(c, a);
    kv_close(c);
}

static void test_failed_step(void) {
    kv *c = open_cache(16, 6, true);
    kv_seq *a = start(c, abc, 8, 0, 0);
    kv_commit(c, a, abc, 4);
    kv_states_advance(c, a, 4, true);
    check_ids(a, 0, 1);
    kv_states_lost(c, a); /* only the live block */
    kv_seq_free(c, a);
    check_free(c, 6, 1);
    a = start(c, abc, 10, 4, 0);
    check_ids(a, 0, 1);
    kv_commit(c, a, abc, 10);
    kv_states_advance(c, a, 10, false);
    check_ids(a, 1, 1);
    kv_states_lost(c, a); /* the source is the live block: both */
    check_ok(c);
    kv_seq_free(c, a);
    check_free(c, 6, 1);
    a = start(c, abc, 10, 4, 8);
    kv_seq_free(c, a);
    kv_close(c);
}

static void test_salts_and_no_prefix_cache(void) {
    kv *c = open_cache(16, 6, true);
    kv_seq_free(c, run(c, abc, 9, 0));
    salt = (struct hash128){7, 0};
    kv_seq_free(c, run(c, abc, 9, 0));
    check_free(c, 6, 2);
    kv_seq_free(c, start(c, abc, 9, 8, 0));
    salt = (struct hash128){0, 0};
    kv_close(c);
    c = open_cache(16, 6, false);
    kv_seq *a = run(c, abc, 8, 0);
    kv_states_advance(c, a, 8, true);
    check_ids(a, 0, 0);
    kv_seq_free(c, a);
    check_free(c, 6, 0);
    kv_seq_free(c, run(c, abc, 9, 0));
    kv_close(c);
}

/* The ranks of a group have the same state blocks, in each layer. */
static void test_pools(void) {
    static int fake_device;
    struct kv_config config = {.be = (backend *)&fake_device,
                               .n_layers = 1,
                               .n_kv_heads = FAKE_HEADS,
                               .head_dim = FAKE_HEAD_DIM,
                               .kv_type = QTYPE_F32,
                               .n_blocks = 4,
                               .block_tokens = 16,
                               .max_seqs = 2,
                               .max_blocks_per_seq = MAX_TABLE,
                               .n_state_layers = 2,
                               .state = {.n_blocks = 5,
                                         .chunk = 16,
                                         .n_taps = 4,
                                         .n_k_heads = 1,
                                         .n_v_heads = 2,
                                         .k_dim = 16,
                                         .v_dim = 16}};
    kv *c = NULL;
    err e;
    fake_ranks = 3;
    CHECK(kv_open(&config, &c, &e) == 0);
    for (int i = 0; i < 6; i++) {
        const struct backend_state *s = &kv_states(c)[i];
        CHECK(s->n_blocks == 5 && s->k_dim == 16 && s->v_dim == 16);
        CHECK(s->blocks->bytes == 5 * backend_state_block_bytes(&config.state));
        CHECK(!i || s->blocks != s[-1].blocks);
    }
    CHECK(kv_state_bytes(&config) == 2 * backend_state_block_bytes(&config.state));
    kv_close(c);
    fake_ranks = 1;
    config.n_state_layers = 0;
    CHECK(kv_state_bytes(&config) == 0 && kv_open(&config, &c, &e) == 0);
    CHECK(!kv_has_states(c) && kv_states(c) == NULL && kv_n_states_free(c) == 0);
    kv_close(c);
}

int main(void) {
    RUN(test_hit_needs_a_state);
    RUN(test_kept_at_a_boundary);
    RUN(test_evicted_apart_from_kv);
    RUN(test_system_state_is_used);
    RUN(test_state_goes_with_its_kv_block);
    RUN(test_one_state_for_each_block);
    RUN(test_nothing_is_kept_without_room);
    RUN(test_unknown_tokens);
    RUN(test_failed_step);
    RUN(test_salts_and_no_prefix_cache);
    RUN(test_pools);
    return check_done();
}
