/* runner.h - runs the batches of the registry: one thread that checks their lines, makes a request
 * of each, stores the answers and writes the output files. At most batch_lines requests run at
 * once, of all batches in turn, at the priority ENGINE_PRIORITY_BACKGROUND. */
#ifndef INFERD_API_BATCH_RUNNER_H
#define INFERD_API_BATCH_RUNNER_H

#include "core/base/err.h"

struct api;
typedef struct batch_runner batch_runner;

/* a->config and a->http are open. */
int batch_runner_open(struct api *a, batch_runner **out, err *e);
/* There is a new batch, or one was cancelled. Any thread. NULL is fine, as below. */
void batch_runner_wake(batch_runner *r);
/* The requests end, soon; what has no answer yet is run by the next process. Any thread. */
void batch_runner_stop(batch_runner *r);
/* Joins the thread. Before http_close. */
void batch_runner_close(batch_runner *r);

#endif
