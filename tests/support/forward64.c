/* forward64.c - see forward64.h; written for clarity, not speed. */
#include "tests/support/forward64.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { W = FORWARD64_MAX_WIDTH };

struct matrix {
    double *w; /* NULL: the file has none */
    uint64_t n_in, n_out, n_elems;
};

/* Tensors of a layer, decoded. */
struct layer {
    struct matrix attn_norm, q, k, v, bq, bk, bv, q_norm, k_norm, sinks, out, b_out, attn_post;
    struct matrix ffn_norm, gate, up, down, b_gate, b_up, b_down, ffn_post;
    struct matrix router, b_router, gate_e, up_e, down_e, b_gate_e, b_up_e, b_down_e;
    struct matrix gate_s, up_s, down_s, router_s, choice_bias;
    /* of a delta net: Q, K, V and Z apart or by K head, beta and alpha likewise */
    struct matrix qkv, z, qkvz, alpha, beta, beta_alpha, conv, decay, dt_bias, state_norm,
        state_out;
    struct matrix attn_norm_bias, ffn_norm_bias;
    struct matrix bcx; /* of a short convolution: B, C, x; it also has conv and state_out */
};

/* A delta net's memory: inputs of the convolution (n, channels), S (n_v_heads, dim, dim). */
struct net {
    double *u, *s;
};

static void need(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "forward64: no %s\n", what);
    exit(1);
}

static struct matrix load(const gguf *g, int layer, const char *name) {
    char full[64];
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    const gguf_tensor *t = gguf_tensor_find(g, full);
    if (!t) return (struct matrix){0};
    struct matrix m = {calloc(t->n_elems, sizeof(double)), t->dims[0], t->dims[1], t->n_elems};
    float *values = calloc(t->n_elems, sizeof *values);
    need(m.w && values, "memory");
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
    need(p.w != NULL, "memory");
    memcpy(p.w, m.w + first * row, n * row * sizeof *p.w);
    return p;
}

/* Gate and up of all experts from one tensor. */
static void split_experts(const gguf *g, const struct forward64 *f, int i, struct layer *l) {
    struct matrix both = load(g, i, "ffn_gate_up_exps.weight");
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
    struct matrix qkv = load(g, i, "attn_qkv.weight"), bias = load(g, i, "attn_qkv.bias");
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
        {"exp_probs_b.bias", &l.choice_bias},
        {"shortconv.in_proj.weight", &l.bcx},
        {"shortconv.conv.weight", &l.conv},
        {"shortconv.out_proj.weight", &l.state_out},
    };
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        struct matrix m = load(g, i, all[k].name);
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

/* y (n_out) = rows of w, n_in long, times x (+ bias). */
static void multiply(const double *w, uint64_t n_out, uint64_t n_in, const double *bias,
                     const double *x, double *y) {
    need(w != NULL, "matrix");
    for (uint64_t o = 0; o < n_out; o++) {
        y[o] = bias ? bias[o] : 0;
        for (uint64_t i = 0; i < n_in; i++)
            y[o] += w[o * n_in + i] * x[i];
    }
}

/* x / rms(x) * w over n values; without w a copy. */
static void normalize(double eps, const double *w, const double *x, double *y, uint32_t n) {
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
    normalize(f->eps, w.w, centred, y, f->n_embd);
    for (uint32_t i = 0; bias.w && i < f->n_embd; i++)
        y[i] += bias.w[i];
}

static void norm_heads(const struct forward64 *f, struct matrix norm, double *x, uint32_t n_heads) {
    if (!norm.w) return;
    bool each = norm.n_in == f->head_dim;
    for (uint32_t h = 0; h < (each ? n_heads : 1); h++)
        normalize(f->eps, norm.w, x + h * f->head_dim, x + h * f->head_dim, (uint32_t)norm.n_in);
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

/* Attention of one position over keys and values (pos + 1, n_kv_heads * head_dim). */
static void mix(const struct forward64 *f, const struct layer *l, uint32_t window, const double *q,
                const double *k, const double *v, uint32_t pos, double *out) {
    uint32_t width = f->n_kv_heads * f->head_dim, share = f->n_heads / f->n_kv_heads;
    uint32_t first = window && pos + 1 > window ? pos + 1 - window : 0;
    double p[FORWARD64_MAX_TOKENS];
    for (uint32_t h = 0; h < f->n_heads; h++) {
        const double *query = q + h * f->head_dim;
        double max = l->sinks.w ? l->sinks.w[h] : -INFINITY, sum;
        for (uint32_t t = first; t <= pos; t++) {
            const double *key = k + t * width + h / share * f->head_dim;
            p[t] = 0;
            for (uint32_t d = 0; d < f->head_dim; d++)
                p[t] += query[d] * key[d] * f->attn_scale;
            if (f->attn_softcap > 0) p[t] = f->attn_softcap * tanh(p[t] / f->attn_softcap);
            max = fmax(max, p[t]);
        }
        sum = l->sinks.w ? exp(l->sinks.w[h] - max) : 0;
        for (uint32_t t = first; t <= pos; t++)
            sum += p[t] = exp(p[t] - max);
        for (uint32_t d = 0; d < f->head_dim; d++) {
            out[h * f->head_dim + d] = 0;
            for (uint32_t t = first; t <= pos; t++)
                out[h * f->head_dim + d] += p[t] / sum * v[t * width + h / share * f->head_dim + d];
        }
    }
}

static double activate(enum forward64_act act, double g, double u) {
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

static const double *at(struct matrix m, uint64_t offset) {
    return m.w ? m.w + offset : NULL;
}

/* The weights of the chosen experts, 0 for the others. */
static void route(const struct forward64 *f, const struct layer *l, const double *h, double *p) {
    bool chosen[64] = {0};
    double score[64], key[64], max = -INFINITY, sum = 0, of_chosen = 0;
    multiply(l->router.w, f->n_experts, f->n_embd, l->b_router.w, h, score);
    for (uint32_t i = 0; i < f->n_experts; i++)
        max = fmax(max, score[i]);
    for (uint32_t i = 0; i < f->n_experts; i++)
        sum += exp(score[i] - max);
    for (uint32_t i = 0; i < f->n_experts; i++) {
        p[i] = f->sigmoid ? 1 / (1 + exp(-score[i])) : exp(score[i] - max) / sum;
        key[i] = p[i] + (l->choice_bias.w ? l->choice_bias.w[i] : 0);
    }
    for (uint32_t n = 0; n < f->n_used; n++) {
        uint32_t best = f->n_experts;
        for (uint32_t i = 0; i < f->n_experts; i++)
            if (!chosen[i] && (best == f->n_experts || key[i] > key[best])) best = i;
        chosen[best] = true;
        of_chosen += p[best];
    }
    for (uint32_t i = 0; i < f->n_experts; i++)
        p[i] = chosen[i] ? p[i] / (f->renormalize ? of_chosen : 1) * f->weight_scale : 0;
}

/* gate, up and down of one block of n_ff, added to y with weight p. */
struct block {
    const double *gate, *up, *down, *b_gate, *b_up, *b_down;
    uint32_t n_ff;
};

static void add_block(const struct forward64 *f, const struct block *b, const double *h, double p,
                      double *y) {
    double gate[W], up[W], r[W];
    multiply(b->up, b->n_ff, f->n_embd, b->b_up, h, up);
    if (!f->ungated) multiply(b->gate, b->n_ff, f->n_embd, b->b_gate, h, gate);
    for (uint32_t i = 0; i < b->n_ff; i++)
        gate[i] = f->ungated ? activate(f->act, up[i], 1) : activate(f->act, gate[i], up[i]);
    multiply(b->down, f->n_embd, b->n_ff, b->b_down, gate, r);
    for (uint32_t i = 0; i < f->n_embd; i++)
        y[i] += p * r[i];
}

static void feed_forward(const struct forward64 *f, const struct layer *l, const double *h,
                         double *y) {
    double p[64], gate = 0;
    memset(y, 0, f->n_embd * sizeof *y);
    if (!l->router.w) {
        struct block b = {l->gate.w, l->up.w,     l->down.w, l->b_gate.w,
                          l->b_up.w, l->b_down.w, f->n_ff};
        add_block(f, &b, h, 1, y);
        return;
    }
    route(f, l, h, p);
    uint64_t n = (uint64_t)f->n_ff_expert * f->n_embd;
    for (uint32_t i = 0; i < f->n_experts; i++) {
        struct block b = {at(l->gate_e, i * n),
                          at(l->up_e, i * n),
                          at(l->down_e, i * n),
                          at(l->b_gate_e, (uint64_t)i * f->n_ff_expert),
                          at(l->b_up_e, (uint64_t)i * f->n_ff_expert),
                          at(l->b_down_e, (uint64_t)i * f->n_embd),
                          f->n_ff_expert};
        if (p[i] > 0) add_block(f, &b, h, p[i], y);
    }
    if (!f->n_ff_shared) return;
    struct block b = {.gate = l->gate_s.w, .up = l->up_s.w, .down = l->down_s.w};
    b.n_ff = f->n_ff_shared;
    multiply(l->router_s.w, 1, f->n_embd, NULL, h, &gate);
    add_block(f, &b, h, 1 / (1 + exp(-gate)), y);
}

/* y (n_embd): attention of position t, whose normed input is h. */
static void attend(const struct forward64 *f, const struct layer *l, uint32_t i, const double *h,
                   double *k, double *v, uint32_t t, double *y) {
    uint32_t width = f->n_kv_heads * f->head_dim, heads = f->n_heads * f->head_dim;
    const struct forward64_rope *r = &f->rope[f->windowed[i]];
    double both[2 * W], q[W], gate[W], att[W], *kt = k + t * width, *vt = v + t * width;
    multiply(l->q.w, (f->attention_gate ? 2 : 1) * (uint64_t)heads, f->n_embd, l->bq.w, h, both);
    for (uint32_t c = 0; c < heads; c++) {
        uint32_t at = f->attention_gate ? c + c / f->head_dim * f->head_dim : c;
        q[c] = both[at];
        gate[c] = f->attention_gate ? 1 / (1 + exp(-both[at + f->head_dim])) : 1;
    }
    multiply(l->k.w, width, f->n_embd, l->bk.w, h, kt);
    multiply(l->v.w, width, f->n_embd, l->bv.w, h, vt);
    norm_heads(f, l->q_norm, q, f->n_heads);
    norm_heads(f, l->k_norm, kt, f->n_kv_heads);
    if (!f->no_rope[i]) {
        turn(f, r, q, f->n_heads, t);
        turn(f, r, kt, f->n_kv_heads, t);
    }
    mix(f, l, f->windowed[i] ? f->window : 0, q, k, v, t, att);
    for (uint32_t c = 0; c < heads; c++)
        att[c] *= gate[c];
    multiply(l->out.w, f->n_embd, heads, l->b_out.w, att, y);
}

/* What a delta net computes from h: u (channels) of Q, K, V; z (n_v_heads * dim); alpha, beta. */
static void project(const struct forward64 *f, const struct layer *l, const double *h, double *u,
                    double *z, double *alpha, double *beta) {
    uint32_t n = f->n_k_heads, d = f->state_dim, share = f->n_v_heads / n;
    uint32_t group = (2 + 2 * share) * d, v = share * d;
    double all[3 * W], pairs[2 * W];
    if (l->qkvz.w) {
        multiply(l->qkvz.w, (uint64_t)n * group, f->n_embd, NULL, h, all);
        for (uint32_t g = 0; g < n; g++) {
            const double *from = all + g * group;
            memcpy(u + g * d, from, d * sizeof *u);
            memcpy(u + (n + g) * d, from + d, d * sizeof *u);
            memcpy(u + 2 * n * d + g * v, from + 2 * d, v * sizeof *u);
            memcpy(z + g * v, from + 2 * d + v, v * sizeof *u);
        }
    } else {
        multiply(l->qkv.w, (2 * n + f->n_v_heads) * (uint64_t)d, f->n_embd, NULL, h, u);
        multiply(l->z.w, (uint64_t)f->n_v_heads * d, f->n_embd, NULL, h, z);
    }
    if (l->beta_alpha.w) {
        multiply(l->beta_alpha.w, 2 * (uint64_t)f->n_v_heads, f->n_embd, NULL, h, pairs);
        for (uint32_t i = 0; i < f->n_v_heads; i++) {
            const double *from = pairs + i / share * 2 * share + i % share;
            beta[i] = from[0], alpha[i] = from[share];
        }
    } else {
        multiply(l->alpha.w, f->n_v_heads, f->n_embd, NULL, h, alpha);
        multiply(l->beta.w, f->n_v_heads, f->n_embd, NULL, h, beta);
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
        normalize(f->eps, l->state_norm.w, out, out, d);
        for (uint32_t i = 0; i < d; i++)
            out[i] *= silu(z[head * d + i]);
    }
    multiply(l->state_out.w, f->n_embd, (uint64_t)f->n_v_heads * d, NULL, o, y);
}

/* y (n_embd): the short convolution at position t, whose normed input is h. */
static void convolve(const struct forward64 *f, const struct layer *l, const double *h,
                     struct net *net, uint32_t t, double *y) {
    const uint32_t n = f->n_embd;
    double bcx[3 * W], o[W];
    multiply(l->bcx.w, 3 * (uint64_t)n, n, NULL, h, bcx);
    for (uint32_t i = 0; i < n; i++) {
        net->u[(uint64_t)t * n + i] = bcx[i] * bcx[2 * n + i];
        o[i] = 0;
        for (uint32_t k = 0; k < f->n_taps && k <= t; k++)
            o[i] +=
                l->conv.w[i * f->n_taps + f->n_taps - 1 - k] * net->u[(uint64_t)(t - k) * n + i];
        o[i] *= bcx[n + i];
    }
    multiply(l->state_out.w, n, n, NULL, o, y);
}

static void run_layer(const struct forward64 *f, const struct layer *l, uint32_t i, double *x,
                      double *k, double *v, struct net *net, uint32_t n) {
    double h[W], y[W], apart[W];
    for (uint32_t t = 0; t < n; t++) {
        double *xt = x + t * f->n_embd;
        if (f->beside) {
            norm_stream(f, l->ffn_norm.w ? l->ffn_norm : l->attn_norm,
                        l->ffn_norm.w ? l->ffn_norm_bias : l->attn_norm_bias, xt, h);
            feed_forward(f, l, h, apart);
        }
        norm_stream(f, l->attn_norm, l->attn_norm_bias, xt, h);
        if (f->recurrent[i] && f->short_conv)
            convolve(f, l, h, net, t, y);
        else if (f->recurrent[i])
            remember(f, l, h, net, t, y);
        else
            attend(f, l, i, h, k, v, t, y);
        normalize(f->eps, l->attn_post.w, y, y, f->n_embd);
        for (uint32_t c = 0; c < f->n_embd; c++)
            xt[c] += f->residual_scale * y[c];
        norm_stream(f, l->ffn_norm, l->ffn_norm_bias, xt, h);
        if (f->beside)
            memcpy(y, apart, sizeof y);
        else
            feed_forward(f, l, h, y);
        normalize(f->eps, l->ffn_post.w, y, y, f->n_embd);
        for (uint32_t c = 0; c < f->n_embd; c++)
            xt[c] += f->residual_scale * y[c];
    }
}

void forward64_hidden(const gguf *g, const struct forward64 *f, const int32_t *tokens, uint32_t n,
                      double *hidden) {
    uint64_t channels =
        f->short_conv ? f->n_embd : (2 * (uint64_t)f->n_k_heads + f->n_v_heads) * f->state_dim;
    uint64_t state_bytes = (uint64_t)f->n_v_heads * f->state_dim * f->state_dim * sizeof(double);
    need(channels <= W && f->n_embd <= W && f->n_ff <= W && f->n_heads * f->head_dim <= W &&
             f->n_experts <= 64 && n <= FORWARD64_MAX_TOKENS && f->n_layers <= FORWARD64_MAX_LAYERS,
         "tiny model");
    uint32_t width = f->n_kv_heads * f->head_dim;
    struct matrix embed = load(g, -1, "token_embd.weight"),
                  norm =
                      load(g, -1, f->short_conv ? "token_embd_norm.weight" : "output_norm.weight"),
                  bias = load(g, -1, "output_norm.bias");
    double *k = calloc((uint64_t)n * width, sizeof *k), *v = calloc((uint64_t)n * width, sizeof *v);
    struct net net = {calloc(n * channels + 1, sizeof(double)), calloc(1, state_bytes + 1)};
    need(embed.w && norm.w && k && v && net.u && net.s, "embedding, norm or memory");
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t c = 0; c < f->n_embd; c++)
            hidden[t * f->n_embd + c] =
                embed.w[(uint64_t)tokens[t] * f->n_embd + c] * f->embed_scale;
    for (uint32_t i = 0; i < f->n_layers; i++) {
        struct layer l = load_layer(g, f, (int)i);
        memset(net.s, 0, state_bytes);
        run_layer(f, &l, i, hidden, k, v, &net, n);
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
    struct matrix output = load(g, -1, "output.weight"), bias = load(g, -1, "output.bias");
    double *hidden = calloc((uint64_t)n * f->n_embd, sizeof *hidden);
    if (!output.w) output = load(g, -1, "token_embd.weight");
    need(hidden != NULL, "memory");
    forward64_hidden(g, f, tokens, n, hidden);
    for (uint32_t t = 0; t < n; t++) {
        double *y = logits + (uint64_t)t * f->n_vocab;
        multiply(output.w, f->n_vocab, f->n_embd, bias.w, hidden + t * f->n_embd, y);
        for (uint32_t i = 0; i < f->n_vocab; i++) {
            y[i] *= f->logit_scale;
            if (f->logit_softcap > 0) y[i] = f->logit_softcap * tanh(y[i] / f->logit_softcap);
        }
    }
    free(hidden);
    free(bias.w);
    free(output.w);
}
