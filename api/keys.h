/* keys.h - API keys and accounts of the registry, for the HTTP server, which does not see the
 * registry. */
#ifndef INFERD_API_KEYS_H
#define INFERD_API_KEYS_H

#include "api/http/key.h"

struct request;
struct request_usage;

/* http_setup.account, if there is a ledger. */
void api_account(struct request *r, const struct request_usage *more);
extern const struct http_keys api_registry_keys;

#endif
