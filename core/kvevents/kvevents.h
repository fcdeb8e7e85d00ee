/* kvevents.h - tells routers over ZeroMQ which blocks the prefix cache has, in the form of vLLM's
 * publisher, so that an index (llm-d-kv-cache, Dynamo) finds the replica that has most of a prompt.
 *
 * MESSAGES. A PUB socket sends three frames: the topic "kv@NAME@MODEL", a sequence number (8 bytes,
 * big-endian, from 0 without gaps), and a batch in MessagePack: [time in s, [event, ...], 0].
 * Events are arrays:
 *   ["BlockStored", [hash, ...], parent hash or nil, [token ids], block size, nil, "GPU", nil]
 *   ["BlockRemoved", [hash, ...], "GPU"]
 *   ["AllBlocksCleared"]
 * Hashes are 64 bits and name a chain of blocks of this process; an index computes its own keys
 * from the token ids. "GPU" means the device's memory, whatever the device is. A ROUTER socket
 * takes [empty, first sequence number] and answers with [empty, sequence number, batch] for each
 * batch that is kept from there on, and [empty, -1, empty] in the end.
 *
 * BOUNDS. The cache's events wait in a ring of KVEVENTS_QUEUED. When it is full, events are dropped
 * until it is empty, and AllBlocksCleared says that what was told is void; the log has their
 * number. Subscribers that do not read lose messages, which the sequence numbers show.
 *
 * libzmq is loaded when it is first needed. One model's events are published at a time.
 *
 * THREAD SAFETY: the listener runs on the cache's thread, a thread of this room owns the sockets;
 * the other functions may be called from any thread. */
#ifndef INFERD_KVEVENTS_H
#define INFERD_KVEVENTS_H

#include "core/base/err.h"
#include "core/base/kv_event.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kvevents kvevents;

enum { KVEVENTS_QUEUED = 8192 };

struct kvevents_config {
    const char *endpoint;  /* of the PUB socket, "tcp://10.0.0.2:5557" */
    const char *replay;    /* of the ROUTER socket; "": none */
    const char *name;      /* of this replica, in topics */
    uint64_t replay_bytes; /* most memory of batches that are kept for it */
};

/* Strings are copied. ERR_UNAVAILABLE: there is no libzmq; ERR_IO: an address cannot be bound;
 * ERR_NOMEM. */
int kvevents_open(const struct kvevents_config *config, kvevents **out, err *e);
void kvevents_close(kvevents *k); /* after the caches that it listens to; NULL is fine */

/* Publishes the events of this model's cache through *out. false: another model's are published, or
 * k is NULL; *out is zeroed. */
bool kvevents_attach(kvevents *k, const char *model, uint32_t block_tokens,
                     struct kv_listener *out);
/* The model's cache is gone, if it was attached: says so. k NULL is fine. */
void kvevents_detach(kvevents *k, const char *model);

#endif
