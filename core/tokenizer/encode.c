/* encode.c - text to ids: matches special tokens, merges the text between them. Pure; any thread.
 *
 * Special tokens are matched leftmost first, the longest at each position. A control token must be
 * entirely in trusted text. Runs of valid UTF-8 between them (with the space prefix, if the
 * vocabulary has one) are merged as a whole; bytes that are not UTF-8 become byte tokens. */
#include "core/tokenizer/tokenizer_int.h"

#include "core/base/mem.h"
#include "core/text/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { PART_BYTES = 1024 };

int id_list_add(struct id_list *list, int32_t id, err *e) {
    if (list->n >= list->max)
        return err_set(e, ERR_TOO_LONG, "the text has more than %zu tokens", list->max);
    if (list->n == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        int32_t *ids = mem_resize(list->ids, capacity, sizeof *ids);
        if (!ids) return err_no_memory(e);
        list->ids = ids;
        list->capacity = capacity;
    }
    list->ids[list->n++] = id;
    return 0;
}

/* The state of one call. */
struct job {
    const tokenizer *t;
    const char *text; /* (n) all pieces, concatenated */
    size_t n;
    const tokenizer_piece *pieces; /* (n_pieces); NULL: one piece, trusted_end is set */
    size_t n_pieces;
    size_t piece, piece_end; /* the piece at the current position, and its end */
    size_t trusted_end;      /* end of the trusted text at the current position, 0: not trusted */
    bool prefix_due;         /* the next ordinary text gets the space prefix */
    struct id_list ids;
    str buffer; /* prefix and text */
    struct bpe_work *work;
    struct normalizer_work norm;
    err *e;
};

/* The bounds of a matched token; the text before it begins at from. */
struct cut {
    size_t from, start, end;
};

enum { NO_CHARACTER = 0 };

/* The character that ends at text[at], *len bytes long; NO_CHARACTER: there is none. */
static uint32_t char_before(const char *text, size_t from, size_t at, size_t *len) {
    size_t n = 1;
    while (n < 4 && at - from > n && utf8_continues(text[at - n]))
        n++;
    unsigned size;
    *len = n;
    if (at == from || !utf8_valid(text + at - n, n)) return NO_CHARACTER;
    uint32_t c = utf8_decode_valid(text + at - n, &size);
    return size == n ? c : NO_CHARACTER;
}

static uint32_t char_after(const char *text, size_t at, size_t n, size_t *len) {
    unsigned size;
    size_t left = n - at < 4 ? n - at : 4;
    *len = 1;
    if (!left || !utf8_valid_prefix(text + at, left)) return NO_CHARACTER;
    uint32_t c = utf8_decode_valid(text + at, &size);
    *len = size;
    return c;
}

static bool is_white(uint32_t c) {
    return unicode_flags_search(c) & UNICODE_SPACE;
}

/* Do the token's flags allow it here? Extends the cut by the white space that it strips. */
static bool fit_cut(const tokenizer *t, int32_t id, const char *text, size_t n, struct cut *cut) {
    unsigned flags = t->tokens[id].flags;
    size_t len;
    if (flags & TOKEN_SINGLE_WORD && (unicode_is_word(char_before(text, 0, cut->start, &len)) ||
                                      unicode_is_word(char_after(text, cut->end, n, &len))))
        return false;
    while (flags & TOKEN_LSTRIP && is_white(char_before(text, cut->from, cut->start, &len)))
        cut->start -= len;
    while (flags & TOKEN_RSTRIP && is_white(char_after(text, cut->end, n, &len)))
        cut->end += len;
    return true;
}

static bool ends_in_space(const char *text, size_t n) {
    return text[n - 1] == ' ' || (n >= 3 && memcmp(text + n - 3, "\xe2\x96\x81", 3) == 0);
}

/* Length of a first part of valid UTF-8 text[0..n) that can be tokenized separately. The library's
 * time per byte grows with its input (fourfold between 1 KB and 1 MB), so long text is cut where
 * the result provably stays the same: before a space that follows another character. Every merge
 * produces a token of the vocabulary, so no merge crosses that position if no token contains such a
 * pair, and merges on either side are independent. */
static size_t part_length(const tokenizer *t, const char *text, size_t n) {
    if (!t->cuts_at_space) return n;
    for (size_t i = PART_BYTES; i < n; i++)
        if (text[i] == ' ' && !ends_in_space(text, i)) return i;
    return n;
}

static bool accepts_all(const void *context, const struct named *found, size_t end) {
    (void)context, (void)found, (void)end;
    return true;
}

/* Encodes valid UTF-8 by merges: normalizes it, then matches the tokens of normalized text. */
static int encode_normalized(struct job *j, const char *text, size_t n, bool at_start) {
    const tokenizer *t = j->t;
    int rc = t->norm ? normalizer_run(t->norm, &j->norm, text, n, &text, &n, j->e) : 0;
    struct special_search search = {&t->normals, text, n, accepts_all, NULL};
    size_t from = 0;
    for (size_t at = 0; !rc && t->normals.n && at < n;) {
        const struct named *s = NULL;
        if (t->normals.starts[(unsigned char)text[at]]) s = special_match(&search, at);
        if (!s) {
            at++;
            continue;
        }
        struct cut cut = {.from = from, .start = at, .end = at + s->len};
        at = cut.end;
        if (!fit_cut(t, s->id, text, n, &cut)) continue;
        rc = bpe_encode(t->bpe, &j->work, text + from, cut.start - from, at_start && from == 0,
                        &j->ids, j->e);
        if (!rc) rc = id_list_add(&j->ids, s->id, j->e);
        from = at = cut.end;
    }
    if (rc || from == n) return rc;
    return bpe_encode(t->bpe, &j->work, text + from, n - from, at_start && from == 0, &j->ids,
                      j->e);
}

/* Encodes ordinary text with a vocabulary of merges. */
static int encode_bpe_run(struct job *j, const char *text, size_t n, bool at_start) {
    int rc = 0;
    for (size_t i = 0; !rc && i < n;) {
        size_t valid = utf8_valid_prefix(text + i, n - i);
        if (valid) rc = encode_normalized(j, text + i, valid, at_start && i == 0);
        i += valid;
        if (!rc && i < n) rc = bpe_encode_byte(j->t->bpe, (unsigned char)text[i++], &j->ids, j->e);
    }
    return rc;
}

/* Encodes ordinary text without a prefix. */
static int encode_run(struct job *j, const char *text, size_t n) {
    const tokenizer *t = j->t;
    int rc = 0;
    for (size_t i = 0; !rc && i < n;) {
        size_t valid_end = i + utf8_valid_prefix(text + i, n - i);
        while (!rc && i < valid_end) {
            size_t part = part_length(t, text + i, valid_end - i);
            rc = t->scored ? bpe_encode(t->scored, &j->work, text + i, part, false, &j->ids, j->e)
                           : spm_encode(t->spm, text + i, part, &j->ids, j->e);
            i += part;
        }
        if (rc || i == n) break;
        int32_t id = t->byte_fallback ? t->byte_ids[(unsigned char)text[i]] : t->unk;
        rc = id_list_add(&j->ids, id, j->e);
        i++;
    }
    return rc;
}

static bool begins_with_space(const char *text, size_t n) {
    return n && (text[0] == ' ' || (n >= 3 && memcmp(text, "\xe2\x96\x81", 3) == 0));
}

static int encode_text(struct job *j, size_t from, size_t to) {
    if (from == to && !j->prefix_due) return 0;
    if (j->t->bpe) return encode_bpe_run(j, j->text + from, to - from, from == 0);
    bool has_space =
        j->t->prefix_rule != PREFIX_ALWAYS && begins_with_space(j->text + from, to - from);
    if (!j->prefix_due || has_space) {
        j->prefix_due = false;
        return encode_run(j, j->text + from, to - from);
    }
    j->prefix_due = false;
    str_clear(&j->buffer);
    str_add_char(&j->buffer, ' ');
    str_add_n(&j->buffer, j->text + from, to - from);
    if (j->buffer.failed) return err_no_memory(j->e);
    return encode_run(j, j->buffer.data, j->buffer.len);
}

/* Finds the end of the trusted text around the current piece; adjacent trusted pieces are one. */
static void find_trusted_end(struct job *j) {
    if (!j->pieces[j->piece].trusted) {
        j->trusted_end = 0;
        return;
    }
    if (j->trusted_end >= j->piece_end) return;
    j->trusted_end = j->piece_end;
    for (size_t p = j->piece + 1; p < j->n_pieces; p++) {
        if (j->pieces[p].n && !j->pieces[p].trusted) break;
        j->trusted_end += j->pieces[p].n;
    }
}

/* Advances to the piece that contains byte at. */
static void find_piece(struct job *j, size_t at) {
    if (!j->pieces) return;
    while (at >= j->piece_end && j->piece + 1 < j->n_pieces) {
        j->piece_end += j->pieces[++j->piece].n;
        find_trusted_end(j);
    }
}

/* The first of specials[low, high) whose byte at index depth is at least c; all are longer than
 * depth and equal before it. */
static uint32_t lower_bound(const struct named *specials, uint32_t low, uint32_t high,
                            uint32_t depth, unsigned c) {
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if ((unsigned char)specials[middle].text[depth] < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Narrows the sorted list byte by byte. */
const struct named *special_match(const struct special_search *s, size_t at) {
    const struct named *best = NULL, *names = s->set->names;
    uint32_t low = 0, high = s->set->n;
    for (uint32_t depth = 0; at + depth < s->n && low < high; depth++) {
        unsigned c = (unsigned char)s->text[at + depth];
        low = lower_bound(names, low, high, depth, c);
        high = lower_bound(names, low, high, depth, c + 1);
        /* Texts that end here sort first and have no next byte. */
        while (low < high && names[low].len == depth + 1) {
            const struct named *found = &names[low++];
            if (s->accepts(s->context, found, at + depth + 1)) best = found;
        }
    }
    return best;
}

/* A control token must be entirely in trusted text. */
static bool accepts_trusted(const void *context, const struct named *found, size_t end) {
    const struct job *j = context;
    return j->t->tokens[found->id].type == TOKEN_USER_DEFINED || end <= j->trusted_end;
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Phi-3: every other special token includes the white space after it. */
static bool strips_after(const tokenizer *t, const struct named *s) {
    static const char *const keep[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (size_t i = 0; i < sizeof keep / sizeof keep[0]; i++)
        if (strlen(keep[i]) == s->len && memcmp(keep[i], s->text, s->len) == 0) return false;
    return t->strip_after_special;
}

/* Emits a special token; text continues at cut->end. */
static int encode_special(struct job *j, const struct named *s, struct cut *cut) {
    const tokenizer *t = j->t;
    bool user = t->tokens[s->id].type == TOKEN_USER_DEFINED;
    /* SentencePiece adds its prefix before the whole text, even before a user-defined token. */
    bool prefix_first = user && t->spm_user_rules;
    int rc = 0;
    if (cut->start > cut->from || prefix_first) rc = encode_text(j, cut->from, cut->start);
    if (!rc) rc = id_list_add(&j->ids, s->id, j->e);
    j->prefix_due = t->space_prefix && !prefix_first && t->prefix_rule != PREFIX_FIRST;
    while (strips_after(t, s) && cut->end < j->n && is_space(j->text[cut->end]))
        ++cut->end;
    return rc;
}

static int encode_all(struct job *j) {
    struct special_search search = {&j->t->specials, j->text, j->n, accepts_trusted, j};
    size_t from = 0, at = 0;
    while (at < j->n) {
        const struct named *s = NULL;
        if (j->t->specials.starts[(unsigned char)j->text[at]]) {
            find_piece(j, at);
            s = special_match(&search, at);
        }
        if (!s) {
            at++;
            continue;
        }
        struct cut cut = {.from = from, .start = at, .end = at + s->len};
        at = cut.end;
        if (!fit_cut(j->t, s->id, j->text, j->n, &cut)) continue;
        int rc = encode_special(j, s, &cut);
        if (rc) return rc;
        from = at = cut.end;
    }
    return from < j->n ? encode_text(j, from, j->n) : 0;
}

static int check_size(const struct job *j) {
    const tokenizer *t = j->t;
    size_t least = t->longest_text ? j->n / t->longest_text : 0;
    /* Stripped white space and runs of unknown characters need no ids. */
    if (t->strip_after_special || t->bpe || !t->byte_fallback) least = 0;
    if (j->n > ENCODE_MAX_TEXT_BYTES || least > j->ids.max)
        return err_set(j->e, ERR_TOO_LONG, "the text of %zu bytes has more than %zu tokens", j->n,
                       j->ids.max);
    return 0;
}

static int add_all(struct job *j, const int32_t *ids, unsigned n) {
    int rc = 0;
    for (unsigned i = 0; !rc && i < n; i++)
        rc = id_list_add(&j->ids, ids[i], j->e);
    return rc;
}

/* Does the text begin with the token that was added before it? */
static bool is_doubled(const struct job *j) {
    size_t n = j->t->n_before;
    return n && j->ids.n >= 2 * n && !memcmp(j->ids.ids + n, j->ids.ids, n * sizeof *j->ids.ids);
}

/* Encodes the job's text and appends its ids. */
static int encode_job(struct job *j) {
    int rc = check_size(j);
    str_init(&j->buffer, ENCODE_MAX_TEXT_BYTES + 1);
    normalizer_work_init(&j->norm);
    if (!rc) rc = encode_all(j);
    str_fini(&j->buffer);
    bpe_work_free(j->work);
    normalizer_work_fini(&j->norm);
    return rc;
}

int encode_passage(const tokenizer *t, const char *text, bool space_prefix, bool parse_special,
                   struct id_list *ids, err *e) {
    struct job j = {.t = t,
                    .text = text,
                    .n = strlen(text),
                    .trusted_end = parse_special ? strlen(text) : 0,
                    .prefix_due = space_prefix && t->space_prefix,
                    .ids = *ids,
                    .e = e};
    int rc = encode_job(&j);
    *ids = j.ids;
    return rc;
}

static int run_job(struct job *j, int flags, int32_t **ids, size_t *n_ids) {
    const tokenizer *t = j->t;
    bool special = flags & TOKENIZER_ADD_SPECIAL;
    int rc = 0;
    j->prefix_due = t->space_prefix;
    if (special) rc = add_all(j, t->before, t->n_before);
    if (!rc) rc = encode_job(j);
    /* If the template wrote BOS, it is not added twice. */
    if (!rc && special && is_doubled(j)) {
        j->ids.n -= t->n_before;
        memmove(j->ids.ids, j->ids.ids + t->n_before, j->ids.n * sizeof *j->ids.ids);
    }
    if (!rc && special) rc = add_all(j, t->after, t->n_after);
    if (!rc && !j->ids.ids && !(j->ids.ids = mem_new(1, sizeof *j->ids.ids)))
        rc = err_no_memory(j->e);
    if (rc) {
        free(j->ids.ids);
        return rc;
    }
    *ids = j->ids.ids;
    *n_ids = j->ids.n;
    return 0;
}

int tokenizer_encode(const tokenizer *t, const char *text, size_t n, int flags, size_t max_ids,
                     int32_t **ids, size_t *n_ids, err *e) {
    struct job j = {.t = t,
                    .text = text,
                    .n = n,
                    .trusted_end = flags & TOKENIZER_PARSE_SPECIAL ? n : 0,
                    .ids.max = max_ids,
                    .e = e};
    *ids = NULL;
    *n_ids = 0;
    return run_job(&j, flags, ids, n_ids);
}

int tokenizer_encode_pieces(const tokenizer *t, const tokenizer_piece *pieces, size_t n_pieces,
                            int flags, size_t max_ids, int32_t **ids, size_t *n_ids, err *e) {
    str text;
    *ids = NULL;
    *n_ids = 0;
    str_init(&text, ENCODE_MAX_TEXT_BYTES);
    for (size_t i = 0; i < n_pieces; i++)
        str_add_n(&text, pieces[i].text, pieces[i].n);
    if (text.failed) {
        bool no_memory = text.no_memory;
        str_fini(&text);
        return no_memory ? err_no_memory(e)
                         : err_set(e, ERR_TOO_LONG, "the text is longer than %d bytes",
                                   ENCODE_MAX_TEXT_BYTES);
    }
    struct job j = {.t = t,
                    .text = str_cstr(&text),
                    .n = text.len,
                    .pieces = n_pieces ? pieces : NULL,
                    .n_pieces = n_pieces,
                    .piece_end = n_pieces ? pieces[0].n : 0,
                    .ids.max = max_ids,
                    .e = e};
    if (n_pieces) find_trusted_end(&j);
    int rc = run_job(&j, flags, ids, n_ids);
    str_fini(&text);
    return rc;
}

bool tokenizer_joins_pairs(const tokenizer *t) {
    return t->has_pair;
}

int tokenizer_encode_pair(const tokenizer *t, const struct tokenizer_text texts[2], size_t max_ids,
                          int32_t **ids, size_t *n_ids, size_t *second, err *e) {
    struct id_list all = {.max = max_ids};
    int rc = 0;
    *ids = NULL;
    *n_ids = *second = 0;
    if (!t->has_pair)
        return err_set(e, ERR_UNSUPPORTED, "this model's tokenizer does not join two texts");
    struct job around = {.t = t, .ids = all, .e = e};
    rc = add_all(&around, t->before, t->n_before);
    for (int i = 0; !rc && i < 2; i++) {
        struct job j = {.t = t,
                        .text = texts[i].text,
                        .n = texts[i].n,
                        .prefix_due = t->space_prefix,
                        .ids = around.ids,
                        .e = e};
        rc = encode_job(&j);
        around.ids = j.ids;
        if (rc) break;
        rc =
            i ? add_all(&around, t->after, t->n_after) : add_all(&around, t->between, t->n_between);
        if (!i) *second = around.ids.n;
    }
    if (rc) {
        free(around.ids.ids);
        return rc;
    }
    *ids = around.ids.ids;
    *n_ids = around.ids.n;
    return 0;
}
