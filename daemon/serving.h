/* serving.h - the models of the running daemon: those of the start, and what administrators load
 * and unload later (struct model_admin, which it gives to the API).
 *
 * THREAD SAFETY: serving_* from the daemon's main thread. Tasks run on the threads of model_host.h,
 * the functions of serving_admin on any. `mu` guards the rows and their states; the model, engine
 * and template of a row belong to the thread that loads or unloads it, and do not change in
 * between. */
#ifndef INFERD_SERVING_H
#define INFERD_SERVING_H

#include "api/api.h"
#include "core/base/str.h"
#include "core/kvstore/kvstore.h"
#include "daemon/config.h"

#include <stdbool.h>

typedef struct serving serving;

/* Resolves the models of the key `model` and opens the KV store, loads nothing. config and group,
 * which may be NULL, are borrowed. */
int serving_open(const struct config *config, engine_group *group, serving **out, err *e);
kvstore *serving_kv_store(const serving *s);               /* NULL: there is none */
const struct model_admin *serving_admin(const serving *s); /* for api_open */
/* Loads them and gives them to the API, unless `stopped` says so between two. a is borrowed. */
int serving_start(serving *s, api *a, bool (*stopped)(void), err *e);
/* What a reload changes: prepared, which can fail, then put in force, which cannot. */
struct serving_change;
int serving_prepare(const struct config *c, struct serving_change **out, err *e);
void serving_apply(serving *s, struct serving_change *change);
void serving_change_free(struct serving_change *change); /* applied or not; NULL is fine */
void serving_names(serving *s, str *out);                /* "a, b" */
void serving_look(serving *s);          /* now and then: models leave after keep-alive */
bool serving_device_failed(serving *s); /* that of a model, for good */
/* Called about every passed_ns: how long a device has been in the same step, as these calls saw it;
 * 0: all devices have completed one since the last call, or have nothing to do. */
uint64_t serving_stuck_ns(serving *s, uint64_t passed_ns);
/* Refuses new requests and tasks; running requests continue, running tasks end soon. */
void serving_drain(serving *s);
/* After serving_drain: stores what is cached in the KV store until deadline_ns of clock_now_ns().
 * false: something is left; it may be called again. */
bool serving_save(serving *s, uint64_t deadline_ns);
/* Ends the tasks and all sequences. After it no model comes or goes. NULL is fine. */
void serving_stop(serving *s);
void serving_close(serving *s); /* after api_close. NULL is fine */

#endif
