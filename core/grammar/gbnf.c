/* gbnf.c - grammars in GBNF, the notation of llama.cpp (its grammars/README.md): text -> nodes by
 * the public builder. Accepts two unambiguous extensions: 'texts' in single quotes, and rules over
 * several lines (a rule ends where the next "name ::=" begins).
 *
 * Owns its lists. One thread, as the builder. */
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/grammar/grammar_int.h"
#include "core/grammar/regex/chars.h"
#include "core/grammar/regex/dfa_int.h"
#include "core/text/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 200, MAX_NAME = 255, MAX_TEXT = 1 << 24 };

struct rule {
    grammar_node node;
    const char *met; /* where its name first occurs */
    bool defined;
};

struct parser {
    const char *text, *at;
    grammar_builder *b;
    struct dfa_intern names; /* name i is that of rule i */
    G_LIST(struct rule) rules;
    G_LIST(grammar_node) stack; /* finished parts of the open sequences and alternatives */
    unsigned depth;
    bool failed;
};

/* Keeps the first failure in the builder. Returns -1. */
static grammar_node gbnf_fail(struct parser *p, const char *at, int code, const char *what) {
    unsigned line = 1, column = 1;
    for (const char *c = p->text; c < at; c++) {
        column += !utf8_continues(*c);
        if (*c == '\n') line++, column = 1;
    }
    if (!p->failed && !p->b->failure.code)
        err_set(&p->b->failure, code, "Grammar, line %u, column %u: %s.", line, column, what);
    p->failed = true;
    return -1;
}

static grammar_node gbnf_fail_no_memory(struct parser *p) {
    if (!p->b->failure.code) err_no_memory(&p->b->failure);
    p->failed = true;
    return -1;
}

/* Passes on what the builder made, and its failure. */
static grammar_node check_node(struct parser *p, grammar_node node) {
    p->failed = p->failed || node < 0;
    return node;
}

static bool push_part(struct parser *p, grammar_node node) {
    if (p->failed) return false;
    if (!mem_grow(&p->stack.at, p->stack.n, &p->stack.capacity, sizeof node))
        return gbnf_fail_no_memory(p) >= 0;
    p->stack.at[p->stack.n++] = node;
    return true;
}

/* ---- words and blanks ---- */

static void skip_blanks(struct parser *p) {
    for (;; p->at++) {
        if (*p->at == '#')
            while (p->at[1] && p->at[1] != '\n')
                p->at++;
        else if (!*p->at || !strchr(" \t\r\n", *p->at))
            return;
    }
}

static bool gbnf_take(struct parser *p, const char *what) {
    size_t n = strlen(what);
    if (strncmp(p->at, what, n) != 0) return false;
    p->at += n;
    return true;
}

static size_t span_name(const char *s) {
    return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");
}

/* Does a rule begin at p->at? */
static bool at_rule(struct parser *p) {
    const char *from = p->at;
    size_t n = span_name(from);
    p->at += n;
    skip_blanks(p);
    bool yes = n && strncmp(p->at, "::=", 3) == 0;
    p->at = from;
    return yes;
}

/* The number of the rule with this name, which is made if it is new. false: failed. */
static bool rule_named(struct parser *p, const char *name, size_t n, uint32_t *rule) {
    uint64_t key[MAX_NAME / 8 + 1] = {0};
    if (n > MAX_NAME) return gbnf_fail(p, name, ERR_INVALID, "the name is too long") >= 0;
    memcpy(key, name, n);
    int rc = dfa_intern_add(&p->names, key, (uint32_t)(n / 8 + 1), rule);
    if (rc)
        return rc == ERR_NOMEM ? gbnf_fail_no_memory(p) >= 0
                               : gbnf_fail(p, name, rc, "too many rules") >= 0;
    if (*rule < p->rules.n) return true;
    if (!mem_grow(&p->rules.at, p->rules.n, &p->rules.capacity, sizeof *p->rules.at))
        return gbnf_fail_no_memory(p) >= 0;
    struct rule made_rule = {.node = check_node(p, grammar_rule(p->b)), .met = name};
    p->rules.at[p->rules.n++] = made_rule;
    return !p->failed;
}

/* ---- characters ---- */

/* After '\'. */
static bool gbnf_take_escape(struct parser *p, uint32_t *c) {
    static const char from[] = "nrt", to[] = "\n\r\t";
    const char *escape = p->at - 1, *simple = *p->at ? strchr(from, *p->at) : NULL;
    unsigned n = *p->at == 'x' ? 2 : *p->at == 'u' ? 4 : *p->at == 'U' ? 8 : 0;
    if (simple) {
        *c = (uint32_t)to[simple - from];
        p->at++;
        return true;
    }
    if (n) {
        p->at++;
        if (!chars_take_hex(&p->at, n, c))
            return gbnf_fail(p, escape, ERR_INVALID, "this escape has too few digits") >= 0;
        if (!utf8_is_scalar(*c))
            return gbnf_fail(p, escape, ERR_INVALID,
                             "this escape is not the code point of a character") >= 0;
        return true;
    }
    if (!*p->at || !strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", *p->at))
        return gbnf_fail(p, escape, ERR_INVALID, "unknown escape") >= 0;
    *c = (uint32_t)*p->at++;
    return true;
}

static bool take_char(struct parser *p, uint32_t *c) {
    if (gbnf_take(p, "\\")) return gbnf_take_escape(p, c);
    *c = chars_take(&p->at);
    return true;
}

/* After the quote. */
static grammar_node parse_text(struct parser *p, char quote) {
    const char *from = p->at - 1;
    str s;
    str_init(&s, MAX_TEXT);
    while (*p->at != quote && !p->failed) {
        char bytes[4];
        uint32_t c;
        if (!*p->at)
            gbnf_fail(p, from, ERR_INVALID, "this text is not closed");
        else if (take_char(p, &c))
            str_add_n(&s, bytes, utf8_encode(c, bytes));
    }
    p->at += !p->failed;
    if (s.failed) gbnf_fail_no_memory(p);
    grammar_node node = p->failed ? -1 : check_node(p, grammar_text(p->b, str_cstr(&s), s.len));
    str_fini(&s);
    return node;
}

/* Makes a node of the class c and frees c. */
static grammar_node class_node(struct parser *p, struct chars *c) {
    struct g_node node = {.kind = G_DFA};
    struct dfa d = {0};
    uint32_t index = 0;
    err e = {0};
    int rc = p->failed ? -1 : chars_dfa(c, p->b->g->work, &d, &e);
    chars_fini(c);
    if (!rc) rc = program_add_dfa(p->b->g, &d, &node.index, &e);
    if (!rc) rc = program_add_node(p->b->g, &node, NULL, &index, &e);
    if (!rc) return (grammar_node)index;
    if (!p->failed && !p->b->failure.code) p->b->failure = e;
    p->failed = true;
    return -1;
}

/* After '['. */
static grammar_node parse_class(struct parser *p) {
    const char *from = p->at - 1;
    struct chars set = {0};
    bool negated = gbnf_take(p, "^");
    while (*p->at != ']' && !p->failed) {
        uint32_t first, last;
        const char *range = p->at;
        if (!*p->at)
            gbnf_fail(p, from, ERR_INVALID, "this [ is not closed");
        else if (take_char(p, &first)) {
            last = first;
            if (*p->at == '-' && p->at[1] && p->at[1] != ']') {
                p->at++;
                take_char(p, &last);
            }
            if (!p->failed && last < first)
                gbnf_fail(p, range, ERR_INVALID, "this range ends before it starts");
            chars_add(&set, first, last);
        }
    }
    p->at += !p->failed;
    chars_normalise(&set);
    if (negated) chars_negate(&set);
    return class_node(p, &set);
}

/* ---- rules ---- */

static grammar_node gbnf_parse_alternatives(struct parser *p);

static grammar_node gbnf_parse_group(struct parser *p) {
    const char *from = p->at - 1;
    if (++p->depth > MAX_DEPTH)
        return gbnf_fail(p, from, ERR_TOO_LONG, "groups are nested too deeply");
    grammar_node node = gbnf_parse_alternatives(p);
    if (!p->failed && !gbnf_take(p, ")"))
        return gbnf_fail(p, from, ERR_INVALID, "this ( is not closed");
    p->depth--;
    return node;
}

static grammar_node gbnf_parse_item(struct parser *p) {
    struct chars all = {0};
    uint32_t rule;
    size_t n = span_name(p->at);
    if (n) {
        const char *name = p->at;
        p->at += n;
        return rule_named(p, name, n, &rule) ? p->rules.at[rule].node : -1;
    }
    if (gbnf_take(p, "\"")) return parse_text(p, '"');
    if (gbnf_take(p, "'")) return parse_text(p, '\'');
    if (gbnf_take(p, "[")) return parse_class(p);
    if (gbnf_take(p, "(")) return gbnf_parse_group(p);
    if (gbnf_take(p, ".")) {
        chars_add(&all, 0, CHARS_LAST);
        chars_normalise(&all);
        return class_node(p, &all);
    }
    if (*p->at == '<' || *p->at == '!')
        return gbnf_fail(p, p->at, ERR_UNSUPPORTED, "tokens in a grammar are not supported");
    return gbnf_fail(p, p->at, ERR_INVALID,
                     "expected a text, a [class], a (group) or the name of a rule");
}

/* What may follow an item: * + ? {m} {m,} {m,n}. */
static bool gbnf_take_quantifier(struct parser *p, uint32_t *min, uint32_t *max) {
    const char *from = p->at;
    *min = 0;
    *max = GRAMMAR_UNLIMITED;
    if (gbnf_take(p, "*")) return true;
    if (gbnf_take(p, "+")) return *min = 1, true;
    if (gbnf_take(p, "?")) return *max = 1, true;
    if (!gbnf_take(p, "{")) return false;
    skip_blanks(p);
    bool counted = chars_take_count(&p->at, min);
    skip_blanks(p);
    if (!gbnf_take(p, ",")) {
        *max = *min;
    } else {
        skip_blanks(p);
        chars_take_count(&p->at, max);
        skip_blanks(p);
    }
    if (!counted || !gbnf_take(p, "}"))
        return gbnf_fail(p, from, ERR_INVALID, "expected a count in {}") >= 0;
    if (*max < *min)
        return gbnf_fail(p, from, ERR_INVALID, "the counts are in the wrong order") >= 0;
    return true;
}

static bool sequence_ends(struct parser *p) {
    skip_blanks(p);
    return !*p->at || *p->at == '|' || *p->at == ')' || at_rule(p);
}

static grammar_node gbnf_parse_sequence(struct parser *p) {
    uint32_t first = p->stack.n, min, max;
    while (!p->failed && !sequence_ends(p)) {
        grammar_node node = gbnf_parse_item(p);
        skip_blanks(p);
        while (!p->failed && gbnf_take_quantifier(p, &min, &max)) {
            node = check_node(p, grammar_repeat(p->b, node, min, max));
            skip_blanks(p);
        }
        push_part(p, node);
    }
    if (p->failed) return -1;
    uint32_t n = p->stack.n - first;
    p->stack.n = first;
    return n == 1 ? p->stack.at[first]
                  : check_node(p, grammar_seq(p->b, n ? p->stack.at + first : NULL, n));
}

static grammar_node gbnf_parse_alternatives(struct parser *p) {
    uint32_t first = p->stack.n;
    do
        push_part(p, gbnf_parse_sequence(p));
    while (!p->failed && gbnf_take(p, "|"));
    if (p->failed) return -1;
    uint32_t n = p->stack.n - first;
    p->stack.n = first;
    return n == 1 ? p->stack.at[first] : check_node(p, grammar_alt(p->b, p->stack.at + first, n));
}

static void parse_rule(struct parser *p) {
    const char *name = p->at;
    size_t n = span_name(name);
    uint32_t rule;
    if (!at_rule(p)) {
        gbnf_fail(p, name, ERR_INVALID,
                  n ? "expected ::= after the name" : "expected the name of a rule");
        return;
    }
    if (!rule_named(p, name, n, &rule)) return;
    if (p->rules.at[rule].defined) {
        gbnf_fail(p, name, ERR_INVALID, "this rule is already defined");
        return;
    }
    p->rules.at[rule].defined = true;
    p->at += n;
    skip_blanks(p);
    gbnf_take(p, "::=");
    grammar_node body = gbnf_parse_alternatives(p);
    if (!p->failed && *p->at == ')') gbnf_fail(p, p->at, ERR_INVALID, "a ) without a (");
    if (!p->failed) grammar_rule_set(p->b, p->rules.at[rule].node, body);
}

static grammar_node parse_grammar(struct parser *p) {
    uint32_t root = 0;
    for (skip_blanks(p); *p->at && !p->failed; skip_blanks(p))
        parse_rule(p);
    for (uint32_t i = 0; i < p->rules.n && !p->failed; i++)
        if (!p->rules.at[i].defined)
            gbnf_fail(p, p->rules.at[i].met, ERR_INVALID, "this rule is not defined");
    uint32_t n = p->rules.n;
    if (p->failed || !rule_named(p, "root", 4, &root)) return -1;
    if (root == n) return gbnf_fail(p, p->text, ERR_INVALID, "there is no rule \"root\"");
    return p->rules.at[root].node;
}

grammar_node grammar_gbnf(grammar_builder *b, const char *text, size_t n) {
    char *copy = mem_strndup(text, n);
    struct parser p = {.text = copy, .at = copy, .b = b};
    grammar_node node = -1;
    if (!copy) return gbnf_fail_no_memory(&p);
    size_t whole = utf8_valid_prefix(copy, n);
    if (strlen(copy) < whole) whole = strlen(copy);
    if (whole < n)
        gbnf_fail(&p, copy + whole, ERR_INVALID, "not valid UTF-8, or a NUL");
    else
        node = parse_grammar(&p);
    dfa_intern_fini(&p.names);
    free(p.rules.at);
    free(p.stack.at);
    free(copy);
    return node;
}
