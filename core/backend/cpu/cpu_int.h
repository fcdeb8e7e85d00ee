/* cpu_int.h - the CPU device: its objects, and the table of kernels that each instruction set
 * fills.
 *
 * Launchers (cpu.c, linear.c, rows.c, attention.c) split an op into chunks for the pool and call
 * kernels through struct cpu_isa. Kernels take raw pointers and run on any thread.
 * kernels_generic.c is the plain reference; *_avx2.c and *_avx512.c are built with their
 * instruction set's flags and are called only where the processor has it. */
#ifndef INFERD_CPU_INT_H
#define INFERD_CPU_INT_H

#include "core/backend/backend_int.h"
#include "core/backend/cpu/pool.h"

/* For quantized weights, activations become int16 in blocks as long as the weights' own: with int8
 * the products would be as fast only with instructions that AVX2 lacks, and 256 times coarser. */
enum { CPU_Q_ELEMS = 32, CPU_Q_MAX = 32767 };

/* Bounds of paged attention; they size the tiles of each thread. */
enum { CPU_MAX_HEAD_DIM = 256, CPU_MAX_BLOCK_TOKENS = 32, CPU_MAX_TILE_QUERIES = 32 };

/* One per kernel of one instruction set: also the order of the counters. */
enum cpu_kernel {
    CPU_EMBED,
    CPU_RMSNORM,
    CPU_QUANTIZE_ROWS,
    CPU_LINEAR_F32,
    CPU_LINEAR_F16,
    CPU_LINEAR_BF16,
    CPU_LINEAR_Q8_0,
    CPU_LINEAR_Q4_0,
    CPU_ROPE_STORE_F16,
    CPU_ROPE_STORE_F32,
    CPU_PAGED_ATTENTION_F16,
    CPU_PAGED_ATTENTION_F32,
    CPU_GLU_SILU,
    CPU_GATHER,
    CPU_KV_COPY,
    CPU_N_KERNELS
};

/* y[row][out] for row < n_rows, out0 <= out < out0 + n_outs. Pointers stand at row 0. */
struct cpu_linear_job {
    int type;          /* enum qtype of w */
    const float *x;    /* (n_rows, n_in): F32, F16 and BF16 weights */
    const int16_t *xq; /* (n_rows, n_in): Q8_0 and Q4_0 weights ... */
    const float *xd;   /* (n_rows, n_in / 32): ... x = xq * xd */
    uint32_t n_rows, n_in;
    const uint8_t *w; /* (n_out, n_in) of type */
    uint64_t w_row_bytes;
    const float *bias; /* (n_out) or NULL */
    float *y;          /* (n_rows, y_stride) */
    uint64_t y_stride;
    uint32_t out0, n_outs;
};

/* Memory of one thread's attention task. */
struct cpu_attn_tile {
    float k[CPU_MAX_BLOCK_TOKENS * CPU_MAX_HEAD_DIM];   /* (block_tokens, head_dim) */
    float v[CPU_MAX_BLOCK_TOKENS * CPU_MAX_HEAD_DIM];   /* (block_tokens, head_dim) */
    float acc[CPU_MAX_TILE_QUERIES * CPU_MAX_HEAD_DIM]; /* (n_rows * n_group, head_dim) */
    float max[CPU_MAX_TILE_QUERIES], sum[CPU_MAX_TILE_QUERIES];
};

/* Rows of one sequence times query heads of one KV head: n_rows * n_group <= CPU_MAX_TILE_QUERIES.
 * Keys are taken block by block from position 0 on with an online softmax, so a row's result does
 * not depend on the rows beside it or on where a prefill chunk began. */
struct cpu_attn_job {
    const float *q; /* (n_rows, q_stride), at the first query head of the group */
    float *out;     /* (n_rows, q_stride), likewise */
    uint64_t q_stride;
    const int32_t *pos;   /* (n_rows) */
    const int32_t *table; /* blocks of the sequence */
    uint32_t n_rows, n_group, head_dim, block_tokens;
    const void *k, *v; /* pools, at the KV head: block b starts at element b * block_stride */
    uint64_t block_stride;
    int kv_type; /* enum qtype */
    float scale;
    struct cpu_attn_tile *tile;
};

struct cpu_isa {
    const char *name;
    const char *kernel_names[CPU_N_KERNELS]; /* NULL: only generic has this kernel */
    uint32_t step; /* attention wants head_dim and block_tokens to be multiples of this */
    void (*linear)(const struct cpu_linear_job *j);
    /* n (a multiple of 32) values to blocks: d = max|x| / CPU_Q_MAX, q = x / d to nearest. */
    void (*quantize)(const float *x, int16_t *q, float *d, uint32_t n);
    /* x (n) += residual if not NULL; out (n) = x / rms(x) * weight. */
    void (*rmsnorm)(float *x, const float *residual, const float *weight, float *out, uint32_t n,
                    float eps);
    void (*glu_silu)(const float *gate, const float *up, float *out, uint32_t n);
    void (*store_f16)(const float *src, uint16_t *dst, uint32_t n);
    void (*attention)(const struct cpu_attn_job *j);
};

extern const struct cpu_isa cpu_isa_generic;
#if defined(__x86_64__)
extern const struct cpu_isa cpu_isa_avx2, cpu_isa_avx512;

/* isa.c */
bool cpu_has_avx2(void);
bool cpu_has_avxvnni(void);
bool cpu_has_avx512(void);
#endif

struct cpu_weight {
    struct backend_weight base;
    const void *data; /* (n_out, n_in) of base.type, borrowed */
    uint64_t row_bytes;
};

/* Rows of a prefill chunk that share their K/V tile. */
struct cpu_attn_group {
    uint32_t seq, row, n_rows;
};

struct cpu_backend {
    struct backend base;
    const struct cpu_isa *isa;
    pool *pool;
    uint32_t counters[2][CPU_N_KERNELS]; /* of isa, of the generic kernels */
    int16_t *xq;                         /* (max_rows, max_cols rounded up to 32) */
    float *xd;                           /* (max_rows, max_cols / 32 rounded up) */
    float *angles;                       /* (n_threads, CPU_MAX_HEAD_DIM): cosines, then sines */
    struct cpu_attn_tile *tiles;         /* (n_threads) */
    struct cpu_attn_group *groups;       /* (max_rows) */
};

static inline struct cpu_backend *cpu_of(backend *be) {
    return (struct cpu_backend *)be;
}

static inline const struct cpu_weight *cpu_weight_of(const backend_weight *w) {
    return (const struct cpu_weight *)w;
}

static inline void cpu_count(struct cpu_backend *c, const struct cpu_isa *isa, uint32_t kernel) {
    backend_count_kernel(&c->base, c->counters[isa != c->isa][kernel]);
}

int cpu_embed(backend *be, const struct op_embed *a);
int cpu_rmsnorm(backend *be, const struct op_rmsnorm *a);
int cpu_linear(backend *be, const struct op_linear *a);
int cpu_rope_store(backend *be, const struct op_rope_store *a);
int cpu_paged_attention(backend *be, const struct op_paged_attention *a);
int cpu_glu(backend *be, const struct op_glu *a);
int cpu_gather(backend *be, const struct op_gather *a);
int cpu_kv_copy(backend *be, const struct backend_kv *kv, const int32_t *pairs, uint32_t n_pairs);

#endif
