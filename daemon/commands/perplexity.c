/* commands/perplexity.c - inferd perplexity: how well a model predicts a text, through the engine
 * that serves.
 *
 * Definition: the text is encoded once, without BOS, and cut into windows of N - 1 tokens that do
 * not overlap (a shorter last one is dropped). Each window is preceded by BOS, and each of its
 * tokens is predicted from those before it in the window. For a model without BOS a window has N
 * tokens, and the first is context only. nll is the mean of -ln p(token), perplexity is exp(nll).
 */
#include "core/base/mem.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/instrument.h"
#include "daemon/commands/printing.h"
#include "daemon/commands/session.h"
#include "daemon/input.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX_BYTES = 256 << 20, IDS_MAX = 64 << 20, N_PARALLEL = 4, SPARE_TOKENS = 64 };

struct perplexity_job {
    const int32_t *ids;  /* (n_windows * (context - n_bos)) of the text */
    int32_t *prompt;     /* (context) BOS, if any, and the window that is being submitted */
    double *window_sums; /* (n_windows) */
    size_t context, n_windows, n_bos; /* n_bos: 1, 0 of a model without it */
    uint64_t n_counted;
};

static bool next_request(void *arg, size_t index, struct engine_request *req) {
    struct perplexity_job *job = arg;
    if (index == job->n_windows) return false;
    size_t n = job->context - job->n_bos;
    memcpy(job->prompt + job->n_bos, job->ids + index * n, n * sizeof *job->ids);
    req->prompt = job->prompt;
    req->n_prompt = (uint32_t)job->context;
    req->params.max_tokens = 1;
    req->params.sampling.temperature = 0;
    req->params.ignore_eos = true;
    req->params.n_logprobs = 0;
    req->params.prompt_logprobs = true;
    return true;
}

static void take_event(void *arg, size_t index, const struct engine_event *ev) {
    struct perplexity_job *job = arg;
    if (ev->kind != ENGINE_EVENT_PROMPT) return;
    job->window_sums[index] -= (double)ev->logprob;
    job->n_counted++;
}

static int print_result(const struct perplexity_job *job, bool json, err *e) {
    double sum = 0; /* in order of windows, not of completion */
    for (size_t i = 0; i < job->n_windows; i++)
        sum += job->window_sums[i];
    double nll = sum / (double)job->n_counted;
    if (!json) {
        printf("nll %.6f  perplexity %.4f  tokens %llu  windows %zu\n", nll, exp(nll),
               (unsigned long long)job->n_counted, job->n_windows);
        return 0;
    }
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "context", (double)job->context);
    cJSON_AddNumberToObject(o, "windows", (double)job->n_windows);
    cJSON_AddNumberToObject(o, "tokens_counted", (double)job->n_counted);
    cJSON_AddNumberToObject(o, "mean_nll", nll);
    cJSON_AddNumberToObject(o, "perplexity", exp(nll));
    cJSON *sums = cJSON_AddArrayToObject(o, "window_nll_sums");
    for (size_t i = 0; i < job->n_windows; i++)
        cJSON_AddItemToArray(sums, cJSON_CreateNumber(job->window_sums[i]));
    return printing_json(o, e);
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

static int measure_windows(struct instrument *in, struct perplexity_job *job, err *e) {
    struct engine_config config;
    engine *en;
    loader_engine_config(&in->config, in->model.path, &config);
    config.kv_cache_tokens = N_PARALLEL * (job->context + SPARE_TOKENS);
    config.context_length = (uint32_t)job->context + 1; /* the engine adds one token */
    config.max_sequences = N_PARALLEL;
    config.prefix_cache = false; /* every token must be computed */
    config.prefill_chunk = config.max_batch_tokens;
    int rc = engine_open(&config, &en, e);
    if (rc) return rc;
    const struct session_job session = {
        .next = next_request, .event = take_event, .arg = job, .n_parallel = N_PARALLEL};
    if (job->context >= engine_context_length(en))
        rc = err_set(e, ERR_INVALID, "--context %zu: the model's maximum is %u", job->context,
                     engine_context_length(en) - 1);
    else
        rc = session_run(en, &session, e);
    if (!rc && job->n_counted != job->n_windows * (job->context - 1))
        rc = err_set(e, ERR_DEVICE, "the engine returned %llu log-probabilities, expected %zu",
                     (unsigned long long)job->n_counted, job->n_windows * (job->context - 1));
    engine_close(en);
    return rc;
}

static int run_perplexity(struct instrument *in, const char *file, size_t context, bool json,
                          err *e) {
    struct perplexity_job job = {.context = context};
    tokenizer *tok = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    int rc = tokenizer_open(in->model.path, &tok, e);
    if (!rc) rc = encode_file(tok, file, &ids, &n, e);
    if (rc) goto end;
    job.n_bos = tokenizer_bos(tok) >= 0;
    job.n_windows = n / (context - job.n_bos);
    if (job.n_windows == 0) {
        rc = err_set(
            e, ERR_INVALID,
            "the text has %zu tokens, one window of --context %zu needs %zu: choose a smaller one",
            n, context, context - job.n_bos);
        goto end;
    }
    job.ids = ids;
    job.prompt = mem_new(context, sizeof *job.prompt);
    job.window_sums = mem_new(job.n_windows, sizeof *job.window_sums);
    if (!job.prompt || !job.window_sums) {
        rc = err_no_memory(e);
        goto end;
    }
    if (job.n_bos) job.prompt[0] = tokenizer_bos(tok);
    rc = measure_windows(in, &job, e);
    if (!rc) rc = print_result(&job, json, e);
end:
    free(job.window_sums);
    free(job.prompt);
    free(ids);
    tokenizer_close(tok);
    return rc;
}

int cmd_perplexity(int argc, char **argv, err *e) {
    const char *file = "-";
    uint64_t context = 512;
    bool json = false;
    const struct option own[] = {
        {.name = "file",
         .kind = OPTION_TEXT,
         .target = &file,
         .value = "FILE",
         .help = "text (default: standard input)"},
        {.name = "context",
         .kind = OPTION_NUMBER,
         .target = &context,
         .value = "N",
         .min = 2,
         .max = 1 << 24,
         .help = "tokens per window, including BOS (default 512)"},
        {.name = "json", .kind = OPTION_SWITCH, .target = &json, .help = "print JSON"}};
    struct instrument in = {
        .options = {.usage = "perplexity --file TEXT",
                    .summary = "Measures how well a model predicts a text, in windows of N tokens "
                               "that do not overlap.\nEach begins with BOS if the model has one; a "
                               "shorter last one is dropped.",
                    .options = own,
                    .n_options = sizeof own / sizeof own[0],
                    .keys = instrument_compute_keys}};
    int status = instrument_parse(&in, argc, argv, e);
    if (status < 0) status = run_perplexity(&in, file, (size_t)context, json, e) ? 1 : 0;
    instrument_fini(&in);
    return status;
}
