/* models.h - the table of served models, which come and go while the daemon runs.
 *
 * A model is found, and then used, by reference: what it points to (engine, template, strings)
 * stays until the last reference is released. To remove one: models_withdraw hides it from new
 * requests, the caller waits for or ends those that have it, and models_forget takes it out when no
 * reference is left. Only then may its engine be closed.
 *
 * THREAD SAFETY: any thread. The table's one mutex guards the list, the counts of references, the
 * marks and the totals; no call is made while it is held. A struct api_model does not change while
 * it is in the table, so whoever has a reference reads it without the mutex. */
#ifndef INFERD_API_GENERATE_MODELS_H
#define INFERD_API_GENERATE_MODELS_H

#include "api/generate/config.h"
#include "api/generate/engine_totals.h"
#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct model_table model_table;

model_table *models_new(void);    /* NULL: no memory */
void models_free(model_table *t); /* frees the table, not what its models point to. NULL is fine */

/* Copies m, whose serial it sets; the rest stays the caller's. ERR_EXISTS: one with that id is in
 * the table, or still leaving it. ERR_UNAVAILABLE: the table is full. */
int models_add(model_table *t, const struct api_model *m, err *e);

/* The model whose id, else one of whose aliases, is name (n bytes), with a reference; NULL: none.
 */
const struct api_model *models_find(model_table *t, const char *name, size_t n);
/* The only model, with a reference; NULL: *n models are served, not 1. */
const struct api_model *models_only(model_table *t, size_t *n);
const struct api_model *models_retain(model_table *t, const struct api_model *m);
void models_release(model_table *t, const struct api_model *m); /* NULL is fine */

/* Models with a reference of each, in the order in which they were added. */
struct models_list {
    const struct api_model *models[API_MAX_MODELS]; /* (n) */
    bool leaving[API_MAX_MODELS];
    size_t n;
};
/* leaving: also withdrawn ones. totals (may be NULL): of the models that were forgotten, as of the
 * same moment, so that sums with those of the list never fall. */
void models_list(model_table *t, bool leaving, struct models_list *out,
                 struct engine_totals *totals);
void models_list_release(model_table *t, struct models_list *list);

/* While it is hidden models_find and models_only do not find it, so that its references end one
 * after another. false: there is no such model. */
bool models_hide(model_table *t, const char *id, bool hidden);
/* Its references but those of lists, and when one was taken or released last (clock_now_ns). false:
 * no such model, or it is withdrawn. */
bool models_use(model_table *t, const char *id, uint32_t *n_refs, uint64_t *used_ns);
/* Hides the model from models_find and models_only. Returns it with a reference; NULL: no such
 * model, or withdrawn already. */
const struct api_model *models_withdraw(model_table *t, const char *id);
/* Undoes models_withdraw and ends its reference. */
void models_restore(model_table *t, const struct api_model *m);
bool models_is_withdrawn(model_table *t, const struct api_model *m);
/* Waits until m, withdrawn, has no reference but the caller's, for at most wait_ms. */
bool models_wait(model_table *t, const struct api_model *m, uint32_t wait_ms);
/* Takes m, withdrawn, out of the table and adds what its engine did to the totals. The caller's
 * reference is the last one and ends; false: it is not, nothing happened. */
bool models_forget(model_table *t, const struct api_model *m, const struct engine_totals *did);

struct models_counts {
    uint64_t n_added, n_removed; /* since the start */
};
void models_counts(model_table *t, struct models_counts *out);

#endif
