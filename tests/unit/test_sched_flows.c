/* test_sched_flows.c - the scheduler with several steps in flight (sched.h 10): exact plans of
 * small scenarios, and random requests over too few blocks, where steps end in the order in which
 * they began: no sequence is planned while its next token is awaited, each token comes once, and
 * everything ends. */
#include "core/base/mem.h"
#include "core/engine/sched.h"
#include "tests/support/rng.h"
#include "tests/unit/check.h"
#include "tests/unit/fake_pool.h"

enum { BT = 4, MAX_SEQS = 12, CAPACITY = 600, MAX_FLOWS = 5 };

struct test_seq {
    struct sched_seq s; /* first: a plan's item leads back here */
    int32_t tokens[CAPACITY];
    uint32_t n_wanted, n_awaited; /* tokens in the end; steps in flight that give one */
    bool over;
};

static struct {
    kv *cache;
    sched *s;
    uint32_t n_flows, n_in_flight;
    struct flight {
        struct sched_item items[MAX_SEQS];
        uint32_t n_items, n_rows;
    } flights[MAX_FLOWS];
} t;

static void open_all(uint32_t n_flows, uint32_t n_blocks, uint32_t budget) {
    const struct kv_config kc = {.n_blocks = n_blocks,
                                 .block_tokens = BT,
                                 .max_seqs = MAX_SEQS,
                                 .max_blocks_per_seq = CAPACITY / BT,
                                 .prefix_cache = true};
    const struct sched_config sc = {.max_batch_tokens = budget,
                                    .prefill_chunk = budget,
                                    .max_sequences = MAX_SEQS,
                                    .max_queue = 100,
                                    .n_flows = n_flows};
    err e;
    CHECK(kv_open(&kc, &t.cache, &e) == 0);
    CHECK(sched_new(&sc, t.cache, &t.s, &e) == 0);
    t.n_flows = n_flows;
    t.n_in_flight = 0;
}

static void close_all(void) {
    err e = {0};
    CHECK_MSG(sched_check(t.s, &e) == 0, "%s", e.msg);
    sched_free(t.s);
    kv_close(t.cache);
}

static void add(struct test_seq *q, int32_t base, uint32_t n, uint32_t n_wanted) {
    memset(q, 0, sizeof *q);
    for (uint32_t i = 0; i < n; i++)
        q->tokens[i] = base + (int32_t)i;
    q->n_wanted = n_wanted;
    q->s =
        (struct sched_seq){.tokens = q->tokens, .n_tokens = n, .n_prompt = n, .capacity = n_wanted};
    CHECK(sched_add(t.s, &q->s) == 0);
}

/* Plans and begins a step; returns it, or NULL if nothing can run. */
static const struct flight *begin(void) {
    struct sched_plan plan;
    err e = {0};
    CHECK(t.n_in_flight < t.n_flows);
    sched_set_free_flows(t.s, t.n_flows - t.n_in_flight);
    sched_plan_step(t.s, &plan);
    CHECK_MSG(sched_check(t.s, &e) == 0, "%s", e.msg);
    if (!plan.n_items) return NULL;
    struct flight *f = &t.flights[t.n_in_flight++];
    f->n_items = plan.n_items;
    f->n_rows = plan.n_rows;
    for (uint32_t i = 0; i < plan.n_items; i++) {
        struct test_seq *q = (struct test_seq *)plan.items[i].seq;
        f->items[i] = plan.items[i];
        CHECK_MSG(!q->n_awaited, "a sequence is planned while its token is awaited");
        q->n_awaited += plan.items[i].wants_logits;
    }
    CHECK(kv_flush_copies(t.cache, &e) == 0);
    sched_commit(t.s, &plan);
    return f;
}

/* Ends the oldest step: appends a token to each sequence with logits, or removes it. */
static void finish(void) {
    CHECK(t.n_in_flight > 0);
    const struct flight f = t.flights[0];
    memmove(t.flights, t.flights + 1, (MAX_FLOWS - 1) * sizeof f);
    t.n_in_flight--;
    for (uint32_t i = 0; i < f.n_items; i++) {
        struct test_seq *q = (struct test_seq *)f.items[i].seq;
        if (!f.items[i].wants_logits || q->over) continue;
        CHECK(q->n_awaited == 1 && f.items[i].first + f.items[i].n_rows == q->s.n_tokens);
        q->n_awaited = 0;
        q->over = q->s.n_tokens + 1 >= q->n_wanted;
        if (q->over)
            sched_remove(t.s, &q->s);
        else
            sched_append(t.s, &q->s, 7000 + (int32_t)q->s.n_tokens);
    }
}

/* Eight that decode on three stages: 3, 3, 2, and so they go on. When three end, the others are
 * shared out anew. */
static void test_decoding_is_shared_out(void) {
    static const uint32_t parts[] = {3, 3, 2};
    struct test_seq q[8];
    open_all(3, 200, 64);
    for (int i = 0; i < 8; i++)
        add(&q[i], 1000 * i, 5, i < 3 ? 16 : 60);
    for (int i = 0; i < 3; i++) {
        const struct flight *f = begin();
        CHECK(f && f->n_items == parts[i] && f->n_rows == 5 * parts[i]);
    }
    CHECK(t.n_in_flight == 3);
    for (int round = 0; round < 30; round++) {
        finish();
        const struct flight *f = begin();
        CHECK(f && f->n_items == parts[round % 3] && f->n_rows == parts[round % 3]);
    }
    for (int i = 0; i < 6 || !q[2].over; i++) {
        finish();
        while (t.n_in_flight < t.n_flows && begin()) {
        }
    }
    uint32_t least = 8, most = 0;
    for (uint32_t i = 0; i < t.n_in_flight; i++) {
        if (t.flights[i].n_items < least) least = t.flights[i].n_items;
        if (t.flights[i].n_items > most) most = t.flights[i].n_items;
    }
    CHECK_MSG(t.n_in_flight == 3 && least == 1 && most == 2, "%u steps of %u to %u", t.n_in_flight,
              least, most);
    while (t.n_in_flight)
        finish();
    for (int i = 3; i < 8; i++)
        sched_remove(t.s, &q[i].s);
    close_all();
}

/* One prompt fills all stages; its last part gives the token. */
static void test_prompt_is_cut(void) {
    struct test_seq q;
    open_all(3, 200, 512);
    add(&q, 1000, 500, 510);
    static const uint32_t rows[] = {167, 167, 166};
    for (int i = 0; i < 3; i++) {
        const struct flight *f = begin();
        CHECK(f && f->n_items == 1 && f->n_rows == rows[i] && f->items[0].wants_logits == (i == 2));
    }
    finish();
    CHECK(!begin()); /* its token is awaited */
    finish();
    finish();
    CHECK(q.s.n_tokens == 501 && begin() && !begin());
    finish();
    sched_remove(t.s, &q.s);
    add(&q, 5000, 100, 110); /* short ones are not cut into crumbs */
    const struct flight *f = begin();
    CHECK(f && f->n_rows == 64);
    f = begin();
    CHECK(f && f->n_rows == 36);
    finish();
    finish();
    sched_remove(t.s, &q.s);
    close_all();
}

/* Preempted while its token is awaited, it is not admitted again before that. */
static void test_preempted_in_flight(void) {
    struct test_seq a, b;
    open_all(2, 8, 64);
    add(&a, 1000, 12, 32);
    CHECK(begin());
    finish();
    CHECK(begin()); /* a is in flight, with 4 of 8 blocks */
    memset(&b, 0, sizeof b);
    for (int i = 0; i < 16; i++)
        b.tokens[i] = 2000 + i;
    b.n_wanted = 28;
    b.s = (struct sched_seq){
        .tokens = b.tokens, .n_tokens = 16, .n_prompt = 16, .capacity = 28, .priority = 1};
    CHECK(sched_add(t.s, &b.s) == 0);
    const struct flight *f = begin();
    CHECK(f && f->n_items == 1 && f->items[0].seq == &b.s);
    CHECK(a.s.state == SCHED_WAITING && a.s.awaited);
    finish(); /* a's token comes all the same */
    CHECK(a.s.n_tokens == 14 && !a.s.awaited);
    while (!b.over || !a.over) {
        while (t.n_in_flight < 2 && begin()) {
        }
        finish();
    }
    CHECK(a.s.n_preempted >= 1);
    close_all();
}

static void test_random(void) {
    struct rng rng = {5};
    static struct test_seq q[MAX_SEQS];
    uint32_t n_added = 0, n_over = 0, n_begun = 0;
    open_all(4, 60, 48);
    for (int i = 0; i < MAX_SEQS; i++)
        q[i].over = true;
    for (int step = 0; step < 40000; step++) {
        const uint32_t at = rng_below(&rng, MAX_SEQS);
        if (q[at].over && !q[at].n_awaited && n_added < 4000) {
            const uint32_t n = 1 + rng_below(&rng, 100);
            add(&q[at], 1000 * (int32_t)rng_below(&rng, 4), n, n + 1 + rng_below(&rng, 40));
            n_added++;
        } else if (t.n_in_flight < t.n_flows && rng_below(&rng, 3)) {
            n_begun += begin() != NULL;
        } else if (t.n_in_flight) {
            finish();
        }
    }
    for (int i = 0; i < 100000; i++) {
        while (t.n_in_flight < t.n_flows && begin()) {
        }
        if (!t.n_in_flight) break;
        finish();
    }
    for (int i = 0; i < MAX_SEQS; i++)
        n_over += q[i].over;
    CHECK_MSG(n_over == MAX_SEQS && n_added > 500 && n_begun > 10000, "%u over, %u added, %u steps",
              n_over, n_added, n_begun);
    CHECK(sched_n_preemptions(t.s) > 100);
    close_all();
}

int main(void) {
    RUN(test_decoding_is_shared_out);
    RUN(test_prompt_is_cut);
    RUN(test_preempted_in_flight);
    RUN(test_random);
    return check_done();
}
