/* forward64_gemma4.c - the layers of Gemma 4 in float64, token by token, from the formulas of
 * transformers' modeling_gemma4.py; written for clarity, not speed. */
#include "tests/support/forward64_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { W = FORWARD64_MAX_WIDTH };

/* K and V of every token of a layer. */
struct kept {
    double *k, *v; /* (n, n_kv_heads * head_dim) */
};

struct run {
    const gguf *g;
    const struct forward64 *f;
    uint32_t n;
    double *x;        /* (n, n_embd) */
    double *by_layer; /* (n, n_layers, n_per_layer) or NULL */
    struct kept kept[FORWARD64_MAX_LAYERS];
};

static double *matrix_of(const struct run *r, int layer, const char *name) {
    struct matrix m = forward64_load(r->g, layer, name);
    forward64_need(m.w != NULL, name);
    return m.w;
}

/* y = w x (+ nothing), the matrix of that name. */
static void product(const struct run *r, int layer, const char *name, uint32_t n_out, uint32_t n_in,
                    const double *x, double *y) {
    double *w = matrix_of(r, layer, name);
    forward64_multiply(w, n_out, n_in, NULL, x, y);
    free(w);
}

static void norm(const struct run *r, int layer, const char *name, const double *x, double *y,
                 uint32_t n) {
    double *w = matrix_of(r, layer, name);
    forward64_normalize(r->f->eps, w, x, y, n);
    free(w);
}

static void norm_plain(const struct run *r, double *x, uint32_t n) {
    double ones[W];
    for (uint32_t i = 0; i < n; i++)
        ones[i] = 1;
    forward64_normalize(r->f->eps, ones, x, x, n);
}

static void turn(const struct forward64_rope *rope, double *x, uint32_t pos) {
    const uint32_t half = rope->n_rot / 2;
    for (uint32_t i = 0; i < half; i++) {
        const double a = pos * rope->inv_freq[i], u = x[i], v = x[i + half];
        x[i] = u * cos(a) - v * sin(a);
        x[i + half] = u * sin(a) + v * cos(a);
    }
}

/* The layer whose K and V layer i reads. */
static uint32_t source_of(const struct forward64 *f, uint32_t i) {
    uint32_t s = f->n_layers - f->n_shared_kv;
    if (i < s) return i;
    while (f->windowed[--s] != f->windowed[i])
        ;
    return s;
}

/* K and V of every token of layer i, whose normed inputs are h (n, n_embd). */
static void keep(struct run *r, uint32_t i, const double *h) {
    const struct forward64 *f = r->f;
    const bool windowed = f->windowed[i];
    const uint32_t dim = windowed ? f->window_head_dim : f->head_dim;
    const uint32_t n_kv = windowed ? f->n_window_kv_heads : f->n_kv_heads, width = n_kv * dim;
    struct matrix wv = forward64_load(r->g, (int)i, "attn_v.weight");
    struct kept *to = &r->kept[i];
    to->k = calloc((uint64_t)r->n * width, sizeof *to->k);
    to->v = calloc((uint64_t)r->n * width, sizeof *to->v);
    forward64_need(to->k && to->v && width <= W, "memory");
    for (uint32_t t = 0; t < r->n; t++) {
        double *k = to->k + (uint64_t)t * width, *v = to->v + (uint64_t)t * width;
        product(r, (int)i, "attn_k.weight", width, f->n_embd, h + (uint64_t)t * f->n_embd, k);
        if (wv.w)
            forward64_multiply(wv.w, width, f->n_embd, NULL, h + (uint64_t)t * f->n_embd, v);
        else
            memcpy(v, k, width * sizeof *v);
        for (uint32_t head = 0; head < n_kv; head++) {
            norm(r, (int)i, "attn_k_norm.weight", k + head * dim, k + head * dim, dim);
            turn(&f->rope[windowed], k + head * dim, t);
            norm_plain(r, v + head * dim, dim);
        }
    }
    free(wv.w);
}

/* out (n_heads * dim): attention of token t, of layer i, with queries q. */
static void mix(const struct run *r, uint32_t i, const double *q, uint32_t t, double *out) {
    const struct forward64 *f = r->f;
    const bool windowed = f->windowed[i];
    const struct kept *from = &r->kept[source_of(f, i)];
    const uint32_t dim = windowed ? f->window_head_dim : f->head_dim;
    const uint32_t n_kv = windowed ? f->n_window_kv_heads : f->n_kv_heads;
    const uint32_t first = windowed && t + 1 > f->window ? t + 1 - f->window : 0;
    double p[FORWARD64_MAX_TOKENS];
    for (uint32_t h = 0; h < f->n_heads; h++) {
        const uint32_t at = h / (f->n_heads / n_kv) * dim;
        double max = -INFINITY, sum = 0;
        for (uint32_t s = first; s <= t; s++) {
            p[s] = 0;
            for (uint32_t d = 0; d < dim; d++)
                p[s] += q[h * dim + d] * from->k[(uint64_t)s * n_kv * dim + at + d];
            max = fmax(max, p[s]);
        }
        for (uint32_t s = first; s <= t; s++)
            sum += p[s] = exp(p[s] - max);
        for (uint32_t d = 0; d < dim; d++) {
            out[h * dim + d] = 0;
            for (uint32_t s = first; s <= t; s++)
                out[h * dim + d] += p[s] / sum * from->v[(uint64_t)s * n_kv * dim + at + d];
        }
    }
}

static void attend(const struct run *r, uint32_t i, const double *h, uint32_t t, double *y) {
    const struct forward64 *f = r->f;
    const uint32_t dim = f->windowed[i] ? f->window_head_dim : f->head_dim,
                   width = f->n_heads * dim;
    double q[W], att[W];
    forward64_need(width <= W, "tiny model");
    product(r, (int)i, "attn_q.weight", width, f->n_embd, h, q);
    for (uint32_t head = 0; head < f->n_heads; head++) {
        norm(r, (int)i, "attn_q_norm.weight", q + head * dim, q + head * dim, dim);
        turn(&f->rope[f->windowed[i]], q + head * dim, t);
    }
    mix(r, i, q, t, att);
    product(r, (int)i, "attn_output.weight", f->n_embd, width, att, y);
}

/* One gated block: y += p * down(act(gate h, up h)). */
static void add_block(const struct forward64 *f, const double *gate, const double *up,
                      const double *down, uint32_t n_ff, const double *h, double p, double *y) {
    double a[W], b[W], out[W];
    forward64_need(n_ff <= W, "tiny model");
    forward64_multiply(gate, n_ff, f->n_embd, NULL, h, a);
    forward64_multiply(up, n_ff, f->n_embd, NULL, h, b);
    for (uint32_t i = 0; i < n_ff; i++)
        a[i] = forward64_activate(FORWARD64_GELU_TANH, a[i], b[i]);
    forward64_multiply(down, f->n_embd, n_ff, NULL, a, out);
    for (uint32_t i = 0; i < f->n_embd; i++)
        y[i] += p * out[i];
}

static void dense(const struct run *r, uint32_t i, const double *h, double *y) {
    const struct forward64 *f = r->f;
    const bool shared = i >= f->n_layers - f->n_shared_kv;
    double *gate = matrix_of(r, (int)i, "ffn_gate.weight"),
           *up = matrix_of(r, (int)i, "ffn_up.weight"),
           *down = matrix_of(r, (int)i, "ffn_down.weight");
    memset(y, 0, f->n_embd * sizeof *y);
    add_block(f, gate, up, down, shared ? f->n_ff_shared_kv : f->n_ff, h, 1, y);
    free(gate);
    free(up);
    free(down);
}

/* weight (n_experts) of the chosen experts, else 0: x is the residual stream. */
static void route(const struct run *r, uint32_t i, const double *x, double *weight) {
    const struct forward64 *f = r->f;
    struct matrix scale = forward64_load(r->g, (int)i, "ffn_down_exps.scale");
    double in[W], score[64], of_chosen = 0, max = -INFINITY;
    norm(r, (int)i, "ffn_gate_inp.scale", x, in, f->n_embd);
    for (uint32_t c = 0; c < f->n_embd; c++)
        in[c] /= sqrt(f->n_embd);
    product(r, (int)i, "ffn_gate_inp.weight", f->n_experts, f->n_embd, in, score);
    memset(weight, 0, f->n_experts * sizeof *weight);
    for (uint32_t e = 0; e < f->n_experts; e++)
        max = fmax(max, score[e]);
    for (uint32_t k = 0; k < f->n_used; k++) {
        uint32_t best = f->n_experts;
        for (uint32_t e = 0; e < f->n_experts; e++)
            if (weight[e] == 0 && (best == f->n_experts || score[e] > score[best])) best = e;
        of_chosen += weight[best] = exp(score[best] - max);
    }
    for (uint32_t e = 0; e < f->n_experts; e++)
        weight[e] *= (scale.w ? scale.w[e] : 1) / of_chosen;
    free(scale.w);
}

static void experts(const struct run *r, uint32_t i, const double *x, double *y) {
    const struct forward64 *f = r->f;
    const uint64_t n = (uint64_t)f->n_ff_expert * f->n_embd;
    struct matrix both = forward64_load(r->g, (int)i, "ffn_gate_up_exps.weight"),
                  gate = forward64_load(r->g, (int)i, "ffn_gate_exps.weight"),
                  up = forward64_load(r->g, (int)i, "ffn_up_exps.weight");
    double *down = matrix_of(r, (int)i, "ffn_down_exps.weight"), h[W], weight[64];
    forward64_need(both.w || (gate.w && up.w), "experts");
    route(r, i, x, weight);
    norm(r, (int)i, "pre_ffw_norm_2.weight", x, h, f->n_embd);
    memset(y, 0, f->n_embd * sizeof *y);
    for (uint32_t e = 0; e < f->n_experts; e++)
        if (weight[e] != 0)
            add_block(f, both.w ? both.w + 2 * e * n : gate.w + e * n,
                      both.w ? both.w + (2 * e + 1) * n : up.w + e * n, down + e * n,
                      f->n_ff_expert, h, weight[e], y);
    norm(r, (int)i, "post_ffw_norm_2.weight", y, y, f->n_embd);
    free(both.w);
    free(gate.w);
    free(up.w);
    free(down);
}

/* x += the FFN's and the experts' output. */
static void feed_forward(const struct run *r, uint32_t i, double *x) {
    const struct forward64 *f = r->f;
    double h[W], y[W], more[W];
    norm(r, (int)i, "ffn_norm.weight", x, h, f->n_embd);
    dense(r, i, h, y);
    if (f->n_experts) {
        norm(r, (int)i, "post_ffw_norm_1.weight", y, y, f->n_embd);
        experts(r, i, x, more);
        for (uint32_t c = 0; c < f->n_embd; c++)
            y[c] += more[c];
    }
    norm(r, (int)i, "post_ffw_norm.weight", y, y, f->n_embd);
    for (uint32_t c = 0; c < f->n_embd; c++)
        x[c] += y[c];
}

/* x += what the token's embedding of this layer gates. */
static void add_layer_input(const struct run *r, uint32_t i, uint32_t t, double *x) {
    const struct forward64 *f = r->f;
    const uint32_t n = f->n_per_layer;
    const double *in = r->by_layer + ((uint64_t)t * f->n_layers + i) * n;
    double a[W], y[W];
    product(r, (int)i, "inp_gate.weight", n, f->n_embd, x, a);
    for (uint32_t c = 0; c < n; c++)
        a[c] = forward64_activate(FORWARD64_GELU_TANH, a[c], in[c]);
    product(r, (int)i, "proj.weight", f->n_embd, n, a, y);
    norm(r, (int)i, "post_norm.weight", y, y, f->n_embd);
    for (uint32_t c = 0; c < f->n_embd; c++)
        x[c] += y[c];
}

static void run_layer(struct run *r, uint32_t i) {
    const struct forward64 *f = r->f;
    struct matrix scale = forward64_load(r->g, (int)i, "layer_output_scale.weight");
    double *h = calloc((uint64_t)r->n * f->n_embd, sizeof *h), y[W];
    forward64_need(h != NULL, "memory");
    for (uint32_t t = 0; t < r->n; t++)
        norm(r, (int)i, "attn_norm.weight", r->x + (uint64_t)t * f->n_embd,
             h + (uint64_t)t * f->n_embd, f->n_embd);
    if (source_of(f, i) == i) keep(r, i, h);
    for (uint32_t t = 0; t < r->n; t++) {
        double *x = r->x + (uint64_t)t * f->n_embd;
        attend(r, i, h + (uint64_t)t * f->n_embd, t, y);
        norm(r, (int)i, "post_attention_norm.weight", y, y, f->n_embd);
        for (uint32_t c = 0; c < f->n_embd; c++)
            x[c] += y[c];
        feed_forward(r, i, x);
        if (f->n_per_layer) add_layer_input(r, i, t, x);
        for (uint32_t c = 0; c < f->n_embd && scale.w; c++)
            x[c] *= scale.w[0];
    }
    free(scale.w);
    free(h);
}

/* by_layer: the token's row of a table, and a normed projection of its embedding. */
static void find_layer_inputs(struct run *r, const int32_t *tokens) {
    const struct forward64 *f = r->f;
    const uint32_t n = f->n_per_layer, all = f->n_layers * n;
    double *table, *proj = NULL;
    if (!n) return;
    table = matrix_of(r, -1, "per_layer_token_embd.weight");
    r->by_layer = calloc((uint64_t)r->n * all, sizeof *r->by_layer);
    proj = calloc(all, sizeof *proj);
    forward64_need(r->by_layer && proj, "memory");
    for (uint32_t t = 0; t < r->n; t++) {
        product(r, -1, "per_layer_model_proj.weight", all, f->n_embd,
                r->x + (uint64_t)t * f->n_embd, proj);
        for (uint32_t c = 0; c < all; c++)
            proj[c] /= sqrt(f->n_embd);
        for (uint32_t i = 0; i < f->n_layers; i++)
            norm(r, -1, "per_layer_proj_norm.weight", proj + i * n, proj + i * n, n);
        for (uint32_t c = 0; c < all; c++)
            r->by_layer[(uint64_t)t * all + c] =
                (proj[c] + table[(uint64_t)tokens[t] * all + c] * sqrt(n)) * sqrt(0.5);
    }
    free(proj);
    free(table);
}

void forward64_gemma4(const gguf *g, const struct forward64 *f, const int32_t *tokens, uint32_t n,
                      double *hidden) {
    struct run r = {.g = g, .f = f, .n = n, .x = hidden};
    find_layer_inputs(&r, tokens);
    for (uint32_t i = 0; i < f->n_layers; i++)
        run_layer(&r, i);
    for (uint32_t i = 0; i < f->n_layers; i++) {
        free(r.kept[i].k);
        free(r.kept[i].v);
    }
    free(r.by_layer);
}
