/* normalise.c - brings messages, as clients of the OpenAI API send them, into the shapes that a
 * template takes, and renders them. The template's probes determine what changes; everything else
 * stays as sent, so that the prompt equals the one that transformers renders. */
#include "core/base/str.h"
#include "core/chat/chat.h"
#include "core/chat/chat_int.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX_BYTES = 256 << 20 };

/* Sets a member, or adds it. Takes value; NULL: no memory. */
static int set_member(cJSON *object, const char *name, cJSON *value, err *e) {
    if (!value) return err_no_memory(e);
    bool ok = chat_member(object, name)
                  ? cJSON_ReplaceItemInObjectCaseSensitive(object, name, value)
                  : cJSON_AddItemToObject(object, name, value);
    if (ok) return 0;
    cJSON_Delete(value);
    return err_no_memory(e);
}

/* ---- arguments of calls ---- */

static int arguments_to_object(cJSON *function, const char *text, err *e) {
    err why = {0};
    cJSON *object = NULL;
    if (!text[strspn(text, " \t\r\n")])
        return set_member(function, "arguments", cJSON_CreateObject(), e);
    /* A text that is not an object is what the model once wrote: it stays unchanged. */
    if (!chat_json_parse(text, strlen(text), &object, &why) && cJSON_IsObject(object))
        return set_member(function, "arguments", object, e);
    cJSON_Delete(object);
    return why.code == ERR_NOMEM ? err_no_memory(e) : 0;
}

/* Replaces arguments by the text that a template's tojson gives. */
static int arguments_to_text(cJSON *function, const cJSON *arguments, err *e) {
    chat_template *t = NULL;
    struct chat_output out = {0};
    cJSON *extra = cJSON_CreateObject();
    int rc = cJSON_AddItemReferenceToObject(extra, "x", (cJSON *)arguments) ? 0 : err_no_memory(e);
    if (!rc) rc = chat_template_new("{{ x | tojson }}", "", "", &t, e);
    if (!rc) rc = chat_render(t, &(struct chat_input){.extra = extra}, TEXT_MAX_BYTES, &out, e);
    if (!rc) rc = set_member(function, "arguments", cJSON_CreateString(out.text), e);
    chat_output_fini(&out);
    chat_template_free(t);
    cJSON_Delete(extra);
    return rc;
}

static int normalise_calls(const struct chat_traits *traits, cJSON *message, err *e) {
    cJSON *call, *calls = chat_member(message, "tool_calls");
    if (!cJSON_IsArray(calls)) return 0;
    cJSON_ArrayForEach(call, calls) {
        cJSON *function = chat_member(call, "function");
        if (!cJSON_IsObject(function)) function = call;
        const cJSON *arguments = chat_member(function, "arguments");
        int rc = 0;
        if (traits->arguments_to_object && cJSON_IsString(arguments))
            rc = arguments_to_object(function, arguments->valuestring, e);
        else if (traits->arguments_to_text && cJSON_IsObject(arguments))
            rc = arguments_to_text(function, arguments, e);
        if (rc) return rc;
    }
    return 0;
}

/* ---- names of results ---- */

/* A call with an id and a name. */
struct call {
    const char *id, *name;
    unsigned message, number; /* index of its message; its own, among all calls */
};

/* Calls by id, then in their order. */
struct calls {
    struct call *list; /* (n) */
    size_t n;
};

static int compare_calls(const void *a, const void *b) {
    const struct call *x = a, *y = b;
    int order = strcmp(x->id, y->id);
    return order ? order : (x->number > y->number) - (x->number < y->number);
}

/* Collects all calls; their texts are borrowed. out->list goes to free(), also after a failure. */
static int find_calls(const cJSON *messages, struct calls *out, err *e) {
    const cJSON *m, *call;
    unsigned message = 0;
    size_t capacity = 0;
    cJSON_ArrayForEach(m, messages) {
        cJSON_ArrayForEach(call, chat_member(m, "tool_calls")) {
            const cJSON *id = chat_member(call, "id"),
                        *name = chat_member(chat_member(call, "function"), "name");
            if (!cJSON_IsString(id) || !cJSON_IsString(name)) continue;
            if (out->n == capacity) {
                capacity = capacity ? 2 * capacity : 16;
                struct call *grown = mem_resize(out->list, capacity, sizeof *grown);
                if (!grown) return err_no_memory(e);
                out->list = grown;
            }
            out->list[out->n] = (struct call){.id = id->valuestring,
                                              .name = name->valuestring,
                                              .message = message,
                                              .number = (unsigned)out->n};
            out->n++;
        }
        message++;
    }
    if (out->n) qsort(out->list, out->n, sizeof *out->list, compare_calls);
    return 0;
}

/* Gives a result the name of the latest call with its id in the messages before it. */
static int name_result(const struct calls *calls, cJSON *message, unsigned number, err *e) {
    const cJSON *id = chat_member(message, "tool_call_id");
    size_t low = 0, high = calls->n;
    if (!cJSON_IsString(id) || chat_member(message, "name")) return 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(calls->list[middle].id, id->valuestring);
        if (order < 0 || (order == 0 && calls->list[middle].message < number))
            low = middle + 1;
        else
            high = middle;
    }
    const struct call *found = low ? &calls->list[low - 1] : NULL;
    if (!found || strcmp(found->id, id->valuestring) != 0) return 0;
    return set_member(message, "name", cJSON_CreateString(found->name), e);
}

/* ---- ids ---- */

/* Replaces an id that is not nine letters and digits by nine made of its hash (FNV-1a). */
static int shorten_id(cJSON *object, const char *name, err *e) {
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    enum { LENGTH = 9 };
    const cJSON *id = chat_member(object, name);
    if (!cJSON_IsString(id)) return 0;
    const char *text = id->valuestring;
    size_t n = strlen(text);
    bool fits = n == LENGTH;
    for (size_t i = 0; i < n; i++)
        fits = fits && (text[i] & 0x80) == 0 && isalnum((unsigned char)text[i]);
    if (fits) return 0;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    char made[LENGTH + 1] = "";
    for (size_t i = 0; i < LENGTH; i++, hash /= 36)
        made[i] = digits[hash % 36];
    return set_member(object, name, cJSON_CreateString(made), e);
}

static int shorten_ids(cJSON *message, err *e) {
    cJSON *call, *calls = chat_member(message, "tool_calls");
    int rc = shorten_id(message, "tool_call_id", e);
    for (call = calls ? calls->child : NULL; call && !rc; call = call->next)
        rc = shorten_id(call, "id", e);
    return rc;
}

/* ---- content ---- */

static int join_text_parts(cJSON *message, const cJSON *parts, unsigned number, err *e) {
    const cJSON *part;
    unsigned i = 0;
    str text;
    str_init(&text, TEXT_MAX_BYTES);
    cJSON_ArrayForEach(part, parts) {
        const cJSON *own = cJSON_IsString(part) ? part : chat_member(part, "text");
        const cJSON *type = chat_member(part, "type");
        if (!cJSON_IsString(own)) {
            str_fini(&text);
            return err_set_param(e, ERR_UNSUPPORTED, "messages",
                                 "messages[%u].content[%u] (%.40s) has no text, and the chat "
                                 "template takes only text",
                                 number, i, cJSON_IsString(type) ? type->valuestring : "no type");
        }
        if (i++) str_add_char(&text, '\n');
        str_add(&text, own->valuestring);
    }
    cJSON *joined = text.failed ? NULL : cJSON_CreateString(str_cstr(&text));
    str_fini(&text);
    return set_member(message, "content", joined, e);
}

static int wrap_text(cJSON *message, const char *text, err *e) {
    cJSON *parts = cJSON_CreateArray(), *part = cJSON_CreateObject();
    bool ok = cJSON_AddItemToArray(parts, part);
    if (!ok) cJSON_Delete(part);
    ok = ok && cJSON_AddStringToObject(part, "type", "text") &&
         cJSON_AddStringToObject(part, "text", text);
    if (ok) return set_member(message, "content", parts, e);
    cJSON_Delete(parts);
    return err_no_memory(e);
}

/* Empty content beside calls: null or "", as the template takes it. */
static int normalise_empty(const struct chat_traits *traits, cJSON *message, err *e) {
    const cJSON *content = chat_member(message, "content");
    bool empty = cJSON_IsString(content) && !content->valuestring[0];
    if ((!content && traits->absent_to_null) || (empty && traits->empty_to_null))
        return set_member(message, "content", cJSON_CreateNull(), e);
    if ((!content && traits->absent_to_empty) || (cJSON_IsNull(content) && traits->null_to_empty))
        return set_member(message, "content", cJSON_CreateString(""), e);
    return 0;
}

static enum chat_role parse_role(const char *role) {
    if (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0) return ROLE_SYSTEM;
    if (strcmp(role, "assistant") == 0) return ROLE_ASSISTANT;
    return strcmp(role, "tool") == 0 ? ROLE_TOOL : ROLE_USER;
}

/* ---- system messages that are not first ---- */

static cJSON *content_parts(const cJSON *content) {
    if (cJSON_IsArray(content)) return cJSON_Duplicate(content, true);
    cJSON *list = cJSON_CreateArray(), *part = cJSON_CreateObject();
    const char *text = cJSON_IsString(content) ? content->valuestring : "";
    bool ok = cJSON_AddStringToObject(part, "type", "text") &&
              cJSON_AddStringToObject(part, "text", text) && cJSON_AddItemToArray(list, part);
    if (ok) return list;
    cJSON_Delete(part);
    cJSON_Delete(list);
    return NULL;
}

/* The texts of the messages from first up to end, which have no other content; NULL: no memory. */
static cJSON *join_texts(const cJSON *first, const cJSON *end) {
    str text;
    str_init(&text, TEXT_MAX_BYTES);
    for (const cJSON *m = first; m != end; m = m->next) {
        const char *more = chat_member(m, "content")->valuestring;
        if (text.len && *more) str_add(&text, "\n\n");
        str_add(&text, more);
    }
    cJSON *joined = text.failed ? NULL : cJSON_CreateString(str_cstr(&text));
    str_fini(&text);
    return joined;
}

/* Likewise the parts of any content. */
static cJSON *join_parts(const cJSON *first, const cJSON *end) {
    cJSON *parts = cJSON_CreateArray();
    bool ok = parts != NULL;
    for (const cJSON *m = first; ok && m != end; m = m->next) {
        cJSON *more = content_parts(chat_member(m, "content"));
        ok = more != NULL;
        while (ok && more->child)
            ok = cJSON_AddItemToArray(parts, cJSON_DetachItemViaPointer(more, more->child));
        cJSON_Delete(more);
    }
    if (ok) return parts;
    cJSON_Delete(parts);
    return NULL;
}

/* Sets to's content to those of the messages from first up to end (NULL: all that follow). */
static int join_contents(const cJSON *first, const cJSON *end, cJSON *to, err *e) {
    bool texts = true;
    for (const cJSON *m = first; m != end && texts; m = m->next)
        texts = cJSON_IsString(chat_member(m, "content"));
    return set_member(to, "content", texts ? join_texts(first, end) : join_parts(first, end), e);
}

static bool has_role(const cJSON *message, const char *name) {
    const cJSON *role = chat_member(message, "role");
    return cJSON_IsString(role) && strcmp(role->valuestring, name) == 0;
}

static bool is_system(const cJSON *message) {
    return has_role(message, "system") || has_role(message, "developer");
}

/* Folds the system messages from first up to end, which is none: their texts join the user's turn
 * or the system message next to them; between others they become a turn of the user. */
static int fold_run(cJSON *messages, cJSON *first, cJSON *end, err *e) {
    cJSON *before = first == messages->child ? NULL : first->prev;
    cJSON *last = end ? end->prev : messages->child->prev;
    bool up = has_role(end, "user") && !is_system(before);
    bool down = !up && (is_system(before) || has_role(before, "user"));
    cJSON *to = up ? end : down ? before : last;
    int rc = join_contents(down ? before : first, up ? end->next : end, to, e);
    if (!rc && !up && !down) rc = set_member(to, "role", cJSON_CreateString("user"), e);
    for (cJSON *m = first, *next; !rc && m != end; m = next) {
        next = m->next;
        if (m != to) cJSON_Delete(cJSON_DetachItemViaPointer(messages, m));
    }
    return rc;
}

static int fold_systems(const struct chat_traits *traits, cJSON *messages, err *e) {
    int rc = 0;
    for (cJSON *m = messages->child, *end; m && !rc; m = end) {
        end = m->next;
        if (!is_system(m) || (!traits->refuses_system && m == messages->child)) continue;
        while (is_system(end))
            end = end->next;
        rc = fold_run(messages, m, end, e);
    }
    return rc;
}

/* Context of the changes to all messages. */
struct shaping {
    const struct chat_traits *traits;
    const struct chat_input *in;
    struct calls calls; /* if results need names */
};

static int normalise_message(const struct shaping *s, cJSON *message, unsigned number, err *e) {
    const struct chat_traits *traits = s->traits;
    const cJSON *role = chat_member(message, "role");
    int rc = 0;
    if (!cJSON_IsString(role)) return 0;
    enum chat_role r = parse_role(role->valuestring);
    if (strcmp(role->valuestring, "developer") == 0 &&
        (traits->refuses_developer || (s->in->developer_as_system && traits->copies_developer)))
        rc = set_member(message, "role", cJSON_CreateString("system"), e);
    if (!rc && r == ROLE_ASSISTANT && cJSON_IsArray(chat_member(message, "tool_calls")))
        rc = normalise_empty(traits, message, e);
    if (!rc && r == ROLE_ASSISTANT) rc = normalise_calls(traits, message, e);
    if (!rc && r == ROLE_TOOL && traits->tool_needs_name)
        rc = name_result(&s->calls, message, number, e);
    if (!rc && traits->ids_of_nine) rc = shorten_ids(message, e);
    const cJSON *content = chat_member(message, "content");
    if (!rc && cJSON_IsArray(content) && traits->join_parts[r])
        rc = join_text_parts(message, content, number, e);
    else if (!rc && cJSON_IsString(content) && traits->wrap_text[r])
        rc = wrap_text(message, content->valuestring, e);
    return rc;
}

static int normalise_messages(const chat_template *t, const struct chat_input *in, cJSON *messages,
                              err *e) {
    struct shaping s = {.traits = &t->traits, .in = in};
    int rc = t->traits.tool_needs_name ? find_calls(messages, &s.calls, e) : 0;
    unsigned number = 0;
    for (cJSON *m = messages->child; m && !rc; m = m->next)
        rc = normalise_message(&s, m, number++, e);
    free(s.calls.list);
    if (!rc && (t->traits.refuses_system || t->traits.refuses_late_system))
        rc = fold_systems(&t->traits, messages, e);
    return rc;
}

int chat_prompt(const chat_template *t, const struct chat_input *in, size_t max_bytes,
                struct chat_output *out, err *e) {
    return chat_prompt_within(t, in, max_bytes, JINJA_MAX_STEPS, out, e);
}

int chat_prompt_within(const chat_template *t, const struct chat_input *in, size_t max_bytes,
                       uint64_t max_steps, struct chat_output *out, err *e) {
    static const struct chat_traits nothing;
    struct chat_input own = *in;
    cJSON *copy = NULL;
    int rc = 0;
    memset(out, 0, sizeof *out);
    if (in->tools && in->tools->child && t->tool_variant) t = t->tool_variant;
    if (cJSON_IsArray(in->messages) && memcmp(&t->traits, &nothing, sizeof nothing) != 0) {
        copy = cJSON_Duplicate(in->messages, true);
        if (!copy) return err_no_memory(e);
        rc = normalise_messages(t, in, copy, e);
        own.messages = copy;
    }
    if (!rc) rc = chat_render_lenient(t, &own, max_bytes, max_steps, out, e);
    cJSON_Delete(copy);
    return rc;
}
