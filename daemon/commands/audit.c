/* commands/audit.c - inferd audit: what administrators did; and the notes of other commands. */
#include "daemon/commands/audit.h"

#include "core/base/clock.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/report.h"
#include "registry/audit.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { COLUMNS = 7 };

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
    struct report *report = arg;
    char when[32], count[24];
    time_t t = (time_t)row->time_s;
    struct tm utc;
    if (report->array) {
        report_add_json(report, row_json(row));
        return;
    }
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", gmtime_r(&t, &utc));
    snprintf(count, sizeof count, "%" PRIu64, row->count);
    const char *const cells[COLUMNS] = {when,        row->who,    row->client, row->act,
                                        row->object, row->result, count};
    report_add_cells(report, cells);
}

static int read_rows(struct report *report, registry *r, int64_t from_s, err *e) {
    const char *const *act = report->arg;
    return audit_read(r, from_s, *act, add_row, report, e);
}

int cmd_audit(int argc, char **argv, err *e) {
    static const char *const heads[COLUMNS] = {"TIME (UTC)", "WHO",    "FROM", "ACT",
                                               "OBJECT",     "RESULT", "COUNT"};
    static const bool right[COLUMNS] = {[COLUMNS - 1] = true};
    const char *act = "";
    struct report report = {
        .usage = "audit",
        .summary = "Shows what administrators did to keys, models, stored K/V and the\n"
                   "configuration: by commands of this machine and over HTTP, also what failed;\n"
                   "and how many authentications failed in each hour. A running daemon writes\n"
                   "its part once a second.",
        .own = {.name = "act",
                .kind = OPTION_TEXT,
                .target = &act,
                .value = "ACT",
                .help = "only acts that begin so: keys, models.load, kv, config, auth"},
        .heads = heads,
        .right = right,
        .n_columns = COLUMNS,
        .nothing = "nothing was done in that time",
        .read = read_rows,
        .arg = &act};
    return report_run(&report, argc, argv, e);
}
