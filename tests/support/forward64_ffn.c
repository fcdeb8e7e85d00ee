/* forward64_ffn.c - the FFN and the experts of the float64 model. */
#include "tests/support/forward64_int.h"

#include <math.h>
#include <string.h>

enum { W = FORWARD64_MAX_WIDTH };

static const double *at(struct matrix m, uint64_t offset) {
    return m.w ? m.w + offset : NULL;
}

/* Marks the experts outside of the best groups. */
static void leave_out(const struct forward64 *f, const double *key, bool *left_out) {
    const uint32_t n = f->n_groups, size = n ? f->n_experts / n : 0;
    bool used[64] = {0};
    double group[64];
    for (uint32_t g = 0; g < n; g++) {
        double first = -INFINITY, second = -INFINITY;
        for (uint32_t i = g * size; i < (g + 1) * size; i++) {
            second = fmax(second, fmin(first, key[i]));
            first = fmax(first, key[i]);
        }
        group[g] = f->sigmoid ? first + second : first;
    }
    for (uint32_t k = 0; k < f->n_groups_used; k++) {
        uint32_t best = n;
        for (uint32_t g = 0; g < n; g++)
            if (!used[g] && (best == n || group[g] > group[best])) best = g;
        used[best] = true;
    }
    for (uint32_t i = 0; n && i < f->n_experts; i++)
        left_out[i] = !used[i / size];
}

/* Phi-MoE's sparse mixer: softmax of the expert's score over those that were not chosen before it
 * and are not far below it. */
static double mixed(const struct forward64 *f, const double *score, const bool *chosen,
                    uint32_t best) {
    double sum = 0;
    for (uint32_t i = 0; i < f->n_experts; i++) {
        const double factor = fmax(fabs(score[i]), score[best]);
        const bool masked = (score[best] - score[i]) / factor > 2 * f->mixer_noise;
        if (!chosen[i] && !masked) sum += exp(score[i] - score[best]);
    }
    return 1 / sum;
}

/* The weights of the chosen experts, 0 for the others. */
static void route(const struct forward64 *f, const struct layer *l, const double *h, double *p) {
    bool chosen[64] = {0}, left_out[64] = {0};
    double score[64], key[64], max = -INFINITY, sum = 0, of_chosen = 0;
    forward64_multiply(l->router.w, f->n_experts, f->n_embd, l->b_router.w, h, score);
    for (uint32_t i = 0; i < f->n_experts; i++)
        max = fmax(max, score[i]);
    for (uint32_t i = 0; i < f->n_experts; i++)
        sum += exp(score[i] - max);
    for (uint32_t i = 0; i < f->n_experts; i++) {
        p[i] = f->sigmoid ? 1 / (1 + exp(-score[i])) : exp(score[i] - max) / sum;
        key[i] = p[i] + (l->choice_bias.w ? l->choice_bias.w[i] : 0);
        if (f->mixer_noise != 0) key[i] = score[i];
    }
    leave_out(f, key, left_out);
    for (uint32_t n = 0; n < f->n_used; n++) {
        uint32_t best = f->n_experts;
        for (uint32_t i = 0; i < f->n_experts; i++)
            if (!chosen[i] && !left_out[i] && (best == f->n_experts || key[i] > key[best]))
                best = i;
        if (f->mixer_noise != 0) p[best] = mixed(f, score, chosen, best);
        chosen[best] = true;
        of_chosen += p[best];
    }
    for (uint32_t i = 0; i < f->n_experts; i++)
        p[i] = chosen[i] ? p[i] / (f->renormalize ? of_chosen : 1) * f->weight_scale : 0;
}

/* gate, up and down of one block of n_ff, added to y with weight p. */
struct block {
    const double *gate, *up, *down, *b_gate, *b_up, *b_down;
    uint32_t n_ff, width; /* width: of its input and output */
    double in;            /* factor of the products of gate and up; 0 is 1 */
    const struct forward64_xielu *xielu;
    double clamp; /* bound of silu(gate) and of the magnitude of up; 0: none */
};

static double softplus(double x) {
    return log1p(exp(x));
}

static double xielu(const struct forward64_xielu *a, double x) {
    if (x > 0) return softplus(a->alpha_p) * x * x + a->beta * x;
    return (expm1(fmin(x, a->eps)) - x) * (a->beta + softplus(a->alpha_n)) + a->beta * x;
}

static void add_block(const struct forward64 *f, const struct block *b, const double *h, double p,
                      double *y) {
    double gate[W], up[W], r[W];
    if (!f->ungated) forward64_multiply(b->gate, b->n_ff, b->width, b->b_gate, h, gate);
    forward64_multiply(b->up, b->n_ff, b->width, b->b_up, h, up);
    for (uint32_t i = 0; i < b->n_ff; i++) {
        const double in = b->in != 0 ? b->in : 1, g = in * gate[i], u = in * up[i];
        if (b->clamp > 0) {
            gate[i] = fmin(g / (1 + exp(-g)), b->clamp) * fmax(fmin(u, b->clamp), -b->clamp);
            continue;
        }
        gate[i] = f->act == FORWARD64_XIELU ? xielu(b->xielu, up[i])
                  : f->ungated              ? forward64_activate(f->act, up[i], 1)
                                            : forward64_activate(f->act, g, u);
    }
    forward64_multiply(b->down, b->width, b->n_ff, b->b_down, gate, r);
    for (uint32_t i = 0; i < b->width; i++)
        y[i] += p * r[i];
}

/* The routed experts, added to y. */
static void add_experts(const struct forward64 *f, const struct layer *l, uint32_t layer,
                        const double *h, double *y) {
    double p[64], narrow[W], sum[W] = {0}, r[W];
    uint32_t width = f->n_latent ? f->n_latent : f->n_embd;
    route(f, l, h, p);
    if (f->n_latent) forward64_multiply(l->latent_down.w, width, f->n_embd, NULL, h, narrow);
    uint64_t n = (uint64_t)f->n_ff_expert * width;
    for (uint32_t i = 0; i < f->n_experts; i++) {
        struct block b = {at(l->gate_e, i * n),
                          at(l->up_e, i * n),
                          at(l->down_e, i * n),
                          at(l->b_gate_e, (uint64_t)i * f->n_ff_expert),
                          at(l->b_up_e, (uint64_t)i * f->n_ff_expert),
                          at(l->b_down_e, (uint64_t)i * width),
                          f->n_ff_expert,
                          width,
                          f->weighs_input ? p[i] : 0,
                          NULL,
                          f->clamp_experts[layer]};
        const double by = f->weighs_input ? 1 : p[i];
        if (p[i] > 0) add_block(f, &b, f->n_latent ? narrow : h, by, sum);
    }
    if (f->n_latent) forward64_multiply(l->latent_up.w, f->n_embd, width, NULL, sum, r);
    for (uint32_t i = 0; i < f->n_embd; i++)
        y[i] += f->n_latent ? r[i] : sum[i];
}

void forward64_feed_forward(const struct forward64 *f, const struct layer *l, uint32_t i,
                            const double *h, double *y) {
    double gate = 0;
    memset(y, 0, f->n_embd * sizeof *y);
    if (!l->router.w) {
        struct block b = {l->gate.w, l->up.w,   l->down.w, l->b_gate.w,  l->b_up.w,  l->b_down.w,
                          f->n_ff,   f->n_embd, 0,         &f->xielu[i], f->clamp[i]};
        add_block(f, &b, h, 1, y);
        return;
    }
    add_experts(f, l, i, h, y);
    if (!f->n_ff_shared) return;
    struct block b = {.gate = l->gate_s.w, .up = l->up_s.w, .down = l->down_s.w};
    b.n_ff = f->n_ff_shared;
    b.width = f->n_embd;
    b.clamp = f->clamp[i];
    if (l->router_s.w) forward64_multiply(l->router_s.w, 1, f->n_embd, NULL, h, &gate);
    add_block(f, &b, h, l->router_s.w ? 1 / (1 + exp(-gate)) : 1, y);
    for (uint32_t c = 0; c < f->n_embd && f->averaged; c++)
        y[c] /= 2;
}
