/* anthropic/read.c - translates the body of Anthropic's Messages API to a chat request: tables of
 * fields, content blocks, tools. Pure; pool threads. */
#include "api/anthropic/messages.h"

#include <stdio.h>
#include <string.h>

#define AT(member)  .offset = offsetof(struct messages_fields, member)
#define HAS(member) .has = 1 + offsetof(struct messages_fields, member)

#define SAMPLING(FLAGS, NAME, KIND, LEAST, MOST, INITIAL, HELP)                                    \
    {                                                                                              \
        .name = #NAME, .flags = FLAGS, AT(gen.NAME), .initial = #INITIAL,                          \
        GEN_SAMPLING(KIND, LEAST, MOST, HELP)                                                      \
    }

enum { NUL = JSON_NULLABLE };

#define REFUSED(field, reason)                                                                     \
    { .name = field, .type = JSON_REFUSED, .flags = NUL, .why = reason }

/* ---- tables ---- */

/* Prefixes are cached anyway. */
#define CACHE_CONTROL                                                                              \
    {                                                                                              \
        .name = "cache_control", .type = JSON_OBJECT, .flags = NUL, .offset = IGNORED,             \
        .help = "Accepted and ignored: prefixes are cached automatically."                         \
    }

struct block {
    const cJSON *ignored; /* cache_control */
    const char *type, *text, *id, *name, *tool_use_id, *thinking, *signature;
    const cJSON *content, *input;
    bool is_error;
};
#define IN(member) .offset = offsetof(struct block, member)
#define IGNORED    offsetof(struct block, ignored)

static const struct json_field block_fields[] = {
    {.name = "type",
     .type = JSON_ENUM,
     .flags = JSON_REQUIRED,
     IN(type),
     .words = "text|tool_use|tool_result|thinking",
     .help = "Images and documents are not supported."},
    {.name = "text", .type = JSON_STRING, .flags = JSON_WITH_NUL, IN(text)},
    {.name = "id", .type = JSON_STRING, IN(id), .min = 1, .help = "Only for tool_use."},
    {.name = "name", .type = JSON_STRING, IN(name), .min = 1, .help = "Only for tool_use."},
    {.name = "input", .type = JSON_OBJECT, IN(input), .help = "Only for tool_use."},
    {.name = "tool_use_id",
     .type = JSON_STRING,
     IN(tool_use_id),
     .min = 1,
     .help = "Only for tool_result."},
    {.name = "content",
     .type = JSON_VALUE,
     .flags = NUL | JSON_WITH_NUL | JSON_OR_STRING | JSON_OR_ARRAY,
     IN(content),
     .help = "Only for tool_result: text or text blocks."},
    {.name = "is_error",
     .type = JSON_BOOL,
     .flags = NUL,
     IN(is_error),
     .help = "Only for tool_result: marks its text as an error."},
    {.name = "thinking", .type = JSON_STRING, .flags = JSON_WITH_NUL, IN(thinking)},
    {.name = "signature",
     .type = JSON_STRING,
     .flags = NUL,
     IN(signature),
     .help = "Only for thinking: accepted and ignored."},
    CACHE_CONTROL,
    REFUSED("citations", "citations are not supported"),
};
static const struct json_table block_table = JSON_TABLE(block_fields, NULL);

struct message {
    const char *role;
    const cJSON *content;
};
static const struct json_field message_fields[] = {
    {.name = "role",
     .type = JSON_ENUM,
     .flags = JSON_REQUIRED,
     .offset = offsetof(struct message, role),
     .words = "user|assistant",
     .help = "A final message with role assistant is continued."},
    {.name = "content",
     .type = JSON_VALUE,
     .flags = JSON_REQUIRED | JSON_WITH_NUL | JSON_OR_STRING | JSON_OR_ARRAY,
     .offset = offsetof(struct message, content),
     .table = &block_table},
};
static const struct json_table message_table = JSON_TABLE(message_fields, NULL);

struct tool {
    const cJSON *ignored;
    const char *type, *name, *description;
    const cJSON *schema;
    bool strict;
};
static const struct json_field tool_fields[] = {
    {.name = "type",
     .type = JSON_ENUM,
     .flags = NUL,
     .offset = offsetof(struct tool, type),
     .words = "custom",
     .initial = "\"custom\"",
     .help = "Server-side tools are not supported."},
    {.name = "name",
     .type = JSON_STRING,
     .flags = JSON_REQUIRED,
     .offset = offsetof(struct tool, name),
     .min = 1},
    {.name = "description",
     .type = JSON_STRING,
     .flags = NUL,
     .offset = offsetof(struct tool, description)},
    {.name = "input_schema",
     .type = JSON_OBJECT,
     .flags = JSON_REQUIRED,
     .offset = offsetof(struct tool, schema),
     .help = "JSON Schema of the arguments; the generated arguments follow it."},
    {.name = "strict",
     .type = JSON_BOOL,
     .flags = NUL,
     .offset = offsetof(struct tool, strict),
     .initial = "false"},
    {.name = "cache_control",
     .type = JSON_OBJECT,
     .flags = NUL,
     .offset = offsetof(struct tool, ignored)},
};
static const struct json_table tool_table = JSON_TABLE(tool_fields, NULL);

struct choice {
    const char *type, *name;
    bool disable_parallel;
};
static const struct json_field choice_fields[] = {
    {.name = "type",
     .type = JSON_ENUM,
     .flags = JSON_REQUIRED,
     .offset = offsetof(struct choice, type),
     .words = "auto|any|tool|none"},
    {.name = "name",
     .type = JSON_STRING,
     .offset = offsetof(struct choice, name),
     .help = "Only for type tool."},
    {.name = "disable_parallel_tool_use",
     .type = JSON_BOOL,
     .offset = offsetof(struct choice, disable_parallel),
     .initial = "false"},
};
static const struct json_table choice_table = JSON_TABLE(choice_fields, NULL);

struct thinking {
    const char *type, *display;
    int64_t budget;
};
static const struct json_field thinking_fields[] = {
    {.name = "type",
     .type = JSON_ENUM,
     .flags = JSON_REQUIRED,
     .offset = offsetof(struct thinking, type),
     .words = "enabled|disabled|adaptive"},
    {.name = "budget_tokens",
     .type = JSON_INT,
     .offset = offsetof(struct thinking, budget),
     .min = 1,
     .max = 2147483647.0,
     .help = "Accepted and ignored: max_tokens limits thinking and answer together."},
    {.name = "display",
     .type = JSON_ENUM,
     .flags = NUL,
     .offset = offsetof(struct thinking, display),
     .words = "summarized",
     .help = "Thinking is returned unchanged."},
};
static const struct json_table thinking_table = JSON_TABLE(thinking_fields, NULL);

struct format {
    const char *type;
    const cJSON *schema;
};
static const struct json_field format_fields[] = {
    {.name = "type",
     .type = JSON_ENUM,
     .flags = JSON_REQUIRED,
     .offset = offsetof(struct format, type),
     .words = "json_schema"},
    {.name = "schema",
     .type = JSON_OBJECT,
     .flags = JSON_REQUIRED,
     .offset = offsetof(struct format, schema)},
};
static const struct json_table format_table = JSON_TABLE(format_fields, NULL);

struct output {
    const cJSON *format;
    const char *effort;
};
static const struct json_field output_fields[] = {
    {.name = "format",
     .type = JSON_OBJECT,
     .flags = NUL,
     .offset = offsetof(struct output, format),
     .table = &format_table},
    {.name = "effort",
     .type = JSON_STRING,
     .flags = NUL,
     .offset = offsetof(struct output, effort),
     .help = "Requires a chat template that uses reasoning_effort."},
};
static const struct json_table output_table = JSON_TABLE(output_fields, NULL);

struct metadata {
    const char *user_id;
};
static const struct json_field metadata_fields[] = {
    {.name = "user_id",
     .type = JSON_STRING,
     .flags = NUL,
     .offset = offsetof(struct metadata, user_id),
     .help = "Accepted and ignored."},
};
static const struct json_table metadata_table = JSON_TABLE(metadata_fields, NULL);

/* The fields that make the prompt: all that counting needs. */
static const struct json_field prompt_fields[] = {
    {.name = "model",
     .type = JSON_STRING,
     .flags = JSON_REQUIRED,
     AT(gen.model),
     .min = 1,
     .help = "Id or alias of a served model, see GET /v1/models."},
    {.name = "messages",
     .type = JSON_ARRAY,
     .flags = JSON_REQUIRED | JSON_WITH_NUL,
     AT(messages),
     .min = 1,
     .table = &message_table},
    {.name = "system",
     .type = JSON_VALUE,
     .flags = NUL | JSON_WITH_NUL | JSON_OR_STRING | JSON_OR_ARRAY,
     AT(system),
     .table = &block_table,
     .help = "A text or an array of text blocks."},
    {.name = "tools",
     .type = JSON_ARRAY,
     .flags = NUL,
     AT(tools),
     .max = 128,
     .table = &tool_table},
    {.name = "tool_choice",
     .type = JSON_OBJECT,
     .flags = NUL,
     AT(tool_choice),
     .table = &choice_table,
     .initial = "{\"type\":\"auto\"}"},
    {.name = "thinking",
     .type = JSON_OBJECT,
     .flags = NUL,
     AT(thinking),
     .table = &thinking_table,
     .help = "Requires a chat template that uses enable_thinking."},
    {.name = "output_config",
     .type = JSON_OBJECT,
     .flags = NUL,
     AT(output_config),
     .table = &output_table},
    {.name = "output_format",
     .type = JSON_OBJECT,
     .flags = NUL,
     AT(output_format),
     .table = &format_table,
     .help = "Older name of output_config.format."},
    {.name = "cache_control",
     .type = JSON_OBJECT,
     .flags = NUL,
     AT(cache_control),
     .help = "Accepted and ignored: prefixes are cached automatically."},
    REFUSED("mcp_servers", "server-side tools are not supported"),
    REFUSED("context_management", "context editing is not supported"),
};
const struct json_table messages_count_table = JSON_TABLE(prompt_fields, NULL);

static const struct json_field fields[] = {
    {.name = "max_tokens",
     .type = JSON_INT,
     .flags = JSON_REQUIRED,
     AT(gen.max_tokens),
     HAS(gen.has_max_tokens),
     .min = 1,
     .max = 2147483647.0},
    SAMPLING_TEMPERATURE(SAMPLING, NUL),
    SAMPLING_TOP_P(SAMPLING, NUL),
    {.name = "top_k",
     .type = JSON_INT,
     .flags = NUL,
     AT(gen.top_k),
     .min = 0,
     .max = 2147483647.0,
     .initial = "0"},
    {.name = "seed",
     .type = JSON_INT,
     .flags = NUL,
     AT(gen.seed),
     HAS(gen.has_seed),
     .min = -9223372036854775808.0,
     .max = 9223372036854775808.0,
     .help = "Extension: the same seed gives the same answer."},
    {.name = "stop_sequences",
     .type = JSON_ARRAY,
     .flags = NUL,
     AT(stop_sequences),
     .max = GEN_MAX_STOPS,
     .help = "Stop strings of at most 4096 bytes each; the answer ends before them."},
    {.name = "stream", .type = JSON_BOOL, .flags = NUL, AT(gen.stream), .initial = "false"},
    {.name = "metadata", .type = JSON_OBJECT, .flags = NUL, AT(metadata), .table = &metadata_table},
    {.name = "service_tier",
     .type = JSON_ENUM,
     .flags = NUL,
     AT(service_tier),
     .words = "auto|standard_only",
     .initial = "\"auto\"",
     .help = "Accepted and ignored: there is only one tier."},
    {.name = "cache_salt",
     .type = JSON_STRING,
     .flags = NUL,
     AT(gen.cache_salt),
     .min = 1,
     .help = "Only requests with the same salt (and API key) share cached prompts."},
    REFUSED("container", "containers are not supported"),
    REFUSED("inference_geo", "the region cannot be chosen"),
};
const struct json_table messages_table = JSON_TABLE(fields, &messages_count_table);

/* ---- blocks ---- */

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

/* Refuses members that belong to blocks of other types. */
static int check_members(const cJSON *v, const char *path, const char *type, err *e) {
    static const struct {
        const char *name, *type;
    } owners[] = {{"text", "text"},
                  {"id", "tool_use"},
                  {"name", "tool_use"},
                  {"input", "tool_use"},
                  {"tool_use_id", "tool_result"},
                  {"content", "tool_result"},
                  {"is_error", "tool_result"},
                  {"thinking", "thinking"},
                  {"signature", "thinking"}};
    for (const cJSON *m = v->child; m; m = m->next)
        for (size_t i = 0; i < sizeof owners / sizeof *owners; i++) {
            char full[JSON_PATH_BYTES];
            if (strcmp(owners[i].name, m->string) != 0 || strcmp(owners[i].type, type) == 0 ||
                cJSON_IsNull(m))
                continue;
            json_path(full, "%s.%s", path, m->string);
            return err_set_param(e, ERR_INVALID, full,
                                 "'%s' does not belong to a block of type '%s'.", full, type);
        }
    return 0;
}

static int read_block(const cJSON *v, const char *path, struct block *block, err *e) {
    char prefix[JSON_PATH_BYTES];
    *block = (struct block){0};
    json_path(prefix, "%s.", path);
    int rc = json_read(v, &block_table, prefix, block, e);
    if (!rc) rc = check_members(v, path, block->type, e);
    if (rc) return rc;
    const char *type = block->type;
    if (strcmp(type, "text") == 0 && !block->text) return fail_missing(path, "text", e);
    if (strcmp(type, "thinking") == 0 && !block->thinking) return fail_missing(path, "thinking", e);
    if (strcmp(type, "tool_result") == 0 && !block->tool_use_id)
        return fail_missing(path, "tool_use_id", e);
    if (strcmp(type, "tool_use") != 0) return 0;
    if (!block->id) return fail_missing(path, "id", e);
    if (!block->name) return fail_missing(path, "name", e);
    return block->input ? 0 : fail_missing(path, "input", e);
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

/* Adds v, a text or an array of text blocks, as member "content" of m, after prefix. */
static int add_content(cJSON *m, const cJSON *v, const char *path, const char *prefix, err *e) {
    if (!v || cJSON_IsString(v)) {
        str text;
        str_init(&text, SIZE_MAX);
        str_add(&text, prefix);
        if (v) str_add(&text, v->valuestring);
        bool ok = !text.failed && cJSON_AddStringToObject(m, "content", str_cstr(&text));
        str_fini(&text);
        return ok ? 0 : err_no_memory(e);
    }
    cJSON *parts = cJSON_AddArrayToObject(m, "content");
    bool ok = parts && (!*prefix || add_part(parts, prefix));
    int i = 0;
    for (const cJSON *b = v->child; b && ok; b = b->next) {
        char name[JSON_PATH_BYTES];
        struct block block;
        json_path(name, "%s[%d]", path, i++);
        int rc = read_block(b, name, &block, e);
        if (rc) return rc;
        if (strcmp(block.type, "text") != 0) return fail_misplaced(name, block.type, e);
        ok = add_part(parts, block.text);
    }
    return ok ? 0 : err_no_memory(e);
}

static int add_result(cJSON *list, const struct block *b, const char *path, err *e) {
    char name[JSON_PATH_BYTES];
    cJSON *m = add_message(list, "tool");
    if (!m || !cJSON_AddStringToObject(m, "tool_call_id", b->tool_use_id)) return err_no_memory(e);
    json_path(name, "%s.content", path);
    return add_content(m, b->content, name, b->is_error ? "Error: " : "", e);
}

/* Tool results come first, each as a message of its own, then the user's text. */
static int add_user(cJSON *list, const cJSON *blocks, const char *path, err *e) {
    cJSON *parts = NULL;
    int i = 0;
    for (const cJSON *v = blocks->child; v; v = v->next) {
        char name[JSON_PATH_BYTES];
        struct block b;
        json_path(name, "%s.content[%d]", path, i++);
        int rc = read_block(v, name, &b, e);
        if (rc) return rc;
        if (strcmp(b.type, "tool_result") == 0 && !parts) {
            rc = add_result(list, &b, name, e);
            if (rc) return rc;
            continue;
        }
        if (strcmp(b.type, "text") != 0) return fail_misplaced(name, b.type, e);
        if (!parts) {
            cJSON *m = add_message(list, "user");
            parts = m ? cJSON_AddArrayToObject(m, "content") : NULL;
        }
        if (!parts || !add_part(parts, b.text)) return err_no_memory(e);
    }
    return 0;
}

static bool add_call(cJSON *calls, const struct block *b) {
    cJSON *call = cJSON_CreateObject();
    bool ok = call && cJSON_AddItemToArray(calls, call);
    if (!ok) cJSON_Delete(call);
    ok = ok && cJSON_AddStringToObject(call, "id", b->id) &&
         cJSON_AddStringToObject(call, "type", "function");
    cJSON *f = ok ? cJSON_AddObjectToObject(call, "function") : NULL;
    cJSON *input = cJSON_Duplicate(b->input, true);
    ok = f && input && cJSON_AddStringToObject(f, "name", b->name) &&
         cJSON_AddItemToObject(f, "arguments", input);
    if (!ok) cJSON_Delete(input);
    return ok;
}

/* One message: the joined text, with thinking and calls beside it. */
static int add_assistant(cJSON *list, const cJSON *blocks, const char *path, err *e) {
    cJSON *m = add_message(list, "assistant"), *calls = NULL;
    str text, thinking;
    str_init(&text, SIZE_MAX);
    str_init(&thinking, SIZE_MAX);
    int rc = m ? 0 : err_no_memory(e), i = 0;
    for (const cJSON *v = blocks->child; v && !rc; v = v->next) {
        char name[JSON_PATH_BYTES];
        struct block b;
        json_path(name, "%s.content[%d]", path, i++);
        rc = read_block(v, name, &b, e);
        if (rc) break;
        if (strcmp(b.type, "text") == 0) {
            str_add(&text, b.text);
        } else if (strcmp(b.type, "thinking") == 0) {
            str_add(&thinking, b.thinking);
        } else if (strcmp(b.type, "tool_use") == 0) {
            if (!calls) calls = cJSON_AddArrayToObject(m, "tool_calls");
            if (!calls || !add_call(calls, &b)) rc = err_no_memory(e);
        } else {
            rc = fail_misplaced(name, b.type, e);
        }
    }
    bool ok = !text.failed && !thinking.failed;
    if (!rc && ok && !text.len && calls)
        ok = cJSON_AddNullToObject(m, "content") != NULL;
    else if (!rc && ok)
        ok = cJSON_AddStringToObject(m, "content", str_cstr(&text)) != NULL;
    if (!rc && ok && thinking.len)
        ok = cJSON_AddStringToObject(m, "reasoning_content", str_cstr(&thinking)) != NULL;
    str_fini(&text);
    str_fini(&thinking);
    return rc ? rc : ok ? 0 : err_no_memory(e);
}

static int add_turn(cJSON *list, const cJSON *v, const char *path, err *e) {
    char prefix[JSON_PATH_BYTES];
    struct message m = {0};
    json_path(prefix, "%s.", path);
    int rc = json_read(v, &message_table, prefix, &m, e);
    if (rc) return rc;
    if (cJSON_IsString(m.content)) {
        cJSON *out = add_message(list, m.role);
        bool ok = out && cJSON_AddStringToObject(out, "content", m.content->valuestring);
        return ok ? 0 : err_no_memory(e);
    }
    if (!m.content->child) {
        json_path(prefix, "%s.content", path);
        return err_set_param(e, ERR_INVALID, prefix, "Invalid value for '%s': it is empty.",
                             prefix);
    }
    return *m.role == 'u' ? add_user(list, m.content, path, e)
                          : add_assistant(list, m.content, path, e);
}

static int read_messages(const struct messages_fields *f, struct chat_request *q, err *e) {
    q->messages = cJSON_CreateArray();
    if (!q->messages) return err_no_memory(e);
    if (f->system) {
        cJSON *m = add_message(q->messages, "system");
        int rc = m ? add_content(m, f->system, "system", "", e) : err_no_memory(e);
        if (rc) return rc;
    }
    int i = 0;
    for (const cJSON *v = f->messages->child; v; v = v->next) {
        char path[JSON_PATH_BYTES];
        json_path(path, "messages[%d]", i++);
        int rc = add_turn(q->messages, v, path, e);
        if (rc) return rc;
    }
    const cJSON *last = cJSON_GetArrayItem(q->messages, cJSON_GetArraySize(q->messages) - 1);
    const cJSON *role = cJSON_GetObjectItemCaseSensitive(last, "role");
    if (strcmp(role->valuestring, "assistant") == 0) {
        q->continue_final_message = true;
        q->add_generation_prompt = false;
    }
    return 0;
}

/* ---- tools, thinking, the answer's form ---- */

static int read_tool(const cJSON *v, int i, cJSON *list, err *e) {
    char path[JSON_PATH_BYTES];
    struct tool tool = {0};
    json_path(path, "tools[%d].", i);
    int rc = json_read(v, &tool_table, path, &tool, e);
    if (rc) return rc;
    cJSON *out = cJSON_CreateObject();
    bool ok = out && cJSON_AddItemToArray(list, out);
    if (!ok) cJSON_Delete(out);
    ok = ok && cJSON_AddStringToObject(out, "type", "function");
    cJSON *f = ok ? cJSON_AddObjectToObject(out, "function") : NULL;
    ok = f && cJSON_AddStringToObject(f, "name", tool.name);
    if (ok && tool.description)
        ok = cJSON_AddStringToObject(f, "description", tool.description) != NULL;
    cJSON *schema = ok ? cJSON_Duplicate(tool.schema, true) : NULL;
    ok = schema && cJSON_AddItemToObject(f, "parameters", schema);
    if (!ok) cJSON_Delete(schema);
    if (ok && tool.strict) ok = cJSON_AddTrueToObject(f, "strict") != NULL;
    return ok ? 0 : err_no_memory(e);
}

static int read_choice(const struct messages_fields *f, struct chat_request *q, err *e) {
    struct choice c = {0};
    int rc = json_read(f->tool_choice, &choice_table, "tool_choice.", &c, e);
    if (rc) return rc;
    if (c.name && strcmp(c.type, "tool") != 0)
        return err_set_param(e, ERR_INVALID, "tool_choice.name",
                             "'tool_choice.name' does not belong to the type '%s'.", c.type);
    q->tools.parallel = !c.disable_parallel;
    q->tools.name = c.name;
    if (strcmp(c.type, "tool") == 0 && !c.name)
        return err_set_param(e, ERR_INVALID, "tool_choice.name",
                             "Missing required parameter: 'tool_choice.name'.");
    q->tools.choice = strcmp(c.type, "any") == 0    ? CHAT_TOOLS_REQUIRED
                      : strcmp(c.type, "tool") == 0 ? CHAT_TOOLS_NAMED
                      : strcmp(c.type, "none") == 0 ? CHAT_TOOLS_NONE
                                                    : CHAT_TOOLS_AUTO;
    return 0;
}

static int read_tools(const struct messages_fields *f, struct chat_request *q, err *e) {
    int rc = 0, i = 0;
    if (f->tools && f->tools->child) {
        q->tools.list = cJSON_CreateArray();
        if (!q->tools.list) return err_no_memory(e);
        for (const cJSON *v = f->tools->child; v && !rc; v = v->next)
            rc = read_tool(v, i++, q->tools.list, e);
    }
    return rc || !f->tool_choice ? rc : read_choice(f, q, e);
}

static int read_thinking(const struct messages_fields *f, const chat_template *chat,
                         struct chat_request *q, err *e) {
    struct thinking t = {0};
    int rc = json_read(f->thinking, &thinking_table, "thinking.", &t, e);
    if (rc) return rc;
    bool on = strcmp(t.type, "disabled") != 0;
    if (chat && chat_template_uses(chat, "enable_thinking"))
        return chat_request_set(q, "enable_thinking", cJSON_CreateBool(on), e);
    if (!on || strcmp(t.type, "adaptive") == 0) return 0; /* it may, it need not */
    return err_set_param(
        e, ERR_UNSUPPORTED, "thinking",
        "Unsupported value for 'thinking': the model's chat template cannot enable thinking.");
}

static int read_format(const cJSON *v, const char *path, struct chat_request *q, err *e) {
    struct format format = {0};
    int rc = json_read(v, &format_table, path, &format, e);
    q->format = (struct chat_format){.kind = CHAT_FORMAT_SCHEMA, .value = format.schema};
    return rc;
}

static int read_output(const struct messages_fields *f, const chat_template *chat,
                       struct chat_request *q, err *e) {
    struct output o = {0};
    int rc = 0;
    if (f->output_config) rc = json_read(f->output_config, &output_table, "output_config.", &o, e);
    if (!rc && o.effort) {
        if (!chat || !chat_template_uses(chat, "reasoning_effort"))
            return err_set_param(e, ERR_UNSUPPORTED, "output_config.effort",
                                 "Unsupported value for 'output_config.effort': the model's chat "
                                 "template does not use it.");
        rc = chat_request_set(q, "reasoning_effort", cJSON_CreateString(o.effort), e);
    }
    if (!rc && o.format && f->output_format)
        return err_set_param(
            e, ERR_INVALID, "output_format",
            "'output_format' and 'output_config.format' mean the same: send only one.");
    if (!rc && o.format) rc = read_format(o.format, "output_config.format.", q, e);
    if (!rc && f->output_format) rc = read_format(f->output_format, "output_format.", q, e);
    return rc;
}

int messages_read(const struct messages_fields *f, const chat_template *chat,
                  struct chat_request *q, err *e) {
    struct metadata metadata = {0};
    int rc = 0;
    q->param_format = "output_config.format";
    q->param_function = "";
    q->param_schema = "input_schema";
    if (f->metadata) rc = json_read(f->metadata, &metadata_table, "metadata.", &metadata, e);
    if (!rc) rc = read_messages(f, q, e);
    if (!rc) rc = read_tools(f, q, e);
    if (!rc && f->thinking) rc = read_thinking(f, chat, q, e);
    if (!rc) rc = read_output(f, chat, q, e);
    return rc;
}
