/* body.c - see body.h. Owns nothing; pool threads. */
#include "api/generate/body.h"

#include "api/generate/api_state.h"
#include "api/generate/load_wait.h"
#include "api/generate/preset.h"
#include "api/http/costs.h"
#include "api/http/error.h"
#include "api/http/ignored.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <stdlib.h>

int gen_body_read(const cJSON *body, const struct json_table *table, void *out, err *e) {
    return json_read(body, table, "", out, e);
}

int gen_request_read(struct request *r, const cJSON *body, const struct json_table *table,
                     struct gen_request *q, err *e) {
    struct gen_fields *f = &q->fields;
    int rc = gen_body_read(body, table, f, e);
    if (!rc) rc = api_body_model(r, f->model, e);
    if (rc) return rc;
    q->model = r->model;
    preset_recommend(r, f);
    return gen_options_read(f, tokenizer_n_vocab(engine_tokenizer(q->model->engine)), r->ignored,
                            &q->options, e);
}

int gen_ids_read(const cJSON *array, const char *param, int32_t n_vocab, struct gen_prompt *p,
                 err *e) {
    size_t n = (size_t)cJSON_GetArraySize(array);
    p->ids = mem_new(n, sizeof *p->ids);
    if (!p->ids) return err_no_memory(e);
    for (const cJSON *v = array->child; v; v = v->next) {
        int64_t id;
        if (!json_int64(v, &id) || id < 0 || id >= n_vocab) {
            free(p->ids);
            *p = (struct gen_prompt){0};
            return err_set_param(e, ERR_INVALID, param,
                                 "Invalid value for '%s': token ids must be integers from 0 to %d.",
                                 param, (int)n_vocab - 1);
        }
        p->ids[p->n++] = (int32_t)id;
    }
    return 0;
}

void gen_add_ids(const struct gen_prompt *p, str *out) {
    str_add_char(out, '[');
    for (size_t i = 0; i < p->n; i++)
        str_addf(out, i ? ",%d" : "%d", (int)p->ids[i]);
    str_add_char(out, ']');
}

int gen_reply_bounded(struct request *r, str *body, err *e) {
    if (!body->failed) {
        reply_json(r, 200, body);
        return 0;
    }
    bool no_memory = body->no_memory;
    str_fini(body);
    if (no_memory) return err_no_memory(e);
    return err_set(e, ERR_INVALID, "The answer is larger than %d MiB: send a smaller request.",
                   REPLY_MAX_BYTES >> 20);
}

/* Names and counts the ignored fields of the body, once. A handler that ran out of its quick
 * budget starts over. */
static void report_ignored(struct request *r, const struct ignored *list) {
    char names[IGNORED_HEADER_BYTES];
    if (!list->n || r->work.reason == ERR_WORK) return;
    ignored_header(list, names);
    reply_header(r, "x-inferd-ignored-fields", names);
    ignored_counts_add(&r->http->ignored, r->row, list);
}

/* Does the body ask for a stream of events? */
static bool is_stream(const struct request *r, const cJSON *body) {
    const struct protocol *p = request_protocol(r);
    const int generates = ROUTE_WORK | ROUTE_INFER;
    return (r->route->flags & generates) == generates && !(p && p->lines) &&
           cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(body, "stream"));
}

void gen_handle(struct request *r, int (*answer)(struct request *r, const cJSON *body, err *e)) {
    if (resume_request(r->api->resume, r)) return;
    struct ignored ignored = {.refuse = r->api->live.refuse_ignored};
    err e = {0};
    cJSON *body = NULL;
    uint64_t begin_ns = clock_now_ns();
    int rc = json_parse(str_cstr(&r->body), r->body.len, &body, &e);
    costs_add_part(r, PART_JSON, begin_ns);
    if (!rc && r->route->table) rc = ignored_sift(&ignored, body, r->route->table, &e);
    r->ignored = &ignored;
    r->waits_for = 0;
    if (!rc) rc = answer(r, body, &e);
    r->ignored = NULL;
    bool waits = rc && r->waits_for && !load_wait_start(r, is_stream(r, body), &e);
    if (waits) ignored.n = 0; /* the second run names them */
    if (rc && !waits) reply_err(r, &e);
    report_ignored(r, &ignored);
    cJSON_Delete(body);
}
