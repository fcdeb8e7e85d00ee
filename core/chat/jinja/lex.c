/* jinja/lex.c - splits a template into tokens; applies whitespace control.
 *
 * Rules as in Jinja2 with trim_blocks and lstrip_blocks: a block tag or comment swallows the
 * newline right after it and the blanks between the start of its line and itself; '-' inside a
 * delimiter swallows all white space on that side, '+' disables this. */
#include "core/chat/jinja/lex_int.h"
#include "core/chat/jinja/str_int.h"

#include <stdlib.h>
#include <string.h>

struct lexer {
    arena *mem;
    const char *p; /* (n) bytes, newlines normalised */
    size_t n, at;
    int line;
    struct jtok *tok;
    size_t n_tok, cap;
    char *closers; /* open brackets of the current tag, as a stack */
    size_t n_closers, cap_closers;
    err *e;
    bool failed;
};

static void fail_lex(struct lexer *x, const char *what) {
    if (x->failed) return;
    x->failed = true;
    err_set(x->e, ERR_FORMAT, "chat template, line %d: %s", x->line, what);
}

static void fail_too_large(struct lexer *x) {
    if (x->failed) return;
    x->failed = true;
    err_set(x->e, ERR_NOMEM, "the chat template is too large");
}

static struct jtok *add_token(struct lexer *x, enum jtok_kind kind, const char *p, size_t n) {
    if (x->n_tok == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 128;
        struct jtok *tok = mem_resize(x->tok, cap, sizeof *tok);
        if (!tok) {
            fail_too_large(x);
            return &x->tok[0];
        }
        x->tok = tok;
        x->cap = cap;
    }
    struct jtok *t = &x->tok[x->n_tok++];
    *t = (struct jtok){.kind = (uint8_t)kind, .line = x->line, .p = p, .n = n};
    return t;
}

/* Moves to offset `to`, counting lines. */
static void advance_to(struct lexer *x, size_t to) {
    for (; x->at < to; x->at++)
        if (x->p[x->at] == '\n') x->line++;
}

static bool is_blank(char ch) {
    return ch == ' ' || (ch >= 9 && ch <= 13) || (ch >= 0x1c && ch <= 0x1f);
}

static size_t skip_space(const struct lexer *x, size_t at) {
    while (at < x->n) {
        size_t len;
        if (!uc_is_space(utf8_decode_lossy(x->p + at, x->n - at, &len))) break;
        at += len;
    }
    return at;
}

static size_t strip_right(const struct lexer *x, size_t from, size_t to) {
    while (to > from) {
        size_t start = to - 1, len;
        while (start > from && to - start < 4 && utf8_continues(x->p[start]))
            start--;
        if (!uc_is_space(utf8_decode_lossy(x->p + start, to - start, &len)) || start + len != to)
            break;
        to = start;
    }
    return to;
}

static bool starts_with(const struct lexer *x, size_t at, const char *text) {
    size_t n = strlen(text);
    return at <= x->n && x->n - at >= n && memcmp(x->p + at, text, n) == 0;
}

/* Start of the next tag at or after `at`, x->n if none. */
static size_t find_tag(const struct lexer *x, size_t at) {
    for (; at + 1 < x->n; at++)
        if (x->p[at] == '{' && (x->p[at + 1] == '%' || x->p[at + 1] == '{' || x->p[at + 1] == '#'))
            return at;
    return x->n;
}

/* Where the text before a tag ends, after stripping. line_start: the text begins a line. */
static size_t text_end(const struct lexer *x, size_t from, size_t tag, bool line_start) {
    char sign = tag + 2 < x->n ? x->p[tag + 2] : 0;
    if (sign == '-') return strip_right(x, from, tag);
    if (sign == '+' || x->p[tag + 1] == '{') return tag;
    size_t line = tag;
    while (line > from && x->p[line - 1] != '\n')
        line--;
    if (line == from && !line_start) return tag;
    return strip_right(x, line, tag) == line ? line : tag;
}

/* Length of a closing delimiter at `at` with the white space it swallows, 0 if there is none. */
static size_t closer_len(const struct lexer *x, size_t at, const char *end, bool trims) {
    if (starts_with(x, at, "-") && starts_with(x, at + 1, end)) return skip_space(x, at + 3) - at;
    if (trims && starts_with(x, at, "+") && starts_with(x, at + 1, end)) return 3;
    if (!starts_with(x, at, end)) return 0;
    return trims && starts_with(x, at + 2, "\n") ? 3 : 2;
}

static void skip_comment(struct lexer *x) {
    size_t at = x->at + 2;
    if (at < x->n && (x->p[at] == '-' || x->p[at] == '+')) at++;
    for (; at < x->n; at++) {
        size_t len = closer_len(x, at, "#}", true);
        if (len) {
            advance_to(x, at + len);
            return;
        }
    }
    fail_lex(x, "Missing end of comment tag");
}

/* If a tag with only this word is at `tag`: the offset after it, else 0. */
static size_t match_raw(const struct lexer *x, size_t tag, const char *word, bool trims) {
    if (!starts_with(x, tag, "{%")) return 0;
    size_t at = tag + 2;
    if (at < x->n && (x->p[at] == '-' || x->p[at] == '+')) at++;
    at = skip_space(x, at);
    if (!starts_with(x, at, word)) return 0;
    at = skip_space(x, at + strlen(word));
    if (starts_with(x, at, "+%}") && !trims) return 0;
    size_t len = closer_len(x, at, "%}", trims);
    return len ? at + len : 0;
}

static void lex_raw(struct lexer *x, size_t body) {
    advance_to(x, body);
    bool line_start = body > 0 && x->p[body - 1] == '\n';
    for (size_t tag = body; tag < x->n; tag++) {
        size_t end = match_raw(x, tag, "endraw", true);
        if (!end) continue;
        size_t stop = text_end(x, body, tag, line_start);
        if (stop > body) add_token(x, T_DATA, x->p + body, stop - body);
        advance_to(x, end);
        return;
    }
    fail_lex(x, "Missing end of raw directive");
}

static bool is_name_start(char ch) {
    return ch == '_' || (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
           (unsigned char)ch >= 0x80;
}

static bool is_digit(char ch) {
    return ch >= '0' && ch <= '9';
}

static int hex_value(char ch) {
    if (is_digit(ch)) return ch - '0';
    if (ch >= 'a' && ch <= 'f') return ch - 'a' + 10;
    if (ch >= 'A' && ch <= 'F') return ch - 'A' + 10;
    return -1;
}

/* \xHH, \uHHHH, \UHHHHHHHH: n digits at `at`; false if they are not there. */
static bool read_hex(const struct lexer *x, size_t at, size_t end, int n, uint32_t *cp) {
    *cp = 0;
    for (int i = 0; i < n; i++) {
        int digit = at + (size_t)i < end ? hex_value(x->p[at + (size_t)i]) : -1;
        if (digit < 0) return false;
        *cp = *cp << 4 | (uint32_t)digit;
    }
    return utf8_is_scalar(*cp);
}

/* Decodes the escape at `at` (after the backslash) into out; returns the offset after it. */
static size_t decode_escape(struct lexer *x, size_t at, size_t end, char *out, size_t *n) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char ch = x->p[at];
    const char *simple = strchr(from, ch);
    uint32_t cp = 0;
    if (ch && simple) {
        out[(*n)++] = to[simple - from];
        return at + 1;
    }
    if (ch == '\n') return at + 1;
    if (ch == 'x' || ch == 'u' || ch == 'U') {
        int digits = ch == 'x' ? 2 : ch == 'u' ? 4 : 8;
        if (!read_hex(x, at + 1, end, digits, &cp)) {
            fail_lex(x, "invalid \\x, \\u or \\U escape in a string");
            return end;
        }
        *n += utf8_encode(cp, out + *n);
        return at + 1 + (size_t)digits;
    }
    if (ch >= '0' && ch <= '7') {
        size_t i = 0;
        for (; i < 3 && at + i < end && x->p[at + i] >= '0' && x->p[at + i] <= '7'; i++)
            cp = cp * 8 + (uint32_t)(x->p[at + i] - '0');
        *n += utf8_encode(cp, out + *n);
        return at + i;
    }
    out[(*n)++] = '\\';
    return at;
}

static void lex_string(struct lexer *x) {
    char quote = x->p[x->at];
    size_t start = x->at + 1, end = start;
    bool escapes = false;
    while (end < x->n && x->p[end] != quote) {
        if (x->p[end] == '\\') {
            escapes = true;
            end++;
        }
        end++;
    }
    if (end >= x->n) {
        fail_lex(x, "a string is not terminated");
        return;
    }
    const char *text = x->p + start;
    size_t n = end - start;
    if (escapes) {
        char *out = arena_alloc(x->mem, (uint64_t)n + 1);
        if (!out) {
            fail_too_large(x);
            return;
        }
        size_t n_out = 0;
        for (size_t at = start; at < end;) {
            if (x->p[at] == '\\')
                at = decode_escape(x, at + 1, end, out, &n_out);
            else
                out[n_out++] = x->p[at++];
        }
        text = out;
        n = n_out;
    }
    add_token(x, T_STRING, text, n);
    advance_to(x, end + 1);
}

static size_t digits_end(const struct lexer *x, size_t at) {
    while (at < x->n && (is_digit(x->p[at]) || (x->p[at] == '_' && at + 1 < x->n &&
                                                is_digit(x->p[at + 1]) && is_digit(x->p[at - 1]))))
        at++;
    return at;
}

/* 0x.., 0o.., 0b.. */
static bool lex_based(struct lexer *x) {
    if (x->p[x->at] != '0' || x->at + 2 >= x->n) return false;
    char kind = x->p[x->at + 1] | 32;
    int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (!base) return false;
    int64_t value = 0;
    size_t at = x->at + 2;
    for (; at < x->n; at++) {
        if (x->p[at] == '_') continue;
        int digit = hex_value(x->p[at]);
        if (digit < 0 || digit >= base) break;
        if (__builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit, &value)) {
            fail_lex(x, "an integer is too large");
            return true;
        }
    }
    if (at == x->at + 2) return false;
    struct jtok *t = add_token(x, T_INT, x->p + x->at, at - x->at);
    t->i = value;
    advance_to(x, at);
    return true;
}

static void lex_number(struct lexer *x) {
    if (lex_based(x)) return;
    size_t start = x->at, end = digits_end(x, start);
    bool is_float = false, after_dot = start > 0 && x->p[start - 1] == '.';
    if (!after_dot && end + 1 < x->n && x->p[end] == '.' && is_digit(x->p[end + 1])) {
        is_float = true;
        end = digits_end(x, end + 1);
    }
    if (!after_dot && end < x->n && (x->p[end] | 32) == 'e') {
        size_t at = end + 1;
        if (at < x->n && (x->p[at] == '+' || x->p[at] == '-')) at++;
        if (at < x->n && is_digit(x->p[at])) {
            is_float = true;
            end = digits_end(x, at);
        }
    }
    char *text = arena_alloc(x->mem, end - start + 1);
    if (!text) {
        fail_too_large(x);
        return;
    }
    size_t n = 0;
    for (size_t i = start; i < end; i++)
        if (x->p[i] != '_') text[n++] = x->p[i];
    int64_t value = 0;
    bool big = false;
    for (size_t i = 0; i < n && !is_float; i++)
        big = big || __builtin_mul_overflow(value, 10, &value) ||
              __builtin_add_overflow(value, text[i] - '0', &value);
    struct jtok *t = add_token(x, is_float ? T_FLOAT : big ? T_BIGINT : T_INT, text, n);
    t->i = value;
    if (is_float) t->f = strtod(text, NULL);
    advance_to(x, end);
}

static void push_closer(struct lexer *x, char ch) {
    if (x->n_closers == x->cap_closers) {
        size_t cap = x->cap_closers ? x->cap_closers * 2 : 32;
        char *closers = mem_resize(x->closers, cap, 1);
        if (!closers) {
            fail_too_large(x);
            return;
        }
        x->closers = closers;
        x->cap_closers = cap;
    }
    x->closers[x->n_closers++] = ch;
}

static void lex_operator(struct lexer *x) {
    static const char *const two[] = {"==", "!=", ">=", "<=", "**", "//"};
    for (size_t i = 0; i < sizeof two / sizeof *two; i++) {
        if (starts_with(x, x->at, two[i])) {
            add_token(x, T_OP, x->p + x->at, 2);
            x->at += 2;
            return;
        }
    }
    char ch = x->p[x->at];
    if (!ch || !strchr("+-/*%~[](){}><=.:|,;", ch)) {
        fail_lex(x, "unexpected character in a tag");
        return;
    }
    if (ch == '(') push_closer(x, ')');
    if (ch == '[') push_closer(x, ']');
    if (ch == '{') push_closer(x, '}');
    if (ch == ')' || ch == ']' || ch == '}') {
        if (!x->n_closers || x->closers[--x->n_closers] != ch) {
            fail_lex(x, "a closing bracket does not match");
            return;
        }
    }
    add_token(x, T_OP, x->p + x->at, 1);
    x->at++;
}

/* Lexes a tag up to and including its end. */
static void lex_tag(struct lexer *x, bool block) {
    const char *end = block ? "%}" : "}}";
    add_token(x, block ? T_BLOCK_BEGIN : T_VAR_BEGIN, x->p + x->at, 2);
    size_t at = x->at + 2;
    if (at < x->n && (x->p[at] == '-' || x->p[at] == '+')) at++;
    advance_to(x, at);
    x->n_closers = 0;
    while (!x->failed) {
        while (x->at < x->n && is_blank(x->p[x->at]))
            advance_to(x, x->at + 1);
        if (x->at >= x->n) {
            fail_lex(x, "unexpected end of template inside a tag");
            return;
        }
        size_t len = x->n_closers ? 0 : closer_len(x, x->at, end, block);
        char ch = x->p[x->at];
        if (len) {
            add_token(x, block ? T_BLOCK_END : T_VAR_END, x->p + x->at, 2);
            advance_to(x, x->at + len);
            return;
        }
        if (is_digit(ch)) {
            lex_number(x);
        } else if (is_name_start(ch)) {
            size_t stop = x->at;
            while (stop < x->n && (is_name_start(x->p[stop]) || is_digit(x->p[stop])))
                stop++;
            add_token(x, T_NAME, x->p + x->at, stop - x->at);
            advance_to(x, stop);
        } else if (ch == '\'' || ch == '"') {
            lex_string(x);
        } else {
            lex_operator(x);
        }
    }
}

static void lex_all(struct lexer *x) {
    bool line_start = true;
    while (x->at < x->n && !x->failed) {
        size_t from = x->at, tag = find_tag(x, from);
        size_t stop = tag < x->n ? text_end(x, from, tag, line_start) : tag;
        if (stop > from) add_token(x, T_DATA, x->p + from, stop - from);
        advance_to(x, tag);
        if (tag >= x->n) break;
        size_t raw = match_raw(x, tag, "raw", false);
        if (raw)
            lex_raw(x, raw);
        else if (x->p[tag + 1] == '#')
            skip_comment(x);
        else
            lex_tag(x, x->p[tag + 1] == '%');
        line_start = x->at > 0 && x->p[x->at - 1] == '\n';
    }
    add_token(x, T_END, "", 0);
}

int jlex(arena *mem, const char *source, struct jtok **tokens, size_t *n_tokens, err *e) {
    struct lexer x = {.mem = mem, .line = 1, .e = e};
    size_t n_source = strlen(source), n = 0;
    char *text = arena_alloc(mem, (uint64_t)n_source + 1);
    if (!text) return err_set(e, ERR_NOMEM, "the chat template is too large");
    for (size_t i = 0; i < n_source; i++) {
        if (source[i] == '\r') {
            text[n++] = '\n';
            if (source[i + 1] == '\n') i++;
        } else {
            text[n++] = source[i];
        }
    }
    if (n && text[n - 1] == '\n') n--; /* Jinja drops one newline at the end of the source */
    x.p = text;
    x.n = n;
    x.tok = mem_new(x.cap = 128, sizeof *x.tok);
    if (!x.tok) return err_no_memory(e);
    lex_all(&x);
    free(x.closers);
    if (x.failed) {
        free(x.tok);
        return e && e->code ? e->code : ERR_FORMAT;
    }
    *tokens = x.tok;
    *n_tokens = x.n_tok;
    return 0;
}
