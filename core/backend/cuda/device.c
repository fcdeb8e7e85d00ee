/* device.c - opens the CUDA device: features, stream, scratch, vtable; closes it in reverse order.
 * Runs on the thread that opens it; later calls come from one thread at a time. */
#include "core/backend/cuda/ops_int.h"

#include "core/backend/module.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_SM = 80 };       /* bf16 and f16 on the tensor cores, asynchronous copies */
#define MEMORY_FRACTION 0.9 /* of the device's memory, if memory_fraction is 0 */
/* Reserved for the driver: graphs, its own buffers, the rounding up of allocations. */
#define DRIVER_BYTES (UINT64_C(512) << 20)

static void close_device(backend *be) {
    struct cuda_backend *c = cuda_of(be);
    cudaSetDevice(c->features.ordinal);
    if (c->stream) cudaStreamSynchronize(c->stream);
    cuda_graphs_free(c);
    cuda_lt_close(c);
    for (int i = 0; i < CUDA_N_SCRATCH; i++)
        cuda_buf_free(c->scratch[i]);
    cuda_weights_close(c);
    cuda_side_close(c);
    cuda_branches_close(c);
    cuda_transfer_close(c);
    if (c->stream) cudaStreamDestroy(c->stream);
    free(c);
}

static uint64_t allocated_bytes(const backend *be) {
    return cuda_memory_held((const struct cuda_backend *)be);
}

static uint64_t scratch_bytes(const backend *be) {
    return ((const struct cuda_backend *)be)->opened_with;
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

#define ENTRY(name, on_cpu, on_metal, on_cuda) BACKEND_ENTRY_##on_cuda(cuda, name)

static const struct backend_vtable vtable = {.close = close_device,
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
                                             .download_async = cuda_download_later,
                                             .event_record = cuda_event_record,
                                             .event_wait = cuda_event_wait,
                                             .side_open = cuda_side_open,
                                             .side_begin = cuda_side_begin,
                                             .side_out = cuda_side_out,
                                             .side_in = cuda_side_in,
                                             .side_end = cuda_side_end,
                                             .side_done = cuda_side_done,
                                             .side_join = cuda_side_join,
                                             .side_wait = cuda_side_wait,
                                             .keeps_graphs = true,
                                             .capture_begin = cuda_capture_begin,
                                             .capture_end = cuda_capture_end,
                                             .graph_launch = cuda_graph_launch,
                                             .graph_discard = cuda_graph_discard,
                                             .allocated_bytes = allocated_bytes,
                                             .scratch_bytes = scratch_bytes,
                                             .memory_limit = memory_limit,
                                             .memory_free = memory_free,
                                             .weight_size = cuda_weight_size,
                                             .copy_bandwidth = cuda_copy_bandwidth,
                                             .kv_fits = cuda_kv_fits,
                                             .joins_shared = cuda_joins_shared,
                                             .links = true,
                                             .group_open = cuda_group_join,
                                             .group_close = cuda_group_part,
                                             .group_break = cuda_group_break,
                                             .linear_sum = cuda_linear_sum,
                                             .exchange_bytes = cuda_exchange_bytes,
                                             BACKEND_OPS(ENTRY, ENTRY)};

static int find_device(struct cuda_backend *c, err *e) {
    struct cuda_features *f = &c->features;
    struct cudaDeviceProp props;
    int n = 0;
    cudaError_t rc = cudaGetDeviceCount(&n);
    if (rc || !n) {
        cudaGetLastError();
        return err_set_param(e, ERR_UNSUPPORTED, "backend",
                             "backend \"cuda\": no usable NVIDIA GPU: %s; use backend = cpu",
                             rc ? cudaGetErrorString(rc) : "none is installed");
    }
    if (f->ordinal >= n)
        return err_set_param(e, ERR_UNSUPPORTED, "device",
                             "backend \"cuda\": no device %d: this machine has %d, numbered from 0",
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
                             "backend \"cuda\" needs compute capability 8.0 or higher; this is %s",
                             c->isa);
    return 0;
}

static int open_device(struct cuda_backend *c, const struct backend_config *config, err *e) {
    c->features.ordinal = (int)config->device;
    int rc = find_device(c, e);
    if (rc) return rc;
    double fraction = config->memory_fraction > 0 ? config->memory_fraction : MEMORY_FRACTION;
    c->memory_limit = (uint64_t)((double)c->features.total_bytes * fraction);
    cudaError_t crc = cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
    if (crc)
        return err_set(e, ERR_DEVICE, "backend \"cuda\": cannot create a stream: %s",
                       cudaGetErrorString(crc));
    if ((rc = cuda_transfer_open(c, e)) || (rc = cuda_branches_open(c, e)) ||
        (rc = cuda_weights_open(c, e)) || (rc = cuda_tensor_maps_open(c, e)) ||
        (rc = cuda_lt_open(c, e)) || (rc = cuda_linear_scratch(c, config, e)) ||
        (rc = cuda_attention_scratch(c, config, e)) || (rc = cuda_heads_scratch(c, config, e)) ||
        (rc = cuda_moe_scratch(c, config, e)) || (rc = cuda_delta_scratch(c, e)) ||
        (rc = cuda_top_scratch(c, config, e)))
        return rc;
    log_info(
        "cuda: %s, %d multiprocessors, %llu MiB, of which this process uses at most %llu MiB; %s",
        c->isa, c->features.n_sms, (unsigned long long)c->features.total_bytes >> 20,
        (unsigned long long)c->memory_limit >> 20, c->lt ? "cuBLASLt" : "no cuBLASLt");
    return 0;
}

int backend_cuda_open(const struct backend_config *config, backend **out, err *e) {
    struct cuda_backend *c = mem_new(1, sizeof *c);
    if (!c) return err_no_memory(e);
    /* Lazy loading would deadlock a group: loading a kernel at its first launch may wait for the
     * device, where an exchange may wait for another rank, whose thread waits for the driver. Only
     * this variable selects eager loading (there is no API for it), and the driver reads it at its
     * first call, which follows. A value set by the user is kept. */
    if (config->n_ranks > 1) setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    c->base.vt = &vtable;
    c->base.name = "cuda";
    c->base.isa = c->isa;
    c->base.n_threads = 1;
    c->base.max_rows = config->max_rows;
    c->base.max_cols = config->max_cols;
    c->base.moe = config->moe;
    c->base.heads = config->heads;
    c->opening = true;
    int rc = open_device(c, config, e);
    c->opening = false;
    if (rc) {
        close_device(&c->base);
        return rc;
    }
    *out = &c->base;
    return 0;
}

/* The symbol that the program looks up in the module (core/backend/module.h). */
extern const struct backend_module inferd_backend_module;
__attribute__((visibility("default"))) const struct backend_module inferd_backend_module = {
    .abi = BACKEND_MODULE_ABI, .open = backend_cuda_open, .set_log = log_set_sink};
