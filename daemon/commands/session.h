/* session.h - runs requests through an engine and waits for them, for the commands logits,
 * perplexity and bench. */
#ifndef INFERD_DAEMON_COMMANDS_SESSION_H
#define INFERD_DAEMON_COMMANDS_SESSION_H

#include "core/engine/engine.h"

struct session_job {
    /* Fills request number index (n_choices is 1; the session sets notify), borrowed until it is
     * submitted; false: no more requests. Numbers increase by one. */
    bool (*next)(void *arg, size_t index, struct engine_request *req);
    /* Called for each event, including the final one; may be NULL. */
    void (*event)(void *arg, size_t index, const struct engine_event *ev);
    /* Called once, when the first n_parallel requests (or all) were submitted, also if one was
     * refused; may be NULL. */
    void (*submitted)(void *arg);
    void *arg;
    uint32_t n_parallel; /* maximum number of requests at once */
};

/* Runs on the calling thread. After an error the remaining requests are cancelled. */
int session_run(engine *en, const struct session_job *job, err *e);

#endif
