/* jinja.h - a Jinja2 interpreter: templates, the values they are given, and renders.
 *
 * Semantics: Jinja2 as Hugging Face transformers runs it (ImmutableSandboxedEnvironment,
 * trim_blocks, lstrip_blocks, loop controls, `generation` blocks pass through, tojson with
 * separators ", " and ": " and no ASCII escaping, raise_exception, strftime_now). Every loop that
 * a template can cause is charged as steps; memory, output and nesting are bounded.
 *
 * Provenance: a string knows for each byte whether the template wrote it (trusted) or whether it
 * came from input. Scalars carry one flag. An operation that cannot tell keeps "untrusted".
 *
 * Failure is sticky: the first failure of a render is kept; after it every value is undefined and
 * every function returns at once.
 *
 * THREAD SAFETY: a compiled template is immutable and may be shared; a render belongs to one
 * thread. */
#ifndef INFERD_JINJA_H
#define INFERD_JINJA_H

#include "core/base/err.h"
#include "core/base/work.h"
#include "core/chat/jinja/fault.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    JINJA_MAX_STEPS = 5000000,  /* nodes evaluated, plus one for each 64 bytes or item copied */
    JINJA_MAX_VALUE_DEPTH = 256 /* nested containers in an input, compared or printed */
};

/* ---- templates ---- */

typedef struct jinja_template jinja_template;

/* Compiles source (NUL-terminated). ERR_FORMAT with the line of a syntax error, ERR_NOMEM. */
int jinja_template_new(const char *source, jinja_template **out, err *e);
void jinja_template_free(jinja_template *t); /* NULL is fine */

/* Does the template mention a variable of this name? */
bool jinja_template_uses(const jinja_template *t, const char *name);

/* ---- values ---- */

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
    J_GEN, /* a generator in Python: one pass, no length */
    J_LOOP,
    J_MACRO,
    J_FUNC,
    J_METHOD,
    J_CYCLER,
    J_ABSENT /* an argument that was not given; never seen by templates */
};

typedef struct jstr jstr;
typedef struct jctx jctx;

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

/* A string over p[0..n), borrowed until the render ends; undefined when the render has failed. */
jval jstr_make(jctx *c, const char *p, size_t n, bool trusted);
/* A part of a text with one provenance; ends ascend and the last is the text's length. */
struct jrun {
    size_t end;
    bool trusted;
};
/* A string of the parts of p, borrowed for the call as runs are; undefined likewise. */
jval jstr_make_runs(jctx *c, const char *p, const struct jrun *runs, size_t n_runs);
/* An untrusted integer of any length from its digits, borrowed likewise. */
jval jbig_make(jctx *c, const char *digits);
jval jlist_make(jctx *c, enum jkind kind, size_t cap);
bool jlist_push(jctx *c, struct jlist *l, jval v);
jval jdict_make(jctx *c, enum jkind kind, size_t cap);
bool jdict_set(jctx *c, struct jdict *d, jval key, jval value); /* fails on an unhashable key */

/* ---- renders ---- */

struct jinja_options {
    uint64_t max_memory; /* bytes of values and text */
    size_t max_bytes;    /* of the text: ERR_TOO_LONG beyond */
    uint64_t max_steps;
    struct work *work;   /* charged once per step, NULL: not */
    int64_t now;         /* seconds since 1970 for strftime_now (UTC) */
    bool allow_mutation; /* list.append and the like work; otherwise the sandbox refuses them */
};

/* Begins a render of t, which is borrowed. A failure is described in *failure. NULL: no memory. */
jctx *jinja_begin(const jinja_template *t, const struct jinja_options *options,
                  struct jinja_failure *failure);
/* Sets a global variable; ignored when the template does not mention it. */
void jinja_set(jctx *c, const char *name, jval v);
void jinja_run(jctx *c);

struct jinja_text {
    const char *p; /* (n), owned by the render; never NULL */
    size_t n;
    const struct jrun *runs; /* (n_runs) */
    size_t n_runs;
};
struct jinja_text jinja_output(const jctx *c);

bool jinja_failed(const jctx *c);
int jinja_status(const jctx *c, err *e); /* 0, or the failure's code with its message in e */
void jinja_end(jctx *c);

/* ---- failure and cost ---- */

/* Fails the render with "line N: text". Returns undefined. */
jval jfail_as(jctx *c, enum jinja_fault fault, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool jcharge(jctx *c, uint64_t units); /* spends steps; false when spent or failed */
void *jalloc(jctx *c, uint64_t bytes); /* until the render ends; NULL and failed at the bound */

#endif
