/* signals.c - a pipe that the handler writes to, so that waiting for a signal is waiting for a
 * descriptor. The handler does nothing else that could be unsafe. */
#include "daemon/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE = 3 };

static int pipe_ends[2] = {-1, -1};
static volatile sig_atomic_t n_signals;

static void on_signal(int number) {
    int kept = errno;
    (void)number;
    if (++n_signals >= PATIENCE) _exit(1);
    ssize_t n = write(pipe_ends[1], "s", 1); /* full: a byte is waiting already */
    (void)n;
    errno = kept;
}

int signals_open(err *e) {
    if (pipe(pipe_ends)) return err_set(e, ERR_IO, "cannot make a pipe: %s", strerror(errno));
    for (int i = 0; i < 2; i++) {
        fcntl(pipe_ends[i], F_SETFD, FD_CLOEXEC);
        fcntl(pipe_ends[i], F_SETFL, O_NONBLOCK);
    }
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&act.sa_mask);
    sigaddset(&act.sa_mask, SIGTERM);
    sigaddset(&act.sa_mask, SIGINT);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGINT, &act, NULL);
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

int signals_count(void) {
    return n_signals;
}

bool signals_wait(int timeout_ms) {
    struct pollfd fd = {.fd = pipe_ends[0], .events = POLLIN};
    char byte;
    /* SA_RESTART does not restart poll: an interrupted one finds the byte right after. */
    if (poll(&fd, 1, timeout_ms) < 0 && errno == EINTR) poll(&fd, 1, 0);
    return read(pipe_ends[0], &byte, 1) == 1;
}
