/* backend.h - compute devices: cpu, metal and cuda behind one interface. The ops are in ops.h.
 *
 * A backend owns its device memory and a stream of ops. Ops are enqueued in order; only
 * backend_sync, downloads and uploads wait for them. Copies of the side stream run beside them.
 * Buffers and weights are opaque. A device failure is sticky: every later op and backend_sync
 * return ERR_DEVICE, until backend_recover.
 *
 * THREAD SAFETY: one thread at a time per backend; counters may be read from any thread. */
#ifndef INFERD_BACKEND_H
#define INFERD_BACKEND_H

#include "core/backend/link.h"
#include "core/backend/report.h"
#include "core/base/err.h"
#include "core/base/qblock.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct backend backend;
typedef struct backend_buf backend_buf;       /* device memory of a fixed size */
typedef struct backend_weight backend_weight; /* a matrix (n_out, n_in) or vector, read-only */

/* ---- open and close ---- */

struct backend_config {
    /* "cpu", "metal" or "cuda"; "auto": a GPU if the build and the machine have one, else cpu. */
    const char *name;
    int n_threads; /* <= 0: one for each physical core that the process may use */
    /* cpu, and auto's choice of it: "generic", "avx2", "avx512", ... forces that instruction set
     * (tests, bug reports); "" or NULL: the best one. */
    const char *isa;
    uint32_t max_rows; /* maximum rows of an op call; scratch memory is sized by it at open */
    uint32_t max_cols; /* maximum columns (n_in) of a linear op; likewise */
    /* Number of devices that share one model (tensor parallelism), at most BACKEND_MAX_RANKS; 0 is
     * 1. backend_open sets rank for each of them. */
    uint32_t n_ranks, rank;
    backend_link
        *link; /* of n_ranks processes, each with one rank, or NULL; outlives the backend */
    /* cuda: number of the GPU, of the first GPU of a group. With a link, of the first process on
     * this machine; the others take those that follow. backend_open sets it for each rank. */
    uint32_t device;
    /* Maximum share of the device's own memory that this process should hold, 0..1; 0: the
     * device's default. Ignored by devices that share the host's memory. */
    double memory_fraction;
    /* metal: estimated time of one command buffer, above which a step is committed in parts; 0: no
     * bound. */
    uint32_t command_buffer_ms;
    /* metal: seconds without work after which the system may unwire the memory; 0: at once. Longer
     * needs macOS 15. */
    uint32_t resident_s;
    /* cpu: bits of the input of products with quantized weights: 8 (0 is 8) or 16. Metal keeps
     * f32, CUDA rounds to f16. */
    int activation_bits;
    /* The largest op_moe; n_experts 0: none. */
    struct backend_moe_limits {
        uint32_t n_experts, n_used, n_ff;
    } moe;
    /* The largest op_linear_heads; n_heads 0: none. */
    struct backend_head_limits {
        uint32_t n_heads, n_cols; /* n_in and n_out */
    } heads;
};

/* ERR_UNSUPPORTED: unknown name, or the machine lacks the device, the instruction set or n_ranks
 * devices; the text lists what it has. ERR_INVALID: an instruction set of another device.
 * ERR_NOMEM, ERR_DEVICE. */
int backend_open(const struct backend_config *config, backend **out, err *e);
/* Free its buffers and weights first. NULL is fine. Of a group pass rank 0: closes all ranks. */
void backend_close(backend *be);
const char *backend_name(const backend *be); /* "cpu" */
const char *backend_isa(const backend *be);  /* "avx2" */
/* The file of the module that has the device's code; NULL: it is a part of the program. */
const char *backend_module_path(const backend *be);
int backend_n_threads(const backend *be);

/* ---- groups. backend_open returns rank 0, or with a link this process's rank. Each rank is a
 * backend with its own memory, weights and stream, and is driven by its own thread. An exchange
 * (backend_all_reduce, backend_all_gather) completes on a rank when every rank has called it, in
 * the same order with the same shape. ---- */

enum { BACKEND_MAX_RANKS = 16 };
uint32_t backend_rank(const backend *be);       /* 0 without a group */
uint32_t backend_n_ranks(const backend *be);    /* 1 without a group */
uint32_t backend_n_local(const backend *be);    /* ranks in this process */
uint32_t backend_n_here(const backend *be);     /* ranks on this machine */
backend *backend_peer(backend *be, uint32_t i); /* the i-th rank in this process */
/* Prepares the calling thread to drive be: moves it to the processors of the rank's memory node
 * where a rank has one. */
void backend_bind_thread(const backend *be);
/* Makes every exchange of the group return ERR_DEVICE from now on, including those that are
 * waiting. For a rank whose step failed, since the other ranks would wait for it. Any thread. */
void backend_break_group(backend *be);

/* ---- buffers ---- */

/* Zeroed device memory, fully committed on return. ERR_NOMEM. */
int backend_buf_new(backend *be, uint64_t bytes, backend_buf **out, err *e);
void backend_buf_free(backend_buf *buf);
/* Host <-> device copies, in stream order; both wait for all ops enqueued before. */
int backend_upload(backend *be, backend_buf *dst, uint64_t offset, const void *src, uint64_t bytes,
                   err *e);
int backend_download(backend *be, const backend_buf *src, uint64_t offset, void *dst,
                     uint64_t bytes, err *e);
/* Several uploads at once; a device with its own memory copies them in one transfer. Sizes are
 * multiples of 4, destinations do not overlap. */
enum { BACKEND_MAX_UPLOADS = 14 };
struct backend_upload {
    backend_buf *to;
    uint64_t offset, bytes;
    const void *from;
};
int backend_upload_all(backend *be, const struct backend_upload *list, uint32_t n, err *e);
/* The buffer's bytes as the host sees them, without a copy; NULL if the device has its own memory.
 * Contents are defined only after backend_sync. */
const void *backend_buf_host(const backend_buf *buf);

/* ---- weights ---- */

/* Host memory that will hold weights (a mapped file, may be read-only): a device that shares the
 * host's memory then reads them in place. base is a multiple of 16384; bytes is the mapped size
 * from base, up to the end of its last page of 16384. The memory must stay mapped and unchanged
 * until backend_range_free, and the range until its weights are freed. *out is NULL if the device
 * has no use for it. */
typedef struct backend_range backend_range;
enum { BACKEND_RANGE_ALIGN = 16384 };
int backend_range_new(backend *be, const void *base, uint64_t bytes, backend_range **out, err *e);
void backend_range_free(backend_range *range);

/* Uses of a weight; combined where a file uses it twice (tied embeddings). */
enum backend_use {
    BACKEND_USE_EMBED = 1,  /* table of backend_embed */
    BACKEND_USE_LINEAR = 2, /* matrix of backend_linear */
    BACKEND_USE_VECTOR = 4  /* norm or bias: F32, n_out 1 */
};

/* A weight over host bytes (usually the mapped file). data: (n_out, n_in) of type, rows contiguous;
 * a vector is (1, n). With n_experts, that many such matrices (or vectors) follow each other, for
 * op_moe and op_linear_heads. A device keeps its own repacked copy of a weight that is used only
 * for products (backend_weight_bytes is then not 0); every other weight is read from data in place,
 * which must stay valid and unchanged until backend_weight_free. */
struct backend_weight_desc {
    const char *name;   /* for errors */
    int type;           /* enum qtype */
    unsigned use;       /* enum backend_use, at least one */
    uint64_t n_experts; /* 0: a plain weight */
    uint64_t n_out, n_in;
    const void *data;
};
int backend_weight_new(backend *be, const struct backend_weight_desc *desc, backend_weight **out,
                       err *e);
uint64_t backend_weight_bytes(const backend_weight *w); /* device memory besides data */
/* Device memory that backend_weight_new would take on a device with its own memory; does not read
 * data. ERR_UNSUPPORTED: backend_weight_new would refuse it. */
int backend_weight_size(const backend *be, const struct backend_weight_desc *desc, uint64_t *bytes,
                        err *e);
void backend_weight_free(backend_weight *w);

/* Sums up what products with a weight read: for each row of a product with expert g, counts[g]++
 * and sums[g][c] += x[c]^2, where x is the row as rounded for the weight (op_linear). n_groups is
 * n_experts, or 1: all experts count as one. Written while ops run, in an order that depends on the
 * rows alone. */
struct backend_watch {
    double *sums;   /* (n_groups, n_in) */
    double *counts; /* (n_groups) */
    uint64_t n_groups;
};
/* From the next op on; *watch is copied, its memory borrowed until the weight is freed.
 * ERR_UNSUPPORTED: only the CPU watches. */
int backend_weight_watch(backend_weight *w, const struct backend_watch *watch, err *e);

/* ---- the stream ---- */

/* Waits for all enqueued ops. 0 or ERR_DEVICE. */
int backend_sync(backend *be, err *e);
/* Starts the enqueued ops without waiting. 0 or ERR_DEVICE. */
int backend_flush(backend *be, err *e);
/* After a failure: 0 if the device takes ops again. All enqueued ops and captured graphs are gone;
 * buffers that they write hold anything, others and weights are as before. ERR_DEVICE: it is gone,
 * or its driver wants a new process. */
int backend_recover(backend *be, err *e);

/* What ops do from now on; the stream is idle. false: this device only computes. */
enum backend_mode {
    BACKEND_COMPUTES,
    BACKEND_COMPILES, /* they compile the kernels that they need, and compute nothing */
    BACKEND_COUNTS,   /* they count their kernels, and compute nothing */
    BACKEND_TIMES     /* each kernel runs by itself, and its time is counted: slow */
};
bool backend_set_mode(backend *be, enum backend_mode mode);

/* Overlapping steps (backend_can_overlap; cuda): ops enqueued after an event run on while the host
 * waits for the event. backend_download_async has filled `to` (memory of backend_host_new) once an
 * event recorded after it has been waited for. An event can be reused after it was waited for.
 * Other devices accept the same calls: the download waits, and waiting for an event is
 * backend_sync. */
enum { BACKEND_N_EVENTS = 2 };
bool backend_can_overlap(const backend *be);
int backend_host_new(backend *be, uint64_t bytes, void **out, err *e); /* zeroed. ERR_NOMEM */
void backend_host_free(backend *be, void *p);                          /* NULL is fine */
int backend_download_async(backend *be, const backend_buf *src, uint64_t offset, void *to,
                           uint64_t bytes, err *e);
int backend_event_record(backend *be, uint32_t event, err *e); /* event < BACKEND_N_EVENTS */
int backend_event_wait(backend *be, uint32_t event, err *e);

/* THE SIDE STREAM: copies that run while ops run, for what is kept elsewhere and comes back. They
 * are enqueued in batches and run in order; a batch begins after the ops that were enqueued before
 * backend_side_begin. Ops do not wait for copies, unless backend_side_join says so. Nothing here
 * waits but backend_side_wait. Devices without one (cpu, metal) copy at once, as backend_upload and
 * backend_download do: their batches are done when they end.
 *
 * backend_side_open prepares it, once: a copy in is at most most_bytes. It lasts until
 * backend_close. ERR_NOMEM. */
enum { BACKEND_SIDE_BATCHES = 16 }; /* that may be under way: begun and not done */
int backend_side_open(backend *be, uint64_t most_bytes, err *e);
int backend_side_begin(backend *be, err *e);
/* `to` is memory of backend_host_new (of any rank), and the copy's until its batch is done. */
int backend_side_out(backend *be, const backend_buf *src, uint64_t offset, void *to, uint64_t bytes,
                     err *e);
/* `from` is read by the call. ERR_FULL: nothing happened, since copies before it have not ended. */
int backend_side_in(backend *be, backend_buf *dst, uint64_t offset, const void *from,
                    uint64_t bytes, err *e);
int backend_side_end(backend *be, err *e);
/* *n: batches that are done, of all that have ended so far. */
int backend_side_done(backend *be, uint64_t *n, err *e);
/* Ops that are enqueued from now on wait for all batches that have ended. */
int backend_side_join(backend *be, err *e);
/* Waits for all copies. */
int backend_side_wait(backend *be, err *e);

/* Captured steps: ops between capture_begin and capture_end are encoded into a graph instead of
 * run. backend_graph_launch runs the graph with what the buffers hold then (uploads are not
 * captured: they happen at once). backend_can_capture is false on cpu: capture_begin returns
 * ERR_UNSUPPORTED.
 *
 * Metal encodes the next step while the current one runs: a graph runs once; capturing again, or
 * backend_graph_discard, drops a graph that was not launched.
 *
 * With backend_keeps_graphs (cuda), a graph is kept under its key (not 0) and can be launched any
 * number of times while the buffers and weights that it names exist. capture_begin returns 1 if it
 * has a graph of that key (selected for the launch; encode nothing), and graph_discard only clears
 * the selection. */
bool backend_can_capture(const backend *be);
bool backend_keeps_graphs(const backend *be);
int backend_capture_begin(backend *be, uint64_t key, err *e);
int backend_capture_end(backend *be, err *e);
int backend_graph_launch(backend *be, err *e);
void backend_graph_discard(backend *be);

/* ---- counters and measures ---- */

/* Each kernel is counted by name when it runs. */
enum { BACKEND_MAX_KERNELS = 160 };
uint32_t backend_n_kernels(const backend *be);
const char *backend_kernel_name(const backend *be, uint32_t i); /* "paged_attention_f16_avx2" */
uint64_t backend_dispatch_count(const backend *be, uint32_t i);
/* Device memory that kernel i read and wrote in all its dispatches, computed from the shapes it was
 * given; excludes KV cache pages, whose number only the device knows. Both 0 on a device that does
 * not count (cpu). */
void backend_kernel_traffic(const backend *be, uint32_t i, uint64_t *read, uint64_t *written);
/* What else kernel i cost in all its dispatches. */
void backend_kernel_costs(const backend *be, uint32_t i, struct backend_kernel_costs *out);
/* What the device tells of itself, and the kernels that it compiled. false: there is no i-th. Not
 * while ops are called. */
bool backend_fact_get(const backend *be, uint32_t i, struct backend_fact *out);
bool backend_pipeline_get(const backend *be, uint32_t i, struct backend_pipeline *out);
/* Bytes that the device holds for this process now, by its own count, of all backends on it; 0: it
 * does not count. */
uint64_t backend_allocated_bytes(const backend *be);
/* Those that this backend has taken for itself when it was opened: scratch of its ops; 0: none, or
 * not counted. */
uint64_t backend_scratch_bytes(const backend *be);
/* Maximum bytes that the device should hold for this process, including weights that are read in
 * place; 0: no limit of its own (cpu). */
uint64_t backend_memory_limit(const backend *be);
/* Free bytes of the device's own memory, less what its driver needs at run time (at least 1); 0:
 * the device shares the host's memory. */
uint64_t backend_memory_free(const backend *be);
/* Measures the device's copy bandwidth: bytes read plus written per second, the median of a few
 * copies too large for its caches. 0: not available on this device. ERR_NOMEM, ERR_DEVICE. */
int backend_copy_bandwidth(backend *be, double *bytes_per_s, err *e);

#endif
