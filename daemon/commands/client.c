/* client.c - requests of commands to a daemon. Owns the count of SIGINTs. Main thread. */
#include "daemon/commands/client.h"

#include "core/base/mem.h"
#include "core/text/json.h"
#include "daemon/commands/chat_http.h"
#include "daemon/run_file.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { BODY_MAX_BYTES = 1 << 20 };

static volatile sig_atomic_t n_interrupts;

static void on_interrupt(int number) {
    (void)number;
    n_interrupts++;
}

static void catch_signal(int number) {
    struct sigaction act = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigemptyset(&act.sa_mask);
    sigaction(number, &act, NULL);
}

void client_catch_interrupts(void) {
    catch_signal(SIGINT);
    signal(SIGPIPE, SIG_IGN);
}

void client_catch_ends(void) {
    static const int numbers[] = {SIGTERM, SIGHUP};
    struct sigaction before;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            catch_signal(numbers[i]);
}

void client_release_interrupts(void) {
    signal(SIGINT, SIG_DFL);
}

void client_interrupt_calls(bool on) {
    struct sigaction act;
    sigaction(SIGINT, NULL, &act);
    act.sa_flags = on ? act.sa_flags & ~SA_RESTART : act.sa_flags | SA_RESTART;
    sigaction(SIGINT, &act, NULL);
}

bool client_interrupted(void) {
    return n_interrupts > 0;
}

void client_forget_interrupts(void) {
    n_interrupts = 0;
}

/* The daemon of this user on the default port, else one that does not end with another command,
 * else any. */
static int find_daemon(struct client *c, err *e) {
    struct run_list list;
    const struct run_daemon *chosen = NULL;
    if (run_list_read(&list, NULL)) list.n = 0; /* nothing is known: the default address */
    for (size_t i = 0; i < list.n; i++) {
        const struct run_daemon *d = &list.daemons[i];
        if (!chosen || (chosen->own && !d->own) || strcmp(d->url, CLIENT_DEFAULT_URL) == 0)
            chosen = d;
    }
    c->found = mem_strdup(chosen ? chosen->url : CLIENT_DEFAULT_URL);
    run_list_fini(&list);
    c->url = c->found;
    return c->found ? 0 : err_no_memory(e);
}

int client_open(struct client *c, err *e) {
    signal(SIGPIPE, SIG_IGN);
    if (!c->url && find_daemon(c, e)) return 1;
    if (chat_http_check_url(c->url, e)) return EXIT_USAGE;
    if (config_read_api_keys(c->key_file ? c->key_file : "", &c->keys, e)) return 1;
    c->api_key = c->keys.n ? c->keys.keys[0] : getenv("INFERD_API_KEY");
    return -1;
}

void client_close(struct client *c) {
    config_api_keys_fini(&c->keys);
    free(c->found);
    *c = (struct client){0};
}

cJSON *client_parse(const char *text, size_t n) {
    static const struct json_rules rules = {.max_depth = 64, .duplicate_keys = true};
    cJSON *root = NULL;
    json_decode(text, n, &rules, &root, NULL);
    return root;
}

const char *client_string(const cJSON *o, const char *name) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, name));
}

bool client_read_error(const char *text, size_t n, int status, err *e) {
    cJSON *root = client_parse(text, n);
    const char *message = client_string(cJSON_GetObjectItemCaseSensitive(root, "error"), "message");
    if (message && status)
        err_set(e, ERR_INVALID, "the server answers %d: %s", status, message);
    else if (message)
        err_set(e, ERR_INVALID, "the server says: %s", message);
    cJSON_Delete(root);
    return message != NULL;
}

/* Collects a body; what exceeds the bound is cut off. */
static int on_body(void *arg, int status, const char *bytes, size_t n, bool *done, err *e) {
    str *body = arg;
    (void)status, (void)e;
    str_add_n(body, bytes, n);
    *done = body->failed;
    return 0;
}

/* post, upload NULL: GET. */
static int fetch_text(const struct client *c, const char *path, const char *post,
                      const char *upload, char **text, err *e) {
    str body;
    str_init(&body, BODY_MAX_BYTES);
    const struct chat_request request = {.url = c->url,
                                         .path = path,
                                         .body = post,
                                         .upload = upload,
                                         .api_key = c->api_key,
                                         .stopped = client_interrupted,
                                         .on_body = on_body,
                                         .arg = &body};
    int status, rc = chat_http_send(&request, &status, e);
    if (!rc && status != 200) {
        rc = ERR_INVALID;
        if (!client_read_error(str_cstr(&body), body.len, status, e))
            err_set(e, rc, "the server answers %d", status);
    }
    if (!rc && !(*text = mem_strdup(str_cstr(&body)))) rc = err_no_memory(e);
    str_fini(&body);
    return rc;
}

int client_get_text(const struct client *c, const char *path, char **text, err *e) {
    return fetch_text(c, path, NULL, NULL, text, e);
}

static int fetch_json(const struct client *c, const char *path, const char *post,
                      const char *upload, cJSON **root, err *e) {
    char *text;
    int rc = fetch_text(c, path, post, upload, &text, e);
    if (rc) return rc;
    *root = client_parse(text, strlen(text));
    free(text);
    return *root ? 0 : err_set(e, ERR_FORMAT, "the answer of %s%s is not JSON", c->url, path);
}

int client_get(const struct client *c, const char *path, cJSON **root, err *e) {
    return fetch_json(c, path, NULL, NULL, root, e);
}

int client_post(const struct client *c, const char *path, const char *body, cJSON **root, err *e) {
    return fetch_json(c, path, body, NULL, root, e);
}

int client_upload(const struct client *c, const char *file, cJSON **root, err *e) {
    return fetch_json(c, "/v1/files", NULL, file, root, e);
}

static int write_body(void *arg, int status, const char *bytes, size_t n, bool *done, err *e) {
    (void)done;
    if (status != 200) return err_set(e, ERR_INVALID, "the server answers %d", status);
    if (fwrite(bytes, 1, n, arg) == n) return 0;
    return err_set(e, ERR_IO, "cannot write the output: %s", strerror(errno));
}

int client_download(const struct client *c, const char *path, FILE *out, err *e) {
    int status;
    return chat_http_send(&(struct chat_request){.url = c->url,
                                                 .path = path,
                                                 .api_key = c->api_key,
                                                 .stopped = client_interrupted,
                                                 .on_body = write_body,
                                                 .arg = out},
                          &status, e);
}
