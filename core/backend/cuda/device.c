/* device.c - opens the CUDA device: features, stream, scratch; closes in reverse. Runs on whichever
 * thread opens it; later calls come from one thread at a time. */
#include "core/backend/cuda/cuda_int.h"

#include "core/backend/module.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_SM = 80 };       /* bf16 and f16 in the tensor cores, asynchronous copies */
#define MEMORY_FRACTION 0.9 /* of the device's memory, if memory_fraction is 0 */
/* What the driver takes beside: graphs, its own buffers, and what allocations are rounded up by. */
#define DRIVER_BYTES (UINT64_C(512) << 20)

int cuda_fail(struct cuda_backend *c, const char *what, cudaError_t rc) {
    if (c->failed.code) return c->failed.code;
    return err_set(&c->failed, ERR_DEVICE, "the CUDA device failed: %s: %s (%s)", what,
                   cudaGetErrorString(rc), cudaGetErrorName(rc));
}

static void close_backend(backend *be) {
    struct cuda_backend *c = cuda_of(be);
    cudaSetDevice(c->features.ordinal);
    if (c->stream) cudaStreamSynchronize(c->stream);
    cuda_graphs_free(c);
    cuda_lt_close(c);
    for (int i = 0; i < CUDA_N_SCRATCH; i++)
        cuda_buf_free(c->scratch[i]);
    cuda_weights_close(c);
    cuda_memory_close(c);
    if (c->stream) cudaStreamDestroy(c->stream);
    free(c);
}

int cuda_scratch_new(struct cuda_backend *c, enum cuda_scratch which, uint64_t bytes, err *e) {
    if (!bytes) return 0;
    int rc = cuda_buf_new(&c->base, bytes, &c->scratch[which], e);
    if (!rc) c->scratch_bytes[which] = bytes;
    return rc;
}

static uint64_t allocated_bytes(const backend *be) {
    return ((const struct cuda_backend *)be)->allocated;
}

static uint64_t memory_limit(const backend *be) {
    return ((const struct cuda_backend *)be)->memory_limit;
}

static uint64_t memory_free(const backend *be) {
    size_t unused = 0, total = 0;
    cudaSetDevice(((const struct cuda_backend *)be)->features.ordinal);
    if (cudaMemGetInfo(&unused, &total)) cudaGetLastError();
    return unused > DRIVER_BYTES ? unused - DRIVER_BYTES : 1;
}

static const struct backend_vtable vtable = {
    .close = close_backend,
    .buf_new = cuda_buf_new,
    .buf_free = cuda_buf_free,
    .upload = cuda_upload,
    .download = cuda_download,
    .weight_new = cuda_weight_new,
    .weight_free = cuda_weight_free,
    .sync = cuda_sync,
    .flush = cuda_flush,
    .upload_all = cuda_upload_all,
    .host_new = cuda_host_new,
    .host_free = cuda_host_free,
    .download_later = cuda_download_later,
    .mark = cuda_mark,
    .wait = cuda_wait,
    .copy_tokens = cuda_copy_tokens,
    .update_history = cuda_update_history,
    .keeps_recorded = true,
    .record = cuda_record,
    .record_end = cuda_record_end,
    .run_recorded = cuda_run_recorded,
    .drop_recorded = cuda_drop_recorded,
    .allocated_bytes = allocated_bytes,
    .memory_limit = memory_limit,
    .memory_free = memory_free,
    .weight_size = cuda_weight_size,
    .copy_bandwidth = cuda_copy_bandwidth,
    .kv_fits = cuda_kv_fits,
    .join = cuda_group_join,
    .part = cuda_group_part,
    .break_group = cuda_group_break,
    .exchange_bytes = cuda_exchange_bytes,
    .embed = cuda_embed,
    .linear = cuda_linear,
    .norm = cuda_norm,
    .moe = cuda_moe,
    .rope_store = cuda_rope_store,
    .paged_attention = cuda_paged_attention,
    .store_attend = cuda_store_attend,
    .gather = cuda_gather,
    .top = cuda_top,
    .sample = cuda_sample,
    .linear_attention = cuda_linear_attention,
    .kv_copy = cuda_kv_copy,
    .all_reduce = cuda_all_reduce,
    .all_gather = cuda_all_gather,
};

static int find_device(struct cuda_backend *c, err *e) {
    struct cuda_features *f = &c->features;
    struct cudaDeviceProp props;
    int n = 0;
    cudaError_t rc = cudaGetDeviceCount(&n);
    if (rc || !n) {
        cudaGetLastError();
        return err_set_param(e, ERR_UNSUPPORTED, "backend",
                             "backend \"cuda\": no NVIDIA GPU can be used here: %s; use cpu",
                             rc ? cudaGetErrorString(rc) : "there is none");
    }
    if (f->ordinal >= n)
        return err_set_param(e, ERR_UNSUPPORTED, "device",
                             "backend \"cuda\": device %d: this machine has %d, from 0 on",
                             f->ordinal, n);
    if ((rc = cudaSetDevice(f->ordinal)) || (rc = cudaGetDeviceProperties(&props, f->ordinal)))
        return err_set_param(e, ERR_UNSUPPORTED, "backend", "backend \"cuda\": device %d of %d: %s",
                             f->ordinal, n, cudaGetErrorString(rc));
    *f = (struct cuda_features){
        .ordinal = f->ordinal,
        .sm = 10 * props.major + props.minor,
        .n_sms = props.multiProcessorCount,
        .shared = (uint32_t)props.sharedMemPerBlockOptin,
        .total_bytes = props.totalGlobalMem,
    };
    snprintf(c->isa, sizeof c->isa, "%.64s, sm_%d", props.name, f->sm);
    if (f->sm < MIN_SM)
        return err_set_param(e, ERR_UNSUPPORTED, "backend",
                             "backend \"cuda\": %s: compute capability 8.0 or higher is needed",
                             c->isa);
    return 0;
}

static int open_parts(struct cuda_backend *c, const struct backend_config *config, err *e) {
    c->features.ordinal = (int)(config->device + config->rank);
    int rc = find_device(c, e);
    if (rc) return rc;
    double fraction = config->memory_fraction > 0 ? config->memory_fraction : MEMORY_FRACTION;
    c->memory_limit = (uint64_t)((double)c->features.total_bytes * fraction);
    cudaError_t crc = cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
    if (crc)
        return err_set(e, ERR_DEVICE, "backend \"cuda\": no stream: %s", cudaGetErrorString(crc));
    if ((rc = cuda_memory_open(c, e)) || (rc = cuda_weights_open(c, e)) ||
        (rc = cuda_tensor_maps_open(c, e)) || (rc = cuda_lt_open(c, e)) ||
        (rc = cuda_linear_scratch(c, config, e)) || (rc = cuda_attention_scratch(c, config, e)) ||
        (rc = cuda_moe_scratch(c, config, e)) || (rc = cuda_top_scratch(c, config, e)) ||
        (rc = cuda_linear_attention_scratch(c, config, e)))
        return rc;
    log_info(
        "cuda: %s, %d multiprocessors, %llu MiB, at most %llu MiB of them for this process; %s",
        c->isa, c->features.n_sms, (unsigned long long)c->features.total_bytes >> 20,
        (unsigned long long)c->memory_limit >> 20, c->lt ? "cuBLASLt" : "without cuBLASLt");
    return 0;
}

int backend_cuda_open(const struct backend_config *config, backend **out, err *e) {
    struct cuda_backend *c = mem_new(1, sizeof *c);
    if (!c) return err_no_memory(e);
    /* Before the first call of the driver, which otherwise loads a kernel when it is launched
     * first. That may wait for the device, where an exchange may wait for another rank, whose
     * thread waits for the driver. */
    if (config->n_ranks > 1) setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    c->base.vt = &vtable;
    c->base.name = "cuda";
    c->base.isa = c->isa;
    c->base.n_threads = 1;
    c->base.max_rows = config->max_rows;
    c->base.max_cols = config->max_cols;
    c->base.moe = config->moe;
    c->base.linear_attention = config->linear_attention;
    int rc = open_parts(c, config, e);
    if (rc) {
        close_backend(&c->base);
        return rc;
    }
    *out = &c->base;
    return 0;
}

/* What the program finds in the module. */
extern const struct backend_module inferd_backend_module;
__attribute__((visibility("default"))) const struct backend_module inferd_backend_module = {
    .abi = BACKEND_MODULE_ABI, .open = backend_cuda_open, .set_log = log_set_sink};
