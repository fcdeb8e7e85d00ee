/* hub.h - downloads models from the Hugging Face Hub or a mirror with the same HTTP interface.
 *
 * The listing of a revision has every file's size and hash (SHA-256 of large files, git's blob
 * SHA-1 of small ones); all files are downloaded from the listing's commit, so they belong
 * together. A download is written to FILE.part; FILE.part.id identifies the file that it becomes.
 * It is resumed by Range, checked against size and hash, synced and renamed. A file that already
 * exists with the right hash is not downloaded. The access token is sent to the endpoint only,
 * never along a redirect to another host.
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
    const char *folder;   /* models are stored in FOLDER/ORG/REPO, created if missing */
    uint32_t stall_s;     /* a connection that receives nothing for this long is aborted */
    uint32_t n_retries; /* consecutive ones without progress, after a lost connection, 429 or 5xx */
    /* Bytes of all files; nonzero stops with ERR_STOPPING. Also called while nothing arrives. */
    int (*progress)(void *arg, uint64_t done, uint64_t total);
    /* A line to show: a retry, a wait for another pull, the files to choose from. */
    void (*say)(void *arg, const char *line);
    void *arg;
};

/* Has what the form that hub_open takes? Sends no request. ERR_INVALID. */
int hub_check(const char *what, err *e);
/* Reads the listing and chooses files. what: "hf:ORG/REPO" (safetensors with config.json, else the
 * only GGUF) or "hf:ORG/REPO:FILE" (a GGUF's name, a pattern with * or ?, or a type such as Q4_K_M;
 * it must select one model; a split one includes all parts). revision: branch, tag or commit.
 * ERR_INVALID, ERR_NOT_FOUND, ERR_IO, ERR_UNSUPPORTED (no files that inferd can load). */
int hub_open(const struct hub_options *o, const char *what, const char *revision, hub_model **out,
             err *e);
void hub_close(hub_model *m); /* NULL is fine */

/* Path to register after hub_fetch: a folder, a GGUF or its first part. */
const char *hub_path(const hub_model *m);
uint64_t hub_size_bytes(const hub_model *m);
/* SHA-256 of its largest file in hexadecimal; "": the listing has none. */
const char *hub_sha256(const hub_model *m);

/* Downloads the missing files; waits for another process that pulls into the same folder.
 * ERR_STOPPING and ERR_IO leave parts from which the next call continues; ERR_FORMAT (wrong size or
 * hash) leaves none. */
int hub_fetch(hub_model *m, err *e);

#endif
