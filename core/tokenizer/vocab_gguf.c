/* vocab_gguf.c - reads tokenizer.ggml.* of a GGUF file into a struct vocab. Keys and defaults: the
 * GGUF specification and, where it is silent, the format's reference implementation. */
#include "core/tokenizer/tokenizer_int.h"

#include "core/base/mem.h"
#include "core/formats/hf/tokenizer.h"
#include "core/formats/model_file.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KEY_TOKENS "tokenizer.ggml.tokens"
#define KEY_SCORES "tokenizer.ggml.scores"
#define KEY_TYPES  "tokenizer.ggml.token_type"
#define KEY_MERGES "tokenizer.ggml.merges"
#define KEY_MODEL  "tokenizer.ggml.model"
#define KEY_PRE    "tokenizer.ggml.pre"

enum {
    LLAMA_UNK = 0,
    LLAMA_BOS = 1,
    LLAMA_EOS = 2,
    GPT2_BOS_EOS = 11, /* the format's default */
    TOKEN_UNDEFINED = 0,
    NAME_BYTES = 40, /* of a name in an error message */
    MAX_CHARSMAP_BYTES = 64 << 20
};

static const int64_t known_flags =
    TOKEN_LSTRIP | TOKEN_RSTRIP | TOKEN_SINGLE_WORD | TOKEN_NORMALIZED;

static void close_gguf(void *source) {
    gguf_close(source);
}

/* Checks that key is an array of n numbers, or absent. */
static int check_array(const gguf *g, const char *key, uint64_t n, bool *there, err *e) {
    enum gguf_type elem;
    uint64_t n_found;
    *there = gguf_has(g, key);
    if (!*there) return 0;
    int rc = gguf_get_array(g, key, &elem, &n_found, e);
    if (rc) return rc;
    if (elem == GGUF_STRING || n_found != n)
        return err_set(e, ERR_FORMAT,
                       "%s: '%s' is not an array of %" PRIu64 " numbers, one per token",
                       gguf_path(g), key, n);
    return 0;
}

/* Old files have no types: byte tokens are recognized by text, the three special ones by id. */
static enum token_type guess_type(const struct vocab *v, const struct vocab_token *t, uint32_t id) {
    if (v->is_bpe) return TOKEN_NORMAL;
    if (vocab_byte_value(t->text, t->len) >= 0) return TOKEN_BYTE;
    if (id == LLAMA_UNK) return TOKEN_UNKNOWN;
    return id == LLAMA_BOS || id == LLAMA_EOS ? TOKEN_CONTROL : TOKEN_NORMAL;
}

static int read_token(const gguf *g, struct vocab *v, uint32_t id, bool has_scores, bool has_types,
                      err *e) {
    struct vocab_token *t = &v->tokens[id];
    gguf_str text = gguf_array_str(g, KEY_TOKENS, id);
    if (text.len > VOCAB_MAX_TEXT_BYTES)
        return err_set(e, ERR_FORMAT,
                       "%s: token %" PRIu32 " has %" PRIu64 " bytes (expected at most %d)",
                       gguf_path(g), id, text.len, VOCAB_MAX_TEXT_BYTES);
    t->text = text.data;
    t->len = (uint32_t)text.len;
    t->score = has_scores ? (float)gguf_array_f64(g, KEY_SCORES, id) : 0;
    if (isnan(t->score))
        return err_set(e, ERR_FORMAT, "%s: the score of token %" PRIu32 " is NaN", gguf_path(g),
                       id);
    int64_t type = has_types ? gguf_array_i64(g, KEY_TYPES, id) : (int64_t)guess_type(v, t, id);
    if (type == TOKEN_UNDEFINED) type = TOKEN_NORMAL;
    if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
        return err_set(e, ERR_FORMAT, "%s: token %" PRIu32 " has unknown type %" PRId64,
                       gguf_path(g), id, type);
    t->type = (enum token_type)type;
    /* The reference merges unused pieces, too. */
    if (t->type == TOKEN_UNUSED) t->type = TOKEN_NORMAL;
    if (t->type == TOKEN_BYTE && vocab_byte_value(t->text, t->len) < 0)
        return err_set(e, ERR_FORMAT, "%s: the text of byte token %" PRIu32 " is not <0xNN>",
                       gguf_path(g), id);
    return 0;
}

static int read_tokens(const gguf *g, struct vocab *v, err *e) {
    enum gguf_type elem;
    uint64_t n;
    bool has_scores, has_types, has_flags;
    int rc = gguf_get_array(g, KEY_TOKENS, &elem, &n, e);
    if (rc)
        return rc == ERR_NOT_FOUND
                   ? err_set(e, ERR_FORMAT, "%s: key '" KEY_TOKENS "' is missing", gguf_path(g))
                   : rc;
    if (elem != GGUF_STRING || n == 0 || n > VOCAB_MAX_TOKENS)
        return err_set(e, ERR_FORMAT, "%s: '" KEY_TOKENS "' is not an array of 1 to %d strings",
                       gguf_path(g), VOCAB_MAX_TOKENS);
    rc = check_array(g, KEY_SCORES, n, &has_scores, e);
    if (!rc) rc = check_array(g, KEY_TYPES, n, &has_types, e);
    if (!rc) rc = check_array(g, VOCAB_KEY_FLAGS, n, &has_flags, e);
    if (rc) return rc;
    v->n = (uint32_t)n;
    v->tokens = mem_new(n, sizeof *v->tokens);
    if (!v->tokens) return err_no_memory(e);
    for (uint32_t id = 0; !rc && id < v->n; id++)
        rc = read_token(g, v, id, has_scores, has_types, e);
    for (uint32_t id = 0; !rc && has_flags && id < v->n; id++)
        v->tokens[id].flags = (uint8_t)(gguf_array_i64(g, VOCAB_KEY_FLAGS, id) & known_flags);
    return rc;
}

/* Without a key the format's default applies if that id is a control token. An id outside the
 * vocabulary means none: some converters write 2^32 - 1. */
static int read_id(const gguf *g, const char *key, const struct vocab *v, int32_t fallback,
                   int32_t *id, err *e) {
    uint64_t value;
    int rc = gguf_get_u64(g, key, &value, e);
    bool fits = fallback >= 0 && (uint32_t)fallback < v->n;
    *id = fits && v->tokens[fallback].type == TOKEN_CONTROL ? fallback : -1;
    if (rc == ERR_NOT_FOUND) {
        err_clear(e);
        return 0;
    }
    if (!rc) *id = value < v->n ? (int32_t)value : -1;
    return rc;
}

static int read_flag(const gguf *g, const char *key, bool fallback, bool *flag, err *e) {
    int rc = gguf_get_bool(g, key, flag, e);
    if (rc != ERR_NOT_FOUND) return rc;
    err_clear(e);
    *flag = fallback;
    return 0;
}

/* Phi-3's special tokens include the white space after them. There is no key for it; the reference
 * decides by the model's name. */
static bool is_phi3(const gguf *g) {
    gguf_str name;
    if (gguf_get_str(g, "general.name", &name, NULL)) return false;
    for (uint64_t i = 0; i + 4 <= name.len; i++) {
        const char *p = name.data + i;
        if (tolower((unsigned char)p[0]) != 'p' || tolower((unsigned char)p[1]) != 'h' ||
            tolower((unsigned char)p[2]) != 'i')
            continue;
        if (p[3] == '3' || (p[3] == '-' && i + 5 <= name.len && p[4] == '3')) return true;
    }
    return false;
}

/* The caller owns *out; NULL: the key is absent. */
static int read_template(const gguf *g, const char *key, char **out, err *e) {
    gguf_str s;
    if (!gguf_has(g, key)) return 0;
    int rc = gguf_get_str(g, key, &s, e);
    if (rc) return rc;
    if (memchr(s.data, 0, s.len))
        return err_set(e, ERR_FORMAT, "%s: %s contains a NUL byte", gguf_path(g), key);
    *out = mem_strndup(s.data, s.len);
    return *out ? 0 : err_no_memory(e);
}

/* Some ids have two keys, an old one and a new one. */
static int read_fim(const gguf *g, struct vocab *v, err *e) {
    struct {
        const char *old, *key;
        int32_t *id;
    } rows[] = {
        {"tokenizer.ggml.prefix_token_id", "tokenizer.ggml.fim_pre_token_id", &v->fim.prefix},
        {"tokenizer.ggml.suffix_token_id", "tokenizer.ggml.fim_suf_token_id", &v->fim.suffix},
        {"tokenizer.ggml.middle_token_id", "tokenizer.ggml.fim_mid_token_id", &v->fim.middle},
        {"", "tokenizer.ggml.fim_rep_token_id", &v->fim.repository},
        {"", "tokenizer.ggml.fim_sep_token_id", &v->fim.file},
    };
    int rc = 0;
    for (size_t i = 0; !rc && i < sizeof rows / sizeof *rows; i++) {
        const char *key = gguf_has(g, rows[i].key) ? rows[i].key : rows[i].old;
        rc = read_id(g, key, v, -1, rows[i].id, e);
    }
    return rc;
}

static bool is_token(const struct vocab *v, int32_t id, const char *text) {
    const struct vocab_token *t = id < 0 ? NULL : &v->tokens[id];
    return t && t->len == strlen(text) && memcmp(t->text, text, t->len) == 0;
}

/* BERT's files name the tokens around a text cls and sep. */
static int read_ends(const gguf *g, struct vocab *v, err *e) {
    static const char *const keys[] = {"tokenizer.ggml.cls_token_id",
                                       "tokenizer.ggml.seperator_token_id"};
    static const char *const texts[] = {"[CLS]", "[SEP]"};
    int32_t *const ids[] = {&v->bos, &v->eos};
    for (int i = 0; v->rules.model == BPE_WORDPIECE && i < 2; i++) {
        int32_t id = *ids[i];
        int rc = gguf_has(g, keys[i]) ? read_id(g, keys[i], v, -1, &id, e) : 0;
        if (rc) return rc;
        for (uint32_t t = 0; id < 0 && t < v->n; t++)
            if (is_token(v, (int32_t)t, texts[i])) id = (int32_t)t;
        *ids[i] = id;
    }
    return 0;
}

static int read_suppressed(const gguf *g, struct vocab *v, err *e) {
    static const char key[] = VOCAB_KEY_SUPPRESSED;
    enum gguf_type elem;
    uint64_t n;
    if (!gguf_has(g, key)) return 0;
    int rc = gguf_get_array(g, key, &elem, &n, e);
    if (rc) return rc;
    if (elem != GGUF_I32 && elem != GGUF_U32)
        return err_set(e, ERR_FORMAT, "%s: '%s' is not an array of token ids", gguf_path(g), key);
    for (uint64_t i = 0; i < n; i++) {
        const int64_t id = gguf_array_i64(g, key, i);
        if (id < 0 || id >= v->n)
            return err_set(e, ERR_FORMAT, "%s: '%s' has the id %lld; the vocabulary has 0 to %u",
                           gguf_path(g), key, (long long)id, v->n - 1);
        v->tokens[id].suppressed = true;
    }
    return 0;
}

/* rule: the pre-tokenizer of a BPE vocabulary, otherwise NULL. */
static int read_settings(const gguf *g, const struct pretok_rule *rule, struct vocab *v, err *e) {
    const bool words = v->rules.model != BPE_MERGES; /* of encoders */
    bool add_bos, add_eos, bpe = v->is_bpe;
    int32_t bos = bpe ? GPT2_BOS_EOS : LLAMA_BOS, eos = bpe ? GPT2_BOS_EOS : LLAMA_EOS;
    if (words) bos = eos = -1;
    int rc = read_id(g, "tokenizer.ggml.bos_token_id", v, bos, &v->bos, e);
    if (!rc) rc = read_id(g, "tokenizer.ggml.eos_token_id", v, eos, &v->eos, e);
    if (!rc) rc = read_id(g, "tokenizer.ggml.eot_token_id", v, -1, &v->eot, e);
    if (!rc) rc = read_id(g, "tokenizer.ggml.eom_token_id", v, -1, &v->eom, e);
    if (!rc) rc = read_fim(g, v, e);
    if (!rc) rc = read_ends(g, v, e);
    if (!rc) rc = read_suppressed(g, v, e);
    if (!rc)
        rc = read_flag(g, "tokenizer.ggml.add_bos_token", words || !bpe || rule->add_bos, &add_bos,
                       e);
    if (!rc) rc = read_flag(g, "tokenizer.ggml.add_eos_token", words, &add_eos, e);
    if (!rc) rc = read_flag(g, "tokenizer.ggml.add_space_prefix", true, &v->space_prefix, e);
    if (rc) return rc;
    uint64_t prefix_rule;
    if (gguf_get_u64(g, VOCAB_KEY_PREFIX, &prefix_rule, NULL) == 0 && prefix_rule <= PREFIX_FIRST)
        v->prefix_rule = (enum prefix_rule)prefix_rule;
    /* The reference adds the prefix for SentencePiece vocabularies only. */
    if (bpe) v->space_prefix = false;
    /* Gemma 4 needs BOS, although some files set add_bos_token to false. */
    if (bpe && rule && rule->marks_spaces) add_bos |= rule->add_bos;
    if (add_bos && v->bos >= 0) v->before[v->n_before++] = v->bos;
    if (add_eos && v->eos >= 0) v->after[v->n_after++] = v->eos;
    v->has_pair = add_bos && add_eos && v->eos >= 0;
    /* RoBERTa and XLM-R have it twice between two texts. */
    for (int i = 0; v->has_pair && i < (is_token(v, v->eos, "</s>") ? 2 : 1); i++)
        v->between[v->n_between++] = v->eos;
    rc = read_template(g, "tokenizer.chat_template", &v->chat_template, e);
    if (!rc) rc = read_template(g, "tokenizer.chat_template.tool_use", &v->tool_template, e);
    return rc ? rc : read_template(g, "tokenizer.chat_template.rerank", &v->rerank_template, e);
}

static bool is_text(gguf_str s, const char *text) {
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

static int read_model(const gguf *g, struct vocab *v, gguf_str *model, err *e) {
    int rc = gguf_get_str(g, KEY_MODEL, model, e);
    if (rc == ERR_NOT_FOUND)
        return err_set(e, ERR_FORMAT, "%s: no tokenizer: key '" KEY_MODEL "' is missing",
                       gguf_path(g));
    if (rc) return rc;
    v->rules.model = is_text(*model, "bert") ? BPE_WORDPIECE
                     : is_text(*model, "t5") ? BPE_UNIGRAM
                                             : BPE_MERGES;
    v->is_bpe =
        is_text(*model, "gpt2") || is_text(*model, "gemma4") || v->rules.model != BPE_MERGES;
    if (v->is_bpe || is_text(*model, "llama")) return 0;
    int shown = (int)(model->len < NAME_BYTES ? model->len : NAME_BYTES);
    return err_set(e, ERR_UNSUPPORTED,
                   "%s: " KEY_MODEL " '%.*s' is not supported (expected llama, gpt2, gemma4, "
                   "bert or t5)",
                   gguf_path(g), shown, model->data);
}

/* "left right": the separator is the first space after the first character. */
static int read_merge(const gguf *g, uint32_t i, struct vocab_merge *m, err *e) {
    gguf_str text = gguf_array_str(g, KEY_MERGES, i);
    const char *space = text.len > 1 ? memchr(text.data + 1, ' ', text.len - 1) : NULL;
    if (!space || text.len > 2 * VOCAB_MAX_TEXT_BYTES)
        return err_set(e, ERR_FORMAT, "%s: merge %" PRIu32 " is not two texts separated by a space",
                       gguf_path(g), i);
    m->left = text.data;
    m->left_len = (uint32_t)(space - text.data);
    m->right = space + 1;
    m->right_len = (uint32_t)(text.len - m->left_len - 1);
    return 0;
}

static int read_merges(const gguf *g, struct vocab *v, err *e) {
    enum gguf_type elem;
    uint64_t n;
    int rc = gguf_get_array(g, KEY_MERGES, &elem, &n, e);
    if (rc == ERR_NOT_FOUND)
        return err_set(e, ERR_FORMAT, "%s: key '" KEY_MERGES "' is missing", gguf_path(g));
    if (rc) return rc;
    if (elem != GGUF_STRING || n > VOCAB_MAX_MERGES)
        return err_set(e, ERR_FORMAT, "%s: '" KEY_MERGES "' is not an array of at most %d strings",
                       gguf_path(g), VOCAB_MAX_MERGES);
    v->n_merges = (uint32_t)n;
    v->merges = mem_new(n, sizeof *v->merges);
    if (!v->merges) return err_no_memory(e);
    for (uint32_t i = 0; !rc && i < v->n_merges; i++)
        rc = read_merge(g, i, &v->merges[i], e);
    return rc;
}

/* Finds the named pre-tokenizer. */
static int read_rule(const gguf *g, gguf_str model, const struct pretok_rule **rule, err *e) {
    gguf_str name = {"default", 7};
    int rc = gguf_get_str(g, KEY_PRE, &name, e);
    if (rc == ERR_NOT_FOUND)
        err_clear(e);
    else if (rc)
        return rc;
    if (is_text(model, "gemma4")) name = model;
    *rule = pretok_find_rule(name.data, name.len);
    if (*rule) return 0;
    int shown = (int)(name.len < NAME_BYTES ? name.len : NAME_BYTES);
    return err_set(e, ERR_UNSUPPORTED, "%s: " KEY_PRE " '%.*s' is not supported", gguf_path(g),
                   shown, name.data);
}

static int read_nfc(const gguf *g, struct vocab *v, err *e) {
    const struct normalizer_step step = {.kind = NORMALIZER_NFC};
    bool nfc;
    int rc = read_flag(g, VOCAB_KEY_NFC, false, &nfc, e);
    if (rc || !nfc) return rc;
    v->norm = normalizer_new(v->rules.flags);
    return v->norm ? normalizer_add(v->norm, &step, e) : err_no_memory(e);
}

static int read_bpe(const gguf *g, const struct pretok_rule *rule, struct vocab *v, err *e) {
    v->rules.byte_level = !rule->marks_spaces;
    v->rules.marks_spaces = v->rules.byte_fallback = rule->marks_spaces;
    v->rules.ignore_merges = rule->ignore_merges;
    int rc = bpe_rules_init(&v->rules, e);
    if (!rc) rc = pretok_add_rule(v->rules.pretok, rule, e);
    if (!rc) rc = read_nfc(g, v, e);
    return rc ? rc : read_merges(g, v, e);
}

static int add_step(struct vocab *v, const struct normalizer_step *step, err *e) {
    if (!v->norm) v->norm = normalizer_new(v->rules.flags);
    if (v->norm) return normalizer_add(v->norm, step, e);
    charsmap_free(step->map);
    return err_no_memory(e);
}

static int add_replace(struct vocab *v, const char *pattern, const char *content, err *e) {
    return add_step(v,
                    &(struct normalizer_step){
                        .kind = NORMALIZER_REPLACE, .pattern = pattern, .content = content},
                    e);
}

/* Has an ordinary token a capital letter? Then letters are not made small. */
static bool is_cased(const struct vocab *v) {
    for (uint32_t i = 0; i < v->n; i++)
        for (uint32_t k = 0; v->tokens[i].type == TOKEN_NORMAL && k < v->tokens[i].len; k++)
            if (v->tokens[i].text[k] >= 'A' && v->tokens[i].text[k] <= 'Z') return true;
    return false;
}

/* BERT's normalizer and pre-tokenizer. Tokens at the start of a word begin with a space mark. */
static int read_wordpiece(struct vocab *v, err *e) {
    const bool lowers = !is_cased(v);
    struct hf_steps norm;
    hf_bert_steps(
        &(struct hf_bert){.clean = true, .ideographs = true, .strip = lowers, .lower = lowers},
        &norm);
    memcpy(v->rules.first_prefix, "\xe2\x96\x81", 4);
    int rc = bpe_rules_init(&v->rules, e);
    for (unsigned i = 0; !rc && i < norm.n; i++)
        rc = vocab_add_normalizer(v, &norm.items[i], e);
    const struct pretok_split steps[] = {{.pattern = "\\s", .behavior = PRETOK_REMOVED},
                                         {.pattern = HF_PUNCTUATION, .behavior = PRETOK_ISOLATED}};
    for (int i = 0; !rc && i < 2; i++)
        rc = pretok_add_split(v->rules.pretok, &steps[i], e);
    for (uint32_t i = 0; i < v->n; i++)
        if (v->unk < 0 && (v->tokens[i].type == TOKEN_UNKNOWN || is_token(v, (int32_t)i, "[UNK]")))
            v->unk = (int32_t)i;
    return rc;
}

static int read_charsmap(const gguf *g, struct vocab *v, err *e) {
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    struct normalizer_step step = {.kind = NORMALIZER_CHARSMAP};
    enum gguf_type elem;
    uint64_t n;
    if (!gguf_has(g, key)) return 0;
    int rc = gguf_get_array(g, key, &elem, &n, e);
    if (rc) return rc;
    if ((elem != GGUF_U8 && elem != GGUF_I8) || n > MAX_CHARSMAP_BYTES)
        return err_set(e, ERR_FORMAT, "%s: '%s' is not an array of at most %d bytes", gguf_path(g),
                       key, MAX_CHARSMAP_BYTES);
    uint8_t *bytes = mem_new(n, 1);
    if (!bytes) return err_no_memory(e);
    for (uint64_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)gguf_array_i64(g, key, i);
    rc = charsmap_new(bytes, n, &step.map, e);
    free(bytes);
    if (rc) return err_prefix(e, "%s: %s: ", gguf_path(g), key);
    return add_step(v, &step, e);
}

/* SentencePiece's: white space is removed at the ends and is one space elsewhere; words begin with
 * a space mark. */
static int read_unigram(const gguf *g, struct vocab *v, err *e) {
    static const struct normalizer_step strip = {
        .kind = NORMALIZER_STRIP, .left = true, .right = true};
    bool removes = true, prefix = true;
    int rc = bpe_rules_init(&v->rules, e);
    if (!rc) rc = read_charsmap(g, v, e);
    if (!rc) rc = read_flag(g, "tokenizer.ggml.remove_extra_whitespaces", true, &removes, e);
    if (!rc) rc = read_flag(g, "tokenizer.ggml.add_space_prefix", true, &prefix, e);
    if (!rc && removes) rc = add_replace(v, " {2,}", " ", e);
    if (!rc && removes) rc = add_step(v, &strip, e);
    for (uint32_t i = 0; i < v->n; i++)
        if (v->unk < 0 && v->tokens[i].type == TOKEN_UNKNOWN) v->unk = (int32_t)i;
    return rc ? rc
              : pretok_add_metaspace(v->rules.pretok, "\xe2\x96\x81",
                                     prefix ? PRETOK_ALWAYS : PRETOK_NEVER, true, e);
}

int vocab_read_gguf(const char *path, struct vocab *v, err *e) {
    gguf *g = NULL;
    gguf_str model = {0};
    const struct pretok_rule *rule = NULL;
    int rc = model_file_open_gguf(path, GGUF_OPEN_VOCAB_ONLY, &g, e);
    if (rc) return rc;
    v->source = g;
    v->unk = v->pad = -1;
    v->free_source = close_gguf;
    rc = read_model(g, v, &model, e);
    const bool merges = v->is_bpe && v->rules.model == BPE_MERGES;
    if (!rc && merges) rc = read_rule(g, model, &rule, e);
    if (!rc) rc = read_tokens(g, v, e);
    if (!rc && merges) rc = read_bpe(g, rule, v, e);
    if (!rc && v->rules.model == BPE_WORDPIECE) rc = read_wordpiece(v, e);
    if (!rc && v->rules.model == BPE_UNIGRAM) rc = read_unigram(g, v, e);
    if (!rc) rc = read_settings(g, rule, v, e);
    v->strip_after_special = !v->is_bpe && is_phi3(g) && !gguf_has(g, VOCAB_KEY_FLAGS);
    return rc;
}
