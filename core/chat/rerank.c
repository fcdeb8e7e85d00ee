/* rerank.c - see rerank.h. */
#include "core/chat/rerank.h"

#include <stdbool.h>
#include <string.h>

const char rerank_qwen3_template[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that "
    "answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n";

static const char instruct[] = "<Instruct>: ";

/* The places of a template that are replaced. */
enum slot { SLOT_INSTRUCTION, SLOT_QUERY, SLOT_DOCUMENT, N_SLOTS };

/* The next slot at or after p: *at and *end are its bytes. N_SLOTS: none. */
static enum slot find_slot(const struct rerank_input *in, const char *p, const char **at,
                           const char **end) {
    static const char *const marks[N_SLOTS] = {instruct, "{query}", "{document}"};
    enum slot best = N_SLOTS;
    for (int s = in->instruction.text ? SLOT_INSTRUCTION : SLOT_QUERY; s < N_SLOTS; s++) {
        const char *found = strstr(p, marks[s]);
        if (!found || (best < N_SLOTS && found >= *at)) continue;
        best = (enum slot)s;
        *at = found;
        *end = found + strlen(marks[s]);
    }
    if (best == SLOT_INSTRUCTION) { /* the line's rest */
        *at = *end;
        *end += strcspn(*end, "\n");
    }
    return best;
}

static bool add_piece(tokenizer_piece *pieces, size_t *n, const char *text, size_t len,
                      bool trusted) {
    if (*n == RERANK_MAX_PIECES) return false;
    if (len) pieces[(*n)++] = (tokenizer_piece){.text = text, .n = len, .trusted = trusted};
    return true;
}

int rerank_split(const struct rerank_input *in, tokenizer_piece pieces[RERANK_MAX_PIECES],
                 size_t *n, err *e) {
    const struct rerank_text texts[N_SLOTS] = {in->instruction, in->query, in->document};
    bool seen[N_SLOTS] = {false}, fits = true;
    const char *p = in->source, *at = p, *end = p;
    *n = 0;
    if (strstr(p, "{%") || strstr(p, "{{"))
        return err_set(e, ERR_UNSUPPORTED,
                       "this model's template for reranking is in Jinja; this build knows "
                       "templates with {query} and {document}");
    for (enum slot s; fits && (s = find_slot(in, p, &at, &end)) < N_SLOTS; p = end) {
        fits = add_piece(pieces, n, p, (size_t)(at - p), true) &&
               add_piece(pieces, n, texts[s].text, texts[s].n, false);
        seen[s] = true;
    }
    fits = fits && add_piece(pieces, n, p, strlen(p), true);
    if (!fits || !seen[SLOT_QUERY] || !seen[SLOT_DOCUMENT])
        return err_set(e, ERR_UNSUPPORTED,
                       "this model's template for reranking lacks {query} or {document}, or "
                       "repeats them too often");
    if (in->instruction.text && !seen[SLOT_INSTRUCTION])
        return err_set_param(e, ERR_UNSUPPORTED, "instruction",
                             "Unsupported value for 'instruction': this model's template for "
                             "reranking has no place for it.");
    return 0;
}
