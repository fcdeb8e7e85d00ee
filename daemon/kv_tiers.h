/* kv_tiers.h - the KV store that the configuration asks for. Main thread. */
#ifndef INFERD_KV_TIERS_H
#define INFERD_KV_TIERS_H

#include "core/kvstore/kvstore.h"
#include "daemon/config.h"

/* registry: its file, beside which the store's secret is. *out is NULL without kv-dir and
 * kv-memory-bytes. A folder that cannot be used now is done without, with a line in the log.
 * ERR_UNAVAILABLE: another process has it; ERR_INVALID: the secret's file is not one, or others may
 * read it. */
int kv_tiers_open(const struct config *c, const char *registry, kvstore **out, err *e);

/* The file of the secret. ERR_INVALID: its path is longer than n. */
int kv_tiers_secret(const char *registry, char *out, size_t n, err *e);

#endif
