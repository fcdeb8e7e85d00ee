/* model.h - hyperparameters, weights and the one forward pass.
 *
 * A model is a file's weights on one backend plus the scratch for one step. It knows nothing of
 * requests or of how KV blocks are managed: it is handed token ids, positions, slots and tables.
 *
 * THREAD SAFETY: model_forward from one thread at a time; hyperparameters from any. */
#ifndef INFERD_MODEL_H
#define INFERD_MODEL_H

#include "core/backend/backend.h"
#include "core/base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct model model;

/* Read-only after model_open. */
struct model_hparams {
    char arch[32]; /* "llama" */
    char name[96]; /* general.name or "" */
    uint32_t n_vocab, n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff;
    uint32_t context_length; /* tokens the model was made for */
    uint32_t n_rot;
    float rms_eps, rope_base, rope_scale; /* rope_scale: linear factor, 1 = none */
    bool rope_interleaved, tied_embeddings;
    uint64_t n_params;     /* weights' elements */
    uint64_t weight_bytes; /* read per decode step: all linear weights, norms and the output head */
    char quant[16];        /* most common type of the linear weights, "Q8_0" */
};

/* Bounds of one step; scratch is allocated for them once. */
struct model_limits {
    uint32_t max_rows;       /* tokens */
    uint32_t max_logit_rows; /* rows that may ask for logits */
    uint32_t max_seqs;
    uint32_t table_stride; /* blocks per table row */
};

/* Reads hyperparameters only (no weights, no backend): to size the KV cache and the backend before
 * loading, and for the registry's view of a file. ERR_UNSUPPORTED names what is missing. */
int model_read_hparams(const char *path, struct model_hparams *hp, err *e);

/* Largest op sizes of a model, for backend_config. */
uint32_t model_max_cols(const struct model_hparams *hp);

/* Maps path and prepares its weights on be (borrowed; must outlive the model). */
int model_open(const char *path, backend *be, const struct model_limits *limits, model **out,
               err *e);
void model_close(model *m);

/* One step. All arrays are host memory, borrowed for the call. The engine has checked: token_ids in
 * [0, n_vocab), slots inside the pools, tables cover every position. */
struct model_batch {
    uint32_t n_rows, n_seqs, n_logit_rows;
    const int32_t *token_ids;    /* (n_rows) */
    const int32_t *positions;    /* (n_rows) */
    const int32_t *slots;        /* (n_rows) */
    const int32_t *row_start;    /* (n_seqs + 1): rows of sequence s are contiguous */
    const int32_t *tables;       /* (n_seqs, limits.table_stride) */
    const int32_t *logit_rows;   /* (n_logit_rows) rows whose logits are wanted */
    const struct backend_kv *kv; /* (n_layers) */
};

/* Runs the batch and waits. *logits (n_logit_rows, n_vocab) f32 stays valid until the next call.
 * ERR_DEVICE: the step's results are lost; the model stays usable if the device is. */
int model_forward(model *m, const struct model_batch *batch, const float **logits, err *e);

#endif
