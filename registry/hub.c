/* hub.c - a pull: the request, the listing, the folder and its lock, space on the disk, then each
 * file. */
#include "registry/hub.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "registry/hub_int.h"
#include "registry/registry_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum {
    LISTING_MAX_BYTES = 64 << 20,
    PATH_MAX_BYTES = 4096,
    REPO_PART_MAX = 96,
    REVISION_MAX = 256,
    WAIT_MS = 200
};

struct hub_model {
    struct hub_options options;
    char *repo; /* "ORG/REPO" */
    hub_http *http;
    struct hub_listing listing;
    struct hub_choice choice;
    char *folder, *path;
    uint64_t size_bytes;
};

/* ---- the request ---- */

static bool is_repo_part(const char *text, size_t n) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                  "._-";
    return n > 0 && n <= REPO_PART_MAX && strspn(text, allowed) >= n && text[0] != '.';
}

/* Splits "hf:ORG/REPO:FILE". *file points into what; NULL: none. */
static int read_what(const char *what, char **repo, const char **file, err *e) {
    const char *text = what + 3, *slash = strchr(what, '/');
    const char *colon = slash ? strchr(slash, ':') : NULL;
    if (strncmp(what, "hf:", 3) == 0 && slash) {
        const char *end = colon ? colon : slash + strlen(slash);
        if (is_repo_part(text, (size_t)(slash - text)) &&
            is_repo_part(slash + 1, (size_t)(end - slash - 1)) && (!colon || colon[1])) {
            *file = colon ? colon + 1 : NULL;
            *repo = mem_strndup(text, (size_t)(end - text));
            return *repo ? 0 : err_no_memory(e);
        }
    }
    return err_set(e, ERR_INVALID, "expected hf:ORG/REPO or hf:ORG/REPO:FILE, not \"%.100s\"",
                   what);
}

int hub_check(const char *what, err *e) {
    const char *file;
    char *repo = NULL;
    int rc = read_what(what, &repo, &file, e);
    free(repo);
    return rc;
}

/* Escapes all except unreserved characters, and '/' if keep_slash. */
static void add_escaped(str *s, const char *text, bool keep_slash) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "._-~";
    for (; *text; text++)
        if (strchr(plain, *text) || (keep_slash && *text == '/'))
            str_add_char(s, *text);
        else
            str_addf(s, "%%%02X", (unsigned char)*text);
}

/* ---- the listing ---- */

struct listing_read {
    const struct hub_options *options;
    str text;
};

static int on_listing(void *arg, const struct hub_reply *reply, const void *bytes, size_t n,
                      err *e) {
    struct listing_read *l = arg;
    (void)reply;
    str_add_n(&l->text, bytes, n);
    return l->text.failed ? err_set(e, ERR_NOMEM, "the listing is too long") : 0;
}

static int on_listing_tick(void *arg) {
    const struct hub_options *o = ((struct listing_read *)arg)->options;
    return o->progress(o->arg, 0, 0);
}

static int read_listing(hub_model *m, const char *revision, err *e) {
    struct listing_read l = {.options = &m->options};
    struct hub_retry retry = {0};
    struct hub_reply reply;
    str path;
    str_init(&l.text, LISTING_MAX_BYTES);
    str_init(&path, PATH_MAX_BYTES);
    str_addf(&path, "/api/models/%s/revision/", m->repo);
    add_escaped(&path, revision, false);
    str_add(&path, "?blobs=true");
    const struct hub_request rq = {
        .path = str_cstr(&path), .body = on_listing, .tick = on_listing_tick, .arg = &l};
    int rc;
    do {
        str_clear(&l.text);
        rc = hub_http_get(m->http, &rq, &reply, e);
        if (!rc) break;
        rc = hub_http_pause(m->http, &rq, &reply, &retry, e);
    } while (!rc);
    if (!rc) rc = hub_listing_parse(str_cstr(&l.text), l.text.len, &m->listing, e);
    str_fini(&l.text);
    str_fini(&path);
    return rc;
}

/* ---- the plan ---- */

static int make_path(const char *folder, const char *name, char **path, err *e) {
    str s;
    str_init(&s, PATH_MAX_BYTES);
    str_addf(&s, "%s/%s", folder, name);
    *path = str_take(&s);
    str_fini(&s);
    return *path ? 0 : err_set(e, ERR_INVALID, "the path of %.200s is too long", name);
}

static int make_plan(hub_model *m, const char *file, err *e) {
    int rc = hub_listing_choose(&m->listing, file, &m->options, &m->choice, e);
    if (!rc) rc = make_path(m->options.folder, m->repo, &m->folder, e);
    if (rc) return rc;
    for (size_t i = 0; i < m->choice.n; i++)
        if (!mem_add(m->size_bytes, m->choice.files[i]->size_bytes, &m->size_bytes))
            return err_set(e, ERR_FORMAT, "the listing's sizes add up to more than 2^64 bytes");
    if (!m->choice.folder) return make_path(m->folder, m->choice.files[0]->name, &m->path, e);
    m->path = mem_strdup(m->folder);
    return m->path ? 0 : err_no_memory(e);
}

int hub_open(const struct hub_options *o, const char *what, const char *revision, hub_model **out,
             err *e) {
    const char *file = NULL;
    err own;
    if (!e) e = &own;
    *out = NULL;
    size_t n = strlen(revision);
    if (n == 0 || n > REVISION_MAX || strstr(revision, ".."))
        return err_set_param(e, ERR_INVALID, "revision", "\"%.64s\" is not the name of a revision",
                             revision);
    hub_model *m = mem_new(1, sizeof *m);
    if (!m) return err_no_memory(e);
    m->options = *o;
    int rc = read_what(what, &m->repo, &file, e);
    if (!rc) rc = hub_http_open(&m->options, &m->http, e);
    if (!rc) {
        rc = read_listing(m, revision, e);
        if (!rc) rc = make_plan(m, file, e);
        if (rc) err_prefix(e, "%s: ", m->repo);
    }
    if (rc) {
        hub_close(m);
        return rc;
    }
    *out = m;
    return 0;
}

void hub_close(hub_model *m) {
    if (!m) return;
    hub_http_close(m->http);
    hub_listing_fini(&m->listing);
    free(m->choice.files);
    free(m->repo);
    free(m->folder);
    free(m->path);
    free(m);
}

const char *hub_path(const hub_model *m) {
    return m->path;
}

uint64_t hub_size_bytes(const hub_model *m) {
    return m->size_bytes;
}

const char *hub_sha256(const hub_model *m) {
    const struct hub_file *largest = NULL;
    for (size_t i = 0; i < m->choice.n; i++)
        if (!largest || m->choice.files[i]->size_bytes > largest->size_bytes)
            largest = m->choice.files[i];
    return largest && largest->known && largest->lfs ? largest->hash : "";
}

/* ---- the download ---- */

/* Allows one pull at a time in a folder; closing the descriptor releases the lock. */
static int lock_folder(hub_model *m, int *fd, err *e) {
    const struct hub_options *o = &m->options;
    const struct timespec pause = {.tv_nsec = WAIT_MS * 1000000L};
    *fd = open(m->folder, O_RDONLY | O_CLOEXEC);
    if (*fd < 0) return err_set(e, ERR_IO, "%s: %s", m->folder, strerror(errno));
    for (bool said = false; flock(*fd, LOCK_EX | LOCK_NB); said = true) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_set(e, ERR_IO, "cannot lock %s: %s", m->folder, strerror(errno));
        if (!said) o->say(o->arg, "another pull into the same folder is running: waiting for it");
        if (o->progress(o->arg, 0, m->size_bytes)) return err_set(e, ERR_STOPPING, "stopped");
        nanosleep(&pause, NULL);
    }
    return 0;
}

static int check_room(const hub_model *m, uint64_t missing, err *e) {
    struct statvfs fs;
    if (statvfs(m->folder, &fs)) return 0; /* then the write fails */
    uint64_t room;
    if (!mem_mul(fs.f_bavail, fs.f_frsize, &room) || missing <= room) return 0;
    return err_set(
        e, ERR_IO,
        "%s: %llu MiB are free, but %llu MiB are still to be downloaded: free some space",
        m->folder, (unsigned long long)(room >> 20), (unsigned long long)(missing >> 20));
}

static int fetch_one(hub_model *m, const struct hub_file *f, const char *path, uint64_t done,
                     err *e) {
    str url;
    str_init(&url, PATH_MAX_BYTES * 3);
    str_addf(&url, "/%s/resolve/%s/", m->repo, m->listing.commit);
    add_escaped(&url, f->name, true);
    const struct hub_download d = {.http = m->http,
                                   .options = &m->options,
                                   .file = f,
                                   .url_path = str_cstr(&url),
                                   .path = path,
                                   .done_before = done,
                                   .total_bytes = m->size_bytes};
    int rc = hub_file_get(&d, e);
    str_fini(&url);
    return rc;
}

static int fetch_all(hub_model *m, err *e) {
    uint64_t missing = m->size_bytes, done = 0;
    char *path;
    int rc = 0;
    for (size_t i = 0; i < m->choice.n && !rc; i++) {
        rc = make_path(m->folder, m->choice.files[i]->name, &path, e);
        if (rc) break;
        missing -= hub_file_have_bytes(m->choice.files[i], path);
        rc = registry_make_folders(path, 0777, e);
        free(path);
    }
    if (!rc) rc = check_room(m, missing, e);
    for (size_t i = 0; i < m->choice.n && !rc; i++) {
        rc = make_path(m->folder, m->choice.files[i]->name, &path, e);
        if (rc) break;
        rc = fetch_one(m, m->choice.files[i], path, done, e);
        free(path);
        done += m->choice.files[i]->size_bytes;
    }
    return rc;
}

/* Reports files of another revision, which would be read together with this one. */
static void report_other_files(const hub_model *m) {
    struct registry_files files;
    if (!m->choice.folder || registry_files_list(m->folder, &files, NULL)) return;
    for (size_t i = 0; i < files.n; i++) {
        const char *name = registry_file_name(&files.files[i]);
        size_t k = 0;
        while (k < m->choice.n && strcmp(m->choice.files[k]->name, name) != 0)
            k++;
        if (k < m->choice.n) continue;
        char line[PATH_MAX_BYTES];
        snprintf(line, sizeof line,
                 "%s is not part of this revision: remove it if it belongs to another one",
                 files.files[i].path);
        m->options.say(m->options.arg, line);
    }
    registry_files_fini(&files);
}

int hub_fetch(hub_model *m, err *e) {
    char *inside;
    err own;
    int fd = -1;
    if (!e) e = &own;
    int rc = make_path(m->folder, "x", &inside, e);
    if (rc) return rc;
    rc = registry_make_folders(inside, 0777, e);
    free(inside);
    if (!rc) rc = lock_folder(m, &fd, e);
    if (!rc) rc = fetch_all(m, e);
    if (!rc) report_other_files(m);
    if (rc) err_prefix(e, "%s: ", m->repo);
    if (fd >= 0) close(fd);
    return rc;
}
