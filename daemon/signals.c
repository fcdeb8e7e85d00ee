/* signals.c - handlers count signals and write to a pipe, so that waiting for a signal is waiting
 * for a descriptor. */
#include "daemon/signals.h"

#include "core/base/log.h"
#include "core/formats/model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE = 3 };

static const int stopping[] = {SIGTERM, SIGINT}, noted[] = {SIGUSR1, SIGUSR2, SIGHUP},
                 ignored[] = {SIGPIPE, SIGXFSZ, SIGTTOU};
enum { N_NOTED = sizeof noted / sizeof noted[0], N_IGNORED = N_NOTED - 1 };

static int pipe_ends[2] = {-1, -1};
/* Lock-free: handlers may run on any thread. */
static atomic_int n_stops, came[N_NOTED];
static int n_stops_seen;

static void ring_bell(void) {
    ssize_t n = write(pipe_ends[1], "s", 1); /* a full pipe has a byte already */
    (void)n;
}

static void on_stop(int number) {
    int kept = errno;
    (void)number;
    if (atomic_fetch_add(&n_stops, 1) + 1 >= PATIENCE) _exit(1);
    ring_bell();
    errno = kept;
}

static void on_noted(int number) {
    int kept = errno;
    for (int i = 0; i < N_NOTED; i++)
        if (noted[i] == number) atomic_store(&came[i], 1);
    ring_bell();
    errno = kept;
}

static void set_handlers(const int *numbers, size_t n, void (*handler)(int)) {
    struct sigaction act = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigfillset(&act.sa_mask);
    sigdelset(&act.sa_mask, SIGBUS); /* a mapped file may raise it during a handler */
    for (size_t i = 0; i < n; i++)
        sigaction(numbers[i], &act, NULL);
}

int signals_open(err *e) {
    if (pipe(pipe_ends)) return err_set(e, ERR_IO, "cannot create a pipe: %s", strerror(errno));
    for (int i = 0; i < 2; i++) {
        fcntl(pipe_ends[i], F_SETFD, FD_CLOEXEC);
        fcntl(pipe_ends[i], F_SETFL, O_NONBLOCK);
    }
    set_handlers(stopping, sizeof stopping / sizeof *stopping, on_stop);
    set_handlers(noted, N_NOTED, on_noted);
    set_handlers(ignored, sizeof ignored / sizeof *ignored, SIG_IGN);
    return model_files_guard(e);
}

int signals_count(void) {
    return atomic_load(&n_stops);
}

static void log_noted(void) {
    static const char *const names[N_IGNORED] = {"SIGUSR1", "SIGUSR2"};
    for (int i = 0; i < N_IGNORED; i++) {
        if (!atomic_exchange(&came[i], 0)) continue;
        log_info("%s is ignored: SIGHUP reloads the configuration, and the log goes to stderr",
                 names[i]);
    }
}

bool signals_reload(void) {
    return atomic_exchange(&came[N_IGNORED], 0) != 0;
}

bool signals_wait(int timeout_ms) {
    struct pollfd fd = {.fd = pipe_ends[0], .events = POLLIN};
    char bytes[64];
    /* SA_RESTART does not restart poll: after an interruption the next call finds the byte. */
    if (poll(&fd, 1, timeout_ms) < 0 && errno == EINTR) poll(&fd, 1, 0);
    while (read(pipe_ends[0], bytes, sizeof bytes) > 0) {
    }
    log_noted();
    const int n = atomic_load(&n_stops);
    bool stop = n != n_stops_seen;
    n_stops_seen = n;
    return stop;
}
