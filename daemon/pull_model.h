/* pull_model.h - a model's way from the Hub into the registry, for `inferd pull` and for the
 * running daemon. */
#ifndef INFERD_PULL_MODEL_H
#define INFERD_PULL_MODEL_H

#include "core/base/err.h"
#include "daemon/config.h"
#include "registry/registry.h"

#include <stddef.h>
#include <stdint.h>

enum pull_step { PULL_LISTING, PULL_DOWNLOADING, PULL_HASHING };

struct pull_job {
    const struct config *config;
    registry *registry;
    const char *what, *revision, *name; /* revision NULL: main; name NULL: made from the file's */
    const char *const *aliases;         /* (n_aliases) */
    size_t n_aliases;
    /* The files are chosen: path of the model, bytes of all files, SHA-256 of the largest ("":
     * unknown). NULL: not called. */
    void (*chosen)(void *arg, const char *path, uint64_t bytes, const char *sha256);
    /* Bytes; nonzero stops. */
    int (*progress)(void *arg, enum pull_step step, uint64_t done, uint64_t total);
    void (*say)(void *arg, const char *line); /* a line to show; it may hold any bytes */
    void *arg;
};

/* Downloads and registers; checks the names before the download. Errors as hub_open's, hub_fetch's
 * and registry_add's; ERR_STOPPING: progress stopped it, and what was downloaded is kept. */
int pull_model(const struct pull_job *job, struct registry_model *added, err *e);

/* Checks the files at path and the tokenizer, and adds them as add says. Errors as registry_add's
 * and tokenizer_open's. */
int pull_register(registry *r, const struct registry_add *add, struct registry_model *added,
                  err *e);

#endif
