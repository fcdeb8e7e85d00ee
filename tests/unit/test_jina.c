/* test_jina.c - Jina's embedders of version 2 (jinaai/jina-bert-implementation, modeling_bert.py:
 * no class of transformers): the hidden states of a tiny file against a float64 model of it, in any
 * batch, and the folder of the same weights. */
#include "core/formats/gguf/gguf.h"
#include "tests/support/arch_make.h"
#include "tests/support/forward64_int.h"

#include "check.h"

#include <sys/stat.h>

enum { WIDTH = 48, HEADS = 3, DIM = WIDTH / HEADS, FF = 60, LAYERS = 3, MOST = 130, N_TEXTS = 3 };
static const double eps = (double)1e-5f;
static const uint32_t lengths[N_TEXTS] = {1, 33, MOST};

/* ---- the file ---- */

static const struct {
    const char *name, *folder; /* after blk.N. and encoder.layer.N. */
    uint32_t n_in, n_out;      /* n_out 0: a vector */
} of_layer[] = {{"attn_q.weight", "attention.self.query.weight", WIDTH, WIDTH},
                {"attn_q.bias", "attention.self.query.bias", WIDTH, 0},
                {"attn_k.weight", "attention.self.key.weight", WIDTH, WIDTH},
                {"attn_k.bias", "attention.self.key.bias", WIDTH, 0},
                {"attn_v.weight", "attention.self.value.weight", WIDTH, WIDTH},
                {"attn_v.bias", "attention.self.value.bias", WIDTH, 0},
                {"attn_output.weight", "attention.output.dense.weight", WIDTH, WIDTH},
                {"attn_output.bias", "attention.output.dense.bias", WIDTH, 0},
                {"attn_output_norm.weight", "attention.output.LayerNorm.weight", WIDTH, 0},
                {"attn_output_norm.bias", "attention.output.LayerNorm.bias", WIDTH, 0},
                {"ffn_gate.weight", "mlp.gated_layers.weight", WIDTH, FF},
                {"ffn_up.weight", NULL, WIDTH, FF}, /* the other half of gated_layers */
                {"ffn_down.weight", "mlp.wo.weight", FF, WIDTH},
                {"ffn_down.bias", "mlp.wo.bias", WIDTH, 0},
                {"layer_output_norm.weight", "mlp.layernorm.weight", WIDTH, 0},
                {"layer_output_norm.bias", "mlp.layernorm.bias", WIDTH, 0}};
enum { N_OF_LAYER = sizeof of_layer / sizeof of_layer[0] };
static const struct {
    const char *name, *folder;
    uint32_t n_out;
} of_model[] = {{"token_embd.weight", "embeddings.word_embeddings.weight", N_VOCAB},
                {"token_types.weight", "embeddings.token_type_embeddings.weight", 2},
                {"token_embd_norm.weight", "embeddings.LayerNorm.weight", 0},
                {"token_embd_norm.bias", "embeddings.LayerNorm.bias", 0}};
enum { N_OF_MODEL = sizeof of_model / sizeof of_model[0] };

static void make_file(void) {
    struct maker m;
    err e = {0};
    start(&m, "jina-bert-v2", 0);
    set_u32(&m, "context_length", 512);
    set_u32(&m, "block_count", LAYERS);
    set_u32(&m, "embedding_length", WIDTH);
    set_u32(&m, "feed_forward_length", FF);
    set_u32(&m, "attention.head_count", HEADS);
    set_bool(&m, "attention.causal", false);
    set_f32(&m, "attention.layer_norm_epsilon", eps);
    for (int i = 0; i < N_OF_MODEL; i++)
        add(&m, -1,
            &(struct shape){.name = of_model[i].name,
                            .n_in = WIDTH,
                            .n_out = of_model[i].n_out,
                            .around_1 = i == 2});
    for (int layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < N_OF_LAYER; i++)
            add(&m, layer,
                &(struct shape){.name = of_layer[i].name,
                                .n_in = of_layer[i].n_in,
                                .n_out = of_layer[i].n_out,
                                .around_1 = strstr(of_layer[i].name, "norm.weight") != NULL});
    runner_need(gguf_writer_finish(m.w, path, &e), &e);
    gguf_writer_free(m.w);
    for (int i = 0; i < m.n_data; i++)
        free(m.data[i]);
}

/* ---- the reference ---- */

static void normalize(const gguf *g, int layer, const char *name, const double *x, double *y) {
    char text[64];
    snprintf(text, sizeof text, "%s.weight", name);
    struct matrix w = forward64_load(g, layer, text);
    snprintf(text, sizeof text, "%s.bias", name);
    struct matrix b = forward64_load(g, layer, text);
    double mean = 0, squares = 0;
    for (int i = 0; i < WIDTH; i++)
        mean += x[i] / WIDTH;
    for (int i = 0; i < WIDTH; i++)
        squares += (x[i] - mean) * (x[i] - mean) / WIDTH;
    for (int i = 0; i < WIDTH; i++)
        y[i] = (x[i] - mean) / sqrt(squares + eps) * w.w[i] + b.w[i];
    free(w.w);
    free(b.w);
}

/* y (n, n_out) of x (n, n_in). */
static void multiply(const gguf *g, int layer, const char *name, bool biased, const double *x,
                     uint32_t n, double *y) {
    char text[64];
    snprintf(text, sizeof text, "%s.weight", name);
    struct matrix w = forward64_load(g, layer, text), b = {0};
    snprintf(text, sizeof text, "%s.bias", name);
    if (biased) b = forward64_load(g, layer, text);
    for (uint32_t t = 0; t < n; t++)
        forward64_multiply(w.w, w.n_out, w.n_in, b.w, x + t * w.n_in, y + t * w.n_out);
    free(w.w);
    free(b.w);
}

/* Three heads: the slopes of two, 2^-4 and 2^-8, then the first of those of four, 2^-2. */
static void attend(const double *q, const double *k, const double *v, uint32_t n, double *out) {
    static const double slopes[HEADS] = {0.0625, 0.00390625, 0.25};
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t h = 0; h < HEADS; h++) {
            double p[MOST], max = -INFINITY, sum = 0;
            for (uint32_t s = 0; s < n; s++) {
                p[s] = -slopes[h] * fabs((double)s - (double)t);
                for (uint32_t d = 0; d < DIM; d++)
                    p[s] += q[t * WIDTH + h * DIM + d] * k[s * WIDTH + h * DIM + d] / sqrt(DIM);
                max = fmax(max, p[s]);
            }
            for (uint32_t s = 0; s < n; s++)
                sum += p[s] = exp(p[s] - max);
            for (uint32_t d = 0; d < DIM; d++) {
                double *o = &out[t * WIDTH + h * DIM + d];
                *o = 0;
                for (uint32_t s = 0; s < n; s++)
                    *o += p[s] / sum * v[s * WIDTH + h * DIM + d];
            }
        }
}

static void reference(const gguf *g, const int32_t *tokens, uint32_t n, double *x) {
    static double q[MOST * WIDTH], k[MOST * WIDTH], v[MOST * WIDTH], a[MOST * WIDTH],
        gate[MOST * FF], up[MOST * FF];
    struct matrix embed = forward64_load(g, -1, "token_embd.weight"),
                  types = forward64_load(g, -1, "token_types.weight");
    for (uint32_t t = 0; t < n; t++) {
        for (uint32_t c = 0; c < WIDTH; c++)
            x[t * WIDTH + c] = embed.w[(uint32_t)tokens[t] * WIDTH + c] + types.w[c];
        normalize(g, -1, "token_embd_norm", x + t * WIDTH, x + t * WIDTH);
    }
    for (int i = 0; i < LAYERS; i++) {
        multiply(g, i, "attn_q", true, x, n, q);
        multiply(g, i, "attn_k", true, x, n, k);
        multiply(g, i, "attn_v", true, x, n, v);
        attend(q, k, v, n, a);
        multiply(g, i, "attn_output", true, a, n, q);
        for (uint32_t t = 0; t < n * WIDTH; t++)
            x[t] += q[t];
        for (uint32_t t = 0; t < n; t++)
            normalize(g, i, "attn_output_norm", x + t * WIDTH, x + t * WIDTH);
        multiply(g, i, "ffn_gate", false, x, n, gate);
        multiply(g, i, "ffn_up", false, x, n, up);
        for (uint32_t t = 0; t < n * FF; t++)
            up[t] *= gate[t] / 2 * (1 + erf(gate[t] / sqrt(2)));
        multiply(g, i, "ffn_down", true, up, n, q);
        for (uint32_t t = 0; t < n * WIDTH; t++)
            x[t] += q[t];
        for (uint32_t t = 0; t < n; t++)
            normalize(g, i, "layer_output_norm", x + t * WIDTH, x + t * WIDTH);
    }
    free(embed.w);
    free(types.w);
}

/* ---- the test ---- */

static int32_t texts[N_TEXTS][MOST];
static double *want[N_TEXTS];

/* Each text alone, then all in one step: the same bits. */
static void check_hidden(const char *of, const char *isa) {
    struct runner r;
    struct piece all[N_TEXTS];
    float *alone[N_TEXTS];
    runner_open(&r, &(struct runner_config){.path = of,
                                            .isa = isa,
                                            .n_threads = 3,
                                            .kv_type = QTYPE_F32,
                                            .max_rows = 200,
                                            .max_tokens = MOST});
    CHECK(r.hp.encoder.on && r.hp.both_ways && r.hp.alibi == 8 && !r.hp.encoder.n_positions);
    CHECK(r.hp.pooling == MODEL_POOLING_MEAN);
    for (uint32_t i = 0; i < N_TEXTS; i++) {
        const uint32_t n = lengths[i] * WIDTH;
        all[i] = (struct piece){.tokens = texts[i], .n = lengths[i], .sequence = i};
        const float *got = runner_run(&r, &all[i], 1, true, 1).hidden;
        const double worst = worst_difference(got, want[i], n);
        CHECK_MSG(worst <= fmax(1e-4, 4 * forward_tolerance(&r, got, n, 0)),
                  "%s: %u tokens: off by %g", isa, lengths[i], worst);
        alone[i] = be_new(n, sizeof *alone[i]);
        memcpy(alone[i], got, n * sizeof *got);
    }
    const float *got = runner_run(&r, all, N_TEXTS, true, N_TEXTS).hidden;
    for (uint32_t i = 0; i < N_TEXTS; got += lengths[i++] * WIDTH) {
        CHECK(memcmp(got, alone[i], lengths[i] * WIDTH * sizeof *got) == 0);
        free(alone[i]);
    }
    runner_close(&r);
}

static void test_file(void) {
    for (int k = 0; k < BE_N_ISAS; k++)
        if (be_has(be_isas[k], DIM, QTYPE_F32)) check_hidden(path, be_isas[k]);
}

/* ---- the folder ---- */

static FILE *create(const char *folder, const char *name) {
    char text[128];
    snprintf(text, sizeof text, "%s/%s", folder, name);
    FILE *f = fopen(text, "wb");
    be_need(f != NULL, text);
    return f;
}

/* A tensor's entry of the header; its data are `bytes` from *at on. */
static void put_entry(FILE *f, const char *prefix, int layer, const char *name, uint32_t n_out,
                      uint32_t n_in, uint64_t *at) {
    const uint64_t bytes = (uint64_t)(n_out ? n_out : 1) * n_in * sizeof(float);
    char number[24] = "", shape[32];
    if (layer >= 0) snprintf(number, sizeof number, "%d.", layer);
    snprintf(shape, sizeof shape, n_out ? "%u,%u" : "%.0u%u", n_out, n_in);
    fprintf(f, "%s\"%s%s%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
            *at ? "," : "{", prefix, number, name, shape, (unsigned long long)*at,
            (unsigned long long)(*at + bytes));
    *at += bytes;
}

static void put_data(FILE *f, const gguf *g, int layer, const char *name) {
    char text[64];
    if (layer < 0)
        snprintf(text, sizeof text, "%s", name);
    else
        snprintf(text, sizeof text, "blk.%d.%s", layer, name);
    const gguf_tensor *t = gguf_tensor_find(g, text);
    be_need(t && fwrite(t->data, 1, t->bytes, f) == t->bytes, text);
}

static void write_safetensors(const gguf *g, const char *folder) {
    char *header = NULL;
    size_t n_header = 0;
    uint64_t at = 0, n;
    FILE *h = open_memstream(&header, &n_header), *f = create(folder, "model.safetensors");
    be_need(h != NULL, "memory");
    for (int i = 0; i < N_OF_MODEL; i++)
        put_entry(h, "", -1, of_model[i].folder, of_model[i].n_out, WIDTH, &at);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < N_OF_LAYER; i++) {
            const bool gated = strcmp(of_layer[i].name, "ffn_gate.weight") == 0;
            if (of_layer[i].folder)
                put_entry(h, "encoder.layer.", layer, of_layer[i].folder,
                          of_layer[i].n_out * (gated ? 2 : 1), of_layer[i].n_in, &at);
        }
    fputs("}", h);
    fclose(h);
    n = n_header;
    be_need(fwrite(&n, sizeof n, 1, f) == 1 && fwrite(header, 1, n_header, f) == n_header,
            "a header");
    for (int i = 0; i < N_OF_MODEL; i++)
        put_data(f, g, -1, of_model[i].name);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < N_OF_LAYER; i++) /* ffn_up's follow those of ffn_gate */
            put_data(f, g, layer, of_layer[i].name);
    free(header);
    fclose(f);
}

static void test_folder(void) {
    char folder[] = "/tmp/inferd-test-jina-XXXXXX", file[128];
    static const char *const names[] = {"model.safetensors", "config.json"};
    err e = {0};
    gguf *g;
    be_need(mkdtemp(folder) != NULL, folder);
    runner_need(gguf_open(path, 0, &g, &e), &e);
    write_safetensors(g, folder);
    gguf_close(g);
    FILE *f = create(folder, "config.json");
    fprintf(f,
            "{\"architectures\":[\"JinaBertForMaskedLM\"],\"model_type\":\"bert\","
            "\"position_embedding_type\":\"alibi\",\"feed_forward_type\":\"geglu\","
            "\"emb_pooler\":\"mean\",\"hidden_act\":\"gelu\",\"layer_norm_eps\":1e-05,"
            "\"hidden_size\":%d,\"num_attention_heads\":%d,\"num_hidden_layers\":%d,"
            "\"intermediate_size\":%d,\"max_position_embeddings\":512,\"type_vocab_size\":2}",
            WIDTH, HEADS, LAYERS, FF);
    fclose(f);
    check_hidden(folder, "generic");
    for (int i = 0; i < 2; i++) {
        snprintf(file, sizeof file, "%s/%s", folder, names[i]);
        unlink(file);
    }
    rmdir(folder);
}

int main(int argc, char **argv) {
    err e = {0};
    gguf *g;
    be_args(argc, argv);
    const int fd = mkstemp(path);
    be_need(fd >= 0, path);
    close(fd);
    make_file();
    runner_need(gguf_open(path, 0, &g, &e), &e);
    for (uint32_t i = 0; i < N_TEXTS; i++) {
        random_tokens(texts[i], lengths[i], N_VOCAB);
        want[i] = be_new((uint64_t)lengths[i] * WIDTH, sizeof *want[i]);
        reference(g, texts[i], lengths[i], want[i]);
    }
    gguf_close(g);
    RUN(test_file);
    if (!be_only) RUN(test_folder);
    for (uint32_t i = 0; i < N_TEXTS; i++)
        free(want[i]);
    unlink(path);
    return check_done();
}
