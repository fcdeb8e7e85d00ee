/* unicode.h - properties of characters and normalization, for tokenizers.
 *
 * scripts/unicode-tables generates the tables (unicode_table.c, unicode_pairs.c). All text
 * here is valid UTF-8. Any thread. */
#ifndef INFERD_TEXT_UNICODE_H
#define INFERD_TEXT_UNICODE_H

#include "core/base/str.h"

enum {
    UNICODE_LETTER = 1,    /* category L */
    UNICODE_NUMBER = 2,    /* N */
    UNICODE_SPACE = 4,     /* White_Space */
    UNICODE_MARK = 8,      /* M */
    UNICODE_UPPER = 16,    /* Lu, Lt, Lm, Lo, M: the first part of a cased word */
    UNICODE_LOWER = 32,    /* Ll, Lm, Lo, M: its second part */
    UNICODE_DIGIT = 64,    /* Nd */
    UNICODE_UNSTABLE = 128 /* text without such characters is in NFC */
};

/* Code point -> flags: a table for the basic plane, a search for others. Immutable once filled. */
struct unicode_flags {
    uint8_t plane0[0x10000];
};
void unicode_flags_init(struct unicode_flags *u);

unsigned unicode_flags_of(const struct unicode_flags *u, uint32_t c);
unsigned unicode_flags_search(uint32_t c); /* the same without the table */
/* Alphabetic, a mark, a digit or connecting punctuation: \w as Unicode recommends it. */
bool unicode_is_word(uint32_t c);
bool unicode_is_han(uint32_t c); /* script Han */

/* GPT-2's alphabet: a character for each byte. -1: c is not one of them. */
uint32_t unicode_of_byte(unsigned char b);
int unicode_byte_of(uint32_t c);

/* Appends text in normalization form C (compose) or D. O(n), O(n log n) for long runs of combining
 * marks. false: out of memory. */
bool unicode_normalize(const struct unicode_flags *u, const char *text, size_t n, bool compose,
                       str *out);

/* Appends text in lower case, character by character. */
void unicode_add_lower(str *out, const char *text, size_t n);

struct unicode_pair {
    uint32_t whole, first, second;
};
struct unicode_lower {
    uint32_t first, last;
    int32_t delta;
    uint32_t step;
};
struct unicode_range {
    uint32_t first, last;
};
extern const uint32_t unicode_runs[], unicode_runs_n, unicode_classes[], unicode_classes_n;
extern const struct unicode_pair unicode_splits[], unicode_joins[];
extern const uint32_t unicode_splits_n, unicode_joins_n;
extern const struct unicode_lower unicode_lowers[];
extern const uint32_t unicode_lowers_n;
extern const struct unicode_range unicode_words[], unicode_han[];
extern const uint32_t unicode_words_n, unicode_han_n;

#endif
