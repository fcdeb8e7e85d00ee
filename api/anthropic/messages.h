/* messages.h - Anthropic's Messages API, translated to chat requests. */
#ifndef INFERD_API_ANTHROPIC_MESSAGES_H
#define INFERD_API_ANTHROPIC_MESSAGES_H

#include "api/generate/chat_request.h"
#include "api/generate/fields.h"
#include "api/http/error.h"

struct messages_files;

/* Members of a body; pointers borrow from the JSON tree. */
struct messages_fields {
    struct gen_fields gen; /* model, max_tokens, temperature, ... */
    const cJSON *messages, *system, *tools, *tool_choice, *thinking, *output_config;
    const cJSON *output_format, *stop_sequences;
    bool hides_thinking; /* set by messages_read */
    /* Gives the texts of files to the blocks that name them; NULL: there are none (fuzzing). */
    int (*add_file)(struct messages_files *files, const char *id, str *out, err *e);
    struct messages_files *files;
};
extern const struct json_table messages_table;       /* POST /v1/messages */
extern const struct json_table messages_count_table; /* POST /v1/messages/count_tokens */

#define MESSAGES_ADVISORY(field, harmless, reason)                                                 \
    {                                                                                              \
        .name = field, .type = JSON_ADVISORY, .flags = JSON_NULLABLE, .words = harmless,           \
        .why = reason                                                                              \
    }
#define MESSAGES_CACHE_CONTROL                                                                     \
    MESSAGES_ADVISORY("cache_control", NULL, "prefixes are cached automatically")

/* Members of a message, and of a block of the system prompt. */
extern const struct json_table messages_turn_table, messages_system_table;
/* Fills q->messages from messages and system, which the caller frees, also on failure. */
int messages_read_turns(const struct messages_fields *f, struct chat_request *q, err *e);

/* A tool of a type that Anthropic defines and the client runs (bash_*, text_editor_*, memory_*,
 * computer_*). */
struct messages_client_tool {
    const char *type, *name;
    int64_t width, height; /* of the screen; 0: not known */
    bool zooms;
};
bool messages_client_runs(const char *type); /* NULL: no */
/* {"name", "description", "parameters"} of its function, which the caller deletes. */
int messages_client_function(const struct messages_client_tool *t, cJSON **out, err *e);

/* Fills q's messages, tools, format and extra; the caller frees them, also on failure. chat NULL:
 * no template (fuzzing). */
int messages_read(struct messages_fields *f, const chat_template *chat, struct chat_request *q,
                  err *e);

#endif
