/* msl_traffic.h - the traffic meter: what each kernel reads from and writes to device memory, its
 * barriers, simdgroup operations and threadgroup memory. For tests; works without the framework.
 *
 * DEFINITIONS, for one dispatch; the figures here are sums over dispatches.
 *   read_once, written_once: bytes of a buffer that any thread read (wrote) at least once: what
 *     must cross the memory bus even with a perfect cache.
 *   read: bytes requested. Simdgroups synchronize at simdgroup operations, barriers, start and end.
 *     Between two such points, a byte that k lanes read counts as often as the lane that reads it
 *     most, so usually once: lanes that share or overlap a load make one request. A read after such
 *     a point, or by another simdgroup or threadgroup, counts again. A weight that one simdgroup
 *     reads once shows read == read_once.
 *   written: bytes that threads wrote, each as often as it was written.
 * Atomics count as a read and a write. Byte counts need check mode, whose hooks see each access
 * that the compiler left in the code; everything else is counted in every mode.
 *
 * THREAD SAFETY: any thread; calls wait for a running dispatch. */
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
    uint64_t barriers; /* threadgroup_barrier, once per threadgroup */
    uint64_t simd_barriers, simd_ops, matrix_products; /* once per simdgroup */
    uint32_t tg_dynamic_bytes, tg_static_bytes;        /* of a threadgroup, maximum */
    struct metalsim_bytes memory;                      /* buffers in the device address space */
    struct metalsim_bytes arguments; /* in constant: argument structs, set as bytes or bound */
};
struct metalsim_argument { /* one per kernel, buffer index and label */
    char kernel[64], name[32];
    char label[64]; /* the buffer's, or "" */
    uint32_t index;
    int constant; /* counted in arguments, not in memory */
    struct metalsim_bytes bytes;
};

/* Starts to count from zero. */
void metalsim_traffic_reset(void);
/* Stops counting; the counts stay. */
void metalsim_traffic_stop(void);

/* Returns 0; -1: the kernel did not run, or there is no i-th entry. */
int metalsim_traffic(const char *kernel, struct metalsim_kernel *out);
int metalsim_traffic_kernel(uint32_t i, struct metalsim_kernel *out);
int metalsim_traffic_argument(uint32_t i, struct metalsim_argument *out);
/* Sums the device memory traffic of a kernel (NULL: all) in buffers with a label (NULL: all). */
void metalsim_traffic_sum(const char *kernel, const char *label, struct metalsim_bytes *out);
#ifdef __cplusplus
}
#endif
#endif
