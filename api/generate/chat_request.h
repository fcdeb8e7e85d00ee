/* chat_request.h - what every endpoint that chats asks for, once its own body is read: messages,
 * tools, the form of the answer. It becomes a prompt and a generation here, in one place for all
 * protocols. Private to api/. pool threads. */
#ifndef INFERD_API_GENERATE_CHAT_REQUEST_H
#define INFERD_API_GENERATE_CHAT_REQUEST_H

#include "api/generate/gen.h"

enum chat_tool_choice { CHAT_TOOLS_AUTO, CHAT_TOOLS_NONE, CHAT_TOOLS_REQUIRED, CHAT_TOOLS_NAMED };
struct chat_tools {
    /* Array of {"type": "function", "function": {"name", "description", "parameters", "strict"}} as
     * templates see it; owned by the request's owner; NULL: none. */
    cJSON *list;
    enum chat_tool_choice choice;
    const char *name; /* CHAT_TOOLS_NAMED: of the function; borrowed */
    bool parallel;    /* more than one call in an answer */
    const cJSON
        *allowed; /* array of tools that alone may be called, by name; borrowed; NULL: all */
};

enum chat_format_kind {
    CHAT_FORMAT_TEXT,
    CHAT_FORMAT_OBJECT, /* any JSON object */
    CHAT_FORMAT_SCHEMA,
    CHAT_FORMAT_REGEX,
    CHAT_FORMAT_CHOICE,
    CHAT_FORMAT_GBNF
};
/* Borrowed from the body. */
struct chat_format {
    cJSON *parsed; /* a schema that came as a text; owned; value is it */
    enum chat_format_kind kind;
    const cJSON *value; /* SCHEMA: the schema; CHOICE: array of strings */
    const char *text;   /* REGEX, GBNF */
    bool strict;        /* SCHEMA: properties in their order */
};

struct chat_request {
    const struct api_model *model;
    const struct gen_options *options;
    /* What the template sees. The request's owner deletes the trees. */
    cJSON *messages;        /* chat_messages_read's shape */
    const cJSON *documents; /* array or NULL */
    cJSON *extra;           /* further variables of the template, or NULL */
    bool add_generation_prompt, continue_final_message;
    struct chat_tools tools;
    struct chat_format format;
    /* What its errors call the fields; param_function: a tool's member that has its name and its
     * schema ("" for the tool itself), param_schema: which there is the schema. */
    const char *param_messages, *param_tools, *param_format, *param_effort;
    const char *param_function, *param_schema;
};

/* Defaults: everything empty, text, parallel calls, a generation prompt; chat's names of fields. */
void chat_request_init(struct chat_request *q);
void chat_request_fini(struct chat_request *q); /* the trees */

/* The prompt's text, which the caller ends with chat_output_fini also on failure; its tokens, which
 * are the caller's (gen_prompts_free); 400s name the param. */
int chat_request_render(struct request *r, const struct chat_request *q, struct chat_output *text,
                        err *e);
int chat_request_tokens(struct request *r, const struct chat_request *q,
                        const struct chat_output *text, struct gen_prompt *prompt, err *e);
/* A further variable of the template; value is taken, also on failure, NULL is no memory. */
int chat_request_set(struct chat_request *q, const char *name, cJSON *value, err *e);

/* Renders and encodes. prompt->ids is the caller's (gen_prompts_free); 400s name the param. */
int chat_request_encode(struct request *r, const struct chat_request *q, struct gen_prompt *prompt,
                        err *e);

/* Encodes and starts the generation: the job is attached to r. state is the writer's, taken also on
 * failure. */
struct chat_start {
    const struct gen_writer *writer;
    void *state;
    const char *id_prefix;
    size_t n_state_bytes; /* as in gen_config */
};
int chat_request_start(struct request *r, const struct chat_request *q,
                       const struct chat_start *how, err *e);

/* ep_chat.c: a body of POST /v1/chat/completions: gen's fields and options, and chat, which borrows
 * from both and the body; the caller ends it with chat_request_fini also on failure. */
int chat_body_read(struct request *r, const cJSON *body, struct gen_request *q,
                   struct chat_request *chat, err *e);

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
