/* group.c - see group.h: what the ranks of several processes tell each other. Owns the memory of a
 * step's message.
 *
 * Messages, in the order in which they are sent; all processes are of one build, so structs travel
 * as they are:
 *
 *   OPEN   struct open_message. Then all ranks agree whether each has read its files, on sizes
 *          (struct note), and whether the model is open everywhere. If not, the next message is
 *          OPEN or END.
 *   STEP   struct step_message, then the copies of blocks that come before it and the arrays of
 *          the batch, as list_parts has them. Nothing is answered: a rank that fails breaks the
 *          link. Stages get it from the stage before, with a tail (stages.c).
 *   FINISH struct plain_message, if steps overlap: no step follows before the one in flight is
 *          finished. Otherwise the STEP that follows says that the one before is to be finished.
 *   CLOSE  struct plain_message: the model is closed; steps in flight are finished. Stages get it
 *          from the stage before.
 *   END    struct plain_message: the process ends. */
#include "core/engine/group.h"

#include "core/base/mem.h"
#include "core/engine/group_int.h"
#include "core/engine/step_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct step_message {
    uint32_t kind;
    uint32_t n_copies, stride; /* stride: of tables */
    /* As in model_batch, if others than rank 0 pick tokens. */
    uint32_t n_history, n_token_copies, n_sampled_copies, n_history_updates;
    struct model_shape shape;
};

uint32_t engine_group_launched(void) {
    return backend_link_launched();
}

static void add_fact(struct backend_link_stages *s, const char *name, const char *value) {
    struct backend_link_fact *f = &s->facts[s->n_facts++];
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(f->value, sizeof f->value, "%s", value);
}

/* Kernels of different kinds of processors round differently, and messages are as memory has them.
 */
static const char *processor(void) {
#if defined(__x86_64__)
    return "x86-64";
#elif defined(__aarch64__)
    return "arm64";
#else
    return "of another kind";
#endif
}

int engine_group_join_stages(const struct engine_stages *how, const char *version, uint32_t hang_s,
                             engine_group **out, err *e) {
    struct backend_link_stages s = {.others = how->others,
                                    .listen = how->listen,
                                    .secret_file = how->secret_file,
                                    .stops = how->stops};
    struct model_hparams *hp = mem_new(1, sizeof *hp);
    char hash[33], text[64];
    int rc = hp ? 0 : err_no_memory(e);
    if (!rc) rc = model_read_hparams(how->model_path, hp, e);
    if (!rc) rc = model_stages_check_family(hp, e); /* before others are waited for */
    if (!rc) rc = model_identity(how->model_path, hash, e);
    if (!rc) {
        snprintf(text, sizeof text, "%zu %zu", sizeof(struct open_message),
                 sizeof(struct step_message));
        add_fact(&s, "inferd's version", version);
        add_fact(&s, "the layout of messages", text);
        add_fact(&s, "the kind of processor", processor());
        add_fact(&s, "the model (its hash)", hash);
        snprintf(text, sizeof text, "%u", hp->n_layers);
        add_fact(&s, "its number of layers", text);
        add_fact(&s, "kv-cache-type", how->kv_type);
        add_fact(&s, "activation-bits", how->activation_bits);
        snprintf(text, sizeof text, "%u", how->n_ranks);
        add_fact(&s, "tensor-parallel", text); /* each number of ranks rounds differently */
        rc = backend_link_open_stages(&s, version, hang_s, out, e);
    }
    free(hp);
    return rc;
}

int engine_group_join(const char *version, uint32_t hang_s, engine_group **out, err *e) {
    return backend_link_open(version, hang_s, out, e);
}

uint32_t engine_group_rank(const engine_group *g) {
    return backend_link_rank(g);
}

uint32_t engine_group_size(const engine_group *g) {
    return backend_link_n(g);
}

int engine_group_failed(engine_group *g, err *e) {
    return backend_link_failed(g, e);
}

/* A failure is the link's, and is seen there, too. */
static int send_plain(engine_group *g, enum message_kind kind, err *e) {
    const struct plain_message m = {kind};
    return backend_link_send(g, &m, sizeof m, e);
}

void group_send_plain(engine_group *g, uint32_t to, enum message_kind kind) {
    const struct plain_message m = {kind};
    const struct backend_piece piece = {.out = &m, .rank = to, .out_bytes = sizeof m};
    backend_link_exchange(g, &piece, 1, NULL);
}

void engine_group_leave(engine_group *g) {
    if (g && !backend_link_rank(g)) send_plain(g, MESSAGE_END, NULL);
    backend_link_close(g);
}

/* ---- agreement ---- */

int group_check_model(const engine *en, const struct engine_config *config, err *e) {
    char own[33];
    if (!en->group.model[0]) return 0;
    int rc = model_identity(config->model_path, own, e);
    if (rc || strcmp(own, en->group.model) == 0) return rc;
    return err_set(e, ERR_UNSUPPORTED,
                   "%s is another model than the first stage opens (hash %s, there %s)",
                   config->model_path, own, en->group.model);
}

/* What a rank has room for, and what it computes with. */
struct note {
    uint64_t n_blocks, n_states;
    char isa[96];
};

static int refuse_isa(const struct engine_config *config, const struct note *all, uint32_t other,
                      err *e) {
    const char *noun = config->n_stages > 1 ? "stage" : "rank";
    return err_set_param(e, ERR_UNSUPPORTED, "isa",
                         "%s 0 computes with %s, %s %u with %s, which rounds differently: with "
                         "backend cpu set isa to one that all machines have, else use GPUs of one "
                         "kind",
                         noun, all[0].isa, noun, other, all[other].isa);
}

/* A rank that has more memory than another one takes as many blocks as that. */
static int take_least(engine *en, const struct engine_config *config, struct note *all,
                      struct engine_size *size, err *e) {
    struct engine_config least = *config;
    uint64_t n_blocks = all[0].n_blocks, n_states = all[0].n_states;
    all[0].isa[sizeof all[0].isa - 1] = '\0';
    for (uint32_t r = 1; r < backend_link_n(config->group); r++) {
        all[r].isa[sizeof all[r].isa - 1] = '\0';
        if (strcmp(all[r].isa, all[0].isa) != 0) return refuse_isa(config, all, r, e);
        if (all[r].n_blocks < n_blocks) n_blocks = all[r].n_blocks;
        if (all[r].n_states < n_states) n_states = all[r].n_states;
    }
    if (size->kc.n_blocks == n_blocks && size->kc.state.n_blocks == n_states) return 0;
    least.kv_cache_tokens = n_blocks * config->block_tokens;
    least.state_blocks = n_states;
    return engine_size(&least, &en->own, en->be, size, e);
}

int group_agree_size(engine *en, const struct engine_config *config, struct engine_size *size,
                     int rc, err *e) {
    struct note own = {0}, all[BACKEND_MAX_RANKS];
    rc = backend_link_agree(config->group, rc, e);
    if (rc) return rc;
    own.n_blocks = size->kc.n_blocks;
    own.n_states = size->kc.state.n_blocks;
    snprintf(own.isa, sizeof own.isa, "%s", backend_isa(en->be));
    rc = backend_link_gather(config->group, &own, sizeof own, all, e);
    if (rc) return rc;
    rc = take_least(en, config, all, size, e);
    return backend_link_agree(config->group, rc, e); /* whether each could */
}

/* ---- the message of a step ---- */

struct part {
    void *at;
    uint64_t bytes;
};
enum { MAX_PARTS = 15 };

/* Do others than rank 0 pick tokens? The last stage does; if steps overlap, all ranks do. */
static bool others_pick(const engine *en) {
    return en->split.n > 1 || model_overlaps(en->mdl);
}

/* The arrays of a batch of this shape, those of copies apart. */
static uint32_t list_parts(const engine *en, const struct step_batch *b,
                           const struct step_message *m, struct part out[MAX_PARTS]) {
    const struct model_shape *s = &m->shape;
    const bool states = kv_has_states(en->cache), stages = en->split.n > 1;
    const bool picks = others_pick(en);
    const uint64_t id = sizeof(int32_t), rows = s->n_rows * id;
    const uint64_t tables = (uint64_t)s->n_seqs * m->stride * id;
    const bool windows = b->limits.window_tables;
    const struct part all[] = {
        {b->token_ids, rows},
        {b->positions, rows},
        {b->types, rows},
        {b->slots, rows},
        {b->row_start, ((uint64_t)s->n_seqs + 1) * id},
        {b->tables, tables},
        {b->window_slots, windows ? rows : 0},
        {b->window_tables, windows ? tables : 0},
        {b->state_tables, states ? 2 * (uint64_t)s->n_seqs * id : 0},
        {b->out_rows, ((uint64_t)s->n_logit_rows + s->n_hidden_rows) * id},
        {b->need_logits, stages ? s->n_logit_rows * sizeof *b->need_logits : 0},
        {b->sampling, picks && s->samples ? s->n_logit_rows * sizeof *b->sampling : 0},
        {b->history, picks ? m->n_history * sizeof *b->history : 0},
        {b->token_copies, picks ? m->n_token_copies * sizeof *b->token_copies : 0},
        {b->history_updates, picks ? m->n_history_updates * sizeof *b->history_updates : 0},
    };
    _Static_assert(sizeof all / sizeof all[0] == MAX_PARTS, "every array is listed");
    memcpy(out, all, sizeof all);
    return MAX_PARTS;
}

static uint64_t pairs_bytes(const engine *en, uint64_t n_copies) {
    const int32_t *pairs, *window_pairs;
    kv_pending_copies(en->cache, &pairs, &window_pairs);
    return n_copies * 2 * sizeof *pairs * (window_pairs ? 2 : 1);
}

/* Allocates what steps need, in every process. */
static int open_messages(engine *en, const struct model_limits *limits, err *e) {
    const struct step_batch b = {.limits = *limits};
    const struct step_message largest = {.stride = limits->table_stride,
                                         .n_history = limits->max_history,
                                         .n_token_copies = limits->max_seqs,
                                         .n_history_updates = limits->max_seqs,
                                         .shape = {.n_rows = limits->max_rows,
                                                   .n_seqs = limits->max_seqs,
                                                   .n_logit_rows = limits->max_rows,
                                                   .samples = true}};
    struct part parts[MAX_PARTS];
    struct kv_stats stats;
    kv_stats_get(en->cache, &stats);
    uint64_t bytes = sizeof(struct step_message) + pairs_bytes(en, stats.n_blocks);
    uint32_t n = list_parts(en, &b, &largest, parts);
    for (uint32_t i = 0; i < n; i++)
        bytes += parts[i].bytes;
    bytes += stages_tail_bytes(en, &largest.shape);
    uint64_t most = bytes;
    int rc = en->split.n > 1 ? stages_open_results(en, limits, &most, e) : 0;
    if (rc) return rc;
    if (most > BACKEND_PIECE_BYTES)
        return err_set_param(e, ERR_INVALID, "max_sequences",
                             "a step's message to other processes could have %llu bytes: choose a "
                             "smaller max_sequences, max_batch_tokens or kv_cache_tokens",
                             (unsigned long long)most);
    en->group.bytes = mem_new(bytes, 1);
    en->group.most = (uint32_t)bytes;
    backend_link_allow(en->config.group, (uint32_t)most); /* all do before they agree */
    return en->group.bytes ? 0 : err_no_memory(e);
}

int group_agree_open(engine *en, const struct model_limits *limits, int rc, err *e) {
    if (!rc) rc = open_messages(en, limits, e);
    rc = backend_link_agree(en->config.group, rc, e);
    if (!rc) return 0;
    free(en->group.bytes);
    en->group.bytes = NULL;
    stages_close_results(en);
    return rc;
}

/* ---- rank 0 ---- */

int group_announce(engine *en, const struct engine_config *config, err *e) {
    (void)en;
    char hash[33] = "";
    int rc = config->n_stages > 1 ? model_identity(config->model_path, hash, e) : 0;
    if (rc) return rc;
    if (config->store || config->importance)
        return err_set_param(e, ERR_UNSUPPORTED, config->n_stages > 1 ? "n_stages" : "n_ranks",
                             "an engine of several processes has no KV store and collects no "
                             "importance matrix");
    struct open_message *m = mem_new(1, sizeof *m);
    if (!m) return err_no_memory(e);
    *m = (struct open_message){.kind = MESSAGE_OPEN, .config = *config};
    struct engine_config *c = &m->config;
    c->model_path = c->backend = c->isa = c->model_sha256 = c->model_label = NULL;
    c->on_load = NULL;
    c->on_step = NULL;
    c->on_load_arg = c->on_step_arg = NULL;
    c->group = NULL;
    char *path = realpath(config->model_path, NULL);
    snprintf(m->path, sizeof m->path, "%s", path ? path : config->model_path);
    snprintf(m->backend, sizeof m->backend, "%s", config->backend);
    snprintf(m->isa, sizeof m->isa, "%s", config->isa ? config->isa : "");
    memcpy(m->model, hash, sizeof m->model);
    rc = backend_link_send(config->group, m, sizeof *m, e);
    free(path);
    free(m);
    return rc;
}

void group_note_copies(engine *en) {
    const int32_t *pairs, *window_pairs;
    if (!en->group.bytes) return;
    uint32_t n = kv_pending_copies(en->cache, &pairs, &window_pairs);
    const uint64_t bytes = 2 * (uint64_t)n * sizeof *pairs;
    char *to = en->group.bytes + sizeof(struct step_message);
    en->group.n_copies = n;
    memcpy(to, pairs, bytes);
    if (window_pairs) memcpy(to + bytes, window_pairs, bytes);
}

uint64_t group_put_step(engine *en, const struct step_batch *b) {
    struct part parts[MAX_PARTS];
    const struct step_message m = {.kind = MESSAGE_STEP,
                                   .n_copies = en->group.n_copies,
                                   .stride = b->stride,
                                   .n_history = b->batch.n_history,
                                   .n_token_copies = b->batch.n_token_copies,
                                   .n_sampled_copies = b->batch.n_sampled_copies,
                                   .n_history_updates = b->batch.n_history_updates,
                                   .shape = b->batch.shape};
    char *to = en->group.bytes;
    memcpy(to, &m, sizeof m);
    to += sizeof m + pairs_bytes(en, m.n_copies);
    uint32_t n = list_parts(en, b, &m, parts);
    for (uint32_t i = 0; i < n; i++) {
        memcpy(to, parts[i].at, parts[i].bytes);
        to += parts[i].bytes;
    }
    return (uint64_t)(to - en->group.bytes);
}

int group_send_step(engine *en, const struct step_batch *b, err *e) {
    if (!en->group.bytes || en->split.n > 1) return 0; /* stages_begin */
    const uint64_t bytes = group_put_step(en, b);
    return backend_link_send(en->config.group, en->group.bytes, (uint32_t)bytes, e);
}

int group_finish_step(engine *en, err *e) {
    if (!en->group.bytes || !model_overlaps(en->mdl)) return 0;
    return send_plain(en->config.group, MESSAGE_FINISH, e);
}

void group_fail_step(engine *en, const err *e) {
    if (en->group.bytes) backend_link_break(en->config.group, e ? e->msg : "a step failed");
}

void group_close(engine *en) {
    const bool leads = en->group.bytes && !backend_link_rank(en->config.group);
    if (leads && en->split.n > 1)
        group_send_plain(en->config.group, 1, MESSAGE_CLOSE); /* which tells the next one */
    else if (leads)
        send_plain(en->config.group, MESSAGE_CLOSE, NULL);
    free(en->group.bytes);
    en->group.bytes = NULL;
    stages_close_results(en);
}

/* ---- the other ranks ---- */

/* Is the message one that rank 0 of the same build sends? */
static bool fits_limits(const engine *en, const struct step_batch *b,
                        const struct step_message *m) {
    const struct model_limits *lim = &b->limits;
    const struct model_shape *s = &m->shape;
    struct kv_stats stats;
    kv_stats_get(en->cache, &stats);
    return s->n_rows <= lim->max_rows && s->n_seqs <= lim->max_seqs &&
           s->n_logit_rows <= lim->max_logit_rows && s->n_top <= BACKEND_MAX_TOP &&
           (uint64_t)s->n_logit_rows + s->n_hidden_rows <= s->n_rows &&
           m->stride <= lim->table_stride && m->n_history <= lim->max_history &&
           m->n_token_copies <= lim->max_seqs && m->n_history_updates <= lim->max_seqs &&
           (!s->samples || lim->max_history) && m->n_copies <= stats.n_blocks;
}

/* Takes the message's copies of blocks: (n, 2) pairs, then those of window blocks, if there are
 * some. */
static int take_copies(engine *en, const char *from, uint32_t n, const struct step_bounds *is,
                       err *e) {
    const int32_t *own, *windows, *pairs = (const int32_t *)(const void *)from;
    kv_pending_copies(en->cache, &own, &windows);
    const int32_t *window_pairs = windows ? pairs + 2 * (size_t)n : NULL;
    int rc = step_check_copies(pairs, n, is->n_blocks, e);
    if (!rc && windows) rc = step_check_copies(window_pairs, n, is->n_windows, e);
    return rc ? rc : kv_copy_blocks(en->cache, pairs, window_pairs, n, e);
}

static struct step_bounds find_bounds(const engine *en) {
    struct kv_stats stats;
    kv_stats_get(en->cache, &stats);
    return (struct step_bounds){.n_vocab = en->hp.n_vocab,
                                .n_blocks = (uint32_t)stats.n_blocks,
                                .n_windows = (uint32_t)stats.n_windows,
                                .n_states = (uint32_t)stats.n_states,
                                .block_tokens = kv_block_tokens(en->cache)};
}

/* Reads a step's message (n bytes): copies blocks, fills the batch. */
int group_take_step(engine *en, struct step_batch *b, uint32_t n_bytes, char **tail, err *e) {
    struct step_message m;
    struct part parts[MAX_PARTS];
    char *from = en->group.bytes + sizeof m;
    uint64_t bytes = sizeof m;
    const struct step_bounds is = find_bounds(en);
    if (n_bytes < sizeof m) return err_set(e, ERR_FORMAT, "a step's message is too short");
    memcpy(&m, en->group.bytes, sizeof m);
    if (!fits_limits(en, b, &m)) return err_set(e, ERR_FORMAT, "a step exceeds its limits");
    uint32_t n = list_parts(en, b, &m, parts);
    const uint64_t copies = pairs_bytes(en, m.n_copies);
    bytes += copies;
    for (uint32_t i = 0; i < n; i++)
        bytes += parts[i].bytes;
    bytes += stages_tail_bytes(en, &m.shape);
    if (bytes != n_bytes)
        return err_set(e, ERR_FORMAT, "a step's message has %u bytes, expected %llu", n_bytes,
                       (unsigned long long)bytes);
    int rc = take_copies(en, from, m.n_copies, &is, e);
    from += copies;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(parts[i].at, from, parts[i].bytes);
        from += parts[i].bytes;
    }
    *tail = from;
    b->stride = m.stride;
    b->batch.shape = m.shape;
    b->batch.n_history = m.n_history;
    b->batch.n_token_copies = m.n_token_copies;
    b->batch.n_sampled_copies = m.n_sampled_copies;
    b->batch.n_history_updates = m.n_history_updates;
    if (!others_pick(en)) b->batch.shape.samples = false;
    b->batch.need_logits = en->split.n > 1 ? b->need_logits : NULL;
    b->batch.kv = kv_layers(en->cache);
    b->batch.states = kv_states(en->cache);
    return rc ? rc : step_check(&is, b, &m.shape, m.n_history, e);
}
