/* gguf/split.h - split GGUF models, as written by llama.cpp's gguf-split. Private to core/formats.
 *
 * PREFIX-00001-of-0000N.gguf has all keys; every part has some of the tensors and the keys split.no
 * (from 0), split.count and split.tensors.count (of all parts together). */
#ifndef INFERD_FORMATS_GGUF_SPLIT_H
#define INFERD_FORMATS_GGUF_SPLIT_H

#include "core/formats/gguf/gguf.h"

/* Opens path and, if it is the first of several parts, the others: *out has the tensors of all, in
 * order, and no key split.*. An unsplit file is opened as by gguf_open. ERR_NOT_FOUND names a
 * missing part; ERR_INVALID: path is a part other than the first; ERR_FORMAT: the parts do not
 * match. */
int gguf_split_open(const char *path, int flags, gguf **out, err *e);
/* As model_file_open_gguf. */
int gguf_split_open_first(const char *path, int flags, gguf **out, err *e);

#endif
