/* keys.c - typed reads of an architecture's keys, each within bounds, so that sizes can be computed
 * from them safely. An error names file and key. Owns nothing. */
#include "core/model/model_int.h"

#include <stdio.h>

const char *model_key(struct model_keys *k, const char *suffix) {
    snprintf(k->key, sizeof k->key, "%s.%s", k->arch, suffix);
    return k->key;
}

bool model_key_has(struct model_keys *k, const char *suffix) {
    return gguf_has(k->g, model_key(k, suffix));
}

static int read_whole(struct model_keys *k, const char *suffix, uint64_t min, uint64_t max,
                      uint32_t *out, err *e) {
    const char *key = model_key(k, suffix);
    uint64_t v;
    int rc = gguf_get_u64(k->g, key, &v, e);
    if (rc) return rc;
    if (v < min || v > max)
        return err_set_param(e, ERR_FORMAT, key, "%s: %s is %llu, not in %llu..%llu",
                             gguf_path(k->g), key, (unsigned long long)v, (unsigned long long)min,
                             (unsigned long long)max);
    *out = (uint32_t)v;
    return 0;
}

int model_key_count(struct model_keys *k, const char *suffix, uint64_t max, uint64_t fallback,
                    uint32_t *out, err *e) {
    if (model_key_has(k, suffix) || !fallback) return read_whole(k, suffix, 1, max, out, e);
    if (fallback > max)
        return err_set_param(e, ERR_FORMAT, k->key, "%s: %s would be %llu, not in 1..%llu",
                             gguf_path(k->g), k->key, (unsigned long long)fallback,
                             (unsigned long long)max);
    *out = (uint32_t)fallback;
    return 0;
}

int model_key_count_or_zero(struct model_keys *k, const char *suffix, uint64_t max, uint32_t *out,
                            err *e) {
    *out = 0;
    return model_key_has(k, suffix) ? read_whole(k, suffix, 0, max, out, e) : 0;
}

static int read_number(struct model_keys *k, const char *suffix, bool zero, float *out, err *e) {
    const char *key = model_key(k, suffix);
    double v;
    int rc = gguf_get_f64(k->g, key, &v, e);
    if (rc) return rc;
    if (!(zero ? v >= 0 : v > 0) || v > 1e30)
        return err_set_param(e, ERR_FORMAT, key, "%s: %s is %g, not a %s number", gguf_path(k->g),
                             key, v, zero ? "usable" : "positive");
    *out = (float)v;
    return 0;
}

int model_key_real(struct model_keys *k, const char *suffix, double fallback, float *out, err *e) {
    *out = (float)fallback;
    return model_key_has(k, suffix) || fallback == 0 ? read_number(k, suffix, false, out, e) : 0;
}

int model_key_real_or(struct model_keys *k, const char *suffix, double fallback, float *out,
                      err *e) {
    *out = (float)fallback;
    return model_key_has(k, suffix) ? read_number(k, suffix, true, out, e) : 0;
}

int model_key_bool_or(struct model_keys *k, const char *suffix, bool fallback, bool *out, err *e) {
    *out = fallback;
    return model_key_has(k, suffix) ? gguf_get_bool(k->g, k->key, out, e) : 0;
}

int model_key_flags(struct model_keys *k, const char *suffix, uint8_t *layers, uint32_t n,
                    uint8_t flag, err *e) {
    const char *key = model_key(k, suffix);
    enum gguf_type elem;
    uint64_t n_elems;
    int rc = gguf_get_array(k->g, key, &elem, &n_elems, e);
    if (rc) return rc;
    /* Of the layers that predict further tokens, too, or not. */
    uint64_t n_blocks = n;
    gguf_get_u64(k->g, model_key(k, "block_count"), &n_blocks, NULL);
    key = model_key(k, suffix);
    /* MiMo's files have integers. */
    bool known = elem == GGUF_BOOL || elem == GGUF_I32 || elem == GGUF_U32;
    for (uint32_t i = 0; known && i < n; i++)
        known = (gguf_array_i64(k->g, key, i) & ~1) == 0;
    if (!known || (n_elems != n && (n_elems < n || n_elems != n_blocks)))
        return err_set_param(e, ERR_FORMAT, key, "%s: %s must be an array of %u bools",
                             gguf_path(k->g), key, n);
    for (uint32_t i = 0; i < n; i++)
        if (gguf_array_i64(k->g, key, i)) layers[i] |= flag;
    return 0;
}

int model_keys_refuse(struct model_keys *k, const char *const *suffixes, size_t n, err *e) {
    for (size_t i = 0; i < n; i++) {
        double real = 0;
        uint64_t whole = 0;
        bool set = false;
        const char *key = model_key(k, suffixes[i]);
        if (!gguf_has(k->g, key)) continue;
        bool is_number = gguf_get_f64(k->g, key, &real, NULL) == 0 ||
                         gguf_get_u64(k->g, key, &whole, NULL) == 0 ||
                         gguf_get_bool(k->g, key, &set, NULL) == 0;
        if (!is_number || real != 0 || whole != 0 || set)
            return err_set_param(e, ERR_UNSUPPORTED, key,
                                 "%s: %s is set, which this build does not support",
                                 gguf_path(k->g), key);
    }
    return 0;
}
