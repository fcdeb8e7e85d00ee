/* layer_heads.c - heads that differ between layers (Laguna, Step 3.5, MiMo 2), and lists of numbers
 * of layers, from a file's keys. Owns nothing. */
#include "core/model/model_int.h"

enum { MAX_HEADS = 1024, MAX_HEAD_DIM = 256 };

static const char heads_key[] = "attention.head_count", kv_key[] = "attention.head_count_kv";

int model_key_list(struct model_keys *k, const char *suffix, uint32_t max,
                   const struct model_hparams *hp, uint32_t *out, err *e) {
    enum gguf_type elem;
    uint64_t n, n_blocks = hp->n_layers;
    uint32_t one;
    gguf_get_u64(k->g, model_key(k, "block_count"), &n_blocks, NULL);
    const char *key = model_key(k, suffix);
    if (gguf_get_array(k->g, key, &elem, &n, NULL)) {
        int rc = model_key_count(k, suffix, max, 0, &one, e);
        for (uint32_t i = 0; !rc && i < hp->n_layers; i++)
            out[i] = one;
        return rc;
    }
    if ((n != hp->n_layers && n != n_blocks) || n < hp->n_layers ||
        (elem != GGUF_I32 && elem != GGUF_U32))
        return err_set_param(e, ERR_FORMAT, key,
                             "%s: %s must have an integer for each of %u layers", gguf_path(k->g),
                             key, hp->n_layers);
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        const int64_t v = gguf_array_i64(k->g, key, i);
        if (v < 1 || v > max)
            return err_set_param(e, ERR_FORMAT, key, "%s: %s of layer %u is %lld, not in 1..%u",
                                 gguf_path(k->g), key, i, (long long)v, max);
        out[i] = (uint32_t)v;
    }
    return 0;
}

int model_key_by_flag(struct model_keys *k, const char *suffix, const struct model_hparams *hp,
                      const uint32_t *list, uint8_t flag, uint32_t out[2], err *e) {
    out[0] = out[1] = 0;
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        uint32_t *one = &out[(hp->layers[i] & flag) != 0];
        if (*one && *one != list[i])
            return err_set_param(e, ERR_UNSUPPORTED, model_key(k, suffix),
                                 "%s: %s is %u in one layer and %u in another of the same kind, "
                                 "which this build does not support",
                                 gguf_path(k->g), k->key, *one, list[i]);
        *one = list[i];
    }
    return 0;
}

static int read_widths(struct model_keys *k, const struct model_arch *arch,
                       struct model_hparams *hp, err *e) {
    uint32_t v_dim;
    int rc = model_key_count(k, "attention.key_length", MAX_HEAD_DIM, 0, &hp->head_dim, e);
    if (!rc)
        rc = model_key_count(k, "attention.value_length", MAX_HEAD_DIM, hp->head_dim, &v_dim, e);
    if (rc) return rc;
    if (v_dim > hp->head_dim || (v_dim != hp->head_dim && !arch->narrow_values))
        return err_set_param(
            e, ERR_UNSUPPORTED, k->key,
            "%s: value heads of %u dimensions with key heads of %u are not supported in %s",
            gguf_path(k->g), v_dim, hp->head_dim, arch->name);
    hp->v_dim = v_dim == hp->head_dim ? 0 : v_dim;
    return 0;
}

/* A gate for each head, or for each of its dimensions: the first layer's tensor says which. */
static void read_gate(const struct model_keys *k, struct model_hparams *hp) {
    const gguf_tensor *t = gguf_tensor_find(k->g, "blk.0.attn_gate.weight");
    hp->gate_span = t && t->dims[1] == model_n_heads(hp, 0) ? hp->head_dim : 1;
}

int model_layer_heads_read(struct model_keys *k, const struct model_arch *arch,
                           struct model_hparams *hp, err *e) {
    uint32_t heads[MODEL_MAX_LAYERS], kv[MODEL_MAX_LAYERS], n_kv[2];
    int rc;
    if ((rc = model_key_list(k, heads_key, MAX_HEADS, hp, heads, e)) ||
        (rc = model_key_list(k, kv_key, MAX_HEADS, hp, kv, e)) ||
        (rc = model_key_by_flag(k, kv_key, hp, kv, MODEL_LAYER_WINDOWED, n_kv, e)) ||
        (rc = read_widths(k, arch, hp, e)))
        return rc;
    hp->n_heads = 0;
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        if (heads[i] % kv[i])
            return err_set_param(e, ERR_FORMAT, model_key(k, kv_key),
                                 "%s: %s: %u heads of layer %u cannot share %u KV heads",
                                 gguf_path(k->g), k->key, heads[i], i, kv[i]);
        hp->layer_heads[i] = (uint16_t)heads[i];
        if (heads[i] > hp->n_heads) hp->n_heads = heads[i];
    }
    hp->n_kv_heads = n_kv[0] ? n_kv[0] : n_kv[1];
    hp->n_window_kv_heads = n_kv[1] == hp->n_kv_heads ? 0 : n_kv[1];
    hp->heads_differ = hp->n_window_kv_heads != 0;
    for (uint32_t i = 0; i < hp->n_layers; i++)
        hp->heads_differ = hp->heads_differ || heads[i] != hp->n_heads;
    if (arch->gate_apart) read_gate(k, hp);
    return 0;
}
