/* hf/packing.c - quantized weights of a folder: quantization_config, and the tensors that together
 * hold one matrix. Names and shapes, for a matrix (out, in) of module X:
 *   FP8         X.weight F8_E4M3 (out, in); X.weight_scale_inv (or X.weight_scale): one per block,
 *               output or matrix
 *   NVFP4       X.weight (compressed-tensors: X.weight_packed) U8 (out, in / 2); X.weight_scale
 *               F8_E4M3 (out, in / 16); X.weight_scale_2, a factor of all scales (or
 *               X.weight_global_scale, a divisor)
 *   AWQ         X.qweight I32 (in, out / 8); X.qzeros (groups, out / 8); X.scales (groups, out)
 *   GPTQ        X.qweight I32 (in * bits / 32, out); X.qzeros (groups, out * bits / 32); X.scales
 *               (groups, out); X.g_idx (in)
 *   integers of compressed-tensors
 *               X.weight_packed I32 (out, in * bits / 32) with X.weight_shape, or X.weight I8 (out,
 *               in); X.weight_scale (out, groups); X.weight_zero_point (out * bits / 32, groups) or
 *               I8 (out, groups); X.weight_g_idx (in)
 * Every shape is checked before a value is read. Opened on one thread; no state. */
#include "core/formats/hf/model_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 256, SHOWN_BYTES = 40, NVFP4_GROUP = 16, MAX_SIDE = 1 << 30 };

/* ---- quantization_config ---- */

static int refuse_value(struct hf_reader *r, const char *member, const char *value) {
    return err_set_param(r->e, ERR_UNSUPPORTED, "quantization_config",
                         "quantization_config: '%s' is '%.*s', which is not supported for weights "
                         "in safetensors: use the unquantized folder of the model, or a GGUF of it",
                         member, SHOWN_BYTES, value ? value : "missing");
}

/* Demands one of the texts known, or that the member is missing. */
static int check_text(struct hf_reader *r, const cJSON *q, const char *name,
                      const char *const *known) {
    const char *text = hf_text(q, name);
    for (; text && *known; known++)
        if (strcmp(text, *known) == 0) return 0;
    return text ? refuse_value(r, name, text) : 0;
}

/* [rows, columns] of the weights that share a scale. */
static int read_block(struct hf_reader *r, const cJSON *list, const char *name) {
    const cJSON *rows = cJSON_GetArrayItem(list, 0), *cols = cJSON_GetArrayItem(list, 1);
    uint64_t *out[2] = {&r->config->scale_rows, &r->config->scale_cols};
    const cJSON *items[2] = {rows, cols};
    if (!list || cJSON_IsNull(list)) return 0;
    for (int i = 0; i < 2; i++) {
        const double v = cJSON_IsNumber(items[i]) ? items[i]->valuedouble : 0;
        if (!(v >= 1 && v <= MAX_SIDE) || v != floor(v))
            return err_set_param(r->e, ERR_FORMAT, name,
                                 "quantization_config: '%s' is not two sizes of blocks", name);
        *out[i] = (uint64_t)v;
    }
    return 0;
}

static int read_compressed(struct hf_reader *r, const cJSON *q) {
    static const char *const formats[] = {"pack-quantized",
                                          "float-quantized",
                                          "naive-quantized",
                                          "int-quantized",
                                          "mixed-precision",
                                          "nvfp4-pack-quantized",
                                          NULL},
                             *const dense[] = {"dense", NULL};
    const cJSON *group, *transforms = hf_value(q, "transform_config");
    int rc = check_text(r, q, "format", formats);
    if (!rc) rc = check_text(r, hf_value(q, "sparsity_config"), "format", dense);
    if (rc) return rc;
    if (transforms && transforms->child)
        return refuse_value(r, "transform_config", "a rotation of activations");
    cJSON_ArrayForEach(group, hf_value(q, "config_groups")) {
        const cJSON *weights = cJSON_IsObject(group) ? hf_value(group, "weights") : NULL;
        if ((rc = check_text(r, group, "format", formats)) ||
            (weights &&
             (rc = read_block(r, hf_value(weights, "block_structure"), "block_structure"))))
            return rc;
    }
    return 0;
}

int hf_read_packing(struct hf_reader *r) {
    static const char *const gemm[] = {"gemm", "GEMM", NULL},
                             *const gptq[] = {"gptq", "gptq_v2", NULL},
                             *const modelopt[] = {"NVFP4", "FP8", NULL};
    const cJSON *q = hf_value(r->root, "quantization_config");
    struct hf_config *c = r->config;
    if (!q) q = hf_value(r->json, "quantization_config");
    if (!q) return 0;
    const char *method = cJSON_IsObject(q) ? hf_text(q, "quant_method") : NULL;
    if (!method) return refuse_value(r, "quant_method", NULL);
    if (strcmp(method, "mxfp4") == 0 && (c->family->traits & HF_GPT_OSS)) return 0;
    if (strcmp(method, "fp8") == 0) {
        c->packing = HF_PACKING_FP8;
        return read_block(r, hf_value(q, "weight_block_size"), "weight_block_size");
    }
    if (strcmp(method, "awq") == 0) {
        int rc = check_text(r, q, "version", gemm);
        c->packing = HF_PACKING_AWQ;
        return rc ? rc : check_text(r, q, "format", gemm);
    }
    if (strcmp(method, "gptq") == 0) {
        const char *format = hf_text(q, "checkpoint_format");
        c->packing = HF_PACKING_GPTQ;
        c->zeros_plus_1 = !format || strcmp(format, "gptq") == 0;
        return check_text(r, q, "checkpoint_format", gptq);
    }
    if (strcmp(method, "modelopt") == 0 || strcmp(method, "modelopt_fp4") == 0) {
        c->packing = HF_PACKING_MODELOPT;
        return check_text(r, q, "quant_algo", modelopt);
    }
    if (strcmp(method, "compressed-tensors") == 0) {
        c->packing = HF_PACKING_COMPRESSED;
        return read_compressed(r, q);
    }
    return refuse_value(r, "quant_method", method);
}

/* ---- the tensors of one matrix ---- */

struct search {
    const struct hf_finder *f;
    const char *path;
    const struct safetensor *s; /* the one with the values */
    size_t module;              /* bytes of X in its name */
    struct hf_packed k;
};

static int refuse(const struct search *q, const struct safetensor *s, int code, const char *what) {
    char shown[GGUF_NAME_SHOWN_BYTES + 4];
    gguf_show_name(shown, s->name);
    return err_set_param(q->f->e, code, shown, "%s: tensor '%s' (%s) %s", q->path, shown,
                         s->type_name, what);
}

static const struct safetensor *find(const struct search *q, const char *suffix) {
    char name[NAME_BYTES];
    const int n = snprintf(name, sizeof name, "%.*s%s", (int)q->module, q->s->name.data, suffix);
    const struct safetensor *found = NULL;
    if (n >= (int)sizeof name) return NULL;
    for (uint32_t i = 0; i < q->f->n_files && !found; i++)
        found = safetensors_find(q->f->files[i], (gguf_str){name, (uint64_t)n});
    return found;
}

static int need(const struct search *q, const char *suffix, const struct safetensor **out) {
    char what[96];
    *out = find(q, suffix);
    if (*out) return 0;
    snprintf(what, sizeof what, "has no tensor '%s' beside it", suffix + 1);
    return refuse(q, q->s, ERR_FORMAT, what);
}

static bool has_shape(const struct safetensor *s, uint64_t rows, uint64_t cols) {
    return s->n_dims == 2 && s->dims[0] == rows && s->dims[1] == cols;
}

static bool is_scale(const struct safetensor *s) {
    return s->type == ST_F32 || s->type == ST_F16 || s->type == ST_BF16;
}

/* One number: a factor of all scales. */
static int read_unit(struct search *q, const struct safetensor *s) {
    if (!is_scale(s) || s->n_elems != 1) return refuse(q, s, ERR_FORMAT, "is not one number");
    q->k.unit = hf_scale_at(s, 0);
    return isfinite(q->k.unit) && q->k.unit > 0
               ? 0
               : refuse(q, s, ERR_FORMAT, "is not a positive number");
}

/* Scales (n_rows, n) of groups of columns, or of blocks if `blocks` says their size; fewer
 * dimensions: of rows, or one of the matrix. */
static int use_scales(struct search *q, const struct safetensor *s, bool blocks) {
    struct hf_packed *k = &q->k;
    const uint64_t rows = s->n_dims > 0 ? s->dims[0] : 1, cols = s->n_dims > 1 ? s->dims[1] : 1;
    const uint64_t of_rows = q->f->config->scale_rows, of_cols = q->f->config->scale_cols;
    if (!is_scale(s)) return refuse(q, s, ERR_UNSUPPORTED, "has a type that is not one of scales");
    if (s->n_dims > 2 || !s->n_elems) return refuse(q, s, ERR_FORMAT, "is not a list of scales");
    k->scales = s;
    k->group_rows = 1;
    k->group_cols = k->n_cols;
    k->n_groups = 1;
    if (s->n_elems == 1) return 0;
    k->scale_row = cols;
    if (rows == k->n_rows && k->n_cols % cols == 0 && !(blocks && of_cols && cols > 1)) {
        k->n_groups = cols;
        k->group_cols = k->n_cols / cols;
        k->scale_col = 1;
        return 0;
    }
    if (!blocks || !of_cols || rows != (k->n_rows - 1) / of_rows + 1 ||
        cols != (k->n_cols - 1) / of_cols + 1)
        return refuse(q, s, ERR_FORMAT, "has another number of scales than its matrix needs");
    k->group_rows = of_rows;
    k->group_cols = of_cols;
    k->n_groups = cols;
    k->scale_col = 1;
    return 0;
}

/* The group of each input, if they are not in order. */
static int use_groups(struct search *q, const struct safetensor *s) {
    struct hf_packed *k = &q->k;
    bool in_order = true;
    if (!s) return 0;
    if (s->type != ST_I32 || s->n_elems != k->n_cols)
        return refuse(q, s, ERR_FORMAT, "is not one I32 for each input");
    for (uint64_t c = 0; c < k->n_cols; c++) {
        int32_t g;
        memcpy(&g, s->data + 4 * c, sizeof g);
        if (g < 0 || (uint64_t)g >= k->n_groups)
            return refuse(q, s, ERR_FORMAT, "names a group that has no scale");
        in_order = in_order && (uint64_t)g == c / k->group_cols;
    }
    if (!in_order) k->groups = s;
    return 0;
}

static int find_fp8(struct search *q) {
    const struct safetensor *s = find(q, ".weight_scale_inv");
    q->k.kind = HF_E4M3;
    q->k.row_bytes = q->k.n_cols;
    int rc = s ? 0 : need(q, ".weight_scale", &s);
    return rc ? rc : use_scales(q, s, true);
}

static int find_nvfp4(struct search *q) {
    struct hf_packed *k = &q->k;
    const struct safetensor *unit, *scales = NULL;
    k->kind = HF_E2M1;
    k->divides = q->f->config->packing == HF_PACKING_COMPRESSED;
    k->row_bytes = k->n_cols;
    k->n_cols *= 2;
    int rc = need(q, ".weight_scale", &scales);
    if (!rc) rc = need(q, k->divides ? ".weight_global_scale" : ".weight_scale_2", &unit);
    if (!rc) rc = read_unit(q, unit);
    if (rc) return rc;
    if (k->n_cols % NVFP4_GROUP || scales->type != ST_F8_E4M3 ||
        !has_shape(scales, k->n_rows, k->n_cols / NVFP4_GROUP))
        return refuse(q, scales, ERR_FORMAT, "is not one F8_E4M3 for 16 weights");
    k->scales = scales;
    k->group_rows = 1;
    k->group_cols = NVFP4_GROUP;
    k->n_groups = k->scale_row = k->n_cols / NVFP4_GROUP;
    k->scale_col = 1;
    return 0;
}

/* AWQ and GPTQ: scales (groups, out). */
static int find_columns(struct search *q) {
    struct hf_packed *k = &q->k;
    const bool awq = q->f->config->packing == HF_PACKING_AWQ;
    const struct safetensor *zeros = NULL, *scales = NULL;
    int rc = need(q, ".scales", &scales);
    if (!rc) rc = need(q, ".qzeros", &zeros);
    if (rc) return rc;
    if (q->s->type != ST_I32 || zeros->type != ST_I32)
        return refuse(q, q->s, ERR_UNSUPPORTED, "or its zeros are not I32");
    if (!is_scale(scales) || scales->n_dims != 2 || !scales->n_elems)
        return refuse(q, scales, ERR_FORMAT, "is not a matrix of scales");
    const uint64_t out = scales->dims[1], groups = scales->dims[0],
                   words = zeros->n_dims == 2 ? zeros->dims[1] : 0;
    const uint64_t bits = words && words < MAX_SIDE ? words * 32 / out : 0;
    if (bits != 4 && (awq || (bits != 2 && bits != 8)))
        return refuse(q, zeros, ERR_UNSUPPORTED,
                      awq ? "is not of 4 bits" : "is not of 2, 4 or 8 bits");
    k->kind = HF_INTEGERS;
    k->bits = (uint32_t)bits;
    k->order = awq ? HF_ORDER_AWQ : HF_ORDER_GPTQ;
    k->zero_plus = !awq && q->f->config->zeros_plus_1;
    k->n_rows = out;
    k->n_cols = awq ? q->s->dims[0] : q->s->dims[0] * (32 / bits);
    if (out * bits % 32 || !has_shape(zeros, groups, words) || words != out * bits / 32 ||
        q->s->dims[1] != (awq ? words : out) || k->n_cols % groups)
        return refuse(q, q->s, ERR_FORMAT, "does not fit its scales and zeros");
    k->scales = scales;
    k->zeros = zeros;
    k->group_rows = k->scale_row = 1;
    k->n_groups = groups;
    k->group_cols = k->n_cols / groups;
    k->scale_col = out;
    return awq ? 0 : use_groups(q, find(q, ".g_idx"));
}

/* Zero points of compressed-tensors. */
static int use_zeros(struct search *q, const struct safetensor *s) {
    struct hf_packed *k = &q->k;
    if (!s) return 0;
    const uint64_t words = (k->n_rows - 1) / (32 / k->bits) + 1;
    const bool bytes =
        s->type == ST_I8 && s->n_elems == k->n_rows * k->n_groups && k->scale_row == k->n_groups;
    if (!bytes && !(s->type == ST_I32 && has_shape(s, words, k->n_groups)))
        return refuse(q, s, ERR_FORMAT, "does not fit its scales");
    k->zeros = s;
    return 0;
}

static int find_integers(struct search *q, bool words) {
    struct hf_packed *k = &q->k;
    const struct safetensor *shape = NULL, *scales = NULL;
    uint64_t dims[2] = {k->n_rows, k->n_cols};
    int rc = need(q, ".weight_scale", &scales);
    if (!rc && words) rc = need(q, ".weight_shape", &shape);
    if (rc) return rc;
    k->kind = HF_INTEGERS;
    k->bits = 8;
    k->row_bytes = words ? k->n_cols * 4 : k->n_cols;
    if (words) {
        if ((shape->type != ST_I64 && shape->type != ST_I32) || shape->n_elems != 2)
            return refuse(q, shape, ERR_FORMAT, "is not a shape");
        for (unsigned i = 0; i < 2; i++) {
            dims[i] = 0;
            memcpy(&dims[i], shape->data + shape->bytes / 2 * i, shape->bytes / 2);
        }
        const uint64_t bits = dims[1] && dims[1] < MAX_SIDE ? k->n_cols * 32 / dims[1] : 0;
        k->bits = (uint32_t)bits;
        if ((bits != 2 && bits != 4 && bits != 8) || dims[1] * bits != k->n_cols * 32)
            return refuse(q, q->s, ERR_UNSUPPORTED, "is not of 2, 4 or 8 bits by its weight_shape");
        if (dims[0] != k->n_rows) return refuse(q, shape, ERR_FORMAT, "is not its tensor's shape");
        k->n_cols = dims[1];
    }
    rc = use_scales(q, scales, false);
    if (!rc) rc = use_zeros(q, find(q, ".weight_zero_point"));
    return rc ? rc : use_groups(q, find(q, ".weight_g_idx"));
}

/* ---- by name ---- */

static bool ends_with(gguf_str s, const char *end) {
    const size_t n = strlen(end);
    return s.len > n && memcmp(s.data + s.len - n, end, n) == 0;
}

static bool belongs_to_another(const struct safetensor *s) {
    static const char *const ends[] = {
        ".qzeros",           ".scales",          ".g_idx",          ".weight_scale",
        ".weight_scale_inv", ".weight_shape",    ".weight_scale_2", ".weight_zero_point",
        ".weight_g_idx",     ".input_scale",     ".output_scale",   ".weight_global_scale",
        ".k_scale",          ".v_scale",         ".q_scale",        ".input_global_scale",
        ".activation_scale", ".input_zero_point"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (ends_with(s->name, ends[i])) return true;
    return false;
}

static int finish(struct search *q, const struct safetensor **out) {
    static const char weight[] = ".weight";
    struct hf_packed *k = arena_alloc(q->f->memory, sizeof *k);
    struct safetensor *s = arena_alloc(q->f->memory, sizeof *s);
    char name[NAME_BYTES];
    const int n = snprintf(name, sizeof name, "%.*s%s", (int)q->module, q->s->name.data, weight);
    const char *copy = arena_strndup(q->f->memory, name, strlen(name));
    if (!k || !s || !copy) return err_no_memory(q->f->e);
    if (n >= (int)sizeof name) return refuse(q, q->s, ERR_UNSUPPORTED, "has too long a name");
    *k = q->k;
    k->each_log2 = k->bits == 2 ? 4 : k->bits == 4 ? 3 : 2;
    k->type = hf_packed_type(k);
    *s = (struct safetensor){.name = {copy, (uint64_t)n},
                             .type = ST_PACKED,
                             .type_name = q->s->type_name,
                             .n_dims = 2,
                             .dims = {k->n_rows, k->n_cols},
                             .n_elems = k->n_rows * k->n_cols,
                             .packed = k};
    *out = s;
    return 0;
}

int hf_find_packed(const struct hf_finder *f, const char *path, const struct safetensor *s,
                   const struct safetensor **out) {
    static const char *const ends[] = {".weight_packed", ".qweight", ".weight"};
    const enum hf_packing packing = f->config->packing;
    struct search q = {.f = f, .path = path, .s = s};
    unsigned end = 0;
    int rc;
    *out = s;
    if (packing == HF_PACKING_NONE) return 0;
    while (end < 3 && !ends_with(s->name, ends[end]))
        end++;
    const bool plain = s->type == ST_F32 || s->type == ST_F16 || s->type == ST_BF16;
    if (end == 3 && belongs_to_another(s)) *out = NULL;
    if (end == 3 || (end == 2 && plain)) return 0;
    if (s->n_dims != 2 || !s->n_elems || s->dims[0] > MAX_SIDE || s->dims[1] > MAX_SIDE)
        return refuse(&q, s, ERR_UNSUPPORTED, "is not a matrix: only those can be quantized");
    q.module = s->name.len - strlen(ends[end]);
    q.k = (struct hf_packed){.values = s, .n_rows = s->dims[0], .n_cols = s->dims[1], .unit = 1};
    if (end == 1 && (packing == HF_PACKING_AWQ || packing == HF_PACKING_GPTQ))
        rc = find_columns(&q);
    else if (end == 0 && packing == HF_PACKING_COMPRESSED && s->type == ST_I32)
        rc = find_integers(&q, true);
    else if (end == 2 && packing == HF_PACKING_COMPRESSED && s->type == ST_I8)
        rc = find_integers(&q, false);
    else if (s->type == ST_U8 && (end == 0 ? packing == HF_PACKING_COMPRESSED
                                           : end == 2 && packing == HF_PACKING_MODELOPT))
        rc = find_nvfp4(&q);
    else if (end == 2 && s->type == ST_F8_E4M3)
        rc = find_fp8(&q);
    else
        rc = refuse(&q, s, ERR_UNSUPPORTED, "is not of quantization_config's method");
    return rc ? rc : finish(&q, out);
}
