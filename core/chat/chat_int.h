/* chat_int.h - private to core/chat: values, syntax tree and the interpreter's state.
 *
 * Memory: the syntax tree and its constants live in the template's arena and are never written
 * after compilation. Everything that a render makes lives in the render's arena, freed at its end;
 * jstr bytes may also be borrowed from the tree or from the caller's JSON.
 *
 * Failure is sticky: the first jfail() of a render or a parse sets `failed` and fills the err; what
 * runs afterwards must be harmless and short, so loops test `failed` and values become undefined.
 *
 * Provenance: a string knows for each byte whether the template wrote it (trusted) or whether it
 * came from input. Scalars carry one flag. An operation that cannot say keeps "untrusted". */
#ifndef INFERD_CHAT_INT_H
#define INFERD_CHAT_INT_H

#include "core/base/err.h"
#include "core/base/mem.h"
#include "core/chat/chat.h"
#include "core/chat/syntax.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    J_MAX_STEPS = 5000000,   /* nodes evaluated, plus one for each 64 bytes or item copied */
    J_MAX_DEPTH = 500,       /* nested evaluations: expressions, blocks, macro calls */
    J_MAX_PARSE_DEPTH = 150, /* nested expressions and blocks in the source */
    J_MAX_VALUE_DEPTH = 256, /* nested containers when compared or printed */
    J_MAX_RANGE = 100000     /* items of range(), as Jinja's sandbox has it */
};

enum jkind {
    J_UNDEF,
    J_NONE,
    J_BOOL,
    J_INT,
    J_BIG, /* integer beyond int64_t: kept as its digits, computes as a float */
    J_FLOAT,
    J_STR,
    J_LIST,
    J_TUPLE,
    J_DICT,
    J_NAMESPACE,
    J_GEN, /* what Python makes a generator: one pass, no length */
    J_LOOP,
    J_MACRO,
    J_FUNC,
    J_METHOD,
    J_CYCLER,
    J_ABSENT /* an argument that was not given; never seen by templates */
};

struct jnode;
struct jctx;
struct jargs;

/* Part of a string with one provenance; ends are ascending and the last is the string's length. */
struct jrun {
    size_t end;
    bool trusted;
};

typedef struct jstr {
    const char *p; /* (n) bytes, UTF-8 where the source was; not NUL-terminated */
    size_t n;
    size_t n_chars;          /* code points; a malformed byte counts as one */
    const struct jrun *runs; /* NULL: all of it is `trusted` */
    size_t n_runs;
    bool trusted;
    bool markup; /* went through `safe` or `escape`: joining it with other text escapes that */
} jstr;

struct jundef {
    const char *owner; /* "str", "dict", ...: type of the object asked; NULL for a plain name */
    const jstr *name;
    bool unsafe; /* the immutable sandbox hides it */
};

typedef struct jval {
    uint8_t kind;   /* enum jkind */
    bool untrusted; /* scalars only */
    union {
        bool b;
        int64_t i;
        double f;
        const jstr *s; /* J_STR, J_BIG */
        struct jundef *undef;
        struct jlist *list; /* J_LIST, J_TUPLE, J_GEN, J_CYCLER */
        struct jdict *dict; /* J_DICT, J_NAMESPACE */
        struct jloop *loop;
        struct jmacro *macro;
        const struct jbuiltin *func;
        struct jmethod *method;
    } u;
} jval;

struct jlist {
    jval *v;
    size_t n, cap;
    size_t pos; /* J_GEN: items already taken; J_CYCLER: current item */
};

struct jentry {
    jval key, value;
    uint64_t hash;
};

struct jdict {
    struct jentry *e; /* (n) in order of insertion */
    size_t n, cap;
    uint32_t *slots; /* (n_slots) entry + 1, 0 = free; NULL while small */
    size_t n_slots;
};

/* A filter, test, method or global function. self is the piped value or the object. */
typedef jval (*jfn)(struct jctx *c, jval self, struct jargs *a);

struct jbuiltin {
    const char *name;
    jfn fn;
    bool mutates; /* refused in the immutable sandbox */
};

struct jmethod {
    jval self;
    const struct jbuiltin *def;
};

struct jargs {
    jval *pos;
    size_t n_pos;
    const jstr **kw_names;
    jval *kw;
    size_t n_kw;
};

/* Names set in a block; the outermost level is jctx.globals instead. */
struct jscope {
    struct jscope *parent;
    struct jvar {
        int sym;
        jval v;
    } * vars;
    size_t n, cap;
    bool kept; /* a macro may still look here after the block has ended */
};

struct jloop {
    jval *items;
    size_t n, i;
    int64_t depth0;
    const struct jnode *node; /* the for statement, for recursive loops */
    struct jscope *scope;     /* around the statement */
    jval changed;             /* last value given to loop.changed() */
};

struct jmacro {
    const struct jnode *node;
    struct jscope *scope;
};

/* String under construction, in the render's arena. */
typedef struct jsb {
    struct jctx *c;
    char *p;
    size_t n, cap, max;
    struct jrun *runs;
    size_t n_runs, cap_runs;
    bool markup; /* of the string that is made */
} jsb;

typedef struct jctx {
    arena *mem;
    err *e;
    struct chat_failure *failure;
    bool failed;
    int line;
    int depth, value_depth;
    uint64_t steps, max_steps;
    struct work *work; /* chat_input's */
    int64_t now;
    bool allow_mutation;
    const struct chat_template *tmpl;
    jval *globals; /* (tmpl->n_syms) */
    struct jscope *scope;
    jsb *out;
    jval captured; /* of the set, filter or call block that is being finished */
    enum { J_FLOW_NEXT, J_FLOW_BREAK, J_FLOW_CONTINUE } flow;
} jctx;

/* ---- syntax tree (jinja/parse.c, jinja/expr.c) */

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

enum jop {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN
};

/* Symbols that the interpreter itself sets, in this order, before the template's own. */
enum jsym {
    SYM_MESSAGES,
    SYM_TOOLS,
    SYM_DOCUMENTS,
    SYM_ADD_GENERATION_PROMPT,
    SYM_BOS_TOKEN,
    SYM_EOS_TOKEN,
    SYM_LOOP,
    SYM_CALLER,
    SYM_VARARGS,
    SYM_KWARGS,
    SYM_FIXED
};

/* Roles whose content may be an array of parts for a template, or not. */
enum jrole { JROLE_SYSTEM, JROLE_USER, JROLE_ASSISTANT, JROLE_TOOL, JROLE_COUNT };

/* What has to be done to messages before the template takes them (probe.c). All zero: nothing. */
struct chat_traits {
    bool arguments_to_object, arguments_to_text;
    bool null_to_empty; /* content beside tool calls */
    bool empty_to_null;
    bool absent_to_null, absent_to_empty;
    bool join_parts[JROLE_COUNT], wrap_text[JROLE_COUNT];
    bool refuses_developer, copies_developer;
    bool tool_needs_name;
    bool ids_of_nine; /* a call's id has nine letters and digits */
};

struct chat_template {
    arena *mem;
    const char *source; /* as it came */
    struct chat_traits traits;
    struct chat_syntax syntax;
    struct chat_template *tool_variant; /* NULL: none */
    struct jnode *root;
    const jstr **syms; /* (n_syms) names */
    size_t n_syms, cap_syms;
    jval bos, eos;
};

/* As chat_render, with a bound of its own on steps. */
int jrender(const struct chat_template *t, const struct chat_input *in, size_t max_bytes,
            uint64_t max_steps, struct chat_output *out, err *e);
/* As chat_render, then with the leniency that chat_prompt tells of. */
int jrender_lenient(const struct chat_template *t, const struct chat_input *in, size_t max_bytes,
                    uint64_t max_steps, struct chat_output *out, err *e);
/* As chat_prompt, with a bound of its own on steps. */
int jprompt(const struct chat_template *t, const struct chat_input *in, size_t max_bytes,
            uint64_t max_steps, struct chat_output *out, err *e);

int jsym_find(const struct chat_template *t, const char *name, size_t n); /* -1: not used */

/* ---- lexer (jinja/lex.c) */

enum jtok_kind {
    T_END,
    T_DATA,
    T_VAR_BEGIN,
    T_VAR_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_BIGINT,
    T_FLOAT,
    T_OP /* text holds the operator */
};

struct jtok {
    uint8_t kind;
    int line;
    const char *p; /* text: decoded for strings, plain otherwise */
    size_t n;
    int64_t i;
    double f;
};

/* Cuts source into tokens, the last T_END. 0 or ERR_FORMAT with the line, ERR_NOMEM. */
int jlex(arena *mem, const char *source, struct jtok **tokens, size_t *n_tokens, err *e);

/* ---- parser */

struct jparser {
    struct chat_template *t;
    const struct jtok *tok; /* current */
    err *e;
    bool failed;
    int depth;
    int loop_depth;                         /* for break and continue */
    unsigned n_varargs, n_kwargs, n_caller; /* uses seen, to find those inside a macro */
    union {
        struct jnode node;
        char bytes[512];
    } spare; /* what a failed parser writes to; never read as a tree */
};

int jparse(struct chat_template *t, const char *source, err *e);

void jparse_fail(struct jparser *p, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void *jparse_alloc(struct jparser *p, size_t bytes); /* never NULL; once failed, the spare */
struct jnode *jparse_node(struct jparser *p, enum jnode_kind kind, int line);
bool jparse_enter(struct jparser *p); /* one level deeper; pair with p->depth-- when true */
int jparse_sym(struct jparser *p, const char *name, size_t n);
bool jtok_is(const struct jtok *t, enum jtok_kind kind, const char *text);
bool jparse_skip(struct jparser *p, enum jtok_kind kind, const char *text);
void jparse_expect(struct jparser *p, enum jtok_kind kind, const char *text);
jval jparse_text(struct jparser *p, const char *bytes, size_t n); /* trusted constant */

/* Growing array of nodes, in the template's arena. */
struct jnodes {
    struct jnode **v;
    size_t n, cap;
};
void jnodes_add(struct jparser *p, struct jnodes *list, struct jnode *node);

struct jnode *jparse_expression(struct jparser *p, bool with_condition);
/* Expressions separated by commas make a tuple. end_in: "in" also ends it. */
struct jnode *jparse_tuple(struct jparser *p, bool with_condition, bool parenthesized);
struct jnode *jparse_target(struct jparser *p, bool with_namespace); /* for and set */
struct jnode *jparse_filters(struct jparser *p, struct jnode *subject, bool name_first);
struct jnode *jparse_primary(struct jparser *p);
struct jnode *jparse_postfix(struct jparser *p, struct jnode *node);

/* ---- evaluation (jinja/eval.c, jinja/exec.c) */

jval jeval(jctx *c, const struct jnode *n);
void jexec(jctx *c, const struct jnode *n);
jval jcall(jctx *c, jval callee, struct jargs *a);
jval jmacro_call(jctx *c, struct jmacro *m, struct jargs *a);
jval jloop_call(jctx *c, struct jloop *loop, struct jargs *a);
jval jloop_attr(jctx *c, struct jloop *loop, const jstr *name);
bool jscope_set(jctx *c, int sym, jval v);
bool jenter(jctx *c); /* recursion bound; pair with c->depth-- when true */

/* ---- operators (jinja/ops.c) */

jval jop_binary(jctx *c, enum jop op, jval a, jval b);
bool jop_compare(jctx *c, enum jop op, jval a, jval b);
jval jget_attr(jctx *c, jval object, const jstr *name);
jval jget_item(jctx *c, jval object, jval key);
jval jget_path(jctx *c, jval object, jval path); /* "a.b.0" of map, selectattr, sort ... */
jval jslice(jctx *c, jval object, jval from, jval to, jval step);
const struct jbuiltin *jmethod_find(jval object, const jstr *name);
jval jmethod_bind(jctx *c, jval self, const struct jbuiltin *def);
jval jformat_percent(jctx *c, const jstr *fmt, jval args);

/* ---- failure and cost (jinja/value.c) */

/* Fails the render with "line N: text", as Python's TypeError or another. Returns undefined. */
jval jfail(jctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
jval jfail_as(jctx *c, enum chat_fault fault, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* One of our bounds; code: err_code. */
void jfail_limit(jctx *c, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
jval jfail_undef(jctx *c, jval undef); /* using an undefined value */
bool jcharge(jctx *c, uint64_t units); /* spends steps; false when spent */
void *jalloc(jctx *c, uint64_t bytes); /* NULL and failed at the memory bound */

/* ---- values (jinja/value.c) */

static inline jval jundef_plain(void) {
    return (jval){.kind = J_UNDEF};
}
static inline jval jabsent(void) {
    return (jval){.kind = J_ABSENT};
}
static inline jval jnone(void) {
    return (jval){.kind = J_NONE};
}
static inline jval jbool(bool b) {
    return (jval){.kind = J_BOOL, .u.b = b};
}
static inline jval jint(int64_t i) {
    return (jval){.kind = J_INT, .u.i = i};
}
static inline jval jfloat(double f) {
    return (jval){.kind = J_FLOAT, .u.f = f};
}
static inline jval jstr_val(const jstr *s) {
    return (jval){.kind = J_STR, .u.s = s};
}
static inline bool jis_number(jval v) {
    return v.kind == J_BOOL || v.kind == J_INT || v.kind == J_FLOAT || v.kind == J_BIG;
}

const char *jtype_name(jval v); /* Python's: 'str', 'int', 'NoneType' ... */
bool jtruth(jval v);
bool jequal(jctx *c, jval a, jval b);
int jorder(jctx *c, jval a, jval b); /* <0, 0, >0; fails where Python has no order */
double jnumber(jval v);              /* of a number */
bool jcontains(jctx *c, jval container, jval item);
int64_t jlength(jctx *c, jval v); /* fails where Python has no len() */

jval jundef_make(jctx *c, const char *owner, const jstr *name);

jval jlist_make(jctx *c, enum jkind kind, size_t cap);
bool jlist_push(jctx *c, struct jlist *l, jval v);
/* The items of anything iterable; fails with "not iterable" otherwise. The array may be the list's
 * own: do not write to it. */
bool jiterate(jctx *c, jval v, jval **items, size_t *n);

jval jdict_make(jctx *c, enum jkind kind, size_t cap);
bool jdict_set(jctx *c, struct jdict *d, jval key, jval value); /* fails on an unhashable key */
jval *jdict_get(jctx *c, const struct jdict *d, jval key);      /* NULL: not there */
void jdict_remove(jctx *c, struct jdict *d, size_t entry);
jval jdict_pairs(jctx *c, const struct jdict *d); /* list of (key, value) */

/* ---- strings (jinja/str.c) */

const jstr *jstr_new(jctx *c, const char *p, size_t n, bool trusted); /* borrows the bytes */
jval jtext(jctx *c, const char *literal);                             /* trusted, static storage */
jval jstr_slice(jctx *c, const jstr *s, size_t from, size_t to);      /* bytes */
bool jstr_trusted(const jstr *s, size_t from, size_t to);             /* all of these bytes? */
jval jstr_mark(jctx *c, const jstr *s, bool markup);
bool jstr_is(const jstr *s, const char *text);
bool jstr_eq(const jstr *a, const jstr *b);
size_t jstr_offset(const jstr *s, size_t chars); /* byte offset of a code point */

void jsb_init(jsb *b, jctx *c);
void jsb_add(jsb *b, const char *p, size_t n, bool trusted);
void jsb_text(jsb *b, const char *literal, bool trusted);
void jsb_str(jsb *b, const jstr *s);
void jsb_slice(jsb *b, const jstr *s, size_t from, size_t to);
void jsb_char(jsb *b, uint32_t code_point, bool trusted);
void jsb_escaped(jsb *b, const jstr *s); /* HTML-escaped unless s is markup */
jval jsb_done(jsb *b);

size_t u8_len(const char *p, size_t n); /* bytes of the character at p, 1 if malformed; n > 0 */
uint32_t u8_get(const char *p, size_t n, size_t *len); /* U+FFFD if malformed */
size_t u8_put(char out[4], uint32_t code_point);
size_t u8_count(const char *p, size_t n);
bool uc_is_space(uint32_t cp);
bool uc_is_alpha(uint32_t cp);
bool uc_is_upper(uint32_t cp);
bool uc_is_lower(uint32_t cp);
uint32_t uc_upper(uint32_t cp);
uint32_t uc_lower(uint32_t cp);

/* ---- text of values (jinja/text.c) */

enum { J_FLOAT_CHARS = 40 };
void jfloat_text(double f, char out[J_FLOAT_CHARS]); /* Python's repr */
const jstr *jto_str(jctx *c, jval v);                /* Python's str(); NULL when failed */
void jput_str(jsb *b, jval v);
void jput_repr(jsb *b, jval v, bool trusted);
bool jall_trusted(jctx *c, jval v);

struct jjson_style {
    const jstr *indent; /* NULL: one line */
    const jstr *item_sep, *key_sep;
    bool sort_keys, ensure_ascii;
};
jval jto_json(jctx *c, jval v, const struct jjson_style *style);

/* ---- builtins */

extern const struct jbuiltin jfilters[], jfilters_seq[], jtests[], jglobals[]; /* name NULL ends */
extern const struct jbuiltin jstr_methods[], jlist_methods[], jdict_methods[], jcycler_methods[];
extern const struct jbuiltin jloop_methods[];
const struct jbuiltin *jbuiltin_find(const struct jbuiltin *table, const char *p, size_t n);
const struct jbuiltin *jfilter_find(const jstr *name);
jval jstr_format(jctx *c, jval self, struct jargs *a); /* str.format */

/* Binds arguments to parameters: names (n) separated by spaces, the first n_required must be there;
 * out (n) gets J_ABSENT for the others. what: for the error. */
bool jbind(jctx *c, const char *what, const char *names, size_t n_required, struct jargs *a,
           jval *out);
bool jarg_int(jctx *c, jval v, int64_t fallback, int64_t *out); /* J_ABSENT: fallback */
const jstr *jarg_str(jctx *c, jval v);                          /* must be a string; NULL: failed */

#endif
