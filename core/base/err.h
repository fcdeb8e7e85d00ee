/* err.h - the result convention of all rooms: a function returns 0 or a negative err_code; its last
 * argument is an err object that tells the user in words what went wrong and what to do.
 *
 * Only daemon/ prints or exits; the err is passed up to it. An err is caller's storage and plain
 * data. Every function accepts e == NULL. */
#ifndef INFERD_BASE_ERR_H
#define INFERD_BASE_ERR_H

#include <stdint.h>

enum err_code {
    ERR_INVALID = -1,      /* the caller's value is wrong; param names the field */
    ERR_NOMEM = -2,        /* an allocation failed or a memory bound is reached */
    ERR_IO = -3,           /* a system call failed: errno is in the text */
    ERR_FORMAT = -4,       /* a file or a request breaks its format */
    ERR_NOT_FOUND = -5,    /* no such model, file, key */
    ERR_FULL = -6,         /* a bounded queue is full: try again later */
    ERR_TOO_LONG = -7,     /* prompt + output can never fit the context or the KV cache */
    ERR_STOPPING = -8,     /* shutting down: refused, nothing was started */
    ERR_DEVICE = -9,       /* the backend failed */
    ERR_UNSUPPORTED = -10, /* well-formed, but not something this build can do */
    ERR_EXISTS = -11,      /* the name is taken */
    ERR_CHANGED = -12,     /* a file is not the one that was registered or opened */
    ERR_WORK = -13,        /* needs more work than its budget allows (work.h) */
    ERR_CANCELLED = -14,   /* abandoned: the caller cancelled it */
    ERR_DEADLINE = -15,    /* abandoned: its time limit has passed */
    ERR_UNAVAILABLE = -16, /* not now: it is being loaded or unloaded, or its place is taken */
    ERR_QUOTA = -17        /* what a client may use is used up: try again later */
};

typedef struct err {
    int code;       /* 0 or enum err_code */
    char param[64]; /* offending request field, config key or tensor; "" if none */
    char msg[448];  /* one sentence, no newline, says what to do where possible */
} err;

/* Fills e (if not NULL) and returns code. The text is cut at the size of msg. */
int err_set(err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* As err_set; param names the offending field. */
int err_set_param(err *e, int code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* ERR_NOMEM with a general text: for allocations whose size the user cannot change. */
int err_no_memory(err *e);

/* Prepends context ("while loading X: ") to the text; keeps code and param. Returns e->code. */
int err_prefix(err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void err_clear(err *e);

#endif
