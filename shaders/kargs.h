/* kargs.h - arguments of device kernels, one struct each, shared by C, MSL and CUDA.
 *
 * A launcher fills the struct, the kernel gets it at buffer(0). Plain 4-byte members only (pairs
 * for 64 bits), so that every compiler lays it out alike; KARGS_SIZE asserts the size on all sides.
 * Buffers are bound behind it, in the order that the kernel's comment in its source gives. */
#ifndef INFERD_SHADERS_KARGS_H
#define INFERD_SHADERS_KARGS_H

#if defined(__METAL_VERSION__)
#include <metal_stdlib>
typedef uint kargs_u32;
typedef int kargs_i32;
#define KARGS_SIZE(type, bytes) static_assert(sizeof(type) == bytes, #type)
#else
#include <stdint.h>
typedef uint32_t kargs_u32;
typedef int32_t kargs_i32;
#if defined(__cplusplus)
#define KARGS_SIZE(type, bytes) static_assert(sizeof(type) == bytes, #type)
#else
#define KARGS_SIZE(type, bytes) _Static_assert(sizeof(type) == bytes, #type)
#endif
#endif

/* rows.metal: embed. One thread a value of the output. */
struct kargs_embed {
    kargs_u32 n_rows, n_cols;
    kargs_u32 row_bytes; /* of the table */
    float scale;
};
KARGS_SIZE(struct kargs_embed, 16);

/* rows.metal: gather. */
struct kargs_gather {
    kargs_u32 n_rows, n_cols, has_residual;
};
KARGS_SIZE(struct kargs_gather, 12);

/* rows.metal: kv_copy. Pairs of blocks, from and to; 256 of them fit what a launch takes inline. */
#define KARGS_KV_COPY_PAIRS 256
#define KARGS_KV_COPY_UNIT  16 /* bytes that a thread copies */
struct kargs_kv_copy {
    kargs_u32 n_pairs, n_units; /* of a block */
    kargs_i32 pairs[2 * KARGS_KV_COPY_PAIRS];
};
KARGS_SIZE(struct kargs_kv_copy, 2056);

/* top.metal. Stage 1: slices of rows of x to lists of candidates; stage 2: a row's lists to its
 * result. Where one slice is the row, the first writes the result. */
#define KARGS_TOP_SIMDGROUPS 8
#define KARGS_TOP_MAX        64 /* BACKEND_MAX_TOP */
struct kargs_top {
    kargs_u32 n_cols, k;
    kargs_u32 n_slices, slice_cols; /* of a row of x */
    kargs_u32 first_row;            /* of this pass; candidates begin with its */
};
KARGS_SIZE(struct kargs_top, 20);

/* linear_attention.metal. A task is one chunk of one sequence, numbered as linear_base says. */
#define KARGS_LINEAR_CHUNK_64  32 /* BACKEND_LINEAR_CHUNK_64 */
#define KARGS_LINEAR_CHUNK_128 16
struct kargs_linear_attention {
    kargs_u32 n_seqs, n_heads, n_slots;
    kargs_u32 first_task, n_tasks; /* of this pass */
    kargs_u32 has_decay;
    float scale;
};
KARGS_SIZE(struct kargs_linear_attention, 28);

/* input.metal: input_rows. One threadgroup a row. */
struct kargs_input {
    kargs_u32 n_in;
    float residual_scale, eps;
};
KARGS_SIZE(struct kargs_input, 12);

/* moe.metal: moe_route. One threadgroup a row. */
struct kargs_moe_route {
    kargs_u32 n_rows, n_experts, n_used, renormalize;
    float weight_scale;
};
KARGS_SIZE(struct kargs_moe_route, 20);

/* moe.metal: moe_lists. One threadgroup. */
struct kargs_moe_lists {
    kargs_u32 n_pairs, n_experts;
    kargs_u32 tile_rows, n_tiles; /* most pairs of a tile; tiles to fill in */
};
KARGS_SIZE(struct kargs_moe_lists, 16);

/* moe.metal: moe_combine. */
struct kargs_moe_combine {
    kargs_u32 n_in, n_used, has_shared, has_gate;
};
KARGS_SIZE(struct kargs_moe_combine, 16);

/* rope.metal: rope_store. A simdgroup a head. */
struct kargs_rope_store {
    kargs_u32 n_heads, n_kv_heads;
    kargs_u32 n_slots; /* of the pools */
    float eps, magnitude;
};
KARGS_SIZE(struct kargs_rope_store, 20);

/* attention.metal, attention_matrix.metal. A task is one slice of the query heads of one KV head,
 * of one row or, where the kernel takes sequences of one row only, of one sequence. */
struct kargs_attention {
    kargs_u32 n_seqs, n_heads, n_kv_heads, table_stride;
    kargs_u32 window;     /* 0: none */
    kargs_u32 first_task; /* of this dispatch */
    kargs_u32 n_slices;   /* of a KV head's group of query heads */
    kargs_u32 n_parts;    /* chunks that a row can see, at most */
    float q_scale;        /* see attention.h */
    float cap;
};
KARGS_SIZE(struct kargs_attention, 40);

/* linear.metal, linear_matrix.metal. A tile is what a threadgroup has of a weight's outputs. */
#define KARGS_LINEAR_SIMDGROUPS 2  /* of linear_vector */
#define KARGS_PRODUCT_SLOTS     4  /* weight rows side by side in a simdgroup (product.h) */
#define KARGS_PRODUCT_TILE      32 /* outputs, and most rows, of a tile of product_matrix.h */
#define KARGS_PRODUCT_THREADS   256
struct kargs_linear {
    kargs_u32 n_rows, n_in;
    kargs_u32 n_out[3], n_tiles[2]; /* tiles: of the weights but the last */
    kargs_u32 row_bytes[2];         /* of the weights; of a pair's second */
    float y_scale, y_over_cap, cap; /* y_over_cap = y_scale / cap */
};
KARGS_SIZE(struct kargs_linear, 48);

/* moe.metal: moe_vector, moe_matrix.metal: the experts' products, gate and up as a pair or down. */
struct kargs_moe_products {
    struct kargs_linear linear; /* n_rows is not looked at: an expert's are known on the device */
    kargs_u32 n_share;          /* pairs that read one row of the input */
};
KARGS_SIZE(struct kargs_moe_products, 52);

#endif
