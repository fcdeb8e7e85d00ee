/* bandwidth.h - how fast this machine reads memory: the bound of decoding. */
#ifndef INFERD_BANDWIDTH_H
#define INFERD_BANDWIDTH_H

#include "core/base/err.h"

/* Bytes a second that n_threads (1 or more) read together from a buffer far larger than the caches;
 * best of a few passes. Takes a fraction of a second and 256 MiB. */
int bandwidth_measure(int n_threads, double *bytes_per_s, err *e);

#endif
