/* params.c - default sampling parameters and their ranges. Any thread. */
#include "core/engine/engine_int.h"

void engine_params_default(struct engine_params *p) {
    *p = (struct engine_params){
        .temperature = 1.0f,
        .top_p = 1.0f,
        .repetition_penalty = 1.0f,
        .n_logprobs = -1,
    };
}

struct range {
    const char *param;
    double value, min, max;
    const char *text;
};

int engine_params_check(const struct engine_params *p, uint32_t n_vocab, err *e) {
    const struct range ranges[] = {
        {"temperature", (double)p->temperature, 0, 2, "0 to 2"},
        {"top_p", (double)p->top_p, 1e-30, 1, "more than 0, at most 1"},
        {"min_p", (double)p->min_p, 0, 1, "0 to 1"},
        {"presence_penalty", (double)p->presence_penalty, -2, 2, "-2 to 2"},
        {"frequency_penalty", (double)p->frequency_penalty, -2, 2, "-2 to 2"},
        {"repetition_penalty", (double)p->repetition_penalty, 1e-3, 1e3, "0.001 to 1000"},
        {"top_logprobs", p->n_logprobs, -1, ENGINE_MAX_TOP_LOGPROBS, "0 to 20"},
        {"logit_bias", p->n_bias, 0, ENGINE_MAX_LOGIT_BIAS, "at most 1024 tokens"},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        const struct range *r = &ranges[i];
        if (!(r->value >= r->min && r->value <= r->max)) /* NaN fails too */
            return err_set_param(e, ERR_INVALID, r->param, "%s must be %s", r->param, r->text);
    }
    for (uint32_t i = 0; i < p->n_bias; i++) {
        const struct engine_logit_bias *b = &p->bias[i];
        if (b->token < 0 || (uint32_t)b->token >= n_vocab)
            return err_set_param(e, ERR_INVALID, "logit_bias",
                                 "logit_bias names token %d; the vocabulary has 0 to %u",
                                 (int)b->token, n_vocab - 1);
        if (!(b->bias >= -100.0f && b->bias <= 100.0f))
            return err_set_param(e, ERR_INVALID, "logit_bias", "a logit_bias must be -100 to 100");
    }
    return 0;
}
