/* limits.h - what this machine could do at best: bounds that a benchmark's figures are held to. */
#ifndef INFERD_DAEMON_COMMANDS_LIMITS_H
#define INFERD_DAEMON_COMMANDS_LIMITS_H

#include "core/base/err.h"

/* Bytes a second that n_threads (1 or more) read together from a buffer far larger than the caches,
 * the bound of decoding; best of a few passes. Takes a fraction of a second and 256 MiB. */
int limits_read_bandwidth(int n_threads, double *bytes_per_s, err *e);

/* Multiplications and additions of 8-bit integers a second that n_threads (1 or more) do together
 * in registers, with the widest dot product instruction here: the bound of prefill. 0 where none is
 * known (other than x86). Takes a fraction of a second. */
int limits_int8_peak(int n_threads, double *ops_per_s, err *e);

#endif
