/* fuzz_batch_line.c - any bytes as a line of a batch's input. The body of an accepted line, which
 * is a piece of its text, is the value that the line's tree has; and the answer's line for it is
 * JSON with the same custom_id. */
#include "api/batch/batch_int.h"
#include "api/batch/line.h"
#include "api/http/json.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MAX_BYTES = 1 << 20 };

static void check_answer(const struct batch_line *l) {
    cJSON *root = NULL;
    str out;
    str_init(&out, 2 * MAX_BYTES);
    batch_add_answer("batch_req_x", l->custom_id, 200, "req_x", l->body, l->n_body, &out);
    if (out.failed || strchr(str_cstr(&out), '\n')) abort();
    if (!json_parse(str_cstr(&out), out.len, &root, NULL)) {
        const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "custom_id"));
        if (!id || strcmp(id, l->custom_id) != 0) abort();
    } else if (l->n_body < 60) {
        abort(); /* a deeper or larger body may be beyond the parser's bounds */
    }
    cJSON_Delete(root);
    str_fini(&out);
}

/* Compares texts: cJSON_Compare takes time exponential in the depth. */
static void check_same(const cJSON *a, const cJSON *b) {
    char *of_a = cJSON_PrintUnformatted(a), *of_b = cJSON_PrintUnformatted(b);
    if (!of_a || !of_b || strcmp(of_a, of_b)) abort();
    cJSON_free(of_a);
    cJSON_free(of_b);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const char endpoint[] = "/v1/chat/completions";
    const char *text = (const char *)bytes;
    struct batch_line l;
    struct batch_fault fault = {0};
    if (n > MAX_BYTES || memchr(text, '\n', n)) return 0;
    bool blank = batch_line_is_blank(text, n);
    if (!batch_line_read(text, n, endpoint, &l, &fault)) {
        if (!fault.code || !fault.message) abort();
        return 0;
    }
    if (blank || !*l.custom_id || l.body < text || l.n_body > n ||
        (size_t)(l.body - text) > n - l.n_body)
        abort();
    cJSON *line = NULL, *body = NULL;
    if (json_parse(text, n, &line, NULL) || json_parse(l.body, l.n_body, &body, NULL)) abort();
    check_same(cJSON_GetObjectItemCaseSensitive(line, "body"), body);
    cJSON_Delete(line);
    cJSON_Delete(body);
    check_answer(&l);
    return 0;
}
