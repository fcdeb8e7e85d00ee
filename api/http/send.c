/* send.c - replies on libmicrohttpd: whole, in pieces, or as streams. HTTP threads, one at a time
 * for each request. */
#include "api/http/http_int.h"

#include "api/http/cors.h"
#include "api/http/error.h"
#include "api/http/prepare.h"
#include "api/http/route.h"

#include "core/base/clock.h"

#include <stdlib.h>
#include <string.h>

bool http_is_stopping(const struct http *h) {
    return atomic_load(&h->retiring) || atomic_load(&h->draining) || atomic_load(&h->leaving);
}

void request_release_model(struct request *r) {
    if (r->http->setup.release) r->http->setup.release(r);
}

void request_count_time(struct request *r, uint64_t begin_ns) {
    atomic_fetch_add_explicit(&r->http->costs.http_ns[r->row], clock_now_ns() - begin_ns,
                              memory_order_relaxed);
}

/* Returns as on_stream_read does. */
static ssize_t read_frames(struct request *r, char *buf, size_t max) {
    bool asked = false;
    for (;;) {
        watch_look(&r->watched);
        if (!watch_lent(&r->watched)) {
            if (atomic_load(&r->watched.gone)) return MHD_CONTENT_READER_END_WITH_ERROR;
            if (asked && watch_releasing(&r->watched)) return MHD_CONTENT_READER_END_WITH_ERROR;
            ssize_t n = r->ops->read(r, r->job, buf, max);
            if (n > 0) {
                uint64_t now = clock_now_ns();
                r->sent_bytes += (uint64_t)n;
                atomic_store(&r->watched.quiet_since_ns, now);
                conns_moved(&r->http->conns, r->conn, now, (uint64_t)n);
                return n;
            }
            if (n == JOB_READ_END) {
                conns_moved(&r->http->conns, r->conn, clock_now_ns(), 0);
                return MHD_CONTENT_READER_END_OF_STREAM;
            }
            if (n == JOB_READ_CUT) return MHD_CONTENT_READER_END_WITH_ERROR;
            if (n == JOB_READ_WORK) prepare_step(r);
            asked = n == 0;
        }
        if (watch_wait(&r->watched)) return 0;
    }
}

/* Called when the socket has taken all bytes of the previous call; the kernel holds what the client
 * has not read yet. */
static ssize_t on_stream_read(void *cls, uint64_t pos, char *buf, size_t max) {
    uint64_t begin_ns = clock_now_ns();
    (void)pos;
    conns_paused(((struct request *)cls)->conn);
    ssize_t n = read_frames(cls, buf, max);
    request_count_time(cls, begin_ns);
    return n;
}

/* A large body is sent in pieces, so that a client that does not read it is noticed. */
static ssize_t on_body_read(void *cls, uint64_t pos, char *buf, size_t max) {
    struct request *r = cls;
    const str *body = &r->reply.body;
    size_t n = body->len - (size_t)pos;
    if (n > max) n = max;
    memcpy(buf, body->data + pos, n);
    answers_read(&r->hold);
    return (ssize_t)n;
}

static struct MHD_Response *make_response(struct request *r) {
    struct reply *p = &r->reply;
    if (p->stream)
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, on_stream_read, r, NULL);
    if (p->fd > 0) {
        struct MHD_Response *response = MHD_create_response_from_fd64(p->n_data, p->fd);
        if (response) p->fd = 0; /* the response closes it */
        return response;
    }
    if (p->data)
        return MHD_create_response_from_buffer(p->n_data, (void *)p->data, MHD_RESPMEM_PERSISTENT);
    size_t n = p->body.len;
    if (r->hold.bytes) {
        answers_send(&r->http->answers, &r->hold, r->watched.fd);
        return MHD_create_response_from_callback(n, HTTP_IO_BYTES, on_body_read, r, NULL);
    }
    char *bytes = str_take(&p->body);
    if (!bytes) return NULL;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(n, bytes, MHD_RESPMEM_MUST_FREE);
    if (!response) free(bytes);
    return response;
}

/* A complete answer ends its job; from here on the answer's own bytes are counted. */
static void hold_body(struct request *r) {
    if (r->reply.stream) return;
    if (r->ops) r->ops->free(r->job);
    r->ops = NULL;
    r->job = NULL;
    if (r->route && (r->route->flags & ROUTE_DIRECT)) return; /* small, and needed at a limit */
    if (answers_hold(&r->http->answers, &r->hold, r->reply.body.len)) return;
    r->reply.n_headers = 0;
    reply_no_room(r);
}

enum MHD_Result request_send(struct request *r) {
    struct reply *p = &r->reply;
    hold_body(r);
    size_t n_body = p->data || p->fd > 0 ? p->n_data : p->body.len;
    reply_work_headers(r);
    if (!p->stream)
        request_release_model(r); /* a client that reads slowly does not keep it loaded */
    struct MHD_Response *response = make_response(r);
    if (!response) return MHD_NO;
    const struct protocol *protocol = request_protocol(r);
    enum MHD_Result ok = MHD_add_response_header(response, "x-request-id", r->id);
    if (ok && protocol && protocol->id_header)
        ok = MHD_add_response_header(response, protocol->id_header, r->id);
    if (ok && p->content_type)
        ok = MHD_add_response_header(response, "Content-Type", p->content_type);
    for (size_t i = 0; ok && i < p->n_headers; i++)
        ok = MHD_add_response_header(response, p->headers[i].name, p->headers[i].value);
    char traced[TRACE_HEADER_BYTES];
    if (ok && trace_header(r, traced))
        ok = MHD_add_response_header(response, "traceresponse", traced);
    struct cors_header cors[CORS_MAX_HEADERS];
    size_t n_cors = cors_headers(r, cors);
    for (size_t i = 0; ok && i < n_cors; i++)
        ok = MHD_add_response_header(response, cors[i].name, cors[i].value);
    if (ok && (r->close || http_is_stopping(r->http)))
        ok = MHD_add_response_header(response, "Connection", "close");
    if (ok) ok = MHD_queue_response(r->connection, p->status, response);
    r->queued = ok;
    if (!p->stream) conns_moved(&r->http->conns, r->conn, clock_now_ns(), n_body);
    if (!p->stream && strcmp(r->method, "HEAD") != 0) r->sent_bytes = n_body;
    /* A stream gets keep-alives before its first bytes, too. */
    if (p->stream) atomic_store(&r->watched.quiet_since_ns, clock_now_ns());
    MHD_destroy_response(response);
    return ok;
}
