/* group_int.h - messages of rank 0 that group.c writes and follow.c reads; group.c draws them. */
#ifndef INFERD_ENGINE_GROUP_INT_H
#define INFERD_ENGINE_GROUP_INT_H

#include "core/engine/engine_int.h"

enum message_kind {
    MESSAGE_OPEN = 1,
    MESSAGE_STEP,
    MESSAGE_FINISH,
    MESSAGE_CLOSE,
    MESSAGE_END,
    MESSAGE_RESULT
};

struct plain_message {
    uint32_t kind;
};

struct open_message {
    uint32_t kind;
    struct engine_config config; /* without pointers */
    char path[4096], backend[32], isa[32];
    char model[33]; /* of stages: model_identity */
};

/* What a message says of the engine to open. Its texts are the message's; the pointers are another
 * process's: none of them is kept. */
void group_read_open(struct open_message *m, struct engine_config *out);

/* Writes a step's message into en->group, without a stage's tail; returns its bytes. */
uint64_t group_put_step(engine *en, const struct step_batch *b);
/* Reads a step's message of n_bytes in en->group: copies blocks, fills the batch. *tail: what only
 * stages have of it (stages_tail_bytes). */
int group_take_step(engine *en, struct step_batch *b, uint32_t n_bytes, char **tail, err *e);
void group_send_plain(engine_group *g, uint32_t to, enum message_kind kind);

/* ---- stages.c ---- */

/* Bytes after the arrays of a step of this shape; 0 without stages. */
uint64_t stages_tail_bytes(const engine *en, const struct model_shape *s);
/* Allocates what results need. *most: bytes of the largest message, of which the caller knows one.
 */
int stages_open_results(engine *en, const struct model_limits *limits, uint64_t *most, err *e);
void stages_close_results(engine *en);
/* A stage that is not the first: runs steps until the model is closed. */
int stages_run(engine *en, struct step_batch *b, err *e);

#endif
