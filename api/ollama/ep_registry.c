/* ep_registry.c - Ollama's view of the registry: which models are registered and not served, DELETE
 * /api/delete, POST /api/copy, /api/create, for administrators. Pool threads. The registry is
 * opened for each request; a new name of a loaded model (copy) counts at once. */
#include "api/generate/api_state.h"
#include "api/generate/body.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/ollama/ollama.h"
#include "registry/registry.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int ollama_open_registry(struct request *r, registry **out, err *e) {
    const char *file = r->api->config.registry;
    if (!file) return err_set(e, ERR_UNSUPPORTED, "This server has no registry of models.");
    return registry_open(file, out, e);
}

int ollama_find_registered(registry *g, const char *name, struct registry_model *out,
                           char found[REGISTRY_NAME_BYTES], err *e) {
    static const char tag[] = ":latest";
    size_t n = strlen(name), n_tag = sizeof tag - 1;
    snprintf(found, REGISTRY_NAME_BYTES, "%s", name);
    int rc = registry_find(g, name, out, e);
    if (rc != ERR_NOT_FOUND || n <= n_tag || strcmp(name + n - n_tag, tag) != 0) return rc;
    snprintf(found, REGISTRY_NAME_BYTES, "%.*s", (int)(n - n_tag), name);
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

int ollama_find_model(struct request *r, const char *name, err *e) {
    char found[REGISTRY_NAME_BYTES];
    struct registry_model row;
    registry *g = NULL;
    api_set_model(r, api_find_model(r->api, name));
    if (r->model) return 0;
    int rc = r->api->config.registry ? ollama_open_registry(r, &g, NULL) : ERR_NOT_FOUND;
    if (!rc) rc = ollama_find_registered(g, name, &row, found, NULL);
    registry_close(g);
    if (rc) return err_set_param(e, ERR_NOT_FOUND, "model", "model '%.200s' not found", name);
    api_set_model(r, loaded_of(r->api, &row));
    if (!r->model) rc = api_err_no_model(r, row.name, e);
    registry_model_fini(&row);
    return rc;
}

static void add_registered(const struct registry_model *m, bool first, str *out) {
    str_add(out, first ? "{\"name\":" : ",{\"name\":");
    json_add_cstr(out, m->name);
    str_add(out, ",\"model\":");
    json_add_cstr(out, m->name);
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
        if (!is_loaded(r->api, &models[i])) {
            add_registered(&models[i], !any, out);
            any = true;
        }
    if (!rc) registry_models_free(models, n);
    registry_close(g);
    return rc;
}

/* ---- fields ---- */

struct fields {
    const char *model, *name, *source, *destination, *from;
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
     .help = "Becomes another name of the model; no file is copied."},
};
static const struct json_table copy_table = JSON_TABLE(copy_fields, NULL);

#define REFUSED(field, reason)                                                                     \
    { .name = field, .type = JSON_REFUSED, .flags = NUL, .why = reason }
#define PER_REQUEST "models have none of their own: send it with each request"

static const struct json_field create_fields[] = {
    {.name = "model", .type = JSON_STRING, AT(model), .min = 1},
    {.name = "name", .type = JSON_STRING, AT(name), .min = 1, .help = "Older name of model."},
    {.name = "from",
     .type = JSON_STRING,
     .flags = JSON_REQUIRED,
     AT(from),
     .min = 1,
     .help = "A registered model: the new one is another name of it."},
    {.name = "stream", .type = JSON_BOOL, .flags = NUL, AT(stream), .initial = "true"},
    REFUSED("system", PER_REQUEST),
    REFUSED("parameters", PER_REQUEST),
    REFUSED("messages", PER_REQUEST),
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
    if (!rc) rc = ollama_open_registry(r, &g, e);
    if (!rc) rc = delete_name(r, g, name, e);
    registry_close(g);
    if (!rc) reply_empty(r);
    return rc;
}

/* ---- copy and create ---- */

static int add_name(struct request *r, const char *from, const char *to, const char *param,
                    err *e) {
    char found[REGISTRY_NAME_BYTES];
    struct registry_model row;
    registry *g = NULL;
    int rc = ollama_open_registry(r, &g, e);
    if (!rc) rc = ollama_find_registered(g, from, &row, found, e);
    if (!rc) {
        rc = registry_add_alias(g, row.name, to, NULL, e);
        registry_model_fini(&row);
    }
    registry_close(g);
    if (rc == ERR_EXISTS) rc = e->code = ERR_INVALID;
    if (rc == ERR_INVALID) snprintf(e->param, sizeof e->param, "%s", param);
    return rc;
}

static int answer_copy(struct request *r, const cJSON *body, err *e) {
    struct fields f = {0};
    int rc = gen_body_read(body, &copy_table, &f, e);
    if (!rc) rc = add_name(r, f.source, f.destination, "destination", e);
    if (!rc) reply_empty(r);
    return rc;
}

void ollama_reply_success(struct request *r, bool stream) {
    str out;
    str_init(&out, 256);
    str_add(&out, "{\"status\":\"success\"}");
    if (stream) str_add_char(&out, '\n');
    reply_text(r, 200, stream ? "application/x-ndjson" : "application/json", &out);
}

static int answer_create(struct request *r, const cJSON *body, err *e) {
    struct fields f = {.stream = true};
    const char *name;
    int rc = gen_body_read(body, &create_table, &f, e);
    if (!rc) rc = read_name(&f, &name, e);
    if (!rc) rc = add_name(r, f.from, name, "model", e);
    if (!rc) ollama_reply_success(r, f.stream);
    return rc;
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
