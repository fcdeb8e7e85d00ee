/* ep_responses_store.c - stored responses: GET and DELETE /v1/responses/{id} and its input items;
 * cancelling, which would need background responses. Runs on pool threads. */
#include "api/generate/api_state.h"
#include "api/http/auth.h"
#include "api/http/error.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/responses/responses.h"

#include "core/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ID_BYTES = 128, MAX_LIMIT = 100, DEFAULT_LIMIT = 20 };

static void id_of(const struct request *r, char id[ID_BYTES]) {
    snprintf(id, ID_BYTES, "%.*s", (int)strcspn(r->rest, "/"), r->rest);
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
    int limit;
    bool ascending;
    char after[ID_BYTES];
    err error;
};

static bool read_limit(const char *value, int *limit) {
    char *end;
    long n = strtol(value, &end, 10);
    if (*value < '0' || *value > '9' || *end || n < 1 || n > MAX_LIMIT) return false;
    *limit = (int)n;
    return true;
}

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
    } else if (q->listing && strcmp(name, "limit") == 0) {
        if (!read_limit(value, &q->limit))
            err_set_param(e, ERR_INVALID, "limit",
                          "Invalid value for 'limit': must be between 1 and %d.", MAX_LIMIT);
    } else if (q->listing && strcmp(name, "order") == 0) {
        q->ascending = strcmp(value, "asc") == 0;
        if (!q->ascending && strcmp(value, "desc") != 0)
            err_set_param(e, ERR_INVALID, "order",
                          "Invalid value for 'order': must be 'asc' or 'desc'.");
    } else if (q->listing && strcmp(name, "after") == 0 && strlen(value) < ID_BYTES) {
        snprintf(q->after, sizeof q->after, "%s", value);
    } else {
        char param[JSON_PATH_BYTES];
        json_path(param, "%s", name);
        err_set_param(e, ERR_INVALID, param, "Unrecognized request argument supplied: %s", param);
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
    str body;
    str_init(&body, 1024);
    str_add(&body, "{\"id\":");
    json_add_cstr(&body, id);
    str_add(&body, ",\"object\":\"response\",\"deleted\":true}");
    reply_json(r, 200, &body);
}

static const char *id_of_item(const cJSON *item) {
    const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "id"));
    return id ? id : "";
}

/* The item after v in the query's order; NULL after the last. In cJSON, first->prev is the last. */
static const cJSON *next_item(const cJSON *items, const cJSON *v, const struct query *q) {
    if (q->ascending) return v ? v->next : items->child;
    if (!v) return items->child ? items->child->prev : NULL;
    return v == items->child ? NULL : v->prev;
}

static int list_items(struct request *r, const cJSON *items, const struct query *q, err *e) {
    const cJSON *v = NULL, *first = NULL, *last = NULL;
    if (*q->after) {
        while ((v = next_item(items, v, q)) && strcmp(id_of_item(v), q->after) != 0) {
        }
        if (!v)
            return err_set_param(e, ERR_INVALID, "after",
                                 "Invalid value for 'after': the response has no item '%.64s'.",
                                 q->after);
    }
    str body;
    str_init(&body, REPLY_MAX_BYTES);
    str_add(&body, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; i < q->limit && (v = next_item(items, v, q)); i++) {
        if (i) str_add_char(&body, ',');
        json_add_value(&body, v);
        if (!first) first = v;
        last = v;
    }
    bool more = v && next_item(items, v, q);
    str_add(&body, "],\"first_id\":");
    json_add_cstr(&body, id_of_item(first));
    str_add(&body, ",\"last_id\":");
    json_add_cstr(&body, id_of_item(last));
    str_addf(&body, ",\"has_more\":%s}", more ? "true" : "false");
    reply_json(r, 200, &body);
    return 0;
}

static void handle_items(struct request *r) {
    struct responses_entry entry;
    struct query q = {.listing = true, .limit = DEFAULT_LIMIT};
    cJSON *items = NULL;
    err e = {0};
    if (!read_query(r, &q) || !find_response(r, &entry)) return;
    int rc = response_items_parse(&entry, &items, &e);
    const cJSON *input = cJSON_GetObjectItemCaseSensitive(items, "input");
    if (!rc && !input) rc = err_set(&e, ERR_IO, "the stored items of %s are damaged", entry.id);
    if (!rc) rc = list_items(r, input, &q, &e);
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

const struct route response_get_route = {"GET", "/v1/responses/{id}", ROUTE_KEY,
                                         .handle = handle_get};
const struct route response_delete_route = {"DELETE", "/v1/responses/{id}", ROUTE_KEY,
                                            .handle = handle_delete};
const struct route response_items_route = {"GET", "/v1/responses/{id}/input_items", ROUTE_KEY,
                                           .handle = handle_items};
const struct route response_cancel_route = {"POST", "/v1/responses/{id}/cancel", ROUTE_KEY,
                                            .handle = handle_cancel};
