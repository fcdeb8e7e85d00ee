/* report.h - what a device tells of itself and of its kernels, for reports. */
#ifndef INFERD_BACKEND_REPORT_H
#define INFERD_BACKEND_REPORT_H

#include <stdint.h>

/* Costs of a kernel's dispatches besides the traffic that is counted by their shapes. 0: the device
 * does not count it. */
struct backend_kernel_costs {
    uint64_t
        most_hidden; /* bytes read of what only the device knows (KV pages, experts), at most */
    uint64_t cycles; /* of one lane of an ALU; those for KV pages and experts at most */
    uint64_t ns;     /* on the device, with BACKEND_TIMES */
};

struct backend_fact {
    const char *name; /* static storage */
    double value;
};

/* A kernel with its constants. */
enum { BACKEND_MAX_CONSTS = 12 };
struct backend_pipeline {
    const char *kernel; /* valid as long as the backend */
    uint32_t n_consts, index[BACKEND_MAX_CONSTS], value[BACKEND_MAX_CONSTS];
    uint32_t max_threads, simd_width; /* of a threadgroup */
    uint32_t shared_bytes;            /* of a threadgroup, without what a launch adds */
    double compile_ms;
};

#endif
