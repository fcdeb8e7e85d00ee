/* session.h - runs requests through an engine and waits for them: what the measuring commands
 * (logits, perplexity, bench) are made of. */
#ifndef INFERD_DAEMON_COMMANDS_SESSION_H
#define INFERD_DAEMON_COMMANDS_SESSION_H

#include "core/engine/engine.h"

struct session_job {
    /* Fills request number index (n_choices is 1; notify is the session's), borrowed until the
     * request is submitted; false: there are no more. Numbers go up by one. */
    bool (*next)(void *arg, size_t index, struct engine_request *req);
    /* Each event, the final one too; may be NULL. */
    void (*event)(void *arg, size_t index, const struct engine_event *ev);
    /* Called once, when the first n_parallel requests (or all there are) have been submitted, also
     * when one was refused; may be NULL. */
    void (*submitted)(void *arg);
    void *arg;
    uint32_t n_parallel; /* most requests under way at once */
};

/* Calling thread. On an error the rest is cancelled. */
int session_run(engine *en, const struct session_job *job, err *e);

#endif
