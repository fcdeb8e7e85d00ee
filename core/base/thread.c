/* thread.c - see thread.h. Owns nothing. A failed call leaves the priority unchanged. */
#include "core/base/thread.h"

#include <time.h>
#ifdef __APPLE__
#include <pthread/qos.h>
#else
#include <sys/resource.h>
#endif

void thread_enter_background(void) {
#ifdef __APPLE__
    pthread_set_qos_class_self_np(QOS_CLASS_BACKGROUND, 0);
#else
    setpriority(PRIO_PROCESS, 0, 19); /* Linux: this thread only, unlike POSIX */
#endif
}

uint64_t thread_cpu_ns(void) {
    struct timespec t = {0, 0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}
