/* hub.h - fetches models from the Hugging Face Hub or a mirror that speaks its HTTP interface.
 *
 * The listing of a revision names every file with its size and hash (SHA-256 of large files, git's
 * blob SHA-1 of small ones); files come from the listing's commit, so that all are of one state.
 * A download goes to FILE.part, with FILE.part.id saying what it is to become; it is resumed by
 * Range, checked against size and hash, synced and renamed. What is there and right is not fetched
 * again. The access token goes to the endpoint alone, never along a redirect to another host.
 *
 * Interface: huggingface.co/docs/hub/api (GET /api/models/REPO/revision/REV?blobs=true,
 * GET /REPO/resolve/COMMIT/FILE).
 *
 * THREAD SAFETY: one thread; hub_open and hub_close when no other thread uses libcurl. */
#ifndef INFERD_HUB_H
#define INFERD_HUB_H

#include "core/base/err.h"

#include <stddef.h>
#include <stdint.h>

typedef struct hub_model hub_model;

/* Borrowed until hub_close. */
struct hub_options {
    const char *endpoint; /* "https://huggingface.co" */
    const char *token;    /* NULL or "": none */
    const char *folder;   /* models go to FOLDER/ORG/REPO; made when it is not there */
    uint32_t stall_s;     /* a connection that brings nothing for so long is given up */
    uint32_t n_retries;   /* in a row without progress, after a lost connection, 429 or 5xx */
    /* Bytes of all files; nonzero stops with ERR_STOPPING. Also called while nothing comes. */
    int (*progress)(void *arg, uint64_t done, uint64_t total);
    /* A line for people: a retry, a wait for another pull, the files there are to choose from. */
    void (*say)(void *arg, const char *line);
    void *arg;
};

/* Reads the listing and chooses. what: "hf:ORG/REPO" (safetensors with config.json, else the only
 * GGUF) or "hf:ORG/REPO:FILE" (a GGUF's name, a pattern with * or ?, or a type such as Q4_K_M; must
 * mean one model, of which a split one brings all parts). revision: branch, tag or commit.
 * ERR_INVALID, ERR_NOT_FOUND, ERR_IO, ERR_UNSUPPORTED (nothing there that inferd could load). */
int hub_open(const struct hub_options *o, const char *what, const char *revision, hub_model **out,
             err *e);
void hub_close(hub_model *m); /* NULL is fine */

/* What is to be registered once it is there: a folder, a GGUF or its first part. */
const char *hub_path(const hub_model *m);
uint64_t hub_size_bytes(const hub_model *m);

/* Downloads what is missing; waits for another process that pulls into the same folder.
 * ERR_STOPPING and ERR_IO leave parts that the next call goes on from, ERR_FORMAT (size or hash is
 * wrong) none. */
int hub_fetch(hub_model *m, err *e);

#endif
