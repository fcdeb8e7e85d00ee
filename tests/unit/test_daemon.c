/* test_daemon.c - small parts of the daemon: log lines, systemd's notification, signals, lists of
 * token ids, human-readable sizes, files of running daemons. */
#include "core/base/log.h"
#include "daemon/commands/printing.h"
#include "daemon/input.h"
#include "daemon/logsink.h"
#include "daemon/notify.h"
#include "daemon/run_file.h"
#include "daemon/signals.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];

/* Logs with stderr redirected to a file; returns its text, NUL-terminated. */
static void log_to_file(bool journal, char *out, size_t n) {
    char path[96], text[64];
    struct stat st;
    snprintf(path, sizeof path, "%s/log", folder);
    int fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600), kept = dup(STDERR_FILENO);
    CHECK(fd >= 0 && kept >= 0 && fstat(fd, &st) == 0);
    dup2(fd, STDERR_FILENO);
    snprintf(text, sizeof text, "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino + !journal);
    setenv("JOURNAL_STREAM", text, 1);
    logsink_open("info", "text");
    log_debug("dropped");
    log_info("started %d", 7);
    log_warn("careful\nforged");
    log_error("broken");
    log_set_sink(NULL, NULL, LOG_LEVEL_ERROR);
    dup2(kept, STDERR_FILENO);
    ssize_t got = pread(fd, out, n - 1, 0);
    out[got > 0 ? got : 0] = '\0';
    close(fd);
    close(kept);
    unlink(path);
}

static void test_log(void) {
    char text[500];
    log_to_file(true, text, sizeof text);
    CHECK_STR(text, "<6>started 7\n<4>careful?forged\n<3>broken\n");
    log_to_file(false, text, sizeof text);
    int year, month, day, hour, minute, second;
    char zone, level[16], rest[32];
    CHECK(sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%c %15s %31[^\n]", &year, &month, &day, &hour,
                 &minute, &second, &zone, level, rest) == 9);
    CHECK(year >= 2020 && zone == 'Z');
    CHECK_STR(level, "info");
    CHECK_STR(rest, "started 7");
    CHECK(strstr(text, "Z warn  careful?forged\n") && strstr(text, "Z error broken\n"));
    CHECK(!strstr(text, "dropped"));
}

static void notify_through(const char *name) {
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    char got[64] = "";
    size_t n = strlen(name);
    memcpy(addr.sun_path, name, n);
    if (name[0] == '@') addr.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&addr,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) == 0);
    setenv("NOTIFY_SOCKET", name, 1);
    notify_send("READY=1");
    CHECK(recv(fd, got, sizeof got - 1, MSG_DONTWAIT) == 7);
    CHECK_STR(got, "READY=1");
    close(fd);
}

static void test_notify(void) {
    char path[200];
    snprintf(path, sizeof path, "%s/notify", folder);
    notify_through(path);
    unlink(path);
    notify_send("READY=1"); /* no receiver: no crash, no wait */
    memset(path, 'x', sizeof path - 1);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    setenv("NOTIFY_SOCKET", path, 1);
    notify_send("READY=1");
    unsetenv("NOTIFY_SOCKET");
    notify_send("READY=1");
#ifdef __linux__
    snprintf(path, sizeof path, "@inferd-test-%ld", (long)getpid());
    notify_through(path);
    unsetenv("NOTIFY_SOCKET");
#endif
}

static void test_signals(void) {
    err e;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (signals_open(&e) || signals_wait(0)) _exit(10);
        static const int harmless[] = {SIGPIPE, SIGXFSZ, SIGTTOU, SIGHUP,
                                       SIGHUP,  SIGHUP,  SIGUSR1, SIGUSR2};
        for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
            raise(harmless[i]);
        if (signals_wait(1000) || signals_count()) _exit(14);
        for (int i = 0; i < 100000; i++) /* more than a pipe holds */
            raise(SIGHUP);
        raise(SIGTERM);
        if (!signals_wait(-1) || signals_count() != 1 || signals_wait(0)) _exit(11);
        raise(SIGHUP); /* does not count as impatience */
        raise(SIGINT);
        if (!signals_wait(1000) || signals_count() != 2) _exit(12);
        raise(SIGTERM); /* the third: at once, status 1 */
        _exit(13);
    }
    int status = -1;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 1, "status %d", status);
}

static void test_idlist(void) {
    int32_t *ids = NULL;
    size_t n = 9;
    err e;
    CHECK(idlist_parse("", 10, &ids, &n, &e) == 0 && n == 0);
    free(ids);
    CHECK(idlist_parse(" 1, 2 ,3\n", 10, &ids, &n, &e) == 0 && n == 3);
    if (n == 3) CHECK(ids[0] == 1 && ids[1] == 2 && ids[2] == 3);
    free(ids);
    CHECK(idlist_parse("0 9", 10, &ids, &n, &e) == 0 && n == 2 && ids[1] == 9);
    free(ids);
    static const char *const bad[] = {"10", "-1", "1,,2", ",1",
                                      "x",  "1x", "1;2",  "99999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_MSG(idlist_parse(bad[i], 10, &ids, &n, &e) == ERR_INVALID, "%s", bad[i]);
}

static void test_formats(void) {
    static const struct {
        uint64_t value;
        const char *bytes, *count;
    } cases[] = {{0, "0 B", "0"},
                 {999, "999 B", "999"},
                 {1023, "1023 B", "1.02 K"},
                 {1024, "1.00 KiB", "1.02 K"},
                 {14200000, "13.5 MiB", "14.2 M"},
                 {UINT64_C(8030261248), "7.48 GiB", "8.03 B"},
                 {UINT64_MAX, "16777216 TiB", "18446744 T"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[32];
        format_bytes(cases[i].value, text, sizeof text);
        CHECK_STR(text, cases[i].bytes);
        format_count(cases[i].value, text, sizeof text);
        CHECK_STR(text, cases[i].count);
    }
}

/* Writes a run file as a daemon does, without its lock; returns its descriptor. */
static int write_run_file(char path[128]) {
    static const char text[] = "http://127.0.0.1:1\nm\n";
    struct run_file own;
    setenv("XDG_STATE_HOME", folder, 1);
    unsetenv("STATE_DIRECTORY");
    CHECK(run_file_open(&own, "http://127.0.0.1:2", "own", false, NULL) ==
          0); /* makes the folder */
    run_file_close(&own);
    snprintf(path, 128, "%s/inferd/run/77777", folder);
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0 && write(fd, text, sizeof text - 1) == sizeof text - 1);
    return fd;
}

static void test_run_files(void) {
    char path[128];
    struct run_list list;
    int fd = write_run_file(path);
#ifdef F_OFD_SETLK
    /* A lock without a process: no daemon to stop, but its file remains. */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(fcntl(fd, F_OFD_SETLK, &lock) == 0);
    CHECK(run_list_read(&list, NULL) == 0 && list.n == 0 && access(path, F_OK) == 0);
    run_list_fini(&list);
#endif
    close(fd);
    CHECK(run_list_read(&list, NULL) == 0 && list.n == 0 && access(path, F_OK) != 0);
    run_list_fini(&list);
    for (int up = 0; up < 2; up++) {
        snprintf(path, sizeof path, "%s/inferd%s", folder, up ? "" : "/run");
        rmdir(path);
    }
}

int main(void) {
    snprintf(folder, sizeof folder, "%s", "/tmp/inferd-test-daemon-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    RUN(test_log);
    RUN(test_notify);
    RUN(test_signals);
    RUN(test_idlist);
    RUN(test_formats);
    RUN(test_run_files);
    rmdir(folder);
    return check_done();
}
