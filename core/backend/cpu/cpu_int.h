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
    CPU_ROPE_STORE_F32, /* K/V types in the order of cpu_kv_index */
    CPU_ROPE_STORE_F16,
    CPU_ROPE_STORE_BF16,
    CPU_ROPE_STORE_Q8_0,
    CPU_PAGED_ATTENTION_F32,
    CPU_PAGED_ATTENTION_F16,
    CPU_PAGED_ATTENTION_BF16,
    CPU_PAGED_ATTENTION_Q8_0,
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

struct cpu_attn_job; /* attn.h */
struct cpu_attn_merge;

struct cpu_isa {
    const char *name;
    const char *kernel_names[CPU_N_KERNELS]; /* NULL: only generic has this kernel */
    uint32_t block_step; /* attention wants block_tokens to be a multiple of this */
    void (*linear)(const struct cpu_linear_job *j);
    /* n (a multiple of 32) values to blocks: d = max|x| / CPU_Q_MAX, q = x / d to nearest. */
    void (*quantize)(const float *x, int16_t *q, float *d, uint32_t n);
    /* x (n) += residual if not NULL; out (n) = x / rms(x) * weight. */
    void (*rmsnorm)(float *x, const float *residual, const float *weight, float *out, uint32_t n,
                    float eps);
    void (*glu_silu)(const float *gate, const float *up, float *out, uint32_t n);
    /* x (n) to n values of a K/V type; Q8_0: and n / 32 scales. Values need no alignment. */
    void (*encode_kv)(int type, const float *x, void *values, uint16_t *scales, uint32_t n);
    void (*attention)(const struct cpu_attn_job *j);
    void (*attention_merge)(const struct cpu_attn_merge *m);
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

struct cpu_backend {
    struct backend base;
    const struct cpu_isa *isa;
    pool *pool;
    uint32_t counters[2][CPU_N_KERNELS]; /* of isa, of the generic kernels */
    int16_t *xq;                         /* (max_rows, max_cols rounded up to 32) */
    float *xd;                           /* (max_rows, max_cols / 32 rounded up) */
    struct cpu_attn *attn;               /* attention.c */
    struct cpu_rope *rope;               /* rope_store.c */
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

/* Place of a K/V type in the tables of kernels. */
static inline uint32_t cpu_kv_index(int kv_type) {
    return kv_type == QTYPE_F32 ? 0 : kv_type == QTYPE_F16 ? 1 : kv_type == QTYPE_BF16 ? 2 : 3;
}

/* Memory of an op that is taken at open; half-built on failure, for the free below. ERR_NOMEM. */
int cpu_attn_new(uint32_t max_rows, int n_threads, struct cpu_attn **out);
void cpu_attn_free(struct cpu_attn *t); /* NULL is fine */
int cpu_rope_new(uint32_t max_rows, struct cpu_rope **out);
void cpu_rope_free(struct cpu_rope *t);

void generic_encode_kv(int type, const float *x, void *values, uint16_t *scales, uint32_t n);
void generic_attention(const struct cpu_attn_job *j);
void generic_attention_merge(const struct cpu_attn_merge *m);

int cpu_embed(backend *be, const struct op_embed *a);
int cpu_rmsnorm(backend *be, const struct op_rmsnorm *a);
int cpu_linear(backend *be, const struct op_linear *a);
int cpu_rope_store(backend *be, const struct op_rope_store *a);
int cpu_paged_attention(backend *be, const struct op_paged_attention *a);
int cpu_glu(backend *be, const struct op_glu *a);
int cpu_gather(backend *be, const struct op_gather *a);
int cpu_kv_copy(backend *be, const struct backend_kv *kv, const int32_t *pairs, uint32_t n_pairs);

#endif
