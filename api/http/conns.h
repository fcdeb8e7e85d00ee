/* conns.h - every open connection: what it does, how long it may do it, and who gives way when
 * there are too many.
 *
 * libmicrohttpd's idle timeout begins anew with every byte in or out, so a client that moves one
 * now and then would keep a connection for ever. Here each part of a connection's life has one end:
 * the wait for a complete head (from opening, or from the last answer), the body, and each buffer
 * of an answer. A connection whose answer waits for the engine has none. conns_reap, called by a
 * clock, shuts down what is past its end.
 *
 * At max connections a new one takes the place of the one that has waited longest for a head; where
 * none waits, of the one whose body arrives most slowly (its end comes first). Where there is none
 * either, it is accepted all the same, but only to ask for health (struct conn's reserved): up to
 * CONNS_RESERVE, of which again the longest wait gives way.
 *
 * THREAD SAFETY: every function may be called from any thread, except that the functions that take
 * a conn are called by its own HTTP thread, one at a time. Nothing here closes a descriptor: it is
 * shut down, and libmicrohttpd sees the end. */
#ifndef INFERD_API_HTTP_CONNS_H
#define INFERD_API_HTTP_CONNS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
    CONNS_RESERVE = 32,  /* beyond max, for health */
    CONNS_CLOSING = 128, /* more that are shut down and not closed yet */
    CONNS_BUCKETS = 1024
};

enum conn_state {
    CONN_WAITING,   /* for a complete head */
    CONN_BODY,      /* for the rest of a request */
    CONN_ANSWERING, /* computing, waiting for the engine, writing */
    CONN_N_STATES
};

/* An IPv4 address, an IPv6 address' first 64 bits, or nothing (Unix sockets). */
struct conn_address {
    uint8_t bytes[9]; /* the first one says which */
};

struct conn {
    struct conn *prev, *next;            /* of the same state, the longest in it first */
    struct conn *next_peer, **peer_link; /* in the bucket of its address */
    struct conn_address address;
    enum conn_state state;
    bool shut;                    /* it is shut down and counts no more */
    bool line;                    /* of the head it waits for, the first line is there */
    bool chunked;                 /* its body comes in chunks */
    bool reserved;                /* beyond max: it may ask for health, once */
    uint64_t since_ns;            /* in this state */
    atomic_uint_least64_t due_ns; /* it is shut down then; 0: never */
    int fd;                       /* libmicrohttpd's, open from conns_open to conns_close */
    pthread_t thread;             /* its HTTP thread */
    void *connection;             /* http.c's */
    const char *target;           /* http.c's: where the request's target lies */
    size_t n_target;
    size_t n_origin;        /* http.c's: of it, scheme and host in front of the path */
    const char *target_why; /* http.c's: what is wrong with it, or NULL */
};

/* What became of connections, since the start. */
struct conns_counts {
    uint64_t open[CONN_N_STATES]; /* now; without those that are shut down */
    uint64_t receiving;           /* now; of those in CONN_WAITING such with a first line */
    uint64_t accepted, reaped, evicted, reserved, refused_full, refused_address;
};

struct conns_config {
    uint32_t max;
    uint32_t max_per_address; /* 0: no such limit */
    uint64_t wait_ns;    /* for a head; for a body and a buffer of an answer besides its bytes */
    uint64_t reserve_ns; /* the same, beyond max */
    uint64_t body_ns;    /* a younger body is not cut off to make room */
};

struct conns {
    struct conns_config config; /* constant */
    uint64_t seed;              /* constant: of the buckets */
    pthread_mutex_t
        mu; /* guards all below and every conn, but for what its own thread alone uses */
    struct conn_list {
        struct conn *first, *last;
    } lists[CONN_N_STATES];
    struct conn *buckets[CONNS_BUCKETS];
    uint32_t n_open;               /* also those that are shut down */
    uint32_t n_counted, n_reserve; /* not shut down: within max, beyond it */
    struct conns_counts counts;    /* without open, receiving */
};

/* Never fails. */
void conns_init(struct conns *cs, const struct conns_config *config);
/* No connection may be open any more. */
void conns_fini(struct conns *cs);

/* May another connection from there be accepted? Room is made for it by conns_open. */
bool conns_admit(struct conns *cs, const struct sockaddr *from);
/* c (zeroed, fd set) is open and waits; another one may be shut down for it, or c itself. */
void conns_open(struct conns *cs, struct conn *c, const struct sockaddr *from);
void conns_close(struct conns *cs, struct conn *c);

/* c waits for the next head. */
void conns_wait(struct conns *cs, struct conn *c);
/* The first line of the head that c waits for is there. */
void conns_line(struct conns *cs, struct conn *c);
/* c's head is complete; its body has as long as a wait, and more with each byte (conns_moved). */
void conns_body(struct conns *cs, struct conn *c);
/* c's request is complete. Its answer has no end until conns_moved. */
void conns_answer(struct conns *cs, struct conn *c);

/* bytes more were received, since_ns ago all began; or given to the socket now. */
void conns_moved(struct conns *cs, struct conn *c, uint64_t from_ns, uint64_t bytes);
/* c waits for the engine: no end until conns_moved. */
void conns_paused(struct conn *c);

/* Shuts down what is past its end. */
void conns_reap(struct conns *cs);
/* Shuts down the one that has waited longest for a head, so that its descriptor becomes free. */
void conns_evict(struct conns *cs);
void conns_get(struct conns *cs, struct conns_counts *out);

/* Calls look for the connections of the calling thread whose request is not complete, until it
 * returns true. look may clear line and chunked. */
void conns_find(struct conns *cs, bool (*look)(struct conn *c, void *arg), void *arg);

#endif
