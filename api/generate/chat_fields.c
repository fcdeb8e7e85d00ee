/* chat_fields.c - the fields of a chat body beside its messages. Pure; pool threads. */
#include "api/generate/chat_body.h"
#include "api/generate/structured.h"
#include "api/generate/tools.h"
#include "api/http/ignored.h"
#include "api/http/request.h"
#include "core/chat/syntax.h"

#include <stdio.h>
#include <string.h>

#define AT(member)  .offset = offsetof(struct gen_fields, member)
#define HAS(member) .has = 1 + offsetof(struct gen_fields, member)

static bool is_text_only(const cJSON *v) {
    const char *word = cJSON_IsArray(v) ? cJSON_GetStringValue(v->child) : NULL;
    return !cJSON_GetArraySize(v) || (word && !v->child->next && strcmp(word, "text") == 0);
}

static bool is_true(const cJSON *v) {
    return cJSON_IsTrue(v);
}

enum { NUL = JSON_NULLABLE };

#define REFUSED(name, test, reason)                                                                \
    { name, JSON_REFUSED, NUL, .accepts = (test), .why = (reason) }
#define ADVISORY(name, harmless, reason)                                                           \
    { name, JSON_ADVISORY, NUL, .words = (harmless), .why = (reason) }

struct thinking {
    const char *type;
};
static const struct json_field thinking_fields[] = {
    {"type", JSON_ENUM, JSON_REQUIRED, .offset = offsetof(struct thinking, type),
     .words = "enabled|disabled|adaptive|auto"},
    ADVISORY("budget_tokens", NULL, "max_tokens limits thinking and answer together"),
};
static const struct json_table thinking_table = JSON_TABLE(thinking_fields, NULL);

struct reasoning {
    const char *effort;
    bool enabled, has_enabled;
};
static const struct json_field reasoning_fields[] = {
    {"effort", JSON_STRING, NUL, .offset = offsetof(struct reasoning, effort)},
    {"enabled", JSON_BOOL, NUL, .offset = offsetof(struct reasoning, enabled),
     .has = 1 + offsetof(struct reasoning, has_enabled)},
    ADVISORY("max_tokens", NULL, "max_tokens limits thinking and answer together"),
    ADVISORY("exclude", NULL, "thinking is a member of its own"),
    ADVISORY("summary", "auto", "thinking is returned in full, not summarized"),
};
static const struct json_table reasoning_table = JSON_TABLE(reasoning_fields, NULL);

static const struct json_field fields[] = {
    {"messages", JSON_ARRAY, JSON_REQUIRED | JSON_WITH_NUL | JSON_ECHOED, AT(messages), .min = 1,
     .table = &chat_message_table},
    {"max_tokens", JSON_INT, NUL, AT(max_tokens), HAS(has_max_tokens), -1, 2147483647.0,
     .help = "0 and -1: up to the context length."},
    {"max_completion_tokens", JSON_INT, NUL, AT(max_completion_tokens),
     HAS(has_max_completion_tokens), -1, 2147483647.0, .help = "As max_tokens."},
    {"logprobs", JSON_BOOL, NUL, AT(logprobs)},
    {"top_logprobs", JSON_INT, NUL, AT(top_logprobs), HAS(has_top_logprobs), 0,
     ENGINE_MAX_TOP_LOGPROBS},
    {"chat_template_kwargs", JSON_VALUE, NUL, AT(chat_template_kwargs)},
    {"documents", JSON_VALUE, NUL, AT(documents)},
    {"reasoning_effort", JSON_STRING, NUL, AT(reasoning_effort),
     .help = "Ignored if the chat template does not use it; none disables thinking if the template "
             "allows that."},
    {"enable_thinking", JSON_BOOL, NUL, AT(enable_thinking), HAS(has_enable_thinking),
     .help = "Switches thinking on or off; ignored if the chat template cannot."},
    {"think", JSON_VALUE, NUL | JSON_OR_BOOL | JSON_OR_STRING, AT(think),
     .help = "Ollama's: as enable_thinking, or as reasoning_effort."},
    {"thinking", JSON_OBJECT, NUL, AT(thinking), .table = &thinking_table,
     .help = "Anthropic's: as enable_thinking."},
    {"reasoning", JSON_OBJECT, NUL, AT(reasoning), .table = &reasoning_table,
     .help = "OpenRouter's: as reasoning_effort and enable_thinking."},
    ADVISORY("thinking_budget", NULL, "max_tokens limits thinking and answer together"),
    ADVISORY("thinking_budget_tokens", NULL, "max_tokens limits thinking and answer together"),
    ADVISORY("reasoning_budget", NULL, "max_tokens limits thinking and answer together"),
    ADVISORY("reasoning_format", "auto|deepseek", "thinking is a member of its own"),
    {"include_reasoning", JSON_ADVISORY, NUL, .accepts = is_true,
     .why = "thinking is a member of its own"},
    {"parse_tool_calls", JSON_ADVISORY, NUL, .accepts = is_true, .why = "calls are always parsed"},
    REFUSED("chat_template", NULL, "the model's own template is used (see chat-template)"),
    {"add_generation_prompt", JSON_BOOL, NUL, AT(add_generation_prompt),
     HAS(has_add_generation_prompt)},
    {"continue_final_message", JSON_BOOL, NUL, AT(continue_final_message)},
    {"tools", JSON_ARRAY, NUL, AT(tools), .max = CHAT_MAX_TOOLS, .table = &tool_table,
     .help =
         "Functions that the model may call; the generated arguments follow their JSON Schema."},
    {"tool_choice", JSON_VALUE, NUL | JSON_OR_STRING | JSON_OR_OBJECT, AT(tool_choice),
     .table = &tool_choice_table, .help = "auto, none, required, a function or allowed_tools."},
    {"parallel_tool_calls", JSON_BOOL, NUL, AT(parallel_tool_calls), .initial = "true",
     .help = "Allow more than one call in an answer."},
    {"response_format", JSON_OBJECT, NUL, AT(response_format), .table = &response_format_table},
    {"structured_outputs", JSON_OBJECT, NUL, AT(structured_outputs),
     .table = &structured_outputs_table,
     .help = "Constrains the answer; exactly one member. With tools, a call may come instead."},
    {"guided_json", JSON_VALUE, NUL | JSON_OR_OBJECT | JSON_OR_STRING | JSON_OR_BOOL,
     AT(guided_json), .help = "As structured_outputs.json."},
    {"guided_regex", JSON_STRING, NUL, AT(guided_regex), .min = 1,
     .help = "As structured_outputs.regex."},
    {"guided_choice", JSON_ARRAY, NUL, AT(guided_choice), .min = 1,
     .help = "As structured_outputs.choice."},
    {"guided_grammar", JSON_STRING, NUL, AT(guided_grammar), .min = 1,
     .help = "As structured_outputs.grammar."},
    {"json_schema", JSON_VALUE, NUL | JSON_OR_OBJECT | JSON_OR_STRING | JSON_OR_BOOL,
     AT(json_schema), .help = "llama.cpp's: as structured_outputs.json."},
    {"grammar", JSON_STRING, NUL, AT(grammar),
     .help = "llama.cpp's: as structured_outputs.grammar; \"\": none."},
    ADVISORY("service_tier", "auto|default", "there is only one tier"),
    ADVISORY("verbosity", "medium", "chat templates do not know it"),
    {"safety_identifier", JSON_ADVISORY, NUL | JSON_KEPT, AT(safety_identifier),
     .why = "answers do not depend on the user"},
    {"prompt_cache_key", JSON_ADVISORY, NUL | JSON_KEPT, AT(prompt_cache_key),
     .why = "prefixes are cached automatically; to separate caches, see cache_salt"},
    ADVISORY("prompt_cache_retention", NULL, "prefixes are cached automatically"),
    ADVISORY("prompt_cache_options", NULL, "prefixes are cached automatically"),
    {"store", JSON_BOOL, NUL, AT(store), .initial = "false",
     .help = "Keeps the completion for GET /v1/chat/completions; ignored if the server stores "
             "nothing."},
    {"metadata", JSON_VALUE, NUL | JSON_WITH_NUL, AT(metadata),
     .help = "With store an object of up to 16 strings of up to 512 characters, kept with the "
             "completion; without it anything, which is ignored."},
    ADVISORY("prediction", NULL, "predicted output changes the speed, not the answer"),
    ADVISORY("web_search_options", NULL, "the server has no web search"),
    ADVISORY("moderation", NULL, "the server does not moderate"),
    REFUSED("functions", NULL, "it is deprecated: use 'tools'"),
    {"function_call", JSON_REFUSED, NUL, .words = "auto|none",
     .why = "it is deprecated: use 'tool_choice'"},
    REFUSED("modalities", is_text_only, "only [\"text\"] is supported"),
    REFUSED("audio", NULL, "audio is not supported"),
};
const struct json_table chat_table = JSON_TABLE(fields, &gen_table);

/* ---- what a template sees beside the messages ---- */

enum { MAX_KWARGS = 64, MAX_DOCUMENTS = 1024, MAX_EFFORT_BYTES = 32 };

/* Names that clients must not set. */
static bool is_reserved(const char *name) {
    static const char *const names[] = {"messages",
                                        "tools",
                                        "documents",
                                        "add_generation_prompt",
                                        "continue_final_message",
                                        "bos_token",
                                        "eos_token",
                                        "raise_exception",
                                        "strftime_now"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

static int check_kwargs(const cJSON *kwargs, err *e) {
    static const char param[] = "chat_template_kwargs";
    if (!cJSON_IsObject(kwargs)) return json_wrong_type(param, "an object", kwargs, e);
    int n = 0;
    for (const cJSON *v = kwargs->child; v; v = v->next) {
        if (is_reserved(v->string))
            return err_set_param(e, ERR_INVALID, param,
                                 "Invalid value for '%s': '%s' cannot be set here.", param,
                                 v->string);
        if (++n > MAX_KWARGS)
            return err_set_param(e, ERR_INVALID, param,
                                 "Invalid value for '%s': at most %d members.", param, MAX_KWARGS);
    }
    return 0;
}

static int check_documents(const cJSON *documents, err *e) {
    int i = 0;
    if (!cJSON_IsArray(documents)) return json_wrong_type("documents", "an array", documents, e);
    for (const cJSON *v = documents->child; v; v = v->next, i++) {
        char name[JSON_PATH_BYTES];
        json_path(name, "documents[%d]", i);
        if (!cJSON_IsObject(v)) return json_wrong_type(name, "an object", v, e);
        if (i >= MAX_DOCUMENTS)
            return err_set_param(e, ERR_INVALID, "documents",
                                 "Invalid value for 'documents': at most %d.", MAX_DOCUMENTS);
    }
    return 0;
}

static void set_switch(struct chat_thought *t, bool on, const char *name) {
    t->on = on;
    t->switch_name = name;
}

static void set_effort(struct chat_thought *t, const char *effort, const char *name) {
    t->effort = effort;
    t->effort_name = name;
}

static int read_thought(const struct gen_fields *f, const char *effort_name, struct chat_thought *t,
                        err *e) {
    struct thinking thinking = {0};
    struct reasoning reasoning = {0};
    int rc = 0;
    if (f->has_enable_thinking) set_switch(t, f->enable_thinking, "enable_thinking");
    if (cJSON_IsBool(f->think)) set_switch(t, cJSON_IsTrue(f->think), "think");
    if (cJSON_IsString(f->think)) set_effort(t, f->think->valuestring, "think");
    if (f->thinking) {
        rc = json_read(f->thinking, &thinking_table, "thinking.", &thinking, e);
        /* adaptive, auto: as the template has it */
        if (!rc && strcmp(thinking.type, "enabled") == 0) set_switch(t, true, "thinking");
        if (!rc && strcmp(thinking.type, "disabled") == 0) set_switch(t, false, "thinking");
    }
    if (!rc && f->reasoning) {
        rc = json_read(f->reasoning, &reasoning_table, "reasoning.", &reasoning, e);
        if (reasoning.has_enabled) set_switch(t, reasoning.enabled, "reasoning.enabled");
        if (reasoning.effort) set_effort(t, reasoning.effort, "reasoning.effort");
    }
    if (f->reasoning_effort) set_effort(t, f->reasoning_effort, effort_name);
    if (!rc && t->effort && strlen(t->effort) > MAX_EFFORT_BYTES)
        rc = err_set_param(e, ERR_INVALID, t->effort_name,
                           "Invalid value for '%s': it is too long.", t->effort_name);
    return rc;
}

/* Gives the template its variable, unless chat_template_kwargs has it. */
static int set_variable(struct chat_request *q, const char *name, cJSON *value, err *e) {
    if (!cJSON_HasObjectItem(q->extra, name)) return chat_request_set(q, name, value, e);
    cJSON_Delete(value);
    return 0;
}

int chat_thought_apply(const struct chat_thought *t, const chat_template *chat,
                       struct chat_request *q, err *e) {
    static const char *const switches[] = {"enable_thinking", "thinking"};
    bool none = t->effort && strcmp(t->effort, "none") == 0;
    const char *name = t->switch_name ? t->switch_name : none ? t->effort_name : NULL;
    bool on = t->switch_name ? t->on : false, used = false, effort_used = false;
    int rc = 0;
    for (size_t i = 0; i < 2 && name && !rc; i++) {
        if (!chat || !chat_template_uses(chat, switches[i])) continue;
        used = true;
        rc = set_variable(q, switches[i], cJSON_CreateBool(on), e);
    }
    if (!rc && t->effort && chat && chat_template_uses(chat, "reasoning_effort")) {
        effort_used = true;
        rc = set_variable(q, "reasoning_effort", cJSON_CreateString(t->effort), e);
    }
    bool silent = !on && chat && !*chat_template_syntax(chat)->reasoning_open;
    if (!rc && t->switch_name && !used && !silent && !t->optional)
        rc = ignored_add(q->ignored, t->switch_name, e);
    if (!rc && t->effort && !effort_used && !(none && (used || silent)))
        rc = ignored_add(q->ignored, t->effort_name, e);
    return rc;
}

/* Names what the template does not use: documents, and members of chat_template_kwargs. */
static int note_unused(const struct gen_fields *f, const chat_template *chat,
                       struct chat_request *q, err *e) {
    int rc = 0;
    if (!chat) return 0;
    if (f->documents && f->documents->child && !chat_template_uses(chat, "documents"))
        rc = ignored_add(q->ignored, "documents", e);
    const cJSON *kwargs = f->chat_template_kwargs;
    for (const cJSON *v = kwargs ? kwargs->child : NULL; v && !rc; v = v->next) {
        if (chat_template_uses(chat, v->string)) continue;
        rc = ignored_add_member(q->ignored, "chat_template_kwargs.", v->string, e);
    }
    return rc;
}

int chat_fields_read(const struct gen_fields *f, const chat_template *chat, struct chat_request *q,
                     err *e) {
    const cJSON *kwargs = f->chat_template_kwargs;
    struct chat_thought thought = {0};
    int rc = 0;
    if (f->continue_final_message && f->has_add_generation_prompt && f->add_generation_prompt)
        rc = err_set_param(e, ERR_INVALID, "continue_final_message",
                           "'continue_final_message' continues the last message, "
                           "'add_generation_prompt' starts a new one: set only one.");
    if (!rc && kwargs) rc = check_kwargs(kwargs, e);
    if (!rc && f->documents) rc = check_documents(f->documents, e);
    if (!rc) rc = note_unused(f, chat, q, e);
    if (!rc) rc = read_thought(f, q->param_effort, &thought, e);
    if (rc) return rc;
    q->documents = f->documents;
    q->continue_final_message = f->continue_final_message;
    q->add_generation_prompt =
        f->has_add_generation_prompt ? f->add_generation_prompt : !f->continue_final_message;
    if (kwargs && !(q->extra = cJSON_Duplicate(kwargs, true))) return err_no_memory(e);
    return chat_thought_apply(&thought, chat, q, e);
}

int chat_body_read(struct request *r, const cJSON *body, struct gen_request *q,
                   struct chat_request *chat, err *e) {
    chat_request_init(chat, r->ignored);
    gen_fields_default(&q->fields);
    q->fields.zero_is_no_limit = true;
    int rc = gen_request_read(r, body, &chat_table, q, e);
    if (rc) return rc;
    chat->model = q->model;
    chat->options = &q->options;
    rc = chat_messages_read(q->fields.messages, chat, e);
    if (!rc) rc = chat_fields_read(&q->fields, q->model->chat, chat, e);
    if (!rc) rc = chat_tools_read(&q->fields, chat, e);
    return rc ? rc : chat_format_read(&q->fields, chat, e);
}
