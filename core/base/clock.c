/* clock.c - see clock.h. */
#include "core/base/clock.h"

#include <time.h>

uint64_t clock_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
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
