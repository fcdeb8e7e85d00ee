/* jinja/format.c - text formatting: '...' % args and str.format(). A directive's text keeps the
 * provenance of its value and is trusted only where the format string is. */
#include "core/chat/chat_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WIDTH = 10000, MAX_PRECISION = 300 };

struct spec {
    bool minus, zero, plus, space, alt, comma;
    bool right; /* text goes to the right by default, as in % formats */
    char align; /* '<' '>' '^' or 0 */
    char fill[5];
    size_t fill_len;
    int64_t width, precision; /* precision -1: not given */
    char type;                /* 0: not given */
};

static int64_t read_number(const jstr *s, size_t *at) {
    int64_t n = 0;
    for (; *at < s->n && s->p[*at] >= '0' && s->p[*at] <= '9'; (*at)++)
        n = n < MAX_WIDTH * 10 ? n * 10 + (s->p[*at] - '0') : n;
    return n;
}

/* Adds text (n) padded to the width of spec; numbers: zeros go behind the sign. */
static void put_padded(jsb *b, const struct spec *f, const jstr *text, bool is_number,
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

static void int_text(const struct spec *f, int64_t i, char *out, size_t size) {
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

static void float_text(const struct spec *f, double d, char *out, size_t size) {
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

static void put_number(jsb *b, const struct spec *f, jval v, bool fmt_trusted) {
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

static void put_text(jsb *b, const struct spec *f, jval v, bool repr, bool fmt_trusted) {
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

static bool check_sizes(jctx *c, const struct spec *f) {
    if (f->width <= MAX_WIDTH && f->precision <= MAX_PRECISION) return true;
    jfail_as(c, CHAT_FAULT_LIMIT, "a format is too wide");
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

/* The directive behind a '%' at *at. */
static void percent_directive(jsb *b, const jstr *fmt, size_t *at, jval args, size_t *used) {
    jctx *c = b->c;
    struct spec f = {.precision = -1, .right = true};
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
            jfail_as(c, CHAT_FAULT_KEY, "a key of the format is missing");
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
    f.width = read_number(fmt, at);
    if (*at < fmt->n && fmt->p[*at] == '.') {
        ++*at;
        f.precision = read_number(fmt, at);
    }
    if (!check_sizes(c, &f)) return;
    if (*at >= fmt->n) {
        jfail_as(c, CHAT_FAULT_VALUE, "incomplete format");
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
        put_text(b, &f, v, f.type != 's', trusted);
    } else if (f.type && strchr("diuxXoeEfFgG", f.type)) {
        if (!jis_number(v))
            jfail(c, "%%%c format: a real number is required, not %s", f.type, jtype_name(v));
        else
            put_number(b, &f, v, trusted);
    } else {
        jfail_as(c, CHAT_FAULT_VALUE, "unsupported format character");
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

/* ---- str.format */

/* "[[fill]align][sign][#][0][width][,][.precision][type]" */
static bool read_spec(jctx *c, const jstr *s, struct spec *f) {
    size_t at = 0, len = s->n ? u8_len(s->p, s->n) : 0;
    *f = (struct spec){.precision = -1};
    if (s->n > len && strchr("<>^", s->p[len]) && s->p[len]) {
        memcpy(f->fill, s->p, len);
        f->fill_len = len;
        f->align = s->p[len];
        at = len + 1;
    } else if (s->n && s->p[0] && strchr("<>^", s->p[0])) {
        f->align = s->p[at++];
    }
    if (at < s->n && (s->p[at] == '+' || s->p[at] == '-' || s->p[at] == ' ')) {
        f->plus = s->p[at] == '+';
        f->space = s->p[at] == ' ';
        at++;
    }
    if (at < s->n && s->p[at] == '#') f->alt = true, at++;
    if (at < s->n && s->p[at] == '0') f->zero = true, at++;
    f->width = read_number(s, &at);
    if (at < s->n && s->p[at] == ',') f->comma = true, at++;
    if (at < s->n && s->p[at] == '.') {
        at++;
        f->precision = read_number(s, &at);
    }
    if (at < s->n) f->type = s->p[at++];
    if (at < s->n || (f->type && !strchr("sdxXoeEfFgG%", f->type))) {
        jfail_as(c, CHAT_FAULT_VALUE, "Invalid format specifier");
        return false;
    }
    return check_sizes(c, f);
}

/* The value that a replacement field names: "", "0", "name", then .attr and [key]. */
static jval field_value(jctx *c, const jstr *name, struct jargs *a, size_t *next) {
    size_t end = 0;
    bool digits = true;
    while (end < name->n && name->p[end] != '.' && name->p[end] != '[') {
        digits = digits && name->p[end] >= '0' && name->p[end] <= '9';
        end++;
    }
    jval v = jabsent();
    if (digits) {
        size_t at = 0;
        size_t i = end ? (size_t)read_number(name, &at) : (*next)++;
        if (i < a->n_pos) v = a->pos[i];
    }
    for (size_t i = 0; i < a->n_kw && v.kind == J_ABSENT && !digits; i++)
        if (a->kw_names[i]->n == end && memcmp(a->kw_names[i]->p, name->p, end) == 0) v = a->kw[i];
    if (v.kind == J_ABSENT)
        return jfail_as(c, CHAT_FAULT_INDEX, "format(): an argument is missing");
    while (end < name->n && !c->failed) {
        bool item = name->p[end] == '[';
        size_t start = ++end;
        while (end < name->n &&
               (item ? name->p[end] != ']' : name->p[end] != '.' && name->p[end] != '['))
            end++;
        jval key = jstr_slice(c, name, start, end);
        if (c->failed) break;
        size_t at = 0;
        bool number = item && end > start && strspn(name->p + start, "0123456789") >= end - start;
        v = !item ? jget_attr(c, v, key.u.s)
                  : jget_item(c, v, number ? jint(read_number(key.u.s, &at)) : key);
        end += item;
    }
    return v;
}

static void format_field(jsb *b, const jstr *field, struct jargs *a, size_t *next, bool trusted) {
    jctx *c = b->c;
    const char *colon = memchr(field->p, ':', field->n);
    size_t name_end = colon ? (size_t)(colon - field->p) : field->n;
    const char *bang = memchr(field->p, '!', name_end);
    size_t stop = bang ? (size_t)(bang - field->p) : name_end;
    struct spec f;
    jval name = jstr_slice(c, field, 0, stop);
    jval spec = jstr_slice(c, field, colon ? name_end + 1 : field->n, field->n);
    if (c->failed || !read_spec(c, spec.u.s, &f)) return;
    jval v = field_value(c, name.u.s, a, next);
    if (c->failed) return;
    bool repr = bang && stop + 1 < field->n && field->p[stop + 1] == 'r';
    if (jis_number(v) && v.kind != J_BOOL && v.kind != J_BIG && !bang &&
        (f.type || v.kind == J_INT))
        put_number(b, &f, v, trusted);
    else
        put_text(b, &f, v, repr, trusted);
}

jval jstr_format(jctx *c, jval self, struct jargs *a) {
    const jstr *s = self.u.s;
    jsb b;
    size_t next = 0, at = 0;
    jsb_init(&b, c);
    b.markup = s->markup;
    while (at < s->n && jcharge(c, 1)) {
        size_t stop = at;
        while (stop < s->n && s->p[stop] != '{' && s->p[stop] != '}')
            stop++;
        jsb_slice(&b, s, at, stop);
        at = stop;
        if (at >= s->n) break;
        if (at + 1 < s->n && s->p[at + 1] == s->p[at]) {
            jsb_slice(&b, s, at, at + 1);
            at += 2;
            continue;
        }
        const char *close = s->p[at] == '{' ? memchr(s->p + at, '}', s->n - at) : NULL;
        if (!close)
            return jfail_as(c, CHAT_FAULT_VALUE, "Single '%c' encountered in format string",
                            s->p[at]);
        size_t end = (size_t)(close - s->p);
        jval field = jstr_slice(c, s, at + 1, end);
        if (!c->failed) format_field(&b, field.u.s, a, &next, jstr_trusted(s, at, end + 1));
        at = end + 1;
    }
    return jsb_done(&b);
}
