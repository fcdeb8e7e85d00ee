/* ledger.h - who used how many tokens of which model in which hour, in the registry's file.
 *
 * A daemon adds to a table in memory; ledger_flush moves it to the file in one transaction, once a
 * second. The transaction also notes the number of its batch under the name of its writer, a random
 * one per process: if a commit fails and yet took effect, its repetition finds the number and adds
 * nothing. So kill -9 loses what was used since the last flush, and nothing is counted twice.
 *
 * THREAD SAFETY: ledger_add from any thread; it never waits for the file. ledger_flush and close
 * from one thread at a time. usage_read as registry_*. */
#ifndef INFERD_REGISTRY_LEDGER_H
#define INFERD_REGISTRY_LEDGER_H

#include "core/base/err.h"
#include "registry/registry.h"

#include <stdbool.h>
#include <stdint.h>

enum usage_kind { USAGE_GENERATE, USAGE_EMBED };
enum { USAGE_HOUR_S = 3600, LEDGER_ROWS = 4096 /* in memory; more are not counted */ };

struct usage_row {
    int64_t time_s; /* added: any moment of the hour; read: when its interval begins */
    int64_t key;    /* registry_key.id; 0: none; -n: the n-th key of the configuration's files */
    char model[REGISTRY_NAME_BYTES];
    enum usage_kind kind;
    uint64_t requests, input_tokens, cached_tokens, output_tokens; /* cached ones are input, too */
};

typedef struct ledger ledger;

/* Rows older than keep_s are removed, now and once an hour. ERR_IO: the file cannot be written;
 * errors as registry_open's. */
int ledger_open(const char *file, uint64_t keep_s, int64_t now_s, ledger **out, err *e);
/* Another keep_s, from any thread: the next ledger_flush removes what is older. */
void ledger_set_keep(ledger *l, uint64_t keep_s);
void ledger_add(ledger *l, const struct usage_row *row);
/* On failure everything is kept for the next call. */
int ledger_flush(ledger *l, int64_t now_s, err *e);
/* Flushes, and waits some seconds for another process that writes. NULL is fine. */
void ledger_close(ledger *l, int64_t now_s);

/* Sums of [from_s, to_s), of whole hours. */
struct usage_query {
    int64_t from_s, to_s;
    int64_t
        interval_s; /* of each sum, a multiple of USAGE_HOUR_S, aligned to UTC; 0: one for all */
    bool by_key, by_model, by_kind; /* each its own sums; otherwise key, model and kind are 0, "" */
    const int64_t *key;             /* only of this one; NULL: of all */
    const char *model;              /* only of this one; NULL: of all */
    const enum usage_kind *kind;    /* only of this one; NULL: of both */
};
/* Calls add for each sum, in order of time, key, model and kind. */
int usage_read(registry *r, const struct usage_query *q,
               void (*add)(void *arg, const struct usage_row *row), void *arg, err *e);

#endif
