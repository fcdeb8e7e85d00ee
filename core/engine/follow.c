/* follow.c - a rank that is not rank 0, in a process of its own: an engine without requests, which
 * computes its part of the steps that rank 0 sends. It has a backend, a cache of which only the
 * pools are used, a model, and the arrays of one step. Main thread. */
#include "core/engine/group.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/engine/group_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int begin_step(engine *en, uint32_t n_bytes, err *e) {
    struct step_batch *b = &en->steps[(en->first_in_flight + en->n_in_flight) % en->n_steps].batch;
    char *tail;
    int rc = group_take_step(en, b, n_bytes, &tail, e);
    if (!rc) rc = model_begin(en->mdl, &b->batch, e);
    if (!rc) en->n_in_flight++;
    return rc;
}

static int finish_step(engine *en, err *e) {
    struct model_output none;
    if (!en->n_in_flight) return err_set(e, ERR_FORMAT, "no step is in flight");
    en->n_in_flight--;
    en->first_in_flight = (en->first_in_flight + 1) % en->n_steps;
    return model_finish(en->mdl, &none, e);
}

/* If steps overlap, one stays in flight until the next message says that it has an end. */
static int obey(engine *en, uint32_t kind, uint32_t n_bytes, err *e) {
    const bool stays = kind == MESSAGE_STEP && model_overlaps(en->mdl);
    int rc = 0;
    if (kind != MESSAGE_STEP && kind != MESSAGE_FINISH)
        return err_set(e, ERR_FORMAT, "message %u instead of a step", kind);
    mem_guard_enter();
    if (kind == MESSAGE_STEP) rc = begin_step(en, n_bytes, e);
    if (!rc && (!stays || en->n_in_flight > 1)) rc = finish_step(en, e);
    mem_guard_leave();
    return rc ? rc : model_check_files(en->mdl, e);
}

/* Runs steps until the model is closed. */
static int run_steps(engine *en, const struct model_limits *limits, err *e) {
    engine_group *g = en->config.group;
    uint32_t n_bytes, kind = 0;
    int rc = 0;
    en->n_steps = model_overlaps(en->mdl) ? 2 : 1;
    for (uint32_t i = 0; i < en->n_steps; i++)
        if (step_batch_init(&en->steps[i].batch, limits)) return err_no_memory(e);
    if (en->split.n > 1) return stages_run(en, &en->steps[0].batch, e);
    while (!rc && kind != MESSAGE_CLOSE) {
        rc = backend_link_receive(g, 0, en->group.bytes, en->group.most, &n_bytes, e);
        if (rc) break;
        memcpy(&kind, en->group.bytes, sizeof kind);
        if (kind != MESSAGE_CLOSE) rc = obey(en, kind, n_bytes, e);
    }
    if (rc) group_fail_step(en, e); /* ends what is in flight */
    while (en->n_in_flight)
        finish_step(en, NULL);
    return rc;
}

/* What a stage decides by itself: where its model is, and what computes. */
static void take_own(struct engine_config *c, const struct engine_config *own) {
    c->model_path = own->model_path;
    c->backend = own->backend;
    c->isa = own->isa;
    c->n_threads = own->n_threads;
    c->device = own->device;
    c->memory_fraction = own->memory_fraction;
    c->memory_bytes = own->memory_bytes;
    c->resident_s = own->resident_s;
    c->command_buffer_ms = own->command_buffer_ms;
}

void group_read_open(struct open_message *m, struct engine_config *out) {
    m->path[sizeof m->path - 1] = m->backend[sizeof m->backend - 1] = '\0';
    m->isa[sizeof m->isa - 1] = m->model[sizeof m->model - 1] = '\0';
    *out = m->config;
    out->model_path = m->path;
    out->backend = m->backend;
    out->isa = m->isa;
    out->group = NULL;
    out->store = NULL;
    out->model_sha256 = out->model_label = NULL;
    out->listener = (struct kv_listener){.on_block = NULL};
    out->on_load = NULL;
    out->on_step = NULL;
    out->on_load_arg = out->on_step_arg = NULL;
    out->importance = NULL;
}

/* Opens the model of the message, and serves it. An error that is not the link's is only of this
 * model, while it is opened: rank 0 has it, too. */
static int follow_model(engine_group *g, struct open_message *m, const struct engine_config *own,
                        err *e) {
    struct engine_size size;
    struct model_limits limits;
    engine *en = mem_new(1, sizeof *en);
    if (!en) return err_no_memory(e);
    struct engine_config config;
    group_read_open(m, &config);
    config.group = g;
    if (own) take_own(&config, own);
    en->config = config;
    engine_init_locks(en);
    memcpy(en->group.model, m->model, sizeof en->group.model);
    int rc = engine_open_model(en, &config, &size, &limits, e);
    if (!rc) {
        char ranks[32] = "";
        if (own && engine_n_ranks(en) > 1)
            snprintf(ranks, sizeof ranks, ", %u ranks", engine_n_ranks(en));
        log_info("%s %u of %u: %s, %d threads%s", own ? "stage" : "rank", backend_link_rank(g),
                 backend_link_n(g), config.model_path, engine_n_threads(en), ranks);
        rc = run_steps(en, &limits, e);
    } else if (!backend_link_failed(g, NULL)) {
        log_error("%s %u: %s", own ? "stage" : "rank", backend_link_rank(g),
                  e ? e->msg : "the model cannot be opened");
        rc = 0;
    }
    engine_close(en);
    return rc;
}

int engine_group_follow(engine_group *g, const struct engine_config *own, err *e) {
    struct open_message *m = mem_new(1, sizeof *m);
    uint32_t n_bytes = 0;
    int rc = m ? 0 : err_no_memory(e);
    while (!rc) {
        rc = backend_link_receive(g, 0, m, sizeof *m, &n_bytes, e);
        if (rc || m->kind == MESSAGE_END) break;
        if (m->kind == MESSAGE_OPEN && n_bytes == sizeof *m)
            rc = follow_model(g, m, own, e);
        else
            rc = err_set(e, ERR_FORMAT, "message %u of %u bytes, expected a model", m->kind,
                         n_bytes);
    }
    free(m);
    if (rc) backend_link_break(g, e ? e->msg : "a rank failed");
    return rc;
}
