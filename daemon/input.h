/* input.h - user input: whole files, lists of token ids, misspelt names. */
#ifndef INFERD_INPUT_H
#define INFERD_INPUT_H

#include "core/base/err.h"

#include <stddef.h>
#include <stdint.h>

/* Reads a bounded file (or "-", standard input). *text, which the caller frees, is *n bytes and a
 * NUL. ERR_IO, ERR_TOO_LONG beyond max_bytes. */
int textfile_read(const char *path, size_t max_bytes, char **text, size_t *n, err *e);
/* ERR_FORMAT if a text has a NUL, behind which it would be lost; name is the file's. */
int textfile_check(const char *name, const char *text, size_t n, err *e);
/* The file's name in a message. */
const char *textfile_name(const char *path);

/* Parses token ids, "1,2,3", blanks and an empty list allowed. The caller frees *ids (n), each in
 * 0..n_vocab - 1. ERR_INVALID names the wrong piece. */
int idlist_parse(const char *text, int32_t n_vocab, int32_t **ids, size_t *n, err *e);

/* "Did you mean": the most similar of the offered names. Caller's storage; best is borrowed from
 * the offered names, NULL if none is similar. */
struct suggest {
    const char *word, *best;
    size_t distance;
};

void suggest_init(struct suggest *s, const char *word);
void suggest_offer(struct suggest *s, const char *candidate);

#endif
