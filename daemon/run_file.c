/* run_file.c - record locks (fcntl) tell who holds them, so no process id is taken from a file's
 * text. A file gets its name when it is locked and whole: readers remove a file without a lock. */
#include "daemon/run_file.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "daemon/config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEXT_BYTES = 8192, PATH_BYTES = 4352, DAEMONS_MAX = 1000 };

int run_file_open(struct run_file *f, const char *url, const char *models, bool own, err *e) {
    char *folder, path[PATH_BYTES], draft[PATH_BYTES];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    *f = (struct run_file){.fd = -1};
    int rc = config_state_folder("run", &folder, e);
    if (rc) return rc;
    snprintf(path, sizeof path, "%s/%ld", folder, (long)getpid());
    snprintf(draft, sizeof draft, "%s/.%ld", folder, (long)getpid());
    free(folder);
    if (!(f->path = mem_strdup(path))) return err_no_memory(e);
    f->fd = open(draft, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (f->fd >= 0 && fcntl(f->fd, F_SETLK, &lock) == 0 &&
        dprintf(f->fd, "%s\n%s\n%s", url, models, own ? "own\n" : "") > 0 &&
        rename(draft, path) == 0)
        return 0;
    rc = err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    if (f->fd >= 0) unlink(draft);
    run_file_close(f);
    return rc;
}

void run_file_close(struct run_file *f) {
    if (f->fd >= 0) {
        unlink(f->path);
        close(f->fd);
    }
    free(f->path);
    *f = (struct run_file){.fd = -1};
}

/* The process that holds the file's lock; 0: none; below 0: one that cannot be named, as on another
 * machine that shares the folder. */
static pid_t find_holder(int fd) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_GETLK, &lock)) return -1;
    if (lock.l_type == F_UNLCK) return 0;
    return lock.l_pid > 0 ? lock.l_pid : -1;
}

/* Adds the daemon of a file; removes the file if there is none. A daemon that no signal reaches is
 * not added: kill() takes an id below 0 for a group of processes. */
static int add_daemon(struct run_list *list, const char *path, err *e) {
    char text[TEXT_BYTES];
    int rc = 0, fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return 0;
    pid_t pid = find_holder(fd);
    ssize_t n = pid > 0 ? read(fd, text, sizeof text - 1) : 0;
    if (!pid) unlink(path);
    close(fd);
    if (n <= 0) return 0;
    text[n] = '\0';
    char *models = strchr(text, '\n');
    if (!models) return 0;
    *models++ = '\0';
    char *own = models + strcspn(models, "\n");
    if (*own) *own++ = '\0';
    struct run_daemon *more = mem_resize(list->daemons, list->n + 1, sizeof *more);
    if (!more) return err_no_memory(e);
    list->daemons = more;
    struct run_daemon d = {pid, mem_strdup(text), mem_strdup(models), strcmp(own, "own\n") == 0};
    if (!d.url || !d.models) {
        rc = err_no_memory(e);
        free(d.url);
        free(d.models);
    } else {
        more[list->n++] = d;
    }
    return rc;
}

static int compare_pids(const void *a, const void *b) {
    pid_t x = ((const struct run_daemon *)a)->pid, y = ((const struct run_daemon *)b)->pid;
    return (x > y) - (x < y);
}

int run_list_read(struct run_list *list, err *e) {
    char *folder, path[PATH_BYTES];
    *list = (struct run_list){0};
    int rc = config_state_folder("run", &folder, e);
    if (rc) return rc;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && !rc && list->n < DAEMONS_MAX && (entry = readdir(dir));) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
        snprintf(path, sizeof path, "%s/%.200s", folder, entry->d_name);
        rc = add_daemon(list, path, e);
    }
    if (dir) closedir(dir);
    free(folder);
    if (rc) run_list_fini(list);
    if (list->n) qsort(list->daemons, list->n, sizeof *list->daemons, compare_pids);
    return rc;
}

void run_list_fini(struct run_list *list) {
    for (size_t i = 0; i < list->n; i++) {
        free(list->daemons[i].url);
        free(list->daemons[i].models);
    }
    free(list->daemons);
    *list = (struct run_list){0};
}
