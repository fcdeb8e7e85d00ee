/* file_map.h - files mapped read-only, with detection of changes. Private to core/formats.
 *
 * If a mapped file is truncated, or the disk cannot deliver a page, access to the lost pages raises
 * SIGBUS. With the guard of model_file.h such an access reads zeros and marks the map as lost: call
 * file_map_check before using the result of a computation on mapped data. file_map_look detects
 * files that were written in place. Replacing a file by another of its name, or removing it, is not
 * an error: the mapped data does not change.
 *
 * THREAD SAFETY: all functions from any thread; open and close of one map from one at a time. */
#ifndef INFERD_FORMATS_FILE_MAP_H
#define INFERD_FORMATS_FILE_MAP_H

#include "core/base/err.h"

#include <stdint.h>

/* base is a multiple of FILE_MAP_ALIGN, and the memory is readable up to the next multiple of it
 * after the file's end (zeros), whatever the system's page size: a GPU can read it in place. */
enum { FILE_MAP_ALIGN = 16384 };
struct file_region;
struct file_map {
    const uint8_t *base; /* (bytes), NULL: nothing is mapped */
    uint64_t bytes;      /* of the file */
    struct file_region *region;
};

/* An empty file gives base NULL. ERR_IO: cannot be opened, or is not a regular file. */
int file_map_open(const char *path, struct file_map *m, err *e);
void file_map_close(struct file_map *m);                    /* an empty map is fine */
void file_map_drop_pages(const struct file_map *m);         /* they are read again on access */
uint64_t file_map_readable_bytes(const struct file_map *m); /* a multiple of FILE_MAP_ALIGN */

/* ERR_CHANGED: the file was truncated or written since it was mapped. Makes no system call. */
int file_map_check(const struct file_map *m, err *e);
/* Compares size and modification time of the files of all maps with those at opening. */
void file_map_look(void);
/* Installs the SIGBUS handler for the whole process. */
int file_map_guard(err *e);

/* Asks the system to start reading mapped bytes. Only a hint. */
void file_map_will_need(const void *data, uint64_t n);

#endif
