/* forward64.h - a decoder-only transformer in float64, token by token over contiguous keys and
 * values: the reference of the forward pass. It shares no code with it, takes hyperparameters from
 * the test and reads only tensors from the file; norms and biases are used if their tensors exist.
 */
#ifndef INFERD_TESTS_FORWARD64_H
#define INFERD_TESTS_FORWARD64_H

#include "core/formats/gguf/gguf.h"

enum { FORWARD64_MAX_LAYERS = 16, FORWARD64_MAX_WIDTH = 768, FORWARD64_MAX_TOKENS = 160 };
enum forward64_act {
    FORWARD64_SILU,
    FORWARD64_GELU_TANH,
    FORWARD64_SWIGLU_OAI,
    FORWARD64_RELU2, /* of blocks without gate, as are */
    FORWARD64_GELU,
    FORWARD64_XIELU /* of the layer's parameters */
};

struct forward64 {
    uint32_t n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff, n_vocab;
    double eps;
    struct forward64_rope {
        uint32_t n_rot;
        double inv_freq[256], magnitude;
    } rope[2]; /* [1]: of windowed layers */
    bool interleaved;
    uint32_t window;
    bool chunked;               /* windows are chunks of positions */
    double alibi;               /* ALiBi's largest bias, 8 of its authors; 0: none */
    double post_eps;            /* of the norms after blocks; 0: eps */
    bool embed_rms;             /* embeddings are divided by their rms */
    bool positions, embed_norm; /* position_embd is added; token_embd_norm norms the embeddings */
    bool windowed[FORWARD64_MAX_LAYERS], no_rope[FORWARD64_MAX_LAYERS];
    bool ffn_norm_is_post_attention; /* and not a norm of attention's output */
    double embed_scale, attn_scale, residual_scale, logit_scale; /* factors */
    double attn_softcap, logit_softcap;                          /* 0: none */
    enum forward64_act act;
    bool layer_norm; /* norms of the stream subtract the mean, and may have a bias */
    bool beside;     /* the block reads x as attention does, after ffn_norm or else attn_norm */
    bool ungated;    /* act(up) in the place of act(gate, up) */
    uint32_t n_experts, n_used, n_ff_expert, n_ff_shared; /* n_experts 0: a plain block */
    bool renormalize, sigmoid;                            /* sigmoid: else softmax */
    bool averaged; /* the experts' sum and the shared one's output are averaged */
    double weight_scale;
    /* Layers with a gated delta net in the place of attention (Yang, Kautz, Hatamizadeh 2024), as a
     * recurrence. V head h has the K head h % n_k_heads if tiled, else h / (n_v_heads / n_k_heads).
     */
    bool recurrent[FORWARD64_MAX_LAYERS], tiled;
    uint32_t n_taps, n_k_heads, n_v_heads, state_dim;
    bool attention_gate; /* attn_q has each head's Q, then its gate; else attn_gate, if any */
    bool gate_by_head, gate_softplus; /* of attn_gate */
    /* Heads of layers, where they are not n_heads and n_kv_heads, nor V's as wide as head_dim; 0:
     * they are. What attention gives is multiplied by value_scale. */
    uint32_t layer_heads[FORWARD64_MAX_LAYERS], layer_kv[FORWARD64_MAX_LAYERS], v_head;
    double value_scale;
    /* Bounds of the activations of experts, and of other blocks; 0: none. */
    double clamp_experts[FORWARD64_MAX_LAYERS], clamp[FORWARD64_MAX_LAYERS];
    bool norm_last;                    /* norms of Q and K after rotation */
    double q_log_scale;                /* Q *= 1 + this * log(1 + floor(position / q_log_length)) */
    uint32_t q_log_length, q_log_from; /* added to the position */
    bool llama4;        /* Q is so scaled in layers without rotation only; in the others, with */
    bool qk_unweighted; /* this, each head of Q and K is divided by its rms */
    bool weighs_input;  /* an expert's weight scales its input */
    double mixer_noise; /* not 0: the sparse mixer, with this jitter */
    struct forward64_xielu {
        double alpha_p, alpha_n, beta, eps; /* as trained */
    } xielu[FORWARD64_MAX_LAYERS];
    bool kda;        /* recurrent layers have Kimi Delta Attention: n_heads heads of state_dim */
    bool short_conv; /* recurrent layers have a convolution of n_taps (Liquid AI's LFM2) */
    /* Recurrent layers have Mamba-2 (Dao, Gu 2024): groups are K heads of state_dim, heads are V
     * heads of value_dim. parallel: every layer has attention, too. */
    bool mamba2, parallel;
    uint32_t value_dim;
    /* Layers that are one block each (Nemotron-H): an FFN alone, or none. */
    bool no_mixer[FORWARD64_MAX_LAYERS], no_ffn[FORWARD64_MAX_LAYERS];
    uint32_t n_latent; /* width that the experts work in; 0: n_embd */
    /* Latent attention (DeepSeek-V2), K and V of each head computed for every token; kv_rank 0:
     * none. head_dim is kv_rank + n_rot, n_kv_heads 1. Groups of experts, of which the best count:
     * by the largest key, of sigmoids by the sum of two. */
    uint32_t kv_rank, q_rank, k_dim, v_dim, n_groups, n_groups_used;
    /* Gemma 4: windowed layers have heads of their own; the last n_shared_kv layers read K and V of
     * the last layer of their kind before them, and have FFNs of a width of their own; per-layer
     * embeddings of n_per_layer values, 0: none. */
    bool gemma4;
    uint32_t window_head_dim, n_window_kv_heads, n_shared_kv, n_ff_shared_kv, n_per_layer;
};

/* As f with the heads of layer i. */
static inline struct forward64 forward64_of_layer(const struct forward64 *f, uint32_t i) {
    struct forward64 own = *f;
    if (i < FORWARD64_MAX_LAYERS && f->layer_heads[i]) own.n_heads = f->layer_heads[i];
    if (i < FORWARD64_MAX_LAYERS && f->layer_kv[i]) own.n_kv_heads = f->layer_kv[i];
    return own;
}

/* hidden (n, n_embd): the residual stream after the final norm. Ends the process if a tensor is
 * missing. */
void forward64_hidden(const gguf *g, const struct forward64 *f, const int32_t *tokens, uint32_t n,
                      double *hidden);

/* logits (n, n_vocab) of tokens[0..n). Ends the process if a tensor is missing. */
void forward64_run(const gguf *g, const struct forward64 *f, const int32_t *tokens, uint32_t n,
                   double *logits);

#endif
