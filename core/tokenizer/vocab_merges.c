/* vocab_merges.c - converts merges by rank into SentencePiece's scores. Pure; any thread.
 *
 * SentencePiece merges the adjacent tokens whose joint text is the token of highest score; every
 * pair whose joint text is a token may merge. A list of merges is equivalent only if it contains
 * every such pair, and the pairs of a token are consecutive. This holds for lists derived from
 * SentencePiece models, not for learned merges. */
#include "core/tokenizer/tokenizer_int.h"

#include "core/base/mem.h"
#include "core/text/utf8.h"

#include <stdlib.h>
#include <string.h>

/* The merges that produce one token. */
struct made {
    uint32_t n, first, last;
};

static bool can_merge(const struct vocab_token *t) {
    return t->len && t->type == TOKEN_NORMAL;
}

/* The mergeable token with this text, or -1. */
static int32_t find_named(const struct named *names, uint32_t n, const char *text, uint32_t len) {
    const struct named *it = named_find(names, n, text, len);
    return it ? it->id : -1;
}

static bool note_merge(const struct vocab *v, const struct named *names, uint32_t n, uint32_t rank,
                       struct made *made) {
    char joined[2 * VOCAB_MAX_TEXT_BYTES];
    const struct vocab_merge *m = &v->merges[rank];
    if (m->left_len > VOCAB_MAX_TEXT_BYTES || m->right_len > VOCAB_MAX_TEXT_BYTES) return false;
    memcpy(joined, m->left, m->left_len);
    memcpy(joined + m->left_len, m->right, m->right_len);
    int32_t id = find_named(names, n, joined, m->left_len + m->right_len);
    bool known = id >= 0 && find_named(names, n, m->left, m->left_len) >= 0 &&
                 find_named(names, n, m->right, m->right_len) >= 0;
    if (!known) return false;
    if (!made[id].n++) made[id].first = rank;
    made[id].last = rank;
    return true;
}

/* Counts the ways to split the token's text into two tokens. */
static uint32_t count_cuts(const struct named *names, uint32_t n, const struct vocab_token *t) {
    uint32_t cuts = 0;
    for (uint32_t i = 1; i < t->len; i++)
        cuts += !utf8_continues(t->text[i]) && find_named(names, n, t->text, i) >= 0 &&
                find_named(names, n, t->text + i, t->len - i) >= 0;
    return cuts;
}

bool vocab_scores_of_merges(const struct vocab *v, float *scores) {
    struct named *names = mem_new(v->n, sizeof *names);
    struct made *made = mem_new(v->n, sizeof *made);
    bool same = names && made;
    uint32_t n = 0;
    for (uint32_t i = 0; same && i < v->n; i++)
        if (can_merge(&v->tokens[i]))
            names[n++] = (struct named){v->tokens[i].text, v->tokens[i].len, (int32_t)i};
    if (same) named_sort(names, n);
    for (uint32_t i = 0; same && i < v->n_merges; i++)
        same = note_merge(v, names, n, i, made);
    for (uint32_t i = 0; same && i < v->n; i++) {
        const struct made *m = &made[i];
        /* Tokens that no merge produces (single characters) come last. */
        scores[i] = -(float)(m->n ? m->first : v->n_merges);
        if (!can_merge(&v->tokens[i])) continue;
        same = m->n == count_cuts(names, n, &v->tokens[i]) &&
               (!m->n || m->last - m->first + 1 == m->n);
    }
    free(names);
    free(made);
    return same;
}
