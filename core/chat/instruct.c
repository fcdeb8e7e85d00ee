/* instruct.c - tools for templates without tool support: the system message lists them and explains
 * how to call one; earlier calls and their results become plain messages in the same form. For
 * templates that show tools alone: earlier calls as the model writes them. */
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/chat/chat_int.h"
#include "core/chat/syntax.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX_BYTES = 256 << 20 };

static const char how_to_call[] = "\n</tools>\n\nTo call a function, answer with its name and its "
                                  "arguments in this form, once for "
                                  "each call:\n<tool_call>\n{\"name\": \"NAME\", \"arguments\": "
                                  "{\"ARGUMENT\": VALUE}}\n</tool_call>";

static bool has_role(const cJSON *message, const char *role) {
    const cJSON *own = chat_member(message, "role");
    return cJSON_IsString(own) && strcmp(own->valuestring, role) == 0;
}

static void add_json(str *out, const cJSON *value) {
    char *text = cJSON_PrintUnformatted(value);
    if (text)
        str_add(out, text);
    else
        out->failed = true;
    cJSON_free(text);
}

/* Adds the texts of a content, joined by newlines. */
static void add_content_text(str *out, const cJSON *content) {
    const cJSON *part;
    bool more = false;
    if (cJSON_IsString(content)) str_add(out, content->valuestring);
    if (!cJSON_IsArray(content)) return;
    cJSON_ArrayForEach(part, content) {
        const cJSON *text = chat_member(part, "text");
        if (more) str_add_char(out, '\n');
        if (cJSON_IsString(text)) str_add(out, text->valuestring);
        more = true;
    }
}

/* Makes text the message's content and frees text. */
static int set_content(cJSON *message, str *text, err *e) {
    cJSON *value = text->failed ? NULL : cJSON_CreateString(str_cstr(text));
    str_fini(text);
    cJSON_DeleteItemFromObjectCaseSensitive(message, "content");
    if (value && cJSON_AddItemToObject(message, "content", value)) return 0;
    cJSON_Delete(value);
    return err_no_memory(e);
}

static int set_role(cJSON *message, const char *role, err *e) {
    cJSON *value = cJSON_CreateString(role);
    if (value && cJSON_ReplaceItemInObjectCaseSensitive(message, "role", value)) return 0;
    cJSON_Delete(value);
    return err_no_memory(e);
}

static void add_call_text(str *out, const cJSON *call) {
    const cJSON *function = chat_member(call, "function");
    const cJSON *name = chat_member(function, "name"),
                *arguments = chat_member(function, "arguments");
    if (out->len) str_add_char(out, '\n');
    str_add(out, "<tool_call>\n{\"name\": ");
    add_json(out, name);
    str_add(out, ", \"arguments\": ");
    if (cJSON_IsString(arguments))
        str_add(out, *arguments->valuestring ? arguments->valuestring : "{}");
    else
        add_json(out, arguments);
    str_add(out, "}\n</tool_call>");
}

/* ---- calls as in Python ---- */

/* May it be the name of a keyword argument? */
static bool is_keyword(const char *name) {
    if (!*name || (*name >= '0' && *name <= '9')) return false;
    while (chat_is_name_char(*name) && *name != '-')
        name++;
    return !*name;
}

/* Adds a value as a literal of Python. JSON's strings are also Python's, since characters beyond
 * ASCII are not escaped. */
static void add_literal(str *out, const cJSON *value) {
    const bool object = cJSON_IsObject(value);
    if (cJSON_IsBool(value)) {
        str_add(out, cJSON_IsTrue(value) ? "True" : "False");
    } else if (cJSON_IsNull(value)) {
        str_add(out, "None");
    } else if (cJSON_IsNumber(value) && value->valuestring) {
        str_add(out, value->valuestring);
    } else if (object || cJSON_IsArray(value)) {
        str_add_char(out, object ? '{' : '[');
        for (const cJSON *v = value->child; v; v = v->next) {
            if (v != value->child) str_add(out, ", ");
            if (object) {
                const cJSON key = {.type = cJSON_String, .valuestring = v->string};
                add_json(out, &key);
                str_add(out, ": ");
            }
            add_literal(out, v);
        }
        str_add_char(out, object ? '}' : ']');
    } else {
        add_json(out, value);
    }
}

/* Adds a call's arguments, an object: as keywords, or as itself if a name cannot be one. */
static void add_keywords(str *out, const cJSON *arguments) {
    bool fits = true;
    for (const cJSON *v = arguments->child; v; v = v->next)
        fits = fits && is_keyword(v->string);
    if (!fits) {
        add_literal(out, arguments);
        return;
    }
    for (const cJSON *v = arguments->child; v; v = v->next) {
        if (v != arguments->child) str_add(out, ", ");
        str_add(out, v->string);
        str_add_char(out, '=');
        add_literal(out, v);
    }
}

static void add_python_call(str *out, const struct chat_syntax *s, const cJSON *call) {
    const cJSON *function = chat_member(call, "function");
    const cJSON *name = chat_member(function, "name"),
                *arguments = chat_member(function, "arguments");
    cJSON *object = NULL;
    if (cJSON_IsString(name)) str_add(out, name->valuestring);
    str_add(out, s->arguments_open);
    if (cJSON_IsObject(arguments)) {
        add_keywords(out, arguments);
    } else if (cJSON_IsString(arguments)) {
        const char *text = arguments->valuestring;
        err why = {0};
        int rc = chat_json_parse(text, strlen(text), &object, &why);
        if (!rc && cJSON_IsObject(object))
            add_keywords(out, object);
        else /* a text that is not an object is what the model once wrote */
            str_add(out, text);
        if (rc == ERR_NOMEM) out->failed = true;
    }
    str_add(out, s->call_close);
    cJSON_Delete(object);
}

/* Adds a mark without the spaces that stand for white space which models may write. */
static void add_exact_mark(str *out, const char *mark) {
    for (; *mark; mark++)
        if (*mark != ' ') str_add_char(out, *mark);
}

static void add_python_calls(str *out, const struct chat_syntax *s, const cJSON *calls) {
    add_exact_mark(out, s->section_open);
    for (const cJSON *call = calls->child; call; call = call->next) {
        if (call != calls->child) str_add(out, s->between);
        add_python_call(out, s, call);
    }
    add_exact_mark(out, s->section_close);
}

/* ---- messages ---- */

/* Makes a message's calls the end of its text. s: their syntax, NULL: chat_instruct()'s. */
static int write_calls(cJSON *message, const struct chat_syntax *s, err *e) {
    const cJSON *call;
    str text;
    str_init(&text, TEXT_MAX_BYTES);
    add_content_text(&text, chat_member(message, "content"));
    const cJSON *calls = chat_member(message, "tool_calls");
    if (s && calls->child) add_python_calls(&text, s, calls);
    for (call = s ? NULL : calls->child; call; call = call->next)
        add_call_text(&text, call);
    cJSON_DeleteItemFromObjectCaseSensitive(message, "tool_calls");
    return set_content(message, &text, e);
}

/* A result becomes a user's message. before: the message made of the results just before it; this
 * one is merged into it, so that user and assistant keep alternating. */
static void write_result(const cJSON *message, const cJSON *before, str *text) {
    str_init(text, TEXT_MAX_BYTES);
    if (before) {
        add_content_text(text, chat_member(before, "content"));
        str_add_char(text, '\n');
    }
    str_add(text, "<tool_response>\n");
    add_content_text(text, chat_member(message, "content"));
    str_add(text, "\n</tool_response>");
}

static int rewrite_messages(cJSON *messages, err *e) {
    cJSON *before = NULL, *next;
    int rc = 0;
    for (cJSON *m = messages->child; m && !rc; m = next) {
        str text;
        next = m->next;
        if (has_role(m, "tool") || has_role(m, "function")) {
            write_result(m, before, &text);
            cJSON *into = before ? before : m;
            rc = set_content(into, &text, e);
            if (!rc) rc = set_role(into, "user", e);
            cJSON_DeleteItemFromObjectCaseSensitive(into, "tool_call_id");
            cJSON_DeleteItemFromObjectCaseSensitive(into, "name");
            if (before) cJSON_Delete(cJSON_DetachItemViaPointer(messages, m));
            before = into;
            continue;
        }
        if (cJSON_IsArray(chat_member(m, "tool_calls"))) rc = write_calls(m, NULL, e);
        before = NULL;
    }
    return rc;
}

int chat_instruct(const chat_template *t, cJSON *messages, const cJSON *tools, err *e) {
    int rc = rewrite_messages(messages, e);
    const cJSON *tool;
    if (rc || !tools || !tools->child) return rc;
    bool system = chat_template_syntax(t)->takes_system;
    cJSON *first = messages->child;
    if (system && !has_role(first, "system") && !has_role(first, "developer")) {
        first = cJSON_CreateObject();
        bool ok = first && cJSON_AddStringToObject(first, "role", "system") &&
                  cJSON_AddStringToObject(first, "content", "") &&
                  cJSON_InsertItemInArray(messages, 0, first);
        if (!ok) cJSON_Delete(first);
        if (!ok) return err_no_memory(e);
    }
    str text;
    str_init(&text, TEXT_MAX_BYTES);
    if (system) add_content_text(&text, chat_member(first, "content"));
    if (text.len) str_add(&text, "\n\n");
    str_add(&text, "You may call these functions:\n<tools>");
    cJSON_ArrayForEach(tool, tools) {
        str_add_char(&text, '\n');
        add_json(&text, chat_member(tool, "function"));
    }
    str_add(&text, how_to_call);
    if (!system) {
        str_add(&text, "\n\n");
        add_content_text(&text, chat_member(first, "content"));
    }
    return set_content(first, &text, e);
}

int chat_write_calls(const struct chat_syntax *s, cJSON *messages, err *e) {
    int rc = 0;
    for (cJSON *m = messages->child; m && !rc; m = m->next)
        if (cJSON_IsArray(chat_member(m, "tool_calls"))) rc = write_calls(m, s, e);
    return rc;
}
