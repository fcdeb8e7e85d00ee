/* llama64.h - a llama file for the float64 forward pass: its divisors of frequencies, linear
 * scaling. Failures to set up end the test binary. */
#ifndef INFERD_TESTS_LLAMA64_H
#define INFERD_TESTS_LLAMA64_H

#include "core/model/model.h"
#include "tests/support/forward64.h"
#include "tests/support/rope64.h"
#include "tests/support/runner.h"

/* The caller closes the file. */
static inline gguf *llama64_open(const char *path, struct forward64 *f) {
    struct model_hparams hp;
    gguf *g;
    err e = {0};
    runner_need(gguf_open(path, 0, &g, &e), &e);
    runner_need(model_read_hparams(path, &hp, &e), &e);
    *f = (struct forward64){.n_layers = hp.n_layers,
                            .n_embd = hp.n_embd,
                            .n_heads = hp.n_heads,
                            .n_kv_heads = hp.n_kv_heads,
                            .head_dim = hp.head_dim,
                            .n_ff = hp.n_ff,
                            .n_vocab = hp.n_vocab,
                            .eps = (double)hp.rms_eps,
                            .interleaved = true,
                            .embed_scale = 1,
                            .attn_scale = 1 / sqrt(hp.head_dim),
                            .residual_scale = 1,
                            .logit_scale = 1};
    const gguf_tensor *t = gguf_tensor_find(g, "rope_freqs.weight");
    struct forward64_rope *r = &f->rope[0];
    r->n_rot = hp.rope[0].n_rot;
    r->magnitude = 1;
    rope64_plain((double)hp.rope[0].base, (int)r->n_rot, r->inv_freq);
    for (uint32_t i = 0; i < r->n_rot / 2; i++)
        r->inv_freq[i] /= (double)hp.rope[0].factor * (t ? (double)((const float *)t->data)[i] : 1);
    return g;
}

#endif
