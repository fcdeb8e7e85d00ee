/* thread.h - what a thread says of itself. */
#ifndef INFERD_BASE_THREAD_H
#define INFERD_BASE_THREAD_H

#include <stdint.h>

/* The calling thread gets, from now on, little more than what others leave of the processors (the
 * lowest priority of Linux, the background class of macOS). */
void thread_enter_background(void);

/* Processor time of the calling thread, in nanoseconds. */
uint64_t thread_cpu_ns(void);

#endif
