/* jinja/text.c - values as text: Python's str() and repr(), and JSON as transformers' tojson. */
#include "core/chat/jinja/value_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Shortest digits that read back as f, then laid out as Python does: exponent below 1e-4 and from
 * 1e16 on, and never without ".0" or an exponent. */
void jfloat_text(double f, char out[J_FLOAT_CHARS]) {
    if (isnan(f) || isinf(f)) {
        snprintf(out, J_FLOAT_CHARS, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    char digits[J_FLOAT_CHARS];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision, f);
        if (strtod(digits, NULL) == f) break;
    }
    int exponent = atoi(strchr(digits, 'e') + 1);
    int n = (int)(strchr(digits, 'e') - digits); /* mantissa's characters */
    int significant = n - (digits[0] == '-') - (n > 2 && strchr(digits, '.') ? 1 : 0);
    if (exponent < -4 || exponent >= 16)
        snprintf(out, J_FLOAT_CHARS, "%.*se%c%02d", n, digits, exponent < 0 ? '-' : '+',
                 abs(exponent));
    else
        snprintf(out, J_FLOAT_CHARS, "%.*f",
                 significant - 1 - exponent > 1 ? significant - 1 - exponent : 1, f);
}

/* The text of a J_INT or J_FLOAT; false for others. */
static bool number_text(jval v, char out[J_FLOAT_CHARS]) {
    if (v.kind == J_INT)
        snprintf(out, J_FLOAT_CHARS, "%lld", (long long)v.u.i);
    else if (v.kind == J_FLOAT)
        jfloat_text(v.u.f, out);
    else
        return false;
    return true;
}

static bool enter_nested_text(jctx *c) {
    return jcharge(c, 1) && jenter_value(c);
}

static void put_repr_str(jsb *b, const jstr *s, bool trusted) {
    if (s->markup) jsb_text(b, "Markup(", trusted);
    char quote = memchr(s->p, '\'', s->n) && !memchr(s->p, '"', s->n) ? '"' : '\'';
    jsb_add(b, &quote, 1, trusted);
    for (size_t i = 0; i < s->n && !b->c->failed;) {
        size_t len, plain = i;
        uint32_t cp = utf8_decode_lossy(s->p + i, s->n - i, &len);
        char esc[12] = "";
        if (cp == '\\' || cp == (unsigned char)quote)
            snprintf(esc, sizeof esc, "\\%c", (char)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            snprintf(esc, sizeof esc, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (cp < 32 || (cp >= 0x7f && cp <= 0xa0) || cp == 0xad)
            snprintf(esc, sizeof esc, "\\x%02x", (unsigned)cp);
        else if ((cp >= 0x2000 && cp <= 0x200f) || (cp >= 0x2028 && cp <= 0x202f) ||
                 (cp >= 0x205f && cp <= 0x206f) || cp == 0x3000 || cp == 0xfeff || cp == 0x1680)
            snprintf(esc, sizeof esc, "\\u%04x", (unsigned)cp);
        i += len;
        if (*esc)
            jsb_text(b, esc, trusted);
        else
            jsb_add(b, s->p + plain, len, trusted);
    }
    jsb_add(b, &quote, 1, trusted);
    if (s->markup) jsb_text(b, ")", trusted);
}

static void put_items(jsb *b, const struct jlist *l, bool trusted) {
    for (size_t i = 0; i < l->n && !b->c->failed; i++) {
        if (i) jsb_text(b, ", ", trusted);
        jput_repr(b, l->v[i], trusted);
    }
}

static void put_dict(jsb *b, const struct jdict *d, bool trusted) {
    jsb_text(b, "{", trusted);
    for (size_t i = 0; i < d->n && !b->c->failed; i++) {
        if (i) jsb_text(b, ", ", trusted);
        jput_repr(b, d->e[i].key, trusted);
        jsb_text(b, ": ", trusted);
        jput_repr(b, d->e[i].value, trusted);
    }
    jsb_text(b, "}", trusted);
}

void jput_repr(jsb *b, jval v, bool trusted) {
    char number[J_FLOAT_CHARS];
    if (!enter_nested_text(b->c)) return;
    switch (v.kind) {
    case J_NONE:
        jsb_text(b, "None", trusted);
        break;
    case J_BOOL:
        jsb_text(b, v.u.b ? "True" : "False", trusted);
        break;
    case J_INT:
    case J_FLOAT:
        number_text(v, number);
        jsb_text(b, number, trusted);
        break;
    case J_BIG:
        jsb_add(b, v.u.s->p, v.u.s->n, trusted);
        break;
    case J_STR:
        put_repr_str(b, v.u.s, trusted);
        break;
    case J_LIST:
        jsb_text(b, "[", trusted);
        put_items(b, v.u.list, trusted);
        jsb_text(b, "]", trusted);
        break;
    case J_TUPLE:
        jsb_text(b, "(", trusted);
        put_items(b, v.u.list, trusted);
        jsb_text(b, v.u.list->n == 1 ? ",)" : ")", trusted);
        break;
    case J_DICT:
        put_dict(b, v.u.dict, trusted);
        break;
    case J_NAMESPACE:
        jsb_text(b, "<Namespace ", trusted);
        put_dict(b, v.u.dict, trusted);
        jsb_text(b, ">", trusted);
        break;
    case J_UNDEF:
        jsb_text(b, "Undefined", trusted);
        break;
    default:
        jsb_text(b, "<", trusted);
        jsb_text(b, jtype_name(v), trusted);
        jsb_text(b, ">", trusted);
    }
    b->c->value_depth--;
}

bool jall_trusted(jctx *c, jval v) {
    bool ok = true;
    switch (v.kind) {
    case J_STR:
        return jstr_trusted(v.u.s, 0, v.u.s->n);
    case J_LIST:
    case J_TUPLE:
        if (!enter_nested_text(c)) return false;
        for (size_t i = 0; i < v.u.list->n && ok; i++)
            ok = jall_trusted(c, v.u.list->v[i]);
        c->value_depth--;
        return ok;
    case J_DICT:
    case J_NAMESPACE:
        if (!enter_nested_text(c)) return false;
        for (size_t i = 0; i < v.u.dict->n && ok; i++)
            ok = jall_trusted(c, v.u.dict->e[i].key) && jall_trusted(c, v.u.dict->e[i].value);
        c->value_depth--;
        return ok;
    default:
        return !v.untrusted;
    }
}

void jput_str(jsb *b, jval v) {
    if (b->c->failed) return;
    if (v.kind == J_STR)
        jsb_str(b, v.u.s);
    else if (v.kind != J_UNDEF)
        jput_repr(b, v, jall_trusted(b->c, v));
    else if (v.u.undef && v.u.undef->unsafe)
        jfail_undef(b->c, v);
}

const jstr *jto_str(jctx *c, jval v) {
    if (c->failed) return NULL;
    if (v.kind == J_STR) return v.u.s;
    jsb b;
    jsb_init(&b, c);
    jput_str(&b, v);
    jval text = jsb_done(&b);
    return c->failed ? NULL : text.u.s;
}

/* ---- JSON */

struct json_out {
    jsb b;
    const struct jjson_style *style;
    bool trusted;
    size_t depth;
};

static void json_str(struct json_out *o, const jstr *s) {
    jsb *b = &o->b;
    size_t plain = 0, i = 0;
    jsb_text(b, "\"", o->trusted);
    while (i < s->n && !b->c->failed) {
        static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
        size_t len;
        uint32_t cp = utf8_decode_lossy(s->p + i, s->n - i, &len);
        const char *simple = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
        char esc[16] = "";
        if (simple)
            snprintf(esc, sizeof esc, "\\%c", to[simple - from]);
        else if (cp < 0x20 || (o->style->ensure_ascii && cp >= 0x7f && cp < 0x10000 && cp != 0x7f))
            snprintf(esc, sizeof esc, "\\u%04x", (unsigned)cp);
        else if (o->style->ensure_ascii && cp >= 0x10000)
            snprintf(esc, sizeof esc, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((cp - 0x10000) >> 10)),
                     (unsigned)(0xdc00 + ((cp - 0x10000) & 0x3ff)));
        if (*esc) {
            jsb_add(b, s->p + plain, i - plain, o->trusted);
            jsb_text(b, esc, o->trusted);
            plain = i + len;
        }
        i += len;
    }
    jsb_add(b, s->p + plain, s->n - plain, o->trusted);
    jsb_text(b, "\"", o->trusted);
}

static void json_break(struct json_out *o) {
    if (!o->style->indent) return;
    jsb_text(&o->b, "\n", o->trusted);
    for (size_t i = 0; i < o->depth && !o->b.c->failed; i++)
        jsb_add(&o->b, o->style->indent->p, o->style->indent->n, o->trusted);
}

static void json_value(struct json_out *o, jval v);

static void json_list(struct json_out *o, const struct jlist *l) {
    if (!l->n) {
        jsb_text(&o->b, "[]", o->trusted);
        return;
    }
    jsb_text(&o->b, "[", o->trusted);
    o->depth++;
    for (size_t i = 0; i < l->n && !o->b.c->failed; i++) {
        if (i) jsb_add(&o->b, o->style->item_sep->p, o->style->item_sep->n, o->trusted);
        json_break(o);
        json_value(o, l->v[i]);
    }
    o->depth--;
    json_break(o);
    jsb_text(&o->b, "]", o->trusted);
}

static void json_key(struct json_out *o, jval key) {
    switch (key.kind) {
    case J_STR:
        json_str(o, key.u.s);
        break;
    case J_BOOL:
    case J_INT:
    case J_FLOAT:
    case J_BIG:
    case J_NONE:
        jsb_text(&o->b, "\"", o->trusted);
        json_value(o, key);
        jsb_text(&o->b, "\"", o->trusted);
        break;
    default:
        jfail(o->b.c, "keys must be str, int, float, bool or None, not %s", jtype_name(key));
    }
}

/* Order of keys for sort_keys, by insertion sort: objects have few keys, and each step is charged.
 */
static const size_t *sorted_keys(jctx *c, const struct jdict *d) {
    size_t *order = jalloc(c, (d->n + 1) * sizeof *order);
    if (!order) return NULL;
    for (size_t i = 0; i < d->n && !c->failed; i++) {
        size_t at = i;
        for (; at > 0 && jorder(c, d->e[i].key, d->e[order[at - 1]].key) < 0; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return c->failed ? NULL : order;
}

static void json_dict(struct json_out *o, const struct jdict *d) {
    jctx *c = o->b.c;
    if (!d->n) {
        jsb_text(&o->b, "{}", o->trusted);
        return;
    }
    const size_t *order = o->style->sort_keys ? sorted_keys(c, d) : NULL;
    jsb_text(&o->b, "{", o->trusted);
    o->depth++;
    for (size_t i = 0; i < d->n && !c->failed; i++) {
        const struct jentry *e = &d->e[order ? order[i] : i];
        if (i) jsb_add(&o->b, o->style->item_sep->p, o->style->item_sep->n, o->trusted);
        json_break(o);
        json_key(o, e->key);
        jsb_add(&o->b, o->style->key_sep->p, o->style->key_sep->n, o->trusted);
        json_value(o, e->value);
    }
    o->depth--;
    json_break(o);
    jsb_text(&o->b, "}", o->trusted);
}

static void json_value(struct json_out *o, jval v) {
    jsb *b = &o->b;
    char number[J_FLOAT_CHARS];
    if (!enter_nested_text(b->c)) return;
    switch (v.kind) {
    case J_NONE:
        jsb_text(b, "null", o->trusted);
        break;
    case J_BOOL:
        jsb_text(b, v.u.b ? "true" : "false", o->trusted);
        break;
    case J_INT:
    case J_FLOAT:
        number_text(v, number);
        if (v.kind == J_FLOAT && isnan(v.u.f))
            jsb_text(b, "NaN", o->trusted);
        else if (v.kind == J_FLOAT && isinf(v.u.f))
            jsb_text(b, v.u.f < 0 ? "-Infinity" : "Infinity", o->trusted);
        else
            jsb_text(b, number, o->trusted);
        break;
    case J_BIG:
        jsb_add(b, v.u.s->p, v.u.s->n, o->trusted);
        break;
    case J_STR:
        json_str(o, v.u.s);
        break;
    case J_LIST:
    case J_TUPLE:
        json_list(o, v.u.list);
        break;
    case J_DICT:
    case J_NAMESPACE:
        if (v.kind == J_DICT) {
            json_dict(o, v.u.dict);
            break;
        }
        /* fallthrough */
    default:
        jfail(b->c, "Object of type %s is not JSON serializable", jtype_name(v));
    }
    b->c->value_depth--;
}

jval jto_json(jctx *c, jval v, const struct jjson_style *style) {
    const jstr *parts[] = {style->indent, style->item_sep, style->key_sep};
    struct json_out o = {.style = style, .trusted = jall_trusted(c, v)};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        o.trusted = o.trusted && (!parts[i] || jstr_trusted(parts[i], 0, parts[i]->n));
    jsb_init(&o.b, c);
    json_value(&o, v);
    return jsb_done(&o.b);
}
