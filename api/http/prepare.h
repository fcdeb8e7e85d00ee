/* prepare.h - a request's way through the work pool.
 *
 * A route's handler runs on a pool thread, with r->work as its budget. It must leave nothing behind
 * when it fails, because it may run twice: a request whose quick budget was not enough starts over
 * in the slow lane. Meanwhile the connection is suspended (watch_lend).
 *
 * THREAD SAFETY: prepare_put and prepare_step on the connection's HTTP thread. */
#ifndef INFERD_API_HTTP_PREPARE_H
#define INFERD_API_HTTP_PREPARE_H

#include "core/base/err.h"

#include <stdbool.h>

struct http;
struct request;

int prepare_open(struct http *h, err *e);
/* Gives r to the pool: its handler will fill the reply or attach a job. false: the queue is full,
 * and the reply says so. */
bool prepare_put(struct request *r);
/* Runs r's handler once more, with its full budget, and drops the body. From a job's `work` that
 * has left the request. */
void prepare_again(struct request *r);
/* Gives r to the pool for its job's `work`. */
void prepare_step(struct request *r);

#endif
