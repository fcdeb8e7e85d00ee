/* msl_traffic.h - the traffic meter: what each kernel reads from and writes to device memory, its
 * barriers, simdgroup operations and threadgroup memory. For tests; the framework is not needed.
 *
 * DEFINITIONS, for one dispatch; the numbers here are sums over dispatches.
 *   read_once, written_once  bytes of a buffer that some thread read (wrote) at least once: what
 *                            must cross the memory bus even with a perfect cache.
 *   read                     bytes requested. Between two points where a simdgroup meets (simdgroup
 *                            operation, barrier, start and end) a byte that k lanes read counts as
 *                            often as the lane that reads it most often, so usually once: a load
 * that all lanes share, or whose lanes overlap, is one request. Read again after such a point, by
 * another simdgroup or threadgroup, it counts again. A weight that is read once by one simdgroup
 * shows read == read_once. written                  bytes that threads wrote, each as often as it
 * was written. Atomics count as a read and a write. Bytes need check mode, whose hooks see each
 * access that the compiler left in the code; the rest is counted in every mode.
 *
 * THREAD SAFETY: any thread; a running dispatch is waited for. */
#ifndef MSL_TRAFFIC_H
#define MSL_TRAFFIC_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

struct metalsim_bytes {
    uint64_t read_once, read, written_once, written;
};
struct metalsim_kernel {
    char name[64];
    uint64_t dispatches, threadgroups, threads;
    uint64_t barriers; /* threadgroup_barrier, once for each threadgroup */
    uint64_t simd_barriers, simd_ops, matrix_products; /* once for each simdgroup */
    uint32_t tg_dynamic_bytes, tg_static_bytes;        /* of a threadgroup, the most */
    struct metalsim_bytes memory;                      /* buffers in the device address space */
    struct metalsim_bytes arguments; /* in constant: argument structs, set as bytes or bound */
};
struct metalsim_argument { /* one for each kernel, buffer index and label */
    char kernel[64], name[32];
    char label[64]; /* the buffer's, or "" */
    uint32_t index;
    int constant; /* counted in arguments, not in memory */
    struct metalsim_bytes bytes;
};

/* Starts to count, from zero. */
void metalsim_traffic_reset(void);
/* Counts no more; what was counted stays. */
void metalsim_traffic_stop(void);

/* 0, or -1: the kernel did not run; there is no i-th one. */
int metalsim_traffic(const char *kernel, struct metalsim_kernel *out);
int metalsim_traffic_kernel(uint32_t i, struct metalsim_kernel *out);
int metalsim_traffic_argument(uint32_t i, struct metalsim_argument *out);
/* Of the device memory of a kernel (NULL: all) in buffers of a label (NULL: all). */
void metalsim_traffic_sum(const char *kernel, const char *label, struct metalsim_bytes *out);
#ifdef __cplusplus
}
#endif
#endif
