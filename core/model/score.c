/* score.c - the head of models that score how well a document answers a query: from the file's own
 * head, or from the rows of two words of the output head. Copies what it reads. */
#include "core/model/model_int.h"

#include "core/base/log.h"
#include "core/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Head tensors, which the forward pass does not load (llama.cpp's names). */
static const char head_weight[] = "cls.output.weight", head_bias[] = "cls.output.bias",
                  dense_weight[] = "cls.weight", dense_bias[] = "cls.bias",
                  norm_weight[] = "cls.norm.weight";

/* Are the architecture's rerankers known? */
static bool arch_scores(const struct model_hparams *hp) {
    const struct model_arch *arch = model_arch_find((gguf_str){hp->arch, strlen(hp->arch)});
    return arch && arch->scores;
}

bool model_is_score_tensor(gguf_str name) {
    const char *const names[] = {head_weight, head_bias, dense_weight, dense_bias, norm_weight};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (name.len == strlen(names[i]) && !memcmp(name.data, names[i], name.len)) return true;
    return false;
}

/* Adds sign * row `row` of t (n_rows, n). */
static int add_row(const gguf *g, const gguf_tensor *t, uint64_t row, double sign, double *to,
                   uint64_t n, err *e) {
    uint64_t bytes;
    if (t->dims[0] != n || row >= t->n_elems / n || t->type == QTYPE_NVFP4 ||
        !qtype_bytes(t->type, 1, n, &bytes))
        return err_set(e, ERR_FORMAT, "%s: tensor %.*s has no row %llu of %llu values",
                       gguf_path(g), (int)t->name.len, t->name.data, (unsigned long long)row,
                       (unsigned long long)n);
    void *stored = mem_new(bytes, 1);
    float *values = mem_new(n, sizeof *values);
    int rc =
        stored && values ? gguf_tensor_read(g, t, row * bytes, bytes, stored, e) : err_no_memory(e);
    if (!rc) qtype_decode(t->type, stored, values, n);
    for (uint64_t i = 0; !rc && i < n; i++)
        to[i] += sign * (double)values[i];
    free(stored);
    free(values);
    return rc;
}

/* w and bias of row `yes` less row `no` (none: below 0). */
static int read_rows(const gguf *g, const char *weight, const char *bias, const int64_t rows[2],
                     uint32_t n_embd, struct model_score *out, err *e) {
    const gguf_tensor *t = gguf_tensor_find(g, weight), *b = gguf_tensor_find(g, bias);
    if (!t) return err_set_param(e, ERR_FORMAT, weight, "%s: no tensor %s", gguf_path(g), weight);
    out->w = mem_new(n_embd, sizeof *out->w);
    if (!out->w) return err_no_memory(e);
    for (int i = 0; i < 2; i++) {
        const double sign = i ? -1 : 1;
        float value;
        if (rows[i] < 0) continue;
        int rc = add_row(g, t, (uint64_t)rows[i], sign, out->w, n_embd, e);
        if (!rc && b && (b->type != QTYPE_F32 || (uint64_t)rows[i] >= b->n_elems))
            rc = err_set_param(e, ERR_FORMAT, bias, "%s: tensor %s has no value for row %lld",
                               gguf_path(g), bias, (long long)rows[i]);
        if (!rc && b)
            rc = gguf_tensor_read(g, b, (uint64_t)rows[i] * sizeof value, sizeof value, &value, e);
        if (rc) return rc;
        if (b) out->bias += sign * (double)value;
    }
    return 0;
}

/* n_rows rows of n_embd values. *out: owned. */
static int read_floats(const gguf *g, const char *name, uint64_t n_rows, uint64_t n_embd,
                       float **out, err *e) {
    const gguf_tensor *t = gguf_tensor_find(g, name);
    uint64_t n, bytes;
    if (!t || t->dims[0] != n_embd || t->n_elems / n_embd != n_rows || t->n_dims > 2 ||
        !mem_mul(n_rows, n_embd, &n) || !qtype_bytes(t->type, n_rows, n_embd, &bytes))
        return err_set_param(e, ERR_FORMAT, name, "%s: tensor %s is missing, or not %llu by %llu",
                             gguf_path(g), name, (unsigned long long)n_rows,
                             (unsigned long long)n_embd);
    void *stored = mem_new(bytes, 1);
    *out = mem_new(n, sizeof **out);
    int rc = stored && *out ? gguf_tensor_read(g, t, 0, bytes, stored, e) : err_no_memory(e);
    for (uint64_t r = 0; !rc && r < n_rows; r++)
        qtype_decode(t->type, (const char *)stored + r * (bytes / n_rows), *out + r * n_embd,
                     n_embd);
    free(stored);
    return rc;
}

/* What an encoder has before the rows of its head: BERT's pooler, the dense layers of RoBERTa's and
 * of ModernBERT's head. */
static int read_dense(const gguf *g, const struct model_hparams *hp, struct model_score *out,
                      err *e) {
    const uint64_t n = hp->n_embd;
    const bool modern = strcmp(hp->arch, "modern-bert") == 0;
    uint32_t of;
    struct model_keys k = {.g = g, .arch = hp->arch};
    int rc = model_key_count(&k, "inferd.classifier_pooling", MODEL_POOLING_CLS,
                             modern ? MODEL_POOLING_MEAN : MODEL_POOLING_CLS, &of, e);
    if (rc) return rc;
    out->of = (enum model_pooling)of;
    out->gelu = modern;
    out->eps = (double)hp->rms_eps;
    if (!gguf_tensor_find(g, dense_weight)) {
        if (!modern)
            log_warn(
                "%s: there is no tensor %s: llama.cpp's converter leaves BERT's pooler out, and "
                "scores without it are not the model's",
                gguf_path(g), dense_weight);
        return 0;
    }
    out->x = mem_new(n, sizeof *out->x);
    if (!out->x) return err_no_memory(e);
    rc = read_floats(g, dense_weight, n, n, &out->dense, e);
    if (!rc && gguf_tensor_find(g, dense_bias))
        rc = read_floats(g, dense_bias, 1, n, &out->dense_bias, e);
    if (!rc && gguf_tensor_find(g, norm_weight))
        rc = read_floats(g, norm_weight, 1, n, &out->norm, e);
    return rc;
}

/* Which rows of the file's own head say yes and no: one row is a score by itself. */
static int read_labels(const gguf *g, struct model_keys *k, int64_t rows[2], err *e) {
    const gguf_tensor *t = gguf_tensor_find(g, head_weight);
    const uint64_t n = t ? t->n_elems / t->dims[0] : 0;
    enum gguf_type elem;
    uint64_t n_labels;
    rows[0] = 0;
    rows[1] = n == 2 ? 1 : -1;
    if (n > 2 || (t && t->n_dims > 2))
        return err_set_param(e, ERR_UNSUPPORTED, head_weight,
                             "%s: tensor %s has %llu rows; this build scores with one row, or two "
                             "for yes and no",
                             gguf_path(g), head_weight, (unsigned long long)n);
    const char *key = model_key(k, "classifier.output_labels");
    if (n != 2 || !gguf_has(g, key)) return 0;
    int rc = gguf_get_array(g, key, &elem, &n_labels, e);
    if (rc) return rc;
    for (int64_t i = 0; i < 2; i++) {
        gguf_str a = gguf_array_str(g, key, (uint64_t)i), b = gguf_array_str(g, key, (uint64_t)!i);
        if (elem != GGUF_STRING || n_labels != 2 || a.len != 3 || memcmp(a.data, "yes", 3) != 0 ||
            b.len != 2 || memcmp(b.data, "no", 2) != 0)
            continue;
        rows[0] = i;
        rows[1] = !i;
        return 0;
    }
    return err_set_param(e, ERR_UNSUPPORTED, key, "%s: %s must be yes and no", gguf_path(g), key);
}

/* Is a file without a head of its own one of Qwen3-Reranker, whose prompt is known? Its name or
 * its folder's module says so: the module's tokens are the two words. */
static bool is_qwen3_reranker(const gguf *g, const struct model_hparams *hp,
                              const struct model_words *words, const char *key,
                              const int64_t rows[2]) {
    if (!arch_scores(hp)) return false;
    if (gguf_has(g, key)) return rows[0] == words->yes && rows[1] == words->no;
    for (const char *p = hp->name; *p; p++)
        if (strncasecmp(p, "qwen3", 5) == 0 && p[5] && strncasecmp(p + 6, "rerank", 6) == 0)
            return true;
    return false;
}

static int read_words(const gguf *g, const struct model_hparams *hp,
                      const struct model_words *words, const char *key, struct model_score *out,
                      err *e) {
    int64_t rows[2] = {words->yes, words->no};
    for (int i = 0; i < 2 && gguf_has(g, key); i++)
        rows[i] = gguf_array_i64(g, key, (uint64_t)i);
    if (!words->has_template && !is_qwen3_reranker(g, hp, words, key, rows))
        return err_set(e, ERR_UNSUPPORTED,
                       "it is not known as a reranker: its file has neither pooling_type 4 (rank) "
                       "with the tensor %s, nor a template tokenizer.chat_template.rerank, nor "
                       "'Qwen3-Reranker' in its name",
                       head_weight);
    if (rows[0] < 0 || rows[1] < 0)
        return err_set(e, ERR_UNSUPPORTED, "its vocabulary lacks the tokens 'yes' and 'no'");
    return read_rows(g, hp->tied_embeddings ? "token_embd.weight" : "output.weight", "output.bias",
                     rows, hp->n_embd, out, e);
}

int model_score_may(const struct model_hparams *hp, const struct model_words *words, err *e) {
    if (hp->pooling == MODEL_POOLING_RANK || words->has_template || arch_scores(hp)) return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "it is of architecture %s, and its file has no template "
                   "tokenizer.chat_template.rerank",
                   hp->arch);
}

int model_score_read(const gguf *g, const struct model_hparams *hp, const struct model_words *words,
                     struct model_score *out, err *e) {
    struct model_keys k = {.g = g, .arch = hp->arch};
    int64_t rows[2];
    int rc;
    *out = (struct model_score){.of = MODEL_POOLING_LAST};
    if (hp->pooling != MODEL_POOLING_RANK)
        rc = read_words(g, hp, words, model_key(&k, "inferd.score_tokens"), out, e);
    else if (!(rc = read_labels(g, &k, rows, e)))
        rc = read_rows(g, head_weight, head_bias, rows, hp->n_embd, out, e);
    if (!rc && hp->encoder.on) rc = read_dense(g, hp, out, e);
    if (rc) model_score_fini(out);
    return rc;
}

void model_score_fini(struct model_score *s) {
    free(s->w);
    free(s->dense);
    free(s->dense_bias);
    free(s->norm);
    free(s->x);
    *s = (struct model_score){.w = NULL};
}

static void normalize(const struct model_score *s, uint32_t n) {
    double mean = 0, var = 0;
    for (uint32_t i = 0; i < n; i++)
        mean += s->x[i] / n;
    for (uint32_t i = 0; i < n; i++)
        var += (s->x[i] - mean) * (s->x[i] - mean) / n;
    for (uint32_t i = 0; i < n; i++)
        s->x[i] = (s->x[i] - mean) / sqrt(var + s->eps) * (double)s->norm[i];
}

double model_score_of(const struct model_score *s, const float *hidden, uint32_t n_embd) {
    double sum = s->bias;
    for (uint32_t r = 0; s->dense && r < n_embd; r++) {
        const float *row = s->dense + (uint64_t)r * n_embd;
        double v = s->dense_bias ? (double)s->dense_bias[r] : 0;
        for (uint32_t i = 0; i < n_embd; i++)
            v += (double)row[i] * (double)hidden[i];
        s->x[r] = s->gelu ? v / 2 * erfc(-v / sqrt(2)) : tanh(v);
    }
    if (s->norm) normalize(s, n_embd);
    for (uint32_t i = 0; i < n_embd; i++)
        sum += s->w[i] * (s->dense ? s->x[i] : (double)hidden[i]);
    return sum;
}
