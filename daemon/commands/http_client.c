/* http_client.c - request line to body bytes (RFC 9112), the parts that the daemon's own answers
 * use: Content-Length, chunked, or until the connection closes. Calling thread; its process ignores
 * SIGPIPE. */
#include "daemon/commands/http_client.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 16384,
    LINE_MAX_BYTES = 8192,
    HEAD_LINES_MAX = 100,
    REQUEST_MAX_BYTES = 64 << 20,
    POLL_MS = 200,
    CONNECT_MS = 10000
};

enum body { BODY_LENGTH, BODY_CHUNKED, BODY_UNTIL_CLOSE };

struct http_client {
    int fd, status;
    bool (*stopped)(void);
    enum body body;
    uint64_t left;  /* bytes of the body or of the chunk */
    bool in_chunks; /* a chunk was read: its CRLF comes before the next size */
    bool at_end;
    size_t pos, len; /* of buffer */
    char buffer[BUFFER_BYTES];
};

int http_url_parse(const char *url, struct http_url *out, err *e) {
    memset(out, 0, sizeof *out);
    if (strncmp(url, "https://", 8) == 0)
        return err_set(e, ERR_UNSUPPORTED, "https is not spoken here: give an http:// address");
    if (strncmp(url, "http://", 7) != 0)
        return err_set(e, ERR_INVALID, "\"%.100s\" is no http:// address", url);
    const char *host = url + 7, *end = host + strcspn(host, "/"), *port = NULL, *host_end = end;
    if (*host == '[') {
        const char *bracket = memchr(host, ']', (size_t)(end - host));
        if (!bracket) return err_set(e, ERR_INVALID, "\"%.100s\": ] is missing", url);
        if (bracket[1] == ':') port = bracket + 2;
        host++;
        host_end = bracket;
    } else {
        const char *colon = memchr(host, ':', (size_t)(end - host));
        if (colon) {
            port = colon + 1;
            host_end = colon;
        }
    }
    size_t n_host = (size_t)(host_end - host), n_port = port ? (size_t)(end - port) : 0;
    size_t n_path = strlen(end);
    while (n_path && end[n_path - 1] == '/')
        n_path--;
    if (n_host == 0 || n_host >= sizeof out->host || n_port >= sizeof out->port ||
        n_path >= sizeof out->path || strcspn(url, " \r\n\t") != strlen(url) ||
        (port && (n_port == 0 || strspn(port, "0123456789") < n_port)))
        return err_set(e, ERR_INVALID, "\"%.100s\" is no http://HOST:PORT address", url);
    memcpy(out->host, host, n_host);
    memcpy(out->path, end, n_path);
    if (port)
        memcpy(out->port, port, n_port);
    else
        strcpy(out->port, "80");
    return 0;
}

/* Waits until fd is ready for events. */
static int wait_for(const http_client *c, short events, int timeout_ms, err *e) {
    struct pollfd fd = {.fd = c->fd, .events = events};
    for (int waited_ms = 0; timeout_ms < 0 || waited_ms < timeout_ms; waited_ms += POLL_MS) {
        int n = poll(&fd, 1, POLL_MS);
        if (c->stopped && c->stopped()) return err_set(e, ERR_STOPPING, "stopped");
        if (n > 0) return 0;
        if (n < 0 && errno != EINTR) return err_set(e, ERR_IO, "poll: %s", strerror(errno));
    }
    return err_set(e, ERR_IO, "no answer within %d s", timeout_ms / 1000);
}

static int try_address(http_client *c, const struct addrinfo *a, err *e) {
    c->fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
    if (c->fd < 0) return err_set(e, ERR_IO, "%s", strerror(errno));
    fcntl(c->fd, F_SETFD, FD_CLOEXEC);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    int rc = 0, why = connect(c->fd, a->ai_addr, a->ai_addrlen) ? errno : 0;
    if (why == EINPROGRESS) {
        socklen_t n = sizeof why;
        rc = wait_for(c, POLLOUT, CONNECT_MS, e);
        if (!rc && getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &why, &n)) why = errno;
    }
    if (!rc && why) rc = err_set(e, ERR_IO, "%s", strerror(why));
    if (!rc) return 0;
    close(c->fd);
    c->fd = -1;
    return rc;
}

static int connect_to(http_client *c, const struct http_url *url, err *e) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int rc = getaddrinfo(url->host, url->port, &hints, &list);
    if (rc) return err_set(e, ERR_IO, "%s: %s", url->host, gai_strerror(rc));
    rc = ERR_IO;
    for (const struct addrinfo *a = list; a && rc == ERR_IO; a = a->ai_next)
        rc = try_address(c, a, e);
    freeaddrinfo(list);
    if (rc == ERR_IO)
        err_prefix(e, "nobody answers at http://%s:%s (is `inferd serve` running?): ", url->host,
                   url->port);
    return rc;
}

static int send_all(http_client *c, const char *bytes, size_t n, err *e) {
    while (n) {
        ssize_t sent = send(c->fd, bytes, n, 0);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
            int rc = wait_for(c, POLLOUT, -1, e);
            if (rc) return rc;
            continue;
        }
        if (sent < 0) return err_set(e, ERR_IO, "sending: %s", strerror(errno));
        bytes += sent;
        n -= (size_t)sent;
    }
    return 0;
}

static int send_request(http_client *c, const struct http_request *r, err *e) {
    bool v6 = strchr(r->url->host, ':') != NULL;
    str s;
    str_init(&s, REQUEST_MAX_BYTES);
    str_addf(&s, "%s %s%s HTTP/1.1\r\nHost: %s%s%s:%s\r\nConnection: close\r\n", r->method,
             r->url->path, r->path, v6 ? "[" : "", r->url->host, v6 ? "]" : "", r->url->port);
    if (r->api_key) str_addf(&s, "Authorization: Bearer %s\r\n", r->api_key);
    if (r->body)
        str_addf(&s, "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                 strlen(r->body), r->body);
    else
        str_add(&s, "\r\n");
    int rc = s.failed ? err_set(e, ERR_TOO_LONG, "the conversation is too long to send")
                      : send_all(c, str_cstr(&s), s.len, e);
    str_fini(&s);
    return rc;
}

/* Makes sure that the buffer is not empty; *closed when the other side has no more. */
static int fill(http_client *c, bool *closed, err *e) {
    *closed = false;
    while (c->pos == c->len) {
        ssize_t n = recv(c->fd, c->buffer, sizeof c->buffer, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            int rc = wait_for(c, POLLIN, -1, e);
            if (rc) return rc;
            continue;
        }
        if (n < 0) return err_set(e, ERR_IO, "the connection broke: %s", strerror(errno));
        c->pos = 0;
        c->len = (size_t)n;
        if (n == 0) {
            *closed = true;
            return 0;
        }
    }
    return 0;
}

/* A line without its line end. */
static int read_line(http_client *c, char line[LINE_MAX_BYTES], err *e) {
    size_t n = 0;
    for (;;) {
        bool closed;
        int rc = fill(c, &closed, e);
        if (rc) return rc;
        if (closed) return err_set(e, ERR_IO, "the connection was closed in the middle");
        char byte = c->buffer[c->pos++];
        if (byte == '\n') break;
        if (n + 1 == LINE_MAX_BYTES) return err_set(e, ERR_FORMAT, "the answer is no HTTP");
        line[n++] = byte;
    }
    if (n && line[n - 1] == '\r') n--;
    line[n] = '\0';
    return 0;
}

/* NULL if line is not this header. */
static const char *header_value(const char *line, const char *name) {
    size_t n = strlen(name);
    if (strncasecmp(line, name, n) != 0 || line[n] != ':') return NULL;
    return line + n + 1 + strspn(line + n + 1, " \t");
}

static int read_head(http_client *c, err *e) {
    char line[LINE_MAX_BYTES];
    int minor, rc = read_line(c, line, e);
    if (rc) return rc;
    if (sscanf(line, "HTTP/1.%1d %3d", &minor, &c->status) != 2)
        return err_set(e, ERR_FORMAT, "the answer is no HTTP");
    c->body = BODY_UNTIL_CLOSE;
    for (int i = 0; i < HEAD_LINES_MAX; i++) {
        const char *value;
        rc = read_line(c, line, e);
        if (rc || !line[0]) return rc;
        if ((value = header_value(line, "Transfer-Encoding")) && !strcasecmp(value, "chunked")) {
            c->body = BODY_CHUNKED;
        } else if ((value = header_value(line, "Content-Length")) && c->body != BODY_CHUNKED) {
            char *end;
            errno = 0;
            c->left = strtoull(value, &end, 10);
            if (*value < '0' || *value > '9' || *end || errno)
                return err_set(e, ERR_FORMAT, "the answer's Content-Length is no number");
            c->body = BODY_LENGTH;
        }
    }
    return err_set(e, ERR_FORMAT, "the answer has too many headers");
}

/* Size line of the next chunk; a size of 0 ends the body (trailers are of no interest). */
static int next_chunk(http_client *c, err *e) {
    char line[LINE_MAX_BYTES], *end;
    int rc = c->in_chunks ? read_line(c, line, e) : 0;
    if (!rc && c->in_chunks && line[0]) rc = err_set(e, ERR_FORMAT, "a chunk has a wrong length");
    if (!rc) rc = read_line(c, line, e);
    if (rc) return rc;
    errno = 0;
    c->left = strtoull(line, &end, 16);
    if (!strchr("0123456789abcdefABCDEF", line[0]) || !line[0] || errno || (*end && *end != ';'))
        return err_set(e, ERR_FORMAT, "a chunk has no length");
    c->in_chunks = true;
    c->at_end = c->left == 0;
    return 0;
}

int http_client_open(const struct http_request *request, http_client **out, err *e) {
    *out = NULL;
    http_client *c = mem_new(1, sizeof *c);
    if (!c) return err_set(e, ERR_NOMEM, "no memory");
    c->fd = -1;
    c->stopped = request->stopped;
    int rc = connect_to(c, request->url, e);
    if (!rc) rc = send_request(c, request, e);
    if (!rc) rc = read_head(c, e);
    if (rc) {
        http_client_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

int http_client_status(const http_client *c) {
    return c->status;
}

int http_client_read(http_client *c, char *bytes, size_t n, size_t *got, err *e) {
    bool closed;
    *got = 0;
    if (c->body == BODY_CHUNKED && c->left == 0 && !c->at_end) {
        int rc = next_chunk(c, e);
        if (rc) return rc;
    }
    if (c->at_end || (c->body == BODY_LENGTH && c->left == 0)) return 0;
    int rc = fill(c, &closed, e);
    if (rc) return rc;
    if (closed && c->body != BODY_UNTIL_CLOSE) return err_set(e, ERR_IO, "the answer was cut off");
    if (closed) {
        c->at_end = true;
        return 0;
    }
    size_t take = c->len - c->pos < n ? c->len - c->pos : n;
    if (c->body != BODY_UNTIL_CLOSE && take > c->left) take = (size_t)c->left;
    memcpy(bytes, c->buffer + c->pos, take);
    c->pos += take;
    if (c->body != BODY_UNTIL_CLOSE) c->left -= take;
    *got = take;
    return 0;
}

void http_client_close(http_client *c) {
    if (!c) return;
    if (c->fd >= 0) close(c->fd);
    free(c);
}
