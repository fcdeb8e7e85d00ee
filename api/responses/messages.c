/* responses/messages.c - items of the Responses API as the messages that a chat template sees, and
 * what must hold of a conversation. Owns nothing; runs on pool threads. */
#include "api/generate/tool_form.h"
#include "api/responses/items_int.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

struct maker {
    cJSON *list;
    cJSON *answer; /* the assistant message that further items are added to, or NULL */
};

static cJSON *new_message(struct maker *m, const char *role) {
    cJSON *v = item_append(m->list, cJSON_CreateObject());
    m->answer = NULL;
    return v && cJSON_AddStringToObject(v, "role", role) ? v : NULL;
}

/* A single text becomes a string, several become text parts. */
static bool set_content(cJSON *message, const cJSON *parts) {
    if (cJSON_IsString(parts))
        return cJSON_AddStringToObject(message, "content", parts->valuestring) != NULL;
    const cJSON *only = parts ? parts->child : NULL;
    if (!only) return cJSON_AddStringToObject(message, "content", "") != NULL;
    bool refused = item_is(only, "refusal");
    if (!only->next)
        return cJSON_AddStringToObject(message, "content",
                                       item_text(only, refused ? "refusal" : "text")) != NULL;
    cJSON *list = cJSON_AddArrayToObject(message, "content");
    bool ok = list != NULL;
    for (const cJSON *v = only; v && ok; v = v->next) {
        cJSON *part = item_append(list, cJSON_CreateObject());
        ok = cJSON_AddStringToObject(part, "type", "text") &&
             cJSON_AddStringToObject(part, "text",
                                     item_text(v, item_is(v, "refusal") ? "refusal" : "text"));
    }
    return ok;
}

/* The current assistant message; or a new one if it already has a member that must come after the
 * next item. */
static cJSON *assistant_message(struct maker *m, bool with_content, bool with_calls) {
    if (m->answer && !(with_content && item_member(m->answer, "content")) &&
        !(with_calls && item_member(m->answer, "tool_calls")))
        return m->answer;
    cJSON *made = new_message(m, "assistant");
    return m->answer = made;
}

static void add_thought(str *text, const cJSON *item) {
    const cJSON *parts = item_member(item, "content");
    if (!parts || !parts->child) parts = item_member(item, "summary");
    for (const cJSON *v = parts ? parts->child : NULL; v; v = v->next) {
        if (text->len) str_add(text, "\n");
        str_add(text, item_text(v, "text"));
    }
}

/* Adds a run of reasoning items; *item becomes the last of them. They are joined at once, because
 * there may be thousands. */
static bool add_reasoning(struct maker *m, const cJSON **item) {
    cJSON *to = assistant_message(m, true, true);
    str text;
    str_init(&text, SIZE_MAX);
    const char *before = cJSON_GetStringValue(item_member(to, "reasoning_content"));
    if (before) str_add(&text, before);
    add_thought(&text, *item);
    while ((*item)->next && item_is((*item)->next, "reasoning")) {
        *item = (*item)->next;
        add_thought(&text, *item);
    }
    bool ok = to && !text.failed;
    if (ok && text.len) {
        cJSON_DeleteItemFromObjectCaseSensitive(to, "reasoning_content");
        ok = cJSON_AddStringToObject(to, "reasoning_content", str_cstr(&text)) != NULL;
    }
    str_fini(&text);
    return ok;
}

/* The call's function, as models see it. */
static bool add_function(cJSON *call, const cJSON *item) {
    str name, arguments;
    cJSON *function = cJSON_AddObjectToObject(call, "function");
    str_init(&name, SIZE_MAX);
    str_init(&arguments, SIZE_MAX);
    const struct client_tool *t = client_tool_of(CLIENT_TOOL_CALL, item_text(item, "type"));
    tool_form_add_name(item_text(item, "namespace"), t ? t->type : item_text(item, "name"), &name);
    if (t)
        client_tool_add_arguments(t, item, &arguments);
    else if (item_is(item, "custom_tool_call"))
        tool_form_add_arguments(item_text(item, "input"), &arguments);
    else
        str_add(&arguments, item_text(item, "arguments"));
    bool ok = !name.failed && !arguments.failed &&
              cJSON_AddStringToObject(function, "name", str_cstr(&name)) &&
              cJSON_AddStringToObject(function, "arguments", str_cstr(&arguments));
    str_fini(&name);
    str_fini(&arguments);
    return ok;
}

static bool add_call(struct maker *m, const cJSON *item) {
    cJSON *to = assistant_message(m, false, false);
    cJSON *calls = cJSON_GetObjectItemCaseSensitive(to, "tool_calls");
    if (!calls) calls = cJSON_AddArrayToObject(to, "tool_calls");
    cJSON *call = calls ? item_append(calls, cJSON_CreateObject()) : NULL;
    return cJSON_AddStringToObject(call, "id", item_text(item, "call_id")) &&
           cJSON_AddStringToObject(call, "type", "function") && add_function(call, item);
}

static bool add_output(struct maker *m, const cJSON *item) {
    cJSON *to = new_message(m, "tool");
    const char *name = item_text(item, "name");
    bool ok = to && cJSON_AddStringToObject(to, "tool_call_id", item_text(item, "call_id")) &&
              (!*name || cJSON_AddStringToObject(to, "name", name));
    if (!client_tool_of(CLIENT_TOOL_OUTPUT, item_text(item, "type")))
        return ok && set_content(to, item_member(item, "output"));
    str text;
    str_init(&text, SIZE_MAX);
    client_tool_add_result(item, &text);
    ok = ok && !text.failed && cJSON_AddStringToObject(to, "content", str_cstr(&text));
    str_fini(&text);
    return ok;
}

static bool add_item(struct maker *m, const cJSON *item) {
    if (item_is_call(item)) return add_call(m, item);
    if (item_is_output(item)) return add_output(m, item);
    const char *role = item_text(item, "role");
    cJSON *to =
        strcmp(role, "assistant") == 0 ? assistant_message(m, true, true) : new_message(m, role);
    return to && set_content(to, item_member(item, "content"));
}

/* Templates expect a content: null beside calls, otherwise an empty one. */
static bool fill_contents(cJSON *messages) {
    bool ok = true;
    for (cJSON *v = messages->child; v && ok; v = v->next) {
        if (item_member(v, "content")) continue;
        ok = item_member(v, "tool_calls") ? cJSON_AddNullToObject(v, "content") != NULL
                                          : cJSON_AddStringToObject(v, "content", "") != NULL;
    }
    return ok;
}

/* ---- what must hold of a conversation ---- */

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_any(const cJSON *item) {
    (void)item;
    return true;
}

/* A member of all items that `of` wants, sorted; the caller frees. */
static const char **sorted_members(const cJSON *const *lists, size_t n_lists,
                                   bool (*of)(const cJSON *item), const char *name, size_t *n) {
    size_t most = 0;
    *n = 0;
    for (size_t i = 0; i < n_lists; i++)
        most += (size_t)cJSON_GetArraySize(lists[i]);
    const char **texts = mem_new(most, sizeof *texts);
    for (size_t i = 0; i < n_lists && texts; i++)
        for (const cJSON *v = lists[i]->child; v; v = v->next)
            if (of(v)) texts[(*n)++] = item_text(v, name);
    if (texts && *n > 1) qsort(texts, *n, sizeof *texts, compare_texts);
    return texts;
}

int response_items_check_ids(const cJSON *const *lists, size_t n_lists, const char *param, err *e) {
    size_t n;
    const char **ids = sorted_members(lists, n_lists, is_any, "id", &n);
    int rc = ids ? 0 : err_no_memory(e);
    for (size_t i = 1; i < n && !rc; i++)
        if (strcmp(ids[i - 1], ids[i]) == 0)
            rc = err_set_param(e, ERR_INVALID, param,
                               "Duplicate item found with id '%.64s': a conversation may contain "
                               "each item only once.",
                               ids[i]);
    free(ids);
    return rc;
}

static int check_outputs(const cJSON *const *lists, size_t n_lists, err *e) {
    size_t n;
    const char **calls = sorted_members(lists, n_lists, item_is_call, "call_id", &n);
    int rc = calls ? 0 : err_no_memory(e);
    for (size_t i = 0; i < n_lists && !rc; i++)
        for (const cJSON *v = lists[i]->child; v && !rc; v = v->next) {
            const char *call_id = item_text(v, "call_id");
            if (item_is_output(v) && !bsearch(&call_id, calls, n, sizeof *calls, compare_texts))
                rc = err_set_param(e, ERR_INVALID, "input",
                                   "No tool call found for the output with call_id '%.64s'.",
                                   call_id);
        }
    free(calls);
    return rc;
}

int response_items_messages(const char *instructions, const cJSON *const *lists, size_t n_lists,
                            cJSON **out, err *e) {
    *out = NULL;
    int rc = response_items_check_ids(lists, n_lists, "input", e);
    if (!rc) rc = check_outputs(lists, n_lists, e);
    if (rc) return rc;
    struct maker m = {.list = cJSON_CreateArray()};
    bool ok = m.list != NULL;
    if (ok && instructions) {
        cJSON *first = new_message(&m, "system");
        ok = first && cJSON_AddStringToObject(first, "content", instructions);
    }
    for (size_t i = 0; i < n_lists; i++)
        for (const cJSON *v = lists[i]->child; v && ok; v = v->next)
            ok = item_is(v, "reasoning") ? add_reasoning(&m, &v) : add_item(&m, v);
    if (ok && fill_contents(m.list)) {
        *out = m.list;
        return 0;
    }
    cJSON_Delete(m.list);
    return err_no_memory(e);
}
