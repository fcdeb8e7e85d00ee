/* work.c - grants and refuses units of work. Owns nothing; any thread. */
#include "core/base/work.h"

#include "core/base/clock.h"

#include <stddef.h>

enum { GRANT = 4096 /* units between two checks of the clock and the flag */ };

static int find_refusal(const struct work *w) {
    if (w->reason) return w->reason;
    if (w->cancelled && atomic_load_explicit(w->cancelled, memory_order_relaxed))
        return ERR_CANCELLED;
    return w->deadline_ns && clock_now_ns() >= w->deadline_ns ? ERR_DEADLINE : 0;
}

bool work_grant(struct work *w, uint64_t units) {
    bool bounded = w->left != UINT64_MAX;
    w->reason = find_refusal(w);
    if (w->reason) {
        w->granted = 0;
        return false;
    }
    units -= w->granted; /* the caller checked that units >= granted */
    w->granted = 0;
    if (bounded && units > w->left) {
        w->left = 0;
        w->reason = ERR_WORK;
        return false;
    }
    if (bounded) w->left -= units;
    w->granted = bounded && w->left < GRANT ? (uint32_t)w->left : GRANT;
    if (bounded) w->left -= w->granted;
    return true;
}

uint64_t work_left(const struct work *w) {
    return w->left == UINT64_MAX ? w->left : w->left + w->granted;
}

int work_error(int reason, err *e) {
    switch (reason) {
    case ERR_DEADLINE:
        return err_set(
            e, reason,
            "The computation exceeded its deadline: simplify the request, or retry later.");
    case ERR_CANCELLED:
        return err_set(e, reason, "The computation was cancelled.");
    default:
        return err_set(e, ERR_WORK,
                       "The computation exceeds its work budget: simplify the request.");
    }
}
