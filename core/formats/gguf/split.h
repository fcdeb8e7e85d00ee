/* gguf/split.h - GGUF models in parts, as llama.cpp's gguf-split writes them. Private to
 * core/formats.
 *
 * PREFIX-00001-of-0000N.gguf holds all keys; each part, the first too, has tensors of its own and
 * split.no (from 0), split.count and split.tensors.count (of all parts together). */
#ifndef INFERD_FORMATS_GGUF_SPLIT_H
#define INFERD_FORMATS_GGUF_SPLIT_H

#include "core/formats/gguf/gguf.h"

/* Opens path and, if it is the first of several parts, the others: *out has the tensors of all, in
 * order, and no key split.*. A file that is no part opens as gguf_open does it. ERR_NOT_FOUND names
 * a missing part; ERR_INVALID: path is not the first part; ERR_FORMAT: the parts do not fit. */
int gguf_split_open(const char *path, int flags, gguf **out, err *e);
/* As model_file_open_gguf. */
int gguf_split_open_first(const char *path, int flags, gguf **out, err *e);

#endif
