/* tokenizer.c - opens a tokenizer from any kind of file, owns its tables, decodes. Immutable
 * after tokenizer_open, so any thread may use it. */
#include "core/tokenizer/tokenizer_int.h"

#include "core/base/mem.h"
#include "core/text/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Texts of tokens that end an answer, for files that do not list them. Only control and
 * user-defined tokens count: "</s>" may be ordinary text (HTML) in a vocabulary. */
static const char *const eog_texts[] = {
    "</s>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<EOT>",
    "_<EOT>",
    "\342\226\201<EOT>",
    "[EOT]",
    "[EOS]",
    "<|eot|>",
    "<|return|>",
    "<|call|>",
    "<turn|>",
    "<|fim_pad|>", /* ends a filled-in middle */
    "<|repo_name|>",
    "<|file_sep|>",
    "<file_sep>",
    "<\357\275\234end\342\226\201of\342\226\201sentence\357\275\234>",
};

static const char space_mark[] = "\xe2\x96\x81"; /* U+2581 represents a space in a token's text */
enum { SPACE_MARK_BYTES = 3, N_BYTES = 256, PATH_MAX_BYTES = 4096, SCORED_MAX_COST = 1 << 30 };

void vocab_fini(struct vocab *v) {
    free(v->tokens);
    free(v->merges);
    free(v->chat_template);
    free(v->tool_template);
    free(v->rerank_template);
    bpe_rules_fini(&v->rules);
    normalizer_free(v->norm);
    if (v->free_source) v->free_source(v->source);
    memset(v, 0, sizeof *v);
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int vocab_byte_value(const char *text, size_t len) {
    if (len != 6 || memcmp(text, "<0x", 3) || text[5] != '>') return -1;
    int high = hex_value(text[3]), low = hex_value(text[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

int named_compare(const void *a, const void *b) {
    const struct named *x = a, *y = b;
    uint32_t n = x->len < y->len ? x->len : y->len;
    int order = n ? memcmp(x->text, y->text, n) : 0;
    if (!order) order = (x->len > y->len) - (x->len < y->len);
    return order ? order : (x->id < y->id) - (x->id > y->id);
}

void named_sort(struct named *names, uint32_t n) {
    if (n) qsort(names, n, sizeof *names, named_compare);
}

const struct named *named_find(const struct named *names, uint32_t n, const char *text,
                               uint32_t len) {
    /* The highest id sorts before every other of the same text. */
    struct named wanted = {text, len, INT32_MAX};
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (named_compare(&names[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    bool same = low < n && names[low].len == len && memcmp(names[low].text, text, len) == 0;
    return same ? &names[low] : NULL;
}

bool vocab_is_eog_text(const char *text, size_t len) {
    for (size_t i = 0; i < sizeof eog_texts / sizeof eog_texts[0]; i++)
        if (strlen(eog_texts[i]) == len && memcmp(eog_texts[i], text, len) == 0) return true;
    return false;
}

uint32_t vocab_unmark_spaces(const char *text, uint32_t len, char *out) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < len; n++) {
        bool space =
            len - i >= SPACE_MARK_BYTES && memcmp(text + i, space_mark, SPACE_MARK_BYTES) == 0;
        out[n] = space ? ' ' : text[i];
        i += space ? SPACE_MARK_BYTES : 1;
    }
    return n;
}

/* Copies a token's texts into the blob. Bytes equal to the text are stored once. */
static void place_token(tokenizer *t, const struct vocab_token *from, const struct bpe_rules *rules,
                        struct token *to, uint32_t *used) {
    char *text = t->blob + *used, *out = text + from->len;
    to->text_at = to->bytes_at = *used;
    to->text_len = to->bytes_len = from->len;
    to->type = (uint8_t)from->type;
    to->flags = from->flags;
    memcpy(text, from->text, from->len);
    *used += from->len;
    if (from->type == TOKEN_CONTROL || from->type == TOKEN_UNKNOWN) return;
    uint32_t n = 0;
    if (from->type == TOKEN_BYTE) {
        out[n++] = (char)vocab_byte_value(from->text, from->len);
    } else if (rules->next_prefix[0]) { /* WordPiece: words begin after a space */
        const size_t n_prefix = strlen(rules->next_prefix);
        const bool inside = from->len > n_prefix && memcmp(text, rules->next_prefix, n_prefix) == 0;
        if (!inside) out[n++] = ' ';
        memcpy(out + n, text + (inside ? n_prefix : 0), from->len - (inside ? n_prefix : 0));
        n += from->len - (inside ? (uint32_t)n_prefix : 0);
    } else if (rules->byte_level) {
        /* Added tokens, and texts outside the alphabet, are their own bytes. */
        size_t len =
            from->type == TOKEN_USER_DEFINED ? SIZE_MAX : bpe_bytes_of_text(text, from->len, out);
        if (len == SIZE_MAX) return;
        n = (uint32_t)len;
    } else {
        n = vocab_unmark_spaces(text, from->len, out);
        if (n == from->len) return;
    }
    to->bytes_at = *used;
    to->bytes_len = n;
    *used += n;
}

static int copy_tokens(tokenizer *t, const struct vocab *v, err *e) {
    uint64_t room = 1;
    uint32_t used = 0;
    for (uint32_t i = 0; i < v->n; i++)
        room += 2 * (uint64_t)v->tokens[i].len + 1;
    if (room > UINT32_MAX)
        return err_set(e, ERR_UNSUPPORTED, "the vocabulary's texts exceed 4 GiB");
    t->n_tokens = (int32_t)v->n;
    t->blob = mem_new(room, 1);
    t->tokens = mem_new(v->n, sizeof *t->tokens);
    t->by_text = mem_new(v->n, sizeof *t->by_text);
    t->specials.names = mem_new(v->n, sizeof *t->specials.names);
    if (!t->blob || !t->tokens || !t->by_text || !t->specials.names) return err_no_memory(e);
    for (uint32_t i = 0; i < v->n; i++) {
        place_token(t, &v->tokens[i], &v->rules, &t->tokens[i], &used);
        if (v->tokens[i].len > t->longest_text) t->longest_text = v->tokens[i].len;
    }
    return 0;
}

static bool text_is(const tokenizer *t, const struct token *k, const char *text) {
    return strlen(text) == k->text_len && memcmp(t->blob + k->text_at, text, k->text_len) == 0;
}

/* Which tokens are never sampled, and which end an answer. The latter become control tokens,
 * whatever their type in the file, so that clients cannot write them: user-defined tokens are
 * matched in untrusted text. */
static void mark_ends(tokenizer *t, const struct vocab *v) {
    const int32_t declared[] = {v->eos, v->eot, v->eom};
    int32_t end = -1;
    bool has_return = false;
    for (int32_t i = 0; i < t->n_tokens; i++) {
        struct token *k = &t->tokens[i];
        bool special = k->type == TOKEN_CONTROL || k->type == TOKEN_USER_DEFINED;
        k->suppressed = v->tokens[i].suppressed;
        k->eog =
            v->tokens[i].eog || (special && vocab_is_eog_text(t->blob + k->text_at, k->text_len));
        for (size_t d = 0; d < sizeof declared / sizeof declared[0]; d++)
            k->eog |= declared[d] == i;
        if ((k->eog || i == v->bos) && k->type != TOKEN_UNKNOWN && k->type != TOKEN_BYTE) {
            k->type = TOKEN_CONTROL;
            k->bytes_at = k->text_at;
            k->bytes_len = k->text_len;
        }
        if (k->type != TOKEN_CONTROL) continue;
        if (text_is(t, k, "<|return|>")) has_return = true;
        if (text_is(t, k, "<|end|>") && !v->tokens[i].eog && i != v->eos) end = i;
    }
    /* Harmony ends a message with <|end|> and the answer with <|return|>. */
    if (has_return && end >= 0) t->tokens[end].eog = false;
}

/* Of tokens with equal text only the last can be encoded; the others, and texts that are not valid
 * UTF-8, can only be decoded. */
static void index_texts(tokenizer *t) {
    uint32_t n = (uint32_t)t->n_tokens;
    for (uint32_t i = 0; i < n; i++) {
        const struct token *k = &t->tokens[i];
        t->by_text[i] = (struct named){t->blob + k->text_at, k->text_len, (int32_t)i};
    }
    named_sort(t->by_text, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct named *it = &t->by_text[i], *before = i ? it - 1 : NULL;
        t->tokens[it->id].hidden =
            it->len == 0 || memchr(it->text, 0, it->len) || !utf8_valid(it->text, it->len) ||
            (before && before->len == it->len && memcmp(before->text, it->text, it->len) == 0);
    }
}

static void special_set_add(struct special_set *set, const struct named *name) {
    set->names[set->n++] = *name;
    set->starts[(unsigned char)name->text[0]] = true;
}

static void index_specials(tokenizer *t) {
    for (int32_t i = 0; i < t->n_tokens; i++) {
        const struct token *k = &t->tokens[i];
        bool user = k->type == TOKEN_USER_DEFINED;
        if (!user && k->type != TOKEN_CONTROL && k->type != TOKEN_UNKNOWN) continue;
        if (k->hidden || k->text_len == 0) continue;
        if (user && k->flags & TOKEN_NORMALIZED) continue;
        struct named name = {t->blob + k->text_at, k->text_len, i};
        if (user && t->spm_user_rules) {
            name.text = t->blob + k->bytes_at;
            name.len = k->bytes_len;
        }
        special_set_add(&t->specials, &name);
    }
    named_sort(t->specials.names, t->specials.n);
}

/* Normalizes and indexes the user-defined tokens that are matched in normalized text. */
static int index_normals(tokenizer *t, err *e) {
    struct normalizer_work work;
    str texts;
    int rc = 0;
    t->normals.names = mem_new((uint64_t)t->n_tokens, sizeof *t->normals.names);
    if (!t->normals.names) return err_no_memory(e);
    normalizer_work_init(&work);
    str_init(&texts, UINT32_MAX);
    for (int32_t i = 0; !rc && i < t->n_tokens; i++) {
        const struct token *k = &t->tokens[i];
        const char *text;
        size_t n;
        if (k->type != TOKEN_USER_DEFINED || !(k->flags & TOKEN_NORMALIZED) || k->hidden) continue;
        text = t->blob + k->text_at;
        n = k->text_len;
        if (t->norm) rc = normalizer_run(t->norm, &work, text, n, &text, &n, e);
        if (rc || !n) continue;
        t->normals.names[t->normals.n++] = (struct named){NULL, (uint32_t)n, i};
        str_add_n(&texts, text, n);
    }
    normalizer_work_fini(&work);
    t->normal_texts = str_take(&texts);
    if (!rc && !t->normal_texts) rc = err_no_memory(e);
    const char *at = t->normal_texts;
    for (uint32_t i = 0; !rc && i < t->normals.n; i++) {
        t->normals.names[i].text = at;
        t->normals.starts[(unsigned char)*at] = true;
        at += t->normals.names[i].len;
    }
    if (!rc) named_sort(t->normals.names, t->normals.n);
    return rc;
}

/* Byte fallback needs all 256 byte tokens; a vocabulary with fewer has no byte fallback. */
static void index_bytes(tokenizer *t) {
    uint32_t n = 0;
    t->unk = -1;
    for (int b = 0; b < N_BYTES; b++)
        t->byte_ids[b] = -1;
    for (int32_t i = 0; i < t->n_tokens; i++) {
        struct token *k = &t->tokens[i];
        if (k->type == TOKEN_UNKNOWN && t->unk < 0) t->unk = i;
        if (k->type != TOKEN_BYTE) continue;
        int b = vocab_byte_value(t->blob + k->text_at, k->text_len);
        n += t->byte_ids[b] < 0;
        if (t->byte_ids[b] < 0)
            t->byte_ids[b] = i;
        else
            k->hidden = true;
    }
    t->byte_fallback = n == N_BYTES;
}

/* Does the token contain a space mark after another character? */
static bool reaches_into_space(const tokenizer *t, const struct token *k) {
    const char *text = t->blob + k->text_at;
    bool after_other = false;
    for (uint32_t i = 0; i < k->text_len;) {
        bool space = k->text_len - i >= SPACE_MARK_BYTES &&
                     memcmp(text + i, space_mark, SPACE_MARK_BYTES) == 0;
        if (space && after_other) return true;
        after_other = !space;
        i += space ? SPACE_MARK_BYTES : 1;
    }
    return false;
}

/* Without byte fallback a run of unknown characters is one token, so text must not be cut. */
static void find_cuts(tokenizer *t) {
    t->cuts_at_space = t->byte_fallback;
    for (int32_t i = 0; t->cuts_at_space && i < t->n_tokens; i++) {
        const struct token *k = &t->tokens[i];
        bool special = k->type == TOKEN_CONTROL || k->type == TOKEN_UNKNOWN;
        if (!special && !k->hidden && reaches_into_space(t, k)) t->cuts_at_space = false;
    }
}

/* Gives the vocabulary to the library, which requires an unknown piece: a vocabulary without one
 * gets it after its last token, where byte fallback makes it unreachable. */
int tokenizer_open_library(const tokenizer *t, const struct vocab *v, struct spm **out, err *e) {
    str proto;
    uint32_t n = v->n;
    if (!t->byte_fallback && t->unk < 0)
        return err_set(e, ERR_FORMAT,
                       "the vocabulary has neither 256 byte tokens nor an unknown "
                       "token");
    str_init(&proto, SIZE_MAX / 2);
    for (uint32_t i = 0; i < n; i++) {
        const struct token *k = &t->tokens[i];
        struct spm_piece piece = {.text = t->blob + k->text_at,
                                  .len = k->text_len,
                                  .score = v->tokens[i].score,
                                  .type = (enum token_type)k->type,
                                  .hidden = k->hidden};
        if (piece.type == TOKEN_UNKNOWN && (int32_t)i != t->unk) piece.hidden = true;
        if (piece.type == TOKEN_BYTE && !t->byte_fallback) piece.hidden = true;
        spm_proto_add_piece(&proto, &piece, i);
    }
    if (t->unk < 0) {
        struct spm_piece unknown = {.text = "", .type = TOKEN_UNKNOWN};
        spm_proto_add_piece(&proto, &unknown, n++);
    }
    spm_proto_add_specs(&proto, n, t->byte_fallback);
    int rc = proto.failed ? err_no_memory(e) : spm_open(proto.data, proto.len, out, e);
    str_fini(&proto);
    return rc;
}

/* Does SentencePiece only merge by scores here? It also splits unused tokens and joins unknown
 * characters. Building the pairs examines every split of every token: vocabularies with tokens so
 * long that this takes seconds are left to the library. */
static bool merges_alone(const tokenizer *t) {
    uint64_t cost = 0;
    for (int32_t i = 0; i < t->n_tokens; i++) {
        const struct token *k = &t->tokens[i];
        cost += (uint64_t)k->text_len * k->text_len;
        if (k->type == TOKEN_UNUSED && !k->hidden) return false;
    }
    return t->byte_fallback && cost <= SCORED_MAX_COST;
}

static int build_tokenizer(tokenizer *t, struct vocab *v, err *e) {
    t->bos = v->bos;
    t->eos = v->eos;
    t->fim = v->fim;
    memcpy(t->before, v->before, sizeof t->before);
    memcpy(t->after, v->after, sizeof t->after);
    memcpy(t->between, v->between, sizeof t->between);
    t->n_between = v->n_between;
    t->has_pair = v->has_pair;
    t->n_before = v->n_before;
    t->n_after = v->n_after;
    t->space_prefix = v->space_prefix;
    t->prefix_rule = v->prefix_rule;
    t->spm_user_rules = v->spm_user_rules;
    t->strip_after_special = v->strip_after_special;
    t->chat_template = v->chat_template;
    v->chat_template = NULL;
    t->tool_template = v->tool_template;
    v->tool_template = NULL;
    t->rerank_template = v->rerank_template;
    v->rerank_template = NULL;
    t->norm = v->norm;
    v->norm = NULL;
    int rc = copy_tokens(t, v, e);
    if (rc) return rc;
    mark_ends(t, v);
    index_texts(t);
    index_specials(t);
    index_bytes(t);
    if (v->is_bpe) {
        rc = index_normals(t, e);
        return rc ? rc : bpe_new(t, v, &t->bpe, e);
    }
    find_cuts(t);
    return merges_alone(t) ? bpe_new_scored(t, v, &t->scored, e)
                           : tokenizer_open_library(t, v, &t->spm, e);
}

enum file_kind { FILE_GGUF, FILE_JSON, FILE_SPM };

/* Determines the kind from the file's first bytes. In a folder tokenizer.json is preferred to
 * tokenizer.model; `inside` receives its path. */
static int find_kind(const char *path, enum file_kind *kind, char *inside, err *e) {
    struct stat st;
    char begin[16];
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        int n = snprintf(inside, PATH_MAX_BYTES, "%s/tokenizer.json", path);
        *kind = FILE_JSON;
        if (n < PATH_MAX_BYTES && access(inside, F_OK) == 0) return 0;
        n = snprintf(inside, PATH_MAX_BYTES, "%s/tiktoken.model", path); /* read as the former */
        if (n < PATH_MAX_BYTES && access(inside, F_OK) == 0) return 0;
        n = snprintf(inside, PATH_MAX_BYTES, "%s/tokenizer.model", path);
        *kind = FILE_SPM;
        if (n < PATH_MAX_BYTES && access(inside, F_OK) == 0) return 0;
        return err_set(e, ERR_IO,
                       "%s: the folder has no tokenizer.json, tokenizer.model or tiktoken.model",
                       path);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return err_set(e, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    ssize_t n = read(fd, begin, sizeof begin);
    int why = errno;
    close(fd);
    if (n < 0) return err_set(e, ERR_IO, "%s: cannot read: %s", path, strerror(why));
    ssize_t at = 0;
    while (at < n && strchr(" \t\r\n", begin[at]) && begin[at])
        at++;
    *kind = n >= 4 && memcmp(begin, "GGUF", 4) == 0 ? FILE_GGUF
            : at < n && begin[at] == '{'            ? FILE_JSON
                                                    : FILE_SPM;
    return 0;
}

int tokenizer_build(struct vocab *v, tokenizer **out, err *e) {
    tokenizer *t = mem_new(1, sizeof *t);
    int rc = t ? build_tokenizer(t, v, e) : err_no_memory(e);
    vocab_fini(v);
    *out = NULL;
    if (rc)
        tokenizer_close(t);
    else
        *out = t;
    return rc;
}

int vocab_read(const char *path, struct vocab *v, err *e) {
    enum file_kind kind;
    char inside[PATH_MAX_BYTES] = "";
    memset(v, 0, sizeof *v);
    int rc = find_kind(path, &kind, inside, e);
    if (rc) return rc;
    if (inside[0]) path = inside;
    rc = kind == FILE_GGUF   ? vocab_read_gguf(path, v, e)
         : kind == FILE_JSON ? vocab_read_hf(path, v, e)
                             : vocab_read_spm(path, v, e);
    if (rc) vocab_fini(v);
    return rc;
}

int tokenizer_open(const char *path, tokenizer **out, err *e) {
    struct vocab v;
    *out = NULL;
    int rc = vocab_read(path, &v, e);
    if (rc) return rc;
    rc = tokenizer_build(&v, out, e);
    if (rc) err_prefix(e, "%s: ", path);
    return rc;
}

void tokenizer_close(tokenizer *t) {
    if (!t) return;
    spm_close(t->spm);
    bpe_free(t->bpe);
    bpe_free(t->scored);
    free(t->chat_template);
    free(t->tool_template);
    free(t->rerank_template);
    free(t->specials.names);
    free(t->normals.names);
    free(t->normal_texts);
    normalizer_free(t->norm);
    free(t->by_text);
    free(t->tokens);
    free(t->blob);
    free(t);
}

static const struct token *token_at(const tokenizer *t, int32_t id) {
    return id >= 0 && id < t->n_tokens ? &t->tokens[id] : NULL;
}

const char *tokenizer_token_bytes(const tokenizer *t, int32_t id, bool with_control, size_t *n) {
    const struct token *k = token_at(t, id);
    *n = 0;
    if (!k) return "";
    if (!with_control && (k->type == TOKEN_CONTROL || k->type == TOKEN_UNKNOWN)) return "";
    *n = k->bytes_len;
    return t->blob + k->bytes_at;
}

const char *tokenizer_token_text(const tokenizer *t, int32_t id, size_t *n) {
    const struct token *k = token_at(t, id);
    *n = k ? k->text_len : 0;
    return k ? t->blob + k->text_at : "";
}

bool tokenizer_count_within(const tokenizer *t, const int32_t *ids, size_t n_ids, const char *text,
                            size_t n, const size_t *ends, size_t n_ends, size_t *counts) {
    size_t at = 0, last = 0;
    for (size_t k = 0; k < n_ends; k++) {
        counts[k] = 0;
        if (ends[k] > last) last = ends[k];
    }
    for (size_t i = 0; i < n_ids && at < last; i++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(t, ids[i], true, &len);
        bool here = len && len <= n - at && memcmp(text + at, bytes, len) == 0;
        if (!here && (at || !tokenizer_is_control(t, ids[i]))) return false;
        if (here) at += len;
        for (size_t k = 0; k < n_ends; k++)
            if (ends[k] && at <= ends[k]) counts[k] = i + 1;
    }
    return at >= last;
}

int tokenizer_decode(const tokenizer *t, const int32_t *ids, size_t n_ids, bool with_control,
                     char **text, size_t *n, err *e) {
    str out;
    size_t piece_len;
    bool at_start = t->space_prefix;
    *text = NULL;
    *n = 0;
    str_init(&out, SIZE_MAX / 2);
    for (size_t i = 0; i < n_ids; i++) {
        const char *piece = tokenizer_token_bytes(t, ids[i], with_control, &piece_len);
        if (!piece_len) continue;
        size_t skip = at_start && piece[0] == ' ';
        at_start = false;
        str_add_n(&out, piece + skip, piece_len - skip);
    }
    size_t len = out.len;
    *text = str_take(&out);
    if (!*text) return err_no_memory(e);
    *n = len;
    return 0;
}

bool tokenizer_strips_leading_space(const tokenizer *t) {
    return t->space_prefix;
}

int32_t tokenizer_n_vocab(const tokenizer *t) {
    return t->n_tokens;
}

int32_t tokenizer_bos(const tokenizer *t) {
    return t->bos;
}

int32_t tokenizer_eos(const tokenizer *t) {
    return t->eos;
}

bool tokenizer_is_eog(const tokenizer *t, int32_t id) {
    const struct token *k = token_at(t, id);
    return k && k->eog;
}

bool tokenizer_is_suppressed(const tokenizer *t, int32_t id) {
    const struct token *k = token_at(t, id);
    return k && k->suppressed;
}

bool tokenizer_is_control(const tokenizer *t, int32_t id) {
    const struct token *k = token_at(t, id);
    return k && k->type == TOKEN_CONTROL;
}

void tokenizer_added(const tokenizer *t, unsigned *n_before, unsigned *n_after) {
    *n_before = t->n_before;
    *n_after = t->n_after;
}

bool tokenizer_adds_bos(const tokenizer *t) {
    return t->n_before > 0 && t->before[0] == t->bos;
}

int32_t tokenizer_find(const tokenizer *t, const char *text) {
    size_t len = strlen(text);
    if (len > VOCAB_MAX_TEXT_BYTES) return -1;
    const struct named *it = named_find(t->by_text, (uint32_t)t->n_tokens, text, (uint32_t)len);
    return it ? it->id : -1;
}

const char *tokenizer_chat_template(const tokenizer *t) {
    return t->chat_template;
}

const char *tokenizer_tool_template(const tokenizer *t) {
    return t->tool_template;
}

const char *tokenizer_rerank_template(const tokenizer *t) {
    return t->rerank_template;
}
