/* test_log_line.c - lines of logs for programs, and the access log's queue: every line is one valid
 * JSON object whatever is in it and however little room there is; a slow or full disk drops lines,
 * counts them, and keeps nobody waiting. */
#include "api/http/access.h"
#include "api/http/conns.h"
#include "api/http/request.h"
#include "core/base/log.h"
#include "core/text/json.h"
#include "core/text/log_line.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static cJSON *parse_line(const char *line, size_t n) {
    const struct json_rules rules = {.max_depth = 2, .nul = JSON_NUL_REFUSED};
    cJSON *tree = NULL;
    err e;
    CHECK(n > 2 && line[n - 1] == '\n' && !memchr(line, '\n', n - 1));
    CHECK(json_decode(line, n - 1, &rules, &tree, &e) == 0);
    CHECK(cJSON_IsObject(tree));
    return tree;
}

static void test_values(void) {
    char line[512];
    struct log_line l;
    log_line_begin(&l, line, sizeof line, true);
    log_line_text(&l, "message", "a \"b\\c\" \x01 \xff\xfe \xc3\xa4 \xed\xa0\x80");
    log_line_text(&l, "none", "");
    log_line_number(&l, "tokens", 12);
    log_line_number(&l, "ms", 1.5);
    log_line_flag(&l, "cut_off", true);
    log_line_flag(&l, "missing", false);
    size_t n = log_line_end(&l);
    line[n] = '\0';
    CHECK_STR(line, "{\"message\":\"a \\\"b\\\\c\\\" \\u0001 \xef\xbf\xbd\xef\xbf\xbd \xc3\xa4 "
                    "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\",\"tokens\":12,\"ms\":1.500,"
                    "\"cut_off\":true}\n");
    cJSON_Delete(parse_line(line, n));
    log_line_begin(&l, line, sizeof line, false);
    log_line_text(&l, "path", "/a b=\"c\"\n");
    log_line_number(&l, "tokens", 12);
    n = log_line_end(&l);
    line[n] = '\0';
    CHECK_STR(line, "path=/a\\x20b=\\x22c\\x22\\x0a tokens=12\n");
}

/* Any bytes, any room. */
static void test_any_bytes(void) {
    unsigned random = 7;
    for (int round = 0; round < 4000; round++) {
        char text[200], line[700];
        size_t size = 64 + (size_t)round % 600, n = (size_t)round % sizeof text;
        struct log_line l;
        for (size_t i = 0; i < n; i++) {
            random = random * 1103515245u + 12345u;
            text[i] = (char)(1 + (random >> 16) % 255);
        }
        text[n] = '\0';
        for (int json = 0; json < 2; json++) {
            memset(line, '#', sizeof line);
            log_line_begin(&l, line, size, json);
            log_line_text(&l, "first", text);
            log_line_number(&l, "number", 1e300);
            log_line_text(&l, "second", text);
            log_line_flag(&l, "flag", true);
            size_t used = log_line_end(&l);
            CHECK(used <= size && line[size] == '#');
            if (json) cJSON_Delete(parse_line(line, used));
            for (size_t i = 0; i + 1 < used && !json; i++)
                CHECK(line[i] >= ' ' && line[i] < 0x7f);
        }
    }
}

static void test_time(void) {
    char out[LOG_TIME_BYTES];
    CHECK_STR(log_line_time(1769860800250, out), "2026-01-31T12:00:00.250Z");
    CHECK_STR(log_line_time(0, out), "1970-01-01T00:00:00.000Z");
}

/* ---- the access log ---- */

static void open_log(struct access *a, uint32_t capacity, int fd) {
    struct access_target t = {fd, true};
    err e;
    access_init(a, capacity);
    CHECK(access_prepare(a, &t, &e) == 0);
    access_set(a, &t);
}

static void *count_lines(void *arg) {
    static char buf[4096];
    static uint64_t n_lines;
    ssize_t got;
    while ((got = read(*(int *)arg, buf, sizeof buf)) > 0)
        for (ssize_t i = 0; i < got; i++)
            n_lines += buf[i] == '\n';
    return &n_lines;
}

/* A pipe that is not read at first: the queue fills, nobody waits, and what has a place is written
 * later. */
static void test_slow_disk(void) {
    enum { ADDED = 5000 };
    static struct access a;
    static struct request r = {.method = "POST", .id = "req_1"};
    struct conn c = {.fd = -1};
    pthread_t reader;
    void *n_lines = NULL;
    int ends[2];
    r.conn = &c;
    CHECK(pipe(ends) == 0);
    open_log(&a, 64, ends[1]);
    for (int i = 0; i < ADDED; i++)
        access_add(&a, &r, 200, false);
    CHECK(atomic_load(&a.n_queue_full) > ADDED / 2);
    CHECK(pthread_create(&reader, NULL, count_lines, &ends[0]) == 0);
    access_fini(&a);
    pthread_join(reader, &n_lines);
    close(ends[0]);
    CHECK(atomic_load(&a.n_written) + atomic_load(&a.n_queue_full) == ADDED);
    CHECK(*(uint64_t *)n_lines == atomic_load(&a.n_written));
}

static void test_full_disk(void) {
    static struct access a;
    static struct request r = {.method = "POST", .id = "req_1"};
    struct conn c = {.fd = -1};
    r.conn = &c;
    int fd = open("/dev/full", O_WRONLY);
    if (fd < 0) return; /* not on this system */
    open_log(&a, 64, fd);
    for (int i = 0; i < 10; i++)
        access_add(&a, &r, 200, false);
    access_fini(&a);
    CHECK(atomic_load(&a.n_not_written) == 10 && atomic_load(&a.n_written) == 0);
}

static void test_targets(void) {
    struct access_target t;
    err e;
    CHECK(access_open("", false, &t, &e) == 0 && t.fd == -1);
    CHECK(access_open("/nonexistent/folder/file", false, &t, &e) == ERR_IO);
    CHECK_STR(e.param, "access_log");
    CHECK(access_open("/dev/null", false, &t, &e) == ERR_INVALID && t.fd == -1);
    CHECK(access_open("/", false, &t, &e) == ERR_IO);
}

int main(void) {
    RUN(test_values);
    RUN(test_any_bytes);
    RUN(test_time);
    RUN(test_slow_disk);
    RUN(test_full_disk);
    RUN(test_targets);
    return check_done();
}
