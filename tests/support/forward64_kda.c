/* forward64_kda.c - Kimi Delta Attention (Kimi Team, "Kimi Linear", 2025) in float64, as the
 * recurrence: S <- diag(e^g) S; S <- S + k (beta (v - S^T k))^T; o = S^T q. */
#include "tests/support/forward64_int.h"

#include <math.h>
#include <stdlib.h>

enum { Q, K, V, N_PARTS, W = FORWARD64_MAX_WIDTH };

struct forward64_kda {
    const struct forward64 *f;
    struct matrix in[N_PARTS], conv[N_PARTS]; /* (n_heads * dim, n_embd), (n_heads * dim, n_taps) */
    struct matrix f_a, f_b, g_a, g_b, beta, decay, dt_bias, norm, out;
    double *u[N_PARTS]; /* (tokens, n_heads * dim) */
    double *s;          /* (n_heads, dim of K, dim of V) */
};

struct forward64_kda *forward64_kda_new(const gguf *g, const struct forward64 *f, int i,
                                        uint32_t n) {
    static const char *const in[] = {"attn_q.weight", "attn_k.weight", "attn_v.weight"};
    static const char *const conv[] = {"ssm_conv1d_q.weight", "ssm_conv1d_k.weight",
                                       "ssm_conv1d_v.weight"};
    struct forward64_kda *l = calloc(1, sizeof *l);
    const uint64_t cols = (uint64_t)f->n_heads * f->state_dim;
    forward64_need(l && cols <= W, "memory, or tiny model");
    l->f = f;
    for (int p = 0; p < N_PARTS; p++) {
        l->in[p] = forward64_load(g, i, in[p]);
        l->conv[p] = forward64_load(g, i, conv[p]);
        l->u[p] = calloc(n * cols, sizeof *l->u[p]);
        forward64_need(l->conv[p].w && l->u[p], conv[p]);
    }
    const struct {
        const char *name;
        struct matrix *to;
    } all[] = {{"ssm_f_a.weight", &l->f_a},    {"ssm_f_b.weight", &l->f_b},
               {"ssm_g_a.weight", &l->g_a},    {"ssm_g_b.weight", &l->g_b},
               {"ssm_beta.weight", &l->beta},  {"ssm_a", &l->decay},
               {"ssm_dt.bias", &l->dt_bias},   {"ssm_norm.weight", &l->norm},
               {"attn_output.weight", &l->out}};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        *all[k].to = forward64_load(g, i, all[k].name);
        forward64_need(all[k].to->w != NULL, all[k].name);
    }
    l->s = calloc(cols * f->state_dim, sizeof *l->s);
    forward64_need(l->s != NULL, "memory");
    return l;
}

void forward64_kda_free(struct forward64_kda *l) {
    if (!l) return;
    for (int p = 0; p < N_PARTS; p++)
        free(l->in[p].w), free(l->conv[p].w), free(l->u[p]);
    free(l->f_a.w), free(l->f_b.w), free(l->g_a.w), free(l->g_b.w), free(l->beta.w);
    free(l->decay.w), free(l->dt_bias.w), free(l->norm.w), free(l->out.w), free(l->s);
    free(l);
}

/* A part's channels at position t after its convolution; Q and K with unit heads. */
static void convolve(struct forward64_kda *l, int p, const double *h, uint32_t t, double *c) {
    const struct forward64 *f = l->f;
    const uint32_t d = f->state_dim, cols = f->n_heads * d;
    double *u = l->u[p] + (uint64_t)t * cols;
    forward64_multiply(l->in[p].w, cols, f->n_embd, NULL, h, u);
    for (uint32_t i = 0; i < cols; i++) {
        double sum = 0;
        for (uint32_t k = 0; k < f->n_taps && k <= t; k++)
            sum += l->conv[p].w[i * f->n_taps + f->n_taps - 1 - k] * u[(int64_t)i - k * cols];
        c[i] = sum / (1 + exp(-sum));
    }
    for (uint32_t head = 0; head < f->n_heads && p != V; head++) {
        double sum = 0;
        for (uint32_t i = 0; i < d; i++)
            sum += c[head * d + i] * c[head * d + i];
        for (uint32_t i = 0; i < d; i++)
            c[head * d + i] /= sqrt(sum + 1e-6) * (p == Q ? sqrt(d) : 1);
    }
}

void forward64_kda_run(struct forward64_kda *l, const double *h, uint32_t t, double *y) {
    const struct forward64 *f = l->f;
    const uint32_t d = f->state_dim, cols = f->n_heads * d;
    double c[N_PARTS][W], low[W], alpha[W], z[W], beta[W], o[W];
    for (int p = 0; p < N_PARTS; p++)
        convolve(l, p, h, t, c[p]);
    forward64_multiply(l->f_a.w, d, f->n_embd, NULL, h, low);
    forward64_multiply(l->f_b.w, cols, d, l->dt_bias.w, low, alpha);
    forward64_multiply(l->g_a.w, d, f->n_embd, NULL, h, low);
    forward64_multiply(l->g_b.w, cols, d, NULL, low, z);
    forward64_multiply(l->beta.w, f->n_heads, f->n_embd, NULL, h, beta);
    for (uint32_t head = 0; head < f->n_heads; head++) {
        const uint32_t at = head * d;
        double *s = l->s + (uint64_t)at * d;
        for (uint32_t j = 0; j < d; j++) {
            double held = 0, sum = 0;
            for (uint32_t i = 0; i < d; i++) {
                s[i * d + j] *= exp(l->decay.w[head] * log1p(exp(alpha[at + i])));
                held += s[i * d + j] * c[K][at + i];
            }
            const double u = (c[V][at + j] - held) / (1 + exp(-beta[head]));
            for (uint32_t i = 0; i < d; i++) {
                s[i * d + j] += c[K][at + i] * u;
                sum += s[i * d + j] * c[Q][at + i];
            }
            o[at + j] = sum;
        }
        forward64_normalize(f->eps, l->norm.w, o + at, o + at, d);
    }
    for (uint32_t i = 0; i < cols; i++)
        o[i] /= 1 + exp(-z[i]);
    forward64_multiply(l->out.w, f->n_embd, cols, NULL, o, y);
}
