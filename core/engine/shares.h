/* shares.h - fair shares of a scheduler between clients: weighted virtual token counters (Sheng et
 * al., "Fairness in Serving Large Language Models", OSDI 2024). Private to core/engine.
 *
 * A client's counter grows by 1 for each prompt token that is computed for it and by 2 for each
 * token of an answer, divided by its weight. Of waiting clients the one with the lowest counter is
 * next, so over time each gets tokens by its weight. A client that comes back after a pause is
 * lifted to the lowest counter of those that are active: it cannot save up. Tokens that are
 * computed again after a preemption are the scheduler's affair and cost nothing.
 *
 * The table has SHARES_MAX clients. If more are active, the others share its last place; a client
 * without sequences loses its place to a new one, the lowest counter first, as a lift would change
 * it least. Pure, no allocation; worker thread. */
#ifndef INFERD_ENGINE_SHARES_H
#define INFERD_ENGINE_SHARES_H

#include <stdint.h>

enum { SHARES_MAX = 256, SHARE_WEIGHT = 100 /* of a client without one of its own */ };

struct share {
    uint64_t client;
    uint32_t weight; /* >= 1 */
    uint32_t n_seqs; /* waiting or running; 0: it is not active */
    uint32_t n_running;
    uint32_t n_spare;   /* the scheduler's: see sched.c */
    uint32_t n_blocks;  /* the scheduler's: what it holds of a limit */
    uint64_t held_back; /* the scheduler's: the last plan that held it to its limit */
    uint64_t counter;
};

struct shares {
    struct share all[SHARES_MAX];
    uint32_t n; /* places in use, active or not */
    uint32_t n_active;
    uint64_t active_weight; /* of the active ones */
    uint64_t last;          /* counter of the client that became inactive last */
};

/* A sequence of the client (any number) arrives. weight 0: SHARE_WEIGHT; the latest one counts. */
struct share *shares_enter(struct shares *t, uint64_t client, uint32_t weight);
/* It has left. */
void shares_leave(struct shares *t, struct share *share);
/* Tokens were, or will be, computed for it. */
void share_charge(struct share *share, uint64_t n_prompt, uint64_t n_generated);
/* How many of n running sequences are the client's by its weight, at least 1. */
uint32_t share_of(const struct shares *t, const struct share *share, uint32_t n);

#endif
