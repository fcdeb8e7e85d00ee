/* listen.c - the listening sockets, opened here or handed over by the service manager. A socket
 * file belongs to the process that listens on it: a live one is never replaced, one that a dead
 * process left is. Called by the daemon's main thread. */
#include "api/http/http_int.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 1024 };
static const char SEPARATORS[] = ", \t";

static int set_flags(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* The family, port and path of a listening socket. */
static void describe(struct listener *l) {
    struct sockaddr_storage addr = {0};
    socklen_t n = sizeof addr;
    l->family = AF_INET;
    if (getsockname(l->fd, (struct sockaddr *)&addr, &n)) return;
    l->family = addr.ss_family;
    if (addr.ss_family == AF_INET6) l->at.port = ntohs(((struct sockaddr_in6 *)&addr)->sin6_port);
    if (addr.ss_family == AF_INET) l->at.port = ntohs(((struct sockaddr_in *)&addr)->sin_port);
    if (addr.ss_family != AF_UNIX)
        getnameinfo((struct sockaddr *)&addr, n, l->at.host, sizeof l->at.host, NULL, 0,
                    NI_NUMERICHOST);
    else
        snprintf(l->at.path, sizeof l->at.path, "%.107s", ((struct sockaddr_un *)&addr)->sun_path);
}

bool listen_is_local(const struct listener *l) {
    const char *host = l->at.host;
    return l->family == AF_UNIX || strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0;
}

/* ---- addresses ---- */

static int bind_host(const char *host, const char *port, struct listener *l, err *e) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *list;
    int rc = getaddrinfo(host, port, &hints, &list);
    if (rc)
        return err_set_param(e, ERR_IO, "host", "cannot use address \"%s\": %s", host,
                             gai_strerror(rc));
    int fd = socket(list->ai_family, SOCK_STREAM, 0), one = 1;
    bool ok = fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) &&
              !bind(fd, list->ai_addr, list->ai_addrlen) && !listen(fd, BACKLOG) && !set_flags(fd);
    int reason = errno;
    freeaddrinfo(list);
    if (ok) {
        l->fd = fd;
        return 0;
    }
    if (fd >= 0) close(fd);
    if (reason == EADDRINUSE)
        return err_set_param(e, ERR_IO, "port",
                             "port %s of %s is already in use: stop the other program or choose "
                             "another port",
                             port, host);
    return err_set_param(e, ERR_IO, "host", "cannot listen on %s port %s: %s", host, port,
                         strerror(reason));
}

/* ---- socket files ---- */

/* Does a process listen there? If that cannot be told, yes. */
static bool is_live(const struct sockaddr_un *addr) {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    bool live = fd < 0 || !connect(fd, (const struct sockaddr *)addr, sizeof *addr) ||
                (errno != ECONNREFUSED && errno != ENOENT);
    if (fd >= 0) close(fd);
    return live;
}

/* Removes a socket without a listener. What is not a socket stays. */
static int clear_path(const struct sockaddr_un *addr, err *e) {
    struct stat st;
    if (lstat(addr->sun_path, &st)) return 0;
    if (!S_ISSOCK(st.st_mode))
        return err_set_param(e, ERR_IO, "listen", "%s exists and is not a socket", addr->sun_path);
    if (is_live(addr))
        return err_set_param(e, ERR_IO, "listen",
                             "another program listens on %s: stop it or choose another path",
                             addr->sun_path);
    unlink(addr->sun_path);
    return 0;
}

/* Clients cannot connect before listen(), so the mode is set before the first one does. */
static int bind_path(const struct sockaddr_un *addr, unsigned mode, struct listener *l, err *e) {
    struct stat st;
    int rc = clear_path(addr, e);
    if (rc) return rc;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)addr, sizeof *addr) ||
        chmod(addr->sun_path, mode) || listen(fd, BACKLOG) || set_flags(fd) ||
        stat(addr->sun_path, &st)) {
        rc = err_set_param(e, ERR_IO, "listen", "cannot listen on %s: %s", addr->sun_path,
                           strerror(errno));
        if (fd >= 0) close(fd);
        return rc;
    }
    l->fd = fd;
    l->own_dev = (uint64_t)st.st_dev;
    l->own_ino = (uint64_t)st.st_ino;
    return 0;
}

/* The folder's lock keeps two daemons from replacing the same dead socket. */
static int bind_unix(const char *path, unsigned mode, struct listener *l, err *e) {
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    char folder[sizeof addr.sun_path];
    if (path[0] != '/' || strlen(path) >= sizeof addr.sun_path)
        return err_set_param(e, ERR_INVALID, "listen",
                             "\"unix:%.120s\" is not the absolute path of a socket, at most %zu "
                             "bytes long",
                             path, sizeof addr.sun_path - 1);
    memcpy(addr.sun_path, path, strlen(path) + 1);
    memcpy(folder, path, strlen(path) + 1);
    char *slash = strrchr(folder, '/');
    slash[slash == folder] = '\0';
    int lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0 || flock(lock, LOCK_EX)) {
        int rc = err_set_param(e, ERR_IO, "listen", "%s: %s", folder, strerror(errno));
        if (lock >= 0) close(lock);
        return rc;
    }
    int rc = bind_path(&addr, mode, l, e);
    close(lock);
    return rc;
}

/* text: "unix:/path", "HOST:PORT", "[IPv6]:PORT"; changed. */
static int bind_entry(char *text, unsigned mode, struct listener *l, err *e) {
    if (strncmp(text, "unix:", 5) == 0) return bind_unix(text + 5, mode, l, e);
    char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    bool v6 = n > 2 && text[0] == '[' && text[n - 1] == ']';
    bool ok = n && (v6 || !memchr(text, ':', n)) && colon[1] &&
              strspn(colon + 1, "0123456789") == strlen(colon + 1) &&
              strtoul(colon + 1, NULL, 10) <= 65535 && strlen(colon + 1) < 6;
    if (!ok)
        return err_set_param(e, ERR_INVALID, "listen",
                             "\"%.100s\" is neither unix:/PATH nor HOST:PORT nor [IPV6]:PORT",
                             text);
    *colon = '\0';
    if (v6) text[n - 1] = '\0';
    return bind_host(text + v6, colon + 1, l, e);
}

static int bind_list(const struct http_config *c, struct http_daemon *d, err *e) {
    char entry[256];
    for (const char *s = c->listen; *(s += strspn(s, SEPARATORS));) {
        size_t n = strcspn(s, SEPARATORS);
        if (d->n == HTTP_MAX_LISTENERS || n >= sizeof entry)
            return err_set_param(e, ERR_INVALID, "listen",
                                 "more than %d addresses, or one longer than %zu bytes",
                                 HTTP_MAX_LISTENERS, sizeof entry - 1);
        memcpy(entry, s, n);
        entry[n] = '\0';
        int rc = bind_entry(entry, c->unix_mode, &d->listeners[d->n], e);
        if (rc) return rc;
        describe(&d->listeners[d->n++]);
        s += n;
    }
    return 0;
}

static int take_handed(const struct http_config *c, struct http_daemon *d, err *e) {
    for (size_t i = 0; i < c->n_listen_fds; i++) {
        struct listener *l = &d->listeners[d->n];
        if (d->n == HTTP_MAX_LISTENERS)
            return err_set(e, ERR_INVALID, "the service manager passes more than %d sockets",
                           HTTP_MAX_LISTENERS);
        l->fd = fcntl(c->listen_fds[i], F_DUPFD_CLOEXEC, 0);
        if (l->fd < 0)
            return err_set(e, ERR_IO, "cannot use the socket of the service manager: %s",
                           strerror(errno));
        describe(l);
        d->n++;
    }
    return 0;
}

int listen_open(const struct http_config *c, struct http_daemon *d, err *e) {
    char port[8];
    if (c->n_listen_fds) return take_handed(c, d, e);
    if (c->listen && c->listen[strspn(c->listen, SEPARATORS)]) return bind_list(c, d, e);
    snprintf(port, sizeof port, "%u", c->port);
    int rc = bind_host(c->host, port, &d->listeners[0], e);
    if (rc) return rc;
    describe(&d->listeners[0]);
    snprintf(d->listeners[0].at.host, sizeof d->listeners[0].at.host, "%s", c->host);
    d->n = 1;
    return 0;
}

void listen_close(struct listener *l) {
    struct stat st;
    if (l->own_ino && !lstat(l->at.path, &st) && (uint64_t)st.st_dev == l->own_dev &&
        (uint64_t)st.st_ino == l->own_ino)
        unlink(l->at.path);
    l->own_ino = 0;
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
}
