/* structured.h - the requested format of a chat answer. Pool threads. */
#ifndef INFERD_API_GENERATE_STRUCTURED_H
#define INFERD_API_GENERATE_STRUCTURED_H

#include "api/generate/chat_request.h"
#include "api/generate/fields.h"

extern const struct json_table response_format_table, structured_outputs_table;
/* Fills q->format from response_format, structured_outputs and the guided fields. */
int chat_format_read(const struct gen_fields *f, struct chat_request *q, err *e);

#endif
