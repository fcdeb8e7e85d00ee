/* sim_device.c - options, devices and their properties, errors, the lock. */
#include "sim_int.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sim_options options;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock;
static cudaError_t lost;
static uint64_t random_state;
static __thread cudaError_t last;
static __thread int device;
struct cudasim_counts sim_counts;

static void set(const char *name, const char *value) {
    if (strcmp(name, "CUDASIM_DEVICES") == 0)
        options.n_devices = value ? atoi(value) : 1;
    else if (strcmp(name, "CUDASIM_SM") == 0)
        options.sm = value ? atoi(value) : 90;
    else if (strcmp(name, "CUDASIM_MEMORY") == 0)
        options.memory = value ? strtoull(value, NULL, 10) : (uint64_t)16 << 30;
    else if (strcmp(name, "CUDASIM_SHUFFLE") == 0)
        random_state = options.shuffle = value ? strtoull(value, NULL, 10) : 0;
    else if (strcmp(name, "CUDASIM_LATE") == 0)
        options.late = value ? atoi(value) : 0;
    else if (strcmp(name, "CUDASIM_FAIL") == 0) {
        options.fail_malloc = options.fail_launch = options.fail_sync = options.hang_sync = 0;
        if (!value || !*value) return;
        if (sscanf(value, "malloc:%ld", &options.fail_malloc) != 1 &&
            sscanf(value, "launch:%ld", &options.fail_launch) != 1 &&
            sscanf(value, "sync:%ld", &options.fail_sync) != 1 &&
            sscanf(value, "hang:%ld", &options.hang_sync) != 1)
            cudasim_fail("CUDASIM_FAIL=%s: must be malloc:N, launch:N, sync:N or hang:N", value);
    } else
        cudasim_fail("no option %s", name);
}

static void init(void) {
    static const char *const names[] = {"CUDASIM_DEVICES", "CUDASIM_SM",   "CUDASIM_MEMORY",
                                        "CUDASIM_SHUFFLE", "CUDASIM_LATE", "CUDASIM_FAIL"};
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &attr);
    pthread_mutexattr_destroy(&attr);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        set(names[i], getenv(names[i]));
}

const struct sim_options *sim_options(void) {
    return &options;
}

uint64_t sim_random(void) { /* splitmix64 */
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

cudaError_t sim_enter(void) {
    pthread_once(&once, init);
    pthread_mutex_lock(&lock);
    if (!options.n_devices) return cudaErrorNoDevice;
    return lost;
}

cudaError_t sim_leave(cudaError_t rc) {
    if (rc && rc != cudaErrorNotReady) last = rc;
    pthread_mutex_unlock(&lock);
    return rc;
}

void sim_wait(pthread_cond_t *changed) {
    pthread_cond_wait(changed, &lock);
}

cudaError_t sim_lose(cudaError_t rc) {
    return lost = rc;
}

bool sim_fails(long nth, long *count) {
    return nth && ++*count >= nth;
}

int sim_device(void) {
    return device;
}

/* ---- the stand-in's own calls ---- */

void cudasim_option_set(const char *name, const char *value) {
    sim_enter();
    sim_flush_all();
    lost = cudaSuccess;
    set(name, value);
    pthread_mutex_unlock(&lock);
}

void cudasim_counts_get(struct cudasim_counts *out) {
    sim_enter();
    *out = sim_counts;
    pthread_mutex_unlock(&lock);
}

/* ---- devices ---- */

/* Bytes of shared memory per block, by compute capability (CUDA programming guide). */
uint32_t sim_shared_optin(void) {
    switch (options.sm) {
    case 80:
    case 87:
        return 163 << 10;
    case 86:
    case 89:
    case 120:
        return 99 << 10;
    default:
        return 227 << 10;
    }
}

static int attribute(enum cudaDeviceAttr attr) {
    int small = sim_shared_optin() == 99 << 10;
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
        return SIM_MAX_THREADS;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        return 48 << 10;
    case cudaDevAttrWarpSize:
        return SIM_WARP;
    case cudaDevAttrMaxRegistersPerBlock:
        return 65536;
    case cudaDevAttrMultiProcessorCount:
        return 4;
    case cudaDevAttrIntegrated:
    case cudaDevAttrPageableMemoryAccess:
        return 0;
    case cudaDevAttrEccEnabled:
    case cudaDevAttrUnifiedAddressing:
        return 1;
    case cudaDevAttrL2CacheSize:
        return 50 << 20;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        return small ? 1536 : 2048;
    case cudaDevAttrAsyncEngineCount:
        return 3;
    case cudaDevAttrComputeCapabilityMajor:
        return options.sm / 10;
    case cudaDevAttrComputeCapabilityMinor:
        return options.sm % 10;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        return (int)sim_shared_optin() + 1024;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return (int)sim_shared_optin();
    case cudaDevAttrMaxPersistingL2CacheSize:
        return 32 << 20;
    case cudaDevAttrReservedSharedMemoryPerBlock:
        return 1024;
    }
    return -1;
}

static cudaError_t get_properties(struct cudaDeviceProp *p, int which) {
    if (!p || which < 0 || which >= options.n_devices) return cudaErrorInvalidDevice;
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "CPU stand-in");
    p->uuid.bytes[0] = (char)(which + 1);
    p->totalGlobalMem = options.memory;
    p->sharedMemPerBlock = 48 << 10;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = SIM_WARP;
    p->maxThreadsPerBlock = SIM_MAX_THREADS;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = SIM_MAX_THREADS;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->totalConstMem = 64 << 10;
    p->major = options.sm / 10;
    p->minor = options.sm % 10;
    p->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount);
    p->canMapHostMemory = p->concurrentKernels = p->ECCEnabled = p->unifiedAddressing = 1;
    p->pciBusID = which + 1;
    p->asyncEngineCount = 3;
    p->memoryBusWidth = 5120;
    p->l2CacheSize = attribute(cudaDevAttrL2CacheSize);
    p->persistingL2CacheMaxSize = attribute(cudaDevAttrMaxPersistingL2CacheSize);
    p->maxThreadsPerMultiProcessor = attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
    p->sharedMemPerMultiprocessor = sim_shared_optin() + 1024;
    p->sharedMemPerBlockOptin = sim_shared_optin();
    p->maxBlocksPerMultiProcessor = 32;
    p->reservedSharedMemPerBlock = 1024;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    cudaError_t rc = sim_enter();
    *count = options.n_devices;
    return sim_leave(rc);
}

cudaError_t cudaSetDevice(int which) {
    cudaError_t rc = sim_enter();
    if (!rc && (which < 0 || which >= options.n_devices)) rc = cudaErrorInvalidDevice;
    if (!rc) device = which;
    return sim_leave(rc);
}

cudaError_t cudaGetDevice(int *which) {
    cudaError_t rc = sim_enter();
    *which = device;
    return sim_leave(rc);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int which) {
    cudaError_t rc = sim_enter();
    return sim_leave(rc ? rc : get_properties(prop, which));
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int which) {
    cudaError_t rc = sim_enter();
    if (!rc && (which < 0 || which >= options.n_devices)) rc = cudaErrorInvalidDevice;
    if (!rc && (*value = attribute(attr)) < 0) rc = cudaErrorInvalidValue;
    return sim_leave(rc);
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int which) {
    cudaError_t rc = sim_enter();
    if (!rc && (which < 0 || which >= options.n_devices)) rc = cudaErrorInvalidDevice;
    if (!rc && len < 13) rc = cudaErrorInvalidValue;
    if (!rc) snprintf(id, (size_t)len, "0000:%02X:00.0", (unsigned)which + 1);
    return sim_leave(rc);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int which, int peer) {
    cudaError_t rc = sim_enter();
    int n = options.n_devices;
    if (!rc && (which < 0 || which >= n || peer < 0 || peer >= n)) rc = cudaErrorInvalidDevice;
    *can = !rc && which != peer;
    return sim_leave(rc);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
    static uint64_t enabled[64];
    cudaError_t rc = sim_enter();
    if (rc) return sim_leave(rc);
    if (peer < 0 || peer >= options.n_devices || peer == device || peer > 63 || device > 63)
        rc = cudaErrorInvalidDevice;
    else if (flags)
        rc = cudaErrorInvalidValue;
    else if (enabled[device] >> peer & 1)
        rc = cudaErrorPeerAccessAlreadyEnabled;
    else
        enabled[device] |= (uint64_t)1 << peer;
    return sim_leave(rc);
}

cudaError_t cudaDeviceReset(void) {
    sim_enter();
    sim_flush_all();
    sim_memory_reset(device);
    lost = cudaSuccess;
    return sim_leave(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* ---- errors ---- */

cudaError_t cudaPeekAtLastError(void) {
    cudaError_t rc = sim_enter();
    if (!rc) rc = last;
    pthread_mutex_unlock(&lock);
    return rc;
}

cudaError_t cudaGetLastError(void) {
    cudaError_t rc = cudaPeekAtLastError();
    last = cudaSuccess;
    return rc;
}

static const struct {
    cudaError_t rc;
    const char *name, *text;
} errors[] = {
#define ERROR(name, text)                                                                          \
    { name, #name, text }
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorInvalidValue, "invalid argument"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInitializationError, "initialization error"),
    ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ERROR(cudaErrorInsufficientDriver,
          "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR(cudaErrorNotReady, "device not ready"),
    ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    ERROR(cudaErrorHostMemoryAlreadyRegistered,
          "part or all of the requested memory range is already mapped"),
    ERROR(cudaErrorHostMemoryNotRegistered,
          "pointer does not correspond to a registered memory region"),
    ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR(cudaErrorNotSupported, "operation not supported"),
    ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ERROR(cudaErrorStreamCaptureInvalidated,
          "operation failed due to a previous error during capture"),
    ERROR(cudaErrorStreamCaptureUnmatched, "capture was not initiated in this stream"),
    ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ERROR(cudaErrorStreamCaptureImplicit,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR(cudaErrorCapturedEvent,
          "operation not permitted on an event last recorded in a capturing stream"),
};

const char *cudaGetErrorName(cudaError_t rc) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].rc == rc) return errors[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t rc) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].rc == rc) return errors[i].text;
    return "unrecognized error code";
}

/* Of the driver's tensor maps, only this kind: halves, rows in groups of 64, boxes of a multiple of
 * 8 rows. */
static int encode_tiled(uint64_t map[16], int type, uint32_t rank, void *address,
                        const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                        const uint32_t *steps, int interleave, int swizzle, int l2, int fill) {
    enum { FLOAT16 = 6, SWIZZLE_128B = 3, INVALID_VALUE = 1 };
    (void)l2;
    if (type != FLOAT16 || rank != 3 || interleave || swizzle != SWIZZLE_128B || fill)
        return INVALID_VALUE;
    if ((uintptr_t)address % 16 || strides[0] % 16 || strides[1] != 128 || dims[0] != 64)
        return INVALID_VALUE;
    if (box[0] != 64 || !box[1] || box[1] % 8 || box[1] > 256 || !box[2] || box[2] > 256 ||
        steps[0] != 1 || steps[1] != 1 || steps[2] != 1)
        return INVALID_VALUE;
    memset(map, 0, 16 * sizeof *map);
    map[0] = (uintptr_t)address, map[1] = strides[0], map[2] = dims[1], map[3] = dims[2];
    map[4] = box[1], map[5] = box[2];
    return 0;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
    bool known = strcmp(symbol, "cuTensorMapEncodeTiled") == 0 && version >= 12000;
    cudaError_t rc = sim_enter();
    (void)flags;
    *(int (**)(uint64_t *, int, uint32_t, void *, const uint64_t *, const uint64_t *,
               const uint32_t *, const uint32_t *, int, int, int, int))function =
        known ? encode_tiled : NULL;
    *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return sim_leave(rc);
}
