/* responses/items.c - items of the Responses API: read from a request, fetched from the store;
 * messages.c converts them. Owns nothing; runs on pool threads. */
#include "api/http/id.h"
#include "api/http/json.h"
#include "api/responses/items_int.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUL = JSON_NULLABLE, MAX_REFERENCES = 1000, MAX_CHAIN = 4096, MAX_ID = 64 };

#define STATUSES "in_progress|completed|incomplete"

/* ---- tables ---- */

struct item {
    const char *type, *id, *role, *status, *call_id, *name, *space, *arguments;
    const cJSON *content, *summary, *output, *action;
};
#define AT(member) .offset = offsetof(struct item, member)
#define ADVISORY(name, reason)                                                                     \
    { name, JSON_ADVISORY, NUL, .why = (reason) }
#define ANY_ITEM                                                                                   \
    {"type", JSON_STRING, NUL, AT(type)},                                                          \
        {"id", JSON_STRING, NUL, AT(id), .min = 1, .max = MAX_ID}, {                               \
        "status", JSON_ENUM, NUL, AT(status), .words = STATUSES                                    \
    }

static const char no_callers[] = "only the client can call tools";
static const struct json_table part_table, said_table;

static const struct json_field message_fields[] = {
    ANY_ITEM,
    {"role", JSON_ENUM, JSON_REQUIRED, AT(role), .words = "user|assistant|system|developer"},
    {"content", JSON_VALUE, JSON_REQUIRED | JSON_OR_STRING | JSON_OR_ARRAY | JSON_WITH_NUL,
     AT(content), .table = &part_table},
    ADVISORY("phase", "chat templates do not know it"),
};
static const struct json_field said_fields[] = {
    ANY_ITEM,
    {"role", JSON_ENUM, JSON_REQUIRED, AT(role), .words = "assistant"},
    {"content", JSON_VALUE, JSON_REQUIRED | JSON_OR_STRING | JSON_OR_ARRAY | JSON_WITH_NUL,
     AT(content), .table = &said_table},
    ADVISORY("phase", "chat templates do not know it"),
};
static const struct json_table said_message = JSON_TABLE(said_fields, NULL);
static const struct json_field call_fields[] = {
    ANY_ITEM,
    {"call_id", JSON_STRING, JSON_REQUIRED, AT(call_id), .min = 1, .max = MAX_ID},
    {"name", JSON_STRING, JSON_REQUIRED, AT(name), .min = 1},
    {"arguments", JSON_STRING, JSON_REQUIRED, AT(arguments)},
    {"namespace", JSON_STRING, NUL, AT(space)},
    ADVISORY("caller", no_callers),
};
static const struct json_field custom_fields[] = {
    ANY_ITEM,
    {"call_id", JSON_STRING, JSON_REQUIRED, AT(call_id), .min = 1, .max = MAX_ID},
    {"name", JSON_STRING, JSON_REQUIRED, AT(name), .min = 1},
    {"input", JSON_STRING, JSON_REQUIRED | JSON_WITH_NUL, AT(arguments)},
    {"namespace", JSON_STRING, NUL, AT(space)},
    ADVISORY("caller", no_callers),
};
static const struct json_field output_fields[] = {
    ANY_ITEM,
    {"call_id", JSON_STRING, JSON_REQUIRED, AT(call_id), .min = 1, .max = MAX_ID},
    {"output", JSON_VALUE, JSON_REQUIRED | JSON_OR_STRING | JSON_OR_ARRAY | JSON_WITH_NUL,
     AT(output), .table = &part_table},
    {"name", JSON_STRING, NUL, AT(name), .min = 1},
    ADVISORY("namespace", "the call with its call_id has it"),
    ADVISORY("caller", no_callers),
};
static const struct json_field reasoning_fields[] = {
    ANY_ITEM,
    {"summary", JSON_ARRAY, NUL | JSON_WITH_NUL, AT(summary), .table = &said_table},
    {"content", JSON_ARRAY, NUL | JSON_WITH_NUL, AT(content), .table = &said_table},
    ADVISORY("encrypted_content", "only its author can read it"),
};
/* Of client_tools.c: what to do is the member action, or operation. */
#define ACTION(field)                                                                              \
    ANY_ITEM, {"call_id", JSON_STRING, JSON_REQUIRED, AT(call_id), .min = 1, .max = MAX_ID},       \
        {field, JSON_OBJECT, JSON_REQUIRED | JSON_WITH_NUL, AT(action)},                           \
        ADVISORY("environment", "the client knows where it runs"),                                 \
        ADVISORY("created_by", "there is one author"), ADVISORY("caller", no_callers)
static const struct json_field action_fields[] = {ACTION("action")};
static const struct json_field operation_fields[] = {ACTION("operation")};
static const struct json_field result_fields[] = {
    {"type", JSON_STRING, NUL, AT(type)},
    {"id", JSON_STRING, NUL, AT(id), .min = 1, .max = MAX_ID},
    {"status", JSON_ENUM, NUL, AT(status), .words = STATUSES "|failed"},
    {"call_id", JSON_STRING, NUL, AT(call_id), .min = 1, .max = MAX_ID,
     .help = "local_shell_call_output may have it as its id."},
    {"output", JSON_VALUE, NUL | JSON_OR_STRING | JSON_OR_ARRAY | JSON_WITH_NUL, AT(output)},
    ADVISORY("max_output_length", "the client cuts the output"),
    ADVISORY("created_by", "there is one author"),
    ADVISORY("caller", no_callers),
};
static const struct json_field reference_fields[] = {
    {"type", JSON_STRING, NUL, AT(type)},
    {"id", JSON_STRING, JSON_REQUIRED, AT(id), .min = 1, .max = MAX_ID},
};

struct part {
    const char *type, *text, *refusal;
    const cJSON *logprobs;
};
#define PART(member) .offset = offsetof(struct part, member)

static const struct json_field text_fields[] = {
    {"type", JSON_STRING, JSON_REQUIRED, PART(type)},
    {"text", JSON_STRING, JSON_REQUIRED | JSON_WITH_NUL, PART(text)},
    ADVISORY("prompt_cache_breakpoint", "prefixes are cached automatically"),
};
static const struct json_field answer_fields[] = {
    {"type", JSON_STRING, JSON_REQUIRED, PART(type)},
    {"text", JSON_STRING, JSON_REQUIRED | JSON_WITH_NUL, PART(text)},
    {"logprobs", JSON_ARRAY, NUL | JSON_WITH_NUL, PART(logprobs)},
    ADVISORY("annotations", "the model does not see them"),
};
static const struct json_field refusal_fields[] = {
    {"type", JSON_STRING, JSON_REQUIRED, PART(type)},
    {"refusal", JSON_STRING, JSON_REQUIRED | JSON_WITH_NUL, PART(refusal)},
};
static const struct json_table text_table = JSON_TABLE(text_fields, NULL);
static const struct json_table answer_table = JSON_TABLE(answer_fields, NULL);
static const struct json_table refusal_table = JSON_TABLE(refusal_fields, NULL);

/* ---- parts ---- */

/* The part types that a content may have. */
struct part_kind {
    const char *type;
    const struct json_table *table;
};
static const struct part_kind input_parts[] = {{"input_text", &text_table}, {NULL, NULL}};
/* Clients use input_text in assistant messages that they wrote themselves. */
static const struct part_kind answer_parts[] = {{"output_text", &answer_table},
                                                {"refusal", &refusal_table},
                                                {"input_text", &text_table},
                                                {NULL, NULL}};
static const struct part_kind thought_parts[] = {{"reasoning_text", &text_table}, {NULL, NULL}};
static const struct part_kind summary_parts[] = {{"summary_text", &text_table}, {NULL, NULL}};

static const struct part_kind *const part_kinds[] = {answer_parts, thought_parts, summary_parts};

/* What the model said, or thought, is an echo: parts of other types belong to another server. */
static bool is_foreign_part(const cJSON *part) {
    for (size_t i = 0; i < sizeof part_kinds / sizeof *part_kinds; i++)
        for (const struct part_kind *k = part_kinds[i]; k->type; k++)
            if (item_is(part, k->type)) return false;
    return *item_text(part, "type");
}

/* The table of a part of a known type; a reader refuses others. */
static const struct json_table *part_of(const cJSON *part) {
    for (size_t i = 0; i < sizeof part_kinds / sizeof *part_kinds; i++)
        for (const struct part_kind *k = part_kinds[i]; k->type; k++)
            if (item_is(part, k->type)) return k->table;
    return &text_table;
}
static const struct json_table *said_of(const cJSON *part) {
    return is_foreign_part(part) ? NULL : part_of(part);
}
static const struct json_table part_table = {.of = part_of}, said_table = {.of = said_of};

static int read_part(const cJSON *v, const char *path, const struct part_kind *kinds,
                     struct part *part, err *e) {
    char name[JSON_PATH_BYTES];
    *part = (struct part){0};
    if (!cJSON_IsObject(v)) return json_wrong_type(path, "an object", v, e);
    const char *type = item_text(v, "type");
    const struct part_kind *k = kinds;
    while (k->type && strcmp(k->type, type) != 0)
        k++;
    json_path(name, "%s.type", path);
    if (!k->type && *type)
        return err_set_param(e, ERR_UNSUPPORTED, name,
                             "Unsupported value for '%s': '%.40s'. Supported types are '%s'%s.",
                             name, type, kinds->type,
                             kinds == answer_parts ? " and 'refusal'" : "");
    json_path(name, "%s.", path);
    return json_read(v, k->type ? k->table : kinds->table, name, part, e);
}

static bool add_answer_part(cJSON *list, const struct part *p) {
    cJSON *to = item_append(list, cJSON_CreateObject());
    if (p->refusal)
        return cJSON_AddStringToObject(to, "type", "refusal") &&
               cJSON_AddStringToObject(to, "refusal", p->refusal);
    bool ok = cJSON_AddStringToObject(to, "type", "output_text") &&
              cJSON_AddStringToObject(to, "text", p->text) &&
              cJSON_AddArrayToObject(to, "annotations");
    cJSON *logprobs = p->logprobs ? cJSON_Duplicate(p->logprobs, true) : cJSON_CreateArray();
    if (ok && cJSON_AddItemToObject(to, "logprobs", logprobs)) return true;
    cJSON_Delete(logprobs);
    return false;
}

static bool add_part(cJSON *list, const struct part_kind *kinds, const struct part *p) {
    if (kinds == answer_parts) return add_answer_part(list, p);
    cJSON *to = item_append(list, cJSON_CreateObject());
    return cJSON_AddStringToObject(to, "type", kinds->type) &&
           cJSON_AddStringToObject(to, "text", p->text);
}

/* Adds content, a string (one part) or an array of parts, as the member name of item. */
static int read_parts(const cJSON *content, const char *path, const struct part_kind *kinds,
                      cJSON *item, const char *name, err *e) {
    cJSON *list = cJSON_AddArrayToObject(item, name);
    struct part part = {.text = cJSON_GetStringValue(content)};
    if (!list) return err_no_memory(e);
    if (part.text) return add_part(list, kinds, &part) ? 0 : err_no_memory(e);
    int i = 0;
    for (const cJSON *v = content ? content->child : NULL; v; v = v->next) {
        char at[JSON_PATH_BYTES];
        json_path(at, "%s.%s[%d]", path, name, i++);
        if (kinds != input_parts && is_foreign_part(v)) continue;
        int rc = read_part(v, at, kinds, &part, e);
        if (!rc && !add_part(list, kinds, &part)) rc = err_no_memory(e);
        if (rc) return rc;
    }
    return 0;
}

/* ---- items ---- */

struct reader {
    const struct response_source *from;
    cJSON *list;
    cJSON *last;      /* remaining items of the last response that was looked up */
    uint64_t n_bytes; /* of the responses that were looked up */
    int n_references;
};

static int new_item(const struct item *in, const char *type, const char *prefix, const char *path,
                    cJSON *list, cJSON **out, err *e) {
    char id[JSON_PATH_BYTES];
    if (in->id &&
        strspn(in->id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") !=
            strlen(in->id)) {
        json_path(id, "%s.id", path);
        return err_set_param(
            e, ERR_INVALID, id,
            "Invalid value for '%s': only letters, digits, '_' and '-' are allowed.", id);
    }
    if (!in->id) id_new(id, prefix);
    cJSON *item = *out = item_append(list, cJSON_CreateObject());
    bool ok = cJSON_AddStringToObject(item, "id", in->id ? in->id : id) &&
              cJSON_AddStringToObject(item, "type", type) &&
              cJSON_AddStringToObject(item, "status", in->status ? in->status : "completed");
    return ok ? 0 : err_no_memory(e);
}

static int read_message(struct reader *r, const struct item *in, const char *path, err *e) {
    cJSON *item;
    bool answer = strcmp(in->role, "assistant") == 0;
    int rc = new_item(in, "message", "msg_", path, r->list, &item, e);
    if (!rc && !cJSON_AddStringToObject(item, "role", in->role)) rc = err_no_memory(e);
    if (rc) return rc;
    return read_parts(in->content, path, answer ? answer_parts : input_parts, item, "content", e);
}

static int read_call(struct reader *r, const struct item *in, const char *path, err *e) {
    cJSON *item;
    bool custom = strcmp(in->type, "custom_tool_call") == 0;
    int rc = new_item(in, in->type, custom ? "ctc_" : "fc_", path, r->list, &item, e);
    if (rc) return rc;
    bool ok = cJSON_AddStringToObject(item, "call_id", in->call_id) &&
              cJSON_AddStringToObject(item, "name", in->name) &&
              (!in->space || cJSON_AddStringToObject(item, "namespace", in->space)) &&
              cJSON_AddStringToObject(item, custom ? "input" : "arguments", in->arguments);
    return ok ? 0 : err_no_memory(e);
}

static int read_output(struct reader *r, const struct item *in, const char *path, err *e) {
    cJSON *item;
    bool custom = strcmp(in->type, "custom_tool_call_output") == 0;
    int rc = new_item(in, in->type, custom ? "ctco_" : "fco_", path, r->list, &item, e);
    if (rc) return rc;
    bool ok = cJSON_AddStringToObject(item, "call_id", in->call_id) &&
              (!in->name || cJSON_AddStringToObject(item, "name", in->name));
    if (!ok) return err_no_memory(e);
    if (cJSON_IsArray(in->output))
        return read_parts(in->output, path, input_parts, item, "output", e);
    return cJSON_AddStringToObject(item, "output", in->output->valuestring) ? 0 : err_no_memory(e);
}

static int read_reasoning(struct reader *r, const struct item *in, const char *path, err *e) {
    cJSON *item;
    int rc = new_item(in, "reasoning", "rs_", path, r->list, &item, e);
    if (!rc) rc = read_parts(in->summary, path, summary_parts, item, "summary", e);
    if (!rc && in->content) rc = read_parts(in->content, path, thought_parts, item, "content", e);
    return rc;
}

/* Adds a copy; v NULL: null. */
static int add_copy(cJSON *item, const char *name, const cJSON *v, err *e) {
    cJSON *copy = v ? cJSON_Duplicate(v, true) : cJSON_CreateNull();
    if (cJSON_AddItemToObject(item, name, copy)) return 0;
    cJSON_Delete(copy);
    return err_no_memory(e);
}

static int read_client_call(struct reader *r, const struct item *in, const char *path, err *e) {
    const struct client_tool *t = client_tool_of(CLIENT_TOOL_CALL, in->type);
    cJSON *item;
    int rc = new_item(in, in->type, t->call_prefix, path, r->list, &item, e);
    if (!rc && !cJSON_AddStringToObject(item, "call_id", in->call_id)) rc = err_no_memory(e);
    return rc ? rc : add_copy(item, t->action, in->action, e);
}

static int read_client_output(struct reader *r, const struct item *in, const char *path, err *e) {
    const struct client_tool *t = client_tool_of(CLIENT_TOOL_OUTPUT, in->type);
    const char *call_id = in->call_id ? in->call_id : in->id;
    char name[JSON_PATH_BYTES];
    struct item own = *in;
    cJSON *item;
    json_path(name, "%s.%s", path, call_id ? "output" : "call_id");
    if (!call_id || (!in->output && strcmp(t->type, "apply_patch") != 0))
        return err_set_param(e, ERR_INVALID, name, "Missing required parameter: '%s'.", name);
    if (!in->call_id) own.id = NULL; /* it is the call's */
    int rc = new_item(&own, in->type, t->output_prefix, path, r->list, &item, e);
    if (!rc && !cJSON_AddStringToObject(item, "call_id", call_id)) rc = err_no_memory(e);
    return rc || !in->output ? rc : add_copy(item, "output", in->output, e);
}

/* Detaches the item with that id from an array. */
static cJSON *detach_item(cJSON *items, const char *id) {
    for (cJSON *v = items ? items->child : NULL; v; v = v->next)
        if (strcmp(item_text(v, "id"), id) == 0) return cJSON_DetachItemViaPointer(items, v);
    return NULL;
}

int response_items_parse(const struct responses_entry *entry, cJSON **out, err *e) {
    err why = {0};
    if (!json_parse(entry->items, strlen(entry->items), out, &why)) return 0;
    return err_set(e, ERR_IO, "the stored items of %s are damaged: %s", entry->id, why.msg);
}

static cJSON *detach_last(struct reader *r, const char *id) {
    cJSON *item = detach_item(cJSON_GetObjectItemCaseSensitive(r->last, "output"), id);
    return item ? item : detach_item(cJSON_GetObjectItemCaseSensitive(r->last, "input"), id);
}

/* Looks up the response that contains the item, as r->last; NULL if there is none. The limits keep
 * a few bytes of references from reading gigabytes of items. */
static int look_up_item(struct reader *r, const char *id, err *e) {
    const struct response_source *from = r->from;
    struct responses_entry entry;
    err why = {0};
    cJSON_Delete(r->last);
    r->last = NULL;
    if (!from->store) return 0;
    int rc = responses_find_item(from->store, id, from->key, from->now_s, &entry, &why);
    if (rc == ERR_NOT_FOUND) return 0;
    if (rc) {
        if (e) *e = why;
        return rc;
    }
    r->n_bytes += strlen(entry.items);
    if (r->n_bytes > from->max_bytes)
        rc = err_set_param(e, ERR_TOO_LONG, "input",
                           "The item references read more than %zu bytes of stored responses: list "
                           "the items of one response next to each other.",
                           from->max_bytes);
    else
        rc = response_items_parse(&entry, &r->last, e);
    responses_entry_fini(&entry);
    return rc;
}

static int read_reference(struct reader *r, const struct item *in, const char *path, err *e) {
    if (++r->n_references > MAX_REFERENCES)
        return err_set_param(e, ERR_INVALID, "input", "More than %d references to items.",
                             MAX_REFERENCES);
    /* References usually come in runs from one response. */
    cJSON *item = detach_last(r, in->id);
    int rc = item ? 0 : look_up_item(r, in->id, e);
    if (rc) return rc;
    if (!item) item = detach_last(r, in->id);
    if (item) return item_append(r->list, item) ? 0 : err_no_memory(e);
    char name[JSON_PATH_BYTES];
    json_path(name, "%s.id", path);
    return err_set_param(e, ERR_INVALID, name, "Item with id '%.64s' not found: it is not stored.",
                         in->id);
}

static const struct item_kind {
    const char *type;
    struct json_table table;
    int (*read)(struct reader *r, const struct item *in, const char *path, err *e);
} kinds[] = {
    {"message", JSON_TABLE(message_fields, NULL), read_message},
    {"function_call", JSON_TABLE(call_fields, NULL), read_call},
    {"function_call_output", JSON_TABLE(output_fields, NULL), read_output},
    {"reasoning", JSON_TABLE(reasoning_fields, NULL), read_reasoning},
    {"item_reference", JSON_TABLE(reference_fields, NULL), read_reference},
    {"custom_tool_call", JSON_TABLE(custom_fields, NULL), read_call},
    {"custom_tool_call_output", JSON_TABLE(output_fields, NULL), read_output},
    {"local_shell_call", JSON_TABLE(action_fields, NULL), read_client_call},
    {"shell_call", JSON_TABLE(action_fields, NULL), read_client_call},
    {"apply_patch_call", JSON_TABLE(operation_fields, NULL), read_client_call},
    {"local_shell_call_output", JSON_TABLE(result_fields, NULL), read_client_output},
    {"shell_call_output", JSON_TABLE(result_fields, NULL), read_client_output},
    {"apply_patch_call_output", JSON_TABLE(result_fields, NULL), read_client_output},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds, KIND_MESSAGE = 0, KIND_REFERENCE = 4 };

/* Without a type it is a message; with an id and without a role, a reference. NULL: another type.
 */
static const struct item_kind *kind_of(const cJSON *item) {
    const char *type = item_text(item, "type");
    for (size_t i = 0; i < N_KINDS; i++)
        if (strcmp(kinds[i].type, type) == 0) return &kinds[i];
    if (*type) return NULL;
    return &kinds[item_member(item, "id") && !item_member(item, "role") ? KIND_REFERENCE
                                                                        : KIND_MESSAGE];
}

/* v: a part, or an array of parts. */
static bool shows_image(const cJSON *v) {
    const char *type = item_text(v, "type");
    if (strstr(type, "image") || strstr(type, "screenshot")) return true;
    for (const cJSON *part = cJSON_IsArray(v) ? v->child : NULL; part; part = part->next)
        if (strstr(item_text(part, "type"), "image")) return true;
    return false;
}

/* An item of an unknown type is an echo of another server's tools or notes, which the model cannot
 * use. But what a user puts in changes the answer: something with a role, an input_image, a result
 * that is a picture. */
static bool is_foreign(const cJSON *item) {
    const char *role = item_text(item, "role");
    bool own = *role && strcmp(role, "assistant") != 0;
    bool put_in = strncmp(item_text(item, "type"), "input_", strlen("input_")) == 0;
    bool image =
        shows_image(item_member(item, "output")) || shows_image(item_member(item, "content"));
    return !kind_of(item) && !own && !put_in && !image;
}

static const struct json_table *table_of(const struct item_kind *kind, const cJSON *item) {
    bool said = kind == &kinds[KIND_MESSAGE] && strcmp(item_text(item, "role"), "assistant") == 0;
    return said ? &said_message : &kind->table;
}

/* What is_foreign looks at: the reader refuses such an item. */
static const struct json_field refused_fields[] = {
    {"type", JSON_STRING, 0, AT(type)},
    {"role", JSON_VALUE, 0, AT(content)},
    {"content", JSON_VALUE, 0, AT(summary)},
    {"output", JSON_VALUE, 0, AT(output)},
};
static const struct json_table refused_table = JSON_TABLE(refused_fields, NULL);

static const struct json_table *item_of(const cJSON *item) {
    const struct item_kind *kind = kind_of(item);
    if (is_foreign(item)) return NULL;
    return kind ? table_of(kind, item) : &refused_table;
}
const struct json_table response_item_table = {.of = item_of};

static int read_item(struct reader *r, const cJSON *v, const char *path, err *e) {
    char name[JSON_PATH_BYTES];
    struct item in = {0};
    if (!cJSON_IsObject(v)) return json_wrong_type(path, "an object", v, e);
    if (is_foreign(v)) return 0;
    const struct item_kind *kind = kind_of(v);
    json_path(name, "%s.type", path);
    if (!kind)
        return err_set_param(
            e, ERR_UNSUPPORTED, name,
            "Unsupported value for '%s': '%.40s', which the model cannot read. Send "
            "a 'message' with text.",
            name, item_text(v, "type"));
    json_path(name, "%s.", path);
    int rc = json_read(v, table_of(kind, v), name, &in, e);
    return rc ? rc : kind->read(r, &in, path, e);
}

int response_items_read(const cJSON *input, const struct response_source *from, cJSON *list,
                        err *e) {
    struct reader r = {.from = from, .list = list};
    int rc = 0, i = 0;
    if (cJSON_IsString(input)) {
        const struct item in = {.role = "user", .content = input};
        return read_message(&r, &in, "input", e);
    }
    for (const cJSON *v = input ? input->child : NULL; v && !rc; v = v->next) {
        char path[JSON_PATH_BYTES];
        json_path(path, "%s[%d]", from->param ? from->param : "input", i++);
        rc = read_item(&r, v, path, e);
    }
    cJSON_Delete(r.last);
    return rc;
}

/* ---- conversations ---- */

/* Moves the items of an array to the end of list. */
static int move_items(cJSON *items, cJSON *list, err *e) {
    for (cJSON *v; items && (v = items->child);)
        if (!item_append(list, cJSON_DetachItemViaPointer(items, v))) return err_no_memory(e);
    return 0;
}

static int add_entry(const struct responses_entry *entry, cJSON *list, err *e) {
    cJSON *items = NULL;
    int rc = response_items_parse(entry, &items, e);
    if (!rc) rc = move_items(cJSON_GetObjectItemCaseSensitive(items, "input"), list, e);
    if (!rc) rc = move_items(cJSON_GetObjectItemCaseSensitive(items, "output"), list, e);
    cJSON_Delete(items);
    return rc;
}

int response_conversation_get(const char *id, const struct response_source *from,
                              struct responses_entry *entry, err *e) {
    err why = {0};
    bool stored = from->store && strncmp(id, "conv_", 5) == 0;
    *entry = (struct responses_entry){0};
    int rc = stored ? responses_get(from->store, id, from->key, from->now_s, entry, &why)
                    : ERR_NOT_FOUND;
    if (rc == ERR_NOT_FOUND)
        return err_set_param(e, rc, "conversation", "Conversation with id '%.64s' not found.", id);
    if (rc && e) *e = why;
    return rc;
}

int response_items_conversation(const char *id, const struct response_source *from, cJSON *list,
                                err *e) {
    struct responses_entry entry;
    int rc = response_conversation_get(id, from, &entry, e);
    if (!rc && strlen(entry.items) > from->max_bytes)
        rc = err_set_param(e, ERR_TOO_LONG, "conversation",
                           "The conversation is too long: start a new one.");
    if (!rc) rc = add_entry(&entry, list, e);
    responses_entry_fini(&entry);
    return rc;
}

static int fail_missing(const char *id, const char *wanted, err *e) {
    static const char param[] = "previous_response_id";
    if (strcmp(id, wanted) == 0)
        return err_set_param(e, ERR_NOT_FOUND, param,
                             "Previous response with id '%.64s' not found.", id);
    return err_set_param(
        e, ERR_NOT_FOUND, param,
        "The conversation of '%.64s' continues '%.64s', which is not stored any more.", wanted, id);
}

/* Fetches the responses, newest first, into entries, which the caller frees. */
static int fetch_chain(const char *wanted, const struct response_source *from,
                       struct responses_entry **entries, size_t *n, err *e) {
    size_t n_bytes = 0;
    for (const char *id = wanted; *id; id = (*entries)[*n - 1].previous_id) {
        err why = {0};
        struct responses_entry *grown = mem_resize(*entries, *n + 1, sizeof **entries);
        if (!grown) return err_no_memory(e);
        *entries = grown;
        int rc = from->store
                     ? responses_get(from->store, id, from->key, from->now_s, &grown[*n], &why)
                     : ERR_NOT_FOUND;
        if (rc == ERR_NOT_FOUND) return fail_missing(id, wanted, e);
        if (rc) {
            if (e) *e = why;
            return rc;
        }
        n_bytes += strlen(grown[*n].items);
        if (++*n > MAX_CHAIN || n_bytes > from->max_bytes)
            return err_set_param(e, ERR_TOO_LONG, "previous_response_id",
                                 "The conversation is too long: start a new one.");
    }
    return 0;
}

int response_items_chain(const char *id, const struct response_source *from, cJSON *list, err *e) {
    struct responses_entry *entries = NULL;
    size_t n = 0;
    int rc = fetch_chain(id, from, &entries, &n, e);
    for (size_t i = n; i-- > 0 && !rc;)
        rc = add_entry(&entries[i], list, e);
    for (size_t i = 0; i < n; i++)
        responses_entry_fini(&entries[i]);
    free(entries);
    return rc;
}
