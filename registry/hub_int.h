/* hub_int.h - what hub.c, hub_http.c, hub_list.c and hub_file.c share. Private to the folder. */
#ifndef INFERD_HUB_INT_H
#define INFERD_HUB_INT_H

#include "registry/hub.h"

#include <stdbool.h>

/* ---- hub_list.c: what a repository holds and which of it makes a model. No network. ---- */

/* Owned by the listing. */
struct hub_file {
    char *name; /* path inside the repository, checked: it stays below its folder */
    uint64_t size_bytes;
    bool lfs;      /* hash is SHA-256 of the bytes; else SHA-1 of them as a git blob */
    bool known;    /* the listing said size and hash */
    char hash[65]; /* hexadecimal, lower case */
};
struct hub_listing {
    struct hub_file *files; /* (n_files) */
    size_t n_files;
    char commit[65];
};

/* text (n) JSON of /api/models/REPO/revision/REV?blobs=true. Files with names that are no safe
 * relative paths are left out. ERR_FORMAT. */
int hub_listing_parse(const char *text, size_t n, struct hub_listing *out, err *e);
void hub_listing_fini(struct hub_listing *l);

/* The files of one model, borrowed from the listing; the array is the caller's (free). */
struct hub_choice {
    const struct hub_file **files; /* (n) in order of names; a split GGUF's first part first */
    size_t n;
    bool folder; /* a Hugging Face folder, else GGUF */
};
/* wanted NULL: the whole model. Candidates go to o->say when there are too many or none. */
int hub_listing_choose(const struct hub_listing *l, const char *wanted, const struct hub_options *o,
                       struct hub_choice *out, err *e);

/* ---- hub_http.c: the only user of libcurl ---- */

typedef struct hub_http hub_http;

/* Of the response that ended the redirects, except etag and size. */
struct hub_reply {
    long status;
    bool transient; /* the failure may be gone at the next try */
    uint32_t retry_after_s;
    bool has_range; /* Content-Range: bytes range_from-.../range_total (total 0: unknown) */
    uint64_t range_from, range_total;
    char linked_etag[80]; /* X-Linked-Etag of any hop, without quotes; "" none */
    char error_code[48];  /* X-Error-Code, "GatedRepo" for example */
};

struct hub_request {
    const char *path; /* below the endpoint, with its leading '/', already escaped */
    uint64_t from;    /* first byte wanted; 0: all */
    /* Takes the body of a 200 or 206. Nonzero: stop; e is set then. */
    int (*body)(void *arg, const struct hub_reply *reply, const void *bytes, size_t n, err *e);
    /* Called about every second; nonzero: stop with ERR_STOPPING. */
    int (*tick)(void *arg);
    void *arg;
};

/* Checks the endpoint: ERR_INVALID. o is borrowed. */
int hub_http_open(const struct hub_options *o, hub_http **out, err *e);
void hub_http_close(hub_http *h);
/* One try, redirects included. 0: a whole 200 or 206 was given to body. */
int hub_http_get(hub_http *h, const struct hub_request *rq, struct hub_reply *reply, err *e);

/* Tries in a row that brought nothing. Zero at the start and after progress. */
struct hub_retry {
    uint32_t n_failed;
};
/* After a failed hub_http_get, which is in e: 0 once it is time for the next try, else e's code, or
 * ERR_STOPPING. */
int hub_http_pause(hub_http *h, const struct hub_request *rq, const struct hub_reply *reply,
                   struct hub_retry *retry, err *e);

/* ---- hub_file.c: one file from the Hub to the disk ---- */

struct hub_download {
    hub_http *http;
    const struct hub_options *options;
    const struct hub_file *file;
    const char *url_path;              /* as hub_request.path */
    const char *path;                  /* where it goes; its folder exists */
    uint64_t done_before, total_bytes; /* of the whole pull, for progress */
};
/* 0: PATH is there, synced, with the right bytes. */
int hub_file_get(const struct hub_download *d, err *e);
/* Bytes that PATH and PATH.part hold already, as far as sizes tell. */
uint64_t hub_file_have_bytes(const struct hub_file *file, const char *path);

#endif
