/* params.c - default parameters of a request and the check of their bounds. Any thread. */
#include "core/engine/engine_int.h"

void engine_params_default(struct engine_params *p) {
    *p = (struct engine_params){.sampling = sampling_default(), .n_logprobs = -1};
}

static int check_bias(const struct engine_params *p, uint32_t n_vocab, err *e) {
    if (p->n_bias > ENGINE_MAX_LOGIT_BIAS)
        return err_set_param(e, ERR_INVALID, "logit_bias", "logit_bias has %u tokens; at most %d",
                             p->n_bias, ENGINE_MAX_LOGIT_BIAS);
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

int engine_params_check(const struct engine_params *p, uint32_t n_vocab, err *e) {
    int rc = sampling_check(&p->sampling, e);
    if (rc) return rc;
    if (p->n_logprobs < -1 || p->n_logprobs > ENGINE_MAX_TOP_LOGPROBS)
        return err_set_param(e, ERR_INVALID, "top_logprobs", "top_logprobs must be 0 to %d",
                             ENGINE_MAX_TOP_LOGPROBS);
    return check_bias(p, n_vocab, e);
}

uint32_t engine_most_blocks(const engine *en, const struct engine_params *p) {
    if (!p->kv_percent || p->priority == ENGINE_PRIORITY_BACKGROUND) return 0;
    uint64_t n = (uint64_t)en->kv_blocks * p->kv_percent / 100;
    return n ? (uint32_t)n : 1;
}
