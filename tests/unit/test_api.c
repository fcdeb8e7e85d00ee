/* test_api.c - the HTTP layer over sockets, over a real engine with a tiny model: answers and
 * streams, refusals, limits of one request, clients that disconnect. */
#include "api_server.h"

/* Posts and parses the answer; the caller deletes. */
static cJSON *post_json(const char *path, const char *body, int status) {
    struct answer a;
    client_post(path, body, &a);
    CHECK_MSG(a.status == status && a.complete, "%s: %d %s", body, a.status, str_cstr(&a.body));
    CHECK_STR(answer_header(&a, "Content-Type"), "application/json");
    cJSON *v = cJSON_Parse(str_cstr(&a.body));
    CHECK(v != NULL);
    answer_fini(&a);
    return v;
}

/* ---- before and after loading ---- */

static void loading_is_reported(void) {
    struct answer a;
    client_get("/livez", &a);
    CHECK(a.status == 200);
    answer_fini(&a);
    client_get("/readyz", &a);
    CHECK(a.status == 503 && *answer_header(&a, "Retry-After"));
    answer_fini(&a);
    client_get("/metrics", &a);
    CHECK(a.status == 200 && strstr(str_cstr(&a.body), "inferd_ready 0\n"));
    answer_fini(&a);
    client_post("/v1/chat/completions", "{" HELLO "}", &a);
    CHECK(*answer_header(&a, "Retry-After"));
    expect_error(&a, 503, "model_loading");
    answer_fini(&a);
    publish();
    client_get("/readyz", &a);
    CHECK(a.status == 200);
    answer_fini(&a);
    client_get("/health", &a);
    CHECK(a.status == 200 && strstr(str_cstr(&a.body), "\"status\":\"ok\""));
    answer_fini(&a);
}

static void models_are_listed(void) {
    struct answer a;
    client_get("/v1/models", &a);
    cJSON *v = cJSON_Parse(str_cstr(&a.body));
    CHECK_STR(text_at(v, "object"), "list");
    CHECK_STR(text_at(v, "data.0.id"), "tiny");
    CHECK(int_at(v, "data.0.created") == 1234567890);
    cJSON_Delete(v);
    answer_fini(&a);
    client_get("/v1/models/org%2Fother", &a);
    CHECK(a.status == 200 && strstr(str_cstr(&a.body), "\"id\":\"tiny\""));
    answer_fini(&a);
    client_get("/v1/models/nobody", &a);
    expect_error(&a, 404, "model_not_found");
    answer_fini(&a);
}

/* ---- generations ---- */

static void a_stream_equals_the_whole_answer(void) {
    static const char *const tails[] = {"\"temperature\":0,\"max_tokens\":40}",
                                        "\"seed\":7,\"max_tokens\":60,\"ignore_eos\":true}",
                                        "\"seed\":8,\"max_completion_tokens\":1}"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        char body[512];
        snprintf(body, sizeof body, "{" HELLO ",%s", tails[i]);
        cJSON *whole = post_json("/v1/chat/completions", body, 200);
        CHECK_STR(text_at(whole, "object"), "chat.completion");
        CHECK_STR(text_at(whole, "model"), "tiny");
        CHECK_STR(text_at(whole, "choices.0.message.role"), "assistant");
        int tokens = int_at(whole, "usage.completion_tokens");
        CHECK(int_at(whole, "usage.total_tokens") == tokens + int_at(whole, "usage.prompt_tokens"));
        CHECK(i != 1 || tokens == 60);
        snprintf(body, sizeof body,
                 "{" HELLO ",\"stream\":true,\"stream_options\":{\"include_usage\":true},%s",
                 tails[i]);
        struct answer a;
        struct streamed s;
        client_post("/v1/chat/completions", body, &a);
        CHECK(a.status == 200 && a.complete);
        CHECK(strncmp(answer_header(&a, "Content-Type"), "text/event-stream", 17) == 0);
        read_events(&a, &s);
        CHECK(s.done && s.completion_tokens == tokens);
        CHECK_STR(str_cstr(&s.text), text_at(whole, "choices.0.message.content"));
        CHECK_STR(s.finish, text_at(whole, "choices.0.finish_reason"));
        str_fini(&s.text);
        answer_fini(&a);
        cJSON_Delete(whole);
    }
}

/* The memory of a request is bounded, also with many choices. */
static void too_large_answers_are_refused(void) {
    cJSON *v = post_json("/v1/chat/completions",
                         "{" HELLO ",\"n\":128,\"logprobs\":true,\"top_logprobs\":20,"
                         "\"temperature\":2,\"ignore_eos\":true,\"max_tokens\":480}",
                         400);
    CHECK_MSG(strstr(text_at(v, "error.message"), "set 'stream'"), "%s",
              text_at(v, "error.message"));
    cJSON_Delete(v);
}

static void a_stop_string_ends_the_text_before_it(void) {
    static const char params[] = "\"temperature\":0,\"max_tokens\":60,\"ignore_eos\":true";
    cJSON *whole = post_json("/v1/chat/completions",
                             "{" HELLO ",\"temperature\":0,"
                             "\"max_tokens\":60,\"ignore_eos\":true}",
                             200);
    const char *text = text_at(whole, "choices.0.message.content");
    /* three printable ASCII bytes from the middle on, so that they need no escape */
    size_t n = strlen(text), from = n / 2;
    while (from + 3 < n && strspn(text + from, "abcdefghijklmnopqrstuvwxyz ") < 3)
        from++;
    if (from + 3 < n) {
        char stop[4], body[512];
        snprintf(stop, sizeof stop, "%.3s", text + from);
        size_t want = (size_t)(strstr(text, stop) - text);
        snprintf(body, sizeof body, "{" HELLO ",%s,\"stop\":[\"%s\"],\"stream\":true}", params,
                 stop);
        struct answer a;
        struct streamed s;
        client_post("/v1/chat/completions", body, &a);
        read_events(&a, &s);
        CHECK(s.text.len == want && strncmp(str_cstr(&s.text), text, want) == 0);
        CHECK_STR(s.finish, "stop");
        str_fini(&s.text);
        answer_fini(&a);
    } else {
        CHECK(!"the text has three letters in a row");
    }
    cJSON_Delete(whole);
    CHECK(engine_quiet());
}

static void completions_accept_all_kinds_of_prompts(void) {
    cJSON *v = post_json("/v1/completions",
                         "{\"model\":\"tiny\",\"prompt\":[\"one\",\"two\"],\"n\":2,\"seed\":1,"
                         "\"max_tokens\":5,\"ignore_eos\":true}",
                         200);
    CHECK_STR(text_at(v, "object"), "text_completion");
    CHECK(cJSON_GetArraySize(at(v, "choices")) == 4 && int_at(v, "choices.3.index") == 3);
    CHECK(int_at(v, "usage.completion_tokens") == 20);
    CHECK_STR(text_at(v, "choices.2.finish_reason"), "length");
    cJSON_Delete(v);
    v = post_json("/v1/completions",
                  "{\"model\":\"org/other\",\"prompt\":[[1,264,265],[1,266]],\"max_tokens\":3,"
                  "\"ignore_eos\":true}",
                  200);
    CHECK(int_at(v, "usage.prompt_tokens") == 5 && int_at(v, "usage.completion_tokens") == 6);
    cJSON_Delete(v);
    v = post_json("/v1/completions",
                  "{\"model\":\"tiny\",\"prompt\":\"abc def\",\"max_tokens\":0,\"echo\":true,"
                  "\"logprobs\":2}",
                  200);
    CHECK_STR(text_at(v, "choices.0.text"), "abc def");
    int n = int_at(v, "usage.prompt_tokens");
    CHECK(int_at(v, "usage.completion_tokens") == 0);
    /* Without the BOS that the tokenizer adds, from which the first token is predicted. */
    CHECK(cJSON_GetArraySize(at(v, "choices.0.logprobs.tokens")) == n - 1);
    CHECK(cJSON_GetArraySize(at(v, "choices.0.logprobs.top_logprobs")) == n - 1);
    CHECK(at(v, "choices.0.logprobs.token_logprobs.0")->valuedouble < 0);
    CHECK(at(v, "choices.0.logprobs.token_logprobs.1")->valuedouble < 0);
    cJSON_Delete(v);
    static const char *const bad[] = {"7",    "[]",         "[[]]",  "[1,\"a\"]", "[\"a\",1]",
                                      "[-1]", "[99999999]", "[1.5]", "{}",        "true"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"model\":\"tiny\",\"prompt\":%s}", bad[i]);
        v = post_json("/v1/completions", body, 400);
        CHECK_STR(text_at(v, "error.param"), "prompt");
        cJSON_Delete(v);
    }
}

static void logprobs_are_given(void) {
    cJSON *v = post_json("/v1/chat/completions",
                         "{" HELLO ",\"temperature\":0,\"max_tokens\":6,\"ignore_eos\":true,"
                         "\"logprobs\":true,\"top_logprobs\":3}",
                         200);
    const cJSON *content = at(v, "choices.0.logprobs.content"), *t;
    CHECK(cJSON_GetArraySize(content) == 6);
    cJSON_ArrayForEach(t, content) {
        CHECK(cJSON_GetArraySize(at(t, "top_logprobs")) == 3);
        CHECK(at(t, "logprob")->valuedouble == at(t, "top_logprobs.0.logprob")->valuedouble);
        CHECK(cJSON_IsArray(at(t, "bytes")));
    }
    cJSON_Delete(v);
}

/* ---- refusals ---- */

static void wrong_requests_are_refused(void) {
    static const struct {
        const char *line, *headers, *body;
        int status;
        const char *code;
    } rows[] = {
        {"GET /v1/nothing", "", NULL, 404, "unknown_url"},
        {"POST /v1/models", JSON_TYPE, "{}", 405, "method_not_allowed"},
        {"GET /v1/completions", "", NULL, 405, "method_not_allowed"},
        {"BREW /livez", "", NULL, 405, "method_not_allowed"},
        {"POST /v1/completions", "Content-Type: text/plain\r\n", "{}", 415,
         "unsupported_media_type"},
        {"POST /v1/completions", "Content-Type: application/jsonx\r\n", "{}", 415,
         "unsupported_media_type"},
        {"POST /v1/completions", "", "{}", 415, "unsupported_media_type"},
        {"POST /v1/completions", JSON_TYPE, "{", 400, "invalid_json"},
        {"POST /v1/completions", JSON_TYPE, "", 400, "invalid_json"},
        {"POST /v1/completions", JSON_TYPE, "{\"model\":\"x\",\"prompt\":\"y\"}", 404,
         "model_not_found"},
        {"GET /livez", "Origin: http://evil.example\r\n", NULL, 403, "origin_not_allowed"},
        {"GET /livez", "Origin: null\r\n", NULL, 403, "origin_not_allowed"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct answer a;
        client_ask(rows[i].line, rows[i].headers, rows[i].body, &a);
        expect_error(&a, rows[i].status, rows[i].code);
        if (rows[i].status == 405) CHECK(*answer_header(&a, "Allow"));
        answer_fini(&a);
    }
    struct answer a;
    char headers[128];
    snprintf(headers, sizeof headers, "Origin: http://127.0.0.1:%u\r\n", client_port);
    client_ask("GET /livez", headers, NULL, &a);
    CHECK(a.status == 200);
    answer_fini(&a);
}

/* DNS rebinding: the other site's name resolves to this server; its page need not send an Origin.
 */
static void a_foreign_name_is_refused(void) {
    static const char *const headers[] = {"", "Origin: http://evil.example\r\n"};
    static const char *const paths[] = {"/livez", "/v1/models", "/metrics", "/", "/nothing"};
    for (size_t i = 0; i < 2 * sizeof paths / sizeof *paths; i++) {
        int fd = client_connect();
        struct reader r = {.fd = fd};
        struct answer a;
        char request[256];
        int n = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: evil.example\r\n%s\r\n",
                         paths[i / 2], headers[i % 2]);
        client_send(fd, request, (size_t)n);
        CHECK(reader_head(&r, &a));
        reader_body(&r, &a);
        expect_error(&a, 403, "host_not_allowed");
        answer_fini(&a);
        close(fd);
    }
}

static void a_too_long_prompt_names_the_limit(void) {
    str s;
    str_init(&s, 1 << 20);
    str_add(&s, "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < 9000; i++)
        str_add(&s, "q w");
    str_add(&s, "\"}]}");
    cJSON *v = post_json("/v1/chat/completions", str_cstr(&s), 400);
    CHECK_STR(text_at(v, "error.code"), "context_length_exceeded");
    CHECK_STR(text_at(v, "error.param"), "messages");
    cJSON_Delete(v);
    str_fini(&s);
}

/* Request smuggling: a second request after an ambiguous body gets no answer. */
static void ambiguous_lengths_close_the_connection(void) {
    static const char *const headers[] = {
        "Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}",
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    };
    for (size_t i = 0; i < 2; i++) {
        struct answer a;
        char bytes[512], rest;
        int n = snprintf(bytes, sizeof bytes,
                         "POST /v1/completions HTTP/1.1\r\nHost: a\r\n" JSON_TYPE
                         "%sGET /livez HTTP/1.1\r\nHost: a\r\n\r\n",
                         headers[i]);
        int fd = client_connect();
        struct reader r = {.fd = fd};
        client_send(fd, bytes, (size_t)n);
        CHECK(reader_head(&r, &a) && a.status == 400);
        CHECK_STR(answer_header(&a, "Connection"), "close");
        reader_body(&r, &a);
        answer_fini(&a);
        CHECK(r.at == r.n && client_recv(fd, &rest, 1, CLIENT_WAIT_MS) == 0);
        close(fd);
    }
}

static void compressed_bodies_are_415(void) {
    struct answer a;
    client_ask("POST /v1/completions", JSON_TYPE "Content-Encoding: gzip\r\n", "\x1f\x8b", &a);
    expect_error(&a, 415, "unsupported_media_type");
    answer_fini(&a);
}

static void too_large_bodies_are_413(void) {
    enum { BYTES = 300000 };
    char *big = mem_new(BYTES + 1, 1);
    struct answer a;
    memset(big, ' ', BYTES);
    client_post("/v1/completions", big, &a);
    expect_error(&a, 413, "request_too_large");
    answer_fini(&a);
    /* Chunked: no length is announced. */
    int fd = client_connect();
    struct reader r = {.fd = fd};
    client_request(fd, "POST /v1/completions", JSON_TYPE "Transfer-Encoding: chunked\r\n", NULL);
    for (int i = 0; i < 30; i++) {
        client_send(fd, "2710\r\n", 6);
        client_send(fd, big, 10000);
        client_send(fd, "\r\n", 2);
    }
    client_send(fd, "0\r\n\r\n", 5);
    CHECK(reader_head(&r, &a));
    reader_body(&r, &a);
    expect_error(&a, 413, "request_too_large");
    answer_fini(&a);
    /* Bytes after a chunked body are not a request. */
    char rest;
    CHECK(r.at == r.n && client_recv(fd, &rest, 1, CLIENT_WAIT_MS) == 0);
    close(fd);
    /* A client that sends Expect: 100-continue gets the status before it sends the body. */
    fd = client_connect();
    r = (struct reader){.fd = fd};
    client_request(fd, "POST /v1/completions",
                   JSON_TYPE "Expect: 100-continue\r\nContent-Length: 300000\r\n", NULL);
    CHECK(reader_head(&r, &a));
    reader_body(&r, &a);
    expect_error(&a, 413, "request_too_large");
    answer_fini(&a);
    close(fd);
    free(big);
}

static void expect_continue_is_answered(void) {
    static const char body[] = "{\"model\":\"tiny\",\"prompt\":\"a\",\"max_tokens\":1}";
    char headers[128];
    struct answer a;
    int fd = client_connect();
    struct reader r = {.fd = fd};
    snprintf(headers, sizeof headers, JSON_TYPE "Expect: 100-continue\r\nContent-Length: %zu\r\n",
             sizeof body - 1);
    client_request(fd, "POST /v1/completions", headers, NULL);
    CHECK(reader_head(&r, &a) && a.status == 100);
    answer_fini(&a);
    client_send(fd, body, sizeof body - 1);
    CHECK(reader_head(&r, &a) && a.status == 200);
    answer_fini(&a);
    close(fd);
}

static void too_large_headers_are_431(void) {
    str s;
    str_init(&s, 1 << 20);
    str_add(&s, "X-Long: ");
    for (int i = 0; i < 1200; i++)
        str_add(&s, "12345678");
    str_add(&s, "\r\n");
    struct answer a;
    client_ask("GET /livez", str_cstr(&s), NULL, &a);
    CHECK(a.status == 431);
    answer_fini(&a);
    str_clear(&s);
    for (int i = 0; i < 3000; i++)
        str_addf(&s, "X-Many-%d: some value of it\r\n", i);
    client_ask("GET /livez", str_cstr(&s), NULL, &a);
    CHECK(a.status == 431);
    answer_fini(&a);
    str_fini(&s);
}

static void connections_are_kept_alive(void) {
    int fd = client_connect();
    struct reader r = {.fd = fd};
    struct answer a;
    char first[65];
    client_request(fd, "GET /livez", "x-request-id: my-id_1.2\r\n", NULL);
    client_request(fd, "POST /v1/chat/completions", JSON_TYPE "x-request-id: bad id\r\n",
                   "{" HELLO ",\"max_tokens\":3}"); /* pipelined */
    client_request(fd, "GET /v1/nothing", "", NULL);
    CHECK(reader_head(&r, &a));
    reader_body(&r, &a);
    CHECK_STR(answer_header(&a, "x-request-id"), "my-id_1.2");
    answer_fini(&a);
    CHECK(reader_head(&r, &a));
    reader_body(&r, &a);
    CHECK(a.status == 200);
    snprintf(first, sizeof first, "%.64s", answer_header(&a, "x-request-id"));
    CHECK(strncmp(first, "req_", 4) == 0);
    answer_fini(&a);
    CHECK(reader_head(&r, &a));
    reader_body(&r, &a);
    CHECK(a.status == 404 && strcmp(first, answer_header(&a, "x-request-id")) != 0);
    answer_fini(&a);
    close(fd);
}

static void the_page_is_served(void) {
    struct answer a;
    char etag[128], headers[256];
    client_get("/", &a);
    CHECK(a.status == 200 && strstr(str_cstr(&a.body), "<title>"));
    CHECK(strncmp(answer_header(&a, "Content-Type"), "text/html", 9) == 0);
    CHECK(strstr(answer_header(&a, "Content-Security-Policy"), "default-src 'none'"));
    snprintf(etag, sizeof etag, "%.100s", answer_header(&a, "ETag"));
    answer_fini(&a);
    snprintf(headers, sizeof headers, "If-None-Match: %s\r\n", etag);
    client_ask("GET /index.html", headers, NULL, &a);
    CHECK(a.status == 304);
    answer_fini(&a);
    client_ask("HEAD /", "", NULL, &a);
    CHECK(a.status == 200 && atoi(answer_header(&a, "Content-Length")) > 0);
    answer_fini(&a);
}

/* ---- metrics ---- */

static bool is_sample(const char *line) {
    size_t n = strspn(line, "abcdefghijklmnopqrstuvwxyz_");
    const char *p = line + n;
    if (!n) return false;
    if (*p == '{') {
        for (p++; *p && *p != '}'; p += *p == ',') {
            size_t name = strspn(p, "abcdefghijklmnopqrstuvwxyz_");
            if (!name || p[name] != '=' || p[name + 1] != '"') return false;
            for (p += name + 2; *p && *p != '"'; p++)
                if (*p == '\\' && !p[1]) return false;
            if (*p++ != '"') return false;
        }
        if (*p++ != '}') return false;
    }
    char *end;
    if (*p++ != ' ') return false;
    strtod(p, &end);
    return end > p && !*end;
}

static void metrics_are_prometheus_text(void) {
    struct answer a;
    client_get("/metrics", &a);
    CHECK(a.status == 200 && a.complete);
    char *save = NULL, last_type[128] = "";
    double below = 0;
    int n_samples = 0;
    CHECK(strstr(str_cstr(&a.body), "inferd_kernel_dispatches_total{backend=\"cpu\",kernel=\""
                                    "paged_attention"));
    CHECK(strstr(str_cstr(&a.body), "inferd_http_requests_total{route=\"/v1/chat/completions\","
                                    "method=\"POST\",code=\"200\"}"));
    for (char *line = strtok_r(a.body.data, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, "# TYPE ", 7) == 0) {
            snprintf(last_type, sizeof last_type, "%.*s", (int)strcspn(line + 7, " "), line + 7);
            below = 0;
        }
        if (*line == '#') continue;
        n_samples++;
        CHECK_MSG(is_sample(line), "%s", line);
        CHECK_MSG(strncmp(line, last_type, strlen(last_type)) == 0, "%s under %s", line, last_type);
        if (!strstr(line, "_bucket{")) continue;
        double v = strtod(strrchr(line, ' '), NULL);
        CHECK_MSG(v >= below, "%s", line);
        below = v;
    }
    CHECK(n_samples > 80);
    answer_fini(&a);
}

/* ---- clients that disconnect, many clients ---- */

static void disconnected_clients_free_their_blocks(void) {
    static const char *const bodies[] = {
        "{" HELLO ",\"stream\":true,\"ignore_eos\":true,\"n\":3}", /* mid-stream */
        "{" HELLO ",\"ignore_eos\":true}",                         /* silent */
    };
    for (int half = 0; half < 2; half++)
        for (size_t i = 0; i < 2; i++) {
            int fd = client_connect();
            char byte;
            client_request(fd, "POST /v1/chat/completions", JSON_TYPE, bodies[i]);
            if (i == 0) CHECK(client_recv(fd, &byte, 1, CLIENT_WAIT_MS) == 1);
            if (half) shutdown(fd, SHUT_WR); /* counts as disconnected */
            if (!half) close(fd);
            CHECK(engine_quiet());
            if (half) close(fd);
        }
}

static void many_streams_end_properly(void) {
    enum { N = 120 };
    int fds[N];
    for (int i = 0; i < N; i++) {
        char body[512];
        snprintf(body, sizeof body,
                 "{" HELLO ",\"stream\":%s,\"seed\":%d,\"max_tokens\":%d,\"ignore_eos\":true,"
                 "\"stream_options\":%s}",
                 i % 4 ? "true" : "false", i, 5 + i % 37, i % 4 ? "{}" : "null");
        fds[i] = client_connect();
        client_request(fds[i], "POST /v1/chat/completions", JSON_TYPE, body);
        if (i % 10 == 9) {
            close(fds[i]);
            fds[i] = -1;
        }
    }
    for (int i = 0; i < N; i++) {
        if (fds[i] < 0) continue;
        struct reader r = {.fd = fds[i]};
        struct answer a;
        CHECK(reader_head(&r, &a));
        reader_body(&r, &a);
        CHECK_MSG(a.status == 200 && a.complete, "%d: %d", i, a.status);
        const char *end = i % 4 ? "data: [DONE]\n\n" : "}}}";
        CHECK(a.body.len > strlen(end) && strcmp(a.body.data + a.body.len - strlen(end), end) == 0);
        answer_fini(&a);
        close(fds[i]);
    }
    CHECK(engine_quiet());
}

/* A client that does not read occupies a full ring and a few buffers; others continue. */
static void a_slow_reader_delays_no_other(void) {
    int slow = client_connect();
    client_request(slow, "POST /v1/chat/completions", JSON_TYPE,
                   "{" HELLO ",\"stream\":true,\"ignore_eos\":true,\"n\":4,\"logprobs\":true,"
                   "\"top_logprobs\":20}");
    cJSON *v =
        post_json("/v1/chat/completions", "{" HELLO ",\"max_tokens\":20,\"ignore_eos\":true}", 200);
    CHECK(int_at(v, "usage.completion_tokens") == 20);
    cJSON_Delete(v);
    struct reader r = {.fd = slow};
    struct answer a;
    CHECK(reader_head(&r, &a));
    reader_body(&r, &a);
    CHECK(a.complete && strstr(str_cstr(&a.body), "data: [DONE]\n\n"));
    answer_fini(&a);
    close(slow);
    CHECK(engine_quiet());
}

/* "quick": without an answer of 64 MiB, which takes most of the time under a sanitizer. */
int main(int argc, char **argv) {
    const bool quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    if (!set_up()) return 1;
    struct api_config c = base_config();
    start_server(&c);
    RUN(loading_is_reported);
    RUN(models_are_listed);
    RUN(a_stream_equals_the_whole_answer);
    RUN(a_stop_string_ends_the_text_before_it);
    if (!quick) RUN(too_large_answers_are_refused);
    RUN(completions_accept_all_kinds_of_prompts);
    RUN(logprobs_are_given);
    RUN(wrong_requests_are_refused);
    RUN(a_foreign_name_is_refused);
    RUN(a_too_long_prompt_names_the_limit);
    RUN(ambiguous_lengths_close_the_connection);
    RUN(compressed_bodies_are_415);
    RUN(too_large_bodies_are_413);
    RUN(expect_continue_is_answered);
    RUN(too_large_headers_are_431);
    RUN(connections_are_kept_alive);
    RUN(the_page_is_served);
    RUN(metrics_are_prometheus_text);
    RUN(disconnected_clients_free_their_blocks);
    RUN(many_streams_end_properly);
    RUN(a_slow_reader_delays_no_other);
    stop_server();
    return tear_down();
}
