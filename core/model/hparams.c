/* hparams.c - hyperparameters from a file's metadata, each checked before anything is sized by it.
 * What the forward pass cannot do is refused by name, never ignored. Owns nothing. */
#include "core/model/model_int.h"

#include "core/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Generous bounds: they keep products of sizes small, they do not describe real models. */
enum {
    MAX_LAYERS = 1024,
    MAX_WIDTH = 1 << 17, /* n_embd */
    MAX_FF = 1 << 20,
    MAX_HEADS = 1024,
    MAX_HEAD_DIM = 256, /* of the backends' attention kernels */
    MAX_VOCAB = 1 << 22,
    MAX_CONTEXT = 1 << 26
};

struct reader {
    const gguf *g;
    const char *arch;
    char key[128]; /* last key built */
};

static const char *arch_key(struct reader *r, const char *suffix) {
    snprintf(r->key, sizeof r->key, "%s.%s", r->arch, suffix);
    return r->key;
}

/* An integer in 1..max. fallback 0: the key must be there. */
static int read_count(struct reader *r, const char *suffix, uint64_t max, uint64_t fallback,
                      uint32_t *out, err *e) {
    uint64_t v = fallback;
    const char *key = arch_key(r, suffix);
    if (gguf_has(r->g, key) || !fallback) {
        int rc = gguf_get_u64(r->g, key, &v, e);
        if (rc) return rc;
    }
    if (v < 1 || v > max)
        return err_set_param(e, ERR_FORMAT, key, "%s: %s is %llu, not in 1..%llu", gguf_path(r->g),
                             key, (unsigned long long)v, (unsigned long long)max);
    *out = (uint32_t)v;
    return 0;
}

/* A positive number. fallback 0: the key must be there. */
static int read_real(struct reader *r, const char *suffix, double fallback, float *out, err *e) {
    double v = fallback;
    const char *key = arch_key(r, suffix);
    if (gguf_has(r->g, key) || fallback == 0) {
        int rc = gguf_get_f64(r->g, key, &v, e);
        if (rc) return rc;
    }
    if (!(v > 0) || v > 1e30)
        return err_set_param(e, ERR_FORMAT, key, "%s: %s is %g, not a positive number",
                             gguf_path(r->g), key, v);
    *out = (float)v;
    return 0;
}

/* Keys that would change the forward pass in ways it does not know: refused unless 0 or absent. */
static const char *const refused_keys[] = {
    "expert_count",
    "attention.sliding_window",
    "attention.clamp_kqv",
    "attention.max_alibi_bias",
    "attention.scale",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "logit_scale",
    "embedding_scale",
    "residual_scale",
    "rope.scaling.attn_factor",
};

static int refuse_keys(struct reader *r, err *e) {
    for (size_t i = 0; i < sizeof refused_keys / sizeof refused_keys[0]; i++) {
        double real = 0;
        uint64_t whole = 0;
        const char *key = arch_key(r, refused_keys[i]);
        if (!gguf_has(r->g, key)) continue;
        if (gguf_get_f64(r->g, key, &real, NULL) && gguf_get_u64(r->g, key, &whole, NULL))
            return err_set_param(e, ERR_FORMAT, key, "%s: %s is not a number", gguf_path(r->g),
                                 key);
        if (real != 0 || whole != 0)
            return err_set_param(e, ERR_UNSUPPORTED, key, "%s: %s is set; this build cannot do it",
                                 gguf_path(r->g), key);
    }
    return 0;
}

static int read_rope(struct reader *r, struct model_hparams *hp, err *e) {
    gguf_str type;
    int rc;
    hp->rope_scale = 1;
    if ((rc = read_count(r, "rope.dimension_count", hp->head_dim, hp->head_dim, &hp->n_rot, e)) ||
        (rc = read_real(r, "rope.freq_base", 10000, &hp->rope_base, e)))
        return rc;
    if (hp->n_rot % 2)
        return err_set_param(e, ERR_FORMAT, "rope.dimension_count",
                             "%s: %u rotated dimensions do not make pairs", gguf_path(r->g),
                             hp->n_rot);
    if (!gguf_has(r->g, arch_key(r, "rope.scaling.type")))
        return read_real(r, "rope.scale_linear", 1, &hp->rope_scale, e);
    if ((rc = gguf_get_str(r->g, r->key, &type, e))) return rc;
    if (type.len == 4 && memcmp(type.data, "none", 4) == 0) return 0;
    if (type.len == 6 && memcmp(type.data, "linear", 6) == 0)
        return read_real(r, "rope.scaling.factor", 0, &hp->rope_scale, e);
    return err_set_param(e, ERR_UNSUPPORTED, r->key,
                         "%s: rope scaling \"%.*s\" is not supported (none and linear are)",
                         gguf_path(r->g), (int)(type.len < 32 ? type.len : 32), type.data);
}

static int read_heads(struct reader *r, struct model_hparams *hp, err *e) {
    uint32_t v_dim;
    int rc;
    if ((rc = read_count(r, "attention.head_count", MAX_HEADS, 0, &hp->n_heads, e)) ||
        (rc = read_count(r, "attention.head_count_kv", MAX_HEADS, hp->n_heads, &hp->n_kv_heads, e)))
        return rc;
    if (hp->n_heads % hp->n_kv_heads)
        return err_set_param(e, ERR_FORMAT, r->key, "%s: %u heads cannot share %u KV heads",
                             gguf_path(r->g), hp->n_heads, hp->n_kv_heads);
    uint32_t even = hp->n_embd / hp->n_heads;
    if ((rc = read_count(r, "attention.key_length", MAX_HEAD_DIM, even, &hp->head_dim, e)) ||
        (rc = read_count(r, "attention.value_length", MAX_HEAD_DIM, hp->head_dim, &v_dim, e)))
        return rc;
    if (v_dim != hp->head_dim)
        return err_set_param(e, ERR_UNSUPPORTED, r->key,
                             "%s: value heads of %u beside key heads of %u are not supported",
                             gguf_path(r->g), v_dim, hp->head_dim);
    return 0;
}

static void copy_text(char *dst, size_t n, gguf_str src) {
    size_t len = src.len < n - 1 ? (size_t)src.len : n - 1;
    memcpy(dst, src.data, len);
    dst[len] = '\0';
}

static bool starts_with(gguf_str s, const char *prefix) {
    size_t n = strlen(prefix);
    return s.len >= n && memcmp(s.data, prefix, n) == 0;
}

/* Sizes that follow from the tensors: vocabulary, parameters, bytes per step, main type. */
static int read_tensors(const gguf *g, struct model_hparams *hp, err *e) {
    const gguf_tensor *embed = gguf_tensor_find(g, "token_embd.weight");
    uint64_t elems[64] = {0}, most = 0;
    if (!embed)
        return err_set_param(e, ERR_FORMAT, "token_embd.weight", "%s: no tensor token_embd.weight",
                             gguf_path(g));
    if (embed->n_dims != 2 || embed->dims[1] > MAX_VOCAB)
        return err_set_param(e, ERR_FORMAT, "token_embd.weight",
                             "%s: tensor token_embd.weight is no (n_vocab, n_embd) matrix",
                             gguf_path(g));
    hp->n_vocab = (uint32_t)embed->dims[1];
    hp->tied_embeddings = !gguf_tensor_find(g, "output.weight");
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        if (starts_with(t->name, "rope_freqs")) continue;
        hp->n_params += t->n_elems;
        if (t != embed || hp->tied_embeddings) hp->weight_bytes += t->bytes;
        if (t->n_dims == 2 && t != embed && t->type >= 0 && t->type < 64)
            elems[t->type] += t->n_elems;
    }
    snprintf(hp->quant, sizeof hp->quant, "%s", qtype_name(embed->type));
    for (int type = 0; type < 64; type++)
        if (elems[type] > most) {
            most = elems[type];
            snprintf(hp->quant, sizeof hp->quant, "%s", qtype_name(type));
        }
    return 0;
}

int model_hparams_read(const gguf *g, struct model_hparams *hp, err *e) {
    gguf_str text;
    uint64_t n_vocab;
    char known[128];
    int rc = gguf_get_str(g, "general.architecture", &text, e);
    if (rc) return rc;
    memset(hp, 0, sizeof *hp);
    const struct model_arch *arch = model_arch_find(text);
    model_arch_list(known, sizeof known);
    if (!arch)
        return err_set_param(e, ERR_UNSUPPORTED, "general.architecture",
                             "%s: architecture \"%.*s\" is not supported (this build has: %s)",
                             gguf_path(g), (int)(text.len < 32 ? text.len : 32), text.data, known);
    struct reader r = {.g = g, .arch = arch->name};
    snprintf(hp->arch, sizeof hp->arch, "%s", arch->name);
    hp->rope_interleaved = arch->rope_interleaved;
    if (gguf_get_str(g, "general.name", &text, NULL) == 0)
        copy_text(hp->name, sizeof hp->name, text);
    if ((rc = read_count(&r, "block_count", MAX_LAYERS, 0, &hp->n_layers, e)) ||
        (rc = read_count(&r, "context_length", MAX_CONTEXT, 0, &hp->context_length, e)) ||
        (rc = read_count(&r, "embedding_length", MAX_WIDTH, 0, &hp->n_embd, e)) ||
        (rc = read_count(&r, "feed_forward_length", MAX_FF, 0, &hp->n_ff, e)) ||
        (rc = read_heads(&r, hp, e)) || (rc = read_rope(&r, hp, e)) ||
        (rc = read_real(&r, "attention.layer_norm_rms_epsilon", 0, &hp->rms_eps, e)) ||
        (rc = refuse_keys(&r, e)) || (rc = read_tensors(g, hp, e)))
        return rc;
    if (gguf_get_u64(g, arch_key(&r, "vocab_size"), &n_vocab, NULL) == 0 && n_vocab != hp->n_vocab)
        return err_set_param(e, ERR_FORMAT, r.key,
                             "%s: %s is %llu but token_embd.weight has %u rows", gguf_path(g),
                             r.key, (unsigned long long)n_vocab, hp->n_vocab);
    return 0;
}

int model_inv_freq(const gguf *g, const struct model_hparams *hp, float *inv_freq, err *e) {
    const gguf_tensor *divisors = gguf_tensor_find(g, "rope_freqs.weight");
    uint32_t half = hp->n_rot / 2;
    if (divisors && (divisors->type != QTYPE_F32 || divisors->n_elems != half))
        return err_set_param(e, ERR_FORMAT, "rope_freqs.weight",
                             "%s: tensor rope_freqs.weight is not (%u) F32", gguf_path(g), half);
    for (uint32_t i = 0; i < half; i++) {
        double f = pow(hp->rope_base, -2.0 * i / hp->n_rot) / hp->rope_scale;
        float divisor = 1;
        if (divisors) memcpy(&divisor, (const float *)divisors->data + i, sizeof divisor);
        if (!(divisor > 0) || isinf(divisor))
            return err_set_param(e, ERR_FORMAT, "rope_freqs.weight",
                                 "%s: tensor rope_freqs.weight holds %g at %u", gguf_path(g),
                                 (double)divisor, i);
        inv_freq[i] = (float)(f / divisor);
    }
    return 0;
}

int model_read_hparams(const char *path, struct model_hparams *hp, err *e) {
    gguf *g;
    int rc = model_file_open(path, 0, &g, e);
    if (rc) return rc;
    rc = model_hparams_read(g, hp, e);
    gguf_close(g);
    return rc;
}

uint32_t model_max_cols(const struct model_hparams *hp) {
    uint32_t cols = hp->n_embd > hp->n_ff ? hp->n_embd : hp->n_ff;
    uint32_t heads = hp->n_heads * hp->head_dim;
    return heads > cols ? heads : cols;
}
