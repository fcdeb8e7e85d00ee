/* api.c - opens and closes the API: its state, then the HTTP server with the table of routes.
 * Called by the daemon's main thread. */
#include "api/api.h"

#include "api/generate/api_state.h"
#include "api/routes.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static int init_state(api *a, const struct api_config *config, err *e) {
    const struct resume_config kept = {config->resume_streams, config->resume_timeout_s};
    a->config = *config;
    a->config.version = mem_strdup(config->version);
    if (!a->config.version) return err_no_memory(e);
    if (getentropy(&a->secret, sizeof a->secret))
        return err_set(e, ERR_IO, "the system provides no random secret");
    int rc = model_aliases_parse(config->model_aliases, &a->aliases, e);
    if (rc) return rc;
    a->config.model_aliases = NULL; /* kept as aliases */
    a->grammars = grammar_cache_new();
    if (!a->grammars) return err_no_memory(e);
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
                                     .tick = history_tick};
    metrics_history_init(&a->history);
    int rc = init_state(a, config, e);
    if (!rc) rc = http_open(&a->http, &setup, e);
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

int api_set_models(api *a, const struct api_model *models, size_t n, err *e) {
    if (!n || n > API_MAX_MODELS)
        return err_set(e, ERR_INVALID, "1 to %d models can be served, not %zu", API_MAX_MODELS, n);
    memcpy(a->models, models, n * sizeof *models);
    a->n_models = n;
    for (size_t i = 0; i < a->aliases.n; i++)
        if (!api_find_model(a, a->aliases.pairs[i].model))
            return err_set_param(e, ERR_INVALID, "model_aliases",
                                 "'%.60s' is not the name of a served model",
                                 a->aliases.pairs[i].model);
    atomic_store(&a->http.ready, true);
    return 0;
}

void api_drain(api *a) {
    atomic_store(&a->http.draining, true);
}

uint32_t api_n_active(const api *a) {
    return http_n_active(&a->http);
}

void api_close(api *a) {
    if (!a) return;
    api_drain(a);
    http_close(&a->http);
    resume_close(a->resume); /* kept streams hold answers */
    http_fini(&a->http);
    history_fini(&a->history);
    grammar_cache_free(a->grammars);
    model_aliases_fini(&a->aliases);
    free((char *)a->config.version);
    free(a);
}
