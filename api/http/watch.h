/* watch.h - wakes suspended connections: when their streams have events, when a keep-alive is due,
 * when the client hung up. Private to api/.
 *
 * A suspended connection costs no thread, but libmicrohttpd neither times it out nor notices that
 * its client left. So one watcher thread owns an epoll (kqueue on macOS) set of the descriptors of
 * all requests that wait, a list of those that were notified, and a clock, which the owner may use
 * too (tick).
 *
 * Half-close: a client that shuts down its sending side counts as gone, as in nginx, Node and
 * uvicorn; a client that still wants the answer keeps its side open.
 *
 * Order that makes it safe: state (mutex) is the only place where "suspend" and "resume" meet, so
 * that a notification between "no event yet" and the suspension is not lost; a watched is freed by
 * the watcher thread alone, after every list and event batch that may still hold it.
 *
 * THREAD SAFETY: watch_wait, watch_begin, watch_end, watch_lend on the connection's HTTP thread;
 * watch_return on the thread that has the request; watch_notify from any thread;
 * open/close/wake_all from the daemon's main thread. Lock order: watch.mu, then watched.mu. */
#ifndef INFERD_API_HTTP_WATCH_H
#define INFERD_API_HTTP_WATCH_H

#include "core/base/err.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct watch watch;

/* Part of each request, at its start. */
struct watched {
    watch *owner;
    int fd;             /* watched for hang-up; -1: not yet */
    pthread_mutex_t mu; /* guards suspended, woken, busy */
    bool suspended, woken;
    bool busy;                 /* another thread has the request: nothing may resume it */
    atomic_bool gone;          /* the client hung up */
    atomic_bool keepalive_due; /* nothing was written for keepalive_ms; reader clears it */
    atomic_uint_least64_t quiet_since_ns; /* last write of a stream; 0: no stream yet */
    struct watched *prev, *next;          /* live list; guarded by watch.mu */
    struct watched *next_ready;           /* ready list; guarded by watch.mu */
    struct watched *next_retired;
    bool queued; /* in the ready list; guarded by watch.mu */
};

struct watch_config {
    uint32_t keepalive_ms;              /* 0: no keep-alives */
    void (*suspend)(struct watched *w); /* both called with w->mu held; must not call back */
    void (*resume)(struct watched *w);
    void (*destroy)(struct watched *w); /* frees it; watcher thread */
    void (*tick)(void *arg);            /* once a second on the watcher thread; NULL: nothing */
    void *tick_arg;
};

int watch_open(const struct watch_config *config, watch **out, err *e);
/* From now on nothing suspends any more; what was suspended is resumed when this returns, but for
 * requests that another thread has, which are when it returns them. */
void watch_release_all(watch *wt);
/* Joins the thread and frees what is retired. No live request may be left. NULL is fine. */
void watch_close(watch *wt);

/* Adds w (zeroed by the caller) to the live list. */
void watch_begin(watch *wt, struct watched *w);
/* Also looks for hang-ups of fd from now on. */
void watch_fd(struct watched *w, int fd);
/* The request is over and its notifications have stopped: w is destroyed soon. */
void watch_end(struct watched *w);

/* Call before looking for events: an earlier notification counts as seen. */
void watch_look(struct watched *w);
/* Suspends if nothing was notified since watch_look. false: look again (or everything is being
 * released: watch_releasing). */
bool watch_wait(struct watched *w);

/* The request is about to be another thread's: until that thread calls watch_return, watch_wait
 * suspends in any case, and neither notifications nor hang-ups nor a release resume. The
 * connection's HTTP thread does nothing to the request in between but watch_wait. */
void watch_lend(struct watched *w);
/* The other thread's last word: the connection goes on, and w may be gone at once. */
void watch_return(struct watched *w);
bool watch_lent(struct watched *w);
bool watch_releasing(const struct watched *w);

/* The engine's notify: hands w over to the watcher thread, no I/O beyond waking it. */
void watch_notify(void *watched);

#endif
