/* fields.c - bodies of llama.cpp's /completion and /infill: their tables, and how the fields become
 * options of a generation. Pure; pool threads. */
#include "api/generate/api_state.h"
#include "api/generate/body.h"
#include "api/generate/preset.h"
#include "api/generate/structured.h"
#include "api/http/ignored.h"
#include "api/http/request.h"
#include "api/llamacpp/llamacpp.h"

#include <stdlib.h>
#include <string.h>

#define AT(member)  .offset = offsetof(struct llama_fields, member)
#define HAS(member) .has = 1 + offsetof(struct llama_fields, member)

enum { NUL = JSON_NULLABLE, MAX_SAMPLERS = 64, MAX_RESPONSE_FIELDS = 256, MAX_BIAS_IDS = 64 };

/* Rows whose defaults are llama.cpp's. */
#define SAMPLING(TEXT, NAME, KIND, LEAST, MOST, INITIAL, HELP)                                     \
    {                                                                                              \
        .name = #NAME, .flags = NUL, AT(gen.NAME), HAS(gen.sent.NAME), .initial = TEXT,            \
        GEN_SAMPLING(KIND, LEAST, MOST, HELP)                                                      \
    }

static const struct json_field common_fields[] = {
    SAMPLING_TEMPERATURE(SAMPLING, "0.8"),
    SAMPLING_TOP_K(SAMPLING, "40"),
    SAMPLING_TOP_P(SAMPLING, "0.95"),
    SAMPLING_MIN_P(SAMPLING, "0.05"),
    {"n_predict", JSON_INT, NUL, AT(gen.n_predict), HAS(gen.has_n_predict), -2, 2147483647.0,
     .initial = "-1",
     .help = "Tokens to generate; below 0: up to the context length, 0: none, the prompt is only "
             "put into the cache."},
    {"max_tokens", JSON_INT, NUL, AT(gen.max_tokens), HAS(gen.has_max_tokens), -2, 2147483647.0,
     .help = "The same."},
    {"max_completion_tokens", JSON_INT, NUL, AT(gen.max_completion_tokens),
     HAS(gen.has_max_completion_tokens), -2, 2147483647.0, .help = "The same."},
    {"n_cmpl", JSON_INT, NUL, AT(gen.n), .min = 1, .max = ENGINE_MAX_CHOICES, .initial = "1",
     .help = "Answers per prompt; with more than one the answer is an array."},
    {"n", JSON_INT, NUL, AT(gen.n), .min = 1, .max = ENGINE_MAX_CHOICES, .help = "The same."},
    {"n_probs", JSON_INT, NUL, AT(n_probs), .min = 0, .max = ENGINE_MAX_TOP_LOGPROBS,
     .initial = "0", .help = "Adds the log-probabilities of the n_probs most likely tokens."},
    {"logit_bias", JSON_VALUE, NUL | JSON_OR_ARRAY | JSON_OR_OBJECT, AT(logit_bias),
     .help = "An array of pairs of a token id or a text (each of its tokens) and a bias from -100 "
             "to 100, or false: never; or an object."},
    {"samplers", JSON_VALUE, NUL | JSON_OR_ARRAY | JSON_OR_STRING, AT(samplers),
     .help = "Samplers that are not in the list are off; their order is fixed. 'infill' keeps "
             "tokens of at least a fifth of the best one's probability, and is named as ignored, "
             "like samplers that are not known."},
    {"n_indent", JSON_INT, NUL, AT(n_indent), .min = 0, .max = 1 << 20, .initial = "0",
     .help = "The answer ends before a line that is indented less."},
    {"t_max_predict_ms", JSON_INT, NUL, AT(t_max_predict_ms), .min = -1, .max = 2147483647.0,
     .initial = "0",
     .help = "The answer ends at the first new line that comes later than this after its first "
             "token; 0 and below: never."},
    {"t_max_prompt_ms", JSON_ADVISORY, NUL, .why = "a prompt is computed whole"},
    {"response_fields", JSON_ARRAY, NUL, AT(response_fields), .max = MAX_RESPONSE_FIELDS,
     .help = "Only these members of the answer, 'a/b' for a member of a member; those that do not "
             "exist are left out."},
    {"return_tokens", JSON_BOOL, NUL, AT(return_tokens), .initial = "false",
     .help = "Fills tokens, which a stream always does."},
    {"timings_per_token", JSON_BOOL, NUL, AT(timings_per_token), .initial = "false",
     .help = "Adds timings to each event of a stream."},
    {"parse_special", JSON_BOOL, NUL, AT(gen.parse_special), .initial = "true",
     .help = "Control tokens that the prompt spells are those tokens; false: they are text. An "
             "extension."},
    {"grammar", JSON_STRING, NUL, AT(gen.grammar),
     .help = "A GBNF grammar, of which the answer is a text; \"\": none."},
    {"json_schema", JSON_VALUE, NUL | JSON_OR_OBJECT | JSON_OR_STRING | JSON_OR_BOOL,
     AT(gen.json_schema), .help = "A JSON Schema; the answer is JSON that it allows."},
    {"grammar_lazy", JSON_REFUSED, NUL, .why = "a grammar holds from the answer's begin on"},
};
static const struct json_table common_table = JSON_TABLE(common_fields, &gen_sampling_table);

static const struct json_field completion_fields[] = {
    {"prompt", JSON_VALUE,
     JSON_REQUIRED | JSON_OR_STRING | JSON_OR_ARRAY | JSON_OR_OBJECT | JSON_WITH_NUL,
     AT(gen.prompt),
     .help = "A text, token ids, an array that mixes both, {\"prompt_string\": text}, or an array "
             "of several prompts; with several the answer is an array."},
};
const struct json_table llama_completion_table = JSON_TABLE(completion_fields, &common_table);

static const struct json_field chunk_fields[] = {
    {"text", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct tokenizer_chunk, text)},
    {"filename", JSON_STRING, NUL, .offset = offsetof(struct tokenizer_chunk, name)},
    {"time", JSON_ADVISORY, NUL, .why = "chunks are in their order"},
};
const struct json_table llama_chunk_table = JSON_TABLE(chunk_fields, NULL);

static const struct json_field infill_fields[] = {
    {"input_prefix", JSON_STRING, JSON_REQUIRED, AT(input_prefix),
     .help = "Text before the answer. What does not fit is cut off at its begin."},
    {"input_suffix", JSON_STRING, JSON_REQUIRED, AT(input_suffix),
     .help = "Text after the answer. What does not fit is cut off at its end."},
    {"input_extra", JSON_ARRAY, NUL, AT(input_extra), .table = &llama_chunk_table,
     .help = "Text of other files; the first ones are left out if they do not fit."},
    {"prompt", JSON_STRING, NUL, AT(start),
     .help = "The start of the answer, which is not repeated in it."},
};
const struct json_table llama_infill_table = JSON_TABLE(infill_fields, &common_table);

/* ---- sampling ---- */

void llama_sampling_default(struct gen_fields *f) {
    f->temperature = 0.8;
    f->top_k = 40;
    f->top_p = 0.95;
    f->min_p = 0.05;
}

/* A sampler's names and its letter in a string of samplers. ours: it is one of core/engine's. */
static const struct sampler {
    const char *names;
    char letter;
    bool ours;
} samplers[] = {
    {"temperature|temp", 't', true},
    {"top_k", 'k', true},
    {"top_p", 'p', true},
    {"min_p", 'm', true},
    {"penalties", 'e', true},
    {"infill", 'i', false},
    {"dry", 'd', false},
    {"xtc", 'x', false},
    {"typ_p|typical_p", 'y', false},
    {"top_n_sigma", 's', false},
};
enum { TEMPERATURE, TOP_K, TOP_P, MIN_P, PENALTIES, INFILL, N_SAMPLERS = 10 };

static bool find_sampler(const char *name, char letter, bool found[N_SAMPLERS]) {
    for (size_t i = 0; i < N_SAMPLERS; i++)
        if (name ? words_hold(samplers[i].names, name) : samplers[i].letter == letter)
            return found[i] = true;
    return false;
}

/* Switches off what the list lacks. The samplers that this server does not have are off unless
 * their own field is set, which is refused. */
static void switch_samplers(struct gen_fields *f, const bool found[N_SAMPLERS]) {
    if (!found[TEMPERATURE] && f->temperature > 0) f->temperature = 1;
    if (!found[TOP_K]) f->top_k = 0;
    if (!found[TOP_P]) f->top_p = 1;
    if (!found[MIN_P]) f->min_p = 0;
    if (found[INFILL] && f->min_p < 0.2) f->min_p = 0.2;
    if (found[PENALTIES]) return;
    f->repetition_penalty = 1;
    f->presence_penalty = f->frequency_penalty = 0;
}

static int read_samplers(struct request *r, struct llama_fields *f, err *e) {
    bool found[N_SAMPLERS] = {false}, known = true;
    const cJSON *v = f->samplers;
    if (!v) return 0;
    if (cJSON_IsString(v)) {
        for (const char *c = v->valuestring; *c; c++)
            known &= find_sampler(NULL, *c, found);
    } else {
        int i = 0;
        for (const cJSON *one = v->child; one; one = one->next) {
            char path[JSON_PATH_BYTES];
            json_path(path, "samplers[%d]", i);
            if (!cJSON_IsString(one)) return json_wrong_type(path, "a string", one, e);
            if (++i > MAX_SAMPLERS)
                return err_set_param(e, ERR_INVALID, "samplers",
                                     "Invalid value for 'samplers': at most %d.", MAX_SAMPLERS);
            known &= find_sampler(one->valuestring, 0, found);
        }
    }
    switch_samplers(&f->gen, found);
    return known && !found[INFILL] ? 0 : ignored_add(r->ignored, "samplers", e);
}

/* ---- logit_bias ---- */

static int fail_bias(const char *path, const char *why, err *e) {
    return err_set_param(e, ERR_INVALID, path, "Invalid value for '%s': %s.", path, why);
}

static int add_bias(struct gen_options *o, int32_t token, float bias, const char *path, err *e) {
    uint32_t n = o->params.n_bias;
    if (n == ENGINE_MAX_LOGIT_BIAS) return fail_bias(path, "there are too many tokens", e);
    o->bias[n] = (struct engine_logit_bias){token, bias};
    o->params.n_bias = n + 1;
    o->params.bias = o->bias;
    return 0;
}

/* The bias of one token id, or of every token of a text. */
static int read_bias(const struct request *r, const char *text, const cJSON *id, const cJSON *bias,
                     const char *path, struct gen_options *o, err *e) {
    const tokenizer *tok = engine_tokenizer(r->model->engine);
    float value = cJSON_IsFalse(bias) ? -100.0f : (float)bias->valuedouble;
    int64_t one = -1;
    if (!cJSON_IsFalse(bias) && !(cJSON_IsNumber(bias) && value >= -100 && value <= 100))
        return fail_bias(path, "a bias is a number from -100 to 100, or false", e);
    char *end = NULL;
    if (text && *text) one = strtol(text, &end, 10);
    bool is_id = text ? end && !*end && *text != '-' : json_int64(id, &one);
    if (is_id) {
        if (one < 0 || one >= tokenizer_n_vocab(tok))
            return fail_bias(path, "the model has no token of this id", e);
        return add_bias(o, (int32_t)one, value, path, e);
    }
    if (!text) return fail_bias(path, "expected pairs of a token id or a text and a bias", e);
    struct gen_prompt p = {0};
    int rc = tokenizer_encode(tok, text, strlen(text), 0, MAX_BIAS_IDS, &p.ids, &p.n, e);
    if (rc == ERR_TOO_LONG) rc = fail_bias(path, "the text has too many tokens", e);
    for (size_t i = 0; i < p.n && !rc; i++)
        rc = add_bias(o, p.ids[i], value, path, e);
    free(p.ids);
    return rc;
}

static int read_biases(const struct request *r, const cJSON *v, struct gen_options *o, err *e) {
    int rc = 0, i = 0;
    for (const cJSON *one = v ? v->child : NULL; one && !rc; one = one->next) {
        char path[JSON_PATH_BYTES];
        if (cJSON_IsObject(v)) {
            rc = read_bias(r, one->string, NULL, one, "logit_bias", o, e);
            continue;
        }
        json_path(path, "logit_bias[%d]", i++);
        if (!cJSON_IsArray(one) || cJSON_GetArraySize(one) != 2)
            return fail_bias(path, "expected pairs of a token id or a text and a bias", e);
        const cJSON *first = one->child;
        rc = read_bias(r, cJSON_IsString(first) ? first->valuestring : NULL, first, first->next,
                       path, o, e);
    }
    return rc;
}

/* ---- all of it ---- */

static int check_response_fields(const cJSON *list, err *e) {
    int i = 0;
    for (const cJSON *v = list ? list->child : NULL; v; v = v->next, i++) {
        char path[JSON_PATH_BYTES];
        json_path(path, "response_fields[%d]", i);
        if (!cJSON_IsString(v)) return json_wrong_type(path, "a string", v, e);
    }
    return 0;
}

/* A seed of -1, and llama.cpp's number for it, is a random one. */
static void read_seed(struct gen_fields *f) {
    if (f->seed == -1 || f->seed == 4294967295) f->has_seed = false;
}

static int read_options(struct request *r, struct llama_body *b, err *e) {
    struct llama_fields *f = &b->fields;
    const engine *en = r->model->engine;
    preset_recommend(r, &f->gen);
    read_seed(&f->gen);
    if (f->n_probs) {
        f->gen.has_n_logprobs = true;
        f->gen.n_logprobs = f->n_probs;
    }
    int rc = read_samplers(r, f, e);
    int32_t n_vocab = tokenizer_n_vocab(engine_tokenizer(en));
    if (!rc) rc = gen_options_read(&f->gen, n_vocab, r->ignored, &b->options, e);
    if (!rc) rc = read_biases(r, f->logit_bias, &b->options, e);
    if (!rc) rc = check_response_fields(f->response_fields, e);
    b->form.model = r->model;
    return rc ? rc : chat_format_read(&f->gen, &b->form, e);
}

int llama_body_read(struct request *r, const cJSON *json, const struct json_table *table,
                    struct llama_body *b, err *e) {
    chat_request_init(&b->form, r->ignored);
    gen_fields_default(&b->fields.gen);
    llama_sampling_default(&b->fields.gen);
    int rc = gen_body_read(json, table, &b->fields, e);
    if (!rc) rc = api_body_model(r, b->fields.gen.model, e);
    return rc ? rc : read_options(r, b, e);
}

void llama_body_fini(struct llama_body *b) {
    chat_request_fini(&b->form);
}
