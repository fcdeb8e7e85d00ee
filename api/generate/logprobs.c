/* logprobs.c - log-probabilities of tokens in the form of chat and responses. Pure; HTTP
 * threads. */
#include "api/generate/gen.h"
#include "api/http/json.h"

void gen_add_bytes(const unsigned char *bytes, size_t n, str *out) {
    str_add(out, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++)
        str_addf(out, i ? ",%u" : "%u", bytes[i]);
    str_add_char(out, ']');
}

static void add_token(const struct gen *g, int32_t token, float logprob, str *out) {
    size_t n;
    const unsigned char *bytes =
        (const unsigned char *)tokenizer_token_bytes(g->tok, token, true, &n);
    str_add(out, "{\"token\":");
    json_add_string(out, (const char *)bytes, n);
    str_add(out, ",\"logprob\":");
    json_add_number(out, (double)logprob);
    gen_add_bytes(bytes, n, out);
}

void gen_chat_logprob(struct gen *g, struct gen_choice *c, const struct engine_event *ev,
                      bool has_logprob) {
    str *out = &c->logprobs[0];
    (void)has_logprob; /* only prompts lack one, and chat does not echo */
    if (c->n_logprobs) str_add_char(out, ',');
    add_token(g, ev->token, ev->logprob, out);
    str_add(out, ",\"top_logprobs\":[");
    for (int i = 0; i < ev->n_top && i < g->n_logprobs; i++) {
        if (i) str_add_char(out, ',');
        add_token(g, ev->top_token[i], ev->top_logprob[i], out);
        str_add_char(out, '}');
    }
    str_add(out, "]}");
}
