/* body.c - see body.h. Owns nothing; pool threads. */
#include "api/generate/body.h"

#include "api/generate/api_state.h"
#include "api/http/costs.h"
#include "api/http/error.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int gen_body_read(const cJSON *body, const struct json_table *table, void *out, err *e) {
    return json_read(body, table, "", out, e);
}

int gen_request_read(struct request *r, const cJSON *body, const struct json_table *table,
                     struct gen_request *q, err *e) {
    struct gen_fields *f = &q->fields;
    int rc = gen_body_read(body, table, f, e);
    if (!rc) rc = api_request_model(r, f->model, e);
    if (rc) return rc;
    q->model = r->model;
    return gen_options_read(f, tokenizer_n_vocab(engine_tokenizer(q->model->engine)), &q->options,
                            e);
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
    str_fini(body);
    return err_set(e, ERR_INVALID, "The answer is larger than %d MiB: send a smaller request.",
                   REPLY_MAX_BYTES >> 20);
}

enum { IGNORED_BYTES = 240 }; /* of the header */

/* With unknown-fields = ignore: drops what the table does not know, and names it in a header. */
static void drop_unknown_fields(struct request *r, cJSON *body) {
    str ignored;
    if (!r->api->config.ignore_unknown || !r->route->table || !cJSON_IsObject(body)) return;
    str_init(&ignored, 4096);
    json_drop_unknown(body, r->route->table, &ignored);
    if (ignored.len) {
        char list[IGNORED_BYTES];
        size_t n = (size_t)snprintf(list, sizeof list, "%s", str_cstr(&ignored));
        if (n >= sizeof list) { /* whole names, then an ellipsis */
            n = sizeof list - 4;
            while (n && list[n - 1] != ' ')
                n--;
            snprintf(list + n, sizeof list - n, "...");
        }
        reply_header(r, "x-inferd-ignored-fields", list);
    }
    str_fini(&ignored);
}

void gen_handle(struct request *r, int (*answer)(struct request *r, const cJSON *body, err *e)) {
    if (resume_request(r->api->resume, r)) return;
    err e = {0};
    cJSON *body = NULL;
    uint64_t begin_ns = clock_now_ns();
    int rc = json_parse(str_cstr(&r->body), r->body.len, &body, &e);
    costs_add_part(r, PART_JSON, begin_ns);
    if (!rc) drop_unknown_fields(r, body);
    if (!rc) rc = answer(r, body, &e);
    if (rc) reply_err(r, &e);
    cJSON_Delete(body);
}
