/* test_kv_windows.c - window blocks in small scenarios. Blocks hold 4 tokens, the window 8; an
 * empty cache allocates blocks and window blocks 0, 1, 2, ... test_sched_random has them in every
 * mixture.
 */
#include "core/kv/kv.h"
#include "tests/unit/check.h"
#include "tests/unit/fake_pool.h"

enum { BT = 4, WINDOW = 8, MAX_TABLE = 4096 };

static const bool layers[2] = {false, true};

static kv *open_cache(uint32_t n_blocks, uint32_t n_windows, uint32_t block_tokens,
                      uint32_t window) {
    static int device;
    struct kv_config config = {.be = (backend *)&device,
                               .n_layers = 2,
                               .n_kv_heads = FAKE_HEADS,
                               .head_dim = FAKE_HEAD_DIM,
                               .kv_type = QTYPE_F32,
                               .windowed = layers,
                               .window = window,
                               .n_window_blocks = n_windows,
                               .n_blocks = n_blocks,
                               .block_tokens = block_tokens,
                               .max_seqs = 6,
                               .max_blocks_per_seq = MAX_TABLE,
                               .prefix_cache = true};
    kv *c = NULL;
    err e;
    CHECK_MSG(kv_open(&config, &c, &e) == 0 && kv_has_windows(c), "%s", e.msg);
    return c;
}

static struct kv_stats stats_of(const kv *c) {
    struct kv_stats st;
    err e = {0};
    CHECK_MSG(kv_check(c, &e) == 0, "%s", e.msg);
    kv_stats_get(c, &st);
    return st;
}

static void check_windows(const kv *c, uint32_t n_used, uint32_t n_cached) {
    struct kv_stats st = stats_of(c);
    CHECK_MSG(st.n_windows - st.n_windows_free == n_used && st.n_windows_cached == n_cached,
              "%u window blocks used, %u cached, want %u, %u",
              (unsigned)(st.n_windows - st.n_windows_free), (unsigned)st.n_windows_cached, n_used,
              n_cached);
}

static struct hash128 salt;
static int32_t text[65536], others[65536];

static void step(kv *c, kv_seq *s, const int32_t *tokens, uint32_t from, uint32_t n) {
    err e;
    CHECK(kv_seq_reserve(c, s, from, n) == 0);
    kv_window_reserve(c, s, n);
    CHECK(kv_flush_copies(c, &e) == 0);
    kv_commit(c, s, tokens, n);
}

/* A sequence of n tokens on what is cached, in one step; *n_cached as kv_seq_new. */
static kv_seq *run(kv *c, const int32_t *tokens, uint32_t n, uint32_t *n_cached) {
    kv_seq *s =
        kv_seq_new(c, &(struct kv_prompt){.tokens = tokens, .n = n, .salt = salt}, n_cached);
    CHECK(s != NULL);
    step(c, s, tokens, *n_cached, n);
    return s;
}

/* 16 blocks in all; those that the window has passed are cached, not held. */
static void the_window_passes(void) {
    kv *c = open_cache(16, 8, BT, WINDOW);
    uint32_t n_cached;
    kv_seq *s = kv_seq_new(c, &(struct kv_prompt){.tokens = text, .n = 8, .salt = salt}, &n_cached);
    step(c, s, text, 0, 8);
    check_windows(c, 2, 0);
    step(c, s, text, 8, 10); /* position 10 sees 3 to 10 */
    check_windows(c, 3, 0);
    step(c, s, text, 10, 11); /* 11 sees 4 to 11 */
    check_windows(c, 2, 1);
    step(c, s, text, 11, 24); /* in one step: all at once, then the window */
    check_windows(c, 2, 4);
    CHECK(kv_window_slot(c, s, 20) / BT == kv_window_slot(c, s, 23) / BT);
    int32_t table[MAX_TABLE];
    kv_window_table(s, table);
    for (uint32_t i = 0; i < 4; i++)
        CHECK(table[i] == table[4]);
    kv_seq_free(c, s);
    check_windows(c, 0, 6);
    kv_close(c);
}

/* A hit needs the window's blocks: the passed ones go first, and with them the hits in the middle;
 * those at the end of a sequence stay. */
static void a_hit_needs_its_window(void) {
    kv *c = open_cache(64, 16, BT, WINDOW);
    uint32_t n_cached;
    kv_seq_free(c, run(c, text, 40, &n_cached)); /* 10 blocks, the last 6 are to be kept */
    check_windows(c, 0, 10);
    kv_seq *s = run(c, text, 21, &n_cached); /* in the middle */
    CHECK(n_cached == 20);
    kv_seq_free(c, s);
    kv_seq_free(c, run(c, others, 16, &n_cached));
    kv_seq_free(c, run(c, others + 500, 12, &n_cached)); /* 2 unused ones and a passed one */
    CHECK(n_cached == 0 && stats_of(c).window_evictions == 1);
    memcpy(others + 100, text, 10 * sizeof *text); /* hits its first blocks only */
    s = run(c, others + 100, 20, &n_cached);
    CHECK_MSG(n_cached == 0 && stats_of(c).windowless_tokens == 10, "%u cached", n_cached);
    kv_seq_free(c, s);
    s = run(c, text, 41, &n_cached); /* the end */
    CHECK_MSG(n_cached == 40, "%u cached", n_cached);
    kv_seq_free(c, s);
    kv_close(c);
}

/* A block that matches in part is copied in both pools, each by its own number. */
static void copies_are_of_both(void) {
    kv *c = open_cache(64, 20, BT, WINDOW);
    uint32_t n_cached;
    kv_seq_free(c, run(c, others, 12, &n_cached)); /* so that the numbers differ */
    kv_seq_free(c, run(c, others + 100, 40, &n_cached));
    kv_seq_free(c, run(c, text, 40, &n_cached));
    kv_seq *s =
        kv_seq_new(c, &(struct kv_prompt){.tokens = text, .n = 40, .salt = salt}, &n_cached);
    CHECK(n_cached == 39);
    uint64_t *full = kv_layers(c)[0].k->data, *window = kv_layers(c)[1].k->data;
    int32_t at = kv_slot(c, s, 38), window_at = kv_window_slot(c, s, 38);
    full[at] = 17, window[window_at] = 18;
    CHECK(at != window_at);
    step(c, s, text, 39, 40); /* equals the cached one: back to it */
    CHECK(kv_slot(c, s, 38) == at && kv_window_slot(c, s, 38) == window_at);
    kv_seq_free(c, s);
    text[39]++;
    s = run(c, text, 40, &n_cached);
    text[39]--;
    CHECK(n_cached == 39 && kv_slot(c, s, 38) != at && kv_window_slot(c, s, 38) != window_at);
    CHECK(full[kv_slot(c, s, 38)] == 17 && window[kv_window_slot(c, s, 38)] == 18);
    kv_seq_free(c, s);
    stats_of(c);
    kv_close(c);
}

/* A fork of tokens whose window has passed and whose window blocks are gone is refused. */
static void forks_need_the_window(void) {
    kv *c = open_cache(64, 12, BT, WINDOW);
    uint32_t n_cached;
    kv_seq *s = run(c, text, 20, &n_cached);
    CHECK(kv_can_fork(c, s, 19));
    kv_seq *fork = kv_seq_fork(c, s, 19);
    step(c, fork, others, 19, 20);
    check_windows(c, 3, 3); /* two hold 2 blocks each, of which one is the same */
    kv_seq_free(c, fork);
    for (uint32_t n = 20; n < 40; n++)
        step(c, s, text, n, n + 1);
    CHECK(kv_can_fork(c, s, 19));
    kv_seq_free(c, run(c, others + 200, 32, &n_cached));
    kv_seq_free(c, run(c, others + 300, 32, &n_cached));
    CHECK(!kv_can_fork(c, s, 19));
    kv_seq_free(c, s);
    stats_of(c);
    kv_close(c);
}

/* Both copies of a block are made at once, from the block that was first. */
static void copies_of_copies(uint32_t order) {
    kv *c = open_cache(64, 64, BT, WINDOW);
    uint32_t n_cached;
    err e;
    kv_seq_free(c, run(c, others, 12, &n_cached));
    kv_seq *s = run(c, text, 18, &n_cached);
    uint64_t *window = kv_layers(c)[1].k->data;
    window[kv_window_slot(c, s, 17)] = 17;
    kv_seq *first = kv_seq_fork(c, s, 18);
    CHECK(kv_seq_reserve(c, first, 18, 19) == 0);
    kv_seq *second = kv_seq_fork(c, first, 18);
    CHECK(kv_seq_reserve(c, second, 18, 19) == 0);
    stats_of(c);
    fake_copies = order;
    CHECK(kv_flush_copies(c, &e) == 0);
    CHECK(kv_window_slot(c, s, 17) != kv_window_slot(c, first, 17) &&
          kv_window_slot(c, first, 17) != kv_window_slot(c, second, 17));
    CHECK(window[kv_window_slot(c, first, 17)] == 17 &&
          window[kv_window_slot(c, second, 17)] == 17);
    kv_seq_free(c, first);
    kv_seq_free(c, second);
    kv_seq_free(c, s);
    stats_of(c);
    kv_close(c);
}

static void copies_in_any_order(void) {
    copies_of_copies(0);
    copies_of_copies(1);
}

/* A long prompt in chunks, then decode: at most the window and a chunk are held. */
static void a_long_sequence_holds_its_window(void) {
    const uint32_t block_tokens = 16, window = 1024, chunk = 512, n = 32768;
    const uint64_t least = kv_window_least(window, block_tokens, 1, chunk);
    kv *c = open_cache(n / block_tokens + 1, (uint32_t)least, block_tokens, window);
    uint32_t n_cached, most = 0;
    CHECK(kv_windows_suffice(c, 1, chunk) && !kv_windows_suffice(c, 2, chunk));
    kv_seq *s = kv_seq_new(c, &(struct kv_prompt){.tokens = text, .n = n, .salt = salt}, &n_cached);
    CHECK(kv_seq_reserve(c, s, 0, n) == 0);
    for (uint32_t at = 0; at < n; at += chunk) {
        kv_window_reserve(c, s, at + chunk);
        struct kv_stats st = stats_of(c);
        if (st.n_windows - st.n_windows_free > most)
            most = (uint32_t)(st.n_windows - st.n_windows_free);
        kv_commit(c, s, text, at + chunk);
    }
    CHECK_MSG(most <= (window + chunk) / block_tokens + 1, "%u window blocks held", most);
    struct kv_stats st = stats_of(c);
    CHECK(st.n_windows - st.n_windows_free == window / block_tokens);
    printf("     %u of %u blocks held in windowed layers, %u while a chunk is computed\n",
           (unsigned)(st.n_windows - st.n_windows_free), n / block_tokens, most);
    kv_seq_free(c, s);
    kv_close(c);
}

static void open_refuses(void) {
    struct kv_config config = {.n_layers = 2,
                               .windowed = layers,
                               .window = 8,
                               .n_blocks = 4,
                               .n_window_blocks = 5,
                               .block_tokens = 4,
                               .max_seqs = 1,
                               .max_blocks_per_seq = 4};
    kv *c;
    err e;
    CHECK(kv_open(&config, &c, &e) == ERR_INVALID && strstr(e.msg, "window_blocks is 5"));
    config.n_window_blocks = 0;
    CHECK(kv_open(&config, &c, &e) == ERR_INVALID);
}

int main(void) {
    for (int32_t i = 0; i < 65536; i++)
        text[i] = i, others[i] = 100000 + i;
    RUN(the_window_passes);
    RUN(a_hit_needs_its_window);
    RUN(copies_are_of_both);
    RUN(copies_in_any_order);
    RUN(forks_need_the_window);
    RUN(a_long_sequence_holds_its_window);
    RUN(open_refuses);
    return check_done();
}
