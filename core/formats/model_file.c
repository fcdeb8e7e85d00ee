/* model_file.c - distinguishes the kinds of model files, and the parts of a split one by name. Owns
 * nothing. */
#include "core/formats/model_file.h"

#include "core/formats/file_map.h"
#include "core/formats/gguf/split.h"
#include "core/formats/hf/model.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { PART_BYTES = sizeof "-00001-of-00002.gguf" };

/* Parses five digits; 0 if there is another character. */
static unsigned read_number(const char *text) {
    unsigned n = 0;
    for (int i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9') return 0;
        n = n * 10 + (unsigned)(text[i] - '0');
    }
    return n;
}

bool model_file_part_read(const char *name, struct model_file_part *out) {
    size_t n = strlen(name), m = PART_BYTES - 1;
    if (n <= m) return false;
    const char *end = name + n - m;
    *out = (struct model_file_part){
        .stem_len = n - m, .part = read_number(end + 1), .n_parts = read_number(end + 10)};
    return end[0] == '-' && strncmp(end + 6, "-of-", 4) == 0 && strcmp(end + 15, ".gguf") == 0 &&
           out->part >= 1 && out->part <= out->n_parts;
}

void model_file_part_write(const struct model_file_part *part, char *name) {
    snprintf(name + part->stem_len, PART_BYTES, "-%05u-of-%05u.gguf", part->part, part->n_parts);
}

int model_file_open_gguf(const char *path, int flags, gguf **out, err *e) {
    return gguf_split_open_first(path, flags, out, e);
}

int model_file_open(const char *path, int flags, gguf **out, err *e) {
    struct stat st;
    *out = NULL;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return hf_model_open(path, flags, out, e);
    return gguf_split_open(path, flags, out, e);
}

int model_files_guard(err *e) {
    return file_map_guard(e);
}

void model_files_look(void) {
    file_map_look();
}
