/* args_linear.h - argument structs of products and of what surrounds them: the input's norm, the
 * epilogue, experts, repacking. args.h explains the names and the layout. */
#ifndef INFERD_SHADERS_ARGS_LINEAR_H
#define INFERD_SHADERS_ARGS_LINEAR_H

#include "shaders/args.h"

/* ---- input: residual addition and norms. One threadgroup or block per row. ---- */
struct args_input {
    uint32_t n_in;
    float residual_scale, eps;
};
ARGS_SIZE(struct args_input, 12);

/* ---- experts. A pair is a row and one of its experts: pair row * n_used + i is the row's i-th
 * expert, in ascending order of experts. ---- */

/* Pairs list[first] .. list[first + count - 1], all of one expert, that are multiplied together;
 * count 0: an empty tile. */
struct args_moe_tile {
    uint32_t expert, first, count;
};
ARGS_SIZE(struct args_moe_tile, 12);

/* moe_route: one threadgroup or block per row, of n_experts threads rounded up to 32. */
struct args_moe_route {
    uint32_t n_rows, n_experts, n_used, renormalize;
    uint32_t sigmoid, has_bias; /* the scores' gating; is there a choice_bias? */
    float weight_scale;
    uint32_t has_expert_scale;
    uint32_t n_groups, n_groups_used; /* at least 1 */
    uint32_t mixer;                   /* the sparse mixer's gating, with its limit */
    float mixer_limit;
};
ARGS_SIZE(struct args_moe_route, 48);

/* moe_lists: one threadgroup or block. */
struct args_moe_lists {
    uint32_t n_pairs, n_experts;
    uint32_t tile_rows, n_tiles; /* largest count of a tile; number of tiles to write */
};
ARGS_SIZE(struct args_moe_lists, 16);

/* moe_combine: one thread per column of a row. */
struct args_moe_combine {
    uint32_t n_in, n_used;
    uint32_t weighed; /* the inputs were: the sum is plain */
};
ARGS_SIZE(struct args_moe_combine, 12);

/* ================================ Metal ================================ */

/* input.metal: input_rows, with struct args_input. */
#define MARGS_INPUT_MAX_VALUES 32 /* values of a thread */
enum margs_input_const {
    MARGS_INPUT_VALUES,        /* values per thread, at most MARGS_INPUT_MAX_VALUES */
    MARGS_INPUT_RESIDUAL,      /* 1: x += residual_scale * residual */
    MARGS_INPUT_RESIDUAL_NORM, /* 1: the norm is applied to the residual first */
    MARGS_INPUT_NORM,          /* 1: out = x / rms(x) * norm */
    MARGS_INPUT_CENTRED,       /* 1: of x - mean(x) */
    MARGS_INPUT_BIAS           /* 1: + bias */
};

/* linear.metal, linear_matrix.metal. A tile is the part of a weight's outputs that a threadgroup
 * computes. The kernels of experts (moe.metal, moe_matrix.metal) have the same constants. */
#define MARGS_LINEAR_SIMDGROUPS 2  /* of linear_vector */
#define MARGS_PRODUCT_SLOTS     4  /* weight rows side by side in a simdgroup (product.h) */
#define MARGS_PRODUCT_TILE      32 /* outputs and maximum rows of a tile of product_matrix.h */
#define MARGS_PRODUCT_THREADS   256
enum margs_linear_const {
    MARGS_LINEAR_TYPE,      /* enum qtype of the weights */
    MARGS_LINEAR_TYPE_UP,   /* of the second weight of a pair; else as TYPE */
    MARGS_LINEAR_N_WEIGHTS, /* 1 to 3; a pair counts as 1 */
    MARGS_LINEAR_ACT,       /* enum args_act; not NONE: the weights are a pair */
    MARGS_LINEAR_BIAS,      /* bit i: weight i has a bias */
    MARGS_LINEAR_EDGE,      /* n_in is not a multiple of 8 */
    MARGS_LINEAR_SCALED,    /* bits: 1: y_scale; 2: cap */
    MARGS_LINEAR_ROWS,      /* rows of x in a pass or tile */
    MARGS_LINEAR_WIDTH,     /* weight rows of a lane */
    MARGS_LINEAR_HALVES,    /* tiles may have halves as operands */
    MARGS_LINEAR_N_CONSTS
};
struct margs_linear {
    uint32_t n_rows, n_in;
    uint32_t n_out[3], n_tiles[2];  /* n_tiles: of all weights except the last */
    uint32_t row_bytes[2];          /* of the weights; of the second weight of a pair */
    float y_scale, y_over_cap, cap; /* y_over_cap = y_scale / cap. Of a pair: bounds of gate, up */
};
ARGS_SIZE(struct margs_linear, 48);

/* moe.metal: moe_vector; moe_matrix.metal: moe_matrix. The experts' products: gate and up as a
 * pair, or down. */
struct margs_moe_products {
    struct margs_linear linear; /* n_rows is unused: only the device knows the rows of an expert */
    uint32_t n_share;           /* pairs that read the same row of the input */
};
ARGS_SIZE(struct margs_moe_products, 52);

/* heads.metal, heads_matrix.metal: op_linear_heads. */
struct margs_heads {
    struct margs_linear linear;
    uint32_t n_heads, n_tail;
};
ARGS_SIZE(struct margs_heads, 56);

/* moe.metal: moe_combine. */
struct margs_moe_combine {
    struct args_moe_combine op;
    uint32_t has_shared, has_gate;
};
ARGS_SIZE(struct margs_moe_combine, 20);

/* moe.metal: moe_weigh. */
struct margs_moe_weigh {
    uint32_t n_in, n_used;
};
ARGS_SIZE(struct margs_moe_weigh, 8);

/* ================================ CUDA ================================ */
#if !defined(__METAL_VERSION__)

/* input.cu. One block per row, threads a multiple of 32. */
struct cargs_input {
    float *x;
    const float *residual, *residual_norm, *norm, *bias; /* NULL: none */
    uint16_t *out16;                                     /* (n_rows, pitch) or NULL */
    float *out32;                                        /* (n_rows, n_in) or NULL */
    float *scales;                                       /* (n_rows), of out16 */
    struct args_input op;
    uint32_t pitch;
    float scale, inverse; /* out16: the scale common to all rows; 0: each row has its own */
    uint32_t centred;
    float largest_bias; /* magnitude */
    /* Not NULL: the residual is first multiplied by these (n_rows), then by the weight's scale. May
     * be scales. */
    const float *residual_scales;
    float residual_weight_scale, padding;
};
ARGS_SIZE(struct cargs_input, 112);
/* input_sum: the residual is first summed over the ranks. */
struct cargs_input_sum {
    struct cargs_input in;
    struct cargs_peer peer; /* of peer_sum; x and out are the residual */
};
ARGS_SIZE(struct cargs_input_sum, 312);

/* epilogue.cuh: from a product's sums to its results. */
struct cargs_epilogue {
    const float *bias, *pair_bias; /* (n_out), one after the other for experts, or NULL */
    float scale, pair_scale;       /* of the weights: powers of two */
    float y_scale;                 /* 1: none */
    float cap, y_over_cap;         /* 0: no cap; y_scale / cap. Of a pair: bounds of up, of gate */
    uint32_t act;                  /* enum args_act; not NONE: the sums are pairs */
};
ARGS_SIZE(struct cargs_epilogue, 40);

/* epilogue.cu: partial sums (n_splits, n_rows, n_out) f32, added up -> y, which may be sums. A
 * pair has one split. */
struct cargs_apply_epilogue {
    const float *sums, *pair_sums, *in_scale; /* in_scale (n_rows), NULL: 1 */
    float *y;
    struct cargs_epilogue epilogue;
    uint32_t n_rows, n_out, n_splits, padding;
};
ARGS_SIZE(struct cargs_apply_epilogue, 88);
/* input_gated: the input is what a pair's epilogue makes; its y is not written. */
struct cargs_input_gated {
    struct cargs_input in;            /* x and out32 are unused, residual, norms and bias NULL */
    struct cargs_apply_epilogue pair; /* n_out: in.op.n_in, a multiple of 4; no splits */
};
ARGS_SIZE(struct cargs_input_gated, 200);

/* lt_probe.cu: lt_fill. Random f16. */
struct cargs_lt_fill {
    void *values;
    uint64_t n; /* even */
};
ARGS_SIZE(struct cargs_lt_fill, 16);

/* lt_probe.cu: lt_probe. Counts results in y that differ from the reference sums, scaled. The
 * rows of w are padded to a multiple of 16. */
struct cargs_lt_probe {
    const void *w, *x;
    const float *y;
    uint32_t *wrong;
    uint32_t n_rows, n_out, pitch, split_cols;
    float scale; /* of y */
    uint32_t padding;
};
ARGS_SIZE(struct cargs_lt_probe, 56);

/* product_tile.cu, product_wgmma.cu */
struct cargs_product_tile {
    const void *w, *pair; /* format.h; pair with an activation, else NULL */
    const uint16_t *x;    /* (n_rows, pitch) */
    const float *in_scale;
    float *y;
    float *partials; /* (K splits, n_rows, n_out): receives partial sums instead of y; or NULL */
    struct cargs_epilogue epilogue;
    uint64_t tile_row_bytes;                                      /* of 16 rows of weights */
    uint32_t n_rows, n_out, n_tiles, pitch, split_cols, n_stages; /* tiles of 16 rows */
    /* 1: the previous launch was such a product of the same inputs. That launch waited for its
     * inputs before it let this kernel start, so this one waits for it only at its end. */
    uint32_t overlaps_previous;
    uint32_t padding;
};
ARGS_SIZE(struct cargs_product_tile, 128);

/* Where a matrix of f16 lies: the driver's CUtensorMap, for the TMA unit of sm_90. Before sm_90,
 * which has no TMA, plain numbers: the matrix's address, bytes from row to row, rows, groups of 64
 * values of a row. */
struct cuda_tensor_map {
    uint64_t words[16];
} __attribute__((aligned(64)));
ARGS_SIZE(struct cuda_tensor_map, 128);

/* product_skinny*.cu, product_f32.cu: up to four weights of one format over one input; or a
 * pair of them, gate and up of one shape, w[0] and w[1], whose result goes to y[0].
 *
 * A tile is 16 outputs (F32: struct cuda_f32); the first weight's tiles come first, then the
 * second's. Block x of the grid has block_tiles of that list (skinny GEMM: one consumer warp for
 * each, times two for a pair, times the K splits). It has group_rows rows, the grid's y-th
 * group; with `tiles` (pairs of moe.c) those of the y-th tile. */
enum {
    CARGS_PRODUCT_WEIGHTS = 4,
    CARGS_PRODUCT_JOINED = CARGS_PRODUCT_WEIGHTS, /* the shared expert's first weight */
    CARGS_PRODUCT_MATRICES = CARGS_PRODUCT_JOINED + 2,
    CARGS_PRODUCT_INPUT = CARGS_PRODUCT_JOINED, /* of map, with by_lane: the input, without tiles */
    CARGS_F32_WARPS = 4,
    CARGS_SKINNY_CONSUMERS = 16 /* consumer warps of a block */,
    CARGS_SKINNY_PRODUCERS = 4,
    CARGS_SKINNY_STAGES = 16
};
/* A single row's experts side by side in each block, a slot each: their results are added up by
 * their weights, as moe_combine does. */
struct cargs_slots {
    const float *weights;              /* (n_used) */
    const float *shared, *shared_gate; /* as in cargs_moe_combine; shared: not if joined */
    uint32_t n;                        /* 0: none; n_used, and one if joined */
    uint32_t n_used;
    uint32_t weighed, padding; /* 1: the results have been multiplied by their weights */
};
ARGS_SIZE(struct cargs_slots, 40);
/* w[CARGS_PRODUCT_JOINED] on: the shared expert's, of the form of the other experts'; it is the
 * expert after them, with an epilogue of its own. */
struct cargs_product {
    struct cuda_tensor_map
        map[CARGS_PRODUCT_MATRICES]; /* skinny GEMM with F16: describes w, all experts */
    const void *w[CARGS_PRODUCT_MATRICES];
    float *y[CARGS_PRODUCT_WEIGHTS];
    struct cargs_epilogue epilogue[CARGS_PRODUCT_JOINED + 1]; /* a pair: the first */
    const void *x;                     /* (rows, pitch) of 16 bits; F32: (rows, n_in) */
    const float *x_scale;              /* (rows); not for F32 */
    const struct args_moe_tile *tiles; /* NULL: not experts */
    const uint32_t *list;
    uint64_t expert_bytes;
    uint32_t n_out[CARGS_PRODUCT_WEIGHTS];
    uint32_t last_tile[CARGS_PRODUCT_WEIGHTS]; /* of the list, one after each weight's last */
    uint32_t n_rows, n_in, pitch, split_cols, n_splits;
    uint32_t block_tiles, group_rows, n_share;
    uint8_t n_stages; /* 2 .. CARGS_SKINNY_STAGES */
    /* 1: a lane of each loader lets the TMA copy, also the input by map[CARGS_PRODUCT_INPUT], but
     * with tiles or x_row; 0: all lanes copy. */
    uint8_t by_lane;
    /* Launches of one input, one after the other: the first one waits for the input, then lets the
     * next one start, which waits for nothing until its end. */
    uint8_t launches_early, overlaps_previous;
    uint16_t n_consumers; /* of a block: consumer warps; after them the loaders, which copy weights,
                             then, without x_row, those that copy the input */
    uint16_t n_turns;     /* 2: two groups of loaders copy alternate stages, as do two warps of the
                             input; 1: all stages are copied by the same warps */
    uint32_t stage_bytes;
    uint32_t x_row;  /* not 0: each slot's whole row of the input lies after the ring, x_row bytes
                        apart */
    uint32_t y_tail; /* values after each row of y[0] that belong to others */
    uint32_t joined_expert; /* the number of the shared expert; more than there are: none */
    struct cargs_slots slots;
    float *send[CUDA_MAX_PEERS]; /* where other ranks have y[0] (peer.cuh), up to the first NULL */
};
ARGS_SIZE(struct cargs_product, 1280);

/* repack.cu */
struct cuda_repack_state {
    uint32_t largest; /* bits of the largest scale so far, f32 */
    int32_t shift[2]; /* exponents of the tiles so far, by the parity of the chunk */
};
ARGS_SIZE(struct cuda_repack_state, 12);
/* largest and repack: a chunk of rows. */
struct cargs_repack {
    const void *rows;
    void *tiles;
    struct cuda_repack_state *state;
    uint64_t row_bytes;
    uint32_t n_rows, n_in;
};
ARGS_SIZE(struct cargs_repack, 40);
/* rescale: the tiles before the chunk. */
struct cargs_rescale {
    void *tiles;
    struct cuda_repack_state *state;
    uint64_t n_tiles;
    uint32_t tile_bytes, scale_at, scale_words; /* of a tile; scale_at: bytes before the scales */
    uint32_t chunk;                             /* its number */
    int32_t exponent;
    uint32_t padding;
};
ARGS_SIZE(struct cargs_rescale, 48);
/* largest_value and halves: bf16 converted to f16 in place, times 2^shift[0]. */
struct cargs_halves {
    void *values; /* aligned to 16 bytes */
    struct cuda_repack_state *state;
    uint64_t n; /* a multiple of 8 */
};
ARGS_SIZE(struct cargs_halves, 24);
/* What the host knows about a file's type. */
struct cuda_repack_format {
    int32_t format; /* enum cuda_format */
    int32_t exponent;
    uint32_t tile_bytes, scale_at, scale_words;
};
ARGS_SIZE(struct cuda_repack_format, 20);

/* dequantize.cu: CUDA_DEQUANTIZE_TILES a block of 256 threads. */
enum { CUDA_DEQUANTIZE_TILES = 4 };
struct cargs_dequantize {
    const void *tiles;
    uint16_t *out; /* (n_out rounded up to 16, pitch), all written */
    uint64_t n_tiles;
    uint32_t n_in, pitch;
};
ARGS_SIZE(struct cargs_dequantize, 32);

/* heads.cu: the input of op_linear_heads. Pair row * n_heads + head is a row of the product. */
enum {
    CUDA_HEADS_WARPS = 8, /* of a block, one pair each */
    CUDA_HEADS_ROWS = 256 /* most rows of one launch */
};
struct cargs_heads_input {
    const float *x;              /* (n_rows, n_heads, n_in + n_tail) */
    void *out;                   /* (pairs, pitch) of 16 bits; with f32 (pairs, n_in) of F32 */
    float *scales;               /* (pairs), not for F32 */
    float *y;                    /* (n_rows, n_heads, n_out + n_tail): receives the tails */
    uint32_t *list;              /* (pairs), head by head */
    struct args_moe_tile *tiles; /* of each head its rows / tile_rows, rounded up */
    uint32_t n_rows, n_heads, n_in, n_out, n_tail, pitch, f32, tile_rows;
};
ARGS_SIZE(struct cargs_heads_input, 80);

/* moe.cu */
enum { CUDA_MOE_TILE = 32 }; /* largest tile_rows */
struct cargs_moe_route {
    const float *scores;       /* (n_rows, n_experts) */
    const float *bias;         /* (n_experts), read if op.has_bias */
    const float *expert_scale; /* (n_experts), read if op.has_expert_scale */
    uint32_t *experts;         /* (n_rows, n_used), ascending */
    float *weights;            /* (n_rows, n_used) */
    uint32_t *list;            /* written for a single row only, as are tiles */
    struct args_moe_tile *tiles;
    struct args_moe_route op;
    uint32_t joined; /* 1: the shared expert comes after a single row's pairs, as one more */
    uint32_t padding;
};
ARGS_SIZE(struct cargs_moe_route, 112);
struct cargs_moe_lists {
    const uint32_t *experts;     /* (n_pairs) */
    uint32_t *list;              /* (n_pairs) */
    struct args_moe_tile *tiles; /* (n_tiles) */
    struct args_moe_lists op;
};
ARGS_SIZE(struct cargs_moe_lists, 40);
struct cargs_moe_combine {
    const float *out;                  /* (n_rows, n_used, n_in) */
    const float *weights;              /* (n_rows, n_used) */
    const float *shared, *shared_gate; /* (n_rows, n_in), (n_rows), or NULL */
    float *y;                          /* (n_rows, n_in) */
    struct args_moe_combine op;
    uint32_t padding;
};
ARGS_SIZE(struct cargs_moe_combine, 56);

#endif
#endif
