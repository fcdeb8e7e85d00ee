/* conversation.c - one request per turn, its event stream, and what is printed of it. It knows
 * nothing of engines. */
#include "daemon/commands/conversation.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "daemon/commands/chat_http.h"
#include "daemon/commands/settings.h"
#include "daemon/input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 1 << 20, ANSWER_MAX_BYTES = 16 << 20 };

/* An answer on its way. */
struct answer {
    const struct conversation *c;
    str line;  /* incomplete line of the event stream */
    str text;  /* of the answer so far */
    str body;  /* of a response other than an event stream */
    err error; /* an error event in the stream */
    bool done; /* the stream sent [DONE] */
    bool dim;  /* reasoning is being printed */
    double n_prompt, n_answer;
    uint64_t first_ns;
};

int conversation_init(struct conversation *c, const struct client *client, const char *system,
                      err *e) {
    *c = (struct conversation){
        .client = client, .messages = cJSON_CreateArray(), .settings = cJSON_CreateObject()};
    if (!c->messages || !c->settings) return err_no_memory(e);
    return system ? conversation_set(&c->system, system, e) : 0;
}

void conversation_fini(struct conversation *c) {
    free(c->model);
    free(c->system);
    cJSON_Delete(c->messages);
    cJSON_Delete(c->settings);
}

void conversation_clear(struct conversation *c) {
    while (c->messages->child)
        cJSON_DeleteItemFromArray(c->messages, 0);
}

int conversation_set(char **member, const char *text, err *e) {
    char *copy = text ? mem_strdup(text) : NULL;
    if (text && !copy) return err_no_memory(e);
    free(*member);
    *member = copy;
    return 0;
}

static cJSON *new_message(const char *role, const char *content) {
    cJSON *m = cJSON_CreateObject();
    cJSON_AddStringToObject(m, "role", role);
    cJSON_AddStringToObject(m, "content", content);
    return m;
}

void print_safe(const char *text) {
    const unsigned char *p = (const unsigned char *)text;
    for (; *p; p++) { /* C0 except line feed and tab, DEL, and C1 (c2 80..9f in UTF-8) */
        if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f)
            p++;
        else if ((*p >= 0x20 && *p != 0x7f) || *p == '\n' || *p == '\t')
            putchar(*p);
    }
    fflush(stdout);
}

/* ---- the request ---- */

cJSON *conversation_body(const struct conversation *c) {
    cJSON *root = cJSON_Duplicate(c->settings, true), *item;
    if (c->model) cJSON_AddStringToObject(root, "model", c->model);
    cJSON *messages = cJSON_AddArrayToObject(root, "messages");
    if (c->system) cJSON_AddItemToArray(messages, new_message("system", c->system));
    cJSON_ArrayForEach(item, c->messages) {
        cJSON_AddItemToArray(messages, cJSON_Duplicate(item, true));
    }
    if (messages) return root;
    cJSON_Delete(root);
    return NULL;
}

static char *make_request(const struct conversation *c) {
    cJSON *root = conversation_body(c);
    if (!root) return NULL;
    if (!c->json) cJSON_AddBoolToObject(root, "stream", true);
    if (c->verbose && !c->json)
        cJSON_AddBoolToObject(cJSON_AddObjectToObject(root, "stream_options"), "include_usage",
                              true);
    char *text = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    return text;
}

/* ---- the answer ---- */

static void print_piece(struct answer *a, const char *text, bool reasoning) {
    if (!a->first_ns) a->first_ns = clock_now_ns();
    if (!reasoning) str_add(&a->text, text);
    if (reasoning && !a->c->colour) return;
    if (reasoning != a->dim) fputs(reasoning ? "\033[2m" : "\033[0m\n", stdout);
    a->dim = reasoning;
    print_safe(text);
}

static void take_usage(struct answer *a, const cJSON *root) {
    const cJSON *usage = cJSON_GetObjectItemCaseSensitive(root, "usage");
    const cJSON *prompt = cJSON_GetObjectItemCaseSensitive(usage, "prompt_tokens");
    const cJSON *answer = cJSON_GetObjectItemCaseSensitive(usage, "completion_tokens");
    if (cJSON_IsNumber(prompt)) a->n_prompt = prompt->valuedouble;
    if (cJSON_IsNumber(answer)) a->n_answer = answer->valuedouble;
}

/* One line of the event stream: "data: JSON", "data: [DONE]", ": comment" or empty. */
static void read_event_line(struct answer *a, const char *line) {
    if (strncmp(line, "data:", 5) != 0) return;
    line += 5 + strspn(line + 5, " ");
    if (strcmp(line, "[DONE]") == 0) {
        a->done = true;
        return;
    }
    cJSON *root = client_parse(line, strlen(line));
    const cJSON *choice = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(root, "choices"), 0);
    const cJSON *delta = cJSON_GetObjectItemCaseSensitive(choice, "delta");
    const char *text = client_string(delta, "content");
    const char *reasoning = client_string(delta, "reasoning_content");
    if (reasoning) print_piece(a, reasoning, true);
    if (text && *text) print_piece(a, text, false);
    take_usage(a, root);
    cJSON_Delete(root);
    if (!choice) client_read_error(line, strlen(line), 0, &a->error);
}

static int on_body(void *arg, int status, const char *bytes, size_t n, bool *done, err *e) {
    struct answer *a = arg;
    if (status != 200 || a->c->json) {
        str_add_n(&a->body, bytes, n);
        *done = a->body.failed;
        return 0;
    }
    for (size_t i = 0; i < n && !a->done && !a->error.code; i++) {
        if (bytes[i] != '\n') {
            if (bytes[i] != '\r') str_add_char(&a->line, bytes[i]);
            continue;
        }
        read_event_line(a, str_cstr(&a->line));
        str_clear(&a->line);
    }
    *done = a->done || a->error.code;
    if (ferror(stdout)) return err_set(e, ERR_IO, "cannot write the output");
    return a->line.failed ? err_set(e, ERR_FORMAT, "the server sends a line of more than %d bytes",
                                    LINE_MAX_BYTES)
                          : 0;
}

/* The error of a response other than 200. An unknown model may have been misspelt. */
static int err_status(const struct conversation *c, const struct answer *a, int status, err *e) {
    err why;
    if (!client_read_error(str_cstr(&a->body), a->body.len, status, e))
        err_set(e, ERR_INVALID, "the server answers %d", status);
    struct conversation other = {.client = c->client};
    if (status == 404 && conversation_choose_model(&other, c->model, &why) == ERR_NOT_FOUND)
        err_prefix(e, "%s: ", why.msg);
    free(other.model);
    return ERR_INVALID;
}

/* A whole answer: its body is printed, its text goes to a->text. */
static int take_body(struct answer *a, err *e) {
    cJSON *root = client_parse(str_cstr(&a->body), a->body.len);
    const cJSON *choice = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(root, "choices"), 0);
    const char *text =
        client_string(cJSON_GetObjectItemCaseSensitive(choice, "message"), "content");
    if (text) str_add(&a->text, text);
    a->done = root != NULL;
    cJSON_Delete(root);
    if (!a->done) return err_set(e, ERR_FORMAT, "the server's answer is not JSON");
    fwrite(a->body.data, 1, a->body.len, stdout);
    if (a->body.data[a->body.len - 1] != '\n') putchar('\n');
    fflush(stdout);
    return 0;
}

static int receive_answer(const struct conversation *c, struct answer *a, err *e) {
    char *body = make_request(c);
    if (!body) return err_no_memory(e);
    const struct chat_request request = {.url = c->client->url,
                                         .path = "/v1/chat/completions",
                                         .body = body,
                                         .api_key = c->client->api_key,
                                         .stopped = client_interrupted,
                                         .on_body = on_body,
                                         .arg = a};
    int status, rc = chat_http_send(&request, &status, e);
    cJSON_free(body);
    if (rc) return rc;
    if (status != 200) return err_status(c, a, status, e);
    if (c->json) return take_body(a, e);
    if (a->error.code) return err_set(e, ERR_INVALID, "%s", a->error.msg);
    return a->done ? 0 : err_set(e, ERR_IO, "the answer was cut off: the stream has no [DONE]");
}

static void print_speed(const struct answer *a, uint64_t begin_ns) {
    uint64_t now = clock_now_ns();
    double first_s = (double)(a->first_ns - begin_ns) / 1e9;
    double rest_s = (double)(now - a->first_ns) / 1e9;
    if (!a->first_ns || !a->n_answer) return;
    fprintf(stderr, "[%.0f prompt tokens, first token after %.2f s; %.0f tokens, %.1f/s]\n",
            a->n_prompt, first_s, a->n_answer, rest_s > 0 ? (a->n_answer - 1) / rest_s : 0);
}

int conversation_ask(struct conversation *c, const char *text, bool *stopped, err *e) {
    struct answer a = {.c = c};
    uint64_t begin_ns = clock_now_ns();
    str_init(&a.line, LINE_MAX_BYTES);
    str_init(&a.text, ANSWER_MAX_BYTES);
    str_init(&a.body, ANSWER_MAX_BYTES);
    client_forget_interrupts();
    cJSON_AddItemToArray(c->messages, new_message("user", text));
    int rc = receive_answer(c, &a, e);
    *stopped = rc == ERR_STOPPING;
    if (a.dim) fputs("\033[0m", stdout);
    if (!c->json && (a.text.len || *stopped || a.dim)) puts(*stopped ? " [stopped]" : "");
    fflush(stdout);
    if (c->verbose && !rc) print_speed(&a, begin_ns);
    if ((rc && !*stopped) || a.text.len == 0)
        cJSON_DeleteItemFromArray(c->messages, cJSON_GetArraySize(c->messages) - 1);
    else
        cJSON_AddItemToArray(c->messages, new_message("assistant", str_cstr(&a.text)));
    str_fini(&a.line);
    str_fini(&a.text);
    str_fini(&a.body);
    return *stopped ? 0 : rc;
}

/* ---- models, saved conversations ---- */

int conversation_find_model(struct conversation *c, err *e) {
    cJSON *root;
    int rc = client_get(c->client, "/v1/models", &root, e);
    if (rc) return rc;
    const char *id =
        client_string(cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(root, "data"), 0), "id");
    rc = id ? conversation_set(&c->model, id, e)
            : err_set(e, ERR_NOT_FOUND, "%s serves no model (GET /v1/models lists none)",
                      c->client->url);
    cJSON_Delete(root);
    return rc;
}

/* Is name the model's id or one of its aliases? Offers them all. */
static bool has_name(const cJSON *model, const char *name, struct suggest *s) {
    const cJSON *alias;
    const char *id = client_string(model, "id");
    bool found = id && strcmp(id, name) == 0;
    if (id) suggest_offer(s, id);
    cJSON_ArrayForEach(alias, cJSON_GetObjectItemCaseSensitive(model, "aliases")) {
        const char *text = cJSON_GetStringValue(alias);
        if (text) suggest_offer(s, text);
        found = found || (text && strcmp(text, name) == 0);
    }
    return found;
}

int conversation_choose_model(struct conversation *c, const char *name, err *e) {
    cJSON *root;
    const cJSON *model;
    struct suggest s;
    bool found = false;
    int rc = client_get(c->client, "/v1/models", &root, e);
    if (rc) return rc;
    suggest_init(&s, name);
    cJSON_ArrayForEach(model, cJSON_GetObjectItemCaseSensitive(root, "data")) {
        found = found || has_name(model, name, &s);
    }
    if (found)
        rc = conversation_set(&c->model, name, e);
    else if (s.best)
        rc = err_set(e, ERR_NOT_FOUND, "no model is named %.96s: did you mean %s?", name, s.best);
    else
        rc = err_set(e, ERR_NOT_FOUND, "no model is named %.96s (see /model)", name);
    cJSON_Delete(root);
    return rc;
}

int conversation_take(struct conversation *c, const cJSON *body, err *e) {
    const cJSON *messages = cJSON_GetObjectItemCaseSensitive(body, "messages"), *m;
    const char *model = client_string(body, "model"), *system = NULL;
    if (!cJSON_IsArray(messages))
        return err_set(e, ERR_FORMAT, "expected a saved chat: an object with messages");
    cJSON_ArrayForEach(m, messages) {
        if (!client_string(m, "role") || !client_string(m, "content"))
            return err_set(e, ERR_FORMAT, "expected messages with a role and a text as content");
    }
    conversation_clear(c);
    cJSON_ArrayForEach(m, messages) {
        if (m == messages->child && strcmp(client_string(m, "role"), "system") == 0)
            system = client_string(m, "content");
        else
            cJSON_AddItemToArray(c->messages, cJSON_Duplicate(m, true));
    }
    for (size_t i = 0; settings_name(i); i++) {
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(body, settings_name(i));
        cJSON_DeleteItemFromObjectCaseSensitive(c->settings, settings_name(i));
        if (v) cJSON_AddItemToObject(c->settings, settings_name(i), cJSON_Duplicate(v, true));
    }
    int rc = model ? conversation_set(&c->model, model, e) : 0;
    return rc ? rc : conversation_set(&c->system, system, e);
}
