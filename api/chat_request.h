/* chat_request.h - what every endpoint that chats asks for, once its own body is read: messages,
 * tools, the form of the answer. It becomes a prompt and a generation here, in one place for all
 * protocols. Private to api/. HTTP threads. */
#ifndef INFERD_API_CHAT_REQUEST_H
#define INFERD_API_CHAT_REQUEST_H

#include "api/gen.h"

struct chat_request {
    const struct api_model *model;
    const struct gen_options *options;
    /* What the template sees. The request's owner deletes the trees. */
    cJSON *messages;        /* chat_messages_read's shape */
    const cJSON *documents; /* array or NULL */
    cJSON *extra;           /* further variables of the template, or NULL */
    bool add_generation_prompt, continue_final_message;
    /* What its errors call the fields. */
    const char *param_messages;
};

/* Defaults: everything empty, a generation prompt, "messages". */
void chat_request_init(struct chat_request *q);

/* Renders and encodes. prompt->ids is the caller's (gen_prompts_free); 400s name the param. */
int chat_request_encode(struct request *r, const struct chat_request *q, struct gen_prompt *prompt,
                        err *e);

/* Encodes and starts the generation: the job is attached to r. state is the writer's, taken also on
 * failure. */
struct chat_start {
    const struct gen_writer *writer;
    void *state;
    const char *id_prefix;
};
int chat_request_start(struct request *r, const struct chat_request *q,
                       const struct chat_start *how, err *e);

/* chat_parse.c */

/* Checks messages and makes the array that chat_prompt() gets: what a message may hold, nothing
 * else. The caller deletes *out. */
int chat_messages_read(const cJSON *messages, cJSON **out, err *e);

/* The other fields that a template sees: documents (borrowed), the two ends of a prompt, and extra
 * (chat_template_kwargs, and reasoning_effort where the template looks at it). chat NULL: no
 * template (fuzzing). */
int chat_fields_read(const struct gen_fields *f, const chat_template *chat, struct chat_request *q,
                     err *e);

#endif
