/* jinja/filters.c - filters on single values and text. */
#include "core/chat/jinja/builtin_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Applies a str method to any value, as text. */
static jval filter_by_method(jctx *c, jval v, struct jargs *a, const char *name) {
    const jstr *s = jto_str(c, v);
    if (!s) return jundef_plain();
    return jbuiltin_find(jstr_methods, name, strlen(name))->fn(c, jstr_val(s), a);
}

static jval f_trim(jctx *c, jval v, struct jargs *a) {
    return filter_by_method(c, v, a, "strip");
}

static jval f_upper(jctx *c, jval v, struct jargs *a) {
    return filter_by_method(c, v, a, "upper");
}

static jval f_lower(jctx *c, jval v, struct jargs *a) {
    return filter_by_method(c, v, a, "lower");
}

static jval f_capitalize(jctx *c, jval v, struct jargs *a) {
    return filter_by_method(c, v, a, "capitalize");
}

static jval f_replace(jctx *c, jval v, struct jargs *a) {
    const jstr *s = jto_str(c, v);
    jval plain = s ? jstr_mark(c, s, false) : jundef_plain();
    return c->failed ? plain : filter_by_method(c, plain, a, "replace");
}

static jval f_center(jctx *c, jval v, struct jargs *a) {
    jval width = jint(80);
    struct jargs fixed = {&width, 1, NULL, NULL, 0};
    return filter_by_method(c, v, a->n_pos + a->n_kw ? a : &fixed, "center");
}

static jval f_string(jctx *c, jval v, struct jargs *a) {
    jval none[1];
    if (!jbind(c, "string", "", 0, a, none)) return jundef_plain();
    const jstr *s = jto_str(c, v);
    return s ? jstr_val(s) : jundef_plain();
}

/* Autoescape is off, so that marking text as safe only shows when it is added to other text. */
static jval f_safe(jctx *c, jval v, struct jargs *a) {
    jval text = f_string(c, v, a);
    return c->failed ? text : jstr_mark(c, text.u.s, true);
}

static jval escape_html(jctx *c, jval v, struct jargs *a, bool always) {
    jval text = f_string(c, v, a);
    if (!c->failed && always) text = jstr_mark(c, text.u.s, false);
    if (c->failed) return text;
    jsb b;
    jsb_init(&b, c);
    b.markup = true;
    jcharge(c, text.u.s->n / 8);
    jsb_escaped(&b, text.u.s);
    return jsb_done(&b);
}

static jval f_escape(jctx *c, jval v, struct jargs *a) {
    return escape_html(c, v, a, false);
}

static jval f_forceescape(jctx *c, jval v, struct jargs *a) {
    return escape_html(c, v, a, true);
}

static jval f_default(jctx *c, jval v, struct jargs *a) {
    jval o[2];
    if (!jbind(c, "default", "default_value boolean", 0, a, o)) return jundef_plain();
    bool use = v.kind == J_UNDEF || (o[1].kind != J_ABSENT && jtruth(o[1]) && !jtruth(v));
    if (!use) return v;
    return o[0].kind == J_ABSENT ? jtext(c, "") : o[0];
}

static jval f_length(jctx *c, jval v, struct jargs *a) {
    jval none[1];
    return jbind(c, "length", "", 0, a, none) ? jint(jlength(c, v)) : jundef_plain();
}

static jval f_abs(jctx *c, jval v, struct jargs *a) {
    jval none[1];
    if (!jbind(c, "abs", "", 0, a, none)) return jundef_plain();
    if (v.kind == J_UNDEF) return jfail_undef(c, v);
    if (!jis_number(v)) return jfail(c, "bad operand type for abs(): '%s'", jtype_name(v));
    jval out = v.kind == J_BOOL ? jint(v.u.b) : v;
    if (v.kind == J_INT && v.u.i < 0) out = jop_binary(c, OP_SUB, jint(0), v);
    if (v.kind == J_FLOAT) out.u.f = fabs(v.u.f);
    if (v.kind == J_BIG) out = jfloat(fabs(jnumber(v)));
    out.untrusted = v.untrusted;
    return out;
}

/* The trimmed text of a number, NUL-terminated; NULL if it cannot be one. Underscores between
 * digits are allowed, as in Python. */
static const char *number_chars(jctx *c, const jstr *s) {
    jval none = jnone();
    struct jargs no_args = {&none, 0, NULL, NULL, 0};
    jval trimmed = jbuiltin_find(jstr_methods, "strip", 5)->fn(c, jstr_val(s), &no_args);
    if (c->failed) return NULL;
    char *text = arena_alloc(c->mem, trimmed.u.s->n + 1);
    size_t n = 0;
    for (size_t i = 0; text && i < trimmed.u.s->n; i++) {
        char ch = trimmed.u.s->p[i];
        bool between = i > 0 && i + 1 < trimmed.u.s->n && trimmed.u.s->p[i - 1] != '_';
        if (ch == '\0' || (ch == '_' && !between)) return NULL;
        if (ch != '_') text[n++] = ch;
    }
    return n ? text : NULL;
}

/* Whole text as an integer in base. */
static bool read_int(const char *text, int base, int64_t *out) {
    bool minus = *text == '-';
    const char *p = text + (minus || *text == '+');
    char mark = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : 0;
    if (mark && p[0] == '0' && (p[1] | 32) == mark) p += 2;
    int64_t value = 0;
    if (!*p) return false;
    for (; *p; p++) {
        int digit = *p >= '0' && *p <= '9' ? *p - '0' : (*p | 32) - 'a' + 10;
        if (digit < 0 || digit >= base || (*p > '9' && (*p | 32) < 'a')) return false;
        if (__builtin_mul_overflow(value, base, &value) ||
            __builtin_sub_overflow(value, digit, &value))
            return false;
    }
    if (!minus && value == INT64_MIN) return false;
    *out = minus ? value : -value;
    return true;
}

/* Whole text as a decimal float, "inf" or "nan"; no hexadecimal. */
static bool read_float(const char *text, double *out) {
    char *end;
    if (strpbrk(text, "xXpP(")) return false;
    *out = strtod(text, &end);
    return end != text && *end == '\0';
}

static jval f_int(jctx *c, jval v, struct jargs *a) {
    jval o[2], out;
    int64_t base, i = 0;
    double d = 0;
    if (!jbind(c, "int", "default base", 0, a, o) || !jarg_int(c, o[1], 10, &base))
        return jundef_plain();
    if (v.kind == J_UNDEF) return jfail_undef(c, v);
    jval fallback = o[0].kind == J_ABSENT ? jint(0) : o[0];
    if (base < 2 || base > 36) return fallback;
    if (v.kind == J_INT || v.kind == J_BIG) return v;
    bool ok = v.kind == J_BOOL, untrusted = v.untrusted;
    if (ok) i = v.u.b;
    if (v.kind == J_STR) {
        const char *text = number_chars(c, v.u.s);
        untrusted = !jstr_trusted(v.u.s, 0, v.u.s->n);
        ok = text && read_int(text, (int)base, &i);
        if (!ok && text && read_float(text, &d)) v = jfloat(d);
    }
    if (v.kind == J_FLOAT && fabs(v.u.f) < 9.2e18) {
        i = (int64_t)v.u.f;
        ok = true;
    }
    out = ok ? jint(i) : fallback;
    out.untrusted = out.untrusted || untrusted;
    return out;
}

static jval f_float(jctx *c, jval v, struct jargs *a) {
    jval fallback, out;
    double d = 0;
    bool ok, untrusted = v.untrusted;
    if (!jbind(c, "float", "default", 0, a, &fallback)) return jundef_plain();
    if (v.kind == J_UNDEF) return jfail_undef(c, v);
    if (v.kind == J_STR) {
        const char *text = number_chars(c, v.u.s);
        untrusted = !jstr_trusted(v.u.s, 0, v.u.s->n);
        ok = text && read_float(text, &d);
    } else {
        ok = jis_number(v);
        d = jnumber(v);
    }
    out = ok ? jfloat(d) : fallback.kind == J_ABSENT ? jfloat(0) : fallback;
    out.untrusted = out.untrusted || untrusted;
    return out;
}

static jval f_round(jctx *c, jval v, struct jargs *a) {
    jval o[2];
    int64_t digits;
    if (!jbind(c, "round", "precision method", 0, a, o) || !jarg_int(c, o[0], 0, &digits))
        return jundef_plain();
    if (v.kind == J_UNDEF) return jfail_undef(c, v);
    if (!jis_number(v)) return jfail(c, "type %s doesn't define __round__", jtype_name(v));
    const jstr *method = o[1].kind == J_ABSENT ? NULL : jarg_str(c, o[1]);
    if (c->failed) return jundef_plain();
    bool up = method && jstr_is(method, "ceil"), down = method && jstr_is(method, "floor");
    if (method && !up && !down && !jstr_is(method, "common"))
        return jfail_as(c, JINJA_FAULT_RUNTIME, "method must be common, ceil or floor");
    bool whole = v.kind == J_INT || v.kind == J_BOOL;
    if (whole && !up && !down && digits >= 0) return v.kind == J_INT ? v : jint(v.u.b);
    if (digits > 300 || digits < -300) return v;
    double scale = pow(10, (double)digits), d = jnumber(v), out;
    if (up || down) {
        out = (up ? ceil(d * scale) : floor(d * scale)) / scale;
    } else if (digits >= 0) { /* correctly rounded by way of the decimal text */
        char text[700];
        snprintf(text, sizeof text, "%.*f", (int)digits, d);
        out = strtod(text, NULL);
    } else {
        out = nearbyint(d * scale) / scale;
    }
    jval r = whole && !up && !down ? jint((int64_t)out) : jfloat(out);
    r.untrusted = v.untrusted;
    return r;
}

/* json.dumps as transformers calls it. */
static jval f_tojson(jctx *c, jval v, struct jargs *a) {
    jval o[4];
    if (!jbind(c, "tojson", "ensure_ascii indent separators sort_keys", 0, a, o))
        return jundef_plain();
    struct jjson_style style = {.ensure_ascii = o[0].kind != J_ABSENT && jtruth(o[0]),
                                .sort_keys = o[3].kind != J_ABSENT && jtruth(o[3])};
    bool indent = o[1].kind != J_ABSENT && o[1].kind != J_NONE;
    jval item = jtext(c, indent ? "," : ", "), key = jtext(c, ": ");
    if (indent && o[1].kind == J_STR) {
        style.indent = o[1].u.s;
    } else if (indent) {
        int64_t n;
        jsb b;
        jsb_init(&b, c);
        if (!jarg_int(c, o[1], 0, &n)) return jundef_plain();
        if (n > 1000) return jfail_as(c, JINJA_FAULT_LIMIT, "the indentation is too wide");
        for (int64_t i = 0; i < n; i++)
            jsb_text(&b, " ", true);
        jval spaces = jsb_done(&b);
        style.indent = spaces.u.s;
    }
    if (o[2].kind != J_ABSENT && o[2].kind != J_NONE) {
        jval *pair;
        size_t n;
        if (!jiterate(c, o[2], &pair, &n)) return jundef_plain();
        if (n != 2 || pair[0].kind != J_STR || pair[1].kind != J_STR)
            return jfail(c, "tojson: separators must be two strings");
        item = pair[0];
        key = pair[1];
    }
    if (c->failed) return jundef_plain();
    style.item_sep = item.u.s;
    style.key_sep = key.u.s;
    return jto_json(c, v, &style);
}

static jval f_indent(jctx *c, jval v, struct jargs *a) {
    jval o[3];
    if (!jbind(c, "indent", "width first blank", 0, a, o)) return jundef_plain();
    bool first = o[1].kind != J_ABSENT && jtruth(o[1]);
    bool blank = o[2].kind != J_ABSENT && jtruth(o[2]);
    const jstr *s = jarg_str(c, v);
    int64_t width = 4;
    jsb b;
    jsb_init(&b, c);
    if (o[0].kind == J_STR) {
        jsb_str(&b, o[0].u.s);
    } else if (jarg_int(c, o[0], 4, &width)) {
        for (int64_t i = 0; i < width && jcharge(c, 1); i++)
            jsb_text(&b, " ", true);
    }
    jval pad = jsb_done(&b), none = jnone(), *lines;
    size_t n;
    struct jargs no_args = {&none, 0, NULL, NULL, 0};
    if (!s || c->failed) return jundef_plain();
    jval split = jbuiltin_find(jstr_methods, "splitlines", 10)->fn(c, jstr_val(s), &no_args);
    if (!jiterate(c, split, &lines, &n)) return jundef_plain();
    /* A newline at the end starts one more, empty line; an empty text is one line. */
    jsb_init(&b, c);
    b.markup = s->markup;
    if (first) jsb_str(&b, pad.u.s);
    bool open = s->n == 0 || strchr("\n\r\v\f\x1c\x1d\x1e", s->p[s->n - 1]) != NULL;
    for (size_t i = 0; i < n + open && !c->failed; i++) {
        const jstr *line = i < n ? lines[i].u.s : NULL;
        if (i) jsb_text(&b, "\n", true);
        if (i && (blank || (line && line->n))) jsb_str(&b, pad.u.s);
        if (line) jsb_str(&b, line);
    }
    return jsb_done(&b);
}

static bool word_break(uint32_t cp) {
    return uc_is_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
}

static jval f_title(jctx *c, jval v, struct jargs *a) {
    jval none[1];
    const jstr *s = jto_str(c, v);
    if (!s || !jbind(c, "title", "", 0, a, none)) return jundef_plain();
    jsb b;
    jsb_init(&b, c);
    bool start = true;
    jcharge(c, s->n / 8);
    for (size_t i = 0, len; i < s->n && !c->failed; i += len) {
        uint32_t cp = utf8_decode_lossy(s->p + i, s->n - i, &len),
                 to = start ? uc_upper(cp) : uc_lower(cp);
        if (to == cp)
            jsb_slice(&b, s, i, i + len);
        else
            jsb_char(&b, to, jstr_trusted(s, i, i + len));
        start = word_break(cp);
    }
    return jsb_done(&b);
}

static jval f_wordcount(jctx *c, jval v, struct jargs *a) {
    jval none[1];
    int64_t n = 0;
    bool in_word = false;
    const jstr *s = jto_str(c, v);
    if (!s || !jbind(c, "wordcount", "", 0, a, none)) return jundef_plain();
    jcharge(c, s->n / 8);
    for (size_t i = 0, len; i < s->n; i += len) {
        uint32_t cp = utf8_decode_lossy(s->p + i, s->n - i, &len);
        bool word = cp == '_' || (cp >= '0' && cp <= '9') || uc_is_alpha(cp);
        n += word && !in_word;
        in_word = word;
    }
    return jint(n);
}

static jval f_truncate(jctx *c, jval v, struct jargs *a) {
    jval o[4];
    int64_t length, leeway;
    if (!jbind(c, "truncate", "length killwords end leeway", 0, a, o) ||
        !jarg_int(c, o[0], 255, &length) || !jarg_int(c, o[3], 5, &leeway))
        return jundef_plain();
    jval end = o[2].kind == J_ABSENT ? jtext(c, "...") : o[2];
    const jstr *mark = c->failed ? NULL : jarg_str(c, end);
    int64_t n = mark ? jlength(c, v) : 0;
    if (c->failed) return jundef_plain();
    if (length < (int64_t)mark->n_chars || leeway < 0 || leeway > INT64_MAX - length)
        return jfail_as(c, JINJA_FAULT_VALUE, "truncate: length and leeway do not fit");
    if (n <= length + leeway) return v;
    const jstr *s = jarg_str(c, v);
    if (!s) return jundef_plain();
    size_t cut = jstr_offset(s, (size_t)(length - (int64_t)mark->n_chars));
    if (o[1].kind == J_ABSENT || !jtruth(o[1])) {
        size_t space = cut;
        while (space > 0 && s->p[space - 1] != ' ')
            space--;
        if (space > 0) cut = space - 1;
    }
    jsb b;
    jsb_init(&b, c);
    jsb_slice(&b, s, 0, cut);
    jsb_str(&b, mark);
    return jsb_done(&b);
}

static jval f_urlencode(jctx *c, jval v, struct jargs *a) {
    jval none[1];
    const jstr *s = jto_str(c, v);
    if (!s || !jbind(c, "urlencode", "", 0, a, none)) return jundef_plain();
    if (v.kind != J_STR && !jis_number(v) && v.kind != J_NONE && v.kind != J_UNDEF)
        return jfail(c, "urlencode of a collection is not supported");
    jsb b;
    jsb_init(&b, c);
    jcharge(c, s->n / 8);
    for (size_t i = 0; i < s->n && !c->failed; i++) {
        unsigned char ch = (unsigned char)s->p[i];
        char text[4] = {'%', "0123456789ABCDEF"[ch >> 4], "0123456789ABCDEF"[ch & 15], 0};
        bool plain = (ch >= '0' && ch <= '9') || ((ch | 32) >= 'a' && (ch | 32) <= 'z') ||
                     (ch && strchr("_.-~/", ch));
        if (plain)
            jsb_slice(&b, s, i, i + 1);
        else
            jsb_text(&b, text, jstr_trusted(s, i, i + 1));
    }
    return jsb_done(&b);
}

static jval f_format(jctx *c, jval v, struct jargs *a) {
    const jstr *s = jto_str(c, v);
    if (!s) return jundef_plain();
    if (a->n_pos && a->n_kw)
        return jfail_as(c, JINJA_FAULT_RUNTIME, "can't handle positional and keyword arguments");
    jval args = a->n_kw ? jdict_make(c, J_DICT, a->n_kw) : jlist_make(c, J_TUPLE, a->n_pos);
    for (size_t i = 0; i < a->n_kw && !c->failed; i++)
        jdict_set(c, args.u.dict, jstr_val(a->kw_names[i]), a->kw[i]);
    for (size_t i = 0; i < a->n_pos && !c->failed; i++)
        jlist_push(c, args.u.list, a->pos[i]);
    return c->failed ? jundef_plain() : jformat_percent(c, s, args);
}

const struct jbuiltin jfilters[] = {{"trim", f_trim, false},
                                    {"tojson", f_tojson, false},
                                    {"length", f_length, false},
                                    {"default", f_default, false},
                                    {"string", f_string, false},
                                    {"upper", f_upper, false},
                                    {"lower", f_lower, false},
                                    {"safe", f_safe, false},
                                    {"indent", f_indent, false},
                                    {"replace", f_replace, false},
                                    {"capitalize", f_capitalize, false},
                                    {"title", f_title, false},
                                    {"d", f_default, false},
                                    {"count", f_length, false},
                                    {"int", f_int, false},
                                    {"float", f_float, false},
                                    {"round", f_round, false},
                                    {"abs", f_abs, false},
                                    {"escape", f_escape, false},
                                    {"e", f_escape, false},
                                    {"forceescape", f_forceescape, false},
                                    {"center", f_center, false},
                                    {"wordcount", f_wordcount, false},
                                    {"truncate", f_truncate, false},
                                    {"format", f_format, false},
                                    {"urlencode", f_urlencode, false},
                                    {NULL, NULL, false}};
