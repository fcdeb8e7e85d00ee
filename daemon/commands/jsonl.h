/* jsonl.h - commands that answer each line of standard input, a JSON object, with a line of
 * standard output. */
#ifndef INFERD_DAEMON_COMMANDS_JSONL_H
#define INFERD_DAEMON_COMMANDS_JSONL_H

#include "core/base/err.h"
#include "core/base/str.h"

#include <cjson/cJSON.h>
#include <stddef.h>

struct jsonl {
    /* Appends the answer to line, an object, to out: JSON without a newline. A failure's text
     * becomes the answer instead. */
    int (*answer)(void *arg, const cJSON *line, str *out, err *e);
    void *arg;
    size_t max_line_bytes;
};

/* Runs until the end of the input and flushes each answer. A line that is not a JSON object, is too
 * long, or is refused by answer() is answered {"error": "line N: ...", "class": "InputError"}, and
 * the next one is read; ERR_INVALID at the end tells how many there were. ERR_IO, ERR_NOMEM. */
int jsonl_run(const struct jsonl *j, err *e);

/* A JSON string; invalid UTF-8 becomes U+FFFD. */
void jsonl_add_text(str *out, const char *text, size_t n);

#endif
