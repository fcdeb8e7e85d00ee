/* state_int.h - the CUDA device's state and what every layer above may do with it: report a
 * failure, wait for the stream, look up buffers.
 *
 * The backend's layers, each of which uses only those above it in this list:
 *   state_int.h    state.c                                 the device, failures, the stream
 *   launch_int.h   launch.c graph.c branch.c               kernel launches, CUDA graphs, branches
 *   memory_int.h   memory.c transfer.c side.c tensor_map.c allocation, copies, TMA descriptors
 *   gemm_int.h     input.c epilogue.c lt.c tile.c large.c linear.c tune.c   matrix products
 *   ops_int.h      the other ops, weights.c, comm.c; device.c puts them into the vtable
 * Only files of this folder (and its tests and benchmarks) include these headers.
 *
 * All ops go to one stream; within an op, branch.c forks others from it and joins them, and side.c
 * has one for copies beside the ops. A step may be captured into a CUDA graph and replayed; graphs
 * are kept under the key that the model gives them. Kernels lie in shaders/cuda; a launcher fills
 * the kernel's argument struct and calls cuda_launch.
 *
 * A CUDA error is sticky: `failed` holds its text, every later op and sync returns ERR_DEVICE.
 *
 * NUMERICS: see shaders/cuda/format.h: one order of sums for every product, whatever kernel
 * computes it. */
#ifndef INFERD_CUDA_STATE_INT_H
#define INFERD_CUDA_STATE_INT_H

#include "core/backend/args_check.h"
#include "core/backend/backend_int.h"
#include "shaders/args_attention.h"
#include "shaders/args_linear.h"
#include "shaders/cuda/format.h"

#include <cuda_runtime_api.h>

enum {
    CUDA_MAX_FUNCTIONS = 512,
    CUDA_MAX_GRAPHS = 96,         /* kept; the least recently used is evicted first */
    CUDA_STAGING = 4 << 20,       /* bytes of pinned memory for uploads */
    CUDA_SIDE_STAGING = 16 << 20, /* the same of the side stream, at least */
    CUDA_LT_WORKSPACE = 32 << 20, /* bytes of CUDA_SCRATCH_LT */
    CUDA_BRANCHES = 4,            /* products that run at once, at most (branch.c) */
    CUDA_BRANCH_ROWS = 128,       /* and the most rows of each */
    /* Bytes of CUDA_SCRATCH_LT for a product of up to CUDA_BRANCH_ROWS rows. */
    CUDA_LT_PART = CUDA_LT_WORKSPACE / CUDA_BRANCHES / 256 * 256,
    CUDA_LARGE_ROWS = 384, /* from this many rows on, decode quantized weights once (large.c) */
    CUDA_SKINNY_ROWS = 32  /* most rows of a skinny GEMM (linear.c) */
};

/* What the device can do, found at open. */
struct cuda_features {
    int ordinal;
    int sm;          /* compute capability, 90 = 9.0 */
    int n_sms;       /* multiprocessors */
    uint32_t shared; /* most bytes of shared memory of a block */
    uint64_t total_bytes;
};

struct cuda_buf {
    backend_buf base;
    void *dev;
};

/* A weight in device memory, in one or two forms. */
struct cuda_weight {
    backend_weight base;
    /* For products (BACKEND_USE_LINEAR); expert e starts at e * expert_bytes. */
    int format;            /* enum cuda_format */
    const void *product;   /* format.h */
    uint64_t expert_bytes; /* of one matrix in product */
    float scale;           /* a power of two; products with this weight are multiplied by it */
    /* As in the file: rows of base.type for embed, f32 for vectors; NULL if not needed.
     * May equal product; then a BF16 weight's values are not those of the file (format.h). */
    const void *raw;
    float largest; /* of a vector: its largest magnitude; infinite if any value is not finite */
    uint64_t product_bytes, raw_bytes; /* of their own allocations */
};

/* A kernel that has been launched. */
struct cuda_function {
    const void *kernel;
    uint32_t counter;   /* index of its name's counters */
    bool allows_shared; /* all of a multiprocessor's shared memory was enabled */
};

/* Launches of one kernel in a captured graph; added to its counters at each replay. */
struct cuda_kernel_count {
    uint32_t kernel;
    uint64_t n, read, written;
};

struct cuda_graph {
    uint64_t key; /* 0: free */
    cudaGraphExec_t exec;
    struct cuda_kernel_count *counts; /* (n_counts) */
    uint32_t n_counts;
    uint64_t used; /* value of cuda_backend.clock at its last run */
};

/* Memory between the launches of an op, allocated at open. */
enum cuda_scratch {
    CUDA_SCRATCH_IN16,        /* (max_rows, pitch of max_cols) f16: a product's input */
    CUDA_SCRATCH_IN_SCALE,    /* (max_rows) f32: factor of each input row, applied afterwards */
    CUDA_SCRATCH_IN32,        /* (max_rows, max_cols) f32: input of F32 weights */
    CUDA_SCRATCH_PAIR,        /* (max_rows, 2 widest pair) f32: gate and up before the activation */
    CUDA_SCRATCH_DECODED,     /* a quantized matrix as row-major f16, for cuBLASLt */
    CUDA_SCRATCH_LT,          /* cuBLASLt's workspace */
    CUDA_SCRATCH_PARTIALS,    /* attention: partial results of KV splits */
    CUDA_SCRATCH_MOE_SCORES,  /* (max_rows, n_experts) f32 */
    CUDA_SCRATCH_MOE_EXPERTS, /* u32: expert of each (row, expert) pair */
    CUDA_SCRATCH_MOE_WEIGHTS, /* f32: routing weight of each pair */
    CUDA_SCRATCH_MOE_LIST,    /* u32: the pairs, sorted by expert */
    CUDA_SCRATCH_MOE_TILES,   /* ranges of the list that are multiplied together */
    CUDA_SCRATCH_MOE_FF,      /* (pairs, n_ff) f32: the hidden layer */
    CUDA_SCRATCH_MOE_OUT,     /* (pairs, max_cols) f32: the experts' results */
    CUDA_SCRATCH_HEADS_LIST,  /* products by head: the pairs of rows and heads, by head */
    CUDA_SCRATCH_HEADS_TILES, /* ranges of that list */
    CUDA_SCRATCH_TOP,         /* the best candidates of each slice of a row */
    CUDA_SCRATCH_DELTA_DONE,  /* (CUDA_DELTA_COUNTERS) u32, 0 between launches */
    CUDA_N_SCRATCH
};

/* How tests and benchmarks override linear.c's and peer.c's choices; 0: their own choice. Not to be
 * changed while a step is captured. */
struct cuda_force {
    enum cuda_path { CUDA_PATH_AUTO, CUDA_PATH_SKINNY, CUDA_PATH_TILE, CUDA_PATH_LARGE } path;
    uint32_t block_tiles, n_stages; /* of the skinny GEMM: upper bounds */
    bool one_stream;                /* products of one input run one after the other */
    enum cuda_exchange { CUDA_EXCHANGE_AUTO, CUDA_EXCHANGE_NCCL } exchange;
};

/* Upload path of weights (weights.c). */
struct cuda_loader {
    uint8_t *pinned[2];      /* a chunk of rows each */
    cudaEvent_t uploaded[2]; /* the device has read pinned[i] */
    int next;                /* index into pinned */
    void *rows;              /* a chunk on the device */
    struct cuda_repack_state *state;
};

/* The fastest kernel for products with weights of one shape, by number of rows (tune.c). */
enum { CUDA_TILE_BUCKETS = 4, CUDA_MAX_TILE_PLANS = 96 };
struct cuda_tile_plan {
    int format;
    bool pair;
    uint32_t n_out, n_in;
    uint8_t best[CUDA_TILE_BUCKETS]; /* a kernel of tile.c, or CUDA_BEST_* */
};

/* What CUDA_SCRATCH_IN16 and _IN32 hold, as long as the number of launches is n_launches. */
struct cuda_ready {
    uint64_t n_launches; /* 0: unknown */
    const void *x, *norm;
    float eps;
    uint32_t n_rows, n_in, kinds; /* kinds: of enum cuda_in */
    bool early; /* the last launch lets the next one start when it has the input */
};

/* The side stream (side.c). Batch i has place i % BACKEND_SIDE_BATCHES. */
struct cuda_side {
    cudaStream_t stream;                         /* NULL: not open */
    cudaEvent_t behind, ahead;                   /* ops before a batch; copies before a join */
    cudaEvent_t done[BACKEND_SIDE_BATCHES];      /* the end of a batch */
    uint64_t n_ended, n_done;                    /* batches */
    uint8_t *staging;                            /* (n_staging) pinned, a ring */
    uint64_t n_staging, staged, unstaged;        /* bytes in all; of those that are free again */
    uint64_t batch_staged[BACKEND_SIDE_BATCHES]; /* value of staged when the batch ended */
};

/* Streams beside `stream` for products of one input (branch.c). Branch 0 is `stream` itself. */
struct cuda_branches {
    cudaStream_t trunk;                  /* `stream`, while branch `at` has its place */
    cudaStream_t streams[CUDA_BRANCHES]; /* from 1 on */
    cudaEvent_t forked;                  /* what all branches follow */
    cudaEvent_t ended[CUDA_BRANCHES];    /* from 1 on */
    uint32_t at;                         /* the branch that launches go to */
};

/* The sums of the ranks that may be running in a stream of their own (overlap.c). */
enum { CUDA_OVERLAP_PARTS = 2 };
struct cuda_pending {
    const void *x; /* (n_rows, columns) f32; NULL: none are running */
    uint32_t n_rows, n_parts;
    uint32_t end[CUDA_OVERLAP_PARTS]; /* of each part: the first row after it */
};

/* The rows of a product that is made in parts (overlap.c): those of the part start at `first`. */
struct cuda_part {
    uint32_t first, of; /* of: all rows; 0: it is made at once */
};

struct cuda_backend;

/* A sum of the ranks that has not begun: the next product or norm makes it itself
 * if it is its residual (input.c), and anything else begins it first (cuda_enter). */
struct cuda_deferred {
    struct cargs_peer args; /* x NULL: there is none */
    int (*begin)(struct cuda_backend *c, const struct cargs_peer *args);
};

/* An epilogue that has not begun, because the next op alone reads its y: if that is a product, its
 * input's launch makes it (input.c); anything else begins it first (cuda_enter). Of a pair, whose
 * sums are in CUDA_SCRATCH_PAIR; or of a product whose sums are in y and only lack their scales.
 * CUDA_SCRATCH_IN_SCALE has the rows'. */
struct cuda_put_off {
    struct cargs_apply_epilogue args; /* y NULL: there is none */
    int (*begin)(struct cuda_backend *c, const struct cargs_apply_epilogue *args);
};

struct cuda_backend {
    backend base;
    struct cuda_tile_plan tile_plans[CUDA_MAX_TILE_PLANS];
    uint32_t n_tile_plans;
    uint64_t n_launches, n_launches_tile; /* so far; value after the last launch of tile.c */
    struct cuda_ready ready;
    bool has_wgmma; /* product_wgmma.cu may be used (tune.c) */
    struct cuda_force force;
    struct cuda_features features;
    uint64_t memory_limit; /* most bytes that this process should hold */
    cudaStream_t stream;
    /* cuTensorMapEncodeTiled (tensor_map.c); NULL before sm_90 */
    int (*encode_tensor_map)(struct cuda_tensor_map *, int type, uint32_t rank, void *address,
                             const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                             const uint32_t *steps, int interleave, int swizzle, int l2, int fill);
    bool opening;
    uint64_t opened_with; /* bytes taken when it was opened */
    uint8_t *staging;     /* (CUDA_STAGING) pinned, a ring */
    /* Total bytes staged so far, and the part of them whose copies have completed. */
    uint64_t staged, unstaged;
    cudaEvent_t events[BACKEND_N_EVENTS];
    uint64_t event_staged[BACKEND_N_EVENTS]; /* value of staged when the event was recorded */
    /* The last thing in the stream was an upload, a wait or no kernel of ours: the next launch must
     * not overlap it. */
    bool after_other;
    struct cuda_side side;
    struct cuda_branches branches;
    cudaStream_t sums; /* NULL: the ranks' sums are in `stream` */
    cudaEvent_t made[CUDA_OVERLAP_PARTS], summed[CUDA_OVERLAP_PARTS];
    struct cuda_pending pending;
    struct cuda_part part; /* of the product that is being launched */
    struct cuda_deferred deferred;
    struct cuda_put_off put_off;
    /* The exchange of what the next product makes; x NULL: none. n_ranks 0: copies carry it beside
     * the product after it, and it is only asked for its scales. */
    struct cargs_peer outgoing;
    int (*end_capture)(struct cuda_backend *c); /* peer.c's last part of a capture, or NULL */
    struct cuda_loader loader;
    struct cuda_graph graphs[CUDA_MAX_GRAPHS];
    struct cuda_graph *graph; /* chosen by cuda_capture_begin, for cuda_graph_launch; NULL: none */
    uint64_t clock;           /* graph runs so far */
    bool capturing;
    uint64_t n_captures;                                    /* so far, with the one in progress */
    struct cuda_kernel_count captured[BACKEND_MAX_KERNELS]; /* of the capture in progress */
    struct cuda_function functions[CUDA_MAX_FUNCTIONS];     /* (n_functions) launched so far */
    uint32_t n_functions;
    struct cuda_lt *lt;              /* lt.c; NULL: no cuBLASLt */
    struct cuda_group *group;        /* comm.c; shared by its ranks; NULL: a single device */
    const atomic_bool *group_broken; /* of group */
    uint32_t *group_stop;            /* of group; not 0: its kernels end waiting. Pinned memory */
    struct cuda_peer *peer;          /* peer.c; NULL: NCCL does all exchanges */
    err failed;                      /* code 0: healthy */
    char isa[96];                    /* "NVIDIA H200, sm_90" */
    float in_scale; /* common to all rows in CUDA_SCRATCH_IN_SCALE; 0: each has its own */
    backend_buf *scratch[CUDA_N_SCRATCH]; /* NULL: not needed */
    uint64_t scratch_bytes[CUDA_N_SCRATCH];
};

static inline struct cuda_backend *cuda_of(backend *be) {
    return (struct cuda_backend *)be;
}

/* Records a failure of the CUDA call or op that `what` names, unless one is recorded already.
 * Returns ERR_DEVICE. */
int cuda_fail(struct cuda_backend *c, const char *what, cudaError_t rc);
/* Copies the recorded failure, if there is one, to e. Returns its code or 0. */
int cuda_failure(const struct cuda_backend *c, err *e);
/* cuda_fail unless rc is 0, then cuda_failure. */
int cuda_check(struct cuda_backend *c, const char *what, cudaError_t rc, err *e);
/* Waits until the stream is empty. 0 or ERR_DEVICE, also if another rank broke the group. */
int cuda_sync(backend *be, err *e);

/* Lets the stream wait for the sums of the ranks that run beside it. */
void cuda_await_sums(struct cuda_backend *c);
/* Begins the sum that was put off. */
void cuda_begin_deferred(struct cuda_backend *c);
/* Begins the epilogue that was put off. */
void cuda_begin_put_off(struct cuda_backend *c);

/* To be called before calls of the CUDA runtime: the current device is a thread's own. */
static inline void cuda_enter(struct cuda_backend *c) {
    if (c->group) cudaSetDevice(c->features.ordinal);
    if (c->put_off.args.y) cuda_begin_put_off(c);
    if (c->pending.x) cuda_await_sums(c);
    if (c->deferred.args.x) cuda_begin_deferred(c);
}

/* After work that is not counted as a launch: nothing is known about the launches before it. */
static inline void cuda_forget(struct cuda_backend *c) {
    c->n_launches_tile = c->ready.n_launches = 0;
}

static inline bool cuda_group_is_broken(const struct cuda_backend *c) {
    return c->group_broken && atomic_load(c->group_broken);
}

/* Device address of buf, or NULL. */
static inline void *cuda_at(const backend_buf *buf) {
    return buf ? ((const struct cuda_buf *)buf)->dev : NULL;
}

static inline void *cuda_scratch(const struct cuda_backend *c, enum cuda_scratch which) {
    return cuda_at(c->scratch[which]);
}

static inline const struct cuda_weight *cuda_weight_of(const backend_weight *w) {
    return (const struct cuda_weight *)w;
}

/* Device address of a vector's f32 values, or NULL. */
static inline const float *cuda_vector(const backend_weight *w) {
    return w ? (const float *)cuda_weight_of(w)->raw : NULL;
}

static inline uint32_t cuda_div_up(uint64_t a, uint32_t b) {
    return (uint32_t)((a + b - 1) / b);
}

#endif
