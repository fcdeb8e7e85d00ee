/* presets.c - what a name of a model has beside the model: a text that the API writes and reads
 * (JSON with a system prompt, messages and parameters). Removed with its name, by the foreign key.
 */
#include "registry/registry_int.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int registry_check_preset(const char *name, const char *preset, err *e) {
    size_t n = strlen(preset);
    if (n <= REGISTRY_PRESET_BYTES) return 0;
    return err_set_param(e, ERR_INVALID, "preset",
                         "the preset of %s has %zu bytes, more than %d: shorten its system prompt "
                         "or messages",
                         name, n, (int)REGISTRY_PRESET_BYTES);
}

int registry_write_preset(registry *r, const char *name, const char *preset, err *e) {
    sqlite3_stmt *st = NULL;
    const char *sql = preset ? "INSERT INTO presets (name, preset) VALUES (?1, ?2)"
                               " ON CONFLICT (name) DO UPDATE SET preset = excluded.preset"
                             : "DELETE FROM presets WHERE name = ?1";
    int rc = registry_db_prepare(r->db, r->file, sql, &st, e);
    if (rc) return rc;
    sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
    if (preset) sqlite3_bind_text(st, 2, preset, -1, SQLITE_STATIC);
    rc = sqlite3_step(st) == SQLITE_DONE ? 0 : registry_db_error(r->db, r->file, "write", e);
    sqlite3_finalize(st);
    return rc;
}

/* One statement, so that name and preset are of one moment. */
int registry_find_name(registry *r, const char *name, struct registry_name *out, err *e) {
    static const char sql[] =
        "SELECT own.name, presets.preset FROM names"
        " JOIN names own ON own.model_id = names.model_id AND own.position = 0"
        " LEFT JOIN presets ON presets.name = names.name WHERE names.name = ?1";
    sqlite3_stmt *st = NULL;
    *out = (struct registry_name){.preset = NULL};
    int rc = registry_db_prepare(r->db, r->file, sql, &st, e);
    if (rc) return rc;
    sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
    int step = sqlite3_step(st);
    if (step == SQLITE_ROW) {
        const char *own = (const char *)sqlite3_column_text(st, 0);
        bool has = sqlite3_column_type(st, 1) != SQLITE_NULL;
        const char *preset = has ? (const char *)sqlite3_column_text(st, 1) : NULL;
        snprintf(out->model, sizeof out->model, "%s", own ? own : "");
        if (preset) out->preset = mem_strdup(preset);
        if (!own || (has && !out->preset)) rc = err_no_memory(e);
    } else {
        rc = step == SQLITE_DONE
                 ? err_set_param(e, ERR_NOT_FOUND, "model", "no model is named %.96s", name)
                 : registry_db_error(r->db, r->file, "read", e);
    }
    sqlite3_finalize(st);
    return rc;
}

void registry_name_fini(struct registry_name *n) {
    free(n->preset);
    n->preset = NULL;
}
