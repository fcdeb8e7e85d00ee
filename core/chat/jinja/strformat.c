/* jinja/strformat.c - str.format(). */
#include "core/chat/jinja/format_int.h"

#include <string.h>

/* "[[fill]align][sign][#][0][width][,][.precision][type]" */
static bool read_spec(jctx *c, const jstr *s, struct jspec *f) {
    size_t at = 0, len = s->n ? utf8_len_lossy(s->p, s->n) : 0;
    *f = (struct jspec){.precision = -1};
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
    f->width = jformat_number(s, &at);
    if (at < s->n && s->p[at] == ',') f->comma = true, at++;
    if (at < s->n && s->p[at] == '.') {
        at++;
        f->precision = jformat_number(s, &at);
    }
    if (at < s->n) f->type = s->p[at++];
    if (at < s->n || (f->type && !strchr("sdxXoeEfFgG%", f->type))) {
        jfail_as(c, JINJA_FAULT_VALUE, "Invalid format specifier");
        return false;
    }
    return jspec_check(c, f);
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
        size_t i = end ? (size_t)jformat_number(name, &at) : (*next)++;
        if (i < a->n_pos) v = a->pos[i];
    }
    for (size_t i = 0; i < a->n_kw && v.kind == J_ABSENT && !digits; i++)
        if (a->kw_names[i]->n == end && memcmp(a->kw_names[i]->p, name->p, end) == 0) v = a->kw[i];
    if (v.kind == J_ABSENT)
        return jfail_as(c, JINJA_FAULT_INDEX, "format(): an argument is missing");
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
                  : jget_item(c, v, number ? jint(jformat_number(key.u.s, &at)) : key);
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
    struct jspec f;
    jval name = jstr_slice(c, field, 0, stop);
    jval spec = jstr_slice(c, field, colon ? name_end + 1 : field->n, field->n);
    if (c->failed || !read_spec(c, spec.u.s, &f)) return;
    jval v = field_value(c, name.u.s, a, next);
    if (c->failed) return;
    bool repr = bang && stop + 1 < field->n && field->p[stop + 1] == 'r';
    if (jis_number(v) && v.kind != J_BOOL && v.kind != J_BIG && !bang &&
        (f.type || v.kind == J_INT))
        jput_number(b, &f, v, trusted);
    else
        jput_text(b, &f, v, repr, trusted);
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
            return jfail_as(c, JINJA_FAULT_VALUE, "Single '%c' encountered in format string",
                            s->p[at]);
        size_t end = (size_t)(close - s->p);
        jval field = jstr_slice(c, s, at + 1, end);
        if (!c->failed) format_field(&b, field.u.s, a, &next, jstr_trusted(s, at, end + 1));
        at = end + 1;
    }
    return jsb_done(&b);
}
