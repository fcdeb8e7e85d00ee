/* hf/sentence.c - what the modules of sentence-transformers (modules.json, written by its models'
 * save) do with a model's hidden states: pooling and scores become keys; others are refused by
 * name. Pure, except that it reads the modules' files. */
#include "core/formats/hf/model_int.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_BYTES = 80 };

/* Reads FOLDER/NAME, an object, or with `list` an array that becomes its member "modules". */
static int read_file(const char *folder, const char *name, bool list, void **document, err *e) {
    char path[HF_PATH_MAX_BYTES], *text = NULL, *object = NULL;
    size_t n;
    *document = NULL;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return err_set(e, ERR_IO, "%s: the path is longer than %d bytes", folder,
                       HF_PATH_MAX_BYTES);
    int rc = hf_file_read(path, HF_CONFIG_MAX_BYTES, list, &text, &n, e);
    if (rc || !text) return rc;
    if (list) {
        static const char before[] = "{\"modules\":";
        object = mem_new((uint64_t)n + sizeof before + 1, 1);
        if (!object) rc = err_no_memory(e);
        if (!rc) n = (size_t)sprintf(object, "%s%s}", before, text);
    }
    if (!rc) rc = hf_json_parse(object ? object : text, n, document, e);
    if (rc) err_prefix(e, "%s: ", name);
    free(object);
    free(text);
    return rc;
}

/* Pooling: exactly one mode, by the members of old files or the word of new ones. */
static int read_pooling(struct hf_reader *r, const cJSON *json, const char *path) {
    static const struct {
        const char *member, *word;
        uint32_t pooling; /* 0: not supported */
    } rows[] = {{"pooling_mode_mean_tokens", "mean", 1},
                {"pooling_mode_cls_token", "cls", 2},
                {"pooling_mode_lasttoken", "lasttoken", 3},
                {"pooling_mode_max_tokens", "max", 0},
                {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", 0},
                {"pooling_mode_weightedmean_tokens", "weightedmean", 0}};
    const cJSON *word = hf_value(json, "pooling_mode");
    uint32_t pooling = 0, n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bool on = word ? cJSON_IsString(word) && strcmp(word->valuestring, rows[i].word) == 0
                       : hf_flag(json, rows[i].member, false);
        n += on;
        if (on) pooling = rows[i].pooling;
    }
    if (n != 1 || !pooling)
        return err_set_param(r->e, ERR_UNSUPPORTED, "pooling_mode",
                             "%.*s/config.json: this build pools by mean, cls or lasttoken, one of "
                             "them",
                             SHOWN_BYTES, path);
    hf_put_u32(r, "pooling_type", pooling);
    return 0;
}

static bool is_token(const cJSON *v) {
    return cJSON_IsNumber(v) && v->valuedouble >= 0 && v->valuedouble <= INT32_MAX &&
           v->valuedouble == (double)(int32_t)v->valuedouble;
}

/* The difference of two tokens' logits. */
static int read_score(struct hf_reader *r, const cJSON *json, const char *path) {
    const cJSON *yes = hf_value(json, "true_token_id"), *no = hf_value(json, "false_token_id");
    if (!is_token(yes) || !is_token(no))
        return err_set_param(r->e, ERR_UNSUPPORTED, "true_token_id",
                             "%.*s/config.json: this build scores by two tokens, true_token_id and "
                             "false_token_id",
                             SHOWN_BYTES, path);
    const int32_t tokens[2] = {(int32_t)yes->valuedouble, (int32_t)no->valuedouble};
    hf_put_i32s(r, "inferd.score_tokens", tokens, 2);
    return 0;
}

/* A layer behind pooling; its weights are read with the model's. */
static int read_dense(struct hf_reader *r, const cJSON *json, const char *path) {
    struct hf_config *c = r->config;
    const char *activation = hf_text(json, "activation_function");
    const char *dot = activation ? strrchr(activation, '.') : NULL;
    if (strcmp(c->family->arch, HF_GEMMA_EMBEDDING) != 0 || hf_flag(json, "bias", true) || !dot ||
        strcmp(dot, ".Identity") != 0 || c->n_dense == HF_MAX_DENSE)
        return err_set_param(
            r->e, ERR_UNSUPPORTED, "activation_function",
            "%.*s/config.json: this build has dense layers of EmbeddingGemma only, "
            "at most %d, without bias and activation",
            SHOWN_BYTES, path, HF_MAX_DENSE);
    if (strlen(path) >= HF_DENSE_PATH_BYTES)
        return err_set_param(r->e, ERR_FORMAT, "path", "%.*s: the folder's name is too long",
                             SHOWN_BYTES, path);
    snprintf(c->dense[c->n_dense++], HF_DENSE_PATH_BYTES, "%s", path);
    return 0;
}

static int read_module(struct hf_reader *r, const char *folder, const cJSON *module) {
    static const struct {
        const char *name; /* after the type's last dot */
        int (*read)(struct hf_reader *r, const cJSON *json, const char *path);
    } rows[] = {{"Transformer", NULL}, /* the model itself */
                {"Normalize", NULL},   /* the server's vectors have length 1 */
                {"Pooling", read_pooling},
                {"Dense", read_dense},
                {"LogitScore", read_score}};
    const char *type = hf_text(module, "type"), *path = hf_text(module, "path");
    const char *dot = type ? strrchr(type, '.') : NULL, *name = dot ? dot + 1 : type;
    char file[HF_PATH_MAX_BYTES];
    void *json = NULL;
    size_t i = 0;
    enum { N_ROWS = sizeof rows / sizeof rows[0] };
    while (name && i < N_ROWS && strcmp(rows[i].name, name) != 0)
        i++;
    if (!name || i == N_ROWS)
        return err_set_param(r->e, ERR_UNSUPPORTED, "type",
                             "modules.json: a module of type '%.*s' is not supported", SHOWN_BYTES,
                             type ? type : "");
    if (!rows[i].read) {
        if (i == 0 && path && *path)
            return err_set_param(r->e, ERR_UNSUPPORTED, "path",
                                 "modules.json: the model is in a folder of its own, '%.*s': name "
                                 "that folder",
                                 SHOWN_BYTES, path);
        return 0;
    }
    if (!path || !*path || *path == '/' || strstr(path, "..") ||
        snprintf(file, sizeof file, "%s/config.json", path) >= (int)sizeof file)
        return err_set_param(r->e, ERR_FORMAT, "path",
                             "modules.json: '%.*s' is no folder inside the model's", SHOWN_BYTES,
                             path ? path : "");
    int rc = read_file(folder, file, false, &json, r->e);
    if (!rc) rc = rows[i].read(r, json, path);
    cJSON_Delete(json);
    r->config->pooled = true;
    return rc;
}

int hf_sentence_read(const char *folder, gguf_writer *keys, struct hf_config *config, err *e) {
    struct hf_reader r = {.config = config, .keys = keys, .e = e};
    void *document = NULL;
    int rc = read_file(folder, "modules.json", true, &document, e);
    const cJSON *modules = hf_member(document, "modules"), *module;
    if (!rc && document && !cJSON_IsArray(modules))
        rc = err_set(e, ERR_FORMAT, "modules.json: not a list of modules");
    for (module = !rc && modules ? modules->child : NULL; !rc && module; module = module->next)
        rc = read_module(&r, folder, module);
    cJSON_Delete(document);
    if (!rc) return r.rc;
    return err_prefix(e, "%s: ", folder);
}
