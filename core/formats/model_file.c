/* model_file.c - tells the kinds of model files apart. Owns nothing. */
#include "core/formats/model_file.h"

#include "core/formats/gguf_split.h"
#include "core/formats/hf_model.h"

#include <sys/stat.h>

int model_file_open(const char *path, int flags, gguf **out, err *e) {
    struct stat st;
    *out = NULL;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return hf_model_open(path, out, e);
    return gguf_split_open(path, flags, out, e);
}
