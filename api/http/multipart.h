/* multipart.h - a body of multipart/form-data (RFC 7578, RFC 2046 5.1), read as it arrives: parts
 * are given away in pieces, nothing is collected but the head of a part. Pure; one thread at a
 * time. */
#ifndef INFERD_API_HTTP_MULTIPART_H
#define INFERD_API_HTTP_MULTIPART_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MULTIPART_HEAD_BYTES = 4096, MULTIPART_BOUNDARY_BYTES = 70, MULTIPART_MAX_PARTS = 32 };

struct multipart_part {
    char name[128], file[256]; /* file "": none was named */
    char type[128]; /* its media type, "text/plain": lower case, without parameters; "": none, or
                       none that RFC 9110 (8.3.1) allows */
    bool is_file;   /* it has a file name, perhaps an empty one */
};

struct multipart_ops {
    /* A part begins; its bytes follow, perhaps in no piece at all. An error ends the reading. */
    int (*begin)(void *arg, const struct multipart_part *part, err *e);
    int (*data)(void *arg, const char *bytes, size_t n, err *e);
};

struct multipart {
    const struct multipart_ops *ops;
    void *arg;
    char delimiter[4 + MULTIPART_BOUNDARY_BYTES + 1]; /* CR LF "--" boundary */
    size_t n_delimiter, n_matched;
    enum {
        MULTIPART_PREAMBLE,
        MULTIPART_LINE, /* behind a delimiter */
        MULTIPART_HEAD,
        MULTIPART_DATA,
        MULTIPART_EPILOGUE
    } state;
    char head[MULTIPART_HEAD_BYTES + 1]; /* (n_head) of a part, or the rest of a delimiter's line */
    size_t n_head;
    uint32_t n_parts;
};

/* content_type: the header's value; NULL: there is none. ERR_INVALID: it is not multipart/form-data
 * with a boundary. */
int multipart_init(struct multipart *m, const char *content_type, const struct multipart_ops *ops,
                   void *arg, err *e);
/* The next bytes (n). ERR_FORMAT, or an error of ops; nothing may be given afterwards. */
int multipart_take(struct multipart *m, const char *bytes, size_t n, err *e);
/* The body is complete. ERR_FORMAT: it ended too early. */
int multipart_end(const struct multipart *m, err *e);

#endif
