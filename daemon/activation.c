/* activation.c - takes the socket that systemd or launchd passes. Never binds one itself. Main
 * thread, once, before the HTTP server opens. */
#include "daemon/activation.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#ifdef __APPLE__
#include <launch.h>
#endif

enum { SYSTEMD_FIRST_FD = 3, BACKLOG = 1024 };

static int err_several(const struct activation *a, size_t n, err *e) {
    return err_set(e, ERR_INVALID,
                   "%s passes %zu sockets, expected one: let it listen on one address%s", a->by, n,
                   strcmp(a->by, "launchd") == 0 ? " (SockNodeName, SockFamily)"
                                                 : " (ListenStream)");
}

#ifdef __APPLE__
/* A name with err_several addresses (localhost: IPv4 and IPv6) gives as many sockets. */
static int take_launchd(struct activation *a, err *e) {
    int *fds = NULL, rc = 0;
    size_t n = 0;
    int reason = launch_activate_socket("listeners", &fds, &n);
    if (reason == ESRCH || reason == ENOENT)
        return 0; /* not launchd's job, or one without sockets */
    a->by = "launchd";
    if (reason) return err_set(e, ERR_IO, "cannot get sockets from launchd: %s", strerror(reason));
    if (n == 1) a->fd = fds[0];
    if (n > 1) rc = err_several(a, n, e);
    for (size_t i = 0; i < n && rc; i++)
        close(fds[i]);
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
    if (n > 1) return err_several(a, (size_t)n, e);
    if (n == 1) a->fd = SYSTEMD_FIRST_FD;
    return 0;
}

/* Checks the socket and finds its address. A repeated listen() changes at most the length of its
 * queue, and fails on everything that cannot listen, such as an accepted connection. */
static int check_socket(struct activation *a, err *e) {
    struct sockaddr_storage addr;
    socklen_t len = sizeof addr, type_len = sizeof(int);
    int type = 0;
    char port[8];
    if (getsockopt(a->fd, SOL_SOCKET, SO_TYPE, &type, &type_len) ||
        getsockname(a->fd, (struct sockaddr *)&addr, &len))
        return err_set(e, ERR_INVALID, "%s passes descriptor %d, which is not a socket: %s", a->by,
                       a->fd, strerror(errno));
    if (type != SOCK_STREAM || (addr.ss_family != AF_INET && addr.ss_family != AF_INET6))
        return err_set(e, ERR_INVALID, "the socket passed by %s is not a TCP socket", a->by);
    int rc = getnameinfo((struct sockaddr *)&addr, len, a->host, sizeof a->host, port, sizeof port,
                         NI_NUMERICHOST | NI_NUMERICSERV);
    if (rc)
        return err_set(e, ERR_INVALID, "the socket passed by %s has no address: %s", a->by,
                       gai_strerror(rc));
    a->port = (uint16_t)parse_number(port);
    if (!a->port || listen(a->fd, BACKLOG))
        return err_set(e, ERR_INVALID, "the socket passed by %s does not listen%s", a->by,
                       strcmp(a->by, "systemd") == 0 ? " (Accept=yes is not supported)" : "");
    int flags = fcntl(a->fd, F_GETFL);
    if (flags < 0 || fcntl(a->fd, F_SETFL, flags | O_NONBLOCK) || fcntl(a->fd, F_SETFD, FD_CLOEXEC))
        return err_set(e, ERR_IO, "the socket passed by %s cannot be configured: %s", a->by,
                       strerror(errno));
    return 0;
}

int activation_open(struct activation *a, err *e) {
    memset(a, 0, sizeof *a);
    int rc = take_launchd(a, e);
    if (!rc && !a->fd) rc = take_systemd(a, e);
    if (!rc && a->fd) rc = check_socket(a, e);
    if (rc) activation_close(a);
    return rc;
}

void activation_close(struct activation *a) {
    if (a->fd) close(a->fd);
    a->fd = 0;
}
