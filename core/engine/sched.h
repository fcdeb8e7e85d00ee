/* sched.h - decides which tokens each step computes. Private to core/engine. Pure: no clock, no
 * thread, no device; tests drive it with a KV cache that only keeps books.
 *
 * There is no prefill or decode phase. A sequence has n_computed and n_tokens, and a plan closes
 * the gap within a budget of max_batch_tokens. "The order" is priority, then arrival. If sequences
 * of several clients are here, each is due a share of what runs, by its weight. Policy:
 *   1. Every running sequence that is one token behind (decoding) gets that token.
 *   2. The rest of the budget goes to sequences that are further behind (prefill, recompute). In
 *      the order: the first gets at least half of it (with several clients, the first of the
 *      highest priority whose client's counter is lowest), the others share the rest evenly, and
 *      what a sequence does not need goes to the others. While any sequence decodes, prefill_chunk
 *      is the budget of all of them. Sequences whose every row needs logits (all_rows, unless
 *      pooled) share max_prompt_logprob_rows in the order, decoding ones included.
 *   3. Waiting sequences are admitted strictly in the order; preempted ones keep their arrival.
 *      With several clients, of the highest priority the first of the client with the lowest
 *      virtual token counter is next (shares.h); of equal counters, of the client that runs fewer.
 *      A sequence that does not fit holds back all after it, so none starves except under a steady
 *      load of higher priority. An admission requires a free slot, budget (each prompt counts up to
 *      prefill_chunk / 4, so that several long prompts share a step and short ones join them), and
 *      free blocks for the whole known text + one token, plus one block for every four running
 *      sequences: otherwise the next growth would undo the admission at once. All blocks of the
 *      known text are taken at admission, including cached ones without references. With state
 *      layers it also requires a free or cached state block, and the hit's state if it is unused;
 *      with a prefix cache, too, no more sequences run than half of the state blocks, so that the
 *      others can keep prefixes. An admission preempts only paused sequences and those of lower
 *      priority; and, while its client runs less than its share, those of the same priority that
 *      other clients run beyond theirs; and none if that would not suffice.
 *   4. When a running sequence cannot reserve its blocks, a paused one, otherwise the last in the
 *      order of those that clients run beyond their share and that are not more important,
 *      otherwise the last in the order, is preempted (its blocks are freed, n_computed = 0, it
 *      waits again) until the reservation succeeds or the sequence itself is the victim. So the
 *      first in the order that is within its client's share always advances, and everything ends
 *      because any single sequence fits the cache (sched_add checks it, and there are at least two
 *      state blocks). No running sequence ever needs another state block: one is taken at a
 *      checkpoint only if it is free or cached.
 *   5. A paused sequence (its stream is full) is neither planned nor admitted. It keeps its blocks
 *      and its slot until another sequence needs them.
 *   6. A fork waits in the queue, without holding back others, until its leader has computed the
 *      prompt. Then it shares the leader's blocks (kv_seq_fork) except for the last prompt token,
 *      which it computes for its own logits. If the leader is gone, paused or preempted, the fork
 *      is admitted like any other sequence. With state layers it always is, and finds what the
 *      leader left at the checkpoint of the prompt's end.
 *   7. With state layers and a prefix cache, steps of a prompt end at its checkpoints, and the
 *      state there is kept for later prompts. A checkpoint is the last multiple of block_tokens
 *      before the prompt's last token, at or before system_tokens and stable_tokens, and at the
 *      junction, where the prompt leaves a cached K/V chain that is deeper than the state it could
 *      use; and each multiple of checkpoint_tokens. One for which no state block is free or cached
 *      is not kept. Pooled sequences have none. The state at system_tokens counts as used by each
 *      sequence that starts at it or behind it. A sequence that ends or is preempted leaves the
 *      state of its last boundary, so it resumes there.
 *   8. Sequences of the priority SCHED_BACKGROUND run in the gaps of all others. While any other
 *      could run they count as paused (5): no step computes rows of both kinds. A step of theirs
 *      computes at most prefill_chunk rows beside those that decode, as if others decoded, so that
 *      one that arrives does not wait for long; but not with `whole`. They preempt none but
 *      themselves.
 *   9. The running sequences of one holder (an API key with a limit) hold at most most_blocks
 *      blocks; all blocks of a sequence's known text count, also shared and cached ones. One that
 *      would hold more, with room for one more token and one block for every four running sequences
 *      of the holder, is not admitted unless paused ones of the holder and those of lower priority,
 *      which it then preempts, make room; it holds back those of its holder that come after it, not
 *      others. One that grows beyond it preempts of its holder's a paused one, otherwise the last
 *      in the order. So no holder waits for itself for ever. Of background sequences nothing is
 *      counted: they give way to every other one.
 *  10. With n_flows > 1 several steps are in flight, in different stages of a pipeline. A sequence
 *      whose next token one of them will give (awaited) is not planned, nor admitted again, before
 *      that. A plan takes at most one of n_flows parts of the sequences that are not held, in the
 *      order, so that there is as much work for each stage; and of fewer prompts than flows as many
 *      rows as leave some for the other steps that can be in flight.
 *
 * The queue of sequences that were never admitted is bounded by max_queue; preempted ones do not
 * count. At most max_batch_tokens sequences run, so that each can have a row.
 *
 * A plan costs O(running + admitted + waiting sequences skipped by 5 and 6), a preemption
 * O(running + waiting), an attempt at admission O(its text), a holder at its limit O(running) a
 * plan; nothing allocates after sched_new. Between a plan and its commit, or the next plan, no
 * sequence is added, changed or removed. */
#ifndef INFERD_ENGINE_SCHED_H
#define INFERD_ENGINE_SCHED_H

#include "core/base/err.h"
#include "core/engine/shares.h"
#include "core/kv/kv.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct sched sched;

enum sched_state { SCHED_NEW, SCHED_WAITING, SCHED_RUNNING, SCHED_DONE };

enum { SCHED_BACKGROUND = INT_MIN }; /* a priority: 8 */

/* Embedded in the engine's sequence. The owner fills the first group before sched_add and appends
 * tokens through sched_append; the scheduler alone writes the rest. */
struct sched_seq {
    int32_t *tokens; /* (capacity) prompt, then generated; owner's memory */
    uint32_t n_tokens, capacity, n_prompt;
    int priority;
    uint64_t client;      /* whose share it takes; any number */
    uint32_t weight;      /* of that client; 0: SHARE_WEIGHT */
    uint64_t holder;      /* with most_blocks: whose limit it is; any number */
    uint32_t most_blocks; /* of that holder: 9; 0: no limit */
    struct hash128 salt;  /* cached blocks are shared only with sequences of the same salt */
    bool paused;          /* owner, at any time between steps: do not plan (its stream is full) */
    bool all_rows; /* owner: compute every token, take none from the prefix cache, and return every
                      row's logits (for the prompt's log-probabilities) or hidden state; cleared by
                      the owner between steps when it has them */
    bool pooled;   /* owner: rows yield hidden states and no logits; with all_rows it does not count
                      for max_prompt_logprob_rows */
    /* Owner's hints: later prompts will begin with as many of this one's tokens (those of the
     * system messages and tools, which prompts of other conversations have, too; those before the
     * last message). 0: unknown. */
    uint32_t system_tokens, stable_tokens;
    struct sched_seq *leader; /* a queued or running sequence whose first n_prompt tokens are this
                                 one's, or NULL (always with all_rows); the scheduler clears it */

    struct share *share;   /* of its client, from sched_add to sched_remove */
    struct share *holding; /* of its holder, likewise; NULL: no limit */
    uint32_t n_held;       /* blocks that count for it, while running */
    enum sched_state state;
    bool awaited;         /* 10 */
    bool deferred;        /* not in the plan that is being made: 10 */
    bool has_placeholder; /* its last token is not known yet (sched_add_placeholder) */
    uint32_t n_computed;  /* tokens whose K/V are valid, or will be when all committed steps end */
    uint32_t n_cached;    /* prompt tokens found cached (or forked) at first admission */
    uint32_t n_preempted; /* times */
    uint32_t n_lost;      /* preempted: tokens that were computed before */
    enum kv_miss miss;    /* why not more */
    uint32_t junction;    /* kv_seq_junction */
    bool was_admitted;
    uint64_t arrival;              /* order of sched_add */
    kv_seq *kv;                    /* while running */
    struct sched_seq *prev, *next; /* queue links */
};

struct sched_config {
    uint32_t max_batch_tokens, prefill_chunk, max_sequences, max_queue; /* all >= 1 */
    uint32_t
        max_prompt_logprob_rows; /* a step's rows of all sequences with all_rows; 0: no bound */
    /* Every sequence is computed as a whole in one step, in the order (attention in both
     * directions): none has more tokens than max_batch_tokens, and none grows. */
    bool whole;
    uint32_t checkpoint_tokens; /* distance of states along a prompt, a multiple of block_tokens; 0:
                                   none */
    uint32_t n_flows;           /* steps that may be in flight, without placeholders: 10; 0 is 1 */
};

/* One sequence's share of a step: positions first .. first + n_rows - 1. wants_logits: the last row
 * reaches n_tokens and predicts the next token. */
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

/* Queues a sequence (1 <= n_tokens <= capacity). ERR_FULL: max_queue is reached; ERR_TOO_LONG:
 * capacity is above kv_max_tokens or most_blocks; nothing changed. sched_room: how many could be
 * added now. */
int sched_add(sched *s, struct sched_seq *seq);
uint32_t sched_room(const sched *s);

/* Replaces prefill_chunk (>= 1) from the next plan on. */
void sched_set_chunk(sched *s, uint32_t prefill_chunk);

/* With n_flows > 1: how many more steps, the next one included, can be in flight. */
void sched_set_free_flows(sched *s, uint32_t n);

/* Plans the next step; reserves its blocks (kv_seq_reserve). n_items == 0: nothing can run. */
void sched_plan_step(sched *s, struct sched_plan *plan);

/* The plan is computed, or will be before any later one: advances n_computed, commits blocks to the
 * prefix table. */
void sched_commit(sched *s, const struct sched_plan *plan);
/* The last n_steps committed plans, up to the newest, and perhaps one that was not committed,
 * failed on the device, which works again: preempts every running sequence, whose live state may be
 * half written, takes back placeholders, and forgets what those steps computed. */
void sched_restart(sched *s, uint32_t n_steps);
/* Appends a placeholder for a token that a committed plan will sample, so that the next plan can be
 * made before that one is computed. It is planned for like any other token (n_tokens < capacity);
 * its block is not committed to the prefix table before the token is known. */
void sched_add_placeholder(sched *s, struct sched_seq *seq);
/* Appends a sampled token, or replaces the placeholder if the sequence has one; without one
 * n_tokens < capacity. */
void sched_append(sched *s, struct sched_seq *seq, int32_t token);

/* Removes a sequence in any state: its blocks are freed, forks that wait for it are released. */
void sched_remove(sched *s, struct sched_seq *seq);

uint32_t sched_n_running(const sched *s);
uint32_t sched_n_decoding(const sched *s); /* running ones that are one token behind, or awaited */
bool sched_is_background(const sched *s);  /* do only background sequences run? */
uint32_t sched_n_waiting(const sched *s);
uint64_t sched_n_preemptions(const sched *s);
uint64_t sched_n_recomputed(const sched *s); /* tokens computed again after preemptions */

/* Checks the scheduler's invariants and kv_check. */
int sched_check(const sched *s, err *e);

#endif
