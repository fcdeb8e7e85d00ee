/* vocab_write.c - writes a struct vocab as tokenizer.* keys of a GGUF file. Keys follow the GGUF
 * specification; types of tokens and padding follow the format's reference converter. Single
 * thread. */
#include "core/tokenizer/tokenizer_int.h"

#include "core/base/mem.h"
#include "core/formats/gguf/gguf.h"
#include "core/formats/hf/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name

enum { PAD_BYTES = 24, N_SHOWN = 60 };
static const float PAD_SCORE = -10000;

/* The lists as they are written: n tokens, padded. */
struct lists {
    uint32_t n;
    gguf_str *texts; /* (n) */
    int32_t *types;  /* (n) */
    float *scores;   /* (n) */
    uint8_t *flags;  /* (n) */
    char *pads;      /* (n * PAD_BYTES) */
    bool has_flags;
};

static int refuse_vocab(err *e, const char *what, const char *name) {
    return err_set(e, ERR_UNSUPPORTED, "a GGUF file cannot express %s '%.*s'", what, N_SHOWN, name);
}

static const char *step_name(const struct hf_step *s) {
    static const char *const names[] = {[HF_NFC] = "NFC",
                                        [HF_NFD] = "NFD",
                                        [HF_LOWERCASE] = "Lowercase",
                                        [HF_STRIP] = "Strip",
                                        [HF_REPLACE] = "Replace",
                                        [HF_PREPEND] = "Prepend",
                                        [HF_CHARSMAP] = "Precompiled",
                                        [HF_SPLIT] = "Split",
                                        [HF_PREFIX_SPACE] = "ByteLevel with add_prefix_space",
                                        [HF_BYTE_LEVEL] = "ByteLevel",
                                        [HF_METASPACE] = "Metaspace"};
    return names[s->kind];
}

/* A byte-level tokenizer may have only the normalizer NFC. */
static int check_byte_level(const struct hf_tokenizer *h, bool *nfc, err *e) {
    for (unsigned i = 0; i < h->normalizer.n; i++) {
        if (h->normalizer.items[i].kind != HF_NFC)
            return refuse_vocab(e, "normalizer", step_name(&h->normalizer.items[i]));
        *nfc = true;
    }
    return 0;
}

/* Do the merges produce every token? Then ignore_merges has no effect. */
static bool all_are_made(const char *path) {
    struct vocab v;
    tokenizer *t = NULL;
    if (vocab_read(path, &v, NULL)) return false;
    bool all = tokenizer_build(&v, &t, NULL) == 0 && t->bpe && bpe_makes_all(t->bpe);
    tokenizer_close(t);
    return all;
}

/* Finds the name of tokenizer.ggml.pre for these steps: it stands for consecutive patterns whose
 * matches are pieces. */
static int find_rule(const char *path, const struct vocab *v, const struct pretok_rule **rule,
                     err *e) {
    const struct hf_steps *steps = &v->hf->pre_tokenizer;
    const char *patterns[HF_MAX_STEPS] = {0};
    unsigned n = 0;
    for (unsigned i = 0; i < steps->n; i++) {
        const struct hf_step *s = &steps->items[i];
        if (s->kind == HF_BYTE_LEVEL && i + 1 == steps->n) continue;
        if (s->kind != HF_SPLIT || s->literal || s->behavior == HF_MERGED_WITH_PREVIOUS ||
            s->behavior == HF_MERGED_WITH_NEXT || s->behavior == HF_CONTIGUOUS)
            return refuse_vocab(e, "pre_tokenizer",
                                s->kind == HF_SPLIT ? s->pattern : step_name(s));
        /* A pattern that matches everything may also be "remove the text between matches". */
        if (s->behavior == HF_REMOVED && !s->invert)
            return refuse_vocab(e, "a pre_tokenizer that removes", s->pattern);
        patterns[n++] = s->pattern;
    }
    bool asked = false, irrelevant = false;
    for (*rule = NULL; (*rule = pretok_match_rule(*rule, patterns, n));) {
        if ((*rule)->ignore_merges == v->rules.ignore_merges) return 0;
        if (!asked) irrelevant = all_are_made(path);
        asked = true;
        if (irrelevant) return 0;
    }
    return refuse_vocab(e, "the pre_tokenizer", n ? patterns[n - 1] : "without a pattern");
}

static bool is_mark(const char *text) {
    return text && strcmp(text, "\xe2\x96\x81") == 0;
}

/* SentencePiece-like: spaces become U+2581; one may be added before the text. */
static int check_marked(const struct vocab *v, bool *prefix, enum prefix_rule *how, err *e) {
    const struct hf_tokenizer *h = v->hf;
    bool marks = false;
    *prefix = false;
    for (unsigned i = 0; i < h->normalizer.n; i++) {
        const struct hf_step *s = &h->normalizer.items[i];
        if (s->kind == HF_PREPEND && is_mark(s->content) && !marks)
            *prefix = true;
        else if (s->kind == HF_REPLACE && s->literal && strcmp(s->pattern, " ") == 0 &&
                 is_mark(s->content))
            marks = true;
        else
            return refuse_vocab(e, "normalizer", step_name(s));
    }
    for (unsigned i = 0; i < h->pre_tokenizer.n; i++) {
        const struct hf_step *s = &h->pre_tokenizer.items[i];
        bool none = s->kind == HF_SPLIT && s->literal && strcmp(s->pattern, " ") == 0 && marks;
        if (none) continue; /* no spaces remain to split at */
        if (s->kind != HF_METASPACE || !is_mark(s->content))
            return refuse_vocab(e, "pre_tokenizer",
                                s->kind == HF_SPLIT ? s->pattern : step_name(s));
        if (s->prepend != HF_PREPEND_NEVER && !*prefix)
            *how = s->prepend == HF_PREPEND_FIRST ? PREFIX_FIRST : PREFIX_NO_SPACE;
        *prefix |= s->prepend != HF_PREPEND_NEVER;
        marks = true;
    }
    if (!marks) return refuse_vocab(e, "a tokenizer without", "ByteLevel or Metaspace");
    return h->byte_fallback ? 0 : refuse_vocab(e, "a tokenizer without", "byte_fallback");
}

static void lists_fini(struct lists *l) {
    free(l->texts);
    free(l->types);
    free(l->scores);
    free(l->flags);
    free(l->pads);
}

/* Tokens without a row in the embedding must be added ones, which are untrained. */
static int count_tokens(const struct vocab *v, uint64_t n_rows, uint32_t *n, err *e) {
    *n = v->n;
    if (n_rows > VOCAB_MAX_TOKENS)
        return err_set(e, ERR_UNSUPPORTED, "an embedding of %" PRIu64 " rows is too large", n_rows);
    for (; n_rows && *n > n_rows; --*n) {
        enum token_type type = v->tokens[*n - 1].type;
        if (type != TOKEN_CONTROL && type != TOKEN_USER_DEFINED && type != TOKEN_UNUSED)
            return err_set(e, ERR_INVALID,
                           "the tokenizer has %" PRIu32 " tokens, the embedding %" PRIu64 " rows",
                           v->n, n_rows);
    }
    if (*n < n_rows) *n = (uint32_t)n_rows;
    return 0;
}

static int lists_init(struct lists *l, const struct vocab *v, uint64_t n_rows, err *e) {
    memset(l, 0, sizeof *l);
    int rc = count_tokens(v, n_rows, &l->n, e);
    if (rc) return rc;
    l->texts = mem_new(l->n, sizeof *l->texts);
    l->types = mem_new(l->n, sizeof *l->types);
    l->scores = mem_new(l->n, sizeof *l->scores);
    l->flags = mem_new(l->n, 1);
    l->pads = mem_new(l->n, PAD_BYTES);
    if (!l->texts || !l->types || !l->scores || !l->flags || !l->pads) return err_no_memory(e);
    for (uint32_t i = 0; i < l->n; i++) {
        const struct vocab_token *t = i < v->n ? &v->tokens[i] : NULL;
        if (t && t->len) {
            l->texts[i] = (gguf_str){t->text, t->len};
            l->types[i] = (int32_t)t->type;
            l->scores[i] = t->score;
            l->flags[i] = t->flags;
            l->has_flags |= t->flags & (TOKEN_LSTRIP | TOKEN_RSTRIP | TOKEN_SINGLE_WORD);
        } else {
            char *pad = l->pads + (uint64_t)i * PAD_BYTES;
            int len = snprintf(pad, PAD_BYTES, "[PAD%" PRIu32 "]", i);
            l->texts[i] = (gguf_str){pad, (uint64_t)len};
            l->types[i] = TOKEN_UNUSED;
            l->scores[i] = PAD_SCORE;
        }
    }
    return 0;
}

/* Replaces marks by spaces in user-defined pieces of a tokenizer.model: GGUF stores running text.
 */
static int unmark_user_texts(const struct vocab *v, struct lists *l, char **blob, err *e) {
    uint64_t room = 1;
    for (uint32_t i = 0; i < l->n && i < v->n; i++)
        if (l->types[i] == TOKEN_USER_DEFINED) room += l->texts[i].len;
    char *at = *blob = mem_new(room, 1);
    if (!at) return err_no_memory(e);
    for (uint32_t i = 0; i < l->n && i < v->n; i++) {
        if (l->types[i] != TOKEN_USER_DEFINED) continue;
        uint32_t len = vocab_unmark_spaces(l->texts[i].data, (uint32_t)l->texts[i].len, at);
        l->texts[i] = (gguf_str){at, len};
        at += len;
    }
    return 0;
}

static int write_lists(const struct lists *l, bool with_scores, gguf_writer *w, err *e) {
    int rc = gguf_writer_set_texts(w, KEY("tokens"), l->texts, l->n, e);
    if (!rc && with_scores)
        rc = gguf_writer_set_array(w, KEY("scores"), GGUF_F32, l->scores, l->n, e);
    if (!rc) rc = gguf_writer_set_array(w, KEY("token_type"), GGUF_I32, l->types, l->n, e);
    if (!rc && l->has_flags)
        rc = gguf_writer_set_array(w, VOCAB_KEY_FLAGS, GGUF_U8, l->flags, l->n, e);
    return rc;
}

/* "left right". */
static int write_merges(const struct vocab *v, gguf_writer *w, err *e) {
    gguf_str *texts = mem_new(v->n_merges, sizeof *texts);
    uint64_t room = 1;
    for (uint32_t i = 0; i < v->n_merges; i++)
        room += (uint64_t)v->merges[i].left_len + v->merges[i].right_len + 1;
    char *blob = mem_new(room, 1), *at = blob;
    int rc = texts && blob ? 0 : err_no_memory(e);
    for (uint32_t i = 0; !rc && i < v->n_merges; i++) {
        const struct vocab_merge *m = &v->merges[i];
        if (memchr(m->left, ' ', m->left_len) || memchr(m->right, ' ', m->right_len))
            rc = refuse_vocab(e, "a merge of texts with a space", "");
        texts[i] = (gguf_str){at, (uint64_t)m->left_len + m->right_len + 1};
        memcpy(at, m->left, m->left_len);
        at[m->left_len] = ' ';
        memcpy(at + m->left_len + 1, m->right, m->right_len);
        at += texts[i].len;
    }
    if (!rc) rc = gguf_writer_set_texts(w, KEY("merges"), texts, v->n_merges, e);
    free(texts);
    free(blob);
    return rc;
}

static int write_id(gguf_writer *w, const char *key, int32_t id, const struct lists *l, err *e) {
    if (id < 0 || (uint32_t)id >= l->n) return 0;
    return gguf_writer_set_u32(w, key, (uint32_t)id, e);
}

/* A GGUF file names one BOS and one EOS, and whether each is added. */
static int check_added(const struct vocab *v, err *e) {
    bool before = v->n_before == 0 || (v->n_before == 1 && v->before[0] == v->bos);
    bool after = v->n_after == 0 || (v->n_after == 1 && v->after[0] == v->eos);
    return before && after ? 0
                           : refuse_vocab(e, "a post_processor that adds", "more than BOS and EOS");
}

/* Writes the tokens besides EOS that end an answer. GGUF has two more keys; further tokens are
 * recognized by their text. */
static int write_ends(const struct vocab *v, const struct lists *l, gguf_writer *w, err *e) {
    int32_t ends[2] = {v->eot, v->eom};
    for (uint32_t i = 0; i < v->n && i < l->n; i++) {
        if (!v->tokens[i].eog || (int32_t)i == v->eos) continue;
        if (vocab_is_eog_text(v->tokens[i].text, v->tokens[i].len)) continue;
        int32_t *free_end = ends[0] < 0 ? &ends[0] : ends[1] < 0 ? &ends[1] : NULL;
        if (free_end && ends[0] != (int32_t)i) *free_end = (int32_t)i;
    }
    int rc = write_id(w, KEY("eot_token_id"), ends[0], l, e);
    return rc ? rc : write_id(w, KEY("eom_token_id"), ends[1], l, e);
}

static int write_suppressed(const struct vocab *v, const struct lists *l, gguf_writer *w, err *e) {
    int32_t ids[HF_MAX_SUPPRESSED];
    uint64_t n = 0;
    for (uint32_t i = 0; i < v->n && i < l->n && n < HF_MAX_SUPPRESSED; i++)
        if (v->tokens[i].suppressed) ids[n++] = (int32_t)i;
    return n ? gguf_writer_set_array(w, VOCAB_KEY_SUPPRESSED, GGUF_I32, ids, n, e) : 0;
}

static int write_settings(const struct vocab *v, const struct lists *l, gguf_writer *w, err *e) {
    int rc = check_added(v, e);
    if (!rc) rc = write_id(w, KEY("bos_token_id"), v->bos, l, e);
    if (!rc) rc = write_id(w, KEY("eos_token_id"), v->eos, l, e);
    if (!rc) rc = write_id(w, KEY("unknown_token_id"), v->unk, l, e);
    if (!rc) rc = write_id(w, KEY("padding_token_id"), v->pad, l, e);
    if (!rc) rc = write_ends(v, l, w, e);
    if (!rc) rc = write_suppressed(v, l, w, e);
    if (!rc) rc = gguf_writer_set_bool(w, KEY("add_bos_token"), v->n_before > 0, e);
    if (!rc) rc = gguf_writer_set_bool(w, KEY("add_eos_token"), v->n_after > 0, e);
    if (!rc && v->chat_template)
        rc = gguf_writer_set_str(w, "tokenizer.chat_template", v->chat_template, e);
    if (!rc && v->tool_template)
        rc = gguf_writer_set_str(w, "tokenizer.chat_template.tool_use", v->tool_template, e);
    return rc;
}

static int write_byte_level(const char *path, const struct vocab *v, struct lists *l,
                            gguf_writer *w, err *e) {
    const struct pretok_rule *rule = NULL;
    bool nfc = false;
    int rc = check_byte_level(v->hf, &nfc, e);
    if (!rc) rc = find_rule(path, v, &rule, e);
    if (!rc) rc = gguf_writer_set_str(w, KEY("model"), "gpt2", e);
    if (!rc) rc = gguf_writer_set_str(w, KEY("pre"), rule->name, e);
    if (!rc && nfc) rc = gguf_writer_set_bool(w, VOCAB_KEY_NFC, true, e);
    if (!rc) rc = write_lists(l, false, w, e);
    return rc ? rc : write_merges(v, w, e);
}

/* Does no token span the end of a line? */
static bool is_cut_at_lines(const struct vocab *v) {
    for (uint32_t i = 0; i < v->n; i++) {
        const struct vocab_token *t = &v->tokens[i];
        if (t->type == TOKEN_NORMAL && t->len > 1 && memchr(t->text, '\n', t->len)) return false;
    }
    return true;
}

/* Merges that scores cannot express are written as for Gemma 4: no space before the text, each line
 * is merged separately. */
static int write_marked_merges(const struct vocab *v, const struct lists *l, bool prefix,
                               gguf_writer *w, err *e) {
    if (prefix || !is_cut_at_lines(v))
        return err_set(e, ERR_UNSUPPORTED,
                       "a GGUF file cannot express merges without equivalent SentencePiece scores "
                       "if text gets a space prefix or tokens span lines");
    int rc = gguf_writer_set_str(w, KEY("model"), "gemma4", e);
    if (!rc) rc = write_lists(l, true, w, e);
    return rc ? rc : write_merges(v, w, e);
}

static int write_marked(const struct vocab *v, struct lists *l, gguf_writer *w, err *e) {
    char *blob = NULL;
    bool prefix = v->space_prefix;
    enum prefix_rule how = v->prefix_rule;
    int rc = v->is_bpe ? check_marked(v, &prefix, &how, e) : unmark_user_texts(v, l, &blob, e);
    float *scores = mem_new(v->n, sizeof *scores);
    if (!rc && !scores) rc = err_no_memory(e);
    bool by_rank = !rc && v->is_bpe && !vocab_scores_of_merges(v, scores);
    if (!rc && v->is_bpe)
        for (uint32_t i = 0; i < l->n && i < v->n; i++)
            if (v->tokens[i].len) l->scores[i] = scores[i];
    if (!rc && v->unk >= 0 && (uint32_t)v->unk < l->n) l->types[v->unk] = TOKEN_UNKNOWN;
    if (!rc) rc = gguf_writer_set_bool(w, KEY("add_space_prefix"), prefix, e);
    if (!rc && how != PREFIX_ALWAYS) rc = gguf_writer_set_u32(w, VOCAB_KEY_PREFIX, how, e);
    if (!rc && by_rank) {
        rc = write_marked_merges(v, l, prefix, w, e);
    } else if (!rc) {
        rc = gguf_writer_set_str(w, KEY("model"), "llama", e);
        if (!rc) rc = gguf_writer_set_str(w, KEY("pre"), "default", e);
        if (!rc) rc = write_lists(l, true, w, e);
    }
    free(scores);
    free(blob);
    return rc;
}

int vocab_write_gguf(const struct vocab *v, const char *path, uint64_t n_rows, gguf_writer *w,
                     err *e) {
    struct lists l;
    if (v->rules.model != BPE_MERGES)
        return err_set(e, ERR_UNSUPPORTED, "%s: this build does not write %s vocabularies to GGUF",
                       path, v->rules.model == BPE_UNIGRAM ? "Unigram" : "WordPiece");
    if (v->is_bpe && !v->hf) return err_set(e, ERR_INVALID, "%s: already a GGUF file", path);
    int rc = lists_init(&l, v, n_rows, e);
    if (!rc)
        rc = v->rules.byte_level ? write_byte_level(path, v, &l, w, e) : write_marked(v, &l, w, e);
    if (!rc) rc = write_settings(v, &l, w, e);
    lists_fini(&l);
    return rc;
}

int tokenizer_write_gguf(const char *path, uint64_t n_rows, gguf_writer *w, err *e) {
    struct vocab v;
    int rc = vocab_read(path, &v, e);
    if (rc) return rc;
    rc = vocab_write_gguf(&v, path, n_rows, w, e);
    vocab_fini(&v);
    return rc;
}
