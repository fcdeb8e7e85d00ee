/* ast_int.h - private to core/chat/jinja: the syntax tree and the compiled template. Both lie in
 * the template's arena and are never written after compilation. */
#ifndef INFERD_JINJA_AST_INT_H
#define INFERD_JINJA_AST_INT_H

#include "core/chat/jinja/value_int.h"

enum jnode_kind {
    N_CONST,
    N_NAME,
    N_LIST,
    N_TUPLE,
    N_DICT,
    N_GETATTR,
    N_GETITEM,
    N_SLICE,
    N_CALL,
    N_FILTER,
    N_TEST,
    N_COND,
    N_OR,
    N_AND,
    N_NOT,
    N_COMPARE,
    N_BINARY,
    N_CONCAT,
    N_NEG,
    N_POS,
    N_CAPTURED, /* the text of the block that a filter is applied to */
    N_NSREF,
    S_BODY,
    S_DATA,
    S_OUTPUT,
    S_IF,
    S_FOR,
    S_SET,
    S_SET_BLOCK,
    S_MACRO,
    S_CALL_BLOCK,
    S_FILTER_BLOCK,
    S_WITH,
    S_BREAK,
    S_CONTINUE
};

/* Meaning of the fields by kind:
 *   N_CONST, S_DATA   value
 *   N_NAME            sym, value = the name
 *   N_LIST, N_TUPLE   list; N_DICT: list = keys, list2 = values
 *   N_GETATTR         a = object, value = name; methods = what the name means on built-in types
 *   N_GETITEM         a = object, b = key; N_SLICE: a, b, c, each may be NULL
 *   N_CALL            a = callee; list = positional, list2 = keyword values with kw_names,
 *                     star, dstar = *args, **kwargs
 *   N_FILTER, N_TEST  a = subject, def (NULL: unknown), value = name; arguments as N_CALL
 *   N_COND            a if b else c (c may be NULL)
 *   N_COMPARE         a, list = right operands, ops
 *   N_BINARY          op, a, b; N_AND, N_OR: a, b; N_NOT, N_NEG, N_POS: a; N_CONCAT: list
 *   N_NSREF           sym, value = attribute
 *   S_BODY            list; S_OUTPUT: a
 *   S_IF              list = conditions, list2 = bodies, c = else body or NULL
 *   S_FOR             a = target, b = sequence, c = condition or NULL, list = body, else (or NULL),
 *                     op = 1 when recursive
 *   S_SET             a = target, b = value; S_SET_BLOCK: a = target, b = filters on N_CAPTURED,
 *                     c = body; S_FILTER_BLOCK: b, c alike
 *   S_MACRO           sym, value = name; list = parameters (N_NAME), list2 = defaults of the last
 *                     ones, c = body, op = J_MACRO_* flags
 *   S_CALL_BLOCK      a = call, b = the block as a nameless S_MACRO
 *   S_WITH            list = targets, list2 = values, c = body */
struct jnode {
    uint8_t kind, op;
    int line, sym;
    jval value;
    struct jnode *a, *b, *c;
    struct jnode **list, **list2;
    size_t n_list, n_list2;
    const jstr **kw_names;
    struct jnode *star, *dstar;
    const uint8_t *ops;
    const struct jbuiltin *def;
    const struct jbuiltin *methods[3]; /* of str, list/tuple, dict */
};

enum { J_MACRO_VARARGS = 1, J_MACRO_KWARGS = 2, J_MACRO_CALLER = 4 };

/* Symbols that the interpreter itself sets, in this order, before the template's own. */
enum jsym { SYM_LOOP, SYM_CALLER, SYM_VARARGS, SYM_KWARGS, SYM_FIXED };

struct jinja_template {
    arena *mem;
    struct jnode *root;
    const jstr **syms; /* (n_syms) names */
    size_t n_syms, cap_syms;
};

int jsym_find(const jinja_template *t, const char *name, size_t n); /* -1: not used */

#endif
