/* resume.h - streams that lost their connection, or have just ended, kept for a while so that the
 * client can resume them: a request with the header Last-Event-ID gets the frames after that one.
 *
 * A kept stream computes nothing and holds no KV blocks: its sequences are cancelled, and submitted
 * again from where they were when the client returns. Answers depend only on the request, so the
 * stream continues with the same bytes.
 *
 * Limits: the number of streams, the bytes of last frames per stream, the time. The stream that has
 * been kept longest is dropped first.
 *
 * THREAD SAFETY: any thread. A stream belongs to the request that it is attached to, and to
 * the list while it is kept. */
#ifndef INFERD_API_GENERATE_RESUME_H
#define INFERD_API_GENERATE_RESUME_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct resume resume;
struct request;
struct resumable;
struct route;

struct resume_config {
    uint32_t max_streams; /* kept at once */
    uint32_t timeout_s;   /* 0: none is kept */
};
int resume_open(const struct resume_config *config, resume **out, err *e);
/* Another one, for streams that are kept from then on. */
void resume_set(resume *s, const struct resume_config *config);
/* Frees what is kept. NULL is fine. */
void resume_close(resume *s);

/* What the list asks of a stream. */
struct resumable_ops {
    /* Nothing runs and nothing points to the request any more. */
    void (*detach)(struct resumable *k);
    /* Becomes r's job and continues after frame number `after`. ERR_NOT_FOUND: that frame is not
     * kept any more. On failure the stream stays kept. */
    int (*attach)(struct resumable *k, struct request *r, uint64_t after, err *e);
    /* Frees the stream, which has left the list. */
    void (*free)(struct resumable *k);
};

/* Part of each stream. */
struct resumable {
    const struct resumable_ops *ops;
    const char *id;                /* of the stream; borrowed */
    const struct api_model *model; /* that it is of */
    struct resumable *prev, *next; /* guarded by the list's mutex, as everything below */
    struct request *request;       /* the request it is attached to; NULL: kept */
    struct request *waiter;        /* the request that wants it */
    uint64_t until_ns;             /* kept until then */
    char *key;                     /* the API key that started it, or NULL; fixed */
    const struct route *route;     /* where it started; fixed */
};

/* k (ops and id are set) is a stream attached to r. false: streams are not kept. */
bool resume_add(resume *s, struct resumable *k, struct request *r);
/* The request ends, the stream does not: it is kept from now on, and others may take it. */
void resume_keep(resume *s, struct resumable *k);
/* Frees the streams whose time is over. */
void resume_drop_old(resume *s);
struct api_model;
/* Frees the kept streams of a model, which is being unloaded. */
void resume_drop_model(resume *s, const struct api_model *m);
/* Before the stream is freed. */
void resume_leave(resume *s, struct resumable *k);

/* Answers a request with a Last-Event-ID header: attaches the stream to it, at once or when its old
 * connection has ended, or replies with an error. false: there is no such header. */
bool resume_request(resume *s, struct request *r);

#endif
