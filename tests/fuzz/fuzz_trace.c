/* fuzz_trace.c - any bytes as the headers of W3C Trace Context: the first line is a traceparent,
 * the others are tracestate headers. What is accepted reads back as the same. */
#include "api/http/trace_context.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MAX_BYTES = 8192 };

static void check_parent(const char *text) {
    struct trace_context c = {.flags = 0x80}, again = {0};
    char header[TRACE_HEADER_BYTES];
    if (!trace_context_read(&c, text)) {
        if (c.flags != 0x80) abort(); /* a malformed one changes nothing */
        return;
    }
    memcpy(c.span_id, c.parent_id, sizeof c.span_id);
    trace_context_write(&c, header);
    if (!trace_context_read(&again, header)) abort();
    if (memcmp(again.trace_id, c.trace_id, sizeof c.trace_id) != 0 || again.flags != c.flags ||
        memcmp(again.parent_id, c.parent_id, sizeof c.parent_id) != 0)
        abort();
    /* The ids are those of the text. */
    if (memcmp(text + 2, header + 2, 2 * (TRACE_ID_BYTES + TRACE_SPAN_BYTES) + 3) != 0) abort();
}

static void check_state(char *lines) {
    char list[TRACE_STATE_BYTES] = "", again[TRACE_STATE_BYTES] = "";
    size_t n = 0, m = 0;
    for (char *at = lines; at;) {
        char *next = strchr(at, '\n');
        if (next) *next++ = '\0';
        if (!trace_state_add(list, &n, at)) return;
        at = next;
    }
    if (n > TRACE_STATE_MEMBERS || strlen(list) >= TRACE_STATE_BYTES) abort();
    if (!trace_state_add(again, &m, list) || m > n || strcmp(list, again) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static char text[MAX_BYTES + 1];
    if (n > MAX_BYTES) n = MAX_BYTES;
    memcpy(text, bytes, n);
    text[n] = '\0';
    char *state = strchr(text, '\n');
    if (state) *state++ = '\0';
    check_parent(text);
    if (state) check_state(state);
    return 0;
}
