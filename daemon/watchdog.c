/* watchdog.c - see watchdog.h. */
#include "daemon/watchdog.h"

#include "core/base/clock.h"
#include "daemon/notify.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* The most that one look counts. */
#define LOOK_NS UINT64_C(2000000000)

/* A positive decimal number; 0 for anything else. */
static uint64_t number_of(const char *text) {
    char *end;
    if (!text || *text < '0' || *text > '9') return 0;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    return *end || errno ? 0 : n;
}

void watchdog_open(struct watchdog *w) {
    const char *pid = getenv("WATCHDOG_PID");
    uint64_t us = number_of(getenv("WATCHDOG_USEC"));
    *w = (struct watchdog){0};
    if (pid && number_of(pid) != (uint64_t)getpid()) return;
    if (us < UINT64_MAX / 1000) w->every_ns = us * 1000 / 4;
}

uint64_t watchdog_look(struct watchdog *w, serving *s) {
    uint64_t now = clock_now_ns(), passed = w->looked_ns ? now - w->looked_ns : 0;
    uint64_t stuck = serving_stuck_ns(s, passed < LOOK_NS ? passed : LOOK_NS);
    w->looked_ns = now;
    if (!stuck && w->every_ns && (!w->told_ns || now - w->told_ns >= w->every_ns)) {
        w->told_ns = now;
        notify_send("WATCHDOG=1");
    }
    return stuck;
}
