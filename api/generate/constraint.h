/* constraint.h - the grammar that an answer must follow: tool calls, the requested format. Pool
 * threads. */
#ifndef INFERD_API_GENERATE_CONSTRAINT_H
#define INFERD_API_GENERATE_CONSTRAINT_H

#include "api/generate/chat_request.h"
#include "core/chat/syntax.h"
#include "core/grammar/grammar.h"

/* Makes the grammar of the whole answer, which the caller releases; *out NULL: no constraint. lead:
 * the answer's first space was added by the tokenizer (tokenizer_strips_leading_space). A model
 * without a chat template has no tools, and begin is CHAT_BEGIN_TEXT. Spends from
 * r->work; a failure because it ran out is ERR_WORK in the quick lane, where it is not final, and
 * ERR_INVALID in the slow one. */
int chat_constraint_make(struct request *r, const struct chat_request *q, enum chat_begin begin,
                         bool lead, grammar **out, err *e);

#endif
