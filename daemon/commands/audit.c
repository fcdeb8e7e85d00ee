/* commands/audit.c - inferd audit: what administrators did; and the notes of other commands. */
#include "daemon/commands/audit.h"

#include "core/base/clock.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/printing.h"
#include "daemon/options.h"
#include "registry/audit.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { COLUMNS = 7, DAY_S = 86400 };

static const char *const registry_keys[] = {"registry", NULL};

/* ---- notes ---- */

static int note(registry *r, const char *act, const char *object, int result, err *e) {
    struct audit_row row = {.time_s = clock_wall_s()};
    const struct passwd *user = getpwuid(getuid());
    if (user)
        snprintf(row.who, sizeof row.who, "user:%s", user->pw_name);
    else
        snprintf(row.who, sizeof row.who, "user:%lu", (unsigned long)getuid());
    snprintf(row.act, sizeof row.act, "%s", act);
    if (object) audit_set(row.object, sizeof row.object, object);
    audit_set_result(&row, result);
    return audit_write(r, &row, e);
}

static void warn(const err *e) {
    fprintf(stderr, "inferd: the audit log is not written: %s\n", e->msg);
}

void audit_note(registry *r, const char *act, const char *object, int rc) {
    err e;
    if (note(r, act, object, rc, &e)) warn(&e);
}

void audit_note_at(const char *path, const char *act, const char *object, int rc) {
    registry *r = NULL;
    err e;
    if (registry_open(path, &r, &e) || note(r, act, object, rc, &e)) warn(&e);
    registry_close(r);
}

/* ---- the command ---- */

struct audit_command {
    cJSON *array; /* NULL: a table */
    struct printing_table *table;
    uint64_t n;
};

static cJSON *row_json(const struct audit_row *row) {
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "time", (double)row->time_s);
    cJSON_AddStringToObject(o, "who", row->who);
    cJSON_AddStringToObject(o, "client", row->client);
    cJSON_AddStringToObject(o, "act", row->act);
    cJSON_AddStringToObject(o, "object", row->object);
    cJSON_AddStringToObject(o, "result", row->result);
    cJSON_AddNumberToObject(o, "count", (double)row->count);
    return o;
}

static void add_row(void *arg, const struct audit_row *row) {
    static const char *const heads[COLUMNS] = {"TIME (UTC)", "WHO",    "FROM", "ACT",
                                               "OBJECT",     "RESULT", "COUNT"};
    static const bool right[COLUMNS] = {[COLUMNS - 1] = true};
    struct audit_command *c = arg;
    c->n++;
    if (c->array) {
        cJSON_AddItemToArray(c->array, row_json(row));
        return;
    }
    char when[32], count[24];
    time_t t = (time_t)row->time_s;
    struct tm utc;
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", gmtime_r(&t, &utc));
    snprintf(count, sizeof count, "%" PRIu64, row->count);
    const char *const cells[COLUMNS] = {when,        row->who,    row->client, row->act,
                                        row->object, row->result, count};
    if (!c->table) c->table = printing_table_new(heads, right, COLUMNS);
    if (c->table) printing_table_add(c->table, cells);
}

static int print_audit(struct audit_command *c, const char *path, int64_t from_s, const char *act,
                       err *e) {
    registry *r = NULL;
    int rc = registry_open(path, &r, e);
    if (!rc) rc = audit_read(r, from_s, act, add_row, c, e);
    registry_close(r);
    if (!rc && c->array) return printing_json(c->array, e);
    cJSON_Delete(c->array);
    if (!rc && !c->n) fprintf(stderr, "nothing was done in that time\n");
    printing_table_print(c->table);
    return rc;
}

int cmd_audit(int argc, char **argv, err *e) {
    struct audit_command c = {.array = NULL};
    struct config config;
    const char *act = "";
    uint64_t days = 30;
    bool json = false;
    const struct option own[] = {
        {.name = "days",
         .kind = OPTION_NUMBER,
         .target = &days,
         .value = "N",
         .help = "of the last N days (default 30)",
         .min = 1,
         .max = 36500},
        {.name = "act",
         .kind = OPTION_TEXT,
         .target = &act,
         .value = "ACT",
         .help = "only acts that begin so: keys, models.load, kv, config, auth"},
        {.name = "json", .kind = OPTION_SWITCH, .target = &json, .help = "print a JSON array"}};
    const struct options options = {
        .usage = "audit",
        .summary = "Shows what administrators did to keys, models, stored K/V and the\n"
                   "configuration: by commands of this machine and over HTTP, also what failed;\n"
                   "and how many authentications failed in each hour. A running daemon writes\n"
                   "its part once a second.",
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
    if (json) c.array = cJSON_CreateArray();
    rc = config_registry_path(&config, &path, e);
    if (!rc) rc = print_audit(&c, path, clock_wall_s() - (int64_t)days * DAY_S, act, e);
    free(path);
    config_fini(&config);
    return rc ? 1 : 0;
}
