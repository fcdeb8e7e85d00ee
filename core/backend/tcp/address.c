/* address.c - addresses of stages: "HOST:PORT", connections to them, sockets that listen there.
 * Main thread. */
#include "core/backend/tcp/tcp_int.h"

#include "core/base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 16 };

bool tcp_address_at(const char *list, uint32_t i, char out[TCP_ADDRESS_BYTES]) {
    for (; i && *list; list++)
        i -= *list == ',';
    list += strspn(list, " \t");
    size_t n = strcspn(list, ",");
    while (n && (list[n - 1] == ' ' || list[n - 1] == '\t'))
        n--;
    if (i || !n) return false;
    snprintf(out, TCP_ADDRESS_BYTES, "%.*s", (int)(n < TCP_ADDRESS_BYTES ? n : 1), list);
    return true;
}

/* "HOST:PORT" or "[HOST]:PORT". */
static bool split_address(const char *address, char host[TCP_ADDRESS_BYTES], const char **port) {
    const bool bracket = address[0] == '[';
    const char *colon = bracket ? strstr(address, "]:") : strrchr(address, ':');
    if (!colon) return false;
    *port = colon + (bracket ? 2 : 1);
    const size_t n = (size_t)(colon - address) - bracket;
    if (!n || n >= TCP_ADDRESS_BYTES || !**port || (!bracket && memchr(address, ':', n)))
        return false;
    memcpy(host, address + bracket, n);
    host[n] = '\0';
    return true;
}

static bool is_loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static int find_addresses(const char *address, bool loopback, int flags, struct addrinfo **out,
                          err *e) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
    char host[TCP_ADDRESS_BYTES];
    const char *port;
    *out = NULL;
    if (!split_address(address, host, &port))
        return err_set(e, ERR_INVALID, "\"%.100s\" is not HOST:PORT", address);
    int why = getaddrinfo(host, port, &hints, out);
    if (why) return err_set(e, ERR_IO, "%.100s: %s", address, gai_strerror(why));
    for (const struct addrinfo *a = *out; a && loopback; a = a->ai_next) {
        if (is_loopback(a->ai_addr)) continue;
        freeaddrinfo(*out);
        *out = NULL;
        return err_set(e, ERR_INVALID,
                       "%.100s is not a loopback address: stages on other machines need a secret "
                       "that they share (stage-secret-file)",
                       address);
    }
    return 0;
}

int tcp_prepare(int fd, err *e) {
    const int on = 1, flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC))
        return err_set(e, ERR_IO, "cannot prepare a connection: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* only slower without */
    return 0;
}

/* Waits for a connection that was begun. */
static bool is_connected(int fd, uint64_t deadline_ns) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    const uint64_t now = clock_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    int why = 0;
    socklen_t n = sizeof why;
    if (poll(&p, 1, (int)(left / 1000000)) < 1) {
        errno = ETIMEDOUT;
        return false;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n)) return false;
    errno = why;
    return !why;
}

int tcp_dial(const char *address, bool loopback, uint64_t deadline_ns, int *fd, err *e) {
    struct addrinfo *list;
    int rc = find_addresses(address, loopback, 0, &list, e), why = 0;
    if (rc) return rc;
    *fd = -1;
    for (const struct addrinfo *a = list; a && *fd < 0; a = a->ai_next) {
        int s = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
        if (s < 0 || tcp_prepare(s, e) ||
            (connect(s, a->ai_addr, a->ai_addrlen) && errno != EINPROGRESS) ||
            !is_connected(s, deadline_ns)) {
            why = errno;
            if (s >= 0) close(s);
            continue;
        }
        *fd = s;
    }
    freeaddrinfo(list);
    return *fd >= 0 ? 0
                    : err_set(e, ERR_IO, "cannot connect to %.100s: %s", address, strerror(why));
}

int tcp_listen(const char *address, bool loopback, int *fd, err *e) {
    struct addrinfo *list;
    const int on = 1;
    int rc = find_addresses(address, loopback, AI_PASSIVE, &list, e);
    if (rc) return rc;
    *fd = socket(list->ai_family, list->ai_socktype, list->ai_protocol);
    if (*fd < 0 || fcntl(*fd, F_SETFD, FD_CLOEXEC) || fcntl(*fd, F_SETFL, O_NONBLOCK) ||
        setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        bind(*fd, list->ai_addr, list->ai_addrlen) || listen(*fd, BACKLOG)) {
        rc = err_set(e, ERR_IO, "cannot listen on %.100s: %s", address, strerror(errno));
        if (*fd >= 0) close(*fd);
        *fd = -1;
    }
    freeaddrinfo(list);
    return rc;
}

void tcp_peer_name(int fd, char out[TCP_ADDRESS_BYTES]) {
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    char host[80], port[16];
    snprintf(out, TCP_ADDRESS_BYTES, "an unknown address");
    if (getpeername(fd, (struct sockaddr *)&a, &n) ||
        getnameinfo((const struct sockaddr *)&a, n, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV))
        return;
    snprintf(out, TCP_ADDRESS_BYTES, "%s:%s", host, port);
}
