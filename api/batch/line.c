/* line.c - see line.h. Owns nothing. */
#include "api/batch/line.h"

#include "api/http/json.h"
#include "core/text/json_scan.h"

#include <stdio.h>
#include <string.h>

bool batch_endpoint_is_known(const char *endpoint) {
    return words_hold(BATCH_ENDPOINTS, endpoint);
}

bool batch_line_is_blank(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!memchr(" \t\r\n", text[i], 4)) return false;
    return true;
}

/* Where the object's member "body" lies in the text, which is valid JSON. */
static bool find_body(const char *text, size_t n, struct batch_line *out) {
    struct json_scan s = {.text = text, .n = n};
    bool first = true, more = true;
    while (json_scan_next(&s, "{}", &first, &more) == 0 && more) {
        const char *name;
        uint64_t len;
        json_scan_peek(&s);
        uint64_t at = s.pos;
        bool plain = json_scan_name(&s, &name, &len) == 0;
        if (!plain) s.pos = at;
        if (!plain && json_scan_skip(&s)) return false;
        if (json_scan_take(&s, ':')) return false;
        json_scan_peek(&s);
        at = s.pos;
        if (json_scan_skip(&s)) return false;
        if (!plain || len != 4 || memcmp(name, "body", 4) != 0) continue;
        out->body = text + at;
        out->n_body = (size_t)(s.pos - at);
        return true;
    }
    return false;
}

static bool fail(struct batch_fault *fault, const char *code, const char *param,
                 const char *message) {
    *fault = (struct batch_fault){code, message, param};
    return false;
}

static const cJSON *member(const cJSON *line, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(line, name);
}

static bool read_members(const cJSON *line, const char *endpoint, struct batch_line *out,
                         struct batch_fault *fault) {
    static const char *const known[] = {"custom_id", "method", "url", "body"};
    const char *texts[4] = {NULL};
    if (!cJSON_IsObject(line))
        return fail(fault, "invalid_json_line", NULL, "This line is not a JSON object.");
    for (size_t i = 0; i < 4; i++) {
        static const char *const missing[] = {
            "Missing required parameter: 'custom_id'.", "Missing required parameter: 'method'.",
            "Missing required parameter: 'url'.", "Missing required parameter: 'body'."};
        const cJSON *v = member(line, known[i]);
        if (!v) return fail(fault, "missing_required_parameter", known[i], missing[i]);
        texts[i] = cJSON_GetStringValue(v);
    }
    if (!texts[0] || !*texts[0] || strlen(texts[0]) >= sizeof out->custom_id ||
        json_holds_nul(member(line, "custom_id")))
        return fail(fault, "invalid_custom_id", "custom_id",
                    "The custom_id must be a text of 1 to 512 bytes.");
    if (!texts[1] || strcmp(texts[1], "POST") != 0)
        return fail(fault, "invalid_method", "method", "The method must be POST.");
    if (!texts[2] || strcmp(texts[2], endpoint) != 0)
        return fail(fault, "invalid_url", "url",
                    "The URL provided for this request does not match the batch endpoint.");
    const cJSON *body = member(line, "body");
    if (!cJSON_IsObject(body))
        return fail(fault, "invalid_body", "body", "The body must be a JSON object.");
    if (cJSON_IsTrue(member(body, "stream")))
        return fail(fault, "invalid_body", "body.stream", "A batch cannot stream: omit 'stream'.");
    const char *model = cJSON_GetStringValue(member(body, "model"));
    snprintf(out->custom_id, sizeof out->custom_id, "%s", texts[0]);
    snprintf(out->model, sizeof out->model, "%s", model ? model : "");
    return true;
}

bool batch_line_read(const char *text, size_t n, const char *endpoint, struct batch_line *out,
                     struct batch_fault *fault) {
    cJSON *line = NULL;
    *out = (struct batch_line){0};
    if (json_parse(text, n, &line, NULL))
        return fail(fault, "invalid_json_line", NULL, "This line is not parseable as valid JSON.");
    bool ok = read_members(line, endpoint, out, fault);
    cJSON_Delete(line);
    if (ok && !find_body(text, n, out))
        return fail(fault, "invalid_json_line", "body", "The name 'body' must not be escaped.");
    return ok;
}
