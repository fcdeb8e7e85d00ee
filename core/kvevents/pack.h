/* pack.h - batches of events in MessagePack (github.com/msgpack/msgpack/blob/master/spec.md).
 * Private to core/kvevents. Plain functions. */
#ifndef INFERD_KVEVENTS_PACK_H
#define INFERD_KVEVENTS_PACK_H

#include "core/base/kv_event.h"
#include "core/base/str.h"

#include <stddef.h>

enum pack_kind { PACK_STORED, PACK_REMOVED, PACK_CLEARED };

/* An event in the ring. */
struct pack_event {
    enum pack_kind kind;
    bool has_parent;
    uint64_t hash, parent;
    int32_t tokens[KV_EVENT_MAX_TOKENS]; /* (block_tokens) */
};

/* Appends the batch of events (n). Blocks that follow each other in a chain become one event, as do
 * blocks that are removed one after another. */
void pack_batch(const struct pack_event *events, size_t n, uint32_t block_tokens, double time_s,
                str *out);

#endif
