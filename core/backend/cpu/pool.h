/* pool.h - a few threads that run the chunks of one job at a time, the caller among them.
 *
 * Each thread starts on its own contiguous share of the chunks, in order, and then steals from the
 * ends of the others' shares: each thread reads memory as one stream, and a slow core (an
 * efficiency core, or one shared with other processes) does less. A chunk's result must not depend
 * on the thread that runs it. Waiting spins for some tens of microseconds, then sleeps: an idle
 * daemon uses no CPU, and cores may be shared with others.
 *
 * THREAD SAFETY: pool_run from one thread at a time. Only pool_new allocates. */
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

/* A pause for spin loops. */
void pool_pause(void);

/* Default number of threads: one for each physical core that the process may run on (performance
 * cores only, if the system distinguishes them), within its CPU quota. At least 1. */
int pool_default_threads(void);

#endif
