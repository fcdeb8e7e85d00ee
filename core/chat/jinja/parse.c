/* jinja/parse.c - parses statements into the syntax tree. */
#include "core/chat/jinja/parse_int.h"

#include <stdlib.h>
#include <string.h>

static struct jnode *parse_body(struct jparser *p, const char *const *ends);

static void expect_block_end(struct jparser *p) {
    if (p->failed) return;
    if (p->tok->kind != T_BLOCK_END) {
        const struct jtok *t = p->tok;
        jparse_fail(p, t->line, "expected the end of the tag, got '%.*s'",
                    t->n > 60 ? 60 : (int)t->n, t->p);
        return;
    }
    p->tok++;
}

/* Parses a body up to one of ends (NULL-terminated) and consumes that tag's name. *end: its index.
 */
static struct jnode *parse_body_until(struct jparser *p, const char *const *ends, int *end) {
    struct jnode *n = parse_body(p, ends);
    *end = -1;
    for (int i = 0; ends[i] && !p->failed; i++)
        if (jtok_is(p->tok, T_NAME, ends[i])) *end = i;
    if (*end >= 0) p->tok++;
    return n;
}

/* Parses a body up to its only end tag, and consumes that tag. */
static struct jnode *parse_body_to(struct jparser *p, const char *end) {
    const char *const ends[] = {end, NULL};
    int which;
    struct jnode *n = parse_body_until(p, ends, &which);
    expect_block_end(p);
    return n;
}

static struct jnode *parse_if(struct jparser *p, struct jnode *n) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct jnodes conds = {0}, bodies = {0};
    n->kind = S_IF;
    for (int end = 0; end == 0 && !p->failed;) {
        jnodes_add(p, &conds, jparse_tuple(p, true, false));
        expect_block_end(p);
        jnodes_add(p, &bodies, parse_body_until(p, ends, &end));
        if (end == 1) {
            expect_block_end(p);
            n->c = parse_body_to(p, "endif");
        } else if (end == 2) {
            expect_block_end(p);
        }
    }
    n->list = conds.v;
    n->n_list = conds.n;
    n->list2 = bodies.v;
    n->n_list2 = bodies.n;
    return n;
}

static struct jnode *parse_target(struct jparser *p, bool with_namespace) {
    struct jnodes items = {0};
    int line = p->tok->line;
    bool tuple = false;
    if (!jparse_enter(p)) return jparse_node(p, N_TUPLE, line);
    while (!p->failed && !jtok_is(p->tok, T_NAME, "in")) {
        struct jnode *one;
        if (with_namespace && p->tok->kind == T_NAME && jtok_is(p->tok + 1, T_OP, ".")) {
            one = jparse_node(p, N_NSREF, line);
            one->sym = jparse_sym(p, p->tok->p, p->tok->n);
            if (p->tok[2].kind != T_NAME)
                jparse_fail(p, line, "expected a name after '.'");
            else
                one->value = jparse_text(p, p->tok[2].p, p->tok[2].n);
            p->tok += p->failed ? 0 : 3;
        } else if (jparse_skip(p, T_OP, "(")) {
            one = parse_target(p, with_namespace);
            jparse_expect(p, T_OP, ")");
        } else {
            one = jparse_primary(p);
            if (one->kind != N_NAME) jparse_fail(p, line, "cannot assign to this");
        }
        jnodes_add(p, &items, one);
        if (!jparse_skip(p, T_OP, ",")) break;
        tuple = true;
        if (jtok_is(p->tok, T_OP, "=") || jtok_is(p->tok, T_OP, ")")) break;
    }
    p->depth--;
    if (!items.n) jparse_fail(p, line, "expected a name to assign to");
    if (items.n == 1 && !tuple) return items.v[0];
    struct jnode *n = jparse_node(p, N_TUPLE, line);
    n->list = items.v;
    n->n_list = items.n;
    return n;
}

static struct jnode *parse_for(struct jparser *p, struct jnode *n) {
    static const char *const ends[] = {"endfor", "else", NULL};
    struct jnodes parts = {0};
    int end;
    n->kind = S_FOR;
    n->a = parse_target(p, false);
    jparse_expect(p, T_NAME, "in");
    n->b = jparse_tuple(p, false, false);
    if (jparse_skip(p, T_NAME, "if")) n->c = jparse_expression(p, true);
    n->op = jparse_skip(p, T_NAME, "recursive");
    expect_block_end(p);
    p->loop_depth++;
    jnodes_add(p, &parts, parse_body_until(p, ends, &end));
    p->loop_depth--;
    expect_block_end(p);
    if (end == 1) jnodes_add(p, &parts, parse_body_to(p, "endfor"));
    n->list = parts.v;
    n->n_list = parts.n;
    return n;
}

static struct jnode *parse_set(struct jparser *p, struct jnode *n) {
    n->kind = S_SET;
    n->a = parse_target(p, true);
    if (jparse_skip(p, T_OP, "=")) {
        n->b = jparse_tuple(p, true, false);
        expect_block_end(p);
        return n;
    }
    n->kind = S_SET_BLOCK;
    n->b = jparse_filters(p, jparse_node(p, N_CAPTURED, n->line), false);
    expect_block_end(p);
    n->c = parse_body_to(p, "endset");
    return n;
}

/* "(a, b=1)" of a macro or call block. */
static void parse_parameters(struct jparser *p, struct jnode *n) {
    struct jnodes names = {0}, defaults = {0};
    jparse_expect(p, T_OP, "(");
    while (!p->failed && !jtok_is(p->tok, T_OP, ")")) {
        if (names.n) jparse_expect(p, T_OP, ",");
        struct jnode *name = jparse_primary(p);
        if (name->kind != N_NAME) jparse_fail(p, n->line, "expected the name of a parameter");
        jnodes_add(p, &names, name);
        if (jparse_skip(p, T_OP, "="))
            jnodes_add(p, &defaults, jparse_expression(p, true));
        else if (defaults.n)
            jparse_fail(p, n->line, "a parameter without default follows one with a default");
    }
    jparse_expect(p, T_OP, ")");
    n->list = names.v;
    n->n_list = names.n;
    n->list2 = defaults.v;
    n->n_list2 = defaults.n;
}

/* The body of a macro; notes which of the implicit variables it uses. */
static void parse_macro_body(struct jparser *p, struct jnode *n, const char *end) {
    unsigned varargs = p->n_varargs, kwargs = p->n_kwargs, caller = p->n_caller;
    int loops = p->loop_depth;
    p->loop_depth = 0;
    n->c = parse_body_to(p, end);
    p->loop_depth = loops;
    n->op = (uint8_t)((p->n_varargs > varargs ? J_MACRO_VARARGS : 0) |
                      (p->n_kwargs > kwargs ? J_MACRO_KWARGS : 0) |
                      (p->n_caller > caller ? J_MACRO_CALLER : 0));
}

static struct jnode *parse_macro(struct jparser *p, struct jnode *n) {
    n->kind = S_MACRO;
    const struct jtok *t = p->tok;
    if (t->kind != T_NAME) {
        jparse_fail(p, t->line, "expected the name of the macro");
        return n;
    }
    p->tok++;
    n->sym = jparse_sym(p, t->p, t->n);
    n->value = jparse_text(p, t->p, t->n);
    parse_parameters(p, n);
    expect_block_end(p);
    parse_macro_body(p, n, "endmacro");
    return n;
}

static struct jnode *parse_call_block(struct jparser *p, struct jnode *n) {
    n->kind = S_CALL_BLOCK;
    n->b = jparse_node(p, S_MACRO, n->line);
    n->b->value = jparse_text(p, "caller", 6);
    if (jtok_is(p->tok, T_OP, "(")) parse_parameters(p, n->b);
    n->a = jparse_expression(p, true);
    if (n->a->kind != N_CALL) jparse_fail(p, n->line, "expected a call");
    expect_block_end(p);
    parse_macro_body(p, n->b, "endcall");
    return n;
}

static struct jnode *parse_filter_block(struct jparser *p, struct jnode *n) {
    n->kind = S_FILTER_BLOCK;
    n->b = jparse_filters(p, jparse_node(p, N_CAPTURED, n->line), true);
    expect_block_end(p);
    n->c = parse_body_to(p, "endfilter");
    return n;
}

static struct jnode *parse_with(struct jparser *p, struct jnode *n) {
    struct jnodes targets = {0}, values = {0};
    n->kind = S_WITH;
    while (!p->failed && p->tok->kind != T_BLOCK_END) {
        if (targets.n) jparse_expect(p, T_OP, ",");
        struct jnode *target = jparse_primary(p);
        if (target->kind != N_NAME) jparse_fail(p, n->line, "expected a name");
        jnodes_add(p, &targets, target);
        jparse_expect(p, T_OP, "=");
        jnodes_add(p, &values, jparse_expression(p, true));
    }
    expect_block_end(p);
    n->list = targets.v;
    n->n_list = targets.n;
    n->list2 = values.v;
    n->n_list2 = values.n;
    n->c = parse_body_to(p, "endwith");
    return n;
}

static struct jnode *parse_jump(struct jparser *p, struct jnode *n, enum jnode_kind kind) {
    n->kind = (uint8_t)kind;
    if (!p->loop_depth) jparse_fail(p, n->line, "break or continue outside of a loop");
    expect_block_end(p);
    return n;
}

/* Parses the tag whose "{%" was just consumed. */
static struct jnode *parse_statement(struct jparser *p) {
    const struct jtok *t = p->tok;
    struct jnode *n = jparse_node(p, S_BODY, t->line);
    if (t->kind != T_NAME) {
        jparse_fail(p, t->line, "expected the name of a tag");
        return n;
    }
    p->tok++;
    if (jtok_is(t, T_NAME, "if")) return parse_if(p, n);
    if (jtok_is(t, T_NAME, "for")) return parse_for(p, n);
    if (jtok_is(t, T_NAME, "set")) return parse_set(p, n);
    if (jtok_is(t, T_NAME, "macro")) return parse_macro(p, n);
    if (jtok_is(t, T_NAME, "call")) return parse_call_block(p, n);
    if (jtok_is(t, T_NAME, "filter")) return parse_filter_block(p, n);
    if (jtok_is(t, T_NAME, "with")) return parse_with(p, n);
    if (jtok_is(t, T_NAME, "break")) return parse_jump(p, n, S_BREAK);
    if (jtok_is(t, T_NAME, "continue")) return parse_jump(p, n, S_CONTINUE);
    if (jtok_is(t, T_NAME, "generation")) {
        expect_block_end(p);
        return parse_body_to(p, "endgeneration");
    }
    jparse_fail(p, t->line, "unknown tag '%.*s'", t->n > 60 ? 60 : (int)t->n, t->p);
    return n;
}

static bool at_end_tag(const struct jparser *p, const char *const *ends) {
    for (int i = 0; ends && ends[i]; i++)
        if (jtok_is(p->tok, T_NAME, ends[i])) return true;
    return false;
}

/* Parses statements up to one of the end tags (consumes its "{%", but not its name) or, with NULL,
 * up to the end of the template. */
static struct jnode *parse_body(struct jparser *p, const char *const *ends) {
    struct jnodes items = {0};
    struct jnode *n = jparse_node(p, S_BODY, p->tok->line);
    if (!jparse_enter(p)) return n;
    for (bool more = true; more && !p->failed;) {
        const struct jtok *t = p->tok++;
        struct jnode *one = NULL;
        switch (t->kind) {
        case T_DATA:
            one = jparse_node(p, S_DATA, t->line);
            one->value = jparse_text(p, t->p, t->n);
            break;
        case T_VAR_BEGIN:
            one = jparse_node(p, S_OUTPUT, t->line);
            one->a = jparse_tuple(p, true, false);
            if (!p->failed && p->tok->kind != T_VAR_END)
                jparse_fail(p, p->tok->line, "expected '}}', got '%.*s'",
                            p->tok->n > 60 ? 60 : (int)p->tok->n, p->tok->p);
            p->tok += !p->failed;
            break;
        case T_BLOCK_BEGIN:
            if (at_end_tag(p, ends))
                more = false;
            else
                one = parse_statement(p);
            break;
        default:
            p->tok--;
            more = false;
            if (ends)
                jparse_fail(p, t->line, "the template ends before '%s' of the block in line %d",
                            ends[1] && ends[2] ? ends[2] : ends[0], n->line);
        }
        if (one) jnodes_add(p, &items, one);
    }
    p->depth--;
    n->list = items.v;
    n->n_list = items.n;
    return n;
}

int jparse(jinja_template *t, const char *source, err *e) {
    static const char *const fixed[SYM_FIXED] = {[SYM_LOOP] = "loop",
                                                 [SYM_CALLER] = "caller",
                                                 [SYM_VARARGS] = "varargs",
                                                 [SYM_KWARGS] = "kwargs"};
    struct jtok *tokens;
    size_t n_tokens;
    int rc = jlex(t->mem, source, &tokens, &n_tokens, e);
    if (rc) return rc;
    err own = {0};
    struct jparser p = {.t = t, .tok = tokens, .e = &own};
    for (int i = 0; i < SYM_FIXED; i++)
        jparse_sym(&p, fixed[i], strlen(fixed[i]));
    t->root = parse_body(&p, NULL);
    free(tokens);
    if (!p.failed) return 0;
    return err_set(e, own.code, "%s", own.msg);
}
