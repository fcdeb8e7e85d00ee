/* vocab.c - describes a tokenizer's tokens to the grammar library. Owns nothing. Any thread. */
#include "core/engine/engine.h"

static void describe_token(const void *arg, int32_t id, struct grammar_token *out) {
    const tokenizer *tok = arg;
    *out = (struct grammar_token){.kind = GRAMMAR_TOKEN_NONE};
    if (id >= tokenizer_n_vocab(tok) || tokenizer_is_suppressed(tok, id)) return;
    if (tokenizer_is_eog(tok, id)) {
        out->kind = GRAMMAR_TOKEN_END;
    } else if (tokenizer_is_control(tok, id)) {
        out->kind = GRAMMAR_TOKEN_CONTROL;
        out->bytes = tokenizer_token_text(tok, id, &out->n);
    } else {
        out->kind = GRAMMAR_TOKEN_TEXT;
        out->bytes = tokenizer_token_bytes(tok, id, false, &out->n);
    }
    if (out->kind != GRAMMAR_TOKEN_END && out->n == 0) out->kind = GRAMMAR_TOKEN_NONE;
}

int engine_grammar_vocab(const tokenizer *tok, uint32_t n_vocab, uint64_t cache_bytes,
                         grammar_vocab **out, err *e) {
    struct grammar_vocab_config config = {
        .n_vocab = n_vocab, .token = describe_token, .arg = tok, .cache_bytes = cache_bytes};
    return grammar_vocab_new(&config, out, e);
}
