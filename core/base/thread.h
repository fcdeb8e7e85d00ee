/* thread.h - starts threads; priority and processor time of the calling one. */
#ifndef INFERD_BASE_THREAD_H
#define INFERD_BASE_THREAD_H

#include "core/base/err.h"

#include <pthread.h>
#include <stdint.h>

/* pthread_create with an error that tells which limits count. work: what the thread does, "writes
 * the log". Returns 0 or ERR_NOMEM. */
int thread_start(pthread_t *out, void *(*run)(void *), void *arg, const char *work, err *e);

/* Gives the calling thread the lowest priority (nice 19 on Linux, the background class on macOS).
 */
void thread_enter_background(void);

/* Processor time of the calling thread, in nanoseconds. */
uint64_t thread_cpu_ns(void);

#endif
