/* responses.h - what the API stores for its clients, in the registry's file: responses (their body,
 * their items, and the response that each continues), conversations, whose items grow, and chat
 * completions, which are listed by model and metadata. All are rows of one kind, called responses
 * here; their ids' prefixes tell them apart.
 *
 * A response belongs to its owner, the API key that created it, stored as SHA-256. It has a time to
 * live, which is renewed for a whole conversation when a response is added to it. Beyond the limit
 * of bytes in the file, the owner that holds most of them loses the response that expires first, so
 * no owner can displace another that holds less. Removed content is overwritten in the file.
 *
 * THREAD SAFETY: one handle for all threads; calls are serialized. */
#ifndef INFERD_RESPONSES_H
#define INFERD_RESPONSES_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct responses responses;

struct responses_config {
    const char *file; /* the registry's */
    uint64_t ttl_s;
    uint64_t max_bytes; /* of all responses in the file; one may take an eighth of it */
};

/* Opens the registry's file with its own connection and removes responses that have expired at
 * now_s (seconds of the wall clock, as in all calls). ERR_IO: it cannot be written; errors as
 * registry_open's. */
int responses_open(const struct responses_config *c, int64_t now_s, responses **out, err *e);
/* Other bounds, for what is stored from then on. */
void responses_set_bounds(responses *s, uint64_t ttl_s, uint64_t max_bytes);
void responses_close(responses *s); /* NULL is fine */

/* Texts are borrowed. */
struct responses_row {
    const char *id;
    const char *key;         /* the owner's API key; NULL if none is required */
    const char *previous_id; /* NULL: begins a conversation */
    const char *body, *items;
    const char *const *item_ids; /* (n_items) for responses_find_item */
    size_t n_items;
    const char *model, *metadata; /* responses_list finds it by them; model NULL: not at all */
};

/* Stores a row. It survives a crash of the process; a crash of the machine may lose the last ones.
 * An item id that the owner already has stays with its first response. ERR_TOO_LONG: larger than
 * one response may be. ERR_IO: the disk is full, or another process keeps the file locked. A failed
 * call stores nothing. */
int responses_put(responses *s, const struct responses_row *row, int64_t now_s, err *e);

/* The caller owns the texts: responses_entry_fini. */
struct responses_entry {
    char *id, *previous_id; /* previous_id "": none */
    char *body, *items;
};
void responses_entry_fini(struct responses_entry *entry);

/* ERR_NOT_FOUND: unknown, expired, or another key's. */
int responses_get(responses *s, const char *id, const char *key, int64_t now_s,
                  struct responses_entry *out, err *e);
/* Finds the response with the item. */
int responses_find_item(responses *s, const char *item_id, const char *key, int64_t now_s,
                        struct responses_entry *out, err *e);
int responses_delete(responses *s, const char *id, const char *key, int64_t now_s, err *e);

/* A change of a row, which renews its time to live. NULL members stay as they are. */
struct responses_change {
    const char *id, *key;
    const char *body, *items, *metadata;
    const char *old_items; /* items: what they must have been */
    /* Instead of items: members for the array at the end of the items, {"...":[...]}, separated by
     * commas; and their ids, for responses_find_item. */
    const char *more_items;
    const char *const *item_ids; /* (n_items) */
    size_t n_items;
};
/* All or nothing. ERR_NOT_FOUND as responses_get; ERR_CHANGED: other items than old_items;
 * ERR_TOO_LONG, ERR_IO as responses_put. */
int responses_change(responses *s, const struct responses_change *c, int64_t now_s, err *e);

/* The owner's rows that have a model, in order of creation. */
struct responses_query {
    const char *key;
    const char *model;    /* NULL: any */
    const char *metadata; /* a JSON object whose members they must have */
    const char *after;    /* id of the row before the first one; NULL: from the beginning */
    bool ascending;
    int limit;
};
/* Calls each for up to limit rows, with the lock held: it must not call this store. *more: there
 * are others. ERR_NOT_FOUND: there is no row `after`. */
int responses_list(responses *s, const struct responses_query *q, int64_t now_s,
                   void (*each)(void *arg, const char *id, const char *body), void *arg, bool *more,
                   err *e);

#endif
