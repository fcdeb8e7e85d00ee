/* responses/responses.h - what the files of /v1/responses share: the fields of a request, the items
 * that a conversation is made of, the writer of the answer. Private to api/. pool threads.
 *
 * An item is an object of OpenAI's item types in the form that answers and the store have: message,
 * reasoning, function_call, function_call_output; each with type, id and status, the content of a
 * message as an array of parts. What a client sends is checked and brought into that form once. */
#ifndef INFERD_API_RESPONSES_RESPONSES_H
#define INFERD_API_RESPONSES_RESPONSES_H

#include "api/generate/chat_request.h"
#include "api/generate/fields.h"
#include "api/generate/writer.h"
#include "registry/responses.h"

/* ---- responses/items.c ---- */

/* Where earlier responses are found, for one request. */
struct response_source {
    responses *store; /* NULL: nothing is stored */
    const char *key;  /* whose; NULL without keys */
    int64_t now_s;
    size_t max_bytes; /* of a conversation's stored texts */
};

/* The items that input (a string or an array; NULL: none) asks for, appended to list; references
 * are resolved by the source. 400s name the param. */
int response_items_read(const cJSON *input, const struct response_source *from, cJSON *list,
                        err *e);
/* {"input": [items], "output": [items]} of a stored response, which the caller deletes. The
 * answer's are without log-probabilities: they are many, and nothing goes on from them. */
int response_items_parse(const struct responses_entry *entry, cJSON **out, err *e);
/* The items of the conversation that ends with response id, oldest first, appended to list.
 * ERR_NOT_FOUND: it, or one before it, is not stored. */
int response_items_chain(const char *id, const struct response_source *from, cJSON *list, err *e);
/* chat_request's messages of the lists' items, one list after the other; instructions (or NULL)
 * come first. ERR_INVALID: an item id that is there twice, an output without its call. */
int response_items_messages(const char *instructions, const cJSON *const *lists, size_t n_lists,
                            cJSON **out, err *e);

/* ---- responses/fields.c ---- */

struct response_fields {
    struct gen_fields gen; /* first: the rows of gen_sampling_table go by it */
    const cJSON *input, *tools, *tool_choice, *text, *reasoning, *metadata, *include,
        *stream_options;
    const char *instructions, *previous_response_id, *truncation;
    int64_t max_tool_calls;
    bool has_max_tool_calls, store, has_store, parallel_tool_calls, obfuscate;
};
extern const struct json_table responses_table;
/* POST /v1/responses/input_tokens: those of them that make the prompt. */
extern const struct json_table response_tokens_table;

void response_fields_default(struct response_fields *f);
/* The checks that a table cannot express, and what gen_fields say of them. */
int response_fields_check(struct response_fields *f, err *e);
/* q's tools and format; borrows from f, q->tools.list is q's. */
int response_tools_read(const struct response_fields *f, struct chat_request *q, err *e);
/* The members of the response object that say what was asked for, each with a comma before it. */
void response_fields_echo(const struct response_fields *f, str *out);

/* ---- responses/writer.c ---- */

struct response_state; /* of a gen_writer */
struct response_config {
    const struct response_fields *fields;
    responses *store; /* NULL: the answer is not stored */
    const char *key;
    cJSON *input; /* the request's own items; taken, also on failure */
};
struct response_state *response_state_new(const struct response_config *c);
void response_state_free(void *state);
size_t response_state_bytes(const struct response_state *st); /* that a new one holds */
extern const struct gen_writer response_writer;

#endif
