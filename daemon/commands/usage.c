/* commands/usage.c - inferd usage: sums of the ledger in the registry. */
#include "core/base/clock.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/report.h"
#include "registry/keys.h"
#include "registry/ledger.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COLUMNS = 8, DAY_S = 86400, NAME_BYTES = 80 };

struct usage_command {
    struct usage_query query;
    struct registry_key *keys; /* (n_keys) in order of ids */
    size_t n_keys;
    const char *by; /* --by; NULL: not given */
    struct report report;
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

static cJSON *row_json(const struct usage_command *c, const struct usage_row *row) {
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
    return o;
}

static void add_row(void *arg, const struct usage_row *row) {
    struct usage_command *c = arg;
    char name[NAME_BYTES], begin[32] = "all", numbers[4][24];
    const uint64_t values[] = {row->requests, row->input_tokens, row->cached_tokens,
                               row->output_tokens};
    if (c->report.array) {
        report_add_json(&c->report, row_json(c, row));
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
    report_add_cells(&c->report, cells);
}

static int read_rows(struct report *report, registry *r, int64_t from_s, err *e) {
    struct usage_command *c = report->arg;
    c->query.from_s = from_s;
    c->query.to_s = clock_wall_s() + USAGE_HOUR_S;
    int rc = c->by ? parse_by(c->by, &c->query, e) : 0;
    if (!rc) rc = registry_key_list(r, &c->keys, &c->n_keys, e);
    if (!rc) rc = usage_read(r, &c->query, add_row, c, e);
    free(c->keys);
    return rc;
}

int cmd_usage(int argc, char **argv, err *e) {
    static const char *const heads[COLUMNS] = {"TIME (UTC)", "KEY",   "MODEL",  "KIND",
                                               "REQUESTS",   "INPUT", "CACHED", "OUTPUT"};
    static const bool right[COLUMNS] = {false, false, false, false, true, true, true, true};
    struct usage_command c = {.query = {.by_key = true, .by_model = true, .by_kind = true}};
    c.report = (struct report){
        .usage = "usage",
        .summary = "Shows how many tokens each key used of each model. A running daemon writes\n"
                   "them once a second.",
        .own = {.name = "by",
                .kind = OPTION_TEXT,
                .target = &c.by,
                .value = "LIST",
                .help = "what has its own sums, of key, model, kind, hour and day (default "
                        "key,model,kind)"},
        .heads = heads,
        .right = right,
        .n_columns = COLUMNS,
        .nothing = "nothing was used in that time",
        .read = read_rows,
        .arg = &c};
    return report_run(&c.report, argc, argv, e);
}
