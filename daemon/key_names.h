/* key_names.h - the user's words for settings. Lower floors report the field of their own
 * configuration struct ("n_ranks = 3: ..."); before a text is shown, the daemon writes the
 * configuration key instead ("tensor-parallel = 3: ..."). */
#ifndef INFERD_KEY_NAMES_H
#define INFERD_KEY_NAMES_H

#include "core/base/err.h"

#include <stddef.h>

/* The key of a field, NULL if none has another name than the field. */
const char *key_name_of(const char *field);

/* Copies text to out (n bytes, cut if need be), each field that stands as a word replaced. Words
 * inside paths and quotes stay. */
void key_names_write(const char *text, char *out, size_t n);

/* The same for an error, msg and param. A message about a parameter that it does not mention begins
 * with the key. */
void key_names_put(err *e);

#endif
