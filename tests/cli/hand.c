/* hand.c - starts a command as systemd starts a service with a socket: descriptor 3 listens on a
 * free port of 127.0.0.1, and a client (descriptor 3's first connection) has already sent a request
 * and waits. The client's answer is written to FILE by a child that outlives the exec.
 * usage: hand FILE COMMAND... */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENT_SECONDS = 60 };

static int client(const struct sockaddr_in *addr, const char *file) {
    static const char request[] = "GET /livez HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n";
    char answer[4096];
    size_t n = 0;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    FILE *f = fopen(file, "w");
    alarm(CLIENT_SECONDS);
    if (fd < 0 || !f || connect(fd, (const struct sockaddr *)addr, sizeof *addr)) return 1;
    if (send(fd, request, sizeof request - 1, 0) < 0) return 1;
    for (ssize_t got; n < sizeof answer && (got = recv(fd, answer + n, sizeof answer - n, 0)) > 0;)
        n += (size_t)got;
    fwrite(answer, 1, n, f);
    return fclose(f) != 0;
}

int main(int argc, char **argv) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof addr;
    char pid[24];
    if (argc < 3) return 2;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, len) || listen(fd, 8) ||
        getsockname(fd, (struct sockaddr *)&addr, &len) || (fd != 3 && dup2(fd, 3) < 0)) {
        perror("hand");
        return 1;
    }
    if (fd != 3) close(fd);
    if (fork() == 0) {
        close(3);
        _exit(client(&addr, argv[1]));
    }
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", "1", 1);
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 1;
}
