/* api.c - the front's life: copies its configuration, starts the watcher and the HTTP threads, ends
 * them in reverse. Called by the daemon's main thread. */
#include "api/generate/tools.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static void free_config(struct api_config *c) {
    free((char *)c->host);
    free((char *)c->version);
    free((char *)c->allowed_hosts);
    for (size_t i = 0; c->api_keys && i < c->n_api_keys; i++)
        free((char *)c->api_keys[i]);
    free((void *)c->api_keys);
}

static int copy_config(struct api_config *to, const struct api_config *from, err *e) {
    *to = *from;
    to->host = mem_strdup(from->host);
    to->version = mem_strdup(from->version);
    to->allowed_hosts = mem_strdup(from->allowed_hosts ? from->allowed_hosts : "");
    char **keys = mem_new(from->n_api_keys, sizeof *keys);
    to->api_keys = (const char *const *)keys;
    bool ok = to->host && to->version && to->allowed_hosts && keys;
    for (size_t i = 0; keys && i < from->n_api_keys; i++)
        ok &= (keys[i] = mem_strdup(from->api_keys[i])) != NULL;
    return ok ? 0 : err_no_memory(e);
}

int api_open(const struct api_config *config, api **out, err *e) {
    *out = NULL;
    for (size_t i = 0; i < config->n_api_keys; i++)
        if (!*config->api_keys[i])
            return err_set_param(e, ERR_INVALID, "api_keys", "an API key must not be empty");
    api *a = mem_new(1, sizeof *a);
    if (!a) return err_no_memory(e);
    int rc = copy_config(&a->config, config, e);
    const struct resume_config kept = {config->resume_streams, config->resume_timeout_s,
                                       config->resume_buffer_bytes};
    if (!rc && getentropy(&a->secret, sizeof a->secret))
        rc = err_set(e, ERR_IO, "no random secret from the system");
    if (!rc) rc = resume_open(&kept, &a->resume, e);
    answers_init(&a->answers, config->max_answer_bytes);
    a->grammars = grammar_cache_new();
    if (!rc && !a->grammars) rc = err_no_memory(e);
    if (!rc) rc = http_open(a, &a->http, e);
    if (rc) {
        api_close(a);
        return rc;
    }
    *out = a;
    return 0;
}

uint16_t api_port(const api *a) {
    return http_port(a->http);
}

int api_set_models(api *a, const struct api_model *models, size_t n, err *e) {
    if (!n || n > API_MAX_MODELS)
        return err_set(e, ERR_INVALID, "1 to %d models can be served, not %zu", API_MAX_MODELS, n);
    memcpy(a->models, models, n * sizeof *models);
    a->n_models = n;
    atomic_store(&a->ready, true);
    return 0;
}

const struct api_model *api_find_model(const api *a, const char *name) {
    for (size_t i = 0; i < a->n_models; i++)
        if (strcmp(a->models[i].id, name) == 0) return &a->models[i];
    for (size_t i = 0; i < a->n_models; i++)
        for (size_t k = 0; k < a->models[i].n_aliases; k++)
            if (strcmp(a->models[i].aliases[k], name) == 0) return &a->models[i];
    return NULL;
}

int api_request_model(struct request *r, const char *name, err *e) {
    r->model = api_find_model(r->api, name);
    if (r->model) return 0;
    return err_set_param(e, ERR_NOT_FOUND, "model", "The model '%.200s' does not exist.", name);
}

void api_drain(api *a) {
    atomic_store(&a->draining, true);
}

uint32_t api_n_active(const api *a) {
    return atomic_load(&a->n_active);
}

void api_close(api *a) {
    if (!a) return;
    atomic_store(&a->draining, true);
    http_close(a->http);
    resume_close(a->resume);
    answers_fini(&a->answers);
    grammar_cache_free(a->grammars);
    free_config(&a->config);
    free(a);
}

void api_new_id(char *dst, const char *prefix) {
    unsigned char bytes[12];
    if (getentropy(bytes, sizeof bytes)) {
        /* Ids only have to differ: time and address do where the kernel has no entropy. */
        uint64_t now = clock_now_ns();
        memcpy(bytes, &now, 8);
        uint32_t where = (uint32_t)(uintptr_t)dst;
        memcpy(bytes + 8, &where, 4);
    }
    size_t n = (size_t)snprintf(dst, 24, "%s", prefix);
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(dst + n + 2 * i, 3, "%02x", bytes[i]);
}
