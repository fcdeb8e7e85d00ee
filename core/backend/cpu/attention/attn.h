/* attn.h - paged attention of the CPU device: shared by the launcher (attention.c) and the kernels.
 *
 * A task is a tile of queries (rows of one sequence times query heads of one KV head) over one
 * chunk (KV split) of CPU_ATTN_CHUNK positions or over all of them. Chunks begin at multiples of
 * CPU_ATTN_CHUNK; with a window, chunks that no row of a tile sees are skipped. Within a chunk a
 * query's keys are taken in ascending order with an online softmax of its own; the partial
 * results of the chunks that it sees are then merged in ascending order by one formula:
 *   m = max(M, m_c);  L = L * e(M - m) + l_c * e(m_c - m);  A likewise;  M = m
 * At the end a sink s is merged by the same formula with m_c = s, l_c = 1 and A_c = 0.
 * So a query's result depends only on its own position and keys (with both_ways, those of its
 * sequence): not on the other rows, on where a
 * prefill began, or on the number of threads that shared the chunks. Keys that only other queries
 * of the tile see get probability 0. */
#ifndef INFERD_BACKEND_CPU_ATTENTION_ATTN_H
#define INFERD_BACKEND_CPU_ATTENTION_ATTN_H

#include "core/backend/backend.h"

/* SPAN: the keys per update of the running maximum; a multiple of every block size, divides the
 * chunk. Q_STRIDE is not a power of two, so that the rows of a tile use different cache sets. */
enum {
    CPU_MAX_HEAD_DIM = 576, /* a latent row of 512 and 64 */
    CPU_MAX_BLOCK_TOKENS = 32,
    CPU_TILE_QUERIES = 64,
    CPU_ATTN_CHUNK = 256,
    CPU_ATTN_SPAN = 64,
    CPU_ATTN_LANES = 16, /* of the widest vector */
    CPU_ATTN_GROUP = 8,  /* maximum queries of a kernel call */
    CPU_ATTN_FEW = 2,    /* up to this many (no grouped heads) have their own kernel */
    CPU_Q_STRIDE = CPU_MAX_HEAD_DIM + CPU_ATTN_LANES
};

/* Partial results of n queries over some keys: running maximum, sum of the exponentials, and the
 * sum of V weighted by them. n and the row length are rounded up, see cpu_attn_padded. */
struct cpu_attn_partial {
    float *max, *sum; /* (n) */
    float *acc;       /* (n, acc_stride) */
};

enum { CPU_ATTN_PARTIAL_FLOATS = CPU_TILE_QUERIES * (CPU_MAX_HEAD_DIM + 2) };

/* Memory of one thread. */
struct cpu_attn_tile {
    float q[CPU_TILE_QUERIES * CPU_Q_STRIDE];     /* scaled: see load_queries */
    float k[CPU_ATTN_SPAN * CPU_MAX_HEAD_DIM];    /* (head_dim, SPAN) decoded */
    float v[CPU_ATTN_SPAN * CPU_MAX_HEAD_DIM];    /* (SPAN, v_dim padded) decoded */
    float score[CPU_ATTN_GROUP * CPU_ATTN_SPAN];  /* (queries at once, SPAN) */
    float sum[CPU_TILE_QUERIES * CPU_ATTN_LANES]; /* (queries, lanes) of the current chunk */
    float partial[2][CPU_ATTN_PARTIAL_FLOATS];    /* all chunks so far; the current one */
};

/* n_rows * n_group <= CPU_TILE_QUERIES. */
struct cpu_attn_job {
    const float *q; /* (n_rows, q_stride), at the first query head of the group */
    float *out;     /* (n_rows, out_stride), likewise */
    uint64_t q_stride, out_stride;
    const int32_t *pos;          /* (n_rows) */
    const int32_t *table;        /* blocks of the sequence */
    uint32_t first_key, end_key; /* rows see positions first_key .. end_key - 1 */
    uint32_t window;             /* as in op_paged_attention */
    bool chunked;                /* likewise */
    uint32_t seq_end;            /* both_ways: the positions of the sequence; else 0 */
    uint32_t n_rows, n_group, head_dim, v_dim, block_tokens;
    /* Pools, at the KV head: block b starts at byte b * block_bytes. v NULL: V is the first v_dim
     * dimensions of K. */
    const uint8_t *k, *v;
    uint64_t block_bytes;
    int kv_type;          /* enum qtype */
    float scale, softcap; /* as in op_paged_attention */
    const float *sinks;   /* (n_group) or NULL */
    const float *slopes;  /* likewise */
    struct cpu_attn_tile *tile;
    float *partial; /* NULL: all chunks, results to out; else this chunk only, results here */
    uint32_t chunk; /* positions from chunk * CPU_ATTN_CHUNK on */
};

/* One query of a split tile: merges the partials of the chunks that it sees into its output row. */
struct cpu_attn_merge {
    const float *partials; /* (n_chunks) partials, stride floats apart */
    uint64_t stride;
    uint32_t n_chunks, n_queries, query, v_dim;
    const float *sink; /* of the query's head, or NULL */
    float *out;        /* (v_dim) */
};

/* Number of queries, and of values of a row, rounded up to the kernels' granularity. */
static inline uint32_t cpu_attn_padded(uint32_t n_queries) {
    if (n_queries <= CPU_ATTN_FEW) return CPU_ATTN_FEW;
    return (n_queries + CPU_ATTN_GROUP - 1) / CPU_ATTN_GROUP * CPU_ATTN_GROUP;
}

static inline uint32_t cpu_attn_acc_stride(uint32_t v_dim) {
    return (v_dim + 2 * CPU_ATTN_LANES - 1) / (2 * CPU_ATTN_LANES) * (2 * CPU_ATTN_LANES);
}

/* Floats of a partial, a whole number of cache lines. */
static inline uint64_t cpu_attn_partial_floats(uint32_t n_queries, uint32_t v_dim) {
    uint64_t n = (uint64_t)cpu_attn_padded(n_queries) * (cpu_attn_acc_stride(v_dim) + 2);
    return (n + CPU_ATTN_LANES - 1) / CPU_ATTN_LANES * CPU_ATTN_LANES;
}

static inline struct cpu_attn_partial cpu_attn_partial_at(float *at, uint32_t n_queries,
                                                          uint32_t v_dim) {
    uint64_t n = cpu_attn_padded(n_queries);
    float *max = at + n * cpu_attn_acc_stride(v_dim);
    return (struct cpu_attn_partial){.acc = at, .max = max, .sum = max + n};
}

/* The first position that a row at pos sees; chunked: as in op_paged_attention. */
static inline uint32_t cpu_attn_first_key(uint32_t pos, uint32_t window, bool chunked) {
    if (chunked) return pos - pos % window;
    return window && pos >= window ? pos + 1 - window : 0;
}

/* The last one. seq_end: as in cpu_attn_job. */
static inline uint32_t cpu_attn_last_key(uint32_t pos, uint32_t window, uint32_t seq_end) {
    if (!seq_end) return pos;
    return window && window < seq_end - pos ? pos + window - 1 : seq_end - 1;
}

/* Does a row at pos see keys of the chunk? */
static inline bool cpu_attn_sees_chunk(const struct cpu_attn_job *j, uint32_t pos, uint32_t chunk) {
    return cpu_attn_last_key(pos, j->window, j->seq_end) / CPU_ATTN_CHUNK >= chunk &&
           cpu_attn_first_key(pos, j->window, j->chunked) / CPU_ATTN_CHUNK <= chunk;
}

/* Start of the Q8_0 scales of a run (one block, one head): after its int8 values. */
static inline const uint16_t *cpu_attn_scales(const uint8_t *run, uint32_t block_tokens,
                                              uint32_t head_dim) {
    return (const uint16_t *)(const void *)(run + (uint64_t)block_tokens * head_dim);
}

#endif
