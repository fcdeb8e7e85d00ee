/* watchdog.h - notices a device that hangs, and tells systemd that the daemon is alive only while
 * devices complete steps or have nothing to do (WatchdogSec=; WATCHDOG_USEC,
 * sd_watchdog_enabled(3)). Main thread. */
#ifndef INFERD_WATCHDOG_H
#define INFERD_WATCHDOG_H

#include "daemon/serving.h"

#include <stdbool.h>
#include <stdint.h>

struct watchdog {
    uint64_t looked_ns; /* 0: not yet */
    uint64_t told_ns;   /* when systemd was told last */
    uint64_t every_ns;  /* how often it is told; 0: it does not ask */
};

void watchdog_open(struct watchdog *w);
/* About once a second. How long a device has been in the same step; 0: none is. Time in which this
 * was not called, because the process was stopped, does not count. */
uint64_t watchdog_look(struct watchdog *w, serving *s);

#endif
