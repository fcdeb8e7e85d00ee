/* test_tracer.c - the queue and the thread of traces, over a collector in this process that
 * answers as a test says. Whatever happens, each span is counted once: sent or dropped. */
#include "api/http/json.h"
#include "api/http/trace_int.h"
#include "core/base/clock.h"
#include "core/base/mem.h"

#include "check.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECOND_NS UINT64_C(1000000000)

/* ---- a collector ---- */

struct collector {
    int fd;
    char url[64];
    atomic_int status; /* of its answers; 0: it closes the connection without one */
    atomic_bool ends, parses;
    atomic_uint n_requests, n_bad;
    pthread_t thread;
};

/* Reads one request: head, and a body of Content-Length. The body's length, or 0. */
static size_t read_request(int fd, char *buf, size_t max) {
    size_t n = 0;
    for (;;) {
        ssize_t got = read(fd, buf + n, max - n - 1);
        if (got <= 0) return 0;
        n += (size_t)got;
        buf[n] = '\0';
        char *body = strstr(buf, "\r\n\r\n");
        char *length = strcasestr(buf, "\r\ncontent-length:");
        if (!body || !length) continue;
        size_t want = strtoul(length + 17, NULL, 10);
        body += 4;
        if (n - (size_t)(body - buf) < want) {
            if (strcasestr(buf, "100-continue") && n == (size_t)(body - buf))
                (void)!write(fd, "HTTP/1.1 100 Continue\r\n\r\n", 25);
            continue;
        }
        memmove(buf, body, want + 1);
        return want;
    }
}

static void answer_one(struct collector *c, int fd, char *buf, size_t max) {
    char head[160];
    size_t n = read_request(fd, buf, max);
    int status = atomic_load(&c->status);
    cJSON *root = NULL;
    if (!n) return;
    atomic_fetch_add(&c->n_requests, 1);
    if (atomic_load(&c->parses) && json_parse(buf, n, &root, NULL)) atomic_fetch_add(&c->n_bad, 1);
    cJSON_Delete(root);
    if (!status) return;
    snprintf(head, sizeof head, "HTTP/1.1 %d X\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
             status);
    (void)!write(fd, head, strlen(head));
}

static void *run_collector(void *arg) {
    enum { MAX = 8 << 20 };
    struct collector *c = arg;
    char *buf = malloc(MAX);
    while (!atomic_load(&c->ends)) {
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        if (poll(&p, 1, 20) <= 0) continue;
        int fd = accept(c->fd, NULL, NULL);
        if (fd < 0) continue;
        answer_one(c, fd, buf, MAX);
        close(fd);
    }
    free(buf);
    return NULL;
}

static void collector_open(struct collector *c, int status) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    memset(c, 0, sizeof *c);
    atomic_store(&c->status, status);
    atomic_store(&c->parses, true);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(c->fd >= 0 && bind(c->fd, (struct sockaddr *)&at, n) == 0 && listen(c->fd, 16) == 0);
    CHECK(getsockname(c->fd, (struct sockaddr *)&at, &n) == 0);
    snprintf(c->url, sizeof c->url, "http://127.0.0.1:%u", ntohs(at.sin_port));
    CHECK(pthread_create(&c->thread, NULL, run_collector, c) == 0);
}

static void collector_close(struct collector *c) {
    atomic_store(&c->ends, true);
    pthread_join(c->thread, NULL);
    close(c->fd);
    CHECK(atomic_load(&c->n_bad) == 0);
}

/* ---- traces ---- */

/* Of a request with so many sequences, the last of which was cut in each phase. */
static struct trace *make_trace(uint32_t n_sequences) {
    struct trace *tr = mem_new(1, sizeof *tr);
    uint64_t now = clock_now_ns();
    if (!tr) return NULL;
    trace_context_begin(&tr->context, NULL, 1);
    snprintf(tr->state, sizeof tr->state, "a=\"quoted\\\"");
    tr->start_ns = now - 1000;
    tr->end_ns = now;
    tr->method = "POST";
    tr->route = "/v1/chat/completions";
    snprintf(tr->path, sizeof tr->path, "/v1/%c\"\\%c", 1, 0xff); /* not a text */
    tr->status = 200;
    tr->operation = n_sequences ? "chat" : NULL;
    tr->params = (struct trace_params){.temperature = 0.7, .n_choices = n_sequences};
    tr->n_sequences = n_sequences;
    for (uint32_t i = 0; i < n_sequences && i < TRACE_SEQUENCES; i++) {
        struct trace_sequence *q = &tr->sequences[i];
        q->submitted_ns = now - 900;
        if (i % 3 > 0) q->admitted_ns = now - 800;
        if (i % 3 > 1) q->first_token_ns = q->last_token_ns = now - 700, q->finish = "stop";
    }
    return tr;
}

static uint64_t all_of(const struct tracer_stats *s) {
    uint64_t n = s->sent;
    for (int i = 0; i < TRACE_N_DROPS; i++)
        n += s->dropped[i];
    return n;
}

static tracer *open_tracer(const char *url, uint32_t max_queue) {
    tracer *t = NULL;
    err e;
    int rc = tracer_open(&(struct tracer_config){url, 1, max_queue, "1.0"}, &t, &e);
    CHECK_MSG(rc == 0, "%s", e.msg);
    return t;
}

/* ---- tests ---- */

/* The number of spans is what is written, and the body is JSON. */
static void spans_are_counted_as_written(void) {
    const struct trace_origin origin = {"1.0", "instance"};
    for (uint32_t n = 0; n <= TRACE_SEQUENCES + 2; n++) {
        struct trace *tr = make_trace(n);
        cJSON *root = NULL;
        uint32_t found = 0;
        str s;
        str_init(&s, 1 << 20);
        trace_add_request(&s, &origin, tr, 0);
        CHECK(!s.failed && json_parse(str_cstr(&s), s.len, &root, NULL) == 0);
        for (const char *at = str_cstr(&s); (at = strstr(at, "\"spanId\"")); at++)
            found++;
        CHECK(found == trace_n_spans(tr));
        cJSON_Delete(root);
        str_fini(&s);
        free(tr);
    }
}

static void addresses(void) {
    static const char *const bad[] =
        {"x", "ftp://h", "http://u:p@h", "http://h/?a", "http://h/#a", "http://", " "},
                             *const good[][2] = {{"http://h:1", "http://h:1/v1/traces"},
                                                 {"https://h/a//", "https://h/a/v1/traces"}};
    char *url;
    err e;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_MSG(trace_post_url(bad[i], &url, &e) == ERR_INVALID && !url, "%s", bad[i]);
        CHECK_STR(e.param, "otlp_endpoint");
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK(trace_post_url(good[i][0], &url, &e) == 0);
        CHECK_STR(url, good[i][1]);
        free(url);
    }
}

enum { PUTTERS = 4, PUTS = 200 };

struct putter {
    tracer *t;
    uint64_t n_spans;
};

static void *put_many(void *arg) {
    struct putter *p = arg;
    for (uint32_t i = 0; i < PUTS; i++) {
        struct trace *tr = make_trace(i % 4);
        double ratio;
        p->n_spans += trace_n_spans(tr);
        tracer_ratio(p->t, &ratio);
        tracer_put(p->t, tr);
    }
    return NULL;
}

/* Requests end on several threads while the configuration changes and the collector fails. */
static void each_span_is_counted_once(void) {
    static const int statuses[] = {200, 503, 400, 0, 200};
    struct collector c;
    collector_open(&c, 200);
    for (size_t k = 0; k < sizeof statuses / sizeof *statuses; k++) {
        tracer *t = open_tracer(c.url, k % 2 ? 10 : 100000);
        struct putter p[PUTTERS];
        pthread_t threads[PUTTERS];
        struct tracer_stats stats;
        uint64_t n = 0;
        atomic_store(&c.status, statuses[k]);
        for (int i = 0; i < PUTTERS; i++) {
            p[i] = (struct putter){.t = t};
            CHECK(pthread_create(&threads[i], NULL, put_many, &p[i]) == 0);
        }
        for (int i = 0; k == 4 && i < 20; i++) { /* off and on again */
            const struct tracer_config change = {i % 2 ? c.url : "", 0.5, 50, "1.0"};
            CHECK(tracer_apply(t, &change, NULL) == 0);
        }
        for (int i = 0; i < PUTTERS; i++) {
            pthread_join(threads[i], NULL);
            n += p[i].n_spans;
        }
        tracer_flush(t, clock_now_ns() + SECOND_NS * (statuses[k] == 200 ? 60 : 1));
        /* Without a collector the batch is given up by the deadline. */
        for (int i = 0; i < 10000; i++) {
            tracer_stats_get(t, &stats);
            if (all_of(&stats) == n) break;
            usleep(5000);
        }
        CHECK_MSG(all_of(&stats) == n && stats.queued == 0, "%llu of %llu spans",
                  (unsigned long long)all_of(&stats), (unsigned long long)n);
        CHECK(k == 4 || (statuses[k] == 200) == (stats.sent > 0));
        CHECK(k != 0 || stats.sent == n);
        tracer_close(t);
    }
    collector_close(&c);
}

/* What waits when the daemon closes is freed; a bad configuration changes nothing. */
static void closing_and_refusing(void) {
    struct tracer_stats stats;
    double ratio;
    err e;
    tracer *t = open_tracer("http://127.0.0.1:1", 5);
    struct trace *one = make_trace(1);
    const uint64_t n_spans = trace_n_spans(one);
    free(one);
    const struct tracer_config bad = {"nonsense", 0.1, 1, "1.0"};
    CHECK(tracer_apply(t, &bad, &e) == ERR_INVALID);
    CHECK(tracer_ratio(t, &ratio) && ratio == 1);
    for (int i = 0; i < 7; i++)
        tracer_put(t, make_trace(1));
    tracer_lose(t);
    tracer_stats_get(t, &stats);
    /* Unless a second has passed, after which a batch is taken out. */
    CHECK(stats.dropped[TRACE_QUEUE_FULL] == 2 * n_spans || stats.queued < 5);
    CHECK(stats.dropped[TRACE_NO_MEMORY] == 1);
    tracer_close(t);
    t = open_tracer("", 5);
    CHECK(!tracer_ratio(t, &ratio));
    tracer_put(t, make_trace(1));
    tracer_stats_get(t, &stats);
    CHECK(stats.dropped[TRACE_UNSENT] > 0);
    tracer_flush(t, clock_now_ns() + SECOND_NS);
    tracer_close(t);
    tracer_close(NULL);
}

/* The n-th allocation fails: a clean error, or a span that is counted as dropped. */
static void memory_may_fail(void) {
    struct collector c;
    collector_open(&c, 200);
    bool reached = false;
    for (uint64_t n = 1; n < 100 && !reached; n++) {
        struct trace *tr = make_trace(2);
        const uint64_t n_spans = trace_n_spans(tr);
        struct tracer_stats stats;
        tracer *t;
        err e;
        mem_fail_at(n);
        int rc = tracer_open(&(struct tracer_config){c.url, 1, 10, "1.0"}, &t, &e);
        CHECK(rc == 0 || rc == ERR_NOMEM);
        if (rc) {
            mem_fail_at(0);
            free(tr);
            continue;
        }
        tracer_put(t, tr);
        tracer_flush(t, clock_now_ns() + 60 * SECOND_NS);
        reached = mem_fail_at(0) != 0;
        tracer_stats_get(t, &stats);
        CHECK(all_of(&stats) == n_spans);
        tracer_close(t);
    }
    CHECK(reached);
    /* The same on the thread that sends; the collector's parser would take part. */
    atomic_store(&c.parses, false);
    reached = false;
    for (uint64_t n = 1; n < 100 && !reached; n++) {
        struct trace *tr = make_trace(2);
        const uint64_t n_spans = trace_n_spans(tr);
        struct tracer_stats stats;
        tracer *t = open_tracer(c.url, 10);
        mem_fail_elsewhere_at(n);
        tracer_put(t, tr);
        tracer_flush(t, clock_now_ns() + 60 * SECOND_NS);
        reached = mem_fail_elsewhere_at(0) != 0;
        tracer_stats_get(t, &stats);
        CHECK(all_of(&stats) == n_spans && (!reached || stats.sent == n_spans));
        tracer_close(t);
    }
    CHECK(reached);
    collector_close(&c);
}

int main(void) {
    RUN(spans_are_counted_as_written);
    RUN(addresses);
    RUN(each_span_is_counted_once);
    RUN(closing_and_refusing);
    RUN(memory_may_fail);
    return check_done();
}
