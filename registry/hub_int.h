/* hub_int.h - shared by hub.c, hub_http.c, hub_list.c and hub_file.c. Private to the folder. */
#ifndef INFERD_HUB_INT_H
#define INFERD_HUB_INT_H

#include "registry/hub.h"

#include <stdbool.h>

/* ---- hub_list.c: the listing of a repository and the choice of files. No network. ---- */

/* Owned by the listing. */
struct hub_file {
    char *name; /* path inside the repository, checked: it stays below its folder */
    uint64_t size_bytes;
    bool lfs;      /* hash is SHA-256 of the bytes; else SHA-1 of them as a git blob */
    bool known;    /* the listing has size and hash */
    char hash[65]; /* hexadecimal, lower case */
};
struct hub_listing {
    struct hub_file *files; /* (n_files) */
    size_t n_files;
    char commit[65];
};

/* text (n) JSON of /api/models/REPO/revision/REV?blobs=true. Files whose names are not safe
 * relative paths are skipped. ERR_FORMAT. */
int hub_listing_parse(const char *text, size_t n, struct hub_listing *out, err *e);
void hub_listing_fini(struct hub_listing *l);

/* The files of one model, borrowed from the listing; the caller frees the array. */
struct hub_choice {
    const struct hub_file **files; /* (n) in order of names; a split GGUF's first part first */
    size_t n;
    bool folder; /* a Hugging Face folder, else GGUF */
};
/* wanted NULL: the whole model. If no file or several match, the candidates go to o->say. */
int hub_listing_choose(const struct hub_listing *l, const char *wanted, const struct hub_options *o,
                       struct hub_choice *out, err *e);

/* ---- hub_http.c: HTTP over libcurl ---- */

typedef struct hub_http hub_http;

/* The response after all redirects; linked_etag and error_code may be of an earlier hop. */
struct hub_reply {
    long status;
    bool transient; /* the next try may succeed */
    uint32_t retry_after_s;
    bool has_range; /* Content-Range: bytes range_from-.../range_total (total 0: unknown) */
    uint64_t range_from, range_total;
    char linked_etag[80]; /* X-Linked-Etag of any hop, without quotes; "" none */
    char error_code[48];  /* X-Error-Code, "GatedRepo" for example */
};

struct hub_request {
    const char *path; /* below the endpoint, with its leading '/', already escaped */
    uint64_t from;    /* first byte wanted; 0: all */
    /* Receives the body of a 200 or 206. Nonzero, with e set, stops. */
    int (*body)(void *arg, const struct hub_reply *reply, const void *bytes, size_t n, err *e);
    /* Called about every second; nonzero: stop with ERR_STOPPING. */
    int (*tick)(void *arg);
    void *arg;
};

/* Checks the endpoint: ERR_INVALID. o is borrowed. */
int hub_http_open(const struct hub_options *o, hub_http **out, err *e);
void hub_http_close(hub_http *h);
/* One try, including redirects. 0: body received a complete 200 or 206. */
int hub_http_get(hub_http *h, const struct hub_request *rq, struct hub_reply *reply, err *e);

/* Consecutive tries without progress; zero at the start. */
struct hub_retry {
    uint32_t n_failed;
};
/* Call after a failed hub_http_get, with its error in e. Waits, then returns 0 for another try; or
 * returns e's code or ERR_STOPPING. */
int hub_http_pause(hub_http *h, const struct hub_request *rq, const struct hub_reply *reply,
                   struct hub_retry *retry, err *e);

/* ---- hub_file.c: the download of one file ---- */

struct hub_download {
    hub_http *http;
    const struct hub_options *options;
    const struct hub_file *file;
    const char *url_path;              /* as hub_request.path */
    const char *path;                  /* of the result; its folder exists */
    uint64_t done_before, total_bytes; /* of the whole pull, for progress */
};
/* 0: PATH exists, synced, with the right bytes. */
int hub_file_get(const struct hub_download *d, err *e);
/* Bytes already in PATH or PATH.part, judged by size. */
uint64_t hub_file_have_bytes(const struct hub_file *file, const char *path);

#endif
