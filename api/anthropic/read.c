/* anthropic/read.c - translates the body of Anthropic's Messages API to a chat request: tables of
 * fields, tools, thinking; blocks.c does the messages. Pure; pool threads. */
#include "api/anthropic/messages.h"
#include "api/generate/chat_body.h"
#include "api/generate/tools.h"
#include "api/http/ignored.h"

#include <stdio.h>
#include <string.h>

#define AT(member)  .offset = offsetof(struct messages_fields, member)
#define HAS(member) .has = 1 + offsetof(struct messages_fields, member)

#define SAMPLING(FLAGS, NAME, KIND, LEAST, MOST, INITIAL, HELP)                                    \
    {                                                                                              \
        .name = #NAME, .flags = FLAGS, AT(gen.NAME), HAS(gen.sent.NAME), .initial = #INITIAL,      \
        GEN_SAMPLING(KIND, LEAST, MOST, HELP)                                                      \
    }

enum { NUL = JSON_NULLABLE };

/* ---- tables ---- */

struct tool {
    const char *type, *name, *description;
    const cJSON *schema;
    int64_t width, height;
    bool strict, zooms;
};
static const struct json_field tool_fields[] = {
    {.name = "type",
     .type = JSON_STRING,
     .flags = NUL,
     .offset = offsetof(struct tool, type),
     .initial = "\"custom\"",
     .help = "custom, or a tool that Anthropic defines and the client runs: bash_*, text_editor_*, "
             "memory_*, computer_*. Those that a server would have to run are ignored."},
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
};
static const struct json_field any_tool_fields[] = {
    MESSAGES_CACHE_CONTROL,
    MESSAGES_ADVISORY("defer_loading", NULL, "the model sees all tools"),
    MESSAGES_ADVISORY("input_examples", NULL, "chat templates cannot render them"),
    MESSAGES_ADVISORY("eager_input_streaming", NULL,
                      "arguments are streamed as they are generated"),
    MESSAGES_ADVISORY("allowed_callers", NULL, "only the model calls tools"),
};
#define DISPLAY(field, member)                                                                     \
    {                                                                                              \
        .name = field, .type = JSON_INT, .flags = NUL, .offset = offsetof(struct tool, member),    \
        .min = 1, .max = 1 << 20, .help = "Only for computer_*."                                   \
    }
static const struct json_field client_tool_fields[] = {
    {.name = "type",
     .type = JSON_STRING,
     .flags = JSON_REQUIRED,
     .offset = offsetof(struct tool, type)},
    {.name = "name",
     .type = JSON_STRING,
     .flags = JSON_REQUIRED,
     .offset = offsetof(struct tool, name),
     .min = 1},
    {.name = "strict",
     .type = JSON_BOOL,
     .flags = NUL,
     .offset = offsetof(struct tool, strict),
     .initial = "false"},
    DISPLAY("display_width_px", width),
    DISPLAY("display_height_px", height),
    {.name = "enable_zoom",
     .type = JSON_BOOL,
     .flags = NUL,
     .offset = offsetof(struct tool, zooms),
     .initial = "false",
     .help = "Only for computer_*."},
    MESSAGES_ADVISORY("display_number", NULL, "the client knows its display"),
    MESSAGES_ADVISORY("max_characters", NULL, "the client cuts what it shows"),
};
static const struct json_table *own_tool(const cJSON *tool);
static const struct json_table any_tool = JSON_TABLE(any_tool_fields, NULL),
                               client_tool_table = JSON_TABLE(client_tool_fields, &any_tool);
static const struct json_table own_tool_table = {
    tool_fields, sizeof tool_fields / sizeof *tool_fields, &any_tool, own_tool};

/* A tool with a schema is the client's, whatever its type. NULL: a server would have to run it. */
static const struct json_table *own_tool(const cJSON *tool) {
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(tool, "type"));
    if (!type || strcmp(type, "custom") == 0 || cJSON_HasObjectItem(tool, "input_schema"))
        return &own_tool_table;
    return messages_client_runs(type) ? &client_tool_table : NULL;
}

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
};
static const struct json_field thinking_fields[] = {
    {.name = "type",
     .type = JSON_ENUM,
     .flags = JSON_REQUIRED,
     .offset = offsetof(struct thinking, type),
     .words = "enabled|disabled|adaptive"},
    MESSAGES_ADVISORY("budget_tokens", NULL, "max_tokens limits thinking and answer together"),
    {.name = "display",
     .type = JSON_ENUM,
     .flags = NUL,
     .offset = offsetof(struct thinking, display),
     .words = "summarized|omitted",
     .initial = "\"summarized\"",
     .help = "omitted: thinking blocks have no text; summarized: they have the full text."},
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
     .help = "Ignored if the chat template does not use reasoning_effort."},
};
static const struct json_table output_table = JSON_TABLE(output_fields, NULL);

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
     .flags = JSON_REQUIRED | JSON_WITH_NUL | JSON_ECHOED,
     AT(messages),
     .min = 1,
     .table = &messages_turn_table},
    {.name = "system",
     .type = JSON_VALUE,
     .flags = NUL | JSON_WITH_NUL | JSON_OR_STRING | JSON_OR_ARRAY | JSON_ECHOED,
     AT(system),
     .table = &messages_system_table,
     .help = "A text or an array of text blocks."},
    {.name = "tools",
     .type = JSON_ARRAY,
     .flags = NUL,
     AT(tools),
     .max = CHAT_MAX_TOOLS,
     .table = &own_tool_table},
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
     .help = "Ignored if the chat template cannot switch thinking."},
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
    MESSAGES_CACHE_CONTROL,
    MESSAGES_ADVISORY("mcp_servers", NULL, "the server calls no tools"),
    MESSAGES_ADVISORY("context_management", NULL, "the server does not edit conversations"),
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
     HAS(gen.sent.top_k),
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
    MESSAGES_ADVISORY("metadata", NULL, "answers do not depend on the user"),
    MESSAGES_ADVISORY("service_tier", "auto|standard_only", "there is only one tier"),
    {.name = "cache_salt",
     .type = JSON_STRING,
     .flags = NUL,
     AT(gen.cache_salt),
     .min = 1,
     .help = "Only requests with the same salt (and API key) share cached prompts."},
    MESSAGES_ADVISORY("container", NULL, "the server runs no code"),
    MESSAGES_ADVISORY("inference_geo", NULL, "the server runs in one place"),
};
const struct json_table messages_table = JSON_TABLE(fields, &messages_count_table);

/* ---- tools, thinking, the answer's form ---- */

static int make_function(const struct tool *tool, cJSON **out, err *e) {
    cJSON *f = *out = cJSON_CreateObject();
    bool ok = cJSON_AddStringToObject(f, "name", tool->name) &&
              (!tool->description || cJSON_AddStringToObject(f, "description", tool->description));
    cJSON *schema = ok ? cJSON_Duplicate(tool->schema, true) : NULL;
    if (cJSON_AddItemToObject(f, "parameters", schema)) return 0;
    cJSON_Delete(schema);
    cJSON_Delete(f);
    *out = NULL;
    return err_no_memory(e);
}

static int read_tool(const cJSON *v, int i, struct chat_request *q, err *e) {
    char path[JSON_PATH_BYTES];
    struct tool tool = {0};
    cJSON *function = NULL;
    const struct json_table *table = cJSON_IsObject(v) ? own_tool(v) : &own_tool_table;
    json_path(path, "tools[%d].", i);
    int rc = json_read(v, table, path, &tool, e);
    const struct messages_client_tool client = {tool.type, tool.name, tool.width, tool.height,
                                                tool.zooms};
    if (rc) return rc;
    rc = table == &client_tool_table ? messages_client_function(&client, &function, e)
                                     : make_function(&tool, &function, e);
    if (!rc && tool.strict && !cJSON_AddTrueToObject(function, "strict")) {
        cJSON_Delete(function);
        return err_no_memory(e);
    }
    return rc ? rc : chat_tools_add(&q->tools, function, e);
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
    for (const cJSON *v = f->tools ? f->tools->child : NULL; v && !rc; v = v->next, i++)
        if (!cJSON_IsObject(v) || own_tool(v)) rc = read_tool(v, i, q, e);
    return rc || !f->tool_choice ? rc : read_choice(f, q, e);
}

static int read_format(const cJSON *v, const char *path, struct chat_request *q, err *e) {
    struct format format = {0};
    int rc = json_read(v, &format_table, path, &format, e);
    q->format = (struct chat_format){.kind = CHAT_FORMAT_SCHEMA, .value = format.schema};
    return rc;
}

static int read_output(const struct messages_fields *f, struct chat_thought *t,
                       struct chat_request *q, err *e) {
    struct output o = {0};
    int rc = 0;
    if (f->output_config) rc = json_read(f->output_config, &output_table, "output_config.", &o, e);
    if (rc) return rc;
    t->effort = o.effort;
    t->effort_name = "output_config.effort";
    if (o.format && f->output_format)
        return err_set_param(
            e, ERR_INVALID, "output_format",
            "'output_format' and 'output_config.format' mean the same: send only one.");
    if (o.format) return read_format(o.format, "output_config.format.", q, e);
    return f->output_format ? read_format(f->output_format, "output_format.", q, e) : 0;
}

/* Adaptive thinking is a permission, which no model has to use. */
static int read_thinking(struct messages_fields *f, struct chat_thought *t, err *e) {
    struct thinking v = {0};
    int rc = json_read(f->thinking, &thinking_table, "thinking.", &v, e);
    if (rc) return rc;
    t->on = strcmp(v.type, "disabled") != 0;
    f->hides_thinking = v.display && strcmp(v.display, "omitted") == 0;
    t->optional = strcmp(v.type, "adaptive") == 0;
    t->switch_name = "thinking";
    return 0;
}

int messages_read(struct messages_fields *f, const chat_template *chat, struct chat_request *q,
                  err *e) {
    struct chat_thought thought = {0};
    int rc;
    q->param_format = "output_config.format";
    q->param_function = "";
    q->param_schema = "input_schema";
    rc = messages_read_turns(f, q, e);
    if (!rc) rc = read_tools(f, q, e);
    if (!rc) rc = read_output(f, &thought, q, e);
    if (!rc && f->thinking) rc = read_thinking(f, &thought, e);
    return rc ? rc : chat_thought_apply(&thought, chat, q, e);
}
