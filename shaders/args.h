/* args.h - the argument structs of the device kernels, one per kernel, shared by C, MSL and CUDA,
 * and the constants on which launchers and kernels agree. This file: rows, sampling, exchanges;
 * args_linear.h: products and experts; args_attention.h: RoPE and attention.
 *
 *   args_*    the fields of an op that Metal's and CUDA's kernels share
 *   margs_*   Metal: the content of buffer(0). The other buffers follow in the order that the
 *     kernel's comment gives. An enum margs_*_const numbers the function constants.
 *   cargs_*   CUDA: device pointers, then `op`, the shared fields, then fields of CUDA alone
 *
 * Layout: members of fixed width, 4-byte members in pairs where an 8-byte member follows, padding
 * spelled out. ARGS_SIZE asserts the size in each of the three languages. */
#ifndef INFERD_SHADERS_ARGS_H
#define INFERD_SHADERS_ARGS_H

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
#else
#include "core/base/sampling.h"

#include <stdint.h>
#endif

#if defined(__cplusplus)
#define ARGS_SIZE(type, bytes) static_assert(sizeof(type) == bytes, #type)
#else
#define ARGS_SIZE(type, bytes) _Static_assert(sizeof(type) == bytes, #type)
#endif

/* ---- constants of the op table (core/backend/args_check.h asserts that they are backend.h's) */

/* enum backend_act */
enum args_act {
    ARGS_ACT_NONE,
    ARGS_ACT_SILU,
    ARGS_ACT_GELU_TANH,
    ARGS_ACT_SWIGLU_OAI,
    ARGS_ACT_GELU,
    ARGS_N_ACTS
};

/* enum backend_unary */
enum args_unary {
    ARGS_UNARY_SQUARED_RELU,
    ARGS_UNARY_GELU_TANH,
    ARGS_UNARY_GELU,
    ARGS_UNARY_XIELU,
    ARGS_N_UNARIES
};

/* struct backend_xielu */
struct args_xielu {
    float positive, negative, beta, eps;
};
ARGS_SIZE(struct args_xielu, 16);

#define ARGS_TOP_MAX     64   /* BACKEND_MAX_TOP */
#define ARGS_MOE_EXPERTS 1024 /* BACKEND_MAX_EXPERTS */

/* ---- embed, gather: the devices share only the shape (n_rows, n_cols) ---- */

#define ARGS_KV_COPY_PAIRS 256 /* block pairs (from, to) of one launch of kv_copy */

/* ---- top: the k largest logits of a row, which is cut into n_slices of slice_cols columns ---- */
struct args_top {
    uint32_t n_cols, k;
    uint32_t n_slices, slice_cols;
};
ARGS_SIZE(struct args_top, 16);

/* ================================ Metal ================================ */

/* rows.metal: embed. A thread computes eight columns of the output. */
enum margs_embed_const { MARGS_EMBED_TYPE /* enum qtype of the table */ };
struct margs_embed {
    uint32_t n_rows, n_cols;
    uint32_t row_bytes; /* of the table */
    float scale;
};
ARGS_SIZE(struct margs_embed, 16);

/* rows.metal: gather. */
struct margs_gather {
    uint32_t n_rows, n_cols, has_residual;
};
ARGS_SIZE(struct margs_gather, 12);

/* rows.metal: gate. */
struct margs_gate {
    uint32_t n_rows, n_cols;
    uint32_t gated, unary; /* enum args_unary */
    struct args_xielu xielu;
    uint32_t span, softplus; /* as in op_gate */
};
ARGS_SIZE(struct margs_gate, 40);

/* gated.metal: gated, add_normed. A threadgroup has one group of columns of a row. */
struct margs_gated {
    uint32_t n_rows, n_cols, first, stride;
    uint32_t act; /* enum args_act */
};
ARGS_SIZE(struct margs_gated, 20);
#define MARGS_ADD_NORMED_THREADS 256
struct margs_add_normed {
    uint32_t n_cols, n; /* n: columns of a group */
    float eps, scale;
    uint32_t has_r, has_norm, has_factor;
};
ARGS_SIZE(struct margs_add_normed, 28);

/* rows.metal: kv_copy. A thread copies one unit of a block. */
#define MARGS_KV_COPY_UNIT 16 /* bytes */
struct margs_kv_copy {
    uint32_t n_pairs, n_units; /* units of a block */
    int32_t pairs[2 * ARGS_KV_COPY_PAIRS];
};
ARGS_SIZE(struct margs_kv_copy, 2056);

/* top.metal. Pass 1 reduces each slice to a list of candidates, pass 2 merges the lists of a row.
 * With one slice a row, pass 1 writes the result. */
#define MARGS_TOP_SIMDGROUPS 8
enum margs_top_const {
    MARGS_TOP_SLOTS, /* list entries of a lane: 1 (k <= 32) or 2; 0: k is 1 */
    MARGS_TOP_MERGE, /* 0: reads logits (pass 1); 1: reads the lists of slices (pass 2) */
    MARGS_TOP_LAST   /* 0: writes a slice's list; 1: writes the result */
};
struct margs_top {
    struct args_top op;
    uint32_t first_row; /* of this dispatch; its candidates begin at the start of the buffer */
};
ARGS_SIZE(struct margs_top, 20);

/* ================================ CUDA ================================ */
#if !defined(__METAL_VERSION__)

/* rows.cu: embed. One block a row. */
struct cargs_embed {
    const void *table;
    const int32_t *ids;
    float *out;
    uint64_t row_bytes; /* of the table */
    uint32_t n_rows, n_cols;
    float scale;
    uint32_t type; /* enum qtype */
};
ARGS_SIZE(struct cargs_embed, 48);

/* rows.cu: gather. One block a row. */
struct cargs_gather {
    const float *x, *residual; /* residual may be NULL */
    const int32_t *rows;
    float *out;
    uint32_t n_rows, n_cols;
};
ARGS_SIZE(struct cargs_gather, 40);

/* rows.cu: gated, add_normed. */
struct cargs_gated {
    float *x;        /* (n_rows, n_cols) */
    const float *up; /* (n_rows, stride) */
    uint32_t n_rows, n_cols, first, stride;
    uint32_t act, padding; /* enum args_act */
};
ARGS_SIZE(struct cargs_gated, 40);
enum { CUDA_ADD_NORMED_THREADS = 256 };
struct cargs_add_normed {
    float *x;                       /* (n_rows, n_cols) */
    const float *r, *norm, *factor; /* each may be NULL */
    float eps, scale;
    uint32_t n_cols, n; /* n: columns of a group */
};
ARGS_SIZE(struct cargs_add_normed, 48);

/* rows.cu: upload, from the host's pinned memory. Grid: any number of blocks, pieces. */
enum { CARGS_UPLOADS = 14 }; /* BACKEND_MAX_UPLOADS */
struct cargs_upload_piece {
    const uint32_t *from;
    uint32_t *to;
    uint32_t n, padding;
};
ARGS_SIZE(struct cargs_upload_piece, 24);
struct cargs_upload {
    struct cargs_upload_piece pieces[CARGS_UPLOADS];
    uint32_t n, padding;
};
ARGS_SIZE(struct cargs_upload, 344);

/* rows.cu: copy_tokens. One thread a copy. */
struct cargs_token_copy { /* struct backend_token_copy */
    int32_t to, from;
};
ARGS_SIZE(struct cargs_token_copy, 8);
struct cargs_copy_tokens {
    const int32_t *from;
    const struct cargs_token_copy *copies;
    int32_t *ids;
    uint32_t stride, n;
};
ARGS_SIZE(struct cargs_copy_tokens, 32);

/* rows.cu: kv_copy. */
struct cargs_kv_copy {
    void *k, *v;
    uint64_t block_bytes; /* a multiple of 16 */
    uint32_t n_pairs;
    int32_t pairs[2 * ARGS_KV_COPY_PAIRS];
    uint32_t padding;
};
ARGS_SIZE(struct cargs_kv_copy, 2080);

/* top.cu. One block a slice; the last block of a row to finish merges the row's lists. */
enum {
    CUDA_TOP_TILE = 2048, /* columns that a block loads at once */
    CUDA_TOP_SLICES = 64  /* largest n_slices */
};
struct cargs_top {
    const float *x;  /* (n_rows, n_cols) */
    uint64_t *lists; /* (n_rows, n_slices, k) */
    uint32_t *done;  /* (n_rows) slices whose lists are complete; 0 between launches */
    int32_t *ids;    /* (n_rows, k) */
    float *values;   /* (n_rows, k) */
    struct args_top op;
};
ARGS_SIZE(struct cargs_top, 56);

/* sample.cu. One block a row. cargs_sampling, cargs_sampled and cargs_penalty_entry have the layout
 * of struct backend_sampling, backend_sampled and backend_penalty_entry of core/backend/backend.h
 * (core/backend/cuda/sample.c asserts it). */
struct cargs_sampling {
    struct sampling params;
    uint32_t first_history, n_history;
    uint32_t seed[2], index[2];
};
ARGS_SIZE(struct cargs_sampling, 52);
struct cargs_sampled {
    int32_t token;
    float logit, log_sum;
};
ARGS_SIZE(struct cargs_sampled, 12);
struct cargs_penalty_entry {
    int32_t token, count;
    float logit; /* scratch: before the penalties */
};
ARGS_SIZE(struct cargs_penalty_entry, 12);
enum { CUDA_SAMPLE_THREADS = 1024, CUDA_SAMPLE_LIST = 4096 };
struct cargs_sample {
    float *x;
    const struct cargs_sampling *sampling;
    struct cargs_penalty_entry *history; /* (n_history) */
    struct cargs_sampled *out;
    uint32_t n_cols, n_history;
};
ARGS_SIZE(struct cargs_sample, 40);

/* sample.cu: update_history. One block an update. */
struct cargs_history_update { /* struct backend_history_update */
    int32_t first, n, from;
};
ARGS_SIZE(struct cargs_history_update, 12);
struct cargs_update_history {
    const struct cargs_sampled *sampled;
    const struct cargs_history_update *updates;
    struct cargs_penalty_entry *history;
};
ARGS_SIZE(struct cargs_update_history, 24);

/* comm.cu: after ncclAllGather, the ranks' values one after the other. */
enum { CUDA_SUM_VALUES = 4 }; /* of a thread */
struct cargs_sum_parts {
    const float *parts; /* (n_parts, n) */
    float *out;         /* (n) */
    uint64_t n;
    uint32_t n_parts, padding;
};
ARGS_SIZE(struct cargs_sum_parts, 32);
struct cargs_join_parts {
    const float *parts; /* rank r's part at r * stride: (n_rows, the rank's columns of n_cols) */
    float *out;         /* (n_rows, n_cols) */
    uint64_t stride;
    uint32_t n_rows, n_cols, share, padding;
};
ARGS_SIZE(struct cargs_join_parts, 40);

/* comm.cu: exchanges through the ranks' memory (peer.cuh). */
enum { CUDA_MAX_PEERS = 8, CUDA_PEER_THREADS = 256 };
#define CUDA_PEER_EMPTY 0xffffffffu
struct cargs_peer {
    const float *x; /* (n) of this rank */
    /* peer_sum: (n), may be x. peer_gather: (n_rows, n_cols), of rank r the columns from r * share
     * on; NULL: they are not needed. */
    float *out;
    const uint32_t *stop;        /* not 0: give up. The host's memory */
    float *to[CUDA_MAX_PEERS];   /* (n) each: where each rank has x */
    float *from[CUDA_MAX_PEERS]; /* (n) each: where this rank has theirs */
    const float *row_scale; /* NULL: none; x, rows of n_cols, is to be multiplied by it first, */
    float scale;            /* then by this */
    uint32_t sent;          /* 1: x is on its way, by the kernel that made it */
    uint32_t n, rank, n_ranks, padding;
    /* peer_gather: x are the values from `first` on of (n_rows, the rank's columns). */
    uint32_t first, n_rows, n_cols, share;
};
ARGS_SIZE(struct cargs_peer, 200);
/* Beside products: peer_meet, peer_add. */
struct cargs_peer_beside {
    const float *x; /* (n) of this rank, n a multiple of four */
    float *out;     /* (n) sums, may be x */
    const uint32_t *stop;
    /* Not NULL: x, (n_rows, n_cols), is to be multiplied by row_scale (n_rows), then by scale. */
    const float *row_scale;
    float *to_scales[CUDA_MAX_PEERS];    /* where each rank has these: row_scale, then scale */
    const float *scales[CUDA_MAX_PEERS]; /* where this rank has each one's */
    float scale;
    uint32_t n_rows, n_cols, padding;
    uint32_t *to[CUDA_MAX_PEERS];        /* this rank's mark, where each rank has it */
    uint32_t *from[CUDA_MAX_PEERS];      /* each rank's mark, where this rank has it */
    const float *values[CUDA_MAX_PEERS]; /* (n) of each rank, in this one's memory */
    uint32_t n, rank, n_ranks, mark;
};
ARGS_SIZE(struct cargs_peer_beside, 384);

#endif
#endif
