/* http_config.h - configuration of the HTTP server: addresses, limits, keys. */
#ifndef INFERD_API_HTTP_HTTP_CONFIG_H
#define INFERD_API_HTTP_HTTP_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_config {
    const char *host;      /* address to bind, "127.0.0.1" */
    uint16_t port;         /* 0: any free port, see http_port */
    const char *listen;    /* "unix:/path, 127.0.0.1:8080, [::1]:8080"; NULL or "": host and port */
    unsigned unix_mode;    /* permissions of socket files that listen names */
    const int *listen_fds; /* (n_listen_fds) sockets that already listen, borrowed during http_open;
                              with them nothing is bound */
    size_t n_listen_fds;
    uint32_t n_threads; /* HTTP threads */
    uint32_t
        prepare_threads; /* threads that parse, render, tokenize and compile common requests, */
    uint32_t prepare_slow_threads; /* and expensive ones */
    uint32_t prepare_queue;        /* most requests in preparation; 503 beyond */
    uint32_t prepare_budget_s;     /* approximate core-seconds to prepare a request; 400 beyond */
    uint32_t max_connections;   /* at the limit the connection that has been idle longest is closed;
                                   a few more may ask for health */
    uint32_t max_per_address;   /* open connections per client address (IPv6: per /64), behind a
                                   trusted proxy requests; 0: no limit */
    uint64_t max_body_bytes;    /* 413 beyond; 503 beyond 16 times that in all incoming requests */
    uint32_t max_header_bytes;  /* 431 beyond */
    uint32_t idle_timeout_s;    /* of a connection without a running request, and of a client that
                                   does not read its answer. A request may take twice that to
                                   arrive, plus the time of its body at 10 KB/s */
    uint32_t keepalive_ms;      /* interval of SSE comments while a stream is quiet */
    uint64_t max_answer_bytes;  /* memory of all answers that are being made, sent or kept, except
                                   the first 64K of each; 503 beyond */
    uint32_t request_timeout_s; /* from a request's headers to its end; 0: none */
    const char *allowed_hosts;  /* comma-separated names that are accepted in the Host header; ".x":
                                   names below x; "*": any. NULL or "": on a loopback address
                                   without keys only this machine's own names, otherwise any */
    const char *allowed_origins; /* origins of other sites' pages that may ask (origin.h) */
    const char *trusted_proxies; /* proxies whose X-Forwarded headers are believed (address.h) */
    const char *tls_certificate, *tls_key, *tls_client_ca; /* files (tls.h); NULL or "": no TLS, no
                                                              client certificates. Socket files
                                                              have no TLS */
    const char *const *api_keys; /* (n_api_keys) accepted bearer keys; none: no check */
    size_t n_api_keys;
    size_t n_admin_keys;              /* the last ones of api_keys may administer (ROUTE_ADMIN) */
    const char *otlp_endpoint;        /* of traces, as the next two: trace.h; NULL or "": off */
    double otlp_ratio;                /* of requests that are traced, 0 to 1 */
    uint32_t otlp_queue;              /* requests whose spans wait to be sent */
    const char *access_log;           /* access.h; NULL or "": none */
    bool access_json;                 /* its lines are JSON objects */
    uint32_t access_queue;            /* its lines that may wait to be written */
    uint32_t key_failures_per_minute; /* wrong keys per client network; 429 beyond; 0: no limit */
};

#endif
