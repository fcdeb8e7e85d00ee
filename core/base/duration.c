/* duration.c - see duration.h. Owns nothing. */
#include "core/base/duration.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define MOST_MS 4611686018427387904.0 /* 2^62 */

static const struct {
    const char *name;
    double ms;
} units[] = {{"ns", 1e-6}, {"us", 1e-3}, {"\xc2\xb5s", 1e-3}, {"\xce\xbcs", 1e-3}, {"ms", 1},
             {"s", 1000},  {"m", 60000}, {"h", 3600000},      {"d", 86400000}};

static int64_t ms_of(double ms) {
    if (ms < 0 || ms >= MOST_MS) return DURATION_FOREVER;
    return (int64_t)ceil(ms);
}

int64_t duration_of_seconds(double seconds) {
    return ms_of(seconds * 1000);
}

/* Digits with at most one point between or around them; returns their number of bytes, 0: none. */
static size_t number_length(const char *p) {
    size_t n = strspn(p, "0123456789"), digits = n;
    if (p[n] == '.') {
        size_t more = strspn(p + n + 1, "0123456789");
        digits += more;
        n += 1 + more;
    }
    return digits && n < 40 ? n : 0;
}

/* The value of the digits at p, whatever the locale's decimal point is. */
static double number_value(const char *p, size_t n) {
    double value = 0, place = 1;
    bool behind = false;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '.') {
            behind = true;
            continue;
        }
        value = value * 10 + (p[i] - '0');
        if (behind) place *= 10;
    }
    return value / place;
}

bool duration_parse(const char *text, int64_t *ms) {
    const char *p = text;
    bool negative = *p == '-', any_unit = false;
    double sum = 0;
    if (*p == '-' || *p == '+') p++;
    if (!*p) return false;
    while (*p) {
        size_t n = number_length(p), unit = 0, len = 0;
        if (!n) return false;
        double value = number_value(p, n);
        p += n;
        if (!*p && !any_unit) { /* seconds */
            sum = value * 1000;
            break;
        }
        for (; unit < sizeof units / sizeof units[0]; unit++) {
            len = strlen(units[unit].name);
            if (strncmp(p, units[unit].name, len) == 0 && !(p[len] >= 'a' && p[len] <= 'z')) break;
        }
        if (unit == sizeof units / sizeof units[0]) return false;
        any_unit = true;
        sum += value * units[unit].ms;
        p += len;
    }
    *ms = negative && sum > 0 ? DURATION_FOREVER : ms_of(sum);
    return true;
}
