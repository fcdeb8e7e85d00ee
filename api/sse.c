/* sse.c - server-sent events (WHATWG HTML, "Server-sent events"): an event is "data: " and one
 * line, closed by an empty line; a line that starts with a colon is a comment, which clients
 * ignore. JSON has no raw newlines, so one line is enough. Pure. */
#include "api/gen.h"

void sse_open(str *s) {
    str_add(s, "data: ");
}

void sse_close(str *s) {
    str_add(s, "\n\n");
}

void sse_done(str *s) {
    str_add(s, "data: [DONE]\n\n");
}

void sse_comment(str *s, const char *text) {
    str_addf(s, ": %s\n\n", text);
}
