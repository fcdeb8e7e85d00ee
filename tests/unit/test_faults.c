/* test_faults.c - failing disks, databases and memory. Every n-th file call, every n-th write of
 * SQLite and every n-th allocation fails once in each scenario: the error must name the operation
 * and the file, no incomplete file may have a final name, and the next run must succeed.
 * AddressSanitizer finds leaks. */
#include "core/base/file.h"
#include "core/base/mem.h"
#include "core/formats/model_file.h"
#include "core/formats/quantize/quantize.h"
#include "registry/hub_int.h"
#include "registry/registry_int.h"
#include "registry/responses.h"
#include "tests/support/gguf_make.h"
#include "tests/unit/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RUNS_MAX = 20000, NOW = 1700000000, BODY_BYTES = 300000 };

static char folder[64];

/* A path in the test's folder; one of a few static buffers. */
static const char *at(const char *name) {
    static char paths[8][160];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text) {
    FILE *f = fopen(at(name), "wb");
    CHECK(f && fwrite(text, 1, strlen(text), f) == strlen(text));
    if (f) fclose(f);
}

static bool is_there(const char *name) {
    return access(at(name), F_OK) == 0;
}

static bool holds(const char *name, const char *text) {
    char have[64] = "";
    FILE *f = fopen(at(name), "rb");
    if (!f) return false;
    size_t n = fread(have, 1, sizeof have - 1, f);
    fclose(f);
    return n == strlen(text) && memcmp(have, text, n) == 0;
}

struct scenario {
    void (*prepare)(void); /* NULL: nothing */
    int (*run)(err *e);
    void (*check)(bool done); /* checks the state after a run that succeeded, or failed */
};

/* Makes every file call of run fail with errno why, one in each run; why 0: it transfers one
 * byte. */
static void fail_file_calls(const struct scenario *s, int why) {
    uint64_t n = 1;
    for (bool reached = true; reached && n < RUNS_MAX; n++) {
        err e = {0};
        if (s->prepare) s->prepare();
        file_fail_at(n, why);
        int rc = s->run(&e);
        reached = file_fail_at(0, 0) == 0;
        if (!reached || !why) CHECK_MSG(rc == 0, "call %d: %s", (int)n, e.msg);
        if (rc)
            CHECK_MSG(rc == ERR_IO && e.code == ERR_IO && strstr(e.msg, strerror(why)) &&
                          strstr(e.msg, folder),
                      "call %d: %d %s", (int)n, rc, e.msg);
        s->check(rc == 0);
    }
    CHECK(n > 2 && n < RUNS_MAX);
}

static void fail_files(const struct scenario *s) {
    fail_file_calls(s, EIO);
    fail_file_calls(s, ENOSPC);
    fail_file_calls(s, 0);
}

/* Makes every allocation of this thread fail, one in each run. */
static void fail_allocations(const struct scenario *s) {
    uint64_t n = 1, n_failed = 0;
    for (bool reached = true; reached && n < RUNS_MAX; n++) {
        err e = {0};
        if (s->prepare) s->prepare();
        mem_fail_at(n);
        int rc = s->run(&e);
        reached = mem_fail_at(0) == 0;
        if (!reached) CHECK_MSG(rc == 0, "allocation %d: %s", (int)n, e.msg);
        if (rc)
            CHECK_MSG(rc == ERR_NOMEM && e.code == rc && e.msg[0], "%d: %d %s", (int)n, rc, e.msg);
        n_failed += rc != 0;
        if (s->check) s->check(rc == 0);
    }
    CHECK(n_failed && n < RUNS_MAX);
}

/* ---- files of models: written ---- */

static void old_result(void) {
    write_file("out.gguf", "an older result");
}

static void check_result(bool done) {
    gguf *g = NULL;
    err e;
    CHECK(!is_there("out.gguf.tmp"));
    if (!done) {
        CHECK(holds("out.gguf", "an older result"));
        return;
    }
    int rc = gguf_open(at("out.gguf"), 0, &g, &e);
    CHECK_MSG(rc == 0, "%s", e.msg);
    gguf_close(g);
}

static int write_gguf(err *e) {
    static uint8_t values[4096];
    const gguf_tensor t = {.name = {"blk.0.x", 7},
                           .type = 0,
                           .n_dims = 1,
                           .dims = {sizeof values / 4},
                           .n_elems = sizeof values / 4,
                           .bytes = sizeof values,
                           .data = values};
    gguf_writer *w = gguf_writer_new();
    int rc = w ? gguf_writer_set_str(w, "general.architecture", "llama", e) : err_no_memory(e);
    if (!rc) rc = gguf_writer_add_tensor(w, &t, e);
    if (!rc) rc = gguf_writer_finish(w, at("out.gguf"), e);
    gguf_writer_free(w);
    return rc;
}

static void test_gguf_write(void) {
    const struct scenario s = {old_result, write_gguf, check_result};
    fail_files(&s);
    fail_allocations(&s);
}

static int quantize(uint32_t n_threads, err *e) {
    const struct quantize_options options = {.type = "Q8_0"};
    const struct quantize_output output = {
        .path = at("out.gguf"), .overwrite = true, .n_threads = n_threads};
    quantize_plan *plan = NULL;
    gguf *src = NULL;
    int rc = model_file_open(at("model.gguf"), 0, &src, e);
    if (!rc) rc = quantize_plan_new(src, &options, &plan, e);
    if (!rc) rc = quantize_run(plan, &output, e);
    quantize_plan_free(plan);
    gguf_close(src);
    return rc;
}

static int quantize_on_two(err *e) {
    return quantize(2, e);
}

static int quantize_on_one(err *e) {
    return quantize(1, e);
}

static void test_quantize(void) {
    fail_files(&(struct scenario){old_result, quantize_on_two, check_result});
    fail_allocations(&(struct scenario){old_result, quantize_on_one, check_result});
}

/* ---- files of models: opened ---- */

static int open_model(const char *path, err *e) {
    gguf *g;
    int rc = model_file_open(path, 0, &g, e);
    if (rc) CHECK(g == NULL);
    gguf_close(g);
    return rc;
}

static int open_gguf(err *e) {
    return open_model(at("model.gguf"), e);
}

static int open_parts(err *e) {
    return open_model(at("split-00001-of-00002.gguf"), e);
}

static int open_folder(err *e) {
    return open_model("tests/golden/arch/gemma2/hf", e);
}

static int open_folder_spm(err *e) {
    return open_model("tests/golden/arch/llama2/hf", e);
}

static void test_open(void) {
    int (*const opens[])(err * e) = {open_gguf, open_parts, open_folder, open_folder_spm};
    for (size_t i = 0; i < sizeof opens / sizeof opens[0]; i++)
        fail_allocations(&(struct scenario){.run = opens[i]});
}

/* Every file that opening touches: its error names it. */
static void test_open_files(void) {
    int (*const opens[])(err * e) = {open_gguf, open_parts, open_folder, open_folder_spm};
    for (size_t i = 0; i < sizeof opens / sizeof opens[0]; i++) {
        uint64_t n = 1, n_failed = 0;
        for (bool reached = true; reached && n < 1000; n++) {
            err e = {0};
            file_fail_at(n, EIO);
            int rc = opens[i](&e);
            reached = file_fail_at(0, 0) == 0;
            CHECK_MSG(reached ? rc == ERR_IO && strstr(e.msg, strerror(EIO)) : rc == 0,
                      "%zu %d: %s", i, (int)n, e.msg);
            CHECK_MSG(!rc || strstr(e.msg, ".gguf") || strstr(e.msg, "/hf/"), "%s", e.msg);
            n_failed += rc != 0;
        }
        CHECK(n_failed > 2);
    }
}

/* ---- downloads ---- */

static struct {
    int listener;
    struct sockaddr_in address;
    char body[BODY_BYTES];
} server;

/* Answers each connection with the whole body. */
static void *serve(void *arg) {
    int fd;
    (void)arg;
    while ((fd = accept(server.listener, NULL, NULL)) >= 0) {
        char request[4096] = "";
        size_t have = 0;
        while (have + 1 < sizeof request && !strstr(request, "\r\n\r\n")) {
            ssize_t n = read(fd, request + have, sizeof request - 1 - have);
            if (n <= 0) break;
            have += (size_t)n;
        }
        dprintf(fd, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n",
                BODY_BYTES);
        for (size_t sent = 0; sent < BODY_BYTES;) {
            ssize_t n = write(fd, server.body + sent, BODY_BYTES - sent);
            if (n <= 0) break;
            sent += (size_t)n;
        }
        close(fd);
    }
    return NULL;
}

static int no_progress(void *arg, uint64_t done, uint64_t total) {
    (void)arg, (void)done, (void)total;
    return 0;
}

static void say_nothing(void *arg, const char *line) {
    (void)arg, (void)line;
}

static int download(err *e) {
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", ntohs(server.address.sin_port));
    const struct hub_options o = {
        .endpoint = endpoint, .stall_s = 20, .progress = no_progress, .say = say_nothing};
    struct hub_file file = {.name = "f", .size_bytes = BODY_BYTES, .lfs = true, .known = true};
    struct registry_hash hash;
    registry_hash_init(&hash);
    registry_hash_add(&hash, server.body, BODY_BYTES);
    registry_hash_hex(&hash, file.hash);
    struct hub_download d = {.options = &o,
                             .file = &file,
                             .url_path = "/f",
                             .path = at("file"),
                             .total_bytes = BODY_BYTES};
    int rc = hub_http_open(&o, &d.http, e);
    if (!rc) rc = hub_file_get(&d, e);
    hub_http_close(d.http);
    return rc;
}

/* A part of an earlier download exists: it is read and continued. */
static void earlier_part(void) {
    unlink(at("file"));
    unlink(at("file.part"));
    unlink(at("file.part.id"));
}

/* After a failure there is no file, or the whole one if only its folder could not be synced. */
static void check_download(bool done) {
    static char have[BODY_BYTES];
    if (!done && !is_there("file")) return;
    FILE *f = fopen(at("file"), "rb");
    CHECK(f && fread(have, 1, sizeof have, f) == sizeof have && fgetc(f) == EOF);
    if (f) fclose(f);
    CHECK(memcmp(have, server.body, sizeof have) == 0);
    CHECK(!is_there("file.part") && !is_there("file.part.id"));
}

/* After any failure the next run completes the file. */
static int download_twice(err *e) {
    int rc = download(e);
    uint64_t left = file_fail_at(0, 0);
    if (rc) {
        err again = {0};
        check_download(false);
        CHECK_MSG(download(&again) == 0, "%s, then %s", e->msg, again.msg);
        check_download(true);
        unlink(at("file"));
    }
    file_fail_at(left, EIO); /* for fail_file_calls to read */
    return rc;
}

static void test_download(void) {
    socklen_t n = sizeof server.address;
    pthread_t thread;
    for (size_t i = 0; i < BODY_BYTES; i++)
        server.body[i] = (char)(i * 31 + i / 251);
    server.address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    server.listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(server.listener >= 0 && !bind(server.listener, (struct sockaddr *)&server.address, n) &&
          !listen(server.listener, 8) &&
          !getsockname(server.listener, (struct sockaddr *)&server.address, &n));
    CHECK(pthread_create(&thread, NULL, serve, NULL) == 0);
    fail_file_calls(&(struct scenario){earlier_part, download_twice, check_download}, EIO);
    fail_file_calls(&(struct scenario){earlier_part, download_twice, check_download}, ENOSPC);
    fail_file_calls(&(struct scenario){earlier_part, download, check_download}, 0);
    fail_allocations(&(struct scenario){earlier_part, download, check_download});
    shutdown(server.listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(server.listener);
}

/* ---- models add ---- */

static void fresh_database(void) {
    unlink(at("r.db"));
    unlink(at("r.db-wal"));
    unlink(at("r.db-shm"));
    unlink(at("r.db-journal"));
}

static int add_path(const char *path, const char *name, err *e) {
    const char *alias = "other";
    const struct registry_add add = {
        .path = path, .name = name, .aliases = &alias, .n_aliases = *name == 'm'};
    struct registry_model m;
    registry *r;
    int rc = registry_open(at("r.db"), &r, e);
    if (!rc) {
        rc = registry_add(r, &add, &m, e);
        if (!rc) registry_model_fini(&m);
    }
    registry_close(r);
    return rc;
}

static int add_model(err *e) {
    return add_path(at("model.gguf"), "m", e);
}

static int add_split(err *e) {
    return add_path(at("split-00001-of-00002.gguf"), "m", e);
}

/* The whole row, or none. */
static void check_registry(bool done) {
    struct registry_model *models = NULL;
    registry *r;
    size_t n = 0;
    err e;
    int rc = registry_open(at("r.db"), &r, &e);
    if (!rc) rc = registry_list(r, &models, &n, &e);
    CHECK_MSG(rc == 0 && n == (done ? 1 : 0), "%zu rows: %s", n, rc ? e.msg : "");
    if (n) CHECK(models[0].n_aliases == 1 && strlen(models[0].sha256) == 64);
    registry_models_free(models, n);
    registry_close(r);
}

static void test_models_add(void) {
    fail_files(&(struct scenario){fresh_database, add_model, check_registry});
    fail_files(&(struct scenario){fresh_database, add_split, check_registry});
    fail_allocations(&(struct scenario){fresh_database, add_model, check_registry});
}

/* ---- SQLite's own writes ---- */

/* The default file system of SQLite with writes and syncs that fail: the n-th of them. */
static struct {
    sqlite3_vfs vfs;
    int (*open)(sqlite3_vfs *, const char *, sqlite3_file *, int, int *);
    const sqlite3_io_methods *whole[8];
    sqlite3_io_methods failing[8];
    int n_kinds, n_left, code; /* n_left 0: none fails */
} disk;

static const sqlite3_io_methods *methods_of(const sqlite3_file *f) {
    for (int i = 0; i < disk.n_kinds; i++)
        if (f->pMethods == &disk.failing[i]) return disk.whole[i];
    return f->pMethods;
}

static bool disk_fails(void) {
    return disk.n_left && --disk.n_left == 0;
}

static int disk_write(sqlite3_file *f, const void *data, int n, sqlite3_int64 offset) {
    return disk_fails() ? disk.code : methods_of(f)->xWrite(f, data, n, offset);
}

static int disk_sync(sqlite3_file *f, int flags) {
    return disk_fails() ? SQLITE_IOERR_FSYNC : methods_of(f)->xSync(f, flags);
}

static int disk_truncate(sqlite3_file *f, sqlite3_int64 n) {
    return disk_fails() ? SQLITE_IOERR_TRUNCATE : methods_of(f)->xTruncate(f, n);
}

static int disk_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *got) {
    int rc = disk.open(vfs, name, f, flags, got), i = 0;
    if (rc != SQLITE_OK || !f->pMethods) return rc;
    while (i < disk.n_kinds && disk.whole[i] != f->pMethods)
        i++;
    if (i == 8) return SQLITE_CANTOPEN;
    if (i == disk.n_kinds) {
        disk.n_kinds++;
        disk.whole[i] = f->pMethods;
        disk.failing[i] = *f->pMethods;
        disk.failing[i].xWrite = disk_write;
        disk.failing[i].xSync = disk_sync;
        disk.failing[i].xTruncate = disk_truncate;
    }
    f->pMethods = &disk.failing[i];
    return rc;
}

static int store_response(err *e) {
    static char body[20000];
    const struct responses_config c = {at("r.db"), 86400, 1 << 20};
    const char *item = "item_1";
    memset(body, 'x', sizeof body - 1);
    const struct responses_row row = {
        .id = "resp_1", .body = body, .items = "[]", .item_ids = &item, .n_items = 1};
    responses *s;
    int rc = responses_open(&c, NOW, &s, e);
    if (!rc) rc = responses_put(s, &row, NOW, e);
    responses_close(s);
    return rc;
}

static void check_response(bool done) {
    const struct responses_config c = {at("r.db"), 86400, 1 << 20};
    struct responses_entry entry;
    responses *s;
    err e = {0};
    int rc = responses_open(&c, NOW, &s, &e);
    CHECK_MSG(rc == 0, "%s", e.msg);
    if (rc) return;
    rc = responses_get(s, "resp_1", NULL, NOW, &entry, &e);
    CHECK_MSG(rc == (done ? 0 : ERR_NOT_FOUND), "%d %s", rc, e.msg);
    if (!rc) responses_entry_fini(&entry);
    rc = responses_find_item(s, "item_1", NULL, NOW, &entry, &e);
    CHECK_MSG(rc == (done ? 0 : ERR_NOT_FOUND), "%d %s", rc, e.msg);
    if (!rc) responses_entry_fini(&entry);
    responses_close(s);
}

static void fail_database(int (*run)(err *e), void (*check)(bool done), int code) {
    int n = 1, n_failed = 0;
    for (bool reached = true; reached && n < RUNS_MAX; n++) {
        err e = {0};
        fresh_database();
        disk.code = code;
        disk.n_left = n;
        int rc = run(&e);
        reached = disk.n_left == 0;
        disk.n_left = 0;
        if (!reached) CHECK_MSG(rc == 0, "write %d: %s", n, e.msg);
        if (rc)
            CHECK_MSG(rc == ERR_IO && strstr(e.msg, at("r.db")), "write %d: %d %s", n, rc, e.msg);
        if (rc && strstr(e.msg, "full")) CHECK(strstr(e.msg, "free some space"));
        n_failed += rc != 0;
        check(rc == 0);
    }
    CHECK(n_failed > 3 && n < RUNS_MAX);
}

static void test_database_disk(void) {
    sqlite3_vfs *whole = sqlite3_vfs_find(NULL);
    disk.vfs = *whole;
    disk.vfs.zName = "failing";
    disk.open = whole->xOpen;
    disk.vfs.xOpen = disk_open;
    CHECK(sqlite3_vfs_register(&disk.vfs, 1) == SQLITE_OK);
    fail_database(add_model, check_registry, SQLITE_FULL);
    fail_database(add_model, check_registry, SQLITE_IOERR_WRITE);
    fail_database(store_response, check_response, SQLITE_FULL);
    fail_database(store_response, check_response, SQLITE_IOERR_WRITE);
    sqlite3_vfs_unregister(&disk.vfs);
}

/* A response is not stored either: test_responses_store tests that, with a shorter wait. */
static void test_database_busy(void) {
    sqlite3 *db;
    err e = {0};
    fresh_database();
    CHECK(add_model(&e) == 0);
    CHECK(sqlite3_open(at("r.db"), &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK);
    CHECK(add_path(at("split-00001-of-00002.gguf"), "second", &e) == ERR_IO);
    CHECK_MSG(strstr(e.msg, at("r.db")) && strstr(e.msg, "try again"), "%s", e.msg);
    CHECK(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
    check_registry(true);
}

int main(void) {
    const struct tiny_llama tiny = {.seed = 7, .n_layers = 1};
    err e;
    /* Thousands of syncs: in a folder in memory, if the system has one. */
    snprintf(folder, sizeof folder, "%s/test_faults.XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(folder)) return 1;
    CHECK_MSG(gguf_make_tiny_llama(at("model.gguf"), &tiny, &e) == 0, "%s", e.msg);
    CHECK_MSG(gguf_make_split(at("model.gguf"), at("split"), 2, &e) == 0, "%s", e.msg);
    RUN(test_gguf_write);
    RUN(test_quantize);
    RUN(test_open);
    RUN(test_open_files);
    RUN(test_download);
    RUN(test_models_add);
    RUN(test_database_disk);
    RUN(test_database_busy);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command)) return 1;
    return check_done();
}
