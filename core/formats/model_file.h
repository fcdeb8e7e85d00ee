/* model_file.h - a model on disk in any supported form, presented as a GGUF.
 *
 * A GGUF, the first part of a split one (-00001-of-0000N) or a Hugging Face folder (config.json and
 * safetensors) opens as a gguf: keys and tensors of a folder get the names, shapes and order that
 * llama.cpp's converter would have written. A tensor that the folder's files store in GGUF's layout
 * has data in place; for others data is NULL (gguf_tensor_read). Vectors always have data in place,
 * as F32. The vocabulary of a folder is not among the keys: core/tokenizer reads the folder.
 *
 * THREAD SAFETY: as gguf.h. */
#ifndef INFERD_FORMATS_MODEL_FILE_H
#define INFERD_FORMATS_MODEL_FILE_H

#include "core/formats/gguf/gguf.h"

#include <stddef.h>

/* As gguf_open. ERR_UNSUPPORTED names the architecture or the member of config.json that has no
 * counterpart here. */
int model_file_open(const char *path, int flags, gguf **out, err *e);

/* Opens one GGUF file for its keys: of a split model only the first part, which has all keys.
 * ERR_INVALID if path is another part; the message names the first. */
int model_file_open_gguf(const char *path, int flags, gguf **out, err *e);

/* Changes of open models' files, for long-running processes. After model_files_guard, access to a
 * truncated file does not end the process (SIGBUS): it reads zeros, and gguf_check fails.
 * model_files_look, called periodically, detects files that were written to; gguf_check then fails
 * too. Both apply to all models of the process, from any thread. */
int model_files_guard(err *e);
void model_files_look(void);

/* The parts of a name STEM-00001-of-00003.gguf: STEM is the first stem_len bytes, part counts from
 * 1. */
struct model_file_part {
    size_t stem_len;
    unsigned part, n_parts; /* below 100000 */
};
bool model_file_part_read(const char *name,
                          struct model_file_part *out); /* false: another kind of name */
/* Writes part's numbers over those in name, a copy of the name that it was read from. */
void model_file_part_write(const struct model_file_part *part, char *name);

#endif
