/* args_attention.h - argument structs of RoPE with the store to the KV cache, of paged attention,
 * and of the ops with a recurrent state. args.h explains the names and the layout. */
#ifndef INFERD_SHADERS_ARGS_ATTENTION_H
#define INFERD_SHADERS_ARGS_ATTENTION_H

#include "shaders/args.h"

/* ---- rope_store ---- */

/* The values that a norm of q or k covers: none, each head, all heads of a row. */
enum args_norm { ARGS_NORM_NONE, ARGS_NORM_HEADS, ARGS_NORM_ROW };
struct args_rope_store {
    uint32_t n_heads, n_kv_heads;
    uint32_t n_slots; /* of the pools */
    float eps, magnitude;
    float q_log_scale;
    uint32_t q_log_length, q_log_from, norm_last, v_normed; /* as in op_rope_store */
};
ARGS_SIZE(struct args_rope_store, 40);

/* ---- paged attention. A device divides the rows into tasks and a task's positions into KV
 * splits; the comments of the devices' structs say how. ---- */
struct args_attention {
    uint32_t n_seqs, n_heads, n_kv_heads, table_stride;
    uint32_t window;             /* 0: none */
    uint32_t first_task;         /* of this launch */
    uint32_t n_slices;           /* of a KV head's group of query heads */
    uint32_t n_splits;           /* largest number of KV splits of a task */
    float q_scale;               /* scale * log2(e); with softcap scale / softcap */
    float cap;                   /* softcap * log2(e); 0: none */
    uint32_t both_ways, chunked; /* as in op_paged_attention */
};
ARGS_SIZE(struct args_attention, 48);

/* ---- state blocks (core/backend/state_layout.h) ---- */
struct args_state {
    uint64_t tail, recent, k, u, g, end; /* struct backend_state_parts, in floats */
    uint32_t n_seqs, n_blocks;
};
ARGS_SIZE(struct args_state, 56);

/* ================================ Metal ================================ */

/* rope.metal: rope_store, with struct args_rope_store. One simdgroup per head. */
#define MARGS_ROPE_SIMDGROUPS 4 /* of a threadgroup */
enum margs_rope_const {
    MARGS_ROPE_KV_TYPE, /* enum qtype of the pools */
    MARGS_ROPE_HEAD_DIM,
    MARGS_ROPE_BLOCK_TOKENS,
    MARGS_ROPE_Q_NORM, /* enum args_norm */
    MARGS_ROPE_K_NORM,
    MARGS_ROPE_N_ROT,
    MARGS_ROPE_INTERLEAVED,
    MARGS_ROPE_NORM_DIM, /* a head's norm covers its first dimensions */
    MARGS_ROPE_FIRST_ROT /* dimension */
};
#define MARGS_ROPE_MAX_DIM 640 /* of a head */

/* attention.metal, attention_matrix.metal, with struct args_attention. A task is one slice of
 * the query heads of one KV head, of one row or, if the kernel takes only sequences of one row,
 * of one sequence. A KV split is a chunk. */
#define MARGS_ATTENTION_CHUNK 128 /* tokens */
enum margs_attention_const {
    MARGS_ATTENTION_KV_TYPE, /* enum qtype of the pools */
    MARGS_ATTENTION_HEAD_DIM,
    MARGS_ATTENTION_BLOCK_TOKENS,
    MARGS_ATTENTION_GROUP, /* query heads of a KV head */
    MARGS_ATTENTION_SOFTCAP,
    MARGS_ATTENTION_SINKS,
    MARGS_ATTENTION_SLOPES,
    /* attention_decode, attention_reduce */
    MARGS_ATTENTION_HEADS,      /* query heads of a threadgroup: of one slice */
    MARGS_ATTENTION_SIMDGROUPS, /* of a threadgroup, one chunk each */
    MARGS_ATTENTION_BY_SEQ,     /* 1: a task is one sequence of one row; else any row */
    MARGS_ATTENTION_FINAL,      /* a row sees at most one chunk: no second pass */
    /* attention_prefill */
    MARGS_ATTENTION_ROWS = MARGS_ATTENTION_HEADS,          /* queries of a tile: 8 or 16 */
    MARGS_ATTENTION_MIN_ROWS = MARGS_ATTENTION_SIMDGROUPS, /* shorter sequences are skipped */
    MARGS_ATTENTION_HALVES = MARGS_ATTENTION_BY_SEQ        /* tiles may have halves as operands */
};

/* attention_latent.metal, with struct args_attention: the queries of a sequence in tiles, which a
 * launch counts from first_task. A KV split is a chunk. Its first constants are those before
 * MARGS_ATTENTION_HEADS. */
#define MARGS_LATENT_CHUNK     256 /* tokens */
#define MARGS_LATENT_QUERIES   8   /* of a tile */
#define MARGS_LATENT_PHASE     128 /* dimensions of K in threadgroup memory */
#define MARGS_LATENT_ROW       20  /* floats of one of them there: 16 tokens, 4 of padding */
#define MARGS_LATENT_MAX_DIM   640 /* of K */
#define MARGS_LATENT_MAX_V_DIM 512 /* of V, the first of K's */
enum margs_latent_const {
    MARGS_LATENT_V_DIM = MARGS_ATTENTION_HEADS,
    MARGS_LATENT_SPLIT /* a threadgroup takes one chunk; else all of a tile's */
};

/* state_rows.h: the constants of every kernel over state blocks */
#define MARGS_STATE_MAX_K_DIM 256 /* BACKEND_STATE_MAX_K_DIM */
#define MARGS_STATE_MAX_V_DIM 128 /* BACKEND_STATE_MAX_V_DIM */
#define MARGS_STATE_MAX_TAPS  4   /* BACKEND_STATE_MAX_TAPS */
enum margs_state_const {
    MARGS_STATE_CHUNK,
    MARGS_STATE_TAPS,
    MARGS_STATE_SINGLE, /* each sequence has one row */
    MARGS_STATE_N_CONSTS
};

/* delta_net.metal: op_linear_attention */
struct margs_delta_net {
    struct args_state state;
    uint32_t n_k_heads, n_v_heads, tiled;
    float eps, q_scale;
    uint32_t has_conv_bias;
    uint32_t n_norm_groups; /* of mamba2_norm */
    uint32_t apart;         /* Q, K and V and their taps have buffers of their own */
};
ARGS_SIZE(struct margs_delta_net, 88);
#define MARGS_DELTA_QUARTERS   4   /* threads of delta_run for a column, and dimensions' quarters */
#define MARGS_DELTA_ROWS       4   /* that delta_run takes at a time */
#define MARGS_DELTA_FOLD       8   /* pending rows that it adds to the state at a time */
#define MARGS_DELTA_SIMDGROUPS 4   /* of a threadgroup of delta_conv and delta_keep */
#define MARGS_DELTA_NORM       256 /* threads of mamba2_norm */
enum margs_delta_const {
    MARGS_DELTA_K_DIM = MARGS_STATE_N_CONSTS,
    MARGS_DELTA_V_DIM,
    MARGS_DELTA_RULE, /* enum args_delta_rule */
    MARGS_DELTA_N_CONSTS
};
enum args_delta_rule {
    ARGS_RULE_MAMBA2,
    ARGS_RULE_DELTA,   /* a gated delta net */
    ARGS_RULE_CHANNELS /* one whose dimensions of K decay by themselves */
};

/* short_conv.metal: op_short_conv */
struct margs_short_conv {
    struct args_state state;
    uint32_t channels, padding;
};
ARGS_SIZE(struct margs_short_conv, 64);

/* ================================ CUDA ================================ */
#if !defined(__METAL_VERSION__)

/* rope.cu. A block has heads of q, k or v of one row. */
enum {
    CUDA_ROPE_WARPS = 4,
    CUDA_ROPE_DIM = 256,     /* of the heads of one kernel; wider heads have another, */
    CUDA_ROPE_MAX_DIM = 640, /* up to this */
    CUDA_ROPE_ROWS = 16
};
struct cargs_rope_store {
    float *q;
    const float *k, *v;
    const int32_t *pos, *slots;
    const float *inv_freq, *q_norm, *k_norm; /* norms (head_dim) or (all heads), or NULL */
    unsigned char *k_pool, *v_pool;
    uint64_t run_bytes; /* of one block and head */
    struct args_rope_store op;
    uint32_t n_rows, head_dim, n_rot, interleaved;
    uint32_t kv_type, block_tokens;    /* enum qtype */
    uint32_t q_norm_kind, k_norm_kind; /* enum args_norm */
    uint32_t q_blocks, k_blocks;       /* of a row; those of v follow; k_blocks 0: q alone */
    uint32_t block_heads;              /* of a block */
    uint32_t k_tiles;   /* not 0: the blocks of k, each CUDA_ROPE_ROWS rows of one head */
    uint32_t norm_dim;  /* a head's norm covers its first dimensions */
    uint32_t first_rot; /* dimension; a multiple of 4 */
};
ARGS_SIZE(struct cargs_rope_store, 184);

/* attention*.cu */

enum {
    CUDA_ATTENTION_PLAIN_WARPS = 8, /* of a block of attention_plain */
    CUDA_ATTENTION_CHUNK = 64,      /* tokens of one softmax: attention.cuh */
    CUDA_ATTENTION_SPAN = 16,       /* chunks that are merged before spans are */
    CUDA_ATTENTION_QUERIES =
        16,                   /* most queries of a sequence of several rows in attention_decode */
    CUDA_ATTENTION_SLICE = 8, /* most queries of a block of it */
    CUDA_ATTENTION_WARPS = 4, /* of such a block, for the quarters of a chunk */
    CUDA_ATTENTION_MERGE_RANKS = 8, /* spans that a block of attention_decode_merge reads at once */
    CUDA_ATTENTION_TILE = 128,      /* queries of a block of attention_prefill */
    CUDA_ATTENTION_PARTIAL =
        4 /* f32 after o in a query's partial result: m, l, 2 unused to align rows */
};

enum cuda_attention_type {
    CUDA_ATTENTION_F16,
    CUDA_ATTENTION_BF16,
    CUDA_ATTENTION_Q8,
    CUDA_ATTENTION_N_TYPES
};

/* Kernels for heads of 64, of 128, of 256, of any multiple of 16 up to 128, up to 256, and of 512
 * dimensions. */
enum cuda_attention_dims {
    CUDA_ATTENTION_64,
    CUDA_ATTENTION_128,
    CUDA_ATTENTION_256,
    CUDA_ATTENTION_TO_128,
    CUDA_ATTENTION_TO_256,
    CUDA_ATTENTION_512,
    CUDA_ATTENTION_N_DIMS
};

/* attention_latent.cu: the latent rows of multi-head latent attention */
enum {
    CUDA_LATENT_DIM = 576,    /* of K */
    CUDA_LATENT_V_DIM = 512,  /* of V, the first of K's */
    CUDA_LATENT_GROUPS = 3,   /* most groups of 8 queries of a block */
    CUDA_LATENT_QUERIES = 64, /* most of a sequence of several rows whose positions are divided */
    CUDA_LATENT_WARPS = 12,   /* of a block */
    CUDA_LATENT_RING = 12,    /* most quarters of a chunk (16 tokens) in shared memory */
    CUDA_LATENT_MERGE_THREADS = 64
};

/* A task is a sequence, a KV head and CUDA_ATTENTION_SLICE of its queries; a query is a row and
 * one of the KV head's group of query heads. Sequences of several rows with more than
 * CUDA_ATTENTION_QUERIES queries are attention_prefill's. A KV split is one chunk of a task's
 * positions (by_chunk) or one span; its partial result has, for each query, o (head_dim), m, l. */
struct cargs_attention {
    const float *q, *sinks, *slopes; /* sinks and slopes may be NULL */
    const int32_t *pos, *row_start, *tables;
    const void *k, *v;
    float *out;
    float
        *partials;  /* (tasks of this pass, n_splits, n_slots, head_dim + CUDA_ATTENTION_PARTIAL) */
    uint32_t *done; /* (tasks of this pass) blocks that have stored their partial results; 0 between
                       launches */
    struct args_attention op;
    uint32_t n_rows;
    uint32_t head_dim, block_tokens, run_bytes; /* run: K or V of one block and head */
    uint32_t kv_type;                           /* enum qtype: for attention_plain */
    uint32_t quarter_shift;                     /* log2(block_tokens / 16): attention_decode */
    uint32_t n_slots;                           /* queries of a task */
    uint32_t first_row;                         /* attention_plain's */
    uint32_t block_splits;                      /* of a block */
    uint32_t by_chunk;                          /* a KV split is a chunk; else a span */
    uint32_t n_stages;    /* attention_prefill: 1..3; attention_latent: quarters of chunks, 4.. */
    uint32_t v_dim;       /* dimensions of a head of V and of out */
    uint32_t v_of_k;      /* V is the head of K */
    uint32_t tiles;       /* sequences of many queries, in attention_latent, attention_decode */
    uint32_t slice;       /* attention_latent: most queries of a block */
    uint32_t block_shift; /* log2(block_splits) */
    /* 1 / divisor, for quotients: of query heads by their KV head's group, of tasks */
    float inverse_group, inverse_slices, inverse_kv_heads, padding;
};
ARGS_SIZE(struct cargs_attention, 216);

/* attention_decode. store.q NULL: q, K and V are ready; otherwise each sequence has one row, whose
 * q, k and v are the inputs of rope_store. */
struct cargs_decode {
    struct cargs_attention attention;
    struct cargs_rope_store store;
};
ARGS_SIZE(struct cargs_decode, 400);

/* delta_net.cu, delta_prefill.cu: op_linear_attention */
enum {
    CUDA_DELTA_COUNTERS = 1 << 16,
    CUDA_DELTA_THREADS = 512,   /* of the kernels that make rows but delta_prefill */
    CUDA_DELTA_STEP_BLOCKS = 2, /* of a multiprocessor at once */
    CUDA_DELTA_COLS = 32,       /* columns of a V head that a block of delta_prefill has */
    CUDA_DELTA_ROWS = 8,        /* rows that share a read of S */
    CUDA_DELTA_NORM_HEADS = 4   /* of a block of delta_norm */
};
enum cuda_delta_kernel {
    CUDA_DELTA_CONV,
    CUDA_DELTA_STEP, /* one row per sequence; otherwise */
    CUDA_DELTA_PAIRS,
    CUDA_DELTA_PREFILL,
    CUDA_DELTA_NORM,
    CUDA_DELTA_KEEP,
    CUDA_MAMBA2_CONV,
    CUDA_MAMBA2_RUN,
    CUDA_MAMBA2_STEP,
    CUDA_MAMBA2_NORM,
    CUDA_CHANNELS_RUN, /* delta nets whose dimensions of K decay by themselves */
    CUDA_CHANNELS_STEP
};
struct cargs_delta_net {
    const float *qkv;         /* (n_rows, channels); with k and v Q alone */
    const float *k, *v;       /* (n_rows, K's or V's channels) or both NULL */
    const float *z;           /* (n_rows, n_v_heads, v_dim) */
    const float *alpha;       /* (n_rows, n_v_heads, n_decays) */
    const float *beta;        /* (n_rows, n_v_heads) */
    const int32_t *pos;       /* (n_rows); below 0: padding */
    const int32_t *row_start; /* (n_seqs + 1) */
    const int32_t *tables;    /* (n_seqs, 2) */
    const float *conv, *a, *dt_bias, *norm;
    const float *conv_k, *conv_v;  /* with k and v; conv is of Q alone */
    const float *conv_bias, *skip; /* of Mamba-2; conv_bias or NULL */
    float *blocks;                 /* (n_blocks, end) */
    float *work;                   /* (n_rows, channels) */
    float *pairs; /* (n_rows, n_k_heads, 2, chunk): k[j].k[i] and k[j].q[i] of row i */
    float *out;   /* (n_rows, n_v_heads, v_dim) */
    struct args_state state;
    uint32_t chunk, n_taps, n_k_heads, n_v_heads, k_dim, v_dim, tiled;
    float eps, q_scale;
    uint32_t n_norm_groups;
    uint32_t prefill;  /* delta_prefill has made the rows */
    uint32_t n_decays; /* 1 or k_dim */
    /* delta_step: the grid's sequences begin at first_seq; done: (sequences of the grid, n_k_heads)
     * counters, up to CUDA_DELTA_COUNTERS, 0 between launches. */
    uint32_t *done;
    uint32_t first_seq;
    uint32_t ahead; /* delta_step: a block begins to bring the state of that many blocks later */
};
ARGS_SIZE(struct cargs_delta_net, 288);

/* short_conv.cu: op_short_conv */
enum { CUDA_SHORT_CONV_THREADS = 128 };
struct cargs_short_conv {
    const float *bcx;         /* (n_rows, 3, channels) */
    const int32_t *pos;       /* (n_rows); below 0: padding */
    const int32_t *row_start; /* (n_seqs + 1) */
    const int32_t *tables;    /* (n_seqs, 2) */
    const float *conv;
    float *blocks; /* (n_blocks, end) */
    float *out;    /* (n_rows, channels) */
    struct args_state state;
    uint32_t n_rows, chunk, n_taps, channels;
};
ARGS_SIZE(struct cargs_short_conv, 128);

struct cargs_gate {
    float *x;          /* (n) */
    const float *gate; /* (n / span) or NULL */
    uint64_t n;
    uint32_t unary; /* enum args_unary */
    uint32_t span, softplus;
    struct args_xielu xielu;
    uint32_t padding;
};
ARGS_SIZE(struct cargs_gate, 56);

#endif
#endif
