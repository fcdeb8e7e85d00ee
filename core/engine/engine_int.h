/* engine_int.h - what the files of core/engine share. Private to
 * core/engine.
 *
 * Threads: the worker owns everything marked "worker"; callers of engine_* reach the worker only
 * through the inbox (en->lock) and a stream's ring (ring_lock). A second thread (looks.c) has a
 * sequence's constraint while the worker waits for its look.
 *
 * Locks: en->lock, stream ring_lock, stream notify_lock, en->stats_lock and looks.lock are never
 * held together, and none of them during a forward pass. notify_lock is held around the client's
 * notify: that is how engine_stream_free can promise that no call is under way when it returns. */
#ifndef INFERD_ENGINE_INT_H
#define INFERD_ENGINE_INT_H

#include "core/backend/ops.h"
#include "core/engine/engine.h"
#include "core/engine/pace.h"
#include "core/engine/sampler.h"
#include "core/engine/sched.h"
#include "core/kv/kv.h"
#include "core/model/model.h"

#include <pthread.h>
#include <stdatomic.h>

/* Rows a step that sequences which want every row's logits (prompt_logprobs) get together: bounds
 * the logits buffer, (max_sequences + this, n_vocab) f32. */
enum { ENGINE_PROMPT_LOGPROB_ROWS = 128 };

/* Seen tokens, for penalties, that a step brings to a device that draws: so many for each sequence
 * that may run, within bounds; they share them. Who finds no room is drawn for on the host. */
enum { ENGINE_HISTORY_TOKENS = 512, ENGINE_MAX_HISTORY = 131072 };

/* An event in the ring, without its top tokens: those lie in arrays as wide as the request asked.
 */
struct ring_slot {
    enum engine_event_kind kind;
    int32_t token;
    float logprob;
    int32_t n_top;
};

/* What pools the rows of a prompt. */
struct pooled {
    enum engine_pooling how; /* fixed */
    double *sum;            /* (n_embd) MEAN: of n rows */
    float *result;          /* (n_embd) */
    uint32_t n;             /* rows taken so far, in order of position */
};

/* What a grammar says of the next token. */
enum constraint_next {
    CONSTRAINT_UNKNOWN, /* not looked at yet */
    CONSTRAINT_MASK,    /* one of the mask's */
    CONSTRAINT_FORCED,  /* this one */
    CONSTRAINT_LAST,    /* none: it was the last token, and the text might go on */
    CONSTRAINT_END,     /* none: the text is complete */
    CONSTRAINT_FAILED,  /* none: the matcher gave up, maybe at a token that its mask let through */
    CONSTRAINT_COSTLY   /* none: it takes more work than is allowed */
};
/* Whoever makes the look owns it: the worker, or while the stream is `looking` looks.c's thread. */
struct constraint {
    grammar *g;
    grammar_matcher *matcher; /* NULL: the sequence has no grammar */
    bool ignore_eos;
    enum constraint_next next;
    uint32_t *mask; /* ((n_vocab + 31) / 32) as in sampler_request */
    int32_t forced;
    int32_t taken;    /* token that came and that the matcher does not know yet; -1: none */
    bool begun, last; /* a token came; none comes behind it */
    uint64_t work_ns; /* of all looks so far */
    uint64_t slice;   /* units that the next look on the thread gets */
};

/* One sequence and its stream. Shared by the worker (until it is final), the inbox (while queued
 * there) and the reader (until engine_stream_free): the last one of them frees it. */
struct engine_stream {
    struct sched_seq seq; /* worker; first member: the scheduler's items point here */

    /* Fixed at submission. */
    engine *en;
    struct engine_params params; /* params.bias == bias */
    struct engine_logit_bias *bias;
    uint64_t seed;
    uint64_t submit_ns, deadline_ns;
    bool on_device;      /* its tokens are drawn there (backend_sample) */
    uint32_t n_row_top;  /* first tokens that are wanted of a row: on_device those whose
                         log-probabilities are, else as many as a draw looks at; 0: the row
                         (sampler_n_top) */
    uint32_t max_tokens; /* at least 1; prompt + max_tokens fit the context; 0: pooled */

    /* Worker. */
    struct penalty_history history;
    uint32_t n_generated; /* those of the request that this one continues included */
    struct constraint constraint;
    struct pooled pooled;   /* result: the reader's once the final event is out */
    uint32_t n_prompt_sent; /* prompt positions whose event was delivered */
    uint64_t last_token_ns; /* 0: none yet */
    bool admitted, finished;
    bool full, mask_deferred; /* why it is paused: its ring; a look that the thread makes */
    uint32_t n_in_flight;     /* steps under way that have it: it is not freed before they end */
    uint32_t logits_row;      /* of the last step that finds its next token */
    struct engine_stream *live_prev, *live_next, *reap_next;

    /* Guarded by en->lock. */
    struct engine_stream *inbox_next, *wake_next;
    bool in_wake_list;

    /* Guarded by looks.lock. */
    struct engine_stream *deferred_next;
    uint64_t deferred_ns; /* ns, see looks.c */

    atomic_bool cancelled;
    atomic_bool ended;      /* the worker's word: no look is wanted any more */
    atomic_bool mask_ready; /* the thread's: the look is made */
    atomic_uint refs;

    pthread_mutex_t ring_lock;
    struct ring_slot *ring;  /* (ring_capacity) */
    int32_t *ring_top_token; /* (ring_capacity, n_top) */
    float *ring_top_logprob; /* (ring_capacity, n_top) */
    uint32_t ring_limit; /* events at which the sequence pauses; the rest is for its last step */
    uint32_t ring_capacity, ring_head, ring_count, n_top;
    bool waits_for_room;        /* the worker paused the sequence */
    bool has_final, final_read; /* the final event has its own place: always deliverable */
    enum engine_finish finish;
    uint32_t final_generated, final_cached;
    err final_error;

    pthread_mutex_t notify_lock;
    void (*notify)(void *arg); /* NULL once the reader is gone */
    void *notify_arg;
};

/* Host arrays of one step, allocated at start (batch.c lists them). */
struct step_batch {
    int32_t *token_ids, *positions, *slots; /* (max_rows) */
    int32_t *row_start;                     /* (max_seqs + 1) */
    int32_t *tables;      /* (max_seqs, limits.table_stride); a step uses (n_seqs, stride) */
    int32_t *out_rows;    /* (max_rows) */
    bool *need_logits;    /* (max_logit_rows) */
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

/* A step from its plan until its results are delivered. */
struct step_in_flight {
    struct sched_plan plan; /* items: (max_seqs) its own */
    struct step_batch batch;
    /* The next step may begin before this one has ended: the device finds all its tokens, and the
     * host needs none of them first. */
    bool next_may_begin;
    uint64_t start_ns;
};
enum { ENGINE_MAX_STEPS_IN_FLIGHT = 2 };

/* Units of work (grammar_matcher_budget: 10 to 50 ns) of looks at grammars on the worker: for one,
 * and for each of a step once all of it together have spent ENGINE_STEP_MASK_UNITS. */
enum { ENGINE_MASK_UNITS = 40000, ENGINE_STEP_MASK_UNITS = 80000, ENGINE_MIN_MASK_UNITS = 4000 };

/* Looks that the worker does not wait for, see looks.c. */
struct deferred_masks {
    uint64_t units;                /* ENGINE_MASK_UNITS; fixed before the first request */
    uint64_t left;                 /* worker: of ENGINE_STEP_MASK_UNITS */
    atomic_uint_fast64_t spent_ns; /* on the thread */
    pthread_t thread;
    bool started; /* engine_open and engine_stop only */

    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct engine_stream *first; /* that wait; guarded by lock, as all below */
    uint64_t least_ns;
    bool stopping;
};

struct engine {
    /* Fixed after engine_open. */
    struct engine_config config; /* strings are not kept */
    struct model_hparams hp;
    uint32_t context_length;
    backend *be;
    kv *cache;
    model *mdl;
    tokenizer *tok;

    /* Worker. */
    sched *sch;
    sampler *smp;
    /* By turns; where steps do not overlap, the first alone. Those under way: n_in_flight from
     * first_in_flight on. */
    struct step_in_flight steps[ENGINE_MAX_STEPS_IN_FLIGHT];
    uint32_t first_in_flight, n_in_flight;
    uint64_t finished_ns;              /* when a step's results were delivered last */
    struct pace pace;                  /* used when config.prefill_chunk is 0 */
    struct engine_stream *live, *reap; /* in the scheduler; final, worker's reference to drop */
    uint64_t next_deadline_ns;         /* no live sequence's is earlier; 0: none has one */
    struct engine_stats totals;        /* published to stats after each step */
    err failure;                       /* code != 0: the device failed, nothing runs any more */

    int32_t *eog; /* (n_eog) tokens that end a generation */
    uint32_t n_eog;
    pthread_mutex_t vocab_lock;
    grammar_vocab *vocab; /* made by the first request with a grammar, under vocab_lock; that
                             request's way to the worker makes it visible there */

    struct deferred_masks deferred;

    pthread_t worker;
    bool worker_started, lock_ready; /* engine_open and engine_close only */

    pthread_mutex_t lock;
    pthread_cond_t wake; /* worker waits: anything below changed */
    pthread_cond_t done; /* callers wait: a check is answered, the worker is joined */
    struct engine_stream *inbox, **inbox_tail;
    struct engine_stream *wake_list; /* cancelled or with room again */
    uint32_t n_inbox, n_queued;      /* sequences in the inbox; in the scheduler, never admitted */
    bool draining, stopping, joining, joined, device_failed;
    bool check_busy, check_wanted;
    err check_result;

    pthread_mutex_t stats_lock;
    struct engine_stats stats;
    atomic_uint_fast64_t n_rejected;
};

#define ENGINE_OVERDUE "the time that the request may take is over"

static inline struct engine_stream *stream_of(struct sched_seq *seq) {
    return (struct engine_stream *)(void *)seq;
}

/* ---- stream.c ---- */

/* A sequence with everything it will ever need; references: worker and reader. The prompt is
 * copied. ERR_NOMEM; ERR_IO: no random seed from the system; ERR_INVALID: the grammar does not
 * allow what was generated before. */
int stream_new(engine *en, const struct engine_request *req, uint32_t choice, uint32_t max_tokens,
               struct engine_stream **out, err *e);
void stream_unref(struct engine_stream *st); /* NULL is fine */

/* Of the prompt's tokens, at first admission. */
uint32_t stream_n_cached(const struct engine_stream *st);

/* Worker: delivers an event; returns false when the ring is full now (the sequence must pause). */
bool stream_push(struct engine_stream *st, const struct engine_event *ev);
/* Worker: the final event, exactly once. */
void stream_push_final(struct engine_stream *st, enum engine_finish finish, const err *error);
/* Worker: has the paused sequence's ring room again? */
bool stream_has_room(struct engine_stream *st);

/* ---- worker.c ---- */
void *worker_main(void *engine_ptr);

/* Any thread: the worker looks at st (cancelled, room in the ring) before its next step. */
void worker_notify(struct engine_stream *st);

/* ---- engine.c ---- */
int engine_err_changed(err *e); /* model_check's, in words for a client: without the path */

/* ---- flight.c ---- */
int steps_init(engine *en, const struct model_limits *limits);
void steps_fini(engine *en);
/* Worker: plans a step and has the device begin it. 1; 0: nothing can run; negative: it failed. */
int step_begin(engine *en, err *e);
/* May the next step begin before the only one under way is finished? Then what it finds is
 * expected.
 */
bool steps_prepare_next(engine *en);
/* Waits for the step that began first. *out and *results are valid until the next one begins. */
int step_finish(engine *en, struct step_in_flight **out, struct model_output *results, err *e);
/* What is under way is waited for and forgotten: the engine stops, or the device failed. */
void steps_drop(engine *en);

/* ---- batch.c ---- */
int step_batch_init(struct step_batch *b, const struct model_limits *limits);
void step_batch_fini(struct step_batch *b);
/* Tokens that sequences await are taken from the step in front, which is under way. */
void step_batch_fill(struct step_batch *b, const struct sched_plan *plan, const kv *cache);

/* ---- constraint.c ---- */

/* Any thread: the engine's vocabulary, made if need be. */
int constraint_vocab(engine *en, grammar_vocab **out, err *e);
/* For req, which has a grammar. On failure constraint_fini releases what is there. */
int constraint_init(struct constraint *c, engine *en, const struct engine_request *req, err *e);
void constraint_fini(struct constraint *c); /* a zeroed one is fine */
/* The token came (no end); last: and is the last that may. */
void constraint_take(struct constraint *c, int32_t token, bool last);
/* Sets next, with mask or forced, if it is UNKNOWN: it stays so where that takes more than so many
 * units, and the look is to be made again with more. */
void constraint_find_next(struct constraint *c, const engine *en, uint64_t units);
/* A look took so long. Makes next COSTLY once the request's bound is reached. */
void constraint_charge(struct constraint *c, const engine *en, uint64_t ns);

/* ---- looks.c ---- */
int deferred_masks_start(engine *en, err *e);
/* The worker is gone. Waits for the look that is being made. */
void deferred_masks_stop(engine *en);
/* Worker: the thread finishes the sequence's look; then st->looked is set, and worker_notify
 * called.
 */
void deferred_masks_add(struct engine_stream *st);

/* ---- pooling.c ---- */

/* ERR_NOMEM. */
int pooled_init(struct pooled *p, enum engine_pooling how, uint32_t n_embd);
void pooled_fini(struct pooled *p); /* a zeroed one is fine */
/* Is the hidden state at pos wanted? (It was not taken already, before a preemption.) */
bool pooled_wants(const struct pooled *p, uint32_t pos, uint32_t n_prompt);
/* Takes the row (n_embd) of the next position that is wanted. */
void pooled_take(struct pooled *p, const float *row, uint32_t n_embd);
/* All rows are there: makes the result. */
void pooled_finish(struct pooled *p, uint32_t n_embd);

/* ---- stats.c ---- */
void stats_init(struct engine_stats *s);
void stats_observe(struct engine_histogram *h, double seconds);
/* Worker: makes the totals visible to engine_stats_get. */
void stats_publish(engine *en);

/* ---- params.c ---- */

/* ERR_INVALID with param = the API's name of the field that is out of its range. */
int engine_params_check(const struct engine_params *p, uint32_t n_vocab, err *e);

/* ---- sizing.c ---- */

/* The numbers of the configuration, each by itself. ERR_INVALID with param = its key. */
int engine_config_check(const struct engine_config *config, err *e);

struct engine_size {
    struct kv_config kc; /* but be; of each rank */
    uint32_t context_length;
    const char *reason;         /* what decided the cache's size; static */
    struct model_memory memory; /* of a GPU that has its own; else zeros */
};
/* Tokens of the longest sequence that the configuration asks for; the cache may hold less. */
uint32_t engine_context_wanted(const struct engine_config *config, const struct model_hparams *hp);
/* Sizes of a checked configuration for the model on be, before anything of either is loaded.
 * out->memory is set: what the model will take, or zeros. ERR_INVALID with param = the
 * configuration key; ERR_NOMEM: weights or cache do not fit. */
int engine_size(const struct engine_config *config, const struct model_hparams *hp, backend *be,
                struct engine_size *out, err *e);

#endif
