/* commands/render.c - inferd render: renders messages with the model's chat template, as for a
 * request. */
#include "core/base/clock.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/instrument.h"
#include "daemon/commands/jsonl.h"
#include "daemon/input.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MESSAGES_MAX_BYTES = 16 << 20, TEXT_MAX_BYTES = 64 << 20 };

struct render_args {
    const char *messages, *template_file;
    bool jsonl, no_prompt, no_normalise;
};

struct renderer {
    const chat_template *chat;
    const struct render_args *args;
};

static int render_input(const struct renderer *r, const struct chat_input *in,
                        struct chat_output *out, err *e) {
    return r->args->no_normalise ? chat_render(r->chat, in, TEXT_MAX_BYTES, out, e)
                                 : chat_prompt(r->chat, in, TEXT_MAX_BYTES, out, e);
}

/* A member; NULL if missing or null. */
static const cJSON *find_member(const cJSON *o, const char *name) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);
    return cJSON_IsNull(v) ? NULL : v;
}

static int read_array(const cJSON *o, const char *name, const cJSON **out, err *e) {
    *out = find_member(o, name);
    return !*out || cJSON_IsArray(*out) ? 0 : err_set(e, ERR_INVALID, "%s is not an array", name);
}

static int read_flag(const cJSON *o, const char *name, bool *out, err *e) {
    const cJSON *v = find_member(o, name);
    if (v && !cJSON_IsBool(v)) return err_set(e, ERR_INVALID, "%s is not true or false", name);
    if (v) *out = cJSON_IsTrue(v);
    return 0;
}

static int read_text(const cJSON *o, const char *name, const char **out, err *e) {
    const cJSON *v = find_member(o, name);
    if (v && !cJSON_IsString(v)) return err_set(e, ERR_INVALID, "%s is not a string", name);
    if (v) *out = v->valuestring;
    return 0;
}

/* "2026-11-21T12:00:00", UTC. */
static int read_now(const cJSON *o, int64_t *now, err *e) {
    const char *text = NULL;
    struct tm tm = {0};
    int end = 0, rc = read_text(o, "now", &text, e);
    if (rc || !text) return rc;
    int n = sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
                   &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &end);
    bool ok = n == 6 && (!text[end] || strcmp(text + end, "Z") == 0) && tm.tm_year >= 1970 &&
              tm.tm_mon >= 1 && tm.tm_mon <= 12 && tm.tm_mday >= 1 && tm.tm_mday <= 31 &&
              tm.tm_hour >= 0 && tm.tm_hour < 24 && tm.tm_min >= 0 && tm.tm_min < 60 &&
              tm.tm_sec >= 0 && tm.tm_sec <= 60;
    if (!ok) return err_set(e, ERR_INVALID, "now is not a time such as 2026-11-21T12:00:00");
    tm.tm_year -= 1900;
    tm.tm_mon--;
    *now = timegm(&tm);
    return 0;
}

/* Reads the members of a conversation; in holds the defaults and borrows from o. */
static int read_input(const cJSON *o, struct chat_input *in, err *e) {
    int rc = read_array(o, "messages", &in->messages, e);
    if (!rc && !in->messages) rc = err_set(e, ERR_INVALID, "messages is missing");
    if (!rc) rc = read_array(o, "tools", &in->tools, e);
    if (!rc) rc = read_array(o, "documents", &in->documents, e);
    if (!rc) rc = read_text(o, "bos_token", &in->bos, e);
    if (!rc) rc = read_text(o, "eos_token", &in->eos, e);
    if (!rc) rc = read_flag(o, "continue_final_message", &in->continue_final_message, e);
    if (!rc && in->continue_final_message) in->add_generation_prompt = false;
    if (!rc) rc = read_flag(o, "add_generation_prompt", &in->add_generation_prompt, e);
    if (!rc && in->continue_final_message && in->add_generation_prompt)
        rc = err_set(e, ERR_INVALID,
                     "continue_final_message and add_generation_prompt cannot be combined");
    in->extra = find_member(o, find_member(o, "extra") ? "extra" : "chat_template_kwargs");
    if (!rc && in->extra && !cJSON_IsObject(in->extra))
        rc = err_set(e, ERR_INVALID, "%s is not an object", in->extra->string);
    return rc ? rc : read_now(o, &in->now, e);
}

static int render_line(void *arg, const cJSON *line, str *out, err *e) {
    const struct renderer *r = arg;
    struct chat_input in = {.add_generation_prompt = !r->args->no_prompt, .now = clock_wall_s()};
    struct chat_output text = {0};
    int rc = read_input(line, &in, e);
    if (!rc) rc = render_input(r, &in, &text, e);
    if (rc && !text.failure.fault) return rc;
    str_add(out, rc ? "{\"error\":" : "{\"text\":");
    if (rc) {
        jsonl_add_text(out, text.failure.text, strlen(text.failure.text));
        str_addf(out, ",\"class\":\"%s\"", jinja_fault_name(text.failure.fault));
        if (text.failure.line) str_addf(out, ",\"line\":%d", text.failure.line);
    } else {
        jsonl_add_text(out, text.text, text.n);
    }
    str_add_char(out, '}');
    chat_output_fini(&text);
    return 0;
}

static int read_json(const char *file, cJSON **root, err *e) {
    char *text;
    size_t n;
    int rc = textfile_read(file, MESSAGES_MAX_BYTES, &text, &n, e);
    if (rc) return rc;
    rc = chat_json_parse(text, n, root, e);
    if (rc) err_prefix(e, "%s: ", textfile_name(file));
    free(text);
    return rc;
}

/* The file is an array of messages, or an object with the members of a request. */
static int render_file(const struct renderer *r, err *e) {
    const char *file = r->args->messages;
    struct chat_input in = {.add_generation_prompt = !r->args->no_prompt, .now = clock_wall_s()};
    struct chat_output out = {0};
    cJSON *root = NULL;
    int rc = read_json(file, &root, e);
    if (rc) return rc;
    in.messages = root;
    if (!cJSON_IsArray(root)) rc = read_input(root, &in, e);
    if (rc) err_prefix(e, "%s: ", textfile_name(file));
    if (!rc) rc = render_input(r, &in, &out, e);
    if (!rc) fwrite(out.text, 1, out.n, stdout);
    chat_output_fini(&out);
    cJSON_Delete(root);
    return rc;
}

static int run_render(const struct instrument *in, const struct render_args *args, err *e) {
    tokenizer *tok = NULL;
    chat_template *chat = NULL;
    int rc = args->template_file ? 0 : tokenizer_open(in->model.path, &tok, e);
    if (!rc)
        rc = args->template_file ? loader_template_file(args->template_file, "", "", &chat, e)
                                 : loader_chat_template(&in->config, in->model.path, tok, &chat, e);
    struct renderer r = {chat, args};
    if (!rc)
        rc = args->jsonl ? jsonl_run(&(struct jsonl){render_line, &r, MESSAGES_MAX_BYTES}, e)
                         : render_file(&r, e);
    chat_template_free(chat);
    tokenizer_close(tok);
    return rc;
}

int cmd_render(int argc, char **argv, err *e) {
    struct render_args args = {0};
    const struct option own[] = {
        {.name = "messages",
         .kind = OPTION_TEXT,
         .target = &args.messages,
         .value = "FILE",
         .help = "JSON: an array of messages, or an object with messages and tools (-: standard "
                 "input)"},
        {.name = "jsonl",
         .kind = OPTION_SWITCH,
         .target = &args.jsonl,
         .help = "read such an object from each line of standard input, also with documents,\n"
                 "add_generation_prompt, continue_final_message, bos_token, eos_token, now and\n"
                 "extra (more variables); print a line {\"text\": ...} or {\"error\": ..., "
                 "\"class\": ...} for each"},
        {.name = "template",
         .kind = OPTION_TEXT,
         .target = &args.template_file,
         .value = "FILE",
         .help = "Jinja template to use instead of a model's"},
        {.name = "no-normalise",
         .kind = OPTION_SWITCH,
         .target = &args.no_normalise,
         .help = "render the messages exactly as given, as strictly as transformers does"},
        {.name = "no-generation-prompt",
         .kind = OPTION_SWITCH,
         .target = &args.no_prompt,
         .help = "do not begin the assistant's answer at the end"}};
    static const char *const keys[] = {"model", "chat-template", "registry", "log-level", NULL};
    struct instrument in = {
        .options = {.usage = "render --messages FILE | --jsonl",
                    .summary = "Prints the exact prompt text that a model's chat template makes "
                               "of messages.",
                    .options = own,
                    .n_options = sizeof own / sizeof own[0],
                    .keys = keys},
        .no_model = &args.template_file};
    int status = instrument_parse(&in, argc, argv, e);
    if (status < 0 && !args.messages == !args.jsonl) {
        err_set(e, ERR_INVALID,
                args.jsonl ? "--messages and --jsonl cannot be combined"
                           : "--messages FILE is missing, or --jsonl");
        status = EXIT_USAGE;
    } else if (status < 0) {
        status = run_render(&in, &args, e) ? 1 : 0;
    }
    instrument_fini(&in);
    return status;
}
