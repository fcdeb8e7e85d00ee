/* vocab_hf.c - converts a tokenizer.json, as read by core/formats, into a struct vocab. Rules: the
 * tokenizers library, and transformers for the files beside it. */
#include "core/tokenizer/tokenizer_int.h"

#include "core/base/mem.h"
#include "core/formats/hf/tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void close_hf(void *source) {
    hf_tokenizer_close(source);
}

static uint32_t count_ids(const struct hf_tokenizer *h) {
    int32_t highest = -1;
    for (uint32_t i = 0; i < h->n_tokens; i++)
        if (h->tokens[i].id > highest) highest = h->tokens[i].id;
    for (uint32_t i = 0; i < h->n_added; i++)
        if (h->added[i].token.id > highest) highest = h->added[i].token.id;
    return (uint32_t)highest + 1;
}

static int read_tokens(const struct hf_tokenizer *h, struct vocab *v, err *e) {
    for (uint32_t i = 0; i < h->n_tokens; i++) {
        const struct hf_token *from = &h->tokens[i];
        struct vocab_token *to = &v->tokens[from->id];
        size_t len = strlen(from->text);
        if (to->len) return err_set(e, ERR_FORMAT, "two tokens have the id %" PRId32, from->id);
        if (len > VOCAB_MAX_TEXT_BYTES)
            return err_set(e, ERR_FORMAT, "token %" PRId32 " has %zu bytes (expected at most %d)",
                           from->id, len, VOCAB_MAX_TEXT_BYTES);
        to->text = from->text;
        to->len = (uint32_t)len;
        to->type = TOKEN_NORMAL;
        to->score = from->score;
        if (v->rules.byte_fallback && vocab_byte_value(to->text, to->len) >= 0)
            to->type = TOKEN_BYTE;
        if (h->unk && strcmp(h->unk, from->text) == 0) v->unk = from->id;
    }
    return 0;
}

/* Added tokens may have ids of the vocabulary. */
int vocab_take_added(const struct hf_tokenizer *h, struct vocab *v, err *e) {
    for (uint32_t i = 0; i < h->n_added; i++) {
        const struct hf_added *from = &h->added[i];
        struct vocab_token *to = &v->tokens[from->token.id];
        size_t len = strlen(from->token.text);
        if (len > VOCAB_MAX_TEXT_BYTES)
            return err_set(e, ERR_FORMAT,
                           "added token %" PRId32 " has %zu bytes (expected at most %d)",
                           from->token.id, len, VOCAB_MAX_TEXT_BYTES);
        to->text = from->token.text;
        to->len = (uint32_t)len;
        if (to->type == TOKEN_UNKNOWN && from->special) continue;
        to->type = from->special ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
        to->flags =
            (uint8_t)((from->lstrip ? TOKEN_LSTRIP : 0) | (from->rstrip ? TOKEN_RSTRIP : 0) |
                      (from->single_word ? TOKEN_SINGLE_WORD : 0) |
                      (from->normalized && v->is_bpe ? TOKEN_NORMALIZED : 0));
        if (h->unk && strcmp(h->unk, from->token.text) == 0) v->unk = from->token.id;
    }
    return 0;
}

static int read_merges(const struct hf_tokenizer *h, struct vocab *v, err *e) {
    v->n_merges = h->n_merges;
    v->merges = mem_new(h->n_merges, sizeof *v->merges);
    if (!v->merges) return err_no_memory(e);
    for (uint32_t i = 0; i < h->n_merges; i++) {
        const struct hf_merge *m = &h->merges[i];
        v->merges[i] = (struct vocab_merge){m->left, m->right, m->left_len, m->right_len};
    }
    return 0;
}

int vocab_add_normalizer(struct vocab *v, const struct hf_step *s, err *e) {
    static const enum normalizer_kind kinds[] = {[HF_NFC] = NORMALIZER_NFC,
                                                 [HF_NFD] = NORMALIZER_NFD,
                                                 [HF_LOWERCASE] = NORMALIZER_LOWERCASE,
                                                 [HF_STRIP] = NORMALIZER_STRIP,
                                                 [HF_REPLACE] = NORMALIZER_REPLACE,
                                                 [HF_PREPEND] = NORMALIZER_PREPEND,
                                                 [HF_CHARSMAP] = NORMALIZER_CHARSMAP};
    struct charsmap *map = NULL;
    if (!v->norm) v->norm = normalizer_new(v->rules.flags);
    if (!v->norm) return err_no_memory(e);
    int rc = s->kind == HF_CHARSMAP ? charsmap_new_base64(s->content, &map, e) : 0;
    if (rc) return rc;
    struct normalizer_step step = {.map = map,
                                   .kind = kinds[s->kind],
                                   .left = s->left,
                                   .right = s->right,
                                   .literal = s->literal,
                                   .pattern = s->pattern,
                                   .content = map ? NULL : s->content};
    return normalizer_add(v->norm, &step, e);
}

static int read_normalizer(const struct hf_tokenizer *h, struct vocab *v, err *e) {
    int rc = 0;
    for (unsigned i = 0; !rc && i < h->normalizer.n; i++)
        rc = vocab_add_normalizer(v, &h->normalizer.items[i], e);
    return rc;
}

static int add_pretok_step(struct pretok *p, const struct hf_step *s, bool last, err *e) {
    static const enum pretok_behavior behaviors[] = {[HF_ISOLATED] = PRETOK_ISOLATED,
                                                     [HF_REMOVED] = PRETOK_REMOVED,
                                                     [HF_MERGED_WITH_PREVIOUS] =
                                                         PRETOK_WITH_PREVIOUS,
                                                     [HF_MERGED_WITH_NEXT] = PRETOK_WITH_NEXT,
                                                     [HF_CONTIGUOUS] = PRETOK_CONTIGUOUS};
    static const enum pretok_prepend prepends[] = {[HF_PREPEND_NEVER] = PRETOK_NEVER,
                                                   [HF_PREPEND_FIRST] = PRETOK_FIRST,
                                                   [HF_PREPEND_ALWAYS] = PRETOK_ALWAYS};
    struct pretok_split split = {.pattern = s->pattern,
                                 .literal = s->literal,
                                 .invert = s->invert,
                                 .behavior = behaviors[s->behavior]};
    switch (s->kind) {
    case HF_SPLIT:
        return pretok_add_split(p, &split, e);
    case HF_PREFIX_SPACE:
        return pretok_add_prefix_space(p, e);
    case HF_METASPACE:
        return pretok_add_metaspace(p, s->content, prepends[s->prepend], s->split, e);
    default:
        return last ? 0 : pretok_add_alphabet(p, e);
    }
}

static int read_pre_tokenizer(const struct hf_tokenizer *h, struct vocab *v, err *e) {
    int rc = bpe_rules_init(&v->rules, e);
    for (unsigned i = 0; !rc && i < h->pre_tokenizer.n; i++) {
        const struct hf_step *s = &h->pre_tokenizer.items[i];
        bool bytes = s->kind == HF_BYTE_LEVEL;
        if (bytes && v->rules.byte_level)
            return err_set(e, ERR_UNSUPPORTED,
                           "a pre_tokenizer with ByteLevel twice is not supported");
        if (s->kind == HF_METASPACE && v->rules.byte_level)
            return err_set(e, ERR_UNSUPPORTED,
                           "a pre_tokenizer with Metaspace after ByteLevel is not supported");
        v->rules.byte_level |= bytes;
        rc = add_pretok_step(v->rules.pretok, s, i + 1 == h->pre_tokenizer.n, e);
    }
    if (!rc && v->rules.byte_level && v->rules.model != BPE_MERGES)
        return err_set(e, ERR_UNSUPPORTED, "ByteLevel with WordPiece or Unigram is not supported");
    if (!rc && v->rules.byte_level != h->decodes_bytes)
        rc = err_set(e, ERR_UNSUPPORTED,
                     "a pre_tokenizer %s ByteLevel with a decoder %s it is not supported",
                     v->rules.byte_level ? "with" : "without",
                     h->decodes_bytes ? "with" : "without");
    return rc;
}

static int32_t find_token(const struct vocab *v, const char *text) {
    size_t len = text ? strlen(text) : 0;
    for (uint32_t i = 0; len && i < v->n; i++)
        if (v->tokens[i].len == len && memcmp(v->tokens[i].text, text, len) == 0) return (int32_t)i;
    return -1;
}

static int take_ids(const struct vocab *v, const int32_t *from, unsigned n, int32_t *to,
                    unsigned *n_to, err *e) {
    for (unsigned i = 0; i < n; i++)
        if ((uint32_t)from[i] >= v->n)
            return err_set(e, ERR_FORMAT, "the post_processor adds the unknown token %" PRId32,
                           from[i]);
    memcpy(to, from, n * sizeof *to);
    *n_to = n;
    return 0;
}

/* The configuration of some classes overrides whether BOS and EOS are added. */
static void take_flag(int flag, int32_t id, int32_t *ids, unsigned *n) {
    if (flag == 0) *n = 0;
    if (flag != 1 || id < 0 || *n) return;
    ids[0] = id;
    *n = 1;
}

int vocab_take_settings(const struct hf_tokenizer *h, struct vocab *v, err *e) {
    int32_t bos = find_token(v, h->bos), eos = find_token(v, h->eos);
    if (bos >= 0) v->bos = bos;
    if (eos >= 0) v->eos = eos;
    v->pad = find_token(v, h->pad);
    if (v->pad < 0 && (uint32_t)h->pad_id < v->n) v->pad = h->pad_id;
    take_flag(h->add_bos, v->bos, v->before, &v->n_before);
    take_flag(h->add_eos, v->eos, v->after, &v->n_after);
    for (unsigned i = 0; i < h->n_eos_ids; i++)
        if ((uint32_t)h->eos_ids[i] < v->n) v->tokens[h->eos_ids[i]].eog = true;
    for (unsigned i = 0; i < h->n_suppressed; i++)
        if ((uint32_t)h->suppressed[i] < v->n) v->tokens[h->suppressed[i]].suppressed = true;
    if (h->chat_template) v->chat_template = mem_strdup(h->chat_template);
    if (h->tool_template) v->tool_template = mem_strdup(h->tool_template);
    return (h->chat_template && !v->chat_template) || (h->tool_template && !v->tool_template)
               ? err_no_memory(e)
               : 0;
}

static int read_settings(const struct hf_tokenizer *h, struct vocab *v, err *e) {
    int rc = take_ids(v, h->before, h->n_before, v->before, &v->n_before, e);
    if (!rc) rc = take_ids(v, h->between, h->n_between, v->between, &v->n_between, e);
    v->has_pair = h->has_pair;
    if (!rc) rc = take_ids(v, h->after, h->n_after, v->after, &v->n_after, e);
    if (!rc) rc = vocab_take_settings(h, v, e);
    if (rc) return rc;
    if (v->bos < 0 && v->n_before) v->bos = v->before[v->n_before - 1];
    if (v->bos < 0 && (uint32_t)h->bos_id < v->n) v->bos = h->bos_id;
    if (v->eos < 0 && h->n_eos_ids && (uint32_t)h->eos_ids[0] < v->n) v->eos = h->eos_ids[0];
    v->space_prefix = h->decoder_strips_space;
    return 0;
}

int vocab_from_hf(struct hf_tokenizer *h, struct vocab *v, err *e) {
    v->hf = v->source = h;
    v->free_source = close_hf;
    v->is_bpe = true;
    v->unk = v->bos = v->eos = v->eot = v->eom = v->pad = -1;
    v->fim = NO_FIM;
    v->rules.model = h->model == HF_MODEL_WORDPIECE ? BPE_WORDPIECE
                     : h->model == HF_MODEL_UNIGRAM ? BPE_UNIGRAM
                                                    : BPE_MERGES;
    if (h->next_prefix && strlen(h->next_prefix) >= BPE_PREFIX_BYTES)
        return err_set(e, ERR_UNSUPPORTED, "the model's continuing_subword_prefix is too long");
    if (h->next_prefix) memcpy(v->rules.next_prefix, h->next_prefix, strlen(h->next_prefix) + 1);
    v->rules.byte_fallback = h->byte_fallback;
    v->rules.fuse_unk = h->fuse_unk;
    v->rules.ignore_merges = h->ignore_merges;
    v->n = count_ids(h);
    v->tokens = mem_new(v->n, sizeof *v->tokens);
    if (!v->tokens) return err_no_memory(e);
    for (uint32_t i = 0; i < v->n; i++)
        v->tokens[i] = (struct vocab_token){.text = "", .type = TOKEN_UNUSED};
    int rc = read_tokens(h, v, e);
    if (!rc) rc = vocab_take_added(h, v, e);
    if (!rc) rc = read_merges(h, v, e);
    if (!rc) rc = read_pre_tokenizer(h, v, e);
    if (!rc) rc = read_normalizer(h, v, e);
    if (!rc) rc = read_settings(h, v, e);
    return rc;
}

int vocab_read_hf(const char *path, struct vocab *v, err *e) {
    struct hf_tokenizer *h = NULL;
    int rc = hf_tokenizer_open(path, &h, e);
    if (rc) return rc;
    rc = vocab_from_hf(h, v, e);
    if (rc) err_prefix(e, "%s: ", path);
    return rc;
}
