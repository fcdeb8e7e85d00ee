/* commands/usage.c - inferd usage: sums of the ledger in the registry. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/printing.h"
#include "daemon/options.h"
#include "registry/keys.h"
#include "registry/ledger.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COLUMNS = 8, DAY_S = 86400, NAME_BYTES = 80 };

static const char *const registry_keys[] = {"registry", NULL};

struct usage_command {
    struct usage_query query;
    struct registry_key *keys; /* (n_keys) in order of ids */
    size_t n_keys;
    bool json;
    cJSON *array;
    struct printing_table *table;
    uint64_t n;
};

static int parse_by(const char *text, struct usage_query *q, err *e) {
    static const char *const names[] = {"key", "model", "kind", "hour", "day"};
    q->by_key = q->by_model = q->by_kind = false;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, ","), i = 0;
        while (i < 5 && (strlen(names[i]) != n || strncmp(names[i], at, n) != 0))
            i++;
        if (i == 5)
            return err_set(e, ERR_INVALID, "--by: \"%.*s\" is none of key, model, kind, hour, day",
                           (int)n, at);
        q->by_key |= i == 0;
        q->by_model |= i == 1;
        q->by_kind |= i == 2;
        if (i == 3) q->interval_s = USAGE_HOUR_S;
        if (i == 4 && q->interval_s != USAGE_HOUR_S) q->interval_s = DAY_S;
        at += n + (at[n] == ',');
    }
    return 0;
}

static void name_key(const struct usage_command *c, int64_t id, char name[NAME_BYTES]) {
    snprintf(name, NAME_BYTES, "%s", "(no key)");
    if (!c->query.by_key) snprintf(name, NAME_BYTES, "%s", "all");
    if (id < 0) snprintf(name, NAME_BYTES, "(file %lld)", (long long)-id);
    for (size_t i = 0; i < c->n_keys; i++)
        if (c->keys[i].id == id) snprintf(name, NAME_BYTES, "%s", c->keys[i].name);
}

static void add_json(struct usage_command *c, const struct usage_row *row) {
    char name[NAME_BYTES];
    cJSON *o = cJSON_CreateObject();
    name_key(c, row->key, name);
    if (c->query.interval_s) cJSON_AddNumberToObject(o, "start_time", (double)row->time_s);
    if (c->query.by_key) cJSON_AddStringToObject(o, "key", name);
    if (c->query.by_model) cJSON_AddStringToObject(o, "model", row->model);
    if (c->query.by_kind)
        cJSON_AddStringToObject(o, "kind", row->kind == USAGE_EMBED ? "embeddings" : "completions");
    cJSON_AddNumberToObject(o, "requests", (double)row->requests);
    cJSON_AddNumberToObject(o, "input_tokens", (double)row->input_tokens);
    cJSON_AddNumberToObject(o, "input_cached_tokens", (double)row->cached_tokens);
    cJSON_AddNumberToObject(o, "output_tokens", (double)row->output_tokens);
    cJSON_AddItemToArray(c->array, o);
}

static void add_row(void *arg, const struct usage_row *row) {
    static const char *const heads[COLUMNS] = {"TIME (UTC)", "KEY",   "MODEL",  "KIND",
                                               "REQUESTS",   "INPUT", "CACHED", "OUTPUT"};
    static const bool right[COLUMNS] = {false, false, false, false, true, true, true, true};
    struct usage_command *c = arg;
    char name[NAME_BYTES], begin[32] = "all", numbers[4][24];
    const uint64_t values[] = {row->requests, row->input_tokens, row->cached_tokens,
                               row->output_tokens};
    c->n++;
    if (c->json) {
        add_json(c, row);
        return;
    }
    time_t t = (time_t)row->time_s;
    struct tm utc;
    if (c->query.interval_s)
        strftime(begin, sizeof begin, c->query.interval_s == DAY_S ? "%Y-%m-%d" : "%Y-%m-%d %H:00",
                 gmtime_r(&t, &utc));
    name_key(c, row->key, name);
    for (int i = 0; i < 4; i++)
        snprintf(numbers[i], sizeof numbers[i], "%" PRIu64, values[i]);
    const char *const cells[COLUMNS] = {begin,
                                        name,
                                        c->query.by_model ? row->model : "all",
                                        !c->query.by_kind          ? "all"
                                        : row->kind == USAGE_EMBED ? "embeddings"
                                                                   : "completions",
                                        numbers[0],
                                        numbers[1],
                                        numbers[2],
                                        numbers[3]};
    if (!c->table) c->table = printing_table_new(heads, right, COLUMNS);
    if (c->table) printing_table_add(c->table, cells);
}

static int print_usage(struct usage_command *c, const char *path, err *e) {
    registry *r = NULL;
    int rc = registry_open(path, &r, e);
    if (!rc) rc = registry_key_list(r, &c->keys, &c->n_keys, e);
    if (!rc && c->json) c->array = cJSON_CreateArray();
    if (!rc) rc = usage_read(r, &c->query, add_row, c, e);
    registry_close(r);
    free(c->keys);
    if (!rc && c->json) return printing_json(c->array, e);
    cJSON_Delete(c->array);
    if (!rc && !c->n) fprintf(stderr, "nothing was used in that time\n");
    printing_table_print(c->table);
    return rc;
}

int cmd_usage(int argc, char **argv, err *e) {
    struct usage_command c = {.query = {.by_key = true, .by_model = true, .by_kind = true}};
    struct config config;
    const char *by = NULL;
    uint64_t days = 30;
    const struct option own[] = {
        {.name = "days",
         .kind = OPTION_NUMBER,
         .target = &days,
         .value = "N",
         .help = "of the last N days (default 30)",
         .min = 1,
         .max = 36500},
        {.name = "by",
         .kind = OPTION_TEXT,
         .target = &by,
         .value = "LIST",
         .help = "what has its own sums, of key, model, kind, hour and day (default "
                 "key,model,kind)"},
        {.name = "json", .kind = OPTION_SWITCH, .target = &c.json, .help = "print a JSON array"}};
    const struct options options = {
        .usage = "usage",
        .summary = "Shows how many tokens each key used of each model. A running daemon writes\n"
                   "them once a second.",
        .options = own,
        .n_options = sizeof own / sizeof *own,
        .config = &config,
        .keys = registry_keys};
    char *path = NULL;
    if (config_init(&config, e)) return 1;
    int rc = options_parse(&options, argc, argv, NULL, e);
    if (rc) {
        config_fini(&config);
        return options_exit(rc);
    }
    int64_t now_s = clock_wall_s();
    c.query.to_s = now_s + USAGE_HOUR_S;
    c.query.from_s = now_s - (int64_t)days * DAY_S;
    if (by) rc = parse_by(by, &c.query, e);
    if (!rc) rc = config_registry_path(&config, &path, e);
    if (!rc) rc = print_usage(&c, path, e);
    free(path);
    config_fini(&config);
    return rc ? 1 : 0;
}
