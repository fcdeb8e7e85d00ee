/* textfile.h - reads a bounded file (or "-", standard input) into memory. */
#ifndef INFERD_TEXTFILE_H
#define INFERD_TEXTFILE_H

#include "core/base/err.h"

#include <stddef.h>

/* *text is the caller's, *n bytes and a NUL after them. ERR_IO, ERR_TOO_LONG beyond max_bytes. */
int textfile_read(const char *path, size_t max_bytes, char **text, size_t *n, err *e);
/* What a message calls the file. */
const char *textfile_name(const char *path);

#endif
