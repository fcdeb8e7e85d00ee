/* commands/windows.c - a text in windows through the engine that serves. */
#include "daemon/commands/windows.h"
#include "core/base/mem.h"
#include "daemon/commands/session.h"
#include "daemon/input.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX_BYTES = 256 << 20, IDS_MAX = 64 << 20, N_PARALLEL = 4, SPARE_TOKENS = 64 };

/* State of a run. */
struct job {
    struct windows *w;
    const int32_t *ids; /* (n_windows * (context - n_bos)) of the text */
    int32_t *prompt;    /* (context) BOS, if any, and the window that is being submitted */
    size_t n_bos;       /* 1, 0 of a model without it */
};

static bool next_request(void *arg, size_t index, struct engine_request *req) {
    const struct job *job = arg;
    if (index == job->w->n) return false;
    size_t n = job->w->context - job->n_bos;
    memcpy(job->prompt + job->n_bos, job->ids + index * n, n * sizeof *job->ids);
    req->prompt = job->prompt;
    req->n_prompt = (uint32_t)job->w->context;
    req->params.max_tokens = 1;
    req->params.sampling.temperature = 0;
    req->params.ignore_eos = true;
    req->params.n_logprobs = 0;
    req->params.prompt_logprobs = true;
    return true;
}

static void take_event(void *arg, size_t index, const struct engine_event *ev) {
    struct windows *w = ((struct job *)arg)->w;
    if (ev->kind != ENGINE_EVENT_PROMPT) return;
    w->nll_sums[index] -= (double)ev->logprob;
    w->n_counted++;
}

static int encode_file(const tokenizer *tok, const char *file, int32_t **ids, size_t *n, err *e) {
    char *text;
    size_t n_bytes;
    int rc = textfile_read(file, TEXT_MAX_BYTES, &text, &n_bytes, e);
    if (rc) return rc;
    rc = tokenizer_encode(tok, text, n_bytes, 0, IDS_MAX, ids, n, e);
    free(text);
    return rc;
}

/* The CPU watches what products read. Inputs of quantized weights are then known to 16 bits: with
 * 8, small columns beside a large one would be 0. */
static void watch_inputs(const struct windows *w, struct engine_config *config) {
    config->importance = w->importance;
    config->activation_bits = 16;
    config->n_ranks = 1;
    if (!strcmp(config->backend, "auto")) config->backend = "cpu";
}

static int measure_windows(struct instrument *in, struct job *job, err *e) {
    const struct windows *w = job->w;
    struct engine_config config;
    engine *en;
    loader_engine_config(&in->config, in->model.path, &config);
    config.group = w->importance ? NULL : in->group;
    config.kv_cache_tokens = N_PARALLEL * (w->context + SPARE_TOKENS);
    config.context_length = (uint32_t)w->context + 1; /* the engine adds one token */
    config.max_sequences = N_PARALLEL;
    config.prefix_cache = false; /* every token must be computed */
    config.prefill_chunk = config.max_batch_tokens;
    if (w->importance) watch_inputs(w, &config);
    int rc = engine_open(&config, &en, e);
    if (rc) return rc;
    const struct session_job session = {
        .next = next_request, .event = take_event, .arg = job, .n_parallel = N_PARALLEL};
    if (w->context >= engine_context_length(en))
        rc = err_set(e, ERR_INVALID, "--context %zu: the model's maximum is %u", w->context,
                     engine_context_length(en) - 1);
    else
        rc = session_run(en, &session, e);
    if (!rc && w->n_counted != w->n * (w->context - 1))
        rc = err_set(e, ERR_DEVICE, "the engine returned %llu log-probabilities, expected %zu",
                     (unsigned long long)w->n_counted, w->n * (w->context - 1));
    engine_close(en);
    return rc;
}

int windows_run(struct instrument *in, const char *file, struct windows *w, err *e) {
    struct job job = {.w = w};
    tokenizer *tok = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    int rc = tokenizer_open(in->model.path, &tok, e);
    if (!rc) rc = encode_file(tok, file, &ids, &n, e);
    if (rc) goto end;
    job.n_bos = tokenizer_bos(tok) >= 0;
    w->n = n / (w->context - job.n_bos);
    if (w->max && w->n > w->max) w->n = w->max;
    if (w->n == 0) {
        rc = err_set(
            e, ERR_INVALID,
            "the text has %zu tokens, one window of --context %zu needs %zu: choose a smaller one",
            n, w->context, w->context - job.n_bos);
        goto end;
    }
    job.ids = ids;
    job.prompt = mem_new(w->context, sizeof *job.prompt);
    w->nll_sums = mem_new(w->n, sizeof *w->nll_sums);
    if (!job.prompt || !w->nll_sums) {
        rc = err_no_memory(e);
        goto end;
    }
    if (job.n_bos) job.prompt[0] = tokenizer_bos(tok);
    rc = measure_windows(in, &job, e);
end:
    free(job.prompt);
    free(ids);
    tokenizer_close(tok);
    return rc;
}

double windows_mean_nll(const struct windows *w) {
    double sum = 0; /* in order of windows, not of completion */
    for (size_t i = 0; i < w->n; i++)
        sum += w->nll_sums[i];
    return sum / (double)w->n_counted;
}
