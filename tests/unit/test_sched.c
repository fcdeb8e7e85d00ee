/* test_sched.c - the scheduler's policy on small scenarios with exact plans, without pools.
 * test_sched_random tests it with random steps. Blocks hold 4 tokens. */
#include "core/engine/sched.h"
#include "tests/unit/check.h"
#include "tests/unit/fake_pool.h"

enum { BT = 4, MAX_SEQS = 8, CAPACITY = 400 };

static struct {
    kv *cache;
    sched *s;
    struct sched_plan plan;
} t;

struct setup {
    uint32_t n_blocks, budget, chunk, n_seqs, queue, logprob_rows;
    uint32_t n_states, checkpoint; /* n_states 0: no recurrent layers */
    bool whole;
};

static void open_all(struct setup u) {
    struct kv_config kc = {.n_blocks = u.n_blocks,
                           .block_tokens = BT,
                           .max_seqs = MAX_SEQS + 1,
                           .max_blocks_per_seq = CAPACITY / BT,
                           .prefix_cache = true,
                           .n_state_layers = u.n_states > 0,
                           .state = {.chunk = BT, .n_blocks = u.n_states}};
    struct sched_config sc = {.max_batch_tokens = u.budget,
                              .prefill_chunk = u.chunk,
                              .max_sequences = u.n_seqs,
                              .max_queue = u.queue ? u.queue : 100,
                              .max_prompt_logprob_rows = u.logprob_rows,
                              .checkpoint_tokens = u.checkpoint,
                              .whole = u.whole};
    err e;
    CHECK(kv_open(&kc, &t.cache, &e) == 0);
    CHECK(sched_new(&sc, t.cache, &t.s, &e) == 0);
}

static void close_all(void) {
    err e = {0};
    CHECK_MSG(sched_check(t.s, &e) == 0, "%s", e.msg);
    sched_free(t.s);
    kv_close(t.cache);
}

/* A sequence of n tokens base, base + 1, ...; different bases have no common prefix. */
struct test_seq {
    struct sched_seq s;
    int32_t tokens[CAPACITY];
};

static void fill(struct test_seq *q, int32_t base, uint32_t n, uint32_t capacity) {
    memset(q, 0, sizeof *q);
    for (uint32_t i = 0; i < n; i++)
        q->tokens[i] = base + (int32_t)i;
    q->s =
        (struct sched_seq){.tokens = q->tokens, .n_tokens = n, .n_prompt = n, .capacity = capacity};
}

static void add(struct test_seq *q, int32_t base, uint32_t n, uint32_t capacity) {
    fill(q, base, n, capacity);
    CHECK(sched_add(t.s, &q->s) == 0);
}

static void plan(void) {
    err e = {0};
    sched_plan_step(t.s, &t.plan);
    CHECK_MSG(sched_check(t.s, &e) == 0, "%s", e.msg);
}

/* Rows planned for q, 0 if it is not in the plan; checks the item. */
static uint32_t rows(const struct test_seq *q) {
    for (uint32_t i = 0; i < t.plan.n_items; i++) {
        const struct sched_item *item = &t.plan.items[i];
        if (item->seq != &q->s) continue;
        CHECK(item->first == q->s.n_computed);
        CHECK(item->wants_logits == (item->first + item->n_rows == q->s.n_tokens));
        return item->n_rows;
    }
    return 0;
}

/* Ends the step: commits, and appends a token to each sequence with logits. */
static void finish_step(void) {
    err e = {0};
    CHECK(kv_flush_copies(t.cache, &e) == 0);
    sched_commit(t.s, &t.plan);
    for (uint32_t i = 0; i < t.plan.n_items; i++)
        if (t.plan.items[i].wants_logits)
            sched_append(t.s, t.plan.items[i].seq, 7000 + (int32_t)t.plan.items[i].seq->n_tokens);
    CHECK_MSG(sched_check(t.s, &e) == 0, "%s", e.msg);
}

static void step(void) {
    plan();
    finish_step();
}

static void test_budget_split(void) {
    struct test_seq a, b, c, d;
    open_all((struct setup){.n_blocks = 200, .budget = 64, .chunk = 24, .n_seqs = 4});
    add(&a, 1000, 100, 200);
    add(&b, 2000, 60, 200);
    add(&c, 3000, 5, 200);
    add(&d, 4000, 60, 200);
    plan();
    /* First half to a; 32 for three: b 11, c 5 of its 11, d 16. */
    CHECK(rows(&a) == 32 && rows(&b) == 11 && rows(&c) == 5 && rows(&d) == 16);
    CHECK(t.plan.n_items == 4 && t.plan.n_rows == 64 && t.plan.n_decode_rows == 0);
    finish_step();
    CHECK(a.s.n_computed == 32 && c.s.n_tokens == 6);
    plan();
    /* c decodes: the others share a chunk of 24. */
    CHECK(rows(&c) == 1 && t.plan.n_decode_rows == 1);
    CHECK(rows(&a) == 12 && rows(&b) == 6 && rows(&d) == 6);
    finish_step();
    sched_remove(t.s, &c.s);
    sched_remove(t.s, &b.s);
    sched_remove(t.s, &a.s);
    CHECK(a.s.state == SCHED_DONE && a.s.kv == NULL);
    plan();
    CHECK(rows(&d) == 38 && t.plan.n_rows == 38); /* the rest: all of the first's rows */
    finish_step();
    CHECK(sched_n_running(t.s) == 1 && sched_n_waiting(t.s) == 0);
    close_all();
}

/* Background sequences run in the gaps of the others, with chunks, and give their room away. */
static void test_background(void) {
    struct test_seq b, c, a;
    open_all((struct setup){.n_blocks = 30, .budget = 64, .chunk = 8, .n_seqs = 2});
    fill(&b, 1000, 20, 40);
    fill(&c, 2000, 3, 40);
    b.s.priority = c.s.priority = SCHED_BACKGROUND;
    CHECK(sched_add(t.s, &b.s) == 0 && sched_add(t.s, &c.s) == 0);
    plan(); /* alone: a chunk of 8, not the budget */
    CHECK(rows(&b) == 5 && rows(&c) == 3 && t.plan.n_rows == 8);
    CHECK(sched_is_background(t.s));
    finish_step();
    add(&a, 3000, 10, 40);
    plan(); /* takes the slot of the last one; nothing of the other runs */
    CHECK(rows(&a) == 10 && t.plan.n_rows == 10 && c.s.state == SCHED_WAITING);
    CHECK(b.s.state == SCHED_RUNNING && !sched_is_background(t.s));
    finish_step();
    plan();
    CHECK(rows(&a) == 1 && t.plan.n_rows == 1);
    finish_step();
    a.s.paused = true; /* a gap: its client does not read */
    plan();
    CHECK(!rows(&a) && rows(&b) == 8 && t.plan.n_rows == 8);
    finish_step();
    a.s.paused = false;
    plan();
    CHECK(rows(&a) == 1 && t.plan.n_rows == 1 && b.s.n_computed == 13);
    finish_step();
    sched_remove(t.s, &a.s);
    plan();
    CHECK(rows(&b) == 4 && rows(&c) == 4);
    finish_step();
    close_all();
}

static void test_leftover_in_order(void) {
    struct test_seq a, b;
    open_all((struct setup){.n_blocks = 100, .budget = 40, .chunk = 40, .n_seqs = 4});
    add(&a, 1000, 100, 200);
    add(&b, 2000, 6, 200);
    plan();
    CHECK(rows(&a) == 34 && rows(&b) == 6);
    finish_step();
    close_all();
}

static void test_admission_while_budget_is_left(void) {
    struct test_seq q[6];
    open_all((struct setup){.n_blocks = 400, .budget = 64, .chunk = 16, .n_seqs = 8});
    add(&q[0], 100, 3, 100);
    step();
    for (int i = 1; i < 6; i++)
        add(&q[i], 1000 * i, 100, 120);
    plan(); /* q[0] decodes, a chunk is 16, each long prompt counts 4 */
    CHECK(rows(&q[0]) == 1 && sched_n_running(t.s) == 5 && sched_n_waiting(t.s) == 1);
    CHECK(rows(&q[1]) == 8 && rows(&q[2]) == 3 && rows(&q[3]) == 3 && rows(&q[4]) == 2);
    finish_step();
    close_all();
}

static void test_priority_goes_first(void) {
    struct test_seq a, b, c;
    open_all((struct setup){.n_blocks = 100, .budget = 16, .chunk = 16, .n_seqs = 2});
    add(&a, 1000, 30, 60);
    fill(&b, 2000, 30, 60);
    b.s.priority = 1;
    CHECK(sched_add(t.s, &b.s) == 0);
    fill(&c, 3000, 4, 60);
    c.s.priority = 2;
    plan();
    CHECK(rows(&b) == 8 && rows(&a) == 8);
    finish_step();
    CHECK(sched_add(t.s, &c.s) == 0);
    plan(); /* no slot: c preempts a */
    CHECK(rows(&c) == 4 && rows(&a) == 0 && rows(&b) == 12);
    CHECK(a.s.state == SCHED_WAITING && a.s.n_preempted == 1 && a.s.n_computed == 0);
    CHECK(sched_n_preemptions(t.s) == 1);
    finish_step();
    sched_remove(t.s, &c.s);
    plan();
    CHECK(a.s.state == SCHED_RUNNING && a.s.n_computed == 8); /* its two blocks were still cached */
    CHECK(a.s.n_cached == 0);
    finish_step();
    close_all();
}

static void test_queue_bounds(void) {
    struct test_seq q[4];
    open_all((struct setup){.n_blocks = 10, .budget = 16, .chunk = 16, .n_seqs = 1, .queue = 2});
    fill(&q[0], 0, 4, 41);
    CHECK(sched_add(t.s, &q[0].s) == ERR_TOO_LONG && q[0].s.state == SCHED_NEW);
    add(&q[0], 0, 4, 40);
    add(&q[1], 100, 4, 40);
    fill(&q[2], 200, 4, 40);
    CHECK(sched_room(t.s) == 0 && sched_add(t.s, &q[2].s) == ERR_FULL);
    step();
    CHECK(sched_room(t.s) == 1 && sched_n_running(t.s) == 1 && sched_n_waiting(t.s) == 1);
    sched_remove(t.s, &q[1].s);
    CHECK(sched_room(t.s) == 2);
    close_all();
}

/* 6 blocks. The newest sequence is preempted; it is admitted again only when its blocks and one
 * more token fit. */
static void test_preempts_the_youngest(void) {
    struct test_seq a, b, c;
    open_all((struct setup){.n_blocks = 6, .budget = 32, .chunk = 32, .n_seqs = 4});
    add(&a, 1000, 7, 24);
    add(&b, 2000, 7, 24);
    add(&c, 3000, 3, 24);
    step(); /* 2 + 2 + 1 blocks; a, b at 8 tokens, c at 4 */
    CHECK(sched_n_running(t.s) == 3 && kv_n_free(t.cache) == 1);
    step(); /* a, b at 9, c at 5: each needs a block */
    plan(); /* a takes the last one, b takes c's */
    CHECK(rows(&a) == 1 && rows(&b) == 1 && rows(&c) == 0 && t.plan.n_items == 2);
    CHECK(c.s.state == SCHED_WAITING && c.s.n_tokens == 5 && kv_n_free(t.cache) == 0);
    finish_step();
    for (int i = 0; i < 3; i++)
        step(); /* to 13 */
    CHECK(a.s.n_tokens == 13 && b.s.n_tokens == 13);
    plan(); /* a takes from b, the next one before it */
    CHECK(rows(&a) == 1 && b.s.state == SCHED_WAITING && kv_n_free(t.cache) == 2);
    finish_step();
    CHECK(sched_n_preemptions(t.s) == 2);
    sched_remove(t.s, &a.s);
    plan(); /* b before c; 4 blocks, then 2 for c and none for headroom */
    CHECK(b.s.state == SCHED_RUNNING && b.s.n_tokens == 13);
    CHECK(c.s.state == SCHED_RUNNING && c.s.tokens[4] == 7004);
    finish_step();
    close_all();
}

static void test_victim_is_itself(void) {
    struct test_seq a, b;
    open_all((struct setup){.n_blocks = 4, .budget = 32, .chunk = 32, .n_seqs = 4});
    add(&a, 1000, 6, 16);
    add(&b, 2000, 7, 16);
    step();
    step();
    plan(); /* a at 8 has room; b at 9 has none and is the last in order */
    CHECK(rows(&a) == 1 && t.plan.n_items == 1 && b.s.state == SCHED_WAITING);
    finish_step();
    step(); /* a at 9 takes one of b's blocks; then b's own 9 tokens no longer fit */
    CHECK(sched_n_running(t.s) == 1 && b.s.state == SCHED_WAITING);
    sched_remove(t.s, &a.s);
    plan();
    CHECK(b.s.state == SCHED_RUNNING && b.s.n_preempted == 1);
    finish_step();
    close_all();
}

static void test_headroom(void) {
    struct test_seq q[5];
    open_all((struct setup){.n_blocks = 6, .budget = 32, .chunk = 32, .n_seqs = 8});
    for (int i = 0; i < 5; i++)
        add(&q[i], 1000 * i, 1, 8);
    plan();
    CHECK(sched_n_running(t.s) == 5); /* the fifth leaves one for the four */
    finish_step();
    close_all();
    open_all((struct setup){.n_blocks = 5, .budget = 32, .chunk = 32, .n_seqs = 8});
    for (int i = 0; i < 5; i++)
        add(&q[i], 1000 * i, 1, 8);
    plan();
    CHECK(sched_n_running(t.s) == 4);
    finish_step();
    close_all();
}

static void test_strict_order(void) {
    struct test_seq a, big, small;
    open_all((struct setup){.n_blocks = 10, .budget = 64, .chunk = 64, .n_seqs = 4});
    add(&a, 1000, 9, 20);
    step();
    add(&big, 2000, 32, 40);
    add(&small, 3000, 1, 4);
    plan();
    CHECK(big.s.state == SCHED_WAITING && small.s.state == SCHED_WAITING);
    finish_step();
    sched_remove(t.s, &a.s);
    plan();
    CHECK(rows(&big) == 32 && rows(&small) == 1);
    finish_step();
    close_all();
}

static void test_paused(void) {
    struct test_seq a, b, c;
    open_all((struct setup){.n_blocks = 6, .budget = 32, .chunk = 32, .n_seqs = 2});
    add(&a, 1000, 5, 24);
    add(&b, 2000, 5, 24);
    step();
    a.s.paused = true;
    plan();
    CHECK(rows(&a) == 0 && rows(&b) == 1 && a.s.state == SCHED_RUNNING);
    finish_step();
    step();
    step(); /* b at 9 */
    CHECK(a.s.state == SCHED_RUNNING && kv_n_free(t.cache) == 2);
    a.s.paused = false;
    plan();
    CHECK(rows(&a) == 1 && rows(&b) == 1);
    finish_step();
    a.s.paused = true;
    add(&c, 3000, 3, 24); /* needs a slot that a does not use */
    plan();
    CHECK(a.s.state == SCHED_WAITING && rows(&c) == 3 && rows(&b) == 1);
    finish_step();
    sched_remove(t.s, &c.s);
    step();
    CHECK(a.s.state == SCHED_WAITING); /* still paused: not admitted */
    sched_remove(t.s, &b.s);
    plan();
    CHECK(t.plan.n_items == 0);
    finish_step();
    a.s.paused = false;
    plan();
    CHECK(a.s.state == SCHED_RUNNING && a.s.n_tokens == 7 && rows(&a) > 0);
    finish_step();
    close_all();
}

static void test_paused_is_first_victim(void) {
    struct test_seq a, b;
    open_all((struct setup){.n_blocks = 4, .budget = 32, .chunk = 32, .n_seqs = 2});
    add(&a, 1000, 5, 16);
    add(&b, 2000, 7, 16);
    step();
    a.s.paused = true; /* the older one */
    step();
    plan(); /* b at 9 */
    CHECK(a.s.state == SCHED_WAITING && rows(&b) == 1);
    finish_step();
    close_all();
}

/* 4 blocks. The step of a failed before its copy ran, so two blocks are its own: the copy and the
 * source, which nothing else holds. b, which needs all blocks, gets both. */
static void test_copy_of_a_paused_sequence(void) {
    struct test_seq left[2], a, b;
    open_all((struct setup){.n_blocks = 4, .budget = 32, .chunk = 32, .n_seqs = 2});
    for (int i = 0; i < 2; i++) {
        add(&left[i], 1000 + 1000 * i, BT, 16);
        step();
        sched_remove(t.s, &left[i].s);
    }
    fill(&a, 1000, 3, 16);
    a.tokens[2] = 1;
    CHECK(sched_add(t.s, &a.s) == 0);
    plan();
    CHECK(a.s.n_cached == 2 && rows(&a) == 1 && kv_n_free(t.cache) == 2);
    a.s.paused = true;
    fill(&b, 2000, 13, 16); /* begins in a cached block, too, and writes it in place */
    b.tokens[3] = 1;
    CHECK(sched_add(t.s, &b.s) == 0);
    plan();
    CHECK(a.s.state == SCHED_WAITING && b.s.n_cached == 3 && rows(&b) == 10);
    finish_step();
    close_all();
}

static void test_forks(void) {
    struct test_seq a, f[2], other;
    open_all((struct setup){.n_blocks = 20, .budget = 8, .chunk = 8, .n_seqs = 6});
    add(&a, 1000, 10, 30);
    for (int i = 0; i < 2; i++) {
        fill(&f[i], 1000, 10, 30);
        f[i].s.leader = &a.s;
        CHECK(sched_add(t.s, &f[i].s) == 0);
    }
    add(&other, 5000, 2, 10);
    plan(); /* the forks wait, later sequences do not */
    CHECK(rows(&a) == 6 && rows(&other) == 2 && t.plan.n_items == 2);
    finish_step();
    plan();
    CHECK(rows(&a) == 4 && rows(&other) == 1 && rows(&f[0]) == 0);
    finish_step();
    uint32_t n_free = kv_n_free(t.cache);
    plan();
    CHECK(rows(&a) == 1 && rows(&f[0]) == 1 && rows(&f[1]) == 1 && rows(&other) == 1);
    CHECK(f[0].s.n_cached == 9 && f[0].s.n_computed == 9 && f[0].s.leader == NULL);
    CHECK(n_free - kv_n_free(t.cache) == 2); /* a copy of the last block each */
    finish_step();
    CHECK(f[1].s.n_tokens == 11);
    close_all();
}

static void test_fork_without_leader(void) {
    struct test_seq a, f, g;
    open_all((struct setup){.n_blocks = 20, .budget = 8, .chunk = 8, .n_seqs = 6});
    add(&a, 1000, 12, 30);
    fill(&f, 1000, 12, 30);
    f.s.leader = &a.s;
    CHECK(sched_add(t.s, &f.s) == 0);
    step();
    CHECK(f.s.state == SCHED_WAITING && a.s.n_computed == 8);
    a.s.paused = true; /* sequences do not wait for a paused leader; its blocks are shared */
    plan();
    CHECK(rows(&f) == 4 && f.s.n_cached == 8 && f.s.leader == NULL);
    finish_step();
    fill(&g, 1000, 12, 30);
    g.s.leader = &a.s;
    CHECK(sched_add(t.s, &g.s) == 0);
    a.s.paused = false;
    sched_remove(t.s, &a.s);
    CHECK(g.s.leader == NULL);
    plan();
    CHECK(g.s.state == SCHED_RUNNING && g.s.n_cached == 11 && rows(&g) == 1);
    finish_step();
    close_all();
}

static void test_all_rows_takes_no_prefix(void) {
    struct test_seq a, b;
    open_all((struct setup){.n_blocks = 20, .budget = 32, .chunk = 32, .n_seqs = 6});
    add(&a, 1000, 12, 30);
    step();
    fill(&b, 1000, 12, 30);
    b.s.all_rows = true;
    CHECK(sched_add(t.s, &b.s) == 0);
    plan();
    CHECK(rows(&b) == 12 && b.s.n_cached == 0);
    finish_step();
    close_all();
}

/* Whole sequences are never cut; one that does not fit holds back those after it. */
static void test_whole_sequences(void) {
    static const uint32_t lengths[] = {20, 9, 1, 32, 1, 31};
    struct test_seq q[6];
    open_all((struct setup){.n_blocks = 40, .budget = 32, .chunk = 1, .n_seqs = 6, .whole = true});
    for (int i = 0; i < 6; i++) {
        add(&q[i], 1000 * i, lengths[i], lengths[i]);
        q[i].s.pooled = q[i].s.all_rows = true;
    }
    for (int at = 0, n_steps = 0; at < 6; n_steps++) {
        static const int ends[] = {3, 4, 6};
        plan();
        CHECK(n_steps < 3 && t.plan.n_items == (uint32_t)(ends[n_steps % 3] - at));
        for (; at < ends[n_steps % 3]; at++)
            CHECK(rows(&q[at]) == lengths[at]);
        sched_commit(t.s, &t.plan);
        for (uint32_t i = 0; i < t.plan.n_items; i++)
            sched_remove(t.s, t.plan.items[i].seq);
    }
    close_all();
}

static void test_logprob_rows_are_bounded(void) {
    struct test_seq a, b, c;
    open_all(
        (struct setup){.n_blocks = 40, .budget = 32, .chunk = 32, .n_seqs = 6, .logprob_rows = 5});
    add(&a, 1000, 12, 30);
    add(&b, 2000, 12, 30);
    add(&c, 3000, 40, 50);
    a.s.all_rows = b.s.all_rows = true;
    plan(); /* c gets the rows that they cannot use */
    CHECK(rows(&a) == 5 && rows(&b) == 0 && rows(&c) == 27);
    finish_step();
    step();
    plan();
    CHECK(rows(&a) == 2 && rows(&b) == 3 && rows(&c) == 1);
    finish_step();
    a.s.all_rows = false; /* it has its prompt's; decoding needs no share */
    plan();
    CHECK(rows(&a) == 1 && rows(&b) == 5);
    finish_step();
    close_all();
}

static void test_failed_plan_is_repeated(void) {
    struct test_seq a;
    open_all((struct setup){.n_blocks = 20, .budget = 8, .chunk = 8, .n_seqs = 6});
    add(&a, 1000, 12, 30);
    plan();
    CHECK(rows(&a) == 8);
    /* the step failed: no commit */
    CHECK(a.s.n_computed == 0);
    plan();
    CHECK(rows(&a) == 8);
    finish_step();
    plan();
    CHECK(rows(&a) == 4);
    finish_step();
    close_all();
}

static void test_more_sequences_than_budget(void) {
    struct test_seq q[3];
    open_all((struct setup){.n_blocks = 20, .budget = 2, .chunk = 50, .n_seqs = 6});
    for (int i = 0; i < 3; i++)
        add(&q[i], 1000 * i, 3, 12);
    for (int i = 0; i < 8; i++) {
        plan();
        CHECK(t.plan.n_rows == 2 && sched_n_running(t.s) <= 2);
        finish_step();
    }
    CHECK(q[0].s.n_tokens > 5 && q[1].s.n_tokens > 5 && q[2].s.n_tokens == 3);
    close_all();
    struct sched_config bad = {.prefill_chunk = 1, .max_sequences = 1, .max_queue = 1};
    sched *s = NULL;
    CHECK(sched_new(&bad, NULL, &s, NULL) == ERR_INVALID && s == NULL);
    sched_free(NULL);
}

/* ---- recurrent layers ---- */

static void test_steps_end_at_checkpoints(void) {
    struct test_seq a, b, c;
    open_all((struct setup){
        .n_blocks = 60, .budget = 64, .chunk = 64, .n_seqs = 4, .n_states = 16, .checkpoint = 12});
    fill(&a, 1000, 30, 60);
    a.s.stable_tokens = 18;
    CHECK(sched_add(t.s, &a.s) == 0);
    /* 12; 16, the block before 18 tokens; 24; 28, the last whole block; the end. */
    for (uint32_t i = 0; i < 5; i++) {
        static const uint32_t want[] = {12, 4, 8, 4, 2};
        plan();
        CHECK_MSG(rows(&a) == want[i] && t.plan.n_rows == want[i], "step %u: %u rows", i, rows(&a));
        finish_step();
    }
    CHECK(a.s.n_tokens == 31 && kv_n_states_free(t.cache) == 16 - 2);
    add(&b, 1000, 30, 60); /* the same prompt */
    plan();
    CHECK(b.s.n_cached == 28 && rows(&b) == 2 && rows(&a) == 1);
    finish_step();
    fill(&c, 1000, 44, 60); /* leaves the chain at 22, in a block whose parent has no state */
    for (uint32_t i = 22; i < 44; i++)
        c.tokens[i] += 5000;
    CHECK(sched_add(t.s, &c.s) == 0);
    plan();
    CHECK(c.s.n_cached == 16 && c.s.junction == 20 && rows(&c) == 4);
    finish_step();
    plan();
    CHECK(rows(&c) == 4); /* to 24, a multiple of 12 */
    finish_step();
    sched_remove(t.s, &c.s);
    add(&c, 1000, 22, 60);
    plan();
    CHECK(c.s.n_cached == 20 && c.s.junction == 0 && rows(&c) == 2);
    finish_step();
    close_all();
}

/* Conversations with the same system messages begin where those end, and the state there stays
 * while one of them fills the others with its turns. */
static void test_system_messages_are_shared(void) {
    struct test_seq a, b;
    open_all((struct setup){.n_blocks = 80, .budget = 64, .chunk = 64, .n_seqs = 2, .n_states = 5});
    fill(&a, 1000, 31, 60);
    a.s.system_tokens = 18;
    a.s.stable_tokens = 25;
    CHECK(sched_add(t.s, &a.s) == 0);
    /* 16, the block before 18 tokens; 24; 28, the last whole block; the end. */
    for (uint32_t i = 0; i < 4; i++) {
        static const uint32_t want[] = {16, 8, 4, 3};
        plan();
        CHECK_MSG(rows(&a) == want[i] && t.plan.n_rows == want[i], "step %u: %u rows", i, rows(&a));
        finish_step();
    }
    sched_remove(t.s, &a.s);
    for (uint32_t n = 33; n < 60; n += 4) { /* each turn keeps one state more, of five */
        fill(&a, 1000, n, 60);
        a.s.system_tokens = 18;
        CHECK(sched_add(t.s, &a.s) == 0);
        plan();
        CHECK_MSG(a.s.n_cached == n - n % 4 - 4 && rows(&a) == 4, "%u of %u", a.s.n_cached, n);
        finish_step();
        sched_remove(t.s, &a.s);
    }
    fill(&b, 1000, 40, 60);
    for (uint32_t i = 18; i < 40; i++)
        b.tokens[i] += 5000;
    b.s.system_tokens = 18;
    CHECK(sched_add(t.s, &b.s) == 0);
    plan();
    CHECK_MSG(b.s.n_cached == 16 && b.s.junction == 0 && rows(&b) == 20, "%u, %u, %u", b.s.n_cached,
              b.s.junction, rows(&b));
    finish_step();
    close_all();
}

/* What a sequence leaves of the budget at a checkpoint goes to the others. */
static void test_budget_after_a_checkpoint(void) {
    struct test_seq a, b, c;
    open_all((struct setup){.n_blocks = 60, .budget = 40, .chunk = 40, .n_seqs = 4, .n_states = 8});
    add(&a, 1000, 10, 60);
    fill(&b, 2000, 60, 80);
    fill(&c, 3000, 9, 60);
    c.s.pooled = true; /* an embedding: nothing follows it */
    CHECK(sched_add(t.s, &b.s) == 0 && sched_add(t.s, &c.s) == 0);
    plan();
    CHECK(rows(&a) == 8 && rows(&c) == 9 && rows(&b) == 23);
    finish_step();
    plan(); /* a: 2 rows to its end */
    CHECK(rows(&a) == 2 && rows(&b) == 33);
    finish_step();
    CHECK(b.s.n_computed == 56);
    close_all();
}

static void test_half_of_the_states_run(void) {
    struct test_seq a, b, c, d;
    open_all((struct setup){.n_blocks = 60, .budget = 64, .chunk = 64, .n_seqs = 8, .n_states = 3});
    add(&a, 1000, 3, 60); /* at most half of the blocks, rounded up, are for running ones */
    add(&b, 2000, 3, 60);
    add(&c, 3000, 3, 60);
    plan();
    CHECK(sched_n_running(t.s) == 2 && c.s.state == SCHED_WAITING);
    finish_step();
    fill(&d, 4000, 3, 60);
    d.s.priority = 1;
    CHECK(sched_add(t.s, &d.s) == 0);
    plan(); /* b gives way: the last of the order */
    CHECK(d.s.state == SCHED_RUNNING && b.s.state == SCHED_WAITING && rows(&a) == 1);
    finish_step();
    a.s.paused = true;
    plan();
    CHECK(a.s.state == SCHED_WAITING && b.s.state == SCHED_RUNNING);
    CHECK(c.s.state == SCHED_WAITING && b.s.n_computed == 0 && rows(&b) == 4);
    finish_step();
    sched_remove(t.s, &d.s);
    step();
    CHECK(c.s.state == SCHED_RUNNING);
    close_all();
}

/* b needs the state that it finds and a live block, and a holds all but one. */
static void test_admission_needs_a_state(void) {
    struct test_seq a, b;
    open_all((struct setup){.n_blocks = 60, .budget = 64, .chunk = 64, .n_seqs = 8, .n_states = 3});
    add(&b, 2000, 10, 60);
    step();
    step();
    sched_remove(t.s, &b.s);
    add(&a, 1000, 10, 60);
    step();
    CHECK(a.s.n_computed == 8 && kv_n_states_free(t.cache) == 1);
    add(&b, 2000, 10, 60);
    for (int i = 0; i < 3; i++) {
        plan();
        CHECK(rows(&a) == (i ? 1 : 2) && b.s.state == SCHED_WAITING);
        finish_step();
    }
    CHECK(a.s.n_computed == 12 && kv_n_states_free(t.cache) == 2); /* past the next boundary */
    plan();
    CHECK(b.s.n_cached == 8 && rows(&b) == 2 && kv_n_states_free(t.cache) == 0);
    finish_step();
    close_all();
}

static void test_forks_find_the_checkpoint(void) {
    struct test_seq a, f;
    open_all((struct setup){.n_blocks = 40, .budget = 64, .chunk = 64, .n_seqs = 8, .n_states = 8});
    add(&a, 1000, 11, 60);
    fill(&f, 1000, 11, 60);
    f.s.leader = &a.s;
    CHECK(sched_add(t.s, &f.s) == 0);
    plan();
    CHECK(rows(&a) == 8 && t.plan.n_items == 1);
    finish_step();
    plan();
    CHECK(rows(&a) == 3 && t.plan.n_items == 1);
    finish_step();
    plan();
    CHECK(rows(&a) == 1 && rows(&f) == 3 && f.s.n_cached == 8 && !f.s.leader);
    finish_step();
    close_all();
}

/* A preempted sequence goes on at its last boundary; only the pending rows are computed again. */
static void test_resumes_at_the_last_boundary(void) {
    struct test_seq a, b;
    open_all((struct setup){.n_blocks = 40, .budget = 64, .chunk = 64, .n_seqs = 1, .n_states = 4});
    add(&a, 1000, 10, 60);
    for (int i = 0; i < 6; i++)
        step();
    CHECK(a.s.n_computed == 14 && a.s.n_tokens == 15);
    fill(&b, 2000, 2, 60);
    b.s.priority = 1;
    CHECK(sched_add(t.s, &b.s) == 0);
    plan();
    CHECK(rows(&b) == 2 && a.s.state == SCHED_WAITING && sched_n_recomputed(t.s) == 0);
    finish_step();
    sched_remove(t.s, &b.s);
    plan();
    CHECK(a.s.n_computed == 12 && rows(&a) == 3 && sched_n_recomputed(t.s) == 2);
    finish_step();
    close_all();
}

/* Live blocks may be half written: the plan's sequences begin again at what is sound. */
static void test_failed_plan_preempts(void) {
    struct test_seq a, b;
    open_all((struct setup){.n_blocks = 40, .budget = 64, .chunk = 64, .n_seqs = 4, .n_states = 8});
    add(&a, 1000, 10, 60);
    step(); /* keeps the state after 8 */
    add(&b, 2000, 3, 60);
    plan();
    CHECK(rows(&a) == 2 && rows(&b) == 3);
    sched_restart(t.s, 0);
    CHECK(a.s.state == SCHED_WAITING && b.s.state == SCHED_WAITING && a.s.n_preempted == 1);
    CHECK(kv_n_states_free(t.cache) == 8);
    plan();
    CHECK(a.s.n_computed == 8 && rows(&a) == 2 && rows(&b) == 3);
    finish_step();
    step();
    step();
    CHECK(a.s.n_computed == 12); /* its source is its live block */
    plan();
    sched_restart(t.s, 0);
    plan();
    CHECK(a.s.n_computed == 8 && rows(&a) == 5 && rows(&b) == 6);
    finish_step();
    close_all();
}

int main(void) {
    RUN(test_budget_split);
    RUN(test_background);
    RUN(test_leftover_in_order);
    RUN(test_admission_while_budget_is_left);
    RUN(test_priority_goes_first);
    RUN(test_queue_bounds);
    RUN(test_preempts_the_youngest);
    RUN(test_victim_is_itself);
    RUN(test_headroom);
    RUN(test_strict_order);
    RUN(test_paused);
    RUN(test_paused_is_first_victim);
    RUN(test_copy_of_a_paused_sequence);
    RUN(test_forks);
    RUN(test_fork_without_leader);
    RUN(test_all_rows_takes_no_prefix);
    RUN(test_logprob_rows_are_bounded);
    RUN(test_failed_plan_is_repeated);
    RUN(test_more_sequences_than_budget);
    RUN(test_steps_end_at_checkpoints);
    RUN(test_system_messages_are_shared);
    RUN(test_budget_after_a_checkpoint);
    RUN(test_half_of_the_states_run);
    RUN(test_admission_needs_a_state);
    RUN(test_forks_find_the_checkpoint);
    RUN(test_resumes_at_the_last_boundary);
    RUN(test_failed_plan_preempts);
    RUN(test_whole_sequences);
    return check_done();
}
