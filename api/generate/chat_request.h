/* chat_request.h - what every chat endpoint asks for, once its own body is read: messages, tools,
 * the answer's format. Here it becomes a prompt and a generation, in one place for all protocols.
 * Pool threads. */
#ifndef INFERD_API_GENERATE_CHAT_REQUEST_H
#define INFERD_API_GENERATE_CHAT_REQUEST_H

#include "api/generate/choice.h"
#include "api/generate/config.h"

#include <cjson/cJSON.h>

struct gen_options;
struct gen_writer;
struct ignored;
struct request;

enum chat_tool_choice { CHAT_TOOLS_AUTO, CHAT_TOOLS_NONE, CHAT_TOOLS_REQUIRED, CHAT_TOOLS_NAMED };
struct chat_tools {
    /* Array of {"type": "function", "function": {"name", "description", "parameters", "strict"}} as
     * templates see it; freed by chat_request_fini; NULL: none. */
    cJSON *list;
    enum chat_tool_choice choice;
    const char *name;     /* CHAT_TOOLS_NAMED: of the function; borrowed */
    bool parallel;        /* more than one call in an answer */
    const cJSON *allowed; /* array of the only tools that may be called, by name; borrowed; NULL:
                             all */
    cJSON *forms;         /* of tools other than plain functions (tool_form.h); freed by
                             chat_request_fini; NULL: none */
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
    cJSON *parsed; /* a schema that came as text; owned; value points to it */
    enum chat_format_kind kind;
    const cJSON *value; /* SCHEMA: the schema; CHOICE: array of strings */
    const char *text;   /* REGEX, GBNF */
    bool strict;        /* SCHEMA: properties in their order */
};

struct chat_request {
    const struct api_model *model;
    const struct gen_options *options;
    /* What the template sees. The trees are freed by chat_request_fini. */
    cJSON *messages;        /* in chat_messages_read's form */
    const cJSON *documents; /* array or NULL */
    cJSON *extra;           /* further variables of the template, or NULL */
    bool add_generation_prompt, continue_final_message;
    struct ignored *ignored; /* where its readers list what they ignore; NULL: nowhere */
    struct chat_tools tools;
    struct chat_format format;
    /* Names of the fields in errors. param_function: the member of a tool that has its name and
     * schema ("" for the tool itself), param_schema: the schema's name there. */
    const char *param_messages, *param_tools, *param_format, *param_effort;
    const char *param_function, *param_schema;
};

/* Defaults: everything empty, text, parallel calls, a generation prompt; chat's field names. */
void chat_request_init(struct chat_request *q, struct ignored *ignored);
void chat_request_fini(struct chat_request *q); /* frees the trees */
/* Sets a further variable of the template. value is taken, also on failure; NULL is ERR_NOMEM. */
int chat_request_set(struct chat_request *q, const char *name, cJSON *value, err *e);

bool chat_is_system(const cJSON *message); /* by its role; NULL is not */

/* Renders the prompt's text, which the caller ends with chat_output_fini also on failure. A 400
 * names the param. */
int chat_request_render(struct request *r, const struct chat_request *q, struct chat_output *text,
                        err *e);
/* Tokenizes it; prompt->ids is the caller's. A 400 names the param. */
int chat_request_tokens(struct request *r, const struct chat_request *q,
                        const struct chat_output *text, struct gen_prompt *prompt, err *e);
/* Both steps. */
int chat_request_encode(struct request *r, const struct chat_request *q, struct gen_prompt *prompt,
                        err *e);

/* Encodes and starts the generation, which becomes r's job. state is the writer's, taken also on
 * failure. */
struct chat_start {
    const struct gen_writer *writer;
    void *state;
    const char *id_prefix;
    size_t n_state_bytes; /* as in gen_config */
};
int chat_request_start(struct request *r, const struct chat_request *q,
                       const struct chat_start *how, err *e);

#endif
