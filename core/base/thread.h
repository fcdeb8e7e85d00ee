/* thread.h - priority and processor time of the calling thread. */
#ifndef INFERD_BASE_THREAD_H
#define INFERD_BASE_THREAD_H

#include <stdint.h>

/* Gives the calling thread the lowest priority (nice 19 on Linux, the background class on macOS).
 */
void thread_enter_background(void);

/* Processor time of the calling thread, in nanoseconds. */
uint64_t thread_cpu_ns(void);

#endif
