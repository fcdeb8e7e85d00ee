/* anthropic/blocks.c - messages of Anthropic's Messages API, made of content blocks, as messages of
 * a chat request. Pure; pool threads. */
#include "api/anthropic/messages.h"
#include "api/http/ignored.h"

#include <stdio.h>
#include <string.h>

enum { NUL = JSON_NULLABLE };

/* ---- tables ---- */

struct block {
    const char *type, *text, *id, *name, *tool_use_id, *tool_name, *thinking, *title, *context;
    const cJSON *content, *input, *source;
    bool is_error;
};
#define IN(member) .offset = offsetof(struct block, member)

static const struct json_table *block_of(const cJSON *block);
static const struct json_table *assistant_block_of(const cJSON *block);
static const struct json_table block_table, inner_table, source_table;

/* The members of each type of block, and those that all may have. */
static const struct json_field any_fields[] = {
    {.name = "type",
     .type = JSON_ENUM,
     .flags = JSON_REQUIRED,
     IN(type),
     .words = "text|document|search_result|tool_use|tool_result|tool_reference|thinking|compaction",
     .help = "Images are not supported. Blocks of tools that a server runs, thinking that only its "
             "author can read, and unknown blocks of the assistant are ignored."},
    MESSAGES_CACHE_CONTROL,
    MESSAGES_ADVISORY("citations", NULL, "the model does not see them"),
};
static const struct json_field text_fields[] = {
    {.name = "text", .type = JSON_STRING, .flags = JSON_WITH_NUL, IN(text)},
};
static const struct json_field use_fields[] = {
    {.name = "id", .type = JSON_STRING, IN(id), .min = 1, .help = "Only for tool_use."},
    {.name = "name", .type = JSON_STRING, IN(name), .min = 1, .help = "Only for tool_use."},
    {.name = "input",
     .type = JSON_OBJECT,
     IN(input),
     .initial = "{}",
     .help = "Only for tool_use."},
};
static const struct json_field result_fields[] = {
    {.name = "tool_use_id",
     .type = JSON_STRING,
     IN(tool_use_id),
     .min = 1,
     .help = "Only for tool_result."},
    {.name = "is_error",
     .type = JSON_BOOL,
     .flags = NUL,
     IN(is_error),
     .help = "Only for tool_result: marks its text as an error."},
};
static const struct json_field content_fields[] = {
    {.name = "content",
     .type = JSON_VALUE,
     .flags = NUL | JSON_WITH_NUL | JSON_OR_STRING | JSON_OR_ARRAY,
     IN(content),
     .table = &inner_table,
     .help = "In tool_result, search_result and compaction: text or blocks of text; in "
             "tool_result also documents and search results."},
};
static const struct json_field source_fields[] = {
    {.name = "source",
     .type = JSON_VALUE,
     .flags = JSON_WITH_NUL | JSON_OR_STRING | JSON_OR_OBJECT,
     IN(source),
     .table = &source_table,
     .help = "An object in document, a string in search_result."},
    {.name = "title",
     .type = JSON_STRING,
     .flags = NUL | JSON_WITH_NUL,
     IN(title),
     .help = "Only for document and search_result."},
    {.name = "context",
     .type = JSON_STRING,
     .flags = NUL | JSON_WITH_NUL,
     IN(context),
     .help = "Only for document."},
};
static const struct json_field reference_fields[] = {
    {.name = "tool_name",
     .type = JSON_STRING,
     IN(tool_name),
     .min = 1,
     .help = "Only for tool_reference, which the model sees as a text."},
};
static const struct json_field thinking_fields[] = {
    {.name = "thinking", .type = JSON_STRING, .flags = JSON_WITH_NUL, IN(thinking)},
    MESSAGES_ADVISORY("signature", NULL, "thinking is accepted without verification"),
};
static const struct json_table any_block = JSON_TABLE(any_fields, NULL),
                               /* of one type */
    text_block = JSON_TABLE(text_fields, &any_block),
                               use_block = JSON_TABLE(use_fields, &any_block),
                               content_block = JSON_TABLE(content_fields, &any_block),
                               source_block = JSON_TABLE(source_fields, &content_block),
                               result_block = JSON_TABLE(result_fields, &content_block),
                               thinking_block = JSON_TABLE(thinking_fields, &any_block),
                               reference_block = JSON_TABLE(reference_fields, &any_block),
                               /* of any type */
    reference_rows = JSON_TABLE(reference_fields, &source_block),
                               result_rows = JSON_TABLE(result_fields, &reference_rows),
                               use_rows = JSON_TABLE(use_fields, &result_rows),
                               all_rows = JSON_TABLE(text_fields, &use_rows);

#define BLOCKS(CHOOSE)                                                                             \
    { thinking_fields, sizeof thinking_fields / sizeof *thinking_fields, &all_rows, CHOOSE }
static const struct json_table block_table = BLOCKS(block_of);
static const struct json_table assistant_table = BLOCKS(assistant_block_of);
/* In a tool's result and in the system prompt; what is there comes without blocks of its own. */
static const struct json_table inner_table = {text_fields, sizeof text_fields / sizeof *text_fields,
                                              &any_block, block_of};
const struct json_table messages_system_table = {
    text_fields, sizeof text_fields / sizeof *text_fields, &any_block, block_of};

struct source {
    const char *type, *data, *file_id;
    const cJSON *content;
};
static const struct json_field source_member_fields[] = {
    {.name = "type",
     .type = JSON_ENUM,
     .flags = JSON_REQUIRED,
     .offset = offsetof(struct source, type),
     .words = "text|content|file",
     .help = "The server reads neither base64 nor url."},
    {.name = "data",
     .type = JSON_STRING,
     .flags = JSON_WITH_NUL,
     .offset = offsetof(struct source, data),
     .help = "Only for type text."},
    {.name = "content",
     .type = JSON_VALUE,
     .flags = JSON_WITH_NUL | JSON_OR_STRING | JSON_OR_ARRAY,
     .offset = offsetof(struct source, content),
     .table = &messages_system_table,
     .help = "Only for type content: text or blocks of text."},
    {.name = "file_id",
     .type = JSON_STRING,
     .offset = offsetof(struct source, file_id),
     .min = 1,
     .help = "Only for type file: a text in UTF-8 that was uploaded to /v1/files."},
    MESSAGES_ADVISORY("media_type", "text/plain", "the model reads the data as text"),
};
static const struct json_table source_table = JSON_TABLE(source_member_fields, NULL);

static const char *type_of(const cJSON *block) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(block, "type"));
}

/* Blocks that the model cannot use: echoes of tools that another server ran, encrypted thoughts. */
static bool is_foreign(const cJSON *block) {
    const char *type = type_of(block);
    size_t n = type ? strlen(type) : 0, k = strlen("_tool_result");
    return type && (strcmp(type, "redacted_thinking") == 0 ||
                    strcmp(type, "server_tool_use") == 0 || strcmp(type, "mcp_tool_use") == 0 ||
                    (n > k && strcmp(type + n - k, "_tool_result") == 0));
}

/* NULL: a type that no table has. */
static const struct json_table *table_of_type(const char *type) {
    static const struct {
        const char *type;
        const struct json_table *table;
    } rows[] = {{"text", &text_block},
                {"image", &all_rows},
                {"document", &source_block},
                {"search_result", &source_block},
                {"tool_use", &use_block},
                {"tool_result", &result_block},
                {"thinking", &thinking_block},
                {"compaction", &content_block},
                {"tool_reference", &reference_block}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(type, rows[i].type) == 0) return rows[i].table;
    return NULL;
}

static const struct json_table *block_of(const cJSON *block) {
    if (is_foreign(block)) return NULL;
    const char *type = type_of(block);
    const struct json_table *table = type ? table_of_type(type) : NULL;
    return table ? table : &all_rows; /* its reader refuses the type */
}

/* What an assistant said is an echo: an unknown block in it belongs to another server. */
static const struct json_table *assistant_block_of(const cJSON *block) {
    const char *type = type_of(block);
    return type && (is_foreign(block) || !table_of_type(type)) ? NULL : block_of(block);
}

struct message {
    const char *role;
    const cJSON *content;
};
#define TURN_FIELDS(BLOCKS_TABLE)                                                                  \
    {                                                                                              \
        {.name = "role",                                                                           \
         .type = JSON_ENUM,                                                                        \
         .flags = JSON_REQUIRED,                                                                   \
         .offset = offsetof(struct message, role),                                                 \
         .words = "user|assistant|system",                                                         \
         .help = "A final message with role assistant is continued."},                             \
            {.name = "content",                                                                    \
             .type = JSON_VALUE,                                                                   \
             .flags = JSON_REQUIRED | JSON_WITH_NUL | JSON_OR_STRING | JSON_OR_ARRAY,              \
             .offset = offsetof(struct message, content),                                          \
             .table = &BLOCKS_TABLE},                                                              \
    }
static const struct json_field turn_fields[] = TURN_FIELDS(block_table);
static const struct json_field assistant_fields[] = TURN_FIELDS(assistant_table);
static const struct json_table user_turn = JSON_TABLE(turn_fields, NULL),
                               assistant_turn = JSON_TABLE(assistant_fields, NULL);

static const struct json_table *turn_of(const cJSON *turn) {
    const char *role = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(turn, "role"));
    return role && strcmp(role, "assistant") == 0 ? &assistant_turn : &user_turn;
}
const struct json_table messages_turn_table = {
    turn_fields, sizeof turn_fields / sizeof *turn_fields, NULL, turn_of};

/* ---- one block ---- */

static int fail_missing(const char *path, const char *name, err *e) {
    char full[JSON_PATH_BYTES];
    json_path(full, "%s.%s", path, name);
    return err_set_param(e, ERR_INVALID, full, "Missing required parameter: '%s'.", full);
}

static int fail_misplaced(const char *path, const char *type, err *e) {
    return err_set_param(e, ERR_INVALID, path,
                         "Invalid value for '%s': a block of type '%s' is not allowed here.", path,
                         type);
}

static bool is_type(const struct block *b, const char *type) {
    return strcmp(b->type, type) == 0;
}

/* Content that the model cannot see would change the answer. */
static int refuse_media(const cJSON *v, const char *path, err *e) {
    const char *type = type_of(v);
    const char *from = type_of(cJSON_GetObjectItemCaseSensitive(v, "source"));
    if (type && strcmp(type, "image") == 0)
        return err_set_param(e, ERR_UNSUPPORTED, path,
                             "Unsupported value for '%s': the model reads text only. Leave the "
                             "image out, or describe it in a text block.",
                             path);
    if (!type || strcmp(type, "document") != 0 || !from || strcmp(from, "text") == 0 ||
        strcmp(from, "content") == 0 || strcmp(from, "file") == 0)
        return 0;
    return err_set_param(e, ERR_UNSUPPORTED, path,
                         "Unsupported value for '%s': the server reads no documents of source type "
                         "'%.40s'. Send the document's text, with source type 'text'.",
                         path, from);
}

static int read_block(const cJSON *v, const char *path, struct block *b, err *e) {
    char prefix[JSON_PATH_BYTES];
    *b = (struct block){0};
    int rc = refuse_media(v, path, e);
    if (rc) return rc;
    json_path(prefix, "%s.", path);
    rc = json_read(v, &block_table, prefix, b, e);
    if (rc) return rc;
    if (is_type(b, "text") && !b->text) return fail_missing(path, "text", e);
    if (is_type(b, "thinking") && !b->thinking) return fail_missing(path, "thinking", e);
    if (is_type(b, "tool_result") && !b->tool_use_id) return fail_missing(path, "tool_use_id", e);
    if (is_type(b, "document") && !cJSON_IsObject(b->source))
        return fail_missing(path, "source", e);
    if (is_type(b, "search_result") && !b->content) return fail_missing(path, "content", e);
    if (is_type(b, "tool_reference") && !b->tool_name) return fail_missing(path, "tool_name", e);
    if (!is_type(b, "tool_use")) return 0;
    if (!b->id) return fail_missing(path, "id", e);
    return b->name ? 0 : fail_missing(path, "name", e);
}

/* ---- blocks as text ---- */

/* v: NULL, a text, or text blocks, which are joined. */
static int add_texts(const cJSON *v, const char *path, str *out, err *e) {
    if (cJSON_IsString(v)) str_add(out, v->valuestring);
    int i = 0;
    for (const cJSON *item = cJSON_IsArray(v) ? v->child : NULL; item; item = item->next) {
        char name[JSON_PATH_BYTES];
        struct block b;
        json_path(name, "%s[%d]", path, i++);
        if (is_foreign(item)) continue;
        int rc = read_block(item, name, &b, e);
        if (rc) return rc;
        if (!is_type(&b, "text")) return fail_misplaced(name, b.type, e);
        str_add(out, b.text);
    }
    return 0;
}

static void add_element(str *out, const char *name, const char *text) {
    if (text && *text) str_addf(out, "<%s>%s</%s>\n", name, text, name);
}

static int add_file(const struct messages_fields *f, const char *id, const char *path, str *out,
                    err *e) {
    char name[JSON_PATH_BYTES];
    if (!id) return fail_missing(path, "file_id", e);
    json_path(name, "%s.file_id", path);
    int rc = f->add_file ? f->add_file(f->files, id, out, e)
                         : err_set(e, ERR_UNSUPPORTED, "There are no files.");
    if (rc && e) snprintf(e->param, sizeof e->param, "%s", name);
    return rc;
}

static int add_document(const struct messages_fields *f, const struct block *b, const char *path,
                        str *out, err *e) {
    char name[JSON_PATH_BYTES];
    struct source s = {0};
    json_path(name, "%s.source.", path);
    int rc = json_read(b->source, &source_table, name, &s, e);
    if (rc) return rc;
    bool plain = *s.type == 't', file = *s.type == 'f';
    json_path(name, "%s.source", path);
    if (plain && !s.data) return fail_missing(name, "data", e);
    if (!plain && !file && !s.content) return fail_missing(name, "content", e);
    str_add(out, "<document>\n");
    add_element(out, "title", b->title);
    add_element(out, "context", b->context);
    if (plain) {
        str_add(out, s.data);
    } else if (file) {
        rc = add_file(f, s.file_id, name, out, e);
    } else {
        json_path(name, "%s.source.content", path);
        rc = add_texts(s.content, name, out, e);
    }
    str_add(out, "\n</document>\n");
    return rc;
}

static int add_search_result(const struct block *b, const char *path, str *out, err *e) {
    char name[JSON_PATH_BYTES];
    json_path(name, "%s.content", path);
    str_add(out, "<search_result>\n");
    add_element(out, "title", b->title);
    add_element(out, "source", cJSON_GetStringValue(b->source));
    int rc = add_texts(b->content, name, out, e);
    str_add(out, "\n</search_result>\n");
    return rc;
}

static cJSON *add_message(cJSON *list, const char *role) {
    cJSON *m = cJSON_CreateObject();
    if (!m || !cJSON_AddStringToObject(m, "role", role) || !cJSON_AddItemToArray(list, m)) {
        cJSON_Delete(m);
        return NULL;
    }
    return m;
}

static bool add_part(cJSON *parts, const char *text) {
    cJSON *part = cJSON_CreateObject();
    bool ok = part && cJSON_AddItemToArray(parts, part);
    if (!ok) cJSON_Delete(part);
    return ok && cJSON_AddStringToObject(part, "type", "text") &&
           cJSON_AddStringToObject(part, "text", text);
}

/* A part with what the model reads of a block of a user or a tool. */
static int add_shown(const struct messages_fields *f, cJSON *parts, const struct block *b,
                     const char *path, err *e) {
    str text;
    int rc = 0;
    if (is_type(b, "text")) return add_part(parts, b->text) ? 0 : err_no_memory(e);
    str_init(&text, SIZE_MAX);
    if (is_type(b, "document"))
        rc = add_document(f, b, path, &text, e);
    else if (is_type(b, "search_result"))
        rc = add_search_result(b, path, &text, e);
    else if (is_type(b, "tool_reference"))
        add_element(&text, "tool_reference", b->tool_name);
    else
        rc = fail_misplaced(path, b->type, e);
    if (!rc && (text.failed || !add_part(parts, str_cstr(&text)))) rc = err_no_memory(e);
    str_fini(&text);
    return rc;
}

/* ---- messages ---- */

/* Claude Code begins its system prompt with a line for the bills of its vendor's server. Its hashes
 * change from session to session, in some versions with every request, so that no cached prefix
 * would be found again. Returns the line's length with its end; 0: text does not begin with it. */
static size_t billing_bytes(const char *text) {
    static const char begin[] = "x-anthropic-billing-header:";
    if (strncmp(text, begin, sizeof begin - 1) != 0) return 0;
    size_t n = strcspn(text, "\n");
    return n + (text[n] == '\n');
}

/* v: a text or text blocks. Nothing is added if there is nothing. */
static int add_system(struct chat_request *q, const cJSON *v, const char *path, err *e) {
    cJSON *m = NULL, *parts = NULL;
    int i = 0;
    if (cJSON_IsString(v)) {
        size_t skip = billing_bytes(v->valuestring);
        if (skip) ignored_tolerate(q->ignored, path);
        if (skip && !v->valuestring[skip]) return 0;
        m = add_message(q->messages, "system");
        bool ok = m && cJSON_AddStringToObject(m, "content", v->valuestring + skip);
        return ok ? 0 : err_no_memory(e);
    }
    for (const cJSON *item = v->child; item; item = item->next) {
        char name[JSON_PATH_BYTES];
        struct block b;
        json_path(name, "%s[%d]", path, i++);
        if (is_foreign(item)) continue;
        int rc = read_block(item, name, &b, e);
        if (rc) return rc;
        if (!is_type(&b, "text")) return fail_misplaced(name, b.type, e);
        size_t skip = billing_bytes(b.text);
        if (skip) ignored_tolerate(q->ignored, name);
        if (skip && !b.text[skip]) continue;
        if (!m) m = add_message(q->messages, "system");
        if (m && !parts) parts = cJSON_AddArrayToObject(m, "content");
        if (!parts || !add_part(parts, b.text + skip)) return err_no_memory(e);
    }
    return 0;
}

static int add_result(const struct messages_fields *f, cJSON *list, const struct block *b,
                      const char *path, err *e) {
    char name[JSON_PATH_BYTES];
    const char *prefix = b->is_error ? "Error: " : "";
    cJSON *m = add_message(list, "tool");
    if (!m || !cJSON_AddStringToObject(m, "tool_call_id", b->tool_use_id)) return err_no_memory(e);
    if (!cJSON_IsArray(b->content)) {
        str text;
        str_init(&text, SIZE_MAX);
        str_add(&text, prefix);
        if (b->content) str_add(&text, b->content->valuestring);
        bool ok = !text.failed && cJSON_AddStringToObject(m, "content", str_cstr(&text));
        str_fini(&text);
        return ok ? 0 : err_no_memory(e);
    }
    cJSON *parts = cJSON_AddArrayToObject(m, "content");
    int rc = parts && (!*prefix || add_part(parts, prefix)) ? 0 : err_no_memory(e), i = 0;
    for (const cJSON *v = b->content->child; v && !rc; v = v->next) {
        struct block inner;
        json_path(name, "%s.content[%d]", path, i++);
        if (is_foreign(v)) continue;
        rc = read_block(v, name, &inner, e);
        if (!rc) rc = add_shown(f, parts, &inner, name, e);
    }
    return rc;
}

/* Tool results come first, each as a message of its own, as templates expect them right after the
 * calls; then the rest, as the user's message. */
static int add_user(const struct messages_fields *f, cJSON *list, const cJSON *blocks,
                    const char *path, err *e) {
    cJSON *parts = cJSON_CreateArray();
    int rc = parts ? 0 : err_no_memory(e), i = 0;
    for (const cJSON *v = blocks->child; v && !rc; v = v->next) {
        char name[JSON_PATH_BYTES];
        struct block b;
        json_path(name, "%s.content[%d]", path, i++);
        if (is_foreign(v)) continue;
        rc = read_block(v, name, &b, e);
        if (!rc)
            rc = is_type(&b, "tool_result") ? add_result(f, list, &b, name, e)
                                            : add_shown(f, parts, &b, name, e);
    }
    if (!rc && parts->child) {
        cJSON *m = add_message(list, "user");
        if (m && cJSON_AddItemToObject(m, "content", parts)) return 0;
        rc = err_no_memory(e);
    }
    cJSON_Delete(parts);
    return rc;
}

static bool add_call(cJSON *calls, const struct block *b) {
    cJSON *call = cJSON_CreateObject();
    bool ok = call && cJSON_AddItemToArray(calls, call);
    if (!ok) cJSON_Delete(call);
    ok = ok && cJSON_AddStringToObject(call, "id", b->id) &&
         cJSON_AddStringToObject(call, "type", "function");
    cJSON *f = ok ? cJSON_AddObjectToObject(call, "function") : NULL;
    cJSON *input = b->input ? cJSON_Duplicate(b->input, true) : cJSON_CreateObject();
    ok = f && input && cJSON_AddStringToObject(f, "name", b->name) &&
         cJSON_AddItemToObject(f, "arguments", input);
    if (!ok) cJSON_Delete(input);
    return ok;
}

struct assistant {
    cJSON *message, *calls; /* calls NULL: none yet */
    str text, thinking;
};

static int add_said(struct assistant *a, const struct block *b, const char *path, err *e) {
    char name[JSON_PATH_BYTES];
    if (is_type(b, "text")) {
        str_add(&a->text, b->text);
    } else if (is_type(b, "thinking")) {
        str_add(&a->thinking, b->thinking);
    } else if (is_type(b, "compaction")) {
        json_path(name, "%s.content", path);
        return add_texts(b->content, name, &a->text, e);
    } else if (is_type(b, "tool_use")) {
        if (!a->calls) a->calls = cJSON_AddArrayToObject(a->message, "tool_calls");
        return a->calls && add_call(a->calls, b) ? 0 : err_no_memory(e);
    } else {
        return fail_misplaced(path, b->type, e);
    }
    return 0;
}

/* One message: the joined text, with thinking and calls beside it. */
static int add_assistant(cJSON *list, const cJSON *blocks, const char *path, err *e) {
    struct assistant a = {.message = add_message(list, "assistant")};
    str_init(&a.text, SIZE_MAX);
    str_init(&a.thinking, SIZE_MAX);
    int rc = a.message ? 0 : err_no_memory(e), i = 0;
    for (const cJSON *v = blocks->child; v && !rc; v = v->next) {
        char name[JSON_PATH_BYTES];
        struct block b;
        json_path(name, "%s.content[%d]", path, i++);
        if (cJSON_IsObject(v) && !assistant_block_of(v)) continue;
        rc = read_block(v, name, &b, e);
        if (!rc) rc = add_said(&a, &b, name, e);
    }
    bool ok = !a.text.failed && !a.thinking.failed;
    if (!rc && ok && !a.text.len && a.calls)
        ok = cJSON_AddNullToObject(a.message, "content") != NULL;
    else if (!rc && ok)
        ok = cJSON_AddStringToObject(a.message, "content", str_cstr(&a.text)) != NULL;
    if (!rc && ok && a.thinking.len)
        ok = cJSON_AddStringToObject(a.message, "reasoning_content", str_cstr(&a.thinking)) != NULL;
    str_fini(&a.text);
    str_fini(&a.thinking);
    return rc ? rc : ok ? 0 : err_no_memory(e);
}

static int add_turn(const struct messages_fields *f, struct chat_request *q, const cJSON *v,
                    const char *path, err *e) {
    char name[JSON_PATH_BYTES];
    struct message m = {0};
    json_path(name, "%s.", path);
    int rc = json_read(v, &messages_turn_table, name, &m, e);
    if (rc) return rc;
    json_path(name, "%s.content", path);
    if (*m.role == 's') return add_system(q, m.content, name, e);
    if (cJSON_IsString(m.content)) {
        cJSON *out = add_message(q->messages, m.role);
        bool ok = out && cJSON_AddStringToObject(out, "content", m.content->valuestring);
        return ok ? 0 : err_no_memory(e);
    }
    if (*m.role == 'a') return add_assistant(q->messages, m.content, path, e);
    if (!m.content->child)
        return err_set_param(e, ERR_INVALID, name, "Invalid value for '%s': it is empty.", name);
    return add_user(f, q->messages, m.content, path, e);
}

int messages_read_turns(const struct messages_fields *f, struct chat_request *q, err *e) {
    int rc, i = 0;
    q->messages = cJSON_CreateArray();
    if (!q->messages) return err_no_memory(e);
    rc = f->system ? add_system(q, f->system, "system", e) : 0;
    for (const cJSON *v = f->messages->child; v && !rc; v = v->next) {
        char path[JSON_PATH_BYTES];
        json_path(path, "messages[%d]", i++);
        rc = add_turn(f, q, v, path, e);
    }
    if (rc) return rc;
    const cJSON *last = cJSON_GetArrayItem(q->messages, cJSON_GetArraySize(q->messages) - 1);
    if (!last)
        return err_set_param(e, ERR_INVALID, "messages",
                             "Invalid value for 'messages': it has no block that the model reads.");
    const cJSON *role = cJSON_GetObjectItemCaseSensitive(last, "role");
    if (strcmp(role->valuestring, "assistant") == 0) {
        q->continue_final_message = true;
        q->add_generation_prompt = false;
    }
    return 0;
}
