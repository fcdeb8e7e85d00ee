/* ep_responses_store.c - stored responses: GET and DELETE /v1/responses/{id} and its input items;
 * cancelling, which would need background responses. Runs on pool threads. */
#include "api/generate/api_state.h"
#include "api/http/auth.h"
#include "api/http/error.h"
#include "api/http/page.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/responses/responses.h"

#include "core/base/clock.h"

#include <stdio.h>
#include <string.h>

enum { ID_BYTES = PAGE_ID_BYTES };

/* Rows of other kinds are not found here. */
static void id_of(const struct request *r, char id[ID_BYTES]) {
    request_segment(r, 0, id, ID_BYTES);
    if (strncmp(id, "resp_", 5) != 0) *id = '\0';
}

/* Replies with the failure e about id. */
static void reply_failed(struct request *r, const char *id, const err *e) {
    if (e->code != ERR_NOT_FOUND) {
        reply_err(r, e);
        return;
    }
    char message[ID_BYTES + 64];
    snprintf(message, sizeof message, "Response with id '%s' not found.", id);
    reply_error(r, &(struct api_error){404, "invalid_request_error", NULL, NULL, message});
}

/* false: the reply is filled. */
static bool find_response(struct request *r, struct responses_entry *out) {
    char id[ID_BYTES];
    err e = {.code = ERR_NOT_FOUND};
    responses *store = r->api->config.store;
    id_of(r, id);
    if (store && !responses_get(store, id, auth_key(r), clock_wall_s(), out, &e)) return true;
    reply_failed(r, id, &e);
    return false;
}

/* ---- the query ---- */

struct query {
    bool listing; /* of items */
    struct page page;
    err error;
};

static void read_parameter(void *arg, const char *name, const char *value) {
    struct query *q = arg;
    err *e = &q->error;
    if (e->code) return;
    if (strcmp(name, "include") == 0 || strcmp(name, "include[]") == 0) {
        /* They are stored if the response was made with them. */
        if (strcmp(value, "message.output_text.logprobs") != 0)
            err_set_param(e, ERR_UNSUPPORTED, "include",
                          "Unsupported value for 'include': only 'message.output_text.logprobs' is "
                          "supported.");
    } else if (!q->listing && strcmp(name, "stream") == 0) {
        if (strcmp(value, "false") != 0)
            err_set_param(e, ERR_UNSUPPORTED, "stream",
                          "Unsupported value for 'stream': stored responses are not streamed.");
    } else if (!q->listing || !page_take(&q->page, name, value, e)) {
        page_refuse(name, e);
    }
}

/* false: the reply is filled. */
static bool read_query(struct request *r, struct query *q) {
    request_query_each(r, read_parameter, q);
    if (q->error.code) reply_err(r, &q->error);
    return !q->error.code;
}

/* ---- endpoints ---- */

static void handle_get(struct request *r) {
    struct responses_entry entry;
    struct query q = {0};
    if (!read_query(r, &q) || !find_response(r, &entry)) return;
    str body;
    str_init(&body, REPLY_MAX_BYTES);
    str_add(&body, entry.body);
    responses_entry_fini(&entry);
    reply_json(r, 200, &body);
}

static void handle_delete(struct request *r) {
    char id[ID_BYTES];
    err e = {.code = ERR_NOT_FOUND};
    responses *store = r->api->config.store;
    id_of(r, id);
    if (!store || responses_delete(store, id, auth_key(r), clock_wall_s(), &e)) {
        reply_failed(r, id, &e);
        return;
    }
    reply_deleted(r, id, "response");
}

static void handle_items(struct request *r) {
    struct responses_entry entry;
    struct query q = {.listing = true, .page.limit = PAGE_LIMIT};
    cJSON *items = NULL;
    err e = {0};
    if (!read_query(r, &q) || !find_response(r, &entry)) return;
    int rc = response_items_parse(&entry, &items, &e);
    const cJSON *input = cJSON_GetObjectItemCaseSensitive(items, "input");
    if (!rc && !input) rc = err_set(&e, ERR_IO, "the stored items of %s are damaged", entry.id);
    if (!rc) rc = page_reply(r, input, &q.page, &e);
    if (rc) reply_err(r, &e);
    cJSON_Delete(items);
    responses_entry_fini(&entry);
}

static void handle_cancel(struct request *r) {
    struct responses_entry entry;
    if (!find_response(r, &entry)) return;
    responses_entry_fini(&entry);
    reply_error(r, &(struct api_error){400, "invalid_request_error", NULL, NULL,
                                       "Cannot cancel a synchronous response."});
}

const struct route response_get_route = {"GET", "/v1/responses/{id}",
                                         ROUTE_KEY | ROUTE_INFER | ROUTE_V1, .handle = handle_get,
                                         .answers = "response"};
const struct route response_delete_route = {"DELETE", "/v1/responses/{id}",
                                            ROUTE_KEY | ROUTE_INFER | ROUTE_V1,
                                            .handle = handle_delete, .answers = "response"};
const struct route response_items_route = {"GET",
                                           "/v1/responses/{id}/input_items",
                                           ROUTE_KEY | ROUTE_INFER | ROUTE_V1,
                                           .handle = handle_items,
                                           .answers = "list",
                                           .query = "limit|after|order"};
const struct route response_cancel_route = {"POST", "/v1/responses/{id}/cancel",
                                            ROUTE_KEY | ROUTE_INFER | ROUTE_V1,
                                            .handle = handle_cancel, .answers = "response"};
