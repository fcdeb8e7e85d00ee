/* jinja/strmeth.c - the methods of str. Text keeps its provenance; text that a method inserts has
 * the provenance of the argument, but is never trusted within untrusted text. */
#include "core/chat/jinja/builtin_int.h"

#include <string.h>

enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };

/* Does the character at p (len bytes) occur in chars, or is it white space when chars is NULL? */
static bool is_strippable(const char *p, size_t len, const jstr *chars) {
    size_t n;
    if (!chars) return uc_is_space(utf8_decode_lossy(p, len, &n));
    return memmem(chars->p, chars->n, p, len) != NULL;
}

static jval strip_sides(jctx *c, jval self, struct jargs *a, int sides) {
    jval v;
    if (!jbind(c, "strip()", "chars", 0, a, &v)) return jundef_plain();
    const jstr *s = self.u.s, *chars = NULL;
    if (v.kind != J_ABSENT && v.kind != J_NONE && !(chars = jarg_str(c, v))) return jundef_plain();
    size_t from = 0, to = s->n;
    jcharge(c, s->n / 16);
    while ((sides & STRIP_LEFT) && from < to && (!chars || jcharge(c, chars->n / 64))) {
        size_t len = utf8_len_lossy(s->p + from, to - from);
        if (!is_strippable(s->p + from, len, chars)) break;
        from += len;
    }
    while ((sides & STRIP_RIGHT) && to > from && (!chars || jcharge(c, chars->n / 64))) {
        size_t start = to - 1;
        while (start > from && to - start < 4 && utf8_continues(s->p[start]))
            start--;
        if (utf8_len_lossy(s->p + start, to - start) != to - start) start = to - 1;
        if (!is_strippable(s->p + start, to - start, chars)) break;
        to = start;
    }
    return jstr_slice(c, s, from, to);
}

static jval m_strip(jctx *c, jval self, struct jargs *a) {
    return strip_sides(c, self, a, STRIP_LEFT | STRIP_RIGHT);
}

static jval m_lstrip(jctx *c, jval self, struct jargs *a) {
    return strip_sides(c, self, a, STRIP_LEFT);
}

static jval m_rstrip(jctx *c, jval self, struct jargs *a) {
    return strip_sides(c, self, a, STRIP_RIGHT);
}

static void put_upper(jsb *b, uint32_t cp, const char *p, size_t len, bool trusted) {
    if (cp == 0xdf)
        jsb_text(b, "SS", trusted);
    else if (uc_upper(cp) == cp)
        jsb_add(b, p, len, trusted);
    else
        jsb_char(b, uc_upper(cp), trusted);
}

static void put_lower(jsb *b, uint32_t cp, const char *p, size_t len, bool trusted) {
    if (cp == 0x130)
        jsb_text(b, "i\xcc\x87", trusted);
    else if (uc_lower(cp) == cp)
        jsb_add(b, p, len, trusted);
    else
        jsb_char(b, uc_lower(cp), trusted);
}

enum case_rule { CASE_UPPER, CASE_LOWER, CASE_SWAP, CASE_CAPITAL, CASE_TITLE };

static jval change_case(jctx *c, jval self, struct jargs *a, enum case_rule rule) {
    jval none[1];
    if (!jbind(c, "a method of str", "", 0, a, none)) return jundef_plain();
    const jstr *s = self.u.s;
    jsb b;
    jsb_init(&b, c);
    b.markup = s->markup;
    jcharge(c, s->n / 8);
    bool in_word = false;
    for (size_t i = 0; i < s->n && !c->failed;) {
        size_t len;
        uint32_t cp = utf8_decode_lossy(s->p + i, s->n - i, &len);
        bool up = rule == CASE_UPPER || (rule == CASE_SWAP && uc_is_lower(cp)) ||
                  (rule == CASE_CAPITAL && i == 0) || (rule == CASE_TITLE && !in_word);
        in_word = uc_is_alpha(cp);
        bool trusted = jstr_trusted(s, i, i + len);
        if (up)
            put_upper(&b, cp, s->p + i, len, trusted);
        else
            put_lower(&b, cp, s->p + i, len, trusted);
        i += len;
    }
    return jsb_done(&b);
}

static jval m_upper(jctx *c, jval self, struct jargs *a) {
    return change_case(c, self, a, CASE_UPPER);
}

static jval m_lower(jctx *c, jval self, struct jargs *a) {
    return change_case(c, self, a, CASE_LOWER);
}

static jval m_swapcase(jctx *c, jval self, struct jargs *a) {
    return change_case(c, self, a, CASE_SWAP);
}

static jval m_capitalize(jctx *c, jval self, struct jargs *a) {
    return change_case(c, self, a, CASE_CAPITAL);
}

static jval m_title(jctx *c, jval self, struct jargs *a) {
    return change_case(c, self, a, CASE_TITLE);
}

/* Prefix or suffix test; the argument is a string or a tuple of them. */
static jval with_affix(jctx *c, jval self, struct jargs *a, bool end) {
    jval v[3];
    int64_t from, to;
    if (!jbind(c, end ? "endswith()" : "startswith()", "affix start end", 1, a, v))
        return jundef_plain();
    jval s = self;
    if (v[1].kind != J_ABSENT) {
        if (!jarg_int(c, v[1], 0, &from) || !jarg_int(c, v[2], INT64_MAX, &to))
            return jundef_plain();
        s = jslice(c, self, jint(from), jint(to), jnone());
    }
    jval one = v[0], *items = &one;
    size_t n = 1;
    if (one.kind == J_TUPLE && !jiterate(c, one, &items, &n)) return jundef_plain();
    for (size_t i = 0; i < n && !c->failed; i++) {
        const jstr *t = jarg_str(c, items[i]);
        if (!t || c->failed) break;
        if (t->n <= s.u.s->n && memcmp(s.u.s->p + (end ? s.u.s->n - t->n : 0), t->p, t->n) == 0)
            return jbool(true);
    }
    return jbool(false);
}

static jval m_startswith(jctx *c, jval self, struct jargs *a) {
    return with_affix(c, self, a, false);
}

static jval m_endswith(jctx *c, jval self, struct jargs *a) {
    return with_affix(c, self, a, true);
}

static jval without_affix(jctx *c, jval self, struct jargs *a, bool end) {
    jval v;
    if (!jbind(c, "removeprefix() or removesuffix()", "affix", 1, a, &v)) return jundef_plain();
    const jstr *s = self.u.s, *t = jarg_str(c, v);
    if (!t || t->n > s->n) return self;
    if (memcmp(s->p + (end ? s->n - t->n : 0), t->p, t->n) != 0) return self;
    return end ? jstr_slice(c, s, 0, s->n - t->n) : jstr_slice(c, s, t->n, s->n);
}

static jval m_removeprefix(jctx *c, jval self, struct jargs *a) {
    return without_affix(c, self, a, false);
}

static jval m_removesuffix(jctx *c, jval self, struct jargs *a) {
    return without_affix(c, self, a, true);
}

/* Splits at white space. */
static void split_words(jctx *c, const jstr *s, int64_t max, bool from_right, struct jlist *out) {
    if (from_right && max >= 0) { /* the words from the right, then the rest */
        size_t to = s->n;
        jval none = jnone();
        struct jargs no_args = {&none, 0, NULL, NULL, 0};
        for (;;) {
            jval head = m_rstrip(c, jstr_slice(c, s, 0, to), &no_args);
            if (c->failed || !head.u.s->n) return;
            to = head.u.s->n;
            size_t from = to;
            while (max && from > 0) {
                size_t start = from - 1;
                while (start > 0 && from - start < 4 && utf8_continues(s->p[start]))
                    start--;
                if (is_strippable(s->p + start, from - start, NULL)) break;
                from = start;
            }
            if (!max--) from = 0;
            jlist_push(c, out, jstr_slice(c, s, from, to));
            to = from;
        }
    }
    for (size_t at = 0; at < s->n && !c->failed;) {
        size_t len = utf8_len_lossy(s->p + at, s->n - at);
        if (is_strippable(s->p + at, len, NULL)) {
            at += len;
            continue;
        }
        size_t end = at;
        while (end < s->n &&
               !is_strippable(s->p + end, len = utf8_len_lossy(s->p + end, s->n - end), NULL))
            end += len;
        if (max == 0) {
            jlist_push(c, out, jstr_slice(c, s, at, s->n));
            return;
        }
        max--;
        jlist_push(c, out, jstr_slice(c, s, at, end));
        at = end;
    }
}

static void reverse_list(struct jlist *l) {
    for (size_t i = 0; i + 1 < l->n - i; i++) {
        jval v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
}

/* Last occurrence of t in s[0..n). */
static const char *find_last(const char *s, size_t n, const jstr *t) {
    if (t->n > n) return NULL;
    for (size_t at = n - t->n + 1; at-- > 0;)
        if (memcmp(s + at, t->p, t->n) == 0) return s + at;
    return NULL;
}

static jval split_string(jctx *c, jval self, struct jargs *a, bool from_right) {
    jval v[2];
    int64_t max;
    if (!jbind(c, "split()", "sep maxsplit", 0, a, v) || !jarg_int(c, v[1], -1, &max))
        return jundef_plain();
    jval out = jlist_make(c, J_LIST, 0);
    const jstr *s = self.u.s, *sep = NULL;
    if (!jcharge(c, s->n / 16)) return jundef_plain();
    if (v[0].kind == J_ABSENT || v[0].kind == J_NONE) {
        split_words(c, s, max, from_right, out.u.list);
        if (from_right && max >= 0 && !c->failed) reverse_list(out.u.list);
        return out;
    }
    if (!(sep = jarg_str(c, v[0]))) return jundef_plain();
    if (!sep->n) return jfail_as(c, JINJA_FAULT_VALUE, "empty separator");
    if (from_right) {
        size_t to = s->n;
        const char *hit;
        jcharge(c, sep->n * s->n / 64);
        while (max-- != 0 && !c->failed && (hit = find_last(s->p, to, sep))) {
            size_t at = (size_t)(hit - s->p);
            jlist_push(c, out.u.list, jstr_slice(c, s, at + sep->n, to));
            to = at;
        }
        jlist_push(c, out.u.list, jstr_slice(c, s, 0, to));
        if (!c->failed) reverse_list(out.u.list);
        return out;
    }
    size_t from = 0;
    const char *hit;
    while (max-- != 0 && !c->failed && (hit = memmem(s->p + from, s->n - from, sep->p, sep->n))) {
        size_t at = (size_t)(hit - s->p);
        jlist_push(c, out.u.list, jstr_slice(c, s, from, at));
        from = at + sep->n;
    }
    jlist_push(c, out.u.list, jstr_slice(c, s, from, s->n));
    return out;
}

static jval m_split(jctx *c, jval self, struct jargs *a) {
    return split_string(c, self, a, false);
}

static jval m_rsplit(jctx *c, jval self, struct jargs *a) {
    return split_string(c, self, a, true);
}

static bool is_line_end(uint32_t cp) {
    return (cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

static jval m_splitlines(jctx *c, jval self, struct jargs *a) {
    jval v;
    if (!jbind(c, "splitlines()", "keepends", 0, a, &v)) return jundef_plain();
    bool keep = v.kind != J_ABSENT && jtruth(v);
    const jstr *s = self.u.s;
    jval out = jlist_make(c, J_LIST, 0);
    size_t from = 0;
    jcharge(c, s->n / 64);
    for (size_t i = 0; i < s->n && !c->failed;) {
        size_t len, end = i;
        uint32_t cp = utf8_decode_lossy(s->p + i, s->n - i, &len);
        i += len;
        if (!is_line_end(cp)) continue;
        if (cp == '\r' && i < s->n && s->p[i] == '\n') i++;
        jlist_push(c, out.u.list, jstr_slice(c, s, from, keep ? i : end));
        from = i;
    }
    if (from < s->n) jlist_push(c, out.u.list, jstr_slice(c, s, from, s->n));
    return out;
}

static jval partition_at(jctx *c, jval self, struct jargs *a, bool last) {
    jval v;
    if (!jbind(c, "partition()", "sep", 1, a, &v)) return jundef_plain();
    const jstr *s = self.u.s, *sep = jarg_str(c, v);
    if (!sep) return jundef_plain();
    if (!sep->n) return jfail_as(c, JINJA_FAULT_VALUE, "empty separator");
    jcharge(c, last ? sep->n * s->n / 64 : s->n / 64);
    const char *hit = c->failed ? NULL
                      : last    ? find_last(s->p, s->n, sep)
                                : memmem(s->p, s->n, sep->p, sep->n);
    size_t at = hit ? (size_t)(hit - s->p) : last ? 0 : s->n, behind = hit ? at + sep->n : at;
    jval out = jlist_make(c, J_TUPLE, 3);
    jlist_push(c, out.u.list, jstr_slice(c, s, 0, at));
    jlist_push(c, out.u.list, jstr_slice(c, s, at, behind));
    jlist_push(c, out.u.list, jstr_slice(c, s, behind, s->n));
    return out;
}

static jval m_partition(jctx *c, jval self, struct jargs *a) {
    return partition_at(c, self, a, false);
}

static jval m_rpartition(jctx *c, jval self, struct jargs *a) {
    return partition_at(c, self, a, true);
}

static jval m_replace(jctx *c, jval self, struct jargs *a) {
    jval v[3];
    int64_t max;
    if (!jbind(c, "replace()", "old new count", 2, a, v)) return jundef_plain();
    if (v[2].kind == J_NONE) v[2].kind = J_ABSENT;
    const jstr *s = self.u.s, *from = jarg_str(c, v[0]), *to = from ? jarg_str(c, v[1]) : NULL;
    if (!to || !jarg_int(c, v[2], -1, &max)) return jundef_plain();
    jsb b;
    if (s->markup && !to->markup) {
        jsb_init(&b, c);
        jsb_escaped(&b, to);
        jval escaped = jsb_done(&b);
        if (c->failed) return escaped;
        to = escaped.u.s;
    }
    jsb_init(&b, c);
    b.markup = s->markup;
    jcharge(c, s->n / 64);
    size_t at = 0;
    while (max-- != 0 && !c->failed && at <= s->n) {
        const char *hit = from->n ? memmem(s->p + at, s->n - at, from->p, from->n) : s->p + at;
        if (!hit || !jcharge(c, 1)) break;
        size_t start = (size_t)(hit - s->p), end = start + from->n;
        jsb_slice(&b, s, at, start);
        /* New text in place of untrusted text is untrusted: input decided its position. */
        if (jstr_trusted(s, start, end) && (from->n || jstr_trusted(s, 0, s->n)))
            jsb_str(&b, to);
        else
            jsb_add(&b, to->p, to->n, false);
        at = end;
        if (from->n) continue;
        if (at == s->n) break;
        size_t len = utf8_len_lossy(s->p + at, s->n - at);
        jsb_slice(&b, s, at, at + len);
        at += len;
    }
    if (at == 0 && from->n) return self; /* nothing found */
    jsb_slice(&b, s, at, s->n);
    return jsb_done(&b);
}

static jval m_join(jctx *c, jval self, struct jargs *a) {
    jval v, *items;
    size_t n;
    if (!jbind(c, "join()", "iterable", 1, a, &v) || !jiterate(c, v, &items, &n))
        return jundef_plain();
    jsb b;
    jsb_init(&b, c);
    b.markup = self.u.s->markup;
    for (size_t i = 0; i < n && jcharge(c, 1); i++) {
        if (items[i].kind != J_STR)
            return jfail(c, "sequence item %zu: expected str instance, %s found", i,
                         jtype_name(items[i]));
        if (i) jsb_str(&b, self.u.s);
        (b.markup ? jsb_escaped : jsb_str)(&b, items[i].u.s);
    }
    return jsb_done(&b);
}

/* find, rfind, index, rindex, count: the part of self that start and end select. */
static bool search_args(jctx *c, jval self, struct jargs *a, const jstr **s, const jstr **t,
                        int64_t *start) {
    jval v[3];
    int64_t end;
    if (!jbind(c, "find()", "sub start end", 1, a, v)) return false;
    *t = jarg_str(c, v[0]);
    if (!*t || !jarg_int(c, v[1], 0, start) || !jarg_int(c, v[2], INT64_MAX, &end)) return false;
    int64_t n = (int64_t)self.u.s->n_chars;
    if (*start < 0) *start = *start < -n ? 0 : *start + n;
    jval part = jslice(c, self, jint(*start), jint(end), jnone());
    if (c->failed) return false;
    *s = part.u.s;
    return jcharge(c, (*s)->n / 64);
}

static jval find_substring(jctx *c, jval self, struct jargs *a, bool last, bool must) {
    const jstr *s, *t;
    int64_t start;
    if (!search_args(c, self, a, &s, &t, &start)) return jundef_plain();
    if (last) jcharge(c, s->n * t->n / 64);
    const char *hit = c->failed ? NULL
                      : last    ? find_last(s->p, s->n, t)
                      : t->n    ? memmem(s->p, s->n, t->p, t->n)
                                : s->p;
    if (start > (int64_t)self.u.s->n_chars) hit = NULL;
    if (!hit) return must ? jfail_as(c, JINJA_FAULT_VALUE, "substring not found") : jint(-1);
    return jint(start + (int64_t)utf8_count_lossy(s->p, (size_t)(hit - s->p)));
}

static jval m_find(jctx *c, jval self, struct jargs *a) {
    return find_substring(c, self, a, false, false);
}

static jval m_rfind(jctx *c, jval self, struct jargs *a) {
    return find_substring(c, self, a, true, false);
}

static jval m_index(jctx *c, jval self, struct jargs *a) {
    return find_substring(c, self, a, false, true);
}

static jval m_rindex(jctx *c, jval self, struct jargs *a) {
    return find_substring(c, self, a, true, true);
}

static jval m_count(jctx *c, jval self, struct jargs *a) {
    const jstr *s, *t;
    int64_t start, n = 0;
    if (!search_args(c, self, a, &s, &t, &start)) return jundef_plain();
    if (!t->n) return jint((int64_t)s->n_chars + 1);
    for (const char *p = s->p; (p = memmem(p, s->n - (size_t)(p - s->p), t->p, t->n)); p += t->n)
        n++;
    return jint(n);
}

/* where: -1: fill on the right, 1: on the left, 0: on both sides. */
static jval pad_string(jctx *c, jval self, struct jargs *a, int where) {
    jval v[2];
    int64_t width;
    if (!jbind(c, "padding", "width fillchar", 1, a, v) || !jarg_int(c, v[0], 0, &width))
        return jundef_plain();
    jval fill = v[1].kind == J_ABSENT ? jtext(c, " ") : v[1];
    if (c->failed || !jarg_str(c, fill)) return jundef_plain();
    if (fill.u.s->n_chars != 1) return jfail(c, "the fill character must be one character");
    int64_t total = width - (int64_t)self.u.s->n_chars;
    if (total <= 0) return self;
    int64_t left = where < 0 ? 0 : where > 0 ? total : total / 2 + (total & width & 1);
    jsb b;
    jsb_init(&b, c);
    for (int64_t i = 0; i < left && jcharge(c, 1); i++)
        jsb_str(&b, fill.u.s);
    jsb_str(&b, self.u.s);
    for (int64_t i = left; i < total && jcharge(c, 1); i++)
        jsb_str(&b, fill.u.s);
    return jsb_done(&b);
}

static jval m_center(jctx *c, jval self, struct jargs *a) {
    return pad_string(c, self, a, 0);
}

static jval m_ljust(jctx *c, jval self, struct jargs *a) {
    return pad_string(c, self, a, -1);
}

static jval m_rjust(jctx *c, jval self, struct jargs *a) {
    return pad_string(c, self, a, 1);
}

static jval m_zfill(jctx *c, jval self, struct jargs *a) {
    jval v;
    int64_t width;
    if (!jbind(c, "zfill()", "width", 1, a, &v) || !jarg_int(c, v, 0, &width))
        return jundef_plain();
    const jstr *s = self.u.s;
    size_t sign = s->n && (s->p[0] == '-' || s->p[0] == '+');
    jsb b;
    jsb_init(&b, c);
    jsb_slice(&b, s, 0, sign);
    for (int64_t i = (int64_t)s->n_chars; i < width && jcharge(c, 1); i++)
        jsb_text(&b, "0", true);
    jsb_slice(&b, s, sign, s->n);
    return jsb_done(&b);
}

typedef bool (*char_test)(uint32_t cp);

static bool is_ascii_digit(uint32_t cp) {
    return cp >= '0' && cp <= '9';
}

static bool is_alnum(uint32_t cp) {
    return is_ascii_digit(cp) || uc_is_alpha(cp);
}

static bool is_ascii(uint32_t cp) {
    return cp < 0x80;
}

static jval all_chars(jctx *c, jval self, struct jargs *a, char_test test) {
    jval none[1];
    if (!jbind(c, "a method of str", "", 0, a, none)) return jundef_plain();
    const jstr *s = self.u.s;
    jcharge(c, s->n / 8);
    for (size_t i = 0, len; i < s->n; i += len)
        if (!test(utf8_decode_lossy(s->p + i, s->n - i, &len))) return jbool(false);
    return jbool(s->n > 0 || test == is_ascii);
}

static jval m_isdigit(jctx *c, jval self, struct jargs *a) {
    return all_chars(c, self, a, is_ascii_digit);
}

static jval m_isalpha(jctx *c, jval self, struct jargs *a) {
    return all_chars(c, self, a, uc_is_alpha);
}

static jval m_isalnum(jctx *c, jval self, struct jargs *a) {
    return all_chars(c, self, a, is_alnum);
}

static jval m_isspace(jctx *c, jval self, struct jargs *a) {
    return all_chars(c, self, a, uc_is_space);
}

static jval m_isascii(jctx *c, jval self, struct jargs *a) {
    return all_chars(c, self, a, is_ascii);
}

/* There are cased characters, and all have the wanted case. */
static jval all_of_case(jctx *c, jval self, struct jargs *a, char_test want, char_test bad) {
    jval none[1];
    bool any = false;
    if (!jbind(c, "a method of str", "", 0, a, none)) return jundef_plain();
    const jstr *s = self.u.s;
    jcharge(c, s->n / 8);
    for (size_t i = 0, len; i < s->n; i += len) {
        uint32_t cp = utf8_decode_lossy(s->p + i, s->n - i, &len);
        if (bad(cp)) return jbool(false);
        any = any || want(cp);
    }
    return jbool(any);
}

static jval m_isupper(jctx *c, jval self, struct jargs *a) {
    return all_of_case(c, self, a, uc_is_upper, uc_is_lower);
}

static jval m_islower(jctx *c, jval self, struct jargs *a) {
    return all_of_case(c, self, a, uc_is_lower, uc_is_upper);
}

const struct jbuiltin jstr_methods[] = {{"strip", m_strip, false},
                                        {"lstrip", m_lstrip, false},
                                        {"rstrip", m_rstrip, false},
                                        {"split", m_split, false},
                                        {"rsplit", m_rsplit, false},
                                        {"splitlines", m_splitlines, false},
                                        {"startswith", m_startswith, false},
                                        {"endswith", m_endswith, false},
                                        {"upper", m_upper, false},
                                        {"lower", m_lower, false},
                                        {"casefold", m_lower, false},
                                        {"title", m_title, false},
                                        {"capitalize", m_capitalize, false},
                                        {"swapcase", m_swapcase, false},
                                        {"replace", m_replace, false},
                                        {"join", m_join, false},
                                        {"format", jstr_format, false},
                                        {"find", m_find, false},
                                        {"rfind", m_rfind, false},
                                        {"index", m_index, false},
                                        {"rindex", m_rindex, false},
                                        {"count", m_count, false},
                                        {"partition", m_partition, false},
                                        {"rpartition", m_rpartition, false},
                                        {"removeprefix", m_removeprefix, false},
                                        {"removesuffix", m_removesuffix, false},
                                        {"center", m_center, false},
                                        {"ljust", m_ljust, false},
                                        {"rjust", m_rjust, false},
                                        {"zfill", m_zfill, false},
                                        {"isdigit", m_isdigit, false},
                                        {"isdecimal", m_isdigit, false},
                                        {"isnumeric", m_isdigit, false},
                                        {"isalpha", m_isalpha, false},
                                        {"isalnum", m_isalnum, false},
                                        {"isspace", m_isspace, false},
                                        {"isascii", m_isascii, false},
                                        {"isupper", m_isupper, false},
                                        {"islower", m_islower, false},
                                        {NULL, NULL, false}};
