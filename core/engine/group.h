/* group.h - an engine whose ranks are processes (`mpirun -n N`). Rank 0 serves: it has the
 * requests, the scheduler, the sampling and the only files that are written. The others follow:
 * they open the same model read-only, and compute their part of each step that rank 0 sends. */
#ifndef INFERD_ENGINE_GROUP_H
#define INFERD_ENGINE_GROUP_H

#include "core/base/err.h"

#include <stdint.h>

typedef struct backend_link engine_group;

/* Processes that an MPI launcher started, this one included; 1: there is none. */
uint32_t engine_group_launched(void);
/* Meets the other processes: backend_link_open. */
int engine_group_join(const char *version, uint32_t hang_s, engine_group **out, err *e);
uint32_t engine_group_rank(const engine_group *g);
uint32_t engine_group_size(const engine_group *g);
/* Ranks other than 0: does what rank 0 sends until it leaves. ERR_DEVICE: the group has failed. */
int engine_group_follow(engine_group *g, err *e);
/* ERR_DEVICE with the reason once the group has failed, else 0. Any thread. */
int engine_group_failed(engine_group *g, err *e);
/* Rank 0 sends the others home; NULL is fine. Engines are closed. */
void engine_group_leave(engine_group *g);

#endif
