/* access.h - the access log: one line for each request, when its answer has ended. HTTP threads put
 * records of fixed size into a bounded queue and never wait; one thread formats and writes them.
 * What finds no place, and what cannot be written, is counted.
 *
 * A record has no text that a client chose, except its request id (letters, digits, "-_."): the
 * path is the route's, a model or a key is one that was found.
 *
 * THREAD SAFETY: access_add and the counts from any thread, the rest from one at a time. */
#ifndef INFERD_API_HTTP_ACCESS_H
#define INFERD_API_HTTP_ACCESS_H

#include "core/base/err.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct access_record;
struct request;

struct access_target {
    int fd; /* -1: none */
    bool json;
};

/* Zeroed before access_init. */
struct access {
    uint32_t capacity;
    atomic_bool on;
    pthread_mutex_t mu; /* guards what follows, up to thread */
    pthread_cond_t more, taken;
    struct access_record *queue; /* (capacity) a ring; NULL: there was no target yet */
    uint32_t first, n;
    struct access_target next; /* for the thread, if it has not taken it */
    bool has_next, stops;
    pthread_t thread; /* if running */
    bool running;
    atomic_uint_least64_t n_written, n_queue_full, n_not_written; /* lines */
};

void access_init(struct access *a, uint32_t capacity);
/* Opens the file that where names (created with mode 0640), for lines at its end; "stderr"; "":
 * none. ERR_IO, ERR_INVALID: param is access_log. */
int access_open(const char *where, bool json, struct access_target *out, err *e);
void access_close(struct access_target *t);
/* Starts the thread and takes memory, if a target needs them. */
int access_prepare(struct access *a, const struct access_target *t, err *e);
/* After access_prepare. Takes t. Returns once the thread has it, at most a second later: nothing is
 * written to the old file any more. */
void access_set(struct access *a, const struct access_target *t);
/* All of it: where as in access_open. Also opens the file again that is in use, which may have
 * another name by now. An error changes nothing. */
int access_apply(struct access *a, const char *where, bool json, err *e);
/* r has ended: its line in the log (at level debug, if there is an access log) and here. */
void access_add(struct access *a, const struct request *r, unsigned status, bool cut);
/* Writes what waits, and ends the thread. */
void access_fini(struct access *a);

#endif
