/* ollama/read.c - reads bodies of Ollama's API: tables of fields, options, messages. Pure; pool
 * threads.
 *
 * Sampling options have Ollama's defaults, so that its clients get the answers they expect. Options
 * for loading a model are part of the server's configuration, so they are ignored. */
#include "api/generate/api_state.h"
#include "api/generate/body.h"
#include "api/generate/model_admin.h"
#include "api/generate/tools.h"
#include "api/http/auth.h"
#include "api/http/ignored.h"
#include "api/http/request.h"
#include "api/ollama/ollama.h"
#include "core/base/duration.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(member)  .offset = offsetof(struct ollama_fields, member)
#define HAS(member) .has = 1 + offsetof(struct ollama_fields, member)

/* Sampling parameters with Ollama's defaults. */
#define SAMPLING(DEFAULT, NAME, KIND, LEAST, MOST, INITIAL, HELP)                                  \
    {                                                                                              \
        .name = #NAME, .flags = NUL, AT(gen.NAME), HAS(gen.sent.NAME), .initial = DEFAULT,         \
        GEN_SAMPLING(KIND, LEAST, MOST, HELP)                                                      \
    }

enum { NUL = JSON_NULLABLE };

#define ADVISORY(field, reason)                                                                    \
    { .name = field, .type = JSON_ADVISORY, .flags = NUL, .why = reason }
#define LOADING(field) ADVISORY(field, "it is set when the server starts")
#define ONLY(field, test, reason)                                                                  \
    { .name = field, .type = JSON_REFUSED, .flags = NUL, .accepts = test, .why = reason }

static bool is_zero(const cJSON *v) {
    return cJSON_IsNumber(v) && v->valuedouble == 0;
}

#define KEEP_ALIVE                                                                                 \
    {                                                                                              \
        .name = "keep_alive", .type = JSON_VALUE, .flags = NUL | JSON_OR_NUMBER | JSON_OR_STRING,  \
        AT(keep_alive),                                                                            \
        .help = "How long the model stays loaded after its last request: seconds, or \"5m\", "     \
                "\"1h30m\"; negative: for ever; 0: it leaves with this request. For "              \
                "administrators, with load-on-demand, and for models that the key model does not " \
                "name; otherwise it is ignored. 0 without a prompt always unloads, for "           \
                "administrators."                                                                  \
    }

/* ---- tables ---- */

static const struct json_field option_fields[] = {
    {.name = "num_predict",
     .type = JSON_INT,
     .flags = NUL,
     AT(gen.max_tokens),
     HAS(gen.has_max_tokens),
     .min = -2,
     .max = 2147483647.0,
     .initial = "-1",
     .help = "Maximum tokens of the answer; 0 or less: up to the context length."},
    SAMPLING_TEMPERATURE(SAMPLING, "0.8"),
    SAMPLING_TOP_K(SAMPLING, "40"),
    SAMPLING_TOP_P(SAMPLING, "0.9"),
    SAMPLING_MIN_P(SAMPLING, "0"),
    {.name = "seed",
     .type = JSON_INT,
     .flags = NUL,
     AT(gen.seed),
     HAS(gen.has_seed),
     .min = -9223372036854775808.0,
     .max = 9223372036854775808.0},
    {.name = "stop",
     .type = JSON_VALUE,
     .flags = NUL | JSON_OR_STRING | JSON_OR_ARRAY,
     AT(gen.stop),
     .help = "Up to 16 stop strings of at most 4096 bytes each."},
    SAMPLING_PRESENCE_PENALTY(SAMPLING, "0"),
    SAMPLING_FREQUENCY_PENALTY(SAMPLING, "0"),
    {.name = "num_ctx",
     .type = JSON_NUMBER,
     .flags = NUL,
     AT(num_ctx),
     .min = 1,
     .max = 2147483647.0,
     .help = "The server's context length always applies; a larger value is ignored."},
    LOADING("num_keep"),
    LOADING("num_batch"),
    LOADING("num_gpu"),
    LOADING("main_gpu"),
    LOADING("num_thread"),
    LOADING("numa"),
    LOADING("low_vram"),
    LOADING("vocab_only"),
    LOADING("use_mmap"),
    LOADING("use_mlock"),
};
_Static_assert(offsetof(struct ollama_fields, gen) == 0, "gen_sampler_table's rows assume it");
const struct json_table ollama_option_table = JSON_TABLE(option_fields, &gen_sampler_table);

static const struct json_field common_fields[] = {
    {.name = "model", .type = JSON_STRING, .flags = JSON_REQUIRED, AT(model), .min = 1},
    {.name = "stream", .type = JSON_BOOL, .flags = NUL, AT(stream), .initial = "true"},
    {.name = "format",
     .type = JSON_VALUE,
     .flags = NUL | JSON_OR_STRING | JSON_OR_OBJECT,
     AT(format),
     .help = "\"json\" or a JSON Schema."},
    {.name = "options",
     .type = JSON_OBJECT,
     .flags = NUL,
     AT(options),
     .table = &ollama_option_table},
    {.name = "think",
     .type = JSON_VALUE,
     .flags = NUL | JSON_OR_BOOL | JSON_OR_STRING,
     AT(think),
     .help = "A boolean sets enable_thinking of the chat template, \"low\", \"medium\", \"high\" "
             "its reasoning_effort; ignored if it does not use that."},
    KEEP_ALIVE,
};
static const struct json_table common_table = JSON_TABLE(common_fields, NULL);

struct function {
    const char *name;
    const cJSON *arguments;
};
static const struct json_field function_fields[] = {
    {.name = "name",
     .type = JSON_STRING,
     .flags = JSON_REQUIRED,
     .offset = offsetof(struct function, name),
     .min = 1},
    {.name = "arguments",
     .type = JSON_OBJECT,
     .flags = JSON_REQUIRED,
     .offset = offsetof(struct function, arguments)},
    ADVISORY("index", "calls are in their order"),
};
static const struct json_table function_table = JSON_TABLE(function_fields, NULL);

struct call {
    const cJSON *function;
    const char *id, *type;
};
static const struct json_field call_fields[] = {
    {.name = "function",
     .type = JSON_OBJECT,
     .flags = JSON_REQUIRED,
     .offset = offsetof(struct call, function),
     .table = &function_table},
    {.name = "id", .type = JSON_STRING, .flags = NUL, .offset = offsetof(struct call, id)},
    {.name = "type",
     .type = JSON_ENUM,
     .flags = NUL,
     .offset = offsetof(struct call, type),
     .words = "function"},
};
static const struct json_table call_table = JSON_TABLE(call_fields, NULL);

struct message {
    const char *role, *content, *thinking, *tool_name, *tool_call_id;
    const cJSON *tool_calls;
};
static const struct json_field message_fields[] = {
    {.name = "role",
     .type = JSON_ENUM,
     .flags = JSON_REQUIRED,
     .offset = offsetof(struct message, role),
     .words = "system|developer|user|assistant|tool"},
    {.name = "content",
     .type = JSON_STRING,
     .flags = NUL | JSON_WITH_NUL,
     .offset = offsetof(struct message, content)},
    {.name = "thinking",
     .type = JSON_STRING,
     .flags = NUL | JSON_WITH_NUL,
     .offset = offsetof(struct message, thinking)},
    {.name = "tool_calls",
     .type = JSON_ARRAY,
     .flags = NUL,
     .offset = offsetof(struct message, tool_calls),
     .table = &call_table},
    {.name = "tool_name",
     .type = JSON_STRING,
     .flags = NUL,
     .offset = offsetof(struct message, tool_name)},
    {.name = "tool_call_id",
     .type = JSON_STRING,
     .flags = NUL,
     .offset = offsetof(struct message, tool_call_id)},
    ONLY("images", NULL, "images are not supported"),
};
static const struct json_table message_table = JSON_TABLE(message_fields, NULL);

static const struct json_field chat_fields[] = {
    {.name = "messages",
     .type = JSON_ARRAY,
     .flags = NUL | JSON_WITH_NUL | JSON_ECHOED,
     AT(messages),
     .table = &message_table,
     .help = "Without messages the answer is empty, as when Ollama loads a model."},
    {.name = "tools",
     .type = JSON_ARRAY,
     .flags = NUL,
     AT(gen.tools),
     .max = CHAT_MAX_TOOLS,
     .table = &tool_table},
    ONLY("logprobs", NULL, "use /v1/chat/completions"),
    ONLY("top_logprobs", is_zero, "use /v1/chat/completions"),
};
const struct json_table ollama_chat_table = JSON_TABLE(chat_fields, &common_table);

static const struct json_field generate_fields[] = {
    {.name = "prompt",
     .type = JSON_STRING,
     .flags = NUL | JSON_WITH_NUL,
     AT(prompt),
     .help = "Becomes a user message, unless raw is set. Without a prompt the answer is empty."},
    {.name = "system", .type = JSON_STRING, .flags = NUL | JSON_WITH_NUL, AT(system)},
    {.name = "raw",
     .type = JSON_BOOL,
     .flags = NUL,
     AT(raw),
     .initial = "false",
     .help = "Passes the prompt to the model without a chat template."},
    {.name = "parse_special",
     .type = JSON_BOOL,
     .flags = NUL,
     AT(gen.parse_special),
     .initial = "true",
     .help = "With raw: control tokens that the prompt spells are those tokens; false: they are "
             "text. An extension."},
    {.name = "suffix",
     .type = JSON_STRING,
     .flags = NUL,
     AT(suffix),
     .help = "The answer is the text between prompt and suffix, without a chat template; only for "
             "models with fill-in-the-middle tokens."},
    ONLY("images", NULL, "images are not supported"),
    ONLY("template", NULL, "the model's own template is used"),
    ONLY("context", NULL, "send the conversation to /api/chat"),
    ONLY("logprobs", NULL, "use /v1/completions"),
    ONLY("top_logprobs", is_zero, "use /v1/completions"),
};
const struct json_table ollama_generate_table = JSON_TABLE(generate_fields, &common_table);

static const struct json_field show_fields[] = {
    {.name = "model", .type = JSON_STRING, AT(model), .min = 1},
    {.name = "name", .type = JSON_STRING, AT(name), .min = 1, .help = "Older name of model."},
    ADVISORY("verbose", "the vocabulary is not listed"),
    ADVISORY("system", "a name's system prompt is shown as it was created"),
    ADVISORY("template", "the model's own template is used"),
    ADVISORY("options", "a name's parameters are shown as they were created"),
};
const struct json_table ollama_show_table = JSON_TABLE(show_fields, NULL);

#define VECTOR_FIELDS                                                                              \
    ADVISORY("options", "the server's context length applies, and vectors do not depend on "       \
                        "sampling"),                                                               \
        KEEP_ALIVE

static const struct json_field embed_fields[] = {
    {.name = "model", .type = JSON_STRING, .flags = JSON_REQUIRED, AT(model), .min = 1},
    {.name = "input",
     .type = JSON_VALUE,
     .flags = NUL | JSON_OR_STRING | JSON_OR_ARRAY | JSON_WITH_NUL,
     AT(input),
     .help = "A text or an array of at most 2048 texts. Without one the answer has no vectors."},
    {.name = "truncate",
     .type = JSON_BOOL,
     .flags = NUL,
     AT(truncate),
     .initial = "true",
     .help = "Cuts the end of texts beyond the context length; false: they are refused."},
    {.name = "dimensions",
     .type = JSON_INT,
     .flags = NUL,
     AT(dimensions),
     .max = 1 << 30,
     .initial = "0",
     .help = "Truncates to this many dimensions and renormalizes; only for models trained for it "
             "(Matryoshka). 0: all."},
    VECTOR_FIELDS,
};
const struct json_table ollama_embed_table = JSON_TABLE(embed_fields, NULL);

static const struct json_field embeddings_fields[] = {
    {.name = "model", .type = JSON_STRING, .flags = JSON_REQUIRED, AT(model), .min = 1},
    {.name = "prompt",
     .type = JSON_VALUE,
     .flags = NUL | JSON_OR_STRING | JSON_WITH_NUL,
     AT(input),
     .help = "Its end is cut beyond the context length. Without it the vector is empty."},
    VECTOR_FIELDS,
};
const struct json_table ollama_embeddings_table = JSON_TABLE(embeddings_fields, NULL);

/* ---- reading ---- */

static int read_options(struct ollama_fields *f, err *e) {
    int rc = json_read(f->options, &ollama_option_table, "options.", f, e);
    if (rc) return rc;
    f->gen.zero_is_no_limit = true;
    return 0;
}

static int read_keep_alive(struct ollama_fields *f, err *e) {
    const cJSON *v = f->keep_alive;
    if (!v) return 0;
    f->has_keep = true;
    if (cJSON_IsNumber(v)) {
        f->keep_ms = duration_of_seconds(v->valuedouble);
        return 0;
    }
    if (duration_parse(v->valuestring, &f->keep_ms)) return 0;
    return err_set_param(e, ERR_INVALID, "keep_alive",
                         "Invalid value for 'keep_alive': expected seconds or a duration such as "
                         "\"5m\".");
}

int ollama_keep(struct request *r, const struct ollama_fields *f, err *e) {
    const struct model_admin *admin = r->api->config.admin;
    if (!f->has_keep) return 0;
    if (!admin || !admin->load_on_demand || !auth_is_admin(r) ||
        !admin->keep(admin->host, r->model->id, f->keep_ms))
        return ignored_add(r->ignored, "keep_alive", e);
    return 0;
}

int ollama_fields_parse(const cJSON *body, const struct json_table *table, struct ollama_fields *f,
                        err *e) {
    memset(f, 0, sizeof *f);
    gen_fields_default(&f->gen);
    f->gen.temperature = 0.8;
    f->gen.top_k = 40;
    f->gen.top_p = 0.9;
    f->gen.stop_name = "options.stop";
    f->stream = true;
    f->truncate = true;
    int rc = gen_body_read(body, table, f, e);
    if (!rc && f->options) rc = read_options(f, e);
    if (rc) return rc;
    f->gen.stream = f->stream;
    if (!f->model) f->model = f->name;
    if (!f->model)
        return err_set_param(e, ERR_INVALID, "model", "Missing required parameter: 'model'.");
    return read_keep_alive(f, e);
}

int ollama_fields_find(struct request *r, const struct ollama_fields *f, err *e) {
    int rc = ollama_find_model(r, f->model, e);
    if (rc) return rc;
    uint32_t context = engine_context_length(r->model->engine);
    return f->num_ctx > context ? ignored_add(r->ignored, "options.num_ctx", e) : 0;
}

int ollama_fields_read(struct request *r, const cJSON *body, const struct json_table *table,
                       struct ollama_fields *f, err *e) {
    int rc = ollama_fields_parse(body, table, f, e);
    return rc ? rc : ollama_fields_find(r, f, e);
}

static int add_calls(cJSON *m, const cJSON *calls, const char *path, err *e) {
    cJSON *list = cJSON_AddArrayToObject(m, "tool_calls");
    int i = 0;
    for (const cJSON *v = calls->child; v; v = v->next, i++) {
        char name[JSON_PATH_BYTES], id[32];
        struct call call = {0};
        struct function function = {0};
        json_path(name, "%s.tool_calls[%d].", path, i);
        int rc = json_read(v, &call_table, name, &call, e);
        json_path(name, "%s.tool_calls[%d].function.", path, i);
        if (!rc) rc = json_read(call.function, &function_table, name, &function, e);
        if (rc) return rc;
        cJSON *out = cJSON_CreateObject();
        bool ok = list && out && cJSON_AddItemToArray(list, out);
        if (!ok) cJSON_Delete(out);
        snprintf(id, sizeof id, "call_%d", i);
        ok = ok && cJSON_AddStringToObject(out, "id", call.id ? call.id : id) &&
             cJSON_AddStringToObject(out, "type", "function");
        cJSON *inner = ok ? cJSON_AddObjectToObject(out, "function") : NULL;
        cJSON *arguments = inner ? cJSON_Duplicate(function.arguments, true) : NULL;
        ok = arguments && cJSON_AddStringToObject(inner, "name", function.name) &&
             cJSON_AddItemToObject(inner, "arguments", arguments);
        if (!ok) {
            cJSON_Delete(arguments);
            return err_no_memory(e);
        }
    }
    return 0;
}

static int add_message(cJSON *list, const cJSON *v, const char *path, err *e) {
    char prefix[JSON_PATH_BYTES];
    struct message m = {0};
    json_path(prefix, "%s.", path);
    int rc = json_read(v, &message_table, prefix, &m, e);
    if (rc) return rc;
    cJSON *out = cJSON_CreateObject();
    bool ok = out && cJSON_AddItemToArray(list, out);
    if (!ok) cJSON_Delete(out);
    ok = ok && cJSON_AddStringToObject(out, "role", m.role) &&
         cJSON_AddStringToObject(out, "content", m.content ? m.content : "");
    if (ok && m.thinking)
        ok = cJSON_AddStringToObject(out, "reasoning_content", m.thinking) != NULL;
    if (ok && m.tool_name) ok = cJSON_AddStringToObject(out, "name", m.tool_name) != NULL;
    if (ok && m.tool_call_id)
        ok = cJSON_AddStringToObject(out, "tool_call_id", m.tool_call_id) != NULL;
    if (!ok) return err_no_memory(e);
    return m.tool_calls && m.tool_calls->child ? add_calls(out, m.tool_calls, path, e) : 0;
}

/* A prompt becomes a conversation of one message; an empty system prompt is none. */
static int add_prompt(const struct ollama_fields *f, cJSON *list, err *e) {
    const char *const roles[] = {"system", "user"}, *const texts[] = {f->system, f->prompt};
    for (int i = 0; i < 2; i++) {
        if (!texts[i] || (i == 0 && !*texts[i])) continue;
        cJSON *m = cJSON_CreateObject();
        bool ok = m && cJSON_AddItemToArray(list, m);
        if (!ok) cJSON_Delete(m);
        if (!ok || !cJSON_AddStringToObject(m, "role", roles[i]) ||
            !cJSON_AddStringToObject(m, "content", texts[i]))
            return err_no_memory(e);
    }
    return 0;
}

static int read_think(const cJSON *think, const chat_template *chat, struct chat_request *q,
                      err *e) {
    bool switches = chat && chat_template_uses(chat, "enable_thinking");
    bool levels = chat && chat_template_uses(chat, "reasoning_effort");
    if (cJSON_IsString(think) && levels)
        return chat_request_set(q, "reasoning_effort", cJSON_CreateString(think->valuestring), e);
    if (cJSON_IsBool(think) && switches)
        return chat_request_set(q, "enable_thinking", cJSON_CreateBool(cJSON_IsTrue(think)), e);
    return cJSON_IsFalse(think) ? 0 : ignored_add(q->ignored, "think", e);
}

static int read_format(const cJSON *format, struct chat_request *q, err *e) {
    if (cJSON_IsObject(format)) {
        q->format = (struct chat_format){.kind = CHAT_FORMAT_SCHEMA, .value = format};
        return 0;
    }
    if (!*format->valuestring) return 0; /* clients send "" for no format */
    if (strcmp(format->valuestring, "json") != 0)
        return err_set_param(e, ERR_INVALID, "format",
                             "Invalid value for 'format': expected \"json\" or a JSON Schema.");
    q->format.kind = CHAT_FORMAT_OBJECT;
    return 0;
}

int ollama_chat_read(const struct ollama_fields *f, const struct api_model *m,
                     struct chat_request *q, err *e) {
    int rc = 0, i = 0;
    q->param_format = "format";
    q->messages = cJSON_CreateArray();
    if (!q->messages) return err_no_memory(e);
    for (const cJSON *v = f->messages ? f->messages->child : NULL; v && !rc; v = v->next) {
        char path[JSON_PATH_BYTES];
        json_path(path, "messages[%d]", i++);
        rc = add_message(q->messages, v, path, e);
    }
    if (!rc) rc = add_prompt(f, q->messages, e);
    if (!rc) rc = chat_tools_read(&f->gen, q, e);
    if (!rc && f->think) rc = read_think(f->think, m->chat, q, e);
    if (!rc && f->format) rc = read_format(f->format, q, e);
    return rc;
}
