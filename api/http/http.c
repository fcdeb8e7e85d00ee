/* http.c - the server on libmicrohttpd (0.9.75 and later). It owns the listening socket, the HTTP
 * threads and each struct request from its first callback to its end.
 *
 * Properties of the library, and how this file deals with them:
 * - The handler is called with the headers, with pieces of the body, and once more when the body is
 *   complete. A reply queued at the first call closes the connection, and may be lost while the
 *   client is still sending. So errors known from the headers are kept and sent after the body,
 *   which is read and dropped up to a limit. A reply is sent at once if the client waits for it
 *   (Expect: 100-continue), announces far too much, or sends a request whose end is uncertain
 *   (http_head.c).
 * - A content reader that returns 0 would be called in a loop. It returns 0 only when watch_wait
 * has suspended the connection. A suspended connection sees no timeout and no hang-up: see watch.h.
 * - All suspended connections are resumed before MHD_stop_daemon: http_close.
 * - The values of a request's headers and parameters lie in the connection's memory until the
 *   request ends. Looking them up takes no lock, so pool threads do it too while the connection is
 *   suspended (prepare.h).
 * - The library's connection limit leaves clients waiting in the backlog. Ours (conns.h) makes room
 *   for them; the library's is set higher.
 * - Its timeout notices idle connections only; conns_reap, called once a second, ends slow ones.
 * - It cannot stop to accept while its connections go on: accept.c does it.
 *
 * Callbacks run on HTTP threads, one at a time per connection. */
#include "api/http/http_int.h"

#include "api/http/error.h"
#include "api/http/id.h"
#include "api/http/local.h"
#include "api/http/metrics.h"
#include "api/http/prepare.h"
#include "api/http/route.h"

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
    BODIES_AT_ONCE = 16,        /* memory for bodies, as a multiple of the largest body, */
    FREE_BODY_BYTES = 64 << 10, /* without counting this much of each */
    DISCARD_BYTES = 64 << 20,   /* body that is dropped before a reply that is already known */
    ARRIVAL_TIMEOUTS = 2,       /* idle timeouts that headers may take, and a body again */
    RESERVE_WAIT_S = 5,         /* the same, for connections beyond the limit */
    BODY_GRACE_S = 1,           /* an older incomplete body may be evicted for a new connection */
    FRESH_MS = 100,             /* so may one without a request that is older */
    LOG_INTERVAL_S = 10,        /* between log lines about limits */
    CLOSE_WAIT_MS = 1000        /* for the last frames to leave when the daemon stops */
};

/* ---- begin and end of a request ---- */

static void suspend_connection(struct watched *w) {
    struct request *r = (struct request *)w;
    if (!r->local) MHD_suspend_connection(r->connection);
}

static void resume_connection(struct watched *w) {
    struct request *r = (struct request *)w;
    if (r->local)
        r->local->wake(r->local->arg);
    else
        MHD_resume_connection(r->connection);
}

static void destroy_request(struct watched *w) {
    struct request *r = (struct request *)w;
    request_drop_body(r);
    str_fini(&r->reply.body);
    settings_drop(r->settings);
    free(r->local);
    free(r);
}

/* The client's own id, under either of the names in use, if it is safe in a log line and a header;
 * otherwise a new one. */
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
        id_new(r->id, "req_");
}

struct forwarding {
    struct forwarded *to;
    const struct networks *trusted;
};

static void on_header(void *arg, const char *name, const char *value) {
    const struct forwarding *f = arg;
    forwarded_header(f->to, f->trusted, name, value);
}

static void read_forwarded(struct request *r) {
    struct forwarding f = {&r->forwarded, &r->settings->proxies};
    if (networks_hold(f.trusted, &r->conn->peer)) request_header_each(r, on_header, &f);
}

static const struct settings *current_settings(struct http *h) {
    pthread_mutex_lock(&h->settings_mu);
    const struct settings *s = settings_hold(h->settings);
    pthread_mutex_unlock(&h->settings_mu);
    return s;
}

struct request *request_new(struct http *h, const char *method, const char *path) {
    struct request *r = mem_new(1, sizeof *r);
    if (!r) return NULL;
    r->http = h;
    r->api = h->setup.api;
    r->row = h->setup.n_routes;
    r->start_ns = clock_now_ns();
    r->settings = current_settings(h);
    str_init(&r->body, (size_t)r->settings->config.max_body_bytes);
    str_init(&r->reply.body, REPLY_MAX_BYTES);
    snprintf(r->method, sizeof r->method, "%s", method);
    snprintf(r->path, sizeof r->path, "%s", path);
    return r;
}

static struct request *begin_request(struct http *h, struct MHD_Connection *connection,
                                     const char *url, const char *method) {
    struct conn *c = head_conn(connection);
    if (!c) return NULL;
    conns_body(&h->conns, c);
    url += c->n_origin; /* the origin has no escapes, so decoding has not changed its length */
    struct request *r = request_new(h, method, *url ? url : "/");
    if (!r) return NULL;
    r->connection = connection;
    r->conn = c;
    set_id(r);
    read_forwarded(r);
    watch_begin(h->watch, &r->watched);
    return r;
}

void request_end(struct request *r, bool cut) {
    struct http *h = r->http;
    if (r->taken) r->route->taker->free(r->taken);
    if (r->reply.fd > 0) close(r->reply.fd);
    if (r->ops && !(r->ops->cut && r->ops->cut(r, r->job))) r->ops->free(r->job);
    r->ops = NULL;
    request_release_model(r);
    answers_hold(&h->answers, &r->hold, 0);
    str_fini(&r->reply.body);
    unsigned status = r->queued ? r->reply.status : 499; /* nginx's code for "client gone" */
    metrics_count(h, r->row, status);
    access_add(&h->access, r, status, cut);
    if (!r->local) recent_add(&h->recent, r, status, cut);
    trace_end(r, status, cut);
    request_account(r);
    if (h->setup.ended) h->setup.ended(r, status);
    if (r->key.number) {
        struct key_costs *k = costs_of_key(r);
        atomic_fetch_add(&k->n_requests, 1);
        atomic_fetch_add(&k->prompt_tokens, r->prompt_tokens);
        atomic_fetch_add(&k->completion_tokens, r->completion_tokens);
    }
    if (r->active) atomic_fetch_sub(&h->n_active, 1);
    watch_end(&r->watched);
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **con_cls,
                         enum MHD_RequestTerminationCode how) {
    struct request *r = *con_cls;
    struct http *h = cls;
    (void)connection;
    if (!r) return;
    *con_cls = NULL;
    conns_wait(&h->conns, r->conn);
    request_end(r, how != MHD_REQUEST_TERMINATED_COMPLETED_OK);
}

/* ---- requests ---- */

static uint64_t most_body_bytes(const struct request *r) {
    const struct body_taker *taker = r->route ? r->route->taker : NULL;
    return taker ? taker->max_bytes(r) : r->settings->config.max_body_bytes;
}

static void refuse_body(struct request *r) {
    char message[96];
    snprintf(message, sizeof message, "The request body is larger than %llu bytes.",
             (unsigned long long)most_body_bytes(r));
    r->discard_body = true;
    reply_error(
        r, &(struct api_error){413, "invalid_request_error", "request_too_large", NULL, message});
}

/* On a connection beyond max-connections only health is answered. */
static bool check_reserve(struct request *r) {
    if (!r->conn->reserved || (r->route->flags & ROUTE_HEALTH)) return true;
    reply_error(r, &(struct api_error){503, "server_error", "overloaded", NULL,
                                       "Too many connections are open: try again later."});
    return false;
}

/* A trusted proxy's connections have no limit by address; the requests of each client behind it
 * have. */
static bool check_client(struct request *r) {
    const struct address *client = &r->forwarded.client;
    if (!client->family || conns_forward(&r->http->conns, r->conn, client)) return true;
    reply_error(r, &(struct api_error){429, "requests", "rate_limit_exceeded", NULL,
                                       "Too many requests from your address at once: try again "
                                       "later."});
    return false;
}

/* The headers are complete. */
static enum MHD_Result on_headers(struct request *r, const char *method, const char *version) {
    const char *length = request_header(r, "Content-Length");
    uint64_t announced = length ? strtoull(length, NULL, 10) : 0;
    bool framed = head_check(r, method, version);
    bool passed = framed && route_check(r);
    trace_begin(r);
    if (passed && check_reserve(r) && check_client(r)) {
        if (announced > most_body_bytes(r))
            refuse_body(r);
        else if (r->route->taker)
            r->route->taker->begin(r);
    }
    if (!r->reply.status) return MHD_YES;
    r->discard_body = true;
    if (framed && !r->conn->reserved && !request_header(r, "Expect") && announced <= DISCARD_BYTES)
        return MHD_YES;
    conns_answer(&r->http->conns, r->conn);
    return request_send(r);
}

/* Every connection with a body of max_body_bytes would exceed any machine's memory, so all bodies
 * share a limit. The first bytes of each body are not counted: large requests, slow ones included,
 * never keep small ones out. */
static bool count_body_bytes(struct request *r) {
    uint64_t kept = r->body_bytes > FREE_BODY_BYTES ? r->body_bytes - FREE_BODY_BYTES : 0;
    uint64_t more = kept - r->kept_bytes;
    r->kept_bytes = kept;
    if (!more) return true;
    return atomic_fetch_add(&r->http->n_body_bytes, more) + more <=
           r->settings->config.max_body_bytes * BODIES_AT_ONCE;
}

static enum MHD_Result on_body(struct request *r, const char *bytes, size_t *n) {
    r->body_bytes += *n;
    conns_moved(&r->http->conns, r->conn, r->start_ns, r->body_bytes);
    if (!r->discard_body && r->body_bytes > most_body_bytes(r)) refuse_body(r);
    if (!r->discard_body && r->route->taker) {
        r->discard_body = !r->route->taker->take(r, bytes, *n);
        *n = r->discard_body ? *n : 0;
        if (!*n) return MHD_YES;
    }
    if (!r->discard_body && !count_body_bytes(r)) {
        r->discard_body = true;
        request_drop_body(r);
        atomic_fetch_add(&r->http->costs.n_rejected[REJECT_BODY_BYTES], 1);
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

/* The client for the pool's turns: its key, or its address (IPv6: its network). */
static uint64_t client_of(const struct request *r) {
    if (r->key.number) return r->key.number;
    uint64_t client;
    memcpy(&client, r->conn->address.bytes + 1, sizeof client);
    return client;
}

/* The body is complete: starts the answer. */
static bool begin_answer(struct request *r) {
    r->handled = true;
    conns_answer(&r->http->conns, r->conn);
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

/* The request is complete: answers it, or waits for the pool or the job's next event. */
static enum MHD_Result advance_request(struct request *r) {
    bool asked = false; /* the job was polled in this call */
    if (!r->handled && !begin_answer(r)) return MHD_NO;
    for (;;) {
        watch_look(&r->watched);
        if (!watch_lent(&r->watched)) {
            if (r->reply.status) return request_send(r);
            if (!r->ops || atomic_load(&r->watched.gone)) return MHD_NO;
            if (asked && watch_releasing(&r->watched)) return MHD_NO;
            enum job_status status = r->ops->poll(r, r->job);
            if (status == JOB_REPLY) return request_send(r);
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
        result = advance_request(r);
    }
    request_count_time(r, begin_ns);
    return result;
}

/* ---- connections ---- */

static enum MHD_Result accept_policy(void *cls, const struct sockaddr *addr, socklen_t n) {
    struct http *h = cls;
    (void)n;
    return conns_admit(&h->conns, addr) ? MHD_YES : MHD_NO;
}

/* ---- TLS ---- */

/* The session's pointer: the library has put the connection there, for a feature that is not used.
 */
static int give_certificate(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
                            gnutls_pcert_st **chain, unsigned *n, gnutls_ocsp_data_st **ocsp,
                            unsigned *n_ocsp, gnutls_privkey_t *key, unsigned *flags) {
    const struct settings *s = current_settings(gnutls_session_get_ptr(session));
    (void)info;
    *ocsp = NULL;
    *n_ocsp = 0;
    int rc = s->tls ? tls_give_certificate(s->tls, chain, n, key, flags) : -1;
    settings_drop(s);
    return rc;
}

static int check_client_certificate(gnutls_session_t session) {
    const struct settings *s = current_settings(gnutls_session_get_ptr(session));
    int rc = s->tls && tls_needs_client(s->tls) ? tls_check_client(s->tls, session) : 0;
    settings_drop(s);
    return rc;
}

/* Before the handshake. */
static void begin_tls(struct http *h, struct conn *c, const struct settings *s) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (!info || !info->tls_session) return;
    c->tls = true;
    gnutls_session_set_ptr(info->tls_session, h);
    if (!s->tls || !tls_needs_client(s->tls)) return;
    gnutls_certificate_server_set_request(info->tls_session, GNUTLS_CERT_REQUIRE);
    gnutls_session_set_verify_function(info->tls_session, check_client_certificate);
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
        if (!c) { /* out of memory: the connection ends at once */
            atomic_fetch_add(&h->daemon->n_begun, 1);
            if (fd) shutdown(fd->connect_fd, SHUT_RDWR);
            return;
        }
        c->fd = fd ? fd->connect_fd : -1;
        c->connection = connection;
        const struct settings *s = current_settings(h);
        if (s->config.idle_timeout_s != h->config.idle_timeout_s)
            MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT,
                                      (unsigned)s->config.idle_timeout_s);
        begin_tls(h, c, s);
        settings_drop(s);
        conns_open(&h->conns, c, from ? from->client_addr : NULL);
        atomic_fetch_add(&h->daemon->n_begun, 1);
    } else if (c) {
        conns_close(&h->conns, c);
        free(c);
        *socket_cls = NULL;
    }
}

/* Once a second, on the watcher thread. */
static void on_tick(void *arg) {
    struct http *h = arg;
    struct http_daemon *d = h->daemon;
    struct conns_counts now;
    uint64_t now_ns = clock_now_ns();
    conns_reap(&h->conns);
    if (h->setup.tick) h->setup.tick(h->setup.api);
    if (now_ns - d->logged_ns < LOG_INTERVAL_S * UINT64_C(1000000000)) return;
    conns_get(&h->conns, &now);
    const struct conns_counts *was = &d->logged;
    if (now.evicted != was->evicted || now.reserved != was->reserved ||
        now.refused_full != was->refused_full || now.refused_address != was->refused_address)
        log_warn("connections are at a limit (max_connections = %u, max_per_address = "
                 "%u): %llu idle ones were closed, %llu could only request health, %llu "
                 "were refused, and %llu because of their address",
                 h->config.max_connections, now.max_per_address,
                 (unsigned long long)(now.evicted - was->evicted),
                 (unsigned long long)(now.reserved - was->reserved),
                 (unsigned long long)(now.refused_full - was->refused_full),
                 (unsigned long long)(now.refused_address - was->refused_address));
    d->logged = now;
    d->logged_ns = now_ns;
}

static void on_log(void *cls, const char *fmt, va_list ap) {
    char line[512];
    struct http *h = cls;
    vsnprintf(line, sizeof line, fmt, ap);
    log_debug("libmicrohttpd: %s", line);
    head_on_log(h, line);
}

/* ---- the server ---- */

static int start_listener(struct http *h, struct listener *l, err *e) {
    const struct http_config *c = &h->config;
    unsigned threads = c->n_threads ? c->n_threads : 1;
    unsigned flags = MHD_USE_AUTO_INTERNAL_THREAD | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC |
                     MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
                     (l->family == AF_INET6 ? MHD_USE_IPv6 : 0) | (l->at.tls ? MHD_USE_TLS : 0);
    struct MHD_OptionItem more[5];
    size_t n = 0;
#if MHD_VERSION >= 0x01000000
    /* 1 is as strict as RFC 9112; 2 and 3 refuse what it allows. Before 1.0 the only such option
     * answers twice what it refuses: see http_head.c. */
    more[n++] = (struct MHD_OptionItem){MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1, NULL};
#endif
    if (threads > 1)
        more[n++] = (struct MHD_OptionItem){MHD_OPTION_THREAD_POOL_SIZE, (intptr_t)threads, NULL};
    if (l->at.tls) {
        more[n++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_CERT_CALLBACK2, 0,
                                            (void *)(intptr_t)give_certificate};
        more[n++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_PRIORITIES, 0,
                                            (void *)(intptr_t)tls_priorities};
    }
    more[n] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    l->mhd = MHD_start_daemon(
        flags, 0, accept_policy, h, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_log, h,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
        h, MHD_OPTION_URI_LOG_CALLBACK, head_on_target, h, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)c->idle_timeout_s, MHD_OPTION_CONNECTION_LIMIT,
        (c->max_connections + CONNS_RESERVE + CONNS_CLOSING + 1) * threads,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)c->max_header_bytes * 2 + HTTP_IO_BYTES,
        MHD_OPTION_ARRAY, more, MHD_OPTION_END);
    if (l->mhd) return 0;
    return err_set(e, ERR_IO, "cannot start the HTTP threads: %s", strerror(errno));
}

static struct conns_config conns_config_of(const struct settings *s) {
    const struct http_config *c = &s->config;
    const uint64_t second = UINT64_C(1000000000);
    return (struct conns_config){.max = c->max_connections,
                                 .max_per_address = c->max_per_address,
                                 .wait_ns = c->idle_timeout_s * second * ARRIVAL_TIMEOUTS,
                                 .reserve_ns = RESERVE_WAIT_S * second,
                                 .body_ns = BODY_GRACE_S * second,
                                 .proxies = &s->proxies,
                                 .fresh_ns = FRESH_MS * second / 1000};
}

int http_open(struct http *h, const struct http_setup *setup, err *e) {
    const struct http_config *c = setup->config;
    h->setup = *setup;
    h->config = *c;
    h->config.host = h->config.allowed_hosts = h->config.allowed_origins = NULL;
    h->config.trusted_proxies = h->config.listen = h->config.access_log = NULL;
    h->config.listen_fds = NULL;
    h->config.otlp_endpoint = NULL;
    h->config.api_keys = NULL;
    pthread_mutex_init(&h->settings_mu, NULL);
    answers_init(&h->answers, c->max_answer_bytes);
    ignored_counts_init(&h->ignored);
    recent_init(&h->recent);
    access_init(&h->access, c->access_queue ? c->access_queue : 1);
    quotas_init(&h->quotas);
    auth_failures_init(&h->auth_failures, c->key_failures_per_minute);
    conns_init(&h->conns, &(struct conns_config){0});
    int rc = settings_new(c, &h->key_slots, &h->settings, e);
    if (!rc) rc = trace_open(h, c, e);
    if (rc) return rc;
    h->key_slots.n_first = h->key_slots.n;
    const struct conns_config limits = conns_config_of(h->settings);
    conns_set(&h->conns, &limits);
    h->daemon = mem_new(1, sizeof *h->daemon);
    if (!h->daemon) return err_no_memory(e);
    h->daemon->wake[0] = h->daemon->wake[1] = -1;
    for (size_t i = 0; i < HTTP_MAX_LISTENERS; i++)
        h->daemon->listeners[i].fd = -1;
    struct watch_config wc = {.keepalive_ms = c->keepalive_ms,
                              .suspend = suspend_connection,
                              .resume = resume_connection,
                              .destroy = destroy_request,
                              .tick = on_tick,
                              .tick_arg = h};
    rc = watch_open(&wc, &h->watch, e);
    if (!rc) rc = access_apply(&h->access, c->access_log, c->access_json, e);
    if (!rc) rc = prepare_open(h, e);
    if (!rc) rc = listen_open(c, h->daemon, e);
    h->daemon->local = true;
    for (size_t i = 0; i < h->daemon->n; i++) {
        struct listener *l = &h->daemon->listeners[i];
        h->daemon->local &= listen_is_local(l);
        l->at.tls = h->settings->tls && l->family != AF_UNIX;
    }
    for (size_t i = 0; i < h->daemon->n && !rc; i++)
        rc = start_listener(h, &h->daemon->listeners[i], e);
    if (!rc && !c->n_listen_fds) rc = accept_start(h, e);
    return rc;
}

int http_accept(struct http *h, err *e) {
    return h->daemon->accepts ? 0 : accept_start(h, e);
}

void http_leave(struct http *h) {
    atomic_store(&h->leaving, true);
    accept_stop(h);
}

bool http_is_quiet(struct http *h, uint64_t for_ns) {
    const struct http_daemon *d = h->daemon;
    return atomic_load(&d->n_given) <= atomic_load(&d->n_begun) && !http_n_active(h) &&
           conns_quiet(&h->conns, clock_now_ns(), for_ns);
}

int http_apply(struct http *h, const struct http_config *config, err *e) {
    struct http_config c = *config;
    struct settings *s, *old;
    c.max_connections = h->config.max_connections;
    c.max_header_bytes = h->config.max_header_bytes;
    int rc = settings_new(&c, &h->key_slots, &s, e);
    if (rc) return rc;
    struct access_target log;
    rc = access_open(c.access_log, c.access_json, &log, e);
    if (!rc) rc = access_prepare(&h->access, &log, e);
    if (!rc) rc = trace_apply(h, &c, e);
    if (rc) {
        access_close(&log);
        settings_drop(s);
        return rc;
    }
    access_set(&h->access, &log);
    const struct conns_config limits = conns_config_of(s);
    pthread_mutex_lock(&h->settings_mu);
    old = h->settings;
    h->settings = s;
    pthread_mutex_unlock(&h->settings_mu);
    conns_set(&h->conns, &limits);
    answers_set_max(&h->answers, c.max_answer_bytes);
    atomic_store(&h->auth_failures.per_minute, c.key_failures_per_minute);
    watch_set_keepalive(h->watch, c.keepalive_ms);
    settings_drop(old);
    return 0;
}

uint16_t http_port(const struct http *h) {
    struct http_address at = {0};
    for (size_t i = 0; http_get_address(h, i, &at) && !at.port; i++)
        ;
    return at.port;
}

bool http_get_address(const struct http *h, size_t i, struct http_address *out) {
    if (i >= h->daemon->n) return false;
    *out = h->daemon->listeners[i].at;
    return true;
}

bool http_is_local(const struct http *h) {
    return h->daemon->local;
}

uint32_t http_n_active(const struct http *h) {
    return atomic_load(&h->n_active);
}

static void stop_listeners(struct http *h) {
    struct http_daemon *d = h->daemon;
    accept_stop(h);
    atomic_store(&h->closing, true);
    work_pool_stop(h->pool);
    watch_release_all(h->watch);
    for (int i = 0; i < CLOSE_WAIT_MS / 5 && http_n_active(h); i++)
        nanosleep(&(struct timespec){0, 5 * 1000000}, NULL);
    /* No connection may be suspended, or lent to a pool thread, any more. */
    work_pool_close(h->pool);
    for (size_t i = 0; i < d->n; i++)
        if (d->listeners[i].mhd) MHD_stop_daemon(d->listeners[i].mhd);
}

void http_close(struct http *h) {
    struct http_daemon *d = h->daemon;
    if (!d) return;
    if (d->n && d->listeners[0].mhd) stop_listeners(h);
    work_pool_close(h->pool);
    work_pool_free(h->pool);
    watch_close(h->watch);
    for (size_t i = 0; i < HTTP_MAX_LISTENERS; i++)
        listen_close(&d->listeners[i]);
    free(d);
    h->daemon = NULL;
    h->pool = NULL;
    h->watch = NULL;
}

void http_fini(struct http *h) {
    if (!h->setup.config) return;
    tracer_close(h->tracer);
    access_fini(&h->access);
    answers_fini(&h->answers);
    ignored_counts_fini(&h->ignored);
    recent_fini(&h->recent);
    auth_failures_fini(&h->auth_failures);
    quotas_fini(&h->quotas);
    conns_fini(&h->conns);
    settings_drop(h->settings);
    key_slots_fini(&h->key_slots);
    pthread_mutex_destroy(&h->settings_mu);
}
