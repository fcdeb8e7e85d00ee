/* resume.h - streams that lost their connection, and those that just ended, kept for a while so
 * that the client can go on reading: a request with the header Last-Event-ID gets the frames behind
 * that one. Private to api/.
 *
 * A kept stream computes nothing and holds no KV blocks: its sequences are cancelled, and submitted
 * again from where they were when the client is back. Answers depend on nothing but the request, so
 * the stream goes on with the same bytes.
 *
 * Bounds: so many streams, each with the last bytes of its frames, for so long; the one that was
 * kept first leaves first.
 *
 * THREAD SAFETY: any HTTP thread; a generation itself belongs to the request that it is attached
 * to, and to the list while it is kept. */
#ifndef INFERD_API_GENERATE_RESUME_H
#define INFERD_API_GENERATE_RESUME_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct resume resume;
struct gen;
struct request;
struct route;

struct resume_config {
    uint32_t max_streams;  /* kept at once */
    uint32_t timeout_s;    /* 0: none is kept */
    uint32_t buffer_bytes; /* of a stream's last frames */
};
int resume_open(const struct resume_config *config, resume **out, err *e);
/* Frees what is kept. NULL is fine. */
void resume_close(resume *s);

/* Part of each generation. */
struct resumable {
    struct gen *prev, *next;   /* guarded by the list's mutex, as everything here */
    struct request *request;   /* that it is attached to; NULL: kept */
    struct request *waiter;    /* that wants it */
    uint64_t until_ns;         /* kept till then */
    char *key;                 /* the API key that began it, or NULL; fixed */
    const struct route *route; /* that it began at; fixed */
};

/* g, a stream with an id, is attached to its request. false: streams are not kept here. */
bool resume_add(resume *s, struct gen *g);
/* The request ends, g does not: it is kept from now on, and others may take it. */
void resume_keep(resume *s, struct gen *g);
/* Before g is freed. */
void resume_leave(resume *s, struct gen *g);

/* Answers a request that has a Last-Event-ID header: attaches the stream to it, at once or when its
 * old connection has ended, or replies with an error. false: there is no such header. */
bool resume_request(struct request *r);

/* gen_resume.c: what only the generation knows. */

/* Nothing runs and nothing points to the request any more. */
void gen_detach(struct gen *g);
/* Goes on behind frame number `after` on r. ERR_NOT_FOUND: that frame is not kept any more; errors
 * of engine_submit: g is kept on. */
int gen_attach(struct gen *g, struct request *r, uint64_t after, err *e);
/* Frames that were read, for gen_attach. */
void gen_note_read(struct gen *g);

#endif
