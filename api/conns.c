/* conns.c - the list of waiting connections, in the order in which they began. Owns no connection,
 * closes none: it shuts them down, and libmicrohttpd sees the end. The descriptor stays valid while
 * its conn is in the list. Runs on HTTP threads; nothing needs a clock of its own, because a slow
 * connection harms nobody until another one comes. */
#include "api/conns.h"

#include "core/base/clock.h"

#include <stddef.h>
#include <sys/socket.h>

void conns_init(struct conns *cs, uint64_t limit_ns) {
    *cs = (struct conns){.limit_ns = limit_ns};
    pthread_mutex_init(&cs->mu, NULL);
}

void conns_fini(struct conns *cs) {
    pthread_mutex_destroy(&cs->mu);
}

/* With cs->mu held. */
static void unlink_conn(struct conns *cs, struct conn *c) {
    if (!c->since_ns) return;
    c->since_ns = 0;
    *(c->prev ? &c->prev->next : &cs->first) = c->next;
    *(c->next ? &c->next->prev : &cs->last) = c->prev;
    c->prev = c->next = NULL;
}

void conns_wait(struct conns *cs, struct conn *c) {
    pthread_mutex_lock(&cs->mu);
    uint64_t now = clock_now_ns();
    unlink_conn(cs, c);
    c->since_ns = now;
    c->prev = cs->last;
    *(cs->last ? &cs->last->next : &cs->first) = c;
    cs->last = c;
    while (now - cs->first->since_ns > cs->limit_ns) {
        shutdown(cs->first->fd, SHUT_RDWR);
        unlink_conn(cs, cs->first);
    }
    pthread_mutex_unlock(&cs->mu);
}

void conns_leave(struct conns *cs, struct conn *c) {
    pthread_mutex_lock(&cs->mu);
    unlink_conn(cs, c);
    pthread_mutex_unlock(&cs->mu);
}
