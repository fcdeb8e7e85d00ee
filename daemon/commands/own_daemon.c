/* own_daemon.c - fork, exec of this same program, and a pipe whose end tells the daemon to stop. */
#include "daemon/commands/own_daemon.h"

#include "core/base/clock.h"
#include "core/base/program.h"
#include "daemon/commands/client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_BYTES = 4352, POLL_MS = 100, START_S = 1800, END_S = 60, LOG_BYTES = 4096 };

/* A file in the state folder that is already removed. */
static int open_log(err *e) {
    char *folder, path[PATH_BYTES];
    if (config_state_folder("", &folder, e)) return -1;
    snprintf(path, sizeof path, "%s/run-XXXXXX", folder);
    free(folder);
    int fd = mkstemp(path);
    if (fd < 0)
        err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    else
        unlink(path);
    return fd;
}

/* In the child. Never returns. */
static void become_daemon(const int in[2], const int out[2], int log, const char *program,
                          const char *model, const char *const *flags) {
    const char *args[12 + OWN_DAEMON_FLAGS] = {
        "inferd",      "serve", "--model",           model, "--host", "127.0.0.1", "--port", "0",
        "--log-level", "warn",  "--until-stdin-ends"};
    for (size_t i = 0; flags && flags[i] && i < OWN_DAEMON_FLAGS; i++)
        args[11 + i] = flags[i];
    setsid(); /* the terminal's Ctrl-C is the command's */
    if (dup2(in[0], STDIN_FILENO) < 0 || dup2(out[1], STDOUT_FILENO) < 0 ||
        dup2(log, STDERR_FILENO) < 0)
        _exit(126);
    close(in[0]), close(in[1]), close(out[0]), close(out[1]), close(log);
    execv(program, (char *const *)args);
    _exit(127);
}

/* The last line that the daemon wrote to its log. */
static int err_daemon(struct own_daemon *d, err *e) {
    char text[LOG_BYTES + 1];
    off_t size = lseek(d->log, 0, SEEK_END), from = size > LOG_BYTES ? size - LOG_BYTES : 0;
    ssize_t n = pread(d->log, text, LOG_BYTES, from);
    text[n > 0 ? n : 0] = '\0';
    size_t len = strlen(text);
    while (len && text[len - 1] == '\n')
        text[--len] = '\0';
    const char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    if (strncmp(line, "inferd: ", 8) == 0) line += 8;
    return err_set(e, ERR_IO, "%s", *line ? line : "the daemon ended and did not say why");
}

/* Reads "inferd: serving MODEL on URL\n". */
static int wait_ready(struct own_daemon *d, err *e) {
    char line[512];
    size_t n = 0;
    uint64_t end_ns = clock_now_ns() + START_S * UINT64_C(1000000000);
    struct pollfd p = {.fd = d->from, .events = POLLIN};
    for (;;) {
        if (client_interrupted()) return err_set(e, ERR_STOPPING, "stopped");
        if (clock_now_ns() > end_ns)
            return err_set(e, ERR_IO, "the model is not loaded after %d minutes", START_S / 60);
        if (poll(&p, 1, POLL_MS) <= 0) continue;
        ssize_t got = read(d->from, line + n, sizeof line - 1 - n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return err_daemon(d, e);
        n += (size_t)got;
        line[n] = '\0';
        if (line[n - 1] == '\n' || n == sizeof line - 1) break;
    }
    line[strcspn(line, "\n")] = '\0';
    char *on = strstr(line, " on http://");
    if (!on) return err_set(e, ERR_IO, "the daemon says \"%.100s\", not where it serves", line);
    snprintf(d->url, sizeof d->url, "%s", on + 4);
    return 0;
}

int own_daemon_start(struct own_daemon *d, const char *model, const char *const *flags, err *e) {
    char program[PATH_BYTES];
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    *d = (struct own_daemon){.to = -1, .from = -1};
    program_path(program, sizeof program);
    if ((d->log = open_log(e)) < 0) return ERR_IO;
    if (pipe(in) || pipe(out)) {
        close(in[0]), close(in[1]), close(d->log);
        return err_set(e, ERR_IO, "pipe: %s", strerror(errno));
    }
    d->to = in[1];
    d->from = out[0];
    fflush(NULL);
    d->pid = fork();
    if (d->pid == 0) become_daemon(in, out, d->log, program, model, flags);
    close(in[0]), close(out[1]);
    int rc = d->pid < 0 ? err_set(e, ERR_IO, "fork: %s", strerror(errno)) : wait_ready(d, e);
    if (d->pid < 0) d->pid = 0;
    if (rc) own_daemon_stop(d);
    return rc;
}

void own_daemon_stop(struct own_daemon *d) {
    if (d->to < 0) return;
    close(d->to);
    uint64_t end_ns = clock_now_ns() + END_S * UINT64_C(1000000000);
    if (d->pid > 0) kill(d->pid, SIGTERM);
    while (d->pid > 0 && waitpid(d->pid, NULL, WNOHANG) == 0) {
        if (clock_now_ns() > end_ns) kill(d->pid, SIGKILL);
        usleep(POLL_MS * 1000 / 5);
    }
    close(d->from), close(d->log);
    *d = (struct own_daemon){.to = -1, .from = -1, .log = -1};
}
