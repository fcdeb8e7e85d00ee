/* conns.h - connections that wait for a request. The idle timeout of libmicrohttpd begins anew with
 * every byte, so a client that sends one now and then would keep a connection for ever: here each
 * wait, from opening or from the last answer to the next complete header, has one end.
 *
 * THREAD SAFETY: every function may be called from any thread. */
#ifndef INFERD_CONNS_H
#define INFERD_CONNS_H

#include <pthread.h>
#include <stdint.h>

struct conn {
    struct conn *prev, *next; /* in conns while since_ns is not 0 */
    uint64_t since_ns;        /* waits since; 0: does not wait */
    int fd;                   /* libmicrohttpd's */
};

struct conns {
    pthread_mutex_t mu;        /* guards all below and the fields of every conn */
    struct conn *first, *last; /* the longest wait first */
    uint64_t limit_ns;
};

void conns_init(struct conns *cs, uint64_t limit_ns);
/* Nothing may wait any more. */
void conns_fini(struct conns *cs);
/* c begins to wait, as the last; those that have waited too long are shut down. */
void conns_wait(struct conns *cs, struct conn *c);
/* c waits no more: its request is there, or it closes. Does nothing to one that does not wait. */
void conns_leave(struct conns *cs, struct conn *c);

#endif
