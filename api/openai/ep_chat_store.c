/* ep_chat_store.c - stored chat completions (store: true): GET /v1/chat/completions lists them,
 * .../{id} is one of them, .../{id}/messages its request. Runs on pool threads. */
#include "api/generate/api_state.h"
#include "api/generate/body.h"
#include "api/http/auth.h"
#include "api/http/error.h"
#include "api/http/page.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "registry/responses.h"

#include "core/base/clock.h"

#include <stdio.h>
#include <string.h>

static const char prefix[] = "chatcmpl-";

struct fields {
    const cJSON *metadata;
};
static const struct json_field update_fields[] = {
    {"metadata", JSON_OBJECT, JSON_REQUIRED | JSON_NULLABLE,
     .offset = offsetof(struct fields, metadata),
     .help = "Up to 16 strings of up to 512 characters."},
};
static const struct json_table update_table = JSON_TABLE(update_fields, NULL);

/* ---- one ---- */

/* Replies with the failure e about the completion of r's path. */
static void reply_failed(struct request *r, const err *e) {
    char id[PAGE_ID_BYTES], message[PAGE_ID_BYTES + 64];
    if (e->code != ERR_NOT_FOUND) {
        reply_err(r, e);
        return;
    }
    request_segment(r, 0, id, sizeof id);
    snprintf(message, sizeof message, "Chat completion with id '%s' not found.", id);
    reply_error(r, &(struct api_error){404, "invalid_request_error", NULL, NULL, message});
}

/* The completion of r's path; the caller ends entry. */
static int find_completion(struct request *r, struct responses_entry *entry, err *e) {
    char id[PAGE_ID_BYTES];
    responses *store = r->api->config.store;
    *entry = (struct responses_entry){0};
    request_segment(r, 0, id, sizeof id);
    if (!store || strncmp(id, prefix, sizeof prefix - 1) != 0)
        return err_set(e, ERR_NOT_FOUND, "'%.100s' is not stored", id);
    return responses_get(store, id, auth_key(r), clock_wall_s(), entry, e);
}

static void handle_get(struct request *r) {
    struct responses_entry entry;
    err e = {0};
    if (find_completion(r, &entry, &e)) {
        reply_failed(r, &e);
    } else {
        str body;
        str_init(&body, REPLY_MAX_BYTES);
        str_add(&body, entry.body);
        reply_json(r, 200, &body);
    }
    responses_entry_fini(&entry);
}

static void handle_delete(struct request *r) {
    struct responses_entry entry;
    err e = {0};
    int rc = find_completion(r, &entry, &e);
    if (!rc) rc = responses_delete(r->api->config.store, entry.id, auth_key(r), clock_wall_s(), &e);
    if (rc)
        reply_failed(r, &e);
    else
        reply_deleted(r, entry.id, "chat.completion.deleted");
    responses_entry_fini(&entry);
}

/* Replaces the metadata and replies with the completion. */
static int update_completion(struct request *r, const struct responses_entry *entry,
                             const cJSON *metadata, err *e) {
    cJSON *completion = NULL,
          *copy = metadata ? cJSON_Duplicate(metadata, true) : cJSON_CreateObject();
    str body, label;
    str_init(&body, REPLY_MAX_BYTES);
    str_init(&label, REPLY_MAX_BYTES);
    int rc = json_parse(entry->body, strlen(entry->body), &completion, e);
    if (rc) rc = err_set(e, ERR_IO, "the stored completion %s is damaged", entry->id);
    if (copy) json_add_value(&label, copy);
    if (rc || !copy || !cJSON_ReplaceItemInObjectCaseSensitive(completion, "metadata", copy)) {
        cJSON_Delete(copy);
        if (!rc) rc = err_no_memory(e);
    }
    if (!rc) json_add_value(&body, completion);
    if (!rc && (body.failed || label.failed)) rc = err_no_memory(e);
    const struct responses_change c = {
        .id = entry->id, .key = auth_key(r), .body = str_cstr(&body), .metadata = str_cstr(&label)};
    if (!rc) rc = responses_change(r->api->config.store, &c, clock_wall_s(), e);
    cJSON_Delete(completion);
    str_fini(&label);
    if (!rc)
        reply_json(r, 200, &body);
    else
        str_fini(&body);
    return rc;
}

static int answer_update(struct request *r, const cJSON *body, err *e) {
    struct fields f = {0};
    struct responses_entry entry;
    int rc = gen_body_read(body, &update_table, &f, e);
    if (!rc) rc = gen_metadata_check(f.metadata, e);
    if (rc) return rc;
    rc = find_completion(r, &entry, e);
    if (!rc) rc = update_completion(r, &entry, f.metadata, e);
    if (rc) reply_failed(r, e);
    responses_entry_fini(&entry);
    return 0;
}

static void handle_update(struct request *r) {
    gen_handle(r, answer_update);
}

/* ---- lists ---- */

struct query {
    struct page page;
    bool of_chats; /* not of messages */
    char model[256];
    cJSON *metadata;
    err error;
};

static void read_parameter(void *arg, const char *name, const char *value) {
    struct query *q = arg;
    char key[PAGE_ID_BYTES];
    size_t n = strlen(name);
    bool label =
        q->of_chats && strncmp(name, "metadata[", 9) == 0 && name[n - 1] == ']' && n < sizeof key;
    if (q->error.code || page_take(&q->page, name, value, &q->error)) return;
    if (label) {
        snprintf(key, sizeof key, "%.*s", (int)n - 10, name + 9);
        if (!cJSON_AddStringToObject(q->metadata, key, value)) err_no_memory(&q->error);
    } else if (q->of_chats && strcmp(name, "model") == 0 && strlen(value) < sizeof q->model) {
        snprintf(q->model, sizeof q->model, "%s", value);
    } else {
        page_refuse(name, &q->error);
    }
}

static void add_row(void *arg, const char *id, const char *body) {
    struct page_list *l = arg;
    page_list_next(l, id);
    str_add(&l->body, body);
}

static int list_chats(struct request *r, const struct query *q, struct page_list *l, err *e) {
    bool more = false;
    int rc = 0;
    str metadata;
    str_init(&metadata, REPLY_MAX_BYTES);
    json_add_value(&metadata, q->metadata);
    const struct responses_query wanted = {.key = auth_key(r),
                                           .model = *q->model ? q->model : NULL,
                                           .metadata = str_cstr(&metadata),
                                           .after = *q->page.after ? q->page.after : NULL,
                                           .ascending = q->page.ascending,
                                           .limit = q->page.limit};
    page_list_open(l);
    if (metadata.failed)
        rc = err_no_memory(e);
    else if (r->api->config.store)
        rc = responses_list(r->api->config.store, &wanted, clock_wall_s(), add_row, l, &more, e);
    if (rc == ERR_NOT_FOUND)
        rc = err_set_param(e, ERR_INVALID, "after",
                           "Invalid value for 'after': there is no completion '%.64s'.",
                           q->page.after);
    page_list_close(l, more);
    str_fini(&metadata);
    return rc;
}

static void handle_list(struct request *r) {
    struct query q = {.page = {.limit = PAGE_LIMIT, .ascending = true},
                      .of_chats = true,
                      .metadata = cJSON_CreateObject()};
    struct page_list l = {0};
    request_query_each(r, read_parameter, &q);
    int rc = q.error.code ? q.error.code : list_chats(r, &q, &l, &q.error);
    cJSON_Delete(q.metadata);
    if (rc) {
        str_fini(&l.body);
        reply_err(r, &q.error);
    } else {
        reply_json(r, 200, &l.body);
    }
}

/* The request's messages, with ids made of the completion's. */
static int read_messages(const struct responses_entry *entry, cJSON **items, err *e) {
    int i = 0;
    if (json_parse(entry->items, strlen(entry->items), items, e))
        return err_set(e, ERR_IO, "the stored messages of %s are damaged", entry->id);
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(*items, "messages");
    for (cJSON *v = list ? list->child : NULL; v; v = v->next) {
        char id[PAGE_ID_BYTES];
        snprintf(id, sizeof id, "%.100s-%d", entry->id, i++);
        if (!cJSON_AddStringToObject(v, "id", id)) return err_no_memory(e);
    }
    return list ? 0 : err_set(e, ERR_IO, "the stored messages of %s are damaged", entry->id);
}

static void handle_messages(struct request *r) {
    struct query q = {.page = {.limit = PAGE_LIMIT, .ascending = true}};
    struct responses_entry entry = {0};
    cJSON *items = NULL;
    request_query_each(r, read_parameter, &q);
    int rc = q.error.code;
    if (!rc) rc = find_completion(r, &entry, &q.error);
    if (!rc) rc = read_messages(&entry, &items, &q.error);
    if (!rc)
        rc = page_reply(r, cJSON_GetObjectItemCaseSensitive(items, "messages"), &q.page, &q.error);
    if (rc) reply_failed(r, &q.error);
    cJSON_Delete(items);
    responses_entry_fini(&entry);
}

#define ALL "/v1/chat/completions"
#define ONE ALL "/{id}"
const struct route chat_list_route = {"GET",
                                      ALL,
                                      ROUTE_KEY | ROUTE_INFER | ROUTE_V1,
                                      .handle = handle_list,
                                      .answers = "list",
                                      .query = "limit|after|order|model|metadata"};
const struct route chat_get_route = {"GET", ONE, ROUTE_KEY | ROUTE_INFER | ROUTE_V1,
                                     .handle = handle_get, .answers = "chat.completion"};
const struct route chat_update_route = {"POST",
                                        ONE,
                                        ROUTE_KEY | ROUTE_INFER | ROUTE_V1 | ROUTE_JSON,
                                        handle_update,
                                        .table = &update_table,
                                        .answers = "chat.completion"};
const struct route chat_delete_route = {"DELETE", ONE, ROUTE_KEY | ROUTE_INFER | ROUTE_V1,
                                        .handle = handle_delete,
                                        .answers = "chat.completion.deleted"};
const struct route chat_messages_route = {"GET",
                                          ONE "/messages",
                                          ROUTE_KEY | ROUTE_INFER | ROUTE_V1,
                                          .handle = handle_messages,
                                          .answers = "list",
                                          .query = "limit|after|order"};
