/* model_int.h - the model's inside: its architecture row, weights on the backend, step buffers. */
#ifndef INFERD_MODEL_INT_H
#define INFERD_MODEL_INT_H

#include "core/formats/model_file.h"
#include "core/model/model.h"

/* ---- arch_table.c ---- */

/* How a kind of model differs from the others. An architecture is a row. */
struct model_arch {
    const char *name;      /* general.architecture, and the prefix of its keys */
    bool rope_interleaved; /* its files order Q and K for pairs (2i, 2i+1) */
};

/* NULL: unknown. */
const struct model_arch *model_arch_find(gguf_str name);
/* "llama, ..." for messages, cut to n bytes with NUL. */
void model_arch_list(char *text, size_t n);

/* ---- hparams.c ---- */

/* Fills and checks hp from an open file. ERR_FORMAT, ERR_UNSUPPORTED. */
int model_hparams_read(const gguf *g, struct model_hparams *hp, err *e);

/* inv_freq (n_rot / 2): base, linear scaling and the file's divisors, if any. ERR_FORMAT. */
int model_inv_freq(const gguf *g, const struct model_hparams *hp, float *inv_freq, err *e);

/* ---- weights.c ---- */

struct model_layer {
    backend_weight *attn_norm, *wq, *wk, *wv, *wo;
    backend_weight *ffn_norm, *w_gate, *w_up, *w_down;
};

struct model_weights {
    backend_weight *embed;       /* (n_vocab, n_embd) */
    backend_weight *output_norm; /* (1, n_embd) */
    backend_weight *output;      /* (n_vocab, n_embd); embed itself when tied */
    struct model_layer *layers;  /* (n_layers) */
    uint64_t bytes;              /* of the backend's memory beside the file */
    uint32_t n_layers;
};

/* Finds every tensor, checks its shape and type, and hands it to the backend. A tensor that is
 * missing, misshapen or not known to this architecture is an error that names file and tensor. On
 * failure w holds what was made: call model_weights_free. */
int model_weights_load(const gguf *g, const struct model_hparams *hp, backend *be,
                       struct model_weights *w, err *e);
void model_weights_free(struct model_weights *w);

/* ---- transformer.c ---- */

/* Device buffers of one step, sized by model_limits. */
struct model_bufs {
    backend_buf *ids, *pos, *slots, *row_start, *tables, *logit_rows; /* i32 */
    backend_buf *inv_freq;                                            /* (n_rot / 2) f32 */
    backend_buf *x, *r;             /* (max_rows, n_embd) f32: stream, residual to add */
    backend_buf *q, *att;           /* (max_rows, n_heads * head_dim) f32 */
    backend_buf *k, *v;             /* (max_rows, n_kv_heads * head_dim) f32 */
    backend_buf *ff;                /* (max_rows, n_ff) f32: act(gate) * up */
    backend_buf *x_last, *att_last; /* (max_logit_rows, ...) f32: rows that reach the head */
    backend_buf *logits;            /* (max_logit_rows, n_vocab) f32 */
};

enum { MODEL_N_BUFS = sizeof(struct model_bufs) / sizeof(backend_buf *) };

struct model {
    struct model_hparams hp;
    struct model_limits limits;
    backend *be;
    gguf *file;
    struct model_weights w;
    struct model_bufs bufs;
    float *host_logits; /* (max_logit_rows, n_vocab), NULL when the host sees bufs.logits */
};

int model_bufs_new(model *m, err *e);
void model_bufs_free(struct model_bufs *b);

#endif
