/* cpu_int.h - the CPU device: its objects, and the table of kernels that each instruction set
 * fills.
 *
 * Launchers (cpu.c, linear.c, rows.c, attention.c) split an op into chunks for the pool and call
 * kernels through struct cpu_isa and, for products, struct gemm_isa (gemm.h). Kernels take raw
 * pointers and run on any thread. kernels_generic.c is the plain reference; *_avx2.c and *_avx512.c
 * are built with their instruction set's flags and are called only where the processor has it. */
#ifndef INFERD_CPU_INT_H
#define INFERD_CPU_INT_H

#include "core/backend/backend_int.h"
#include "core/backend/cpu/gemm/gemm.h"
#include "core/backend/cpu/pool.h"

#include <math.h>

/* Kernels of an instruction set, except products; also the order of the counters. */
enum cpu_kernel {
    CPU_EMBED,
    CPU_RMSNORM,
    CPU_LAYERNORM,
    CPU_ADD_ROWS,       /* norm_row without a norm */
    CPU_ROPE_STORE_F32, /* K/V types in the order of cpu_kv_index */
    CPU_ROPE_STORE_F16,
    CPU_ROPE_STORE_BF16,
    CPU_ROPE_STORE_Q8_0,
    CPU_PAGED_ATTENTION_F32,
    CPU_PAGED_ATTENTION_F16,
    CPU_PAGED_ATTENTION_BF16,
    CPU_PAGED_ATTENTION_Q8_0,
    CPU_GLU_SILU, /* in the order of enum backend_act */
    CPU_GLU_GELU_TANH,
    CPU_GLU_SWIGLU_OAI,
    CPU_GLU_GELU,
    CPU_SOFTCAP,
    CPU_GATHER,
    CPU_TOP,
    CPU_KV_COPY,
    CPU_GATE,
    CPU_LINEAR_ATTENTION,
    CPU_SHORT_CONV,
    CPU_HEADS, /* of op_linear_heads: what is not a product */
    CPU_MOE_ROUTE,
    CPU_MOE_GATHER,
    CPU_MOE_COMBINE,
    CPU_ALL_REDUCE,
    CPU_ALL_GATHER,
    CPU_N_KERNELS
};

struct cpu_attn_job; /* attn.h */
struct cpu_attn_merge;
struct cpu_delta_conv; /* delta/delta.h */
struct cpu_delta_run;

/* Rotary embedding of one row: pair i of a head is rotated by angle i. */
struct cpu_rotation {
    const float *cosines, *sines; /* (n_rot / 2) */
    uint32_t head_dim, n_rot;
    bool interleaved; /* as in op_rope_store */
};

/* One row of the residual stream (struct op_input):
 *   x += residual_scale * r, r = residual or residual / rms(residual) * residual_norm
 *   out = x / rms(x) * norm, or centred (x - mean) / rms(x - mean) * norm + bias */
struct cpu_row {
    float *x;                                     /* (n), written only with residual */
    const float *residual, *residual_norm, *norm; /* (n), each may be NULL */
    float *out;                                   /* (n), only with norm; may be x */
    float residual_scale, eps;
    uint32_t n;
    bool centred;      /* without residual_norm */
    const float *bias; /* (n) or NULL */
};

/* Gated activations as g / (1 + e^-x) * u. GELU_TANH, as (1 + tanh z) / 2 = 1 / (1 + e^-2z): x =
 * LINEAR g + CUBIC g^3. Below GATE_MIN each is 0 in f32: gates are clamped to it, so that e^-x does
 * not overflow for an infinite g. */
#define CPU_GATE_MIN    -100.0f
#define CPU_GELU_LINEAR 1.5957691216057308f  /* 2 sqrt(2 / pi) */
#define CPU_GELU_CUBIC  0.07135481627260025f /* 2 sqrt(2 / pi) 0.044715 */
#define CPU_OAI_ALPHA   1.702f
#define CPU_OAI_LIMIT   7.0f

/* x / 2 * (1 + erf(x / sqrt(2))) */
static inline float cpu_gelu(float x) {
    return x < CPU_GATE_MIN ? 0 : 0.5f * x * erfcf(-0.70710678f * x);
}

struct cpu_isa {
    const char *name;
    const char *kernel_names[CPU_N_KERNELS]; /* NULL: only generic has this kernel */
    uint32_t block_step; /* attention needs block_tokens to be a multiple of this */
    void (*norm_row)(const struct cpu_row *r);
    /* out (n) = act(gate, up), by enum backend_act; out may be either. */
    void (*glu[BACKEND_N_ACTS])(const float *gate, const float *up, float *out, uint32_t n);
    /* out (n) = cap * tanh(scale * x (n)); out may be x. */
    void (*softcap)(const float *x, float *out, uint32_t n, float scale, float cap);
    /* x (n) /= 1 + exp(-gate). */
    void (*gate)(float *x, const float *gate, uint32_t n);
    void (*rotate)(float *x, uint32_t n_heads, const struct cpu_rotation *r); /* in place */
    /* x (n) to n values of a K/V type; Q8_0: and n / 32 scales. Values need no alignment. */
    void (*encode_kv)(int type, const float *x, void *values, uint16_t *scales, uint32_t n);
    void (*attention)(const struct cpu_attn_job *j);
    void (*attention_merge)(const struct cpu_attn_merge *m);
    void (*delta_conv)(const struct cpu_delta_conv *c, const struct cpu_isa *kernels);
    void (*delta_run)(const struct cpu_delta_run *r);
    void (*delta_norm)(float *x, const float *weight, uint32_t n, float eps);
};

extern const struct cpu_isa cpu_isa_generic;
#if defined(__x86_64__)
extern const struct cpu_isa cpu_isa_avx2, cpu_isa_avx512;

/* isa.c */
bool cpu_has_avx2(void);
bool cpu_has_avxvnni(void);
bool cpu_has_avx512(void);
#elif defined(__aarch64__)
extern const struct cpu_isa cpu_isa_neon;

/* isa.c */
bool cpu_has_neon(void);
bool cpu_has_i8mm(void);
#endif

/* The processors and the memory that a backend uses. */
enum { CPU_PLACE_WORDS = 16 };
struct cpu_place {
    int node;                       /* of memory; -1: any */
    uint64_t cpus[CPU_PLACE_WORDS]; /* a bit for each processor; only with a node */
};

struct cpu_weight {
    struct backend_weight base;
    const void *data; /* (n_out, n_in) of base.type, borrowed: not read by products */
    uint64_t row_bytes;
    uint8_t *panels;       /* base.bytes, or NULL: not for products */
    uint64_t panel_bytes;  /* of one; panels are stored in pairs (gemm.h) */
    uint64_t expert_bytes; /* of all panels of one expert; a plain weight has one */
};

/* Upper bound of enum qtype. */
enum { CPU_N_TYPES = 64 };

struct cpu_backend {
    struct backend base;
    const struct cpu_isa *isa;
    const struct gemm_isa *gemm;
    pool *pool;
    uint32_t counters[2][CPU_N_KERNELS];   /* isa's kernels, the generic kernels */
    uint32_t linear_counters[CPU_N_TYPES]; /* products, by enum qtype */
    uint32_t quantize_counter;
    char gemm_names[CPU_N_TYPES + 1][40]; /* "linear_q4_k_avx512" */
    struct cpu_linear *linear;            /* linear.c */
    struct cpu_moe *moe;                  /* moe.c; NULL: no experts */
    struct cpu_heads *heads;              /* heads.c; NULL: no op_linear_heads */
    struct cpu_attn *attn;                /* attention.c */
    struct cpu_rope *rope;                /* rope_store.c */
    struct cpu_group *group;              /* group.c; shared by its ranks, NULL: alone */
    float *received;                      /* linked.c: of other ranks */
    struct cpu_place place;
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

/* Are all ids (or rows, or slots) in 0 .. bound - 1? */
static inline bool cpu_all_below(const int32_t *ids, uint32_t n, uint64_t bound) {
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint64_t)ids[i] >= bound) return false;
    return true;
}

/* Index of a K/V type in the tables of kernels. */
static inline uint32_t cpu_kv_index(int kv_type) {
    return kv_type == QTYPE_F32 ? 0 : kv_type == QTYPE_F16 ? 1 : kv_type == QTYPE_BF16 ? 2 : 3;
}

/* Memory of an op, allocated at open. On failure *out is partly built: pass it to the free
 * function. ERR_NOMEM. */
int cpu_linear_new(const struct backend_config *config, int n_threads, struct cpu_linear **out);
void cpu_linear_free(struct cpu_linear *l); /* NULL is fine */
/* Called for each new float weight: allocates the rows of its normalized input. ERR_NOMEM. */
int cpu_linear_need_floats(struct cpu_linear *l);
int cpu_moe_new(const struct backend_config *config, struct cpu_moe **out);
void cpu_moe_free(struct cpu_moe *m); /* NULL is fine */
int cpu_heads_new(const struct backend_config *config, struct cpu_heads **out);
void cpu_heads_free(struct cpu_heads *h); /* NULL is fine */
int cpu_attn_new(uint32_t max_rows, int n_threads, struct cpu_attn **out);
void cpu_attn_free(struct cpu_attn *t); /* NULL is fine */
int cpu_rope_new(uint32_t max_rows, struct cpu_rope **out);
void cpu_rope_free(struct cpu_rope *t);

void generic_glu_gelu(const float *gate, const float *up, float *out, uint32_t n);
void generic_rotate(float *x, uint32_t n_heads, const struct cpu_rotation *r);
void generic_encode_kv(int type, const float *x, void *values, uint16_t *scales, uint32_t n);
void generic_attention(const struct cpu_attn_job *j);
void generic_attention_merge(const struct cpu_attn_merge *m);

/* node.c. The place of a rank: a memory node, if the machine has several nodes with processors that
 * this process may use and their number divides n_ranks; otherwise all processors of the process.
 * folder: /sys/devices/system/node. */
struct cpu_place cpu_place_of(const char *folder, uint32_t rank, uint32_t n_ranks);
/* Moves the calling thread, and threads that it starts later. Returns its previous place. */
struct cpu_place cpu_place_enter(const struct cpu_place *to);
/* Makes new pages of [at, at + bytes) come from the place's node. */
void cpu_place_memory(const struct cpu_place *p, void *at, uint64_t bytes);

/* Zeroed memory of that node, fully committed, in huge pages if it is large; NULL: out of memory.
 */
void *cpu_host_new(const struct cpu_place *place, uint64_t bytes);
void cpu_host_free(void *host, uint64_t bytes);

int cpu_weight_new(backend *be, const struct backend_weight_desc *desc, backend_weight **out,
                   err *e);
void cpu_weight_free(backend_weight *base);

#define CPU_DECLARE(name, on_cpu, on_metal, on_cuda) BACKEND_DECLARE_##on_cpu(cpu, name)
BACKEND_OPS(CPU_DECLARE, CPU_DECLARE)

int cpu_group_join(backend *const *ranks, uint32_t n, err *e);
void cpu_group_part(backend *be);
void cpu_group_break(backend *be);
/* to[i] = from[0] + from[1] + ..., added in that order; each (n). Sources may be destinations. */
struct cpu_sum {
    const float *from[BACKEND_MAX_RANKS];
    float *to[BACKEND_MAX_RANKS];
    uint32_t n_from, n_to;
    uint64_t n;
};
void cpu_sum_run(struct cpu_backend *c, const struct cpu_sum *sum);

/* linked.c */
int cpu_linked_join(struct cpu_backend *c, err *e);
void cpu_linked_part(struct cpu_backend *c);
int cpu_linked_reduce(struct cpu_backend *c, const struct op_all_reduce *a);
int cpu_linked_gather(struct cpu_backend *c, const struct op_all_gather *a);

#endif
