/* group.h - an engine of several processes: ranks of tensor parallelism (`mpirun -n N`), or the
 * stages of a pipeline, each with some of the layers, which meet over TCP. A stage may have ranks,
 * too: devices of its own process. The first process, rank 0, serves: it has the requests, the
 * scheduler, the sampling and the only files that are written. The others follow: they open the
 * same model read-only, and compute their part of each step. */
#ifndef INFERD_ENGINE_GROUP_H
#define INFERD_ENGINE_GROUP_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct backend_link engine_group;

/* Processes that an MPI launcher started, this one included; 1: there is none. */
uint32_t engine_group_launched(void);
/* Meets the other processes: backend_link_open. */
int engine_group_join(const char *version, uint32_t hang_s, engine_group **out, err *e);
/* Stages: as struct backend_link_stages has it. */
struct engine_stages {
    const char *others, *listen, *secret_file; /* of the first stage, of another one; of all */
    const char *model_path, *kv_type, *activation_bits;
    uint32_t n_ranks; /* of each stage */
    bool (*stops)(void);
};
/* Meets the other stages: backend_link_open_stages. All must be of the same build, have the same
 * model, number format of the KV cache and number of ranks, and processors of one kind. */
int engine_group_join_stages(const struct engine_stages *how, const char *version, uint32_t hang_s,
                             engine_group **out, err *e);
uint32_t engine_group_rank(const engine_group *g);
uint32_t engine_group_size(const engine_group *g);
/* Ranks other than 0: does what rank 0 sends until it leaves. own: of a stage, which opens its own
 * model, on its own backend; else NULL. ERR_DEVICE: the group has failed. */
struct engine_config;
int engine_group_follow(engine_group *g, const struct engine_config *own, err *e);
/* ERR_DEVICE with the reason once the group has failed, else 0. Any thread. */
int engine_group_failed(engine_group *g, err *e);
/* Rank 0 sends the others home; NULL is fine. Engines are closed. */
void engine_group_leave(engine_group *g);

#endif
