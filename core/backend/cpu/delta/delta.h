/* delta.h - linear attention on the CPU: what its launcher (delta.c) asks of its kernels.
 *
 * The op runs in two passes over the pool: the convolution of each head's rows, with what the next
 * step reads of its inputs, and the rows of each V head of each sequence in their order. A step
 * that leaves rows after a boundary that it crossed has a third one: their K takes the place of
 * rows that every V head must have read. Mamba-2's norm of groups of heads is a pass of its own.
 * Between the passes each head's rows are adjacent (op_linear_attention.work). delta_kernel.h is
 * the source of the kernels; delta_generic.c, delta_avx2.c, ... compile it for one instruction set
 * each. A short convolution (short_conv.c) keeps its inputs in the same blocks. */
#ifndef INFERD_CPU_DELTA_H
#define INFERD_CPU_DELTA_H

#include "core/backend/cpu/cpu_int.h"

/* The convolution of one head of Q, K or V in one row. */
struct cpu_delta_conv {
    const float *in[BACKEND_STATE_MAX_TAPS];   /* (dim) the inputs of the taps, the oldest first */
    const float *taps[BACKEND_STATE_MAX_TAPS]; /* (dim) each */
    const float *bias;                         /* (dim) or NULL */
    uint32_t n_taps, dim;
    bool normalize; /* Q and K */
    float scale;    /* of the result */
    float *out;     /* (dim) */
};

/* The rows of one V head in one sequence. */
struct cpu_delta_run {
    const float *q, *k;         /* (n_rows, k_dim) after the convolution */
    const float *v;             /* (n_rows, v_dim) likewise */
    const float *alpha;         /* (n_decays) of the first row */
    const float *beta;          /* of the first row; NULL: Mamba-2 */
    const float *z;             /* (v_dim) of the first row */
    float *out;                 /* likewise */
    uint32_t n_v_heads;         /* the stride of beta; of z and out it is n_v_heads * v_dim */
    uint32_t n_decays;          /* 1 or k_dim; the stride of alpha is n_v_heads * n_decays */
    uint32_t n_rows, first_pos; /* position of the first row */
    uint32_t chunk, k_dim, v_dim;
    float a, eps;
    const float *dt_bias;   /* (n_decays) */
    float skip;             /* of Mamba-2: V's share of the output */
    const float *norm;      /* (v_dim) of a delta net */
    const float *s;         /* (k_dim, v_dim) at the last boundary; NULL: it is 0 */
    float *s_out;           /* (k_dim, v_dim) for the next boundary; may be s */
    const float *pending_k; /* of the first pending row; (.., n_k_heads * k_dim) */
    float *pending_u;       /* of the chunk's first row; (chunk, n_v_heads * v_dim) */
    float *pending_g;       /* likewise (chunk, n_v_heads * n_decays) */
    uint64_t k_stride;      /* n_k_heads * k_dim */
    /* out's gate: silu, or with k_dim decays the sigmoid */
    void (*silu)(const float *gate, const float *up, float *out, uint32_t n);
    void (*sigmoid)(float *x, const float *gate, uint32_t n);
};

/* The rows of an op over state blocks. */
struct cpu_state_rows {
    const backend_buf *pos, *row_start, *tables; /* as in op_linear_attention */
    uint32_t n_rows, n_seqs, n_blocks;
};
/* Do the sequences cover the rows, each with consecutive positions, and are their blocks there? */
bool cpu_states_ok(const struct cpu_state_rows *rows);

#define CPU_DELTA_DECLARE(isa)                                                                     \
    void isa##_delta_conv(const struct cpu_delta_conv *c, const struct cpu_isa *kernels);          \
    void isa##_delta_run(const struct cpu_delta_run *r);                                           \
    /* x (n) = x / rms(x) * weight */                                                              \
    void isa##_delta_norm(float *x, const float *weight, uint32_t n, float eps);
CPU_DELTA_DECLARE(generic)
CPU_DELTA_DECLARE(avx2)
CPU_DELTA_DECLARE(avx512)
CPU_DELTA_DECLARE(neon)

#endif
