/* regex.c - the only file that includes PCRE2. Immutable after regex_new; any thread. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "core/tokenizer/regex.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATTERN_MAX_BYTES = 1 << 20,
    REASON_BYTES = 128,
    MATCH_STEPS = 20 * 1000 * 1000, /* limit per match */
    HEAP_KIB = 64 << 10,
    STACK_FIRST_BYTES = 32 << 10,
    STACK_MAX_BYTES = 4 << 20
};

struct regex {
    pcre2_code *code;
};

/* White_Space (PCRE2's \s also matches U+180E), and Oniguruma's word characters. */
#define SPACES "\\t-\\r\\x{85}\\p{Z}"
#define WORDS                                                                                      \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{24b6}-\\x{24e9}"     \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define BORDER(at_end, at_start)                                                                   \
    "(?:(?<=[" WORDS "])(?" at_end "[" WORDS "])|(?<![" WORDS "])(?" at_start "[" WORDS "]))"
#define HEXES "0-9a-fA-F"

struct rewrite {
    const char *p; /* rest of the pattern */
    str *out;
    err *e;
};

static int refuse_pattern(struct rewrite *w, const char *what) {
    return err_set(w->e, ERR_UNSUPPORTED, "%s is not supported", what);
}

static bool is_hex4(const char *p) {
    for (int i = 0; i < 4; i++)
        if (!p[i] || !strchr("0123456789abcdefABCDEF", p[i])) return false;
    return true;
}

/* \p{Name}: general categories may have their long names; a script's name means the Script
 * property, where PCRE2 would match Script_Extensions. false: there is no \p{Name} here. */
static bool take_property(struct rewrite *w) {
    static const struct {
        const char *name, *as;
    } names[] = {{"Letter", "L"},
                 {"Lowercase_Letter", "Ll"},
                 {"Uppercase_Letter", "Lu"},
                 {"Titlecase_Letter", "Lt"},
                 {"Modifier_Letter", "Lm"},
                 {"Other_Letter", "Lo"},
                 {"Mark", "M"},
                 {"Nonspacing_Mark", "Mn"},
                 {"Number", "N"},
                 {"Decimal_Number", "Nd"},
                 {"Punctuation", "P"},
                 {"Symbol", "S"},
                 {"Separator", "Z"},
                 {"Space_Separator", "Zs"},
                 {"Other", "C"},
                 {"Any", "Any"}};
    const char *name = w->p + 3, *end = w->p[2] == '{' ? strchr(name, '}') : NULL;
    if (!end) return false;
    bool negated = (w->p[1] == 'P') != (*name == '^');
    name += *name == '^';
    size_t n = (size_t)(end - name);
    const char *as = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i].name) == n && memcmp(names[i].name, name, n) == 0) as = names[i].as;
    str_addf(w->out, "\\%c{", negated ? 'P' : 'p');
    if (as)
        str_add(w->out, as);
    else
        str_addf(w->out, "%s%.*s", n > 2 ? "sc:" : "", (int)n, name);
    str_add_char(w->out, '}');
    w->p = end + 1;
    return true;
}

/* Rewrites an escape sequence. */
static void take_escape(struct rewrite *w, bool in_class) {
    char c = w->p[1];
    if ((c == 'p' || c == 'P') && take_property(w)) return;
    const char *set = c == 's' || (c == 'S' && !in_class)   ? SPACES
                      : c == 'w' || (c == 'W' && !in_class) ? WORDS
                      : c == 'h' || (c == 'H' && !in_class) ? HEXES
                                                            : NULL;
    if (set) {
        bool negated = c == 'S' || c == 'W' || c == 'H';
        str_addf(w->out, in_class ? "%s%s" : "[%s%s]", negated ? "^" : "", set);
        w->p += 2;
    } else if (c == 'u' && is_hex4(w->p + 2)) {
        str_addf(w->out, "\\x{%.4s}", w->p + 2);
        w->p += 6;
    } else if ((c == 'b' || c == 'B') && !in_class) {
        str_add(w->out, c == 'b' ? BORDER("!", "=") : BORDER("=", "!"));
        w->p += 2;
    } else {
        str_add_char(w->out, '\\');
        w->p++;
        /* Copies the escaped character; PCRE2 reports a backslash at the end. */
        if (c) str_add_char(w->out, *w->p++);
    }
}

static int take_class(struct rewrite *w, int depth);

/* Rewrites the items of a class up to its ']' or "&&", which are not consumed. */
static int take_items(struct rewrite *w) {
    bool first = true;
    for (; *w->p; first = false) {
        if ((*w->p == ']' && !first) || strncmp(w->p, "&&", 2) == 0) return 0;
        if (strncmp(w->p, "[:", 2) == 0 && strstr(w->p, ":]")) {
            size_t n = (size_t)(strstr(w->p, ":]") - w->p) + 2;
            str_add_n(w->out, w->p, n);
            w->p += n;
        } else if (*w->p == '[') {
            return refuse_pattern(w, "a nested character class");
        } else if (*w->p == '\\') {
            take_escape(w, true);
        } else {
            if (*w->p == ']') str_add_char(w->out, '\\');
            str_add_char(w->out, *w->p++);
        }
    }
    return err_set(w->e, ERR_FORMAT, "a character class lacks its ']'");
}

/* Rewrites an operand after "&&", a class or items, as a look-ahead. */
static int take_operand(struct rewrite *w, int depth) {
    str_add(w->out, "(?=");
    int rc;
    if (*w->p == '[' && w->p[1] != ':') {
        rc = take_class(w, depth + 1);
    } else {
        str_add_char(w->out, '[');
        rc = take_items(w);
        str_add_char(w->out, ']');
    }
    str_add_char(w->out, ')');
    return rc;
}

/* Rewrites [A&&B&&...] as (?:(?=[B])...[A]); copies [A]. */
static int take_class(struct rewrite *w, int depth) {
    str items, *out = w->out, ahead;
    bool negated = w->p[1] == '^';
    if (depth > 2) return refuse_pattern(w, "a deeply nested character class");
    str_init(&items, PATTERN_MAX_BYTES);
    str_init(&ahead, PATTERN_MAX_BYTES);
    w->p += negated ? 2 : 1;
    w->out = &items;
    int rc = take_items(w);
    w->out = &ahead;
    while (!rc && strncmp(w->p, "&&", 2) == 0) {
        w->p += 2;
        rc = negated ? refuse_pattern(w, "a negated intersection of character classes")
                     : take_operand(w, depth);
    }
    if (!rc && *w->p != ']')
        rc = refuse_pattern(w, "this form of intersection of character classes");
    w->out = out;
    if (!rc) {
        w->p++;
        str_addf(out, ahead.len ? "(?:%s[%s%s])" : "%s[%s%s]", str_cstr(&ahead), negated ? "^" : "",
                 str_cstr(&items));
        out->failed |= items.failed || ahead.failed;
    }
    str_fini(&items);
    str_fini(&ahead);
    return rc;
}

static int rewrite_pattern(const char *pattern, str *out, err *e) {
    struct rewrite w = {pattern, out, e};
    int rc = 0;
    while (!rc && *w.p) {
        if (*w.p == '\\')
            take_escape(&w, false);
        else if (*w.p == '[')
            rc = take_class(&w, 0);
        else
            str_add_char(out, *w.p++);
    }
    if (!rc && out->failed) rc = err_set(e, ERR_FORMAT, "the pattern is too long");
    return rc;
}

int regex_new(const char *pattern, bool literal, struct regex **out, err *e) {
    str text;
    int rc = 0, number = 0;
    size_t offset = 0;
    *out = NULL;
    str_init(&text, PATTERN_MAX_BYTES);
    if (literal)
        str_add(&text, pattern);
    else
        rc = rewrite_pattern(pattern, &text, e);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    struct regex *r = mem_new(1, sizeof *r);
    if (!rc && (!r || !context || text.failed)) rc = err_no_memory(e);
    if (!rc) {
        /* In Ruby's syntax ^ and $ match at every line feed. */
        uint32_t options = literal
                               ? PCRE2_UTF | PCRE2_LITERAL
                               : PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        r->code = pcre2_compile((PCRE2_SPTR)str_cstr(&text), text.len, options, &number, &offset,
                                context);
        if (!r->code) {
            char reason[REASON_BYTES] = "";
            pcre2_get_error_message(number, (PCRE2_UCHAR *)reason, sizeof reason);
            rc = err_set(e, ERR_FORMAT, "pattern \"%.200s\": %s", pattern, reason);
        }
    } else {
        err_prefix(e, "pattern \"%.200s\": ", pattern);
    }
    /* If the JIT is not available, PCRE2 interprets the pattern. */
    if (!rc) (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE);
    pcre2_compile_context_free(context);
    str_fini(&text);
    if (rc) {
        regex_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void regex_free(struct regex *r) {
    if (!r) return;
    pcre2_code_free(r->code);
    free(r);
}

void regex_work_fini(struct regex_work *w) {
    pcre2_match_data_free(w->data);
    pcre2_match_context_free(w->context);
    pcre2_jit_stack_free(w->stack);
    memset(w, 0, sizeof *w);
}

static int work_init(struct regex_work *w, err *e) {
    if (w->data) return 0;
    w->context = pcre2_match_context_create(NULL);
    w->stack = pcre2_jit_stack_create(STACK_FIRST_BYTES, STACK_MAX_BYTES, NULL);
    w->data = pcre2_match_data_create(1, NULL);
    if (!w->data || !w->context) {
        regex_work_fini(w);
        return err_no_memory(e);
    }
    pcre2_set_match_limit(w->context, MATCH_STEPS);
    pcre2_set_heap_limit(w->context, HEAP_KIB);
    if (w->stack) pcre2_jit_stack_assign(w->context, NULL, w->stack);
    return 0;
}

int regex_next(const struct regex *r, struct regex_work *w, const char *text, size_t n, size_t from,
               size_t *start, size_t *end, err *e) {
    int rc = work_init(w, e);
    if (rc) return rc;
    rc = pcre2_match(r->code, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK, w->data, w->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(r->code, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         w->data, w->context);
    if (rc == PCRE2_ERROR_NOMATCH) return 0;
    if (rc < 0) {
        char reason[REASON_BYTES] = "";
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)reason, sizeof reason);
        return err_set(e, ERR_TOO_LONG, "the text cannot be split into words: %s", reason);
    }
    const size_t *found = pcre2_get_ovector_pointer(w->data);
    *start = found[0];
    *end = found[1];
    return 1;
}
