/* clock.h - monotonic and wall time. Any thread. */
#ifndef INFERD_BASE_CLOCK_H
#define INFERD_BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_now_ns(void); /* CLOCK_MONOTONIC, nanoseconds */
int64_t clock_wall_s(void);  /* seconds since 1970, UTC */
int64_t clock_wall_ms(void); /* the same in milliseconds */

#endif
