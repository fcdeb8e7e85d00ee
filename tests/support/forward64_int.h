/* forward64_int.h - what the files of forward64 share. */
#ifndef INFERD_TESTS_FORWARD64_INT_H
#define INFERD_TESTS_FORWARD64_INT_H

#include "tests/support/forward64.h"

struct matrix {
    double *w; /* NULL: the file has none */
    uint64_t n_in, n_out, n_elems;
};

/* Ends the process if not ok. */
void forward64_need(bool ok, const char *what);
/* Tensor blk.LAYER.NAME, or NAME if layer is below 0; the caller frees w. */
struct matrix forward64_load(const gguf *g, int layer, const char *name);
/* y (n_out) = rows of w, n_in long, times x (+ bias). */
void forward64_multiply(const double *w, uint64_t n_out, uint64_t n_in, const double *bias,
                        const double *x, double *y);
/* x / rms(x) * w over n values; without w a copy. */
void forward64_normalize(double eps, const double *w, const double *x, double *y, uint32_t n);
double forward64_activate(enum forward64_act act, double g, double u);

/* The residual stream after the last layer of Gemma 4, (n, n_embd). */
void forward64_gemma4(const gguf *g, const struct forward64 *f, const int32_t *tokens, uint32_t n,
                      double *hidden);

/* A layer with Kimi Delta Attention for n tokens; run computes y (n_embd) at position t, whose
 * normed input is h, in ascending order of t. */
struct forward64_kda;
struct forward64_kda *forward64_kda_new(const gguf *g, const struct forward64 *f, int i,
                                        uint32_t n);
void forward64_kda_run(struct forward64_kda *l, const double *h, uint32_t t, double *y);
void forward64_kda_free(struct forward64_kda *l); /* NULL is fine */

#endif
