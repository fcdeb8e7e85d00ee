/* test_base.c - core/base: half floats against arithmetic, quantized round trips, UTF-8, arena. */
#include "core/base/clock.h"
#include "core/base/duration.h"
#include "core/base/err.h"
#include "core/base/mem.h"
#include "core/base/qblock.h"
#include "core/base/siphash.h"
#include "core/base/str.h"
#include "core/base/thread.h"
#include "core/base/work.h"
#include "core/text/utf8.h"
#include "tests/support/rng.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#ifdef __linux__
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* As if wall time had been an hour ahead and were set back after each look at it: who waits until
 * so and so much later by it waits for an hour. */
static atomic_bool is_hour_ahead;

int clock_gettime(clockid_t id, struct timespec *t) {
    int rc = (int)syscall(SYS_clock_gettime, id, t);
    if (!rc && id == CLOCK_REALTIME && atomic_load(&is_hour_ahead)) t->tv_sec += 3600;
    return rc;
}
#else
static atomic_bool is_hour_ahead; /* of no effect */
#endif

/* Value of a half by its definition, in double. */
static double half_value(uint16_t h) {
    int e = h >> 10 & 31, m = h & 1023;
    double v = e ? ldexp(1 + m / 1024.0, e - 15) : ldexp(m / 1024.0, -14);
    return h & 0x8000 ? -v : v;
}

static void test_f16_all_values(void) {
    for (uint32_t h = 0; h < 0x10000; h++) {
        if ((h >> 10 & 31) == 31) continue;
        float f = f16_to_f32((uint16_t)h);
        CHECK(f == (float)half_value((uint16_t)h));
        CHECK(f32_to_f16(f) == h);
    }
    CHECK(isinf(f16_to_f32(0x7c00)) && isnan(f16_to_f32(0x7e01)));
    CHECK(f32_to_f16(INFINITY) == 0x7c00 && f32_to_f16(-1e9f) == 0xfc00);
    CHECK((f32_to_f16(NAN) & 0x7fff) > 0x7c00);
}

/* Nearest, ties to even: compare with both neighbours in double. */
static void test_f16_rounding(void) {
    struct rng rng = {1};
    for (int i = 0; i < 200000; i++) {
        float f = ldexpf(rng_float(&rng, 0.5f, 1.5f), (int)rng_below(&rng, 44) - 28);
        uint16_t h = f32_to_f16(f);
        if (h >= 0x7c00) {
            CHECK(f >= 65520);
            continue;
        }
        double error = fabs(half_value(h) - f);
        if (h + 1 < 0x7c00) CHECK(error <= fabs(half_value((uint16_t)(h + 1)) - f));
        if (h > 0) CHECK(error <= fabs(half_value((uint16_t)(h - 1)) - f));
    }
    CHECK(f32_to_f16(1.0f + 0x1p-11f) == 0x3c00 && f32_to_f16(1.0f + 0x3p-11f) == 0x3c02);
    CHECK(f32_to_bf16(1.0f + 0x1p-8f) == 0x3f80 && f32_to_bf16(1.0f + 0x3p-8f) == 0x3f82);
    CHECK(bf16_to_f32(0x3f80) == 1.0f);
}

static void test_quantized_round_trip(void) {
    const struct {
        int type;
        float step; /* largest error over the block's largest magnitude */
    } cases[] = {{QTYPE_F32, 0},
                 {QTYPE_F16, 0x1p-11f},
                 {QTYPE_BF16, 0x1p-8f},
                 {QTYPE_Q8_0, 1.0f / 127},
                 {QTYPE_Q4_0, 1.5f / 8}};
    float x[96], y[96];
    unsigned char packed[sizeof x];
    struct rng rng = {2};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        uint64_t bytes;
        CHECK(qtype_bytes(cases[c].type, 1, 96, &bytes) && bytes <= sizeof packed);
        for (int round = 0; round < 50; round++) {
            for (int i = 0; i < 96; i++)
                x[i] = round == 0 ? 0 : rng_float(&rng, -2, 2);
            qtype_encode(cases[c].type, x, packed, 96);
            qtype_decode(cases[c].type, packed, y, 96);
            for (int i = 0; i < 96; i++)
                CHECK_MSG(fabsf(x[i] - y[i]) <= cases[c].step * 2, "%s %g %g",
                          qtype_name(cases[c].type), (double)x[i], (double)y[i]);
        }
    }
    uint64_t bytes;
    CHECK(!qtype_bytes(QTYPE_Q8_0, 1, 33, &bytes) && !qtype_bytes(999, 1, 32, &bytes));
    CHECK(!qtype_bytes(QTYPE_F32, UINT64_MAX / 2, 4, &bytes));
}

static void test_utf8(void) {
    CHECK(utf8_valid("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 10));
    CHECK(!utf8_valid("\xc0\x80", 2) && !utf8_valid("\xed\xa0\x80", 3));
    CHECK(!utf8_valid("\xf4\x90\x80\x80", 4) && !utf8_valid("\xe2\x82", 2));
    CHECK(utf8_whole("ab\xe2\x82", 4) == 2 && utf8_whole("ab\xe2\x82\xac", 5) == 5);
    CHECK(utf8_whole("\xff", 1) == 1 && utf8_whole("\x80\x80\x80\x80", 4) == 4);
    str s;
    str_init(&s, 100);
    utf8_add_lossy(&s, "a\xff\xe2\x82", 4);
    CHECK_STR(str_cstr(&s), "a\xef\xbf\xbd\xef\xbf\xbd");
    str_fini(&s);
}

/* Every scalar value is decoded again, and each of its prefixes is truncated, not malformed. */
static void test_utf8_every_character(void) {
    for (uint32_t c = 0; c <= UTF8_LAST + 1; c++) {
        char bytes[4];
        uint32_t again = 0, checked = 0;
        unsigned valid_len = 0;
        if (!utf8_is_scalar(c)) continue;
        int n = (int)utf8_encode(c, bytes);
        bool ok = utf8_decode(bytes, (size_t)n, &again) == n && again == c &&
                  utf8_decode_valid(bytes, &valid_len) == c && (int)valid_len == n &&
                  utf8_count(bytes, (size_t)n) == 1;
        for (int k = 1; k < n; k++)
            ok &= utf8_decode(bytes, (size_t)k, &again) == -1;
        for (int k = 0; k < n; k++)
            ok &= utf8_step(&checked, (uint8_t)bytes[k]);
        CHECK_MSG(ok && checked == 0, "U+%04X", c);
    }
    CHECK(!utf8_is_scalar(0xd800) && !utf8_is_scalar(0xdfff) && !utf8_is_scalar(UTF8_LAST + 1));
}

/* The three functions agree on every pair of bytes, with and without following bytes. */
static void test_utf8_malformed(void) {
    for (unsigned pair = 0; pair < 0x10000; pair++) {
        char bytes[5] = {(char)(pair >> 8), (char)pair, '\x80', '\x80', 'a'};
        uint32_t c = 0, checked = 0, lossy;
        size_t len, n = 0;
        int found = utf8_decode(bytes, 4, &c);
        bool whole = utf8_step(&checked, (uint8_t)bytes[n++]);
        while (whole && checked && n < 4)
            whole = utf8_step(&checked, (uint8_t)bytes[n++]);
        lossy = utf8_decode_lossy(bytes, 4, &len);
        CHECK_MSG(whole ? found == (int)n : found == 0, "%04x: %d", pair, found);
        CHECK(found > 0 ? lossy == c && (int)len == found : lossy == 0xfffd && len == 1);
        CHECK(utf8_len_lossy(bytes, 4) == len && (found <= 0 || utf8_is_scalar(c)));
    }
    CHECK(utf8_count_lossy("a\xc3\xa9\xed\xa0\x80\xff", 7) == 6);
    CHECK(utf8_valid_prefix("0123456789abcdef\xc3\xa9ghijklmnop\xe2\x82", 30) == 28);
}

static void test_str_bound(void) {
    str s;
    str_init(&s, 8);
    str_addf(&s, "%d-%s", 42, "abc");
    CHECK_STR(str_cstr(&s), "42-abc");
    str_add(&s, "xyz");
    CHECK(s.failed && s.len == 6);
    CHECK(str_take(&s) == NULL);
    str_fini(&s);
}

static void test_arena_bound(void) {
    arena *a = arena_new(64 * 1024);
    char *p = arena_alloc(a, 40000), *q = arena_strndup(a, "hello!", 5);
    CHECK(p && ((uintptr_t)p & 15) == 0 && p[39999] == 0);
    CHECK_STR(q, "hello");
    CHECK(arena_alloc(a, 30000) == NULL && arena_alloc(a, UINT64_MAX) == NULL);
    arena_free(a);
    uint64_t n;
    CHECK(!mem_mul(UINT64_MAX, 2, &n) && mem_add(1, 2, &n) && n == 3);
    CHECK(mem_new(UINT64_MAX, 16) == NULL);
}

static void test_err(void) {
    err e;
    CHECK(err_set_param(&e, ERR_INVALID, "top_p", "%d is too much", 7) == ERR_INVALID);
    err_prefix(&e, "in %s: ", "body");
    CHECK_STR(e.msg, "in body: 7 is too much");
    CHECK_STR(e.param, "top_p");
    CHECK(err_set(NULL, ERR_IO, "x") == ERR_IO);
}

/* The first words of the reference implementation's vectors_sip128: key 00 01 ... 0f, texts of the
 * bytes 00 01 ...; and every length has a different value, across whole words. */
static void test_siphash(void) {
    static const struct hash128 want[] = {{0xe6a825ba047f81a3u, 0x930255c71472f66du},
                                          {0x44af996bd8c187dau, 0x45fc229b11597634u},
                                          {0xc75da4a48d227781u, 0xe4ff0af6de8ba3fcu}};
    const struct hash128 key = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
    unsigned char text[33] = {0};
    struct hash128 seen[34];
    for (unsigned char i = 0; i < sizeof text; i++)
        text[i] = i;
    for (size_t n = 0; n < 34; n++) {
        seen[n] = siphash128(key, text, n < sizeof text ? n : 8);
        if (n < 3) CHECK(hash128_same(seen[n], want[n]));
        for (size_t k = 0; k < n; k++)
            CHECK(hash128_same(seen[k], seen[n]) == (n == 33 && k == 8));
    }
    CHECK(!hash128_same(siphash128((struct hash128){1, 0}, text, 9), seen[9]));
}

/* The array is full, an allocation fails, and the next one does not: no item is lost, and the
 * caller owns the array at all times (checked by AddressSanitizer). */
static void test_mem_grow(void) {
    uint32_t *list = NULL, n = 0, capacity = 0, n_failed = 0;
    for (; n < 1000; n++) {
        uint32_t *before = list, room = capacity;
        mem_fail_at(1);
        bool grown = mem_grow(&list, n, &capacity, sizeof *list);
        CHECK(grown == (n < room) && list == before && capacity == room);
        CHECK(mem_fail_at(0) == grown); /* pending unless the call had to grow */
        n_failed += !grown;
        CHECK(mem_grow(&list, n, &capacity, sizeof *list) && capacity > n);
        list[n] = n;
        for (uint32_t i = 0; i <= n; i += 1 + i / 8)
            CHECK(list[i] == i);
    }
    CHECK(n_failed == 7); /* 0, 16, 32, ... 512 */
    free(list);
    capacity = UINT32_MAX - 1;
    list = NULL;
    CHECK(!mem_grow(&list, UINT32_MAX - 1, &capacity, 1) && !list);
}

static void test_work(void) {
    CHECK(work_spend(NULL, UINT64_MAX));
    for (uint64_t units = 0; units < 20000; units += 1 + units / 5)
        for (uint64_t step = 1; step < 9000; step *= 3) {
            struct work w = {.left = units};
            uint64_t spent = 0;
            while (work_spend(&w, step))
                CHECK(work_left(&w) == units - (spent += step));
            CHECK(spent <= units && units - spent < step && w.reason == ERR_WORK);
            CHECK(!work_spend(&w, 0) && !work_spend(&w, 1) && !work_spend(&w, step));
        }
    atomic_bool cancelled = false;
    struct work w = {.left = UINT64_MAX, .cancelled = &cancelled};
    CHECK(work_spend(&w, UINT64_MAX - 1) && work_spend(&w, UINT64_MAX - 1));
    CHECK(work_left(&w) == UINT64_MAX);
    atomic_store(&cancelled, true);
    uint32_t more = 0; /* until the flag is read */
    while (work_spend(&w, 1))
        more++;
    CHECK(more < 10000 && w.reason == ERR_CANCELLED && !work_spend(&w, 1));
    struct work late = {.left = 5, .deadline_ns = clock_now_ns()};
    CHECK(!work_spend(&late, 1) && late.reason == ERR_DEADLINE);
    struct work early = {.left = 5, .deadline_ns = clock_now_ns() + UINT64_C(3600000000000)};
    CHECK(work_spend(&early, 5) && !work_spend(&early, 1) && early.reason == ERR_WORK);
    for (int reason = ERR_DEADLINE; reason <= ERR_WORK; reason++) {
        err e = {0};
        CHECK(work_error(reason, &e) == reason && e.code == reason && e.msg[0]);
    }
}

static void test_duration(void) {
    static const struct {
        const char *text;
        int64_t ms;
    } rows[] = {{"0", 0},
                {"300", 300000},
                {"1.5", 1500},
                {"5m", 300000},
                {"1h30m", 5400000},
                {"0s", 0},
                {"-1", -1},
                {"-5m", -1},
                {"-0s", 0},
                {"1.5h", 5400000},
                {"+2s", 2000},
                {"10ms", 10},
                {"1us", 1},
                {"1\xc2\xb5s", 1},
                {".5s", 500},
                {"5.s", 5000},
                {"30d", 2592000000},
                {"1d12h", 129600000},
                {"0.5d", 43200000},
                {"99999999999999999999h", -1}};
    int64_t ms;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ms = 7;
        CHECK_MSG(duration_parse(rows[i].text, &ms) && ms == rows[i].ms, "%s: %lld", rows[i].text,
                  (long long)ms);
    }
    static const char *const wrong[] = {"",    "-",    "m",   "5 m",  "5x",  "1h30", "5mm",
                                        "1dd", "soon", "1e3", "..5s", "nan", "0x10", "5m-1s"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        CHECK_MSG(!duration_parse(wrong[i], &ms), "%s", wrong[i]);
    CHECK(duration_of_seconds(-0.5) == DURATION_FOREVER && duration_of_seconds(0) == 0);
    CHECK(duration_of_seconds(1e300) == DURATION_FOREVER && duration_of_seconds(0.0001) == 1);
}

/* By a clock that nobody sets: otherwise this takes an hour. */
static void test_waiting(void) {
    pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t c;
    clock_cond_init(&c);
    atomic_store(&is_hour_ahead, true);
    const uint64_t until_ns = clock_now_ns() + 1000000;
    pthread_mutex_lock(&mu);
    while (clock_now_ns() < until_ns)
        clock_cond_wait(&c, &mu, until_ns);
    clock_cond_wait(&c, &mu, 0); /* long past */
    pthread_mutex_unlock(&mu);
    atomic_store(&is_hour_ahead, false);
    CHECK(clock_now_ns() >= until_ns);
    pthread_cond_destroy(&c);
}

static void test_utc(void) {
    char text[CLOCK_UTC_BYTES];
    CHECK_STR(clock_utc(0, text), "1970-01-01T00:00:00Z");
    CHECK_STR(clock_utc(1709251199, text), "2024-02-29T23:59:59Z");
    CHECK_STR(clock_utc(253402300799, text), "9999-12-31T23:59:59Z");
    CHECK_STR(clock_utc(INT64_MAX, text), "");
}

static void *do_nothing(void *arg) {
    return arg;
}

#ifdef __linux__ /* elsewhere the bound is on processes alone */
/* A process of an ordinary user at its bound of threads. */
static int start_one_too_many(void) {
    const struct rlimit one = {1, 1};
    pthread_t t;
    err e = {0};
    if (setrlimit(RLIMIT_NPROC, &one) || (getuid() == 0 && setuid(65534))) return 2;
    if (thread_start(&t, do_nothing, NULL, "does nothing", &e) != ERR_NOMEM) return 3;
    return strstr(e.msg, "a thread that does nothing: ") && strstr(e.msg, "ulimit -u") ? 0 : 4;
}
#endif

static void test_thread_start(void) {
    pthread_t t;
    void *result = NULL;
    int status = 0;
    CHECK(thread_start(&t, do_nothing, &status, "does nothing", NULL) == 0);
    CHECK(pthread_join(t, &result) == 0 && result == &status);
#ifdef __linux__
    pid_t child = fork();
    if (child == 0) _exit(start_one_too_many());
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
#endif
}

int main(void) {
    RUN(test_f16_all_values);
    RUN(test_f16_rounding);
    RUN(test_quantized_round_trip);
    RUN(test_utf8);
    RUN(test_utf8_every_character);
    RUN(test_utf8_malformed);
    RUN(test_str_bound);
    RUN(test_arena_bound);
    RUN(test_err);
    RUN(test_siphash);
    RUN(test_mem_grow);
    RUN(test_work);
    RUN(test_duration);
    RUN(test_waiting);
    RUN(test_utc);
    RUN(test_thread_start);
    return check_done();
}
