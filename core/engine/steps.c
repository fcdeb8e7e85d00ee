/* flight.c - steps under way. Where the device can, the next step is planned and begun while it
 * runs the one in front: the tokens that this one draws go from draw to ids on the device, and the
 * host learns them while the next step runs. Owns the arrays of both. Worker thread.
 *
 * What a step that is under way will write is taken as written: whatever reads or overwrites it
 * comes behind it in the device's stream. So a sequence that turns out to have ended is simply
 * removed, and its blocks are free at once, though the step that had begun by then still has a row
 * of it. Nobody sees that row: its token is dropped, and its slot was not committed. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/engine/engine_int.h"

#include <stdlib.h>
#include <string.h>

int flights_init(engine *en, const struct model_limits *limits) {
    uint32_t n = model_overlaps(en->mdl) ? ENGINE_MAX_FLIGHTS : 1;
    for (uint32_t i = 0; i < n; i++) {
        struct step_flight *f = &en->flights[i];
        f->plan.items = mem_new(limits->max_seqs, sizeof *f->plan.items);
        if (!f->plan.items || step_batch_init(&f->batch, limits)) return ERR_NOMEM;
    }
    return 0;
}

void flights_fini(engine *en) {
    for (uint32_t i = 0; i < ENGINE_MAX_FLIGHTS; i++) {
        free(en->flights[i].plan.items);
        step_batch_fini(&en->flights[i].batch);
    }
}

/* In the steps under way. */
static void count_flight(const struct sched_plan *plan, uint32_t more) {
    for (uint32_t i = 0; i < plan->n_items; i++)
        stream_of(plan->items[i].seq)->n_flights += more;
}

static bool may_lead(const engine *en, const struct step_flight *f) {
    const struct model_shape *shape = &f->batch.batch.shape;
    if (!model_overlaps(en->mdl) || shape->n_hidden_rows) return false;
    for (uint32_t i = 0; i < shape->n_logit_rows; i++)
        if (f->batch.whole_rows[i]) return false;
    return true;
}

int flight_begin(engine *en, err *e) {
    struct step_flight *f = &en->flights[(en->first_flight + en->n_flights) % ENGINE_MAX_FLIGHTS];
    struct sched_item *items = f->plan.items;
    f->start_ns = clock_now_ns();
    sched_plan_step(en->sch, &f->plan);
    memcpy(items, f->plan.items, f->plan.n_items * sizeof *items);
    f->plan.items = items;
    if (!f->plan.n_items) return 0;
    int rc = kv_flush_copies(en->cache, e);
    if (!rc) {
        step_batch_fill(&f->batch, &f->plan, en->cache);
        rc = model_begin(en->mdl, &f->batch.batch, e);
    }
    if (rc) {
        sched_abandon(en->sch, &f->plan);
        return rc;
    }
    sched_commit(en->sch, &f->plan);
    f->leads = may_lead(en, f);
    count_flight(&f->plan, 1);
    en->totals.steps_overlapped_total += en->n_flights++;
    return 1;
}

/* Sequences that the step does not end, by what is known now, go on with the token that it finds.
 */
static void expect_tokens(engine *en, const struct step_flight *f) {
    for (uint32_t i = 0; i < f->plan.n_items; i++) {
        struct engine_stream *st = stream_of(f->plan.items[i].seq);
        if (f->plan.items[i].wants_logits && !st->finished && !st->seq.pooled &&
            st->n_generated + 1 < st->max_tokens)
            sched_expect(en->sch, &st->seq);
    }
}

bool flight_lead(engine *en) {
    const struct step_flight *f = &en->flights[en->first_flight];
    if (en->n_flights != 1 || !f->leads) return false;
    expect_tokens(en, f);
    return true;
}

/* The step that began first is forgotten. Where steps do not overlap, the first place is the only
 * one. */
static struct step_flight *take_first(engine *en) {
    struct step_flight *f = &en->flights[en->first_flight];
    if (model_overlaps(en->mdl)) en->first_flight = (en->first_flight + 1) % ENGINE_MAX_FLIGHTS;
    en->n_flights--;
    count_flight(&f->plan, UINT32_MAX);
    return f;
}

int flight_land(engine *en, struct step_flight **out, struct model_output *results, err *e) {
    int rc = model_finish(en->mdl, results, e);
    *out = take_first(en);
    return rc;
}

void flights_drop(engine *en) {
    struct model_output none;
    while (en->n_flights) {
        model_finish(en->mdl, &none, NULL);
        take_first(en);
    }
}
