/* cargs.h - arguments of the CUDA kernels, one struct each: plain members and device pointers.
 * Shared by the launchers in core/backend/cuda (C) and the kernels. Pointers first, so that there
 * is no padding inside. */
#ifndef INFERD_SHADERS_CUDA_CARGS_H
#define INFERD_SHADERS_CUDA_CARGS_H

#include "shaders/cuda/tensor_map.h"

#include <stdint.h>

/* ---- rows.cu ---- */

/* embed: a block a row. */
struct cargs_embed {
    const void *table;
    const int32_t *ids;
    float *out;
    uint64_t row_bytes; /* of the table */
    uint32_t n_rows, n_cols;
    float scale;
    uint32_t type; /* enum qtype */
};

/* gather: a block a row. */
struct cargs_gather {
    const float *x, *residual; /* residual may be NULL */
    const int32_t *rows;
    float *out;
    uint32_t n_rows, n_cols;
};

/* upload: from the host's pinned memory; blocks (any, a piece). */
enum { CARGS_UPLOADS = 12 };
struct cargs_upload_piece {
    const uint32_t *from;
    uint32_t *to;
    uint32_t n;
};
struct cargs_upload {
    struct cargs_upload_piece pieces[CARGS_UPLOADS];
    uint32_t n;
};

/* copy_tokens: one thread per copy (struct backend_token_copy). */
struct cargs_copy_tokens {
    const int32_t *from, *copies;
    int32_t *ids;
    uint32_t stride, n;
};

/* kv_copy: pairs of blocks, from and to. */
enum { CARGS_KV_COPY_PAIRS = 256 };
struct cargs_kv_copy {
    void *k, *v;
    uint64_t block_bytes; /* a multiple of 16 */
    uint32_t n_pairs;
    int32_t pairs[2 * CARGS_KV_COPY_PAIRS];
};

/* ---- moe.cu, product kernels: pairs of one expert that are multiplied together ---- */
enum { CUDA_MOE_TILE = 32 };
struct cargs_moe_tile {
    uint32_t expert, first, count; /* pairs list[first] .. ; count 0: nothing */
};

/* ---- finish.cuh: what becomes of a product's sums ---- */
struct cargs_tail {
    const float *bias, *pair_bias; /* (n_out), experts' one after the other, or NULL */
    float scale, pair_scale;       /* of the weights: powers of two */
    float y_scale;                 /* 1: none */
    float cap, y_over_cap;         /* 0: no cap; y_scale / cap */
    uint32_t act;                  /* enum backend_act; with one the sums are pairs */
};

/* finish: sums (n_rows, n_out) f32 of whole products -> y, which may be sums. */
struct cargs_finish {
    const float *sums, *pair_sums, *in_scale; /* in_scale (n_rows), NULL: 1 */
    float *y;
    struct cargs_tail tail;
    uint32_t n_rows, n_out,
        n_parts; /* sums (n_parts, n_rows, n_out) are added; of pairs there is one part */
};

/* ---- lt_probe.cu ---- */

/* lt_fill: random f16. */
struct cargs_lt_fill {
    void *values;
    uint64_t n; /* even */
};

/* lt_probe: counts results in y that are not those of the chain, scaled. w has its rows up to a
 * multiple of 16. */
struct cargs_lt_probe {
    const void *w, *x;
    const float *y;
    uint32_t *wrong;
    uint32_t n_rows, n_out, pitch, part_cols;
    float scale; /* of y */
};

/* ---- product_tile.cu ---- */
struct cargs_product_tile {
    const void *w, *pair; /* format.h; pair with an activation, else NULL */
    const uint16_t *x;    /* (n_rows, pitch) */
    const float *in_scale;
    float *y;
    float *parts; /* NULL, or (grid's z, n_rows, n_out): sums of parts go there and not, finished,
                     to y */
    struct cargs_tail tail;
    uint64_t tile_row_bytes; /* of 16 rows of weights */
    uint32_t n_rows, n_out, n_tiles /* of 16 rows */, pitch, part_cols, n_stages;
    /* 1: the launch before this one was such a product of the same inputs. It lets the next begin
     * when they are there, so this one need not wait for it to end before it ends itself. */
    uint32_t beside;
};

/* ---- rope.cu: heads of q, k or v of one row a block ---- */
enum { CUDA_ROPE_WARPS = 4, CUDA_ROPE_MAX_DIM = 256, CUDA_ROPE_ROWS = 16 };
enum { CUDA_NORM_NONE, CUDA_NORM_HEADS, CUDA_NORM_ROW }; /* what a norm of q or k goes over */
struct cargs_rope_store {
    float *q;
    const float *k, *v;
    const int32_t *pos, *slots;
    const float *inv_freq, *q_norm, *k_norm; /* norms (head_dim) or (all heads), or NULL */
    unsigned char *k_pool, *v_pool;
    uint64_t run_bytes; /* of one block and head */
    uint32_t n_rows, n_heads, n_kv_heads, head_dim, n_rot, interleaved;
    uint32_t kv_type, block_tokens, n_slots; /* enum qtype */
    uint32_t q_norm_kind, k_norm_kind;       /* CUDA_NORM_* */
    uint32_t q_blocks, k_blocks;             /* of a row; those of v follow */
    uint32_t block_heads;                    /* of a block */
    uint32_t k_tiles; /* not 0: k goes by so many blocks of CUDA_ROPE_ROWS rows of one head */
    float eps, magnitude;
};

/* ---- top.cu: the best k of slices of rows, merged by the row's last block ---- */
enum {
    CUDA_TOP_MAX = 64,    /* largest k */
    CUDA_TOP_TILE = 2048, /* columns that a block takes at once */
    CUDA_TOP_SLICES = 64  /* most of a row */
};
struct cargs_top {
    const float *x;  /* (n_rows, n_cols) */
    uint64_t *lists; /* (n_rows, n_slices, k) */
    uint32_t *done;  /* (n_rows) slices that are in lists: 0 between launches */
    int32_t *ids;    /* (n_rows, k) */
    float *values;   /* (n_rows, k) */
    uint32_t n_cols, k, n_slices, slice_cols;
};

/* ---- linear_attention.cu ---- */
enum { CUDA_LINEAR_CHUNK_64 = 32, CUDA_LINEAR_CHUNK_128 = 16, CUDA_LINEAR_THREADS = 256 };
enum cuda_linear_kernel {
    CUDA_LINEAR_CHUNKS,
    CUDA_LINEAR_SCAN,
    CUDA_LINEAR_OUTPUTS,
    CUDA_LINEAR_KEEP,
    CUDA_LINEAR_STEP
};
struct cargs_linear_attention {
    const float *q, *k, *v; /* (n_rows, n_heads, head_dim) */
    const int32_t *pos, *row_start, *slots;
    const float *decay; /* (n_heads) or NULL: 1 */
    float *state;       /* (n_slots, n_heads, a slot and head) */
    float *out;         /* (n_rows, n_heads, head_dim) */
    float *states;      /* (n_tasks, n_heads, head_dim, head_dim) scratch */
    uint32_t n_seqs, n_heads, n_slots;
    uint32_t first_task, n_tasks; /* of this pass */
    float scale;
};

/* ---- sample.cu: a block a row ---- */

/* As struct backend_sampling and backend_sampled of core/backend/backend.h have them (sample.c
 * holds them to that). */
struct cargs_sampling {
    float temperature, top_p, min_p, repetition, presence, frequency;
    uint32_t top_k, first_history, n_history;
    uint32_t seed[2], index[2];
};
struct cargs_sampled {
    int32_t token;
    float logit, log_sum;
};
enum { CUDA_SAMPLE_THREADS = 1024, CUDA_SAMPLE_LIST = 4096 };
struct cargs_sample {
    float *x;
    const struct cargs_sampling *sampling;
    int32_t *history; /* (n_seen, 3) */
    struct cargs_sampled *out;
    uint32_t n_cols, n_history;
};

/* update_history: one block per update (struct backend_history_update). */
struct cargs_update_history {
    const struct cargs_sampled *sampled;
    const int32_t *updates;
    int32_t *history;
};

/* ---- input.cu ---- */

enum { CARGS_INPUT_F16, CARGS_INPUT_F32 }; /* enum cuda_in */

/* input: a block a row, threads a multiple of 32. */
struct cargs_input {
    float *x;
    const float *residual, *residual_norm, *norm; /* NULL: none */
    void *out;     /* (n_rows, pitch) of 16 bits, or F32 (n_rows, n_in) */
    float *scales; /* (n_rows), not for F32 */
    uint32_t n_in, pitch, kind;
    float residual_scale, eps;
    float scale, inverse; /* F16: what all rows are multiplied by; 0: each by its own */
};

/* ---- product_skinny*.cu, product_f32.cu: up to three weights of one format over one input; with a
 * pair of them, gate and up of one shape, w[0] and w[1], whose result goes to y[0].
 *
 * A tile is 16 outputs (F32: CARGS_F32_TILE); the first weight's tiles come first, then the
 * second's. The grid's x-th block has block_tiles of that list (skinny: a warp each, times two for
 * a pair, times the parts of K). Of the rows it has group_rows, the grid's y-th group of them; or
 * with tiles (pairs of moe.c) those of the y-th tile. */
enum {
    CARGS_PRODUCT_WEIGHTS = 3,
    CARGS_F32_TILE = 4,
    CARGS_SKINNY_WARPS = 16 /* with chains */,
    CARGS_SKINNY_FEEDERS = 4,
    CARGS_SKINNY_STAGES = 16
};
struct cargs_product {
    struct cuda_tensor_map map[CARGS_PRODUCT_WEIGHTS]; /* F16, of few rows: of w, all experts */
    const void *w[CARGS_PRODUCT_WEIGHTS];
    float *y[CARGS_PRODUCT_WEIGHTS];
    struct cargs_tail tail[CARGS_PRODUCT_WEIGHTS]; /* a pair: the first */
    const void *x;                                 /* (rows, pitch) of 16 bits; F32: (rows, n_in) */
    const float *x_scale;                          /* (rows); not for F32 */
    const struct cargs_moe_tile *tiles;            /* NULL: plain */
    const uint32_t *list;
    uint64_t expert_bytes;
    uint32_t n_out[CARGS_PRODUCT_WEIGHTS];
    uint32_t last_tile[CARGS_PRODUCT_WEIGHTS]; /* of the list, one behind each weight's */
    uint32_t n_rows, n_in, pitch, part_cols, n_parts;
    uint32_t block_tiles, group_rows, n_stages, n_share; /* n_stages: 2 .. CARGS_SKINNY_STAGES */
    uint32_t n_chains; /* of a block: warps; those behind them feed */
    uint32_t stage_bytes;
    uint32_t x_row; /* not 0: rows of the input lie whole behind the ring, so many bytes apart */
};

/* ---- comm.cu: what ncclAllGather brought, a rank's values behind the other's ---- */
enum { CUDA_SUM_VALUES = 4 }; /* of a thread */
struct cargs_sum_parts {
    const float *parts; /* (n_parts, n) */
    float *out;         /* (n) */
    uint64_t n;
    uint32_t n_parts;
};
struct cargs_join_parts {
    const float *parts; /* rank r's at r * stride: (n_rows, its columns of n_cols) */
    float *out;         /* (n_rows, n_cols) */
    uint64_t stride;
    uint32_t n_rows, n_cols, share;
};

/* ---- repack.cu ---- */
struct cuda_repack_state {
    uint32_t largest; /* bits of the largest scale so far, f32 */
    int32_t shift[2]; /* power of two of the tiles there are, before and after each second chunk */
};
/* largest and repack: a chunk of rows. */
struct cargs_repack {
    const void *rows;
    void *tiles;
    struct cuda_repack_state *state;
    uint64_t row_bytes;
    uint32_t n_rows, n_in;
};
/* rescale: the tiles before the chunk. */
struct cargs_rescale {
    void *tiles;
    struct cuda_repack_state *state;
    uint64_t n_tiles;
    uint32_t tile_bytes, scale_at, scale_words; /* of a tile; scale_at: bytes before the scales */
    uint32_t chunk;                             /* number of it */
    int32_t exponent;
};
/* largest_value and halves: bf16 that become f16 where they are, times 2^shift[0]. */
struct cargs_halves {
    void *values; /* aligned to 16 bytes */
    struct cuda_repack_state *state;
    uint64_t n; /* a multiple of 8 */
};
/* What the host knows of a file's type. */
struct cuda_repack_format {
    int format; /* enum cuda_format */
    int exponent;
    uint32_t tile_bytes, scale_at, scale_words;
};

/* ---- dequantize.cu: CUDA_DEQUANTIZE_TILES a block of 256 threads ---- */
enum { CUDA_DEQUANTIZE_TILES = 4 };
struct cargs_dequantize {
    const void *tiles;
    uint16_t *out; /* (n_out rounded up to 16, pitch), all written */
    uint64_t n_tiles;
    uint32_t n_in, pitch;
};

/* ---- attention*.cu ---- */

enum {
    CUDA_ATTENTION_CHUNK = 64, /* tokens of one softmax: attention.cuh */
    CUDA_ATTENTION_SPAN = 16,  /* chunks that are merged before spans are */
    CUDA_ATTENTION_QUERIES =
        16,                    /* most queries of a sequence of several rows in attention_decode */
    CUDA_ATTENTION_SLICE = 8,  /* most queries of a block of it */
    CUDA_ATTENTION_WARPS = 4,  /* of such a block, for the quarters of a chunk */
    CUDA_ATTENTION_TILE = 128, /* queries of a block of attention_prefill */
    CUDA_ATTENTION_PART =
        4 /* f32 of a part's query behind o: m, l, 2 unused so that rows are aligned */
};

enum cuda_attention_type {
    CUDA_ATTENTION_F16,
    CUDA_ATTENTION_BF16,
    CUDA_ATTENTION_Q8,
    CUDA_ATTENTION_N_TYPES
};

/* Kernels for heads of 64 and of 128 dimensions, and for any multiple of 16 up to 128 and to 256.
 */
enum cuda_attention_dims {
    CUDA_ATTENTION_64,
    CUDA_ATTENTION_128,
    CUDA_ATTENTION_TO_128,
    CUDA_ATTENTION_TO_256,
    CUDA_ATTENTION_N_DIMS
};

/* A task is a sequence, a KV head and CUDA_ATTENTION_SLICE of its queries; a query is a row and one
 * of the KV head's group of query heads. Sequences of several rows whose queries exceed
 * CUDA_ATTENTION_QUERIES are attention_prefill's. A part is what is found of a task's chunk
 * (by_chunk) or span before all are merged: of each of its queries o (head_dim), m, l. */
struct cargs_attention {
    const float *q, *sinks; /* sinks may be NULL */
    const int32_t *pos, *row_start, *tables;
    const void *k, *v;
    float *out;
    float *parts;   /* (tasks of this pass, n_parts, n_slots, head_dim + CUDA_ATTENTION_PART) */
    uint32_t *done; /* (tasks of this pass) blocks that have left their parts; 0 between launches */
    uint32_t n_rows, n_seqs, n_heads, n_kv_heads, table_stride, window;
    uint32_t head_dim, block_tokens, run_bytes; /* run: K or V of one block and head */
    uint32_t kv_type;                           /* enum qtype: for attention_plain */
    uint32_t quarter_shift;                     /* log2(block_tokens / 16): attention_decode */
    uint32_t n_slices, n_slots, first_task;
    uint32_t first_row;   /* attention_plain's */
    uint32_t n_parts;     /* most of a task */
    uint32_t block_parts; /* of a block */
    uint32_t by_chunk;    /* a part is a chunk; else a span */
    uint32_t n_stages;    /* of attention_prefill: 1..3 */
    float q_scale;        /* scale * log2(e), with softcap scale / softcap */
    float cap;            /* softcap * log2(e); 0: none */
};

/* attention_decode. store.q NULL: q, K and V are as they should be; otherwise each sequence has one
 * row, of which q, k and v are what rope_store would be given. */
struct cargs_decode {
    struct cargs_attention attention;
    struct cargs_rope_store store;
};

/* ---- moe.cu ---- */
enum { CUDA_MOE_EXPERTS = 1024 }; /* most */
/* moe_route: a block a row, of n_experts threads rounded up to 32. */
struct cargs_moe_route {
    const float *scores; /* (n_rows, n_experts) */
    uint32_t *experts;   /* (n_rows, n_used), ascending */
    float *weights;      /* (n_rows, n_used) */
    uint32_t *list;      /* of a single row */
    struct cargs_moe_tile *tiles;
    uint32_t n_rows, n_experts, n_used, renormalize;
    float weight_scale;
};
/* moe_lists: one block. */
struct cargs_moe_lists {
    const uint32_t *experts;      /* (n_pairs) */
    uint32_t *list;               /* (n_pairs) */
    struct cargs_moe_tile *tiles; /* (n_tiles) */
    uint32_t n_pairs, n_experts, tile_rows, n_tiles;
};
/* moe_combine: 256 columns a block, a row. */
struct cargs_moe_combine {
    const float *out;                  /* (n_rows, n_used, n_in) */
    const float *weights;              /* (n_rows, n_used) */
    const float *shared, *shared_gate; /* (n_rows, n_in), (n_rows), or NULL */
    float *y;                          /* (n_rows, n_in) */
    uint32_t n_in, n_used;
};

#endif
