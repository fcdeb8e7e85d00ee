/* model.h - hyperparameters, weights and the one forward pass.
 *
 * A model is a file's weights on one backend plus the scratch for one step. It knows nothing of
 * requests or of how KV blocks are managed: it is handed token ids, positions, slots and tables.
 *
 * THREAD SAFETY: model_forward from one thread at a time; hyperparameters from any. */
#ifndef INFERD_MODEL_H
#define INFERD_MODEL_H

#include "core/backend/ops.h"
#include "core/base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct model model;

/* How the frequencies of rotary embedding follow from its base; formulas and sources in rope.c. */
enum model_rope_scaling {
    MODEL_ROPE_NONE,
    MODEL_ROPE_LINEAR,
    MODEL_ROPE_DYNAMIC,
    MODEL_ROPE_YARN,
    MODEL_ROPE_LONG
};
struct model_rope {
    enum model_rope_scaling scaling;
    uint32_t n_rot; /* dimensions of a head that turn, even */
    uint32_t original_context;
    float base, factor;
    float attn_factor;                      /* of cos and sin; 0: by the scaling's own formula */
    float beta_fast, beta_slow, ext_factor; /* YaRN */
    bool truncate;                          /* YaRN: its bounds are whole dimensions */
};

/* Mixture of experts; n_experts 0: none. */
struct model_experts {
    uint32_t n_experts, n_used, n_ff, n_ff_shared; /* n_ff_shared 0: no shared expert */
    bool renormalize;
    float weight_scale;
};

enum { MODEL_MAX_LAYERS = 1024 };
/* Of a layer's attention. */
enum model_layer_flag {
    MODEL_LAYER_WINDOWED = 1, /* sees the last `window` tokens */
    MODEL_LAYER_NO_ROPE = 2   /* nothing turns */
};

/* How the hidden states of a text's tokens become one vector; the values of {arch}.pooling_type in
 * GGUF files (https://github.com/ggml-org/llama.cpp, enum llama_pooling_type). */
enum model_pooling {
    MODEL_POOLING_NONE, /* in a file: it does not say */
    MODEL_POOLING_MEAN, /* of all tokens */
    MODEL_POOLING_CLS,  /* the first token's */
    MODEL_POOLING_LAST  /* the last token's */
};

/* Read-only after model_open. */
struct model_hparams {
    char arch[32]; /* "llama" */
    char name[96]; /* general.name or "" */
    uint32_t n_vocab, n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff;
    uint32_t context_length;          /* tokens the model was made for */
    uint32_t window;                  /* of windowed layers; 0: there are none */
    uint8_t layers[MODEL_MAX_LAYERS]; /* (n_layers) of enum model_layer_flag */
    struct model_rope rope[2];        /* of the other, of windowed layers */
    struct model_experts experts;
    float rms_eps;
    float embed_scale, attn_scale, residual_scale;  /* factors */
    float logit_scale, attn_softcap, logit_softcap; /* 0: none */
    bool tied_embeddings;
    enum model_pooling pooling;
    uint64_t n_params;     /* weights' elements */
    uint64_t weight_bytes; /* linear weights, norms and the output head */
    /* Of n_params and weight_bytes what one token needs: of the experts only those it uses. */
    uint64_t step_params, step_bytes;
    char quant[16]; /* most common type of the linear weights, "Q8_0" */
};

/* Bounds of one step; scratch is allocated for them once. */
struct model_limits {
    uint32_t max_rows;       /* tokens */
    uint32_t max_logit_rows; /* rows that may ask for logits */
    uint32_t max_seqs;
    uint32_t table_stride; /* blocks of the longest sequence */
    /* Tokens of the longest sequence: some rope scalings depend on it. 0: context_length. */
    uint32_t n_ctx;
    /* Entries of a step's seen tokens. 0: no draws; only where backend_can_sample. */
    uint32_t max_history;
};

/* Blocks in a row of a step's tables, whose positions are below max_context: a power of two, at
 * least MODEL_MIN_CONTEXT tokens, so that shapes come again; at most limits.table_stride. */
enum { MODEL_MIN_CONTEXT = 512 };
static inline uint32_t model_table_stride(const struct model_limits *limits, uint32_t max_context,
                                          uint32_t block_tokens) {
    uint64_t context = MODEL_MIN_CONTEXT;
    while (context < max_context)
        context *= 2;
    uint64_t stride = context / block_tokens;
    return stride < limits->table_stride ? (uint32_t)stride : limits->table_stride;
}

/* Reads hyperparameters and checks that the file has the tensors that they ask for and no others;
 * loads nothing: to size the KV cache and the backend before loading, and for the registry's view
 * of a file. ERR_UNSUPPORTED names what this build cannot do. */
int model_read_hparams(const char *path, struct model_hparams *hp, err *e);

/* Sets what a backend must know of a model beforehand: max_cols and moe. */
void model_backend_limits(const struct model_hparams *hp, struct backend_config *config);

/* Can the model be spread over so many devices? ERR_UNSUPPORTED with the numbers that forbid it. */
int model_ranks_check(const struct model_hparams *hp, uint32_t n_ranks, err *e);

/* What model_open takes of the memory of a device that has its own (backend_memory_free), of a
 * group on the rank that takes most. */
struct model_memory {
    uint64_t weights, steps; /* bytes; steps: the buffers of a step */
};
int model_memory_find(const char *path, backend *be, const struct model_limits *limits,
                      struct model_memory *out, err *e);

/* Maps path and prepares its weights on be (borrowed; must outlive the model). Where be is rank 0
 * of a group each rank gets its part of the model, and a thread: heads, hidden columns and tokens
 * are split, the sums that they leave behind are exchanged. */
int model_open(const char *path, backend *be, const struct model_limits *limits, model **out,
               err *e);
void model_close(model *m);
/* Are the files that weights are read from still what was opened? ERR_CHANGED: what was computed
 * since model_files_look or a page that is lost found it out may be wrong. No system call; any
 * thread. */
int model_check(const model *m, err *e);
/* The same, after a look at the files themselves: a system call for each. */
int model_check_files(const model *m, err *e);

/* What a step's ops depend on beside what its arrays hold. */
struct model_shape {
    uint32_t n_rows, n_seqs, n_logit_rows, n_hidden_rows;
    uint32_t n_top;       /* first tokens wanted of each row of logits (backend_top); 0: none */
    uint32_t max_context; /* every position is below it */
    bool samples;         /* tokens are drawn on the device (backend_sample) */
};

/* One step. All arrays are host memory, borrowed until it is finished. The engine has checked:
 * token_ids in [0, n_vocab), slots inside the pools, tables cover every position. */
struct model_batch {
    struct model_shape shape;
    /* The step that comes next, if it was to be guessed now; n_rows 0: no guess. A device that can
     * encodes it while it runs this one. */
    struct model_shape next;
    const int32_t *token_ids; /* (n_rows) */
    const int32_t *positions; /* (n_rows) */
    const int32_t *slots;     /* (n_rows) */
    const int32_t *row_start; /* (n_seqs + 1): rows of sequence s are contiguous */
    const int32_t *tables;    /* (n_seqs, model_table_stride of max_context) */
    /* (n_logit_rows + n_hidden_rows) rows whose logits are wanted, then rows whose hidden state is,
     * in all at most n_rows */
    const int32_t *out_rows;
    const bool *need_logits; /* (n_logit_rows) those that the host is to see; NULL: all */
    /* With shape.draws: */
    const struct backend_sampling *sampling; /* (n_logit_rows) */
    const int32_t *history;                  /* (n_seen, 3) as in op_sample */
    uint32_t n_history;                      /* at most limits.max_history */
    const struct backend_kv *kv;             /* (n_ranks, n_layers), the same in every step */
    /* Of a step that is begun before the one in front of it is finished: rows whose token that one
     * finds, as pairs of the row and the other step's row of logits; token_ids does not matter
     * there. First n_sampled_copies that it draws, then those whose token is a row's first (its
     * n_top is not 0). */
    const int32_t *token_copies; /* (n_token_copies, 2), at most max_seqs */
    uint32_t n_token_copies, n_sampled_copies;
    /* And where penalties look at such a token: (n_history_updates, 3) as in op_update_history, of
     * seen, at most max_seqs. */
    const int32_t *history_updates;
    uint32_t n_history_updates;
};

/* Valid until the next but one step begins; logits and hidden until the next one does. */
struct model_output {
    const float *logits;     /* (n_logit_rows, n_vocab) f32, of those in need_logits */
    const int32_t *top_ids;  /* (n_logit_rows, n_top), as backend_top has them; NULL: none wanted */
    const float *top_values; /* (n_logit_rows, n_top) f32 */
    const struct backend_sampled *sampled; /* (n_logit_rows); NULL: no draws */
    const float *hidden; /* (n_hidden_rows, n_embd) f32: the stream behind the last layer after the
                        final norm, what the output head reads; NULL: none wanted */
};

/* Runs the batch and waits. ERR_DEVICE: the step's results are lost; the model stays usable if the
 * device is. A group's does not: what fails on one rank ends the step on all, for good. */
int model_forward(model *m, const struct model_batch *batch, struct model_output *out, err *e);

/* The same in two calls. Where model_overlaps, a second step may begin before the first is
 * finished, so that the device goes on without a pause: the first must have nothing but draws and
 * first tokens as its results. Steps are finished in the order of their beginning. */
bool model_overlaps(const model *m);
int model_begin(model *m, const struct model_batch *batch, err *e);
int model_finish(model *m, struct model_output *out, err *e);

/* Steps that ran as they had been encoded before (ahead, or in a recording that was kept), and such
 * that were encoded for nothing. The thread of model_forward. */
struct model_recorded {
    uint64_t run, dropped;
};
struct model_recorded model_recorded_steps(const model *m);

#endif
