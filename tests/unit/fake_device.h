/* fake_device.h - a backend, a model and a tokenizer for tests of the engine: instead of numbers
 * the K pool holds, at each slot, which token at which position was stored there. A row's logits
 * are a hash of the tokens that it finds through its block table, so a wrong slot, table, copy or
 * order shows at once: as other logits, and as a count of misplaced tokens. Steps and copies of
 * blocks happen in the order in which they were enqueued, and not before a caller waits for them.
 * With fake_states its model has recurrent layers, too: each state block holds hashes of the text
 * at the last boundary and so far, and a row whose hash, as it goes on from there, is not that of
 * the tokens in K/V counts as misplaced and gets other logits. With fake_no_kv as well it has no
 * other layers, and the logits are those of the hash. With fake_overlaps it samples tokens itself,
 * and takes a step while another one is in flight. Include in one test binary only: these
 * definitions replace the archive's. */
#ifndef INFERD_TESTS_FAKE_DEVICE_H
#define INFERD_TESTS_FAKE_DEVICE_H

#include "core/backend/ops.h"
#include "core/base/top.h"
#include "core/engine/sampler.h"
#include "core/model/model.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/support/engine_kit.h"
#include "tests/unit/fake_stages.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    FAKE_VOCAB = 61,
    FAKE_EOG = 2,
    FAKE_POISON = 3,
    FAKE_GARBAGE = 5,
    FAKE_CONTEXT = 400,
    FAKE_HEAD_DIM = 16,
    FAKE_EMBD = 16
};

static atomic_int fake_errors;     /* misplaced tokens, bad arrays */
static atomic_int fake_fail_after; /* forwards until ERR_DEVICE; -1: never */
static atomic_int fake_recovers;   /* failures that model_recover mends */
static atomic_int fake_fail_every; /* after each recovery but the last: forwards until the next */
/* Forwards until the model's file changes: from that one on logits select FAKE_GARBAGE. 0:
 * never. */
static atomic_int fake_change_at;
static atomic_int fake_forwards;
static bool fake_overlaps;           /* before the engine opens */
static bool fake_states, fake_no_kv; /* likewise */
static kvstore *fake_store;          /* likewise; NULL: none */
static atomic_int fake_token_copies; /* rows whose token came from the previous step */

static uint64_t fake_mix(uint64_t h, uint64_t x) {
    h = (h ^ x) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 29);
}

static uint64_t fake_hash(const int32_t *tokens, uint32_t n) {
    uint64_t h = 1;
    for (uint32_t i = 0; i < n; i++)
        h = fake_mix(h, (uint64_t)tokens[i] + 1);
    return h;
}

static void fake_logits_of(uint64_t h, float *logits) {
    for (uint32_t v = 0; v < FAKE_VOCAB; v++)
        logits[v] = (float)(fake_mix(h, v) >> 40) * 0x1p-21f - 4.0f;
    logits[FAKE_EOG] -= 2.0f;
}

/* Logits after a text: (FAKE_VOCAB), a function of all its tokens. A text that begins with
 * FAKE_POISON has NaN logits. */
static void fake_logits(const int32_t *tokens, uint32_t n, float *logits) {
    fake_logits_of(fake_hash(tokens, n), logits);
    if (tokens[0] == FAKE_POISON)
        for (uint32_t v = 0; v < FAKE_VOCAB; v++)
            logits[v] = NAN;
}

/* The hidden state of the last token: (FAKE_EMBD), the beginning of its logits. */
static void fake_hidden(const int32_t *tokens, uint32_t n, float *hidden) {
    float logits[FAKE_VOCAB];
    fake_logits(tokens, n, logits);
    memcpy(hidden, logits, FAKE_EMBD * sizeof *hidden);
}

/* ---- backend ---- */
enum { FAKE_QUEUE = 2048 };
struct fake_op {
    const struct model_batch *step; /* NULL: a copy, or a join */
    uint64_t join;                  /* the last batch of the side stream to wait for; 0: none */
    struct backend_kv layer;
    int32_t from, to;
};
/* The side stream (fake_side.h). */
struct fake_side {
    struct fake_side_copy *first, **last; /* last NULL: not open */
    uint64_t n_begun, n_ended, n_done;    /* batches */
    uint64_t behind[BACKEND_SIDE_BATCHES], n_staged, n_calls;
};
struct backend {
    uint64_t n_copies, n_run; /* n_run: ops that have run, and left the queue */
    struct fake_op queue[FAKE_QUEUE];
    uint32_t n_queue;
    struct fake_side side;
};
struct backend_buf {
    uint64_t bytes;
    char data[];
};

static void fake_require(bool ok) {
    if (!ok) atomic_fetch_add(&fake_errors, 1);
}

static struct fake_op *fake_queue(backend *be) {
    fake_require(be->n_queue < FAKE_QUEUE);
    struct fake_op *op = &be->queue[be->n_queue < FAKE_QUEUE ? be->n_queue++ : 0];
    *op = (struct fake_op){0};
    return op;
}

#include "fake_side.h"

int backend_open(const struct backend_config *config, backend **out, err *e) {
    if (strcmp(config->name, "fake")) return err_set_param(e, ERR_UNSUPPORTED, "backend", "no");
    *out = calloc(1, sizeof **out);
    return 0;
}
void backend_close(backend *be) {
    if (be) fake_side_close(be);
    free(be);
}
const char *backend_name(const backend *be) {
    (void)be;
    return "fake";
}
const char *backend_module_path(const backend *be) {
    (void)be;
    return NULL;
}
const char *backend_isa(const backend *be) {
    (void)be;
    return "none";
}
int backend_n_threads(const backend *be) {
    (void)be;
    return 1;
}
uint32_t backend_n_ranks(const backend *be) {
    (void)be;
    return 1;
}
uint32_t backend_n_local(const backend *be) {
    (void)be;
    return 1;
}

uint32_t backend_n_here(const backend *be) {
    (void)be;
    return 1;
}

backend *backend_peer(backend *be, uint32_t rank) {
    (void)rank;
    return be;
}
uint32_t backend_n_kernels(const backend *be) {
    (void)be;
    return 1;
}
const char *backend_kernel_name(const backend *be, uint32_t i) {
    (void)be, (void)i;
    return "fake";
}
uint64_t backend_dispatch_count(const backend *be, uint32_t i) {
    (void)be, (void)i;
    return (uint64_t)atomic_load(&fake_forwards);
}
void backend_kernel_traffic(const backend *be, uint32_t i, uint64_t *read, uint64_t *written) {
    (void)be, (void)i;
    *read = *written = 0;
}
int backend_copy_bandwidth(backend *be, double *bytes_per_s, err *e) {
    (void)be;
    *bytes_per_s = 0;
    return err_set(e, ERR_UNSUPPORTED, "the fake device has no memory to measure");
}
static uint64_t fake_allocated, fake_memory_limit; /* 0: a device without a limit */
uint64_t backend_allocated_bytes(const backend *be) {
    (void)be;
    return fake_allocated;
}
static uint64_t fake_scratch;
uint64_t backend_scratch_bytes(const backend *be) {
    (void)be;
    return fake_scratch;
}
bool backend_kv_fits(const backend *be, const struct backend_kv *cache) {
    (void)be;
    return cache->head_dim % 2 == 0; /* only some devices support odd ones */
}
static uint64_t fake_memory_free;
bool backend_set_mode(backend *be, enum backend_mode mode) {
    (void)be, (void)mode;
    return false;
}
bool backend_fact_get(const backend *be, uint32_t i, struct backend_fact *out) {
    (void)be, (void)i, (void)out;
    return false;
}
bool backend_pipeline_get(const backend *be, uint32_t i, struct backend_pipeline *out) {
    (void)be, (void)i, (void)out;
    return false;
}
void backend_kernel_costs(const backend *be, uint32_t i, struct backend_kernel_costs *out) {
    (void)be, (void)i;
    *out = (struct backend_kernel_costs){0};
}
bool backend_can_sample(const backend *be) {
    (void)be;
    return fake_overlaps;
}
uint64_t backend_memory_free(const backend *be) {
    (void)be;
    return fake_memory_free;
}
uint64_t backend_memory_limit(const backend *be) {
    (void)be;
    return fake_memory_limit;
}
int backend_buf_new(backend *be, uint64_t bytes, backend_buf **out, err *e) {
    (void)be, (void)e;
    *out = calloc(1, sizeof **out + bytes);
    (*out)->bytes = bytes;
    return 0;
}
void backend_buf_free(backend_buf *buf) {
    free(buf);
}

struct fake_slot {
    int32_t token, pos;
};
static struct fake_slot *fake_slot_at(const struct backend_kv *layer, int64_t slot) {
    uint64_t at = (uint64_t)slot * layer->head_dim * layer->n_kv_heads * sizeof(uint16_t);
    if (slot < 0 || at + sizeof(struct fake_slot) > layer->k->bytes) {
        atomic_fetch_add(&fake_errors, 1);
        at = 0;
    }
    return (struct fake_slot *)(void *)(layer->k->data + at);
}
int backend_kv_copy(backend *be, const struct op_kv_copy *a) {
    for (uint32_t i = 0; i < a->n_pairs; i++) {
        struct fake_op *op = fake_queue(be);
        op->layer = a->kv;
        op->from = a->pairs[2 * i];
        op->to = a->pairs[2 * i + 1];
    }
    be->n_copies += a->n_pairs;
    return 0;
}
static void fake_copy(backend *be, const struct fake_op *op) {
    if (op->join) {
        fake_side_run(be, op->join);
        return;
    }
    for (uint32_t t = 0; t < op->layer.block_tokens; t++)
        *fake_slot_at(&op->layer, (int64_t)op->to * op->layer.block_tokens + t) =
            *fake_slot_at(&op->layer, (int64_t)op->from * op->layer.block_tokens + t);
}

static void fake_take(backend *be, uint32_t n) {
    be->n_queue -= n;
    be->n_run += n;
    memmove(be->queue, be->queue + n, be->n_queue * sizeof *be->queue);
}

/* What a state block of a layer holds of S and tail, and of recent and the pending rows. */
struct fake_state {
    uint64_t at_boundary, so_far;
    int32_t boundary, end; /* tokens */
};
static struct fake_state *fake_state_at(const struct backend_state *layer, int32_t i) {
    uint64_t size = backend_state_block_bytes(layer);
    if (i < 0 || (uint64_t)i * size + size > layer->blocks->bytes) {
        atomic_fetch_add(&fake_errors, 1);
        i = 0;
    }
    return (struct fake_state *)(void *)(layer->blocks->data + (uint64_t)i * size);
}

/* ---- model ---- */
struct fake_results { /* of a step */
    int32_t *top_ids; /* (max_logit_rows, BACKEND_MAX_TOP) */
    float *top_values;
    struct backend_sampled *sampled; /* (max_logit_rows) */
    struct model_shape shape;
};
struct model {
    struct model_hparams hp;
    struct model_limits limits;
    backend *be;
    sampler *smp;
    float *logits; /* (max_logit_rows, FAKE_VOCAB) */
    float *hidden; /* (max_rows, FAKE_EMBD) */
    struct fake_results results[2];
    uint32_t turn, n_begun;
    bool failed;
    int32_t *ids;                          /* (max_rows) */
    struct backend_penalty_entry *history; /* (max_history) */
    int32_t *tokens;                       /* (FAKE_CONTEXT) */
    uint64_t *hashes; /* (max_rows) of the text up to each row, by the states */
};

int model_read_hparams(const char *path, struct model_hparams *hp, err *e) {
    (void)path, (void)e;
    *hp = (struct model_hparams){.arch = "fake",
                                 .n_vocab = FAKE_VOCAB,
                                 .n_layers = 1,
                                 .n_kv_layers = !fake_no_kv,
                                 .n_embd = FAKE_EMBD,
                                 .n_heads = 1,
                                 .n_kv_heads = 1,
                                 .head_dim = FAKE_HEAD_DIM,
                                 .context_length = FAKE_CONTEXT,
                                 .quant = "none"};
    if (fake_states)
        hp->recurrent = (struct model_recurrent){
            .n_layers = 2, .n_taps = 2, .n_k_heads = 1, .n_v_heads = 1, .k_dim = 16, .v_dim = 16};
    return 0;
}
struct backend_state model_state_shape(const struct model_hparams *hp, uint32_t n_ranks,
                                       uint32_t block_tokens) {
    (void)n_ranks;
    const struct model_recurrent *r = &hp->recurrent;
    return (struct backend_state){.chunk = block_tokens,
                                  .n_taps = r->n_taps,
                                  .n_k_heads = r->n_k_heads,
                                  .n_v_heads = r->n_v_heads,
                                  .k_dim = r->k_dim,
                                  .v_dim = r->v_dim};
}
int model_ranks_check(const struct model_hparams *hp, uint32_t n_ranks, err *e) {
    (void)hp, (void)n_ranks, (void)e;
    return 0;
}
void model_backend_limits(const struct model_hparams *hp, struct backend_config *config) {
    config->max_cols = hp->n_embd;
}
int model_memory_find(const char *path, backend *be, const struct model_limits *limits,
                      struct model_memory *out, err *e) {
    (void)path, (void)be, (void)limits, (void)e;
    *out = (struct model_memory){1 << 20, 1 << 20};
    return 0;
}
int model_open(const char *path, backend *be, const struct model_limits *limits, model **out,
               err *e) {
    model *m = calloc(1, sizeof *m);
    model_read_hparams(path, &m->hp, e);
    m->be = be;
    m->smp = sampler_new(FAKE_VOCAB);
    m->limits = *limits;
    m->logits = calloc((size_t)limits->max_logit_rows * FAKE_VOCAB, sizeof *m->logits);
    m->hidden = calloc((size_t)limits->max_rows * FAKE_EMBD, sizeof *m->hidden);
    for (struct fake_results *r = m->results; r < m->results + 2; r++) {
        r->top_ids = calloc((size_t)limits->max_logit_rows * BACKEND_MAX_TOP, sizeof *r->top_ids);
        r->top_values = calloc((size_t)limits->max_logit_rows * BACKEND_MAX_TOP, sizeof(float));
        r->sampled = calloc(limits->max_logit_rows, sizeof *r->sampled);
    }
    m->ids = calloc(limits->max_rows, sizeof *m->ids);
    m->history = calloc((size_t)limits->max_history + 1, sizeof *m->history);
    m->tokens = calloc(FAKE_CONTEXT, sizeof *m->tokens);
    m->hashes = calloc(limits->max_rows, sizeof *m->hashes);
    *out = m;
    return 0;
}
void model_close(model *m) {
    if (!m) return;
    free(m->logits);
    free(m->hidden);
    for (struct fake_results *r = m->results; r < m->results + 2; r++) {
        free(r->top_ids);
        free(r->top_values);
        free(r->sampled);
    }
    sampler_free(m->smp);
    free(m->ids);
    free(m->history);
    free(m->tokens);
    free(m->hashes);
    free(m);
}

static bool fake_changed(void) {
    int at = atomic_load(&fake_change_at);
    return at && atomic_load(&fake_forwards) >= at;
}
int model_check(const model *m, err *e) {
    (void)m;
    return fake_changed() ? err_set(e, ERR_CHANGED, "/secret/path was cut short") : 0;
}
int model_check_files(const model *m, err *e) {
    return model_check(m, e);
}

static uint32_t fake_seq_of(const struct model_batch *b, int32_t row) {
    uint32_t s = 0;
    while (s + 1 < b->shape.n_seqs && b->row_start[s + 1] <= row)
        s++;
    return s;
}

/* The prediction of the next step, and the number of correct predictions. */
static struct model_shape fake_guess;
static atomic_int fake_guesses, fake_right_guesses;
static void fake_count_guess(const struct model_batch *b) {
    const struct model_shape *s = &b->shape, *g = &fake_guess;
    atomic_fetch_add(&fake_right_guesses,
                     g->n_rows && g->n_rows == s->n_rows && g->n_seqs == s->n_seqs &&
                         g->n_logit_rows == s->n_logit_rows && !s->n_hidden_rows &&
                         g->n_top == s->n_top && g->max_context == s->max_context);
    atomic_fetch_add(&fake_guesses, b->next.n_rows > 0);
    fake_guess = b->next;
}

struct model_encoded model_encoded_steps(const model *m) {
    (void)m;
    return (struct model_encoded){(uint64_t)atomic_load(&fake_right_guesses), 0};
}

/* Samples as backend.h says; penalties here, the rest is the sampler's. */
static void fake_sample(model *m, const struct backend_sampling *d,
                        const struct backend_penalty_entry *history, const float *row,
                        struct backend_sampled *out) {
    const struct sampling *how = &d->params;
    float x[FAKE_VOCAB], max = -INFINITY;
    double sum = 0;
    struct engine_params p = {.sampling = *how, .n_logprobs = -1};
    p.sampling.repetition_penalty = 1;
    p.sampling.presence_penalty = p.sampling.frequency_penalty = 0;
    *out = (struct backend_sampled){.token = -1};
    if (how->temperature < 0) return;
    memcpy(x, row, sizeof x);
    for (uint32_t i = 0; i < d->n_history; i++) {
        const struct backend_penalty_entry *h = &history[d->first_history + i];
        if (h->token < 0) continue;
        float *v = &x[h->token], repetition = how->repetition_penalty;
        if (repetition != 1.0f) *v = *v > 0 ? *v / repetition : *v * repetition;
        if (h->count) *v -= fmaf(how->frequency_penalty, (float)h->count, how->presence_penalty);
    }
    const struct sampler_request req = {
        .params = &p,
        .seed = (uint64_t)d->seed[1] << 32 | d->seed[0],
        .index = (uint64_t)d->index[1] << 32 | d->index[0],
        .logits = x,
    };
    if (sampler_sample(m->smp, &req, &out->token)) return;
    for (uint32_t v = 0; v < FAKE_VOCAB; v++)
        max = fmaxf(max, row[v]);
    for (uint32_t v = 0; v < FAKE_VOCAB; v++)
        sum += exp((double)row[v] - (double)max);
    out->logit = row[out->token];
    out->log_sum = (float)((double)max + log(sum));
}

/* A row of logits and its results; the row itself is hidden unless it is needed. */
static void fake_row(model *m, const struct model_batch *b, uint32_t i, uint32_t n) {
    float *row = m->logits + (size_t)i * FAKE_VOCAB;
    struct fake_results *r = &m->results[m->turn];
    uint32_t k = b->shape.n_top;
    if (b->kv)
        fake_logits(m->tokens, n, row);
    else
        fake_logits_of(m->hashes[b->out_rows[i]], row);
    if (fake_changed()) row[FAKE_GARBAGE] = 1e30f;
    if (k) top_select(row, FAKE_VOCAB, k, r->top_ids + i * k, r->top_values + i * k);
    if (b->shape.samples) fake_sample(m, &b->sampling[i], m->history, row, &r->sampled[i]);
    if (!b->need_logits || b->need_logits[i]) return;
    fake_require(k > 0 || b->shape.samples);
    for (uint32_t v = 0; v < FAKE_VOCAB; v++)
        row[v] = NAN;
}

/* Adds the previous step's sampled tokens to the penalty histories. */
static void fake_update_history(model *m, const struct model_batch *b) {
    const struct fake_results *previous = &m->results[!m->turn];
    memcpy(m->history, b->history, b->n_history * sizeof *m->history);
    for (uint32_t i = 0; i < b->n_history_updates; i++) {
        const struct backend_history_update *u = &b->history_updates[i];
        struct backend_penalty_entry *h = m->history + u->first;
        int32_t token = previous->sampled[u->from].token, k = 0;
        fake_require((uint32_t)(u->first + u->n) < b->n_history && h[u->n].token == -1);
        while (k < u->n && h[k].token != token)
            k++;
        h[k].token = token;
        h[k].count = k < u->n ? h[k].count + 1 : 1;
    }
}

/* Replaces placeholders by the previous step's tokens. */
static void fake_copy_tokens(model *m, const struct model_batch *b) {
    const struct fake_results *previous = &m->results[!m->turn];
    const struct model_shape *shape = &previous->shape;
    memcpy(m->ids, b->token_ids, b->shape.n_rows * sizeof *m->ids);
    fake_require(!b->n_token_copies || fake_overlaps);
    for (uint32_t i = 0; i < b->n_token_copies; i++) {
        uint32_t row = (uint32_t)b->token_copies[i].to, from = (uint32_t)b->token_copies[i].from;
        bool sampled = i < b->n_sampled_copies;
        fake_require(row < b->shape.n_rows && from < shape->n_logit_rows &&
                     (sampled ? shape->samples : shape->n_top > 0));
        int32_t token =
            sampled ? previous->sampled[from].token : previous->top_ids[from * shape->n_top];
        m->ids[row] = token < 0 ? 0 : token;
    }
    atomic_fetch_add(&fake_token_copies, (int)b->n_token_copies);
    fake_update_history(m, b);
}

/* The tokens that out row i finds through its table. */
static uint32_t fake_read(model *m, const struct model_batch *b, uint32_t i) {
    const struct backend_kv *layer = b->kv;
    int32_t row = b->out_rows[i], pos = b->positions[row];
    if (!layer) return (uint32_t)pos + 1;
    uint32_t stride = model_table_stride(&m->limits, b->shape.max_context, layer->block_tokens);
    const int32_t *table = b->tables + (size_t)fake_seq_of(b, row) * stride;
    for (int32_t p = 0; p <= pos; p++) {
        uint32_t block = (uint32_t)p / layer->block_tokens, at = (uint32_t)p % layer->block_tokens;
        struct fake_slot *slot =
            fake_slot_at(layer, (int64_t)table[block] * layer->block_tokens + at);
        fake_require(slot->pos == p);
        m->tokens[p] = slot->token;
    }
    return (uint32_t)pos + 1;
}

/* The rows of sequence s in one recurrent layer; the last layer's hashes remain. */
static void fake_advance(model *m, const struct model_batch *b, const struct backend_state *layer,
                         uint32_t s) {
    const struct fake_state *source = fake_state_at(layer, b->state_tables[2 * s]);
    struct fake_state *live = fake_state_at(layer, b->state_tables[2 * s + 1]);
    int32_t first = b->positions[b->row_start[s]], chunk = (int32_t)layer->chunk;
    int32_t boundary = first - first % chunk, end = first;
    uint64_t h = 1;
    if (boundary) {
        fake_require(source->boundary == boundary);
        h = source->at_boundary;
    }
    if (first > boundary) {
        fake_require(live->end == first);
        h = live->so_far;
    }
    for (int32_t row = b->row_start[s]; row < b->row_start[s + 1]; row++) {
        m->hashes[row] = h = fake_mix(h, (uint64_t)m->ids[row] + 1);
        if (++end % chunk) continue;
        live->at_boundary = h;
        live->boundary = end;
    }
    live->so_far = h;
    live->end = end;
}

static void fake_advance_states(model *m, const struct model_batch *b) {
    const uint32_t n_layers = m->hp.recurrent.n_layers;
    fake_require((b->states != NULL) == (n_layers > 0) && (b->kv != NULL) == !fake_no_kv);
    for (uint32_t i = 0; b->states && i < n_layers; i++)
        for (uint32_t s = 0; s < b->shape.n_seqs; s++)
            fake_advance(m, b, &b->states[i], s);
}

/* The step ended half way: what it writes, K/V and live blocks, may hold anything. The state at a
 * boundary is written by a step that reaches one. */
static void fake_break_step(const model *m, const struct model_batch *b) {
    for (uint32_t i = 0; b->kv && i < b->shape.n_rows; i++)
        *fake_slot_at(b->kv, b->slots[i]) = (struct fake_slot){FAKE_GARBAGE, -1};
    for (uint32_t i = 0; b->states && i < m->hp.recurrent.n_layers * b->shape.n_seqs; i++) {
        const struct backend_state *layer = &b->states[i / b->shape.n_seqs];
        uint32_t s = i % b->shape.n_seqs, first = (uint32_t)b->positions[b->row_start[s]];
        uint32_t end = first + (uint32_t)(b->row_start[s + 1] - b->row_start[s]);
        struct fake_state *live = fake_state_at(layer, b->state_tables[2 * s + 1]);
        live->so_far = 0, live->end = -1;
        if (end / layer->chunk > first / layer->chunk) live->at_boundary = 0, live->boundary = -1;
    }
}

/* Do the states say what K/V say? If not, the text that the row's results come from is spoilt. */
static void fake_compare(model *m, const struct model_batch *b, uint32_t i, uint32_t n) {
    bool same = !b->states || !b->kv || m->hashes[b->out_rows[i]] == fake_hash(m->tokens, n);
    fake_require(same);
    if (!same) m->tokens[n - 1] = FAKE_GARBAGE;
}

static int fake_forward(model *m, const struct model_batch *b, struct model_output *out, err *e) {
    const struct model_shape *shape = &b->shape;
    struct fake_results *r = &m->results[m->turn];
    int left = atomic_load(&fake_fail_after);
    if (left >= 0 && atomic_fetch_sub(&fake_fail_after, 1) == 0) m->failed = true;
    if (m->failed) fake_break_step(m, b);
    if (m->failed) return err_set(e, ERR_DEVICE, "the fake device failed as told");
    atomic_fetch_add(&fake_forwards, 1);
    fake_require(shape->n_rows > 0 && shape->n_rows <= m->limits.max_rows &&
                 shape->n_seqs <= m->limits.max_seqs &&
                 shape->n_logit_rows <= m->limits.max_logit_rows &&
                 shape->n_logit_rows + shape->n_hidden_rows <= shape->n_rows &&
                 b->row_start[0] == 0 && b->row_start[shape->n_seqs] == (int32_t)shape->n_rows);
    fake_count_guess(b);
    fake_copy_tokens(m, b);
    for (uint32_t i = 0; i < shape->n_rows; i++) {
        fake_require((uint32_t)b->positions[i] < shape->max_context);
        fake_require(m->ids[i] >= 0 && m->ids[i] < FAKE_VOCAB);
        if (b->kv)
            *fake_slot_at(b->kv, b->slots[i]) = (struct fake_slot){m->ids[i], b->positions[i]};
    }
    for (uint32_t i = 0; b->kv && i < shape->n_rows; i++) { /* not written by another row */
        struct fake_slot *at = fake_slot_at(b->kv, b->slots[i]);
        fake_require(at->token == m->ids[i] && at->pos == b->positions[i]);
    }
    fake_advance_states(m, b);
    for (uint32_t i = 0; i < shape->n_logit_rows + shape->n_hidden_rows; i++) {
        uint32_t n = fake_read(m, b, i);
        fake_compare(m, b, i, n);
        if (i < shape->n_logit_rows)
            fake_row(m, b, i, n);
        else
            fake_hidden(m->tokens, n, m->hidden + (size_t)(i - shape->n_logit_rows) * FAKE_EMBD);
    }
    r->shape = *shape;
    *out = (struct model_output){.logits = m->logits,
                                 .top_ids = r->top_ids,
                                 .top_values = r->top_values,
                                 .sampled = shape->samples ? r->sampled : NULL,
                                 .hidden = shape->n_hidden_rows ? m->hidden : NULL};
    m->turn = !m->turn;
    return 0;
}

int model_recover(model *m, err *e) {
    fake_require(m->failed && !m->n_begun);
    if (atomic_load(&fake_recovers) == 0) return err_set(e, ERR_DEVICE, "it is gone");
    bool more = atomic_fetch_sub(&fake_recovers, 1) > 1;
    atomic_store(&fake_fail_after, more ? atomic_load(&fake_fail_every) : -1);
    m->failed = false;
    return 0;
}

bool model_overlaps(const model *m) {
    (void)m;
    return fake_overlaps;
}
int model_begin(model *m, const struct model_batch *batch, err *e) {
    (void)e;
    fake_require(m->n_begun < (fake_overlaps ? 2 : 1));
    fake_queue(m->be)->step = batch;
    m->n_begun++;
    return 0;
}
/* Only a device that compiles its kernels is asked to (engine_warm). */
int model_forward(model *m, const struct model_batch *batch, struct model_output *out, err *e) {
    (void)m, (void)batch, (void)out, (void)e;
    fake_require(false);
    return ERR_DEVICE;
}
int model_finish(model *m, struct model_output *out, err *e) {
    backend *be = m->be;
    uint32_t n = 0;
    int rc = 0;
    fake_require(m->n_begun > 0);
    for (bool done = false; n < be->n_queue && !done; n++) {
        done = be->queue[n].step != NULL;
        if (done)
            rc = fake_forward(m, be->queue[n].step, out, e);
        else
            fake_copy(be, &be->queue[n]);
    }
    fake_take(be, n);
    m->n_begun--;
    return rc;
}

/* ---- tokenizer ---- */
struct tokenizer {
    int unused;
};
int tokenizer_open(const char *path, tokenizer **out, err *e) {
    (void)path, (void)e;
    *out = calloc(1, sizeof **out);
    return 0;
}
void tokenizer_close(tokenizer *t) {
    free(t);
}
int32_t tokenizer_n_vocab(const tokenizer *t) {
    (void)t;
    return FAKE_VOCAB;
}
int32_t tokenizer_find(const tokenizer *t, const char *text) {
    (void)t, (void)text;
    return -1;
}

const char *tokenizer_rerank_template(const tokenizer *t) {
    (void)t;
    return NULL;
}

bool tokenizer_is_eog(const tokenizer *t, int32_t id) {
    (void)t;
    return id == FAKE_EOG;
}
/* Tokens from 4 on are texts: the letters, pairs of letters ("ab", "bc", ...), and some signs. */
bool tokenizer_is_suppressed(const tokenizer *t, int32_t id) {
    (void)t, (void)id;
    return false;
}
bool tokenizer_is_control(const tokenizer *t, int32_t id) {
    (void)t;
    return id < 4;
}
const char *tokenizer_token_text(const tokenizer *t, int32_t id, size_t *n) {
    static const char *const names[] = {"<unk>", "<bos>", "<eog>", "<poison>"};
    (void)t;
    *n = strlen(names[id]);
    return names[id];
}
const char *tokenizer_token_bytes(const tokenizer *t, int32_t id, bool with_control, size_t *n) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyza", signs[] = "{}:,\"";
    (void)t, (void)with_control;
    if (id < 4 || id >= FAKE_VOCAB) return *n = 0, "";
    if (id >= 4 + 52) return *n = 1, signs + (id - 56);
    *n = id < 4 + 26 ? 1 : 2;
    return letters + (id - 4) % 26;
}

/* A small engine on it. */
static uint32_t fake_state_blocks; /* 0: sized automatically */
static inline struct engine_config base_config(void) {
    struct engine_config c = kit_config("fake");
    c.state_blocks = fake_state_blocks, c.state_checkpoint_tokens = 32;
    c.backend = "fake", c.isa = NULL, c.n_threads = 0;
    c.stream_events = 16;
    c.store = fake_store, c.model_sha256 = "fake", c.store_all = true;
    c.store_idle_s = fake_store ? (uint32_t)(atomic_load(&fake_forwards) % 2) : 0;
    return c;
}

/* Opens an engine whose device does not fail. */
static inline engine *fake_open(const struct engine_config *c) {
    atomic_store(&fake_fail_after, -1);
    atomic_store(&fake_recovers, 0);
    return kit_open(c);
}

/* As kit_check_ended, and the device saw no misplaced token. */
static inline void fake_check_ended(engine *en) {
    kit_check_ended(en);
    CHECK(atomic_load(&fake_errors) == 0);
}

#endif
