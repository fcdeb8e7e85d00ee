/* commands/batch.c - inferd batch: answers a file of requests as /v1/batches does, by a daemon of
 * its own with a registry of its own, which has the models of the usual one and is removed at the
 * end, unless the answers could not be written. Main thread. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "daemon/commands/client.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/own_daemon.h"
#include "daemon/commands/printing.h"
#include "daemon/options.h"
#include "registry/registry.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4352, LINE_BYTES = 64 << 20, POLL_MS = 200 };

static const char *const registry_keys[] = {"registry", NULL};

struct batch {
    const char *file, *output, *model;
    char *own_model, *endpoint; /* of the first request */
    char *id;
    char folder[PATH_BYTES], registry[PATH_BYTES + 16]; /* of the daemon; "": not made */
    struct own_daemon daemon;
    struct client client;
    bool cancelled, keeps_folder;
    FILE *out;
    char *target, part[PATH_BYTES]; /* part becomes target when it is whole; "": out has no part */
};

/* ---- the daemon's folder ---- */

static int make_folder(struct batch *b, const struct config *config, err *e) {
    char *state = NULL, *path = NULL;
    registry *r = NULL;
    int rc = config_state_folder("", &state, e);
    if (rc) return rc;
    snprintf(b->folder, sizeof b->folder, "%s/batch-XXXXXX", state);
    free(state);
    if (!mkdtemp(b->folder)) {
        rc = err_set(e, ERR_IO, "cannot create %s: %s", b->folder, strerror(errno));
        *b->folder = '\0';
        return rc;
    }
    snprintf(b->registry, sizeof b->registry, "%s/registry.db", b->folder);
    rc = config_registry_path(config, &path, e);
    if (!rc) rc = registry_open(b->registry, &r, e);
    if (!rc) rc = registry_copy(r, path, e);
    registry_close(r);
    free(path);
    return rc;
}

/* Removes the files of a folder, and those of the folders in it. */
static void remove_folder(const char *folder, int depth) {
    DIR *d = opendir(folder);
    for (const struct dirent *it; d && (it = readdir(d));) {
        char path[2 * PATH_BYTES];
        if (strcmp(it->d_name, ".") == 0 || strcmp(it->d_name, "..") == 0) continue;
        int n = snprintf(path, sizeof path, "%s/%s", folder, it->d_name);
        if (n > 0 && (size_t)n < sizeof path && unlink(path) && depth)
            remove_folder(path, depth - 1);
    }
    if (d) closedir(d);
    rmdir(folder);
}

/* ---- the output ---- */

static bool is_input(const struct batch *b, const char *path) {
    struct stat in, st;
    return stat(b->file, &in) == 0 && stat(path, &st) == 0 && in.st_dev == st.st_dev &&
           in.st_ino == st.st_ino;
}

/* A regular file is written as FILE.part, anything else itself, such as /dev/stdout. */
static int open_output(struct batch *b, err *e) {
    struct stat st;
    if (!b->output) {
        b->out = stdout;
        return 0;
    }
    bool exists = stat(b->output, &st) == 0;
    const char *path = b->output;
    if (*path && (!exists || S_ISREG(st.st_mode))) {
        b->target = exists ? realpath(path, NULL) : mem_strdup(path); /* a link stays a link */
        if (!b->target) return err_no_memory(e);
        int n = snprintf(b->part, sizeof b->part, "%s.part", b->target);
        if (n < 0 || (size_t)n >= sizeof b->part) *b->part = '\0';
        path = *b->part ? b->part : "";
    }
    if (is_input(b, path) || is_input(b, b->output)) {
        *b->part = '\0';
        return err_set(e, ERR_INVALID, "%s has the requests: write the answers to another file",
                       b->file);
    }
    if ((b->out = fopen(path, "w"))) return 0;
    *b->part = '\0';
    return err_set(e, ERR_IO, "cannot write %s: %s", b->output, strerror(errno));
}

/* The output is whole. */
static int finish_output(struct batch *b, err *e) {
    bool failed = b->out == stdout ? fflush(b->out) : fclose(b->out);
    b->out = NULL;
    if (!failed && *b->part) failed = rename(b->part, b->target);
    if (failed) return err_set(e, ERR_IO, "cannot write the output: %s", strerror(errno));
    *b->part = '\0';
    return 0;
}

/* Removes what is not whole. */
static void drop_output(struct batch *b) {
    if (b->out && b->out != stdout) fclose(b->out);
    if (*b->part) unlink(b->part);
    free(b->target);
}

/* ---- the batch ---- */

/* What the first request asks for: the batch's endpoint, and the model to load. */
static int read_first(struct batch *b, err *e) {
    char *line = NULL;
    size_t capacity = 0;
    FILE *f = fopen(b->file, "r");
    if (!f) return err_set(e, ERR_IO, "cannot read %s: %s", b->file, strerror(errno));
    struct stat st;
    if (fstat(fileno(f), &st) || !S_ISREG(st.st_mode)) {
        fclose(f);
        return err_set(e, ERR_INVALID,
                       "%s is not a regular file, and is read more than once: write the requests "
                       "to a file first",
                       b->file);
    }
    ssize_t n;
    do
        n = getline(&line, &capacity, f);
    while (n >= 0 && n < LINE_BYTES && strspn(line, " \t\r\n") == (size_t)n);
    cJSON *root = n > 0 ? client_parse(line, (size_t)n) : NULL;
    const char *url = client_string(root, "url");
    const char *model = client_string(cJSON_GetObjectItemCaseSensitive(root, "body"), "model");
    b->endpoint = url ? mem_strdup(url) : NULL;
    b->own_model = model ? mem_strdup(model) : NULL;
    cJSON_Delete(root);
    free(line);
    fclose(f);
    if (!b->model) b->model = b->own_model;
    if (!b->endpoint)
        return err_set(e, ERR_FORMAT,
                       "%s: the first line is not a request {\"custom_id\", \"method\", \"url\", "
                       "\"body\"}",
                       b->file);
    if (!b->model || !*b->model)
        return err_set(e, ERR_INVALID, "the first request names no model: give --model");
    return 0;
}

/* Takes the id of an answered object. */
static int take_id(cJSON *root, char **id, err *e) {
    const char *text = client_string(root, "id");
    *id = text ? mem_strdup(text) : NULL;
    cJSON_Delete(root);
    return *id ? 0 : err_set(e, ERR_FORMAT, "the daemon's answer has no id");
}

static int create_batch(struct batch *b, err *e) {
    cJSON *root = NULL;
    char *file = NULL;
    int rc = client_upload(&b->client, b->file, &root, e);
    if (!rc) rc = take_id(root, &file, e);
    if (rc) return rc;
    cJSON *o = cJSON_CreateObject();
    bool ok = o && cJSON_AddStringToObject(o, "input_file_id", file) &&
              cJSON_AddStringToObject(o, "endpoint", b->endpoint) &&
              cJSON_AddStringToObject(o, "completion_window", "168h");
    char *body = ok ? cJSON_PrintUnformatted(o) : NULL;
    rc = body ? client_post(&b->client, "/v1/batches", body, &root, e) : err_no_memory(e);
    if (!rc) rc = take_id(root, &b->id, e);
    cJSON_free(body);
    cJSON_Delete(o);
    free(file);
    return rc;
}

static double count_of(const cJSON *batch, const char *name) {
    const cJSON *counts = cJSON_GetObjectItemCaseSensitive(batch, "request_counts");
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(counts, name);
    return cJSON_IsNumber(v) ? v->valuedouble : 0;
}

/* Ctrl-C cancels the batch, so that the answers that came are written; a second one ends it all. */
static int cancel_batch(struct batch *b, err *e) {
    char path[160];
    cJSON *root = NULL;
    if (b->cancelled) return err_set(e, ERR_STOPPING, "stopped");
    b->cancelled = true;
    client_forget_interrupts();
    snprintf(path, sizeof path, "/v1/batches/%s/cancel", b->id);
    err why = {0};
    client_post(&b->client, path, "{}", &root, &why); /* it may have ended */
    cJSON_Delete(root);
    return 0;
}

/* The batch when it has ended. */
static int wait_batch(struct batch *b, cJSON **out, err *e) {
    char path[128];
    bool tell = isatty(STDERR_FILENO);
    snprintf(path, sizeof path, "/v1/batches/%s", b->id);
    for (;;) {
        int rc = client_interrupted() ? cancel_batch(b, e) : 0;
        if (!rc) rc = client_get(&b->client, path, out, e);
        if (rc == ERR_STOPPING && !b->cancelled) continue;
        if (rc) return rc;
        const char *status = client_string(*out, "status");
        if (tell)
            fprintf(stderr, "\r\033[K%s: %.0f of %.0f", status ? status : "?",
                    count_of(*out, "completed") + count_of(*out, "failed"),
                    count_of(*out, "total"));
        bool over = !status || strstr("completed failed expired cancelled", status);
        if (over && tell) fputs("\r\033[K", stderr);
        if (over) return 0;
        cJSON_Delete(*out);
        *out = NULL;
        usleep(POLL_MS * 1000);
    }
}

/* Prints "FILE:LINE: text" for each error of validation. */
static int print_errors(const struct batch *b, const cJSON *batch, err *e) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(batch, "errors");
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(list, "data"), *v;
    int n = cJSON_GetArraySize(data);
    cJSON_ArrayForEach(v, data) {
        const cJSON *line = cJSON_GetObjectItemCaseSensitive(v, "line");
        const char *text = client_string(v, "message");
        if (cJSON_IsNumber(line))
            fprintf(stderr, "%s:%.0f: %s\n", b->file, line->valuedouble, text ? text : "");
        else
            fprintf(stderr, "%s: %s\n", b->file, text ? text : "");
    }
    return n ? err_set(e, ERR_INVALID, "nothing was run: %s has %d errors", b->file, n) : 0;
}

static int write_file(const struct batch *b, const cJSON *batch, const char *name, err *e) {
    char path[128];
    const char *id = client_string(batch, name);
    if (!id) return 0;
    snprintf(path, sizeof path, "/v1/files/%s/content", id);
    return client_download(&b->client, path, b->out, e);
}

/* The output could not be written, and its answers may have taken hours: their files stay. */
static int keep_answers(struct batch *b, const cJSON *batch, err *e) {
    const char *answers = client_string(batch, "output_file_id");
    const char *failed = client_string(batch, "error_file_id");
    const err why = *e;
    if (!answers && !failed) return why.code;
    b->keeps_folder = true;
    return err_set(e, why.code,
                   "%.160s; the answers are in %s.files (%s%s%s): copy them, then delete %s",
                   why.msg, b->registry, answers ? answers : "", answers && failed ? ", then " : "",
                   failed ? failed : "", b->folder);
}

/* Writes the answers, then the requests that failed. */
static int write_output(struct batch *b, const cJSON *batch, err *e) {
    int rc = write_file(b, batch, "output_file_id", e);
    if (!rc) rc = write_file(b, batch, "error_file_id", e);
    if (!rc) rc = finish_output(b, e);
    if (rc) return keep_answers(b, batch, e);
    double failed = count_of(batch, "failed");
    if (b->cancelled) return err_set(e, ERR_STOPPING, "stopped: %.0f have no answer", failed);
    return failed > 0 ? err_set(e, ERR_INVALID, "%.0f of %.0f requests failed", failed,
                                count_of(batch, "total"))
                      : 0;
}

static int run_batch(struct batch *b, const struct config *config, err *e) {
    cJSON *batch = NULL;
    int rc = read_first(b, e);
    if (!rc) rc = open_output(b, e);
    if (!rc) rc = make_folder(b, config, e);
    const char *const flags[] = {"--registry",
                                 b->registry,
                                 "--registry-keys",
                                 "off",
                                 "--file-max-bytes",
                                 "1024G",
                                 "--files-max-bytes",
                                 "4096G",
                                 "--batch-max-lines",
                                 "10000000",
                                 NULL};
    if (!rc) rc = own_daemon_start(&b->daemon, b->model, flags, e);
    b->client.url = b->daemon.url;
    if (!rc) rc = create_batch(b, e);
    if (!rc) rc = wait_batch(b, &batch, e);
    if (!rc) rc = print_errors(b, batch, e);
    if (!rc) rc = write_output(b, batch, e);
    cJSON_Delete(batch);
    return rc;
}

int cmd_batch(int argc, char **argv, err *e) {
    static const char summary[] =
        "Answers FILE, lines of requests as OpenAI's Batch API has them, and writes a line for "
        "each:\n"
        "the answers in the order of the file, then the requests that failed. The model is loaded\n"
        "for it and no server is needed. Ctrl-C writes what has been answered so far.";
    struct batch b = {.daemon = {.to = -1}};
    struct config config;
    const char *args[1];
    const struct option own[] = {{.name = "output",
                                  .kind = OPTION_TEXT,
                                  .target = &b.output,
                                  .value = "FILE",
                                  .help = "file to write, also -o FILE (default: standard output)"},
                                 {.name = "model",
                                  .kind = OPTION_TEXT,
                                  .target = &b.model,
                                  .value = "MODEL",
                                  .help = "models to load, separated by commas (default: that of "
                                          "the first request)"}};
    const struct options options = {.usage = "batch FILE",
                                    .summary = summary,
                                    .options = own,
                                    .n_options = sizeof own / sizeof *own,
                                    .config = &config,
                                    .keys = registry_keys,
                                    .args = args,
                                    .min_args = 1,
                                    .max_args = 1};
    static char output[] = "--output";
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-o") == 0) argv[i] = output;
    if (config_init(&config, e)) return 1;
    int rc = options_parse(&options, argc, argv, NULL, e);
    if (rc) {
        config_fini(&config);
        return options_exit(rc);
    }
    b.file = args[0];
    client_catch_interrupts();
    client_catch_ends();
    rc = run_batch(&b, &config, e);
    own_daemon_stop(&b.daemon);
    drop_output(&b);
    if (*b.folder && !b.keeps_folder) remove_folder(b.folder, 1);
    free(b.own_model);
    free(b.endpoint);
    free(b.id);
    config_fini(&config);
    return rc ? 1 : 0;
}
