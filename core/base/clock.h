/* clock.h - monotonic and wall time, and waiting. Any thread. */
#ifndef INFERD_BASE_CLOCK_H
#define INFERD_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>

uint64_t clock_now_ns(void); /* CLOCK_MONOTONIC, nanoseconds */
int64_t clock_wall_s(void);  /* seconds since 1970, UTC */
int64_t clock_wall_ms(void); /* the same in milliseconds */

enum { CLOCK_UTC_BYTES = 32 };
/* wall_s as RFC 3339 writes it, "2026-01-31T23:59:59Z"; "" if a calendar has no such year. */
const char *clock_utc(int64_t wall_s, char out[CLOCK_UTC_BYTES]);

/* A condition variable for clock_cond_wait. pthread_cond_timedwait goes by wall time unless told
 * otherwise: set back by an hour while a thread waits for a second, it waits for an hour. */
void clock_cond_init(pthread_cond_t *c);
/* pthread_cond_wait, at most until clock_now_ns() is until_ns. It may return early. */
void clock_cond_wait(pthread_cond_t *c, pthread_mutex_t *mu, uint64_t until_ns);

#endif
