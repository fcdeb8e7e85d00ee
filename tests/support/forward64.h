/* forward64.h - a decoder-only transformer in float64, token by token over contiguous keys and
 * values: the reference of the forward pass. It shares no code with it, takes hyperparameters from
 * the test and reads only tensors from the file; norms and biases are used if their tensors exist.
 */
#ifndef INFERD_TESTS_FORWARD64_H
#define INFERD_TESTS_FORWARD64_H

#include "core/formats/gguf/gguf.h"

enum { FORWARD64_MAX_LAYERS = 16, FORWARD64_MAX_WIDTH = 512, FORWARD64_MAX_TOKENS = 160 };
enum forward64_act {
    FORWARD64_SILU,
    FORWARD64_GELU_TANH,
    FORWARD64_SWIGLU_OAI,
    FORWARD64_RELU2, /* of blocks without gate, as is */
    FORWARD64_GELU
};

struct forward64 {
    uint32_t n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff, n_vocab;
    double eps;
    struct forward64_rope {
        uint32_t n_rot;
        double inv_freq[64], magnitude;
    } rope[2]; /* [1]: of windowed layers */
    bool interleaved;
    uint32_t window;
    bool windowed[FORWARD64_MAX_LAYERS], no_rope[FORWARD64_MAX_LAYERS];
    bool ffn_norm_is_post_attention; /* and not a norm of attention's output */
    double embed_scale, attn_scale, residual_scale, logit_scale; /* factors */
    double attn_softcap, logit_softcap;                          /* 0: none */
    enum forward64_act act;
    bool layer_norm; /* norms of the stream subtract the mean, and may have a bias */
    bool beside;     /* the block reads x as attention does, after ffn_norm or else attn_norm */
    bool ungated;    /* act(up) in the place of act(gate, up) */
    uint32_t n_experts, n_used, n_ff_expert, n_ff_shared; /* n_experts 0: a plain block */
    uint32_t n_dense;                                     /* first layers with a plain block */
    bool renormalize, sigmoid;                            /* sigmoid: else softmax */
    double weight_scale;
    /* Layers with a gated delta net in the place of attention (Yang, Kautz, Hatamizadeh 2024), as a
     * recurrence. V head h has the K head h % n_k_heads if tiled, else h / (n_v_heads / n_k_heads).
     */
    bool recurrent[FORWARD64_MAX_LAYERS], tiled;
    uint32_t n_taps, n_k_heads, n_v_heads, state_dim;
    bool attention_gate; /* attn_q has each head's Q, then its gate */
    bool short_conv;     /* recurrent layers have a convolution of n_taps (Liquid AI's LFM2) */
};

/* hidden (n, n_embd): the residual stream after the final norm. Ends the process if a tensor is
 * missing. */
void forward64_hidden(const gguf *g, const struct forward64 *f, const int32_t *tokens, uint32_t n,
                      double *hidden);

/* logits (n, n_vocab) of tokens[0..n). Ends the process if a tensor is missing. */
void forward64_run(const gguf *g, const struct forward64 *f, const int32_t *tokens, uint32_t n,
                   double *logits);

#endif
