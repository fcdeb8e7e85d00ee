/* commands/ps.c - inferd ps and inferd stop: the daemons of this user, from their run files and
 * their APIs. Main thread. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "daemon/commands/client.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/printing.h"
#include "daemon/input.h"
#include "daemon/run_file.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COLUMNS = 10, POLL_MS = 50 };

/* ---- ps ---- */

/* The value of a metric without labels; 0 if there is none. */
static double read_metric(const char *text, const char *name) {
    size_t n = strlen(name);
    for (const char *line = text; line && *line;) {
        if (strncmp(line, name, n) == 0 && line[n] == ' ') return strtod(line + n, NULL);
        line = strchr(line, '\n');
        if (line) line++;
    }
    return 0;
}

static void add_number(cJSON *to, const char *name, const cJSON *from, const char *key) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(from, key);
    cJSON_AddNumberToObject(to, name, cJSON_IsNumber(v) ? v->valuedouble : 0);
}

static const cJSON *find_by(const cJSON *array, const char *key, const char *value) {
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        const char *text = client_string(item, key);
        if (text && strcmp(text, value) == 0) return item;
    }
    return NULL;
}

/* Of a model that leaves, which /api/ps says by its time: that, else null. */
static void add_expiry(cJSON *row, const cJSON *size) {
    const char *at = client_string(size, "expires_at");
    if (at && strncmp(at, "9999-", 5) != 0)
        cJSON_AddStringToObject(row, "expires_at", at);
    else
        cJSON_AddNullToObject(row, "expires_at");
}

/* What a daemon says at several addresses; what needs another API key is NULL. */
struct answers {
    cJSON *health, *models, *sizes, *registered;
    char *metrics;
};

static void read_answers(struct client *c, struct answers *a) {
    if (client_get(c, "/v1/models", &a->models, NULL)) a->models = NULL;
    if (client_get(c, "/api/ps", &a->sizes, NULL)) a->sizes = NULL;
    if (client_get(c, "/v1/inferd/models", &a->registered, NULL)) a->registered = NULL;
    if (client_get_text(c, "/metrics", &a->metrics, NULL)) a->metrics = NULL;
}

static void free_answers(struct answers *a) {
    free(a->metrics);
    cJSON_Delete(a->health);
    cJSON_Delete(a->models);
    cJSON_Delete(a->sizes);
    cJSON_Delete(a->registered);
}

/* A model that requests have. */
static void add_served(const struct answers *a, const cJSON *m, cJSON *list) {
    const char *id = client_string(m, "id");
    if (!id) return;
    const cJSON *served = find_by(cJSON_GetObjectItemCaseSensitive(a->models, "data"), "id", id);
    const cJSON *size = find_by(cJSON_GetObjectItemCaseSensitive(a->sizes, "models"), "model", id);
    const cJSON *known = find_by(cJSON_GetObjectItemCaseSensitive(a->registered, "data"), "id", id);
    const char *state = client_string(known, "state");
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "id", id);
    cJSON_AddStringToObject(row, "state", state ? state : "loaded");
    add_number(row, "running", m, "running");
    add_number(row, "waiting", m, "waiting");
    if (served) add_number(row, "context_length", served, "context_length");
    if (size) {
        add_number(row, "size_bytes", size, "size");
        add_expiry(row, size);
    }
    cJSON_AddItemToArray(list, row);
}

/* One that is loaded or unloaded. */
static void add_changing(const cJSON *m, cJSON *list) {
    const char *id = client_string(m, "id"), *state = client_string(m, "state");
    if (!id || !state || (strcmp(state, "loading") != 0 && strcmp(state, "unloading") != 0)) return;
    if (find_by(list, "id", id)) return;
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "id", id);
    cJSON_AddStringToObject(row, "state", state);
    cJSON_AddItemToArray(list, row);
}

/* {"url", "pid", "models": [{"id", "state", "running", "waiting", "context_length", "size_bytes",
 * "expires_at"}], "resident_bytes", "device_bytes"} of a daemon; what needs another API key is left
 * out. */
static int describe_daemon(struct client *c, pid_t pid, cJSON **out, err *e) {
    struct answers a = {.health = NULL};
    const cJSON *m;
    int rc = client_get(c, "/health", &a.health, e);
    if (rc) return rc;
    read_answers(c, &a);
    *out = cJSON_CreateObject();
    cJSON_AddStringToObject(*out, "url", c->url);
    if (pid) cJSON_AddNumberToObject(*out, "pid", (double)pid);
    cJSON *list = cJSON_AddArrayToObject(*out, "models");
    cJSON_ArrayForEach(m, cJSON_GetObjectItemCaseSensitive(a.health, "models")) {
        add_served(&a, m, list);
    }
    cJSON_ArrayForEach(m, cJSON_GetObjectItemCaseSensitive(a.registered, "data")) {
        add_changing(m, list);
    }
    if (a.metrics) {
        cJSON_AddNumberToObject(*out, "resident_bytes",
                                read_metric(a.metrics, "process_resident_memory_bytes"));
        cJSON_AddNumberToObject(*out, "device_bytes",
                                read_metric(a.metrics, "inferd_device_allocated_bytes"));
    }
    free_answers(&a);
    return 0;
}

/* A number of an object, "-" if it has none. bytes: as a size. */
static const char *format_cell(const cJSON *o, const char *name, bool bytes, char out[32]) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, name);
    if (!cJSON_IsNumber(v))
        snprintf(out, 32, "-");
    else if (bytes)
        format_bytes((uint64_t)v->valuedouble, out, 32);
    else
        snprintf(out, 32, "%.0f", v->valuedouble);
    return out;
}

/* "120 MiB", "1.20 GiB + 40.0 GiB GPU" */
static void add_memory(const cJSON *d, str *out) {
    const cJSON *device = cJSON_GetObjectItemCaseSensitive(d, "device_bytes");
    char text[32];
    str_add(out, format_cell(d, "resident_bytes", true, text));
    if (cJSON_IsNumber(device) && device->valuedouble > 0)
        str_addf(out, " + %s GPU", format_cell(d, "device_bytes", true, text));
}

/* When a model leaves if nothing asks for it until then: "in 5 min", "never"; "-": not known. */
static const char *format_until(const cJSON *m, char out[32]) {
    const cJSON *at = cJSON_GetObjectItemCaseSensitive(m, "expires_at");
    struct tm tm = {0};
    if (!cJSON_IsString(at) || sscanf(at->valuestring, "%d-%d-%dT%d:%d:%d", &tm.tm_year, &tm.tm_mon,
                                      &tm.tm_mday, &tm.tm_hour, &tm.tm_min, &tm.tm_sec) != 6)
        return cJSON_IsNull(at) ? "never" : "-";
    tm.tm_year -= 1900;
    tm.tm_mon--;
    const long long s = (long long)timegm(&tm) - clock_wall_s();
    if (s <= 0) return "now";
    if (s < 100)
        snprintf(out, 32, "in %lld s", s);
    else if (s < 6000)
        snprintf(out, 32, "in %lld min", (s + 30) / 60);
    else
        snprintf(out, 32, "in %lld h", (s + 1800) / 3600);
    return out;
}

static void add_row(struct printing_table *t, const cJSON *d, const cJSON *m, const char *memory) {
    char context[32], size[32], running[32], waiting[32], until[32], pid[32];
    const char *const cells[COLUMNS] = {client_string(m, "id"),
                                        client_string(m, "state"),
                                        format_cell(m, "size_bytes", true, size),
                                        format_cell(m, "context_length", false, context),
                                        format_cell(m, "running", false, running),
                                        format_cell(m, "waiting", false, waiting),
                                        format_until(m, until),
                                        memory,
                                        format_cell(d, "pid", false, pid),
                                        client_string(d, "url")};
    printing_table_add(t, cells);
}

static void print_daemons(const cJSON *daemons) {
    static const char *const heads[COLUMNS] = {"MODEL",   "STATE", "SIZE",   "CONTEXT", "RUNNING",
                                               "WAITING", "UNTIL", "MEMORY", "PID",     "URL"};
    static const bool right[COLUMNS] = {[2] = true, true, true, true, [7] = true, true};
    struct printing_table *t = printing_table_new(heads, right, COLUMNS);
    const cJSON *d, *m;
    cJSON_ArrayForEach(d, daemons) {
        str memory;
        str_init(&memory, 128);
        add_memory(d, &memory);
        cJSON_ArrayForEach(m, cJSON_GetObjectItemCaseSensitive(d, "models")) {
            if (t) add_row(t, d, m, str_cstr(&memory));
            str_clear(&memory); /* of the whole daemon: once */
        }
        str_fini(&memory);
    }
    printing_table_print(t);
}

/* Adds what runs at one address to the array. */
static int add_daemon(const struct client *c, const char *url, pid_t pid, cJSON *daemons, err *e) {
    struct client at = *c;
    cJSON *d;
    at.url = url;
    int rc = describe_daemon(&at, pid, &d, e);
    if (!rc) cJSON_AddItemToArray(daemons, d);
    return rc;
}

int cmd_ps(int argc, char **argv, err *e) {
    struct client c = {0};
    bool json = false;
    struct run_list list = {0};
    const struct option own[] = {
        CLIENT_OPTIONS(&c),
        {.name = "json", .kind = OPTION_SWITCH, .target = &json, .help = "print a JSON array"}};
    const struct options o = {
        .usage = "ps",
        .summary = "Lists the models that this user's daemons serve, load or unload: their memory, "
                   "context, the sequences that run and wait, and when they leave if nothing asks "
                   "for them (keep-alive); and the memory of the daemon and its device.",
        .options = own,
        .n_options = sizeof own / sizeof own[0]};
    int rc = options_parse(&o, argc, argv, NULL, e);
    if (rc) return options_exit(rc);
    const char *asked = c.url;
    int status = client_open(&c, e);
    if (status >= 0) return status;
    cJSON *daemons = cJSON_CreateArray();
    if (!asked && run_list_read(&list, e)) err_clear(e); /* the default address remains */
    for (size_t i = 0; i < list.n; i++) {
        err why;
        if (add_daemon(&c, list.daemons[i].url, list.daemons[i].pid, daemons, &why))
            fprintf(stderr, "inferd: process %ld: %s\n", (long)list.daemons[i].pid, why.msg);
    }
    if (asked)
        rc = add_daemon(&c, c.url, 0, daemons, e);
    else if (list.n == 0)
        add_daemon(&c, c.url, 0, daemons, NULL);
    if (!rc && json)
        rc = printing_json(daemons, e);
    else {
        if (!rc && cJSON_GetArraySize(daemons))
            print_daemons(daemons);
        else if (!rc)
            fprintf(stderr, "no daemon runs: start one with `inferd serve`\n");
        cJSON_Delete(daemons);
    }
    run_list_fini(&list);
    client_close(&c);
    return rc ? 1 : 0;
}

/* ---- stop ---- */

/* Is word the daemon's address, port, process id or one of its models? */
static bool word_means(const struct run_daemon *d, const char *word) {
    char pid[24];
    const char *port = strrchr(d->url, ':');
    snprintf(pid, sizeof pid, "%ld", (long)d->pid);
    if (strcmp(word, d->url) == 0 || strcmp(word, pid) == 0) return true;
    if (port && strcmp(word, port + 1) == 0) return true;
    size_t n = strlen(word);
    for (const char *m = d->models; *m;) {
        size_t len = strcspn(m, ",");
        if (len == n && strncmp(m, word, n) == 0) return true;
        m += len + strspn(m + len, ", ");
    }
    return false;
}

static bool process_runs(pid_t pid) {
    struct run_list list;
    bool found = false;
    if (run_list_read(&list, NULL)) return true;
    for (size_t i = 0; i < list.n; i++)
        found = found || list.daemons[i].pid == pid;
    run_list_fini(&list);
    return found;
}

static int stop_daemon(const struct run_daemon *d, uint64_t wait_s, err *e) {
    if (kill(d->pid, SIGTERM) && errno != ESRCH)
        return err_set(e, ERR_IO, "process %ld: %s", (long)d->pid, strerror(errno));
    uint64_t end_ns = clock_now_ns() + wait_s * UINT64_C(1000000000);
    while (process_runs(d->pid)) {
        if (client_interrupted()) return err_set(e, ERR_STOPPING, "stopped waiting");
        if (clock_now_ns() > end_ns)
            return err_set(e, ERR_IO,
                           "%s (process %ld) still finishes answers; `inferd stop` again cuts them "
                           "off",
                           d->url, (long)d->pid);
        usleep(POLL_MS * 1000);
    }
    printf("stopped %s on %s (process %ld)\n", d->models, d->url, (long)d->pid);
    return 0;
}

static int err_which(const struct run_list *list, const char *word, err *e) {
    struct suggest s;
    if (list->n == 0)
        return err_set(e, ERR_NOT_FOUND, "no daemon of this user runs (see `inferd ps`)");
    if (!word)
        return err_set(e, ERR_INVALID,
                       "%zu daemons run: name a model, a port or an address, or give --all (see "
                       "`inferd ps`)",
                       list->n);
    suggest_init(&s, word);
    for (size_t i = 0; i < list->n; i++)
        suggest_offer(&s, list->daemons[i].models);
    if (s.best)
        return err_set(e, ERR_NOT_FOUND, "no daemon serves %s: did you mean %s?", word, s.best);
    return err_set(e, ERR_NOT_FOUND, "no daemon serves %s (see `inferd ps`)", word);
}

int cmd_stop(int argc, char **argv, err *e) {
    const char *word = NULL;
    bool all = false;
    uint64_t wait_s = 60;
    const struct option own[] = {{.name = "all",
                                  .kind = OPTION_SWITCH,
                                  .target = &all,
                                  .help = "stop every daemon of this user"},
                                 {.name = "wait",
                                  .kind = OPTION_NUMBER,
                                  .target = &wait_s,
                                  .value = "SECONDS",
                                  .min = 0,
                                  .max = 86400,
                                  .help = "how long to wait for answers that run (default 60)"}};
    const struct options o = {
        .usage = "stop [MODEL]",
        .summary = "Stops the daemon of this user that runs; of several the one that serves MODEL, "
                   "or has this port, address or process id. Running answers may end.",
        .options = own,
        .n_options = sizeof own / sizeof own[0],
        .args = &word,
        .max_args = 1};
    struct run_list list;
    size_t n_meant = 0;
    int rc = options_parse(&o, argc, argv, NULL, e);
    if (rc) return options_exit(rc);
    client_catch_interrupts();
    if (run_list_read(&list, e)) return 1;
    for (size_t i = 0; i < list.n; i++)
        n_meant += all || (word ? word_means(&list.daemons[i], word) : list.n == 1);
    if (n_meant == 0 || (n_meant > 1 && !all)) rc = err_which(&list, n_meant ? NULL : word, e);
    for (size_t i = 0; i < list.n && !rc; i++)
        if (all || !word || word_means(&list.daemons[i], word))
            rc = stop_daemon(&list.daemons[i], wait_s, e);
    run_list_fini(&list);
    return rc ? 1 : 0;
}
