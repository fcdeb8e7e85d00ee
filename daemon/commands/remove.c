/* remove.c - what may be deleted, the question, and the deletion. */
#include "daemon/commands/remove.h"

#include "core/base/mem.h"
#include "daemon/commands/printing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Is path below the folder, symbolic links followed? */
static bool is_below(const char *path, const char *folder) {
    char *real = realpath(path, NULL), *base = realpath(folder, NULL);
    size_t n = base ? strlen(base) : 0;
    bool yes = real && base && strncmp(real, base, n) == 0 && real[n] == '/';
    free(real);
    free(base);
    return yes;
}

/* Does another row have these files? */
static int check_others(registry *r, const struct registry_model *m, err *e) {
    struct registry_model *models;
    size_t n;
    int rc = registry_list(r, &models, &n, e);
    if (rc) return rc;
    for (size_t i = 0; i < n && !rc; i++)
        if (models[i].id != m->id && strcmp(models[i].path, m->path) == 0)
            rc = err_set(e, ERR_EXISTS,
                         "%s has the same files as %s: remove that one first, or do "
                         "without --files",
                         m->name, models[i].name);
    registry_models_free(models, n);
    return rc;
}

static int confirm_removal(const struct registry_model *m, char *const *paths, size_t n, err *e) {
    char size[32], answer[16];
    format_bytes(m->size_bytes, size, sizeof size);
    if (!isatty(STDIN_FILENO))
        return err_set(e, ERR_INVALID, "%zu files (%s) would be deleted: confirm with --yes", n,
                       size);
    for (size_t i = 0; i < n; i++)
        printf("  %s\n", paths[i]);
    printf("Delete %zu files (%s) of %s? [y/N] ", n, size, m->name);
    fflush(stdout);
    if (fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y')) return 0;
    return err_set(e, ERR_STOPPING, "nothing was removed");
}

/* Deletes the files, then the folders that became empty, up to the models folder. */
static int delete_files(char *const *paths, size_t n, const char *models_folder, err *e) {
    int rc = 0;
    for (size_t i = 0; i < n; i++)
        if (unlink(paths[i]) && errno != ENOENT)
            rc = err_set(e, ERR_IO, "%s: %s", paths[i], strerror(errno));
    char *folder = n ? mem_strdup(paths[0]) : NULL, *slash;
    while (folder && (slash = strrchr(folder, '/')) != NULL) {
        *slash = '\0';
        if (!is_below(folder, models_folder) || rmdir(folder)) break;
    }
    free(folder);
    return rc;
}

int remove_registered(registry *r, const struct registry_model *m, const char *models_folder,
                      const struct remove_options *how, err *e) {
    char **paths = NULL, size[32];
    size_t n = 0;
    int rc = 0;
    if (how->files) {
        rc = check_others(r, m, e);
        if (!rc) rc = registry_model_paths(m, &paths, &n, e);
        for (size_t i = 0; i < n && !rc && !how->outside; i++)
            if (!is_below(paths[i], models_folder))
                rc = err_set(e, ERR_INVALID,
                             "%s is outside the models folder %s: --outside deletes it, too",
                             paths[i], models_folder);
        if (!rc && !how->yes) rc = confirm_removal(m, paths, n, e);
    }
    if (!rc) rc = registry_remove(r, m->name, e);
    if (!rc && how->files) rc = delete_files(paths, n, models_folder, e);
    format_bytes(m->size_bytes, size, sizeof size);
    if (!rc && how->files)
        printf("removed %s and its %zu files (%s)\n", m->name, n, size);
    else if (!rc)
        printf("removed %s\n", m->name);
    registry_paths_free(paths, n);
    return rc;
}
