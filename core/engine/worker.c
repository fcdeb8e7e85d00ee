/* worker.c - the worker thread, which connects requests, scheduler, cache, model and streams. Read
 * this first. Its loop:
 *
 *   take the inbox (new sequences, cancels, readers that caught up); sleep here when idle
 *   take what was read from the KV store, copy out what it shall keep (tier.h)
 *   step:  plan -> copies -> batch -> begin -> commit; if steps overlap, the same for the next
 * step; then wait for the first -> sample -> events free ended sequences, publish the counters
 *
 * A grammar's next mask is computed as soon as a token is known, within a budget; deferred_masks.c
 * computes the expensive ones while their sequences are paused.
 *
 * The step allocates and frees nothing (a guard counts it); ended sequences are freed between
 * steps. Paused and waiting sequences cost nothing. If nothing can run, only the inbox or a
 * deadline can change that, so the worker sleeps. After a device failure the running sequences are
 * computed again. If the device is gone, or fails too often, every sequence ends with ERR_DEVICE,
 * after a change of the model's file with ERR_CHANGED, and so does every later request; the
 * daemon's readiness turns red. */
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/engine/engine_int.h"

#include <assert.h>
#include <string.h>

int engine_err_changed(err *e) {
    return err_set(e, ERR_CHANGED,
                   "The model's file changed while it was served: the server must be restarted.");
}

/* Adds the time since the results of the previous sequence were delivered. */
static void note_sampling(engine *en, struct engine_stream *st, uint64_t now) {
    atomic_fetch_add_explicit(&st->times.sampling_ns, now - en->delivering_ns,
                              memory_order_relaxed);
    en->delivering_ns = now;
}

/* Ends a sequence: its blocks are freed now, its memory between steps. It is counted before its
 * reader is told: who has an answer finds it in the metrics. */
static void finish_stream(engine *en, struct engine_stream *st, enum engine_finish how,
                          const err *error) {
    if (st->finished) return;
    st->finished = true;
    stats_unplace(en, st);
    uint64_t now = clock_now_ns();
    if (en->delivering_ns) note_sampling(en, st, now); /* before its reader is told */
    atomic_store(&st->times.ended_ns, now);
    atomic_store(&st->ended, true);
    st->restore = NULL;
    if (st->seq.state != SCHED_NEW) {
        sched_remove(en->sch, &st->seq);
        if (st->live_prev)
            st->live_prev->live_next = st->live_next;
        else
            en->live = st->live_next;
        if (st->live_next) st->live_next->live_prev = st->live_prev;
    }
    en->totals.requests_total[how]++;
    if (how == ENGINE_FINISH_STOP || how == ENGINE_FINISH_LENGTH)
        stats_observe(&en->totals.answer_time, (double)(clock_now_ns() - st->submit_ns) * 1e-9);
    stats_publish(en);
    stream_push_final(st, how, error);
    st->reap_next = en->reap;
    en->reap = st;
}

static void reap_streams(engine *en) {
    struct engine_stream **at = &en->reap;
    while (*at) {
        struct engine_stream *st = *at;
        if (st->n_in_flight) {
            at = &st->reap_next;
            continue;
        }
        *at = st->reap_next;
        stream_unref(st);
    }
}

/* What was in the inbox. */
struct mail {
    struct engine_stream *inbox, *wake_list;
    bool stopping, check;
};

/* Publishes the number of sequences that were never admitted, for engine_submit's bound. */
static void count_queue(engine *en) {
    uint32_t n = UINT32_MAX - sched_room(en->sch);
    pthread_mutex_lock(&en->lock);
    en->n_queued = n;
    pthread_mutex_unlock(&en->lock);
}

static bool is_due(uint64_t deadline_ns) {
    return deadline_ns && clock_now_ns() >= deadline_ns;
}

/* Under en->lock: waits for en->wake or the deadline. */
static void sleep_until(engine *en, uint64_t deadline_ns) {
    if (deadline_ns)
        clock_cond_wait(&en->wake, &en->lock, deadline_ns);
    else
        pthread_cond_wait(&en->wake, &en->lock);
}

static void take_mail(engine *en, bool idle, struct mail *m) {
    uint64_t until_ns = en->next_deadline_ns, tier_ns = tier_due_ns(en);
    if (tier_ns && (!until_ns || tier_ns < until_ns)) until_ns = tier_ns;
    pthread_mutex_lock(&en->lock);
    en->n_rounds++;
    while (idle && !en->inbox && !en->wake_list && !en->stopping && !en->check_wanted &&
           !en->tier.wake && !is_due(until_ns)) {
        en->resting = true;
        sleep_until(en, until_ns);
    }
    en->resting = false;
    *m = (struct mail){en->inbox, en->wake_list, en->stopping, en->check_wanted};
    /* They count as queued from here on; count_queue corrects the number when they are added. */
    en->n_queued += en->n_inbox;
    en->n_inbox = 0;
    en->inbox = NULL;
    en->inbox_tail = &en->inbox;
    en->wake_list = NULL;
    pthread_mutex_unlock(&en->lock);
}

/* ---- grammars ---- */

/* Ends a sequence whose text is complete, or whose grammar allows no next token. */
static void end_text(engine *en, struct engine_stream *st) {
    const struct constraint *c = &st->constraint;
    err e;
    if (st->finished) return;
    switch (c->next) {
    case CONSTRAINT_END:
        finish_stream(en, st, ENGINE_FINISH_STOP, NULL);
        return;
    case CONSTRAINT_FAILED:
        err_set(&e, ERR_UNSUPPORTED,
                "the answer is nested too deeply, or is too large, for its grammar to follow");
        break;
    case CONSTRAINT_COSTLY:
        en->totals.masks_given_up_total++;
        err_set(&e, ERR_WORK,
                "holding this answer to its schema or grammar takes more work than this server "
                "allows: ask for a simpler one");
        break;
    default:
        if (st->max_tokens && st->n_generated == st->max_tokens)
            finish_stream(en, st, ENGINE_FINISH_LENGTH, NULL);
        return;
    }
    finish_stream(en, st, ENGINE_FINISH_ERROR, &e);
}

/* Computes what may come next, here within a budget, otherwise in deferred_masks.c while the
 * sequence is paused. This is done as soon as the text is known, so that no row is wasted. */
static void update_mask(engine *en, struct engine_stream *st) {
    struct deferred_masks *l = &en->deferred;
    struct constraint *c = &st->constraint;
    uint64_t units = l->left < l->units ? l->left : l->units, start = clock_now_ns();
    uint64_t before = grammar_matcher_spent(c->matcher);
    if (units < ENGINE_MIN_MASK_UNITS && l->units > units) units = ENGINE_MIN_MASK_UNITS;
    constraint_find_next(c, en, units);
    uint64_t ns = clock_now_ns() - start, spent = grammar_matcher_spent(c->matcher) - before;
    l->left -= spent < l->left ? spent : l->left;
    en->totals.mask_ns_total += ns;
    constraint_charge(c, en, ns);
    if (c->next != CONSTRAINT_UNKNOWN) return;
    en->totals.masks_deferred_total++;
    st->mask_deferred = st->seq.paused = true;
    deferred_masks_add(st);
}

/* The thread has computed the mask. A sequence that ends before its first token ends when its row
 * is delivered, after the events of its prompt. */
static void take_deferred_mask(engine *en, struct engine_stream *st) {
    st->mask_deferred = false;
    if (st->constraint.begun) end_text(en, st);
}

static void note_deadline(engine *en, const struct engine_stream *st) {
    if (st->deadline_ns && (!en->next_deadline_ns || st->deadline_ns < en->next_deadline_ns))
        en->next_deadline_ns = st->deadline_ns;
}

/* Checks all live sequences, but only when the earliest deadline has passed. */
static void end_overdue(engine *en) {
    err e;
    if (!is_due(en->next_deadline_ns)) return;
    err_set(&e, ERR_DEADLINE, ENGINE_OVERDUE);
    en->next_deadline_ns = 0;
    for (struct engine_stream *st = en->live, *next; st; st = next) {
        next = st->live_next;
        if (!is_due(st->deadline_ns)) {
            note_deadline(en, st);
            continue;
        }
        en->totals.overdue_total++;
        finish_stream(en, st, ENGINE_FINISH_ERROR, &e);
    }
}

static void add_new(engine *en, struct engine_stream *st) {
    if (en->failure.code) {
        finish_stream(en, st, ENGINE_FINISH_ERROR, &en->failure);
        return;
    }
    int rc = sched_add(en->sch, &st->seq);
    if (rc) {
        err e;
        err_set(&e, rc, "the queue is full");
        finish_stream(en, st, ENGINE_FINISH_ERROR, &e);
        return;
    }
    st->live_next = en->live;
    if (en->live) en->live->live_prev = st;
    en->live = st;
    note_deadline(en, st);
    tier_add(en, st);
    if (st->constraint.matcher) update_mask(en, st);
}

static void handle_wake(engine *en, struct engine_stream *st) {
    pthread_mutex_lock(&en->lock);
    st->in_wake_list = false; /* first, so that later changes make a new entry */
    pthread_mutex_unlock(&en->lock);
    bool mask_ready = atomic_exchange(&st->mask_ready, false);
    if (atomic_load(&st->cancelled)) finish_stream(en, st, ENGINE_FINISH_CANCEL, NULL);
    if (mask_ready) take_deferred_mask(en, st);
    if (!st->finished) {
        if (stream_has_room(st)) st->full = false;
        st->seq.paused = st->full || st->mask_deferred || st->restore;
    }
    stream_unref(st);
}

static void answer_check(engine *en) {
    err e;
    err_clear(&e);
    sched_check(en->sch, &e);
    pthread_mutex_lock(&en->lock);
    en->check_result = e;
    en->check_wanted = false;
    pthread_cond_broadcast(&en->done);
    pthread_mutex_unlock(&en->lock);
}

static void handle_mail(engine *en, const struct mail *m) {
    for (struct engine_stream *st = m->inbox, *next; st; st = next) {
        next = st->inbox_next;
        add_new(en, st);
    }
    for (struct engine_stream *st = m->wake_list, *next; st; st = next) {
        next = st->wake_next;
        handle_wake(en, st);
    }
    end_overdue(en);
    count_queue(en);
    if (m->check) answer_check(en);
}

static void finish_all_streams(engine *en, const err *error) {
    for (struct engine_stream *st = en->live, *next; st; st = next) {
        next = st->live_next;
        finish_stream(en, st, ENGINE_FINISH_ERROR, error);
    }
    count_queue(en);
}

/* The device failed, or the model's file has changed. */
static void fail_device(engine *en, const err *e) {
    tier_drop(en);
    en->failure = *e;
    if (e->code == ERR_CHANGED) engine_err_changed(&en->failure);
    log_error("engine: %s; every request is refused from now on", e->msg);
    pthread_mutex_lock(&en->lock);
    en->device_failed = true;
    pthread_mutex_unlock(&en->lock);
    finish_all_streams(en, &en->failure);
}

/* Makes the device usable again, unless it has failed too often of late. The sequences wait to be
 * computed again: n_steps steps were lost. */
static bool recover_device(engine *en, uint32_t n_steps, const err *failure) {
    uint64_t now = clock_now_ns();
    err e;
    if (failure->code != ERR_DEVICE || en->config.group) return false;
    if (now - en->first_recovery_ns > ENGINE_RECOVERY_NS) {
        en->first_recovery_ns = now;
        en->n_recoveries = 0;
    }
    if (en->n_recoveries++ == ENGINE_MAX_RECOVERIES) return false;
    if (model_recover(en->mdl, &e)) return false;
    log_warn("engine: %s; %u running sequences are computed again", failure->msg,
             sched_n_running(en->sch));
    tier_drop(en);
    sched_restart(en->sch, n_steps);
    en->totals.device_recoveries_total++;
    return true;
}

static void note_admission(engine *en, struct engine_stream *st, uint64_t now) {
    if (st->admitted) return;
    st->admitted = true;
    stats_place(en, st);
    atomic_store(&st->times.admitted_ns, now);
    stats_observe(&en->totals.queue_time, (double)(now - st->submit_ns) * 1e-9);
    en->totals.prompt_tokens_total += st->seq.n_prompt;
    en->totals.cached_tokens_total += stream_n_cached(st);
    en->totals.misses_total[st->seq.miss]++;
    en->totals.missed_tokens_total[st->seq.miss] += st->seq.n_prompt - stream_n_cached(st);
}

static void push_event(struct engine_stream *st, const struct engine_event *ev) {
    if (!stream_push(st, ev)) st->full = st->seq.paused = true;
}

/* Delivers events of the prompt tokens that the item's rows predict: the row at pos predicts token
 * pos + 1. A recomputation skips positions that were delivered before. */
static int deliver_prompt(engine *en, const struct sched_item *item, const float *logits) {
    struct engine_stream *st = stream_of(item->seq);
    for (uint32_t i = 0; i < item->n_rows; i++) {
        uint32_t pos = item->first + i + 1;
        if (pos >= st->seq.n_prompt || pos <= st->n_prompt_sent) continue;
        struct engine_event ev = {.kind = ENGINE_EVENT_PROMPT, .token = st->seq.tokens[pos]};
        int rc = sampler_logprobs(en->smp, logits + (size_t)i * en->hp.n_vocab, ev.token,
                                  (int)st->n_top, &ev);
        if (rc) return rc;
        push_event(st, &ev);
        st->n_prompt_sent = pos;
    }
    if (st->n_prompt_sent + 1 >= st->seq.n_prompt) st->seq.all_rows = false;
    return 0;
}

/* Tokens of one step have one time: there is no gap between them. */
static void note_token(engine *en, struct engine_stream *st, uint64_t now) {
    const uint64_t last = atomic_load_explicit(&st->times.last_token_ns, memory_order_relaxed);
    st->n_generated++;
    en->totals.generated_tokens_total++;
    if (!last) {
        atomic_store(&st->times.first_token_ns, now);
        stats_observe(&en->totals.ttft, (double)(now - st->submit_ns) * 1e-9);
    } else if (last != now) {
        stats_observe(&en->totals.inter_token, (double)(now - last) * 1e-9);
    }
    atomic_store_explicit(&st->times.last_token_ns, now, memory_order_relaxed);
}

/* Does the sequence's grammar force the next token? */
static bool is_forced(const struct engine_stream *st) {
    return st->constraint.next == CONSTRAINT_FORCED;
}

/* A row's results: logits, best tokens, the token that the device sampled. */
struct sampled_row {
    const float *logits; /* (n_vocab) or NULL */
    struct sampler_top top;
    const struct backend_sampled *sampled; /* NULL: nothing */
    bool on_host;                          /* the host samples the token */
};

static struct sampled_row row_of(const struct step_in_flight *f, const struct engine_stream *st,
                                 const struct model_output *out, size_t row) {
    const struct step_batch *b = &f->batch;
    size_t n_top = b->batch.shape.n_top;
    struct sampled_row r = {.on_host = !st->on_device || b->sample_on_host[row]};
    if (b->need_logits[row]) r.logits = out->logits + row * st->en->hp.n_vocab;
    if (st->on_device) r.sampled = &out->sampled[row];
    if (n_top)
        r.top = (struct sampler_top){out->top_ids + row * n_top, out->top_values + row * n_top,
                                     (uint32_t)n_top};
    return r;
}

/* Log-probabilities of the token in ev. If the device computed the row's log_sum, they use it,
 * even when the host sampled the token. */
static int find_logprobs(engine *en, int n_top, const struct sampled_row *row,
                         struct engine_event *ev) {
    if (!row->sampled) return sampler_logprobs(en->smp, row->logits, ev->token, n_top, ev);
    float logit = row->on_host ? row->logits[ev->token] : row->sampled->logit;
    sampler_device_logprobs(logit, row->sampled->log_sum, &row->top, n_top, ev);
    return 0;
}

/* The next token: forced by the grammar, otherwise sampled from the row. Its log-probability is the
 * model's in both cases. */
static int choose_token(engine *en, struct engine_stream *st, const struct sampled_row *row,
                        struct engine_event *ev) {
    const struct engine_params *p = &st->params;
    const struct constraint *c = &st->constraint;
    int rc = 0;
    if (is_forced(st)) {
        ev->token = c->forced;
        en->totals.forced_tokens_total++;
    } else if (row->sampled && row->sampled->token < 0) {
        rc = ERR_DEVICE;
    } else if (!row->on_host) {
        ev->token = row->sampled->token;
    } else {
        rc = sampler_sample(en->smp,
                            &(struct sampler_request){.params = p,
                                                      .history = &st->history,
                                                      .seed = st->seed,
                                                      .index = st->n_generated,
                                                      .logits = row->logits,
                                                      .top = row->top,
                                                      .mask = c->matcher ? c->mask : en->allowed},
                            &ev->token);
    }
    if (!rc && p->n_logprobs >= 0) rc = find_logprobs(en, p->n_logprobs, row, ev);
    return rc;
}

/* Delivers a chosen token. Returns true when another one may follow in this step. */
static bool deliver_one(engine *en, struct engine_stream *st, const struct engine_event *ev,
                        uint64_t now) {
    note_token(en, st, now);
    if (!st->params.ignore_eos && tokenizer_is_eog(en->tok, ev->token)) {
        finish_stream(en, st, ENGINE_FINISH_STOP, NULL);
        return false;
    }
    penalty_history_add(&st->history, ev->token, true);
    push_event(st, ev);
    bool last = st->n_generated == st->max_tokens;
    if (st->constraint.matcher) {
        constraint_take(&st->constraint, ev->token, last);
        update_mask(en, st);
    }
    if (!st->mask_deferred) end_text(en, st);
    if (st->finished || last) return false;
    sched_append(en->sch, &st->seq, ev->token);
    return !st->seq.paused;
}

/* Delivers the next token of st from its row, then the tokens that the grammar forces after it:
 * these need no logits unless their log-probabilities are requested. */
static int deliver_token(engine *en, struct engine_stream *st, const struct sampled_row *row,
                         uint64_t now) {
    struct engine_event ev = {.kind = ENGINE_EVENT_TOKEN};
    assert(!st->mask_deferred); /* it is paused until its mask is ready */
    end_text(en, st);           /* a grammar that allows nothing, or only the empty text */
    if (st->finished) return 0;
    int rc = choose_token(en, st, row, &ev);
    while (!rc && deliver_one(en, st, &ev, now) && is_forced(st) && st->params.n_logprobs < 0)
        rc = choose_token(en, st, NULL, &ev);
    return rc;
}

/* Takes the rows of hidden states that the step has of item i. Rows of a step that was in flight at
 * the same time may have come before: those are not wanted any more. */
static void deliver_pooled(engine *en, const struct step_in_flight *f, uint32_t i,
                           const float *hidden) {
    const struct sched_item *item = &f->plan.items[i];
    const struct step_batch *b = &f->batch;
    struct engine_stream *st = stream_of(item->seq);
    const uint32_t n_embd = en->hp.n_embd, n = b->batch.shape.n_hidden_rows;
    for (size_t k = b->first_out[i]; k < n && b->hidden_rows[k] < b->row_start[i + 1]; k++) {
        const uint32_t pos = item->first + (uint32_t)(b->hidden_rows[k] - b->row_start[i]);
        if (pooled_wants(&st->pooled, pos, st->seq.n_prompt))
            pooled_take(&st->pooled, hidden + k * n_embd, n_embd);
    }
    if (!item->wants_logits) return; /* more rows will come */
    pooled_finish(&st->pooled, en);
    finish_stream(en, st, ENGINE_FINISH_STOP, NULL);
}

/* Delivers item i of the plan. */
static void deliver_sampled(engine *en, const struct step_in_flight *f, uint32_t i,
                            const struct model_output *out, uint64_t now) {
    const struct sched_item *item = &f->plan.items[i];
    const struct step_batch *b = &f->batch;
    struct engine_stream *st = stream_of(item->seq);
    size_t first = b->first_out[i], last = first;
    int rc = 0;
    if (st->seq.all_rows) rc = deliver_prompt(en, item, out->logits + first * en->hp.n_vocab);
    if (!rc && item->wants_logits) {
        /* The step may have logits of all rows although no prompt event is missing any more. */
        while (b->out_rows[last] + 1 < b->row_start[i + 1])
            last++;
        struct sampled_row row = row_of(f, st, out, last);
        rc = deliver_token(en, st, &row, now);
    }
    if (rc) {
        err e;
        if (!model_check_files(en->mdl, NULL)) /* overwritten weights cause this, too */
            err_set(&e, rc, "the model computed no finite logits for this sequence");
        else
            engine_err_changed(&e);
        finish_stream(en, st, ENGINE_FINISH_ERROR, &e);
    }
}

/* A sequence that ended while the step was in flight gets nothing and is not counted in *did. */
static void deliver_results(engine *en, const struct step_in_flight *f,
                            const struct model_output *out, uint64_t now, struct engine_step *did) {
    en->delivering_ns = now;
    for (uint32_t i = 0; i < f->plan.n_items; i++) {
        const struct sched_item *item = &f->plan.items[i];
        if (stream_of(item->seq)->finished) continue;
        did->n_sequences++;
        if (item->wants_logits && item->n_rows == 1)
            did->n_decode_rows++;
        else
            did->n_prefill_rows += item->n_rows;
        if (item->seq->pooled)
            deliver_pooled(en, f, i, out->hidden);
        else
            deliver_sampled(en, f, i, out, now);
        if (!stream_of(item->seq)->finished)
            note_sampling(en, stream_of(item->seq), clock_now_ns());
    }
    en->delivering_ns = 0;
}

static void set_pace(engine *en) {
    uint32_t n_decode = sched_n_decoding(en->sch);
    if (!n_decode && sched_is_background(en->sch)) n_decode = 1; /* sched.h 8 */
    uint32_t n_all = sched_n_running(en->sch) + sched_n_waiting(en->sch);
    if (en->config.prefill_chunk || n_decode == 0 || n_all == n_decode) return;
    const uint32_t n_parts = en->split.n > 1 ? en->split.n : 1; /* of those that decode, in steps */
    sched_set_chunk(en->sch, pace_chunk(&en->pace, (n_decode + n_parts - 1) / n_parts,
                                        n_all - n_decode, en->config.max_batch_tokens));
}

/* Paces prefill, then plans and begins a step as step_begin does. */
static int begin_paced_step(engine *en, err *e) {
    set_pace(en);
    int rc = step_begin(en, e);
    if (rc <= 0) return rc;
    const struct step_in_flight *f =
        &en->steps[(en->first_in_flight + en->n_in_flight - 1) % en->n_steps];
    for (uint32_t i = 0; i < f->plan.n_items; i++)
        note_admission(en, stream_of(f->plan.items[i].seq), f->start_ns);
    count_queue(en);
    return rc;
}

static void note_step(engine *en, const struct step_in_flight *f, struct engine_step *did) {
    uint64_t now = clock_now_ns();
    uint64_t since = f->start_ns > en->finished_ns ? f->start_ns : en->finished_ns;
    struct model_encoded ahead = model_encoded_steps(en->mdl);
    did->ns = now - since;
    did->n_stages = en->split.n > 1 ? en->split.n : 0;
    did->stage_busy_ns = en->split.busy_ns;
    en->finished_ns = now;
    pace_note(&en->pace, f->plan.n_rows - f->plan.n_decode_rows, f->plan.n_decode_rows, did->ns);
    en->totals.steps_total++;
    en->totals.steps_ahead_total = ahead.run;
    en->totals.steps_ahead_dropped_total = ahead.dropped;
    stats_observe(&en->totals.step_time, (double)did->ns * 1e-9);
}

/* Has steps in flight: one, the next one if they overlap, or one for each stage. 0: nothing can
 * run. */
static int begin_steps(engine *en, err *e) {
    int rc = en->n_in_flight ? 1 : begin_paced_step(en, e);
    if (rc <= 0) return rc;
    if (en->split.n < 2)
        rc = steps_prepare_next(en) ? begin_paced_step(en, e) : 0;
    else
        while (rc > 0 && en->n_in_flight < en->n_steps)
            rc = begin_paced_step(en, e);
    return rc < 0 ? rc : 1;
}

/* Begins steps; waits for the first; false: nothing can run. */
static bool worker_step(engine *en, struct engine_step *did) {
    struct model_output out;
    struct step_in_flight *f = NULL;
    err e;
    err_clear(&e);
    uint64_t since = clock_now_ns();
    int rc = begin_steps(en, &e);
    if (!rc) return false;
    stages_note_busy(en, since);
    const uint32_t n_begun = en->n_in_flight;
    if (rc >= 0) rc = step_finish(en, &f, &out, &e);
    if (!rc) rc = model_check(en->mdl, &e); /* before results of lost pages are delivered */
    if (rc) {
        steps_drop(en);
        if (!recover_device(en, n_begun, &e)) fail_device(en, &e);
        return true;
    }
    since = clock_now_ns();
    deliver_results(en, f, &out, since, did);
    note_step(en, f, did);
    stages_note_busy(en, since);
    return true;
}

static void stop_all(engine *en) {
    err e;
    tier_drop(en);
    err_set(&e, ERR_STOPPING, "the server is shutting down");
    finish_all_streams(en, &e);
    reap_streams(en);
    stats_publish(en);
}

void *worker_main(void *engine_ptr) {
    engine *en = engine_ptr;
    for (bool idle = true;;) {
        struct engine_step did = {0};
        struct mail m;
        en->deferred.left = ENGINE_STEP_MASK_UNITS;
        take_mail(en, idle, &m);
        handle_mail(en, &m);
        reap_streams(en);
        if (m.stopping) break;
        tier_run(en, !idle);
        mem_guard_enter();
        idle = !worker_step(en, &did);
        mem_guard_leave();
        reap_streams(en);
        stats_publish(en);
        if (did.n_sequences && en->config.on_step) en->config.on_step(en->config.on_step_arg, &did);
    }
    steps_drop(en);
    stop_all(en);
    return NULL;
}
