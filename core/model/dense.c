/* dense.c - the layers behind pooling of models that embed: vector = w vector, one after the other.
 * They run on the host, once a text. Copies what it reads. Pure. */
#include "core/model/model_int.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WIDTH = 1 << 17 };

/* llama.cpp's names: module 1 of the folder is the pooling. */
static void dense_name(uint32_t i, char name[32]) {
    snprintf(name, 32, "dense_%u.weight", i + 2);
}

bool model_is_dense_tensor(gguf_str name) {
    for (uint32_t i = 0; i < MODEL_MAX_DENSE; i++) {
        char text[32];
        dense_name(i, text);
        if (name.len == strlen(text) && !memcmp(name.data, text, name.len)) return true;
    }
    return false;
}

static int read_layer(const gguf *g, const gguf_tensor *t, struct model_dense *out, err *e) {
    struct model_dense_layer *l = &out->layers[out->n];
    const uint64_t n_in = t->dims[0], n_out = t->dims[1];
    uint64_t row_bytes, bytes, n;
    const uint32_t wanted = out->n ? out->layers[out->n - 1].n_out : out->n_embd;
    if (t->n_dims != 2 || n_in != wanted || n_out > MAX_WIDTH || t->type == QTYPE_NVFP4 ||
        !qtype_bytes(t->type, 1, n_in, &row_bytes) || !mem_mul(row_bytes, n_out, &bytes) ||
        !mem_mul(n_in, n_out, &n))
        return err_set_param(e, ERR_FORMAT, "dense_2.weight",
                             "%s: tensor %.*s has the shape (%llu, %llu), expected %u columns",
                             gguf_path(g), (int)t->name.len, t->name.data, (unsigned long long)n_in,
                             (unsigned long long)n_out, wanted);
    void *stored = mem_new(bytes, 1);
    l->w = mem_new(n, sizeof *l->w);
    l->n_in = (uint32_t)n_in;
    l->n_out = (uint32_t)n_out;
    int rc = stored && l->w ? gguf_tensor_read(g, t, 0, bytes, stored, e) : err_no_memory(e);
    for (uint64_t r = 0; !rc && r < n_out; r++)
        qtype_decode(t->type, (const char *)stored + r * row_bytes, l->w + r * n_in, n_in);
    free(stored);
    out->n++; /* also on failure: l->w is freed with it */
    return rc;
}

int model_dense_read(const gguf *g, const struct model_hparams *hp, struct model_dense *out,
                     err *e) {
    int rc = 0;
    *out = (struct model_dense){.n_embd = hp->n_embd};
    for (uint32_t i = 0; !rc && i < MODEL_MAX_DENSE; i++) {
        char name[32];
        dense_name(i, name);
        const gguf_tensor *t = gguf_tensor_find(g, name);
        if (!t) break;
        rc = read_layer(g, t, out, e);
    }
    if (!rc && out->n && out->layers[out->n - 1].n_out != hp->n_embd)
        rc = err_set(e, ERR_UNSUPPORTED,
                     "%s: its dense layers give %u dimensions; this build supports as many as the "
                     "model has, %u",
                     gguf_path(g), out->layers[out->n - 1].n_out, hp->n_embd);
    uint32_t width = 0;
    for (uint32_t i = 0; i < out->n; i++)
        if (out->layers[i].n_out > width) width = out->layers[i].n_out;
    if (!rc && out->n && !(out->scratch = mem_new(width, sizeof *out->scratch)))
        rc = err_no_memory(e);
    if (rc) model_dense_fini(out);
    return rc;
}

void model_dense_fini(struct model_dense *d) {
    for (uint32_t i = 0; i < d->n; i++)
        free(d->layers[i].w);
    free(d->scratch);
    *d = (struct model_dense){.n = 0};
}

/* In float64, summed in the order of the dimensions. */
static void multiply(const struct model_dense_layer *l, const float *x, float *y) {
    for (uint32_t r = 0; r < l->n_out; r++) {
        const float *row = l->w + (uint64_t)r * l->n_in;
        double sum = 0;
        for (uint32_t c = 0; c < l->n_in; c++)
            sum += (double)row[c] * (double)x[c];
        y[r] = (float)sum;
    }
}

void model_dense_apply(const struct model_dense *d, float *vector) {
    if (!d->n) return;
    multiply(&d->layers[0], vector, d->scratch);
    if (d->n == 1)
        memcpy(vector, d->scratch, d->n_embd * sizeof *vector);
    else
        multiply(&d->layers[1], d->scratch, vector);
}
