/* jinja/str.c - strings with provenance: making, cutting, building; characters.
 *
 * Owns nothing: bytes are borrowed, or lie in the render's arena. Case mapping covers ASCII, Latin,
 * Greek, Cyrillic and Armenian letters that map one to one, and sharp s. */
#include "core/chat/jinja/str_int.h"

#include <string.h>

bool uc_is_space(uint32_t cp) {
    return cp == ' ' || (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x1f) || cp == 0x85 ||
           cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 ||
           cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

uint32_t uc_upper(uint32_t cp) {
    if (cp < 0x80) return cp >= 'a' && cp <= 'z' ? cp - 32 : cp;
    if (cp == 0xb5) return 0x39c;
    if (cp >= 0xe0 && cp <= 0xfe && cp != 0xf7) return cp - 32;
    if (cp == 0xff) return 0x178;
    if (cp == 0x131) return 'I';
    if (cp == 0x17f) return 'S';
    if ((cp >= 0x100 && cp <= 0x137 && cp != 0x130) || (cp >= 0x14a && cp <= 0x177))
        return cp & ~1u;
    if ((cp >= 0x139 && cp <= 0x148) || (cp >= 0x179 && cp <= 0x17e)) return cp & 1 ? cp : cp - 1;
    if (cp == 0x3ac) return 0x386;
    if (cp >= 0x3ad && cp <= 0x3af) return cp - 37;
    if (cp == 0x3c2) return 0x3a3;
    if (cp >= 0x3b1 && cp <= 0x3cb) return cp - 32;
    if (cp == 0x3cc) return 0x38c;
    if (cp == 0x3cd || cp == 0x3ce) return cp - 63;
    if (cp >= 0x430 && cp <= 0x44f) return cp - 32;
    if (cp >= 0x450 && cp <= 0x45f) return cp - 80;
    if ((cp >= 0x460 && cp <= 0x481) || (cp >= 0x48a && cp <= 0x4bf) ||
        (cp >= 0x4d0 && cp <= 0x52f) || (cp >= 0x1e00 && cp <= 0x1e95) ||
        (cp >= 0x1ea0 && cp <= 0x1eff))
        return cp & ~1u;
    if (cp >= 0x561 && cp <= 0x586) return cp - 48;
    return cp;
}

uint32_t uc_lower(uint32_t cp) {
    if (cp < 0x80) return cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
    if (cp >= 0xc0 && cp <= 0xde && cp != 0xd7) return cp + 32;
    if (cp == 0x178) return 0xff;
    if ((cp >= 0x100 && cp <= 0x137 && cp != 0x130) || (cp >= 0x14a && cp <= 0x177)) return cp | 1u;
    if ((cp >= 0x139 && cp <= 0x148) || (cp >= 0x179 && cp <= 0x17e)) return cp & 1 ? cp + 1 : cp;
    if (cp == 0x386) return 0x3ac;
    if (cp >= 0x388 && cp <= 0x38a) return cp + 37;
    if (cp == 0x38c) return 0x3cc;
    if (cp == 0x38e || cp == 0x38f) return cp + 63;
    if (cp >= 0x391 && cp <= 0x3ab && cp != 0x3a2) return cp + 32;
    if (cp >= 0x410 && cp <= 0x42f) return cp + 32;
    if (cp >= 0x400 && cp <= 0x40f) return cp + 80;
    if ((cp >= 0x460 && cp <= 0x481) || (cp >= 0x48a && cp <= 0x4bf) ||
        (cp >= 0x4d0 && cp <= 0x52f) || (cp >= 0x1e00 && cp <= 0x1e95) ||
        (cp >= 0x1ea0 && cp <= 0x1eff))
        return cp | 1u;
    if (cp == 0x1e9e) return 0xdf;
    if (cp >= 0x531 && cp <= 0x556) return cp + 48;
    return cp;
}

bool uc_is_upper(uint32_t cp) {
    return uc_lower(cp) != cp;
}

bool uc_is_lower(uint32_t cp) {
    return uc_upper(cp) != cp || cp == 0xdf;
}

/* Letters: those with case, and the blocks of scripts without it. */
bool uc_is_alpha(uint32_t cp) {
    if (uc_is_upper(cp) || uc_is_lower(cp)) return true;
    return cp == 0xaa || cp == 0xba || (cp >= 0x180 && cp <= 0x2af) ||
           (cp >= 0x5d0 && cp <= 0x5ea) || (cp >= 0x620 && cp <= 0x64a) ||
           (cp >= 0x904 && cp <= 0x939) || (cp >= 0xe01 && cp <= 0xe30) ||
           (cp >= 0x10d0 && cp <= 0x10fa) || (cp >= 0x3041 && cp <= 0x3096) ||
           (cp >= 0x30a1 && cp <= 0x30fa) || (cp >= 0x3400 && cp <= 0x4dbf) ||
           (cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0xac00 && cp <= 0xd7a3) ||
           (cp >= 0x20000 && cp <= 0x2fa1f);
}

const jstr *jstr_new(jctx *c, const char *p, size_t n, bool trusted) {
    jstr *s = jalloc(c, sizeof *s);
    if (!s) return NULL;
    s->p = p;
    s->n = n;
    s->n_chars = utf8_count_lossy(p, n);
    s->trusted = trusted;
    return s;
}

jval jstr_make(jctx *c, const char *p, size_t n, bool trusted) {
    const jstr *s = jstr_new(c, p, n, trusted);
    return s ? jstr_val(s) : jundef_plain();
}

jval jstr_make_runs(jctx *c, const char *p, const struct jrun *runs, size_t n_runs) {
    jsb b;
    jsb_init(&b, c);
    for (size_t i = 0, at = 0; i < n_runs; at = runs[i++].end)
        jsb_add(&b, p + at, runs[i].end - at, runs[i].trusted);
    return jsb_done(&b);
}

jval jbig_make(jctx *c, const char *digits) {
    jval v = jstr_make(c, digits, strlen(digits), false);
    if (v.kind == J_STR) v = (jval){.kind = J_BIG, .untrusted = true, .u.s = v.u.s};
    return v;
}

jval jtext(jctx *c, const char *literal) {
    return jstr_make(c, literal, strlen(literal), true);
}

/* Index of the run that holds byte at. */
static size_t run_at(const jstr *s, size_t at) {
    size_t low = 0, high = s->n_runs - 1;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (s->runs[mid].end > at)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

jval jstr_slice(jctx *c, const jstr *s, size_t from, size_t to) {
    if (to > s->n) to = s->n;
    if (from > to) from = to;
    if (from == 0 && to == s->n) return jstr_val(s);
    jcharge(c, (to - from) / 64);
    jstr *out = jalloc(c, sizeof *out);
    if (!out) return jundef_plain();
    out->p = s->p + from;
    out->n = to - from;
    out->n_chars = s->n_chars == s->n ? out->n : utf8_count_lossy(out->p, out->n);
    out->trusted = s->trusted;
    out->markup = s->markup;
    if (!s->runs) return jstr_val(out);
    if (from == to) {
        out->trusted = true;
        return jstr_val(out);
    }
    size_t first = run_at(s, from), last = run_at(s, to - 1), n = last - first + 1;
    out->trusted = s->runs[first].trusted;
    if (n == 1) return jstr_val(out);
    struct jrun *runs = jalloc(c, n * sizeof *runs);
    if (!runs) return jundef_plain();
    for (size_t i = 0; i < n; i++) {
        runs[i].end = (i + 1 == n ? to : s->runs[first + i].end) - from;
        runs[i].trusted = s->runs[first + i].trusted;
    }
    out->runs = runs;
    out->n_runs = n;
    return jstr_val(out);
}

jval jstr_mark(jctx *c, const jstr *s, bool markup) {
    if (s->markup == markup) return jstr_val(s);
    jstr *out = jalloc(c, sizeof *out);
    if (!out) return jundef_plain();
    *out = *s;
    out->markup = markup;
    return jstr_val(out);
}

bool jstr_trusted(const jstr *s, size_t from, size_t to) {
    if (!s->runs) return s->trusted;
    for (size_t at = from; at < to;) {
        const struct jrun *r = &s->runs[run_at(s, at)];
        if (!r->trusted) return false;
        at = r->end;
    }
    return true;
}

bool jstr_is(const jstr *s, const char *text) {
    size_t n = strlen(text);
    return s->n == n && memcmp(s->p, text, n) == 0;
}

bool jstr_eq(const jstr *a, const jstr *b) {
    return a->n == b->n && (a->p == b->p || memcmp(a->p, b->p, a->n) == 0);
}

size_t jstr_offset(const jstr *s, size_t chars) {
    if (s->n_chars == s->n) return chars < s->n ? chars : s->n;
    size_t at = 0;
    while (chars-- > 0 && at < s->n)
        at += utf8_len_lossy(s->p + at, s->n - at);
    return at;
}

void jsb_init(jsb *b, jctx *c) {
    memset(b, 0, sizeof *b);
    b->c = c;
    b->max = SIZE_MAX / 4;
}

static bool grow_bytes(jsb *b, size_t n) {
    if (n > b->max || b->n > b->max - n) {
        jfail_limit(b->c, ERR_TOO_LONG, "the rendered prompt is longer than %zu bytes", b->max);
        return false;
    }
    if (n <= b->cap - b->n) return true;
    size_t cap = b->cap ? b->cap * 2 : n < 48 ? 64 : n;
    while (cap < b->n + n)
        cap *= 2;
    char *p = jalloc(b->c, cap);
    if (!p) return false;
    if (b->n) memcpy(p, b->p, b->n);
    b->p = p;
    b->cap = cap;
    return true;
}

void jsb_add(jsb *b, const char *p, size_t n, bool trusted) {
    if (n == 0 || b->c->failed || !grow_bytes(b, n) || !jcharge(b->c, n / 64)) return;
    if (b->n_runs == 0 || b->runs[b->n_runs - 1].trusted != trusted) {
        if (b->n_runs == b->cap_runs) {
            size_t cap = b->cap_runs ? b->cap_runs * 2 : 2;
            struct jrun *runs = jalloc(b->c, cap * sizeof *runs);
            if (!runs) return;
            if (b->n_runs) memcpy(runs, b->runs, b->n_runs * sizeof *runs);
            b->runs = runs;
            b->cap_runs = cap;
        }
        b->runs[b->n_runs++].trusted = trusted;
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
    b->runs[b->n_runs - 1].end = b->n;
}

void jsb_text(jsb *b, const char *literal, bool trusted) {
    jsb_add(b, literal, strlen(literal), trusted);
}

void jsb_slice(jsb *b, const jstr *s, size_t from, size_t to) {
    if (!s->runs) {
        jsb_add(b, s->p + from, to - from, s->trusted);
        return;
    }
    for (size_t at = from; at < to && !b->c->failed;) {
        const struct jrun *r = &s->runs[run_at(s, at)];
        size_t end = r->end < to ? r->end : to;
        jsb_add(b, s->p + at, end - at, r->trusted);
        at = end;
    }
}

void jsb_str(jsb *b, const jstr *s) {
    jsb_slice(b, s, 0, s->n);
}

void jsb_char(jsb *b, uint32_t cp, bool trusted) {
    char bytes[4];
    jsb_add(b, bytes, utf8_encode(cp, bytes), trusted);
}

void jsb_escaped(jsb *b, const jstr *s) {
    static const char from[] = "&<>\"'";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    size_t plain = 0;
    for (size_t i = 0; i < s->n && !s->markup && !b->c->failed; i++) {
        const char *hit = s->p[i] ? strchr(from, s->p[i]) : NULL;
        if (!hit) continue;
        jsb_slice(b, s, plain, i);
        jsb_text(b, to[hit - from], jstr_trusted(s, i, i + 1));
        plain = i + 1;
    }
    jsb_slice(b, s, plain, s->n);
}

jval jsb_done(jsb *b) {
    if (b->c->failed) return jundef_plain();
    jstr *s = jalloc(b->c, sizeof *s);
    if (!s) return jundef_plain();
    s->p = b->p ? b->p : "";
    s->n = b->n;
    s->n_chars = utf8_count_lossy(s->p, s->n);
    s->trusted = b->n_runs == 0 || b->runs[0].trusted;
    s->markup = b->markup;
    if (b->n_runs > 1) {
        s->runs = b->runs;
        s->n_runs = b->n_runs;
    }
    return jstr_val(s);
}
