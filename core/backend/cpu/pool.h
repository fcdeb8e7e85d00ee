/* pool.h - a few threads that run the chunks of one job at a time, the caller among them.
 *
 * Each thread starts on its own contiguous share of the chunks, in order, and then steals from the
 * ends of the others' shares: memory is read in one stream per thread, and a slow core (an
 * efficiency core, or one that others use too) does less. Which thread runs a chunk must not matter
 * to its result. Waiting spins for some tens of microseconds, then sleeps: an idle daemon uses no
 * CPU, and cores may be shared with others.
 *
 * THREAD SAFETY: pool_run from one thread at a time. Nothing allocates but pool_new. */
#ifndef INFERD_CPU_POOL_H
#define INFERD_CPU_POOL_H

#include "core/base/err.h"

#include <stdint.h>

typedef struct pool pool;

/* chunk < n_chunks; thread < the pool's n_threads, the caller is 0. */
typedef void (*pool_fn)(const void *arg, uint32_t chunk, int thread);

/* n_threads >= 1, the caller included; n_threads - 1 threads are started. ERR_NOMEM, ERR_IO. */
int pool_new(int n_threads, pool **out, err *e);
void pool_free(pool *p); /* NULL is fine */

/* Calls fn once for every chunk, returns when all have returned. arg is borrowed. */
void pool_run(pool *p, uint32_t n_chunks, pool_fn fn, const void *arg);

/* For who spins. */
void pool_pause(void);

/* Threads that a process should use when nobody says: one for each physical core that it may run
 * on (of the fast kind, where the system tells them apart), within its CPU quota. At least 1. */
int pool_default_threads(void);

#endif
