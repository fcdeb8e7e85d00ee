/* free_port.h - a port of loopback that was free just now. */
#ifndef INFERD_TESTS_SUPPORT_FREE_PORT_H
#define INFERD_TESTS_SUPPORT_FREE_PORT_H

#include "tests/unit/check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static inline int free_port(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(fd, (struct sockaddr *)&a, n) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&a, &n) == 0);
    close(fd);
    return ntohs(a.sin_port);
}

#endif
