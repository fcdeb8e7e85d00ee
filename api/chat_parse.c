/* chat_parse.c - the chat endpoint's own fields and its messages. Pure, HTTP threads.
 *
 * A message that templates see has role, content (text, text parts, or null beside tool calls),
 * name, tool_calls and tool_call_id; what else a message may carry is refused by name. The shapes
 * that a template does not take are core/chat's business. */
#include "api/chat_request.h"

#include <stdio.h>
#include <string.h>

#define AT(member)  .offset = offsetof(struct gen_fields, member)
#define HAS(member) .has = 1 + offsetof(struct gen_fields, member)

static bool is_false(const cJSON *v) {
    return cJSON_IsFalse(v);
}

static bool is_empty_list(const cJSON *v) {
    return cJSON_IsArray(v) && !v->child;
}

static bool is_empty_object(const cJSON *v) {
    return cJSON_IsObject(v) && !v->child;
}

static bool is_word(const cJSON *v, const char *word) {
    return cJSON_IsString(v) && strcmp(v->valuestring, word) == 0;
}

static bool is_none(const cJSON *v) {
    return is_word(v, "none");
}

static bool is_default_tier(const cJSON *v) {
    return is_word(v, "auto") || is_word(v, "default");
}

static bool is_text_format(const cJSON *v) {
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(v, "type");
    return cJSON_IsObject(v) && is_word(type, "text") && !v->child->next;
}

static bool is_text_only(const cJSON *v) {
    return cJSON_IsArray(v) && v->child && !v->child->next && is_word(v->child, "text");
}

enum { NUL = JSON_NULLABLE };

#define REFUSED(name, flags, test, reason)                                                         \
    { name, JSON_REFUSED, flags, .accepts = (test), .why = (reason) }

static const char no_tools[] = "tool calling is not supported by this server";

static const struct json_field fields[] = {
    {"messages", JSON_VALUE, JSON_REQUIRED, AT(messages)},
    {"max_tokens", JSON_INT, NUL, AT(max_tokens), HAS(has_max_tokens), 1, 2147483647.0},
    {"max_completion_tokens", JSON_INT, NUL, AT(max_completion_tokens),
     HAS(has_max_completion_tokens), 1, 2147483647.0},
    {"logprobs", JSON_BOOL, NUL, AT(logprobs)},
    {"top_logprobs", JSON_INT, NUL, AT(top_logprobs), HAS(has_top_logprobs), 0,
     ENGINE_MAX_TOP_LOGPROBS},
    {"chat_template_kwargs", JSON_VALUE, NUL, AT(chat_template_kwargs)},
    {"documents", JSON_VALUE, NUL, AT(documents)},
    {"reasoning_effort", JSON_STRING, NUL, AT(reasoning_effort)},
    {"add_generation_prompt", JSON_BOOL, NUL, AT(add_generation_prompt),
     HAS(has_add_generation_prompt)},
    {"continue_final_message", JSON_BOOL, NUL, AT(continue_final_message)},
    REFUSED("tools", 0, is_empty_list, no_tools),
    REFUSED("tool_choice", 0, is_none, no_tools),
    REFUSED("parallel_tool_calls", 0, NULL, no_tools),
    REFUSED("functions", 0, NULL, no_tools),
    REFUSED("function_call", 0, is_none, no_tools),
    REFUSED("response_format", 0, is_text_format, "only {\"type\": \"text\"} is supported"),
    REFUSED("modalities", NUL, is_text_only, "only [\"text\"] is supported"),
    REFUSED("audio", NUL, NULL, "audio is not supported"),
    REFUSED("store", NUL, is_false, "completions are not stored"),
    REFUSED("metadata", NUL, is_empty_object, "completions are not stored"),
    REFUSED("service_tier", NUL, is_default_tier, "only \"auto\" and \"default\" are supported"),
    REFUSED("prediction", NUL, NULL, "predicted outputs are not supported"),
    REFUSED("verbosity", NUL, NULL, "verbosity cannot be set"),
    REFUSED("web_search_options", 0, NULL, "there is no web search"),
    REFUSED("moderation", NUL, NULL, "there is no moderation"),
    REFUSED("safety_identifier", NUL, NULL, "users are not tracked"),
    REFUSED("prompt_cache_key", NUL, NULL, "the prefix cache has no keys"),
    REFUSED("prompt_cache_retention", NUL, NULL, "the prefix cache has no retention times"),
    REFUSED("prompt_cache_options", NUL, NULL, "the prefix cache has no options"),
};
const struct json_table chat_table = {fields, sizeof fields / sizeof *fields, &gen_table};

/* ---- messages ---- */

struct message {
    const char *role, *name, *tool_call_id;
    const cJSON *content, *tool_calls;
};

/* What a client may echo back from an answer without asking for anything. */
static const struct json_field message_fields[] = {
    {"role", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct message, role)},
    {"content", JSON_VALUE, NUL, .offset = offsetof(struct message, content)},
    {"name", JSON_STRING, NUL, .offset = offsetof(struct message, name)},
    {"tool_call_id", JSON_STRING, NUL, .offset = offsetof(struct message, tool_call_id)},
    {"tool_calls", JSON_VALUE, NUL, .offset = offsetof(struct message, tool_calls)},
    REFUSED("refusal", NUL, NULL, "refusals cannot be rendered"),
    REFUSED("annotations", NUL, is_empty_list, "annotations cannot be rendered"),
    REFUSED("audio", NUL, NULL, "audio is not supported"),
    REFUSED("function_call", NUL, NULL, "use 'tool_calls'"),
};
static const struct json_table message_table = {
    message_fields, sizeof message_fields / sizeof *message_fields, NULL};

struct part {
    const char *type, *text;
};

static const struct json_field part_fields[] = {
    {"type", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct part, type)},
    {"text", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct part, text)},
    REFUSED("prompt_cache_breakpoint", NUL, NULL, "the prefix cache has no breakpoints"),
};
static const struct json_table part_table = {part_fields, sizeof part_fields / sizeof *part_fields,
                                             NULL};

static int wrong_type(const char *name, const char *wanted, const cJSON *v, err *e) {
    return err_set_param(e, ERR_INVALID, name, "Invalid type for '%s': expected %s, but got %s.",
                         name, wanted, json_type_name(v));
}

static int no_memory(err *e) {
    return err_set(e, ERR_NOMEM, "out of memory");
}

/* One {"type": "text", "text": ...} for each part. */
static int read_parts(const cJSON *parts, const char *path, cJSON *out, err *e) {
    int i = 0;
    if (!parts->child)
        return err_set_param(e, ERR_INVALID, path, "Invalid value for '%s': the array is empty.",
                             path);
    for (const cJSON *v = parts->child; v; v = v->next, i++) {
        char name[JSON_PATH_BYTES], prefix[JSON_PATH_BYTES];
        json_path(name, "%s[%d]", path, i);
        if (!cJSON_IsObject(v)) return wrong_type(name, "an object", v, e);
        const cJSON *type = cJSON_GetObjectItemCaseSensitive(v, "type");
        json_path(name, "%s[%d].type", path, i);
        if (cJSON_IsString(type) && strcmp(type->valuestring, "text") != 0)
            return err_set_param(e, ERR_UNSUPPORTED, name,
                                 "Unsupported value for '%s': this server reads parts of type "
                                 "'text' only, not '%.40s'.",
                                 name, type->valuestring);
        struct part part = {0};
        json_path(prefix, "%s[%d].", path, i);
        int rc = json_read(v, &part_table, prefix, &part, e);
        if (rc) return rc;
        cJSON *copy = cJSON_CreateObject();
        bool ok = cJSON_AddItemToArray(out, copy);
        if (!ok) cJSON_Delete(copy);
        ok = ok && cJSON_AddStringToObject(copy, "type", "text") &&
             cJSON_AddStringToObject(copy, "text", part.text);
        if (!ok) return no_memory(e);
    }
    return 0;
}

static int read_content(const struct message *m, const char *path, bool optional, cJSON *out,
                        err *e) {
    char name[JSON_PATH_BYTES];
    bool ok;
    json_path(name, "%s.content", path);
    if (cJSON_IsArray(m->content)) {
        cJSON *parts = cJSON_AddArrayToObject(out, "content");
        return parts ? read_parts(m->content, name, parts, e) : no_memory(e);
    }
    if (m->content && !cJSON_IsString(m->content))
        return wrong_type(name, "a string or an array of parts", m->content, e);
    if (!m->content && !optional)
        return err_set_param(e, ERR_INVALID, name, "Missing required parameter: '%s'.", name);
    ok = m->content ? cJSON_AddStringToObject(out, "content", m->content->valuestring) != NULL
                    : cJSON_AddNullToObject(out, "content") != NULL;
    return ok ? 0 : no_memory(e);
}

struct call {
    const char *id, *type;
    const cJSON *function;
};
struct function {
    const char *name, *arguments;
};

static const struct json_field call_fields[] = {
    {"id", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct call, id)},
    {"type", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct call, type)},
    {"function", JSON_VALUE, JSON_REQUIRED, .offset = offsetof(struct call, function)},
};
static const struct json_table call_table = {call_fields, 3, NULL};
static const struct json_field function_fields[] = {
    {"name", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct function, name)},
    {"arguments", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct function, arguments)},
};
static const struct json_table function_table = {function_fields, 2, NULL};

/* One earlier tool call, appended to list. */
static int read_call(const cJSON *v, const char *path, cJSON *list, err *e) {
    char name[JSON_PATH_BYTES];
    struct call call = {0};
    struct function function = {0};
    if (!cJSON_IsObject(v)) return wrong_type(path, "an object", v, e);
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(v, "type");
    json_path(name, "%s.type", path);
    if (cJSON_IsString(type) && !is_word(type, "function"))
        return err_set_param(e, ERR_UNSUPPORTED, name,
                             "Unsupported value for '%s': only 'function' is supported.", name);
    json_path(name, "%s.", path);
    int rc = json_read(v, &call_table, name, &call, e);
    if (rc) return rc;
    json_path(name, "%s.function", path);
    if (!cJSON_IsObject(call.function)) return wrong_type(name, "an object", call.function, e);
    json_path(name, "%s.function.", path);
    rc = json_read(call.function, &function_table, name, &function, e);
    if (rc) return rc;
    cJSON *out = cJSON_CreateObject(), *f = cJSON_AddObjectToObject(out, "function");
    cJSON_AddStringToObject(out, "id", call.id);
    cJSON_AddStringToObject(out, "type", call.type);
    cJSON_AddStringToObject(f, "name", function.name);
    bool ok = cJSON_AddStringToObject(f, "arguments", function.arguments) != NULL;
    bool added = cJSON_AddItemToArray(list, out);
    if (!added) cJSON_Delete(out);
    return ok && added ? 0 : no_memory(e);
}

static int read_calls(const struct message *m, const char *path, cJSON *out, err *e) {
    char name[JSON_PATH_BYTES];
    json_path(name, "%s.tool_calls", path);
    if (!m->tool_calls) return 0;
    if (strcmp(m->role, "assistant") != 0)
        return err_set_param(e, ERR_INVALID, name, "'%s' belongs to the role 'assistant'.", name);
    if (!cJSON_IsArray(m->tool_calls)) return wrong_type(name, "an array", m->tool_calls, e);
    cJSON *list = cJSON_AddArrayToObject(out, "tool_calls");
    if (!list) return no_memory(e);
    int i = 0;
    for (const cJSON *v = m->tool_calls->child; v; v = v->next) {
        json_path(name, "%s.tool_calls[%d]", path, i++);
        int rc = read_call(v, name, list, e);
        if (rc) return rc;
    }
    return 0;
}

static int check_role(const struct message *m, const char *path, err *e) {
    static const char *const roles[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    char name[JSON_PATH_BYTES];
    bool known = false;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        known |= strcmp(m->role, roles[i]) == 0;
    json_path(name, "%s.role", path);
    if (!known)
        return err_set_param(e, ERR_INVALID, name,
                             "Invalid value: '%.40s'. Supported values of '%s' are: 'system', "
                             "'developer', 'user', 'assistant', 'tool' and 'function'.",
                             m->role, name);
    const char *missing = strcmp(m->role, "tool") == 0 && !m->tool_call_id ? "tool_call_id"
                          : strcmp(m->role, "function") == 0 && !m->name   ? "name"
                                                                           : NULL;
    if (!missing) return 0;
    json_path(name, "%s.%s", path, missing);
    return err_set_param(e, ERR_INVALID, name, "Missing required parameter: '%s'.", name);
}

static int read_message(const cJSON *v, const char *path, cJSON *out, err *e) {
    char prefix[JSON_PATH_BYTES];
    struct message m = {0};
    if (!cJSON_IsObject(v)) return wrong_type(path, "an object", v, e);
    json_path(prefix, "%s.", path);
    int rc = json_read(v, &message_table, prefix, &m, e);
    if (!rc) rc = check_role(&m, path, e);
    if (rc) return rc;
    bool optional =
        (strcmp(m.role, "assistant") == 0 && m.tool_calls) || strcmp(m.role, "function") == 0;
    if (!cJSON_AddStringToObject(out, "role", m.role)) return no_memory(e);
    rc = read_content(&m, path, optional, out, e);
    if (rc) return rc;
    bool ok = true;
    if (m.name) ok = ok && cJSON_AddStringToObject(out, "name", m.name);
    if (m.tool_call_id) ok = ok && cJSON_AddStringToObject(out, "tool_call_id", m.tool_call_id);
    if (!ok) return no_memory(e);
    return read_calls(&m, path, out, e);
}

int chat_messages_read(const cJSON *messages, cJSON **out, err *e) {
    *out = NULL;
    if (!cJSON_IsArray(messages)) return wrong_type("messages", "an array", messages, e);
    if (!messages->child)
        return err_set_param(e, ERR_INVALID, "messages",
                             "Invalid value for 'messages': the array is empty.");
    cJSON *list = cJSON_CreateArray();
    int rc = list ? 0 : no_memory(e);
    int i = 0;
    for (const cJSON *v = messages->child; v && !rc; v = v->next) {
        char path[JSON_PATH_BYTES];
        json_path(path, "messages[%d]", i++);
        cJSON *m = cJSON_CreateObject();
        if (!m || !cJSON_AddItemToArray(list, m)) {
            cJSON_Delete(m);
            rc = no_memory(e);
        } else {
            rc = read_message(v, path, m, e);
        }
    }
    if (rc)
        cJSON_Delete(list);
    else
        *out = list;
    return rc;
}

/* ---- what a template sees beside the messages ---- */

enum { MAX_KWARGS = 64, MAX_DOCUMENTS = 1024, MAX_EFFORT_BYTES = 32 };

/* Names that are not the client's to set. */
static bool is_reserved(const char *name) {
    static const char *const names[] = {"messages",
                                        "tools",
                                        "documents",
                                        "add_generation_prompt",
                                        "continue_final_message",
                                        "bos_token",
                                        "eos_token",
                                        "raise_exception",
                                        "strftime_now"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static int check_kwargs(const cJSON *kwargs, err *e) {
    static const char param[] = "chat_template_kwargs";
    if (!cJSON_IsObject(kwargs)) return wrong_type(param, "an object", kwargs, e);
    int n = 0;
    for (const cJSON *v = kwargs->child; v; v = v->next) {
        if (is_reserved(v->string))
            return err_set_param(e, ERR_INVALID, param,
                                 "Invalid value for '%s': '%s' cannot be set there.", param,
                                 v->string);
        if (++n > MAX_KWARGS)
            return err_set_param(e, ERR_INVALID, param,
                                 "Invalid value for '%s': at most %d members.", param, MAX_KWARGS);
    }
    return 0;
}

static int check_documents(const cJSON *documents, err *e) {
    int i = 0;
    if (!cJSON_IsArray(documents)) return wrong_type("documents", "an array", documents, e);
    for (const cJSON *v = documents->child; v; v = v->next, i++) {
        char name[JSON_PATH_BYTES];
        json_path(name, "documents[%d]", i);
        if (!cJSON_IsObject(v)) return wrong_type(name, "an object", v, e);
        if (i >= MAX_DOCUMENTS)
            return err_set_param(e, ERR_INVALID, "documents",
                                 "Invalid value for 'documents': at most %d.", MAX_DOCUMENTS);
    }
    return 0;
}

static int check_effort(const char *effort, const chat_template *chat, const char *param, err *e) {
    if (!chat || !chat_template_uses(chat, "reasoning_effort"))
        return err_set_param(e, ERR_UNSUPPORTED, param,
                             "Unsupported value for '%s': the model's chat template does not know "
                             "it.",
                             param);
    if (strlen(effort) > MAX_EFFORT_BYTES)
        return err_set_param(e, ERR_INVALID, param, "Invalid value for '%s': it is too long.",
                             param);
    return 0;
}

int chat_fields_read(const struct gen_fields *f, const chat_template *chat, struct chat_request *q,
                     err *e) {
    const cJSON *kwargs = f->chat_template_kwargs;
    int rc = 0;
    if (f->continue_final_message && f->has_add_generation_prompt && f->add_generation_prompt)
        rc = err_set_param(
            e, ERR_INVALID, "continue_final_message",
            "'continue_final_message' goes on with the last message, 'add_generation_prompt' "
            "begins a new one: set one of them");
    if (!rc && kwargs) rc = check_kwargs(kwargs, e);
    if (!rc && f->documents) rc = check_documents(f->documents, e);
    if (!rc && f->reasoning_effort)
        rc = check_effort(f->reasoning_effort, chat, q->param_effort, e);
    if (rc) return rc;
    q->documents = f->documents;
    q->continue_final_message = f->continue_final_message;
    q->add_generation_prompt =
        f->has_add_generation_prompt ? f->add_generation_prompt : !f->continue_final_message;
    if (!kwargs && !f->reasoning_effort) return 0;
    q->extra = kwargs ? cJSON_Duplicate(kwargs, true) : cJSON_CreateObject();
    if (!q->extra) return no_memory(e);
    bool ok = !f->reasoning_effort || cJSON_HasObjectItem(q->extra, "reasoning_effort") ||
              cJSON_AddStringToObject(q->extra, "reasoning_effort", f->reasoning_effort);
    return ok ? 0 : no_memory(e);
}
