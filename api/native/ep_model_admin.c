/* ep_model_admin.c - for administrators: GET /v1/inferd/models, the registered and loaded models
 * and what is being done to them, and POST .../load, /unload, /pull and /cancel; .../{id}/load and
 * /unload do the same. The work is the daemon's (model_admin.h). Pool threads. */
#include "api/generate/api_state.h"
#include "api/generate/body.h"
#include "api/generate/follow.h"
#include "api/generate/model_admin.h"
#include "api/http/error.h"
#include "api/http/json.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include <inttypes.h>

enum { LIST_MAX_BYTES = 8 << 20 };

static const char *const state_names[] = {[MODEL_UNKNOWN] = "unknown",
                                          [MODEL_REGISTERED] = "registered",
                                          [MODEL_LOADING] = "loading",
                                          [MODEL_LOADED] = "loaded",
                                          [MODEL_UNLOADING] = "unloading"};
static const char *const task_kinds[] = {
    [MODEL_TASK_LOAD] = "load", [MODEL_TASK_UNLOAD] = "unload", [MODEL_TASK_PULL] = "pull"};
static const char *const task_states[] = {[MODEL_TASK_QUEUED] = "queued",
                                          [MODEL_TASK_RUNNING] = "running",
                                          [MODEL_TASK_DONE] = "done",
                                          [MODEL_TASK_FAILED] = "failed",
                                          [MODEL_TASK_CANCELLED] = "cancelled"};

/* ---- writing ---- */

static void add_text(str *s, const char *name, const char *text) {
    str_addf(s, ",\"%s\":", name);
    if (text && *text)
        json_add_cstr(s, text);
    else
        str_add(s, "null");
}

static void add_task(str *s, const struct model_task *t) {
    str_addf(
        s, "{\"id\":%" PRIu64 ",\"object\":\"inferd.model_task\",\"kind\":\"%s\",\"state\":\"%s\"",
        t->id, task_kinds[t->kind], task_states[t->state]);
    add_text(s, "source", t->what);
    add_text(s, "model", t->model);
    add_text(s, "step", t->state == MODEL_TASK_DONE ? "done" : t->step);
    add_text(s, "sha256", t->digest);
    str_addf(s,
             ",\"done_bytes\":%" PRIu64 ",\"total_bytes\":%" PRIu64 ",\"begun\":%" PRId64
             ",\"ended\":%" PRId64,
             t->done, t->total, t->begun_s, t->ended_s);
    add_text(s, "error", t->state == MODEL_TASK_FAILED ? t->error.msg : NULL);
    str_add_char(s, '}');
}

struct listing {
    str *out;
    bool any;
    size_t n_loaded;
};

static void add_entry(void *arg, const struct model_entry *m) {
    struct listing *l = arg;
    str *s = l->out;
    str_add(s, l->any ? ",{\"id\":" : "{\"id\":");
    l->any = true;
    l->n_loaded += m->state == MODEL_LOADED;
    json_add_cstr(s, m->id);
    str_addf(s, ",\"object\":\"inferd.model\",\"state\":\"%s\",\"registered\":%s,\"aliases\":[",
             state_names[m->state], m->registered ? "true" : "false");
    for (size_t i = 0; i < m->n_aliases; i++) {
        if (i) str_add_char(s, ',');
        json_add_cstr(s, m->aliases[i]);
    }
    str_add_char(s, ']');
    add_text(s, "architecture", m->architecture);
    add_text(s, "quantization", m->quantization);
    add_text(s, "sha256", m->sha256);
    str_addf(s,
             ",\"parameters\":%" PRIu64 ",\"context_length\":%" PRIu64 ",\"size_bytes\":%" PRIu64
             ",\"task\":",
             m->n_params, m->context_length, m->size_bytes);
    if (m->task)
        add_task(s, m->task);
    else
        str_add(s, "null");
    str_add_char(s, '}');
}

static const struct model_admin *admin_of(struct request *r, err *e) {
    if (!r->api->config.admin)
        err_set(e, ERR_UNSUPPORTED, "The models of this server do not change.");
    return r->api->config.admin;
}

static void handle_list(struct request *r) {
    err e = {0};
    str body;
    str_init(&body, LIST_MAX_BYTES);
    struct listing l = {.out = &body};
    const struct model_admin *admin = admin_of(r, &e);
    str_add(&body, "{\"object\":\"list\",\"data\":[");
    int rc = admin ? admin->list(admin->host, add_entry, &l, &e) : e.code;
    if (rc) {
        str_fini(&body);
        reply_err(r, &e);
        return;
    }
    struct model_task tasks[MODEL_TASKS_KEPT];
    size_t n = admin->tasks(admin->host, tasks, MODEL_TASKS_KEPT);
    str_add(&body, "],\"tasks\":[");
    for (size_t i = 0; i < n; i++) {
        if (i) str_add_char(&body, ',');
        add_task(&body, &tasks[i]);
    }
    str_addf(&body, "],\"loaded\":%zu,\"max_loaded\":%u}", l.n_loaded, admin->max_models);
    reply_header(r, "Cache-Control", "no-store");
    reply_json(r, 200, &body);
}

/* ---- following a task ---- */

static void write_change(const struct model_task *t, str *out) {
    str_add(out, "data: ");
    add_task(out, t);
    str_add(out, "\n\n");
}

static void write_end(const struct model_task *t, const struct api_error *error, str *out) {
    (void)t;
    if (error) {
        str_add(out, "data: ");
        error_write(out, error);
        str_add(out, "\n\n");
    }
    str_add(out, "data: [DONE]\n\n");
}

static const struct follow_writer writer = {
    .content_type = "text/event-stream", .change = write_change, .end = write_end};

/* ---- fields ---- */

struct fields {
    const char *model, *revision, *name;
    bool stream;
    int64_t task;
};
#define AT(member) .offset = offsetof(struct fields, member)
#define STREAM                                                                                     \
    {                                                                                              \
        .name = "stream", .type = JSON_BOOL, .flags = JSON_NULLABLE, AT(stream),                   \
        .initial = "false",                                                                        \
        .help =                                                                                    \
            "true: events with the task's progress until it ends; a pull whose client hangs up "   \
            "is cancelled. false: the task, which GET /v1/inferd/models shows."                    \
    }

static const struct json_field name_fields[] = {
    {.name = "model",
     .type = JSON_STRING,
     .flags = JSON_REQUIRED,
     AT(model),
     .min = 1,
     .help = "A registered model's name or alias."},
    STREAM,
};
static const struct json_table name_table = JSON_TABLE(name_fields, NULL);

static const struct json_field stream_fields[] = {STREAM};
static const struct json_table stream_table = JSON_TABLE(stream_fields, NULL);

static const struct json_field pull_fields[] = {
    {.name = "model",
     .type = JSON_STRING,
     .flags = JSON_REQUIRED,
     AT(model),
     .min = 1,
     .help = "hf:ORG/REPO or hf:ORG/REPO:FILE, as `inferd pull` takes it; FILE is a GGUF's name, a "
             "pattern with * or a type such as Q4_K_M."},
    {.name = "revision",
     .type = JSON_STRING,
     .flags = JSON_NULLABLE,
     AT(revision),
     .min = 1,
     .initial = "\"main\"",
     .help = "Branch, tag or commit."},
    {.name = "name",
     .type = JSON_STRING,
     .flags = JSON_NULLABLE,
     AT(name),
     .min = 1,
     .help = "Name in the registry; left out, it is made from the repository's or the file's."},
    STREAM,
};
static const struct json_table pull_table = JSON_TABLE(pull_fields, NULL);

static const struct json_field cancel_fields[] = {
    {.name = "task",
     .type = JSON_INT,
     .flags = JSON_REQUIRED,
     AT(task),
     .min = 1,
     .max = 9007199254740992.0,
     .help = "The id of a task that waits, or of a load or pull that runs."},
};
static const struct json_table cancel_table = JSON_TABLE(cancel_fields, NULL);

/* ---- requests ---- */

static int answer_task(struct request *r, const struct model_admin *admin, const struct fields *f,
                       uint64_t id, bool cancels, err *e) {
    struct model_task task;
    str body;
    r->act_queued = true;
    if (f->stream)
        return follow_start(r,
                            &(struct follow_config){
                                .task = id, .writer = &writer, .stream = true, .cancels = cancels},
                            e);
    if (!admin->get(admin->host, id, &task))
        return err_set(e, ERR_UNAVAILABLE, "The task's result is not kept any more.");
    str_init(&body, 16384);
    add_task(&body, &task);
    reply_json(r, 200, &body);
    return 0;
}

static int answer_load(struct request *r, const cJSON *body, err *e) {
    struct fields f = {0};
    uint64_t id;
    const struct model_admin *admin = admin_of(r, e);
    int rc = admin ? gen_body_read(body, &name_table, &f, e) : e->code;
    request_act(r, "models.load", rc ? NULL : f.model);
    if (!rc) rc = admin->load(admin->host, f.model, &id, e);
    return rc ? rc : answer_task(r, admin, &f, id, false, e);
}

static int answer_unload(struct request *r, const cJSON *body, err *e) {
    struct fields f = {0};
    uint64_t id;
    const struct model_admin *admin = admin_of(r, e);
    int rc = admin ? gen_body_read(body, &name_table, &f, e) : e->code;
    request_act(r, "models.unload", rc ? NULL : f.model);
    if (!rc) rc = admin->unload(admin->host, f.model, &id, e);
    return rc ? rc : answer_task(r, admin, &f, id, false, e);
}

/* .../{id}/load and /unload: the body is optional. */
static int answer_named(struct request *r, const cJSON *body, bool load, err *e) {
    struct fields f = {0};
    char id[API_MODEL_ID_BYTES];
    uint64_t task = 0;
    const struct model_admin *admin = admin_of(r, e);
    int rc = admin ? gen_body_read(body, &stream_table, &f, e) : e->code;
    if (rc) return rc;
    request_segment(r, 0, id, sizeof id);
    request_act(r, load ? "models.load" : "models.unload", id);
    rc = (load ? admin->load : admin->unload)(admin->host, id, &task, e);
    return rc ? rc : answer_task(r, admin, &f, task, false, e);
}

static int answer_named_load(struct request *r, const cJSON *body, err *e) {
    return answer_named(r, body, true, e);
}

static int answer_named_unload(struct request *r, const cJSON *body, err *e) {
    return answer_named(r, body, false, e);
}

static int answer_pull(struct request *r, const cJSON *body, err *e) {
    struct fields f = {0};
    uint64_t id;
    const struct model_admin *admin = admin_of(r, e);
    int rc = admin ? gen_body_read(body, &pull_table, &f, e) : e->code;
    const struct model_pull pull = {.what = f.model, .revision = f.revision, .name = f.name};
    request_act(r, "models.pull", rc ? NULL : f.model);
    if (!rc) rc = admin->pull(admin->host, &pull, &id, e);
    return rc ? rc : answer_task(r, admin, &f, id, true, e);
}

static int answer_cancel(struct request *r, const cJSON *body, err *e) {
    struct fields f = {0};
    const struct model_admin *admin = admin_of(r, e);
    int rc = admin ? gen_body_read(body, &cancel_table, &f, e) : e->code;
    request_act(r, "models.cancel", NULL);
    if (rc) return rc;
    if (!admin->cancel(admin->host, (uint64_t)f.task))
        return err_set_param(e, ERR_INVALID, "task",
                             "Invalid value for 'task': no task %" PRId64 " waits, and no load or "
                             "pull with this id runs.",
                             f.task);
    f.stream = false;
    return answer_task(r, admin, &f, (uint64_t)f.task, false, e);
}

static void handle_load(struct request *r) {
    gen_handle(r, answer_load);
}

static void handle_unload(struct request *r) {
    gen_handle(r, answer_unload);
}

static void handle_named(struct request *r,
                         int (*answer)(struct request *r, const cJSON *body, err *e)) {
    if (!r->body.len) str_add(&r->body, "{}");
    gen_handle(r, answer);
}

static void handle_named_load(struct request *r) {
    handle_named(r, answer_named_load);
}

static void handle_named_unload(struct request *r) {
    handle_named(r, answer_named_unload);
}

static void handle_pull(struct request *r) {
    gen_handle(r, answer_pull);
}

static void handle_cancel(struct request *r) {
    gen_handle(r, answer_cancel);
}

enum { ADMIN = ROUTE_BODY | ROUTE_ADMIN };

const struct route admin_models_route = {
    "GET", "/v1/inferd/models", ROUTE_KEY | ROUTE_MODEL | ROUTE_ADMIN, .handle = handle_list};
const struct route admin_load_route = {"POST", "/v1/inferd/models/load", ADMIN, handle_load,
                                       .table = &name_table};
const struct route admin_unload_route = {"POST", "/v1/inferd/models/unload", ADMIN, handle_unload,
                                         .table = &name_table};
enum { NAMED = ROUTE_KEY | ROUTE_MODEL | ROUTE_ADMIN };
const struct route admin_named_load_route = {"POST", "/v1/inferd/models/{id}/load", NAMED,
                                             handle_named_load, .table = &stream_table};
const struct route admin_named_unload_route = {"POST", "/v1/inferd/models/{id}/unload", NAMED,
                                               handle_named_unload, .table = &stream_table};
const struct route admin_pull_route = {"POST", "/v1/inferd/models/pull", ADMIN, handle_pull,
                                       .table = &pull_table};
const struct route admin_cancel_route = {"POST", "/v1/inferd/models/cancel", ADMIN, handle_cancel,
                                         .table = &cancel_table};
