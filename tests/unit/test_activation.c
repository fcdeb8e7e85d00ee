/* test_activation.c - sockets handed over by systemd's protocol, each case in a separate process:
 * its number and descriptor 3 are part of the protocol. */
#include "daemon/activation.h"
#include "tests/unit/check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum what {
    LISTENS,
    LISTENS_V6,
    BOUND,
    UNBOUND,
    CONNECTED,
    UDP,
    UNIX,
    UNIX_UNBOUND,
    A_FILE,
    NOTHING
};

/* A TCP or UDP socket bound to a free port of the loopback address. */
static int bound(int family, int type) {
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(family, type, 0);
    int rc = family == AF_INET ? bind(fd, (struct sockaddr *)&v4, sizeof v4)
                               : bind(fd, (struct sockaddr *)&v6, sizeof v6);
    if (!rc) return fd;
    close(fd);
    return -1;
}

/* Under an abstract name that the system chooses: nothing to remove. */
static int bound_unix(void) {
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return bind(fd, (struct sockaddr *)&addr, sizeof addr.sun_family) ? -1 : fd;
}

static int accepted(void) {
    struct sockaddr_in addr;
    socklen_t len = sizeof addr;
    int fd = bound(AF_INET, SOCK_STREAM), client = socket(AF_INET, SOCK_STREAM, 0);
    if (listen(fd, 1) || getsockname(fd, (struct sockaddr *)&addr, &len) ||
        connect(client, (struct sockaddr *)&addr, len))
        return -1;
    return accept(fd, NULL, NULL);
}

static int make(enum what what) {
    int fd = -1;
    switch (what) {
    case LISTENS:
        fd = bound(AF_INET, SOCK_STREAM);
        break;
    case LISTENS_V6:
        fd = bound(AF_INET6, SOCK_STREAM);
        break;
    case BOUND:
        return bound(AF_INET, SOCK_STREAM);
    case UNBOUND:
        return socket(AF_INET, SOCK_STREAM, 0);
    case CONNECTED:
        return accepted();
    case UDP:
        return bound(AF_INET, SOCK_DGRAM);
    case UNIX:
        fd = bound_unix();
        break;
    case UNIX_UNBOUND:
        return socket(AF_UNIX, SOCK_STREAM, 0);
    case A_FILE:
        return open("/dev/null", O_RDWR);
    case NOTHING:
        return -1;
    }
    return fd >= 0 && !listen(fd, 4) ? fd : -1;
}

static const struct {
    const char *name;
    enum what what;
    const char *fds;
    long pid;       /* added to the process's own number */
    int rc;         /* of activation_open */
    const char *by; /* "": nothing was handed over */
    const char *said;
} cases[] = {
    {"one socket", LISTENS, "1", 0, 0, "systemd", ""},
    {"IPv6", LISTENS_V6, "1", 0, 0, "systemd", ""},
    {"bound only", BOUND, "1", 0, 0, "systemd", ""},
    {"another process's", LISTENS, "1", 1, 0, "", ""},
    {"none", LISTENS, "0", 0, 0, "", ""},
    {"two, of which one is missing", LISTENS, "2", 0, ERR_INVALID, "",
     "descriptor 4, which is not"},
    {"too many", LISTENS, "9", 0, ERR_INVALID, "", "systemd passes 9 sockets"},
    {"no number", LISTENS, "1x", 0, ERR_INVALID, "", "LISTEN_FDS is \""},
    {"negative", LISTENS, "-1", 0, ERR_INVALID, "", "LISTEN_FDS is \""},
    {"too large", LISTENS, "99999999999999999999", 0, ERR_INVALID, "", "LISTEN_FDS is \""},
    {"unbound", UNBOUND, "1", 0, ERR_INVALID, "", "does not listen"},
    {"a connection", CONNECTED, "1", 0, ERR_INVALID, "", "Accept=yes"},
    {"UDP", UDP, "1", 0, ERR_INVALID, "", "is not a TCP or Unix socket"},
    {"a Unix socket", UNIX, "1", 0, 0, "systemd", ""},
    {"an unbound Unix socket", UNIX_UNBOUND, "1", 0, ERR_INVALID, "", "does not listen"},
    {"a file", A_FILE, "1", 0, ERR_INVALID, "", "is not a socket"},
    {"a closed descriptor", NOTHING, "1", 0, ERR_INVALID, "", "is not a socket"},
};
enum { N_CASES = sizeof cases / sizeof cases[0], CANNOT = 99 };

/* In the child: descriptor 3 and the environment as systemd leaves them. 0, or which check failed.
 */
static int run_case(size_t i) {
    struct activation a;
    err e = {0};
    char pid[24];
    int fd = make(cases[i].what);
    if (fd < 0 && cases[i].what != NOTHING) return CANNOT;
    if (fd < 0) close(3);
    if (fd >= 0 && fd != 3 && dup2(fd, 3) < 0) return CANNOT;
    close(4); /* inherited, or what was made where 3 was inherited */
    snprintf(pid, sizeof pid, "%ld", (long)getpid() + cases[i].pid);
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", cases[i].fds, 1);
    if (activation_open(&a, &e) != cases[i].rc) return 1;
    if (!strstr(e.msg, cases[i].said)) return 2;
    if (!*cases[i].by) return a.n ? 3 : 0;
    if (a.n != 1 || a.fds[0] != 3 || strcmp(a.by, cases[i].by) != 0) return 4;
    if (!(fcntl(3, F_GETFL) & O_NONBLOCK) || fcntl(3, F_GETFD) != FD_CLOEXEC) return 6;
    activation_close(&a);
    return a.n || fcntl(3, F_GETFD) >= 0 ? 7 : 0;
}

static void test_systemd(void) {
    for (size_t i = 0; i < N_CASES; i++) {
        int status = -1;
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) _exit(run_case(i));
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT && cases[i].what == LISTENS_V6) {
            SKIP("IPv6", "no IPv6 here");
            continue;
        }
        CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: check %d", cases[i].name,
                  WEXITSTATUS(status));
    }
}

static void test_nothing(void) {
    struct activation a;
    err e;
    unsetenv("LISTEN_PID");
    setenv("LISTEN_FDS", "1", 1);
    CHECK(activation_open(&a, &e) == 0 && a.n == 0);
    unsetenv("LISTEN_FDS");
    CHECK(activation_open(&a, &e) == 0 && a.n == 0);
    activation_close(&a);
}

int main(void) {
    RUN(test_systemd);
    RUN(test_nothing);
    return check_done();
}
