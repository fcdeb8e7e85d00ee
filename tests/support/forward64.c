/* forward64.c - see forward64.h; written for clarity, not speed. */
#include "tests/support/forward64_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { W = FORWARD64_MAX_WIDTH };

/* A recurrent layer's memory: inputs of the convolution (n, channels), S (n_v_heads, dim of K, dim
 * of V). */
struct net {
    double *u, *s;
    struct forward64_kda *kda; /* or this one */
};

void forward64_need(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "forward64: no %s\n", what);
    exit(1);
}

struct matrix forward64_load(const gguf *g, int layer, const char *name) {
    char full[64];
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    const gguf_tensor *t = gguf_tensor_find(g, full);
    if (!t) return (struct matrix){0};
    struct matrix m = {calloc(t->n_elems, sizeof(double)), t->dims[0], t->dims[1], t->n_elems};
    float *values = calloc(t->n_elems, sizeof *values);
    forward64_need(m.w && values, "memory");
    qtype_decode(t->type, t->data, values, t->n_elems);
    for (uint64_t i = 0; i < t->n_elems; i++)
        m.w[i] = (double)values[i];
    free(values);
    return m;
}

/* A copy of rows first.. of m, or (of a vector) of values first.. . */
static struct matrix part(struct matrix m, uint64_t first, uint64_t n) {
    uint64_t row = m.n_out > 1 ? m.n_in : 1;
    if (!m.w) return m;
    struct matrix p = {calloc(n * row, sizeof(double)), m.n_out > 1 ? m.n_in : n,
                       m.n_out > 1 ? n : 1, n * row};
    forward64_need(p.w != NULL, "memory");
    memcpy(p.w, m.w + first * row, n * row * sizeof *p.w);
    return p;
}

/* Gate and up of all experts from one tensor. */
static void split_experts(const gguf *g, const struct forward64 *f, int i, struct layer *l) {
    struct matrix both = forward64_load(g, i, "ffn_gate_up_exps.weight");
    uint64_t n = f->n_experts, half = f->n_ff_expert;
    if (!both.w) return;
    l->gate_e = part(both, 0, n * half);
    l->up_e = part(both, 0, n * half);
    for (uint64_t e = 0; e < n; e++) {
        const double *from = both.w + e * 2 * half * f->n_embd;
        memcpy(l->gate_e.w + e * half * f->n_embd, from, half * f->n_embd * sizeof *from);
        memcpy(l->up_e.w + e * half * f->n_embd, from + half * f->n_embd,
               half * f->n_embd * sizeof *from);
    }
    free(both.w);
}

static void split_fused(const gguf *g, const struct forward64 *f, int i, struct layer *l) {
    uint64_t heads = (uint64_t)f->n_heads * f->head_dim, kv = (uint64_t)f->n_kv_heads * f->head_dim;
    struct matrix qkv = forward64_load(g, i, "attn_qkv.weight"),
                  bias = forward64_load(g, i, "attn_qkv.bias");
    if (f->recurrent[i]) {
        l->qkv = qkv;
        return;
    }
    if (qkv.w) {
        l->q = part(qkv, 0, heads), l->bq = part(bias, 0, heads);
        l->k = part(qkv, heads, kv), l->bk = part(bias, heads, kv);
        l->v = part(qkv, heads + kv, kv), l->bv = part(bias, heads + kv, kv);
    }
    if (l->up.w && !l->gate.w && !f->ungated) {
        struct matrix both = l->up;
        l->gate = part(both, 0, f->n_ff);
        l->up = part(both, f->n_ff, f->n_ff);
        free(both.w);
    }
    free(qkv.w);
    free(bias.w);
}

static struct layer load_layer(const gguf *g, const struct forward64 *f, int i) {
    struct layer l = {0};
    const struct {
        const char *name;
        struct matrix *to;
    } all[] = {
        {"attn_norm.weight", &l.attn_norm},
        {"attn_norm.bias", &l.attn_norm_bias},
        {"ffn_norm.bias", &l.ffn_norm_bias},
        {"attn_q.weight", &l.q},
        {"attn_k.weight", &l.k},
        {"attn_v.weight", &l.v},
        {"attn_q.bias", &l.bq},
        {"attn_k.bias", &l.bk},
        {"attn_v.bias", &l.bv},
        {"attn_q_norm.weight", &l.q_norm},
        {"attn_k_norm.weight", &l.k_norm},
        {"attn_sinks.weight", &l.sinks},
        {"attn_output.weight", &l.out},
        {"attn_output.bias", &l.b_out},
        {"post_attention_norm.weight", f->ffn_norm_is_post_attention ? &l.ffn_norm : &l.attn_post},
        {"ffn_norm.weight", &l.ffn_norm},
        {"ffn_gate.weight", &l.gate},
        {"ffn_up.weight", &l.up},
        {"ffn_down.weight", &l.down},
        {"ffn_gate.bias", &l.b_gate},
        {"ffn_up.bias", &l.b_up},
        {"ffn_down.bias", &l.b_down},
        {"post_ffw_norm.weight", &l.ffn_post},
        {"ffn_gate_inp.weight", &l.router},
        {"ffn_gate_inp.bias", &l.b_router},
        {"exp_probs_b", &l.choice_bias},
        {"ffn_gate_exps.weight", &l.gate_e},
        {"ffn_up_exps.weight", &l.up_e},
        {"ffn_down_exps.weight", &l.down_e},
        {"ffn_gate_exps.bias", &l.b_gate_e},
        {"ffn_up_exps.bias", &l.b_up_e},
        {"ffn_down_exps.bias", &l.b_down_e},
        {"ffn_gate_inp_shexp.weight", &l.router_s},
        {"ffn_gate_shexp.weight", &l.gate_s},
        {"ffn_up_shexp.weight", &l.up_s},
        {"ffn_down_shexp.weight", &l.down_s},
        {"attn_gate.weight", &l.z},
        {"ssm_in.weight", &l.qkvz},
        {"ssm_alpha.weight", &l.alpha},
        {"ssm_beta.weight", &l.beta},
        {"ssm_ba.weight", &l.beta_alpha},
        {"ssm_conv1d.weight", &l.conv},
        {"ssm_a", &l.decay},
        {"ssm_dt.bias", &l.dt_bias},
        {"ssm_norm.weight", &l.state_norm},
        {"ssm_out.weight", &l.state_out},
        {"ssm_conv1d.bias", &l.conv_bias},
        {"ssm_d", &l.skip},
        {"ffn_latent_down.weight", &l.latent_down},
        {"ffn_latent_up.weight", &l.latent_up},
        {"exp_probs_b.bias", &l.choice_bias},
        {"attn_q_a.weight", &l.q_a},
        {"attn_q_a_norm.weight", &l.q_a_norm},
        {"attn_q_b.weight", &l.q_b},
        {"attn_kv_a_mqa.weight", &l.kv_a},
        {"attn_kv_a_norm.weight", &l.kv_a_norm},
        {"attn_k_b.weight", &l.k_b},
        {"attn_v_b.weight", &l.v_b},
        {"attn_kv_b.weight", &l.kv_b},
        {"shortconv.in_proj.weight", &l.bcx},
        {"shortconv.conv.weight", &l.conv},
        {"shortconv.out_proj.weight", &l.state_out},
    };
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        struct matrix m = forward64_load(g, i, all[k].name);
        if (m.w) *all[k].to = m;
    }
    split_fused(g, f, i, &l);
    split_experts(g, f, i, &l);
    return l;
}

static void free_layer(struct layer *l) {
    struct matrix *all = (struct matrix *)l;
    for (size_t i = 0; i < sizeof *l / sizeof *all; i++)
        free(all[i].w);
}

void forward64_multiply(const double *w, uint64_t n_out, uint64_t n_in, const double *bias,
                        const double *x, double *y) {
    forward64_need(w != NULL, "matrix");
    for (uint64_t o = 0; o < n_out; o++) {
        y[o] = bias ? bias[o] : 0;
        for (uint64_t i = 0; i < n_in; i++)
            y[o] += w[o * n_in + i] * x[i];
    }
}

void forward64_normalize(double eps, const double *w, const double *x, double *y, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (uint32_t i = 0; i < n; i++)
        y[i] = w ? x[i] / sqrt(sum / n + eps) * w[i] : x[i];
}

/* A norm of the residual stream. */
static void norm_stream(const struct forward64 *f, struct matrix w, struct matrix bias,
                        const double *x, double *y) {
    double mean = 0, centred[W] = {0};
    for (uint32_t i = 0; f->layer_norm && i < f->n_embd; i++)
        mean += x[i] / f->n_embd;
    for (uint32_t i = 0; i < f->n_embd; i++)
        centred[i] = x[i] - mean;
    forward64_normalize(f->eps, w.w, centred, y, f->n_embd);
    for (uint32_t i = 0; bias.w && i < f->n_embd; i++)
        y[i] += bias.w[i];
}

static void norm_heads(const struct forward64 *f, struct matrix norm, double *x, uint32_t n_heads) {
    if (!norm.w) return;
    bool each = norm.n_in == f->head_dim;
    for (uint32_t h = 0; h < (each ? n_heads : 1); h++)
        forward64_normalize(f->eps, norm.w, x + h * f->head_dim, x + h * f->head_dim,
                            (uint32_t)norm.n_in);
}

static void turn(const struct forward64 *f, const struct forward64_rope *r, double *x,
                 uint32_t n_heads, uint32_t pos) {
    for (uint32_t h = 0; h < n_heads; h++)
        for (uint32_t i = 0; i < r->n_rot / 2; i++) {
            double *a = x + h * f->head_dim + (f->interleaved ? 2 * i : i);
            double *b = f->interleaved ? a + 1 : a + r->n_rot / 2, u = *a, v = *b;
            double c = cos(pos * r->inv_freq[i]) * r->magnitude;
            double s = sin(pos * r->inv_freq[i]) * r->magnitude;
            *a = u * c - v * s;
            *b = u * s + v * c;
        }
}

/* ALiBi's slope of a head, as its authors' code has it: by halves for numbers of heads that are no
 * power of two. */
static double slope(const struct forward64 *f, uint32_t head) {
    uint32_t p = 1;
    if (f->alibi == 0) return 0;
    while (2 * p <= f->n_heads)
        p *= 2;
    return head < p ? pow(pow(2, -f->alibi / p), head + 1)
                    : pow(pow(2, -f->alibi / (2 * p)), 2 * (head - p) + 1);
}

static uint32_t v_head(const struct forward64 *f) {
    return f->v_head ? f->v_head : f->head_dim;
}

/* Attention of one position over keys (pos + 1, n_kv_heads * head_dim) and values (pos + 1,
 * n_kv_heads * v_head). */
static void mix(const struct forward64 *f, const struct layer *l, uint32_t window, const double *q,
                const double *k, const double *v, uint32_t pos, double *out) {
    uint32_t width = f->n_kv_heads * f->head_dim, share = f->n_heads / f->n_kv_heads;
    uint32_t first = window && pos + 1 > window ? pos + 1 - window : 0;
    double p[FORWARD64_MAX_TOKENS];
    if (window && f->chunked) first = pos / window * window;
    for (uint32_t h = 0; h < f->n_heads; h++) {
        const double *query = q + h * f->head_dim;
        double max = l->sinks.w ? l->sinks.w[h] : -INFINITY, sum;
        for (uint32_t t = first; t <= pos; t++) {
            const double *key = k + t * width + h / share * f->head_dim;
            p[t] = 0;
            for (uint32_t d = 0; d < f->head_dim; d++)
                p[t] += query[d] * key[d] * f->attn_scale;
            if (f->attn_softcap > 0) p[t] = f->attn_softcap * tanh(p[t] / f->attn_softcap);
            p[t] -= slope(f, h) * (pos - t);
            max = fmax(max, p[t]);
        }
        sum = l->sinks.w ? exp(l->sinks.w[h] - max) : 0;
        for (uint32_t t = first; t <= pos; t++)
            sum += p[t] = exp(p[t] - max);
        for (uint32_t d = 0, n = v_head(f); d < n; d++) {
            out[h * n + d] = 0;
            for (uint32_t t = first; t <= pos; t++)
                out[h * n + d] += p[t] / sum * v[(t * f->n_kv_heads + h / share) * n + d];
        }
    }
}

double forward64_activate(enum forward64_act act, double g, double u) {
    switch (act) {
    case FORWARD64_GELU_TANH:
        return g / 2 * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (g + 0.044715 * g * g * g))) *
               u;
    case FORWARD64_SWIGLU_OAI:
        g = fmin(g, 7), u = fmax(fmin(u, 7), -7);
        return g / (1 + exp(-1.702 * g)) * (u + 1);
    case FORWARD64_GELU:
        return g / 2 * (1 + erf(g / sqrt(2))) * u;
    case FORWARD64_RELU2:
        return g * fmax(g, 0) * u;
    default:
        return g / (1 + exp(-g)) * u;
    }
}

/* n numbers divided by their rms. */
static void norm_plain(const struct forward64 *f, double *x, uint32_t n) {
    double sum = 0;
    for (uint32_t d = 0; d < n; d++)
        sum += x[d] * x[d];
    for (uint32_t d = 0; d < n; d++)
        x[d] /= sqrt(sum / n + f->eps);
}

/* y (n_embd): attention of position t, whose normed input is h. */
static void attend(const struct forward64 *f, const struct layer *l, uint32_t i, const double *h,
                   double *k, double *v, uint32_t t, double *y) {
    uint32_t width = f->n_kv_heads * f->head_dim, heads = f->n_heads * f->head_dim;
    const struct forward64_rope *r = &f->rope[f->windowed[i]];
    const uint32_t v_width = f->n_kv_heads * v_head(f), out = f->n_heads * v_head(f);
    double both[2 * W], q[W], gate[W], att[W], *kt = k + t * width, *vt = v + t * v_width;
    forward64_multiply(l->q.w, (f->attention_gate ? 2 : 1) * (uint64_t)heads, f->n_embd, l->bq.w, h,
                       both);
    for (uint32_t c = 0; c < heads; c++) {
        uint32_t at = f->attention_gate ? c + c / f->head_dim * f->head_dim : c;
        q[c] = both[at];
        gate[c] = f->attention_gate ? 1 / (1 + exp(-both[at + f->head_dim])) : 1;
    }
    forward64_multiply(l->k.w, width, f->n_embd, l->bk.w, h, kt);
    forward64_multiply(l->v.w, v_width, f->n_embd, l->bv.w, h, vt);
    const uint32_t n_gates = f->gate_by_head ? f->n_heads : heads;
    if (l->z.w) forward64_multiply(l->z.w, n_gates, f->n_embd, NULL, h, gate);
    for (uint32_t c = 0; c < n_gates && l->z.w; c++)
        gate[c] = f->gate_softplus ? log1p(exp(gate[c])) : 1 / (1 + exp(-gate[c]));
    for (int step = 0; step < 2; step++) {
        if (step == f->norm_last) {
            norm_heads(f, l->q_norm, q, f->n_heads);
            norm_heads(f, l->k_norm, kt, f->n_kv_heads);
        } else if (!f->no_rope[i]) {
            turn(f, r, q, f->n_heads, t);
            turn(f, r, kt, f->n_kv_heads, t);
        }
    }
    const bool plain = f->llama4 && !f->no_rope[i];
    for (uint32_t head = 0; head < f->n_heads && plain && f->qk_unweighted; head++)
        norm_plain(f, q + head * f->head_dim, f->head_dim);
    for (uint32_t head = 0; head < f->n_kv_heads && plain && f->qk_unweighted; head++)
        norm_plain(f, kt + head * f->head_dim, f->head_dim);
    for (uint32_t c = 0; c < heads && f->q_log_length && !plain; c++)
        q[c] *= 1 + f->q_log_scale * log(1 + floor((double)(t + f->q_log_from) / f->q_log_length));
    mix(f, l, f->windowed[i] ? f->window : 0, q, k, v, t, att);
    for (uint32_t c = 0; c < out; c++)
        att[c] *=
            gate[f->gate_by_head ? c / v_head(f) : c] * (f->value_scale != 0 ? f->value_scale : 1);
    forward64_multiply(l->out.w, f->n_embd, out, l->b_out.w, att, y);
}

/* K (k_dim - n_rot) and V (v_dim) of head h from a latent. */
static void expand(const struct forward64 *f, const struct layer *l, uint32_t h,
                   const double *latent, double *k, double *v) {
    const uint32_t rank = f->kv_rank, nope = f->k_dim - f->rope[0].n_rot;
    if (l->kv_b.w) {
        const double *rows = l->kv_b.w + (uint64_t)h * (nope + f->v_dim) * rank;
        forward64_multiply(rows, nope, rank, NULL, latent, k);
        forward64_multiply(rows + (uint64_t)nope * rank, f->v_dim, rank, NULL, latent, v);
        return;
    }
    forward64_need(l->k_b.w && l->v_b.w, "attn_k_b and attn_v_b");
    for (uint32_t i = 0; i < nope; i++) {
        k[i] = 0;
        for (uint32_t r = 0; r < rank; r++)
            k[i] += l->k_b.w[((uint64_t)h * rank + r) * nope + i] * latent[r];
    }
    forward64_multiply(l->v_b.w + (uint64_t)h * f->v_dim * rank, f->v_dim, rank, NULL, latent, v);
}

/* As attend, of latent attention; k: the latent rows (t + 1, head_dim). */
static void attend_latent(const struct forward64 *f, const struct layer *l, const double *h,
                          double *rows, uint32_t t, double *y) {
    const uint32_t n_rot = f->rope[0].n_rot, nope = f->k_dim - n_rot;
    double low[W], q[W], k[W], v[W], att[W] = {0}, p[FORWARD64_MAX_TOKENS];
    double *row = rows + (uint64_t)t * f->head_dim;
    forward64_need(f->n_heads * f->k_dim <= W && f->n_heads * f->v_dim <= W && f->q_rank <= W,
                   "tiny model");
    if (f->q_rank) {
        forward64_multiply(l->q_a.w, f->q_rank, f->n_embd, NULL, h, low);
        forward64_normalize(f->eps, l->q_a_norm.w, low, low, f->q_rank);
        forward64_multiply(l->q_b.w, (uint64_t)f->n_heads * f->k_dim, f->q_rank, NULL, low, q);
    } else {
        forward64_multiply(l->q.w, (uint64_t)f->n_heads * f->k_dim, f->n_embd, NULL, h, q);
    }
    forward64_multiply(l->kv_a.w, f->head_dim, f->n_embd, NULL, h, row);
    forward64_normalize(f->eps, l->kv_a_norm.w, row, row, f->kv_rank);
    turn(f, &f->rope[0], row + f->kv_rank, 1, t);
    for (uint32_t i = 0; i < f->n_heads; i++) {
        double *query = q + i * f->k_dim, max = -INFINITY, sum = 0;
        turn(f, &f->rope[0], query + nope, 1, t);
        for (uint32_t d = 0; d < f->k_dim && f->q_log_length; d++)
            query[d] *= 1 + f->q_log_scale * log(1 + floor((double)t / f->q_log_length));
        for (uint32_t s = 0; s <= t; s++) {
            const double *past = rows + (uint64_t)s * f->head_dim;
            expand(f, l, i, past, k, v);
            p[s] = 0;
            for (uint32_t d = 0; d < nope; d++)
                p[s] += query[d] * k[d];
            for (uint32_t d = 0; d < n_rot; d++)
                p[s] += query[nope + d] * past[f->kv_rank + d];
            p[s] *= f->attn_scale;
            max = fmax(max, p[s]);
        }
        for (uint32_t s = 0; s <= t; s++)
            sum += p[s] = exp(p[s] - max);
        for (uint32_t s = 0; s <= t; s++) {
            expand(f, l, i, rows + (uint64_t)s * f->head_dim, k, v);
            for (uint32_t d = 0; d < f->v_dim; d++)
                att[i * f->v_dim + d] += p[s] / sum * v[d];
        }
    }
    forward64_multiply(l->out.w, f->n_embd, (uint64_t)f->n_heads * f->v_dim, NULL, att, y);
}

/* What a delta net computes from h: u (channels) of Q, K, V; z (n_v_heads * dim); alpha, beta. */
static void project(const struct forward64 *f, const struct layer *l, const double *h, double *u,
                    double *z, double *alpha, double *beta) {
    uint32_t n = f->n_k_heads, d = f->state_dim, share = f->n_v_heads / n;
    uint32_t group = (2 + 2 * share) * d, v = share * d;
    double all[3 * W], pairs[2 * W];
    if (l->qkvz.w) {
        forward64_multiply(l->qkvz.w, (uint64_t)n * group, f->n_embd, NULL, h, all);
        for (uint32_t g = 0; g < n; g++) {
            const double *from = all + g * group;
            memcpy(u + g * d, from, d * sizeof *u);
            memcpy(u + (n + g) * d, from + d, d * sizeof *u);
            memcpy(u + 2 * n * d + g * v, from + 2 * d, v * sizeof *u);
            memcpy(z + g * v, from + 2 * d + v, v * sizeof *u);
        }
    } else {
        forward64_multiply(l->qkv.w, (2 * n + f->n_v_heads) * (uint64_t)d, f->n_embd, NULL, h, u);
        forward64_multiply(l->z.w, (uint64_t)f->n_v_heads * d, f->n_embd, NULL, h, z);
    }
    if (l->beta_alpha.w) {
        forward64_multiply(l->beta_alpha.w, 2 * (uint64_t)f->n_v_heads, f->n_embd, NULL, h, pairs);
        for (uint32_t i = 0; i < f->n_v_heads; i++) {
            const double *from = pairs + i / share * 2 * share + i % share;
            beta[i] = from[0], alpha[i] = from[share];
        }
    } else {
        forward64_multiply(l->alpha.w, f->n_v_heads, f->n_embd, NULL, h, alpha);
        forward64_multiply(l->beta.w, f->n_v_heads, f->n_embd, NULL, h, beta);
    }
}

static double silu(double x) {
    return x / (1 + exp(-x));
}

/* S <- e^g S; S <- S + k (beta (v - S^T k))^T; o = S^T q */
static void update_state(double *s, uint32_t d, const double *q, const double *k, const double *v,
                         double g, double beta, double *o) {
    for (uint32_t j = 0; j < d; j++) {
        double held = 0;
        o[j] = 0;
        for (uint32_t i = 0; i < d; i++)
            held += s[i * d + j] * exp(g) * k[i];
        for (uint32_t i = 0; i < d; i++) {
            s[i * d + j] = s[i * d + j] * exp(g) + k[i] * beta * (v[j] - held);
            o[j] += s[i * d + j] * q[i];
        }
    }
}

/* y (n_embd): the delta net at position t, whose normed input is h. */
static void remember(const struct forward64 *f, const struct layer *l, const double *h,
                     struct net *net, uint32_t t, double *y) {
    uint32_t d = f->state_dim, n_qk = 2 * f->n_k_heads, channels = (n_qk + f->n_v_heads) * d;
    double z[W], alpha[W], beta[W], c[W], o[W];
    project(f, l, h, net->u + (uint64_t)t * channels, z, alpha, beta);
    for (uint32_t i = 0; i < channels; i++) {
        double sum = 0;
        for (uint32_t k = 0; k < f->n_taps && k <= t; k++)
            sum += l->conv.w[i * f->n_taps + f->n_taps - 1 - k] *
                   net->u[(uint64_t)(t - k) * channels + i];
        c[i] = silu(sum);
    }
    for (uint32_t head = 0; head < n_qk; head++) {
        double sum = 0, *x = c + head * d;
        for (uint32_t i = 0; i < d; i++)
            sum += x[i] * x[i];
        for (uint32_t i = 0; i < d; i++)
            x[i] /= sqrt(sum + 1e-6) * (head < f->n_k_heads ? sqrt(d) : 1);
    }
    for (uint32_t head = 0; head < f->n_v_heads; head++) {
        uint32_t own = f->tiled ? head % f->n_k_heads : head / (f->n_v_heads / f->n_k_heads);
        double g = l->decay.w[head] * log1p(exp(alpha[head] + l->dt_bias.w[head]));
        double *out = o + head * d;
        update_state(net->s + (uint64_t)head * d * d, d, c + own * d, c + (f->n_k_heads + own) * d,
                     c + (n_qk + head) * d, g, 1 / (1 + exp(-beta[head])), out);
        forward64_normalize(f->eps, l->state_norm.w, out, out, d);
        for (uint32_t i = 0; i < d; i++)
            out[i] *= silu(z[head * d + i]);
    }
    forward64_multiply(l->state_out.w, f->n_embd, (uint64_t)f->n_v_heads * d, NULL, o, y);
}

/* y (n_embd): the short convolution at position t, whose normed input is h. */
static void convolve(const struct forward64 *f, const struct layer *l, const double *h,
                     struct net *net, uint32_t t, double *y) {
    const uint32_t n = f->n_embd;
    double bcx[3 * W], o[W];
    forward64_multiply(l->bcx.w, 3 * (uint64_t)n, n, NULL, h, bcx);
    for (uint32_t i = 0; i < n; i++) {
        net->u[(uint64_t)t * n + i] = bcx[i] * bcx[2 * n + i];
        o[i] = 0;
        for (uint32_t k = 0; k < f->n_taps && k <= t; k++)
            o[i] +=
                l->conv.w[i * f->n_taps + f->n_taps - 1 - k] * net->u[(uint64_t)(t - k) * n + i];
        o[i] *= bcx[n + i];
    }
    forward64_multiply(l->state_out.w, n, n, NULL, o, y);
}

/* y (n_embd): Mamba-2 at position t, whose normed input is h. Channels are V, K (B) and Q (C). */
static void scan(const struct forward64 *f, const struct layer *l, const double *h, struct net *net,
                 uint32_t t, double *y) {
    const uint32_t d = f->state_dim, n = f->value_dim, n_v = f->n_v_heads, n_k = f->n_k_heads;
    const uint32_t values = n_v * n, channels = values + 2 * n_k * d, group = values / n_k;
    double all[3 * W], c[W], o[W], *u = net->u + (uint64_t)t * channels;
    forward64_multiply(l->qkvz.w, (uint64_t)values + channels + n_v, f->n_embd, NULL, h, all);
    memcpy(u, all + values, channels * sizeof *u);
    for (uint32_t i = 0; i < channels; i++) {
        double sum = l->conv_bias.w ? l->conv_bias.w[i] : 0;
        for (uint32_t k = 0; k < f->n_taps && k <= t; k++)
            sum += l->conv.w[i * f->n_taps + f->n_taps - 1 - k] *
                   net->u[(uint64_t)(t - k) * channels + i];
        c[i] = silu(sum);
    }
    for (uint32_t head = 0; head < n_v; head++) {
        const double *k = c + values + head / (n_v / n_k) * d, *q = k + n_k * d, *v = c + head * n;
        double dt = log1p(exp(all[values + channels + head] + l->dt_bias.w[head]));
        double keep = exp(l->decay.w[head] * dt), *s = net->s + (uint64_t)head * d * n;
        for (uint32_t j = 0; j < n; j++) {
            double sum = l->skip.w[head] * v[j];
            for (uint32_t i = 0; i < d; i++) {
                s[i * n + j] = s[i * n + j] * keep + k[i] * dt * v[j];
                sum += s[i * n + j] * q[i];
            }
            o[head * n + j] = sum * silu(all[head * n + j]);
        }
    }
    for (uint32_t i = 0; i < values && l->state_norm.w; i += group)
        forward64_normalize(f->eps, l->state_norm.w + i, o + i, o + i, group);
    forward64_multiply(l->state_out.w, f->n_embd, values, NULL, o, y);
}

/* y (n_embd): attention, a recurrent layer, or both, at position t. */
static void run_mixers(const struct forward64 *f, const struct layer *l, uint32_t i,
                       const double *h, double *k, double *v, struct net *net, uint32_t t,
                       double *y) {
    double beside[W];
    if (f->recurrent[i] && f->short_conv)
        convolve(f, l, h, net, t, y);
    else if (f->recurrent[i] && f->kda)
        forward64_kda_run(net->kda, h, t, y);
    else if (f->recurrent[i] && f->mamba2)
        scan(f, l, h, net, t, y);
    else if (f->recurrent[i])
        remember(f, l, h, net, t, y);
    if (f->recurrent[i] && !f->parallel) return;
    if (f->kv_rank)
        attend_latent(f, l, h, k, t, y);
    else
        attend(f, l, i, h, k, v, t, f->recurrent[i] ? beside : y);
    for (uint32_t c = 0; c < f->n_embd && f->recurrent[i]; c++)
        y[c] += beside[c];
}

static void run_layer(const struct forward64 *f, const struct layer *l, uint32_t i, double *x,
                      double *k, double *v, struct net *net, uint32_t n) {
    double h[W], y[W], apart[W];
    for (uint32_t t = 0; t < n; t++) {
        double *xt = x + t * f->n_embd;
        if (f->beside) {
            norm_stream(f, l->ffn_norm.w ? l->ffn_norm : l->attn_norm,
                        l->ffn_norm.w ? l->ffn_norm_bias : l->attn_norm_bias, xt, h);
            forward64_feed_forward(f, l, i, h, apart);
        }
        if (!f->no_mixer[i]) {
            norm_stream(f, l->attn_norm, l->attn_norm_bias, xt, h);
            run_mixers(f, l, i, h, k, v, net, t, y);
            forward64_normalize(f->post_eps > 0 ? f->post_eps : f->eps, l->attn_post.w, y, y,
                                f->n_embd);
            for (uint32_t c = 0; c < f->n_embd; c++)
                xt[c] += f->residual_scale * y[c];
        }
        if (f->no_ffn[i]) continue;
        norm_stream(f, f->no_mixer[i] ? l->attn_norm : l->ffn_norm, l->ffn_norm_bias, xt, h);
        if (f->beside)
            memcpy(y, apart, sizeof y);
        else
            forward64_feed_forward(f, l, i, h, y);
        forward64_normalize(f->post_eps > 0 ? f->post_eps : f->eps, l->ffn_post.w, y, y, f->n_embd);
        for (uint32_t c = 0; c < f->n_embd; c++)
            xt[c] += f->residual_scale * y[c];
    }
}

/* Norms the embeddings, or adds learned positions. */
static void begin(const gguf *g, const struct forward64 *f, uint32_t n, double *x) {
    struct matrix norm = forward64_load(g, -1, "token_embd_norm.weight"),
                  bias = forward64_load(g, -1, "token_embd_norm.bias"),
                  positions = forward64_load(g, -1, "position_embd.weight");
    forward64_need(f->embed_norm ? norm.w != NULL : positions.w != NULL, "norm or positions");
    for (uint32_t t = 0; t < n; t++) {
        double *xt = x + (uint64_t)t * f->n_embd;
        if (f->embed_norm) norm_stream(f, norm, bias, xt, xt);
        for (uint32_t c = 0; c < f->n_embd && f->positions; c++)
            xt[c] += positions.w[(uint64_t)t * f->n_embd + c];
    }
    free(positions.w);
    free(bias.w);
    free(norm.w);
}

void forward64_hidden(const gguf *g, const struct forward64 *f, const int32_t *tokens, uint32_t n,
                      double *hidden) {
    uint64_t values = f->n_v_heads * (uint64_t)(f->mamba2 ? f->value_dim : f->state_dim);
    uint64_t channels =
        f->short_conv ? f->n_embd : 2 * (uint64_t)f->n_k_heads * f->state_dim + values;
    uint64_t state_bytes = values * f->state_dim * sizeof(double);
    forward64_need(channels <= W && f->n_embd <= W && f->n_ff <= W &&
                       f->n_heads * f->head_dim <= W && f->n_experts <= 64 &&
                       n <= FORWARD64_MAX_TOKENS && f->n_layers <= FORWARD64_MAX_LAYERS,
                   "tiny model");
    uint32_t width = f->n_kv_heads * f->head_dim;
    for (uint32_t i = 0; i < f->n_layers; i++) {
        const struct forward64 own = forward64_of_layer(f, i);
        forward64_need(own.n_heads * f->head_dim <= W, "tiny model");
        if (own.n_kv_heads * f->head_dim > width) width = own.n_kv_heads * f->head_dim;
    }
    struct matrix embed = forward64_load(g, -1, "token_embd.weight"),
                  norm = forward64_load(
                      g, -1, f->short_conv ? "token_embd_norm.weight" : "output_norm.weight"),
                  bias = forward64_load(g, -1, "output_norm.bias");
    double *k = calloc((uint64_t)n * width, sizeof *k), *v = calloc((uint64_t)n * width, sizeof *v);
    struct net net = {calloc(n * channels + 1, sizeof(double)), calloc(1, state_bytes + 1), NULL};
    forward64_need(embed.w && norm.w && k && v && net.u && net.s, "embedding, norm or memory");
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t c = 0; c < f->n_embd; c++)
            hidden[t * f->n_embd + c] =
                embed.w[(uint64_t)tokens[t] * f->n_embd + c] * f->embed_scale;
    if (f->embed_norm || f->positions) begin(g, f, n, hidden);
    for (uint32_t t = 0; t < n && f->embed_rms; t++)
        norm_plain(f, hidden + (uint64_t)t * f->n_embd, f->n_embd);
    if (f->gemma4) forward64_gemma4(g, f, tokens, n, hidden);
    for (uint32_t i = 0; i < f->n_layers && !f->gemma4; i++) {
        struct layer l = load_layer(g, f, (int)i);
        memset(net.s, 0, state_bytes);
        net.kda = f->kda && f->recurrent[i] ? forward64_kda_new(g, f, (int)i, n) : NULL;
        const struct forward64 own = forward64_of_layer(f, i);
        run_layer(&own, &l, i, hidden, k, v, &net, n);
        forward64_kda_free(net.kda);
        free_layer(&l);
    }
    for (uint32_t t = 0; t < n; t++)
        norm_stream(f, norm, bias, hidden + t * f->n_embd, hidden + t * f->n_embd);
    free(bias.w);
    free(net.s);
    free(net.u);
    free(v);
    free(k);
    free(norm.w);
    free(embed.w);
}

void forward64_run(const gguf *g, const struct forward64 *f, const int32_t *tokens, uint32_t n,
                   double *logits) {
    struct matrix output = forward64_load(g, -1, "output.weight"),
                  bias = forward64_load(g, -1, "output.bias");
    double *hidden = calloc((uint64_t)n * f->n_embd, sizeof *hidden);
    if (!output.w) output = forward64_load(g, -1, "token_embd.weight");
    forward64_need(hidden != NULL, "memory");
    forward64_hidden(g, f, tokens, n, hidden);
    for (uint32_t t = 0; t < n; t++) {
        double *y = logits + (uint64_t)t * f->n_vocab;
        forward64_multiply(output.w, f->n_vocab, f->n_embd, bias.w, hidden + t * f->n_embd, y);
        for (uint32_t i = 0; i < f->n_vocab; i++) {
            y[i] *= f->logit_scale;
            if (f->logit_softcap > 0) y[i] = f->logit_softcap * tanh(y[i] / f->logit_softcap);
        }
    }
    free(hidden);
    free(bias.w);
    free(output.w);
}
