/* http/error.c - see error.h. Owns nothing. */
#include "api/http/error.h"

#include "api/http/http.h"
#include "api/http/json.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include "core/base/log.h"
#include <stdio.h>

static void add_or_null(str *s, const char *text) {
    if (text && *text)
        json_add_cstr(s, text);
    else
        str_add(s, "null");
}

void error_write(str *out, const struct api_error *error) {
    str_add(out, "{\"error\":{\"message\":");
    json_add_cstr(out, error->message);
    str_add(out, ",\"type\":");
    json_add_cstr(out, error->type);
    str_add(out, ",\"param\":");
    add_or_null(out, error->param);
    str_add(out, ",\"code\":");
    add_or_null(out, error->code);
    str_add(out, "}}");
}

const struct api_error error_no_room = {
    503, "server_error", "overloaded", NULL,
    "The server has no memory left for answers: try again later, or set 'stream'."};

void reply_no_room(struct request *r) {
    atomic_fetch_add(&r->http->costs.n_rejected[REJECT_ANSWER_BYTES], 1);
    reply_error(r, &error_no_room);
}

static void add_retry_after(struct request *r, uint32_t ms) {
    char text[16];
    snprintf(text, sizeof text, "%u", ms / 1000 + (ms % 1000 != 0));
    reply_header(r, "Retry-After", text);
    snprintf(text, sizeof text, "%u", ms);
    reply_header(r, "retry-after-ms", text);
}

/* Clients retry 429 and 5xx by themselves; the headers tell them when. OpenAI's SDKs prefer
 * retry-after-ms to Retry-After and x-should-retry to the status. */
void reply_error(struct request *r, const struct api_error *error) {
    str body;
    str_init(&body, 16384);
    const struct protocol *p = request_protocol(r);
    (p && p->write_error ? p->write_error : error_write)(&body, error);
    if (error->status == 429) add_retry_after(r, r->retry_after_ms ? r->retry_after_ms : 1000);
    if (error->status == 503 && !r->never_fits) add_retry_after(r, 5000);
    if (error->status == 504 || r->never_fits) reply_header(r, "x-should-retry", "false");
    reply_json(r, error->status, &body);
}

struct api_error error_of(const err *e) {
    static const struct {
        int code;
        unsigned status;
        const char *type, *name;
    } rows[] = {
        {ERR_INVALID, 400, "invalid_request_error", NULL},
        {ERR_FORMAT, 400, "invalid_request_error", "invalid_json"},
        {ERR_UNSUPPORTED, 400, "invalid_request_error", "unsupported_value"},
        {ERR_TOO_LONG, 400, "invalid_request_error", "context_length_exceeded"},
        {ERR_NOT_FOUND, 404, "invalid_request_error", "model_not_found"},
        {ERR_FULL, 429, "requests", "rate_limit_exceeded"},
        {ERR_QUOTA, 429, "tokens", "rate_limit_exceeded"},
        {ERR_STOPPING, 503, "server_error", "shutting_down"},
        {ERR_WORK, 400, "invalid_request_error", "work_limit_exceeded"},
        {ERR_DEADLINE, 504, "server_error", "deadline_exceeded"},
        {ERR_CHANGED, 503, "server_error", "model_changed"},
        {ERR_UNAVAILABLE, 503, "server_error", "model_unavailable"},
    };
    struct api_error out = {500, "server_error", "internal_error", NULL,
                            "The server had an error while processing the request."};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].code == e->code) {
            out.status = rows[i].status;
            out.type = rows[i].type;
            out.code = rows[i].name;
            out.param = e->param;
            out.message = e->msg;
        }
    return out;
}

struct api_error error_for(struct request *r, const err *e) {
    struct api_error error = error_of(e);
    if (error.status != 500) return error;
    log_error("%s: %s", r->id, e->msg);
    snprintf(r->error_text, sizeof r->error_text,
             "The server had an error while processing the request %s: see its log.", r->id);
    error.message = r->error_text;
    return error;
}

void reply_err(struct request *r, const err *e) {
    struct api_error error = error_for(r, e);
    reply_error(r, &error);
}
