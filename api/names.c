/* names.c - see names.h. Owns nothing. What the registry says counts, not what it said when a model
 * was loaded: a name that was deleted is gone, and one that was added is there. */
#include "api/names.h"

#include "api/generate/preset.h"
#include "api/http/request.h"
#include "core/base/mem.h"
#include "core/base/model_name.h"
#include "registry/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert((int)API_MODEL_ID_BYTES == (int)REGISTRY_NAME_BYTES, "names fit");

static bool is_registered(const struct api_model *m) {
    return m->sha256 && *m->sha256;
}

/* The loaded model of that registered name, with a reference; NULL: none. */
static const struct api_model *find_loaded(const struct api *a, const char *id) {
    const struct api_model *m = models_find(a->models, id, strlen(id));
    if (m && strcmp(m->id, id) == 0 && is_registered(m)) return m;
    models_release(a->models, m);
    return NULL;
}

/* Without ":latest", which Ollama's clients append, unless it is part of the name. */
static int look_up(registry *g, const char *name, struct registry_name *row, err *e) {
    size_t n = model_name_bare(name);
    int rc = registry_find_name(g, name, row, e);
    if (rc != ERR_NOT_FOUND || !name[n] || n >= REGISTRY_NAME_BYTES) return rc;
    char bare[REGISTRY_NAME_BYTES];
    snprintf(bare, sizeof bare, "%.*s", (int)n, name);
    return registry_find_name(g, bare, row, e);
}

/* Is name m's own, or one that only m tells, because it is not registered? */
static bool is_own(const struct api_model *m, const char *name) {
    size_t n = model_name_bare(name);
    return !is_registered(m) || (strlen(m->id) == n && memcmp(m->id, name, n) == 0);
}

/* Keeps r's model if the registry need not know the name. */
static int keep_own(struct request *r, const char *name, err *e) {
    if (r->model && is_own(r->model, name)) return 0;
    api_set_model(r, NULL);
    return err_set_param(e, ERR_NOT_FOUND, "model", "no model is named %.96s", name);
}

static int find_name(struct request *r, const char *name, char id[API_MODEL_ID_BYTES], err *e) {
    struct registry_name row;
    registry *g = NULL;
    const char *file = r->api->config.registry;
    if (!file) return keep_own(r, name, e);
    int rc = registry_open(file, &g, e);
    /* A name that had a preset must not be served without it. */
    if (rc == ERR_NOMEM || (rc && r->model && !is_own(r->model, name))) return rc;
    if (rc && r->model) return 0;
    if (rc && access(file, F_OK) == 0) return rc; /* it may know the name */
    if (rc) return keep_own(r, name, e);
    rc = look_up(g, name, &row, e);
    registry_close(g);
    if (rc == ERR_NOT_FOUND) return keep_own(r, name, e);
    if (rc) return rc;
    const struct api_model *m = find_loaded(r->api, row.model);
    if (m) {
        api_set_model(r, m);
        if (row.preset) rc = preset_parse(row.preset, &r->preset, e);
    } else if (keep_own(r, name, e)) {
        memcpy(id, row.model, sizeof row.model);
        rc = ERR_NOT_FOUND;
    }
    registry_name_fini(&row);
    return rc;
}

/* ---- lists ---- */

struct names {
    struct api_name *list; /* (n) */
    size_t n, capacity;
};

static int add_names(struct names *to, const struct api_model *m, const char *const *names,
                     size_t n, err *e) {
    for (size_t i = 0; i < n; i++) {
        if (to->n == to->capacity) {
            size_t more = to->capacity ? to->capacity * 2 : 16;
            struct api_name *grown = mem_resize(to->list, more, sizeof *grown);
            if (!grown) return err_no_memory(e);
            to->list = grown;
            to->capacity = more;
        }
        struct api_name *one = &to->list[to->n++];
        one->model = m;
        snprintf(one->name, sizeof one->name, "%s", names[i]);
    }
    return 0;
}

/* The names of m: those of its row; of a model that is not registered, its own. */
static int add_model_names(struct names *to, const struct api_model *m,
                           const struct registry_model *rows, size_t n, err *e) {
    if (!is_registered(m)) return add_names(to, m, m->aliases, m->n_aliases, e);
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, m->id) == 0)
            return add_names(to, m, (const char *const *)rows[i].aliases, rows[i].n_aliases, e);
    return 0;
}

static int list_names(const struct api *a, const struct models_list *served, struct api_name **out,
                      size_t *n, err *e) {
    struct names names = {0};
    struct registry_model *rows = NULL;
    registry *g = NULL;
    size_t n_rows = 0;
    int rc = a->config.registry ? registry_open(a->config.registry, &g, e) : 0;
    if (!rc && g) rc = registry_list(g, &rows, &n_rows, e);
    registry_close(g);
    for (size_t i = 0; i < served->n && !rc; i++)
        rc = add_model_names(&names, served->models[i], rows, n_rows, e);
    registry_models_free(rows, n_rows);
    if (rc) {
        free(names.list);
        return rc;
    }
    *out = names.list;
    *n = names.n;
    return 0;
}

const struct api_names api_registry_names = {find_name, list_names};
