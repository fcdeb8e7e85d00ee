/* module.h - a device that is loaded at run time, so that the program itself needs nothing of it: a
 * shared object exports one `const struct backend_module inferd_backend_module`. */
#ifndef INFERD_BACKEND_MODULE_H
#define INFERD_BACKEND_MODULE_H

#include "core/backend/backend_int.h"
#include "core/base/log.h"

/* Both sides were built from the same headers. */
#define BACKEND_MODULE_ABI                                                                         \
    (UINT64_C(1) << 48 | (uint64_t)sizeof(struct backend) << 24 |                                  \
     (uint64_t)sizeof(struct backend_vtable) << 12 | sizeof(struct backend_config))

struct backend_module {
    uint64_t abi; /* BACKEND_MODULE_ABI */
    int (*open)(const struct backend_config *config, backend **out, err *e);
    /* The module has a copy of core/base of its own, which logs to here. */
    void (*set_log)(log_sink sink, void *arg, enum log_level min_level);
};

/* As open of the CUDA module: beside the program, in ../lib/inferd of it, or where the
 * environment's INFERD_CUDA_MODULE says. ERR_UNSUPPORTED: there is none. */
int backend_module_open_cuda(const struct backend_config *config, backend **out, err *e);

#endif
