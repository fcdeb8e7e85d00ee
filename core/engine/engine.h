/* engine.h - requests in, token events out: one worker thread, one model, one paged KV cache,
 * continuous batching.
 *
 * engine_submit puts 1..n sequences into a bounded queue; the worker schedules all sequences into
 * steps of at most max_batch_tokens tokens; each sequence's tokens come out of its engine_stream, a
 * bounded ring. When a ring is full its sequence pauses and the others continue; when KV blocks run
 * out the newest sequence of the lowest priority is preempted and recomputed later. Each stream
 * ends in exactly one final event, also on error, cancel and shutdown.
 *
 * A sequence's tokens depend only on its prompt, parameters and seed: not on load, chunking,
 * threads, preemption or prefix hits. (Model, instruction set, activation_bits, kv_type,
 * block_tokens and n_ranks round differently.)
 *
 * THREAD SAFETY: engine_* from any thread; one reader at a time per engine_stream. */
#ifndef INFERD_ENGINE_H
#define INFERD_ENGINE_H

#include "core/backend/report.h"
#include "core/base/err.h"
#include "core/base/kv_event.h"
#include "core/base/sampling.h"
#include "core/base/siphash.h"
#include "core/engine/group.h"
#include "core/grammar/grammar.h"
#include "core/kvstore/kvstore.h"
#include "core/tokenizer/tokenizer.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct engine engine;
typedef struct engine_stream engine_stream;

enum { ENGINE_MAX_TOP_LOGPROBS = 20, ENGINE_MAX_CHOICES = 128, ENGINE_MAX_LOGIT_BIAS = 1024 };

enum { ENGINE_MAX_STAGES = 16 };

struct engine_step;

struct engine_config {
    const char *model_path;
    const char *backend; /* "cpu", "metal", "cuda", "auto": backend.h */
    const char *isa;     /* "" = best */
    int n_threads;       /* <= 0: one per physical core; shared by the ranks */
    uint32_t n_ranks;    /* devices over which the model, or each stage, is split; 0 is 1 */
    engine_group *group; /* n_ranks processes that have a rank each, or n_stages that have a stage
                            each (group.h), or NULL. On rank 0; one engine at a time, without a
                            store */
    uint32_t n_stages;   /* processes over which the layers are split; 0 is 1 */
    /* (n_stages) layers of each; zeros: evenly by bytes */
    uint32_t stage_layers[ENGINE_MAX_STAGES];
    int activation_bits; /* 8 (0 is 8) or 16: backend.h */
    uint32_t device;     /* number of the GPU: backend.h */
    /* Fraction of a GPU's own memory that all engines of the process may hold, 0.1 to 1; 0: the
     * backend's default. A backend without memory of its own refuses anything but 0. */
    double memory_fraction;
    uint32_t resident_s, command_buffer_ms; /* metal: backend.h */
    uint32_t n_later;          /* engines that will be opened later on the same GPU: see sizing.c */
    uint64_t memory_bytes;     /* bound of engine_bytes; 0: none. An automatically sized cache takes
                                  a quarter of what it leaves beside the model, or one full context
                                  if that is more */
    uint64_t kv_cache_tokens;  /* 0: sized automatically (size and reason are logged) */
    int kv_type;               /* QTYPE_F32, F16, BF16 or Q8_0 */
    uint32_t block_tokens;     /* 16 or 32 */
    uint32_t context_length;   /* 0: the model's */
    uint32_t max_batch_tokens; /* token budget of a step */
    uint32_t prefill_chunk;    /* chunked prefill: prompt tokens of a step while other sequences
                                  decode, which bounds their inter-token gap; capped at
                                  max_batch_tokens; 0: as many as keep a step's time within about
                                  2x of a step without them */
    uint32_t max_sequences;    /* running at once */
    uint32_t max_queue;        /* sequences waiting for their first admission */
    uint32_t stream_events;    /* events that wait for a reader; shared by a request's choices, at
                                  least 16 each */
    bool prefix_cache;
    /* For models with recurrent layers: blocks of their state (at least 2; 0: sized automatically),
     * and after how many tokens of a long prompt another one is kept for later prompts (a multiple
     * of block_tokens; 0: only at the places that sched.h names). */
    uint64_t state_blocks;
    uint32_t state_checkpoint_tokens;
    uint64_t window_blocks; /* of windowed layers; 0: sized automatically */
    /* Where the KV cache's blocks outlive the engine (tier.h); NULL: nowhere. Open until after
     * engine_close. model_sha256: the hash of the model's files, without which the store is not
     * used; model_label: its name, for people. store_all: also what is computed as fast as it is
     * read. store_idle_s: after so long without a step everything is stored. */
    kvstore *store;
    const char *model_sha256, *model_label;
    struct kv_listener listener; /* kv_config.listener; on_block NULL: none */
    bool store_all;
    uint32_t store_idle_s;
    bool ignore_sampling; /* the model's recommended sampling is not used: engine_sampling */
    uint64_t grammar_cache_bytes; /* of cached grammar masks */
    uint64_t grammar_work_s;      /* time that all masks of one sequence may take; 0: no bound */
    /* Called on the thread of engine_open while weights are loaded, with their bytes; nonzero ends
     * it with ERR_CANCELLED. Or NULL. */
    int (*on_load)(void *arg, uint64_t done, uint64_t total);
    void *on_load_arg;
    /* Called on the worker thread after each step, with no lock held; or NULL. The next step waits
     * for its return; engine_submit does not. */
    void (*on_step)(void *arg, const struct engine_step *step);
    void *on_step_arg;
    struct imatrix *importance; /* filled by steps, read after engine_stop: model.h; or NULL */
    bool time_kernels;          /* measure each kernel by itself (BACKEND_TIMES): slow */
};

/* What one step did. */
struct engine_step {
    uint32_t n_prefill_rows, n_decode_rows, n_sequences;
    /* Schedule, forward and sample; of a pipeline's steps, from the end of the last one. */
    uint64_t ns;
    /* Of a pipeline: how long each stage has been computing or sending since the model was opened,
     * as far as is known now; borrowed for the call. n_stages 0: there is none. */
    uint32_t n_stages;
    const uint64_t *stage_busy_ns; /* (n_stages) */
};

/* Loads the model and starts the worker. Takes seconds for a big model. On failure everything is
 * released. */
int engine_open(const struct engine_config *config, engine **out, err *e);

/* What an engine would need, before it is opened. */
struct engine_need {
    uint64_t weights, steps; /* bytes on all devices; steps: the buffers of a step */
    uint64_t least;          /* of engine_bytes: with a cache for one context of context_length */
    /* What it could have of config.memory_bytes if no other engine were open. */
    uint32_t context_length;
    uint64_t state_blocks; /* 0: it has no recurrent layers */
    /* Of devices with a limit of their own, all together: that, and what is left of it now.
     * UINT64_MAX: none. */
    uint64_t device_limit, device_left;
};
/* Reads the file's head and opens the backend, but loads nothing. ERR_NOMEM: config.memory_bytes,
 * or the device's limit, does not hold it. An engine that is opened with context_length and
 * state_blocks of the need, and least or more as memory_bytes, has that context. */
int engine_need_find(const struct engine_config *config, struct engine_need *out, err *e);
/* Memory of its weights, step buffers, KV cache and states, on all devices, by its own account. */
uint64_t engine_bytes(const engine *en);

/* Refuses new requests from now on (ERR_STOPPING); running ones continue. */
void engine_drain(engine *en);
/* Stores what is cached in config.store and waits until it is written, at most until deadline_ns of
 * clock_now_ns(). true: all of it is, or there is no store; false: it may be called again. Not
 * after engine_stop. */
bool engine_save(engine *en, uint64_t deadline_ns);
/* Another max_queue, at least 1. What waits stays, also if it is more. Any thread, before
 * engine_close. */
void engine_set_max_queue(engine *en, uint32_t max_queue);
/* Other values of store_idle_s and store_all. Any thread, before engine_close. */
void engine_set_store(engine *en, uint32_t idle_s, bool all);
/* Ends all running sequences (final events with ENGINE_FINISH_ERROR, ERR_STOPPING) and joins the
 * worker. Streams stay readable and must be freed before engine_close. */
void engine_stop(engine *en);
void engine_close(engine *en); /* stops first if necessary. NULL is fine */

/* How the hidden states of a prompt's tokens become one vector. The values are enum model_pooling's
 * (core/model/model.h). */
enum engine_pooling {
    ENGINE_POOLING_NONE, /* of a model: its file does not say; of a request: generate */
    ENGINE_POOLING_MEAN, /* of all tokens */
    ENGINE_POOLING_CLS,  /* the first token's */
    ENGINE_POOLING_LAST, /* the last token's */
    /* One value instead of a vector: the logit of the score that the last token's state gets
     * (engine_model.scores). As the pooling of a model: that it was trained for this. */
    ENGINE_POOLING_RANK
};

/* What clients are told about the served model. Strings live as long as the engine. */
struct engine_model {
    const char *arch;  /* "llama" */
    const char *quant; /* most common type of the linear weights, "Q8_0" */
    uint64_t n_params, weight_bytes;
    uint32_t n_vocab, n_layers, n_embd;
    enum engine_pooling pooling; /* what the model was trained for */
    bool scores;                 /* ENGINE_POOLING_RANK is possible; */
    const char *scores_lack;     /* else what the model lacks for it, for messages */
    bool only_embeds;            /* attention in both directions: nothing is generated */
    bool recurrent;              /* some layers keep a state (engine_request.system_tokens) */
};
struct engine_model engine_model(const engine *en);

const tokenizer *engine_tokenizer(const engine *en);
struct model_hparams; /* core/model/model.h, for rooms that may include it */
const struct model_hparams *engine_hparams(const engine *en);
/* What the model's files recommend; nothing with ignore_sampling. Lives as long as the engine. */
const struct sampling_recommended *engine_sampling(const engine *en);
/* Longest prompt + answer in tokens: the configured context, bounded by the KV cache. */
uint32_t engine_context_length(const engine *en);

/* Computed only in steps that compute nothing of any other priority. */
enum { ENGINE_PRIORITY_BACKGROUND = INT_MIN };

struct engine_logit_bias {
    int32_t token;
    float bias;
};

/* How to generate. engine_params_default sets OpenAI's defaults; engine_submit checks the bounds
 * (ERR_INVALID, param named as in the API). */
struct engine_params {
    uint32_t max_tokens; /* 0: up to the context's end */
    struct sampling sampling;
    int64_t seed;         /* any; used when has_seed, otherwise each sequence gets a random one */
    bool has_seed;        /* choice i samples with seed + first_choice + i */
    int n_logprobs;       /* -1 none; 0 the chosen token's; 1..20 also those of the n best */
    bool prompt_logprobs; /* events for prompt tokens 1..n-1 come first */
    bool ignore_eos;
    int priority; /* higher is more important; ENGINE_PRIORITY_BACKGROUND */
    /* Clients share the engine by their weights (fair shares of the scheduler); any number names
     * one. weight 0: 100. */
    uint64_t client;
    uint32_t client_weight;
    /* The running sequences of one holder, an API key, hold at most kv_percent of the KV cache's
     * blocks, each those of its whole text; others wait. Prompt and answer fit into them:
     * max_tokens is at most what they leave, as what the context leaves. 0: no limit. Not for
     * ENGINE_PRIORITY_BACKGROUND. */
    uint64_t holder;
    uint32_t kv_percent;
    /* Cached prefixes are shared only among requests of the same salt; zeros are a salt, too. */
    struct hash128 prefix_salt;
    const struct engine_logit_bias *bias; /* copied */
    uint32_t n_bias;
    /* NULL: any text. Otherwise the answer is a text of this grammar, which the request retains.
     * A token that the grammar does not allow never comes, whatever its bias. Where the text can
     * only end, it ends (ENGINE_FINISH_STOP), also with ignore_eos. Bytes that the grammar forces
     * come without sampling, several tokens per step. Each choice has a matcher of a few 100 KiB.
     * Expensive masks do not delay a step: they are computed beside the steps, and a sequence whose
     * masks take longer than grammar_work_s in all ends with ERR_WORK. */
    const grammar *grammar;
};
void engine_params_default(struct engine_params *p);

struct engine_request {
    const int32_t *prompt; /* (n_prompt) ids, copied; n_prompt > n_generated */
    uint32_t n_prompt;
    uint32_t n_choices; /* streams; they share the prompt's KV blocks */
    struct engine_params params;
    /* A continuation: the last n_generated tokens of prompt were generated by an earlier request
     * like this one, which now resumes as if it had never stopped: they count for max_tokens,
     * penalties, random numbers and the final event, and yield no events again (nor does the
     * prompt). n_choices is 1; first_choice is the number of the choice that resumes, and seed the
     * request's (engine_stream_seed with first_choice 0 works as well). */
    uint32_t n_generated, first_choice;
    /* Hints for models with recurrent layers: later requests will probably begin with as many of
     * the prompt's tokens, so the state there is kept. system_tokens: the system messages and the
     * tools, which other conversations have, too; stable_tokens: all messages but the last. 0:
     * unknown. */
    uint32_t system_tokens, stable_tokens;
    /* Not NONE: nothing is generated; the prompt's hidden states become one vector
     * (engine_stream_embedding). Of params only priority, client, holder and prefix_salt count;
     * n_choices is 1. */
    enum engine_pooling pooling;
    /* A pooled prompt of two texts: the position of the second one's first token, for encoders with
     * token types. 0: it is one text. */
    uint32_t second_from;
    /* Of clock_now_ns(): a sequence that has not ended by then ends between two steps, with
     * ENGINE_FINISH_ERROR, ERR_DEADLINE, in any state (queued, prefill, decode, preempted, paused).
     * 0: never. */
    uint64_t deadline_ns;
    /* Called on the worker thread when an empty stream got an event. Must only hand over (no I/O,
     * no locks that are held long). May be called when nothing is new, and before engine_submit has
     * returned. */
    void (*notify)(void *arg);
    void *notify_arg;
};

/* Creates all n_choices streams or none. Errors: ERR_FULL (queue), ERR_STOPPING, ERR_DEADLINE,
 * ERR_TOO_LONG (also for kv_percent; the caller sets param "messages" or "prompt"), ERR_INVALID,
 * ERR_NOMEM. */
int engine_submit(engine *en, const struct engine_request *req, engine_stream **streams, err *e);

enum engine_event_kind {
    ENGINE_EVENT_PROMPT, /* log-probability of a prompt token, in order */
    ENGINE_EVENT_TOKEN,
    ENGINE_EVENT_FINAL
};

enum engine_finish {
    ENGINE_FINISH_STOP, /* an end-of-generation token (which is not an event of its own), the end of
                           the grammar's text, or a pooled request's end */
    ENGINE_FINISH_LENGTH, /* max_tokens or the context's end */
    ENGINE_FINISH_CANCEL,
    ENGINE_FINISH_ERROR /* code and message in the event */
};

/* Why no more of a prompt was found cached; a guess where hashes collide. */
enum engine_miss {
    ENGINE_MISS_NONE,    /* all that can be was */
    ENGINE_MISS_NEW,     /* what was cached ended: the rest is new */
    ENGINE_MISS_EMPTY,   /* nothing was cached */
    ENGINE_MISS_EVICTED, /* more was, but the cache needed its blocks */
    ENGINE_MISS_TENANT,  /* the same text was, of another prefix_salt */
    ENGINE_MISS_STATE,   /* K/V of more was, but not the state or window that it needs */
    ENGINE_MISS_DIFFERS, /* other tokens follow in the cache */
    ENGINE_N_MISSES
};

struct engine_event {
    enum engine_event_kind kind;
    int32_t token;
    float logprob; /* of the token under the model (before temperature, penalties and bias); finite:
                      -9999 stands for an impossible token. 0 unless requested */
    int n_top;     /* best first */
    int32_t top_token[ENGINE_MAX_TOP_LOGPROBS];
    float top_logprob[ENGINE_MAX_TOP_LOGPROBS];
    /* ENGINE_EVENT_FINAL: */
    enum engine_finish finish;
    uint32_t n_prompt, n_generated, n_cached; /* tokens; an end token counts as generated */
    enum engine_miss miss;
    err error;
};

/* 1: *ev is the next event. 0: there is none yet (notify will be called), or the final one was
 * read. */
int engine_stream_next(engine_stream *s, struct engine_event *ev);
/* The seed that the sequence samples with; random if the request had none. */
uint64_t engine_stream_seed(const engine_stream *s);
/* When what happened to a sequence, of clock_now_ns(); 0: it has not happened. Any thread, at any
 * time before engine_stream_free. */
struct engine_times {
    uint64_t submitted_ns, admitted_ns; /* admitted: its first step began */
    uint64_t first_token_ns, last_token_ns;
    uint64_t ended_ns;
    /* Sum over its steps: the worker's time for choosing its tokens (penalties, filters, grammar
     * masks) and handing them over. What a device that samples does in its step is not in it. */
    uint64_t sampling_ns;
};
void engine_stream_times(const engine_stream *s, struct engine_times *out);
/* (*n = n_embd; 1 with ENGINE_POOLING_RANK) f32, borrowed from the stream, once the final event of
 * a pooled request was read with ENGINE_FINISH_STOP; NULL otherwise. Not normalized. The mean is
 * summed in float64 in the order of the tokens. */
const float *engine_stream_embedding(const engine_stream *s, uint32_t *n);
/* The worker ends the sequence at its next step (ENGINE_FINISH_CANCEL, unless it is final). */
void engine_stream_cancel(engine_stream *s);
/* Cancels a running sequence. After the return notify is not called again: do not call this with a
 * lock held that notify takes. NULL is fine. */
void engine_stream_free(engine_stream *s);

/* Incremental text of one choice: token bytes -> whole UTF-8 characters, stop strings held back
 * until they cannot match any more. Not thread safe; no engine lock. */
typedef struct engine_text engine_text;
struct engine_text_config {
    const tokenizer *tok;
    const char *const *stop;  /* (n_stop) non-empty NUL-terminated strings, copied */
    uint32_t n_stop;          /* at most 16 */
    bool include_stop;        /* the matched stop string stays in the text */
    bool strip_leading_space; /* text starts where add_space_prefix put a space */
    bool with_control;        /* show control tokens' text */
};
engine_text *engine_text_new(const struct engine_text_config *config); /* NULL: no memory */
void engine_text_free(engine_text *t);
/* Feeds one token. *out (borrowed until the next call): the *n bytes of text that are now final,
 * possibly 0. Returns true when a stop string was completed: feed nothing more. */
bool engine_text_push(engine_text *t, int32_t token, const char **out, size_t *n);
/* As engine_text_push, for text (whole characters) instead of a token. */
bool engine_text_push_text(engine_text *t, const char *text, size_t n, const char **out,
                           size_t *n_out);
/* Returns the text held back; no stop string can begin in it any more. */
void engine_text_flush(engine_text *t, const char **out, size_t *n);
/* Returns the rest at the end of the stream (an incomplete UTF-8 sequence becomes U+FFFD). */
void engine_text_finish(engine_text *t, const char **out, size_t *n);
/* The stop string that was completed, borrowed from t; NULL: none was. */
const char *engine_text_stop(const engine_text *t);

/* Histogram with fixed bounds; counts[i] counts values <= bounds[i], the last one is +Inf. */
enum { ENGINE_HIST_BUCKETS = 16 };
struct engine_histogram {
    double bounds[ENGINE_HIST_BUCKETS];   /* seconds, ascending; the last bucket is +Inf */
    uint64_t counts[ENGINE_HIST_BUCKETS]; /* not cumulative */
    uint64_t count;
    double sum;
};

struct engine_stats {
    uint64_t requests_total[4]; /* sequences finished, by enum engine_finish */
    uint64_t prompt_tokens_total, generated_tokens_total, cached_tokens_total;
    uint64_t forced_tokens_total; /* of the generated tokens: forced by a grammar */
    uint64_t preemptions_total, steps_total, rejected_total;
    /* Grammar masks: time on the worker; masks that cost more than a step may wait for and were
     * computed beside the steps, and the time of that; sequences that exceeded grammar_work_s. */
    uint64_t mask_ns_total, masks_deferred_total, deferred_mask_ns_total, masks_given_up_total;
    uint64_t overdue_total; /* sequences ended by their deadline */
    /* Steps that ran from an earlier encoding; encodings that were dropped unused. */
    uint64_t steps_ahead_total, steps_ahead_dropped_total;
    uint64_t device_recoveries_total; /* device failures after which sequences were recomputed */
    uint64_t steps_overlapped_total;  /* begun before the previous step was finished */
    uint64_t n_ranks;                 /* devices over which the model, or each stage, is split */
    /* Processes over which its layers are, 0: one; time that each computed or sent */
    uint32_t n_stages;
    uint64_t stage_busy_ns[ENGINE_MAX_STAGES];
    uint64_t device_bytes; /* held by the device for this process, all engines; 0: unknown */
    uint64_t kv_blocks, kv_blocks_free, kv_blocks_cached, kv_evictions_total, kv_copies_total;
    /* State blocks of recurrent layers, as those of the KV cache; 0 without such layers. Tokens
     * that were cached as K/V but computed for want of a state. */
    uint64_t state_blocks, state_blocks_free, state_blocks_cached, state_evictions_total;
    uint64_t stateless_tokens_total;
    /* Window blocks likewise, of models with windowed layers. */
    uint64_t window_blocks, window_blocks_free, window_blocks_cached, window_evictions_total;
    uint64_t windowless_tokens_total;
    uint64_t misses_total[ENGINE_N_MISSES];        /* sequences, by why no more was cached */
    uint64_t missed_tokens_total[ENGINE_N_MISSES]; /* of their prompts, not cached */
    uint64_t recomputed_tokens_total;              /* after preemptions */
    /* The KV store: chains that were read from it, those cut short because a segment was gone or
     * damaged, or by their deadline; their tokens; blocks evicted before they were stored. */
    uint64_t restores_total, restores_cut_total, restores_late_total, restored_tokens_total;
    uint64_t unstored_evictions_total;
    uint32_t block_tokens;     /* of a KV block */
    uint32_t running, waiting; /* sequences now */
    struct engine_histogram ttft, inter_token, queue_time, step_time;
    struct engine_histogram answer_time; /* of sequences that ended by themselves */
    bool healthy;                        /* false: the backend failed; readiness goes red */
};
/* As of the last step; a sequence that ended is counted from before its last event. */
void engine_stats_get(engine *en, struct engine_stats *out);
/* A place for a running sequence, as of the last step. A sequence keeps its place from its first
 * admission to its end, also while it is preempted. */
struct engine_place {
    uint64_t number; /* of its sequence, in the order of submission, from 1; 0: the place is free */
    uint32_t n_prompt, n_cached, n_computed, n_generated; /* tokens */
    uint32_t max_tokens;                                  /* to generate; 0: it is pooled */
    bool stopped;                                         /* paused or preempted */
};
/* Copies at most max places into out; returns max_sequences. */
uint32_t engine_places_get(engine *en, struct engine_place *out, uint32_t max);
/* How many sequences may be submitted now; *bound: max_queue. */
uint32_t engine_queue_room(engine *en, uint32_t *bound);
/* Counters of kernel i < engine_n_kernels; bytes as in backend_kernel_traffic. */
struct engine_kernel {
    uint64_t dispatches, read_bytes, written_bytes;
    struct backend_kernel_costs costs;
};
enum { ENGINE_MAX_KERNELS = 160 };
uint32_t engine_n_kernels(const engine *en); /* may grow with the first steps */
const char *engine_kernel_get(const engine *en, uint32_t i, struct engine_kernel *out);
/* Counts the kernels of a decode step of n_seqs sequences, each with `context` tokens, without
 * computing it. Only while no request is submitted. ERR_UNSUPPORTED: this device cannot. */
int engine_count_step(engine *en, uint32_t n_seqs, uint32_t context, err *e);
/* backend_fact_get and backend_pipeline_get of the first rank; only while no request is submitted.
 */
bool engine_fact_get(const engine *en, uint32_t i, struct backend_fact *out);
bool engine_pipeline_get(const engine *en, uint32_t i, struct backend_pipeline *out);
const char *engine_backend_name(const engine *en);
/* backend_copy_bandwidth of all ranks together; only while no request is submitted. */
int engine_copy_bandwidth(engine *en, double *bytes_per_s, err *e);
int engine_n_threads(const engine *en);    /* threads that compute */
uint32_t engine_n_ranks(const engine *en); /* devices over which the model, or a stage, is split */
/* The device failed for good: every request is refused, now and later. Any thread. */
bool engine_device_failed(engine *en);
/* Has the worker completed a round since *mark, or nothing to do? Otherwise it is in the same step
 * as then. Sets *mark, which is 0 at first. Any thread. */
bool engine_progress(engine *en, uint64_t *mark);
/* Runs kv_check and the scheduler's checks on the worker between two steps. 0 or ERR_INVALID. */
int engine_check(engine *en, err *e);

/* The vocabulary of tok for grammars, for logits of n_vocab rows (at least tok's tokens). End
 * tokens are allowed where the text may end; control tokens stand for themselves; tokens without
 * text are never allowed. tok is not used afterwards. */
int engine_grammar_vocab(const tokenizer *tok, uint32_t n_vocab, uint64_t cache_bytes,
                         grammar_vocab **out, err *e);

#endif
