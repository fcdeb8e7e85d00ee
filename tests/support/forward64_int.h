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

/* Tensors of a layer, decoded. */
struct layer {
    struct matrix attn_norm, q, k, v, bq, bk, bv, q_norm, k_norm, sinks, out, b_out, attn_post;
    struct matrix ffn_norm, gate, up, down, b_gate, b_up, b_down, ffn_post;
    struct matrix router, b_router, gate_e, up_e, down_e, b_gate_e, b_up_e, b_down_e;
    struct matrix gate_s, up_s, down_s, router_s, choice_bias;
    /* of a delta net: Q, K, V and Z apart or by K head, beta and alpha likewise */
    struct matrix qkv, z, qkvz, alpha, beta, beta_alpha, conv, decay, dt_bias, state_norm,
        state_out;
    /* of latent attention: K and V of a head apart, K transposed, or together */
    struct matrix q_a, q_a_norm, q_b, kv_a, kv_a_norm, k_b, v_b, kv_b;
    struct matrix attn_norm_bias, ffn_norm_bias;
    struct matrix bcx; /* of a short convolution: B, C, x; it also has conv and state_out */
    struct matrix conv_bias, skip; /* of Mamba-2; qkvz is its ssm_in */
    struct matrix latent_down, latent_up;
};

/* y (n_embd) = the FFN of layer i for the normed input h. */
void forward64_feed_forward(const struct forward64 *f, const struct layer *l, uint32_t i,
                            const double *h, double *y);

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
