/* loader.c - resolves models through the registry and translates the configuration for the engine.
 * Opens the registry only while it is needed. */
#include "daemon/loader.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/model_name.h"
#include "core/base/program.h"
#include "core/base/qblock.h"
#include "core/chat/syntax.h"
#include "daemon/input.h"
#include "registry/registry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEMPLATE_MAX_BYTES = 16 << 20, PROGRAM_BYTES = 4096 };

#define DEMO_NAME "inferd-demo"
#define DEMO_FILE "../share/inferd/inferd-demo-q8_0.gguf" /* from the program's folder */

void loader_model_fini(struct loader_model *m) {
    free(m->id);
    free(m->path);
    for (size_t i = 0; i < m->n_aliases; i++)
        free(m->aliases[i]);
    free(m->aliases);
    memset(m, 0, sizeof *m);
}

static int open_registry(const struct config *c, registry **r, err *e) {
    char *path;
    int rc = config_registry_path(c, &path, e);
    if (rc) return rc;
    rc = registry_open(path, r, e);
    free(path);
    return rc;
}

/* Moves name, aliases and path out of row. */
static void move_row(struct registry_model *row, struct loader_model *out) {
    *out = (struct loader_model){.id = row->name,
                                 .path = row->path,
                                 .aliases = row->aliases,
                                 .n_aliases = row->n_aliases,
                                 .created_s = row->added_s,
                                 .registry_id = row->id};
    snprintf(out->sha256, sizeof out->sha256, "%s", row->sha256);
    row->name = row->path = NULL;
    row->aliases = NULL;
    row->n_aliases = 0;
    registry_model_fini(row);
}

static int find_path(const char *path, struct loader_model *out, err *e) {
    struct stat st;
    memset(out, 0, sizeof *out);
    if (stat(path, &st)) return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    char name[REGISTRY_NAME_BYTES];
    char *folder = S_ISDIR(st.st_mode) ? realpath(path, NULL) : NULL; /* "." must get a name */
    registry_name_from_path(folder ? folder : path, name);
    free(folder);
    out->id = mem_strdup(name);
    out->path = mem_strdup(path);
    out->created_s = (int64_t)st.st_mtime;
    if (out->id && out->path) return 0;
    loader_model_fini(out);
    return err_no_memory(e);
}

static bool is_demo(const struct registry_model *m) {
    if (strncmp(m->name, "demo", 4) == 0 || strncmp(m->name, "inferd-demo", 11) == 0) return true;
    for (size_t i = 0; i < m->n_aliases; i++)
        if (strcmp(m->aliases[i], "demo") == 0) return true;
    return false;
}

/* Chooses the default of the registered models; the caller frees *name. */
static int default_name(registry *r, char **name, size_t *n_models, err *e) {
    struct registry_model *models;
    const char *chosen = NULL;
    size_t n;
    int rc = registry_list(r, &models, &n, e);
    if (rc) return rc;
    *n_models = n;
    if (n == 1) chosen = models[0].name;
    for (size_t i = 0; i < n && !chosen; i++)
        if (is_demo(&models[i])) chosen = models[i].name;
    if (n == 0)
        rc = err_set_param(e, ERR_NOT_FOUND, "model",
                           "no model is registered: add one with `inferd models add PATH`");
    else if (!chosen)
        rc = err_set_param(e, ERR_NOT_FOUND, "model",
                           "%zu models are registered: choose one with --model (see `inferd "
                           "models list`)",
                           n);
    else if (!(*name = mem_strdup(chosen)))
        rc = err_no_memory(e);
    registry_models_free(models, n);
    return rc;
}

int loader_suggest(registry *r, const char *name, err *e) {
    struct registry_model *models;
    struct suggest s;
    size_t n;
    if (registry_list(r, &models, &n, NULL)) return ERR_NOT_FOUND;
    suggest_init(&s, name);
    for (size_t i = 0; i < n; i++) {
        suggest_offer(&s, models[i].name);
        for (size_t k = 0; k < models[i].n_aliases; k++)
            suggest_offer(&s, models[i].aliases[k]);
    }
    if (s.best && s.distance < strlen(name)) /* a name of one letter resembles every other */
        err_set_param(e, ERR_NOT_FOUND, "model", "no model is named %.96s: did you mean %s?", name,
                      s.best);
    registry_models_free(models, n);
    return ERR_NOT_FOUND;
}

/* The demo model that is installed with the program. false: name means another, or it is not
 * there. */
static bool find_installed_demo(const char *name, struct loader_model *out) {
    char folder[PROGRAM_BYTES], path[PROGRAM_BYTES + sizeof DEMO_FILE];
    if (name[0] && strcmp(name, DEMO_NAME) != 0 && strcmp(name, "demo") != 0) return false;
    program_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s%s", folder, DEMO_FILE);
    if (access(path, R_OK) || find_path(path, out, NULL)) return false;
    char *id = mem_strdup(DEMO_NAME), *alias = mem_strdup("demo");
    out->aliases = mem_new(1, sizeof *out->aliases);
    if (!id || !alias || !out->aliases) {
        free(id);
        free(alias);
        loader_model_fini(out);
        return false;
    }
    free(out->id);
    out->id = id;
    out->aliases[out->n_aliases++] = alias;
    return true;
}

int loader_find(const struct config *c, const char *name, struct loader_model *out, err *e) {
    struct registry_model row;
    registry *r;
    char *chosen = NULL;
    memset(out, 0, sizeof *out);
    if (name[0] == '/' || name[0] == '.') return find_path(name, out, e);
    bool is_file = name[0] && access(name, R_OK) == 0;
    size_t n_models = 0;
    int rc = open_registry(c, &r, is_file ? NULL : e);
    if (rc) return is_file ? find_path(name, out, e) : rc;
    if (!name[0]) rc = default_name(r, &chosen, &n_models, e);
    if (!rc) rc = registry_resolve(r, chosen ? chosen : name, &row, e);
    if (rc == ERR_NOT_FOUND && name[0]) loader_suggest(r, name, e);
    free(chosen);
    registry_close(r);
    if (!rc) move_row(&row, out);
    if (rc != ERR_NOT_FOUND) return rc;
    if (is_file) return find_path(name, out, e);
    return n_models == 0 && find_installed_demo(name, out) ? 0 : rc;
}

int loader_find_registered(const struct config *c, const char *name, struct loader_model *out,
                           err *e) {
    size_t n = model_name_bare(name);
    char bare[REGISTRY_NAME_BYTES];
    struct registry_model row;
    registry *r;
    memset(out, 0, sizeof *out);
    int rc = open_registry(c, &r, e);
    if (rc) return rc;
    rc = registry_resolve(r, name, &row, e);
    if (rc == ERR_NOT_FOUND && name[n] && n < sizeof bare) {
        snprintf(bare, sizeof bare, "%.*s", (int)n, name);
        rc = registry_resolve(r, bare, &row, e);
    }
    registry_close(r);
    if (!rc) move_row(&row, out);
    return rc;
}

void loader_note_loaded(const struct config *c, const struct loader_model *m) {
    registry *r = NULL;
    err e;
    if (!m->registry_id) return;
    int rc = open_registry(c, &r, &e);
    if (!rc) rc = registry_touch_loaded(r, m->registry_id, &e);
    if (rc) log_warn("cannot store in the registry that %s was loaded: %s", m->id, e.msg);
    registry_close(r);
}

/* The enum qtype of one of the key's choices. */
static int parse_kv_type(const char *name) {
    if (strcmp(name, "f32") == 0) return QTYPE_F32;
    if (strcmp(name, "bf16") == 0) return QTYPE_BF16;
    return strcmp(name, "q8_0") == 0 ? QTYPE_Q8_0 : QTYPE_F16;
}

/* Numbers of a list; stages_check has refused what is none. */
static void parse_layers(const char *list, uint32_t out[ENGINE_MAX_STAGES]) {
    char *end = NULL;
    for (int i = 0; i < ENGINE_MAX_STAGES && *list; i++, list = *end ? end + 1 : end)
        out[i] = (uint32_t)strtoul(list, &end, 10);
}

void loader_engine_config(const struct config *c, const char *path, struct engine_config *out) {
    *out = (struct engine_config){
        .model_path = path,
        .backend = c->backend,
        .isa = c->isa,
        .activation_bits = strcmp(c->activation_bits, "16") == 0 ? 16 : 8,
        .n_threads = (int)c->threads,
        .n_ranks = (uint32_t)c->tensor_parallel,
        .n_stages = (uint32_t)c->pipeline_parallel,
        .device = (uint32_t)c->device,
        .memory_fraction = c->gpu_memory_utilization,
        .resident_s = (uint32_t)c->resident_s,
        .command_buffer_ms = (uint32_t)c->command_buffer_ms,
        .kv_cache_tokens = c->kv_cache_tokens,
        .kv_type = parse_kv_type(c->kv_cache_type),
        .block_tokens = strcmp(c->block_tokens, "32") == 0 ? 32 : 16,
        .context_length = (uint32_t)c->context_length,
        .max_batch_tokens = (uint32_t)c->max_batch_tokens,
        .prefill_chunk = (uint32_t)c->prefill_chunk,
        .max_sequences = (uint32_t)c->max_sequences,
        .max_queue = (uint32_t)c->max_queue,
        .stream_events = (uint32_t)c->stream_events,
        .prefix_cache = c->prefix_cache,
        .state_blocks = c->state_blocks,
        .window_blocks = c->window_blocks,
        .state_checkpoint_tokens = (uint32_t)c->state_checkpoint_tokens,
        .ignore_sampling = !c->model_sampling,
        .grammar_cache_bytes = c->grammar_cache_bytes,
        .grammar_work_s = c->grammar_work_s,
        .store_all = strcmp(c->kv_keep, "all") == 0,
        .store_idle_s = (uint32_t)c->kv_idle_s,
    };
    parse_layers(c->stage_layers, out->stage_layers);
}

/* Compiles and probes a template. */
static int open_template(const char *source, const char *bos, const char *eos, chat_template **out,
                         err *e) {
    int rc = chat_template_new(source, bos, eos, out, e);
    if (!rc) rc = chat_template_probe(*out, e);
    if (!rc) return 0;
    chat_template_free(*out);
    *out = NULL;
    return rc;
}

/* The text of a token, "" for none; the caller frees it. */
static char *token_text(const tokenizer *tok, int32_t id) {
    size_t n = 0;
    const char *text = id >= 0 ? tokenizer_token_text(tok, id, &n) : "";
    return mem_strndup(text ? text : "", text ? n : 0);
}

int loader_template_file(const char *path, const char *bos, const char *eos, chat_template **out,
                         err *e) {
    char *source;
    size_t n;
    int rc = textfile_read(path, TEMPLATE_MAX_BYTES, &source, &n, e);
    *out = NULL;
    if (rc) return rc;
    rc = strlen(source) == n ? open_template(source, bos, eos, out, e)
                             : err_set(e, ERR_FORMAT, "the template contains a NUL byte");
    if (rc) err_prefix(e, "%s: ", path);
    free(source);
    return rc;
}

/* Logs templates for special purposes, which requests cannot select. */
static void note_more_templates(const char *model_path) {
    char path[4096];
    const char *slash = strrchr(model_path, '/');
    int n = slash ? (int)(slash - model_path) : 0;
    struct stat st;
    if (!stat(model_path, &st) && S_ISDIR(st.st_mode)) n = (int)strlen(model_path);
    snprintf(path, sizeof path, "%.*s%sadditional_chat_templates", n, model_path, n ? "/" : "");
    if (!stat(path, &st)) log_info("templates in %s are ignored", path);
}

/* The model's own template, with its variant for tools. */
static int open_own_template(const tokenizer *tok, const char *bos, const char *eos,
                             chat_template **out, err *e) {
    const char *tools = tokenizer_tool_template(tok);
    chat_template *variant = NULL;
    int rc = open_template(tokenizer_chat_template(tok), bos, eos, out, e);
    if (rc || !tools) return rc;
    rc = open_template(tools, bos, eos, &variant, e);
    if (rc) {
        err_prefix(e, "tool_use: ");
        chat_template_free(*out);
        *out = NULL;
        return rc;
    }
    chat_template_set_tool_variant(*out, variant);
    return 0;
}

/* A word that is not a file was probably meant as a built-in format. */
static int err_unknown_template(const char *chosen, err *e) {
    char known[160] = "";
    const char *name;
    size_t used = 0;
    for (int i = 0; (name = chat_builtin_name(i)) && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", name);
    return err_set_param(e, ERR_NOT_FOUND, "chat-template",
                         "\"%.100s\" is neither a file nor a built-in format (%s)", chosen, known);
}

int loader_chat_template(const struct config *c, const char *path, const tokenizer *tok,
                         chat_template **out, err *e) {
    const char *chosen = c->chat_template, *name = chosen;
    char *bos = token_text(tok, tokenizer_bos(tok)), *eos = token_text(tok, tokenizer_eos(tok));
    int rc;
    *out = NULL;
    if (!*chosen && !tokenizer_chat_template(tok)) {
        name = chat_builtin_for(tok);
        if (name) log_info("%s has no chat template: using the built-in %s", path, name);
    }
    if (!bos || !eos)
        rc = err_no_memory(e);
    else if (!name)
        rc = err_set(e, ERR_NOT_FOUND,
                     "the model has no chat template, and its control tokens indicate none: set "
                     "chat-template");
    else if (chat_builtin_source(name))
        rc = open_template(chat_builtin_source(name), bos, eos, out, e);
    else if (*chosen && access(chosen, F_OK) && errno == ENOENT)
        rc = err_unknown_template(chosen, e);
    else if (*chosen)
        rc = loader_template_file(chosen, bos, eos, out, e);
    else
        rc = open_own_template(tok, bos, eos, out, e);
    if (!rc) rc = chat_template_learn(*out, tok, e);
    if (rc) {
        chat_template_free(*out);
        *out = NULL;
    }
    if (!*chosen) note_more_templates(path);
    free(bos);
    free(eos);
    return rc;
}
