/* weights.c - the tensors of a file become weights on a backend. Which tensors a model must have is
 * a table; one that is missing, misshapen or unknown is refused, with its name. */
#include "core/model/model_int.h"

#include "core/base/mem.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes that shapes are made of. */
enum dim { DIM_ONE, DIM_EMBD, DIM_HEADS, DIM_KV, DIM_FF, DIM_VOCAB, N_DIMS };

struct tensor_row {
    const char *name;     /* after "blk.N." in the layer table */
    size_t offset;        /* of its backend_weight * */
    enum dim n_out, n_in; /* n_out DIM_ONE: a vector, F32 */
};

static const struct tensor_row model_rows[] = {
    {"token_embd.weight", offsetof(struct model_weights, embed), DIM_VOCAB, DIM_EMBD},
    {"output_norm.weight", offsetof(struct model_weights, output_norm), DIM_ONE, DIM_EMBD},
    {"output.weight", offsetof(struct model_weights, output), DIM_VOCAB, DIM_EMBD},
};

static const struct tensor_row layer_rows[] = {
    {"attn_norm.weight", offsetof(struct model_layer, attn_norm), DIM_ONE, DIM_EMBD},
    {"attn_q.weight", offsetof(struct model_layer, wq), DIM_HEADS, DIM_EMBD},
    {"attn_k.weight", offsetof(struct model_layer, wk), DIM_KV, DIM_EMBD},
    {"attn_v.weight", offsetof(struct model_layer, wv), DIM_KV, DIM_EMBD},
    {"attn_output.weight", offsetof(struct model_layer, wo), DIM_EMBD, DIM_HEADS},
    {"ffn_norm.weight", offsetof(struct model_layer, ffn_norm), DIM_ONE, DIM_EMBD},
    {"ffn_gate.weight", offsetof(struct model_layer, w_gate), DIM_FF, DIM_EMBD},
    {"ffn_up.weight", offsetof(struct model_layer, w_up), DIM_FF, DIM_EMBD},
    {"ffn_down.weight", offsetof(struct model_layer, w_down), DIM_EMBD, DIM_FF},
};

enum {
    N_MODEL_ROWS = sizeof model_rows / sizeof model_rows[0],
    N_LAYER_ROWS = sizeof layer_rows / sizeof layer_rows[0]
};

struct loader {
    const gguf *g;
    backend *be;
    uint64_t dims[N_DIMS];
    bool tied;
    struct model_weights *w;
};

static backend_weight **weight_at(void *base, size_t offset) {
    return (backend_weight **)((char *)base + offset);
}

static int load_tensor(const struct loader *l, const struct tensor_row *row, const char *name,
                       backend_weight **out, err *e) {
    const gguf_tensor *t = gguf_tensor_find(l->g, name);
    uint64_t n_out = l->dims[row->n_out], n_in = l->dims[row->n_in];
    bool vector = row->n_out == DIM_ONE;
    if (!t) return err_set_param(e, ERR_FORMAT, name, "%s: no tensor %s", gguf_path(l->g), name);
    if (t->n_dims > 2 || t->dims[0] != n_in || t->dims[1] != n_out)
        return err_set_param(
            e, ERR_FORMAT, name,
            "%s: tensor %s has %u dimensions, first (%llu, %llu), not (%llu, %llu)",
            gguf_path(l->g), name, t->n_dims, (unsigned long long)t->dims[0],
            (unsigned long long)t->dims[1], (unsigned long long)n_in, (unsigned long long)n_out);
    if (vector && t->type != QTYPE_F32)
        return err_set_param(e, ERR_UNSUPPORTED, name, "%s: tensor %s is %s, not F32",
                             gguf_path(l->g), name, qtype_name(t->type));
    bool embed = row == &model_rows[0]; /* token_embd */
    struct backend_weight_desc desc = {
        .name = name, .type = t->type, .n_out = n_out, .n_in = n_in, .data = t->data};
    desc.use = vector ? BACKEND_USE_VECTOR : embed ? BACKEND_USE_EMBED : BACKEND_USE_LINEAR;
    if (embed && l->tied) desc.use |= BACKEND_USE_LINEAR;
    int rc = backend_weight_new(l->be, &desc, out, e);
    if (rc) {
        err_prefix(e, "%s: ", gguf_path(l->g));
        return rc;
    }
    l->w->bytes += backend_weight_bytes(*out);
    return 0;
}

/* Is name (not NUL-terminated) one that this architecture reads? */
static bool is_known(gguf_str name, uint32_t n_layers) {
    char text[64], rest[64];
    unsigned layer;
    if (name.len >= sizeof text) return false;
    memcpy(text, name.data, name.len);
    text[name.len] = '\0';
    if (strcmp(text, "rope_freqs.weight") == 0) return true;
    for (size_t i = 0; i < N_MODEL_ROWS; i++)
        if (strcmp(text, model_rows[i].name) == 0) return true;
    if (sscanf(text, "blk.%9u.%63s", &layer, rest) != 2 || layer >= n_layers) return false;
    for (size_t i = 0; i < N_LAYER_ROWS; i++)
        if (strcmp(rest, layer_rows[i].name) == 0) return true;
    return false;
}

static int refuse_unknown(const gguf *g, uint32_t n_layers, err *e) {
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        gguf_str name = gguf_tensor_at(g, i)->name;
        if (is_known(name, n_layers)) continue;
        return err_set(e, ERR_UNSUPPORTED, "%s: tensor %.*s has no place in this architecture",
                       gguf_path(g), (int)(name.len < 96 ? name.len : 96), name.data);
    }
    return 0;
}

int model_weights_load(const gguf *g, const struct model_hparams *hp, backend *be,
                       struct model_weights *w, err *e) {
    struct loader l = {.g = g,
                       .be = be,
                       .w = w,
                       .tied = hp->tied_embeddings,
                       .dims = {[DIM_ONE] = 1,
                                [DIM_EMBD] = hp->n_embd,
                                [DIM_HEADS] = (uint64_t)hp->n_heads * hp->head_dim,
                                [DIM_KV] = (uint64_t)hp->n_kv_heads * hp->head_dim,
                                [DIM_FF] = hp->n_ff,
                                [DIM_VOCAB] = hp->n_vocab}};
    int rc = refuse_unknown(g, hp->n_layers, e);
    if (rc) return rc;
    w->layers = mem_new(hp->n_layers, sizeof *w->layers);
    if (!w->layers) return err_set(e, ERR_NOMEM, "no memory for %u layers", hp->n_layers);
    w->n_layers = hp->n_layers;
    for (size_t i = 0; i < N_MODEL_ROWS; i++) {
        const struct tensor_row *row = &model_rows[i];
        if (hp->tied_embeddings && row->offset == offsetof(struct model_weights, output)) continue;
        if ((rc = load_tensor(&l, row, row->name, weight_at(w, row->offset), e))) return rc;
    }
    if (hp->tied_embeddings) w->output = w->embed;
    for (uint32_t n = 0; n < hp->n_layers; n++)
        for (size_t i = 0; i < N_LAYER_ROWS; i++) {
            char name[64];
            const struct tensor_row *row = &layer_rows[i];
            snprintf(name, sizeof name, "blk.%u.%s", n, row->name);
            if ((rc = load_tensor(&l, row, name, weight_at(&w->layers[n], row->offset), e)))
                return rc;
        }
    return 0;
}

void model_weights_free(struct model_weights *w) {
    for (uint32_t n = 0; n < w->n_layers; n++)
        for (size_t i = 0; i < N_LAYER_ROWS; i++)
            backend_weight_free(*weight_at(&w->layers[n], layer_rows[i].offset));
    free(w->layers);
    if (w->output != w->embed) backend_weight_free(w->output);
    backend_weight_free(w->output_norm);
    backend_weight_free(w->embed);
    memset(w, 0, sizeof *w);
}
