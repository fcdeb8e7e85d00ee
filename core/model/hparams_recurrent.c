/* hparams_recurrent.c - which layers have linear attention or a short convolution in the place of
 * attention, and its sizes, from a file's keys, each checked before anything is sized by it. Owns
 * nothing. */
#include "core/model/model_int.h"

static const char n_heads_key[] = "ssm.time_step_rank", interval_key[] = "full_attention_interval",
                  flags_key[] = "attention.recurrent_layers", nextn_key[] = "nextn_predict_layers",
                  norm_groups_key[] = "inferd.ssm_norm_groups",
                  kv_heads_key[] = "attention.head_count_kv", taps_key[] = "shortconv.l_cache",
                  conv_key[] = "ssm.conv_kernel", kda_key[] = "kda.head_dim";

/* Layers at the end that predict further tokens are part of block_count, but not of the model. */
static int leave_out_nextn(struct model_keys *k, struct model_hparams *hp, err *e) {
    uint32_t n;
    int rc = model_key_count_or_zero(k, nextn_key, MODEL_MAX_LAYERS, &n, e);
    if (rc) return rc;
    if (n >= hp->n_layers)
        return err_set_param(e, ERR_FORMAT, k->key, "%s: %s is %u of %u layers", gguf_path(k->g),
                             k->key, n, hp->n_layers);
    hp->n_layers -= n;
    return 0;
}

int model_hparams_read_kv_heads(struct model_keys *k, const struct model_arch *arch,
                                struct model_hparams *hp, err *e) {
    enum gguf_type elem;
    uint64_t n;
    const char *key = model_key(k, kv_heads_key);
    const bool list = (arch->short_conv || arch->mamba2 || arch->kda) &&
                      !gguf_get_array(k->g, key, &elem, &n, NULL);
    if (!list)
        return model_key_count(k, kv_heads_key, hp->n_heads, hp->n_heads, &hp->n_kv_heads, e);
    if (n != hp->n_layers || (elem != GGUF_I32 && elem != GGUF_U32))
        return err_set_param(e, ERR_FORMAT, key,
                             "%s: %s must have an integer for each of %u layers", gguf_path(k->g),
                             key, hp->n_layers);
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        const int64_t heads = gguf_array_i64(k->g, key, i);
        if (heads < 0 || heads > hp->n_heads)
            return err_set_param(e, ERR_FORMAT, key, "%s: %s of layer %u is %lld, not in 0..%u",
                                 gguf_path(k->g), key, i, (long long)heads, hp->n_heads);
        if (heads && hp->n_kv_heads && heads != hp->n_kv_heads)
            return err_set_param(e, ERR_UNSUPPORTED, key,
                                 "%s: %s differs between layers with attention, which this build "
                                 "does not support",
                                 gguf_path(k->g), key);
        if (heads)
            hp->n_kv_heads = (uint32_t)heads;
        else
            hp->layers[i] |= MODEL_LAYER_RECURRENT;
    }
    if (hp->n_kv_heads) return 0;
    return err_set_param(e, ERR_UNSUPPORTED, key,
                         "%s: by %s none of %u layers has attention, which this build does not "
                         "support",
                         gguf_path(k->g), key, hp->n_layers);
}

/* n_all: block_count. */
static int flag_layers(struct model_keys *k, uint32_t n_all, struct model_hparams *hp, err *e) {
    uint32_t interval;
    int rc;
    if (model_key_has(k, flags_key)) {
        rc = model_key_flags(k, flags_key, hp->layers, n_all, MODEL_LAYER_RECURRENT, e);
        for (uint32_t i = hp->n_layers; i < n_all; i++)
            hp->layers[i] = 0;
        return rc;
    }
    rc = model_key_count(k, interval_key, UINT32_MAX, 4, &interval, e);
    for (uint32_t i = 0; !rc && i < hp->n_layers; i++)
        if ((i + 1) % interval) hp->layers[i] |= MODEL_LAYER_RECURRENT;
    return rc;
}

/* value is wrong in a way that its bounds do not tell. */
static int refuse(struct model_keys *k, const char *suffix, uint32_t value, const char *expected,
                  err *e) {
    const char *key = model_key(k, suffix);
    return err_set_param(e, ERR_UNSUPPORTED, key, "%s: %s is %u; this build supports %s",
                         gguf_path(k->g), key, value, expected);
}

/* Heads of V: of a delta net as wide as those of K. */
static int read_v_dim(struct model_keys *k, uint32_t inner, struct model_recurrent *r, err *e) {
    r->v_dim = r->mamba2 ? inner / r->n_v_heads : r->k_dim;
    if (r->mamba2 && (!r->v_dim || r->v_dim % 16 || r->v_dim > BACKEND_STATE_MAX_V_DIM))
        return err_set_param(
            e, ERR_UNSUPPORTED, model_key(k, "ssm.inner_size"),
            "%s: %s is %u for %u heads (%s); this build supports heads of multiples "
            "of 16 dimensions up to %d",
            gguf_path(k->g), k->key, inner, r->n_v_heads, n_heads_key, BACKEND_STATE_MAX_V_DIM);
    if (inner == r->n_v_heads * r->v_dim) return 0;
    return err_set_param(e, ERR_UNSUPPORTED, model_key(k, "ssm.inner_size"),
                         "%s: %s is %u, expected %u V heads of %u dimensions%s", gguf_path(k->g),
                         k->key, inner, r->n_v_heads, r->v_dim, r->mamba2 ? "" : " as K has");
}

static int read_sizes(struct model_keys *k, struct model_recurrent *r, err *e) {
    uint32_t inner;
    int rc;
    if ((rc = model_key_count(k, "ssm.conv_kernel", UINT32_MAX, 0, &r->n_taps, e)) ||
        (rc = model_key_count(k, "ssm.state_size", UINT32_MAX, 0, &r->k_dim, e)) ||
        (rc =
             model_key_count(k, "ssm.group_count", BACKEND_STATE_MAX_HEADS, 0, &r->n_k_heads, e)) ||
        (rc = model_key_count(k, n_heads_key, BACKEND_STATE_MAX_HEADS, 0, &r->n_v_heads, e)) ||
        (rc = model_key_count(k, "ssm.inner_size", UINT32_MAX, 0, &inner, e)))
        return rc;
    if (r->n_taps < 2 || r->n_taps > BACKEND_STATE_MAX_TAPS)
        return refuse(k, "ssm.conv_kernel", r->n_taps, "2 to 4", e);
    if (r->k_dim % 16 || r->k_dim > (r->mamba2 ? BACKEND_STATE_MAX_K_DIM : BACKEND_STATE_MAX_V_DIM))
        return refuse(k, "ssm.state_size", r->k_dim,
                      r->mamba2 ? "multiples of 16 up to 256" : "multiples of 16 up to 128", e);
    if (r->n_v_heads % r->n_k_heads)
        return err_set_param(e, ERR_FORMAT, model_key(k, n_heads_key),
                             "%s: %s: %u V heads cannot share %u K heads (ssm.group_count)",
                             gguf_path(k->g), k->key, r->n_v_heads, r->n_k_heads);
    return read_v_dim(k, inner, r, e);
}

/* Groups that Mamba-2 norms: in GGUF files those that share B and C. */
static int read_norm_groups(struct model_keys *k, const struct model_arch *arch,
                            struct model_recurrent *r, err *e) {
    int rc = model_key_count(k, norm_groups_key, r->n_v_heads, r->n_k_heads, &r->n_norm_groups, e);
    r->normed = !arch->norm_optional || gguf_tensor_find(k->g, "blk.0.ssm_norm.weight");
    if (rc || r->n_v_heads % r->n_norm_groups == 0) return rc;
    return err_set_param(e, ERR_FORMAT, k->key, "%s: %s: %u groups of %u heads", gguf_path(k->g),
                         k->key, r->n_norm_groups, r->n_v_heads);
}

static int read_short_conv(struct model_keys *k, struct model_hparams *hp, err *e) {
    struct model_recurrent *r = &hp->recurrent;
    int rc = model_key_count(k, taps_key, UINT32_MAX, 0, &r->n_taps, e);
    if (rc) return rc;
    if (r->n_taps < 2 || r->n_taps > BACKEND_STATE_MAX_TAPS)
        return refuse(k, taps_key, r->n_taps, "2 to 4", e);
    r->channels = hp->n_embd;
    return 0;
}

/* Heads of Kimi Delta Attention, as many as attention has. */
static int read_kda(struct model_keys *k, struct model_hparams *hp, err *e) {
    struct model_recurrent *r = &hp->recurrent;
    int rc = model_key_count(k, conv_key, UINT32_MAX, 0, &r->n_taps, e);
    if (!rc) rc = model_key_count(k, kda_key, UINT32_MAX, 0, &r->k_dim, e);
    if (rc) return rc;
    if (r->n_taps < 2 || r->n_taps > BACKEND_STATE_MAX_TAPS)
        return refuse(k, conv_key, r->n_taps, "2 to 4", e);
    if (r->k_dim % 16 || r->k_dim > BACKEND_STATE_MAX_V_DIM)
        return refuse(k, kda_key, r->k_dim, "multiples of 16 up to 128", e);
    r->n_k_heads = r->n_v_heads = hp->n_heads;
    r->v_dim = r->k_dim;
    r->channel_decay = true;
    return 0;
}

/* Where each layer is one block, head_count_kv and feed_forward_length say which; both arrays were
 * read. */
static int settle_lone_blocks(struct model_keys *k, struct model_hparams *hp, err *e) {
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        uint8_t *flags = &hp->layers[i];
        if (!(*flags & MODEL_LAYER_NO_MIXER))
            *flags |= MODEL_LAYER_NO_FFN;
        else if (*flags & MODEL_LAYER_RECURRENT)
            *flags &= (uint8_t)~MODEL_LAYER_RECURRENT;
        else
            return err_set_param(e, ERR_FORMAT, model_key(k, kv_heads_key),
                                 "%s: layer %u has KV heads by %s and an FFN by "
                                 "feed_forward_length; it can have one of them",
                                 gguf_path(k->g), i, k->key);
    }
    return 0;
}

int model_hparams_read_recurrent(struct model_keys *k, const struct model_arch *arch,
                                 struct model_hparams *hp, err *e) {
    struct model_recurrent *r = &hp->recurrent;
    bool grouped;
    const uint32_t n_all = hp->n_layers;
    int rc = arch->nextn ? leave_out_nextn(k, hp, e) : 0;
    hp->attention_gate = arch->attention_gate || arch->gate_apart;
    hp->gate_softplus = arch->gate_softplus;
    hp->gate_span = 1;
    hp->n_kv_layers = hp->n_layers;
    if (rc || (!arch->delta_net && !arch->short_conv && !arch->mamba2 && !arch->kda)) return rc;
    if (arch->delta_net) rc = flag_layers(k, n_all, hp, e);
    if (!rc && arch->lone_blocks) rc = settle_lone_blocks(k, hp, e);
    if (rc) return rc;
    hp->n_kv_layers = 0;
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        if (arch->parallel) hp->layers[i] |= MODEL_LAYER_RECURRENT | MODEL_LAYER_PARALLEL;
        r->n_layers += (hp->layers[i] & MODEL_LAYER_RECURRENT) != 0;
        hp->n_kv_layers += model_layer_attends(hp->layers[i]);
    }
    if (!r->n_layers) return 0;
    r->mamba2 = arch->mamba2;
    if (arch->short_conv) return read_short_conv(k, hp, e);
    if (arch->kda) return read_kda(k, hp, e);
    if (arch->mamba2 && (rc = read_sizes(k, r, e))) return rc;
    if (arch->mamba2) return read_norm_groups(k, arch, r, e);
    if (!hp->n_kv_layers) {
        const char *key = model_key(k, model_key_has(k, flags_key) ? flags_key : interval_key);
        return err_set_param(e, ERR_UNSUPPORTED, key,
                             "%s: by %s none of %u layers has attention, which this build does not "
                             "support",
                             gguf_path(k->g), key, hp->n_layers);
    }
    if ((rc = read_sizes(k, r, e)) ||
        (rc = model_key_bool_or(k, "inferd.grouped_v_heads", !arch->tiled_v_heads, &grouped, e)))
        return rc;
    r->tiled = !grouped;
    return 0;
}
