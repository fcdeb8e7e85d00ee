/* trace_context.c - see trace_context.h. Owns nothing. */
#include "api/http/trace_context.h"

#include <string.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

enum {
    VERSION_AT = 0,
    TRACE_AT = 3,
    PARENT_AT = TRACE_AT + 2 * TRACE_ID_BYTES + 1,
    FLAGS_AT = PARENT_AT + 2 * TRACE_SPAN_BYTES + 1,
    LENGTH = FLAGS_AT + 2,
    VERSION_NEVER = 0xff,
    KEY_MAX = 256,
    VALUE_MAX = 256,
    LONG_MEMBER = 128 /* longer ones go first where all do not fit */
};

/* Only lower-case digits are valid. */
static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(const char *text, size_t n, uint8_t *out) {
    for (size_t i = 0; i < n; i++) {
        int high = digit_of(text[2 * i]), low = high < 0 ? -1 : digit_of(text[2 * i + 1]);
        if (low < 0) return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool is_zero(const uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (bytes[i]) return false;
    return true;
}

void trace_hex(const uint8_t *bytes, size_t n, char *out) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * n] = '\0';
}

bool trace_context_read(struct trace_context *c, const char *text) {
    struct trace_context found = *c;
    uint8_t version, flags;
    size_t n = strlen(text);
    if (n < LENGTH || text[2] != '-' || text[PARENT_AT - 1] != '-' || text[FLAGS_AT - 1] != '-')
        return false;
    if (!read_hex(text, 1, &version) || version == VERSION_NEVER) return false;
    /* Version 00 ends here; a later one may go on with '-'. */
    if (version ? n > LENGTH && text[LENGTH] != '-' : n != LENGTH) return false;
    if (!read_hex(text + TRACE_AT, TRACE_ID_BYTES, found.trace_id) ||
        !read_hex(text + PARENT_AT, TRACE_SPAN_BYTES, found.parent_id) ||
        !read_hex(text + FLAGS_AT, 1, &flags))
        return false;
    if (is_zero(found.trace_id, TRACE_ID_BYTES) || is_zero(found.parent_id, TRACE_SPAN_BYTES))
        return false;
    found.flags = flags & (TRACE_SAMPLED | TRACE_RANDOM);
    *c = found;
    return true;
}

/* Is a trace of the sampled part? By the last 7 bytes of its id, which level 2 wants to be random.
 */
static bool is_chosen(const uint8_t *trace_id, double ratio) {
    uint64_t value = 0;
    for (size_t i = TRACE_ID_BYTES - 7; i < TRACE_ID_BYTES; i++)
        value = value << 8 | trace_id[i];
    return (double)value < ratio * (double)(UINT64_C(1) << 56);
}

bool trace_context_begin(struct trace_context *c, const char *traceparent, double ratio) {
    uint8_t random[TRACE_ID_BYTES + TRACE_SPAN_BYTES];
    memset(c, 0, sizeof *c);
    if (getentropy(random, sizeof random)) return false;
    random[0] |= 1; /* neither of them is 0 */
    random[TRACE_ID_BYTES] |= 1;
    memcpy(c->span_id, random + TRACE_ID_BYTES, TRACE_SPAN_BYTES);
    if (traceparent && trace_context_read(c, traceparent)) return true;
    memcpy(c->trace_id, random, TRACE_ID_BYTES);
    c->flags = TRACE_RANDOM;
    if (is_chosen(c->trace_id, ratio)) c->flags |= TRACE_SAMPLED;
    return true;
}

void trace_context_write(const struct trace_context *c, char out[TRACE_HEADER_BYTES]) {
    memcpy(out, "00-", TRACE_AT);
    trace_hex(c->trace_id, TRACE_ID_BYTES, out + TRACE_AT);
    out[PARENT_AT - 1] = '-';
    trace_hex(c->span_id, TRACE_SPAN_BYTES, out + PARENT_AT);
    out[FLAGS_AT - 1] = '-';
    trace_hex(&c->flags, 1, out + FLAGS_AT);
}

/* ---- tracestate ---- */

static bool is_key(const char *text, size_t n) {
    if (!n || n > KEY_MAX) return false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        bool first = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (!first && (!i || !strchr("_-*/@", c) || !c)) return false;
    }
    return true;
}

/* Printable characters but ',' and '='; the list's own white space is cut off already. */
static bool is_value(const char *text, size_t n) {
    if (!n || n > VALUE_MAX) return false;
    for (size_t i = 0; i < n; i++)
        if (text[i] < ' ' || text[i] > '~' || text[i] == ',' || text[i] == '=') return false;
    return true;
}

static bool is_member(const char *text, size_t n) {
    const char *equals = memchr(text, '=', n);
    if (!equals) return false;
    size_t n_key = (size_t)(equals - text);
    return is_key(text, n_key) && is_value(equals + 1, n - n_key - 1);
}

static bool has_key(const char *list, const char *member) {
    size_t n = strcspn(member, "=") + 1;
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strncmp(at, member, n) == 0) return true;
    return false;
}

/* Makes room for n bytes more: long members go first, then those at the end. */
static bool make_room(char *out, size_t n) {
    char *longest = NULL;
    for (char *at = out; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") > LONG_MEMBER) longest = at;
    if (strlen(out) + n + 1 < TRACE_STATE_BYTES) return true;
    if (!longest) return false;
    char *next = longest + strcspn(longest, ",");
    if (*next) next++;
    memmove(longest, next, strlen(next) + 1);
    size_t left = strlen(out);
    if (left && out[left - 1] == ',') out[left - 1] = '\0';
    return make_room(out, n);
}

bool trace_state_add(char out[TRACE_STATE_BYTES], size_t *n, const char *header) {
    for (const char *at = header; *at;) {
        at += strspn(at, " \t");
        size_t len = strcspn(at, ",");
        const char *next = at + len + (at[len] == ',');
        while (len && (at[len - 1] == ' ' || at[len - 1] == '\t'))
            len--;
        if (len && (!is_member(at, len) || has_key(out, at) || ++*n > TRACE_STATE_MEMBERS))
            return false;
        bool too_long = len > LONG_MEMBER && strlen(out) + len + 1 >= TRACE_STATE_BYTES;
        if (len && !too_long && make_room(out, len)) {
            size_t used = strlen(out);
            if (used) out[used++] = ',';
            memcpy(out + used, at, len);
            out[used + len] = '\0';
        }
        at = next;
    }
    return true;
}
