/* test_quota.c - buckets of a key's requests and tokens. Time is an argument. */
#include "api/http/quota.h"

#include "api/http/http.h"
#include "api/http/request.h"
#include "core/base/mem.h"
#include "tests/unit/check.h"

#include <stdlib.h>

static const uint64_t second = UINT64_C(1000000000), begin = UINT64_C(1000) * 1000000000;

static struct http *h;
static struct request *r;

static void start(uint32_t key) {
    h = mem_new(1, sizeof *h);
    r = mem_new(1, sizeof *r);
    CHECK(h && r);
    quotas_init(&h->quotas);
    r->http = h;
    r->key.number = key;
    str_init(&r->reply.body, 1 << 16);
}

static void stop(void) {
    str_fini(&r->reply.body);
    quotas_fini(&h->quotas);
    free(r);
    free(h);
}

static bool ask(uint64_t now_ns) {
    r->reply.status = 0;
    r->reply.n_headers = 0;
    bool ok = quota_take_request(r, now_ns);
    CHECK(ok == (r->reply.status == 0) && (ok || r->reply.status == 429));
    return ok;
}

static const char *header(const char *name) {
    for (size_t i = 0; i < r->reply.n_headers; i++)
        if (strcmp(r->reply.headers[i].name, name) == 0) return r->reply.headers[i].value;
    return "";
}

static void expect_headers(uint64_t now_ns, const char *kind, const char *left, const char *reset) {
    char name[64];
    r->reply.n_headers = 0;
    quota_add_headers(r, now_ns);
    snprintf(name, sizeof name, "x-ratelimit-remaining-%s", kind);
    CHECK_STR(header(name), left);
    snprintf(name, sizeof name, "x-ratelimit-reset-%s", kind);
    CHECK_STR(header(name), reset);
}

static void requests_flow_back_evenly(void) {
    start(3);
    r->key.limits[KEY_REQUESTS_MINUTE] = 4;
    for (int i = 0; i < 4; i++)
        CHECK(ask(begin));
    CHECK(!ask(begin) && r->retry_after_ms == 15001);
    expect_headers(begin, "requests", "0", "1m0s");
    CHECK(!ask(begin + 15 * second - 1));
    CHECK(ask(begin + 15 * second)); /* refused ones took nothing */
    CHECK(!ask(begin + 15 * second));
    expect_headers(begin + 45 * second, "requests", "2", "30s");
    expect_headers(begin + 1000 * second, "requests", "4", "0s");
    for (int i = 0; i < 4; i++)
        CHECK(ask(begin + 1000 * second));
    CHECK(!ask(begin + 1000 * second));
    r->key.number = 4; /* another key */
    CHECK(ask(begin + 1000 * second));
    stop();
}

static void the_nearest_limit_counts(void) {
    start(1);
    r->key.limits[KEY_REQUESTS_MINUTE] = 2;
    r->key.limits[KEY_REQUESTS_DAY] = 3;
    CHECK(ask(begin) && ask(begin));
    expect_headers(begin, "requests", "0", "1m0s");
    CHECK(ask(begin + 60 * second));
    expect_headers(begin + 60 * second, "requests", "0", "23h59m0s");
    CHECK(!ask(begin + 120 * second) && r->retry_after_ms > 7 * 3600 * 1000u);
    stop();
}

static void tokens_leave_a_debt(void) {
    err e = {0};
    start(1);
    r->key.limits[KEY_TOKENS_MINUTE] = 600;
    CHECK(quota_check_tokens(r, 5000, begin, &e) ==
          0); /* more than the limit, from a full bucket */
    quota_take_tokens(r, 1000, begin);
    quota_take_tokens(r, 0, begin);
    CHECK(quota_check_tokens(r, 1, begin, &e) == ERR_QUOTA && r->retry_after_ms == 40101);
    CHECK(strstr(e.msg, "Limit 600, Used 600, Requested 1. "));
    quota_take_tokens(r, 200, begin + 10 * second);
    CHECK(quota_check_tokens(r, 1, begin + 60 * second, &e) == ERR_QUOTA);
    CHECK(quota_check_tokens(r, 1, begin + 60 * second + second / 5, &e) == 0);
    expect_headers(begin + 90 * second, "tokens", "300", "30s");
    r->key.limits[KEY_TOKENS_MINUTE] = 1; /* the largest numbers do not overflow */
    quota_take_tokens(r, UINT64_MAX / 2, begin);
    CHECK(quota_check_tokens(r, UINT64_MAX / 2, begin, &e) == ERR_QUOTA);
    stop();
}

static void sequences_are_held(void) {
    struct quota_hold a = {0}, b = {0}, none = {0};
    err e = {0};
    start(70);
    CHECK(quota_hold(r, &none, 1000, &e) == 0 && !none.n);
    quota_release(&none);
    r->key.limits[KEY_SEQUENCES] = 5;
    CHECK(quota_hold(r, &a, 3, &e) == 0 && quota_hold(r, &b, 3, &e) == ERR_QUOTA && !b.n);
    CHECK(quota_hold(r, &b, 2, &e) == 0);
    quota_release(&a);
    quota_release(&a);
    CHECK(quota_hold(r, &a, 4, &e) == ERR_QUOTA && quota_hold(r, &a, 3, &e) == 0);
    quota_release(&a);
    quota_release(&b);
    CHECK(quota_hold(r, &a, UINT32_MAX, &e) == ERR_QUOTA);
    stop();
}

static void memory_may_fail(void) {
    struct quota_hold a = {0};
    err e = {0};
    start(1);
    r->key.limits[KEY_SEQUENCES] = r->key.limits[KEY_TOKENS_MINUTE] = 5;
    mem_fail_at(1);
    CHECK(quota_hold(r, &a, 1, &e) == ERR_NOMEM && !a.n);
    mem_fail_at(1);
    CHECK(quota_check_tokens(r, 1, begin, &e) == ERR_NOMEM);
    mem_fail_at(0);
    CHECK(quota_hold(r, &a, 1, &e) == 0);
    quota_release(&a);
    stop();
}

int main(void) {
    RUN(requests_flow_back_evenly);
    RUN(the_nearest_limit_counts);
    RUN(tokens_leave_a_debt);
    RUN(sequences_are_held);
    RUN(memory_may_fail);
    return check_done();
}
