/* pattern_text.h - a buffer for the text of a random pattern or grammar. Single thread. */
#ifndef INFERD_TESTS_PATTERN_TEXT_H
#define INFERD_TESTS_PATTERN_TEXT_H

#include <string.h>

struct text {
    char at[4096];
    size_t n;
};

/* Appends s, unless it does not fit. */
static void add(struct text *t, const char *s) {
    size_t n = strlen(s);
    if (t->n + n >= sizeof t->at) return;
    memcpy(t->at + t->n, s, n + 1);
    t->n += n;
}

#endif
