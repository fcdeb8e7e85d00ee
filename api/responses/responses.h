/* responses/responses.h - shared by the files of /v1/responses: the fields of a request, the items
 * of a conversation, the writer of the answer. Pool threads.
 *
 * An item is an object of one of OpenAI's item types, in the form of answers and of the store:
 * message, reasoning, function_call, function_call_output, custom_tool_call,
 * custom_tool_call_output, and those of client_tools.c; each with type, id and status; the content
 * of a message is an array of parts. What a client sends is checked and converted to that form
 * once. */
#ifndef INFERD_API_RESPONSES_RESPONSES_H
#define INFERD_API_RESPONSES_RESPONSES_H

#include "api/generate/chat_request.h"
#include "api/generate/fields.h"
#include "api/generate/writer.h"
#include "registry/responses.h"

/* ---- responses/items.c ---- */

/* Where one request finds earlier responses. */
struct response_source {
    responses *store; /* NULL: nothing is stored */
    const char *key;  /* API key of their owner; NULL without keys */
    int64_t now_s;
    size_t max_bytes;  /* of a conversation's stored items */
    const char *param; /* the field with the items that are read; NULL: input */
};

/* Of each item in an input. */
extern const struct json_table response_item_table;
/* Appends the items of input (a string or an array; NULL: none) to list; references are looked up
 * in the source. A 400 names the param. */
int response_items_read(const cJSON *input, const struct response_source *from, cJSON *list,
                        err *e);
/* {"input": [items], "output": [items]} of a stored response, which the caller deletes. Output
 * items are stored without log-probabilities: these are large, and no continuation needs them. */
int response_items_parse(const struct responses_entry *entry, cJSON **out, err *e);
/* Fetches a conversation; the caller ends entry, also on failure. ERR_NOT_FOUND: it is not stored.
 */
int response_conversation_get(const char *id, const struct response_source *from,
                              struct responses_entry *entry, err *e);
/* Appends its items to list. */
int response_items_conversation(const char *id, const struct response_source *from, cJSON *list,
                                err *e);
/* Appends the items of the conversation that ends with response id to list, oldest first.
 * ERR_NOT_FOUND: it, or a response before it, is not stored. */
int response_items_chain(const char *id, const struct response_source *from, cJSON *list, err *e);

/* ---- responses/messages.c ---- */

/* ERR_INVALID about param: two items of the lists have the same id. */
int response_items_check_ids(const cJSON *const *lists, size_t n_lists, const char *param, err *e);
/* Converts the lists' items, one list after the other, to chat_request's messages; instructions (or
 * NULL) come first. ERR_INVALID: a duplicate item id, an output without its call. */
int response_items_messages(const char *instructions, const cJSON *const *lists, size_t n_lists,
                            cJSON **out, err *e);

/* ---- responses/fields.c ---- */

struct response_fields {
    struct gen_fields gen; /* first: the rows of gen_sampling_table assume it */
    const cJSON *input, *conversation, *tools, *tool_choice, *text, *reasoning, *metadata, *include,
        *stream_options;
    const char *instructions, *previous_response_id, *truncation;
    int64_t max_tool_calls;
    bool has_max_tool_calls, store, has_store, parallel_tool_calls, obfuscate;
};
extern const struct json_table responses_table;
/* POST /v1/responses/input_tokens: the fields that make the prompt. */
extern const struct json_table response_tokens_table;

void response_fields_default(struct response_fields *f);
/* Makes the checks that a table cannot express, and sets the gen fields that follow from others. */
int response_fields_check(struct response_fields *f, struct ignored *ignored, err *e);
/* Fills q's format, borrowed from f. */
int response_format_read(const struct response_fields *f, struct chat_request *q, err *e);
/* The id of the conversation that the response belongs to; NULL: none. */
const char *response_fields_conversation(const struct response_fields *f);
/* Appends the members of the response object that echo the request, each after a comma. */
void response_fields_echo(const struct response_fields *f, str *out);

/* ---- responses/tools.c ---- */

extern const struct json_table response_tool_table, response_choice_table;
/* Fills q's tools and format; borrows from f, except q->tools.list and forms, which are q's. */
int response_tools_read(const struct response_fields *f, struct chat_request *q, err *e);
/* Appends ,"tools":[...] of the response object. */
void response_tools_echo(const cJSON *tools, str *out);

/* ---- responses/writer.c ---- */

struct response_state; /* gen.state of the writer */
struct response_config {
    const struct response_fields *fields;
    responses *store; /* NULL: nothing is stored */
    bool stores;      /* the answer, not only the items of its conversation */
    const char *key;
    const cJSON *forms; /* of the request's tools (tool_form.h) */
    cJSON *input;       /* the request's own items; taken, also on failure */
};
struct response_state *response_state_new(const struct response_config *c);
void response_state_free(void *state);
size_t response_state_bytes(const struct response_state *st); /* memory of a new one */
extern const struct gen_writer response_writer;

#endif
