/* model.h - hyperparameters, weights and the one forward pass.
 *
 * A model is a file's weights on one backend plus the buffers of one step. It knows nothing of
 * requests or of how KV blocks are managed: it gets token ids, positions, slots and block tables.
 *
 * THREAD SAFETY: model_forward from one thread at a time; hyperparameters from any. */
#ifndef INFERD_MODEL_H
#define INFERD_MODEL_H

#include "core/backend/ops.h"
#include "core/base/err.h"
#include "core/base/sampling.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct model model;

/* How the frequencies of rotary position embedding (RoPE) are scaled; formulas: rope.c. */
enum model_rope_scaling {
    MODEL_ROPE_NONE,
    MODEL_ROPE_LINEAR,
    MODEL_ROPE_DYNAMIC,
    MODEL_ROPE_YARN,
    MODEL_ROPE_LONG
};
struct model_rope {
    enum model_rope_scaling scaling;
    uint32_t n_rot; /* rotated dimensions of a head, even */
    uint32_t original_context;
    uint32_t n_divisors; /* in the file, of which the first n_rot / 2 count; 0: there are as many */
    float base, factor;
    float attn_factor;                      /* of cos and sin; 0: the scaling's own formula */
    float short_factor;                     /* of LONG: the same up to original_context; 0: equal */
    float beta_fast, beta_slow, ext_factor; /* YaRN */
    bool truncate;                          /* YaRN: bounds rounded to whole dimensions */
};

/* Mixture of experts; n_experts 0: none. */
struct model_experts {
    uint32_t n_experts, n_used, n_ff, n_ff_shared; /* n_ff_shared 0: no shared expert */
    uint32_t n_dense;                              /* layers without experts: DENSE */
    uint32_t n_groups, n_groups_used;              /* as in op_moe */
    uint32_t n_latent; /* the width that the experts read and write; 0: n_embd */
    enum backend_gating gating;
    bool renormalize;
    float weight_scale;
    float out_scale;   /* of their sum and the shared one's output, beside attention; 0: 1 */
    float mixer_limit; /* as in op_moe, as weighs_input is */
    bool weighs_input;
};

/* Multi-head latent attention (DeepSeek-V2): K of a token is one latent row of kv_rank values and
 * n_rot rotated ones (head_dim in all), and V is the former; n_heads query heads share it. kv_rank
 * 0: plain attention. */
struct model_mla {
    uint32_t kv_rank, q_rank; /* q_rank 0: Q is one product */
    uint32_t k_dim, v_dim;    /* of a head before K is absorbed by Q, V by the output */
};

/* What Gemma 4 has beyond others; zeros of other models. */
struct model_gemma4 {
    bool on;
    uint32_t n_ff_shared_kv; /* of layers with MODEL_LAYER_SHARED_KV; 0: there are none */
    uint32_t n_per_layer;    /* width of the per-layer embeddings; 0: there are none */
};

/* Encoders (BERT and its successors), and other models with learned positions; zeros of others. */
struct model_encoder {
    bool on;
    uint32_t n_positions; /* rows of learned position embeddings; 0: none */
    uint32_t n_types;     /* rows of token type embeddings; 0: none */
};

enum { MODEL_MAX_LAYERS = 1024 };
/* What a layer is: attention, then an FFN, except for these. */
enum model_layer_flag {
    MODEL_LAYER_WINDOWED = 1, /* attends to the last `window` tokens only */
    MODEL_LAYER_NO_ROPE = 2,  /* no position embedding */
    /* linear attention (a gated delta net, Mamba-2) or a short convolution in the place of
     * attention */
    MODEL_LAYER_RECURRENT = 4,
    MODEL_LAYER_PARALLEL = 8,  /* with RECURRENT: beside attention, and their sum counts */
    MODEL_LAYER_NO_MIXER = 16, /* an FFN alone */
    MODEL_LAYER_NO_FFN = 32,
    MODEL_LAYER_DENSE = 64, /* of a model with experts: without them */
    /* reads the K and V of the last layer before it that has some and is windowed, or not, as it
     * is: model_kv_layer */
    MODEL_LAYER_SHARED_KV = 128
};

/* Has a layer with these flags attention? */
static inline bool model_layer_attends(uint8_t flags) {
    return !(flags & MODEL_LAYER_NO_MIXER) &&
           (!(flags & MODEL_LAYER_RECURRENT) || flags & MODEL_LAYER_PARALLEL);
}

/* Has it K and V of its own? */
static inline bool model_layer_stores_kv(uint8_t flags) {
    return model_layer_attends(flags) && !(flags & MODEL_LAYER_SHARED_KV);
}

/* The recurrent layers, all of one kind; n_layers 0: there are none. */
struct model_recurrent {
    uint32_t n_layers, n_taps, n_k_heads, n_v_heads, k_dim, v_dim; /* as in struct backend_state; */
    uint32_t channels;                                             /* not 0: short convolutions */
    uint32_t n_norm_groups;
    bool mamba2, tiled; /* as in op_linear_attention */
    bool channel_decay; /* as in struct backend_state */
    bool normed;        /* Mamba-2's output, in n_norm_groups groups */
};

/* How the hidden states of a text's tokens become one vector; the values of {arch}.pooling_type in
 * GGUF files (https://github.com/ggml-org/llama.cpp, enum llama_pooling_type). */
enum model_pooling {
    MODEL_POOLING_NONE, /* the file does not say */
    MODEL_POOLING_MEAN, /* of all tokens */
    MODEL_POOLING_CLS,  /* the first token's */
    MODEL_POOLING_LAST, /* the last token's */
    MODEL_POOLING_RANK  /* becomes a score: struct model_score */
};

/* Read-only after model_open. */
struct model_hparams {
    char arch[32]; /* "llama" */
    char name[96]; /* general.name or "" */
    uint32_t n_vocab, n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff;
    /* Of windowed layers, where they are not those of the others; 0: they are. */
    uint32_t window_head_dim, n_window_kv_heads;
    uint16_t
        layer_heads[MODEL_MAX_LAYERS]; /* query heads of a layer, n_heads the most; 0: n_heads */
    bool heads_differ;                 /* in number, between layers */
    uint32_t v_dim;                    /* of a V head, if it is below head_dim; else 0 */
    uint32_t n_kv_layers;    /* layers with K and V of their own; pools are in the layers' order */
    uint32_t context_length; /* tokens the model was trained for */
    uint32_t window;         /* of windowed layers; 0: there are none */
    uint8_t layers[MODEL_MAX_LAYERS]; /* (n_layers) bits of enum model_layer_flag */
    struct model_rope rope[2];        /* [0]: layers with full attention, [1]: windowed layers */
    struct model_experts experts;
    struct model_recurrent recurrent;
    struct model_mla mla;
    struct model_gemma4 gemma4;
    struct model_encoder encoder;
    /* Attention in both directions (op_paged_attention.both_ways): a sequence is computed in one
     * step as a whole, and only its hidden states mean something. */
    bool both_ways;
    bool chunked;        /* windowed layers: as in op_paged_attention */
    bool attention_gate; /* attention's output *= a function of a gate, as in op_gate: */
    bool gate_softplus;
    uint32_t gate_span; /* dimensions with one gate: 1 or head_dim */
    bool qk_unweighted; /* heads of Q and K are normed without weights in layers with RoPE */
    float alibi;        /* ALiBi's largest bias, from which slopes follow; 0: none */
    /* q *= 1 + q_log_scale * log(1 + floor((position + q_log_from) / q_log_length)), in layers
     * without RoPE alone if q_log_unrotated */
    float q_log_scale;
    uint32_t q_log_length, q_log_from;
    bool q_log_unrotated;
    bool centred;            /* norms of the residual stream subtract the mean first */
    float rms_eps, post_eps; /* post_eps: of the norms after blocks; 0: rms_eps */
    float embed_scale, attn_scale, residual_scale;  /* factors */
    float logit_scale, attn_softcap, logit_softcap; /* 0: none */
    /* Factors of Falcon-H1's products, which its GGUF files have in the weights: of dt, of the
     * outputs of attention, Mamba-2 and FFN. 0: none */
    bool ffn_beside; /* the FFN reads what attention reads, without its output */
    float dt_scale, attn_out_scale, ssm_out_scale, ffn_out_scale;
    struct backend_xielu xielu[MODEL_MAX_LAYERS]; /* zeros of other activations */
    /* Of a layer's experts, and of its FFN or shared expert; zeros: none. */
    struct backend_bounds expert_bounds[MODEL_MAX_LAYERS], ff_bounds[MODEL_MAX_LAYERS];
    struct sampling_recommended sampling; /* by general.sampling.* */
    bool tied_embeddings;
    enum model_pooling pooling;
    uint64_t n_params;     /* elements of all weights */
    uint64_t weight_bytes; /* linear weights, norms and the output head */
    /* The part of n_params and weight_bytes that one token needs: only the experts it uses. */
    uint64_t step_params, step_bytes;
    char quant[16]; /* most common type of the linear weights, "Q8_0" */
};

/* The heads of a layer with attention: those of K and V, and so its pools, may differ where it is
 * windowed. */
static inline uint32_t model_head_dim(const struct model_hparams *hp, uint8_t flags) {
    const bool own = hp->window_head_dim && flags & MODEL_LAYER_WINDOWED;
    return own ? hp->window_head_dim : hp->head_dim;
}
static inline uint32_t model_n_kv_heads(const struct model_hparams *hp, uint8_t flags) {
    const bool own = hp->n_window_kv_heads && flags & MODEL_LAYER_WINDOWED;
    return own ? hp->n_window_kv_heads : hp->n_kv_heads;
}
static inline uint32_t model_n_heads(const struct model_hparams *hp, uint32_t layer) {
    return hp->layer_heads[layer] ? hp->layer_heads[layer] : hp->n_heads;
}
/* The layer whose K and V layer i reads: itself, unless it has MODEL_LAYER_SHARED_KV. */
uint32_t model_kv_layer(const struct model_hparams *hp, uint32_t i);

/* A pipeline's stage has layers first .. first + n - 1 of a model: the first stage embeds tokens,
 * the last one has the output head, and what one stage hands to the next is the residual stream. n
 * 0: all layers. */
struct model_stage {
    uint32_t first, n;
};
enum { MODEL_MAX_STAGES = 16 };

/* Bounds of one step; its buffers are allocated once for them. */
struct model_limits {
    struct model_stage stage;
    uint32_t max_rows;       /* tokens */
    uint32_t max_logit_rows; /* rows that may need logits */
    uint32_t max_seqs;
    uint32_t table_stride; /* blocks of the longest sequence */
    /* Tokens of the longest sequence: some RoPE scalings depend on it. 0: context_length. */
    uint32_t n_ctx;
    /* Entries of a step's penalty history. 0: the device does not sample. Not 0 requires
     * backend_can_sample. */
    uint32_t max_history;
    /* Do steps have slots and tables of their own for windowed layers? false: they use the others'.
     */
    bool window_tables;
    /* Called while weights are loaded, with their bytes; nonzero ends it with ERR_CANCELLED. Or
     * NULL. On the thread of model_open; of a group only its first rank calls it. */
    int (*on_load)(void *arg, uint64_t done, uint64_t total);
    void *on_load_arg;
    /* Gets an entry for each matrix of a layer, to which steps add what its products read; outlives
     * the model. Only on the CPU, without a group. NULL: none. */
    struct imatrix *importance;
};

/* Entries in a row of a step's block tables when every position is below max_context: a power of
 * two, at least MODEL_MIN_CONTEXT tokens, so that few shapes exist; at most limits.table_stride. */
enum { MODEL_MIN_CONTEXT = 512 };
static inline uint32_t model_table_stride(const struct model_limits *limits, uint32_t max_context,
                                          uint32_t block_tokens) {
    uint64_t context = MODEL_MIN_CONTEXT;
    while (context < max_context)
        context *= 2;
    uint64_t stride = context / block_tokens;
    return stride < limits->table_stride ? (uint32_t)stride : limits->table_stride;
}

/* Reads the hyperparameters and checks that the file has exactly the tensors that they require.
 * Loads nothing: used to size the KV cache and the backend before loading, and by the registry.
 * ERR_UNSUPPORTED names what this build cannot do. */
int model_read_hparams(const char *path, struct model_hparams *hp, err *e);

/* Sets what a backend must know of a model before it opens: max_cols, moe and heads. */
void model_backend_limits(const struct model_hparams *hp, struct backend_config *config);

/* The state blocks that each of n_ranks ranks has of hp's recurrent layers, for a KV cache in
 * blocks of block_tokens tokens; zeroed without such layers. blocks and n_blocks are left 0. */
struct backend_state model_state_shape(const struct model_hparams *hp, uint32_t n_ranks,
                                       uint32_t block_tokens);

/* Can the model be split over n_ranks devices? ERR_UNSUPPORTED with the numbers that forbid it. */
int model_ranks_check(const struct model_hparams *hp, uint32_t n_ranks, err *e);

/* Do its layers share nothing that stages could not? ERR_UNSUPPORTED says what. */
int model_stages_check_family(const struct model_hparams *hp, err *e);
/* Can the model be split by layers into these n stages? Each needs a layer of every kind that keeps
 * something of sequences, because all of them share the books of one cache. ERR_UNSUPPORTED,
 * ERR_INVALID say why not. */
int model_stages_check(const struct model_hparams *hp, const struct model_stage *stages, uint32_t n,
                       err *e);
/* Splits the file's layers into n stages, so that the bytes of weights that a step reads there, the
 * output head with the last one, differ as little as possible. bytes (n): of each. ERR_INVALID: too
 * few layers. */
int model_stages_split(const char *path, const struct model_hparams *hp, uint32_t n,
                       struct model_stage *out, uint64_t *bytes, err *e);
/* The same for given stages: only bytes. */
int model_stages_measure(const char *path, const struct model_hparams *hp,
                         const struct model_stage *stages, uint32_t n, uint64_t *bytes, err *e);
/* Reduces hp to a stage's layers, weight_bytes to `bytes`. What describes the whole model, as
 * n_vocab, stays. */
void model_stage_apply(const struct model_stage *stage, uint64_t bytes, struct model_hparams *hp);
/* A hash by which processes know that they have the same model: names, shapes and types of all
 * tensors, samples of their bytes, and the hyperparameters' file keys. out: 32 hex digits. Not
 * against those who want two models to look alike. */
int model_identity(const char *path, char out[33], err *e);

/* How a hidden state of a query and a document becomes a score: its logit is w * x + bias, of which
 * the sigmoid is the probability that the document answers the query. x is the state, or with dense
 * norm(act(dense * state + dense_bias)), by LayerNorm. */
struct model_score {
    enum model_pooling of; /* which state: MEAN, CLS or LAST */
    double *w;             /* (n_embd) owned; NULL: the model does not score */
    double bias;
    float *dense, *dense_bias; /* (n_embd, n_embd), (n_embd) owned, or NULL */
    float *norm;               /* (n_embd) owned, or NULL */
    double *x;                 /* (n_embd) owned scratch, with dense */
    bool gelu;                 /* the activation; else tanh */
    double eps;
};
/* What the tokenizer knows of a model without a head of its own. */
struct model_words {
    int32_t yes, no;   /* the tokens; below 0: there are none */
    bool has_template; /* tokenizer.chat_template.rerank, the prompt to which they are answers */
};
/* The logit, in float64, summed in the order of the dimensions. One thread at a time. */
double model_score_of(const struct model_score *s, const float *hidden, uint32_t n_embd);

/* The layers behind pooling; n 0: there are none. */
enum { MODEL_MAX_DENSE = 2 };
struct model_dense {
    uint32_t n, n_embd;
    struct model_dense_layer {
        float *w; /* (n_out, n_in) owned */
        uint32_t n_in, n_out;
    } layers[MODEL_MAX_DENSE];
    float *scratch; /* the widest layer's output */
};
/* vector (n_embd) through all layers, in place. One thread at a time. */
void model_dense_apply(const struct model_dense *d, float *vector);

/* What turns hidden states into something else than tokens. */
struct model_heads {
    struct model_score score;
    struct model_dense dense;
    char scores_lack[sizeof((err *)0)->msg]; /* score.w NULL: what the model lacks */
};
/* Reads both from the file from which hp was read. A model that does not score is no error, unless
 * it is for nothing else. On failure nothing is left. */
int model_heads_read(const char *path, const struct model_hparams *hp,
                     const struct model_words *words, struct model_heads *out, err *e);
void model_heads_fini(struct model_heads *h); /* a zeroed one is fine */

/* Memory that model_open takes on a device with memory of its own (backend_memory_free); in a
 * group, on the rank of this process that takes most. */
struct model_memory {
    uint64_t weights, steps; /* bytes; steps: the buffers of a step */
};
int model_memory_find(const char *path, backend *be, const struct model_limits *limits,
                      struct model_memory *out, err *e);

/* Maps path and prepares its weights on be (borrowed; must outlive the model). If be is rank 0 of a
 * group, each rank gets its part of the model and a thread: heads, FFN columns and vocabulary are
 * split, and the ranks' partial sums are exchanged. */
int model_open(const char *path, backend *be, const struct model_limits *limits, model **out,
               err *e);
void model_close(model *m);
/* Are the files from which weights are read still those that were opened? ERR_CHANGED: what was
 * computed since the last time this was 0 may be wrong. Makes no system call: it reports what
 * model_check_files or an access to a lost page found. Any thread. */
int model_check(const model *m, err *e);
/* The same after checking the files themselves: one system call for each. */
int model_check_files(const model *m, err *e);

/* Everything that a step's ops depend on, except the contents of its arrays. */
struct model_shape {
    uint32_t n_rows, n_seqs, n_logit_rows, n_hidden_rows;
    uint32_t n_top;       /* best tokens needed of each row of logits (backend_top); 0: none */
    uint32_t max_context; /* every position is below it */
    bool samples;         /* the device samples tokens (backend_sample) */
};

/* One step. All arrays are host memory, borrowed until the step is finished. The engine has
 * checked: token_ids in [0, n_vocab), slots inside the pools, tables cover every position. */
struct model_batch {
    struct model_shape shape;
    /* The predicted shape of the next step; n_rows 0: no prediction. A device that can encodes that
     * step while it runs this one. */
    struct model_shape next;
    const int32_t *token_ids; /* (n_rows) */
    const void *stream;       /* (n_rows, n_embd) f32, of any alignment: what the stage before gave;
                                 not of the first stage */
    const int32_t *positions; /* (n_rows) */
    const int32_t *types;     /* (n_rows) of tokens, below n_types; of encoders with types */
    const int32_t *slots;     /* (n_rows) */
    const int32_t *row_start; /* (n_seqs + 1): rows of sequence s are contiguous */
    const int32_t *tables;    /* (n_seqs, model_table_stride of max_context) */
    const int32_t *window_slots, *window_tables; /* the same; with limits.window_tables */
    /* (n_logit_rows + n_hidden_rows) rows whose logits are needed, then rows whose hidden state is;
     * at most n_rows in all */
    const int32_t *out_rows;
    const bool *need_logits; /* (n_logit_rows) rows of logits that the host reads; NULL: all */
    /* With shape.samples: */
    const struct backend_sampling *sampling;     /* (n_logit_rows) */
    const struct backend_penalty_entry *history; /* (n_history) */
    uint32_t n_history;                          /* at most limits.max_history */
    const struct backend_kv *kv; /* (n_local, n_kv_layers), the same in every step */
    /* With recurrent layers: their pools, the same in every step, and each sequence's source and
     * live block (state_layout.h). */
    const struct backend_state *states; /* (n_local, recurrent.n_layers) */
    const int32_t *state_tables;        /* (n_seqs, 2) */
    /* For a step that begins before the previous one is finished: rows whose token_ids are
     * placeholders, replaced by tokens of the previous step's rows of logits. First
     * n_sampled_copies that it samples, then those that take a row's best token (its n_top is not
     * 0). */
    const struct backend_token_copy *token_copies; /* (n_token_copies), at most max_seqs */
    uint32_t n_token_copies, n_sampled_copies;
    /* The penalty histories that get such a token. */
    const struct backend_history_update *history_updates; /* (n_history_updates), likewise */
    uint32_t n_history_updates;
};

/* Valid until the next but one step begins; logits and hidden until the next one does. */
struct model_output {
    const float *logits;     /* (n_logit_rows, n_vocab) f32, rows with need_logits only */
    const int32_t *top_ids;  /* (n_logit_rows, n_top), as from backend_top; NULL: n_top is 0 */
    const float *top_values; /* (n_logit_rows, n_top) f32 */
    const struct backend_sampled *sampled; /* (n_logit_rows); NULL: the step does not sample */
    const float *stream; /* (n_rows, n_embd) f32, of stages but the last, which have nothing else */
    const float *hidden; /* (n_hidden_rows, n_embd) f32: the last layer's output after the final
                            norm, the output head's input; NULL: n_hidden_rows is 0 */
};

/* Runs the batch and waits. ERR_DEVICE: the step's results are lost; the model remains usable if
 * the device is (model_recover). A group's model does not: a failure on one rank ends the step on
 * all, for good. */
int model_forward(model *m, const struct model_batch *batch, struct model_output *out, err *e);

/* The same in two calls. If model_overlaps, a second step may begin before the first is finished,
 * so that the device never idles; the first step's results must then be sampled and best tokens
 * only. Steps finish in the order in which they began. */
bool model_overlaps(const model *m);
int model_begin(model *m, const struct model_batch *batch, err *e);
int model_finish(model *m, struct model_output *out, err *e);

/* After a step failed with ERR_DEVICE, with no step in flight: 0 if steps can run again. What the
 * failed steps wrote, K/V and states included, holds anything. */
int model_recover(model *m, err *e);

/* Counts of steps that ran from an earlier encoding (made ahead, or kept as a captured graph), and
 * of encodings that were dropped unused. From the thread of model_forward. */
struct model_encoded {
    uint64_t run, dropped;
};
struct model_encoded model_encoded_steps(const model *m);

#endif
