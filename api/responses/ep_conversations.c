/* ep_conversations.c - /v1/conversations: lists of items that responses continue and add to. A
 * conversation is a row of the store whose items grow. Runs on pool threads. */
#include "api/generate/api_state.h"
#include "api/generate/body.h"
#include "api/http/auth.h"
#include "api/http/error.h"
#include "api/http/id.h"
#include "api/http/page.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/http/settings.h"
#include "api/responses/responses.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUL = JSON_NULLABLE, MAX_ITEMS = 1000, TRIES = 8 };

struct fields {
    const cJSON *items, *metadata;
};
#define AT(member) .offset = offsetof(struct fields, member)

static const struct json_field metadata_fields[] = {
    {"metadata", JSON_OBJECT, NUL, AT(metadata),
     .help = "Up to 16 strings of up to 512 characters."},
};
static const struct json_field items_fields[] = {
    {"items", JSON_ARRAY, JSON_REQUIRED | JSON_WITH_NUL | JSON_ECHOED, AT(items), .min = 1,
     .max = MAX_ITEMS, .table = &response_item_table,
     .help = "As the items of a response's input."},
};
static const struct json_field create_fields[] = {
    {"items", JSON_ARRAY, NUL | JSON_WITH_NUL | JSON_ECHOED, AT(items), .max = MAX_ITEMS,
     .table = &response_item_table, .help = "As the items of a response's input."},
};
static const struct json_table metadata_table = JSON_TABLE(metadata_fields, NULL),
                               items_table = JSON_TABLE(items_fields, NULL),
                               create_table = JSON_TABLE(create_fields, &metadata_table);

/* ---- replies ---- */

static int no_store(err *e) {
    return err_set(e, ERR_UNSUPPORTED,
                   "This server does not store conversations (see its configuration and log).");
}

/* Replies with the failure e about the conversation of r's path. */
static void reply_failed(struct request *r, err *e) {
    char id[PAGE_ID_BYTES], message[PAGE_ID_BYTES + 64];
    struct api_error error = error_for(r, e);
    request_segment(r, 0, id, sizeof id);
    if (e->code == ERR_NOT_FOUND) {
        snprintf(message, sizeof message, "Conversation with id '%s' not found.", id);
        error.code = error.param = NULL;
        error.message = message;
    } else if (e->code == ERR_TOO_LONG) {
        error.code = "conversation_too_long";
        error.message = "The conversation is larger than may be stored: start a new one.";
    }
    reply_error(r, &error);
}

static void add_conversation(const char *id, int64_t created_s, const cJSON *metadata, str *out) {
    str_add(out, "{\"id\":");
    json_add_cstr(out, id);
    str_addf(out,
             ",\"object\":\"conversation\",\"created_at\":%" PRId64 ",\"metadata\":", created_s);
    if (metadata)
        json_add_value(out, metadata);
    else
        str_add(out, "{}");
    str_add_char(out, '}');
}

static void reply_text_of(struct request *r, const char *text) {
    str body;
    str_init(&body, REPLY_MAX_BYTES);
    str_add(&body, text);
    reply_json(r, 200, &body);
}

/* ---- the store ---- */

static struct response_source source_of(const struct request *r) {
    return (struct response_source){.store = r->api->config.store,
                                    .key = auth_key(r),
                                    .now_s = clock_wall_s(),
                                    .max_bytes = (size_t)r->settings->config.max_body_bytes * 2,
                                    .param = "items"};
}

/* The conversation of r's path; the caller ends entry. */
static int find_conversation(struct request *r, struct responses_entry *entry, err *e) {
    char id[PAGE_ID_BYTES];
    const struct response_source from = source_of(r);
    request_segment(r, 0, id, sizeof id);
    return response_conversation_get(id, &from, entry, e);
}

/* The same with its parsed items, {"input": [...]}, which the caller deletes. */
static int find_items(struct request *r, struct responses_entry *entry, cJSON **items, err *e) {
    *items = NULL;
    int rc = find_conversation(r, entry, e);
    if (!rc) rc = response_items_parse(entry, items, e);
    return rc;
}

static cJSON *input_of(const cJSON *items) {
    return cJSON_GetObjectItemCaseSensitive(items, "input");
}

/* Items of a body in the store's form. */
static int read_items(struct request *r, const cJSON *items, cJSON **list, err *e) {
    const struct response_source from = source_of(r);
    *list = cJSON_CreateArray();
    return *list ? response_items_read(items, &from, *list, e) : err_no_memory(e);
}

/* ---- create, retrieve, update, delete ---- */

static int create_conversation(struct request *r, const struct fields *f, cJSON *list, err *e) {
    char id[48];
    int64_t now_s = clock_wall_s();
    str body, items;
    size_t n = (size_t)cJSON_GetArraySize(list), i = 0;
    const cJSON *const lists[] = {list};
    const char **ids = mem_new(n, sizeof *ids);
    id_new(id, "conv_");
    str_init(&body, REPLY_MAX_BYTES);
    str_init(&items, REPLY_MAX_BYTES);
    add_conversation(id, now_s, f->metadata, &body);
    str_add(&items, "{\"input\":");
    json_add_value(&items, list);
    str_add_char(&items, '}');
    for (const cJSON *v = list->child; ids && v; v = v->next)
        ids[i++] = cJSON_GetObjectItemCaseSensitive(v, "id")->valuestring;
    int rc = response_items_check_ids(lists, 1, "items", e);
    if (!rc && (!ids || body.failed || items.failed)) rc = err_no_memory(e);
    const struct responses_row row = {.id = id,
                                      .key = auth_key(r),
                                      .body = str_cstr(&body),
                                      .items = str_cstr(&items),
                                      .item_ids = ids,
                                      .n_items = n};
    if (!rc) rc = responses_put(r->api->config.store, &row, now_s, e);
    if (!rc) reply_text_of(r, str_cstr(&body));
    str_fini(&body);
    str_fini(&items);
    free(ids);
    return rc;
}

static int answer_create(struct request *r, const cJSON *body, err *e) {
    struct fields f = {0};
    cJSON *list = NULL;
    int rc = gen_body_read(body, &create_table, &f, e);
    if (!rc) rc = gen_metadata_check(f.metadata, e);
    if (!rc && !r->api->config.store) rc = no_store(e);
    if (!rc) rc = read_items(r, f.items, &list, e);
    if (!rc) rc = create_conversation(r, &f, list, e);
    cJSON_Delete(list);
    return rc;
}

/* Clients create an empty conversation with an empty body. */
static void handle_create(struct request *r) {
    if (!r->body.len) str_add(&r->body, "{}");
    gen_handle(r, answer_create);
}

static void handle_get(struct request *r) {
    struct responses_entry entry = {0};
    err e = {0};
    if (find_conversation(r, &entry, &e))
        reply_failed(r, &e);
    else
        reply_text_of(r, entry.body);
    responses_entry_fini(&entry);
}

static int update_conversation(struct request *r, const struct responses_entry *entry,
                               const cJSON *metadata, err *e) {
    cJSON *old = NULL;
    int64_t created_s = 0;
    str body;
    int rc = json_parse(entry->body, strlen(entry->body), &old, e);
    if (rc) return err_set(e, ERR_IO, "the stored conversation %s is damaged", entry->id);
    json_int64(cJSON_GetObjectItemCaseSensitive(old, "created_at"), &created_s);
    cJSON_Delete(old);
    str_init(&body, REPLY_MAX_BYTES);
    add_conversation(entry->id, created_s, metadata, &body);
    const struct responses_change c = {
        .id = entry->id, .key = auth_key(r), .body = str_cstr(&body)};
    if (body.failed) rc = err_no_memory(e);
    if (!rc) rc = responses_change(r->api->config.store, &c, clock_wall_s(), e);
    if (!rc) reply_text_of(r, str_cstr(&body));
    str_fini(&body);
    return rc;
}

static int answer_update(struct request *r, const cJSON *body, err *e) {
    struct fields f = {0};
    struct responses_entry entry = {0};
    int rc = gen_body_read(body, &metadata_table, &f, e);
    if (!rc) rc = gen_metadata_check(f.metadata, e);
    if (rc) return rc;
    rc = find_conversation(r, &entry, e);
    if (!rc && f.metadata)
        rc = update_conversation(r, &entry, f.metadata, e);
    else if (!rc)
        reply_text_of(r, entry.body);
    responses_entry_fini(&entry);
    if (rc) reply_failed(r, e);
    return 0;
}

static void handle_update(struct request *r) {
    gen_handle(r, answer_update);
}

static void handle_delete(struct request *r) {
    struct responses_entry entry = {0};
    err e = {0};
    int rc = find_conversation(r, &entry, &e);
    if (!rc) rc = responses_delete(r->api->config.store, entry.id, auth_key(r), clock_wall_s(), &e);
    if (rc)
        reply_failed(r, &e);
    else
        reply_deleted(r, entry.id, "conversation.deleted");
    responses_entry_fini(&entry);
}

/* ---- items ---- */

struct query {
    struct page page;
    err error;
};

static void read_parameter(void *arg, const char *name, const char *value) {
    struct query *q = arg;
    if (q->error.code || page_take(&q->page, name, value, &q->error)) return;
    /* Items have all that this server can include. */
    if (strcmp(name, "include") != 0 && strcmp(name, "include[]") != 0)
        page_refuse(name, &q->error);
}

static void handle_items(struct request *r) {
    struct query q = {.page.limit = PAGE_LIMIT};
    struct responses_entry entry = {0};
    cJSON *items = NULL;
    request_query_each(r, read_parameter, &q);
    if (q.error.code) {
        reply_err(r, &q.error);
        return;
    }
    int rc = find_items(r, &entry, &items, &q.error);
    if (!rc) rc = page_reply(r, input_of(items), &q.page, &q.error);
    if (rc) reply_failed(r, &q.error);
    cJSON_Delete(items);
    responses_entry_fini(&entry);
}

static int append_items(struct request *r, const struct responses_entry *entry, const cJSON *list,
                        err *e) {
    size_t n = (size_t)cJSON_GetArraySize(list), i = 0;
    const char **ids = mem_new(n, sizeof *ids);
    const char *first = NULL, *last = NULL;
    str more, body;
    str_init(&more, REPLY_MAX_BYTES);
    str_init(&body, REPLY_MAX_BYTES);
    for (const cJSON *v = list->child; ids && v; v = v->next) {
        last = ids[i] = cJSON_GetObjectItemCaseSensitive(v, "id")->valuestring;
        if (!first) first = last;
        if (i++) str_add_char(&more, ',');
        json_add_value(&more, v);
    }
    page_open(&body);
    str_add_n(&body, str_cstr(&more), more.len);
    page_close(&body, first, last, false);
    const struct responses_change c = {.id = entry->id,
                                       .key = auth_key(r),
                                       .more_items = str_cstr(&more),
                                       .item_ids = ids,
                                       .n_items = n};
    int rc = !ids || more.failed || body.failed ? err_no_memory(e) : 0;
    if (!rc && n) rc = responses_change(r->api->config.store, &c, clock_wall_s(), e);
    if (!rc) reply_text_of(r, str_cstr(&body));
    str_fini(&more);
    str_fini(&body);
    free(ids);
    return rc;
}

static int answer_append(struct request *r, const cJSON *body, err *e) {
    struct fields f = {0};
    struct responses_entry entry = {0};
    cJSON *list = NULL, *items = NULL;
    int rc = gen_body_read(body, &items_table, &f, e);
    if (!rc) rc = read_items(r, f.items, &list, e);
    int found = rc ? rc : find_items(r, &entry, &items, e);
    const cJSON *const lists[] = {input_of(items), list};
    if (!found) rc = response_items_check_ids(lists, 2, "items", e);
    if (!found && !rc) found = append_items(r, &entry, list, e);
    if (!rc && found) reply_failed(r, e);
    cJSON_Delete(list);
    cJSON_Delete(items);
    responses_entry_fini(&entry);
    return rc;
}

static void handle_append(struct request *r) {
    gen_handle(r, answer_append);
}

static void reply_no_item(struct request *r, const char *id) {
    char message[PAGE_ID_BYTES + 64];
    snprintf(message, sizeof message, "Item with id '%s' not found.", id);
    reply_error(r, &(struct api_error){404, "invalid_request_error", NULL, NULL, message});
}

/* The item of r's path, detached from items; NULL: there is none. */
static cJSON *detach_named(const struct request *r, cJSON *items, char id[PAGE_ID_BYTES]) {
    cJSON *list = input_of(items);
    request_segment(r, 2, id, PAGE_ID_BYTES);
    for (cJSON *v = list ? list->child : NULL; v; v = v->next)
        if (strcmp(cJSON_GetObjectItemCaseSensitive(v, "id")->valuestring, id) == 0)
            return cJSON_DetachItemViaPointer(list, v);
    return NULL;
}

static void handle_item(struct request *r) {
    struct responses_entry entry = {0};
    cJSON *items = NULL;
    char id[PAGE_ID_BYTES];
    err e = {0};
    int rc = find_items(r, &entry, &items, &e);
    cJSON *item = rc ? NULL : detach_named(r, items, id);
    if (rc) {
        reply_failed(r, &e);
    } else if (!item) {
        reply_no_item(r, id);
    } else {
        str body;
        str_init(&body, REPLY_MAX_BYTES);
        json_add_value(&body, item);
        reply_json(r, 200, &body);
    }
    cJSON_Delete(item);
    cJSON_Delete(items);
    responses_entry_fini(&entry);
}

/* ERR_CHANGED: another request changed the items. */
static int remove_item(struct request *r, err *e) {
    struct responses_entry entry = {0};
    cJSON *items = NULL;
    char id[PAGE_ID_BYTES];
    str rest;
    str_init(&rest, REPLY_MAX_BYTES);
    int rc = find_items(r, &entry, &items, e);
    cJSON *item = rc ? NULL : detach_named(r, items, id);
    if (item) json_add_value(&rest, items);
    const struct responses_change c = {
        .id = entry.id, .key = auth_key(r), .items = str_cstr(&rest), .old_items = entry.items};
    if (!rc && rest.failed) rc = err_no_memory(e);
    if (!rc && item) rc = responses_change(r->api->config.store, &c, clock_wall_s(), e);
    if (!rc && item) reply_text_of(r, entry.body);
    if (!rc && !item) reply_no_item(r, id);
    str_fini(&rest);
    cJSON_Delete(item);
    cJSON_Delete(items);
    responses_entry_fini(&entry);
    return rc;
}

static void handle_item_delete(struct request *r) {
    err e = {0};
    int rc = ERR_CHANGED;
    for (int i = 0; rc == ERR_CHANGED && i < TRIES; i++)
        rc = remove_item(r, &e);
    if (rc) reply_failed(r, &e);
}

#define ONE   "/v1/conversations/{id}"
#define ITEMS ONE "/items"
#define ITEM  ITEMS "/{item_id}"
const struct route conversations_route = {
    "POST",        "/v1/conversations",    ROUTE_KEY | ROUTE_INFER | ROUTE_V1,
    handle_create, .table = &create_table, .answers = "conversation"};
const struct route conversation_get_route = {"GET", ONE, ROUTE_KEY | ROUTE_INFER | ROUTE_V1,
                                             .handle = handle_get, .answers = "conversation"};
const struct route conversation_update_route = {"POST",
                                                ONE,
                                                ROUTE_KEY | ROUTE_INFER | ROUTE_V1 | ROUTE_JSON,
                                                handle_update,
                                                .table = &metadata_table,
                                                .answers = "conversation"};
const struct route conversation_delete_route = {"DELETE", ONE, ROUTE_KEY | ROUTE_INFER | ROUTE_V1,
                                                .handle = handle_delete,
                                                .answers = "conversation.deleted"};
const struct route conversation_items_route = {"GET",
                                               ITEMS,
                                               ROUTE_KEY | ROUTE_INFER | ROUTE_V1,
                                               .handle = handle_items,
                                               .answers = "list",
                                               .query = "limit|after|order"};
const struct route conversation_append_route = {"POST",
                                                ITEMS,
                                                ROUTE_KEY | ROUTE_INFER | ROUTE_V1 | ROUTE_JSON,
                                                handle_append,
                                                .table = &items_table,
                                                .answers = "list"};
const struct route conversation_item_route = {"GET", ITEM, ROUTE_KEY | ROUTE_INFER | ROUTE_V1,
                                              .handle = handle_item};
const struct route conversation_item_delete_route = {
    "DELETE", ITEM, ROUTE_KEY | ROUTE_INFER | ROUTE_V1, .handle = handle_item_delete,
    .answers = "conversation"};
