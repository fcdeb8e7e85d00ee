/* hf/model.c - opens a model folder: finds its files, checks them against the index, and builds a
 * gguf with keys from config.json and tensors from the files. Owns the mappings. Opened on one
 * thread, then read-only. */
#include "core/formats/hf/model_int.h"

#include "core/text/json_scan.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FILES = 4096, MAX_INDEX_NAMES = 1 << 20, SHOWN_BYTES = 80 };

/* An open folder: the state of the gguf's source. */
struct folder {
    struct hf_config config;
    struct hf_tensors tensors;
    safetensors **files; /* (n_files) in order of their names */
    uint32_t n_files;
    bool opens_dense; /* in an error's words */
    void *keys;       /* a GGUF file in memory */
};

/* "NAME": "FILE" of the index. */
struct index_pair {
    gguf_str name, file;
};

/* ---- the source of the gguf's tensors ---- */

static int read_tensor(const void *state, uint64_t i, uint64_t offset, uint64_t n, void *dst,
                       err *e) {
    const struct folder *f = state;
    (void)e;
    hf_recipe_read(&f->tensors.recipes[i], f->tensors.tensors[i].type, offset, n, dst);
    return 0;
}

static void drop_pages(const void *state) {
    const struct folder *f = state;
    for (uint32_t i = 0; i < f->n_files; i++)
        safetensors_drop_pages(f->files[i]);
}

static const char *path_of(const void *state, uint64_t i) {
    const struct folder *f = state;
    return i < f->n_files ? safetensors_path(f->files[i]) : NULL;
}

static const struct file_map *map_of(const void *state, uint64_t i) {
    const struct folder *f = state;
    return i < f->n_files ? safetensors_map(f->files[i]) : NULL;
}

static void close_folder(void *state) {
    struct folder *f = state;
    hf_tensors_free(&f->tensors);
    for (uint32_t i = 0; i < f->n_files; i++)
        safetensors_close(f->files[i]);
    free(f->files);
    free(f->keys);
    free(f);
}

/* ---- files ---- */

static int join_path(const char *folder, gguf_str name, char path[HF_PATH_MAX_BYTES], err *e) {
    int n = snprintf(path, HF_PATH_MAX_BYTES, "%s/%.*s", folder, (int)name.len, name.data);
    if (n < HF_PATH_MAX_BYTES) return 0;
    return err_set(e, ERR_IO, "%s: the path is longer than %d bytes", folder, HF_PATH_MAX_BYTES);
}

static bool file_exists(const char *folder, const char *name) {
    char path[HF_PATH_MAX_BYTES];
    return join_path(folder, gguf_str_of(name), path, NULL) == 0 && access(path, F_OK) == 0;
}

static int open_file(struct folder *f, const char *folder, gguf_str name, err *e) {
    char path[HF_PATH_MAX_BYTES];
    int rc = join_path(folder, name, path, e);
    if (rc) return rc;
    if (access(path, F_OK) && errno == ENOENT)
        return err_set(e, ERR_NOT_FOUND, "%s is missing; %s names it", path,
                       f->opens_dense ? "modules.json" : "model.safetensors.index.json");
    rc = safetensors_open(path, &f->files[f->n_files], e);
    if (!rc) f->n_files++;
    return rc;
}

/* True for the name of a file in the folder itself. */
static bool is_plain(gguf_str name) {
    static const char end[] = ".safetensors";
    size_t n = sizeof end - 1;
    return name.len > n && name.len < 256 && name.data[0] != '.' &&
           !memchr(name.data, '/', name.len) && memcmp(name.data + name.len - n, end, n) == 0;
}

static int err_index(const char *path, const struct json_scan *s, const char *wanted, err *e) {
    return err_set(e, ERR_FORMAT, "%s: offset %" PRIu64 ": expected %s here", path, s->pos, wanted);
}

/* Reads the pairs of weight_map; the caller frees *list (n). */
static int read_pairs(const char *path, struct json_scan *s, struct index_pair **list, uint64_t *n,
                      err *e) {
    bool first = true, more;
    uint64_t capacity = 0;
    for (;;) {
        struct index_pair p;
        if (json_scan_next(s, "{}", &first, &more)) return err_index(path, s, "an object", e);
        if (!more) return 0;
        if (json_scan_name(s, &p.name.data, &p.name.len) || json_scan_take(s, ':') ||
            json_scan_name(s, &p.file.data, &p.file.len))
            return err_index(path, s, "a tensor's name and a file's", e);
        if (!is_plain(p.file))
            return err_set(
                e, ERR_FORMAT,
                "%s: offset %" PRIu64 ": '%.*s' is not a plain name of a .safetensors file", path,
                s->pos, (int)(p.file.len < SHOWN_BYTES ? p.file.len : SHOWN_BYTES), p.file.data);
        if (*n == MAX_INDEX_NAMES) return err_index(path, s, "at most 1048576 names", e);
        if (*n == capacity) {
            capacity = capacity ? capacity * 2 : 1024;
            struct index_pair *grown = mem_resize(*list, capacity, sizeof *grown);
            if (!grown) return err_no_memory(e);
            *list = grown;
        }
        (*list)[(*n)++] = p;
    }
}

static int read_index(const char *path, struct json_scan *s, struct index_pair **list, uint64_t *n,
                      err *e) {
    bool first = true, more, found = false;
    gguf_str key;
    for (;;) {
        if (json_scan_next(s, "{}", &first, &more)) return err_index(path, s, "an object", e);
        if (!more) break;
        if (json_scan_name(s, &key.data, &key.len) || json_scan_take(s, ':'))
            return err_index(path, s, "a member", e);
        bool is_map = key.len == 10 && memcmp(key.data, "weight_map", 10) == 0;
        if (is_map && found) return err_index(path, s, "only one weight_map", e);
        int rc = is_map ? read_pairs(path, s, list, n, e) : 0;
        if (rc) return rc;
        found = found || is_map;
        if (!is_map && json_scan_skip(s)) return err_index(path, s, "a value", e);
    }
    return found && *n ? 0 : err_index(path, s, "a weight_map with names", e);
}

static int compare_pairs(const void *a, const void *b) {
    const struct index_pair *x = a, *y = b;
    int order = gguf_str_compare(x->file, y->file);
    return order ? order : gguf_str_compare(x->name, y->name);
}

/* Opens the files of the index, in order of their names. Each must hold exactly the tensors that
 * the index lists for it. */
static int open_indexed(struct folder *f, const char *folder, struct index_pair *list, uint64_t n,
                        err *e) {
    char shown[GGUF_NAME_SHOWN_BYTES + 4];
    qsort(list, n, sizeof *list, compare_pairs);
    for (uint64_t i = 0, end; i < n; i = end) {
        if (f->n_files == MAX_FILES)
            return err_set(e, ERR_UNSUPPORTED, "%s: the index names more than %d files", folder,
                           MAX_FILES);
        int rc = open_file(f, folder, list[i].file, e);
        if (rc) return rc;
        safetensors *file = f->files[f->n_files - 1];
        for (end = i; end < n && !gguf_str_compare(list[end].file, list[i].file); end++) {
            if (safetensors_find(file, list[end].name)) continue;
            gguf_show_name(shown, list[end].name);
            return err_set(e, ERR_FORMAT,
                           "%s: tensor '%s' is missing; the index lists it for this file",
                           safetensors_path(file), shown);
        }
        if (safetensors_n(file) != end - i)
            return err_set(e, ERR_FORMAT,
                           "%s contains %" PRIu64 " tensors, but the index lists %" PRIu64,
                           safetensors_path(file), safetensors_n(file), end - i);
    }
    return 0;
}

static int open_by_index(struct folder *f, const char *folder, const char *index, err *e) {
    char path[HF_PATH_MAX_BYTES];
    struct file_map map;
    struct index_pair *list = NULL;
    uint64_t n = 0;
    int rc = join_path(folder, gguf_str_of(index), path, e);
    if (!rc) rc = file_map_open(path, &map, e);
    if (rc) return rc;
    struct json_scan s = {.text = (const char *)map.base, .n = map.bytes};
    rc = read_index(path, &s, &list, &n, e);
    if (!rc) rc = open_indexed(f, folder, list, n, e);
    free(list);
    file_map_close(&map);
    return rc;
}

/* Opens model.safetensors, or the files in the index. */
static int open_files(struct folder *f, const char *folder, err *e) {
    static const char single[] = "model.safetensors", index[] = "model.safetensors.index.json";
    static const char *const others[] = {"pytorch_model.bin",
                                         "pytorch_model.bin.index.json",
                                         "consolidated.00.pth",
                                         "consolidated.pth",
                                         "model.pt",
                                         "pytorch_model.pt"};
    f->files = mem_new(MAX_FILES, sizeof *f->files);
    if (!f->files) return err_no_memory(e);
    if (file_exists(folder, single)) return open_file(f, folder, gguf_str_of(single), e);
    if (file_exists(folder, index)) return open_by_index(f, folder, index, e);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (file_exists(folder, others[i]))
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: its weights are in %s, expected safetensors: convert them with "
                           "save_pretrained, or use a GGUF",
                           folder, others[i]);
    return err_set(e, ERR_NOT_FOUND, "%s contains neither model.safetensors nor %s", folder, index);
}

/* Opens the files of layers behind pooling, after the model's own. */
static int open_dense(struct folder *f, const char *folder, err *e) {
    int rc = 0;
    f->opens_dense = true;
    for (uint32_t i = 0; !rc && i < f->config.n_dense; i++) {
        char name[HF_DENSE_PATH_BYTES + 32];
        snprintf(name, sizeof name, "%s/model.safetensors", f->config.dense[i]);
        rc = f->n_files == MAX_FILES
                 ? err_set(e, ERR_UNSUPPORTED, "%s: more than %d files", folder, MAX_FILES)
                 : open_file(f, folder, gguf_str_of(name), e);
    }
    return rc;
}

/* ---- keys ---- */

/* Writes the folder's name as general.name. */
static int put_name(gguf_writer *w, const char *folder, err *e) {
    char path[PATH_MAX];
    const char *whole = realpath(folder, path) ? path : folder, *slash = strrchr(whole, '/');
    return gguf_writer_set_str(w, "general.name", slash ? slash + 1 : whole, e);
}

/* llama.cpp's number for the most frequent type of values. */
static uint32_t file_type(const struct hf_tensors *t) {
    static const struct {
        int type;
        uint32_t number;
    } rows[] = {{QTYPE_F32, 0},  {QTYPE_F16, 1},  {QTYPE_BF16, 32}, {QTYPE_MXFP4, 38},
                {QTYPE_Q4_0, 2}, {QTYPE_Q5_0, 8}, {QTYPE_Q8_0, 7}};
    uint64_t most = 0;
    uint32_t number = 0;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        uint64_t n = 0;
        for (uint64_t i = 0; i < t->n; i++)
            if (t->tensors[i].type == rows[r].type && t->tensors[i].n_dims > 1)
                n += t->tensors[i].n_elems;
        if (n > most) {
            most = n;
            number = rows[r].number;
        }
    }
    return number;
}

static int read_config(struct folder *f, const char *folder, gguf_writer *w, err *e) {
    char path[HF_PATH_MAX_BYTES], *text = NULL;
    size_t n;
    int rc = join_path(folder, gguf_str_of("config.json"), path, e);
    if (!rc && access(path, F_OK))
        rc = err_set(e, ERR_NOT_FOUND, "%s contains no config.json", folder);
    if (!rc) rc = hf_file_read(path, HF_CONFIG_MAX_BYTES, false, &text, &n, e);
    if (rc) return rc;
    rc = hf_config_read(text, n, w, &f->config, e);
    if (rc) err_prefix(e, "%s: ", path);
    free(text);
    return rc;
}

/* generation_config.json may be missing. */
static int read_generation(const char *folder, gguf_writer *w, err *e) {
    char path[HF_PATH_MAX_BYTES], *text = NULL;
    void *document = NULL;
    size_t n;
    int rc = join_path(folder, gguf_str_of("generation_config.json"), path, e);
    if (!rc) rc = hf_file_read(path, HF_CONFIG_MAX_BYTES, true, &text, &n, e);
    if (rc || !text) return rc;
    rc = hf_json_parse(text, n, &document, e);
    if (rc) err_prefix(e, "%s: ", path);
    if (!rc) rc = hf_generation_write(document, path, w, e);
    cJSON_Delete(document);
    free(text);
    return rc;
}

/* Opens w's keys as a gguf, which lies in *bytes and must not outlive them. */
static int open_keys(const gguf_writer *w, const char *name, void **bytes, gguf **out, err *e) {
    uint64_t n;
    int rc = gguf_writer_to_memory(w, bytes, &n, e);
    return rc ? rc : gguf_open_memory(*bytes, n, name, 0, out, e);
}

/* Says which tensors the mapping left out. */
static int put_left_out(gguf_writer *w, const struct folder *f, err *e) {
    const struct hf_tensors *t = &f->tensors;
    char key[96], text[160], *end = text;
    if (!t->n_vision && !t->n_audio && !t->n_mtp) return 0;
    snprintf(key, sizeof key, "%s.inferd.left_out", f->config.family->arch);
    if (t->n_vision)
        end += snprintf(text, sizeof text, "%" PRIu64 " tensors of the vision part%s", t->n_vision,
                        t->n_audio || t->n_mtp ? ", " : "");
    if (t->n_audio)
        end +=
            snprintf(end, sizeof text - (size_t)(end - text),
                     "%" PRIu64 " tensors of the audio part%s", t->n_audio, t->n_mtp ? ", " : "");
    if (t->n_mtp)
        snprintf(end, sizeof text - (size_t)(end - text),
                 "%" PRIu64 " tensors %sof layers that predict further tokens", t->n_mtp,
                 f->config.n_predicting ? "" : "mtp.* ");
    return gguf_writer_set_str(w, key, text, e);
}

/* Says what quantized weights became. */
static int put_packed(gguf_writer *w, const struct folder *f, err *e) {
    static const int types[] = {QTYPE_Q4_0, QTYPE_Q5_0, QTYPE_Q8_0,
                                QTYPE_F16,  QTYPE_BF16, QTYPE_F32};
    const struct hf_tensors *t = &f->tensors;
    char key[96], text[160] = "";
    size_t used = 0;
    for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
        uint64_t n = 0;
        for (uint64_t i = 0; i < t->n; i++)
            n += t->tensors[i].type == types[k] && t->recipes[i].n_sources &&
                 t->recipes[i].sources[0]->packed;
        if (n)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRIu64 " as %s%s",
                                     used ? ", " : "", n, qtype_name(types[k]),
                                     types[k] == QTYPE_F16 || types[k] == QTYPE_BF16 ? " (rounded)"
                                                                                     : " (exact)");
    }
    snprintf(key, sizeof key, "%s.inferd.quantized", f->config.family->arch);
    return used ? gguf_writer_set_str(w, key, text, e) : 0;
}

/* xIELU's parameters, which are tensors in a folder. */
static int put_xielu(gguf_writer *w, const struct folder *f, err *e) {
    static const char *const names[HF_N_XIELU] = {"alpha_p", "alpha_n", "beta", "eps"};
    static const float usual[HF_N_XIELU] = {NAN, NAN, 0.5f, -1e-6f};
    float v[HF_MAX_LAYERS];
    char key[96];
    if (strcmp(f->config.family->arch, "apertus") != 0 || !f->n_files) return 0;
    for (int part = 0; part < HF_N_XIELU; part++) {
        for (uint32_t i = 0; i < f->config.n_layers; i++) {
            const struct hf_xielu *x = f->tensors.xielu ? &f->tensors.xielu[i] : NULL;
            v[i] = x && x->has[part] ? x->v[part] : usual[part];
            if (isnan(v[i]))
                return err_set_param(e, ERR_FORMAT, "mlp.act_fn",
                                     "the files have no tensor mlp.act_fn.%s of layer %" PRIu32,
                                     names[part], i);
        }
        snprintf(key, sizeof key, "xielu.%s", names[part]);
        int rc = gguf_writer_set_array(w, key, GGUF_F32, v, f->config.n_layers, e);
        if (rc) return rc;
    }
    return 0;
}

static bool has_head(const struct hf_tensors *t) {
    static const char name[] = "output.weight";
    for (uint64_t i = 0; i < t->n; i++)
        if (strcmp(t->tensors[i].name.data, name) == 0) return true;
    return false;
}

static int read_folder(struct folder *f, const char *folder, gguf_writer *w, err *e) {
    int rc = read_config(f, folder, w, e);
    if (!rc) rc = read_generation(folder, w, e);
    if (!rc) rc = hf_sentence_read(folder, w, &f->config, e);
    if (!rc) rc = open_files(f, folder, e);
    if (!rc) rc = open_dense(f, folder, e);
    if (!rc) rc = hf_tensors_map(&f->tensors, &f->config, f->files, f->n_files, e);
    if (rc) return rc;
    bool from_embedding =
        f->config.tied || f->config.pooled || (f->config.family->traits & HF_EMBED_HEAD);
    if (!from_embedding && !has_head(&f->tensors))
        return err_set_param(
            e, ERR_FORMAT, "lm_head.weight",
            "%s: tensor lm_head.weight is missing, and config.json does not tie it "
            "to the embedding",
            folder);
    if ((rc = put_name(w, folder, e)) ||
        (rc = gguf_writer_set_u32(w, "general.file_type", file_type(&f->tensors), e)))
        return rc;
    rc = put_left_out(w, f, e);
    if (!rc) rc = put_packed(w, f, e);
    if (!rc) rc = put_xielu(w, f, e);
    return rc ? rc : gguf_writer_set_u32(w, "general.quantization_version", 2, e);
}

/* Gives f to a new gguf, or closes it on failure. */
static int make_gguf(struct folder *f, gguf_writer *w, const char *name, gguf **out, err *e) {
    gguf *g = NULL;
    int rc = open_keys(w, name, &f->keys, &g, e);
    if (rc) {
        close_folder(f);
        return rc;
    }
    struct gguf_source source = {.state = f,
                                 .read = read_tensor,
                                 .drop_pages = drop_pages,
                                 .path = path_of,
                                 .map = map_of,
                                 .close = close_folder};
    for (uint32_t i = 0; i < f->n_files; i++)
        source.bytes += safetensors_bytes(f->files[i]);
    rc = gguf_set_tensors(g, f->tensors.tensors, f->tensors.n, &source, e);
    if (rc)
        gguf_close(g);
    else
        *out = g;
    return rc;
}

int hf_model_open(const char *folder, int flags, gguf **out, err *e) {
    *out = NULL;
    struct folder *f = mem_new(1, sizeof *f);
    gguf_writer *w = gguf_writer_new();
    int rc = f && w ? 0 : err_no_memory(e);
    if (f) f->config.as_file = flags & GGUF_OPEN_AS_FILE;
    if (!rc) rc = read_folder(f, folder, w, e);
    if (!rc)
        rc = make_gguf(f, w, folder, out, e);
    else if (f)
        close_folder(f);
    gguf_writer_free(w);
    return rc;
}

int hf_config_open_memory(const char *json, size_t n, gguf **out, err *e) {
    *out = NULL;
    struct folder *f = mem_new(1, sizeof *f);
    gguf_writer *w = gguf_writer_new();
    int rc = f && w ? 0 : err_no_memory(e);
    if (!rc) rc = hf_config_read(json, n, w, &f->config, e);
    if (!rc) rc = hf_tensors_map(&f->tensors, &f->config, NULL, 0, e);
    if (!rc)
        rc = make_gguf(f, w, "config.json", out, e);
    else if (f)
        close_folder(f);
    gguf_writer_free(w);
    return rc;
}
