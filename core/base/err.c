/* err.c - fills error objects. Owns nothing, allocates nothing, any thread. */
#include "core/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void set_param(err *e, const char *param) {
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
}

int err_set(err *e, int code, const char *fmt, ...) {
    if (!e) return code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    e->code = code;
    e->param[0] = '\0';
    return code;
}

int err_set_param(err *e, int code, const char *param, const char *fmt, ...) {
    if (!e) return code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    e->code = code;
    set_param(e, param);
    return code;
}

int err_prefix(err *e, const char *fmt, ...) {
    if (!e) return ERR_INVALID;
    char head[sizeof e->msg];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(head, sizeof head, fmt, ap);
    va_end(ap);
    if (n < 0) return e->code;
    size_t used = strlen(head);
    snprintf(head + used, sizeof head - used, "%s", e->msg);
    memcpy(e->msg, head, sizeof e->msg);
    return e->code;
}

void err_clear(err *e) {
    if (e) memset(e, 0, sizeof *e);
}

int err_no_memory(err *e) {
    return err_set(e, ERR_NOMEM, "out of memory");
}
