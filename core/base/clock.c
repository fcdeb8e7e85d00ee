/* clock.c - see clock.h. */
#include "core/base/clock.h"

#include <time.h>

#define SECOND_NS UINT64_C(1000000000)

uint64_t clock_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

int64_t clock_wall_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec;
}

int64_t clock_wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

const char *clock_utc(int64_t wall_s, char out[CLOCK_UTC_BYTES]) {
    time_t t = (time_t)wall_s;
    struct tm utc;
    if (!gmtime_r(&t, &utc) || !strftime(out, CLOCK_UTC_BYTES, "%Y-%m-%dT%H:%M:%SZ", &utc))
        *out = '\0';
    return out;
}

static struct timespec timespec_of(uint64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / SECOND_NS), .tv_nsec = (long)(ns % SECOND_NS)};
}

#ifdef __APPLE__

void clock_cond_init(pthread_cond_t *c) {
    pthread_cond_init(c, NULL);
}

void clock_cond_wait(pthread_cond_t *c, pthread_mutex_t *mu, uint64_t until_ns) {
    const uint64_t now = clock_now_ns();
    const struct timespec left = timespec_of(until_ns > now ? until_ns - now : 0);
    pthread_cond_timedwait_relative_np(c, mu, &left);
}

#else

void clock_cond_init(pthread_cond_t *c) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

void clock_cond_wait(pthread_cond_t *c, pthread_mutex_t *mu, uint64_t until_ns) {
    const struct timespec at = timespec_of(until_ns);
    pthread_cond_timedwait(c, mu, &at);
}

#endif
