/* qpoints.c - the kernel of qpoints.h for every machine, and the choice among the others. Pure; any
 * thread. */
#define LANES  4
#define KERNEL qpoints_kernel_4
#include "core/base/qpoints_lanes.h"

uint32_t qpoints_kernels(const struct qpoints_kernel *out[QPOINTS_MAX_KERNELS]) {
    uint32_t n = 0;
#if defined(__x86_64__)
    /* What the compiler may use in these files, see the Makefile. */
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
        out[n++] = &qpoints_kernel_avx512;
    if (avx2) out[n++] = &qpoints_kernel_avx2;
#endif
    out[n++] = &qpoints_kernel_4;
    return n;
}
