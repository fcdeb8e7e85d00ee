/* fuzz_api.c - any bytes as a request body: refused with a reason, or the fields of every endpoint
 * can be read, and the parsed value can be printed and parsed again. After removing unknown fields,
 * no field is refused as unknown. */
#include "api/anthropic/messages.h"
#include "api/generate/chat_body.h"
#include "api/generate/structured.h"
#include "api/generate/tools.h"
#include "api/http/ignored.h"
#include "api/ollama/ollama.h"
#include "api/responses/responses.h"
#include "api/routes.h"

#include <stdlib.h>
#include <string.h>

extern const struct route completions_route; /* api/openai/ep_completions.c */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { N_VOCAB = 300, FIELDS_BYTES = 1 << 16 };

static void read_body(const cJSON *body, const struct json_table *table) {
    struct gen_fields f;
    struct gen_options *o = calloc(1, sizeof *o);
    err e = {0};
    gen_fields_default(&f);
    int rc = json_read(body, table, "", &f, &e);
    if (!rc && o) rc = gen_options_read(&f, N_VOCAB, NULL, o, &e);
    if (rc && !*e.msg) abort();
    for (uint32_t i = 0; !rc && o && i < o->n_stops; i++)
        if (!*o->stops[i]) abort();
    for (uint32_t i = 0; !rc && o && i < o->params.n_bias; i++)
        if (o->params.bias[i].token < 0 || o->params.bias[i].token >= N_VOCAB) abort();
    if (f.messages) {
        struct chat_request clean;
        chat_request_init(&clean, NULL);
        rc = chat_messages_read(f.messages, &clean, &e);
        if ((rc == 0) != (clean.messages != NULL) || (rc && !*e.msg)) abort();
        chat_request_fini(&clean);
    }
    struct chat_request q;
    chat_request_init(&q, NULL);
    rc = chat_fields_read(&f, NULL, &q, &e);
    if (rc && !*e.msg) abort();
    cJSON_Delete(q.extra);
    free(o);
}

/* Reads an endpoint's table into a buffer larger than any endpoint's struct. */
static void read_by_table(const cJSON *body, const struct json_table *table) {
    static const char unknown[] = "Unrecognized";
    void *fields = calloc(1, FIELDS_BYTES);
    cJSON *copy = cJSON_Duplicate(body, true);
    struct ignored ignored = {0}, strict = {.refuse = true};
    char header[IGNORED_HEADER_BYTES];
    err e = {0};
    if (fields && json_read(body, table, "", fields, &e) && !*e.msg) abort();
    if (copy && ignored_sift(&ignored, copy, table, &e)) abort();
    if (copy && strncmp(e.msg, unknown, strlen(unknown)) == 0 && !ignored.n) abort();
    err_clear(&e);
    if (fields && copy && json_read(copy, table, "", fields, &e) &&
        strncmp(e.msg, unknown, strlen(unknown)) == 0)
        abort();
    ignored_header(&ignored, header);
    for (size_t i = 0; header[i]; i++)
        if (header[i] < ' ' || header[i] > '~') abort();
    if (copy && ignored_sift(&strict, copy, table, &e) && !*e.msg) abort();
    cJSON_Delete(copy);
    free(fields);
}

/* Fields that the rows leave to code: messages, tools and the form of the answer, in each
 * protocol. */
static void check_chat(int rc, const struct chat_request *q, const err *e) {
    if (rc ? !*e->msg : !q->messages) abort();
}

static void read_chat(const cJSON *body) {
    struct gen_fields f;
    struct chat_request q;
    err e = {0};
    gen_fields_default(&f);
    chat_request_init(&q, NULL);
    int rc = json_read(body, &chat_table, "", &f, &e);
    if (!rc) rc = chat_messages_read(f.messages, &q, &e);
    if (!rc) rc = chat_tools_read(&f, &q, &e);
    if (!rc) rc = chat_format_read(&f, &q, &e);
    check_chat(rc, &q, &e);
    chat_request_fini(&q);
}

static int add_file(struct messages_files *files, const char *id, str *out, err *e) {
    if (files || !*id) abort();
    if (*id == 'n') return err_set(e, ERR_NOT_FOUND, "No such file: %.60s", id);
    str_add(out, "a file");
    return 0;
}

static void read_anthropic(const cJSON *body) {
    struct messages_fields f = {0};
    struct chat_request q;
    err e = {0};
    gen_fields_default(&f.gen);
    f.add_file = add_file;
    chat_request_init(&q, NULL);
    int rc = json_read(body, &messages_table, "", &f, &e);
    if (!rc) rc = messages_read(&f, NULL, &q, &e);
    check_chat(rc, &q, &e);
    chat_request_fini(&q);
}

static void read_ollama(const cJSON *body) {
    static const struct api_model nothing;
    struct ollama_fields f = {0};
    struct chat_request q;
    err e = {0};
    gen_fields_default(&f.gen);
    chat_request_init(&q, NULL);
    int rc = json_read(body, &ollama_chat_table, "", &f, &e);
    if (!rc && !f.think) rc = ollama_chat_read(&f, &nothing, &q, &e);
    if (!f.think) check_chat(rc, &q, &e);
    chat_request_fini(&q);
}

static void read_response(const cJSON *body) {
    const struct response_source nowhere = {.max_bytes = 1 << 20};
    struct response_fields f;
    struct chat_request q;
    cJSON *items = cJSON_CreateArray(), *messages = NULL;
    const cJSON *const lists[] = {items};
    err e = {0};
    response_fields_default(&f);
    chat_request_init(&q, NULL);
    int rc = json_read(body, &responses_table, "", &f, &e);
    if (!rc) rc = response_fields_check(&f, NULL, &e);
    if (!rc) rc = response_tools_read(&f, &q, &e);
    if (!rc) rc = response_items_read(f.input, &nowhere, items, &e);
    if (!rc) rc = response_items_messages(f.instructions, lists, 1, &messages, &e);
    if ((rc == 0) != (messages != NULL) || (rc && !*e.msg)) abort();
    cJSON_Delete(messages);
    cJSON_Delete(items);
    chat_request_fini(&q);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    cJSON *body, *again = NULL;
    err e = {0};
    int rc = json_parse((const char *)bytes, n, &body, &e);
    if ((rc == 0) != (body != NULL) || (rc && !*e.msg)) abort();
    if (rc) return 0;
    str text;
    str_init(&text, 64 << 20);
    json_add_value(&text, body);
    if (!text.failed && json_parse(str_cstr(&text), text.len, &again, &e)) abort();
    if (again && json_holds_nul(again) != json_holds_nul(body)) abort();
    str_fini(&text);
    cJSON_Delete(again);
    if (cJSON_IsObject(body)) {
        read_body(body, &chat_table);
        read_body(body, completions_route.table);
        read_response(body);
        read_chat(body);
        read_anthropic(body);
        read_ollama(body);
        for (size_t i = 0; i < api_n_routes; i++)
            if (api_routes[i]->table) read_by_table(body, api_routes[i]->table);
    }
    cJSON_Delete(body);
    return 0;
}
