/* chat_body.h - the body of POST /v1/chat/completions, which other endpoints read too. Pool
 * threads. */
#ifndef INFERD_API_GENERATE_CHAT_BODY_H
#define INFERD_API_GENERATE_CHAT_BODY_H

#include "api/generate/body.h"
#include "api/generate/chat_request.h"

/* Chat's own fields, chained to gen_table. */
extern const struct json_table chat_table;

/* Reads a whole body: fields and options into q, the rest into chat, which borrows from q and the
 * body; the caller ends it with chat_request_fini, also on failure. */
int chat_body_read(struct request *r, const cJSON *body, struct gen_request *q,
                   struct chat_request *chat, err *e);

/* The fields that a template sees beside messages: documents (borrowed), the two ends of a prompt,
 * and extra (chat_template_kwargs, and reasoning_effort if the template uses it). chat NULL: no
 * template (fuzzing). */
int chat_fields_read(const struct gen_fields *f, const chat_template *chat, struct chat_request *q,
                     err *e);

/* How a request wants the model to think. Names are of fields. */
struct chat_thought {
    const char *effort, *effort_name; /* NULL: not given */
    const char *switch_name;          /* NULL: not given */
    bool on, optional;                /* optional: not listed if the template cannot */
};
/* Gives the template its variables. Effort "none" means no thinking. What the template cannot do is
 * listed as ignored; but a model without thinking does not think. chat as above. */
int chat_thought_apply(const struct chat_thought *t, const chat_template *chat,
                       struct chat_request *q, err *e);

/* ---- chat_messages.c ---- */

extern const struct json_table chat_message_table;
/* Checks messages and makes q->messages of them, the array for chat_prompt(): only known members.
 * What q->model's template does not show is named in q->ignored. */
int chat_messages_read(const cJSON *messages, struct chat_request *q, err *e);

#endif
