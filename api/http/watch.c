/* watch.c - the watcher thread. Owns the poll set, the wake pipe and the lists; never touches a
 * request's streams or the data of its socket. Started by watch_open, ended by watch_close. */
#include "api/http/watch.h"

#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/epoll.h>
#else
#include <sys/event.h>
#include <sys/time.h>
#endif

enum { BATCH = 128, ROUND = 1024, TICK_MS = 1000 };

struct watch {
    struct watch_config config; /* but keepalive_ms, which changes */
    atomic_uint keepalive_ms;
    int poll_fd;
    int pipe_fd[2]; /* read end in the poll set with a NULL pointer */
    pthread_t thread;
    atomic_bool releasing;
    pthread_mutex_t mu; /* guards live, ready, retired, stop */
    struct {
        struct watched *first, *last;
    } live;
    struct watched *retired;
    struct watched *ready, **ready_tail; /* first in, first out */
    bool stop;
};

#ifdef __linux__
/* EPOLLRDHUP reports the peer's FIN even while unread bytes wait; edge-triggered: once. */
static int poller_open(void) {
    return epoll_create1(EPOLL_CLOEXEC);
}
static int poller_add(int poll_fd, int fd, struct watched *w) {
    struct epoll_event ev = {.events = w ? (uint32_t)(EPOLLRDHUP | EPOLLET) : EPOLLIN,
                             .data.ptr = w};
    return epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &ev);
}
static void poller_remove(int poll_fd, int fd) {
    epoll_ctl(poll_fd, EPOLL_CTL_DEL, fd, NULL);
}
/* Fills gone[] with requests whose client hung up; the wake pipe is only drained. */
static int poller_wait(watch *wt, struct watched **gone, int timeout_ms) {
    struct epoll_event ev[BATCH];
    int n = epoll_wait(wt->poll_fd, ev, BATCH, timeout_ms), n_gone = 0;
    for (int i = 0; i < n; i++)
        if (ev[i].data.ptr) gone[n_gone++] = ev[i].data.ptr;
    return n_gone;
}
#else
static int poller_open(void) {
    return kqueue();
}
static int poller_add(int poll_fd, int fd, struct watched *w) {
    struct kevent ev;
    EV_SET(&ev, fd, EVFILT_READ, w ? EV_ADD | EV_CLEAR : EV_ADD, 0, 0, w);
    return kevent(poll_fd, &ev, 1, NULL, 0, NULL);
}
static void poller_remove(int poll_fd, int fd) {
    struct kevent ev;
    EV_SET(&ev, fd, EVFILT_READ, EV_DELETE, 0, 0, NULL);
    kevent(poll_fd, &ev, 1, NULL, 0, NULL);
}
static int poller_wait(watch *wt, struct watched **gone, int timeout_ms) {
    struct kevent ev[BATCH];
    struct timespec ts = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000000};
    int n = kevent(wt->poll_fd, NULL, 0, ev, BATCH, timeout_ms < 0 ? NULL : &ts), n_gone = 0;
    for (int i = 0; i < n; i++)
        if (ev[i].udata && (ev[i].flags & EV_EOF)) gone[n_gone++] = ev[i].udata;
    return n_gone;
}
#endif

/* Resumes w, or notes that it must not suspend. */
static void wake_request(struct watched *w) {
    pthread_mutex_lock(&w->mu);
    if (w->suspended && !w->busy) {
        w->suspended = false;
        w->owner->config.resume(w);
    } else {
        w->woken = true;
    }
    pthread_mutex_unlock(&w->mu);
}

static void wake_watcher(watch *wt) {
    char c = 0;
    ssize_t n = write(wt->pipe_fd[1], &c, 1); /* a full pipe wakes as well */
    (void)n;
}

/* With wt->mu held. true: the list was empty, so the thread must be woken. */
static bool push_ready(watch *wt, struct watched *w) {
    if (w->queued) return false;
    bool first = !wt->ready;
    w->queued = true;
    w->next_ready = NULL;
    *wt->ready_tail = w;
    wt->ready_tail = &w->next_ready;
    return first;
}

static struct watched *pop_ready(watch *wt) {
    struct watched *w = wt->ready;
    if (!w) return NULL;
    wt->ready = w->next_ready;
    if (!wt->ready) wt->ready_tail = &wt->ready;
    w->queued = false;
    return w;
}

/* Queues every stream that has been quiet for keepalive_ms. With wt->mu held. */
static void find_quiet(watch *wt, uint64_t now) {
    uint64_t limit = (uint64_t)atomic_load(&wt->keepalive_ms) * 1000000u;
    for (struct watched *w = wt->live.first; w; w = w->next) {
        uint64_t since = atomic_load(&w->quiet_since_ns);
        if (!since || now < since || now - since < limit) continue;
        atomic_store(&w->keepalive_due, true);
        push_ready(wt, w);
    }
}

/* Unlinks retired requests that are in no other list. With wt->mu held. */
static struct watched *take_retired(watch *wt) {
    struct watched *taken = NULL, **link = &wt->retired;
    while (*link) {
        struct watched *w = *link;
        if (w->queued) {
            link = &w->next_retired;
            continue;
        }
        *link = w->next_retired;
        w->next_retired = taken;
        taken = w;
    }
    return taken;
}

static void destroy_all(watch *wt, struct watched *w) {
    while (w) {
        struct watched *next = w->next_retired;
        pthread_mutex_destroy(&w->mu);
        wt->config.destroy(w);
        w = next;
    }
}

static int sooner_ms(int a_ms, int b_ms) {
    return a_ms < 0 || (b_ms >= 0 && b_ms < a_ms) ? b_ms : a_ms;
}

/* Calls the owner's tick if it is due. Returns the time until the next one; -1: there is none. */
static int tick_owner(watch *wt, uint64_t *next_ns) {
    if (!wt->config.tick) return -1;
    uint64_t now = clock_now_ns();
    if (now >= *next_ns) {
        wt->config.tick(wt->config.tick_arg);
        *next_ns = now + TICK_MS * UINT64_C(1000000);
    }
    return (int)((*next_ns - now) / 1000000u) + 1;
}

/* One round: hang-ups, then the timer, then at most ROUND notified requests, so that none starves
 * the others; retired requests are freed last. Returns the next poll's timeout, or -2 if the watch
 * closes. */
static int watch_round(watch *wt, struct watched **gone, int n_gone, uint64_t *next_tick) {
    const uint64_t tick_ns = (uint64_t)atomic_load(&wt->keepalive_ms) * 1000000u / 4;
    for (int i = 0; i < n_gone; i++) {
        atomic_store(&gone[i]->gone, true);
        wake_request(gone[i]);
    }
    uint64_t now = clock_now_ns();
    pthread_mutex_lock(&wt->mu);
    if (tick_ns && (now >= *next_tick || *next_tick - now > tick_ns)) {
        find_quiet(wt, now);
        *next_tick = now + tick_ns;
    }
    for (int i = 0; i < ROUND; i++) {
        struct watched *w = pop_ready(wt);
        if (!w) break;
        pthread_mutex_unlock(&wt->mu);
        wake_request(w);
        pthread_mutex_lock(&wt->mu);
    }
    struct watched *retired = take_retired(wt);
    int timeout_ms = wt->ready                     ? 0
                     : wt->stop                    ? -2
                     : (tick_ns && wt->live.first) ? (int)(tick_ns / 1000000u) + 1
                                                   : -1;
    pthread_mutex_unlock(&wt->mu);
    destroy_all(wt, retired);
    return timeout_ms;
}

static void *watch_main(void *arg) {
    watch *wt = arg;
    struct watched *gone[BATCH];
    uint64_t next_tick = 0, next_owner = 0;
    for (int timeout_ms = -1; timeout_ms != -2;) {
        int n = poller_wait(wt, gone, sooner_ms(timeout_ms, tick_owner(wt, &next_owner)));
        char sink[256];
        while (read(wt->pipe_fd[0], sink, sizeof sink) > 0) {
        }
        timeout_ms = watch_round(wt, gone, n, &next_tick);
    }
    return NULL;
}

static int set_flags(int fd) {
    return fcntl(fd, F_SETFL, O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void watch_set_keepalive(watch *wt, uint32_t keepalive_ms) {
    atomic_store(&wt->keepalive_ms, keepalive_ms);
}

int watch_open(const struct watch_config *config, watch **out, err *e) {
    *out = NULL;
    watch *wt = mem_new(1, sizeof *wt);
    if (!wt) return err_no_memory(e);
    wt->config = *config;
    atomic_init(&wt->keepalive_ms, config->keepalive_ms);
    wt->ready_tail = &wt->ready;
    wt->pipe_fd[0] = wt->pipe_fd[1] = -1;
    pthread_mutex_init(&wt->mu, NULL);
    wt->poll_fd = poller_open();
    if (wt->poll_fd < 0 || pipe(wt->pipe_fd) || set_flags(wt->pipe_fd[0]) ||
        set_flags(wt->pipe_fd[1]) || poller_add(wt->poll_fd, wt->pipe_fd[0], NULL)) {
        err_set(e, ERR_IO, "cannot watch connections: %s", strerror(errno));
        goto fail;
    }
    if (thread_start(&wt->thread, watch_main, wt, "watches connections", e)) goto fail;
    *out = wt;
    return 0;
fail:
    if (wt->poll_fd >= 0) close(wt->poll_fd);
    for (int i = 0; i < 2; i++)
        if (wt->pipe_fd[i] >= 0) close(wt->pipe_fd[i]);
    pthread_mutex_destroy(&wt->mu);
    free(wt);
    return e ? e->code : ERR_IO;
}

void watch_release_all(watch *wt) {
    atomic_store(&wt->releasing, true);
    pthread_mutex_lock(&wt->mu);
    for (struct watched *w = wt->live.first; w; w = w->next)
        wake_request(w);
    pthread_mutex_unlock(&wt->mu);
}

void watch_close(watch *wt) {
    if (!wt) return;
    pthread_mutex_lock(&wt->mu);
    wt->stop = true;
    pthread_mutex_unlock(&wt->mu);
    wake_watcher(wt);
    pthread_join(wt->thread, NULL);
    destroy_all(wt, take_retired(wt));
    close(wt->poll_fd);
    close(wt->pipe_fd[0]);
    close(wt->pipe_fd[1]);
    pthread_mutex_destroy(&wt->mu);
    free(wt);
}

void watch_begin(watch *wt, struct watched *w) {
    w->owner = wt;
    w->fd = -1;
    pthread_mutex_init(&w->mu, NULL);
    pthread_mutex_lock(&wt->mu);
    LINKED_INSERT(&wt->live, NULL, w);
    pthread_mutex_unlock(&wt->mu);
}

void watch_fd(struct watched *w, int fd) {
    if (w->fd >= 0) return;
    if (poller_add(w->owner->poll_fd, fd, w))
        log_warn("cannot watch a connection for its client's hang-up: %s", strerror(errno));
    else
        w->fd = fd;
}

void watch_end(struct watched *w) {
    watch *wt = w->owner;
    if (w->fd >= 0) poller_remove(wt->poll_fd, w->fd);
    pthread_mutex_lock(&wt->mu);
    LINKED_REMOVE(&wt->live, w);
    bool first = !wt->retired;
    w->next_retired = wt->retired;
    wt->retired = w;
    pthread_mutex_unlock(&wt->mu);
    if (first) wake_watcher(wt);
}

void watch_look(struct watched *w) {
    pthread_mutex_lock(&w->mu);
    w->woken = false;
    pthread_mutex_unlock(&w->mu);
}

bool watch_wait(struct watched *w) {
    bool waits = false;
    pthread_mutex_lock(&w->mu);
    if (w->busy || (!w->woken && !atomic_load(&w->owner->releasing) && !atomic_load(&w->gone))) {
        w->suspended = waits = true;
        w->owner->config.suspend(w);
    }
    pthread_mutex_unlock(&w->mu);
    return waits;
}

void watch_lend(struct watched *w) {
    pthread_mutex_lock(&w->mu);
    w->busy = true;
    pthread_mutex_unlock(&w->mu);
}

bool watch_lent(struct watched *w) {
    pthread_mutex_lock(&w->mu);
    bool busy = w->busy;
    pthread_mutex_unlock(&w->mu);
    return busy;
}

/* The request may end as soon as it is resumed. watch_end waits for the watch's mutex, so w lives
 * until its own mutex is unlocked here. */
void watch_return(struct watched *w) {
    watch *wt = w->owner;
    pthread_mutex_lock(&wt->mu);
    pthread_mutex_lock(&w->mu);
    w->busy = false;
    pthread_mutex_unlock(&w->mu);
    wake_request(w);
    pthread_mutex_unlock(&wt->mu);
}

bool watch_releasing(const struct watched *w) {
    return atomic_load(&w->owner->releasing);
}

void watch_notify(void *watched) {
    struct watched *w = watched;
    watch *wt = w->owner;
    pthread_mutex_lock(&wt->mu);
    bool first = push_ready(wt, w);
    pthread_mutex_unlock(&wt->mu);
    if (first) wake_watcher(wt);
}
