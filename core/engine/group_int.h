/* group_int.h - messages of rank 0 that group.c writes and follow.c reads; group.c draws them. */
#ifndef INFERD_ENGINE_GROUP_INT_H
#define INFERD_ENGINE_GROUP_INT_H

#include "core/engine/engine_int.h"

enum message_kind { MESSAGE_OPEN = 1, MESSAGE_STEP, MESSAGE_CLOSE, MESSAGE_END };

struct plain_message {
    uint32_t kind;
};

struct open_message {
    uint32_t kind;
    struct engine_config config; /* without pointers */
    char path[4096], backend[32], isa[32];
};

/* Reads a step's message of n_bytes in en->group: copies blocks, fills the batch. */
int group_take_step(engine *en, struct step_batch *b, uint32_t n_bytes, err *e);

#endif
