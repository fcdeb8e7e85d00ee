/* accept.c - the thread that accepts connections of all listeners and gives them to the library's
 * threads. The library could accept, too, but not stop accepting while its connections go on
 * (MHD_quiesce_daemon of 0.9.75 races with its own threads): a process that is being replaced
 * leaves new connections in the queue of the socket that it shares with the next one. */
#include "api/http/http_int.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LOG_INTERVAL_S = 10, BURST = 64 /* accepted from one listener before the others */ };

/* accept() had no descriptor: closes the connection that has waited longest, and gives its thread
 * time to do so. */
static void on_out_of_files(struct http *h) {
    struct http_daemon *d = h->daemon;
    uint64_t now = clock_now_ns(), last = d->out_of_files_logged_ns;
    conns_evict(&h->conns);
    if (!last || now - last >= LOG_INTERVAL_S * UINT64_C(1000000000)) {
        d->out_of_files_logged_ns = now;
        log_warn("cannot accept a connection: the process or the system is out of file descriptors "
                 "(ulimit -n)");
    }
    nanosleep(&(struct timespec){0, 5 * 1000000}, NULL);
}

/* Which of accept()'s errors are the connection's own: the next one may be fine. */
static bool is_lost(int reason) {
    return reason == ECONNABORTED || reason == EINTR || reason == EPROTO || reason == EPERM;
}

static void accept_some(struct http *h, struct listener *l) {
    for (int i = 0; i < BURST; i++) {
        struct sockaddr_storage from = {0};
        socklen_t n = sizeof from;
        int fd = accept(l->fd, (struct sockaddr *)&from, &n);
        if (fd < 0 && is_lost(errno)) continue;
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                on_out_of_files(h);
            return;
        }
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fcntl(fd, F_SETFL, O_NONBLOCK);
        if (!from.ss_family) from.ss_family = (sa_family_t)l->family; /* a nameless Unix socket */
        if (MHD_add_connection(l->mhd, fd, (struct sockaddr *)&from, n)) /* or closes it */
            atomic_fetch_add(&h->daemon->n_given, 1);
    }
}

static void *accept_main(void *arg) {
    struct http *h = arg;
    struct http_daemon *d = h->daemon;
    struct pollfd fds[HTTP_MAX_LISTENERS + 1];
    for (size_t i = 0; i < d->n; i++)
        fds[i] = (struct pollfd){.fd = d->listeners[i].fd, .events = POLLIN};
    fds[d->n] = (struct pollfd){.fd = d->wake[0], .events = POLLIN};
    while (!fds[d->n].revents) {
        if (poll(fds, (nfds_t)d->n + 1, -1) < 0) {
            for (size_t i = 0; i <= d->n; i++)
                fds[i].revents = 0;
            continue;
        }
        for (size_t i = 0; i < d->n && !fds[d->n].revents; i++)
            if (fds[i].revents) accept_some(h, &d->listeners[i]);
    }
    return NULL;
}

int accept_start(struct http *h, err *e) {
    struct http_daemon *d = h->daemon;
    if (pipe(d->wake)) {
        d->wake[0] = d->wake[1] = -1;
        return err_set(e, ERR_IO, "cannot create a pipe: %s", strerror(errno));
    }
    for (int i = 0; i < 2; i++)
        fcntl(d->wake[i], F_SETFD, FD_CLOEXEC);
    int rc = thread_start(&d->acceptor, accept_main, h, "accepts connections", e);
    d->accepts = !rc;
    return rc;
}

void accept_stop(struct http *h) {
    struct http_daemon *d = h->daemon;
    if (d->accepts) {
        ssize_t n = write(d->wake[1], "", 1);
        (void)n;
        pthread_join(d->acceptor, NULL);
        d->accepts = false;
    }
    for (int i = 0; i < 2; i++) {
        if (d->wake[i] >= 0) close(d->wake[i]);
        d->wake[i] = -1;
    }
}
