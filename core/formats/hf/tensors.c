/* hf/tensors.c - maps the tensors of a folder's files to tensors of GGUF. A name that is not in the
 * tables is refused; shapes are checked where the bytes depend on them. Owns the index. */
#include "core/formats/hf/tensors_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY_MAX = 1 << 30 };

/* ---- entries ---- */

int hf_bad_shape(const struct hf_mapper *m, const struct safetensor *s, const char *wanted) {
    char name[GGUF_NAME_SHOWN_BYTES + 4], shape[96] = "";
    size_t used = 0;
    gguf_show_name(name, s->name);
    for (uint32_t d = 0; d < s->n_dims && used < sizeof shape; d++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%" PRIu64, d ? ", " : "",
                                 s->dims[d]);
    return err_set_param(m->e, ERR_FORMAT, name, "%s: tensor '%s' is %s (%s), expected %s", m->path,
                         name, s->type_name, shape, wanted);
}

int hf_add_entry(struct hf_mapper *m, const char *name, uint64_t *index) {
    if (m->n == m->capacity) {
        uint64_t capacity = m->capacity ? m->capacity * 2 : 256;
        struct hf_entry *grown = mem_resize(m->entries, capacity, sizeof *grown);
        if (!grown) return err_no_memory(m->e);
        m->entries = grown;
        m->capacity = capacity;
    }
    struct hf_entry *entry = &m->entries[m->n];
    memset(entry, 0, sizeof *entry);
    entry->tensor.name.len = strlen(name);
    entry->tensor.name.data = arena_strndup(m->t->memory, name, strlen(name));
    entry->recipe.step = entry->recipe.n_mats = 1;
    entry->order = m->order | (uint64_t)LATE << 62;
    if (!entry->tensor.name.data) return err_no_memory(m->e);
    *index = m->n++;
    return 0;
}

int hf_set_sources(struct hf_mapper *m, struct hf_entry *entry, const struct safetensor *s,
                   uint32_t n) {
    entry->recipe.sources = arena_alloc(m->t->memory, n * sizeof *entry->recipe.sources);
    if (!entry->recipe.sources) return err_no_memory(m->e);
    entry->recipe.sources[0] = s;
    entry->recipe.n_sources = 1;
    return 0;
}

void hf_set_dims(struct hf_entry *entry, uint32_t n_dims) {
    const struct hf_recipe *k = &entry->recipe;
    gguf_tensor *t = &entry->tensor;
    uint64_t sizes[3] = {k->n_cols, k->n_rows, k->n_mats};
    t->n_dims = n_dims;
    for (int d = 0; d < 4; d++)
        t->dims[d] = d < 3 ? sizes[d] : 1;
    t->n_elems = k->n_cols * k->n_rows * k->n_mats;
}

/* Tensors that GGUF stores as F32: vectors, tensors other than weights, the experts' gates, and
 * convolutions. The last two only files have so: in place they are read as they are. */
static bool wants_f32(const gguf_tensor *t, bool as_file) {
    static const char *const small[] = {"ffn_gate_inp.weight",   "ffn_gate_inp_shexp.weight",
                                        "ssm_conv1d.weight",     "ssm_norm.weight",
                                        "shortconv.conv.weight", "ssm_conv1d_q.weight",
                                        "ssm_conv1d_k.weight",   "ssm_conv1d_v.weight",
                                        "position_embd.weight",  "token_types.weight"};
    enum { N_SMALL = sizeof small / sizeof small[0], N_OF_FILES = 2 };
    static const char weight[] = ".weight";
    size_t n = sizeof weight - 1;
    if (t->n_dims == 1 || t->name.len < n || memcmp(t->name.data + t->name.len - n, weight, n) != 0)
        return true;
    for (size_t i = 0; i < N_SMALL - (as_file ? 0 : N_OF_FILES); i++) {
        n = strlen(small[i]);
        if (t->name.len >= n && memcmp(t->name.data + t->name.len - n, small[i], n) == 0)
            return true;
    }
    return false;
}

/* ---- one layout each ---- */

/* Maps a tensor of 1 to 3 dimensions whose rows are copied or permuted. */
static int map_plain(struct hf_mapper *m, const struct safetensor *s, const char *name,
                     uint32_t permuted_heads) {
    uint64_t i;
    if (s->n_dims < 1 || s->n_dims > 3) return hf_bad_shape(m, s, "1 to 3 dimensions");
    int rc = hf_add_entry(m, name, &i);
    if (!rc) rc = hf_set_sources(m, &m->entries[i], s, 1);
    if (rc) return rc;
    struct hf_recipe *k = &m->entries[i].recipe;
    k->n_cols = s->dims[s->n_dims - 1];
    k->n_rows = s->n_dims > 1 ? s->dims[s->n_dims - 2] : 1;
    k->n_mats = s->n_dims > 2 ? s->dims[0] : 1;
    hf_set_dims(&m->entries[i], s->n_dims);
    if (permuted_heads) {
        if (s->n_dims == 1) { /* a bias is permuted like the rows of its matrix */
            k->n_rows = k->n_cols;
            k->n_cols = 1;
        }
        if (s->n_dims > 2 || k->n_rows % (2 * (uint64_t)permuted_heads))
            return hf_bad_shape(m, s, "rows for whole heads");
        k->permuted_heads = permuted_heads;
    }
    k->src_rows = k->n_rows;
    k->src_cols = k->n_cols;
    return 0;
}

/* All elements as a vector (n_cols 0), or as a matrix of n_cols columns. */
static int map_flat(struct hf_mapper *m, const struct safetensor *s, const char *name,
                    uint64_t n_cols) {
    uint64_t i;
    int rc = hf_add_entry(m, name, &i);
    if (!rc) rc = hf_set_sources(m, &m->entries[i], s, 1);
    if (rc) return rc;
    struct hf_recipe *k = &m->entries[i].recipe;
    k->n_cols = k->src_cols = n_cols ? n_cols : s->n_elems;
    k->n_rows = k->src_rows = s->n_elems / k->n_cols;
    hf_set_dims(&m->entries[i], n_cols ? 2 : 1);
    return 0;
}

static int map_convolution(struct hf_mapper *m, const struct safetensor *s, const char *name) {
    if (s->n_dims != 3 || s->dims[1] != 1)
        return hf_bad_shape(m, s, "a convolution of each channel by itself");
    return map_flat(m, s, name, s->dims[2]);
}

/* A vector as a matrix of n_rows rows. */
static int map_rows(struct hf_mapper *m, const struct safetensor *s, const char *name,
                    uint64_t n_rows) {
    if (s->n_dims != 1 || !n_rows || s->dims[0] % n_rows)
        return hf_bad_shape(m, s, "a vector for whole groups");
    return map_flat(m, s, name, s->dims[0] / n_rows);
}

static int map_one_row(struct hf_mapper *m, const struct safetensor *s, const char *name) {
    if (s->n_dims != 2 || s->dims[0] != 1) return hf_bad_shape(m, s, "one row");
    return map_flat(m, s, name, 0);
}

/* Without the rows of padding. */
static int map_positions(struct hf_mapper *m, const struct safetensor *s, const char *name) {
    const uint64_t first = m->config->first_position;
    if (s->n_dims != 2 || s->dims[0] <= first) return hf_bad_shape(m, s, "rows for all positions");
    int rc = map_plain(m, s, name, 0);
    if (rc) return rc;
    struct hf_entry *entry = &m->entries[m->n - 1];
    entry->recipe.first = first;
    entry->recipe.n_rows = s->dims[0] - first;
    hf_set_dims(entry, 2);
    return 0;
}

static int map_qkv_by_head(struct hf_mapper *m, const struct safetensor *s, const char *name) {
    const struct hf_config *c = m->config;
    if (s->n_dims > 2 || s->dims[0] != 3 * (uint64_t)c->n_heads * c->head_dim)
        return hf_bad_shape(m, s, "rows of Q, K and V of each head");
    int rc = map_plain(m, s, name, 0);
    if (rc) return rc;
    struct hf_recipe *k = &m->entries[m->n - 1].recipe;
    k->head = c->head_dim;
    k->n_groups = c->n_heads;
    k->n_share = 3;
    k->by_cols = s->n_dims == 1;
    return 0;
}

/* A matrix whose file has inputs for rows. */
static int map_turned(struct hf_mapper *m, const struct safetensor *s, const char *name) {
    uint64_t i;
    if (s->n_dims != 2) return hf_bad_shape(m, s, "a matrix");
    int rc = hf_add_entry(m, name, &i);
    if (!rc) rc = hf_set_sources(m, &m->entries[i], s, 1);
    if (rc) return rc;
    struct hf_recipe *k = &m->entries[i].recipe;
    k->src_rows = k->n_cols = s->dims[0];
    k->src_cols = k->n_rows = s->dims[1];
    k->transposed = true;
    hf_set_dims(&m->entries[i], 2);
    return 0;
}

static int map_halves(struct hf_mapper *m, const struct safetensor *s, uint32_t layer) {
    static const char *const names[2][2] = {{"ffn_gate.weight", "ffn_up.weight"},
                                            {"ffn_gate_shexp.weight", "ffn_up_shexp.weight"}};
    char name[NAME_BYTES];
    if (s->n_dims != 2 || s->dims[0] % 2) return hf_bad_shape(m, s, "gate and up");
    for (uint64_t half = 0; half < 2; half++, m->order++) {
        snprintf(name, sizeof name, "blk.%" PRIu32 ".%s", layer,
                 names[m->config->n_experts > 0][half]);
        int rc = map_plain(m, s, name, 0);
        if (rc) return rc;
        struct hf_entry *entry = &m->entries[m->n - 1];
        entry->recipe.n_rows = s->dims[0] / 2;
        entry->recipe.first = half * entry->recipe.n_rows;
        hf_set_dims(entry, 2);
    }
    return 0;
}

/* Rows of each head's K, then V, over latents: K transposed as attn_k_b (n_heads, n_latent,
 * k_nope), V as attn_v_b (n_heads, v_dim, n_latent). */
static int map_latent_kv(struct hf_mapper *m, const struct safetensor *s, uint32_t layer) {
    const struct hf_config *c = m->config;
    const uint64_t rows = (uint64_t)c->k_nope + c->v_dim;
    char name[NAME_BYTES];
    if (s->n_dims != 2 || s->dims[0] != c->n_heads * rows)
        return hf_bad_shape(m, s, "the heads of config.json");
    for (int v = 0; v < 2; v++, m->order++) {
        uint64_t i;
        snprintf(name, sizeof name, "blk.%" PRIu32 ".attn_%c_b.weight", layer, v ? 'v' : 'k');
        int rc = hf_add_entry(m, name, &i);
        if (!rc) rc = hf_set_sources(m, &m->entries[i], s, 1);
        if (rc) return rc;
        struct hf_recipe *k = &m->entries[i].recipe;
        k->n_mats = c->n_heads;
        k->src_rows = rows;
        k->src_cols = s->dims[1];
        k->n_rows = v ? c->v_dim : s->dims[1];
        k->n_cols = v ? s->dims[1] : c->k_nope;
        k->first = v ? c->k_nope : 0;
        k->transposed = !v;
        hf_set_dims(&m->entries[i], 3);
    }
    return 0;
}

/* ---- names ---- */

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static int map_row(struct hf_mapper *m, const struct safetensor *s, const struct name_row *row,
                   uint32_t layer, uint64_t expert) {
    char name[NAME_BYTES];
    const struct hf_config *c = m->config;
    bool permuted = c->family->traits & HF_PERMUTED;
    int rc;
    snprintf(name, sizeof name, "blk.%" PRIu32 ".%s", layer, row->to ? row->to : "");
    switch (row->layout) {
    case AS_IS:
        return map_plain(m, s, name, 0);
    case ROWS_OF_Q:
        return map_plain(m, s, name, permuted ? c->n_heads : 0);
    case ROWS_OF_K:
        return map_plain(m, s, name, permuted ? c->n_kv_heads : 0);
    case CONVOLUTION:
        return map_convolution(m, s, name);
    case LATENT_KV:
        return map_latent_kv(m, s, layer);
    case QKV_BY_HEAD:
        return map_qkv_by_head(m, s, name);
    case COLUMN:
    case DECAY:
    case DECAY_COLUMN:
    case DECAY_OF_HEADS:
        if (row->layout == DECAY && s->n_dims != 1) return hf_bad_shape(m, s, "a vector");
        rc = row->layout == DECAY            ? map_flat(m, s, name, 0)
             : row->layout == DECAY_OF_HEADS ? map_flat(m, s, name, 1)
                                             : map_rows(m, s, name, s->dims[0]);
        if (!rc) m->entries[m->n - 1].recipe.negative_exp = row->layout != COLUMN;
        return rc;
    case FLAT:
        return map_flat(m, s, name, 0);
    case GROUPS:
        return map_rows(m, s, name, c->n_norm_groups);
    case ONE_ROW:
        return map_one_row(m, s, name);
    case POSITIONS:
        return map_positions(m, s, name);
    case SHARED_DOWN:
        snprintf(name, sizeof name, "blk.%" PRIu32 ".ffn_down%s.weight", layer,
                 c->n_experts ? "_shexp" : "");
        return map_plain(m, s, name, 0);
    case HALVES:
        return map_halves(m, s, layer);
    case STACKED:
        return hf_map_expert(m, s, row, layer, expert);
    case GATE_UP:
        return hf_map_gate_up(m, s, layer, false, false);
    case OSS_GATE_UP:
        return hf_map_gate_up(m, s, layer, true, true);
    case OSS_DOWN:
        return hf_map_oss_down(m, s, layer);
    case GATE_UP_TURNED:
        return hf_map_gate_up(m, s, layer, true, false);
    case TURNED:
        return map_turned(m, s, name);
    case OSS_GATE_UP_BIAS:
        return hf_map_oss_bias(m, s, layer);
    case OSS_GATE_UP_BLOCKS:
        return hf_map_mxfp4_gate_up(m, s, layer, false);
    case OSS_GATE_UP_SCALES:
        return hf_map_mxfp4_gate_up(m, s, layer, true);
    case OSS_DOWN_BLOCKS:
        return hf_map_mxfp4(m, s, layer, PART_DOWN, false, false);
    case OSS_DOWN_SCALES:
        return hf_map_mxfp4(m, s, layer, PART_DOWN, false, true);
    }
    return 0;
}

/* Gives V heads the places that they have in GGUF files. */
static int tile_v_heads(struct hf_mapper *m, const struct safetensor *s) {
    enum { ROWS, COLS };
    const struct hf_config *c = m->config;
    const uint64_t d = c->state_dim, qk = 2 * c->n_k_heads * d;
    const struct {
        const char *name;
        uint64_t at, head;
        int axis;
    } rows[] = {{"attn_qkv.weight", qk, d, ROWS},   {"attn_gate.weight", 0, d, ROWS},
                {"ssm_alpha.weight", 0, 1, ROWS},   {"ssm_beta.weight", 0, 1, ROWS},
                {"ssm_conv1d.weight", qk, d, ROWS}, {"ssm_a", 0, 1, COLS},
                {"ssm_dt.bias", 0, 1, COLS},        {"ssm_out.weight", 0, d, COLS}};
    struct hf_entry *entry = &m->entries[m->n - 1];
    struct hf_recipe *k = &entry->recipe;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!ends_with(entry->tensor.name.data, rows[i].name)) continue;
        uint64_t n = rows[i].axis == COLS ? k->n_cols : k->n_rows;
        if (n != rows[i].at + c->n_v_heads * rows[i].head)
            return hf_bad_shape(m, s, "the heads of config.json");
        k->regroup_at = rows[i].at;
        k->head = rows[i].head;
        k->n_groups = c->n_k_heads;
        k->n_share = c->n_v_heads / c->n_k_heads;
        k->by_cols = rows[i].axis == COLS;
    }
    return 0;
}

/* Takes the digits at *p, at most 6 of them. */
static bool take_number(const char **p, uint64_t *v) {
    int n = 0;
    *v = 0;
    for (; **p >= '0' && **p <= '9' && n < 7; (*p)++, n++)
        *v = *v * 10 + (uint64_t)(**p - '0');
    return n > 0 && n < 7;
}

static bool is_vision(const struct hf_config *c, const char *name) {
    if (!(c->family->traits & HF_IMAGES)) return false;
    if (c->family->traits & HF_GEMMA4 && (hf_begins_with(name, "model.embed_vision.") ||
                                          hf_begins_with(name, "model.vision_embedder.")))
        return true;
    if (c->family->traits & HF_LLAMA4 && strstr(name, "vision_model.")) return true;
    if (c->query_factor > 0 &&
        (strstr(name, "vision_adapter.") || strstr(name, "vision_projection.")))
        return true;
    return strstr(name, "vision_tower.") || strstr(name, "multi_modal_projector.") ||
           hf_begins_with(name, "mm_projector.") || hf_begins_with(name, "model.visual.") ||
           hf_begins_with(name, "visual.");
}

static bool is_audio(const struct hf_config *c, const char *name) {
    return c->family->traits & HF_GEMMA4 && (hf_begins_with(name, "model.audio_tower.") ||
                                             hf_begins_with(name, "model.embed_audio."));
}

/* Is the tensor of a layer that predicts further tokens? */
static bool predicts_further(const struct hf_config *c, const char *name) {
    const char *p = name + strlen("model.layers.");
    uint64_t layer;
    if (!(c->family->traits & (HF_DELTA_NET | HF_PREDICTS | HF_MLA))) return false;
    if (hf_begins_with(name, "mtp.") || hf_begins_with(name, "model.mtp.")) return true;
    if (!(c->family->traits & (HF_PREDICTS | HF_MLA))) return false;
    if (hf_begins_with(name, "model.mtp_")) return true; /* ERNIE 4.5 */
    return hf_begins_with(name, "model.layers.") && take_number(&p, &layer) && *p == '.' &&
           layer >= c->n_layers && layer - c->n_layers < c->n_predicting;
}

/* Is the tensor not needed? Vision and audio parts, layers that predict further tokens, frequencies
 * in old files, and a head that the family does not read. */
static bool is_skipped(struct hf_mapper *m, const char *name) {
    const struct hf_config *c = m->config;
    bool predicts = predicts_further(c, name);
    bool vision = is_vision(c, name), audio = is_audio(c, name);
    m->t->n_vision += vision;
    m->t->n_audio += audio;
    m->t->n_mtp += predicts;
    if (vision || audio || predicts || hf_gemma4_skips(c, name) || hf_encoder_skips(c, name))
        return true;
    if ((c->family->traits & HF_EMBED_HEAD) && strcmp(name, "lm_head.weight") == 0) return true;
    const bool mask = ends_with(name, ".attention.bias") || ends_with(name, ".masked_bias") ||
                      (c->family->traits & HF_OLDER && ends_with(name, ".attn.bias"));
    return ends_with(name, ".rotary_emb.inv_freq") || mask;
}

/* "mlp.experts.12.w" -> "mlp.experts.*.w" and 12. */
static void split_expert(const char *rest, char out[NAME_BYTES], uint64_t *expert) {
    const char *found = strstr(rest, ".experts."), *p = found ? found + strlen(".experts.") : NULL;
    snprintf(out, NAME_BYTES, "%s", rest);
    if (p && take_number(&p, expert) && *p == '.')
        snprintf(out, NAME_BYTES, "%.*s.experts.*%s", (int)(found - rest), rest, p);
}

static int refuse_name(struct hf_mapper *m, const struct safetensor *s, const char *why) {
    char shown[GGUF_NAME_SHOWN_BYTES + 4];
    gguf_show_name(shown, s->name);
    return err_set_param(m->e, ERR_UNSUPPORTED, shown, "%s: tensor '%s' %s", m->path, shown, why);
}

/* A multiplier for the tensor that was mapped last. */
static int set_scale(struct hf_mapper *m, const struct safetensor *s, enum hf_scale scale) {
    const struct hf_config *c = m->config;
    const float by = c->scales[scale];
    if (scale == HF_SCALE_NONE || by == 0) return 0;
    struct hf_recipe *k = &m->entries[m->n - 1].recipe;
    k->scale = by == 1 ? 0 : by;
    const int first = scale == HF_SCALE_CONVOLUTION, end = first ? 4 : HF_SSM_PARTS;
    if (scale != HF_SCALE_SSM_IN && scale != HF_SCALE_CONVOLUTION) return 0;
    uint64_t n_rows = 0, row = 0;
    for (int part = first; part < end; part++)
        n_rows += c->ssm_rows[part];
    if (k->n_rows != n_rows) return hf_bad_shape(m, s, "the rows that config.json asks for");
    if (!m->row_scales) {
        m->row_scales = arena_alloc(m->t->memory, n_rows * sizeof *m->row_scales);
        if (!m->row_scales) return err_no_memory(m->e);
        for (int part = first; part < end; part++)
            for (uint64_t i = 0; i < c->ssm_rows[part]; i++)
                m->row_scales[row++] = c->ssm_scales[part];
    }
    k->row_scales = m->row_scales;
    return 0;
}

/* A parameter of xIELU, which becomes a part of a key. */
static int take_xielu(struct hf_mapper *m, const struct safetensor *s, const char *name,
                      uint32_t layer) {
    static const char *const names[HF_N_XIELU] = {"alpha_p", "alpha_n", "beta", "eps"};
    const int type = hf_source_type(s);
    int part = 0;
    while (part < HF_N_XIELU && strcmp(names[part], name) != 0)
        part++;
    if (part == HF_N_XIELU) return refuse_name(m, s, "is not known for this family");
    if (s->n_elems != 1 || (type != QTYPE_F32 && type != QTYPE_F16 && type != QTYPE_BF16))
        return hf_bad_shape(m, s, "one number");
    if (!m->t->xielu) {
        m->t->xielu = arena_alloc(m->t->memory, m->config->n_layers * sizeof *m->t->xielu);
        if (!m->t->xielu) return err_no_memory(m->e);
        memset(m->t->xielu, 0, m->config->n_layers * sizeof *m->t->xielu);
    }
    m->t->xielu[layer].v[part] = hf_scale_at(s, 0);
    m->t->xielu[layer].has[part] = true;
    return 0;
}

static int map_tensor(struct hf_mapper *m, const struct safetensor *s) {
    static const char language[] = "language_model.", layers[] = "model.layers.",
                      backbone[] = "backbone.", neox[] = "gpt_neox.", act_fn[] = "mlp.act_fn.";
    char name[NAME_BYTES], rest[NAME_BYTES];
    const struct hf_config *c = m->config;
    if (s->name.len >= NAME_BYTES - 32) return refuse_name(m, s, "has a name that is too long");
    memcpy(name, s->name.data, s->name.len);
    name[s->name.len] = '\0';
    char *inner = strstr(name, language);
    if (inner && (c->family->traits & HF_IMAGES))
        memmove(inner, inner + sizeof language - 1, strlen(inner + sizeof language - 1) + 1);
    if ((c->family->traits & HF_MAMBA2) && hf_begins_with(name, backbone)) {
        memmove(name + strlen("model."), name + strlen(backbone),
                strlen(name + strlen(backbone)) + 1);
        memcpy(name, "model.", strlen("model."));
    }
    if (hf_begins_with(name, "layers.") || hf_begins_with(name, "embed_tokens.") ||
        strcmp(name, "norm.weight") == 0) { /* saved without its output head */
        memmove(name + strlen("model."), name, strlen(name) + 1);
        memcpy(name, "model.", strlen("model."));
    }
    if (hf_begins_with(name, neox)) {
        memmove(name + strlen("model."), name + strlen(neox), strlen(name + strlen(neox)) + 1);
        memcpy(name, "model.", strlen("model."));
    }
    if (c->family->traits & HF_ENCODER) hf_encoder_rename(name);
    if (c->family->traits & HF_OLDER) hf_older_rename(name);
    if (is_skipped(m, name)) return 0;
    if (!s->n_elems) return hf_bad_shape(m, s, "at least one element");
    m->order += 4;
    const struct name_row *row = hf_find_model_row(name, c->family->traits);
    if (row) {
        int rc =
            row->layout == POSITIONS ? map_positions(m, s, row->to) : map_plain(m, s, row->to, 0);
        return rc ? rc : set_scale(m, s, row->scale);
    }
    uint64_t layer, expert = 0;
    const char *p = name + sizeof layers - 1;
    if (strncmp(name, layers, sizeof layers - 1) != 0 || !take_number(&p, &layer) || *p != '.')
        return refuse_name(m, s, "is not known for this family");
    if (layer >= c->n_layers)
        return refuse_name(m, s, "belongs to a layer beyond config.json's num_hidden_layers");
    split_expert(p + 1, rest, &expert);
    if (hf_begins_with(rest, act_fn) && strcmp(c->family->arch, "apertus") == 0)
        return take_xielu(m, s, rest + strlen(act_fn), (uint32_t)layer);
    row = hf_find_layer_row(rest, c->family->traits);
    if (!row) return refuse_name(m, s, "is not known for this family");
    int rc = map_row(m, s, row, (uint32_t)layer, expert);
    if (!rc) rc = set_scale(m, s, row->scale);
    bool tiles = m->config->tiles_v_heads && hf_begins_with(rest, "linear_attn.");
    return rc || !tiles ? rc : tile_v_heads(m, s);
}

/* The weight of layer i behind pooling. */
static int map_dense(struct hf_mapper *m, const struct safetensor *s, uint32_t i) {
    static const char weight[] = "linear.weight";
    char name[32];
    if (s->name.len != sizeof weight - 1 || memcmp(s->name.data, weight, s->name.len) != 0)
        return refuse_name(m, s, "is not known for a dense layer");
    if (s->n_dims != 2 || !s->n_elems) return hf_bad_shape(m, s, "a matrix");
    m->order += 4;
    snprintf(name, sizeof name, "dense_%" PRIu32 ".weight", i + 2);
    return map_plain(m, s, name, 0);
}

/* ---- the whole ---- */

/* Adds rope_freqs.weight and similar tensors, which the files do not contain. */
static int add_factors(struct hf_mapper *m) {
    static const char *const names[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                        "rope_factors_short.weight"};
    for (int f = 0; f < 3; f++) {
        uint64_t i;
        if (!m->config->has_factors[f]) continue;
        int rc = hf_add_entry(m, names[f], &i);
        if (rc) return rc;
        struct hf_entry *entry = &m->entries[i];
        entry->recipe.n_rows = 1;
        entry->recipe.n_cols = m->config->n_factors ? m->config->n_factors : m->config->n_rot / 2;
        entry->recipe.made = m->config->factors[f];
        entry->order = m->order++;
        hf_set_dims(entry, 1);
    }
    return 0;
}

/* Norms of Q and K, which the files do not contain: all weights are the same. */
static int add_head_norms(struct hf_mapper *m) {
    static const char *const names[] = {"attn_q_norm", "attn_k_norm"};
    const struct hf_config *c = m->config;
    for (uint32_t n = 0; n < 2 * c->n_layers && c->query_factor > 0; n++) {
        char name[NAME_BYTES];
        uint64_t i;
        snprintf(name, sizeof name, "blk.%" PRIu32 ".%s.weight", n / 2, names[n % 2]);
        float *v = arena_alloc(m->t->memory, c->head_dim * sizeof *v);
        int rc = v ? hf_add_entry(m, name, &i) : err_no_memory(m->e);
        if (rc) return rc;
        for (uint32_t d = 0; d < c->head_dim; d++)
            v[d] = n % 2 ? 1 : c->query_factor;
        struct hf_entry *entry = &m->entries[i];
        entry->recipe.n_rows = 1;
        entry->recipe.n_cols = c->head_dim;
        entry->recipe.made = v;
        entry->order = m->order++;
        hf_set_dims(entry, 1);
    }
    return 0;
}

static int check_complete(struct hf_mapper *m, const struct hf_entry *entry) {
    const struct hf_recipe *k = &entry->recipe;
    char shown[GGUF_NAME_SHOWN_BYTES + 4];
    gguf_show_name(shown, entry->tensor.name);
    if (entry->have && entry->have < k->n_sources)
        return err_set_param(m->e, ERR_FORMAT, shown,
                             "%s: the files have tensors of %" PRIu32 " of %" PRIu32 " experts",
                             shown, entry->have, k->n_sources);
    if (k->scales && !k->n_sources)
        return err_set_param(m->e, ERR_FORMAT, shown, "%s: it has MXFP4 scales without blocks",
                             shown);
    if (entry->layout == OSS_DOWN_BLOCKS && !k->scales)
        return err_set_param(m->e, ERR_FORMAT, shown, "%s: it has MXFP4 blocks without scales",
                             shown);
    return 0;
}

/* Sets type, size and data of a tensor whose sources are complete. */
static int settle_tensor(struct hf_mapper *m, struct hf_entry *entry) {
    struct hf_recipe *k = &entry->recipe;
    gguf_tensor *t = &entry->tensor;
    int rc = check_complete(m, entry);
    if (rc) return rc;
    for (uint32_t i = 0; i < k->n_sources && !k->scales; i++) {
        if (hf_source_type(k->sources[i]) < 0)
            return refuse_name(m, k->sources[i], "has a type that is not supported for weights");
        if (k->sources[i]->type != k->sources[0]->type)
            return refuse_name(m, k->sources[i], "has another type than the other experts");
    }
    bool f32 = k->made || (!k->scales && wants_f32(t, m->config->as_file));
    if (!k->scales) t->type = f32 ? QTYPE_F32 : hf_recipe_type(k);
    bool is_norm =
        ends_with(t->name.data, "norm.weight") && !ends_with(t->name.data, "ssm_norm.weight");
    const bool plain =
        m->config->query_factor > 0 && strcmp(t->name.data, "output_norm.weight") == 0;
    if (is_norm && !k->made && !plain && (m->config->family->traits & HF_NORM_PLUS_1)) k->add = 1;
    if (!qtype_bytes(t->type, t->n_elems / t->dims[0], t->dims[0], &t->bytes))
        return refuse_name(m, k->sources[0], "has an impossible size");
    t->data = hf_recipe_place(k, t->type);
    bool matrix = t->n_dims > 1 && ends_with(t->name.data, ".weight");
    if (t->data || matrix) return 0;
    float *vector = arena_alloc(m->t->memory, t->bytes);
    if (!vector) return err_no_memory(m->e);
    hf_recipe_read(k, t->type, 0, t->bytes, vector);
    t->data = vector;
    return 0;
}

static int compare_order(const void *a, const void *b) {
    const struct hf_entry *x = a, *y = b;
    return x->order < y->order ? -1 : x->order > y->order;
}

static int finish_tensors(struct hf_mapper *m) {
    struct hf_tensors *t = m->t;
    if (m->n) qsort(m->entries, m->n, sizeof *m->entries, compare_order);
    t->tensors = mem_new(m->n, sizeof *t->tensors);
    t->recipes = mem_new(m->n, sizeof *t->recipes);
    if (!t->tensors || !t->recipes) return err_no_memory(m->e);
    for (uint64_t i = 0; i < m->n; i++) {
        int rc = settle_tensor(m, &m->entries[i]);
        if (rc) return rc;
        t->tensors[i] = m->entries[i].tensor;
        t->recipes[i] = m->entries[i].recipe;
    }
    t->n = m->n;
    return 0;
}

int hf_tensors_map(struct hf_tensors *t, const struct hf_config *config, safetensors *const *files,
                   uint32_t n_files, err *e) {
    struct hf_mapper m = {.t = t, .config = config, .path = "config.json", .e = e};
    t->memory = arena_new(MEMORY_MAX);
    m.experts = mem_new((uint64_t)config->n_layers * N_PARTS, sizeof *m.experts);
    int rc = t->memory && m.experts ? add_factors(&m) : err_no_memory(m.e);
    if (!rc) rc = add_head_norms(&m);
    const uint32_t n_own = n_files - config->n_dense;
    const struct hf_finder own = {config, files, n_own, t->memory, e};
    for (uint32_t f = 0; !rc && f < n_files; f++) {
        m.path = safetensors_path(files[f]);
        for (uint64_t i = 0; !rc && i < safetensors_n(files[f]); i++) {
            const struct safetensor *s = safetensors_at(files[f], i);
            if (f >= n_own) {
                rc = map_dense(&m, s, f - n_own);
                continue;
            }
            rc = hf_find_packed(&own, m.path, s, &s);
            if (!rc && s) rc = map_tensor(&m, s);
        }
    }
    if (!rc) rc = finish_tensors(&m);
    free(m.entries);
    free(m.experts);
    return rc;
}

void hf_tensors_free(struct hf_tensors *t) {
    free(t->tensors);
    free(t->recipes);
    arena_free(t->memory);
}
