/* model_int.h - what the files of core/model share: architecture rows, weights on the backend, step
 * buffers. Private to core/model. */
#ifndef INFERD_MODEL_INT_H
#define INFERD_MODEL_INT_H

#include "core/formats/model_file.h"
#include "core/model/model.h"

/* Of heads, columns or rows. */
struct model_range {
    uint64_t first, n;
};

/* ---- arch_table.c ---- */

enum model_qk_norm { MODEL_QK_NORM_NONE, MODEL_QK_NORM_HEAD, MODEL_QK_NORM_ROW };
/* Does the FFN read what the attention of its layer reads, without attention's output? */
enum model_beside {
    MODEL_BESIDE_NEVER,
    MODEL_BESIDE_ALWAYS,   /* after attention's norm */
    MODEL_BESIDE_UNNORMED, /* likewise, if there is no ffn_norm */
    MODEL_BESIDE_BY_KEY    /* use_parallel_residual, after ffn_norm */
};
enum model_experts_rule { MODEL_EXPERTS_NEVER, MODEL_EXPERTS_OPTIONAL, MODEL_EXPERTS_ALWAYS };

/* How an architecture differs from the others: one row each. A file's keys override its row. */
struct model_arch {
    const char *name;                /* general.architecture, and the prefix of its keys */
    const char *also;                /* the same in files of ik_llama.cpp; NULL: name */
    bool rope_interleaved;           /* its files order Q and K for pairs (2i, 2i+1) */
    bool pre_norm;                   /* attn_norm, ffn_norm: of a block's input */
    bool post_norm;                  /* post_attention_norm, post_ffw_norm: of its output */
    bool ffn_norm_is_post_attention; /* ffn_norm is stored as post_attention_norm */
    enum model_qk_norm qk_norm;      /* over each head, or over all of Q and of K */
    bool qkv_bias, output_bias;      /* required (optional in every other architecture) */
    bool sinks;
    bool fused_gate_up; /* ffn_up is gate, then up */
    enum backend_act act;
    bool scaled_embeddings; /* by sqrt(n_embd) */
    bool scale_keys;        /* embedding_scale, residual_scale; logits are divided by logit_scale */
    float attn_softcap, logit_softcap; /* if no key says otherwise; 0: none */
    uint32_t window;                   /* if no key says otherwise */
    uint32_t window_period;     /* every n-th layer has full attention; 0: all are windowed */
    uint32_t no_rope_period;    /* every n-th layer has no RoPE; 0: all have */
    bool local_rope;            /* windowed layers' RoPE is not scaled, */
    bool local_rotated;         /* may turn another part of a head (rope.dimension_count_swa), */
    float local_rope_base;      /* and has this base; 0: the other layers' */
    uint32_t wide_query_layers; /* a model of n layers has attn_scale (n_embd / n_heads)^-1/2 */
    bool yarn_exact;            /* YaRN's bounds are not rounded to whole dimensions */
    enum model_experts_rule experts;
    bool renormalize;    /* the weights of the chosen experts sum to 1 */
    bool sigmoid_gating; /* if no key says otherwise */
    bool shared_expert, expert_biases;
    bool shared_ungated;      /* the shared expert has no gate */
    bool mamba2;              /* layers without KV heads have Mamba-2 (ssm.*), */
    bool parallel;            /* or all layers beside their attention */
    bool lone_blocks;         /* a layer is attention, Mamba-2 or an FFN, as arrays of keys say */
    bool norm_optional;       /* Mamba-2's norm */
    bool ungated;             /* the FFN, or each expert, has no gate, */
    enum backend_unary unary; /* but this activation */
    bool layer_norm;          /* norms subtract the mean first, and may have a bias */
    bool multiplies_logits;   /* by logit_scale */
    enum model_beside beside;
    bool no_rope;
    bool rope_by_key;    /* layers have RoPE only if rope.scaling.finetuned is true */
    bool delta_net;      /* layers without attention have a gated delta net (ssm.*) */
    bool attention_gate; /* attn_q holds the rows of each head's Q, then those of its gate */
    bool tiled_v_heads;  /* its files order V heads as op_linear_attention's tiled says */
    /* Layers without KV heads have a short convolution (shortconv.*); the final norm is stored as
     * token_embd_norm. */
    bool short_conv;
    bool both_ways;  /* attention in both directions, and dense layers behind pooling */
    bool encoder;    /* see encoder.c; both_ways, too */
    bool norm_after; /* the sum of a block's output and its input is normed: attn_output_norm,
                        layer_output_norm; there is no final norm */
    bool learned_positions; /* position_embd instead of RoPE */
    bool full_first;        /* with window_period: the first layer of a period has full attention */
    bool scores; /* its rerankers are known: pooling_type rank, or two words of the output head */
    bool attention_temperature; /* attention.temperature_scale and _length */
    bool qk_norm_optional;      /* by their tensors */
    bool qk_norm_last;          /* after RoPE */
    bool rope_with_window;      /* if any layer has a window only those have RoPE */
    bool gate_apart;            /* attention's gate is attn_gate */
    bool gate_softplus;         /* and its function; else a sigmoid */
    bool layer_heads;           /* heads may differ between layers: layer_heads.c */
    bool narrow_values;         /* heads of V may be narrower than those of K, and */
    bool value_scale;           /* attention.value_scale multiplies attention's output */
    bool sinks_optional;        /* by their tensors */
    bool half_rotated;     /* rope.dimension_count is twice what layers without a window turn */
    bool clamped;          /* swiglu_clamp_exp, swiglu_clamp_shexp */
    bool nextn;            /* its last layers may predict further tokens */
    bool shared_count;     /* expert_shared_count experts make the shared one, or none */
    bool expert_groups;    /* expert_group_count groups, of which the best count */
    bool expert_step;      /* interleave_moe_layer_step: every n-th layer has experts */
    bool dense_by_tensors; /* a layer without a router is dense */
    bool mla;              /* multi-head latent attention */
    bool kda;     /* layers without KV heads have a delta net whose channels decay by themselves */
    bool gemma4;  /* see gemma4.c */
    bool chunked; /* windows are chunks of positions */
    bool temperature_nope; /* attention.temperature_* have Llama 4's values by default, and are for
                              layers without RoPE */
    bool qk_unweighted;    /* norms of Q and K without weights */
    bool weighs_input;     /* an expert's weight scales its input */
    bool mixer;            /* the sparse mixer chooses experts */
    bool rms_key;          /* with layer_norm: the epsilon is in the key of RMS norms */
    bool norm_by_key;      /* with layer_norm: RMS norms instead if their epsilon has a key */
    bool dense_rotated;    /* with rope_with_window: leading dense layers have RoPE, too */
    bool shared_averaged;  /* the sum of the experts and the shared one's output are averaged */
    bool embed_norm;       /* token_embd_norm: of the embeddings; not of encoders */
    bool embed_rms;        /* embeddings are divided by their rms */
    float post_eps;        /* post_norm: its epsilon; 0: that of the others */
    bool alibi_by_key;     /* attention.max_alibi_bias, without RoPE */
    float alibi;           /* the largest bias if no key says otherwise */
};

/* NULL: unknown. */
const struct model_arch *model_arch_find(gguf_str name);
/* The prefix of its keys in g. */
const char *model_arch_prefix(const gguf *g, const struct model_arch *arch);
/* "llama, ..." for messages, cut to n bytes with NUL. */
void model_arch_list(char *text, size_t n);

/* ---- keys.c: typed reads of ARCH.suffix, with bounds ---- */

struct model_keys {
    const gguf *g;
    const char *arch;
    char key[128]; /* last key built */
};

const char *model_key(struct model_keys *k, const char *suffix);
bool model_key_has(struct model_keys *k, const char *suffix);
/* An integer in 1..max. fallback 0: the key must be there. ERR_NOT_FOUND, ERR_FORMAT. */
int model_key_count(struct model_keys *k, const char *suffix, uint64_t max, uint64_t fallback,
                    uint32_t *out, err *e);
/* 0..max, 0 without the key. */
int model_key_count_or_zero(struct model_keys *k, const char *suffix, uint64_t max, uint32_t *out,
                            err *e);
/* A positive number. fallback 0: the key must be there. */
int model_key_real(struct model_keys *k, const char *suffix, double fallback, float *out, err *e);
/* A number not below 0, fallback without the key. */
int model_key_real_or(struct model_keys *k, const char *suffix, double fallback, float *out,
                      err *e);
int model_key_bool_or(struct model_keys *k, const char *suffix, bool fallback, bool *out, err *e);
/* Sets flag in layers[i] where element i of a bool array of n elements is true. */
int model_key_flags(struct model_keys *k, const char *suffix, uint8_t *layers, uint32_t n,
                    uint8_t flag, err *e);
/* ERR_UNSUPPORTED for the first of n keys that is set (there, and not 0 or false). */
int model_keys_refuse(struct model_keys *k, const char *const *suffixes, size_t n, err *e);

/* ---- layer_heads.c ---- */

/* A number for all layers, or a list, which may have the layers that predict further tokens, too:
 * *out (n_layers), each in 1..max. */
int model_key_list(struct model_keys *k, const char *suffix, uint32_t max,
                   const struct model_hparams *hp, uint32_t *out, err *e);
/* The one value of list, of that key, in the layers that have flag (out[1]), and in the others; 0:
 * there are none. ERR_UNSUPPORTED: there are several. */
int model_key_by_flag(struct model_keys *k, const char *suffix, const struct model_hparams *hp,
                      const uint32_t *list, uint8_t flag, uint32_t out[2], err *e);
/* Heads of each layer, their widths, and the span of attention's gate; windows are set. */
int model_layer_heads_read(struct model_keys *k, const struct model_arch *arch,
                           struct model_hparams *hp, err *e);

/* ---- hparams.c, hparams_recurrent.c, hparams_rope.c ---- */

/* Fills and checks hp from an open file. *arch: its row. ERR_FORMAT, ERR_UNSUPPORTED. */
int model_hparams_read(const gguf *g, struct model_hparams *hp, const struct model_arch **arch,
                       err *e);
/* n_kv_heads, and which layers of architectures with short convolutions have none. */
int model_hparams_read_kv_heads(struct model_keys *k, const struct model_arch *arch,
                                struct model_hparams *hp, err *e);
/* Recurrent layers, n_kv_layers, and n_layers without those that predict further tokens, from keys;
 * n_layers is block_count. Of every architecture. */
int model_hparams_read_recurrent(struct model_keys *k, const struct model_arch *arch,
                                 struct model_hparams *hp, err *e);
/* ALiBi's largest bias, and what xIELU has of each layer. */
int model_hparams_read_alibi(struct model_keys *k, const struct model_arch *arch,
                             struct model_hparams *hp, err *e);
int model_hparams_read_xielu(struct model_keys *k, const struct model_arch *arch,
                             struct model_hparams *hp, err *e);
/* Bounds of FFNs and experts, by layer. */
int model_hparams_read_clamps(struct model_keys *k, const struct model_arch *arch,
                              struct model_hparams *hp, err *e);
/* Slopes of heads first .. first + n - 1 of n_heads (Press, Smith, Lewis 2022). */
void model_alibi_slopes(float largest, uint32_t n_heads, const struct model_range *of, float *out);
/* hp->rope, from keys; layers, window and head_dim are set. */
int model_hparams_read_rope(struct model_keys *k, const struct model_arch *arch,
                            struct model_hparams *hp, err *e);

/* ---- mla.c ---- */

/* The sizes of multi-head latent attention, and the heads that op_paged_attention gets of it. */
int model_mla_read(struct model_keys *k, struct model_hparams *hp, err *e);
/* The factor that YaRN has for the scores; rope and attn_scale are set. */
int model_mla_read_scale(struct model_keys *k, struct model_hparams *hp, err *e);
/* Shared experts; n_experts, n_ff and gating are set. */
int model_mla_read_experts(struct model_keys *k, struct model_hparams *hp, err *e);
/* What a file without attn_k_b has of it: of each of n_heads heads the first n_in rows of group, in
 * a tensor of (n_heads * group, n_out). to: (n_heads, n_out, n_in) of type model_mla_k_type. */
struct model_mla_turn {
    const gguf_tensor *from;
    uint64_t n_heads, group, n_in, n_out;
};
int model_mla_k_type(int type); /* floats stay as they are, others become F16 */
int model_mla_turn(const gguf *g, const struct model_mla_turn *t, void *to, err *e);

/* ---- gemma4.c ---- */

/* Heads, layers that share K and V, FFNs and per-layer embeddings; n_heads and windows are set. */
int model_gemma4_read(struct model_keys *k, struct model_hparams *hp, err *e);
/* Is the tensor of that name not needed, although files have it? */
bool model_gemma4_skips(const struct model_hparams *hp, gguf_str name);

/* ---- rope.c ---- */

/* A file's divisors of frequencies, (n_rot / 2) f32 each of any alignment, or NULL. */
struct model_rope_divisors {
    const void *all;                  /* rope_freqs: of any scaling but YARN and LONG */
    const void *for_short, *for_long; /* of LONG: up to original_context, beyond it */
};

/* inv_freq (n_rot / 2) and the factor of cos and sin, for sequences of up to n_ctx tokens: the same
 * for all of them, so that a token's result does not depend on how long its sequence becomes. */
void model_rope_frequencies(const struct model_rope *rope, const struct model_rope_divisors *div,
                            uint32_t n_ctx, float *inv_freq, float *magnitude);
/* YaRN's factor of cos and sin where attention's scale has a part of it, which a multiplier of the
 * logarithm says. */
double model_rope_yarn_factor(double factor, double multiplier);
/* Finds and checks the file's divisors. ERR_FORMAT. */
int model_rope_find_divisors(const gguf *g, const struct model_rope *rope,
                             struct model_rope_divisors *div, err *e);

/* ---- parts.c: which part of a model a rank has ---- */

struct model_part {
    uint32_t rank, n_ranks;
    struct model_range heads, kv_heads, vocab;
    struct model_range ff, ff_expert,
        ff_shared;                   /* FFN columns; of Gemma 4's layers without K and */
    struct model_range ff_shared_kv; /* V of their own */
    /* Of recurrent layers; of tiled V heads those of the K heads instead. Ranks may share a K head
     * (a group) of Mamba-2. */
    struct model_range k_heads, v_heads, channels;
    /* Mamba-2's output is normed as a whole: the ranks join their values, each norms all of them,
     * and computes its rows of w_out, which they join as well. */
    bool gathers;
    struct model_range out_rows; /* of w_out, with gathers */
    /* Of a pipeline's stage, of the whole model's layers; embeds: it is the first, ends: the last
     */
    struct model_range layers;
    bool embeds, ends;
};

/* Heads, channels and the vocabulary are split evenly; FFN columns in whole quantization blocks, so
 * ranks may have different numbers of them. ERR_UNSUPPORTED, ERR_INVALID with the numbers. */
int model_part_find(const gguf *g, const struct model_hparams *hp, uint32_t rank, uint32_t n_ranks,
                    struct model_part *out, err *e);
/* Reduces hp to the part, except n_vocab. */
void model_part_apply(const struct model_part *p, struct model_hparams *hp);

/* ---- weights_plan.c, weights.c ---- */

/* Weights that a model does not have are NULL. */
struct model_layer {
    backend_weight *w_attn_gate; /* (n_heads * head_dim / gate_span, n_embd), with attention_gate */
    /* Recurrent layers: w_qkv (channels, n_embd), w_z (n_v_heads * v_dim, n_embd), w_alpha, w_beta
     * (n_v_heads, n_embd), conv (1, channels * n_taps), decay and dt_bias (1, n_v_heads), the norm
     * of the output (1, v_dim), w_out (n_embd, n_v_heads * v_dim). With Mamba-2 w_alpha is of dt;
     * conv_bias (1, channels) or NULL, skip (1, n_v_heads), the norm (1, n_v_heads * v_dim) or
     * NULL. With a short convolution: w_bcx (3 * channels, n_embd), conv (1, channels * n_taps),
     * w_out (n_embd, channels) */
    backend_weight *w_qkv, *w_z, *w_alpha, *w_beta, *conv, *decay, *dt_bias, *state_norm, *w_out;
    backend_weight *w_bcx, *conv_bias, *skip;
    /* With decays of channels: wq, wk, wv (n_heads * k_dim, n_embd) and their convolutions conv,
     * conv_k, conv_v (1, n_heads * k_dim * n_taps) instead of w_qkv and conv; w_low_alpha and
     * w_low_z (k_dim, n_embd) before w_alpha and w_z (n_heads * k_dim, k_dim); dt_bias (1, n_heads
     * * k_dim) */
    backend_weight *conv_k, *conv_v, *w_low_alpha, *w_low_z;
    backend_weight *attn_norm_bias, *ffn_norm_bias; /* (1, n_embd) */
    backend_weight *attn_norm, *wq, *wk, *wv, *bq, *bk, *bv, *q_norm, *k_norm, *sinks, *wo, *bo;
    /* Latent attention: w_q_a (q_rank, n_embd) and its norm or NULL, wq (n_heads * k_dim, q_rank or
     * n_embd), wk (head_dim, n_embd), k_norm (1, kv_rank), by head w_k_b (kv_rank, k_dim - n_rot)
     * and w_v_b (v_dim, kv_rank), wo (n_embd, n_heads * v_dim) */
    backend_weight *w_q_a, *q_a_norm, *w_k_b, *w_v_b;
    backend_weight *attn_post_norm, *attn_post_norm_bias, *ffn_post_norm_bias; /* (1, n_embd) */
    backend_weight *ffn_norm, *w_gate, *w_up, *w_down, *b_gate, *b_up, *b_down, *ffn_post_norm;
    backend_weight *router, *router_bias; /* (n_experts, n_embd), (1, n_experts) */
    backend_weight *choice_bias;          /* (1, n_experts): for the choice of experts only */
    backend_weight *e_gate, *e_up, *e_down, *eb_gate, *eb_up, *eb_down; /* n_experts of each */
    backend_weight *latent_down, *latent_up;           /* (n_latent, n_embd), (n_embd, n_latent) */
    backend_weight *s_gate, *s_up, *s_down, *s_router; /* shared expert; s_router (1, n_embd) */
    /* Gemma 4: a factor of the residual stream (1, 1); norms of what router and experts read, and
     * of the outputs of FFN and experts (1, n_embd); factors of experts (1, n_experts); of
     * per-layer embeddings layer_gate (n_per_layer, n_embd), layer_out (n_embd, n_per_layer) and
     * its norm */
    backend_weight *out_scale, *router_norm, *experts_norm, *dense_post_norm, *experts_post_norm;
    backend_weight *expert_scale, *layer_gate, *layer_out, *layer_post_norm;
};

struct model_weights {
    backend_weight *embed;            /* (n_vocab, n_embd) */
    backend_weight *output_norm;      /* (1, n_embd) */
    backend_weight *output;           /* (n_vocab, n_embd); embed itself when tied */
    backend_weight *output_bias;      /* (1, n_vocab) or NULL */
    backend_weight *output_norm_bias; /* (1, n_embd) or NULL */
    /* Encoders: (n_positions, n_embd), (n_types, n_embd) or NULL; the embeddings' norm */
    backend_weight *positions, *types, *embed_norm, *embed_norm_bias;
    /* (1, n_embd) of ones, of stages but the last: a norm that adds what is pending */
    backend_weight *stream_norm;
    /* (1, head_dim) of ones: the norm of heads without weights; (1, n_heads): ALiBi's slopes */
    backend_weight *ones, *slopes;
    /* Per-layer embeddings: (n_vocab, n_layers * n_per_layer), (n_layers * n_per_layer, n_embd),
     * (1, n_per_layer), or NULL */
    backend_weight *layer_embed, *layer_proj, *layer_norm;
    struct model_layer *layers; /* (n_layers) */
    uint64_t bytes;             /* of the backend's own memory */
    uint32_t n_layers;
    struct model_copy *copies; /* memory that a weight reads, as no file has its bytes in place */
};

/* N of "blk.N....", MODEL_MAX_LAYERS of other names. */
uint32_t model_tensor_layer(gguf_str name);

/* Checks that the file has every tensor that the model requires, with its shape and type, and no
 * unexpected one. ERR_FORMAT, ERR_UNSUPPORTED, with file and tensor. */
int model_weights_check(const gguf *g, const struct model_hparams *hp,
                        const struct model_arch *arch, err *e);

/* Loads the part's share of every tensor; the file was checked. hp: of the whole model. On failure
 * call model_weights_free. ERR_UNSUPPORTED: a share is not a whole number of blocks. */
struct model_load {
    const struct model_hparams *hp;
    const struct model_arch *arch;
    const struct model_part *part;
    backend *be;
    const struct model_limits *limits; /* with the progress callback; NULL: none */
};
int model_weights_load(const gguf *g, const struct model_load *load, struct model_weights *w,
                       err *e);
/* Bytes of device memory that model_weights_load would take (backend_weight_size). */
int model_weights_measure(const gguf *g, const struct model_load *load, uint64_t *bytes, err *e);
void model_weights_free(struct model_weights *w);
/* The scales that an NVFP4 tensor's values are to be multiplied by, NAME.scale of NAME.weight: one,
 * or one for each expert, F32. NULL: none. */
const gguf_tensor *model_nvfp4_scales(const gguf *g, const gguf_tensor *t);

/* ---- score.c ---- */

bool model_is_score_tensor(gguf_str name); /* read by model_score_read, of models that rank */
/* ERR_UNSUPPORTED: hp and the words suffice to see that it does not score, and say why. */
int model_score_may(const struct model_hparams *hp, const struct model_words *words, err *e);
/* Reads the file's own head, or the rows of two words of its output head. ERR_UNSUPPORTED says what
 * the model lacks. On failure nothing is left, here as below. */
int model_score_read(const gguf *g, const struct model_hparams *hp, const struct model_words *words,
                     struct model_score *out, err *e);
void model_score_fini(struct model_score *s);

/* ---- dense.c ---- */

bool model_is_dense_tensor(gguf_str name); /* read by model_dense_read */
/* ERR_FORMAT, ERR_UNSUPPORTED: a shape. */
int model_dense_read(const gguf *g, const struct model_hparams *hp, struct model_dense *out,
                     err *e);
void model_dense_fini(struct model_dense *d);

/* ---- bufs.c, step.c, transformer.c, experts.c ---- */

/* Device buffers of one step, sized by model_limits. Those that a model does not need are NULL. */
struct model_bufs {
    backend_buf *ids, *pos, *row_start, *out_rows; /* i32 */
    backend_buf *types;                            /* (max_rows) i32: of tokens, of encoders */
    backend_buf *slots[2], *tables[2];             /* i32; [1]: of windowed layers */
    backend_buf *inv_freq[2];                      /* (n_rot / 2) f32, of hparams.rope */
    backend_buf *x, *r; /* (max_rows, n_embd) f32: residual stream, a block's output */
    backend_buf *q;     /* (max_rows, n_heads * the widest head_dim) f32 */
    backend_buf *att;   /* (max_rows, columns of a mixer's output) f32 */
    backend_buf *k, *v; /* (max_rows, n_kv_heads * head_dim) f32 */
    backend_buf *gate;  /* (max_rows, n_heads * head_dim / gate_span) f32: of attention */
    /* Of latent attention: (max_rows, q_rank), Q before K is absorbed (max_rows, n_heads * k_dim),
     * its output in latents (max_rows, n_heads * kv_rank) f32. Of narrower heads of V attention's
     * output att_latent (max_rows, n_heads * head_dim), and the pieces of it that att is gathered
     * from (max_rows, n_heads * v_dim / piece) i32 */
    backend_buf *q_a, *q_heads, *att_latent, *v_pieces;
    /* Of recurrent layers: the convolution's input (max_rows, channels; of a short one 3 *
     * channels) and output (max_rows, channels), z (max_rows, n_v_heads * dim), alpha and beta
     * (max_rows, n_v_heads) f32; (max_seqs, 2) i32 */
    backend_buf *conv_in, *conv_out, *z, *alpha, *beta, *state_tables;
    /* With decays of channels conv_in is Q's: K's and V's, likewise; (max_rows, k_dim) f32: what
     * alpha and z are products of; alpha (max_rows, n_v_heads * k_dim) */
    backend_buf *conv_in_k, *conv_in_v, *low_alpha, *low_z;
    /* Of layers with attention and Mamba-2: the latter's output (max_rows, n_v_heads * v_dim), what
     * w_out makes of it (max_rows, n_embd) f32 */
    backend_buf *mix, *mix_last, *mixed; /* mixed: also the output of an FFN beside attention */
    backend_buf *ff;                     /* (max_rows, n_ff or n_ff_shared) f32: act(gate) * up */
    backend_buf *moe;                    /* (max_rows, n_embd) f32: the experts' sum */
    backend_buf *latent, *latent_sum; /* (max_rows, n_latent) f32: what experts read, their sum */
    backend_buf *shared;              /* (max_rows, n_embd) f32: the shared expert's output */
    backend_buf *shared_gate;         /* (max_rows, 1) f32 */
    /* Per-layer embeddings: (max_rows, n_layers * n_per_layer), scratch of that size, (max_rows,
     * n_per_layer) f32 */
    backend_buf *layer_in, *layer_work, *layer_gate;
    backend_buf *x_last, *att_last;  /* (max_rows, ...) f32: rows that leave the last layer */
    backend_buf *hidden;             /* (max_rows, n_embd) f32: these rows after the final norm */
    backend_buf *logits;             /* (max_logit_rows, n_vocab) f32; only on rank 0 */
    backend_buf *logits_part;        /* (max_logit_rows, a rank's share) f32; in a group */
    backend_buf *work;               /* scratch of exchanges */
    backend_buf *top_ids;            /* (max_logit_rows, BACKEND_MAX_TOP) i32 */
    backend_buf *top_values;         /* (max_logit_rows, BACKEND_MAX_TOP) f32 */
    backend_buf *sampling, *sampled; /* (max_logit_rows) struct backend_sampling, backend_sampled */
    backend_buf *history;            /* (max_history) struct backend_penalty_entry */
    backend_buf *token_copies;       /* (max_seqs) struct backend_token_copy; if steps overlap */
    backend_buf *history_updates;    /* (max_seqs) struct backend_history_update; likewise */
};

/* Rows of the largest step that runs from a kept graph; in larger steps the time to enqueue ops one
 * by one does not matter. */
enum { MODEL_MAX_KEPT_ROWS = 512, MODEL_MAX_PADDING = 31 };

/* A step in flight, and the host memory for its results. */
struct model_step {
    const struct model_batch *batch;
    struct model_shape now; /* as ops got it */
    int32_t *top_ids;
    float *top_values;               /* (max_logit_rows, BACKEND_MAX_TOP) */
    struct backend_sampled *sampled; /* (max_logit_rows) */
};
enum { MODEL_MAX_STEPS = BACKEND_N_EVENTS };

enum { MODEL_N_BUFS = sizeof(struct model_bufs) / sizeof(backend_buf *) };

struct model {
    struct model_hparams hp; /* as this rank has it: model_part_apply */
    struct model_part part;
    struct model_ranks *ranks; /* the other ranks and their threads; NULL: there are none */
    const struct model_arch *arch;
    struct model_limits limits;
    backend *be;
    gguf *file;
    bool reads_file;        /* weights are read from its mapping */
    backend_range **ranges; /* (n_ranges) the file's mappings, for the backend */
    uint64_t n_ranges;
    struct model_weights w; /* its layers are those of hp */
    struct model_bufs bufs;
    float magnitude[2]; /* of cos and sin, of hparams.rope */
    float *host_logits; /* (max_logit_rows, n_vocab), NULL when the host sees the buffers */
    float *host_hidden; /* (max_rows, n_embd), likewise; of stages but the last, the stream */
    struct model_step in_flight[MODEL_MAX_STEPS]; /* a ring; a step's event is its index */
    uint32_t first_in_flight, n_in_flight;
    struct model_shape encoded;  /* of the step encoded ahead; n_rows 0: none */
    struct model_encoded counts; /* of such steps */
    uint64_t identity;           /* unique in this process: the time when it was opened */
    /* For steps that are padded to the shape of a graph: scratch, and 0, 1, 2, ... */
    int32_t padded[5][MODEL_MAX_KEPT_ROWS], counted[MODEL_MAX_KEPT_ROWS + 1];
    struct backend_sampling no_sampling[MODEL_MAX_PADDING];
};

/* One rank of a model, on be alone. */
int model_rank_open(const char *path, backend *be, const struct model_limits *limits, model **out,
                    err *e);
void model_rank_close(model *m); /* NULL is fine */
int model_rank_check(const model *m, err *e);
/* model_begin and model_finish of one rank; *out only of rank 0. */
int model_rank_begin(model *m, const struct model_batch *batch, err *e);
int model_rank_finish(model *m, struct model_output *out, err *e);

/* Does this rank have whole rows of logits, and pick tokens from them? */
static inline bool model_rank_picks(const model *m) {
    return m->part.ends && (!m->part.rank || model_overlaps(m));
}

int model_bufs_new(model *m, err *e);
uint64_t model_bufs_bytes(const model *m); /* memory of model_bufs_new; UINT64_MAX: overflow */
void model_bufs_free(struct model_bufs *b);

/* A block's output that is still to be added to the residual stream: x += residual_scale * (r,
 * normed by norm if any). */
struct model_pending {
    backend_buf *r; /* NULL: nothing is pending */
    const backend_weight *norm;
    float scale; /* instead of residual_scale; 0: that */
};

/* What a rank's layers keep of sequences. */
struct model_pools {
    const struct backend_kv *kv;        /* (n_kv_layers) */
    const struct backend_state *states; /* (recurrent.n_layers) */
};

/* Enqueues the ops of a step of this shape (max_context is a multiple of a block). They read the
 * step's buffers when they run. */
int model_enqueue(model *m, const struct model_shape *shape, const struct model_pools *pools);

/* Rows of the step, or those that leave the last layer. */
struct model_rows {
    backend_buf *x, *att, *mix; /* the residual stream, and what the layer's mixers gave */
    backend_buf *layer_in;      /* per-layer embeddings, if the model has some */
    uint32_t n;
};
/* gemma4.c: the per-layer inputs of a step, from x; and a layer's ops after attention's product,
 * which is pending. Afterwards nothing is. */
int model_gemma4_enqueue_inputs(model *m, uint32_t n_rows);
int model_gemma4_enqueue_rest(model *m, uint32_t layer, const struct model_rows *a,
                              struct model_pending pending);

/* encoder.c: n_positions, from the tensor, which bounds the context. */
int model_positions_read(const gguf *g, struct model_hparams *hp, err *e);
/* n_positions and n_types, and the usual pooling. */
int model_encoder_read(const gguf *g, struct model_hparams *hp, err *e);
/* The embeddings of a step's tokens, normed: x. */
int model_encoder_enqueue_inputs(model *m, uint32_t n_rows);
/* The same of a decoder with a norm (embed_norm) or learned positions; the latter are pending. */
int model_inputs_enqueue(model *m, uint32_t n_rows, struct model_pending *pending);
/* With norm_after: a layer after its attention. out (n_rows, n_embd): the layer's output, which may
 * be a->x. */
int model_encoder_enqueue_rest(model *m, uint32_t layer, const struct model_rows *a,
                               backend_buf *out);

/* The largest run of columns of which both a head of K and one of V are made. */
uint32_t model_v_piece(const struct model_hparams *hp);
/* Columns of the output of layer i's attention or recurrent layer. */
uint32_t model_mixer_cols(const model *m, uint32_t i);
/* mixer.c. Attention of layer i over x, its delta net or its short convolution, after adding the
 * pending output to x. The result is in att. at: its index among the layers of its kind. */
struct model_place {
    uint32_t layer, at;
    const struct model_shape *shape;
    const struct model_pools *pools;
};
int model_attention_enqueue(model *m, const struct model_place *p, struct model_pending pending);
/* Stores K and V (of latent attention the latent row) of the step's rows and attends, with the
 * layer's norms, RoPE and window: out (max_rows, n_heads * width of a V head). */
int model_store_attend_enqueue(model *m, const struct model_place *p, backend_buf *out);
/* mla.c: model_attention_enqueue for latent attention. */
int model_mla_enqueue(model *m, const struct model_place *p, struct model_pending pending);
int model_recurrent_enqueue(model *m, const struct model_place *p, struct model_pending pending);

/* Input of a linear op: the residual stream x after adding the pending output, normed by norm
 * (NULL: not normed). */
struct op_input model_input(const model *m, backend_buf *x, struct model_pending pending,
                            const backend_weight *norm);

/* y = scale * (w x (+ bias)); scale 0 is 1 */
struct model_product {
    const backend_weight *w, *bias;
    backend_buf *x, *y;
    float scale;
};
int model_product_enqueue(model *m, const struct model_product *p, uint32_t n_rows);
/* The same, then model_sum of y (n_rows, n_embd). */
int model_product_sum(model *m, const struct model_product *p, uint32_t n_rows);
/* What w_down of a plain FFN reads: bufs.ff. */
int model_inner_enqueue(model *m, const struct model_layer *l, struct op_input in, uint32_t n_rows);

/* All-reduce of x (n_rows, n_embd) over the ranks; nothing without a group. */
int model_sum(model *m, backend_buf *x, uint32_t n_rows);
/* All-gather of the ranks' columns of out (n_rows, n_cols); see op_all_gather. */
int model_join(model *m, const backend_buf *part, backend_buf *out, uint32_t n_rows,
               uint32_t n_cols);

/* Router, experts and shared expert of a layer, for n_rows rows. *out: the buffer with their
 * output, which is pending. */
int model_experts_enqueue(model *m, const struct model_layer *l, struct op_input in,
                          uint32_t n_rows, backend_buf **out);

#endif
