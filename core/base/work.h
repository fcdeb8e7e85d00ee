/* work.h - budget, deadline and cancellation of a computation. The caller fills a struct work; the
 * computation spends units as it goes and stops when they are refused. A unit is about 10 to 50 ns
 * of work; counting units instead of time makes a budget independent of the machine.
 *
 * THREAD SAFETY: one thread at a time, except *cancelled, which any thread may set. Allocates
 * nothing. */
#ifndef INFERD_BASE_WORK_H
#define INFERD_BASE_WORK_H

#include "core/base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct work {
    uint64_t left;                /* units that can still be granted; UINT64_MAX: no bound */
    uint64_t deadline_ns;         /* of clock_now_ns(); 0: none */
    const atomic_bool *cancelled; /* borrowed; NULL: cannot be cancelled */
    int reason;       /* of the first refusal: ERR_WORK, ERR_DEADLINE, ERR_CANCELLED; 0: none yet */
    uint32_t granted; /* private: units taken from left and not yet spent; starts as 0 */
};

/* Takes the next units from left; checks the clock and the flag. Called by work_spend. */
bool work_grant(struct work *w, uint64_t units);

/* Spends units for the next piece of work. false: stop. After the first refusal it always returns
 * false, so that one result may be ignored if a later one is checked. Checks the clock and the flag
 * every few thousand units. NULL: no bound. */
static inline bool work_spend(struct work *w, uint64_t units) {
    if (!w) return true;
    if (units >= w->granted) return work_grant(w, units);
    w->granted -= (uint32_t)units;
    return true;
}

/* Units left, including those granted. */
uint64_t work_left(const struct work *w);

/* Describes a refusal. reason: work.reason, which it returns. */
int work_error(int reason, err *e);

#endif
