/* hf/encoder.c - members of config.json of encoders (BERT, XLM-R, RoBERTa, nomic-bert, ModernBERT,
 * Jina's version 2), and what their tensors are called. Sources: transformers' configurations of
 * versions 4 and 5, and the members of the makers' own code (nomic-ai/nomic-bert-2048,
 * configuration_hf_nomic_bert.py; jinaai/jina-bert-implementation, configuration_bert.py). Pure. */
#include "core/formats/hf/model_int.h"

#include <stdio.h>
#include <string.h>

enum { MAX_WIDTH = 1 << 20, MAX_HEADS = 1 << 16, MEAN = 1, CLS = 2, RANK = 4 };

static bool is_nomic(const struct hf_reader *r) {
    return strcmp(r->config->family->arch, "nomic-bert") == 0;
}

static bool is_jina(const struct hf_reader *r) {
    return strcmp(r->config->family->arch, "jina-bert-v2") == 0;
}

static bool is_modern(const struct hf_reader *r) {
    return strcmp(r->config->family->arch, "modern-bert") == 0;
}

/* A count under its name, or under the one of nomic's own code. */
static int read_either(struct hf_reader *r, const char *name, const char *other, uint64_t max,
                       uint64_t *out) {
    const char *there = hf_value(r->json, name) || !hf_value(r->json, other) ? name : other;
    if (!hf_value(r->json, there))
        return err_set_param(r->e, ERR_FORMAT, name, "member '%s' is missing", name);
    return hf_read_count(r, there, 0, 1, max, out);
}

/* Members that this build knows with one value only. */
static int check_members(struct hf_reader *r) {
    static const char *const flags[] = {
        "is_decoder",     "add_cross_attention",   "prenorm", "causal", "use_rms_norm",
        "parallel_block", "rotary_emb_interleaved"};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (hf_flag(r->json, flags[i], false))
            return hf_refuse(r, flags[i], "only false is supported");
    static const char *const refused[] = {"rotary_emb_scale_base", "moe_every_n_layers",
                                          "lora_adaptations", "embedding_size"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const cJSON *v = hf_value(r->json, refused[i]);
        if (v && !(cJSON_IsNumber(v) && v->valuedouble == 0) && !cJSON_IsFalse(v))
            return hf_refuse(r, refused[i], "it is not supported");
    }
    const char *positions = hf_text(r->json, "position_embedding_type");
    const char *ff = hf_text(r->json, "feed_forward_type");
    if (positions && strcmp(positions, "absolute") != 0 && !is_nomic(r) && !is_jina(r))
        return hf_refuse(r, "position_embedding_type", "only absolute positions are supported");
    if (is_jina(r) && (!ff || strcmp(ff, "geglu") != 0))
        return hf_refuse(r, "feed_forward_type", "only 'geglu' is supported");
    double fraction;
    int rc = hf_read_real(r, r->json, "rotary_emb_fraction", 1, &fraction);
    if (!rc && fraction != 1) rc = hf_refuse(r, "rotary_emb_fraction", "only 1 is supported");
    return rc;
}

static int check_activation(struct hf_reader *r) {
    static const char *const names[] = {"hidden_act", "hidden_activation", "activation_function"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *act = hf_text(r->json, names[i]);
        const bool known = !act || (is_nomic(r) ? !strcmp(act, "silu") || !strcmp(act, "swiglu")
                                                : !strcmp(act, "gelu"));
        if (!known)
            return err_set_param(r->e, ERR_UNSUPPORTED, names[i],
                                 "member '%s': activation '%.40s' is not supported for %s",
                                 names[i], act, r->config->family->model_type);
    }
    return 0;
}

static int put_sizes(struct hf_reader *r) {
    struct hf_config *c = r->config;
    uint64_t layers, hidden, heads, ff, positions, trained, pad;
    int rc;
    if ((rc = read_either(r, "num_hidden_layers", "n_layer", HF_MAX_LAYERS, &layers)) ||
        (rc = read_either(r, "hidden_size", "n_embd", MAX_WIDTH, &hidden)) ||
        (rc = read_either(r, "num_attention_heads", "n_head", MAX_HEADS, &heads)) ||
        (rc = read_either(r, "intermediate_size", "n_inner", INT32_MAX, &ff)) ||
        (rc = read_either(r, "max_position_embeddings", "n_positions", INT32_MAX, &positions)) ||
        (rc = hf_read_count(r, "max_trained_positions", 2048, 1, INT32_MAX, &trained)) ||
        (rc = hf_read_count(r, "pad_token_id", 1, 0, INT32_MAX, &pad)))
        return rc;
    if (hidden % heads)
        return err_set_param(r->e, ERR_FORMAT, "num_attention_heads",
                             "the width is no multiple of the number of heads");
    c->n_layers = (uint32_t)layers;
    c->hidden = (uint32_t)hidden;
    c->n_heads = c->n_kv_heads = (uint32_t)heads;
    c->head_dim = c->n_rot = (uint32_t)(hidden / heads);
    c->n_ff = (uint32_t)ff;
    /* RoBERTa's positions begin behind that of the padding. */
    if (c->family->traits & HF_PADDED_POSITIONS) {
        if (positions <= pad + 1) return hf_refuse(r, "pad_token_id", "it leaves no positions");
        c->first_position = pad + 1;
        positions -= pad + 1;
    }
    if (is_nomic(r) && hf_value(r->json, "n_positions") && positions > trained) positions = trained;
    c->max_positions = positions;
    hf_put_u32(r, "block_count", layers);
    hf_put_u32(r, "context_length", positions);
    hf_put_u32(r, "embedding_length", hidden);
    hf_put_u32(r, "feed_forward_length", ff);
    hf_put_u32(r, "attention.head_count", heads);
    hf_put_bool(r, "attention.causal", false);
    return 0;
}

/* The base of one kind of layers: an object of version 5, or a member of version 4. */
static int read_base(struct hf_reader *r, const char *kind, const char *old, double fallback,
                     double *base) {
    const cJSON *rope = hf_value(r->json, "rope_parameters");
    const cJSON *own = kind && rope ? hf_value(rope, kind) : rope;
    const char *type = hf_text(own, "rope_type");
    if (hf_value(r->json, "rope_scaling") || (type && strcmp(type, "default") != 0))
        return hf_refuse(r, own ? "rope_parameters" : "rope_scaling", "it is not supported");
    int rc = hf_read_real(r, r->json, old, fallback, base);
    if (!rc) rc = hf_read_real(r, own, "rope_theta", *base, base);
    return rc || *base > 0 ? rc : hf_refuse(r, old, "only a positive number is supported");
}

static int put_rope(struct hf_reader *r) {
    double base, local;
    int rc;
    if (is_nomic(r)) {
        rc = read_base(r, NULL, "rotary_emb_base", 10000, &base);
        if (!rc) hf_put_f32(r, "rope.freq_base", base);
        return rc;
    }
    if (!is_modern(r)) return 0;
    if ((rc = read_base(r, "full_attention", "global_rope_theta", 160000, &base)) ||
        (rc = read_base(r, "sliding_attention", "local_rope_theta", 10000, &local)))
        return rc;
    hf_put_f32(r, "rope.freq_base", base);
    hf_put_f32(r, "rope.freq_base_swa", local);
    return 0;
}

static int put_windows(struct hf_reader *r) {
    const cJSON *types = hf_value(r->json, "layer_types");
    bool windowed[HF_MAX_LAYERS] = {false};
    uint64_t window, period;
    int rc;
    if (!is_modern(r)) return 0;
    if ((rc = hf_read_count(r, "local_attention", 128, 2, INT32_MAX, &window)) ||
        (rc = hf_read_count(r, "global_attn_every_n_layers", 3, 1, INT32_MAX, &period)))
        return rc;
    for (uint32_t i = 0; i < r->config->n_layers; i++)
        windowed[i] = i % period != 0;
    if (types && (rc = hf_read_layer_types(r, types, windowed))) return rc;
    hf_put_u32(r, "attention.sliding_window", window);
    hf_put_bools(r, "attention.sliding_window_pattern", windowed, r->config->n_layers);
    return 0;
}

/* A head that scores: BertForSequenceClassification and similar, with one class. */
static int put_head(struct hf_reader *r) {
    static const char end[] = "ForSequenceClassification";
    const cJSON *classes = hf_value(r->root, "architectures"), *labels;
    const char *name =
        cJSON_IsArray(classes) && cJSON_IsString(classes->child) ? classes->child->valuestring : "";
    const size_t n = strlen(name), n_end = sizeof end - 1;
    uint64_t n_labels;
    if (n < n_end || strcmp(name + n - n_end, end) != 0) return 0;
    labels = hf_value(r->json, "id2label");
    int rc = hf_read_count(r, "num_labels", labels ? (uint64_t)cJSON_GetArraySize(labels) : 2, 0,
                           INT32_MAX, &n_labels);
    if (rc) return rc;
    if (n_labels != 1)
        return hf_refuse(r, labels ? "id2label" : "num_labels",
                         "a classifier is supported as a reranker, with one class");
    const char *pooling = hf_text(r->json, "classifier_pooling");
    if (pooling && strcmp(pooling, "mean") != 0 && strcmp(pooling, "cls") != 0)
        return hf_refuse(r, "classifier_pooling", "only mean and cls are supported");
    r->config->classifies = true;
    hf_put_u32(r, "pooling_type", RANK);
    if (is_modern(r))
        hf_put_u32(r, "inferd.classifier_pooling",
                   pooling && strcmp(pooling, "mean") == 0 ? MEAN : CLS);
    return 0;
}

int hf_read_encoder(struct hf_reader *r) {
    struct hf_config *c = r->config;
    const bool old = hf_value(r->json, "layer_norm_epsilon");
    double eps;
    int rc;
    if ((rc = check_members(r)) || (rc = check_activation(r)) || (rc = put_sizes(r)) ||
        (rc = hf_read_real(r, r->json, old ? "layer_norm_epsilon" : c->family->eps,
                           c->family->rms_eps, &eps)) ||
        (rc = put_rope(r)) || (rc = put_windows(r)) || (rc = put_head(r)))
        return rc;
    hf_put_f32(r, "attention.layer_norm_epsilon", eps);
    c->pooled = true;
    return r->rc;
}

void hf_encoder_rename(char *name) {
    static const char *const models[] = {"bert.", "roberta.", "model."}, *const layers[] = {
                                                                             "encoder.layer.",
                                                                             "encoder.layers.",
                                                                             "layers."};
    static const char *const ends[][2] = {{".gamma", ".weight"}, {".beta", ".bias"}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (hf_begins_with(name, models[i])) hf_replace(name, strlen(models[i]), "");
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        if (hf_begins_with(name, layers[i])) {
            hf_replace(name, strlen(layers[i]), "model.layers.");
            break;
        }
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const size_t n = strlen(name), n_end = strlen(ends[i][0]);
        if (n > n_end && strcmp(name + n - n_end, ends[i][0]) == 0)
            memcpy(name + n - n_end, ends[i][1], strlen(ends[i][1]) + 1);
    }
}

bool hf_encoder_skips(const struct hf_config *c, const char *name) {
    static const char *const heads[] = {"pooler.", "head.", "classifier."};
    if (!(c->family->traits & HF_ENCODER)) return false;
    if (hf_begins_with(name, "cls.") || hf_begins_with(name, "lm_head.") ||
        hf_begins_with(name, "decoder.") || strcmp(name, "embeddings.position_ids") == 0)
        return true;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        if (hf_begins_with(name, heads[i])) return !c->classifies;
    return false;
}
