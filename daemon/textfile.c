/* textfile.c - reads whole files of people: configuration, keys, prompts. */
#include "daemon/textfile.h"

#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

const char *textfile_name(const char *path) {
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

int textfile_read(const char *path, size_t max_bytes, char **text, size_t *n, err *e) {
    char chunk[16384];
    str s;
    int rc = 0, fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set(e, ERR_IO, "%s: %s", textfile_name(path), strerror(errno));
    str_init(&s, max_bytes);
    for (;;) {
        ssize_t got = read(fd, chunk, sizeof chunk);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) rc = err_set(e, ERR_IO, "%s: %s", textfile_name(path), strerror(errno));
        if (got <= 0) break;
        size_t room = max_bytes - s.len;
        str_add_n(&s, chunk, (size_t)got);
        if (s.failed) {
            rc = room < (size_t)got
                     ? err_set(e, ERR_TOO_LONG, "%s is longer than %zu bytes", textfile_name(path),
                               max_bytes)
                     : err_set(e, ERR_NOMEM, "no memory to read %s", textfile_name(path));
            break;
        }
    }
    close(fd);
    *n = s.len;
    *text = rc ? NULL : str_take(&s);
    str_fini(&s);
    if (!rc && !*text) rc = err_set(e, ERR_NOMEM, "no memory to read %s", textfile_name(path));
    return rc;
}
