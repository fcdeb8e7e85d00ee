/* normalise.c - brings messages, as clients of the OpenAI API send them, into the shapes that a
 * template takes, and renders them. What has to change is known from the template's probes; all
 * else stays as it came, so that the prompt is the one that transformers would make. */
#include "core/base/str.h"
#include "core/chat/chat.h"
#include "core/chat/chat_int.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX_BYTES = 256 << 20 };

static int no_memory(err *e) {
    return err_set(e, ERR_NOMEM, "no memory for the messages");
}

static cJSON *member(const cJSON *object, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

/* Puts value (owned; NULL: no memory) in the place of the member, or behind the others. */
static int put(cJSON *object, const char *name, cJSON *value, err *e) {
    if (!value) return no_memory(e);
    bool ok = member(object, name) ? cJSON_ReplaceItemInObjectCaseSensitive(object, name, value)
                                   : cJSON_AddItemToObject(object, name, value);
    if (ok) return 0;
    cJSON_Delete(value);
    return no_memory(e);
}

/* ---- arguments of calls ---- */

static int arguments_to_object(cJSON *function, const char *text, err *e) {
    err why;
    cJSON *object = NULL;
    if (!text[strspn(text, " \t\r\n")]) return put(function, "arguments", cJSON_CreateObject(), e);
    /* A text that is no object is what the model once wrote: it is shown as it is. */
    if (!chat_json_parse(text, strlen(text), &object, &why) && cJSON_IsObject(object))
        return put(function, "arguments", object, e);
    cJSON_Delete(object);
    return why.code == ERR_NOMEM ? no_memory(e) : 0;
}

/* The text that a template's own tojson gives. */
static int arguments_to_text(cJSON *function, const cJSON *arguments, err *e) {
    chat_template *t = NULL;
    struct chat_output out = {0};
    cJSON *extra = cJSON_CreateObject();
    int rc = cJSON_AddItemReferenceToObject(extra, "x", (cJSON *)arguments) ? 0 : no_memory(e);
    if (!rc) rc = chat_template_new("{{ x | tojson }}", "", "", &t, e);
    if (!rc) rc = chat_render(t, &(struct chat_input){.extra = extra}, TEXT_MAX_BYTES, &out, e);
    if (!rc) rc = put(function, "arguments", cJSON_CreateString(out.text), e);
    chat_output_fini(&out);
    chat_template_free(t);
    cJSON_Delete(extra);
    return rc;
}

static int normalise_calls(const struct chat_traits *traits, cJSON *message, err *e) {
    cJSON *call, *calls = member(message, "tool_calls");
    if (!cJSON_IsArray(calls)) return 0;
    cJSON_ArrayForEach(call, calls) {
        cJSON *function = member(call, "function");
        if (!cJSON_IsObject(function)) function = call;
        const cJSON *arguments = member(function, "arguments");
        int rc = 0;
        if (traits->arguments_to_object && cJSON_IsString(arguments))
            rc = arguments_to_object(function, arguments->valuestring, e);
        else if (traits->arguments_to_text && cJSON_IsObject(arguments))
            rc = arguments_to_text(function, arguments, e);
        if (rc) return rc;
    }
    return 0;
}

/* A result takes the name of the latest call before it with its id. */
static int name_result(const cJSON *messages, cJSON *message, err *e) {
    const cJSON *id = member(message, "tool_call_id"), *m, *call;
    const char *name = NULL;
    if (!cJSON_IsString(id) || member(message, "name")) return 0;
    for (m = messages->child; m && m != message; m = m->next)
        cJSON_ArrayForEach(call, member(m, "tool_calls")) {
            const cJSON *own = member(call, "id");
            const cJSON *called = member(member(call, "function"), "name");
            if (cJSON_IsString(own) && cJSON_IsString(called) &&
                strcmp(own->valuestring, id->valuestring) == 0)
                name = called->valuestring;
        }
    return name ? put(message, "name", cJSON_CreateString(name), e) : 0;
}

/* ---- content ---- */

static int join_parts(cJSON *message, const cJSON *parts, unsigned number, err *e) {
    const cJSON *part;
    unsigned i = 0;
    str text;
    str_init(&text, TEXT_MAX_BYTES);
    cJSON_ArrayForEach(part, parts) {
        const cJSON *own = cJSON_IsString(part) ? part : member(part, "text");
        const cJSON *type = member(part, "type");
        if (!cJSON_IsString(own)) {
            str_fini(&text);
            return err_set_param(e, ERR_UNSUPPORTED, "messages",
                                 "messages[%u].content[%u] (%.40s) has no text, and the chat "
                                 "template shows nothing else",
                                 number, i, cJSON_IsString(type) ? type->valuestring : "no type");
        }
        if (i++) str_add_char(&text, '\n');
        str_add(&text, own->valuestring);
    }
    cJSON *joined = text.failed ? NULL : cJSON_CreateString(str_cstr(&text));
    str_fini(&text);
    return put(message, "content", joined, e);
}

static int wrap_text(cJSON *message, const char *text, err *e) {
    cJSON *parts = cJSON_CreateArray(), *part = cJSON_CreateObject();
    bool ok = cJSON_AddItemToArray(parts, part);
    if (!ok) cJSON_Delete(part);
    ok = ok && cJSON_AddStringToObject(part, "type", "text") &&
         cJSON_AddStringToObject(part, "text", text);
    if (ok) return put(message, "content", parts, e);
    cJSON_Delete(parts);
    return no_memory(e);
}

/* content beside calls: how the template likes nothing. */
static int normalise_nothing(const struct chat_traits *traits, cJSON *message, err *e) {
    const cJSON *content = member(message, "content");
    bool empty = cJSON_IsString(content) && !content->valuestring[0];
    if ((!content && traits->absent_to_null) || (empty && traits->empty_to_null))
        return put(message, "content", cJSON_CreateNull(), e);
    if ((!content && traits->absent_to_empty) || (cJSON_IsNull(content) && traits->null_to_empty))
        return put(message, "content", cJSON_CreateString(""), e);
    return 0;
}

static enum jrole role_of(const char *role) {
    if (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0) return JROLE_SYSTEM;
    if (strcmp(role, "assistant") == 0) return JROLE_ASSISTANT;
    return strcmp(role, "tool") == 0 ? JROLE_TOOL : JROLE_USER;
}

static int normalise_message(const struct chat_traits *traits, const struct chat_input *in,
                             const cJSON *messages, cJSON *message, unsigned number, err *e) {
    const cJSON *role = member(message, "role");
    int rc = 0;
    if (!cJSON_IsString(role)) return 0;
    enum jrole r = role_of(role->valuestring);
    if (strcmp(role->valuestring, "developer") == 0 &&
        (traits->refuses_developer || (in->developer_as_system && traits->copies_developer)))
        rc = put(message, "role", cJSON_CreateString("system"), e);
    if (!rc && r == JROLE_ASSISTANT && cJSON_IsArray(member(message, "tool_calls")))
        rc = normalise_nothing(traits, message, e);
    if (!rc && r == JROLE_ASSISTANT) rc = normalise_calls(traits, message, e);
    if (!rc && r == JROLE_TOOL && traits->tool_needs_name) rc = name_result(messages, message, e);
    const cJSON *content = member(message, "content");
    if (!rc && cJSON_IsArray(content) && traits->join_parts[r])
        rc = join_parts(message, content, number, e);
    else if (!rc && cJSON_IsString(content) && traits->wrap_text[r])
        rc = wrap_text(message, content->valuestring, e);
    return rc;
}

int chat_prompt(const chat_template *t, const struct chat_input *in, size_t max_bytes,
                struct chat_output *out, err *e) {
    static const struct chat_traits nothing;
    struct chat_input own = *in;
    cJSON *copy = NULL, *m;
    unsigned number = 0;
    int rc = 0;
    memset(out, 0, sizeof *out);
    if (in->tools && in->tools->child && t->tool_variant) t = t->tool_variant;
    if (cJSON_IsArray(in->messages) && memcmp(&t->traits, &nothing, sizeof nothing) != 0) {
        copy = cJSON_Duplicate(in->messages, true);
        if (!copy) return no_memory(e);
        cJSON_ArrayForEach(m, copy) {
            rc = normalise_message(&t->traits, in, copy, m, number++, e);
            if (rc) break;
        }
        own.messages = copy;
    }
    if (!rc) rc = jrender_lenient(t, &own, max_bytes, J_MAX_STEPS, out, e);
    cJSON_Delete(copy);
    return rc;
}
