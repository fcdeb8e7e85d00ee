/* hf/model.h - a Hugging Face model folder as a gguf (model_file.h says how it looks).
 *
 * Sources: transformers' configurations, for members that config.json leaves out and for what they
 * mean, as versions 4 and 5 write them; and llama.cpp's converter, for the keys, tensor names and
 * layouts that GGUF files have.
 *
 * THREAD SAFETY: as gguf.h. */
#ifndef INFERD_FORMATS_HF_MODEL_H
#define INFERD_FORMATS_HF_MODEL_H

#include "core/formats/gguf/gguf.h"

/* folder holds config.json and model.safetensors, or model.safetensors.index.json and the files
 * that it names. ERR_NOT_FOUND (a file is missing), ERR_UNSUPPORTED (names the family, the member
 * of config.json or the tensor that has no counterpart), ERR_FORMAT, ERR_IO. */
int hf_model_open(const char *folder, gguf **out, err *e);

/* A config.json alone, as the keys that its folder would have: no tensors (fuzzing, tests). */
int hf_config_open_memory(const char *json, size_t n, gguf **out, err *e);

#endif
