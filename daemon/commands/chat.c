/* commands/chat.c - inferd chat: a conversation with the running daemon over its public API,
 * streamed. Knows nothing of engines; main thread. */
#include "core/base/mem.h"
#include "core/base/str.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/http_client.h"
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
    struct http_url url;
    const char *system, *api_key;
    char *model;
    uint64_t max_tokens; /* 0: the server's choice */
    cJSON *messages;     /* the conversation so far */
    str line;            /* an event's line that is not complete yet */
    str answer;          /* text of the answer so far */
    bool done;           /* [DONE] was seen */
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

static void reset(struct chat *c) {
    cJSON_Delete(c->messages);
    c->messages = cJSON_CreateArray();
    if (c->system) add_message(c->messages, "system", c->system);
}

/* Prints text without the control characters that could drive a terminal (C0 but line feed and
 * tab, DEL, and C1, which begin with c2 80..9f in UTF-8). */
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

/* {"error": {"message": ...}}: false if text is something else. */
static bool take_error(const char *text, size_t n, int status, err *e) {
    cJSON *root = cJSON_ParseWithLength(text, n);
    const char *message = string_at(cJSON_GetObjectItemCaseSensitive(root, "error"), "message");
    if (message && status)
        err_set(e, ERR_INVALID, "the server answers %d: %s", status, message);
    else if (message)
        err_set(e, ERR_INVALID, "the server says: %s", message);
    cJSON_Delete(root);
    return message != NULL;
}

/* The whole body, which the caller frees (str_fini) in any case. */
static int read_body(http_client *http, str *body, err *e) {
    char bytes[4096];
    size_t got = 1;
    int rc = 0;
    str_init(body, BODY_MAX_BYTES);
    while (!rc && got && !body->failed) {
        rc = http_client_read(http, bytes, sizeof bytes, &got, e);
        if (!rc) str_add_n(body, bytes, got);
    }
    return rc;
}

/* What an answer other than 200 says; never 0. */
static int read_error(http_client *http, err *e) {
    str body;
    int rc = read_body(http, &body, e);
    if (!rc && !take_error(str_cstr(&body), body.len, http_client_status(http), e))
        err_set(e, ERR_INVALID, "the server answers %d", http_client_status(http));
    str_fini(&body);
    return rc ? rc : ERR_INVALID;
}

/* One line of the event stream: "data: JSON", "data: [DONE]", ": comment" or empty. */
static void take_line(struct chat *c, const char *line) {
    if (strncmp(line, "data:", 5) != 0) return;
    line += 5 + strspn(line + 5, " ");
    if (strcmp(line, "[DONE]") == 0) {
        c->done = true;
        return;
    }
    cJSON *root = cJSON_Parse(line);
    const cJSON *choice = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(root, "choices"), 0);
    const char *text = string_at(cJSON_GetObjectItemCaseSensitive(choice, "delta"), "content");
    if (text) {
        str_add(&c->answer, text);
        print_safe(text);
    }
    cJSON_Delete(root);
    if (!text) take_error(line, strlen(line), 0, &c->stream_error);
}

static int take_bytes(struct chat *c, const char *bytes, size_t n, err *e) {
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != '\n') {
            if (bytes[i] != '\r') str_add_char(&c->line, bytes[i]);
            continue;
        }
        take_line(c, str_cstr(&c->line));
        str_clear(&c->line);
    }
    return c->line.failed ? err_set(e, ERR_FORMAT, "the server sends an endless line") : 0;
}

static int read_answer(struct chat *c, http_client *http, err *e) {
    char bytes[8192];
    size_t got = 1;
    int rc = 0;
    while (!rc && got && !c->done && !c->stream_error.code) {
        rc = http_client_read(http, bytes, sizeof bytes, &got, e);
        if (!rc) rc = take_bytes(c, bytes, got, e);
    }
    if (!rc && c->stream_error.code) rc = err_set(e, ERR_INVALID, "%s", c->stream_error.msg);
    if (!rc && !c->done) rc = err_set(e, ERR_IO, "the answer was cut off");
    return rc;
}

static char *request_body(const struct chat *c) {
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "model", c->model);
    cJSON_AddBoolToObject(root, "stream", true);
    if (c->max_tokens) cJSON_AddNumberToObject(root, "max_tokens", (double)c->max_tokens);
    cJSON_AddItemReferenceToObject(root, "messages", c->messages);
    char *text = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    return text;
}

/* Asks and prints the answer. The conversation grows by both, or by none on an error; an answer
 * that was stopped counts as far as it came. */
static int turn(struct chat *c, const char *text, err *e) {
    http_client *http = NULL;
    n_interrupts = 0;
    c->done = false;
    str_clear(&c->line);
    str_clear(&c->answer);
    err_clear(&c->stream_error);
    add_message(c->messages, "user", text);
    char *body = request_body(c);
    const struct http_request request = {.url = &c->url,
                                         .method = "POST",
                                         .path = "/v1/chat/completions",
                                         .body = body,
                                         .api_key = c->api_key,
                                         .stopped = interrupted};
    int rc = body ? http_client_open(&request, &http, e) : err_set(e, ERR_NOMEM, "no memory");
    if (!rc) rc = http_client_status(http) == 200 ? read_answer(c, http, e) : read_error(http, e);
    http_client_close(http); /* the daemon notices and ends the sequence */
    cJSON_free(body);
    bool stopped = rc == ERR_STOPPING;
    if (c->answer.len || stopped) printf(stopped ? " [stopped]\n" : "\n");
    if ((rc && !stopped) || c->answer.len == 0)
        cJSON_DeleteItemFromArray(c->messages, cJSON_GetArraySize(c->messages) - 1);
    else
        add_message(c->messages, "assistant", str_cstr(&c->answer));
    return stopped ? 0 : rc;
}

/* Asks the server which models it has; the first one is taken. */
static int find_model(struct chat *c, err *e) {
    const struct http_request request = {.url = &c->url,
                                         .method = "GET",
                                         .path = "/v1/models",
                                         .api_key = c->api_key,
                                         .stopped = interrupted};
    http_client *http;
    str body;
    int rc = http_client_open(&request, &http, e);
    if (rc) return rc;
    if (http_client_status(http) != 200) {
        rc = read_error(http, e);
        http_client_close(http);
        return rc;
    }
    rc = read_body(http, &body, e);
    http_client_close(http);
    cJSON *root = cJSON_ParseWithLength(str_cstr(&body), body.len);
    const char *id =
        string_at(cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(root, "data"), 0), "id");
    if (!rc && !id) rc = err_set(e, ERR_NOT_FOUND, "the server has no model");
    if (!rc && !(c->model = mem_strdup(id))) rc = err_set(e, ERR_NOMEM, "no memory");
    cJSON_Delete(root);
    str_fini(&body);
    return rc;
}

/* A line of stdin without its end; false: leave (end of input, or Ctrl-C twice in a row). */
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

/* Exit status. In a script any failed turn is a failure; at a terminal one goes on. */
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
            reset(c);
        } else if (line[strspn(line, " \t")] == '\0') {
            continue;
        } else if (c->interactive && line[0] == '/' && !strchr(line, ' ')) {
            printf("There is no command %s: only /reset and /quit.\n", line);
        } else if (turn(c, line, e)) {
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
    struct sigaction act = {.sa_handler = on_interrupt}; /* no SA_RESTART: reads are to return */
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int cmd_chat(int argc, char **argv, err *e) {
    const char *url = "http://127.0.0.1:8080", *model = NULL, *key_file = "";
    struct chat c = {.interactive = isatty(STDIN_FILENO)};
    struct config_api_keys keys = {0};
    const struct option own[] = {
        {.name = "url",
         .kind = OPTION_TEXT,
         .target = &url,
         .value = "URL",
         .help = "the daemon (default http://127.0.0.1:8080)"},
        {.name = "model",
         .kind = OPTION_TEXT,
         .target = &model,
         .value = "NAME",
         .help = "default: the first model that it serves"},
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
         .help = "longest answer"},
        {.name = "api-key-file",
         .kind = OPTION_TEXT,
         .target = &key_file,
         .value = "FILE",
         .help = "file whose first line is the API key (or set INFERD_API_KEY)"}};
    const struct options o = {.usage = "chat",
                              .summary = "Talks to the running daemon; reads from the terminal or "
                                         "from standard input.",
                              .options = own,
                              .n_options = sizeof own / sizeof own[0]};
    int rc = options_parse(&o, argc, argv, NULL, e);
    if (rc) return options_exit(rc);
    if (http_url_parse(url, &c.url, e)) return EXIT_USAGE;
    if (config_read_api_keys(key_file, &keys, e)) return 1;
    c.api_key = keys.n ? keys.keys[0] : getenv("INFERD_API_KEY");
    install_interrupt();
    str_init(&c.line, LINE_MAX_BYTES);
    str_init(&c.answer, ANSWER_MAX_BYTES);
    reset(&c);
    rc = model ? 0 : find_model(&c, e);
    if (!rc && model && !(c.model = mem_strdup(model))) rc = err_set(e, ERR_NOMEM, "no memory");
    int status = rc ? 1 : converse(&c, e);
    cJSON_Delete(c.messages);
    free(c.model);
    str_fini(&c.line);
    str_fini(&c.answer);
    config_api_keys_fini(&keys);
    return status;
}
