/* metal_int.h - the Metal device inside. Objective-C, manual reference counting, no classes of our
 * own; nobody outside this folder includes it.
 *
 * A step is one command buffer with one serial compute encoder: dispatches run in the order in
 * which they were encoded and each sees what those before it wrote. It is opened by the first
 * dispatch, committed by flush or sync. While it runs the next step may be encoded (record) and is
 * committed by run_recorded. All buffers are shared-mode: host and device see the same bytes, so
 * uploads are copies that wait until nothing is in flight.
 *
 * A command buffer that ends in error is sticky: failed holds its text, every later op and sync is
 * ERR_DEVICE. */
#ifndef INFERD_METAL_INT_H
#define INFERD_METAL_INT_H

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include "core/backend/args_check.h"
#include "core/backend/backend_int.h"
#include "core/backend/metal/metal.h"
#include "shaders/args_attention.h"
#include "shaders/args_linear.h"

enum {
    METAL_MAX_CONSTS = 12, /* function constants of one pipeline */
    METAL_MAX_BINDS = 20,  /* buffers of one dispatch beside the arguments */
    METAL_MAX_PIPELINES = 512,
    METAL_PAGE = BACKEND_RANGE_ALIGN,
    METAL_SIMD = 32 /* lanes of a simdgroup, as the kernels have it */
};

/* What the device can do, found at open; features.m has a row for each. */
struct metal_features {
    bool simdgroup_matrix; /* Apple7 (M1) on */
    uint64_t max_buffer_bytes, working_set_bytes;
    enum metal_products products;
};

struct metal_buf {
    backend_buf base;
    id<MTLBuffer> mtl;
};

/* Wrapped pages of the host; more than one buffer where it is longer than the device takes. */
struct metal_range {
    backend_range base;
    const uint8_t *host;
    uint64_t bytes, stride; /* buffer i begins at i * stride, and is as long, but the last */
    uint32_t n_parts;
    id<MTLBuffer> *parts;
    struct metal_range *next;
};

struct metal_weight {
    backend_weight base;
    id<MTLBuffer> mtl; /* retained */
    uint64_t offset;   /* of its data in mtl */
};

/* One specialised kernel. */
struct metal_pipeline {
    const char *kernel; /* static storage */
    uint32_t n_consts;
    struct metal_const {
        uint32_t index, value;
    } consts[METAL_MAX_CONSTS];
    uint32_t counter; /* of backend.kernel_counts */
    uint32_t max_threads, simd_width;
    id<MTLComputePipelineState> state;
};

/* Dispatches of one command buffer, by kernel: counted when it is committed. */
struct metal_tally {
    uint64_t n, read, written;
};

/* Memory between the dispatches of an op. */
enum metal_scratch {
    METAL_SCRATCH_IN,          /* (max_rows, max_cols) f32: a product's input after its norm */
    METAL_SCRATCH_PARTS,       /* attention: partial results */
    METAL_SCRATCH_MOE_SCORES,  /* (max_rows, n_experts) f32 */
    METAL_SCRATCH_MOE_EXPERTS, /* of pairs of a row and an expert (moe.metal): the expert u32, */
    METAL_SCRATCH_MOE_WEIGHTS, /* its weight f32, */
    METAL_SCRATCH_MOE_LIST,    /* the pairs of one expert after the other's u32, */
    METAL_SCRATCH_MOE_TILES,   /* what of the list goes together, */
    METAL_SCRATCH_MOE_FF,      /* the hidden layer (n_ff) f32, */
    METAL_SCRATCH_MOE_OUT,     /* the expert's result (max_cols) f32 */
    METAL_SCRATCH_TOP,         /* lists of the best of a row's slices */
    METAL_SCRATCH_STATES,      /* linear attention: states of chunks */
    METAL_N_SCRATCH
};

struct metal_backend {
    backend base;
    id<MTLDevice> device;
    id<MTLCommandQueue> queue;
    id<MTLLibrary> *libraries; /* (n_libraries), one a source */
    uint32_t n_libraries;
    struct metal_features features;
    struct metal_range *ranges;

    struct metal_pipeline *pipelines; /* (METAL_MAX_PIPELINES) hash table by kernel and constants */
    uint32_t n_pipelines;

    id<MTLCommandBuffer> encoding;                   /* ops so far; nil: none */
    id<MTLComputeCommandEncoder> encoder;            /* of encoding */
    id<MTLCommandBuffer> running;                    /* committed last, not waited for; nil: none */
    id<MTLCommandBuffer> recorded;                   /* encoded ahead, not committed; nil: none */
    bool recording;                                  /* encoding is the step encoded ahead */
    struct metal_tally encoded[BACKEND_MAX_KERNELS]; /* of encoding */
    struct metal_tally ahead[BACKEND_MAX_KERNELS];   /* of recorded */
    err failed;                                      /* code 0: healthy */

    char isa[64];                          /* "Apple M4" */
    char (*names)[64];                     /* (n_kernels) names of kernels, for counters */
    backend_buf *scratch[METAL_N_SCRATCH]; /* taken at open; NULL: not needed */
};

static inline struct metal_backend *metal_of(backend *be) {
    return (struct metal_backend *)be;
}

/* ---- command.m: dispatches ---- */

/* What a kernel's buffer(i + 1) is. */
struct metal_bind {
    id<MTLBuffer> mtl;
    uint64_t offset;
};

/* One dispatch. Function constants are all `constant uint NAME [[function_constant(index)]]`; those
 * that the kernel uses must be here. */
struct metal_launch {
    const char *kernel; /* name in the library, static storage */
    uint32_t n_consts;
    struct metal_const consts[METAL_MAX_CONSTS];
    const void *args; /* buffer(0) */
    uint32_t args_bytes;
    uint32_t n_binds;
    struct metal_bind binds[METAL_MAX_BINDS]; /* buffer(1) on */
    uint32_t tg_bytes;                        /* threadgroup(0), a multiple of 16; 0: none */
    uint32_t groups[3], threads[3];           /* threadgroups of the grid, threads of one */
    uint64_t read, written;                   /* bytes, for the traffic counters */
};

/* Encodes; compiles the specialisation first if it is new. ERR_DEVICE (a pipeline that cannot be
 * made names the kernel in failed). */
int metal_dispatch(struct metal_backend *m, const struct metal_launch *l);
/* Lanes of its simdgroups; 0: failed. With others than METAL_SIMD it is not dispatched. */
uint32_t metal_simd_width(struct metal_backend *m, const struct metal_launch *l);

/* Ends the encoder and commits; waits. */
int metal_flush(backend *be, err *e);
int metal_sync(backend *be, err *e);
int metal_record(backend *be, uint64_t key, err *e);
int metal_record_end(backend *be, err *e);
int metal_run_recorded(backend *be, err *e);
void metal_drop_recorded(backend *be);
int metal_fail(struct metal_backend *m, const char *what, NSError *error);

static inline struct metal_bind metal_at(const backend_buf *buf) {
    return (struct metal_bind){((const struct metal_buf *)buf)->mtl, 0};
}

/* buf where it is given, else a buffer that the kernel does not look at. */
static inline struct metal_bind metal_at_or(const backend_buf *buf, const backend_buf *other) {
    return metal_at(buf ? buf : other);
}

static inline struct metal_bind metal_weight_at(const backend_weight *w) {
    const struct metal_weight *mw = (const struct metal_weight *)w;
    return (struct metal_bind){mw->mtl, mw->offset};
}

/* Of one row of w; weight_new refuses what does not fit. */
static inline uint32_t metal_row_bytes(const backend_weight *w) {
    uint64_t bytes = 0;
    qtype_bytes(w->type, 1, w->n_in, &bytes);
    return (uint32_t)bytes;
}

static inline uint32_t metal_div_up(uint64_t a, uint32_t b) {
    return (uint32_t)((a + b - 1) / b);
}

/* ---- features.m ---- */
int metal_features_find(struct metal_backend *m, err *e); /* device is open */
int metal_probe(struct metal_backend *m, err *e);         /* libraries are there */
const char *metal_products_name(enum metal_products p);

/* Embedded sources (generated from shaders/metal by scripts/embed-metal). */
struct metal_source {
    const char *name; /* "rows.metal" */
    const char *text; /* NUL-terminated */
};
extern const struct metal_source metal_sources[];
extern const uint32_t metal_n_sources;

/* ---- memory.m ---- */
int metal_buf_new(backend *be, uint64_t bytes, backend_buf **out, err *e);
void metal_buf_free(backend_buf *buf);
int metal_upload(backend *be, backend_buf *dst, uint64_t offset, const void *src, uint64_t bytes,
                 err *e);
int metal_download(backend *be, const backend_buf *src, uint64_t offset, void *dst, uint64_t bytes,
                   err *e);
int metal_range_new(backend *be, const void *base, uint64_t bytes, backend_range **out, err *e);
void metal_range_free(backend_range *range);
int metal_weight_new(backend *be, const struct backend_weight_desc *desc, backend_weight **out,
                     err *e);
void metal_weight_free(backend_weight *w);
uint64_t metal_allocated_bytes(const backend *be);
uint64_t metal_memory_limit(const backend *be);

/* ---- input.m ---- */

/* op_input: adds what is pending to x, norms (n_in up to 32768). *rows: where the product reads its
 * (n_rows, n_in) f32: x itself without a norm, else out, or METAL_SCRATCH_IN where out is NULL. */
int metal_input(struct metal_backend *m, const struct op_input *in, uint32_t n_rows, uint32_t n_in,
                const backend_buf *out, struct metal_bind *rows);

/* ---- ops, one file a group ---- */

#define METAL_DECLARE(name, on_cpu, on_metal, on_cuda) BACKEND_DECLARE_##on_metal(metal, name)
BACKEND_OPS(METAL_DECLARE, METAL_DECLARE)

/* Have the kernels a shape for such a cache: head_dim a multiple of 8 up to 256, block_tokens a
 * multiple of 4 that divides 128? */
bool metal_kv_fits(const struct backend_kv *kv); /* rope_store.m */

/* Scratch that an op group needs, taken at open from the config's limits; freed by close. */
int metal_input_scratch(struct metal_backend *m, const struct backend_config *c, err *e);
int metal_attention_scratch(struct metal_backend *m, const struct backend_config *c, err *e);
int metal_moe_scratch(struct metal_backend *m, const struct backend_config *c, err *e);
int metal_top_scratch(struct metal_backend *m, const struct backend_config *c, err *e);
int metal_linear_attention_scratch(struct metal_backend *m, const struct backend_config *c, err *e);

#endif
