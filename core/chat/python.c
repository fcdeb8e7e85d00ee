/* python.c - keyword arguments of a Python call, and bare objects, to JSON, byte by byte. Keeps
 * brackets, the current word and the current escape, and nothing else: what it adds does not depend
 * on how the text was divided. Pure. */
#include "core/chat/python.h"

#include "core/chat/chat_int.h"

#include <ctype.h>
#include <string.h>

enum state {
    NAME_OR_END, /* an argument's name, or the end of the call; a key of a bare object, or its end
                  */
    NAME,        /* within that name */
    EQUALS,      /* after it */
    VALUE,
    VALUE_OR_END, /* a value, or the bracket that ends a list */
    KEY_OR_END,   /* a key, or the brace that ends a dict */
    COLON,
    AFTER,   /* after a value: a comma or the end */
    WORD,    /* within a number or constant */
    QUOTED,  /* after a string's first quote */
    QUOTED2, /* after two: an empty string, or three */
    STRING,
    ESCAPE, /* after a backslash */
    DIGITS  /* within an escape of digits */
};

void chat_python_begin(struct chat_python *p, str *out) {
    *p = (struct chat_python){.state = NAME_OR_END, .depth = 1, .open = {')'}};
    str_add_char(out, '{');
}

void chat_python_begin_bare(struct chat_python *p, str *out) {
    *p = (struct chat_python){.state = NAME_OR_END, .depth = 1, .open = {'}'}, .bare = true};
    str_add_char(out, '{');
}

/* ---- words ---- */

/* Adds the number w (ends with NUL), in Python's notation, as JSON's. */
static bool add_number(const char *w, str *out) {
    char json[CHAT_PYTHON_WORD_BYTES + 4];
    size_t n = 0, whole = 0, part = 0, power = 0;
    if (*w == '-') json[n++] = '-';
    if (*w == '-' || *w == '+') w++;
    size_t first = n;
    for (; isdigit((unsigned char)*w) || (*w == '_' && whole && isdigit((unsigned char)w[1]));
         w++) {
        if (*w == '_') continue;
        if (n == first + 1 && json[first] == '0') n = first; /* JSON has no leading zeros */
        json[n++] = *w;
        whole++;
    }
    if (!whole) json[n++] = '0';
    if (*w == '.') {
        json[n++] = *w++;
        for (; isdigit((unsigned char)*w); part++)
            json[n++] = *w++;
        if (!part) json[n++] = '0';
    }
    if (!whole && !part) return false;
    if (*w == 'e' || *w == 'E') {
        json[n++] = *w++;
        if (*w == '-' || *w == '+') json[n++] = *w++;
        for (; isdigit((unsigned char)*w); power++)
            json[n++] = *w++;
        if (!power) return false;
    }
    if (*w) return false;
    str_add_n(out, json, n);
    return true;
}

static bool add_word(struct chat_python *p, str *out) {
    static const char *const constants[][2] = {{"None", "null"},   {"True", "true"},
                                               {"False", "false"}, {"null", "null"},
                                               {"true", "true"},   {"false", "false"}};
    p->word[p->n_word] = 0;
    p->state = AFTER;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (!strcmp(p->word, constants[i][0])) {
            str_add(out, constants[i][1]);
            return true;
        }
    return add_number(p->word, out);
}

static bool is_word_char(char c) {
    return isalnum((unsigned char)c) || (c && strchr("+-._", c));
}

/* ---- strings ---- */

/* Adds a byte of a string. */
static void add_byte(unsigned char c, str *out) {
    if (c == '"' || c == '\\')
        str_addf(out, "\\%c", c);
    else if (c == '\n')
        str_add(out, "\\n");
    else if (c < ' ')
        str_addf(out, "\\u%04x", c);
    else
        str_add_char(out, (char)c);
}

static bool add_code(uint32_t code, str *out) {
    if (code < 0x80) {
        add_byte((unsigned char)code, out);
    } else if (code < 0x10000) {
        str_addf(out, "\\u%04x", code);
    } else if (code <= 0x10ffff) {
        code -= 0x10000;
        str_addf(out, "\\u%04x\\u%04x", 0xd800 + (code >> 10), 0xdc00 + (code & 0x3ff));
    }
    return code <= 0x10ffff;
}

static void end_string(struct chat_python *p, str *out) {
    str_add_char(out, '"');
    p->state = p->is_key ? COLON : AFTER;
}

static void put_string(struct chat_python *p, char c, str *out) {
    if (p->marked) {
        add_byte((unsigned char)c, out);
        return;
    }
    if (c == p->quote) {
        if (p->triple && ++p->n_quotes < 3) return;
        end_string(p, out);
        return;
    }
    for (; p->n_quotes; p->n_quotes--)
        add_byte((unsigned char)p->quote, out);
    p->state = c == '\\' ? ESCAPE : STRING;
    if (c != '\\') add_byte((unsigned char)c, out);
}

static void put_escape(struct chat_python *p, char c, str *out) {
    static const char from[] = "nrtbfav\\'\"/", to[] = "\n\r\t\b\f\a\v\\'\"/";
    const char *at = c ? strchr(from, c) : NULL;
    p->state = STRING;
    p->code = 0;
    p->base = 16;
    p->n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c >= '0' && c <= '7') {
        p->base = 8;
        p->n_digits = 2;
        p->code = (uint32_t)(c - '0');
    }
    if (p->n_digits) {
        p->state = DIGITS;
    } else if (at) {
        add_byte((unsigned char)to[at - from], out);
    } else if (c != '\n') { /* that joins two lines; of others Python keeps the backslash */
        add_byte('\\', out);
        add_byte((unsigned char)c, out);
    }
}

/* ---- structure ---- */

/* A comma waits for what follows it: Python allows one before a bracket, JSON does not. */
static void add_comma(struct chat_python *p, str *out) {
    if (p->comma) str_add_char(out, ',');
    p->comma = false;
}

static enum chat_python_result close_bracket(struct chat_python *p, char c, str *out) {
    if (c != p->open[p->depth - 1]) return CHAT_PYTHON_BAD;
    p->comma = false;
    p->state = AFTER;
    str_add_char(out, c == ']' ? ']' : '}');
    return --p->depth ? CHAT_PYTHON_MORE : CHAT_PYTHON_END;
}

static enum chat_python_result begin_string(struct chat_python *p, char c, str *out) {
    if (c != '"' && c != '\'') return CHAT_PYTHON_BAD;
    add_comma(p, out);
    str_add_char(out, '"');
    p->quote = c;
    p->is_key = p->state == KEY_OR_END || p->state == NAME_OR_END;
    p->triple = p->marked = false;
    p->n_quotes = 0;
    p->state = QUOTED;
    return CHAT_PYTHON_MORE;
}

static enum chat_python_result begin_value(struct chat_python *p, char c, str *out) {
    if (c == '"' || c == '\'') return begin_string(p, c, out);
    bool bracket = c == '{' || c == '[';
    if (bracket ? p->depth == CHAT_PYTHON_DEPTH : !is_word_char(c)) return CHAT_PYTHON_BAD;
    add_comma(p, out);
    p->n_word = 0;
    p->state = c == '[' ? VALUE_OR_END : c != '{' ? WORD : p->bare ? NAME_OR_END : KEY_OR_END;
    if (bracket) {
        p->open[p->depth++] = c == '{' ? '}' : ']';
        str_add_char(out, c);
    } else {
        p->word[p->n_word++] = c;
    }
    return CHAT_PYTHON_MORE;
}

static enum chat_python_result put_name(struct chat_python *p, char c, str *out) {
    bool first = p->state == NAME_OR_END;
    if (c == '_' || isalpha((unsigned char)c) || (!first && isdigit((unsigned char)c))) {
        if (first) add_comma(p, out);
        if (first) str_add_char(out, '"');
        str_add_char(out, c);
        p->state = NAME;
        return CHAT_PYTHON_MORE;
    }
    if (first) return close_bracket(p, c, out);
    if (c != '=' && !chat_is_space(c)) return CHAT_PYTHON_BAD;
    str_add(out, "\":");
    p->state = c == '=' ? VALUE : EQUALS;
    return CHAT_PYTHON_MORE;
}

/* A key without quotes ends at the colon. */
static enum chat_python_result put_key(struct chat_python *p, char c, str *out) {
    const bool first = p->state == NAME_OR_END;
    if (first && c == '}') return close_bracket(p, c, out);
    if (first && c == '"') return begin_string(p, c, out);
    if (c == ':' && !first) {
        str_add(out, "\":");
        p->state = VALUE;
        return CHAT_PYTHON_MORE;
    }
    if ((unsigned char)c < ' ' || strchr(",:{}[]\"", c)) return CHAT_PYTHON_BAD;
    if (first) add_comma(p, out);
    if (first) str_add_char(out, '"');
    add_byte((unsigned char)c, out);
    p->state = NAME;
    return CHAT_PYTHON_MORE;
}

/* Outside words and strings, where white space does not matter. */
static enum chat_python_result put_structure(struct chat_python *p, char c, str *out) {
    char closer = p->open[p->depth - 1];
    if (chat_is_space(c)) return CHAT_PYTHON_MORE;
    switch (p->state) {
    case NAME_OR_END:
        return p->bare ? put_key(p, c, out) : put_name(p, c, out);
    case VALUE_OR_END:
        return c == ']' ? close_bracket(p, c, out) : begin_value(p, c, out);
    case KEY_OR_END:
        return c == '}' ? close_bracket(p, c, out) : begin_string(p, c, out);
    case VALUE:
        return begin_value(p, c, out);
    case EQUALS:
    case COLON:
        if (c != (p->state == COLON ? ':' : '=')) return CHAT_PYTHON_BAD;
        if (p->state == COLON) str_add_char(out, ':');
        p->state = VALUE;
        return CHAT_PYTHON_MORE;
    default: /* AFTER */
        if (c != ',') return close_bracket(p, c, out);
        p->comma = true;
        p->state = closer == ']'              ? VALUE_OR_END
                   : closer == ')' || p->bare ? NAME_OR_END
                                              : KEY_OR_END;
        return CHAT_PYTHON_MORE;
    }
}

/* Within the digits of an escape. Octal ones may be fewer; others may not. */
static enum chat_python_result put_digit(struct chat_python *p, char c, str *out) {
    uint32_t digit = isdigit((unsigned char)c)    ? (uint32_t)(c - '0')
                     : isxdigit((unsigned char)c) ? (uint32_t)((c | 0x20) - 'a' + 10)
                                                  : UINT32_MAX;
    bool fits = digit < p->base;
    if (!fits && p->base == 16) return CHAT_PYTHON_BAD;
    if (fits) {
        if (p->code > UINT32_MAX >> 4) return CHAT_PYTHON_BAD;
        p->code = p->code * p->base + digit;
        if (--p->n_digits) return CHAT_PYTHON_MORE;
    }
    p->state = STRING;
    if (!add_code(p->code, out)) return CHAT_PYTHON_BAD;
    if (!fits) put_string(p, c, out);
    return CHAT_PYTHON_MORE;
}

enum chat_python_result chat_python_put(struct chat_python *p, char c, str *out) {
    switch (p->state) {
    case NAME:
        return p->bare ? put_key(p, c, out) : put_name(p, c, out);
    case WORD:
        if (is_word_char(c)) {
            if (p->n_word + 1 == CHAT_PYTHON_WORD_BYTES) return CHAT_PYTHON_BAD;
            p->word[p->n_word++] = c;
            return CHAT_PYTHON_MORE;
        }
        return add_word(p, out) ? put_structure(p, c, out) : CHAT_PYTHON_BAD;
    case QUOTED:
        p->state = c == p->quote ? QUOTED2 : STRING;
        if (c != p->quote) put_string(p, c, out);
        return CHAT_PYTHON_MORE;
    case QUOTED2:
        p->triple = c == p->quote;
        p->state = STRING;
        if (p->triple) return CHAT_PYTHON_MORE;
        end_string(p, out);
        return put_structure(p, c, out);
    case STRING:
        put_string(p, c, out);
        return CHAT_PYTHON_MORE;
    case ESCAPE:
        put_escape(p, c, out);
        return CHAT_PYTHON_MORE;
    case DIGITS:
        return put_digit(p, c, out);
    default:
        return put_structure(p, c, out);
    }
}

enum chat_python_result chat_python_quote(struct chat_python *p, str *out) {
    if (p->state == STRING && p->marked) {
        end_string(p, out);
        return CHAT_PYTHON_MORE;
    }
    if (p->state != VALUE && p->state != VALUE_OR_END && p->state != NAME_OR_END)
        return CHAT_PYTHON_BAD;
    begin_string(p, '"', out);
    p->marked = true;
    p->state = STRING;
    return CHAT_PYTHON_MORE;
}
