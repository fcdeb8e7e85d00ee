/* module_find.c - where a module is that is loaded at run time. Pure. */
#include "core/backend/module.h"

#include "core/base/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool backend_module_find(const struct backend_module_file *file, char *path, size_t n_path,
                         char *why, size_t n_why) {
    const char *named = getenv(file->variable);
    const char *const places[] = {"", "../lib/inferd/"};
    char folder[3072];
    if (named && *named) {
        snprintf(path, n_path, "%s", named);
        return true;
    }
    program_folder(folder, sizeof folder);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(path, n_path, "%s%s%s", folder, places[i], file->name);
        if (access(path, R_OK) == 0) return true;
    }
    snprintf(why, n_why,
             "%s is neither in the program's folder nor in ../lib/inferd next to it; %s, or set %s "
             "to its path",
             file->name, file->hint, file->variable);
    return false;
}
