/* ollama.h - Ollama's API, translated to chat requests and generations. */
#ifndef INFERD_API_OLLAMA_OLLAMA_H
#define INFERD_API_OLLAMA_OLLAMA_H

#include "api/generate/chat_request.h"
#include "api/generate/fields.h"
#include "api/http/error.h"
#include "registry/registry.h"

/* Members of a body; pointers borrow from the JSON tree. */
struct ollama_fields {
    struct gen_fields gen; /* from options, and stream */
    const char *model, *name;
    const cJSON *messages, *format, *options, *think, *keep_alive;
    const char *prompt, *system, *suffix;
    bool stream, raw;
    double num_ctx; /* 0: not given */
    const cJSON *input;
    bool truncate;
    int64_t dimensions;
    bool has_keep; /* keep_alive was given, as */
    int64_t keep_ms;
};
extern const struct json_table ollama_chat_table, ollama_generate_table, ollama_show_table,
    ollama_embed_table, ollama_embeddings_table;
extern const struct json_table
    ollama_option_table; /* members of options, read into ollama_fields */

/* Sets r->model and r->preset by the name that a body asks for. ERR_NOT_FOUND and ERR_UNAVAILABLE
 * say how a registered one is loaded. */
int ollama_find_model(struct request *r, const char *name, err *e);
/* "details" of a model in lists, with its braces. */
void ollama_add_details(str *out, const char *architecture, uint64_t n_params, const char *quant);
void ollama_add_time(int64_t seconds, str *out);
/* Appends the registered models that are not loaded, each with its other names, as members of
 * /api/tags' list, without names that a loaded model answers to; any: it has members already. */
int ollama_add_registered(struct request *r, bool any, str *out, err *e);
int ollama_open_registry(struct request *r, registry **out, err *e);
/* A registered name: without ":latest", which Ollama's clients append, unless it is part of it. */
int ollama_find_registered(registry *g, const char *name, struct registry_model *out,
                           char found[REGISTRY_NAME_BYTES], err *e);

/* The last line of what took no time. */
void ollama_reply_success(struct request *r, bool stream);

/* Ollama's form of errors, {"error":"..."}. */
extern const struct protocol ollama_protocol;
void ollama_write_error(str *out, const struct api_error *error);

/* Without ROUTE_JSON: Ollama's clients send no Content-Type (its own examples with curl). */
#define OLLAMA_MODEL (ROUTE_KEY | ROUTE_MODEL)

/* Reads a body by its table into *f, with Ollama's defaults, and the options into f->gen. */
int ollama_fields_parse(const cJSON *body, const struct json_table *table, struct ollama_fields *f,
                        err *e);
/* Sets r->model to the one that f names; ":latest" after a name is optional. Errors as
 * ollama_find_model's. */
int ollama_fields_find(struct request *r, const struct ollama_fields *f, err *e);
/* Both. */
int ollama_fields_read(struct request *r, const cJSON *body, const struct json_table *table,
                       struct ollama_fields *f, err *e);

/* Applies keep_alive to r->model, or lists it as ignored. */
int ollama_keep(struct request *r, const struct ollama_fields *f, err *e);

/* Fills q's messages, tools, format and extra; the caller frees them, also on failure. */
int ollama_chat_read(const struct ollama_fields *f, const struct api_model *m,
                     struct chat_request *q, err *e);

#endif
