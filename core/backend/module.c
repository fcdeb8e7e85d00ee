/* module.c - finds and loads the CUDA module. Owns the handle of what it loaded, for the life of
 * the process: the device's libraries do not bear being unloaded. Any thread; the loading is
 * guarded. */
#include "core/backend/module.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CUDA_MODULE "libinferd-cuda.so"

/* The program's folder, with a slash; "" where the system does not say. */
static void program_folder(char *out, size_t n) {
    ssize_t got = readlink("/proc/self/exe", out, n - 1);
    out[got > 0 ? got : 0] = '\0';
    char *slash = strrchr(out, '/');
    if (slash) slash[1] = '\0';
}

static void log_forward(void *arg, enum log_level level, const char *line) {
    (void)arg;
    log_write(level, "%s", line);
}

static const struct backend_module *load(const char *path, char *why, size_t n) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct backend_module *m = handle ? dlsym(handle, "inferd_backend_module") : NULL;
    if (m && m->abi == BACKEND_MODULE_ABI) {
        m->set_log(log_forward, NULL, LOG_LEVEL_DEBUG);
        return m;
    }
    const char *error = handle ? NULL : dlerror();
    snprintf(why, n, "%s",
             handle  ? "it is of another version of inferd: build both together"
             : error ? error
                     : "it cannot be loaded");
    if (handle) dlclose(handle);
    return NULL;
}

/* NULL: why says what is missing. */
static const struct backend_module *find(char *why, size_t n) {
    const char *named = getenv("INFERD_CUDA_MODULE");
    if (named && *named) return load(named, why, n);
    static const char *const places[] = {CUDA_MODULE, "../lib/inferd/" CUDA_MODULE};
    char folder[3072], path[4096];
    program_folder(folder, sizeof folder);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(path, sizeof path, "%s%s", folder, places[i]);
        if (access(path, R_OK) == 0) return load(path, why, n);
    }
    snprintf(why, n,
             "%s is neither beside the program nor in ../lib/inferd of it; make CUDA=1 builds it",
             CUDA_MODULE);
    return NULL;
}

int backend_module_open_cuda(const struct backend_config *config, backend **out, err *e) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const struct backend_module *module; /* under lock */
    char why[320] = "";
    pthread_mutex_lock(&lock);
    if (!module) module = find(why, sizeof why);
    const struct backend_module *m = module;
    pthread_mutex_unlock(&lock);
    if (!m)
        return err_set_param(e, ERR_UNSUPPORTED, "backend", "backend \"cuda\": no module: %s", why);
    return m->open(config, out, e);
}
