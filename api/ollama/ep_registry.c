/* ep_registry.c - Ollama's view of the registry: which models are registered and not served, DELETE
 * /api/delete, POST /api/copy, /api/create, for administrators. Pool threads. The registry is
 * opened for each request; a new name of a loaded model counts at once: a copy, or one with a
 * system prompt, messages and parameters of its own (create: generate/preset.h). */
#include "api/generate/api_state.h"
#include "api/generate/body.h"
#include "api/generate/preset.h"
#include "api/http/auth.h"
#include "api/http/ignored.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/ollama/ollama.h"
#include "core/base/mem.h"
#include "core/base/model_name.h"
#include "registry/registry.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ollama_open_registry(struct request *r, registry **out, err *e) {
    const char *file = r->api->config.registry;
    if (!file) return err_set(e, ERR_UNSUPPORTED, "This server has no registry of models.");
    return registry_open(file, out, e);
}

int ollama_find_registered(registry *g, const char *name, struct registry_model *out,
                           char found[REGISTRY_NAME_BYTES], err *e) {
    size_t n = model_name_bare(name);
    snprintf(found, REGISTRY_NAME_BYTES, "%s", name);
    int rc = registry_find(g, name, out, e);
    if (rc != ERR_NOT_FOUND || !name[n]) return rc;
    snprintf(found, REGISTRY_NAME_BYTES, "%.*s", (int)n, name);
    return registry_find(g, found, out, e);
}

/* The loaded model of a row, with a reference; NULL: none. */
static const struct api_model *loaded_of(const struct api *a, const struct registry_model *row) {
    const struct api_model *m = models_find(a->models, row->name, strlen(row->name));
    if (m && strcmp(m->id, row->name) == 0 && m->sha256 && strcmp(m->sha256, row->sha256) == 0)
        return m;
    models_release(a->models, m);
    return NULL;
}

static bool is_loaded(const struct api *a, const struct registry_model *row) {
    const struct api_model *m = loaded_of(a, row);
    models_release(a->models, m);
    return m != NULL;
}

/* Is it the id of a loaded model? That one answers to the name, also if it is another file. */
static bool is_served(const struct api *a, const char *name) {
    const struct api_model *m = models_find(a->models, name, strlen(name));
    const bool is = m && strcmp(m->id, name) == 0;
    models_release(a->models, m);
    return is;
}

int ollama_find_model(struct request *r, const char *name, err *e) {
    char id[API_MODEL_ID_BYTES];
    int rc = api_find_name(r, name, id, e);
    if (rc != ERR_NOT_FOUND) return rc;
    if (*id) return api_err_no_model(r, id, e);
    return err_set_param(e, rc, "model", "model '%.200s' not found", name);
}

static void add_registered(const struct api *a, const struct registry_model *m, const char *name,
                           bool *any, str *out) {
    if (is_served(a, name)) return;
    str_add(out, *any ? ",{\"name\":" : "{\"name\":");
    *any = true;
    json_add_cstr(out, name);
    str_add(out, ",\"model\":");
    json_add_cstr(out, name);
    str_addf(out, ",\"size\":%" PRIu64 ",\"digest\":\"%s\",", m->size_bytes, m->sha256);
    ollama_add_details(out, m->architecture, m->n_params, m->quantization);
    str_add(out, ",\"modified_at\":");
    ollama_add_time(m->added_s, out);
    str_add_char(out, '}');
}

int ollama_add_registered(struct request *r, bool any, str *out, err *e) {
    struct registry_model *models = NULL;
    registry *g = NULL;
    size_t n = 0;
    if (!r->api->config.registry) return 0;
    int rc = ollama_open_registry(r, &g, e);
    if (!rc) rc = registry_list(g, &models, &n, e);
    for (size_t i = 0; !rc && i < n; i++)
        if (!is_loaded(r->api, &models[i]) && auth_may_use(r, models[i].name)) {
            add_registered(r->api, &models[i], models[i].name, &any, out);
            for (size_t k = 0; k < models[i].n_aliases; k++)
                add_registered(r->api, &models[i], models[i].aliases[k], &any, out);
        }
    if (!rc) registry_models_free(models, n);
    registry_close(g);
    return rc;
}

/* ---- fields ---- */

struct fields {
    const char *model, *name, *source, *destination, *from, *system;
    const cJSON *parameters, *messages;
    bool stream;
};
#define AT(member) .offset = offsetof(struct fields, member)
#define NUL        JSON_NULLABLE

static const struct json_field delete_fields[] = {
    {.name = "model", .type = JSON_STRING, AT(model), .min = 1},
    {.name = "name", .type = JSON_STRING, AT(name), .min = 1, .help = "Older name of model."},
};
static const struct json_table delete_table = JSON_TABLE(delete_fields, NULL);

static const struct json_field copy_fields[] = {
    {.name = "source", .type = JSON_STRING, .flags = JSON_REQUIRED, AT(source), .min = 1},
    {.name = "destination",
     .type = JSON_STRING,
     .flags = JSON_REQUIRED,
     AT(destination),
     .min = 1,
     .help = "Becomes another name of the model, with the preset that source has; no file is "
             "copied."},
};
static const struct json_table copy_table = JSON_TABLE(copy_fields, NULL);

#define REFUSED(field, reason)                                                                     \
    { .name = field, .type = JSON_REFUSED, .flags = NUL, .why = reason }

enum { MAX_MESSAGES = 256, MAX_SYSTEM = 256 * 1024 };

struct message {
    const char *role, *content;
};
static const struct json_field message_fields[] = {
    {.name = "role",
     .type = JSON_ENUM,
     .flags = JSON_REQUIRED,
     .offset = offsetof(struct message, role),
     .words = "system|user|assistant"},
    {.name = "content",
     .type = JSON_STRING,
     .flags = JSON_REQUIRED,
     .offset = offsetof(struct message, content)},
    REFUSED("images", "images are not supported"),
    REFUSED("tool_calls", "messages of a preset are texts"),
};
static const struct json_table message_table = JSON_TABLE(message_fields, NULL);

static const struct json_field create_fields[] = {
    {.name = "model", .type = JSON_STRING, AT(model), .min = 1},
    {.name = "name", .type = JSON_STRING, AT(name), .min = 1, .help = "Older name of model."},
    {.name = "from",
     .type = JSON_STRING,
     .flags = JSON_REQUIRED,
     AT(from),
     .min = 1,
     .help = "A registered model: the new one is another name of it, with its preset, changed by "
             "system, parameters and messages."},
    {.name = "stream", .type = JSON_BOOL, .flags = NUL, AT(stream), .initial = "true"},
    {.name = "system",
     .type = JSON_STRING,
     .flags = NUL,
     AT(system),
     .max = MAX_SYSTEM,
     .help = "The system prompt of requests that begin without one."},
    {.name = "parameters",
     .type = JSON_OBJECT,
     .flags = NUL,
     AT(parameters),
     .table = &ollama_option_table,
     .help = "Options of requests that do not set them."},
    {.name = "messages",
     .type = JSON_ARRAY,
     .flags = NUL | JSON_ECHOED,
     AT(messages),
     .max = MAX_MESSAGES,
     .table = &message_table,
     .help = "Messages before those of each request. The whole preset has at most 1 MiB."},
    REFUSED("template", "set the configuration key chat-template"),
    REFUSED("files", "put the file on the daemon's machine and use `inferd models add`"),
    REFUSED("adapters", "adapters are not supported: merge it into the model"),
    REFUSED("quantize", "use `inferd quantize`"),
    REFUSED("modelfile", "send 'from' instead"),
    {.name = "license", .type = JSON_ADVISORY, .flags = NUL, .why = "licenses are not stored"},
};
static const struct json_table create_table = JSON_TABLE(create_fields, NULL);

static int read_name(const struct fields *f, const char **out, err *e) {
    *out = f->model ? f->model : f->name;
    return *out ? 0
                : err_set_param(e, ERR_INVALID, "model", "Missing required parameter: 'model'.");
}

/* ---- delete ---- */

static int delete_name(struct request *r, registry *g, const char *name, err *e) {
    char found[REGISTRY_NAME_BYTES];
    struct registry_model row;
    int rc = ollama_find_registered(g, name, &row, found, e);
    if (rc) return rc;
    if (strcmp(row.name, found) == 0 && is_loaded(r->api, &row))
        rc = err_set_param(e, ERR_INVALID, "model",
                           "model '%.96s' is being served: unload it before it is deleted (POST "
                           "/v1/inferd/models/unload, or /api/generate with keep_alive 0)",
                           found);
    registry_model_fini(&row);
    return rc ? rc : registry_remove_name(g, found, e);
}

static void reply_empty(struct request *r) {
    str out;
    str_init(&out, 16);
    reply_text(r, 200, "text/plain; charset=utf-8", &out);
}

static int answer_delete(struct request *r, const cJSON *body, err *e) {
    struct fields f = {0};
    const char *name;
    registry *g = NULL;
    int rc = gen_body_read(body, &delete_table, &f, e);
    if (!rc) rc = read_name(&f, &name, e);
    request_act(r, "models.remove", rc ? NULL : name);
    if (!rc) rc = ollama_open_registry(r, &g, e);
    if (!rc) rc = delete_name(r, g, name, e);
    registry_close(g);
    if (!rc) reply_empty(r);
    return rc;
}

/* ---- copy and create ---- */

/* What a new name is made of: a name that may have a preset, and what the request puts over that.
 */
struct new_name {
    const char *from, *to, *param;
    const struct fields *create; /* NULL: a copy */
};

/* Sets a copy as the member name; v NULL: keeps the old one. */
static int set_copy(cJSON *object, const char *name, const cJSON *v, err *e) {
    if (!v) return 0;
    cJSON *copy = cJSON_Duplicate(v, true);
    if (copy) cJSON_DeleteItemFromObjectCaseSensitive(object, name);
    if (copy && cJSON_AddItemToObject(object, name, copy)) return 0;
    cJSON_Delete(copy);
    return err_no_memory(e);
}

static int set_parameters(cJSON *preset, const cJSON *values, err *e) {
    if (!values) return 0;
    cJSON *all = cJSON_GetObjectItemCaseSensitive(preset, "parameters");
    if (!all) all = cJSON_AddObjectToObject(preset, "parameters");
    int rc = all ? 0 : err_no_memory(e);
    for (const cJSON *v = values->child; v && !rc; v = v->next)
        if (!cJSON_IsNull(v)) rc = set_copy(all, v->string, v, e);
    return rc;
}

/* Puts what the request has over what the older preset has. */
static int change_preset(cJSON *preset, const struct fields *f, err *e) {
    int rc = set_parameters(preset, f->parameters, e);
    if (!rc) rc = set_copy(preset, "messages", f->messages, e);
    if (rc || !f->system) return rc;
    cJSON_DeleteItemFromObjectCaseSensitive(preset, "system");
    return cJSON_AddStringToObject(preset, "system", f->system) ? 0 : err_no_memory(e);
}

/* Writes preset to *out, which the caller frees; NULL: there is nothing in it. */
static int write_preset(const cJSON *preset, char **out, err *e) {
    str text;
    if (!preset->child) return 0;
    str_init(&text, REPLY_MAX_BYTES);
    json_add_value(&text, preset);
    *out = text.failed ? NULL : str_take(&text);
    str_fini(&text);
    return *out ? 0 : err_no_memory(e);
}

/* The text of the new name's preset, which the caller frees; NULL: none. */
static int make_preset(const char *old, const struct fields *f, char **out, err *e) {
    cJSON *preset = NULL;
    *out = NULL;
    if (!f && !old) return 0;
    int rc = old ? preset_parse(old, &preset, e)
                 : ((preset = cJSON_CreateObject()) ? 0 : err_no_memory(e));
    if (!rc && f) rc = change_preset(preset, f, e);
    if (!rc) rc = write_preset(preset, out, e);
    cJSON_Delete(preset);
    return rc;
}

static int add_name(struct request *r, const struct new_name *n, char digest[65], err *e) {
    char found[REGISTRY_NAME_BYTES], *preset = NULL;
    char to[REGISTRY_NAME_BYTES + 1]; /* one more: a longer name stays too long */
    struct registry_model row;
    struct registry_name from = {.preset = NULL};
    registry *g = NULL;
    int rc = ollama_open_registry(r, &g, e);
    if (!rc) rc = ollama_find_registered(g, n->from, &row, found, e);
    if (!rc) {
        memcpy(digest, row.sha256, sizeof row.sha256);
        registry_model_fini(&row);
        rc = registry_find_name(g, found, &from, e);
    }
    if (!rc) rc = make_preset(from.preset, n->create, &preset, e);
    snprintf(to, sizeof to, "%.*s", (int)model_name_bare(n->to), n->to);
    if (!rc) rc = registry_add_alias(g, from.model, to, preset, e);
    registry_name_fini(&from);
    free(preset);
    registry_close(g);
    if (rc == ERR_EXISTS) rc = e->code = ERR_INVALID;
    if (rc == ERR_INVALID) snprintf(e->param, sizeof e->param, "%s", n->param);
    return rc;
}

static int answer_copy(struct request *r, const cJSON *body, err *e) {
    struct fields f = {0};
    char digest[65];
    int rc = gen_body_read(body, &copy_table, &f, e);
    const struct new_name n = {f.source, f.destination, "destination", NULL};
    request_act(r, "models.name", rc ? NULL : f.destination);
    if (!rc) rc = add_name(r, &n, digest, e);
    if (!rc) reply_empty(r);
    return rc;
}

/* Clients show each line; the last one says that all is well. */
static void reply_lines(struct request *r, bool stream, const char *const *lines, size_t n) {
    str out;
    str_init(&out, 4096);
    for (size_t i = stream ? 0 : n - 1; i < n; i++)
        str_addf(&out, "{\"status\":\"%s\"}%s", lines[i], stream ? "\n" : "");
    reply_text(r, 200, stream ? "application/x-ndjson" : "application/json", &out);
}

void ollama_reply_success(struct request *r, bool stream) {
    reply_lines(r, stream, (const char *const[]){"success"}, 1);
}

/* ERR_INVALID: a parameter that requests could not have either. */
static int check_parameters(struct request *r, const cJSON *parameters, err *e) {
    if (!parameters) return 0;
    struct ollama_fields *f = mem_new(1, sizeof *f);
    struct gen_options *o = mem_new(1, sizeof *o);
    int rc = f && o ? 0 : err_no_memory(e);
    if (!rc) {
        gen_fields_default(&f->gen);
        f->gen.stop_name = "parameters.stop";
        rc = json_read(parameters, &ollama_option_table, "parameters.", f, e);
    }
    if (!rc && f->num_ctx > 0) rc = ignored_add(r->ignored, "parameters.num_ctx", e);
    if (!rc) rc = gen_options_read(&f->gen, 0, r->ignored, o, e);
    free(f);
    free(o);
    return rc;
}

static int check_messages(const cJSON *messages, err *e) {
    int i = 0, rc = 0;
    for (const cJSON *v = messages ? messages->child : NULL; v && !rc; v = v->next) {
        char path[JSON_PATH_BYTES];
        struct message m;
        json_path(path, "messages[%d].", i++);
        rc = json_read(v, &message_table, path, &m, e);
    }
    return rc;
}

static int answer_create(struct request *r, const cJSON *body, err *e) {
    struct fields f = {.stream = true};
    struct new_name n = {.param = "model", .create = &f};
    char digest[65], layer[96];
    const char *lines[6];
    size_t n_lines = 0;
    int rc = gen_body_read(body, &create_table, &f, e);
    if (!rc) rc = read_name(&f, &n.to, e);
    request_act(r, "models.name", rc ? NULL : n.to);
    if (!rc) rc = check_parameters(r, f.parameters, e);
    if (!rc) rc = check_messages(f.messages, e);
    n.from = f.from;
    if (!rc) rc = add_name(r, &n, digest, e);
    if (rc) return rc;
    snprintf(layer, sizeof layer, "using existing layer sha256:%s", digest);
    lines[n_lines++] = layer;
    if (f.system) lines[n_lines++] = "creating system layer";
    if (f.parameters) lines[n_lines++] = "creating parameters layer";
    if (f.messages) lines[n_lines++] = "creating messages layer";
    lines[n_lines++] = "writing manifest";
    lines[n_lines++] = "success";
    reply_lines(r, f.stream, lines, n_lines);
    return 0;
}

static void handle_delete(struct request *r) {
    gen_handle(r, answer_delete);
}

static void handle_copy(struct request *r) {
    gen_handle(r, answer_copy);
}

static void handle_create(struct request *r) {
    gen_handle(r, answer_create);
}

enum { ADMIN = OLLAMA_MODEL | ROUTE_ADMIN };

const struct route ollama_delete_route = {
    "DELETE",      "/api/delete",          ADMIN,
    handle_delete, .table = &delete_table, .protocol = &ollama_protocol};
const struct route ollama_copy_route = {
    "POST", "/api/copy", ADMIN, handle_copy, .table = &copy_table, .protocol = &ollama_protocol};
const struct route ollama_create_route = {
    "POST",        "/api/create",          ADMIN,
    handle_create, .table = &create_table, .protocol = &ollama_protocol};
