/* conns.h - all open connections: their states, their time limits, and which one is closed when
 * there are too many.
 *
 * libmicrohttpd's idle timeout restarts with every byte in or out, so a client that moves one byte
 * now and then could keep a connection forever. Here each phase of a connection has one deadline:
 * the wait for a complete head (from opening, or from the last answer), the body, and each buffer
 * of an answer. A connection whose answer waits for the engine has none. conns_reap, called
 * periodically, shuts down connections past their deadline, and those whose client left in the
 * middle of a request.
 *
 * At max connections a new one evicts the one that has waited longest for a head. One opened less
 * than fresh_ns ago, whose first head is still on its way, is passed over unless more than half of
 * max are like it. If none waits, it evicts the one whose body arrives most slowly (the earliest
 * deadline). If there is none either, the new one is accepted nevertheless, but may only ask for
 * health (struct conn's reserved). There are up to CONNS_RESERVE of these; beyond, the one that has
 * waited longest is evicted.
 *
 * THREAD SAFETY: any thread, except that functions with a conn are called by its own HTTP thread,
 * one at a time. Nothing here closes a descriptor: it is shut down, and libmicrohttpd sees the end.
 */
#ifndef INFERD_API_HTTP_CONNS_H
#define INFERD_API_HTTP_CONNS_H

#include "api/http/address.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
    CONNS_RESERVE = 32,  /* beyond max, for health */
    CONNS_CLOSING = 128, /* further ones that are shut down but not closed yet */
    CONNS_BUCKETS = 1024
};

enum conn_state {
    CONN_WAITING,   /* for a complete head */
    CONN_BODY,      /* for the rest of a request */
    CONN_ANSWERING, /* computing, waiting for the engine, writing */
    CONN_N_STATES
};

struct conn {
    struct conn *prev, *next;            /* in the same state, the oldest first */
    struct conn *next_peer, **peer_link; /* in the bucket of its address */
    struct address peer;                 /* at the other end */
    struct client_network address;       /* it counts for: the peer's, or conns_forward's */
    enum conn_state state;
    bool shut;                    /* shut down: not counted any more */
    bool asked;                   /* it has had a request */
    bool line;                    /* the first line of the next head has arrived */
    bool chunked;                 /* its body comes in chunks */
    bool ended;                   /* conns_reap has seen the client's end */
    bool tls;                     /* http.c's */
    bool reserved;                /* beyond max: it may ask for health, once */
    uint64_t since_ns;            /* when it entered this state */
    atomic_uint_least64_t due_ns; /* its deadline; 0: none */
    int fd;                       /* libmicrohttpd's, open from conns_open to conns_close */
    pthread_t thread;             /* its HTTP thread */
    void *connection;             /* http.c's */
    const char *target;           /* http_head.c's: where the request target lies */
    size_t n_target;
    size_t n_origin;          /* http_head.c's: length of the target's scheme and host */
    const char *target_fault; /* http_head.c's: what is wrong with the target, or NULL */
};

/* Counts since the start, and of open connections. */
struct conns_counts {
    uint64_t open[CONN_N_STATES]; /* now; without those that are shut down */
    uint64_t receiving;           /* now; of CONN_WAITING, those whose first line has arrived */
    uint64_t accepted, reaped, evicted, reserved, refused_full, refused_address;
    uint32_t max_per_address; /* as configured now */
};

struct conns_config {
    uint32_t max;
    uint32_t max_per_address; /* 0: no such limit */
    uint64_t wait_ns;    /* for a head; for a body and a buffer of an answer besides its bytes */
    uint64_t reserve_ns; /* the same, beyond max */
    uint64_t body_ns;    /* a body younger than this is not evicted */
    const struct networks *proxies; /* the limit per address is not for these; NULL: none */
    uint64_t fresh_ns; /* within max, one younger than this without a request is not evicted */
};

struct conns {
    uint64_t seed;      /* constant: of the buckets */
    pthread_mutex_t mu; /* guards all below and every conn, except what only its own thread uses */
    struct conns_config config;                /* max and fresh_ns are constant */
    atomic_uint_least64_t wait_ns, reserve_ns; /* as in config; read without mu */
    struct conn_list {
        struct conn *first, *last;
    } lists[CONN_N_STATES];
    struct conn *buckets[CONNS_BUCKETS];
    uint32_t n_open;               /* including those that are shut down */
    uint32_t n_counted, n_reserve; /* not shut down: within max, beyond it */
    struct conns_counts counts;    /* without open, receiving */
};

/* Never fails. */
void conns_init(struct conns *cs, const struct conns_config *config);
/* A changed configuration, from now on; max and fresh_ns are as before. The previous proxies are
 * not used any more when this returns. */
void conns_set(struct conns *cs, const struct conns_config *config);
/* No connection may be open any more. */
void conns_fini(struct conns *cs);

/* May another connection from there be accepted? conns_open makes room for it. */
bool conns_admit(struct conns *cs, const struct sockaddr *from);
/* c (zeroed, fd set) is open and waits; another one may be shut down for it, or c itself may be. */
void conns_open(struct conns *cs, struct conn *c, const struct sockaddr *from);
void conns_close(struct conns *cs, struct conn *c);

/* c now waits for the next head. */
void conns_wait(struct conns *cs, struct conn *c);
/* The first line of the head that c waits for has arrived. */
void conns_line(struct conns *cs, struct conn *c);
/* c's head is complete. Its body has the time of a wait, and more with each byte (conns_moved). */
void conns_body(struct conns *cs, struct conn *c);
/* c's request is complete. Its answer has no deadline until conns_moved. */
void conns_answer(struct conns *cs, struct conn *c);
/* c's request counts for this client of the proxy at the other end, until conns_wait. false: that
 * client has reached its limit, and nothing changes. */
bool conns_forward(struct conns *cs, struct conn *c, const struct address *client);

/* Sets c's deadline: `bytes` have been received since from_ns, or were given to the socket then. */
void conns_moved(struct conns *cs, struct conn *c, uint64_t from_ns, uint64_t bytes);
/* c waits for the engine: no deadline until conns_moved. */
void conns_paused(struct conn *c);

/* Shuts down all connections past their deadline, and those with an incomplete request whose client
 * had ended its stream at the call before, too. */
void conns_reap(struct conns *cs);
/* Shuts down the connection that has waited longest for a head, to free its descriptor. */
void conns_evict(struct conns *cs);
/* Does every open connection wait for a request, and has done so for for_ns? */
bool conns_quiet(struct conns *cs, uint64_t now_ns, uint64_t for_ns);
void conns_get(struct conns *cs, struct conns_counts *out);

/* Calls look for each connection of the calling thread whose request is incomplete, until it
 * returns true. look may clear line and chunked. */
void conns_find(struct conns *cs, bool (*look)(struct conn *c, void *arg), void *arg);

#endif
