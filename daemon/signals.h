/* signals.h - SIGTERM and SIGINT as something to wait for. SIGPIPE is ignored: a lost client is an
 * error of a write. Main thread only. */
#ifndef INFERD_SIGNALS_H
#define INFERD_SIGNALS_H

#include "core/base/err.h"

#include <stdbool.h>

/* A third signal ends the process at once: somebody means it. */
int signals_open(err *e);
int signals_count(void); /* stop signals so far */
/* Waits until a stop signal comes or timeout_ms (-1: for ever) is over. True: one came since the
 * last call. */
bool signals_wait(int timeout_ms);

#endif
