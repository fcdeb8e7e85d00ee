/* watch.h - wakes suspended connections: when their streams have events, when a keep-alive is due,
 * when the client hangs up.
 *
 * A suspended connection occupies no thread, but libmicrohttpd neither times it out nor notices
 * that its client left. So one watcher thread owns an epoll (kqueue on macOS) set of the
 * descriptors of all waiting requests, a list of notified ones, and a timer, which the owner may
 * use too (tick).
 *
 * Half-close: a client that shuts down its sending side counts as gone, as in nginx, Node and
 * uvicorn; a client that still wants the answer keeps its side open.
 *
 * Two rules make it safe. A request is suspended and resumed only under its own mutex, so that a
 * notification between "no event yet" and the suspension is not lost. Only the watcher thread frees
 * a watched, after every list and event batch that may still hold it.
 *
 * THREAD SAFETY: watch_wait, watch_begin, watch_end, watch_lend on the connection's HTTP thread;
 * watch_return on the thread that has the request; watch_notify on any thread; watch_open,
 * watch_release_all and watch_close on the daemon's main thread. Lock order: watch.mu, then
 * watched.mu. */
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
    bool busy;                 /* lent to another thread: nothing may resume it */
    atomic_bool gone;          /* the client hung up */
    atomic_bool keepalive_due; /* nothing was written for keepalive_ms; the reader clears it */
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
/* Another interval, from the next tick on; neither the old nor the new one is 0. Any thread. */
void watch_set_keepalive(watch *wt, uint32_t keepalive_ms);
/* From now on nothing is suspended any more. When this returns, all requests are resumed, except
 * those lent to another thread, which are resumed when it returns them. */
void watch_release_all(watch *wt);
/* Joins the thread and frees retired requests. No live request may be left. NULL is fine. */
void watch_close(watch *wt);

/* Adds w (zeroed by the caller) to the live list. */
void watch_begin(watch *wt, struct watched *w);
/* From now on also watches fd for its client's hang-up. */
void watch_fd(struct watched *w, int fd);
/* The request is over and its notifications have stopped: w is destroyed soon. */
void watch_end(struct watched *w);

/* Call before looking for events: earlier notifications are cleared. */
void watch_look(struct watched *w);
/* Suspends, unless there was a notification since watch_look. false: look again (or everything is
 * being released: watch_releasing). */
bool watch_wait(struct watched *w);

/* Lends the request to another thread. Until that thread calls watch_return, watch_wait always
 * suspends, and neither notifications nor hang-ups nor a release resume. In between, the
 * connection's HTTP thread only calls watch_wait. */
void watch_lend(struct watched *w);
/* Returns the request to its connection. The other thread must not touch w any more. */
void watch_return(struct watched *w);
bool watch_lent(struct watched *w);
bool watch_releasing(const struct watched *w);

/* The engine's notify: queues w for the watcher thread; no I/O beyond waking it. */
void watch_notify(void *watched);

#endif
