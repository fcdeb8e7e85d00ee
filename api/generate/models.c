/* models.c - see models.h. Owns the rows; never an engine, and calls none. */
#include "api/generate/models.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct row {
    struct api_model model;    /* first: a model is found by its row and the other way round */
    uint32_t n_refs, n_listed; /* n_listed: of them, those of lists */
    bool leaving, hidden;
    uint64_t used_ns;
};

struct model_table {
    pthread_mutex_t mu; /* guards all below */
    pthread_cond_t released;
    struct row *rows[API_MAX_MODELS]; /* (n) in the order of models_add */
    size_t n;
    uint64_t last_serial;
    struct models_counts counts;
    struct engine_totals gone; /* of forgotten models */
};

model_table *models_new(void) {
    model_table *t = mem_new(1, sizeof *t);
    if (!t) return NULL;
    pthread_mutex_init(&t->mu, NULL);
    clock_cond_init(&t->released);
    return t;
}

void models_free(model_table *t) {
    if (!t) return;
    for (size_t i = 0; i < t->n; i++)
        free(t->rows[i]);
    pthread_cond_destroy(&t->released);
    pthread_mutex_destroy(&t->mu);
    free(t);
}

static struct row *row_of(const struct api_model *m) {
    return (struct row *)(void *)m;
}

static bool has_id(const struct row *r, const char *name, size_t n) {
    return strlen(r->model.id) == n && memcmp(r->model.id, name, n) == 0;
}

static bool has_alias(const struct row *r, const char *name, size_t n) {
    for (size_t k = 0; k < r->model.n_aliases; k++) {
        const char *alias = r->model.aliases[k];
        if (strlen(alias) == n && memcmp(alias, name, n) == 0) return true;
    }
    return false;
}

/* With the mutex held. */
static int place(model_table *t, struct row *r, err *e) {
    const char *id = r->model.id;
    for (size_t i = 0; i < t->n; i++)
        if (has_id(t->rows[i], id, strlen(id)))
            return err_set(e, ERR_EXISTS,
                           t->rows[i]->leaving ? "%s is still being unloaded: try again later"
                                               : "%s is loaded already",
                           id);
    if (t->n == API_MAX_MODELS)
        return err_set(e, ERR_UNAVAILABLE, "%d models are loaded, the maximum: unload one first",
                       API_MAX_MODELS);
    r->model.serial = ++t->last_serial;
    r->used_ns = clock_now_ns();
    t->rows[t->n++] = r;
    t->counts.n_added++;
    return 0;
}

int models_add(model_table *t, const struct api_model *m, err *e) {
    struct row *r = mem_new(1, sizeof *r);
    if (!r) return err_no_memory(e);
    r->model = *m;
    pthread_mutex_lock(&t->mu);
    int rc = place(t, r, e);
    pthread_mutex_unlock(&t->mu);
    if (rc) free(r);
    return rc;
}

static struct row *find_row(model_table *t, const char *name, size_t n,
                            bool (*has)(const struct row *r, const char *name, size_t n)) {
    for (size_t i = 0; i < t->n; i++) {
        const struct row *r = t->rows[i];
        if (!r->leaving && !r->hidden && has(r, name, n)) return t->rows[i];
    }
    return NULL;
}

/* Also a hidden one. */
static struct row *find_id(model_table *t, const char *id) {
    for (size_t i = 0; i < t->n; i++)
        if (!t->rows[i]->leaving && has_id(t->rows[i], id, strlen(id))) return t->rows[i];
    return NULL;
}

static const struct api_model *take_ref(struct row *r) {
    if (!r) return NULL;
    r->n_refs++;
    r->used_ns = clock_now_ns();
    return &r->model;
}

const struct api_model *models_find(model_table *t, const char *name, size_t n) {
    pthread_mutex_lock(&t->mu);
    struct row *r = find_row(t, name, n, has_id);
    if (!r) r = find_row(t, name, n, has_alias);
    const struct api_model *m = take_ref(r);
    pthread_mutex_unlock(&t->mu);
    return m;
}

const struct api_model *models_only(model_table *t, size_t *n) {
    struct row *only = NULL;
    *n = 0;
    pthread_mutex_lock(&t->mu);
    for (size_t i = 0; i < t->n; i++) {
        if (t->rows[i]->leaving || t->rows[i]->hidden) continue;
        only = t->rows[i];
        ++*n;
    }
    const struct api_model *m = take_ref(*n == 1 ? only : NULL);
    pthread_mutex_unlock(&t->mu);
    return m;
}

const struct api_model *models_retain(model_table *t, const struct api_model *m) {
    pthread_mutex_lock(&t->mu);
    take_ref(row_of(m));
    pthread_mutex_unlock(&t->mu);
    return m;
}

/* With the mutex held. */
static void release_row(model_table *t, struct row *r) {
    r->n_refs--;
    if (r->leaving) pthread_cond_broadcast(&t->released);
}

void models_release(model_table *t, const struct api_model *m) {
    if (!m) return;
    pthread_mutex_lock(&t->mu);
    row_of(m)->used_ns = clock_now_ns();
    release_row(t, row_of(m));
    pthread_mutex_unlock(&t->mu);
}

void models_list(model_table *t, bool leaving, struct models_list *out,
                 struct engine_totals *totals) {
    out->n = 0;
    pthread_mutex_lock(&t->mu);
    for (size_t i = 0; i < t->n; i++) {
        struct row *r = t->rows[i];
        if (r->leaving && !leaving) continue;
        r->n_refs++;
        r->n_listed++;
        out->leaving[out->n] = r->leaving;
        out->models[out->n++] = &r->model;
    }
    if (totals) *totals = t->gone;
    pthread_mutex_unlock(&t->mu);
}

void models_list_release(model_table *t, struct models_list *list) {
    pthread_mutex_lock(&t->mu);
    for (size_t i = 0; i < list->n; i++) {
        row_of(list->models[i])->n_listed--;
        release_row(t, row_of(list->models[i]));
    }
    pthread_mutex_unlock(&t->mu);
    list->n = 0;
}

bool models_hide(model_table *t, const char *id, bool hidden) {
    pthread_mutex_lock(&t->mu);
    struct row *r = find_id(t, id);
    if (r) r->hidden = hidden;
    pthread_mutex_unlock(&t->mu);
    return r != NULL;
}

bool models_use(model_table *t, const char *id, uint32_t *n_refs, uint64_t *used_ns) {
    pthread_mutex_lock(&t->mu);
    const struct row *r = find_id(t, id);
    *n_refs = r ? r->n_refs - r->n_listed : 0;
    *used_ns = r ? r->used_ns : 0;
    pthread_mutex_unlock(&t->mu);
    return r != NULL;
}

const struct api_model *models_withdraw(model_table *t, const char *id) {
    pthread_mutex_lock(&t->mu);
    struct row *r = find_id(t, id);
    if (r) {
        r->leaving = true;
        r->n_refs++;
    }
    pthread_mutex_unlock(&t->mu);
    return r ? &r->model : NULL;
}

void models_restore(model_table *t, const struct api_model *m) {
    pthread_mutex_lock(&t->mu);
    row_of(m)->leaving = false;
    row_of(m)->n_refs--;
    pthread_mutex_unlock(&t->mu);
}

bool models_is_withdrawn(model_table *t, const struct api_model *m) {
    pthread_mutex_lock(&t->mu);
    bool leaving = row_of(m)->leaving;
    pthread_mutex_unlock(&t->mu);
    return leaving;
}

bool models_wait(model_table *t, const struct api_model *m, uint32_t wait_ms) {
    const uint64_t until_ns = clock_now_ns() + wait_ms * UINT64_C(1000000);
    pthread_mutex_lock(&t->mu);
    while (row_of(m)->n_refs > 1 && clock_now_ns() < until_ns)
        clock_cond_wait(&t->released, &t->mu, until_ns);
    bool alone = row_of(m)->n_refs == 1;
    pthread_mutex_unlock(&t->mu);
    return alone;
}

bool models_forget(model_table *t, const struct api_model *m, const struct engine_totals *did) {
    struct row *r = row_of(m);
    pthread_mutex_lock(&t->mu);
    bool last = r->n_refs == 1;
    if (last) {
        size_t i = 0;
        while (t->rows[i] != r)
            i++;
        memmove(&t->rows[i], &t->rows[i + 1], (t->n - i - 1) * sizeof t->rows[0]);
        t->n--;
        t->counts.n_removed++;
        engine_totals_keep(&t->gone, did);
    }
    pthread_mutex_unlock(&t->mu);
    if (last) free(r);
    return last;
}

void models_counts(model_table *t, struct models_counts *out) {
    pthread_mutex_lock(&t->mu);
    *out = t->counts;
    pthread_mutex_unlock(&t->mu);
}
