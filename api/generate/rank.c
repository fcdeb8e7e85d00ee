/* rank.c - see rank.h. The prompts of one request usually begin alike, with the template's text and
 * the query: each keeps only what follows the tokens that it shares with the first one. */
#include "api/generate/rank.h"

#include "api/generate/api_state.h"
#include "api/generate/prompts.h"
#include "api/http/request.h"

#include "core/base/mem.h"
#include "core/chat/rerank.h"
#include "core/text/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_UNIT_BYTES = 8 }; /* of text that tokenize in about a unit of work */

struct encoder {
    struct request *r;
    const struct rank_config *config;
    const tokenizer *tok;
    const char *source; /* NULL: the tokenizer joins the texts */
    size_t max_tokens;
};

/* Text of the tree as bytes; *owned: a copy if it holds U+0000. */
static int restore_text(const char *text, struct rerank_text *out, char **owned, err *e) {
    *owned = NULL;
    *out = (struct rerank_text){text, strlen(text)};
    if (!text_holds_nul(text)) return 0;
    *owned = mem_strdup(text);
    if (!*owned) return err_no_memory(e);
    *out = (struct rerank_text){*owned, text_restore_nuls(*owned, text)};
    return 0;
}

/* Cuts a document after max_document_tokens tokens of its own, at a whole character. */
static int cut_document(const struct encoder *c, struct rerank_text *document, err *e) {
    const size_t most = (size_t)c->config->max_document_tokens;
    int32_t *ids = NULL;
    size_t n_ids = 0, n = 0, part;
    if (!most || document->n <= most) return 0; /* a token has a byte at least */
    int rc = tokenizer_encode(c->tok, document->text, document->n, 0, SIZE_MAX, &ids, &n_ids, e);
    if (!rc && n_ids > most) {
        char *text = NULL;
        rc = tokenizer_decode(c->tok, ids, most, true, &text, &part, e);
        /* What decodes to other text (normalizers) is cut at the same length. */
        if (!rc) n = part < document->n ? part : document->n;
        while (n && n < document->n && ((unsigned char)document->text[n] & 0xc0) == 0x80)
            n--;
        if (!rc) document->n = n;
        free(text);
    }
    free(ids);
    return rc;
}

/* rc of encoding a pair, which may be too long. */
static int explain_length(const struct encoder *c, int rc, err *e) {
    if (rc != ERR_TOO_LONG) return rc;
    return err_set_param(e, ERR_TOO_LONG, c->config->document_param,
                         "This model's maximum context length is %zu tokens; a query with its "
                         "document and the prompt around them is longer than that: shorten '%s', "
                         "or '%s'.",
                         c->max_tokens, c->config->document_param, c->config->query_param);
}

/* The texts as an encoder's tokenizer joins them. */
static int join(const struct encoder *c, const struct rerank_input *in, struct gen_prompt *to,
                err *e) {
    const struct tokenizer_text texts[2] = {{in->query.text, in->query.n},
                                            {in->document.text, in->document.n}};
    size_t second = 0;
    if (in->instruction.text)
        return err_set_param(e, ERR_UNSUPPORTED, "instruction",
                             "Unsupported value for 'instruction': this model takes a query and a "
                             "document alone.");
    int rc = tokenizer_encode_pair(c->tok, texts, c->max_tokens, &to->ids, &to->n, &second, e);
    to->second = (uint32_t)second;
    return explain_length(c, rc, e);
}

static int encode(const struct encoder *c, const struct rerank_input *in, struct gen_prompt *to,
                  err *e) {
    tokenizer_piece pieces[RERANK_MAX_PIECES];
    size_t n;
    if (!c->source) return join(c, in, to, e);
    int rc = rerank_split(in, pieces, &n, e);
    if (!rc) rc = tokenizer_encode_pieces(c->tok, pieces, n, 0, c->max_tokens, &to->ids, &to->n, e);
    return explain_length(c, rc, e);
}

static int encode_pair(const struct encoder *c, const struct rank_pair *pair, struct gen_prompt *to,
                       err *e) {
    struct rerank_input in = {.source = c->source};
    const char *const from[3] = {pair->query, pair->document, c->config->instruction};
    struct rerank_text *const texts[3] = {&in.query, &in.document, &in.instruction};
    char *owned[3] = {NULL, NULL, NULL};
    int rc = 0;
    for (int i = 0; !rc && i < 3; i++)
        if (from[i]) rc = restore_text(from[i], texts[i], &owned[i], e);
    if (!rc) rc = cut_document(c, &in.document, e);
    if (!rc && !work_spend(&c->r->work, (in.query.n + in.document.n) / TEXT_UNIT_BYTES + 100))
        rc = work_error(c->r->work.reason, e);
    if (!rc) rc = encode(c, &in, to, e);
    for (int i = 0; i < 3; i++)
        free(owned[i]);
    return rc;
}

/* Drops the tokens that the prompt shares with the first one; the last one stays. */
static int drop_shared(struct gen_prompt *p, const struct gen_prompt *first, err *e) {
    size_t same = 0, least = p->n < first->n ? p->n : first->n;
    while (same + 1 < least && p->ids[same] == first->ids[same])
        same++;
    int32_t *rest = mem_new(p->n - same, sizeof *rest);
    if (!rest) return err_no_memory(e);
    memcpy(rest, p->ids + same, (p->n - same) * sizeof *rest);
    free(p->ids);
    p->ids = rest;
    p->n -= same;
    p->n_shared = same;
    return 0;
}

static int encode_pairs(const struct encoder *c, const struct rank_pair *pairs, size_t n,
                        struct gen_prompt *list, size_t *n_list, err *e) {
    for (size_t i = 0; i < n; i++) {
        int rc = encode_pair(c, &pairs[i], &list[(*n_list)++], e);
        if (!rc && i) rc = drop_shared(&list[i], &list[0], e);
        if (rc) return rc;
    }
    return 0;
}

int rank_check_number(const struct request *r, size_t n, const char *param, err *e) {
    const uint32_t most = r->api->live.max_rerank_documents;
    if (n <= most) return 0;
    return err_set_param(e, ERR_INVALID, param,
                         "Invalid value for '%s': expected at most %u documents, but got %zu.",
                         param, most, n);
}

int rank_start(struct request *r, const struct rank_config *c, const struct rank_pair *pairs,
               size_t n, err *e) {
    engine *en = r->model->engine;
    const struct engine_model m = engine_model(en);
    const char *source = tokenizer_rerank_template(engine_tokenizer(en));
    struct encoder encoder = {.r = r,
                              .config = c,
                              .tok = engine_tokenizer(en),
                              .source = m.only_embeds ? NULL
                                        : source      ? source
                                                      : rerank_qwen3_template,
                              .max_tokens = engine_context_length(en)};
    struct embed_config config = {.pooling = EMBED_RANK,
                                  .param = c->document_param,
                                  .cache_salt = c->cache_salt,
                                  .norm = c->raw ? EMBED_AS_COMPUTED : EMBED_SIGMOID,
                                  .arg = c->arg,
                                  .free_arg = c->free_arg,
                                  .write = c->write};
    int rc = 0;
    if (!m.scores)
        rc = err_set_param(e, ERR_UNSUPPORTED, "model", "The model '%s' cannot score: %.330s.",
                           r->model->id, m.scores_lack);
    if (!rc && !(config.prompts = mem_new(n, sizeof *config.prompts))) rc = err_no_memory(e);
    if (!rc) rc = encode_pairs(&encoder, pairs, n, config.prompts, &config.n_prompts, e);
    if (!rc) return embed_start(r, &config, e);
    if (config.prompts) gen_prompts_free(config.prompts, config.n_prompts);
    c->free_arg(c->arg);
    return rc;
}
