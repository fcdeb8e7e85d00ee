/* limits.h - upper bounds of this machine, for comparison with a benchmark's figures. */
#ifndef INFERD_DAEMON_COMMANDS_LIMITS_H
#define INFERD_DAEMON_COMMANDS_LIMITS_H

#include "core/base/err.h"

/* Measures the bytes per second that n_threads (1 or more) read together from a buffer far larger
 * than the caches: the bound of decode. Best of several passes; takes a fraction of a second and
 * 256 MiB. */
int limits_read_bandwidth(int n_threads, double *bytes_per_s, err *e);

/* Measures the 8-bit integer multiplications and additions per second of n_threads (1 or more) in
 * registers, with the widest dot product instruction available: the bound of prefill. 0 if none is
 * known (on CPUs other than x86). Takes a fraction of a second. */
int limits_int8_peak(int n_threads, double *ops_per_s, err *e);

#endif
