/* stages.c - an engine whose model is split by layers over processes. The first stage embeds
 * tokens, computes its layers and sends the step on; each other one computes its layers and sends
 * it on; the last one sends back what sampling needs. Each has a cache of its own layers, with the
 * blocks that the first one's books say. A stage's ranks are devices of its process, which all get
 * the stream, and the first of which gives it.
 *
 * The tail of a STEP message:   busy_ns u64 of each stage, as it knew it (n); stream f32 (n_rows,
 *                               n_embd)
 * A RESULT message, from the last stage to the first:
 *                               struct result_message; top_ids i32, top_values f32 (n_logit_rows,
 *                               n_top); what the device sampled (n_logit_rows), if it does; hidden
 * f32 (n_hidden_rows, n_embd); the rows of logits that need_logits names, f32 (n_vocab) each */
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/engine/group_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct result_message {
    uint32_t kind, zero;
    uint64_t busy_ns[ENGINE_MAX_STAGES];
};

/* ---- the split ---- */

static void log_split(const struct engine_split *s) {
    for (uint32_t i = 0; i < s->n && !s->own; i++)
        log_info("engine: stage %u of %u has layers %u to %u, %.1f MiB of weights", i, s->n,
                 s->stages[i].first, s->stages[i].first + s->stages[i].n - 1,
                 (double)s->bytes[i] / (1 << 20));
}

static int take_split(struct engine_split *s, const struct engine_config *config,
                      const struct model_hparams *hp, err *e) {
    uint32_t first = 0;
    if (!config->stage_layers[0])
        return model_stages_split(config->model_path, hp, s->n, s->stages, s->bytes, e);
    for (uint32_t i = 0; i < s->n; first += s->stages[i++].n)
        s->stages[i] = (struct model_stage){first, config->stage_layers[i]};
    int rc = model_stages_check(hp, s->stages, s->n, e);
    return rc ? rc : model_stages_measure(config->model_path, hp, s->stages, s->n, s->bytes, e);
}

int stages_plan(engine *en, const struct engine_config *config, err *e) {
    struct engine_split *s = &en->split;
    en->own = en->hp;
    *s = (struct engine_split){.n = config->n_stages};
    if (s->n < 2) return 0;
    if (s->n > ENGINE_MAX_STAGES || !config->group || s->n != backend_link_n(config->group))
        return err_set_param(e, ERR_UNSUPPORTED, "n_stages",
                             "n_stages = %u: at most %d processes, which have met", s->n,
                             ENGINE_MAX_STAGES);
    s->own = backend_link_rank(config->group);
    int rc = take_split(s, config, &en->hp, e);
    if (rc) return rc;
    log_split(s);
    model_stage_apply(&s->stages[s->own], s->bytes[s->own], &en->own);
    return 0;
}

/* ---- messages ---- */

static uint64_t busy_bytes(const engine *en) {
    return en->split.n * sizeof *en->split.busy_ns;
}

uint64_t stages_tail_bytes(const engine *en, const struct model_shape *s) {
    if (en->split.n < 2) return 0;
    return busy_bytes(en) + (uint64_t)s->n_rows * en->hp.n_embd * sizeof(float);
}

static uint32_t count_needed(const struct step_batch *b) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->batch.shape.n_logit_rows; i++)
        n += b->need_logits[i];
    return n;
}

static uint64_t sampled_bytes(const struct model_shape *s) {
    return s->samples ? s->n_logit_rows * sizeof(struct backend_sampled) : 0;
}

static uint64_t result_bytes(const engine *en, const struct model_shape *s, uint64_t n_needed) {
    return sizeof(struct result_message) + sampled_bytes(s) +
           sizeof(float) * ((uint64_t)s->n_logit_rows * s->n_top * 2 +
                            (uint64_t)s->n_hidden_rows * en->hp.n_embd + n_needed * en->hp.n_vocab);
}

int stages_open_results(engine *en, const struct model_limits *limits, uint64_t *most, err *e) {
    const struct model_shape largest = {.n_logit_rows = limits->max_logit_rows,
                                        .n_hidden_rows = limits->max_rows,
                                        .n_top = BACKEND_MAX_TOP,
                                        .samples = true};
    const uint64_t bytes = result_bytes(en, &largest, limits->max_logit_rows);
    if (bytes > *most) *most = bytes;
    if (*most > BACKEND_PIECE_BYTES || (en->split.own && en->split.own + 1 < en->split.n)) return 0;
    en->group.result = mem_new(bytes, 1);
    en->group.result_most = (uint32_t)bytes;
    if (!en->split.own)
        en->group.logits =
            mem_new((uint64_t)limits->max_logit_rows * en->hp.n_vocab, sizeof *en->group.logits);
    return en->group.result && (en->split.own || en->group.logits) ? 0 : err_no_memory(e);
}

void stages_close_results(engine *en) {
    free(en->group.result);
    free(en->group.logits);
    en->group.result = NULL;
    en->group.logits = NULL;
}

/* Writes a step's tail; returns its end. */
static char *put_tail(engine *en, char *to, const struct model_output *out, uint32_t n_rows) {
    memcpy(to, en->split.busy_ns, busy_bytes(en));
    to += busy_bytes(en);
    const uint64_t bytes = (uint64_t)n_rows * en->hp.n_embd * sizeof(float);
    memcpy(to, out->stream, bytes);
    return to + bytes;
}

static int send_to(const engine *en, uint32_t to, const char *bytes, const char *end, err *e) {
    const struct backend_piece piece = {
        .out = bytes, .rank = to, .out_bytes = (uint32_t)(end - bytes)};
    return backend_link_exchange(en->config.group, &piece, 1, e);
}

void stages_note_busy(engine *en, uint64_t since_ns) {
    if (en->split.n > 1) en->split.busy_ns[en->split.own] += clock_now_ns() - since_ns;
}

/* ---- the first stage ---- */

int stages_begin(engine *en, struct step_batch *b, err *e) {
    struct model_output out;
    int rc = model_forward(en->mdl, &b->batch, &out, e);
    if (rc) return rc;
    char *tail = en->group.bytes + group_put_step(en, b);
    char *end = put_tail(en, tail, &out, b->batch.shape.n_rows);
    return send_to(en, 1, en->group.bytes, end, e);
}

/* Where each row of logits belongs. */
static void spread_logits(engine *en, const struct step_batch *b, const char *from) {
    const uint64_t row = en->hp.n_vocab;
    for (uint32_t i = 0; i < b->batch.shape.n_logit_rows; i++) {
        if (!b->need_logits[i]) continue;
        memcpy(en->group.logits + i * row, from, row * sizeof(float));
        from += row * sizeof(float);
    }
}

/* Are the tokens of a result tokens? */
static int check_tokens(const engine *en, const struct model_shape *s,
                        const struct model_output *out, err *e) {
    const uint64_t n_top = (uint64_t)s->n_logit_rows * s->n_top;
    const int64_t end = en->hp.n_vocab;
    bool fits = true;
    for (uint64_t i = 0; i < n_top; i++)
        fits = fits && out->top_ids[i] >= 0 && out->top_ids[i] < end;
    for (uint32_t i = 0; s->samples && i < s->n_logit_rows; i++)
        fits = fits && out->sampled[i].token >= -1 && out->sampled[i].token < end;
    return fits ? 0 : err_set(e, ERR_FORMAT, "a step's results have tokens that do not exist");
}

static int read_result(engine *en, const struct step_batch *b, uint32_t n_bytes,
                       struct model_output *out, err *e) {
    const struct model_shape *s = &b->batch.shape;
    const uint64_t expected = result_bytes(en, s, count_needed(b));
    struct result_message m;
    if (n_bytes != expected)
        return err_set(e, ERR_FORMAT, "a step's results have %u bytes, expected %llu", n_bytes,
                       (unsigned long long)expected);
    memcpy(&m, en->group.result, sizeof m);
    if (m.kind != MESSAGE_RESULT)
        return err_set(e, ERR_FORMAT, "message %u instead of a step's results", m.kind);
    for (uint32_t i = 1; i < en->split.n; i++)
        en->split.busy_ns[i] = m.busy_ns[i];
    char *at = en->group.result + sizeof m;
    const uint64_t n_top = (uint64_t)s->n_logit_rows * s->n_top * sizeof(float);
    if (s->n_top) out->top_ids = (const int32_t *)(void *)at;
    if (s->n_top) out->top_values = (const float *)(void *)(at + n_top);
    at += 2 * n_top;
    if (s->samples) out->sampled = (const struct backend_sampled *)(void *)at;
    at += sampled_bytes(s);
    if (s->n_hidden_rows) out->hidden = (const float *)(void *)at;
    spread_logits(en, b, at + (uint64_t)s->n_hidden_rows * en->hp.n_embd * sizeof(float));
    out->logits = en->group.logits;
    return check_tokens(en, s, out, e);
}

int stages_finish(engine *en, const struct step_batch *b, struct model_output *out, err *e) {
    uint32_t n_bytes = 0;
    *out = (struct model_output){0};
    int rc = backend_link_receive(en->config.group, en->split.n - 1, en->group.result,
                                  en->group.result_most, &n_bytes, e);
    if (!rc) rc = read_result(en, b, n_bytes, out, e);
    if (rc) group_fail_step(en, e);
    return rc;
}

/* ---- the other stages ---- */

static char *put(char *to, const void *bytes, uint64_t n) {
    if (n) memcpy(to, bytes, n);
    return to + n;
}

static int send_result(engine *en, const struct step_batch *b, const struct model_output *out,
                       err *e) {
    const struct model_shape *s = &b->batch.shape;
    const uint64_t n_top = (uint64_t)s->n_logit_rows * s->n_top * sizeof(float);
    const uint64_t row = en->hp.n_vocab;
    struct result_message m = {.kind = MESSAGE_RESULT};
    memcpy(m.busy_ns, en->split.busy_ns, sizeof m.busy_ns);
    char *to = put(en->group.result, &m, sizeof m);
    to = put(to, out->top_ids, n_top);
    to = put(to, out->top_values, n_top);
    to = put(to, out->sampled, sampled_bytes(s));
    to = put(to, out->hidden, (uint64_t)s->n_hidden_rows * en->hp.n_embd * sizeof(float));
    for (uint32_t i = 0; i < s->n_logit_rows; i++)
        if (b->need_logits[i]) to = put(to, out->logits + i * row, row * sizeof(float));
    return send_to(en, 0, en->group.result, to, e);
}

/* Reads the tail: what the stages before have computed. */
static const char *take_tail(engine *en, const char *tail) {
    uint64_t busy_ns[ENGINE_MAX_STAGES];
    memcpy(busy_ns, tail, busy_bytes(en));
    for (uint32_t i = 0; i < en->split.own; i++)
        en->split.busy_ns[i] = busy_ns[i];
    return tail + busy_bytes(en);
}

static int run_step(engine *en, struct step_batch *b, uint32_t n_bytes, err *e) {
    const uint64_t start = clock_now_ns();
    const bool last = en->split.own + 1 == en->split.n;
    struct model_output out;
    char *tail = NULL;
    int rc = group_take_step(en, b, n_bytes, &tail, e);
    if (rc) return rc;
    b->batch.stream = take_tail(en, tail);
    rc = model_forward(en->mdl, &b->batch, &out, e);
    if (rc) return rc;
    stages_note_busy(en, start);
    const uint64_t sent = clock_now_ns();
    if (last)
        rc = send_result(en, b, &out, e);
    else
        rc = send_to(en, en->split.own + 1, en->group.bytes,
                     put_tail(en, tail, &out, b->batch.shape.n_rows), e);
    stages_note_busy(en, sent);
    return rc;
}

int stages_run(engine *en, struct step_batch *b, err *e) {
    engine_group *g = en->config.group;
    const uint32_t own = en->split.own;
    uint32_t n_bytes = 0, kind;
    for (;;) {
        int rc = backend_link_receive(g, own - 1, en->group.bytes, en->group.most, &n_bytes, e);
        if (rc) return rc;
        if (n_bytes < sizeof kind) return err_set(e, ERR_FORMAT, "a message is too short");
        memcpy(&kind, en->group.bytes, sizeof kind);
        if (kind == MESSAGE_CLOSE && own + 1 < en->split.n)
            group_send_plain(g, own + 1, MESSAGE_CLOSE);
        if (kind == MESSAGE_CLOSE) return 0;
        if (kind != MESSAGE_STEP)
            return err_set(e, ERR_FORMAT, "message %u instead of a step", kind);
        mem_guard_enter();
        rc = run_step(en, b, n_bytes, e);
        mem_guard_leave();
        if (!rc) rc = model_check_files(en->mdl, e);
        if (rc) return rc;
    }
}
