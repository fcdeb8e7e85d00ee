/* preset.h - what a name of a model has beside the model: a system prompt, messages, and parameters
 * under Ollama's names. All of it is used where a request is silent. Made by POST /api/create, kept
 * in the registry as JSON: {"system", "parameters": {...}, "messages": [{"role", "content"}]}.
 *
 * THREAD SAFETY: pure functions; a request's own. Pool threads. */
#ifndef INFERD_API_GENERATE_PRESET_H
#define INFERD_API_GENERATE_PRESET_H

#include "api/generate/fields.h"

struct chat_request;
struct request;

/* Reads a stored text; the caller frees *out with cJSON_Delete. ERR_IO: it is damaged. */
int preset_parse(const char *text, cJSON **out, err *e);
/* Puts the values of r's preset, and then those that its model recommends, where the request is
 * silent; after json_read. f borrows the preset's stop strings. */
void preset_recommend(const struct request *r, struct gen_fields *f);
/* Puts the messages of r's preset before q's, and before them the system prompt: q's, which are the
 * system messages that q begins with, or else the preset's. */
int preset_add_messages(const struct request *r, const struct chat_request *q, err *e);

#endif
