/* files.c - lists the files of one model: a GGUF, the parts of a split one, the files of a Hugging
 * Face folder. Uses names and stat; opens no file. */
#include "core/base/mem.h"
#include "core/formats/model_file.h"
#include "registry/registry_int.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILES_MAX = 10000 };

/* ---- names ---- */

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

bool registry_is_safetensors(const char *name) {
    /* consolidated*.safetensors contain the same weights again under other names. */
    return ends_with(name, ".safetensors") && strncmp(name, "consolidated", 12) != 0;
}

bool registry_folder_has(const char *name) {
    static const char *const names[] = {
        "config.json",           "generation_config.json",  "model.safetensors.index.json",
        "tokenizer.json",        "tokenizer.model",         "tiktoken.model",
        "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
        "modules.json", /* of sentence-transformers */
    };
    if (strchr(name, '/')) return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return registry_is_safetensors(name);
}

bool registry_module_has(const char *name) {
    const char *slash = strchr(name, '/');
    return slash && name[0] >= '0' && name[0] <= '9' &&
           (strcmp(slash, "/config.json") == 0 || strcmp(slash, "/model.safetensors") == 0);
}

/* ---- files on disk ---- */

int registry_file_stat(const char *path, const struct stat *st, struct registry_stat *out, err *e) {
    if (!S_ISREG(st->st_mode)) return err_set(e, ERR_INVALID, "%s is not a file", path);
#ifdef __APPLE__
    const struct timespec *t = &st->st_mtimespec;
#else
    const struct timespec *t = &st->st_mtim;
#endif
    out->size_bytes = (uint64_t)st->st_size;
    out->mtime_ns = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
    return 0;
}

void registry_files_fini(struct registry_files *f) {
    for (size_t i = 0; i < f->n; i++)
        free(f->files[i].path);
    free(f->files);
    memset(f, 0, sizeof *f);
}

/* Adds the file folder[0..folder_len)/name; folder_len 0: name alone. */
static int add_file(struct registry_files *f, const char *folder, size_t folder_len,
                    const char *name, err *e) {
    if (f->n == FILES_MAX)
        return err_set(e, ERR_FORMAT, "%s: more than %d files", folder, FILES_MAX);
    struct registry_file *more = mem_resize(f->files, f->n + 1, sizeof *more);
    if (!more) return err_no_memory(e);
    f->files = more;
    struct registry_file *file = &more[f->n];
    size_t n = folder_len + strlen(name) + 2;
    if (!(file->path = mem_new(n, 1))) return err_no_memory(e);
    snprintf(file->path, n, "%.*s%s%s", (int)folder_len, folder, folder_len ? "/" : "", name);
    f->n++;
    struct stat st;
    if (stat(file->path, &st)) return err_set(e, ERR_IO, "%s: %s", file->path, strerror(errno));
    return registry_file_stat(file->path, &st, &file->stat, e);
}

const char *registry_file_name(const struct registry_file *f) {
    const char *slash = strrchr(f->path, '/');
    return slash ? slash + 1 : f->path;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct registry_file *)a)->path, ((const struct registry_file *)b)->path);
}

static int list_folder(const char *path, struct registry_files *f, err *e) {
    const struct dirent *entry;
    bool config = false; /* model_file_open checks the folder further */
    int rc = 0;
    f->format = "safetensors";
    DIR *dir = opendir(path);
    if (!dir) return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    while (!rc && (entry = readdir(dir))) {
        if (!registry_folder_has(entry->d_name)) continue;
        config |= strcmp(entry->d_name, "config.json") == 0;
        rc = add_file(f, path, strlen(path), entry->d_name, e);
    }
    closedir(dir);
    if (!rc && !config)
        rc = err_set(e, ERR_INVALID,
                     "%s is a folder without config.json; to add a GGUF, name the file", path);
    if (!rc) qsort(f->files, f->n, sizeof *f->files, by_path);
    return rc;
}

static int list_parts(const char *path, struct model_file_part part, struct registry_files *f,
                      err *e) {
    const char *slash = strrchr(path, '/');
    size_t folder_len = slash ? (size_t)(slash + 1 - path) : 0;
    unsigned given = part.part;
    int rc = 0;
    char *name = mem_strdup(path);
    if (!name) return err_no_memory(e);
    part.part = 1;
    model_file_part_write(&part, name);
    if (given != 1)
        rc = err_set(e, ERR_INVALID, "%s is part %u: add the first part, %s", path, given,
                     name + folder_len);
    for (; !rc && part.part <= part.n_parts; part.part++) {
        model_file_part_write(&part, name);
        rc = add_file(f, "", 0, name, e);
    }
    free(name);
    return rc;
}

static uint64_t hash_bytes(uint64_t h, const void *bytes, size_t n) {
    const unsigned char *b = bytes;
    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * UINT64_C(0x100000001b3); /* FNV-1a */
    return h;
}

/* Sums sizes; hashes times, sizes and names of several files into one number. */
static int sum_files(struct registry_files *f, err *e) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    if (f->n == 1) {
        f->stat = f->files[0].stat;
        return 0;
    }
    for (size_t i = 0; i < f->n; i++) {
        const struct registry_file *file = &f->files[i];
        const char *name = registry_file_name(file);
        if (!mem_add(f->stat.size_bytes, file->stat.size_bytes, &f->stat.size_bytes))
            return err_set(e, ERR_FORMAT,
                           "%s: the sizes of the model's files add up to more than 2^64 bytes",
                           file->path);
        h = hash_bytes(h, name, strlen(name) + 1);
        h = hash_bytes(h, &file->stat.size_bytes, sizeof file->stat.size_bytes);
        h = hash_bytes(h, &file->stat.mtime_ns, sizeof file->stat.mtime_ns);
    }
    f->stat.mtime_ns = (int64_t)(h >> 1);
    return 0;
}

int registry_files_list(const char *path, struct registry_files *out, err *e) {
    struct model_file_part part;
    struct stat st;
    memset(out, 0, sizeof *out);
    out->format = "gguf";
    int rc;
    if (stat(path, &st))
        rc = err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    else if (S_ISDIR(st.st_mode))
        rc = list_folder(path, out, e);
    else if (model_file_part_read(path, &part) && part.n_parts > 1)
        rc = list_parts(path, part, out, e);
    else
        rc = add_file(out, "", 0, path, e);
    if (!rc) rc = sum_files(out, e);
    if (rc) registry_files_fini(out);
    return rc;
}

int registry_model_paths(const struct registry_model *m, char ***paths, size_t *n, err *e) {
    struct registry_files f;
    *paths = NULL;
    *n = 0;
    int rc = registry_files_list(m->path, &f, e);
    if (rc) return rc;
    char **list = mem_new(f.n, sizeof *list);
    if (!list) rc = err_no_memory(e);
    for (size_t i = 0; i < f.n && !rc; i++) {
        list[i] = f.files[i].path; /* moved */
        f.files[i].path = NULL;
    }
    if (!rc) {
        *paths = list;
        *n = f.n;
    }
    registry_files_fini(&f);
    return rc;
}

void registry_paths_free(char **paths, size_t n) {
    for (size_t i = 0; i < n; i++)
        free(paths[i]);
    free(paths);
}
