/* str.h - a growing byte string with a bound, and small text helpers.
 *
 * A str is caller's storage: str_init, append, str_fini. Appending past max_bytes or without
 * memory sets `failed` and drops the rest; check once at the end. data is NUL-terminated. */
#ifndef INFERD_BASE_STR_H
#define INFERD_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct str {
    char *data; /* (len + 1) bytes, or NULL while empty: use str_cstr */
    size_t len; /* bytes without the NUL */
    size_t capacity;
    size_t max_bytes;
    bool failed;
} str;

void str_init(str *s, size_t max_bytes);
void str_fini(str *s);
void str_clear(str *s); /* keeps the memory */
void str_add(str *s, const char *text);
void str_add_n(str *s, const char *bytes, size_t n);
void str_add_char(str *s, char c);
void str_addf(str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *str_cstr(const str *s); /* never NULL */
char *str_take(str *s);             /* caller frees; NULL if failed; s is empty afterwards */

/* Is word one of words, "a|b|c"? The empty word is none. */
bool words_hold(const char *words, const char *word);

/* U+0000 in a C string stands as these two bytes, which valid UTF-8 never holds ("modified UTF-8").
 * JSON trees of requests hold it so; text_restore_nuls() gives the text itself with its length. */
#define TEXT_NUL "\xc0\x80"
bool text_holds_nul(const char *text);
/* Writes text into dst (room for strlen(text) + 1 bytes; may be text) with each TEXT_NUL as a NUL
 * byte, and one more at the end; returns its length. */
size_t text_restore_nuls(char *dst, const char *text);

/* Length in bytes of the longest prefix of bytes[0..n) that ends on a whole UTF-8 character; a
 * malformed byte counts as whole, so that the prefix always grows within 4 bytes. */
size_t utf8_whole(const char *bytes, size_t n);

/* Length in bytes of the longest prefix of bytes[0..n) that is valid UTF-8 in the sense below. */
size_t utf8_valid_prefix(const char *bytes, size_t n);

/* Is bytes[0..n) valid UTF-8 (no overlongs, no surrogates, max U+10FFFF)? */
bool utf8_valid(const char *bytes, size_t n);

/* Appends bytes[0..n) with each malformed sequence replaced by U+FFFD: one for the longest part
 * that could have begun a character (Unicode's "maximal subpart"), so that cutting the bytes where
 * utf8_whole says gives the same text. */
void utf8_add_lossy(str *s, const char *bytes, size_t n);

#endif
