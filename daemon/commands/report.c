/* report.c - see report.h. */
#include "daemon/commands/report.h"

#include "core/base/clock.h"
#include "daemon/commands/printing.h"

#include <stdio.h>
#include <stdlib.h>

enum { DAY_S = 86400 };

static const char *const registry_keys[] = {"registry", NULL};

void report_add_json(struct report *report, cJSON *object) {
    report->n++;
    if (cJSON_AddItemToArray(report->array, object)) return;
    cJSON_Delete(object);
    report->failed = true;
}

void report_add_cells(struct report *report, const char *const *cells) {
    report->n++;
    if (!report->table)
        report->table = printing_table_new(report->heads, report->right, report->n_columns);
    if (report->table)
        printing_table_add(report->table, cells);
    else
        report->failed = true;
}

static int print_rows(struct report *report, const char *path, int64_t from_s, err *e) {
    registry *r = NULL;
    int rc = registry_open(path, &r, e);
    if (!rc) rc = report->read(report, r, from_s, e);
    registry_close(r);
    if (!rc && report->failed) rc = err_no_memory(e);
    if (!rc && report->array) return printing_json(report->array, e);
    cJSON_Delete(report->array);
    if (!rc && !report->n) fprintf(stderr, "%s\n", report->nothing);
    printing_table_print(report->table);
    return rc;
}

int report_run(struct report *report, int argc, char **argv, err *e) {
    struct config config;
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
        report->own,
        {.name = "json", .kind = OPTION_SWITCH, .target = &json, .help = "print a JSON array"}};
    const struct options options = {.usage = report->usage,
                                    .summary = report->summary,
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
    if (json && !(report->array = cJSON_CreateArray())) rc = err_no_memory(e);
    if (!rc) rc = config_registry_path(&config, &path, e);
    if (!rc) rc = print_rows(report, path, clock_wall_s() - (int64_t)days * DAY_S, e);
    free(path);
    config_fini(&config);
    return rc ? 1 : 0;
}
