/* settings.c - how an answer is generated, in llama.cpp's words: "generation_settings" of an
 * answer, "params" of /props. Samplers that this server does not have are given as off. Pure; any
 * thread. */
#include "api/http/json.h"
#include "api/llamacpp/llamacpp.h"

#include <inttypes.h>

static void add_number(str *out, const char *name, double v) {
    str_addf(out, "\"%s\":%.7g,", name, v);
}

static void add_integer(str *out, const char *name, int64_t v) {
    str_addf(out, "\"%s\":%" PRId64 ",", name, v);
}

static void add_switch(str *out, const char *name, bool on) {
    str_addf(out, "\"%s\":%s,", name, on ? "true" : "false");
}

static void add_sampling(const struct sampling *s, str *out) {
    add_number(out, "temperature", (double)s->temperature);
    add_integer(out, "top_k", s->top_k);
    add_number(out, "top_p", (double)s->top_p);
    add_number(out, "min_p", (double)s->min_p);
    add_number(out, "repeat_penalty", (double)s->repetition_penalty);
    add_number(out, "presence_penalty", (double)s->presence_penalty);
    add_number(out, "frequency_penalty", (double)s->frequency_penalty);
    add_integer(out, "repeat_last_n", -1);
    str_add(out, "\"dynatemp_range\":0,\"dynatemp_exponent\":1,\"top_n_sigma\":-1,"
                 "\"xtc_probability\":0,\"xtc_threshold\":0.1,\"typical_p\":1,"
                 "\"dry_multiplier\":0,\"mirostat\":0,"
                 "\"samplers\":[\"penalties\",\"temperature\",\"top_k\",\"top_p\",\"min_p\"],");
}

static void add_bias(const struct engine_params *p, str *out) {
    str_add(out, "\"logit_bias\":[");
    for (uint32_t i = 0; i < p->n_bias; i++)
        str_addf(out, "%s{\"token\":%d,\"bias\":%.7g}", i ? "," : "", (int)p->bias[i].token,
                 (double)p->bias[i].bias);
    str_add(out, "],");
}

static void add_stops(const struct llama_settings *s, str *out) {
    str_add(out, "\"stop\":[");
    for (uint32_t i = 0; i < s->n_stops; i++) {
        if (i) str_add_char(out, ',');
        json_add_cstr(out, s->stops[i]);
    }
    str_add(out, "],");
}

static void add_form(const struct chat_format *form, str *out) {
    str_add(out, "\"grammar\":");
    json_add_cstr(out, form && form->kind == CHAT_FORMAT_GBNF ? form->text : "");
    if (form && form->kind == CHAT_FORMAT_SCHEMA) {
        str_add(out, ",\"json_schema\":");
        json_add_value(out, form->value);
    }
}

void llama_add_settings(const struct llama_settings *s, str *out) {
    const struct engine_params *p = s->params;
    str_add_char(out, '{');
    if (p->has_seed)
        add_integer(out, "seed", p->seed);
    else
        str_add(out, "\"seed\":4294967295,"); /* llama.cpp's number for a random one */
    add_sampling(&p->sampling, out);
    add_integer(out, "n_predict", s->n_predict);
    add_integer(out, "max_tokens", s->n_predict);
    add_integer(out, "n_probs", p->n_logprobs < 0 ? 0 : p->n_logprobs);
    add_integer(out, "n_keep", 0);
    add_integer(out, "n_discard", 0);
    add_integer(out, "n_indent", s->n_indent);
    add_integer(out, "t_max_predict_ms", s->t_max_predict_ms);
    add_switch(out, "ignore_eos", p->ignore_eos);
    add_switch(out, "stream", s->stream);
    add_switch(out, "timings_per_token", s->timings_per_token);
    add_switch(out, "post_sampling_probs", false);
    add_bias(p, out);
    add_stops(s, out);
    str_add(out, "\"lora\":[],");
    add_form(s->form, out);
    str_add_char(out, '}');
}
