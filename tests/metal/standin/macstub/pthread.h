/* pthread.h - the syntax pass needs only the names of these types. */
#pragma once
#include <stddef.h>
typedef struct _opaque_pthread_t *pthread_t;
typedef struct {
    long sig;
    char opaque[56];
} pthread_mutex_t;
typedef struct {
    long sig;
    char opaque[40];
} pthread_cond_t;
#define PTHREAD_MUTEX_INITIALIZER                                                                  \
    {                                                                                              \
        0x32AAABA7, {                                                                              \
            0                                                                                      \
        }                                                                                          \
    }
#define PTHREAD_COND_INITIALIZER                                                                   \
    {                                                                                              \
        0x3CB0B1BB, {                                                                              \
            0                                                                                      \
        }                                                                                          \
    }
int pthread_mutex_init(pthread_mutex_t *, const void *);
int pthread_mutex_destroy(pthread_mutex_t *);
int pthread_mutex_lock(pthread_mutex_t *);
int pthread_mutex_unlock(pthread_mutex_t *);
int pthread_cond_init(pthread_cond_t *, const void *);
int pthread_cond_destroy(pthread_cond_t *);
int pthread_cond_wait(pthread_cond_t *, pthread_mutex_t *);
struct timespec;
int pthread_cond_timedwait(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
int pthread_cond_signal(pthread_cond_t *);
int pthread_create(pthread_t *, const void *, void *(*)(void *), void *);
int pthread_join(pthread_t, void **);
int pthread_cond_broadcast(pthread_cond_t *);
