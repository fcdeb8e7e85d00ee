/* zmq.h - the functions of libzmq 4 that this room calls, loaded at run time: nothing else needs
 * the library. Names and numbers are those of its API (api.zeromq.org). Private to core/kvevents.
 */
#ifndef INFERD_KVEVENTS_ZMQ_H
#define INFERD_KVEVENTS_ZMQ_H

#include "core/base/err.h"

#include <stddef.h>

enum {
    ZMQ_PUB = 1, /* sockets */
    ZMQ_ROUTER = 6,
    ZMQ_RCVMORE = 13, /* options */
    ZMQ_LINGER = 17,
    ZMQ_MAXMSGSIZE = 22,
    ZMQ_SNDHWM = 23,
    ZMQ_RCVHWM = 24,
    ZMQ_IPV6 = 42,
    ZMQ_DONTWAIT = 1, /* flags */
    ZMQ_SNDMORE = 2
};

struct zmq {
    void *(*ctx_new)(void);
    int (*ctx_term)(void *context);
    void *(*socket)(void *context, int type);
    int (*close)(void *socket);
    int (*setsockopt)(void *socket, int option, const void *value, size_t n);
    int (*getsockopt)(void *socket, int option, void *value, size_t *n);
    int (*bind)(void *socket, const char *endpoint);
    int (*send)(void *socket, const void *bytes, size_t n, int flags);
    int (*recv)(void *socket, void *bytes, size_t n,
                int flags); /* the message's size, may exceed n */
    int (*error)(void);     /* of the calling thread */
    const char *(*strerror)(int error);
};

/* Stays loaded. ERR_UNAVAILABLE. */
int zmq_load(struct zmq *out, err *e);

#endif
