/* unicode.c - flags of characters, normalization forms C and D (Unicode Standard Annex 15), lower
 * case. Pure; any thread. */
#include "core/text/unicode.h"

#include "core/base/mem.h"
#include "core/text/utf8.h"

#include <stdlib.h>
#include <string.h>

enum {
    HANGUL_FIRST = 0xac00,
    LEAD_FIRST = 0x1100,
    VOWEL_FIRST = 0x1161,
    TAIL_FIRST = 0x11a7, /* one before the first tail: index 0 means no tail */
    N_LEADS = 19,
    N_VOWELS = 21,
    N_TAILS = 28,
    N_HANGUL = N_LEADS * N_VOWELS * N_TAILS,
    DOTTED_I = 0x130, /* the only character whose lower case is two characters */
    DOT_ABOVE = 0x307,
    MAX_DEPTH = 8 /* of nested decompositions; Unicode's go four deep */
};

/* Value of the run that contains c. */
static unsigned run_value(const uint32_t *runs, uint32_t n, uint32_t c) {
    uint32_t low = 0, high = n;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (runs[middle] >> 8 <= c)
            low = middle;
        else
            high = middle;
    }
    return runs[low] & 0xff;
}

void unicode_flags_init(struct unicode_flags *u) {
    for (uint32_t i = 0; i < unicode_runs_n; i++) {
        uint32_t first = unicode_runs[i] >> 8;
        uint32_t end = i + 1 < unicode_runs_n ? unicode_runs[i + 1] >> 8 : 0x110000;
        if (end > 0x10000) end = 0x10000;
        for (uint32_t c = first; c < end; c++)
            u->plane0[c] = (uint8_t)unicode_runs[i];
    }
}

unsigned unicode_flags_of(const struct unicode_flags *u, uint32_t c) {
    return c < 0x10000 ? u->plane0[c] : run_value(unicode_runs, unicode_runs_n, c);
}

/* Characters with combining class and index: class << 56 | index << 24 | character. Sorting a run
 * of marks by this number gives the stable order that normalization requires. */
struct marks {
    uint64_t *items; /* (capacity) */
    size_t n, capacity;
    bool failed;
};

static void put_mark(struct marks *m, uint32_t c) {
    if (m->n == m->capacity) {
        size_t capacity = m->capacity ? 2 * m->capacity : 256;
        uint64_t *items = mem_resize(m->items, capacity, sizeof *items);
        if (!items) {
            m->failed = true;
            return;
        }
        m->items = items;
        m->capacity = capacity;
    }
    uint64_t class = run_value(unicode_classes, unicode_classes_n, c);
    m->items[m->n] = class << 56 | (uint64_t)m->n << 24 | c;
    m->n++;
}

static const struct unicode_pair *find_split(uint32_t c) {
    uint32_t low = 0, high = unicode_splits_n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (unicode_splits[middle].whole < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < unicode_splits_n && unicode_splits[low].whole == c ? &unicode_splits[low] : NULL;
}

static void decompose_char(struct marks *m, uint32_t c, int depth) {
    if (c - HANGUL_FIRST < N_HANGUL) {
        uint32_t s = c - HANGUL_FIRST;
        put_mark(m, LEAD_FIRST + s / (N_VOWELS * N_TAILS));
        put_mark(m, VOWEL_FIRST + s / N_TAILS % N_VOWELS);
        if (s % N_TAILS) put_mark(m, TAIL_FIRST + s % N_TAILS);
        return;
    }
    const struct unicode_pair *p = depth < MAX_DEPTH ? find_split(c) : NULL;
    if (!p) {
        put_mark(m, c);
        return;
    }
    decompose_char(m, p->first, depth + 1);
    if (p->second) decompose_char(m, p->second, depth + 1);
}

/* The composition of first and second, 0: none. */
static uint32_t find_joined(uint32_t first, uint32_t second) {
    if (first - LEAD_FIRST < N_LEADS && second - VOWEL_FIRST < N_VOWELS)
        return HANGUL_FIRST + ((first - LEAD_FIRST) * N_VOWELS + second - VOWEL_FIRST) * N_TAILS;
    if (first - HANGUL_FIRST < N_HANGUL && (first - HANGUL_FIRST) % N_TAILS == 0 &&
        second - TAIL_FIRST - 1 < N_TAILS - 1)
        return first + second - TAIL_FIRST;
    uint32_t low = 0, high = unicode_joins_n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct unicode_pair *p = &unicode_joins[middle];
        if (p->first < first || (p->first == first && p->second < second))
            low = middle + 1;
        else
            high = middle;
    }
    if (low == unicode_joins_n) return 0;
    const struct unicode_pair *p = &unicode_joins[low];
    return p->first == first && p->second == second ? p->whole : 0;
}

static int by_number(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void order_marks(struct marks *m) {
    for (size_t i = 0; i < m->n;) {
        size_t end = i + 1;
        if (m->items[i] >> 56 == 0) {
            i++;
            continue;
        }
        while (end < m->n && m->items[end] >> 56)
            end++;
        if (end - i > 1) qsort(m->items + i, end - i, sizeof *m->items, by_number);
        i = end;
    }
}

/* Composes each starter with the following characters that are not blocked. */
static void compose_marks(struct marks *m) {
    size_t starter = SIZE_MAX, kept = 0;
    unsigned last = 0; /* class of the last kept character after the starter */
    for (size_t i = 0; i < m->n; i++) {
        uint32_t c = m->items[i] & 0xffffff;
        unsigned class = (unsigned)(m->items[i] >> 56);
        bool adjacent = starter != SIZE_MAX && starter + 1 == kept;
        if (starter != SIZE_MAX && (adjacent || last < class)) {
            uint32_t whole = find_joined(m->items[starter] & 0xffffff, c);
            if (whole) {
                m->items[starter] = whole;
                continue;
            }
        }
        if (class == 0) starter = kept;
        last = class;
        m->items[kept++] = m->items[i];
    }
    m->n = kept;
}

/* Length of the prefix that needs no normalization. */
static size_t stable_prefix(const struct unicode_flags *u, const char *text, size_t n) {
    size_t last = 0;
    for (size_t i = 0; i < n;) {
        unsigned len;
        uint32_t c = utf8_decode_valid(text + i, &len);
        if (c >= 0x80 && unicode_flags_of(u, c) & UNICODE_UNSTABLE) return last;
        last = i;
        i += len;
    }
    return n;
}

bool unicode_normalize(const struct unicode_flags *u, const char *text, size_t n, bool compose,
                       str *out) {
    struct marks m = {0};
    /* The last character before the first unstable one may compose with it. */
    size_t from = compose ? stable_prefix(u, text, n) : 0;
    str_add_n(out, text, from);
    for (size_t i = from; i < n && !m.failed;) {
        unsigned len;
        decompose_char(&m, utf8_decode_valid(text + i, &len), 0);
        i += len;
    }
    if (!m.failed) {
        order_marks(&m);
        if (compose) compose_marks(&m);
        for (size_t i = 0; i < m.n; i++)
            utf8_add(out, m.items[i] & 0xffffff);
    }
    free(m.items);
    return !m.failed && !out->failed;
}

void unicode_add_lower(str *out, const char *text, size_t n) {
    for (size_t i = 0; i < n;) {
        unsigned len;
        uint32_t c = utf8_decode_valid(text + i, &len), low = 0, high = unicode_lowers_n;
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            if (unicode_lowers[middle].last < c)
                low = middle + 1;
            else
                high = middle;
        }
        const struct unicode_lower *r = low < unicode_lowers_n ? &unicode_lowers[low] : NULL;
        bool has = r && c >= r->first && (c - r->first) % r->step == 0;
        utf8_add(out, has ? (uint32_t)((int64_t)c + r->delta) : c == DOTTED_I ? 'i' : c);
        if (c == DOTTED_I) utf8_add(out, DOT_ABOVE);
        i += len;
    }
}

/* GPT-2 maps the printable bytes of Latin-1 to themselves, the others in order from U+0100 on. */
int unicode_byte_of(uint32_t c) {
    bool printable = (c >= 33 && c <= 126) || (c >= 161 && c <= 255);
    if (printable && c != 173) return (int)c;
    if (c < 256 || c > 323) return -1;
    c -= 256;
    return c < 33 ? (int)c : c < 67 ? (int)(c - 33 + 127) : 173;
}

uint32_t unicode_of_byte(unsigned char b) {
    if ((b >= 33 && b <= 126) || (b >= 161 && b != 173)) return b;
    return 256 + (b < 33 ? b : b < 161 ? (uint32_t)b - 127 + 33 : 67);
}

unsigned unicode_flags_search(uint32_t c) {
    return run_value(unicode_runs, unicode_runs_n, c);
}

static bool in_ranges(const struct unicode_range *ranges, uint32_t n, uint32_t c) {
    for (uint32_t i = 0; i < n && c >= ranges[i].first; i++)
        if (c <= ranges[i].last) return true;
    return false;
}

bool unicode_is_word(uint32_t c) {
    return unicode_flags_search(c) & (UNICODE_LETTER | UNICODE_MARK | UNICODE_DIGIT) ||
           in_ranges(unicode_words, unicode_words_n, c);
}

bool unicode_is_han(uint32_t c) {
    return in_ranges(unicode_han, unicode_han_n, c);
}
