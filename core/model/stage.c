/* stage.c - a model split by layers over the stages of a pipeline: which splits are possible, which
 * one is even, and what a stage is of a model. Pure, except that it reads the file. */
#include "core/model/model_int.h"

#include "core/base/mem.h"
#include "core/base/siphash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What keeps something of sequences: a stage without one of them could not follow the books that
 * the first stage keeps of it. */
enum kind { KIND_KV, KIND_WINDOW, KIND_STATE, N_KINDS };
static const char *const kind_names[N_KINDS] = {"attention", "a window", "recurrent state"};

static bool is_of_kind(uint8_t flags, enum kind kind) {
    if (kind == KIND_STATE) return flags & MODEL_LAYER_RECURRENT;
    return model_layer_stores_kv(flags) && (kind == KIND_KV || flags & MODEL_LAYER_WINDOWED);
}

static uint32_t count_kind(const struct model_hparams *hp, const struct model_stage *s,
                           enum kind kind) {
    uint32_t n = 0;
    for (uint32_t i = s->first; i < s->first + s->n; i++)
        n += is_of_kind(hp->layers[i], kind);
    return n;
}

int model_stages_check_family(const struct model_hparams *hp, err *e) {
    bool shares = false;
    for (uint32_t i = 0; i < hp->n_layers; i++)
        shares |= (hp->layers[i] & MODEL_LAYER_SHARED_KV) != 0;
    const char *why = hp->encoder.on           ? "encoders"
                      : hp->gemma4.n_per_layer ? "models with per-layer embeddings"
                      : shares                 ? "models whose layers share K and V"
                                               : NULL;
    if (!why) return 0;
    return err_set_param(e, ERR_UNSUPPORTED, "n_stages",
                         "%s (%s) cannot be split into stages: they run in one process", why,
                         hp->arch);
}

int model_stages_check(const struct model_hparams *hp, const struct model_stage *stages, uint32_t n,
                       err *e) {
    const struct model_stage all = {0, hp->n_layers};
    uint32_t next = 0;
    int rc = model_stages_check_family(hp, e);
    if (rc) return rc;
    for (uint32_t i = 0; i < n; next += stages[i++].n)
        if (stages[i].first != next || !stages[i].n || stages[i].n > hp->n_layers - next)
            return err_set_param(e, ERR_INVALID, "stage_layers",
                                 "the stages' layers must be %u in all, at least one of each stage",
                                 hp->n_layers);
    if (next != hp->n_layers)
        return err_set_param(e, ERR_INVALID, "stage_layers",
                             "the stages have %u layers in all; the model has %u", next,
                             hp->n_layers);
    for (uint32_t i = 0; i < n; i++)
        for (int kind = 0; kind < N_KINDS; kind++)
            if (count_kind(hp, &all, kind) && !count_kind(hp, &stages[i], kind))
                return err_set_param(
                    e, ERR_UNSUPPORTED, "stage_layers",
                    "stage %u, layers %u to %u, would have no layer with %s, which "
                    "others of this model (%s) have: choose other stages, or fewer",
                    i, stages[i].first, stages[i].first + stages[i].n - 1, kind_names[kind],
                    hp->arch);
    return 0;
}

/* Bytes that a step reads of each layer, (n_layers); the output head counts for the last one. The
 * table of embeddings, of which a step reads a few rows, does not count. */
static void count_bytes(const gguf *g, const struct model_hparams *hp, uint64_t *of_layer) {
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        const uint32_t layer = model_tensor_layer(t->name);
        const char *head = hp->tied_embeddings ? "token_embd.weight" : "output.weight";
        const bool is_head =
            t->name.len == strlen(head) && memcmp(t->name.data, head, t->name.len) == 0;
        if (layer < hp->n_layers) of_layer[layer] += t->bytes;
        if (is_head) of_layer[hp->n_layers - 1] += t->bytes;
    }
}

static int read_bytes(const char *path, const struct model_hparams *hp, uint64_t **out, err *e) {
    gguf *g = NULL;
    int rc = model_file_open(path, 0, &g, e);
    if (rc) return rc;
    *out = mem_new(hp->n_layers, sizeof **out);
    if (*out)
        count_bytes(g, hp, *out);
    else
        rc = err_no_memory(e);
    gguf_close(g);
    return rc;
}

static uint64_t sum_bytes(const uint64_t *of_layer, const struct model_stage *s) {
    uint64_t sum = 0;
    for (uint32_t i = s->first; i < s->first + s->n; i++)
        sum += of_layer[i];
    return sum;
}

int model_stages_measure(const char *path, const struct model_hparams *hp,
                         const struct model_stage *stages, uint32_t n, uint64_t *bytes, err *e) {
    uint64_t *of_layer = NULL;
    int rc = read_bytes(path, hp, &of_layer, e);
    for (uint32_t i = 0; !rc && i < n; i++)
        bytes[i] = sum_bytes(of_layer, &stages[i]);
    free(of_layer);
    return rc;
}

/* The largest stage of the best split of the first `end` layers into one more stage than `best`
 * has, whose last stage begins at *begin; UINT64_MAX: there is none. */
static uint64_t extend_split(const struct model_hparams *hp, const uint64_t *of_layer,
                             const uint64_t *best, uint32_t end, uint32_t *begin) {
    const struct model_stage all = {0, hp->n_layers};
    bool wanted[N_KINDS], has[N_KINDS] = {false};
    uint64_t least = UINT64_MAX, bytes = 0;
    for (int kind = 0; kind < N_KINDS; kind++)
        wanted[kind] = count_kind(hp, &all, kind) > 0;
    for (uint32_t first = end; first-- > 0;) {
        bool whole = true;
        bytes += of_layer[first];
        for (int kind = 0; kind < N_KINDS; kind++) {
            has[kind] |= is_of_kind(hp->layers[first], kind);
            whole &= has[kind] || !wanted[kind];
        }
        const uint64_t largest = best[first] > bytes ? best[first] : bytes;
        if (!whole || largest >= least) continue;
        least = largest;
        *begin = first;
    }
    return least;
}

/* best (n + 1, n_layers + 1): at (i, k) the largest stage of the best split of k layers into i
 * stages. */
static bool find_split(const struct model_hparams *hp, const uint64_t *of_layer, uint64_t *best,
                       uint32_t *begins, uint32_t n) {
    const size_t row = (size_t)hp->n_layers + 1;
    for (size_t i = 0; i < row; i++)
        best[i] = i ? UINT64_MAX : 0;
    for (uint32_t s = 1; s <= n; s++)
        for (uint32_t end = 0; end < row; end++)
            best[s * row + end] =
                extend_split(hp, of_layer, best + (s - 1) * row, end, &begins[s * row + end]);
    return best[n * row + hp->n_layers] != UINT64_MAX;
}

int model_stages_split(const char *path, const struct model_hparams *hp, uint32_t n,
                       struct model_stage *out, uint64_t *bytes, err *e) {
    const size_t row = (size_t)hp->n_layers + 1;
    uint64_t *of_layer = NULL, *best = mem_new((n + 1) * row, sizeof *best);
    uint32_t *begins = mem_new((n + 1) * row, sizeof *begins);
    int rc = model_stages_check_family(hp, e);
    if (!rc && (!best || !begins)) rc = err_no_memory(e);
    if (!rc) rc = read_bytes(path, hp, &of_layer, e);
    if (!rc && !find_split(hp, of_layer, best, begins, n))
        rc =
            err_set_param(e, ERR_UNSUPPORTED, "n_stages",
                          "n_stages = %u: the %u layers of this model (%s) cannot be split so that "
                          "each stage has layers of every kind",
                          n, hp->n_layers, hp->arch);
    uint32_t end = hp->n_layers;
    for (uint32_t s = n; !rc && s > 0; s--) {
        const uint32_t first = begins[s * row + end];
        out[s - 1] = (struct model_stage){first, end - first};
        bytes[s - 1] = sum_bytes(of_layer, &out[s - 1]);
        end = first;
    }
    free(of_layer);
    free(best);
    free(begins);
    return rc;
}

#define KEEP_LAYERS(array, s) memmove(array, (array) + (s)->first, (s)->n * sizeof *(array))

void model_stage_apply(const struct model_stage *s, uint64_t bytes, struct model_hparams *hp) {
    KEEP_LAYERS(hp->layers, s);
    KEEP_LAYERS(hp->layer_heads, s);
    KEEP_LAYERS(hp->xielu, s);
    KEEP_LAYERS(hp->expert_bounds, s);
    KEEP_LAYERS(hp->ff_bounds, s);
    const struct model_stage own = {0, s->n};
    hp->n_layers = s->n;
    hp->n_kv_layers = count_kind(hp, &own, KIND_KV);
    hp->recurrent.n_layers = count_kind(hp, &own, KIND_STATE);
    hp->weight_bytes = bytes;
}

/* ---- identity ---- */

enum { N_SAMPLES = 3, SAMPLE_BYTES = 256 };

static void add(struct hash128 *h, const void *bytes, size_t n) {
    *h = siphash128(*h, bytes, n);
}

static int add_tensor(struct hash128 *h, const gguf *g, const gguf_tensor *t, err *e) {
    uint8_t sample[SAMPLE_BYTES];
    char text[160];
    int n = snprintf(text, sizeof text, "%.*s %d %" PRIu64, (int)t->name.len, t->name.data, t->type,
                     t->bytes);
    for (int i = 0; i < 4 && n > 0 && (size_t)n < sizeof text; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %" PRIu64, t->dims[i]);
    add(h, text, strlen(text));
    const uint64_t bytes = t->bytes < SAMPLE_BYTES ? t->bytes : SAMPLE_BYTES;
    for (uint64_t i = 0; i < N_SAMPLES; i++) {
        const uint64_t at = (t->bytes - bytes) / (N_SAMPLES - 1) * i / 4 * 4;
        int rc = gguf_tensor_read(g, t, at, bytes, sample, e);
        if (rc) return rc;
        add(h, sample, bytes);
    }
    return 0;
}

static void add_hparams(struct hash128 *h, const struct model_hparams *hp) {
    const double numbers[] = {hp->n_vocab,        hp->n_layers,       hp->n_embd,
                              hp->n_heads,        hp->n_kv_heads,     hp->head_dim,
                              hp->context_length, hp->window,         hp->rope[0].n_rot,
                              hp->rope[0].base,   hp->rope[0].factor, hp->rope[1].base,
                              hp->rope[1].factor, hp->rms_eps,        hp->embed_scale,
                              hp->attn_scale,     hp->residual_scale, hp->logit_scale,
                              hp->attn_softcap,   hp->logit_softcap,  hp->experts.n_used};
    char text[32];
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        snprintf(text, sizeof text, "%.9g", numbers[i]);
        add(h, text, strlen(text));
    }
    add(h, hp->arch, strlen(hp->arch));
    add(h, hp->layers, hp->n_layers);
}

int model_identity(const char *path, char out[33], err *e) {
    struct hash128 h = {0, 0};
    const struct model_arch *arch;
    struct model_hparams *hp = mem_new(1, sizeof *hp);
    gguf *g = NULL;
    int rc = hp ? 0 : err_no_memory(e);
    if (!rc) rc = model_file_open(path, 0, &g, e);
    if (!rc) rc = model_hparams_read(g, hp, &arch, e);
    if (!rc) add_hparams(&h, hp);
    for (uint64_t i = 0; !rc && i < gguf_n_tensors(g); i++)
        rc = add_tensor(&h, g, gguf_tensor_at(g, i), e);
    snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, h.hi, h.lo);
    gguf_close(g);
    free(hp);
    return rc;
}
