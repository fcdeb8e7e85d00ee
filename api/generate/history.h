/* history.h - the last hour of the server: samples every ten seconds, in a ring of fixed size.
 * Filled by the watcher thread, read by any. */
#ifndef INFERD_API_GENERATE_HISTORY_H
#define INFERD_API_GENERATE_HISTORY_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct api;

enum { HISTORY_EVERY_S = 10, HISTORY_SAMPLES = 3600 / HISTORY_EVERY_S + 1 };

/* Sums are since the start, over all models. */
struct history_sample {
    int64_t time_s; /* clock_wall_s */
    uint64_t generated_tokens, prompt_tokens, cached_tokens, preemptions;
    uint64_t kv_blocks, kv_blocks_used;
    uint64_t memory_bytes;     /* of the process, resident; 0: unknown */
    uint64_t device_bytes;     /* 0: unknown */
    uint32_t running, waiting; /* sequences at that moment */
    uint64_t first_tokens;     /* how many times to a first token were measured, and their */
    double first_token_s;      /* sum */
};

struct history {
    pthread_mutex_t mu; /* guards the rest */
    struct history_sample samples[HISTORY_SAMPLES];
    uint64_t n;       /* added since the start */
    uint64_t next_ns; /* clock_now_ns of the next sample; watcher thread only */
};

void metrics_history_init(struct history *h);
void history_fini(struct history *h);
/* Once a second, or less often: takes a sample of a's engines when it is time. Nothing before they
 * are ready. */
void history_tick(struct api *a);
void history_add(struct history *h, const struct history_sample *sample);
/* Copies the samples, the oldest first; returns how many. */
size_t metrics_history_get(struct history *h, struct history_sample out[HISTORY_SAMPLES]);

#endif
