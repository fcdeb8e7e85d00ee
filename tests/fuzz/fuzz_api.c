/* fuzz_api.c - any bytes as a request body: refused with a reason, or every field of both endpoints
 * can be read, and what was parsed can be printed and parsed again. */
#include "api/chat_request.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { N_VOCAB = 300 };

static void read_body(const cJSON *body, const struct json_table *table) {
    struct gen_fields f;
    struct gen_options *o = calloc(1, sizeof *o);
    err e = {0};
    gen_fields_default(&f);
    int rc = json_read(body, table, "", &f, &e);
    if (!rc && o) rc = gen_options_read(&f, N_VOCAB, o, &e);
    if (rc && !*e.msg) abort();
    for (uint32_t i = 0; !rc && o && i < o->n_stops; i++)
        if (!*o->stops[i]) abort();
    for (uint32_t i = 0; !rc && o && i < o->params.n_bias; i++)
        if (o->params.bias[i].token < 0 || o->params.bias[i].token >= N_VOCAB) abort();
    if (f.messages) {
        cJSON *clean;
        rc = chat_messages_read(f.messages, &clean, &e);
        if ((rc == 0) != (clean != NULL) || (rc && !*e.msg)) abort();
        cJSON_Delete(clean);
    }
    struct chat_request q;
    chat_request_init(&q);
    rc = chat_fields_read(&f, NULL, &q, &e);
    if (rc && !*e.msg) abort();
    cJSON_Delete(q.extra);
    free(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    cJSON *body, *again = NULL;
    err e = {0};
    int rc = json_parse((const char *)bytes, n, &body, &e);
    if ((rc == 0) != (body != NULL) || (rc && !*e.msg)) abort();
    if (rc) return 0;
    char *text = cJSON_PrintUnformatted(body);
    if (text && json_parse(text, strlen(text), &again, &e)) abort();
    cJSON_free(text);
    cJSON_Delete(again);
    if (cJSON_IsObject(body)) {
        read_body(body, &chat_table);
        read_body(body, &completions_table);
    }
    cJSON_Delete(body);
    return 0;
}
