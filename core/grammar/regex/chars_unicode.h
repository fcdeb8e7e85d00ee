/* chars_unicode.h - Unicode's properties of characters as regular expressions name them. The tables
 * (chars_table.c) are written by scripts/unicode-tables. Private to core/grammar. */
#ifndef INFERD_GRAMMAR_REGEX_CHARS_UNICODE_H
#define INFERD_GRAMMAR_REGEX_CHARS_UNICODE_H

#include "core/grammar/regex/chars.h"

/* Bits of chars_extras: has the property though its category does not say so. */
enum chars_extra {
    CHARS_ALPHABETIC = 1,
    CHARS_LOWERCASE = 2,
    CHARS_UPPERCASE = 4,
    CHARS_EMOJI = 8,
    CHARS_EMOJI_PRESENTATION = 16,
    CHARS_EXTENDED_PICTOGRAPHIC = 32
};

struct chars_script_name {
    const char *name, *brief;
};
extern const uint32_t chars_categories[], chars_categories_n;
extern const uint32_t chars_extras[], chars_extras_n;
extern const uint32_t chars_scripts[], chars_scripts_n;
extern const struct chars_script_name chars_script_names[];
extern const uint32_t chars_script_names_n;

/* Adds the characters of what stands in \p{...}: a general category ("Lu", "Letter",
 * "gc=Lu", "General_Category=Lu"), a script ("Script=Greek", "sc=Grek") or a binary property.
 * false: not known here, nothing was added. */
bool chars_add_property(struct chars *c, const char *name, size_t n);

#endif
