/* module.c - finds and loads the CUDA module. Owns its handle for the life of the process, because
 * the CUDA libraries cannot be unloaded. Any thread may call it; a mutex guards the loading. */
#include "core/backend/module.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUDA_MODULE          "libinferd-cuda.so"
#define CUDA_MODULE_VARIABLE "INFERD_CUDA_MODULE"

static void forward_log(void *arg, enum log_level level, const char *line) {
    (void)arg;
    log_write(level, "%s", line);
}

static const struct backend_module *load_module(const char *path, char *why, size_t n) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct backend_module *m = handle ? dlsym(handle, "inferd_backend_module") : NULL;
    if (m && m->abi == BACKEND_MODULE_ABI) {
        m->set_log(forward_log, NULL, LOG_LEVEL_DEBUG);
        return m;
    }
    const char *error = handle ? NULL : dlerror();
    if (handle)
        snprintf(why, n, "%.300s belongs to another build of inferd; build both together", path);
    else
        snprintf(why, n, "%s", error ? error : "dlopen failed");
    if (handle) dlclose(handle);
    return NULL;
}

/* NULL: why tells the reason. */
static const struct backend_module *find_module(char *why, size_t n) {
    static const struct backend_module_file file = {CUDA_MODULE, CUDA_MODULE_VARIABLE,
                                                    "build it with make CUDA=1"};
    char path[4096];
    return backend_module_find(&file, path, sizeof path, why, n) ? load_module(path, why, n) : NULL;
}

const char *backend_module_path(const backend *be) {
    static const char here = 0;
    Dl_info own, its;
    if (!dladdr(&here, &own) || !dladdr(be->vt, &its)) return NULL;
    return own.dli_fbase == its.dli_fbase ? NULL : its.dli_fname;
}

int backend_module_open_cuda(const struct backend_config *config, backend **out, err *e) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const struct backend_module *module; /* under lock */
    char why[400] = "";
    pthread_mutex_lock(&lock);
    if (!module) module = find_module(why, sizeof why);
    const struct backend_module *m = module;
    pthread_mutex_unlock(&lock);
    if (!m)
        return err_set_param(e, ERR_UNSUPPORTED, "backend",
                             "backend \"cuda\": cannot load its module: %s", why);
    return m->open(config, out, e);
}
