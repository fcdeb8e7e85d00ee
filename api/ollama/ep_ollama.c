/* ep_ollama.c - Ollama's API: POST /api/chat, /api/generate, /api/show, GET /api/tags, /api/ps,
 * /api/version. Writes answers as one object or as lines of objects; ollama/read.c reads. Reading
 * runs on pool threads, writing on HTTP threads. */
#include "api/generate/api_state.h"
#include "api/generate/body.h"
#include "api/generate/gen.h"
#include "api/generate/model_admin.h"
#include "api/generate/preset.h"
#include "api/generate/prompts.h"
#include "api/http/auth.h"
#include "api/http/ignored.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/ollama/ollama.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The version of Ollama's API that this implements. */
#define OLLAMA_VERSION "0.12.6"

struct state {
    bool generate;    /* /api/generate: "response" instead of "message" */
    uint32_t n_calls; /* of a stream: written */
};

void ollama_write_error(str *out, const struct api_error *error) {
    str_add(out, "{\"error\":");
    json_add_cstr(out, error->message);
    str_add_char(out, '}');
}

/* ---- writing ---- */

void ollama_add_time(int64_t seconds, str *out) {
    char text[CLOCK_UTC_BYTES];
    str_addf(out, "\"%s\"", clock_utc(seconds, text));
}

static void add_head(const char *id, int64_t created_s, str *out) {
    str_add(out, "{\"model\":");
    json_add_cstr(out, id);
    str_add(out, ",\"created_at\":");
    ollama_add_time(created_s, out);
}

/* Omits a call that the end of the answer cut off; done_reason is "length". */
static void add_calls(const struct gen_choice *c, uint32_t from, str *out) {
    const char *comma = "";
    str_add(out, ",\"tool_calls\":[");
    for (uint32_t i = from; i < c->n_calls; i++) {
        const struct gen_call *call = &c->calls[i];
        if (!gen_call_is_whole(call)) continue;
        str_addf(out, "%s{\"id\":\"%s\",\"function\":{\"index\":%u,\"name\":", comma, call->id, i);
        json_add_cstr(out, call->name);
        str_add(out, ",\"arguments\":");
        str_add_n(out, str_cstr(&call->arguments), call->arguments.len);
        str_add(out, "}}");
        comma = ",";
    }
    str_add_char(out, ']');
}

/* Writes the answer's members: text, thinking if there is any, calls not yet written. */
static void add_answer(const struct gen *g, const struct gen_choice *c,
                       const struct gen_piece *text, const struct gen_piece *thinking, str *out) {
    const struct state *s = g->state;
    str_add(out,
            s->generate ? ",\"response\":" : ",\"message\":{\"role\":\"assistant\",\"content\":");
    json_add_string(out, text->text, text->n);
    if (thinking->n) {
        str_add(out, ",\"thinking\":");
        json_add_string(out, thinking->text, thinking->n);
    }
    if (c && c->n_calls > s->n_calls) add_calls(c, s->n_calls, out);
    if (!s->generate) str_add_char(out, '}');
}

static const struct gen_piece no_piece = {.text = "", .n = 0};

static void write_line(struct gen *g, const struct gen_choice *c, const struct gen_piece *text,
                       const struct gen_piece *thinking, str *out) {
    add_head(g->model->id, g->created_s, out);
    add_answer(g, c, text, thinking, out);
    str_add(out, ",\"done\":false}\n");
}

/* Calls are written complete, at the end of the answer. */
static void write_piece(struct gen *g, struct gen_choice *c, const struct gen_piece *piece,
                        str *out) {
    (void)c;
    if (!piece->n) return;
    if (piece->kind == GEN_TEXT) write_line(g, NULL, piece, &no_piece, out);
    if (piece->kind == GEN_REASONING) write_line(g, NULL, &no_piece, piece, out);
}

static void write_close(struct gen *g, struct gen_choice *c, str *out) {
    struct state *s = g->state;
    if (c->n_calls > s->n_calls) write_line(g, c, &no_piece, &no_piece, out);
    s->n_calls = c->n_calls;
}

static void add_done(const struct gen *g, const struct gen_choice *c, str *out) {
    uint64_t now = clock_now_ns(), start = g->request->start_ns, first = g->first_ns;
    struct gen_usage u = gen_usage_of(g);
    str_addf(out,
             ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%" PRIu64
             ",\"load_duration\":0,\"prompt_eval_count\":%" PRIu64
             ",\"prompt_eval_duration\":%" PRIu64 ",\"eval_count\":%" PRIu64
             ",\"eval_duration\":%" PRIu64 "}",
             c->finish == GEN_FINISH_LENGTH ? "length" : "stop", now - start, u.prompt,
             first - start, u.completion, now - first);
}

static void write_end(struct gen *g, str *out) {
    add_head(g->model->id, g->created_s, out);
    add_answer(g, NULL, &no_piece, &no_piece, out);
    add_done(g, &g->choices[0], out);
    str_add_char(out, '\n');
}

static void write_failure(struct gen *g, const struct api_error *error, str *out) {
    (void)g;
    ollama_write_error(out, error);
    str_add_char(out, '\n');
}

static void write_whole(struct gen *g, str *out) {
    const struct gen_choice *c = &g->choices[0];
    const struct gen_piece text = {.text = str_cstr(&c->text), .n = c->text.len};
    const struct gen_piece thinking = {.text = str_cstr(&c->reasoning), .n = c->reasoning.len};
    add_head(g->model->id, g->created_s, out);
    add_answer(g, c, &text, &thinking, out);
    add_done(g, c, out);
}

static const struct gen_writer writer = {
    .content_type = "application/x-ndjson",
    .param = "messages",
    .piece = write_piece,
    .close = write_close,
    .end = write_end,
    .fail = write_failure,
    .whole = write_whole,
    .free = free,
};

/* ---- chat and generate ---- */

struct body {
    struct ollama_fields fields;
    struct gen_options options;
    struct chat_request chat;
    const struct api_model *model;
};

/* Replies to a request without a prompt: clients send it to load a model, which is loaded already,
 * or with keep_alive 0 to unload it. */
static int reply_empty(struct request *r, const char *id, bool generate, bool unloads) {
    str out;
    str_init(&out, 4096);
    add_head(id, clock_wall_s(), &out);
    str_add(&out, generate ? ",\"response\":\"\""
                           : ",\"message\":{\"role\":\"assistant\",\"content\":\"\"}");
    str_addf(&out, ",\"done\":true,\"done_reason\":\"%s\"}", unloads ? "unload" : "load");
    reply_json(r, 200, &out);
    return 0;
}

/* A model that is not loaded is not loaded for it, and one that is loading leaves afterwards. */
static int answer_unload(struct request *r, const struct ollama_fields *f, bool generate, err *e) {
    const struct model_admin *admin = r->api->config.admin;
    char id[API_MODEL_ID_BYTES];
    uint64_t task;
    int rc = api_find_name(r, f->model, id, e);
    const bool loaded = !rc;
    if (rc == ERR_NOT_FOUND && *id && auth_may_use(r, id)) rc = 0;
    if (rc == ERR_NOT_FOUND)
        return err_set_param(e, rc, "model", "model '%.200s' not found", f->model);
    if (rc) return rc;
    const char *name = loaded ? r->model->id : id;
    if (!admin || !auth_is_admin(r)) {
        rc = loaded ? ollama_keep(r, f, e) : ignored_add(r->ignored, "keep_alive", e);
        return rc ? rc : reply_empty(r, name, generate, !loaded);
    }
    request_act(r, "models.unload", name);
    r->act_queued = true;
    rc = admin->unload(admin->host, name, &task, e);
    if (rc == ERR_NOT_FOUND) rc = 0; /* it is not there */
    return rc ? rc : reply_empty(r, name, generate, true);
}

/* "raw", and "suffix", which asks for the text between prompt and suffix: no chat template. */
static bool is_plain(const struct ollama_fields *f) {
    return f->raw || (f->suffix && *f->suffix);
}

/* suffix: (1) the prompt, wrapped by the model's fill-in-the-middle tokens. */
static int read_plain(const struct body *b, struct gen_prompt **list, size_t *n, err *e) {
    const struct ollama_fields *f = &b->fields;
    const tokenizer *tok = engine_tokenizer(b->model->engine);
    const struct prompts_config config = {.param = "prompt",
                                          .tok = tok,
                                          .suffix = f->suffix,
                                          .parse_special = f->gen.parse_special,
                                          .max_tokens = engine_context_length(b->model->engine),
                                          .max = 1};
    struct tokenizer_fim fim;
    if (f->suffix && *f->suffix && !tokenizer_fim(tok, &fim))
        return err_set_param(e, ERR_UNSUPPORTED, "suffix",
                             "%s does not support insert: the model has no fill-in-the-middle "
                             "tokens, leave 'suffix' out.",
                             b->model->id);
    return prompts_read_text(&config, f->prompt ? f->prompt : "", list, n, e);
}

/* Passes the prompt to the model without a chat template. */
static int start_plain(struct request *r, const struct body *b, struct state *state, err *e) {
    struct gen_prompt *prompts;
    size_t n;
    int rc = read_plain(b, &prompts, &n, e);
    if (rc) {
        free(state);
        return rc;
    }
    return gen_start(&(struct gen_config){.request = r,
                                          .model = b->model,
                                          .writer = &writer,
                                          .state = state,
                                          .id_prefix = "ollama-",
                                          .options = &b->options,
                                          .prompts = prompts,
                                          .n_prompts = n},
                     e);
}

static int start_answer(struct request *r, struct body *b, bool generate, err *e) {
    struct ollama_fields *f = &b->fields;
    int32_t n_vocab = tokenizer_n_vocab(engine_tokenizer(b->model->engine));
    preset_recommend(r, &f->gen);
    int rc = gen_options_read(&f->gen, n_vocab, r->ignored, &b->options, e);
    if (rc) return rc;
    struct state *state = mem_new(1, sizeof *state);
    if (!state) return err_no_memory(e);
    state->generate = generate;
    if (is_plain(f)) {
        bool formatted = f->format && !(cJSON_IsString(f->format) && !*f->format->valuestring);
        bool system = f->system && *f->system;
        if (!formatted && !system) return start_plain(r, b, state, e);
        free(state);
        return err_set_param(e, ERR_UNSUPPORTED, formatted ? "format" : "system",
                             "Unsupported value for '%s': it cannot be combined with '%s'.",
                             formatted ? "format" : "system", f->raw ? "raw" : "suffix");
    }
    b->chat.model = b->model;
    b->chat.options = &b->options;
    rc = ollama_chat_read(f, b->model, &b->chat, e);
    if (rc) {
        free(state);
        return rc;
    }
    return chat_request_start(
        r, &b->chat,
        &(struct chat_start){.writer = &writer, .state = state, .id_prefix = "ollama-"}, e);
}

static int answer_body(struct request *r, const cJSON *json, bool generate, err *e) {
    struct body *b = mem_new(1, sizeof *b);
    if (!b) return err_no_memory(e);
    chat_request_init(&b->chat, r->ignored);
    const struct ollama_fields *f = &b->fields;
    int rc = ollama_fields_parse(json, generate ? &ollama_generate_table : &ollama_chat_table,
                                 &b->fields, e);
    bool empty = generate ? (!f->prompt || !*f->prompt) && !(f->suffix && *f->suffix)
                          : !f->messages || !f->messages->child;
    if (!rc && empty && f->has_keep && !f->keep_ms) {
        rc = answer_unload(r, f, generate, e);
    } else if (!rc) {
        rc = ollama_fields_find(r, f, e);
        b->model = r->model;
        if (!rc) rc = ollama_keep(r, f, e);
        if (!rc)
            rc = empty ? reply_empty(r, b->model->id, generate, false)
                       : start_answer(r, b, generate, e);
    }
    cJSON_Delete(b->chat.messages);
    cJSON_Delete(b->chat.tools.list);
    cJSON_Delete(b->chat.extra);
    free(b);
    return rc;
}

static int answer_chat(struct request *r, const cJSON *body, err *e) {
    return answer_body(r, body, false, e);
}

static int answer_generate(struct request *r, const cJSON *body, err *e) {
    return answer_body(r, body, true, e);
}

static void handle_chat(struct request *r) {
    gen_handle(r, answer_chat);
}

static void handle_generate(struct request *r) {
    gen_handle(r, answer_generate);
}

/* ---- models ---- */

void ollama_add_details(str *out, const char *architecture, uint64_t n_params, const char *quant) {
    str_add(out, "\"details\":{\"parent_model\":\"\",\"format\":\"gguf\",\"family\":");
    json_add_cstr(out, architecture);
    str_add(out, ",\"families\":[");
    json_add_cstr(out, architecture);
    double n = (double)n_params;
    str_addf(out, "],\"parameter_size\":\"%.1f%c\",\"quantization_level\":",
             n >= 1e9 ? n / 1e9 : n / 1e6, n >= 1e9 ? 'B' : 'M');
    json_add_cstr(out, quant);
    str_add_char(out, '}');
}

static void add_details(const struct api_model *m, str *out) {
    const struct engine_model served = engine_model(m->engine);
    ollama_add_details(out, served.arch, served.n_params, served.quant);
}

/* The part that tags and ps share, without the closing brace. */
static void add_model(const struct api_model *m, const char *name, uint64_t bytes, str *out) {
    str_add(out, "{\"name\":");
    json_add_cstr(out, name);
    str_add(out, ",\"model\":");
    json_add_cstr(out, name);
    str_addf(out, ",\"size\":%" PRIu64 ",\"digest\":", bytes);
    json_add_cstr(out, m->sha256 ? m->sha256 : "");
    str_add_char(out, ',');
    add_details(m, out);
}

static void add_tag(const struct api_model *m, const char *name, bool first, str *out) {
    if (!first) str_add_char(out, ',');
    add_model(m, name, engine_model(m->engine).weight_bytes, out);
    str_add(out, ",\"modified_at\":");
    ollama_add_time(m->created_s, out);
    str_add_char(out, '}');
}

/* Each served model with its other names, then what else is registered. */
static void handle_tags(struct request *r) {
    struct models_list list;
    struct api_name *names = NULL;
    size_t n_names = 0, k = 0;
    str out;
    err e = {0};
    str_init(&out, 4 << 20);
    str_add(&out, "{\"models\":[");
    api_list_models(r, &list);
    int rc = r->api->names->list(r->api, &list, &names, &n_names, &e);
    for (size_t i = 0; i < list.n && !rc; i++) {
        add_tag(list.models[i], list.models[i]->id, i == 0, &out);
        for (; k < n_names && names[k].model == list.models[i]; k++)
            add_tag(list.models[i], names[k].name, false, &out);
    }
    free(names);
    bool any = list.n > 0;
    models_list_release(r->api->models, &list);
    if (!rc) rc = ollama_add_registered(r, any, &out, &e);
    str_add(&out, "]}");
    if (!rc) {
        reply_json(r, 200, &out);
        return;
    }
    str_fini(&out);
    reply_err(r, &e);
}

static const struct model_usage *usage_of(const struct model_usage *all, size_t n, const char *id) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i].id, id) == 0) return &all[i];
    return NULL;
}

/* Of a model that never expires: a date far in the future. size: its memory. */
static void add_loaded(const struct api_model *m, const struct model_usage *u, str *out) {
    const uint64_t bytes = engine_bytes(m->engine);
    const bool on_gpu = strcmp(engine_backend_name(m->engine), "cpu") != 0;
    add_model(m, m->id, bytes, out);
    str_add(out, ",\"expires_at\":");
    if (u && u->expires_s >= 0)
        ollama_add_time(u->expires_s, out);
    else
        str_add(out, "\"9999-12-31T23:59:59Z\"");
    str_addf(out, ",\"size_vram\":%" PRIu64 ",\"context_length\":%u}", on_gpu ? bytes : 0,
             engine_context_length(m->engine));
}

static void handle_ps(struct request *r) {
    const struct model_admin *admin = r->api->config.admin;
    struct model_usage *all = admin ? mem_new(MODEL_USAGE_MAX, sizeof *all) : NULL;
    uint64_t budget;
    size_t n = all ? admin->usage(admin->host, all, &budget) : 0;
    struct models_list list;
    str out;
    str_init(&out, 1 << 20);
    str_add(&out, "{\"models\":[");
    api_list_models(r, &list);
    for (size_t i = 0; i < list.n; i++) {
        const struct api_model *m = list.models[i];
        if (i) str_add_char(&out, ',');
        add_loaded(m, usage_of(all, n, m->id), &out);
    }
    free(all);
    models_list_release(r->api->models, &list);
    str_add(&out, "]}");
    reply_json(r, 200, &out);
}

/* Appends text, which ends, as a JSON string. */
static void add_text(str *text, str *out) {
    json_add_string(out, str_cstr(text), text->len);
    out->failed |= text->failed;
    out->no_memory |= text->no_memory;
    str_fini(text);
}

static void add_parameter(const char *name, const cJSON *v, str *lines) {
    if (cJSON_IsArray(v)) {
        for (const cJSON *one = v->child; one; one = one->next)
            add_parameter(name, one, lines);
        return;
    }
    str_addf(lines, "%s%-30s ", lines->len ? "\n" : "", name);
    json_add_value(lines, v);
}

/* Lines of a Modelfile's PARAMETERs: those of the preset (NULL: none), and what else the model
 * recommends. */
static void add_parameters(const struct sampling_recommended *r, const cJSON *preset, str *out) {
    const struct {
        const char *name;
        bool has;
        double value;
    } rows[] = {
        {"temperature", r->has.temperature, r->values.temperature},
        {"top_p", r->has.top_p, r->values.top_p},
        {"top_k", r->has.top_k, r->values.top_k},
        {"min_p", r->has.min_p, r->values.min_p},
        {"repeat_penalty", r->has.repetition_penalty, r->values.repetition_penalty},
    };
    const cJSON *own = cJSON_GetObjectItemCaseSensitive(preset, "parameters");
    str lines;
    str_init(&lines, 4 << 20);
    for (const cJSON *v = own ? own->child : NULL; v; v = v->next)
        add_parameter(v->string, v, &lines);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].has && !cJSON_GetObjectItemCaseSensitive(own, rows[i].name))
            str_addf(&lines, "%s%-30s %.7g", lines.len ? "\n" : "", rows[i].name, rows[i].value);
    add_text(&lines, out);
}

/* The other members of a preset. */
static void add_preset(const cJSON *preset, str *out) {
    static const char *const names[] = {"system", "messages"};
    for (size_t i = 0; i < 2; i++) {
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(preset, names[i]);
        if (!v) continue;
        str_addf(out, ",\"%s\":", names[i]);
        json_add_value(out, v);
    }
}

/* The model's template, which is Jinja's, not Go's. Clients look for .Suffix to learn whether
 * /api/generate takes 'suffix' (Continue). */
static void add_template(const struct api_model *m, str *out) {
    static const char fim[] = "{# .Suffix: with 'suffix' /api/generate fills in the middle, by the "
                              "model's own tokens and without this template #}";
    const tokenizer *tok = engine_tokenizer(m->engine);
    const char *text = tokenizer_chat_template(tok);
    str shown;
    str_init(&shown, 4 << 20);
    if (text) str_add(&shown, text);
    if (tokenizer_fim(tok, &(struct tokenizer_fim){0})) str_add(&shown, fim);
    add_text(&shown, out);
}

static void add_capabilities(const struct api_model *m, str *out) {
    const tokenizer *tok = engine_tokenizer(m->engine);
    const bool generates = !engine_model(m->engine).only_embeds;
    bool thinks = m->chat && (chat_template_uses(m->chat, "enable_thinking") ||
                              chat_template_uses(m->chat, "reasoning_effort"));
    const struct {
        const char *name;
        bool has;
    } rows[] = {{"completion", true},
                {"tools", m->chat != NULL},
                {"insert", tokenizer_fim(tok, &(struct tokenizer_fim){0})},
                {"thinking", thinks}};
    str_add(out, ",\"capabilities\":[");
    for (size_t i = 0; generates && i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].has) str_addf(out, "\"%s\",", rows[i].name);
    str_add(out, "\"embedding\"");
    str_add_char(out, ']');
}

static int answer_show(struct request *r, const cJSON *body, err *e) {
    struct ollama_fields f;
    int rc = ollama_fields_read(r, body, &ollama_show_table, &f, e);
    if (rc) return rc;
    const struct api_model *m = r->model;
    const struct engine_model served = engine_model(m->engine);
    str out;
    str_init(&out, REPLY_MAX_BYTES);
    str_add(&out, "{\"modelfile\":\"\",\"parameters\":");
    add_parameters(engine_sampling(m->engine), r->preset, &out);
    add_preset(r->preset, &out);
    str_add(&out, ",\"template\":");
    add_template(m, &out);
    str_add_char(&out, ',');
    add_details(m, &out);
    str_add(&out, ",\"model_info\":{\"general.architecture\":");
    json_add_cstr(&out, served.arch);
    str_addf(&out, ",\"general.parameter_count\":%" PRIu64, served.n_params);
    str_addf(&out, ",\"%s.context_length\":%u,\"%s.embedding_length\":%u,\"%s.block_count\":%u}",
             served.arch, engine_context_length(m->engine), served.arch, served.n_embd, served.arch,
             served.n_layers);
    add_capabilities(m, &out);
    str_add(&out, ",\"digest\":");
    json_add_cstr(&out, m->sha256 ? m->sha256 : "");
    str_add(&out, ",\"modified_at\":");
    ollama_add_time(m->created_s, &out);
    str_add_char(&out, '}');
    return gen_reply_bounded(r, &out, e);
}

static void handle_show(struct request *r) {
    gen_handle(r, answer_show);
}

static void handle_version(struct request *r) {
    str out;
    str_init(&out, 256);
    /* Three numbers: clients compare them (Open WebUI). */
    str_addf(&out, "{\"version\":\"%s\",\"server\":\"inferd %s\"}", OLLAMA_VERSION,
             r->api->config.version);
    reply_json(r, 200, &out);
}

/* ---- routes ---- */

const struct protocol ollama_protocol = {
    .write_error = ollama_write_error, .area = "/api", .lines = true};

const struct route ollama_chat_route = {"POST",
                                        "/api/chat",
                                        OLLAMA_MODEL | ROUTE_WORK | ROUTE_INFER,
                                        handle_chat,
                                        .table = &ollama_chat_table,
                                        .protocol = &ollama_protocol};
const struct route ollama_generate_route = {"POST",
                                            "/api/generate",
                                            OLLAMA_MODEL | ROUTE_WORK | ROUTE_INFER,
                                            handle_generate,
                                            .table = &ollama_generate_table,
                                            .protocol = &ollama_protocol};
const struct route ollama_show_route = {"POST",
                                        "/api/show",
                                        OLLAMA_MODEL,
                                        handle_show,
                                        .table = &ollama_show_table,
                                        .protocol = &ollama_protocol};
const struct route ollama_tags_route = {"GET", "/api/tags", OLLAMA_MODEL, handle_tags,
                                        .protocol = &ollama_protocol};
const struct route ollama_ps_route = {"GET", "/api/ps", OLLAMA_MODEL | ROUTE_DIRECT, handle_ps,
                                      .protocol = &ollama_protocol};
const struct route ollama_version_route = {"GET", "/api/version", ROUTE_KEY | ROUTE_DIRECT,
                                           handle_version, .protocol = &ollama_protocol};
