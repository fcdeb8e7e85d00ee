/* kv_event.h - what happens to cached blocks of K/V, for who keeps an index of them outside of the
 * process. Declared here, because core/kv tells it and core/kvevents publishes it. */
#ifndef INFERD_BASE_KV_EVENT_H
#define INFERD_BASE_KV_EVENT_H

#include <stdbool.h>
#include <stdint.h>

enum { KV_EVENT_MAX_TOKENS = 32 }; /* of a block */

struct kv_event {
    bool stored; /* the block can be found now; false: not any more */
    bool has_parent;
    uint64_t hash;         /* of all tokens from the start of its chain on */
    uint64_t parent;       /* stored, has_parent: the hash of the block before it */
    const int32_t *tokens; /* stored: (block_tokens) ids; valid during the call */
};

/* Called on the thread that owns the cache, between and during steps: it neither waits nor
 * allocates. on_block NULL: events are not wanted. */
struct kv_listener {
    void (*on_block)(void *arg, const struct kv_event *event);
    void *arg;
};

#endif
