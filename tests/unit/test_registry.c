/* test_registry.c - the catalogue: names, files that change, two processes, schema versions, files
 * that are not a registry. The test creates its models. */
#include "core/base/mem.h"
#include "registry/registry.h"
#include "tests/support/gguf_make.h"
#include "tests/support/rng.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <nettle/version.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_WORKERS = 2, N_ROUNDS = 12 };

static char folder[PATH_MAX];

/* A path in the test's folder; one of a few static buffers. */
static const char *at(const char *name) {
    static char paths[8][PATH_MAX + 256];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void make_model(const char *name, uint64_t seed) {
    const struct tiny_llama tiny = {.seed = seed, .weight_type = 8, .n_layers = 1};
    err e;
    CHECK_MSG(gguf_make_tiny_llama(at(name), &tiny, &e) == 0, "%s", e.msg);
}

static registry *open_registry(const char *name) {
    registry *r = NULL;
    err e;
    int rc = registry_open(at(name), &r, &e);
    CHECK_MSG(rc == 0, "%s", e.msg);
    return r;
}

static int add(registry *r, const char *file, const char *name, const char *alias, err *e) {
    struct registry_model m;
    const struct registry_add request = {
        .path = at(file), .name = name, .aliases = &alias, .n_aliases = alias != NULL};
    int rc = registry_add(r, &request, &m, e);
    if (!rc) registry_model_fini(&m);
    return rc;
}

static void overwrite(const char *file, long offset, const void *bytes, size_t n) {
    int fd = open(at(file), O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, bytes, n, offset) == (ssize_t)n);
    close(fd);
}

static void set_mtime(const char *file, int64_t mtime_ns) {
    const struct timespec t[2] = {
        {.tv_sec = mtime_ns / 1000000000, .tv_nsec = mtime_ns % 1000000000},
        {.tv_sec = mtime_ns / 1000000000, .tv_nsec = mtime_ns % 1000000000}};
    CHECK(utimensat(AT_FDCWD, at(file), t, 0) == 0);
}

/* Executes statements on the database without the registry's knowledge. */
static void sql(const char *name, const char *statements) {
    sqlite3 *db;
    CHECK(sqlite3_open(at(name), &db) == SQLITE_OK);
    int rc = sqlite3_exec(db, statements, NULL, NULL, NULL);
    CHECK_MSG(rc == SQLITE_OK, "%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

static int64_t query(const char *name, const char *statement) {
    sqlite3 *db;
    sqlite3_stmt *st = NULL;
    int64_t value = -1;
    CHECK(sqlite3_open(at(name), &db) == SQLITE_OK);
    if (sqlite3_prepare_v2(db, statement, -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        value = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return value;
}

static void hash_file(const char *file, char hex[65]) {
    struct sha256_ctx ctx;
    uint8_t digest[SHA256_DIGEST_SIZE], byte;
    FILE *f = fopen(at(file), "rb");
    CHECK(f != NULL);
    sha256_init(&ctx);
    while (f && fread(&byte, 1, 1, f) == 1)
        sha256_update(&ctx, 1, &byte);
    if (f) fclose(f);
#if NETTLE_VERSION_MAJOR >= 4
    sha256_digest(&ctx, digest);
#else
    sha256_digest(&ctx, sizeof digest, digest);
#endif
    for (int i = 0; i < SHA256_DIGEST_SIZE; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

static void count_progress(void *arg, uint64_t done, uint64_t total) {
    uint64_t *last = arg;
    CHECK(done > *last && done <= total);
    *last = done;
}

static void test_add_find_list(void) {
    registry *r = open_registry("sub/folder/a.db");
    static const char *const aliases[] = {"demo", "org/model:7b", "demo"};
    char hex[65];
    uint64_t progress = 0;
    struct registry_model m, *list;
    struct stat st;
    size_t n;
    err e;
    if (!r) return;
    CHECK(registry_list(r, &list, &n, &e) == 0 && n == 0 && list == NULL);
    CHECK(registry_find(r, "x", &m, &e) == ERR_NOT_FOUND && strstr(e.msg, "models add"));
    CHECK(stat(at("one.gguf"), &st) == 0);
    struct registry_add request = {.path = at("./sub/../one.gguf"),
                                   .aliases = aliases,
                                   .n_aliases = 3,
                                   .progress = count_progress,
                                   .progress_arg = &progress};
    CHECK_MSG(registry_add(r, &request, &m, &e) == 0, "%s", e.msg);
    hash_file("one.gguf", hex);
    CHECK_STR(m.name, "one");
    CHECK_STR(m.path, at("one.gguf"));
    CHECK_STR(m.format, "gguf");
    CHECK_STR(m.architecture, "llama");
    CHECK_STR(m.quantization, "Q8_0");
    CHECK_STR(m.sha256, hex);
    CHECK(m.n_aliases == 2 && m.context_length == 512 && m.n_params > 50000);
    CHECK(m.size_bytes == (uint64_t)st.st_size && progress == m.size_bytes);
    CHECK(m.added_s > 1600000000 && m.last_loaded_s == 0);
    registry_model_fini(&m);

    CHECK(registry_find(r, "org/model:7b", &m, &e) == 0);
    CHECK_STR(m.name, "one");
    CHECK(registry_touch_loaded(r, m.id, &e) == 0);
    registry_model_fini(&m);
    CHECK(registry_resolve(r, "demo", &m, &e) == 0 && m.last_loaded_s > 1600000000);
    registry_model_fini(&m);

    CHECK(add(r, "two.gguf", "a.two", "zwei", &e) == 0);
    CHECK(registry_list(r, &list, &n, &e) == 0 && n == 2);
    if (n == 2) {
        CHECK_STR(list[0].name, "a.two");
        CHECK_STR(list[1].name, "one");
        CHECK(list[0].n_aliases == 1 && list[1].n_aliases == 2);
    }
    registry_models_free(list, n);
    CHECK(registry_find(r, "three", &m, &e) == ERR_NOT_FOUND);
    CHECK_STR(e.msg, "no model is named three; registered: a.two, one");
    CHECK(registry_remove(r, "zwei", &e) == 0 && registry_remove(r, "a.two", &e) == ERR_NOT_FOUND);
    CHECK(registry_list(r, &list, &n, &e) == 0 && n == 1);
    registry_models_free(list, n);
    registry_close(r);
    CHECK(query("sub/folder/a.db", "SELECT count(*) FROM names") == 3);
    CHECK(stat(at("sub/folder"), &st) == 0 && (st.st_mode & 077) == 0);
}

static void test_names(void) {
    registry *r = open_registry("names.db");
    struct registry_model m;
    err e;
    if (!r) return;
    CHECK(add(r, "one.gguf", "one", "uno", &e) == 0);
    static const char *const bad[] = {"", "a b", "caf\xc3\xa9", "a\n", "a'b", "a*"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(add(r, "one.gguf", bad[i], NULL, &e) == ERR_INVALID);
        CHECK(add(r, "one.gguf", "fine", bad[i], &e) == ERR_INVALID);
    }
    char longest[98] = {0};
    memset(longest, 'n', 97);
    CHECK(add(r, "one.gguf", longest, NULL, &e) == ERR_INVALID);
    longest[96] = '\0';
    CHECK(add(r, "two.gguf", longest, NULL, &e) == 0);
    CHECK(registry_remove(r, longest, &e) == 0);

    CHECK(add(r, "two.gguf", "one", NULL, &e) == ERR_EXISTS && strstr(e.msg, "one.gguf"));
    CHECK(add(r, "two.gguf", "uno", NULL, &e) == ERR_EXISTS);
    CHECK_STR(e.msg, "the name uno is an alias of one");
    CHECK(add(r, "two.gguf", "two", "uno", &e) == ERR_EXISTS);
    CHECK(add(r, "two.gguf", "two", "one", &e) == ERR_EXISTS);
    CHECK(registry_find(r, "two", &m, &e) == ERR_NOT_FOUND);

    /* The same file and name: the row is updated, aliases are merged. */
    CHECK(add(r, "one.gguf", "one", "eins", &e) == 0);
    CHECK(add(r, "one.gguf", NULL, NULL, &e) == 0);
    CHECK(registry_find(r, "eins", &m, &e) == 0 && m.n_aliases == 2);
    registry_model_fini(&m);
    /* The same file under a second name is a second model. */
    CHECK(add(r, "one.gguf", "again", NULL, &e) == 0);
    registry_close(r);
    CHECK(query("names.db", "SELECT count(*) FROM models") == 2);

    r = open_registry("odd.db");
    CHECK(add(r, "odd name+.gguf", NULL, NULL, &e) == 0);
    CHECK(registry_find(r, "odd-name-", &m, &e) == 0);
    registry_model_fini(&m);
    registry_close(r);
}

/* The preset of a name, "" if it has none, "?" if there is no such name. */
static const char *preset_of(registry *r, const char *name, const char *model) {
    static char text[64];
    struct registry_name n;
    err e;
    int rc = registry_find_name(r, name, &n, &e);
    if (rc == ERR_NOT_FOUND) return "?";
    CHECK_MSG(rc == 0, "%s", e.msg);
    CHECK_STR(n.model, model);
    snprintf(text, sizeof text, "%s", n.preset ? n.preset : "");
    registry_name_fini(&n);
    return text;
}

static void test_presets(void) {
    registry *r = open_registry("presets.db");
    char name[32];
    err e;
    if (!r) return;
    CHECK(add(r, "one.gguf", "one", "uno", &e) == 0 && add(r, "two.gguf", "two", NULL, &e) == 0);
    CHECK(registry_add_alias(r, "uno", "kind", "{1}", &e) == 0);
    CHECK_STR(preset_of(r, "kind", "one"), "{1}");
    CHECK_STR(preset_of(r, "uno", "one"), "");
    CHECK_STR(preset_of(r, "one", "one"), "");
    CHECK_STR(preset_of(r, "unknown", ""), "?");
    registry_close(r);
    r = open_registry("presets.db");
    CHECK_STR(preset_of(r, "kind", "one"), "{1}");
    CHECK(registry_add_alias(r, "one", "kind", "{2}", &e) == 0);
    CHECK_STR(preset_of(r, "kind", "one"), "{2}");
    CHECK(registry_add_alias(r, "one", "kind", NULL, &e) == 0);
    CHECK_STR(preset_of(r, "kind", "one"), "");

    /* What fails writes neither the name nor the preset. */
    CHECK(registry_add_alias(r, "two", "kind", "{3}", &e) == ERR_EXISTS);
    CHECK(registry_add_alias(r, "one", "one", "{3}", &e) == ERR_INVALID && strstr(e.msg, "itself"));
    CHECK(registry_add_alias(r, "one", "one", NULL, &e) == 0);
    char *large = malloc(REGISTRY_PRESET_BYTES + 2);
    CHECK(large != NULL);
    if (large) {
        memset(large, 'x', REGISTRY_PRESET_BYTES + 1);
        large[REGISTRY_PRESET_BYTES + 1] = '\0';
        CHECK(registry_add_alias(r, "one", "large", large, &e) == ERR_INVALID);
        CHECK_MSG(strstr(e.msg, "1048577 bytes, more than 1048576"), "%s", e.msg);
        CHECK_STR(preset_of(r, "large", ""), "?");
        large[REGISTRY_PRESET_BYTES] = '\0';
        CHECK(registry_add_alias(r, "one", "large", large, &e) == 0);
    }
    free(large);

    /* Presets go with their name, and with the model. */
    CHECK(registry_add_alias(r, "one", "kind", "{4}", &e) == 0);
    CHECK(registry_remove_name(r, "kind", &e) == 0);
    CHECK_STR(preset_of(r, "kind", ""), "?");
    CHECK(add(r, "one.gguf", "one", "eins", &e) == 0);
    CHECK(query("presets.db", "SELECT count(*) FROM presets") == 1);
    for (int i = 3; i < 64; i++) {
        snprintf(name, sizeof name, "name-%d", i);
        CHECK(registry_add_alias(r, "one", name, "{}", &e) == 0);
    }
    CHECK(registry_add_alias(r, "one", "more", "{}", &e) == ERR_INVALID);
    CHECK_STR(e.msg, "a model has at most 64 other names: delete one of them first");
    CHECK(registry_add_alias(r, "one", "name-3", "{5}", &e) == 0);
    CHECK(registry_remove(r, "one", &e) == 0);
    CHECK(query("presets.db", "SELECT count(*) FROM presets") == 0);
    registry_close(r);
}

static void test_refused_files(void) {
    registry *r = open_registry("refused.db");
    err e;
    if (!r) return;
    CHECK(add(r, "nowhere.gguf", NULL, NULL, &e) == ERR_IO && strstr(e.msg, "nowhere.gguf"));
    CHECK(add(r, ".", NULL, NULL, &e) == ERR_INVALID);
    FILE *f = fopen(at("text.gguf"), "wb");
    if (f) fputs("not a model at all, but long enough to have a header", f);
    if (f) fclose(f);
    CHECK(add(r, "text.gguf", NULL, NULL, &e) == ERR_FORMAT && strstr(e.msg, "text.gguf"));
    CHECK(truncate(at("text.gguf"), 0) == 0);
    CHECK(add(r, "text.gguf", NULL, NULL, &e) < 0);
    make_model("cut.gguf", 9);
    CHECK(truncate(at("cut.gguf"), 4000) == 0);
    CHECK(add(r, "cut.gguf", NULL, NULL, &e) < 0 && strstr(e.msg, "cut.gguf"));
    registry_close(r);
    CHECK(query("refused.db", "SELECT count(*) FROM models") == 0);
}

static void test_changed_file(void) {
    registry *r = open_registry("changed.db");
    struct registry_model m, kept;
    err e;
    if (!r) return;
    make_model("mut.gguf", 3);
    CHECK(add(r, "mut.gguf", "mut", NULL, &e) == 0);
    CHECK(registry_find(r, "mut", &kept, &e) == 0);
    CHECK(registry_verify(r, &kept, NULL, NULL, &e) == 0);

    /* Only its time changed: refused until verify has found the same bytes. */
    set_mtime("mut.gguf", kept.mtime_ns - 1000000000);
    CHECK(registry_resolve(r, "mut", &m, &e) == ERR_CHANGED && strstr(e.msg, "verify"));
    CHECK(registry_verify(r, &kept, NULL, NULL, &e) == 0);
    CHECK(registry_resolve(r, "mut", &m, &e) == 0 && m.mtime_ns == kept.mtime_ns - 1000000000);
    registry_model_fini(&m);
    set_mtime("mut.gguf", kept.mtime_ns);
    CHECK(registry_find(r, "mut", &m, &e) == 0 && registry_verify(r, &m, NULL, NULL, &e) == 0);
    registry_model_fini(&m);

    /* Other bytes, same size and time: only the hash detects it. */
    overwrite("mut.gguf", (long)kept.size_bytes - 5, "\x55", 1);
    set_mtime("mut.gguf", kept.mtime_ns);
    CHECK(registry_resolve(r, "mut", &m, &e) == 0);
    registry_model_fini(&m);
    CHECK(registry_verify(r, &kept, NULL, NULL, &e) == ERR_CHANGED && strstr(e.msg, "SHA-256"));

    set_mtime("mut.gguf", kept.mtime_ns + 1000000000);
    CHECK(registry_resolve(r, "mut", &m, &e) == ERR_CHANGED && m.name == NULL);
    CHECK(registry_verify(r, &kept, NULL, NULL, &e) == ERR_CHANGED);

    set_mtime("mut.gguf", kept.mtime_ns);
    CHECK(truncate(at("mut.gguf"), (off_t)kept.size_bytes - 1) == 0);
    CHECK(registry_resolve(r, "mut", &m, &e) == ERR_CHANGED && strstr(e.msg, "bytes, had"));
    CHECK(registry_find(r, "mut", &m, &e) == 0);
    registry_model_fini(&m);

    CHECK(unlink(at("mut.gguf")) == 0);
    CHECK(registry_resolve(r, "mut", &m, &e) == ERR_IO && strstr(e.msg, "is missing"));
    CHECK(registry_verify(r, &kept, NULL, NULL, &e) == ERR_IO);
    CHECK(mkdir(at("mut.gguf"), 0700) == 0);
    CHECK(registry_resolve(r, "mut", &m, &e) == ERR_CHANGED);
    CHECK(rmdir(at("mut.gguf")) == 0);

    make_model("mut.gguf", 4);
    CHECK(add(r, "mut.gguf", NULL, NULL, &e) == 0);
    CHECK(registry_resolve(r, "mut", &m, &e) == 0 && strcmp(m.sha256, kept.sha256) != 0);
    registry_model_fini(&m);
    registry_model_fini(&kept);
    registry_close(r);
}

/* "NAME SIZE SHA256" of one of the test's files, as in the digest of several files. */
static void add_line(char *lines, size_t size, const char *dir, const char *name) {
    char path[256], hex[65];
    struct stat st = {0};
    snprintf(path, sizeof path, "%s%s", dir, name);
    CHECK(stat(at(path), &st) == 0);
    hash_file(path, hex);
    size_t n = strlen(lines);
    snprintf(lines + n, size - n, "%s %lld %s\n", name, (long long)st.st_size, hex);
}

static void hash_text(const char *text, char hex[65]) {
    FILE *f = fopen(at("lines.txt"), "wb");
    CHECK(f != NULL);
    if (f) fputs(text, f);
    if (f) fclose(f);
    hash_file("lines.txt", hex);
}

static int resolve(registry *r, const char *name, err *e) {
    struct registry_model m;
    int rc = registry_resolve(r, name, &m, e);
    if (!rc) registry_model_fini(&m);
    return rc;
}

static int verify(registry *r, const char *name, err *e) {
    struct registry_model m;
    int rc = registry_find(r, name, &m, e);
    if (rc) return rc;
    rc = registry_verify(r, &m, NULL, NULL, e);
    registry_model_fini(&m);
    return rc;
}

static int64_t mtime_of(const char *file) {
    struct stat st = {0};
    CHECK(stat(at(file), &st) == 0);
#ifdef __APPLE__
    return (int64_t)st.st_mtimespec.tv_sec * 1000000000 + st.st_mtimespec.tv_nsec;
#else
    return (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
#endif
}

/* In a model of several files each kind of change of each file is noticed; restored files pass. */
static void check_file_matters(registry *r, const char *name, const char *file) {
    err e;
    char byte = 0, other;
    int64_t mtime = mtime_of(file);
    CHECK_MSG(resolve(r, name, &e) == 0, "%s before %s: %s", name, file, e.msg);
    /* An older time, too: every file's time counts, not only the newest. */
    set_mtime(file, mtime - 3600 * INT64_C(1000000000));
    CHECK_MSG(resolve(r, name, &e) == ERR_CHANGED && strstr(e.msg, "verify"), "%s", file);
    CHECK_MSG(verify(r, name, &e) == 0 && resolve(r, name, &e) == 0, "%s: %s", file, e.msg);
    set_mtime(file, mtime);
    CHECK(verify(r, name, &e) == 0);

    int fd = open(at(file), O_RDWR);
    CHECK(fd >= 0 && pread(fd, &byte, 1, 20) == 1);
    other = (char)(byte ^ 1);
    CHECK(pwrite(fd, &other, 1, 20) == 1);
    set_mtime(file, mtime);
    CHECK_MSG(resolve(r, name, &e) == 0, "%s: %s", file, e.msg); /* only the hash detects that */
    CHECK_MSG(verify(r, name, &e) == ERR_CHANGED && strstr(e.msg, "SHA-256"), "%s", file);
    CHECK(pwrite(fd, &byte, 1, 20) == 1);
    struct stat st = {0};
    CHECK(fstat(fd, &st) == 0 && ftruncate(fd, st.st_size + 1) == 0);
    CHECK_MSG(resolve(r, name, &e) == ERR_CHANGED && strstr(e.msg, "bytes, had"), "%s", file);
    CHECK(ftruncate(fd, st.st_size) == 0);
    close(fd);
    set_mtime(file, mtime);
    CHECK_MSG(verify(r, name, &e) == 0 && resolve(r, name, &e) == 0, "%s: %s", file, e.msg);
}

static void test_split_gguf(void) {
    static const char *const parts[] = {"split-00001-of-00003.gguf", "split-00002-of-00003.gguf",
                                        "split-00003-of-00003.gguf"};
    registry *r = open_registry("split.db");
    struct registry_model m;
    char lines[1024] = "", hex[65];
    struct stat st;
    uint64_t size = 0;
    err e;
    CHECK_MSG(gguf_make_split(at("one.gguf"), at("split"), 3, &e) == 0, "%s", e.msg);
    CHECK(add(r, parts[1], NULL, NULL, &e) == ERR_INVALID &&
          strstr(e.msg, "is part 2: add the first part, split-00001-of-00003.gguf"));
    int rc = add(r, parts[0], NULL, NULL, &e);
    CHECK_MSG(rc == 0, "%s", e.msg);
    for (int i = 0; i < 3; i++) {
        add_line(lines, sizeof lines, "", parts[i]);
        CHECK(stat(at(parts[i]), &st) == 0);
        size += (uint64_t)st.st_size;
    }
    hash_text(lines, hex);
    CHECK(registry_find(r, "split", &m, &e) == 0);
    CHECK_STR(m.path, at(parts[0]));
    CHECK_STR(m.format, "gguf");
    CHECK_STR(m.sha256, hex);
    CHECK(m.size_bytes == size);
    registry_model_fini(&m);
    for (int i = 0; i < 3; i++)
        check_file_matters(r, "split", parts[i]);
    CHECK(rename(at(parts[2]), at("away")) == 0);
    CHECK(resolve(r, "split", &e) == ERR_IO && strstr(e.msg, "is missing"));
    CHECK(add(r, parts[0], "again", NULL, &e) == ERR_IO && strstr(e.msg, parts[2]));
    CHECK(rename(at("away"), at(parts[2])) == 0 && resolve(r, "split", &e) == 0);
    registry_close(r);
}

/* config.json, weights and tokenizer of a Hugging Face folder, and two files that are not part of
 * the model. */
static void test_folder(void) {
    static const char *const files[] = {"chat_template.jinja",    "config.json",
                                        "generation_config.json", "model.safetensors",
                                        "tokenizer.json",         "tokenizer_config.json"};
    enum { N_FILES = sizeof files / sizeof files[0] };
    registry *r = open_registry("folder.db");
    struct registry_model m;
    char lines[2048] = "", hex[65], command[PATH_MAX * 2], path[64];
    err e;
    snprintf(command, sizeof command, "cp -R tests/golden/arch/llama/hf %s && cd %s && touch %s",
             at("tiny-hf"), at("tiny-hf"), "README.md consolidated.safetensors");
    CHECK(system(command) == 0);
    CHECK_MSG(add(r, "tiny-hf/", NULL, "th", &e) == 0, "%s", e.msg);
    for (int i = 0; i < N_FILES; i++)
        add_line(lines, sizeof lines, "tiny-hf/", files[i]);
    hash_text(lines, hex);
    CHECK(registry_find(r, "tiny-hf", &m, &e) == 0);
    CHECK_STR(m.path, at("tiny-hf"));
    CHECK_STR(m.format, "safetensors");
    CHECK_STR(m.architecture, "llama");
    CHECK_STR(m.sha256, hex);
    registry_model_fini(&m);
    for (int i = 0; i < N_FILES; i++) {
        snprintf(path, sizeof path, "tiny-hf/%s", files[i]);
        check_file_matters(r, "tiny-hf", path);
    }
    set_mtime("tiny-hf/README.md", 1600000000 * INT64_C(1000000000));
    CHECK(unlink(at("tiny-hf/consolidated.safetensors")) == 0 && resolve(r, "th", &e) == 0);
    /* An additional file that would be read is a change, even an empty one. */
    FILE *f = fopen(at("tiny-hf/special_tokens_map.json"), "wb");
    if (f) fclose(f);
    CHECK(resolve(r, "th", &e) == ERR_CHANGED);
    CHECK(unlink(at("tiny-hf/special_tokens_map.json")) == 0 && resolve(r, "th", &e) == 0);
    CHECK(unlink(at("tiny-hf/tokenizer.json")) == 0 && resolve(r, "th", &e) == ERR_CHANGED);
    CHECK(add(r, "tiny-hf", NULL, NULL, &e) == ERR_UNSUPPORTED && strstr(e.msg, "tokenizer.json"));
    snprintf(command, sizeof command, "cp tests/data/tokenizer/tiktoken/tiktoken.model %s",
             at("tiny-hf"));
    CHECK(system(command) == 0);
    CHECK_MSG(add(r, "tiny-hf", NULL, NULL, &e) == 0, "%s", e.msg);
    check_file_matters(r, "tiny-hf", "tiny-hf/tiktoken.model");
    CHECK(unlink(at("tiny-hf/model.safetensors")) == 0);
    CHECK_MSG(resolve(r, "th", &e) == ERR_CHANGED, "%s", e.msg);
    CHECK_MSG(add(r, "tiny-hf", NULL, NULL, &e) < 0 && strstr(e.msg, "safetensors"), "%s", e.msg);
    registry_close(r);
}

/* One of several processes: adds, lists, removes its own names again and again. */
static int work(int worker) {
    registry *r;
    err e;
    for (int round = 0; round < N_ROUNDS; round++) {
        char name[32], alias[32];
        struct registry_model *list;
        size_t n;
        snprintf(name, sizeof name, "w%d-%d", worker, round);
        snprintf(alias, sizeof alias, "alias-%d-%d", worker, round);
        if (registry_open(at("shared.db"), &r, &e)) goto fail;
        if (add(r, "one.gguf", name, alias, &e)) goto fail;
        /* Both workers register this name; exactly one file may have it. */
        int rc = add(r, worker ? "one.gguf" : "two.gguf", "wanted", NULL, &e);
        if (rc && rc != ERR_EXISTS) goto fail;
        if (registry_list(r, &list, &n, &e)) goto fail;
        for (size_t i = 0; i < n; i++)
            if (!list[i].name || strlen(list[i].sha256) != 64) return 2;
        registry_models_free(list, n);
        if (round % 2 && registry_remove(r, name, &e)) goto fail;
        registry_close(r);
    }
    return 0;
fail:
    fprintf(stderr, "  worker %d: %s\n", worker, e.msg);
    return 1;
}

static void test_two_processes(void) {
    pid_t pids[N_WORKERS];
    fflush(stdout);
    for (int i = 0; i < N_WORKERS; i++) {
        pids[i] = fork();
        if (pids[i] == 0) _exit(work(i)); /* the database does not exist yet: both create it */
    }
    for (int i = 0; i < N_WORKERS; i++) {
        int status = -1;
        CHECK(pids[i] > 0 && waitpid(pids[i], &status, 0) == pids[i]);
        CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
    }
    CHECK(query("shared.db", "SELECT count(*) FROM models") == N_WORKERS * N_ROUNDS / 2 + 1);
    CHECK(query("shared.db", "SELECT count(*) FROM names") == N_WORKERS * N_ROUNDS + 1);
    CHECK(query("shared.db", "SELECT count(*) FROM pragma_foreign_key_check") == 0);
}

static void test_migrations(void) {
    registry *r;
    struct registry_model m;
    err e;
    r = open_registry("v.db");
    CHECK(add(r, "one.gguf", "one", NULL, &e) == 0);
    registry_close(r);
    int64_t newest = query("v.db", "PRAGMA user_version");
    CHECK(newest >= 2);
    CHECK(query("v.db", "SELECT count(*) FROM pragma_journal_mode WHERE journal_mode = 'wal'") ==
          1);
    /* Back to version 1: drops the tables and columns of later migrations, keeps rows. */
    sql("v.db",
        "DROP INDEX models_by_path; DROP TABLE response_labels; DROP TABLE response_items; "
        "DROP TABLE responses; DROP TABLE presets; DROP TABLE key_secrets; DROP TABLE keys; "
        "DROP TABLE key_state; DROP TABLE usage; DROP TABLE usage_writers; "
        "DROP TABLE batch_lines; DROP TABLE batches; DROP TABLE files; DROP TABLE audit; "
        "DROP TABLE response_total; DROP TABLE response_owners; PRAGMA user_version = 1");
    r = open_registry("v.db");
    CHECK(r && registry_find(r, "one", &m, &e) == 0);
    registry_model_fini(&m);
    registry_close(r);
    CHECK(query("v.db", "PRAGMA user_version") == newest);
    CHECK(query("v.db", "SELECT count(*) FROM sqlite_master WHERE name = 'models_by_path'") == 1);

    sql("v.db", "PRAGMA user_version = 1000");
    CHECK(registry_open(at("v.db"), &r, &e) == ERR_UNSUPPORTED && r == NULL);
    CHECK(strstr(e.msg, "version 1000") && strstr(e.msg, "newer"));
    CHECK(query("v.db", "PRAGMA user_version") == 1000);

    /* An empty file becomes a registry; another program's database is refused. */
    FILE *f = fopen(at("empty.db"), "wb");
    if (f) fclose(f);
    r = open_registry("empty.db");
    registry_close(r);
    sql("other.db", "CREATE TABLE t (x); INSERT INTO t VALUES (7)");
    CHECK(registry_open(at("other.db"), &r, &e) == ERR_FORMAT && strstr(e.msg, "another program"));
    CHECK(query("other.db", "SELECT count(*) FROM sqlite_master") == 1);
    CHECK(query("other.db",
                "SELECT count(*) FROM pragma_journal_mode WHERE journal_mode = 'wal'") == 0);
    sql("other2.db", "PRAGMA application_id = 77");
    CHECK(registry_open(at("other2.db"), &r, &e) == ERR_FORMAT);
}

static void test_damaged_registry(void) {
    registry *r;
    struct registry_model *list;
    struct stat st;
    size_t n;
    err e;
    CHECK(registry_open(at("one.gguf"), &r, &e) == ERR_FORMAT && r == NULL);
    CHECK(registry_open(folder, &r, &e) == ERR_IO);
    CHECK(registry_open(at("one.gguf/x.db"), &r, &e) == ERR_IO && strstr(e.msg, "cannot create"));
    CHECK(registry_open("", &r, &e) == ERR_INVALID);

    r = open_registry("cut.db");
    for (int i = 0; i < 40; i++) {
        char name[32];
        snprintf(name, sizeof name, "model-%d", i);
        CHECK(add(r, "one.gguf", name, NULL, &e) == 0);
    }
    registry_close(r);
    CHECK(stat(at("cut.db"), &st) == 0 && st.st_size > 8192);
    /* Truncated to many lengths: an error, never a crash. */
    for (off_t size = st.st_size - 1000; size > 0; size -= 1000) {
        CHECK(truncate(at("cut.db"), size) == 0);
        int rc = registry_open(at("cut.db"), &r, &e);
        if (!rc) rc = registry_list(r, &list, &n, &e);
        CHECK_MSG(rc == ERR_FORMAT || rc == ERR_IO, "%lld bytes: %d", (long long)size, rc);
        registry_close(rc && !r ? NULL : r);
    }
}

/* Random bytes in random places of a database: errors or old rows, never a crash. */
static void test_scribbled_registry(void) {
    registry *r = open_registry("scribble.db");
    struct registry_model *list;
    size_t n, n_failed = 0;
    err e;
    CHECK(add(r, "one.gguf", "one", "uno", &e) == 0);
    registry_close(r);
    FILE *f = fopen(at("scribble.db"), "rb");
    static unsigned char good[1 << 18], bad[1 << 18];
    size_t size = f ? fread(good, 1, sizeof good, f) : 0;
    if (f) fclose(f);
    CHECK(size > 4096 && size < sizeof good);
    struct rng rng = {5};
    for (int round = 0; round < 150; round++) {
        memcpy(bad, good, size);
        for (int i = 0; i < 1 + round % 40; i++)
            bad[round < 75 ? (size_t)rng_next(&rng) % 200 : (size_t)rng_next(&rng) % size] =
                (unsigned char)rng_next(&rng);
        unlink(at("scribble.db-wal"));
        unlink(at("scribble.db-shm"));
        f = fopen(at("scribble.db"), "wb");
        if (f) fwrite(bad, 1, size, f);
        if (f) fclose(f);
        r = NULL;
        int rc = registry_open(at("scribble.db"), &r, &e);
        if (!rc) rc = registry_list(r, &list, &n, &e);
        if (!rc) registry_models_free(list, n);
        if (rc) n_failed++;
        CHECK(rc == 0 || e.msg[0]);
        registry_close(r);
    }
    CHECK(n_failed > 30);
}

static void test_unwritable_folder(void) {
    CHECK(mkdir(at("locked"), 0500) == 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        registry *r;
        err e;
        /* root may write anywhere: switches to another user */
        if (geteuid() == 0 && (chmod(folder, 0755) || setgid(65534) || setuid(65534))) _exit(3);
        int rc = registry_open(at("locked/r.db"), &r, &e);
        if (rc == ERR_IO) rc = registry_open(at("locked/new/r.db"), &r, &e);
        _exit(rc == ERR_IO && r == NULL ? 0 : 1);
    }
    int status = -1;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
    CHECK(rmdir(at("locked")) == 0);
}

int main(void) {
    char made[] = "/tmp/inferd-test-registry-XXXXXX", command[PATH_MAX + 16];
    if (!mkdtemp(made) || !realpath(made, folder)) return 1;
    make_model("one.gguf", 1);
    make_model("two.gguf", 2);
    make_model("odd name+.gguf", 1);
    CHECK(mkdir(at("sub"), 0700) == 0);
    RUN(test_add_find_list);
    RUN(test_names);
    RUN(test_presets);
    RUN(test_refused_files);
    RUN(test_changed_file);
    RUN(test_split_gguf);
    RUN(test_folder);
    RUN(test_two_processes);
    RUN(test_migrations);
    RUN(test_damaged_registry);
    RUN(test_scribbled_registry);
    RUN(test_unwritable_folder);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command)) return 1;
    return check_done();
}
