/* hf/json.h - the JSON files of a Hugging Face folder. Private to core/formats. */
#ifndef INFERD_FORMATS_HF_JSON_H
#define INFERD_FORMATS_HF_JSON_H

#include "core/base/err.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

enum { HF_CONFIG_MAX_BYTES = 16 << 20, HF_PATH_MAX_BYTES = 4096 };

/* The whole file, NUL-terminated, the caller frees; *text is NULL if there is none and it may be
 * missing. ERR_IO, ERR_FORMAT (too large). */
int hf_file_read(const char *path, size_t max_bytes, bool may_miss, char **text, size_t *n, err *e);

/* JSON whose top level is an object; *document goes to cJSON_Delete, also after an error. */
int hf_json_parse(const char *text, size_t n, void **document, err *e);

/* Members of an object; NULL, NULL or the given value without one of that type. */
const cJSON *hf_member(const cJSON *object, const char *name);
const char *hf_text(const cJSON *object, const char *name);
bool hf_flag(const cJSON *object, const char *name, bool otherwise);

#endif
