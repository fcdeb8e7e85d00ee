/* str.h - a growing byte string with a bound, and small text helpers.
 *
 * A str is caller's storage: str_init, append, str_fini. Appending past max_bytes or out of memory
 * (`no_memory`) sets `failed` and drops the rest; check once at the end. data is NUL-terminated. */
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
    bool failed, no_memory;
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

/* Is word in the list words, "a|b|c"? false for the empty word. */
bool words_hold(const char *words, const char *word);

#endif
