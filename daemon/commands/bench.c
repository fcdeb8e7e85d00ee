/* commands/bench.c - inferd bench: the speed of a model, through the engine that serves.
 *
 * Each repetition uses new random prompts, so that nothing is reused between them, and has up to
 * three phases: fill (context-fill tokens of each prompt, not measured, left in the prefix cache),
 * prefill (the whole prompts, one token of answer) and decode (the same prompts again from the
 * prefix cache, gen-tokens of answer). Rates come from the engine's own step times: prefill counts
 * every step of its phase, decode those steps in which all sequences of the batch got a token and
 * nothing was prefilled; in a pipeline those with their part of the sequences, and between the
 * first and the last of these each stage's busy time. Kernels are counted over the same decode
 * steps. With --count nothing is computed, and only the kernels of one decode step are counted. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/qblock.h"
#include "core/model/model.h"
#include "daemon/commands/bench_traffic.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/instrument.h"
#include "daemon/commands/limits.h"
#include "daemon/commands/printing.h"
#include "daemon/commands/session.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_MAX = 1 << 20, REPEAT_MAX = 100, SPARE_BLOCKS = 4 };

enum phase { PHASE_NONE, PHASE_PREFILL, PHASE_DECODE };

struct bench {
    uint64_t n_prompt, n_gen, n_batch, n_fill, n_repeat;
    bool json, count, time_kernels;
    /* The current repetition: prompts (n_batch, n_fill + n_prompt). */
    int32_t *prompts;
    uint32_t run_prompt, run_gen; /* tokens of each prompt and answer in this phase */
    pthread_mutex_t lock;         /* guards what the worker writes in on_step: all below; held while
                                     a phase's prompts are submitted */
    enum phase phase;
    uint64_t rows[3], ns[3]; /* of this repetition, by phase */
    double *steps_ms[3];     /* (STEPS_MAX) all repetitions, by phase */
    size_t n_steps[3];
    struct bench_stages {
        uint32_t n;                        /* 0: no pipeline */
        uint64_t begin_ns, end_ns, all_ns; /* of this repetition's decode steps; of all */
        uint64_t begin[ENGINE_MAX_STAGES], end[ENGINE_MAX_STAGES], busy[ENGINE_MAX_STAGES];
    } stages;
    const engine *en;
    struct bench_traffic traffic; /* of decode steps */
};

struct bench_result {
    double prefill_rates[REPEAT_MAX], decode_rates[REPEAT_MAX]; /* tokens a second */
    double bandwidth;                                           /* bytes a second */
    double int8_peak;                                           /* operations a second, or 0 */
};

/* The sequences of a decode step while all run. */
static uint64_t rows_of_step(const struct bench *b, const struct engine_step *step) {
    const uint64_t n = step->n_stages ? b->n_batch / step->n_stages : b->n_batch;
    return n ? n : 1;
}

/* A decode step of a pipeline has ended. */
static void note_stages(struct bench_stages *s, const struct engine_step *step) {
    const size_t bytes = step->n_stages * sizeof *step->stage_busy_ns;
    s->n = step->n_stages;
    s->end_ns = clock_now_ns();
    memcpy(s->end, step->stage_busy_ns, bytes);
    if (s->begin_ns) return;
    s->begin_ns = s->end_ns;
    memcpy(s->begin, step->stage_busy_ns, bytes);
}

static void add_up_stages(struct bench_stages *s) {
    s->all_ns += s->end_ns - s->begin_ns;
    for (uint32_t i = 0; i < s->n; i++)
        s->busy[i] += s->end[i] - s->begin[i];
    s->begin_ns = s->end_ns = 0;
}

static void on_step(void *arg, const struct engine_step *step) {
    struct bench *b = arg;
    pthread_mutex_lock(&b->lock);
    enum phase p = b->phase;
    bool counts = p == PHASE_PREFILL || (p == PHASE_DECODE && step->n_prefill_rows == 0 &&
                                         step->n_decode_rows >= rows_of_step(b, step));
    if (counts && b->n_steps[p] < STEPS_MAX) {
        b->rows[p] += step->n_prefill_rows + step->n_decode_rows;
        b->ns[p] += step->ns;
        b->steps_ms[p][b->n_steps[p]++] = (double)step->ns * 1e-6;
        if (p == PHASE_DECODE && step->n_stages) note_stages(&b->stages, step);
    }
    bench_traffic_step(&b->traffic, b->en, counts && p == PHASE_DECODE);
    pthread_mutex_unlock(&b->lock);
}

/* The worker's first step may begin with the first prompt only; it cannot end before all are
 * submitted. So each phase has the same steps on a busy and an idle machine, except the first. */
static void all_submitted(void *arg) {
    struct bench *b = arg;
    pthread_mutex_unlock(&b->lock);
}

static bool next_request(void *arg, size_t index, struct engine_request *req) {
    struct bench *b = arg;
    if (index == b->n_batch) return false;
    req->prompt = b->prompts + index * (b->n_fill + b->n_prompt);
    req->n_prompt = b->run_prompt;
    req->params.max_tokens = b->run_gen;
    req->params.sampling.temperature = 0;
    req->params.ignore_eos = true;
    return true;
}

/* Runs one phase to its end. engine_check answers between two steps: after it the phase's last
 * on_step is over. */
static int run_phase(struct bench *b, engine *en, enum phase phase, err *e) {
    const struct session_job job = {.next = next_request,
                                    .submitted = all_submitted,
                                    .arg = b,
                                    .n_parallel = (uint32_t)b->n_batch};
    pthread_mutex_lock(&b->lock);
    b->phase = phase;
    b->rows[phase] = b->ns[phase] = 0;
    int rc = session_run(en, &job, e);
    if (!rc) rc = engine_check(en, e);
    return rc;
}

/* Small generator with a fixed start (splitmix64): the same prompts on every machine. */
static uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static void draw_prompts(struct bench *b, const tokenizer *tok, uint64_t *state) {
    uint64_t n = b->n_batch * (b->n_fill + b->n_prompt), n_vocab = (uint64_t)tokenizer_n_vocab(tok);
    for (uint64_t i = 0; i < n; i++)
        b->prompts[i] = (int32_t)(random_next(state) % n_vocab);
}

static int run_repetition(struct bench *b, engine *en, err *e) {
    int rc = 0;
    if (b->n_fill) {
        b->run_prompt = (uint32_t)b->n_fill;
        b->run_gen = 1;
        rc = run_phase(b, en, PHASE_NONE, e);
    }
    b->run_prompt = (uint32_t)(b->n_fill + b->n_prompt);
    b->run_gen = 1;
    if (!rc) rc = run_phase(b, en, PHASE_PREFILL, e);
    b->run_gen = (uint32_t)b->n_gen + 1; /* the first token belongs to the prompt's step */
    if (!rc) rc = run_phase(b, en, PHASE_DECODE, e);
    add_up_stages(&b->stages);
    return rc;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts values. 0 if there are none. */
static double percentile(double *values, size_t n, double p) {
    if (n == 0) return 0;
    qsort(values, n, sizeof *values, compare_doubles);
    size_t i = (size_t)(p / 100 * (double)n);
    return values[i < n ? i : n - 1];
}

/* Median over repetitions; keeps their order. */
static double median_rate(const double *rates, size_t n) {
    double sorted[REPEAT_MAX];
    for (size_t i = 0; i < n; i++)
        sorted[i] = rates[i];
    return percentile(sorted, n, 50);
}

/* K and V of all sequences that a decode step reads, at the middle of the answer. */
static double kv_bytes_per_step(const struct bench *b, const struct engine_config *config,
                                const struct model_hparams *hp) {
    double tokens = (double)(b->n_fill + b->n_prompt) + (double)b->n_gen / 2;
    double rows = 0; /* K or V of one token, all layers */
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        uint64_t row = 0;
        qtype_bytes(config->kv_type, model_n_kv_heads(hp, hp->layers[i]),
                    model_head_dim(hp, hp->layers[i]), &row);
        rows += (double)row;
    }
    return 2 * rows * tokens * (double)b->n_batch;
}

/* 10^9 multiplications and additions a second in the layers' matrices; attention and the logits of
 * each prompt's last token are not counted. */
static double prefill_gops(const struct model_hparams *hp, double tokens_per_s) {
    double table = (double)hp->n_vocab * hp->n_embd * (hp->tied_embeddings ? 1 : 2);
    return 2 * ((double)hp->step_params - table) * tokens_per_s * 1e-9;
}

static void add_steps(cJSON *o, const char *name, double *ms, size_t n) {
    cJSON *steps = cJSON_AddObjectToObject(o, name);
    cJSON_AddNumberToObject(steps, "count", (double)n);
    cJSON_AddNumberToObject(steps, "p50", percentile(ms, n, 50));
    cJSON_AddNumberToObject(steps, "p99", percentile(ms, n, 99));
}

static void add_rates(cJSON *o, const char *name, const double *rates, size_t n) {
    cJSON *array = cJSON_AddArrayToObject(o, name);
    for (size_t i = 0; i < n; i++)
        cJSON_AddItemToArray(array, cJSON_CreateNumber(rates[i]));
}

/* The share of the time of decode steps that each stage was busy. */
static void add_stages(cJSON *o, const struct bench_stages *s) {
    if (!s->n || !s->all_ns) return;
    cJSON *array = cJSON_AddArrayToObject(o, "stage_busy_share");
    for (uint32_t i = 0; i < s->n; i++)
        cJSON_AddItemToArray(array, cJSON_CreateNumber((double)s->busy[i] / (double)s->all_ns));
}

static void print_stages(const cJSON *o) {
    const cJSON *shares = cJSON_GetObjectItemCaseSensitive(o, "stage_busy_share"), *one;
    if (!shares) return;
    printf("stages  ");
    for (one = shares->child; one; one = one->next)
        printf(" %5.1f %%", one->valuedouble * 100);
    printf(" of the time of decode steps busy\n");
}

static cJSON *result_json(struct bench *b, engine *en, const struct engine_config *config,
                          const struct bench_result *r) {
    const struct model_hparams *hp = engine_hparams(en);
    cJSON *o = cJSON_CreateObject();
    double decode = median_rate(r->decode_rates, b->n_repeat);
    double bytes = (double)hp->step_bytes + kv_bytes_per_step(b, config, hp);
    cJSON_AddStringToObject(o, "architecture", hp->arch);
    cJSON_AddStringToObject(o, "quantization", hp->quant);
    cJSON_AddNumberToObject(o, "parameters", (double)hp->n_params);
    cJSON_AddStringToObject(o, "backend", engine_backend_name(en));
    cJSON_AddNumberToObject(o, "threads", engine_n_threads(en));
    cJSON_AddNumberToObject(o, "tensor_parallel", engine_n_ranks(en));
    cJSON_AddNumberToObject(o, "prompt_tokens", (double)b->n_prompt);
    cJSON_AddNumberToObject(o, "gen_tokens", (double)b->n_gen);
    cJSON_AddNumberToObject(o, "batch", (double)b->n_batch);
    cJSON_AddNumberToObject(o, "context_fill", (double)b->n_fill);
    cJSON_AddNumberToObject(o, "repeat", (double)b->n_repeat);
    cJSON_AddNumberToObject(o, "prefill_tokens_per_s", median_rate(r->prefill_rates, b->n_repeat));
    cJSON_AddNumberToObject(o, "decode_tokens_per_s", decode);
    cJSON_AddNumberToObject(o, "prefill_gop_per_s",
                            prefill_gops(hp, median_rate(r->prefill_rates, b->n_repeat)));
    add_rates(o, "prefill_tokens_per_s_each", r->prefill_rates, b->n_repeat);
    add_rates(o, "decode_tokens_per_s_each", r->decode_rates, b->n_repeat);
    add_stages(o, &b->stages);
    add_steps(o, "prefill_step_ms", b->steps_ms[PHASE_PREFILL], b->n_steps[PHASE_PREFILL]);
    add_steps(o, "decode_step_ms", b->steps_ms[PHASE_DECODE], b->n_steps[PHASE_DECODE]);
    cJSON_AddNumberToObject(o, "weight_bytes_per_step", (double)hp->step_bytes);
    cJSON_AddNumberToObject(o, "kv_bytes_per_decode_step", kv_bytes_per_step(b, config, hp));
    cJSON_AddNumberToObject(o, "decode_gb_per_s", bytes * decode / (double)b->n_batch * 1e-9);
    if (r->bandwidth > 0)
        cJSON_AddNumberToObject(o, "read_bandwidth_gb_per_s", r->bandwidth * 1e-9);
    if (r->int8_peak > 0) cJSON_AddNumberToObject(o, "int8_peak_gop_per_s", r->int8_peak * 1e-9);
    cJSON *kernels = cJSON_AddObjectToObject(o, "kernel_dispatches");
    for (uint32_t i = 0; i < engine_n_kernels(en); i++) {
        struct engine_kernel k;
        const char *name = engine_kernel_get(en, i, &k);
        cJSON_AddNumberToObject(kernels, name, (double)k.dispatches);
    }
    const struct bench_step step = {(double)hp->step_bytes, kv_bytes_per_step(b, config, hp),
                                    b->n_batch};
    bench_traffic_json(&b->traffic, en, &step, o);
    bench_traffic_device_json(en, o);
    return o;
}

static double number_at(const cJSON *o, const char *name) {
    return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(o, name));
}

static void print_text(const cJSON *o) {
    const cJSON *prefill = cJSON_GetObjectItemCaseSensitive(o, "prefill_step_ms");
    const cJSON *decode = cJSON_GetObjectItemCaseSensitive(o, "decode_step_ms"), *kernel;
    if (!(number_at(decode, "count") > 0)) { /* --count */
        bench_traffic_print(o);
        return;
    }
    printf("prefill  %10.1f tokens/s   step p50 %.2f ms, p99 %.2f ms\n",
           number_at(o, "prefill_tokens_per_s"), number_at(prefill, "p50"),
           number_at(prefill, "p99"));
    printf("decode   %10.1f tokens/s   step p50 %.2f ms, p99 %.2f ms\n",
           number_at(o, "decode_tokens_per_s"), number_at(decode, "p50"), number_at(decode, "p99"));
    print_stages(o);
    printf("memory   %10.2f GB/s read by decode steps", number_at(o, "decode_gb_per_s"));
    if (number_at(o, "read_bandwidth_gb_per_s") > 0)
        printf(", %.2f GB/s measured on this machine", number_at(o, "read_bandwidth_gb_per_s"));
    printf("\n");
    if (number_at(o, "int8_peak_gop_per_s") > 0)
        printf("int8     %10.1f GOP/s in the matrices of prefill, %.1f GOP/s at most on this "
               "machine\n",
               number_at(o, "prefill_gop_per_s"), number_at(o, "int8_peak_gop_per_s"));
    cJSON_ArrayForEach(kernel, cJSON_GetObjectItemCaseSensitive(
                                   o, "kernel_dispatches")) if (kernel->valuedouble > 0)
        printf("kernel   %10.0f x %s\n", kernel->valuedouble, kernel->string);
    if (number_at(o, "decode_read_bytes_per_step") > 0) bench_traffic_print(o);
}

static int report_bench(struct bench *b, engine *en, const struct engine_config *config,
                        const struct bench_result *r, err *e) {
    cJSON *o = result_json(b, en, config, r);
    if (b->json) return printing_json(o, e);
    print_text(o);
    cJSON_Delete(o);
    return 0;
}

/* The costs of one decode step at the middle of the answer. */
static int count_engine(struct bench *b, engine *en, const struct engine_config *config, err *e) {
    const struct bench_result none = {0};
    const uint64_t context = b->n_fill + b->n_prompt + b->n_gen / 2;
    bench_traffic_step(&b->traffic, en, false);
    int rc = engine_count_step(en, (uint32_t)b->n_batch, (uint32_t)context, e);
    bench_traffic_step(&b->traffic, en, true);
    return rc ? rc : report_bench(b, en, config, &none, e);
}

static int measure_engine(struct bench *b, engine *en, const struct engine_config *config, err *e) {
    struct bench_result r = {0};
    uint64_t state = 1;
    bool on_cpu = strcmp(engine_backend_name(en), "cpu") == 0;
    int rc = on_cpu ? limits_read_bandwidth(engine_n_threads(en), &r.bandwidth, e)
                    : engine_copy_bandwidth(en, &r.bandwidth, e);
    if (!rc && on_cpu) rc = limits_int8_peak(engine_n_threads(en), &r.int8_peak, e);
    for (uint64_t i = 0; i < b->n_repeat && !rc; i++) {
        draw_prompts(b, engine_tokenizer(en), &state);
        rc = run_repetition(b, en, e);
        uint64_t prefill_ns = b->ns[PHASE_PREFILL], decode_ns = b->ns[PHASE_DECODE];
        r.prefill_rates[i] =
            prefill_ns ? (double)b->rows[PHASE_PREFILL] * 1e9 / (double)prefill_ns : 0;
        r.decode_rates[i] = decode_ns ? (double)b->rows[PHASE_DECODE] * 1e9 / (double)decode_ns : 0;
    }
    return rc ? rc : report_bench(b, en, config, &r, e);
}

static int run_bench(struct instrument *in, struct bench *b, err *e) {
    struct engine_config config;
    engine *en = NULL;
    uint64_t length = b->n_fill + b->n_prompt + b->n_gen + 1;
    loader_engine_config(&in->config, in->model.path, &config);
    config.group = in->group;
    config.kv_cache_tokens = b->n_batch * (length + SPARE_BLOCKS * config.block_tokens);
    if (!config.state_blocks)
        config.state_blocks = 2 * b->n_batch; /* live, and after its context */
    config.context_length = (uint32_t)length;
    config.max_sequences = config.max_queue = (uint32_t)b->n_batch;
    config.prefill_chunk = config.max_batch_tokens;
    config.prefix_cache = true;
    config.on_step = on_step;
    config.on_step_arg = b;
    config.time_kernels = b->time_kernels;
    pthread_mutex_init(&b->lock, NULL);
    b->prompts = mem_new(b->n_batch * (b->n_fill + b->n_prompt), sizeof *b->prompts);
    b->steps_ms[PHASE_PREFILL] = mem_new(STEPS_MAX, sizeof(double));
    b->steps_ms[PHASE_DECODE] = mem_new(STEPS_MAX, sizeof(double));
    int rc = b->prompts && b->steps_ms[PHASE_PREFILL] && b->steps_ms[PHASE_DECODE]
                 ? engine_open(&config, &en, e)
                 : err_no_memory(e);
    if (!rc && engine_context_length(en) < length)
        rc = err_set(
            e, ERR_INVALID,
            "context-fill + prompt-tokens + gen-tokens + 1 is %llu, but the model's context "
            "is %u: choose fewer",
            (unsigned long long)length, engine_context_length(en));
    b->en = en;
    if (!rc) rc = bench_traffic_init(&b->traffic, en, e);
    if (!rc && b->count)
        rc = count_engine(b, en, &config, e);
    else if (!rc)
        rc = measure_engine(b, en, &config, e);
    engine_close(en);
    bench_traffic_fini(&b->traffic);
    free(b->steps_ms[PHASE_DECODE]);
    free(b->steps_ms[PHASE_PREFILL]);
    free(b->prompts);
    pthread_mutex_destroy(&b->lock);
    return rc;
}

int cmd_bench(int argc, char **argv, err *e) {
    struct bench b = {.n_prompt = 256, .n_gen = 64, .n_batch = 1, .n_repeat = 3};
    const struct option own[] = {
        {.name = "prompt-tokens",
         .kind = OPTION_NUMBER,
         .target = &b.n_prompt,
         .value = "P",
         .min = 1,
         .max = 1 << 20,
         .help = "length of each prompt (default 256)"},
        {.name = "gen-tokens",
         .kind = OPTION_NUMBER,
         .target = &b.n_gen,
         .value = "G",
         .min = 1,
         .max = 1 << 16,
         .help = "length of each answer (default 64)"},
        {.name = "batch",
         .kind = OPTION_NUMBER,
         .target = &b.n_batch,
         .value = "B",
         .min = 1,
         .max = 1024,
         .help = "number of sequences at once (default 1)"},
        {.name = "context-fill",
         .kind = OPTION_NUMBER,
         .target = &b.n_fill,
         .value = "C",
         .max = 1 << 20,
         .help = "tokens in the context before the prompt (default 0)"},
        {.name = "repeat",
         .kind = OPTION_NUMBER,
         .target = &b.n_repeat,
         .value = "R",
         .min = 1,
         .max = REPEAT_MAX,
         .help = "number of repetitions; rates are medians (default 3)"},
        {.name = "count",
         .kind = OPTION_SWITCH,
         .target = &b.count,
         .help = "compute nothing: only count what a decode step costs (metal)"},
        {.name = "time-kernels",
         .kind = OPTION_SWITCH,
         .target = &b.time_kernels,
         .help = "run kernels one by one and measure each (metal); slower"},
        {.name = "json", .kind = OPTION_SWITCH, .target = &b.json, .help = "print JSON"}};
    struct instrument in = {
        .options = {.usage = "bench",
                    .summary = "Measures prefill and decode speed with random prompts.",
                    .options = own,
                    .n_options = sizeof own / sizeof own[0],
                    .keys = instrument_compute_keys}};
    int status = instrument_parse(&in, argc, argv, e);
    if (status < 0) status = run_bench(&in, &b, e) ? 1 : 0;
    instrument_fini(&in);
    return status;
}
