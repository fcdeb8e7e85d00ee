/* work_pool.h - the threads that prepare requests (JSON, templates, tokens, grammars, SQLite), so
 * that the threads which write tokens and answer health checks never do. Private to api/.
 *
 * Two lanes. What comes in runs in the quick lane with a small budget. What exceeds it starts over
 * in the slow lane, whose threads have a low priority, with its full budget: so an expensive
 * request holds up other expensive ones, and nothing else.
 *
 * In each lane clients take turns: one that sends many requests waits behind those that send few. A
 * client has all slow threads but one at most, where there are several. When the queue is full, the
 * newest request of the client with the longest line leaves for one of a client with a shorter
 * line.
 *
 * An item is part of its request and belongs to the pool from work_pool_put to `done`.
 *
 * THREAD SAFETY: put and step from any thread; open, stop and close from the daemon's main thread.
 */
#ifndef INFERD_API_HTTP_WORK_POOL_H
#define INFERD_API_HTTP_WORK_POOL_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct work_pool work_pool;

enum work_lane { WORK_QUICK, WORK_SLOW, WORK_N_LANES };

struct work_item {
    uint64_t client; /* whose turn it takes; set by the caller before put */
    /* work_pool.c's: */
    enum work_lane lane;
    bool step;         /* of a request that was let in: not counted, never refused */
    uint64_t turn;     /* of its client, in its lane */
    uint64_t since_ns; /* queued since */
    struct work_item *prev, *next;
};

enum work_verdict { WORK_DONE, WORK_SLOWER };

struct work_pool_config {
    uint32_t n_threads[WORK_N_LANES];
    uint32_t max_items; /* queued or running, both lanes */
    /* On a pool thread, without a lock. WORK_SLOWER, of the quick lane alone: once more in the slow
     * one. waited_ns: how long it was queued. */
    enum work_verdict (*run)(struct work_item *item, uint64_t waited_ns);
    /* Behind the last run; or with refused before any that finished: another client's request has
     * its place, or the pool stops. On any thread, without a lock. */
    void (*done)(struct work_item *item, bool refused);
    /* What runs is not wanted any more: the pool stops. With the pool's mutex held. */
    void (*cancel)(struct work_item *item);
};

int work_pool_open(const struct work_pool_config *config, work_pool **out, err *e);
/* A new request. false: there is no room, or the pool stops; the item is the caller's. */
bool work_pool_put(work_pool *p, struct work_item *item);
/* A further step, short, of a request whose first one is done: never refused, unless the pool is
 * stopped (false: then the caller does it). */
bool work_pool_step(work_pool *p, struct work_item *item);
/* Refuses what is queued and cancels what runs; steps are still done. */
void work_pool_stop(work_pool *p);
/* Ends the threads behind the last step: afterwards no item is the pool's. NULL is fine. */
void work_pool_close(work_pool *p);
void work_pool_free(work_pool *p); /* closed before. NULL is fine */

struct work_pool_stats {
    uint32_t n_queued[WORK_N_LANES], n_running[WORK_N_LANES];
};
void work_pool_stats(work_pool *p, struct work_pool_stats *out);

#endif
