/* kv_tiers.h - the KV store, and the publisher of KV events, that the configuration asks for. Main
 * thread. */
#ifndef INFERD_KV_TIERS_H
#define INFERD_KV_TIERS_H

#include "core/kvevents/kvevents.h"
#include "core/kvstore/kvstore.h"
#include "daemon/config.h"

/* registry: its file, beside which the store's secret is. *out is NULL without kv-dir and
 * kv-memory-bytes. A folder that cannot be used now is done without, with a line in the log.
 * ERR_UNAVAILABLE: another process has it; ERR_INVALID: the secret's file is not one, or others may
 * read it. */
int kv_tiers_open(const struct config *c, const char *registry, kvstore **out, err *e);

/* The bounds of kv-dir alone. Any thread. */
struct kvstore_config kv_tiers_bounds(const struct config *c);

/* The file of the secret. ERR_INVALID: its path is longer than n. */
int kv_tiers_secret(const char *registry, char *out, size_t n, err *e);

/* *out is NULL without kv-events. ERR_UNAVAILABLE: there is no libzmq; ERR_IO: an address cannot be
 * bound; ERR_INVALID. */
int kv_tiers_publish(const struct config *c, kvevents **out, err *e);

#endif
