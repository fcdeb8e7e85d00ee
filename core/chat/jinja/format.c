/* jinja/format.c - text formatting: '...' % args, and what str.format() shares with it. A
 * directive's text keeps the provenance of its value and is trusted only if the format string is.
 */
#include "core/chat/jinja/format_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t jformat_number(const jstr *s, size_t *at) {
    int64_t n = 0;
    for (; *at < s->n && s->p[*at] >= '0' && s->p[*at] <= '9'; (*at)++)
        n = n < J_MAX_WIDTH * 10 ? n * 10 + (s->p[*at] - '0') : n;
    return n;
}

/* Adds text padded to the width of f; in numbers zeros go after the sign. */
static void put_padded(jsb *b, const struct jspec *f, const jstr *text, bool is_number,
                       bool fmt_trusted) {
    int64_t fill = f->width - (int64_t)text->n_chars;
    char align = f->align ? f->align : is_number || f->right ? '>' : '<';
    if (f->minus) align = '<';
    bool zeros = f->zero && is_number && !f->minus && !f->align;
    int64_t left = align == '>' ? fill : align == '^' ? fill / 2 : 0;
    size_t sign = zeros && text->n && (text->p[0] == '-' || text->p[0] == '+') ? 1 : 0;
    const char *pad = zeros ? "0" : f->fill_len ? f->fill : " ";
    size_t pad_len = zeros ? 1 : f->fill_len ? f->fill_len : 1;
    jsb part;
    jsb_init(&part, b->c);
    jsb_slice(&part, text, 0, sign);
    for (int64_t i = 0; i < left; i++)
        jsb_add(&part, pad, pad_len, fmt_trusted);
    jsb_slice(&part, text, sign, text->n);
    for (int64_t i = left; i < fill; i++)
        jsb_add(&part, pad, pad_len, fmt_trusted);
    jval done = jsb_done(&part);
    if (b->c->failed) return;
    if (fmt_trusted)
        jsb_str(b, done.u.s);
    else
        jsb_add(b, done.u.s->p, done.u.s->n, false);
}

static void group_thousands(char *text, size_t size) {
    size_t n = strlen(text), start = *text == '-' || *text == '+';
    size_t digits = start + strspn(text + start, "0123456789");
    for (size_t at = digits; at > start + 3 && n + 1 < size; n++) {
        at -= 3;
        memmove(text + at + 1, text + at, n - at + 1);
        text[at] = ',';
    }
}

static void int_text(const struct jspec *f, int64_t i, char *out, size_t size) {
    uint64_t magnitude = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    const char *sign = i < 0 ? "-" : f->plus ? "+" : f->space ? " " : "";
    const char *prefix = !f->alt ? "" : f->type == 'x' ? "0x" : f->type == 'X' ? "0X" : "";
    const char *octal = f->alt && f->type == 'o' ? "0o" : prefix;
    if (f->type == 'x')
        snprintf(out, size, "%s%s%llx", sign, prefix, (unsigned long long)magnitude);
    else if (f->type == 'X')
        snprintf(out, size, "%s%s%llX", sign, prefix, (unsigned long long)magnitude);
    else if (f->type == 'o')
        snprintf(out, size, "%s%s%llo", sign, octal, (unsigned long long)magnitude);
    else
        snprintf(out, size, "%s%llu", sign, (unsigned long long)magnitude);
    if (f->comma) group_thousands(out, size);
}

static void float_text(const struct jspec *f, double d, char *out, size_t size) {
    char shape[16];
    int precision = f->precision < 0 ? 6 : (int)f->precision;
    char type = f->type == '%' ? 'f' : f->type ? f->type : 'g';
    snprintf(shape, sizeof shape, "%%%s%s.*%c",
             f->plus    ? "+"
             : f->space ? " "
                        : "",
             f->alt ? "#" : "", type);
    /* The shape is made of the fixed pieces above. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(out, size, shape, precision, f->type == '%' ? d * 100 : d);
#pragma GCC diagnostic pop
    if (f->type == '%' && strlen(out) + 1 < size) strcat(out, "%");
    if (f->comma) group_thousands(out, size);
}

void jput_number(jsb *b, const struct jspec *f, jval v, bool fmt_trusted) {
    char text[700];
    bool as_float = f->type && strchr("eEfFgG%", f->type);
    if (v.kind == J_BIG || (v.kind == J_FLOAT && !as_float && f->type) ||
        (as_float && v.kind == J_BIG))
        v = jfloat(jnumber(v));
    if (as_float)
        float_text(f, jnumber(v), text, sizeof text);
    else if (v.kind == J_FLOAT)
        int_text(f, fabs(v.u.f) < 9e18 ? (int64_t)v.u.f : 0, text, sizeof text);
    else
        int_text(f, v.kind == J_BOOL ? v.u.b : v.u.i, text, sizeof text);
    jval s = jundef_plain();
    jsb part;
    jsb_init(&part, b->c);
    jsb_text(&part, text, !v.untrusted);
    s = jsb_done(&part);
    if (!b->c->failed) put_padded(b, f, s.u.s, true, fmt_trusted);
}

void jput_text(jsb *b, const struct jspec *f, jval v, bool repr, bool fmt_trusted) {
    jsb part;
    jsb_init(&part, b->c);
    if (repr)
        jput_repr(&part, v, jall_trusted(b->c, v));
    else
        jput_str(&part, v);
    jval s = jsb_done(&part);
    if (b->c->failed) return;
    if (b->markup && !(v.kind == J_STR && v.u.s->markup)) {
        jsb_init(&part, b->c);
        jsb_escaped(&part, s.u.s);
        s = jsb_done(&part);
        if (b->c->failed) return;
    }
    if (f->precision >= 0) s = jstr_slice(b->c, s.u.s, 0, jstr_offset(s.u.s, (size_t)f->precision));
    if (!b->c->failed) put_padded(b, f, s.u.s, false, fmt_trusted);
}

bool jspec_check(jctx *c, const struct jspec *f) {
    if (f->width <= J_MAX_WIDTH && f->precision <= J_MAX_PRECISION) return true;
    jfail_as(c, JINJA_FAULT_LIMIT, "a format is too wide");
    return false;
}

/* Takes the next argument of a % format. */
static jval next_arg(jctx *c, jval args, size_t *used) {
    if (args.kind != J_TUPLE) {
        if ((*used)++ == 0) return args;
    } else if (*used < args.u.list->n) {
        return args.u.list->v[(*used)++];
    }
    return jfail(c, "not enough arguments for format string");
}

/* The directive after a '%'. */
static void percent_directive(jsb *b, const jstr *fmt, size_t *at, jval args, size_t *used) {
    jctx *c = b->c;
    struct jspec f = {.precision = -1, .right = true};
    size_t start = *at - 1;
    jval v = jabsent();
    if (*at < fmt->n && fmt->p[*at] == '(') {
        const char *close = memchr(fmt->p + *at, ')', fmt->n - *at);
        if (!close || args.kind != J_DICT) {
            jfail(c, "format requires a mapping");
            return;
        }
        size_t end = (size_t)(close - fmt->p);
        jval key = jstr_slice(c, fmt, *at + 1, end);
        const jval *found = c->failed ? NULL : jdict_get(c, args.u.dict, key);
        if (!found) {
            jfail_as(c, JINJA_FAULT_KEY, "a key of the format is missing");
            return;
        }
        v = *found;
        *at = end + 1;
    }
    for (; *at < fmt->n && fmt->p[*at] && strchr("-0+ #", fmt->p[*at]); (*at)++) {
        f.minus |= fmt->p[*at] == '-';
        f.zero |= fmt->p[*at] == '0';
        f.plus |= fmt->p[*at] == '+';
        f.space |= fmt->p[*at] == ' ';
        f.alt |= fmt->p[*at] == '#';
    }
    f.width = jformat_number(fmt, at);
    if (*at < fmt->n && fmt->p[*at] == '.') {
        ++*at;
        f.precision = jformat_number(fmt, at);
    }
    if (!jspec_check(c, &f)) return;
    if (*at >= fmt->n) {
        jfail_as(c, JINJA_FAULT_VALUE, "incomplete format");
        return;
    }
    f.type = fmt->p[(*at)++];
    bool trusted = jstr_trusted(fmt, start, *at);
    if (f.type == '%') {
        jsb_text(b, "%", trusted);
        return;
    }
    if (v.kind == J_ABSENT) v = next_arg(c, args, used);
    if (c->failed) return;
    if (f.type == 's' || f.type == 'r' || f.type == 'a') {
        jput_text(b, &f, v, f.type != 's', trusted);
    } else if (f.type && strchr("diuxXoeEfFgG", f.type)) {
        if (!jis_number(v))
            jfail(c, "%%%c format: a real number is required, not %s", f.type, jtype_name(v));
        else
            jput_number(b, &f, v, trusted);
    } else {
        jfail_as(c, JINJA_FAULT_VALUE, "unsupported format character");
    }
}

jval jformat_percent(jctx *c, const jstr *fmt, jval args) {
    jsb b;
    size_t used = 0;
    jsb_init(&b, c);
    b.markup = fmt->markup;
    for (size_t at = 0; at < fmt->n && jcharge(c, 1);) {
        const char *hit = memchr(fmt->p + at, '%', fmt->n - at);
        size_t stop = hit ? (size_t)(hit - fmt->p) : fmt->n;
        jsb_slice(&b, fmt, at, stop);
        at = stop;
        if (!hit) break;
        at++;
        percent_directive(&b, fmt, &at, args, &used);
    }
    size_t given = args.kind == J_TUPLE                         ? args.u.list->n
                   : args.kind == J_DICT || args.kind == J_LIST ? used
                                                                : 1;
    if (used < given) jfail(c, "not all arguments converted during string formatting");
    return jsb_done(&b);
}
