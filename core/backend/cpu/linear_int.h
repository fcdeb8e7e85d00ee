/* linear_int.h - shared by the ops with matrix products: their memory, their input (prepared once
 * for all products of an op), and the products. */
#ifndef INFERD_CPU_LINEAR_INT_H
#define INFERD_CPU_LINEAR_INT_H

#include "core/backend/cpu/cpu_int.h"

/* Quantized rows (gemm.h), stored by K blocks of GEMM_COLS columns, so that the rows of a task are
 * adjacent in each K block for any n_in. Column c of row r: K block c / GEMM_COLS, row r in it. */
struct cpu_codes {
    int8_t *q[2];              /* (n_k_blocks, n_rows, GEMM_COLS); q[1] NULL: 8 bits */
    struct gemm_block *blocks; /* (n_k_blocks, n_rows, GEMM_BLOCKS) */
};

/* Capacity for max_rows rows of max_cols columns, or any smaller shape. Free it also on failure.
 * ERR_NOMEM. */
int cpu_codes_new(struct cpu_codes *codes, uint64_t max_rows, uint64_t max_cols, int bits);
void cpu_codes_free(struct cpu_codes *codes);
/* Quantizes x (n_in, a multiple of 32) into row `row` of n_rows. Any thread, one per row. */
void cpu_codes_put(const struct cpu_codes *codes, const struct gemm_isa *gemm, const float *x,
                   uint32_t n_in, uint32_t row, uint32_t n_rows);

/* Rows that op_linear_heads takes at once. */
enum { CPU_HEADS_ROWS = 32 };

struct linear_scratch;
struct cpu_row_block;

struct cpu_linear {
    struct linear_scratch *scratch; /* (n_threads) */
    float *row;                     /* (n_threads, row_stride): normalized, before quantization */
    uint64_t row_stride;
    struct cpu_codes codes; /* max_rows of max_cols: the input for quantized weights */
    float *normed;          /* (max_rows, max_cols): for float weights; NULL until there is one */
    struct cpu_row_block *row_blocks; /* of the running products */
    uint32_t max_rows, max_cols;
};

/* The input of one op: its rows, and the forms in which its weights read it. */
struct cpu_input {
    const struct op_input *in;
    uint32_t n_rows, n_in;
    bool codes;  /* for quantized weights: c->linear->codes, n_in a multiple of 32 */
    bool floats; /* for float weights: see cpu_input_floats */
};

/* Updates x and prepares the rows, on all threads. They stay valid until the next op's call. */
void cpu_input_prepare(struct cpu_backend *c, const struct cpu_input *input);
/* (n_rows, n_in) after cpu_input_prepare with floats. */
const float *cpu_input_floats(const struct cpu_backend *c, const struct op_input *in);

static inline bool cpu_is_float(int type) {
    return type == QTYPE_F32 || type == QTYPE_F16 || type == QTYPE_BF16;
}

static inline void cpu_input_is_for(struct cpu_input *input, const backend_weight *w) {
    if (cpu_is_float(w->type))
        input->floats = true;
    else
        input->codes = true;
}

/* One weight of a set of products. */
struct cpu_product {
    const struct cpu_weight *w;
    const float *bias;                          /* (n_groups, n_out) or NULL */
    float *y;                                   /* (n_rows, n_out) */
    uint32_t n_panels, task_panels, first_task; /* set by the driver: all; per task; first task */
};

/* Products that share their input and are divided into tasks together. Rows form groups: group g,
 * rows first[g] .. first[g + 1] - 1 of input and y, is multiplied by expert g of each weight. A
 * plain weight has one group, of all rows. With act there are two weights, gate and up, and y is
 * p[0]'s.
 */
struct cpu_products {
    struct cpu_backend *c;
    const struct cpu_codes *codes; /* n_rows rows of n_in: the input of quantized weights */
    const float *x;                /* (n_rows, n_in): of float weights; NULL: there are none */
    const uint32_t *first;         /* (n_groups + 1), ascending from 0 to n_rows */
    uint32_t n_groups, n_rows, n_in, n_weights;
    enum backend_act act;
    struct backend_bounds bounds;
    float y_scale, softcap; /* as in op_linear */
    struct cpu_product p[BACKEND_LINEAR_MAX];
    /* Set by the driver. */
    uint32_t n_products, n_blocks, n_block_tasks; /* row blocks; tasks of each */
    uint32_t unit_panels;                         /* multiplied together */
};

/* w: (n_out, r->n_in), of n_groups experts or plain; bias NULL or its vectors; y NULL: the second
 * of two with act. */
void cpu_products_add(struct cpu_products *r, const backend_weight *w, const backend_weight *bias,
                      float *y);
/* Runs and counts the products. ERR_INVALID: too many tasks. */
int cpu_products_run(struct cpu_products *r);

#endif
