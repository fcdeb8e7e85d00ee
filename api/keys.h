/* keys.h - API keys of the registry, for the HTTP server, which does not see the registry. */
#ifndef INFERD_API_KEYS_H
#define INFERD_API_KEYS_H

#include "api/http/key.h"

extern const struct http_keys api_registry_keys;

#endif
