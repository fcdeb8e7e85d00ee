/* api.h - the HTTP API of the engines.
 *
 * libmicrohttpd runs a few threads. A connection that waits for tokens is suspended and occupies no
 * thread. One watcher thread resumes connections when their streams have events, triggers
 * keep-alives and notices clients that hang up while suspended. The engine's worker never touches a
 * socket.
 *
 * THREAD SAFETY: api_* from the daemon's main thread. */
#ifndef INFERD_API_H
#define INFERD_API_H

#include "api/generate/config.h"
#include "core/base/err.h"
#include "core/chat/chat.h"
#include "core/engine/engine.h"
#include "registry/responses.h"

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
 * ERR_IO: the port is taken (the message names it). */
int api_open(const struct api_config *config, api **out, err *e);
uint16_t api_port(const api *a);

/* The models are loaded: /readyz turns 200. Called once. models (n) is copied; what it points to is
 * borrowed. ERR_INVALID: an alias of config.model_aliases is for none of them. */
int api_set_models(api *a, const struct api_model *models, size_t n, err *e);

/* New requests get 503 and Retry-After, running streams continue; /readyz is 503. */
void api_drain(api *a);
uint32_t api_n_active(const api *a); /* requests that are still running */

/* Ends what is left and closes. Engines must be stopped first, so that every stream has its final
 * event. NULL is fine. */
void api_close(api *a);

#endif
