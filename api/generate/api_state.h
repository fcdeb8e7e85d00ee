/* api_state.h - struct api: the state that all endpoints share. Created and freed by api/api.c. */
#ifndef INFERD_API_GENERATE_API_STATE_H
#define INFERD_API_GENERATE_API_STATE_H

#include "api/generate/config.h"
#include "api/generate/grammar_cache.h"
#include "api/generate/history.h"
#include "api/generate/model_alias.h"
#include "api/generate/models.h"
#include "api/generate/resume.h"
#include "api/http/http.h"
#include "core/base/siphash.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct api;
struct request;

/* The names that models have in the registry, which copies and presets change while the daemon
 * serves (api/names.c: this room does not see the registry). They read its file: pool threads. */
struct api_name {
    const struct api_model *model; /* of the list that was given */
    char name[API_MODEL_ID_BYTES];
};
struct api_names {
    /* r->model: the model that had this name when it was loaded, or NULL. Sets it, and r->preset,
     * as the registry says now. ERR_NOT_FOUND: r->model is NULL; id: the registered model that has
     * the name and is not loaded, or "". */
    int (*find)(struct request *r, const char *name, char id[API_MODEL_ID_BYTES], err *e);
    /* The other names of the served models, in their order: (n), which the caller frees. */
    int (*list)(const struct api *a, const struct models_list *served, struct api_name **out,
                size_t *n, err *e);
};

/* Members of api_config that api_apply changes while requests read them. */
struct api_live {
    atomic_bool share_prefixes, draft_integers, refuse_ignored, explain_cache, vllm_metrics;
    atomic_uint fair_share, max_rerank_documents, resume_buffer_bytes, prefix_header_tokens,
        batch_lines, batch_max_lines;
    atomic_int max_priority;
    atomic_uint_least64_t max_file_bytes;
};

struct api {
    struct http http;
    struct api_config config; /* of the start; version is a copy. What api_apply changes is below */
    struct api_live live;
    alias_book *aliases,
        *objectives;       /* objectives: names of a gateway's to priorities (limits.h) */
    struct hash128 secret; /* of this process, or of the KV store, so that prefixes of clients have
                              the same names after a restart: keys hashes that clients must not
                              predict */
    int64_t started_s;     /* clock_wall_s() of api_open */
    atomic_bool hung;      /* a device is, and the process must end */
    resume *resume;
    grammar_cache *grammars;
    model_table *models;
    const struct api_names *names; /* NULL: only those known when a model was loaded */
    struct history history;
    struct batch_runner *batches; /* batch/runner.h; NULL: there is none */
    /* Of /metrics: checks of idle engines' KV pools. */
    atomic_uint_least64_t n_pool_checks, n_pool_check_failures, last_check_ns;
};

/* The model with that id, alias or, at last, a pattern of model_aliases, with a reference
 * (models.h); or NULL. ":latest", which Ollama's clients append, counts as absent. */
const struct api_model *api_find_model(const struct api *a, const char *name);
/* The served models that r's key may use, with a reference of each (models_list_release). */
void api_list_models(struct request *r, struct models_list *out);
/* Gives r a reference of m, the caller's; NULL: none. */
void api_set_model(struct request *r, const struct api_model *m);
/* http_setup.release: ends r's model and preset. */
void api_release_model(struct request *r);
/* Sets r->model, and r->preset if the name has one: by id, by a name of the registry, at last by a
 * pattern of model_aliases. ERR_NOT_FOUND: as api_names.find. */
int api_find_name(struct request *r, const char *name, char id[API_MODEL_ID_BYTES], err *e);
/* The same from a body's model field. ERR_NOT_FOUND and ERR_UNAVAILABLE say how the model is
 * loaded. */
int api_request_model(struct request *r, const char *name, err *e);
/* The error for a model that is not loaded: its id, or a name that api_find_name did not find. Pool
 * threads: it asks the registry. */
int api_err_no_model(struct request *r, const char *name, err *e);
/* Is e about m's engine, which was stopped because m is being unloaded? Then e says so. */
void api_explain_stop(const struct api *a, const struct api_model *m, err *e);
/* The same for a field that may be left out (NULL or "") if only one model is served. ERR_INVALID,
 * ERR_NOT_FOUND. */
int api_body_model(struct request *r, const char *name, err *e);
/* Before a stream of r ends: its times, if they are r's first ones. NULL is fine. */
void api_note_times(struct request *r, const engine_stream *s);
/* http_setup.add_work_headers: the engine's queue as OpenAI's rate limit, unless the key has its
 * own. */
void api_add_rate_limit(struct request *r);

#endif
