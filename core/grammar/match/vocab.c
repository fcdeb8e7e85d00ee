/* vocab.c - makes a vocabulary: copies the tokens' bytes, sorts them into tries and lists. After
 * that only the cache changes. */
#include "core/grammar/match/vocab.h"

#include "core/base/mem.h"
#include "core/text/utf8.h"

#include <stdlib.h>
#include <string.h>

struct sorted_token {
    const uint8_t *bytes;
    uint32_t n;
    int32_t id;
};

static int compare_tokens(const void *a, const void *b) {
    const struct sorted_token *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    if (!order) order = (x->n > y->n) - (x->n < y->n);
    return order ? order : (x->id > y->id) - (x->id < y->id);
}

/* ---- copies ---- */

/* The token as it is used here: one with no bytes, too many bytes or a control byte is NONE. */
static struct grammar_token token_of(const struct grammar_vocab_config *config, uint32_t id) {
    struct grammar_token t = {.kind = GRAMMAR_TOKEN_NONE};
    config->token(config->arg, (int32_t)id, &t);
    bool text = t.kind == GRAMMAR_TOKEN_TEXT, control = t.kind == GRAMMAR_TOKEN_CONTROL;
    if ((text || control) && (!t.n || t.n >= VOCAB_MAX_TOKEN)) t.kind = GRAMMAR_TOKEN_NONE;
    if (text && memchr(t.bytes, (uint8_t)GRAMMAR_CONTROL[0], t.n)) t.kind = GRAMMAR_TOKEN_NONE;
    if (t.kind != GRAMMAR_TOKEN_TEXT && t.kind != GRAMMAR_TOKEN_CONTROL) t.n = 0;
    return t;
}

static void set_bit(uint32_t *mask, uint32_t id) {
    mask[id / 32] |= UINT32_C(1) << id % 32;
}

static int copy_tokens(struct grammar_vocab *v, const struct grammar_vocab_config *config) {
    uint64_t sum = 0;
    for (uint32_t id = 0; id < v->n_vocab; id++)
        sum += token_of(config, id).n + 1;
    v->bytes = mem_new(sum, 1);
    if (!v->bytes) return ERR_NOMEM;
    uint64_t at = 0;
    for (uint32_t id = 0; id < v->n_vocab; id++) {
        struct grammar_token t = token_of(config, id);
        v->starts[id] = at;
        v->kinds[id] = (uint8_t)t.kind;
        if (t.kind == GRAMMAR_TOKEN_END) set_bit(v->ends, id);
        if (t.n) set_bit(v->all, id);
        if (t.kind == GRAMMAR_TOKEN_CONTROL) v->bytes[at++] = (uint8_t)GRAMMAR_CONTROL[0];
        if (t.n) memcpy(v->bytes + at, t.bytes, t.n);
        at += t.n;
    }
    v->starts[v->n_vocab] = at;
    return 0;
}

/* ---- tries ---- */

static uint32_t shared_bytes(const struct sorted_token *a, const struct sorted_token *b) {
    uint32_t n = 0;
    while (n < a->n && n < b->n && a->bytes[n] == b->bytes[n])
        n++;
    return n;
}

/* tokens are sorted. Of equal ones the trie holds the first; same leads to the others. */
static int trie_init(struct trie *t, const struct sorted_token *tokens, uint32_t n, int32_t *same) {
    uint64_t n_nodes = 0;
    uint32_t path[VOCAB_MAX_TOKEN + 1] = {0}, depth = 0;
    for (uint32_t i = 0; i < n; i++)
        n_nodes += tokens[i].n - (i ? shared_bytes(&tokens[i - 1], &tokens[i]) : 0);
    if (n_nodes > UINT32_MAX || !(t->nodes = mem_new(n_nodes, sizeof *t->nodes))) return ERR_NOMEM;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t common = i ? shared_bytes(&tokens[i - 1], &tokens[i]) : 0;
        if (i && common == tokens[i].n && common == tokens[i - 1].n) {
            same[tokens[i - 1].id] = tokens[i].id;
            continue;
        }
        for (; depth > common; depth--)
            t->nodes[path[depth]].end = t->n;
        while (depth < tokens[i].n) {
            t->nodes[t->n] = (struct trie_node){
                .token = -1, .depth = (uint16_t)(depth + 1), .byte = tokens[i].bytes[depth]};
            path[++depth] = t->n++;
        }
        t->nodes[path[depth]].token = tokens[i].id;
    }
    for (; depth > 0; depth--)
        t->nodes[path[depth]].end = t->n;
    return 0;
}

/* Role of a token within a JSON string, between two characters. */
enum string_use { USE_NEVER, USE_PLAIN, USE_OTHER };

static enum string_use use_of(const struct sorted_token *t, uint32_t *n_code_points) {
    uint32_t missing = 0;
    *n_code_points = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        uint8_t byte = t->bytes[i];
        *n_code_points += !missing;
        if (!utf8_step(&missing, byte) || byte < 0x20) return USE_NEVER;
        if (byte == '"' || byte == '\\') return USE_OTHER;
    }
    return missing || *n_code_points > VOCAB_MAX_PLAIN ? USE_OTHER : USE_PLAIN;
}

static int sort_uses(struct grammar_vocab *v, struct sorted_token *tokens, uint32_t n) {
    uint32_t n_others = 0, n_code_points;
    for (uint32_t i = 0; i < n; i++) {
        enum string_use use = use_of(&tokens[i], &n_code_points);
        if (use == USE_PLAIN)
            set_bit(v->plain + (uint64_t)n_code_points * v->n_words, (uint32_t)tokens[i].id);
        if (use == USE_OTHER) tokens[n_others++] = tokens[i];
    }
    for (uint64_t i = v->n_words; i < (uint64_t)(VOCAB_MAX_PLAIN + 1) * v->n_words; i++)
        v->plain[i] |= v->plain[i - v->n_words];
    return trie_init(&v->not_plain, tokens, n_others, v->same);
}

static int make_tries(struct grammar_vocab *v) {
    uint32_t n = 0;
    struct sorted_token *tokens = mem_new(v->n_vocab, sizeof *tokens);
    if (!tokens) return ERR_NOMEM;
    for (uint32_t id = 0; id < v->n_vocab; id++) {
        v->same[id] = -1;
        tokens[n].id = (int32_t)id;
        tokens[n].n = vocab_token_bytes(v, id, &tokens[n].bytes);
        n += tokens[n].n > 0;
    }
    qsort(tokens, n, sizeof *tokens, compare_tokens);
    int rc = trie_init(&v->trie, tokens, n, v->same);
    if (!rc) rc = sort_uses(v, tokens, n);
    free(tokens);
    return rc;
}

/* ---- tokens by their bytes ---- */

/* For each distinct byte b of the token: counts it in at[b], and stores the id if lists is given.
 */
static void note_bytes(struct grammar_vocab *v, uint32_t id, uint32_t *at, int32_t *lists) {
    bool seen[256] = {false};
    const uint8_t *bytes;
    uint32_t n = vocab_token_bytes(v, id, &bytes);
    for (uint32_t i = 0; i < n; i++) {
        if (seen[bytes[i]]) continue;
        seen[bytes[i]] = true;
        if (lists) lists[at[bytes[i]]] = (int32_t)id;
        at[bytes[i]]++;
    }
}

static int make_byte_lists(struct grammar_vocab *v) {
    uint32_t at[256] = {0};
    for (uint32_t id = 0; id < v->n_vocab; id++)
        note_bytes(v, id, at, NULL);
    for (int b = 0; b < 256; b++) {
        v->byte_first[b + 1] = v->byte_first[b] + at[b];
        at[b] = v->byte_first[b];
    }
    v->byte_tokens = mem_new(v->byte_first[256], sizeof *v->byte_tokens);
    if (!v->byte_tokens) return ERR_NOMEM;
    for (uint32_t id = 0; id < v->n_vocab; id++)
        note_bytes(v, id, at, v->byte_tokens);
    return 0;
}

/* ---- life ---- */

int grammar_vocab_new(const struct grammar_vocab_config *config, grammar_vocab **out, err *e) {
    *out = NULL;
    uint64_t n = config->n_vocab, n_words = (n + 31) / 32;
    if (!n || n > INT32_MAX / 2)
        return err_set(e, ERR_INVALID, "the vocabulary has no tokens, or too many");
    grammar_vocab *v = mem_new(1, sizeof *v);
    int rc = v ? cache_init(&v->cache, config->cache_bytes, (uint32_t)n_words) : ERR_NOMEM;
    if (rc) {
        free(v);
        return err_no_memory(e);
    }
    v->n_vocab = (uint32_t)n;
    v->n_words = (uint32_t)n_words;
    v->kinds = mem_new(n, sizeof *v->kinds);
    v->starts = mem_new(n + 1, sizeof *v->starts);
    v->same = mem_new(n, sizeof *v->same);
    v->all = mem_new(n_words, sizeof *v->all);
    v->ends = mem_new(n_words, sizeof *v->ends);
    v->plain = mem_new((VOCAB_MAX_PLAIN + 1) * n_words, sizeof *v->plain);
    rc = v->kinds && v->starts && v->same && v->all && v->ends && v->plain ? 0 : ERR_NOMEM;
    if (!rc) rc = copy_tokens(v, config);
    if (!rc) rc = make_tries(v);
    if (!rc) rc = make_byte_lists(v);
    if (rc) {
        grammar_vocab_free(v);
        return err_no_memory(e);
    }
    *out = v;
    return 0;
}

void grammar_vocab_free(grammar_vocab *v) {
    if (!v) return;
    cache_fini(&v->cache);
    free(v->kinds);
    free(v->bytes);
    free(v->starts);
    free(v->same);
    free(v->all);
    free(v->ends);
    free(v->plain);
    free(v->trie.nodes);
    free(v->not_plain.nodes);
    free(v->byte_tokens);
    free(v);
}

void grammar_vocab_stats(const grammar_vocab *v, struct grammar_vocab_stats *out) {
    struct mask_cache *c = &((grammar_vocab *)v)->cache;
    pthread_mutex_lock(&c->lock);
    *out = (struct grammar_vocab_stats){.n_masks = c->n_masks, .n_hits = c->n_hits};
    pthread_mutex_unlock(&c->lock);
}

size_t grammar_vocab_longest(const grammar_vocab *v, const char *bytes, size_t n, int32_t *token) {
    const struct trie *t = &v->trie;
    size_t longest = 0;
    uint32_t at = 0, end = t->n; /* among the children of the node passed last */
    for (size_t depth = 0; depth < n && at < end;) {
        const struct trie_node *node = &t->nodes[at];
        if (node->byte != (uint8_t)bytes[depth]) {
            at = node->end;
            continue;
        }
        depth++;
        if (node->token >= 0) longest = depth, *token = node->token;
        at++;
        end = node->end;
    }
    while (longest && v->same[*token] >= 0)
        *token = v->same[*token];
    return longest;
}
