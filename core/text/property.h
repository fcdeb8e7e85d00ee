/* property.h - the properties of characters by the names that regular expressions use for them
 * (ECMA-262, tables of General_Category, Script and binary properties). Pure; any thread. */
#ifndef INFERD_TEXT_PROPERTY_H
#define INFERD_TEXT_PROPERTY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Calls add for ranges that together are the characters of what stands in \p{...}: a general
 * category ("Lu", "Letter", "gc=Lu", "General_Category=Lu"), a script ("Script=Greek", "sc=Grek")
 * or a binary property. Ranges may overlap and come in any order. false: an unknown name, add was
 * not called. */
bool property_ranges(const char *name, size_t n,
                     void (*add)(void *context, uint32_t first, uint32_t last), void *context);

/* The tables (property_table.c) are written by scripts/unicode-tables. */

/* Bits of property_extras: has the property though its category does not say so. */
enum property_extra {
    PROPERTY_ALPHABETIC = 1,
    PROPERTY_LOWERCASE = 2,
    PROPERTY_UPPERCASE = 4,
    PROPERTY_EMOJI = 8,
    PROPERTY_EMOJI_PRESENTATION = 16,
    PROPERTY_EXTENDED_PICTOGRAPHIC = 32
};
struct property_script_name {
    const char *name, *brief;
};
extern const uint16_t property_categories[];
extern const uint32_t property_extras[], property_scripts[];
extern const struct property_script_name property_script_names[];
extern const uint32_t property_categories_n, property_extras_n, property_scripts_n;
extern const uint32_t property_script_names_n;

#endif
