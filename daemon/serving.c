/* serving.c - see serving.h. Owns the engines and chat templates. */
#include "daemon/serving.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/model_name.h"
#include "daemon/key_names.h"
#include "daemon/kv_tiers.h"
#include "daemon/pull_model.h"
#include "daemon/serving_int.h"
#include "registry/hub.h"
#include "registry/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

static bool has_name(const struct loader_model *m, const char *name, size_t n) {
    if (strlen(m->id) == n && memcmp(m->id, name, n) == 0) return true;
    for (size_t i = 0; i < m->n_aliases; i++)
        if (strlen(m->aliases[i]) == n && memcmp(m->aliases[i], name, n) == 0) return true;
    return false;
}

/* With mu held. ":latest" after a name counts as absent. */
static struct served *find_row(const serving *s, const char *name) {
    size_t n = strlen(name), bare = model_name_bare(name);
    for (size_t i = 0; i < s->n; i++)
        if (has_name(&s->rows[i]->model, name, n)) return s->rows[i];
    for (size_t i = 0; i < s->n && bare < n; i++)
        if (has_name(&s->rows[i]->model, name, bare)) return s->rows[i];
    return NULL;
}

static void free_row(struct served *m) {
    engine_close(m->engine);
    chat_template_free(m->chat);
    loader_model_fini(&m->model);
    free(m);
}

/* What the daemon counts of a model, with mu held. Of more than there are places for, those that
 * are not loaded lose theirs. */
static struct model_usage *usage_of(serving *s, const char *id) {
    size_t i = 0;
    while (i < s->n_usage && strcmp(s->usage[i].id, id) != 0)
        i++;
    if (i < s->n_usage) return &s->usage[i];
    if (s->n_usage < MODEL_USAGE_MAX)
        s->n_usage++;
    else
        for (i = 0; i + 1 < s->n_usage && s->usage[i].loaded; i++) {
        }
    s->usage[i] = (struct model_usage){.expires_s = -1};
    snprintf(s->usage[i].id, sizeof s->usage[i].id, "%s", id);
    return &s->usage[i];
}

static bool is_pinned(const serving *s, const char *id) {
    for (size_t i = 0; i < s->n_pinned; i++)
        if (strcmp(s->pinned[i], id) == 0) return true;
    return false;
}

/* Takes what is in *model. ERR_EXISTS, ERR_UNAVAILABLE: too many. */
static int add_row(serving *s, struct loader_model *model, struct served **out, err *e) {
    struct served *m = mem_new(1, sizeof *m);
    if (!m) return err_no_memory(e);
    int rc = 0;
    pthread_mutex_lock(&s->mu);
    for (size_t i = 0; i < s->n && !rc; i++)
        if (strcmp(s->rows[i]->model.id, model->id) == 0)
            rc = err_set_param(e, ERR_EXISTS, "model", "model %s is listed twice", model->id);
    if (!rc && s->n == sizeof s->rows / sizeof s->rows[0])
        rc = err_set_param(e, ERR_UNAVAILABLE, "model", "too many models are known");
    if (!rc) {
        m->model = *model;
        m->state = MODEL_REGISTERED;
        m->pinned = is_pinned(s, m->model.id);
        m->keep_ms = s->limits.keep_ms;
        memset(model, 0, sizeof *model);
        s->rows[s->n++] = m;
    }
    pthread_mutex_unlock(&s->mu);
    if (rc) free(m);
    *out = rc ? NULL : m;
    return rc;
}

/* A registered model's row goes; one of a path stays, so that it can be loaded again. The engine is
 * closed already. */
static void rest_row(serving *s, struct served *m) {
    bool keeps = !m->model.registry_id;
    pthread_mutex_lock(&s->mu);
    m->state = MODEL_REGISTERED;
    m->draining = m->measured = false;
    m->need = (struct engine_need){0};
    for (size_t i = 0; i < s->n && !keeps; i++)
        if (s->rows[i] == m) {
            memmove(&s->rows[i], &s->rows[i + 1], (s->n - i - 1) * sizeof s->rows[0]);
            s->n--;
            break;
        }
    pthread_mutex_unlock(&s->mu);
    if (!keeps) free_row(m);
}

static void set_state(serving *s, struct served *m, enum model_state state) {
    pthread_mutex_lock(&s->mu);
    m->state = state;
    pthread_mutex_unlock(&s->mu);
}

/* ---- loading ---- */

static int on_weights(void *arg, uint64_t done, uint64_t total) {
    return arg ? host_task_progress(arg, "loading weights", done, total) : 0;
}

/* A load ended: m is there, or not. */
static void note_load(serving *s, struct served *m, bool ok, uint64_t begin_ns) {
    pthread_mutex_lock(&s->mu);
    struct model_usage *u = usage_of(s, m->model.id);
    m->loaded_ns = clock_now_ns();
    m->load_ns = m->loaded_ns - begin_ns;
    m->bytes = ok ? engine_bytes(m->engine) : 0;
    m->keep_ms = s->limits.keep_ms;
    m->keeps_own = false;
    m->state = ok ? MODEL_LOADED : m->state;
    if (ok) serving_set_engine(s, m); /* after a reload while it was loaded */
    u->loaded = ok;
    u->bytes = m->bytes;
    u->n_loads += ok;
    u->n_failed += !ok;
    if (ok) u->load_ns += m->load_ns;
    pthread_mutex_unlock(&s->mu);
}

/* t NULL: at start. n_later: models that are loaded after this one. left: the memory that it may
 * have; 0: there is no bound. */
static int open_engine(serving *s, struct served *m, uint32_t n_later, uint64_t left,
                       struct host_task *t, err *e) {
    struct engine_config config;
    err why;
    log_info("loading %s from %s", m->model.id, m->model.path);
    loader_engine_config(s->config, m->model.path, &config);
    config.group = s->group;
    config.n_later = n_later;
    config.memory_bytes = left;
    if (m->measured) {
        config.context_length = m->need.context_length;
        config.state_blocks = m->need.state_blocks;
    }
    config.on_load = on_weights;
    config.on_load_arg = t;
    config.store = s->store;
    config.model_sha256 = m->model.sha256;
    config.model_label = m->model.id;
    if (s->events &&
        !kvevents_attach(s->events, m->model.id, config.block_tokens, &config.listener))
        log_info("no KV events of %s: those of another model are published", m->model.id);
    int rc = engine_open(&config, &m->engine, e);
    if (rc) {
        kvevents_detach(s->events, m->model.id);
        err_prefix(e, "model %s: ", m->model.id);
        return rc;
    }
    rc =
        loader_chat_template(s->config, m->model.path, engine_tokenizer(m->engine), &m->chat, &why);
    if (rc && *s->config->chat_template) {
        if (e) *e = why;
        return err_prefix(e, "chat-template: ");
    }
    if (rc) log_warn("%s can complete texts, but not chat: %s", m->model.id, why.msg);
    loader_note_loaded(s->config, &m->model);
    return 0;
}

static struct api_model api_model_of(const struct served *m) {
    return (struct api_model){.id = m->model.id,
                              .aliases = (const char *const *)m->model.aliases,
                              .n_aliases = m->model.n_aliases,
                              .engine = m->engine,
                              .chat = m->chat,
                              .created_s = m->model.created_s,
                              .sha256 = m->model.sha256};
}

static void close_engine(serving *s, struct served *m) {
    engine_close(m->engine);
    kvevents_detach(s->events, m->model.id);
    chat_template_free(m->chat);
    m->engine = NULL;
    m->chat = NULL;
}

/* ---- tasks ---- */

/* The state and id of a row; MODEL_UNKNOWN: there is none of that name. */
static enum model_state state_of_row(serving *s, const char *name, char id[API_MODEL_ID_BYTES]) {
    enum model_state state = MODEL_UNKNOWN;
    pthread_mutex_lock(&s->mu);
    const struct served *m = find_row(s, name);
    if (m) {
        state = m->state;
        snprintf(id, API_MODEL_ID_BYTES, "%s", m->model.id);
    }
    pthread_mutex_unlock(&s->mu);
    return state;
}

/* The id of a model that the registry has under that name. */
static int find_registered(const serving *s, const char *name, char id[API_MODEL_ID_BYTES],
                           err *e) {
    struct loader_model found;
    int rc = loader_find_registered(s->config, name, &found, e);
    if (rc) return rc;
    snprintf(id, API_MODEL_ID_BYTES, "%s", found.id);
    loader_model_fini(&found);
    return 0;
}

static int resolve_name(void *arg, enum model_task_kind kind, const char *name,
                        char id[API_MODEL_ID_BYTES], err *e) {
    serving *s = arg;
    enum model_state state = state_of_row(s, name, id);
    if (kind == MODEL_TASK_UNLOAD && (state == MODEL_UNKNOWN || state == MODEL_REGISTERED))
        return err_set_param(e, ERR_NOT_FOUND, "model", "The model '%.96s' is not loaded.", name);
    return state == MODEL_UNKNOWN ? find_registered(s, name, id, e) : 0;
}

/* The row to load, which was added if the model is registered. */
static int row_to_load(serving *s, const char *id, struct served **out, err *e) {
    struct loader_model found;
    pthread_mutex_lock(&s->mu);
    *out = find_row(s, id);
    pthread_mutex_unlock(&s->mu);
    if (*out) return 0;
    int rc = loader_find_registered(s->config, id, &found, e);
    if (!rc) rc = add_row(s, &found, out, e);
    loader_model_fini(&found);
    return rc;
}

static int load_one(serving *s, const char *id, struct host_task *t, err *e) {
    struct served *m;
    host_task_progress(t, "loading", 0, 0);
    uint64_t left = 0, begin_ns;
    int rc = row_to_load(s, id, &m, e);
    if (rc || m->state == MODEL_LOADED) return rc; /* only this thread changes states */
    if (m->state == MODEL_UNLOADING)               /* for another one: that is first */
        return atomic_load(host_task_stop(t)) ? err_set(e, ERR_CANCELLED, "it was cancelled")
                                              : HOST_LATER;
    set_state(s, m, MODEL_LOADING);
    do {
        rc = room_make(s, m, t, &left, e);
        if (rc == HOST_LATER) return rc;
        begin_ns = clock_now_ns();
        if (!rc) rc = open_engine(s, m, 0, left, t, e);
    } while (rc == ERR_NOMEM && m->measured && room_free_more(s, m, t));
    const struct api_model published = api_model_of(m);
    if (!rc) rc = api_add_model(s->api, &published, e);
    if (rc) close_engine(s, m);
    note_load(s, m, !rc, begin_ns);
    if (rc) {
        rest_row(s, m);
        return rc;
    }
    log_info("%s is loaded", id);
    return 0;
}

static int load_model(void *arg, const char *id, struct host_task *t, err *e) {
    int rc = load_one(arg, id, t, e);
    if (rc < 0 && e) key_names_put(e);
    return rc;
}

int serving_remove(serving *s, struct served *m, uint32_t drain_s, enum model_reason why,
                   struct host_task *t, err *e) {
    static const char *const words[] = {[MODEL_ASKED] = "is unloaded",
                                        [MODEL_EXPIRED] = "is unloaded: nothing has used it",
                                        [MODEL_ROOM] = "is unloaded: another needs its memory"};
    set_state(s, m, MODEL_UNLOADING);
    int rc = api_remove_model(s->api, m->model.id, drain_s, host_task_stop(t), e);
    if (rc) return rc; /* the daemon stops: serving_close frees it */
    host_task_progress(t, "unloading", 0, 0);
    log_info("%s %s", m->model.id, words[why]);
    close_engine(s, m);
    pthread_mutex_lock(&s->mu);
    struct model_usage *u = usage_of(s, m->model.id);
    u->loaded = false;
    u->bytes = m->bytes = 0;
    u->n_unloads[why]++;
    pthread_mutex_unlock(&s->mu);
    rest_row(s, m);
    return 0;
}

static int unload_model(void *arg, const char *id, struct host_task *t, err *e) {
    serving *s = arg;
    pthread_mutex_lock(&s->mu);
    struct served *m = find_row(s, id);
    bool expires = host_task_expires(t);
    bool goes = m && (m->state == MODEL_LOADED || m->draining);
    if (goes && expires) goes = room_is_over(s, m);
    if (goes && !expires) m->draining = false; /* whoever waits for its room */
    pthread_mutex_unlock(&s->mu);
    if (!goes) return 0; /* meanwhile it went, or was used */
    if (expires && !room_hide_idle(s, m)) return 0;
    host_task_progress(t, "waiting for running answers", 0, 0);
    return serving_remove(s, m, serving_limits_now(s).unload_deadline_s,
                          expires ? MODEL_EXPIRED : MODEL_ASKED, t, e);
}

static int check_pull(void *arg, const struct model_pull *p, err *e) {
    (void)arg;
    int rc = hub_check(p->what, e);
    if (rc && e) snprintf(e->param, sizeof e->param, "model");
    return rc ? rc : p->name ? registry_check_name(p->name, e) : 0;
}

static int show_pull(void *arg, enum pull_step step, uint64_t done, uint64_t total) {
    static const char *const names[] = {[PULL_LISTING] = "reading the list of files",
                                        [PULL_DOWNLOADING] = "downloading",
                                        [PULL_HASHING] = "verifying"};
    return host_task_progress(arg, names[step], done, total);
}

static void note_chosen(void *arg, const char *path, uint64_t bytes, const char *sha256) {
    (void)path;
    host_task_name(arg, NULL, sha256);
    host_task_progress(arg, "downloading", 0, bytes);
}

static void say_line(void *arg, const char *line) {
    char text[512];
    size_t n = 0;
    (void)arg;
    for (; line[n] && n + 1 < sizeof text; n++)
        text[n] = (unsigned char)line[n] < ' ' || line[n] == 0x7f ? '?' : line[n];
    text[n] = '\0';
    log_info("pull: %s", text);
}

static int run_pull(void *arg, const struct model_pull *p, struct host_task *t, err *e) {
    serving *s = arg;
    struct registry_model added;
    struct config config = {0};
    struct pull_job job = {.config = &config,
                           .what = p->what,
                           .revision = p->revision,
                           .name = p->name,
                           .aliases = &p->alias,
                           .n_aliases = p->alias != NULL,
                           .chosen = note_chosen,
                           .progress = show_pull,
                           .say = say_line,
                           .arg = t};
    int rc = serving_pull_config(s, &config, e);
    if (!rc) rc = registry_open(s->registry, &job.registry, e);
    if (!rc) rc = pull_model(&job, &added, e);
    registry_close(job.registry);
    config_fini(&config);
    if (rc) return rc;
    host_task_name(t, added.name, NULL);
    log_info("pulled %s from %s", added.name, p->what);
    registry_model_fini(&added);
    return 0;
}

/* ---- what the API asks ---- */

static serving *serving_of(model_host *h) {
    return model_host_arg(h);
}

static enum model_state find_model(model_host *h, const char *name, char id[API_MODEL_ID_BYTES]) {
    serving *s = serving_of(h);
    enum model_state state = state_of_row(s, name, id);
    if (state != MODEL_UNKNOWN) return state;
    int rc = find_registered(s, name, id, NULL);
    if (rc == ERR_CHANGED) snprintf(id, API_MODEL_ID_BYTES, "%s", name); /* to load it says so */
    return rc && rc != ERR_CHANGED ? MODEL_UNKNOWN : MODEL_REGISTERED;
}

struct listing {
    struct model_task tasks[MODEL_TASKS_KEPT];
    size_t n_tasks;
    enum model_state states[2 * API_MAX_MODELS]; /* (n) of the rows, as of one moment */
    char ids[2 * API_MAX_MODELS][API_MODEL_ID_BYTES];
    bool is_registered[2 * API_MAX_MODELS];
    size_t n;
    void (*each)(void *arg, const struct model_entry *m);
    void *arg;
};

/* The newest task about the model, if it has not succeeded. */
static const struct model_task *task_of(const struct listing *l, const char *id) {
    for (size_t i = 0; i < l->n_tasks; i++) {
        const struct model_task *t = &l->tasks[i];
        if (t->kind == MODEL_TASK_PULL || strcmp(t->model, id) != 0) continue;
        return t->state == MODEL_TASK_DONE ? NULL : t;
    }
    return NULL;
}

static void list_registered(struct listing *l, const struct registry_model *row) {
    enum model_state state = MODEL_REGISTERED;
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->ids[i], row->name) == 0) {
            state = l->states[i];
            l->is_registered[i] = true;
        }
    l->each(l->arg, &(struct model_entry){.id = row->name,
                                          .aliases = (const char *const *)row->aliases,
                                          .n_aliases = row->n_aliases,
                                          .state = state,
                                          .registered = true,
                                          .architecture = row->architecture,
                                          .quantization = row->quantization,
                                          .sha256 = row->sha256,
                                          .n_params = row->n_params,
                                          .context_length = row->context_length,
                                          .size_bytes = row->size_bytes,
                                          .task = task_of(l, row->name)});
}

static int list_models(model_host *h, void (*each)(void *arg, const struct model_entry *m),
                       void *arg, err *e) {
    serving *s = serving_of(h);
    struct listing *l = mem_new(1, sizeof *l);
    struct registry_model *models = NULL;
    registry *r = NULL;
    size_t n = 0;
    if (!l) return err_no_memory(e);
    l->each = each;
    l->arg = arg;
    l->n_tasks = model_host_tasks(h, l->tasks, MODEL_TASKS_KEPT);
    pthread_mutex_lock(&s->mu);
    for (; l->n < s->n; l->n++) {
        l->states[l->n] = s->rows[l->n]->state;
        snprintf(l->ids[l->n], sizeof l->ids[0], "%s", s->rows[l->n]->model.id);
    }
    pthread_mutex_unlock(&s->mu);
    int rc = registry_open(s->registry, &r, e);
    if (!rc) rc = registry_list(r, &models, &n, e);
    registry_close(r);
    for (size_t i = 0; i < n && !rc; i++)
        list_registered(l, &models[i]);
    for (size_t i = 0; i < l->n && !rc; i++)
        if (!l->is_registered[i])
            each(arg, &(struct model_entry){
                          .id = l->ids[i], .state = l->states[i], .task = task_of(l, l->ids[i])});
    if (!rc) registry_models_free(models, n);
    free(l);
    return rc;
}

static bool keep_model(model_host *h, const char *id, int64_t ms) {
    serving *s = serving_of(h);
    pthread_mutex_lock(&s->mu);
    struct served *m = find_row(s, id);
    bool ok = m && !m->pinned;
    if (ok) m->keep_ms = ms;
    if (ok) m->keeps_own = true;
    pthread_mutex_unlock(&s->mu);
    return ok;
}

/* When m would leave if nothing asked for it from now on. With mu held. */
static int64_t expiry_of(serving *s, const struct served *m) {
    uint64_t used_ns, now_ns = clock_now_ns();
    if (m->pinned || m->keep_ms < 0) return -1;
    if (api_model_use(s->api, m->model.id, m->draining, &used_ns)) used_ns = now_ns;
    int64_t idle_ms = (int64_t)((now_ns - used_ns) / 1000000);
    return clock_wall_s() + (m->keep_ms > idle_ms ? (m->keep_ms - idle_ms + 999) / 1000 : 0);
}

static size_t list_usage(model_host *h, struct model_usage *out, uint64_t *budget) {
    serving *s = serving_of(h);
    pthread_mutex_lock(&s->mu);
    *budget = s->limits.memory_budget;
    size_t n = s->n_usage;
    for (size_t i = 0; i < n; i++) {
        out[i] = s->usage[i];
        const struct served *m = find_row(s, out[i].id);
        out[i].pinned = is_pinned(s, out[i].id);
        out[i].expires_s = m && out[i].loaded ? expiry_of(s, m) : -1;
    }
    pthread_mutex_unlock(&s->mu);
    return n;
}

/* ---- the daemon's life ---- */

/* Adds one model of the list; refuses a second name of the same model. */
static int add_listed(serving *s, const char *name, err *e) {
    struct loader_model found;
    struct served *m;
    if (s->n == s->config->max_models)
        return err_set_param(e, ERR_INVALID, "model",
                             "more than %u models are listed, the maximum: set max-models",
                             (unsigned)s->config->max_models);
    int rc = loader_find(s->config, name, &found, e);
    if (!rc) rc = add_row(s, &found, &m, e);
    loader_model_fini(&found);
    return rc;
}

/* Reads the key model, a list separated by commas. */
static int find_listed(serving *s, err *e) {
    char *list = mem_strdup(s->config->model);
    if (!list) return err_no_memory(e);
    int rc = 0;
    bool named = list[strspn(list, " ,")] != '\0';
    if (!named) rc = add_listed(s, "", e);
    if (rc == ERR_NOT_FOUND && !named && s->config->load_on_demand) {
        err_clear(e); /* no default: each is loaded when it is asked for */
        rc = 0;
    }
    char *rest = NULL;
    for (char *name = strtok_r(list, ",", &rest); name && !rc; name = strtok_r(NULL, ",", &rest)) {
        name += strspn(name, " ");
        size_t n = strlen(name);
        while (n && name[n - 1] == ' ')
            name[--n] = '\0';
        if (n) rc = add_listed(s, name, e);
    }
    free(list);
    for (; named && !rc && s->n_pinned < s->n; s->n_pinned++) {
        snprintf(s->pinned[s->n_pinned], API_MODEL_ID_BYTES, "%s", s->rows[s->n_pinned]->model.id);
        s->rows[s->n_pinned]->pinned = true;
    }
    return rc;
}

int serving_open(const struct config *config, engine_group *group, serving **out, err *e) {
    serving *s = mem_new(1, sizeof *s);
    if (!s) return err_no_memory(e);
    s->config = config;
    s->group = group;
    pthread_mutex_init(&s->mu, NULL);
    const struct host_ops ops = {.arg = s,
                                 .resolve = resolve_name,
                                 .check_pull = check_pull,
                                 .load = load_model,
                                 .unload = unload_model,
                                 .pull = run_pull};
    int rc = config_registry_path(config, &s->registry, e);
    if (!rc) rc = serving_limits_read(config, &s->limits, e);
    if (!rc) rc = config_clone(&s->pulls, config, e);
    if (!rc) rc = find_listed(s, e);
    if (!rc) rc = kv_tiers_open(config, s->registry, &s->store, e);
    if (!rc) rc = kv_tiers_publish(config, &s->events, e);
    if (!rc)
        rc = model_host_open(&ops, (uint32_t)config->max_model_tasks,
                             (uint32_t)config->max_load_queue, &s->host, e);
    if (rc) {
        serving_close(s);
        return rc;
    }
    s->admin = (struct model_admin){.host = s->host,
                                    .max_models = (uint32_t)config->max_models,
                                    .load_on_demand = config->load_on_demand,
                                    .load = model_host_load,
                                    .unload = model_host_unload,
                                    .want = model_host_want,
                                    .keep = keep_model,
                                    .usage = list_usage,
                                    .pull = model_host_pull,
                                    .cancel = model_host_cancel,
                                    .get = model_host_get,
                                    .tasks = model_host_tasks,
                                    .watch = model_host_watch,
                                    .unwatch = model_host_unwatch,
                                    .find = find_model,
                                    .list = list_models};
    *out = s;
    return 0;
}

kvstore *serving_kv_store(const serving *s) {
    return s->store;
}

const struct model_admin *serving_admin(const serving *s) {
    return &s->admin;
}

int serving_start(serving *s, api *a, bool (*stopped)(void), err *e) {
    struct api_model models[API_MAX_MODELS];
    size_t n = s->n; /* no task runs before the models of the start are there */
    s->api = a;
    for (size_t i = 0; i < n; i++) {
        if (stopped()) return 0;
        uint64_t left, begin_ns = clock_now_ns();
        int rc = room_find(s, s->rows[i], &left, e);
        if (!rc) rc = open_engine(s, s->rows[i], (uint32_t)(n - i - 1), left, NULL, e);
        if (rc) return rc;
        note_load(s, s->rows[i], true, begin_ns);
        models[i] = api_model_of(s->rows[i]);
    }
    return stopped() ? 0 : api_set_models(a, models, n, e);
}

void serving_names(serving *s, str *out) {
    pthread_mutex_lock(&s->mu);
    for (size_t i = 0; i < s->n; i++)
        str_addf(out, "%s%s", i ? ", " : "", s->rows[i]->model.id);
    if (!s->n) str_add(out, "models on demand");
    pthread_mutex_unlock(&s->mu);
}

void serving_look(serving *s) {
    char ids[2 * API_MAX_MODELS][API_MODEL_ID_BYTES];
    size_t n = 0;
    pthread_mutex_lock(&s->mu);
    for (size_t i = 0; i < s->n; i++)
        if (room_is_over(s, s->rows[i]))
            snprintf(ids[n++], sizeof ids[0], "%s", s->rows[i]->model.id);
    pthread_mutex_unlock(&s->mu);
    for (size_t i = 0; i < n; i++)
        model_host_expire(s->host, ids[i]);
}

/* Calls `each` for every engine that takes requests. */
static void each_engine(serving *s, void (*each)(engine *en)) {
    pthread_mutex_lock(&s->mu);
    for (size_t i = 0; i < s->n; i++)
        if (s->rows[i]->state == MODEL_LOADED || s->rows[i]->draining) each(s->rows[i]->engine);
    pthread_mutex_unlock(&s->mu);
}

bool serving_device_failed(serving *s) {
    bool failed = false;
    pthread_mutex_lock(&s->mu);
    for (size_t i = 0; i < s->n && !failed; i++)
        failed = s->rows[i]->state == MODEL_LOADED && engine_device_failed(s->rows[i]->engine);
    pthread_mutex_unlock(&s->mu);
    return failed;
}

uint64_t serving_stuck_ns(serving *s, uint64_t passed_ns) {
    uint64_t longest = 0;
    pthread_mutex_lock(&s->mu);
    for (size_t i = 0; i < s->n; i++) {
        struct served *m = s->rows[i];
        bool moves = m->state != MODEL_LOADED || engine_progress(m->engine, &m->progress);
        m->stuck_ns = moves ? 0 : m->stuck_ns + passed_ns;
        if (m->stuck_ns > longest) longest = m->stuck_ns;
    }
    pthread_mutex_unlock(&s->mu);
    return longest;
}

void serving_drain(serving *s) {
    model_host_stop(s->host);
    each_engine(s, engine_drain);
}

bool serving_save(serving *s, uint64_t deadline_ns) {
    bool done = true;
    model_host_join(s->host); /* no model comes or goes from here on */
    for (size_t i = 0; i < s->n; i++)
        if (s->rows[i]->state == MODEL_LOADED)
            done = engine_save(s->rows[i]->engine, deadline_ns) && done;
    return done;
}

void serving_stop(serving *s) {
    if (!s) return;
    model_host_stop(s->host);
    model_host_join(s->host);
    for (size_t i = 0; i < s->n; i++)
        if (s->rows[i]->engine) engine_stop(s->rows[i]->engine);
}

void serving_close(serving *s) {
    if (!s) return;
    model_host_close(s->host);
    for (size_t i = 0; i < s->n; i++)
        free_row(s->rows[i]);
    kvstore_close(s->store);
    kvevents_close(s->events);
    pthread_mutex_destroy(&s->mu);
    config_fini(&s->pulls);
    free(s->registry);
    free(s);
}
