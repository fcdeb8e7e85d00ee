/* words.c - WordPiece (Schuster, Nakajima, 2012; as BERT has it): the longest token first; and
 * Unigram (Kudo, 2018): the tokens whose scores have the largest sum. Both as the tokenizers
 * library computes them. Immutable; any thread. */
#include "core/tokenizer/bpe_int.h"

#include "core/base/mem.h"
#include "core/text/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { WORD_MAX_CHARS = 100, MAX_PIECE_BYTES = 64 << 20 };
static const double unknown_penalty = 10; /* below the lowest score */

/* Text may become these tokens. */
static bool is_usable(const struct bpe *b, int32_t id) {
    const struct token *k = id == NO_ID ? NULL : &b->t->tokens[id];
    return k && k->type != TOKEN_CONTROL && k->type != TOKEN_UNKNOWN;
}

static int add_unknown(const struct bpe *b, struct id_list *out, err *e) {
    return b->unk == NO_ID ? 0 : id_list_add(out, b->unk, e);
}

/* The longest token at the start of prefix + text[0..n): its id, *len bytes of text. */
static int32_t longest(const struct bpe *b, const char *prefix, const char *text, size_t n,
                       size_t *len) {
    char buffer[BPE_PREFIX_BYTES + 4 * WORD_MAX_CHARS];
    const size_t n_prefix = strlen(prefix);
    memcpy(buffer, prefix, n_prefix);
    memcpy(buffer + n_prefix, text, n);
    for (*len = n; *len; --*len) {
        if (*len < n && utf8_continues(text[*len])) continue;
        const int32_t id = bpe_find_text(b, buffer, n_prefix + *len);
        if (is_usable(b, id)) return id;
    }
    return NO_ID;
}

int wordpiece_encode(const struct bpe *b, const char *text, size_t n, struct id_list *out, err *e) {
    const size_t before = out->n;
    size_t n_chars = 0, len;
    for (size_t i = 0; i < n; i++)
        n_chars += !utf8_continues(text[i]);
    if (n_chars > WORD_MAX_CHARS || n > 4 * WORD_MAX_CHARS) return add_unknown(b, out, e);
    for (size_t i = 0; i < n; i += len) {
        const char *prefix = i ? b->rules.next_prefix : b->rules.first_prefix;
        const int32_t id = longest(b, prefix, text + i, n - i, &len);
        if (id == NO_ID) { /* then the whole word is unknown */
            out->n = before;
            return add_unknown(b, out, e);
        }
        int rc = id_list_add(out, id, e);
        if (rc) return rc;
    }
    return 0;
}

int unigram_init(struct bpe *b, const struct vocab *v, err *e) {
    float lowest = 0;
    b->scores = mem_new(v->n, sizeof *b->scores);
    if (!b->scores) return err_no_memory(e);
    for (uint32_t i = 0; i < v->n; i++) {
        b->scores[i] = v->tokens[i].score;
        if (v->tokens[i].type == TOKEN_NORMAL && v->tokens[i].score < lowest)
            lowest = v->tokens[i].score;
    }
    b->unk_score = (double)lowest - unknown_penalty;
    return 0;
}

/* A way to the end of a token of that score; the first of equal ones stays. */
static void offer(struct word_node *nodes, size_t start, size_t end, double score, int32_t id) {
    struct word_node *to = &nodes[end];
    score += nodes[start].score;
    if (to->start != end && score <= to->score) return;
    *to = (struct word_node){score, start, id};
}

static void find_ways(const struct bpe *b, struct word_node *nodes, const char *text, size_t n) {
    unsigned len;
    for (size_t i = 0; i <= n; i++) /* a node that begins at itself has no way yet */
        nodes[i] = (struct word_node){.start = i, .id = NO_ID};
    for (size_t i = 0; i < n; i += len) {
        bool single = false;
        utf8_decode_valid(text + i, &len);
        for (size_t end = i + len; end <= n && end - i <= b->t->longest_text; end++) {
            if (end < n && utf8_continues(text[end])) continue;
            const int32_t id = bpe_find_text(b, text + i, end - i);
            if (!is_usable(b, id)) continue;
            offer(nodes, i, end, (double)b->scores[id], id);
            single = single || end - i == len;
        }
        if (!single) offer(nodes, i, i + len, b->unk_score, NO_ID);
    }
}

int unigram_encode(const struct bpe *b, struct bpe_work *w, const char *text, size_t n,
                   struct id_list *out, err *e) {
    if (n > MAX_PIECE_BYTES)
        return err_set(e, ERR_TOO_LONG, "a word of %zu bytes is too long (expected at most %d)", n,
                       MAX_PIECE_BYTES);
    if (w->n_nodes < n + 1) {
        free(w->nodes);
        w->nodes = mem_new((uint64_t)n + 1, sizeof *w->nodes);
        w->n_nodes = w->nodes ? n + 1 : 0;
        if (!w->nodes) return err_no_memory(e);
    }
    find_ways(b, w->nodes, text, n);
    const size_t first = out->n;
    bool was_unknown = false;
    int rc = 0;
    for (size_t at = n; !rc && at; at = w->nodes[at].start) { /* from the end, then turned round */
        const int32_t id = w->nodes[at].id;
        if (id != NO_ID)
            rc = id_list_add(out, id, e);
        else if (!was_unknown) /* a run of unknown characters is one token */
            rc = add_unknown(b, out, e);
        was_unknown = id == NO_ID;
    }
    for (size_t i = first, j = out->n; i + 1 < j; i++) {
        const int32_t id = out->ids[--j];
        out->ids[j] = out->ids[i];
        out->ids[i] = id;
    }
    return rc;
}
