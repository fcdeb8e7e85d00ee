/* standin_run.h - the stand-in's executor without the framework: compiles and loads a Metal source
 * and runs its kernels over arrays of the test. */
#ifndef INFERD_TESTS_STANDIN_RUN_H
#define INFERD_TESTS_STANDIN_RUN_H

#include "tests/metal/standin/runtime/msl_rt.h"
#include "tests/unit/check.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

struct run_lib {
    void *handle;
    char path[256];
    const msl_kernel_desc *kernels;
    unsigned n_kernels;
    struct {
        uintptr_t base, lo, hi;
    } image;
};

static int run_find_image(struct dl_phdr_info *info, size_t size, void *context) {
    struct run_lib *lib = context;
    (void)size;
    if (info->dlpi_addr != lib->image.base) return 0;
    lib->image.lo = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
        uintptr_t lo = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        uintptr_t hi = lo + info->dlpi_phdr[i].p_memsz;
        if (lo < lib->image.lo) lib->image.lo = lo;
        if (hi > lib->image.hi) lib->image.hi = hi;
    }
    return 1;
}

/* Runs a command and stores its output in text; returns its exit status. */
static inline int run_command(const char *command, char *text, size_t n) {
    FILE *f = popen(command, "r");
    size_t used = 0;
    if (!f) return -1;
    while (used + 1 < n && !feof(f))
        used += fread(text + used, 1, n - 1 - used, f);
    text[used] = 0;
    while (fgetc(f) != EOF) {
    }
    return pclose(f);
}

/* Compiles a file below tests/metal in mode plain or check, with the flags. A failure ends the
 * test. */
static inline struct run_lib run_open(const char *file, const char *mode, const char *flags) {
    struct run_lib lib = {0};
    char command[1024], text[4096];
    snprintf(lib.path, sizeof lib.path, "/tmp/standin-%d-XXXXXX", (int)getpid());
    int fd = mkstemp(lib.path);
    if (fd >= 0) close(fd);
    snprintf(command, sizeof command,
             "tests/metal/standin/tools/metalcc %s tests/metal/%s %s %s 2>&1", mode, file, lib.path,
             flags);
    int rc = run_command(command, text, sizeof text);
    if (rc == 0) lib.handle = dlopen(lib.path, RTLD_NOW | RTLD_LOCAL);
    if (!lib.handle) {
        fprintf(stderr, "%s: %s\n", file, rc ? text : dlerror());
        exit(1);
    }
    struct link_map *map = NULL;
    dlinfo(lib.handle, RTLD_DI_LINKMAP, &map);
    lib.image.base = map->l_addr;
    dl_iterate_phdr(run_find_image, &lib);
    lib.kernels = dlsym(lib.handle, "msl_kernels");
    lib.n_kernels = *(const unsigned *)dlsym(lib.handle, "msl_nkernels");
    return lib;
}
static inline void run_close(struct run_lib *lib) {
    char cpp[300];
    snprintf(cpp, sizeof cpp, "%s.cpp", lib->path);
    dlclose(lib->handle);
    unlink(lib->path);
    unlink(cpp);
}

static inline const msl_kernel_desc *run_find(const struct run_lib *lib, const char *kernel) {
    for (unsigned i = 0; i < lib->n_kernels; i++)
        if (strcmp(lib->kernels[i].name, kernel) == 0) return &lib->kernels[i];
    fprintf(stderr, "no kernel %s\n", kernel);
    exit(1);
}

/* A dispatch of n_groups x n_threads over buffers 0, 1, ..., up to the first with data NULL. */
struct run_buffer {
    void *data;
    size_t bytes;
    const char *label;
};
struct run {
    const struct run_lib *lib;
    const char *kernel;
    uint32_t n_groups, n_threads, tg_bytes;
    struct run_buffer buffers[6];
    msl_opts opts; /* check is set by the library's mode */
};
/* The report, or "". Valid until the next call. */
static inline const char *run_kernel(const struct run *r) {
    static char error[1024];
    msl_dispatch d = {.k = run_find(r->lib, r->kernel),
                      .dlbase_lo = (void *)r->lib->image.lo,
                      .dlbase_hi = (void *)r->lib->image.hi,
                      .path = r->lib->path,
                      .tglen = {r->tg_bytes},
                      .ntg = {r->n_groups ? r->n_groups : 1, 1, 1},
                      .ntptg = {r->n_threads ? r->n_threads : 32, 1, 1}};
    for (int i = 0; i < 6 && r->buffers[i].data; i++) {
        d.buf[i] = r->buffers[i].data;
        d.buflen[i] = r->buffers[i].bytes;
        d.buflabel[i] = r->buffers[i].label;
    }
    msl_rt_run(&d, &r->opts, error, sizeof error);
    return error;
}
#define CHECK_REPORT(text, want)                                                                   \
    CHECK_MSG(strstr(text, want), "got \"%s\", want \"%s\"", text, want)
#define CHECK_SILENT(text) CHECK_MSG(!*(text), "reported \"%s\"", text)
#endif
