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

enum { MANY = ACTIVATION_MAX + 1 };

static struct {
    int reason, fds[MANY];
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
        CHECK(activation_open(&a, &e) == 0 && a.n == 0);
    }
    launchd.reason = EALREADY;
    CHECK(activation_open(&a, &e) == ERR_IO && a.n == 0);
    CHECK(strstr(e.msg, "cannot get sockets from launchd"));
    launchd.reason = 0;
}

static void test_one_socket(void) {
    struct activation a;
    err e;
    launchd.fds[0] = listening();
    launchd.n = 1;
    CHECK(activation_open(&a, &e) == 0 && a.n == 1 && a.fds[0] == launchd.fds[0]);
    CHECK_STR(launchd.name, "listeners");
    CHECK_STR(a.by, "launchd");
    activation_close(&a);
    CHECK(fcntl(launchd.fds[0], F_GETFD) < 0);
    launchd.n = 0;
    CHECK(activation_open(&a, &e) == 0 && a.n == 0);
}

static void test_more_sockets(void) {
    struct activation a;
    err e;
    launchd.fds[0] = listening();
    launchd.fds[1] = listening();
    launchd.n = 2;
    CHECK(activation_open(&a, &e) == 0 && a.n == 2 && a.fds[1] == launchd.fds[1]);
    activation_close(&a);
    CHECK(fcntl(launchd.fds[0], F_GETFD) < 0 && fcntl(launchd.fds[1], F_GETFD) < 0);
    for (int i = 0; i < MANY; i++)
        launchd.fds[i] = listening();
    launchd.n = MANY;
    CHECK(activation_open(&a, &e) == ERR_INVALID && a.n == 0);
    CHECK(strstr(e.msg, "launchd passes 9 sockets"));
    for (int i = 0; i < MANY; i++)
        CHECK(fcntl(launchd.fds[i], F_GETFD) < 0);
}

int main(void) {
    unsetenv("LISTEN_PID");
    RUN(test_not_a_job);
    RUN(test_one_socket);
    RUN(test_more_sockets);
    return check_done();
}
