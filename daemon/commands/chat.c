/* commands/chat.c - inferd chat: a streamed conversation with the running daemon over its public
 * API. It knows nothing of engines. Main thread. */
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/text/json.h"
#include "daemon/commands/chat_http.h"
#include "daemon/commands/commands.h"
#include "daemon/options.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1 << 20, ANSWER_MAX_BYTES = 16 << 20, BODY_MAX_BYTES = 1 << 20 };

static volatile sig_atomic_t n_interrupts;

struct chat {
    const char *url, *system, *api_key;
    char *model;
    uint64_t max_tokens; /* 0: the server's choice */
    cJSON *messages;     /* the conversation so far */
    str line;            /* incomplete line of the event stream */
    str answer;          /* text of the answer so far */
    str body;            /* of a response that is not an event stream */
    bool done;           /* the stream sent [DONE] */
    err stream_error;    /* an error event in the stream */
    bool interactive;    /* stdin is a terminal */
};

static void on_interrupt(int number) {
    (void)number;
    n_interrupts++;
}

static bool interrupted(void) {
    return n_interrupts > 0;
}

static void add_message(cJSON *messages, const char *role, const char *content) {
    cJSON *m = cJSON_CreateObject();
    cJSON_AddStringToObject(m, "role", role);
    cJSON_AddStringToObject(m, "content", content);
    cJSON_AddItemToArray(messages, m);
}

static void reset_conversation(struct chat *c) {
    cJSON_Delete(c->messages);
    c->messages = cJSON_CreateArray();
    if (c->system) add_message(c->messages, "system", c->system);
}

/* Prints text without the control characters that a terminal would obey: C0 except line feed and
 * tab, DEL, and C1 (c2 80..9f in UTF-8). */
static void print_safe(const char *text) {
    const unsigned char *p = (const unsigned char *)text;
    for (; *p; p++) {
        if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f)
            p++;
        else if ((*p >= 0x20 && *p != 0x7f) || *p == '\n' || *p == '\t')
            putchar(*p);
    }
    fflush(stdout);
}

static const char *string_at(const cJSON *o, const char *name) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, name));
}

static cJSON *parse_answer(const char *text, size_t n) {
    static const struct json_rules rules = {.max_depth = 64, .duplicate_keys = true};
    cJSON *root = NULL;
    json_decode(text, n, &rules, &root, NULL);
    return root;
}

/* Reads {"error": {"message": ...}}; false if text is something else. */
static bool read_error_message(const char *text, size_t n, int status, err *e) {
    cJSON *root = parse_answer(text, n);
    const char *message = string_at(cJSON_GetObjectItemCaseSensitive(root, "error"), "message");
    if (message && status)
        err_set(e, ERR_INVALID, "the server answers %d: %s", status, message);
    else if (message)
        err_set(e, ERR_INVALID, "the server says: %s", message);
    cJSON_Delete(root);
    return message != NULL;
}

/* The error of a response other than 200, whose body is in c->body. */
static int err_status(const struct chat *c, int status, err *e) {
    if (!read_error_message(str_cstr(&c->body), c->body.len, status, e))
        err_set(e, ERR_INVALID, "the server answers %d", status);
    return ERR_INVALID;
}

/* One line of the event stream: "data: JSON", "data: [DONE]", ": comment" or empty. */
static void read_event_line(struct chat *c, const char *line) {
    if (strncmp(line, "data:", 5) != 0) return;
    line += 5 + strspn(line + 5, " ");
    if (strcmp(line, "[DONE]") == 0) {
        c->done = true;
        return;
    }
    cJSON *root = parse_answer(line, strlen(line));
    const cJSON *choice = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(root, "choices"), 0);
    const char *text = string_at(cJSON_GetObjectItemCaseSensitive(choice, "delta"), "content");
    if (text) {
        str_add(&c->answer, text);
        print_safe(text);
    }
    cJSON_Delete(root);
    if (!text) read_error_message(line, strlen(line), 0, &c->stream_error);
}

/* Collects a whole body; what exceeds the bound is cut off. */
static int on_plain_body(void *arg, int status, const char *bytes, size_t n, bool *done, err *e) {
    struct chat *c = arg;
    (void)status, (void)e;
    str_add_n(&c->body, bytes, n);
    *done = c->body.failed;
    return 0;
}

/* Prints the event stream's text as it arrives. */
static int on_answer_body(void *arg, int status, const char *bytes, size_t n, bool *done, err *e) {
    struct chat *c = arg;
    if (status != 200) return on_plain_body(arg, status, bytes, n, done, e);
    for (size_t i = 0; i < n && !c->done && !c->stream_error.code; i++) {
        if (bytes[i] != '\n') {
            if (bytes[i] != '\r') str_add_char(&c->line, bytes[i]);
            continue;
        }
        read_event_line(c, str_cstr(&c->line));
        str_clear(&c->line);
    }
    *done = c->done || c->stream_error.code;
    return c->line.failed ? err_set(e, ERR_FORMAT, "the server sends a line of more than %d bytes",
                                    LINE_MAX_BYTES)
                          : 0;
}

static char *make_request_body(const struct chat *c) {
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "model", c->model);
    cJSON_AddBoolToObject(root, "stream", true);
    if (c->max_tokens) cJSON_AddNumberToObject(root, "max_tokens", (double)c->max_tokens);
    cJSON_AddItemReferenceToObject(root, "messages", c->messages);
    char *text = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    return text;
}

/* Sends the conversation and prints the answer. */
static int stream_answer(struct chat *c, err *e) {
    char *body = make_request_body(c);
    if (!body) return err_no_memory(e);
    const struct chat_request request = {.url = c->url,
                                         .path = "/v1/chat/completions",
                                         .body = body,
                                         .api_key = c->api_key,
                                         .stopped = interrupted,
                                         .on_body = on_answer_body,
                                         .arg = c};
    int status, rc = chat_http_send(&request, &status, e);
    cJSON_free(body);
    if (rc) return rc;
    if (status != 200) return err_status(c, status, e);
    if (c->stream_error.code) return err_set(e, ERR_INVALID, "%s", c->stream_error.msg);
    return c->done ? 0 : err_set(e, ERR_IO, "the answer was cut off: the stream has no [DONE]");
}

/* Asks and prints the answer. On success the conversation grows by both; on an error by neither. An
 * answer that the user stopped is kept as far as it came. */
static int take_turn(struct chat *c, const char *text, err *e) {
    n_interrupts = 0;
    c->done = false;
    str_clear(&c->line);
    str_clear(&c->answer);
    str_clear(&c->body);
    err_clear(&c->stream_error);
    add_message(c->messages, "user", text);
    int rc = stream_answer(c, e);
    bool stopped = rc == ERR_STOPPING;
    if (c->answer.len || stopped) printf(stopped ? " [stopped]\n" : "\n");
    if ((rc && !stopped) || c->answer.len == 0)
        cJSON_DeleteItemFromArray(c->messages, cJSON_GetArraySize(c->messages) - 1);
    else
        add_message(c->messages, "assistant", str_cstr(&c->answer));
    return stopped ? 0 : rc;
}

/* Chooses the first model that the server lists. */
static int find_model(struct chat *c, err *e) {
    const struct chat_request request = {.url = c->url,
                                         .path = "/v1/models",
                                         .api_key = c->api_key,
                                         .stopped = interrupted,
                                         .on_body = on_plain_body,
                                         .arg = c};
    int status, rc = chat_http_send(&request, &status, e);
    if (rc) return rc;
    if (status != 200) return err_status(c, status, e);
    cJSON *root = parse_answer(str_cstr(&c->body), c->body.len);
    const char *id =
        string_at(cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(root, "data"), 0), "id");
    if (!id)
        rc = err_set(e, ERR_NOT_FOUND, "%s serves no model (GET /v1/models lists none)", c->url);
    else if (!(c->model = mem_strdup(id)))
        rc = err_no_memory(e);
    cJSON_Delete(root);
    return rc;
}

/* Reads a line of stdin, without its line feed. false at the end of input or after two Ctrl-C. */
static bool read_prompt(const struct chat *c, char **line, size_t *capacity) {
    n_interrupts = 0;
    for (;;) {
        if (c->interactive) {
            printf("> ");
            fflush(stdout);
        }
        errno = 0;
        ssize_t n = getline(line, capacity, stdin);
        if (n >= 0) {
            if (n && (*line)[n - 1] == '\n') (*line)[n - 1] = '\0';
            return true;
        }
        if (errno != EINTR || n_interrupts != 1) return false;
        clearerr(stdin);
        printf("\n(Ctrl-C again or /quit leaves)\n");
    }
}

/* Returns the exit status. A failed turn ends a script; at a terminal the conversation continues.
 */
static int converse(struct chat *c, err *e) {
    char *line = NULL;
    size_t capacity = 0;
    int status = 0;
    if (c->interactive)
        printf("Talking to %s. /reset forgets the conversation, /quit leaves, Ctrl-C stops an "
               "answer.\n",
               c->model);
    while (status == 0 && read_prompt(c, &line, &capacity)) {
        if (strcmp(line, "/quit") == 0) break;
        if (strcmp(line, "/reset") == 0) {
            reset_conversation(c);
        } else if (line[strspn(line, " \t")] == '\0') {
            continue;
        } else if (c->interactive && line[0] == '/' && !strchr(line, ' ')) {
            printf("Unknown command %s: there are /reset and /quit.\n", line);
        } else if (take_turn(c, line, e)) {
            if (!c->interactive)
                status = 1;
            else
                fprintf(stderr, "inferd: %s\n", e->msg);
        }
    }
    free(line);
    return status;
}

static void install_interrupt(void) {
    struct sigaction act = {.sa_handler = on_interrupt}; /* no SA_RESTART: getline returns */
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int cmd_chat(int argc, char **argv, err *e) {
    const char *model = NULL, *key_file = "";
    struct chat c = {.url = "http://127.0.0.1:8080", .interactive = isatty(STDIN_FILENO)};
    struct config_api_keys keys = {0};
    const struct option own[] = {
        {.name = "url",
         .kind = OPTION_TEXT,
         .target = &c.url,
         .value = "URL",
         .help = "daemon to talk to, http or https (default http://127.0.0.1:8080)"},
        {.name = "model",
         .kind = OPTION_TEXT,
         .target = &model,
         .value = "NAME",
         .help = "model to use (default: the first that the daemon lists)"},
        {.name = "system",
         .kind = OPTION_TEXT,
         .target = &c.system,
         .value = "TEXT",
         .help = "system message"},
        {.name = "max-tokens",
         .kind = OPTION_NUMBER,
         .target = &c.max_tokens,
         .value = "N",
         .min = 1,
         .max = 1 << 24,
         .help = "maximum length of an answer, tokens"},
        {.name = "api-key-file",
         .kind = OPTION_TEXT,
         .target = &key_file,
         .value = "FILE",
         .help = "file with the API key in its first line (default: $INFERD_API_KEY)"}};
    const struct options o = {.usage = "chat",
                              .summary = "Talks to a running daemon; reads lines from the "
                                         "terminal or standard input.",
                              .options = own,
                              .n_options = sizeof own / sizeof own[0]};
    int rc = options_parse(&o, argc, argv, NULL, e);
    if (rc) return options_exit(rc);
    if (chat_http_check_url(c.url, e)) return EXIT_USAGE;
    if (config_read_api_keys(key_file, &keys, e)) return 1;
    c.api_key = keys.n ? keys.keys[0] : getenv("INFERD_API_KEY");
    install_interrupt();
    str_init(&c.line, LINE_MAX_BYTES);
    str_init(&c.answer, ANSWER_MAX_BYTES);
    str_init(&c.body, BODY_MAX_BYTES);
    reset_conversation(&c);
    rc = model ? 0 : find_model(&c, e);
    if (!rc && model && !(c.model = mem_strdup(model))) rc = err_no_memory(e);
    int status = rc ? 1 : converse(&c, e);
    cJSON_Delete(c.messages);
    free(c.model);
    str_fini(&c.line);
    str_fini(&c.answer);
    str_fini(&c.body);
    config_api_keys_fini(&keys);
    return status;
}
