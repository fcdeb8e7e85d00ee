/* charsmap.h - SentencePiece's precompiled map of characters (precompiled_charsmap of its models,
 * of tokenizer.json and of GGUF files). Private to core/tokenizer. Immutable, any thread. */
#ifndef INFERD_TOKENIZER_CHARSMAP_H
#define INFERD_TOKENIZER_CHARSMAP_H

#include "core/base/err.h"
#include "core/text/unicode.h"

struct charsmap;
/* Copies bytes[0..n). ERR_FORMAT. */
int charsmap_new(const void *bytes, size_t n, struct charsmap **out, err *e);
/* The same from base64, as tokenizer.json has it. */
int charsmap_new_base64(const char *text, struct charsmap **out, err *e);
void charsmap_free(struct charsmap *m); /* NULL is fine */

/* Appends text[0..len), valid UTF-8, with what the map replaces replaced. As the tokenizers library
 * has it: a character with its combining marks of under 6 bytes in all is replaced as a whole if
 * the map knows a prefix of it, the shortest; otherwise character by character. */
void charsmap_run(const struct charsmap *m, const char *text, size_t len, str *out);

#endif
