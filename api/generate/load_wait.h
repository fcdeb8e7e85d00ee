/* load_wait.h - load-on-demand: a request for a registered model that is not loaded waits, as a
 * job, until it is, and then its handler starts over. A stream of events that waits for longer than
 * keepalive-ms begins with comments; from then on an error is an event. */
#ifndef INFERD_API_GENERATE_LOAD_WAIT_H
#define INFERD_API_GENERATE_LOAD_WAIT_H

#include "core/base/err.h"

#include <stdbool.h>

struct request;

/* After r's handler failed because r->waits_for runs: takes r's body and attaches the job. stream:
 * the answer is a stream of events. Pool thread. On failure r is as before, and e says why it
 * cannot wait. */
int load_wait_start(struct request *r, bool stream, err *e);

#endif
