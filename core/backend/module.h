/* module.h - a device loaded at run time, so that the program itself does not depend on the
 * device's libraries: a shared object that exports one `const struct backend_module
 * inferd_backend_module`.
 */
#ifndef INFERD_BACKEND_MODULE_H
#define INFERD_BACKEND_MODULE_H

#include "core/backend/backend_int.h"
#include "core/base/log.h"

/* Equal only if program and module were built from the same headers. */
#define BACKEND_MODULE_ABI                                                                         \
    (UINT64_C(1) << 48 | (uint64_t)sizeof(struct backend) << 24 |                                  \
     (uint64_t)sizeof(struct backend_vtable) << 12 | sizeof(struct backend_config))

struct backend_module {
    uint64_t abi; /* BACKEND_MODULE_ABI */
    int (*open)(const struct backend_config *config, backend **out, err *e);
    /* The module has its own copy of core/base; its log lines go to this sink. */
    void (*set_log)(log_sink sink, void *arg, enum log_level min_level);
};

/* Where a module is: the file that an environment variable names, or else its name in the program's
 * folder or in ../lib/inferd relative to it. */
struct backend_module_file {
    const char *name, *variable;
    const char *hint; /* how it is built */
};
/* false: why tells the reason. */
bool backend_module_find(const struct backend_module_file *file, char *path, size_t n_path,
                         char *why, size_t n_why);

/* Loads the CUDA module and calls its open: libinferd-cuda.so, or what INFERD_CUDA_MODULE names.
 * ERR_UNSUPPORTED: not found, or built from other headers. */
int backend_module_open_cuda(const struct backend_config *config, backend **out, err *e);

#endif
