/* matrix.h - random weights of every type with their exact values, products in float64, and the
 * tolerance for a product of the backend. Single thread. */
#ifndef INFERD_TESTS_MATRIX_H
#define INFERD_TESTS_MATRIX_H

#include "tests/support/blocks.h"

/* A weight in both shapes: packed for the backend, exactly decoded for the reference. */
struct matrix {
    int type;
    uint32_t n_out, n_in;
    void *packed;
    float *values;   /* (n_out, n_in) */
    double rounding; /* of each term on the device, be_rounding; 0 until it is set */
};

/* wide: float types take values over many magnitudes. */
static inline struct matrix matrix_make(const struct block_type *t, uint32_t n_out, uint32_t n_in,
                                        bool wide) {
    struct matrix m = {.type = t->type, .n_out = n_out, .n_in = n_in};
    uint64_t n = (uint64_t)n_out * n_in, bytes = 0, one = qtype_find(t->type)->block_bytes;
    be_need(qtype_bytes(t->type, n_out, n_in, &bytes), "a matrix");
    m.values = be_new(n, sizeof(float));
    m.packed = be_new(bytes, 1);
    for (uint64_t at = 0; at < bytes; at += one)
        block_make(t, BLOCK_SANE, (uint8_t *)m.packed + at);
    if (block_is_float(t->type) && wide) {
        for (uint64_t i = 0; i < n; i++)
            m.values[i] = ldexpf(be_real(), (int)be_below(20) - 10);
        qtype_encode(t->type, m.values, m.packed, n);
    }
    qtype_decode(t->type, m.packed, m.values, n);
    return m;
}

static inline void matrix_free(struct matrix *m) {
    free(m->packed);
    free(m->values);
}

/* Largest code of an activation (core/backend/cpu/gemm/gemm.h). */
static inline int matrix_top(int bits) {
    return bits == 16 ? 254 * 127 + 127 : 127;
}

/* Inputs that blocks of codes represent exactly: integers up to top times a power of two, top
 * itself in each block. The quantization of activations then adds no error of its own. Every other
 * block has all its values at the end of the range. */
static inline void matrix_fill_exact(float *x, uint64_t n, int top) {
    for (uint64_t i = 0; i < n; i += 32) {
        float unit = ldexpf(1, (int)be_below(8) - 12);
        bool ends = be_rand() & 1;
        for (uint64_t k = i; k < i + 32 && k < n; k++)
            x[k] = unit * (float)(ends ? (be_rand() & 1 ? top : -top)
                                       : (int)be_below(2 * (uint32_t)top + 1) - top);
        x[i] = unit * (float)top;
    }
}

/* Allowed error of one output, from the arithmetic's own terms. Sums: 2e-6 of the sum of
 * magnitudes, bias included (a few roundings per block, mostly in different directions). A
 * quantized weight counts as 4 times the block's largest one: its scaled code and its min may
 * exceed its value. Quantized activations: half a step, max / top / 2, for each column of a block,
 * times its weight. top 0: exact ones. Roundings of each term: they go both ways, so the root of
 * their squares' sum, 8 times, and what long sums lose beside f32's. */
static inline double matrix_allowed(const struct matrix *m, const float *x, uint32_t out,
                                    float bias, int top) {
    const float *w = m->values + (uint64_t)out * m->n_in;
    double sum = fabs((double)bias), steps = 0, squares = 0;
    bool is_float = block_is_float(m->type);
    for (uint32_t c = 0; c < m->n_in; c += 32) {
        double max = 0, weights = 0, max_w = 0;
        for (uint32_t k = c; k < c + 32 && k < m->n_in; k++) {
            max = fmax(max, fabs((double)x[k]));
            max_w = fmax(max_w, fabs((double)w[k]));
            weights += fabs((double)w[k]);
        }
        for (uint32_t k = c; k < c + 32 && k < m->n_in; k++) {
            double term = fabs((double)x[k]) * (is_float ? fabs((double)w[k]) : 4 * max_w);
            sum += term;
            squares += term * term;
        }
        if (top) steps += weights * max / top / 2 * 1.01;
    }
    double rounding = m->rounding > 0 ? 8 * m->rounding * sqrt(squares) + 1e-5 * sum : 0;
    return 2e-6 * sum + rounding + (is_float ? 0 : steps) + 1e-30;
}

/* The product of row `out` of the matrix and x (n_in). */
static inline double matrix_product(const struct matrix *m, const float *x, uint32_t out,
                                    float bias) {
    const float *w = m->values + (uint64_t)out * m->n_in;
    double sum = bias;
    for (uint32_t c = 0; c < m->n_in; c++)
        sum += (double)x[c] * w[c];
    return sum;
}

#endif
