/* activation.c - takes the sockets that systemd or launchd pass. Never binds one itself. Main
 * thread, once, before the HTTP server opens. */
#include "daemon/activation.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#ifdef __APPLE__
#include <launch.h>
#endif

enum { SYSTEMD_FIRST_FD = 3, BACKLOG = 1024 };

static int err_many(const struct activation *a, size_t n, err *e) {
    return err_set(e, ERR_INVALID, "%s passes %zu sockets, at most %d are served", a->by, n,
                   ACTIVATION_MAX);
}

#ifdef __APPLE__
/* A name with several addresses (localhost: IPv4 and IPv6) gives as many sockets. */
static int take_launchd(struct activation *a, err *e) {
    int *fds = NULL, rc = 0;
    size_t n = 0;
    int reason = launch_activate_socket("listeners", &fds, &n);
    if (reason == ESRCH || reason == ENOENT)
        return 0; /* not launchd's job, or one without sockets */
    a->by = "launchd";
    if (reason) return err_set(e, ERR_IO, "cannot get sockets from launchd: %s", strerror(reason));
    if (n > ACTIVATION_MAX) rc = err_many(a, n, e);
    for (size_t i = 0; i < n; i++)
        if (rc)
            close(fds[i]);
        else
            a->fds[a->n++] = fds[i];
    free(fds);
    return rc;
}
#else
static int take_launchd(struct activation *a, err *e) {
    (void)a;
    (void)e;
    return 0;
}
#endif

/* Parses a decimal number; -1 for anything else. */
static long parse_number(const char *text) {
    char *end;
    if (*text < '0' || *text > '9') return -1;
    errno = 0;
    long n = strtol(text, &end, 10);
    return *end || errno ? -1 : n;
}

static int take_systemd(struct activation *a, err *e) {
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    if (!pid || !fds || parse_number(pid) != (long)getpid())
        return 0; /* nothing was passed, or not to this process */
    long n = parse_number(fds);
    a->by = "systemd";
    if (n < 0) return err_set(e, ERR_INVALID, "LISTEN_FDS is \"%.40s\", expected a number", fds);
    if (n > ACTIVATION_MAX) return err_many(a, (size_t)n, e);
    for (int i = 0; i < n; i++)
        a->fds[a->n++] = SYSTEMD_FIRST_FD + i;
    return 0;
}

/* A repeated listen() changes at most the length of its queue, and fails on everything that cannot
 * listen, such as an accepted connection. */
static int check_socket(const struct activation *a, int fd, err *e) {
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof addr, type_len = sizeof(int);
    int type = 0;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_len) ||
        getsockname(fd, (struct sockaddr *)&addr, &len))
        return err_set(e, ERR_INVALID, "%s passes descriptor %d, which is not a socket: %s", a->by,
                       fd, strerror(errno));
    if (type != SOCK_STREAM ||
        (addr.ss_family != AF_INET && addr.ss_family != AF_INET6 && addr.ss_family != AF_UNIX))
        return err_set(e, ERR_INVALID, "descriptor %d passed by %s is not a TCP or Unix socket", fd,
                       a->by);
    bool bound = addr.ss_family == AF_INET    ? ((struct sockaddr_in *)&addr)->sin_port
                 : addr.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&addr)->sin6_port
                                              : len > sizeof(sa_family_t);
    if (!bound || listen(fd, BACKLOG))
        return err_set(e, ERR_INVALID, "descriptor %d passed by %s does not listen%s", fd, a->by,
                       strcmp(a->by, "systemd") == 0 ? " (Accept=yes is not supported)" : "");
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC))
        return err_set(e, ERR_IO, "descriptor %d passed by %s cannot be configured: %s", fd, a->by,
                       strerror(errno));
    return 0;
}

int activation_open(struct activation *a, err *e) {
    memset(a, 0, sizeof *a);
    int rc = take_launchd(a, e);
    if (!rc && !a->n) rc = take_systemd(a, e);
    for (size_t i = 0; i < a->n && !rc; i++)
        rc = check_socket(a, a->fds[i], e);
    if (rc) activation_close(a);
    return rc;
}

void activation_close(struct activation *a) {
    for (size_t i = 0; i < a->n; i++)
        close(a->fds[i]);
    a->n = 0;
}
