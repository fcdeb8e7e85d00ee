/* chat_messages.c - the messages of a chat. Pure; pool threads.
 *
 * Templates see of a message: role, content (text, text parts, or null beside tool calls), name,
 * reasoning_content, tool_calls and tool_call_id. Other members are ignored. Adapting the
 * messages to what a template accepts is core/chat's task.
 *
 * What an assistant said is an echo: its parts of unknown types belong to another server, so they
 * are left out and named. A user's would change the answer, so they are refused. */
#include "api/generate/chat_body.h"
#include "api/generate/tool_form.h"
#include "api/http/ignored.h"
#include "core/chat/syntax.h"

#include <stdio.h>
#include <string.h>

static bool is_word(const cJSON *v, const char *word) {
    return cJSON_IsString(v) && strcmp(v->valuestring, word) == 0;
}

enum { NUL = JSON_NULLABLE };

static const struct json_table part_table, said_table, call_table, function_table;
static const struct json_table *message_of(const cJSON *message);

struct message {
    const char *role, *name, *tool_call_id;
    const char *reasoning_content, *reasoning, *refusal;
    const cJSON *content, *tool_calls;
};

#define CONTENT(PARTS)                                                                             \
    {                                                                                              \
        "content", JSON_VALUE, NUL | JSON_OR_STRING | JSON_OR_ARRAY | JSON_WITH_NUL,               \
            .offset = offsetof(struct message, content), .table = &PARTS,                          \
            .help =                                                                                \
                "A text or an array of text parts, of an assistant also thinking; null only with " \
                "tool_calls."                                                                      \
    }
static const struct json_field content_fields[] = {CONTENT(part_table)};
static const struct json_field said_fields[] = {CONTENT(said_table)};
/* Includes members that clients echo from answers. */
static const struct json_field message_fields[] = {
    {"role", JSON_ENUM, JSON_REQUIRED, .offset = offsetof(struct message, role),
     .words = "system|developer|user|assistant|tool|function"},
    {"name", JSON_STRING, NUL, .offset = offsetof(struct message, name),
     .help = "Ignored if the chat template does not show it."},
    {"tool_call_id", JSON_STRING, NUL, .offset = offsetof(struct message, tool_call_id)},
    {"tool_calls", JSON_ARRAY, NUL | JSON_WITH_NUL, .offset = offsetof(struct message, tool_calls),
     .table = &call_table, .help = "The assistant's earlier calls."},
    {"refusal", JSON_STRING, NUL | JSON_WITH_NUL, .offset = offsetof(struct message, refusal)},
    {"reasoning_content", JSON_STRING, NUL | JSON_WITH_NUL,
     .offset = offsetof(struct message, reasoning_content),
     .help = "Ignored if the chat template does not show it."},
    {"reasoning", JSON_STRING, NUL | JSON_WITH_NUL, .offset = offsetof(struct message, reasoning)},
    {"parsed", JSON_ADVISORY, NUL, .why = "OpenAI's library echoes the parsed content"},
    {"annotations", JSON_ADVISORY, NUL, .why = "the model does not see them"},
    {"audio", JSON_ADVISORY, NUL, .why = "the model sees the text only"},
    {"function_call", JSON_REFUSED, NUL, .why = "use 'tool_calls'"},
};
static const struct json_table message_rest = JSON_TABLE(message_fields, NULL),
                               said_message = JSON_TABLE(said_fields, &message_rest);
const struct json_table chat_message_table = {
    content_fields, sizeof content_fields / sizeof *content_fields, &message_rest, message_of};

static const struct json_table *message_of(const cJSON *message) {
    bool said = is_word(cJSON_GetObjectItemCaseSensitive(message, "role"), "assistant");
    return said ? &said_message : &chat_message_table;
}

struct part {
    const char *type, *text, *refusal;
};

static const struct json_field part_fields[] = {
    {"type", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct part, type)},
    {"text", JSON_STRING, JSON_WITH_NUL, .offset = offsetof(struct part, text)},
    {"refusal", JSON_STRING, JSON_WITH_NUL, .offset = offsetof(struct part, refusal)},
    {"prompt_cache_breakpoint", JSON_ADVISORY, NUL, .why = "prefixes are cached automatically"},
    {"cache_control", JSON_ADVISORY, NUL, .why = "prefixes are cached automatically"},
};
static const struct json_table part_table = JSON_TABLE(part_fields, NULL);

/* Thinking, in the forms of several servers: {"type": "thinking", "thinking": ...}, {"type":
 * "reasoning", "text": ...}. */
struct thought {
    const char *type;
    const cJSON *thinking, *reasoning, *text;
};
#define THOUGHT(member)                                                                            \
    {                                                                                              \
#member, JSON_VALUE, NUL | JSON_WITH_NUL | JSON_OR_STRING | JSON_OR_ARRAY,                 \
            .offset = offsetof(struct thought, member)                                             \
    }
static const struct json_field thought_fields[] = {
    {"type", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct thought, type)},
    THOUGHT(thinking),
    THOUGHT(reasoning),
    THOUGHT(text),
    {"signature", JSON_ADVISORY, NUL, .why = "thinking is taken as it is"},
    {"cache_control", JSON_ADVISORY, NUL, .why = "prefixes are cached automatically"},
};
static const struct json_table thought_table = JSON_TABLE(thought_fields, NULL);

static const struct json_table *said_of(const cJSON *part) {
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(part, "type");
    if (is_word(type, "thinking") || is_word(type, "reasoning")) return &thought_table;
    bool known = !cJSON_IsString(type) || is_word(type, "text") || is_word(type, "refusal");
    return known ? &said_table : NULL;
}
static const struct json_table said_table = {part_fields, sizeof part_fields / sizeof *part_fields,
                                             NULL, said_of};

/* Where a message is read to. */
struct reader {
    const chat_template *chat; /* NULL: unknown, it shows everything */
    struct ignored *ignored;
    str thoughts; /* of an assistant's parts */
    int n_thoughts;
};

/* Text, or the texts of parts. */
static void add_thought(const cJSON *v, str *out) {
    if (cJSON_IsString(v)) str_add(out, v->valuestring);
    for (const cJSON *part = cJSON_IsArray(v) ? v->child : NULL; part; part = part->next) {
        const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(part, "text"));
        if (text) str_add(out, text);
    }
}

static bool shows_thoughts(const struct reader *r) {
    return !r->chat || chat_template_syntax(r->chat)->reasoning_member;
}

/* used: the message has no reasoning beside its parts. */
static int read_thought(struct reader *r, const cJSON *v, const char *path, bool used, err *e) {
    char name[JSON_PATH_BYTES];
    struct thought t = {0};
    json_path(name, "%s.", path);
    int rc = json_read(v, &thought_table, name, &t, e);
    if (rc) return rc;
    if (!used || !shows_thoughts(r)) {
        ignored_tolerate(r->ignored, path);
        return 0;
    }
    if (r->n_thoughts++) str_add_char(&r->thoughts, '\n');
    add_thought(t.thinking ? t.thinking : t.reasoning ? t.reasoning : t.text, &r->thoughts);
    return 0;
}

/* Converts a part for templates. An earlier refusal of the model becomes text. */
static int read_part(const cJSON *v, const char *path, bool refusals, cJSON *out, err *e) {
    char name[JSON_PATH_BYTES];
    struct part part = {0};
    if (!cJSON_IsObject(v)) return json_wrong_type(path, "an object", v, e);
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(v, "type");
    bool refusal = refusals && is_word(type, "refusal");
    json_path(name, "%s.type", path);
    if (cJSON_IsString(type) && !is_word(type, "text") && !refusal)
        return err_set_param(
            e, ERR_UNSUPPORTED, name,
            "Unsupported value for '%s': only parts of type 'text' are supported, not '%.40s'.",
            name, type->valuestring);
    json_path(name, "%s.", path);
    int rc = json_read(v, &part_table, name, &part, e);
    if (rc) return rc;
    const char *text = refusal ? part.refusal : part.text, *other = refusal ? "text" : "refusal";
    json_path(name, "%s.%s", path, text ? other : refusal ? "refusal" : "text");
    if (!text)
        return err_set_param(e, ERR_INVALID, name, "Missing required parameter: '%s'.", name);
    if (refusal ? part.text : part.refusal)
        return err_set_param(e, ERR_INVALID, name, "'%s' does not belong to a part of type '%s'.",
                             name, part.type);
    bool ok =
        cJSON_AddStringToObject(out, "type", "text") && cJSON_AddStringToObject(out, "text", text);
    return ok ? 0 : err_no_memory(e);
}

static int read_parts(struct reader *r, const struct message *m, const char *path, cJSON *out,
                      err *e) {
    bool said = strcmp(m->role, "assistant") == 0;
    int i = 0, rc = 0;
    if (!m->content->child)
        return err_set_param(e, ERR_INVALID, path, "Invalid value for '%s': the array is empty.",
                             path);
    for (const cJSON *v = m->content->child; v && !rc; v = v->next) {
        char name[JSON_PATH_BYTES];
        const struct json_table *of = said && cJSON_IsObject(v) ? said_of(v) : &part_table;
        json_path(name, "%s[%d]", path, i++);
        if (!of) continue;
        if (of == &thought_table) {
            rc = read_thought(r, v, name, !m->reasoning_content && !m->reasoning, e);
            continue;
        }
        cJSON *copy = cJSON_CreateObject();
        if (!copy || !cJSON_AddItemToArray(out, copy)) {
            cJSON_Delete(copy);
            return err_no_memory(e);
        }
        rc = read_part(v, name, said, copy, e);
    }
    return rc;
}

static int read_content(struct reader *r, const struct message *m, const char *path, bool optional,
                        cJSON *out, err *e) {
    char name[JSON_PATH_BYTES];
    bool ok;
    json_path(name, "%s.content", path);
    if (cJSON_IsArray(m->content)) {
        cJSON *parts = cJSON_CreateArray();
        int rc = parts ? read_parts(r, m, name, parts, e) : err_no_memory(e);
        /* Nothing but what was left out: an empty answer. */
        if (!rc && !parts->child) {
            cJSON_Delete(parts);
            parts = m->tool_calls ? cJSON_CreateNull() : cJSON_CreateString("");
        }
        if (!rc && cJSON_AddItemToObject(out, "content", parts)) return 0;
        cJSON_Delete(parts);
        return rc ? rc : err_no_memory(e);
    }
    if (!m->content && !optional)
        return err_set_param(e, ERR_INVALID, name, "Missing required parameter: '%s'.", name);
    ok = m->content ? cJSON_AddStringToObject(out, "content", m->content->valuestring) != NULL
                    : cJSON_AddNullToObject(out, "content") != NULL;
    return ok ? 0 : err_no_memory(e);
}

struct call {
    const char *id, *type;
    const cJSON *function;
};
struct function {
    const char *name;
    const cJSON *arguments;
};

static const struct json_field call_fields[] = {
    {"id", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct call, id)},
    {"type", JSON_STRING, NUL, .offset = offsetof(struct call, type), .initial = "\"function\""},
    {"function", JSON_OBJECT, JSON_REQUIRED, .offset = offsetof(struct call, function),
     .table = &function_table},
};
static const struct json_field custom_fields[] = {
    {"name", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct function, name)},
    {"input", JSON_VALUE, JSON_REQUIRED | JSON_OR_STRING | JSON_WITH_NUL,
     .offset = offsetof(struct function, arguments)},
};
static const struct json_table custom_table = JSON_TABLE(custom_fields, NULL);
static const struct json_field custom_call_fields[] = {
    {"id", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct call, id)},
    {"type", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct call, type)},
    {"custom", JSON_OBJECT, JSON_REQUIRED | JSON_WITH_NUL,
     .offset = offsetof(struct call, function), .table = &custom_table},
};
static const struct json_table custom_call_table = JSON_TABLE(custom_call_fields, NULL);
static const struct json_table *call_of(const cJSON *call);
static const struct json_table call_table = {call_fields, sizeof call_fields / sizeof *call_fields,
                                             NULL, call_of};

static bool is_custom(const cJSON *call) {
    return is_word(cJSON_GetObjectItemCaseSensitive(call, "type"), "custom");
}

static const struct json_table *call_of(const cJSON *call) {
    return is_custom(call) ? &custom_call_table : &call_table;
}
static const struct json_field function_fields[] = {
    {"name", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct function, name)},
    {"arguments", JSON_VALUE, JSON_REQUIRED | JSON_OR_STRING | JSON_OR_OBJECT,
     .offset = offsetof(struct function, arguments),
     .help = "JSON as a text, or the object itself."},
    {"parsed_arguments", JSON_ADVISORY, NUL, .why = "OpenAI's library echoes the parsed arguments"},
};
static const struct json_table function_table = JSON_TABLE(function_fields, NULL);

/* Adds what was called to a call, as models see it. */
static bool add_function(cJSON *to, const struct function *f, bool custom) {
    cJSON *function = cJSON_AddObjectToObject(to, "function"), *arguments;
    if (custom) {
        str text;
        str_init(&text, SIZE_MAX);
        tool_form_add_arguments(f->arguments->valuestring, &text);
        arguments = text.failed ? NULL : cJSON_CreateString(str_cstr(&text));
        str_fini(&text);
    } else {
        arguments = cJSON_Duplicate(f->arguments, true);
    }
    bool ok = cJSON_AddStringToObject(function, "name", f->name) &&
              cJSON_AddItemToObject(function, "arguments", arguments);
    if (!ok) cJSON_Delete(arguments);
    return ok;
}

/* Appends one earlier tool call to list. */
static int read_call(const cJSON *v, const char *path, cJSON *list, err *e) {
    char name[JSON_PATH_BYTES];
    struct call call = {0};
    struct function function = {0};
    if (!cJSON_IsObject(v)) return json_wrong_type(path, "an object", v, e);
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(v, "type");
    bool custom = is_custom(v);
    json_path(name, "%s.type", path);
    if (cJSON_IsString(type) && !custom && !is_word(type, "function"))
        return err_set_param(
            e, ERR_UNSUPPORTED, name,
            "Unsupported value for '%s': only 'function' and 'custom' are supported.", name);
    json_path(name, "%s.", path);
    int rc = json_read(v, call_of(v), name, &call, e);
    if (rc) return rc;
    json_path(name, "%s.%s.", path, custom ? "custom" : "function");
    rc = json_read(call.function, custom ? &custom_table : &function_table, name, &function, e);
    if (rc) return rc;
    cJSON *out = cJSON_CreateObject();
    bool ok = add_function(out, &function, custom) && cJSON_AddStringToObject(out, "id", call.id) &&
              cJSON_AddStringToObject(out, "type", "function");
    bool added = cJSON_AddItemToArray(list, out);
    if (!added) cJSON_Delete(out);
    return ok && added ? 0 : err_no_memory(e);
}

static int read_calls(const struct message *m, const char *path, cJSON *out, err *e) {
    char name[JSON_PATH_BYTES];
    json_path(name, "%s.tool_calls", path);
    if (!m->tool_calls) return 0;
    if (strcmp(m->role, "assistant") != 0)
        return err_set_param(e, ERR_INVALID, name,
                             "'%s' is only allowed with the role 'assistant'.", name);
    cJSON *list = cJSON_AddArrayToObject(out, "tool_calls");
    if (!list) return err_no_memory(e);
    int i = 0;
    for (const cJSON *v = m->tool_calls->child; v; v = v->next) {
        json_path(name, "%s.tool_calls[%d]", path, i++);
        int rc = read_call(v, name, list, e);
        if (rc) return rc;
    }
    return 0;
}

static int check_role(const struct message *m, const char *path, err *e) {
    char name[JSON_PATH_BYTES];
    /* Reasoning and refusals are the assistant's. */
    const char *alien = m->refusal             ? "refusal"
                        : m->reasoning_content ? "reasoning_content"
                        : m->reasoning         ? "reasoning"
                                               : NULL;
    if (alien && strcmp(m->role, "assistant") != 0) {
        json_path(name, "%s.%s", path, alien);
        return err_set_param(e, ERR_INVALID, name,
                             "'%s' is only allowed with the role 'assistant'.", name);
    }
    if (m->refusal && (m->content || m->tool_calls)) {
        json_path(name, "%s.refusal", path);
        return err_set_param(
            e, ERR_UNSUPPORTED, name,
            "Unsupported value for '%s': it cannot be combined with 'content' or 'tool_calls'.",
            name);
    }
    if (m->reasoning_content && m->reasoning && strcmp(m->reasoning_content, m->reasoning) != 0) {
        json_path(name, "%s.reasoning", path);
        return err_set_param(e, ERR_INVALID, name,
                             "'%s' and 'reasoning_content' mean the same: send only one.", name);
    }
    const char *missing = strcmp(m->role, "tool") == 0 && !m->tool_call_id ? "tool_call_id"
                          : strcmp(m->role, "function") == 0 && !m->name   ? "name"
                                                                           : NULL;
    if (!missing) return 0;
    json_path(name, "%s.%s", path, missing);
    return err_set_param(e, ERR_INVALID, name, "Missing required parameter: '%s'.", name);
}

/* Names the members that the template does not show. */
static void note_hidden(const struct reader *r, const struct message *m, const char *path) {
    char name[JSON_PATH_BYTES];
    if (!r->chat) return;
    const struct chat_syntax *syntax = chat_template_syntax(r->chat);
    bool tool = strcmp(m->role, "tool") == 0 || strcmp(m->role, "function") == 0;
    bool hides = (tool && !syntax->native) || !chat_template_shows_name(r->chat, m->role);
    json_path(name, "%s.name", path);
    if (m->name && *m->name && hides) ignored_tolerate(r->ignored, name);
    const char *thought = m->reasoning_content ? m->reasoning_content : m->reasoning;
    json_path(name, "%s.%s", path, m->reasoning_content ? "reasoning_content" : "reasoning");
    if (thought && *thought && !shows_thoughts(r)) ignored_tolerate(r->ignored, name);
}

static int read_message(struct reader *r, const cJSON *v, const char *path, cJSON *out, err *e) {
    char prefix[JSON_PATH_BYTES];
    struct message m = {0};
    if (!cJSON_IsObject(v)) return json_wrong_type(path, "an object", v, e);
    json_path(prefix, "%s.", path);
    int rc = json_read(v, message_of(v), prefix, &m, e);
    if (!rc) rc = check_role(&m, path, e);
    if (rc) return rc;
    bool optional =
        (strcmp(m.role, "assistant") == 0 && m.tool_calls) || strcmp(m.role, "function") == 0;
    if (!cJSON_AddStringToObject(out, "role", m.role)) return err_no_memory(e);
    if (m.refusal)
        rc = cJSON_AddStringToObject(out, "content", m.refusal) ? 0 : err_no_memory(e);
    else
        rc = read_content(r, &m, path, optional, out, e);
    if (rc) return rc;
    note_hidden(r, &m, path);
    const char *thought = m.reasoning_content ? m.reasoning_content
                          : m.reasoning       ? m.reasoning
                          : r->n_thoughts     ? str_cstr(&r->thoughts)
                                              : NULL;
    if (r->thoughts.failed) return err_no_memory(e);
    bool ok = !thought || cJSON_AddStringToObject(out, "reasoning_content", thought);
    if (m.name) ok = ok && cJSON_AddStringToObject(out, "name", m.name);
    if (m.tool_call_id) ok = ok && cJSON_AddStringToObject(out, "tool_call_id", m.tool_call_id);
    if (!ok) return err_no_memory(e);
    return read_calls(&m, path, out, e);
}

int chat_messages_read(const cJSON *messages, struct chat_request *q, err *e) {
    if (!cJSON_IsArray(messages)) return json_wrong_type("messages", "an array", messages, e);
    if (!messages->child)
        return err_set_param(e, ERR_INVALID, "messages",
                             "Invalid value for 'messages': the array is empty.");
    cJSON *list = cJSON_CreateArray();
    int rc = list ? 0 : err_no_memory(e);
    int i = 0;
    for (const cJSON *v = messages->child; v && !rc; v = v->next) {
        char path[JSON_PATH_BYTES];
        json_path(path, "messages[%d]", i++);
        cJSON *m = cJSON_CreateObject();
        if (!m || !cJSON_AddItemToArray(list, m)) {
            cJSON_Delete(m);
            rc = err_no_memory(e);
        } else {
            struct reader r = {.chat = q->model ? q->model->chat : NULL, .ignored = q->ignored};
            str_init(&r.thoughts, SIZE_MAX);
            rc = read_message(&r, v, path, m, e);
            str_fini(&r.thoughts);
        }
    }
    if (rc)
        cJSON_Delete(list);
    else
        q->messages = list;
    return rc;
}
