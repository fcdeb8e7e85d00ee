/* signals.h - SIGTERM and SIGINT as something to wait for, and what becomes of the other signals
 * that a daemon gets:
 *
 *   SIGTERM, SIGINT            stop
 *   SIGHUP, SIGUSR1, SIGUSR2   a log line and nothing else: there is no reload, no log file to
 * reopen SIGPIPE, SIGXFSZ           ignored: a lost client, a file at its limit are errors of a
 * write SIGTTOU                    ignored: a log line to a terminal does not stop a background
 * process SIGBUS                     core/formats/model_file.h: a model's file that was cut short
 *
 * All others, SIGQUIT with its core dump among them, do what the system has them do. Main thread
 * only. */
#ifndef INFERD_SIGNALS_H
#define INFERD_SIGNALS_H

#include "core/base/err.h"

#include <stdbool.h>

/* A third stop signal ends the process at once: somebody means it. */
int signals_open(err *e);
int signals_count(void); /* stop signals so far */
/* Waits until a signal comes or timeout_ms (-1: for ever) is over. True: one to stop came since the
 * last call. */
bool signals_wait(int timeout_ms);

#endif
