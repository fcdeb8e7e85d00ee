/* test_api_config.c - the HTTP layer in other configurations and at shutdown: keys, limits of
 * connections, keep-alives, drain, close. */
#include "api/generate/api_state.h"
#include "api/http/conns.h"
#include "api_server.h"

/* The model that answers for a name; "" is a 404. */
static void expect_model(const char *name, const char *id) {
    const struct api_model *m = api_find_model(server, name);
    CHECK_MSG(strcmp(m ? m->id : "", id) == 0, "%s: %s", name, m ? m->id : "no model");
}

static void aliases_have_wildcards(void) {
    struct api_config c = base_config();
    c.model_aliases = " claude-*-5 = tiny,gpt-4o=tiny,,*/tiny-?=tiny, a*b*c=tiny";
    start_server(&c);
    publish();
    expect_model("tiny", "tiny");
    expect_model("tiny:latest", "tiny");
    expect_model("tiny:other", "");
    expect_model("claude-opus-4-5", "tiny");
    expect_model("claude--5", "tiny");
    expect_model("claude-5", "");
    expect_model("claude-opus-4-50", "");
    expect_model("gpt-4o", "tiny");
    expect_model("gpt-4o-mini", "");
    expect_model("x/tiny-?", "tiny");
    expect_model("x/tiny-1", "");
    expect_model("abc", "tiny");
    expect_model("aXbXbXc", "tiny");
    expect_model("acb", "");
    expect_model("", "");
    stop_server();
}

static void wrong_aliases_are_refused(void) {
    static const char *const wrong[] = {"claude-*", "claude-*=", "=tiny", "a=b=c", "a=*"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct api_config c = base_config();
        struct api *a = NULL;
        err e = {0};
        c.model_aliases = wrong[i];
        CHECK_MSG(api_open(&c, &a, &e) == ERR_INVALID, "%s", wrong[i]);
        CHECK(!a && strcmp(e.param, "model_aliases") == 0);
    }
    struct api_config c = base_config();
    const struct api_model m = {.id = "tiny", .engine = en, .chat = chat};
    err e = {0};
    c.model_aliases = "gpt-*=other";
    start_server(&c);
    CHECK(api_set_models(server, &m, 1, &e) == ERR_INVALID);
    CHECK_MSG(strstr(e.msg, "'other'"), "%s", e.msg);
    stop_server();
}

static void keys_are_checked(void) {
    static const char *const keys[] = {"first-key", "k2"};
    struct api_config c = base_config();
    c.http.api_keys = keys;
    c.http.n_api_keys = 2;
    start_server(&c);
    publish();
    static const struct {
        const char *path, *headers;
        int status;
    } rows[] = {
        {"GET /v1/models", "", 401},
        {"GET /v1/models", "Authorization: Bearer first-ke\r\n", 401},
        {"GET /v1/models", "Authorization: Bearer first-key2\r\n", 401},
        {"GET /v1/models", "Authorization: Bearer \r\n", 401},
        {"GET /v1/models", "Authorization: Basic first-key\r\n", 401},
        {"GET /v1/models", "Authorization: Bearer first-key\r\n", 200},
        {"GET /v1/models", "Authorization: bearer k2\r\n", 200},
        {"GET /metrics", "", 401},
        {"GET /metrics", "Authorization: Bearer k2\r\n", 200},
        {"GET /livez", "", 200},
        {"GET /readyz", "", 200},
        {"GET /health", "", 200},
        {"GET /", "", 200},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct answer a;
        client_ask(rows[i].path, rows[i].headers, NULL, &a);
        CHECK_MSG(a.status == rows[i].status, "%s %s: %d", rows[i].path, rows[i].headers, a.status);
        if (a.status == 401)
            expect_error(&a, 401,
                         strstr(rows[i].headers, "earer") ? "invalid_api_key" : "(missing)");
        answer_fini(&a);
    }
    stop_server();
}

/* Sends a connection's first request; returns the answer's status. */
static int status_of(int fd, const char *line) {
    struct reader r = {.fd = fd};
    struct answer a;
    client_request(fd, line, "", NULL);
    if (reader_head(&r, &a)) reader_body(&r, &a);
    int status = a.status;
    answer_fini(&a);
    return status;
}

static bool is_closed(int fd) {
    char rest[64];
    ssize_t n;
    while ((n = client_recv(fd, rest, sizeof rest, CLIENT_WAIT_MS)) > 0) {
    }
    return n == 0;
}

/* An answer is read before its connection begins to wait again. */
static void all_wait(unsigned n) {
    struct conns_counts c;
    do {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        conns_get(&server->http.conns, &c);
    } while (c.open[CONN_WAITING] != n);
}

/* A slow server has no place for as many that it has not closed yet. */
static void one_came(const struct conns_counts *before) {
    struct conns_counts c;
    for (int i = 0; i < 1000; i++) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        conns_get(&server->http.conns, &c);
        if (c.accepted > before->accepted) return;
    }
}

static void the_longest_idle_connection_is_closed(void) {
    struct api_config c = base_config();
    c.http.max_connections = 2;
    c.http.idle_timeout_s = 60;
    start_server(&c);
    int first = client_connect();
    CHECK(status_of(first, "GET /livez") == 200);
    int second = client_connect();
    CHECK(status_of(second, "GET /livez") == 200);
    all_wait(2);
    CHECK(status_of(first, "GET /livez") == 200); /* now the second has waited longer */
    all_wait(2);
    int third = client_connect();
    CHECK(status_of(third, "GET /livez") == 200);
    CHECK(is_closed(second));
    all_wait(2);
    CHECK(status_of(first, "GET /livez") == 200);
    for (int i = 0; i < 100; i++) { /* silent ones connect and disconnect */
        struct conns_counts before;
        conns_get(&server->http.conns, &before);
        close(first);
        first = client_connect();
        one_came(&before);
    }
    CHECK(status_of(first, "GET /livez") == 200);
    close(first);
    close(second);
    close(third);
    stop_server();
}

static void idle_connections_end(void) {
    struct api_config c = base_config();
    c.http.idle_timeout_s = 1;
    start_server(&c);
    int a = client_connect(), b = client_connect();
    CHECK(status_of(a, "GET /livez") == 200);
    CHECK(is_closed(a));
    CHECK(is_closed(b));
    close(a);
    close(b);
    stop_server();
}

/* Both allowed connections wait for the engine: others get answers to health checks only. */
static void health_is_answered_beyond_the_limit(void) {
    static const char work[] = "{\"model\":\"tiny\",\"prompt\":\"a\",\"stream\":true,"
                               "\"max_tokens\":3000,\"ignore_eos\":true,\"logprobs\":5}";
    struct api_config c = base_config();
    c.http.max_connections = 2;
    start_server(&c);
    publish();
    int busy[2], idle[20];
    struct answer a;
    for (int i = 0; i < 2; i++) {
        busy[i] = client_connect();
        client_request(busy[i], "POST /v1/completions", JSON_TYPE, work);
    }
    while (api_n_active(server) < 2)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    for (int i = 0; i < 20; i++)
        idle[i] = client_connect(); /* more than the reserve holds */
    static const char *const health[] = {"/livez", "/readyz", "/health", "/metrics"};
    for (size_t i = 0; i < sizeof health / sizeof *health; i++) {
        client_get(health[i], &a);
        CHECK_MSG(a.status == 200, "%s: %d", health[i], a.status);
        CHECK_STR(answer_header(&a, "Connection"), "close");
        answer_fini(&a);
    }
    client_get("/v1/models", &a);
    CHECK(*answer_header(&a, "Retry-After"));
    CHECK_STR(answer_header(&a, "Connection"), "close");
    expect_error(&a, 503, "overloaded");
    answer_fini(&a);
    client_post("/v1/completions", work, &a);
    expect_error(&a, 503, "overloaded");
    answer_fini(&a);
    CHECK(api_n_active(server) == 2);
    for (int i = 0; i < 2; i++)
        close(busy[i]);
    for (int i = 0; i < 20; i++)
        close(idle[i]);
    CHECK(engine_quiet());
    client_get("/v1/models", &a);
    CHECK(a.status == 200);
    answer_fini(&a);
    stop_server();
}

static void addresses_are_bounded(void) {
    struct api_config c = base_config();
    c.http.max_per_address = 3;
    start_server(&c);
    int fds[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = client_connect();
        CHECK(status_of(fds[i], "GET /livez") == 200);
    }
    int more = client_connect();
    CHECK(is_closed(more));
    close(more);
    CHECK(status_of(fds[0], "GET /livez") == 200);
    close(fds[0]);
    for (int status = 0; status != 200;) { /* once the server has noticed that it closed */
        more = client_connect();
        status = status_of(more, "GET /livez");
        close(more);
    }
    close(fds[1]);
    close(fds[2]);
    stop_server();
}

static int status_with(const char *headers) {
    char request[256];
    int n = snprintf(request, sizeof request, "GET /v1/models HTTP/1.1\r\n%s\r\n", headers);
    int fd = client_connect();
    struct reader r = {.fd = fd};
    struct answer a;
    client_send(fd, request, (size_t)n);
    CHECK(reader_head(&r, &a));
    int status = a.status;
    answer_fini(&a);
    close(fd);
    return status;
}

static int status_as(const char *host) {
    char header[128];
    snprintf(header, sizeof header, "Host: %s\r\n", host);
    return status_with(header);
}

static void hosts_are_checked(void) {
    static const struct {
        const char *allowed, *host;
        int status;
    } rows[] = {
        {"", "localhost", 200},
        {"", "LOCALHOST:8080", 200},
        {"", "127.0.0.1:1", 200},
        {"", "[::1]:8080", 200},
        {"", "app.localhost:3000", 200},
        {"", "host.docker.internal:8080", 200},
        {"", "evil.example", 403},
        {"", "evil.example:8080", 403},
        {"", "localhost.evil.example", 403},
        {"", "127.0.0.1.evil.example", 403},
        {"", "xlocalhost", 403},
        {"", "[::1].evil.example", 403},
        {"", "10.0.0.1:8080", 200},
        {"", "0.0.0.0", 200},
        {"", "10.0.0.1x", 403},
        {"", "", 403},
        {"llm.example", "llm.example", 200},
        {"a.example, LLM.example", "llm.EXAMPLE:443", 200},
        {"llm.example", "x.llm.example", 403},
        {"llm.example", "llm.example.evil", 403},
        {".example", "llm.example", 200},
        {".example", "example", 403},
        {".example", "llmexample", 403},
        {"*", "anything", 200},
        {"llm.example", "localhost", 200},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct api_config c = base_config();
        c.http.allowed_hosts = rows[i].allowed;
        start_server(&c);
        publish();
        int status = status_as(rows[i].host);
        CHECK_MSG(status == rows[i].status, "\"%s\" with \"%s\": %d", rows[i].host, rows[i].allowed,
                  status);
        stop_server();
    }
    /* With keys, or on other addresses, any name is accepted. */
    static const char *const keys[] = {"k"};
    struct api_config c = base_config();
    c.http.api_keys = keys;
    c.http.n_api_keys = 1;
    start_server(&c);
    CHECK(status_as("llm.example") == 401);
    stop_server();
    c = base_config();
    c.http.host = "0.0.0.0";
    start_server(&c);
    publish();
    CHECK(status_as("llm.example") == 200);
    stop_server();
}

/* A name in Host or in a trusted proxy's X-Forwarded-Host, and a page's Origin. */
static void forwarded_hosts_are_checked(void) {
    static const struct {
        const char *proxies, *hosts, *origins, *headers;
        int status;
    } rows[] = {
        {"127.0.0.1", "", "", "Host: localhost\r\nX-Forwarded-Host: localhost\r\n", 200},
        {"127.0.0.1", "", "", "Host: localhost\r\nX-Forwarded-Host: evil.example\r\n", 403},
        {"127.0.0.1", "llm.example", "", "Host: 127.0.0.1\r\nX-Forwarded-Host: llm.example\r\n",
         200},
        {"127.0.0.1", "llm.example", "", "Host: llm.example\r\nX-Forwarded-Host: llm.example\r\n",
         200},
        /* A page that rebound its own name reaches the proxy's address and sets any header it
         * can. */
        {"127.0.0.1", "", "", "Host: evil.example\r\nX-Forwarded-Host: localhost\r\n", 403},
        {"127.0.0.1", "", "", "Host: localhost\r\nX-Forwarded-Host: a b\r\n", 403},
        {"127.0.0.1", "", "", "Host: localhost\r\nX-Forwarded-Host: evil.example, localhost\r\n",
         200},
        {"127.0.0.1", "", "", "Host: localhost\r\nX-Forwarded-Host: localhost, evil.example\r\n",
         403},
        /* From other clients the header is ignored. */
        {"10.0.0.0/8", "", "", "Host: localhost\r\nX-Forwarded-Host: evil.example\r\n", 200},
        {"", "", "", "Host: evil.example\r\nX-Forwarded-Host: localhost\r\n", 403},
        {"", "*", "",
         "Host: 127.0.0.1\r\nX-Forwarded-Host: llm.example\r\nOrigin: https://llm.example\r\n",
         403},
        /* The page's own host is the forwarded one. */
        {"127.0.0.1", "*", "",
         "Host: inferd:8080\r\nX-Forwarded-Host: llm.example\r\nOrigin: https://llm.example\r\n",
         200},
        {"127.0.0.1", "*", "",
         "Host: inferd:8080\r\nX-Forwarded-Host: llm.example\r\nOrigin: http://inferd:8080\r\n",
         403},
        {"127.0.0.1", "*", "",
         "Host: a\r\nX-Forwarded-Host: b\r\nX-Forwarded-Proto: https\r\nOrigin: https://b\r\n",
         200},
        {"127.0.0.1", "*", "",
         "Host: a\r\nX-Forwarded-Host: b\r\nX-Forwarded-Proto: https\r\nOrigin: http://b\r\n", 403},
        /* Other origins. */
        {"", "", "", "Host: localhost\r\nOrigin: null\r\n", 403},
        {"", "", "", "Host: localhost:80\r\nOrigin: http://localhost\r\n", 200},
        {"", "", "", "Host: localhost\r\nOrigin: app://localhost\r\n", 403},
        {"", "", "https://a.example", "Host: localhost\r\nOrigin: https://a.example\r\n", 200},
        {"", "", "https://a.example", "Host: localhost\r\nOrigin: https://b.example\r\n", 403},
        {"", "", "*", "Host: localhost\r\nOrigin: https://b.example\r\n", 200},
        /* A listed origin does not open the daemon to foreign names. */
        {"", "", "*", "Host: evil.example\r\nOrigin: http://evil.example\r\n", 403},
        {"", "", "http://evil.example", "Host: evil.example\r\n", 403},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct api_config c = base_config();
        c.http.trusted_proxies = rows[i].proxies;
        c.http.allowed_hosts = rows[i].hosts;
        c.http.allowed_origins = rows[i].origins;
        start_server(&c);
        publish();
        int status = status_with(rows[i].headers);
        CHECK_MSG(status == rows[i].status, "\"%s\" \"%s\" \"%s\" %s: %d", rows[i].proxies,
                  rows[i].hosts, rows[i].origins, rows[i].headers, status);
        stop_server();
    }
}

static void wrong_lists_are_refused_at_start(void) {
    for (int i = 0; i < 2; i++) {
        struct api_config c = base_config();
        api *none = NULL;
        err e = {0};
        *(i ? &c.http.allowed_origins : &c.http.trusted_proxies) = "nonsense";
        CHECK(api_open(&c, &none, &e) == ERR_INVALID && !none);
        CHECK_STR(e.param, i ? "allowed_origins" : "trusted_proxies");
    }
}

/* One client sends its headers byte by byte, one its body: each byte restarts the idle timeout. */
static void slow_senders_time_out(void) {
    struct api_config c = base_config();
    c.http.idle_timeout_s = 1;
    start_server(&c);
    publish();
    int fds[2] = {client_connect(), client_connect()};
    static const char head[] = "GET /livez HTTP/1.1\r\nX-Slow: ";
    client_send(fds[0], head, sizeof head - 1);
    client_request(fds[1], "POST /v1/completions", JSON_TYPE "Content-Length: 1000\r\n", NULL);
    bool open[2] = {true, true};
    for (int i = 0; i < 900 && (open[0] || open[1]); i++) {
        char byte;
        for (int k = 0; k < 2; k++) {
            if (!open[k]) continue;
            client_send(fds[k], " ", 1);
            open[k] = client_recv(fds[k], &byte, 1, 20) < 0;
        }
    }
    CHECK(!open[0] && !open[1]);
    close(fds[0]);
    close(fds[1]);
    stop_server();
}

/* Of 16 * 256 KiB, 21 bodies of that size fill nearly all: 64 KiB of each are free. */
static void received_bodies_are_bounded(void) {
    enum { N = 21, BYTES = 256 << 10, FREE = 64 << 10 };
    struct api_config c = base_config();
    c.http.max_body_bytes = BYTES;
    start_server(&c);
    publish();
    static char body[BYTES + 1];
    memset(body, ' ', BYTES);
    body[BYTES] = '\0';
    int fds[N];
    struct answer a;
    for (int i = 0; i < N; i++) {
        fds[i] = client_connect();
        client_request(fds[i], "POST /v1/completions", JSON_TYPE "Content-Length: 262144\r\n",
                       NULL);
        client_send(fds[i], body, BYTES - 1);
    }
    while (atomic_load(&server->http.n_body_bytes) < N * (BYTES - FREE - 1))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    client_post("/v1/completions", body, &a);
    CHECK(*answer_header(&a, "Retry-After"));
    expect_error(&a, 503, "overloaded");
    answer_fini(&a);
    client_post("/v1/completions", "{\"model\":\"tiny\",\"prompt\":\"a\",\"max_tokens\":1}", &a);
    CHECK(a.status == 200); /* an ordinary request is served meanwhile */
    answer_fini(&a);
    for (int i = 0; i < N; i++) {
        struct reader r = {.fd = fds[i]};
        client_send(fds[i], body, 1);
        CHECK(reader_head(&r, &a) && a.status == 400);
        answer_fini(&a);
        close(fds[i]);
    }
    client_post("/v1/completions", body, &a);
    CHECK(a.status == 400); /* the room is free again */
    answer_fini(&a);
    CHECK(atomic_load(&server->http.n_body_bytes) == 0);
    stop_server();
}

/* A line of /metrics. */
static uint64_t metric(const char *name) {
    struct answer a;
    client_get("/metrics", &a);
    char line[128];
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(str_cstr(&a.body), line);
    uint64_t value = at ? strtoull(at + strlen(line), NULL, 10) : UINT64_MAX;
    CHECK_MSG(at != NULL, "no %s", name);
    answer_fini(&a);
    return value;
}

/* Some 6 MB, more than sockets buffer for a client that does not read. */
#define LARGE                                                                                      \
    "{" HELLO ",\"n\":16,\"logprobs\":true,\"top_logprobs\":20,\"ignore_eos\":true,"               \
    "\"max_tokens\":250}"

/* Requests a large answer and reads only its status. */
static int ask_and_wait(struct reader *r, struct answer *a) {
    int fd = client_connect();
    client_request(fd, "POST /v1/chat/completions", JSON_TYPE, LARGE);
    *r = (struct reader){.fd = fd};
    CHECK(reader_head(r, a));
    return a->status;
}

/* Answers that are not read take at most their limit: further ones are refused until the slow
 * readers time out and are disconnected. Small answers always fit. */
static void unread_answers_are_bounded(void) {
    enum { N = 4, BOUND = 16 << 20 };
    struct api_config c = base_config();
    struct reader readers[N];
    struct answer answers[N], a;
    int n = 0, n_refused = 0, n_cut = 0;
    c.http.max_answer_bytes = BOUND;
    start_server(&c);
    publish();
    while (n < N && n_refused < 5000) {
        int status = ask_and_wait(&readers[n], &answers[n]);
        CHECK(metric("inferd_answer_bytes") <= BOUND);
        if (status == 200) {
            n++;
            continue;
        }
        reader_body(&readers[n], &answers[n]);
        expect_error(&answers[n], 503, "overloaded");
        CHECK(*answer_header(&answers[n], "Retry-After"));
        answer_fini(&answers[n]);
        close(readers[n].fd);
        n_refused++;
        client_post("/v1/chat/completions", "{" HELLO ",\"max_tokens\":4}", &a);
        CHECK(a.status == 200 && a.complete);
        answer_fini(&a);
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    }
    CHECK(n == N);
    for (int i = 0; i < n; i++) {
        if (i == N - 1) { /* the last one fits */
            reader_body(&readers[i], &answers[i]);
            CHECK(answers[i].complete && answers[i].body.len > 4 << 20);
        } else {
            reader_body(&readers[i], &answers[i]);
            n_cut += !answers[i].complete;
        }
        answer_fini(&answers[i]);
        close(readers[i].fd);
    }
    CHECK_MSG(n_cut > 0 && metric("inferd_answers_cut_total") == (uint64_t)n_cut, "%d", n_cut);
    CHECK(engine_quiet() && metric("inferd_answer_bytes") == 0);
    stop_server();
}

static void a_port_in_use_is_reported(void) {
    struct api_config c = base_config();
    start_server(&c);
    c.http.port = client_port;
    api *second = NULL;
    err e = {0};
    CHECK(api_open(&c, &second, &e) == ERR_IO && !second);
    CHECK_MSG(strstr(e.msg, "already in use"), "%s", e.msg);
    CHECK_STR(e.param, "port");
    stop_server();
}

/* Every token is an "a" and the stop string is longer than the answer: all text is held back until
 * the end, so that only comments are sent meanwhile. */
static void quiet_streams_get_comments(void) {
    struct api_config c = base_config();
    c.http.keepalive_ms = 1;
    start_server(&c);
    publish();
    str body;
    str_init(&body, 1 << 16);
    str_addf(&body,
             "{" HELLO ",\"stream\":true,\"temperature\":0,\"max_tokens\":400,\"logit_bias\":{"
             "\"%d\":100},\"stop\":\"",
             GGUF_MAKE_FIRST_LETTER);
    for (int i = 0; i < 1000; i++)
        str_add_char(&body, 'a');
    str_add(&body, "\"}");
    struct answer a;
    struct streamed s;
    client_post("/v1/chat/completions", str_cstr(&body), &a);
    read_events(&a, &s);
    CHECK(s.done && s.text.len == 400 && strspn(str_cstr(&s.text), "a") == 400);
    CHECK(strstr(str_cstr(&a.body), ": keep-alive\n\n"));
    str_fini(&s.text);
    answer_fini(&a);
    str_fini(&body);
    stop_server();
}

static void draining_refuses_and_finishes(void) {
    struct api_config c = base_config();
    start_server(&c);
    publish();
    int fd = client_connect();
    struct reader r = {.fd = fd};
    struct answer a, b;
    struct streamed s;
    client_request(fd, "POST /v1/chat/completions", JSON_TYPE,
                   "{" HELLO ",\"stream\":true,\"max_tokens\":300,\"ignore_eos\":true}");
    CHECK(reader_head(&r, &a) && a.status == 200);
    CHECK(api_n_active(server) == 1);
    api_drain(server);
    client_post("/v1/chat/completions", "{" HELLO "}", &b);
    CHECK(*answer_header(&b, "Retry-After"));
    expect_error(&b, 503, "shutting_down");
    answer_fini(&b);
    client_get("/readyz", &b);
    CHECK(b.status == 503);
    answer_fini(&b);
    client_get("/livez", &b);
    CHECK(b.status == 200);
    answer_fini(&b);
    reader_body(&r, &a);
    read_events(&a, &s);
    CHECK(a.complete && s.done);
    str_fini(&s.text);
    answer_fini(&a);
    close(fd);
    CHECK(engine_quiet());
    stop_server();
}

/* Engines are stopped first: streams end with an error event, silent requests with a status. */
static void closing_ends_running_requests(void) {
    struct api_config c = base_config();
    start_server(&c);
    publish();
    int stream = client_connect(), silent = client_connect();
    struct reader r = {.fd = stream}, q = {.fd = silent};
    struct answer a, b;
    client_request(stream, "POST /v1/completions", JSON_TYPE,
                   "{\"model\":\"tiny\",\"prompt\":\"a\",\"stream\":true,\"max_tokens\":400,"
                   "\"ignore_eos\":true,\"logprobs\":5}");
    CHECK(reader_head(&r, &a) && a.status == 200);
    client_request(silent, "POST /v1/completions", JSON_TYPE,
                   "{\"model\":\"tiny\",\"prompt\":\"a\",\"max_tokens\":400,\"ignore_eos\":true}");
    /* On a busy machine the first may have ended before the second begins. */
    for (int ms = 0; ms < 2000 && api_n_active(server) < 2; ms++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    api_drain(server);
    engine_stop(en);
    stop_server();
    reader_body(&r, &a);
    CHECK(strstr(str_cstr(&a.body), "data: [DONE]") || strstr(str_cstr(&a.body), "\"error\""));
    CHECK(reader_head(&q, &b));
    reader_body(&q, &b);
    CHECK_MSG(b.status == 503 || b.status == 200, "%d", b.status);
    answer_fini(&a);
    answer_fini(&b);
    close(stream);
    close(silent);
}

int main(void) {
    if (!set_up()) return 1;
    RUN(aliases_have_wildcards);
    RUN(wrong_aliases_are_refused);
    RUN(keys_are_checked);
    RUN(the_longest_idle_connection_is_closed);
    RUN(idle_connections_end);
    RUN(health_is_answered_beyond_the_limit);
    RUN(addresses_are_bounded);
    RUN(hosts_are_checked);
    RUN(forwarded_hosts_are_checked);
    RUN(wrong_lists_are_refused_at_start);
    RUN(slow_senders_time_out);
    RUN(received_bodies_are_bounded);
    RUN(unread_answers_are_bounded);
    RUN(a_port_in_use_is_reported);
    RUN(quiet_streams_get_comments);
    RUN(draining_refuses_and_finishes);
    RUN(closing_ends_running_requests);
    return tear_down();
}
