/* suggest.h - "did you mean": the nearest of the names that exist. */
#ifndef INFERD_SUGGEST_H
#define INFERD_SUGGEST_H

#include <stddef.h>

/* Caller's storage; best is borrowed from what was offered, NULL if nothing is near. */
struct suggest {
    const char *word, *best;
    size_t distance;
};

void suggest_init(struct suggest *s, const char *word);
void suggest_offer(struct suggest *s, const char *candidate);

#endif
