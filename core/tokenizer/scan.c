/* scan.c - scanners of split patterns. Each scan_* and match_* function returns the end of the
 * match that begins at `at`; the comment above it is its pattern, alternatives in order. Pure. */
#include "core/tokenizer/scan.h"
#include "core/text/utf8.h"

#include <string.h>

enum { L = UNICODE_LETTER, N = UNICODE_NUMBER, S = UNICODE_SPACE, M = UNICODE_MARK };

/* The scanned text. Past the end, characters and flags are 0. */
struct reader {
    const struct unicode_flags *u;
    const char *text; /* (n) */
    size_t n;
};

static inline unsigned get_flags(const struct reader *r, size_t at, unsigned *len) {
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

static inline char get_byte(const struct reader *r, size_t at) {
    return at < r->n ? r->text[at] : 0;
}

static inline bool is_line_end(char c) {
    return c == '\r' || c == '\n';
}

/* End of the run of characters with any of the flags. */
static inline size_t skip_with(const struct reader *r, size_t at, unsigned flags) {
    unsigned len;
    while (get_flags(r, at, &len) & flags)
        at += len;
    return at;
}

/* End of the run of characters without any of the flags. */
static inline size_t skip_without(const struct reader *r, size_t at, unsigned flags) {
    unsigned len;
    while (at < r->n && !(get_flags(r, at, &len) & flags))
        at += len;
    return at;
}

/* 's|'t|'re|'ve|'m|'ll|'d; the end of a match at `at`, or `at`. fold: (?i:...) */
static size_t match_contraction(const struct reader *r, size_t at, bool fold, bool ascii) {
    if (get_byte(r, at) != '\'') return at;
    unsigned char a = (unsigned char)get_byte(r, at + 1), b = (unsigned char)get_byte(r, at + 2);
    if (fold && !ascii && a == 0xc5 && b == 0xbf) return at + 3; /* U+017F folds to s */
    if (fold) {
        a |= a >= 'A' && a <= 'Z' ? 0x20 : 0;
        b |= b >= 'A' && b <= 'Z' ? 0x20 : 0;
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
    if (((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
    return at;
}

/* \s+(?!\S)|\s+ with white space at `at`: if other text follows, all but the last character. */
static size_t match_spaces(const struct reader *r, size_t at) {
    unsigned len;
    size_t end = at, last = at;
    while (get_flags(r, end, &len) & S) {
        last = end;
        end += len;
    }
    return end < r->n && last > at ? last : end;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t match_spaces_or_lines(const struct reader *r, size_t at) {
    unsigned len;
    size_t end = at, last = at, line = at;
    while (get_flags(r, end, &len) & S) {
        last = end;
        if (is_line_end(r->text[end])) line = end + len;
        end += len;
    }
    if (line > at) return line;
    return end < r->n && last > at ? last : end;
}

/* \s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|...|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}: the run's length is
 * computed once, at its start. */
static size_t match_spaces_in_powers(const struct reader *r, size_t at, struct scan_match *m) {
    enum { MOST = 512 };
    unsigned len, n = 0, take = 1;
    size_t ends[MOST + 2], end = at, line = at;
    if (at >= m->run_end) {
        while (get_flags(r, end, &len) & S) {
            if (is_line_end(r->text[end])) line = end + len;
            end += len;
        }
        if (line > at) return line;
        m->run_end = end;
    }
    ends[0] = end = at;
    while (n <= MOST && end < m->run_end) {
        get_flags(r, end, &len);
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
    size_t end = match_contraction(r, at, false, true);
    if (end > at) return end;
    size_t word = at + (r->text[at] == ' ');
    if (word < r->n) {
        unsigned f = get_flags(r, word, &len);
        if (f & L) return skip_with(r, word + len, L);
        if (f & N) return skip_with(r, word + len, N);
        if (!(f & S)) return skip_without(r, word + len, S | L | N);
    }
    return match_spaces(r, at);
}

/* \p{N}{1,max} with a number at `at`; max 0: \p{N}+ */
static size_t match_number(const struct reader *r, size_t at, unsigned max) {
    unsigned len, n = 0;
    while ((!max || n < max) && get_flags(r, at, &len) & N) {
        at += len;
        n++;
    }
    return at;
}

/* ?[^\s\p{L}\p{N}]+[\r\n]* or, with slash, [\r\n/]*; `at` if nothing matches. */
static size_t match_others(const struct reader *r, size_t at, unsigned letters, bool slash) {
    unsigned len;
    size_t from = at + (r->text[at] == ' ');
    if (from >= r->n || get_flags(r, from, &len) & (S | letters | N)) return at;
    size_t end = skip_without(r, from, S | letters | N);
    while (is_line_end(get_byte(r, end)) || (slash && get_byte(r, end) == '/'))
        end++;
    return end;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
 * \s*[\r\n]+|\s+(?!\S)|\s+
 * with marks: [\p{L}\p{M}]+ for \p{L}+ and [^\s\p{L}\p{M}\p{N}]+ for [^\s\p{L}\p{N}]+ */
static size_t scan_llama3(const struct scan *s, const struct reader *r, struct scan_match *m) {
    unsigned len, len2, letters = s->marks ? L | M : L;
    size_t at = m->from, end = match_contraction(r, at, true, s->ascii_fold);
    if (end > at) return end;
    unsigned f = get_flags(r, at, &len);
    if (f & letters) return skip_with(r, at + len, letters);
    if (f & N) return match_number(r, at, s->max_digits);
    if (!is_line_end(r->text[at]) && get_flags(r, at + len, &len2) & letters)
        return skip_with(r, at + len + len2, letters);
    end = match_others(r, at, letters, false);
    if (end > at) return end;
    return s->cascade ? match_spaces_in_powers(r, at, m) : match_spaces_or_lines(r, at);
}

static bool is_han_at(const struct reader *r, size_t at, unsigned *len) {
    return at < r->n && (unsigned char)r->text[at] >= 0xe2 &&
           unicode_is_han(utf8_decode_valid(r->text + at, len));
}

/* A character's flags; without_han: 0 for Han characters. */
static inline unsigned get_word_flags(const struct reader *r, size_t at, bool without_han,
                                      unsigned *len) {
    unsigned f = get_flags(r, at, len), unused;
    return without_han && is_han_at(r, at, &unused) ? 0 : f;
}

/* first: [U]*[W]+, else [U]+[W]*, where U are the characters of a word's first part (Lu, Lt, Lm,
 * Lo, M), W those of its second (Ll, Lm, Lo, M). `at`: no match. */
static size_t match_cased_word(const struct reader *r, size_t at, bool first, bool han) {
    unsigned len;
    size_t end = at, both = at;
    for (unsigned f; (f = get_word_flags(r, end, han, &len)) & UNICODE_UPPER; end += len)
        if (f & UNICODE_LOWER) both = end + len;
    size_t lower = end;
    while (get_word_flags(r, lower, han, &len) & UNICODE_LOWER)
        lower += len;
    if (!first) return end > at ? lower : at;
    /* W+ takes the characters after the run of U; without any, U* backtracks to its last W. */
    return lower > end ? lower : both;
}

/* [^\r\n\p{L}\p{N}]?[U]*[W]+C|[^\r\n\p{L}\p{N}]?[U]+[W]*C|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|
 * \s*[\r\n]+|\s+(?!\S)|\s+
 * C: (?i:'s|'t|'re|'ve|'m|'ll|'d)? or nothing; with han: \p{Han}+ first, and no Han in U and W */
static size_t scan_cased(const struct scan *s, const struct reader *r, size_t at) {
    unsigned len, f = get_flags(r, at, &len);
    size_t characters = at;
    while (s->han && is_han_at(r, characters, &len))
        characters += len;
    if (characters > at) return characters;
    bool may_lead = !(f & (L | N)) && !is_line_end(r->text[at]);
    for (int first = 1; first >= 0; first--) {
        for (int lead = may_lead; lead >= 0; lead--) {
            size_t word = at + (lead ? len : 0), end = match_cased_word(r, word, first, s->han);
            if (end == word) continue;
            return s->contractions ? match_contraction(r, end, true, s->ascii_fold) : end;
        }
    }
    if (f & N) return match_number(r, at, s->max_digits);
    size_t end = match_others(r, at, L, s->slash);
    return end > at ? end : match_spaces_or_lines(r, at);
}

/* \s+$ ($ also matches before a line feed) */
static bool find_tail(const struct reader *r, struct scan_match *m) {
    unsigned len;
    for (size_t at = m->from; at < r->n;) {
        at = skip_without(r, at, S);
        size_t stop = at, line = at;
        while (get_flags(r, stop, &len) & S) {
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

/* Is there a \b between a digit and text[at], i.e. is text[at] not a word character? Latin-1
 * numbers that are not digits count as word characters. */
static bool is_border(const struct reader *r, size_t at) {
    unsigned len;
    if (at >= r->n) return true;
    uint32_t c = utf8_decode_valid(r->text + at, &len);
    return !unicode_is_word(c) && !(c < 0x100 && get_flags(r, at, &len) & N);
}

/* Counts the digits of the run at `at`; *end: its end. */
static size_t count_digits(const struct reader *r, size_t at, size_t *end) {
    unsigned len;
    size_t n = 0;
    for (*end = at; get_flags(r, *end, &len) & UNICODE_DIGIT; *end += len)
        n++;
    return n;
}

static size_t skip_digits(const struct reader *r, size_t at, size_t n) {
    for (unsigned len; n; n--) {
        get_flags(r, at, &len);
        at += len;
    }
    return at;
}

/* \d{1,3}(?=(?:\d{3})*\b): groups of three digits from the right. */
static bool find_group(const struct reader *r, struct scan_match *m) {
    if (m->end < m->run_end) {
        m->start = m->end;
        m->end = skip_digits(r, m->start, 3);
        return true;
    }
    for (size_t at = m->from; at < r->n;) {
        at = skip_without(r, at, UNICODE_DIGIT);
        size_t stop, n = count_digits(r, at, &stop);
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

/* (?=(\d{3})+(?!\d)): empty matches before the last three digits of a run, the last six, ... */
static bool find_cut(const struct reader *r, struct scan_match *m) {
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
        at = skip_without(r, at, UNICODE_DIGIT);
        size_t stop, n = count_digits(r, at, &stop);
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
        return find_tail(&r, m);
    case SCAN_GROUPS_B:
        return find_group(&r, m);
    case SCAN_GROUPS_RUN:
        return find_cut(&r, m);
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
        /* Text that no alternative matches becomes a piece in both. */
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
