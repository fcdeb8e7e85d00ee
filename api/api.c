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
                                     .add_work_headers = api_add_rate_limit};
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
    grammar_cache_free(a->grammars);
    free((char *)a->config.version);
    free(a);
}
