/* peer_fields.c - fields of other servers (llama.cpp, vLLM, Ollama, LM Studio) that clients send to
 * any server: aliases, what this server refuses because it would change the answer, and what it
 * ignores because it would not. Owns nothing; pool threads. */
#include "api/generate/fields.h"

#define AT(member)  .offset = offsetof(struct gen_fields, member)
#define HAS(member) .has = 1 + offsetof(struct gen_fields, member)

enum { NUL = JSON_NULLABLE };

static bool is_number(const cJSON *v, double wanted) {
    return cJSON_IsNumber(v) && v->valuedouble == wanted;
}

static bool is_zero(const cJSON *v) {
    return is_number(v, 0) || cJSON_IsFalse(v);
}

static bool is_one(const cJSON *v) {
    return is_number(v, 1);
}

static bool is_minus_one(const cJSON *v) {
    return is_number(v, -1);
}

static bool is_true(const cJSON *v) {
    return cJSON_IsTrue(v);
}

static bool is_negative(const cJSON *v) {
    return cJSON_IsNumber(v) && v->valuedouble <= 0;
}

#define REFUSED(field, harmless, reason)                                                           \
    { .name = field, .type = JSON_REFUSED, .flags = NUL, .accepts = harmless, .why = reason }
#define ADVISORY(field, harmless, reason)                                                          \
    { .name = field, .type = JSON_ADVISORY, .flags = NUL, .accepts = harmless, .why = reason }
#define RENAMED(ALIAS, NAME, KIND, LEAST, MOST, INITIAL, HELP)                                     \
    {                                                                                              \
        .name = ALIAS, .flags = NUL, AT(NAME), HAS(sent.NAME), .initial = #INITIAL,                \
        GEN_SAMPLING(KIND, LEAST, MOST, HELP)                                                      \
    }

static const char no_sampler[] = "this sampler is not supported: omit the field";
static const char sampler_off[] = "it belongs to a sampler that is off";
static const char own_order[] = "samplers have a fixed order";
static const char own_cache[] = "prefixes are cached automatically";
static const char own_slots[] = "the server schedules requests itself";
static const char no_beams[] = "beam search is not supported";
static const char plain_form[] = "answers have one form";

static const struct json_field sampler_fields[] = {
    SAMPLING_REPETITION_PENALTY(RENAMED, "repeat_penalty"),
    ADVISORY("repeat_last_n", is_minus_one, "penalties apply to the whole text (-1)"),
    REFUSED("penalize_newline", is_true, "penalties apply to all tokens"),
    REFUSED("typical_p", is_one, no_sampler),
    REFUSED("typ_p", is_one, no_sampler),
    REFUSED("tfs_z", is_one, no_sampler),
    REFUSED("top_a", is_zero, no_sampler),
    REFUSED("top_n_sigma", is_negative, no_sampler),
    REFUSED("epsilon_cutoff", is_zero, no_sampler),
    REFUSED("eta_cutoff", is_zero, no_sampler),
    REFUSED("smoothing_factor", is_zero, no_sampler),
    REFUSED("dynatemp_range", is_zero, no_sampler),
    ADVISORY("dynatemp_exponent", is_one, sampler_off),
    REFUSED("xtc_probability", is_zero, no_sampler),
    ADVISORY("xtc_threshold", NULL, sampler_off),
    REFUSED("dry_multiplier", is_zero, no_sampler),
    ADVISORY("dry_base", NULL, sampler_off),
    ADVISORY("dry_allowed_length", NULL, sampler_off),
    ADVISORY("dry_penalty_last_n", NULL, sampler_off),
    ADVISORY("dry_sequence_breakers", NULL, sampler_off),
    REFUSED("mirostat", is_zero, no_sampler),
    ADVISORY("mirostat_tau", NULL, sampler_off),
    ADVISORY("mirostat_eta", NULL, sampler_off),
    ADVISORY("samplers", NULL, own_order),
    ADVISORY("sampler_seq", NULL, own_order),
    ADVISORY("min_keep", is_zero, own_order),
};
const struct json_table gen_sampler_table = JSON_TABLE(sampler_fields, NULL);

static const struct json_field fields[] = {
    {"n_predict", JSON_INT, NUL, AT(n_predict), HAS(has_n_predict), -2, 2147483647.0,
     .help = "llama.cpp's name of max_tokens; below 0: up to the context "
             "length, 0: nothing is generated, only the prompt is cached."},
    REFUSED("min_tokens", is_zero, "answers end where the model ends them: see ignore_eos"),
    REFUSED("stop_token_ids", NULL, "use 'stop'"),
    REFUSED("bad_words", NULL, "use 'logit_bias'"),
    REFUSED("allowed_token_ids", NULL, "use 'logit_bias' or a grammar"),
    REFUSED("include_stop_str_in_output", NULL, "answers end before a stop string"),
    REFUSED("skip_special_tokens", is_true, "control tokens are never text"),
    REFUSED("return_tokens_as_token_ids", NULL, plain_form),
    REFUSED("logits_processors", NULL, "the server runs no code of clients"),
    REFUSED("truncate_prompt_tokens", is_minus_one, "prompts are never truncated"),
    REFUSED("prompt_logprobs", is_zero, "use /v1/completions with 'echo' and 'logprobs'"),
    REFUSED("n_probs", is_zero, "use 'logprobs'"),
    REFUSED("use_beam_search", NULL, no_beams),
    REFUSED("lora", NULL, "the server loads no adapters"),
    ADVISORY("length_penalty", is_one, no_beams),
    ADVISORY("early_stopping", NULL, no_beams),
    ADVISORY("spaces_between_special_tokens", is_true, "control tokens are never text"),
    ADVISORY("n_keep", is_zero, "prompts are never truncated"),
    ADVISORY("n_discard", is_zero, "prompts are never truncated"),
    ADVISORY("cache_prompt", is_true, own_cache),
    ADVISORY("n_cache_reuse", is_zero, own_cache),
    ADVISORY("id_slot", is_minus_one, own_slots),
    ADVISORY("slot_id", is_minus_one, own_slots),
    ADVISORY("t_max_predict_ms", is_negative, "use the header X-Request-Timeout-Ms"),
    ADVISORY("timings_per_token", NULL, plain_form),
    ADVISORY("return_progress", NULL, plain_form),
    ADVISORY("return_tokens", NULL, plain_form),
    ADVISORY("post_sampling_probs", NULL, plain_form),
    ADVISORY("ttl", NULL, "loaded models stay loaded"),
    ADVISORY("keep_alive", NULL, "loaded models stay loaded"),
    ADVISORY("draft_model", NULL, "it could only save time"),
    ADVISORY("request_id", NULL, "use the header X-Request-Id"),
};
const struct json_table gen_peer_table = JSON_TABLE(fields, &gen_sampler_table);
