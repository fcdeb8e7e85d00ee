/* test_hf_packed.c - quantized weights of model folders. Files are packed here from known integers,
 * zeros and scales, value by value, as AutoAWQ, GPTQModel, compressed-tensors and ModelOpt write
 * them; what is read must be (q - zero) * scale, bit for bit in block types, and rounded once in
 * F16 and BF16. */
#include "core/formats/hf/model_int.h"
#include "tests/support/rng.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_ROWS = 64, MAX_COLS = 256, FILE_BYTES = 1 << 18, HEADER_BYTES = 8192 };

/* ---- a file in memory ---- */

struct file {
    char header[HEADER_BYTES];
    size_t used;
    uint8_t data[FILE_BYTES];
    uint64_t n;
    const char *without; /* a suffix that is left out */
};

/* Adds a zeroed tensor module + suffix of rows x cols (0: a vector) elements. */
static void *add(struct file *f, const char *module, const char *suffix, const char *type,
                 uint64_t rows, uint64_t cols) {
    const uint64_t each = strstr(type, "64")   ? 8
                          : strstr(type, "32") ? 4
                          : strstr(type, "16") ? 2
                                               : 1;
    const uint64_t bytes = rows * (cols ? cols : 1) * each;
    static uint8_t nowhere[FILE_BYTES];
    char shape[64];
    if (f->without && strcmp(f->without, suffix) == 0) return nowhere;
    f->n = (f->n + 7) / 8 * 8;
    uint8_t *data = f->data + f->n;
    if (f->n + bytes > FILE_BYTES) abort();
    memset(data, 0, bytes);
    if (cols)
        snprintf(shape, sizeof shape, "%d,%d", (int)rows, (int)cols);
    else
        snprintf(shape, sizeof shape, "%d", (int)rows);
    f->used += (size_t)snprintf(
        f->header + f->used, sizeof f->header - f->used,
        "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%d,%d]}",
        f->used ? "," : "{", module, suffix, type, shape, (int)f->n, (int)(f->n + bytes));
    f->n += bytes;
    return data;
}

/* Opens f and config as a folder's parts. Free with close_parts. */
struct parts {
    uint8_t *bytes;
    safetensors *file;
    struct hf_config config;
    struct hf_tensors tensors;
};

static int open_parts(struct parts *p, const struct file *f, const char *config, err *e) {
    const uint64_t n = f->used + 1;
    memset(p, 0, sizeof *p);
    p->bytes = malloc(8 + n + f->n);
    gguf_writer *keys = gguf_writer_new();
    if (!p->bytes || !keys) abort();
    memcpy(p->bytes, &n, 8);
    memcpy(p->bytes + 8, f->header, f->used);
    p->bytes[8 + f->used] = '}';
    memcpy(p->bytes + 8 + n, f->data, f->n);
    int rc = safetensors_open_memory(p->bytes, 8 + n + f->n, "file", &p->file, e);
    if (!rc) rc = hf_config_read(config, strlen(config), keys, &p->config, e);
    if (!rc) rc = hf_tensors_map(&p->tensors, &p->config, &p->file, 1, e);
    gguf_writer_free(keys);
    return rc;
}

static void close_parts(struct parts *p) {
    hf_tensors_free(&p->tensors);
    safetensors_close(p->file);
    free(p->bytes);
}

/* ---- matrices ---- */

struct matrix {
    int rows, cols, bits, group; /* columns of a group; 0: all */
    int q[MAX_ROWS][MAX_COLS], zero[MAX_ROWS][MAX_COLS], of[MAX_COLS]; /* zero, scale by group */
    float scale[MAX_ROWS][MAX_COLS], value[MAX_ROWS][MAX_COLS];
};

static int n_groups(const struct matrix *m) {
    return m->group ? m->cols / m->group : 1;
}

/* Fills m; scales are what type stores. */
static void fill(struct matrix *m, struct rng *rng, bool symmetric, const char *type,
                 bool shuffled) {
    const int top = 1 << m->bits;
    for (int c = 0; c < m->cols; c++)
        m->of[c] = m->group ? c / m->group : 0;
    for (int c = m->cols - 1; shuffled && c > 0; c--) {
        const int other = (int)rng_below(rng, (uint32_t)c + 1), was = m->of[c];
        m->of[c] = m->of[other];
        m->of[other] = was;
    }
    for (int r = 0; r < m->rows; r++) {
        for (int g = 0; g < n_groups(m); g++) {
            const float s = rng_float(rng, 0.001f, 0.05f);
            m->zero[r][g] = symmetric ? top / 2 : 1 + (int)rng_below(rng, (uint32_t)top - 1);
            m->scale[r][g] = strcmp(type, "F16") == 0    ? f16_to_f32(f32_to_f16(s))
                             : strcmp(type, "BF16") == 0 ? bf16_to_f32(f32_to_bf16(s))
                                                         : s;
        }
        for (int c = 0; c < m->cols; c++) {
            m->q[r][c] = (int)rng_below(rng, (uint32_t)top);
            m->value[r][c] = (float)(m->q[r][c] - m->zero[r][m->of[c]]) * m->scale[r][m->of[c]];
        }
    }
}

static void put_scale(void *to, const char *type, int i, float f) {
    const uint16_t half = strcmp(type, "F16") == 0 ? f32_to_f16(f) : f32_to_bf16(f);
    if (strcmp(type, "F32") == 0)
        ((float *)to)[i] = f;
    else
        ((uint16_t *)to)[i] = half;
}

/* GPTQ: words along the inputs; minus: what is taken off zeros. */
static void add_gptq(struct file *f, const char *module, const struct matrix *m, const char *type,
                     int minus, bool order) {
    const int each = 32 / m->bits, groups = n_groups(m), rows = m->rows;
    uint32_t *q = add(f, module, ".qweight", "I32", (uint64_t)(m->cols / each), (uint64_t)rows);
    uint32_t *z = add(f, module, ".qzeros", "I32", (uint64_t)groups, (uint64_t)(rows / each));
    void *s = add(f, module, ".scales", type, (uint64_t)groups, (uint64_t)rows);
    int32_t *of = order ? add(f, module, ".g_idx", "I32", (uint64_t)m->cols, 0) : NULL;
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < m->cols; c++)
            q[c / each * rows + r] |= (uint32_t)m->q[r][c] << c % each * m->bits;
        for (int g = 0; g < groups; g++) {
            z[g * (rows / each) + r / each] |= (uint32_t)(m->zero[r][g] - minus)
                                               << r % each * m->bits;
            put_scale(s, type, g * rows + r, m->scale[r][g]);
        }
    }
    for (int c = 0; of && c < m->cols; c++)
        of[c] = m->of[c];
}

/* AWQ: words along the outputs: 0, 2, 4, 6, 1, 3, 5, 7 from the lowest bits on. */
static void add_awq(struct file *f, const char *module, const struct matrix *m) {
    static const int order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    const int groups = n_groups(m), words = m->rows / 8;
    uint32_t *q = add(f, module, ".qweight", "I32", (uint64_t)m->cols, (uint64_t)words);
    uint32_t *z = add(f, module, ".qzeros", "I32", (uint64_t)groups, (uint64_t)words);
    void *s = add(f, module, ".scales", "F16", (uint64_t)groups, (uint64_t)m->rows);
    for (int w = 0; w < words; w++) {
        for (int i = 0; i < 8; i++) {
            const int r = w * 8 + order[i];
            for (int c = 0; c < m->cols; c++)
                q[c * words + w] |= (uint32_t)m->q[r][c] << 4 * i;
            for (int g = 0; g < groups; g++) {
                z[g * words + w] |= (uint32_t)m->zero[r][g] << 4 * i;
                put_scale(s, "F16", g * m->rows + r, m->scale[r][g]);
            }
        }
    }
}

/* compressed-tensors: words along the inputs, of a row; zeros along the outputs. */
static void add_words(struct file *f, const char *module, const struct matrix *m, const char *type,
                      bool zeros, bool order) {
    const int each = 32 / m->bits, groups = n_groups(m), words = (m->cols + each - 1) / each;
    uint32_t *q = add(f, module, ".weight_packed", "I32", (uint64_t)m->rows, (uint64_t)words);
    int64_t *shape = add(f, module, ".weight_shape", "I64", 2, 0);
    void *s = add(f, module, ".weight_scale", type, (uint64_t)m->rows, (uint64_t)groups);
    uint32_t *z = zeros ? add(f, module, ".weight_zero_point", "I32",
                              (uint64_t)((m->rows + each - 1) / each), (uint64_t)groups)
                        : NULL;
    int32_t *of = order ? add(f, module, ".weight_g_idx", "I32", (uint64_t)m->cols, 0) : NULL;
    shape[0] = m->rows;
    shape[1] = m->cols;
    for (int r = 0; r < m->rows; r++) {
        for (int c = 0; c < m->cols; c++)
            q[r * words + c / each] |= (uint32_t)m->q[r][c] << c % each * m->bits;
        for (int g = 0; g < groups; g++) {
            if (z) z[r / each * groups + g] |= (uint32_t)m->zero[r][g] << r % each * m->bits;
            put_scale(s, type, r * groups + g, m->scale[r][g]);
        }
    }
    for (int c = 0; of && c < m->cols; c++)
        of[c] = m->of[c];
}

static void add_bytes(struct file *f, const char *module, const struct matrix *m,
                      const char *type) {
    int8_t *q = add(f, module, ".weight", "I8", (uint64_t)m->rows, (uint64_t)m->cols);
    void *s = add(f, module, ".weight_scale", type, (uint64_t)m->rows, 1);
    for (int r = 0; r < m->rows; r++) {
        for (int c = 0; c < m->cols; c++)
            q[r * m->cols + c] = (int8_t)(m->q[r][c] - 128);
        put_scale(s, type, r, m->scale[r][0]);
    }
}

/* E4M3 by its definition; 0x7f and 0xff are NaN. */
static float e4m3(uint8_t b) {
    const int e = b >> 3 & 15, m = b & 7;
    const double v = e ? ldexp(1 + m / 8.0, e - 7) : ldexp(m / 8.0, -6);
    return (float)(b & 0x80 ? -v : v);
}

/* FP8 with scales of (of_rows, of_cols) blocks. */
static void add_fp8(struct file *f, const char *module, struct matrix *m, struct rng *rng,
                    const char *suffix, int of_rows, int of_cols) {
    const int rows = (m->rows + of_rows - 1) / of_rows, cols = (m->cols + of_cols - 1) / of_cols;
    uint8_t *q = add(f, module, ".weight", "F8_E4M3", (uint64_t)m->rows, (uint64_t)m->cols);
    float *s = add(f, module, suffix, "F32", (uint64_t)rows, (uint64_t)cols);
    for (int i = 0; i < rows * cols; i++)
        s[i] = rng_float(rng, 1e-4f, 1e-2f);
    for (int r = 0; r < m->rows; r++) {
        for (int c = 0; c < m->cols; c++) {
            uint8_t b = (uint8_t)(rng_next(rng) >> 8);
            if ((b & 0x7f) == 0x7f) b = (uint8_t)(r * 8); /* 0 .. subnormal numbers too */
            if ((b & 0x7f) == 0x7f) b = 1;
            q[r * m->cols + c] = b;
            m->value[r][c] = e4m3(b) * s[r / of_rows * cols + c / of_cols];
        }
    }
}

/* NVFP4; divides: compressed-tensors. */
static void add_nvfp4(struct file *f, const char *module, struct matrix *m, struct rng *rng,
                      bool divides) {
    static const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const int groups = m->cols / 16;
    uint8_t *q = add(f, module, divides ? ".weight_packed" : ".weight", "U8", (uint64_t)m->rows,
                     (uint64_t)m->cols / 2);
    uint8_t *s = add(f, module, ".weight_scale", "F8_E4M3", (uint64_t)m->rows, (uint64_t)groups);
    float *unit = add(f, module, divides ? ".weight_global_scale" : ".weight_scale_2", "F32", 1, 0);
    add(f, module, divides ? ".input_global_scale" : ".input_scale", "F32", 1, 0);
    *unit = divides ? 2345.67f : 0.000456f;
    for (int r = 0; r < m->rows; r++) {
        for (int g = 0; g < groups; g++)
            s[r * groups + g] = (uint8_t)rng_below(rng, 0x7f);
        for (int c = 0; c < m->cols; c++) {
            const uint32_t n = rng_below(rng, 16);
            const float scale = e4m3(s[r * groups + c / 16]);
            q[(r * m->cols + c) / 2] |= (uint8_t)(n << c % 2 * 4);
            m->value[r][c] =
                (n & 8 ? -e2m1[n & 7] : e2m1[n]) * (divides ? scale / *unit : scale * *unit);
        }
    }
}

/* ---- the tests ---- */

#define CONFIG(quantization)                                                                       \
    "{\"model_type\":\"qwen3\",\"num_hidden_layers\":1,\"hidden_size\":256,\"head_dim\":32,"       \
    "\"num_attention_heads\":2,\"num_key_value_heads\":2,\"intermediate_size\":64,"                \
    "\"quantization_config\":{" quantization "}}"
#define GPTQ   "\"quant_method\":\"gptq\",\"bits\":4"
#define AWQ    "\"quant_method\":\"awq\",\"bits\":4,\"version\":\"gemm\""
#define PACKED "\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\""
#define UP     "model.layers.0.mlp.up_proj"

/* Compares a tensor, read at once and in pieces, with m's rows from first on. */
static void compare(const char *name, const struct hf_tensors *t, uint64_t index, uint64_t first,
                    const struct matrix *m, int type) {
    static const uint64_t sizes[] = {1, 3, 17, 64, 255, 4099};
    const gguf_tensor *got = &t->tensors[index];
    const struct hf_recipe *k = &t->recipes[index];
    const uint64_t cols = (uint64_t)m->cols, rows = (uint64_t)m->rows;
    CHECK_MSG(got->type == type, "%s: type %s", name, qtype_name(got->type));
    CHECK_MSG(got->dims[0] == cols && got->dims[1] == rows, "%s: shape", name);
    if (got->type != type || got->dims[0] != cols || got->dims[1] != rows) return;
    uint8_t *whole = malloc(got->bytes), *pieces = malloc(got->bytes);
    float *values = malloc(got->n_elems * sizeof *values);
    if (!whole || !pieces || !values) abort();
    hf_recipe_read(k, type, 0, got->bytes, whole);
    for (uint64_t at = 0, i = 0; at < got->bytes; i++) {
        const uint64_t n = sizes[i % 6] < got->bytes - at ? sizes[i % 6] : got->bytes - at;
        hf_recipe_read(k, type, at, n, pieces + at);
        at += n;
    }
    CHECK_MSG(memcmp(whole, pieces, got->bytes) == 0, "%s: pieces", name);
    qtype_decode(type, whole, values, got->n_elems);
    uint64_t n_wrong = 0;
    for (uint64_t i = 0; i < rows * cols; i++) {
        float want = m->value[i / cols][i % cols];
        if (type == QTYPE_F16) want = f16_to_f32(f32_to_f16(want));
        if (type == QTYPE_BF16) want = bf16_to_f32(f32_to_bf16(want));
        n_wrong += values[first * cols + i] != want;
    }
    CHECK_MSG(!n_wrong, "%s: %d of %d values", name, (int)n_wrong, (int)(rows * cols));
    free(whole);
    free(pieces);
    free(values);
}

enum form { F_GPTQ, F_GPTQ_ORDER, F_GPTQ_2, F_AWQ, F_WORDS, F_WORDS_ORDER, F_BYTES };
static const struct one {
    const char *name, *config;
    enum form form;
    int bits, group;
    bool symmetric;
    const char *scales;
    int type;
} ones[] = {
    {"gptq", CONFIG(GPTQ), F_GPTQ, 4, 128, true, "F16", QTYPE_Q4_0},
    {"gptq, zeros", CONFIG(GPTQ), F_GPTQ, 4, 32, false, "F16", QTYPE_Q5_0},
    {"gptq, g_idx in order", CONFIG(GPTQ ",\"group_size\":-1"), F_GPTQ_ORDER, 4, 0, false, "F16",
     QTYPE_Q5_0},
    {"gptq, act-order", CONFIG(GPTQ ",\"desc_act\":true"), F_GPTQ_ORDER, 4, 64, false, "F16",
     QTYPE_F16},
    {"gptq, act-order of bf16", CONFIG(GPTQ), F_GPTQ_ORDER, 4, 64, true, "BF16", QTYPE_BF16},
    {"gptq v2", CONFIG(GPTQ ",\"checkpoint_format\":\"gptq_v2\""), F_GPTQ_2, 4, 64, false, "F16",
     QTYPE_Q5_0},
    {"gptq of 8 bits", CONFIG(GPTQ), F_GPTQ, 8, 128, true, "F16", QTYPE_Q8_0},
    {"gptq of 8 bits, zeros", CONFIG(GPTQ), F_GPTQ, 8, 128, false, "F16", QTYPE_F16},
    {"gptq of 2 bits", CONFIG(GPTQ), F_GPTQ, 2, 64, false, "F16", QTYPE_Q4_0},
    {"gptq, groups of 16", CONFIG(GPTQ), F_GPTQ, 4, 16, true, "F16", QTYPE_F16},
    {"gptq, f32 scales", CONFIG(GPTQ), F_GPTQ, 4, 64, true, "F32", QTYPE_BF16},
    {"awq", CONFIG(AWQ), F_AWQ, 4, 128, false, "F16", QTYPE_Q5_0},
    {"awq, symmetric", CONFIG(AWQ), F_AWQ, 4, 64, true, "F16", QTYPE_Q4_0},
    {"w4a16", CONFIG(PACKED), F_WORDS, 4, 32, true, "BF16", QTYPE_Q4_0},
    {"w4a16, zeros", CONFIG(PACKED), F_WORDS, 4, 128, false, "BF16", QTYPE_Q5_0},
    {"w4a16, channel", CONFIG(PACKED), F_WORDS, 4, 0, true, "BF16", QTYPE_Q4_0},
    {"w4a16, order", CONFIG(PACKED), F_WORDS_ORDER, 4, 64, true, "BF16", QTYPE_BF16},
    {"w8a16", CONFIG(PACKED), F_WORDS, 8, 0, true, "BF16", QTYPE_Q8_0},
    {"w8a16, group", CONFIG(PACKED), F_WORDS, 8, 32, true, "F16", QTYPE_Q8_0},
    {"w8a16, zeros", CONFIG(PACKED), F_WORDS, 8, 64, false, "BF16", QTYPE_BF16},
    {"w8a8", CONFIG("\"quant_method\":\"compressed-tensors\",\"format\":\"int-quantized\""),
     F_BYTES, 8, 0, true, "BF16", QTYPE_Q8_0},
};

static void add_one(struct file *f, const char *module, const struct one *o,
                    const struct matrix *m) {
    switch (o->form) {
    case F_GPTQ:
    case F_GPTQ_2:
    case F_GPTQ_ORDER:
        add_gptq(f, module, m, o->scales, o->form != F_GPTQ_2, o->form == F_GPTQ_ORDER);
        break;
    case F_AWQ:
        add_awq(f, module, m);
        break;
    case F_WORDS:
    case F_WORDS_ORDER:
        add_words(f, module, m, o->scales, !o->symmetric, o->form == F_WORDS_ORDER);
        break;
    case F_BYTES:
        add_bytes(f, module, m, o->scales);
    }
}

static void integers_keep_their_values(void) {
    static struct matrix m;
    static struct file f;
    for (size_t i = 0; i < sizeof ones / sizeof ones[0]; i++) {
        const struct one *o = &ones[i];
        struct rng rng = {.state = i + 1};
        struct parts p;
        err e = {0};
        memset(&f, 0, sizeof f);
        m = (struct matrix){.rows = 64, .cols = 256, .bits = o->bits, .group = o->group};
        fill(&m, &rng, o->symmetric, o->scales,
             strstr(o->name, "order") && !strstr(o->name, "in "));
        add_one(&f, UP, o, &m);
        const int rc = open_parts(&p, &f, o->config, &e);
        CHECK_MSG(rc == 0 && p.tensors.n == 1, "%s: %s", o->name, e.msg);
        if (!rc && p.tensors.n == 1) compare(o->name, &p.tensors, 0, 0, &m, o->type);
        close_parts(&p);
    }
}

static void floats_are_rounded_once(void) {
    static const struct {
        const char *name, *config, *suffix;
        int rows, cols;
    } rows[] = {
        {"fp8", CONFIG("\"quant_method\":\"fp8\",\"weight_block_size\":[48,100]"),
         ".weight_scale_inv", 48, 100},
        {"fp8, one scale", CONFIG("\"quant_method\":\"fp8\""), ".weight_scale_inv", 64, 256},
        {"fp8, channels",
         CONFIG("\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\""),
         ".weight_scale", 1, 256},
        {"fp8, blocks",
         CONFIG("\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\","
                "\"config_groups\":{\"group_0\":{\"weights\":{\"block_structure\":[32,64]}}}"),
         ".weight_scale", 32, 64},
        {"fp8 of modelopt", CONFIG("\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\""),
         ".weight_scale", 64, 256},
        {"nvfp4 of modelopt", CONFIG("\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\""),
         NULL, 0, 0},
        {"nvfp4",
         CONFIG("\"quant_method\":\"compressed-tensors\",\"format\":\"nvfp4-pack-quantized\""),
         NULL, 1, 0},
    };
    static struct matrix m;
    static struct file f;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct rng rng = {.state = i + 1};
        struct parts p;
        err e = {0};
        memset(&f, 0, sizeof f);
        m = (struct matrix){.rows = 64, .cols = 256};
        if (rows[i].suffix)
            add_fp8(&f, UP, &m, &rng, rows[i].suffix, rows[i].rows, rows[i].cols);
        else
            add_nvfp4(&f, UP, &m, &rng, rows[i].rows);
        const int rc = open_parts(&p, &f, rows[i].config, &e);
        CHECK_MSG(rc == 0 && p.tensors.n == 1, "%s: %s", rows[i].name, e.msg);
        if (!rc && p.tensors.n == 1) compare(rows[i].name, &p.tensors, 0, 0, &m, QTYPE_BF16);
        close_parts(&p);
    }
}

/* Rows of llama's Q are ordered for pairs; experts of several matrices become one tensor, of the
 * type that holds all of them. */
static void layouts_of_the_result_hold(void) {
    static const char llama[] =
        "{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"hidden_size\":256,\"vocab_size\":8,"
        "\"num_attention_heads\":2,\"intermediate_size\":64,\"head_dim\":32,"
        "\"quantization_config\":{" AWQ "}}";
    static const char mixture[] =
        "{\"model_type\":\"qwen3_moe\",\"num_hidden_layers\":1,\"hidden_size\":256,\"head_dim\":32,"
        "\"num_attention_heads\":2,\"num_key_value_heads\":2,\"num_experts\":3,"
        "\"num_experts_per_tok\":2,\"moe_intermediate_size\":64,\"quantization_config\":{" GPTQ
        "}}";
    static struct matrix m, ordered, experts[3];
    static struct file f;
    struct rng rng = {.state = 7};
    struct parts p;
    err e = {0};
    memset(&f, 0, sizeof f);
    m = (struct matrix){.rows = 64, .cols = 256, .bits = 4, .group = 64};
    fill(&m, &rng, false, "F16", false);
    add_awq(&f, "model.layers.0.self_attn.q_proj", &m);
    ordered = m;
    for (int r = 0; r < m.rows; r++)
        memcpy(ordered.value[r], m.value[r / 32 * 32 + r % 32 / 2 + r % 2 * 16], sizeof m.value[r]);
    CHECK_MSG(open_parts(&p, &f, llama, &e) == 0 && p.tensors.n == 1, "%s", e.msg);
    if (p.tensors.n == 1) compare("q_proj", &p.tensors, 0, 0, &ordered, QTYPE_Q5_0);
    close_parts(&p);

    memset(&f, 0, sizeof f);
    for (int x = 0; x < 3; x++) {
        char module[64];
        snprintf(module, sizeof module, "model.layers.0.mlp.experts.%d.up_proj", x);
        experts[x] = (struct matrix){.rows = 64, .cols = 256, .bits = 4, .group = 64};
        fill(&experts[x], &rng, x != 1, "F16", false);
        add_gptq(&f, module, &experts[x], "F16", 1, false);
    }
    CHECK_MSG(open_parts(&p, &f, mixture, &e) == 0 && p.tensors.n == 1, "%s", e.msg);
    for (uint64_t x = 0; x < 3 && p.tensors.n == 1; x++)
        compare("expert", &p.tensors, 0, x * 64, &experts[x], QTYPE_Q5_0);
    close_parts(&p);
}

static void what_is_missing_is_named(void) {
    static const struct {
        const char *config, *without, *says;
        enum form form;
    } rows[] = {
        {CONFIG(GPTQ), ".qzeros", "no tensor 'qzeros'", F_GPTQ},
        {CONFIG(GPTQ), ".scales", "no tensor 'scales'", F_GPTQ},
        {CONFIG(PACKED), ".weight_shape", "no tensor 'weight_shape'", F_WORDS},
        {CONFIG(PACKED), ".weight_scale", "no tensor 'weight_scale'", F_WORDS},
        {CONFIG(AWQ), NULL, "not of quantization_config's method", F_WORDS},
        {CONFIG("\"quant_method\":\"awq\",\"version\":\"gemv\""), NULL, "'version' is 'gemv'",
         F_AWQ},
        {CONFIG("\"quant_method\":\"gptq\",\"checkpoint_format\":\"marlin\""), NULL,
         "'checkpoint_format' is 'marlin'", F_GPTQ},
        {CONFIG("\"quant_method\":\"bitsandbytes\""), NULL, "'quant_method' is 'bitsandbytes'",
         F_GPTQ},
        {CONFIG("\"bits\":4"), NULL, "'quant_method' is 'missing'", F_GPTQ},
        {CONFIG("\"quant_method\":\"fp8\",\"weight_block_size\":[0,128]"), NULL,
         "weight_block_size", F_GPTQ},
        {CONFIG("\"quant_method\":\"modelopt\",\"quant_algo\":\"W4A8_AWQ\""), NULL,
         "'quant_algo' is 'W4A8_AWQ'", F_GPTQ},
        {CONFIG("\"quant_method\":\"compressed-tensors\",\"format\":\"marlin-24\""), NULL,
         "'format' is 'marlin-24'", F_WORDS},
        {CONFIG(PACKED ",\"transform_config\":{\"config_groups\":{}}"), NULL, "transform_config",
         F_WORDS},
    };
    static struct matrix m;
    static struct file f;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct one o = {.form = rows[i].form, .scales = "F16"};
        struct rng rng = {.state = i + 1};
        struct parts p;
        err e = {0};
        memset(&f, 0, sizeof f);
        f.without = rows[i].without;
        m = (struct matrix){.rows = 64, .cols = 256, .bits = 4, .group = 64};
        fill(&m, &rng, false, "F16", false);
        add_one(&f, UP, &o, &m);
        const int rc = open_parts(&p, &f, rows[i].config, &e);
        CHECK_MSG(rc && strstr(e.msg, rows[i].says), "%s: %d, %s", rows[i].says, rc, e.msg);
        close_parts(&p);
    }
}

int main(void) {
    RUN(integers_keep_their_values);
    RUN(floats_are_rounded_once);
    RUN(layouts_of_the_result_hold);
    RUN(what_is_missing_is_named);
    return check_done();
}
