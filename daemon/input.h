/* input.h - what people write: whole files, lists of token ids, misspelt names. */
#ifndef INFERD_INPUT_H
#define INFERD_INPUT_H

#include "core/base/err.h"

#include <stddef.h>
#include <stdint.h>

/* Reads a bounded file (or "-", standard input). *text is the caller's, *n bytes and a NUL after
 * them. ERR_IO, ERR_TOO_LONG beyond max_bytes. */
int textfile_read(const char *path, size_t max_bytes, char **text, size_t *n, err *e);
/* What a message calls the file. */
const char *textfile_name(const char *path);

/* Token ids, "1,2,3", blanks allowed. *ids (n) is the caller's; ids are >= 0 and < n_vocab.
 * ERR_INVALID says which piece is wrong, an empty list is allowed. */
int idlist_parse(const char *text, int32_t n_vocab, int32_t **ids, size_t *n, err *e);

/* "Did you mean": the nearest of the names that exist. Caller's storage; best is borrowed from what
 * was offered, NULL if nothing is near. */
struct suggest {
    const char *word, *best;
    size_t distance;
};

void suggest_init(struct suggest *s, const char *word);
void suggest_offer(struct suggest *s, const char *candidate);

#endif
