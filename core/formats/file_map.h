/* file_map.h - a file mapped read-only, and whether it is still what was mapped. Private to
 * core/formats.
 *
 * A file that gets shorter while it is mapped raises SIGBUS at the next touch of the lost pages, as
 * does one that the disk cannot give. With the guard of model_file.h such a touch reads zeros and
 * the map counts as lost from then on: who uses what was read asks file_map_check first. A file
 * that is written to in place is noticed by file_map_look; one that was replaced by another of its
 * name, or removed, is not: what is mapped stays as it is.
 *
 * THREAD SAFETY: all from any thread; open and close of one map from one at a time. */
#ifndef INFERD_FORMATS_FILE_MAP_H
#define INFERD_FORMATS_FILE_MAP_H

#include "core/base/err.h"

#include <stdint.h>

/* base is at a multiple of FILE_MAP_ALIGN, and the memory is readable to the end of the last
 * FILE_MAP_ALIGN bytes that the file begins (zeros behind its end), whatever the system's pages
 * are: such is the memory that a GPU reads in place. */
enum { FILE_MAP_ALIGN = 16384 };
struct file_region;
struct file_map {
    const uint8_t *base; /* (bytes), NULL: nothing is mapped */
    uint64_t bytes;      /* of the file */
    struct file_region *region;
};

/* An empty file gives base NULL. ERR_IO: cannot be opened, or is no regular file. */
int file_map_open(const char *path, struct file_map *m, err *e);
void file_map_close(struct file_map *m);                    /* of nothing is fine */
void file_map_drop_pages(const struct file_map *m);         /* read again when they are touched */
uint64_t file_map_readable_bytes(const struct file_map *m); /* a multiple of FILE_MAP_ALIGN */

/* ERR_CHANGED: the file was cut, or is written to, since it was mapped. Makes no system call. */
int file_map_check(const struct file_map *m, err *e);
/* Compares the files of all maps with what they were, by size and time. */
void file_map_look(void);
/* Handles SIGBUS from now on, for the whole process. */
int file_map_guard(err *e);

/* Has the system begin to read mapped bytes that are not in memory. */
void file_map_will_need(const void *data, uint64_t n);

#endif
