/* http_head.c - whether the framing of a request's head, as libmicrohttpd has it, is unambiguous
 * (framing.h). Owns nothing; runs on HTTP threads. */
#include "api/http/http_int.h"

#include "api/http/error.h"
#include "api/http/framing.h"
#include "api/http/metrics.h"
#include "api/http/settings.h"
#include <string.h>
#include <strings.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* macOS: the library sets SO_NOSIGPIPE */
#endif

struct conn *head_conn(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static enum MHD_Result on_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                 size_t n_name, const char *value, size_t n_value) {
    (void)kind;
    framing_header(cls, name, n_name, value ? value : "\0", value ? n_value : 0);
    return MHD_YES;
}

/* The library ends each part of the first line with one zero byte and the line with two (one for a
 * bare LF). Returns where the headers must begin. */
static const char *check_line(struct framing *f, const struct conn *c, const char *method,
                              const char *version) {
    const char *end = version + strlen(version);
    if (method + strlen(method) + 1 == c->target && c->target + c->n_target + 1 == version &&
        !end[1])
        return end + 2;
    f->status = 400;
    f->why =
        "The request line must be a method, a target and a version, separated by single spaces, "
        "and end in CR LF.";
    return NULL;
}

static size_t head_bytes(const struct request *r) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return info ? info->header_size : 0;
}

static void check_framing(struct request *r, const char *method, const char *version,
                          struct framing *f) {
    const bool lenient = MHD_VERSION < 0x01000000;
    const struct conn *c = r->conn;
    if (c->target_fault) {
        f->status = 400;
        f->why = c->target_fault;
    }
    if (c->n_origin) {
        const char *host = memchr(c->target, '/', c->n_origin); /* the first of "://" */
        f->authority = host + 2;
        f->n_authority = c->n_origin - (size_t)(f->authority - c->target);
    }
    framing_method(f, method);
    if (lenient && !f->status) f->at = check_line(f, c, method, version);
    MHD_get_connection_values_n(r->connection, MHD_HEADER_KIND, on_header, f);
    framing_end(f, version, method + head_bytes(r));
}

bool head_check(struct request *r, const char *method, const char *version) {
    const struct http_config *c = &r->settings->config;
    struct framing f = {0};
    check_framing(r, method, version, &f);
    /* The library accepts chunk framings that RFC 9112 does not allow, and hides them. So bytes
     * after a chunked body are never parsed as a request: the connection ends with it. */
    r->conn->chunked = f.n_codings > 0;
    r->close = r->conn->reserved || f.n_codings > 0 || f.status;
    if (f.status)
        reply_error(r, &(struct api_error){f.status, "invalid_request_error", "malformed_request",
                                           NULL, f.why});
    else if (r->conn->n_target > c->max_header_bytes)
        reply_error(r, &(struct api_error){414, "invalid_request_error", "uri_too_long", NULL,
                                           "The request target is too long."});
    else if (head_bytes(r) > c->max_header_bytes)
        reply_error(r, &(struct api_error){431, "invalid_request_error", "headers_too_large", NULL,
                                           "The request headers are too large."});
    r->close |= r->reply.status != 0;
    return !r->reply.status;
}

void *head_on_target(void *http, const char *target, struct MHD_Connection *connection) {
    struct http *h = http;
    struct conn *c = head_conn(connection);
    if (!c) return NULL;
    c->target = target;
    c->n_target = target ? strlen(target) : 0;
    c->target_fault = framing_target(target, c->n_target, &c->n_origin);
    conns_line(&h->conns, c);
    return NULL;
}

/* ---- errors that the library answers wrongly by itself ---- */

/* Sends the only answer: afterwards the library cannot send, and sees the connection's end. Nothing
 * has been written to the socket since the request began, so there is room. With TLS the connection
 * just ends: its records are the library's. */
static void answer_once(struct conn *c, const char *why) {
    char body[256], text[512];
    int n_body = snprintf(body, sizeof body,
                          "{\"error\":{\"message\":\"%s\",\"type\":\"invalid_request_error\","
                          "\"param\":null,\"code\":\"malformed_request\"}}",
                          why);
    int n = snprintf(text, sizeof text,
                     "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n"
                     "Connection: close\r\nContent-Length: %d\r\n\r\n%s",
                     n_body, body);
    ssize_t sent = c->tls ? 0 : send(c->fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent;
    shutdown(c->fd, SHUT_WR);
    c->line = c->chunked = false;
}

/* Before 1.0, the library answers a Content-Length that it cannot parse, then answers once more. It
 * logs first, on the connection's thread: at that time this is the only connection whose head is
 * complete and that no handler has seen. */
static bool answer_unread(struct conn *c, void *found) {
    const union MHD_ConnectionInfo *info =
        c->line ? MHD_get_connection_info(c->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)
                : NULL;
    if (!info || !info->header_size) return false;
    answer_once(c, "Content-Length must be one decimal number.");
    return *(bool *)found = true;
}

struct chunked {
    struct conn *one;
    unsigned n;
};

static bool count_chunked(struct conn *c, void *arg) {
    struct chunked *all = arg;
    if (!c->chunked) return false;
    all->one = c;
    return ++all->n > 1;
}

static bool answer_chunked(struct conn *c, void *one) {
    if (c != one) return false;
    answer_once(c, "The chunk size line is too long.");
    return true;
}

void head_on_log(struct http *h, const char *line) {
    static const char too_long[] = "Error processing request (HTTP response code is 500";
    bool found = false;
    if (MHD_VERSION >= 0x01000000) return;
    conns_find(&h->conns, answer_unread, &found);
    if (found) metrics_count(h, h->setup.n_routes, 400);
    /* The library's only 500 before an answer: a chunk's size and extensions fill the buffer, which
     * is the client's fault. It does not say which client: if several send chunks, the 500 stays.
     */
    if (strncmp(line, too_long, sizeof too_long - 1) != 0) return;
    struct chunked all = {0};
    conns_find(&h->conns, count_chunked, &all);
    if (all.n == 1) conns_find(&h->conns, answer_chunked, all.one);
}
