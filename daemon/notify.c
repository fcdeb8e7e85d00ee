/* notify.c - sends a datagram to the socket in NOTIFY_SOCKET; a leading '@' marks an abstract name
 * (sd_notify(3)). */
#include "daemon/notify.h"

#include "core/base/log.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void notify_send(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t n = path ? strlen(path) : 0;
    if (n == 0) return;
    if (n >= sizeof addr.sun_path || (path[0] != '/' && path[0] != '@')) {
        log_warn("NOTIFY_SOCKET is not the name of a socket");
        return;
    }
    memcpy(addr.sun_path, path, n);
    if (path[0] == '@') addr.sun_path[0] = '\0';
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (fd < 0 || sendto(fd, state, strlen(state), 0, (struct sockaddr *)&addr, len) < 0)
        log_warn("cannot notify systemd: %s", strerror(errno));
    if (fd >= 0) close(fd);
}
