/* http.c - the server on libmicrohttpd (0.9.75 and later). It owns the listening socket, the HTTP
 * threads and each struct request from its first callback to its end.
 *
 * What the library does and how this file deals with it:
 * - The handler is called with the headers, with pieces of the body, and once more when the body is
 *   complete. A reply queued at the first call closes the connection and may be lost when the
 *   client is still sending; so errors known from the headers are kept and sent after the body,
 *   which is read and dropped up to a bound. At once is answered who asked first (Expect:
 *   100-continue), announces far too much, or sends what has no certain end (http_head.c).
 * - A content reader that returns 0 would be called in a loop: it returns 0 only when watch_wait
 *   has suspended the connection. Suspended connections see no timeout and no hang-up: see watch.h.
 * - All suspended connections are resumed before MHD_stop_daemon: http_close.
 * - The values of a request's headers and parameters lie in the connection's memory until the
 *   request ends, and looking them up takes no lock: pool threads do it too, while the connection
 *   is suspended (prepare.h).
 * - The connection limit of the library leaves clients waiting in the backlog; ours (conns.h) makes
 *   room for them, the library's is set higher.
 * - Its timeout sees idle connections alone; what dawdles is for conns_reap, once a second.
 * - Without a descriptor for accept() a thread waits until one of its connections closes, or,
 *   having none, asks again without a pause: on_log sees both.
 *
 * Callbacks run on HTTP threads, one at a time per connection. */
#include "api/http/http_int.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum {
    BODIES_AT_ONCE = 16,        /* of the largest size, or more smaller ones, */
    FREE_BODY_BYTES = 64 << 10, /* not counting this much of each */
    DISCARD_BYTES = 64 << 20,   /* body dropped before a reply that is already known */
    IO_BUFFER_BYTES = 32 << 10, /* per connection, beside the headers */
    ARRIVAL_TIMEOUTS = 2,       /* idle timeouts that headers may take, and a body besides */
    RESERVE_WAIT_S = 5,         /* the same, for connections beyond the limit */
    BODY_GRACE_S = 1,           /* a slower body may give way to a new connection at the limit */
    SAY_AGAIN_S = 10,           /* between log lines about limits */
    CLOSE_WAIT_MS = 1000        /* for last frames to leave when the daemon stops */
};

/* ---- a request's begin and end ---- */

static void suspend_connection(struct watched *w) {
    MHD_suspend_connection(((struct request *)w)->connection);
}

static void resume_connection(struct watched *w) {
    MHD_resume_connection(((struct request *)w)->connection);
}

void request_drop_body(struct request *r) {
    atomic_fetch_sub(&r->api->n_body_bytes, r->kept_bytes);
    r->kept_bytes = 0;
    str_fini(&r->body);
}

static void destroy_request(struct watched *w) {
    struct request *r = (struct request *)w;
    request_drop_body(r);
    str_fini(&r->reply.body);
    free(r);
}

/* The client's own id, under either of the names that are in use, if it is harmless in a log line
 * and a header; else a new one. */
static void set_id(struct request *r) {
    const char *given = request_header(r, "x-request-id");
    if (!given) given = request_header(r, "X-Client-Request-Id");
    size_t n = given ? strlen(given) : 0;
    bool ok = n > 0 && n < sizeof r->id;
    for (size_t i = 0; ok && i < n; i++)
        ok = isalnum((unsigned char)given[i]) || strchr("-_.", given[i]);
    if (ok)
        memcpy(r->id, given, n + 1);
    else
        api_new_id(r->id, "req_");
}

struct conn *conn_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static struct request *begin_request(api *a, struct MHD_Connection *connection, const char *url,
                                     const char *method) {
    struct conn *c = conn_of(connection);
    struct request *r = c ? mem_new(1, sizeof *r) : NULL;
    if (!r) return NULL;
    r->api = a;
    r->connection = connection;
    r->conn = c;
    r->start_ns = clock_now_ns();
    conns_body(&a->http->conns, c);
    str_init(&r->body, (size_t)a->config.max_body_bytes);
    str_init(&r->reply.body, REPLY_MAX_BYTES);
    snprintf(r->method, sizeof r->method, "%s", method);
    url += c->n_origin; /* it has no escapes, so it is as long as before they were decoded */
    snprintf(r->path, sizeof r->path, "%s", *url ? url : "/");
    set_id(r);
    watch_begin(a->watch, &r->watched);
    return r;
}

static void log_request(const struct request *r, unsigned status, bool cut) {
    char method[4 * sizeof r->method], path[512];
    log_info("%s %s %u%s %.1f ms %s prompt_tokens=%llu completion_tokens=%llu",
             log_field(method, sizeof method, r->method), log_field(path, sizeof path, r->path),
             status, cut ? " (cut off)" : "", (double)(clock_now_ns() - r->start_ns) / 1e6, r->id,
             (unsigned long long)r->prompt_tokens, (unsigned long long)r->completion_tokens);
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **con_cls,
                         enum MHD_RequestTerminationCode how) {
    struct request *r = *con_cls;
    api *a = cls;
    (void)connection;
    if (!r) return;
    *con_cls = NULL;
    conns_wait(&a->http->conns, r->conn);
    if (r->ops && !(r->ops->cut && r->ops->cut(r, r->job))) r->ops->free(r->job);
    r->ops = NULL;
    answers_hold(&a->answers, &r->hold, 0);
    str_fini(&r->reply.body);
    bool cut = how != MHD_REQUEST_TERMINATED_COMPLETED_OK;
    unsigned status = r->queued ? r->reply.status : 499; /* nginx's code for "client gone" */
    metrics_count(a, r->route, status);
    log_request(r, status, cut);
    if (r->key_number) {
        struct key_costs *k = request_key_costs(r);
        atomic_fetch_add(&k->n_requests, 1);
        atomic_fetch_add(&k->prompt_tokens, r->prompt_tokens);
        atomic_fetch_add(&k->completion_tokens, r->completion_tokens);
    }
    if (r->active) atomic_fetch_sub(&a->n_active, 1);
    watch_end(&r->watched);
}

/* ---- replies ---- */

/* Time of an HTTP thread since begin_ns went into r. */
static void count_time(struct request *r, uint64_t begin_ns) {
    atomic_fetch_add_explicit(&r->api->costs.http_ns[route_row(r->route)],
                              clock_now_ns() - begin_ns, memory_order_relaxed);
}

/* As read_stream, which is what libmicrohttpd calls. */
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
                atomic_store(&r->watched.quiet_since_ns, now);
                conns_moved(&r->api->http->conns, r->conn, now, (uint64_t)n);
                return n;
            }
            if (n == JOB_READ_END) {
                conns_moved(&r->api->http->conns, r->conn, clock_now_ns(), 0);
                return MHD_CONTENT_READER_END_OF_STREAM;
            }
            if (n == JOB_READ_WORK) prepare_step(r);
            asked = n == 0;
        }
        if (watch_wait(&r->watched)) return 0;
    }
}

/* Called when all bytes of the call before are with the socket: what the client has not read of
 * those is the kernel's. */
static ssize_t read_stream(void *cls, uint64_t pos, char *buf, size_t max) {
    uint64_t begin_ns = clock_now_ns();
    (void)pos;
    conns_paused(((struct request *)cls)->conn);
    ssize_t n = read_frames(cls, buf, max);
    count_time(cls, begin_ns);
    return n;
}

/* A large body goes out in pieces, so that who does not read it can be told. */
static ssize_t read_body(void *cls, uint64_t pos, char *buf, size_t max) {
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
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_stream, r, NULL);
    if (p->data)
        return MHD_create_response_from_buffer(p->n_data, (void *)p->data, MHD_RESPMEM_PERSISTENT);
    size_t n = p->body.len;
    if (r->hold.bytes) {
        answers_send(&r->api->answers, &r->hold, r->watched.fd);
        return MHD_create_response_from_callback(n, IO_BUFFER_BYTES, read_body, r, NULL);
    }
    char *bytes = str_take(&p->body);
    if (!bytes) return NULL;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(n, bytes, MHD_RESPMEM_MUST_FREE);
    if (!response) free(bytes);
    return response;
}

/* A whole answer is all that its job was for; the bytes of the answer count from here on. */
static void hold_body(struct request *r) {
    if (r->reply.stream) return;
    if (r->ops) r->ops->free(r->job);
    r->ops = NULL;
    r->job = NULL;
    if (r->route && (r->route->flags & ROUTE_DIRECT)) return; /* small, and to be seen at a limit */
    if (answers_hold(&r->api->answers, &r->hold, r->reply.body.len)) return;
    r->reply.n_headers = 0;
    reply_no_room(r);
}

static enum MHD_Result send_reply(struct request *r) {
    struct reply *p = &r->reply;
    hold_body(r);
    size_t n_body = p->data ? p->n_data : p->body.len;
    reply_work_headers(r);
    struct MHD_Response *response = make_response(r);
    if (!response) return MHD_NO;
    enum MHD_Result ok = MHD_add_response_header(response, "x-request-id", r->id);
    /* What Anthropic's SDKs call it. */
    if (ok && r->route && (r->route->flags & ROUTE_ANTHROPIC))
        ok = MHD_add_response_header(response, "request-id", r->id);
    if (ok && p->content_type)
        ok = MHD_add_response_header(response, "Content-Type", p->content_type);
    for (size_t i = 0; ok && i < p->n_headers; i++)
        ok = MHD_add_response_header(response, p->headers[i].name, p->headers[i].value);
    if (ok && (r->close || atomic_load(&r->api->draining)))
        ok = MHD_add_response_header(response, "Connection", "close");
    if (ok) ok = MHD_queue_response(r->connection, p->status, response);
    r->queued = ok;
    if (!p->stream) conns_moved(&r->api->http->conns, r->conn, clock_now_ns(), n_body);
    /* Also a stream whose first bytes are long in coming gets keep-alives. */
    if (p->stream) atomic_store(&r->watched.quiet_since_ns, clock_now_ns());
    MHD_destroy_response(response);
    return ok;
}

/* ---- requests ---- */

static void refuse_body(struct request *r) {
    char message[96];
    snprintf(message, sizeof message, "The request body is larger than %llu bytes.",
             (unsigned long long)r->api->config.max_body_bytes);
    r->discard_body = true;
    reply_error(
        r, &(struct api_error){413, "invalid_request_error", "request_too_large", NULL, message});
}

/* Beyond max-connections, with nothing that waits: only health is told. */
static bool check_reserve(struct request *r) {
    if (!r->conn->reserved || (r->route->flags & ROUTE_HEALTH)) return true;
    reply_error(r, &(struct api_error){503, "server_error", "overloaded", NULL,
                                       "Too many connections are open: try again later."});
    return false;
}

/* Headers are there, the body is not. */
static enum MHD_Result on_headers(struct request *r, const char *method, const char *version) {
    const char *length = request_header(r, "Content-Length");
    uint64_t announced = length ? strtoull(length, NULL, 10) : 0;
    bool framed = head_check(r, method, version);
    if (framed && route_check(r) && check_reserve(r) && announced > r->api->config.max_body_bytes)
        refuse_body(r);
    if (!r->reply.status) return MHD_YES;
    r->discard_body = true;
    if (framed && !r->conn->reserved && !request_header(r, "Expect") && announced <= DISCARD_BYTES)
        return MHD_YES;
    conns_answer(&r->api->http->conns, r->conn);
    return send_reply(r);
}

/* Connections times max_body_bytes would be more memory than any machine has. The first bytes of
 * each body are not counted, so that large requests, also slow ones, never keep out common ones. */
static bool keep_bytes(struct request *r) {
    uint64_t kept = r->body_bytes > FREE_BODY_BYTES ? r->body_bytes - FREE_BODY_BYTES : 0;
    uint64_t more = kept - r->kept_bytes;
    r->kept_bytes = kept;
    if (!more) return true;
    return atomic_fetch_add(&r->api->n_body_bytes, more) + more <=
           r->api->config.max_body_bytes * BODIES_AT_ONCE;
}

static enum MHD_Result on_body(struct request *r, const char *bytes, size_t *n) {
    r->body_bytes += *n;
    conns_moved(&r->api->http->conns, r->conn, r->start_ns, r->body_bytes);
    if (!r->discard_body && r->body_bytes > r->api->config.max_body_bytes) refuse_body(r);
    if (!r->discard_body && !keep_bytes(r)) {
        r->discard_body = true;
        request_drop_body(r);
        atomic_fetch_add(&r->api->costs.n_rejected[REJECT_BODY_BYTES], 1);
        reply_error(r, &(struct api_error){503, "server_error", "overloaded", NULL,
                                           "Too many large requests arrive at once: try again "
                                           "later."});
    }
    if (!r->discard_body) {
        str_add_n(&r->body, bytes, *n);
        if (r->body.failed) return MHD_NO;
    } else if (r->body_bytes > DISCARD_BYTES) {
        return MHD_NO;
    }
    *n = 0;
    return MHD_YES;
}

static bool watch_connection(struct request *r) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (!info) return false;
    watch_fd(&r->watched, info->connect_fd);
    return true;
}

/* Whose turn it takes among those that wait for the pool: its key's, or its address's (of an IPv6
 * one the network). */
static uint64_t client_of(const struct request *r) {
    if (r->key_number) return r->key_number;
    uint64_t client;
    memcpy(&client, r->conn->address.bytes + 1, sizeof client);
    return client;
}

/* The body is there: what answers it begins. */
static bool begin_answer(struct request *r) {
    r->handled = true;
    conns_answer(&r->api->http->conns, r->conn);
    if (r->reply.status) {
        request_drop_body(r);
    } else if (r->route->flags & ROUTE_DIRECT) {
        r->route->handle(r);
        request_drop_body(r);
    } else {
        if (!watch_connection(r)) return false;
        r->item.client = client_of(r);
        prepare_put(r);
    }
    return true;
}

/* The request is complete: answer it, or wait for the pool or the job's next event. */
static enum MHD_Result advance(struct request *r) {
    bool asked = false; /* the job, in this call */
    if (!r->handled && !begin_answer(r)) return MHD_NO;
    for (;;) {
        watch_look(&r->watched);
        if (!watch_lent(&r->watched)) {
            if (r->reply.status) return send_reply(r);
            if (!r->ops || atomic_load(&r->watched.gone)) return MHD_NO;
            if (asked && watch_releasing(&r->watched)) return MHD_NO;
            enum job_status status = r->ops->poll(r, r->job);
            if (status == JOB_REPLY) return send_reply(r);
            if (status == JOB_WORK) prepare_step(r);
            asked = status == JOB_WAIT;
        }
        if (watch_wait(&r->watched)) return MHD_YES;
    }
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *bytes,
                                  size_t *n, void **con_cls) {
    uint64_t begin_ns = clock_now_ns();
    struct request *r = *con_cls;
    enum MHD_Result result;
    if (!r) {
        r = begin_request(cls, connection, url, method);
        if (!r) return MHD_NO;
        *con_cls = r;
        result = on_headers(r, method, version);
    } else if (*n) {
        result = on_body(r, bytes, n);
    } else {
        result = advance(r);
    }
    count_time(r, begin_ns);
    return result;
}

/* ---- connections ---- */

static enum MHD_Result accept_policy(void *cls, const struct sockaddr *addr, socklen_t n) {
    struct http *h = cls;
    (void)n;
    return conns_admit(&h->conns, addr) ? MHD_YES : MHD_NO;
}

static void on_connection(void *cls, struct MHD_Connection *connection, void **socket_cls,
                          enum MHD_ConnectionNotificationCode what) {
    struct http *h = cls;
    struct conn *c = *socket_cls;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *fd =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        const union MHD_ConnectionInfo *from =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
        *socket_cls = c = mem_new(1, sizeof *c);
        if (!c) { /* no memory: it ends at once */
            if (fd) shutdown(fd->connect_fd, SHUT_RDWR);
            return;
        }
        c->fd = fd ? fd->connect_fd : -1;
        c->connection = connection;
        conns_open(&h->conns, c, from ? from->client_addr : NULL);
    } else if (c) {
        conns_close(&h->conns, c);
        free(c);
        *socket_cls = NULL;
    }
}

/* Once a second, on the watcher thread. */
static void on_tick(void *arg) {
    struct http *h = arg;
    struct conns_counts now;
    uint64_t now_ns = clock_now_ns();
    conns_reap(&h->conns);
    if (now_ns - h->said_ns < SAY_AGAIN_S * UINT64_C(1000000000)) return;
    conns_get(&h->conns, &now);
    const struct conns_counts *was = &h->said;
    if (now.evicted != was->evicted || now.reserved != was->reserved ||
        now.refused_full != was->refused_full || now.refused_address != was->refused_address)
        log_warn("connections are at a limit (max-connections = %u, max-connections-per-address = "
                 "%u): %llu idle ones gave way, %llu could only ask for health, %llu were refused, "
                 "%llu by their address",
                 h->conns.config.max, h->conns.config.max_per_address,
                 (unsigned long long)(now.evicted - was->evicted),
                 (unsigned long long)(now.reserved - was->reserved),
                 (unsigned long long)(now.refused_full - was->refused_full),
                 (unsigned long long)(now.refused_address - was->refused_address));
    h->said = now;
    h->said_ns = now_ns;
}

/* accept() had no descriptor: the longest wait gives its one up. The pause is for a thread without
 * connections, which asks again at once. */
static void out_of_files(struct http *h) {
    uint64_t now = clock_now_ns(), last = atomic_load(&h->out_of_files_ns);
    conns_evict(&h->conns);
    if ((!last || now - last >= SAY_AGAIN_S * UINT64_C(1000000000)) &&
        atomic_compare_exchange_strong(&h->out_of_files_ns, &last, now))
        log_warn(
            "a connection cannot be accepted: the process or the system has no more open files "
            "(ulimit -n)");
    nanosleep(&(struct timespec){0, 5 * 1000000}, NULL);
}

static void on_log(void *cls, const char *fmt, va_list ap) {
    static const char no_files[] = "Hit process or system resource limit";
    char line[512];
    struct http *h = cls;
    vsnprintf(line, sizeof line, fmt, ap);
    log_debug("libmicrohttpd: %s", line);
    if (strncmp(line, no_files, sizeof no_files - 1) == 0) out_of_files(h);
    head_on_log(h, line);
}

int http_open(api *a, struct http **out, err *e) {
    const struct api_config *c = &a->config;
    struct http *h = mem_new(1, sizeof *h);
    if (!h) return err_no_memory(e);
    *out = h;
    h->api = a;
    h->listen_fd = -1;
    const uint64_t second = UINT64_C(1000000000);
    conns_init(&h->conns, &(struct conns_config){c->max_connections, c->max_per_address,
                                                 c->idle_timeout_s * second * ARRIVAL_TIMEOUTS,
                                                 RESERVE_WAIT_S * second, BODY_GRACE_S * second});
    struct watch_config wc = {.keepalive_ms = c->keepalive_ms,
                              .suspend = suspend_connection,
                              .resume = resume_connection,
                              .destroy = destroy_request,
                              .tick = on_tick,
                              .tick_arg = h};
    int family, rc = watch_open(&wc, &a->watch, e);
    if (!rc) rc = prepare_open(a, e);
    if (!rc) rc = listen_open(c, &h->listen_fd, e);
    if (rc) return rc;
    h->port = listen_port(h->listen_fd, &family);

    unsigned threads = c->n_threads ? c->n_threads : 1;
    unsigned flags = MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
                     (family == AF_INET6 ? MHD_USE_IPv6 : 0);
    /* As strict as RFC 9112 asks for; 2 and 3 refuse what it allows. Before 1.0 the only such
     * option answers twice what it refuses: see http_head.c. */
    struct MHD_OptionItem more[] = {
#if MHD_VERSION >= 0x01000000
        {MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1, NULL},
#endif
        {threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, (intptr_t)threads, NULL},
        {MHD_OPTION_END, 0, NULL}
    };
    h->daemon = MHD_start_daemon(
        flags, 0, accept_policy, h, on_request, a, MHD_OPTION_EXTERNAL_LOGGER, on_log, h,
        MHD_OPTION_LISTEN_SOCKET, (MHD_socket)h->listen_fd, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, a, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
        MHD_OPTION_URI_LOG_CALLBACK, head_on_target, h, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)c->idle_timeout_s, MHD_OPTION_CONNECTION_LIMIT,
        (c->max_connections + CONNS_RESERVE + CONNS_CLOSING + 1) * threads,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)c->max_header_bytes * 2 + IO_BUFFER_BYTES,
        MHD_OPTION_ARRAY, more, MHD_OPTION_END);
    if (!h->daemon) return err_set(e, ERR_IO, "cannot start the HTTP threads: %s", strerror(errno));
    return 0;
}

uint16_t http_port(const struct http *h) {
    return h->port;
}

void http_conns_get(struct http *h, struct conns_counts *out) {
    conns_get(&h->conns, out);
}

void http_close(struct http *h) {
    if (!h) return;
    api *a = h->api;
    if (h->daemon) {
        MHD_socket fd = MHD_quiesce_daemon(h->daemon);
        atomic_store(&a->closing, true);
        work_pool_stop(a->pool);
        watch_release_all(a->watch);
        for (int i = 0; i < CLOSE_WAIT_MS / 5 && api_n_active(a); i++)
            nanosleep(&(struct timespec){0, 5 * 1000000}, NULL);
        /* No connection may be suspended, or a pool thread's, any more. */
        work_pool_close(a->pool);
        MHD_stop_daemon(h->daemon);
        if (fd != MHD_INVALID_SOCKET) h->listen_fd = fd;
    }
    work_pool_close(a->pool);
    work_pool_free(a->pool);
    watch_close(a->watch);
    if (h->listen_fd >= 0) close(h->listen_fd);
    conns_fini(&h->conns);
    free(h);
}
