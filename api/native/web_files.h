/* web_files.h - the files of api/web/, embedded by scripts/embed at build time. Read only. */
#ifndef INFERD_API_NATIVE_WEB_FILES_H
#define INFERD_API_NATIVE_WEB_FILES_H

#include <stddef.h>

struct web_file {
    const char *name; /* path below api/web: "index.html" */
    const char *content_type;
    const char *encoding; /* of the bytes: "gzip", or NULL */
    const char *etag;     /* including its quotes; changes with the bytes */
    const unsigned char *bytes;
    size_t n;
};

extern const struct web_file web_files[];
extern const size_t web_n_files;

#endif
