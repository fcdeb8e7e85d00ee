/* duration.h - times as people write them: "300", "5m", "1h30m", "30d", "-1". Any
 * thread. */
#ifndef INFERD_BASE_DURATION_H
#define INFERD_BASE_DURATION_H

#include <stdbool.h>
#include <stdint.h>

enum { DURATION_FOREVER = -1 };

/* A number of seconds, or numbers with units (ns, us, ms, s, m, h) as in Go's time.ParseDuration,
 * and d for days; a fraction may follow each number. Sets *ms, rounded up; DURATION_FOREVER: the
 * text is negative, or longer than 2^62 ms. false: it is neither. */
bool duration_parse(const char *text, int64_t *ms);
/* The same of a number of seconds. */
int64_t duration_of_seconds(double seconds);

#endif
