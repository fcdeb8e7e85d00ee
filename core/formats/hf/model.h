/* hf/model.h - a Hugging Face model folder as a gguf (see model_file.h).
 *
 * Sources: transformers' configurations (versions 4 and 5), for the meaning of members and their
 * defaults; llama.cpp's converter, for keys, tensor names and layouts of GGUF files.
 *
 * THREAD SAFETY: as gguf.h. */
#ifndef INFERD_FORMATS_HF_MODEL_H
#define INFERD_FORMATS_HF_MODEL_H

#include "core/formats/gguf/gguf.h"

/* folder holds config.json and model.safetensors, or model.safetensors.index.json and the files
 * that it names. ERR_NOT_FOUND (a file is missing), ERR_UNSUPPORTED (names the family, the member
 * of config.json or the tensor that has no counterpart), ERR_FORMAT, ERR_IO. flags: of gguf_open.
 */
int hf_model_open(const char *folder, int flags, gguf **out, err *e);

/* The keys of a folder with this config.json, without tensors (fuzzing, tests). */
int hf_config_open_memory(const char *json, size_t n, gguf **out, err *e);

#endif
