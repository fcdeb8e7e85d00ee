/* format_int.h - private to core/chat/jinja: one directive of a format, shared by `%` and
 * str.format(). */
#ifndef INFERD_JINJA_FORMAT_INT_H
#define INFERD_JINJA_FORMAT_INT_H

#include "core/chat/jinja/builtin_int.h"

enum { J_MAX_WIDTH = 10000, J_MAX_PRECISION = 300 };

struct jspec {
    bool minus, zero, plus, space, alt, comma;
    bool right; /* text goes to the right by default, as in % formats */
    char align; /* '<' '>' '^' or 0 */
    char fill[5];
    size_t fill_len;
    int64_t width, precision; /* precision -1: not given */
    char type;                /* 0: not given */
};

int64_t jformat_number(const jstr *s, size_t *at); /* digits at *at, moved past them */
bool jspec_check(jctx *c, const struct jspec *f);  /* bounds of width and precision */
/* Add v as the directive f writes it. fmt_trusted: the directive's own text is. */
void jput_number(jsb *b, const struct jspec *f, jval v, bool fmt_trusted);
void jput_text(jsb *b, const struct jspec *f, jval v, bool repr, bool fmt_trusted);

#endif
