/* scan.c - split patterns as scanners. Each scan_* function returns the end of the match that
 * begins at `at`; the comment above it is the pattern, alternatives tried in their order. Pure. */
#include "core/tokenizer/scan.h"
#include "core/text/utf8.h"

#include <string.h>

enum { L = UNICODE_LETTER, N = UNICODE_NUMBER, S = UNICODE_SPACE, M = UNICODE_MARK };

/* Text under the scanner. Behind the end everything is 0: no character, no flags. */
struct reader {
    const struct unicode_flags *u;
    const char *text; /* (n) */
    size_t n;
};

static inline unsigned flags_at(const struct reader *r, size_t at, unsigned *len) {
    if (at >= r->n) {
        *len = 0;
        return 0;
    }
    unsigned char b = (unsigned char)r->text[at];
    if (b < 0x80) {
        *len = 1;
        return r->u->plane0[b];
    }
    return unicode_flags_of(r->u, utf8_decode_valid(r->text + at, len));
}

static inline char byte_at(const struct reader *r, size_t at) {
    return at < r->n ? r->text[at] : 0;
}

static inline bool is_line_end(char c) {
    return c == '\r' || c == '\n';
}

/* End of the run of characters with any of the flags. */
static inline size_t run_of(const struct reader *r, size_t at, unsigned flags) {
    unsigned len;
    while (flags_at(r, at, &len) & flags)
        at += len;
    return at;
}

/* End of the run of characters without any of the flags. */
static inline size_t run_without(const struct reader *r, size_t at, unsigned flags) {
    unsigned len;
    while (at < r->n && !(flags_at(r, at, &len) & flags))
        at += len;
    return at;
}

/* 's|'t|'re|'ve|'m|'ll|'d; the end of a match at `at`, or `at`. fold: (?i:...) */
static size_t contraction(const struct reader *r, size_t at, bool fold, bool ascii) {
    if (byte_at(r, at) != '\'') return at;
    unsigned char a = (unsigned char)byte_at(r, at + 1), b = (unsigned char)byte_at(r, at + 2);
    if (fold && !ascii && a == 0xc5 && b == 0xbf) return at + 3; /* U+017F folds to s */
    if (fold) {
        a |= a >= 'A' && a <= 'Z' ? 0x20 : 0;
        b |= b >= 'A' && b <= 'Z' ? 0x20 : 0;
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
    if (((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
    return at;
}

/* \s+(?!\S)|\s+ with white space at `at`: all but the last character before something else. */
static size_t spaces(const struct reader *r, size_t at) {
    unsigned len;
    size_t end = at, last = at;
    while (flags_at(r, end, &len) & S) {
        last = end;
        end += len;
    }
    return end < r->n && last > at ? last : end;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t spaces_or_lines(const struct reader *r, size_t at) {
    unsigned len;
    size_t end = at, last = at, line = at;
    while (flags_at(r, end, &len) & S) {
        last = end;
        if (is_line_end(r->text[end])) line = end + len;
        end += len;
    }
    if (line > at) return line;
    return end < r->n && last > at ? last : end;
}

/* \s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|...|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}: what the run has
 * is found once, at its start. */
static size_t spaces_in_powers(const struct reader *r, size_t at, struct scan_match *m) {
    enum { MOST = 512 };
    unsigned len, n = 0, take = 1;
    size_t ends[MOST + 2], end = at, line = at;
    if (at >= m->run_end) {
        while (flags_at(r, end, &len) & S) {
            if (is_line_end(r->text[end])) line = end + len;
            end += len;
        }
        if (line > at) return line;
        m->run_end = end;
    }
    ends[0] = end = at;
    while (n <= MOST && end < m->run_end) {
        flags_at(r, end, &len);
        ends[++n] = end += len;
    }
    bool at_end = m->run_end == r->n;
    for (unsigned k = MOST; k > 1 && take == 1; k /= 2)
        if (n > k || (n == k && at_end)) take = k;
    return ends[take];
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t scan_gpt2(const struct reader *r, size_t at) {
    unsigned len;
    size_t end = contraction(r, at, false, true);
    if (end > at) return end;
    size_t word = at + (r->text[at] == ' ');
    if (word < r->n) {
        unsigned f = flags_at(r, word, &len);
        if (f & L) return run_of(r, word + len, L);
        if (f & N) return run_of(r, word + len, N);
        if (!(f & S)) return run_without(r, word + len, S | L | N);
    }
    return spaces(r, at);
}

/* \p{N}{1,max} with a number at `at`; max 0: \p{N}+ */
static size_t number(const struct reader *r, size_t at, unsigned max) {
    unsigned len, n = 0;
    while ((!max || n < max) && flags_at(r, at, &len) & N) {
        at += len;
        n++;
    }
    return at;
}

/* ?[^\s\p{L}\p{N}]+[\r\n]* or, with slash, [\r\n/]*; `at` if nothing matches. */
static size_t others(const struct reader *r, size_t at, unsigned letters, bool slash) {
    unsigned len;
    size_t from = at + (r->text[at] == ' ');
    if (from >= r->n || flags_at(r, from, &len) & (S | letters | N)) return at;
    size_t end = run_without(r, from, S | letters | N);
    while (is_line_end(byte_at(r, end)) || (slash && byte_at(r, end) == '/'))
        end++;
    return end;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
 * \s*[\r\n]+|\s+(?!\S)|\s+
 * with marks: [\p{L}\p{M}]+ for \p{L}+ and [^\s\p{L}\p{M}\p{N}]+ for [^\s\p{L}\p{N}]+ */
static size_t scan_llama3(const struct scan *s, const struct reader *r, struct scan_match *m) {
    unsigned len, len2, letters = s->marks ? L | M : L;
    size_t at = m->from, end = contraction(r, at, true, s->ascii_fold);
    if (end > at) return end;
    unsigned f = flags_at(r, at, &len);
    if (f & letters) return run_of(r, at + len, letters);
    if (f & N) return number(r, at, s->max_digits);
    if (!is_line_end(r->text[at]) && flags_at(r, at + len, &len2) & letters)
        return run_of(r, at + len + len2, letters);
    end = others(r, at, letters, false);
    if (end > at) return end;
    return s->cascade ? spaces_in_powers(r, at, m) : spaces_or_lines(r, at);
}

static bool han_at(const struct reader *r, size_t at, unsigned *len) {
    return at < r->n && (unsigned char)r->text[at] >= 0xe2 &&
           unicode_is_han(utf8_decode_valid(r->text + at, len));
}

/* Flags of a character of a word; without_han: Han characters have none. */
static inline unsigned word_flags(const struct reader *r, size_t at, bool without_han,
                                  unsigned *len) {
    unsigned f = flags_at(r, at, len), unused;
    return without_han && han_at(r, at, &unused) ? 0 : f;
}

/* [U]*[W]+ or, failing that, [U]+[W]* from `at`, where U are characters that may stand in front
 * (Lu, Lt, Lm, Lo, M) and W those that may follow (Ll, Lm, Lo, M). first: which of the two; `at` if
 * it does not match. */
static size_t cased_word(const struct reader *r, size_t at, bool first, bool han) {
    unsigned len;
    size_t end = at, both = at;
    for (unsigned f; (f = word_flags(r, end, han, &len)) & UNICODE_UPPER; end += len)
        if (f & UNICODE_LOWER) both = end + len;
    size_t lower = end;
    while (word_flags(r, lower, han, &len) & UNICODE_LOWER)
        lower += len;
    if (!first) return end > at ? lower : at;
    /* W+ takes what follows the upper run; else the upper run gives back its last W. */
    return lower > end ? lower : both;
}

/* [^\r\n\p{L}\p{N}]?[U]*[W]+C|[^\r\n\p{L}\p{N}]?[U]+[W]*C|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|
 * \s*[\r\n]+|\s+(?!\S)|\s+
 * C: (?i:'s|'t|'re|'ve|'m|'ll|'d)? or nothing; with han: \p{Han}+ first, which U and W lack */
static size_t scan_cased(const struct scan *s, const struct reader *r, size_t at) {
    unsigned len, f = flags_at(r, at, &len);
    size_t characters = at;
    while (s->han && han_at(r, characters, &len))
        characters += len;
    if (characters > at) return characters;
    bool may_lead = !(f & (L | N)) && !is_line_end(r->text[at]);
    for (int first = 1; first >= 0; first--) {
        for (int lead = may_lead; lead >= 0; lead--) {
            size_t word = at + (lead ? len : 0), end = cased_word(r, word, first, s->han);
            if (end == word) continue;
            return s->contractions ? contraction(r, end, true, s->ascii_fold) : end;
        }
    }
    if (f & N) return number(r, at, s->max_digits);
    size_t end = others(r, at, L, s->slash);
    return end > at ? end : spaces_or_lines(r, at);
}

/* \s+$ ($ also matches before a line feed) */
static bool next_tail(const struct reader *r, struct scan_match *m) {
    unsigned len;
    for (size_t at = m->from; at < r->n;) {
        at = run_without(r, at, S);
        size_t stop = at, line = at;
        while (flags_at(r, stop, &len) & S) {
            if (r->text[stop] == '\n') line = stop;
            stop += len;
        }
        m->start = at;
        m->end = stop == r->n ? stop : line;
        if (m->end > at) return true;
        at = stop;
    }
    return false;
}

/* Does \b hold between a digit and text[at]: is it no word character? The numbers of Latin-1 that
 * are no digits count as such here. */
static bool is_border(const struct reader *r, size_t at) {
    unsigned len;
    if (at >= r->n) return true;
    uint32_t c = utf8_decode_valid(r->text + at, &len);
    return !unicode_is_word(c) && !(c < 0x100 && flags_at(r, at, &len) & N);
}

/* Number of digits of the run at `at`, and its end. */
static size_t digits(const struct reader *r, size_t at, size_t *end) {
    unsigned len;
    size_t n = 0;
    for (*end = at; flags_at(r, *end, &len) & UNICODE_DIGIT; *end += len)
        n++;
    return n;
}

static size_t skip_digits(const struct reader *r, size_t at, size_t n) {
    for (unsigned len; n; n--) {
        flags_at(r, at, &len);
        at += len;
    }
    return at;
}

/* \d{1,3}(?=(?:\d{3})*\b): a run of digits in threes from the right. */
static bool next_group(const struct reader *r, struct scan_match *m) {
    if (m->end < m->run_end) {
        m->start = m->end;
        m->end = skip_digits(r, m->start, 3);
        return true;
    }
    for (size_t at = m->from; at < r->n;) {
        at = run_without(r, at, UNICODE_DIGIT);
        size_t stop, n = digits(r, at, &stop);
        if (n && is_border(r, stop)) {
            m->start = at;
            m->end = skip_digits(r, at, n % 3 ? n % 3 : 3);
            m->run_end = stop;
            return true;
        }
        at = stop;
    }
    return false;
}

/* (?=(\d{3})+(?!\d)): the empty places before the last three digits of a run, the last six, ... */
static bool next_cut(const struct reader *r, struct scan_match *m) {
    size_t at = m->from;
    if (m->run_end) {
        size_t next = skip_digits(r, m->end, 3);
        if (next < m->run_end) {
            m->start = m->end = next;
            return true;
        }
        at = m->run_end;
    }
    while (at < r->n) {
        at = run_without(r, at, UNICODE_DIGIT);
        size_t stop, n = digits(r, at, &stop);
        if (n >= 3) {
            m->start = m->end = skip_digits(r, at, n % 3);
            m->run_end = stop;
            return true;
        }
        at = stop;
    }
    return false;
}

bool scan_next(const struct scan *s, const struct unicode_flags *u, const char *text, size_t n,
               struct scan_match *m) {
    struct reader r = {u, text, n};
    size_t at = m->from;
    if (at >= n) return false;
    m->start = at;
    switch (s->kind) {
    case SCAN_GPT2:
        m->end = scan_gpt2(&r, at);
        return true;
    case SCAN_LLAMA3:
        m->end = scan_llama3(s, &r, m);
        return true;
    case SCAN_CASED:
        m->end = scan_cased(s, &r, at);
        return true;
    case SCAN_TAIL:
        return next_tail(&r, m);
    case SCAN_GROUPS_B:
        return next_group(&r, m);
    case SCAN_GROUPS_RUN:
        return next_cut(&r, m);
    default:
        return false;
    }
}

#define FOLDED  "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPELLED "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define WORD    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define LINES   "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define REST    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" LINES
#define SLASHED "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" LINES
#define MARKED                                                                                     \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" LINES
#define GPT2        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
#define UPPER_SET   "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER_SET   "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define UPPER       "[" UPPER_SET "]"
#define LOWER       "[" LOWER_SET "]"
#define NO_HAN(set) "[" set "&&[^\\p{Han}]]"
#define POWERS                                                                                     \
    "|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)"                \
    "|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"
#define LEAD     "[^\\r\\n\\p{L}\\p{N}]?"
#define CASED(c) LEAD UPPER "*" LOWER "+" c "|" LEAD UPPER "+" LOWER "*" c

struct scan scan_of_pattern(const char *pattern) {
    static const struct {
        const char *pattern;
        struct scan scan;
    } known[] = {
        {GPT2 "|\\s+", {.kind = SCAN_GPT2}},
        /* What no alternative matches becomes a piece too: the same. */
        {GPT2, {.kind = SCAN_GPT2}},
        {FOLDED WORD "|\\p{N}{1,3}" REST, {.kind = SCAN_LLAMA3, .max_digits = 3}},
        {FOLDED WORD "|\\p{N}" REST, {.kind = SCAN_LLAMA3, .max_digits = 1}},
        {FOLDED WORD "|\\p{N}+" REST, {.kind = SCAN_LLAMA3, .max_digits = 0}},
        {FOLDED MARKED, {.kind = SCAN_LLAMA3, .max_digits = 1, .marks = true}},
        {SPELLED WORD "|\\p{N}{1,3}" REST,
         {.kind = SCAN_LLAMA3, .max_digits = 3, .ascii_fold = true}},
        {SPELLED WORD "|\\p{N}" REST, {.kind = SCAN_LLAMA3, .max_digits = 1, .ascii_fold = true}},
        {CASED("") "|\\p{N}" SLASHED, {.kind = SCAN_CASED, .max_digits = 1, .slash = true}},
        {CASED(FOLDED "?") "|\\p{N}{1,3}" SLASHED,
         {.kind = SCAN_CASED, .max_digits = 3, .slash = true, .contractions = true}},
        {FOLDED WORD "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" POWERS,
         {.kind = SCAN_LLAMA3, .max_digits = 3, .cascade = true}},
        {"[\\p{Han}]+|" LEAD NO_HAN(UPPER_SET) "*" NO_HAN(LOWER_SET) "+" FOLDED "?|" LEAD NO_HAN(
             UPPER_SET) "+" NO_HAN(LOWER_SET) "*" FOLDED "?|\\p{N}{1,3}" REST,
         {.kind = SCAN_CASED, .max_digits = 3, .contractions = true, .han = true}},
        {"\\s+$", {.kind = SCAN_TAIL}},
        {"\\d{1,3}(?=(?:\\d{3})*\\b)", {.kind = SCAN_GROUPS_B}},
        {"(?=(\\d{3})+(?!\\d))", {.kind = SCAN_GROUPS_RUN}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(pattern, known[i].pattern) == 0) return known[i].scan;
    return (struct scan){.kind = SCAN_NONE};
}
