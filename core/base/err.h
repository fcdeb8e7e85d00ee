/* err.h - the one result convention: a function returns 0 or a negative err_code and, as its last
 * argument, takes an err object that says in words what the user can do.
 *
 * Nobody below daemon/main.c prints or exits; the err travels up to whoever talks to the user.
 * An err is caller's storage, plain data, no ownership. Every function accepts e == NULL. */
#ifndef INFERD_BASE_ERR_H
#define INFERD_BASE_ERR_H

#include <stdint.h>

enum err_code {
    ERR_INVALID = -1,      /* the caller's value is wrong; param names the field */
    ERR_NOMEM = -2,        /* an allocation failed or a memory bound is reached */
    ERR_IO = -3,           /* the operating system refused: errno is in the text */
    ERR_FORMAT = -4,       /* bytes from a file or a client break their format */
    ERR_NOT_FOUND = -5,    /* no such model, file, key */
    ERR_FULL = -6,         /* a bounded queue is full: try again later */
    ERR_TOO_LONG = -7,     /* prompt + output can never fit the context or the KV cache */
    ERR_STOPPING = -8,     /* shutting down: refused, nothing was started */
    ERR_DEVICE = -9,       /* the backend failed */
    ERR_UNSUPPORTED = -10, /* well-formed, but not something this build can do */
    ERR_EXISTS = -11,      /* the name is taken */
    ERR_CHANGED = -12,     /* a file is not the one that was registered or opened */
    ERR_WORK = -13,        /* it takes more work than is allowed (work.h) */
    ERR_CANCELLED = -14,   /* given up: the result is not wanted any more */
    ERR_DEADLINE = -15     /* given up: the time that it may take is over */
};

typedef struct err {
    int code;       /* 0 or enum err_code */
    char param[64]; /* offending request field, config key or tensor; "" if none */
    char msg[448];  /* one sentence, no newline, says what to do where possible */
} err;

/* Fills e (if not NULL) and returns code. A longer text is cut. */
int err_set(err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* As err_set and names the offending field. */
int err_set_param(err *e, int code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* ERR_NOMEM, where there is no more to say. */
int err_no_memory(err *e);

/* Puts context ("while loading X: ") before e's text; code and param stay. Returns e->code. */
int err_prefix(err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void err_clear(err *e);

#endif
