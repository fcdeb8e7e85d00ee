/* load_wait.h - load-on-demand: a request for a registered model that is not loaded waits, as a
 * job, until it is, and then its handler starts over. */
#ifndef INFERD_API_GENERATE_LOAD_WAIT_H
#define INFERD_API_GENERATE_LOAD_WAIT_H

#include "core/base/err.h"

struct request;

/* After r's handler failed because r->waits_for runs: takes r's body and attaches the job. Pool
 * thread. On failure r is as before, and e says why it cannot wait. */
int load_wait_start(struct request *r, err *e);

#endif
