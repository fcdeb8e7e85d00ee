/* model_file.h - a model on disk, whatever it is stored as, under GGUF's names.
 *
 * A GGUF, the first of the parts of a split one (-00001-of-0000N), or a Hugging Face folder
 * (config.json and safetensors) opens as a gguf: keys and tensors of a folder are named, shaped and
 * ordered as a converter to GGUF would have written them. A tensor whose bytes lie in the folder's
 * files as they are needed has data in place; of others data is NULL (gguf_tensor_read). Vectors
 * always have data in place, as F32. The vocabulary of a folder is not among the keys:
 * core/tokenizer reads the folder itself.
 *
 * THREAD SAFETY: as gguf.h. */
#ifndef INFERD_FORMATS_MODEL_FILE_H
#define INFERD_FORMATS_MODEL_FILE_H

#include "core/formats/gguf/gguf.h"

#include <stddef.h>

/* As gguf_open. ERR_UNSUPPORTED names the architecture or the member of config.json that has no
 * counterpart here. */
int model_file_open(const char *path, int flags, gguf **out, err *e);

/* A GGUF file alone, for its keys: of a split one the first part, which has all of them.
 * ERR_INVALID names the first part where path is another one. */
int model_file_open_gguf(const char *path, int flags, gguf **out, err *e);

/* The files of open models, for who serves them long: after model_files_guard a file that was cut
 * short does not end the process at the next touch (SIGBUS), but reads as zeros and fails
 * gguf_check; model_files_look, called now and then, finds files that are written to, which fails
 * it too. Both are for all models of the process, from any thread. */
int model_files_guard(err *e);
void model_files_look(void);

/* What STEM-00001-of-00003.gguf says: STEM is the first stem_len bytes, part counts from 1. */
struct model_file_part {
    size_t stem_len;
    unsigned part, n_parts; /* below 100000 */
};
bool model_file_part_read(const char *name, struct model_file_part *out); /* false: no such name */
/* Writes part's numbers into a copy of the name that it was read from. */
void model_file_part_write(const struct model_file_part *part, char *name);

#endif
