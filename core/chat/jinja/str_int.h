/* str_int.h - private to core/chat/jinja: strings with provenance, the builder of strings, and
 * characters. */
#ifndef INFERD_JINJA_STR_INT_H
#define INFERD_JINJA_STR_INT_H

#include "core/chat/jinja/run_int.h"
#include "core/text/utf8.h"

struct jstr {
    const char *p; /* (n) bytes, UTF-8 if the source was; not NUL-terminated */
    size_t n;
    size_t n_chars;          /* code points; a malformed byte counts as one */
    const struct jrun *runs; /* NULL: all of it is `trusted` */
    size_t n_runs;
    bool trusted;
    bool markup; /* went through `safe` or `escape`: joining it with other text escapes that */
};

static inline jval jstr_val(const jstr *s) {
    return (jval){.kind = J_STR, .u.s = s};
}

const jstr *jstr_new(jctx *c, const char *p, size_t n, bool trusted); /* borrows the bytes */
jval jtext(jctx *c, const char *literal);                             /* trusted, static storage */
jval jstr_slice(jctx *c, const jstr *s, size_t from, size_t to);      /* bytes */
bool jstr_trusted(const jstr *s, size_t from, size_t to);             /* all of these bytes? */
jval jstr_mark(jctx *c, const jstr *s, bool markup);
bool jstr_is(const jstr *s, const char *text);
bool jstr_eq(const jstr *a, const jstr *b);
size_t jstr_offset(const jstr *s, size_t chars); /* byte offset of a code point */

/* A string under construction, in the render's arena. */
typedef struct jsb {
    jctx *c;
    char *p;
    size_t n, cap, max;
    struct jrun *runs;
    size_t n_runs, cap_runs;
    bool markup; /* of the finished string */
} jsb;

void jsb_init(jsb *b, jctx *c);
void jsb_add(jsb *b, const char *p, size_t n, bool trusted);
void jsb_text(jsb *b, const char *literal, bool trusted);
void jsb_str(jsb *b, const jstr *s);
void jsb_slice(jsb *b, const jstr *s, size_t from, size_t to);
void jsb_char(jsb *b, uint32_t code_point, bool trusted);
void jsb_escaped(jsb *b, const jstr *s); /* HTML-escaped unless s is markup */
jval jsb_done(jsb *b);

bool uc_is_space(uint32_t cp);
bool uc_is_alpha(uint32_t cp);
bool uc_is_upper(uint32_t cp);
bool uc_is_lower(uint32_t cp);
uint32_t uc_upper(uint32_t cp);
uint32_t uc_lower(uint32_t cp);

#endif
