/* constraint.c - holds a sequence to its grammar: the matcher's state after its text, and what may
 * come next. Made at submission on the caller's thread with all its memory; afterwards owned by the
 * worker or by the thread of deferred_masks.c, and nothing allocates.
 *
 * What comes next depends only on the text so far. If the grammar forces bytes, the next token is
 * the longest one of these bytes, except that the last token of a forced run is left to the model,
 * because it may merge with what follows. So an answer does not depend on how many tokens a step
 * took, and continues the same after a preemption or as a continuation. */
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/engine/engine_int.h"

#include <stdlib.h>

enum { FORCED_BYTES = 64 /* lookahead: longer than nearly all tokens */ };

static uint32_t mask_words(const engine *en) {
    return (en->hp.n_vocab + 31) / 32;
}

int constraint_vocab(engine *en, grammar_vocab **out, err *e) {
    int rc = 0;
    pthread_mutex_lock(&en->vocab_lock);
    if (!en->vocab) {
        uint64_t start = clock_now_ns();
        rc = engine_grammar_vocab(en->tok, en->hp.n_vocab, en->config.grammar_cache_bytes,
                                  &en->vocab, e);
        if (!rc)
            log_info(
                "engine: built a trie of %u tokens for grammars in %.0f ms; up to %llu bytes of "
                "masks are cached",
                en->hp.n_vocab, (double)(clock_now_ns() - start) * 1e-6,
                (unsigned long long)en->config.grammar_cache_bytes);
    }
    *out = en->vocab;
    pthread_mutex_unlock(&en->vocab_lock);
    return rc;
}

/* Feeds the matcher the tokens that a continuation has generated before. */
static int replay_tokens(struct constraint *c, const int32_t *tokens, uint32_t n, err *e) {
    for (uint32_t i = 0; i < n; i++)
        if (!grammar_matcher_accept(c->matcher, tokens[i]))
            return err_set_param(e, ERR_INVALID, "prompt",
                                 "the grammar does not allow generated token %u", i);
    return 0;
}

int constraint_init(struct constraint *c, engine *en, const struct engine_request *req, err *e) {
    grammar_vocab *vocab;
    int rc = constraint_vocab(en, &vocab, e);
    if (rc) return rc;
    c->g = grammar_retain(req->params.grammar);
    c->ignore_eos = req->params.ignore_eos;
    c->taken = -1;
    c->mask = mem_new(mask_words(en), sizeof *c->mask);
    if (!c->mask) return err_no_memory(e);
    rc = grammar_matcher_new(c->g, vocab, &c->matcher, e);
    if (rc) return rc;
    return replay_tokens(c, req->prompt + req->n_prompt - req->n_generated, req->n_generated, e);
}

void constraint_fini(struct constraint *c) {
    grammar_matcher_free(c->matcher);
    grammar_release(c->g);
    free(c->mask);
}

static bool find_forced(struct constraint *c, const engine *en) {
    char bytes[FORCED_BYTES];
    size_t n = grammar_matcher_forced(c->matcher, bytes, sizeof bytes);
    size_t longest = n ? grammar_vocab_longest(en->vocab, bytes, n, &c->forced) : 0;
    return longest > 0 && longest < n;
}

/* END: the text can only end. With ignore_eos this is the only place where an end is allowed. */
static enum constraint_next judge_mask(struct constraint *c, const engine *en) {
    bool any = false, other = false;
    for (uint32_t w = 0, n = mask_words(en); w < n && !other; w++)
        for (uint32_t bits = c->mask[w]; bits && !other; bits &= bits - 1) {
            any = true;
            other = !tokenizer_is_eog(en->tok, (int32_t)(w * 32) + __builtin_ctz(bits));
        }
    if (!any) return CONSTRAINT_FAILED;
    if (!other) return CONSTRAINT_END;
    if (c->ignore_eos)
        for (uint32_t i = 0; i < en->n_eog; i++)
            c->mask[en->eog[i] / 32] &= ~(1u << (en->eog[i] % 32));
    return CONSTRAINT_MASK;
}

/* Asks the matcher what may come next. UNKNOWN: its budget is used up. */
static enum constraint_next ask_matcher(struct constraint *c, const engine *en) {
    if (c->taken >= 0) {
        bool allowed = grammar_matcher_accept(c->matcher, c->taken);
        if (grammar_matcher_exhausted(c->matcher)) return CONSTRAINT_UNKNOWN;
        c->taken = -1;
        if (!allowed) return CONSTRAINT_FAILED;
    }
    if (c->last && !grammar_matcher_may_end(c->matcher)) return CONSTRAINT_LAST;
    bool forced = find_forced(c, en);
    if (grammar_matcher_exhausted(c->matcher)) return CONSTRAINT_UNKNOWN;
    if (forced) return CONSTRAINT_FORCED;
    grammar_matcher_mask(c->matcher, c->mask);
    if (grammar_matcher_exhausted(c->matcher)) return CONSTRAINT_UNKNOWN;
    return judge_mask(c, en);
}

void constraint_find_next(struct constraint *c, const engine *en, uint64_t units) {
    if (c->next != CONSTRAINT_UNKNOWN) return;
    grammar_matcher_budget(c->matcher, units);
    c->next = ask_matcher(c, en);
}

void constraint_take(struct constraint *c, int32_t token, bool last) {
    c->next = CONSTRAINT_UNKNOWN;
    c->taken = token;
    c->begun = true;
    c->last = last;
}

void constraint_charge(struct constraint *c, const engine *en, uint64_t ns) {
    uint64_t most = en->config.grammar_work_s * UINT64_C(1000000000);
    c->work_ns += ns;
    if (most && c->work_ns >= most) c->next = CONSTRAINT_COSTLY;
}
