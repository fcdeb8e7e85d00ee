/* listen.c - the listening socket, opened here or handed over by the service manager. Owns nothing:
 * the caller owns the descriptor. Called by the daemon's main thread. */
#include "api/http/http_int.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Duplicates the descriptor of a socket that the service manager opened. */
static int duplicate_socket(const struct http_config *c, int *out, err *e) {
    *out = fcntl(c->listen_fd, F_DUPFD_CLOEXEC, 0);
    if (*out >= 0) return 0;
    return err_set(e, ERR_IO, "cannot use the socket of the service manager: %s", strerror(errno));
}

/* libmicrohttpd could bind too, but would not tell why it failed. */
static int bind_socket(const struct http_config *c, int *out, err *e) {
    char port[8];
    snprintf(port, sizeof port, "%u", c->port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *list;
    int rc = getaddrinfo(c->host, port, &hints, &list);
    if (rc)
        return err_set_param(e, ERR_IO, "host", "cannot use address \"%s\": %s", c->host,
                             gai_strerror(rc));
    int fd = socket(list->ai_family, SOCK_STREAM, 0), one = 1;
    bool ok = fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) &&
              !bind(fd, list->ai_addr, list->ai_addrlen) && !listen(fd, 1024) &&
              !fcntl(fd, F_SETFL, O_NONBLOCK) && !fcntl(fd, F_SETFD, FD_CLOEXEC);
    int reason = errno;
    freeaddrinfo(list);
    if (ok) {
        *out = fd;
        return 0;
    }
    if (fd >= 0) close(fd);
    if (reason == EADDRINUSE)
        return err_set_param(e, ERR_IO, "port",
                             "port %u of %s is already in use: stop the other program or choose "
                             "another port",
                             c->port, c->host);
    return err_set_param(e, ERR_IO, "host", "cannot listen on %s port %u: %s", c->host, c->port,
                         strerror(reason));
}

int listen_open(const struct http_config *c, int *out, err *e) {
    return (c->listen_fd ? duplicate_socket : bind_socket)(c, out, e);
}

uint16_t listen_port(int fd, int *family) {
    struct sockaddr_storage addr;
    socklen_t n = sizeof addr;
    *family = AF_INET;
    if (getsockname(fd, (struct sockaddr *)&addr, &n)) return 0;
    *family = addr.ss_family;
    if (addr.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&addr)->sin6_port);
    return ntohs(((struct sockaddr_in *)&addr)->sin_port);
}
