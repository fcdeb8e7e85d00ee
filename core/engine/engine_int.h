/* engine_int.h - shared by the files of core/engine. Private to core/engine.
 *
 * Threads: the worker owns everything marked "worker"; callers of engine_* reach the worker only
 * through the inbox (en->lock) and a stream's ring (ring_lock). A second thread
 * (deferred_masks.c) owns a sequence's constraint while its mask is deferred.
 *
 * Locks: en->lock, stream ring_lock, stream notify_lock, en->stats_lock and deferred.lock are never
 * held together, and none of them during a forward pass. notify_lock is held around the client's
 * notify, so that engine_stream_free can promise that no call is running when it returns. */
#ifndef INFERD_ENGINE_INT_H
#define INFERD_ENGINE_INT_H

#include "core/backend/ops.h"
#include "core/engine/engine.h"
#include "core/engine/pace.h"
#include "core/engine/sampler.h"
#include "core/engine/sched.h"
#include "core/engine/tier.h"
#include "core/kv/kv.h"
#include "core/model/model.h"

#include <pthread.h>
#include <stdatomic.h>

/* Rows per step of all sequences that need every row's logits (prompt_logprobs): bounds the logits
 * buffer, (max_sequences + this, n_vocab) f32. */
enum { ENGINE_PROMPT_LOGPROB_ROWS = 128 };

/* Capacity of the penalty history that a step uploads to a device that samples: per sequence that
 * may run, and at most. Sequences share it; one that does not fit is sampled on the host. */
enum { ENGINE_HISTORY_TOKENS = 512, ENGINE_MAX_HISTORY = 131072 };

/* Most failures of the device that the engine recovers from within ENGINE_RECOVERY_NS. */
enum { ENGINE_MAX_RECOVERIES = 5 };
#define ENGINE_RECOVERY_NS UINT64_C(60000000000)

/* An event in the ring. Its top tokens are in arrays as wide as the request needs. */
struct ring_slot {
    enum engine_event_kind kind;
    int32_t token;
    float logprob;
    int32_t n_top;
};

/* The state of pooling a prompt's rows. */
struct pooled {
    enum engine_pooling how; /* fixed: MEAN, CLS, LAST; NONE: not pooled */
    bool scores;             /* likewise: the vector becomes a logit */
    double *sum;             /* (n_embd) MEAN: of n rows */
    float *result;           /* (n_embd); in the end the first may be the logit */
    uint32_t n;              /* rows taken so far, in order of position */
};

/* What a grammar allows as the next token. */
enum constraint_next {
    CONSTRAINT_UNKNOWN, /* not computed yet */
    CONSTRAINT_MASK,    /* any token of the mask */
    CONSTRAINT_FORCED,  /* `forced` only */
    CONSTRAINT_LAST,    /* none: max_tokens is reached and the text is incomplete */
    CONSTRAINT_END,     /* none: the text is complete */
    CONSTRAINT_FAILED,  /* none: the matcher gave up, possibly at a token that its mask allowed */
    CONSTRAINT_COSTLY   /* none: computing it exceeds the allowed work */
};
/* Owned by the worker; by the thread of deferred_masks.c while the stream's mask_deferred is set.
 */
struct constraint {
    grammar *g;
    grammar_matcher *matcher; /* NULL: the sequence has no grammar */
    bool ignore_eos;
    enum constraint_next next;
    uint32_t *mask; /* ((n_vocab + 31) / 32) as in sampler_request */
    int32_t forced;
    int32_t taken;    /* a token that the matcher has not accepted yet; -1: none */
    bool begun, last; /* the first token came; the last one did */
    uint64_t work_ns; /* of all masks so far */
    uint64_t slice;   /* units of the next slice on the thread */
};

/* One sequence and its stream. Shared by the worker (until it is final), the inbox (while queued
 * there) and the reader (until engine_stream_free); the last of them frees it. */
struct engine_stream {
    struct sched_seq seq; /* worker; first member: the scheduler's items point here */

    /* Fixed at submission. */
    engine *en;
    struct engine_params params; /* params.bias == bias */
    struct engine_logit_bias *bias;
    uint64_t seed;
    uint64_t submit_ns, deadline_ns;
    bool on_device;       /* the device samples its tokens (backend_sample) */
    uint32_t n_row_top;   /* best tokens needed of a row: on_device for their log-probabilities,
                             otherwise to sample from (sampler_n_top); 0: the whole row */
    uint32_t second_from; /* as in engine_request */
    uint32_t max_tokens;  /* at least 1; prompt + max_tokens fit the context; 0: pooled */

    struct kvstore_name *names; /* (n_names) of whole blocks of the prompt; NULL: no store */
    uint32_t n_names;

    /* Worker. */
    struct penalty_history history;
    uint32_t n_generated; /* including those of the request that this one continues */
    struct constraint constraint;
    struct pooled pooled;   /* result: the reader's after the final event */
    uint32_t n_prompt_sent; /* prompt positions whose event was delivered */
    bool admitted, finished;
    uint32_t place;           /* 1 + index in engine.places; 0: none */
    bool full, mask_deferred; /* why it is paused: its ring is full; its mask is deferred */
    uint32_t n_in_flight;     /* steps in flight that contain it: not freed before they end */
    uint32_t logits_row;      /* in its last step, the row that predicts its next token */
    struct engine_stream *live_prev, *live_next, *reap_next;
    struct tier_restore *restore; /* it is paused until this has ended; NULL: none */
    bool restore_over;
    uint32_t n_restores;

    /* Guarded by en->lock. */
    struct engine_stream *inbox_next, *wake_next;
    bool in_wake_list;

    /* Guarded by deferred.lock. */
    struct engine_stream *deferred_next;
    uint64_t deferred_ns; /* time that the thread spent on it: see deferred_masks.c */

    /* Written by the worker; engine_times. */
    struct {
        atomic_uint_least64_t admitted_ns, first_token_ns, last_token_ns, ended_ns, sampling_ns;
    } times;

    atomic_bool cancelled;
    atomic_bool ended;      /* set by the worker: a deferred mask is not needed any more */
    atomic_bool mask_ready; /* set by the thread: the deferred mask is computed */
    atomic_uint refs;

    pthread_mutex_t ring_lock;
    struct ring_slot *ring;  /* (ring_capacity) */
    int32_t *ring_top_token; /* (ring_capacity, n_top) */
    float *ring_top_logprob; /* (ring_capacity, n_top) */
    uint32_t ring_limit; /* events at which the sequence pauses; the rest is for its last step */
    uint32_t ring_capacity, ring_head, ring_count, n_top;
    bool waits_for_room;        /* the worker paused the sequence */
    bool has_final, final_read; /* the final event has its own slot: always deliverable */
    enum engine_finish finish;
    uint32_t final_generated, final_cached;
    enum engine_miss final_miss;
    err final_error;

    pthread_mutex_t notify_lock;
    void (*notify)(void *arg); /* NULL once the reader is gone */
    void *notify_arg;
};

/* Host arrays of one step, allocated at start (batch.c lists them). */
struct step_batch {
    int32_t *token_ids, *positions, *types, *slots; /* (max_rows) */
    int32_t *row_start;                             /* (max_seqs + 1) */
    int32_t *tables;       /* (max_seqs, limits.table_stride); a step uses (n_seqs, stride) */
    int32_t *state_tables; /* (max_seqs, 2) with recurrent layers */
    int32_t *window_slots, *window_tables; /* as slots and tables; with limits.window_tables */
    int32_t *out_rows;                     /* (max_rows) */
    bool *need_logits;                     /* (max_logit_rows) */
    bool *sample_on_host; /* (max_logit_rows) on_device, but the penalty history does not fit */
    struct backend_sampling *sampling;     /* (max_logit_rows) */
    struct backend_penalty_entry *history; /* (limits.max_history) */
    int32_t *hidden_rows; /* (max_rows) appended to out_rows when the batch is complete */
    uint32_t *first_out;  /* (max_seqs) plan item -> its first row of logits; pooled: of hidden */
    struct backend_history_update *history_updates; /* (max_seqs) */
    /* (2 * max_seqs) copies of sampled tokens; those of best tokens start at max_seqs while the
     * batch is filled */
    struct backend_token_copy *token_copies;
    uint32_t stride; /* of tables, in this step */
    struct model_limits limits;
    struct model_batch batch; /* points into the arrays above */
};

/* The message of a step to the other ranks: group.c draws it. */
struct group_messages {
    char *bytes; /* (most) owned; NULL: no other processes, or not open */
    uint32_t most, n_copies;
    char model[33]; /* of a stage that follows: what model_identity must say of its own model */
    /* Of the first and the last stage: a step's results as they travel (result_most); of the first,
     * its rows of logits (max_logit_rows, n_vocab), each where it belongs. Owned. */
    char *result;
    float *logits;
    uint32_t result_most;
};

/* The split over processes by layers; n 0: there is none. */
struct engine_split {
    uint32_t n, own; /* stages; this one */
    struct model_stage stages[ENGINE_MAX_STAGES];
    uint64_t bytes[ENGINE_MAX_STAGES];   /* that a step reads of each stage's weights */
    uint64_t busy_ns[ENGINE_MAX_STAGES]; /* computing or sending, so far as is known; own: so far */
};

/* A step from its plan until its results are delivered. */
struct step_in_flight {
    struct sched_plan plan; /* items: (max_seqs) its own */
    struct step_batch batch;
    /* The next step may begin before this one has ended: the device finds all its tokens, and the
     * host needs none of them first. */
    bool next_may_begin;
    uint64_t start_ns;
};
enum { ENGINE_MAX_STEPS_IN_FLIGHT = ENGINE_MAX_STAGES };

/* Work (in units of grammar_matcher_budget, 10 to 50 ns each) that the worker spends on masks: at
 * most ENGINE_MASK_UNITS on one and ENGINE_STEP_MASK_UNITS on all of a step; once these are spent,
 * still ENGINE_MIN_MASK_UNITS on each. */
enum { ENGINE_MASK_UNITS = 40000, ENGINE_STEP_MASK_UNITS = 80000, ENGINE_MIN_MASK_UNITS = 4000 };

/* Masks that the worker does not wait for: see deferred_masks.c. */
struct deferred_masks {
    uint64_t units;                /* ENGINE_MASK_UNITS; fixed before the first request */
    uint64_t left;                 /* worker: of ENGINE_STEP_MASK_UNITS */
    atomic_uint_fast64_t spent_ns; /* on the thread */
    pthread_t thread;
    bool started; /* engine_open and engine_stop only */

    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct engine_stream *first; /* waiting streams; guarded by lock, as all below */
    uint64_t least_ns;           /* deferred_ns of the stream served last */
    bool stopping;
};

struct engine {
    /* Fixed after engine_open. */
    struct engine_config config; /* strings are not kept */
    struct model_hparams hp;
    struct model_hparams own; /* of this process's stage; without stages hp */
    struct engine_split split;
    uint32_t *allowed; /* as sampler_request.mask: tokens that are not suppressed; NULL: all */
    struct model_heads heads; /* scratch: the worker's */
    uint32_t context_length;
    uint32_t kv_blocks; /* of the whole cache */
    backend *be;
    kv *cache;
    model *mdl;
    tokenizer *tok;

    /* Worker. */
    sched *sch;
    sampler *smp;
    /* A ring of n_steps steps: 1, 2 if steps overlap, or as many as there are stages. In flight:
     * n_in_flight of them, from first_in_flight on. */
    struct step_in_flight steps[ENGINE_MAX_STEPS_IN_FLIGHT];
    uint32_t n_steps, first_in_flight, n_in_flight;
    uint64_t finished_ns;   /* when the last step's results were delivered */
    uint64_t delivering_ns; /* while results are delivered: since when of this sequence; else 0 */
    struct pace pace;       /* used when config.prefill_chunk is 0 */
    struct engine_stream *live, *reap; /* in the scheduler; final, with the worker's reference */
    uint64_t next_deadline_ns;         /* not after any live sequence's; 0: none has one */
    struct engine_stats totals;        /* published to stats by stats_publish */
    struct engine_stream **places;     /* (config.max_sequences) admitted ones; NULL: free */
    err failure;                       /* code != 0: the device failed, nothing runs any more */
    uint64_t first_recovery_ns;        /* of the n_recoveries that count */
    uint32_t n_recoveries;

    uint64_t bytes; /* engine_bytes */
    int32_t *eog;   /* (n_eog) tokens that end a generation */
    uint32_t n_eog;
    pthread_mutex_t vocab_lock;
    grammar_vocab *vocab; /* made by the first request with a grammar, under vocab_lock; the inbox
                             makes it visible to the worker */

    struct deferred_masks deferred;
    struct tier tier;
    struct group_messages group;

    pthread_t worker;
    bool worker_started, lock_ready; /* engine_open and engine_close only */

    pthread_mutex_t lock;
    pthread_cond_t wake; /* worker waits: anything below changed */
    pthread_cond_t done; /* callers wait: a check is answered, the worker is joined */
    struct engine_stream *inbox, **inbox_tail;
    struct engine_stream *wake_list; /* cancelled, with room again, or with a mask that is ready */
    atomic_uint max_queue;           /* of those two together */
    uint32_t n_inbox, n_queued;      /* sequences in the inbox; in the scheduler, never admitted */
    bool draining, stopping, joining, joined, device_failed;
    bool resting;      /* the worker sleeps: nothing can run */
    uint64_t n_rounds; /* of the worker, each with at most two steps */

    bool check_busy, check_wanted;
    err check_result;

    pthread_mutex_t stats_lock;
    struct engine_stats stats;
    struct engine_place *published; /* (config.max_sequences) */
    atomic_uint_fast64_t n_rejected;
};

#define ENGINE_OVERDUE "the request's time limit was reached"

static inline struct engine_stream *stream_of(struct sched_seq *seq) {
    return (struct engine_stream *)(void *)seq;
}

/* ---- stream.c ---- */

/* A sequence with everything it will ever need; references: worker and reader. The prompt is
 * copied. ERR_NOMEM; ERR_IO: cannot read a random seed from the system; ERR_INVALID: the grammar
 * does not allow what was generated before. */
int stream_new(engine *en, const struct engine_request *req, uint32_t choice, uint32_t max_tokens,
               struct engine_stream **out, err *e);
void stream_unref(struct engine_stream *st); /* NULL is fine */

/* Prompt tokens found cached at first admission. */
uint32_t stream_n_cached(const struct engine_stream *st);

/* Worker: delivers an event; false: the ring is now full and the sequence must pause. */
bool stream_push(struct engine_stream *st, const struct engine_event *ev);
/* Worker: delivers the final event; called exactly once. */
void stream_push_final(struct engine_stream *st, enum engine_finish finish, const err *error);
/* Worker: has the paused sequence's ring room again? */
bool stream_has_room(struct engine_stream *st);
/* Any thread: the worker checks st (cancelled, room in the ring, mask ready) before its next step.
 */
void stream_wake_worker(struct engine_stream *st);

/* ---- worker.c ---- */
void *worker_main(void *engine_ptr);

/* ---- constraint.c ---- */

/* Any thread: the engine's vocabulary for grammars, made on the first call. */
int constraint_vocab(engine *en, grammar_vocab **out, err *e);
/* For req, which has a grammar. On failure call constraint_fini. */
int constraint_init(struct constraint *c, engine *en, const struct engine_request *req, err *e);
void constraint_fini(struct constraint *c); /* a zeroed one is fine */
/* A token was generated (not an end token); last: max_tokens allows no more. */
void constraint_take(struct constraint *c, int32_t token, bool last);
/* Computes next, with mask or forced, if it is UNKNOWN. It stays UNKNOWN if that takes more than
 * `units`: call again with more. */
void constraint_find_next(struct constraint *c, const engine *en, uint64_t units);
/* Adds ns to the sequence's work. Sets next to COSTLY once its bound is reached. */
void constraint_charge(struct constraint *c, const engine *en, uint64_t ns);

/* ---- deferred_masks.c ---- */
int deferred_masks_start(engine *en, err *e);
/* After the worker has ended. Waits for the slice that is running. */
void deferred_masks_stop(engine *en);
/* Worker: hands the sequence's mask to the thread, which sets st->mask_ready and calls
 * stream_wake_worker when it is computed. */
void deferred_masks_add(struct engine_stream *st);

/* ---- pooling.c ---- */

/* how: of a request; RANK becomes what the model's score is made of. ERR_NOMEM. */
int pooled_init(struct pooled *p, enum engine_pooling how, const engine *en);
void pooled_fini(struct pooled *p); /* a zeroed one is fine */
/* Is the hidden state at pos needed? (Not if it was taken before a preemption.) */
bool pooled_wants(const struct pooled *p, uint32_t pos, uint32_t n_prompt);
/* Takes the row (n_embd) of the next needed position. */
void pooled_take(struct pooled *p, const float *row, uint32_t n_embd);
/* After all rows: makes the result, with the model's layers behind pooling. */
void pooled_finish(struct pooled *p, const engine *en);

/* ---- stats.c ---- */
void stats_init(struct engine_stats *s);
void stats_observe(struct engine_histogram *h, double seconds);
int stats_places_init(engine *en); /* ERR_NOMEM */
/* Worker: gives an admitted sequence a place if one is free; takes it back. */
void stats_place(engine *en, struct engine_stream *st);
void stats_unplace(engine *en, struct engine_stream *st);
/* Worker: makes the totals and places visible to engine_stats_get and engine_places_get: after each
 * step, and before a sequence's last event. */
void stats_publish(engine *en);

/* ---- params.c ---- */
/* Blocks that the holder of a request may have (engine_params.kv_percent); 0: no limit. */
uint32_t engine_most_blocks(const engine *en, const struct engine_params *p);

/* ERR_INVALID with param = the API's name of the field that is out of its range. */
int engine_params_check(const struct engine_params *p, uint32_t n_vocab, err *e);

/* ---- sizing.c ---- */

/* Checks each number of the configuration by itself. ERR_INVALID with param = its key. */
int engine_config_check(const struct engine_config *config, err *e);

struct engine_size {
    struct kv_config kc; /* of each rank; without be */
    uint32_t context_length;
    const char *reason;       /* what decided the cache's size; static */
    const char *state_reason; /* likewise of the state blocks; NULL: there are none */
    /* The K/V of windowed layers are a pool of their own: kc.windowed points here. */
    bool windowed[MODEL_MAX_LAYERS];         /* (n_kv_layers) */
    struct kv_heads heads[MODEL_MAX_LAYERS]; /* (n_kv_layers); kc.heads, if layers differ */
    struct model_memory memory;              /* of each rank, as measured */
};
/* The configured length of the longest sequence in tokens; the cache may hold less. */
uint32_t engine_context_wanted(const struct engine_config *config, const struct model_hparams *hp);
/* Sizes of the cache and of state blocks for a checked configuration and the model on be, before
 * anything is loaded. The caller has set out->memory to what the model will take, or to zeros.
 * ERR_INVALID with param = the configuration key; ERR_NOMEM: weights or cache do not fit. */
int engine_size(const struct engine_config *config, const struct model_hparams *hp, backend *be,
                struct engine_size *out, err *e);
/* The same as if no engine were open, and as if all of the machine's memory were available. */
int engine_size_alone(const struct engine_config *config, const struct model_hparams *hp,
                      backend *be, struct engine_size *out, err *e);
/* Bytes of an engine of that size on n_ranks ranks, with n_blocks blocks in its cache instead. */
uint64_t engine_size_bytes(const struct engine_size *size, uint32_t n_ranks, uint64_t n_blocks);
/* What is left of the limit of a device that has one; UINT64_MAX: it has none. */
uint64_t engine_device_left(backend *be, uint64_t *limit);

/* ---- engine.c ---- */
int engine_err_changed(err *e); /* model_check's error without the path, for clients */

/* ---- warm.c ---- */

/* After everything else is open, before the worker starts. Fails as a step fails. */
int engine_warm(engine *en, err *e);

/* ---- steps.c ---- */
int steps_init(engine *en, const struct model_limits *limits);
void steps_fini(engine *en);
/* Worker: plans a step and has the device begin it. 1: begun; 0: nothing can run; negative: failed.
 */
int step_begin(engine *en, err *e);
/* May the next step begin before the only step in flight is finished? If so, its sequences get
 * placeholders for the tokens that it will find. */
bool steps_prepare_next(engine *en);
/* Waits for the oldest step in flight. *out and *results are valid until the next step begins. */
int step_finish(engine *en, struct step_in_flight **out, struct model_output *results, err *e);
/* Waits for all steps in flight and drops their results: the engine stops, or the device failed. */
void steps_drop(engine *en);

/* ---- batch.c ---- */
int step_batch_init(struct step_batch *b, const struct model_limits *limits);
void step_batch_fini(struct step_batch *b);
/* Placeholders take their tokens from the previous step, which is in flight. */
void step_batch_fill(struct step_batch *b, const struct sched_plan *plan, const kv *cache);

/* ---- engine.c ---- */

void engine_init_locks(engine *en); /* of a zeroed engine */
/* Opens what every rank has: hyperparameters, backend, cache, model. engine_close closes it. */
int engine_open_model(engine *en, const struct engine_config *config, struct engine_size *size,
                      struct model_limits *limits, err *e);

/* ---- group.c, follow.c: an engine over several processes; config.group is not NULL ---- */

/* Rank 0, first of all: has the others open the model, too. */
int group_announce(engine *en, const struct engine_config *config, err *e);
/* A stage that follows: has it the model that the first one opens? */
int group_check_model(const engine *en, const struct engine_config *config, err *e);
/* All ranks: take the least of their sizes. rc, e: what the caller's rank found; any rank's failure
 * is returned on all. */
int group_agree_size(engine *en, const struct engine_config *config, struct engine_size *size,
                     int rc, err *e);
/* All ranks, after opening the model: likewise; then steps can be sent. */
int group_agree_open(engine *en, const struct model_limits *limits, int rc, err *e);
/* Rank 0: notes the cache's pending copies, then sends them with the step that comes after them. */
void group_note_copies(engine *en);
int group_send_step(engine *en, const struct step_batch *b, err *e);
/* Rank 0, before it finishes the only step in flight: the others finish it, too. */
int group_finish_step(engine *en, err *e);
/* Rank 0, whose step failed: the others, which wait for it, fail, too. */
void group_fail_step(engine *en, const err *e);
/* Rank 0: the others close the model. */
void group_close(engine *en);

/* ---- stages.c: config.n_stages > 1 ---- */

/* All stages: en->split and en->own, once en->hp is read. */
int stages_plan(engine *en, const struct engine_config *config, err *e);
/* First stage: computes its layers of a step and sends it on; waits for the oldest step's results.
 */
int stages_begin(engine *en, struct step_batch *b, err *e);
int stages_finish(engine *en, const struct step_batch *b, struct model_output *out, err *e);
/* First stage: it has been busy since then. */
void stages_note_busy(engine *en, uint64_t since_ns);

#endif
