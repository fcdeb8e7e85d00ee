/* test_http_client.c - the chat command's HTTP client against a scripted server, whose bytes come
 * in pieces of every size. */
#include "core/base/mem.h"
#include "core/base/str.h"
#include "daemon/commands/http_client.h"
#include "tests/unit/check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct script {
    int listener;
    const char *answer;
    size_t n, piece; /* bytes of answer, bytes a write */
    bool hang;       /* say nothing more and wait until the client is gone */
    char request[4096];
};

static void *serve(void *arg) {
    struct script *s = arg;
    int on = 1, fd = accept(s->listener, NULL, NULL);
    size_t have = 0;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    while (have + 1 < sizeof s->request && !strstr(s->request, "\r\n\r\n")) {
        ssize_t n = read(fd, s->request + have, sizeof s->request - 1 - have);
        if (n <= 0) break;
        have += (size_t)n;
    }
    for (size_t at = 0; at < s->n; at += s->piece) {
        size_t n = s->n - at < s->piece ? s->n - at : s->piece;
        if (write(fd, s->answer + at, n) != (ssize_t)n) break;
    }
    char byte;
    while (s->hang && read(fd, &byte, 1) > 0)
        ;
    close(fd);
    return NULL;
}

static int listen_on(struct http_url *url) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&a, n) && !listen(fd, 1));
    CHECK(getsockname(fd, (struct sockaddr *)&a, &n) == 0);
    memset(url, 0, sizeof *url);
    strcpy(url->host, "127.0.0.1");
    snprintf(url->port, sizeof url->port, "%d", ntohs(a.sin_port));
    return fd;
}

/* Asks the scripted server; body is what was read. */
static int ask(struct script *s, const char *post, bool (*stopped)(void), int *status, str *body,
               err *e) {
    struct http_url url;
    pthread_t thread;
    http_client *c;
    s->listener = listen_on(&url);
    s->request[0] = '\0';
    CHECK(pthread_create(&thread, NULL, serve, s) == 0);
    const struct http_request r = {.url = &url,
                                   .method = post ? "POST" : "GET",
                                   .path = "/v1/x",
                                   .body = post,
                                   .api_key = "sk-1",
                                   .stopped = stopped};
    int rc = http_client_open(&r, &c, e);
    str_init(body, 1 << 20);
    if (!rc) {
        char bytes[50];
        size_t got = 1;
        *status = http_client_status(c);
        while (!rc && got) {
            rc = http_client_read(c, bytes, sizeof bytes, &got, e);
            if (!rc) str_add_n(body, bytes, got);
        }
        if (!rc) CHECK(http_client_read(c, bytes, sizeof bytes, &got, e) == 0 && got == 0);
        http_client_close(c);
    }
    pthread_join(thread, NULL);
    close(s->listener);
    return rc;
}

static void test_url(void) {
    static const struct {
        const char *url, *host, *port, *path;
    } good[] = {{"http://127.0.0.1:8080", "127.0.0.1", "8080", ""},
                {"http://localhost/", "localhost", "80", ""},
                {"http://[::1]:9/a/b/", "::1", "9", "/a/b"},
                {"http://[fe80::1]", "fe80::1", "80", ""}};
    static const char *const bad[] = {"",
                                      "localhost:8080",
                                      "https://x",
                                      "http://",
                                      "http://:80",
                                      "http://x:",
                                      "http://x:y",
                                      "http://[::1",
                                      "http://x:123456789",
                                      "http://x/\r\nHost: y"};
    struct http_url u;
    err e;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CHECK(http_url_parse(good[i].url, &u, &e) == 0);
        CHECK_STR(u.host, good[i].host);
        CHECK_STR(u.port, good[i].port);
        CHECK_STR(u.path, good[i].path);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_MSG(http_url_parse(bad[i], &u, &e) < 0, "%s", bad[i]);
}

static void test_answers(void) {
    static const struct {
        const char *answer, *body;
        int status;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello-and-more", "hello", 200},
        {"HTTP/1.1 404 Not Found\r\ncontent-length:0\r\n\r\n", "", 404},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
         "5\r\nhello\r\n1;x=y\r\n \r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n",
         "hello 0123456789", 200},
        {"HTTP/1.0 200 OK\r\nServer: x\r\n\r\nto the end", "to the end", 200},
        {"HTTP/1.1 503 X\nContent-Length: 2\n\nno", "no", 503},
    };
    static const size_t pieces[] = {1, 2, 3, 7, 19, 4096};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++) {
            struct script s = {
                .answer = cases[i].answer, .n = strlen(cases[i].answer), .piece = pieces[p]};
            str body;
            int status = 0;
            err e;
            int rc = ask(&s, "{\"a\":1}", NULL, &status, &body, &e);
            CHECK_MSG(rc == 0, "%s", e.msg);
            CHECK(status == cases[i].status);
            CHECK_STR(str_cstr(&body), cases[i].body);
            CHECK(strstr(s.request, "POST /v1/x HTTP/1.1\r\n") == s.request);
            CHECK(strstr(s.request, "\r\nAuthorization: Bearer sk-1\r\n") != NULL);
            CHECK(strstr(s.request, "\r\nContent-Length: 7\r\n") != NULL);
            str_fini(&body);
        }
}

static void test_broken_answers(void) {
    static const struct {
        const char *answer;
        int code;
    } cases[] = {
        {"", ERR_IO},
        {"HTTP/1.1 200", ERR_IO},
        {"SMTP ready\r\n\r\n", ERR_FORMAT},
        {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", ERR_IO},
        {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx", ERR_FORMAT},
        {"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nx", ERR_FORMAT},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", ERR_IO},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n",
         ERR_FORMAT},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n", ERR_FORMAT},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n", ERR_FORMAT},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx",
         ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct script s = {.answer = cases[i].answer, .n = strlen(cases[i].answer), .piece = 5};
        str body;
        int status;
        err e;
        int rc = ask(&s, NULL, NULL, &status, &body, &e);
        CHECK_MSG(rc == cases[i].code, "case %zu: %d", i, rc);
        str_fini(&body);
    }
    char *endless = mem_new(20001, 1);
    memset(endless, 'a', 20000);
    memcpy(endless, "HTTP/1.1 200 OK\r\n", 17);
    struct script s = {.answer = endless, .n = 20000, .piece = 20000};
    str body;
    int status;
    err e;
    CHECK(ask(&s, NULL, NULL, &status, &body, &e) == ERR_FORMAT);
    str_fini(&body);
    free(endless);
}

static int asked;
static bool stop_soon(void) {
    return ++asked > 1;
}

static void test_stop_and_nobody(void) {
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart";
    struct script s = {.answer = head, .n = sizeof head - 1, .piece = 100, .hang = true};
    str body;
    int status;
    err e;
    asked = 0;
    CHECK(ask(&s, NULL, stop_soon, &status, &body, &e) == ERR_STOPPING);
    str_fini(&body);
    struct http_url url;
    http_client *c;
    close(listen_on(&url)); /* a port that nobody listens on */
    const struct http_request r = {.url = &url, .method = "GET", .path = "/"};
    CHECK(http_client_open(&r, &c, &e) == ERR_IO && c == NULL);
    CHECK(strstr(e.msg, "inferd serve"));
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    RUN(test_url);
    RUN(test_answers);
    RUN(test_broken_answers);
    RUN(test_stop_and_nobody);
    return check_done();
}
