/* sched.h - decides which tokens each step computes. Private to core/engine. Pure: no clock, no
 * thread, no device; driven by tests with a book-keeping-only kv.
 *
 * There is no prefill or decode phase. A sequence has n_computed and n_tokens, and a plan closes
 * the gap within a budget of max_batch_tokens. "The order" below is priority, then arrival. Policy:
 *   1. Running sequences that are one token behind (decoding) each get their token.
 *   2. The rest of the budget goes to sequences that are further behind (prefill, recompute): in
 *      the order, the first gets at least half of it, the others share the rest evenly, and what
 *      somebody does not need goes to the others in the order. While anything is decoding,
 *      prefill_chunk is all that they get together. Fresh sequences, whose every row needs
 *      logits (unless they are pooled), share max_prompt_logprob_rows in the order, those that are
 * decoding included.
 *   3. Waiting sequences are admitted strictly in the order (preempted ones keep their arrival;
 *      who does not fit holds back those behind it, so nobody starves but under a steady load of
 *      higher priority) while a slot is free, budget is left (each prompt counted up to
 *      prefill_chunk / 4, so that several long ones share a step and short ones get in beside
 *      them), and blocks for the whole known text + one token are there, plus one for every four
 *      running sequences: else the next growth would undo the admission at once. All blocks of
 *      the known text are taken at admission, cached ones that nobody references count as well.
 *      Admission preempts only paused sequences and those of lower priority, and none if that
 *      cannot suffice.
 *   4. When a running sequence cannot reserve its blocks, a paused one, else the last of the
 *      order is preempted (its blocks are freed, n_computed = 0, it waits again) until the
 *      reservation succeeds or the sequence itself is the victim. So the first of the order
 *      always advances, and everything ends as a single sequence fits the cache (checked by
 *      sched_add).
 *   5. A paused sequence (its stream is full) is neither planned nor admitted; it keeps its
 *      blocks and its slot until somebody needs them.
 *   6. A fork waits in the queue, without holding back others, until its leader has computed the
 *      prompt, then shares the leader's blocks (kv_seq_fork) but for the last prompt token, which
 *      it computes for its own logits. If the leader is gone, paused, or preempted, it is
 *      admitted like any other.
 * The queue of sequences that have never been admitted is bounded by max_queue; preempted ones do
 * not count. At most max_batch_tokens sequences run, so that each can have a row.
 *
 * A plan costs O(running + admitted + waiting ones that 5 and 6 skip), a preemption O(running +
 * waiting), an attempt at admission O(its text); nothing allocates after sched_new. Between a plan
 * and its commit, or the next plan, no sequence is added, changed or removed. */
#ifndef INFERD_ENGINE_SCHED_H
#define INFERD_ENGINE_SCHED_H

#include "core/base/err.h"
#include "core/kv/kv.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sched sched;

enum sched_state { SCHED_NEW, SCHED_WAITING, SCHED_RUNNING, SCHED_DONE };

/* Embedded in the engine's sequence; the owner fills the first group before sched_add and appends
 * tokens through sched_append; the rest is written by the scheduler alone. */
struct sched_seq {
    int32_t *tokens; /* (capacity) prompt, then generated; owner's memory */
    uint32_t n_tokens, capacity, n_prompt;
    int priority;
    struct hash128 salt; /* it shares cached blocks with sequences of the same one alone */
    bool paused;         /* owner, at any time between steps: do not plan (stream full) */
    bool all_rows;       /* owner: compute every token, take none from the prefix cache, and want
                         every row's logits (the prompt's log-probabilities); cleared by the
                         owner between steps when it has them */
    bool pooled;         /* owner: rows give hidden states and no logits; fresh ones do not share
                            max_prompt_logprob_rows then */
    struct sched_seq *leader; /* queued or running one whose first n_prompt tokens are this one's,
                                 or NULL (always when fresh); the scheduler clears it */

    enum sched_state state;
    bool has_placeholder; /* the last of its tokens is not known yet (sched_add_placeholder) */
    uint32_t n_computed;  /* tokens whose K/V are valid, or will be when the steps end that were
                             committed */
    uint32_t n_cached;    /* prompt tokens found cached (or forked) at first admission */
    uint32_t n_preempted; /* times */
    bool was_admitted;
    uint64_t arrival;              /* order of sched_add */
    kv_seq *kv;                    /* while running */
    struct sched_seq *prev, *next; /* queue links */
};

struct sched_config {
    uint32_t max_batch_tokens, prefill_chunk, max_sequences, max_queue; /* all >= 1 */
    uint32_t
        max_prompt_logprob_rows; /* rows a step of all fresh sequences together; 0: no own bound */
};

/* One sequence's share of a step: positions first .. first + n_rows - 1 are computed. The last
 * row's logits are wanted when wants_logits (it then reaches n_tokens). */
struct sched_item {
    struct sched_seq *seq;
    uint32_t first, n_rows;
    bool wants_logits;
};

struct sched_plan {
    struct sched_item *items; /* (n_items) the scheduler's, valid until the next plan */
    uint32_t n_items, n_rows;
    uint32_t n_decode_rows;
};

int sched_new(const struct sched_config *config, kv *cache, sched **out, err *e);
void sched_free(sched *s); /* sequences are the owner's */

/* Queues a sequence (1 <= n_tokens <= capacity). ERR_FULL: max_queue reached; ERR_TOO_LONG:
 * capacity is above kv_max_tokens; nothing changed. sched_room: sequences that could be added now.
 */
int sched_add(sched *s, struct sched_seq *seq);
uint32_t sched_room(const sched *s);

/* Replaces prefill_chunk (>= 1) from the next plan on. */
void sched_set_chunk(sched *s, uint32_t prefill_chunk);

/* Plans the next step; reserves its blocks (kv_seq_reserve). n_items == 0: nothing can run. */
void sched_plan_step(sched *s, struct sched_plan *plan);

/* The plan is computed, or will be before any later one: advances n_computed, commits blocks to the
 * prefix table. A plan whose step failed is not committed: nothing of it was computed, its blocks
 * stay reserved, and the next plan starts from the same state. */
void sched_commit(sched *s, const struct sched_plan *plan);
/* Appends a placeholder for a token that a committed plan will sample, so that the next plan can be
 * made before that one is computed. It is planned for like any other token (n_tokens < capacity);
 * its block is not committed to the prefix table before the token is known. */
void sched_add_placeholder(sched *s, struct sched_seq *seq);
/* Appends a sampled token, or replaces the placeholder if the sequence has one; without one
 * n_tokens < capacity. */
void sched_append(sched *s, struct sched_seq *seq, int32_t token);

/* Finish or cancel, from any state: blocks are freed, forks that wait for it are released. */
void sched_remove(sched *s, struct sched_seq *seq);

uint32_t sched_n_running(const sched *s);
uint32_t sched_n_decoding(const sched *s); /* running ones that are one token behind */
uint32_t sched_n_waiting(const sched *s);
uint64_t sched_n_preemptions(const sched *s);

/* Own invariants and kv_check. */
int sched_check(const sched *s, err *e);

#endif
