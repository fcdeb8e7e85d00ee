/* chat_fields.c - the fields of a chat body beside its messages. Pure; pool threads. */
#include "api/generate/chat_body.h"
#include "api/generate/structured.h"
#include "api/generate/tools.h"

#include <stdio.h>
#include <string.h>

#define AT(member)  .offset = offsetof(struct gen_fields, member)
#define HAS(member) .has = 1 + offsetof(struct gen_fields, member)

static bool is_empty_object(const cJSON *v) {
    return cJSON_IsObject(v) && !v->child;
}

static bool is_text_only(const cJSON *v) {
    const char *word = cJSON_IsArray(v) ? cJSON_GetStringValue(v->child) : NULL;
    return word && !v->child->next && strcmp(word, "text") == 0;
}

enum { NUL = JSON_NULLABLE };

#define REFUSED(name, flags, test, reason)                                                         \
    { name, JSON_REFUSED, flags, .accepts = (test), .why = (reason) }

static const struct json_field fields[] = {
    {"messages", JSON_ARRAY, JSON_REQUIRED | JSON_WITH_NUL, AT(messages), .min = 1,
     .table = &chat_message_table},
    {"max_tokens", JSON_INT, NUL, AT(max_tokens), HAS(has_max_tokens), 1, 2147483647.0},
    {"max_completion_tokens", JSON_INT, NUL, AT(max_completion_tokens),
     HAS(has_max_completion_tokens), 1, 2147483647.0},
    {"logprobs", JSON_BOOL, NUL, AT(logprobs)},
    {"top_logprobs", JSON_INT, NUL, AT(top_logprobs), HAS(has_top_logprobs), 0,
     ENGINE_MAX_TOP_LOGPROBS},
    {"chat_template_kwargs", JSON_VALUE, NUL, AT(chat_template_kwargs)},
    {"documents", JSON_VALUE, NUL, AT(documents)},
    {"reasoning_effort", JSON_STRING, NUL, AT(reasoning_effort),
     .help = "Requires a chat template that uses it; none disables thinking if the template allows "
             "that."},
    {"add_generation_prompt", JSON_BOOL, NUL, AT(add_generation_prompt),
     HAS(has_add_generation_prompt)},
    {"continue_final_message", JSON_BOOL, NUL, AT(continue_final_message)},
    {"tools", JSON_ARRAY, NUL, AT(tools), .max = CHAT_MAX_TOOLS, .table = &tool_table,
     .help =
         "Functions that the model may call; the generated arguments follow their JSON Schema."},
    {"tool_choice", JSON_VALUE, NUL | JSON_OR_STRING | JSON_OR_OBJECT, AT(tool_choice),
     .help = "auto, none, required, a function or allowed_tools."},
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
    {"service_tier", JSON_REFUSED, NUL, .words = "auto|default",
     .why = "only \"auto\" and \"default\" are supported"},
    {"verbosity", JSON_REFUSED, NUL, .words = "medium", .why = "verbosity cannot be set"},
    {"safety_identifier", JSON_STRING, NUL, AT(safety_identifier), .help = "Accepted and ignored."},
    {"prompt_cache_key", JSON_STRING, NUL, AT(prompt_cache_key),
     .help = "Accepted and ignored: prefixes are cached automatically. To separate caches, see "
             "cache_salt."},
    REFUSED("functions", NUL, NULL, "it is deprecated: use 'tools'"),
    REFUSED("function_call", NUL, NULL, "it is deprecated: use 'tool_choice'"),
    REFUSED("modalities", NUL, is_text_only, "only [\"text\"] is supported"),
    REFUSED("audio", NUL, NULL, "audio is not supported"),
    REFUSED("store", NUL, json_is_false, "chat completions are not stored: use /v1/responses"),
    REFUSED("metadata", NUL, is_empty_object, "chat completions are not stored"),
    REFUSED("prediction", NUL, NULL, "predicted outputs are not supported"),
    REFUSED("web_search_options", NUL, NULL, "web search is not supported"),
    REFUSED("moderation", NUL, NULL, "moderation is not supported"),
    REFUSED("prompt_cache_retention", NUL, NULL, "retention of the prefix cache cannot be set"),
    REFUSED("prompt_cache_options", NUL, NULL, "the prefix cache has no options per request"),
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

/* "none" means no thinking. */
static bool switches_thinking_off(const char *effort, const chat_template *chat) {
    return effort && strcmp(effort, "none") == 0 && chat &&
           chat_template_uses(chat, "enable_thinking");
}

static int check_effort(const char *effort, const chat_template *chat, const char *param, err *e) {
    if (switches_thinking_off(effort, chat)) return 0;
    if (!chat || !chat_template_uses(chat, "reasoning_effort"))
        return err_set_param(
            e, ERR_UNSUPPORTED, param,
            "Unsupported value for '%s': the model's chat template does not use it.", param);
    if (strlen(effort) > MAX_EFFORT_BYTES)
        return err_set_param(e, ERR_INVALID, param, "Invalid value for '%s': it is too long.",
                             param);
    return 0;
}

int chat_fields_read(const struct gen_fields *f, const chat_template *chat, struct chat_request *q,
                     err *e) {
    const cJSON *kwargs = f->chat_template_kwargs;
    int rc = 0;
    if (f->continue_final_message && f->has_add_generation_prompt && f->add_generation_prompt)
        rc = err_set_param(e, ERR_INVALID, "continue_final_message",
                           "'continue_final_message' continues the last message, "
                           "'add_generation_prompt' starts a new one: set only one.");
    if (!rc && kwargs) rc = check_kwargs(kwargs, e);
    if (!rc && f->documents) rc = check_documents(f->documents, e);
    if (!rc && f->reasoning_effort)
        rc = check_effort(f->reasoning_effort, chat, q->param_effort, e);
    if (rc) return rc;
    q->documents = f->documents;
    q->continue_final_message = f->continue_final_message;
    q->add_generation_prompt =
        f->has_add_generation_prompt ? f->add_generation_prompt : !f->continue_final_message;
    if (!kwargs && !f->reasoning_effort) return 0;
    q->extra = kwargs ? cJSON_Duplicate(kwargs, true) : cJSON_CreateObject();
    if (!q->extra) return err_no_memory(e);
    bool ok = !f->reasoning_effort || cJSON_HasObjectItem(q->extra, "reasoning_effort") ||
              cJSON_AddStringToObject(q->extra, "reasoning_effort", f->reasoning_effort);
    if (switches_thinking_off(f->reasoning_effort, chat) &&
        !cJSON_HasObjectItem(q->extra, "enable_thinking"))
        ok = ok && cJSON_AddFalseToObject(q->extra, "enable_thinking");
    return ok ? 0 : err_no_memory(e);
}

int chat_body_read(struct request *r, const cJSON *body, struct gen_request *q,
                   struct chat_request *chat, err *e) {
    chat_request_init(chat);
    gen_fields_default(&q->fields);
    int rc = gen_request_read(r, body, &chat_table, q, e);
    if (rc) return rc;
    chat->model = q->model;
    chat->options = &q->options;
    rc = chat_messages_read(q->fields.messages, &chat->messages, e);
    if (!rc) rc = chat_fields_read(&q->fields, q->model->chat, chat, e);
    if (!rc) rc = chat_tools_read(&q->fields, chat, e);
    return rc ? rc : chat_format_read(&q->fields, chat, e);
}
