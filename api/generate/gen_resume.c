/* gen_resume.c - a generation without its connection: what it keeps, and how it continues. Runs on
 * HTTP threads: the one that ends the old request, and the one of the new. */
#include "api/generate/gen_int.h"

#include "api/generate/api_state.h"
#include "api/http/request.h"

#include "core/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gen_detach(struct gen *g) {
    for (uint32_t i = 0; i < g->n_choices; i++) {
        engine_stream_free(g->choices[i].stream);
        g->choices[i].stream = NULL;
    }
    quota_release(&g->sequences);
    g->request = NULL;
}

void gen_note_read(struct gen *g) {
    size_t limit = g->api->live.resume_buffer_bytes;
    if (!g->resumes) return;
    str_add_n(&g->sent, str_cstr(&g->out), g->out.len);
    if (g->sent.len <= 2 * limit) return;
    /* Drops whole frames, and only at twice the limit, so not for each frame. */
    const char *keep = strstr(str_cstr(&g->sent) + (g->sent.len - limit), "\n\n");
    size_t n = keep ? (size_t)(keep + 2 - str_cstr(&g->sent)) : g->sent.len;
    memmove(g->sent.data, g->sent.data + n, g->sent.len - n + 1);
    g->sent.len -= n;
}

/* Makes the frames after frame number `after` the ones to be read. */
static int rewind_frames(struct gen *g, uint64_t after, err *e) {
    char id[96];
    str all;
    str_init(&all, REPLY_MAX_BYTES);
    str_add_n(&all, str_cstr(&g->sent), g->sent.len);
    str_add_n(&all, str_cstr(&g->out), g->out.len);
    snprintf(id, sizeof id, "id: %s:%" PRIu64 "\n", g->id, after);
    const char *frame = after ? strstr(str_cstr(&all), id) : NULL;
    const char *end = frame ? strstr(frame, "\n\n") : NULL;
    if (all.failed || !end) {
        str_fini(&all);
        return err_set(e, ERR_NOT_FOUND, "the frame is not kept any more");
    }
    size_t n = (size_t)(end + 2 - str_cstr(&all));
    str_clear(&g->sent);
    str_add_n(&g->sent, str_cstr(&all), n);
    str_clear(&g->out);
    str_add_n(&g->out, str_cstr(&all) + n, all.len - n);
    g->out_pos = 0;
    str_fini(&all);
    return 0;
}

/* Has the choice reached its end, though its final event was not taken? */
static bool is_at_end(const struct gen *g, const struct gen_choice *c) {
    uint32_t max = g->params.max_tokens;
    uint64_t n = g->prompts[c->prompt].n + c->n_taken;
    return c->stopped || (max && c->n_taken >= max) || n >= engine_context_length(g->model->engine);
}

static int resubmit_choice(struct gen *g, struct gen_choice *c, err *e) {
    const struct gen_prompt *p = &g->prompts[c->prompt];
    uint32_t per_prompt = g->n_choices / (uint32_t)g->n_prompts;
    int32_t *ids = mem_new(p->n + c->n_taken, sizeof *ids);
    if (!ids) return err_no_memory(e);
    memcpy(ids, p->ids, p->n * sizeof *ids);
    if (c->n_taken) memcpy(ids + p->n, c->taken, c->n_taken * sizeof *ids);
    struct engine_request request = {.prompt = ids,
                                     .n_prompt = (uint32_t)p->n + c->n_taken,
                                     .n_choices = 1,
                                     .n_generated = c->n_taken,
                                     .first_choice = c->index % per_prompt,
                                     .params = g->params,
                                     .deadline_ns = g->request->deadline_ns,
                                     .notify = watch_notify,
                                     .notify_arg = &g->request->watched};
    if (!g->params.has_seed) {
        request.params.has_seed = true;
        request.params.seed = (int64_t)c->seed;
        request.first_choice = 0;
    }
    int rc = engine_submit(g->model->engine, &request, &c->stream, e);
    free(ids);
    return rc;
}

int gen_attach(struct gen *g, struct request *r, uint64_t after, err *e) {
    int rc = rewind_frames(g, after, e);
    if (rc) return rc;
    g->request = r;
    snprintf(r->model_id, sizeof r->model_id, "%s", g->model->id);
    rc = quota_hold(r, &g->sequences, g->n_choices, e);
    if (rc) return rc;
    for (uint32_t i = 0; i < g->n_choices && !g->ended && !g->error.code; i++) {
        struct gen_choice *c = &g->choices[i];
        if (c->done) continue;
        if (is_at_end(g, c))
            gen_end_choice(g, c);
        else if ((rc = resubmit_choice(g, c, e)))
            return rc;
    }
    return 0;
}
