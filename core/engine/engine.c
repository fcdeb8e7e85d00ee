/* engine.c - opening and closing, submission, and calls to the worker. Everything here runs on
 * callers' threads; the model, the cache and the scheduler belong to the worker once it runs. */
#include "core/engine/engine.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/thread.h"
#include "core/engine/engine_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- open, stop, close ---- */

static int open_sched(engine *en, err *e) {
    const struct sched_config sc = {
        .max_batch_tokens = en->config.max_batch_tokens,
        .prefill_chunk = en->config.prefill_chunk ? en->config.prefill_chunk : 1,
        .max_sequences = en->config.max_sequences,
        .max_queue = UINT32_MAX, /* check_room has the bound */
        .max_prompt_logprob_rows = ENGINE_PROMPT_LOGPROB_ROWS,
        .whole = en->hp.both_ways,
        .checkpoint_tokens = en->config.state_checkpoint_tokens,
        .n_flows = en->split.n,
    };
    return sched_new(&sc, en->cache, &en->sch, e);
}

/* The memory of steps. */
static int open_scratch(engine *en, const struct model_limits *limits, err *e) {
    en->smp = sampler_new(en->hp.n_vocab);
    if (!en->smp || steps_init(en, limits) || stats_places_init(en)) return err_no_memory(e);
    return 0;
}

/* The ids of the tokens that end a generation. */
static int find_eog(engine *en, err *e) {
    int32_t n_vocab = tokenizer_n_vocab(en->tok);
    for (int32_t id = 0; id < n_vocab; id++)
        en->n_eog += tokenizer_is_eog(en->tok, id);
    en->eog = mem_new(en->n_eog, sizeof *en->eog);
    if (!en->eog) return err_no_memory(e);
    for (int32_t id = 0, *to = en->eog; id < n_vocab; id++)
        if (tokenizer_is_eog(en->tok, id)) *to++ = id;
    return 0;
}

/* The tokens that may be sampled, if the file names some that may not. */
static int find_allowed(engine *en, err *e) {
    const uint32_t n_words = (en->hp.n_vocab + 31) / 32;
    for (int32_t id = 0; id < tokenizer_n_vocab(en->tok); id++) {
        if (!tokenizer_is_suppressed(en->tok, id)) continue;
        if (!en->allowed) {
            en->allowed = mem_new(n_words, sizeof *en->allowed);
            if (!en->allowed) return err_no_memory(e);
            memset(en->allowed, 0xff, n_words * sizeof *en->allowed);
        }
        en->allowed[id / 32] &= ~(1u << (id % 32));
    }
    return 0;
}

static int open_heads(engine *en, const char *path, err *e) {
    const struct model_words words = {.yes = tokenizer_find(en->tok, "yes"),
                                      .no = tokenizer_find(en->tok, "no"),
                                      .has_template = tokenizer_rerank_template(en->tok) != NULL};
    return model_heads_read(path, &en->hp, &words, &en->heads, e);
}

/* Settings that have no effect on other backends than the CPU. */
static void log_unused(const engine *en) {
    if (strcmp(backend_name(en->be), "cpu") == 0) return;
    if (en->config.n_threads > 0)
        log_warn("engine: n_threads = %d has no effect: backend %s does not use CPU threads",
                 en->config.n_threads, backend_name(en->be));
    if (en->config.activation_bits > 8)
        log_warn(
            "engine: activation_bits = %d has no effect: backend %s does not quantize activations",
            en->config.activation_bits, backend_name(en->be));
}

static void log_states(const engine *en, const struct engine_size *size) {
    const struct kv_config *kc = &size->kc;
    const uint64_t bytes = kv_state_bytes(kc) * engine_n_ranks(en);
    if (!kc->n_state_layers) return;
    log_info("engine: %u state blocks of %.1f MiB for %u recurrent layers, %.1f MiB (%s)",
             kc->state.n_blocks, (double)bytes / (1 << 20), kc->n_state_layers,
             (double)bytes * kc->state.n_blocks / (1 << 20), size->state_reason);
    const uint32_t n_most = kc->prefix_cache ? (kc->state.n_blocks + 1) / 2 : kc->state.n_blocks;
    if (n_most < en->config.max_sequences)
        log_warn("engine: the state blocks admit %u sequences at once, though max_sequences is "
                 "%u: set state_blocks",
                 n_most, en->config.max_sequences);
}

static void log_windows(const engine *en, const struct kv_config *kc) {
    if (!kc->n_window_blocks) return;
    log_info("engine: %u window blocks for layers with a window of %u tokens, %.1f MiB",
             kc->n_window_blocks, kc->window,
             (double)kv_window_bytes(kc) * kc->n_window_blocks * engine_n_ranks(en) / (1 << 20));
}

static void log_sizes(const engine *en, const struct kv_config *kc, const char *reason) {
    char ranks[64] = "";
    if (engine_n_ranks(en) > 1)
        snprintf(ranks, sizeof ranks, ", tensor parallel over %u ranks", engine_n_ranks(en));
    log_info("engine: %s (%s, %s, %.1f M parameters) on %s/%s, %d threads%s",
             en->hp.name[0] ? en->hp.name : "model", en->hp.arch, en->hp.quant,
             (double)en->hp.n_params * 1e-6, backend_name(en->be), backend_isa(en->be),
             engine_n_threads(en), ranks);
    log_info("engine: context %u tokens; kv cache %llu tokens, %u blocks of %u, %.1f MiB (%s); "
             "%u tokens a step, %u sequences at once, %u queued",
             en->context_length, (unsigned long long)kc->n_blocks * kc->block_tokens, kc->n_blocks,
             kc->block_tokens,
             (double)kv_block_bytes(kc) * kc->n_blocks * engine_n_ranks(en) / (1 << 20), reason,
             en->config.max_batch_tokens, en->config.max_sequences, en->config.max_queue);
}

static void log_whole(const engine *en) {
    if (!en->hp.both_ways) return;
    log_info("engine: attention in both directions: a text is one step of at most %u tokens "
             "(max_batch_tokens), there is no prefix cache, and nothing is generated",
             en->context_length);
}

/* For a GPU with its own memory. */
static void log_memory(const engine *en, const struct model_memory *m) {
    uint64_t held = backend_allocated_bytes(en->be), limit = backend_memory_limit(en->be);
    if (!backend_memory_free(en->be)) return;
    log_info("engine: %.1f MiB of weights and %.1f MiB of step buffers on the GPU, %.1f MiB with "
             "all else; at most %.1f MiB (memory_fraction), %.1f MiB are free",
             (double)m->weights / (1 << 20), (double)m->steps / (1 << 20), (double)held / (1 << 20),
             (double)limit / (1 << 20), (double)backend_memory_free(en->be) / (1 << 20));
}

/* Of each rank. */
static uint64_t kv_pool_bytes(const struct kv_config *kc) {
    return kv_block_bytes(kc) * kc->n_blocks + kv_window_bytes(kc) * kc->n_window_blocks;
}

static int open_cache(engine *en, const struct kv_config *kc, err *e) {
    int rc = kv_open(kc, &en->cache, e);
    const uint64_t n_ranks = engine_n_ranks(en);
    if (rc == ERR_NOMEM && kc->n_state_layers)
        err_set_param(
            e, ERR_NOMEM, "state_blocks",
            "out of memory: a KV cache of %llu tokens needs %llu MiB, and %u state blocks "
            "need %llu MiB; choose a smaller kv_cache_tokens or state_blocks",
            (unsigned long long)kc->n_blocks * kc->block_tokens,
            (unsigned long long)(kv_pool_bytes(kc) * n_ranks >> 20), kc->state.n_blocks,
            (unsigned long long)(kv_state_bytes(kc) * kc->state.n_blocks * n_ranks >> 20));
    else if (rc == ERR_NOMEM)
        err_set_param(e, ERR_NOMEM, "kv_cache_tokens",
                      "out of memory: a KV cache of %llu tokens needs %llu MiB; choose a smaller "
                      "kv_cache_tokens",
                      (unsigned long long)kc->n_blocks * kc->block_tokens,
                      (unsigned long long)(kv_pool_bytes(kc) * n_ranks >> 20));
    return rc;
}

/* Memory that the model will take, so that one that does not fit on a GPU with its own memory, or
 * within a bound, is refused before anything is allocated. Without either a failure is no error. */
static int measure_model(engine *en, const struct engine_config *config,
                         const struct model_limits *limits, struct model_memory *out, err *e) {
    struct model_limits most = *limits;
    const bool own = backend_memory_free(en->be) != 0;
    most.table_stride = engine_context_wanted(config, &en->hp) / config->block_tokens + 1;
    if (own || config->memory_bytes) {
        int rc = model_memory_find(config->model_path, en->be, &most, out, e);
        if (!rc && !mem_add(out->steps, backend_scratch_bytes(en->be), &out->steps))
            out->steps = UINT64_MAX;
        if (rc || own) return rc;
    } else if (model_memory_find(config->model_path, en->be, &most, out, NULL)) {
        *out = (struct model_memory){en->own.weight_bytes / engine_n_ranks(en), 0};
    }
    if (config->memory_fraction <= 0) return 0;
    return err_set_param(e, ERR_INVALID, "memory_fraction",
                         "memory_fraction is for a GPU with its own memory, which backend %s does "
                         "not have: leave it "
                         "out",
                         backend_name(en->be));
}

/* Reads the tokenizer and small tensors. */
static int open_files(engine *en, const struct engine_config *config, err *e) {
    int rc = group_check_model(en, config, e);
    if (!rc) rc = engine_config_check(config, e);
    if (!rc) rc = model_read_hparams(config->model_path, &en->hp, e);
    if (!rc) rc = model_ranks_check(&en->hp, config->n_ranks, e);
    if (!rc) rc = stages_plan(en, config, e);
    if (!rc) rc = tokenizer_open(config->model_path, &en->tok, e);
    if (!rc && (uint32_t)tokenizer_n_vocab(en->tok) > en->hp.n_vocab)
        rc = err_set(e, ERR_FORMAT, "the tokenizer has %d tokens, the model %u",
                     (int)tokenizer_n_vocab(en->tok), en->hp.n_vocab);
    if (!rc) rc = find_eog(en, e);
    if (!rc) rc = find_allowed(en, e);
    if (!rc) rc = open_heads(en, config->model_path, e);
    return rc;
}

/* Opens what comes before anything large. Processes open the backend together or not at all. */
static int open_head(engine *en, const struct engine_config *config, struct model_limits *limits,
                     err *e) {
    int rc = open_files(en, config, e);
    if (config->group) rc = backend_link_agree(config->group, rc, e);
    if (rc) return rc;
    const bool stages = en->split.n > 1;
    uint32_t logit_rows = config->max_sequences + ENGINE_PROMPT_LOGPROB_ROWS;
    struct backend_config bc = {
        .name = config->backend,
        .n_threads = config->n_threads,
        .isa = config->isa,
        .activation_bits = config->activation_bits,
        .max_rows = config->max_batch_tokens,
        .n_ranks = config->n_ranks,
        .link = stages ? NULL : config->group,
        .device = config->device,
        .memory_fraction = config->memory_fraction,
        .resident_s = config->resident_s,
        .command_buffer_ms = config->command_buffer_ms,
    };
    *limits = (struct model_limits){
        .max_rows = config->max_batch_tokens,
        .max_logit_rows =
            logit_rows < config->max_batch_tokens ? logit_rows : config->max_batch_tokens,
        .max_seqs = config->max_sequences,
        .stage = en->split.stages[en->split.own],
        .on_load = config->on_load,
        .on_load_arg = config->on_load_arg,
        .importance = config->importance,
    };
    model_backend_limits(&en->hp, &bc);
    rc = backend_open(&bc, &en->be, e);
    if (!rc && backend_can_sample(en->be))
        limits->max_history = config->max_sequences < ENGINE_MAX_HISTORY / ENGINE_HISTORY_TOKENS
                                  ? config->max_sequences * ENGINE_HISTORY_TOKENS
                                  : ENGINE_MAX_HISTORY;
    return rc;
}

/* What a block of such a model says of a prompt is not in its tokens alone. */
static void choose_listener(const engine *en, const struct engine_config *config,
                            struct kv_config *kc) {
    bool fits = !kc->n_state_layers && !kc->window && kc->prefix_cache;
    if (fits) kc->listener = config->listener;
    if (!fits && config->listener.on_block)
        log_info("engine: no KV events of %s: they are for models whose layers all have full "
                 "attention, with a prefix cache",
                 en->hp.name[0] ? en->hp.name : "this model");
}

int engine_open_model(engine *en, const struct engine_config *config, struct engine_size *size,
                      struct model_limits *limits, err *e) {
    struct kv_config *kc = &size->kc;
    int rc = open_head(en, config, limits, e);
    if (!rc) rc = measure_model(en, config, limits, &size->memory, e);
    if (!rc) rc = engine_size(config, &en->own, en->be, size, e);
    if (config->group) rc = group_agree_size(en, config, size, rc, e);
    if (rc) return rc;
    en->bytes = engine_size_bytes(size, backend_n_here(en->be), kc->n_blocks);
    kc->be = en->be;
    choose_listener(en, config, kc);
    if (config->store) kc->max_seqs += TIER_RESTORES; /* these hold blocks, too */
    en->context_length = limits->n_ctx = size->context_length;
    en->kv_blocks = kc->n_blocks;
    limits->table_stride = kc->max_blocks_per_seq;
    limits->window_tables = kc->window != 0;
    rc = open_cache(en, kc, e);
    if (!rc) rc = model_open(config->model_path, en->be, limits, &en->mdl, e);
    return config->group ? group_agree_open(en, limits, rc, e) : rc;
}

/* Opens model, cache and scheduler; engine_close closes them in reverse order. */
static int open_parts(engine *en, const struct engine_config *config, err *e) {
    struct engine_size size;
    struct kv_config *kc = &size.kc;
    struct model_limits limits;
    int rc = config->group ? group_announce(en, config, e) : 0;
    if (!rc) rc = engine_open_model(en, config, &size, &limits, e);
    if (!rc) rc = open_sched(en, e);
    if (!rc) rc = tier_open(en, config, e);
    if (!rc) rc = open_scratch(en, &limits, e);
    if (!rc)
        log_sizes(en, kc, size.reason), log_windows(en, kc), log_states(en, &size),
            log_memory(en, &size.memory), log_whole(en), log_unused(en);
    return rc;
}

void engine_init_locks(engine *en) {
    pthread_mutex_init(&en->lock, NULL);
    pthread_mutex_init(&en->stats_lock, NULL);
    pthread_mutex_init(&en->vocab_lock, NULL);
    pthread_mutex_init(&en->deferred.lock, NULL);
    pthread_cond_init(&en->deferred.wake, NULL);
    clock_cond_init(&en->wake);
    pthread_cond_init(&en->done, NULL);
    en->inbox_tail = &en->inbox;
    atomic_init(&en->n_rejected, 0);
    atomic_init(&en->max_queue, en->config.max_queue);
}

int engine_open(const struct engine_config *config, engine **out, err *e) {
    engine *en = mem_new(1, sizeof *en);
    if (!en) return err_no_memory(e);
    en->config = *config;
    en->config.model_path = en->config.backend = en->config.isa = NULL; /* borrowed for this call */
    en->config.model_sha256 = en->config.model_label = NULL;
    engine_init_locks(en);
    stats_init(&en->totals);
    en->stats = en->totals;
    int rc = open_parts(en, config, e);
    if (!rc) rc = engine_warm(en, e);
    if (!rc && config->time_kernels && !backend_set_mode(en->be, BACKEND_TIMES))
        rc =
            err_set(e, ERR_UNSUPPORTED, "backend %s cannot time its kernels", backend_name(en->be));
    if (!rc) rc = deferred_masks_start(en, e);
    if (!rc) rc = thread_start(&en->worker, worker_main, en, "makes the engine's steps", e);
    if (rc) goto fail;
    en->worker_started = true;
    *out = en;
    return 0;
fail:
    engine_close(en);
    return rc;
}

int engine_need_find(const struct engine_config *config, struct engine_need *out, err *e) {
    struct engine_size size;
    struct model_limits limits;
    *out = (struct engine_need){0};
    engine *en = mem_new(1, sizeof *en);
    if (!en) return err_no_memory(e);
    en->config = *config;
    engine_init_locks(en);
    int rc = open_head(en, config, &limits, e);
    if (!rc) rc = measure_model(en, config, &limits, &size.memory, e);
    if (!rc) rc = engine_size_alone(config, &en->own, en->be, &size, e);
    if (!rc) {
        const uint32_t n_ranks = backend_n_here(en->be), block = config->block_tokens;
        *out = (struct engine_need){
            .weights = size.memory.weights * n_ranks,
            .steps = size.memory.steps * n_ranks,
            .least = engine_size_bytes(&size, n_ranks,
                                       config->kv_cache_tokens
                                           ? size.kc.n_blocks
                                           : (size.context_length + block - 1) / block),
            .context_length = size.context_length,
            .state_blocks = size.kc.state.n_blocks,
        };
        out->device_left = engine_device_left(en->be, &out->device_limit);
        /* Of the rank with least: all have as much of the model. */
        if (backend_memory_free(en->be)) {
            if (!mem_mul(out->device_left, n_ranks, &out->device_left))
                out->device_left = UINT64_MAX;
            if (!mem_mul(out->device_limit, n_ranks, &out->device_limit))
                out->device_limit = UINT64_MAX;
        }
    }
    engine_close(en);
    return rc;
}

uint64_t engine_bytes(const engine *en) {
    return en->bytes;
}

void engine_drain(engine *en) {
    pthread_mutex_lock(&en->lock);
    en->draining = true;
    pthread_mutex_unlock(&en->lock);
}

bool engine_save(engine *en, uint64_t deadline_ns) {
    if (!en->tier.store) return true;
    pthread_mutex_lock(&en->lock);
    en->tier.save_until_ns = deadline_ns;
    en->tier.save_done = false;
    en->tier.wake = true;
    pthread_cond_signal(&en->wake);
    while (en->tier.save_until_ns && !en->stopping)
        pthread_cond_wait(&en->done, &en->lock);
    en->tier.save_until_ns = 0;
    bool done = en->tier.save_done;
    pthread_mutex_unlock(&en->lock);
    return kvstore_flush(en->tier.store, deadline_ns) && done;
}

void engine_set_max_queue(engine *en, uint32_t max_queue) {
    atomic_store(&en->max_queue, max_queue);
}

void engine_set_store(engine *en, uint32_t idle_s, bool all) {
    if (!en->tier.store) return;
    pthread_mutex_lock(&en->lock);
    atomic_store(&en->tier.idle_ns, idle_s * UINT64_C(1000000000));
    atomic_store(&en->tier.all, all);
    en->tier.wake = true; /* it may be due */
    pthread_cond_signal(&en->wake);
    pthread_mutex_unlock(&en->lock);
}

void engine_stop(engine *en) {
    if (!en->worker_started) return;
    pthread_mutex_lock(&en->lock);
    en->draining = en->stopping = true;
    pthread_cond_signal(&en->wake);
    pthread_cond_broadcast(&en->done); /* engine_save */
    if (!en->joining) {
        en->joining = true;
        pthread_mutex_unlock(&en->lock);
        pthread_join(en->worker, NULL);
        deferred_masks_stop(en);
        pthread_mutex_lock(&en->lock);
        en->joined = true;
        pthread_cond_broadcast(&en->done);
    }
    while (!en->joined)
        pthread_cond_wait(&en->done, &en->lock);
    /* Entries that the worker did not see; their streams are final. */
    struct engine_stream *late = en->wake_list;
    en->wake_list = NULL;
    pthread_mutex_unlock(&en->lock);
    for (struct engine_stream *next; late; late = next) {
        next = late->wake_next;
        stream_unref(late);
    }
}

void engine_close(engine *en) {
    if (!en) return;
    engine_stop(en);
    deferred_masks_stop(en); /* without a worker: engine_open failed */
    group_close(en);
    steps_fini(en);
    tier_close(en);
    sampler_free(en->smp);
    if (en->sch) sched_free(en->sch);
    model_close(en->mdl);
    kv_close(en->cache);
    model_heads_fini(&en->heads);
    backend_close(en->be);
    grammar_vocab_free(en->vocab);
    free(en->eog);
    free(en->allowed);
    free(en->places);
    free(en->published);
    tokenizer_close(en->tok);
    pthread_mutex_destroy(&en->lock);
    pthread_mutex_destroy(&en->stats_lock);
    pthread_mutex_destroy(&en->vocab_lock);
    pthread_mutex_destroy(&en->deferred.lock);
    pthread_cond_destroy(&en->deferred.wake);
    pthread_cond_destroy(&en->wake);
    pthread_cond_destroy(&en->done);
    free(en);
}

const tokenizer *engine_tokenizer(const engine *en) {
    return en->tok;
}

struct engine_model engine_model(const engine *en) {
    const struct model_hparams *hp = &en->hp;
    return (struct engine_model){.arch = hp->arch,
                                 .quant = hp->quant,
                                 .n_params = hp->n_params,
                                 .weight_bytes = hp->weight_bytes,
                                 .n_vocab = hp->n_vocab,
                                 .n_layers = hp->n_layers,
                                 .recurrent = hp->recurrent.n_layers > 0,
                                 .n_embd = hp->n_embd,
                                 .pooling = (enum engine_pooling)hp->pooling,
                                 .scores = en->heads.score.w != NULL,
                                 .only_embeds = hp->both_ways,
                                 .scores_lack = en->heads.scores_lack};
}

const struct sampling_recommended *engine_sampling(const engine *en) {
    static const struct sampling_recommended none;
    return en->config.ignore_sampling ? &none : &en->hp.sampling;
}

const struct model_hparams *engine_hparams(const engine *en) {
    return &en->hp;
}

uint32_t engine_context_length(const engine *en) {
    return en->context_length;
}

/* ---- submission ---- */

/* The most tokens of a text: those of the context that fit what the holder may have. */
static uint32_t most_tokens(const engine *en, const struct engine_params *p) {
    uint64_t n = (uint64_t)engine_most_blocks(en, p) * kv_block_tokens(en->cache);
    return n && n < en->context_length ? (uint32_t)n : en->context_length;
}

static int check_tokens(const engine *en, const struct engine_request *req, err *e) {
    uint32_t room = req->pooling == ENGINE_POOLING_NONE; /* for an answer */
    if (req->n_prompt < 1)
        return err_set_param(e, ERR_INVALID, "prompt", "the prompt has no tokens");
    if (req->n_prompt > en->context_length - room)
        return err_set(
            e, ERR_TOO_LONG, "the prompt has %u tokens%s; this model's context is %u tokens here",
            req->n_prompt, room ? " and needs room for an answer" : "", en->context_length);
    uint32_t most = most_tokens(en, &req->params);
    if (req->n_prompt > most - room)
        return err_set(
            e, ERR_TOO_LONG,
            "the prompt has %u tokens%s; this key may hold %u %% of the KV cache, %u of its %u "
            "blocks of %u tokens, which is %u tokens",
            req->n_prompt, room ? " and needs room for an answer" : "", req->params.kv_percent,
            engine_most_blocks(en, &req->params), en->kv_blocks, kv_block_tokens(en->cache), most);
    for (uint32_t i = 0; i < req->n_prompt; i++)
        if (req->prompt[i] < 0 || (uint32_t)req->prompt[i] >= en->hp.n_vocab)
            return err_set_param(e, ERR_INVALID, "prompt",
                                 "prompt token %u is %d; the vocabulary has 0 to %u", i,
                                 (int)req->prompt[i], en->hp.n_vocab - 1);
    return 0;
}

/* Checks what requires a single choice: continuations and embeddings. */
static int check_single(const engine *en, const struct engine_request *req, err *e) {
    uint32_t max_tokens = req->params.max_tokens;
    if (en->hp.both_ways && req->pooling == ENGINE_POOLING_NONE)
        return err_set_param(e, ERR_UNSUPPORTED, "model",
                             "this model (%s) only embeds: use /v1/embeddings", en->hp.arch);
    if (!req->n_generated && req->pooling == ENGINE_POOLING_NONE) return 0;
    if (req->pooling == ENGINE_POOLING_RANK && !en->heads.score.w)
        return err_set(e, ERR_UNSUPPORTED, "this model cannot score: %.300s",
                       en->heads.scores_lack);
    if (req->n_choices != 1)
        return err_set_param(e, ERR_INVALID, "n", "a continuation or an embedding has one choice");
    if (req->n_generated && req->pooling != ENGINE_POOLING_NONE)
        return err_set(e, ERR_INVALID, "an embedding cannot be continued");
    if (req->n_generated >= req->n_prompt)
        return err_set_param(e, ERR_INVALID, "prompt", "a continuation needs its prompt");
    if (req->n_generated && max_tokens && max_tokens <= req->n_generated)
        return err_set_param(e, ERR_INVALID, "max_tokens",
                             "%u tokens were generated before, which reaches max_tokens = %u",
                             req->n_generated, max_tokens);
    return 0;
}

static int check_request(const engine *en, const struct engine_request *req, err *e) {
    const uint32_t max_queue = atomic_load(&en->max_queue);
    uint32_t max_choices = max_queue < ENGINE_MAX_CHOICES ? max_queue : ENGINE_MAX_CHOICES;
    if (req->n_choices < 1 || req->n_choices > max_choices)
        return err_set_param(
            e, ERR_INVALID, "n", "n must be 1 to %u%s", max_choices,
            max_choices < ENGINE_MAX_CHOICES ? ": this server's queue holds no more" : "");
    int rc = check_tokens(en, req, e);
    if (!rc) rc = check_single(en, req, e);
    return rc ? rc : engine_params_check(&req->params, en->hp.n_vocab, e);
}

/* Under en->lock: may n sequences enter the queue? */
static int check_room(engine *en, uint32_t n, err *e) {
    if (model_check(en->mdl, NULL)) return engine_err_changed(e);
    if (en->device_failed) return err_set(e, ERR_DEVICE, "the backend failed; restart the server");
    if (en->draining) return err_set(e, ERR_STOPPING, "the server is shutting down");
    uint64_t queued = (uint64_t)en->n_inbox + en->n_queued;
    const uint32_t max_queue = atomic_load(&en->max_queue);
    if (queued + n <= max_queue) return 0;
    atomic_fetch_add(&en->n_rejected, n);
    return err_set(e, ERR_FULL, "%llu requests are waiting (the queue holds %u); try again later",
                   (unsigned long long)queued, max_queue);
}

uint32_t engine_queue_room(engine *en, uint32_t *bound) {
    *bound = atomic_load(&en->max_queue);
    pthread_mutex_lock(&en->lock);
    uint64_t queued = (uint64_t)en->n_inbox + en->n_queued;
    pthread_mutex_unlock(&en->lock);
    return queued < *bound ? *bound - (uint32_t)queued : 0;
}

static int enqueue_streams(engine *en, engine_stream **streams, uint32_t n, err *e) {
    pthread_mutex_lock(&en->lock);
    int rc = check_room(en, n, e);
    for (uint32_t i = 0; !rc && i < n; i++) {
        *en->inbox_tail = streams[i];
        en->inbox_tail = &streams[i]->inbox_next;
    }
    if (!rc) {
        en->n_inbox += n;
        pthread_cond_signal(&en->wake);
    }
    pthread_mutex_unlock(&en->lock);
    return rc;
}

int engine_submit(engine *en, const struct engine_request *req, engine_stream **streams, err *e) {
    int rc = check_request(en, req, e);
    if (rc) return rc;
    if (req->deadline_ns && clock_now_ns() >= req->deadline_ns)
        return err_set(e, ERR_DEADLINE, ENGINE_OVERDUE);
    /* Also checked before memory is allocated, so that a full queue refuses cheaply. */
    pthread_mutex_lock(&en->lock);
    rc = check_room(en, req->n_choices, e);
    pthread_mutex_unlock(&en->lock);
    if (rc) return rc;

    uint32_t room = most_tokens(en, &req->params) - (req->n_prompt - req->n_generated), n = 0;
    uint32_t max_tokens = req->params.max_tokens;
    if (!max_tokens || max_tokens > room) max_tokens = room;
    if (req->pooling) max_tokens = 0;
    for (; n < req->n_choices; n++) {
        rc = stream_new(en, req, n, max_tokens, &streams[n], e);
        if (rc) goto fail;
        /* A fork takes its leader's blocks without computing the prompt: with prompt_logprobs each
         * choice computes it. */
        if (n && !req->params.prompt_logprobs) streams[n]->seq.leader = &streams[0]->seq;
    }
    rc = enqueue_streams(en, streams, n, e);
    if (!rc) return 0;
fail:
    for (uint32_t i = 0; i < n; i++) {
        stream_unref(streams[i]); /* the worker's reference */
        stream_unref(streams[i]);
        streams[i] = NULL;
    }
    return rc;
}

bool engine_device_failed(engine *en) {
    pthread_mutex_lock(&en->lock);
    bool failed = en->device_failed && en->failure.code == ERR_DEVICE;
    pthread_mutex_unlock(&en->lock);
    return failed;
}

bool engine_progress(engine *en, uint64_t *mark) {
    pthread_mutex_lock(&en->lock);
    bool moves = en->resting || en->joined || en->n_rounds != *mark;
    *mark = en->n_rounds;
    pthread_mutex_unlock(&en->lock);
    return moves;
}

/* ---- check ---- */

int engine_check(engine *en, err *e) {
    pthread_mutex_lock(&en->lock);
    while (en->check_busy)
        pthread_cond_wait(&en->done, &en->lock);
    en->check_busy = true;
    en->check_wanted = !en->joined;
    pthread_cond_signal(&en->wake);
    while (en->check_wanted && !en->joined)
        pthread_cond_wait(&en->done, &en->lock);
    err result = en->check_result;
    if (en->check_wanted ||
        en->joined) { /* the worker has ended: only this thread uses the state */
        en->check_wanted = false;
        err_clear(&result);
        sched_check(en->sch, &result);
    }
    en->check_busy = false;
    pthread_cond_broadcast(&en->done);
    pthread_mutex_unlock(&en->lock);
    if (e) *e = result;
    return result.code;
}
