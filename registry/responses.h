/* responses.h - answers that clients can come back to, in the registry's file: a response's body,
 * the items of which its conversation is made, and which response it goes on from.
 *
 * A response is its owner's alone: the API key that it was made with, of which a SHA-256 is kept.
 * It stays for a time to live that begins anew for a whole conversation whenever a response is
 * added to it. Beyond a total of bytes in the file, the owner that holds most of them loses the
 * response that would leave first, so that no owner can drive out another that holds less.
 * Removed content is overwritten in the file.
 *
 * THREAD SAFETY: one handle for all threads; calls wait for each other. */
#ifndef INFERD_RESPONSES_H
#define INFERD_RESPONSES_H

#include "core/base/err.h"

#include <stddef.h>
#include <stdint.h>

typedef struct responses responses;

struct responses_config {
    const char *file; /* the registry's */
    uint64_t ttl_s;
    uint64_t max_bytes; /* that all take in the file; one may take an eighth of it */
};

/* Opens the registry's file with a connection of its own and removes what has expired at now_s
 * (seconds of the wall clock, as in all calls). ERR_IO: it cannot be written; errors as
 * registry_open's. */
int responses_open(const struct responses_config *c, int64_t now_s, responses **out, err *e);
void responses_close(responses *s); /* NULL is fine */

/* Texts are borrowed. */
struct responses_row {
    const char *id;
    const char *key;         /* the owner's API key; NULL where none is asked for */
    const char *previous_id; /* NULL: begins a conversation */
    const char *body, *items;
    const char *const *item_ids; /* (n_items) by which responses_find_item finds it */
    size_t n_items;
};

/* Durable against a crash of the process once it returns; a crash of the machine may lose the last
 * ones. Of an item id that the owner has already the first response stays the holder. ERR_TOO_LONG:
 * larger than one response may be. ERR_IO: the disk is full, another process keeps the file locked.
 * What fails leaves nothing of the row behind. */
int responses_put(responses *s, const struct responses_row *row, int64_t now_s, err *e);

/* Texts are the caller's: responses_entry_fini. */
struct responses_entry {
    char *id, *previous_id; /* previous_id "": none */
    char *body, *items;
};
void responses_entry_fini(struct responses_entry *entry);

/* ERR_NOT_FOUND: no such response, expired, or another key's. */
int responses_get(responses *s, const char *id, const char *key, int64_t now_s,
                  struct responses_entry *out, err *e);
/* The response that holds the item. */
int responses_find_item(responses *s, const char *item_id, const char *key, int64_t now_s,
                        struct responses_entry *out, err *e);
int responses_delete(responses *s, const char *id, const char *key, int64_t now_s, err *e);

#endif
