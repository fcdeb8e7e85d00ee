/* responses/fields.c - the fields of POST /v1/responses: their table, the text's format in the form
 * that all chat endpoints share, and the echo in the answer. Pure; pool threads. */
#include "api/generate/tools.h"
#include "api/http/ignored.h"
#include "api/responses/responses.h"
#include "core/text/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define AT(member)  .offset = offsetof(struct response_fields, member)
#define HAS(member) .has = 1 + offsetof(struct response_fields, member)

enum { NUL = JSON_NULLABLE, MAX_NAME = 64 };

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
    {"verbosity", JSON_ADVISORY, NUL, .words = "medium", .why = "chat templates do not know it"},
};
static const struct json_table text_table = JSON_TABLE(text_fields, NULL);

static const char no_summaries[] = "reasoning is returned in full, not summarized";
static const struct json_field reasoning_fields[] = {
    {"effort", JSON_STRING, NUL, AT(gen.reasoning_effort),
     .help = "Ignored if the chat template does not use it."},
    {"summary", JSON_ADVISORY, NUL, .words = "auto", .why = no_summaries},
    {"generate_summary", JSON_ADVISORY, NUL, .words = "auto", .why = no_summaries},
    {"mode", JSON_ADVISORY, NUL, .words = "standard", .why = "there is only one mode"},
    {"context", JSON_ADVISORY, NUL, .words = "auto",
     .why = "the chat template decides how much earlier reasoning it includes"},
};
static const struct json_table reasoning_table = JSON_TABLE(reasoning_fields, NULL);

static const struct json_field stream_fields[] = {
    {"include_obfuscation", JSON_BOOL, 0, AT(obfuscate), .initial = "false",
     .help = "Adds random characters to each delta that hide the length of its text."},
};
static const struct json_table stream_table = JSON_TABLE(stream_fields, NULL);

/* ---- the table ---- */

struct conversation {
    const char *id;
};
static const struct json_field conversation_fields[] = {
    {"id", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct conversation, id), .min = 1},
};
static const struct json_table conversation_table = JSON_TABLE(conversation_fields, NULL);

/* The fields that make the prompt; POST /v1/responses/input_tokens has only these. */
static const struct json_field prompt_fields[] = {
    {"input", JSON_VALUE, JSON_OR_STRING | JSON_OR_ARRAY | JSON_WITH_NUL | JSON_ECHOED, AT(input),
     .table = &response_item_table,
     .help = "A text or an array of items: messages, function calls and their outputs, reasoning, "
             "references to items of stored responses."},
    {"instructions", JSON_STRING, NUL | JSON_WITH_NUL, AT(instructions),
     .help = "A system message before the input; applies to this response only."},
    {"previous_response_id", JSON_STRING, NUL, AT(previous_response_id), .min = 1,
     .help = "A stored response whose conversation this one continues."},
    {"conversation", JSON_VALUE, NUL | JSON_OR_STRING | JSON_OR_OBJECT, AT(conversation),
     .table = &conversation_table,
     .help = "A conversation, or its id: its items come before the input; input and output are "
             "added to it."},
    {"tools", JSON_ARRAY, NUL, AT(tools), .max = CHAT_MAX_TOOLS, .table = &response_tool_table},
    {"tool_choice", JSON_VALUE, NUL | JSON_OR_STRING | JSON_OR_OBJECT, AT(tool_choice),
     .table = &response_choice_table, .initial = "\"auto\"",
     .help = "auto, none, required, a function or allowed_tools."},
    {"parallel_tool_calls", JSON_BOOL, NUL, AT(parallel_tool_calls), .initial = "true"},
    {"text", JSON_OBJECT, NUL, AT(text), .table = &text_table},
    {"reasoning", JSON_OBJECT, NUL, AT(reasoning), .table = &reasoning_table},
    {"truncation", JSON_ADVISORY, NUL, .words = "disabled",
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
     .help = "\"message.output_text.logprobs\"; other words are ignored."},
    {"metadata", JSON_VALUE, NUL | JSON_WITH_NUL, AT(metadata),
     .help = "With store an object of up to 16 strings of up to 512 characters, kept with the "
             "response; without it anything, which is ignored."},
    {"store", JSON_BOOL, NUL, AT(store), HAS(has_store), .initial = "true"},
    {"stream_options", JSON_OBJECT, NUL, AT(stream_options), .table = &stream_table,
     .help = "Ignored without stream."},
    {"chat_template_kwargs", JSON_OBJECT, NUL, AT(gen.chat_template_kwargs),
     .help = "Variables for the chat template."},
    {"background", JSON_REFUSED, NUL, .why = "background responses are not supported: use stream"},
    {"service_tier", JSON_ADVISORY, NUL, .words = "auto|default", .why = "there is only one tier"},
    {"prompt", JSON_REFUSED, NUL, .why = "stored prompts are not supported"},
    {"context_management", JSON_ADVISORY, NUL, .why = "the server does not edit conversations"},
    {"moderation", JSON_ADVISORY, NUL, .why = "the server does not moderate"},
    {"safety_identifier", JSON_ADVISORY, NUL | JSON_KEPT, AT(gen.safety_identifier),
     .why = "answers do not depend on the user"},
    {"prompt_cache_key", JSON_ADVISORY, NUL | JSON_KEPT, AT(gen.prompt_cache_key),
     .why = "prefixes are cached automatically; to separate caches, see cache_salt"},
    {"prompt_cache_retention", JSON_ADVISORY, NUL, .why = "prefixes are cached automatically"},
    {"prompt_cache_options", JSON_ADVISORY, NUL, .why = "prefixes are cached automatically"},
    {"client_metadata", JSON_ADVISORY, NUL, .why = "answers do not depend on the client"},
};
const struct json_table responses_table = JSON_TABLE(fields, &create_table);

static const struct json_field token_fields[] = {
    {"model", JSON_STRING, JSON_REQUIRED, AT(gen.model), .min = 1},
    {"personality", JSON_ADVISORY, NUL, .why = "chat templates do not know it"},
};
const struct json_table response_tokens_table = JSON_TABLE(token_fields, &prompt_table);

void response_fields_default(struct response_fields *f) {
    memset(f, 0, sizeof *f);
    gen_fields_default(&f->gen);
    f->store = true;
    f->parallel_tool_calls = true;
}

/* ---- checks ---- */

static int check_include(struct response_fields *f, struct ignored *ignored, err *e) {
    int i = 0;
    for (const cJSON *v = f->include ? f->include->child : NULL; v; v = v->next) {
        char name[JSON_PATH_BYTES];
        json_path(name, "include[%d]", i++);
        const char *word = cJSON_GetStringValue(v);
        if (!word) return json_wrong_type(name, "a string", v, e);
        if (strcmp(word, "message.output_text.logprobs") != 0) {
            int rc = ignored_add(ignored, name, e);
            if (rc) return rc;
            continue;
        }
        f->gen.logprobs = true;
    }
    if (f->gen.has_top_logprobs && f->gen.top_logprobs && !f->gen.logprobs)
        return err_set_param(e, ERR_INVALID, "top_logprobs",
                             "'top_logprobs' is only allowed when 'include' has "
                             "'message.output_text.logprobs'.");
    f->gen.has_top_logprobs = f->gen.logprobs && f->gen.has_top_logprobs;
    return 0;
}

static int check_conversation(const struct response_fields *f, err *e) {
    struct conversation c = {0};
    if (!f->input && !f->previous_response_id && !f->conversation)
        return err_set_param(e, ERR_INVALID, "input",
                             "Missing required parameter: 'input', or 'previous_response_id', or "
                             "'conversation'.");
    if (f->previous_response_id && f->conversation)
        return err_set_param(e, ERR_INVALID, "conversation",
                             "'conversation' and 'previous_response_id' exclude each other.");
    bool object = cJSON_IsObject(f->conversation);
    return object ? json_read(f->conversation, &conversation_table, "conversation.", &c, e) : 0;
}

const char *response_fields_conversation(const struct response_fields *f) {
    const char *id = cJSON_GetStringValue(f->conversation);
    if (id) return id;
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(f->conversation, "id"));
}

int response_fields_check(struct response_fields *f, struct ignored *ignored, err *e) {
    int bad = check_conversation(f, e);
    if (bad) return bad;
    int rc = f->store ? gen_metadata_check(f->metadata, e)
                      : gen_metadata_ignore(f->metadata, ignored, e);
    if (!f->store && gen_metadata_check(f->metadata, NULL)) f->metadata = NULL; /* not echoed */
    if (!rc) rc = check_include(f, ignored, e);
    if (!rc && f->stream_options && f->stream_options->child && !f->gen.stream)
        rc = ignored_add(ignored, "stream_options", e);
    else if (!rc && f->stream_options)
        rc = json_read(f->stream_options, &stream_table, "stream_options.", f, e);
    if (!rc && f->reasoning) rc = json_read(f->reasoning, &reasoning_table, "reasoning.", f, e);
    return rc;
}

/* ---- the format of the text ---- */

int response_format_read(const struct response_fields *f, struct chat_request *q, err *e) {
    struct chat_format *out = &q->format;
    struct text text = {0};
    struct format format = {0};
    int rc = f->text ? json_read(f->text, &text_table, "text.", &text, e) : 0;
    if (rc || !text.format) return rc;
    rc = json_read(text.format, &format_table, "text.format.", &format, e);
    if (rc) return rc;
    bool schema = strcmp(format.type, "json_schema") == 0;
    const char *missing = schema && !format.schema ? "schema" : NULL;
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

void response_fields_echo(const struct response_fields *f, str *out) {
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(f->text, "format");
    add_text(out, "instructions", f->instructions);
    add_count(out, "max_output_tokens", f->gen.has_max_completion_tokens,
              f->gen.max_completion_tokens);
    add_count(out, "max_tool_calls", f->has_max_tool_calls, f->max_tool_calls);
    add_tree(out, "metadata", f->metadata, "{}");
    str_addf(out, ",\"parallel_tool_calls\":%s", f->parallel_tool_calls ? "true" : "false");
    add_text(out, "previous_response_id", f->previous_response_id);
    if (f->conversation) {
        str_add(out, ",\"conversation\":{\"id\":");
        json_add_cstr(out, response_fields_conversation(f));
        str_add_char(out, '}');
    }
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
    response_tools_echo(f->tools, out);
    str_addf(out, ",\"top_logprobs\":%" PRId64 ",\"top_p\":", f->gen.top_logprobs);
    json_add_number(out, f->gen.top_p);
    str_add(out, ",\"truncation\":\"disabled\"");
    const struct {
        const char *name;
        const cJSON *value;
    } labels[] = {{"user", f->gen.user},
                  {"safety_identifier", f->gen.safety_identifier},
                  {"prompt_cache_key", f->gen.prompt_cache_key}};
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++)
        if (cJSON_IsString(labels[i].value))
            add_text(out, labels[i].name, labels[i].value->valuestring);
}
