/* jinja/expr.c - parses expressions. Precedence, loosest first: if-else, or, and, not, comparisons,
 * + -, ~, * / // %, **, unary, then postfix ([], ., (), filters, tests), as in Jinja2. */
#include "core/chat/jinja/builtin_int.h"
#include "core/chat/jinja/parse_int.h"

#include <string.h>

static struct jnode *parse_or(struct jparser *p);
static struct jnode *parse_unary(struct jparser *p, bool with_filters);

static bool at_op(const struct jparser *p, const char *text) {
    return jtok_is(p->tok, T_OP, text);
}

static struct jnode *binary_node(struct jparser *p, enum jnode_kind kind, struct jnode *a,
                                 struct jnode *b) {
    struct jnode *n = jparse_node(p, kind, a->line);
    n->a = a;
    n->b = b;
    return n;
}

struct jnode *jparse_expression(struct jparser *p, bool with_condition) {
    if (!jparse_enter(p)) return jparse_node(p, N_CONST, 0);
    struct jnode *n = parse_or(p);
    while (with_condition && jparse_skip(p, T_NAME, "if")) {
        struct jnode *cond = jparse_node(p, N_COND, n->line);
        cond->a = n;
        cond->b = parse_or(p);
        if (jparse_skip(p, T_NAME, "else")) cond->c = jparse_expression(p, true);
        n = cond;
    }
    p->depth--;
    return n;
}

static struct jnode *parse_concat(struct jparser *p);

static struct jnode *parse_math1(struct jparser *p) {
    struct jnode *n = parse_concat(p);
    while (!p->failed && (at_op(p, "+") || at_op(p, "-"))) {
        enum jop op = *p->tok->p == '+' ? OP_ADD : OP_SUB;
        p->tok++;
        n = binary_node(p, N_BINARY, n, parse_concat(p));
        n->op = (uint8_t)op;
    }
    return n;
}

static int compare_op(struct jparser *p) {
    static const struct {
        const char *text;
        enum jop op;
    } ops[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<=", OP_LE},
               {">=", OP_GE}, {"<", OP_LT},  {">", OP_GT}};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (jparse_skip(p, T_OP, ops[i].text)) return ops[i].op;
    if (jparse_skip(p, T_NAME, "in")) return OP_IN;
    if (jtok_is(p->tok, T_NAME, "not") && jtok_is(p->tok + 1, T_NAME, "in")) {
        p->tok += 2;
        return OP_NOT_IN;
    }
    return -1;
}

static struct jnode *parse_compare(struct jparser *p) {
    struct jnode *first = parse_math1(p);
    struct jnodes right = {0};
    uint8_t ops[64];
    for (int op; !p->failed && (op = compare_op(p)) >= 0;) {
        if (right.n == sizeof ops) {
            jparse_fail(p, p->tok->line, "a comparison has too many parts");
            break;
        }
        ops[right.n] = (uint8_t)op;
        jnodes_add(p, &right, parse_math1(p));
    }
    if (!right.n) return first;
    struct jnode *n = jparse_node(p, N_COMPARE, first->line);
    uint8_t *copy = jparse_alloc(p, right.n);
    memcpy(copy, ops, right.n);
    n->a = first;
    n->list = right.v;
    n->n_list = right.n;
    n->ops = copy;
    return n;
}

static struct jnode *parse_not(struct jparser *p) {
    if (!jtok_is(p->tok, T_NAME, "not")) return parse_compare(p);
    struct jnode *n = jparse_node(p, N_NOT, p->tok->line);
    p->tok++;
    if (!jparse_enter(p)) return n;
    n->a = parse_not(p);
    p->depth--;
    return n;
}

static struct jnode *parse_and(struct jparser *p) {
    struct jnode *n = parse_not(p);
    while (!p->failed && jparse_skip(p, T_NAME, "and"))
        n = binary_node(p, N_AND, n, parse_not(p));
    return n;
}

static struct jnode *parse_or(struct jparser *p) {
    struct jnode *n = parse_and(p);
    while (!p->failed && jparse_skip(p, T_NAME, "or"))
        n = binary_node(p, N_OR, n, parse_and(p));
    return n;
}

static struct jnode *parse_pow(struct jparser *p) {
    struct jnode *n = parse_unary(p, true);
    while (!p->failed && jparse_skip(p, T_OP, "**")) {
        n = binary_node(p, N_BINARY, n, parse_unary(p, true));
        n->op = OP_POW;
    }
    return n;
}

static struct jnode *parse_math2(struct jparser *p) {
    static const struct {
        const char *text;
        enum jop op;
    } ops[] = {{"*", OP_MUL}, {"/", OP_DIV}, {"//", OP_FLOORDIV}, {"%", OP_MOD}};
    struct jnode *n = parse_pow(p);
    for (size_t i = 0; i < sizeof ops / sizeof *ops && !p->failed; i++) {
        if (!jparse_skip(p, T_OP, ops[i].text)) continue;
        n = binary_node(p, N_BINARY, n, parse_pow(p));
        n->op = (uint8_t)ops[i].op;
        i = (size_t)-1; /* look for any of them again */
    }
    return n;
}

static struct jnode *parse_concat(struct jparser *p) {
    struct jnode *first = parse_math2(p);
    if (!at_op(p, "~")) return first;
    struct jnodes parts = {0};
    jnodes_add(p, &parts, first);
    while (!p->failed && jparse_skip(p, T_OP, "~"))
        jnodes_add(p, &parts, parse_math2(p));
    struct jnode *n = jparse_node(p, N_CONCAT, first->line);
    n->list = parts.v;
    n->n_list = parts.n;
    return n;
}

static struct jnode *parse_list(struct jparser *p) {
    struct jnode *n = jparse_node(p, N_LIST, p->tok->line);
    struct jnodes items = {0};
    p->tok++;
    while (!p->failed && !at_op(p, "]")) {
        if (items.n) jparse_expect(p, T_OP, ",");
        if (at_op(p, "]")) break;
        jnodes_add(p, &items, jparse_expression(p, true));
    }
    jparse_expect(p, T_OP, "]");
    n->list = items.v;
    n->n_list = items.n;
    return n;
}

static struct jnode *parse_dict(struct jparser *p) {
    struct jnode *n = jparse_node(p, N_DICT, p->tok->line);
    struct jnodes keys = {0}, values = {0};
    p->tok++;
    while (!p->failed && !at_op(p, "}")) {
        if (keys.n) jparse_expect(p, T_OP, ",");
        if (at_op(p, "}")) break;
        jnodes_add(p, &keys, jparse_expression(p, true));
        jparse_expect(p, T_OP, ":");
        jnodes_add(p, &values, jparse_expression(p, true));
    }
    jparse_expect(p, T_OP, "}");
    n->list = keys.v;
    n->n_list = keys.n;
    n->list2 = values.v;
    n->n_list2 = values.n;
    return n;
}

static struct jnode *parse_literal(struct jparser *p) {
    const struct jtok *t = p->tok++;
    struct jnode *n = jparse_node(p, N_CONST, t->line);
    switch (t->kind) {
    case T_INT:
        n->value = jint(t->i);
        break;
    case T_FLOAT:
        n->value = jfloat(t->f);
        break;
    case T_BIGINT:
        n->value = jparse_text(p, t->p, t->n);
        n->value.kind = J_BIG;
        break;
    default: { /* adjacent strings are one */
        size_t total = t->n;
        for (const struct jtok *more = p->tok; more->kind == T_STRING; more++)
            total += more->n;
        if (total == t->n) {
            while (p->tok->kind == T_STRING)
                p->tok++;
            n->value = jparse_text(p, t->p, t->n);
            break;
        }
        char *text = jparse_alloc(p, total + 1);
        if (p->failed) break;
        size_t at = 0;
        for (const struct jtok *part = t; part->kind == T_STRING; part++) {
            memcpy(text + at, part->p, part->n);
            at += part->n;
            p->tok = part + 1;
        }
        n->value = jparse_text(p, text, total);
    }
    }
    return n;
}

static struct jnode *parse_name(struct jparser *p) {
    const struct jtok *t = p->tok++;
    struct jnode *n = jparse_node(p, N_CONST, t->line);
    if (jtok_is(t, T_NAME, "true") || jtok_is(t, T_NAME, "True")) {
        n->value = jbool(true);
    } else if (jtok_is(t, T_NAME, "false") || jtok_is(t, T_NAME, "False")) {
        n->value = jbool(false);
    } else if (jtok_is(t, T_NAME, "none") || jtok_is(t, T_NAME, "None")) {
        n->value = jnone();
    } else {
        n->kind = N_NAME;
        n->sym = jparse_sym(p, t->p, t->n);
        n->value = jparse_text(p, t->p, t->n);
        p->n_varargs += n->sym == SYM_VARARGS;
        p->n_kwargs += n->sym == SYM_KWARGS;
        p->n_caller += n->sym == SYM_CALLER;
    }
    return n;
}

struct jnode *jparse_primary(struct jparser *p) {
    struct jnode *n = NULL;
    if (!jparse_enter(p)) return jparse_node(p, N_CONST, 0);
    if (p->tok->kind == T_NAME) {
        n = parse_name(p);
    } else if (p->tok->kind == T_STRING || p->tok->kind == T_INT || p->tok->kind == T_BIGINT ||
               p->tok->kind == T_FLOAT) {
        n = parse_literal(p);
    } else if (jparse_skip(p, T_OP, "(")) {
        n = jparse_tuple(p, true, true);
        jparse_expect(p, T_OP, ")");
    } else if (at_op(p, "[")) {
        n = parse_list(p);
    } else if (at_op(p, "{")) {
        n = parse_dict(p);
    } else {
        n = jparse_node(p, N_CONST, p->tok->line);
        if (p->tok->kind == T_OP)
            jparse_fail(p, p->tok->line, "unexpected '%.*s'", (int)p->tok->n, p->tok->p);
        else
            jparse_fail(p, p->tok->line, "an expression is missing before the end of the tag");
    }
    p->depth--;
    return n;
}

struct jnode *jparse_tuple(struct jparser *p, bool with_condition, bool parenthesized) {
    struct jnodes items = {0};
    int line = p->tok->line;
    bool tuple = false;
    while (!p->failed) {
        if (items.n) jparse_expect(p, T_OP, ",");
        if (p->tok->kind == T_VAR_END || p->tok->kind == T_BLOCK_END || at_op(p, ")")) break;
        jnodes_add(p, &items, jparse_expression(p, with_condition));
        if (!at_op(p, ",")) break;
        tuple = true;
    }
    if (!tuple && items.n == 1) return items.v[0];
    if (!tuple && !parenthesized) jparse_fail(p, line, "an expression is missing");
    struct jnode *n = jparse_node(p, N_TUPLE, line);
    n->list = items.v;
    n->n_list = items.n;
    return n;
}

/* One index of a subscript: an expression or from:to:step. */
static struct jnode *parse_index(struct jparser *p) {
    struct jnode *first = NULL;
    int line = p->tok->line;
    if (!at_op(p, ":")) {
        first = jparse_expression(p, true);
        if (!at_op(p, ":")) return first;
    }
    p->tok++;
    struct jnode *n = jparse_node(p, N_SLICE, line);
    n->a = first;
    if (!at_op(p, ":") && !at_op(p, "]") && !at_op(p, ",")) n->b = jparse_expression(p, true);
    if (jparse_skip(p, T_OP, ":") && !at_op(p, "]") && !at_op(p, ","))
        n->c = jparse_expression(p, true);
    return n;
}

static void resolve_methods(struct jnode *n) {
    const jstr *name = n->value.u.s;
    n->methods[0] = jbuiltin_find(jstr_methods, name->p, name->n);
    n->methods[1] = jbuiltin_find(jlist_methods, name->p, name->n);
    n->methods[2] = jbuiltin_find(jdict_methods, name->p, name->n);
}

static struct jnode *parse_subscript(struct jparser *p, struct jnode *object) {
    struct jnode *n = jparse_node(p, N_GETITEM, p->tok->line);
    n->a = object;
    if (jparse_skip(p, T_OP, ".")) {
        const struct jtok *t = p->tok;
        if (t->kind == T_NAME) {
            p->tok++;
            n->kind = N_GETATTR;
            n->value = jparse_text(p, t->p, t->n);
            if (!p->failed) resolve_methods(n);
        } else if (t->kind == T_INT) {
            n->b = parse_literal(p);
        } else {
            jparse_fail(p, t->line, "expected a name or a number after '.'");
        }
        return n;
    }
    p->tok++;
    struct jnodes keys = {0};
    while (!p->failed && !at_op(p, "]")) {
        if (keys.n) jparse_expect(p, T_OP, ",");
        jnodes_add(p, &keys, parse_index(p));
    }
    jparse_expect(p, T_OP, "]");
    if (!keys.n) {
        jparse_fail(p, n->line, "an index is missing between '[' and ']'");
    } else if (keys.n == 1) {
        n->b = keys.v[0];
    } else {
        n->b = jparse_node(p, N_TUPLE, n->line);
        n->b->list = keys.v;
        n->b->n_list = keys.n;
    }
    return n;
}

/* "(a, b, name=c, *d, **e)" into n. */
static void parse_arguments(struct jparser *p, struct jnode *n) {
    struct jnodes pos = {0}, values = {0}, names = {0};
    jparse_expect(p, T_OP, "(");
    bool first = true;
    while (!p->failed && !at_op(p, ")")) {
        if (!first) jparse_expect(p, T_OP, ",");
        if (at_op(p, ")")) break;
        first = false;
        bool bad = n->dstar != NULL;
        if (jparse_skip(p, T_OP, "*")) {
            bad = bad || n->star;
            n->star = jparse_expression(p, true);
        } else if (jparse_skip(p, T_OP, "**")) {
            n->dstar = jparse_expression(p, true);
        } else if (p->tok->kind == T_NAME && jtok_is(p->tok + 1, T_OP, "=")) {
            struct jnode *name = jparse_node(p, N_CONST, p->tok->line);
            name->value = jparse_text(p, p->tok->p, p->tok->n);
            p->tok += 2;
            jnodes_add(p, &names, name);
            jnodes_add(p, &values, jparse_expression(p, true));
        } else {
            bad = bad || n->star || names.n;
            jnodes_add(p, &pos, jparse_expression(p, true));
        }
        if (bad) jparse_fail(p, n->line, "invalid order of arguments in a call");
    }
    jparse_expect(p, T_OP, ")");
    if (p->failed) return;
    n->list = pos.v;
    n->n_list = pos.n;
    n->list2 = values.v;
    n->n_list2 = values.n;
    if (!names.n) return;
    n->kw_names = jparse_alloc(p, names.n * sizeof *n->kw_names);
    for (size_t i = 0; i < names.n && !p->failed; i++)
        n->kw_names[i] = names.v[i]->value.u.s;
}

struct jnode *jparse_postfix(struct jparser *p, struct jnode *n) {
    int levels = 0;
    while (!p->failed && (at_op(p, ".") || at_op(p, "[") || at_op(p, "("))) {
        if (++levels > J_MAX_PARSE_DEPTH) jparse_fail(p, n->line, "an expression is too long");
        if (at_op(p, "(")) {
            struct jnode *call = jparse_node(p, N_CALL, p->tok->line);
            call->a = n;
            parse_arguments(p, call);
            n = call;
        } else {
            n = parse_subscript(p, n);
        }
    }
    return n;
}

struct jnode *jparse_filters(struct jparser *p, struct jnode *subject, bool name_first) {
    struct jnode *n = subject;
    while (!p->failed && (name_first || jparse_skip(p, T_OP, "|"))) {
        name_first = false;
        const struct jtok *t = p->tok;
        if (t->kind != T_NAME) {
            jparse_fail(p, t->line, "expected the name of a filter");
            break;
        }
        p->tok++;
        struct jnode *f = jparse_node(p, N_FILTER, t->line);
        f->a = n;
        f->value = jparse_text(p, t->p, t->n);
        if (p->failed) break;
        f->def = jfilter_find(f->value.u.s);
        if (at_op(p, "(")) parse_arguments(p, f);
        n = f;
    }
    return n;
}

/* Does an argument without parentheses follow a test? */
static bool test_argument_follows(const struct jparser *p) {
    switch (p->tok->kind) {
    case T_NAME:
        return !jtok_is(p->tok, T_NAME, "else") && !jtok_is(p->tok, T_NAME, "or") &&
               !jtok_is(p->tok, T_NAME, "and");
    case T_STRING:
    case T_INT:
    case T_BIGINT:
    case T_FLOAT:
        return true;
    default:
        return at_op(p, "[") || at_op(p, "{");
    }
}

static struct jnode *parse_test(struct jparser *p, struct jnode *subject) {
    struct jnode *n = jparse_node(p, N_TEST, p->tok->line);
    bool negated = jparse_skip(p, T_NAME, "not");
    const struct jtok *t = p->tok;
    if (t->kind != T_NAME) {
        jparse_fail(p, t->line, "expected the name of a test after 'is'");
        return n;
    }
    p->tok++;
    n->a = subject;
    n->value = jparse_text(p, t->p, t->n);
    if (p->failed) return n;
    n->def = jbuiltin_find(jtests, t->p, t->n);
    if (at_op(p, "(")) {
        parse_arguments(p, n);
    } else if (jtok_is(p->tok, T_NAME, "is")) {
        jparse_fail(p, t->line, "tests cannot be chained with 'is'");
    } else if (test_argument_follows(p)) {
        struct jnodes args = {0};
        jnodes_add(p, &args, jparse_postfix(p, jparse_primary(p)));
        n->list = args.v;
        n->n_list = args.n;
    }
    if (!negated) return n;
    struct jnode *not = jparse_node(p, N_NOT, n->line);
    not ->a = n;
    return not ;
}

static struct jnode *parse_unary(struct jparser *p, bool with_filters) {
    struct jnode *n;
    if (!jparse_enter(p)) return jparse_node(p, N_CONST, 0);
    if (at_op(p, "-") || at_op(p, "+")) {
        n = jparse_node(p, *p->tok->p == '-' ? N_NEG : N_POS, p->tok->line);
        p->tok++;
        n->a = parse_unary(p, false);
    } else {
        n = jparse_primary(p);
    }
    n = jparse_postfix(p, n);
    for (int levels = 0; with_filters && !p->failed; levels++) {
        if (levels > J_MAX_PARSE_DEPTH) jparse_fail(p, n->line, "an expression is too long");
        if (at_op(p, "|"))
            n = jparse_filters(p, n, false);
        else if (jparse_skip(p, T_NAME, "is"))
            n = parse_test(p, n);
        else if (at_op(p, "("))
            n = jparse_postfix(p, n);
        else
            break;
    }
    p->depth--;
    return n;
}
