/* file_map.h - a file mapped read-only. Private to core/formats.
 *
 * A file that is truncated while it is mapped raises SIGBUS at the next touch of the lost pages.
 * The mapping cannot prevent that: whoever opens a model must not let its file change in place, and
 * the registry compares size and time with what was registered before a load. */
#ifndef INFERD_FORMATS_FILE_MAP_H
#define INFERD_FORMATS_FILE_MAP_H

#include "core/base/err.h"

#include <stdint.h>

/* base is at a multiple of FILE_MAP_ALIGN, and the memory is readable to the end of the last
 * FILE_MAP_ALIGN bytes that the file begins (zeros behind its end), whatever the system's pages
 * are: such is the memory that a GPU reads in place. */
enum { FILE_MAP_ALIGN = 16384 };
struct file_map {
    const uint8_t *base; /* (bytes), NULL: nothing is mapped */
    uint64_t bytes;      /* of the file */
};

/* An empty file gives base NULL. ERR_IO: cannot be opened, or is no regular file. */
int file_map_open(const char *path, struct file_map *m, err *e);
void file_map_close(struct file_map *m);                    /* of nothing is fine */
void file_map_drop_pages(const struct file_map *m);         /* read again when they are touched */
uint64_t file_map_readable_bytes(const struct file_map *m); /* a multiple of FILE_MAP_ALIGN */
/* Has the system begin to read mapped bytes that are not in memory. */
void file_map_will_need(const void *data, uint64_t n);

#endif
