/* gemm_int.h - matrix products: their input, the kernels that compute them, their epilogue.
 *
 * All kernels give the same bits (shaders/cuda/format.h), so speed alone chooses between them:
 *   up to CUDA_SKINNY_ROWS rows, and experts   skinny GEMM: streams the weights (linear.c)
 *   more rows                                  tile.c, weights as stored; or large.c, cuBLASLt
 *   F32 weights                                product_f32.cu (linear.c) */
#ifndef INFERD_CUDA_GEMM_INT_H
#define INFERD_CUDA_GEMM_INT_H

#include "core/backend/cuda/launch_int.h"
#include "core/backend/cuda/memory_int.h"

/* ---- input.c ---- */

/* The ops of the vtable. */
#define CUDA_DECLARE(name, on_cpu, on_metal, on_cuda) BACKEND_DECLARE_##on_cuda(cuda, name)
BACKEND_OPS(CUDA_DECLARE, CUDA_DECLARE)

/* Types of a product's input, as bits. */
enum cuda_in { CUDA_IN_F16 = 1, CUDA_IN_F32 = 2 };
static inline enum cuda_in cuda_in_of(const backend_weight *w) {
    return cuda_weight_of(w)->format == CUDA_FORMAT_F32 ? CUDA_IN_F32 : CUDA_IN_F16;
}

/* The scales of the input's rows: those of a part lie behind those of the parts before it. */
static inline float *cuda_in_scales(const struct cuda_backend *c) {
    return (float *)cuda_scratch(c, CUDA_SCRATCH_IN_SCALE) + c->part.first;
}

/* op_input: adds the pending residual to x, then norms. kinds: of enum cuda_in. CUDA_IN_F16: leaves
 * the rounded rows in CUDA_SCRATCH_IN16 (row-major, pitch cuda_pitch(n_in) values, zeros after
 * n_in) and their scales in CUDA_SCRATCH_IN_SCALE (rows with a norm share one: in_scale).
 * CUDA_IN_F32: leaves (n_rows, n_in) in CUDA_SCRATCH_IN32, or in f32 if that is not NULL. Rows that
 * are there already (cuda_backend.ready) are not made again. If x or its residual is what an
 * epilogue that was put off makes (cuda_backend.put_off), the launch makes it, and it is not
 * written. */
int cuda_input(struct cuda_backend *c, const struct op_input *in, uint32_t n_rows, uint32_t n_in,
               uint32_t kinds, float *f32);

/* ---- linear.c ---- */

/* y (rows, n_out) f32 = (rows of IN16 or IN32) * w^T, of the input that cuda_input left. */
struct cuda_product {
    const struct cuda_weight *w;
    /* The second matrix (up) of a gated activation, of w's shape and format; or NULL. */
    const struct cuda_weight *pair;
    const float *bias, *pair_bias; /* (n_experts, n_out), or NULL */
    enum backend_act act;          /* with pair, as are */
    struct backend_bounds bounds;
    float y_scale, softcap;
    uint32_t n_rows;
    float *y;
    bool y_once; /* as in op_linear */
    /* Experts: rows are the (row, expert) pairs of moe.c's list, in n_tiles tiles of up to
     * CUDA_MOE_TILE pairs of one expert. Pair p reads input row p / n_share and writes row p of y.
     * NULL: no experts. */
    const struct args_moe_tile *tiles;
    const uint32_t *list;
    uint32_t n_tiles, n_share;
    uint32_t y_tail; /* with tiles: values between the rows of y that are not written */
    /* With tiles of a single row: the shared expert, of the shapes and formats of w and pair, which
     * is the expert after those of w. */
    const struct cuda_weight *joined, *joined_pair;
    struct backend_bounds joined_bounds;
    /* With tiles of a single row: y (n_out) is the sum of the experts' results. n: of n_tiles
     * experts with a row of the input each; 0: no sum. Only if cuda_sums_slots says so. */
    struct cargs_slots slots;
};
int cuda_product(struct cuda_backend *c, const struct cuda_product *p);
/* Up to CARGS_PRODUCT_WEIGHTS products of one input, shape of rows and format, without pairs. */
int cuda_products(struct cuda_backend *c, const struct cuda_product *p, uint32_t n);
/* Can a launch sum n experts' results with w? */
bool cuda_sums_slots(const struct cuda_backend *c, const struct cuda_weight *w, uint32_t n);
/* backend_linear, all rows at once. */
int cuda_linear_rows(struct cuda_backend *c, const struct op_linear *a);
int cuda_linear_scratch(struct cuda_backend *c, const struct backend_config *config, err *e);

/* The exchange of all that p makes, if it is the one that comes next (peer.c), or NULL. */
static inline struct cargs_peer *cuda_announced(struct cuda_backend *c,
                                                const struct cuda_product *p) {
    struct cargs_peer *next = &c->outgoing;
    const bool same = next->x && next->x == p->y && next->n == p->n_rows * p->w->base.n_out;
    return same ? next : NULL;
}

/* ---- epilogue.c: what follows the sums of a product ---- */

struct cargs_epilogue cuda_epilogue_args(const struct cuda_product *p);
/* Rows first .. first + n_rows - 1 of p->y from sums (and with p->pair from pair_sums), (n_rows,
 * n_out) f32 as mma leaves them; sums may be the memory of these rows of y. */
int cuda_epilogue(struct cuda_backend *c, const struct cuda_product *p, uint32_t first,
                  uint32_t n_rows, const float *sums, const float *pair_sums);
/* Puts the epilogue of all rows off: the next cuda_input may make it (c->put_off). Of a pair, or,
 * if pair_sums is NULL, one that only multiplies by scales the sums that y has. n_out is a multiple
 * of 4. */
void cuda_epilogue_later(struct cuda_backend *c, const struct cuda_product *p, const float *sums,
                         const float *pair_sums);
/* The same as cuda_epilogue, of partial sums (n_splits, p->n_rows, n_out), which are added in
 * order; no pair. */
int cuda_epilogue_splits(struct cuda_backend *c, const struct cuda_product *p,
                         const float *partials, uint32_t n_splits);
/* y = act(gate, up), each (n_rows, n_out) f32; y may be either. */
struct cuda_gated {
    enum backend_act act;
    struct backend_bounds bounds;
    const float *gate, *up;
    const float *scale; /* (n_rows) of gate and up, or NULL */
    float *y;           /* may be gate or up */
};
int cuda_activate(struct cuda_backend *c, const struct cuda_gated *g, uint32_t n_rows,
                  uint32_t n_out);

/* ---- tile.c: more rows than a skinny GEMM takes, weights as stored ---- */

/* Values of cuda_tile_plan.best: the kernels of tile.c, large.c, or not measured. */
enum {
    CUDA_TILE_KERNELS = 4,
    CUDA_BEST_LARGE = CUDA_TILE_KERNELS,
    CUDA_BEST_SKINNY,
    CUDA_BEST_UNKNOWN
};
enum { CUDA_TILE_SMALL, CUDA_TILE_LARGE }; /* the two tile shapes of each kernel */
enum { CUDA_TILE_LEAST_BUCKET = 64 };      /* rows; each bucket holds twice the previous one's */

/* Is it faster than cuda_large_product? */
bool cuda_tile_is_best(const struct cuda_backend *c, const struct cuda_product *p);
bool cuda_skinny_is_best(const struct cuda_backend *c, const struct cuda_product *p);
/* 16-bit and quantized weights, any number of rows, no experts. */
int cuda_tile_product(struct cuda_backend *c, const struct cuda_product *p);
/* The same by kernel `which` (below CUDA_TILE_KERNELS). ERR_UNSUPPORTED: not for this product;
 * nothing was enqueued. */
int cuda_tile_product_by(struct cuda_backend *c, const struct cuda_product *p, int which);
/* By one of kernels.h's cuda_product_tile_kernel or cuda_product_wgmma_kernel. The latter is
 * ERR_UNSUPPORTED, and nothing is enqueued, if its partial sums do not fit. */
struct cuda_tile_kernel;
int cuda_tile_launch(struct cuda_backend *c, const struct cuda_product *p,
                     const struct cuda_tile_kernel *k);
int cuda_wgmma_launch(struct cuda_backend *c, const struct cuda_product *p,
                      const struct cuda_tile_kernel *k);

/* ---- lt.c: cuBLASLt, loaded at run time ---- */

int cuda_lt_open(struct cuda_backend *c, err *e); /* 0 without the library too: lt stays NULL */
void cuda_lt_close(struct cuda_backend *c);
/* Chooses algorithms for weights of this shape, with `pairs` also for two of them in one launch;
 * not while a step runs or is captured. */
void cuda_lt_prepare(struct cuda_backend *c, uint32_t n_out, uint32_t n_in, bool pairs);
/* y (n_rows, n_out) f32 = x (n_rows, pitch) w (n_out, pitch)^T, f16, in the order of sums of
 * format.h, times scale, a power of two. */
struct cuda_lt_product {
    const void *w, *x;
    float *y;
    /* Not NULL: also y2 = x w2^T, of the same shape, in the same launch; they lie after w and y. */
    const void *w2;
    float *y2;
    uint32_t n_rows, n_out, n_in;
    uint32_t y_pitch; /* floats from row to row of y */
    float scale;
};
/* false: not prepared for this shape (the caller takes another path). */
bool cuda_lt_product(struct cuda_backend *c, const struct cuda_lt_product *p);

/* ---- large.c: many rows ---- */

/* 16-bit and quantized weights (the latter decoded to CUDA_SCRATCH_DECODED first), no experts, by
 * cuBLASLt and cuda_epilogue. false: not for this product (the caller takes another path);
 * otherwise *rc is 0 or ERR_DEVICE. */
bool cuda_large_product(struct cuda_backend *c, const struct cuda_product *p, int *rc);
/* Two products of one input and shape in one launch, if that is faster. false: nothing is done. */
bool cuda_large_two(struct cuda_backend *c, const struct cuda_product p[2]);
/* Lets lt.c choose its algorithms for w, which is not F32 and has no experts. */
void cuda_large_prepare(struct cuda_backend *c, const struct cuda_weight *w);
/* CUDA_SCRATCH_DECODED, _LT and _PAIR. */
int cuda_large_scratch(struct cuda_backend *c, const struct backend_config *config, err *e);

/* ---- tune.c: measurements at open and at load ---- */

/* Finds whether sm_90's wgmma gives the sums of mma (has_wgmma); needs linear.c's scratch. */
int cuda_tune_open(struct cuda_backend *c, err *e);
/* When w is loaded: chooses cuBLASLt's algorithms, then measures every path that can multiply w.
 * Overwrites CUDA_SCRATCH_IN32. */
void cuda_tune_weight(struct cuda_backend *c, const struct cuda_weight *w);
/* Milliseconds of a call of run(c, of), which enqueues launches, when several follow each other;
 * negative: one returned false, or the device failed. */
float cuda_time_runs(struct cuda_backend *c, bool (*run)(struct cuda_backend *, void *), void *of);
/* How many matrices of that size must be read in turn so that none is still in the L2. */
uint32_t cuda_cold_copies(uint64_t bytes);

#endif
