/* signals.h - waiting for SIGTERM and SIGINT, and the handling of a daemon's other signals:
 *
 *   SIGTERM, SIGINT            stop
 *   SIGHUP                     reload: see signals_reload
 *   SIGUSR1, SIGUSR2           a log line only: there is no log file to reopen
 *   SIGPIPE, SIGXFSZ           ignored: a lost client or a full file is an error of a write
 *   SIGTTOU                    ignored: logging to a terminal must not stop a background process
 *   SIGBUS                     core/formats/model_file.h: a model's file was truncated
 *
 * All other signals keep their default action, including SIGQUIT with its core dump. Main thread
 * only. */
#ifndef INFERD_SIGNALS_H
#define INFERD_SIGNALS_H

#include "core/base/err.h"

#include <stdbool.h>

/* A third stop signal ends the process at once. */
int signals_open(err *e);
int signals_count(void); /* stop signals so far */
/* Waits for a signal, at most timeout_ms (-1: forever). true: a stop signal arrived since the last
 * call. */
bool signals_wait(int timeout_ms);
bool signals_reload(void); /* did SIGHUP arrive since the last call? It ends signals_wait, too */

#endif
