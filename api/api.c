/* api.c - opens and closes the API: its state, then the HTTP server with the table of routes.
 * Called by the daemon's main thread. */
#include "api/api.h"

#include "api/batch/runner.h"
#include "api/generate/api_state.h"
#include "api/generate/limits.h"
#include "api/generate/model_admin.h"
#include "api/keys.h"
#include "api/names.h"
#include "api/routes.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { UNLOAD_LOOK_MS = 50 /* between looks at what an unload waits for */ };
#define MS_NS UINT64_C(1000000)

static void set_live(struct api_live *live, const struct api_config *c) {
    live->share_prefixes = c->share_prefixes;
    live->draft_integers = c->draft_integers;
    live->refuse_ignored = c->refuse_ignored;
    live->fair_share = c->fair_share;
    live->max_rerank_documents = c->max_rerank_documents;
    live->resume_buffer_bytes = c->resume_buffer_bytes;
    live->max_priority = c->max_priority;
    live->explain_cache = c->explain_cache;
    live->vllm_metrics = c->vllm_metrics;
    live->prefix_header_tokens = c->prefix_header_tokens;
    live->max_file_bytes = c->max_file_bytes;
    live->batch_lines = c->batch_lines;
    live->batch_max_lines = c->batch_max_lines;
}

struct alias_lists {
    struct model_aliases aliases, objectives;
};

static int read_aliases(const struct api_config *c, struct alias_lists *out, err *e) {
    *out = (struct alias_lists){0};
    int rc = model_aliases_parse(c->model_aliases, "model_aliases", &out->aliases, e);
    if (!rc) rc = limits_read_objectives(c->objectives, &out->objectives, e);
    if (rc) model_aliases_fini(&out->aliases);
    return rc;
}

/* Takes them. */
static void set_aliases(api *a, struct alias_lists *lists) {
    alias_book_set(a->aliases, &lists->aliases);
    alias_book_set(a->objectives, &lists->objectives);
}

static int init_state(api *a, const struct api_config *config, err *e) {
    const struct resume_config kept = {config->resume_streams, config->resume_timeout_s};
    a->config = *config;
    set_live(&a->live, config);
    a->config.version = mem_strdup(config->version);
    if (!a->config.version) return err_no_memory(e);
    if (config->kv_store)
        a->secret = kvstore_client_key(config->kv_store);
    else if (getentropy(&a->secret, sizeof a->secret))
        return err_set(e, ERR_IO, "the system provides no random secret");
    a->config.model_aliases = a->config.objectives = NULL;
    a->aliases = alias_book_new();
    a->objectives = alias_book_new();
    if (!a->aliases || !a->objectives) return err_no_memory(e);
    struct alias_lists lists;
    int rc = read_aliases(config, &lists, e);
    if (rc) return rc;
    set_aliases(a, &lists);
    a->grammars = grammar_cache_new();
    a->models = models_new();
    if (!a->grammars || !a->models) return err_no_memory(e);
    return resume_open(&kept, &a->resume, e);
}

int api_open(const struct api_config *config, api **out, err *e) {
    *out = NULL;
    api *a = mem_new(1, sizeof *a);
    if (!a) return err_no_memory(e);
    const struct http_setup setup = {.config = &config->http,
                                     .routes = api_routes,
                                     .n_routes = api_n_routes,
                                     .api = a,
                                     .add_work_headers = api_add_rate_limit,
                                     .release = api_release_model,
                                     .tick = history_tick,
                                     .account = config->ledger ? api_account : NULL,
                                     .version = config->version,
                                     .ended = config->audit ? api_audit : NULL,
                                     .keys = config->keyring ? &api_registry_keys : NULL};
    a->names = &api_registry_names;
    a->started_s = clock_wall_s();
    metrics_history_init(&a->history);
    int rc = init_state(a, config, e);
    if (!rc) rc = http_open(&a->http, &setup, e);
    if (!rc && config->batches) rc = batch_runner_open(a, &a->batches, e);
    if (rc) {
        api_close(a);
        return rc;
    }
    *out = a;
    return 0;
}

uint16_t api_port(const api *a) {
    return http_port(&a->http);
}

bool api_get_address(const api *a, size_t i, struct http_address *out) {
    return http_get_address(&a->http, i, out);
}

bool api_is_local(const api *a) {
    return http_is_local(&a->http);
}

/* Is that the name of a served model, or, with or_known, of any that there is? */
static int check_target(const struct api *a, const char *name, bool or_known, err *e) {
    const struct model_admin *admin = a->config.admin;
    const struct api_model *m = models_find(a->models, name, strlen(name));
    char id[API_MODEL_ID_BYTES];
    models_release(a->models, m);
    if (m || (or_known && admin && admin->find(admin->host, name, id) != MODEL_UNKNOWN)) return 0;
    return err_set_param(e, ERR_INVALID, "model_aliases",
                         "'%.60s' is not the name of a served model", name);
}

int api_set_models(api *a, const struct api_model *models, size_t n, err *e) {
    if (n > API_MAX_MODELS)
        return err_set(e, ERR_INVALID, "%d models can be served, not %zu", API_MAX_MODELS, n);
    for (size_t i = 0; i < n; i++) {
        int rc = models_add(a->models, &models[i], e);
        if (rc) return rc;
    }
    const bool loads = a->config.admin && a->config.admin->load_on_demand;
    char target[MODEL_ALIAS_BYTES];
    for (size_t i = 0; alias_book_target(a->aliases, i, target); i++) {
        int rc = check_target(a, target, loads, e);
        if (rc) return rc;
    }
    atomic_store(&a->http.ready, true);
    return http_accept(&a->http, e);
}

int api_apply(api *a, const struct api_config *config, err *e) {
    struct alias_lists lists;
    int rc = read_aliases(config, &lists, e);
    if (rc) return rc;
    for (size_t i = 0; i < lists.aliases.n && !rc; i++)
        if (!alias_book_has(a->aliases, lists.aliases.pairs[i].pattern,
                            lists.aliases.pairs[i].model))
            rc = check_target(a, lists.aliases.pairs[i].model, true, e);
    if (!rc) rc = http_apply(&a->http, &config->http, e);
    if (!rc) {
        set_live(&a->live, config);
        set_aliases(a, &lists);
        const struct resume_config kept = {config->resume_streams, config->resume_timeout_s};
        resume_set(a->resume, &kept);
    }
    model_aliases_fini(&lists.aliases);
    model_aliases_fini(&lists.objectives);
    return rc;
}

int api_add_model(api *a, const struct api_model *m, err *e) {
    return models_add(a->models, m, e);
}

/* Waits for the references of m, up to until_ns (0: without end), and drops streams that are only
 * kept for clients that may return. false: time is over, or *stop. */
static bool wait_for_users(api *a, const struct api_model *m, uint64_t until_ns,
                           const atomic_bool *stop) {
    for (;;) {
        resume_drop_model(a->resume, m);
        if (models_wait(a->models, m, UNLOAD_LOOK_MS)) return true;
        if (atomic_load(stop) || (until_ns && clock_now_ns() >= until_ns)) return false;
    }
}

/* Gives the KV store as long as running answers had. */
static void save_cached(engine *en, uint32_t most_s, const atomic_bool *stop) {
    const uint64_t until_ns = clock_now_ns() + most_s * 1000 * MS_NS;
    while (!atomic_load(stop) && clock_now_ns() < until_ns &&
           !engine_save(en, clock_now_ns() + UNLOAD_LOOK_MS * MS_NS))
        ;
}

int api_remove_model(api *a, const char *id, uint32_t drain_s, const atomic_bool *stop, err *e) {
    const struct api_model *m = models_withdraw(a->models, id);
    if (!m) return err_set_param(e, ERR_NOT_FOUND, "model", "no model %s is loaded", id);
    struct engine_totals *did = mem_new(1, sizeof *did);
    if (!did) {
        models_restore(a->models, m);
        return err_no_memory(e);
    }
    uint64_t until_ns = clock_now_ns() + drain_s * UINT64_C(1000000000);
    int rc = 0;
    if (!wait_for_users(a, m, until_ns, stop) && !atomic_load(stop))
        log_warn("%s is unloaded: the answers that still run are ended", id);
    if (!atomic_load(stop)) {
        save_cached(m->engine, drain_s, stop);
        engine_stop(m->engine);
        engine_totals_add(did, m->engine);
    }
    do {
        if (atomic_load(stop) || !wait_for_users(a, m, 0, stop))
            rc = err_set(e, ERR_STOPPING, "the daemon is stopping");
    } while (!rc && !models_forget(a->models, m, did));
    if (rc) models_release(a->models, m);
    free(did);
    return rc;
}

uint64_t api_auth_failures(const api *a, unsigned i, const char **reason) {
    *reason = i < AUTH_N_FAILURES ? auth_failure_names[i] : NULL;
    return *reason ? atomic_load(&a->http.auth_failures.counts[i]) : 0;
}

void api_set_hung(api *a) {
    atomic_store(&a->hung, true);
}

void api_leave(api *a) {
    batch_runner_stop(a->batches);
    http_leave(&a->http);
}

bool api_is_quiet(api *a, uint64_t for_ns) {
    return http_is_quiet(&a->http, for_ns);
}

void api_flush_traces(api *a, uint64_t deadline_ns) {
    tracer_flush(a->http.tracer, deadline_ns);
}

void api_look(api *a) {
    resume_drop_old(a->resume);
}

void api_hide_model(api *a, const char *id, bool hidden) {
    models_hide(a->models, id, hidden);
}

uint32_t api_model_use(api *a, const char *id, bool hidden, uint64_t *used_ns) {
    uint32_t n;
    if (hidden) {
        const struct api_model *m = models_withdraw(a->models, id);
        if (m) {
            resume_drop_model(a->resume, m);
            models_restore(a->models, m);
        }
    }
    models_use(a->models, id, &n, used_ns);
    return n;
}

void api_retire(api *a) {
    atomic_store(&a->http.retiring, true);
}

void api_drain(api *a) {
    batch_runner_stop(a->batches);
    atomic_store(&a->http.draining, true);
}

uint32_t api_n_active(const api *a) {
    return http_n_active(&a->http);
}

void api_close(api *a) {
    if (!a) return;
    api_drain(a);
    batch_runner_close(a->batches);
    http_close(&a->http);
    resume_close(a->resume); /* kept streams hold answers */
    http_fini(&a->http);
    history_fini(&a->history);
    grammar_cache_free(a->grammars);
    models_free(a->models);
    alias_book_free(a->aliases);
    alias_book_free(a->objectives);
    free((char *)a->config.version);
    free(a);
}
