/* jinja/parser.c - the parser's state: failure, nodes, symbols and tokens. The tree lies in the
 * template's arena. */
#include "core/chat/jinja/parse_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void jparse_fail(struct jparser *p, int line, const char *fmt, ...) {
    if (p->failed) return;
    p->failed = true;
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    err_set(p->e, ERR_FORMAT, "chat template, line %d: %s", line, text);
}

void *jparse_alloc(struct jparser *p, size_t bytes) {
    void *m = p->failed ? NULL : arena_alloc(p->t->mem, bytes);
    if (m) return m;
    if (!p->failed) {
        p->failed = true;
        err_set(p->e, ERR_NOMEM, "the chat template is too large");
    }
    return memset(&p->spare, 0, sizeof p->spare);
}

struct jnode *jparse_node(struct jparser *p, enum jnode_kind kind, int line) {
    struct jnode *n = jparse_alloc(p, sizeof *n);
    n->kind = (uint8_t)kind;
    n->line = line;
    return n;
}

bool jparse_enter(struct jparser *p) {
    if (p->failed) return false;
    if (p->depth >= J_MAX_PARSE_DEPTH) {
        jparse_fail(p, p->tok->line, "nested too deep");
        return false;
    }
    p->depth++;
    return true;
}

bool jtok_is(const struct jtok *t, enum jtok_kind kind, const char *text) {
    return t->kind == kind && strlen(text) == t->n && memcmp(t->p, text, t->n) == 0;
}

bool jparse_skip(struct jparser *p, enum jtok_kind kind, const char *text) {
    if (p->failed || !jtok_is(p->tok, kind, text)) return false;
    p->tok++;
    return true;
}

void jparse_expect(struct jparser *p, enum jtok_kind kind, const char *text) {
    if (jparse_skip(p, kind, text)) return;
    const struct jtok *t = p->tok;
    if (t->kind == T_NAME || t->kind == T_OP)
        jparse_fail(p, t->line, "expected '%s', got '%.*s'", text, t->n > 60 ? 60 : (int)t->n,
                    t->p);
    else
        jparse_fail(p, t->line, "expected '%s'", text);
}

jval jparse_text(struct jparser *p, const char *bytes, size_t n) {
    jstr *s = jparse_alloc(p, sizeof *s);
    *s = (jstr){.p = bytes, .n = n, .n_chars = utf8_count_lossy(bytes, n), .trusted = true};
    return jstr_val(s);
}

int jsym_find(const jinja_template *t, const char *name, size_t n) {
    for (size_t i = 0; i < t->n_syms; i++)
        if (t->syms[i]->n == n && memcmp(t->syms[i]->p, name, n) == 0) return (int)i;
    return -1;
}

int jparse_sym(struct jparser *p, const char *name, size_t n) {
    jinja_template *t = p->t;
    int found = jsym_find(t, name, n);
    if (found >= 0 || p->failed) return found >= 0 ? found : 0;
    if (t->n_syms == 4096) {
        jparse_fail(p, p->tok->line, "more than 4096 names");
        return 0;
    }
    if (t->n_syms == t->cap_syms) {
        size_t cap = t->cap_syms ? t->cap_syms * 2 : 64;
        const jstr **syms = arena_alloc(t->mem, cap * sizeof *syms);
        if (!syms) {
            jparse_alloc(p, SIZE_MAX / 2); /* reports the full arena */
            return 0;
        }
        if (t->n_syms) memcpy(syms, t->syms, t->n_syms * sizeof *syms);
        t->syms = syms;
        t->cap_syms = cap;
    }
    jval text = jparse_text(p, name, n);
    if (p->failed) return 0;
    t->syms[t->n_syms] = text.u.s;
    return (int)t->n_syms++;
}

void jnodes_add(struct jparser *p, struct jnodes *list, struct jnode *node) {
    if (p->failed) return;
    if (list->n == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 4;
        struct jnode **v = arena_alloc(p->t->mem, cap * sizeof *v);
        if (!v) {
            jparse_alloc(p, SIZE_MAX / 2);
            return;
        }
        if (list->n) memcpy(v, list->v, list->n * sizeof *v);
        list->v = v;
        list->cap = cap;
    }
    list->v[list->n++] = node;
}
