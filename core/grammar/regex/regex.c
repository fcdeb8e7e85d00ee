/* regex.c - regular expressions in the syntax of ECMA-262 with the u flag: text -> tree -> nodes of
 * an nfa. Accepts, beyond the standard, what has only one meaning: escaped punctuation that needs
 * no escape, a lone brace or bracket, a '-' beside a class escape.
 *
 * Owns the tree. Any thread. */
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/grammar/regex/chars.h"
#include "core/grammar/regex/dfa_int.h"
#include "core/grammar/regex/nfa.h"
#include "core/text/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 200, MAX_NODES = 1 << 19 };

enum tree_kind { EMPTY, CHAR, SEQ, ALT, REPEAT, ASSERT, LOOK };

struct tree {
    uint8_t kind;    /* enum tree_kind */
    uint8_t assert_; /* ASSERT: enum nfa_kind */
    uint32_t index;  /* CHAR: class; LOOK: look */
    uint32_t child;  /* the first; GRAMMAR_NONE: none */
    uint32_t next;   /* the next child of the same parent */
    uint32_t min, max;
};

struct parser {
    const char *text, *at;
    struct nfa nfa;
    G_LIST(struct tree) trees;
    G_LIST(struct chars) sets; /* of the classes */
    unsigned depth;
    unsigned n_before, n_after; /* assertions so far that depend on the text before, or after */
    int rc;
    err *e;
};

static bool regex_fail(struct parser *p, int code, const char *what) {
    unsigned column = 1;
    if (p->rc) return false;
    for (const char *c = p->text; c < p->at; c++)
        column += !utf8_continues(*c);
    p->rc = err_set(p->e, code, "Regular expression, character %u: %s.", column, what);
    return false;
}

static bool regex_fail_no_memory(struct parser *p) {
    if (!p->rc) p->rc = err_no_memory(p->e);
    return false;
}

/* ---- characters ---- */

static bool regex_take(struct parser *p, const char *what) {
    size_t n = strlen(what);
    if (strncmp(p->at, what, n) != 0) return false;
    p->at += n;
    return true;
}

/* After "\u". */
static bool take_unicode(struct parser *p, uint32_t *c) {
    uint32_t low;
    if (regex_take(p, "{")) {
        *c = 0;
        for (uint32_t digit; *c <= CHARS_LAST && chars_take_hex(&p->at, 1, &digit);)
            *c = *c << 4 | digit;
        return (p->at[-1] != '{' && *c <= CHARS_LAST && regex_take(p, "}")) ||
               regex_fail(p, ERR_INVALID, "\\u{...} is not the code point of a character");
    }
    if (!chars_take_hex(&p->at, 4, c))
        return regex_fail(p, ERR_INVALID, "\\u needs four hexadecimal digits");
    const char *after = p->at;
    if (*c >= 0xD800 && *c < 0xDC00 && regex_take(p, "\\u") && chars_take_hex(&p->at, 4, &low) &&
        low >= 0xDC00 && low < 0xE000)
        *c = 0x10000 + ((*c - 0xD800) << 10) + (low - 0xDC00);
    else
        p->at = after;
    return true;
}

static const char escapes_from[] = "tnvfr", escapes_to[] = "\t\n\v\f\r";

/* After '\': an escape for one character, inside and outside of classes. */
static bool take_escaped_char(struct parser *p, uint32_t *c) {
    const char *simple = *p->at ? strchr(escapes_from, *p->at) : NULL;
    if (simple) {
        *c = (uint32_t)escapes_to[simple - escapes_from];
        p->at++;
        return true;
    }
    if (regex_take(p, "u")) return take_unicode(p, c);
    if (regex_take(p, "x"))
        return chars_take_hex(&p->at, 2, c) ||
               regex_fail(p, ERR_INVALID, "\\x needs two hexadecimal digits");
    if (*p->at == 'c') {
        unsigned letter = (unsigned)p->at[1] | 0x20;
        if (letter < 'a' || letter > 'z') return regex_fail(p, ERR_INVALID, "\\c needs a letter");
        *c = letter & 31;
        p->at += 2;
        return true;
    }
    if (*p->at == '0' && !(p->at[1] >= '0' && p->at[1] <= '9')) {
        *c = 0;
        p->at++;
        return true;
    }
    if (*p->at >= '0' && *p->at <= '9')
        return regex_fail(p, ERR_UNSUPPORTED, "back-references cannot be enforced");
    if (*p->at == 'k') return regex_fail(p, ERR_UNSUPPORTED, "back-references cannot be enforced");
    if (!*p->at) return regex_fail(p, ERR_INVALID, "a lone \\ at the end");
    if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", *p->at))
        return regex_fail(p, ERR_INVALID, "unknown escape");
    *c = chars_take(&p->at);
    return true;
}

/* ---- classes ---- */

static void add_digits(struct chars *c) {
    chars_add(c, '0', '9');
}

static void add_word_chars(struct chars *c) {
    chars_add(c, '0', '9');
    chars_add(c, 'A', 'Z');
    chars_add(c, '_', '_');
    chars_add(c, 'a', 'z');
}

/* WhiteSpace and LineTerminator of ECMA-262. */
static void add_space(struct chars *c) {
    static const struct chars_range spaces[] = {
        {0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
        {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        chars_add(c, spaces[i].first, spaces[i].last);
}

/* After "\p" or "\P". */
static bool take_property_escape(struct parser *p, struct chars *c) {
    const char *name = p->at + 1, *end = *p->at == '{' ? strchr(name, '}') : NULL;
    if (!end) return regex_fail(p, ERR_INVALID, "\\p needs a property in {}");
    if (!chars_add_property(c, name, (size_t)(end - name)))
        return regex_fail(p, ERR_UNSUPPORTED, "unknown property of characters");
    p->at = end + 1;
    return true;
}

/* After '\': \d \D \w \W \s \S, \p{...}, \P{...}. false: another escape, or an error. */
static bool take_class_escape(struct parser *p, struct chars *out) {
    struct chars c = {0};
    char kind = *p->at;
    if (!kind || !strchr("dDwWsSpP", kind)) return false;
    p->at++;
    if ((kind == 'p' || kind == 'P') && !take_property_escape(p, &c)) return false;
    if (kind == 'd' || kind == 'D')
        add_digits(&c);
    else if (kind == 'w' || kind == 'W')
        add_word_chars(&c);
    else if (kind == 's' || kind == 'S')
        add_space(&c);
    chars_normalise(&c);
    if (kind >= 'A' && kind <= 'Z') chars_negate(&c);
    chars_add_all(out, &c);
    chars_fini(&c);
    return true;
}

/* One member of a bracketed class. *single: the character *c; otherwise a class, added to out. */
static bool take_member(struct parser *p, struct chars *out, bool *single, uint32_t *c) {
    *single = true;
    if (*p->at != '\\') {
        *c = chars_take(&p->at);
        return true;
    }
    p->at++;
    if (regex_take(p, "b")) {
        *c = '\b';
        return true;
    }
    *single = false;
    if (take_class_escape(p, out)) return true;
    if (p->rc) return false;
    *single = true;
    return take_escaped_char(p, c);
}

/* After '['. */
static bool take_bracketed(struct parser *p, struct chars *out) {
    bool negated = regex_take(p, "^");
    while (*p->at != ']') {
        bool single, single_last;
        uint32_t first, last;
        if (!*p->at) return regex_fail(p, ERR_INVALID, "a [ is not closed");
        if (!take_member(p, out, &single, &first)) return false;
        if (!single) continue;
        if (*p->at != '-' || p->at[1] == ']' || !p->at[1]) {
            chars_add(out, first, first);
            continue;
        }
        p->at++;
        if (!take_member(p, out, &single_last, &last)) return false;
        if (!single_last) {
            chars_add(out, first, first);
            chars_add(out, '-', '-');
        } else if (last < first) {
            return regex_fail(p, ERR_INVALID, "a range in [] ends before it starts");
        } else {
            chars_add(out, first, last);
        }
    }
    p->at++;
    chars_normalise(out);
    if (negated) chars_negate(out);
    return true;
}

/* ---- the tree ---- */

static uint32_t add_tree(struct parser *p, struct tree t) {
    if (p->rc || !mem_grow(&p->trees.at, p->trees.n, &p->trees.capacity, sizeof t)) {
        regex_fail_no_memory(p);
        return GRAMMAR_NONE;
    }
    p->trees.at[p->trees.n] = t;
    return p->trees.n++;
}

static struct tree tree_leaf(enum tree_kind kind, uint32_t index) {
    return (struct tree){
        .kind = (uint8_t)kind, .index = index, .child = GRAMMAR_NONE, .next = GRAMMAR_NONE};
}

static bool same_chars(const struct chars *a, const struct chars *b) {
    return a->n == b->n && (!a->n || memcmp(a->at, b->at, a->n * sizeof *a->at) == 0);
}

/* The number of the class of the set; takes the set. */
static uint32_t class_of_set(struct parser *p, struct chars *set) {
    struct dfa d = {0};
    chars_normalise(set);
    if (!p->rc && !work_spend(p->nfa.budget, 1 + set->n + p->sets.n / 8))
        p->rc = dfa_failure(p->nfa.budget->reason, p->e);
    for (uint32_t i = 0; i < p->sets.n && !set->failed; i++)
        if (same_chars(&p->sets.at[i], set)) {
            chars_fini(set);
            return i;
        }
    if (p->rc || !mem_grow(&p->sets.at, p->sets.n, &p->sets.capacity, sizeof *set) ||
        !mem_grow(&p->nfa.classes.at, p->nfa.classes.n, &p->nfa.classes.capacity, sizeof d) ||
        (p->rc = chars_dfa(set, p->nfa.budget, &d, p->e)) != 0) {
        regex_fail_no_memory(p);
        chars_fini(set);
        return 0;
    }
    p->sets.at[p->sets.n++] = *set;
    p->nfa.classes.at[p->nfa.classes.n] = d;
    return p->nfa.classes.n++;
}

static uint32_t char_tree(struct parser *p, uint32_t first, uint32_t last) {
    struct chars set = {0};
    chars_add(&set, first, last);
    return add_tree(p, tree_leaf(CHAR, class_of_set(p, &set)));
}

static uint32_t add_assertion(struct parser *p, enum nfa_kind kind) {
    struct tree t = tree_leaf(ASSERT, 0);
    t.assert_ = (uint8_t)kind;
    p->n_before += kind != NFA_END;
    p->n_after += kind != NFA_START;
    return add_tree(p, t);
}

static uint32_t parse_alternatives(struct parser *p);

/* After "(?=" and the like. Its nodes are made when the tree is complete (emit_look). */
static uint32_t parse_look(struct parser *p, bool behind, bool negative) {
    unsigned before = p->n_before, after = p->n_after;
    uint32_t body = parse_alternatives(p);
    if (p->rc) return GRAMMAR_NONE;
    if (behind && p->n_after != after) {
        regex_fail(p, ERR_UNSUPPORTED, "a look-behind that contains a look-ahead is not supported");
        return GRAMMAR_NONE;
    }
    if (!mem_grow(&p->nfa.looks.at, p->nfa.looks.n, &p->nfa.looks.capacity,
                  sizeof *p->nfa.looks.at)) {
        regex_fail_no_memory(p);
        return GRAMMAR_NONE;
    }
    p->nfa.looks.at[p->nfa.looks.n] = (struct nfa_look){
        .behind = behind, .negative = negative, .sees_before = p->n_before != before};
    p->n_before += behind;
    p->n_after += !behind;
    struct tree t = tree_leaf(LOOK, p->nfa.looks.n++);
    t.child = body;
    return add_tree(p, t);
}

/* After "(?<": a group's name up to its '>'. */
static bool take_name(struct parser *p) {
    const char *from = p->at;
    while (*p->at && *p->at != '>' && *p->at != ')')
        p->at++;
    if (*p->at != '>' || p->at == from)
        return regex_fail(p, ERR_INVALID, "the name of a group is missing");
    p->at++;
    return true;
}

/* After '('. *is_look: no quantifier may follow. */
static uint32_t parse_group(struct parser *p, bool *is_look) {
    uint32_t t = GRAMMAR_NONE;
    if (++p->depth > MAX_DEPTH) {
        regex_fail(p, ERR_TOO_LONG, "groups are nested too deeply");
        return t;
    }
    *is_look = true;
    if (regex_take(p, "?="))
        t = parse_look(p, false, false);
    else if (regex_take(p, "?!"))
        t = parse_look(p, false, true);
    else if (regex_take(p, "?<="))
        t = parse_look(p, true, false);
    else if (regex_take(p, "?<!"))
        t = parse_look(p, true, true);
    else {
        *is_look = false;
        if (regex_take(p, "?<"))
            take_name(p);
        else if (!regex_take(p, "?:") && *p->at == '?')
            regex_fail(p, ERR_UNSUPPORTED, "this kind of group is not supported");
        t = parse_alternatives(p);
    }
    if (!p->rc && !regex_take(p, ")")) regex_fail(p, ERR_INVALID, "a ( is not closed");
    p->depth--;
    return t;
}

/* After '\', outside of a class. */
static uint32_t parse_escape(struct parser *p, bool *is_assertion) {
    struct chars set = {0};
    uint32_t c;
    *is_assertion = *p->at == 'b' || *p->at == 'B';
    if (*is_assertion) return add_assertion(p, *p->at++ == 'b' ? NFA_WORD : NFA_NOT_WORD);
    if (take_class_escape(p, &set)) return add_tree(p, tree_leaf(CHAR, class_of_set(p, &set)));
    chars_fini(&set);
    return p->rc || !take_escaped_char(p, &c) ? GRAMMAR_NONE : char_tree(p, c, c);
}

static uint32_t parse_dot(struct parser *p) {
    struct chars set = {0};
    chars_add(&set, '\n', '\n');
    chars_add(&set, '\r', '\r');
    chars_add(&set, 0x2028, 0x2029);
    chars_normalise(&set);
    chars_negate(&set);
    return add_tree(p, tree_leaf(CHAR, class_of_set(p, &set)));
}

/* *fixed: an assertion: no quantifier may follow. */
static uint32_t parse_atom(struct parser *p, bool *fixed) {
    struct chars set = {0};
    *fixed = false;
    switch (*p->at) {
    case '^':
    case '$':
        *fixed = true;
        return add_assertion(p, *p->at++ == '^' ? NFA_START : NFA_END);
    case '(':
        p->at++;
        return parse_group(p, fixed);
    case '[':
        p->at++;
        if (take_bracketed(p, &set)) return add_tree(p, tree_leaf(CHAR, class_of_set(p, &set)));
        chars_fini(&set);
        return GRAMMAR_NONE;
    case '\\':
        p->at++;
        return parse_escape(p, fixed);
    case '.':
        p->at++;
        return parse_dot(p);
    case '*':
    case '+':
    case '?':
        regex_fail(p, ERR_INVALID, "nothing to repeat before this");
        return GRAMMAR_NONE;
    case '{':
        if (p->at[1] != ',' && !(p->at[1] >= '0' && p->at[1] <= '9')) break;
        regex_fail(p, ERR_INVALID, "nothing to repeat before this");
        return GRAMMAR_NONE;
    default:
        break;
    }
    uint32_t c = chars_take(&p->at);
    return char_tree(p, c, c);
}

/* A quantifier at p->at. false: there is none, or an error. */
static bool take_quantifier(struct parser *p, uint32_t *min, uint32_t *max) {
    *min = 0;
    *max = GRAMMAR_UNLIMITED;
    if (regex_take(p, "+")) {
        *min = 1;
    } else if (regex_take(p, "?")) {
        *max = 1;
    } else if (*p->at == '{' && (p->at[1] == ',' || (p->at[1] >= '0' && p->at[1] <= '9'))) {
        p->at++;
        if (!chars_take_count(&p->at, min))
            return regex_fail(p, ERR_INVALID, "a count is missing after {");
        if (!regex_take(p, ","))
            *max = *min;
        else
            chars_take_count(&p->at, max);
        if (!regex_take(p, "}")) return regex_fail(p, ERR_INVALID, "a { is not closed");
        if (*max < *min)
            return regex_fail(p, ERR_INVALID, "the counts in {} are in the wrong order");
    } else if (!regex_take(p, "*")) {
        return false;
    }
    regex_take(p, "?"); /* lazy: matches the same texts */
    return true;
}

static uint32_t parse_term(struct parser *p) {
    bool fixed;
    uint32_t min, max, t = parse_atom(p, &fixed);
    if (p->rc || !take_quantifier(p, &min, &max)) return t;
    if (fixed) {
        regex_fail(p, ERR_INVALID, "nothing to repeat before this");
        return GRAMMAR_NONE;
    }
    struct tree r = tree_leaf(REPEAT, 0);
    r.child = t;
    r.min = min;
    r.max = max;
    return add_tree(p, r);
}

/* Appends item to the children of parent. */
static void append_child(struct parser *p, uint32_t parent, uint32_t *last, uint32_t item) {
    if (p->rc) return;
    if (*last == GRAMMAR_NONE)
        p->trees.at[parent].child = item;
    else
        p->trees.at[*last].next = item;
    *last = item;
}

static uint32_t parse_sequence(struct parser *p) {
    uint32_t seq = add_tree(p, tree_leaf(SEQ, 0)), last = GRAMMAR_NONE;
    while (!p->rc && *p->at && *p->at != '|' && *p->at != ')')
        append_child(p, seq, &last, parse_term(p));
    return seq;
}

static uint32_t parse_alternatives(struct parser *p) {
    uint32_t alt = add_tree(p, tree_leaf(ALT, 0)), last = GRAMMAR_NONE;
    do
        append_child(p, alt, &last, parse_sequence(p));
    while (!p->rc && regex_take(p, "|"));
    return alt;
}

/* ---- nodes ---- */

static uint32_t add_nfa_node(struct parser *p, enum nfa_kind kind, uint32_t index, uint32_t out,
                             uint32_t other) {
    if (p->rc) return 0;
    int rc = p->nfa.nodes.n == MAX_NODES     ? ERR_TOO_LONG
             : !work_spend(p->nfa.budget, 1) ? p->nfa.budget->reason
                                             : 0;
    if (rc) {
        p->rc = dfa_failure(rc, p->e);
        return 0;
    }
    if (!mem_grow(&p->nfa.nodes.at, p->nfa.nodes.n, &p->nfa.nodes.capacity,
                  sizeof *p->nfa.nodes.at)) {
        regex_fail_no_memory(p);
        return 0;
    }
    p->nfa.nodes.at[p->nfa.nodes.n] = (struct nfa_node){(uint8_t)kind, index, out, other};
    return p->nfa.nodes.n++;
}

static uint32_t emit_tree(struct parser *p, uint32_t tree, uint32_t next);

/* Emits the children from last to first. */
static uint32_t emit_sequence(struct parser *p, uint32_t child, uint32_t next) {
    uint32_t n = 0, *children;
    for (uint32_t c = child; c != GRAMMAR_NONE; c = p->trees.at[c].next)
        n++;
    children = mem_new(n, sizeof *children);
    if (!children) {
        regex_fail_no_memory(p);
        return 0;
    }
    n = 0;
    for (uint32_t c = child; c != GRAMMAR_NONE; c = p->trees.at[c].next)
        children[n++] = c;
    while (n-- > 0 && !p->rc)
        next = emit_tree(p, children[n], next);
    free(children);
    return next;
}

static uint32_t emit_alternatives(struct parser *p, uint32_t child, uint32_t next) {
    uint32_t first = emit_tree(p, child, next);
    for (uint32_t c = p->trees.at[child].next; c != GRAMMAR_NONE && !p->rc; c = p->trees.at[c].next)
        first = add_nfa_node(p, NFA_SPLIT, 0, emit_tree(p, c, next), first);
    return first;
}

static uint32_t emit_repeat(struct parser *p, const struct tree *t, uint32_t next) {
    uint32_t at = next;
    if (t->max == GRAMMAR_UNLIMITED) {
        uint32_t loop = add_nfa_node(p, NFA_SPLIT, 0, 0, next);
        uint32_t body = emit_tree(p, t->child, loop);
        if (p->rc) return 0;
        p->nfa.nodes.at[loop].out = body;
        at = loop;
    } else {
        for (uint32_t i = t->min; i < t->max && !p->rc; i++)
            at = add_nfa_node(p, NFA_SPLIT, 0, emit_tree(p, t->child, at), next);
    }
    for (uint32_t i = 0; i < t->min && !p->rc; i++) {
        uint32_t body = emit_tree(p, t->child, at);
        if (body == at) break; /* the empty text: repeating it changes nothing */
        at = body;
    }
    return at;
}

static uint32_t emit_look(struct parser *p, const struct tree *t, uint32_t next) {
    bool behind = p->nfa.looks.at[t->index].behind;
    if (!p->nfa.looks.at[t->index].start) { /* 0: not emitted yet (node 0 is the match) */
        uint32_t start, loop = behind ? add_nfa_node(p, NFA_SPLIT, 0, 0, 0) : 0;
        start = emit_tree(p, t->child, behind ? 0 : p->nfa.any);
        if (behind) {
            uint32_t any = add_nfa_node(p, NFA_CHAR, 0, loop, 0);
            if (p->rc) return 0;
            p->nfa.nodes.at[loop].out = start;
            p->nfa.nodes.at[loop].other = any;
            start = loop;
        }
        p->nfa.looks.at[t->index].start = start;
    }
    return add_nfa_node(p, NFA_LOOK, t->index, next, 0);
}

/* The node that matches tree and then continues at next. */
static uint32_t emit_tree(struct parser *p, uint32_t tree, uint32_t next) {
    if (p->rc) return 0;
    struct tree t = p->trees.at[tree];
    switch ((enum tree_kind)t.kind) {
    case CHAR:
        return add_nfa_node(p, NFA_CHAR, t.index, next, 0);
    case SEQ:
        return emit_sequence(p, t.child, next);
    case ALT:
        return emit_alternatives(p, t.child, next);
    case REPEAT:
        return emit_repeat(p, &t, next);
    case ASSERT:
        return add_nfa_node(p, (enum nfa_kind)t.assert_, 0, next, 0);
    case LOOK:
        return emit_look(p, &t, next);
    case EMPTY:
        break;
    }
    return next;
}

/* Node 0 is the match; nfa.any matches every text. */
static void emit_ends(struct parser *p) {
    struct chars all = {0};
    chars_add(&all, 0, CHARS_LAST);
    class_of_set(p, &all);
    add_nfa_node(p, NFA_MATCH, 0, 0, 0);
    p->nfa.any = add_nfa_node(p, NFA_SPLIT, 0, 2, 0);
    add_nfa_node(p, NFA_CHAR, 0, p->nfa.any, 0);
}

static int compile_regex(struct parser *p, int flags, struct dfa *out) {
    emit_ends(p);
    uint32_t tree = parse_alternatives(p);
    if (!p->rc && *p->at) regex_fail(p, ERR_INVALID, "a ) without a (");
    bool search = (flags & DFA_REGEX_SEARCH) != 0;
    uint32_t loop = search ? add_nfa_node(p, NFA_SPLIT, 0, 0, 0) : 0;
    uint32_t start = emit_tree(p, tree, search ? p->nfa.any : 0);
    uint32_t any = search ? add_nfa_node(p, NFA_CHAR, 0, loop, 0) : 0;
    if (p->rc) return p->rc;
    if (search) {
        p->nfa.nodes.at[loop].out = start;
        p->nfa.nodes.at[loop].other = any;
        start = loop;
    }
    int rc = nfa_dfa(&p->nfa, start, out, p->e);
    if (rc) err_prefix(p->e, "Regular expression: ");
    return rc;
}

int dfa_from_regex(const char *pattern, int flags, struct work *w, struct dfa *out, err *e) {
    struct parser p = {.text = pattern, .at = pattern, .nfa.budget = w, .e = e};
    if (!utf8_valid(pattern, strlen(pattern)))
        return err_set(e, ERR_INVALID, "Regular expression: the text is not valid UTF-8.");
    int rc = compile_regex(&p, flags, out);
    for (uint32_t i = 0; i < p.sets.n; i++)
        chars_fini(&p.sets.at[i]);
    free(p.sets.at);
    free(p.trees.at);
    nfa_fini(&p.nfa);
    return rc;
}

/* ---- languages defined by patterns ---- */

int dfa_from_length(uint32_t min, uint32_t max, struct work *w, struct dfa *out, err *e) {
    char pattern[48];
    if (max == GRAMMAR_UNLIMITED)
        snprintf(pattern, sizeof pattern, "[^]{%u,}", min);
    else
        snprintf(pattern, sizeof pattern, "[^]{%u,%u}", min, max);
    return dfa_from_regex(pattern, 0, w, out, e);
}
