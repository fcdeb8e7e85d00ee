/* model_file.c - tells the kinds of model files apart. */
#include "core/formats/model_file.h"

#include <sys/stat.h>

int model_file_open(const char *path, int flags, gguf **out, err *e) {
    struct stat st;
    *out = NULL;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return err_set(e, ERR_UNSUPPORTED, "%s: is a folder, not a GGUF file", path);
    return gguf_open(path, flags, out, e);
}
