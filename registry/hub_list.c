/* hub_list.c - parses a repository's listing and chooses the files of the requested model. Pure:
 * uses neither network nor disk. */
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/formats/model_file.h"
#include "core/text/json.h"
#include "core/text/utf8.h"
#include "registry/hub_int.h"
#include "registry/registry_int.h"

#include <cjson/cJSON.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NAME_MAX_BYTES = 512, FILES_MAX = 200000, SAID_MAX = 200 };

/* ---- the listing ---- */

/* True for a relative path of plain components, which stays below its folder. */
static bool is_safe_name(const char *name) {
    size_t n = strlen(name);
    if (n == 0 || n > NAME_MAX_BYTES || !utf8_valid(name, n)) return false;
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f || *c == '\\') return false;
    for (const char *part = name;; part++) {
        size_t len = strcspn(part, "/");
        if (len == 0 || (len == 1 && part[0] == '.') ||
            (len == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        part += len;
        if (!*part) return true;
    }
}

static bool is_hex(const char *text, size_t n) {
    return text && strlen(text) == n && strspn(text, "0123456789abcdef") == n;
}

static bool read_size(const cJSON *o, const char *name, uint64_t *out) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0 && v->valuedouble <= 9e15)) return false;
    *out = (uint64_t)v->valuedouble;
    return true;
}

static const char *read_text(const cJSON *o, const char *name) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, name));
}

static void read_identity(const cJSON *o, struct hub_file *f) {
    const cJSON *lfs = cJSON_GetObjectItemCaseSensitive(o, "lfs");
    const char *hash = NULL;
    if (cJSON_IsObject(lfs)) {
        f->lfs = true;
        hash = read_text(lfs, "sha256");
        f->known = is_hex(hash, 64) && read_size(lfs, "size", &f->size_bytes);
    } else {
        hash = read_text(o, "blobId");
        f->known = is_hex(hash, 40) && read_size(o, "size", &f->size_bytes);
    }
    if (f->known) snprintf(f->hash, sizeof f->hash, "%s", hash);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct hub_file *)a)->name, ((const struct hub_file *)b)->name);
}

int hub_listing_parse(const char *text, size_t n, struct hub_listing *out, err *e) {
    memset(out, 0, sizeof *out);
    static const struct json_rules rules = {.max_depth = 64, .duplicate_keys = true};
    cJSON *root = NULL;
    json_decode(text, n, &rules, &root, NULL);
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(root, "siblings"), *item;
    const char *commit = read_text(root, "sha");
    int n_files = cJSON_GetArraySize(files), rc = 0;
    if (!cJSON_IsArray(files) || !(is_hex(commit, 40) || is_hex(commit, 64)) || n_files > FILES_MAX)
        rc = err_set(e, ERR_FORMAT, "the answer is not a listing of a model's files");
    if (!rc && !(out->files = mem_new((uint64_t)n_files, sizeof *out->files)))
        rc = err_no_memory(e);
    if (rc) {
        cJSON_Delete(root);
        return rc;
    }
    snprintf(out->commit, sizeof out->commit, "%s", commit);
    cJSON_ArrayForEach(item, files) {
        const char *name = read_text(item, "rfilename");
        if (!name || !is_safe_name(name)) continue;
        struct hub_file *f = &out->files[out->n_files];
        if (!(f->name = mem_strdup(name))) {
            rc = err_no_memory(e);
            break;
        }
        read_identity(item, f);
        out->n_files++;
    }
    cJSON_Delete(root);
    if (rc)
        hub_listing_fini(out);
    else
        qsort(out->files, out->n_files, sizeof *out->files, by_name);
    return rc;
}

void hub_listing_fini(struct hub_listing *l) {
    for (size_t i = 0; i < l->n_files; i++)
        free(l->files[i].name);
    free(l->files);
    memset(l, 0, sizeof *l);
}

/* ---- the choice ---- */

static bool is_gguf(const char *name) {
    size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, ".gguf") == 0;
}

/* GGUFs other than language models: image projectors, calibration data. */
static bool is_side_gguf(const char *name) {
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    return strncasecmp(base, "mmproj", 6) == 0 || strncasecmp(base, "imatrix", 7) == 0;
}

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Q4_K occurs in x-Q4_K.gguf, but not in x-Q4_K_M.gguf or x-IQ4_K.gguf. */
static bool has_type(const char *name, const char *type) {
    size_t n = strlen(type);
    for (const char *at = name; *at; at++)
        if (strncasecmp(at, type, n) == 0 && !is_word(at[n]) &&
            (at == name || !is_word(at[-1]) || at[-1] == '_'))
            return true;
    return false;
}

static bool name_matches(const char *name, const char *wanted) {
    if (!is_gguf(name)) return false;
    if (!wanted) return !is_side_gguf(name);
    if (strcmp(name, wanted) == 0) return true;
    if (is_side_gguf(name)) return false;
    if (strpbrk(wanted, "*?[")) return fnmatch(wanted, name, 0) == 0;
    return has_type(name, wanted);
}

/* True if b is a part of the split model whose first part is a. */
static bool same_split(const char *a, const struct model_file_part *part, const char *b) {
    struct model_file_part other;
    return model_file_part_read(b, &other) && other.n_parts == part->n_parts &&
           other.stem_len == part->stem_len && strncmp(a, b, part->stem_len) == 0;
}

static bool choice_add(struct hub_choice *c, const struct hub_file *f) {
    const struct hub_file **more = mem_resize(c->files, c->n + 1, sizeof *more);
    if (!more) return false;
    c->files = more;
    c->files[c->n++] = f;
    return true;
}

/* Adds all parts of the model of which this file is the first, or the file alone. */
static int take_model(const struct hub_listing *l, const struct hub_file *first,
                      struct hub_choice *out, err *e) {
    struct model_file_part part;
    bool split = model_file_part_read(first->name, &part);
    for (size_t i = 0; i < l->n_files; i++)
        if (&l->files[i] == first || (split && same_split(first->name, &part, l->files[i].name)))
            if (!choice_add(out, &l->files[i])) return err_no_memory(e);
    if (split && out->n != part.n_parts)
        return err_set(e, ERR_NOT_FOUND, "%s: the repository has %zu of its %u parts", first->name,
                       out->n, part.n_parts);
    return 0;
}

static void say_candidates(const struct hub_listing *l, const char *wanted,
                           const struct hub_options *o) {
    size_t n = 0;
    for (size_t i = 0; i < l->n_files && n < SAID_MAX; i++) {
        struct model_file_part part;
        if (!name_matches(l->files[i].name, wanted)) continue;
        if (model_file_part_read(l->files[i].name, &part) && part.part != 1) continue;
        o->say(o->arg, l->files[i].name);
        n++;
    }
}

static int choose_gguf(const struct hub_listing *l, const char *wanted, const struct hub_options *o,
                       struct hub_choice *out, err *e) {
    const struct hub_file *first = NULL;
    size_t n = 0, n_gguf = 0;
    for (size_t i = 0; i < l->n_files; i++) {
        const struct hub_file *f = &l->files[i];
        struct model_file_part part;
        bool later = model_file_part_read(f->name, &part) && part.part != 1;
        n_gguf += is_gguf(f->name) && !later;
        if (later || !name_matches(f->name, wanted)) continue;
        n++;
        first = f;
        if (wanted &&
            strcmp(f->name, wanted) == 0) { /* an exact name takes precedence over a pattern */
            n = 1;
            break;
        }
    }
    if (n == 1) return take_model(l, first, out, e);
    if (n > 1) {
        say_candidates(l, wanted, o);
        return err_set(
            e, ERR_INVALID,
            "%zu models %s%s: choose one with hf:ORG/REPO:FILE, where FILE is a name or a "
            "type such as Q4_K_M",
            n, wanted ? "match " : "are there", wanted ? wanted : "");
    }
    if (n_gguf == 0)
        return err_set(
            e, ERR_UNSUPPORTED,
            "the repository has neither a GGUF nor safetensors with a config.json: inferd cannot "
            "load any of its files");
    say_candidates(l, NULL, o);
    return err_set(e, ERR_NOT_FOUND, "no GGUF of the repository matches \"%s\"", wanted);
}

/* ERR_NOT_FOUND: not a Hugging Face folder. */
static int choose_folder(const struct hub_listing *l, struct hub_choice *out, err *e) {
    bool config = false, weights = false;
    for (size_t i = 0; i < l->n_files; i++) {
        const char *name = l->files[i].name;
        const bool module = registry_module_has(name);
        if (!module && !registry_folder_has(name)) continue;
        config |= strcmp(name, "config.json") == 0;
        weights |= !module && registry_is_safetensors(name);
        if (!choice_add(out, &l->files[i])) return err_no_memory(e);
    }
    out->folder = true;
    return config && weights ? 0 : ERR_NOT_FOUND;
}

int hub_listing_choose(const struct hub_listing *l, const char *wanted, const struct hub_options *o,
                       struct hub_choice *out, err *e) {
    memset(out, 0, sizeof *out);
    int rc = wanted ? ERR_NOT_FOUND : choose_folder(l, out, e);
    if (rc == ERR_NOT_FOUND) {
        out->folder = false;
        out->n = 0;
        rc = choose_gguf(l, wanted, o, out, e);
    }
    for (size_t i = 0; !rc && i < out->n; i++)
        if (!out->files[i]->known)
            rc = err_set(e, ERR_FORMAT, "the listing has no size or hash of %s",
                         out->files[i]->name);
    if (rc) {
        free(out->files);
        memset(out, 0, sizeof *out);
    }
    return rc;
}
