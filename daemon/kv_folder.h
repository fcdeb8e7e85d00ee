/* kv_folder.h - the KV store that the configuration asks for. Main thread. */
#ifndef INFERD_KV_FOLDER_H
#define INFERD_KV_FOLDER_H

#include "core/kvstore/kvstore.h"
#include "daemon/config.h"

/* registry: its file, beside which the store's secret is. *out is NULL without kv-dir, and, with a
 * line in the log, if the folder cannot be used now. ERR_UNAVAILABLE: another process has it;
 * ERR_INVALID: the secret's file is not one, or others may read it. */
int kv_folder_open(const struct config *c, const char *registry, kvstore **out, err *e);

#endif
