/* suggest.c - edit distance (insert, delete, change, swap of neighbours) over short ASCII names.
 * Pure. */
#include "daemon/suggest.h"

#include <string.h>

enum { LONGEST = 48 };

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* '_' is written for '-' often enough to count as the same. */
static char plain(char c) {
    return c == '_' ? '-' : c;
}

static size_t distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b), rows[3][LONGEST + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    if (n > LONGEST || m > LONGEST) return LONGEST;
    for (size_t j = 0; j <= m; j++)
        above[j] = j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t change = above[j - 1] + (plain(a[i - 1]) != plain(b[j - 1]));
            row[j] = least(change, least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        size_t *oldest = before;
        before = above;
        above = row;
        row = oldest;
    }
    return above[m];
}

void suggest_init(struct suggest *s, const char *word) {
    *s = (struct suggest){.word = word, .distance = strlen(word) / 3 + 2};
}

void suggest_offer(struct suggest *s, const char *candidate) {
    size_t d = distance(s->word, candidate);
    if (d >= s->distance) return;
    s->distance = d;
    s->best = candidate;
}
