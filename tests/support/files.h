/* files.h - whole files for tests. */
#ifndef INFERD_TESTS_FILES_H
#define INFERD_TESTS_FILES_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The file's bytes (*n, which may be NULL) and a NUL; the caller frees. NULL: it cannot be read. */
static inline char *file_read(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    long size = f && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    char *bytes = size >= 0 ? calloc((size_t)size + 1, 1) : NULL;
    if (bytes && (fseek(f, 0, SEEK_SET) || fread(bytes, 1, (size_t)size, f) != (size_t)size)) {
        free(bytes);
        bytes = NULL;
    }
    if (f) fclose(f);
    if (n) *n = bytes ? (size_t)size : 0;
    return bytes;
}

/* NULL: it cannot be read, or is not JSON. */
static inline cJSON *file_json(const char *path) {
    char *text = file_read(path, NULL);
    cJSON *json = text ? cJSON_Parse(text) : NULL;
    free(text);
    return json;
}

/* The first `max` numbers of a JSON array as integers; returns how many. */
static inline uint32_t file_json_ints(const cJSON *array, int32_t *out, uint32_t max) {
    uint32_t n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        if (n < max) out[n++] = item->valueint;
    }
    return n;
}

/* text as folder/name. false: it cannot be written. */
static inline bool file_write(const char *folder, const char *name, const char *text) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    bool whole = fputs(text, f) >= 0;
    return fclose(f) == 0 && whole;
}

#endif
