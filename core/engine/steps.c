/* steps.c - the steps in flight. If the device can overlap steps, the next step is planned and
 * begun while the previous one runs: the sampled tokens go from one step to the next on the device,
 * and the host learns them while the next step runs. Owns the arrays of both steps. Worker thread.
 *
 * Whatever a step in flight will write counts as written: everything that reads or overwrites it
 * comes later in the device's stream. So a sequence that turns out to have ended is simply removed,
 * and its blocks are free at once, although the step that has begun still has a row of it. Nothing
 * reads that row: its token is dropped, and its slot was not committed. With recurrent layers the
 * row may also have moved the sequence's state past a boundary; the KV block there is not in the
 * prefix table then, so that state is not kept. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/engine/engine_int.h"

#include <stdlib.h>
#include <string.h>

int steps_init(engine *en, const struct model_limits *limits) {
    en->n_steps = en->split.n > 1 ? en->split.n : model_overlaps(en->mdl) ? 2 : 1;
    for (uint32_t i = 0; i < en->n_steps; i++) {
        struct step_in_flight *f = &en->steps[i];
        f->plan.items = mem_new(limits->max_seqs, sizeof *f->plan.items);
        if (!f->plan.items || step_batch_init(&f->batch, limits)) return ERR_NOMEM;
    }
    return 0;
}

void steps_fini(engine *en) {
    for (uint32_t i = 0; i < ENGINE_MAX_STEPS_IN_FLIGHT; i++) {
        free(en->steps[i].plan.items);
        step_batch_fini(&en->steps[i].batch);
    }
}

/* Adds `delta` (modulo 2^32) to the count of steps in flight of each of the plan's sequences. */
static void count_in_flight(const struct sched_plan *plan, uint32_t delta) {
    for (uint32_t i = 0; i < plan->n_items; i++)
        stream_of(plan->items[i].seq)->n_in_flight += delta;
}

/* Does the device find every token of the step, without rows for the host? */
static bool can_begin_next(const engine *en, const struct step_in_flight *f) {
    const struct model_shape *shape = &f->batch.batch.shape;
    if (!model_overlaps(en->mdl) || shape->n_hidden_rows) return false;
    for (uint32_t i = 0; i < shape->n_logit_rows; i++)
        if (f->batch.need_logits[i]) return false;
    return true;
}

int step_begin(engine *en, err *e) {
    struct step_in_flight *f = &en->steps[(en->first_in_flight + en->n_in_flight) % en->n_steps];
    struct sched_item *items = f->plan.items;
    f->start_ns = clock_now_ns();
    sched_set_free_flows(en->sch, en->n_steps - en->n_in_flight);
    sched_plan_step(en->sch, &f->plan);
    memcpy(items, f->plan.items, f->plan.n_items * sizeof *items);
    f->plan.items = items;
    if (!f->plan.n_items) return 0;
    group_note_copies(en);
    int rc = kv_flush_copies(en->cache, e);
    if (!rc) {
        step_batch_fill(&f->batch, &f->plan, en->cache);
        rc = group_send_step(en, &f->batch, e);
    }
    if (!rc)
        rc = en->split.n > 1 ? stages_begin(en, &f->batch, e)
                             : model_begin(en->mdl, &f->batch.batch, e);
    if (rc) {
        group_fail_step(en, e);
        return rc; /* the plan is not committed: sched_restart */
    }
    sched_commit(en->sch, &f->plan);
    f->next_may_begin = can_begin_next(en, f);
    count_in_flight(&f->plan, 1);
    en->totals.steps_overlapped_total += en->n_in_flight++;
    return 1;
}

/* Every sequence that the step does not end, as far as is known now, continues with a placeholder
 * for the token that the step will find. */
static void add_placeholders(engine *en, const struct step_in_flight *f) {
    for (uint32_t i = 0; i < f->plan.n_items; i++) {
        struct engine_stream *st = stream_of(f->plan.items[i].seq);
        if (f->plan.items[i].wants_logits && !st->finished && !st->seq.pooled &&
            st->n_generated + 1 < st->max_tokens)
            sched_add_placeholder(en->sch, &st->seq);
    }
}

bool steps_prepare_next(engine *en) {
    const struct step_in_flight *f = &en->steps[en->first_in_flight];
    if (en->n_in_flight != 1 || !f->next_may_begin) return false;
    add_placeholders(en, f);
    return true;
}

/* Removes the oldest step from those in flight. */
static struct step_in_flight *pop_first_step(engine *en) {
    struct step_in_flight *f = &en->steps[en->first_in_flight];
    en->first_in_flight = (en->first_in_flight + 1) % en->n_steps;
    en->n_in_flight--;
    count_in_flight(&f->plan, UINT32_MAX);
    return f;
}

/* Of two steps in flight, ranks in other processes finish the first one unasked. */
static int finish_first(engine *en, struct model_output *results, err *e) {
    if (en->split.n > 1)
        return stages_finish(en, &en->steps[en->first_in_flight].batch, results, e);
    int told = en->n_in_flight == 1 ? group_finish_step(en, e) : 0;
    int rc = model_finish(en->mdl, results, told ? NULL : e);
    if (!told && !rc) return 0;
    group_fail_step(en, e);
    return told ? told : rc;
}

int step_finish(engine *en, struct step_in_flight **out, struct model_output *results, err *e) {
    int rc = finish_first(en, results, e);
    *out = pop_first_step(en);
    return rc;
}

void steps_drop(engine *en) {
    struct model_output none;
    while (en->n_in_flight) {
        finish_first(en, &none, NULL);
        pop_first_step(en);
    }
}
