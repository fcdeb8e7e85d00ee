/* ollama.h - Ollama's API, translated to chat requests and generations. */
#ifndef INFERD_API_OLLAMA_OLLAMA_H
#define INFERD_API_OLLAMA_OLLAMA_H

#include "api/generate/chat_request.h"
#include "api/generate/fields.h"
#include "api/http/error.h"

/* Members of a body; pointers borrow from the JSON tree. */
struct ollama_fields {
    struct gen_fields gen; /* from options, and stream */
    const char *model, *name;
    const cJSON *messages, *format, *options, *think, *keep_alive;
    const char *prompt, *system, *suffix;
    bool stream, raw, verbose;
    double num_ctx; /* 0: not given */
};
extern const struct json_table ollama_chat_table, ollama_generate_table, ollama_show_table;

/* Reads a body by its table into *f, with Ollama's defaults, and the options into f->gen. Sets
 * r->model; ":latest" after a name is optional. */
int ollama_fields_read(struct request *r, const cJSON *body, const struct json_table *table,
                       struct ollama_fields *f, err *e);

/* Fills q's messages, tools, format and extra; the caller frees them, also on failure. */
int ollama_chat_read(const struct ollama_fields *f, const struct api_model *m,
                     struct chat_request *q, err *e);

#endif
