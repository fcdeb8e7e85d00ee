/* cuda_int.h - the CUDA device inside: what the files of this folder share. Nobody else includes
 * it.
 *
 * All ops go to one stream. A step may be captured into a graph (record) and replayed; graphs are
 * kept by the key that the model gives them. Kernels lie in shaders/cuda; a launcher here fills a
 * struct of shaders/cuda/cargs.h and calls cuda_launch.
 *
 * An error of the driver is sticky: failed holds its text, every later op and sync is ERR_DEVICE.
 *
 * NUMERICS: see shaders/cuda/format.h and the head of shaders/cuda/product.cuh: one order of sums
 * for every product, whatever kernel computes it. */
#ifndef INFERD_CUDA_INT_H
#define INFERD_CUDA_INT_H

#include "core/backend/backend_int.h"
#include "shaders/cuda/cargs.h"
#include "shaders/cuda/format.h"

#include <cuda_runtime_api.h>

enum {
    CUDA_MAX_FUNCTIONS = 512,
    CUDA_MAX_GRAPHS = 96,         /* kept; the least recently run goes first */
    CUDA_STAGING = 4 << 20,       /* bytes of pinned memory for uploads */
    CUDA_LT_WORKSPACE = 32 << 20, /* bytes of CUDA_SCRATCH_LT */
    CUDA_LARGE_ROWS = 384, /* from here on quantized weights are better decoded once (large.c) */
    CUDA_SKINNY_ROWS = 32, /* most rows of the products that stream weights (linear.c) */
    CUDA_SHARED_MAX = 227 << 10 /* most shared memory of a block, on the largest device */
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
    /* For products (BACKEND_USE_LINEAR); experts follow each other at expert_bytes. */
    int format;            /* enum cuda_format */
    const void *product;   /* format.h */
    uint64_t expert_bytes; /* of one matrix in product */
    float scale;           /* a power of two: what products with it are multiplied by */
    /* As in the file: rows of base.type for embed, f32 for vectors; NULL where nothing needs them.
     * May be product, whose values, of a BF16 weight, are not those of the file (format.h). */
    const void *raw;
    float largest; /* of a vector: its largest magnitude, infinite where one is not finite */
    uint64_t product_bytes, raw_bytes; /* of their own memory */
};

/* A kernel that was launched. */
struct cuda_function {
    const void *kernel;
    uint32_t counter;        /* of its name */
    uint32_t allowed_shared; /* bytes of shared memory that were asked for */
};

/* Launches of a captured step, by kernel: counted each time it runs. */
struct cuda_tally {
    uint32_t kernel;
    uint64_t n, read, written;
};

struct cuda_graph {
    uint64_t key; /* 0: free */
    cudaGraphExec_t exec;
    struct cuda_tally *tally; /* (n_tally) */
    uint32_t n_tally;
    uint64_t used; /* of cuda_backend.clock, when it ran last */
};

/* Memory between the launches of an op, taken at open. */
enum cuda_scratch {
    CUDA_SCRATCH_IN16,        /* (max_rows, pitch of max_cols) f16: a product's input */
    CUDA_SCRATCH_IN_SCALE,    /* (max_rows) f32: what its rows are multiplied by afterwards */
    CUDA_SCRATCH_IN32,        /* (max_rows, max_cols) f32: input of F32 weights */
    CUDA_SCRATCH_PAIR,        /* (max_rows, 2 widest pair) f32: gate and up before the activation */
    CUDA_SCRATCH_DECODED,     /* a quantized matrix as row-major f16, for cuBLASLt */
    CUDA_SCRATCH_LT,          /* cuBLASLt's workspace */
    CUDA_SCRATCH_PARTS,       /* attention: partial results of chunks */
    CUDA_SCRATCH_MOE_SCORES,  /* (max_rows, n_experts) f32 */
    CUDA_SCRATCH_MOE_EXPERTS, /* pairs of a row and an expert: the expert u32, */
    CUDA_SCRATCH_MOE_WEIGHTS, /* its weight f32, */
    CUDA_SCRATCH_MOE_LIST,    /* the pairs of one expert after the other's u32, */
    CUDA_SCRATCH_MOE_TILES,   /* what of the list goes together, */
    CUDA_SCRATCH_MOE_FF,      /* the hidden layer (n_ff) f32, */
    CUDA_SCRATCH_MOE_OUT,     /* the expert's result (max_cols) f32 */
    CUDA_SCRATCH_TOP,         /* lists of the best of a row's slices */
    CUDA_SCRATCH_STATES,      /* linear attention: states of chunks */
    CUDA_N_SCRATCH
};

/* What tests and benchmarks hold linear.c to; 0: its own choice. Not while a step is recorded. */
struct cuda_force {
    enum cuda_way { CUDA_WAY_BEST, CUDA_WAY_SKINNY, CUDA_WAY_TILE, CUDA_WAY_LARGE } way;
    uint32_t block_tiles, n_stages; /* of the skinny kernels: at most these */
};

/* What weights go through on their way to the device (weights.c). */
struct cuda_loader {
    uint8_t *pinned[2];  /* a chunk of rows each */
    cudaEvent_t read[2]; /* the device has read it */
    int next;            /* of pinned */
    void *rows;          /* a chunk on the device */
    struct cuda_repack_state *state;
};

/* What was fastest for products with weights of a shape, by the number of rows: tile.c. */
enum { CUDA_TILE_BUCKETS = 4, CUDA_MAX_TILE_PLANS = 96 };
struct cuda_tile_plan {
    int format;
    bool pair;
    uint32_t n_out, n_in;
    uint8_t best[CUDA_TILE_BUCKETS];
};

struct cuda_backend {
    backend base;
    struct cuda_tile_plan tile_plans[CUDA_MAX_TILE_PLANS];
    uint32_t n_tile_plans;
    uint64_t n_launches, n_launches_tile; /* so far; with the last product of tile.c */
    bool has_wgmma;                       /* product_wgmma.cu may be used (tile.c) */
    struct cuda_force force;
    struct cuda_features features;
    uint64_t memory_limit; /* bytes that it should hold at most */
    cudaStream_t stream;
    /* cuTensorMapEncodeTiled (tensor_map.c); NULL before sm_90 */
    int (*encode_tensor_map)(struct cuda_tensor_map *, int type, uint32_t rank, void *address,
                             const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                             const uint32_t *steps, int interleave, int swizzle, int l2, int fill);
    uint64_t allocated; /* bytes held */
    uint8_t *staging;   /* (CUDA_STAGING) pinned */
    /* Bytes staged so far, and those that no copy reads any more: staging goes round. */
    uint64_t staged, unstaged;
    cudaEvent_t marks[BACKEND_MARKS];
    uint64_t marked[BACKEND_MARKS]; /* staged at the mark */
    bool uploading; /* the last launch was an upload: the next one begins when it has ended */
    struct cuda_loader loader;
    struct cuda_graph graphs[CUDA_MAX_GRAPHS];
    struct cuda_graph *recorded; /* chosen by record, run by run_recorded; NULL: none */
    uint64_t clock;
    bool capturing;
    struct cuda_tally captured[BACKEND_MAX_KERNELS];    /* of the capture under way, by kernel */
    struct cuda_function functions[CUDA_MAX_FUNCTIONS]; /* (n_functions) launched so far */
    uint32_t n_functions;
    struct cuda_lt *lt;       /* lt.c; NULL: there is no cuBLASLt */
    struct cuda_group *group; /* comm.c; shared by its ranks, NULL: alone */
    err failed;               /* code 0: healthy */
    char isa[96];             /* "NVIDIA H200 (sm_90)" */
    float in_scale;           /* of all rows in CUDA_SCRATCH_IN_SCALE; 0: each has its own */
    backend_buf *scratch[CUDA_N_SCRATCH]; /* NULL: not needed */
    uint64_t scratch_bytes[CUDA_N_SCRATCH];
};

static inline struct cuda_backend *cuda_of(backend *be) {
    return (struct cuda_backend *)be;
}

/* ---- device.c ---- */
int cuda_fail(struct cuda_backend *c, const char *what, cudaError_t rc); /* ERR_DEVICE, sticky */
/* A scratch buffer of so many bytes (0: none). ERR_NOMEM. */
int cuda_scratch_new(struct cuda_backend *c, enum cuda_scratch which, uint64_t bytes, err *e);

static inline void *cuda_scratch(const struct cuda_backend *c, enum cuda_scratch which) {
    const struct cuda_buf *b = (const struct cuda_buf *)c->scratch[which];
    return b ? b->dev : NULL;
}

/* Before calls of the runtime: a thread has a device of its own choice. */
static inline void cuda_enter(const struct cuda_backend *c) {
    if (c->group) cudaSetDevice(c->features.ordinal);
}

/* ---- comm.c: groups ---- */
int cuda_group_join(backend *const *ranks, uint32_t n, err *e);
void cuda_group_part(backend *be);
void cuda_group_break(backend *be);
bool cuda_group_is_broken(const struct cuda_backend *c);
uint64_t cuda_exchange_bytes(const backend *be, uint32_t n_rows, uint32_t n_cols);
int cuda_all_reduce(backend *be, const struct op_all_reduce *a);
int cuda_all_gather(backend *be, const struct op_all_gather *a);

/* ---- tensor_map.c ---- */
int cuda_tensor_maps_open(struct cuda_backend *c,
                          err *e); /* ERR_UNSUPPORTED: the driver is too old */
/* Of w, (n_rows, pitch) f16 in device memory: boxes of 16 rows by 128 columns. 0 or ERR_DEVICE. */
int cuda_tensor_map(struct cuda_backend *c, const void *w, uint64_t n_rows, uint32_t pitch,
                    struct cuda_tensor_map *out);

/* ---- launch.c ---- */
struct cuda_launch {
    const void *kernel; /* host stub of a __global__ function with one struct argument */
    const char *name;   /* static storage: counted under it */
    const void *args;   /* the struct */
    size_t args_bytes;
    uint32_t grid[3], threads; /* 0 in grid is 1 */
    uint32_t shared;           /* bytes of dynamic shared memory */
    uint64_t read, written;    /* bytes of device memory, by the shapes */
    bool behind; /* not before what is in front has ended: that is no kernel of ours */
};
/* Enqueues. 0 or ERR_DEVICE. */
int cuda_launch(struct cuda_backend *c, const struct cuda_launch *l);
/* Counts what another library enqueued: kernel is any address that stands for it. */
void cuda_count(struct cuda_backend *c, const struct cuda_launch *l);

int cuda_flush(backend *be, err *e);
int cuda_sync(backend *be, err *e);
int cuda_record(backend *be, uint64_t key, err *e);
int cuda_record_end(backend *be, err *e);
int cuda_run_recorded(backend *be, err *e);
void cuda_drop_recorded(backend *be);
void cuda_graphs_free(struct cuda_backend *c);

/* ---- memory.c ---- */
int cuda_memory_open(struct cuda_backend *c, err *e); /* staging; stream is there */
void cuda_memory_close(struct cuda_backend *c);
int cuda_buf_new(backend *be, uint64_t bytes, backend_buf **out, err *e);
void cuda_buf_free(backend_buf *buf);
int cuda_upload(backend *be, backend_buf *dst, uint64_t offset, const void *src, uint64_t bytes,
                err *e);
int cuda_upload_all(backend *be, const struct backend_upload *list, uint32_t n, err *e);
int cuda_download(backend *be, const backend_buf *src, uint64_t offset, void *dst, uint64_t bytes,
                  err *e);
int cuda_host_new(backend *be, uint64_t bytes, void **out, err *e);
void cuda_host_free(backend *be, void *p);
int cuda_download_later(backend *be, const backend_buf *src, uint64_t offset, void *to,
                        uint64_t bytes, err *e);
int cuda_mark(backend *be, uint32_t mark, err *e);
int cuda_wait(backend *be, uint32_t mark, err *e);
/* What the driver takes for so many bytes. */
uint64_t cuda_memory_taken(uint64_t bytes);
/* Raw device memory, counted in allocated. ERR_NOMEM says what is there. */
int cuda_memory_new(struct cuda_backend *c, uint64_t bytes, void **out, err *e);
void cuda_memory_free(struct cuda_backend *c, void *p, uint64_t bytes);
int cuda_copy_bandwidth(backend *be, double *bytes_per_s, err *e);

static inline void *cuda_at(const backend_buf *buf) {
    return buf ? ((const struct cuda_buf *)buf)->dev : NULL;
}

/* A vector's f32 values, or NULL. */
static inline const float *cuda_vector(const backend_weight *w) {
    return w ? (const float *)((const struct cuda_weight *)w)->raw : NULL;
}

static inline uint32_t cuda_div_up(uint64_t a, uint32_t b) {
    return (uint32_t)((a + b - 1) / b);
}

/* ---- weights.c ---- */
int cuda_weights_open(struct cuda_backend *c, err *e);
void cuda_weights_close(struct cuda_backend *c);
int cuda_weight_size(const struct backend_weight_desc *desc, uint64_t *bytes, err *e);
int cuda_weight_new(backend *be, const struct backend_weight_desc *desc, backend_weight **out,
                    err *e);
void cuda_weight_free(backend_weight *w);

/* ---- input.c ---- */

/* What a product reads. */
enum cuda_in { CUDA_IN_F16, CUDA_IN_F32 };
static inline enum cuda_in cuda_in_of(const backend_weight *w) {
    return ((const struct cuda_weight *)w)->format == CUDA_FORMAT_F32 ? CUDA_IN_F32 : CUDA_IN_F16;
}

/* op_input: adds what is pending to x, norms. Leaves the rows, rounded as kind says, in
 * CUDA_SCRATCH_IN16 (row-major, pitch cuda_pitch(n_in) values, zeros behind n_in) with their scales
 * in CUDA_SCRATCH_IN_SCALE (rows with a norm have one in common: in_scale), or for F32 (n_rows,
 * n_in) in CUDA_SCRATCH_IN32 or *f32 where it is not NULL. Call it with residual set only once an
 * op; again with residual NULL for another kind. */
int cuda_input(struct cuda_backend *c, const struct op_input *in, uint32_t n_rows, uint32_t n_in,
               enum cuda_in kind, float *f32);

/* ---- ops, one file a group; each takes its scratch at open ---- */
int cuda_embed(backend *be, const struct op_embed *a);                   /* rows.c */
int cuda_gather(backend *be, const struct op_gather *a);                 /* rows.c */
int cuda_copy_tokens(backend *be, const struct op_copy_tokens *a);       /* rows.c */
int cuda_update_history(backend *be, const struct op_update_history *a); /* sample.c */
int cuda_kv_copy(backend *be, const struct backend_kv *kv, const int32_t *pairs, uint32_t n_pairs);
int cuda_norm(backend *be, const struct op_norm *a);                       /* input.c */
int cuda_top(backend *be, const struct op_top *a);                         /* top.c */
int cuda_sample(backend *be, const struct op_sample *a);                   /* sample.c */
int cuda_linear(backend *be, const struct op_linear *a);                   /* linear.c */
int cuda_rope_store(backend *be, const struct op_rope_store *a);           /* rope_store.c */
int cuda_paged_attention(backend *be, const struct op_paged_attention *a); /* attention.c */
int cuda_store_attend(backend *be, const struct op_rope_store *store,
                      const struct op_paged_attention *a); /* attention.c */
/* What a kernel is told of a store; ERR_UNSUPPORTED: none takes it. */
int cuda_rope_args(const struct op_rope_store *a, struct cargs_rope_store *args);
int cuda_moe(backend *be, const struct op_moe *a); /* moe.c */
int cuda_linear_attention(backend *be,
                          const struct op_linear_attention *a); /* linear_attention.c */
bool cuda_kv_fits(const struct backend_kv *kv);                 /* attention.c */

int cuda_linear_scratch(struct cuda_backend *c, const struct backend_config *config, err *e);
int cuda_attention_scratch(struct cuda_backend *c, const struct backend_config *config, err *e);
int cuda_moe_scratch(struct cuda_backend *c, const struct backend_config *config, err *e);
int cuda_top_scratch(struct cuda_backend *c, const struct backend_config *config, err *e);
int cuda_linear_attention_scratch(struct cuda_backend *c, const struct backend_config *config,
                                  err *e);

/* ---- linear.c: products, also of experts ---- */

/* y[i] (rows, n_out) f32 = (rows of IN16 or IN32) * w^T, as cuda_input left them. With list the
 * rows are pairs of moe.c: */
struct cuda_product {
    const struct cuda_weight *w,
        *pair; /* pair: the second matrix, of w's shape and format, of an activation */
    const float *bias, *pair_bias; /* (n_out) each expert's after the other's, or NULL */
    enum backend_act act;          /* with pair */
    float y_scale, softcap;
    uint32_t n_rows;
    float *y;
    /* Experts: tiles (n_tiles) of the list, each up to CUDA_MOE_TILE pairs of one expert; row of
     * the input of pair p: p / n_share; y's row is p. NULL: plain. */
    const struct cargs_moe_tile *tiles;
    const uint32_t *list;
    uint32_t n_tiles, n_share;
};
int cuda_product(struct cuda_backend *c, const struct cuda_product *p);

/* ---- epilogue.c: what follows the sums of a product ---- */
struct cargs_tail cuda_tail(const struct cuda_product *p);
/* Rows first.. of p->y from sums (and with p->pair, of pair) (n_rows, n_out) f32 as mma leaves
 * them; sums may be where these rows of y are. */
int cuda_finish(struct cuda_backend *c, const struct cuda_product *p, uint32_t first,
                uint32_t n_rows, const float *sums, const float *pair_sums);
/* The same of sums in parts, (n_parts, p->n_rows, n_out), which are added; no pair. */
int cuda_finish_parts(struct cuda_backend *c, const struct cuda_product *p, const float *parts,
                      uint32_t n_parts);
/* y = act(gate, up), each (n_rows, n_out) f32; y may be either. */
int cuda_finish_act(struct cuda_backend *c, enum backend_act act, const float *gate,
                    const float *up, float *y, uint32_t n_rows, uint32_t n_out);

/* ---- tile.c: products of more rows than the skinny kernels take ---- */
/* Finds whether sm_90's wgmma has the sums of mma (has_wgmma). With the scratch of linear.c. */
int cuda_tile_open(struct cuda_backend *c, err *e);
/* When w is loaded: times what can multiply it. y goes to CUDA_SCRATCH_IN32. */
void cuda_tile_prepare(struct cuda_backend *c, const struct cuda_weight *w);
/* Is it faster than cuda_large_product? */
bool cuda_tile_is_best(const struct cuda_backend *c, const struct cuda_product *p);
/* 16-bit and quantized weights, any number of rows, no experts. */
int cuda_tile_product(struct cuda_backend *c, const struct cuda_product *p);
/* By one of kernels.h's cuda_product_tile_kernel or cuda_product_wgmma_kernel; these are
 * ERR_UNSUPPORTED, and nothing is enqueued, where there is no room for their parts. */
struct cuda_tile_kernel;
int cuda_tile_launch(struct cuda_backend *c, const struct cuda_product *p,
                     const struct cuda_tile_kernel *k);
int cuda_wgmma_launch(struct cuda_backend *c, const struct cuda_product *p,
                      const struct cuda_tile_kernel *k);

/* ---- lt.c: products by cuBLASLt, loaded at run time ---- */
/* bytes of finite f16 of many magnitudes, the same each time: for probes. 0 or ERR_DEVICE. */
int cuda_random_fill(struct cuda_backend *c, void *values, uint64_t bytes);
int cuda_lt_open(struct cuda_backend *c, err *e); /* 0 without the library too: lt stays NULL */
void cuda_lt_close(struct cuda_backend *c);
/* Finds how products with such weights will be computed; not while a step runs or is recorded. */
void cuda_lt_prepare(struct cuda_backend *c, uint32_t n_out, uint32_t n_in);
/* y (n_rows, n_out) f32 = x (n_rows, pitch) w (n_out, pitch)^T, f16, in the order of sums of
 * format.h, times scale, a power of two. */
struct cuda_lt_product {
    const void *w, *x;
    float *y;
    uint32_t n_rows, n_out, n_in;
    uint32_t y_pitch; /* floats from row to row of y */
    float scale;
};
/* false: not prepared for it (the caller takes another way). */
bool cuda_lt_product(struct cuda_backend *c, const struct cuda_lt_product *p);

/* ---- large.c: products of many rows ---- */
/* 16-bit and quantized weights (these decoded first, into CUDA_SCRATCH_DECODED), no experts, by
 * cuBLASLt and cuda_finish. false: not for this one (the caller takes another way); otherwise *rc
 * is 0 or ERR_DEVICE. */
bool cuda_large_product(struct cuda_backend *c, const struct cuda_product *p, int *rc);
/* When w is loaded: how it will be multiplied is found then. */
void cuda_large_prepare(struct cuda_backend *c, const struct cuda_weight *w);
/* CUDA_SCRATCH_DECODED, _LT and _PAIR. */
int cuda_large_scratch(struct cuda_backend *c, const struct backend_config *config, err *e);

#endif
