/* test_sched_states.c - pager and scheduler with recurrent state, driven by random requests over
 * K/V and state blocks that are far too few, against a device that knows nothing of owners and
 * references: every slot of K/V and both parts of every state block hold a number that stands for
 * the salt and the whole text so far. A row is computed only if its sequence finds the numbers of
 * its own text everywhere: in the slots before it, in its source, in its live block. Steps are
 * planned after the one before them has ended, or while it is in flight, with placeholders for
 * tokens that only the device knows; they may fail half way.
 *
 * usage: test_sched_states [SEEDS [STEPS]]; default 4 seeds of 60,000 steps. */
#include "core/base/mem.h"
#include "core/engine/sched.h"
#include "tests/support/rng.h"
#include "tests/unit/check.h"
#include "tests/unit/fake_pool.h"

enum { MAX_LIVE = 24, MAX_TEXT = 96, ROUND_STEPS = 2000, DRAIN_STEPS = 40000, GARBAGE = 1 };

struct live {
    struct sched_seq s; /* first: a plan's item leads back here */
    int32_t tokens[MAX_TEXT];
    uint64_t text[MAX_TEXT]; /* number of tokens[0..i], as the device knows them */
    int32_t next;            /* the token behind the placeholder */
    uint64_t seed, serial;
    uint32_t n_target;
    bool used;
};

/* What the device keeps in a state block. */
struct device_state {
    uint64_t at_boundary, so_far; /* S and tail; recent and the pending rows */
    uint32_t boundary, end;       /* tokens */
};

struct item { /* of a step in flight */
    struct live *q;
    uint64_t serial;
};

static struct {
    struct rng random;
    struct kv_config kc;
    struct sched_config sc;
    kv *cache;
    sched *s;
    struct live live[MAX_LIVE];
    uint64_t *slots; /* (n_blocks, block_tokens) */
    struct device_state *states;
    struct item flight[MAX_LIVE]; /* those that get a token */
    uint32_t n_flight;
    bool overlaps;
    uint32_t step, failures; /* failures: percent of steps */
    uint64_t serial;
    uint64_t n_finished, n_cancelled, n_forked, n_cached_tokens, n_preempted, n_failed, n_shared;
    uint64_t n_evicted, n_stateless, n_recomputed;
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

static uint64_t number_of(const struct live *q, uint32_t n_tokens) {
    return n_tokens ? q->text[n_tokens - 1] : q->s.salt.lo;
}

static int32_t sample(const struct live *q) {
    return (int32_t)(number_after(number_of(q, q->s.n_tokens), q->seed) >> 8) & 1;
}

static void open_round(void) {
    static const uint32_t block_sizes[] = {2, 4, 4, 8, 16};
    err e = {0};
    uint32_t block_tokens = block_sizes[rnd(5)], n_slots = 1 + rnd(10);
    t.kc = (struct kv_config){.n_blocks = 1 + rnd(3 * MAX_TEXT / block_tokens),
                              .block_tokens = block_tokens,
                              .max_blocks_per_seq = MAX_TEXT / block_tokens,
                              .max_seqs = n_slots + rnd(2),
                              .prefix_cache = chance(90),
                              .n_layers = rnd(2),
                              .n_state_layers = 1,
                              .state = {.chunk = block_tokens, .n_blocks = 2 + rnd(30)}};
    if (chance(25)) t.kc.state.n_blocks = 2 + rnd(3);
    t.overlaps = chance(50);
    t.failures = t.overlaps ? 0 : chance(20) ? 5 : 1;
    t.sc = (struct sched_config){.max_sequences = n_slots,
                                 .max_batch_tokens = 1 + rnd(60),
                                 .prefill_chunk = 1 + rnd(30),
                                 .max_prompt_logprob_rows = rnd(12),
                                 .max_queue = 1 + rnd(MAX_LIVE),
                                 .checkpoint_tokens = chance(50) ? 0 : block_tokens * (1 + rnd(6))};
    CHECK_MSG(kv_open(&t.kc, &t.cache, &e) == 0, "%s", e.msg);
    CHECK_MSG(sched_new(&t.sc, t.cache, &t.s, &e) == 0, "%s", e.msg);
    t.slots = calloc((uint64_t)t.kc.n_blocks * block_tokens, sizeof *t.slots);
    t.states = calloc(t.kc.state.n_blocks, sizeof *t.states);
    t.step = t.n_flight = 0;
}

static struct live *unused(void) {
    for (int i = 0; i < MAX_LIVE; i++)
        if (!t.live[i].used) return &t.live[i];
    return NULL;
}

/* Prompts from two token ids, most of them along one of three fixed texts: hits are the rule. */
static void fill_prompt(struct live *q, uint32_t n_prompt) {
    uint32_t kind = rnd(4), same = rnd(n_prompt + 1);
    for (uint32_t i = 0; i < n_prompt; i++)
        q->tokens[i] = kind == 3 || i >= same ? (int32_t)rnd(2) : (int32_t)(i * kind / 2 & 1);
}

static bool add_live(struct live *q, struct live *leader) {
    uint32_t most = kv_max_tokens(t.cache), room = sched_room(t.s);
    uint32_t n_prompt = leader ? leader->s.n_prompt : 1 + rnd(most);
    *q = (struct live){.seed = rnd(1000), .serial = ++t.serial};
    fill_prompt(q, n_prompt);
    if (leader) memcpy(q->tokens, leader->tokens, n_prompt * sizeof *q->tokens);
    q->s = (struct sched_seq){.tokens = q->tokens,
                              .n_tokens = n_prompt,
                              .n_prompt = n_prompt,
                              .leader = leader ? &leader->s : NULL};
    q->s.capacity = n_prompt + rnd(most - n_prompt + 1);
    if (chance(30)) q->s.salt.lo = 1 + rnd(2);
    if (leader) q->s.salt = leader->s.salt;
    if (chance(50)) q->s.system_tokens = rnd(n_prompt + 5);
    if (chance(50)) q->s.stable_tokens = rnd(n_prompt + 5);
    q->s.priority = leader ? leader->s.priority : chance(80) ? 0 : (int)rnd(3);
    q->s.all_rows = !leader && chance(5);
    q->n_target = n_prompt + rnd(q->s.capacity - n_prompt + 1);
    for (uint32_t i = 0; i < n_prompt; i++)
        q->text[i] = number_after(number_of(q, i), (uint32_t)q->tokens[i]);
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

static void check_plan(const struct sched_plan *plan) {
    bool runnable = false;
    uint32_t n_rows = 0;
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const struct sched_item *item = &plan->items[i];
        const struct live *q = (const struct live *)item->seq;
        int32_t a[2], b[2];
        CHECK(q->used && !q->s.paused && item->first == q->s.n_computed && item->n_rows >= 1);
        n_rows += item->n_rows;
        kv_state_ids(q->s.kv, a);
        for (uint32_t k = 0; k < plan->n_items; k++) {
            if (k == i) continue;
            kv_state_ids(plan->items[k].seq->kv, b);
            CHECK_MSG(a[1] != b[0] && a[1] != b[1], "a live block is another sequence's");
            t.n_shared += a[0] == b[0];
        }
    }
    CHECK(n_rows == plan->n_rows && n_rows <= t.sc.max_batch_tokens);
    for (int i = 0; i < MAX_LIVE; i++)
        runnable |= t.live[i].used && !t.live[i].s.paused &&
                    (t.live[i].s.n_tokens > t.live[i].s.n_computed);
    /* Running sequences that wait for their last token hold what others need. */
    CHECK_MSG(!runnable || plan->n_items || t.n_flight,
              "step %u: something could run, nothing is planned", t.step);
}

/* The rows [first, first + n) of one sequence, as op_linear_attention and attention compute them.
 */
static void compute_item(const struct live *q, uint32_t first, uint32_t n) {
    const uint32_t chunk = t.kc.block_tokens, boundary = first - first % chunk, end = first + n;
    int32_t ids[2];
    kv_state_ids(q->s.kv, ids);
    const struct device_state *source = &t.states[ids[0]];
    struct device_state *live = &t.states[ids[1]];
    for (uint32_t pos = 0; pos < first; pos++)
        CHECK_MSG(t.slots[kv_slot(t.cache, q->s.kv, pos)] == q->text[pos],
                  "step %u: position %u of %u holds another text", t.step, pos, q->s.n_tokens);
    if (boundary)
        CHECK_MSG(source->boundary == boundary && source->at_boundary == number_of(q, boundary),
                  "step %u: source %d is not the state after %u tokens", t.step, ids[0], boundary);
    if (first > boundary)
        CHECK_MSG(live->end == first && live->so_far == number_of(q, first),
                  "step %u: live block %d does not go on at %u", t.step, ids[1], first);
    for (uint32_t pos = first; pos < end; pos++)
        t.slots[kv_slot(t.cache, q->s.kv, pos)] = q->text[pos];
    if (end - end % chunk > boundary) {
        live->boundary = end - end % chunk;
        live->at_boundary = number_of(q, live->boundary);
    }
    live->end = end;
    live->so_far = number_of(q, end);
}

static void compute(const struct sched_plan *plan) {
    uint32_t shift = plan->n_items ? rnd(plan->n_items) : 0;
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const struct sched_item *item = &plan->items[(i + shift) % plan->n_items];
        compute_item((const struct live *)item->seq, item->first, item->n_rows);
    }
}

/* The device failed half way: what the step was to write may hold anything. */
static void fail_step(const struct sched_plan *plan) {
    t.n_failed++;
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const struct live *q = (const struct live *)plan->items[i].seq;
        int32_t ids[2];
        kv_state_ids(q->s.kv, ids);
        t.states[ids[1]] = (struct device_state){GARBAGE, GARBAGE, GARBAGE, GARBAGE};
        for (uint32_t pos = 0; pos < plan->items[i].n_rows; pos++)
            t.slots[kv_slot(t.cache, q->s.kv, plan->items[i].first + pos)] = GARBAGE;
    }
    sched_restart(t.s, 0);
    for (uint32_t i = 0; i < plan->n_items; i++)
        CHECK(plan->items[i].seq->state == SCHED_WAITING);
}

/* Commits; the sequences that get a token have it from the device at once, the host later. */
static void begin(const struct sched_plan *plan, struct item *flight, uint32_t *n_flight) {
    compute(plan);
    sched_commit(t.s, plan);
    *n_flight = 0;
    for (uint32_t i = 0; i < plan->n_items; i++) {
        struct live *q = (struct live *)plan->items[i].seq;
        if (q->s.n_computed >= q->s.n_prompt) q->s.all_rows = false;
        if (plan->items[i].wants_logits) flight[(*n_flight)++] = (struct item){q, q->serial};
    }
}

static void add_placeholders(void) {
    for (uint32_t i = 0; i < t.n_flight; i++) {
        struct live *q = t.flight[i].q;
        if (!q->used || q->serial != t.flight[i].serial || q->s.n_tokens >= q->n_target) continue;
        q->next = sample(q);
        q->text[q->s.n_tokens] = number_after(number_of(q, q->s.n_tokens), (uint32_t)q->next);
        sched_add_placeholder(t.s, &q->s);
    }
}

/* The host learns the tokens of the step that was in flight. An answer may end before its target.
 */
static void deliver(void) {
    for (uint32_t i = 0; i < t.n_flight; i++) {
        struct live *q = t.flight[i].q;
        if (!q->used || q->serial != t.flight[i].serial) continue;
        uint32_t n_known = q->s.n_tokens - q->s.has_placeholder;
        if (n_known >= q->n_target || number_of(q, n_known) % 37 == 0) {
            t.n_finished++;
            remove_live(q);
            continue;
        }
        if (!q->s.has_placeholder) {
            q->next = sample(q);
            q->text[n_known] = number_after(number_of(q, n_known), (uint32_t)q->next);
        }
        sched_append(t.s, &q->s, q->next);
    }
    t.n_flight = 0;
}

static void check_all(void) {
    err e = {0};
    CHECK_MSG(sched_check(t.s, &e) == 0, "step %u: %s", t.step, e.msg);
}

static void make_plan(struct sched_plan *plan) {
    t.step++;
    mem_guard_enter();
    sched_plan_step(t.s, plan);
    mem_guard_leave();
    if (t.step % 7 == 0) check_all();
    check_plan(plan);
}

static void one_step(void) {
    struct item next[MAX_LIVE];
    uint32_t n_next;
    struct sched_plan plan;
    err e = {0};
    if (t.overlaps) add_placeholders();
    make_plan(&plan);
    CHECK(kv_flush_copies(t.cache, &e) == 0);
    if (chance(t.failures)) {
        fail_step(&plan);
        check_all();
        return;
    }
    begin(&plan, next, &n_next);
    if (t.overlaps) deliver();
    memcpy(t.flight, next, n_next * sizeof *next);
    t.n_flight = n_next;
    if (!t.overlaps) deliver();
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
    CHECK(st.n_free == st.n_blocks && st.copies == 0);
    CHECK(st.n_states == t.kc.state.n_blocks && st.n_states_free == st.n_states);
    CHECK(t.kc.prefix_cache || !st.n_states_cached);
    CHECK(sched_n_running(t.s) == 0 && sched_n_waiting(t.s) == 0);
    check_all();
    t.n_evicted += st.state_evictions;
    t.n_stateless += st.stateless_tokens;
    t.n_recomputed += sched_n_recomputed(t.s);
    sched_free(t.s);
    kv_close(t.cache);
    free(t.slots);
    free(t.states);
}

static uint32_t n_seeds = 4, n_steps = 60000;

static void test_random(void) {
    for (uint32_t seed = 1; seed <= n_seeds && !check_failures; seed++) {
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
    printf(
        "     %llu finished, %llu cancelled, %llu forks, %llu preemptions, %llu failed steps, %llu "
        "cached tokens, %llu without state, %llu shared sources, %llu states evicted, %llu "
        "recomputed\n",
        (unsigned long long)t.n_finished, (unsigned long long)t.n_cancelled,
        (unsigned long long)t.n_forked, (unsigned long long)t.n_preempted,
        (unsigned long long)t.n_failed, (unsigned long long)t.n_cached_tokens,
        (unsigned long long)t.n_stateless, (unsigned long long)t.n_shared,
        (unsigned long long)t.n_evicted, (unsigned long long)t.n_recomputed);
    /* Each thing that is to be tested did happen, often. */
    CHECK(t.n_finished > n_steps / 50 && t.n_cancelled > n_steps / 200);
    CHECK(t.n_preempted > n_steps / 100 && t.n_forked > n_steps / 200);
    CHECK(t.n_cached_tokens > n_steps / 50 && t.n_evicted > n_steps / 50);
    CHECK(t.n_failed > n_steps / 500 && t.n_stateless > n_steps / 50);
    CHECK(t.n_shared > n_steps / 500 && t.n_recomputed > n_steps / 500);
}

int main(int argc, char **argv) {
    if (argc > 1) n_seeds = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2) n_steps = (uint32_t)strtoul(argv[2], NULL, 10);
    RUN(test_random);
    return check_done();
}
