/* sched.c - the scheduler: which sequences run, which are preempted, how many tokens each computes.
 * Owns the order of the two lists and the kv_seq of each running sequence; uses no clock, thread or
 * device. The policy is in sched.h; a plan is three passes over the running list: grow (4), admit
 * (3, 6), share the budget (1, 2). All blocks are reserved before the first item is written, so
 * that nothing planned is ever revoked. Worker thread only. */
#include "core/engine/sched.h"

#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/min_max.h"

#include <assert.h>
#include <stdlib.h>

/* See sched.h 3: an admission leaves one block free for every HEADROOM_SEQUENCES running sequences,
 * and counts a prompt up to one of CHUNK_PARTS parts of a chunk. */
enum { HEADROOM_SEQUENCES = 4, CHUNK_PARTS = 4 };
/* See sched.h 10: fewer rows of a prompt are not worth a step of their own. */
enum { LEAST_FLOW_ROWS = 64 };

/* Best first: higher priority, then earlier arrival. */
struct list {
    struct sched_seq *first, *last;
    uint32_t n;
};

struct sched {
    struct sched_config config;
    kv *cache;
    uint32_t n_slots; /* most running */
    uint32_t free_flows;
    uint32_t
        n_active; /* of the last plan: running sequences that are not held and behind or awaited */
    struct list running, waiting;
    uint32_t n_new; /* waiting and never admitted */
    uint64_t n_arrived, n_preemptions, n_recomputed, n_plans;
    bool foreground; /* of the last plan: others than background sequences could run */
    bool
        checkpoints; /* states are kept at checkpoints: there are state layers and a prefix cache */
    struct sched_item *items; /* (n_slots) */
    struct shares shares;     /* of the clients of all sequences here */
    struct shares holders;    /* those of sequences with most_blocks; counters are not used */
};

static bool goes_before(const struct sched_seq *a, const struct sched_seq *b) {
    return a->priority != b->priority ? a->priority > b->priority : a->arrival < b->arrival;
}

/* Searches from the end, where new arrivals belong. */
static void list_insert(struct list *l, struct sched_seq *seq) {
    struct sched_seq *prev = l->last;
    while (prev && goes_before(seq, prev))
        prev = prev->prev;
    LINKED_INSERT(l, prev, seq);
    l->n++;
}

static void list_remove(struct list *l, struct sched_seq *seq) {
    LINKED_REMOVE(l, seq);
    l->n--;
}

void sched_set_chunk(sched *s, uint32_t prefill_chunk) {
    s->config.prefill_chunk =
        prefill_chunk < s->config.max_batch_tokens ? prefill_chunk : s->config.max_batch_tokens;
}

int sched_new(const struct sched_config *config, kv *cache, sched **out, err *e) {
    if (!config->max_batch_tokens || !config->prefill_chunk || !config->max_sequences ||
        !config->max_queue)
        return err_set(e, ERR_INVALID, "every limit of the scheduler must be at least 1");
    sched *s = mem_new(1, sizeof *s);
    if (!s) return err_no_memory(e);
    s->config = *config;
    s->free_flows = config->n_flows ? config->n_flows : 1;
    s->cache = cache;
    s->checkpoints = cache && kv_has_states(cache) && kv_shares_prefixes(cache);
    sched_set_chunk(s, config->prefill_chunk);
    s->n_slots = config->max_sequences < config->max_batch_tokens ? config->max_sequences
                                                                  : config->max_batch_tokens;
    if (s->checkpoints) { /* sched.h 3 */
        struct kv_stats stats;
        kv_stats_get(cache, &stats);
        if (s->n_slots > (stats.n_states + 1) / 2) s->n_slots = (uint32_t)(stats.n_states + 1) / 2;
    }
    int rc = cache && !kv_windows_suffice(cache, s->n_slots, config->max_batch_tokens)
                 ? err_set(e, ERR_INVALID,
                           "too few window blocks for %u sequences and steps of %u tokens",
                           s->n_slots, config->max_batch_tokens)
                 : 0;
    if (!rc && !(s->items = mem_new(s->n_slots, sizeof *s->items))) rc = err_no_memory(e);
    if (rc)
        sched_free(s);
    else
        *out = s;
    return rc;
}

void sched_free(sched *s) {
    if (!s) return;
    free(s->items);
    free(s);
}

static uint32_t blocks_of(const sched *s, uint32_t n_tokens) {
    uint32_t block_tokens = kv_block_tokens(s->cache);
    return n_tokens / block_tokens + (n_tokens % block_tokens > 0);
}

int sched_add(sched *s, struct sched_seq *seq) {
    assert(seq->n_tokens > 0 && seq->n_tokens <= seq->capacity && !(seq->all_rows && seq->leader));
    bool limited = seq->most_blocks && seq->priority != SCHED_BACKGROUND;
    if (seq->capacity > kv_max_tokens(s->cache) ||
        (limited && blocks_of(s, seq->capacity) > seq->most_blocks))
        return ERR_TOO_LONG;
    if (s->n_new >= s->config.max_queue) return ERR_FULL;
    seq->state = SCHED_WAITING;
    seq->n_computed = seq->n_cached = seq->n_preempted = seq->n_lost = seq->junction = 0;
    seq->was_admitted = seq->has_placeholder = seq->awaited = seq->deferred = false;
    seq->arrival = s->n_arrived++;
    seq->kv = NULL;
    seq->share = shares_enter(&s->shares, seq->client, seq->weight);
    seq->holding = limited ? shares_enter(&s->holders, seq->holder, 0) : NULL;
    seq->n_held = 0;
    list_insert(&s->waiting, seq);
    s->n_new++;
    return 0;
}

uint32_t sched_room(const sched *s) {
    return s->config.max_queue - s->n_new;
}

/* Is it paused, or held because others run? */
static bool is_held(const sched *s, const struct sched_seq *seq) {
    return seq->paused || (s->foreground && seq->priority == SCHED_BACKGROUND);
}

/* Tokens that a step may compute. */
static uint32_t gap(const sched *s, const struct sched_seq *seq) {
    return is_held(s, seq) || seq->deferred ? 0 : seq->n_tokens - seq->n_computed;
}

static void hold_blocks(struct sched_seq *seq, uint32_t n) {
    if (!seq->holding) return;
    seq->holding->n_blocks += n;
    seq->holding->n_blocks -= seq->n_held;
    seq->n_held = n;
}

/* Would its holder have more than it may if seq held n blocks? */
static bool is_beyond_limit(const struct sched_seq *seq, uint64_t n) {
    return seq->holding && seq->holding->n_blocks - seq->n_held + n > seq->most_blocks;
}

static void stop_running(sched *s, struct sched_seq *seq) {
    list_remove(&s->running, seq);
    seq->share->n_running--;
    if (seq->holding) seq->holding->n_running--;
    hold_blocks(seq, 0);
    kv_seq_free(s->cache, seq->kv);
    seq->kv = NULL;
    seq->n_computed = 0;
}

static void preempt(sched *s, struct sched_seq *seq) {
    seq->n_lost = seq->n_computed;
    stop_running(s, seq);
    seq->state = SCHED_WAITING;
    seq->n_preempted++;
    s->n_preemptions++;
    list_insert(&s->waiting, seq);
}

static struct sched_seq *last_held(const sched *s) {
    struct sched_seq *seq = s->running.last;
    while (seq && !is_held(s, seq))
        seq = seq->prev;
    return seq;
}

/* Does its client run more than its share? */
static bool is_beyond_share(const sched *s, const struct share *share) {
    return share->n_running > share_of(&s->shares, share, s->running.n);
}

/* The last in the order, up to that priority, that a client runs beyond its share; NULL: none. */
static struct sched_seq *last_beyond_share(const sched *s, int priority) {
    if (s->shares.n_active < 2) return NULL;
    for (struct sched_seq *seq = s->running.last; seq && seq->priority <= priority; seq = seq->prev)
        if (is_beyond_share(s, seq->share)) return seq;
    return NULL;
}

/* Who gives its blocks to seq, which runs. */
static struct sched_seq *choose_victim(const sched *s, const struct sched_seq *seq) {
    struct sched_seq *victim = seq->priority == SCHED_BACKGROUND ? s->running.last : last_held(s);
    if (!victim) victim = last_beyond_share(s, seq->priority);
    return victim ? victim : s->running.last;
}

/* The one of a holder that gives its blocks to seq, which runs. See sched.h 9. */
static struct sched_seq *choose_own_victim(const sched *s, const struct sched_seq *seq) {
    struct sched_seq *last = NULL;
    for (struct sched_seq *r = s->running.last; r; r = r->prev) {
        if (r->holding != seq->holding) continue;
        if (is_held(s, r)) return r;
        if (!last) last = r;
    }
    return last;
}

/* Pass 1: reserves blocks for the known tokens of each running sequence, from best to worst. */
static void reserve_running(sched *s) {
    for (struct sched_seq *seq = s->running.first, *next; seq; seq = next) {
        struct sched_seq *victim = NULL;
        kv_window_trim(s->cache, seq->kv, seq->n_computed);
        next = seq->next;
        if (!gap(s, seq)) continue;
        uint32_t n_blocks = blocks_of(s, seq->n_tokens);
        while (victim != seq) {
            if (is_beyond_limit(seq, n_blocks))
                victim = choose_own_victim(s, seq);
            else if (kv_seq_reserve(s->cache, seq->kv, seq->n_computed, seq->n_tokens))
                victim = choose_victim(s, seq);
            else
                break;
            if (victim == next) next = next->next;
            preempt(s, victim);
        }
        if (victim != seq) hold_blocks(seq, n_blocks);
    }
}

/* Is the leader computing the prompt, or about to? A fork does not wait for a paused or preempted
 * leader. */
static bool waits_for_leader(const sched *s, const struct sched_seq *seq) {
    const struct sched_seq *leader = seq->leader;
    if (!leader || leader->paused) return false;
    if (kv_has_states(s->cache) && !s->checkpoints) return false; /* it leaves nothing */
    if (leader->state == SCHED_RUNNING) return leader->n_computed < seq->n_prompt;
    return leader->state == SCHED_WAITING && !leader->was_admitted;
}

static bool can_fork(const sched *s, const struct sched_seq *seq) {
    return seq->leader && seq->leader->state == SCHED_RUNNING &&
           seq->leader->n_computed >= seq->n_prompt &&
           kv_can_fork(s->cache, seq->leader->kv, seq->n_tokens - 1);
}

/* The tokens of seq that the prefix cache may provide. */
static struct kv_prompt reusable_prompt(const struct sched_seq *seq) {
    return (struct kv_prompt){.tokens = seq->tokens,
                              .n = seq->all_rows ? 1 : seq->n_tokens,
                              .salt = seq->salt,
                              .n_system = seq->system_tokens};
}

/* The known text with room for one more token. */
static uint32_t start_tokens(const struct sched_seq *seq) {
    return seq->n_tokens + (seq->n_tokens < seq->capacity);
}

/* Free blocks that seq takes when it starts, and state blocks. */
static struct kv_need start_need(const sched *s, const struct sched_seq *seq) {
    uint32_t n_tokens = start_tokens(seq);
    if (can_fork(s, seq))
        return (struct kv_need){.blocks = kv_fork_need(s->cache, seq->n_tokens - 1, n_tokens)};
    const struct kv_prompt prompt = reusable_prompt(seq);
    return kv_prompt_need(s->cache, &prompt, n_tokens);
}

static bool has_room(const sched *s, const struct sched_seq *seq) {
    if (s->running.n >= s->n_slots) return false;
    struct kv_need need = start_need(s, seq);
    return need.blocks + s->running.n / HEADROOM_SEQUENCES <= kv_n_free(s->cache) &&
           need.states <= kv_n_states_free(s->cache);
}

static bool gives_way(const struct sched_seq *victim, const struct sched_seq *seq) {
    bool from_others = seq->priority != SCHED_BACKGROUND || victim->priority == SCHED_BACKGROUND;
    return (victim->paused && from_others) || victim->priority < seq->priority;
}

/* Does r, which runs, count for seq's holder and give way to seq? */
static bool gives_limit(const struct sched_seq *r, const struct sched_seq *seq) {
    return r->holding == seq->holding && gives_way(r, seq);
}

/* Must seq, which waits, wait for others of its holder, also if all that give way to it do? */
static bool waits_for_holder(const sched *s, const struct sched_seq *seq) {
    uint64_t need = blocks_of(s, start_tokens(seq));
    if (!seq->holding) return false;
    uint32_t n_running = seq->holding->n_running;
    if (!is_beyond_limit(seq, need + n_running / HEADROOM_SEQUENCES)) return false;
    uint32_t given = 0;
    for (const struct sched_seq *r = s->running.first; r; r = r->next) {
        if (!gives_limit(r, seq)) continue;
        given += r->n_held;
        n_running--;
    }
    return seq->holding->n_blocks - given + need + n_running / HEADROOM_SEQUENCES >
           seq->most_blocks;
}

/* Preempts of seq's holder what gives way to seq, which does not wait for the others of it. */
static void make_limit_room(sched *s, const struct sched_seq *seq) {
    while (seq->holding) {
        uint64_t headroom = seq->holding->n_running / HEADROOM_SEQUENCES;
        if (!is_beyond_limit(seq, blocks_of(s, start_tokens(seq)) + headroom)) return;
        struct sched_seq *r = s->running.last;
        while (r && !gives_limit(r, seq))
            r = r->prev;
        if (!r) return;
        preempt(s, r);
    }
}

/* Is seq, which waits, within its client's share of what would run, and are there other clients? */
static bool is_owed(const sched *s, const struct sched_seq *seq) {
    return s->shares.n_active > 1 &&
           seq->share->n_running < share_of(&s->shares, seq->share, s->running.n);
}

/* The sequence that makes room for seq, which waits; NULL: none. */
static struct sched_seq *choose_giver(const sched *s, const struct sched_seq *seq) {
    struct sched_seq *victim = last_held(s);
    if (!victim) victim = s->running.last;
    if (victim && gives_way(victim, seq)) return victim;
    return is_owed(s, seq) ? last_beyond_share(s, seq->priority) : NULL;
}

/* Blocks that the running sequences could give to seq at most. */
static uint64_t most_given(sched *s, const struct sched_seq *seq) {
    uint64_t n = 0;
    bool owed = is_owed(s, seq);
    for (struct sched_seq *r = s->running.last; r; r = r->prev) {
        uint32_t own = share_of(&s->shares, r->share, s->running.n);
        r->share->n_spare = owed && r->share->n_running > own ? r->share->n_running - own : 0;
    }
    for (const struct sched_seq *r = s->running.last; r; r = r->prev) {
        bool spare = r->priority == seq->priority && r->share->n_spare;
        if (!gives_way(r, seq) && !spare) continue;
        if (r->share->n_spare) r->share->n_spare--;
        n += kv_seq_n_held(s->cache, r->kv);
    }
    return n;
}

/* Preempts for an admission, unless even all possible victims would not suffice. (+ 1: a copy of a
 * block shared with a victim may become unnecessary. One victim's live block is state enough.) */
static bool make_room(sched *s, const struct sched_seq *seq) {
    uint64_t n_most = (uint64_t)kv_n_free(s->cache) + 1 + most_given(s, seq);
    if (n_most < start_need(s, seq).blocks) return false;
    while (!has_room(s, seq)) {
        struct sched_seq *victim = choose_giver(s, seq);
        if (!victim) return false;
        preempt(s, victim);
    }
    return true;
}

/* Takes all blocks for the known text at once, so that no free block is promised twice. */
static bool start_sequence(sched *s, struct sched_seq *seq) {
    const struct kv_prompt prompt = reusable_prompt(seq);
    uint32_t n_cached = seq->n_tokens - 1;
    kv_seq *blocks = can_fork(s, seq) ? kv_seq_fork(s->cache, seq->leader->kv, n_cached)
                                      : kv_seq_new(s->cache, &prompt, &n_cached);
    if (!blocks) return false;
    if (kv_seq_reserve(s->cache, blocks, n_cached, seq->n_tokens)) {
        kv_seq_free(s->cache, blocks);
        return false;
    }
    list_remove(&s->waiting, seq);
    list_insert(&s->running, seq);
    seq->state = SCHED_RUNNING;
    seq->share->n_running++;
    if (seq->holding) seq->holding->n_running++;
    hold_blocks(seq, blocks_of(s, seq->n_tokens));
    seq->leader = NULL;
    seq->kv = blocks;
    seq->n_computed = n_cached;
    seq->junction = kv_seq_junction(blocks);
    if (seq->n_lost > n_cached) s->n_recomputed += seq->n_lost - n_cached;
    seq->n_lost = 0;
    if (!seq->was_admitted) {
        seq->was_admitted = true;
        seq->n_cached = n_cached;
        seq->miss = kv_seq_miss(blocks);
        share_charge(seq->share, seq->n_tokens - n_cached, 0);
        s->n_new--;
    }
    return true;
}

/* What the running sequences need in a step. */
struct load {
    uint32_t n_decode, n_prefill, n_awaited;
    uint32_t asked; /* rows, each prefill counted up to a part of a chunk */
};

/* Rows for sequences that are more than one token behind. */
static uint32_t prefill_budget(const sched *s, const struct load *l) {
    uint32_t left = s->config.max_batch_tokens - l->n_decode;
    bool bounded = l->n_decode || l->n_awaited || !s->foreground;
    return bounded ? min_u32(left, s->config.prefill_chunk) : left;
}

static void load_add(const sched *s, struct load *l, const struct sched_seq *seq) {
    uint32_t part = s->config.prefill_chunk / CHUNK_PARTS;
    l->n_awaited += seq->awaited;
    if (gap(s, seq) == 1) l->n_decode++;
    if (gap(s, seq) < 2) return;
    l->n_prefill++;
    l->asked += min_u32(gap(s, seq), part ? part : 1);
}

static bool is_due_before(const struct share *a, const struct share *b) {
    return a->counter != b->counter ? a->counter < b->counter : a->n_running < b->n_running;
}

/* Does seq wait for others of its holder, or come after one that does in this plan? */
static bool is_held_back(const sched *s, const struct sched_seq *seq) {
    if (!seq->holding) return false;
    if (seq->holding->held_back == s->n_plans) return true;
    if (!waits_for_holder(s, seq)) return false;
    seq->holding->held_back = s->n_plans;
    return true;
}

/* The next one to admit of seq and those after it, which all wait; NULL: none. */
static struct sched_seq *next_waiting(const sched *s, struct sched_seq *seq) {
    struct sched_seq *best = NULL;
    for (; seq && (!best || seq->priority == best->priority); seq = seq->next) {
        if (is_held(s, seq) || seq->awaited || waits_for_leader(s, seq) || is_held_back(s, seq))
            continue;
        if (!best || is_due_before(seq->share, best->share)) best = seq;
        if (s->shares.n_active < 2) break;
    }
    return best;
}

/* Pass 2, strictly in order: a sequence that does not fit yet holds back those after it, so that
 * small requests cannot starve a big one. */
static void admit_waiting(sched *s) {
    struct load l = {0};
    for (const struct sched_seq *r = s->running.first; r; r = r->next)
        load_add(s, &l, r);
    struct sched_seq *seq, *from = s->waiting.first;
    while ((seq = next_waiting(s, from))) {
        if (l.asked >= prefill_budget(s, &l)) return;
        make_limit_room(s, seq);
        if (!has_room(s, seq) && !make_room(s, seq)) return;
        from = seq->next;
        if (!start_sequence(s, seq)) return;
        if (s->shares.n_active > 1) from = s->waiting.first; /* counters have changed */
        load_add(s, &l, seq);
    }
}

/* The smaller of `best` and the boundary at or before pos, if a step may end there. */
static uint32_t nearer(uint32_t best, uint32_t pos, uint32_t after, uint32_t block_tokens) {
    pos -= pos % block_tokens;
    return pos > after && pos < best ? pos : best;
}

/* The first checkpoint of the prompt after `after` tokens; UINT32_MAX: none. See sched.h 7. */
static uint32_t next_checkpoint(const sched *s, const struct sched_seq *seq, uint32_t after) {
    const uint32_t block_tokens = kv_block_tokens(s->cache), every = s->config.checkpoint_tokens;
    const uint32_t end = seq->n_prompt - 1;
    if (!s->checkpoints || seq->pooled || after >= end) return UINT32_MAX;
    uint32_t best = nearer(UINT32_MAX, end, after, block_tokens);
    if (seq->junction <= end) best = nearer(best, seq->junction, after, block_tokens);
    if (seq->system_tokens <= end) best = nearer(best, seq->system_tokens, after, block_tokens);
    if (seq->stable_tokens <= end) best = nearer(best, seq->stable_tokens, after, block_tokens);
    if (every && end - after >= every - after % every)
        best = nearer(best, after + every - after % every, after, block_tokens);
    return best;
}

/* Gives an item up to `want` more rows, as far as its sequence is behind and up to its next
 * checkpoint; those with all_rows also share prompt_logprob_left. Returns how many. */
static uint32_t give_rows(const sched *s, struct sched_item *item, uint32_t want,
                          uint32_t *prompt_logprob_left) {
    uint32_t n = min_u32(want, gap(s, item->seq) - item->n_rows);
    n = min_u32(n, next_checkpoint(s, item->seq, item->first) - item->first - item->n_rows);
    if (item->seq->all_rows && !item->seq->pooled) {
        n = min_u32(n, *prompt_logprob_left);
        *prompt_logprob_left -= n;
    }
    item->n_rows += n;
    return n;
}

/* Pass 3 for whole sequences: the first in the order always fits. */
static void take_whole(sched *s, struct sched_plan *plan) {
    for (struct sched_seq *seq = s->running.first; seq; seq = seq->next) {
        if (!gap(s, seq)) continue;
        assert(!seq->n_computed && seq->n_tokens <= s->config.max_batch_tokens);
        if (gap(s, seq) > s->config.max_batch_tokens - plan->n_rows) return;
        s->items[plan->n_items++] =
            (struct sched_item){.seq = seq, .n_rows = gap(s, seq), .wants_logits = true};
        plan->n_rows += gap(s, seq);
    }
}

/* The sequence that gets half of the rows for prefill; NULL: none is behind. */
static const struct sched_seq *leading_prefill(const sched *s) {
    const struct sched_seq *best = NULL;
    for (const struct sched_seq *r = s->running.first; r; r = r->next) {
        if (gap(s, r) < 2) continue;
        if (best && r->priority != best->priority) break;
        if (!best || is_due_before(r->share, best->share)) best = r;
        if (s->shares.n_active < 2) break;
    }
    return best;
}

static uint32_t divide_up(uint32_t n, uint32_t by) {
    return (n + by - 1) / by;
}

/* Leaves out what other steps shall compute. */
static void defer_others(sched *s) {
    uint32_t n = 0;
    s->n_active = 0;
    if (s->config.n_flows < 2) return;
    for (const struct sched_seq *r = s->running.first; r; r = r->next)
        s->n_active += !is_held(s, r) && (r->awaited || gap(s, r));
    for (struct sched_seq *r = s->running.first; r; r = r->next) {
        if (!gap(s, r)) continue;
        r->deferred = n >= divide_up(s->n_active, s->config.n_flows);
        n++;
    }
}

static void end_deferral(sched *s) {
    for (struct sched_seq *r = s->running.first; r && s->config.n_flows > 1; r = r->next)
        r->deferred = false;
}

/* The part of a budget for prefill that leaves rows for other steps. */
static uint32_t flow_budget(const sched *s, uint32_t budget) {
    uint32_t rows = 0;
    if (s->config.n_flows < 2 || s->n_active >= s->config.n_flows) return budget;
    for (const struct sched_seq *r = s->running.first; r; r = r->next)
        if (!is_held(s, r) && r->n_tokens - r->n_computed > 1) rows += r->n_tokens - r->n_computed;
    rows = divide_up(rows, s->free_flows);
    return min_u32(budget, rows > LEAST_FLOW_ROWS ? rows : LEAST_FLOW_ROWS);
}

/* Pass 3. */
static void share_budget(sched *s, struct sched_plan *plan) {
    struct load l = {0};
    for (const struct sched_seq *r = s->running.first; r; r = r->next)
        load_add(s, &l, r);
    uint32_t left = flow_budget(s, prefill_budget(s, &l)), n_others = l.n_prefill - 1, n = 0;
    const struct sched_seq *lead = leading_prefill(s);
    uint32_t reserved = (left + 1) / 2; /* for lead, until it has had its turn */
    uint32_t prompt_logprob_left =
        s->config.max_prompt_logprob_rows ? s->config.max_prompt_logprob_rows : UINT32_MAX;
    for (struct sched_seq *seq = s->running.first; seq; seq = seq->next) {
        if (!gap(s, seq)) continue;
        struct sched_item *item = &s->items[n++];
        *item = (struct sched_item){.seq = seq, .first = seq->n_computed};
        if (gap(s, seq) == 1) {
            give_rows(s, item, 1, &prompt_logprob_left);
            continue;
        }
        if (seq == lead) {
            left -= give_rows(s, item, reserved, &prompt_logprob_left);
            reserved = 0;
        } else {
            uint32_t want = (left - reserved + n_others - 1) / n_others;
            left -= give_rows(s, item, want, &prompt_logprob_left);
            n_others--;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        struct sched_item *item = &s->items[i];
        if (gap(s, item->seq) > 1) left -= give_rows(s, item, left, &prompt_logprob_left);
        if (!item->n_rows) continue;
        item->wants_logits = item->first + item->n_rows == item->seq->n_tokens;
        plan->n_rows += item->n_rows;
        plan->n_decode_rows += gap(s, item->seq) == 1;
        s->items[plan->n_items++] = *item;
    }
}

/* Could a sequence that is no background one run? Background ones are the last of both lists. */
static bool has_foreground(const sched *s) {
    for (const struct sched_seq *r = s->running.first; r && r->priority != SCHED_BACKGROUND;
         r = r->next)
        if (r->awaited || (!r->paused && r->n_tokens > r->n_computed)) return true;
    for (const struct sched_seq *w = s->waiting.first; w && w->priority != SCHED_BACKGROUND;
         w = w->next)
        if (!w->paused && !waits_for_leader(s, w)) return true;
    return false;
}

void sched_set_free_flows(sched *s, uint32_t n) {
    s->free_flows = n ? n : 1;
}

void sched_plan_step(sched *s, struct sched_plan *plan) {
    *plan = (struct sched_plan){.items = s->items};
    s->n_plans++;
    s->foreground = has_foreground(s);
    reserve_running(s);
    admit_waiting(s);
    defer_others(s);
    if (s->config.whole)
        take_whole(s, plan);
    else
        share_budget(s, plan);
    end_deferral(s);
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const struct sched_item *item = &s->items[i];
        kv_window_reserve(s->cache, item->seq->kv, item->first + item->n_rows);
    }
}

static void commit_known(sched *s, struct sched_seq *seq) {
    uint32_t n_known = seq->n_tokens - seq->has_placeholder;
    kv_commit(s->cache, seq->kv, seq->tokens,
              seq->n_computed < n_known ? seq->n_computed : n_known);
}

void sched_commit(sched *s, const struct sched_plan *plan) {
    kv_step_begun(s->cache);
    for (uint32_t i = 0; i < plan->n_items; i++) {
        struct sched_seq *seq = plan->items[i].seq;
        uint32_t checkpoint = next_checkpoint(s, seq, seq->n_computed);
        seq->n_computed += plan->items[i].n_rows;
        if (plan->items[i].wants_logits && !seq->pooled) share_charge(seq->share, 0, 1);
        seq->awaited = s->config.n_flows > 1 && plan->items[i].wants_logits;
        commit_known(s, seq);
        kv_states_advance(s->cache, seq->kv, seq->n_computed, seq->n_computed == checkpoint);
    }
}

static void take_back_placeholder(struct sched_seq *seq) {
    seq->n_tokens -= seq->has_placeholder;
    seq->has_placeholder = false;
}

void sched_restart(sched *s, uint32_t n_steps) {
    while (s->running.last) {
        kv_states_lost(s->cache, s->running.last->kv);
        preempt(s, s->running.last);
    }
    for (struct sched_seq *seq = s->waiting.first; seq; seq = seq->next) {
        take_back_placeholder(seq);
        seq->awaited = false;
    }
    kv_forget_steps(s->cache, n_steps);
}

void sched_add_placeholder(sched *s, struct sched_seq *seq) {
    (void)s;
    assert(seq->n_tokens < seq->capacity && !seq->has_placeholder);
    seq->tokens[seq->n_tokens++] = 0;
    seq->has_placeholder = true;
}

void sched_append(sched *s, struct sched_seq *seq, int32_t token) {
    if (!seq->has_placeholder) sched_add_placeholder(s, seq);
    seq->tokens[seq->n_tokens - 1] = token;
    seq->has_placeholder = seq->awaited = false;
    if (seq->state == SCHED_RUNNING) commit_known(s, seq);
}

void sched_remove(sched *s, struct sched_seq *seq) {
    if (seq->state == SCHED_RUNNING) {
        stop_running(s, seq);
    } else if (seq->state == SCHED_WAITING) {
        list_remove(&s->waiting, seq);
        if (!seq->was_admitted) s->n_new--;
    }
    if (seq->share) shares_leave(&s->shares, seq->share);
    if (seq->holding) shares_leave(&s->holders, seq->holding);
    seq->share = seq->holding = NULL;
    seq->state = SCHED_DONE;
    for (struct sched_seq *w = s->waiting.first; w; w = w->next)
        if (w->leader == seq) w->leader = NULL;
}

uint32_t sched_n_running(const sched *s) {
    return s->running.n;
}

uint32_t sched_n_decoding(const sched *s) {
    uint32_t n = 0;
    for (const struct sched_seq *r = s->running.first; r; r = r->next)
        n += gap(s, r) == 1 || r->awaited;
    return n;
}

bool sched_is_background(const sched *s) {
    return !s->foreground && s->running.first && s->running.first->priority == SCHED_BACKGROUND;
}

uint32_t sched_n_waiting(const sched *s) {
    return s->waiting.n;
}

uint64_t sched_n_preemptions(const sched *s) {
    return s->n_preemptions;
}

uint64_t sched_n_recomputed(const sched *s) {
    return s->n_recomputed;
}

/* Counts what the lists have of a place: of clients, or of holders. */
static struct share count_share(const sched *s, const struct share *place, bool holders) {
    struct share n = {.client = place->client};
    for (int i = 0; i < 2; i++)
        for (const struct sched_seq *seq = i ? s->waiting.first : s->running.first; seq;
             seq = seq->next) {
            if ((holders ? seq->holding : seq->share) != place) continue;
            n.n_seqs++;
            n.n_running += !i;
            if (holders) n.n_blocks += seq->n_held;
        }
    return n;
}

static int check_shares(const sched *s, bool holders, err *e) {
    const struct shares *t = holders ? &s->holders : &s->shares;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct share *share = &t->all[i];
        struct share n = count_share(s, share, holders);
        if (share->n_running != n.n_running || share->n_seqs != n.n_seqs ||
            share->n_blocks != n.n_blocks)
            return err_set(e, ERR_INVALID,
                           "sched: %s %llu has %u sequences, %u running, with %u blocks",
                           holders ? "holder" : "client", (unsigned long long)share->client,
                           share->n_seqs, share->n_running, share->n_blocks);
    }
    return 0;
}

static int check_list(const struct list *l, enum sched_state state, uint32_t *n_new, err *e) {
    const struct sched_seq *prev = NULL;
    uint32_t n = 0;
    for (const struct sched_seq *seq = l->first; seq; prev = seq, seq = seq->next) {
        unsigned long long id = seq->arrival;
        if (n++ > l->n || seq->prev != prev || (prev && !goes_before(prev, seq)))
            return err_set(e, ERR_INVALID, "sched: list out of order at sequence %llu", id);
        if (seq->state != state || (seq->kv != NULL) != (state == SCHED_RUNNING))
            return err_set(e, ERR_INVALID, "sched: sequence %llu is in the wrong list", id);
        if (seq->n_computed > seq->n_tokens || seq->n_tokens > seq->capacity ||
            seq->has_placeholder > seq->n_tokens - seq->n_prompt ||
            (state == SCHED_WAITING && seq->n_computed))
            return err_set(e, ERR_INVALID, "sched: sequence %llu: %u of %u tokens computed", id,
                           seq->n_computed, seq->n_tokens);
        if (seq->leader && (seq->was_admitted || seq->leader->state == SCHED_DONE))
            return err_set(e, ERR_INVALID, "sched: sequence %llu still has a leader", id);
        *n_new += !seq->was_admitted;
    }
    if (n != l->n || l->last != prev)
        return err_set(e, ERR_INVALID, "sched: wrong count or end of a list");
    return 0;
}

int sched_check(const sched *s, err *e) {
    uint32_t n_new = 0, n_new_running = 0;
    int rc = check_list(&s->waiting, SCHED_WAITING, &n_new, e);
    if (!rc) rc = check_list(&s->running, SCHED_RUNNING, &n_new_running, e);
    if (!rc) rc = check_shares(s, false, e);
    if (!rc) rc = check_shares(s, true, e);
    if (rc) return rc;
    if (n_new_running || n_new != s->n_new || n_new > s->config.max_queue ||
        s->running.n > s->n_slots)
        return err_set(e, ERR_INVALID, "sched: %u running, %u new, counted %u", s->running.n, n_new,
                       s->n_new);
    return kv_check(s->cache, e);
}
