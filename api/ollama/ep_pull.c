/* ep_pull.c - POST /api/pull: a model from the Hugging Face Hub, with lines that say how far it is.
 * The work is the daemon's (model_admin.h). Pool threads; the lines on HTTP threads. */
#include "api/generate/api_state.h"
#include "api/generate/body.h"
#include "api/generate/follow.h"
#include "api/http/auth.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/ollama/ollama.h"
#include "core/base/model_name.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- writing ---- */

/* Clients show a bar for lines with digest, total and completed. */
static void write_change(const struct model_task *t, str *out) {
    const char *step = t->step;
    if (t->state == MODEL_TASK_QUEUED) {
        str_add(out, "{\"status\":\"waiting for an earlier pull\"}\n");
    } else if (t->state == MODEL_TASK_RUNNING && strcmp(step, "downloading") == 0 && t->total) {
        str_addf(out,
                 "{\"status\":\"pulling %.12s\",\"digest\":\"sha256:%s\",\"total\":%" PRIu64
                 ",\"completed\":%" PRIu64 "}\n",
                 t->digest, t->digest, t->total, t->done);
    } else if (t->state == MODEL_TASK_RUNNING) {
        bool verifies = strcmp(step, "verifying") == 0;
        str_addf(out, "{\"status\":\"%s\"}\n",
                 verifies ? "verifying sha256 digest" : "pulling manifest");
    }
}

static void write_end(const struct model_task *t, const struct api_error *error, str *out) {
    (void)t;
    if (error)
        ollama_write_error(out, error);
    else
        str_add(out, "{\"status\":\"success\"}");
    str_add_char(out, '\n');
}

static void write_whole(const struct model_task *t, str *out) {
    (void)t;
    str_add(out, "{\"status\":\"success\"}");
}

static const struct follow_writer writer = {.content_type = "application/x-ndjson",
                                            .change = write_change,
                                            .end = write_end,
                                            .whole = write_whole};

/* ---- the request ---- */

struct fields {
    const char *model, *name;
    bool stream;
};
#define AT(member) .offset = offsetof(struct fields, member)

static const struct json_field pull_fields[] = {
    {.name = "model",
     .type = JSON_STRING,
     AT(model),
     .min = 1,
     .help = "A registered model, or one of the Hugging Face Hub: hf.co/ORG/REPO or "
             "hf.co/ORG/REPO:QUANT, which only administrators download."},
    {.name = "name", .type = JSON_STRING, AT(name), .min = 1, .help = "Older name of model."},
    {.name = "stream", .type = JSON_BOOL, .flags = JSON_NULLABLE, AT(stream), .initial = "true"},
    {.name = "insecure",
     .type = JSON_ADVISORY,
     .flags = JSON_NULLABLE,
     .why = "the configuration key hf-endpoint says where models come from"},
};
static const struct json_table pull_table = JSON_TABLE(pull_fields, NULL);

/* Clients pull what they are about to use: a model that is there already. */
static bool is_there(struct request *r, const char *name) {
    char found[REGISTRY_NAME_BYTES];
    struct registry_model row;
    registry *g = NULL;
    const struct api_model *m = api_find_model(r->api, name);
    models_release(r->api->models, m);
    if (m) return true;
    int rc = r->api->config.registry ? ollama_open_registry(r, &g, NULL) : ERR_NOT_FOUND;
    if (!rc) rc = ollama_find_registered(g, name, &row, found, NULL);
    if (!rc) registry_model_fini(&row);
    registry_close(g);
    return !rc;
}

/* hf.co/ORG/REPO:QUANT as registry/hub.h takes it; ":latest" is no file. */
static int read_source(const char *name, char *what, size_t n, err *e) {
    static const char *const hosts[] = {"hf:", "hf.co/", "huggingface.co/", "https://hf.co/",
                                        "https://huggingface.co/"};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        size_t n_host = strlen(hosts[i]);
        if (strncmp(name, hosts[i], n_host) != 0) continue;
        int len = snprintf(what, n, "hf:%s", name + n_host);
        if (len < 0 || (size_t)len >= n)
            return err_set_param(e, ERR_INVALID, "model", "Invalid value for 'model': too long.");
        what[model_name_bare(what)] = '\0';
        return 0;
    }
    return err_set_param(e, ERR_NOT_FOUND, "model",
                         "model '%.96s' is not registered, and models of Ollama's library are not "
                         "downloaded: pull hf.co/ORG/REPO or hf.co/ORG/REPO:QUANT from the Hugging "
                         "Face Hub",
                         name);
}

static int answer_pull(struct request *r, const cJSON *body, err *e) {
    const struct model_admin *admin = r->api->config.admin;
    struct fields f = {.stream = true};
    char what[MODEL_WHAT_BYTES];
    uint64_t task;
    int rc = gen_body_read(body, &pull_table, &f, e);
    const char *name = f.model ? f.model : f.name;
    if (!rc && !name)
        rc = err_set_param(e, ERR_INVALID, "model", "Missing required parameter: 'model'.");
    if (rc) return rc;
    if (is_there(r, name)) {
        ollama_reply_success(r, f.stream);
        return 0;
    }
    rc = read_source(name, what, sizeof what, e);
    if (!rc && !admin) rc = err_set(e, ERR_UNSUPPORTED, "This server downloads no models.");
    if (rc) return rc;
    if (!auth_check_admin(r)) return 0;
    request_act(r, "models.pull", what);
    r->act_queued = true;
    rc = admin->pull(admin->host, &(struct model_pull){.what = what, .alias = name}, &task, e);
    if (rc) return rc;
    return follow_start(r,
                        &(struct follow_config){
                            .task = task, .writer = &writer, .stream = f.stream, .cancels = true},
                        e);
}

static void handle_pull(struct request *r) {
    gen_handle(r, answer_pull);
}

const struct route ollama_pull_route = {
    "POST",      "/api/pull",          OLLAMA_MODEL,
    handle_pull, .table = &pull_table, .protocol = &ollama_protocol};
