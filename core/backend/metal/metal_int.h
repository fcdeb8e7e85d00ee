/* metal_int.h - private header of the Metal backend. Objective-C with manual reference counting, no
 * classes of its own. Only files of this folder include it.
 *
 * A step is one command buffer, or several parts, each with one concurrent compute encoder. Before
 * a dispatch that uses what an earlier one wrote, or writes what it used, command.m puts a barrier;
 * so each sees what the previous ones wrote, and those between two barriers may run together. The
 * first dispatch opens it, flush or sync commits it. While it runs, the next step may be captured
 * (encoded without being committed); metal_graph_launch commits that one. All buffers are
 * shared-mode: host and device see the same bytes, so an upload is a copy that waits until no step
 * is in flight.
 *
 * A command buffer that ends in an error is sticky: failed holds its text, and every later op and
 * sync returns ERR_DEVICE. */
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
    METAL_MAX_CONSTS = BACKEND_MAX_CONSTS, /* function constants of one pipeline */
    METAL_MAX_BINDS = 20,                  /* buffers of one dispatch, without the arguments */
    METAL_MAX_PIPELINES = 512,
    METAL_MAX_USED = 64,  /* buffers used since the last barrier */
    METAL_MAX_PARTS = 32, /* command buffers of one step; then the oldest is waited for */
    METAL_PAGE = BACKEND_RANGE_ALIGN,
    METAL_SIMD = 32 /* lanes of a simdgroup, as the kernels assume */
};

/* The device's features, found at open; features.m has a table row for each. */
struct metal_features {
    bool simdgroup_matrix; /* Apple7 (M1) and later */
    uint64_t max_buffer_bytes, working_set_bytes;
    enum metal_tiles tiles;
    bool half_matrices; /* a matrix of halves times one of floats is exact */
    struct metal_probe_result {
        uint32_t n_values, n_unequal; /* of matrices, and of those that differ from a chain */
        double most_ulp;              /* the largest difference */
    } chain_probe, half_probe;
    double compile_ms; /* of the sources */
};

struct metal_buf {
    backend_buf base;
    id<MTLBuffer> mtl;
};

/* Host pages wrapped as device buffers: several if they exceed the longest buffer. */
struct metal_range {
    backend_range base;
    const uint8_t *host;
    uint64_t bytes, stride; /* buffer i has the bytes from i * stride on, up to stride of them */
    uint32_t n_parts;
    id<MTLBuffer> *parts;
    struct metal_range *next;
};

struct metal_weight {
    backend_weight base;
    id<MTLBuffer> mtl; /* retained */
    uint64_t offset;   /* of the data in mtl */
    bool in_range;     /* mtl is one of a range's */
};

/* One kernel, specialized by its function constants. */
struct metal_pipeline {
    const char *kernel; /* static storage */
    uint32_t n_consts;
    struct metal_const {
        uint32_t index, value;
    } consts[METAL_MAX_CONSTS];
    uint32_t counter; /* index in backend.kernel_counts */
    uint32_t max_threads, simd_width;
    uint32_t written;  /* bit i: it may write buffer(i) */
    uint32_t tg_bytes; /* of its own */
    double compile_ms;
    id<MTLComputePipelineState> state;
};

/* Dispatches of one kernel in one command buffer; added to the counters when it is committed. */
struct metal_tally {
    uint64_t n, read, written, hidden, cycles;
};

/* Memory between the dispatches of an op. */
enum metal_scratch {
    METAL_SCRATCH_IN,         /* (max_rows, max_cols) f32: a product's input after its norm */
    METAL_SCRATCH_PARTIALS,   /* attention: partial results of the KV splits */
    METAL_SCRATCH_MOE_SCORES, /* enum moe_scratch (moe_plan.h), in its order */
    METAL_SCRATCH_MOE_EXPERTS,
    METAL_SCRATCH_MOE_WEIGHTS,
    METAL_SCRATCH_MOE_LIST,
    METAL_SCRATCH_MOE_TILES,
    METAL_SCRATCH_MOE_FF,
    METAL_SCRATCH_MOE_OUT,
    METAL_SCRATCH_TOP, /* the candidates of each slice of a row */
    METAL_N_SCRATCH
};

struct metal_backend {
    backend base;
    id<MTLDevice> device;
    id<MTLCommandQueue> queue;
    id<MTLLibrary> *libraries; /* (n_libraries), one per source */
    uint32_t n_libraries;
    bool has_plain_tiles; /* their sources are compiled */
    struct metal_features features;
    enum metal_families families;
    struct metal_range *ranges;

    struct metal_pipeline *pipelines; /* (METAL_MAX_PIPELINES) hash table by kernel and constants */
    uint32_t n_pipelines;

    id<MTLCommandBuffer> encoding;        /* ops so far; nil: none */
    id<MTLComputeCommandEncoder> encoder; /* of encoding */
    struct metal_use {
        id<MTLBuffer> mtl;
        bool written;
    } used[METAL_MAX_USED]; /* since the encoder's last barrier */
    uint32_t n_used;
    /* Committed, not waited for yet, oldest first: the parts of one step. */
    id<MTLCommandBuffer> running[METAL_MAX_PARTS];
    uint32_t n_running;
    bool in_parts;                 /* what is encoded continues the step that runs */
    id<MTLCommandBuffer> captured; /* the next step, not committed yet; nil: none */
    bool capturing;                /* encoding is the step being captured */
    enum backend_mode mode;        /* what dispatches do */
    struct metal_tally encoding_tally[BACKEND_MAX_KERNELS];
    struct metal_tally captured_tally[BACKEND_MAX_KERNELS];
    double encoded_s,
        most_s; /* estimated time of encoding; above most_s it is committed. 0: never */
    err failed; /* code 0: healthy */
    bool gone;  /* the device was removed */
    struct metal_residency *residency; /* NULL: none */

    char isa[64];                          /* "Apple M4" */
    char (*names)[64];                     /* (n_kernels) names of kernels, for counters */
    backend_buf *scratch[METAL_N_SCRATCH]; /* allocated at open; NULL: not needed */
};

static inline struct metal_backend *metal_of(backend *be) {
    return (struct metal_backend *)be;
}

/* ---- command.m: dispatches ---- */

/* The buffer that a kernel sees as buffer(i + 1). */
struct metal_bind {
    id<MTLBuffer> mtl;
    uint64_t offset;
};

/* One dispatch. Function constants are all `constant uint NAME [[function_constant(index)]]`, with
 * the indices of an enum in shaders/args*.h; consts must hold each one that the kernel uses. */
struct metal_launch {
    const char *kernel; /* name in the library, static storage */
    uint32_t n_consts;
    struct metal_const consts[METAL_MAX_CONSTS];
    const void *args; /* buffer(0) */
    uint32_t args_bytes;
    uint32_t n_binds;
    struct metal_bind binds[METAL_MAX_BINDS]; /* buffer(1) and up */
    uint32_t tg_bytes;                        /* threadgroup(0), a multiple of 16; 0: none */
    uint32_t groups[3], threads[3];           /* threadgroups of the grid, threads of one */
    uint64_t read, written;                   /* bytes, for the traffic counters */
    /* For the estimated time alone. Multiplications of products and attention, at most; bytes that
     * are not in read because only the device knows how many there are, at most. */
    uint64_t products, hidden_read;
    uint64_t cycles; /* of one lane of an ALU, where cycles.m cannot know them */
};

/* The first function constants of each kernel over state blocks: enum margs_state_const. */
#define METAL_STATE_CONSTS(s, single)                                                              \
    {MARGS_STATE_CHUNK, (s)->chunk}, {MARGS_STATE_TAPS, (s)->n_taps}, {                            \
        MARGS_STATE_SINGLE, single                                                                 \
    }

/* Encodes the dispatch; compiles the pipeline at its first use. ERR_DEVICE (failed names the kernel
 * whose pipeline could not be made). */
int metal_dispatch(struct metal_backend *m, const struct metal_launch *l);
/* Lanes of the kernel's simdgroups; 0: failed. metal_dispatch refuses any but METAL_SIMD. */
uint32_t metal_simd_width(struct metal_backend *m, const struct metal_launch *l);

/* Before memory is freed: waits for what uses it, and discards a captured step. */
void metal_settle(struct metal_backend *m);
int metal_flush(backend *be, err *e); /* ends the encoder and commits */
int metal_sync(backend *be, err *e);  /* flushes and waits */
int metal_recover(backend *be, err *e);
void metal_set_mode(backend *be, enum backend_mode mode);
int metal_capture_begin(backend *be, uint64_t key, err *e);
int metal_capture_end(backend *be, err *e);
int metal_graph_launch(backend *be, err *e);
void metal_graph_discard(backend *be);
/* The first failure stays. `what` says what was attempted. ERR_DEVICE. */
int metal_fail(struct metal_backend *m, const char *what, NSError *error);

static inline struct metal_bind metal_at(const backend_buf *buf) {
    return (struct metal_bind){((const struct metal_buf *)buf)->mtl, 0};
}

/* buf, or if it is NULL a buffer in its place that the kernel does not read. */
static inline struct metal_bind metal_at_or(const backend_buf *buf, const backend_buf *other) {
    return metal_at(buf ? buf : other);
}

static inline struct metal_bind metal_weight_at(const backend_weight *w) {
    const struct metal_weight *mw = (const struct metal_weight *)w;
    return (struct metal_bind){mw->mtl, mw->offset};
}

/* Bytes of one row of w; metal_weight_new refuses rows of 4 GiB and more. */
static inline uint32_t metal_row_bytes(const backend_weight *w) {
    uint64_t bytes = 0;
    qtype_bytes(w->type, 1, w->n_in, &bytes);
    return (uint32_t)bytes;
}

static inline uint32_t metal_div_up(uint64_t a, uint32_t b) {
    return (uint32_t)((a + b - 1) / b);
}

/* ---- attention.m, attention_latent.m ---- */

#define METAL_PARTIAL_BYTES (UINT64_C(32) << 20) /* of METAL_SCRATCH_PARTIALS */

/* Most chunks of a row's context; with a window, of n_rows neighbouring rows together. */
uint32_t metal_max_chunks(const struct op_paged_attention *a, uint32_t chunk, uint32_t n_rows);
/* The sinks; without any, what stands in their place in a kernel's arguments. */
struct metal_bind metal_sinks_of(const struct op_paged_attention *a);
/* n_slices 1, n_splits of chunks of MARGS_ATTENTION_CHUNK tokens. */
struct args_attention metal_attention_args(const struct op_paged_attention *a);

/* op_paged_attention with kv.v_dim. */
int metal_latent_attention(struct metal_backend *m, const struct op_paged_attention *a);

/* ---- cycles.m: what a dispatch costs on the ALUs, in cycles of one lane; 0: not known ---- */
uint64_t metal_cycles(const struct metal_launch *l);
/* Of the vector family: weights of a type that each meet n_rows rows. */
uint64_t metal_product_cycles(int type, uint32_t n_rows, uint64_t n_weights);
/* Elements of K and V that each meet n_heads query heads. */
uint64_t metal_attention_cycles(int type, uint32_t n_heads, uint64_t n_elements);

/* ---- report.m ---- */
bool metal_fact_get(const backend *be, uint32_t i, struct backend_fact *out);
bool metal_pipeline_get(const backend *be, uint32_t i, struct backend_pipeline *out);

/* ---- features.m ---- */
int metal_features_find(struct metal_backend *m, err *e); /* once the device is open */
int metal_probe(struct metal_backend *m, err *e);         /* once the libraries are compiled */
const char *metal_tiles_name(const struct metal_backend *m);
/* Compiles the sources of plain tiles, unless it is done. */
int metal_compile_plain(struct metal_backend *m, err *e); /* device.m */

/* many_rows: by their number alone, tiles would compute the op. */
static inline bool metal_takes_tiles(const struct metal_backend *m, bool many_rows) {
    return m->families == METAL_BY_ROWS ? many_rows : m->families == METAL_TILES_ONLY;
}

/* Whether tiles may keep F16 as halves; a function constant of theirs. */
static inline bool metal_has_halves(const struct metal_backend *m) {
    return m->features.tiles == METAL_TILES_PLAIN || m->features.half_matrices;
}

/* The kernel on tiles; plain: its name on plain fma. */
static inline const char *metal_tile_kernel(const struct metal_backend *m, const char *matrix,
                                            const char *plain) {
    return m->features.tiles == METAL_TILES_PLAIN ? plain : matrix;
}

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

/* ---- residency.m ---- */

/* Keeps the buffers that are added resident until the device was idle for keep_s seconds; 0: does
 * nothing. Where the system cannot, the log says so. Once there is a queue. */
void metal_residency_open(struct metal_backend *m, uint32_t keep_s);
void metal_residency_close(struct metal_backend *m);
void metal_residency_add(struct metal_backend *m, id<MTLBuffer> buffer); /* nil is fine */
void metal_residency_remove(struct metal_backend *m, id<MTLBuffer> buffer);
void metal_residency_use(struct metal_backend *m);     /* before a command buffer is committed */
void metal_residency_requeue(struct metal_backend *m); /* m->queue is a new one */

/* ---- input.m ---- */

/* op_input: adds the residual to x, then norms (n_in up to 32768). *rows: where the product reads
 * its (n_rows, n_in) f32: without a norm x, else out, or METAL_SCRATCH_IN if out is NULL. */
int metal_input(struct metal_backend *m, const struct op_input *in, uint32_t n_rows, uint32_t n_in,
                const backend_buf *out, struct metal_bind *rows);

/* ---- ops, one file per group ---- */

#define METAL_DECLARE(name, on_cpu, on_metal, on_cuda) BACKEND_DECLARE_##on_metal(metal, name)
BACKEND_OPS(METAL_DECLARE, METAL_DECLARE)

/* Whether the kernels support this cache: head_dim a multiple of 8 up to 512, or latent rows of up
 * to 640 dimensions with V of up to 512; block_tokens a multiple of 4 that divides 128. */
bool metal_kv_fits(const struct backend_kv *kv); /* rope_store.m */

/* Allocate an op group's scratch at open, by the config's limits; close frees it. */
int metal_input_scratch(struct metal_backend *m, const struct backend_config *c, err *e);
int metal_attention_scratch(struct metal_backend *m, const struct backend_config *c, err *e);
int metal_moe_scratch(struct metal_backend *m, const struct backend_config *c, err *e);
int metal_top_scratch(struct metal_backend *m, const struct backend_config *c, err *e);

#endif
