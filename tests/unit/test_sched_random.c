/* test_sched_random.c - pager and scheduler together, driven by random requests over a cache that
 * is far too small, against a model without blocks: every slot of the K pool holds a number that
 * represents the salt and the whole text up to the token that was "computed" there. Before and
 * after each step, each planned sequence must find the number of its own text in every slot below
 * its computed tokens. A token is a function of the text before it, so preemption and recomputation
 * do not change a sequence's text. In most rounds a second layer is windowed: it must have the
 * numbers of the rows' windows, wherever its window blocks are, with as few of them as the
 * scheduler accepts.
 *
 * usage: test_sched_random [SEEDS [STEPS [FIRST]]]; default 5 seeds of 100,000 steps, from seed
 * FIRST, 1. */
#include "core/base/mem.h"
#include "core/engine/sched.h"
#include "tests/support/rng.h"
#include "tests/unit/check.h"
#include "tests/unit/fake_pool.h"

enum { MAX_LIVE = 24, MAX_TEXT = 64, ROUND_STEPS = 2000, DRAIN_STEPS = 20000, GARBAGE = 1 };

struct live {
    struct sched_seq s; /* first: a plan's item points back here */
    int32_t tokens[MAX_TEXT];
    uint64_t text[MAX_TEXT]; /* number of tokens[0..i] */
    uint64_t seed;           /* its sampler's */
    uint32_t n_target;
    bool used;
};

static struct {
    struct rng random;
    struct kv_config kc;
    struct sched_config sc;
    kv *cache;
    sched *s;
    struct live live[MAX_LIVE];
    uint32_t *stamp; /* (slots) last step that wrote it */
    bool windowed[2];
    uint32_t n_clients, n_holders; /* n_holders 0: no limits */
    uint32_t step, failures;       /* failures: percent of steps */
    uint64_t n_finished, n_cancelled, n_forked, n_cached_tokens, n_evicted, n_copied, n_lost;
    uint64_t n_preempted, n_window_evicted, n_windowless;
} t;

static uint32_t rnd(uint32_t n) {
    return rng_below(&t.random, n);
}

static bool chance(uint32_t percent) {
    return rnd(100) < percent;
}

static uint64_t number_after(uint64_t before, uint64_t token) {
    uint64_t x = before + 0x9e3779b97f4a7c15u * (token + 2);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (x ^ x >> 31) | 2; /* never GARBAGE */
}

static void extend_text(struct live *q, uint32_t from) {
    uint64_t number = from ? q->text[from - 1] : q->s.salt.lo;
    for (uint32_t i = from; i < q->s.n_tokens; i++)
        q->text[i] = number = number_after(number, (uint32_t)q->tokens[i]);
    CHECK(q->text[q->s.n_tokens - 1] == number && number > GARBAGE);
}

static int32_t sample(const struct live *q) {
    return (int32_t)(number_after(q->text[q->s.n_tokens - 1], q->seed) >> 8) & 1;
}

static uint64_t *slot(const struct live *q, uint32_t pos) {
    return &kv_layers(t.cache)->k->data[kv_slot(t.cache, q->s.kv, pos)];
}

static uint64_t *window_slot(const struct live *q, uint32_t pos) {
    return &kv_layers(t.cache)[1].k->data[kv_window_slot(t.cache, q->s.kv, pos)];
}

/* Window blocks: rarely one for each block, mostly hardly more than needed. */
static void choose_windows(void) {
    uint64_t least;
    t.kc.windowed = t.windowed;
    t.kc.window = chance(80) ? 1 + rnd(20) : 0;
    if (!t.kc.window) return;
    t.kc.n_layers = 2;
    least =
        kv_window_least(t.kc.window, t.kc.block_tokens, t.sc.max_sequences, t.sc.max_batch_tokens);
    if (chance(50)) least += rnd(8);
    t.kc.n_window_blocks = least < t.kc.n_blocks && chance(90) ? (uint32_t)least : t.kc.n_blocks;
}

static void open_round(void) {
    static const uint32_t block_sizes[] = {1, 2, 4, 4, 8, 16};
    err e = {0};
    uint32_t block_tokens = block_sizes[rnd(6)];
    uint32_t n_slots = 1 + rnd(10);
    t.kc = (struct kv_config){.be = (backend *)&t,
                              .n_layers = 1,
                              .n_kv_heads = FAKE_HEADS,
                              .head_dim = FAKE_HEAD_DIM,
                              .kv_type = QTYPE_F32,
                              .block_tokens = block_tokens,
                              .max_blocks_per_seq = MAX_TEXT / block_tokens};
    t.kc.n_blocks = 1 + rnd(3 * MAX_TEXT / block_tokens);
    t.kc.max_seqs = n_slots + rnd(2);
    t.kc.prefix_cache = chance(85);
    t.failures = chance(20) ? 25 : 1;
    t.n_clients = chance(40) ? 1 : 2 + rnd(4);
    t.n_holders = chance(60) ? 0 : 1 + rnd(3);
    t.sc.max_sequences = n_slots;
    t.sc.max_batch_tokens = 1 + rnd(40);
    t.sc.prefill_chunk = 1 + rnd(20);
    t.sc.max_prompt_logprob_rows = rnd(12); /* 0: no bound */
    t.sc.max_queue = 1 + rnd(MAX_LIVE);
    choose_windows();
    CHECK_MSG(kv_open(&t.kc, &t.cache, &e) == 0, "%s", e.msg);
    CHECK(kv_has_windows(t.cache) == (t.kc.window > 0));
    CHECK_MSG(sched_new(&t.sc, t.cache, &t.s, &e) == 0, "%s", e.msg);
    t.stamp = calloc((uint64_t)t.kc.n_blocks * block_tokens, sizeof *t.stamp);
    t.step = 0;
}

static struct live *unused(void) {
    for (int i = 0; i < MAX_LIVE; i++)
        if (!t.live[i].used) return &t.live[i];
    return NULL;
}

/* Prompts of two token ids, mostly prefixes of one of three fixed texts: most of them hit the
 * cache. */
static void fill_prompt(struct live *q, uint32_t n_prompt) {
    uint32_t kind = rnd(4);
    uint32_t same = rnd(n_prompt + 1);
    for (uint32_t i = 0; i < n_prompt; i++)
        q->tokens[i] = kind == 3 || i >= same ? (int32_t)rnd(2) : (int32_t)(i * kind / 2 & 1);
}

static bool add_live(struct live *q, struct live *leader) {
    uint32_t most = kv_max_tokens(t.cache), room = sched_room(t.s);
    uint32_t n_prompt = leader ? leader->s.n_prompt : 1 + rnd(most);
    *q = (struct live){.seed = rnd(1000)};
    fill_prompt(q, n_prompt);
    if (leader) memcpy(q->tokens, leader->tokens, n_prompt * sizeof *q->tokens);
    q->s = (struct sched_seq){.tokens = q->tokens,
                              .n_tokens = n_prompt,
                              .n_prompt = n_prompt,
                              .leader = leader ? &leader->s : NULL};
    q->s.capacity = n_prompt + rnd(most - n_prompt + 1);
    if (chance(30)) q->s.salt.lo = 1 + rnd(2);
    if (leader) q->s.salt = leader->s.salt;
    q->s.priority = leader ? leader->s.priority : chance(80) ? 0 : (int)rnd(3);
    q->s.all_rows = !leader && chance(5);
    q->s.client = rnd(t.n_clients);
    q->s.weight = t.n_clients > 1 ? rnd(3) * 50 : 0;
    if (t.n_holders && chance(70)) {
        q->s.holder = rnd(t.n_holders);
        q->s.most_blocks = (q->s.capacity + t.kc.block_tokens - 1) / t.kc.block_tokens + rnd(4);
    }
    q->n_target = n_prompt + rnd(q->s.capacity - n_prompt + 1);
    extend_text(q, 0);
    int rc = sched_add(t.s, &q->s);
    CHECK(rc == (room ? 0 : ERR_FULL));
    q->used = rc == 0;
    if (leader && !rc) t.n_forked++;
    return q->used;
}

static void remove_live(struct live *q) {
    t.n_preempted += q->s.n_preempted;
    t.n_cached_tokens += q->s.n_cached;
    sched_remove(t.s, &q->s);
    CHECK(q->s.state == SCHED_DONE);
    memset(q, 0xee, sizeof *q); /* the owner frees it: it must not be read again */
    q->used = false;
}

static void random_events(uint32_t arrivals) {
    struct live *q = &t.live[rnd(MAX_LIVE)], *fresh;
    if (chance(arrivals) && (fresh = unused()) && add_live(fresh, NULL))
        for (uint32_t n = chance(20) ? 1 + rnd(3) : 0; n > 0; n--) {
            struct live *fork = unused();
            if (!fork || !add_live(fork, fresh)) break;
        }
    if (q->used && chance(10)) q->s.paused = !q->s.paused;
    if (q->used && chance(3)) {
        t.n_cancelled++;
        remove_live(q);
    }
}

static void check_contents(const struct live *q, uint32_t n) {
    for (uint32_t pos = 0; pos < n; pos++)
        CHECK_MSG(*slot(q, pos) == q->text[pos], "step %u: position %u of %u holds another text",
                  t.step, pos, q->s.n_tokens);
}

/* What the rows first..n-1 read in the windowed layer, of the positions below n_written. */
static void check_window(const struct live *q, uint32_t first, uint32_t n_written) {
    int32_t table[MAX_TEXT];
    if (!t.kc.window) return;
    uint32_t from = first + 1 > t.kc.window ? first + 1 - t.kc.window : 0;
    kv_window_table(q->s.kv, table);
    for (uint32_t pos = from; pos < n_written; pos++) {
        CHECK_MSG(*window_slot(q, pos) == q->text[pos],
                  "step %u: position %u of %u holds another text in its window", t.step, pos,
                  q->s.n_tokens);
        CHECK((uint32_t)table[pos / t.kc.block_tokens] ==
              (uint32_t)kv_window_slot(t.cache, q->s.kv, pos) / t.kc.block_tokens);
    }
    for (uint32_t i = 0; i < from / t.kc.block_tokens; i++)
        CHECK(table[i] >= 0 && (uint32_t)table[i] < t.kc.n_window_blocks);
}

/* The window block of pos may be written: it is in no other sequence's window. */
static void check_alone(const struct live *q, uint32_t pos) {
    const uint32_t block_tokens = t.kc.block_tokens;
    int32_t block = kv_window_slot(t.cache, q->s.kv, pos) / (int32_t)block_tokens;
    for (int i = 0; i < MAX_LIVE; i++) {
        const struct live *other = &t.live[i];
        if (!other->used || !other->s.kv || other == q) continue;
        uint32_t n = other->s.n_computed, at = n + 1 > t.kc.window ? n + 1 - t.kc.window : 0;
        for (; at < n; at++)
            CHECK_MSG(kv_window_slot(t.cache, other->s.kv, at) / (int32_t)block_tokens != block,
                      "step %u: a shared window block is written", t.step);
    }
}

/* The number of running sequences whose table contains the block. */
static uint32_t n_holders(int32_t block) {
    uint32_t n = 0;
    for (int i = 0; i < MAX_LIVE; i++) {
        const struct live *q = &t.live[i];
        for (uint32_t b = 0; q->used && q->s.kv && b < kv_seq_n_blocks(q->s.kv); b++)
            n += kv_table(q->s.kv)[b] == block;
    }
    return n;
}

/* The table's blocks of the running sequences of q's holder whose limit is not above q's. */
static void check_limit(const struct live *q) {
    uint64_t n = 0;
    for (int i = 0; i < MAX_LIVE; i++) {
        const struct sched_seq *s = &t.live[i].s;
        if (t.live[i].used && s->state == SCHED_RUNNING && s->most_blocks &&
            s->holder == q->s.holder && s->most_blocks <= q->s.most_blocks)
            n += kv_seq_n_blocks(s->kv);
    }
    CHECK(n <= q->s.most_blocks);
}

static void check_plan(const struct sched_plan *plan) {
    bool planned[MAX_LIVE] = {false}, runnable = false;
    uint32_t n_rows = 0, n_decode = 0, n_all_rows = 0, n_running = 0;
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const struct sched_item *item = &plan->items[i];
        const struct live *q = (const struct live *)item->seq;
        uint32_t behind = q->s.n_tokens - q->s.n_computed;
        CHECK(!planned[q - t.live] && q->used && !q->s.paused && q->s.state == SCHED_RUNNING);
        planned[q - t.live] = true;
        CHECK(item->first == q->s.n_computed && item->n_rows >= 1 && item->n_rows <= behind);
        CHECK(item->wants_logits == (item->n_rows == behind));
        n_rows += item->n_rows;
        n_decode += behind == 1;
        n_all_rows += q->s.all_rows ? item->n_rows : 0;
    }
    CHECK(n_rows == plan->n_rows && n_rows <= t.sc.max_batch_tokens);
    CHECK(n_decode == plan->n_decode_rows);
    CHECK(!t.sc.max_prompt_logprob_rows || n_all_rows <= t.sc.max_prompt_logprob_rows);
    if (n_decode) CHECK(n_rows - n_decode <= t.sc.prefill_chunk);
    for (int i = 0; i < MAX_LIVE; i++) {
        const struct live *q = &t.live[i];
        if (!q->used) continue;
        runnable |= !q->s.paused;
        if (q->s.state == SCHED_RUNNING && q->s.most_blocks) check_limit(q);
        n_running += q->s.state == SCHED_RUNNING;
        if (q->s.state == SCHED_RUNNING && !q->s.paused && !q->s.all_rows &&
            q->s.n_tokens - q->s.n_computed == 1)
            CHECK_MSG(planned[i], "a decoding sequence got no row");
    }
    CHECK(n_running == sched_n_running(t.s) && n_running <= t.sc.max_sequences);
    CHECK_MSG(!runnable || plan->n_items, "step %u: something could run, nothing is planned",
              t.step);
}

/* A forward pass: all rows are written, in any order of sequences, then all sequences read. */
static void compute(const struct sched_plan *plan) {
    uint32_t shift = plan->n_items ? rnd(plan->n_items) : 0;
    for (uint32_t i = 0; i < plan->n_items; i++) {
        check_contents((struct live *)plan->items[i].seq, plan->items[i].first);
        check_window((struct live *)plan->items[i].seq, plan->items[i].first, plan->items[i].first);
    }
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const struct sched_item *item = &plan->items[(i + shift) % plan->n_items];
        struct live *q = (struct live *)item->seq;
        for (uint32_t pos = item->first; pos < item->first + item->n_rows; pos++) {
            uint32_t at = (uint32_t)kv_slot(t.cache, q->s.kv, pos);
            CHECK(t.stamp[at] != t.step);
            CHECK_MSG(n_holders((int32_t)(at / t.kc.block_tokens)) == 1,
                      "a shared block is written");
            t.stamp[at] = t.step;
            *slot(q, pos) = q->text[pos];
            if (!t.kc.window) continue;
            check_alone(q, pos);
            *window_slot(q, pos) = q->text[pos];
        }
    }
    for (uint32_t i = 0; i < plan->n_items; i++) {
        uint32_t first = plan->items[i].first, n = first + plan->items[i].n_rows;
        check_contents((struct live *)plan->items[i].seq, n);
        check_window((struct live *)plan->items[i].seq, first, n);
    }
}

/* The device failed halfway: planned positions may hold anything, and there is no commit. */
static void fail_step(const struct sched_plan *plan) {
    for (uint32_t i = 0; i < plan->n_items; i++)
        for (uint32_t pos = 0; pos < plan->items[i].n_rows; pos++) {
            *slot((struct live *)plan->items[i].seq, plan->items[i].first + pos) = GARBAGE;
            if (t.kc.window)
                *window_slot((struct live *)plan->items[i].seq, plan->items[i].first + pos) =
                    GARBAGE;
        }
}

static void check_all(void) {
    err e = {0};
    CHECK_MSG(sched_check(t.s, &e) == 0, "step %u: %s", t.step, e.msg);
}

/* The device failed after the plan was committed, and works again. */
static void lose_step(const struct sched_plan *plan) {
    fail_step(plan);
    sched_commit(t.s, plan);
    if (plan->n_items && chance(20)) { /* its client hung up meanwhile */
        t.n_cancelled++;
        remove_live((struct live *)plan->items[rnd(plan->n_items)].seq);
    }
    sched_restart(t.s, 1);
    t.n_lost++;
    CHECK(sched_n_running(t.s) == 0);
    check_all();
}

static void after_step(const struct sched_plan *plan) {
    sched_commit(t.s, plan);
    for (uint32_t i = 0; i < plan->n_items; i++) {
        struct live *q = (struct live *)plan->items[i].seq;
        if (q->s.n_computed >= q->s.n_prompt) q->s.all_rows = false;
        if (!plan->items[i].wants_logits) continue;
        if (q->s.n_tokens == q->n_target) {
            t.n_finished++;
            remove_live(q);
        } else {
            sched_append(t.s, &q->s, sample(q));
            extend_text(q, q->s.n_tokens - 1);
        }
    }
}

static void one_step(void) {
    struct sched_plan plan;
    err e = {0};
    t.step++;
    mem_guard_enter();
    sched_plan_step(t.s, &plan);
    mem_guard_leave();
    if (t.step % 7 == 0) check_all();
    check_plan(&plan);
    if (chance(t.failures)) { /* before the copies ran; no commit */
        check_all();
        return;
    }
    CHECK(kv_flush_copies(t.cache, &e) == 0);
    if (chance(t.failures)) {
        fail_step(&plan);
        return;
    }
    if (chance(t.failures)) {
        lose_step(&plan);
        return;
    }
    compute(&plan);
    after_step(&plan);
    if (t.step % 5 == 0) check_all();
}

static bool any_live(void) {
    for (int i = 0; i < MAX_LIVE; i++)
        if (t.live[i].used) return true;
    return false;
}

static void close_round(void) {
    struct kv_stats st;
    uint32_t before = t.step;
    for (int i = 0; i < MAX_LIVE; i++)
        t.live[i].s.paused = false;
    while (any_live() && t.step - before < DRAIN_STEPS && !check_failures)
        one_step();
    CHECK_MSG(!any_live(), "sequences that never end");
    kv_stats_get(t.cache, &st);
    CHECK(st.n_free == st.n_blocks && kv_n_free(t.cache) == t.kc.n_blocks);
    CHECK(sched_n_running(t.s) == 0 && sched_n_waiting(t.s) == 0);
    CHECK(sched_room(t.s) == t.sc.max_queue);
    check_all();
    t.n_evicted += st.evictions;
    t.n_copied += st.copies;
    t.n_window_evicted += st.window_evictions;
    t.n_windowless += st.windowless_tokens;
    CHECK(st.n_windows_free == st.n_windows);
    sched_free(t.s);
    kv_close(t.cache);
    free(t.stamp);
}

static uint32_t n_seeds = 5, n_steps = 100000, first_seed = 1;

static void test_random(void) {
    for (uint32_t i = 0; i < n_seeds && !check_failures; i++) {
        uint32_t seed = first_seed + i;
        t.windowed[1] = true;
        t.random.state = seed * 0x9e3779b97f4a7c15u;
        for (uint32_t done = 0; done < n_steps && !check_failures; done += t.step) {
            open_round();
            for (uint32_t n = 0, arrivals = 5 + rnd(95); n < ROUND_STEPS && !check_failures; n++) {
                random_events(arrivals);
                one_step();
            }
            close_round();
        }
        if (check_failures) fprintf(stderr, "  failed with seed %u\n", seed);
    }
    CHECK(mem_guard_violations() == 0);
    /* Each tested event occurred often. */
    CHECK(t.n_finished > n_steps / 50 && t.n_cancelled > n_steps / 200);
    CHECK(t.n_preempted > n_steps / 100 && t.n_forked > n_steps / 200);
    CHECK(t.n_cached_tokens > n_steps / 50 && t.n_evicted > n_steps / 50);
    CHECK(t.n_copied > n_steps / 100 && t.n_lost > n_steps / 500);
    CHECK(t.n_window_evicted > n_steps / 50 && t.n_windowless > n_steps / 200);
    printf("     %llu finished, %llu cancelled, %llu forks, %llu preemptions, %llu cached tokens, "
           "%llu evictions, %llu copies, %llu window blocks evicted, %llu tokens without\n",
           (unsigned long long)t.n_finished, (unsigned long long)t.n_cancelled,
           (unsigned long long)t.n_forked, (unsigned long long)t.n_preempted,
           (unsigned long long)t.n_cached_tokens, (unsigned long long)t.n_evicted,
           (unsigned long long)t.n_copied, (unsigned long long)t.n_window_evicted,
           (unsigned long long)t.n_windowless);
}

int main(int argc, char **argv) {
    if (argc > 1) n_seeds = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2) n_steps = (uint32_t)strtoul(argv[2], NULL, 10);
    if (argc > 3) first_seed = (uint32_t)strtoul(argv[3], NULL, 10);
    RUN(test_random);
    return check_done();
}
