/* sys/event.h - kqueue as macOS declares it. That header includes sys/queue.h, whose macros
 * (LIST_HEAD, TAILQ_REMOVE, ...) are then everywhere. */
#ifndef INFERD_TESTS_EVENT_H
#define INFERD_TESTS_EVENT_H

#include <stdint.h>
#include <sys/queue.h>
#include <time.h>

struct kevent {
    uintptr_t ident;
    int16_t filter;
    uint16_t flags;
    uint32_t fflags;
    intptr_t data;
    void *udata;
};

#define EV_SET(kev, a, b, c, d, e, f)                                                              \
    do {                                                                                           \
        struct kevent *kev_ = (kev);                                                               \
        *kev_ = (struct kevent){(a), (b), (c), (d), (e), (f)};                                     \
    } while (0)

enum {
    EVFILT_READ = -1,
    EVFILT_WRITE = -2,
    EV_ADD = 1,
    EV_DELETE = 2,
    EV_CLEAR = 0x20,
    EV_EOF = 0x8000,
    EV_ERROR = 0x4000,
    NOTE_LOWAT = 1
};

int kqueue(void);
int kevent(int kq, const struct kevent *changes, int n_changes, struct kevent *events, int n_events,
           const struct timespec *timeout);

#endif
