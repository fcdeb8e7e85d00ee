/* weights_int.h - the plan of a model's weights: which role each tensor of the file plays. Made by
 * weights_plan.c; checked there; measured and loaded by weights.c. Private to these two. */
#ifndef INFERD_MODEL_WEIGHTS_INT_H
#define INFERD_MODEL_WEIGHTS_INT_H

#include "core/model/model_int.h"

#include <stddef.h>

/* Sizes of which shapes are made. */
enum weight_dim {
    DIM_VECTOR, /* as n_out: the weight is a vector, F32 */
    DIM_ONE,
    DIM_EMBD,
    DIM_HEADS, /* all of Q */
    DIM_KV,
    DIM_HEADS_KV,
    DIM_QKV,
    DIM_N_HEADS,
    DIM_GATES, /* of attention: of each head, or of its dimensions */
    DIM_V,     /* as DIM_KV and DIM_HEADS, of V heads, which may be narrower */
    DIM_ATTENDED,
    DIM_Q_NORM,
    DIM_K_NORM,
    DIM_FF,
    DIM_GATE_UP,
    DIM_EXPERTS,
    DIM_FF_EXPERT,
    DIM_FF_SHARED,
    DIM_GATE_UP_EXPERT,
    DIM_EXPERT, /* what an expert reads: DIM_LATENT or DIM_EMBD */
    DIM_LATENT,
    DIM_VOCAB,
    DIM_HEAD,        /* rows of a head */
    DIM_HEADS_GATED, /* of each head Q, then its gate */
    DIM_TAPS,        /* of the recurrent layers' convolution */
    DIM_CONV,        /* all its coefficients */
    DIM_CONV_KEYS,   /* those of Q, of K */
    DIM_STATE,       /* rows of a K or V head of theirs */
    DIM_TWO_STATES,
    DIM_K_HEADS,
    DIM_V_HEADS,
    DIM_V_OF_K, /* V heads of one K head */
    DIM_KEYS,   /* all of K, and of Q */
    DIM_VALUES,
    DIM_CHANNELS,   /* Q, K, V */
    DIM_QKV_OF_K,   /* Q, K, V of one K head */
    DIM_CHANNELS_Z, /* Q, K, V, Z */
    DIM_BETA_ALPHA,
    DIM_CHANNELS_OF_Z, /* Mamba-2: Z and channels, */
    DIM_ZXBCDT,        /* and dt */
    DIM_GROUP,         /* values normed at once */
    DIM_OUT_VALUES,    /* of w_out and the norm before it: values, */
    DIM_OUT_EMBD,      /* and w_out's rows; see gathers in struct model_part */
    DIM_BCX,           /* B, C and x of a short convolution */
    DIM_SHORT,         /* its channels */
    DIM_Q_RANK,        /* latent attention: see struct model_mla */
    DIM_KV_RANK,
    DIM_LATENT_ROW,  /* kv_rank and the rotated dimensions */
    DIM_Q_HEADS,     /* all of Q, before it absorbs K */
    DIM_K_NOPE,      /* of a head of K, what is not rotated */
    DIM_K_B,         /* kv_rank of each head */
    DIM_V_B,         /* all of V */
    DIM_KV_B,        /* of each head, what is not rotated of K, then V */
    DIM_WINDOW_HEAD, /* Gemma 4: windowed layers' heads, all of Q, all of K */
    DIM_WINDOW_HEADS,
    DIM_WINDOW_KV,
    DIM_FF_SHARED_KV, /* FFN columns of layers without K and V of their own */
    DIM_PER_LAYER,    /* per-layer embeddings: of one layer, of all */
    DIM_ALL_LAYERS,
    DIM_POSITIONS, /* rows of learned positions, of token types */
    DIM_TYPES,
    N_DIMS
};

/* Rows at.. of each group of a tensor's rows, n_out in all. */
struct weight_rows {
    enum weight_dim n_out, at; /* DIM_VECTOR: none; 0 */
};
enum { WEIGHT_MAX_PIECES = 3 };

/* One weight of the model or of a layer, and the tensor that holds it. */
struct weight_role {
    const char *name;            /* of the tensor; after "blk.N." for a layer's */
    size_t offset;               /* of its backend_weight * in model_weights or model_layer */
    enum weight_dim n_out, n_in; /* n_out of each expert, if it is of experts */
    uint64_t must, may;          /* features with which the tensor must, or may, exist */
    enum weight_dim whole, at;   /* rows at.. of a tensor of `whole` rows; DIM_VECTOR: all rows */
    enum weight_dim
        groups; /* the number of equal groups, each of which has these rows; DIM_VECTOR: one */
    const struct weight_rows *pieces; /* (WEIGHT_MAX_PIECES) several, instead of n_out and at */
    enum weight_dim
        n_cols; /* columns of a vector that the file stores as a matrix; DIM_VECTOR: one row */
    bool experts;
    bool by_head; /* one matrix for each head: n_out of all of them */
    bool turned;  /* with by_head: each is to be transposed, see struct model_mla_turn */
    bool by_root; /* a vector to be multiplied by (its length)^-1/2 */
    bool padded;  /* rows of heads of V: with v_dim zeros follow, up to head_dim */
    bool embed;   /* the table of embeddings: every rank has all of it */
    bool once;    /* only on rank 0: added to a sum over the ranks */
};

struct planned_weight {
    const struct weight_role *role;
    const gguf_tensor *tensor; /* NULL: the file lacks it, although it must have it */
    uint32_t layer;            /* WEIGHT_NO_LAYER: of the model */
};
#define WEIGHT_NO_LAYER UINT32_MAX

struct weight_plan {
    const gguf *g;
    uint64_t dims[N_DIMS]; /* of the whole model: weight_plan_dim */
    const struct model_hparams *hp;
    uint32_t n_layers, n;
    bool scores;       /* the file may have a head that scores: model_is_score_tensor; */
    bool dense;        /* layers behind pooling: model_is_dense_tensor */
    uint32_t n_blocks; /* layers with those that predict further tokens, which are not loaded */
    struct planned_weight *all; /* (n) the model's, then layer by layer; the embeddings first */
    uint32_t *first;            /* (n_layers + 1) layer -> its first entry; then n */
};

/* Looks up the tensor of every role that the model has, once. ERR_NOMEM. */
int weight_plan_make(struct weight_plan *p, const gguf *g, const struct model_hparams *hp,
                     const struct model_arch *arch, err *e);
void weight_plan_free(struct weight_plan *p); /* a zeroed one is fine */

/* A size; of a layer (not WEIGHT_NO_LAYER) that of its heads, which may differ from others'. */
uint64_t weight_plan_dim(const struct weight_plan *p, uint32_t layer, enum weight_dim dim);

/* "blk.3.attn_q.weight" */
enum { WEIGHT_NAME_BYTES = 64 };
void planned_weight_name(const struct planned_weight *w, char name[WEIGHT_NAME_BYTES]);

/* Is t of one of the layers that are not loaded? */
bool weight_plan_skips(const struct weight_plan *p, const gguf_tensor *t);

/* gemma4.c: the roles of its models and of their layers, the features that choose among them, and
 * their sizes. */
extern const struct weight_role model_gemma4_roles[], model_gemma4_layer_roles[];
extern const size_t model_gemma4_n_roles, model_gemma4_n_layer_roles;
uint64_t model_gemma4_model_features(const struct model_hparams *hp);
uint64_t model_gemma4_features(const gguf *g, const struct model_hparams *hp, uint32_t layer);
void model_gemma4_dims(const struct model_hparams *hp, uint64_t out[N_DIMS]);

static inline bool role_is_vector(const struct weight_role *role) {
    return role->n_out == DIM_VECTOR;
}

#endif
