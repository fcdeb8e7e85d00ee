/* test_sched_fair.c - shares of clients in the scheduler: exact orders, victims and amounts. Blocks
 * hold 4 tokens. */
#include "core/base/min_max.h"
#include "core/engine/sched.h"
#include "core/engine/shares.h"
#include "tests/unit/check.h"
#include "tests/unit/fake_pool.h"

enum { BT = 4, MAX_SEQS = 16, CAPACITY = 400 };

static struct {
    kv *cache;
    sched *s;
    struct sched_plan plan;
} t;

static void open_all(uint32_t n_blocks, uint32_t budget, uint32_t n_slots) {
    struct kv_config kc = {.n_blocks = n_blocks,
                           .block_tokens = BT,
                           .max_seqs = MAX_SEQS + 1,
                           .max_blocks_per_seq = CAPACITY / BT,
                           .prefix_cache = true};
    struct sched_config sc = {.max_batch_tokens = budget,
                              .prefill_chunk = budget,
                              .max_sequences = n_slots,
                              .max_queue = 1000};
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

struct test_seq {
    struct sched_seq s;
    int32_t tokens[CAPACITY];
};

/* A prompt of n tokens; those of different bases have no common prefix. */
static void add(struct test_seq *q, uint64_t client, int32_t base, uint32_t n) {
    uint32_t weight = q->s.weight, most_blocks = q->s.most_blocks;
    uint64_t holder = q->s.holder;
    int priority = q->s.priority;
    memset(q, 0, sizeof *q);
    for (uint32_t i = 0; i < n; i++)
        q->tokens[i] = base + (int32_t)i;
    q->s = (struct sched_seq){.tokens = q->tokens,
                              .n_tokens = n,
                              .n_prompt = n,
                              .capacity = min_u32(CAPACITY, kv_max_tokens(t.cache)),
                              .client = client,
                              .weight = weight,
                              .holder = holder,
                              .most_blocks = most_blocks,
                              .priority = priority};
    if (most_blocks) q->s.capacity = min_u32(q->s.capacity, most_blocks * BT);
    CHECK(sched_add(t.s, &q->s) == 0);
}

static void step(void) {
    err e = {0};
    sched_plan_step(t.s, &t.plan);
    CHECK_MSG(sched_check(t.s, &e) == 0, "%s", e.msg);
    CHECK(kv_flush_copies(t.cache, &e) == 0);
    sched_commit(t.s, &t.plan);
    for (uint32_t i = 0; i < t.plan.n_items; i++)
        if (t.plan.items[i].wants_logits) sched_append(t.s, t.plan.items[i].seq, 7);
    CHECK_MSG(sched_check(t.s, &e) == 0, "%s", e.msg);
}

static bool runs(const struct test_seq *q) {
    return q->s.state == SCHED_RUNNING;
}

static uint32_t rows(const struct test_seq *q) {
    for (uint32_t i = 0; i < t.plan.n_items; i++)
        if (t.plan.items[i].seq == &q->s) return t.plan.items[i].n_rows;
    return 0;
}

/* One slot: who has it after each end? */
static void test_lowest_counter_is_next(void) {
    static struct test_seq a[4], b[3];
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    open_all(400, 64, 1);
    for (int i = 0; i < 4; i++)
        add(&a[i], 1, 1000 * i, 20);
    for (int i = 0; i < 3; i++)
        add(&b[i], 2, 10000 + 1000 * i, 12);
    step(); /* a0: 20 + 2 = 22 */
    CHECK(runs(&a[0]));
    sched_remove(t.s, &a[0].s);
    step(); /* b0: 12 + 2 = 14 */
    CHECK(runs(&b[0]));
    sched_remove(t.s, &b[0].s);
    step(); /* b1: 28 */
    CHECK(runs(&b[1]));
    sched_remove(t.s, &b[1].s);
    step(); /* a1: 44 */
    CHECK(runs(&a[1]));
    step();
    step();
    CHECK(a[1].s.n_tokens == 23); /* two more tokens: 48 */
    sched_remove(t.s, &a[1].s);
    step();
    CHECK(runs(&b[2]));
    sched_remove(t.s, &b[2].s);
    step();
    CHECK(runs(&a[2]) && sched_n_waiting(t.s) == 1);
    close_all();
}

static void test_priority_is_above(void) {
    static struct test_seq a[2], b, c;
    memset(a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    memset(&c, 0, sizeof c);
    open_all(400, 64, 1);
    add(&a[0], 1, 0, 20);
    step();
    b.s.priority = -1;
    add(&b, 2, 5000, 4); /* its client has got nothing, but it is less important */
    add(&a[1], 1, 1000, 20);
    sched_remove(t.s, &a[0].s);
    step();
    CHECK(runs(&a[1]) && !runs(&b));
    c.s.priority = 1; /* the one who has got most, more important: takes the slot */
    add(&c, 1, 9000, 4);
    step();
    CHECK(runs(&c) && a[1].s.n_preempted == 1);
    close_all();
}

/* Tokens of two clients that always have sequences waiting, by their weights. */
static void amounts(uint32_t weight_a, uint32_t weight_b, uint32_t n_a, uint32_t n_b,
                    uint64_t got[2]) {
    static struct test_seq q[MAX_SEQS];
    memset(q, 0, sizeof q);
    got[0] = got[1] = 0;
    open_all(400, 32, 1);
    for (uint32_t i = 0; i < n_a + n_b; i++) {
        q[i].s.weight = i < n_a ? weight_a : weight_b;
        add(&q[i], i < n_a ? 1 : 2, 1000 * (int32_t)i, 1);
    }
    for (uint32_t n = 0; n < 6000; n++) {
        step();
        for (uint32_t i = 0; i < n_a + n_b; i++) {
            if (q[i].s.n_tokens < (i < n_a ? 11u : 6u)) continue; /* 10 and 5 tokens an answer */
            got[i >= n_a] += q[i].s.n_tokens - 1;
            sched_remove(t.s, &q[i].s);
            add(&q[i], i < n_a ? 1 : 2, 1000 * (int32_t)i, 1);
        }
    }
    close_all();
}

static void test_amounts_follow_weights(void) {
    uint64_t got[2];
    amounts(0, 0, 12, 2, got); /* a flood and two sequences: half each, within some answers */
    CHECK_MSG(got[0] < got[1] + got[1] / 20 && got[1] < got[0] + got[0] / 20, "%llu, %llu",
              (unsigned long long)got[0], (unsigned long long)got[1]);
    amounts(300, 100, 3, 9, got);
    double ratio = (double)got[0] / (double)got[1];
    CHECK_MSG(ratio > 2.8 && ratio < 3.2, "%g", ratio);
}

static void test_a_pause_saves_nothing_up(void) {
    static struct test_seq a[3], b[3];
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    open_all(400, 64, 1);
    add(&b[0], 2, 5000, 4);
    step(); /* b: 6 */
    sched_remove(t.s, &b[0].s);
    add(&a[0], 1, 0, 100); /* a is lifted to 6, and gets 102 */
    step();
    step();
    add(&b[1], 2, 6000, 40); /* back: lifted to a's counter */
    add(&a[1], 1, 1000, 40);
    add(&b[2], 2, 7000, 40);
    add(&a[2], 1, 2000, 40);
    sched_remove(t.s, &a[0].s);
    step();
    CHECK(runs(&b[1]));
    sched_remove(t.s, &b[1].s);
    step();
    CHECK(runs(&a[1])); /* not b2: nothing is owed for the pause */
    sched_remove(t.s, &a[1].s);
    step();
    CHECK(runs(&b[2]) || runs(&a[2]));
    close_all();
}

static void test_a_newcomer_gets_its_slots(void) {
    static struct test_seq flood[6], a[3];
    memset(flood, 0, sizeof flood);
    memset(a, 0, sizeof a);
    open_all(400, 64, 4);
    for (int i = 0; i < 6; i++)
        add(&flood[i], 1, 1000 * i, 8);
    step();
    CHECK(sched_n_running(t.s) == 4 && sched_n_preemptions(t.s) == 0);
    for (int i = 0; i < 3; i++)
        add(&a[i], 2, 10000 + 1000 * i, 8);
    step();
    CHECK(runs(&a[0]) && !runs(&a[1]) && flood[3].s.n_preempted == 1);
    /* The flood's counter is now lower by a prompt: a few tokens later a1 is due. */
    for (int i = 0; i < 5; i++)
        step();
    /* Two of four slots; the latest of the flood give way, and a third one of a waits. */
    CHECK(runs(&a[0]) && runs(&a[1]) && !runs(&a[2]));
    CHECK(runs(&flood[0]) && runs(&flood[1]) && !runs(&flood[2]) && !runs(&flood[3]));
    CHECK(flood[2].s.n_preempted == 1 && flood[3].s.n_preempted == 1);
    for (int i = 0; i < 20; i++)
        step();
    CHECK(sched_n_preemptions(t.s) == 2); /* that is stable */
    sched_remove(t.s, &a[0].s);
    sched_remove(t.s, &a[1].s);
    sched_remove(t.s, &a[2].s);
    step();
    CHECK(sched_n_running(t.s) == 4 && runs(&flood[2]) && runs(&flood[3]));
    close_all();
}

static void test_weights_of_slots(void) {
    static struct test_seq flood[4], a[2];
    memset(flood, 0, sizeof flood);
    memset(a, 0, sizeof a);
    open_all(400, 64, 4);
    for (int i = 0; i < 4; i++) {
        flood[i].s.weight = 300;
        add(&flood[i], 1, 1000 * i, 8);
    }
    step();
    for (int i = 0; i < 2; i++)
        add(&a[i], 2, 10000 + 1000 * i, 8);
    step();
    CHECK(runs(&a[0]) && !runs(&a[1]) && !runs(&flood[3]) && runs(&flood[2])); /* 3 : 1 */
    close_all();
}

/* 12 blocks: whoever runs beyond its share gives its blocks to one that grows. */
static void test_blocks_are_given_by_who_has_too_many(void) {
    static struct test_seq flood[3], a;
    memset(flood, 0, sizeof flood);
    memset(&a, 0, sizeof a);
    open_all(12, 64, 8);
    for (int i = 0; i < 2; i++)
        add(&flood[i], 1, 1000 * i, 10);
    step();
    add(&a, 2, 20000, 10); /* later than all of the flood */
    step();
    CHECK(runs(&flood[0]) && runs(&flood[1]) && runs(&a));
    for (int i = 0; i < 100 && !sched_n_preemptions(t.s); i++)
        step();
    CHECK(runs(&a) && runs(&flood[0]) && flood[1].s.n_preempted == 1);
    close_all();
}

static void test_the_one_due_leads_prefill(void) {
    static struct test_seq a, b, c;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    memset(&c, 0, sizeof c);
    open_all(400, 64, 4);
    add(&a, 1, 0, 390);
    step();
    add(&b, 1, 1000, 200);
    add(&c, 2, 2000, 100); /* lifted to its client's counter of before, and less is charged */
    step();
    CHECK_MSG(rows(&c) == 32 && rows(&a) == 16 && rows(&b) == 16, "%u %u %u", rows(&a), rows(&b),
              rows(&c));
    close_all();
}

static void test_more_clients_than_places(void) {
    static struct shares s;
    static struct share *of[SHARES_MAX + 10];
    memset(&s, 0, sizeof s);
    for (uint32_t i = 0; i < SHARES_MAX + 10; i++)
        of[i] = shares_enter(&s, i + 1, 0);
    CHECK(s.n_active == SHARES_MAX && of[SHARES_MAX + 9] == of[SHARES_MAX - 1]);
    CHECK(of[SHARES_MAX - 1]->n_seqs == 11 && s.active_weight == SHARES_MAX * SHARE_WEIGHT);
    share_charge(of[3], 100, 0);
    share_charge(of[4], 50, 0);
    shares_leave(&s, of[3]);
    shares_leave(&s, of[4]);
    CHECK(shares_enter(&s, 9999, 7) == of[4]); /* the lower counter has less to lose */
    CHECK(shares_enter(&s, 4, 0) == of[3] && of[3]->counter == 100 * 100);
    for (uint32_t i = 0; i < SHARES_MAX + 10; i++)
        if (i != 3 && i != 4) shares_leave(&s, of[i]);
    shares_leave(&s, of[3]);
    shares_leave(&s, of[4]);
    CHECK(s.n_active == 0 && s.active_weight == 0);
    CHECK(share_of(&s, of[3], 5) == 5);
}

/* Blocks of 4 tokens: which sequences of holder 7, with 6 blocks, run, and what they hold. */
static void test_a_holder_has_its_blocks(void) {
    static struct test_seq a[4], b[2];
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    open_all(100, 64, 8);
    for (int i = 0; i < 4; i++) {
        a[i].s.holder = 7;
        a[i].s.most_blocks = 6;
    }
    add(&a[0], 1, 0, 7);     /* 2 blocks, with the next token, too */
    add(&a[1], 1, 1000, 10); /* 3 */
    add(&a[2], 1, 2000, 5);  /* 2: one too many */
    add(&a[3], 1, 3000, 2);  /* 1, but it comes after a[2] */
    add(&b[0], 1, 4000, 80); /* no limit: it does not wait for them */
    step();
    CHECK(runs(&a[0]) && runs(&a[1]) && !runs(&a[2]) && !runs(&a[3]) && runs(&b[0]));
    CHECK(a[0].s.n_held == 2 && a[1].s.n_held == 3 && a[0].s.holding->n_blocks == 5);
    CHECK(b[0].s.holding == NULL && kv_n_free(t.cache) == 100 - 5 - 20);
    step(); /* a[0] has 9 tokens, a[1] 12 */
    step(); /* a[0] needs a third block: 6 */
    CHECK(a[0].s.n_held == 3 && a[1].s.n_held == 3 && a[1].s.n_tokens == 13);
    step(); /* a[1] needs a fourth block, is the last itself and waits; b[0] grows */
    CHECK(!runs(&a[1]) && a[1].s.n_preempted == 1 && runs(&a[0]) && rows(&a[0]) == 1);
    CHECK(a[0].s.holding->n_blocks == 3 && sched_n_preemptions(t.s) == 1 && runs(&b[0]));
    CHECK(!runs(&a[2]) && !runs(&a[3])); /* a[1] came before them */
    sched_remove(t.s, &a[0].s);
    step();
    CHECK(runs(&a[1]) && runs(&a[2]) && !runs(&a[3]) && a[1].s.holding->n_blocks == 6);
    sched_remove(t.s, &a[1].s);
    step();
    CHECK(runs(&a[2]) && runs(&a[3]) && a[2].s.holding->n_blocks == 3);
    b[1] = a[0];
    b[1].s.capacity = 6 * BT + 1;
    CHECK(sched_add(t.s, &b[1].s) == ERR_TOO_LONG);
    close_all();
}

/* Paused and less important ones of a holder give way to it; background ones hold nothing. */
static void test_a_holder_takes_from_itself(void) {
    static struct test_seq a[5], other;
    memset(a, 0, sizeof a);
    memset(&other, 0, sizeof other);
    open_all(100, 64, 8);
    for (int i = 0; i < 5; i++) {
        a[i].s.holder = 7;
        a[i].s.most_blocks = 6;
    }
    other.s.holder = 8;
    other.s.most_blocks = 6;
    a[4].s.priority = SCHED_BACKGROUND;
    add(&a[4], 1, 9000, 20);
    add(&other, 2, 5000, 19);
    add(&a[0], 1, 0, 8);
    step();
    CHECK(runs(&a[0]) && runs(&other) && a[4].s.holding == NULL);
    a[1].s.priority = -1;
    add(&a[1], 1, 1000, 14); /* 4 blocks */
    step();
    CHECK(!runs(&a[1])); /* a[0] has 9 tokens, 3 blocks */
    a[0].s.paused = true;
    step();
    CHECK(runs(&a[1]) && !runs(&a[0]) && a[0].s.n_preempted == 1);
    add(&a[2], 1, 2000, 10); /* more important than a[1] */
    step();
    CHECK(runs(&a[2]) && !runs(&a[1]) && a[2].s.holding->n_blocks == 3);
    CHECK(runs(&other) && other.s.n_preempted == 0 && other.s.holding->n_blocks == 6);
    a[2].s.paused = other.s.paused = true; /* a[1] may take a[2]'s blocks */
    step();
    CHECK(runs(&a[1]) && !runs(&a[2]));
    a[1].s.paused = true;
    step(); /* nobody else can run */
    CHECK(runs(&a[4]) && rows(&a[4]) == 20 && runs(&a[1]) && runs(&other));
    close_all();
}

int main(void) {
    RUN(test_lowest_counter_is_next);
    RUN(test_priority_is_above);
    RUN(test_amounts_follow_weights);
    RUN(test_a_pause_saves_nothing_up);
    RUN(test_a_newcomer_gets_its_slots);
    RUN(test_weights_of_slots);
    RUN(test_blocks_are_given_by_who_has_too_many);
    RUN(test_the_one_due_leads_prefill);
    RUN(test_more_clients_than_places);
    RUN(test_a_holder_has_its_blocks);
    RUN(test_a_holder_takes_from_itself);
    return check_done();
}
