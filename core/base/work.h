/* work.h - how much a piece of work may cost, and whether its result is still wanted. Whoever asks
 * for the work fills a struct work; whoever does it spends units as it goes, and stops when it is
 * refused. A unit is about 10 to 50 ns, so that a budget does not depend on the machine.
 *
 * THREAD SAFETY: one thread at a time, but for *cancelled, which any thread may set. Allocates
 * nothing. */
#ifndef INFERD_BASE_WORK_H
#define INFERD_BASE_WORK_H

#include "core/base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct work {
    uint64_t left;                /* units that may still be granted; UINT64_MAX: no bound */
    uint64_t deadline_ns;         /* of clock_now_ns(); 0: none */
    const atomic_bool *cancelled; /* borrowed: the result is not wanted any more; NULL: never so */
    int reason;       /* of the first refusal: ERR_WORK, ERR_DEADLINE, ERR_CANCELLED; 0: none yet */
    uint32_t granted; /* work.c's: units taken from left and not yet spent. Starts with 0 */
};

/* Takes the next units from left, looks at the clock and the flag. For work_spend. */
bool work_grant(struct work *w, uint64_t units);

/* Spends units for what is done next. false: it is not to be done; from the first refusal on it is
 * always false, so that a result may be ignored where a later call is asked. The clock and the flag
 * are looked at every few thousand units. NULL: no bound. */
static inline bool work_spend(struct work *w, uint64_t units) {
    if (!w) return true;
    if (units >= w->granted) return work_grant(w, units);
    w->granted -= (uint32_t)units;
    return true;
}

/* Units that are left, those granted included. */
uint64_t work_left(const struct work *w);

/* Tells a refusal in words. reason: work.reason. Returns it. */
int work_error(int reason, err *e);

#endif
