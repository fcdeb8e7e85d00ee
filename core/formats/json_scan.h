/* json_scan.h - reads JSON in place, without a tree: for headers of many megabytes whose shape is
 * known. Nothing is allocated and nothing is copied. Private to core/formats.
 *
 * Every function returns 0, or -1 with pos where the text is not what was asked for. */
#ifndef INFERD_FORMATS_JSON_SCAN_H
#define INFERD_FORMATS_JSON_SCAN_H

#include "core/formats/gguf/gguf.h"

struct json_scan {
    const char *text; /* (n) */
    uint64_t n, pos;  /* pos <= n */
};

char json_scan_peek(struct json_scan *s); /* next character after white space; 0: the end */
int json_scan_take(struct json_scan *s, char c);

/* A string's characters between the quotes. One with escapes is -1: names have none. */
int json_scan_name(struct json_scan *s, gguf_str *name);
/* A whole number without sign, fraction or exponent, below 2^64. */
int json_scan_u64(struct json_scan *s, uint64_t *v);
int json_scan_skip(struct json_scan *s); /* any value, nested 64 deep at most */

/* Steps through an object or list: call until *more is false. `first` must be true before the first
 * call; open and close are "{}" or "[]". */
int json_scan_next(struct json_scan *s, const char *brackets, bool *first, bool *more);

#endif
