/* commands/logits.c - inferd logits: the most likely next tokens, through the engine that serves.
 */
#include "daemon/commands/commands.h"
#include "daemon/commands/instrument.h"
#include "daemon/commands/printing.h"
#include "daemon/commands/session.h"
#include "daemon/input.h"

#include <stdio.h>
#include <stdlib.h>

enum { SPARE_TOKENS = 64 };

struct logits_job {
    const int32_t *ids;
    size_t n;
    int n_top;
    struct engine_event answer;
    bool answered;
};

static bool next_request(void *arg, size_t index, struct engine_request *req) {
    struct logits_job *job = arg;
    if (index > 0) return false;
    req->prompt = job->ids;
    req->n_prompt = (uint32_t)job->n;
    req->params.max_tokens = 1;
    req->params.sampling.temperature = 0;
    req->params.ignore_eos = true; /* an end token is a valid answer */
    req->params.n_logprobs = job->n_top;
    return true;
}

static void take_event(void *arg, size_t index, const struct engine_event *ev) {
    struct logits_job *job = arg;
    (void)index;
    if (ev->kind != ENGINE_EVENT_TOKEN) return;
    job->answer = *ev;
    job->answered = true;
}

static int print_answer(const struct logits_job *job, const tokenizer *tok, bool json, err *e) {
    const struct engine_event *a = &job->answer;
    cJSON *o = json ? cJSON_CreateObject() : NULL, *top = NULL;
    if (json) {
        cJSON_AddNumberToObject(o, "n_tokens", (double)job->n);
        top = cJSON_AddArrayToObject(o, "top");
    }
    for (int i = 0; i < a->n_top; i++) {
        str piece;
        instrument_piece(tok, a->top_token[i], &piece);
        if (json) {
            cJSON *row = cJSON_CreateObject();
            cJSON_AddNumberToObject(row, "id", a->top_token[i]);
            cJSON_AddNumberToObject(row, "logprob", (double)a->top_logprob[i]);
            cJSON_AddStringToObject(row, "piece", str_cstr(&piece));
            cJSON_AddItemToArray(top, row);
        } else {
            printf("%d\t%.6f\t%s\n", (int)a->top_token[i], (double)a->top_logprob[i],
                   str_cstr(&piece));
        }
        str_fini(&piece);
    }
    return json ? printing_json(o, e) : 0;
}

static int run_logits(struct instrument *in, const char *tokens, int n_top, bool json, err *e) {
    struct logits_job job = {.n_top = n_top};
    struct engine_config config;
    engine *en = NULL;
    tokenizer *tok = NULL;
    int32_t *ids = NULL;
    int rc = tokenizer_open(in->model.path, &tok, e);
    if (!rc) rc = idlist_parse(tokens, tokenizer_n_vocab(tok), &ids, &job.n, e);
    if (!rc && (job.n == 0 || job.n > UINT32_MAX / 2))
        rc = err_set(e, ERR_INVALID, "--tokens requires at least one token id");
    if (rc) goto end;
    job.ids = ids;
    loader_engine_config(&in->config, in->model.path, &config);
    config.group = in->group;
    config.kv_cache_tokens = job.n + SPARE_TOKENS;
    config.max_sequences = 1;
    rc = engine_open(&config, &en, e);
    const struct session_job session = {
        .next = next_request, .event = take_event, .arg = &job, .n_parallel = 1};
    if (!rc) rc = session_run(en, &session, e);
    if (!rc && !job.answered) rc = err_set(e, ERR_DEVICE, "the engine returned no answer");
    if (!rc) rc = print_answer(&job, tok, json, e);
end:
    engine_close(en);
    free(ids);
    tokenizer_close(tok);
    return rc;
}

int cmd_logits(int argc, char **argv, err *e) {
    const char *tokens = "";
    uint64_t n_top = 10;
    bool json = false;
    const struct option own[] = {
        {.name = "tokens",
         .kind = OPTION_TEXT,
         .target = &tokens,
         .value = "IDS",
         .help = "token ids of the text so far (1,2,3)"},
        {.name = "top",
         .kind = OPTION_NUMBER,
         .target = &n_top,
         .value = "N",
         .min = 1,
         .max = ENGINE_MAX_TOP_LOGPROBS,
         .help = "number of tokens to print (1 to 20; default 10)"},
        {.name = "json", .kind = OPTION_SWITCH, .target = &json, .help = "print JSON"}};
    struct instrument in = {
        .options = {.usage = "logits --tokens IDS",
                    .summary = "Prints the most likely next tokens and the natural logarithms of "
                               "their\nprobabilities.",
                    .options = own,
                    .n_options = sizeof own / sizeof own[0],
                    .keys = instrument_compute_keys}};
    int status = instrument_parse(&in, argc, argv, e);
    if (status < 0 && !tokens[0]) {
        err_set(e, ERR_INVALID, "--tokens IDS is missing");
        status = EXIT_USAGE;
    } else if (status < 0) {
        status = run_logits(&in, tokens, (int)n_top, json, e) ? 1 : 0;
    }
    instrument_fini(&in);
    return status;
}
