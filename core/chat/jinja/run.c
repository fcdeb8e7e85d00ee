/* jinja/run.c - failure and cost of a render. Every other file of the interpreter may call it; it
 * calls none of them. */
#include "core/chat/jinja/run_int.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

const char *jinja_fault_name(enum jinja_fault fault) {
    static const char *const names[] = {
        [JINJA_FAULT_NONE] = "",
        [JINJA_FAULT_TEMPLATE] = "TemplateError",
        [JINJA_FAULT_TYPE] = "TypeError",
        [JINJA_FAULT_UNDEFINED] = "UndefinedError",
        [JINJA_FAULT_SECURITY] = "SecurityError",
        [JINJA_FAULT_RUNTIME] = "TemplateRuntimeError",
        [JINJA_FAULT_VALUE] = "ValueError",
        [JINJA_FAULT_KEY] = "KeyError",
        [JINJA_FAULT_INDEX] = "IndexError",
        [JINJA_FAULT_ZERO] = "ZeroDivisionError",
        [JINJA_FAULT_OVERFLOW] = "OverflowError",
        [JINJA_FAULT_LIMIT] = "LimitError",
    };
    return names[fault];
}

static jval fail_render(jctx *c, enum jinja_fault fault, const char *fmt, va_list ap) {
    if (c->failed) return jundef_plain();
    c->failed = true;
    c->failure->fault = fault;
    c->failure->line = c->line;
    vsnprintf(c->failure->text, sizeof c->failure->text, fmt, ap);
    err_set(&c->error, ERR_INVALID, "chat template, line %d: %s", c->line, c->failure->text);
    return jundef_plain();
}

jval jfail(jctx *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    jval v = fail_render(c, JINJA_FAULT_TYPE, fmt, ap);
    va_end(ap);
    return v;
}

jval jfail_as(jctx *c, enum jinja_fault fault, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    jval v = fail_render(c, fault, fmt, ap);
    va_end(ap);
    return v;
}

void jfail_limit(jctx *c, int code, const char *fmt, ...) {
    bool first = !c->failed;
    va_list ap;
    va_start(ap, fmt);
    fail_render(c, JINJA_FAULT_LIMIT, fmt, ap);
    va_end(ap);
    if (first) c->error.code = code;
}

bool jcharge(jctx *c, uint64_t units) {
    if (c->failed) return false;
    if (units > c->max_steps || (c->steps += units) > c->max_steps) {
        jfail_as(c, JINJA_FAULT_LIMIT, "the template takes more than %" PRIu64 " steps",
                 c->max_steps);
        return false;
    }
    if (!work_spend(c->work, units)) {
        err why;
        work_error(c->work->reason, &why);
        jfail_limit(c, why.code, "%s", why.msg);
        return false;
    }
    return true;
}

void *jalloc(jctx *c, uint64_t bytes) {
    void *p = arena_alloc(c->mem, bytes);
    if (!p) jfail_limit(c, ERR_NOMEM, "rendering needs too much memory");
    return p;
}

bool jenter(jctx *c) {
    if (c->failed) return false;
    if (c->depth >= J_MAX_DEPTH) {
        jfail_as(c, JINJA_FAULT_LIMIT, "more than %d nested evaluations", J_MAX_DEPTH);
        return false;
    }
    c->depth++;
    return true;
}

bool jenter_value(jctx *c) {
    if (c->failed) return false;
    if (c->value_depth >= JINJA_MAX_VALUE_DEPTH) {
        jfail_as(c, JINJA_FAULT_LIMIT, "a value is nested more than %d levels deep",
                 JINJA_MAX_VALUE_DEPTH);
        return false;
    }
    c->value_depth++;
    return true;
}
