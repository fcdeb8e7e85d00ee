/* json.h - the one JSON parser. cJSON is the tree; the parser is ours because cJSON's own accepts
 * trailing bytes, duplicate keys, invalid UTF-8, raw control characters and numbers that are not
 * JSON, and drops how numbers are written.
 *
 * Pure functions, any thread. */
#ifndef INFERD_TEXT_JSON_H
#define INFERD_TEXT_JSON_H

#include "core/base/err.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* U+0000 in a string; cJSON's strings have no length. */
enum json_nul {
    JSON_NUL_KEPT,    /* becomes TEXT_NUL (utf8.h); refused in a key */
    JSON_NUL_REFUSED, /* ERR_UNSUPPORTED */
    JSON_NUL_ENDS     /* ends the string */
};

/* What a caller allows beyond RFC 8259, and its bounds. */
struct json_rules {
    const char *subject; /* begins messages: "the request body is "; NULL: nothing */
    uint32_t max_depth;  /* objects and arrays in each other */
    size_t max_values;   /* bounds the memory of the tree; 0: the length of the text does */
    enum json_nul nul;
    bool duplicate_keys;     /* kept, both of them; else refused */
    bool control_characters; /* raw in strings, as models write line ends */
    bool byte_order_mark;    /* passed at the start */
    bool all_literals;       /* each number keeps its text in valuestring; else only where a double
                                loses some of it: fractions, exponents, 2^53 and more */
    bool sets_param; /* errors have the path of the place, with a duplicate key's name, as param */
};

/* Parses text[0..n): one value, valid UTF-8, paired surrogates, numbers within the range of a
 * double, nothing after it. ERR_FORMAT names the byte and the path ("messages[3].content");
 * ERR_UNSUPPORTED (see nul), ERR_NOMEM. The caller frees *out with cJSON_Delete; it is NULL after
 * an error. */
int json_decode(const char *text, size_t n, const struct json_rules *rules, cJSON **out, err *e);

/* The tree of a text that the program itself contains. NULL: no memory. */
cJSON *json_constant(const char *text);

#endif
