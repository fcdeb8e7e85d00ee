/* api_client.h - a plain HTTP/1.1 client over a socket for tests: requests written byte by byte as
 * the test specifies, answers read to their end, chunked bodies decoded. Every wait is bounded. */
#ifndef INFERD_TESTS_API_CLIENT_H
#define INFERD_TESTS_API_CLIENT_H

#include "core/base/str.h"
#include "tests/unit/check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENT_WAIT_MS = 60000 }; /* only a hang takes that long */

static uint16_t client_port;

static int client_connect(void) {
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(client_port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to)) {
        close(fd);
        fd = -1;
    }
    CHECK(fd >= 0);
    return fd;
}

static void client_send(int fd, const char *bytes, size_t n) {
    while (n) {
        ssize_t w = send(fd, bytes, n, 0); /* main ignores SIGPIPE */
        if (w <= 0) return;                /* the server may refuse early: see its answer */
        bytes += w;
        n -= (size_t)w;
    }
}

/* Up to max bytes; 0: closed, -1: no bytes within wait_ms. */
static ssize_t client_recv(int fd, char *buf, size_t max, int wait_ms) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, wait_ms) <= 0) return -1;
    ssize_t n = recv(fd, buf, max, 0);
    return n < 0 ? 0 : n;
}

struct answer {
    int status; /* 0: closed without an answer */
    str head, body;
    bool complete; /* the body reached its declared end */
};

static void answer_fini(struct answer *a) {
    str_fini(&a->head);
    str_fini(&a->body);
}

/* A header's value, "" if it is missing. Static storage. */
static const char *answer_header(const struct answer *a, const char *name) {
    static char value[512];
    size_t n = strlen(name);
    value[0] = '\0';
    for (const char *line = strstr(str_cstr(&a->head), "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, n) != 0 || line[n] != ':') continue;
        const char *v = line + n + 1 + strspn(line + n + 1, " ");
        size_t len = strcspn(v, "\r");
        snprintf(value, sizeof value, "%.*s", (int)(len < 511 ? len : 511), v);
    }
    return value;
}

/* One more byte at the front of what is read, buffered per call site. */
struct reader {
    int fd;
    char buf[4096];
    size_t at, n;
};

static int reader_byte(struct reader *r) {
    if (r->at == r->n) {
        ssize_t n = client_recv(r->fd, r->buf, sizeof r->buf, CLIENT_WAIT_MS);
        CHECK_MSG(n >= 0, "no byte from the server in %d ms", CLIENT_WAIT_MS);
        if (n <= 0) return -1;
        r->at = 0;
        r->n = (size_t)n;
    }
    return (unsigned char)r->buf[r->at++];
}

static bool reader_line(struct reader *r, str *line) {
    for (int c; (c = reader_byte(r)) >= 0;) {
        str_add_char(line, (char)c);
        if (c == '\n') return true;
    }
    return false;
}

static bool reader_bytes(struct reader *r, str *to, size_t n) {
    for (; n; n--) {
        int c = reader_byte(r);
        if (c < 0) return false;
        str_add_char(to, (char)c);
    }
    return true;
}

static bool reader_head(struct reader *r, struct answer *a) {
    memset(a, 0, sizeof *a);
    str_init(&a->head, 1 << 16);
    str_init(&a->body, 1 << 26);
    for (size_t before = 0; reader_line(r, &a->head); before = a->head.len)
        if (a->head.len - before <= 2) {
            a->status = atoi(str_cstr(&a->head) + 9);
            return true;
        }
    return false;
}

/* One chunk of a chunked body, false at its end (complete is set) or when cut off. */
static bool reader_chunk(struct reader *r, struct answer *a) {
    str line;
    str_init(&line, 64);
    bool more = reader_line(r, &line);
    size_t n = more ? strtoul(str_cstr(&line), NULL, 16) : 0;
    if (more && !n) {
        a->complete = reader_line(r, &line);
        more = false;
    } else if (more) {
        str end;
        str_init(&end, 64);
        more = reader_bytes(r, &a->body, n) && reader_line(r, &end);
        str_fini(&end);
    }
    str_fini(&line);
    return more;
}

static void reader_body(struct reader *r, struct answer *a) {
    if (strcasecmp(answer_header(a, "Transfer-Encoding"), "chunked") == 0) {
        while (reader_chunk(r, a)) {
        }
        return;
    }
    const char *length = answer_header(a, "Content-Length");
    a->complete = *length && reader_bytes(r, &a->body, strtoul(length, NULL, 10));
}

/* Headers besides Host and Content-Length end in \r\n each; body NULL: none. */
static void client_request(int fd, const char *line, const char *headers, const char *body) {
    str s;
    str_init(&s, 1 << 26);
    str_addf(&s, "%s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n%s", line, client_port, headers);
    if (body) str_addf(&s, "Content-Length: %zu\r\n", strlen(body));
    str_add(&s, "\r\n");
    if (body) str_add(&s, body);
    client_send(fd, s.data, s.len);
    str_fini(&s);
}

/* A whole exchange on a new connection. The caller frees with answer_fini. */
static void client_ask(const char *line, const char *headers, const char *body, struct answer *a) {
    int fd = client_connect();
    struct reader r = {.fd = fd};
    client_request(fd, line, headers, body);
    if (reader_head(&r, a)) {
        if (strncmp(line, "HEAD ", 5) == 0)
            a->complete = true;
        else
            reader_body(&r, a);
    }
    close(fd);
}

#define JSON_TYPE "Content-Type: application/json\r\n"

static void client_post(const char *path, const char *body, struct answer *a) {
    char line[256];
    snprintf(line, sizeof line, "POST %s", path);
    client_ask(line, JSON_TYPE, body, a);
}

static inline void client_get(const char *path, struct answer *a) {
    char line[256];
    snprintf(line, sizeof line, "GET %s", path);
    client_ask(line, "", NULL, a);
}

#endif
