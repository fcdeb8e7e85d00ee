/* hf/tokenizer_int.h - the parts of the tokenizer.json reader. Private to core/formats. */
#ifndef INFERD_FORMATS_HF_TOKENIZER_INT_H
#define INFERD_FORMATS_HF_TOKENIZER_INT_H

#include "core/formats/hf/json.h"
#include "core/formats/hf/tokenizer.h"

/* An id member of a list or object: 0 or ERR_FORMAT. */
int hf_id(const cJSON *item, int32_t *id, err *e);

/* ---- hf/tiktoken.c ---- */

/* The vocabulary of a tiktoken.model. */
int hf_tiktoken_read(const char *text, size_t n, struct hf_tokenizer *t, err *e);
/* Adds the special tokens without a name; t->added has room for 256 more. */
int hf_tiktoken_reserve(struct hf_tokenizer *t, err *e);

/* The components of tokenizer.json other than the model. NULL or JSON null: none. */
int hf_read_normalizer(const cJSON *node, struct hf_tokenizer *t, err *e);
int hf_read_pre_tokenizer(const cJSON *node, struct hf_tokenizer *t, err *e);
int hf_read_decoder(const cJSON *node, struct hf_tokenizer *t, err *e);
int hf_read_post_processor(const cJSON *node, struct hf_tokenizer *t, err *e);

#endif
