/* work_pool.h - the threads that prepare requests (JSON, templates, tokens, grammars, SQLite), so
 * that HTTP threads, which write streams and answer health checks, need not.
 *
 * Two lanes. A request first runs in the quick lane with a small budget. If it exceeds it, it
 * starts over in the slow lane with its full budget; threads there have a low priority. So an
 * expensive request delays only other expensive ones.
 *
 * In each lane clients take turns: one that sends many requests waits behind those that send few. A
 * client may use all slow threads except one, if there are several. When the queue is full, the
 * newest request of the client with the longest line is refused to admit one of a client with a
 * shorter line.
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
    uint64_t client; /* for the turns; set by the caller before put */
    /* work_pool.c's: */
    enum work_lane lane;
    bool step;         /* a further step of an admitted request: not counted, never refused */
    uint64_t turn;     /* of its client, in its lane */
    uint64_t since_ns; /* queued since */
    struct work_item *prev, *next;
};

enum work_verdict { WORK_DONE, WORK_SLOWER };

struct work_pool_config {
    uint32_t n_threads[WORK_N_LANES];
    uint32_t max_items; /* queued or running, both lanes */
    /* On a pool thread, without a lock. WORK_SLOWER, only from the quick lane: run again in the
     * slow one. waited_ns: how long it was queued. */
    enum work_verdict (*run)(struct work_item *item, uint64_t waited_ns);
    /* After the last run; or, with refused, without a completed run: another client's request has
     * its place, or the pool stops. On any thread, without a lock. */
    void (*done)(struct work_item *item, bool refused);
    /* The pool stops: the running item's result is not wanted. With the pool's mutex held. */
    void (*cancel)(struct work_item *item);
};

int work_pool_open(const struct work_pool_config *config, work_pool **out, err *e);
/* Adds a new request. false: the queue is full, or the pool stops; the item remains the caller's.
 */
bool work_pool_put(work_pool *p, struct work_item *item);
/* Adds a further, short step of a request whose first run is done. false: the pool is closed, and
 * the caller does the step. */
bool work_pool_step(work_pool *p, struct work_item *item);
/* Refuses queued items and cancels running ones; steps are still done. */
void work_pool_stop(work_pool *p);
/* Ends the threads after the last step; then the pool has no item any more. NULL is fine. */
void work_pool_close(work_pool *p);
void work_pool_free(work_pool *p); /* after work_pool_close. NULL is fine */

struct work_pool_stats {
    uint32_t n_queued[WORK_N_LANES], n_running[WORK_N_LANES];
};
void work_pool_stats(work_pool *p, struct work_pool_stats *out);

#endif
