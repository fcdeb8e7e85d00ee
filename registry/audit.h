/* audit.h - the audit log: what administrators did to keys, models, stored K/V and the
 * configuration, and how many authentications failed. A table of the registry: it lies beside what
 * most acts change, outlives the daemon, and commands write it when no daemon runs.
 *
 * It has names, never secrets, prompts or the texts of errors; whoever can write the registry can
 * change it. The table keeps the last AUDIT_MAX_ROWS rows: several processes write it, so its bound
 * is no daemon's key. */
#ifndef INFERD_REGISTRY_AUDIT_H
#define INFERD_REGISTRY_AUDIT_H

#include "core/base/err.h"
#include "registry/registry.h"

#include <stddef.h>
#include <stdint.h>

enum { AUDIT_MAX_ROWS = 100000, AUDIT_QUEUE = 256, AUDIT_COUNTS = 8 };

struct audit_row {
    int64_t time_s;
    uint64_t count;   /* 0 counts as 1 */
    char who[72];     /* "user:alice", "key:ik_abcdefgh", "local": a program of this machine without
                         a key, "signal" */
    char client[48];  /* an HTTP client's address; "" */
    char act[64];     /* "keys.add" */
    char object[128]; /* name of the key or the model */
    char
        result[24]; /* "ok", "queued" (a task that the daemon's log follows), "failed: not found" */
};

/* Sets a text as one field (log_field): names may come from clients. */
void audit_set(char *to, size_t n, const char *text);
/* "ok", or "failed: " and the kind of the error. */
void audit_set_result(struct audit_row *row, int rc);

/* Writes one row, for commands. One thread at a time. */
int audit_write(registry *r, const struct audit_row *row, err *e);
/* Calls add for each row from from_s on, oldest first, whose act begins with act. */
int audit_read(registry *r, int64_t from_s, const char *act,
               void (*add)(void *arg, const struct audit_row *row), void *arg, err *e);

/* A daemon's writer. audit_add from any thread, the rest from one. */
typedef struct audit audit;
int audit_open(const char *file, audit **out, err *e);
/* Never waits for the file: the row is written by the next audit_flush. Beyond AUDIT_QUEUE rows
 * that could not be written, it is dropped; the number of dropped rows is written later. */
void audit_add(audit *a, const struct audit_row *row);
/* Notes that `total` authentications have failed since the start for a reason (static text); i <
 * AUDIT_COUNTS belongs to it. One row for each hour and reason. */
void audit_count(audit *a, unsigned i, const char *reason, uint64_t total);
/* Writes what waits, in one transaction. After an error it still waits. */
int audit_flush(audit *a, int64_t now_s, err *e);
void audit_close(audit *a, int64_t now_s); /* flushes; NULL is fine */

#endif
