/* launchd_socket.c - daemon/activation.c as it is built on macOS, with a launchd that answers what
 * launch_activate_socket(3) can answer. tests/cli/macos builds it with -D__APPLE__ and sanitizers:
 * the array of descriptors is ours to free. */
#include "daemon/activation.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <fcntl.h>
#include <launch.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static struct {
    int reason, fds[2];
    size_t n;
    char name[32];
} launchd;

int launch_activate_socket(const char *name, int **fds, size_t *cnt) {
    snprintf(launchd.name, sizeof launchd.name, "%s", name);
    if (launchd.reason) return launchd.reason;
    *fds = malloc(sizeof launchd.fds);
    if (!*fds) return ENOMEM;
    memcpy(*fds, launchd.fds, sizeof launchd.fds);
    *cnt = launchd.n;
    return 0;
}

static int listening(void) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&addr, sizeof addr) && !listen(fd, 8));
    return fd;
}

static void test_not_a_job(void) {
    static const int none[] = {ESRCH, ENOENT};
    struct activation a;
    err e;
    for (int i = 0; i < 2; i++) {
        launchd.reason = none[i];
        CHECK(activation_open(&a, &e) == 0 && a.fd == 0);
    }
    launchd.reason = EALREADY;
    CHECK(activation_open(&a, &e) == ERR_IO && a.fd == 0);
    CHECK(strstr(e.msg, "cannot get sockets from launchd"));
    launchd.reason = 0;
}

static void test_one_socket(void) {
    struct activation a;
    err e;
    launchd.fds[0] = listening();
    launchd.n = 1;
    CHECK(activation_open(&a, &e) == 0 && a.fd == launchd.fds[0] && a.port > 0);
    CHECK_STR(launchd.name, "listeners");
    CHECK_STR(a.by, "launchd");
    CHECK_STR(a.host, "127.0.0.1");
    activation_close(&a);
    CHECK(fcntl(launchd.fds[0], F_GETFD) < 0);
    launchd.n = 0;
    CHECK(activation_open(&a, &e) == 0 && a.fd == 0);
}

static void test_two_sockets(void) {
    struct activation a;
    err e;
    launchd.fds[0] = listening();
    launchd.fds[1] = listening();
    launchd.n = 2;
    CHECK(activation_open(&a, &e) == ERR_INVALID && a.fd == 0);
    CHECK(strstr(e.msg, "launchd passes 2 sockets"));
    CHECK(fcntl(launchd.fds[0], F_GETFD) < 0 && fcntl(launchd.fds[1], F_GETFD) < 0);
}

int main(void) {
    unsetenv("LISTEN_PID");
    RUN(test_not_a_job);
    RUN(test_one_socket);
    RUN(test_two_sockets);
    return check_done();
}
