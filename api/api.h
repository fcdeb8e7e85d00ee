/* api.h - the HTTP API of the engines.
 *
 * libmicrohttpd runs a few threads. A connection that waits for tokens is suspended and occupies no
 * thread. One watcher thread resumes connections when their streams have events, triggers
 * keep-alives and notices clients that hang up while suspended. The engine's worker never touches a
 * socket.
 *
 * THREAD SAFETY: api_* from the daemon's main thread; api_add_model, api_remove_model and
 * api_hide_model from any one thread at a time, api_model_use from any, before api_close. */
#ifndef INFERD_API_H
#define INFERD_API_H

#include "api/generate/config.h"
#include "api/generate/model_admin.h"
#include "api/http/http.h"
#include "core/base/err.h"
#include "core/chat/chat.h"
#include "core/engine/engine.h"
#include "registry/responses.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef struct api api;

enum {
    /* Descriptors beside max_connections: connections that are closing, the reserve, its own. */
    API_MORE_FILES = 160
};

/* A request whose Origin header does not match its Host, or whose Host is not allowed, is refused
 * (403), so that pages of other sites cannot use a visitor's daemon. A client that closes its
 * sending side counts as gone.
 *
 * Binds and answers at once: /livez is 200, everything that needs a model 503 until api_set_models.
 * With sockets of a supervisor connections wait until then.
 * ERR_IO: the port is taken (the message names it). */
int api_open(const struct api_config *config, api **out, err *e);
/* What may change while requests run: limits, keys, origins and timeouts (http_apply), and struct
 * api_live's members, aliases and objectives. Any thread, one at a time. ERR_INVALID: nothing
 * changes; an alias that was not there before may be for any model that is known. */
int api_apply(api *a, const struct api_config *config, err *e);
uint16_t api_port(const api *a);
/* Where it listens, as http_get_address and http_is_local say. */
bool api_get_address(const api *a, size_t i, struct http_address *out);
bool api_is_local(const api *a);

/* The first models, perhaps none, are loaded: /readyz turns 200. Called once. models (n) is copied;
 * what it points to is borrowed. ERR_INVALID: an alias of config.model_aliases is for none of them,
 * and for none that a request would load. */
int api_set_models(api *a, const struct api_model *models, size_t n, err *e);

/* One more model, later. ERR_EXISTS, ERR_UNAVAILABLE. */
int api_add_model(api *a, const struct api_model *m, err *e);
/* New requests do not find the model any more. Those that have it may end within drain_s; then
 * what it has cached is stored, likewise within drain_s, and its engine is stopped, which ends them
 * with an error. Returns when nothing refers to it: its engine
 * may be closed. ERR_NOT_FOUND; ERR_STOPPING: *stop was set meanwhile, requests still have it, and
 * it may be closed after api_close. */
int api_remove_model(api *a, const char *id, uint32_t drain_s, const atomic_bool *stop, err *e);

/* How many authentications have failed since the start for the i-th reason, and its name (static).
 * *reason NULL: there are fewer. Any thread. */
uint64_t api_auth_failures(const api *a, unsigned i, const char **reason);

/* A device hangs: /livez turns 503 for good. */
void api_set_hung(api *a);
/* For a process that another one replaces, on the same sockets: http_leave, http_is_quiet. */
void api_leave(api *a);
bool api_is_quiet(api *a, uint64_t for_ns);

/* Once a second: frees what is kept for clients whose time to return is over. */
void api_look(api *a);

/* New requests do not find a hidden model; those that have it go on. */
void api_hide_model(api *a, const char *id, bool hidden);
/* How many requests have it, and when one took or left it last (clock_now_ns). Of a hidden model
 * streams that are only kept for clients that may return are ended first. 0: none. */
uint32_t api_model_use(api *a, const char *id, bool hidden, uint64_t *used_ns);

/* /readyz is 503, so that routers send their requests elsewhere. What still comes is answered, and
 * each answer ends its connection. */
void api_retire(api *a);
/* New requests get 503 and Retry-After, running streams continue; /readyz is 503. */
void api_drain(api *a);
uint32_t api_n_active(const api *a); /* requests that are still running */
/* Sends the traces of requests that have ended, until deadline_ns of clock_now_ns() at the latest.
 */
void api_flush_traces(api *a, uint64_t deadline_ns);

/* Ends what is left and closes. Engines must be stopped first, so that every stream has its final
 * event. NULL is fine. */
void api_close(api *a);

#endif
