/* lex_int.h - private to core/chat/jinja: tokens. */
#ifndef INFERD_JINJA_LEX_INT_H
#define INFERD_JINJA_LEX_INT_H

#include "core/base/err.h"
#include "core/base/mem.h"

#include <stddef.h>
#include <stdint.h>

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
    const char *p; /* (n) text: decoded for strings, plain otherwise */
    size_t n;
    int64_t i;
    double f;
};

/* Splits source into tokens, the last T_END. *tokens goes to free(), their texts lie in mem. 0 or
 * ERR_FORMAT with the line, ERR_NOMEM. */
int jlex(arena *mem, const char *source, struct jtok **tokens, size_t *n_tokens, err *e);

#endif
