/* json_scan.h - a cursor over JSON text, without a tree: for headers of many megabytes whose shape
 * is known. Allocates and copies nothing. Pure; any thread.
 *
 * It does not validate what it skips: strings are not checked for UTF-8, words not for spelling.
 * Every function returns 0, or -1 with pos where the text is not what was asked for. */
#ifndef INFERD_TEXT_JSON_SCAN_H
#define INFERD_TEXT_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

struct json_scan {
    const char *text; /* (n) */
    uint64_t n, pos;  /* pos <= n */
};

char json_scan_peek(struct json_scan *s); /* next character after white space; 0: the end */
int json_scan_take(struct json_scan *s, char c);

/* A string without escapes: its characters between the quotes, which stay in the text. */
int json_scan_name(struct json_scan *s, const char **name, uint64_t *len);
/* An integer below 2^64 without sign, fraction or exponent. */
int json_scan_u64(struct json_scan *s, uint64_t *v);
int json_scan_skip(struct json_scan *s); /* any value, nested at most 64 levels deep */

/* Steps through an object ("{}") or array ("[]"): call until *more is false, *first true before the
 * first call. */
int json_scan_next(struct json_scan *s, const char *brackets, bool *first, bool *more);

#endif
