/* sim_names.c - a kernel's name, for messages: read from the program's own symbols. */
#include "sim_int.h"

#include <dlfcn.h>
#include <stdio.h>

const char *sim_kernel_name(const void *fn) {
    static char name[512];
    Dl_info info;
    if (dladdr(fn, &info) && info.dli_sname)
        snprintf(name, sizeof name, "%s", info.dli_sname);
    else
        snprintf(name, sizeof name, "%p", fn);
    return name;
}
