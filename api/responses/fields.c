/* responses/fields.c - the fields of POST /v1/responses: their table, tools and text format in the
 * form that all chat endpoints share, and the echo in the answer. Pure; pool threads. */
#include "api/generate/tools.h"
#include "api/responses/responses.h"
#include "core/text/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define AT(member)  .offset = offsetof(struct response_fields, member)
#define HAS(member) .has = 1 + offsetof(struct response_fields, member)

enum { NUL = JSON_NULLABLE, MAX_PAIRS = 16, MAX_KEY = 64, MAX_VALUE = 512, MAX_NAME = 64 };

static const char *text_of(const cJSON *object, const char *name) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    return text ? text : "";
}

/* ---- nested objects ---- */

struct format {
    const char *type, *name, *description;
    const cJSON *schema;
    bool strict, has_strict;
};
static const struct json_field format_fields[] = {
    {"type", JSON_ENUM, JSON_REQUIRED, .offset = offsetof(struct format, type),
     .words = "text|json_object|json_schema"},
    {"name", JSON_STRING, 0, .offset = offsetof(struct format, name), .min = 1, .max = MAX_NAME},
    {"description", JSON_STRING, NUL, .offset = offsetof(struct format, description)},
    {"schema", JSON_OBJECT, 0, .offset = offsetof(struct format, schema)},
    {"strict", JSON_BOOL, NUL, .offset = offsetof(struct format, strict),
     .has = 1 + offsetof(struct format, has_strict), .initial = "false"},
};
static const struct json_table format_table = JSON_TABLE(format_fields, NULL);

struct text {
    const cJSON *format;
};
static const struct json_field text_fields[] = {
    {"format", JSON_OBJECT, NUL, .offset = offsetof(struct text, format), .table = &format_table,
     .help = "The format of the answer's text."},
    {"verbosity", JSON_REFUSED, NUL, .words = "medium", .why = "verbosity cannot be set"},
};
static const struct json_table text_table = JSON_TABLE(text_fields, NULL);

static const char no_summaries[] = "reasoning is returned in full, not summarized";
static const struct json_field reasoning_fields[] = {
    {"effort", JSON_STRING, NUL, AT(gen.reasoning_effort),
     .help = "Requires a chat template that uses it."},
    {"summary", JSON_REFUSED, NUL, .words = "auto", .why = no_summaries},
    {"generate_summary", JSON_REFUSED, NUL, .words = "auto", .why = no_summaries},
    {"mode", JSON_REFUSED, NUL, .words = "standard", .why = "there is only one mode"},
    {"context", JSON_REFUSED, NUL, .words = "auto",
     .why = "the chat template decides how much earlier reasoning it includes"},
};
static const struct json_table reasoning_table = JSON_TABLE(reasoning_fields, NULL);

static const struct json_field stream_fields[] = {
    {"include_obfuscation", JSON_BOOL, 0, AT(obfuscate), .initial = "false",
     .help = "Adds random characters to each delta that hide the length of its text."},
};
static const struct json_table stream_table = JSON_TABLE(stream_fields, NULL);

struct tool {
    const char *type, *name, *description;
    const cJSON *parameters;
    bool strict, has_strict;
};
static const struct json_field own_tool_fields[] = {
    {"type", JSON_ENUM, JSON_REQUIRED, .offset = offsetof(struct tool, type), .words = "function"},
    {"name", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct tool, name), .min = 1,
     .max = MAX_NAME},
    {"description", JSON_STRING, NUL, .offset = offsetof(struct tool, description)},
    {"parameters", JSON_OBJECT, NUL, .offset = offsetof(struct tool, parameters)},
    {"strict", JSON_BOOL, NUL, .offset = offsetof(struct tool, strict),
     .has = 1 + offsetof(struct tool, has_strict)},
    {"output_schema", JSON_REFUSED, NUL, .why = "tool outputs are not validated"},
    {"defer_loading", JSON_REFUSED, .accepts = json_is_false,
     .why = "tool search is not supported"},
    {"allowed_callers", JSON_REFUSED, NUL, .why = "only the client can call tools"},
};
static const struct json_table own_tool_table = JSON_TABLE(own_tool_fields, NULL);

struct choice {
    const char *type, *name, *mode;
    const cJSON *tools;
};
static const struct json_field choice_fields[] = {
    {"type", JSON_ENUM, JSON_REQUIRED, .offset = offsetof(struct choice, type),
     .words = "function|allowed_tools"},
    {"name", JSON_STRING, 0, .offset = offsetof(struct choice, name), .min = 1},
    {"mode", JSON_ENUM, 0, .offset = offsetof(struct choice, mode), .words = "auto|required"},
    {"tools", JSON_ARRAY, 0, .offset = offsetof(struct choice, tools), .min = 1,
     .max = CHAT_MAX_TOOLS},
};
static const struct json_table choice_table = JSON_TABLE(choice_fields, NULL);

/* ---- the table ---- */

/* The fields that make the prompt; POST /v1/responses/input_tokens has only these. */
static const struct json_field prompt_fields[] = {
    {"input", JSON_VALUE, JSON_OR_STRING | JSON_OR_ARRAY | JSON_WITH_NUL, AT(input),
     .help = "A text or an array of items: messages, function calls and their outputs, reasoning, "
             "references to items of stored responses."},
    {"instructions", JSON_STRING, NUL | JSON_WITH_NUL, AT(instructions),
     .help = "A system message before the input; applies to this response only."},
    {"previous_response_id", JSON_STRING, NUL, AT(previous_response_id), .min = 1,
     .help = "A stored response whose conversation this one continues."},
    {"conversation", JSON_REFUSED, NUL,
     .why = "conversations are not stored: use previous_response_id"},
    {"tools", JSON_ARRAY, NUL, AT(tools), .max = CHAT_MAX_TOOLS, .table = &own_tool_table,
     .help = "Functions only."},
    {"tool_choice", JSON_VALUE, NUL | JSON_OR_STRING | JSON_OR_OBJECT, AT(tool_choice),
     .initial = "\"auto\"", .help = "auto, none, required, a function or allowed_tools."},
    {"parallel_tool_calls", JSON_BOOL, NUL, AT(parallel_tool_calls), .initial = "true"},
    {"text", JSON_OBJECT, NUL, AT(text), .table = &text_table},
    {"reasoning", JSON_OBJECT, NUL, AT(reasoning), .table = &reasoning_table},
    {"truncation", JSON_REFUSED, NUL, .words = "disabled",
     .why = "a conversation that is too long is refused, not truncated"},
};
static const struct json_table prompt_table = JSON_TABLE(prompt_fields, NULL),
                               create_table = JSON_TABLE(prompt_fields, &gen_sampling_table);

static const struct json_field fields[] = {
    {"max_output_tokens", JSON_INT, NUL, AT(gen.max_completion_tokens),
     HAS(gen.has_max_completion_tokens), 1, 2147483647.0},
    {"max_tool_calls", JSON_INT, NUL, AT(max_tool_calls), HAS(has_max_tool_calls), 1, 2147483647.0,
     .help = "Accepted and ignored: it limits built-in tools, and there are none."},
    {"top_logprobs", JSON_INT, NUL, AT(gen.top_logprobs), HAS(gen.has_top_logprobs), 0,
     ENGINE_MAX_TOP_LOGPROBS, .initial = "0",
     .help = "Requires include [\"message.output_text.logprobs\"]."},
    {"include", JSON_ARRAY, NUL, AT(include),
     .help = "\"message.output_text.logprobs\"; \"reasoning.encrypted_content\" is accepted and "
             "ignored, because reasoning is plain text."},
    {"metadata", JSON_OBJECT, NUL, AT(metadata),
     .help = "Up to 16 strings of up to 512 characters, stored with the response."},
    {"store", JSON_BOOL, NUL, AT(store), HAS(has_store), .initial = "true"},
    {"stream_options", JSON_OBJECT, NUL, AT(stream_options), .table = &stream_table,
     .help = "Only with stream."},
    {"chat_template_kwargs", JSON_OBJECT, NUL, AT(gen.chat_template_kwargs),
     .help = "Variables for the chat template."},
    {"background", JSON_REFUSED, NUL, .accepts = json_is_false,
     .why = "background responses are not supported: use stream"},
    {"service_tier", JSON_REFUSED, NUL, .words = "auto|default",
     .why = "only \"auto\" and \"default\" are supported"},
    {"prompt", JSON_REFUSED, NUL, .why = "stored prompts are not supported"},
    {"context_management", JSON_REFUSED, NUL,
     .why = "compaction of conversations is not supported"},
    {"moderation", JSON_REFUSED, NUL, .why = "moderation is not supported"},
    {"safety_identifier", JSON_STRING, NUL, AT(gen.safety_identifier),
     .help = "Accepted and ignored."},
    {"prompt_cache_key", JSON_STRING, NUL, AT(gen.prompt_cache_key),
     .help = "Accepted and ignored: prefixes are cached automatically. To separate caches, see "
             "cache_salt."},
    {"prompt_cache_retention", JSON_REFUSED, NUL,
     .why = "retention of the prefix cache cannot be set"},
    {"prompt_cache_options", JSON_REFUSED, NUL,
     .why = "the prefix cache has no options per request"},
};
const struct json_table responses_table = JSON_TABLE(fields, &create_table);

static const struct json_field token_fields[] = {
    {"model", JSON_STRING, JSON_REQUIRED, AT(gen.model), .min = 1},
    {"personality", JSON_REFUSED, NUL, .why = "personalities are not supported"},
};
const struct json_table response_tokens_table = JSON_TABLE(token_fields, &prompt_table);

void response_fields_default(struct response_fields *f) {
    memset(f, 0, sizeof *f);
    gen_fields_default(&f->gen);
    f->store = true;
    f->parallel_tool_calls = true;
}

/* ---- checks ---- */

static int check_metadata(const cJSON *metadata, err *e) {
    int n = 0;
    for (const cJSON *v = metadata ? metadata->child : NULL; v; v = v->next) {
        char name[JSON_PATH_BYTES];
        json_path(name, "metadata.%s", v->string);
        if (++n > MAX_PAIRS)
            return err_set_param(e, ERR_INVALID, "metadata",
                                 "Invalid value for 'metadata': at most %d pairs.", MAX_PAIRS);
        if (utf8_count(v->string, strlen(v->string)) > MAX_KEY)
            return err_set_param(e, ERR_INVALID, "metadata",
                                 "Invalid key in 'metadata': at most %d characters.", MAX_KEY);
        if (!cJSON_IsString(v)) return json_wrong_type(name, "a string", v, e);
        if (utf8_count(v->valuestring, strlen(v->valuestring)) > MAX_VALUE)
            return err_set_param(e, ERR_INVALID, name,
                                 "Invalid value for '%s': at most %d characters.", name, MAX_VALUE);
    }
    return 0;
}

static int check_include(struct response_fields *f, err *e) {
    int i = 0;
    for (const cJSON *v = f->include ? f->include->child : NULL; v; v = v->next) {
        char name[JSON_PATH_BYTES];
        json_path(name, "include[%d]", i++);
        const char *word = cJSON_GetStringValue(v);
        if (!word) return json_wrong_type(name, "a string", v, e);
        if (strcmp(word, "reasoning.encrypted_content") == 0) continue;
        if (strcmp(word, "message.output_text.logprobs") != 0)
            return err_set_param(e, ERR_UNSUPPORTED, name,
                                 "Unsupported value for '%s': '%.60s'. Supported values are: "
                                 "'message.output_text.logprobs' and "
                                 "'reasoning.encrypted_content'.",
                                 name, word);
        f->gen.logprobs = true;
    }
    if (f->gen.has_top_logprobs && f->gen.top_logprobs && !f->gen.logprobs)
        return err_set_param(e, ERR_INVALID, "top_logprobs",
                             "'top_logprobs' is only allowed when 'include' has "
                             "'message.output_text.logprobs'.");
    f->gen.has_top_logprobs = f->gen.logprobs && f->gen.has_top_logprobs;
    return 0;
}

int response_fields_check(struct response_fields *f, err *e) {
    if (!f->input && !f->previous_response_id)
        return err_set_param(e, ERR_INVALID, "input",
                             "Missing required parameter: 'input', or 'previous_response_id'.");
    if (f->stream_options && !f->gen.stream)
        return err_set_param(e, ERR_INVALID, "stream_options",
                             "'stream_options' is only allowed when 'stream' is true.");
    int rc = check_metadata(f->metadata, e);
    if (!rc) rc = check_include(f, e);
    if (!rc && f->stream_options)
        rc = json_read(f->stream_options, &stream_table, "stream_options.", f, e);
    if (!rc && f->reasoning) rc = json_read(f->reasoning, &reasoning_table, "reasoning.", f, e);
    return rc;
}

/* ---- tools ---- */

static int add_tool(const struct tool *t, cJSON *list, err *e) {
    cJSON *to = cJSON_CreateObject();
    bool ok = cJSON_AddItemToArray(list, to);
    if (!ok) cJSON_Delete(to);
    if (!ok || !cJSON_AddStringToObject(to, "type", "function")) return err_no_memory(e);
    cJSON *function = cJSON_AddObjectToObject(to, "function");
    ok = cJSON_AddStringToObject(function, "name", t->name) &&
         (!t->description || cJSON_AddStringToObject(function, "description", t->description));
    if (ok && t->parameters) {
        cJSON *copy = cJSON_Duplicate(t->parameters, true);
        ok = cJSON_AddItemToObject(function, "parameters", copy);
        if (!ok) cJSON_Delete(copy);
    }
    if (ok && t->has_strict) ok = cJSON_AddBoolToObject(function, "strict", t->strict);
    return ok ? 0 : err_no_memory(e);
}

static int read_tool(const cJSON *v, const char *path, struct tool *t, err *e) {
    char name[JSON_PATH_BYTES];
    *t = (struct tool){0};
    json_path(name, "%s.", path);
    return json_read(v, &own_tool_table, name, t, e);
}

static bool has_tool(const cJSON *list, const char *name) {
    for (const cJSON *v = list ? list->child : NULL; v; v = v->next)
        if (strcmp(text_of(cJSON_GetObjectItemCaseSensitive(v, "function"), "name"), name) == 0)
            return true;
    return false;
}

/* Drops tools that are not allowed, so that the template does not show them either. */
static int keep_allowed(const struct choice *c, struct chat_tools *tools, err *e) {
    int i = 0;
    for (const cJSON *v = c->tools->child; v; v = v->next) {
        char path[JSON_PATH_BYTES];
        struct tool t;
        json_path(path, "tool_choice.tools[%d]", i++);
        int rc = read_tool(v, path, &t, e);
        if (rc) return rc;
        json_path(path, "tool_choice.tools[%d].name", i - 1);
        if (!has_tool(tools->list, t.name))
            return err_set_param(e, ERR_INVALID, path, "Tool choice '%.64s' not found in 'tools'.",
                                 t.name);
    }
    for (cJSON *v = tools->list->child, *next; v; v = next) {
        const char *name = text_of(cJSON_GetObjectItemCaseSensitive(v, "function"), "name");
        bool allowed = false;
        next = v->next;
        for (const cJSON *a = c->tools->child; a; a = a->next)
            allowed = allowed || strcmp(text_of(a, "name"), name) == 0;
        if (!allowed) cJSON_Delete(cJSON_DetachItemViaPointer(tools->list, v));
    }
    tools->choice = strcmp(c->mode, "required") == 0 ? CHAT_TOOLS_REQUIRED : CHAT_TOOLS_AUTO;
    return 0;
}

static int read_choice_object(const cJSON *v, struct chat_tools *tools, err *e) {
    struct choice c = {0};
    int rc = json_read(v, &choice_table, "tool_choice.", &c, e);
    if (rc) return rc;
    bool named = strcmp(c.type, "function") == 0;
    const char *missing = named ? (c.name ? NULL : "name") : !c.mode ? "mode" : NULL;
    const char *extra = named    ? (c.mode    ? "mode"
                                    : c.tools ? "tools"
                                              : NULL)
                        : c.name ? "name"
                                 : NULL;
    char path[JSON_PATH_BYTES];
    if (!named && !missing && !c.tools) missing = "tools";
    json_path(path, "tool_choice.%s", missing ? missing : extra ? extra : "name");
    if (missing)
        return err_set_param(e, ERR_INVALID, path, "Missing required parameter: '%s'.", path);
    if (extra)
        return err_set_param(e, ERR_INVALID, path, "'%s' does not belong to type '%s'.", path,
                             c.type);
    if (!named) return keep_allowed(&c, tools, e);
    tools->choice = CHAT_TOOLS_NAMED;
    tools->name = c.name;
    return 0;
}

static int read_choice(const cJSON *v, struct chat_tools *tools, err *e) {
    static const char *const words[] = {"auto", "none", "required"};
    static const enum chat_tool_choice choices[] = {CHAT_TOOLS_AUTO, CHAT_TOOLS_NONE,
                                                    CHAT_TOOLS_REQUIRED};
    if (!v) return 0;
    if (cJSON_IsObject(v)) return read_choice_object(v, tools, e);
    for (size_t i = 0; i < 3; i++)
        if (strcmp(v->valuestring, words[i]) == 0) {
            tools->choice = choices[i];
            return 0;
        }
    return err_set_param(e, ERR_INVALID, "tool_choice",
                         "Invalid value for 'tool_choice': '%.40s'. Supported values are: 'none', "
                         "'auto', 'required', a function and 'allowed_tools'.",
                         v->valuestring);
}

static int read_format(const struct response_fields *f, struct chat_request *q, err *e) {
    struct chat_format *out = &q->format;
    struct text text = {0};
    struct format format = {0};
    int rc = f->text ? json_read(f->text, &text_table, "text.", &text, e) : 0;
    if (rc || !text.format) return rc;
    rc = json_read(text.format, &format_table, "text.format.", &format, e);
    if (rc) return rc;
    bool schema = strcmp(format.type, "json_schema") == 0;
    const char *missing = !schema ? NULL : !format.name ? "name" : !format.schema ? "schema" : NULL;
    char path[JSON_PATH_BYTES];
    json_path(path, "text.format.%s", missing ? missing : "name");
    if (missing)
        return err_set_param(e, ERR_INVALID, path, "Missing required parameter: '%s'.", path);
    const char *extra = schema               ? NULL
                        : format.name        ? "name"
                        : format.schema      ? "schema"
                        : format.description ? "description"
                        : format.has_strict  ? "strict"
                                             : NULL;
    if (extra) {
        json_path(path, "text.format.%s", extra);
        return err_set_param(e, ERR_INVALID, path, "'%s' does not belong to type '%s'.", path,
                             format.type);
    }
    out->kind = schema                                    ? CHAT_FORMAT_SCHEMA
                : strcmp(format.type, "json_object") == 0 ? CHAT_FORMAT_OBJECT
                                                          : CHAT_FORMAT_TEXT;
    out->value = format.schema;
    out->strict = format.strict;
    if (schema) q->param_format = "text.format.schema";
    return 0;
}

int response_tools_read(const struct response_fields *f, struct chat_request *q, err *e) {
    struct chat_tools *tools = &q->tools;
    int rc = 0, i = 0;
    tools->parallel = f->parallel_tool_calls;
    if (f->tools && f->tools->child && !(tools->list = cJSON_CreateArray()))
        return err_no_memory(e);
    for (const cJSON *v = f->tools ? f->tools->child : NULL; v && !rc; v = v->next) {
        char path[JSON_PATH_BYTES];
        struct tool t;
        json_path(path, "tools[%d]", i++);
        rc = read_tool(v, path, &t, e);
        if (!rc) rc = add_tool(&t, tools->list, e);
    }
    if (!rc) rc = read_choice(f->tool_choice, tools, e);
    if (!rc) rc = chat_tools_check(q, e);
    if (!rc) rc = read_format(f, q, e);
    return rc;
}

/* ---- the echo ---- */

static void add_text(str *out, const char *name, const char *text) {
    str_addf(out, ",\"%s\":", name);
    if (text)
        json_add_cstr(out, text);
    else
        str_add(out, "null");
}

static void add_count(str *out, const char *name, bool has, int64_t n) {
    str_addf(out, ",\"%s\":", name);
    if (has)
        str_addf(out, "%" PRId64, n);
    else
        str_add(out, "null");
}

/* Writes v, or `otherwise` if it was not given. */
static void add_tree(str *out, const char *name, const cJSON *v, const char *otherwise) {
    str_addf(out, ",\"%s\":", name);
    if (v)
        json_add_value(out, v);
    else
        str_add(out, otherwise);
}

static void add_tools(str *out, const cJSON *tools) {
    str_add(out, ",\"tools\":[");
    for (const cJSON *v = tools ? tools->child : NULL; v; v = v->next) {
        if (v->prev->next) str_add_char(out, ',');
        str_add(out, "{\"type\":\"function\"");
        add_text(out, "name", text_of(v, "name"));
        add_text(out, "description",
                 cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(v, "description")));
        add_tree(out, "parameters", cJSON_GetObjectItemCaseSensitive(v, "parameters"), "null");
        add_tree(out, "strict", cJSON_GetObjectItemCaseSensitive(v, "strict"), "null");
        str_add_char(out, '}');
    }
    str_add_char(out, ']');
}

void response_fields_echo(const struct response_fields *f, str *out) {
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(f->text, "format");
    add_text(out, "instructions", f->instructions);
    add_count(out, "max_output_tokens", f->gen.has_max_completion_tokens,
              f->gen.max_completion_tokens);
    add_count(out, "max_tool_calls", f->has_max_tool_calls, f->max_tool_calls);
    add_tree(out, "metadata", f->metadata, "{}");
    str_addf(out, ",\"parallel_tool_calls\":%s", f->parallel_tool_calls ? "true" : "false");
    add_text(out, "previous_response_id", f->previous_response_id);
    str_add(out, ",\"reasoning\":{\"effort\":");
    if (f->gen.reasoning_effort)
        json_add_cstr(out, f->gen.reasoning_effort);
    else
        str_add(out, "null");
    str_add(out, ",\"summary\":null},\"service_tier\":\"default\",\"temperature\":");
    json_add_number(out, f->gen.temperature);
    str_add(out, ",\"text\":{\"format\":");
    if (format && !cJSON_IsNull(format))
        json_add_value(out, format);
    else
        str_add(out, "{\"type\":\"text\"}");
    str_add_char(out, '}');
    add_tree(out, "tool_choice", f->tool_choice, "\"auto\"");
    add_tools(out, f->tools);
    str_addf(out, ",\"top_logprobs\":%" PRId64 ",\"top_p\":", f->gen.top_logprobs);
    json_add_number(out, f->gen.top_p);
    str_add(out, ",\"truncation\":\"disabled\"");
    if (f->gen.user) add_text(out, "user", f->gen.user);
    if (f->gen.safety_identifier) add_text(out, "safety_identifier", f->gen.safety_identifier);
    if (f->gen.prompt_cache_key) add_text(out, "prompt_cache_key", f->gen.prompt_cache_key);
}
