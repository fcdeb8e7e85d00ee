/* anthropic/files.h - uploaded files as content of messages. Pool threads. */
#ifndef INFERD_API_ANTHROPIC_FILES_H
#define INFERD_API_ANTHROPIC_FILES_H

#include "core/base/err.h"
#include "core/base/str.h"

#include <stdint.h>

struct request;

struct messages_files {
    struct request *request;
    uint64_t left_bytes; /* that its files may still have */
};

/* Appends the text of a file of r's key. ERR_NOT_FOUND: there is none; ERR_UNSUPPORTED: it is no
 * text; ERR_TOO_LONG: it is larger than left_bytes; errors of work.h. */
int messages_file_add(struct messages_files *files, const char *id, str *out, err *e);

#endif
